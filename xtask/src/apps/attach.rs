//! A served array as a block device with a file system: by the kernel's NBD client where there is one, else by nbdfuse
//! and a loop device with direct I/O, so that no data is cached twice.

use super::tools::{Outcome, kernel_client, pause, run, text_error, write};
use super::undo::{Note, Process, Undo};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The kernel's own default, which drives have; that of a loop device depends on the file below it.
const READ_AHEAD_KIB: &str = "128";

/// A mounted file system. Fields end in their order: unmount, detach.
pub struct Mounted {
    device: Device,
    pub place: PathBuf,
    note: Option<Note>,
}

/// How an array became a block device.
enum Device {
    Kernel {
        path: String,
        note: Option<Note>,
    },
    Loop {
        path: String,
        file: PathBuf,
        note: Option<Note>,
        fuse: Option<(Note, Process)>,
    },
}

impl Mounted {
    /// Attaches what is served at the socket, makes a file system if asked to, and mounts it.
    pub fn new(undo: &Undo, socket: &Path, make: bool) -> Outcome<Mounted> {
        let device = Device::attach(undo, socket)?;
        if make {
            // No discards: the whole set is then data that a rebuild must restore.
            run(
                "mkfs.ext4 -q -F -m 0 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0",
                &[device.path()],
            )?;
        }
        let ahead = format!("/sys/block/{}/queue/read_ahead_kb", device.name());
        write(Path::new(&ahead), READ_AHEAD_KIB)?;
        let place = undo.folder().join("mnt");
        fs::create_dir_all(&place).map_err(text_error(&place))?;
        let note = undo.note(format!("umount {}", place.display()))?;
        run(
            "mount -t ext4 -o noatime,nodiscard",
            &[device.path(), &place.display().to_string()],
        )?;
        Ok(Mounted {
            device,
            place,
            note: Some(note),
        })
    }

    /// Requests and milliseconds so far, of reads and writes, as the kernel counts them.
    pub fn traffic(&self) -> Outcome<Traffic> {
        let path = PathBuf::from(format!("/sys/block/{}/stat", self.device.name()));
        let text = fs::read_to_string(&path).map_err(text_error(&path))?;
        Traffic::parse(&text).ok_or(format!("{} has {text}", path.display()))
    }

    /// Unmounts, checks the file system, and detaches.
    pub fn end(mut self) -> Outcome<()> {
        self.unmount()?;
        run("e2fsck -f -n", &[self.device.path()])?;
        self.device.detach()
    }

    fn unmount(&mut self) -> Outcome<()> {
        if self.note.is_some() {
            run("umount", &[&self.place.display().to_string()])?;
            self.note = None;
        }
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // What cannot be unmounted, or detached, is left as it is: its notes remain for the helper.
        if self.unmount().and_then(|()| self.device.detach()).is_err() {
            std::mem::forget(self.note.take());
            std::mem::forget(std::mem::replace(&mut self.device, Device::nothing()));
        }
    }
}

impl Device {
    fn attach(undo: &Undo, socket: &Path) -> Outcome<Device> {
        if kernel_client() {
            return Device::by_kernel(undo, socket);
        }
        let place = undo.folder().join("fuse");
        fs::create_dir_all(&place).map_err(text_error(&place))?;
        let file = place.join("nbd");
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        let mut command = Command::new("nbdfuse");
        command.arg(&file).arg(uri);
        let note = undo.note(format!("umount {}", place.display()))?;
        let mut fuse = Process::start(undo, command, "TERM")?;
        for _ in 0..500 {
            if file.is_file() {
                break;
            }
            fuse.check()?;
            pause(20);
        }
        let path = run(
            "losetup --find --show --direct-io=on",
            &[&file.display().to_string()],
        )?;
        Ok(Device::Loop {
            note: Some(undo.note(format!("loop {path}"))?),
            path,
            file,
            fuse: Some((note, fuse)),
        })
    }

