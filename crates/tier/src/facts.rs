//! Facts of the tier: the lowest floor. Every other floor may read it.
//!
//! Owns the configuration, the time, the actions of this step, the sets, the overlay, the stage, and the
//! attempt to restart halted sets. Calls no other floor.

use super::route::{PerSet, Route, SETS, SITES};
use crate::config::{BUFFER_IOS, BUFFER_REQUESTS, BUFFER_SLICES, Config, SurrogateConfig};
use crate::overlay::{Overlay, Site};
use alloc::boxed::Box;
use alloc::vec::Vec;
use restripe_array::parts::{Buffers, Part, Share, Ties};
use restripe_array::{
    Action, Actions, CommandError, CommandTag, Fact, Halt, Limits, Nanos, Pool, RequestError,
    RequestTag,
};

/// With at most this many extents left, clients wait for the last of them.
const LAST_EXTENTS: u64 = 64;

/// Decides what happens to clients' requests and to the sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    Idle,
    Starting,
    Serving,
    /// Without the log set: the main set has all data.
    MainOnly,
    Stopping(Stopping),
    Stopped,
}

/// The progress of a stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stopping {
    /// Clients' requests and jobs are ending.
    Draining,
    /// Data that the primary copies have and secondary copies lack is made durable in the log.
    Flushing,
    /// All sets record this number, and those up to the last ([`session`]).
    Numbering { session: u32, last: u32 },
    /// This set is stopping; the others wait for it.
    Set(Site),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Leaving {
    #[default]
    Attached,
    /// The command's answer is still to come.
    Emptying {
        tag: CommandTag,
        /// A destage has ended since.
        destaged_once: bool,
    },
    Gone,
}

/// An attempt to restart halted sets ([`super::revive`]).
#[derive(Default)]
pub(crate) enum Attempt {
    #[default]
    Rests,
    Draining,
    Starting(Box<Former>),
    Failing(Box<Former>),
}

/// The state that is put back if the start is refused.
pub(crate) struct Former {
    pub(crate) sets: PerSet<Option<Part>>,
    pub(crate) started: PerSet<bool>,
    pub(crate) stage: Stage,
    pub(crate) absent: Option<CommandError>,
    pub(crate) buffer_absent: Option<CommandError>,
    /// The overlay stays as it is.
    pub(crate) overlay_stays: bool,
    /// The overlay, unless it stays.
    pub(crate) overlay: Option<Overlay>,
    pub(crate) home: Ties,
}

impl Attempt {
    pub(crate) fn rests(&self) -> bool {
        matches!(self, Attempt::Rests)
    }

    pub(crate) fn former(&self) -> Option<&Former> {
        match self {
            Attempt::Starting(former) | Attempt::Failing(former) => Some(former),
            _ => None,
        }
    }
}

pub(crate) struct Facts {
    pub(crate) config: Config,
    pub(crate) surrogate: SurrogateConfig,
    pub(crate) now: Nanos,
    pub(crate) out: Actions,
    /// By [`Site`].
    pub(crate) sets: PerSet<Part>,
    /// The buffers of each set's engine.
    pub(crate) shares: PerSet<Share>,
    /// The sets that were started and serve.
    pub(crate) started: PerSet<bool>,
    /// The error for which the log set could not be started.
    pub(crate) absent: Option<CommandError>,
    /// The error for which the NVRAM set could not be started.
    pub(crate) buffer_absent: Option<CommandError>,
    pub(crate) route: Route,
    pub(crate) stage: Stage,
    pub(crate) leaving: Leaving,
    pub(crate) overlay: Option<Overlay>,
    /// The sectors that the main set reported as lost while a start runs.
    pub(crate) lost: Option<Vec<(u64, u64)>>,
    pub(crate) attempt: Attempt,
    /// Facts of the attempt, held back until it serves.
    pub(crate) attempt_facts: Actions,
    /// Facts of the sets that the attempt is to replace, held back until it ends.
    pub(crate) former_facts: Actions,
}

impl Facts {
    /// Makes the facts, and the buffers that no set has.
    pub(crate) fn new(config: Config, surrogate: SurrogateConfig) -> (Facts, Buffers) {
        let (sets, shares, buffers) = build(&config, &surrogate);
        let logs = usize::from(surrogate.members);
        let homes = config.members.len() - logs - usize::from(surrogate.buffer_members);
        let facts = Facts {
            now: Nanos::ZERO,
            out: Actions::new(),
            sets,
            shares,
            started: PerSet([false; SETS]),
            absent: None,
            buffer_absent: None,
            route: Route::new(&config.members, homes, logs),
            stage: Stage::Idle,
            leaving: Leaving::default(),
            overlay: None,
            lost: None,
            attempt: Attempt::default(),
            attempt_facts: Actions::new(),
            former_facts: Actions::new(),
            config,
            surrogate,
        };
        (facts, buffers)
    }

