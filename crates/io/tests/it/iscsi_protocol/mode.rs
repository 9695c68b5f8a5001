//! What initiators set of a unit for all of them: mode pages, and a medium that can be ejected.

use super::initiator::{Initiator, NAME, hub, read_10, write_10};
use crate::nbd_protocol::world::World;
use restripe_io::front::iscsi::hub::{Hub, NAME_PREFIX, Target};
use std::sync::Arc;

type Sense = Option<(u8, u8, u8)>;

const RESET: u8 = 5;
const READY: (u8, Sense) = (0, None);

fn attention(code: u8, qualifier: u8) -> (u8, Sense) {
    (2, Some((6, code, qualifier)))
}

/// Sessions of two initiators with one target.
fn two(hub: &Arc<Hub>, target: &str) -> [Initiator; 2] {
    [1, 2].map(|number| {
        let mut world = World::new(1 << 20);
        world.number = number;
        let mut one = Initiator::new(hub, world);
        let names = [
            format!("InitiatorName={NAME}-{number}"),
            format!("TargetName={target}"),
        ];
        let answer = one.log_in(1, 3, &names.each_ref().map(String::as_str));
        assert_eq!(answer.header[36], 0);
        one.attend();
        one
    })
}

fn run(one: &mut Initiator, cdb: &[u8]) -> (u8, Sense) {
    let outcome = one.read(cdb, 0);
    (outcome.status, outcome.sense)
}

fn ready(one: &mut Initiator) -> (u8, Sense) {
    run(one, &[0; 6])
}

/// The current control page, as MODE SENSE has it without a block descriptor: 4 bytes, then the page.
fn control(one: &mut Initiator) -> Vec<u8> {
    let data = one.read(&[0x1a, 0x08, 0x0a, 0, 255, 0], 255).data;
    assert_eq!((data.len(), data[4]), (16, 0x0a));
    data
}

/// MODE SELECT 6 or 10 of a control page.
fn select(one: &mut Initiator, page: &[u8], long: bool) -> (u8, Sense) {
    let (cdb, header) = match long {
        true => (vec![0x55, 0x10, 0, 0, 0, 0, 0, 0, 20, 0], 8),
        false => (vec![0x15, 0x10, 0, 0, 16, 0], 4),
    };
    let list = [&vec![0; header][..], page].concat();
    let outcome = one.write(&cdb, &list, 0);
    (outcome.status, outcome.sense)
}

#[test]
fn write_protection_holds_for_all_until_a_reset() {
    let [mut one, mut other] = two(&hub(), &format!("{NAME_PREFIX}disk"));
    for long in [false, true] {
        let mut page = control(&mut one)[4..].to_vec();
        page[4] |= 0x08;
        assert_eq!(select(&mut one, &page, long), READY);
        assert_eq!(ready(&mut other), attention(0x2a, 1), "it has changed");
        assert_eq!(control(&mut other)[2], 0x90, "protected, and with FUA");
        for who in [&mut one, &mut other] {
            let refused = who.write(&write_10(0, 1), &[1; 512], 512);
            assert_eq!((refused.status, refused.sense), (2, Some((7, 0x27, 0))));
            assert_eq!(who.read(&read_10(0, 1), 512).status, 0);
        }
        assert_eq!(one.manage(RESET, 0), 0);
        for who in [&mut one, &mut other] {
            assert_eq!(ready(who), attention(0x29, 3));
        }
        assert_eq!(control(&mut one)[2], 0x10);
        assert_eq!(one.write(&write_10(0, 1), &[1; 512], 512).status, 0);
    }
    assert_eq!(other.peer.close().log.len(), 2, "reads alone");
}

