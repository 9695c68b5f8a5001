//! A file system mounted by Linux on an array with a surrogate: the kernel of the rig's guest holds it through a member's
//! failure, the daemon's death and the way home, and its `fsck` is the judge (tests/md/mounted.py).

use super::guest::{ENGINES, Guest};
use super::house::Outcome;
use super::{END, Verdicts, verdicts};
use std::fs;
use std::path::Path;

pub const NAME: &str = "mounted";
/// Of the guest as a whole: a minute where it runs at native speed.
const SECONDS: u64 = 900;
/// What the script tells of a run that went to its end.
const TOLD: [&str; 5] = ["away", "killed", "fsck", "files", "stop"];

/// What came of it, by what was to be seen. Restripe runs in the guest, too.
pub fn run(root: &Path, rig: &Path, folder: &Path) -> Outcome<Verdicts> {
    let folder = folder.join(NAME);
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let binary = format!("/host{}", super::binary()?.display());
    let guest = Guest {
        root,
        rig,
        folder: &folder,
        options: Vec::new(),
        seconds: SECONDS,
    };
    let said = guest.run(&ENGINES, "mounted.py", &[&binary])?;
    if !said.lines().any(|line| line == END) {
        return Err(format!("the guest ended before its end; it said:\n{said}"));
    }
    let mut found = verdicts(&said);
    for what in TOLD {
        let missing = || Err(format!("nothing is said of it:\n{said}"));
        found
            .entry(format!("{NAME}/{what}"))
            .or_insert_with(missing);
    }
    Ok(found)
}
