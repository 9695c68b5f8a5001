//! What a client is told of an array's surrogate: the set, and what of the array lies there.

use super::schema::{MemberView, StatusView, TaskView, state_word};
use restripe_array::meta::BufferMark;
use restripe_array::report::ArrayState;
use restripe_array::{Nanos, SECTOR_BYTES};
use restripe_tier::overlay::{Kind, SealCause};
use restripe_tier::report::{BufferStatus, OverlayStatus, Status, SurrogateStatus};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

view! {
    /// The surrogate's set, as an array of its own, and the part that only an array with a surrogate has.
    /// `home` is the state of the array itself.
    SurrogateView: fn new(surrogate: &SurrogateStatus, home: ArrayState, now: Nanos, path_of: impl Fn(u16) -> String) {
        let buffer = surrogate.buffer.as_ref();
        let buffer = buffer.map(|one| BufferView::new(surrogate, one, now, &path_of));
        let set = StatusView::of_set(&surrogate.set, now, path_of);
        let waits = surrogate.overlay.is_none() && surrogate.set.state == ArrayState::Starting;
        let logless = surrogate.overlay.as_ref().is_some_and(|one| one.logless);
        let state = match waits && home != ArrayState::Starting {
            _ if logless => "none".into(),
            true => "absent".into(),
            false => set.state,
        };
    } => {
        name: String = set.name,
        uuid: String = set.uuid,
        /// As an array's, or `absent`: its members are not enough to start it, and the array is served
        /// without; or `none`: there is none, and first copies go ahead without a log.
        state: String = state,
        level: String = set.level,
        slots: u16 = set.slots,
        /// What its members give a log.
        size_bytes: u64 = set.size_bytes,
        members: Vec<MemberView> = set.members,
        missing_slots: Vec<u16> = set.missing_slots,
        tasks: Vec<TaskView> = set.tasks,
        /// Sectors of its own members that were unreadable or wrong and were written again, since the start.
        #[serde(default)]
        repaired_sectors: u64 = set.counters.repaired_sectors,
        /// None while the array is served without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        overlay: Option<OverlayView> = surrogate.overlay.as_ref().map(|one| OverlayView::new(one, now)),
        /// Of a code cache that was made with one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        buffer: Option<BufferView> = buffer,
    }
}

view! {
    /// A code cache's buffer in persistent memory, as an array of its own.
    BufferView: fn new(surrogate: &SurrogateStatus, buffer: &BufferStatus, now: Nanos, path_of: impl Fn(u16) -> String) {
        let set = StatusView::of_set(&buffer.set, now, path_of);
        let waits = buffer.records.is_none() && buffer.set.state == ArrayState::Starting;
        let absent = waits && surrogate.overlay.is_some();
    } => {
        name: String = set.name,
        uuid: String = set.uuid,
        /// As an array's, or `absent`.
        state: String = if absent { "absent".into() } else { set.state },
        level: String = set.level,
        slots: u16 = set.slots,
        members: Vec<MemberView> = set.members,
        missing_slots: Vec<u16> = set.missing_slots,
        tasks: Vec<TaskView> = set.tasks,
        /// Flushes go there.
        used: bool = buffer.records.is_some(),
        /// What users flushed may lie there alone: no start goes on without it.
        needed: bool = buffer.mark == BufferMark::Counts,
        /// Records that lie there and are not durable in the log.
        records: u32 = buffer.records.unwrap_or(0),
        /// Versions of records that were written there, since the start.
        versions: u64 = surrogate.overlay.as_ref().map_or(0, |one| one.counters.versions),
    }
}

view! {
    /// What of the array lies in its surrogate.
    OverlayView: fn new(overlay: &OverlayStatus, now: Nanos) {
        let bytes = |sectors: u64| sectors * SECTOR_BYTES;
        let [instead, also, clean] = overlay.sectors.map(bytes);
        let (ahead, away) = match overlay.ahead {
            true => (also, instead),
            false => (0, instead + also),
        };
        let counters = &overlay.counters;
    } => {
        /// `none`, `workout`, `vdf`, `ido`, `reraid`, `graid` or `eraid`.
        redirect: String = overlay.redirect.name().into(),
        /// Extents of the map from the array to the log (IDO's D_Map), and how many it can have.
        extents: u32 = overlay.extents,
        extents_max: u32 = overlay.capacity,
        /// Bytes of which the surrogate has the only current copy.
        away_bytes: u64 = away,
        /// Bytes that first copies of the array have, and further ones do not.
        #[serde(default)]
        ahead_bytes: u64 = ahead,
        /// Of these, such as nobody else has: a first copy that is lost takes them with it.
        #[serde(default)]
        exposed_bytes: u64 = bytes(exposed_sectors(overlay)),
        /// Bytes with a copy there that may be dropped at any time.
        clean_bytes: u64 = clean,
        /// Of the whole log.
        log_bytes: u64 = bytes(overlay.log_sectors),
        /// What is away is being copied home.
        going_home: bool = overlay.going_home,
        /// The log failed: what must go there is refused, unless the array goes on without it.
        broken: bool = overlay.broken,
        /// It failed, and first copies have all that it had: writes go on without it.
        #[serde(default)]
        without_log: bool = overlay.without_log,
        /// The log has no room, and what lies there does not go home: it failed for want of space, or the
        /// last way home was cut short.
        #[serde(default)]
        full: bool = overlay.full,
        /// Since the start, as all that follows: writes that went there.
        redirected_writes: u64 = counters.redirected_writes,
        /// Reads answered from there alone, and from there and from home.
        log_reads: u64 = counters.reads_of_log,
        split_reads: u64 = counters.reads_of_both,
        /// Bytes that came home.
        home_bytes: u64 = bytes(counters.sectors_destaged),
        /// Clean copies made.
        clean_copies: u64 = counters.clean_copies,
        /// Ways home of all that lay there.
        #[serde(default)]
        destages: u64 = overlay.destages,
        /// How often a code cache was cleaned instead, and bytes that were moved for it.
        #[serde(default)]
        cleanings: u64 = counters.cleanings,
        #[serde(default)]
        moved_bytes: u64 = bytes(counters.sectors_moved),
        /// Mirrors that stand still now, and how often they were let.
        #[serde(default)]
        mirrors_asleep: u16 = overlay.mirrors_asleep,
        /// Mirrors that were told to stand still, and cannot.
        #[serde(default)]
        mirrors_restless: u16 = overlay.mirrors_restless,
        #[serde(default)]
        rests: u64 = overlay.rests,
        /// Where they may: how often a day at most, and how often at once now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        starts_a_day_max: Option<u32> = overlay.budget.map(|budget| budget.starts_a_day),
        #[serde(default, skip_serializing_if = "Option::is_none")]
        starts_left: Option<u32> = overlay.budget.map(|budget| budget.left(now)),
        /// Of a code cache: records that were gathered in memory and sealed, by cause: `full`, `age`,
        /// `flush`, `fua`, `destage`, `stop`, `failed`. Empty where nothing is gathered.
        #[serde(default)]
        seals: BTreeMap<String, u64> = seals(overlay),
    }
}

