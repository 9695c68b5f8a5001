//! Safety: the floor above the clients.
//!
//! Takes members out of service that fail, judges those without space, and makes extents real before their
//! first write. Owns the extents that are becoming real; the rest of what it changes lies on the floors
//! beneath. Sends [`crate::facts::Notice::Halted`], [`crate::facts::Notice::MemberOut`] and
//! [`crate::facts::Notice::MetadataMoved`].

mod failure;
mod first_write;
mod full;

use crate::clients::Clients;
use crate::config::Config;
use crate::members::pool::Share;
use alloc::vec::Vec;
use core::ops::Range;

pub struct Safety {
    pub(crate) below: Clients,
    inits: Inits,
}

floor!(Safety, Clients);

impl Safety {
    pub(crate) fn new(config: Config, share: Share) -> Safety {
        Safety {
            inits: Inits::default(),
            below: Clients::new(config, share),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Init {
    extent: u64,
    /// Its first row that is made real.
    first: u64,
    /// Of the data cells that it makes real.
    generations: Generations,
    /// The first row that is not being zeroed yet.
    next: u64,
    outstanding: u32,
    zeroed: bool,
}

/// From one to another, which is not among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Generations {
    from: u8,
    to: u8,
}

/// Extents being made real. Few at a time: writers of one extent share it.
#[derive(Default)]
struct Inits {
    list: Vec<Option<Init>>,
}

impl Inits {
    fn find(&self, extent: u64) -> Option<usize> {
        let of_it = |init: &Option<Init>| init.is_some_and(|init| init.extent == extent);
        self.list.iter().position(of_it)
    }

    fn is_empty(&self) -> bool {
        self.list.iter().all(Option::is_none)
    }

    /// Whether any of these extents is being made real.
    fn any_of(&self, extents: &Range<u64>) -> bool {
        let mut inits = self.list.iter().flatten();
        inits.any(|init| extents.contains(&init.extent))
    }

    fn add(&mut self, init: Init) -> usize {
        match self.list.iter().position(Option::is_none) {
            Some(index) => {
                self.list[index] = Some(init);
                index
            }
            None => {
                self.list.push(Some(init));
                self.list.len() - 1
            }
        }
    }
}
