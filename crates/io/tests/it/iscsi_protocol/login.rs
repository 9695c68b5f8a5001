//! Logins: who may, how it is proved, and what is agreed on.

use super::initiator::{Initiator, NAME, Pdu, chap_digest, chap_response, hex, hub, read_10};
use crate::nbd_protocol::world::World;
use restripe_io::front::iscsi::chap::Secrets;
use restripe_io::front::iscsi::hub::{Hub, NAME_PREFIX, Target};
use restripe_io::front::{Nudge, Report};
use std::sync::{Arc, Mutex};

fn world() -> World {
    World::new(1 << 20)
}

fn refused(keys: &[&str]) -> (u8, u8) {
    let answer = Initiator::new(&hub(), world()).log_in(1, 3, keys);
    (answer.header[36], answer.header[37])
}

#[test]
fn a_login_agrees_on_lengths_and_starts_a_session() {
    let keys = [
        "MaxRecvDataSegmentLength=4096",
        "InitialR2T=No",
        "ImmediateData=Yes",
        "MaxBurstLength=65536",
        "X-org.example=1",
    ];
    let mut initiator = Initiator::new(&hub(), world());
    let names = [
        format!("InitiatorName={NAME}"),
        format!("TargetName={NAME_PREFIX}disk"),
    ];
    let all: Vec<&str> = names.iter().map(String::as_str).chain(keys).collect();
    let answer = initiator.log_in(1, 3, &all);
    assert_eq!(answer.header[1], 0x87, "transit to the full feature phase");
    let text = answer.text();
    for line in [
        "TargetPortalGroupTag=1",
        "MaxRecvDataSegmentLength=262144",
        "InitialR2T=No",
        "MaxBurstLength=65536",
        "X-org.example=NotUnderstood",
    ] {
        assert!(text.contains(line), "{line} is missing in {text}");
    }
    assert_ne!(&answer.header[14..16], [0, 0], "the session has a handle");
    initiator.attend();
    let read = initiator.read(&read_10(0, 32), 32 * 512);
    assert_eq!((read.status, read.data.len()), (0, 32 * 512));
}

/// A first burst is no longer than a burst, and no answer is longer than an initiator receives at a login.
#[test]
fn answers_of_a_login_are_within_their_bounds() {
    let me = format!("InitiatorName={NAME}");
    let disk = format!("TargetName={NAME_PREFIX}disk");
    let lengths = ["FirstBurstLength=262144", "MaxBurstLength=4096"];
    for lengths in [lengths, [lengths[1], lengths[0]]] {
        let mut one = Initiator::new(&hub(), world());
        let answer = one.log_in(1, 3, &[&me, &disk, lengths[0], lengths[1]]);
        assert_eq!(answer.value("FirstBurstLength="), "4096");
        assert_eq!(answer.value("MaxBurstLength="), "4096");
    }
    let odd = |number: usize| format!("X-{number:061}=1");
    for (keys, status) in [(90, (0, 0)), (115, (2, 0))] {
        let odd: Vec<String> = (0..keys).map(odd).collect();
        let odd = odd.iter().map(String::as_str);
        let all: Vec<&str> = [me.as_str(), &disk].into_iter().chain(odd).collect();
        let mut one = Initiator::new(&hub(), world());
        let answer = one.log_in(1, 3, &all);
        assert_eq!((answer.header[36], answer.header[37]), status);
        assert!(answer.data.len() <= 8192);
    }
}

#[test]
fn whoever_is_not_right_is_refused_by_its_status() {
    let me = format!("InitiatorName={NAME}");
    let nowhere = format!("TargetName={NAME_PREFIX}nowhere");
    let disk = format!("TargetName={NAME_PREFIX}disk");
    assert_eq!(refused(&[&disk]), (2, 7));
    assert_eq!(refused(&[&me]), (2, 7));
    assert_eq!(refused(&[&me, &nowhere]), (2, 3));
    assert_eq!(refused(&[&me, &disk, "SessionType=Odd"]), (2, 9));
    assert_eq!(
        refused(&[&me, &disk, "MaxBurstLength=1", "MaxBurstLength=1"]),
        (2, 0)
    );
    assert_eq!(refused(&[&me, &disk, "no key"]), (2, 0));
}

