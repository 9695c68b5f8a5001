//! Who belongs to an array and who is left out of it: what the command refuses before it touches anything, and what it
//! says about members that are missing, wiped, replaced or of another array.

use crate::harness::steps::{good, has, status, stop, wait_until};
use crate::harness::{Daemon, Place, THREE, line_of, raid5};
use restripe_io::plain::Plain;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;

#[test]
fn no_array_is_started_when_one_of_those_named_is_refused() {
    let place = raid5("all-or-none");
    let made = place.run(&[
        "create",
        "other",
        "--level",
        "raid5",
        "--image-size",
        "64M",
        "o1",
        "o2",
        "o3",
    ]);
    assert_eq!(made.status, 0, "{}", made.stderr);
    let before = ["a.img", "c.img", "o3"].map(|name| place.bytes(name));
    // The first array might start degraded, the second might not start at all.
    let refused = place.run(&["serve", "--degraded", "a.img", "c.img", "o3"]);
    assert_eq!(refused.status, 1);
    assert!(
        refused
            .stderr
            .contains("the array \"other\": only 1 of the 3")
            && refused.stderr.contains("at: o3"),
        "{}",
        refused.stderr
    );
    assert!(
        before == ["a.img", "c.img", "o3"].map(|name| place.bytes(name)),
        "nothing was touched"
    );
}

/// Writes a block through the NBD socket, and has its answer.
fn write_block(place: &Place) {
    let mut wire = UnixStream::connect(place.path("nbd.sock")).expect("it serves");
    let mut hello = [0; 18];
    wire.read_exact(&mut hello).expect("a greeting");
    // Fixed newstyle without zeroes, and the default export by NBD_OPT_EXPORT_NAME.
    wire.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0")
        .expect("it reads");
    let mut export = [0; 10];
    wire.read_exact(&mut export).expect("an export");
    let mut request = [0; 28];
    request[..8].copy_from_slice(b"\x25\x60\x95\x13\0\0\0\x01");
    request[24..].copy_from_slice(&4096u32.to_be_bytes());
    wire.write_all(&request).expect("it reads");
    wire.write_all(&[7; 4096]).expect("it reads");
    let mut reply = [0; 16];
    wire.read_exact(&mut reply).expect("an answer");
    assert_eq!(reply[..8], *b"\x67\x44\x66\x98\0\0\0\0");
}

/// What only the engine can judge is judged of the array that is in doubt before the others are started.
#[test]
fn a_start_that_would_lose_something_comes_before_the_others() {
    let place = Place::new("doubt-first");
    let calm = ["o1", "o2", "o3"];
    let made = place.shell(
        "restripe create calm --level 5 --image-size 64M o1 o2 o3 &&
         restripe create tank --level 5 --image-size 64M --write-hole bitmap a.img b.img c.img",
    );
    assert_eq!(made.status, 0, "{}", made.stderr);
    let daemon = place.serve(&THREE);
    write_block(&place);
    daemon.kill();
    let before = calm.map(|name| place.bytes(name));
    let named = ["o1", "o2", "o3", "a.img", "c.img"];
    let refused = place.run(&[&["serve", "--degraded"][..], &named].concat());
    assert!(
        refused.status == 1 && refused.stderr.contains("would lose"),
        "{}",
        refused.stderr
    );
    assert!(
        before == calm.map(|name| place.bytes(name)),
        "the other array was not started"
    );
    let whole = place.run(&[&["assemble"][..], &THREE, &calm].concat());
    assert_eq!(whole.status, 0, "{}", whole.stderr);
}

