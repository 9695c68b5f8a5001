//! The views of an array's status: the one schema of the control socket, of `--json` and of the metrics.
//!
//! Units are in the names. Fields are added, and from the first release on never given a new meaning;
//! [`SCHEMA`] grows when one is taken away.

use super::energy::{EnergyView, SpindleView};
use super::lending::LendingView;
use super::refusal::{self, RefusalView};
use super::scrub::LastScrubView;
use super::surrogate::{SurrogateView, exposed_sectors};
use restripe_array::layout::{Geometry, Level, Rotation};
use restripe_array::report::Status as SetStatus;
use restripe_array::report::{
    Aim, ArrayState, Counters, DroppedTask, GrowthPlan, HeatMap, MemberState, MemberStatus,
    TaskStatus,
};
use restripe_array::{Member, Nanos, SECTOR_BYTES, TaskKind};
use restripe_tier::report::Status;
use serde::{Deserialize, Serialize};

/// The schema's version, in every status.
pub const SCHEMA: u32 = 1;

/// Lost parts listed in a status, at most: a reply is one line of bounded length.
pub const LOST_LISTED_MAX: usize = 4096;

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct StatusView {
    pub schema: u32,
    pub name: String,
    pub uuid: String,
    pub generation: u64,
    /// `starting`, `healthy`, `degraded`, `failed`, `read-only`, `stopping` or `stopped`: of all that it needs, its surrogate's sets and
    /// log, too. `read-only`: it had to stop writing, for what `refuses_writes` says.
    pub state: String,
    /// The same of the array's own members alone.
    #[serde(default)]
    pub own_state: String,
    /// `raid0`, `raid1`, `raid4`, `raid5`, `raid6` or `raid10`; empty until started.
    pub level: String,
    /// md's name of the rotation, for raid5 and raid6.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub rotation: String,
    pub slots: u16,
    /// Groups of the slots and partitions of each, of a skewed array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<u16>,
    pub chunk_bytes: u64,
    pub size_bytes: u64,
    pub logical_block_bytes: u32,
    pub read_only: bool,
    /// A member that is current makes nothing durable: clients are offered neither FLUSH nor FUA.
    #[serde(default)]
    pub volatile: bool,
    /// Why writes are refused, if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refuses_writes: Option<RefusalView>,
    pub members: Vec<MemberView>,
    /// Slots that no member here stands in.
    #[serde(default)]
    pub missing_slots: Vec<u16>,
    pub tasks: Vec<TaskView>,
    /// Tasks of the array and its surrogate that the start dropped, since their targets are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped_tasks: Vec<DroppedView>,
    /// All that is lost, also what is beyond the list below.
    pub lost_bytes: u64,
    /// The first parts that are lost, [`LOST_LISTED_MAX`] at most.
    pub lost: Vec<LostView>,
    /// An upper bound of the bytes that only primary copies have. Until a resync has passed them, the loss of a
    /// primary copy loses its bytes.
    #[serde(default)]
    pub in_doubt_bytes: u64,
    /// The scrub that runs, or the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scrub: Option<LastScrubView>,
    pub counters: CountersView,
    /// Of an array that is served with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surrogate: Option<Box<SurrogateView>>,
    /// Of an array that lends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lends: Option<LendingView>,
    /// What its members may have drawn, and its surrogate's: of an array whose mirrors may sleep, or for which a rating was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy: Option<EnergyView>,
}

/// What a growth would do.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct GrowthView {
    pub slots: u16,
    pub slots_after: u16,
    pub size_bytes: u64,
    pub size_bytes_after: u64,
    /// Only the new members' share moves, each chunk within its row; otherwise every chunk is dealt anew.
    #[serde(default)]
    pub least_moves: bool,
    /// Users' bytes that are copied, about.
    pub moved_bytes: u64,
    /// Bytes that a new member takes, as limits of its rate count them.
    pub member_bytes: u64,
    /// The limits of its rate; no maximum if there is none.
    pub rate_min_bytes: u64,
    pub rate_max_bytes: Option<u64>,
    /// That a new member has to have.
    pub needs_bytes: u64,
}

