//! A mechanical drive: arm, spindle, segment cache, write cache and bus, as a state machine in integer
//! nanoseconds.
//!
//! One command is served at a time. [`Mechanical::service`] computes when a command that arrives at `now`
//! completes. The drive's background work (read-ahead, writing from its cache) has no steps of its own: each
//! command first brings this work up to its own arrival, by arithmetic on the angle.
//!
//! | the mechanism is | begins when | ends when |
//! |---|---|---|
//! | idle | no work is left | a command or a cached write needs the arm |
//! | reading ahead | a read's last block has passed | the segment is full, a track or cylinder ends, or the arm is needed |
//! | writing out | the arm is free and a cached write is due | a segment's worth has passed, or all there is |
//!
//! The model checks itself as it writes: `conserved.rs`, `write_cache.rs`.
//!
//! After Ruemmler and Wilkes 1994 and the parameter set of Bucy et al. 2008 (DiskSim 4.0). Unlike DiskSim,
//! there is no bus arbitration, and requests do not wait for sectors event by event.

use super::conserved::Written;
use super::geometry::{Geometry, Layout, Place};
use super::seek::{SeekCurve, SeekTable};
use super::write_cache::WriteCache;
use serde::{Deserialize, Serialize};
use std::ops::Range;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    Read,
    Write,
}

/// A command on blocks of 512 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Command {
    pub access: Access,
    pub block: u64,
    pub blocks: u32,
    /// A write that ends on the medium though the write cache is on (forced unit access); of a read it says nothing.
    pub durable: bool,
}

impl Command {
    pub fn read(block: u64, blocks: u32) -> Command {
        Command {
            access: Access::Read,
            block,
            blocks,
            durable: false,
        }
    }

    /// One that may end in the drive's cache.
    pub fn write(block: u64, blocks: u32) -> Command {
        Command {
            access: Access::Write,
            ..Command::read(block, blocks)
        }
    }

    fn end(&self) -> u64 {
        self.block + u64::from(self.blocks)
    }

    fn range(&self) -> Range<u64> {
        self.block..self.end()
    }
}

/// The drive's own time before it acts on a command: for `[Access::Read, Access::Write]` as the command before.
pub type AfterEach = [u64; 2];

#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub struct Overheads {
    pub read_hit_ns: AfterEach,
    pub read_miss_ns: AfterEach,
    /// A write that ends when its data are in the cache.
    pub write_cached_ns: AfterEach,
    /// A write that ends when its data are on the medium.
    pub write_through_ns: AfterEach,
    pub read_done_ns: u64,
    pub write_done_ns: u64,
}

/// Where reading ahead ends, if it is not the number of blocks that ends it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum AheadTo {
    Nowhere,
    /// To the track's end, and then its beginning: the track is read whole.
    WholeTrack,
    TrackEnd,
    CylinderEnd,
    SegmentFull,
}

/// When a drive reads ahead at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum AheadWhen {
    Always,
    /// A read began where the read before it ended.
    Sequential,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct Ahead {
    pub to: AheadTo,
    pub when: AheadWhen,
    /// At most so many blocks beyond the last one asked for.
    pub blocks: u32,
    /// Goes on when the segment is full, over what was asked for.
    pub over_requested: bool,
    /// A hit moves the window on.
    pub follows_hits: bool,
}

/// What becomes of a segment when some of its blocks are overwritten.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum OnWrite {
    DropAll,
    KeepFront,
    KeepTail,
}

#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub struct Cache {
    pub segments: u32,
    pub segment_blocks: u32,
    pub ahead: Ahead,
    pub on_write: OnWrite,
    /// Writes end when the drive has their data.
    pub write_back: bool,
    /// Segments that may hold writes which are not written out. Writes that follow one another share them;
    /// others have one each.
    pub write_segments: u32,
    /// A cached write is left alone for so long before it is written out.
    pub write_delay_ns: u64,
    /// What was written may be read back from the cache.
    pub reads_hit_writes: bool,
}

