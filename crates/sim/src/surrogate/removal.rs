//! The surrogate is removed while clients write. After the reply, the main set alone has all data, and the
//! surrogate's disks may be unplugged. While the array serves, these disks are not free for other uses yet:
//! a clean stop still writes to them.

use super::{Life, Run, Site, overlay};
use super::{buffer, directed};
use crate::atlas::Atlas;
use crate::fault::Fault;
use crate::invariant::Invariant;
use crate::rng::Rng;
use restripe_array::{Command, CommandError, CommandTag, Member, StartMode};

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
    /// What had gone into the log when the removal was answered.
    written: Option<Written>,
}

/// Writes that went there, records, copies, sectors that were moved there, and records of the buffer.
type Written = [u64; 5];

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
    pub(super) fn is_on_record(&self) -> bool {
        self.on_record
    }

    pub(super) fn is_asked_by(&self, tag: CommandTag) -> bool {
        self.asked == Some(tag)
    }
}

/// Whether it was, and nobody may miss it.
pub(super) fn is_removed(run: &Run) -> bool {
    run.removals.state == State::Removed
}

/// Whether home's disks, between two lives, name no surrogate any more.
pub(super) fn is_on_record(run: &Run) -> bool {
    let unnamed = || {
        let atlas = Atlas::of(run.home.iter());
        atlas.is_some_and(|atlas| atlas.superblock().partner.is_none())
    };
    match run.removals.state {
        State::There => false,
        State::InDoubt => unnamed(),
        State::Removed => true,
    }
}

/// It may be that an operator takes it away now.
pub(super) fn perturb(run: &mut Run, life: &mut Life) {
    let Some(after) = &mut life.removal.after else {
        return;
    };
    if *after > 0 {
        *after -= 1;
        return;
    }
    let named = life.session.world.status().log_set.is_some();
    if named && run.directed.is_none() && !directed::seeks(run) {
        life.removal.after = None;
        life.removal.asked = Some(life.session.command(Command::LogSet(None)));
        run.base.count("removals asked for", 1);
    }
}

pub(super) fn answered(run: &mut Run, life: &mut Life, answer: &Result<(), CommandError>) {
    if let Err(error) = answer {
        if !life.stopping && life.troubled == [false; 3] && !run.log_gone {
            let detail = format!("nothing is amiss, and no removal: {error:?}");
            life.session.violation(Invariant::TaskFailed, detail);
        }
        return run.base.count("removals refused", 1);
    }
    run.base.count("surrogates taken away", 1);
    take_away(run);
    directed::end_directed(run);
    life.session.refusals_expected &= life.stopping || life.troubled[Site::Home as usize];
    life.removal.written = Some(written(life));
    // They need not be there any more.
    if run.removals.rng.chance(1, 2) {
        let sites = (0..).map(Member).zip(&life.sites);
        for (member, _) in sites.filter(|(_, site)| **site != Site::Home) {
            life.session.world.inject(member, Fault::Death);
        }
        life.troubled[Site::Log as usize] = true;
        life.troubled[Site::Buffer as usize] = true;
        run.base.count("disks taken away at once", 1);
    }
}

/// Nothing goes into a log that was let go.
pub(super) fn look_at_what_was_let_go(life: &mut Life) {
    let since = life.removal.written;
    if since.is_some_and(|since| since != written(life)) {
        let detail = format!("{since:?} when it was taken away, then {:?}", written(life));
        life.session.violation(Invariant::RemovedWritten, detail);
    }
}

/// The array serves: what was in doubt is not any more.
pub(super) fn started(run: &mut Run, life: &mut Life, mode: StartMode) {
    let named = life.session.world.status().log_set;
    if let Some(named) = named.filter(|_| is_removed(run) && !mode.from_minority) {
        life.session
            .violation(Invariant::RemovalForgotten, format!("{named}"));
    }
    if run.removals.state != State::InDoubt {
        return;
    }
    run.removals.state = State::There;
    if life.removal.on_record {
        take_away(run);
        run.base.count("removals on record without an answer", 1);
    }
}

/// A start has missed it.
pub(super) fn is_not_on_record(run: &mut Run) {
    run.removals.state = State::There;
}

/// A life has ended that may have asked for it.
pub(super) fn settle(run: &mut Run, removal: &Removal) {
    if run.removals.state == State::There && removal.asked.is_some() {
        run.removals.state = State::InDoubt;
    }
    if is_removed(run) {
        take_away(run);
    }
}

fn take_away(run: &mut Run) {
    run.removals.state = State::Removed;
    run.log.clear();
    buffer::forget(run);
    (run.log_gone, run.log_away) = (false, false);
    run.lost_lately[Site::Log as usize] = false;
    run.lost_lately[Site::Buffer as usize] = false;
}

fn written(life: &Life) -> Written {
    let overlay = overlay(&life.session.world.status());
    overlay.map_or([0; 5], |overlay| {
        let counters = overlay.counters;
        [
            counters.redirected_writes,
            counters.records,
            counters.clean_copies,
            counters.sectors_moved,
            counters.versions,
        ]
    })
}
