//! A simulated disk: its contents, the part that survives a power cut, and the time that an operation takes.
//!
//! Reads return the live image. A disk with a volatile cache also has a durable image and, in order, the
//! writes between the two. A flush moves to the durable image the writes that completed before the flush was
//! sent, and no others. A [`Device`] computes the time of an operation, so that mechanical and power models
//! can replace [`Simple`].

mod conserved;
pub mod flash;
pub mod geometry;
pub mod mechanical;
pub mod power;
pub mod queue;
pub mod seek;
pub mod served;
mod write_cache;

use crate::fault::Faults;
use crate::image::Image;
use crate::memory::{BufferTable, Private};
use crate::payload::Payload;
use crate::rng::Rng;
use restripe_array::{
    Class, DeviceIo, IoError, IoOp, MemberInfo, Nanos, PAGE_BYTES, PAGE_SECTORS, Page,
    SECTOR_BYTES, Segment, Tag,
};
use std::collections::VecDeque;
use std::sync::Arc;

// ------------------------------------------------------------------------------------------------ service times

/// How long operations take. A model may keep a head position, a spindle's phase or a power state; it never sees data.
pub trait Device: Send {
    /// When an operation that starts to be served at `now` ends.
    fn serve(&mut self, now: Nanos, asked: &Asked, rng: &mut Rng) -> Nanos;

    /// Which of the operations that wait their turn is served next; there is at least one, in order of arrival.
    fn choose(&mut self, _now: Nanos, _waiting: &VecDeque<Asked>) -> usize {
        0
    }
}

/// What a drive is told of an operation: everything but its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    pub tag: Tag,
    pub op: IoOp,
    pub class: Class,
    pub at: u64,
    pub sectors: u64,
    /// A write that ends on the medium, past any write cache (forced unit access).
    pub durable: bool,
    pub arrived: Nanos,
}

impl Asked {
    fn of(io: &DeviceIo, arrived: Nanos) -> Asked {
        Asked {
            tag: io.tag,
            op: io.op,
            class: io.class,
            at: io.at,
            sectors: io.sectors,
            durable: io.durable,
            arrived,
        }
    }
}

/// A fixed latency and a transfer rate, with a seeded jitter.
#[derive(Clone, Copy, Debug)]
pub struct Simple {
    pub latency: Nanos,
    /// Bytes a second; transfers of one disk follow one another.
    pub rate: u64,
    /// At most so much is added to each operation's latency.
    pub jitter: Nanos,
    /// What begins in front of this sector takes so much longer: where metadata lie, say.
    pub far: (u64, Nanos),
    free_at: Nanos,
}

impl Simple {
    pub fn new(latency: Nanos, rate: u64, jitter: Nanos) -> Simple {
        assert!(rate > 0, "a disk that transfers nothing never ends");
        Simple {
            latency,
            rate,
            jitter,
            far: (0, Nanos::ZERO),
            free_at: Nanos::ZERO,
        }
    }
}

impl Device for Simple {
    fn serve(&mut self, now: Nanos, asked: &Asked, rng: &mut Rng) -> Nanos {
        let bytes = match asked.op {
            IoOp::Read | IoOp::Write => asked.sectors * SECTOR_BYTES,
            IoOp::Flush | IoOp::Zero | IoOp::Trim | IoOp::Standby | IoOp::Wake => 0,
        };
        let transfer = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate);
        self.free_at = self.free_at.max(now).after(Nanos(transfer as u64));
        let jitter = if self.jitter.0 == 0 {
            0
        } else {
            rng.below(self.jitter.0)
        };
        let far = if asked.op.has_range() && asked.at < self.far.0 {
            self.far.1
        } else {
            Nanos::ZERO
        };
        let served = self.free_at.after(self.latency);
        served.after(far).after(Nanos(jitter))
    }
}

// ------------------------------------------------------------------------------------------------------ writes

/// What a write carries, taken out of memory.
#[derive(Clone, Debug)]
pub enum Part {
    Page(Page),
    Data { sectors: u64, bytes: Box<[u8]> },
    Zero { sectors: u64 },
}

impl Part {
    fn sectors(&self) -> u64 {
        match self {
            Part::Page(_) => PAGE_SECTORS,
            Part::Data { sectors, .. } | Part::Zero { sectors } => *sectors,
        }
    }
}

/// The number of a write that has not completed.
const UNDER_WAY: u64 = u64::MAX;

/// A write that a power cut may undo, wholly or in part.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Counts this disk's writes.
    pub number: u64,
    pub at: u64,
    pub sectors: u64,
    /// Shared, so that a snapshot of a crash costs little.
    pub parts: Arc<[Part]>,
    /// On the medium already; kept here for its place in the order.
    pub durable: bool,
}

