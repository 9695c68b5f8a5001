//! Members that are files or block devices: opening, probing, and the kernel operations behind each of the
//! engine's.
//!
//! Zeroing goes down a ladder until a rung holds, and remembers it:
//!
//! | rung | files | block devices |
//! |---|---|---|
//! | `Punch` | fallocate PUNCH_HOLE | BLKZEROOUT |
//! | `Range` | fallocate ZERO_RANGE | (none) |
//! | `Write` | writes of zeros | writes of zeros |

use super::durability::{self, Way};
use super::{OpenFailure, OpenOptions};
use crate::backend::{Erase, Haste, Op, PowerHook, Spindle};
use restripe_array::{IoError, IoOp, MemberInfo, SECTOR_BYTES};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// ioctl numbers that libc does not name: `_IO(0x12, 104)` and `_IOR(0x12, 114, size_t)`.
const BLKSSZGET: libc::c_ulong = 0x1268;
const BLKGETSIZE64: libc::c_ulong = 0x8008_1272;

/// The kernel's NBD clients.
const NBD_MAJOR: u32 = 43;
const LOOP_MAJOR: u32 = 7;
/// File systems whose files other hosts may have open: NFS, SMB (two numbers), CIFS, 9P, AFS, Ceph, GFS2, OCFS2, FUSE.
const NETWORKED: [u32; 10] = [
    0x6969,
    0x517b,
    0xfe53_4d42,
    0xff53_4d42,
    0x0102_1997,
    0x5346_414f,
    0x00c3_6400,
    0x0116_1970,
    0x7461_636f,
    0x6573_5546,
];

/// The number of the file system that a file lies on.
fn file_system(file: &File) -> Option<u32> {
    // SAFETY: all zeros is a value of this struct, and the kernel writes no more than it.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, and `found` outlives the call.
    let result = unsafe { libc::fstatfs(file.as_raw_fd(), &mut found) };
    (result == 0).then_some(found.f_type as u32)
}

/// How a range is made zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rung {
    Punch,
    Range,
    Write,
}

pub struct FileDevice {
    file: File,
    block_device: bool,
    /// Its size when it was opened.
    sectors: u64,
    zero: Rung,
    /// How a write is made durable.
    way: Way,
    /// What addresses and lengths of memory must be multiples of: 1 through the page cache.
    alignment: usize,
    path: String,
    hook: Option<PowerHook>,
    haste: Arc<Haste>,
}

/// What to do for an operation without data.
#[derive(Debug)]
pub enum Plan {
    Submit(Op),
    /// Write zeros over the range.
    WriteZeros,
    /// There is nothing to be done.
    Nothing,
    Unsupported,
}

