//! Growth by the command alone: told before it begins, served through, killed, resumed, and a member lost in it.

use crate::harness::steps::{
    Fio, URI, content, good, has, number, read_pattern, refused, status, wait_until, write_pattern,
};
use crate::harness::{Daemon, Place};
use serde_json::Value;
use std::thread;
use std::time::Duration;

pub const OLD: [&str; 4] = ["a.img", "b.img", "c.img", "d.img"];
pub const GROWN: [&str; 5] = ["a.img", "b.img", "c.img", "d.img", "e.img"];
/// So that a growth lasts longer than what is done to it.
pub const SLOW: &str = "1M..2M";
pub const FAST: &str = "1G..8G";

/// A RAID-4 of four members, and devices to grow by.
pub fn raid4(name: &str) -> Place {
    of_level(name, "raid4")
}

pub fn of_level(name: &str, level: &str) -> Place {
    let place = Place::new(name);
    good(place.create(&OLD, &["--level", level, "--no-slack"]));
    good(place.shell("truncate -s 64M e.img f.img"));
    place
}

pub fn serve(place: &Place, options: &[&str], members: &[&str]) -> Daemon {
    let mut words = vec!["serve", "--unix", "nbd.sock"];
    words.extend(options);
    words.extend(members);
    place.await_service(&mut place.command(&words))
}

pub fn growth(status: &Value) -> Option<&Value> {
    task(status, "growth")
}

pub fn task<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    let tasks = status["tasks"].as_array().expect("a list");
    tasks.iter().find(|task| task["kind"] == kind)
}

/// Some of it is moved, and some is not.
pub fn is_under_way(status: &Value) -> bool {
    growth(status).is_some_and(|task| {
        (5..number(&task["rows_total"]) - 100).contains(&number(&task["rows_done"]))
    })
}

/// Bytes over the whole array, kept as `all.raw`: zeros where fio will write, and random ones behind.
pub fn fill(place: &Place) {
    let size = number(&status(place)["size_bytes"]);
    let (zeros, random) = (Fio::SIZE, size as usize - Fio::SIZE);
    good(place.shell(&format!(
        "set -e; (head -c {zeros} /dev/zero; head -c {random} /dev/urandom) > all.raw
         nbdcopy --flush all.raw '{URI}'"
    )));
}

/// All of an array that is not served is written, if the tools for that are here.
fn written_before(place: &Place, test: &str) -> bool {
    if !has(place, test, &["nbdcopy"]) {
        return false;
    }
    let daemon = serve(place, &[], &OLD);
    fill(place);
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
    true
}

/// And it is there when the array has grown, with its redundancy.
fn is_kept(place: &Place, members: &[&str]) {
    let daemon = serve(place, &[], members);
    is_there_and_zeros_behind(place);
    let told = good(place.run(&["scrub", "tank"]));
    assert!(
        !told.contains("mismatch") || told.contains("0 mismatch"),
        "{told}"
    );
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
}