    /// The overlay of a tier that serves.
    #[inline]
    pub(crate) fn overlay(&self) -> &Overlay {
        self.overlay.as_ref().expect("a serving tier has one")
    }

    #[inline]
    pub(crate) fn overlay_mut(&mut self) -> &mut Overlay {
        self.overlay.as_mut().expect("a serving tier has one")
    }

    /// The overlay that is put back if the start is refused.
    pub(crate) fn former_overlay(&self) -> Option<&Overlay> {
        self.attempt.former()?.overlay.as_ref()
    }

    /// The former engine of a set that an attempt restarts.
    fn former_set(&self, site: Site) -> Option<&Part> {
        self.attempt.former()?.sets[site].as_ref()
    }

    /// Whether the overlay waits for a set that is being started.
    pub(crate) fn holds_overlay(&self) -> bool {
        let former = self.attempt.former();
        former.is_some_and(|former| former.overlay_stays)
    }

    pub(crate) fn home(&self) -> &Part {
        &self.sets[Site::Home]
    }

    pub(crate) fn log(&self) -> &Part {
        &self.sets[Site::Log]
    }

    pub(crate) fn buffer_set(&self) -> &Part {
        &self.sets[Site::Nvram]
    }

    pub(crate) fn has_no_space(&self, site: Site) -> bool {
        let set = &self.sets[site];
        self.started[site] && set.halt() == Some(Halt::NoSpace)
    }

    /// The sets that an attempt restarts. An NVRAM set is not restarted: the array continues without it.
    pub(crate) fn halted_sites(&self) -> impl Iterator<Item = Site> + '_ {
        let sites = [Site::Home, Site::Log].into_iter();
        sites.filter(|site| self.has_no_space(*site))
    }

    pub(crate) fn packs_writes(&self) -> bool {
        let overlay = self.overlay.as_ref();
        overlay.is_some_and(|one| one.pack_state().is_some() && !one.is_broken())
    }

    /// Whether a code cache takes no writes, since a set has no space. Its log is not broken.
    pub(crate) fn lacks_room(&self) -> bool {
        self.stage == Stage::Serving && self.packs_writes() && self.halted_sites().next().is_some()
    }

    /// Whether failed writes of the tier to this set are shelved: also while another set is restarted.
    pub(crate) fn shelves(&self, site: Site) -> bool {
        let goes_on = self.stage == Stage::Serving || !self.attempt.rests();
        site == Site::Log && goes_on && self.packs_writes() && self.has_no_space(Site::Log)
    }

    /// Whether a withheld set still gets requests that clients wait for: these end before the restart.
    pub(crate) fn lets_clients_end(&self) -> bool {
        matches!(self.attempt, Attempt::Draining)
    }

    /// Whether the requests of a set have to wait until it is restarted.
    pub(crate) fn withholds(&self, site: Site) -> bool {
        match &self.attempt {
            Attempt::Draining => self.packs_writes() && self.has_no_space(site),
            Attempt::Starting(former) | Attempt::Failing(former) => {
                former.overlay_stays && former.sets[site].is_some()
            }
            Attempt::Rests => false,
        }
    }

    /// Whether an attempt starts this set from the members that served until the halt, however few they are.
    pub(crate) fn starts_from_those_that_served(&self, site: Site) -> bool {
        let former = self.former_set(site);
        former.is_some_and(|set| set.is_complete())
    }

    /// A set of an attempt has got the command to start.
    pub(crate) fn revives_without_loss(&mut self, site: Site) {
        if self.former_set(site).is_some() {
            self.sets[site].lose_nothing();
        }
    }

    /// Whether nothing more may go into the log.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving != Leaving::Attached
    }

    /// Whether the log is permanently empty, and all copies are the same.
    pub(crate) fn is_gone(&self) -> bool {
        self.leaving == Leaving::Gone
    }

    /// Whether the next destage is the last one. Writes wait for the last destage, so it should be short. But
    /// if clients rewrite the same sectors repeatedly, it must start regardless.
    pub(crate) fn is_last_destage(&self) -> bool {
        let overlay = self.overlay();
        let pressed =
            matches!(self.leaving, Leaving::Emptying { destaged_once, .. } if destaged_once);
        pressed || overlay.extents_instead() <= LAST_EXTENTS
    }

    pub(crate) fn is_logless(&self) -> bool {
        self.overlay.as_ref().is_some_and(|one| one.is_logless())
    }

    pub(crate) fn log_is_broken(&self) -> bool {
        self.overlay.as_ref().is_none_or(|one| one.is_broken())
    }

    /// Whether the log may have the only current copy of any data. If the primary copies continued without
    /// the log, it lacks data that they have.
    pub(crate) fn log_counts(&self) -> bool {
        let home = self.home();
        !home.records_primary_only() && !home.redirected_extents().is_empty()
    }

    /// Whether the main set still marks an empty log as needed: mirrors in standby cannot record otherwise.
    pub(crate) fn marks_stay(&self) -> bool {
        !self.log_is_broken()
            && !self.is_leaving()
            && self.surrogate.destage.sleep.is_some()
            && self.stage == Stage::Serving
    }

    /// Reports a fact of a set. A fact of a set that an attempt started is reported only once the set serves.
    pub(crate) fn report_of(&mut self, site: Site, fact: Fact) {
        match self.former_set(site).is_some() {
            true => self.attempt_facts.push(Action::Fact(fact)),
            false => self.out.push(Action::Fact(fact)),
        }
    }

    /// Reports the progress of a start. A fact of an attempt is reported only once it serves.
    pub(crate) fn report_of_start(&mut self, fact: Fact) {
        match self.attempt.former() {
            Some(_) => self.attempt_facts.push(Action::Fact(fact)),
            None => self.out.push(Action::Fact(fact)),
        }
    }

    /// The main set reports sectors as lost: they are, unless the log has them.
    pub(crate) fn lost_at_home(&mut self, lba: u64, sectors: u64) {
        match &mut self.lost {
            Some(lost) => lost.push((lba, sectors)),
            None => self.report_lost(lba, sectors),
        }
    }

    pub(crate) fn report_lost(&mut self, lba: u64, sectors: u64) {
        let lost = match self.overlay.as_ref().or(self.former_overlay()) {
            Some(overlay) => overlay.not_instead(lba..lba + sectors),
            None => alloc::vec![(lba, sectors)],
        };
        for (lba, sectors) in lost {
            self.report_of(Site::Home, Fact::Lost { lba, sectors });
        }
    }

    pub(crate) fn answer_command(&mut self, tag: CommandTag, result: Result<(), CommandError>) {
        self.out.push(Action::CommandReply(tag, result));
    }

    pub(crate) fn answer_busy(&mut self, tag: CommandTag, why: &'static str) {
        self.answer_command(tag, Err(CommandError::Busy(why)));
    }

    pub(crate) fn reply(&mut self, tag: RequestTag, result: Result<(), RequestError>) {
        self.out.push(Action::Reply(tag, result));
    }
}