impl FileDevice {
    fn bytes(&self) -> io::Result<u64> {
        if !self.block_device {
            return self.file.metadata().map(|about| about.len());
        }
        let mut bytes = 0u64;
        // SAFETY: the request writes a 64-bit number.
        match unsafe { libc::ioctl(self.fd(), BLKGETSIZE64 as _, &raw mut bytes) } {
            0.. => Ok(bytes),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Whether it has its size still. A file that was cut short has not, nor has a device that was unplugged. The kernel answers; no disk
    /// is asked, so none wakes.
    pub fn is_whole(&self) -> bool {
        self.bytes()
            .is_ok_and(|bytes| bytes / SECTOR_BYTES >= self.sectors)
    }

    /// Whether it is a file that was cut short. A write beyond its new end would make it longer again, and
    /// what was cut off would read as zeros: so this is asked before each.
    pub(crate) fn was_cut(&self) -> bool {
        !self.block_device && !self.is_whole()
    }

    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// What addresses and lengths of memory must be multiples of.
    pub fn alignment(&self) -> usize {
        self.alignment
    }

    /// Whether what is read comes through the page cache.
    pub(crate) fn is_cached(&self) -> bool {
        self.alignment == 1
    }

    /// How a write is made durable.
    pub fn way(&self) -> Way {
        self.way
    }

    #[cfg(test)]
    pub fn go(&mut self, way: Way) {
        self.way = way;
    }

    #[cfg(test)]
    pub fn zero_by_writing(&mut self) {
        self.zero = Rung::Write;
    }

    /// A write with the flag for durability was refused. Whether there is another way to try.
    pub fn flag_refused(&mut self, result: i32) -> bool {
        let refused = self.way == Way::Flag && matches!(-result, libc::EOPNOTSUPP | libc::EINVAL);
        if refused {
            self.way = Way::Sync;
        }
        refused
    }

    /// Finds out what direct I/O asks for. Where it asks for larger blocks than the array may use, the page cache it is.
    fn align(&mut self, logical_block: u32) {
        if !is_direct(&self.file) {
            return;
        }
        // Kernels before 6.1 do not tell; the logical block is then the usual demand.
        let (memory, offset) =
            direct_alignment(&self.file).unwrap_or((logical_block, logical_block));
        if offset == 0 || offset > logical_block {
            end_direct(&self.file);
        } else {
            self.alignment = memory.max(offset) as usize;
        }
    }

    /// The kernel operation for a flush, zero or trim of a byte range.
    pub fn plan(&self, op: IoOp, at: u64, bytes: u64) -> Plan {
        match op {
            IoOp::Flush if self.way == Way::None => Plan::Nothing,
            IoOp::Flush => Plan::Submit(Op::Sync { fd: self.fd() }),
            IoOp::Zero => self.plan_zero(at, bytes),
            IoOp::Trim if self.block_device => Plan::Submit(self.erase(Erase::Discard, at, bytes)),
            IoOp::Trim => Plan::Submit(self.allocate(libc::FALLOC_FL_PUNCH_HOLE, at, bytes)),
            IoOp::Standby => self.plan_power(false),
            IoOp::Wake => self.plan_power(true),
            IoOp::Read | IoOp::Write => Plan::Unsupported,
        }
    }

    /// Whether other hosts may have it open, whatever is locked here.
    pub fn is_unlocked(&self) -> bool {
        match self.block_device {
            true => self.major() == Some(NBD_MAJOR),
            false => file_system(&self.file).is_some_and(|kind| NETWORKED.contains(&kind)),
        }
    }

    /// Whether its lock keeps away every other path to its content.
    pub fn is_guarded(&self) -> bool {
        let leads_on = self.block_device && self.major() == Some(LOOP_MAJOR);
        !self.is_unlocked() && !leads_on
    }

    fn major(&self) -> Option<u32> {
        let found = self.file.metadata().ok()?;
        Some(libc::major(found.rdev()))
    }

    /// Files have no spindle, unless somebody says what to do about theirs.
    pub fn has_spindle(&self) -> bool {
        self.hook.is_some() || self.block_device
    }

    /// How long its spindle is waited for.
    pub fn haste(&self) -> &Haste {
        &self.haste
    }

    fn plan_power(&self, turns: bool) -> Plan {
        if !self.has_spindle() {
            return Plan::Unsupported;
        }
        let spindle = Spindle {
            fd: self.fd(),
            path: self.path.clone(),
            hook: self.hook,
            haste: Arc::clone(&self.haste),
        };
        Plan::Submit(Op::Power {
            spindle: Box::new(spindle),
            turns,
        })
    }

    fn plan_zero(&self, at: u64, bytes: u64) -> Plan {
        match self.zero {
            Rung::Write => Plan::WriteZeros,
            _ if self.block_device => Plan::Submit(self.erase(Erase::ZeroOut, at, bytes)),
            Rung::Punch => Plan::Submit(self.allocate(libc::FALLOC_FL_PUNCH_HOLE, at, bytes)),
            Rung::Range => Plan::Submit(self.allocate(libc::FALLOC_FL_ZERO_RANGE, at, bytes)),
        }
    }

    fn allocate(&self, mode: i32, at: u64, bytes: u64) -> Op {
        Op::Allocate {
            fd: self.fd(),
            mode: mode | libc::FALLOC_FL_KEEP_SIZE,
            at,
            bytes,
        }
    }

    fn erase(&self, how: Erase, at: u64, bytes: u64) -> Op {
        Op::Erase {
            fd: self.fd(),
            how,
            at,
            bytes,
        }
    }

    /// A rung of the ladder broke under a zeroing. Whether there is another to try.
    pub fn zero_refused(&mut self, result: i32) -> bool {
        let refused = matches!(
            -result,
            libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL | libc::ENOTTY | libc::EPERM
        );
        if !refused || self.zero == Rung::Write {
            return false;
        }
        self.zero = match self.zero {
            Rung::Punch if !self.block_device => Rung::Range,
            _ => Rung::Write,
        };
        true
    }
}

/// What a negative result means to the engine.
pub fn error_of(result: i32) -> IoError {
    match -result {
        libc::EIO | libc::EILSEQ | libc::ENODATA | libc::EREMOTEIO => IoError::Media,
        libc::ENODEV | libc::ENXIO | libc::ESHUTDOWN | libc::EBADF | libc::ENOMEDIUM => {
            IoError::Gone
        }
        libc::ENOSPC | libc::EDQUOT | libc::EFBIG => IoError::NoSpace,
        libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY => IoError::Unsupported,
        errno => IoError::Other(errno),
    }
}

// -------------------------------------------------------------------------------------------------------- opening

pub fn open(path: &Path, options: OpenOptions) -> Result<(FileDevice, MemberInfo), OpenFailure> {
    let kind = fs::metadata(path).map_err(OpenFailure::Io)?.file_type();
    let block_device = kind.is_block_device();
    if !block_device && !kind.is_file() {
        return Err(OpenFailure::Kind);
    }
    let file = open_exclusive(path, block_device, options)?;
    let mut device = FileDevice {
        way: durability::way_of(&file, block_device),
        file,
        block_device,
        sectors: 0,
        zero: Rung::Punch,
        alignment: 1,
        path: path.display().to_string(),
        hook: options.power,
        haste: Arc::default(),
    };
    let mut info = match block_device {
        true => probe_device(&device)?,
        false => probe_file(&mut device, options)?,
    };
    device.sectors = info.sectors;
    if options.direct {
        device.align(info.logical_block);
    }
    if !options.read_only {
        info.volatile = !durability::probe(&device.file).map_err(OpenFailure::Io)?;
    }
    if info.volatile {
        device.way = Way::None;
    }
    Ok((device, info))
}

/// What the kernel says of direct I/O on an open file: alignment of memory, of offsets; zeros where there is none.
fn direct_alignment(file: &File) -> Option<(u32, u32)> {
    let mut answer = std::mem::MaybeUninit::<libc::statx>::zeroed();
    let (fd, here, mask) = (file.as_raw_fd(), c"".as_ptr(), libc::STATX_DIOALIGN);
    // SAFETY: an empty path means the descriptor itself; the answer has room for what is written.
    let result = unsafe { libc::statx(fd, here, libc::AT_EMPTY_PATH, mask, answer.as_mut_ptr()) };
    // SAFETY: zeros are a valid answer, and the kernel may have written a better one.
    let answer = unsafe { answer.assume_init() };
    let told = result == 0 && answer.stx_mask & mask != 0;
    told.then_some((answer.stx_dio_mem_align, answer.stx_dio_offset_align))
}

fn is_direct(file: &File) -> bool {
    // SAFETY: no pointers are passed.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    flags >= 0 && flags & libc::O_DIRECT != 0
}

/// Goes through the page cache from now on.
fn end_direct(file: &File) {
    // SAFETY: no pointers are passed.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    // SAFETY: as above. Should it fail, alignment is still kept.
    let _ = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags & !libc::O_DIRECT) };
}