impl Pending {
    /// Not in the disk's cache yet: see [`Disk::under_way`].
    pub fn is_under_way(&self) -> bool {
        self.number == UNDER_WAY
    }

    /// Puts the whole write into an image.
    pub fn apply(&self, image: &mut Image) {
        let mut at = self.at;
        for part in self.parts.iter() {
            match part {
                Part::Page(page) => image.write_full(at, &page[..]),
                Part::Data { sectors, bytes } => image.write_data(at, *sectors, bytes),
                Part::Zero { sectors } => image.zero(at, *sectors),
            }
            at += part.sectors();
        }
    }

    /// Puts those units of the write into an image that `kept` names: a torn write. A unit is `unit_sectors` long and
    /// aligned on the medium; `kept` is asked with the unit's index within the write.
    pub fn apply_torn(
        &self,
        image: &mut Image,
        unit_sectors: u64,
        mut kept: impl FnMut(u64) -> bool,
    ) {
        let mut whole = image.clone();
        self.apply(&mut whole);
        let first = self.at / unit_sectors;
        let last = (self.at + self.sectors).div_ceil(unit_sectors);
        for unit in first..last {
            if kept(unit - first) {
                let from = (unit * unit_sectors).max(self.at);
                let to = ((unit + 1) * unit_sectors).min(self.at + self.sectors);
                image.copy_from(&whole, from, to - from);
            }
        }
    }

    /// How many units of `unit_sectors` the write touches.
    pub fn units(&self, unit_sectors: u64) -> u64 {
        (self.at + self.sectors).div_ceil(unit_sectors) - self.at / unit_sectors
    }
}

// -------------------------------------------------------------------------------------------------------- disk

/// What a disk is made of.
#[derive(Clone, Copy, Debug)]
pub struct DiskConfig {
    pub info: MemberInfo,
    /// It has a write cache that a power cut empties.
    pub volatile: bool,
    /// Operations it serves at a time; more wait in order.
    pub depth: u32,
}

pub struct Disk {
    config: DiskConfig,
    live: Image,
    /// What survives a power cut, where that differs from `live` by `pending`.
    durable: Option<Image>,
    pending: VecDeque<Pending>,
    writes: u64,
    device: Box<dyn Device>,
    serving: u32,
    waiting: VecDeque<Asked>,
    /// When the operation last begun ends: with one at a time, that is when the next is chosen.
    ends: Nanos,
    rng: Rng,
    pub faults: Faults,
}

impl Disk {
    pub fn new(config: DiskConfig, image: Image, device: Box<dyn Device>, rng: Rng) -> Disk {
        let sectors = config.info.sectors;
        assert_eq!(image.sectors(), sectors, "the image is as long as the disk");
        Disk {
            config,
            durable: config.volatile.then(|| image.clone()),
            live: image,
            pending: VecDeque::new(),
            writes: 0,
            device,
            serving: 0,
            waiting: VecDeque::new(),
            ends: Nanos::ZERO,
            rng,
            faults: Faults::default(),
        }
    }

    pub fn info(&self) -> MemberInfo {
        self.config.info
    }

    pub fn config(&self) -> DiskConfig {
        self.config
    }

    pub fn payload(&self) -> Payload {
        self.live.payload()
    }

    /// What reads see.
    pub fn live(&self) -> &Image {
        &self.live
    }

    /// What is sure to survive a power cut.
    pub fn durable(&self) -> &Image {
        self.durable.as_ref().unwrap_or(&self.live)
    }

    /// The writes between the durable image and the live one, oldest first.
    pub fn pending(&self) -> impl Iterator<Item = &Pending> {
        self.pending.iter()
    }

    /// Changes what the medium holds, behind everybody's back: silent corruption, or a test's preparation.
    pub fn meddle(&mut self, change: impl Fn(&mut Image)) {
        change(&mut self.live);
        if let Some(durable) = &mut self.durable {
            change(durable);
        }
    }

    // -------------------------------------------------------------------------------------------- time

    /// Whether the next operation would wait its turn.
    pub fn full(&self) -> bool {
        self.serving >= self.config.depth
    }

    /// Takes an operation in. Returns when it ends, or `None` when it waits its turn or hangs.
    pub fn submit(&mut self, now: Nanos, io: &DeviceIo) -> Option<Nanos> {
        if self.full() {
            self.waiting.push_back(Asked::of(io, now));
            return None;
        }
        self.begin(now, io)
    }

