//! Plain blocking access to a member, of whatever kind: for making arrays and for looking at them, when no
//! engine runs.
//!
//! The member is opened as the shell opens it, with its lock, so that nobody else uses it meanwhile, and
//! driven by the same code. A flush makes what was written durable.

use crate::backend::Backend;
use crate::backend::threads::Threads;
use crate::fleet::Fleet;
use crate::member::{self, Device, OpenError, OpenFailure, OpenMember, OpenOptions};
use crate::memory::{Handles, PoolMemory, UserMemory};
use crate::tokens::Owner;
use restripe_array::{
    Buf, BufRef, Class, DeviceIo, IoError, IoOp, LARGE_BYTES, Member, MemberInfo, Pool,
    SECTOR_BYTES, Segment, Tag, Uuid,
};
use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

/// The one member of a fleet of one.
const ONLY: Member = Member(0);
/// The buffer that everything passes through.
const BUFFER: Buf = Buf(0);

/// A remote member that brings nothing for this long is given up.
const REMOTE_PATIENCE: Duration = Duration::from_secs(30);

/// A member, open and locked for as long as this lives.
pub struct Plain {
    name: String,
    info: MemberInfo,
    guarded: bool,
    driver: RefCell<Driver>,
}

impl Plain {
    /// Opens a member. `read_only` looks and cannot touch.
    pub fn open(name: &str, read_only: bool) -> Result<Plain, OpenError> {
        let options = OpenOptions {
            direct: false,
            read_only,
            ..OpenOptions::default()
        };
        let member = member::open(name, options)?;
        Plain::of(member).map_err(|error| OpenError {
            member: name.into(),
            why: OpenFailure::Io(error),
        })
    }

    /// Opens a member that may be in use, to look at it. Past the page cache, in which nothing is left behind that a
    /// daemon writes over.
    pub fn look(name: &str) -> Result<Plain, OpenError> {
        let options = OpenOptions {
            read_only: true,
            exclusive: false,
            ..OpenOptions::default()
        };
        let member = member::open(name, options)?;
        Plain::of(member).map_err(|error| OpenError {
            member: name.into(),
            why: OpenFailure::Io(error),
        })
    }

    /// Uses a member that is open already.
    pub fn of(mut member: OpenMember) -> io::Result<Plain> {
        if let Device::Nbd(device) = &mut member.device {
            device.watch(false);
        }
        let (name, info) = (member.name.clone(), member.info);
        Ok(Plain {
            name,
            info,
            guarded: member.is_guarded(),
            driver: RefCell::new(Driver::new(member)?),
        })
    }

    /// The member, for a shell.
    pub fn into_member(self) -> OpenMember {
        let device = self.driver.into_inner().fleet.take_device(ONLY);
        let mut device = device.expect("only this takes it");
        if let Device::Nbd(device) = &mut device {
            device.watch(true);
        }
        OpenMember {
            name: self.name,
            info: self.info,
            device,
        }
    }

