//! The world, its users and the oracle around a machine so small that its bugs are planted: one disk passed through.
//! Each planted bug must be found under the right name, and the honest machine must pass.

use restripe_array::report::Status as SetStatus;
use restripe_array::{
    Action, Actions, Class, DeviceIo, Event, IoOp, Limits, Member, MemberInfo, Nanos, Request,
    RequestOp, RequestTag, SECTOR_BYTES, Segment, Tag,
};
use restripe_sim::disk::{Disk, DiskConfig, Simple};
use restripe_sim::image::Image;
use restripe_sim::invariant::Invariant;
use restripe_sim::oracle::{Oracle, WriteKind};
use restripe_sim::payload::Payload;
use restripe_sim::rng::Rng;
use restripe_sim::session::Session;
use restripe_sim::world::{Machine, World, WorldConfig};
use restripe_tier::report::Status;
use std::collections::BTreeMap;

const SECTORS: u64 = 512;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bug {
    None,
    /// Replies before the disk has.
    EarlyReply,
    /// A flush that does nothing.
    SkippedFlush,
    /// FUA is forgotten.
    ForgottenFua,
    /// Every write lands a sector too far.
    OffByOne,
    /// A request is forgotten.
    LostRequest,
    /// Reads answer without reading.
    LazyRead,
    /// An operation beyond the end of the disk.
    TooFar,
}

/// Passes requests through to member 0.
struct Passthrough {
    bug: Bug,
    next: u32,
    open: BTreeMap<Tag, RequestTag>,
    count: u64,
}

impl Passthrough {
    fn new(bug: Bug) -> Passthrough {
        Passthrough {
            bug,
            next: 0,
            open: BTreeMap::new(),
            count: 0,
        }
    }

    fn request(&mut self, request: Request, actions: &mut Actions) {
        self.count += 1;
        let reply = Action::Reply(request.tag, Ok(()));
        match (self.bug, request.op) {
            (Bug::SkippedFlush, RequestOp::Flush) | (Bug::LazyRead, RequestOp::Read) => {
                return actions.push(reply);
            }
            (Bug::LostRequest, _) if self.count == 20 => return,
            (Bug::EarlyReply, RequestOp::WriteZeroes { .. }) => actions.push(reply),
            _ => {
                self.open.insert(Tag(self.next), request.tag);
            }
        }
        actions.push(Action::Device(Box::new(self.io(request))));
        self.next += 1;
    }

    fn io(&self, request: Request) -> DeviceIo {
        let (op, segments) = match request.op {
            RequestOp::Read => (IoOp::Read, vec![Segment::Buf(request.buf)]),
            RequestOp::Write => (IoOp::Write, vec![Segment::Buf(request.buf)]),
            RequestOp::Flush => (IoOp::Flush, Vec::new()),
            RequestOp::Trim | RequestOp::WriteZeroes { .. } => (IoOp::Zero, Vec::new()),
            RequestOp::CompareAndWrite | RequestOp::Or => unreachable!("nobody asks for these"),
        };
        let shift = match self.bug {
            Bug::OffByOne if op == IoOp::Write => 1,
            Bug::TooFar => SECTORS,
            _ => 0,
        };
        let sectors = request.bytes / SECTOR_BYTES;
        let durable = request.fua && self.bug != Bug::ForgottenFua;
        let at = (request.offset / SECTOR_BYTES + shift) % (SECTORS * 2 - sectors);
        DeviceIo {
            tag: Tag(self.next),
            member: Member(0),
            op,
            at,
            sectors,
            segments,
            durable,
            class: Class::User,
        }
    }
}

impl Machine for Passthrough {
    fn handle(&mut self, _now: Nanos, event: Event, actions: &mut Actions) {
        match event {
            Event::Request(request) => self.request(request, actions),
            Event::Device(io, result) => {
                assert_eq!(result, Ok(()), "this disk has no faults");
                actions.extend(
                    self.open
                        .remove(&io.tag)
                        .map(|tag| Action::Reply(tag, Ok(()))),
                );
            }
            _ => {}
        }
    }

    fn ready(&self) -> bool {
        self.open.len() < 8
    }

    fn status(&self) -> Status {
        Status::from(SetStatus {
            logical_block: 512,
            ..SetStatus::default()
        })
    }
}

fn disk(seed: u64) -> Disk {
    let info = MemberInfo {
        sectors: SECTORS + 1,
        logical_block: 512,
        trim_zeroes: true,
        fast_zero: true,
        volatile: false,
    };
    let config = DiskConfig {
        info,
        volatile: true,
        depth: 4,
    };
    let device = Simple::new(Nanos(1000), 1 << 30, Nanos(50_000));
    Disk::new(
        config,
        Image::new(Payload::Tokens, info.sectors),
        Box::new(device),
        Rng::new(seed),
    )
}

