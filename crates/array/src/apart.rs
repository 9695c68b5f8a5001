//! First copies that go ahead of the further ones: some writes reach the first copy of a chunk only, while mirrors sleep, and the
//! further copies get them later (GRAID: Mao et al., MASCOTS 2008; [`crate::pair`]).
//!
//! Whoever asks for it knows which sectors those are, reads them of first copies alone, and never lets the others count. What this
//! engine does for it is to keep to the copies that a request names ([`Copies`](crate::request::Copies)), to repair no first copy
//! from a further one meanwhile, and to call every region in doubt before, so that a crash is followed by bringing them in step,
//! and no map has to be written while mirrors sleep.

use crate::contract::TaskKind;
use crate::core::Core;
use crate::report::ArrayState;

impl Core {
    /// Whether all copies are here: what first copies were given they have.
    pub(crate) fn copies_are_whole(&self) -> bool {
        self.state == ArrayState::Healthy && self.complete() && !self.halted()
    }

    /// Whether copies are being compared, which have to be the same then.
    pub(crate) fn compares_copies(&self) -> bool {
        let compares = |kind| matches!(kind, TaskKind::Check | TaskKind::Repair | TaskKind::Resync);
        self.tasks.list.iter().any(|task| compares(task.kind))
    }
}
