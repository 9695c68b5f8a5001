//! Starts of an array with a code cache and a buffer, each with one fault at a chosen step: what users flushed is there after it, or the
//! start is refused and it is there once the fault is gone.

use restripe_array::layout::{Level, Rotation};
use restripe_array::meta::{Init, Partner, PartnerRole, RegionKind, WriteHole};
use restripe_array::overlay::format::slot::HALF_SECTORS;
use restripe_array::{
    Command, CommandError, Config, Destage, DeviceIo, Engine, Fact, IoOp, Limits, Member, Nanos,
    Pool, Redirect, StartMode, SurrogateConfig, SurrogateLimits,
};
use restripe_sim::array::{Spec, superblock_of};
use restripe_sim::disk::{Disk, Simple};
use restripe_sim::fault::Fault;
use restripe_sim::image::Image;
use restripe_sim::oracle::{Oracle, WriteKind};
use restripe_sim::payload::Payload;
use restripe_sim::session::{News, PATIENCE, Session};
use restripe_sim::world::{World, WorldConfig};
use std::ops::Range;

const PLAIN: StartMode = StartMode {
    from_minority: false,
    accept_loss: false,
    read_only: false,
};
const ACCEPTING: StartMode = StartMode {
    accept_loss: true,
    ..PLAIN
};
const FROM_MINORITY: StartMode = StartMode {
    from_minority: true,
    ..PLAIN
};
const RECORDS: u64 = 4;
const PAGE: u64 = 8;

/// What a pair is made of: home, log and, if it has one, buffer.
struct Pair {
    specs: Vec<Spec>,
    redirect: Redirect,
}

/// A pair while nobody serves it: what its members hold, and what users may find there.
#[derive(Clone)]
struct Rest {
    images: Vec<Image>,
    oracle: Oracle,
}

fn partner(role: PartnerRole, of: &Spec) -> Option<Partner> {
    Some(Partner::new(role, of.uuid()))
}

fn set(level: Level, slots: u16, number: u64) -> Spec {
    Spec {
        identity: number * 0x1000,
        payload: Payload::Bytes,
        init: Init::Zero,
        member_sectors: 4096,
        ..Spec::small(level, slots)
    }
}

impl Pair {
    /// Mirrors, a log in clusters, and a mirrored buffer.
    fn buffered() -> Pair {
        let mut home = set(Level::Raid1, 2, 0);
        let mut log = Spec {
            write_hole: WriteHole::WholeRows,
            chunk_sectors: 8,
            chunks: 128,
            buffered: true,
            ..set(Level::Raid5(Rotation::LeftSymmetric), 3, 1)
        };
        home.partner = partner(PartnerRole::Main, &log);
        log.partner = partner(PartnerRole::Surrogate, &home);
        let buffer = Spec {
            chunk_sectors: 128,
            chunks: RECORDS * 2,
            member_sectors: RECORDS * 2 * HALF_SECTORS + 2048,
            partner: partner(PartnerRole::Buffer, &home),
            ..set(Level::Raid1, 2, 2)
        };
        Pair {
            specs: vec![home, log, buffer],
            redirect: Redirect::Reraid,
        }
    }

    /// RAID-5 without a record of what was being written, and a mirrored surrogate.
    fn redundant() -> Pair {
        let mut home = Spec {
            write_hole: WriteHole::None,
            ..set(Level::Raid5(Rotation::LeftSymmetric), 3, 0)
        };
        let mut log = set(Level::Raid1, 2, 1);
        home.partner = partner(PartnerRole::Main, &log);
        log.partner = partner(PartnerRole::Surrogate, &home);
        Pair {
            specs: vec![home, log],
            redirect: Redirect::Ido,
        }
    }

    fn created(&self) -> Rest {
        let formatted = |spec: &Spec| spec.format(None).expect("the sets fit their members");
        let home = &self.specs[0];
        let cells = match home.level {
            Level::Raid1 => 1,
            _ => u64::from(home.slots) - 1,
        };
        let sectors = home.chunks * u64::from(home.chunk_sectors) * cells;
        Rest {
            images: self.specs.iter().flat_map(formatted).collect(),
            oracle: Oracle::new(Payload::Bytes, sectors),
        }
    }

