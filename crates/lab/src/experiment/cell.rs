//! One point of a sweep with one seed: its settings, the text that stands for them, and its run.
//!
//! The text is canonical (every parameter by its path, in order), so a hash of it names the run in the cache.

use super::choices::{self, at};
pub use super::content::Contents;
use super::content::hash;
use super::form::{Form, Grown};
use super::parameters::{Grouped, Groups, Keys};
use super::requests::{Offered, requests};
use super::scenario::{Point, Value, settings};
use super::scheme::Scheme;
use crate::replay::facts::Log;
use crate::replay::link::LinkPlan;
use crate::replay::simulated::replay;
use crate::replay::stage::{
    ArrayPlan, CodeCachePlan, Stage, SurrogatePlan, copies_of, rows_of_a_region, size_bytes,
};
use crate::replay::{Deed, OUTSTANDING_MAX, Pace, Plan, Script, Until};
use crate::trace::replicate::Replicate;
use restripe_array::cache::Rule;
use restripe_array::layout::scaled::History;
use restripe_array::layout::{Geometry, Level, Skew};
use restripe_array::{CacheLimits, HeatLimits, Moves, Nanos, Order, SECTOR_BYTES, SMALL_BYTES};
use restripe_tier::DestageOrder;
use restripe_tier::Redirect;
use serde::Deserialize;
use std::fmt::Write;

/// Counts the changes of the code after which an older run no longer is what the same settings give.
pub const RESULTS_VERSION: u32 = 4;
const SECOND: u64 = 1_000_000_000;

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArraySettings {
    /// raid0, raid1, raid4, raid5, raid6, raid10.
    pub level: String,
    /// 0: `skew` tells.
    #[serde(default)]
    pub members: u16,
    /// Groups of the members, of a skewed array; 0: it is not skewed.
    #[serde(default)]
    pub groups: u16,
    /// Partitions of a member of a skewed array; 0: the most that rebuild in parallel.
    #[serde(default)]
    pub partitions: u16,
    /// On each member of a skewed array, room for so many partitions of others.
    #[serde(default)]
    pub spare_partitions: u16,
    /// All three by one name, and the members as well: see [`Form`].
    #[serde(default)]
    pub skew: Option<Form>,
    /// Members by how they came to be there, in place of `members`: see [`Grown`].
    #[serde(default)]
    pub grown: Option<Grown>,
    /// Copies of each chunk, of raid10.
    #[serde(default = "of::<2, _>")]
    pub copies: u8,
    pub chunk_kib: u32,
    pub member_mib: u64,
    /// none, bitmap, ppl or default.
    pub write_hole: String,
    /// Rows of a region, of which the intent map and the map of what is redirected have a bit
    /// each; 0: the default of an array.
    #[serde(default)]
    pub region_rows: u64,
    /// In its place, the number of regions, whatever the array's size: a small array then marks as often as a
    /// large one that has as many; 0: `region_rows` says.
    #[serde(default)]
    pub regions: u64,
    pub drive: String,
    /// Spares that are there from the start, and take the place of the failed member at once; 0: one that comes when the
    /// array has been degraded for a while, or is there from the start where members have room for partitions.
    #[serde(default)]
    pub spares: u16,
    /// What a failed member is rebuilt onto; empty: a drive of the members' kind.
    #[serde(default)]
    pub spare_drive: String,
    /// fcfs, look or sptf.
    pub schedule: String,
    pub write_cache: bool,
    /// Seconds without a command after which a spindle stops; 0: never.
    #[serde(default)]
    pub standby_s: u64,
    /// A read cache of so many MiB; 0: none.
    #[serde(default)]
    pub cache_mib: f64,
    /// lru, lfu, vdf-lru, vdf-lfu and what else `cache-sim` knows.
    #[serde(default = "best")]
    pub cache_policy: String,
    /// Further drives for a surrogate, of as many bytes each as the members; 0: none.
    #[serde(default)]
    pub surrogate: u16,
    #[serde(default = "mirrored")]
    pub surrogate_level: String,
    /// They are behind a network that carries so much each way, in 10^6 bytes a second; 0: they are local.
    #[serde(default)]
    pub surrogate_link_mb_s: f64,
    /// A round trip through that network.
    #[serde(default)]
    pub surrogate_round_trip_us: f64,
    /// A code cache (RERAID) of so many MiB on the drive of each first copy, of `surrogate_level`, in place of a surrogate, or a log
    /// disk with as much room for data (GRAID); 0: none.
    #[serde(default)]
    pub code_cache_mib: u64,
    /// Seconds after which further copies sleep beside it; below 0: never.
    #[serde(default = "own")]
    pub sleep_s: f64,
    /// Memory for records that are gathered or were written last.
    #[serde(default = "of::<4, _>")]
    pub code_cache_memory_mib: f64,
    /// Its chunk: what of a cluster lies side by side on one drive; 0: as `restripe create` has it.
    #[serde(default)]
    pub code_cache_chunk_kib: u32,
    /// It is cleaned when it runs short, as long as that pays, and mirrors sleep on; else it goes home always, as the paper has it.
    #[serde(default)]
    pub clean_log: bool,
    /// In which order its stripes go home, and the memory for what is on its way.
    #[serde(default = "least_correlation")]
    pub destage_order: String,
    #[serde(default = "of::<16, _>")]
    pub destage_memory_mib: f64,
}

