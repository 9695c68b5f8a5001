//! Crash images at every write: a small array serves a few requests, and power is cut at every step of the
//! world.
//!
//! At each cut, the writes whose fate is open make images: every subset of up to ten of them, else a sample,
//! each with some of the writes torn. All members are present, or as many are missing as the level
//! tolerates. The real engine assembles each image, and everything is read back under the oracle. Images are
//! identified by their contents: the same contents are never assembled twice.
//!
//! - An array and its surrogate ([`enumerate_pair`]) go through a whole loss: before it, while clients are
//!   redirected, and until the destage is complete. More writes are open at once and there are more steps,
//!   so fewer cuts are made at each step.
//! - Half of the code caches have a buffer in persistent memory, whose writes are cut and torn like all
//!   others. Some images lack the whole buffer: then flushed data is still present, or the start demands the
//!   buffer.
//! - At some steps only the daemon dies, and the members' caches survive ([`deaths`]). Another daemon starts
//!   over them, and power is cut during this start, after a flush, or after a stop.
//! - Arrays with spare partitions ([`enumerate_hosts`]) go from the loss of a member to the end of the
//!   copy-back. Tasks that a start continues run to their end, and everything is read again. The same holds
//!   for arrays that grow ([`enumerate_growth`]).

mod deaths;
mod growth;
mod hosts;

pub use growth::{enumerate_growth, enumerate_reshape};
pub use hosts::enumerate_hosts;

use crate::array::{Spec, earlier, pool};
use crate::atlas::Atlas;
use crate::crash::{Cut, Site};
use crate::disk::{Disk, Simple};
use crate::image::Image;
use crate::invariant::{Invariant, Violation};
use crate::oracle::{Oracle, WriteKind};
use crate::payload::Payload;
use crate::rng::{Rng, mix};
use crate::run::begin_session;
use crate::session::{News, PATIENCE, Session};
use crate::surrogate::{Moment, Phase};
use crate::swarm::{Hosting, Scene};
use crate::tally::{Tally, add};
use crate::workload::{Ask, Workload};
use crate::world::WorldConfig;
use restripe_array::layout::scaled::History;
use restripe_array::layout::{Layout, Level, Rotation};
use restripe_array::meta::{Init, Partner, PartnerRole, RegionKind, WriteHole};
use restripe_array::{Command, CommandError, Limits, Member, Nanos, StartMode, Uuid};
use restripe_tier::DestageOrder;
use restripe_tier::overlay::format::slot::HALF_SECTORS;
use restripe_tier::{Config, Destage, Engine, Redirect, Sleep, SurrogateConfig, SurrogateLimits};
use std::collections::BTreeSet;

/// All subsets of so many open writes; more are sampled.
const ALL_SUBSETS: usize = 10;
/// Cuts sampled at a step with more open writes than that.
const SAMPLES: u64 = 48;
/// So with a surrogate.
const ALL_SUBSETS_OF_PAIR: usize = 2;
const SAMPLES_OF_PAIR: u64 = 3;
/// What tells the seeds of grown arrays from those of others.
const GROWN: u64 = 0x6707_0000;
/// And those of code caches from those of other surrogates.
const GATHERS: u64 = 0x6a74_0000;
/// The stream that is drawn from whether the log of a code cache has three parities or more.
const PARITIES: u64 = 0x9a7;
/// And the one of a code cache's buffer.
const BUFFERED: u64 = 0xb0f;
/// Steps after which what lies in a code cache is asked home again.
const ASKS: u64 = 400;
/// Extents of a map that runs full.
const SMALL_MAP: u32 = 8;
/// Sectors that are written again and again.
const HOT: u64 = 16;
/// Requests that fill a map, or a log.
const FILLING: u64 = 60;
/// Steps of a life with a surrogate at most.
const STEPS_OF_PAIR: u64 = 20_000;