#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub struct Mechanism {
    pub seek: SeekCurve,
    pub head_switch_ns: u64,
    /// The additional settling time of a write, compared with a read. It may be negative, as DiskSim permits.
    pub write_settle_ns: i64,
    /// Reads from wherever the head arrives on the track, instead of waiting for the first block.
    pub zero_latency: bool,
}

#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub struct Bus {
    pub read_block_ns: u64,
    pub write_block_ns: u64,
    /// Per cent of a read's blocks that the medium has delivered when the bus begins.
    pub read_mark: u32,
    /// Per cent of a write that the bus has brought when the medium may begin, which never lacks data then.
    pub write_mark: u32,
}

/// All that makes one drive behave unlike another.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub struct Drive {
    pub layout: Layout,
    pub mechanism: Mechanism,
    pub bus: Bus,
    pub overheads: Overheads,
    pub cache: Cache,
}

/// What the drive did, in nanoseconds and commands.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Work {
    pub reads: u64,
    pub writes: u64,
    pub read_hits: u64,
    pub seek_ns: u64,
    pub rotate_ns: u64,
    pub transfer_ns: u64,
    /// Blocks of commands that ended when they were in the write cache.
    pub cached_blocks: u64,
    /// Blocks that the head has passed over or is about to pass over to write them.
    pub written_blocks: u64,
}

struct Segment {
    start: u64,
    end: u64,
    used: u64,
}

/// Reading on, into a segment.
#[derive(Clone, Copy)]
struct Stream {
    segment: usize,
    /// The first block not read yet, and when its reading begins.
    block: u64,
    at: u64,
    limit: u64,
    /// From then on the segment begins here: the blocks of the track that passed last.
    whole_at: u64,
    track_start: u64,
}

/// How a run of blocks passed under the head.
struct Pass {
    /// The head was on the track.
    ready: u64,
    /// The first block began to pass.
    begin: u64,
    /// The first block had passed.
    first: u64,
    /// When the first block began to pass, had the blocks of its track passed in their order.
    in_order: u64,
    last: u64,
    /// Slots that passed in vain before the first block.
    passed: u32,
    /// Blocks of the same track before the first.
    before: u32,
}

pub struct Mechanical {
    drive: Drive,
    geometry: Geometry,
    seek: SeekTable,
    cylinder: u32,
    surface: u32,
    /// When the mechanism is done with what cannot be interrupted.
    free_at: u64,
    /// When the last command completed.
    done_at: u64,
    last: Access,
    /// Where the last read ended.
    read_to: u64,
    last_block: u64,
    stream: Option<Stream>,
    segments: Vec<Segment>,
    uses: u64,
    unwritten: WriteCache,
    written: Written,
    work: Work,
}

impl Mechanical {
    pub fn new(drive: Drive) -> Result<Mechanical, String> {
        let geometry = Geometry::new(drive.layout.clone())?;
        let seek = SeekTable::new(&drive.mechanism.seek, drive.layout.cylinders)?;
        let most = u64::from(drive.cache.segments) + u64::from(drive.cache.write_segments);
        if most > 4096 {
            return Err(format!("{most} cache segments are more than 4096"));
        }
        Ok(Mechanical {
            geometry,
            seek,
            cylinder: 0,
            surface: 0,
            free_at: 0,
            done_at: 0,
            last: Access::Read,
            read_to: u64::MAX,
            last_block: 0,
            stream: None,
            segments: Vec::with_capacity(drive.cache.segments as usize + 1),
            uses: 0,
            unwritten: WriteCache::new(drive.cache.write_segments, drive.cache.segment_blocks),
            written: Written::default(),
            work: Work::default(),
            drive,
        })
    }

    pub fn drive(&self) -> &Drive {
        &self.drive
    }

    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub fn work(&self) -> Work {
        self.work
    }

