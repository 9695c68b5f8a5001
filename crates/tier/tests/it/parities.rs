//! Rows of three parities and more: whatever is lost up to their number is read, written and brought back, and a scrub
//! knows who is wrong.

use crate::shell::{Array, CHUNK, Setup};
use restripe_array::layout::{Level, Role, RowMap};
use restripe_array::meta::{CreateError, Init, WriteHole, create};
use restripe_array::{
    Command, CommandError, Cure, Fact, Member, Row, ScrubMode, TaskKind, TaskOutcome, Uuid,
};

fn of(parities: u8, slots: u16) -> Setup {
    Setup::new(Level::ReedSolomon { parities }, slots).hole(WriteHole::Bitmap)
}

/// Why no such array is made.
fn refusal(setup: Setup) -> CreateError {
    let mut options = setup.options;
    let members = 1..=options.members.len() as u8;
    options.uuids = members.map(|n| Uuid([n; 16])).collect();
    create(&options).expect_err("no such array")
}

/// Data in all rows, some of them written in whole and some in parts.
fn filled(setup: Setup) -> Array {
    let mut array = setup.start();
    let size = array.layout.size_sectors();
    array.written(0, size / 2).expect("written");
    for lba in (size / 2..size).step_by(24) {
        array.written(lba, 24.min(size - lba)).expect("written");
    }
    array.flushed();
    array
}

/// Every set of so many members of so many.
fn sets(of: u16, count: u32) -> impl Iterator<Item = Vec<u16>> {
    let members = move |set: u32| {
        (0..of)
            .filter(move |member| set >> member & 1 == 1)
            .collect()
    };
    let sets = (0..1u32 << of).filter(move |set| set.count_ones() == count);
    sets.map(members)
}

/// Reads, writes of every kind and a rebuild without these members.
fn bears(mut array: Array, lost: &[u16]) {
    for member in lost {
        array.depart(*member);
        array.run();
    }
    array.verify();
    let row = array.layout.row_sectors();
    // A whole row, part of a cell, across cells, and less than a block.
    for (lba, sectors) in [
        (0, row),
        (row + 3, 5),
        (2 * row + 8, 2 * CHUNK),
        (3 * row, 1),
    ] {
        array.written(lba, sectors).expect("written");
    }
    array.verify();
    array.flushed();
    for member in lost {
        array.command(Command::Add(Member(*member))).expect("back");
        array.run_tasks();
    }
    assert_eq!(array.engine.status().members.len(), array.disks.len());
    array.verify();
    array.consistent();
}

#[test]
fn any_three_of_six_are_borne() {
    for lost in sets(6, 3) {
        bears(filled(of(3, 6)), &lost);
    }
}

#[test]
fn as_many_as_there_are_parities_are_borne() {
    for (parities, slots) in [(3, 4), (4, 7), (5, 6), (6, 9), (7, 16), (8, 32)] {
        // Data, parities, and some of each, in a row or the other.
        for first in [0, slots / 2, slots - u16::from(parities)] {
            let lost: Vec<u16> = (first..slots).take(parities.into()).collect();
            bears(filled(of(parities, slots)), &lost);
        }
    }
}

#[test]
fn one_loss_more_is_told_exactly() {
    let mut array = filled(of(3, 6));
    for member in 0..4 {
        array.depart(member);
        array.run();
    }
    let mut lost = 0;
    for lba in (0..array.layout.size_sectors()).step_by(8) {
        let here = array.home(lba).0 > 3;
        let read = array.read(lba, 8);
        assert_eq!(read.is_ok(), here, "{lba}");
        lost += u32::from(read.is_err());
    }
    assert!(lost > 0);
}

// ------------------------------------------------------------------------------------------------------- scrubs

fn scrub(array: &mut Array, repair: bool) -> Vec<(Option<Member>, bool)> {
    array.facts.clear();
    let scrub = Command::Scrub(ScrubMode::writing(repair));
    array.command(scrub).expect("a scrub can run");
    array.run_tasks();
    let told = array.facts.iter().filter_map(|fact| match fact {
        Fact::Mismatch { guilty, cure, .. } => Some((*guilty, *cure != Cure::Left)),
        _ => None,
    });
    told.collect()
}

/// Adds an error to a byte of the first row on a member.
fn add(array: &mut Array, member: u16, byte: u64, error: u8) {
    let at = array.data_start() * 512 + byte;
    let sector = at - at % 512;
    let mut bytes = array.disks[usize::from(member)].image[sector as usize..][..512].to_vec();
    bytes[(at % 512) as usize] ^= error;
    array.disks[usize::from(member)].forge(sector / 512, &bytes);
}

#[test]
fn a_scrub_names_the_guilty_whoever_it_is() {
    for (parities, slots) in [(3, 4), (3, 6), (4, 9), (8, 12)] {
        for member in 0..slots {
            let mut array = filled(of(parities, slots));
            add(&mut array, member, 1700, 0x5a);
            let guilty = Some(Member(member));
            assert_eq!(scrub(&mut array, false), [(guilty, false)]);
            assert_eq!(scrub(&mut array, true), [(guilty, true)]);
            assert_eq!(scrub(&mut array, true), []);
            array.verify();
        }
    }
}

/// Each in a block of its own: no block has two.
#[test]
fn two_wrong_cells_are_told_apart_by_their_blocks() {
    let mut array = filled(of(3, 6));
    add(&mut array, 2, 100, 1);
    add(&mut array, 4, 5000, 7);
    let found = scrub(&mut array, true);
    assert_eq!(found, [(Some(Member(2)), true), (Some(Member(4)), true)]);
    assert_eq!(scrub(&mut array, true), []);
    array.verify();
}

