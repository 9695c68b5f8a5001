//! Conformance: the same script on the ring, on threads and in the simulated world makes the same run.
//!
//! The clock is scripted. Completions are held until all operations in flight are done, and delivered one at a time in
//! an order that the seed chooses among their tags. What then remains of a backend's own nature (order, timing, how
//! many system calls) must not show: events, actions and, at the end, the members' every byte are equal.

use restripe_array::cache::Rule;
use restripe_array::layout::{Level, Rotation};
use restripe_array::meta::{Partner, PartnerRole};
use restripe_array::{
    Action, Actions, BufRef, CacheLimits, Command, CommandTag, Event, HeatLimits, IoError, Limits,
    Member, MemberInfo, Nanos, Order, Pool, Request, RequestOp, RequestTag, ScrubMode, StartMode,
    Tag,
};
use restripe_io::backend::{self, Backend, BackendChoice};
use restripe_io::host::{Delivery, Host, Outcome, World};
use restripe_io::member::{self, OpenOptions};
use restripe_io::memory::UserMemory;
use restripe_io::record::{Recorder, encode_actions, replay};
use restripe_io::tokens::Owner;
use restripe_sim::array::Spec;
use restripe_sim::compute;
use restripe_sim::disk::{Disk, DiskConfig, Simple};
use restripe_sim::image::{Image, words_digest};
use restripe_sim::memory::BufferTable;
use restripe_sim::payload::Payload;
use restripe_sim::rng::Rng;
use restripe_tier::overlay::OverlayCounters;
use restripe_tier::report::{OverlayStatus, Status};
use restripe_tier::{Config, Destage, Engine, Redirect, SurrogateConfig, SurrogateLimits};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Whether the array has something to do by itself: tasks, or a surrogate to be emptied.
fn works(status: &Status) -> bool {
    let surrogate = status.surrogate.as_deref();
    let in_surrogate = surrogate.is_some_and(|surrogate| {
        let holds = |overlay: OverlayStatus| overlay.going_home || overlay.extents > 0;
        !surrogate.set.tasks.is_empty() || surrogate.overlay.is_some_and(holds)
    });
    in_surrogate || !status.tasks.is_empty()
}

/// One world that the script runs in.
trait Side {
    fn settle(&mut self, now: Nanos);
    fn request(&mut self, request: Request);
    fn command(&mut self, tag: CommandTag, command: Command);
    /// The completions that wait, by tag.
    fn held(&self) -> Vec<Tag>;
    fn release(&mut self, tag: Tag);
    fn wake(&self) -> Option<Nanos>;
    fn status(&self) -> Status;
    /// The requests answered since the last call.
    fn replies(&mut self) -> Vec<RequestTag>;
    fn allocate(&mut self, bytes: u32) -> BufRef;
    fn fill(&mut self, buf: BufRef, bytes: &[u8]);
    fn bytes(&self, buf: BufRef) -> Vec<u8>;
    fn free(&mut self, buf: BufRef);
    /// The record of the run, and every member's bytes.
    fn end(self: Box<Self>) -> (Vec<u8>, Vec<Vec<u8>>);
}

/// A sink that can be looked at afterwards.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .lock()
            .expect("nobody panics with it")
            .extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().expect("nobody panics with it"))
    }
}

fn limits() -> Limits {
    Limits {
        pool: Pool {
            small: 512,
            large: 64,
        },
        requests: 64,
        slices: 32,
        ios: 256,
        heat: HeatLimits {
            zone_sectors: 1,
            epoch: Nanos::from_millis(1),
        },
        ..Limits::default()
    }
    .with_cache(Some(CacheLimits {
        blocks: 32,
        rule: Rule::VdfLfu,
    }))
}

/// A surrogate of so many members.
fn surrogate(members: u16, redirect: Redirect) -> SurrogateConfig {
    let limits = SurrogateLimits {
        pool: Pool {
            small: 512,
            large: 160,
        },
        requests: 12,
        slices: 8,
        ios: 64,
        extents: 4096,
        extent_sectors: 0,
        copies: 2,
        cluster_records: 1,
        records_in_memory: 0,
        buffer_pool: Pool { small: 0, large: 0 },
        parts_home: 0,
    };
    SurrogateConfig {
        buffer_members: 0,
        members,
        limits,
        redirect,
        scrubs: true,
        destage: Destage::default(),
    }
}

