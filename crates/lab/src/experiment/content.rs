//! What a run depends on besides its parameters: the content of traces and of drives' files, as digests.

use crate::drives::preset;
use crate::trace::files;
use restripe_sim::rng::mix;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

/// What traces and files of drives hold, by the name of the source: a trace is long, and an experiment has
/// many cells.
#[derive(Default)]
pub struct Contents(BTreeMap<String, String>);

impl Contents {
    /// What a trace or a drive's file holds is part of a run, and its path does not tell; one that cannot be
    /// read fails the run later.
    pub(super) fn line(&mut self, source: &str) -> String {
        let read = || {
            let content = match source.split_once(':') {
                Some(("trace", path)) => files(Path::new(path)).and_then(|paths| digest(&paths)),
                Some(("file", path)) => preset::files(Path::new(path))
                    .map_err(io::Error::other)
                    .and_then(|paths| digest(&paths)),
                _ => return String::new(),
            };
            content.map_or_else(|_| String::new(), |digest| format!("content = {digest}\n"))
        };
        self.0.entry(source.into()).or_insert_with(read).clone()
    }
}

pub(super) fn hash(text: &str) -> String {
    let mut state = mix(text.len() as u64);
    for byte in text.bytes() {
        state = mix(state ^ u64::from(byte));
    }
    format!("{state:016x}")
}

/// Goes on with a digest, by words of eight: programs and traces are long.
pub(super) fn digested(state: u64, bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(state, |state, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(state ^ u64::from_le_bytes(word))
    })
}

/// Of the bytes of all files, one after another, by words of eight.
fn digest(paths: &[PathBuf]) -> io::Result<String> {
    let mut state = mix(paths.len() as u64);
    for path in paths {
        let mut file = BufReader::with_capacity(1 << 20, File::open(path)?);
        let mut length = 0;
        loop {
            let bytes = file.fill_buf()?;
            if bytes.is_empty() {
                break;
            }
            state = digested(state, bytes);
            let read = bytes.len();
            length += read as u64;
            file.consume(read);
        }
        state = mix(state ^ length);
    }
    Ok(format!("{state:016x}"))
}
