//! Arrays with a surrogate, by the command alone: made together, told apart, served together; writes moved away while a
//! member is rebuilt, kept through kill -9, and brought home.

use crate::harness::paired::{
    BOTH, HOME, SLOW, come_home, overlay, paired, serve, with_something_away,
};
use crate::harness::steps::{
    Fio, URI, content, good, has, number, read_pattern, refused, status, wait_until, write_pattern,
};
use crate::harness::{Place, line_of};
use serde_json::Value;
use std::thread;

// ------------------------------------------------------------------------------------------------- made and told apart

#[test]
fn both_are_made_or_none() {
    let place = Place::new("surrogate-made");
    let level = ["--level", "raid5"];
    good(place.create(&["x.img", "y.img"], &["--level", "raid1"]));
    let with = |surrogate| [&level[..], &["--surrogate", surrogate]].concat();
    let told = refused(place.create(&["a.img", "b.img", "c.img"], &with("s0.img,x.img")));
    assert!(told.contains("already contains the array"), "{told}");
    for name in ["a.img", "b.img", "c.img", "s0.img"] {
        assert!(!place.exists(name), "{name} is left behind");
    }
    for (surrogate, word) in [
        ("s0.img", "two or more members"),
        ("s0.img,a.img", "named twice"),
    ] {
        let run = place.create(&["a.img", "b.img", "c.img"], &with(surrogate));
        assert_eq!(run.status, 2, "{surrogate}: {}", run.stderr);
        assert!(run.stderr.contains(word), "{surrogate}: {}", run.stderr);
    }
    let stripes = ["--level", "raid0", "--surrogate", "s0.img,s1.img"];
    assert_eq!(place.create(&["a.img", "b.img"], &stripes).status, 2);
    let json = [&with("s0.img,s1.img,s2.img")[..], &["--json"]].concat();
    let made = good(place.create(&["a.img", "b.img", "c.img"], &json));
    let made: Value = serde_json::from_str(&made).expect("it is JSON");
    assert_eq!(made["surrogate"]["name"], "tank-surrogate");
    assert_eq!(made["surrogate"]["level"], "RAID-5 left-symmetric");
    assert_eq!(made["surrogate"]["members"][2], "s2.img");
}

#[test]
fn a_surrogate_starts_with_its_own_array_only() {
    let place = paired("surrogate-apart");
    let told = refused(place.run(&["serve", "s0.img", "s1.img"]));
    assert!(
        told.contains("are the surrogate \"tank-surrogate\" of the array"),
        "{told}"
    );
    assert!(told.contains("at: s0.img, s1.img"), "{told}");
    let other = [
        "create",
        "other",
        "--level",
        "raid5",
        "--image-size",
        "64M",
        "--surrogate",
        "u0.img,u1.img",
        "o0.img",
        "o1.img",
        "o2.img",
    ];
    good(place.run(&other));
    let mixed = ["a.img", "b.img", "c.img", "d.img", "u0.img", "u1.img"];
    let told = refused(place.run(&[&["serve"][..], &mixed].concat()));
    assert!(
        told.contains("are the surrogate \"other-surrogate\""),
        "{told}"
    );
    let told = refused(place.run(&[&["status", "--offline"][..], &mixed].concat()));
    let words = "\"other-surrogate\" is the surrogate of another array, not of \"tank\"";
    assert!(
        told.contains(words) && told.contains("at: u0.img, u1.img"),
        "{told}"
    );
    let half = refused(place.run(&[&["assemble"][..], &HOME, &["s0.img"]].concat()));
    assert!(half.contains("error: the surrogate: "), "{half}");
    let run = place.run(&[&["assemble", "--degraded"][..], &HOME, &["s0.img"]].concat());
    let warning = "warning: the surrogate: the array \"tank-surrogate\": only 1 of the 2";
    assert!(run.stderr.contains(warning), "{}", run.stderr);
    assert!(good(run).contains("  surrogate: absent\n"));
}