fn config(members: Vec<MemberInfo>, surrogate: Option<SurrogateConfig>) -> Config {
    Config {
        members,
        limits: limits().with_pool(surrogate.as_ref().map(|one| one.limits.whole_pool())),
        surrogate,
        io_timeout: Nanos::from_secs(3600),
        bug: None,
    }
}

// ------------------------------------------------------------------------------------------------ the real world

struct Real {
    host: Host,
    backend: Box<dyn Backend>,
    users: UserMemory,
    record: Shared,
    paths: Vec<PathBuf>,
}

impl Real {
    fn new(
        choice: BackendChoice,
        test: &str,
        images: &[Image],
        surrogate: Option<SurrogateConfig>,
    ) -> Real {
        let name = |i| {
            format!(
                "restripe-conform-{}-{test}-{choice:?}-{i}",
                std::process::id()
            )
        };
        let paths: Vec<PathBuf> = (0..images.len())
            .map(|i| std::env::temp_dir().join(name(i)))
            .collect();
        for (path, image) in paths.iter().zip(images) {
            std::fs::write(path, whole(image)).expect("a temporary file");
        }
        let names: Vec<String> = paths
            .iter()
            .map(|path| path.to_str().expect("plain").to_owned())
            .collect();
        let members = member::open_members(&names, OpenOptions::default()).expect("they open");
        let infos = members.iter().map(|member| member.info).collect();
        let config = config(infos, surrogate);
        let record = Shared::default();
        let recorder = Recorder::new(Box::new(record.clone()), &config).expect("memory takes all");
        let mut host = Host::new(0, members, config).expect("memory");
        host.deliver(Delivery::Held);
        host.record(recorder);
        let backend = backend::open(choice).expect("tried before");
        Real {
            host,
            backend,
            users: UserMemory::new(1 << 24),
            record,
            paths,
        }
    }

    /// Waits until everything in flight is done.
    fn drain(&mut self) {
        let mut done = Vec::new();
        while self.host.in_flight() > 0 {
            self.backend.wait(None, &mut done).expect("waiting works");
            for completion in done.drain(..) {
                let Owner::Device { flight, .. } = Owner::of(completion.token) else {
                    panic!("only files here")
                };
                let mut world = World::new(&mut *self.backend, &mut self.users);
                self.host.completed(flight, completion, &mut world);
            }
        }
    }
}

fn tag_of(event: &Event) -> Tag {
    match event {
        Event::Device(io, _) => io.tag,
        Event::Compute(compute, _) => compute.tag,
        other => panic!("not a completion: {other:?}"),
    }
}

impl Side for Real {
    fn settle(&mut self, now: Nanos) {
        let mut world = World::new(&mut *self.backend, &mut self.users);
        self.host.settle(now, u32::MAX, &mut world);
        self.drain();
    }

    fn request(&mut self, request: Request) {
        self.host.request(request);
    }

    fn command(&mut self, tag: CommandTag, command: Command) {
        self.host.command(tag, command);
    }

    fn held(&self) -> Vec<Tag> {
        let mut tags: Vec<Tag> = self.host.held().iter().map(tag_of).collect();
        tags.sort_unstable();
        tags
    }

    fn release(&mut self, tag: Tag) {
        let index = self
            .host
            .held()
            .iter()
            .position(|event| tag_of(event) == tag);
        self.host.release(index.expect("it is held"));
    }

    fn wake(&self) -> Option<Nanos> {
        self.host.wake()
    }

    fn status(&self) -> Status {
        self.host.status()
    }

    fn replies(&mut self) -> Vec<RequestTag> {
        let outcomes = self.host.outcomes.drain(..);
        outcomes
            .filter_map(|outcome| {
                if let Outcome::Reply(tag, _) = outcome {
                    Some(tag)
                } else {
                    None
                }
            })
            .collect()
    }

    fn allocate(&mut self, bytes: u32) -> BufRef {
        self.users.allocate(bytes, 0).expect("there is enough")
    }

    fn fill(&mut self, buf: BufRef, bytes: &[u8]) {
        self.users.memory(buf.buf).fill(0, bytes);
    }

    fn bytes(&self, buf: BufRef) -> Vec<u8> {
        self.users
            .memory(buf.buf)
            .slice(0, buf.bytes as usize)
            .to_vec()
    }

    fn free(&mut self, buf: BufRef) {
        self.users.release(buf);
    }

    fn end(mut self: Box<Self>) -> (Vec<u8>, Vec<Vec<u8>>) {
        self.host
            .end_recording()
            .expect("it was recorded")
            .expect("memory takes all");
        let media = self
            .paths
            .iter()
            .map(|path| std::fs::read(path).expect("ours"))
            .collect();
        self.paths
            .iter()
            .for_each(|path| std::fs::remove_file(path).expect("ours"));
        (self.record.take(), media)
    }
}

