//! Growth with McPod's outsourced parity: a spare takes the parity over while users write, through a kill, and with the
//! loss of either disk. Refused where it cannot be, with every device as it was.

use crate::grow::{
    FAST, GROWN, OLD, SLOW, fill, growth, is_under_way, of_level, raid4, serve, task,
};
use crate::harness::Place;
use crate::harness::steps::{
    Fio, content, good, has, member_named, number, refused, status, wait_until,
};
use serde_json::Value;
use std::thread;

/// The spare that parity moves to.
const SPARE: &str = "p.img";
const MOVES: [&str; 2] = ["--moves", "parity-outsourced"];
const GROW: [&str; 4] = ["grow", "tank", "--add", "e.img"];

fn grow(more: &[&'static str]) -> Vec<&'static str> {
    [&GROW[..], &MOVES, more].concat()
}

fn with_spare(members: &[&'static str]) -> Vec<&'static str> {
    [members, &[SPARE]].concat()
}

/// A device's state and slot.
fn member<'a>(status: &'a Value, name: &str) -> (&'a str, Option<u64>) {
    let found = member_named(&status["members"], name).expect("it is listed");
    (
        found["state"].as_str().expect("a word"),
        found["slot"].as_u64(),
    )
}

fn replace(status: &Value) -> Option<&Value> {
    task(status, "replace")
}

/// All of the array is as it was behind fio's blocks, and zeros follow; its redundancy, too.
fn is_kept(place: &Place) {
    let (before, now) = (place.bytes("all.raw"), content(place, "now.raw"));
    let behind = Fio::SIZE;
    assert!(now.len() > before.len(), "it has grown");
    assert!(
        now[behind..before.len()] == before[behind..],
        "bytes changed as they moved"
    );
    assert!(now[before.len()..].iter().all(|byte| *byte == 0));
    let told = good(place.run(&["scrub", "tank"]));
    assert!(
        !told.contains("mismatch") || told.contains("0 mismatch"),
        "{told}"
    );
}

/// An array of level 4 with a spare, filled; the growth has begun and moved some rows.
fn under_way(place: &Place) -> crate::harness::Daemon {
    good(place.shell("truncate -s 64M p.img"));
    let daemon = serve(place, &["--rate", SLOW], &OLD);
    fill(place);
    good(place.run(&["add", "tank", SPARE]));
    let told = good(place.run(&grow(&["--no-wait"])));
    for word in [
        "parity moves from",
        "d.img becomes a spare",
        "name all 6 devices",
    ] {
        assert!(told.contains(word), "{told}");
    }
    let fills = |status: &Value| replace(status).is_some_and(|one| number(&one["rows_done"]) > 0);
    let found = wait_until(place, |status| is_under_way(status) && fills(status));
    let fills = replace(&found).expect("the spare is being filled");
    assert_eq!(fills["waits"], "growth", "{found}");
    assert!(number(&fills["rows_done"]) > 0, "{found}");
    assert_eq!(member(&found, SPARE).0, "rebuilding");
    let text = good(place.run(&["status", "tank"]));
    assert!(text.contains("filled by the growth (slot 3)"), "{text}");
    daemon
}

/// Killed amid users' writes: parity's move goes on as any replacement does, and then the growth.
#[test]
fn parity_moves_to_a_spare_through_a_growth_and_a_kill() {
    let place = raid4("grow-parity-kill");
    let test = "parity_moves_to_a_spare_through_a_growth_and_a_kill";
    if !has(&place, test, &["fio", "nbdcopy"]) {
        return;
    }
    let fio = Fio { place: &place };
    let daemon = under_way(&place);
    let writes = |status: &Value| number(&status["counters"]["writes"]);
    let before = writes(&status(&place));
    thread::scope(|scope| {
        let load = scope.spawn(|| fio.run("--verify_state_save=1 --do_verify=0"));
        wait_until(&place, |status| writes(status) > before + 50);
        daemon.kill();
        assert_ne!(load.join().expect("no panic there").status, 0);
    });
    let daemon = serve(&place, &["--rate", SLOW], &with_spare(&GROWN));
    let found = status(&place);
    assert!(
        replace(&found).is_some() && growth(&found).is_some(),
        "{found}"
    );
    fio.verify(Fio::DEPTH);
    good(fio.run("--verify_state_save=1 --verify_fatal=1"));
    good(place.run(&["grow", "tank", "--rate", FAST]));
    let found = wait_until(&place, |status| status["tasks"] == Value::Array(vec![]));
    assert_eq!(found["state"], "healthy", "{found}");
    assert_eq!(member(&found, SPARE), ("active", Some(3)));
    // As after any replacement that a start went on with: it would be a spare without the kill.
    assert_eq!(member(&found, "d.img"), ("replaced", None));
    fio.verify(0);
    is_kept(&place);
    // The array needs the former parity's member no more, and tolerates a loss.
    good(place.run(&["remove", "tank", "d.img"]));
    good(place.run(&["fail", "tank", "b.img"]));
    fio.verify(0);
    drop(daemon);
}

/// Either of the two that have parity is lost half way, and the array goes on as without it.
#[test]
fn either_parity_disk_may_be_lost_while_parity_moves() {
    for (name, lost) in [("grow-parity-new", SPARE), ("grow-parity-old", "d.img")] {
        let place = raid4(name);
        let test = "either_parity_disk_may_be_lost_while_parity_moves";
        if !has(&place, test, &["fio", "nbdcopy"]) {
            return;
        }
        let fio = Fio { place: &place };
        let daemon = under_way(&place);
        // The device itself ends: what is read or written behind 1 MiB is an error.
        good(place.shell(&format!("truncate -s 1M {lost}")));
        good(fio.run("--verify_state_save=1 --verify_fatal=1"));
        wait_until(&place, |status| member(status, lost).0 == "failed");
        fio.verify(0);
        // Killed, and started without the lost one.
        daemon.kill();
        let all = with_spare(&GROWN);
        let left: Vec<&str> = all.into_iter().filter(|one| *one != lost).collect();
        let daemon = serve(&place, &["--rate", FAST, "--degraded"], &left);
        fio.verify(0);
        let found = wait_until(&place, |status| status["tasks"] == Value::Array(vec![]));
        assert_eq!(found["state"], "healthy", "{found}");
        let parity = if lost == SPARE { "d.img" } else { SPARE };
        assert_eq!(member(&found, parity), ("active", Some(3)), "{found}");
        fio.verify(0);
        is_kept(&place);
        good(place.run(&["stop", "tank"]));
        assert_eq!(daemon.wait(), 0);
    }
}

/// The growth runs without a daemon. A dry run comes first and changes nothing.
#[test]
fn parity_moves_in_an_array_that_is_not_served() {
    let place = raid4("grow-parity-offline");
    good(place.shell("truncate -s 64M p.img"));
    good(place.run(&[&["add", "tank", SPARE, "--offline"], &OLD[..]].concat()));
    let offline = [&["--offline"], &with_spare(&OLD)[..]].concat();
    let told = good(place.run(&grow(&[&["--dry-run"], &offline[..]].concat())));
    assert!(told.contains("parity   from"), "{told}");
    assert!(told.contains("d.img becomes a spare"), "{told}");
    assert!(place.bytes("e.img").iter().all(|byte| *byte == 0));
    let told = good(place.run(&grow(&offline)));
    assert!(told.contains("tank now has 5 members"), "{told}");
    let daemon = serve(&place, &[], &with_spare(&GROWN));
    let found = wait_until(&place, |status| status["tasks"] == Value::Array(vec![]));
    assert_eq!(member(&found, SPARE), ("active", Some(3)));
    assert_eq!(member(&found, "d.img"), ("spare", None));
    // The next growth goes the best way again: the spare stays one.
    good(place.run(&["grow", "tank", "--add", "f.img"]));
    assert_eq!(member(&status(&place), "d.img"), ("spare", None));
    drop(daemon);
}

#[test]
fn parity_moves_only_where_one_member_has_it_and_a_spare_is_left() {
    for level in ["raid0", "raid5", "raid4"] {
        let place = of_level(&format!("grow-parity-{level}"), level);
        let daemon = serve(&place, &[], &OLD);
        let untouched = || {
            assert!(place.bytes("e.img").iter().all(|byte| *byte == 0));
            let found = status(&place);
            assert_eq!(
                found["members"].as_array().map(Vec::len),
                Some(4),
                "{found}"
            );
        };
        for dry in [&["--dry-run"][..], &[]] {
            let told = refused(place.run(&grow(dry)));
            match level {
                "raid4" => {
                    assert!(told.contains("no spare is left that parity"), "{told}");
                    assert!(told.contains("restripe add tank DEVICE"), "{told}");
                }
                _ => assert!(told.contains("requires level 4"), "{told}"),
            }
            untouched();
        }
        for name in ["parity-in-place", "chunkwise"] {
            let run = place.run(&[&GROW[..], &["--moves", name]].concat());
            assert_eq!(run.status, 2, "{}", run.stderr);
        }
        if level == "raid4" {
            // The only spare is what the array is to grow by.
            good(place.run(&["add", "tank", "e.img"]));
            let told = refused(place.run(&grow(&[])));
            assert!(told.contains("no spare is left"), "{told}");
            assert_eq!(member(&status(&place), "e.img").0, "spare");
        }
        drop(daemon);
    }
}
