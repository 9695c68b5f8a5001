//! One device operation on its way through a file or block device, or several neighbours joined to one,
//! however many kernel operations that takes.

use crate::backend::{Op, VECTORS_MAX};
use crate::member::durability::Way;
use crate::member::file::{FileDevice, Plan, error_of};
use crate::memory::{Handles, Memory, Piece, advance, total_bytes};
use restripe_array::{
    Buf, BufRef, DeviceIo, IoError, IoOp, SECTOR_BYTES, SMALL_BYTES, Segment, Tag,
};

/// Zeros written by one kernel operation, when a device knows no better.
const ZEROS_AT_ONCE: u64 = 4 << 20;
/// Reads from this length on are first tried as copies out of the page cache: a shorter copy takes no longer
/// than the way to another thread.
const COPY_BYTES_MIN: u64 = 256 * 1024;
/// The block of zeros that such writes repeat.
pub const ZERO_BLOCK_BYTES: u32 = 1 << 20;

/// Operations as the engine gives them, boxed, and gets them back.
#[allow(clippy::vec_box)]
pub type Operations = Vec<Box<DeviceIo>>;

/// An operation that is back.
pub type Landed = (Box<DeviceIo>, Result<(), IoError>);

/// Memory that operations borrow: zeros, bounce pages for metadata, and emptied lists.
pub struct Scratch {
    zeros: Memory,
    pages: Vec<Memory>,
    lists: Vec<Vec<Piece>>,
}

impl Scratch {
    pub fn new() -> Scratch {
        Scratch {
            zeros: Memory::new(ZERO_BLOCK_BYTES as usize),
            pages: Vec::new(),
            lists: Vec::new(),
        }
    }

    fn page(&mut self) -> Memory {
        let page = self.pages.pop();
        page.unwrap_or_else(|| Memory::new(SMALL_BYTES as usize))
    }

    fn list(&mut self) -> Vec<Piece> {
        self.lists.pop().unwrap_or_default()
    }

    /// Takes a list back for reuse.
    pub fn keep(&mut self, mut list: Vec<Piece>) {
        list.clear();
        self.lists.push(list);
    }