// -------------------------------------------------------------------------------------------- the simulated world

struct Simulated {
    engine: Engine,
    disks: Vec<Disk>,
    memory: BufferTable,
    recorder: Recorder,
    record: Shared,
    inbox: VecDeque<Event>,
    requests: VecDeque<Request>,
    held: BTreeMap<Tag, Event>,
    wake: Option<Nanos>,
    replies: Vec<RequestTag>,
    stirred: bool,
}

impl Simulated {
    fn new(
        infos: Vec<MemberInfo>,
        images: &[Image],
        surrogate: Option<SurrogateConfig>,
    ) -> Simulated {
        let disk = |(image, info): (&Image, &MemberInfo)| {
            let config = DiskConfig {
                info: *info,
                volatile: false,
                depth: 64,
            };
            let device = Simple::new(Nanos(1), 1 << 30, Nanos::ZERO);
            Disk::new(config, image.clone(), Box::new(device), Rng::new(1))
        };
        let disks = images.iter().zip(&infos).map(disk).collect();
        let config = config(infos, surrogate);
        let pool = config.limits.pool;
        let record = Shared::default();
        let recorder = Recorder::new(Box::new(record.clone()), &config).expect("memory takes all");
        Simulated {
            engine: Engine::new(config),
            disks,
            memory: BufferTable::new(Payload::Bytes, pool),
            recorder,
            record,
            inbox: VecDeque::new(),
            requests: VecDeque::new(),
            held: BTreeMap::new(),
            wake: None,
            replies: Vec::new(),
            stirred: false,
        }
    }

    fn step(&mut self, now: Nanos, event: Event) {
        let mut actions = Actions::new();
        self.recorder.event(now, &event);
        self.engine.handle(now, event, &mut actions);
        self.recorder.actions(&actions);
        actions.into_iter().for_each(|action| self.act(action));
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Device(mut io) => {
                let disk = self.disks.get_mut(usize::from(io.member.0));
                let result = match disk {
                    Some(disk) => {
                        let mark = disk.mark();
                        disk.perform(&mut io, &mut self.memory, None, mark)
                    }
                    None => Err(IoError::Gone),
                };
                self.held.insert(io.tag, Event::Device(io, result));
            }
            Action::Compute(mut compute) => {
                let verdict = compute::perform(&mut compute, Payload::Bytes, &mut self.memory);
                self.held
                    .insert(compute.tag, Event::Compute(compute, verdict));
            }
            Action::Reply(tag, _) => self.replies.push(tag),
            Action::Wake(time) => self.wake = Some(time),
            // Everything in flight is done by now, so nothing is left to scribble.
            Action::Detach(_) | Action::CommandReply(..) | Action::Fact(_) => {}
        }
    }

    fn next_event(&mut self) -> Option<Event> {
        let event = self.inbox.pop_front();
        event.or_else(|| {
            if self.engine.ready() {
                self.requests.pop_front().map(Event::Request)
            } else {
                None
            }
        })
    }
}

impl Side for Simulated {
    fn settle(&mut self, now: Nanos) {
        if self.wake.is_some_and(|time| time <= now) {
            self.wake = None;
            self.inbox.push_back(Event::Timer);
        }
        loop {
            while let Some(event) = self.next_event() {
                self.stirred = true;
                self.step(now, event);
            }
            if !std::mem::take(&mut self.stirred) {
                return;
            }
            self.step(now, Event::Turn);
        }
    }

    fn request(&mut self, request: Request) {
        self.requests.push_back(request);
    }

    fn command(&mut self, tag: CommandTag, command: Command) {
        self.inbox.push_back(Event::Command(tag, command));
    }

    fn held(&self) -> Vec<Tag> {
        self.held.keys().copied().collect()
    }

    fn release(&mut self, tag: Tag) {
        let event = self.held.remove(&tag).expect("it is held");
        self.inbox.push_back(event);
    }

    fn wake(&self) -> Option<Nanos> {
        self.wake
    }

    fn status(&self) -> Status {
        self.engine.status()
    }

    fn replies(&mut self) -> Vec<RequestTag> {
        std::mem::take(&mut self.replies)
    }

    fn allocate(&mut self, bytes: u32) -> BufRef {
        BufRef::new(self.memory.allocate(bytes), 0, bytes)
    }