impl GrowthView {
    /// Of an array that is like this now.
    pub fn new(plan: &GrowthPlan, status: &Status) -> GrowthView {
        GrowthView {
            slots: status.geometry.map_or(0, |geometry| geometry.slots),
            slots_after: plan.slots,
            size_bytes: status.size_bytes,
            size_bytes_after: plan.size_bytes,
            least_moves: plan.least_moves,
            moved_bytes: plan.moved_bytes,
            member_bytes: plan.member_bytes,
            rate_min_bytes: plan.pacing.rate_min,
            rate_max_bytes: at_most(plan.pacing.rate_max),
            needs_bytes: plan.needs_bytes,
        }
    }
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct MemberView {
    pub member: u16,
    pub path: String,
    pub uuid: String,
    pub slot: Option<u16>,
    /// Partitions of other slots that lie on it, or are rebuilt there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostedView>,
    /// `active`, `rebuilding`, `spare`, `failed`, `replaced` (failed, because another took its place) or `foreign`.
    pub state: String,
    /// It takes neither flushes nor durable writes.
    #[serde(default)]
    pub volatile: bool,
    /// Its last write found no space: it failed for that, or the array refuses writes.
    #[serde(default)]
    pub full: bool,
    pub read_errors: u32,
    /// A first copy that goes ahead alone: so many bytes are lost with it, at most.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub exposed_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spindle: Option<SpindleView>,
}

/// A task that does not go on, since its target is missing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DroppedView {
    pub kind: String,
    pub slot: u16,
    /// The uuid of the missing target.
    pub target: String,
    /// `array`, `surrogate` or `buffer`.
    pub set: String,
    /// A start that writes, and has the target, goes on with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits: bool,
}

impl DroppedView {
    fn all_of(status: &Status) -> Vec<DroppedView> {
        let surrogate = status.surrogate.as_deref();
        let buffer = surrogate.and_then(|one| one.buffer.as_ref());
        let others = [
            ("surrogate", surrogate.map(|one| &one.set)),
            ("buffer", buffer.map(|one| &one.set)),
        ];
        let others = others.into_iter().filter_map(|(set, of)| Some((set, of?)));
        let sets = std::iter::once(("array", &status.set)).chain(others);
        sets.flat_map(|(set, of)| of.dropped.iter().map(move |one| DroppedView::new(set, one)))
            .collect()
    }

