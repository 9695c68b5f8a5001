//! A verb that could not say what it was asked for has failed; an empty check is an error.

use super::mirror;
use crate::harness::Place;

/// Verbs that say something, each as it is called here. `@` is an array or file of this verb's own.
const VERBS: [&str; 41] = [
    "status tank",
    "status tank --json",
    "status",
    "metrics tank",
    "heat tank",
    "heat tank --json",
    "examine a.img",
    "examine --json a.img",
    "examine --export a.img",
    "lease list lender",
    "surrogate status paired",
    "plan --disks 4 --disk wd1600aajs",
    "plan --disks 4 --disk wd1600aajs --json",
    "sim --seed 1",
    "sim-disk",
    "lab list",
    "lab reliability",
    "trace formats",
    "trace info few.spc",
    "trace info few.spc --json",
    "trace generate",
    "cache-sim few.spc",
    "--help",
    "--version",
    "help create",
    "serve --help",
    "replay few.spc",
    "trace convert few.spc @.rtrace",
    "create other --level raid1 --image-size 16M @1.img @2.img",
    "create other --json --level raid1 --image-size 16M @1.img @2.img",
    "assemble free1.img free2.img",
    "scrub tank",
    "rebuild tank",
    "rebuild tank --watch",
    "rebuild tank --rate 1M..100M",
    "fail tank b.img --yes",
    "remove tank b.img",
    "add tank b.img",
    "lease add lender part --size 8M",
    "lease remove lender part",
    "stop tank",
];
/// Verbs of which this is shown elsewhere, or that take minutes, or need the kernel's NBD client.
const ELSEWHERE: [&str; 7] = [
    "serve", "demo", "replace", "grow", "help", "attach", "detach",
];

fn place_with_all(name: &str) -> (Place, super::Daemon) {
    let place = mirror(name);
    let made = place.shell(
        "set -e
         restripe create lender --level raid1 --image-size 64M --lend 16M l1.img l2.img
         restripe create paired --level raid1 --image-size 64M --surrogate p3.img,p4.img p1.img p2.img
         restripe create free --level raid1 --image-size 16M free1.img free2.img
         for i in $(seq 200); do echo 0,$((i*8)),4096,w,$i.0; done > few.spc",
    );
    assert_eq!(made.status, 0, "{}", made.stderr);
    let members = [
        "a.img", "b.img", "l1.img", "l2.img", "p1.img", "p2.img", "p3.img", "p4.img",
    ];
    let daemon = place.serve(&members);
    (place, daemon)
}

/// Runs a command with its output to somewhere, for the status of the command itself.
fn run(place: &Place, nth: usize, verb: &str, to: &str) -> (i32, String) {
    let verb = verb.replace('@', &format!("own{nth}"));
    let run = place.shell(&format!("{verb} {to}; exit ${{PIPESTATUS[0]}}"));
    (run.status, run.stderr)
}

#[test]
fn a_verb_that_cannot_say_what_it_was_asked_for_fails() {
    let cases = [
        ("full", "> /dev/full"),
        ("closed", ">&-"),
        ("reads", "1< /dev/null"),
    ];
    for (case, to) in cases {
        let (place, _daemon) = place_with_all(case);
        for (nth, verb) in VERBS.into_iter().enumerate() {
            let (status, said) = run(&place, nth, &format!("restripe {verb}"), to);
            assert!(
                status == 1 && said.contains("standard output cannot be written"),
                "{verb} {to}: {status} {said}"
            );
            assert!(!said.contains("panicked"), "{verb} {to}: {said}");
        }
    }
}

/// As other programs do: without a word, and killed by the pipe if nothing depends on their going on. Others do their work
/// first, and end with the same status.
#[test]
fn a_reader_that_leaves_ends_a_verb_quietly() {
    const BY_THE_PIPE: i32 = 128 + 13;
    let (place, _daemon) = place_with_all("left");
    for (nth, verb) in VERBS.into_iter().enumerate() {
        // The reader has left when the verb speaks.
        let (status, said) = run(
            &place,
            nth,
            &format!("exec 3> >(exec true); wait $!; restripe {verb}"),
            ">&3 2>err",
        );
        let said = said + &String::from_utf8_lossy(&place.bytes("err"));
        let quiet = !said.contains("error") && !said.contains("panicked");
        assert!(status == BY_THE_PIPE && quiet, "{verb}: {status} {said}");
    }
    // The last verb has stopped the array.
    let (status, said) = run(&place, 0, "restripe status tank", "");
    assert!(
        status == 1 && said.contains("no daemon responds"),
        "{status} {said}"
    );
}

#[test]
fn every_verb_is_in_the_table() {
    let place = Place::new("all-verbs");
    let help = place.run(&["--help"]).stdout;
    let commands = help.split("Commands:\n").nth(1).expect("commands");
    let commands = commands.split("\n\n").next().expect("an end");
    let names: Vec<&str> = commands
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        let here = VERBS
            .iter()
            .any(|verb| verb.split(' ').next() == Some(name));
        assert!(here || ELSEWHERE.contains(&name), "{name}");
    }
}

/// Files that a verb is told to write are what it was asked for, too; and a device is never replaced by a file.
#[test]
fn a_file_that_cannot_be_written_is_a_failure() {
    let place = Place::new("files");
    let made = place
        .shell("for i in $(seq 200); do echo 0,$((i*8)),4096,w,$i.0; done > few.spc; mkfifo pipe");
    assert_eq!(made.status, 0, "{}", made.stderr);
    for verb in [
        "replay few.spc --json /dev/full",
        "replay few.spc --report /dev/full",
        "replay few.spc --json nowhere/x.json",
        "replay few.spc --figures few.spc/x",
        "trace convert few.spc nowhere/x.rtrace",
        "trace convert few.spc pipe --force",
        "trace convert few.spc . --force",
        "lab run pr-vs-ido --short --folder few.spc/lab",
        "serve --record nowhere/x few.spc",
    ] {
        let run = place.shell(&format!("restripe {verb}"));
        assert!(
            run.status == 1 && run.stderr.contains("error: "),
            "{verb}: {} {}",
            run.status,
            run.stderr
        );
    }
    assert_eq!(place.shell("test -p pipe").status, 0, "it is a pipe yet");
}

/// What checks nothing finds nothing wrong.
#[test]
fn an_empty_check_is_an_error() {
    let place = Place::new("empty");
    place.write("empty.spc", 0, 0, b"");
    for (verb, status) in [
        ("sim --count 0", 2),
        ("sim --seed 18446744073709551615 --count 2", 2),
        (
            "sim --seed 18446744073709551615 --count 18446744073709551615",
            2,
        ),
        ("sim --replay empty.spc", 1),
        ("lab run own-trace --seeds 0", 2),
        ("trace fit empty.spc", 1),
        ("examine", 2),
        ("assemble", 2),
    ] {
        let run = place.shell(&format!("restripe {verb}"));
        assert!(
            run.status == status && !run.stderr.is_empty(),
            "{verb}: {} {}",
            run.status,
            run.stdout
        );
        assert!(
            !run.stdout.contains("no violation was found"),
            "{verb}: {}",
            run.stdout
        );
    }
    let last = place.run(&["sim", "--seed", "18446744073709551615"]);
    assert!(
        last.stdout.starts_with("1 seeds: "),
        "the last seed is one: {}",
        last.stderr
    );
}
