//! Results as files: what is kept is what was found, or is as good as absent.
//!
//! A file is a JSON object: first `digest`, over all bytes that follow it, then `of`, the text that the
//! result is of, then `result`. So a digit that changes on the disk does not become a number of a table.

use super::content::digested;
use restripe_sim::rng::mix;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::Path;

/// What stands before the digest, and between it and what it is of.
const BEFORE: &[u8] = b"{\"digest\":\"";
const BEHIND: &[u8] = b"\",";
/// Hexadecimal digits of a digest.
const DIGITS: usize = 16;

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
    let partial = path.with_extension(format!("{}.partial", std::process::id()));
    fs::write(&partial, bytes)?;
    fs::rename(&partial, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_counts() {
        let digests = [&b"0123456789"[..], b"012345678", b"0123456798"].map(digest);
        assert!(digests[0] != digests[1] && digests[0] != digests[2]);
    }
}
