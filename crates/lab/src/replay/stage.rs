//! The simulated array that a trace is replayed on: drives by preset, the real engine, no payload.

use super::facts::{Energy, Labour};
use super::link::{Link, LinkPlan, linked};
use super::meter::{Meter, Model, metered};
use crate::drives::preset::{self, Preset};
use restripe_array::energy::Spent;
use restripe_array::layout::scaled::History;
use restripe_array::layout::{Layout, Level, Skew};
use restripe_array::meta::{Init, Partner, PartnerRole, WriteHole};
use restripe_array::{
    Buf, CacheLimits, Command, CommandError, CommandTag, HeatLimits, Limits, Member, MemberInfo,
    Moves, Nanos, Order, SECTOR_BYTES, ScrubMode, StartMode, Throttle,
};
use restripe_sim::array::Spec;
use restripe_sim::disk::flash::Flash;
use restripe_sim::disk::mechanical::Mechanical;
use restripe_sim::disk::queue::Policy;
use restripe_sim::disk::served::HardDisk;
use restripe_sim::disk::{Device, Disk};
use restripe_sim::image::Image;
use restripe_sim::payload::Payload;
use restripe_sim::world::{Happening, World, WorldConfig};
use restripe_tier::DestageOrder;
use restripe_tier::report::Status;
use restripe_tier::{Config, Destage, Engine, Redirect, Sleep, SurrogateConfig, SurrogateLimits};
use std::collections::BTreeMap;

/// Sectors of a member beyond its set data: superblocks, maps and the log, with room to spare.
const METADATA_SECTORS: u64 = 1 << 15;
/// One operation of a deep queue on a slow drive may take long; that is a result here and no reason to fail the drive.
const IO_TIMEOUT: Nanos = Nanos::from_secs(3600);
/// All requests share one buffer of this length: without payload nothing is ever in it.
pub const REQUEST_BYTES_MAX: u32 = 4 << 20;
const FLASH_DEPTH: u32 = 32;
/// What tells a surrogate from the array.
const SURROGATE_IDENTITY: u64 = 0x1000;

/// A set of drives of the array's kind to which users are moved while redundancy is restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SurrogatePlan {
    pub level: Level,
    pub members: u16,
    /// Bytes of set data on each member.
    pub member_bytes: u64,
    pub redirect: Redirect,
    /// While the array is scrubbed, too.
    pub scrubs: bool,
    /// What lies between the array and these drives; `None`: they are local.
    pub link: Option<LinkPlan>,
    /// Further copies at home sleep so long after they were needed (RERAID, GRAID).
    pub sleep: Option<Nanos>,
    /// It is a code cache, and its members lie behind those of the array's first copies, on their drives.
    pub code_cache: Option<CodeCachePlan>,
}

/// RERAID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CodeCachePlan {
    pub chunk_sectors: u32,
    /// Records in memory, of 64 KiB each.
    pub records_in_memory: u32,
    pub destage_order: DestageOrder,
    pub clean: bool,
    /// For what is on its way home, of 64 KiB each.
    pub destage_buffers: u32,
}

/// What array to build.
#[derive(Clone, Debug)]
pub struct ArrayPlan {
    pub level: Level,
    /// Sub-arrays over groups of the members (S2-RAID).
    pub skew: Option<Skew>,
    /// Made as if it had grown so (McPod).
    pub grown: Option<History>,
    /// On each member of a skewed array, room for so many partitions of others.
    pub spare_partitions: u16,
    pub members: u16,
    /// Further drives that are there from the start and take the place of one that fails.
    pub spares: u16,
    pub chunk_sectors: u32,
    /// Bytes of set data on each member.
    pub member_bytes: u64,
    pub write_hole: WriteHole,
    /// Rows of a bit of its maps; `None`: as [`restripe_array::meta::create`] has them.
    pub region_rows: Option<u64>,
    /// A name or a file that [`preset::of`] knows.
    pub drive: String,
    /// As `drive`, of what a failed member is rebuilt onto, if it is of another kind.
    pub spare_drive: Option<String>,
    pub schedule: Policy,
    pub write_cache: bool,
    /// Drives stop their spindles after so long without a command.
    pub standby_ns: Option<u64>,
    /// A read cache before the array.
    pub cache: Option<CacheLimits>,
    /// What paces a rebuild.
    pub throttle: Throttle,
    /// What is learned of reads.
    pub heat: HeatLimits,
    /// What is rebuilt next.
    pub order: Order,
    pub on_demand: bool,
    /// How it grows.
    pub moves: Moves,
    /// Bytes a second of one member.
    pub rebuild_min: u64,
    pub rebuild_max: u64,
    pub surrogate: Option<SurrogatePlan>,
}