#[test]
fn a_copy_of_an_array_that_is_served_is_not_started() {
    let place = raid5("copy");
    let daemon = place.serve(&THREE);
    assert_eq!(
        place
            .shell("for m in a b c; do cp $m.img $m.old; done")
            .status,
        0
    );
    let copies = ["a.old", "b.old", "c.old"];
    let before = copies.map(|name| place.bytes(name));
    let refused = place.run(&[&["serve", "--unix", "other.sock"][..], &copies].concat());
    assert!(
        refused.status == 1 && refused.stderr.contains("another process serves this"),
        "{}",
        refused.stderr
    );
    assert!(before == copies.map(|name| place.bytes(name)), "untouched");
    assert_eq!(place.run(&["stop", "tank"]).status, 0);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn a_current_member_is_not_left_behind_unasked() {
    let place = raid5("left-behind");
    place.write("d.img", 64 << 20, 0, &[]);
    let before = THREE.map(|name| place.bytes(name));
    let two = ["a.img", "c.img"];
    for verb in [
        &["assemble"][..],
        &["serve"],
        &["add", "tank", "d.img", "--offline"],
        &["scrub", "tank", "--offline"],
    ] {
        let refused = place.run(&[verb, &two].concat());
        assert_eq!(refused.status, 1, "{verb:?}");
        assert!(
            refused.stderr.contains("slot 1 is missing")
                && refused.stderr.contains("\"tank\"")
                && refused.stderr.contains("--degraded"),
            "{verb:?}: {}",
            refused.stderr
        );
    }
    assert!(before == THREE.map(|name| place.bytes(name)), "untouched");
    let asked = place.run(&["assemble", "--degraded", "a.img", "c.img"]);
    assert!(
        asked.status == 0 && asked.stdout.starts_with("tank: degraded"),
        "{}",
        asked.stderr
    );
    // From now on it is known to be out, and nobody needs to be asked.
    let again = place.run(&["assemble", "a.img", "c.img"]);
    assert!(again.status == 0, "{}", again.stderr);
}

#[test]
fn a_start_that_only_reads_leaves_nobody_behind() {
    let place = raid5("reads");
    let looked = place.run(&["assemble", "--read-only", "a.img", "c.img"]);
    assert!(
        looked.status == 0 && looked.stdout.starts_with("tank: degraded, read-only"),
        "{} {}",
        looked.stdout,
        looked.stderr
    );
    let whole = place.run(&["assemble", "a.img", "b.img", "c.img"]);
    assert!(
        whole.stdout.starts_with("tank: healthy"),
        "{}",
        whole.stderr
    );
}

#[test]
fn a_member_that_was_cut_off_is_named() {
    let place = raid5("cut-off");
    assert_eq!(place.shell("truncate -s 20M b.img").status, 0);
    let refused = place.run(&[&["assemble"][..], &THREE].concat());
    assert!(
        refused.status == 1
            && refused
                .stderr
                .contains("a.img, c.img; b.img smaller than its superblock records"),
        "{}",
        refused.stderr
    );
}

/// A write beyond the new end made the file longer again, and what was cut off read as zeros.
#[test]
fn a_member_that_is_cut_off_while_it_serves_makes_nothing_up() {
    let place = raid5("cut-serving");
    let daemon = place.serve(&THREE);
    let uri = format!("nbd+unix:///?socket={}", place.path("nbd.sock"));
    let client = Plain::open(&uri, false).expect("it serves");
    const ROW: u64 = 128 * 1024;
    let size = status(&place)["size_bytes"].as_u64().expect("a number");
    let last = size / ROW - 1;
    let row = |number: u64| vec![number as u8 + 1; ROW as usize];
    let write = |number: u64| {
        let written = client.write(number * ROW / 512, &row(number));
        written.expect("it is acknowledged");
    };
    let written: Vec<u64> = (last - 40..last).collect();
    written.iter().copied().for_each(write);
    client.flush().expect("it flushes");
    good(place.shell("truncate -s 8M b.img"));
    write(last);
    for number in written.into_iter().chain([last]) {
        let mut found = vec![0; ROW as usize];
        let read = client.read(number * ROW / 512, &mut found);
        assert!(read.is_ok() && found == row(number), "row {number}");
    }
    wait_until(&place, |found| found["state"] == "degraded");
    stop(&place, &daemon);
}

/// Somebody's backup was taken for a member that comes home, and overwritten unasked.
#[test]
fn a_copy_of_a_member_in_service_is_not_overwritten_unasked() {
    let place = raid5("backup");
    assert_eq!(place.shell("cp b.img b.old").status, 0);
    let before = place.bytes("b.old");
    let daemon = place.serve(&THREE);
    for verb in [
        &["add", "tank", "b.old"][..],
        &["replace", "tank", "a.img", "b.old"],
        &["replace", "tank", "b.img", "b.old"],
    ] {
        let refused = place.run(verb);
        assert!(
            refused.status == 1
                && refused
                    .stderr
                    .contains("already contains a copy of the member b.img"),
            "{verb:?}: {}",
            refused.stderr
        );
    }
    assert!(before == place.bytes("b.old"), "not overwritten");
    // Of a member that is out of service it may be what is left of it.
    assert_eq!(place.run(&["fail", "tank", "b.img"]).status, 0);
    assert_eq!(place.run(&["remove", "tank", "b.img"]).status, 0);
    let home = place.run(&["add", "tank", "b.old"]);
    assert_eq!(home.status, 0, "{}", home.stderr);
    let rebuilt = place.run(&["rebuild", "tank", "--watch"]);
    assert_eq!(rebuilt.status, 0, "{}", rebuilt.stderr);
    assert_eq!(place.run(&["stop", "tank"]).status, 0);
    assert_eq!(daemon.wait(), 0);
}

/// The first copy of a superblock was believed, also where the second one named a member in service.
#[test]
fn a_device_whose_superblocks_name_two_members_is_judged_by_both() {
    let place = raid5("two-names");
    let daemon = place.serve(&THREE);
    assert_eq!(place.run(&["fail", "tank", "b.img"]).status, 0);
    // The first copy (16 KiB from the start, docs/reference/format.md) becomes that of the member that is out of service.
    let mixed = place.shell(
        "cp c.img mixed.img
         dd if=b.img of=mixed.img bs=16384 count=1 conv=notrunc status=none",
    );
    assert_eq!(mixed.status, 0, "{}", mixed.stderr);
    let before = place.bytes("mixed.img");
    let refused = place.run(&["add", "tank", "mixed.img"]);
    assert!(
        refused.status == 1
            && refused
                .stderr
                .contains("already contains a copy of the member c.img"),
        "{}",
        refused.stderr
    );
    assert!(before == place.bytes("mixed.img"), "not overwritten");
    assert_eq!(place.run(&["stop", "tank"]).status, 0);
    assert_eq!(daemon.wait(), 0);
}

/// It was said that the slot is missing of a member that had been named.
#[test]
fn an_old_copy_of_a_member_is_called_one() {
    let place = raid5("old-copy");
    assert_eq!(place.shell("cp b.img b.old").status, 0);
    assert_eq!(place.run(&[&["assemble"][..], &THREE].concat()).status, 0);
    let named = ["assemble", "a.img", "b.old", "c.img"];
    let refused = place.run(&named);
    assert!(
        refused.status == 1
            && refused.stderr.contains("slot 1 is missing")
            && refused
                .stderr
                .contains("at: a.img, c.img; b.old only as a stale copy"),
        "{}",
        refused.stderr
    );
    let few = place.run(&["assemble", "a.img", "b.old", "--degraded"]);
    assert!(
        few.status == 1 && few.stderr.contains("b.old only as a stale copy"),
        "{}",
        few.stderr
    );
}

#[test]
fn two_arrays_of_one_name_are_not_served_by_one_daemon() {
    let place = Place::new("namesakes");
    for members in [["a.img", "b.img"], ["c.img", "d.img"]] {
        assert_eq!(place.create(&members, &["--level", "1"]).status, 0);
    }
    let refused = place.run(&["serve", "a.img", "b.img", "c.img", "d.img"]);
    assert!(
        refused.status == 1 && refused.stderr.contains("two of these arrays have the name"),
        "{}",
        refused.stderr
    );
}

#[test]
fn array_that_is_stopped_gives_up_its_name_and_members_while_others_are_served() {
    let place = Place::new("one-of-two");
    let (x, y) = (["x1", "x2"], ["y1", "y2"]);
    for (name, members) in [("x", x), ("y", y)] {
        let image = ["--level", "1", "--image-size", "16M"];
        let made = place.run(&[&["create", name][..], &image, &members].concat());
        assert_eq!(made.status, 0, "{}", made.stderr);
    }
    let first = place.await_service(&mut place.command(&["serve", x[0], x[1], y[0], y[1]]));
    let stopped = place.run(&["stop", "x"]);
    assert_eq!(stopped.status, 0, "{}", stopped.stderr);
    let listed = place.run(&["status"]).stdout;
    assert!(
        listed.contains("y: healthy") && !listed.contains("x: "),
        "{listed}"
    );
    for verb in [&["status", "x"][..], &["scrub", "x"], &["stop", "x"]] {
        let refused = place.run(verb);
        let said = refused.stderr.contains("no daemon responds");
        assert!(refused.status == 1 && said, "{verb:?}: {}", refused.stderr);
    }
    let looked = place.run(&[&["status", "x", "--offline"][..], &x].concat());
    assert!(
        looked.stdout.starts_with("x: healthy\n") && !looked.stdout.contains("REFUSED"),
        "{}{}",
        looked.stdout,
        looked.stderr
    );
    let scrubbed = place.run(&[&["scrub", "x", "--offline"][..], &x].concat());
    assert_eq!(scrubbed.status, 0, "{}", scrubbed.stderr);
    let second = place.await_service(&mut place.command(&["serve", x[0], x[1]]));
    let listed = place.run(&["status"]).stdout;
    assert!(
        listed.contains("x: healthy") && listed.contains("y: healthy"),
        "both are served: {listed}"
    );
    assert_eq!(place.run(&["stop", "x"]).status, 0);
    assert_eq!(second.wait(), 0);
    assert_eq!(place.run(&["stop", "y"]).status, 0);
    // The name is free as soon as `stop` has returned.
    for _ in 0..3 {
        let daemon = place.serve(&[x, y].concat());
        assert_eq!(place.run(&["stop", "y"]).status, 0);
        assert_eq!(place.run(&["stop", "x"]).status, 0);
        assert_eq!(daemon.wait(), 0);
    }
    assert_eq!(first.wait(), 0);
}

/// It only reads, since too many members are missing, and not because that was asked for.
#[test]
fn failed_array_that_is_served_says_what_is_missing() {
    let place = raid5("failed-serves");
    let daemon = place.serve(&["--from-minority", "--accept-loss", "a.img"]);
    let before = place.bytes("a.img");
    let status = place.run(&["status", "tank"]).stdout;
    let said =
        status.starts_with("tank: failed") && status.contains("too many members are missing");
    assert!(said && !status.contains("--read-only"), "{status}");
    let json = place.run(&["status", "tank", "--json"]).stdout;
    assert!(json.contains("\"reason\":\"too-few-members\""), "{json}");
    for verb in [
        &["add", "tank", "b.img"][..],
        &["rebuild", "tank", "--watch"],
    ] {
        let refused = place.run(verb);
        let back = refused.stderr.contains("attach them again");
        assert!(refused.status == 1 && back, "{verb:?}: {}", refused.stderr);
    }
    let stopped = place.run(&["stop", "tank"]);
    assert_eq!(stopped.stdout, "stopped, nothing was written\n");
    assert_eq!(daemon.wait(), 0);
    assert!(before == place.bytes("a.img"));
    let daemon = place.serve(&THREE);
    assert!(
        place
            .run(&["status", "tank"])
            .stdout
            .starts_with("tank: healthy\n")
    );
    stop(&place, &daemon);
}

#[test]
fn a_wiped_member_is_named() {
    let place = raid5("wiped");
    place.write("b.img", 0, 0, &vec![0; 64 << 20]);
    for members in [&["a.img", "b.img", "c.img"][..], &["a.img", "b.img"]] {
        let refused = place.run(&[&["assemble"][..], members].concat());
        assert!(
            refused.status == 1
                && refused.stderr.contains("the array \"tank\"")
                && refused
                    .stderr
                    .contains("b.img without a Restripe superblock"),
            "{}",
            refused.stderr
        );
    }
}

#[test]
fn a_configuration_may_say_that_degraded_is_well() {
    let place = raid5("config-degraded");
    let config = |serve: &str| {
        format!("[[array]]\nname='tank'\nmembers=['a.img','gone.img','c.img']\n[serve]\n{serve}\n")
    };
    place.write("strict.toml", 0, 0, config("").as_bytes());
    place.write("lax.toml", 0, 0, config("degraded = true").as_bytes());
    let strict = place.run(&["serve", "--config", "strict.toml", "--unix", "x.nbd"]);
    assert!(
        strict.status == 1 && strict.stderr.contains("gone.img cannot be opened"),
        "{}",
        strict.stderr
    );
    let daemon = place.serve(&["--config", "lax.toml"]);
    let status = place.run(&["status", "tank"]).stdout;
    assert!(status.starts_with("tank: degraded"), "{status}");
    assert!(line_of(&status, "a.img").contains("active"), "{status}");
    assert_eq!(place.run(&["stop", "tank"]).status, 0);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn a_member_is_known_by_its_file_whatever_its_name() {
    let place = raid5("names");
    place.write(
        "tank.toml",
        0,
        0,
        b"[[array]]\nname='tank'\nmembers=['a.img','b.img','c.img']\n[serve]\nunix='nbd.sock'\n",
    );
    assert_eq!(place.shell("mkdir other && ln b.img other/link").status, 0);
    // The daemon knows its members by absolute paths here: the configuration is named by one.
    let daemon = place.serve(&["--config", &place.path("tank.toml")]);
    let failed = place.shell("cd other && restripe fail tank link");
    assert_eq!(failed.status, 0, "{}", failed.stderr);
    assert!(failed.stdout.contains("b.img failed"));
    let removed = place.run(&["remove", "tank", "b.img"]);
    assert_eq!(removed.status, 0, "{}", removed.stderr);
    let status = place.run(&["status", "tank"]).stdout;
    let slot = line_of(&status, "missing");
    assert!(slot.contains(" 1 "), "the empty slot is shown: {status}");
    assert_eq!(place.run(&["stop", "tank"]).status, 0);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn a_name_is_checked_before_anybody_is_asked() {
    let place = Place::new("asked");
    let four = ["a.img", "b.img", "c.img", "d.img"];
    assert_eq!(place.create(&four, &["--level", "raid6"]).status, 0);
    let daemon = place.serve(&four);
    assert_eq!(place.run(&["fail", "tank", "b.img"]).status, 0);
    let unknown = place.run(&["fail", "tank", "z.img"]);
    assert!(
        unknown.stderr.contains("no such member") && !unknown.stderr.contains("--yes"),
        "{}",
        unknown.stderr
    );
    let twice = place.run(&["fail", "tank", "b.img"]);
    assert!(
        twice.status == 0 && twice.stdout.contains("has failed already"),
        "{} {}",
        twice.stdout,
        twice.stderr
    );
    let asked = place.run(&["fail", "tank", "c.img"]);
    assert!(
        asked.status == 1 && asked.stderr.contains("without c.img"),
        "{}",
        asked.stderr
    );
    drop(daemon);
    let nobody = place.run(&["stop", "other"]);
    assert!(
        nobody.status == 1 && !nobody.stderr.contains("--offline"),
        "{}",
        nobody.stderr
    );
}

#[test]
fn what_is_in_the_array_is_not_taken_in_again() {
    let place = raid5("again");
    place.write("new.img", 64 << 20, 0, &[]);
    let daemon = place.serve(&THREE);
    for verb in [
        &["replace", "tank", "a.img", "b.img"][..],
        &["replace", "tank", "a.img", "b.img", "--force"],
        &["add", "tank", "b.img", "--force"],
    ] {
        let refused = place.run(verb);
        assert!(
            refused.status == 1
                && refused
                    .stderr
                    .contains("in the array already, and is active")
                && refused.stderr.contains("b.img"),
            "{verb:?}: {}",
            refused.stderr
        );
    }
    let replaced = place.run(&["replace", "tank", "a.img", "new.img"]);
    assert_eq!(replaced.status, 0, "{}", replaced.stderr);
    let status = place.run(&["status", "tank"]).stdout;
    assert!(
        line_of(&status, "a.img").contains("replaced") && !status.contains("failed"),
        "{status}"
    );
    assert_eq!(place.run(&["stop", "tank"]).status, 0);
    assert_eq!(daemon.wait(), 0);
    let examined = place.run(&["examine", "b.img"]).stdout;
    assert!(
        examined.matches("replaced, stale").count() == 1 && !examined.contains("failed"),
        "{examined}"
    );
    // A restart knows it still, and until it is a member again.
    let four = ["new.img", "b.img", "c.img", "a.img"];
    let looked = [&["status", "--offline"][..], &four].concat();
    let status = place.run(&looked);
    assert!(
        line_of(&status.stdout, "a.img").contains("replaced") && !status.stdout.contains("failed"),
        "{} {}",
        status.stdout,
        status.stderr
    );
    let daemon = place.serve(&four);
    assert_eq!(place.run(&["add", "tank", "a.img"]).status, 0);
    assert_eq!(place.run(&["fail", "tank", "a.img"]).status, 0);
    let status = place.run(&["status", "tank"]).stdout;
    assert!(line_of(&status, "a.img").contains("failed"), "{status}");
    assert_eq!(place.run(&["stop", "tank"]).status, 0);
    assert_eq!(daemon.wait(), 0);
    let left = place.shell("ls -A restripe; ls nbd.sock*").stdout;
    assert_eq!(left, "", "neither sockets nor locks are left");
}

/// Disks of one nominal size differ by a little: the end of every member stays free for a smaller one, if nothing else is said.
#[test]
fn a_slightly_smaller_disk_replaces_a_member() {
    let place = Place::new("slack");
    let smaller = (64 << 20) - 8 * 512;
    for (slack, options) in [
        (true, &["--level", "5"][..]),
        (false, &["--level", "5", "--no-slack"]),
    ] {
        for member in ["new.img", "spare.img"] {
            place.write(member, smaller, 0, &[]);
        }
        assert_eq!(
            place
                .create(&THREE, &[options, &["--force", "--yes"]].concat())
                .status,
            0
        );
        let daemon = place.serve(&THREE);
        for verb in [
            &["replace", "tank", "a.img", "new.img"][..],
            &["add", "tank", "spare.img"],
        ] {
            let run = place.run(verb);
            assert_eq!(run.status == 0, slack, "{verb:?}: {}", run.stderr);
            assert!(slack || run.stderr.contains("needs"), "{}", run.stderr);
        }
        assert_eq!(place.run(&["stop", "tank"]).status, 0);
        assert_eq!(daemon.wait(), 0);
        place.shell("rm -f new.img spare.img");
    }
    let both = place.create(
        &THREE,
        &["--level", "5", "--no-slack", "--size-per-member", "32M"],
    );
    assert_eq!(
        both.status, 2,
        "a size leaves what it leaves: {}",
        both.stderr
    );
}

/// A replace that a kill cut goes on with the next start, and its old member is a replaced one, not a failed one. Without
/// its target the start says so, and so does its status, until the replace is ordered anew.
#[test]
fn a_replace_that_was_cut_ends_as_one_that_was_not() {
    let place = raid5("replace-cut");
    let four = ["a.img", "b.img", "c.img", "new.img"];
    let slow = |members: &[&str]| place.serve(&[&["--rate", "1K..1K"], members].concat());
    let healthy = |found: &serde_json::Value| {
        let idle = found["tasks"].as_array().is_some_and(Vec::is_empty);
        idle && found["state"] == "healthy"
    };
    place.write("new.img", 64 << 20, 0, &[]);
    let daemon = slow(&THREE);
    write_block(&place);
    good(place.run(&["replace", "tank", "a.img", "new.img", "--no-wait"]));
    daemon.kill();

    let daemon = slow(&THREE);
    let text = good(place.run(&["status", "tank"]));
    assert!(
        text.contains("DROPPED: replace of slot 0: its target, member ")
            && text.contains("restripe replace tank OLD NEW"),
        "{text}"
    );
    let found = status(&place);
    assert_eq!(found["dropped_tasks"][0]["kind"], "replace", "{found}");
    assert_eq!(found["dropped_tasks"][0]["slot"], 0, "{found}");
    daemon.kill();
    let looked = place.run(&[&["status", "tank", "--offline"][..], &four].concat());
    assert!(
        looked.stdout.contains("DROPPED: replace of slot 0"),
        "{}{}",
        looked.stdout,
        looked.stderr
    );
    let daemon = slow(&THREE);
    good(place.run(&["replace", "tank", "a.img", "new.img", "--no-wait"]));
    assert!(status(&place)["dropped_tasks"].is_null());
    daemon.kill();

    let daemon = place.serve(&four);
    wait_until(&place, healthy);
    let text = good(place.run(&["status", "tank"]));
    assert!(
        line_of(&text, "a.img").contains("replaced") && !text.contains("failed"),
        "{text}"
    );
    stop(&place, &daemon);
}

/// A slot was vacant, and took the new device before the replacement could.
#[test]
fn a_replacement_is_not_taken_for_a_spare() {
    let place = Place::new("not-a-spare");
    let four = ["a.img", "b.img", "c.img", "d.img"];
    assert_eq!(place.create(&four, &["--level", "6"]).status, 0);
    place.write("new.img", 64 << 20, 0, &[]);
    let daemon = place.serve(&four);
    assert_eq!(place.run(&["fail", "tank", "a.img"]).status, 0);
    let replaced = place.run(&["replace", "tank", "b.img", "new.img"]);
    assert_eq!(replaced.status, 0, "{}", replaced.stderr);
    let status = place.run(&["status", "tank"]).stdout;
    assert!(
        line_of(&status, "new.img").contains(" 1  active")
            && line_of(&status, "b.img").contains("replaced")
            && status.starts_with("tank: degraded"),
        "{status}"
    );
    let few = place.run(&["fail", "tank", "c.img", "--yes"]);
    assert_eq!(few.status, 0, "{}", few.stderr);
    for yes in [&[][..], &["--yes"]] {
        let last = place.run(&[&["fail", "tank", "d.img"][..], yes].concat());
        let asked = last.stderr.contains("Redundancy would be lost");
        assert!(
            last.status == 1 && !asked && last.stderr.contains("hint: restore redundancy first"),
            "{}",
            last.stderr
        );
    }
    assert_eq!(place.run(&["stop", "tank"]).status, 0);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn what_a_killed_create_leaves_is_no_hindrance() {
    let place = Place::new("killed-create");
    place.write("a.img", 0, 0, &[]);
    place.write("b.img", 64 << 20, 0, &[]);
    let few = place.create(&["a.img", "b.img"], &["--level", "raid6"]);
    assert!(few.status == 1 && place.bytes("a.img").is_empty());
    let made = place.create(&["a.img", "b.img", "c.img"], &["--level", "raid5"]);
    assert_eq!(made.status, 0, "{}", made.stderr);
    assert_eq!(place.bytes("a.img").len(), 64 << 20);
}

#[test]
fn a_forgotten_name_is_noticed() {
    let place = Place::new("forgotten");
    place.write("a.img", 64 << 20, 0, &[]);
    place.write("b.img", 64 << 20, 0, &[]);
    for name in ["a.img", "./a.img", "/dev/nowhere"] {
        let refused = place.run(&["create", "--level", "raid1", name, "b.img", "c.img"]);
        assert!(
            refused.status == 2 && refused.stderr.contains("the name comes first"),
            "{}",
            refused.stderr
        );
    }
    let made = place.run(&[
        "create",
        "x",
        "--level",
        "1",
        "--image-size",
        "16M",
        "x1",
        "x2",
    ]);
    assert_eq!(
        made.status, 0,
        "a name that members begin with: {}",
        made.stderr
    );
    let alien = place.run(&["examine", "a.img"]).stdout;
    assert!(alien.contains("no Restripe superblock"), "{alien}");
}

#[test]
fn a_name_in_our_folder_is_not_taken_for_one_in_the_daemons() {
    let place = raid5("folders");
    let daemon = place.serve(&THREE);
    place.write("new.img", 64 << 20, 0, &[]);
    assert_eq!(place.shell("mkdir other").status, 0);
    // Another a.img here, with something in it; and the daemon's own is in the array.
    place.write("other/a.img", 64 << 20, 1080, &[0x53, 0xef]);
    let before = place.bytes("other/a.img");
    for verb in [
        "fail tank a.img",
        "remove tank a.img",
        "replace tank a.img new.img",
    ] {
        let refused = place.shell(&format!("cd other && restripe {verb}"));
        assert!(
            refused.status == 1 && refused.stderr.contains("no such member"),
            "{verb}: {}",
            refused.stderr
        );
    }
    for verb in ["add tank a.img --force", "replace tank b.img a.img --force"] {
        let asked = place.shell(&format!("cd other && restripe {verb}"));
        assert!(
            asked.status == 1 && asked.stderr.contains("This device will be overwritten"),
            "{verb}: {} {}",
            asked.stdout,
            asked.stderr
        );
    }
    assert!(before == place.bytes("other/a.img"), "not overwritten");
    // What is no file here is a name as the daemon knows it.
    let failed = place.shell("cd other && restripe fail tank b.img");
    assert!(failed.stdout.contains("b.img failed"), "{}", failed.stderr);
    let status = place.run(&["status", "tank"]).stdout;
    assert!(line_of(&status, "a.img").contains("active"), "{status}");
    assert_eq!(place.run(&["stop", "tank"]).status, 0);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn a_file_called_as_the_array_is_no_hindrance() {
    let place = Place::new("called");
    place.write("tank", 0, 0, b"notes about the tank");
    let made = place.create(&["a.img", "b.img"], &["--level", "raid1"]);
    assert_eq!(made.status, 0, "{}", made.stderr);
    // What is in an array was meant as a member.
    let member = place.run(&["create", "--level", "raid1", "a.img", "c.img", "d.img"]);
    assert!(
        member.status == 2 && member.stderr.contains("the name comes first"),
        "{}",
        member.stderr
    );
}

#[test]
fn a_create_that_fails_undoes_only_its_own_files() {
    let place = raid5("undone");
    place.write("empty.img", 0, 0, &[]);
    let daemon = place.serve(&THREE);
    let before = place.bytes("b.img");
    let refused = place.run(&[
        "create",
        "other",
        "--level",
        "raid1",
        "--image-size",
        "64M",
        "empty.img",
        "fresh.img",
        "b.img",
    ]);
    assert_eq!(refused.status, 1, "{}", refused.stderr);
    assert!(place.bytes("empty.img").is_empty() && !place.exists("fresh.img"));
    assert!(before == place.bytes("b.img"), "the daemon's stays");
    drop(daemon);
    // A file that somebody holds is theirs, empty as it is.
    let taken = place.shell(
        "exec 9>>empty.img; flock -n 9; restripe create o --level raid1 --image-size 64M empty.img fresh.img",
    );
    assert!(taken.status == 1, "{}", taken.stderr);
    assert!(place.bytes("empty.img").is_empty() && !place.exists("fresh.img"));
}

/// Reads what a workload wrote, twice over: the second time the members are asked for less.
#[test]
fn a_read_cache_is_asked_for_by_size_and_rule() {
    let place = Place::new("cache");
    place.create(
        &["a.img", "b.img", "c.img"],
        &["--level", "raid5", "--init", "zero"],
    );
    let wrong = place.run(&["serve", "--cache", "1M", "--cache-policy", "mru", "a.img"]);
    assert_eq!(wrong.status, 2);
    assert!(
        wrong.stderr.contains("lru, lfu, vdf-lru"),
        "{}",
        wrong.stderr
    );
    let small = place.run(&["serve", "--cache", "64", "a.img", "b.img", "c.img"]);
    assert!(
        small.status == 2 && small.stderr.contains("256M"),
        "{}",
        small.stderr
    );
    let large = place.run(&["serve", "--cache", "64T", "a.img", "b.img", "c.img"]);
    assert_eq!(large.status, 2);
    assert!(
        large.stderr.contains("the maximum is 32G"),
        "{}",
        large.stderr
    );
    let cached = ["--cache", "4M", "--cache-policy", "vdf-lru"];
    let _daemon = place.serve(&[&cached[..], &["a.img", "b.img", "c.img"]].concat());
    assert_eq!(place.run(&["fail", "tank", "b.img"]).status, 0);
    // The same 64 KiB twice.
    place.write("twice.spc", 0, 0, b"0,0,65536,r,0.0\n0,0,65536,r,0.1\n");
    let uri = format!("nbd+unix:///?socket={}", place.path("nbd.sock"));
    let replayed = [
        "replay",
        "twice.spc",
        "--depth",
        "1",
        "--reads-only",
        "--nbd",
        &uri,
    ];
    let replayed = place.run(&replayed);
    assert_eq!(replayed.status, 0, "{}", replayed.stderr);
    let status = place.run(&["status", "tank"]).stdout;
    assert!(status.contains("(RGR), "), "{status}");
    let metrics = place.run(&["metrics", "tank"]).stdout;
    let cached = line_of(&metrics, "restripe_read_blocks_cached_total{");
    assert!(cached.ends_with(" 16"), "{cached}");
}

/// The connection that had broken was used again, and the member failed again at once.
#[test]
fn a_remote_member_whose_server_was_restarted_comes_back() {
    let place = Place::new("server-restarted");
    let test = "a_remote_member_whose_server_was_restarted_comes_back";
    if !has(&place, test, &["nbdkit"]) {
        return;
    }
    place.write("far.img", 64 << 20, 0, &[]);
    let export = || {
        let _ = std::fs::remove_file(place.path("far.sock"));
        let mut server = Command::new("nbdkit");
        server.args(["-f", "-U", &place.path("far.sock"), "file"]);
        let child = server.arg(place.path("far.img")).spawn();
        let server = Daemon::of(child.expect("it runs"));
        good(place.shell("timeout 20 sh -c 'until [ -S far.sock ]; do sleep 0.05; done'"));
        server
    };
    let server = export();
    let far = format!("nbd+unix:///?socket={}", place.path("far.sock"));
    good(place.create(&["a.img", &far], &["--level", "raid1", "--init", "zero"]));
    let daemon = place.serve(&["a.img", &far]);
    server.kill();
    wait_until(&place, |status| status["state"] == "degraded");
    let server = export();
    let told = good(place.run(&["add", "tank", &far]));
    assert!(
        told.ends_with(" is added; its rebuild has started\n"),
        "{told}"
    );
    let found = wait_until(&place, |status| status["state"] == "healthy");
    let listed = found["members"].as_array().map(Vec::len);
    assert_eq!(listed, Some(2), "what it was before is forgotten: {found}");
    good(place.run(&["fail", "tank", "a.img"]));
    assert_eq!(status(&place)["state"], "degraded");
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
    drop(server);
}

/// One half of a mirror went on alone; the other half is started later, and the first comes back.
#[test]
fn a_newer_half_is_taken_in_only_by_force() {
    let place = Place::new("newer-half");
    let made = place.run(&[
        "create",
        "tank",
        "--level",
        "raid1",
        "--image-size",
        "32M",
        "a",
        "b",
    ]);
    assert_eq!(made.status, 0, "{}", made.stderr);
    let daemon = place.serve(&["a", "b"]);
    good(place.run(&["fail", "tank", "a"]));
    write_block(&place);
    stop(&place, &daemon);
    let newer = place.bytes("b");
    let daemon = place.serve(&["--from-minority", "a"]);
    for verb in [&["add", "tank", "b"][..], &["replace", "tank", "a", "b"]] {
        let refused = place.run(verb);
        assert_eq!(refused.status, 1, "{verb:?}: {}", refused.stderr);
        let told = [
            "was used without",
            "generation",
            "--force",
            "at: ",
            "last written",
        ];
        let missing = told.iter().find(|word| !refused.stderr.contains(**word));
        assert_eq!(missing, None, "{verb:?}: {}", refused.stderr);
    }
    assert!(newer == place.bytes("b"), "nothing was written to it");
    good(place.run(&["add", "tank", "b", "--force", "--yes"]));
    wait_until(&place, |status| status["state"] == "healthy");
    stop(&place, &daemon);
}

/// A copy of a member made while the array was served, and put back after a clean stop.
#[test]
fn an_old_copy_of_a_member_is_named_after_a_clean_stop() {
    let place = raid5("old-copy-stopped");
    let daemon = place.serve(&THREE);
    let copied = place.shell("cp b.img b.old");
    assert_eq!(copied.status, 0, "{}", copied.stderr);
    write_block(&place);
    stop(&place, &daemon);
    let put_back = place.shell("cp b.old b.img");
    assert_eq!(put_back.status, 0, "{}", put_back.stderr);
    let refused = place.run(&[&["serve"][..], &THREE].concat());
    assert!(
        refused.status == 1
            && refused.stderr.contains("b.img")
            && refused.stderr.contains("--degraded"),
        "{}",
        refused.stderr
    );
}
