//! What a daemon notes of a device, so that the next daemon of the array finds it: `NAME.attached` in the
//! runtime folder. And the link `/dev/restripe/NAME`.
//!
//! A record is written before the kernel has the device, and removed after the kernel has given it up. So a
//! device without a record is no device of ours, and a record without a device is removed.

use super::node::Node;
use crate::control::{AttachOptions, Driver, Refusal, runtime_folder};
use crate::regular;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The folder of the links.
const LINKS: &str = "/dev/restripe";
const SUFFIX: &str = "attached";

/// An array's device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    /// The number of the device.
    pub device: u32,
    /// The boot of the kernel that has it.
    pub boot: String,
    /// The identifier of the device in the kernel.
    pub backend: String,
    /// How the array was described to the kernel: transmission flags of NBD, attributes of ublk.
    pub flags: u16,
    #[serde(with = "KeptOptions")]
    pub options: AttachOptions,
}

impl Record {
    pub(super) fn node(&self) -> Node {
        Node::new(self.options.driver, self.device)
    }
}

/// [`AttachOptions`] as they are kept. A later version may know more of them: a request with unknown options
/// is refused, but a device with unknown options is better reconnected than lost.
#[derive(Serialize, Deserialize)]
#[serde(remote = "AttachOptions")]
struct KeptOptions {
    #[serde(default)]
    driver: Driver,
    connections: u16,
    timeout_seconds: u64,
    grace_seconds: u64,
    read_only: bool,
    block_bytes: u32,
}

/// Where an array's record and link are.
#[derive(Clone, Debug)]
pub(super) struct Places {
    record: PathBuf,
    link: PathBuf,
    /// This boot of the kernel.
    pub boot: String,
}

impl Places {
    pub(super) fn of(name: &str) -> Places {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id");
        Places::within(
            &runtime_folder(),
            Path::new(LINKS),
            name,
            &boot.unwrap_or_default(),
        )
    }

    pub(super) fn within(records: &Path, links: &Path, name: &str, boot: &str) -> Places {
        Places {
            record: records.join(format!("{name}.{SUFFIX}")),
            link: links.join(name),
            boot: boot.trim().to_owned(),
        }
    }

    /// The arrays that have a record.
    pub(super) fn names() -> Vec<String> {
        let entries = fs::read_dir(runtime_folder()).into_iter().flatten();
        let name = |entry: fs::DirEntry| {
            let path = entry.path();
            let ours = path.extension().is_some_and(|suffix| suffix == SUFFIX);
            ours.then(|| Some(path.file_stem()?.to_str()?.to_owned()))?
        };
        entries.flatten().filter_map(name).collect()
    }

    pub(super) fn link(&self) -> String {
        self.link.display().to_string()
    }

    /// The record, if there is one. One that cannot be read is an error, because its device may be in use.
    pub(super) fn read(&self) -> Result<Option<Record>, Refusal> {
        let read = match regular::read_to_string(&self.record) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => Err(error),
            Ok(text) => serde_json::from_str(&text).map_err(io::Error::other),
        };
        read.map(Some).map_err(|error| {
            Refusal::new(format!(
                "the record of the array's device cannot be read: {error}"
            ))
            .at(self.record.display().to_string())
            .hint("end that device (umount, nbd-client -d), then remove this file")
        })
    }

    pub(super) fn write(&self, record: &Record) -> io::Result<()> {
        let whole = self.record.with_extension("attached.new");
        fs::write(&whole, serde_json::to_vec(record)?)?;
        fs::rename(whole, &self.record)
    }

    /// The device that the link names, if it names one. An error if something else has its place.
    pub(super) fn linked(&self) -> Result<Option<Node>, Refusal> {
        match fs::read_link(&self.link) {
            Ok(target) => Ok(target
                .file_name()
                .and_then(|name| Node::of_name(name.to_str()?))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(_) => Err(Refusal::new("is in the way: it is no link")
                .at(self.link())
                .hint("remove it, or rename it")),
        }
    }

    /// Makes the link, in the place of one that is there.
    pub(super) fn make_link(&self, device: Node) -> io::Result<()> {
        let folder = self.link.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(folder)?;
        // No array's link has this name: names of arrays begin with a letter or digit.
        let mut fresh = OsString::from(".");
        fresh.push(self.link.file_name().unwrap_or_default());
        let fresh = folder.join(fresh);
        remove(&fresh)?;
        symlink(device.path(), &fresh)?;
        fs::rename(fresh, &self.link)
    }

    /// Removes the record, and the link if it is that device's.
    pub(super) fn clear(&self, device: Node) -> io::Result<()> {
        if matches!(self.linked(), Ok(Some(linked)) if linked == device) {
            remove(&self.link)?;
        }
        remove(&self.record)
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
