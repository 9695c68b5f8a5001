//! What libiscsi's suite asks for since version 1.20, where the tool of distributions does not have it yet:
//! CHAP values in all their forms, SendTargets, pings, a logout amid I/O, port groups, the order of pages.

use super::initiator::{Initiator, NAME, chap_response, hex, hub, write_10};
use crate::nbd_protocol::world::World;
use restripe_io::front::iscsi::chap::Secrets;
use restripe_io::front::iscsi::hub::{Hub, NAME_PREFIX, Target};
use std::sync::Arc;

const SIZE: usize = 1 << 20;

fn initiator() -> Initiator {
    Initiator::logged_in(&hub(), World::new(SIZE), &[])
}

// --------------------------------------------------------------------------------------------------------- CHAP

const SECRET: &str = "wonderland-1865";
const TARGET: &str = "iqn.2026-11.test:secret";

/// How a response is written.
type Encode = fn(&[u8]) -> String;

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = "0b".to_owned();
    for three in bytes.chunks(3) {
        let number = (0..3).fold(0_u32, |sum, at| {
            sum << 8 | u32::from(*three.get(at).unwrap_or(&0))
        });
        for place in 0..4 {
            let digit = DIGITS[(number >> (18 - 6 * place) & 63) as usize];
            text.push(if place > three.len() {
                '='
            } else {
                char::from(digit)
            });
        }
    }
    text
}

/// Logs in as the owner of a name: the status of the last answer, or of the first that refuses.
fn prove(owner: &str, name: &str, algorithms: &str, encode: Encode) -> (u8, u8) {
    let secrets = format!("initiator {owner} {SECRET}");
    let target = Target {
        name: TARGET.to_owned(),
        luns: vec!["disk".to_owned()],
        secrets: Some(Secrets::parse(&secrets).expect("they are right")),
        ..Target::default()
    };
    let hub = Arc::new(Hub::new(vec![target]));
    let mut one = Initiator::new(&hub, World::new(SIZE));
    let status = |header: &[u8]| (header[36], header[37]);
    let names = [
        format!("InitiatorName={NAME}"),
        format!("TargetName={TARGET}"),
    ];
    one.log_in(0, 1, &[&names[0], &names[1], "AuthMethod=CHAP"]);
    let answer = one.log_in(0, 0, &[&format!("CHAP_A={algorithms}")]);
    if answer.header[36] != 0 {
        assert!(one.peer.ended());
        return status(&answer.header);
    }
    let response = chap_response(&answer, SECRET);
    let response = format!("CHAP_R={}", encode(&response));
    let answer = one.log_in(0, 3, &[&format!("CHAP_N={name}"), &response]);
    status(&answer.header)
}

const WELCOME: (u8, u8) = (0, 0);
const REFUSED: (u8, u8) = (2, 1);

/// iSCSICHAP.Simple, iSCSICHAP.Invalid.
#[test]
fn an_algorithm_is_chosen_from_the_list_by_its_whole_number() {
    assert_eq!(prove("alice", "alice", "5,6,7,8", hex), WELCOME);
    assert_eq!(prove("alice", "alice", "7", hex), WELCOME);
    assert_eq!(prove("alice", "alice", "6,7,5", base64), WELCOME);
    assert_eq!(prove("alice", "alice", "56", hex), REFUSED);
    assert_eq!(prove("alice", "alice", "", hex), REFUSED);
    assert_eq!(prove("alice", "alice", "5", |_| "0x00".to_owned()), REFUSED);
}

/// iSCSICHAP.HexName, iSCSICHAP.Base64Name: a name is text, whatever it looks like.
#[test]
fn a_name_is_no_number() {
    for name in ["0x616c696365", "0Xalice", "0bYWxpY2U=", "0Balice"] {
        assert_eq!(prove(name, name, "5", hex), WELCOME, "{name}");
        assert_eq!(prove("alice", name, "5", hex), REFUSED, "{name}");
    }
}

/// iSCSICHAP.Base64, iSCSICHAP.Base64Oversize.
#[test]
fn a_response_in_base_64_is_as_long_as_the_digest() {
    assert_eq!(prove("alice", "alice", "5", base64), WELCOME);
    let oversize = |bytes: &[u8]| base64(bytes).replacen("0b", "0bb3ZlcnNpemUK", 1);
    assert_eq!(prove("alice", "alice", "5", oversize), REFUSED);
    let huge =
        |bytes: &[u8]| base64(bytes).replacen("0b", &format!("0b{}", "AAAA".repeat(1500)), 1);
    assert_eq!(prove("alice", "alice", "5", huge), REFUSED);
}