/// What came of one seed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Different images, each assembled and read.
    pub images: u64,
    /// What they are told apart by: contents and promises.
    pub hashes: Vec<u64>,
    /// Moments at which power was cut.
    pub moments: u64,
    /// Moments at which the daemon alone died.
    pub deaths: u64,
    /// Cuts that gave an image met before.
    pub repeats: u64,
    /// Images with members away.
    pub reduced: u64,
    /// With a surrogate: images by where users' data were.
    pub phases: Tally<Phase>,
    /// With a code cache: images by what it was at.
    pub at: Tally<Moment>,
    /// So many of them with records that a buffer had and the log did not.
    pub buffered: u64,
    /// And starts that were refused without the buffer.
    pub unbuffered: u64,
    /// With spare partitions: images by how they were in use.
    pub hosting: Tally<Hosting>,
    /// The first breach, with the number of the image that showed it.
    pub violation: Option<(u64, Violation)>,
}

impl Report {
    /// Adds the counts of another seed, without its hashes and its violation.
    pub fn add(&mut self, other: &Report) {
        self.images += other.images;
        self.moments += other.moments;
        self.deaths += other.deaths;
        self.repeats += other.repeats;
        self.reduced += other.reduced;
        self.buffered += other.buffered;
        self.unbuffered += other.unbuffered;
        add(&mut self.phases, &other.phases);
        add(&mut self.at, &other.at);
        add(&mut self.hosting, &other.hosting);
    }
}

/// How far a seed goes.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// Stop after so many images.
    pub images: u64,
    /// Cut power at one moment in so many.
    pub stride: u64,
    /// Say what happens in the start of this image.
    pub trace: Option<u64>,
    /// The bug that the engine is to have.
    pub bug: Option<restripe_array::Bug>,
}

impl Reach {
    pub fn images(images: u64) -> Reach {
        Reach {
            images,
            stride: 1,
            trace: None,
            bug: None,
        }
    }
}

/// Runs one seed.
pub type Enumerate = fn(u64, Reach) -> Report;

/// The kinds of arrays, by the option of the program that runs their seeds.
pub const KINDS: [(&str, Enumerate); 7] = [
    ("", enumerate),
    (" --pair", enumerate_pair),
    (" --gathers", enumerate_gathering),
    (" --hosts", enumerate_hosts),
    (" --grown", enumerate_grown),
    (" --growth", enumerate_growth),
    (" --reshape", enumerate_reshape),
];

/// Runs one seed.
pub fn enumerate(seed: u64, reach: Reach) -> Report {
    let mut rng = Rng::new(mix(seed));
    let spec = spec(&mut rng);
    Enumeration::new(rng, reach, spec, None).run()
}

/// Runs one seed of an array that has grown.
pub fn enumerate_grown(seed: u64, reach: Reach) -> Report {
    let mut rng = Rng::new(mix(seed ^ GROWN));
    let spec = grown_spec(&mut rng);
    Enumeration::new(rng, reach, spec, None).run()
}

/// Runs one seed of an array with a surrogate.
pub fn enumerate_pair(seed: u64, reach: Reach) -> Report {
    let mut rng = Rng::new(mix(!seed));
    let (home, log) = pair_specs(&mut rng);
    let redirect = *rng.pick(&[Redirect::Ido, Redirect::WorkOut, Redirect::Vdf]);
    let surrogate = Surrogate {
        spec: log,
        buffer: None,
        redirect,
        destage: Destage::default(),
        gathered: [1, 0],
        extents: 4096,
        hot: false,
    };
    Enumeration::new(rng, reach, home, Some(surrogate)).run_pair()
}

/// Runs one seed of mirrors whose writes all go into a code cache, and that sleep meanwhile.
pub fn enumerate_gathering(seed: u64, reach: Reach) -> Report {
    let mut rng = Rng::new(mix(!seed ^ GATHERS));
    let (mut home, mut log) = pair_specs(&mut rng);
    let copies = 2;
    (home.level, home.slots) = (Level::Raid10 { copies }, 4);
    home.write_hole = WriteHole::default_for(home.level);
    let rotation = Rotation::default();
    let levels = [(Level::Raid5(rotation), 3), (Level::Raid6(rotation), 4)];
    (log.level, log.slots) = *rng.pick(&levels);
    // Drawn from a stream of its own.
    let mut own = rng.clone().fork(PARITIES);
    if own.chance(1, 3) {
        let (parities, slots) = *own.pick(&[(3, 4), (3, 5), (4, 6)]);
        (log.level, log.slots) = (Level::ReedSolomon { parities }, slots);
    }
    log.write_hole = WriteHole::WholeRows;
    (log.chunk_sectors, log.chunks) = (8, 48);
    let destage = Destage {
        every: rng.chance(1, 2).then(|| Nanos::from_millis(1)),
        seal: Nanos::from_millis(1),
        order: *rng.pick(&DestageOrder::ALL),
        sleep: Some(Sleep {
            after: Nanos(100_000),
            starts_a_day: 1 << 30,
        }),
        ..Destage::default()
    };
    let records = rng.between(1, 3) as u32;
    let buffer = buffer_spec(records, home.uuid(), rng.clone().fork(BUFFERED));
    log.buffered = buffer.is_some();
    let surrogate = Surrogate {
        spec: log,
        buffer,
        redirect: Redirect::Reraid,
        destage,
        gathered: [records, records + rng.below(3) as u32],
        extents: *rng.pick(&[SMALL_MAP, 4096]),
        hot: rng.chance(1, 3),
    };
    Enumeration::new(rng, reach, home, Some(surrogate)).run_pair()
}

