//! The mean time to data loss of a layout: its rows as groups of disks, in the chains of
//! [`crate::reliability`].
//!
//! A lost disk is repaired in the time of its rebuild, whatever the load, unless another time is given.
//! Other failed disks are repaired at the same time. If a layout has few enough sets of failed disks, they
//! are the chain's states; otherwise the chain counts failed disks.

use crate::reliability::model::{self, Group, Parameters};
use crate::reliability::{Chain, Conditions, Exact, Model, even};
use restripe_array::Row;
use restripe_array::layout::{Layout, Level};
use std::collections::BTreeSet;

/// A chain over more sets is not solved while somebody waits.
const SETS_MAX: usize = 300;
const MS_AN_HOUR: u64 = 3_600_000;
const HOURS_A_YEAR: f64 = 8760.0;

/// What disks live under.
#[derive(Clone, PartialEq, Debug)]
pub struct Lives {
    /// Mean time to failure of a disk, in hours.
    pub mttf: Exact,
    /// Mean time to repair one, in place of the rebuild's.
    pub repair: Option<Exact>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Lifetime {
    pub hours: f64,
    /// From a chain that leaves nothing out, rather than one that counts.
    pub exact: bool,
}

pub fn of(layout: &Layout, lives: &Lives, rebuild_seconds: f64) -> Result<Lifetime, String> {
    let repair = match &lives.repair {
        Some(repair) => repair.clone(),
        None => hours(rebuild_seconds),
    };
    let conditions = Conditions::new(lives.mttf.clone(), repair);
    let (chain, exact) = chain(&model(layout)?, &conditions)?;
    let expected = chain.expect::<f64>().map_err(|error| error.to_string())?;
    Ok(Lifetime {
        hours: expected.hours,
        exact,
    })
}

/// To the millisecond, and at least one.
fn hours(seconds: f64) -> Exact {
    let ms = (seconds * 1e3).round().max(1.0) as u64;
    Exact::new(ms.into(), MS_AN_HOUR.into())
}

fn chain(model: &Model, conditions: &Conditions) -> Result<(Chain, bool), String> {
    match model.chain(conditions) {
        Ok(chain) if chain.states() <= SETS_MAX || model.groups.len() == 1 => Ok((chain, true)),
        _ => Ok((even::chain(model, conditions)?, false)),
    }
}

/// By counting where a level is one group of all disks, or pairs; else by its rows.
fn model(layout: &Layout) -> Result<Model, String> {
    let geometry = layout.geometry();
    let disks = usize::from(geometry.slots);
    let plain = |name| model::named(name, &Parameters::new(disks));
    match (geometry.level, geometry.skew) {
        (Level::Raid5(_), None) => plain("raid5"),
        (Level::Raid6(_), None) => plain("raid6"),
        (Level::Raid10 { copies: 2 }, None) if disks.is_multiple_of(2) => plain("raid10"),
        _ => Ok(Model::of_groups("rows", disks, groups(layout))),
    }
}

/// The disks of each row, and the losses that it bears.
fn groups(layout: &Layout) -> Vec<Group> {
    let rows = (0..layout.rows()).map(|row| layout.row(Row(row)));
    let disks = rows.map(|map| {
        let slots = map.cells().iter().map(|cell| usize::from(cell.slot.0));
        slots.collect::<BTreeSet<usize>>()
    });
    let distinct: BTreeSet<BTreeSet<usize>> = disks.collect();
    let tolerates = usize::from(layout.tolerance());
    distinct
        .into_iter()
        .map(|disks| Group::new(disks, tolerates))
        .collect()
}

/// In years of 365 days.
pub fn years(hours: f64) -> f64 {
    hours / HOURS_A_YEAR
}

#[cfg(test)]
mod tests {
    use super::super::candidates::{self, Candidate};
    use super::*;
    use crate::reliability::quantity::whole;

    fn lifetime(slots: u16, name: &str, lives: &Lives) -> Lifetime {
        let named = |one: &Candidate| one.name() == name;
        let candidate = candidates::of(slots, true).into_iter().find(named);
        let layout = candidate.expect("it is there").sample().expect("sound");
        of(&layout, lives, 36.0).expect("it ends")
    }

    fn lives() -> Lives {
        Lives {
            mttf: whole(1_000_000),
            repair: None,
        }
    }

    /// The layout's own rows give what the models of the papers give by name.
    #[test]
    fn rows_are_the_groups_of_the_models() {
        let conditions = Conditions::new(whole(1_000_000), whole(1) / whole(100));
        for (slots, name, by_name) in [
            (9, "S2-RAID-5", "s2-raid5"),
            (8, "S2-RAID-10", "s2-raid10"),
            (9, "RAID-5", "raid5"),
            (8, "RAID-10", "raid10"),
        ] {
            let model = model::named(by_name, &Parameters::new(slots.into())).expect("a model");
            let chain = model.chain(&conditions).expect("a chain");
            let hours = chain.expect::<f64>().expect("it ends").hours;
            let found = lifetime(slots, name, &lives());
            assert!(
                found.exact && (found.hours / hours - 1.0).abs() < 1e-9,
                "{name}"
            );
        }
    }

    /// Exposure to 4 of 7 rather than 1 costs four lives, at one repair time.
    #[test]
    fn exposure_costs_lives_and_fast_repair_brings_them_back() {
        let fixed = Lives {
            repair: Some(whole(24)),
            ..lives()
        };
        let ratio = |lives: &Lives| {
            let of = |name| lifetime(8, name, lives).hours;
            of("RAID-10") / of("S2-RAID-10")
        };
        assert!((ratio(&fixed) - 4.0).abs() < 0.01);
        assert!((ratio(&lives()) - 4.0).abs() < 0.01);
    }

    #[test]
    fn what_is_too_large_is_counted() {
        let found = lifetime(36, "S2-RAID-6", &lives());
        assert!(!found.exact && found.hours.is_finite());
        assert!(lifetime(25, "S2-RAID-5", &lives()).exact);
        assert!(lifetime(20, "RAID-6", &lives()).exact);
    }
}
