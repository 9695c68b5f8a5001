//! Arrays with a history of growth: rows whose data are several runs of addresses.

use crate::shell::{CHUNK, grown4};
use restripe_array::layout::Role;
use restripe_array::{Command, Member, MemberInfo, RequestOp, Row, TaskKind, TaskOutcome};

const INFO: MemberInfo = MemberInfo {
    sectors: 1024,
    logical_block: 512,
    trim_zeroes: true,
    fast_zero: true,
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