    /// The arrays that lie beneath it, as it says.
    pub fn beneath(&self) -> Vec<Uuid> {
        self.driver.borrow().fleet.beneath().collect()
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn info(&self) -> MemberInfo {
        self.info
    }

    /// As [`OpenMember::is_guarded`].
    pub fn is_guarded(&self) -> bool {
        self.guarded
    }

    pub fn bytes(&self) -> u64 {
        self.info.sectors * SECTOR_BYTES
    }

    /// Fills the buffer from this sector on.
    pub fn read(&self, mut at: u64, into: &mut [u8]) -> io::Result<()> {
        for part in into.chunks_mut(LARGE_BYTES as usize) {
            let sectors = (part.len() as u64).div_ceil(SECTOR_BYTES);
            self.check_end(at, sectors)?;
            let mut driver = self.driver.borrow_mut();
            driver.run(IoOp::Read, at, sectors)?;
            part.copy_from_slice(driver.buffer().get(part.len()));
            at += sectors;
        }
        Ok(())
    }

    /// Writes whole sectors.
    pub fn write(&self, mut at: u64, bytes: &[u8]) -> io::Result<()> {
        let rest = bytes.len() as u64 % SECTOR_BYTES;
        assert_eq!(rest, 0, "sectors are written whole");
        for part in bytes.chunks(LARGE_BYTES as usize) {
            let sectors = part.len() as u64 / SECTOR_BYTES;
            self.check_end(at, sectors)?;
            let mut driver = self.driver.borrow_mut();
            driver.buffer().set(part);
            driver.run(IoOp::Write, at, sectors)?;
            at += sectors;
        }
        Ok(())
    }

    /// Makes a range read as zeros.
    pub fn zero(&self, at: u64, sectors: u64) -> io::Result<()> {
        self.check_end(at, sectors)?;
        self.driver.borrow_mut().run(IoOp::Zero, at, sectors)
    }

    /// Makes everything written so far durable.
    pub fn flush(&self) -> io::Result<()> {
        self.driver.borrow_mut().run(IoOp::Flush, 0, 0)
    }

    /// An image file would grow where a device refuses: both refuse.
    fn check_end(&self, at: u64, sectors: u64) -> io::Result<()> {
        let end = at.checked_add(sectors);
        if end.is_some_and(|end| end <= self.info.sectors) {
            return Ok(());
        }
        let what = "beyond the end of the member";
        Err(io::Error::new(ErrorKind::InvalidInput, what))
    }
}

/// A fleet of one, and what it needs.
struct Driver {
    fleet: Fleet,
    backend: Threads,
    pool: PoolMemory,
    users: UserMemory,
    patience: Duration,
}

impl Driver {
    fn new(member: OpenMember) -> io::Result<Driver> {
        Ok(Driver {
            fleet: Fleet::new(0, vec![member]),
            backend: Threads::new()?,
            pool: PoolMemory::new(Pool { small: 0, large: 1 })?,
            users: UserMemory::new(0),
            patience: REMOTE_PATIENCE,
        })
    }

    fn buffer(&mut self) -> Buffer<'_> {
        Buffer(Handles::new(&mut self.pool, &mut self.users))
    }

    /// One operation, from or to the buffer, waited for.
    fn run(&mut self, op: IoOp, at: u64, sectors: u64) -> io::Result<()> {
        let data = matches!(op, IoOp::Read | IoOp::Write);
        let whole = || BufRef::new(BUFFER, 0, (sectors * SECTOR_BYTES) as u32);
        let io = DeviceIo {
            segments: data.then(|| Segment::Buf(whole())).into_iter().collect(),
            ..bare_io(op, at, sectors)
        };
        let handles = Handles::new(&mut self.pool, &mut self.users);
        self.fleet.start(Box::new(io), &handles, &mut self.backend);
        self.wait()
    }

    /// Waits until the operation has landed and nothing of it is with the kernel: a server's answer may be here before
    /// the last piece of the request is known to be sent.
    fn wait(&mut self) -> io::Result<()> {
        let mut done = Vec::new();
        let mut heard = Instant::now();
        let mut given_up = false;
        loop {
            if self.backend.outstanding() == 0
                && let Some((_, result)) = self.fleet.landed.pop()
            {
                return match result {
                    Err(IoError::Gone) if given_up => Err(ErrorKind::TimedOut.into()),
                    result => result.map_err(io_error),
                };
            }
            self.backend.wait(Some(self.patience), &mut done)?;
            if !done.is_empty() {
                heard = Instant::now();
            } else if heard.elapsed() >= self.patience {
                given_up = true;
                self.fleet.hang_up(ONLY);
            }
            for completion in done.drain(..) {
                let handles = Handles::new(&mut self.pool, &mut self.users);
                match Owner::of(completion.token) {
                    Owner::Device { flight, .. } => {
                        self.fleet
                            .completed(flight, completion, &handles, &mut self.backend);
                    }
                    Owner::Remote { member, sent, .. } => {
                        self.fleet.remote_completed(
                            member,
                            sent,
                            completion,
                            &handles,
                            &mut self.backend,
                        );
                    }
                    owner => unreachable!("a fleet alone has no {owner:?}"),
                }
            }
        }
    }
}

