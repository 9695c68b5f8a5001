//! The systems of the papers as groups of disks, and the formulas that they print.
//!
//! RERAID's section 5 ("A reliable and energy-efficient storage system with erasure coding cache") prints
//! the only chain. Its formulas do not follow from this chain. They are here as printed, so that tests and
//! tables can compare them with the solved chains; [`Printed`] lists the differences. S2-RAID's paper has no
//! reliability section: its models are derived from its layout, and the caller gives the repair time, since
//! rebuilds are that paper's subject.

use super::model::{Group, Model, Parameters};
use super::quantity::{Exact, whole};
use num_traits::Zero;

/// New data bears two losses in RERAID's section 5.
const RERAID_PARITIES: usize = 2;

/// Sub-array s = j x G + c takes, of group i, partition j of the disk at position (c + i x j) mod G.
pub fn s2_raid5(parameters: &Parameters) -> Result<Model, String> {
    let (disks, row) = (parameters.disks, parameters.row);
    if row < 2 || !disks.is_multiple_of(row) || disks / row < 2 {
        return Err("S2-RAID has two groups or more, of two disks or more each, evenly".into());
    }
    let size = disks / row;
    let most = || {
        (1..=size)
            .rev()
            .find(|count| is_conflict_free(row, size, *count))
    };
    let partitions = parameters.partitions.or_else(most).unwrap_or(1);
    if partitions == 0 || partitions > size || !is_conflict_free(row, size, partitions) {
        return Err(format!(
            "{partitions} partitions on {row} groups of {size} disks make rebuilds collide"
        ));
    }
    let sub_array = |partition: usize, column: usize| {
        let disk = |group| group * size + (column + group * partition) % size;
        Group::new((0..row).map(disk), 1)
    };
    let groups = (0..partitions)
        .flat_map(|partition| (0..size).map(move |column| sub_array(partition, column)));
    Ok(Model::of_groups("s2-raid5", disks, groups.collect()))
}

/// Two sub-arrays of different partitions share at most one disk.
fn is_conflict_free(groups: usize, size: usize, partitions: usize) -> bool {
    (1..groups).all(|apart| (1..partitions).all(|shift| !(apart * shift).is_multiple_of(size)))
}

/// Partition j of data disk d has its mirror at position (d + j) mod h of the other half.
pub fn s2_raid10(parameters: &Parameters) -> Result<Model, String> {
    let half = halves(parameters.disks)?;
    let partitions = parameters.partitions.unwrap_or(half);
    if !(1..=half).contains(&partitions) {
        return Err(format!("1 to {half} partitions mirror {half} disks"));
    }
    let pairs = (0..half).flat_map(|disk| {
        (0..partitions).map(move |partition| pair(disk, half + (disk + partition) % half))
    });
    let model = Model::of_groups("s2-raid10", parameters.disks, pairs.collect());
    Ok(model)
}

/// RERAID as the text of section 5 has it: disks of the awake group fail, those asleep never do.
pub fn reraid_text(parameters: &Parameters) -> Result<Model, String> {
    let (asleep, wakes) = (Exact::zero(), false);
    reraid(&Parameters {
        asleep,
        wakes,
        ..parameters.clone()
    })
}

/// RERAID with what the text leaves out: old data has one mirror, which can fail as well. Its code cache may have other than the paper's two parities.
pub fn reraid(parameters: &Parameters) -> Result<Model, String> {
    let half = halves(parameters.disks)?;
    let tolerates = parameters.tolerates.unwrap_or(RERAID_PARITIES);
    if half <= tolerates {
        return Err(format!(
            "a code cache that tolerates {tolerates} losses requires {} active disks, {} in total: of {} disks {half} are active",
            tolerates + 1,
            2 * (tolerates + 1),
            parameters.disks
        ));
    }
    let cache = Group::new(0..half, tolerates);
    let groups = mirrors(half).chain([cache]).collect();
    let model = Model::of_groups("reraid", parameters.disks, groups);
    Ok(asleep(model, half, parameters))
}

/// GRAID: new data is on the awake group and on a log disk, the last one; old data on both groups.
pub fn graid(parameters: &Parameters) -> Result<Model, String> {
    let log = parameters.disks - 1;
    let half = halves(log).map_err(|_| {
        let disks = parameters.disks;
        format!("GRAID has two equal groups and one log disk, an odd number of disks from three on: not {disks}")
    })?;
    let groups = mirrors(half).chain((0..half).map(|disk| pair(disk, log)));
    let model = Model::of_groups("graid", parameters.disks, groups.collect());
    Ok(asleep(model, half, parameters))
}