    /// When the command ends that the host sent at `now`; commands are served in the order of the calls.
    pub fn service(&mut self, now: u64, command: Command) -> u64 {
        assert!(
            command.blocks > 0 && command.end() <= self.geometry.blocks(),
            "a command lies within the drive"
        );
        let start = now.max(self.done_at);
        self.advance(start);
        let done = match command.access {
            Access::Read => self.read(start, command),
            Access::Write => self.write(start, command),
        };
        if command.access == Access::Read {
            self.read_to = command.end();
        }
        self.last_block = command.end();
        self.last = command.access;
        self.done_at = done;
        done
    }

    /// When everything that a command wrote before `now` is on the medium.
    pub fn flush(&mut self, now: u64) -> u64 {
        let start = now.max(self.done_at);
        self.advance(start);
        let mut at = start;
        let (left, before) = (self.unwritten.blocks(), self.work.written_blocks);
        let under_way = self.unwritten.under_way();
        while let Some(target) = self.run_out(at) {
            at = at.max(self.written_until(target));
        }
        let written = self.work.written_blocks - before + under_way;
        assert_eq!(written, left, "a flush writes what is left, once");
        self.done_at = at;
        at
    }

    /// How long the arm and the platter would take to bring a command's first block under the head, from
    /// `now`: not at all, if the cache serves the command or takes it in, or the head reads these blocks already. A
    /// write that a full cache would take in counts the time until there is room for it. As of the time up to
    /// which [`Mechanical::advance`] has brought the drive.
    pub fn positioning(&self, now: u64, command: Command) -> u64 {
        if self.needs_no_arm(command) {
            return 0;
        }
        let caches = command.access == Access::Write && self.may_cache(command);
        match self
            .unwritten
            .enough_for(&command.range())
            .filter(|_| caches)
        {
            Some(enough) => self.room_at(now, enough) - now,
            None => self.under_head(now, command.block, command.access) - now,
        }
    }

    /// When `block` begins to pass, if the arm goes there next.
    fn under_head(&self, now: u64, block: u64, access: Access) -> u64 {
        let place = self.geometry.locate(block);
        let ready = now.max(self.free_at) + self.travel(place, access);
        self.next_pass(place.angle_ns, ready)
    }

    /// When the write cache's first extent will have been written up to `enough`, if the arm does that next.
    fn room_at(&self, now: u64, enough: u64) -> u64 {
        let (block, at) = match self.unwritten.out() {
            Some(out) => self.follow(
                (out.block, out.at),
                out.until.min(enough),
                u64::MAX / 4,
                Access::Write,
            ),
            None => match self.unwritten.next_run() {
                Some((block, _)) => (block, self.under_head(now, block, Access::Write)),
                None => return now,
            },
        };
        let place = self.geometry.locate(block.min(self.geometry.blocks() - 1));
        at.max(now) + self.transfer(place, enough.saturating_sub(block))
    }

    fn needs_no_arm(&self, command: Command) -> bool {
        match command.access {
            Access::Read => self.holding(command).is_some() || self.is_reading(command),
            Access::Write => self.may_cache(command) && self.unwritten.has_room(&command.range()),
        }
    }

    /// The block behind the last one that a command asked for.
    pub fn last_block(&self) -> u64 {
        self.last_block
    }

    // ------------------------------------------------------------------------------------------- background

    /// Brings what the drive does by itself up to `now`, which no later call may be before: so a choice among
    /// commands finds the drive as the command does that is then served.
    pub fn advance(&mut self, now: u64) {
        loop {
            if let Some(out) = self.unwritten.out() {
                let (block, at) = self.follow((out.block, out.at), out.until, now, Access::Write);
                self.unwritten.passed(block, at);
                if block < out.until {
                    break;
                }
            }
            let due = self.unwritten.due().map(|due| self.free_at.max(due));
            let Some(from) = due.filter(|from| *from < now) else {
                break;
            };
            self.run_out(from);
        }
        if let Some(stream) = self.stream.take() {
            self.stream = Some(self.run_to(stream, now));
        }
    }

