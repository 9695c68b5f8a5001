//! Starting one set of a tier: never without the other where that would serve old copies, or a log as data.
//!
//! A start without the log set is refused if the log set may have the only current copy of a sector. If the
//! superblock records that the primary copies have all data, the start succeeds, and the secondary copies are
//! resynchronised from them. With `accept_loss` the sectors are reported lost and the partner is given up, so that it
//! cannot return later with stale copies. The order of these writes serves no stale copy after a crash:
//!
//! | durable              | what a crash leaves                  | next                   |
//! |----------------------|--------------------------------------|------------------------|
//! | nothing              | bits set, a partner                  | the list of the lost   |
//! | the list of the lost | bits set, a partner                  | superblocks without it |
//! | superblocks          | no partner: the bits say nothing     | bits cleared, serving  |

use crate::contract::CommandError;
use crate::core::Core;
use crate::units::Uuid;
use restripe_format::meta::superblock::{Partner, PartnerRole};

impl Core {
    /// A log set has a log where others have data, and a buffer has records: only their array can read them.
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

    /// Sectors of which only the log set has a current copy are not served. Called when the maps are read and nothing is written.
    pub(super) fn check_log_set(&mut self) -> Result<(), CommandError> {
        let Some(partner) = self.log_set() else {
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
            return Err(self.log_set_missing(partner, &extents));
        }
        for (lba, sectors) in extents {
            self.lose(lba, sectors);
        }
        self.boot_mut().forsakes = !self.mode.read_only;
        Ok(())
    }

    fn log_set_missing(&mut self, surrogate: Uuid, extents: &[(u64, u64)]) -> CommandError {
        for &(lba, sectors) in extents {
            self.would_lose(lba, sectors);
        }
        let extents = self.boot_mut().would_lose.extents.runs().to_vec();
        CommandError::SurrogateMissing { surrogate, extents }
    }

    /// Goes on with giving up a log set, whose sectors are on the members' list of the lost by now. True while it is not
    /// durable that there is none.
    pub(super) fn forsake_log_set(&mut self) -> bool {
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
