//! Read errors, more than a member may have, met by every kind of slice: only what the rest of the row recovers counts
//! against the member. What else a member has may be on no other, so nothing that is lost ever fails one.

use crate::shell::{Array, CHUNK, Setup, raid1, raid5, raid6};
use restripe_array::layout::Level;
use restripe_array::meta::{Init, WriteHole};
use restripe_array::{Command, Member, Nanos, ScrubMode, StartMode};

/// Enough that each member has more than its limit of any role, and of chunks that a growth moves.
const ROWS: u64 = 120;
/// The block of each chunk that cannot be read.
const AT: u64 = 8;
const BLOCK: u64 = 8;
/// A member fails with one more.
const LIMIT: u64 = 20;

/// What meets the errors.
struct Work {
    name: &'static str,
    levels: Vec<(Setup, u16)>,
    /// Before anything is unreadable.
    ready: fn(Setup) -> Array,
    meet: fn(&mut Array),
    /// Members that are away while the errors are met, or whose own cells are what is read.
    away: u16,
}

fn sized(mut setup: Setup) -> Setup {
    setup.rows = ROWS;
    setup.options.log_sectors = Some(2048);
    setup.info(|info| (info.sectors, info.logical_block) = (16384, 4096))
}

/// Levels of which one member more than these errors spoil can be spared, and how many may be missing.
fn redundant() -> Vec<(Setup, u16)> {
    vec![(raid6(5), 2), (raid1(3), 2), (rs(), 3)]
}

fn rs() -> Setup {
    Setup::new(Level::ReedSolomon { parities: 3 }, 6).hole(WriteHole::Bitmap)
}

fn written(setup: Setup) -> Array {
    let mut array = setup.start();
    let size = array.layout.size_sectors();
    for lba in (0..size).step_by(48) {
        array.written(lba, 48.min(size - lba)).expect("written");
    }
    array.flushed();
    array
}

/// The blocks that can be spoilt, of all chunks.
fn blocks(array: &Array) -> impl Iterator<Item = u64> + use<> {
    let size = array.layout.size_sectors();
    (AT..size).step_by(CHUNK as usize)
}

fn works() -> Vec<Work> {
    let plain = |name, meet| Work {
        name,
        levels: redundant(),
        ready: written,
        meet,
        away: 0,
    };
    vec![
        plain("merge", |array| {
            for lba in blocks(array) {
                // A write of a part of a block, which may fail where the rest of it is lost.
                let _ = array.written(lba + 3, 1);
            }
        }),
        Work {
            levels: vec![(raid6(5), 2), (rs(), 3)],
            ..plain("write", |array| {
                for lba in blocks(array) {
                    array.written(lba, BLOCK).expect("written");
                }
            })
        },
        plain("read", |array| {
            for lba in blocks(array) {
                let _ = array.read(lba, 1);
            }
        }),
        Work {
            away: 1,
            ..plain("fill", |array| {
                let last = array.layout.geometry().slots - 1;
                array.command(Command::Fail(Member(last))).expect("fails");
                run_tasks(array);
            })
        },
        Work {
            levels: vec![(Setup::new(Level::Raid4, 3), 1)],
            ..plain("move", |array| {
                array.command(Command::Grow { by: 1 }).expect("it can");
                run_tasks(array);
            })
        },
        Work {
            levels: vec![(raid5(4), 1), (raid6(5), 2)],
            ..plain("reshape", |array| {
                array.command(Command::Reshape { by: 1 }).expect("it can");
                run_tasks(array);
            })
        },
        Work {
            ready: |mut setup| {
                setup.options.init = Init::Sync;
                setup.made()
            },
            ..plain("resync", |array| {
                array.start().expect("a whole array starts");
                run_tasks(array);
            })
        },
        plain("check", |array| scrub(array, ScrubMode::Check)),
        plain("repair", |array| scrub(array, ScrubMode::Repair)),
        Work {
            levels: vec![(raid6(5), 2)],
            ready: cut_short,
            ..plain("replay", |array| {
                let accepting = Command::Start(StartMode {
                    accept_loss: true,
                    ..StartMode::PLAIN
                });
                array.command(accepting).expect("it starts");
                run_tasks(array);
            })
        },
    ]
}

/// Tasks go on until they end, or wait for a member.
fn run_tasks(array: &mut Array) {
    for _ in 0..200 {
        array.run();
        if array.engine.status().tasks.is_empty() {
            return;
        }
        array.pass(Nanos::from_millis(200));
    }
}

fn scrub(array: &mut Array, mode: ScrubMode) {
    array.command(Command::Scrub(mode)).expect("it can run");
    run_tasks(array);
}

/// An array after a power cut. Its logs hold the record of one write for each row.
fn cut_short(setup: Setup) -> Array {
    let mut array = written(setup);
    for row in 0..2 * LIMIT {
        array.write(row * 3 * CHUNK + AT, BLOCK);
    }
    array.run_but("write data");
    array.crash(|_| true);
    array
}

fn spoil(array: &mut Array, members: core::ops::Range<u16>) {
    let start = array.data_start();
    for member in members {
        for row in 0..ROWS {
            array.spoil(member, start + row * CHUNK + AT, BLOCK);
        }
    }
}

fn failed(array: &Array, but: &[u16]) -> Vec<u16> {
    let members = 0..array.disks.len() as u16;
    members
        .filter(|member| array.failed(*member) && !but.contains(member))
        .collect()
}

#[test]
fn what_is_lost_never_fails_a_member_in_any_kind_of_work() {
    for work in works() {
        for (setup, missing) in work.levels {
            let slots = setup.options.members.len() as u16;
            let mut array = (work.ready)(sized(setup.spares(1)));
            spoil(&mut array, 0..missing + 1 - work.away);
            (work.meet)(&mut array);
            let away = [slots - 1];
            let away = &away[..usize::from(work.away)];
            assert_eq!(failed(&array, away), [], "{} of {slots}", work.name);
            let line = &array.engine.status().members[0];
            assert!(
                u64::from(line.lost_errors) > LIMIT,
                "{} of {slots}: {line:?}",
                work.name
            );
            assert_eq!(
                line.read_errors, line.lost_errors,
                "{} of {slots}",
                work.name
            );
        }
    }
}

/// A replay is left out. It reads little but what its record changed, so it may not know what is recoverable.
#[test]
fn what_the_rest_of_a_row_recovers_fails_its_member_in_any_kind_of_work() {
    for work in works().into_iter().filter(|work| work.name != "replay") {
        for (setup, _) in work.levels {
            let slots = setup.options.members.len() as u16;
            let mut array = (work.ready)(sized(setup.spares(1)));
            spoil(&mut array, 0..1);
            (work.meet)(&mut array);
            let away = [slots - 1];
            let away = &away[..usize::from(work.away)];
            assert_eq!(failed(&array, away), [0], "{} of {slots}", work.name);
        }
    }
}
