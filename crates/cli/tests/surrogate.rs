//! Arrays with a surrogate, by the command alone: made together, told apart, served together; writes moved away while a
//! member is rebuilt, kept through kill -9, and brought home.

#[allow(dead_code)]
mod harness;

use harness::{Daemon, Place, Run, line_of, skipped};
use serde_json::Value;
use std::thread;
use std::time::{Duration, Instant};

/// The array's members: three slots and a spare.
const HOME: [&str; 4] = ["a.img", "b.img", "c.img", "d.img"];
/// All members, the surrogate's among the others.
const BOTH: [&str; 6] = ["s0.img", "a.img", "b.img", "s1.img", "c.img", "d.img"];
/// A rebuild of an image of 64 MiB takes half a minute.
const SLOW: &str = "2M..2M";
/// The longest that a test waits for something that must come.
const PATIENCE: Duration = Duration::from_secs(60);

fn paired(name: &str) -> Place {
    let place = Place::new(name);
    let options = ["--level", "raid5", "--init", "zero", "--spares", "1"];
    let surrogate = ["--surrogate", "s0.img,s1.img"];
    good(place.create(&HOME, &[&options[..], &surrogate].concat()));
    place
}

fn good(run: Run) -> String {
    assert_eq!(run.status, 0, "{} {}", run.stdout, run.stderr);
    run.stdout
}

fn refused(run: Run) -> String {
    assert_eq!(run.status, 1, "{} {}", run.stdout, run.stderr);
    run.stderr
}

fn serve(place: &Place, options: &[&str], members: &[&str]) -> Daemon {
    place.serve(&[options, members].concat())
}

fn status(place: &Place) -> Value {
    let told = good(place.run(&["status", "tank", "--json"]));
    serde_json::from_str(&told).expect("it is JSON")
}