/// Errors of two data cells that to the first two parities look like one of a third, with that one.
fn feigned(map: &RowMap) -> (u8, u8) {
    let field = |parity: u8, data: u8| map.coefficient(map.data + parity, data);
    let sum = |parity, error| field(parity, 0) ^ product(field(parity, 1), error);
    let looks_like = |error: u8, cell: u8| {
        product(sum(0, error), field(1, cell)) == product(sum(1, error), field(0, cell))
    };
    let cells = 2..map.data;
    let mut pairs = cells.flat_map(|cell| (2..=255).map(move |error| (error, cell)));
    pairs
        .find(|(error, cell)| sum(0, *error) != 0 && looks_like(*error, *cell))
        .expect("there is one")
}

fn product(mut a: u8, b: u8) -> u8 {
    (0..8).fold(0, |sum, bit| {
        let part = if b >> bit & 1 == 1 { a } else { 0 };
        a = a << 1 ^ if a & 0x80 != 0 { 0x1d } else { 0 };
        sum ^ part
    })
}

#[test]
fn a_third_parity_clears_whom_two_would_blame() {
    for repair in [false, true] {
        let mut array = filled(of(3, 8));
        let map = array.layout.row(Row(0));
        let (error, cell) = feigned(&map);
        let slot = |cell: u8| map.cells()[usize::from(cell)].slot.0;
        add(&mut array, slot(0), 77, 1);
        add(&mut array, slot(1), 77, error);
        let innocent = usize::from(slot(cell));
        let before = array.disks[innocent].image.clone();
        assert_eq!(scrub(&mut array, repair), [(None, false)]);
        let data = array.data_start() as usize * 512;
        assert!(array.disks[innocent].image[data..] == before[data..]);
    }
}

/// Two of three parities are wrong in one place: nobody can be named, and parity follows the data.
#[test]
fn wrong_parities_follow_the_data() {
    let mut array = filled(of(3, 6));
    for parity in [0, 2] {
        let member = array.slot_of(0, Role::Parity(parity));
        add(&mut array, member, 9, 0x33);
    }
    assert_eq!(scrub(&mut array, true), [(None, true)]);
    assert_eq!(scrub(&mut array, true), []);
    array.verify();
}

/// An unreadable cell beside one that is wrong without saying so.
#[test]
fn nothing_is_made_of_rot() {
    let mut array = filled(of(3, 6));
    add(&mut array, 0, 3 * 512, 1);
    let at = array.data_start() + 3;
    array.spoil(1, at, 1);
    let before = array.disks[1].image.clone();
    assert_eq!(scrub(&mut array, true), [(None, false)]);
    assert_eq!(array.disks[1].bad.len(), 1);
    let data = at as usize * 512;
    assert!(array.disks[1].image[data..] == before[data..]);
}

// ------------------------------------------------------------------------------------------ starts and refusals

#[test]
fn a_resynchronisation_writes_the_parity_that_differs() {
    for parity in 0..4 {
        let mut setup = of(4, 7).hole(WriteHole::None);
        setup.options.init = Init::Sync;
        let mut array = setup.made();
        let member = array.slot_of(2, Role::Parity(parity));
        let at = array.data_start() + 2 * CHUNK;
        array.corrupt(member, at);
        array.listing();
        array.start().expect("a whole array starts");
        array.run_tasks();
        assert!(array.ended(TaskKind::Resync, TaskOutcome::Done));
        let listing = array.listing();
        let written = listing.lines().filter(|line| line.contains("write data+"));
        let written: Vec<&str> = written.collect();
        assert_eq!(written.len(), 1, "{written:?}");
        assert!(written[0].starts_with(&format!("m{member} ")));
        array.consistent();
    }
}

/// Some members have what was being written when power went, and some have not.
#[test]
fn a_row_that_a_crash_tore_is_brought_in_step() {
    for kept in 0..1u32 << 5 {
        let mut array = of(3, 5).start();
        array.written(0, 2 * CHUNK).expect("written");
        array.flushed();
        array.write(4, 8);
        array.run_but("flush");
        let keep = |label: &str| {
            (0..5).any(|m| kept >> m & 1 == 1 && label.starts_with(&format!("m{m} ")))
        };
        array.crash(keep);
        array.start().expect("a whole array starts");
        array.run_tasks();
        array.consistent();
        let found = array.read(12, 2 * CHUNK - 12).expect("readable");
        assert!(found == array.model[12 * 512..2 * CHUNK as usize * 512]);
    }
}

#[test]
fn no_log_is_kept_for_more_than_two_parities() {
    for (hole, told) in [
        (WriteHole::Ppl, "its log has space for two parities"),
        (WriteHole::WholeRows, "except as a surrogate"),
    ] {
        let refused = refusal(of(3, 6).hole(hole));
        assert!(matches!(refused, CreateError::WriteHole { .. }));
        assert!(refused.to_string().ends_with(told), "{refused}");
    }
}

#[test]
fn parities_are_three_to_eight_beside_data() {
    for (parities, slots, told) in [
        (0, 4, "with 1 it is RAID-5, with 2 RAID-6"),
        (2, 6, "with 1 it is RAID-5, with 2 RAID-6"),
        (9, 12, "3 to 8"),
        (3, 3, "this level needs 4 or more"),
        (8, 8, "this level needs 9 or more"),
    ] {
        let refused = refusal(of(parities, slots));
        assert!(refused.to_string().contains(told), "{refused}");
    }
}

#[test]
fn it_does_not_grow() {
    for growth in [Command::Grow { by: 1 }, Command::Reshape { by: 1 }] {
        let mut array = of(3, 6).spares(1).start();
        let refused = array.command(growth);
        assert!(
            matches!(refused, Err(CommandError::Unsuited(_))),
            "{refused:?}"
        );
    }
}
