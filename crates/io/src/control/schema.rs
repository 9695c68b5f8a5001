//! The views of an array's status: the one schema of the control socket, of `--json` and of the metrics.
//!
//! Units are in the names. Fields are added, and from the first release on never given a new meaning;
//! [`SCHEMA`] grows when one is taken away.

use super::attached::AttachedView;
use super::energy::{EnergyView, SpindleView};
use super::lending::LendingView;
use super::refusal::{self, RefusalView};
use super::scrub::LastScrubView;
use super::surrogate::{SurrogateView, exposed_sectors};
use restripe_array::layout::{Level, Rotation};
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

view! {
    /// The engine's own view, with the paths that only the shell knows. `now` is the shell's clock, for the
    /// ETA.
    StatusView: pub fn new(status: &Status, now: Nanos, path_of: impl Fn(u16) -> String) {
        let path_of: &dyn Fn(u16) -> String = &path_of;
        let geometry = status.geometry;
        let skew = geometry.and_then(|g| g.skew);
        let surrogate = SurrogateView::of(status, now, path_of).map(Box::new);
        let troubled = surrogate.as_deref().is_some_and(SurrogateView::is_troubled);
        let own_state = state_word(status.state);
        let member = |one: &MemberStatus| MemberView::new(one, status, now, path_of(one.member.0));
        let task = |task| TaskView::new(task, wait_of(task, status), now);
    } => {
        schema: u32 = SCHEMA,
        name: String = status.name.clone(),
        uuid: String = status.uuid.to_string(),
        generation: u64 = status.generation,
        /// `starting`, `healthy`, `degraded`, `failed`, `read-only`, `stopping` or `stopped`: of all that it
        /// needs, its surrogate's sets and log, too. `read-only`: it had to stop writing, for what
        /// `refuses_writes` says.
        state: String = match status.state {
            ArrayState::Healthy | ArrayState::Degraded if refusal::had_to(status) => {
                refusal::READ_ONLY.into()
            }
            // What has the only current copies is as much of the array as its own members.
            ArrayState::Healthy if troubled => state_word(ArrayState::Degraded).into(),
            _ => own_state.into(),
        },
        /// The same of the array's own members alone.
        #[serde(default)]
        own_state: String = own_state.into(),
        /// `raid0`, `raid1`, `raid4`, `raid5`, `raid6` or `raid10`; empty until started.
        level: String = geometry.map_or("", |g| level_word(g.level)).into(),
        /// md's name of the rotation, for raid5 and raid6.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        rotation: String = geometry.map_or("", |g| rotation_word(g.level)).into(),
        slots: u16 = geometry.map_or(0, |g| g.slots),
        /// Groups of the slots and partitions of each, of a skewed array.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        groups: Option<u16> = skew.map(|skew| skew.groups),
        #[serde(default, skip_serializing_if = "Option::is_none")]
        partitions: Option<u16> = skew.map(|skew| skew.partitions),
        chunk_bytes: u64 = geometry.map_or(0, |g| u64::from(g.chunk_sectors) * SECTOR_BYTES),
        size_bytes: u64 = status.size_bytes,
        logical_block_bytes: u32 = status.logical_block,
        read_only: bool = status.read_only,
        /// A member that is current makes nothing durable: clients are offered neither FLUSH nor FUA.
        #[serde(default)]
        volatile: bool = !status.is_durable(),
        /// Why writes are refused, if they are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refuses_writes: Option<RefusalView> = RefusalView::of(status, path_of),
        members: Vec<MemberView> = status.members.iter().map(member).collect(),
        /// Slots that no member here stands in.
        #[serde(default)]
        missing_slots: Vec<u16> = missing_slots(status),
        tasks: Vec<TaskView> = status.tasks.iter().map(task).collect(),
        /// Tasks of the array and its surrogate that the start dropped, since their targets are missing.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        dropped_tasks: Vec<DroppedView> = DroppedView::all_of(status),
        /// All that is lost, also what is beyond the list below.
        lost_bytes: u64 = status.lost.iter().map(|(_, sectors)| sectors * SECTOR_BYTES).sum(),
        /// The first parts that are lost, [`LOST_LISTED_MAX`] at most.
        lost: Vec<LostView> = status.lost.iter().take(LOST_LISTED_MAX).map(LostView::new).collect(),
        /// An upper bound of the bytes that only primary copies have. Until a resync has passed them, the
        /// loss of a primary copy loses its bytes.
        #[serde(default)]
        in_doubt_bytes: u64 = status.in_doubt * SECTOR_BYTES,
        /// The scrub that runs, or the last one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last_scrub: Option<LastScrubView> = LastScrubView::of(status, path_of),
        counters: CountersView = CountersView::new(&status.counters),
        /// Of an array that is served with one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        surrogate: Option<Box<SurrogateView>> = surrogate,
        /// Of an array that lends.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lends: Option<LendingView> = LendingView::of(status),
        /// The block device of this machine that it is attached to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attached: Option<AttachedView> = None,
        /// What its members may have drawn, and its surrogate's: of an array whose mirrors may sleep, or for
        /// which a rating was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        energy: Option<EnergyView> = None,
    }
}