    /// Writes out a segment's worth of what has waited longest, unless one is under way: the block behind it.
    fn run_out(&mut self, from: u64) -> Option<u64> {
        if let Some(out) = self.unwritten.out() {
            return Some(out.until);
        }
        let (block, until) = self.unwritten.next_run()?;
        let from = from.max(self.free_at);
        self.stop_stream(from);
        let pass = self.pass_over((from, 0), block, until - block, Access::Write);
        self.free_at = pass.last;
        self.unwritten.begin(until, pass.begin);
        Some(until)
    }

    /// When the run under way has written all before `block`; the cache is as it is then.
    fn written_until(&mut self, block: u64) -> u64 {
        let out = self.unwritten.out().expect("a run is under way");
        let (block, at) = self.follow(
            (out.block, out.at),
            block.min(out.until),
            u64::MAX / 4,
            Access::Write,
        );
        self.unwritten.passed(block, at);
        at
    }

    /// Where a pass that comes to `block` at `at` is by `now`: the first block that has not passed, and when
    /// it begins to.
    fn follow(
        &self,
        (mut block, mut at): (u64, u64),
        until: u64,
        now: u64,
        access: Access,
    ) -> (u64, u64) {
        while block < until && at < now {
            let place = self.geometry.locate(block);
            let run = u64::from(place.run).min(until - block);
            let passed = self.passed_by(place, now - at).min(run);
            block += passed;
            at += self.transfer(place, passed);
            if passed < run {
                break;
            }
            if block < until {
                let next = self.geometry.locate(block);
                let ready = at + self.travel_between(place, next, access);
                at = self.next_pass(next.angle_ns, ready);
            }
        }
        (block, at)
    }

    /// The head leaves the track: what the stream has read until then stays.
    fn stop_stream(&mut self, now: u64) {
        if let Some(stream) = self.stream.take() {
            self.run_to(stream, now);
        }
    }

    /// Reads on until `now` or the limit.
    fn run_to(&mut self, stream: Stream, now: u64) -> Stream {
        let mut stream = stream;
        while stream.block < stream.limit && stream.at < now {
            let place = self.geometry.locate(stream.block);
            self.hold(place);
            let run = u64::from(place.run).min(stream.limit - stream.block);
            let elapsed = (now - stream.at).min(self.geometry.turn_ns());
            let passed = elapsed * u64::from(place.slots_per_track) / self.geometry.turn_ns();
            if passed < run {
                stream.block += passed;
                stream.at += self.transfer(place, passed);
                break;
            }
            stream.block += run;
            stream.at += self.transfer(place, run);
            stream.at = self.next_start(stream.block, stream.limit, stream.at, Access::Read);
        }
        let segment = &mut self.segments[stream.segment];
        segment.end = stream.block;
        let kept = u64::from(self.drive.cache.segment_blocks);
        if now >= stream.whole_at {
            segment.start = segment.start.min(stream.track_start);
        }
        segment.start = segment.start.max(stream.block.saturating_sub(kept));
        stream
    }

    // ----------------------------------------------------------------------------------------------- arm

    fn hold(&mut self, place: Place) {
        self.cylinder = place.cylinder;
        self.surface = place.surface;
    }

    /// Arm and head, from where they are to `place`.
    fn travel(&self, place: Place, access: Access) -> u64 {
        let here = Place {
            cylinder: self.cylinder,
            surface: self.surface,
            ..place
        };
        self.travel_between(here, place, access)
    }

    fn travel_between(&self, from: Place, place: Place, access: Access) -> u64 {
        let settle = match access {
            Access::Read => 0,
            Access::Write => self.drive.mechanism.write_settle_ns,
        };
        let distance = from.cylinder.abs_diff(place.cylinder);
        let switch = match from.surface == place.surface {
            true => 0,
            false => self.drive.mechanism.head_switch_ns,
        };
        match self.seek.ns(distance).max(switch) {
            0 => 0,
            moved => moved.saturating_add_signed(settle),
        }
    }