impl ArrayPlan {
    /// A spare more, where a growth brings parity to a surrogate disk.
    pub(crate) fn spares_for_parity(&self) -> u16 {
        let outsources = self.moves == Moves::ParityOutsourced;
        u16::from(outsources && self.level == Level::Raid4)
    }

    /// The surrogate's drives, as an array of their own.
    fn of_surrogate(&self, surrogate: &SurrogatePlan) -> ArrayPlan {
        ArrayPlan {
            level: surrogate.level,
            skew: None,
            grown: None,
            spare_partitions: 0,
            members: surrogate.members,
            spares: 0,
            moves: Moves::default(),
            member_bytes: surrogate.member_bytes,
            write_hole: match surrogate.code_cache {
                Some(_) => WriteHole::WholeRows,
                None => WriteHole::default_for(surrogate.level),
            },
            chunk_sectors: match surrogate.code_cache {
                Some(cache) => cache.chunk_sectors,
                None => self.chunk_sectors,
            },
            region_rows: None,
            surrogate: None,
            ..self.clone()
        }
    }
}

pub struct Stage {
    pub world: World<Engine>,
    pub meters: Vec<Meter>,
    pub buffer: Buf,
    pub size_bytes: u64,
    plan: ArrayPlan,
    spec: Spec,
    /// Of what a failed member is rebuilt onto.
    spare: Preset,
    commands: u64,
}

impl Stage {
    /// Builds the array and starts it.
    pub fn new(plan: &ArrayPlan, seed: u64) -> Result<Stage, String> {
        let preset = preset::of(&plan.drive)?;
        let spare = preset::of(plan.spare_drive.as_ref().unwrap_or(&plan.drive))?;
        let (spec, surrogate) = specs(plan, &preset);
        let home_sectors = spec.member_sectors;
        let mut meters: Vec<Meter> = Vec::new();
        let mut disks = Vec::new();
        fits(&spare, &spec)?;
        for spec in [Some(&spec), surrogate.as_ref()].into_iter().flatten() {
            fits(&preset, spec)?;
            fits_beside(plan, &preset, spec, home_sectors)?;
            let images = spec.format(None).map_err(|error| error.to_string())?;
            let link = link_to(plan, spec);
            for (slot, image) in (0..).zip(images) {
                let member = meters.len() as u16;
                let preset = if slot < spec.slots { &preset } else { &spare };
                let (device, meter) = match host_of(plan, spec, slot) {
                    Some(host) => beside(&meters[host], home_sectors),
                    None => {
                        let (device, meter) = metered(model(plan, preset)?);
                        (linked(device, link.as_ref()), meter)
                    }
                };
                let spec = of_kind(spec, preset);
                disks.push(spec.disk(member, image, device, 1));
                meters.push(meter);
            }
        }
        let world = world(seed, disks, plan);
        let mut stage = Stage {
            world,
            meters,
            buffer: Buf(Buf::USER),
            size_bytes: 0,
            plan: plan.clone(),
            spec,
            spare,
            commands: 0,
        };
        stage.begin()?;
        Ok(stage)
    }

    fn begin(&mut self) -> Result<(), String> {
        self.buffer = self.world.memory().allocate(REQUEST_BYTES_MAX);
        self.order(Command::Start(StartMode::default()))?;
        self.order(Command::Throttle(self.plan.throttle))?;
        self.order(Command::Order(self.plan.order))?;
        self.order(Command::OnDemand(self.plan.on_demand))?;
        self.order(Command::Moves(self.plan.moves))?;
        self.order(Command::Rate {
            min: self.plan.rebuild_min,
            max: self.plan.rebuild_max,
        })?;
        self.size_bytes = self.world.status().size_bytes;
        Ok(())
    }

