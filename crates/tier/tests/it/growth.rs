//! Growth by the least moves: a chunk is copied within its row, and nothing live is written over.

use crate::shell::{Array, CHUNK, Setup};
use restripe_array::cache::Rule;
use restripe_array::layout::scaled::{History, Run};
use restripe_array::layout::{Geometry, Layout, Level, Role};
use restripe_array::{
    Command, CommandError, Fact, IoError, Member, MemberInfo, Moves, Nanos, RequestOp, Row,
    ScrubMode, Slot, TaskKind, TaskOutcome,
};
use std::collections::BTreeSet;

const INFO: MemberInfo = MemberInfo {
    sectors: 1024,
    logical_block: 512,
    trim_zeroes: true,
    fast_zero: true,
    volatile: false,
};

pub fn plain(level: Level, slots: u16, spares: usize) -> Setup {
    Setup::new(level, slots).spares(spares)
}

/// Everything written, and flushed.
pub fn full(setup: Setup) -> Array {
    let mut array = setup.start();
    let size = array.layout.size_sectors();
    for lba in (0..size).step_by(24) {
        array.written(lba, 24.min(size - lba)).expect("written");
    }
    array.flushed();
    array
}

/// The layout that an array has after a growth by so many.
pub fn after(array: &Array, by: u16) -> Layout {
    let geometry = *array.layout.geometry();
    let data = geometry.slots - geometry.level.parities();
    let mask = geometry
        .grown
        .map_or(1 << (data - 1), |history| history.mask());
    Layout::new(Geometry {
        slots: geometry.slots + by,
        grown: History::of_mask(mask | 1 << (data + by - 1)),
        ..geometry
    })
    .expect("it can grow so")
}

/// Users find the new capacity, which is zeros.
pub fn has_grown(array: &mut Array, after: Layout) {
    assert!(array.engine.status().tasks.is_empty());
    assert_eq!(array.engine.status().size_bytes, after.size_sectors() * 512);
    array.layout = after;
    array.model.resize(after.size_sectors() as usize * 512, 0);
    array.verify();
}

fn grow(array: &mut Array, by: u16) {
    let after = after(array, by);
    array.command(Command::Grow { by }).expect("it can grow");
    array.run_tasks();
    assert!(array.ended(TaskKind::Growth, TaskOutcome::Done));
    has_grown(array, after);
}

#[test]
fn an_array_grows_and_grows_again() {
    let shapes = [
        (Level::Raid0, 2, 1, 1),
        (Level::Raid0, 1, 1, 2),
        (Level::Raid4, 3, 1, 2),
        (Level::Raid4, 4, 2, 1),
        (Level::Raid4, 2, 3, 1),
    ];
    for (level, slots, first, second) in shapes {
        if slots < level.slots_min() {
            continue;
        }
        let mut array = full(plain(level, slots, usize::from(first + second)));
        grow(&mut array, first);
        let size = array.layout.size_sectors();
        array.written(size - 40, 40).expect("new capacity");
        array.written(3, size - 7).expect("all of it");
        array.verify();
        grow(&mut array, second);
        let end = array.layout.size_sectors();
        array
            .written(size - 5, end - size)
            .expect("old and new capacity");
        array.verify();
        if level == Level::Raid4 {
            array.consistent();
            array.depart(0);
            array.verify();
        }
    }
}

/// What is held is held by its address, wherever it stands.
#[test]
fn a_cache_stays_right_through_a_growth() {
    let mut array = full(plain(Level::Raid4, 3, 1).cached(200, Rule::VdfLfu));
    array.verify();
    let after = after(&array, 1);
    let end = after.size_sectors();
    array.command(Command::Grow { by: 1 }).expect("it can grow");
    array.written(70, 30).expect("meanwhile");
    array.verify();
    array.run_tasks();
    has_grown(&mut array, after);
    array.written(end - 20, 10).expect("on the new member, too");
    array.verify();
    array.depart(3);
    array.verify();
    array.written(0, end).expect("without it");
    array.verify();
}