    fn by_kernel(undo: &Undo, socket: &Path) -> Outcome<Device> {
        let free = (0..16).find(|n| {
            Path::new(&format!("/sys/block/nbd{n}")).exists()
                && !Path::new(&format!("/sys/block/nbd{n}/pid")).exists()
        });
        let path = format!("/dev/nbd{}", free.ok_or("no NBD device is free")?);
        run(
            "nbd-client -connections 1 -unix",
            &[&socket.display().to_string(), &path],
        )?;
        Ok(Device::Kernel {
            note: Some(undo.note(format!("nbd {path}"))?),
            path,
        })
    }

    /// One that is not attached.
    fn nothing() -> Device {
        let (path, note) = (String::new(), None);
        Device::Kernel { path, note }
    }

    fn path(&self) -> &str {
        match self {
            Device::Kernel { path, .. } | Device::Loop { path, .. } => path,
        }
    }

    fn name(&self) -> &str {
        self.path().trim_start_matches("/dev/")
    }

    /// May be called again.
    fn detach(&mut self) -> Outcome<()> {
        match self {
            Device::Kernel { path, note } => {
                if note.is_some() {
                    run("nbd-client -d", &[path])?;
                    *note = None;
                }
            }
            Device::Loop {
                path,
                file,
                note,
                fuse,
            } => {
                if note.is_some() {
                    run("losetup -d", &[path])?;
                    *note = None;
                }
                if let Some((_note, mut process)) = fuse.take() {
                    let folder = file.parent().unwrap_or(file).display().to_string();
                    unmount_when_idle(&folder)?;
                    process.wait()?;
                }
            }
        }
        Ok(())
    }
}

/// A loop device lets go of its file a moment after `losetup -d`, or when the last name space that has its mount ends.
fn unmount_when_idle(folder: &str) -> Outcome<()> {
    let mut last = Ok(());
    for _ in 0..600 {
        last = run("umount", &[folder]).map(|_| ());
        if last.is_ok() {
            break;
        }
        pause(100);
    }
    last
}

/// Counters of a block device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    reads: u64,
    read_ms: u64,
    writes: u64,
    write_ms: u64,
}

impl Traffic {
    /// From the text of `/sys/block/*/stat`.
    fn parse(text: &str) -> Option<Traffic> {
        let fields: Vec<u64> = text
            .split_whitespace()
            .map_while(|word| word.parse().ok())
            .collect();
        Some(Traffic {
            reads: *fields.first()?,
            read_ms: *fields.get(3)?,
            writes: *fields.get(4)?,
            write_ms: *fields.get(7)?,
        })
    }

    /// Reads since an earlier reading, and their mean milliseconds.
    pub fn reads_since(&self, earlier: &Traffic) -> (f64, f64) {
        mean(self.reads - earlier.reads, self.read_ms - earlier.read_ms)
    }

    pub fn writes_since(&self, earlier: &Traffic) -> (f64, f64) {
        let milliseconds = self.write_ms - earlier.write_ms;
        mean(self.writes - earlier.writes, milliseconds)
    }
}

/// Zero milliseconds where there is none.
fn mean(count: u64, milliseconds: u64) -> (f64, f64) {
    let count = count as f64;
    (count, milliseconds as f64 / count.max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_of_the_time_between_two_readings() {
        let first = " 151 1 2930 521 184 98 279020 29091 0 2380 29794 0 0 0 0 6 181\n";
        let second = " 161 1 2930 561 184 98 279020 29091 0 2380 29794 0 0 0 0 6 181\n";
        let [first, second] = [first, second].map(|text| Traffic::parse(text).expect("counters"));
        assert_eq!(second.reads_since(&first), (10.0, 4.0));
        assert_eq!(second.writes_since(&first), (0.0, 0.0));
        assert_eq!(Traffic::parse("1 2 3"), None);
    }
}