    /// Gives a command without waiting for its answer.
    pub fn command(&mut self, command: Command) -> CommandTag {
        self.commands += 1;
        let tag = CommandTag(self.commands);
        self.world.command(tag, command);
        tag
    }

    /// Gives a command before any request is made, and waits for its answer.
    fn order(&mut self, command: Command) -> Result<(), String> {
        let tag = self.command(command);
        loop {
            while let Some(happening) = self.world.happening() {
                if let Happening::CommandReply(answered, result) = happening
                    && answered == tag
                {
                    return result.map_err(|error| refused(&command, &error));
                }
            }
            if !self.world.step() {
                return Err(format!("{command:?} was never answered"));
            }
        }
    }

    /// A blank drive arrives and is added.
    pub fn add_spare(&mut self) -> Result<CommandTag, String> {
        let member = self.meters.len() as u16;
        let image = Image::new(Payload::None, self.spec.info(member).sectors);
        let (device, meter) = metered(model(&self.plan, &self.spare)?);
        self.meters.push(meter);
        let spec = of_kind(&self.spec, &self.spare);
        let disk = spec.disk(member, image, Box::new(device), 1);
        let member = self.world.arrive(disk);
        Ok(self.command(Command::Add(member)))
    }

    /// Reads every row, and compares.
    pub fn check(&mut self) -> CommandTag {
        self.command(Command::Scrub(ScrubMode::Check))
    }

    /// Takes the spares that are there as members.
    pub fn grow(&mut self) -> CommandTag {
        self.command(Command::Grow {
            by: self.plan.spares,
        })
    }

    /// The same, and every chunk moves to where a new array of so many members has it.
    pub fn reshape(&mut self) -> CommandTag {
        self.command(Command::Reshape {
            by: self.plan.spares,
        })
    }

    pub fn fail(&mut self, member: Member) -> CommandTag {
        self.command(Command::Fail(member))
    }

    /// Power goes, and comes back at once: the array starts on what its drives have kept.
    pub fn crash(&mut self) -> Result<(), String> {
        let members = self.world.members();
        let members = members.map(|member| self.world.disk(member).info());
        let (_, engine) = built(members.collect(), &self.plan);
        self.world.power_cycle(engine);
        self.begin()
    }

    /// A drive is gone.
    pub(crate) fn lose(&mut self, member: Member) {
        self.world.depart(member);
    }

    pub fn labour(&self) -> Vec<Labour> {
        self.meters.iter().map(Meter::labour).collect()
    }

    /// By drive, from this status of the array; empty where nobody can tell.
    pub fn energy(&self, status: &Status) -> Vec<Energy> {
        let now = self.world.now();
        let spent: BTreeMap<Member, Spent> = status
            .all_members()
            .map(|one| (one.member, one.spent.until(now)))
            .collect();
        let told = |(number, meter)| {
            let spent = spent.get(&Member(number)).copied();
            (meter, spent.unwrap_or_default())
        };
        let drives = self.meters.iter().filter(|meter| meter.counts());
        let energy = drives.map(|meter| {
            let spent = meter.spent((0..).zip(&self.meters).map(told));
            meter.energy(now, &spent)
        });
        energy.collect::<Option<Vec<_>>>().unwrap_or_default()
    }

    /// Keeps what drives draw from now on step by step.
    pub fn chart(&self, step_ns: u64) {
        let now = self.world.now();
        let drives = self.meters.iter().filter(|meter| meter.counts());
        drives.for_each(|meter| meter.chart(now, step_ns));
    }

    /// What all drives drew in each step, in microjoules; empty where nobody can tell.
    pub fn course_uj(&self) -> Vec<u64> {
        let now = self.world.now();
        let drives = self.meters.iter().filter(|meter| meter.counts());
        let courses: Option<Vec<_>> = drives.map(|meter| meter.course(now)).collect();
        let mut sum = Vec::new();
        for course in courses.unwrap_or_default() {
            sum.resize(course.len().max(sum.len()), 0);
            sum.iter_mut()
                .zip(course)
                .for_each(|(all, one)| *all += one);
        }
        sum
    }

    pub fn busy_ns(&self) -> Vec<u64> {
        self.meters.iter().map(Meter::busy_ns).collect()
    }
}

