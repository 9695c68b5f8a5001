//! The common part of runs that start an array several times: the random source, the users, the oracle and
//! the clock. Each life of a run starts the engine on the disks of the life before.

use crate::disk::Disk;
use crate::invariant::{Invariant, Violation};
use crate::oracle::Oracle;
use crate::payload::Payload;
use crate::rng::{Rng, mix};
use crate::session::{PATIENCE, Session};
use crate::tally::Tally;
use crate::workload::Workload;
use crate::world::{World, WorldConfig};
use restripe_array::layout::{Geometry, Layout};
use restripe_array::{Bug, CommandError, CommandTag, Nanos, Row};
use restripe_tier::{Config, Engine};

/// How a life ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Crash,
    Stop,
    /// An invariant is broken: nothing after that means anything.
    Broken,
    /// The start is refused for good. The run continues without the surrogate that is present.
    Forgo,
    /// The members that are left hold data that was replaced long ago; or a buffer is lost, with the last flushed writes.
    Beyond,
    /// The start is refused without its buffer, or with an old copy of it. The next life has the right one.
    Without,
}

/// The state that every run has, in its lives and between them.
pub(crate) struct Base {
    pub rng: Rng,
    pub layout: Layout,
    pub workload: Workload,
    pub now: Nanos,
    pub deaths: Deaths,
    /// `None` during a life: the session has it.
    pub oracle: Option<Oracle>,
    /// Events by name.
    pub counts: Tally<&'static str>,
    pub violations: Vec<Violation>,
    /// A digest of all actions of all lives.
    pub digest: u64,
    trace: bool,
}

impl Base {
    /// `rng` has drawn the plan of the array. `block`: requests are multiples of this many sectors.
    pub fn new(
        seed: u64,
        mut rng: Rng,
        layout: Layout,
        payload: Payload,
        block: u64,
        bug: Option<Bug>,
        trace: bool,
    ) -> Base {
        Base {
            workload: Workload::over(&layout, rng.fork(1), block),
            oracle: Some(Oracle::new(payload, layout.size_sectors())),
            rng,
            layout,
            now: Nanos::ZERO,
            deaths: Deaths::new(seed, bug),
            counts: Tally::new(),
            violations: Vec::new(),
            digest: 0,
            trace,
        }
    }

    pub fn say(&self, what: impl FnOnce() -> String) {
        if self.trace {
            eprintln!("{}", what());
        }
    }

    pub fn count(&mut self, what: &'static str, times: u64) {
        *self.counts.entry(what).or_default() += times;
    }

    /// Starts an engine on these disks. `config.members` is filled in. A computation takes one of these delays at most.
    pub(crate) fn begin_session(
        &mut self,
        disks: Vec<Disk>,
        config: Config,
        mut world: WorldConfig,
        delays: &[u64],
    ) -> Session<Engine> {
        world.seed = self.rng.word();
        world.compute_delay = Nanos(*self.rng.pick(delays));
        world.trace = self.trace;
        let oracle = self.oracle.take();
        let oracle = oracle.expect("the oracle is here between lives");
        begin_session(disks, config, world, self.now, oracle)
    }

    /// Most requests go to this row from now on.
    pub(crate) fn aim_at_row(&mut self, row: Row) {
        let (first, sectors) = (self.layout.lba(row, 0, 0), self.layout.row_sectors());
        self.workload.aim(first, sectors);
    }

    /// Takes over the capacity of an array that may have grown. Returns whether it has.
    pub fn take_capacity(&mut self, session: &mut Session<Engine>) -> bool {
        let status = session.world.status();
        let size = status.size_bytes / 512;
        if size <= self.layout.size_sectors() {
            return false;
        }
        let geometry = status.geometry.expect("it serves");
        let layout = Layout::new(geometry).expect("it serves by that");
        // The next growth may have begun.
        self.layout = match (layout.size_sectors() > size, geometry.grown) {
            (true, Some(_)) => layout.growing(),
            (true, None) => before_reshape(geometry, size),
            (false, _) => layout,
        };
        session.oracle.grow(size);
        self.workload.grow(size);
        true
    }

    /// Reads the whole array. False when something is broken.
    pub fn read_all(&self, session: &mut Session<Engine>) -> bool {
        session.read_all(self.layout.chunk_sectors() * 3, PATIENCE)
    }

    /// Adds the digest and the violations of a life. False when something is broken.
    pub fn settle(&mut self, session: &Session<Engine>) -> bool {
        self.digest = mix(self.digest ^ session.world.digest());
        self.violations.extend(session.violations().cloned());
        self.violations.is_empty()
    }
}

