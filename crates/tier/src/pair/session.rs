//! Whether an array and its log are of one time: a set that is put back as it was before the last start, or before the last clean stop, must not
//! count beside one that is not.
//!
//! Every start that writes takes two numbers, **sessions**, which both sets have on record in turn before anything else is written: the log first.
//! So does a stop, once nothing is under way any more. So a set that is put back is two behind, as no crash leaves one.
//!
//! | the log's session | cause                                             | next                            |
//! |-------------------|---------------------------------------------------|---------------------------------|
//! | home's            | both took part in the last start or stop          | the log counts                  |
//! | one more          | a crash, before home had the number, too          | the log counts                  |
//! | less              | the log is an old copy: home had newer from users | refused, if any of it may count; with `accept_loss` all of it is lost |
//! | more than that    | home is an old copy                               | refused, likewise; with `from_minority` the log counts |
//!
//! Within a set superblocks tell old copies of members ([`restripe_array::meta::choose`]); a whole set has nobody to tell it.

use super::Pair;
use crate::overlay::Site;
use restripe_array::CommandError;
use restripe_array::parts::Bug;

impl Pair {
    /// Whether the log is what home left in it.
    pub(super) fn check_sessions(&self) -> Result<(), CommandError> {
        let (home, log) = (self.home().session(), self.log().session());
        if log < home {
            return Err(CommandError::LogIsOld);
        }
        if log > home.saturating_add(1) {
            return Err(CommandError::LogIsNewer);
        }
        Ok(())
    }

    /// Whether the buffer is of another time than home and log. It gets each number after the log, and before home.
    pub(super) fn is_buffer_old(&self) -> bool {
        let [home, log, buffer] = self.sets.0.each_ref().map(|set| set.session());
        buffer < home || buffer > log || buffer.saturating_add(1) < log
    }

    /// Gives a start or a stop a number: true once all sets have it.
    pub(super) fn number_sets(&mut self, session: u32) -> Result<bool, CommandError> {
        for site in [Site::Log, Site::Buffer, Site::Home] {
            if site == Site::Buffer && !self.buffer.used {
                continue;
            }
            let mut put = false;
            if self.sets[site].session() != session {
                self.at(site, |core| put = core.put_session(session));
            }
            if put || !self.sets[site].has_partner_durable()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a stop has two sets to number: not without a log, and not once it has been let go.
    pub(super) fn numbers_stop(&self) -> bool {
        let pair = [Site::Home, Site::Log];
        let tied = |site: &Site| {
            let set = &self.sets[*site];
            self.started[*site] && set.partner().is_some() && !set.halted()
        };
        let writes = !self.home().mode().read_only && !self.home().planted(Bug::StopWritesOnce);
        writes && self.overlay.is_some() && !self.is_logless() && pair.iter().all(tied)
    }

    /// The first number of a start or a stop that begins now.
    pub(super) fn next_session(&self) -> u32 {
        self.home().session().saturating_add(1)
    }
}
