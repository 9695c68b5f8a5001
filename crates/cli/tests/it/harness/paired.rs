//! An array with a surrogate, called `tank`: three slots and a spare, and a mirror beside them.

use super::steps::{good, number, status, wait_until, write_pattern};
use super::{Daemon, Place};
use serde_json::Value;

/// The array's members.
pub const HOME: [&str; 4] = ["a.img", "b.img", "c.img", "d.img"];
/// All members, the surrogate's among the others.
pub const BOTH: [&str; 6] = ["s0.img", "a.img", "b.img", "s1.img", "c.img", "d.img"];
/// A rebuild of an image of 64 MiB takes half a minute.
pub const SLOW: &str = "2M..2M";

pub fn paired(name: &str) -> Place {
    let place = Place::new(name);
    let options = ["--level", "raid5", "--init", "zero", "--spares", "1"];
    let surrogate = ["--surrogate", "s0.img,s1.img"];
    good(place.create(&HOME, &[&options[..], &surrogate].concat()));
    place
}

pub fn serve(place: &Place, options: &[&str], members: &[&str]) -> Daemon {
    place.serve(&[options, members].concat())
}

pub fn overlay(status: &Value) -> &Value {
    &status["surrogate"]["overlay"]
}

/// The rebuild is over, and everything is home.
pub fn come_home(place: &Place) -> Value {
    good(place.run(&["rebuild", "tank", "--rate", "100M..2G"]));
    wait_until(place, |status| {
        let idle = status["tasks"].as_array().expect("a list").is_empty();
        idle && status["own_state"] == "healthy" && number(&overlay(status)["away_bytes"]) == 0
    })
}

/// Serves slowly, loses a member, and has some writes go to the surrogate.
pub fn with_something_away(place: &Place, options: &[&str]) -> Daemon {
    let daemon = serve(place, &[&["--rate", SLOW], options].concat(), &BOTH);
    write_pattern(place, 1, "0", "8M");
    good(place.run(&["fail", "tank", "b.img"]));
    write_pattern(place, 2, "1M", "2M");
    let found = status(place);
    assert!(number(&overlay(&found)["redirected_writes"]) > 0, "{found}");
    assert_eq!(number(&overlay(&found)["away_bytes"]), 2 << 20, "{found}");
    daemon
}
