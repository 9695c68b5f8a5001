//! File systems that Linux mounts on attached arrays: the kernel of the rig's guest holds them through failures of
//! members and deaths of daemons, and its `fsck` is the judge.

use super::guest::{ENGINES, Engine, Guest};
use super::house::{Outcome, words};
use super::{END, Verdicts, verdicts};
use std::fs;
use std::path::Path;

/// Of the guest as a whole: a minute where it runs at native speed.
const SECONDS: u64 = 900;
/// Of the rig's: the kernel that has ublk.
const WITH_UBLK: [&str; 2] = ["--kernel", "6.12"];

/// A script of tests/md, and what it reports of a run that went to its end.
pub struct Life {
    pub name: &'static str,
    reports: &'static [&'static str],
    /// Where it can run, the fastest first, and with which options of the rig.
    engines: &'static [Engine],
    options: &'static [&'static str],
}

/// With a surrogate (tests/md/mounted.py), what `attach` promises (tests/md/attached.py), the same through ublk
/// (tests/md/ublk.py), and through Linux's iSCSI initiator (tests/md/iscsi.py).
pub const LIVES: [Life; 4] = [
    Life {
        name: "mounted",
        reports: &["away", "killed", "fsck", "files", "stop"],
        engines: &ENGINES,
        options: &[],
    },
    Life {
        name: "attached",
        reports: &[
            "module",
            "root",
            "device",
            "again",
            "fio",
            "busy",
            "killed",
            "restarted",
            "retried",
            "unconnected",
            "rebuilt",
            "grown",
            "files",
            "detached",
            "read-only",
            "orphan",
            "foreign",
            "stop",
        ],
        engines: &ENGINES,
        options: &[],
    },
    Life {
        name: "ublk",
        reports: &[
            "module",
            "device",
            "again",
            "raw",
            "fio",
            "busy",
            "killed",
            "restarted",
            "full",
            "interrupted",
            "unconnected",
            "rebuilt",
            "grown",
            "files",
            "detached",
            "read-only",
            "orphan",
            "lost",
            "nbd",
            "stop",
        ],
        engines: &[Engine::Emulated],
        options: &WITH_UBLK,
    },
    Life {
        name: "iscsi",
        reports: &["files", "errors", "identity", "multipath", "kernel", "stop"],
        engines: &ENGINES,
        options: &[],
    },
];

/// What came of it, by what was to be seen. Restripe runs in the guest, too.
pub fn run(root: &Path, rig: &Path, folder: &Path, life: &Life) -> Outcome<Verdicts> {
    let name = life.name;
    let folder = folder.join(name);
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let binary = format!("/host{}", super::binary()?.display());
    let guest = Guest {
        root,
        rig,
        folder: &folder,
        options: words(life.options),
        seconds: SECONDS,
    };
    let said = guest.run(life.engines, &format!("{name}.py"), &[&binary])?;
    if !said.lines().any(|line| line == END) {
        return Err(format!("the guest ended before its end; it said:\n{said}"));
    }
    let mut found = verdicts(&said);
    for what in life.reports {
        let missing = || Err(format!("nothing is said of it:\n{said}"));
        found
            .entry(format!("{name}/{what}"))
            .or_insert_with(missing);
    }
    Ok(found)
}