/// A number that a setting has where it is left out.
fn of<const NUMBER: u8, T: From<u8>>() -> T {
    NUMBER.into()
}

fn least_correlation() -> String {
    DestageOrder::default().name().into()
}

/// Sectors of a code cache's chunk: of which a row is no longer than a record, the largest if it is 0.
fn code_cache_chunk(kib: u32, level: Level, members: u16) -> Result<u32, String> {
    let parities = 1 + u16::from(matches!(level, Level::Raid6(_)));
    let data = u32::from(members.saturating_sub(parities)).max(1);
    let most = 1 << (64 / data).max(4).ilog2();
    match kib {
        0 => Ok(most * 2),
        4.. if kib.is_power_of_two() && kib <= most => Ok(kib * 2),
        _ => Err(format!(
            "array.code_cache_chunk_kib is {kib}, not a power of two from 4 to {most}"
        )),
    }
}

fn mirrored() -> String {
    "raid1".into()
}

fn best() -> String {
    Rule::VdfLfu.name().into()
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSettings {
    /// A generator's preset, `sequential` or `random` blocks, `none`, or `trace:` and a path.
    pub source: String,
    /// Of `sequential` and `random` blocks.
    #[serde(default = "of::<4, _>")]
    pub block_kib: u64,
    /// Of the degraded array's capacity under this workload; 0: no requests; below 0: `rate`.
    pub load: f64,
    /// Requests a second, where `load` is below 0; 0: the source's own.
    #[serde(default)]
    pub rate: f64,
    /// Requests outstanding, whatever their times: closed loop; 0: open loop.
    #[serde(default)]
    pub depth: u32,
    /// Part of the array that the generator's devices cover.
    pub fill: f64,
    /// MiB that they cover in place of a part, so that arrays of unlike sizes meet the same requests; 0: a part.
    #[serde(default)]
    pub fill_mib: u64,
    /// Write ratio in place of the preset's; below 0: the preset's.
    #[serde(default = "own")]
    pub write_share: f64,
    /// What seeds change of a trace.
    #[serde(default)]
    pub(crate) replicate: Replicate,
}

fn own() -> f64 {
    -1.0
}

/// What restores redundancy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Restoring {
    /// A member fails, and a blank drive is filled in its place.
    #[default]
    Rebuild,
    /// Power is cut, and nothing tells which rows were being written. There is no phase `degraded`.
    Resync,
    /// Nothing is lost: all rows are read and compared. There is no phase `degraded`.
    Check,
    /// The array grows by its spares, by the least moves. There is no phase `degraded`.
    Growth,
    /// The same, and keeps the plain layout: every chunk moves, as in md's reshape.
    Reshape,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RebuildSettings {
    #[serde(default)]
    pub task: Restoring,
    /// restripe, md-2.6, md-6.1, md-2025, or with a goal, as p99:20ms or finish:2h.
    pub throttle: String,
    /// pr, pro, ido, sor or dor.
    #[serde(default = "by_address")]
    pub order: String,
    /// Which requests are moved to the surrogate: none, workout, vdf or ido.
    #[serde(default = "nowhere")]
    pub redirect: String,
    /// Both by one name, in place of `order` and `redirect`: see [`Scheme`].
    #[serde(default)]
    pub scheme: Option<String>,
    /// A further member that fails before the first, 0, is rebuilt; left out: none.
    #[serde(default)]
    pub second_member: Option<u16>,
    /// It fails when this share of the rows is rebuilt.
    #[serde(default)]
    pub second_failure_share: f64,
    /// Zones that are read before they are rebuilt are rebuilt next.
    #[serde(default)]
    pub on_demand: bool,
    /// Of a growth: best, or that less one technique; see [`Moves`].
    #[serde(default = "best_moves")]
    pub moves: String,
    /// A zone: array data that is hot or not as a whole.
    #[serde(default = "zone")]
    pub zone_mib: f64,
    /// Popularity is halved so often.
    #[serde(default = "epoch")]
    pub epoch_s: f64,
    pub min_mb_s: f64,
    pub max_mb_s: f64,
    /// Both are for each stream of a skewed array's rebuild, and not for all of them together.
    #[serde(default)]
    pub per_stream: bool,
}

impl RebuildSettings {
    /// The least and the most of all streams together, in bytes a second. In md, on which the papers run, each sub-array
    /// is an array with limits of its own.
    fn limits(&self, skew: Option<Skew>) -> [u64; 2] {
        let streams = match skew {
            Some(skew) if self.per_stream => f64::from(skew.partitions),
            _ => 1.0,
        };
        [self.min_mb_s, self.max_mb_s].map(|limit| (limit * streams * 1e6) as u64)
    }
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseSettings {
    pub warm_up_s: u64,
    pub before_s: u64,
    /// 0: nothing fails, and the run ends here.
    pub degraded_s: u64,
    /// The longest that a rebuild is waited for.
    pub rebuild_s: u64,
    pub after_s: u64,
    pub step_s: u64,
    /// The run goes on until so long after the rebuild began, and the metrics of `common` are of that time; 0: no such.
    #[serde(default)]
    pub common_s: u64,
}

/// How the capacity that a load is a part of is measured: closed loop on the degraded array, no rebuild.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapacitySettings {
    pub depth: u32,
    pub warm_up_s: u64,
    pub measure_s: u64,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub array: ArraySettings,
    pub workload: WorkloadSettings,
    pub rebuild: RebuildSettings,
    pub phases: PhaseSettings,
    pub capacity: CapacitySettings,
}

impl Grouped for Settings {
    fn groups() -> Groups {
        vec![
            ("array", Keys::of::<ArraySettings>()),
            ("workload", Keys::of::<WorkloadSettings>()),
            ("rebuild", Keys::of::<RebuildSettings>()),
            ("phases", Keys::of::<PhaseSettings>()),
            ("capacity", Keys::of::<CapacitySettings>()),
        ]
    }

    fn check_point(point: &Point) -> Result<(), String> {
        Settings::of(point).map(drop)
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Cell {
    pub point: Point,
    pub seed: u64,
    pub settings: Settings,
    /// The line for what the trace held when the cell was made; empty without one.
    content: String,
}

/// The names of a run's phases.
pub const WARM_UP: &str = "warm-up";
pub const BEFORE: &str = "before";
pub const DEGRADED: &str = "degraded";
pub const DURING: &str = "during";
pub const AFTER: &str = "after";
/// `during` and `after` together, where the runs of an experiment last as long after the rebuild's beginning.
pub const COMMON: &str = "common";
/// What a metric may be of.
pub const PHASES: [&str; 6] = [WARM_UP, BEFORE, DEGRADED, DURING, AFTER, COMMON];

impl Settings {
    pub fn of(point: &Point) -> Result<Settings, String> {
        let settings: Settings = settings(point, "array.level")?;
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), String> {
        self.check_names()?;
        let plan = self.plan()?;
        self.check_second(plan.members)?;
        let second_share = self.rebuild.second_failure_share;
        let link_mb_s = self.array.surrogate_link_mb_s;
        let round_trip_us = self.array.surrogate_round_trip_us;
        let bounds = [
            ("workload.load", self.workload.load, -1.0, 4.0),
            ("workload.rate", self.workload.rate, 0.0, 1e7),
            ("workload.fill", self.workload.fill, 0.001, 1.0),
            ("workload.write_share", self.workload.write_share, -1.0, 1.0),
            ("workload.fill_mib", self.workload.fill_mib as f64, 0.0, 1e9),
            ("rebuild.second_failure_share", second_share, 0.0, 0.95),
            ("rebuild.min_mb_s", self.rebuild.min_mb_s, 0.0, 1e6),
            ("rebuild.max_mb_s", self.rebuild.max_mb_s, 0.001, 1e6),
            ("array.surrogate_link_mb_s", link_mb_s, 0.0, 1e6),
            ("array.surrogate_round_trip_us", round_trip_us, 0.0, 1e6),
        ];
        for (name, value, low, high) in bounds {
            if !(low..=high).contains(&value) {
                return Err(format!("{name} is {value}, not within {low} to {high}"));
            }
        }
        let longest = 366 * 24 * 3600;
        let phases = &self.phases;
        let until = [phases.warm_up_s, phases.before_s, phases.degraded_s];
        let from = [phases.rebuild_s, phases.after_s, phases.common_s];
        if until
            .iter()
            .chain(&from)
            .chain([&phases.step_s])
            .any(|s| *s > longest)
        {
            return Err("a phase is longer than a year".into());
        }
        if phases.step_s == 0 {
            return Err("phases.step_s is 0".into());
        }
        if self.workload.depth > OUTSTANDING_MAX {
            return Err(format!(
                "workload.depth is above {OUTSTANDING_MAX}, the most that can be outstanding"
            ));
        }
        Ok(())
    }

    /// Names of what the plan does not need, or needs only when it is run.
    fn check_names(&self) -> Result<(), String> {
        let (array, rebuild) = (&self.array, &self.rebuild);
        at("array.drive", choices::check_drive(&array.drive))?;
        if !array.spare_drive.is_empty() {
            at(
                "array.spare_drive",
                choices::check_drive(&array.spare_drive),
            )?;
        }
        let destage_order = choices::destage_order(&array.destage_order);
        at("array.destage_order", destage_order)?;
        at("rebuild.moves", choices::moves(&rebuild.moves))?;
        let source = &self.workload.source;
        at("workload.source", choices::check_source(source))
    }

    /// A second member that fails is another than the first, and fails during a rebuild.
    fn check_second(&self, members: u16) -> Result<(), String> {
        let Some(second) = self.rebuild.second_member else {
            return Ok(());
        };
        let rebuilds = self.rebuild.task == Restoring::Rebuild && self.array.spares > 1;
        match (1..members).contains(&second) {
            false => Err(format!(
                "rebuild.second_member is {second}, not from 1 to {}",
                members.saturating_sub(1)
            )),
            true if !rebuilds => {
                Err("rebuild.second_member is for a rebuild with two array.spares".into())
            }
            true => Ok(()),
        }
    }

    pub fn plan(&self) -> Result<ArrayPlan, String> {
        let wide = self.scheme()?.wide;
        self.planned(self.array.members()? + if wide { self.array.surrogate } else { 0 })
    }

    /// The array of so many members.
    fn planned(&self, members: u16) -> Result<ArrayPlan, String> {
        let array = &self.array;
        let set_level = array.level()?;
        let scheme = self.scheme()?;
        if array.member_mib == 0 || array.member_mib > 1 << 30 {
            return Err(format!("members of {} MiB", array.member_mib));
        }
        let chunk_sectors = array.chunk_kib.checked_mul(2).filter(|some| *some > 0);
        let skew = array.skew(members)?;
        let spare_partitions = array.form()?.spare_partitions;
        let limits = self.rebuild.limits(skew);
        let mut plan = ArrayPlan {
            level: set_level,
            skew,
            grown: array.history(set_level)?,
            spare_partitions,
            spares: array.spares.max(u16::from(spare_partitions > 0)),
            members,
            chunk_sectors: chunk_sectors.ok_or("array.chunk_kib is out of range")?,
            member_bytes: array.member_mib << 20,
            write_hole: at(
                "array.write_hole",
                choices::write_hole(&array.write_hole, set_level),
            )?,
            region_rows: (array.region_rows > 0).then_some(array.region_rows),
            drive: array.drive.clone(),
            spare_drive: Some(array.spare_drive.clone()).filter(|name| !name.is_empty()),
            schedule: at("array.schedule", choices::schedule(&array.schedule))?,
            write_cache: array.write_cache,
            standby_ns: (array.standby_s > 0).then_some(array.standby_s.saturating_mul(SECOND)),
            cache: cache(array)?,
            throttle: at(
                "rebuild.throttle",
                choices::throttle(&self.rebuild.throttle),
            )?,
            order: scheme.order,
            on_demand: self.rebuild.on_demand,
            moves: match self.rebuild.task {
                Restoring::Growth => choices::moves(&self.rebuild.moves)?,
                _ => Moves::default(),
            },
            heat: HeatLimits {
                zone_sectors: (self.rebuild.zone_mib * 2048.0) as u64,
                epoch: Nanos((self.rebuild.epoch_s * 1e9) as u64),
            },
            rebuild_min: limits[0],
            rebuild_max: limits[1],
            surrogate: self.surrogate(scheme.redirect)?,
        };
        check_form(&plan)?;
        match (array.regions, plan.region_rows) {
            (0, _) => {}
            (_, Some(_)) => return Err("array.regions replaces array.region_rows".into()),
            (regions, None) => plan.region_rows = Some(rows_of_a_region(&plan, regions)?),
        }
        Ok(plan)
    }

    /// The surrogate of a scheme that moves users to one.
    fn surrogate(&self, redirect: Redirect) -> Result<Option<SurrogatePlan>, String> {
        let array = &self.array;
        let log_mib = array.code_cache_mib;
        let level = choices::surrogate_level(&array.surrogate_level, log_mib > 0);
        let level = at("array.surrogate_level", level)?;
        let plain = SurrogatePlan {
            level,
            members: array.surrogate,
            member_bytes: array.member_mib << 20,
            redirect,
            scrubs: self.rebuild.task == Restoring::Check,
            link: link(array),
            sleep: None,
            code_cache: None,
        };
        // Further copies sleep when they were not needed for this time.
        let sleep = (array.sleep_s >= 0.0).then_some(Nanos((array.sleep_s * 1e9) as u64));
        let sleeping = SurrogatePlan { sleep, ..plain };
        let first_copies = || Ok::<_, String>(array.members()? / copies_of(array.level()?));
        Ok(Some(match redirect {
            Redirect::None => return Ok(None),
            // On the drives of the array's first copies.
            Redirect::Reraid if log_mib > 0 => SurrogatePlan {
                members: first_copies()?,
                member_bytes: log_mib << 20,
                link: None,
                code_cache: Some(code_cache(array, level, first_copies()?)?),
                ..sleeping
            },
            // On a drive of its own, with as much room for data as the code cache would have.
            Redirect::Graid if log_mib > 0 => {
                let shares = first_copies()?.saturating_sub(level.parities()).max(1);
                SurrogatePlan {
                    level: Level::Raid0,
                    members: 1,
                    member_bytes: (log_mib * u64::from(shares)) << 20,
                    ..sleeping
                }
            }
            // First copies alone have what is new.
            Redirect::Eraid => SurrogatePlan {
                level: Level::Raid0,
                members: 0,
                member_bytes: 0,
                link: None,
                ..sleeping
            },
            _ if array.surrogate == 0 => {
                return Err("users are to be moved, and array.surrogate has no drives".into());
            }
            _ => plain,
        }))
    }

    fn scheme(&self) -> Result<Scheme, String> {
        let rebuild = &self.rebuild;
        match &rebuild.scheme {
            None => Ok(Scheme {
                order: at("rebuild.order", choices::order(&rebuild.order))?,
                redirect: at("rebuild.redirect", choices::redirect(&rebuild.redirect))?,
                wide: false,
            }),
            Some(_) if rebuild.order != by_address() || rebuild.redirect != nowhere() => {
                Err("rebuild.scheme replaces rebuild.order and rebuild.redirect".into())
            }
            Some(name) => at("rebuild.scheme", Scheme::named(name)),
        }
    }

    /// The array without a surrogate, whatever the scheme: what a capacity is of, and what requests are placed in.
    fn bare(&self) -> Result<ArrayPlan, String> {
        Ok(ArrayPlan {
            surrogate: None,
            ..self.planned(self.array.members()?)?
        })
    }
}

fn code_cache(array: &ArraySettings, level: Level, members: u16) -> Result<CodeCachePlan, String> {
    Ok(CodeCachePlan {
        chunk_sectors: code_cache_chunk(array.code_cache_chunk_kib, level, members)?,
        records_in_memory: (array.code_cache_memory_mib * 16.0) as u32,
        destage_order: choices::destage_order(&array.destage_order)?,
        destage_buffers: (array.destage_memory_mib * 16.0) as u32,
        clean: array.clean_log,
    })
}

impl ArraySettings {
    fn level(&self) -> Result<Level, String> {
        match (at("array.level", choices::level(&self.level))?, self.copies) {
            (Level::Raid10 { .. }, copies @ 2..) => Ok(Level::Raid10 { copies }),
            (Level::Raid10 { .. }, few) => Err(format!("array.copies is {few}, not 2 or more")),
            (other, _) => Ok(other),
        }
    }

    /// As `skew` says, or the single settings.
    fn form(&self) -> Result<Form, String> {
        let single = Form {
            groups: self.groups,
            size: None,
            partitions: self.partitions,
            spare_partitions: self.spare_partitions,
        };
        match self.skew {
            None => Ok(single),
            Some(_) if single != Form::FLAT => {
                Err("array.skew replaces array.groups, .partitions and .spare_partitions".into())
            }
            Some(form) => Ok(form),
        }
    }

    fn members(&self) -> Result<u16, String> {
        let form = self.form()?;
        let by_form = form.size.map(|size| form.groups.saturating_mul(size));
        let by_history = self.grown.as_ref().map(Grown::members);
        let alone = (self.members > 0).then_some(self.members);
        let mut given = [alone, by_form, by_history].into_iter().flatten();
        match (given.next(), given.next()) {
            (None, _) => {
                Err("the array has no members: array.members is 0 or left out, and neither array.skew nor array.grown says how many".into())
            }
            (Some(members), None) => Ok(members),
            (Some(_), Some(_)) => {
                Err("two of array.members, array.skew and array.grown set the number of members".into())
            }
        }
    }

    fn history(&self, level: Level) -> Result<Option<History>, String> {
        let history = self.grown.as_ref().map(|grown| grown.history(level));
        Ok(history.transpose()?.flatten())
    }

    /// The grouping of so many members, if they are skewed.
    fn skew(&self, members: u16) -> Result<Option<Skew>, String> {
        let form = self.form()?;
        let alone = form.size.is_some() && form.groups == 1;
        let groups = if alone { 0 } else { form.groups };
        match (groups, form.partitions) {
            (0, 0) if form.spare_partitions == 0 => Ok(None),
            (0, _) => Err("partitions are of members in groups, and the array has none".into()),
            (_, 0) => Ok(Some(Skew::with_most_partitions(groups, members))),
            (_, partitions) => Ok(Some(Skew { groups, partitions })),
        }
    }

    /// Whether what is lost is rebuilt at once: onto spares that are there, or onto members with room for partitions.
    fn rebuilds_at_once(&self) -> bool {
        let hosts = self.form().is_ok_and(|form| form.spare_partitions > 0);
        self.spares > 0 || hosts
    }
}

/// A grouping that cannot be is refused by name, before anything is built.
pub fn check_form(plan: &ArrayPlan) -> Result<(), String> {
    if plan.skew.is_none() && plan.grown.is_none() {
        return Ok(());
    }
    let chunk_bytes = u64::from(plan.chunk_sectors) * SECTOR_BYTES;
    #[allow(clippy::needless_update)] // A further property of layouts is plain here.
    let geometry = Geometry {
        level: plan.level,
        slots: plan.members,
        chunk_sectors: plan.chunk_sectors,
        slot_sectors: plan.member_bytes / chunk_bytes * u64::from(plan.chunk_sectors),
        skew: plan.skew,
        grown: plan.grown,
        ..Geometry::PLAIN
    };
    let unsound = |error| format!("the members of the array: {error}");
    geometry.check().map_err(unsound)
}

/// What lies between the array and its surrogate's drives.
fn link(array: &ArraySettings) -> Option<LinkPlan> {
    let rate = (array.surrogate_link_mb_s * 1e6) as u64;
    (rate > 0).then_some(LinkPlan {
        round_trip: Nanos((array.surrogate_round_trip_us * 1e3) as u64),
        rate,
    })
}

/// The read cache that an array has, if any.
fn cache(array: &ArraySettings) -> Result<Option<CacheLimits>, String> {
    let most = f64::from(1 << 15);
    let (mib, policy) = (array.cache_mib, &array.cache_policy);
    if !(0.0..=most).contains(&mib) {
        return Err(format!("array.cache_mib is {mib}, not within 0 to {most}"));
    }
    let rule = at("array.cache_policy", choices::rule(policy))?;
    let blocks = ((mib * f64::from(1 << 20)) as u64 / u64::from(SMALL_BYTES)) as u32;
    Ok((blocks > 0).then_some(CacheLimits { blocks, rule }))
}

fn zone() -> f64 {
    HeatLimits::default().zone_sectors as f64 / 2048.0
}

fn epoch() -> f64 {
    HeatLimits::default().epoch.0 as f64 / 1e9
}

fn by_address() -> String {
    Order::default().name().into()
}

fn best_moves() -> String {
    Moves::default().name().into()
}

fn nowhere() -> String {
    Redirect::None.name().into()
}

// ------------------------------------------------------------------------------------------------------- identity

impl Cell {
    /// The cells of one experiment share `contents`, so that what their trace holds is read once.
    pub fn new(point: &Point, seed: u64, contents: &mut Contents) -> Result<Cell, String> {
        let settings = Settings::of(point)?;
        let array = &settings.array;
        let mut content = String::new();
        for (path, source) in [
            ("workload.source", &settings.workload.source),
            ("array.drive", &array.drive),
            ("array.spare_drive", &array.spare_drive),
        ] {
            content += &at(path, contents.line(source))?;
        }
        Ok(Cell {
            point: point.clone(),
            seed,
            content,
            settings,
        })
    }

    /// Every parameter, in order of its path; equal texts are equal runs.
    pub fn canonical(&self) -> String {
        let mut text = format!("results = {RESULTS_VERSION}\nseed = {}\n", self.seed);
        for (path, value) in &self.point {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{path} = {}", value.canonical());
        }
        text + &self.content
    }

    /// 64 bits of hexadecimal. The cache compares the text too, so a collision costs time, not truth.
    pub fn hash(&self) -> String {
        hash(&self.canonical())
    }

    /// What the capacity hangs on, as a text of its own: cells that share it share the measurement.
    pub fn capacity_key(&self) -> Option<String> {
        let workload = &self.settings.workload;
        if workload.load <= 0.0 || workload.source == "none" {
            return None;
        }
        let matters = |path: &&String| {
            !path.starts_with("rebuild.")
                && !path.starts_with("phases.")
                && !["workload.load", "workload.rate", "workload.replicate"]
                    .contains(&path.as_str())
        };
        let mut text = format!("results = {RESULTS_VERSION}\ncapacity\n");
        for path in self.point.keys().filter(matters) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{path} = {}", self.point[path].canonical());
        }
        Some(text + &self.content)
    }

    /// The value of a parameter, the seed included.
    pub fn value(&self, path: &str) -> Option<Value> {
        if path == "seed" {
            return i64::try_from(self.seed).ok().map(Value::Whole);
        }
        self.point.get(path).cloned()
    }
}

// ------------------------------------------------------------------------------------------------------------ runs

/// The seed of the run that measures a capacity: one for all seeds of an experiment, so that all share an axis.
const CAPACITY_SEED: u64 = 0;

/// Requests a second of the degraded array at depth, in thousandths.
pub fn measure_capacity(cell: &Cell) -> Result<u64, String> {
    let settings = &cell.settings;
    let mut stage = Stage::new(&settings.bare()?, CAPACITY_SEED)?;
    let mut source = requests(settings, stage.size_bytes, CAPACITY_SEED, None)?.source;
    let capacity = &settings.capacity;
    let script = Script {
        pace: Pace::Closed {
            depth: capacity.depth,
        },
        plans: vec![
            Plan::new(WARM_UP, fails(settings), passed(capacity.warm_up_s)),
            Plan::new("capacity", Deed::Nothing, passed(capacity.measure_s.max(1))),
        ],
        step_ns: settings.phases.step_s * SECOND,
    };
    let log = replay(&mut stage, &mut *source, &script)?;
    let phase = log
        .phase("capacity")
        .ok_or("the capacity was not measured")?;
    let thousandths = u128::from(phase.times.count) * 1000 * u128::from(SECOND);
    let rate = thousandths / u128::from(phase.length_ns().max(1));
    u64::try_from(rate).map_err(|_| "a capacity beyond 64 bits".to_string())
}

/// Runs a cell. `capacity` is that of its [`Cell::capacity_key`], if it has one.
pub fn run(cell: &Cell, capacity: Option<u64>) -> Result<Log, String> {
    let settings = &cell.settings;
    let mut stage = Stage::new(&settings.plan()?, cell.seed)?;
    let rate = rate(settings, capacity);
    let size = size_bytes(&settings.bare()?)?;
    let Offered { mut source, per_s } = requests(settings, size, cell.seed, rate)?;
    let script = Script {
        pace: match settings.workload.depth {
            0 => Pace::Open { speed_milli: 1000 },
            depth => Pace::Closed { depth },
        },
        plans: plans(settings),
        step_ns: settings.phases.step_s * SECOND,
    };
    let mut log = replay(&mut stage, &mut *source, &script)?;
    log.offered_milli = per_s.map_or(0, |rate| (rate * 1000.0) as u64);
    log.capacity_milli = capacity.unwrap_or(0);
    log.common_ns = settings.phases.common_s.saturating_mul(SECOND);
    Ok(log)
}

/// Requests a second, if they are not the source's own.
fn rate(settings: &Settings, capacity: Option<u64>) -> Option<f64> {
    let workload = &settings.workload;
    match capacity {
        Some(capacity) => Some(workload.load * capacity as f64 / 1000.0),
        None => (workload.load < 0.0 && workload.rate > 0.0).then_some(workload.rate),
    }
}

fn fails(settings: &Settings) -> Deed {
    match settings.array.level.as_str() {
        "raid0" => Deed::Nothing,
        _ => Deed::Fail(0),
    }
}

fn passed(seconds: u64) -> Until {
    Until::Passed(seconds.saturating_mul(SECOND))
}

/// What ends a rebuild, at the latest when it is waited for no longer.
fn longest_rebuild(settings: &Settings) -> Until {
    let most = settings.phases.rebuild_s.saturating_mul(SECOND);
    let rebuild = &settings.rebuild;
    let at_milli = (rebuild.second_failure_share * 1000.0) as u32;
    match rebuild.second_member {
        Some(member) => Until::RebuiltTwice {
            member,
            at_milli,
            most,
        },
        None => Until::Rebuilt(most),
    }
}

fn plans(settings: &Settings) -> Vec<Plan> {
    let phases = &settings.phases;
    let mut plans = vec![
        Plan::new(WARM_UP, Deed::Nothing, passed(phases.warm_up_s)),
        Plan::new(BEFORE, Deed::Nothing, passed(phases.before_s)),
    ];
    let most = longest_rebuild(settings);
    let begins = match settings.rebuild.task {
        Restoring::Resync => Deed::Crash,
        Restoring::Check => Deed::Check,
        Restoring::Growth => Deed::Grow,
        Restoring::Reshape => Deed::Reshape,
        Restoring::Rebuild if phases.degraded_s == 0 => return plans,
        // Spares that are there and members with room take what is lost at once.
        Restoring::Rebuild if settings.array.rebuilds_at_once() => fails(settings),
        Restoring::Rebuild => {
            let degraded = passed(phases.degraded_s);
            plans.push(Plan::new(DEGRADED, fails(settings), degraded));
            Deed::Spare
        }
    };
    if phases.rebuild_s > 0 {
        plans.push(Plan::new(DURING, begins, most));
        let [before, least] = [phases.common_s, phases.after_s].map(|s| s.saturating_mul(SECOND));
        plans.push(Plan::new(
            AFTER,
            Deed::Nothing,
            Until::Since { before, least },
        ));
    }
    plans
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::scenario::{named, parse};

    fn point() -> Point {
        let scenario = parse(named("rebuild-cost").expect("built in")).expect("sound");
        scenario.shortened().points().remove(0)
    }

    /// The point with some of its values set.
    fn point_with(values: &[(&str, Value)]) -> Point {
        let mut point = point();
        point.extend(
            values
                .iter()
                .map(|(path, value)| ((*path).into(), value.clone())),
        );
        point
    }

    fn cell(point: &Point, seed: u64) -> Result<Cell, String> {
        Cell::new(point, seed, &mut Contents::default())
    }

    #[test]
    fn every_parameter_changes_the_hash_and_unknown_ones_are_refused() {
        let hash = |point: &Point, seed| cell(point, seed).expect("sound").hash();
        let mut other = point_with(&[("array.chunk_kib", Value::Whole(16))]);
        assert_ne!(hash(&point(), 1), hash(&other, 1));
        assert_ne!(hash(&point(), 1), hash(&point(), 2));
        assert_eq!(hash(&point(), 1), hash(&point(), 1));
        other.insert("array.colour".into(), Value::Whole(1));
        assert!(cell(&other, 1).expect_err("unknown").contains("colour"));
    }

    #[test]
    fn the_manual_lists_what_must_be_given_and_names_every_parameter() {
        let manual = include_str!("../../../../docs/reference/lab.md");
        let words: Vec<&str> = manual.split_whitespace().collect();
        let manual = words.join(" ");
        let required: Vec<String> = Settings::required();
        let list: Vec<String> = required.iter().map(|path| format!("`{path}`")).collect();
        let list = list.join(", ");
        assert!(manual.contains(&format!("{list}. All other")), "{list}");
        let named = |path: &String| {
            let name = path.split_once('.').expect("a group and a name").1;
            // Of one group the table names the first with it.
            manual.contains(&format!("`{path}`")) || manual.contains(&format!("`.{name}`"))
        };
        let rest: Vec<String> = Settings::all();
        let unnamed: Vec<&String> = rest.iter().filter(|path| !named(path)).collect();
        assert!(unnamed.is_empty(), "{unnamed:?}");
    }

    #[test]
    fn what_a_trace_or_a_drives_file_holds_changes_the_hash() {
        changes_the_hash("workload.source", "trace:");
        changes_the_hash("array.drive", "file:");
        changes_the_hash("array.spare_drive", "file:");
    }

    fn changes_the_hash(parameter: &str, kind: &str) {
        let own = format!("restripe-cell-{parameter}-{}", std::process::id());
        let path = std::env::temp_dir().join(own);
        let mut value = Value::Text(format!(
            "{kind}{}",
            path.file_name().expect("own").display()
        ));
        value.put_in(&std::env::temp_dir());
        assert_eq!(value, Value::Text(format!("{kind}{}", path.display())));
        let load = ("workload.load", Value::Real(0.3));
        let mut point = point_with(&[(parameter, value), load]);
        let source = Value::Text("noise".into());
        point.entry("workload.source".into()).or_insert(source);
        let hash_of = |bytes: &[u8]| {
            std::fs::write(&path, bytes).expect("a temporary file");
            let cell = cell(&point, 1).expect("sound");
            (cell.hash(), cell.capacity_key())
        };
        let hashes = [b"0123456789", b"012345678\0", b"0123456789"].map(|bytes| hash_of(bytes));
        let mut contents = Contents::default();
        let shared = Cell::new(&point, 1, &mut contents).expect("sound");
        std::fs::remove_file(&path).expect("ours");
        // What was read is not read again.
        let other = Cell::new(&point, 1, &mut contents).expect("sound");
        assert_eq!(shared.hash(), other.hash());
        assert_eq!(hashes[0].0, shared.hash());
        assert_eq!(hashes[0], hashes[2]);
        assert_ne!(hashes[0].0, hashes[1].0);
        assert_ne!(hashes[0].1, hashes[1].1);
    }

    #[test]
    fn regions_are_as_many_as_are_asked_for_whatever_the_size() {
        let with = |mib: i64, regions: i64, rows: i64| {
            let values = [
                ("array.member_mib", Value::Whole(mib)),
                ("array.regions", Value::Whole(regions)),
                ("array.region_rows", Value::Whole(rows)),
            ];
            Ok::<_, String>(cell(&point_with(&values), 1)?.settings.plan()?.region_rows)
        };
        // Chunks of 64 KiB: 16 rows a MiB.
        assert_eq!(with(10240, 160, 0), Ok(Some(1024)));
        assert_eq!(with(512, 160, 0), Ok(Some(52)));
        assert_eq!(with(512, 0, 7), Ok(Some(7)));
        assert_eq!(with(512, 0, 0), Ok(None));
        assert!(with(512, 160, 7).is_err_and(|error| error.contains("replaces")));
    }

    #[test]
    fn a_read_cache_is_known_by_size_and_rule() {
        let with = |mib: f64, rule: &str| {
            let rule = Value::Text(rule.into());
            let values = [
                ("array.cache_mib", Value::Real(mib)),
                ("array.cache_policy", rule),
            ];
            Ok::<_, String>(cell(&point_with(&values), 1)?.settings.plan()?.cache)
        };
        let (blocks, rule) = (128, Rule::VdfLru);
        assert_eq!(with(0.5, "vdf-lru"), Ok(Some(CacheLimits { blocks, rule })));
        assert_eq!(with(0.0, "lru"), Ok(None));
        assert!(with(1e9, "lru").is_err_and(|told| told.contains("array.cache_mib")));
        assert!(with(1.0, "mru").is_err_and(|told| told.contains("vdf-lfu")));
    }

    #[test]
    fn an_array_is_skewed_by_groups_and_partitions() {
        let with = |members: i64, groups: i64, partitions: i64| {
            let point = point_with(&[
                ("array.members", Value::Whole(members)),
                ("array.groups", Value::Whole(groups)),
                ("array.partitions", Value::Whole(partitions)),
            ]);
            let skew = cell(&point, 1)?.settings.plan()?.skew;
            Ok::<_, String>(skew.map(|skew| (skew.groups, skew.partitions)))
        };
        assert_eq!(with(9, 0, 0), Ok(None));
        assert_eq!(with(9, 3, 0), Ok(Some((3, 3))));
        assert_eq!(with(9, 3, 1), Ok(Some((3, 1))));
        let refused = |members, groups, partitions: i64| {
            with(members, groups, partitions).expect_err("it cannot be")
        };
        assert!(refused(9, 0, 3).contains("the array has none"));
        assert!(refused(8, 3, 0).contains("9 members as 3 x 3"));
        assert!(refused(9, 3, 4).contains("3 at most"));
        // The default is no single stream.
        assert!(refused(8, 4, 0).contains("1 at most"));
    }

    #[test]
    fn a_form_has_one_name() {
        let with = |name: &str, members: i64, groups: i64| {
            let point = point_with(&[
                ("array.members", Value::Whole(members)),
                ("array.skew", Value::Text(name.into())),
                ("array.groups", Value::Whole(groups)),
            ]);
            let plan = cell(&point, 1)?.settings.plan()?;
            let skew = plan.skew.map(|skew| (skew.groups, skew.partitions));
            Ok::<_, String>((plan.members, skew, plan.spare_partitions))
        };
        assert_eq!(with("flat", 9, 0), Ok((9, None, 0)));
        assert_eq!(with("3", 9, 0), Ok((9, Some((3, 3)), 0)));
        assert_eq!(with("3+2", 9, 0), Ok((9, Some((3, 3)), 2)));
        assert_eq!(with("5x7", 0, 0), Ok((35, Some((5, 7)), 0)));
        assert_eq!(with("5x7:1", 0, 0), Ok((35, Some((5, 1)), 0)));
        assert_eq!(with("5x7:2+1", 0, 0), Ok((35, Some((5, 2)), 1)));
        assert!(with("3+2", 9, 3).is_err_and(|told| told.contains("replaces")));
        assert!(with("3x3", 9, 0).is_err_and(|told| told.contains("two of array.members")));
        assert!(with("3", 0, 0).is_err_and(|told| told.contains("the array has no members")));
        for name in ["", "3x", "x3", "0", "3+0", "3:0", "flat+1", "3+x", "99999"] {
            assert!(with(name, 9, 0).is_err(), "{name:?}");
        }
    }

    #[test]
    fn an_array_has_grown_as_its_name_says() {
        let with = |name: &str, level: &str| {
            let [level, name] = [level, name].map(|text| Value::Text(text.into()));
            let none = Value::Text("none".into());
            let mut point = point_with(&[
                ("array.level", level),
                ("array.grown", name),
                ("array.write_hole", none),
            ]);
            point.remove("array.members");
            let plan = cell(&point, 1)?.settings.plan()?;
            Ok::<_, String>((plan.members, plan.grown))
        };
        assert_eq!(with("6", "raid4"), Ok((6, None)));
        assert_eq!(with("4+1+1", "raid4"), Ok((6, History::of(&[3, 4, 5]))));
        assert_eq!(with("4+2", "raid0"), Ok((6, History::of(&[4, 6]))));
        assert!(with("4+1", "raid5").is_err_and(|told| told.contains("members of the array")));
        for name in ["", "+", "4+", "4+0", "4+x", "-1+2", "1+1", "99999"] {
            assert!(with(name, "raid4").is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_throttle_that_is_not_there_is_named() {
        let unknown = Value::Text("md-2.4".into());
        let told = cell(&point_with(&[("rebuild.throttle", unknown)]), 1).expect_err("unknown");
        assert!(told.contains("md-2.4") && told.contains("md-2.6"), "{told}");
    }
}