pub fn refused(command: &Command, error: &CommandError) -> String {
    format!("{command:?} was refused: {error:?}")
}

/// The array's set, and its surrogate's if it has one: each names the other.
fn specs(plan: &ArrayPlan, preset: &Preset) -> (Spec, Option<Spec>) {
    let of = |plan: &ArrayPlan| of_kind(&spec(plan), preset);
    let mut home = of(plan);
    let surrogate = plan.surrogate.as_ref().filter(|one| one.members > 0);
    let surrogate = surrogate.map(|surrogate| Spec {
        identity: SURROGATE_IDENTITY,
        ..of(&plan.of_surrogate(surrogate))
    });
    let partner = |role, other: &Spec| Some(Partner::new(role, other.uuid()));
    let surrogate = surrogate.map(|log| Spec {
        partner: partner(PartnerRole::Surrogate, &home),
        ..log
    });
    home.partner = surrogate
        .as_ref()
        .and_then(|log| partner(PartnerRole::Main, log));
    (home, surrogate)
}

/// Bytes that users of an array see.
pub fn size_bytes(plan: &ArrayPlan) -> Result<u64, String> {
    Ok(layout(plan)?.size_sectors() * SECTOR_BYTES)
}

/// Rows of each region of an array with this number of them.
pub(crate) fn rows_of_a_region(plan: &ArrayPlan, regions: u64) -> Result<u64, String> {
    Ok(layout(plan)?.rows().div_ceil(regions))
}

fn layout(plan: &ArrayPlan) -> Result<Layout, String> {
    let creation = spec(plan).create().map_err(|error| error.to_string())?;
    Layout::new(creation.geometry).map_err(|error| format!("{error:?}"))
}

fn spec(plan: &ArrayPlan) -> Spec {
    let chunk_bytes = u64::from(plan.chunk_sectors) * SECTOR_BYTES;
    let chunks = plan.member_bytes / chunk_bytes;
    let spare = u64::from(plan.spare_partitions) * partition_chunks(plan, chunks);
    Spec {
        skew: plan.skew,
        grown: plan.grown,
        spare_partitions: plan.spare_partitions,
        spares: plan.spares + plan.spares_for_parity(),
        chunk_sectors: plan.chunk_sectors,
        chunks,
        write_hole: plan.write_hole,
        intent_rows: plan.region_rows,
        // Parity fits the data from the start, and all of it counts as written: a rebuild does every row.
        init: Init::Trust,
        payload: Payload::None,
        // What a power cut would undo is not asked here, and keeping it would cost memory without end.
        volatile: false,
        member_sectors: (chunks + spare) * u64::from(plan.chunk_sectors) + METADATA_SECTORS,
        trim_zeroes: false,
        ..Spec::small(plan.level, plan.members)
    }
}

/// The array's set with a drive of this preset.
fn of_kind(spec: &Spec, preset: &Preset) -> Spec {
    Spec {
        depth: depth(preset),
        ..spec.clone()
    }
}

fn partition_chunks(plan: &ArrayPlan, chunks: u64) -> u64 {
    plan.skew
        .map_or(chunks, |skew| chunks / u64::from(skew.partitions.max(1)))
}

/// A mechanical drive chooses among all that wait ([`restripe_sim::disk::queue`]); flash serves many at a time.
fn depth(preset: &Preset) -> u32 {
    if preset.flash.is_some() {
        FLASH_DEPTH
    } else {
        1
    }
}

fn fits(preset: &Preset, spec: &Spec) -> Result<(), String> {
    let blocks = preset.make()?.blocks();
    if spec.chunks == 0 || spec.member_sectors > blocks {
        return Err(format!(
            "members of {} MiB on {}, which has space for {} MiB; the minimum is one chunk",
            (spec.chunks * u64::from(spec.chunk_sectors)) >> 11,
            preset.name,
            blocks.saturating_sub(METADATA_SECTORS) >> 11
        ));
    }
    Ok(())
}

/// Set data that a member has at most on a drive: a name or a file that [`preset::of`] knows.
pub fn member_bytes_max(drive: &str) -> Result<u64, String> {
    let blocks = preset::of(drive)?.make()?.blocks();
    Ok(blocks.saturating_sub(METADATA_SECTORS) * SECTOR_BYTES)
}

