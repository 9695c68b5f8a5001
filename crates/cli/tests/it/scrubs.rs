//! What a scrub found is there after its end, on every surface; and a repair says what it can prove.

use crate::harness::steps::{URI, good, number, refused, status, stop, wait_until};
use crate::harness::{Place, line_of};
use std::fs::File;

const FIVE: [&str; 5] = ["a.img", "b.img", "c.img", "d.img", "e.img"];
const THREE: [&str; 3] = ["a.img", "b.img", "c.img"];
const SIZE: &str = "32M";

/// An array that is full of a pattern and stopped.
fn filled(name: &str, members: &[&str], level: &str) -> Place {
    let place = Place::new(name);
    let options = ["--level", level, "--image-size", SIZE];
    let words = [&["create", "tank"][..], &options, members].concat();
    good(place.run(&words));
    let daemon = place.serve(members);
    good(place.shell(&format!(
        "qemu-io -f raw -c 'write -P 7 0 20M' -c flush '{URI}'"
    )));
    stop(&place, &daemon);
    place
}

/// Changes this many bytes of a row of a member.
fn rot(place: &Place, member: &str, row: u64, bytes: usize) {
    let at = data_start(place, member) + row * (64 << 10);
    let length = place.bytes(member).len() as u64;
    place.write(member, length, at, &vec![0xa5; bytes]);
}

/// Where a member's data begins, in bytes.
fn data_start(place: &Place, member: &str) -> u64 {
    let examined = good(place.run(&["examine", "--json", member]));
    let found: serde_json::Value = serde_json::from_str(&examined).expect("it is JSON");
    number(&found[0]["array"]["data_sector"]) * 512
}

