//! What a client is told of spindles: how long each turned, worked and stood still, how often it started,
//! and what that may have drawn.
//!
//! Times and starts are what the engine saw. Joules are an estimate: nobody measures watts here, so a
//! drive's rating stands in for them.

use super::schema::StatusView;
use restripe_array::energy::{Phase, Rating, Spent};
use restripe_array::{Member, Nanos};
use restripe_tier::report::Status;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

view! {
    /// Of one member, since the daemon took it in.
    SpindleView: pub(super) fn new(spent: &Spent) {
        let ms = |phase: Phase| spent.time(phase).0 / 1_000_000;
    } => {
        /// Operations were under way; none were; it was told to stand still and did; it was wanted again, and
        /// nothing had ended; it was told, and had not answered.
        active_ms: u64 = ms(Phase::Active),
        idle_ms: u64 = ms(Phase::Idle),
        standby_ms: u64 = ms(Phase::Standby),
        starting_ms: u64 = ms(Phase::Starting),
        stopping_ms: u64 = ms(Phase::Stopping),
        starts: u64 = spent.starts,
        stops: u64 = spent.stops,
        /// Starts over the days counted, of which there is one at least.
        starts_a_day: f64 = spent.starts_a_day_hundredths() as f64 / 100.0,
        /// An estimate, where there is a rating.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        joules: Option<u64> = None,
    }
}

view! {
    /// Of all members together, by one rating: an estimate.
    EnergyView: fn sum(drives: &[Spent], by: &NamedRating) {
        let thousandths = |value: u64| value as f64 / 1e3;
        let rating = &by.rating;
        let nj: u128 = drives.iter().map(|spent| rating.energy_nj(spent)).sum();
        let watts = |spent: &Spent| rating.energy_nj(spent) as f64 / spent.total().0.max(1) as f64;
    } => {
        /// A drive's name, or `given`.
        rating: String = by.name.clone(),
        active_watts: f64 = thousandths(rating.active_mw.into()),
        idle_watts: f64 = thousandths(rating.idle_mw.into()),
        standby_watts: f64 = thousandths(rating.standby_mw.into()),
        start_joules: f64 = thousandths(rating.start_mj),
        stop_joules: f64 = thousandths(rating.stop_mj),
        /// Members on partitions of one disk are one drive.
        drives: u16 = u16::try_from(drives.len()).unwrap_or(u16::MAX),
        joules: u64 = joules(nj),
        /// The mean of all drives together, over the time for which each was counted.
        watts: f64 = drives.iter().map(watts).sum(),
    }
}

/// A rating, and what it is called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedRating {
    pub name: String,
    pub rating: Rating,
}

impl SpindleView {
    /// By name.
    pub fn phases(&self) -> [(&'static str, u64); 5] {
        let ms = |phase: Phase| match phase {
            Phase::Active => self.active_ms,
            Phase::Idle => self.idle_ms,
            Phase::Standby => self.standby_ms,
            Phase::Starting => self.starting_ms,
            Phase::Stopping => self.stopping_ms,
        };
        Phase::ALL.map(|phase| (phase.name(), ms(phase)))
    }
}

fn joules(nj: u128) -> u64 {
    u64::try_from(nj / 1_000_000_000).unwrap_or(u64::MAX)
}

impl StatusView {
    /// Adds what drives of this rating may have drawn. `status` is what this view was made of; `disk_of`
    /// names the disk on which a member is a partition, if it is one.
    pub fn estimate(
        &mut self,
        status: &Status,
        now: Nanos,
        by: &NamedRating,
        disk_of: impl Fn(Member) -> Option<String>,
    ) {
        let mut drives: BTreeMap<Result<String, Member>, Spent> = BTreeMap::new();
        for (member, view) in status.disks().zip(self.all_members_mut()) {
            let spent = member.spent.until(now);
            if let Some(spindle) = &mut view.spindle {
                spindle.joules = Some(joules(by.rating.energy_nj(&spent)));
            }
            let drive = disk_of(member.member).ok_or(member.member);
            let beside = drives.get(&drive).map(|other| other.beside(&spent));
            drives.insert(drive, beside.unwrap_or(spent));
        }
        let drives: Vec<Spent> = drives.into_values().collect();
        self.energy = Some(EnergyView::sum(&drives, by));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use restripe_array::Uuid;
    use restripe_array::report::{MemberState, MemberStatus, Status as SetStatus};

    fn member(number: u16, active: u64) -> MemberStatus {
        let mut spent = Spent::default();
        spent.turn(Nanos::from_secs(10), Phase::Active);
        spent.turn(Nanos::from_secs(10 + active), Phase::Idle);
        MemberStatus {
            volatile: false,
            replaced: false,
            full: false,
            member: Member(number),
            uuid: Uuid::NIL,
            slot: None,
            has_firsts: false,
            hosts: Vec::new(),
            state: MemberState::Active,
            read_errors: 0,
            lost_errors: 0,
            spent,
        }
    }

    /// Two members, for a hundred seconds each: of one disk they are one drive, which works for as long as
    /// both.
    #[test]
    fn members_of_one_disk_are_counted_once() {
        let status = Status::from(SetStatus {
            members: vec![member(0, 5), member(1, 3)],
            ..SetStatus::default()
        });
        let by = NamedRating {
            name: "given".into(),
            rating: Rating {
                active_mw: 8_000,
                idle_mw: 6_000,
                standby_mw: 1_000,
                start_mj: 100_000,
                stop_mj: 0,
            },
        };
        let now = Nanos::from_secs(110);
        let estimate = |disk: Option<&str>| {
            let mut view = StatusView::new(&status, now, |_| String::new());
            view.estimate(&status, now, &by, |_| disk.map(String::from));
            let of = |view: &SpindleView| view.joules.expect("there is a rating");
            let spindles = view.members.iter().flat_map(|one| &one.spindle);
            let each: Vec<u64> = spindles.map(of).collect();
            (each, view.energy.expect("there is a rating"))
        };
        let (each, apart) = estimate(None);
        assert_eq!(each, [5 * 8 + 95 * 6, 3 * 8 + 97 * 6]);
        assert_eq!((apart.drives, apart.joules), (2, 610 + 606));
        assert!((apart.watts - 12.16).abs() < 1e-9, "{}", apart.watts);
        let (each_still, one) = estimate(Some("sda"));
        assert_eq!(each_still, each);
        assert_eq!((one.drives, one.joules), (1, 8 * 8 + 92 * 6));
    }
}
