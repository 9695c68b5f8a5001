//! Devices: how they are named, opened and probed. The modules below carry out the engine's operations on
//! each kind of device; [`crate::host`] drives them.

pub mod disk;
pub mod durability;
pub mod file;
pub mod nbd;
pub mod ram;

use crate::backend::PowerHook;
use crate::nbd_wire::uri::{NbdUri, UriError};
use restripe_array::shown;
use restripe_array::{MemberInfo, Uuid};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where a member's bytes are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MemberSource {
    /// A file or a block device.
    Path(PathBuf),
    /// Memory of this process: for tests and measurements.
    Ram { bytes: u64 },
    /// An export of an NBD server.
    Nbd(NbdUri),
}

impl MemberSource {
    /// `ram:SIZE`, an NBD URI, or a path.
    pub fn parse(text: &str) -> Result<MemberSource, OpenError> {
        let fail = |why| OpenError {
            member: text.to_owned(),
            why,
        };
        if let Some(size) = text.strip_prefix("ram:") {
            let bytes = parse_size(size).ok_or_else(|| fail(OpenFailure::Size))?;
            return Ok(MemberSource::Ram { bytes });
        }
        if NbdUri::looks_like(text) {
            return NbdUri::parse(text)
                .map(MemberSource::Nbd)
                .map_err(|error| fail(OpenFailure::Uri(error)));
        }
        Ok(MemberSource::Path(PathBuf::from(text)))
    }
}

/// A number with an optional K, M, G or T: powers of 1024.
fn parse_size(text: &str) -> Option<u64> {
    let shift = match text.bytes().last()?.to_ascii_uppercase() {
        b'K' => 10,
        b'M' => 20,
        b'G' => 30,
        b'T' => 40,
        _ => 0,
    };
    let digits = if shift == 0 {
        text
    } else {
        &text[..text.len() - 1]
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenOptions {
    /// Bypass the page cache where the file system allows it.
    pub direct: bool,
    pub read_only: bool,
    /// Nobody else may have it open meanwhile. Without this a member is only looked at, and its daemon goes on.
    pub exclusive: bool,
    /// The logical block to report for a file; devices know their own.
    pub file_block: u32,
    /// How long a member may be in use before that is an error: the kernel lets go of a killed process's files a
    /// moment after the process is gone.
    pub patience: Duration,
    /// What tells a member's spindle to turn or to stand still, in the kernel's place.
    pub power: Option<PowerHook>,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            direct: true,
            read_only: false,
            exclusive: true,
            file_block: 512,
            patience: Duration::from_secs(2),
            power: None,
        }
    }
}

/// An open device, not yet driven by anyone. May be opened on one thread and used on another.
pub struct OpenMember {
    /// As the user named it.
    pub name: String,
    pub info: MemberInfo,
    pub device: Device,
}

impl OpenMember {
    /// The arrays that lie beneath it, as far as it says: none beneath files and devices of this host.
    pub fn beneath(&self) -> &[Uuid] {
        self.device.beneath()
    }

    /// Whether no lock keeps another process away: exports, file systems of the network, and devices of other hosts.
    pub fn is_unlocked(&self) -> bool {
        match &self.device {
            Device::File(file) => file.is_unlocked(),
            Device::Ram(_) => false,
            Device::Nbd(_) => true,
        }
    }

    /// Whether its lock keeps away every other path to its content: not of an export or a loop device.
    pub fn is_guarded(&self) -> bool {
        match &self.device {
            Device::File(file) => file.is_guarded(),
            Device::Ram(_) => true,
            Device::Nbd(_) => false,
        }
    }

    /// Whether somebody could be told that its spindle is to stand still. A disk may refuse it yet.
    pub fn may_be_told_to_rest(&self) -> bool {
        match &self.device {
            Device::File(file) => file.has_spindle(),
            Device::Ram(_) | Device::Nbd(_) => false,
        }
    }
}

pub enum Device {
    File(file::FileDevice),
    Ram(ram::RamDevice),
    Nbd(Box<nbd::NbdDevice>),
}

impl Device {
    pub fn beneath(&self) -> &[Uuid] {
        match self {
            Device::File(_) | Device::Ram(_) => &[],
            Device::Nbd(device) => device.beneath(),
        }
    }
}

/// Between two attempts at a member that is in use.
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// Which member could not be opened, and why.
#[derive(Debug)]
pub struct OpenError {
    pub member: String,
    pub why: OpenFailure,
}