/// Half of code caches have a buffer, of one member or two.
fn buffer_spec(records: u32, home: Uuid, mut rng: Rng) -> Option<Spec> {
    if !rng.chance(1, 2) {
        return None;
    }
    let (level, slots) = *rng.pick(&[(Level::Raid0, 1), (Level::Raid1, 2)]);
    let sectors = (u64::from(records) + rng.below(3)) * 2 * HALF_SECTORS;
    let chunk_sectors = *rng.pick(&[8, 128]);
    Some(Spec {
        payload: Payload::Bytes,
        identity: 0x2000,
        chunk_sectors,
        chunks: sectors / u64::from(chunk_sectors),
        volatile: rng.chance(1, 2),
        init: Init::Zero,
        write_hole: WriteHole::None,
        member_sectors: sectors + 2048,
        partner: Some(Partner::new(PartnerRole::Buffer, home)),
        ..Spec::small(level, slots)
    })
}

/// The second set.
struct Surrogate {
    spec: Spec,
    /// And the third.
    buffer: Option<Spec>,
    redirect: Redirect,
    destage: Destage,
    /// Records of a cluster, and in memory.
    gathered: [u32; 2],
    /// Of the map.
    extents: u32,
    /// The same few sectors are written again and again, durably: segments are written again without a way home.
    hot: bool,
}

impl Surrogate {
    fn gathers(&self) -> bool {
        self.redirect == Redirect::Reraid
    }

    /// Its members and its buffer's.
    fn members(&self) -> [usize; 2] {
        let buffer = self.buffer.as_ref().map_or(0, |buffer| buffer.slots);
        [self.spec.slots, buffer].map(usize::from)
    }
}

struct Enumeration {
    rng: Rng,
    /// Of the deaths of the daemon alone.
    deaths: Rng,
    reach: Reach,
    spec: Spec,
    surrogate: Option<Surrogate>,
    /// A member of the array has been lost.
    lost: bool,
    /// Where users' data are at this moment.
    phase: Phase,
    /// What its code cache is at.
    at: BTreeSet<Moment>,
    /// Its buffer has records that the log has not.
    buffered: bool,
    /// With spare partitions: what the array is at.
    scene: Option<Scene>,
    /// Slots of the row where most requests go.
    near: Vec<u16>,
    /// How much longer metadata take than data.
    far: Nanos,
    /// Where the set data begin.
    data_start: u64,
    layout: Layout,
    seen: BTreeSet<u64>,
    report: Report,
}

fn spec(rng: &mut Rng) -> Spec {
    let rotation = Rotation::default();
    let (level, slots) = *rng.pick(&[
        (Level::Raid1, 2),
        (Level::Raid4, 3),
        (Level::Raid5(rotation), 3),
        (Level::Raid5(rotation), 4),
        (Level::Raid6(rotation), 4),
        (Level::Raid6(rotation), 5),
        (Level::Raid10 { copies: 2 }, 4),
    ]);
    let parity = !matches!(level, Level::Raid1 | Level::Raid10 { .. });
    let ppl = parity && rng.chance(3, 4);
    Spec {
        chunk_sectors: 8,
        chunks: 6,
        write_hole: match ppl {
            true => WriteHole::Ppl,
            false => WriteHole::Bitmap,
        },
        init: *rng.pick(&[Init::Written, Init::Written, Init::Trust]),
        member_sectors: 1024,
        extent_rows: Some(2),
        intent_rows: Some(2),
        identity: 0,
        partner: None,
        ..Spec::small(level, slots)
    }
}

