//! Task management, unit attentions and reservations, over two sessions.

use super::initiator::{Initiator, NAME, Pdu, cdb_10, hub, put, read_10, write_10};
use crate::nbd_protocol::world::World;
use restripe_io::front::iscsi::hub::{Hub, NAME_PREFIX, Target};
use restripe_io::front::{Nudge, Protocol, Then};
use std::sync::Arc;

const ABORT: u8 = 1;
const RESET: u8 = 5;
const COLD_RESET: u8 = 7;

fn world(number: u32) -> World {
    let mut world = World::new(1 << 20);
    world.number = number;
    world
}

/// A second initiator, with a name of its own.
fn other(hub: &Arc<Hub>) -> Initiator {
    let mut initiator = Initiator::new(hub, world(2));
    let names = [
        format!("InitiatorName={NAME}-other"),
        format!("TargetName={NAME_PREFIX}disk"),
    ];
    let answer = initiator.log_in(1, 3, &names.each_ref().map(String::as_str));
    assert_eq!(answer.header[36], 0);
    initiator.attend();
    initiator
}

fn test_unit_ready(initiator: &mut Initiator) -> (u8, Option<(u8, u8, u8)>) {
    let outcome = initiator.read(&[0; 6], 0);
    (outcome.status, outcome.sense)
}

/// A session begins after a start of the daemon, or after the loss of an earlier session. What ended with
/// either, as a reservation, is reported once, to the first command that unit attentions stop.
#[test]
fn a_new_session_is_a_unit_attention() {
    let hub = hub();
    let power_on = Some((6, 0x29, 0));
    let log_in = || {
        let mut one = Initiator::new(&hub, world(1));
        let names = [
            format!("InitiatorName={NAME}"),
            format!("TargetName={NAME_PREFIX}disk"),
        ];
        one.log_in(1, 3, &names.each_ref().map(String::as_str));
        one
    };
    for cdb in [&read_10(0, 1)[..], &[0x16, 0, 0, 0, 0, 0]] {
        let mut one = log_in();
        assert_eq!(one.read(&[0x12, 0, 0, 0, 36, 0], 36).status, 0, "INQUIRY");
        let luns = [0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0];
        assert_eq!(one.read(&luns, 16).status, 0, "REPORT LUNS");
        let first = one.read(cdb, 512);
        assert_eq!((first.status, first.sense), (2, power_on));
        assert_eq!(one.read(cdb, 512).status, 0);
    }
    // REQUEST SENSE takes it as well. The session that reserved the unit was the last.
    let mut one = log_in();
    let sense = one.read(&[0x03, 0, 0, 0, 18, 0], 18).data;
    assert_eq!((sense[2], sense[12], sense[13]), (6, 0x29, 0));
    assert_eq!(test_unit_ready(&mut one).0, 0);
}

/// Linux takes an attention of one for another medium, and fails what a file system on it asks.
#[test]
fn a_removable_unit_does_not_report_a_new_session() {
    let target = Target {
        name: format!("{NAME_PREFIX}disk"),
        luns: vec!["disk".to_owned()],
        removable: true,
        ..Target::default()
    };
    let mut one = Initiator::new(&Arc::new(Hub::new(vec![target])), world(1));
    let names = [
        format!("InitiatorName={NAME}"),
        format!("TargetName={NAME_PREFIX}disk"),
    ];
    one.log_in(1, 3, &names.each_ref().map(String::as_str));
    assert_eq!(test_unit_ready(&mut one).0, 0);
}

#[test]
fn an_aborted_task_is_not_answered() {
    let mut one = Initiator::logged_in(&hub(), world(1), &[]);
    let request = one.scsi(&read_10(0, 1), 512, 0);
    one.send(request, &[]);
    let task = one.tag;
    assert_eq!(
        one.manage(ABORT, task),
        0,
        "answered when the engine is done with it"
    );
    assert_eq!(one.manage(ABORT, task), 1, "there is no such task any more");
    assert_eq!(one.receive(), None);
    assert!(one.peer.close().buffers.is_empty());
}