#[test]
fn only_initiators_of_the_list_log_in_and_see_the_target() {
    let target = Target {
        name: "iqn.2026-11.test:listed".to_owned(),
        luns: vec!["disk".to_owned()],
        initiators: vec!["iqn.2026-11.test:other".to_owned()],
        ..Target::default()
    };
    let hub = Arc::new(Hub::new(vec![target]));
    let mut initiator = Initiator::new(&hub, world());
    let me = format!("InitiatorName={NAME}");
    let answer = initiator.log_in(1, 3, &[&me, "TargetName=iqn.2026-11.test:listed"]);
    assert_eq!((answer.header[36], answer.header[37]), (2, 2));
    assert!(initiator.peer.ended());
    let mut initiator = Initiator::new(&hub, world());
    let other = [
        "InitiatorName=IQN.2026-11.test:other",
        "TargetName=iqn.2026-11.test:listed",
    ];
    assert_eq!(initiator.log_in(1, 3, &other).header[36], 0);
}

/// Logical units keep their numbers, whether or not the arrays before them are served. An export for one client
/// is none of them.
#[test]
fn a_unit_that_is_missing_does_not_renumber_those_behind_it() {
    let luns = ["gone", "disk", "lease", "last"];
    let target = Target {
        name: "iqn.2026-11.test:several".to_owned(),
        luns: luns.map(str::to_owned).to_vec(),
        ..Target::default()
    };
    let mut world = world();
    for (name, exclusive) in [("lease", true), ("last", false)] {
        let mut export = world.exports[0].clone();
        (export.name, export.exclusive) = (name.to_owned(), exclusive);
        world.exports.push(export);
    }
    world.exports[2].size_bytes /= 2;
    let mut one = Initiator::new(&Arc::new(Hub::new(vec![target])), world);
    let me = format!("InitiatorName={NAME}");
    let answer = one.log_in(1, 3, &[&me, "TargetName=iqn.2026-11.test:several"]);
    assert_eq!(answer.header[36], 0);
    assert_eq!(one.peer.world.attached, [0, 2], "a client of both arrays");
    let mut report = [0; 12];
    (report[0], report[9]) = (0xa0, 255);
    let listed = one.read(&report, 255).data;
    let numbers: Vec<u8> = listed[8..].chunks(8).map(|lun| lun[1]).collect();
    assert_eq!(numbers, [1, 3]);
    let mut last_block = |lun: u8| {
        // The first of a unit finds that the session is new.
        let outcomes = [(); 2].map(|()| {
            let mut request = one.scsi(&[0x25], 8, 0);
            request[9] = lun;
            one.send(request, &[]);
            one.finish(&[])
        });
        let [_, outcome] = outcomes;
        (outcome.status == 0).then(|| outcome.data[..4].to_vec())
    };
    assert_eq!(last_block(0), None);
    assert_eq!(last_block(1), Some(2047_u32.to_be_bytes().to_vec()));
    assert_eq!(last_block(2), None);
    assert_eq!(last_block(3), Some(1023_u32.to_be_bytes().to_vec()));
}

fn with_secrets() -> Arc<Hub> {
    with_secrets_of(&format!("{ALICE}\ntarget tank looking-glass-1871"))
}

const ALICE: &str = "initiator alice wonderland-1865";

fn with_secrets_of(text: &str) -> Arc<Hub> {
    let target = Target {
        name: "iqn.2026-11.test:secret".to_owned(),
        luns: vec!["disk".to_owned()],
        secrets: Some(Secrets::parse(text).expect("they are right")),
        ..Target::default()
    };
    Arc::new(Hub::new(vec![target]))
}

const SECRET: [&str; 2] = [
    "InitiatorName=iqn.2026-11.test:one",
    "TargetName=iqn.2026-11.test:secret",
];

#[test]
fn a_target_with_secrets_lets_nobody_in_without() {
    let status = |stage: u8, keys: &[&str]| {
        let all: Vec<&str> = SECRET.iter().chain(keys).copied().collect();
        let answer = Initiator::new(&with_secrets(), world()).log_in(stage, 3, &all);
        (answer.header[36], answer.header[37])
    };
    assert_eq!(status(1, &[]), (2, 1), "the security stage was left out");
    assert_eq!(status(0, &[]), (2, 1));
    assert_eq!(status(0, &["AuthMethod=None"]), (2, 1));
    assert_eq!(status(0, &["AuthMethod=KRB5"]), (2, 1));
}

#[test]
fn a_wrong_response_ends_the_login() {
    let mut initiator = Initiator::new(&with_secrets(), world());
    let all: Vec<&str> = SECRET
        .iter()
        .copied()
        .chain(["AuthMethod=CHAP,None"])
        .collect();
    let answer = initiator.log_in(0, 1, &all);
    assert!(answer.text().contains("AuthMethod=CHAP"));
    assert_eq!(answer.header[1] & 0x80, 0, "no transit yet");
    let answer = initiator.log_in(0, 0, &["CHAP_A=7"]);
    assert!(answer.text().contains("CHAP_A=7") && answer.text().contains("CHAP_C=0x"));
    let wrong = format!("CHAP_R=0x{}", "00".repeat(32));
    let answer = initiator.log_in(0, 1, &["CHAP_N=alice", &wrong]);
    assert_eq!((answer.header[36], answer.header[37]), (2, 1));
    assert!(initiator.peer.ended());
}

