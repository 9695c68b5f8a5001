//! A shell that holds every device operation until the script ends it, with real bytes and members that can crash.

mod disk;
mod setup;

use crate::math;
use disk::Cached;
pub use disk::Disk;
use restripe_array::cache::Rule;
use restripe_array::layout::scaled::History;
use restripe_array::layout::{Layout, Level, Role};
use restripe_array::meta::{Content, CreateOptions, Init, Region, WriteHole, create};
use restripe_array::{
    Action, Buf, BufRef, CacheLimits, Command, CommandError, CommandTag, Compute, DeviceIo, Event,
    Fact, HeatLimits, IoError, IoOp, Limits, Member, MemberInfo, Nanos, Pool, Request,
    RequestError, RequestOp, RequestTag, Row, ScrubMode, Segment, StartMode, Tag, TaskKind,
    TaskOutcome, Uuid, Verdict,
};
use restripe_tier::{Config, Destage, Engine, Redirect, Sleep, SurrogateConfig, SurrogateLimits};
pub use setup::{Setup, grown4, raid1, raid5, raid6};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;

/// Sectors of a chunk in every array made here.
pub const CHUNK: u64 = 16;
const SECTOR: u64 = 512;
const POOL: Pool = Pool {
    small: 256,
    large: 256,
};
pub const TIMEOUT: Nanos = Nanos::from_secs(30);

pub struct Held {
    pub label: String,
    io: Box<DeviceIo>,
    bytes: Vec<u8>,
    stamp: u64,
    detached: bool,
}

pub struct Array {
    pub engine: Engine,
    config: Config,
    pub regions: Vec<Region>,
    pub layout: Layout,
    pub disks: Vec<Disk>,
    /// Members that are further paths to another one's disk.
    paths: BTreeMap<u16, u16>,
    /// What users should read.
    pub model: Vec<u8>,
    buffers: BTreeMap<u32, Vec<u8>>,
    pub held: Vec<Held>,
    /// Computations that wait for [`Array::end_computes`], while they are to wait.
    computes: Option<VecDeque<Box<Compute>>>,
    replies: BTreeMap<u64, Result<(), RequestError>>,
    answers: BTreeMap<u64, Result<(), CommandError>>,
    pub facts: Vec<Fact>,
    listing: String,
    pub wake: Option<Nanos>,
    now: u64,
    next: u64,
    events: VecDeque<Event>,
}

impl Array {
    // ------------------------------------------------------------------------------------------------ requests

    /// Gives a request without a turn.
    pub fn gather(&mut self, op: RequestOp, lba: u64, sectors: u64, fua: bool) -> u64 {
        self.next += 1;
        let (tag, bytes) = (self.next, sectors * SECTOR);
        let buf = Buf(Buf::USER + tag as u32);
        let fill: Vec<u8> = (0..bytes)
            .map(|i| (tag * 37 + i / SECTOR * 11 + i) as u8 | 1)
            .collect();
        let from = (lba * SECTOR) as usize;
        match op {
            RequestOp::Write => self.model[from..from + fill.len()].copy_from_slice(&fill),
            RequestOp::WriteZeroes { fast: false } => {
                self.model[from..from + bytes as usize].fill(0)
            }
            _ => {}
        }
        self.buffers.insert(buf.0, fill);
        self.step(Event::Request(Request {
            tag: RequestTag(tag),
            op,
            offset: lba * SECTOR,
            bytes,
            buf: BufRef::new(buf, 0, bytes as u32),
            fua,
        }));
        tag
    }

    pub fn request(&mut self, op: RequestOp, lba: u64, sectors: u64) -> u64 {
        let tag = self.gather(op, lba, sectors, false);
        self.turn();
        tag
    }

    pub fn write(&mut self, lba: u64, sectors: u64) -> u64 {
        self.request(RequestOp::Write, lba, sectors)
    }

    pub fn flush(&mut self) -> u64 {
        self.request(RequestOp::Flush, 0, 0)
    }