/// The layout that an array has while a reshape to this geometry has just begun.
fn before_reshape(geometry: Geometry, size: u64) -> Layout {
    let of = |slots| Layout::new(Geometry { slots, ..geometry }).ok();
    let mut fewer = (1..geometry.slots).rev().filter_map(of);
    let before = fewer.find(|layout| layout.size_sectors() == size);
    before.expect("it had fewer members")
}

/// Starts an engine on these disks. `config.members` is filled in.
pub(crate) fn begin_session(
    disks: Vec<Disk>,
    mut config: Config,
    world: WorldConfig,
    now: Nanos,
    oracle: Oracle,
) -> Session<Engine> {
    config.members = disks.iter().map(Disk::info).collect();
    let engine = Engine::new(config);
    Session::new(World::at(world, now, engine, disks), oracle)
}

/// What tells the stream of deaths from others.
const DEATHS: u64 = 0xdead_dae0;
/// Counted: lives that did no more than flush what a dead daemon had written.
pub const DEATHS_ALONE: &str = "flushes alone after a death";

/// Whether lives with this planted bug have deaths. The seeds that find the other bugs do so without deaths.
pub(crate) fn happen(bug: Option<Bug>) -> bool {
    bug.is_none_or(|bug| bug == Bug::StartUnflushed)
}

/// Crashes of the daemon alone: members keep their volatile caches, and a power cut may follow later.
///
/// Some crashes of a run become such a crash. Operations in flight are done or not. The next start finds all
/// acknowledged writes, none of which is durable yet. Often it only reads, flushes and ends, and then a power
/// cut drops all data that is not durable. The draws are from a stream of their own, so that a seed keeps its
/// meaning except for these crashes.
pub(crate) struct Deaths {
    rng: Rng,
    happen: bool,
    /// The daemon of the life before died.
    just_died: bool,
    /// Nothing survives the next cut that is not durable.
    swept: bool,
}

impl Deaths {
    /// Deaths of a seed, if they are to happen at all with this planted bug.
    pub fn new(seed: u64, bug: Option<Bug>) -> Deaths {
        Deaths {
            rng: Rng::new(seed ^ DEATHS),
            happen: happen(bug),
            just_died: false,
            swept: false,
        }
    }

    /// Whether this crash is the death of the daemon alone.
    pub fn is_death(&mut self) -> bool {
        self.just_died = self.happen && self.rng.chance(1, 4);
        self.just_died
    }

    /// Whether the life that begins does no more than flush.
    pub fn hushes(&mut self) -> bool {
        std::mem::take(&mut self.just_died) && self.rng.chance(1, 3)
    }

    /// Whether the cut that ends a life takes all that is not durable.
    pub fn sweeps(&mut self) -> bool {
        std::mem::take(&mut self.swept)
    }

    /// A life that only flushes has begun: nothing that it does not make durable survives the cut at its end. Whether it
    /// ends by a stop.
    pub fn begin_flush(&mut self) -> bool {
        self.swept = true;
        self.rng.chance(1, 2)
    }

    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }
}

/// One life of a run.
pub(crate) trait HasSession {
    fn session(&mut self) -> &mut Session<Engine>;

    /// Ends the life for a violation.
    fn broken(&mut self, invariant: Invariant, detail: impl Into<String>) -> End {
        self.session().violation(invariant, detail);
        End::Broken
    }
}

/// What every run does in a life.
pub(crate) trait Course {
    type Life: HasSession;

    fn base(&mut self) -> &mut Base;

    /// Handles the notices that are due. Returns the answer to the command `tag` if it is among them.
    fn hear(
        &mut self,
        life: &mut Self::Life,
        tag: Option<CommandTag>,
    ) -> Option<Result<(), CommandError>>;

    /// One step. An end, when one has come.
    fn step(&mut self, life: &mut Self::Life) -> Option<End>;

    /// Stops the array in order.
    fn stop(&mut self, life: &mut Self::Life) -> End;

    /// Steps until a command is answered, or the life ends.
    fn answer(
        &mut self,
        life: &mut Self::Life,
        tag: CommandTag,
    ) -> Result<Result<(), CommandError>, End> {
        loop {
            if let Some(answer) = self.hear(life, Some(tag)) {
                return Ok(answer);
            }
            if let Some(end) = self.step(life) {
                return Err(end);
            }
        }
    }

    /// Reads what the dead daemon left, flushes it, and ends: by a stop, which is a flush as well, or by a crash.
    fn flush_alone(&mut self, life: &mut Self::Life) -> End {
        let stops = self.base().deaths.begin_flush();
        self.base().count(DEATHS_ALONE, 1);
        if !self.base().read_all(life.session()) {
            return End::Broken;
        }
        if stops {
            return self.stop(life);
        }
        life.session().flush();
        match life.session().settle(PATIENCE) {
            true => End::Crash,
            false => End::Broken,
        }
    }
}
