//! What a seed makes of an array with a surrogate: both sets, who writes, and when what lies in the log goes
//! home.

use super::Options;
use crate::array::{Spec, pool};
use crate::payload::Payload;
use crate::rng::Rng;
use crate::swarm::plan::cached;
use restripe_array::layout::{Level, Rotation};
use restripe_array::meta::{Init, Partner, PartnerRole, WriteHole};
use restripe_array::{CacheLimits, Limits, Nanos};
use restripe_tier::DestageOrder;
use restripe_tier::overlay::format::slot::HALF_SECTORS;
use restripe_tier::{Destage, Redirect, Sleep, SurrogateLimits};

/// The stream that is drawn from whether a log of clusters has three parities or more.
const PARITIES: u64 = 0x9a7;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    pub(super) home: Spec,
    pub(super) log: Spec,
    /// The log's buffer.
    pub(super) buffer: Option<Spec>,
    pub(super) redirect: Redirect,
    /// Users are moved out of scrubs' way, too.
    pub(super) scrubs: bool,
    pub(super) lives: u64,
    pub(super) requests: u64,
    /// So many times fewer incidents.
    pub(super) calm: u64,
    pub(super) depth: usize,
    pub(super) latency: Nanos,
    pub(super) jitter: Nanos,
    /// Bytes a second of a member: how long a rebuild lasts.
    pub(super) rate: u64,
    /// Bytes a second of a member that tasks take at most.
    pub(super) pace: u64,
    pub(super) extents: u32,
    pub(super) copies: u32,
    /// Home takes spares as members.
    pub(super) grows: bool,
    pub(super) destage: Destage,
    pub(super) cluster_records: u32,
    pub(super) records_in_memory: u32,
    pub(super) cached: Option<CacheLimits>,
}

const LEVELS: [(Level, u16); 6] = [
    (Level::Raid1, 2),
    (Level::Raid4, 3),
    (Level::Raid5(Rotation::LeftSymmetric), 3),
    (Level::Raid5(Rotation::LeftSymmetric), 4),
    (Level::Raid6(Rotation::LeftSymmetric), 4),
    (Level::Raid10 { copies: 2 }, 4),
];

/// The stream that a code cache's chunk is drawn from.
const CHUNKS: u64 = 0x2034;
/// The stream that is drawn from whether a log is cleaned.
const CLEANED: u64 = 0xc1ea;
/// The stream that is drawn from whether much of a log is written again before anything goes home.
const REWRITTEN: u64 = 0x3e32;
/// The stream that a code cache's buffer is drawn from.
const BUFFERED: u64 = 0xb0f;
/// The stream that the read cache is drawn from.
const CACHED: u64 = 0xcac4e;

impl Plan {
    pub(super) fn draw(rng: &mut Rng, options: Options) -> Plan {
        let cached = cached(&mut rng.clone().fork(CACHED));
        let grows = options.grows;
        let mut home = spec(rng);
        home.spares = u16::from(rng.chance(3, 4));
        if grows {
            (home.level, home.slots) = (Level::Raid4, *rng.pick(&[2, 3, 4]));
            home.spares += rng.between(1, 3) as u16;
        }
        let mut log = spec(rng);
        log.identity = 0x1000;
        log.chunks = *rng.pick(&[24, 48]);
        let partner = |role, array| Some(Partner::new(role, array));
        home.partner = partner(PartnerRole::Main, log.uuid());
        log.partner = partner(PartnerRole::Surrogate, home.uuid());
        let plan = Plan {
            home,
            log,
            buffer: None,
            redirect: *rng.pick(&[
                Redirect::Ido,
                Redirect::Ido,
                Redirect::WorkOut,
                Redirect::Vdf,
                Redirect::None,
            ]),
            scrubs: rng.chance(1, 2),
            lives: rng.between(1, 4),
            requests: rng.between(20, 160),
            calm: 1,
            depth: *rng.pick(&[1, 2, 4, 12]),
            latency: Nanos(*rng.pick(&[1_000, 100_000, 5_000_000])),
            jitter: Nanos(*rng.pick(&[1, 200_000, 20_000_000])),
            rate: *rng.pick(&[1 << 20, 16 << 20, 1 << 30]),
            pace: *rng.pick(&[64 << 10, 256 << 10, 1 << 20, 16 << 20, u64::MAX]),
            extents: *rng.pick(&[1, 40, 4096]),
            copies: rng.between(1, 3) as u32,
            grows,
            destage: Destage::default(),
            cluster_records: 1,
            records_in_memory: 0,
            cached,
        };
        match options {
            Options { gathers: true, .. } => plan.gathering(rng),
            Options { graid: true, .. } => plan.ahead(rng),
            Options { eraid: true, .. } => plan.alone(rng),
            _ => plan,
        }
    }

    /// Mirrors.
    fn mirrored(&mut self, rng: &mut Rng) {
        let copies = *rng.pick(&[2, 2, 3]);
        self.home.level = Level::Raid10 { copies };
        self.home.slots = u16::from(copies) * rng.between(2, 3) as u16;
        self.home.write_hole = WriteHole::default_for(self.home.level);
    }

    /// Mirrors, and no log.
    fn alone(self, rng: &mut Rng) -> Plan {
        let mut plan = self.ahead(rng);
        plan.home.partner = None;
        plan.redirect = Redirect::Eraid;
        plan
    }