    /// The members of home, log or buffer.
    fn members(&self, set: usize) -> Range<usize> {
        let slots = |specs: &[Spec]| specs.iter().map(|spec| usize::from(spec.slots)).sum();
        let first: usize = slots(&self.specs[..set]);
        first..first + slots(&self.specs[set..=set])
    }

    fn surrogate(&self) -> SurrogateConfig {
        let gathers = self.redirect == Redirect::Reraid;
        let buffer_pool = match gathers {
            true => Pool {
                small: 256,
                large: 32,
            },
            false => Pool { small: 0, large: 0 },
        };
        SurrogateConfig {
            members: self.specs[1].slots,
            buffer_members: self.specs.get(2).map_or(0, |buffer| buffer.slots),
            limits: SurrogateLimits {
                pool: POOL,
                requests: 12,
                slices: 8,
                ios: 64,
                extents: 4096,
                extent_sectors: 0,
                copies: 2,
                cluster_records: 1,
                records_in_memory: if gathers { RECORDS as u32 } else { 0 },
                buffer_pool,
                parts_home: 2,
            },
            redirect: self.redirect,
            scrubs: false,
            destage: Destage {
                seal: Nanos::from_secs(3600),
                ..Destage::default()
            },
        }
    }

    fn session(&self, rest: Rest) -> Session<Engine> {
        let surrogate = self.surrogate();
        let limits = Limits {
            pool: POOL,
            requests: 16,
            slices: 12,
            ios: 64,
            ..Limits::default()
        };
        let limits = limits.with_surrogate(Some(&surrogate.limits));
        let owners = self.specs.iter().flat_map(|spec| {
            let members = 0..spec.slots;
            members.map(move |member| (spec, member))
        });
        let made = owners.zip(rest.images).map(|((spec, member), image)| {
            let device = Simple::new(Nanos(1000), 1 << 30, Nanos(1));
            spec.disk(member, image, Box::new(device), 7)
        });
        let disks: Vec<Disk> = made.collect();
        let engine = Engine::new(Config {
            members: disks.iter().map(Disk::info).collect(),
            limits,
            surrogate: Some(surrogate),
            io_timeout: Nanos::from_secs(30),
            #[cfg(feature = "planted")]
            bug: None,
        });
        let config = WorldConfig {
            payload: Payload::Bytes,
            limits: Limits {
                ios: 1 << 16,
                ..limits
            },
            seed: 7,
            compute_delay: Nanos(0),
            strict: true,
            record: false,
            trace: false,
        };
        Session::new(World::new(config, engine, disks), rest.oracle)
    }

    /// Users write and flush one block after the other, and power goes.
    fn written(&self, writes: u64) -> Rest {
        let mut start = Start::ask(self, self.created(), PLAIN);
        assert_eq!(start.go_on(), Ok(()));
        let session = &mut start.session;
        for nth in 0..writes {
            session.write(nth * 24 % 168, 16, WriteKind::Data, false, false);
            assert!(session.settle(PATIENCE));
            session.flush();
            assert!(session.settle(PATIENCE));
        }
        start.power_goes()
    }

    /// All that users flushed is there.
    fn has_all(&self, rest: &Rest, mode: StartMode, what: &str) {
        let mut start = Start::ask(self, rest.clone(), mode);
        assert_eq!(start.go_on(), Ok(()), "{what}");
        start.reads_all(what);
    }
}

const POOL: Pool = Pool {
    small: 512,
    large: 160,
};

/// A start that is on its way, or has ended.
struct Start {
    session: Session<Engine>,
    result: Option<Result<(), CommandError>>,
    facts: Vec<Fact>,
}

impl Start {
    fn ask(pair: &Pair, rest: Rest, mode: StartMode) -> Start {
        let mut session = pair.session(rest);
        session.command(Command::Start(mode));
        Start {
            session,
            result: None,
            facts: Vec::new(),
        }
    }