    /// Begins to serve an operation. `None` when it hangs.
    pub fn begin(&mut self, now: Nanos, io: &DeviceIo) -> Option<Nanos> {
        self.serving += 1;
        let asked = Asked::of(io, now);
        let served = self.device.serve(now, &asked, &mut self.rng);
        self.ends = served;
        self.faults.delay(now, io.op, served)
    }

    /// An operation ended; the next one waiting may begin.
    pub fn end(&mut self) -> Option<Tag> {
        self.serving -= 1;
        if self.waiting.is_empty() {
            return None;
        }
        let index = self.device.choose(self.ends, &self.waiting);
        self.waiting.remove(index).map(|asked| asked.tag)
    }

    /// The number that the next write will get: a flush sent now covers the writes below it.
    pub fn mark(&self) -> u64 {
        self.writes
    }

    // ----------------------------------------------------------------------------------------- effects

    /// Does what `io` asks, as of now: the moment it completes. `mark` is [`Disk::mark`] when it was sent.
    pub fn perform(
        &mut self,
        io: &mut DeviceIo,
        memory: &mut BufferTable,
        private: Option<&mut Private>,
        mark: u64,
    ) -> Result<(), IoError> {
        let verdict = self.faults.verdict(io.op, io.at, io.sectors);
        self.faults.completed(io.op, io.at, io.sectors, verdict);
        verdict?;
        match io.op {
            IoOp::Read => self.read(io, memory, private),
            IoOp::Write => self.write(io, memory, private.as_deref()),
            IoOp::Flush | IoOp::Standby => self.flush(mark),
            IoOp::Wake => {}
            IoOp::Zero | IoOp::Trim => self.zero(io),
        }
        Ok(())
    }

    fn read(&self, io: &mut DeviceIo, memory: &mut BufferTable, mut private: Option<&mut Private>) {
        let mut at = io.at;
        for (index, segment) in io.segments.iter_mut().enumerate() {
            let sectors = u64::from(segment.bytes()) / SECTOR_BYTES;
            match segment {
                Segment::Page(page) => self.live.read_full(at, &mut page[..]),
                Segment::Buf(reference) => {
                    let target = match &mut private {
                        Some(private) => &mut private[index][..],
                        None => memory.get_mut(*reference),
                    };
                    self.live.read_data(at, sectors, target);
                }
                Segment::Zero(_) => {
                    unreachable!("checked at submission: a read has no zero segment")
                }
            }
            at += sectors;
        }
    }

    fn write(&mut self, io: &DeviceIo, memory: &BufferTable, private: Option<&Private>) {
        let end = self.live.sectors();
        let at = self.faults.misdirect(io.at, io.sectors, end);
        if self.durable.is_none() {
            return write_through(&mut self.live, at, &io.segments, memory, private);
        }
        let parts = take_parts(&io.segments, memory, private);
        self.keep(at, io.sectors, parts.into(), io.durable);
    }

    fn zero(&mut self, io: &DeviceIo) {
        if self.durable.is_none() {
            return self.live.zero(io.at, io.sectors);
        }
        let sectors = io.sectors;
        let parts = vec![Part::Zero { sectors }].into();
        self.keep(io.at, sectors, parts, io.durable);
    }

    /// Takes a write into the cache.
    fn keep(&mut self, at: u64, sectors: u64, parts: Arc<[Part]>, durable: bool) {
        let pending = Pending {
            number: self.writes,
            at,
            sectors,
            parts,
            durable,
        };
        self.writes += 1;
        pending.apply(&mut self.live);
        self.pending.push_back(pending);
        if durable && self.pending.len() == 1 {
            self.flush(self.writes);
        }
    }

    fn flush(&mut self, mark: u64) {
        let Some(durable) = &mut self.durable else {
            return;
        };
        let leaves = |pending: &Pending| pending.number < mark || pending.durable;
        while self.pending.front().is_some_and(leaves) {
            let pending = self.pending.pop_front().expect("just seen");
            pending.apply(durable);
        }
    }

    // ------------------------------------------------------------------------------------------ crashes

    /// What an operation under way would write: a power cut may find it done, undone or torn. Without a cache too.
    pub fn under_way(
        &self,
        io: &DeviceIo,
        memory: &BufferTable,
        private: Option<&Private>,
    ) -> Option<Pending> {
        if self.faults.verdict(io.op, io.at, io.sectors).is_err() {
            return None;
        }
        let parts = match io.op {
            IoOp::Write => take_parts(&io.segments, memory, private),
            IoOp::Zero | IoOp::Trim => vec![Part::Zero {
                sectors: io.sectors,
            }],
            IoOp::Read | IoOp::Flush | IoOp::Standby | IoOp::Wake => return None,
        };
        Some(Pending {
            number: UNDER_WAY,
            at: io.at,
            sectors: io.sectors,
            parts: parts.into(),
            durable: false,
        })
    }

