//! The status of an array with a log set: that of the main set, and of the others.

use super::facts::Stage;
use crate::config::Redirect;
use crate::overlay::{Kind, Overlay, OverlayCounters, Piece, Pressure, Site};
use crate::report::{BufferStatus, CodeCacheStatus, OverlayStatus, Status, SurrogateStatus};
use crate::tier::Tier;
use alloc::boxed::Box;
use alloc::vec::Vec;
use restripe_array::meta::BufferMark;
use restripe_array::parts::Power;
use restripe_array::report::{
    ArrayState, Health, MapExtent, MemberState, MemberStatus, Refusal, Status as SetStatus,
    WhyRefused,
};

/// Appends an extent, joined with the last one if they are alike. Returns false if there was no room.
fn push(into: &mut Vec<MapExtent>, extent: MapExtent, most: usize) -> bool {
    let full = into.len() >= most;
    match into.last_mut() {
        Some(last) if last.hole == extent.hole && last.health == extent.health => {
            last.sectors += extent.sectors;
        }
        _ if full => return false,
        _ => into.push(extent),
    }
    true
}

impl Tier {
    pub(crate) fn status(&self) -> Status {
        let mut set = self.set_status(Site::Home);
        set.state = match self.stage {
            Stage::Idle | Stage::Starting => ArrayState::Starting,
            Stage::Serving | Stage::MainOnly => set.state,
            Stage::Stopping(_) => ArrayState::Stopping,
            Stage::Stopped => ArrayState::Stopped,
        };
        if let Some(overlay) = &self.overlay {
            let lost = set.lost.iter();
            let left = lost.flat_map(|&(lba, sectors)| overlay.not_instead(lba..lba + sectors));
            set.lost = left.collect();
        }
        let elsewhere = self.takes_writes_elsewhere();
        let refused = |one: &Refusal| one.why != WhyRefused::NoSpace || !elsewhere;
        set.refusal = set.refusal.filter(refused);
        set.refusal = set.refusal.or_else(|| self.log_refuses());
        let surrogate = SurrogateStatus {
            set: self.set_status(Site::Log),
            buffer: self.buffer_status(),
            overlay: self.overlay_status(),
        };
        Status {
            set,
            surrogate: Some(Box::new(surrogate)),
        }
    }

    /// Whether a code cache has room for writes that the main set may have no space for.
    fn takes_writes_elsewhere(&self) -> bool {
        let room = |one: &Overlay| one.pressure() < Pressure::Reclaim;
        let gathers = self.surrogate.redirect == Redirect::Reraid;
        gathers && !self.home().halted() && self.overlay.as_ref().is_some_and(room)
    }

    /// Whether writes are refused because of the log: it cannot take the writes that must go there, and the
    /// main set would not have all of its data.
    fn log_refuses(&self) -> Option<Refusal> {
        let overlay = self.overlay.as_ref()?;
        let all_go_there = matches!(self.surrogate.redirect, Redirect::Reraid | Redirect::Graid);
        let broken = overlay.is_broken() && !self.goes_on_without_log();
        // If a failed log has writes that the main set lacks, every flush fails.
        let counts = all_go_there || self.log_has_no_space();
        let stands = counts && (broken || self.lacks_room());
        if self.stage != Stage::Serving || !stands {
            return None;
        }
        let log = self.set_status(Site::Log);
        let failed = log.members.iter();
        let failed = failed.filter(|one| one.state == MemberState::Failed);
        Some(match log.refusal {
            Some(refusal) if refusal.why == WhyRefused::NoSpace => Refusal {
                why: WhyRefused::LogFull,
                ..refusal
            },
            _ => Refusal {
                why: WhyRefused::LogFailed,
                members: failed.map(|one| one.member).collect(),
            },
        })
    }

    fn buffer_status(&self) -> Option<BufferStatus> {
        let any = self.surrogate.buffer_members > 0 || self.buffer_mark() != BufferMark::None;
        any.then(|| BufferStatus {
            set: self.set_status(Site::Nvram),
            mark: self.buffer_mark(),
            records: self.records_in_buffer(),
        })
    }

