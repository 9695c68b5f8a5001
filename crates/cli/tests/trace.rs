//! `restripe trace`: exit status, what goes to which stream, what is refused, and that what is made says so.

#[allow(dead_code)]
mod harness;

use harness::{Place, line_of};
use serde_json::Value;

const TEXT: &str = "0,100,4096,w,0.000000\n1,200,8192,r,0.500000\n0,108,4096,w,1.000000\n";

/// A folder with a small trace, `t.spc`.
fn place(name: &str) -> Place {
    let place = Place::new(name);
    place.write("t.spc", 0, 0, TEXT.as_bytes());
    place
}

fn json(place: &Place, arguments: &[&str]) -> Value {
    let run = place.run(arguments);
    assert_eq!(run.status, 0, "{}", run.stderr);
    serde_json::from_str(&run.stdout).expect("it is JSON")
}

#[test]
fn info_tells_what_a_trace_is_like_as_text_and_as_json() {
    let place = place("trace-info");
    let run = place.run(&["trace", "info", "t.spc"]);
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    assert_eq!(line_of(&run.stdout, "writes "), "writes      66.7%");
    assert_eq!(
        line_of(&run.stdout, "devices"),
        "devices     2 spanning 0.0 GiB"
    );
    let value = json(&place, &["trace", "info", "--json", "t.spc"]);
    assert_eq!(value["format"], "spc");
    assert_eq!(value["summary"]["requests"], 3);
    assert_eq!(value["summary"]["duration_ns"], 1_000_000_000u64);
    assert_eq!(
        (&value["label"], &value["synthetic"]),
        (&Value::Null, &false.into())
    );
}