    fn push_zeros(&self, mut bytes: u64, pieces: &mut Vec<Piece>) {
        while bytes > 0 {
            let now = bytes.min(u64::from(ZERO_BLOCK_BYTES));
            pieces.push(Piece::new(self.zeros.clone(), 0, now as u32));
            bytes -= now;
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Moving data from or to the segments.
    Transfer,
    /// A flush, zero or trim that is one kernel operation.
    Plain,
    /// Zeroing by writing.
    Zeros,
    /// Making what was written or zeroed durable.
    Sync,
}

pub struct Flight {
    /// What the device does.
    pub io: Box<DeviceIo>,
    /// The operations that it is joined of, in the order of their places. Without any it is one by itself.
    parts: Operations,
    stage: Stage,
    /// Next byte on the device, and bytes to go.
    at: u64,
    left: u64,
    /// The page cache may have what is read.
    cached: bool,
    /// What did not fit into one kernel operation.
    rest: Vec<Piece>,
    /// Aligned stand-ins for metadata pages, by segment.
    bounces: Vec<(usize, Memory)>,
    /// The pieces as they were asked for, when their alignment did not suit, and the memory that stands in for them.
    stand_in: Option<(Vec<Piece>, Memory)>,
    /// Memory whose handle was backed anew while this read was in flight: the operation that it is of, the
    /// part, and the memory that the read fills.
    redirects: Vec<(Tag, BufRef, Memory)>,
    /// Operations given up on: their late data goes nowhere.
    detached: Vec<Tag>,
    /// How often handles had been backed anew when it began.
    pub renewals: u64,
}

/// What comes of a step.
pub enum Progress {
    Submit(Op),
    Done(Result<(), IoError>),
}

impl Flight {
    pub fn new(io: Box<DeviceIo>, renewals: u64) -> Flight {
        let (at, left) = (io.at * SECTOR_BYTES, io.sectors * SECTOR_BYTES);
        let stage = if matches!(io.op, IoOp::Read | IoOp::Write) {
            Stage::Transfer
        } else {
            Stage::Plain
        };
        Flight {
            io,
            parts: Vec::new(),
            stage,
            at,
            left,
            cached: false,
            rest: Vec::new(),
            bounces: Vec::new(),
            stand_in: None,
            redirects: Vec::new(),
            detached: Vec::new(),
            renewals,
        }
    }

    /// Neighbours as one: each begins where the one before ends.
    pub(crate) fn joined(parts: Operations, renewals: u64) -> Flight {
        let (first, mut segments) = (&parts[0], Vec::new());
        let all = parts.iter().flat_map(|part| &part.segments);
        all.for_each(|segment| push_joined(segment, &mut segments));
        let whole = DeviceIo {
            segments,
            sectors: parts.iter().map(|part| part.sectors).sum(),
            ..**first
        };
        Flight {
            parts,
            ..Flight::new(Box::new(whole), renewals)
        }
    }

    /// The operations that it carries out.
    pub(crate) fn operations(&self) -> &[Box<DeviceIo>] {
        match self.parts.is_empty() {
            true => std::slice::from_ref(&self.io),
            false => &self.parts,
        }
    }

    /// Whether its failure may be that of some of its operations only: each is then done by itself. A failed
    /// sync counts for all of them, since the kernel reports it once, and so does a failed write that was to
    /// be durable by itself.
    pub(crate) fn may_have_failed_in_part(&self, way: Way) -> bool {
        let no_sync = self.stage == Stage::Transfer && way != Way::Flag;
        !self.parts.is_empty() && (!self.io.durable || no_sync)
    }

    /// The operations that it is joined of, and which of them were given up on.
    pub(crate) fn split(self) -> (Operations, Vec<Tag>) {
        (self.parts, self.detached)
    }

    /// One of its operations was given up on.
    pub(crate) fn detach(&mut self, tag: Tag) {
        self.detached.push(tag);
        self.redirects.retain(|(of, ..)| *of != tag);
    }

    /// Notes of a handle that is about to be backed anew which memory a read into it really fills.
    pub(crate) fn redirect(&mut self, buf: Buf, memory: &Memory) {
        if self.io.op != IoOp::Read {
            return;
        }
        let mut redirects = std::mem::take(&mut self.redirects);
        for io in self.operations() {
            if self.detached.contains(&io.tag) {
                continue;
            }
            for segment in &io.segments {
                if let Segment::Buf(part) = segment
                    && part.buf == buf
                    && !redirects.iter().any(|(_, known, _)| known == part)
                {
                    redirects.push((io.tag, *part, memory.clone()));
                }
            }
        }
        self.redirects = redirects;
    }

    /// The first kernel operation.
    pub fn start(
        &mut self,
        device: &FileDevice,
        handles: &Handles<'_>,
        scratch: &mut Scratch,
    ) -> Progress {
        match self.stage {
            Stage::Transfer => {
                let pieces = self.gather(handles, scratch);
                let pieces = self.align(device.alignment(), pieces, scratch);
                let long = self.io.op == IoOp::Read && self.left >= COPY_BYTES_MIN;
                self.cached = long && device.is_cached();
                self.transfer(device, pieces)
            }
            _ => self.plan(device, scratch),
        }
    }

    /// The memory of the segments, in order; metadata pages by way of aligned ones.
    pub fn gather(&mut self, handles: &Handles<'_>, scratch: &mut Scratch) -> Vec<Piece> {
        let mut pieces = scratch.list();
        for (index, segment) in self.io.segments.iter().enumerate() {
            match segment {
                Segment::Buf(part) => pieces.push(handles.piece(*part)),
                Segment::Zero(bytes) => scratch.push_zeros(u64::from(*bytes), &mut pieces),
                Segment::Page(page) => {
                    let memory = scratch.page();
                    if self.io.op == IoOp::Write {
                        memory.fill(0, &page[..]);
                    }
                    pieces.push(Piece::new(memory.clone(), 0, SMALL_BYTES));
                    self.bounces.push((index, memory));
                }
            }
        }
        pieces
    }

    /// Pieces that suit the device: the same, or one aligned stand-in for all of them.
    fn align(&mut self, alignment: usize, pieces: Vec<Piece>, scratch: &mut Scratch) -> Vec<Piece> {
        let suits = |piece: &Piece| {
            (piece.start() as usize).is_multiple_of(alignment)
                && (piece.bytes as usize).is_multiple_of(alignment)
        };
        if pieces.iter().all(suits) {
            return pieces;
        }
        let memory = Memory::new(total_bytes(&pieces) as usize);
        if self.io.op == IoOp::Write {
            each_place(&pieces, |at, piece| memory.fill(at, piece.slice()));
        }
        let mut stand_in = scratch.list();
        stand_in.push(Piece::new(memory.clone(), 0, memory.bytes() as u32));
        self.stand_in = Some((pieces, memory));
        stand_in
    }

    fn transfer(&mut self, device: &FileDevice, mut pieces: Vec<Piece>) -> Progress {
        if pieces.len() > VECTORS_MAX {
            let mut rest = pieces.split_off(VECTORS_MAX);
            rest.append(&mut self.rest);
            self.rest = rest;
        }
        let (fd, at) = (device.fd(), self.at);
        Progress::Submit(match self.io.op {
            IoOp::Read => Op::Read {
                fd,
                at,
                pieces,
                cached: self.cached,
            },
            _ => Op::Write {
                fd,
                at,
                pieces,
                durable: self.flagged(device),
            },
        })
    }

    fn plan(&mut self, device: &FileDevice, scratch: &mut Scratch) -> Progress {
        if self.left == 0 && self.io.op.has_range() {
            return Progress::Done(Ok(()));
        }
        match device.plan(self.io.op, self.at, self.left) {
            Plan::Submit(op) => Progress::Submit(op),
            Plan::Nothing => Progress::Done(Ok(())),
            Plan::Unsupported => Progress::Done(Err(IoError::Unsupported)),
            Plan::WriteZeros => {
                self.stage = Stage::Zeros;
                self.write_zeros(device, scratch.list(), scratch)
            }
        }
    }

    fn write_zeros(
        &self,
        device: &FileDevice,
        mut pieces: Vec<Piece>,
        scratch: &Scratch,
    ) -> Progress {
        pieces.clear();
        scratch.push_zeros(self.left.min(ZEROS_AT_ONCE), &mut pieces);
        Progress::Submit(Op::Write {
            fd: device.fd(),
            at: self.at,
            pieces,
            durable: self.flagged(device),
        })
    }

    /// Whether each kernel operation makes its own bytes durable.
    fn flagged(&self, device: &FileDevice) -> bool {
        self.io.durable && device.way() == Way::Flag
    }

    /// What follows from a kernel operation's result.
    pub fn go_on(
        &mut self,
        device: &mut FileDevice,
        result: i32,
        pieces: Vec<Piece>,
        scratch: &mut Scratch,
    ) -> Progress {
        if result < 0 {
            return self.failed(device, result, pieces, scratch);
        }
        match self.stage {
            Stage::Transfer | Stage::Zeros => self.moved(device, result as u64, pieces, scratch),
            Stage::Plain => {
                scratch.keep(pieces);
                self.sync_if_owed(device)
            }
            Stage::Sync => Progress::Done(Ok(())),
        }
    }

    fn failed(
        &mut self,
        device: &mut FileDevice,
        result: i32,
        pieces: Vec<Piece>,
        scratch: &mut Scratch,
    ) -> Progress {
        let again = matches!(-result, libc::EINTR | libc::EAGAIN);
        match self.stage {
            Stage::Transfer if again || self.cached => {
                self.cached = false;
                self.transfer(device, pieces)
            }
            Stage::Zeros if again => self.write_zeros(device, pieces, scratch),
            Stage::Transfer if self.flagged(device) && device.flag_refused(result) => {
                self.transfer(device, pieces)
            }
            Stage::Zeros if self.flagged(device) && device.flag_refused(result) => {
                self.write_zeros(device, pieces, scratch)
            }
            Stage::Sync if again => Progress::Submit(Op::Sync { fd: device.fd() }),
            Stage::Plain if again => self.plan(device, scratch),
            Stage::Plain if self.io.op == IoOp::Zero && device.zero_refused(result) => {
                self.plan(device, scratch)
            }
            _ => {
                scratch.keep(pieces);
                Progress::Done(Err(error_of(result)))
            }
        }
    }

    /// So many bytes are through; the rest follows in another operation.
    fn moved(
        &mut self,
        device: &FileDevice,
        bytes: u64,
        mut pieces: Vec<Piece>,
        scratch: &mut Scratch,
    ) -> Progress {
        // The kernel moves no more than it was given.
        assert!(bytes <= self.left);
        self.at += bytes;
        self.left -= bytes;
        if self.left == 0 {
            scratch.keep(pieces);
            return self.sync_if_owed(device);
        }
        if bytes == 0 && self.cached {
            // Some kernels answer so where the cache has nothing. A read that may wait knows.
            self.cached = false;
            pieces.append(&mut self.rest);
            return self.transfer(device, pieces);
        }
        if bytes == 0 {
            // The end of a file that was cut short. It is not to be mended: a write behind its end would grow it, and
            // make zeros of all that was cut off.
            scratch.keep(pieces);
            return Progress::Done(Err(IoError::Gone));
        }
        if self.stage == Stage::Zeros {
            return self.write_zeros(device, pieces, scratch);
        }
        advance(&mut pieces, bytes);
        pieces.append(&mut self.rest);
        self.transfer(device, pieces)
    }

    /// A sync follows what is to be durable, unless its writes have seen to that. It is a step of its own: what came
    /// before is complete, and so covered.
    fn sync_if_owed(&mut self, device: &FileDevice) -> Progress {
        let seen_to = matches!(self.stage, Stage::Transfer | Stage::Zeros);
        let owed = match device.way() {
            Way::Flag => !seen_to,
            Way::Sync => true,
            Way::None => false,
        };
        if self.io.durable && owed && !matches!(self.io.op, IoOp::Flush | IoOp::Read) {
            self.stage = Stage::Sync;
            return Progress::Submit(Op::Sync { fd: device.fd() });
        }
        Progress::Done(Ok(()))
    }

    /// Brings a read's data to where the engine expects it, and gives the operations back.
    pub fn land(
        mut self,
        result: Result<(), IoError>,
        handles: &Handles<'_>,
        scratch: &mut Scratch,
        landed: &mut Vec<Landed>,
    ) {
        let arrived = self.io.op == IoOp::Read && result.is_ok();
        if let Some((pieces, memory)) = self.stand_in.take() {
            if arrived {
                each_place(&pieces, |at, piece| {
                    let bytes = memory.slice(at, piece.bytes as usize);
                    piece.memory.fill(piece.offset as usize, bytes);
                });
            }
            scratch.keep(pieces);
        }
        for (index, memory) in self.bounces.drain(..) {
            if let Segment::Page(page) = &mut self.io.segments[index]
                && arrived
            {
                page.copy_from_slice(memory.slice(0, SMALL_BYTES as usize));
            }
            scratch.pages.push(memory);
        }
        if arrived {
            for (_, part, memory) in &self.redirects {
                let bytes = memory.slice(part.offset as usize, part.bytes as usize);
                handles.memory(part.buf).fill(part.offset as usize, bytes);
            }
        }
        match self.parts.is_empty() {
            true => landed.push((self.io, result)),
            false => landed.extend(self.parts.into_iter().map(|io| (io, result))),
        }
    }
}

/// Appends a segment, to the last one if it goes on from there.
fn push_joined(segment: &Segment, segments: &mut Vec<Segment>) {
    match (segments.last_mut(), segment) {
        (Some(Segment::Buf(last)), Segment::Buf(part))
            if last.buf == part.buf && last.offset + last.bytes == part.offset =>
        {
            last.bytes += part.bytes;
        }
        _ => segments.push(segment.clone()),
    }
}

/// Shows each piece with where it lies in the whole.
fn each_place(pieces: &[Piece], mut show: impl FnMut(usize, &Piece)) {
    let mut at = 0;
    for piece in pieces {
        show(at, piece);
        at += piece.bytes as usize;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::{OpenOptions, file};
    use crate::memory::{PoolMemory, UserMemory};
    use crate::plain::bare_io;
    use restripe_array::Pool;
    use std::path::PathBuf;

    /// What becomes of each kernel operation: short writes of half the bytes, or refusals of the flag.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Kernel {
        Whole,
        Halves,
        RefusesFlag,
    }

    /// The kernel operations of one device operation, in words.
    fn issued(
        device: &mut FileDevice,
        kernel: Kernel,
        op: IoOp,
        durable: bool,
    ) -> Vec<&'static str> {
        let mut pool = PoolMemory::new(Pool { small: 0, large: 1 }).expect("memory");
        let mut users = UserMemory::new(0);
        let handles = Handles::new(&mut pool, &mut users);
        let mut scratch = Scratch::new();
        let segments = vec![Segment::Zero(8192); usize::from(op == IoOp::Write)];
        let io = DeviceIo {
            segments,
            durable,
            ..bare_io(op, 0, 16)
        };
        let mut flight = Flight::new(Box::new(io), 0);
        let mut progress = flight.start(device, &handles, &mut scratch);
        let mut said = Vec::new();
        loop {
            let (word, result, pieces) = match progress {
                Progress::Done(result) => {
                    result.expect("nothing fails for good");
                    return said;
                }
                Progress::Submit(Op::Write {
                    durable: true,
                    pieces,
                    ..
                }) if kernel == Kernel::RefusesFlag => ("refused", -libc::EOPNOTSUPP, pieces),
                Progress::Submit(Op::Write {
                    durable, pieces, ..
                }) => {
                    let bytes = total_bytes(&pieces) as i32;
                    let short = kernel == Kernel::Halves && bytes > 4096;
                    let word = if durable { "write+flag" } else { "write" };
                    (word, if short { 4096 } else { bytes }, pieces)
                }
                Progress::Submit(Op::Sync { .. }) => ("sync", 0, Vec::new()),
                Progress::Submit(Op::Allocate { .. }) => ("punch", 0, Vec::new()),
                Progress::Submit(other) => unreachable!("{other:?}"),
            };
            said.push(word);
            progress = flight.go_on(device, result, pieces, &mut scratch);
        }
    }

    fn device(name: &str) -> (PathBuf, FileDevice) {
        let name = format!("restripe-flight-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, [0; 8192]).expect("a temporary file");
        let (device, _) = file::open(&path, OpenOptions::default()).expect("it opens");
        (path, device)
    }

    #[test]
    fn durable_write_carries_flag_or_is_followed_by_one_sync() {
        let (path, mut device) = device("durable");
        device.zero_by_writing();
        for op in [IoOp::Write, IoOp::Zero] {
            device.go(Way::Flag);
            assert_eq!(issued(&mut device, Kernel::Whole, op, true), ["write+flag"]);
            let halves = issued(&mut device, Kernel::Halves, op, true);
            assert_eq!(halves, ["write+flag", "write+flag"]);
            device.go(Way::Sync);
            let whole = issued(&mut device, Kernel::Whole, op, true);
            assert_eq!(whole, ["write", "sync"]);
            let halves = issued(&mut device, Kernel::Halves, op, true);
            assert_eq!(halves, ["write", "write", "sync"]);
            for way in [Way::Flag, Way::Sync] {
                device.go(way);
                assert_eq!(issued(&mut device, Kernel::Whole, op, false), ["write"]);
            }
        }
        std::fs::remove_file(&path).expect("ours");
    }

    const LONG_BYTES: u32 = COPY_BYTES_MIN as u32;
    const LONG_SECTORS: u64 = COPY_BYTES_MIN / SECTOR_BYTES;

    /// A new file of `LONG_BYTES` zeros, opened through the page cache.
    fn buffered(name: &str) -> (PathBuf, FileDevice) {
        let name = format!("restripe-flight-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, [0; LONG_BYTES as usize]).expect("a temporary file");
        let options = OpenOptions {
            direct: false,
            ..OpenOptions::default()
        };
        let (device, _) = file::open(&path, options).expect("it opens");
        (path, device)
    }

    /// Whether each kernel operation asks the page cache alone, if these are the results of the first ones.
    fn asked_of_cache(device: &mut FileDevice, bytes: u32, results: &[i32]) -> Vec<bool> {
        let mut pool = PoolMemory::new(Pool { small: 0, large: 0 }).expect("memory");
        let mut users = UserMemory::new(1 << 20);
        let buf = users.allocate(bytes, 0).expect("room");
        let handles = Handles::new(&mut pool, &mut users);
        let mut scratch = Scratch::new();
        let mut io = bare_io(IoOp::Read, 0, u64::from(bytes) / SECTOR_BYTES);
        io.segments.push(Segment::Buf(buf));
        let mut flight = Flight::new(Box::new(io), 0);
        let mut progress = flight.start(device, &handles, &mut scratch);
        let (mut results, mut asked) = (results.iter(), Vec::new());
        while let Progress::Submit(op) = progress {
            let Op::Read { pieces, cached, .. } = op else {
                unreachable!("{op:?}")
            };
            asked.push(cached);
            let whole = total_bytes(&pieces) as i32;
            let result = results.next().copied().unwrap_or(whole);
            progress = flight.go_on(device, result, pieces, &mut scratch);
        }
        assert!(matches!(progress, Progress::Done(Ok(()))));
        asked
    }

    #[test]
    fn long_write_that_failed_is_not_tried_again() {
        let (path, mut device) = buffered("long-write");
        let mut pool = PoolMemory::new(Pool { small: 0, large: 0 }).expect("memory");
        let mut users = UserMemory::new(0);
        let handles = Handles::new(&mut pool, &mut users);
        let mut scratch = Scratch::new();
        let mut io = bare_io(IoOp::Write, 0, LONG_SECTORS);
        io.segments.push(Segment::Zero(LONG_BYTES));
        let mut flight = Flight::new(Box::new(io), 0);
        let Progress::Submit(Op::Write { pieces, .. }) =
            flight.start(&device, &handles, &mut scratch)
        else {
            panic!("it is written")
        };
        let failed = flight.go_on(&mut device, -libc::EIO, pieces, &mut scratch);
        assert!(matches!(failed, Progress::Done(Err(IoError::Media))));
        std::fs::remove_file(&path).expect("ours");
    }

    #[test]
    fn long_read_that_the_page_cache_has_not_goes_to_the_device() {
        let (path, mut device) = buffered("cached");
        let long = LONG_BYTES;
        let mut asked = |bytes, results: &[i32]| asked_of_cache(&mut device, bytes, results);
        assert_eq!(asked(long, &[]), [true]);
        assert_eq!(asked(4096, &[]), [false]);
        assert_eq!(asked(long, &[4096]), [true, true]);
        for refusal in [libc::EAGAIN, libc::EOPNOTSUPP, libc::EIO] {
            assert_eq!(asked(long, &[-refusal]), [true, false]);
            assert_eq!(asked(long, &[4096, -refusal]), [true, true, false]);
        }
        assert_eq!(asked(long, &[0]), [true, false], "no end of the file");
        assert_eq!(asked(long, &[4096, 0]), [true, true, false]);
        std::fs::remove_file(&path).expect("ours");
    }

    #[test]
    fn durable_hole_is_followed_by_sync_whatever_the_way() {
        let (path, mut device) = device("hole");
        for way in [Way::Flag, Way::Sync] {
            device.go(way);
            let punched = issued(&mut device, Kernel::Whole, IoOp::Trim, true);
            assert_eq!(punched, ["punch", "sync"]);
        }
        std::fs::remove_file(&path).expect("ours");
    }

    #[test]
    fn volatile_member_is_sent_neither_flag_nor_sync() {
        let (path, mut device) = device("volatile");
        device.go(Way::None);
        let mut issued = |op, durable| issued(&mut device, Kernel::Whole, op, durable);
        assert_eq!(issued(IoOp::Write, true), ["write"]);
        assert_eq!(issued(IoOp::Trim, true), ["punch"]);
        assert!(issued(IoOp::Flush, false).is_empty());
        std::fs::remove_file(&path).expect("ours");
    }

    #[test]
    fn refused_flag_is_replaced_by_sync_for_good() {
        let (path, mut device) = device("refused");
        device.go(Way::Flag);
        let first = issued(&mut device, Kernel::RefusesFlag, IoOp::Write, true);
        assert_eq!(first, ["refused", "write", "sync"]);
        let second = issued(&mut device, Kernel::RefusesFlag, IoOp::Write, true);
        assert_eq!(second, ["write", "sync"]);
        std::fs::remove_file(&path).expect("ours");
    }
}