/// A RAID-4, or a RAID-0, which has no row that a crash can leave torn but its own.
fn grown_spec(rng: &mut Rng) -> Spec {
    let plain = spec(rng);
    let histories: [&[u16]; 5] = [&[1, 2], &[2, 3], &[1, 2, 3], &[1, 3], &[2, 4]];
    let grown =
        History::of(rng.pick::<&[u16]>(&histories)).expect("each count is larger than the last");
    let level = *rng.pick(&[Level::Raid4, Level::Raid4, Level::Raid4, Level::Raid0]);
    let slots = grown.slots() + level.parities();
    let write_hole = match level {
        Level::Raid0 => WriteHole::None,
        _ => plain.write_hole,
    };
    Spec {
        level,
        slots,
        grown: Some(grown),
        write_hole,
        ..plain
    }
}

/// An array with a spare, and a surrogate whose redundancy has no write hole.
fn pair_specs(rng: &mut Rng) -> (Spec, Spec) {
    let rotation = Rotation::default();
    let whole = |level, slots, chunks| Spec {
        payload: Payload::Bytes,
        chunks,
        member_sectors: 4096,
        init: Init::Zero,
        ..Spec::small(level, slots)
    };
    let (level, slots) = *rng.pick(&[
        (Level::Raid1, 2),
        (Level::Raid5(rotation), 3),
        (Level::Raid6(rotation), 4),
        (Level::Raid10 { copies: 2 }, 4),
    ]);
    let mut home = whole(level, slots, 6);
    home.spares = 1;
    let mut log = whole(Level::Raid1, 2, 24);
    log.identity = 0x1000;
    let partner = |role, array| Some(Partner::new(role, array));
    home.partner = partner(PartnerRole::Main, log.uuid());
    log.partner = partner(PartnerRole::Surrogate, home.uuid());
    (home, log)
}

impl Enumeration {
    fn new(rng: Rng, reach: Reach, spec: Spec, surrogate: Option<Surrogate>) -> Enumeration {
        let creation = spec.create().expect("small arrays fit");
        let layout = Layout::new(creation.geometry).expect("a created geometry is sound");
        let data = creation.superblock.region(RegionKind::Data);
        Enumeration {
            deaths: rng.clone().fork(deaths::DEATHS),
            rng,
            reach,
            spec,
            surrogate,
            lost: false,
            phase: Phase::AtHome,
            at: BTreeSet::new(),
            buffered: false,
            scene: None,
            near: Vec::new(),
            far: Nanos::ZERO,
            data_start: data.map_or(0, |region| region.start),
            layout,
            seen: BTreeSet::new(),
            report: Report::default(),
        }
    }

    fn run(mut self) -> Report {
        let dirt = (self.spec.init == Init::Written).then(|| self.rng.word());
        let images = self.spec.format(dirt).expect("small arrays fit");
        let Some((mut session, mut workload)) = self.begin(images) else {
            return self.report;
        };
        let requests = self.rng.between(4, 12);
        for _ in 0..requests {
            ask(&mut session, &mut workload);
            let more = self.rng.chance(1, 2);
            while !more && session.outstanding() > 0 {
                session.step();
                self.cut_here(&session);
                if self.over() {
                    return self.report;
                }
            }
        }
        while session.outstanding() > 0 && session.step() && !self.over() {
            self.cut_here(&session);
        }
        self.report
    }

    /// Starts an array on new disks with these images, and its users. `None` if it does not start.
    fn begin(&mut self, images: Vec<Image>) -> Option<(Session<Engine>, Workload)> {
        let oracle = Oracle::new(self.spec.payload, self.layout.size_sectors());
        let mut session = self.session(images, oracle, false);
        if let Err(violation) = self.start(&mut session) {
            self.report.violation = Some((0, violation));
            return None;
        }
        let workload = Workload::over(&self.layout, self.rng.fork(1), 1);
        Some((session, workload))
    }