#[test]
fn an_array_is_served_without_its_surrogate_and_says_so() {
    let place = paired("surrogate-without");
    let run = place.run(&[&["assemble"][..], &HOME].concat());
    let warning = "warning: tank: served without its surrogate: nothing is redirected\n";
    assert!(run.stderr.contains(warning), "{}", run.stderr);
    assert!(!good(run).contains("surrogate"));
    let daemon = place.serve(&HOME);
    let told = refused(place.run(&["surrogate", "status", "tank"]));
    assert!(
        told.contains("tank is served without a surrogate"),
        "{told}"
    );
    drop(daemon);
    let with = good(place.run(&[&["assemble"][..], &BOTH].concat()));
    assert!(
        with.contains("  surrogate tank-surrogate: healthy, raid1, "),
        "{with}"
    );
    assert!(
        with.contains("redirect ido; log empty; map 0 of "),
        "{with}"
    );
}

#[test]
fn a_configuration_names_both_and_the_policy() {
    let place = Place::new("surrogate-config");
    let text = "[[array]]\nname = \"tank\"\nlevel = \"raid5\"\nimage-size = \"64M\"\n\
        members = [\"a.img\", \"b.img\", \"c.img\"]\nsurrogate = [\"s0.img\", \"s1.img\"]\n\
        surrogate-level = \"raid1\"\n[serve]\nunix = \"nbd.sock\"\nredirect = \"workout\"\n";
    place.write("tank.toml", 0, 0, text.as_bytes());
    good(place.run(&["create", "--config", "tank.toml"]));
    let daemon = place.serve(&["--config", "tank.toml"]);
    let found = status(&place);
    assert_eq!(overlay(&found)["redirect"], "workout");
    assert_eq!(
        found["surrogate"]["members"].as_array().map(Vec::len),
        Some(2)
    );
    let shown = good(place.run(&["status", "tank"]));
    assert!(
        line_of(&shown, "s1.img").ends_with("  (surrogate)"),
        "{shown}"
    );
    let metrics = good(place.run(&["metrics", "tank"]));
    assert!(
        metrics.contains("restripe_surrogate_redirected_bytes{array=\"tank\"} 0\n"),
        "{metrics}"
    );
    drop(daemon);
}

// ----------------------------------------------------------------------------------------------- the surrogate's members

#[test]
fn the_surrogates_members_are_members_too() {
    let place = paired("surrogate-members");
    let daemon = place.serve(&BOTH);
    good(place.run(&["fail", "tank", "s0.img"]));
    let found = status(&place);
    assert_eq!(
        (&found["own_state"], &found["surrogate"]["state"]),
        (&"healthy".into(), &"degraded".into())
    );
    let told = good(place.run(&["add", "tank", "s0.img"]));
    assert!(
        told.ends_with("s0.img is added; its rebuild has started\n"),
        "{told}"
    );
    wait_until(&place, |status| status["surrogate"]["state"] == "healthy");
    place.write("s2.img", 64 << 20, 0, &[]);
    let told = good(place.run(&["replace", "tank", "s1.img", "s2.img"]));
    assert!(told.contains("is replaced"), "{told}");
    let shown = good(place.run(&["surrogate", "status", "tank"]));
    assert!(line_of(&shown, "s2.img").contains(" active "), "{shown}");
    assert!(line_of(&shown, "s1.img").contains(" replaced "), "{shown}");
    let home = status(&place);
    let listed = home["members"].as_array().expect("a list");
    assert!(
        !listed.iter().any(|member| member["path"]
            .as_str()
            .is_some_and(|path| path.ends_with("s2.img"))),
        "{home}"
    );
    good(place.run(&["remove", "tank", "s1.img"]));
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
    let again = good(place.run(&[&["assemble", "s0.img", "s2.img"][..], &HOME].concat()));
    assert!(
        again.contains("  surrogate tank-surrogate: healthy"),
        "{again}"
    );
}

/// The paths of the members in a list of a status, without their folders.
fn paths(list: &Value) -> Vec<&str> {
    let paths = list.as_array().expect("a list").iter();
    paths
        .map(|member| {
            let path = member["path"].as_str().expect("a path");
            path.rsplit('/').next().expect("a name")
        })
        .collect()
}