/// ERAID as its comparison's section 6.1 has it: new data is in one copy until the mirrors wake.
pub fn eraid(parameters: &Parameters) -> Result<Model, String> {
    let half = halves(parameters.disks)?;
    let single = (0..half).map(|disk| Group::new([disk], 0));
    let groups = mirrors(half).chain(single).collect();
    let model = Model::of_groups("eraid", parameters.disks, groups);
    Ok(asleep(model, half, parameters))
}

fn halves(disks: usize) -> Result<usize, String> {
    if disks < 2 || !disks.is_multiple_of(2) {
        return Err("two equal groups are an even number of disks".into());
    }
    Ok(disks / 2)
}

fn pair(left: usize, right: usize) -> Group {
    Group::new([left, right], 1)
}

fn mirrors(half: usize) -> impl Iterator<Item = Group> {
    (0..half).map(move |disk| pair(disk, half + disk))
}

/// The second of two groups of `half` disks sleeps, each the mirror of one of the first.
fn asleep(mut model: Model, half: usize, parameters: &Parameters) -> Model {
    model.wear[half..2 * half].fill(parameters.asleep.clone());
    if parameters.wakes {
        for disk in 0..half {
            model.wakes_for[half + disk] = Some(disk);
        }
    }
    model
}

/// A formula of RERAID's section 5, letter by letter, of failure rate and repair rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Printed {
    /// (1), RAID-10 of eight disks: (19 l + 2 m) / (8 m^2). It falls with faster repair; m^2 must be l^2. Even then it is
    /// twice what four pairs give.
    Raid10,
    /// (2), GRAID of nine disks: (17 l + 2 m) / (10 m^2), misprinted alike.
    Graid,
    /// (6), RERAID of eight disks: (13 l^2 + 5 l m + 4 m^2) / (12 l^2 (l + m)). The chain of the text gives
    /// (13 l^2 + 5 l m + m^2) / (12 l^3).
    Reraid,
}

impl Printed {
    /// With the squares of (1) and (2) read as those of the failure rate; (6) as printed.
    pub fn hours(self, failure: &Exact, repair: &Exact) -> Exact {
        let two = |a: usize, b: usize, over: usize| {
            (whole(a) * failure + whole(b) * repair) / (whole(over) * failure * failure)
        };
        match self {
            Printed::Raid10 => two(19, 2, 8),
            Printed::Graid => two(17, 2, 10),
            Printed::Reraid => {
                let above = whole(13) * failure * failure
                    + whole(5) * failure * repair
                    + whole(4) * repair * repair;
                above / (whole(12) * failure * failure * (failure + repair))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_nine_disks_are_laid_out_as_printed() {
        let model = s2_raid5(&Parameters::new(9)).expect("3 x 3");
        assert_eq!(model.groups.len(), 9);
        assert_eq!(model.groups[0].disks, [0, 3, 6]);
        assert_eq!(model.groups[1].disks, [1, 4, 7]);
        assert_eq!(model.groups[3].disks, [0, 4, 8]);
        assert_eq!(exposure(&model), 6);
        assert_eq!(exposure(&s2_raid10(&Parameters::new(8)).expect("4 + 4")), 4);
    }

    /// Of the other disks, those whose loss after disk 0 loses data.
    fn exposure(model: &Model) -> usize {
        let exposed = (1..model.disks).filter(|other| {
            let both = |group: &Group| group.disks.contains(&0) && group.disks.contains(other);
            model.groups.iter().any(both)
        });
        exposed.count()
    }

    #[test]
    fn what_collides_is_refused() {
        let with = |disks, row, partitions| {
            let mut parameters = Parameters::new(disks);
            (parameters.row, parameters.partitions) = (row, partitions);
            s2_raid5(&parameters).is_ok()
        };
        assert!(with(36, 6, Some(2)) && with(36, 4, Some(3)));
        assert!(!with(36, 4, Some(4)) && !with(9, 2, None) && !with(9, 3, Some(0)));
        assert!(reraid(&Parameters::new(4)).is_err() && graid(&Parameters::new(8)).is_err());
    }
}
