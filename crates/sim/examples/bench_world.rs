//! Simulated member operations a second on one core, without payload: the world around the engine, and beside it the
//! world around a machine that only passes requests on, which is what the world itself costs.
//!
//! `cargo run --release -p restripe-sim --example bench_world`

use restripe_array::layout::{Level, Rotation};
use restripe_array::{
    Action, Actions, Buf, BufRef, Class, Command, CommandTag, DeviceIo, Event, IoOp, Limits,
    Member, MemberInfo, Nanos, Request, RequestOp, RequestTag, SECTOR_BYTES, Segment, StartMode,
    Tag,
};
use restripe_sim::array::Spec;
use restripe_sim::disk::{Disk, DiskConfig, Simple};
use restripe_sim::image::Image;
use restripe_sim::payload::Payload;
use restripe_sim::rng::Rng;
use restripe_sim::world::{Happening, Machine, World, WorldConfig};
use restripe_tier::report::Status;
use restripe_tier::{Config, Engine};
use std::time::Instant;

const ROUNDS: usize = 7;
const WARM_UP: u64 = 30_000;
const REQUESTS: u64 = 150_000;
const DEPTH: u64 = 32;
const MEMBERS: u16 = 5;
const BYTES: u32 = 4096;
/// Of all requests in 256.
const MIXED: u64 = 77;

fn main() {
    println!("simulated member operations a second of CPU time, no payload, depth {DEPTH}");
    println!("5-member RAID-5, 64 KiB chunk, 4 KiB requests all over; {ROUNDS} interleaved rounds");
    let mut rounds: Vec<Vec<f64>> = vec![Vec::new(); CASES.len()];
    for _ in 0..ROUNDS {
        for (case, rates) in CASES.iter().zip(&mut rounds) {
            rates.push((case.round)());
        }
    }
    println!(
        "{:<34} {:>10} {:>10} {:>10}",
        "millions", "lowest", "lower q.", "highest"
    );
    for (case, mut rates) in CASES.iter().zip(rounds) {
        rates.sort_by(f64::total_cmp);
        let of = |index: usize| rates[index] / 1e6;
        let (low, quarter, high) = (of(0), of(ROUNDS / 4), of(ROUNDS - 1));
        println!("{:<34} {low:>10.2} {quarter:>10.2} {high:>10.2}", case.name);
    }
}

struct Case {
    name: &'static str,
    /// Member operations a second of CPU time.
    round: fn() -> f64,
}

const CASES: [Case; 4] = [
    Case {
        name: "the world alone, passing on",
        round: || rate(passing()),
    },
    Case {
        name: "RAID-5, reads",
        round: || rate(array(0)),
    },
    Case {
        name: "RAID-5, 70 % reads, 30 % writes",
        round: || rate(array(MIXED)),
    },
    Case {
        name: "RAID-5, writes",
        round: || rate(array(256)),
    },
];

fn rate<M: Machine>(mut users: Users<M>) -> f64 {
    users.run(WARM_UP);
    let (before, start) = (users.world.tally().ios, cpu_seconds());
    users.run(REQUESTS);
    let ios = users.world.tally().ios - before;
    let seconds = cpu_seconds() - start;
    assert!(users.world.violations().is_empty(), "the world is content");
    ios as f64 / seconds
}

/// This thread's time on a processor, where the kernel tells; otherwise the time that passes.
fn cpu_seconds() -> f64 {
    thread_local!(static START: Instant = Instant::now());
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text
        .split_whitespace()
        .next()
        .and_then(|word| word.parse::<f64>().ok());
    nanos.map_or_else(
        || START.with(|start| start.elapsed().as_secs_f64()),
        |nanos| nanos / 1e9,
    )
}

// -------------------------------------------------------------------------------------------------------- users

/// Keeps [`DEPTH`] requests under way.
struct Users<M> {
    world: World<M>,
    rng: Rng,
    blocks: u64,
    /// Requests in 256 that write.
    writes: u64,
    asked: u64,
    buffers: Vec<Buf>,
}

impl<M: Machine> Users<M> {
    fn new(mut world: World<M>, bytes: u64, writes: u64) -> Users<M> {
        let memory = world.memory();
        let buffers = (0..DEPTH).map(|_| memory.allocate(BYTES)).collect();
        let blocks = bytes / u64::from(BYTES);
        Users {
            world,
            rng: Rng::new(1),
            blocks,
            writes,
            asked: 0,
            buffers,
        }
    }

    fn run(&mut self, requests: u64) {
        let end = self.asked + requests;
        (0..DEPTH).for_each(|place| self.ask(place));
        let mut open = DEPTH;
        while open > 0 {
            assert!(self.world.step(), "an answer comes");
            while let Some(happening) = self.world.happening() {
                let Happening::Reply(tag, result) = happening else {
                    continue;
                };
                assert_eq!(result, Ok(()), "healthy members");
                if self.asked < end {
                    self.ask(tag.0 % DEPTH);
                } else {
                    open -= 1;
                }
            }
        }
    }