/// The operations of a whole growth on set data: reads and writes by member.
pub fn operations(mut array: Array, by: u16, moves: Moves) -> Operations {
    let after = after(&array, by);
    array.listing();
    array.command(Command::Moves(moves)).expect("taken");
    array.command(Command::Grow { by }).expect("it can grow");
    array.run_tasks();
    let listing = array.listing();
    has_grown(&mut array, after);
    array.consistent();
    let of = |op: &str| {
        let lines = listing.lines().filter(|line| line.contains(op));
        let member = |line: &str| line[1..line.find(' ').expect("a word")].parse::<u16>();
        lines.filter_map(|line| member(line).ok()).collect()
    };
    let data = listing.lines().filter(|line| line.contains(" data+"));
    Operations {
        data: data.map(str::to_string).collect(),
        reads: of("read data+"),
        writes: of("write data+"),
        superblocks: of("write super"),
    }
}

pub struct Operations {
    pub data: BTreeSet<String>,
    pub reads: Vec<u16>,
    pub writes: Vec<u16>,
    superblocks: Vec<u16>,
}

/// McPod, section 3.2: a region takes a read of each of m - 1 members and a write of each of n, and none of parity.
#[test]
fn a_region_takes_a_read_of_each_old_member_and_a_write_of_each_new_one() {
    for (slots, by) in [(3, 1), (3, 2), (4, 1), (4, 3), (5, 2)] {
        let array = full(plain(Level::Raid4, slots, usize::from(by)));
        let rows = array.layout.rows();
        let history = after(&array, by).geometry().grown;
        let growth = history.and_then(|history| history.growths().next_back());
        let growth = growth.expect("it grows");
        let regions = || (0..growth.regions(rows)).map(|index| growth.region(index, rows));
        // Parity stands between the old data slots and the new ones.
        let listed = |op: &str, run: Run| {
            let member = run.slot.0 + u16::from(run.slot.0 >= slots - 1);
            let (at, sectors) = (run.rows.start * CHUNK, run.rows.end - run.rows.start);
            format!("m{member} {op} data+{at} {}", sectors * CHUNK)
        };
        let reads = regions().flat_map(|region| region.reads());
        let writes = regions().flat_map(|region| region.writes());
        let wanted: BTreeSet<String> = reads
            .map(|run| listed("read", run))
            .chain(writes.map(|run| listed("write", run)))
            .collect();
        let found = operations(array, by, Moves::Best);
        assert_eq!(found.data, wanted, "{slots} + {by}");
    }
}

/// What is at hand to be measured beside the best way does less of what the paper has, and no other harm.
#[test]
fn every_way_of_moving_does_what_its_name_says() {
    let of = |moves| operations(full(plain(Level::Raid4, 3, 1)), 1, moves);
    let best = of(Moves::Best);
    // Of three rows two chunks move, one of each old slot.
    let apart = of(Moves::Chunkwise);
    let moved = (8 * 2 / 3 + 1) as usize;
    assert_eq!((apart.reads.len(), apart.writes.len()), (moved, moved));
    let recorded = of(Moves::Recorded);
    assert_eq!(recorded.reads.len(), best.reads.len());
    assert!(recorded.superblocks.len() >= best.superblocks.len() + 2 * 4);
    let parity = |members: &[u16]| members.iter().filter(|member| **member == 2).count();
    assert_eq!(parity(&best.reads) + parity(&best.writes), 0);
    let in_place = of(Moves::ParityInPlace);
    assert_eq!((parity(&in_place.reads), parity(&in_place.writes)), (3, 3));
    assert_eq!(in_place.reads.len(), best.reads.len() + 3);
    let recomputed = of(Moves::ParityRecomputed);
    assert_eq!(
        (parity(&recomputed.reads), parity(&recomputed.writes)),
        (0, 3)
    );
}

/// What was joined and failed is tried apart: of a stretch that is read at once only a sector is recovered, or lost.
#[test]
fn of_a_stretch_that_cannot_be_read_only_that_sector_is_lost() {
    for lost in [false, true] {
        let mut array = full(plain(Level::Raid4, 3, 2));
        let after = after(&array, 2);
        // Rows 0 and 1 of the first slot move together.
        let lba = 2 * CHUNK + 3;
        let (member, at) = array.home(lba);
        array.spoil(member, at, 1);
        if lost {
            let parity = array.slot_of(1, Role::P);
            array.spoil(parity, at, 1);
        }
        array.command(Command::Grow { by: 2 }).expect("it can grow");
        array.run_tasks();
        assert!(array.ended(TaskKind::Growth, TaskOutcome::Done));
        let told: &[(u64, u64)] = if lost { &[(lba, 1)] } else { &[] };
        assert_eq!(array.engine.status().lost, told);
        if lost {
            assert!(array.read(lba, 1).is_err());
            array.written(lba, 1).expect("given anew");
        }
        has_grown(&mut array, after);
        array.consistent();
    }
}