    fn new(set: &str, dropped: &DroppedTask) -> DroppedView {
        DroppedView {
            kind: task_word(dropped.kind).into(),
            slot: dropped.slot,
            target: dropped.target.to_string(),
            set: set.into(),
            waits: dropped.waits,
        }
    }
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HostedView {
    pub slot: u16,
    pub partition: u16,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TaskView {
    /// `rebuild`, `replace`, `resync`, `check`, `repair` or `growth`.
    pub kind: String,
    pub slot: Option<u16>,
    pub paused: bool,
    pub rows_done: u64,
    pub rows_total: u64,
    /// Why it does not go though nobody paused it: `read-only`, `members` (some are missing that it needs) or `another-task`.
    /// Empty if it goes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub waits: String,
    /// Bytes of one member a second; none while that cannot be told yet.
    pub rate_bytes: Option<u64>,
    /// Seconds to the end at this rate; none when nothing moves, or that cannot be told yet.
    pub eta_seconds: Option<u64>,
    pub mismatches: u64,
    /// The limits of its rate, bytes of one member a second; no maximum if there is none.
    #[serde(default)]
    pub rate_min_bytes: u64,
    #[serde(default)]
    pub rate_max_bytes: Option<u64>,
    /// What paces it, and in which order it goes through the array.
    #[serde(default)]
    pub throttle: String,
    #[serde(default)]
    pub order: String,
    /// Reads of what is not rebuilt call it there.
    #[serde(default)]
    pub on_demand: bool,
    /// What its throttle aims at, if at anything, and how it fares; while it goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aim: Option<AimView>,
}

/// The goal of a throttle.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AimView {
    /// Of a hundred reads and writes, `percentile` are to take no longer than `at_most_us`, and take `is_us`.
    Latency {
        percentile: u8,
        at_most_us: u64,
        is_us: Option<u64>,
        /// That the task may go beside users, of one member.
        rate_bytes: u64,
        /// They take longer even at its minimum.
        missed: bool,
    },
    /// It is to be done in so long, which takes so many bytes a second of one member: more than it may go, or can, if
    /// it is missed.
    Finish {
        within_seconds: u64,
        needs_bytes: u64,
        missed: bool,
    },
}

/// A part of the array that is lost.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LostView {
    pub offset_bytes: u64,
    pub bytes: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CountersView {
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    pub trims: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Member operations by cause: user, parity, task, metadata.
    pub ios: [u64; 4],
    pub io_bytes: [u64; 4],
    /// Blocks of 4 KiB that reads asked for where anything was ever written, those of them that the read cache had, and
    /// those that members were asked for on account of the others.
    pub blocks_asked: u64,
    pub blocks_cached: u64,
    pub blocks_fetched: u64,
    pub degraded_reads: u64,
    pub full_row_writes: u64,
    pub read_modify_writes: u64,
    pub reconstruct_writes: u64,
    pub repaired_sectors: u64,
}

impl CountersView {
    /// The requests generation ratio of Victim Disk First: blocks read from members for each that users asked for.
    pub fn requests_generation_ratio(&self) -> Option<f64> {
        (self.blocks_asked > 0).then(|| self.blocks_fetched as f64 / self.blocks_asked as f64)
    }
}

/// What users read, by zones. Reads of earlier epochs count half for each epoch since.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct HeatView {
    pub schema: u32,
    pub name: String,
    pub zone_bytes: u64,
    pub zones: u64,
    /// Of these, the ones that anybody reads.
    pub zones_read: u64,
    /// A read counts in every zone that it touches.
    pub reads: f64,
    /// Share of the reads that fall on the hottest fifth of all zones: what IDO's order rebuilds first.
    pub hot_share: f64,
    /// The hottest first.
    pub hottest: Vec<ZoneView>,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ZoneView {
    pub offset_bytes: u64,
    pub reads: f64,
}

impl HeatView {
    /// Of a map, with so many of its zones at most.
    pub fn new(name: &str, map: &HeatMap, most: usize) -> HeatView {
        let zones = map.hottest();
        let reads_in = |zones: &[u32]| {
            let popularity = |zone: &u32| u64::from(map.popularity[*zone as usize]);
            let parts: u64 = zones.iter().map(popularity).sum();
            parts as f64 / f64::from(HeatMap::READ)
        };
        let hot = zones.len().min(map.hot_zones());
        let reads = reads_in(&zones);
        let zone_bytes = map.zone_sectors * SECTOR_BYTES;
        HeatView {
            schema: SCHEMA,
            name: name.into(),
            zone_bytes,
            zones: map.popularity.len() as u64,
            zones_read: zones.len() as u64,
            reads,
            hot_share: if reads > 0.0 {
                reads_in(&zones[..hot]) / reads
            } else {
                0.0
            },
            hottest: zones
                .iter()
                .take(most)
                .map(|zone| ZoneView {
                    offset_bytes: u64::from(*zone) * zone_bytes,
                    reads: reads_in(&[*zone]),
                })
                .collect(),
        }
    }
}

/// A member by the number that `status` has for it and, where it is known, the path under which it was opened: where
/// slots and numbers differ, a number alone may be taken for the wrong one.
pub fn member_name(member: Member, path: Option<&str>) -> String {
    match path {
        Some(path) => format!("member {} ({path})", member.0),
        None => format!("member {}", member.0),
    }
}

impl StatusView {
    /// The array's, its surrogate's and those of that one's buffer: a member is told by its path.
    pub fn all_members(&self) -> impl Iterator<Item = &MemberView> {
        let buffer = self.surrogate.iter().flat_map(|one| &one.buffer);
        self.disks().chain(buffer.flat_map(|one| &one.members))
    }

    /// The same, in the same order: the disks first.
    pub fn all_members_mut(&mut self) -> impl Iterator<Item = &mut MemberView> {
        let others = self.surrogate.iter_mut().flat_map(|one| {
            let buffer = one.buffer.iter_mut().flat_map(|one| &mut one.members);
            one.members.iter_mut().chain(buffer)
        });
        self.members.iter_mut().chain(others)
    }

    /// The array's and its surrogate's, which may have spindles.
    pub fn disks(&self) -> impl Iterator<Item = &MemberView> {
        let of_surrogate = self.surrogate.iter().flat_map(|one| &one.members);
        self.members.iter().chain(of_surrogate)
    }

    /// Of a set by itself.
    pub(super) fn of_set(
        set: &SetStatus,
        now: Nanos,
        path_of: impl Fn(u16) -> String,
    ) -> StatusView {
        StatusView::new(&Status::from(set.clone()), now, path_of)
    }