/// Direct if wanted and possible; locked either way. A block device is claimed from the kernel, a file by a lock that
/// every restripe respects.
fn open_exclusive(
    path: &Path,
    block_device: bool,
    options: OpenOptions,
) -> Result<File, OpenFailure> {
    let exclusive = match block_device && options.exclusive {
        true => libc::O_EXCL,
        false => 0,
    };
    let flags = exclusive | if options.direct { libc::O_DIRECT } else { 0 };
    let attempt = |flags| {
        let mut file = fs::OpenOptions::new();
        file.read(true).write(!options.read_only);
        file.custom_flags(flags).open(path)
    };
    let opened = match attempt(flags) {
        // File systems without direct I/O say so at open.
        Err(error) if options.direct && error.raw_os_error() == Some(libc::EINVAL) => {
            attempt(exclusive)
        }
        other => other,
    };
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => OpenFailure::InUse,
        _ => OpenFailure::Io(error),
    })?;
    if !block_device && options.exclusive {
        lock(&file)?;
    }
    Ok(file)
}

fn lock(file: &File) -> Result<(), OpenFailure> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(fs::TryLockError::WouldBlock) => Err(OpenFailure::InUse),
        Err(fs::TryLockError::Error(error)) => Err(OpenFailure::Io(error)),
    }
}