impl SurrogateView {
    /// Whether an array that needs it is no better off than with a member too few: a set of its is degraded
    /// or failed, or its log takes no more.
    pub fn is_troubled(&self) -> bool {
        let log = self.overlay.as_ref();
        let buffer = self.buffer.as_ref();
        self.is_degraded()
            || buffer.is_some_and(BufferView::is_degraded)
            || log.is_some_and(|log| log.full || log.broken)
    }

    pub fn is_degraded(&self) -> bool {
        is_degraded(&self.state)
    }

    /// Of an array, if it has one.
    pub(super) fn of(
        status: &Status,
        now: Nanos,
        path_of: impl Fn(u16) -> String,
    ) -> Option<SurrogateView> {
        let surrogate = status.surrogate.as_deref()?;
        Some(SurrogateView::new(surrogate, status.state, now, path_of))
    }
}

impl BufferView {
    pub fn is_degraded(&self) -> bool {
        is_degraded(&self.state)
    }
}

/// By a state's word.
fn is_degraded(state: &str) -> bool {
    let words = [ArrayState::Degraded, ArrayState::Failed].map(state_word);
    words.contains(&state)
}

/// What first copies have and nobody else has.
pub(super) fn exposed_sectors(overlay: &OverlayStatus) -> u64 {
    match overlay.ahead && overlay.alone {
        true => overlay.sectors[Kind::Also as usize],
        false => 0,
    }
}

/// Records sealed, by the cause's name.
fn seals(overlay: &OverlayStatus) -> BTreeMap<String, u64> {
    let count = |cause: SealCause| overlay.counters.seals[cause as usize];
    let all = SealCause::ALL.into_iter();
    match overlay.code_cache {
        Some(_) => all.map(|one| (one.name().into(), count(one))).collect(),
        None => BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use restripe_array::report::Status as SetStatus;
    use restripe_tier::Redirect;
    use restripe_tier::overlay::OverlayCounters;

    fn surrogate(state: ArrayState, overlay: Option<OverlayStatus>) -> SurrogateStatus {
        let set = SetStatus {
            name: "tank-surrogate".into(),
            state,
            ..SetStatus::default()
        };
        SurrogateStatus {
            buffer: None,
            set,
            overlay,
        }
    }

    #[test]
    fn a_surrogate_that_did_not_start_is_absent() {
        let of = |home, own| {
            let told = surrogate(own, None);
            SurrogateView::new(&told, home, Nanos::ZERO, |_| String::new()).state
        };
        let (starting, healthy) = (ArrayState::Starting, ArrayState::Healthy);
        assert_eq!(of(healthy, starting), "absent");
        assert_eq!(of(starting, starting), "starting");
        assert_eq!(of(healthy, healthy), "healthy");
    }

    #[test]
    fn sectors_become_bytes_by_kind() {
        let overlay = OverlayStatus {
            redirect: Redirect::Ido,
            extents: 3,
            capacity: 40,
            sectors: [8, 4, 2],
            log_sectors: 4096,
            going_home: true,
            mirrors_asleep: 0,
            mirrors_restless: 1,
            rests: 0,
            destages: 0,
            budget: None,
            code_cache: None,
            broken: true,
            without_log: true,
            full: false,
            ahead: true,
            alone: true,
            logless: false,
            counters: OverlayCounters {
                redirected_writes: 5,
                reads_of_log: 6,
                reads_of_both: 7,
                sectors_destaged: 16,
                clean_copies: 9,
                cleanings: 2,
                sectors_moved: 24,
                ..OverlayCounters::default()
            },
        };
        let view = OverlayView::new(&overlay, Nanos::ZERO);
        let wanted = OverlayView {
            redirect: "ido".into(),
            extents: 3,
            extents_max: 40,
            away_bytes: 4096,
            ahead_bytes: 2048,
            exposed_bytes: 2048,
            clean_bytes: 1024,
            log_bytes: 2 << 20,
            going_home: true,
            broken: true,
            without_log: true,
            redirected_writes: 5,
            log_reads: 6,
            split_reads: 7,
            home_bytes: 8192,
            clean_copies: 9,
            cleanings: 2,
            moved_bytes: 12288,
            mirrors_restless: 1,
            ..OverlayView::default()
        };
        assert_eq!(view, wanted);
    }
}
