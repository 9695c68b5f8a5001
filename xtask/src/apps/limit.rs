//! A limit of memory for the programs under test, with the file system's cache that they cause: a control group below
//! this process's own. Without it a machine's memory would hold all data, and no drive would be read.

use super::tools::{Outcome, text_error, write};
use super::undo::{Note, Undo};
use std::fs;
use std::path::{Path, PathBuf};

/// The group, removed when this is dropped.
pub struct Limit {
    folder: PathBuf,
    _note: Note,
}

impl Limit {
    /// Of both versions of control groups, whichever limits memory here.
    pub fn new(undo: &Undo, mib: u32) -> Outcome<Limit> {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let (parent, file) = place(&own).ok_or("no control group limits memory here")?;
        let name = format!("restripe-apps-{}", std::process::id());
        let folder = Path::new("/sys/fs/cgroup").join(parent).join(name);
        let note = undo.note(format!("group {}", folder.display()))?;
        fs::create_dir(&folder).map_err(text_error(&folder))?;
        let limit = Limit {
            folder,
            _note: note,
        };
        write(
            &limit.folder.join(file),
            &(u64::from(mib) << 20).to_string(),
        )?;
        Ok(limit)
    }

    /// The file that takes a process's number.
    pub fn members(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        // Its processes have ended; a group that cannot be removed has no process and costs nothing.
        for _ in 0..20 {
            if fs::remove_dir(&self.folder).is_ok() {
                break;
            }
            super::tools::pause(100);
        }
    }
}

/// The folder below the mount point, and the name of the file with the limit.
fn place(own: &str) -> Option<(PathBuf, &'static str)> {
    let mut unified = None;
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        if controllers.split(',').any(|name| name == "memory") {
            return Some((Path::new("memory").join(path), "memory.limit_in_bytes"));
        }
        if controllers.is_empty() {
            unified = Some((PathBuf::from(path), "memory.max"));
        }
    }
    unified
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_that_limits_memory_is_used() {
        let mixed = "9:name=systemd:/\n4:memory:/a/b\n0::/c\n";
        let found = place(mixed).expect("a place");
        assert_eq!(found, ("memory/a/b".into(), "memory.limit_in_bytes"));
        let found = place("0::/user.slice\n").expect("a place");
        assert_eq!(found, ("user.slice".into(), "memory.max"));
        assert_eq!(place(""), None);
    }
}