    /// Each place in the queue has its buffer and its tags.
    fn ask(&mut self, place: u64) {
        self.asked += 1;
        let op = match self.rng.below(256) < self.writes {
            true => RequestOp::Write,
            false => RequestOp::Read,
        };
        self.world.request(Request {
            tag: RequestTag(self.asked * DEPTH + place),
            op,
            offset: self.rng.below(self.blocks) * u64::from(BYTES),
            bytes: BYTES.into(),
            buf: BufRef::new(self.buffers[place as usize], 0, BYTES),
            fua: false,
        });
    }
}

fn config(limits: Limits) -> WorldConfig {
    WorldConfig {
        payload: Payload::None,
        limits,
        seed: 1,
        compute_delay: Nanos(0),
        strict: false,
        record: false,
        trace: false,
    }
}

fn device() -> Box<Simple> {
    Box::new(Simple::new(Nanos(20_000), 1 << 32, Nanos(10_000)))
}

// -------------------------------------------------------------------------------------------------------- array

/// A RAID-5 that serves.
fn array(writes: u64) -> Users<Engine> {
    let spec = Spec {
        chunk_sectors: 128,
        chunks: 512,
        payload: Payload::None,
        volatile: false,
        depth: 64,
        member_sectors: 1 << 18,
        ..Spec::small(Level::Raid5(Rotation::LeftSymmetric), MEMBERS)
    };
    let images = spec.format(None).expect("a sound specification");
    let disks: Vec<Disk> = images
        .into_iter()
        .enumerate()
        .map(|(member, image)| spec.disk(member as u16, image, device(), 1))
        .collect();
    let limits = Limits::default();
    let engine = Engine::new(Config {
        members: disks.iter().map(Disk::info).collect(),
        limits,
        surrogate: None,
        io_timeout: Nanos::from_secs(30),
        bug: None,
    });
    let mut world = World::new(config(limits), engine, disks);
    world.command(CommandTag(1), Command::Start(StartMode::default()));
    while !started(&mut world) {
        assert!(world.step(), "the array starts");
    }
    let bytes = world.status().size_bytes;
    let mut users = Users::new(world, bytes, 256);
    // Every extent is initialised by its first write: that is not what is measured here.
    users.run(WARM_UP);
    users.writes = writes;
    users
}

fn started(world: &mut World<Engine>) -> bool {
    std::iter::from_fn(|| world.happening())
        .any(|happening| happening == Happening::CommandReply(CommandTag(1), Ok(())))
}

// --------------------------------------------------------------------------------------------------- passing on

// Boxes are kept as boxes: they come with actions and go back with events.
#[allow(clippy::vec_box)]
/// Makes one operation of each request, and a reply of its end.
struct Passing {
    open: Vec<Option<RequestTag>>,
    free: Vec<u32>,
    ios: Vec<Box<DeviceIo>>,
}

impl Machine for Passing {
    fn handle(&mut self, _now: Nanos, event: Event, actions: &mut Actions) {
        match event {
            Event::Request(request) => self.request(request, actions),
            Event::Device(io, result) => {
                let tag = self.open[io.tag.0 as usize].take().expect("under way");
                assert_eq!(result, Ok(()), "healthy members");
                self.free.push(io.tag.0);
                self.ios.push(io);
                actions.push(Action::Reply(tag, Ok(())));
            }
            _ => {}
        }
    }

    fn ready(&self) -> bool {
        !self.free.is_empty()
    }

    fn status(&self) -> Status {
        Status::default()
    }
}

impl Passing {
    fn request(&mut self, request: Request, actions: &mut Actions) {
        let place = self.free.pop().expect("as many places as requests");
        self.open[place as usize] = Some(request.tag);
        let mut io = self.ios.pop().expect("one a place");
        let block = request.offset / u64::from(BYTES);
        io.tag = Tag(place);
        io.member = Member((block % u64::from(MEMBERS)) as u16);
        io.op = match request.op {
            RequestOp::Write => IoOp::Write,
            _ => IoOp::Read,
        };
        io.at = request.offset / SECTOR_BYTES;
        io.segments.clear();
        io.segments.push(Segment::Buf(request.buf));
        actions.push(Action::Device(io));
    }
}

fn passing() -> Users<Passing> {
    let info = MemberInfo {
        sectors: 1 << 18,
        logical_block: 512,
        trim_zeroes: true,
        fast_zero: true,
        volatile: false,
    };
    let disk = |member: u16| {
        let config = DiskConfig {
            info,
            volatile: false,
            depth: 64,
        };
        let image = Image::new(Payload::None, info.sectors);
        Disk::new(config, image, device(), Rng::new(member.into()))
    };
    let blank = || {
        Box::new(DeviceIo {
            tag: Tag(0),
            member: Member(0),
            op: IoOp::Read,
            at: 0,
            sectors: u64::from(BYTES) / SECTOR_BYTES,
            segments: Vec::new(),
            durable: false,
            class: Class::User,
        })
    };
    let machine = Passing {
        open: vec![None; DEPTH as usize],
        free: (0..DEPTH as u32).collect(),
        ios: (0..DEPTH).map(|_| blank()).collect(),
    };
    let disks = (0..MEMBERS).map(disk).collect();
    let world = World::new(config(Limits::default()), machine, disks);
    Users::new(world, info.sectors * SECTOR_BYTES, MIXED)
}