    /// One step; false if it has ended.
    fn step(&mut self) -> bool {
        let more = self.session.step();
        while let Some(news) = self.session.news() {
            match news {
                News::CommandReply(_, result) => self.result = Some(result),
                News::Fact(fact) => self.facts.push(fact),
                News::Mark(_) => {}
            }
        }
        assert!(more || self.result.is_some(), "it waits for nothing");
        self.result.is_none()
    }

    fn go_on(&mut self) -> Result<(), CommandError> {
        while self.step() {}
        self.result.clone().expect("it has ended")
    }

    /// Steps until such an operation is under way; false if the start ends before.
    fn until(&mut self, wanted: impl Fn(&DeviceIo) -> bool) -> bool {
        while self.step() {
            if self.is_under_way(&wanted) {
                return true;
            }
        }
        false
    }

    /// Steps until another such operation is under way than now.
    fn until_next(&mut self, wanted: impl Fn(&DeviceIo) -> bool) -> bool {
        let before = self.session.world.tally().ios;
        while self.step() {
            if self.session.world.tally().ios > before && self.is_under_way(&wanted) {
                return true;
            }
        }
        false
    }

    fn is_under_way(&self, wanted: impl Fn(&DeviceIo) -> bool) -> bool {
        let world = &self.session.world;
        let found = world.under_way_as(wanted);
        !found.is_empty()
    }

    fn inject(&mut self, members: Range<usize>, fault: Fault) {
        for member in members {
            self.session.world.inject(Member(member as u16), fault);
        }
    }

    fn spoil(&mut self, member: usize, at: u64) {
        let disk = self.session.world.disk_mut(Member(member as u16));
        disk.meddle(|image| spoil(image, at));
    }

    fn reads_all(&mut self, what: &str) {
        self.session.read_all(64, PATIENCE);
        let violation = self.session.violations().next();
        assert!(violation.is_none(), "{what}: {violation:?}");
    }

    fn forgone(&self) -> usize {
        let forgone = |fact: &&Fact| matches!(fact, Fact::BufferAbsent { forgone: true, .. });
        self.facts.iter().filter(forgone).count()
    }

    /// What is left of it once power has gone and faults are mended.
    fn power_goes(self) -> Rest {
        let Session {
            world, mut oracle, ..
        } = self.session;
        let site = world.site();
        oracle.crash();
        Rest {
            images: site.images(&site.nothing()),
            oracle,
        }
    }
}

/// Where a member's data lie.
fn data_of(image: &Image) -> Range<u64> {
    let superblock = superblock_of(image).expect("a member");
    let data = |region: &&restripe_array::meta::Region| region.kind == RegionKind::Data;
    let region = superblock.regions.iter().find(data);
    let region = region.expect("every member has data");
    region.start..region.start + region.sectors
}

/// Another byte where a page's payload or header has one.
fn spoil(image: &mut Image, at: u64) {
    let mut page = [0; 4096];
    image.read_data(at, PAGE, &mut page);
    page[200] ^= 1;
    image.write_data(at, PAGE, &page);
}

/// Where the newest version begins on a member of a buffer: of the last record, by its sequence and version.
fn newest_version(image: &Image) -> u64 {
    let data = data_of(image).start;
    let number = |page: &[u8], at: usize, length: usize| {
        let mut bytes = [0; 8];
        bytes[..length].copy_from_slice(&page[at..at + length]);
        u64::from_le_bytes(bytes)
    };
    let halves = (0..2 * RECORDS).map(|half| data + half * HALF_SECTORS);
    let versions = halves.filter_map(|at| {
        let mut page = [0; 4096];
        image.read_data(at, PAGE, &mut page);
        let is_one = page.starts_with(b"RstrpBuf");
        is_one.then(|| ((number(&page, 40, 8), number(&page, 72, 4)), at))
    });
    versions.max().expect("the buffer has records").1
}

fn is_half_read(io: &DeviceIo) -> bool {
    io.op == IoOp::Read && io.sectors == HALF_SECTORS
}

const LOG: usize = 1;
const BUFFER: usize = 2;