    fn end(mut self, session: &Session<Engine>) -> Report {
        if let Err(violation) = first(session) {
            let number = self.report.images;
            self.report.violation.get_or_insert((number, violation));
        }
        self.report
    }

    /// What lay on the disks before.
    fn earlier(&self) -> Option<u64> {
        earlier(self.rng.clone().word())
    }

    /// A life with a surrogate: users, a member lost, users while it is rebuilt, and until all is home.
    fn run_pair(mut self) -> Report {
        let mut images = self.spec.format(None).expect("small arrays fit");
        let log = self.surrogate.as_ref().expect("this is a pair");
        for spec in [Some(&log.spec), log.buffer.as_ref()].into_iter().flatten() {
            images.extend(spec.format(None).expect("small arrays fit"));
        }
        let Some((mut session, mut workload)) = self.begin(images) else {
            return self.report;
        };
        let (min, max) = (1 << 20, 1 << 20);
        session.command(Command::Rate { min, max });
        let before = self.rng.between(4, 12);
        let log = self.surrogate.as_ref().expect("this is a pair");
        let fills = log.hot || log.extents == SMALL_MAP;
        let filling = if fills { FILLING } else { 0 };
        if log.hot {
            workload.aim(0, self.layout.row_sectors().min(HOT));
            workload.insist();
        }
        let requests = before + self.rng.between(8, 24) + filling;
        let mut issued = 0;
        let first_cut = self.rng.below(self.reach.stride);
        let gathers = self.surrogate.as_ref().is_some_and(Surrogate::gathers);
        for step in 0..STEPS_OF_PAIR {
            if issued == before && !self.lost {
                self.lost = true;
                session.command(Command::Fail(Member(0)));
            }
            if session.outstanding() < 3 && issued < requests && session.world.ready() {
                issued += 1;
                session.issue(workload.draw());
            }
            let more = session.step();
            while session.news().is_some() {}
            self.watch(&session);
            if step % self.reach.stride == first_cut {
                self.cut_here(&session);
            }
            let done = issued == requests && session.outstanding() == 0;
            if done && gathers && step % ASKS == 0 && self.phase != Phase::AtHome {
                session.command(Command::Destage);
            }
            let rests = done && self.phase == Phase::AtHome;
            if self.over() || rests || done && !more && !gathers {
                break;
            }
        }
        if gathers && !self.over() {
            self.stop_gathering(&mut session);
        }
        self.end(&session)
    }

    /// What the array is at.
    fn watch(&mut self, session: &Session<Engine>) {
        let status = session.world.status();
        (self.phase, self.at) = (Phase::of(&status, true), Moment::of(&status));
        let surrogate = status.surrogate.as_ref();
        let buffer = surrogate.and_then(|one| one.buffer.as_ref());
        self.buffered = buffer.is_some_and(|buffer| buffer.records.unwrap_or(0) > 0);
    }

    /// It is told to stop while something is gathered.
    fn stop_gathering(&mut self, session: &mut Session<Engine>) {
        session.write(0, 3, WriteKind::Data, false, false);
        while session.outstanding() > 0 && session.step() {}
        session.refusals_expected = true;
        let stop = session.command(Command::Stop);
        for _ in 0..STEPS_OF_PAIR {
            self.watch(session);
            self.at.insert(Moment::Stopping);
            self.cut_here(session);
            let stopped = |news| matches!(news, News::CommandReply(tag, _) if tag == stop);
            let over = std::iter::from_fn(|| session.news()).any(stopped);
            if over || self.over() || !session.step() {
                return;
            }
        }
    }

    fn over(&self) -> bool {
        self.report.violation.is_some() || self.report.images >= self.reach.images
    }

    fn session(&mut self, images: Vec<Image>, oracle: Oracle, trace: bool) -> Session<Engine> {
        let device = || {
            let mut device = Simple::new(Nanos(1000), 1 << 30, Nanos(3000));
            device.far = (self.data_start, self.far);
            Box::new(device)
        };
        let seed = self.rng.word();
        let disk = |(i, image)| self.disk(i, image, device(), seed);
        let disks: Vec<Disk> = images.into_iter().enumerate().map(disk).collect();
        let others = self.surrogate.as_ref().map_or([0; 2], Surrogate::members);
        self.session_on(disks, others, oracle, trace)
    }