    /// The first time from `ready` on that the angle is under the head.
    fn next_pass(&self, angle: u64, ready: u64) -> u64 {
        let turn = self.geometry.turn_ns();
        let phase = ready % turn;
        let next = if angle >= phase { angle } else { angle + turn };
        ready + (next - phase)
    }

    fn transfer(&self, place: Place, blocks: u64) -> u64 {
        blocks * self.geometry.turn_ns() / u64::from(place.slots_per_track)
    }

    /// How many blocks pass in this time: as many as [`Mechanical::transfer`] takes no longer for.
    fn passed_by(&self, place: Place, ns: u64) -> u64 {
        let turn = self.geometry.turn_ns();
        ((ns.min(turn) + 1) * u64::from(place.slots_per_track) - 1) / turn
    }

    /// When `block` begins to pass if the one before it ended at `at`.
    fn next_start(&mut self, block: u64, limit: u64, at: u64, access: Access) -> u64 {
        if block >= limit {
            return at;
        }
        let place = self.geometry.locate(block);
        let ready = at + self.travel(place, access);
        self.hold(place);
        self.next_pass(place.angle_ns, ready)
    }

    /// Positions and passes over blocks. `(from, data)` is when the arm may move, and when the first block
    /// may pass.
    fn pass_over(
        &mut self,
        (from, data): (u64, u64),
        block: u64,
        blocks: u64,
        access: Access,
    ) -> Pass {
        let place = self.geometry.locate(block);
        let travel = self.travel(place, access);
        let ready = from + travel;
        let at = self.next_pass(place.angle_ns, ready.max(data));
        self.work.seek_ns += travel;
        self.work.rotate_ns += at - ready;
        let run = u64::from(place.run).min(blocks);
        self.hold(place);
        let (first, passed_at) = self.first_run(place, run, ready, at, access);
        self.count(access, place, run, (at, passed_at));
        let last = self.pass_rest(block + run, block + blocks, passed_at, access);
        self.work.transfer_ns += last.saturating_sub(at);
        let slots = (at - ready) * u64::from(place.slots_per_track) / self.geometry.turn_ns();
        Pass {
            ready,
            begin: at,
            first,
            in_order: passed_at - self.transfer(place, run),
            last,
            passed: slots as u32,
            before: place.before,
        }
    }

    /// When the first block has passed, and when all of the first run has.
    fn first_run(&self, place: Place, run: u64, ready: u64, at: u64, access: Access) -> (u64, u64) {
        let straight = at + self.transfer(place, run);
        let turned = ready + self.geometry.turn_ns();
        let on_arrival = access == Access::Read && self.drive.mechanism.zero_latency;
        if on_arrival && straight > turned {
            return (turned - self.transfer(place, run), turned);
        }
        (at + self.transfer(place, 1), straight)
    }

    /// Passes over what follows on other tracks, after what ended at `at`.
    fn pass_rest(&mut self, block: u64, end: u64, at: u64, access: Access) -> u64 {
        let (mut block, mut at) = (block, at);
        while block < end {
            at = self.next_start(block, end, at, access);
            let place = self.geometry.locate(block);
            let run = u64::from(place.run).min(end - block);
            let begin = at;
            at += self.transfer(place, run);
            self.count(access, place, run, (begin, at));
            block += run;
        }
        at
    }

    /// Checks what passes in a write against the platter.
    fn count(&mut self, access: Access, place: Place, blocks: u64, times: (u64, u64)) {
        if access == Access::Write {
            self.work.written_blocks += blocks;
            let turn = self.geometry.turn_ns();
            self.written
                .pass(place.slots_per_track, turn, blocks, times);
        }
    }

    // --------------------------------------------------------------------------------------------- reads