fn is_of_buffer(error: &CommandError) -> bool {
    matches!(
        error,
        CommandError::OfBuffer(_) | CommandError::BufferMissing
    )
}

/// Space ends on all members of the log, or of the buffer, at any step of a start, and nothing is given up though losses are accepted.
#[test]
fn a_start_whose_space_ends_midway_loses_nothing() {
    let pair = Pair::buffered();
    let rest = pair.written(14);
    pair.has_all(&rest, PLAIN, "without a fault");
    for set in [LOG, BUFFER] {
        let (mut refused, mut served) = (0, 0);
        for steps in 0.. {
            let mut start = Start::ask(&pair, rest.clone(), ACCEPTING);
            let ended = (0..steps).any(|_| !start.step());
            start.inject(pair.members(set), Fault::Full { flushes: false });
            let what = format!("no space for set {set} after {steps} steps");
            match start.go_on() {
                Ok(()) => served += 1,
                Err(CommandError::OfSurrogate(why) | CommandError::OfBuffer(why)) => {
                    assert_eq!(*why, CommandError::NoSpace, "{what}");
                    refused += 1;
                }
                other => panic!("{what}: {other:?}"),
            }
            assert_eq!(start.forgone(), 0, "{what}");
            pair.has_all(&start.power_goes(), PLAIN, &what);
            if ended {
                break;
            }
        }
        assert!(refused > 20 && served > 0, "{refused} {served}");
    }
}

/// Of the newest version one copy holds other bytes, and the other cannot be read from any step of the start on.
#[test]
fn a_copy_that_cannot_be_read_beside_a_wrong_one_is_missed() {
    let pair = Pair::buffered();
    let mut rest = pair.written(14);
    for wrong in pair.members(BUFFER) {
        let other = pair.members(BUFFER).find(|member| *member != wrong);
        let other = other.expect("a mirror has two");
        let at = newest_version(&rest.images[wrong]);
        let sound = rest.images[wrong].clone();
        spoil(&mut rest.images[wrong], at);
        let (mut refused, mut served) = (0, 0);
        for steps in 0.. {
            let mut start = Start::ask(&pair, rest.clone(), PLAIN);
            let ended = (0..steps).any(|_| !start.step());
            let sectors = HALF_SECTORS;
            start.inject(other..other + 1, Fault::Latent { at, sectors });
            let what = format!("member {other} not read from step {steps} on");
            match start.go_on() {
                Ok(()) => {
                    start.reads_all(&what);
                    served += 1;
                }
                Err(error) => {
                    assert!(is_of_buffer(&error), "{what}: {error:?}");
                    refused += 1;
                }
            }
            pair.has_all(&start.power_goes(), PLAIN, &what);
            if ended {
                break;
            }
        }
        assert!(refused > 20 && served > 20, "{refused} {served}");
        let mut start = Start::ask(&pair, rest.clone(), ACCEPTING);
        let sectors = HALF_SECTORS;
        start.inject(other..other + 1, Fault::Latent { at, sectors });
        assert_eq!((start.go_on(), start.forgone()), (Ok(()), 1));
        rest.images[wrong] = sound;
    }
}

/// The good copy errs just while the wrong one is being written again: what was found counts.
#[test]
fn a_version_that_cannot_be_written_again_stays_found() {
    let pair = Pair::buffered();
    let mut rest = pair.written(14);
    let wrong = pair.members(BUFFER).start;
    let good = wrong + 1;
    let at = newest_version(&rest.images[wrong]);
    spoil(&mut rest.images[wrong], at);
    let mut start = Start::ask(&pair, rest, PLAIN);
    let reads = |io: &DeviceIo| usize::from(io.member.0) == good && is_half_read(io) && io.at == at;
    assert!(start.until(reads), "it is read without the wrong one");
    assert!(
        start.until_next(reads),
        "and once more, to write that again"
    );
    let sectors = HALF_SECTORS;
    start.inject(good..good + 1, Fault::Latent { at, sectors });
    assert!(start.until(|io| is_half_read(io) && io.at != at));
    let good = Member(good as u16);
    start.session.world.disk_mut(good).faults.mend_reads();
    assert_eq!(start.go_on(), Ok(()));
    start.reads_all("the good copy erred once");
}