    /// The engine's own view, with the paths that only the shell knows. `now` is the shell's clock, for the ETA.
    pub fn new(status: &Status, now: Nanos, path_of: impl Fn(u16) -> String) -> StatusView {
        let path_of: &dyn Fn(u16) -> String = &path_of;
        let geometry = status.geometry;
        let skew = geometry.and_then(|g| g.skew);
        let surrogate = SurrogateView::of(status, now, path_of).map(Box::new);
        let troubled = surrogate.as_deref().is_some_and(SurrogateView::is_troubled);
        let own_state = state_word(status.state);
        StatusView {
            schema: SCHEMA,
            name: status.name.clone(),
            uuid: status.uuid.to_string(),
            generation: status.generation,
            state: match status.state {
                ArrayState::Healthy | ArrayState::Degraded if refusal::had_to(status) => {
                    refusal::READ_ONLY.into()
                }
                // What has the only current copies is as much of the array as its own members.
                ArrayState::Healthy if troubled => state_word(ArrayState::Degraded).into(),
                _ => own_state.into(),
            },
            own_state: own_state.into(),
            level: geometry.map_or("", |g| level_word(g.level)).into(),
            rotation: geometry.map_or("", |g| rotation_word(g.level)).into(),
            slots: geometry.map_or(0, |g| g.slots),
            groups: skew.map(|skew| skew.groups),
            partitions: skew.map(|skew| skew.partitions),
            chunk_bytes: geometry.map_or(0, |g| chunk_bytes(&g)),
            size_bytes: status.size_bytes,
            logical_block_bytes: status.logical_block,
            read_only: status.read_only,
            volatile: !status.is_durable(),
            refuses_writes: RefusalView::of(status, path_of),
            members: status
                .members
                .iter()
                .map(|m| member_view(m, status, now, path_of(m.member.0)))
                .collect(),
            missing_slots: missing_slots(status),
            tasks: status
                .tasks
                .iter()
                .map(|task| task_view(task, wait_of(task, status), now))
                .collect(),
            dropped_tasks: DroppedView::all_of(status),
            lost_bytes: status
                .lost
                .iter()
                .map(|(_, sectors)| sectors * SECTOR_BYTES)
                .sum(),
            lost: status
                .lost
                .iter()
                .take(LOST_LISTED_MAX)
                .map(lost_view)
                .collect(),
            in_doubt_bytes: status.in_doubt * SECTOR_BYTES,
            last_scrub: LastScrubView::of(status, path_of),
            counters: counters_view(&status.counters),
            surrogate,
            lends: LendingView::of(status),
            energy: None,
        }
    }
}

fn missing_slots(status: &Status) -> Vec<u16> {
    let slots = 0..status.geometry.map_or(0, |geometry| geometry.slots);
    let stands = |slot: &u16| {
        status
            .members
            .iter()
            .any(|member| member.slot == Some(*slot))
    };
    slots.filter(|slot| !stands(slot)).collect()
}

fn chunk_bytes(geometry: &Geometry) -> u64 {
    u64::from(geometry.chunk_sectors) * SECTOR_BYTES
}

fn lost_view(&(lba, sectors): &(u64, u64)) -> LostView {
    LostView {
        offset_bytes: lba * SECTOR_BYTES,
        bytes: sectors * SECTOR_BYTES,
    }
}

fn member_view(member: &MemberStatus, status: &Status, now: Nanos, path: String) -> MemberView {
    let hosted = |&(slot, partition): &(u16, u16)| HostedView { slot, partition };
    MemberView {
        hosts: member.hosts.iter().map(hosted).collect(),
        member: member.member.0,
        path,
        uuid: member.uuid.to_string(),
        slot: member.slot,
        state: match member.state {
            MemberState::Failed if member.replaced => "replaced",
            other => member_word(other),
        }
        .into(),
        volatile: member.volatile,
        full: member.full,
        read_errors: member.read_errors,
        exposed_bytes: exposed_bytes(member, status),
        spindle: Some(SpindleView::new(&member.spent.until(now))),
    }
}

/// What a member would take with it, at most: what is exposed at all, of one that serves first copies.
fn exposed_bytes(member: &MemberStatus, status: &Status) -> u64 {
    let alone = member.has_firsts && member.state == MemberState::Active;
    let overlay = status.surrogate.as_ref().and_then(|one| one.overlay);
    match overlay.filter(|_| alone) {
        Some(overlay) => exposed_sectors(&overlay) * SECTOR_BYTES,
        None => 0,
    }
}

/// Windows are given to one task at a time.
fn wait_of(task: &TaskStatus, status: &Status) -> &'static str {
    match status.read_only {
        _ if task.paused => "",
        true => "read-only",
        false if task.kind == TaskKind::Growth && status.state == ArrayState::Degraded => "members",
        false if !task.first => "another-task",
        false => "",
    }
}