#[test]
fn a_task_that_waits_for_data_is_aborted_with_its_memory() {
    let mut one = Initiator::logged_in(&hub(), world(1), &["ImmediateData=No"]);
    let request = one.scsi(&write_10(0, 8), 0, 4096);
    one.send(request, &[]);
    let asked = one.receive().expect("data is asked for");
    let task = one.tag;
    assert_eq!(one.manage(ABORT, task), 0);
    assert!(one.peer.world.buffers.is_empty());
    // The data that was on its way is passed over.
    let mut pdu = super::initiator::header(0x05, 0x80, task);
    put(&mut pdu, 20, asked.number(20));
    one.send(pdu, &[5; 4096]);
    assert_eq!(test_unit_ready(&mut one).0, 0);
    assert!(one.peer.world.log.is_empty());
}

/// Pings must not keep memory that waits for data from those who have a use for it.
#[test]
fn an_initiator_that_keeps_its_data_back_is_cut_off() {
    let mut one = Initiator::logged_in(&hub(), world(1), &["ImmediateData=No"]);
    let request = one.scsi(&write_10(0, 8), 0, 4096);
    one.send(request, &[]);
    let mut pings = 0;
    while !one.peer.ended() && pings < 10_000 {
        let ping = super::initiator::header(0x40, 0x80, u32::MAX);
        one.send(ping, &[]);
        pings += 1;
    }
    assert_eq!(pings, 4097);
}

#[test]
fn a_reset_clears_the_commands_of_all_sessions() {
    let hub = hub();
    let mut one = Initiator::logged_in(&hub, world(1), &[]);
    let mut two = other(&hub);
    let request = two.scsi(&read_10(0, 1), 512, 0);
    two.send(request, &[]);
    one.tag += 1;
    let mut function = super::initiator::header(0x42, 0x80 | RESET, one.tag);
    put(&mut function, 24, one.command);
    one.send(function, &[]);
    assert_eq!(one.peer.world.nudges, [(2, Nudge::Wake)]);
    assert_eq!(one.receive(), None, "a command is still in the engine");
    two.peer.connection.woken(&mut two.peer.world);
    two.peer.settle();
    assert_eq!(two.receive(), None, "it was cleared");
    assert_eq!(two.peer.world.nudges, [(1, Nudge::Wake)]);
    one.peer.connection.woken(&mut one.peer.world);
    let answer = one.receive().expect("now it is answered");
    assert_eq!((answer.opcode(), answer.header[2]), (0x22, 0));
    one.status_number();
    let reset = Some((6, 0x29, 3));
    assert_eq!(test_unit_ready(&mut one), (2, reset));
    assert_eq!(test_unit_ready(&mut two), (2, reset));
    assert_eq!(test_unit_ready(&mut one).0, 0);
    assert_eq!(test_unit_ready(&mut two).0, 0);
}

/// A task management function without waiting for its answer.
fn begin(initiator: &mut Initiator, function: u8) {
    initiator.tag += 1;
    let mut request = super::initiator::header(0x42, 0x80 | function, initiator.tag);
    put(&mut request, 24, initiator.command);
    initiator.send(request, &[]);
}

/// What one did to others reaches them, and theirs reaches it.
fn wake(one: &mut Initiator, other: &mut Initiator) {
    for peer in [&mut other.peer, &mut one.peer] {
        peer.connection.woken(&mut peer.world);
    }
}

/// A write that has no data yet, with what the target asked for.
fn write_without_data(initiator: &mut Initiator, lba: u32) -> Pdu {
    let request = initiator.scsi(&write_10(lba, 1), 0, 512);
    initiator.send(request, &[]);
    let asked = initiator.receive().expect("data is asked for");
    assert_eq!(asked.opcode(), 0x31);
    asked
}

/// The data of such a write.
fn data_for(initiator: &mut Initiator, asked: &Pdu) {
    let mut pdu = super::initiator::header(0x05, 0x80, asked.number(16));
    put(&mut pdu, 20, asked.number(20));
    initiator.send(pdu, &[0xbb; 512]);
}

/// Of another session's command that was cleared, nothing reaches the engine, even if its data comes before that
/// session has been woken. Nor does it hold up later resets.
#[test]
fn data_that_crosses_a_reset_is_not_written() {
    let hub = hub();
    let mut one = Initiator::logged_in(&hub, world(1), &[]);
    let mut two = other(&hub);
    let asked = write_without_data(&mut two, 0);
    assert_eq!(one.manage(RESET, 0), 0);
    data_for(&mut two, &asked);
    assert!(two.peer.world.asks.is_empty());
    wake(&mut one, &mut two);
    assert!(two.peer.close().buffers.is_empty());
    assert_eq!(one.manage(RESET, 0), 0);
}

