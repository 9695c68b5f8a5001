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

use super::starting::Starting;
use super::state::Phase;
use crate::overlay::Site;
use crate::overlay::format::LogLayout;
use alloc::boxed::Box;
use restripe_array::{CommandError, Fact};

impl Starting {
    /// Whether the log is what home left in it.
    pub(crate) fn check_sessions(&self) -> Result<(), CommandError> {
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
    pub(crate) fn is_buffer_old(&self) -> bool {
        let [home, log, buffer] = self.sets.0.each_ref().map(|set| set.session());
        buffer < home || buffer > log || buffer.saturating_add(1) < log
    }

    /// Gives a start or a stop a number: true once all sets have it.
    pub(crate) fn number_sets(&mut self, session: u32) -> Result<bool, CommandError> {
        for site in [Site::Log, Site::Nvram, Site::Home] {
            if site == Site::Nvram && !self.buffer.used {
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

    /// The first number of a start or a stop that begins now.
    pub(crate) fn next_session(&self) -> u32 {
        self.home().session().saturating_add(1)
    }

    pub(crate) fn number_from_now(&mut self, layout: LogLayout) {
        let session = self.next_session();
        let last = session + 1;
        self.start_mut().phase = Phase::Numbering {
            layout,
            session,
            last,
        };
    }

    pub(crate) fn number(&mut self) -> bool {
        let Phase::Numbering {
            layout,
            session,
            last,
        } = self.start_mut().phase
        else {
            unreachable!("sets are numbered in this phase")
        };
        match self.mark_at_start(false) {
            Ok(true) => {}
            Ok(false) => return false,
            Err(_) => {
                self.numbered_in_vain(layout);
                return true;
            }
        }
        match self.number_sets(session) {
            Ok(false) => return false,
            Ok(true) if session < last => {
                self.start_mut().phase = Phase::Numbering {
                    layout,
                    session: session + 1,
                    last,
                };
            }
            Ok(true) => match self.mark_at_start(true) {
                Ok(false) => return false,
                Ok(true) => self.take_log(layout),
                Err(_) => self.numbered_in_vain(layout),
            },
            Err(error) if self.buffer.used && self.buffer_set().halted() => {
                self.lose_buffer(error, layout);
            }
            Err(_) if !self.log_counts() && !self.home().halted() => self.go_on_alone(),
            Err(error) => self.without_log(error, layout),
        }
        true
    }

    /// The log does not get on record what it is to have there.
    fn numbered_in_vain(&mut self, layout: LogLayout) {
        match !self.log_counts() && !self.home().halted() {
            true => self.go_on_alone(),
            false => {
                let error = self.why_unwritable();
                self.without_log(error, layout);
            }
        }
    }

    /// The buffer failed while the start is on its way: it goes on without if that does not count.
    fn lose_buffer(&mut self, error: CommandError, layout: LogLayout) {
        if self.start_mut().slots.counts {
            return self.refuse_buffer(error);
        }
        self.buffer.used = false;
        let why = Box::new(CommandError::OfBuffer(Box::new(error)));
        let forgone = false;
        self.tell_of_start(Fact::BufferAbsent { why, forgone });
        self.number_from_now(layout);
    }
}