    fn fill(&mut self, buf: BufRef, bytes: &[u8]) {
        self.memory.get_mut(buf).copy_from_slice(bytes);
    }

    fn bytes(&self, buf: BufRef) -> Vec<u8> {
        self.memory.get(buf).to_vec()
    }

    fn free(&mut self, buf: BufRef) {
        self.memory.release(buf.buf);
    }

    fn end(self: Box<Self>) -> (Vec<u8>, Vec<Vec<u8>>) {
        self.recorder.finish().expect("memory takes all");
        (
            self.record.take(),
            self.disks.iter().map(|disk| whole(disk.live())).collect(),
        )
    }
}

/// Every byte of an image.
fn whole(image: &Image) -> Vec<u8> {
    let mut bytes = vec![0; image.sectors() as usize * 512];
    image.read_full(0, &mut bytes);
    bytes
}

// ------------------------------------------------------------------------------------------------------ the script

const REQUESTS: u64 = 120;

struct Script {
    rng: Rng,
    now: Nanos,
    made: u64,
    commands: VecDeque<(u64, Command)>,
    /// Requests without an answer, with their memory.
    open: BTreeMap<RequestTag, (RequestOp, Option<BufRef>)>,
    size: u64,
    /// What was read, in the order of the answers.
    read: Vec<u8>,
}

/// What came of a run.
struct Run {
    /// In the order of the answers.
    read: Vec<u8>,
    record: Vec<u8>,
    /// The members' bytes.
    media: Vec<Vec<u8>>,
    /// Of an array with a surrogate.
    overlay: Option<OverlayCounters>,
}

/// Runs the script.
fn run(seed: u64, size: u64, commands: &[(u64, Command)], mut side: Box<dyn Side>) -> Run {
    let mut script = Script {
        rng: Rng::new(seed),
        now: Nanos(1000),
        made: 0,
        commands: commands.iter().copied().collect(),
        open: BTreeMap::new(),
        size,
        read: Vec::new(),
    };
    side.command(CommandTag(1000), Command::Start(StartMode::default()));
    let mut started = false;
    loop {
        side.settle(script.now);
        script.take_replies(&mut *side);
        script.now = script.now.after(Nanos(script.rng.between(1_000, 200_000)));
        let held = side.held();
        started |= held.is_empty();
        if started && script.may_ask() && (held.is_empty() || script.rng.chance(1, 3)) {
            script.ask(&mut *side);
        } else if !held.is_empty() {
            let tag = *script.rng.pick(&held);
            side.release(tag);
        } else if script.over() && !works(&side.status()) {
            break;
        } else {
            let wake = side
                .wake()
                .expect("who has work and waits for nothing sets a time");
            script.now = script.now.max(wake);
        }
    }
    let overlay = side.status().surrogate.and_then(|one| one.overlay);
    let (record, media) = side.end();
    Run {
        read: script.read,
        record,
        media,
        overlay: overlay.map(|overlay| overlay.counters),
    }
}

impl Script {
    fn over(&self) -> bool {
        self.made >= REQUESTS && self.open.is_empty() && self.commands.is_empty()
    }

    fn may_ask(&self) -> bool {
        (self.made < REQUESTS && self.open.len() < 12)
            || self
                .commands
                .front()
                .is_some_and(|(at, _)| *at <= self.made)
    }

    fn ask(&mut self, side: &mut dyn Side) {
        if let Some((at, command)) = self.commands.front().copied()
            && at <= self.made
        {
            self.commands.pop_front();
            side.command(CommandTag(at), command);
            return;
        }
        self.made += 1;
        let tag = RequestTag(self.made);
        let sectors = self.rng.between(1, 200);
        let lba = self.rng.below(self.size / 512 - sectors);
        let (op, data) = match self.rng.below(10) {
            0 => (RequestOp::Flush, false),
            1 => (RequestOp::Trim, false),
            2 => (RequestOp::WriteZeroes { fast: false }, false),
            3..=5 => (RequestOp::Read, true),
            _ => (RequestOp::Write, true),
        };
        let bytes = if op == RequestOp::Flush {
            0
        } else {
            sectors * 512
        };
        let buf = data.then(|| side.allocate(bytes as u32));
        if let (RequestOp::Write, Some(buf)) = (op, buf) {
            let contents: Vec<u8> = (0..bytes)
                .map(|i| (i / 512 + self.made * 37 + i % 7) as u8)
                .collect();
            side.fill(buf, &contents);
        }
        self.open.insert(tag, (op, buf));
        let fua = op == RequestOp::Write && self.rng.chance(1, 5);
        let none = BufRef::new(restripe_array::Buf(restripe_array::Buf::USER), 0, 0);
        let offset = if op == RequestOp::Flush { 0 } else { lba * 512 };
        side.request(Request {
            tag,
            op,
            offset,
            bytes,
            buf: buf.unwrap_or(none),
            fua,
        });
    }

