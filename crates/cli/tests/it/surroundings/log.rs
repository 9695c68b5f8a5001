//! A daemon's log: a time and a level, or what systemd's journal reads; ranges; and verbs beside a daemon at work.

use super::mirror;
use crate::harness::{Place, bare, line_of};
use serde_json::Value;

const SERVE: &str = "exec 3< <(exec restripe serve --unix nbd.sock a.img b.img 2>log)
                     id=$!; read -u 3 uri; ";

#[test]
fn lines_have_a_time_and_a_level() {
    let place = mirror("lines");
    let run = place.shell(&format!(
        "{SERVE} restripe fail tank b.img --yes; restripe stop tank; wait $id; cat log"
    ));
    let failed = line_of(&run.stdout, "failed: ");
    let stopped = line_of(&run.stdout, "stopped and marked clean");
    for (line, level) in [
        (&failed, " error restripe: "),
        (&stopped, " info restripe: "),
    ] {
        assert!(
            line.starts_with("20") && line.get(19..20) == Some("Z"),
            "{line}"
        );
        assert!(line.contains(level), "{line}");
    }
    assert!(bare(&run.stdout).contains("\nrestripe: tank: member 1 (b.img) failed: "));
}

/// The daemon is killed as soon as a verb has its answer.
#[test]
fn the_log_has_what_a_verb_did_when_the_verb_is_answered() {
    for (verb, words) in [
        ("fail tank b.img --yes", "(b.img) failed: "),
        (
            "replace tank b.img c.img --yes",
            "replace of slot 1 ended: done",
        ),
        ("scrub tank", "check completed: "),
        ("stop tank", "stopped and marked clean"),
    ] {
        let place = mirror("answered");
        place.write("c.img", 64 << 20, 0, &[]);
        let run = place.shell(&format!(
            "{SERVE} restripe {verb} && kill -9 $id; wait $id; cat log"
        ));
        assert!(
            run.stdout.contains(words),
            "{verb}: {} {}",
            run.stdout,
            run.stderr
        );
    }
}

#[test]
fn the_systems_journal_gets_priorities_instead() {
    let place = mirror("journal-stream");
    // A journal is known by the device and number of the file.
    let run = place.shell(
        "touch log; export JOURNAL_STREAM=$(stat -c %d:%i log)
         exec 3< <(exec restripe serve --unix nbd.sock a.img b.img 2>>log)
         id=$!; read -u 3 uri; restripe fail tank b.img --yes; restripe stop tank; wait $id
         restripe serve nothing.img 2>>log; cat log",
    );
    for (what, prefix) in [
        ("failed: ", "<3>restripe: "),
        ("stopped and marked clean", "<6>restripe: "),
        ("warning: nothing.img", "<4>warning: "),
        ("error: ", "<3>restripe: error: "),
    ] {
        let line = line_of(&run.stdout, what);
        assert!(line.starts_with(prefix), "{line:?} in {}", run.stdout);
    }
    let other = place.shell("JOURNAL_STREAM=1:1 restripe serve nothing.img");
    assert!(
        other.stderr.contains("\nrestripe: error: "),
        "another stream: {}",
        other.stderr
    );
}

#[test]
fn the_health_is_an_exit_status_where_that_is_asked() {
    let place = mirror("exit-code");
    let run = place.shell(&format!(
        "restripe status tank --exit-code; echo none $?
         {SERVE} restripe status tank --exit-code; echo healthy $?; restripe status --exit-code --json; echo all $?
         restripe fail tank b.img --yes; restripe status tank --exit-code; echo degraded $?
         restripe status tank; echo unasked $?; restripe status --exit-code; echo all-degraded $?
         restripe status tank --exit-code >/dev/full; echo unsaid $?
         restripe stop tank; wait $id; restripe status --exit-code; echo nothing $?"
    ));
    for line in [
        "none 3",
        "healthy 0",
        "all 0",
        "degraded 1",
        "unasked 0",
        "all-degraded 1",
        "unsaid 3",
        "nothing 3",
    ] {
        assert!(
            run.stdout.contains(&format!("{line}\n")),
            "{line} in {}",
            run.stdout
        );
    }
}

#[test]
fn a_member_in_use_is_examined_and_left_alone() {
    let place = mirror("examine-served");
    let daemon = place.serve(&["a.img", "b.img"]);
    let examined = place.run(&["examine", "a.img"]);
    assert!(
        examined.status == 0
            && examined.stdout.contains("in use")
            && examined.stdout.contains("array \"tank\""),
        "{} {}",
        examined.stdout,
        examined.stderr
    );
    let json = place.run(&["examine", "--json", "a.img"]).stdout;
    let value: Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!(value[0]["in_use"], true);
    assert_eq!(place.run(&["examine", "--export", "a.img"]).status, 0);
    assert_eq!(place.run(&["stop", "tank"]).status, 0);
    assert_eq!(daemon.wait(), 0);
    let examined = place.run(&["examine", "a.img"]).stdout;
    assert!(
        !examined.contains("in use") && examined.contains("\n  clean, "),
        "{examined}"
    );
}