/// The secret of one initiator is no proof of being another.
#[test]
fn a_name_of_an_initiator_is_proof_of_that_initiator_only() {
    assert_eq!(prove(NAME, NAME, "5", hex), WELCOME);
    let upper = NAME.to_ascii_uppercase();
    assert_eq!(prove(&upper, &upper, "5", hex), WELCOME);
    for other in [
        "iqn.2026-11.test:other",
        "eui.02004567a425678d",
        "naa.52004567ba64678d",
    ] {
        assert_eq!(prove(other, other, "5", hex), REFUSED, "{other}");
    }
}

// --------------------------------------------------------------------------------------------------------- text

/// iSCSISendTargets.Simple, iSCSISendTargets.Invalid: also in a normal session.
#[test]
fn targets_are_named_to_whoever_asks_rightly() {
    let mut one = initiator();
    let named = format!("TargetName={NAME_PREFIX}disk");
    for wrong in [
        "SendTargets=Alle",
        "SendTargets=A",
        "SendTargets=iqn.no:where",
    ] {
        let text = one.text(wrong).text();
        assert_eq!(text.trim(), "SendTargets=Reject", "{wrong}");
    }
    for wrong in ["SendTargetsPlease=All", "sENDtARGETS=aLL"] {
        assert!(one.text(wrong).text().contains("NotUnderstood"), "{wrong}");
    }
    for right in ["All", "", &named["TargetName=".len()..]] {
        let text = one.text(&format!("SendTargets={right}")).text();
        assert!(text.contains(&named), "{right}: {text}");
    }
}

/// iSCSINop.Simple.
#[test]
fn a_ping_is_answered_with_its_data() {
    let mut one = initiator();
    assert_eq!(one.ping(b"nopping\0").data, b"nopping\0");
    assert!(one.ping(&[]).data.is_empty());
    assert_eq!(one.ping(&[7; 8192]).data.len(), 8192);
}

// --------------------------------------------------------------------------------------------------------- SCSI

/// Inquiry.VPDPageCodesSorted.
#[test]
fn pages_are_listed_in_ascending_order() {
    let mut one = initiator();
    let list = one.read(&[0x12, 1, 0, 0, 255, 0], 255).data;
    let pages = &list[4..];
    assert_eq!(usize::from(list[3]), pages.len());
    assert!(pages.is_sorted_by(|a, b| a < b), "{pages:x?}");
    for page in pages {
        let data = one.read(&[0x12, 1, *page, 0, 255, 0], 255).data;
        assert_eq!((data[1], data.is_empty()), (*page, false));
    }
}

/// ReportTargetPortGroups.Simple, ReportTargetPortGroups.AllocLength.
#[test]
fn port_groups_are_cut_where_the_initiator_asks() {
    let mut one = initiator();
    let mut groups = |bytes: u8| {
        let mut cdb = [0; 12];
        (cdb[0], cdb[1], cdb[9]) = (0xa3, 0x0a, bytes);
        let outcome = one.read(&cdb, usize::from(bytes));
        assert_eq!(outcome.status, 0);
        outcome.data
    };
    let full = groups(255);
    let length = u32::from_be_bytes(*full.first_chunk().expect("a length")) as usize;
    assert_eq!(full.len(), 4 + length);
    // One group: active and optimized, with one port.
    assert_eq!((full[4] & 15, full[11], full.len()), (0, 1, 16));
    for bytes in 0..=full.len() {
        assert_eq!(groups(bytes as u8), full[..bytes], "{bytes}");
    }
}

/// iSCSITMF.LogoutDuringIOAsync.
#[test]
fn a_logout_amid_writes_leaves_nothing_behind() {
    let mut one = initiator();
    one.peer.world.in_flight_max = 64;
    for lba in 0..32 {
        let request = one.scsi(&write_10(lba * 8, 8), 0, 4096);
        one.send(request, &[lba as u8; 4096]);
    }
    for _ in 0..10 {
        one.peer.answer(0);
    }
    one.log_out();
    one.peer.settle();
    let mut answers = Vec::new();
    while let Some(pdu) = one.receive() {
        answers.push(pdu.opcode());
    }
    assert_eq!(answers, [&[0x21; 10][..], &[0x26]].concat());
    assert!(one.peer.ended());
    assert!(one.peer.close().buffers.is_empty());
}

/// ExtendedCopy.Large: refused, for the command is not here.
#[test]
fn commands_that_are_not_here_are_refused_by_their_opcode() {
    let mut one = initiator();
    for opcode in [0x83, 0x84, 0x9c] {
        let mut cdb = [0; 16];
        cdb[0] = opcode;
        let outcome = one.read(&cdb, 0);
        assert_eq!((outcome.status, outcome.sense), (2, Some((5, 0x20, 0))));
    }
}