    /// Mirrors, and a log on a disk of its own.
    fn ahead(mut self, rng: &mut Rng) -> Plan {
        self.mirrored(rng);
        (self.log.level, self.log.slots) = (Level::Raid0, 1);
        self.log.write_hole = WriteHole::None;
        self.log.chunks = *rng.pick(&[64, 128]);
        self.redirect = Redirect::Graid;
        self.extents = *rng.pick(&[40, 4096]);
        self.destage = destage(rng);
        self
    }

    /// Mirrors, and a log that is written by whole rows.
    fn gathering(mut self, rng: &mut Rng) -> Plan {
        self.mirrored(rng);
        let log = &mut self.log;
        (log.level, log.slots) = *rng.pick(&[
            (Level::Raid5(Rotation::LeftSymmetric), 3),
            (Level::Raid5(Rotation::LeftSymmetric), 4),
            (Level::Raid6(Rotation::LeftSymmetric), 4),
            (Level::Raid6(Rotation::LeftSymmetric), 5),
        ]);
        log.write_hole = WriteHole::WholeRows;
        // A row is no longer than a record.
        log.chunk_sectors = *rng.clone().fork(CHUNKS).pick(&[8, 8, 16, 32]);
        log.chunks = *rng.pick(&[64, 128]) * 8 / u64::from(log.chunk_sectors);
        // Drawn from a stream of its own.
        let mut own = rng.clone().fork(PARITIES);
        if own.chance(1, 4) {
            let (parities, slots) = *own.pick(&[(3, 4), (3, 5), (3, 6), (4, 6), (5, 7)]);
            (log.level, log.slots) = (Level::ReedSolomon { parities }, slots);
            log.chunks = 128 * 8 / u64::from(log.chunk_sectors);
        }
        self.redirect = Redirect::Reraid;
        self.destage = destage(rng);
        self.destage.clean = rng.clone().fork(CLEANED).chance(1, 2);
        self.cluster_records = rng.between(1, 4) as u32;
        self.records_in_memory = self.cluster_records + rng.below(6) as u32;
        // Drawn from a stream of its own.
        let mut own = rng.clone().fork(REWRITTEN);
        if own.chance(1, 6) {
            // Users who write much of the little there is, and again.
            self.suit_cleaning();
            (self.requests, self.calm) = (own.between(200, 500), 16);
        }
        self.buffer = self.buffered(rng.clone().fork(BUFFERED));
        self.log.buffered = self.buffer.is_some();
        self
    }

    /// A third of code caches have a buffer, of one member or two. Drawn from a stream of its own.
    fn buffered(&self, mut rng: Rng) -> Option<Spec> {
        if !rng.chance(1, 3) {
            return None;
        }
        let (level, slots) = *rng.pick(&[(Level::Raid0, 1), (Level::Raid1, 2)]);
        let records = u64::from(self.cluster_records) + rng.below(8);
        let chunk_sectors = *rng.pick(&[8, 128]);
        Some(Spec {
            payload: Payload::Bytes,
            identity: 0x2000,
            chunk_sectors,
            chunks: records * 2 * HALF_SECTORS / u64::from(chunk_sectors),
            volatile: rng.chance(3, 4),
            init: *rng.pick(&[Init::Written, Init::Zero]),
            write_hole: match rng.chance(1, 2) {
                true => WriteHole::None,
                false => WriteHole::default_for(level),
            },
            member_sectors: records * 2 * HALF_SECTORS + 2048,
            partner: Some(Partner::new(PartnerRole::Buffer, self.home.uuid())),
            ..Spec::small(level, slots)
        })
    }

    pub(super) fn limits(&self) -> (Limits, SurrogateLimits) {
        let shared = pool(512, 160);
        let surrogate = SurrogateLimits {
            pool: shared,
            requests: 12,
            slices: 8,
            ios: 64,
            extents: self.extents,
            extent_sectors: 0,
            copies: self.copies,
            cluster_records: self.cluster_records,
            records_in_memory: self.records_in_memory,
            buffer_pool: self.buffer.as_ref().map_or(pool(0, 0), |_| pool(256, 32)),
            parts_home: self.records_in_memory / 2,
        };
        let limits = Limits {
            pool: shared,
            requests: 16,
            slices: 12,
            ios: 64,
            ..Limits::default()
        };
        let limits = limits.with_cache(self.cached);
        (limits.with_pool(Some(surrogate.whole_pool())), surrogate)
    }
}

fn destage(rng: &mut Rng) -> Destage {
    let millis = |rng: &mut Rng, times: &[u64]| Nanos::from_millis(*rng.pick(times));
    Destage {
        idle: rng.chance(1, 2).then(|| millis(rng, &[1, 100, 3000])),
        every: rng.chance(1, 4).then(|| millis(rng, &[10, 1000])),
        seal: millis(rng, &[1, 50, 5000]),
        order: *rng.pick(&DestageOrder::ALL),
        sleep: rng.chance(3, 4).then(|| Sleep {
            after: millis(rng, &[1, 100]),
            starts_a_day: *rng.pick(&[1000, 1 << 30]),
        }),
        clean: false,
    }
}

fn spec(rng: &mut Rng) -> Spec {
    let (level, slots) = *rng.pick(&LEVELS);
    Spec {
        payload: Payload::Bytes,
        chunks: 12,
        volatile: rng.chance(3, 4),
        member_sectors: 4096,
        init: *rng.pick(&[Init::Written, Init::Zero]),
        ..Spec::small(level, slots)
    }
}