fn session(
    bug: Bug,
    seed: u64,
    now: Nanos,
    disks: Vec<Disk>,
    oracle: Oracle,
) -> Session<Passthrough> {
    let config = WorldConfig {
        payload: Payload::Tokens,
        limits: Limits::default(),
        seed,
        compute_delay: Nanos(0),
        strict: true,
        record: true,
        trace: false,
    };
    Session::new(World::at(config, now, Passthrough::new(bug), disks), oracle)
}

/// Requests that do not overlap while under way: a disk promises no more to those that do.
fn serve(session: &mut Session<Passthrough>, rng: &mut Rng, requests: u64) {
    for _ in 0..requests {
        if session.outstanding() > 0 && !session.settle(Nanos::from_secs(1)) {
            return;
        }
        for lane in 0..4 {
            let lba = lane * 128 + rng.below(100);
            let sectors = rng.between(1, 20);
            match rng.below(10) {
                0..=3 => session.write(lba, sectors, WriteKind::Data, rng.chance(1, 3), false),
                4 => session.write(lba, sectors, WriteKind::Zeroes, false, false),
                5 => session.flush(),
                _ => session.read(lba, sectors),
            }
        }
    }
    session.settle(Nanos::from_secs(1));
}

/// Three lives with crashes between; the first breach, if any, and the digests.
fn run(bug: Bug, seed: u64) -> (Option<Invariant>, Vec<u64>) {
    let mut rng = Rng::new(seed);
    let (mut disks, mut oracle) = (vec![disk(seed)], Oracle::new(Payload::Tokens, SECTORS));
    let mut digests = Vec::new();
    let mut now = Nanos::ZERO;
    for _ in 0..3 {
        let mut session = session(bug, seed, now, disks, oracle);
        serve(&mut session, &mut rng, 20);
        session.read_all(64, Nanos::from_secs(1));
        digests.push(session.world.digest());
        if let Some(violation) = session.violations().next() {
            return (Some(violation.invariant), digests);
        }
        session.write(0, 64, WriteKind::Data, true, false);
        session.write(100, 64, WriteKind::Data, false, false);
        let Session {
            world,
            oracle: after,
            ..
        } = session;
        now = world.now();
        let site = world.site();
        let cut = site.sample(&mut rng);
        (disks, oracle) = (site.restart(world.into_disks(), &cut), after);
        oracle.crash();
    }
    (None, digests)
}

/// Which invariants a bug breaks over some seeds.
fn broken(bug: Bug) -> Vec<Invariant> {
    let mut found: Vec<Invariant> = (0..20).filter_map(|seed| run(bug, seed).0).collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[test]
fn the_honest_machine_passes_and_repeats() {
    for seed in 0..20 {
        let first = run(Bug::None, seed);
        assert_eq!(first.0, None, "seed {seed}");
        assert_eq!(first, run(Bug::None, seed));
    }
}

#[test]
fn each_planted_bug_is_found_by_its_name() {
    assert!(broken(Bug::SkippedFlush).contains(&Invariant::FlushedWriteLost));
    assert!(broken(Bug::ForgottenFua).contains(&Invariant::FlushedWriteLost));
    assert!(broken(Bug::OffByOne).contains(&Invariant::MadeUpBytes));
    assert_eq!(broken(Bug::LostRequest), [Invariant::StuckRequest]);
    assert_eq!(broken(Bug::LazyRead), [Invariant::MadeUpBytes]);
    assert!(broken(Bug::TooFar).contains(&Invariant::Contract));
}

/// A reply that comes before the disk has answered is found out by a read that overtakes the write.
#[test]
fn an_early_reply_is_found_out() {
    let mut found = Vec::new();
    for seed in 0..50 {
        let oracle = Oracle::new(Payload::Tokens, SECTORS);
        let mut session = session(Bug::EarlyReply, seed, Nanos::ZERO, vec![disk(seed)], oracle);
        session.write(3, 8, WriteKind::Data, false, false);
        session.settle(Nanos::from_secs(1));
        session.write(3, 8, WriteKind::Zeroes, false, false);
        session.read(3, 8);
        session.settle(Nanos::from_secs(1));
        found.extend(
            session
                .violations()
                .next()
                .map(|violation| violation.invariant),
        );
    }
    assert!(found.contains(&Invariant::AckedWriteLost), "{found:?}");
}

/// Events that were recorded, fed to a fresh machine, give the same actions.
#[test]
fn recorded_events_replay() {
    let oracle = Oracle::new(Payload::Tokens, SECTORS);
    let mut session = session(Bug::None, 1, Nanos::ZERO, vec![disk(1)], oracle);
    serve(&mut session, &mut Rng::new(1), 10);
    let mut digest = restripe_sim::digest::Digest::default();
    let mut machine = Passthrough::new(Bug::None);
    let mut actions = Actions::new();
    for (now, event) in session.world.events() {
        machine.handle(*now, event.clone(), &mut actions);
        actions
            .drain(..)
            .for_each(|action| digest.action(*now, &action));
    }
    assert_eq!(digest.value(), session.world.digest());
}