    /// The same disk after a power cut that left `image`: nothing cached, nothing under way, its faults kept.
    pub fn restart(self, image: Image) -> Disk {
        let faults = self.faults.after_power_cut();
        let mut disk = Disk::new(self.config, image, self.device, self.rng);
        disk.faults = faults;
        disk
    }
}

impl Disk {
    /// The same disk for another daemon, after the one before died: its cache lives on. `done` are writes that the dead
    /// one had under way, and that were done all the same.
    pub fn outlive(mut self, done: Vec<Pending>) -> Disk {
        for write in done {
            match self.durable {
                None => write.apply(&mut self.live),
                Some(_) => self.keep(write.at, write.sectors, write.parts, write.durable),
            }
        }
        self.waiting.clear();
        (self.serving, self.ends) = (0, Nanos::ZERO);
        self.faults = self.faults.after_power_cut();
        self
    }
}

fn write_through(
    image: &mut Image,
    at: u64,
    segments: &[Segment],
    memory: &BufferTable,
    private: Option<&Private>,
) {
    let mut at = at;
    for (index, segment) in segments.iter().enumerate() {
        let sectors = u64::from(segment.bytes()) / SECTOR_BYTES;
        match segment {
            Segment::Page(page) => image.write_full(at, &page[..]),
            Segment::Buf(reference) => {
                let bytes =
                    private.map_or_else(|| memory.get(*reference), |private| &private[index][..]);
                image.write_data(at, sectors, bytes);
            }
            Segment::Zero(_) => image.zero(at, sectors),
        }
        at += sectors;
    }
}

fn take_parts(segments: &[Segment], memory: &BufferTable, private: Option<&Private>) -> Vec<Part> {
    let part = |(index, segment): (usize, &Segment)| match segment {
        Segment::Page(page) => Part::Page(page.clone()),
        Segment::Buf(reference) => Part::Data {
            sectors: u64::from(reference.bytes) / SECTOR_BYTES,
            bytes: private
                .map_or_else(|| memory.get(*reference), |private| &private[index][..])
                .into(),
        },
        Segment::Zero(bytes) => Part::Zero {
            sectors: u64::from(*bytes) / SECTOR_BYTES,
        },
    };
    segments.iter().enumerate().map(part).collect()
}