/// Proves to be alice, and asks the target for its proof: the last answer.
fn prove_mutually(hub: &Arc<Hub>, algorithm: &str, theirs: impl Fn(&Pdu) -> String) -> Pdu {
    let mut one = Initiator::new(hub, world());
    let keys = [SECRET[0], SECRET[1], "AuthMethod=CHAP"];
    one.log_in(0, 1, &keys);
    let asked = one.log_in(0, 0, &[&format!("CHAP_A={algorithm}")]);
    let response = hex(&chap_response(&asked, "wonderland-1865"));
    let keys = [
        "CHAP_N=alice".to_owned(),
        format!("CHAP_R={response}"),
        "CHAP_I=7".to_owned(),
        format!("CHAP_C={}", theirs(&asked)),
    ];
    one.log_in(0, 3, &keys.each_ref().map(String::as_str))
}

/// Mutual CHAP: the initiator checks the target, by either algorithm.
#[test]
fn a_target_proves_that_it_has_its_secret() {
    let challenge: Vec<u8> = (100..132).collect();
    for algorithm in ["5", "7"] {
        let answer = prove_mutually(&with_secrets(), algorithm, |_| hex(&challenge));
        assert_eq!((answer.header[36], answer.header[1] & 0x83), (0, 0x83));
        assert_eq!(answer.value("CHAP_N="), "tank");
        let proof = answer.value("CHAP_R=");
        let of = |secret: &str| hex(&chap_digest(algorithm, 7, secret, &challenge));
        assert_eq!(proof, of("looking-glass-1871"));
        // A target with another secret does not pass the check of the initiator.
        let hub = with_secrets_of(&format!("{ALICE}\ntarget tank through-the-glass"));
        let answer = prove_mutually(&hub, algorithm, |_| hex(&challenge));
        assert_ne!(answer.value("CHAP_R="), proof);
    }
}

#[test]
fn a_proof_that_the_target_cannot_or_must_not_give_ends_the_login() {
    let status = |hub: &Arc<Hub>, theirs: fn(&Pdu) -> String| {
        let answer = prove_mutually(hub, "7", theirs);
        assert!(!answer.text().contains("CHAP_R"));
        (answer.header[36], answer.header[37])
    };
    let hub = with_secrets();
    let none = with_secrets_of(ALICE);
    assert_eq!(status(&none, |_| "0x01".to_owned()), (2, 1), "no secret");
    let reflected = |asked: &Pdu| asked.value("CHAP_C=");
    assert_eq!(status(&hub, reflected), (2, 1), "its own challenge");
    assert_eq!(status(&hub, |_| "0x".to_owned()), (2, 1), "no challenge");
    assert_eq!(status(&hub, |_| "01".to_owned()), (2, 1), "no binary value");
}

/// What may be a guess is answered late, and whatever is refused is reported.
#[test]
fn a_refused_login_is_reported_and_a_guess_has_to_wait() {
    let me = format!("InitiatorName={NAME}");
    let nowhere = format!("TargetName={NAME_PREFIX}nowhere");
    let disk = format!("TargetName={NAME_PREFIX}disk");
    let guess: &[&str] = &[&me, &nowhere];
    let odd = [me.as_str(), disk.as_str(), "SessionType=Odd"];
    for (keys, late, why) in [
        (guess, true, "there is no target of the name"),
        (&odd, false, "refused (2/9)"),
    ] {
        let reasons = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&reasons);
        let note = move |why: &str| noted.lock().expect("no panic").push(why.to_owned());
        let hub = Hub::new(Vec::new()).reporting(Report::new(note));
        let mut one = Initiator::new(&Arc::new(hub), world());
        one.begin_login(1, 3, keys);
        let reasons = reasons.lock().expect("no panic");
        let [reason] = &reasons[..] else {
            panic!("one line: {reasons:?}");
        };
        assert!(reason.contains(NAME) && reason.contains(why), "{reason}");
        assert_eq!(one.peer.world.sent.is_empty(), late);
        // Less than a second may have passed at the first call.
        assert!(one.pass(1));
        assert_eq!(one.peer.world.sent.is_empty(), late);
        assert!(one.pass(1) && !one.peer.world.sent.is_empty());
        assert_eq!(
            one.peer.world.nudges.len(),
            usize::from(late),
            "then it ends"
        );
    }
}