#[derive(Debug)]
pub enum OpenFailure {
    Io(io::Error),
    /// Neither a file nor a block device.
    Kind,
    /// Somebody else has it open: another daemon, a mount.
    InUse,
    /// `ram:` without a size that makes sense.
    Size,
    /// Its logical block is neither 512 nor 4096.
    LogicalBlock(u32),
    Uri(UriError),
    /// TLS with a remote server cannot begin: the certificates here, or those of the server.
    Tls(String),
    /// A remote export refused or broke the conversation.
    Remote(String),
    /// A remote export that its server does not give now, since somebody else has it.
    Held(String),
    /// A remote export that takes no writes.
    ReadOnly,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", shown(&self.member))?;
        match &self.why {
            OpenFailure::Io(error) => write!(f, "cannot be opened: {error}"),
            OpenFailure::Kind => f.write_str("is neither a file nor a block device"),
            OpenFailure::InUse => f.write_str("is in use (by another restripe, or mounted)"),
            OpenFailure::Size => f.write_str("needs a size, such as ram:64M"),
            OpenFailure::LogicalBlock(bytes) => {
                write!(f, "has logical blocks of {bytes} bytes, not 512 or 4096")
            }
            OpenFailure::Uri(error) => write!(f, "{error}"),
            OpenFailure::Tls(why) => write!(f, "TLS with the NBD server: {}", shown(why)),
            OpenFailure::Remote(what) => write!(f, "the NBD server: {}", shown(what)),
            OpenFailure::Held(why) => write!(f, "is in use: the NBD server: {}", shown(why)),
            OpenFailure::ReadOnly => f.write_str("the NBD export is read-only"),
        }
    }
}

impl std::error::Error for OpenError {}

/// Opens one member, exclusively. Blocks (a remote export for a few seconds at most).
pub fn open(name: &str, options: OpenOptions) -> Result<OpenMember, OpenError> {
    let fail = |why| OpenError {
        member: name.to_owned(),
        why,
    };
    let source = MemberSource::parse(name)?;
    let (device, info) = match &source {
        MemberSource::Path(path) => {
            let (device, info) = open_patiently(path, options).map_err(fail)?;
            (Device::File(device), info)
        }
        MemberSource::Ram { bytes } => {
            let (device, info) = ram::open(*bytes).map_err(fail)?;
            (Device::Ram(device), info)
        }
        MemberSource::Nbd(uri) => {
            let (device, info) = nbd::open(uri, options).map_err(fail)?;
            (Device::Nbd(Box::new(device)), info)
        }
    };
    Ok(OpenMember {
        name: name.to_owned(),
        info,
        device,
    })
}

/// Whether a file or device is open in another process that keeps others out: a daemon, or the kernel that has it mounted.
pub fn is_in_use(name: &str) -> bool {
    let options = OpenOptions {
        direct: false,
        read_only: true,
        patience: Duration::ZERO,
        ..OpenOptions::default()
    };
    match MemberSource::parse(name) {
        Ok(MemberSource::Path(path)) => {
            matches!(open_patiently(&path, options), Err(OpenFailure::InUse))
        }
        _ => false,
    }
}

fn open_patiently(
    path: &Path,
    options: OpenOptions,
) -> Result<(file::FileDevice, MemberInfo), OpenFailure> {
    let begin = Instant::now();
    loop {
        match file::open(path, options) {
            Err(OpenFailure::InUse) if begin.elapsed() < options.patience => {
                std::thread::sleep(RETRY_AFTER)
            }
            other => return other,
        }
    }
}

/// Opens members in the order given: their index is their [`restripe_array::Member`] number.
pub fn open_members(names: &[String], options: OpenOptions) -> Result<Vec<OpenMember>, OpenError> {
    names.iter().map(|name| open(name, options)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A daemon that was told to take such a member in died of it.
    #[test]
    fn memory_that_nobody_has_is_an_error() {
        for name in ["ram:1000000T", "ram:16777215T"] {
            let opened = open(name, OpenOptions::default());
            assert!(
                matches!(&opened.err().map(|error| error.why), Some(OpenFailure::Io(error)) if error.kind() == io::ErrorKind::OutOfMemory)
            );
        }
    }

    #[test]
    fn names_say_what_kind_of_member_is_meant() {
        let ram = |bytes| MemberSource::Ram { bytes };
        let source = MemberSource::parse("ram:64M").expect("a size");
        assert_eq!(source, ram(64 << 20));
        assert_eq!(MemberSource::parse("ram:512").expect("a size"), ram(512));
        assert!(
            MemberSource::parse("ram:").is_err() && MemberSource::parse("ram:16777216T").is_err()
        );
        assert_eq!(
            MemberSource::parse("/dev/sda").expect("a path"),
            MemberSource::Path("/dev/sda".into())
        );
        assert!(matches!(
            MemberSource::parse("nbd://localhost/x"),
            Ok(MemberSource::Nbd(_))
        ));
    }
}
