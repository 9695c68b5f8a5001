//! Which writes go to the surrogate, and when what lies there goes home.

use super::leave::{Leaving, NOT_HOME};
use super::{Pair, Stage, Stopping, destage};
use crate::overlay::{Kind, Overlay, Pressure};
use alloc::vec::Vec;
use restripe_array::report::ArrayState;
use restripe_array::{
    Command, CommandTag, Nanos, Request, RequestError, RequestOp, SECTOR_BYTES, TaskKind,
};

/// Which requests are moved away while a task runs that users are to be out of the way of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub enum Redirect {
    /// None: every request goes home.
    None,
    /// Every write, and reads of what was read before (WorkOut: Wu et al., FAST 2009).
    WorkOut,
    /// Writes of what a missing member held, and every read (Victim Disk First, as IDO's section 4 has it manage a
    /// surrogate).
    Vdf,
    /// Every write, and the zones that users read most, as they are restored (IDO, section 3.4).
    #[default]
    Ido,
    /// Every write, at all times: home is written when the log is nearly full, or users have been idle for long (RERAID).
    Reraid,
    /// Every write, and to first copies at home as well: mirrors sleep, and get it from there when the log is nearly full (GRAID: Mao
    /// et al., MASCOTS 2008).
    Graid,
    /// Every write to first copies, and to nothing else: mirrors sleep, and get it from there when the map is nearly full, in time or
    /// when somebody asks (ERAID: Li and Wang, 2006). Until then **a first copy that is lost takes new writes with it**.
    Eraid,
}

