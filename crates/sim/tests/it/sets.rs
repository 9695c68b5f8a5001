//! Sets of an array (main set, log, buffer) on disks of a world, and starts of them step by step.

use restripe_array::layout::{Layout, Level, Rotation};
use restripe_array::meta::{Init, Partner, PartnerRole, WriteHole};
use restripe_array::{
    Command, CommandError, DeviceIo, Fact, Limits, Member, Nanos, Pool, StartMode,
};
use restripe_sim::array::Spec;
use restripe_sim::disk::{Disk, Simple};
use restripe_sim::fault::Fault;
use restripe_sim::image::Image;
use restripe_sim::oracle::{Oracle, WriteKind};
use restripe_sim::payload::Payload;
use restripe_sim::session::{News, PATIENCE, Session};
use restripe_sim::world::{World, WorldConfig};
use restripe_tier::overlay::format::slot::HALF_SECTORS;
use restripe_tier::{Config, Destage, Engine, Redirect, SurrogateConfig, SurrogateLimits};
use std::ops::Range;

pub const PLAIN: StartMode = StartMode {
    from_minority: false,
    accept_loss: false,
    read_only: false,
    ..StartMode::PLAIN
};
pub const ACCEPTING: StartMode = StartMode {
    accept_loss: true,
    ..PLAIN
};
pub const FROM_MINORITY: StartMode = StartMode {
    from_minority: true,
    ..PLAIN
};
pub const RECORDS: u64 = 4;
pub const PAGE: u64 = 8;

/// What a pair is made of: home, log and, if it has one, buffer.
pub struct Pair {
    pub specs: Vec<Spec>,
    pub redirect: Redirect,
    pub bug: Option<restripe_array::Bug>,
    /// No two members take the same time for an operation.
    pub uneven: bool,
}

/// A pair while nobody serves it: what its members hold, and what users may find there.
#[derive(Clone)]
pub struct Rest {
    pub images: Vec<Image>,
    pub oracle: Oracle,
}

pub fn partner(role: PartnerRole, of: &Spec) -> Option<Partner> {
    Some(Partner::new(role, of.uuid()))
}

pub fn set(level: Level, slots: u16, number: u64) -> Spec {
    Spec {
        identity: number * 0x1000,
        payload: Payload::Bytes,
        init: Init::Zero,
        member_sectors: 4096,
        ..Spec::small(level, slots)
    }
}

impl Pair {
    pub fn new(specs: Vec<Spec>, redirect: Redirect) -> Pair {
        Pair {
            specs,
            redirect,
            bug: None,
            uneven: false,
        }
    }

    /// One set, without a log.
    pub fn single(level: Level, slots: u16) -> Pair {
        Pair::new(vec![set(level, slots, 0)], Redirect::None)
    }

    /// Mirrors, and a log on one disk.
    pub fn log_disk() -> Pair {
        let mut home = set(Level::Raid1, 2, 0);
        let mut log = set(Level::Raid0, 1, 1);
        home.partner = partner(PartnerRole::Main, &log);
        log.partner = partner(PartnerRole::Surrogate, &home);
        Pair::new(vec![home, log], Redirect::Graid)
    }

    /// Mirrors, a log in clusters, and a mirrored buffer.
    pub fn buffered() -> Pair {
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
        Pair::new(vec![home, log, buffer], Redirect::Reraid)
    }

    /// RAID-5 without a record of what was being written, and a mirrored surrogate.
    pub fn redundant() -> Pair {
        let mut home = Spec {
            write_hole: WriteHole::None,
            ..set(Level::Raid5(Rotation::LeftSymmetric), 3, 0)
        };
        let mut log = set(Level::Raid1, 2, 1);
        home.partner = partner(PartnerRole::Main, &log);
        log.partner = partner(PartnerRole::Surrogate, &home);
        Pair::new(vec![home, log], Redirect::Ido)
    }

    pub fn created(&self) -> Rest {
        let formatted = |spec: &Spec| spec.format(None).expect("the sets fit their members");
        let geometry = self.specs[0].create().expect("the sets fit").geometry;
        let sectors = Layout::new(geometry)
            .expect("it was created")
            .size_sectors();
        Rest {
            images: self.specs.iter().flat_map(formatted).collect(),
            oracle: Oracle::new(Payload::Bytes, sectors),
        }
    }

    /// The members of home, log or buffer.
    pub fn members(&self, set: usize) -> Range<usize> {
        let count = |spec: &Spec| usize::from(spec.slots + spec.spares);
        let count = |specs: &[Spec]| specs.iter().map(count).sum();
        let first: usize = count(&self.specs[..set]);
        first..first + count(&self.specs[set..=set])
    }