    /// The disk of this number, of the array, or behind its disks of the surrogate, or behind these of its buffer.
    fn disk(&self, index: usize, image: Image, device: Box<Simple>, seed: u64) -> Disk {
        let mut index = index as u16;
        let surrogate = self.surrogate.as_ref();
        let others = surrogate.map(|log| [Some(&log.spec), log.buffer.as_ref()]);
        let others = others.into_iter().flatten().flatten();
        for spec in std::iter::once(&self.spec).chain(others) {
            let disks = spec.slots + spec.spares;
            // Those that were taken into an array without a surrogate come behind the ones it was made of.
            if index < disks || surrogate.is_none() {
                return spec.disk(index, image, device, seed);
            }
            index -= disks;
        }
        unreachable!("no set has so many disks")
    }

    /// How many of so many disks the array itself has: all, without a surrogate.
    fn homes(&self, disks: usize) -> usize {
        match self.surrogate {
            Some(_) => disks.min(usize::from(self.spec.slots + self.spec.spares)),
            None => disks,
        }
    }

    /// Engines' bounds, and the surrogate's part of the configuration if so many members are its own and its buffer's.
    fn limits(&self, [members, buffer_members]: [usize; 2]) -> (Limits, Option<SurrogateConfig>) {
        let shared = pool(128, 32);
        let limits = Limits {
            pool: shared,
            requests: 16,
            slices: 8,
            ios: 256,
            ..Limits::default()
        };
        let Some(log) = &self.surrogate else {
            return (limits, None);
        };
        let surrogate = SurrogateConfig {
            buffer_members: buffer_members as u16,
            members: members as u16,
            limits: SurrogateLimits {
                pool: shared,
                requests: 12,
                slices: 8,
                ios: 64,
                extents: log.extents,
                extent_sectors: 0,
                copies: 2,
                cluster_records: log.gathered[0],
                records_in_memory: log.gathered[1],
                buffer_pool: log.buffer.as_ref().map_or(pool(0, 0), |_| pool(64, 16)),
                parts_home: log.gathered[1],
            },
            redirect: log.redirect,
            scrubs: false,
            destage: log.destage,
        };
        let limits = limits.with_pool(Some(surrogate.limits.whole_pool()));
        (limits, Some(surrogate))
    }

    /// The last disks are the surrogate's and its buffer's, as many as `others` says of each.
    fn session_on(
        &mut self,
        disks: Vec<Disk>,
        others: [usize; 2],
        oracle: Oracle,
        trace: bool,
    ) -> Session<Engine> {
        let (limits, surrogate) = self.limits(others);
        let config = Config {
            members: Vec::new(),
            limits,
            surrogate,
            io_timeout: Nanos::from_secs(1),
            bug: self.reach.bug,
        };
        let world = WorldConfig {
            seed: self.rng.word(),
            compute_delay: Nanos(100),
            strict: false,
            trace,
            ..WorldConfig::strict(self.spec.payload, limits)
        };
        begin_session(disks, config, world, Nanos::ZERO, oracle)
    }

    fn start(&mut self, session: &mut Session<Engine>) -> Result<(), Violation> {
        match self.start_or_ask(session)? {
            true => Ok(()),
            false => Err(refused(
                "for a buffer that is here, or that there never was",
            )),
        }
    }

    /// Starts it; false if it is refused without its buffer.
    fn start_or_ask(&mut self, session: &mut Session<Engine>) -> Result<bool, Violation> {
        let mut mode = StartMode::default();
        for _ in 0..3 {
            let answer = start(session, mode)?.map_err(|error| match error {
                CommandError::OfSurrogate(inner) | CommandError::OfBuffer(inner) => *inner,
                own => own,
            });
            match answer {
                Ok(()) => return Ok(true),
                Err(CommandError::BufferMissing) => return Ok(false),
                Err(CommandError::Minority { present, current }) if present * 2 <= current => {
                    mode.from_minority = true
                }
                Err(CommandError::WouldLose { .. }) if session.oracle.allows_losses() => {
                    mode.accept_loss = true
                }
                Err(error) => return Err(refused(format!("{mode:?}: {error:?}"))),
            }
        }
        Err(refused(format!("{mode:?}, over and over")))
    }