    pub fn written(&mut self, lba: u64, sectors: u64) -> Result<(), RequestError> {
        let tag = self.write(lba, sectors);
        self.run();
        self.reply(tag).expect("the write is replied to")
    }

    pub fn flushed(&mut self) {
        let tag = self.flush();
        self.run();
        assert_eq!(self.reply(tag), Some(Ok(())));
    }

    /// Reads and runs to the end.
    pub fn read(&mut self, lba: u64, sectors: u64) -> Result<Vec<u8>, RequestError> {
        let tag = self.request(RequestOp::Read, lba, sectors);
        self.run();
        let result = self.reply(tag).expect("the read is replied to");
        result.map(|()| self.bytes_read(tag).to_vec())
    }

    /// What a read has put into its buffer.
    pub fn bytes_read(&self, tag: u64) -> &[u8] {
        &self.buffers[&(Buf::USER + tag as u32)]
    }

    /// Whether that is what the model says from `lba` on.
    pub fn brought(&self, tag: u64, lba: u64) -> bool {
        let bytes = self.bytes_read(tag);
        let from = (lba * SECTOR) as usize;
        *bytes == self.model[from..from + bytes.len()]
    }

    /// Everything reads as the model says.
    pub fn verify(&mut self) {
        for lba in (0..self.layout.size_sectors()).step_by(8) {
            let from = (lba * SECTOR) as usize;
            let wanted = self.model[from..from + 4096].to_vec();
            let found = self.read(lba, 8).expect("readable");
            assert!(found == wanted, "8 sectors at {lba} read wrongly");
        }
    }

    /// What the model says.
    pub fn wanted(&self, lba: u64, sectors: u64) -> Vec<u8> {
        let range = (lba * SECTOR) as usize..((lba + sectors) * SECTOR) as usize;
        self.model[range].to_vec()
    }

    /// The reply to a request, if there was one.
    pub fn reply(&self, tag: u64) -> Option<Result<(), RequestError>> {
        self.replies.get(&tag).copied()
    }

    // ------------------------------------------------------------------------------------------------ commands

    pub fn order(&mut self, command: Command) -> u64 {
        self.next += 1;
        let tag = self.next;
        self.step(Event::Command(CommandTag(tag), command));
        self.turn();
        tag
    }

    pub fn answer(&self, tag: u64) -> Option<Result<(), CommandError>> {
        self.answers.get(&tag).cloned()
    }

    /// Gives a command and runs until it is answered and nothing is held.
    pub fn command(&mut self, command: Command) -> Result<(), CommandError> {
        let tag = self.order(command);
        self.run();
        self.answer(tag).expect("the command is answered")
    }

    pub fn start(&mut self) -> Result<(), CommandError> {
        self.command(Command::Start(StartMode::default()))
    }

    pub fn depart(&mut self, member: u16) {
        self.step(Event::Departed(Member(member)));
        self.turn();
    }

    pub fn arrive(&mut self, info: MemberInfo) -> Member {
        self.disks.push(Disk::new(info.sectors));
        self.config.members.push(info);
        self.step(Event::Arrived(info));
        Member(self.disks.len() as u16 - 1)
    }

    /// A further path to this member's disk.
    pub fn arrive_by_path(&mut self, to: u16) -> Member {
        let path = self.arrive(self.config.members[usize::from(to)]);
        self.paths.insert(path.0, to);
        path
    }

    /// A disk with the content of this member's.
    pub fn arrive_copied(&mut self, from: u16) -> Member {
        let copy = self.arrive(self.config.members[usize::from(from)]);
        self.disks[usize::from(copy.0)] = self.disks[usize::from(from)].clone();
        copy
    }

    /// Which disk a member's path leads to.
    fn index_of(&self, member: Member) -> usize {
        let disk = self.paths.get(&member.0).copied();
        disk.unwrap_or(member.0).into()
    }