/// It was taken for a stranger, and with `--force` made a spare of the array, which wiped it.
#[test]
fn a_member_that_comes_back_goes_to_the_surrogate() {
    for force in [&[][..], &["--force", "--yes"]] {
        let place = paired("surrogate-comes-back");
        let daemon = place.serve(&BOTH);
        good(place.run(&["fail", "tank", "s1.img"]));
        good(place.run(&["stop", "tank"]));
        assert_eq!(daemon.wait(), 0);
        let daemon = serve(&place, &["s0.img"], &HOME);
        assert_eq!(status(&place)["surrogate"]["state"], "degraded");
        assert_eq!(place.shell("cp s0.img copy.img").status, 0);
        let told = refused(place.run(&["add", "tank", "copy.img"]));
        assert!(
            told.contains("a copy of the member") && told.contains("s0.img"),
            "{told}"
        );
        let told = good(place.run(&[&["add", "tank", "s1.img"], force].concat()));
        assert!(
            told.ends_with("s1.img is added; its rebuild has started\n"),
            "{told}"
        );
        let found = wait_until(&place, |status| status["surrogate"]["state"] == "healthy");
        assert_eq!(paths(&found["surrogate"]["members"]), ["s0.img", "s1.img"]);
        assert_eq!(paths(&found["members"]), HOME);
        good(place.run(&["stop", "tank"]));
        assert_eq!(daemon.wait(), 0);
        let again = good(place.run(&[&["assemble"][..], &BOTH].concat()));
        assert!(
            again.contains("  surrogate tank-surrogate: healthy"),
            "{again}"
        );
    }
}