/// A copy of one metadata page, for those who look at a medium from outside.
pub fn read_page(image: &Image, at: u64) -> Page {
    let mut page = Box::new([0; PAGE_BYTES]);
    image.read_full(at, &mut page[..]);
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use restripe_array::{Buf, BufRef, Class, Member, Pool};

    const SECTORS: u64 = 256;

    fn disk(volatile: bool) -> Disk {
        let info = MemberInfo {
            sectors: SECTORS,
            logical_block: 512,
            trim_zeroes: true,
            fast_zero: true,
            volatile: false,
        };
        let config = DiskConfig {
            info,
            volatile,
            depth: 2,
        };
        let device = Simple::new(Nanos(1000), 512_000_000_000, Nanos(0));
        let image = Image::new(Payload::Tokens, SECTORS);
        Disk::new(config, image, Box::new(device), Rng::new(1))
    }

    fn memory() -> BufferTable {
        BufferTable::new(Payload::Tokens, Pool { small: 4, large: 0 })
    }

    fn io(op: IoOp, at: u64, sectors: u64, buf: u32) -> DeviceIo {
        let bytes = (sectors * SECTOR_BYTES) as u32;
        let segments = match op {
            IoOp::Read | IoOp::Write => vec![Segment::Buf(BufRef::new(Buf(buf), 0, bytes))],
            _ => Vec::new(),
        };
        DeviceIo {
            tag: Tag(1),
            member: Member(0),
            op,
            at,
            sectors,
            segments,
            durable: false,
            class: Class::User,
        }
    }

    fn token(image: &Image, at: u64) -> u64 {
        let mut bytes = [0; 8];
        image.read_data(at, 1, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    fn write(disk: &mut Disk, memory: &mut BufferTable, at: u64, value: u64, durable: bool) {
        let mut io = io(IoOp::Write, at, 1, 0);
        io.durable = durable;
        let bytes = memory.get_mut(BufRef::new(Buf(0), 0, 512));
        bytes.copy_from_slice(&value.to_le_bytes());
        let mark = disk.mark();
        let done = disk.perform(&mut io, memory, None, mark);
        done.expect("no fault was planned");
    }

    #[test]
    fn a_flush_covers_what_completed_before_it_was_sent() {
        let (mut disk, mut memory) = (disk(true), memory());
        write(&mut disk, &mut memory, 3, 30, false);
        let mark = disk.mark();
        write(&mut disk, &mut memory, 4, 40, false);
        disk.perform(&mut io(IoOp::Flush, 0, 0, 0), &mut memory, None, mark)
            .expect("flush");
        let tokens = |image| (token(image, 3), token(image, 4));
        assert_eq!(tokens(disk.live()), (30, 40));
        assert_eq!(tokens(disk.durable()), (30, 0));
        assert_eq!(disk.pending().count(), 1);
    }

    #[test]
    fn a_durable_write_keeps_its_place_in_the_order() {
        let (mut disk, mut memory) = (disk(true), memory());
        write(&mut disk, &mut memory, 3, 30, false);
        write(&mut disk, &mut memory, 3, 31, true);
        let kept: Vec<bool> = disk.pending().map(|pending| pending.durable).collect();
        assert_eq!(kept, [false, true]);
        let mut image = disk.durable().clone();
        disk.pending().for_each(|pending| pending.apply(&mut image));
        assert_eq!(token(&image, 3), 31);
    }

    #[test]
    fn a_durable_write_alone_is_on_the_medium_at_once() {
        let (mut disk, mut memory) = (disk(true), memory());
        write(&mut disk, &mut memory, 9, 90, true);
        assert_eq!((token(disk.durable(), 9), disk.pending().count()), (90, 0));
    }

    #[test]
    fn a_torn_write_keeps_whole_units() {
        let mut memory = memory();
        let reference = BufRef::new(Buf(0), 0, 4096);
        memory.get_mut(reference).fill(5);
        let disk = disk(false);
        let pending = disk.under_way(&io(IoOp::Write, 4, 8, 0), &memory, None);
        let pending = pending.expect("a write");
        assert_eq!((pending.units(8), pending.units(1)), (2, 8));
        let mut image = Image::new(Payload::Tokens, SECTORS);
        pending.apply_torn(&mut image, 8, |unit| unit == 1);
        let written: Vec<u64> = (0..SECTORS).filter(|at| token(&image, *at) != 0).collect();
        assert_eq!(written, [8, 9, 10, 11]);
    }

    #[test]
    fn a_detached_read_leaves_memory_alone() {
        let (mut disk, mut memory) = (disk(false), memory());
        write(&mut disk, &mut memory, 3, 30, false);
        let mut read = io(IoOp::Read, 3, 1, 1);
        let mut private = memory.detach(&read.segments);
        disk.perform(&mut read, &mut memory, Some(&mut private), 0)
            .expect("read");
        assert_eq!(memory.get(BufRef::new(Buf(1), 0, 512)), [0; 8]);
        assert_eq!(private, vec![30u64.to_le_bytes().to_vec()]);
    }

    #[test]
    fn operations_beyond_the_depth_wait() {
        let mut disk = disk(false);
        let read = io(IoOp::Read, 0, 1, 0);
        assert_eq!(disk.submit(Nanos(0), &read), Some(Nanos(1001)));
        assert_eq!(disk.submit(Nanos(0), &read), Some(Nanos(1002)));
        assert_eq!(disk.submit(Nanos(0), &read), None);
        assert_eq!(disk.end(), Some(Tag(1)));
        assert_eq!(disk.begin(Nanos(1001), &read), Some(Nanos(2002)));
    }

    #[test]
    fn a_cache_outlives_a_daemon() {
        let (mut disk, mut memory) = (disk(true), memory());
        write(&mut disk, &mut memory, 3, 30, false);
        let late = io(IoOp::Write, 4, 1, 0);
        memory.get_mut(BufRef::new(Buf(0), 0, 512)).fill(4);
        let late = disk.under_way(&late, &memory, None).expect("a write");
        let disk = disk.outlive(vec![late]);
        assert_eq!((token(disk.live(), 3), disk.pending().count()), (30, 2));
        assert!(token(disk.live(), 4) != 0 && token(disk.durable(), 3) == 0);
    }

    #[test]
    fn a_restarted_disk_has_nothing_pending() {
        let (mut disk, mut memory) = (disk(true), memory());
        write(&mut disk, &mut memory, 3, 30, false);
        let image = disk.durable().clone();
        let disk = disk.restart(image);
        assert_eq!((token(disk.live(), 3), disk.pending().count()), (0, 0));
    }
}