fn offline<'a>(words: &[&'a str], members: &[&'a str]) -> Vec<&'a str> {
    [words, &["--offline"], members].concat()
}

#[test]
fn a_scrub_without_an_observer_leaves_its_result_on_every_surface() {
    let place = filled("unwatched", &FIVE, "raid6");
    rot(&place, "c.img", 3, 4096);
    rot(&place, "a.img", 20, 8192);
    let mut serve = place.command(&[&["serve", "--unix", "nbd.sock"][..], &FIVE].concat());
    let log = File::create(place.path("log")).expect("a file of ours");
    let daemon = place.await_service(serve.stderr(log));
    good(place.run(&["scrub", "tank", "--no-wait"]));
    let found = wait_until(&place, |found| found["last_scrub"]["state"] == "completed");
    check_json(&found);
    check_text(&place);
    let watched = refused(place.run(&["scrub", "tank", "--watch"]));
    assert!(watched.contains("restripe status tank"), "{watched}");
    stop(&place, &daemon);

    let log = String::from_utf8(place.bytes("log")).expect("plain text");
    assert!(
        log.contains("check completed: ") && !log.contains("unreadable"),
        "{log}"
    );

    // Over a restart, and by the members alone.
    let daemon = place.serve(&FIVE);
    check_json(&status(&place));
    check_text(&place);
    stop(&place, &daemon);
    let examined = good(place.run(&["examine", "b.img"]));
    assert!(examined.contains("2 wrong (cells disagree)"), "{examined}");
    let examined = good(place.run(&["examine", "--json", "b.img"]));
    let examined: serde_json::Value = serde_json::from_str(&examined).expect("it is JSON");
    assert_eq!(number(&examined[0]["array"]["last_scrub"]["rows_wrong"]), 2);
}

fn check_json(found: &serde_json::Value) {
    let last = &found["last_scrub"];
    for (what, count) in [
        ("rows_wrong", 2),
        ("rows_unreadable", 0),
        ("rows_left", 2),
        ("mismatches", 2),
        ("mismatched_bytes", 12288),
    ] {
        assert_eq!(number(&last[what]), count, "{what}: {last}");
    }
    assert!(number(&last["ended_at"]) >= number(&last["began_at"]));
    assert!(number(&last["rows_compared"]) > 0);
    let members = last["members"].as_array().expect("a list");
    let mut named: Vec<(&str, u64)> = members
        .iter()
        .map(|one| (one["path"].as_str().expect("it is here"), one))
        .map(|(path, one)| {
            (
                path.rsplit('/').next().unwrap_or(path),
                number(&one["rows_wrong"]),
            )
        })
        .collect();
    named.sort_unstable();
    assert_eq!(named, [("a.img", 1), ("c.img", 1)]);
}

fn check_text(place: &Place) {
    let text = good(place.run(&["status", "tank"]));
    let line = line_of(&text, "last scrub: check completed, started 2");
    assert!(line.contains(", ended 2"), "{text}");
    assert!(
        text.contains("2 wrong (cells disagree), 2 left with findings"),
        "{text}"
    );
    assert!(text.contains("c.img: wrong in 1 row"), "{text}");
    let metrics = good(place.run(&["metrics", "tank"]));
    for wanted in [
        "restripe_last_scrub_wrong_rows{array=\"tank\"} 2",
        "restripe_last_scrub_mismatched_bytes{array=\"tank\"} 12288",
    ] {
        assert!(metrics.contains(wanted), "{wanted} in\n{metrics}");
    }
}

#[test]
fn both_repairs_are_told_with_their_true_sizes() {
    let place = filled("repairs", &FIVE, "raid6");
    rot(&place, "c.img", 3, 4096);
    rot(&place, "a.img", 20, 8192);
    let told = good(place.run(&offline(&["scrub", "tank", "--repair"], &FIVE)));
    for (row, text) in [
        (3, "row 3: the cells disagree in 4096 bytes, "),
        (20, "row 20: the cells disagree in 8192 bytes, "),
    ] {
        let line = told.lines().find(|line| line.contains(text));
        let line = line.unwrap_or_else(|| panic!("row {row} in\n{told}"));
        assert!(line.ends_with("is wrong, repaired"), "{line}");
    }
    assert!(
        told.contains("2 rows had findings and are repaired"),
        "{told}"
    );
    let again = good(place.run(&offline(&["scrub", "tank"], &FIVE)));
    assert!(again.ends_with("every row agrees\n"), "{again}");
    let daemon = place.serve(&FIVE);
    let read = format!("qemu-io -r -f raw -c 'read -P 7 0 20M' '{URI}'");
    let read = good(place.shell(&read));
    assert!(!read.contains("fail"), "{read}");
    stop(&place, &daemon);
}

/// One parity, or two copies, do not tell which cell is wrong.
#[test]
fn what_has_no_second_witness_stays_as_it_is_until_yes_is_said() {
    for (level, members) in [
        ("raid5", &THREE[..]),
        ("raid1", &THREE[..2]),
        ("raid4", &THREE[..]),
    ] {
        let place = filled(&format!("witness-{level}"), members, level);
        rot(&place, "b.img", 3, 16384);
        let start = data_start(&place, "b.img") as usize;
        let data = start..start + (10 << 20);
        let before: Vec<Vec<u8>> = members.iter().map(|one| place.bytes(one)).collect();
        let found = refused(place.run(&offline(&["scrub", "tank"], members)));
        assert!(found.contains("1 row disagrees"), "{found}");
        let why = refused(place.run(&offline(&["scrub", "tank", "--repair"], members)));
        assert!(
            why.contains("1 row disagrees") && why.contains("--yes"),
            "{why}"
        );
        // A start changes metadata alone.
        for (one, before) in members.iter().zip(&before) {
            assert!(
                place.bytes(one)[data.clone()] == before[data.clone()],
                "{one} is as it was"
            );
        }
        let forced = good(place.run(&offline(&["scrub", "tank", "--repair", "--yes"], members)));
        let said = "1 row is brought in sync, but its data is not verified";
        assert!(forced.contains(said), "{forced}");
        assert!(!forced.contains("repaired"), "{forced}");
        let told = good(place.run(&offline(&["status", "tank"], members)));
        assert!(
            told.contains("1 brought in sync, data not verified"),
            "{told}"
        );
    }
}

/// With a witness, what it does not prove stays as it is and is a failure.
#[test]
fn two_wrong_members_of_raid6_in_one_block_are_left_as_they_are() {
    let place = filled("two-wrong", &FIVE, "raid6");
    rot(&place, "b.img", 3, 4096);
    rot(&place, "c.img", 3, 2048);
    let why = refused(place.run(&offline(&["scrub", "tank", "--repair"], &FIVE)));
    assert!(
        why.contains("1 row disagrees") && why.contains("--yes"),
        "{why}"
    );
    let forced = good(place.run(&offline(&["scrub", "tank", "--repair", "--yes"], &FIVE)));
    assert!(forced.contains("brought in sync"), "{forced}");
    good(place.run(&offline(&["scrub", "tank"], &FIVE)));
}

#[test]
fn yes_is_for_a_repair() {
    let place = Place::new("yes-alone");
    let run = place.run(&["scrub", "tank", "--yes"]);
    assert_eq!(run.status, 2, "{}", run.stderr);
}