    fn read(&mut self, now: u64, command: Command) -> u64 {
        self.work.reads += 1;
        let hit = now + self.drive.overheads.read_hit_ns[self.last as usize];
        if let Some(segment) = self.holding(command) {
            self.work.read_hits += 1;
            self.touch(segment);
            self.read_further(now, segment, command);
            return hit + self.bus_read(command) + self.drive.overheads.read_done_ns;
        }
        match self.stream {
            Some(stream) if self.will_read(&stream, command) => {
                self.read_from_stream(hit, stream, command)
            }
            _ => self.read_from_medium(now, command),
        }
    }

    /// A hit moves the read-ahead's window on, if the head is still where it read.
    fn read_further(&mut self, now: u64, segment: usize, command: Command) {
        let Some(mut stream) = self.stream.filter(|stream| stream.segment == segment) else {
            return;
        };
        if !self.drive.cache.ahead.follows_hits {
            return;
        }
        let limit = command.end() + u64::from(self.drive.cache.ahead.blocks);
        let limit = self.ahead_limit(command.end(), limit.min(self.geometry.blocks()));
        if limit <= stream.limit {
            return;
        }
        if stream.block >= stream.limit {
            // It had stopped behind its last block, over the same track since then.
            stream.at = self.next_start(stream.block, limit, stream.at.max(now), Access::Read);
        }
        stream.limit = limit;
        self.stream = Some(stream);
    }

    fn bus_read(&self, command: Command) -> u64 {
        u64::from(command.blocks) * self.drive.bus.read_block_ns
    }

    fn holding(&self, command: Command) -> Option<usize> {
        let mut segments = self.segments.iter();
        segments.position(|one| one.start <= command.block && command.end() <= one.end)
    }

    fn touch(&mut self, segment: usize) {
        self.uses += 1;
        self.segments[segment].used = self.uses;
    }

    /// The read-ahead under way comes by these blocks, and on the track where it is: further ahead, a seek is sooner.
    fn will_read(&self, stream: &Stream, command: Command) -> bool {
        let segment = &self.segments[stream.segment];
        if segment.start > command.block || command.block >= stream.limit {
            return false;
        }
        let track = |block| {
            let place = self.geometry.locate(block);
            (place.cylinder, place.surface)
        };
        stream.block < stream.limit
            && (command.block <= stream.block || track(stream.block) == track(command.block))
    }

    /// The read-ahead under way has read a command's first block, or comes to it now.
    fn is_reading(&self, command: Command) -> bool {
        let stream = self.stream.as_ref();
        stream.is_some_and(|one| command.block <= one.block && self.will_read(one, command))
    }

    fn read_from_stream(&mut self, ready: u64, stream: Stream, command: Command) -> u64 {
        self.touch(stream.segment);
        self.work.read_hits += 1;
        let wanted = Stream {
            limit: command.end(),
            ..stream
        };
        let reached = self.run_to(wanted, u64::MAX / 4);
        let medium = reached.at;
        self.free_at = medium;
        let limit = match self.drive.cache.ahead.follows_hits {
            true => self.ahead_limit(command.end(), self.window(stream.segment, command)),
            false => stream.limit.max(command.end()),
        };
        self.stream_on(stream.segment, command.end(), limit, medium);
        let bus = (ready + self.bus_read(command)).max(medium + self.drive.bus.read_block_ns);
        bus + self.drive.overheads.read_done_ns
    }

    fn read_from_medium(&mut self, now: u64, command: Command) -> u64 {
        let ready = now + self.drive.overheads.read_miss_ns[self.last as usize];
        let from = ready.max(self.free_at);
        self.stop_stream(from);
        let (block, blocks) = (command.block, command.blocks.into());
        let pass = self.pass_over((from, 0), block, blocks, Access::Read);
        self.free_at = pass.last;
        let segment = self.segment_for(command.block, command.end());
        self.read_ahead(segment, command, &pass);
        let begun = self.read_mark_at(command, &pass);
        let sent = (begun + self.bus_read(command)).max(pass.last + self.drive.bus.read_block_ns);
        sent + self.drive.overheads.read_done_ns
    }