impl Redirect {
    pub const ALL: [Redirect; 7] = [
        Redirect::None,
        Redirect::WorkOut,
        Redirect::Vdf,
        Redirect::Ido,
        Redirect::Reraid,
        Redirect::Graid,
        Redirect::Eraid,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Redirect::None => "none",
            Redirect::WorkOut => "workout",
            Redirect::Vdf => "vdf",
            Redirect::Ido => "ido",
            Redirect::Reraid => "reraid",
            Redirect::Graid => "graid",
            Redirect::Eraid => "eraid",
        }
    }

    /// Whether writes are redirected at all times, so that mirrors can sleep.
    pub fn is_constant(self) -> bool {
        matches!(self, Redirect::Reraid | Redirect::Graid | Redirect::Eraid)
    }

    /// Whether first copies go ahead of the further ones.
    pub fn goes_ahead(self) -> bool {
        matches!(self, Redirect::Graid | Redirect::Eraid)
    }

    pub fn named(name: &str) -> Option<Redirect> {
        Redirect::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// Going home moves so many bytes a second however busy users are (as md's tasks).
const HOME_RATE_MIN: u64 = 1 << 20;
/// Users count as idle so long after their last request.
const IDLE: Nanos = Nanos::from_millis(20);
/// A way home that failed is tried again after so long.
const RETRY: Nanos = Nanos::from_secs(1);
/// With so few extents left, users wait for the last of them.
pub(super) const LAST_EXTENTS: u64 = 64;

pub(super) struct State {
    redirect: Redirect,
    scrubs: bool,
    /// When the last request of a user came.
    pub(super) last_request: Nanos,
    /// When the next copy may go home although users are busy.
    next_copy: Nanos,
    /// No way home is begun before.
    pub(super) not_before: Nanos,
    pub(super) going: bool,
    /// The zones that go to the surrogate have been chosen, for the tasks that run.
    pub(super) chosen: bool,
    pub(super) destage: destage::State,
    /// Commands that wait until the log holds nothing.
    pub(super) commands_waiting: Vec<(CommandTag, Command)>,
    pub(super) leaving: Leaving,
    /// Something did not reach first copies though they were believed.
    pub(super) beside_failed: bool,
    /// What was told, and which superblock home had, when first copies were last looked through.
    pub(super) firsts_seen: Option<(u64, u64)>,
}

impl State {
    pub(super) fn new(redirect: Redirect, scrubs: bool) -> State {
        State {
            redirect,
            scrubs,
            last_request: Nanos::ZERO,
            next_copy: Nanos::ZERO,
            not_before: Nanos::ZERO,
            going: false,
            chosen: false,
            destage: destage::State::default(),
            commands_waiting: Vec::new(),
            leaving: Leaving::default(),
            beside_failed: false,
            firsts_seen: None,
        }
    }

    /// The overlay is a new one.
    pub(super) fn begin_anew(&mut self) {
        self.going = false;
        self.chosen = false;
        self.destage = self.destage.anew();
        self.beside_failed = false;
        self.firsts_seen = None;
    }

    pub(super) fn redirect(&self) -> Redirect {
        self.redirect
    }
}

impl Pair {
    /// Whether a task runs that users are to be out of the way of: one that restores redundancy, or a scrub if that is asked
    /// for.
    pub(super) fn moves_users(&self) -> bool {
        let counts = |kind: TaskKind| match kind {
            TaskKind::Check | TaskKind::Repair => self.policy.scrubs,
            TaskKind::Rebuild | TaskKind::Replace | TaskKind::Resync | TaskKind::Growth => true,
        };
        self.home().running_tasks().any(counts)
    }

    /// Whether a write is to go to the surrogate.
    pub(super) fn redirects(&mut self, request: &Request) -> bool {
        self.policy.last_request = self.now;
        if self.is_leaving() {
            return false;
        }
        if self.policy.redirect == Redirect::Reraid {
            self.note_gathered();
            return true;
        }
        if self.policy.redirect.goes_ahead() {
            return self.goes_ahead();
        }
        if !self.moves_users() || request.op == RequestOp::Trim {
            return false;
        }
        match self.policy.redirect {
            Redirect::None => false,
            Redirect::WorkOut | Redirect::Ido => true,
            Redirect::Reraid | Redirect::Graid | Redirect::Eraid => true,
            Redirect::Vdf => self.misses_member(request),
        }
    }

    /// Whether some of the cells that a write is about have no member to be read from.
    fn misses_member(&self, request: &Request) -> bool {
        let home = self.home();
        let first = request.offset / SECTOR_BYTES;
        let end = (request.offset + request.bytes).div_ceil(SECTOR_BYTES);
        let chunk = home.layout().chunk_sectors();
        (first / chunk..end.div_ceil(chunk)).any(|index| home.misses_member_of(index * chunk))
    }

    // -------------------------------------------------------------------------------------------------- going home

    /// Begins and ends what time and space ask for; false if nothing is to be done now.
    pub(super) fn drive(&mut self) -> bool {
        if self.settle_trust() || self.go_on_leaving() {
            return true;
        }
        if self.lacks_room() {
            self.keep_surrogate(NOT_HOME);
            let overlay = self.overlay.as_mut().expect("a serving pair has one");
            let error = RequestError::NoSpace;
            return overlay.refuse_waiting(error) | overlay.refuse_users(error);
        }
        if self.home().halted() {
            let refusal = self.home().refusal(RequestOp::Write);
            let overlay = self.overlay.as_mut();
            return overlay.is_some_and(|overlay| overlay.refuse_waiting(refusal));
        }
        self.lose_firsts();
        if !(self.stage == Stage::Serving || self.drains_writes()) || self.home().mode().read_only {
            return false;
        }
        let moving = self.moves_users() && !self.is_leaving();
        self.choose(moving);
        let log_failed = self.log().state() == ArrayState::Failed;
        let overlay = self.overlay.as_mut().expect("a serving pair has one");
        if log_failed && !overlay.is_broken() {
            overlay.break_log();
            return true;
        }
        if self.watch_buffer() {
            return true;
        }
        let overlay = self.overlay.as_mut().expect("a serving pair has one");
        let clean_go = overlay.pressure() >= Pressure::DropClean || self.is_leaving();
        if clean_go && self.drop_clean() {
            return true;
        }
        let overlay = self.overlay.as_mut().expect("a serving pair has one");
        if self.policy.going && !overlay.is_going_home() {
            self.policy.going = false;
            self.came_home();
            return true;
        }
        let short = overlay.is_starved() || overlay.pressure() >= Pressure::Reclaim;
        let due = match self.policy.redirect {
            redirect if redirect.is_constant() => return self.drive_destage(short),
            _ => short || !moving && overlay.holds_anything(),
        };
        // One that frees nothing would be begun again at once, and what is awaited would never come.
        let idle = overlay.is_going_home() || overlay.is_broken() || !overlay.has_a_way_home();
        if !due || idle {
            return false;
        }
        if self.now < self.policy.not_before {
            self.route.wake_own(self.policy.not_before);
            return false;
        }
        let last = !moving && self.goes_home_for_good();
        let overlay = self.overlay.as_mut().expect("a serving pair has one");
        if last {
            overlay.go_home_for_good();
        } else {
            overlay.go_home(overlay.next_sequence());
        }
        self.policy.going = overlay.is_going_home();
        self.policy.going
    }

    /// Whether the array is stopping, and writes that it has taken wait for room that only a way home makes.
    fn drains_writes(&self) -> bool {
        let draining = self.stage == Stage::Stopping(Stopping::Draining);
        draining && self.overlay.as_ref().is_some_and(Overlay::is_starved)
    }

    /// A way home has ended, well or not.
    fn came_home(&mut self) {
        if self.overlay.as_ref().is_some_and(Overlay::fell_short) {
            self.policy.not_before = self.now.after(RETRY);
        }
        self.leaving_came_home();
        self.forget_redirects();
    }

    /// Home needs to know of the surrogate no more if that holds nothing.
    pub(super) fn forget_redirects(&mut self) {
        let overlay = self.overlay.as_ref();
        let holds_nothing = overlay.is_some_and(Overlay::holds_nothing_instead);
        if holds_nothing && !self.home().mode().read_only && !self.keeps_announced() {
            self.at_home(|home| home.redirects_home());
        }
    }

    /// Whether a copy of so many sectors may go home now: when users are idle, when they wait for room, or when nothing
    /// went for so long that it is due.
    pub(super) fn may_copy_home(&mut self, sectors: u32) -> bool {
        let overlay = self.overlay.as_ref().expect("it goes home");
        let short =
            overlay.is_starved() || overlay.is_closing() || overlay.pressure() >= Pressure::Reclaim;
        // Mirrors are awake for it: it is to be over soon.
        let short = short || self.policy.redirect.is_constant() || self.is_leaving();
        let idle_from = self.policy.last_request.after(IDLE);
        let stopping = self.stage != Stage::Serving;
        if short || stopping || overlay.is_idle() && self.now >= idle_from {
            return true;
        }
        if self.now < self.policy.next_copy {
            let from = if overlay.is_idle() {
                idle_from.min(self.policy.next_copy)
            } else {
                self.policy.next_copy
            };
            self.route.wake_own(from);
            return false;
        }
        let bytes = u64::from(sectors) * SECTOR_BYTES;
        let lasts = Nanos(bytes * 1_000_000_000 / HOME_RATE_MIN);
        self.policy.next_copy = self.now.after(lasts);
        true
    }
}

impl Overlay {
    /// Extents whose only current copy is in the log.
    pub(super) fn extents_instead(&self) -> u64 {
        let held = [Kind::Instead, Kind::Also].map(|kind| self.map().total(kind).extents);
        held.iter().sum()
    }

    /// And sectors.
    pub(super) fn sectors_instead(&self) -> u64 {
        let held = [Kind::Instead, Kind::Also].map(|kind| self.map().total(kind).sectors);
        held.iter().sum()
    }

    /// Whether something in the log has to go home, or can be forgotten.
    fn holds_anything(&self) -> bool {
        Kind::ALL
            .iter()
            .any(|kind| self.map().total(*kind).extents > 0)
    }
}