view! {
    /// What a growth would do to an array that is like this now.
    GrowthView: pub fn new(plan: &GrowthPlan, status: &Status) => {
        slots: u16 = status.geometry.map_or(0, |geometry| geometry.slots),
        slots_after: u16 = plan.slots,
        size_bytes: u64 = status.size_bytes,
        size_bytes_after: u64 = plan.size_bytes,
        /// Only the new members' share moves, each chunk within its row; otherwise every chunk is dealt anew.
        #[serde(default)]
        least_moves: bool = plan.least_moves,
        /// Users' bytes that are copied, about.
        moved_bytes: u64 = plan.moved_bytes,
        /// Bytes that a new member takes, as limits of its rate count them.
        member_bytes: u64 = plan.member_bytes,
        /// The limits of its rate; no maximum if there is none.
        rate_min_bytes: u64 = plan.pacing.rate_min,
        rate_max_bytes: Option<u64> = at_most(plan.pacing.rate_max),
        /// That a new member has to have.
        needs_bytes: u64 = plan.needs_bytes,
        /// The member whose parity moves to a spare, and that spare, if it was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parity_from: Option<String> = None,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parity_to: Option<String> = None,
    }
}

view! {
    MemberView: fn new(member: &MemberStatus, status: &Status, now: Nanos, path: String) => {
        member: u16 = member.member.0,
        path: String = path,
        uuid: String = member.uuid.to_string(),
        slot: Option<u16> = member.slot,
        /// Partitions of other slots that lie on it, or are rebuilt there.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        hosts: Vec<HostedView> = member.hosts.iter().map(HostedView::new).collect(),
        /// `active`, `rebuilding`, `spare`, `failed`, `replaced` (failed, because another took its place) or
        /// `foreign`.
        state: String = match member.state {
            MemberState::Failed if member.replaced => "replaced",
            other => member_word(other),
        }
        .into(),
        /// It takes neither flushes nor durable writes.
        #[serde(default)]
        volatile: bool = member.volatile,
        /// Its last write found no space: it failed for that, or the array refuses writes.
        #[serde(default)]
        full: bool = member.full,
        read_errors: u32 = member.read_errors,
        /// Those of them at what no other member recovers, since the start: they never fail the member.
        #[serde(default)]
        lost_errors: u32 = member.lost_errors,
        /// A first copy that goes ahead alone: so many bytes are lost with it, at most.
        #[serde(default, skip_serializing_if = "is_zero")]
        exposed_bytes: u64 = exposed_bytes(member, status),
        #[serde(default, skip_serializing_if = "Option::is_none")]
        spindle: Option<SpindleView> = Some(SpindleView::new(&member.spent.until(now))),
    }
}

