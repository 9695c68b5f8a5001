//! Text from outside is shown, not obeyed: each source on each surface.

use super::{mirror, until};
use crate::harness::{Daemon, Place};
use restripe_array::meta::Superblock;
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::thread;

/// Sets the title, wipes the screen, forges a line, colours (in one byte, too), and turns letters around.
const HOSTILE: &str =
    "x\u{1b}]0;owned\u{7}\u{1b}[2J\nrestripe: tank: healthy\r\u{9b}31m\u{202e}\u{7f}y";
/// What its forged line begins with.
const FORGED: &str = "restripe: tank: healthy";

fn check(source: &str, surface: &str, text: &str) {
    for c in text.chars() {
        let obeyed = c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!obeyed, "{source} on {surface}: {c:?} in {text:?}");
    }
    let forged = text
        .lines()
        .any(|line| line.trim_start().starts_with(FORGED));
    assert!(!forged, "{source} on {surface}: {text:?}");
}

/// A server that refuses every option with such a text.
fn refusing_server(place: &Place) -> String {
    let socket = place.path("hostile.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // The command may hang up first.
            let _ = (|| -> std::io::Result<()> {
                stream.write_all(b"NBDMAGICIHAVEOPT\0\x03")?;
                stream.read_exact(&mut [0; 4])?;
                loop {
                    let mut option = [0; 16];
                    stream.read_exact(&mut option)?;
                    let bytes = u32::from_be_bytes(option[12..].try_into().expect("four"));
                    stream.read_exact(&mut vec![0; bytes as usize])?;
                    stream.write_all(&0x0003_e889_0455_65a9_u64.to_be_bytes())?;
                    stream.write_all(&option[8..12])?;
                    stream.write_all(&0x8000_0003_u32.to_be_bytes())?;
                    stream.write_all(&(HOSTILE.len() as u32).to_be_bytes())?;
                    stream.write_all(HOSTILE.as_bytes())?;
                }
            })();
        }
    });
    format!("nbd+unix:///?socket={socket}")
}

/// Serves an array called `tank` with its log in a file.
fn serve(place: &Place, members: &[&str]) -> Daemon {
    let log = File::create(place.path("log")).expect("a file");
    let arguments = [&["serve", "--unix", "nbd.sock"], members].concat();
    let child = place
        .command(&arguments)
        .stdout(std::process::Stdio::null())
        .stderr(log)
        .spawn();
    let daemon = Daemon::of(child.expect("it runs"));
    until("it serves", || place.run(&["status", "tank"]).status == 0);
    daemon
}

fn all(place: &Place, source: &str, verbs: &[&[&str]]) {
    for verb in verbs {
        let run = place.run(verb);
        check(source, &format!("{verb:?}"), &(run.stdout + &run.stderr));
    }
}

#[test]
fn what_a_server_says_is_shown() {
    let place = mirror("server");
    let uri = refusing_server(&place);
    all(
        &place,
        "a server",
        &[
            &["examine", &uri],
            &["examine", "--json", &uri],
            &["examine", "--export", &uri],
            &["serve", &uri],
            &["assemble", "a.img", &uri],
            &[
                "create",
                "new",
                "--level",
                "raid1",
                &uri,
                "c.img",
                "--image-size",
                "16M",
            ],
            &["status", "tank", "--offline", "a.img", &uri],
            &["replay", "none.spc", "--nbd", &uri],
        ],
    );
    let _daemon = serve(&place, &["a.img", "b.img"]);
    all(
        &place,
        "a server",
        &[
            &["add", "tank", &uri],
            &["replace", "tank", "a.img", &uri],
            &["grow", "tank", "--add", &uri],
            &["status", "tank"],
            &["status", "tank", "--json"],
        ],
    );
    let log = String::from_utf8(place.bytes("log")).expect("text");
    check("a server", "the log", &log);
}