    /// When as many of a read's blocks have passed as the bus waits for. Between two tracks none passes.
    fn read_mark_at(&self, command: Command, pass: &Pass) -> u64 {
        let mark = u64::from(self.drive.bus.read_mark);
        match (u64::from(command.blocks) * mark).div_ceil(100) {
            0 => pass.first,
            enough => {
                let (from, until) = (command.block, command.block + enough);
                self.follow((from, pass.in_order), until, u64::MAX / 4, Access::Read)
                    .1
            }
        }
    }

    /// Reads on behind a command that the medium has just served.
    fn read_ahead(&mut self, segment: usize, command: Command, pass: &Pass) {
        let ahead = self.drive.cache.ahead;
        self.stream = None;
        let wanted = match ahead.when {
            AheadWhen::Always => ahead.to != AheadTo::Nowhere,
            AheadWhen::Sequential => self.read_to == command.block,
        };
        if !wanted {
            return;
        }
        if self.drive.mechanism.zero_latency {
            self.keep_passed(segment, command, pass);
        }
        let limit = self.ahead_limit(command.end(), self.window(segment, command));
        self.stream_on(segment, command.end(), limit, pass.last);
        if ahead.to == AheadTo::WholeTrack
            && let Some(stream) = &mut self.stream
        {
            stream.whole_at = pass.ready + self.geometry.turn_ns();
            stream.track_start = command.block - u64::from(pass.before);
        }
    }

    /// What passed under the head before the first block wanted stays in the segment.
    fn keep_passed(&mut self, segment: usize, command: Command, pass: &Pass) {
        let room =
            u64::from(self.drive.cache.segment_blocks).saturating_sub(u64::from(command.blocks));
        let kept = u64::from(pass.passed.min(pass.before)).min(room);
        self.segments[segment].start = command.block - kept;
    }

    /// Where reading ahead of a command must end.
    fn window(&self, segment: usize, command: Command) -> u64 {
        let cache = &self.drive.cache;
        let size = u64::from(cache.segment_blocks);
        let ahead = command.end() + u64::from(cache.ahead.blocks).min(size);
        let full = match cache.ahead.over_requested {
            true => u64::MAX,
            false => self.segments[segment].start.min(command.block) + size,
        };
        ahead.min(full).min(self.geometry.blocks())
    }

    /// The head reads on from `block`, the end of a command that passed at `at`.
    fn stream_on(&mut self, segment: usize, block: u64, limit: u64, at: u64) {
        let limit = limit.max(block);
        let at = self.next_start(block, limit, at, Access::Read);
        self.stream = Some(Stream {
            segment,
            block,
            at,
            limit,
            whole_at: u64::MAX,
            track_start: block,
        });
    }

    fn ahead_limit(&self, block: u64, limit: u64) -> u64 {
        if block >= limit {
            return block;
        }
        let last = self.geometry.locate(block - 1);
        let mut next = block;
        while next < limit {
            let place = self.geometry.locate(next);
            let stays = match self.drive.cache.ahead.to {
                AheadTo::Nowhere => false,
                AheadTo::WholeTrack | AheadTo::TrackEnd => {
                    place.cylinder == last.cylinder && place.surface == last.surface
                }
                AheadTo::CylinderEnd => place.cylinder == last.cylinder,
                AheadTo::SegmentFull => return limit,
            };
            if !stays {
                break;
            }
            next += u64::from(place.run);
        }
        next.min(limit)
    }