/// The requests of a session whose connection is lost are in the engine until they come back.
#[test]
fn a_reset_waits_for_requests_of_a_lost_session() {
    let hub = hub();
    let mut one = Initiator::logged_in(&hub, world(1), &[]);
    let mut two = other(&hub);
    let request = two.scsi(&write_10(0, 1), 0, 512);
    two.send(request, &[7; 512]);
    assert_eq!(two.peer.world.asks.len(), 1);
    two.peer.end();
    begin(&mut one, RESET);
    assert_eq!(one.receive(), None, "its write may still land");
    two.peer.settle();
    assert_eq!(two.peer.world.nudges, [(1, Nudge::Wake)]);
    wake(&mut two, &mut one);
    assert_eq!(one.receive().map(|pdu| pdu.opcode()), Some(0x22));
    assert!(two.peer.close().buffers.is_empty());
}

const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const PREEMPT: u8 = 4;
const PREEMPT_AND_ABORT: u8 = 5;
/// Write exclusive, for registrants.
const REGISTRANTS: u8 = 5;

/// Sends a PERSISTENT RESERVE OUT.
fn persist(initiator: &mut Initiator, action: u8, key: u64, new: u64) {
    let mut cdb = [0x5f, action, REGISTRANTS, 0, 0, 0, 0, 0, 24, 0];
    if action == REGISTER {
        cdb[2] = 0;
    }
    let list = [&key.to_be_bytes()[..], &new.to_be_bytes(), &[0; 8]].concat();
    let request = initiator.scsi(&cdb, 0, 24);
    initiator.send(request, &list);
}

/// Two initiators that are registered with the keys 1 and 2; the second holds the reservation.
fn registered() -> (Initiator, Initiator) {
    let hub = hub();
    let mut one = Initiator::logged_in(&hub, world(1), &[]);
    let mut two = other(&hub);
    for (who, key) in [(&mut one, 1), (&mut two, 2)] {
        persist(who, REGISTER, 0, key);
        assert_eq!(who.finish(&[]).status, 0);
    }
    persist(&mut two, RESERVE, 2, 0);
    assert_eq!(two.finish(&[]).status, 0);
    (one, two)
}

/// A cluster fences a node with it, and writes where the node wrote.
#[test]
fn preempt_and_abort_is_answered_when_no_write_of_its_victim_can_land() {
    for lost in [false, true] {
        let (mut one, mut two) = registered();
        let request = two.scsi(&write_10(0, 1), 0, 512);
        two.send(request, &[0xaa; 512]);
        let asked = write_without_data(&mut two, 8);
        assert_eq!(two.peer.world.asks.len(), 1, "one write is in the engine");
        if lost {
            two.peer.end();
        }
        persist(&mut one, PREEMPT_AND_ABORT, 1, 2);
        assert_eq!(one.receive(), None, "it may still land");
        if !lost {
            assert_eq!(one.peer.world.nudges, [(2, Nudge::Wake)]);
            data_for(&mut two, &asked);
            wake(&mut one, &mut two);
        }
        two.peer.settle();
        assert_eq!(two.peer.world.nudges, [(1, Nudge::Wake)]);
        wake(&mut two, &mut one);
        assert_eq!(one.finish(&[]).status, 0);
        assert_eq!(two.receive(), None, "its commands were ended");
        if !lost {
            assert_eq!(test_unit_ready(&mut two), (2, Some((6, 0x2a, 5))));
            assert_eq!(two.write(&write_10(0, 1), &[1; 512], 512).status, 0x18);
        }
        let written = two.peer.close().log;
        assert_eq!(written.len(), 1, "one write began before it was fenced");
    }
}

/// A command that waited for its data, or for memory, meets the reservation of the time when it starts.
#[test]
fn a_write_that_waits_is_checked_against_later_reservations() {
    let (mut one, mut two) = registered();
    let asked = write_without_data(&mut two, 0);
    persist(&mut one, PREEMPT, 1, 2);
    assert_eq!(one.finish(&[]).status, 0);
    data_for(&mut two, &asked);
    assert_eq!(two.finish(&[]).status, 0x18);
    assert!(two.peer.close().log.is_empty(), "nothing was written");

    let hub = hub();
    let mut one = Initiator::logged_in(&hub, world(1), &[]);
    let mut two = other(&hub);
    let asked = write_without_data(&mut two, 0);
    assert_eq!(one.read(&[0x16, 0, 0, 0, 0, 0], 0).status, 0, "RESERVE");
    data_for(&mut two, &asked);
    assert_eq!(two.finish(&[]).status, 0x18);
    assert!(two.peer.close().log.is_empty(), "nothing was written");
}