/// Cuts the power after this number of operations of a growth. Returns whether the growth had ended before.
pub fn crash_amid_growth(array: &mut Array, by: u16, step: usize, kept: bool) -> bool {
    array.order(Command::Grow { by });
    let mut ended = false;
    for _ in 0..step {
        ended = array.held.is_empty();
        if ended {
            break;
        }
        array.end_first(Ok(()));
    }
    array.crash(|_| kept);
    ended
}

/// Power is cut after every operation of a growth, with all that was cached kept, or nothing.
#[test]
fn a_growth_goes_on_after_any_crash() {
    for level in [Level::Raid0, Level::Raid4] {
        for kept in [true, false] {
            for step in 0.. {
                let mut array = full(plain(level, 3, 2));
                let after = after(&array, 2);
                let ended = crash_amid_growth(&mut array, 2, step, kept);
                array.start().expect("starts");
                array.run_tasks();
                if array.engine.status().size_bytes == array.layout.size_sectors() * 512 {
                    // The command was not on record.
                    array.verify();
                    array.command(Command::Grow { by: 2 }).expect("again");
                    array.run_tasks();
                }
                has_grown(&mut array, after);
                if level == Level::Raid4 {
                    array.consistent();
                }
                if ended {
                    break;
                }
            }
        }
    }
}

/// A growth that has moved some rows of many, with none of that on record.
fn half_moved(level: Level) -> (Array, Layout) {
    let mut setup = plain(level, 3, 1);
    setup.rows = 80;
    let mut array = full(setup.info(|info| info.sectors = 4096));
    let after = after(&array, 1);
    array.flushed();
    array.pass(Nanos::from_secs(10));
    array.order(Command::Grow { by: 1 });
    array.run_only("super");
    while moved(&array) < 10 {
        array.end_first(Ok(()));
    }
    (array, after)
}

pub fn moved(array: &Array) -> u64 {
    array.engine.status().tasks[0].rows_done
}

/// A sector whose chunk the growth has moved, and one whose chunk stays in its slot.
fn in_moved_rows(array: &Array, after: &Layout) -> (u64, u64) {
    let slot = |layout: &Layout, lba| {
        let place = layout.place(lba);
        layout.data_cell(place.row, place.data).slot
    };
    let moves = |lba: &u64| slot(&array.layout, *lba) != slot(after, *lba);
    let first_rows = || (0..4 * array.layout.row_sectors()).step_by(CHUNK as usize);
    let stays = first_rows().find(|lba| !moves(lba)).expect("most stay");
    (first_rows().find(moves).expect("some move"), stays)
}

#[test]
fn a_write_to_what_was_moved_puts_that_on_record_first() {
    for level in [Level::Raid0, Level::Raid4] {
        let (mut array, after) = half_moved(level);
        array.command(Command::Pause(true)).expect("it stands");
        let (moved, stays) = in_moved_rows(&array, &after);
        array.listing();
        array.written(stays, 8).expect("written");
        assert!(!array.listing().contains("super"), "nothing to record");
        let write = array.write(moved, 8);
        assert!(array.mentions("flush") && !array.mentions("write data"));
        array.run_only("flush");
        assert!(array.mentions("super") && !array.mentions("write data"));
        array.run();
        assert_eq!(array.reply(write), Some(Ok(())));
        array.listing();
        array.written(moved + 3, 7).expect("written");
        assert!(!array.listing().contains("super"), "it is on record");
        array.flushed();
        array.crash(|_| false);
        array.start().expect("starts");
        array.verify();
        array.command(Command::Pause(false)).expect("it goes on");
        array.run_tasks();
        has_grown(&mut array, after);
    }
}

/// Also where only some of the row's cells have moved.
#[test]
fn a_trim_of_a_moved_row_puts_that_on_record_first() {
    let (mut array, after) = half_moved(Level::Raid4);
    array.command(Command::Pause(true)).expect("it stands");
    let (moved, _) = in_moved_rows(&array, &after);
    let row = array.layout.row_sectors();
    array.request(RequestOp::Trim, moved / row * row, row);
    assert!(array.mentions("flush") && !array.mentions("trim data"));
    array.run_only("flush");
    assert!(array.mentions("super") && !array.mentions("trim data"));
    array.run_only("super");
    array.run_only("log");
    assert!(array.mentions("trim data"));
}