#[test]
fn a_path_is_shown() {
    let place = Place::new("path");
    let member = HOSTILE;
    let trace = format!("{HOSTILE}.spc");
    place.write(
        "few",
        0,
        0,
        b"0,100,4096,w,0.000000\n0,200,8192,r,0.500000\n",
    );
    std::fs::rename(place.path("few"), place.path(&trace)).expect("ours");
    all(
        &place,
        "a path",
        &[
            &[
                "create",
                "tank",
                "--level",
                "raid1",
                "--image-size",
                "16M",
                member,
                "b.img",
            ],
            &[
                "create", "tank", "--level", "raid1", member, "b.img", "--force",
            ],
            &["create", "tank", "--level", "raid1", "--config", member],
            &["examine", member],
            &["examine", "missing", member],
            &["assemble", member, "b.img"],
            &["assemble", member],
            &["trace", "info", &trace],
            &["trace", "convert", &trace, &format!("{HOSTILE}.rtrace")],
            &[
                "trace",
                "convert",
                &trace,
                &format!("{HOSTILE}/none.rtrace"),
            ],
            &["cache-sim", &trace],
            &["replay", &trace],
            &[
                "replay",
                &trace,
                "--json",
                "replay.json",
                "--report",
                "replay.html",
            ],
            &["lab", "run", member],
            &["sim", "--replay", member],
        ],
    );
    let page = String::from_utf8(place.bytes("replay.html")).expect("text");
    check("a path", "a report", &page);
    let daemon = serve(&place, &[member, "b.img"]);
    all(
        &place,
        "a path",
        &[
            &["status", "tank"],
            &["metrics", "tank"],
            &["fail", "tank", member, "--yes"],
            &["status", "tank"],
            &["add", "tank", member],
            &["rebuild", "tank"],
            &["stop", "tank"],
        ],
    );
    assert_eq!(daemon.wait(), 0);
    let log = String::from_utf8(place.bytes("log")).expect("text");
    check("a path", "the log", &log);
    assert!(
        log.contains("x\\u001b]0;owned\\u0007\\u001b[2J\\nrestripe"),
        "{log}"
    );
    let json = place.run(&["examine", "--json", member]).stdout;
    check("a path", "JSON", &json);
    let value: Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!(value[0]["member"], HOSTILE, "and nothing of it is lost");
}

/// The format lets no control characters into a name, so what is left are letters that turn others around.
#[test]
fn a_name_in_a_superblock_is_shown() {
    let place = mirror("name");
    for image in ["a.img", "b.img"] {
        let mut bytes = place.bytes(image);
        for at in [0, 224, 480, 992, 2016, 4064, 8160].map(|sector| sector * 512) {
            if let Ok(mut superblock) = Superblock::decode(&bytes[at..at + 16384]) {
                superblock.name = "a\u{202e}b\\\"<b>".into();
                let pages = superblock.encode().expect("a sound superblock");
                let whole: Vec<u8> = pages.iter().flat_map(|page| page.iter().copied()).collect();
                bytes[at..at + whole.len()].copy_from_slice(&whole);
            }
        }
        place.write(image, 0, 0, &bytes);
    }
    let examined = place.run(&["examine", "a.img"]).stdout;
    assert!(
        examined.contains("\\u{202e}") || examined.contains("\\u202e"),
        "{examined}"
    );
    all(
        &place,
        "a name",
        &[
            &["examine", "a.img"],
            &["examine", "--json", "a.img"],
            &["examine", "--export", "a.img"],
            &["assemble", "a.img", "b.img"],
            &["assemble", "--json", "a.img", "b.img"],
            &["status", "--offline", "a.img", "b.img"],
            &["status", "--json", "--offline", "a.img", "b.img"],
            &["metrics", "tank", "--offline", "a.img", "b.img"],
            &["serve", "a.img", "b.img"],
            &["create", "new", "--level", "raid1", "a.img", "b.img"],
            &[
                "create", "new", "--level", "raid1", "a.img", "b.img", "--force",
            ],
        ],
    );
}

#[test]
fn what_a_file_holds_is_shown() {
    let place = Place::new("content");
    let (toml, spc) = (
        format!("name = \"{HOSTILE}\"\n"),
        format!("0,1,4096,w,0.0\n{HOSTILE}\n"),
    );
    place.write("hostile.toml", 0, 0, toml.as_bytes());
    place.write("hostile.spc", 0, 0, spc.as_bytes());
    place.write(
        "hostile.csv",
        0,
        0,
        format!("128166372003061629,{HOSTILE},0,Read,0,4096,1\n").as_bytes(),
    );
    place.write("hostile.img", 1 << 20, 0, HOSTILE.as_bytes());
    all(
        &place,
        "a file",
        &[
            &["create", "--config", "hostile.toml"],
            &["serve", "--config", "hostile.toml"],
            &["lab", "run", "hostile.toml"],
            &["trace", "info", "hostile.spc"],
            &["trace", "info", "--skip-bad", "hostile.spc"],
            &["trace", "info", "hostile.csv"],
            &["trace", "info", "--format", "msr", "hostile.csv"],
            &[
                "trace",
                "generate",
                "--parameters",
                "hostile.toml",
                "x.rtrace",
            ],
            &["replay", "hostile.spc"],
            &["cache-sim", "hostile.csv"],
            &["examine", "hostile.img"],
            &["assemble", "hostile.img"],
        ],
    );
}