    pub fn surrogate(&self) -> Option<SurrogateConfig> {
        let log = self.specs.get(1)?;
        let gathers = self.redirect == Redirect::Reraid;
        let buffer_pool = match gathers {
            true => Pool {
                small: 256,
                large: 32,
            },
            false => Pool { small: 0, large: 0 },
        };
        Some(SurrogateConfig {
            members: log.slots,
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
        })
    }

    pub fn session(&self, rest: Rest) -> Session<Engine> {
        let surrogate = self.surrogate();
        let limits = Limits {
            pool: POOL,
            requests: 16,
            slices: 12,
            ios: 64,
            ..Limits::default()
        };
        let limits = limits.with_pool(surrogate.as_ref().map(|one| one.limits.whole_pool()));
        let owners = self.specs.iter().flat_map(|spec| {
            let members = 0..spec.slots + spec.spares;
            members.map(move |member| (spec, member))
        });
        let apart = u64::from(self.uneven) * 170;
        let made = owners.zip(rest.images).map(|((spec, member), image)| {
            let latency = Nanos(1000 + apart * u64::from(member));
            let device = Simple::new(latency, 1 << 30, Nanos(1));
            spec.disk(member, image, Box::new(device), 7)
        });
        let disks: Vec<Disk> = made.collect();
        let engine = Engine::new(Config {
            members: disks.iter().map(Disk::info).collect(),
            limits,
            surrogate,
            io_timeout: Nanos::from_secs(30),
            bug: self.bug,
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
    pub fn written(&self, writes: u64) -> Rest {
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
    pub fn has_all(&self, rest: &Rest, mode: StartMode, what: &str) {
        let mut start = Start::ask(self, rest.clone(), mode);
        assert_eq!(start.go_on(), Ok(()), "{what}");
        start.reads_all(what);
    }
}

pub const POOL: Pool = Pool {
    small: 512,
    large: 160,
};

/// Gives a command and goes on until it is answered.
pub fn order(start: &mut Start, command: Command) -> Result<(), CommandError> {
    let tag = start.session.command(command);
    loop {
        while let Some(news) = start.session.news() {
            match news {
                News::CommandReply(answered, result) if answered == tag => return result,
                _ => {}
            }
        }
        assert!(start.session.step(), "{command:?} is not answered");
    }
}

/// A start that is on its way, or has ended.
pub struct Start {
    pub session: Session<Engine>,
    pub result: Option<Result<(), CommandError>>,
    pub facts: Vec<Fact>,
}

impl Start {
    pub fn ask(pair: &Pair, rest: Rest, mode: StartMode) -> Start {
        let mut session = pair.session(rest);
        session.command(Command::Start(mode));
        Start {
            session,
            result: None,
            facts: Vec::new(),
        }
    }

    /// One step; false if it has ended.
    pub fn step(&mut self) -> bool {
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

    pub fn go_on(&mut self) -> Result<(), CommandError> {
        while self.step() {}
        self.result.clone().expect("it has ended")
    }

    /// Steps until such an operation is under way; false if the start ends before.
    pub fn until(&mut self, wanted: impl Fn(&DeviceIo) -> bool) -> bool {
        while self.step() {
            if self.is_under_way(&wanted) {
                return true;
            }
        }
        false
    }

    /// Steps until another such operation is under way than now.
    pub fn until_next(&mut self, wanted: impl Fn(&DeviceIo) -> bool) -> bool {
        let before = self.session.world.tally().ios;
        while self.step() {
            if self.session.world.tally().ios > before && self.is_under_way(&wanted) {
                return true;
            }
        }
        false
    }

    pub fn is_under_way(&self, wanted: impl Fn(&DeviceIo) -> bool) -> bool {
        let world = &self.session.world;
        let found = world.under_way_as(wanted);
        !found.is_empty()
    }

    pub fn inject(&mut self, members: Range<usize>, fault: Fault) {
        for member in members {
            self.session.world.inject(Member(member as u16), fault);
        }
    }

    pub fn spoil(&mut self, member: usize, at: u64) {
        let disk = self.session.world.disk_mut(Member(member as u16));
        disk.meddle(|image| spoil(image, at));
    }

    pub fn reads_all(&mut self, what: &str) {
        self.session.read_all(64, PATIENCE);
        let violation = self.session.violations().next();
        assert!(violation.is_none(), "{what}: {violation:?}");
    }

    pub fn forgone(&self) -> usize {
        let forgone = |fact: &&Fact| matches!(fact, Fact::BufferAbsent { forgone: true, .. });
        self.facts.iter().filter(forgone).count()
    }

    /// What is left of it once power has gone and faults are mended.
    pub fn power_goes(self) -> Rest {
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

/// Another byte where a page's payload or header has one.
pub fn spoil(image: &mut Image, at: u64) {
    let mut page = [0; 4096];
    image.read_data(at, PAGE, &mut page);
    page[200] ^= 1;
    image.write_data(at, PAGE, &page);
}