    // ------------------------------------------------------------------------------------------------- stepping

    pub fn turn(&mut self) {
        self.step(Event::Turn);
    }

    pub fn step(&mut self, event: Event) {
        self.events.push_back(event);
        while let Some(event) = self.events.pop_front() {
            self.now += 1000;
            let mut actions = Vec::new();
            self.engine.handle(Nanos(self.now), event, &mut actions);
            for action in actions {
                self.act(action);
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Device(io) => self.hold(io),
            Action::Compute(compute) => match &mut self.computes {
                Some(computes) => computes.push_back(compute),
                None => self.compute(compute),
            },
            Action::Reply(tag, result) => {
                self.list(&format!("reply {result:?}"));
                let before = self.replies.insert(tag.0, result);
                assert_eq!(before, None, "one reply to each request");
            }
            Action::CommandReply(tag, result) => {
                self.list(&format!("answer {result:?}"));
                self.answers.insert(tag.0, result);
            }
            Action::Detach(tag) => self.detach(tag),
            Action::Wake(at) => self.wake = Some(at),
            Action::Fact(fact) => {
                self.list(&format!("fact {fact:?}"));
                self.facts.push(fact);
            }
        }
    }

    fn hold(&mut self, io: Box<DeviceIo>) {
        let label = self.label(&io);
        self.list(&label);
        let bytes = match io.op {
            IoOp::Write => self.gathered(&io),
            IoOp::Zero | IoOp::Trim => vec![0; (io.sectors * SECTOR) as usize],
            IoOp::Read | IoOp::Flush | IoOp::Standby | IoOp::Wake => Vec::new(),
        };
        self.now += 1;
        self.held.push(Held {
            label,
            io,
            bytes,
            stamp: self.now,
            detached: false,
        });
    }

    fn gathered(&self, io: &DeviceIo) -> Vec<u8> {
        let mut bytes = Vec::new();
        for segment in &io.segments {
            match segment {
                Segment::Page(page) => bytes.extend_from_slice(&page[..]),
                Segment::Buf(buf) => bytes.extend(self.bytes_of(*buf)),
                Segment::Zero(zeros) => bytes.resize(bytes.len() + *zeros as usize, 0),
            }
        }
        bytes
    }

    fn compute(&mut self, mut compute: Box<Compute>) {
        if let Some(page) = &mut compute.page {
            match compute.outputs.first() {
                Some(output) => {
                    let bytes = page.to_vec();
                    self.fill(output.target, &bytes);
                }
                None => page.copy_from_slice(&self.bytes_of(compute.sources[0])),
            }
            self.events
                .push_back(Event::Compute(compute, Verdict::Done));
            return;
        }
        let sources: Vec<Vec<u8>> = compute
            .sources
            .iter()
            .map(|&buf| self.bytes_of(buf))
            .collect();
        let (outputs, verdict) = math::compute(&compute, &sources);
        for (output, bytes) in compute.outputs.iter().zip(outputs) {
            self.fill(output.target, &bytes);
        }
        self.events.push_back(Event::Compute(compute, verdict));
    }

    /// From now on computations wait: they have neither read nor written anything yet.
    pub fn hold_computes(&mut self) {
        self.computes = Some(VecDeque::new());
    }

    /// Carries out the computations that wait, the last first, and all further ones at once.
    pub fn end_computes(&mut self) {
        for compute in self.computes.take().into_iter().flatten().rev() {
            self.compute(compute);
        }
        self.turn();
    }

    fn detach(&mut self, tag: Tag) {
        let of_tag = |held: &&mut Held| held.io.tag == tag;
        let held = self
            .held
            .iter_mut()
            .find(of_tag)
            .expect("what is detached is held");
        held.detached = true;
        let line = format!("detach {}", held.label);
        self.list(&line);
    }

    fn bytes_of(&self, buf: BufRef) -> Vec<u8> {
        let (from, bytes) = (buf.offset as usize, buf.bytes as usize);
        match self.buffers.get(&buf.buf.0) {
            Some(memory) => memory[from..from + bytes].to_vec(),
            None => vec![0xee; bytes],
        }
    }

    fn fill(&mut self, buf: BufRef, bytes: &[u8]) {
        let memory = self
            .buffers
            .entry(buf.buf.0)
            .or_insert_with(|| vec![0xee; POOL.bytes_of(buf.buf) as usize]);
        memory[buf.offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    // ------------------------------------------------------------------------------------------ ending operations

    /// Ends the held operation at this place in the list.
    fn end(&mut self, index: usize, result: Result<(), IoError>) {
        let mut held = self.held.remove(index);
        let result = result.and_then(|()| self.carry_out(&mut held));
        self.step(Event::Device(held.io, result));
    }

    fn carry_out(&mut self, held: &mut Held) -> Result<(), IoError> {
        let io = &held.io;
        let stamp = self.now + 1;
        let index = self.index_of(io.member);
        let disk = &mut self.disks[index];
        match io.op {
            IoOp::Wake => {}
            IoOp::Flush | IoOp::Standby => {
                let before = held.stamp;
                disk.settle(|cached| cached.durable || cached.stamp < before);
                disk.cache
                    .retain(|cached| !cached.durable && cached.stamp >= before);
            }
            IoOp::Read => {
                if disk.bad.range(io.at..io.at + io.sectors).next().is_some() {
                    return Err(IoError::Media);
                }
                self.scatter(held);
            }
            IoOp::Write | IoOp::Zero | IoOp::Trim => {
                disk.write(io.at, held.bytes.clone(), io.durable, stamp);
                self.now = stamp;
            }
        }
        Ok(())
    }

    fn scatter(&mut self, held: &mut Held) {
        let mut at = (held.io.at * SECTOR) as usize;
        let mut fills = Vec::new();
        let image = &self.disks[self.index_of(held.io.member)].image;
        for segment in &mut held.io.segments {
            let bytes = &image[at..at + segment.bytes() as usize];
            at += bytes.len();
            match segment {
                Segment::Page(page) => page.copy_from_slice(bytes),
                Segment::Buf(buf) if !held.detached => fills.push((*buf, bytes.to_vec())),
                _ => {}
            }
        }
        for (buf, bytes) in fills {
            self.fill(buf, &bytes);
        }
    }

    fn find(&self, label: &str) -> usize {
        let found = self
            .held
            .iter()
            .position(|held| held.label.starts_with(label));
        found.unwrap_or_else(|| panic!("nothing held is '{label}': {:#?}", self.labels()))
    }

    pub fn labels(&self) -> Vec<&str> {
        self.held.iter().map(|held| held.label.as_str()).collect()
    }

    /// Whether an operation that begins like this is held.
    pub fn holds(&self, label: &str) -> bool {
        self.held.iter().any(|held| held.label.starts_with(label))
    }

    /// Whether any held operation mentions this.
    pub fn mentions(&self, part: &str) -> bool {
        self.held.iter().any(|held| held.label.contains(part))
    }

    /// Ends one held operation well, then gives a turn.
    pub fn complete(&mut self, label: &str) {
        let index = self.find(label);
        self.end(index, Ok(()));
        self.turn();
    }

    /// Ends well the operation at this place in the list, then gives a turn.
    pub fn end_at(&mut self, index: usize) {
        self.end_as(index, Ok(()));
    }

    /// Ends the operation at this place in the list like this, then gives a turn.
    pub fn end_as(&mut self, index: usize, result: Result<(), IoError>) {
        self.end(index, result);
        self.turn();
    }

    pub fn end_first(&mut self, result: Result<(), IoError>) {
        self.end_as(0, result);
    }

    /// Ends one held operation badly, then gives a turn.
    pub fn fail(&mut self, label: &str, error: IoError) {
        let index = self.find(label);
        self.end(index, Err(error));
        self.turn();
    }

    /// Ends well what is held now and mentions this; what follows from it stays held.
    pub fn complete_held(&mut self, part: &str) {
        let tags: Vec<Tag> = self
            .held
            .iter()
            .filter(|held| held.label.contains(part))
            .map(|held| held.io.tag)
            .collect();
        assert!(
            !tags.is_empty(),
            "nothing held mentions '{part}': {:#?}",
            self.labels()
        );
        for tag in tags {
            let index = self.held.iter().position(|held| held.io.tag == tag);
            self.end(index.expect("still held"), Ok(()));
        }
        self.turn();
    }

    /// Ends well all that mentions this, and what follows and mentions it too.
    pub fn run_only(&mut self, part: &str) {
        while let Some(index) = self.held.iter().position(|held| held.label.contains(part)) {
            self.end(index, Ok(()));
            self.turn();
        }
    }

    /// Ends everything well, in order, until nothing is held.
    pub fn run(&mut self) {
        self.run_but("no label has this");
    }

    /// Ends everything well, in order, except what mentions this.
    pub fn run_but(&mut self, part: &str) {
        for _ in 0..100_000 {
            match self.held.iter().position(|held| !held.label.contains(part)) {
                Some(index) => {
                    self.end(index, Ok(()));
                    self.turn();
                }
                None => return,
            }
        }
        panic!("the engine never rests: {:#?}", self.labels());
    }

    pub fn now(&self) -> Nanos {
        Nanos(self.now)
    }

    /// Lets time go on, in steps of a wake-up each, and ends what comes of it.
    pub fn pass(&mut self, time: Nanos) {
        let end = self.now + time.0;
        while let Some(wake) = self.wake.filter(|wake| wake.0 <= end) {
            self.wake = None;
            self.now = self.now.max(wake.0);
            self.step(Event::Timer);
            self.turn();
            self.run();
        }
        self.now = self.now.max(end);
    }

    /// Time goes on, and the engine is not woken.
    pub fn sleep(&mut self, time: Nanos) {
        self.now += time.0;
    }

    /// Lets time go on without ending anything.
    pub fn wait(&mut self, time: Nanos) {
        self.now += time.0;
        self.wake = None;
        self.step(Event::Timer);
        self.turn();
    }

    /// Runs until no task is left.
    pub fn run_tasks(&mut self) {
        for _ in 0..1000 {
            self.run();
            if self.engine.status().tasks.is_empty() {
                return;
            }
            self.pass(Nanos::from_millis(200));
        }
        panic!("the tasks never end: {:?}", self.engine.status().tasks);
    }

    /// Power is cut: what is held never happened, what is cached stays only where `keep` says so (of a label that names
    /// member and place). A new engine finds the members; it is not started yet.
    pub fn crash(&mut self, keep: impl Fn(&str) -> bool) {
        let regions = self.regions.clone();
        for (member, disk) in self.disks.iter_mut().enumerate() {
            let kept = |cached: &Cached| {
                let at = cached.at as u64 / SECTOR;
                cached.durable || keep(&format!("m{member} {}", place(&regions, at)))
            };
            disk.settle(kept);
            disk.cache.clear();
            disk.image = disk.durable.clone();
        }
        self.forget_engine();
    }

    /// The next engine has other limits.
    pub fn limit(&mut self, change: impl FnOnce(&mut Limits)) {
        change(&mut self.config.limits);
    }

    /// The next engine has other limits of its surrogate.
    pub fn limit_surrogate(&mut self, change: impl FnOnce(&mut SurrogateLimits)) {
        let surrogate = self.config.surrogate.as_mut();
        change(&mut surrogate.expect("it has one").limits);
        self.forget_engine();
    }

    /// First copies go ahead without a log, and mirrors sleep so long after they were needed.
    pub fn eraid(&mut self, sleeps_after: Nanos) {
        let limits = SurrogateLimits::ahead();
        self.config.limits = self.config.limits.with_pool(Some(limits.whole_pool()));
        self.config.surrogate = Some(SurrogateConfig {
            buffer_members: 0,
            members: 0,
            limits,
            redirect: Redirect::Eraid,
            scrubs: false,
            destage: Destage {
                sleep: Some(Sleep {
                    after: sleeps_after,
                    ..Sleep::default()
                }),
                ..Destage::default()
            },
        });
        self.forget_engine();
    }

    /// The array has this one as its surrogate; neither is started.
    pub fn join(&mut self, log: Array, redirect: Redirect, destage: Destage) {
        self.join_buffered(log, None, redirect, destage);
    }

    /// The same, and perhaps that one as the buffer of its surrogate.
    pub fn join_buffered(
        &mut self,
        log: Array,
        buffer: Option<Array>,
        redirect: Redirect,
        destage: Destage,
    ) {
        let limits = match (redirect, &buffer) {
            (Redirect::Reraid, Some(_)) => SurrogateLimits::gathering().with_buffer(),
            (Redirect::Reraid, None) => SurrogateLimits::gathering(),
            _ => SurrogateLimits::ahead(),
        };
        let limits = SurrogateLimits {
            pool: POOL,
            ..limits
        };
        self.config.limits = self.config.limits.with_pool(Some(limits.whole_pool()));
        self.config.surrogate = Some(SurrogateConfig {
            buffer_members: buffer.as_ref().map_or(0, |set| set.disks.len() as u16),
            members: log.disks.len() as u16,
            limits,
            redirect,
            scrubs: false,
            destage,
        });
        for set in [Some(log), buffer].into_iter().flatten() {
            self.config.members.extend(set.config.members);
            self.disks.extend(set.disks);
        }
        self.forget_engine();
    }

    /// Power is cut, and the next engine is not told of the surrogate's members, so many.
    pub fn part(&mut self, members: usize) {
        self.crash(|_| false);
        self.config.members.truncate(self.disks.len() - members);
        self.config.surrogate = None;
        self.forget_engine();
    }

    /// The daemon dies; members and their caches live on. What is held now is never done.
    pub fn die(&mut self) {
        self.forget_engine();
    }

    fn forget_engine(&mut self) {
        self.engine = Engine::new(self.config.clone());
        self.held.clear();
        self.computes = None;
        self.listing.clear();
        self.facts.clear();
        self.wake = None;
    }

    /// A crash of this kind, and these members are gone after it: their places hold blank disks.
    pub fn crash_without(&mut self, gone: &[usize], keep: impl Fn(&str) -> bool) {
        self.crash(keep);
        for &member in gone {
            self.disks[member] = Disk::new(self.config.members[member].sectors);
        }
    }

    /// A blank disk takes a member's place, before a start; gives what was there.
    pub fn take_out(&mut self, member: usize) -> Disk {
        let blank = Disk::new(self.config.members[member].sectors);
        std::mem::replace(&mut self.disks[member], blank)
    }

    pub fn put_back(&mut self, member: usize, disk: Disk) {
        self.disks[member] = disk;
    }

    // -------------------------------------------------------------------------------------------------- looking

    fn label(&self, io: &DeviceIo) -> String {
        let member = io.member.0;
        if io.op == IoOp::Flush {
            return format!("m{member} flush");
        }
        let op = format!("{:?}", io.op).to_lowercase();
        let durable = if io.durable { " durable" } else { "" };
        let place = place(&self.regions, io.at);
        format!("m{member} {op} {place} {}{durable}", io.sectors)
    }

    fn list(&mut self, line: &str) {
        writeln!(self.listing, "{line}").expect("a string takes any text");
    }

    /// What the engine asked for since this was last called, or a marker was.
    pub fn listing(&mut self) -> String {
        std::mem::take(&mut self.listing)
    }

    /// The listing since the last look, which goes on.
    pub fn peek(&self) -> &str {
        &self.listing
    }

    /// Compares the listing since the last look.
    pub fn expect(&mut self, wanted: &[&str]) {
        let listing = self.listing();
        let found: Vec<&str> = listing.lines().collect();
        assert_eq!(found, wanted);
    }

    /// Puts a headline into the listing.
    pub fn note(&mut self, text: &str) {
        self.list(&format!("-- {text}"));
    }

    /// Compares the listing since the last look with a file.
    pub fn golden(&mut self, name: &str) {
        let path = format!("{}/tests/it/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
        let listing = self.listing();
        if std::env::var_os("RESTRIPE_BLESS").is_some() {
            std::fs::write(&path, listing).expect("the golden file can be written");
            return;
        }
        let golden = std::fs::read_to_string(&path).expect("a golden file: RESTRIPE_BLESS=1");
        assert_eq!(
            listing, golden,
            "golden/{name}.txt; RESTRIPE_BLESS=1 writes it anew"
        );
    }

    /// What is known of a member's device.
    pub fn info_of(&self, member: usize) -> MemberInfo {
        self.config.members[member]
    }

    /// The first sector of set data on a member.
    pub fn data_start(&self) -> u64 {
        let data = self.regions.iter().find(|region| name_of(region) == "data");
        data.expect("a member has set data").start
    }

    /// The member and sector of a user's sector, as the layout has it (members in slot order).
    pub fn home(&self, lba: u64) -> (u16, u64) {
        let spot = self.layout.place(lba);
        let cell = self.layout.data_cell(spot.row, spot.data);
        (cell.slot.0, self.data_start() + cell.at + spot.offset)
    }

    /// The slot of a row's cell with this role.
    pub fn slot_of(&self, row: u64, role: Role) -> u16 {
        let map = self.layout.row(Row(row));
        let cell = map.cells().iter().find(|cell| cell.role == role);
        cell.expect("the row has such a cell").slot.0
    }

    /// Makes sectors unreadable until they are written.
    pub fn spoil(&mut self, member: u16, at: u64, sectors: u64) {
        self.disks[usize::from(member)].bad.extend(at..at + sectors);
    }

    /// Changes a byte behind the engine's back.
    pub fn corrupt(&mut self, member: u16, at: u64) {
        let byte = (at * SECTOR) as usize;
        self.disks[usize::from(member)].image[byte] ^= 0x5a;
        self.disks[usize::from(member)].durable[byte] ^= 0x5a;
    }

    pub fn has_fact(&self, wanted: impl Fn(&Fact) -> bool) -> bool {
        self.facts.iter().any(wanted)
    }

    pub fn failed(&self, member: u16) -> bool {
        self.has_fact(|fact| matches!(fact, Fact::MemberFailed { member: m, .. } if m.0 == member))
    }

    pub fn ended(&self, kind: TaskKind, outcome: TaskOutcome) -> bool {
        let is_it = |fact: &Fact| match *fact {
            Fact::TaskEnded {
                kind: ended,
                outcome: how,
                ..
            } => (ended, how) == (kind, outcome),
            _ => false,
        };
        self.has_fact(is_it)
    }

    /// A scrub finds nothing to say.
    pub fn consistent(&mut self) {
        self.command(Command::Scrub(ScrubMode::Check))
            .expect("a scrub can run");
        self.run_tasks();
        assert!(!self.has_fact(|fact| matches!(fact, Fact::Mismatch { .. })));
    }
}

fn name_of(region: &Region) -> String {
    format!("{:?}", region.kind).to_lowercase()
}

/// A sector of a member by region, as every member here is laid out.
fn place(regions: &[Region], at: u64) -> String {
    let region = regions
        .iter()
        .find(|r| r.start <= at && at < r.start + r.sectors);
    match region {
        Some(region) if name_of(region).starts_with("super") => name_of(region),
        Some(region) => format!("{}+{}", name_of(region), at - region.start),
        None => format!("nowhere+{at}"),
    }
}
