//! Arrays with a history of growth: rows whose data are several runs of addresses.

use crate::shell::{Array, CHUNK, grown4};
use restripe_array::layout::Role;
use restripe_array::{Command, Member, MemberInfo, RequestOp, Row, TaskKind, TaskOutcome};

const INFO: MemberInfo = MemberInfo {
    sectors: 1024,
    logical_block: 512,
    trim_zeroes: true,
    fast_zero: true,
    volatile: false,
};

/// The parity's slot: the first data slots stand before it, those that were added behind it.
const PARITY: u16 = 2;

#[test]
fn a_write_ends_at_the_end_of_its_run() {
    let mut array = grown4(&[2, 3]).start();
    let first = array.layout.rows() * 2 * CHUNK;
    let end = array.layout.size_sectors();
    array.written(0, first).expect("the first generation");
    array.written(first, end - first).expect("the second");
    // Over both: two rows, one at each end.
    array
        .written(first - 5, 2 * CHUNK)
        .expect("over the border");
    array.verify();
    array.consistent();
}

#[test]
fn no_write_fills_a_row_but_both_generations_keep_its_parity() {
    let mut array = grown4(&[2, 3]).start();
    array.listing();
    array.write(0, 2 * CHUNK);
    array.run_but("write data");
    let listing = array.listing();
    assert!(
        listing.contains("read data+0 16"),
        "the cell of the other generation, or parity: {listing}"
    );
    array.run();
    array.verify();
    array.consistent();
}

#[test]
fn a_lost_slot_is_rebuilt_whatever_it_held() {
    for gone in 0..5 {
        let mut array = grown4(&[2, 3, 4]).start();
        array.written(0, array.layout.size_sectors()).expect("full");
        array.flushed();
        array.depart(gone);
        array.verify();
        for row in 0..array.layout.rows() {
            let lba = array.layout.lba(Row(row), 3, 3);
            array.written(lba, 9).expect("degraded");
        }
        array.verify();
        let spare = array.arrive(INFO);
        array.command(Command::Add(spare)).expect("it fits");
        array.run_tasks();
        assert!(array.ended(TaskKind::Rebuild, TaskOutcome::Done), "{gone}");
        array.verify();
        array.consistent();
    }
}

#[test]
fn a_row_is_found_wherever_it_stands_after_a_crash() {
    let mut array = grown4(&[1, 3]).start();
    array.written(0, array.layout.size_sectors()).expect("full");
    array.flushed();
    array.crash(|_| true);
    array.start().expect("starts");
    array.verify();
    for row in 0..array.layout.rows() {
        assert_eq!(array.slot_of(row, Role::P), 1, "it keeps its slot");
    }
    array.consistent();
}

#[test]
fn zeros_for_a_whole_run_are_written_as_data() {
    let mut array = grown4(&[2, 3]).start();
    array.written(0, array.layout.size_sectors()).expect("full");
    let zeroes = RequestOp::WriteZeroes { fast: false };
    let tag = array.request(zeroes, 0, 4 * CHUNK);
    array.run();
    assert_eq!(array.reply(tag), Some(Ok(())));
    array.verify();
    array.consistent();
}

#[test]
fn a_replaced_parity_keeps_every_row() {
    let mut array = grown4(&[2, 4]).start();
    array.written(0, array.layout.size_sectors()).expect("full");
    let new = array.arrive(INFO);
    let old = Member(PARITY);
    array
        .command(Command::Replace { old, new })
        .expect("it is replaced");
    array.run_tasks();
    array.depart(0);
    array.verify();
}

#[test]
fn what_was_added_reads_as_zeros_whatever_lies_there() {
    let mut array = grown4(&[2, 3]).unwritten().start();
    let first = array.layout.rows() * 2 * CHUNK;
    for member in 0..4 {
        let start = array.data_start();
        let end = start + array.layout.rows() * CHUNK;
        (start..end).for_each(|sector| array.corrupt(member, sector));
    }
    array.written(0, first).expect("the first generation");
    array.verify();
}

/// The first generation is written, and the cells of the second hold what was there before.
fn half_written() -> Array {
    let mut array = grown4(&[2, 3]).unwritten().start();
    let first = array.layout.rows() * 2 * CHUNK;
    for lba in (0..first).step_by(40) {
        array
            .written(lba, 8.min(first - lba))
            .expect("the first generation");
    }
    let (start, rows) = (array.data_start(), array.layout.rows());
    for row in 0..rows {
        let cell = array.layout.data_cell(Row(row), 2);
        for sector in 0..CHUNK {
            array.corrupt(cell.slot.0, start + cell.at + sector);
        }
    }
    array
}

#[test]
fn cells_that_count_for_nothing_are_zeroed_before_their_first_write() {
    let mut array = half_written();
    array.verify();
    array.consistent();
    let lba = array.layout.lba(Row(1), 2, 4);
    array.listing();
    array.write(lba, 8);
    // The cells of the second generation in an extent of two rows: one in each of two slots.
    assert!(array.labels().iter().all(|label| label.contains("zero")));
    assert_eq!(array.labels().len(), 2, "{:?}", array.labels());
    array.run_only("zero");
    assert!(array.labels().iter().all(|l| l.contains("write written")));
    array.run();
    array.verify();
    array.consistent();
    array.flushed();
    array.crash(|_| true);
    array.start().expect("starts");
    array.verify();
    array.consistent();
}

#[test]
fn a_crash_before_the_mark_leaves_what_was_added_unwritten() {
    let mut array = half_written();
    array.flushed();
    let before = array.model.clone();
    let lba = array.layout.lba(Row(1), 2, 4);
    array.write(lba, 8);
    array.run_but("write written");
    array.model = before;
    array.crash(|_| true);
    array.start().expect("starts");
    array.verify();
    array.consistent();
}

#[test]
fn who_is_rebuilt_needs_nothing_of_what_counts_for_nothing() {
    for gone in 0..4 {
        let mut array = half_written();
        array.depart(gone);
        let spare = array.arrive(INFO);
        array.command(Command::Add(spare)).expect("it fits");
        array.run_tasks();
        array.verify();
        let added = array.layout.rows() * 2 * CHUNK;
        array.written(added + 5, 3 * CHUNK).expect("written");
        array.verify();
        array.consistent();
    }
}

#[test]
fn a_lost_slot_has_zeros_too_where_cells_are_made_real_without_it() {
    for gone in 0..4 {
        let mut array = half_written();
        array.depart(gone);
        let added = array.layout.rows() * 2 * CHUNK;
        let size = array.layout.size_sectors();
        array
            .written(added + 5, size - added - 9)
            .expect("degraded");
        array.verify();
        let spare = array.arrive(INFO);
        array.command(Command::Add(spare)).expect("it fits");
        array.run_tasks();
        array.verify();
        array.consistent();
    }
}