#[test]
fn sense_data_has_the_format_that_was_set() {
    let [mut one, _other] = two(&hub(), &format!("{NAME_PREFIX}disk"));
    let format = |one: &mut Initiator| {
        let request = one.scsi(&[0x9c], 0, 0);
        one.send(request, &[]);
        let answer = one.receive().expect("it is refused");
        one.status_number();
        answer.data[2] & 0x7f
    };
    assert_eq!(format(&mut one), 0x70);
    let mut page = control(&mut one)[4..].to_vec();
    page[2] |= 0x04;
    assert_eq!(select(&mut one, &page, false), READY);
    assert_eq!(format(&mut one), 0x72);
    page[2] ^= 0x04;
    assert_eq!(select(&mut one, &page, true), READY);
    assert_eq!(format(&mut one), 0x70);
    // Another bit than these two, another length, and to save: refused, and nothing has changed.
    page[3] ^= 0x10;
    assert_eq!(select(&mut one, &page, false).1, Some((5, 0x26, 0)));
    page[3] ^= 0x10;
    assert_eq!(select(&mut one, &page[..8], false).0, 2);
    assert_eq!(
        one.write(&[0x15, 0x11, 0, 0, 16, 0], &[0; 16], 16).status,
        2
    );
    assert_eq!(control(&mut one)[4..], page);
}

const EJECT: [u8; 6] = [0x1b, 0, 0, 0, 2, 0];
const LOAD: [u8; 6] = [0x1b, 0, 0, 0, 3, 0];
const PREVENT: [u8; 6] = [0x1e, 0, 0, 0, 1, 0];
const ALLOW: [u8; 6] = [0x1e, 0, 0, 0, 0, 0];
const NO_MEDIUM: (u8, Sense) = (2, Some((2, 0x3a, 0)));
const PREVENTED: (u8, Sense) = (2, Some((5, 0x53, 2)));

fn removable() -> [Initiator; 2] {
    let target = Target {
        name: "iqn.2026-11.test:removable".to_owned(),
        luns: vec!["disk".to_owned()],
        removable: true,
        ..Target::default()
    };
    two(
        &Arc::new(Hub::new(vec![target])),
        "iqn.2026-11.test:removable",
    )
}

#[test]
fn a_medium_is_ejected_and_loaded_for_all() {
    let [mut one, mut other] = removable();
    assert_eq!(run(&mut one, &EJECT), READY);
    for who in [&mut one, &mut other] {
        assert_eq!(ready(who), NO_MEDIUM);
        assert_eq!(
            who.write(&write_10(0, 1), &[1; 512], 512).sense,
            NO_MEDIUM.1
        );
        assert_eq!(who.read(&[0x12, 0, 0, 0, 36, 0], 36).status, 0, "INQUIRY");
    }
    assert_eq!(run(&mut one, &LOAD), READY);
    assert_eq!(ready(&mut one), READY);
    assert_eq!(ready(&mut other), attention(0x28, 0), "it may be another");
    assert_eq!(ready(&mut other), READY);
    assert!(one.peer.close().log.is_empty());
}

#[test]
fn a_medium_stays_while_any_session_prevents_its_removal() {
    let [mut one, mut other] = removable();
    assert_eq!(run(&mut other, &PREVENT), READY);
    for who in [&mut one, &mut other] {
        assert_eq!(run(who, &EJECT), PREVENTED);
        assert_eq!(ready(who), READY);
    }
    assert_eq!(run(&mut one, &ALLOW), READY, "of its own");
    assert_eq!(run(&mut one, &EJECT), PREVENTED);
    assert_eq!(run(&mut other, &ALLOW), READY);
    assert_eq!(run(&mut one, &EJECT), READY);
    assert_eq!(run(&mut one, &LOAD), READY);
    // It ends with a reset, and with its session.
    assert_eq!(ready(&mut other), attention(0x28, 0));
    assert_eq!(run(&mut other, &PREVENT), READY);
    assert_eq!(other.manage(RESET, 0), 0);
    assert_eq!(ready(&mut one), attention(0x29, 3));
    assert_eq!(run(&mut one, &EJECT), READY);
    assert_eq!(run(&mut one, &LOAD), READY);
    let readied = (0..8).any(|_| ready(&mut other) == READY);
    assert!(readied, "the attentions of the other session end");
    assert_eq!(run(&mut other, &PREVENT), READY);
    assert_eq!(run(&mut one, &EJECT), PREVENTED);
    other.peer.end();
    assert_eq!(run(&mut one, &EJECT), READY);
}

#[test]
fn a_disk_that_is_not_removable_ignores_both() {
    let [mut one, mut other] = two(&hub(), &format!("{NAME_PREFIX}disk"));
    for cdb in [EJECT, PREVENT, EJECT, LOAD] {
        assert_eq!(run(&mut one, &cdb), READY);
        assert_eq!((ready(&mut one), ready(&mut other)), (READY, READY));
    }
}