fn probe_file(device: &mut FileDevice, options: OpenOptions) -> Result<MemberInfo, OpenFailure> {
    let bytes = device.bytes().map_err(OpenFailure::Io)?;
    let punches = !options.read_only && punches_holes(&device.file, bytes);
    if !punches {
        device.zero = Rung::Range;
    }
    Ok(MemberInfo {
        sectors: bytes / SECTOR_BYTES,
        logical_block: checked_block(options.file_block)?,
        trim_zeroes: punches,
        fast_zero: punches,
        volatile: false,
    })
}

/// Asks for a hole behind the end of the file, which changes nothing and tells whether holes are possible.
fn punches_holes(file: &File, size: u64) -> bool {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let behind = size.next_multiple_of(4096) as i64;
    // SAFETY: no pointers are passed.
    unsafe { libc::fallocate(file.as_raw_fd(), mode, behind, 4096) == 0 }
}

fn probe_device(device: &FileDevice) -> Result<MemberInfo, OpenFailure> {
    let bytes = device.bytes().map_err(OpenFailure::Io)?;
    let mut block = 0i32;
    // SAFETY: the request writes an int.
    let sector = unsafe { libc::ioctl(device.fd(), BLKSSZGET as _, &raw mut block) };
    if sector < 0 {
        return Err(OpenFailure::Io(io::Error::last_os_error()));
    }
    Ok(MemberInfo {
        sectors: bytes / SECTOR_BYTES,
        logical_block: checked_block(block as u32)?,
        // A discard's outcome is the device's choice, so we never rely on it.
        trim_zeroes: false,
        fast_zero: zeroes_fast(&device.file),
        volatile: false,
    })
}

fn checked_block(bytes: u32) -> Result<u32, OpenFailure> {
    match bytes {
        512 | 4096 => Ok(bytes),
        other => Err(OpenFailure::LogicalBlock(other)),
    }
}

/// Whether the kernel has a command for zeroing this device; for a partition its disk is asked.
fn zeroes_fast(file: &File) -> bool {
    let Ok(metadata) = file.metadata() else {
        return false;
    };
    let (major, minor) = (libc::major(metadata.rdev()), libc::minor(metadata.rdev()));
    let disk = format!("/sys/dev/block/{major}:{minor}");
    let limit = |queue| fs::read_to_string(format!("{disk}/{queue}/write_zeroes_max_bytes"));
    let text = limit("queue").or_else(|_| limit("../queue"));
    let text = text.unwrap_or_default();
    text.trim().parse::<u64>().is_ok_and(|bytes| bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temporary(name: &str) -> std::path::PathBuf {
        let path =
            std::env::temp_dir().join(format!("restripe-file-{}-{name}", std::process::id()));
        let file = File::create(&path).expect("a temporary file");
        file.set_len(1 << 20).expect("room");
        path
    }

    #[test]
    fn a_file_is_probed_and_held_exclusively() {
        let path = temporary("exclusive");
        let (device, info) = open(&path, OpenOptions::default()).expect("it opens");
        assert_eq!((info.sectors, info.logical_block), (2048, 512));
        let second = open(&path, OpenOptions::default());
        assert!(matches!(second, Err(OpenFailure::InUse)));
        drop(device);
        assert!(open(&path, OpenOptions::default()).is_ok());
        fs::remove_file(&path).expect("ours");
    }

    #[test]
    fn folders_and_strange_blocks_are_refused() {
        let folder = open(&std::env::temp_dir(), OpenOptions::default());
        assert!(matches!(folder, Err(OpenFailure::Kind)));
        let path = temporary("block");
        let options = OpenOptions {
            file_block: 1024,
            ..OpenOptions::default()
        };
        let strange = open(&path, options);
        assert!(matches!(strange, Err(OpenFailure::LogicalBlock(1024))));
        fs::remove_file(&path).expect("ours");
    }

    #[test]
    fn zeroing_climbs_down_the_ladder_and_ends_at_writing() {
        let path = temporary("ladder");
        let (mut device, _) = open(&path, OpenOptions::default()).expect("it opens");
        device.zero = Rung::Punch;
        assert!(device.zero_refused(-libc::EOPNOTSUPP));
        assert_eq!(device.zero, Rung::Range);
        assert!(device.zero_refused(-libc::EOPNOTSUPP));
        assert!(matches!(device.plan(IoOp::Zero, 0, 4096), Plan::WriteZeros));
        assert!(!device.zero_refused(-libc::EOPNOTSUPP));
        device.zero = Rung::Punch;
        // A media error is no refusal.
        assert!(!device.zero_refused(-libc::EIO));
        fs::remove_file(&path).expect("ours");
    }
}