/// The engines of the sets, and the buffers that no set has.
fn build(config: &Config, surrogate: &SurrogateConfig) -> (PerSet<Part>, PerSet<Share>, Buffers) {
    let mut rest = Share::whole(config.limits.pool);
    let whole = surrogate.limits.whole_pool();
    let pools = [
        Pool {
            small: config.limits.pool.small - whole.small,
            large: config.limits.pool.large - whole.large,
        },
        surrogate.limits.pool,
        surrogate.limits.buffer_pool,
    ];
    let shares = PerSet(pools.map(|pool| rest.split_off(pool)));
    let sets = PerSet(SITES.map(|site| {
        let (pool, share) = (pools[site as usize], &shares[site]);
        Part::new(set_config(config, surrogate, site, pool), share.clone())
    }));
    (sets, shares, Buffers::new(rest))
}

fn set_config(
    config: &Config,
    surrogate: &SurrogateConfig,
    site: Site,
    pool: Pool,
) -> restripe_array::Config {
    let buffers = config.members.len() - usize::from(surrogate.buffer_members);
    let (others, buffer) = config.members.split_at(buffers);
    let (home, log) = others.split_at(buffers - usize::from(surrogate.members));
    let limits = match site {
        Site::Home => Limits {
            pool,
            ..config.limits
        },
        Site::Log => Limits {
            pool,
            requests: surrogate.limits.requests,
            slices: surrogate.limits.slices,
            ios: surrogate.limits.ios,
            cache: None,
            ..config.limits
        },
        Site::Nvram => Limits {
            pool,
            requests: BUFFER_REQUESTS,
            slices: BUFFER_SLICES,
            ios: BUFFER_IOS,
            cache: None,
            ..config.limits
        },
    };
    let members = [home, log, buffer][site as usize];
    config.of_set(members.to_vec(), limits)
}