#[test]
fn a_reservation_keeps_others_out_until_its_session_ends() {
    let hub = hub();
    let mut one = Initiator::logged_in(&hub, world(1), &[]);
    let mut two = other(&hub);
    assert_eq!(one.read(&[0x16, 0, 0, 0, 0, 0], 0).status, 0);
    assert_eq!(two.read(&read_10(0, 1), 512).status, 0x18);
    assert_eq!(
        two.read(&[0x17, 0, 0, 0, 0, 0], 0).status,
        0,
        "of no effect"
    );
    assert_eq!(two.read(&read_10(0, 1), 512).status, 0x18);
    one.log_out();
    assert_eq!(one.receive().map(|pdu| pdu.opcode()), Some(0x26));
    assert!(one.peer.ended());
    assert_eq!(two.read(&read_10(0, 1), 512).status, 0);
}

#[test]
fn a_growth_is_a_unit_attention() {
    let mut one = Initiator::logged_in(&hub(), world(1), &[]);
    assert_eq!(test_unit_ready(&mut one).0, 0);
    one.peer.world.exports[0].size_bytes += 4096;
    assert_eq!(test_unit_ready(&mut one), (2, Some((6, 0x2a, 9))));
    assert_eq!(test_unit_ready(&mut one).0, 0);
}

/// An initiator that is logged out can be sure that none of its writes is under way any more.
#[test]
fn a_logout_is_answered_when_the_last_write_is_over() {
    let mut one = Initiator::logged_in(&hub(), world(1), &[]);
    for lba in 0..8 {
        let request = one.scsi(&write_10(lba, 1), 0, 512);
        one.send(request, &[7; 512]);
    }
    write_without_data(&mut one, 100);
    assert_eq!(one.peer.world.asks.len(), 8);
    one.log_out();
    while !one.peer.world.asks.is_empty() {
        assert_eq!(one.receive(), None);
        one.peer.answer(0);
    }
    let answer = one.receive().expect("it is answered");
    assert_eq!((answer.opcode(), answer.header[2]), (0x26, 0));
    assert_eq!(one.receive(), None, "no command is answered");
    assert_eq!(one.peer.close().log.len(), 8);
}

/// A logout names this connection, and no other can take its commands over (RFC 7143 section 11.14).
#[test]
fn a_logout_of_another_connection_or_for_a_recovery_is_refused() {
    let log_out = |one: &mut Initiator, reason: u8, cid: u8| {
        one.tag += 1;
        let mut request = super::initiator::header(0x46, 0x80 | reason, one.tag);
        request[21] = cid;
        put(&mut request, 24, one.command);
        one.send(request, &[]);
        let answer = one.receive().expect("it is answered");
        (answer.opcode(), answer.header[2], one.peer.ended())
    };
    let mut one = Initiator::logged_in(&hub(), world(1), &[]);
    assert_eq!(log_out(&mut one, 1, 9), (0x26, 1, false));
    assert_eq!(log_out(&mut one, 2, 0), (0x26, 2, false));
    assert_eq!(log_out(&mut one, 3, 0), (0x3f, 9, false));
    for _ in 0..3 {
        one.status_number();
    }
    assert_eq!(test_unit_ready(&mut one).0, 0, "the session goes on");
    assert_eq!(log_out(&mut one, 1, 0), (0x26, 0, true));
}