    fn set_status(&self, site: Site) -> SetStatus {
        let mut status = self.sets[site].status();
        let global = |status: MemberStatus| MemberStatus {
            member: self.route.global(site, status.member),
            ..status
        };
        status.members = status.members.into_iter().map(global).collect();
        for member in status.refusal.iter_mut().flat_map(|one| &mut one.members) {
            *member = self.route.global(site, *member);
        }
        status
    }

    fn overlay_status(&self) -> Option<OverlayStatus> {
        let overlay = self.overlay.as_ref()?;
        let map = overlay.map();
        let (mirrors_asleep, rests, destages) = self.rests();
        Some(OverlayStatus {
            redirect: self.surrogate.redirect,
            extents: map.extent_count(),
            capacity: map.capacity(),
            sectors: Kind::ALL.map(|kind| map.total(kind).sectors),
            log_sectors: overlay.log_sectors(),
            going_home: overlay.is_destaging(),
            broken: (overlay.is_broken() || self.shelves(Site::Log)) && !overlay.is_logless(),
            without_log: self.goes_on_without_log(),
            full: self.log_has_no_space() || self.does_not_empty(overlay),
            ahead: overlay.trusts(),
            alone: overlay.is_primary_only(),
            logless: overlay.is_logless(),
            mirrors_asleep,
            mirrors_restless: self.home().mirrors_in(Power::Restless),
            rests,
            destages,
            budget: self.budget(),
            code_cache: self.code_cache(),
            counters: overlay.counters(),
        })
    }

    /// The state of a code cache; `None` where no writes are packed.
    fn code_cache(&self) -> Option<CodeCacheStatus> {
        let overlay = self.overlay.as_ref()?;
        let home = self.home();
        Some(CodeCacheStatus {
            gathering: overlay.pack_state()?,
            announcing: self.waiting_for_marks(),
            short: overlay.pressure() >= Pressure::Reclaim,
            starved: overlay.is_starved(),
            destaging: self.is_destaging(),
            destage_stage: overlay.destage_stage(),
            cleans: overlay.cleans(),
            mirrors_resting: home.mirrors_in(Power::Resting),
            mirrors_waking: home.mirrors_in(Power::Waking),
        })
    }

    /// Whether the log is nearly full, and the last destage was cut short.
    fn does_not_empty(&self, overlay: &Overlay) -> bool {
        overlay.pressure() >= Pressure::Reclaim && overlay.fell_short() && !overlay.is_destaging()
    }

    pub(crate) fn moved(&self) -> Option<OverlayCounters> {
        self.overlay.as_ref().map(|one| one.counters())
    }

    /// As [`crate::Engine::map`]. Sectors in the log are no hole, whatever the main set reports.
    pub(crate) fn map(&self, lba: u64, sectors: u64, most: usize, into: &mut Vec<MapExtent>) {
        let Some(overlay) = &self.overlay else {
            return self.home().map(lba, sectors, most, into);
        };
        let mut home = Vec::new();
        self.home().map(lba, sectors, most, &mut home);
        for extent in home {
            if !extent.hole && extent.health != Health::Lost {
                if !push(into, extent, most) {
                    return;
                }
                continue;
            }
            let range = extent.lba..extent.lba + extent.sectors;
            for piece in overlay.map().lookup(range) {
                let (lba, sectors, hole, health) = match piece {
                    Piece::Hole { home, sectors } => (home, sectors, extent.hole, extent.health),
                    Piece::Mapped(copy) => {
                        (copy.home, u64::from(copy.sectors), false, Health::Healthy)
                    }
                };
                let piece = MapExtent {
                    lba,
                    sectors,
                    hole,
                    health,
                };
                if !push(into, piece, most) {
                    return;
                }
            }
        }
    }

    /// As [`crate::Engine::idle`].
    pub(crate) fn idle(&self) -> bool {
        let sets = self.sets.0.iter().all(|set| set.idle());
        let overlay = self.overlay.as_ref().is_none_or(|one| one.is_quiet());
        let works = !self.works_idle() || !self.children_idle() || self.start.is_some();
        sets && overlay && !works && self.attempt.rests()
    }

    pub(crate) fn coverage(
        &self,
    ) -> impl Iterator<Item = (&'static str, &'static str, &'static str, u64)> + '_ {
        self.sets.0.iter().flat_map(|set| set.coverage())
    }
}
