//! Which layouts so many disks can have.

use restripe_array::SLOTS_MAX;
use restripe_array::layout::{Level, Rotation, Skew};

/// A row of a mirror has two cells: RAID-10 near-2, or two groups.
const COPIES: u8 = 2;

/// A level on so many slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    pub level: Level,
    pub slots: u16,
    pub skew: Option<Skew>,
}

impl Candidate {
    pub fn partitions(&self) -> u16 {
        self.skew.map_or(1, |skew| skew.partitions)
    }

    /// As the literature calls it.
    pub fn name(&self) -> String {
        let number = match self.level {
            Level::Raid5(_) => 5,
            Level::Raid6(_) => 6,
            _ => 10,
        };
        match self.skew {
            None => format!("RAID-{number}"),
            Some(skew) if skew.partitions > 1 => format!("S2-RAID-{number}"),
            Some(_) if number == 10 => "RAID-10".into(),
            Some(_) => format!("RAID-{number}0"),
        }
    }
}

const RAID5: Level = Level::Raid5(Rotation::LeftSymmetric);
const RAID6: Level = Level::Raid6(Rotation::LeftSymmetric);
const RAID10: Level = Level::Raid10 { copies: COPIES };

/// Plain levels first; then groups that bear two partitions or more, with the most that are free of conflict, and with
/// `flat` each of those groupings unskewed behind it. Two groups with parity would be mirrors, which come last.
pub fn of(slots: u16, flat: bool) -> Vec<Candidate> {
    let plain = [RAID5, RAID6, RAID10].map(|level| Candidate {
        level,
        slots,
        skew: None,
    });
    let skewed = [RAID5, RAID6, RAID10].into_iter().flat_map(|level| {
        let skewed = groups(level, slots).filter_map(move |groups| skewed(level, slots, groups));
        skewed.flat_map(move |one| [Some(one), flat.then_some(unskewed(one))])
    });
    let all = plain.into_iter().chain(skewed.flatten());
    all.filter(|one| one.sample().is_ok()).collect()
}

/// How many groups a row of this level may have.
fn groups(level: Level, slots: u16) -> impl Iterator<Item = u16> {
    let (least, most) = match level {
        Level::Raid10 { copies } => (u16::from(copies), u16::from(copies)),
        level => (level.slots_min().max(3), slots),
    };
    (least..=most).filter(move |groups| slots.is_multiple_of(*groups))
}

fn skewed(level: Level, slots: u16, groups: u16) -> Option<Candidate> {
    let partitions = Skew::partitions_max(groups, slots / groups);
    (partitions > 1).then_some(Candidate {
        level,
        slots,
        skew: Some(Skew { groups, partitions }),
    })
}

fn unskewed(candidate: Candidate) -> Candidate {
    let one = |skew: Skew| Skew {
        partitions: 1,
        ..skew
    };
    Candidate {
        skew: candidate.skew.map(one),
        ..candidate
    }
}

/// The nearest numbers of disks that have groups of this level free of conflict, below and above.
pub fn nearest(level: Level, slots: u16) -> Vec<Candidate> {
    let first = |slots: u16| {
        let groupings = groups(level, slots).filter_map(move |groups| skewed(level, slots, groups));
        groupings.into_iter().find(|one| one.sample().is_ok())
    };
    let below = (1..slots).rev().find_map(first);
    let above = (slots + 1..=SLOTS_MAX as u16).find_map(first);
    below.into_iter().chain(above).collect()
}

/// The levels that have skewed forms.
pub const LEVELS: [Level; 3] = [RAID5, RAID6, RAID10];

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and groups, as in `S2-RAID-5 3/3`.
    fn names(slots: u16, flat: bool) -> Vec<String> {
        let told = |one: Candidate| match one.skew {
            None => one.name(),
            Some(Skew { groups, partitions }) => {
                format!("{} {groups}/{partitions}", one.name())
            }
        };
        of(slots, flat).into_iter().map(told).collect()
    }

    #[test]
    fn every_grouping_free_of_conflict_is_there() {
        let plain = ["RAID-5", "RAID-6", "RAID-10"];
        let with = |more: &[&'static str]| [&plain[..], more].concat();
        assert_eq!(names(8, false), with(&["S2-RAID-10 2/4"]));
        assert_eq!(names(9, false), with(&["S2-RAID-5 3/3"]));
        assert_eq!(names(9, true), with(&["S2-RAID-5 3/3", "RAID-50 3/1"]));
        assert_eq!(
            names(20, false),
            with(&["S2-RAID-5 4/5", "S2-RAID-6 4/5", "S2-RAID-10 2/10"])
        );
        // More than a row has cells at most.
        assert_eq!(
            names(36, false),
            [
                "S2-RAID-5 3/6",
                "S2-RAID-5 4/3",
                "S2-RAID-5 6/2",
                "S2-RAID-6 4/3",
                "S2-RAID-6 6/2",
                "S2-RAID-10 2/18",
            ]
        );
        assert_eq!(names(3, false), ["RAID-5", "RAID-10"]);
        assert!(names(0, true).is_empty() && names(1, true).is_empty());
    }

    #[test]
    fn the_nearest_numbers_have_groups() {
        let counts = |level, slots| -> Vec<u16> {
            let nearest = nearest(level, slots);
            nearest.iter().map(|one| one.slots).collect()
        };
        assert_eq!(counts(RAID5, 8), [9]);
        assert_eq!(counts(RAID5, 10), [9, 12]);
        assert_eq!(counts(RAID6, 9), [16]);
        assert_eq!(counts(RAID10, 9), [8, 10]);
    }
}