fn task_view(task: &TaskStatus, waits: &str, now: Nanos) -> TaskView {
    TaskView {
        kind: task_word(task.kind).into(),
        slot: task.slot,
        paused: task.paused,
        waits: waits.into(),
        rows_done: task.rows_done,
        rows_total: task.rows_total,
        rate_bytes: task.rate(now),
        eta_seconds: task.lasts(now).map(|lasts| lasts.0.div_ceil(1_000_000_000)),
        mismatches: task.mismatches,
        rate_min_bytes: task.pacing.rate_min,
        rate_max_bytes: at_most(task.pacing.rate_max),
        throttle: task.pacing.throttle.to_string(),
        order: task.pacing.order.name().into(),
        on_demand: task.pacing.on_demand,
        aim: task.aim.map(|aim| aim_view(aim, now)),
    }
}

/// A limit, if it is one.
fn at_most(rate: u64) -> Option<u64> {
    Some(rate).filter(|rate| *rate < u64::MAX)
}

fn aim_view(aim: Aim, now: Nanos) -> AimView {
    let microseconds = |time: Nanos| time.0.div_ceil(1000);
    match aim {
        Aim::Latency {
            percentile,
            at_most,
            is,
            rate,
            missed,
        } => AimView::Latency {
            percentile,
            at_most_us: microseconds(at_most),
            is_us: is.map(microseconds),
            rate_bytes: rate,
            missed,
        },
        Aim::Finish { by, needs, missed } => AimView::Finish {
            within_seconds: by.since(now).0 / 1_000_000_000,
            needs_bytes: needs,
            missed,
        },
    }
}

fn counters_view(c: &Counters) -> CountersView {
    CountersView {
        reads: c.reads,
        writes: c.writes,
        flushes: c.flushes,
        trims: c.trims,
        read_bytes: c.read_bytes,
        written_bytes: c.written_bytes,
        ios: c.ios,
        io_bytes: c.io_bytes,
        blocks_asked: c.blocks_asked,
        blocks_cached: c.blocks_cached,
        blocks_fetched: c.blocks_fetched,
        degraded_reads: c.degraded_reads,
        full_row_writes: c.full_row_writes,
        read_modify_writes: c.read_modify_writes,
        reconstruct_writes: c.reconstruct_writes,
        repaired_sectors: c.repaired_sectors,
    }
}

pub(super) fn state_word(state: ArrayState) -> &'static str {
    match state {
        ArrayState::Starting => "starting",
        ArrayState::Healthy => "healthy",
        ArrayState::Degraded => "degraded",
        ArrayState::Failed => "failed",
        ArrayState::Stopping => "stopping",
        ArrayState::Stopped => "stopped",
    }
}

fn level_word(level: Level) -> &'static str {
    match level {
        Level::Raid0 => "raid0",
        Level::Raid1 => "raid1",
        Level::Raid4 => "raid4",
        Level::Raid5(_) => "raid5",
        Level::Raid6(_) => "raid6",
        Level::Raid10 { .. } => "raid10",
        Level::ReedSolomon { parities } => {
            let names = ["rs3", "rs4", "rs5", "rs6", "rs7", "rs8"];
            let more = usize::from(parities).checked_sub(3);
            more.and_then(|more| names.get(more)).unwrap_or(&"rs")
        }
    }
}

fn rotation_word(level: Level) -> &'static str {
    let rotation = match level {
        Level::Raid5(rotation) | Level::Raid6(rotation) => rotation,
        Level::ReedSolomon { .. } => Rotation::LeftSymmetric,
        _ => return "",
    };
    match rotation {
        Rotation::LeftAsymmetric => "left-asymmetric",
        Rotation::RightAsymmetric => "right-asymmetric",
        Rotation::LeftSymmetric => "left-symmetric",
        Rotation::RightSymmetric => "right-symmetric",
        Rotation::ParityFirst => "parity-first",
        Rotation::ParityLast => "parity-last",
    }
}