#[test]
fn a_name_that_is_a_members_is_refused() {
    let place = Place::new("forgotten");
    place.write("disk9", 16 << 20, 0, &[]);
    for words in [
        "x1.img x2.img x3.img",
        "./a b c",
        "disk1 disk2 disk3",
        "nbd+unix:///?socket=x y z",
        "a.raw b.raw",
    ] {
        let run = place.shell(&format!(
            "restripe create --level 5 {words} --image-size 8M"
        ));
        let says = run
            .stderr
            .contains("the name comes first: restripe create NAME");
        assert!(
            run.status != 0 && (says || words.starts_with("sdb")),
            "{words}: {} {}",
            run.status,
            run.stderr
        );
    }
    let left = place.shell("ls -A").stdout;
    assert!(!left.contains(".img") && !left.contains("disk1"), "{left}");
    for words in ["tank x1.img x2.img", "tank.1 disk1 disk2", "pool2 a b"] {
        let run = place.shell(&format!(
            "restripe create --level 1 {words} --image-size 8M"
        ));
        assert_eq!(run.status, 0, "{words}: {}", run.stderr);
    }
}

#[test]
fn an_address_that_cannot_be_had_is_refused_with_what_to_do() {
    let place = mirror("listen");
    for (address, hint) in [
        ("--unix nowhere/x.nbd", "mkdir -p"),
        ("--unix a.img", "choose another address"),
        ("--tcp 192.0.2.1:10809", "choose an address of this machine"),
    ] {
        let run = place.shell(&format!("restripe serve {address} a.img b.img"));
        assert!(
            run.status == 1 && run.stderr.contains(hint),
            "{address}: {}",
            run.stderr
        );
    }
}

/// Whatever wiped the beginning of every disk left all data, and with a log a superblock of each.
#[test]
fn an_array_whose_members_lost_their_first_mebibyte_is_made_anew_as_the_message_says() {
    let levels = [
        ("raid0", 3),
        ("raid1", 3),
        ("raid4", 3),
        ("raid5", 3),
        ("raid6", 4),
        ("raid10", 4),
    ];
    for (level, count) in levels {
        let place = Place::new(&format!("wiped-{level}"));
        let images: Vec<String> = (0..count).map(|nth| format!("{nth}.img")).collect();
        let images = images.join(" ");
        let init = if level == "raid0" {
            "assume-clean"
        } else {
            "sync"
        };
        // Named in another order than that of their slots.
        let run = place.shell(&format!(
            "set -e
             create=\"restripe create tank --image-size 64M --chunk 16K --level {level} {images}\"
             serve() {{ exec 3< <(exec restripe serve --unix nbd.sock $* 2>>log); id=$!; read -u 3 uri; }}
             $create; serve {images}
             for i in $(seq 0 40); do echo \"0,$((i*128)),65536,w,0.0\"; done > fill.spc
             restripe replay fill.spc --overwrite --nbd $uri >/dev/null
             restripe stop tank; wait $id; cp 0.img kept
             for image in {images}; do dd if=/dev/zero of=$image bs=1M count=1 conv=notrunc status=none; done
             if restripe serve --unix nbd.sock $(echo {images} | tac -s ' ') 2>refused; then exit 9; fi
             cat refused >&2
             command=$(grep -o 'restripe create tank .*' refused || true)
             if [ -z \"$command\" ]; then
                 grep -q 'with the original options and order of members' refused
                 command=\"$create --init {init} --force\"
             fi
             eval \"$command --yes\" 2>/dev/null
             serve {images}; restripe rebuild tank --watch; [ {level} = raid0 ] || restripe scrub tank
             restripe stop tank; wait $id"
        ));
        assert_eq!(run.status, 0, "{level}: {} {}", run.stdout, run.stderr);
        let log = ["raid4", "raid5", "raid6"].contains(&level);
        assert_eq!(
            run.stderr.contains("restripe create tank"),
            log,
            "{level}: {}",
            run.stderr
        );
        let data = data_of(&place, "kept");
        let written = data.iter().any(|byte| *byte != 0);
        assert!(written, "{level}: something was written");
        assert!(
            data == data_of(&place, "0.img"),
            "{level}: the data are as they were"
        );
    }
}

/// From where the data of a member begin.
fn data_of(place: &Place, image: &str) -> Vec<u8> {
    let examined = place.run(&["examine", "0.img"]).stdout;
    let line = line_of(&examined, "data from sector ");
    let sector: usize = line
        .rsplit(' ')
        .next()
        .expect("a word")
        .parse()
        .expect("a number");
    place.bytes(image).split_off(sector * 512)
}

/// Where an array of that name is already served, the session of the README must stop, and leave that one alone.
#[test]
fn the_session_of_the_readme_stops_where_its_name_is_taken() {
    let place = mirror("taken");
    let daemon = place.serve(&["a.img", "b.img"]);
    let readme = include_str!("../../../../../README.md");
    let session = readme
        .split("<!-- session -->\n```sh\n")
        .nth(1)
        .expect("a session");
    let session = session.split("```").next().expect("it ends");
    let run = place.shell(&format!("mkdir session; cd session\n{session}\n"));
    assert_ne!(run.status, 0, "{}", run.stdout);
    assert!(run.stderr.contains("is already served"), "{}", run.stderr);
    let status = place.run(&["status", "tank"]).stdout;
    assert!(
        status.starts_with("tank: healthy") && status.contains("b.img"),
        "{status}"
    );
    drop(daemon);
}