view! {
    /// A task that does not go on, since its target is missing.
    DroppedView: fn new(set: &str, dropped: &DroppedTask) => {
        kind: String = task_word(dropped.kind).into(),
        slot: u16 = dropped.slot,
        /// The uuid of the missing target.
        target: String = dropped.target.to_string(),
        /// `array`, `surrogate` or `buffer`.
        set: String = set.into(),
        /// A start that writes, and has the target, goes on with it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        waits: bool = dropped.waits,
    }
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
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

view! {
    HostedView: fn new(hosted: &(u16, u16)) => {
        slot: u16 = hosted.0,
        partition: u16 = hosted.1,
    }
}

view! {
    TaskView: fn new(task: &TaskStatus, waits: &str, now: Nanos) => {
        /// `rebuild`, `replace`, `resync`, `check`, `repair` or `growth`.
        kind: String = task_word(task.kind).into(),
        slot: Option<u16> = task.slot,
        paused: bool = task.paused,
        rows_done: u64 = task.rows_done,
        rows_total: u64 = task.rows_total,
        /// Why it does not go though nobody paused it: `read-only`, `members` (some are missing that it
        /// needs), `growth` (which fills its target as it moves rows) or `another-task`. Empty if it goes.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        waits: String = waits.into(),
        /// Bytes of one member a second; none while that cannot be told yet.
        rate_bytes: Option<u64> = task.rate(now),
        /// Seconds to the end at this rate; none when nothing moves, or that cannot be told yet.
        eta_seconds: Option<u64> = task.lasts(now).map(|lasts| lasts.0.div_ceil(1_000_000_000)),
        mismatches: u64 = task.mismatches,
        /// The limits of its rate, bytes of one member a second; no maximum if there is none.
        #[serde(default)]
        rate_min_bytes: u64 = task.pacing.rate_min,
        #[serde(default)]
        rate_max_bytes: Option<u64> = at_most(task.pacing.rate_max),
        /// What paces it, and in which order it goes through the array.
        #[serde(default)]
        throttle: String = task.pacing.throttle.to_string(),
        #[serde(default)]
        order: String = task.pacing.order.name().into(),
        /// Reads of what is not rebuilt call it there.
        #[serde(default)]
        on_demand: bool = task.pacing.on_demand,
        /// What its throttle aims at, if at anything, and how it fares; while it goes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        aim: Option<AimView> = task.aim.map(|aim| aim_view(aim, now)),
    }
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
    /// It is to be done in so long, which takes so many bytes a second of one member: more than it may go, or
    /// can, if it is missed.
    Finish {
        within_seconds: u64,
        needs_bytes: u64,
        missed: bool,
    },
}

view! {
    /// A part of the array that is lost.
    LostView: fn new(extent: &(u64, u64)) => {
        offset_bytes: u64 = extent.0 * SECTOR_BYTES,
        bytes: u64 = extent.1 * SECTOR_BYTES,
    }
}

view! {
    CountersView: fn new(c: &Counters) => {
        reads: u64 = c.reads,
        writes: u64 = c.writes,
        flushes: u64 = c.flushes,
        trims: u64 = c.trims,
        read_bytes: u64 = c.read_bytes,
        written_bytes: u64 = c.written_bytes,
        /// Member operations by cause: user, parity, task, metadata.
        ios: [u64; 4] = c.ios,
        io_bytes: [u64; 4] = c.io_bytes,
        /// Blocks of 4 KiB that reads asked for where anything was ever written, those of them that the read
        /// cache had, and those that members were asked for on account of the others.
        blocks_asked: u64 = c.blocks_asked,
        blocks_cached: u64 = c.blocks_cached,
        blocks_fetched: u64 = c.blocks_fetched,
        degraded_reads: u64 = c.degraded_reads,
        full_row_writes: u64 = c.full_row_writes,
        read_modify_writes: u64 = c.read_modify_writes,
        reconstruct_writes: u64 = c.reconstruct_writes,
        repaired_sectors: u64 = c.repaired_sectors,
    }
}

impl CountersView {
    /// The requests generation ratio of Victim Disk First: blocks read from members for each that users asked
    /// for.
    pub fn requests_generation_ratio(&self) -> Option<f64> {
        (self.blocks_asked > 0).then(|| self.blocks_fetched as f64 / self.blocks_asked as f64)
    }
}

view! {
    /// What users read, by zones, with `most` of these at most. Reads of earlier epochs count half for each
    /// epoch since.
    HeatView: pub fn new(name: &str, map: &HeatMap, most: usize) {
        let zones = map.hottest();
        let reads_in = |zones: &[u32]| {
            let popularity = |zone: &u32| u64::from(map.popularity[*zone as usize]);
            let parts: u64 = zones.iter().map(popularity).sum();
            parts as f64 / f64::from(HeatMap::READ)
        };
        let hot = zones.len().min(map.hot_zones());
        let reads = reads_in(&zones);
        let zone = |zone: &u32| ZoneView {
            offset_bytes: u64::from(*zone) * map.zone_sectors * SECTOR_BYTES,
            reads: reads_in(&[*zone]),
        };
    } => {
        schema: u32 = SCHEMA,
        name: String = name.into(),
        zone_bytes: u64 = map.zone_sectors * SECTOR_BYTES,
        zones: u64 = map.popularity.len() as u64,
        /// Of these, the ones that anybody reads.
        zones_read: u64 = zones.len() as u64,
        /// A read counts in every zone that it touches.
        reads: f64 = reads,
        /// Share of the reads that fall on the hottest fifth of all zones: what IDO's order rebuilds first.
        hot_share: f64 = if reads > 0.0 { reads_in(&zones[..hot]) / reads } else { 0.0 },
        /// The hottest first.
        hottest: Vec<ZoneView> = zones.iter().take(most).map(zone).collect(),
    }
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ZoneView {
    pub offset_bytes: u64,
    pub reads: f64,
}

/// A member by the number that `status` has for it and, where it is known, the path under which it was
/// opened: where slots and numbers differ, a number alone may be taken for the wrong one.
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
}

fn missing_slots(status: &Status) -> Vec<u16> {
    let slots = 0..status.geometry.map_or(0, |geometry| geometry.slots);
    let taken: Vec<u16> = status.members.iter().filter_map(|one| one.slot).collect();
    slots.filter(|slot| !taken.contains(slot)).collect()
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
        false if task.rides => "growth",
        false if !task.first => "another-task",
        false => "",
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
    match level {
        Level::Raid5(rotation) | Level::Raid6(rotation) => rotation.name(),
        Level::ReedSolomon { .. } => Rotation::LeftSymmetric.name(),
        _ => "",
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
    use restripe_array::layout::Geometry;
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
                lost_errors: 2,
                spent: Spent::default(),
            }],
            tasks: vec![TaskStatus {
                kind: TaskKind::Rebuild,
                slot: Some(1),
                paused: false,
                first: true,
                rides: false,
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
        let (level, rotation) = (view.level.as_str(), view.rotation.as_str());
        assert_eq!((level, rotation), ("raid5", "left-symmetric"));
        assert_eq!(view.chunk_bytes, 65536);
        let MemberView { path, state, .. } = &view.members[0];
        assert_eq!((path.as_str(), state.as_str()), ("d2", "rebuilding"));
        let task = &view.tasks[0];
        assert_eq!(task.rate_bytes, Some(1 << 20));
        assert_eq!(task.eta_seconds, Some(3));
        assert_eq!(task.rate_min_bytes, 1 << 10);
        assert_eq!(task.rate_max_bytes, Some(1 << 30));
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
        let lost = &view.lost[0];
        assert_eq!((lost.offset_bytes, lost.bytes), (4096, 4096));
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