    /// Cuts power at this moment in as many ways as are worth it.
    fn cut_here(&mut self, session: &Session<Engine>) {
        let site = session.world.site();
        self.report.moments += 1;
        let open = site.open_count();
        if self.scene.is_some() {
            let data_alone = site.without_metadata(self.data_start);
            self.try_cut(&site, &data_alone, &session.oracle);
        }
        if self.surrogate.is_some() {
            self.try_cut(&site, &site.nothing(), &session.oracle);
        }
        let (all_subsets, samples) = match self.surrogate {
            Some(_) => (ALL_SUBSETS_OF_PAIR, SAMPLES_OF_PAIR),
            None if self.scene.is_some() => (hosts::ALL_SUBSETS, hosts::SAMPLES),
            None => (ALL_SUBSETS, SAMPLES),
        };
        if open <= all_subsets {
            for subset in 0..1 << open {
                self.try_cut(&site, &site.subset(subset), &session.oracle);
            }
        }
        let few = (open <= all_subsets).then_some(open as u64);
        for _ in 0..few.unwrap_or(samples) {
            let cut = site.sample(&mut self.rng);
            self.try_cut(&site, &cut, &session.oracle);
        }
        self.die_here(&site, &session.oracle);
    }

    /// Assembles what a cut leaves, once with all members and once without some.
    fn try_cut(&mut self, site: &Site, cut: &Cut, oracle: &Oracle) {
        let images = site.images(cut);
        let contents: Vec<u64> = images.iter().map(Image::digest).collect();
        let away = match self.near.is_empty() || self.rng.chance(1, 3) {
            true => self.rng.below(images.len() as u64 + 1) as usize,
            false => usize::from(*self.rng.pick(&self.near)),
        };
        self.try_image(&images, &contents, &[], oracle);
        let away = (away < images.len()).then_some(away);
        self.try_image(&images, &contents, away.as_slice(), oracle);
        let Some(log) = &self.surrogate else { return };
        let (homes, [logs, buffers]) = (self.homes(images.len()), log.members());
        let level = log.spec.level;
        if buffers > 0 {
            let buffer: Vec<usize> = (homes + logs..images.len()).collect();
            self.try_image(&images, &contents, &buffer, oracle);
        }
        if let Level::ReedSolomon { parities } = level {
            // As many of the log as it tolerates.
            let order = self.rng.order(logs).into_iter();
            let away = order.take(parities.into()).map(|index| homes + index);
            let mut away: Vec<usize> = away.collect();
            away.sort_unstable();
            self.try_image(&images, &contents, &away, oracle);
        }
    }

    /// Assembles the images without those of these numbers, which rise.
    fn try_image(&mut self, images: &[Image], contents: &[u64], away: &[usize], oracle: &Oracle) {
        if self.over() {
            return;
        }
        let set = away.iter().fold(0, |set, away| set | 1 << away);
        let key = contents
            .iter()
            .enumerate()
            .filter(|(i, _)| !away.contains(i))
            .fold(mix(set), |key, (_, one)| mix(key ^ one));
        // What may be read also depends on what was promised by now.
        let hash = mix(key ^ oracle.promises());
        if !self.seen.insert(hash) {
            self.report.repeats += 1;
            return;
        }
        self.report.hashes.push(hash);
        let number = self.report.images;
        self.report.images += 1;
        if self.surrogate.is_some() {
            *self.report.phases.entry(self.phase).or_default() += 1;
        }
        self.report.buffered += u64::from(self.buffered);
        for moment in &self.at {
            *self.report.at.entry(*moment).or_default() += 1;
        }
        for hosting in self.scene.iter().flat_map(Scene::hosting) {
            *self.report.hosting.entry(hosting).or_default() += 1;
        }
        let trace = self.reach.trace == Some(number);
        if let Err(violation) = self.assemble(images, away, oracle.clone(), trace) {
            self.report.violation = Some((number, violation));
        }
    }