    /// The least recently used segment, emptied for blocks read or written.
    fn segment_for(&mut self, start: u64, end: u64) -> usize {
        let most = self.drive.cache.segments.max(1) as usize;
        let busy = self.stream.map(|stream| stream.segment);
        let used = 0;
        let segment = Segment { start, end, used };
        let index = if self.segments.len() < most {
            self.segments.push(segment);
            self.segments.len() - 1
        } else {
            let candidates = self.segments.iter().enumerate();
            let candidates = candidates.filter(|(index, _)| most == 1 || Some(*index) != busy);
            let oldest = candidates.min_by_key(|(_, segment)| segment.used);
            let oldest = oldest.map_or(0, |(index, _)| index);
            self.segments[oldest] = segment;
            oldest
        };
        if busy == Some(index) {
            self.stream = None;
        }
        self.touch(index);
        index
    }

    // -------------------------------------------------------------------------------------------- writes

    fn write(&mut self, now: u64, command: Command) -> u64 {
        self.work.writes += 1;
        self.forget(command);
        if self.may_cache(command) {
            self.write_to_cache(now, command)
        } else {
            self.write_to_medium(now, command)
        }
    }

    fn may_cache(&self, command: Command) -> bool {
        let cache = &self.drive.cache;
        cache.write_back && !command.durable && command.blocks <= cache.segment_blocks
    }

    /// What segments hold of overwritten blocks is no longer true.
    fn forget(&mut self, command: Command) {
        let (from, to) = (command.block, command.end());
        for index in 0..self.segments.len() {
            let segment = &mut self.segments[index];
            if segment.start >= to || from >= segment.end {
                continue;
            }
            match self.drive.cache.on_write {
                OnWrite::DropAll => segment.end = segment.start,
                OnWrite::KeepFront => segment.end = from.max(segment.start),
                OnWrite::KeepTail => segment.start = to.min(segment.end),
            }
            let kept = self.drive.cache.on_write == OnWrite::KeepTail;
            if !kept && self.stream.is_some_and(|stream| stream.segment == index) {
                self.stream = None;
            }
        }
    }

    fn bus_write(&self, command: Command) -> u64 {
        u64::from(command.blocks) * self.drive.bus.write_block_ns
    }

    fn write_to_cache(&mut self, now: u64, command: Command) -> u64 {
        let start = self.wait_for_room(now, command);
        let overhead = self.drive.overheads.write_cached_ns[self.last as usize];
        let received = start + overhead + self.bus_write(command);
        let due = start + overhead + self.drive.cache.write_delay_ns;
        self.unwritten.take(&command.range(), due);
        self.work.cached_blocks += u64::from(command.blocks);
        if self.drive.cache.reads_hit_writes {
            self.segment_for(command.block, command.end());
        }
        received + self.drive.overheads.write_done_ns
    }

    /// When the write cache has room for a command: block by block, as the platter takes what waits longest.
    fn wait_for_room(&mut self, now: u64, command: Command) -> u64 {
        let mut at = now;
        while let Some(enough) = self.unwritten.enough_for(&command.range()) {
            self.run_out(at);
            at = at.max(self.written_until(enough));
        }
        at
    }

    /// From when the first block of a write begins to arrive until the medium may begin: what a slow bus
    /// brings is there when it passes.
    fn data_first(&self, command: Command) -> u64 {
        let block = self.drive.bus.write_block_ns;
        let passes = self.transfer(self.geometry.locate(command.block), 1);
        let least = block + block.saturating_sub(passes) * u64::from(command.blocks - 1);
        least.max(self.bus_write(command) * u64::from(self.drive.bus.write_mark) / 100)
    }

    fn write_to_medium(&mut self, now: u64, command: Command) -> u64 {
        let ready = now + self.drive.overheads.write_through_ns[self.last as usize];
        let from = ready.max(self.free_at);
        self.stop_stream(from);
        let (block, blocks) = (command.block, command.blocks.into());
        let data = ready + self.data_first(command);
        let pass = self.pass_over((from, data), block, blocks, Access::Write);
        self.free_at = pass.last;
        if self.drive.cache.reads_hit_writes {
            self.segment_for(command.block, command.end());
        }
        let received = ready + self.bus_write(command);
        pass.last.max(received) + self.drive.overheads.write_done_ns
    }
}
