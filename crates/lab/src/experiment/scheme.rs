//! Rebuild schemes by the names that papers give them: an order, and what becomes of users meanwhile.

use crate::nearest;
use restripe_array::Order;
use restripe_tier::Redirect;

/// How a rebuild goes, and where its users are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scheme {
    pub order: Order,
    pub redirect: Redirect,
    /// The drives of a surrogate are further members of the array: what else the same hardware could be.
    pub wide: bool,
}

const fn scheme(order: Order, redirect: Redirect) -> Scheme {
    Scheme {
        order,
        redirect,
        wide: false,
    }
}

const SCHEMES: [(&str, Scheme); 9] = [
    ("pr", scheme(Order::Pr, Redirect::None)),
    ("sor", scheme(Order::Sor, Redirect::None)),
    ("dor", scheme(Order::Dor, Redirect::None)),
    ("pro", scheme(Order::Pro, Redirect::None)),
    ("ido-order", scheme(Order::Ido, Redirect::None)),
    ("workout", scheme(Order::Pr, Redirect::WorkOut)),
    ("vdf", scheme(Order::Pr, Redirect::Vdf)),
    ("ido", scheme(Order::Ido, Redirect::Ido)),
    (
        "pr-wide",
        Scheme {
            wide: true,
            ..scheme(Order::Pr, Redirect::None)
        },
    ),
];

impl Scheme {
    pub fn named(name: &str) -> Result<Scheme, String> {
        let found = SCHEMES.iter().find(|(known, _)| *known == name);
        let names = || SCHEMES.iter().map(|(known, _)| *known);
        found
            .map(|(_, scheme)| *scheme)
            .ok_or_else(|| nearest::unknown("scheme", name, names()))
    }
}
