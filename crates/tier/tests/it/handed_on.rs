//! Space that changes hands reads as zeros: whatever lay on members before the array was made, or before it grew, in spare
//! partitions, and whatever a new member carries, no user reads it. (Leases: `cli/tests`. A create that keeps what lies there, `sync` and `trust`, says so.)

use crate::shell::{Array, CHUNK, Setup, raid1, raid5, raid6};
use crate::spares::{hosted, three_by_three};
use restripe_array::layout::Level;
use restripe_array::meta::{Init, WriteHole};
use restripe_array::{Command, Member, TaskKind, TaskOutcome};

/// Fills the data region of members with bytes of an earlier user.
fn scribble(array: &mut Array, members: impl IntoIterator<Item = usize>) {
    let start = array.data_start();
    for member in members {
        array.disks[member].scribble_from(start);
    }
}

fn levels() -> [Setup; 6] {
    [
        Setup::new(Level::Raid0, 2).hole(WriteHole::None),
        raid1(2).hole(WriteHole::Bitmap),
        Setup::new(Level::Raid4, 3),
        raid5(4),
        raid5(3).hole(WriteHole::None),
        raid6(5),
    ]
}

#[test]
fn array_over_old_data_reads_as_zeros() {
    levels().into_iter().for_each(made_over_old_data);
}

/// What was never written reads as zeros, also beside what was.
pub fn made_over_old_data(mut setup: Setup) {
    setup.options.extent_rows = Some(1);
    let mut array = setup.unwritten().made();
    let members = 0..array.disks.len();
    scribble(&mut array, members);
    array.start().expect("all are here");
    array.verify();
    array.written(3, 2).expect("written");
    array.written(3 * CHUNK + 5, 1).expect("written");
    array.verify();
    array.crash(|_| true);
    array.start().expect("all are here");
    array.verify();
    if array.layout.tolerance() > 0 {
        array.depart(0);
        array.verify();
    }
}

#[test]
fn member_with_old_data_shows_none_of_it() {
    let levels = levels().into_iter();
    levels
        .filter(|setup| setup.options.geometry.level != Level::Raid0)
        .for_each(replaced_by_old_data);
}

pub fn replaced_by_old_data(mut setup: Setup) {
    setup.options.extent_rows = Some(1);
    let mut array = setup.unwritten().start();
    array.written(3, 2).expect("written");
    let info = array.info_of(0);
    let new = array.arrive(info);
    scribble(&mut array, [usize::from(new.0)]);
    let old = Member(0);
    array
        .command(Command::Replace { old, new })
        .expect("it can");
    array.run_tasks();
    array.verify();
    array.written(5 * CHUNK + 3, 2).expect("written");
    array.verify();
    array.consistent();
}

#[test]
fn spare_partitions_with_old_data_show_none_of_it() {
    hosted_over_old_data(three_by_three());
}

/// A lost slot lies in spare partitions, then on a spare: both had old data, and some rows were never written.
pub fn hosted_over_old_data(mut setup: Setup) {
    setup.options.extent_rows = Some(1);
    let mut array = setup.unwritten().made();
    let members = 0..array.disks.len();
    scribble(&mut array, members);
    array.start().expect("all are here");
    array.written(3, 2).expect("written");
    array.depart(4);
    array.run_tasks();
    assert!(!hosted(&array).is_empty());
    array.verify();
    let half = array.layout.size_sectors() / 2;
    array.written(half, 3).expect("written");
    array.verify();
    array.consistent();
    let spare = array.arrive(array.info_of(0));
    scribble(&mut array, [usize::from(spare.0)]);
    array.command(Command::Add(spare)).expect("it fits");
    array.run_tasks();
    let size = array.layout.size_sectors();
    array.written(size - 3, 1).expect("written");
    array.verify();
    array.depart(0);
    array.verify();
}

/// Both ways of growing, of arrays that were written in part and of those that count as written from the start.
#[test]
fn growth_onto_members_with_old_data_adds_zeros() {
    let levels = [
        (Level::Raid0, 2),
        (Level::Raid4, 3),
        (Level::Raid5(Default::default()), 3),
    ];
    for init in [Init::Written, Init::Zero] {
        for (level, slots) in levels {
            for reshapes in [false, true] {
                let mut setup = Setup::new(level, slots).spares(1);
                setup.rows = 12;
                setup.options.init = init;
                if !level.logs_parity() {
                    setup = setup.hole(WriteHole::None);
                }
                grown_onto_old_data(setup, reshapes);
            }
        }
    }
}

pub fn grown_onto_old_data(setup: Setup, reshapes: bool) {
    let level = setup.options.geometry.level;
    let dirty = match setup.options.init {
        Init::Written => 0,
        _ => setup.options.members.len() - 1,
    };
    let mut array = setup.made();
    let members = dirty..array.disks.len();
    scribble(&mut array, members);
    array.start().expect("all are here");
    array.written(3, 40).expect("written");
    let command = match reshapes {
        true => Command::Reshape { by: 1 },
        false => Command::Grow { by: 1 },
    };
    if array.command(command).is_err() {
        let least_moves = level.parities() < 2 && level != Level::Raid5(Default::default());
        assert!(!reshapes && !least_moves, "{level:?}");
        return;
    }
    array.run_tasks();
    assert!(array.ended(TaskKind::Growth, TaskOutcome::Done));
    has_grown(&mut array, reshapes);
}

fn has_grown(array: &mut Array, reshaped: bool) {
    array.layout = match reshaped {
        true => crate::reshapes::after(array, 1),
        false => crate::growth::after(array, 1),
    };
    let size = array.layout.size_sectors();
    array.model.resize(size as usize * 512, 0);
    array.verify();
    array.written(size - 5, 5).expect("new capacity");
    array.written(size - 3 * CHUNK, 2).expect("new capacity");
    array.verify();
    array.crash(|_| true);
    array.start().expect("all are here");
    array.verify();
}