#[test]
fn what_was_moved_and_is_not_on_record_is_found_where_it_was() {
    for level in [Level::Raid0, Level::Raid4] {
        let (mut array, after) = half_moved(level);
        array.crash(|label| !label.starts_with("m3 data"));
        array.start().expect("starts");
        array.verify();
        array.run_tasks();
        has_grown(&mut array, after);
    }
}

/// Whichever it is: one that gives chunks, parity, or the one that takes them.
#[test]
fn a_member_lost_half_way_is_rebuilt_and_the_growth_goes_on() {
    for gone in 0..4 {
        let (mut array, after) = half_moved(Level::Raid4);
        array.depart(gone);
        array.run();
        assert!(moved(&array) < 80, "it stands while somebody is missing");
        array.verify();
        for row in (0..80).step_by(3) {
            let lba = array.layout.lba(Row(row), 1, 2);
            array.written(lba, 9).expect("degraded");
        }
        array.verify();
        array.flushed();
        array.crash(|_| false);
        let blank = array.take_out(gone.into());
        array.start().expect("starts without it");
        array.verify();
        drop(blank);
        let info = MemberInfo {
            sectors: 4096,
            ..INFO
        };
        let spare = array.arrive(info);
        array.command(Command::Add(spare)).expect("it fits");
        array.run_tasks();
        has_grown(&mut array, after);
        array.consistent();
    }
}

/// Who takes chunks fails with some in its cache: they are owed to it, and not only what users wrote since.
#[test]
fn what_was_moved_to_a_member_that_fails_is_brought_to_it_again() {
    let (mut array, after) = half_moved(Level::Raid4);
    assert!(moved(&array) > 0, "and none of it is flushed");
    array.wait(Nanos::from_secs(3));
    array.order(Command::Fail(Member(3)));
    // A checkpoint is due, and is flushed without that member.
    array.run();
    array.crash(|_| false);
    array.start().expect("starts without it");
    array.command(Command::Add(Member(3))).expect("it is back");
    array.run_tasks();
    has_grown(&mut array, after);
    array.consistent();
}

/// A slot is filled without what was moved away from it: that has to be on record before the slot is the new member's.
#[test]
fn who_is_filled_is_not_looked_to_for_what_was_moved_away() {
    for level in [Level::Raid0, Level::Raid4] {
        let (mut array, after) = half_moved(level);
        let info = MemberInfo {
            sectors: 4096,
            ..INFO
        };
        let new = array.arrive(info);
        let old = Member(1);
        array.order(Command::Replace { old, new });
        while !array.ended(TaskKind::Replace, TaskOutcome::Done) {
            array.run();
            array.wait(Nanos::from_millis(10));
        }
        array.crash(|_| false);
        array.start().expect("all are here");
        array.verify();
        array.run_tasks();
        has_grown(&mut array, after);
    }
}

/// A read that was under way to a place before the growth may come when the place is new capacity.
#[test]
fn new_capacity_waits_for_reads_that_began_before() {
    let mut setup = plain(Level::Raid0, 2, 1);
    setup.rows = 8;
    let mut array = full(setup);
    let after = after(&array, 1);
    // Row 1 gives the chunk of its second slot.
    let read = array.request(RequestOp::Read, 3 * CHUNK, 8);
    let label = array.labels()[0].to_owned();
    array.order(Command::Grow { by: 1 });
    array.run_but(&label);
    for _ in 0..50 {
        array.wait(Nanos::from_millis(200));
        array.run_but(&label);
    }
    assert_eq!(moved(&array), 8);
    assert_eq!(
        array.engine.status().size_bytes,
        array.layout.size_sectors() * 512
    );
    array.run();
    assert_eq!(array.reply(read), Some(Ok(())));
    assert!(array.brought(read, 3 * CHUNK));
    array.run_tasks();
    has_grown(&mut array, after);
}

