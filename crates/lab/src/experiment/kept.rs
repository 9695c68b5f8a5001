//! Results as files: what is kept is what was found, or is as good as absent.
//!
//! A file is a JSON object: first `digest`, over all bytes that follow it, then `of`, the text that the
//! result is of, then `result`. So a digit that changes on the disk does not become a number of a table.

use super::content::digested;
use restripe_sim::rng::mix;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// What stands before the digest, and between it and what it is of.
const BEFORE: &[u8] = b"{\"digest\":\"";
const BEHIND: &[u8] = b"\",";
/// Hexadecimal digits of a digest.
const DIGITS: usize = 16;
/// The ending of a file that is not whole.
const PARTIAL: &str = "partial";
/// The age of a partial file that no process writes any more: a result is written in milliseconds.
const ABANDONED: Duration = Duration::from_secs(3600);
/// More than a result takes, in bytes.
const ROOM: usize = 4 << 20;

/// Every byte counts, and so does their number.
pub(super) fn digest(bytes: &[u8]) -> String {
    format!("{:016x}", digested(mix(bytes.len() as u64), bytes))
}

/// What is written, but for its digest.
#[derive(Serialize)]
struct Writing<'a, T> {
    of: &'a str,
    result: &'a T,
}

#[derive(Deserialize)]
struct Reading<T> {
    of: String,
    result: T,
}

/// What cannot be read, is of another text, or has another digest than it says, is as good as absent.
pub(super) fn recall<T: DeserializeOwned>(path: &Path, text: &str) -> Option<T> {
    let bytes = fs::read(path).ok()?;
    let (said, rest) = bytes.strip_prefix(BEFORE)?.split_at_checked(DIGITS)?;
    let content = rest.strip_prefix(BEHIND)?;
    if digest(content).as_bytes() != said {
        return None;
    }
    let kept: Reading<T> = serde_json::from_slice(&bytes).ok()?;
    (kept.of == text).then_some(kept.result)
}

/// Whole or not at all: a run that is cut short leaves no half result.
pub(super) fn keep<T: Serialize>(path: &Path, text: &str, result: &T) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let object = serde_json::to_vec(&Writing { of: text, result }).map_err(io::Error::other)?;
    let content = object.strip_prefix(b"{").unwrap_or(&object);
    let bytes = [BEFORE, digest(content).as_bytes(), BEHIND, content].concat();
    let partial = path.with_extension(own());
    let kept = fs::write(&partial, bytes).and_then(|()| fs::rename(&partial, path));
    if kept.is_err() {
        // It may not be there; the error above is the one that counts.
        drop(fs::remove_file(&partial));
    }
    kept
}

/// How the names of files end that this process has not written whole yet.
fn own() -> String {
    format!("{}.{PARTIAL}", std::process::id())
}

/// Makes a folder for results, and sees that there is room for one. Partial files of killed processes are
/// removed.
///
/// # Errors
///
/// The folder cannot be made or written, or is full.
pub fn prepare(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let abandoned = |path: &Path| {
        let modified = fs::metadata(path).and_then(|data| data.modified());
        let age = modified.map(|at| at.elapsed().unwrap_or_default());
        age.is_ok_and(|age| age > ABANDONED)
    };
    remove(folder, abandoned);
    let probe = folder.join("room").with_extension(own());
    let written = fs::write(&probe, vec![b' '; ROOM]);
    let removed = fs::remove_file(&probe);
    written.and(removed)
}

/// Removes what this process has not written whole, before it ends.
pub fn clear(folder: &Path) {
    let own = format!(".{}", own());
    let is_own = |path: &Path| {
        let name = path.file_name().and_then(OsStr::to_str);
        name.is_some_and(|name| name.ends_with(&own))
    };
    remove(folder, is_own);
}

/// Removes partial files. One that cannot be removed does no harm.
fn remove(folder: &Path, which: impl Fn(&Path) -> bool) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let partial = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == PARTIAL));
    for path in partial.filter(|path| which(path)) {
        drop(fs::remove_file(path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn a_folder_is_prepared_and_what_was_abandoned_in_it_is_removed() {
        let folder = std::env::temp_dir().join(format!("restripe-kept-{}", std::process::id()));
        prepare(&folder).expect("a folder of ours");
        let file = |name: &str, seconds: u64| {
            let path = folder.join(name);
            let file = fs::File::create(&path).expect("ours");
            let then = SystemTime::now() - Duration::from_secs(seconds);
            file.set_modified(then).expect("ours");
        };
        let own = own();
        file("1.77.partial", 7200);
        file("2.77.partial", 60);
        file(&format!("3.{own}"), 60);
        file("4.json", 7200);
        file("partial", 7200);
        let names = || {
            let entries = fs::read_dir(&folder).expect("ours").flatten();
            let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
            names.sort();
            names
        };
        prepare(&folder).expect("a folder of ours");
        assert_eq!(
            names(),
            ["2.77.partial", &format!("3.{own}"), "4.json", "partial"]
        );
        clear(&folder);
        assert_eq!(names(), ["2.77.partial", "4.json", "partial"]);
        fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn every_byte_counts() {
        let digests = [&b"0123456789"[..], b"012345678", b"0123456798"].map(digest);
        assert!(digests[0] != digests[1] && digests[0] != digests[2]);
    }
}
