//! The driver ublk, by commands on `/dev/ublk-control`.
//!
//! A command is one entry of 128 bytes in a ring of its own: they are rare, and a command that is not done in
//! time then ends with its ring.

use super::uapi::{self, Info, Parameters};
use crate::attach::hold::{Devices, Seen};
use crate::attach::node::{Node, numbers};
use crate::control::Driver;
use io_uring::squeue::Entry128;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

const CONTROL: &str = "/dev/ublk-control";
/// What needs nothing but the driver.
const AT_ONCE: Duration = Duration::from_secs(10);
/// Until all slots of a queue are with the driver, and the kernel has looked for partitions: members may have
/// to spin up.
const QUEUE_WITHIN: Duration = Duration::from_secs(60);
/// A stop waits for what is in flight, and so for members.
const STOP_WITHIN: Duration = Duration::from_secs(120);
/// A device that is stopped is removed when its last user has closed it. Nothing waits for that.
const REMOVED_WITHIN: Duration = Duration::from_secs(2);

/// Milliseconds. The kernel rounds them up, to two seconds at most.
const LOOK_AFTER_MS: &str = "1000";

/// What a device is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Setup {
    pub parameters: Parameters,
    /// Requests that it can have in flight.
    pub depth: u16,
    /// Whose device it is.
    pub tag: u64,
}

/// The driver's side, or a model of it.
pub(crate) trait Kernel: Devices {
    /// Makes a device, this one or one that is free, which is not yet a block device; its number.
    fn add(&self, device: Option<u32>, setup: &Setup) -> io::Result<u32>;

    /// Makes it a block device, once its queue is served.
    fn start(&self, device: u32) -> io::Result<()>;

    /// Prepares a device without a daemon for another. `ResourceBusy` while the first is not all gone.
    /// `InvalidInput`, before 6.16, if it is prepared and its queue was not served since.
    fn begin_recovery(&self, device: u32) -> io::Result<()>;

    /// Whether it waits for a daemon, and all its requests with it.
    fn waits(&self, device: u32) -> bool;

    /// Has it go on, once its queue is served.
    fn end_recovery(&self, device: u32) -> io::Result<()>;

    /// `Unsupported` where the kernel cannot: before 6.16.
    fn resize(&self, device: u32, bytes: u64) -> io::Result<()>;

    /// The size of the block device.
    fn size(&self, device: u32) -> io::Result<u64>;
}

/// The running kernel.
pub(super) struct Linux {
    control: File,
}

impl Linux {
    /// `NotFound` without the module `ublk_drv`.
    pub(super) fn open() -> io::Result<Linux> {
        let control = OpenOptions::new().read(true).write(true).open(CONTROL)?;
        Ok(Linux { control })
    }

    fn order(&self, command: u32, device: u32, data: u64, within: Duration) -> io::Result<()> {
        let header = uapi::encode_header(device, (0, 0), data);
        self.call(command, header, within)
    }

    /// The same with a structure, which the driver reads or writes.
    fn exchange<const N: usize>(
        &self,
        command: u32,
        device: u32,
        structure: [u8; N],
    ) -> io::Result<[u8; N]> {
        let structure = Box::into_raw(Box::new(structure));
        let (address, length) = (structure.expose_provenance() as u64, N as u16);
        let header = uapi::encode_header(device, (address, length), 0);
        let called = self.call(command, header, AT_ONCE);
        if matches!(&called, Err(error) if error.kind() == ErrorKind::TimedOut) {
            // The driver may still use the structure, which is therefore given up.
            return Err(ErrorKind::TimedOut.into());
        }
        // SAFETY: made by `into_raw` above, and the driver is done with it.
        let structure = unsafe { Box::from_raw(structure) };
        called.map(|()| *structure)
    }

    /// Gives a command and waits for its end. `TimedOut`: it has not ended in time, and ends with its ring.
    fn call(
        &self,
        command: u32,
        header: [u8; uapi::ENTRY_BYTES],
        within: Duration,
    ) -> io::Result<()> {
        let mut ring: IoUring<Entry128, cqueue::Entry> = IoUring::builder().build(2)?;
        let fd = Fd(self.control.as_raw_fd());
        let entry = opcode::UringCmd80::new(fd, command).cmd(header).build();
        // SAFETY: the file is open for as long as the ring is; the caller sees to the structure.
        unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)?;
        let time = Timespec::from(within);
        let args = SubmitArgs::new().timespec(&time);
        loop {
            match ring.submitter().submit_with_args(1, &args) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.raw_os_error() == Some(libc::ETIME) => {
                    return Err(ErrorKind::TimedOut.into());
                }
                Err(error) => return Err(error),
            }
            if let Some(ended) = ring.completion().next() {
                return match ended.result() {
                    result if result >= 0 => Ok(()),
                    errno => Err(io::Error::from_raw_os_error(-errno)),
                };
            }
        }
    }

    fn remove(&self, device: u32) -> io::Result<()> {
        match self.order(uapi::DEL_DEV, device, 0, REMOVED_WITHIN) {
            Err(error) if error.kind() == ErrorKind::TimedOut => Ok(()),
            removed => removed,
        }
    }

    fn info(&self, device: u32) -> io::Result<Info> {
        let bytes = self.exchange(uapi::GET_DEV_INFO, device, [0; uapi::INFO_BYTES])?;
        Ok(Info::decode(bytes))
    }

    /// Gives an added device its parameters.
    fn describe(&self, info: &Info, setup: &Setup) -> io::Result<()> {
        if info.features & uapi::FEATURES != uapi::FEATURES {
            return Err(ErrorKind::Unsupported.into());
        }
        let parameters = setup.parameters.encode();
        let described = self.exchange(uapi::SET_PARAMS, info.device, parameters);
        described.map(drop)
    }
}

