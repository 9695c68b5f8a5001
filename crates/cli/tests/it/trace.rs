//! `restripe trace`: exit status, what goes to which stream, what is refused, and that what is made says so.

use crate::harness::{Place, line_of};
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

#[test]
fn a_trace_without_a_request_is_an_error_for_every_command() {
    let place = place("trace-nothing");
    let made = place.shell(
        "printf '# a comment\\n' > comments.spc && printf 'Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\\n' > head.csv \
         && printf 'fio version 3 iolog\\n0 f add\\n' > empty.iolog && : > empty.spc && echo text > readme \
         && tar cf readme.tar readme && tar cf head.tar head.csv && gzip -k head.csv \
         && head -c 16 /dev/zero > zeros.srt",
    );
    assert_eq!(made.status, 0, "{}", made.stderr);
    for file in [
        "comments.spc",
        "head.csv",
        "head.csv.gz",
        "empty.iolog",
        "empty.spc",
        "readme.tar",
        "head.tar",
        "zeros.srt",
    ] {
        for verb in [
            "trace info",
            "trace info --skip-bad",
            "trace convert --force --output out.rtrace",
            "trace fit",
            "replay",
            "cache-sim",
            "lab run own-trace --short --seeds 1 --set workload.source=trace:",
        ] {
            let (line, at) = match verb.strip_suffix("--output out.rtrace") {
                Some(line) => (format!("{line}{file} out.rtrace"), file),
                None if verb.ends_with(':') => (format!("{verb}{file}"), file),
                None => (format!("{verb} {file}"), file),
            };
            let run = place.run(&line.split_whitespace().collect::<Vec<_>>());
            assert_eq!((run.status, run.stdout.as_str()), (1, ""), "{line}");
            assert!(run.stderr.contains(at), "{line}: {}", run.stderr);
            assert!(!place.exists("out.rtrace"), "{line}");
        }
    }
}

#[test]
fn an_archive_of_packed_texts_is_one_trace() {
    let place = Place::new("trace-archive");
    let made = place.shell(
        "mkdir MSR && cd MSR \
         && echo 128166372003061629,hm,0,Read,4096,4096,551 > hm_0.csv \
         && echo 128166372003061619,mds,1,Write,8192,512,551 > mds_1.csv \
         && gzip *.csv && echo 'how it was traced' > README.txt && cd .. && tar cf msr.tar MSR && gzip -k msr.tar",
    );
    assert_eq!(made.status, 0, "{}", made.stderr);
    for file in ["msr.tar", "msr.tar.gz"] {
        let run = place.run(&["trace", "info", file]);
        assert_eq!(run.status, 0, "{}", run.stderr);
        assert!(
            line_of(&run.stdout, "format").contains("msr"),
            "{}",
            run.stdout
        );
        assert!(
            line_of(&run.stdout, "devices").contains("2 spanning"),
            "{}",
            run.stdout
        );
        assert!(run.stderr.contains("MSR/README.txt"), "{}", run.stderr);
    }
}

#[test]
fn a_text_of_no_format_is_refused_with_the_nearest_one() {
    let place = place("trace-nearest");
    place.write("mixed.txt", 0, 0, format!("{TEXT}9 9 9\n").as_bytes());
    let run = place.run(&["trace", "info", "mixed.txt"]);
    assert_eq!(run.status, 1);
    for part in ["the nearest is spc", "line 4", "--format spc", "mixed.txt"] {
        assert!(run.stderr.contains(part), "{part}: {}", run.stderr);
    }
    let value = json(
        &place,
        &["trace", "info", "--json", "--skip-bad", "mixed.txt"],
    );
    assert_eq!(
        (&value["format"], &value["skipped"]),
        (&"spc".into(), &1.into())
    );
    let run = place.run(&["trace", "info", "--format", "spd", "t.spc"]);
    assert_eq!(run.status, 2);
    assert!(run.stderr.contains("the nearest is spc"), "{}", run.stderr);
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_text() {
    let place = place("trace-mark");
    place.write("mark.txt", 0, 0, format!("\u{feff}{TEXT}").as_bytes());
    let value = json(&place, &["trace", "info", "--json", "mark.txt"]);
    assert_eq!(
        (&value["format"], &value["summary"]["requests"]),
        (&"spc".into(), &3.into())
    );
}

#[test]
fn every_format_that_can_be_written_is_read_up_to_its_cut_end() {
    let place = Place::new("trace-cut");
    for (format, packed) in [
        ("rtrace", false),
        ("blktrace", false),
        ("spc", true),
        ("disksim", true),
        ("fio", true),
        ("blktrace", true),
    ] {
        let file = if format == "blktrace" {
            "v.blktrace.0".to_string()
        } else {
            format!("v.{format}")
        };
        let made = place.shell(&format!(
            "rm -f v.* && restripe trace generate stable --requests 20000 --seed 1 --to {format} -o {file}"
        ));
        assert_eq!(made.status, 0, "{}", made.stderr);
        let (pack, cut) = match packed {
            true => (format!("gzip {file}"), format!("{file}.gz")),
            false => ("true".into(), file),
        };
        let made = place.shell(&format!("{pack} && truncate -s -20 {cut}"));
        assert_eq!(made.status, 0, "{}", made.stderr);
        let run = place.run(&["trace", "info", &cut]);
        assert_eq!(
            (run.status, run.stdout.as_str()),
            (1, ""),
            "{cut}: {}",
            run.stderr
        );
        assert!(run.stderr.contains("--skip-bad"), "{cut}: {}", run.stderr);
        let value = json(&place, &["trace", "info", "--json", "--skip-bad", &cut]);
        let found = value["summary"]["requests"].as_u64().expect("a number");
        assert!(
            (10_000..20_000).contains(&found) || packed && found == 20_000,
            "{cut}: {found}"
        );
        assert_eq!(value["skipped"], 1, "{cut}");
    }
}