/// The bytes of the one buffer.
struct Buffer<'a>(Handles<'a>);

impl Buffer<'_> {
    fn get(&self, bytes: usize) -> &[u8] {
        self.0.memory(BUFFER).slice(0, bytes)
    }

    fn set(&self, bytes: &[u8]) {
        self.0.memory(BUFFER).fill(0, bytes);
    }
}

fn io_error(error: IoError) -> io::Error {
    match error {
        IoError::Other(errno) => io::Error::from_raw_os_error(errno),
        IoError::Media => io::Error::from_raw_os_error(libc::EIO),
        IoError::Gone => io::Error::from_raw_os_error(libc::ENODEV),
        IoError::NoSpace => io::Error::from_raw_os_error(libc::ENOSPC),
        IoError::Unsupported => io::Error::from_raw_os_error(libc::EOPNOTSUPP),
    }
}

/// An operation without memory, of no engine, on the only member.
pub(crate) fn bare_io(op: IoOp, at: u64, sectors: u64) -> DeviceIo {
    DeviceIo {
        tag: Tag(0),
        member: ONLY,
        op,
        at,
        sectors,
        segments: Vec::new(),
        durable: false,
        class: Class::Metadata,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;
    use std::thread;

    #[test]
    fn a_member_is_locked_written_and_bounded() {
        let path = std::env::temp_dir().join(format!("restripe-plain-{}", std::process::id()));
        fs::write(&path, vec![7; 8192]).expect("a file");
        let name = path.to_str().expect("plain text");
        let member = Plain::open(name, false).expect("it opens");
        assert!(Plain::open(name, true).is_err(), "it is locked");
        member.write(1, &[9; 512]).expect("it takes it");
        member.zero(2, 4).expect("it zeros");
        assert!(member.write(16, &[1; 512]).is_err() && member.zero(15, 2).is_err());
        member.flush().expect("it flushes");
        let mut bytes = [1; 4096];
        member.read(0, &mut bytes).expect("it reads");
        let found = [0, 512, 1024, 3071, 3072].map(|at| bytes[at]);
        assert_eq!(found, [7, 9, 0, 0, 7]);
        fs::remove_file(&path).expect("ours");
    }

    #[test]
    fn a_remote_member_that_says_nothing_is_given_up() {
        let path = std::env::temp_dir().join(format!("restripe-mute-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("a free place");
        // Agrees on an export of 1 MiB the oldest way, and listens to requests without a word.
        let mute = thread::spawn(move || -> io::Result<()> {
            let (mut stream, _) = listener.accept()?;
            stream.write_all(b"NBDMAGICIHAVEOPT\0\x02")?;
            stream.read_exact(&mut [0; 20])?;
            stream.write_all(&(1u64 << 20).to_be_bytes())?;
            stream.write_all(&1u16.to_be_bytes())?;
            io::copy(&mut stream, &mut io::sink()).map(|_| ())
        });
        let uri = format!("nbd+unix:///?socket={}", path.display());
        let member = Plain::open(&uri, true).expect("they agree");
        member.driver.borrow_mut().patience = Duration::from_millis(20);
        let first = member.read(0, &mut [0; 512]).expect_err("no answer");
        assert_eq!(first.kind(), ErrorKind::TimedOut);
        assert!(member.read(0, &mut [0; 512]).is_err(), "it stays given up");
        drop(member);
        mute.join().expect("no panic").expect("nothing went wrong");
        fs::remove_file(&path).expect("ours");
    }

    #[test]
    fn memory_is_a_member_like_any_other_and_can_be_handed_on() {
        let member = Plain::open("ram:1M", false).expect("it opens");
        let bytes: Vec<u8> = (0..200 * 512).map(|i| (i / 512) as u8).collect();
        member.write(7, &bytes).expect("room");
        let again = Plain::of(member.into_member()).expect("as before");
        let mut back = vec![0; bytes.len()];
        again.read(7, &mut back).expect("it reads");
        assert_eq!(back, bytes);
    }
}