    fn take_replies(&mut self, side: &mut dyn Side) {
        for tag in side.replies() {
            let (op, buf) = self.open.remove(&tag).expect("a request is answered once");
            if let Some(buf) = buf {
                if op == RequestOp::Read {
                    self.read.extend(side.bytes(buf));
                }
                side.free(buf);
            }
        }
    }
}

/// The actions of a recorded run, byte for byte, as an engine wants them that is told the same.
fn actions_of(record: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let outcome = replay(record, |step| encode_actions(step.actions, &mut bytes));
    assert!(!outcome.expect("the same events make the same actions").cut);
    bytes
}

/// An array, and a surrogate if it has one, each as members that are made for it.
struct Plan<'a> {
    array: Spec,
    surrogate: Option<(Spec, Redirect)>,
    commands: &'a [(u64, Command)],
}

impl Plan<'_> {
    /// The members' bytes: the array's, then the surrogate's.
    fn images(&self, seed: u64) -> Vec<Image> {
        let mut images = self.array.format(Some(seed)).expect("a sound array");
        if let Some((spec, _)) = &self.surrogate {
            images.extend(spec.format(Some(!seed)).expect("a sound array"));
        }
        images
    }

    fn config(&self) -> Option<SurrogateConfig> {
        let (spec, redirect) = self.surrogate.as_ref()?;
        Some(surrogate(spec.slots, *redirect))
    }

    fn size_bytes(&self) -> u64 {
        let geometry = self.array.create().expect("a sound array").geometry;
        let layout = restripe_array::layout::Layout::new(geometry);
        restripe_sim::array::size_bytes(&layout.expect("a sound geometry"))
    }
}

fn conform(test: &str, level: Level, slots: u16, spares: u16, commands: &[(u64, Command)]) {
    let mut array = Spec::small(level, slots);
    (array.spares, array.payload) = (spares, Payload::Bytes);
    let surrogate = None;
    conform_to(
        test,
        &Plan {
            array,
            surrogate,
            commands,
        },
    );
}

/// Each seed's run in every world, the same in all. Gives what the surrogates did.
fn conform_to(test: &str, plan: &Plan<'_>) -> Vec<OverlayCounters> {
    let (size, surrogate) = (plan.size_bytes(), plan.config());
    let run = |seed, side| run(seed, size, plan.commands, side);
    let (mut done, mut digests) = (Vec::new(), String::new());
    for seed in 1..=2 {
        let images = plan.images(seed);
        let real = |choice| Real::new(choice, test, &images, surrogate);
        let threads = real(BackendChoice::Threads);
        let world = Simulated::new(threads.infos(), &images, surrogate);
        let threads = run(seed, Box::new(threads));
        let simulated = run(seed, Box::new(world));
        let what = format!("{test}, seed {seed}, threads and sim");
        same(&threads, &simulated, &what);
        if backend::open(BackendChoice::Ring).is_ok() {
            let ring = run(seed, Box::new(real(BackendChoice::Ring)));
            let what = format!("{test}, seed {seed}, ring and sim");
            same(&ring, &simulated, &what);
        }
        let replayed = actions_of(&simulated.record);
        assert!(
            replayed.len() > 100_000,
            "a run of {} bytes is hardly one",
            replayed.len()
        );
        assert_eq!(replayed, actions_of(&threads.record), "{test}, seed {seed}");
        digests += &format!("seed {seed}: {}\n", digests_of(&simulated));
        done.extend(simulated.overlay);
    }
    compare_with_golden(test, &digests);
    done
}

/// The record is compared as a whole, and so are the members.
fn digests_of(run: &Run) -> String {
    let record = words_digest(0, &run.record);
    let media = run.media.iter();
    let media = media.fold(0, |sum, bytes| words_digest(sum, bytes));
    format!("record {record:016x}, members {media:016x}")
}

/// Compares the digests of a test with the recorded ones; `RESTRIPE_BLESS=1` records them.
fn compare_with_golden(test: &str, digests: &str) {
    let root = env!("CARGO_MANIFEST_DIR");
    let path = format!("{root}/tests/conformance/{test}.digests");
    if std::env::var_os("RESTRIPE_BLESS").is_some() {
        return std::fs::write(path, digests).expect("the tree is writable");
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        digests, golden,
        "{path}; RESTRIPE_BLESS=1 cargo test -p restripe-io conformance writes it anew"
    );
}