fn member_word(state: MemberState) -> &'static str {
    match state {
        MemberState::Active => "active",
        MemberState::Rebuilding => "rebuilding",
        MemberState::Spare => "spare",
        MemberState::Failed => "failed",
        MemberState::Foreign => "foreign",
    }
}

pub(super) fn task_word(kind: TaskKind) -> &'static str {
    match kind {
        TaskKind::Rebuild => "rebuild",
        TaskKind::Replace => "replace",
        TaskKind::Resync => "resync",
        TaskKind::Check => "check",
        TaskKind::Repair => "repair",
        TaskKind::Growth => "growth",
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::Reply;
    use super::*;
    use restripe_array::energy::Spent;
    use restripe_array::report::{Moved, Pacing};
    use restripe_array::{Order, Throttle, Uuid};

    #[test]
    fn a_view_carries_what_the_engine_says() {
        let status = Status::from(SetStatus {
            name: "tank".into(),
            state: ArrayState::Degraded,
            geometry: Some(Geometry {
                level: Level::Raid5(Rotation::LeftSymmetric),
                slots: 3,
                chunk_sectors: 128,
                slot_sectors: 1280,
                ..Geometry::PLAIN
            }),
            members: vec![MemberStatus {
                volatile: false,
                replaced: false,
                full: false,
                member: Member(2),
                uuid: Uuid::NIL,
                slot: Some(1),
                has_firsts: true,
                hosts: vec![(3, 2)],
                state: MemberState::Rebuilding,
                read_errors: 7,
                spent: Spent::default(),
            }],
            tasks: vec![TaskStatus {
                kind: TaskKind::Rebuild,
                slot: Some(1),
                paused: false,
                first: true,
                rows_done: 5,
                rows_total: 10,
                moved: Some(Moved {
                    since: Nanos::ZERO,
                    bytes: 1 << 20,
                }),
                left: (5 << 20) / 2,
                pacing: Pacing {
                    rate_min: 1 << 10,
                    rate_max: 1 << 30,
                    throttle: Throttle::Restripe,
                    order: Order::Ido,
                    on_demand: true,
                },
                aim: Some(Aim::Latency {
                    percentile: 99,
                    at_most: Nanos::from_millis(20),
                    is: Some(Nanos(18_000_001)),
                    rate: 5 << 20,
                    missed: false,
                }),
                mismatches: 0,
            }],
            lost: vec![(8, 8)],
            ..SetStatus::default()
        });
        let view = StatusView::new(&status, Nanos(1_000_000_000), |member| format!("d{member}"));
        assert_eq!(
            (
                view.level.as_str(),
                view.rotation.as_str(),
                view.chunk_bytes
            ),
            ("raid5", "left-symmetric", 65536)
        );
        assert_eq!(
            (
                view.members[0].path.as_str(),
                view.members[0].state.as_str()
            ),
            ("d2", "rebuilding")
        );
        let task = &view.tasks[0];
        assert_eq!(
            (task.rate_bytes, task.eta_seconds),
            (Some(1 << 20), Some(3))
        );
        assert_eq!(
            (task.rate_min_bytes, task.rate_max_bytes),
            (1 << 10, Some(1 << 30))
        );
        assert_eq!((&*task.throttle, &*task.order), ("restripe", "ido"));
        assert!(task.on_demand);
        let aim = AimView::Latency {
            percentile: 99,
            at_most_us: 20_000,
            is_us: Some(18_001),
            rate_bytes: 5 << 20,
            missed: false,
        };
        assert_eq!(task.aim, Some(aim));
        assert_eq!(task.waits, "");
        assert_eq!(view.missing_slots, [0, 2]);
        assert_eq!(
            view.lost[0],
            LostView {
                offset_bytes: 4096,
                bytes: 4096
            }
        );
        let read_only = Status::from(SetStatus {
            read_only: true,
            ..status.set.clone()
        });
        let view_read_only = StatusView::new(&read_only, Nanos::ZERO, |_| String::new());
        assert_eq!(view_read_only.tasks[0].waits, "read-only");
        let text = serde_json::to_string(&Reply::Status(Box::new(view.clone())))
            .expect("a view is plain data");
        let back: Reply = serde_json::from_str(&text).expect("what we write we read");
        assert_eq!(back, Reply::Status(Box::new(view)));
    }
}