/// Looks at the status until it is as wanted.
fn wait_until(place: &Place, wanted: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = status(place);
        if wanted(&found) {
            return found;
        }
        assert!(Instant::now() < deadline, "{found}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn overlay(status: &Value) -> &Value {
    &status["surrogate"]["overlay"]
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

/// The rebuild is over, and everything is home.
fn come_home(place: &Place) -> Value {
    good(place.run(&["rebuild", "tank", "--rate", "100M..2G"]));
    wait_until(place, |status| {
        let idle = status["tasks"].as_array().expect("a list").is_empty();
        idle && status["state"] == "healthy" && number(&overlay(status)["away_bytes"]) == 0
    })
}

fn has(place: &Place, test: &str, tools: &[&str]) -> bool {
    let missing = tools
        .iter()
        .find(|tool| place.shell(&format!("command -v {tool}")).status != 0);
    if let Some(tool) = missing {
        skipped(test, &format!("{tool} is missing"));
    }
    missing.is_none()
}

const URI: &str = "nbd+unix:///?socket=nbd.sock";

/// A write of a pattern through qemu-io, which the daemon has acknowledged.
fn write_pattern(place: &Place, pattern: u8, at: &str, length: &str) {
    let script = format!("qemu-io -f raw -c 'write -P {pattern} {at} {length}' '{URI}'");
    good(place.shell(&script));
}

/// A read of it, and whether it was as written.
fn read_pattern(place: &Place, pattern: u8, at: &str, length: &str) -> Run {
    let script = format!(
        "qemu-io -r -f raw -c 'read -P {pattern} {at} {length}' '{URI}' > read.txt 2>&1
         told=$?; cat read.txt; ! grep -Eiq 'fail|error' read.txt && exit $told; exit 1"
    );
    place.shell(&script)
}

// ------------------------------------------------------------------------------------------------- made and told apart

#[test]
fn both_are_made_or_none() {
    let place = Place::new("surrogate-made");
    let level = ["--level", "raid5"];
    good(place.create(&["x.img", "y.img"], &["--level", "raid1"]));
    let with = |surrogate| [&level[..], &["--surrogate", surrogate]].concat();
    let told = refused(place.create(&["a.img", "b.img", "c.img"], &with("s0.img,x.img")));
    assert!(told.contains("already carries the array"), "{told}");
    for name in ["a.img", "b.img", "c.img", "s0.img"] {
        assert!(!place.exists(name), "{name} is left behind");
    }
    for (surrogate, word) in [
        ("s0.img", "two members or more"),
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
    let warning = "warning: tank: is served without its surrogate, to which nothing goes then\n";
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
        with.contains("redirect ido; nothing away; map 0 of "),
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
        metrics.contains("restripe_surrogate_away_bytes{array=\"tank\"} 0\n"),
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
        (&found["state"], &found["surrogate"]["state"]),
        (&"healthy".into(), &"degraded".into())
    );
    let told = good(place.run(&["add", "tank", "s0.img"]));
    assert!(
        told.starts_with("s0.img is taken in") || told.contains("s0.img"),
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

// ---------------------------------------------------------------------------------------------------- away and home

/// Serves slowly, loses a member, and has some writes go to the surrogate.
fn with_something_away(place: &Place, options: &[&str]) -> Daemon {
    let daemon = serve(place, &[&["--rate", SLOW], options].concat(), &BOTH);
    write_pattern(place, 1, "0", "8M");
    good(place.run(&["fail", "tank", "b.img"]));
    write_pattern(place, 2, "1M", "2M");
    let found = status(place);
    assert!(number(&overlay(&found)["redirected_writes"]) > 0, "{found}");
    assert_eq!(number(&overlay(&found)["away_bytes"]), 2 << 20, "{found}");
    daemon
}

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
        told.contains("has given up its surrogate \"tank-surrogate\""),
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

/// fio's blocks, of which those in flight at a kill may be missing and nothing else.
struct Fio<'a> {
    place: &'a Place,
}

impl Fio<'_> {
    const DEPTH: usize = 8;

    fn script(&self, options: &str) -> String {
        format!(
            "timeout -k 5 100 fio --name=load --ioengine=nbd --uri='{URI}' --size=24m --rw=randwrite --bs=4k \
             --verify=crc32c --iodepth={} {options}",
            Fio::DEPTH
        )
    }

    fn run(&self, options: &str) -> Run {
        self.place.shell(&self.script(options))
    }

    /// The blocks that are not as written, at most so many.
    fn verify(&self, wrong_at_most: usize) {
        let run = self.run(
            "--verify_only --verify_state_load=1 --verify_state_save=0 --continue_on_error=verify",
        );
        let told: Vec<&str> = run
            .stderr
            .lines()
            .filter(|line| line.starts_with("verify:"))
            .collect();
        assert!(told.len() <= wrong_at_most, "{}", run.stderr);
        let missing = |line: &&str| line.contains("bad magic header 0");
        assert!(told.iter().all(missing), "{}", run.stderr);
    }
}

/// The array's whole content.
fn content(place: &Place, name: &str) -> Vec<u8> {
    good(place.shell(&format!("nbdcopy '{URI}' {name}")));
    place.bytes(name)
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

/// What `docs/surrogate.md` has people paste, as it stands there.
#[test]
fn the_session_of_the_manual_can_be_pasted() {
    let manual = include_str!("../../../docs/surrogate.md");
    let (_, rest) = manual.split_once("```sh\n").expect("it has a session");
    let (session, _) = rest.split_once("```").expect("the session ends");
    let ran = Place::new("surrogate-session").shell(&format!("{ENDED}\n{session}wait"));
    assert_eq!(ran.status, 0, "{} {}", ran.stdout, ran.stderr);
    for told in [
        " away",
        " writes redirected, ",
        "tank is healthy",
        "nothing away",
    ] {
        assert!(ran.stdout.contains(told), "{told}: {}", ran.stdout);
    }
}