fn same(one: &Run, other: &Run, what: &str) {
    let mut pairs = one.record.iter().zip(&other.record);
    let differs = pairs.position(|(a, b)| a != b);
    assert!(
        one.record == other.record,
        "{what}: the runs differ at byte {differs:?} of {} and {}",
        one.record.len(),
        other.record.len()
    );
    assert!(one.read == other.read, "{what}: what was read differs");
    for (member, (a, b)) in one.media.iter().zip(&other.media).enumerate() {
        let differs = a.iter().zip(b).position(|(a, b)| a != b);
        assert!(
            a == b,
            "{what}: member {member} differs at byte {differs:?}"
        );
    }
}

impl Real {
    fn infos(&self) -> Vec<MemberInfo> {
        let probe = |path: &PathBuf| std::fs::metadata(path).expect("ours").len() / 512;
        let info = |path| MemberInfo {
            sectors: probe(path),
            logical_block: 512,
            trim_zeroes: true,
            fast_zero: true,
            volatile: false,
        };
        self.paths.iter().map(info).collect()
    }
}

#[test]
fn raid5_through_a_loss_and_a_rebuild() {
    let level = Level::Raid5(Rotation::LeftSymmetric);
    conform(
        "raid5",
        level,
        4,
        1,
        &[
            (10, Command::Order(Order::Ido)),
            (40, Command::Fail(Member(1))),
            (60, Command::Order(Order::Pro)),
        ],
    );
}

#[test]
fn raid6_through_two_losses() {
    let level = Level::Raid6(Rotation::LeftSymmetric);
    conform(
        "raid6",
        level,
        5,
        0,
        &[
            (10, Command::Order(Order::Sor)),
            (30, Command::Fail(Member(0))),
            (20, Command::OnDemand(true)),
            (50, Command::Order(Order::Dor)),
            (70, Command::Fail(Member(3))),
        ],
    );
}

#[test]
fn three_parities_through_three_losses() {
    conform(
        "rs3",
        Level::ReedSolomon { parities: 3 },
        6,
        1,
        &[
            (10, Command::Scrub(ScrubMode::Sync)),
            (30, Command::Fail(Member(0))),
            (40, Command::Fail(Member(3))),
            (60, Command::Fail(Member(5))),
        ],
    );
}

#[test]
fn mirrors_and_stripes() {
    conform("raid0", Level::Raid0, 3, 0, &[]);
    conform(
        "raid1",
        Level::Raid1,
        2,
        0,
        &[(60, Command::Fail(Member(0)))],
    );
    conform(
        "raid10",
        Level::Raid10 { copies: 2 },
        4,
        0,
        &[(20, Command::Scrub(ScrubMode::Check))],
    );
}

/// An array of four with a spare, which loses a member, and a mirror beside it.
fn with_surrogate(test: &str, redirect: Redirect) -> Vec<OverlayCounters> {
    let spec = |level, slots| Spec {
        payload: Payload::Bytes,
        chunks: 48,
        member_sectors: 4096,
        ..Spec::small(level, slots)
    };
    let mut array = spec(Level::Raid5(Rotation::LeftSymmetric), 4);
    let mut surrogate = spec(Level::Raid1, 2);
    (array.spares, surrogate.identity) = (1, 0x1000);
    let partner = |role, array| Some(Partner::new(role, array));
    array.partner = partner(PartnerRole::Main, surrogate.uuid());
    surrogate.partner = partner(PartnerRole::Surrogate, array.uuid());
    let of_surrogate = Member(array.slots + array.spares);
    conform_to(
        test,
        &Plan {
            array,
            surrogate: Some((surrogate, redirect)),
            commands: &[
                (20, Command::Fail(Member(1))),
                (50, Command::Fail(of_surrogate)),
                (70, Command::Add(of_surrogate)),
            ],
        },
    )
}

#[test]
fn a_surrogate_takes_writes_and_gives_them_back() {
    for redirect in [Redirect::Ido, Redirect::WorkOut] {
        let test = format!("surrogate-{}", redirect.name());
        for done in with_surrogate(&test, redirect) {
            assert!(done.redirected_writes > 0, "{redirect:?}: {done:?}");
            assert!(done.sectors_destaged > 0, "{redirect:?}: {done:?}");
        }
    }
}