    fn assemble(
        &mut self,
        images: &[Image],
        away: &[usize],
        mut oracle: Oracle,
        trace: bool,
    ) -> Result<(), Violation> {
        oracle.crash();
        let disk = |(i, image): (usize, &Image)| {
            let device = Box::new(Simple::new(Nanos(1000), 1 << 30, Nanos(3000)));
            self.disk(i, image.clone(), device, 1)
        };
        let mut disks: Vec<Disk> = images.iter().enumerate().map(disk).collect();
        let newest = generation(&disks[..self.homes(images.len())]);
        for away in away.iter().rev() {
            disks.remove(*away);
        }
        let homes = self.homes(images.len());
        let away_home = away.iter().filter(|away| **away < homes).count();
        let home = &disks[..homes - away_home];
        let others = self.others_without(away);
        let atlas = Atlas::of(home.iter())
            .ok_or_else(|| Violation::new(Invariant::StartRefused, "no superblock is left"))?;
        // Going on without the one that knows best would make two histories.
        if !atlas.whole(None) || generation(home) < newest {
            return Ok(());
        }
        self.report.reduced += u64::from(atlas.absent() > 0 || !away.is_empty());
        atlas.grant_losses(self.spec.write_hole, self.lost, &mut oracle);
        let mut session = self.session_on(disks, others, oracle, trace);
        if !self.started(&mut session, others)? {
            return Ok(());
        }
        session.read_all(self.layout.row_sectors(), PATIENCE);
        first(&session)?;
        match self.scene {
            Some(_) => self.end_tasks(&mut session),
            None => Ok(()),
        }
    }

    /// The surrogate's members and its buffer's that are left.
    fn others_without(&self, away: &[usize]) -> [usize; 2] {
        let Some(log) = &self.surrogate else {
            return [0; 2];
        };
        let homes = usize::from(self.spec.slots + self.spec.spares);
        let [logs, buffers] = log.members();
        let within = |from: usize, count: usize| {
            let set = from..from + count;
            count - away.iter().filter(|away| set.contains(away)).count()
        };
        [within(homes, logs), within(homes + logs, buffers)]
    }

    /// Starts it; false if it asks for a buffer that is away.
    fn started(
        &mut self,
        session: &mut Session<Engine>,
        [_, buffers]: [usize; 2],
    ) -> Result<bool, Violation> {
        let surrogate = self.surrogate.as_ref();
        let has_one = surrogate.is_some_and(|log| log.buffer.is_some());
        if !has_one || buffers > 0 {
            return self.start(session).map(|()| true);
        }
        let starts = self.start_or_ask(session)?;
        self.report.unbuffered += u64::from(!starts);
        Ok(starts)
    }
}

fn refused(why: impl Into<String>) -> Violation {
    Violation::new(Invariant::StartRefused, why)
}

/// That of the newest superblock.
fn generation(disks: &[Disk]) -> Option<u64> {
    Atlas::of(disks.iter()).map(|atlas| atlas.superblock().generation)
}

fn first(session: &Session<Engine>) -> Result<(), Violation> {
    match session.violations().next() {
        Some(violation) => Err(violation.clone()),
        None => Ok(()),
    }
}

/// One start; the answer, or what was broken meanwhile.
fn start(
    session: &mut Session<Engine>,
    mode: StartMode,
) -> Result<Result<(), CommandError>, Violation> {
    let tag = session.command(Command::Start(mode));
    loop {
        while let Some(news) = session.news() {
            match news {
                News::CommandReply(answered, result) if answered == tag => return Ok(result),
                _ => {}
            }
        }
        first(session)?;
        if !session.step() {
            let detail = "the start never ends";
            return Err(Violation::new(Invariant::StuckRequest, detail));
        }
    }
}

fn ask(session: &mut Session<Engine>, workload: &mut Workload) {
    match workload.draw() {
        Ask::Read { .. } | Ask::Flush => session.flush(),
        write => session.issue(write),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_differ_and_repeats_are_known() {
        let reach = Reach::images(300);
        let first = enumerate(1, reach);
        assert_eq!(first, enumerate(1, reach));
        assert!(first.images >= 100 && first.moments > 10, "{first:?}");
    }

    #[test]
    fn a_pair_is_cut_wherever_users_data_are() {
        let reach = Reach {
            stride: 5,
            ..Reach::images(400)
        };
        let first = enumerate_pair(1, reach);
        assert_eq!(first, enumerate_pair(1, reach));
        assert!(first.violation.is_none(), "{first:?}");
        assert!(first.phases.len() > 2, "{:?}", first.phases);
    }
}