impl Kernel for Linux {
    fn add(&self, device: Option<u32>, setup: &Setup) -> io::Result<u32> {
        let device = device.unwrap_or(uapi::ANY_DEVICE);
        let wanted = Info {
            depth: setup.depth,
            state: uapi::STATE_DEAD,
            bytes_max: setup.parameters.request_bytes_max,
            device,
            process: std::process::id().cast_signed(),
            features: uapi::FEATURES,
            tag: setup.tag,
        };
        let info = Info::decode(self.exchange(uapi::ADD_DEV, device, wanted.encode())?);
        if let Err(error) = self.describe(&info, setup) {
            let _ = self.remove(info.device);
            return Err(error);
        }
        Ok(info.device)
    }

    fn start(&self, device: u32) -> io::Result<()> {
        self.order(uapi::START_DEV, device, own_process(), QUEUE_WITHIN)?;
        notice_deaths(&block_device(device));
        Ok(())
    }

    fn begin_recovery(&self, device: u32) -> io::Result<()> {
        self.order(uapi::START_USER_RECOVERY, device, 0, AT_ONCE)
    }

    fn waits(&self, device: u32) -> bool {
        let info = self.info(device);
        info.is_ok_and(|info| info.state == uapi::STATE_QUIESCED)
    }

    fn end_recovery(&self, device: u32) -> io::Result<()> {
        self.order(uapi::END_USER_RECOVERY, device, own_process(), QUEUE_WITHIN)?;
        notice_deaths(&block_device(device));
        Ok(())
    }

    fn resize(&self, device: u32, bytes: u64) -> io::Result<()> {
        /// The kernel's own number for "not supported", which is no error of the libraries.
        const ENOTSUPP: i32 = 524;
        let resized = self.order(uapi::UPDATE_SIZE, device, uapi::sectors(bytes), AT_ONCE);
        resized.map_err(|error| match error.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::EINVAL | ENOTSUPP) => ErrorKind::Unsupported.into(),
            _ => error,
        })
    }

    fn size(&self, device: u32) -> io::Result<u64> {
        let text = fs::read_to_string(block_device(device).join("size"))?;
        let sectors: u64 = text.trim().parse().map_err(io::Error::other)?;
        Ok(sectors.saturating_mul(restripe_array::SECTOR_BYTES))
    }
}

impl Devices for Linux {
    fn driver(&self) -> Driver {
        Driver::Ublk
    }

    fn seen(&self, device: u32) -> Seen {
        match self.info(device) {
            Err(error) if is_missing(&error) => Seen::Missing,
            // It may be there, and anybody's.
            Err(_) => Seen::Connected(None),
            Ok(info) if info.state == uapi::STATE_DEAD => Seen::Dead(identifier(info.tag)),
            Ok(info) => Seen::Connected(Some(identifier(info.tag))),
        }
    }

    fn shown(&self) -> Vec<(u32, Seen)> {
        numbers("/sys/class/ublk-char", "ublkc")
            .map(|number| (number, self.seen(number)))
            .collect()
    }

    /// A device has the number of the process that added it until it is started, and none after its stop.
    fn is_abandoned(&self, device: u32) -> bool {
        let info = self.info(device);
        info.is_ok_and(|info| info.state == uapi::STATE_DEAD && !is_running(info.process))
    }

    fn disconnect(&self, device: u32, held: Option<File>) -> io::Result<()> {
        self.order(uapi::STOP_DEV, device, 0, STOP_WITHIN)?;
        // The device is removed when it is closed, and it cannot be opened any more.
        drop(held);
        self.remove(device)
    }
}

fn block_device(device: u32) -> PathBuf {
    Node::new(Driver::Ublk, device).in_sysfs()
}

/// Has the kernel look after a second whether a request's daemon lives, and not after 30: where a daemon that
/// dies has all requests of the queue, only that look notices it. It changes nothing for requests of one that
/// lives. Without it the device is as good, and the next daemon takes it over later.
fn notice_deaths(block_device: &Path) {
    let _ = fs::write(block_device.join("queue/io_timeout"), LOOK_AFTER_MS);
}

/// What the driver says of a number without a device.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EINVAL))
}

fn is_running(process: i32) -> bool {
    process > 0 && Path::new("/proc").join(process.to_string()).exists()
}

fn own_process() -> u64 {
    u64::from(std::process::id())
}

/// The name for the tag of a device in its record.
pub(super) fn identifier(tag: u64) -> String {
    format!("restripe:{tag:016x}")
}

/// The file by which a device is served.
pub(super) fn served_by(device: u32) -> PathBuf {
    Path::new("/dev").join(format!("ublkc{device}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_is_not_running() {
        assert!(is_running(std::process::id().cast_signed()));
        let mut child = std::process::Command::new("true").spawn().expect("it runs");
        child.wait().expect("it ends");
        for process in [-1, 0, child.id().cast_signed(), i32::MAX] {
            assert!(!is_running(process), "{process}");
        }
    }

    #[test]
    fn the_kernel_looks_after_a_second_whether_the_daemon_lives() {
        let name = format!("restripe-io-timeout-{}", std::process::id());
        let place = std::env::temp_dir().join(name);
        fs::create_dir_all(place.join("queue")).expect("a folder");
        notice_deaths(&place);
        let text = fs::read_to_string(place.join("queue/io_timeout"));
        assert_eq!(text.ok().as_deref(), Some("1000"));
        let _ = fs::remove_dir_all(&place);
        notice_deaths(&place);
    }
}