/// Its member is gone since before the daemon began, and nothing stands in the list that could be replaced.
#[test]
fn a_surrogate_is_given_another_device() {
    let place = paired("surrogate-given");
    let daemon = place.serve(&BOTH);
    good(place.run(&["fail", "tank", "s1.img"]));
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
    let daemon = serve(&place, &["s0.img"], &HOME);
    for device in ["s2.img", "s3.img"] {
        place.write(device, 64 << 20, 0, &[]);
    }
    let told = good(place.run(&["add", "tank", "s2.img", "--to-surrogate"]));
    assert!(
        told.ends_with("s2.img is added; its rebuild has started\n"),
        "{told}"
    );
    wait_until(&place, |status| status["surrogate"]["state"] == "healthy");
    let told = good(place.run(&["add", "tank", "s3.img", "--to-surrogate"]));
    assert!(told.ends_with("s3.img is a spare\n"), "{told}");
    good(place.run(&["fail", "tank", "b.img"]));
    let told = refused(place.run(&["add", "tank", "b.img", "--to-surrogate"]));
    assert!(told.contains("remove it with `restripe remove`"), "{told}");
    good(place.run(&["fail", "tank", "s0.img"]));
    let found = wait_until(&place, |status| status["surrogate"]["state"] == "healthy");
    assert_eq!(paths(&found["members"]), HOME);
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn a_member_of_a_surrogate_that_is_not_served_is_not_taken_in() {
    let place = paired("surrogate-not-served");
    let before = place.bytes("s1.img");
    for members in [
        &HOME[..],
        &["--degraded", "a.img", "b.img", "c.img", "d.img", "s0.img"],
    ] {
        let daemon = place.serve(members);
        let told = refused(place.run(&["add", "tank", "s1.img"]));
        assert!(
            told.contains("a member of the array's surrogate, which is not served"),
            "{told}"
        );
        good(place.run(&["stop", "tank"]));
        assert_eq!(daemon.wait(), 0);
    }
    assert!(before == place.bytes("s1.img"), "untouched");
    good(
        place.run(
            &[
                &["add", "tank", "--force", "--yes", "s1.img", "--offline"],
                &HOME[..],
            ]
            .concat(),
        ),
    );
    let told = good(place.run(&[&["assemble", "s1.img"], &HOME[..]].concat()));
    assert!(told.contains("s1.img"), "{told}");
}

#[test]
fn a_dead_member_of_the_surrogate_is_replaced() {
    let place = paired("surrogate-dead");
    if !has(
        &place,
        "a_dead_member_of_the_surrogate_is_replaced",
        &["qemu-io"],
    ) {
        return;
    }
    let daemon = with_something_away(&place, &[]);
    good(place.run(&["fail", "tank", "s0.img"]));
    place.write("s2.img", 64 << 20, 0, &[]);
    let told = good(place.run(&["replace", "tank", "s0.img", "s2.img"]));
    assert!(told.ends_with("s0.img is replaced\n"), "{told}");
    let shown = good(place.run(&["surrogate", "status", "tank"]));
    assert!(line_of(&shown, "s2.img").contains(" active "), "{shown}");
    daemon.kill();
    // The other one is gone as well: what is away is on the new one.
    let options = ["--rate", SLOW, "--degraded", "--from-minority"];
    let daemon = serve(&place, &options, &["a.img", "c.img", "d.img", "s2.img"]);
    good(read_pattern(&place, 2, "1M", "2M"));
    come_home(&place);
    good(read_pattern(&place, 2, "1M", "2M"));
    drop(daemon);
}

// ---------------------------------------------------------------------------------------------------- away and home

#[test]
fn without_the_surrogate_that_holds_something_there_is_no_start() {
    let place = paired("surrogate-missing");
    if !has(
        &place,
        "without_the_surrogate_that_holds_something_there_is_no_start",
        &["qemu-io"],
    ) {
        return;
    }
    let daemon = with_something_away(&place, &[]);
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
    let told = refused(place.run(&[&["serve"][..], &HOME].concat()));
    assert!(
        told.contains("may have the only current copies of "),
        "{told}"
    );
    assert!(line_of(&told, "   at: ").contains(" at byte "), "{told}");
    let told = good(place.run(&[&["assemble", "--accept-loss"][..], &HOME].concat()));
    let lost = line_of(&told, "LOST: bytes ");
    assert!(!lost.is_empty(), "{told}");
    let daemon = place.serve(&HOME);
    assert_ne!(read_pattern(&place, 2, "1M", "4K").status, 0, "{told}");
    good(read_pattern(&place, 1, "6M", "2M"));
    drop(daemon);
    let told = refused(place.run(&[&["assemble"][..], &BOTH].concat()));
    assert!(
        told.contains("no longer uses its surrogate \"tank-surrogate\""),
        "{told}"
    );
}

#[test]
fn each_policy_moves_what_it_says() {
    for (redirect, moves) in [
        ("none", false),
        ("workout", true),
        ("vdf", true),
        ("ido", true),
    ] {
        let place = paired(&format!("surrogate-{redirect}"));
        if !has(&place, "each_policy_moves_what_it_says", &["qemu-io"]) {
            return;
        }
        let daemon = serve(&place, &["--rate", SLOW, "--redirect", redirect], &BOTH);
        good(place.run(&["fail", "tank", "b.img"]));
        write_pattern(&place, 3, "1M", "2M");
        let found = status(&place);
        assert_eq!(overlay(&found)["redirect"], redirect);
        let moved = number(&overlay(&found)["redirected_writes"]);
        assert_eq!(moved > 0, moves, "{redirect}: {found}");
        good(read_pattern(&place, 3, "1M", "2M"));
        drop(daemon);
    }
}

#[test]
fn a_record_with_a_surrogate_replays() {
    let place = paired("surrogate-record");
    if !has(&place, "a_record_with_a_surrogate_replays", &["qemu-io"]) {
        return;
    }
    let daemon = with_something_away(&place, &["--record", "run.rec"]);
    come_home(&place);
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
    good(place.run(&["sim", "--replay", "run.rec"]));
}

#[test]
fn fio_verifies_through_a_failure_a_kill_and_the_way_home() {
    let place = paired("surrogate-fio");
    let test = "fio_verifies_through_a_failure_a_kill_and_the_way_home";
    if !has(&place, test, &["fio", "nbdcopy"]) {
        return;
    }
    let fio = Fio { place: &place };
    let daemon = serve(&place, &["--rate", SLOW, "--redirect", "ido"], &BOTH);
    good(place.run(&["fail", "tank", "b.img"]));
    thread::scope(|scope| {
        let load = scope.spawn(|| fio.run("--verify_state_save=1 --do_verify=0"));
        wait_until(&place, |status| {
            number(&overlay(status)["redirected_writes"]) > 50
        });
        daemon.kill();
        let ended = load.join().expect("no panic there");
        assert_ne!(ended.status, 0, "it was interrupted");
    });
    let daemon = serve(&place, &["--rate", SLOW, "--redirect", "ido"], &BOTH);
    fio.verify(Fio::DEPTH);
    // It goes on, over what is there and beside it, and is verified by itself.
    good(fio.run("--verify_state_save=1 --verify_fatal=1"));
    let before = content(&place, "before.raw");
    let home = come_home(&place);
    assert!(number(&overlay(&home)["home_bytes"]) > 0, "{home}");
    fio.verify(0);
    assert!(
        before == content(&place, "home.raw"),
        "bytes changed on their way home"
    );
    good(place.run(&["scrub", "tank"]));
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
    let alone = place.serve(&["a.img", "c.img", "d.img"]);
    assert!(
        before == content(&place, "alone.raw"),
        "home does not have everything"
    );
    drop(alone);
}

#[test]
fn ext4_stays_clean_through_a_failure_a_kill_and_the_way_home() {
    let place = paired("surrogate-ext4");
    let test = "ext4_stays_clean_through_a_failure_a_kill_and_the_way_home";
    if !has(&place, test, &["nbdcopy", "mkfs.ext4", "debugfs", "e2fsck"]) {
        return;
    }
    let daemon = serve(&place, &["--rate", SLOW], &BOTH);
    let make = format!(
        "set -e; head -c 3000000 /dev/urandom > one; head -c 2000000 /dev/urandom > two
         size=$(restripe status tank --json | grep -o '\"size_bytes\":[0-9]*' | head -1 | cut -d: -f2)
         truncate -s $size fs.raw; mkfs.ext4 -q -F fs.raw
         debugfs -w -R 'write one one' fs.raw; nbdcopy --flush fs.raw '{URI}'"
    );
    good(place.shell(&make));
    good(place.run(&["fail", "tank", "b.img"]));
    let change = format!(
        "set -e; nbdcopy '{URI}' fs.raw; debugfs -w -R 'rm one' fs.raw; debugfs -w -R 'write two two' fs.raw
         nbdcopy --flush fs.raw '{URI}'"
    );
    good(place.shell(&change));
    let found = status(&place);
    assert!(number(&overlay(&found)["away_bytes"]) > 0, "{found}");
    daemon.kill();
    let daemon = serve(&place, &["--rate", SLOW], &BOTH);
    let check = format!(
        "set -e; nbdcopy '{URI}' found.raw; cmp fs.raw found.raw; e2fsck -fn found.raw
         debugfs -R 'dump two back' found.raw; cmp two back"
    );
    good(place.shell(&check));
    come_home(&place);
    good(place.shell(&check));
    drop(daemon);
}

/// A session that fails ends its daemon, too.
const ENDED: &str = "set -e; trap '[ -z \"$(jobs -p)\" ] || kill $(jobs -p)' EXIT";

/// What `docs/how-to/surrogate.md` has people paste, as it stands there.
#[test]
fn the_session_of_the_manual_can_be_pasted() {
    let manual = include_str!("../../../../docs/how-to/surrogate.md");
    let (_, rest) = manual.split_once("```sh\n").expect("it has a session");
    let (session, _) = rest.split_once("```").expect("the session ends");
    let ran = Place::new("surrogate-session").shell(&format!("{ENDED}\n{session}wait"));
    assert_eq!(ran.status, 0, "{} {}", ran.stdout, ran.stderr);
    for told in [
        " in log",
        " writes redirected, ",
        "tank is healthy",
        "log empty",
    ] {
        assert!(ran.stdout.contains(told), "{told}: {}", ran.stdout);
    }
}