#[test]
fn what_cannot_grow_says_why() {
    let refused = |array: &mut Array, by, why: &str| {
        let answer = array.command(Command::Grow { by });
        let Err(CommandError::Busy(reason) | CommandError::Unsuited(reason)) = answer else {
            panic!("{answer:?}");
        };
        assert!(reason.contains(why), "{reason}");
        array.verify();
    };
    let mut plain5 = full(Setup::new(Level::Raid5(Default::default()), 3).spares(1));
    refused(&mut plain5, 1, "levels 5 and 6");
    let mut array = full(plain(Level::Raid4, 3, 1));
    refused(&mut array, 2, "too few spares");
    refused(&mut array, 0, "at least one new member");
    refused(&mut array, 30, "maximum number of members");
    array.order(Command::Scrub(ScrubMode::Check));
    let busy = array.order(Command::Grow { by: 1 });
    array.run_tasks();
    assert!(array.answer(busy).is_some_and(|answer| answer.is_err()));
    let mut lender = full(plain(Level::Raid4, 3, 1).lending(CHUNK));
    refused(&mut lender, 1, "leases");
    array.depart(0);
    array.run_tasks();
    array.depart(1);
    refused(&mut array, 1, "degraded");
}

/// What cannot be read and not be recovered is lost, and nothing else.
#[test]
fn what_is_lost_where_it_stood_is_told_and_the_rest_moves() {
    for level in [Level::Raid0, Level::Raid4] {
        let mut array = full(plain(level, 3, 1));
        let after = after(&array, 1);
        let (moves, _) = in_moved_rows(&array, &after);
        let (member, at) = array.home(moves + 5);
        array.spoil(member, at, 1);
        let mut lost = vec![moves + 5];
        if level == Level::Raid4 {
            let other = (member + 1) % 2;
            array.spoil(other, at, 1);
            let place = array.layout.place(moves + 5);
            let cell = array.layout.row(place.row).cell_on(Slot(other));
            lost.push(
                array
                    .layout
                    .lba(place.row, cell.expect("data"), place.offset),
            );
        }
        lost.sort_unstable();
        array.command(Command::Grow { by: 1 }).expect("it can grow");
        array.run_tasks();
        let told: Vec<(u64, u64)> = lost.iter().map(|lba| (*lba, 1)).collect();
        assert_eq!(array.engine.status().lost, told);
        for lba in lost {
            assert!(array.read(lba, 1).is_err());
            array.written(lba, 1).expect("written anew");
        }
        has_grown(&mut array, after);
        if level == Level::Raid4 {
            array.consistent();
        }
    }
}

/// A write of the growth's that mentions this, once it is held.
fn held(array: &mut Array, part: &str) -> String {
    array.run_but(part);
    let labels = array.labels();
    let found = labels.into_iter().find(|label| label.contains(part));
    found.expect("it is written").to_string()
}

/// Without redundancy nobody can be spared: a sector that cannot be written is tried again, and users go on.
#[test]
fn a_growth_without_redundancy_waits_for_who_cannot_be_written() {
    for (part, spoiled) in [("m2 write data", None), ("m0 write data", Some(5))] {
        let mut array = full(plain(Level::Raid0, 2, 1));
        let after = after(&array, 1);
        if let Some(lba) = spoiled {
            let (member, at) = array.home(lba);
            assert_eq!(member, 0);
            array.spoil(member, at, 1);
        }
        array.order(Command::Grow { by: 1 });
        let told = |fact: &Fact| matches!(fact, Fact::MoveFailed { .. });
        while !array.has_fact(told) {
            let label = held(&mut array, part);
            array.fail(&label, IoError::Media);
        }
        array.run_tasks();
        assert!(array.ended(TaskKind::Growth, TaskOutcome::Done));
        if let Some(lba) = spoiled {
            assert_eq!(array.engine.status().lost, [(lba, 1)]);
            array.written(lba, 1).expect("given anew");
        }
        has_grown(&mut array, after);
    }
}

/// Parity is made to fit what a crash would find: what was moved is put on record before it is believed.
#[test]
fn a_repair_waits_until_what_was_moved_is_on_record() {
    let mut array = full(plain(Level::Raid4, 3, 1));
    array.order(Command::Grow { by: 1 });
    let label = held(&mut array, "m3 write data");
    array.complete(&label);
    array.command(Command::Pause(true)).expect("it runs");
    array.run();
    array.listing();
    array.order(Command::Scrub(ScrubMode::Sync));
    array.run();
    let listing = array.listing();
    let flushed = listing.find("m3 flush").expect("the new member is flushed");
    let after = &listing[flushed..];
    let recorded = after.find("write super").expect("it is recorded");
    let read = after.find("m3 read data").expect("the scrub reads");
    assert!(recorded < read, "{listing}");
}
