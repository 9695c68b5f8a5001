//! The surrogate is taken away while users write. From the answer on home alone has everything, and the disks that were the surrogate's
//! may go, or be somebody else's.

use super::{Life, Run, Site};
use crate::atlas::Atlas;
use crate::fault::Fault;
use crate::invariant::Invariant;
use crate::rng::Rng;
use restripe_array::{Command, CommandError, CommandTag, Member};

/// Of a run.
pub(super) struct Removals {
    /// A stream of its own: what is drawn for others stays as it was.
    rng: Rng,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    There,
    /// It was asked for in a life that ended with no answer, or a bad one: it may be on record.
    InDoubt,
    Removed,
}

/// Of a life.
pub(super) struct Removal {
    /// So many incidents before it is asked for.
    after: Option<u64>,
    asked: Option<CommandTag>,
    /// Home has it on record since a life before, as far as its disks tell.
    on_record: bool,
    /// What had gone into the log when it was let go.
    written: Option<Written>,
}

/// Writes, records, and sectors that were copied or moved there.
type Written = [u64; 4];

impl Removals {
    pub(super) fn new(seed: u64) -> Removals {
        Removals {
            rng: Rng::new(seed ^ 0x4e30_7ed5),
            state: State::There,
        }
    }

    /// Whether one life in many takes it away, and when.
    pub(super) fn of_life(&mut self, on_record: bool) -> Removal {
        let asks = self.rng.chance(1, 12);
        Removal {
            after: asks.then(|| self.rng.below(6)),
            asked: None,
            on_record,
            written: None,
        }
    }
}

impl Removal {
    pub(super) fn is_asked_by(&self, tag: CommandTag) -> bool {
        self.asked == Some(tag)
    }
}

impl Run {
    /// Whether it was, and nobody may miss it.
    pub(super) fn is_removed(&self) -> bool {
        self.removals.state == State::Removed
    }

    /// Whether home's disks, between two lives, name no surrogate any more.
    pub(super) fn removal_is_on_record(&self) -> bool {
        let unnamed = || {
            let atlas = Atlas::of(self.home.iter());
            atlas.is_some_and(|atlas| atlas.superblock().partner.is_none())
        };
        match self.removals.state {
            State::There => false,
            State::InDoubt => unnamed(),
            State::Removed => true,
        }
    }

    /// It may be that an operator takes it away now.
    pub(super) fn stir_removal(&mut self, life: &mut Life) {
        match &mut life.removal.after {
            Some(0) if self.quest.is_none() && !self.options.eraid && !self.is_removed() => {
                life.removal.after = None;
                life.removal.asked = Some(life.session.command(Command::Surrogate(None)));
                self.count("removals asked for", 1);
            }
            Some(0) | None => {}
            Some(after) => *after -= 1,
        }
    }

    pub(super) fn removal_answered(&mut self, life: &mut Life, answer: &Result<(), CommandError>) {
        if answer.is_err() {
            return self.count("removals refused", 1);
        }
        self.count("surrogates taken away", 1);
        self.take_away();
        life.removal.written = Some(written(life));
        // They need not be there any more.
        if self.removals.rng.chance(1, 2) {
            let sites = (0..).map(Member).zip(&life.sites);
            for (member, _) in sites.filter(|(_, site)| **site != Site::Home) {
                life.session.world.inject(member, Fault::Death);
            }
            life.troubled[Site::Log as usize] = true;
            life.troubled[Site::Buffer as usize] = true;
            self.count("disks taken away at once", 1);
        }
    }

    /// Nothing goes into a log that was let go.
    pub(super) fn look_at_what_was_let_go(&self, life: &mut Life) {
        let since = life.removal.written;
        if since.is_some_and(|since| since != written(life)) {
            let detail = format!("{since:?} when it was let go, and then {:?}", written(life));
            life.session.violation(Invariant::RemovedWritten, detail);
        }
    }

    /// The array serves: what was in doubt is not any more.
    pub(super) fn removal_started(&mut self, life: &Life) {
        if self.removals.state != State::InDoubt {
            return;
        }
        self.removals.state = State::There;
        if life.removal.on_record {
            self.take_away();
            self.count("removals on record without an answer", 1);
        }
    }

    /// A life has ended that may have asked for it.
    pub(super) fn settle_removal(&mut self, removal: &Removal) {
        if self.removals.state == State::There && removal.asked.is_some() {
            self.removals.state = State::InDoubt;
        }
        if self.is_removed() {
            self.take_away();
        }
    }

    fn take_away(&mut self) {
        self.removals.state = State::Removed;
        self.log.clear();
        self.forget_buffer();
        (self.log_gone, self.log_away) = (false, false);
        self.lost_lately[Site::Log as usize] = false;
        self.lost_lately[Site::Buffer as usize] = false;
    }
}

fn written(life: &Life) -> Written {
    let surrogate = life.session.world.status().surrogate;
    let overlay = surrogate.and_then(|surrogate| surrogate.overlay);
    overlay.map_or([0; 4], |overlay| {
        let counters = overlay.counters;
        [
            counters.redirected_writes,
            counters.records,
            counters.clean_copies,
            counters.sectors_moved,
        ]
    })
}
