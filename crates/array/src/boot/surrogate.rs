//! Starting one array of a pair: never without the other where that would serve old copies, or data that is none.
//!
//! An array whose surrogate holds the only current copy of something is refused without it, unless first copies at home are on record
//! to have all of it: then they are believed, and further copies brought in step with them. A start that is told to
//! accept that calls those sectors lost and lets go of the surrogate, so that it cannot come back with copies that are old
//! by then, in an order that no crash turns into old copies being served:
//!
//! | durable              | what a crash leaves                  | next                   |
//! |----------------------|--------------------------------------|------------------------|
//! | nothing              | bits set, a surrogate                | the list of the lost   |
//! | the list of the lost | bits set, a surrogate                | superblocks without it |
//! | superblocks          | no surrogate: the bits say nothing   | bits cleared, serving  |

use crate::contract::CommandError;
use crate::core::Core;
use crate::meta::superblock::{Partner, PartnerRole};
use crate::units::Uuid;

impl Core {
    /// A surrogate holds a log where others hold data, and its buffer records: only their array can read them.
    pub(super) fn check_own_start(&self) -> Result<(), CommandError> {
        match self.superblock.partner {
            Some(Partner {
                role: PartnerRole::Surrogate | PartnerRole::Buffer,
                array,
                ..
            }) if !self.ties.is_part => Err(CommandError::IsSurrogate { of: array }),
            _ => Ok(()),
        }
    }

    /// What only the surrogate holds is not served from home. Called when the maps are read and nothing is written.
    pub(super) fn check_surrogate(&mut self) -> Result<(), CommandError> {
        let Some(surrogate) = self.surrogate() else {
            self.redirected.clear();
            return Ok(());
        };
        self.log_counts = self.ties.attached && !self.superblock.alone;
        if !self.redirectable() {
            return Err(CommandError::Metadata);
        }
        let extents = self.redirected_extents();
        if self.ties.attached || extents.is_empty() {
            return Ok(());
        }
        if self.is_ahead() {
            // First copies have all that the log had.
            self.boot_mut().forsakes = !self.mode.read_only;
            return Ok(());
        }
        if !self.mode.accept_loss {
            return Err(self.surrogate_missing(surrogate, &extents));
        }
        for (lba, sectors) in extents {
            self.lose(lba, sectors);
        }
        self.boot_mut().forsakes = !self.mode.read_only;
        Ok(())
    }

    fn surrogate_missing(&mut self, surrogate: Uuid, extents: &[(u64, u64)]) -> CommandError {
        for &(lba, sectors) in extents {
            self.would_lose(lba, sectors);
        }
        let extents = self.boot_mut().would_lose.extents.runs().to_vec();
        CommandError::SurrogateMissing { surrogate, extents }
    }

    /// Goes on with giving up a surrogate, whose sectors are on the members' list of the lost by now. True while it is not
    /// durable that there is none.
    pub(super) fn forsake_surrogate(&mut self) -> bool {
        if !self.boot_mut().forsakes {
            return false;
        }
        let known = self.superblock.partner.take().is_some();
        if known {
            self.keeper.note_partner();
        } else {
            self.redirected.clear();
        }
        known
    }
}