/// The same initiator logs in again while writes of its session are in the engine. They end without an answer,
/// and a reset in the new session waits for them.
#[test]
fn writes_of_a_session_that_was_replaced_are_waited_for() {
    let hub = hub();
    let mut old = Initiator::logged_in(&hub, world(1), &[]);
    for lba in [0, 8] {
        let request = old.scsi(&write_10(lba, 1), 0, 512);
        old.send(request, &[7; 512]);
    }
    let asked = write_without_data(&mut old, 16);
    let mut new = Initiator::logged_in(&hub, world(2), &[]);
    assert_eq!(new.peer.world.nudges, [(1, Nudge::End)]);
    // Data that crosses the end reaches nothing.
    data_for(&mut old, &asked);
    assert_eq!(old.peer.world.asks.len(), 2);
    old.peer.end();
    begin(&mut new, RESET);
    old.peer.answer(0);
    wake(&mut old, &mut new);
    assert_eq!(new.receive(), None, "a write may still land");
    old.peer.answer(0);
    assert_eq!(old.peer.world.nudges, [(2, Nudge::Wake)]);
    wake(&mut old, &mut new);
    assert_eq!(new.receive().map(|pdu| pdu.opcode()), Some(0x22));
    assert_eq!(old.receive(), None, "no write is answered");
    assert_eq!(old.peer.close().log.len(), 2);
}

/// One of an unknown kind has a number like all others, so that the next is no gap.
#[test]
fn a_pdu_that_is_unknown_does_not_end_the_session() {
    let mut one = Initiator::logged_in(&hub(), world(1), &[]);
    for (opcode, numbered) in [(0x0b, 1), (0x10, 0), (0x4b, 0)] {
        one.tag += 1;
        let mut request = super::initiator::header(opcode, 0x80, one.tag);
        put(&mut request, 24, one.command);
        one.command = one.command.wrapping_add(numbered);
        one.send(request, &[]);
        assert_eq!(
            one.receive().map(|pdu| pdu.opcode()),
            Some(0x3f),
            "{opcode}"
        );
        one.status_number();
        assert_eq!(test_unit_ready(&mut one).0, 0);
    }
}

/// ORDERED waits for all that came before, and all that come behind wait for it, with their data or without. HEAD
/// OF QUEUE waits for none.
#[test]
fn ordered_commands_keep_their_order() {
    const SYNCHRONIZE_CACHE: u8 = 0x35;
    let mut one = Initiator::logged_in(&hub(), world(1), &[]);
    let page = one.read(&[0x12, 1, 0x86, 0, 64, 0], 64).data;
    assert_eq!(page[5] & 7, 3, "SIMPSUP and ORDSUP");
    let write = |one: &mut Initiator, lba: u32, attribute: u8| {
        let mut request = one.scsi(&write_10(lba, 1), 0, 512);
        request[1] |= attribute;
        one.send(request, &[1; 512]);
    };
    let asked = |one: &Initiator| {
        let asks = one.peer.world.asks.iter();
        asks.map(|ask| ask.offset / 512).collect::<Vec<_>>()
    };
    write(&mut one, 1, 0);
    write(&mut one, 2, 1);
    let mut flush = one.scsi(&cdb_10(SYNCHRONIZE_CACHE, 0, 0), 0, 0);
    flush[1] |= 2;
    one.send(flush, &[]);
    write(&mut one, 3, 1);
    write(&mut one, 4, 2);
    write(&mut one, 5, 0);
    write(&mut one, 6, 3);
    assert_eq!(
        asked(&one),
        [1, 2, 6],
        "the flush waits, and all behind it but the head"
    );
    one.peer.answer(1);
    assert_eq!(asked(&one), [1, 6]);
    one.peer.answer(0);
    assert_eq!(
        asked(&one),
        [6, 0],
        "the flush, which no later command waits for but the ordered"
    );
    one.peer.answer(1);
    assert_eq!(asked(&one), [6, 3]);
    one.peer.answer(1);
    assert_eq!(asked(&one), [6, 4], "the head came behind it");
    one.peer.answer(1);
    assert_eq!(asked(&one), [6, 5]);
    one.peer.answer(0);
    one.peer.answer(0);
    for _ in 0..7 {
        assert_eq!(one.receive().map(|pdu| pdu.header[3]), Some(0));
        one.status_number();
    }
    let mut unknown = one.scsi(&write_10(0, 1), 0, 512);
    unknown[1] |= 4;
    one.send(unknown, &[1; 512]);
    assert_eq!(one.finish(&[]).sense, Some((5, 0x49, 0)), "ACA");
    assert_eq!(one.peer.close().log.len(), 7);
}