/// What was there before is there, and zeros behind it.
fn is_there_and_zeros_behind(place: &Place) {
    let (before, now) = (place.bytes("all.raw"), content(place, "now.raw"));
    assert!(now.len() > before.len(), "it has grown");
    assert!(now.starts_with(&before), "bytes changed as they moved");
    assert!(now[before.len()..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_dry_run_tells_and_changes_nothing() {
    let place = raid4("grow-dry");
    let before = GROWN.map(|name| place.bytes(name));
    let offline = [&["--offline"], &OLD[..]].concat();
    let words = |more: &[&'static str]| [&["grow", "tank"], more, &offline].concat();
    let told = good(place.run(&words(&["--add", "e.img", "--dry-run"])));
    for line in [
        "tank: from 4 to 5 members, from 180M to 240M; nothing is changed yet",
        "moves    about 0",
        "at risk  none: a member may fail and power may be cut at any time",
        "the new capacity reads as zeros",
    ] {
        assert!(told.contains(line), "{told}");
    }
    assert!(GROWN.map(|name| place.bytes(name)) == before);
    good(place.shell("truncate -s 32M small.img"));
    let small = refused(place.run(&words(&["--add", "small.img", "--dry-run"])));
    assert!(
        small.contains("33554432 bytes") && small.contains("at least"),
        "{small}"
    );
    let mine = refused(place.run(&words(&["--add", "b.img", "--dry-run"])));
    assert!(mine.contains("in the array already"), "{mine}");
    let twice = place.run(&words(&["--add", "e.img", "e.img"]));
    assert_eq!(twice.status, 2, "{}", twice.stderr);
    let none = refused(place.run(&words(&[])));
    assert!(none.contains("no growth is running"), "{none}");
    good(place.shell("mkfs.ext4 -q -F f.img 2>/dev/null || printf 'ustar' | dd of=f.img bs=1 seek=257 conv=notrunc"));
    let carries = refused(place.run(&words(&["--add", "f.img"])));
    assert!(carries.contains("already contains"), "{carries}");
}

#[test]
fn what_cannot_grow_is_refused_with_its_devices_untouched() {
    let place = Place::new("grow-refused");
    let three = ["a.img", "b.img", "c.img"];
    good(place.create(&three, &["--level", "raid1"]));
    good(place.shell("truncate -s 64M e.img"));
    let offline = ["grow", "tank", "--add", "e.img", "--offline"];
    let told = refused(place.run(&[&offline, &three[..]].concat()));
    assert!(
        told.contains("error: arrays of level 1 and 10 cannot grow"),
        "{told}"
    );
    assert!(place.bytes("e.img").iter().all(|byte| *byte == 0));
}

/// All that speaks against a growth is found before a device is written to.
#[test]
fn a_refused_growth_leaves_no_spares_behind() {
    let place = Place::new("grow-spares");
    let members = ["a.img", "b.img", "c.img", "s.img", "t.img"];
    good(place.create(&members, &["--level", "raid4", "--spares", "2"]));
    good(place.shell("truncate -s 64M e.img f.img; truncate -s 8M small.img"));
    let daemon = serve(&place, &[], &members);
    let untouched = |devices: &[&str]| {
        for device in devices {
            assert!(
                place.bytes(device).iter().all(|byte| *byte == 0),
                "{device}"
            );
        }
        let found = status(&place);
        let all = found["members"].as_array().expect("a list");
        assert_eq!(all.len(), members.len(), "{found}");
    };
    for dry in [&["--dry-run"][..], &[]] {
        let words = |more: &[&'static str]| [&["grow", "tank", "--add"], more, dry].concat();
        let small = refused(place.run(&words(&["e.img", "small.img"])));
        assert!(small.contains("8388608 bytes"), "{small}");
        let older = refused(place.run(&words(&["e.img", "s.img"])));
        assert!(older.contains("were added later"), "{older}");
        untouched(&["e.img", "f.img", "small.img"]);
    }
    let both = place.run(&["grow", "tank", "--add", "e.img", "--pause"]);
    assert_eq!(both.status, 2, "{}", both.stderr);
    let mut many = vec!["grow", "tank", "--dry-run", "--add"];
    let names: Vec<String> = (0..5000).map(|nth| format!("none{nth}")).collect();
    many.extend(names.iter().map(String::as_str));
    let many = refused(place.run(&many));
    assert!(many.contains("maximum number of members"), "{many}");
    good(place.run(&["grow", "tank", "--add", "s.img", "t.img", "--rate", FAST]));
    assert_eq!(number(&status(&place)["slots"]), 5);
    drop(daemon);
    let daemon = serve(&place, &["--read-only"], &members);
    let told = refused(place.run(&["grow", "tank", "--add", "e.img", "--dry-run"]));
    assert!(told.contains("this array is read-only"), "{told}");
    drop(daemon);
}

/// Who waits for a growth is told when that waits for a member, and does not wait for ever.
#[test]
fn who_waits_is_told_of_a_missing_member() {
    let place = raid4("grow-missing");
    if !has(
        &place,
        "who_waits_is_told_of_a_missing_member",
        &["nbdcopy"],
    ) {
        return;
    }
    let daemon = serve(&place, &["--rate", SLOW], &OLD);
    fill(&place);
    good(place.run(&["grow", "tank", "--add", "e.img", "--no-wait"]));
    wait_until(&place, is_under_way);
    good(place.run(&["fail", "tank", "b.img"]));
    let told = refused(place.run(&["grow", "tank"]));
    assert!(told.contains("waits until no member is missing"), "{told}");
    assert!(told.contains("restripe add tank"), "{told}");
    drop(daemon);
}

/// With nobody to serve, the command itself is who grows it.
#[test]
fn an_array_that_is_not_served_grows_too() {
    let place = raid4("grow-offline");
    let kept = written_before(&place, "an_array_that_is_not_served_grows_too");
    let offline = [&["--offline"], &OLD[..]].concat();
    let words = [&["grow", "tank", "--add", "e.img"], &offline[..]].concat();
    let told = good(place.run(&words));
    assert!(
        told.contains("grows from 4 to 5 members, then 240M"),
        "{told}"
    );
    assert!(told.contains("tank now has 5 members and 240M"), "{told}");
    let examined = good(place.run(&["examine", "e.img"]));
    assert!(examined.contains("5 slots"), "{examined}");
    if kept {
        is_kept(&place, &GROWN);
    }
}

#[test]
fn a_growth_is_paused_paced_killed_and_goes_on() {
    let place = raid4("grow-steps");
    if !has(
        &place,
        "a_growth_is_paused_paced_killed_and_goes_on",
        &["nbdcopy", "qemu-io"],
    ) {
        return;
    }
    let daemon = serve(&place, &["--rate", SLOW, "--cache", "8M"], &OLD);
    fill(&place);
    let told = good(place.run(&["grow", "tank", "--add", "e.img", "--no-wait"]));
    assert!(told.contains("grows from 4 to 5 members"), "{told}");
    let found = wait_until(&place, is_under_way);
    assert_eq!(number(&found["slots"]), 5);
    assert_eq!(number(&found["size_bytes"]), 180 << 20);
    good(place.run(&["grow", "tank", "--pause"]));
    let paused = refused(place.run(&["grow", "tank"]));
    assert!(paused.contains("the growth is paused"), "{paused}");
    daemon.kill();
    let daemon = serve(&place, &["--rate", SLOW], &GROWN);
    let found = status(&place);
    assert_eq!(
        growth(&found).expect("still there")["paused"],
        true,
        "{found}"
    );
    good(place.run(&["grow", "tank", "--resume"]));
    wait_until(&place, is_under_way);
    daemon.kill();
    let daemon = serve(&place, &["--rate", FAST], &GROWN);
    let ended = place.run(&["grow", "tank"]);
    assert!(
        ended.status == 0 || ended.stderr.contains("no growth is running"),
        "{}",
        ended.stderr
    );
    wait_until(&place, |status| growth(status).is_none());
    is_there_and_zeros_behind(&place);
    // A second one right after, with the new capacity written.
    write_pattern(&place, 0x5a, "200M", "4M");
    good(place.run(&["grow", "tank", "--add", "f.img"]));
    good(read_pattern(&place, 0x5a, "200M", "4M"));
    let now = content(&place, "now.raw");
    assert!(now.len() == 300 << 20 && now.starts_with(&place.bytes("all.raw")));
    good(place.run(&["scrub", "tank"]));
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn a_bitmap_is_no_log_to_deal_chunks_anew_by() {
    let place = Place::new("grow-bitmap");
    good(place.create(
        &OLD,
        &["--level", "raid5", "--write-hole", "bitmap", "--no-slack"],
    ));
    good(place.shell("truncate -s 64M e.img"));
    let words = [&["grow", "tank", "--add", "e.img", "--offline"], &OLD[..]].concat();
    let told = refused(place.run(&words));
    assert!(
        told.contains("requires a partial parity log (ppl)"),
        "{told}"
    );
    assert!(place.bytes("e.img").iter().all(|byte| *byte == 0));
}

#[test]
fn a_raid6_that_is_not_served_is_dealt_anew() {
    let place = of_level("grow-raid6", "raid6");
    let kept = written_before(&place, "a_raid6_that_is_not_served_is_dealt_anew");
    let offline = [&["--offline"], &OLD[..]].concat();
    let words = |more: &[&'static str]| {
        [&["grow", "tank", "--add", "e.img", "f.img"], more, &offline].concat()
    };
    let told = good(place.run(&words(&["--dry-run"])));
    assert!(
        told.contains("from 4 to 6 members, from 120M to 240M"),
        "{told}"
    );
    assert!(told.contains("all written data and parity"), "{told}");
    let told = good(place.run(&words(&[])));
    assert!(told.contains("tank now has 6 members and 240M"), "{told}");
    if kept {
        is_kept(
            &place,
            &["a.img", "b.img", "c.img", "d.img", "e.img", "f.img"],
        );
    }
}

/// The first rows of a reshape go through the journal: the daemon is killed while they do, at its own pace of those moments.
#[test]
fn a_raid5_is_killed_while_its_first_rows_are_dealt_anew() {
    let test = "a_raid5_is_killed_while_its_first_rows_are_dealt_anew";
    for pause in [0, 30, 90] {
        let place = of_level("grow-first-rows", "raid5");
        if !has(&place, test, &["nbdcopy"]) {
            return;
        }
        let daemon = serve(&place, &["--rate", "1K..100K"], &OLD);
        fill(&place);
        good(place.run(&["grow", "tank", "--add", "e.img", "--no-wait"]));
        thread::sleep(Duration::from_millis(pause));
        daemon.kill();
        let daemon = serve(&place, &["--rate", FAST], &GROWN);
        wait_until(&place, |status| growth(status).is_none());
        is_there_and_zeros_behind(&place);
        good(place.run(&["stop", "tank"]));
        assert_eq!(daemon.wait(), 0);
    }
}

#[test]
fn fio_verifies_through_a_growth_a_kill_and_a_lost_member() {
    let test = "fio_verifies_through_a_growth_a_kill_and_a_lost_member";
    fio_verifies_through_a_growth(&raid4("grow-fio"), test);
}

#[test]
fn fio_verifies_as_a_raid5_is_dealt_anew_through_a_kill_and_a_lost_member() {
    let test = "fio_verifies_as_a_raid5_is_dealt_anew_through_a_kill_and_a_lost_member";
    fio_verifies_through_a_growth(&of_level("grow-fio5", "raid5"), test);
}

fn fio_verifies_through_a_growth(place: &Place, test: &str) {
    if !has(place, test, &["fio", "nbdcopy"]) {
        return;
    }
    let fio = Fio { place };
    let daemon = serve(place, &["--rate", SLOW], &OLD);
    // Behind fio's blocks nothing changes.
    fill(place);
    good(place.run(&["grow", "tank", "--add", "e.img", "--no-wait"]));
    let writes = |status: &Value| number(&status["counters"]["writes"]);
    let before = writes(&wait_until(place, is_under_way));
    thread::scope(|scope| {
        let load = scope.spawn(|| fio.run("--verify_state_save=1 --do_verify=0"));
        wait_until(place, |status| writes(status) > before + 50);
        daemon.kill();
        let ended = load.join().expect("no panic there");
        assert_ne!(ended.status, 0, "it was interrupted");
    });
    let daemon = serve(place, &["--rate", SLOW], &GROWN);
    assert!(is_under_way(&status(place)));
    fio.verify(Fio::DEPTH);
    good(place.run(&["fail", "tank", "b.img"]));
    let found = wait_until(place, |status| {
        growth(status).is_some_and(|task| task["waits"] == "members")
    });
    assert_eq!(found["state"], "degraded");
    good(fio.run("--verify_state_save=1 --verify_fatal=1"));
    good(place.shell("truncate -s 64M g.img"));
    good(place.run(&["rebuild", "tank", "--rate", FAST]));
    good(place.run(&["add", "tank", "g.img"]));
    wait_until(place, |status| {
        growth(status).is_none() && status["state"] == "healthy"
    });
    fio.verify(0);
    let (before, now) = (place.bytes("all.raw"), content(place, "now.raw"));
    let behind = Fio::SIZE;
    assert!(
        now[behind..before.len()] == before[behind..],
        "bytes changed as they moved"
    );
    assert!(now[before.len()..].iter().all(|byte| *byte == 0));
    good(place.run(&["scrub", "tank"]));
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
}

/// Users' writes go to a surrogate while the array grows, through a kill, and come home to it when it has.
#[test]
fn fio_verifies_through_a_growth_with_a_surrogate_and_a_kill() {
    fio_verifies_through_a_growth_with_a_surrogate("grow-surrogate", &[], &[]);
}

/// The same, as the growth brings parity to a spare besides.
#[test]
fn fio_verifies_through_a_growth_with_a_surrogate_that_moves_parity() {
    let moves = ["--moves", "parity-outsourced"];
    fio_verifies_through_a_growth_with_a_surrogate("grow-surrogate-parity", &["p.img"], &moves);
}

fn fio_verifies_through_a_growth_with_a_surrogate(
    test: &str,
    spares: &[&'static str],
    how: &[&'static str],
) {
    let place = Place::new(test);
    good(place.create(
        &OLD,
        &["--level", "raid4", "--surrogate", "s0,s1", "--no-slack"],
    ));
    good(place.shell("truncate -s 64M e.img p.img"));
    if !has(&place, test, &["fio", "nbdcopy"]) {
        return;
    }
    let with = |members: &[&'static str]| [members, spares, &["s0", "s1"]].concat();
    let of_surrogate = |status: &Value, what: &str| number(&status["surrogate"]["overlay"][what]);
    let fio = Fio { place: &place };
    let daemon = serve(
        &place,
        &["--rate", SLOW],
        &[&OLD[..], &["s0", "s1"]].concat(),
    );
    fill(&place);
    for spare in spares {
        good(place.run(&["add", "tank", spare]));
    }
    let words = ["grow", "tank", "--add", "e.img", "--no-wait"];
    good(place.run(&[&words, how].concat()));
    wait_until(&place, is_under_way);
    good(fio.run("--verify_state_save=1 --verify_fatal=1"));
    let found = status(&place);
    assert!(is_under_way(&found), "{found}");
    assert!(of_surrogate(&found, "redirected_writes") > 0, "{found}");
    daemon.kill();
    let daemon = serve(&place, &["--rate", SLOW], &with(&GROWN));
    fio.verify(0);
    good(place.run(&["grow", "tank", "--rate", FAST]));
    wait_until(&place, |status| {
        let tasks = status["tasks"].as_array().expect("a list");
        tasks.is_empty() && of_surrogate(status, "away_bytes") == 0
    });
    fio.verify(0);
    let (before, now) = (place.bytes("all.raw"), content(&place, "now.raw"));
    let behind = Fio::SIZE;
    assert!(now.len() > before.len() && now[behind..before.len()] == before[behind..]);
    good(place.run(&["scrub", "tank"]));
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn ext4_stays_clean_through_a_growth_a_kill_and_a_lost_member() {
    let place = raid4("grow-ext4");
    let test = "ext4_stays_clean_through_a_growth_a_kill_and_a_lost_member";
    let tools = ["nbdcopy", "mkfs.ext4", "debugfs", "e2fsck", "resize2fs"];
    if !has(&place, test, &tools) {
        return;
    }
    let daemon = serve(&place, &["--rate", SLOW], &OLD);
    let change = |what: &str| {
        format!(
            "set -e; nbdcopy '{URI}' fs.raw; debugfs -w -R '{what}' fs.raw; e2fsck -fn fs.raw
             nbdcopy --flush fs.raw '{URI}'"
        )
    };
    let check = |name: &str| {
        format!(
            "set -e; nbdcopy '{URI}' found.raw; cmp fs.raw found.raw; e2fsck -fn found.raw
             debugfs -R 'dump {name} back' found.raw; cmp {name} back"
        )
    };
    good(place.shell(&format!(
        "set -e; for name in one two three; do head -c 20000000 /dev/urandom > $name; done
         truncate -s {} fs.raw; mkfs.ext4 -q -F fs.raw; nbdcopy --flush fs.raw '{URI}'",
        180 << 20
    )));
    good(place.shell(&change("write one one")));
    good(place.run(&["grow", "tank", "--add", "e.img", "--no-wait"]));
    wait_until(&place, is_under_way);
    good(place.shell(&change("write two two")));
    daemon.kill();
    let daemon = serve(&place, &["--rate", SLOW], &GROWN);
    good(place.shell(&check("one")));
    good(place.run(&["fail", "tank", "e.img"]));
    good(place.shell(&change("write three three")));
    good(place.shell(&check("two")));
    daemon.kill();
    let daemon = serve(&place, &["--rate", FAST, "--degraded"], &OLD);
    good(place.shell(&check("three")));
    good(place.run(&["add", "tank", "f.img"]));
    wait_until(&place, |status| {
        growth(status).is_none() && status["state"] == "healthy"
    });
    good(place.shell(&format!(
        "set -e; nbdcopy '{URI}' found.raw; truncate -s {} found.raw; e2fsck -fp found.raw; resize2fs found.raw
         e2fsck -fn found.raw; debugfs -R 'dump three back' found.raw; cmp three back",
        240 << 20
    )));
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
}