fn model(plan: &ArrayPlan, preset: &Preset) -> Result<Model, String> {
    if let Some(flash) = &preset.flash {
        return Ok(Model::Flash(Box::new(Flash::new(flash.drive()?)?)));
    }
    let mut drive = preset.drive()?;
    drive.cache.write_back = plan.write_cache;
    let mut power = preset.power()?;
    if let Some(power) = &mut power {
        power.timer_ns = plan.standby_ns;
    }
    let drive = Mechanical::new(drive)?;
    Ok(Model::Hard(Box::new(HardDisk::new(
        drive,
        plan.schedule,
        power,
    ))))
}

/// The array's member on whose drive a member of a code cache lies.
fn host_of(plan: &ArrayPlan, spec: &Spec, slot: u16) -> Option<usize> {
    plan.surrogate?.code_cache?;
    let copies = copies_of(plan.level);
    (spec.identity == SURROGATE_IDENTITY).then(|| usize::from(slot * copies))
}

/// How many copies of a chunk there are.
pub fn copies_of(level: Level) -> u16 {
    match level {
        Level::Raid10 { copies } => u16::from(copies),
        _ => 1,
    }
}

fn beside(host: &Meter, base: u64) -> (Box<dyn Device>, Meter) {
    let (device, meter) = host.beside(base);
    (Box::new(device), meter)
}

/// A member of a code cache has room behind the array's on one drive.
fn fits_beside(plan: &ArrayPlan, preset: &Preset, spec: &Spec, home: u64) -> Result<(), String> {
    let blocks = preset.make()?.blocks();
    let shares = host_of(plan, spec, 0).is_some();
    match shares && home + spec.member_sectors > blocks {
        true => Err(format!(
            "{} has no space for a code cache behind the array",
            preset.name
        )),
        false => Ok(()),
    }
}

/// The link that all drives of a set share, where there is one.
fn link_to(plan: &ArrayPlan, spec: &Spec) -> Option<Link> {
    let link = plan.surrogate?.link?;
    (spec.identity == SURROGATE_IDENTITY).then(|| Link::new(link))
}

fn world(seed: u64, disks: Vec<Disk>, plan: &ArrayPlan) -> World<Engine> {
    let (limits, engine) = built(disks.iter().map(Disk::info).collect(), plan);
    let config = WorldConfig {
        payload: Payload::None,
        limits,
        seed,
        compute_delay: Nanos(0),
        strict: false,
        record: false,
        trace: false,
    };
    World::new(config, engine, disks)
}

/// An engine for these members that knows nothing yet, and what it may have in flight.
fn built(members: Vec<MemberInfo>, plan: &ArrayPlan) -> (Limits, Engine) {
    let surrogate = plan.surrogate.as_ref().map(|surrogate| SurrogateConfig {
        buffer_members: 0,
        members: surrogate.members,
        limits: match surrogate.code_cache {
            Some(cache) => SurrogateLimits {
                records_in_memory: cache.records_in_memory,
                parts_home: cache.destage_buffers,
                ..SurrogateLimits::gathering()
            },
            None if surrogate.redirect.goes_ahead() => SurrogateLimits::ahead(),
            None => SurrogateLimits::default(),
        },
        redirect: surrogate.redirect,
        scrubs: surrogate.scrubs,
        destage: Destage {
            order: surrogate
                .code_cache
                .map_or(DestageOrder::default(), |one| one.destage_order),
            sleep: surrogate.sleep.map(|after| Sleep {
                after,
                ..Sleep::default()
            }),
            clean: surrogate.code_cache.is_some_and(|one| one.clean),
            ..Destage::default()
        },
    });
    let limits = Limits {
        heat: plan.heat,
        ..Limits::default()
            .with_cache(plan.cache)
            .with_pool(surrogate.as_ref().map(|one| one.limits.whole_pool()))
    };
    let whole = Limits {
        ios: limits.ios + surrogate.map_or(0, |one| one.limits.ios),
        ..limits
    };
    let engine = Engine::new(Config {
        members,
        limits,
        surrogate,
        io_timeout: IO_TIMEOUT,
        bug: None,
    });
    (whole, engine)
}