/// One that waits for its order can be aborted, and those behind it go on.
#[test]
fn an_ordered_command_that_is_aborted_holds_nothing_up() {
    let mut one = Initiator::logged_in(&hub(), world(1), &[]);
    for (lba, attribute) in [(1, 0), (2, 2), (3, 0)] {
        let mut request = one.scsi(&write_10(lba, 1), 0, 512);
        request[1] |= attribute;
        one.send(request, &[1; 512]);
    }
    assert_eq!(one.peer.world.asks.len(), 1);
    let ordered = one.tag - 1;
    assert_eq!(one.manage(ABORT, ordered), 0);
    let log = one.peer.close().log;
    let begun: Vec<u64> = log.iter().map(|(_, offset, ..)| offset / 512).collect();
    assert_eq!(begun, [1, 3]);
}

/// TARGET COLD RESET: a reset of all units, and the end of all sessions of the target.
#[test]
fn a_cold_reset_ends_all_sessions_once_it_is_answered() {
    let hub = hub();
    let mut one = Initiator::logged_in(&hub, world(1), &[]);
    let mut two = other(&hub);
    let request = two.scsi(&write_10(0, 1), 0, 512);
    two.send(request, &[7; 512]);
    begin(&mut one, COLD_RESET);
    assert_eq!(one.peer.world.nudges, [(2, Nudge::Wake)]);
    wake(&mut one, &mut two);
    two.peer.settle();
    assert_eq!(two.receive(), None, "it was cleared");
    one.peer.world.nudges.clear();
    wake(&mut two, &mut one);
    assert_eq!(one.receive().map(|pdu| pdu.opcode()), Some(0x22));
    let all = [(1, Nudge::Finish), (2, Nudge::Finish)];
    assert_eq!(one.peer.world.nudges, all);
}

#[test]
fn a_silent_initiator_is_pinged_and_then_dropped() {
    let mut one = Initiator::logged_in(&hub(), world(1), &[]);
    for _ in 0..3 {
        assert!(one.pass(30));
        let ping = one.receive().expect("it is pinged");
        assert_eq!((ping.opcode(), ping.number(16)), (0x20, u32::MAX));
        assert_ne!(ping.number(20), u32::MAX, "an answer is wanted");
        let mut pong = super::initiator::header(0x40, 0x80, u32::MAX);
        put(&mut pong, 20, ping.number(20));
        put(&mut pong, 24, one.command);
        one.send(pong, &[]);
        assert_eq!(one.receive(), None);
        assert_eq!(test_unit_ready(&mut one).0, 0);
    }
    assert!(one.pass(60));
    assert!(!one.pass(1), "it is dead");
}

/// A peer that we do not receive from has no chance to be heard.
#[test]
fn an_initiator_that_is_held_back_is_not_taken_for_dead() {
    let mut world = world(1);
    world.unsent_max = 600;
    let mut one = Initiator::logged_in(&hub(), world, &[]);
    let request = one.scsi(&read_10(0, 1), 512, 0);
    one.send(request, &[]);
    one.peer.settle();
    let request = one.scsi(&[0; 6], 0, 0);
    one.send(request, &[]);
    assert!(matches!(one.peer.then, Then::Hold), "{:?}", one.peer.then);
    assert!(one.pass(1000));
}

/// Memory that waits for data is not held for ever by pings, and not by single bytes.
#[test]
fn a_command_waits_for_its_data_for_a_bounded_time() {
    let mut one = Initiator::logged_in(&hub(), world(1), &["ImmediateData=No"]);
    let request = one.scsi(&write_10(0, 8), 0, 4096);
    one.send(request, &[]);
    let asked = one.receive().expect("data is asked for");
    for number in 0..180 {
        assert!(one.pass(1), "{number} s");
        let mut pdu = super::initiator::header(0x05, 0, one.tag);
        put(&mut pdu, 20, asked.number(20));
        put(&mut pdu, 36, number);
        put(&mut pdu, 40, number);
        one.send(pdu, &[5]);
        assert!(!one.peer.ended());
    }
    assert!(!one.pass(1));
}

#[test]
fn an_empty_pdu_that_ends_nothing_is_refused() {
    let mut one = Initiator::logged_in(&hub(), world(1), &["ImmediateData=No"]);
    let asked = write_without_data(&mut one, 0);
    let mut pdu = super::initiator::header(0x05, 0, one.tag);
    put(&mut pdu, 20, asked.number(20));
    one.send(pdu, &[]);
    assert_eq!(one.finish(&[]).sense, Some((0x0b, 0x4b, 0)));
}