/// A record was whole when the buffer was looked through, and in no copy any more when it is to go into the log.
#[test]
fn a_record_that_is_gone_when_it_is_moved_is_not_dropped_in_silence() {
    let pair = Pair::buffered();
    let rest = pair.written(14);
    let at = newest_version(&rest.images[pair.members(BUFFER).start]);
    let (log, buffer) = (pair.members(LOG), pair.members(BUFFER));
    let data = data_of(&rest.images[log.start]);
    let of = |set: &Range<usize>, io: &DeviceIo| set.contains(&usize::from(io.member.0));
    for mode in [PLAIN, ACCEPTING] {
        let mut start = Start::ask(&pair, rest.clone(), mode);
        // The log is read behind the buffer.
        assert!(start.until(|io| of(&buffer, io) && is_half_read(io)));
        assert!(start.until(|io| of(&log, io) && io.op == IoOp::Read && data.contains(&io.at)));
        for member in pair.members(BUFFER) {
            start.spoil(member, at);
        }
        let unread = CommandError::OfBuffer(Box::new(CommandError::Metadata));
        let (result, forgone) = match mode.accept_loss {
            true => (Ok(()), 1),
            false => (Err(unread), 0),
        };
        assert_eq!((start.go_on(), start.forgone()), (result, forgone));
    }
}

/// What no copy gives is given up once losses are accepted, and told once, however much that is.
#[test]
fn what_a_buffer_does_not_give_is_told() {
    let pair = Pair::buffered();
    let rest = pair.written(14);
    let data = data_of(&rest.images[pair.members(BUFFER).start]).start;
    let latent = Fault::Latent {
        at: data,
        sectors: 2 * RECORDS * HALF_SECTORS,
    };
    let mut start = Start::ask(&pair, rest.clone(), PLAIN);
    start.inject(pair.members(BUFFER), latent);
    let error = start.go_on().expect_err("nobody has what was flushed");
    assert!(is_of_buffer(&error), "{error:?}");
    pair.has_all(&start.power_goes(), PLAIN, "after a refusal");
    let mut start = Start::ask(&pair, rest, ACCEPTING);
    start.inject(pair.members(BUFFER), latent);
    assert_eq!((start.go_on(), start.forgone()), (Ok(()), 1));
}

/// Halves that nobody ever wrote are no reason to refuse a start with one member of the buffer.
#[test]
fn a_buffer_of_one_member_starts() {
    let pair = Pair::buffered();
    for writes in [1, 14] {
        for gone in pair.members(BUFFER) {
            let mut rest = pair.written(writes);
            let blank = Image::new(Payload::Bytes, rest.images[gone].sectors());
            rest.images[gone] = blank;
            pair.has_all(&rest, FROM_MINORITY, "one member of the buffer");
        }
    }
}

/// Home's own losses are asked about and accepted, whatever a log lacks that nothing lies in.
#[test]
fn losses_of_home_are_not_refused_for_a_log_that_does_not_count() {
    let pair = Pair::redundant();
    let mut start = Start::ask(&pair, pair.created(), PLAIN);
    assert_eq!(start.go_on(), Ok(()));
    start.session.write(0, 16, WriteKind::Data, false, false);
    assert!(start.session.settle(PATIENCE));
    let mut rest = start.power_goes();
    for member in [0, pair.members(LOG).start] {
        rest.images[member] = Image::new(Payload::Bytes, rest.images[member].sectors());
    }
    let error = Start::ask(&pair, rest.clone(), PLAIN).go_on();
    assert!(
        matches!(error, Err(CommandError::WouldLose { .. })),
        "{error:?}"
    );
    let mut start = Start::ask(&pair, rest, ACCEPTING);
    assert_eq!(start.go_on(), Ok(()));
    let lost = |fact: &Fact| matches!(fact, Fact::Lost { .. });
    assert!(start.facts.iter().any(lost), "{:?}", start.facts);
}
