//! What a run depends on besides its parameters: the content of traces and of drives' files, as digests.

use crate::drives::preset;
use crate::trace::{files, read_twice};
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
    /// What a trace or a drive's file holds is part of a run, which its path does not show. An error names a
    /// file that cannot be read.
    pub(super) fn line(&mut self, source: &str) -> Result<String, String> {
        let Some((kind @ ("trace" | "file"), path)) = source.split_once(':') else {
            return Ok(String::new());
        };
        if let Some(known) = self.0.get(source) {
            return Ok(known.clone());
        }
        let path = Path::new(path);
        let paths = match kind {
            "trace" => {
                read_twice(path).map_err(|error| error.to_string())?;
                files(path).map_err(|error| unread(path, &error))?
            }
            _ => preset::files(path)?,
        };
        let line = format!("content = {}\n", digest(&paths)?);
        self.0.insert(source.into(), line.clone());
        Ok(line)
    }
}

fn unread(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
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
fn digest(paths: &[PathBuf]) -> Result<String, String> {
    let mut state = mix(paths.len() as u64);
    for path in paths {
        let failed = |error| unread(path, &error);
        let file = File::open(path).map_err(failed)?;
        let mut file = BufReader::with_capacity(1 << 20, file);
        let mut length = 0;
        loop {
            let bytes = file.fill_buf().map_err(failed)?;
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
