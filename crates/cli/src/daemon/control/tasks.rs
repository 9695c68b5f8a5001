//! Scrubs, and how fast and in which order tasks go on.

use crate::daemon::control::array::{Answered, ServedArray, date};
use crate::units::{Rate, parse_order, parse_throttle};
use restripe_array::{Command, ScrubMode};
use restripe_io::control::Refusal;

pub(super) fn scrub(array: &ServedArray, repair: bool, sync: bool) -> Answered {
    let mode = match (repair, sync) {
        (false, _) => ScrubMode::Check,
        (true, false) => ScrubMode::Repair,
        (true, true) => ScrubMode::Sync,
    };
    // Its dates are those of a clock that may have been set since the start.
    array.command(date())?;
    array.order(Command::Scrub(mode), "scrub started")
}

pub(super) fn rate(array: &ServedArray, min: u64, max: u64) -> Answered {
    let rate = Rate { min, max }.checked().map_err(Refusal::new)?;
    array.order(Command::Rate { min, max }, &format!("rate: {rate}"))
}

pub(super) fn throttle(array: &ServedArray, name: &str) -> Answered {
    let throttle = parse_throttle(name).map_err(Refusal::new)?;
    array.order(Command::Throttle(throttle), &format!("throttle: {name}"))
}

pub(super) fn order(array: &ServedArray, name: &str) -> Answered {
    let order = parse_order(name).map_err(Refusal::new)?;
    array.order(Command::Order(order), &format!("order: {name}"))
}

pub(super) fn on_demand(array: &ServedArray, on: bool) -> Answered {
    let state = if on { "on" } else { "off" };
    array.order(Command::OnDemand(on), &format!("on demand: {state}"))
}

pub(super) fn copy_back(array: &ServedArray, on: bool) -> Answered {
    let state = if on { "on" } else { "off" };
    array.order(Command::CopyBack(on), &format!("copy back: {state}"))
}
