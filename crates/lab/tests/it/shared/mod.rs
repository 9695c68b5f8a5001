//! The folder of real traces and measured drives: the one that `RESTRIPE_SHARED` names, `../shared` beside the project
//! otherwise.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A folder of it that holds this file, or a note in the list of skips that the test cannot run.
pub fn folder(name: &str, file: &str, test: &str) -> Option<PathBuf> {
    let shared = match std::env::var_os("RESTRIPE_SHARED") {
        Some(named) => PathBuf::from(named),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
    };
    let found = Some(shared.join(name)).filter(|folder| folder.join(file).is_file());
    if found.is_none() {
        skip(test, &format!("the shared folder of {name} is not there"));
    }
    found
}

fn skip(test: &str, reason: &str) {
    eprintln!("skipped {test}: {reason}");
    if let Some(list) = std::env::var_os("RESTRIPE_SKIPS") {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(list)
            .expect("the list of skips");
        writeln!(file, "{test}: {reason}").expect("room");
    }
}