/// A login and a discovery have a place among the strangers, and their time.
#[test]
fn neither_a_login_nor_a_discovery_proves_who_the_initiator_is() {
    let me = format!("InitiatorName={NAME}");
    let disk = format!("TargetName={NAME_PREFIX}disk");
    for (key, proves) in [("SessionType=Discovery", false), (disk.as_str(), true)] {
        let mut one = Initiator::new(&hub(), world());
        assert!(!one.is_proven());
        let answer = one.log_in(1, 3, &[&me, key]);
        assert_eq!(answer.header[36], 0);
        assert_ne!(&answer.header[14..16], [0, 0], "the session has a handle");
        assert_eq!(one.is_proven(), proves);
        one.text("SendTargets=All");
        assert!(one.pass(29));
    }
}

/// Each portal that an initiator can reach as it reached one (RFC 7143 appendix C).
#[test]
fn discovery_lists_all_portals_of_the_group() {
    let portals = [
        "192.0.2.1:3260",
        "0.0.0.0:3261",
        "[2001:db8::1]:3260",
        "127.0.0.1:3262",
    ];
    let portals = portals
        .map(|text| text.parse().expect("an address"))
        .to_vec();
    let hub = Arc::new(Hub::new(Vec::new()).at(portals));
    for (local, listed) in [
        (
            "192.0.2.9:3261",
            &["192.0.2.9:3261,1", "192.0.2.1:3260,1"][..],
        ),
        ("[2001:db8::1]:3260", &["[2001:db8::1]:3260,1"]),
        ("127.0.0.1:3262", &["127.0.0.1:3262,1", "127.0.0.1:3261,1"]),
    ] {
        let mut world = world();
        world.local = Some(local.parse().expect("an address"));
        let mut one = Initiator::new(&hub, world);
        let me = format!("InitiatorName={NAME}");
        one.log_in(1, 3, &[&me, "SessionType=Discovery"]);
        let text = one.text("SendTargets=All").text();
        let addresses = text
            .lines()
            .filter_map(|line| line.strip_prefix("TargetAddress="));
        assert_eq!(addresses.collect::<Vec<_>>(), listed);
    }
}

/// Sessions leave half of the reactor's connections to others.
#[test]
fn sessions_are_bounded_over_all_initiators() {
    let hub = hub();
    let disk = format!("TargetName={NAME_PREFIX}disk");
    let log_in = |number: usize| {
        let mut one = Initiator::new(&hub, world());
        let me = format!("InitiatorName={NAME}-{number}");
        let answer = one.log_in(1, 3, &[&me, &disk]);
        ((answer.header[36], answer.header[37]), one)
    };
    let mut sessions: Vec<Initiator> = Vec::new();
    for number in 0..128 {
        let (status, one) = log_in(number);
        assert_eq!(status, (0, 0));
        sessions.push(one);
    }
    assert_eq!(log_in(128).0, (3, 2), "out of resources");
    let mut one = Initiator::new(&hub, world());
    let me = format!("InitiatorName={NAME}-discovers");
    let answer = one.log_in(1, 3, &[&me, "SessionType=Discovery"]);
    assert_eq!(answer.header[36], 0, "a discovery takes no place of theirs");
    sessions.pop();
    assert_eq!(log_in(128).0, (0, 0));
}

#[test]
fn a_session_of_the_same_initiator_replaces_the_older_one() {
    let hub = hub();
    let mut world_1 = world();
    world_1.number = 1;
    let first = Initiator::logged_in(&hub, world_1, &[]);
    let mut world_2 = world();
    world_2.number = 2;
    let second = Initiator::logged_in(&hub, world_2, &[]);
    assert_eq!(second.peer.world.nudges, [(1, Nudge::End)]);
    // The end of the older connection is not the end of the newer session.
    drop(first);
    let mut second = second;
    assert_eq!(second.read(&read_10(0, 1), 512).status, 0);
}

#[test]
fn discovery_lists_what_there_is() {
    let mut initiator = Initiator::new(&hub(), world());
    let me = format!("InitiatorName={NAME}");
    let answer = initiator.log_in(1, 3, &[&me, "SessionType=Discovery", "MaxBurstLength=512"]);
    assert_eq!(answer.header[36], 0);
    assert!(answer.text().contains("MaxBurstLength=Irrelevant"));
    let mut request = super::initiator::header(0x04, 0x80, 9);
    super::initiator::put(&mut request, 20, u32::MAX);
    super::initiator::put(&mut request, 24, 1);
    initiator.send(request, b"SendTargets=All\0");
    let answer = initiator.receive().expect("it is answered");
    assert_eq!(answer.opcode(), 0x24);
    assert!(
        answer
            .text()
            .contains(&format!("TargetName={NAME_PREFIX}disk"))
    );
}