#[test]
fn a_bad_line_is_an_error_with_its_number_or_skipped_and_counted() {
    let place = place("trace-bad");
    place.write(
        "bad.spc",
        0,
        0,
        format!("{TEXT}0,junk,4096,w,2\n{TEXT}").as_bytes(),
    );
    for verb in [
        &["info", "bad.spc"][..],
        &["convert", "bad.spc", "out.rtrace"],
    ] {
        let run = place.run(&[&["trace"], verb].concat());
        assert_eq!((run.status, run.stdout.as_str()), (1, ""));
        assert!(run.stderr.contains("bad.spc, line 4"), "{}", run.stderr);
        assert!(run.stderr.contains("--skip-bad"), "{}", run.stderr);
        assert!(!place.exists("out.rtrace") && !place.exists("out.rtrace.partial"));
    }
    let value = json(
        &place,
        &["trace", "info", "--json", "--skip-bad", "bad.spc"],
    );
    assert_eq!(
        (&value["skipped"], &value["summary"]["requests"]),
        (&1.into(), &6.into())
    );
    let run = place.run(&["trace", "convert", "--skip-bad", "bad.spc", "out.rtrace"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(
        run.stderr.contains("skipped 1 bad records"),
        "{}",
        run.stderr
    );
}

#[test]
fn wrong_use_is_status_2_and_what_is_no_trace_status_1() {
    let place = place("trace-wrong");
    place.write("text", 0, 0, b"hello\n");
    for (status, arguments) in [
        (2, &[][..]),
        (2, &["info", "--format", "bogus", "t.spc"]),
        (2, &["info", "--action", "X", "t.spc"]),
        (2, &["convert", "t.spc", "out", "--to", "srt"]),
        (2, &["slice", "t.spc", "out", "--requests", "9..1"]),
        (1, &["slice", "t.spc", "out", "--requests", "1000000.."]),
        (2, &["scale", "t.spc", "out"]),
        (2, &["scale", "t.spc", "out", "--time", "0"]),
        (2, &["remap", "t.spc", "out"]),
        (2, &["generate", "fin3", "-o", "out"]),
        (2, &["generate", "fin1"]),
        (2, &["generate", "noise-low", "-o", "out"]),
        (1, &["info", "missing"]),
        (1, &["info", "text"]),
        (1, &["generate", "text", "-o", "out"]),
        (1, &["fit", "t.spc"]),
        (1, &["convert", "t.spc", "t.spc"]),
    ] {
        let run = place.run(&[&["trace"], arguments].concat());
        assert_eq!(run.status, status, "{arguments:?}: {}", run.stderr);
        assert!(
            run.stdout.is_empty() && !run.stderr.is_empty(),
            "{arguments:?}"
        );
    }
    assert_eq!(place.bytes("t.spc"), TEXT.as_bytes());
}

#[test]
fn a_pipe_is_refused_by_whatever_reads_a_trace_twice() {
    let place = place("trace-pipe");
    for verb in [
        "trace info <(cat t.spc)",
        "trace slice <(cat t.spc) out",
        "trace convert <(cat t.spc) out",
        "trace fit <(cat t.spc)",
        "replay <(cat t.spc)",
        "cache-sim <(cat t.spc)",
    ] {
        let run = place.shell(&format!("restripe {verb}"));
        assert_eq!((run.status, run.stdout.as_str()), (1, ""), "{verb}");
        assert!(run.stderr.contains("it is read twice"), "{}", run.stderr);
        assert!(!place.exists("out"));
    }
}

#[test]
fn shaping_keeps_what_it_does_not_change() {
    let place = place("trace-shape");
    let shaped = |arguments: &[&str]| {
        let run = place.run(&[&["trace"], arguments, &["--force", "--to", "spc"]].concat());
        assert_eq!(run.status, 0, "{}", run.stderr);
        String::from_utf8(place.bytes("out")).expect("text")
    };
    assert_eq!(
        shaped(&["slice", "t.spc", "out", "--from", "500ms"]),
        "1,200,8192,r,0.000000000\n0,108,4096,w,0.500000000\n"
    );
    assert_eq!(
        shaped(&["slice", "t.spc", "out", "--requests", "1..2"]),
        "1,200,8192,r,0.500000000\n"
    );
    let scaled = shaped(&["scale", "t.spc", "out", "--rate", "2"]);
    assert!(scaled.ends_with("0,108,4096,w,0.500000000\n"), "{scaled}");
    let folded = shaped(&["remap", "t.spc", "out", "--fold", "--align", "1M"]);
    assert_eq!(folded.lines().nth(1), Some("0,2248,8192,r,0.500000000"));
    let run = place.run(&["trace", "formats"]);
    assert_eq!((run.status, run.stdout.lines().count()), (0, 16));
}

#[test]
fn what_is_generated_is_the_same_every_time_and_says_what_it_is() {
    let place = Place::new("trace-generate");
    let listed = place.run(&["trace", "generate"]).stdout;
    assert_eq!(listed.lines().count(), 13, "{listed}");
    let generate = |workload: &str, seed: &str, output: &str| {
        let size = ["--requests", "3000", "--seed", seed, "-o", output];
        let run = place.run(&[&["trace", "generate", workload], &size[..]].concat());
        assert_eq!(run.status, 0, "{}", run.stderr);
        assert!(run.stdout.contains("synthetic: workload"), "{}", run.stdout);
        place.bytes(output)
    };
    let first = generate("fin1-high", "5", "a.rtrace");
    assert!(first == generate("fin1-high", "5", "b.rtrace"));
    assert!(first != generate("fin1-high", "6", "c.rtrace"));
    let value = json(&place, &["trace", "info", "--json", "a.rtrace"]);
    assert_eq!(value["synthetic"], true);
    assert_eq!(value["label"], "synthetic: workload fin1-high, seed 5");
    // Parameters as printed make the same trace.
    let printed = place
        .run(&["trace", "generate", "fin1-high", "--parameters"])
        .stdout;
    assert!(printed.contains("write_share = 0.7684"), "{printed}");
    place.write("own.toml", 0, 0, printed.as_bytes());
    assert!(first == generate("own.toml", "5", "d.rtrace"));
    // What is made of it keeps saying so.
    for (format, output) in [("spc", "a.spc"), ("rtrace", "a2.rtrace")] {
        let run = place.run(&["trace", "convert", "a.rtrace", output, "--to", format]);
        assert_eq!(run.status, 0, "{}", run.stderr);
        let value = json(&place, &["trace", "info", "--json", output]);
        assert_eq!(value["label"], "synthetic: workload fin1-high, seed 5");
        assert_eq!(value["summary"]["requests"], 3000);
    }
}

#[test]
fn a_fit_shows_both_sides_and_writes_what_generate_takes() {
    let place = Place::new("trace-fit");
    let made = [
        "trace",
        "generate",
        "stable",
        "--requests",
        "5000",
        "-o",
        "t.rtrace",
    ];
    assert_eq!(place.run(&made).status, 0);
    let run = place.run(&["trace", "fit", "t.rtrace", "-o", "own.toml"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(
        run.stdout
            .lines()
            .next()
            .is_some_and(|line| line.ends_with("real    synthetic"))
    );
    for row in ["writes, %", "in-sample, top 20%", "learned, top 20%"] {
        assert!(!line_of(&run.stdout, row).is_empty(), "{}", run.stdout);
    }
    let again = [
        "trace",
        "generate",
        "own.toml",
        "--requests",
        "100",
        "-o",
        "again.rtrace",
    ];
    assert_eq!(place.run(&again).status, 0);
    let refused = place.run(&["trace", "fit", "t.rtrace", "-o", "own.toml"]);
    assert!(
        refused.status == 1 && refused.stderr.contains("--force"),
        "{}",
        refused.stderr
    );
    let value = json(&place, &["trace", "fit", "--json", "t.rtrace"]);
    assert_eq!(value["parameters"]["write_sizes"][0][0], 4096);
    assert_eq!(value["synthetic"]["requests"], 5000);
}
