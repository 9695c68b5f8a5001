//! Sessions: numbers that show whether the sets of an array are of one time.
//!
//! A set that is put back as it was before the last start, or before the last clean stop, must not be used
//! with a set that is newer. Every start that writes takes two numbers, **sessions**. Each set records them
//! in turn before anything else is written: the NVRAM set first, then the log set, then the main set. A stop
//! does so too, once nothing is in flight. So a set that is put back is two sessions behind, which no crash
//! can cause.
//!
//! | the log's session | cause                                             | next                            |
//! |-------------------|---------------------------------------------------|---------------------------------|
//! | the main set's    | both took part in the last start or stop          | the log is valid                |
//! | one more          | a crash, before the main set had the number, too; or a loss in the NVRAM set | the log is valid |
//! | less              | the log is an old copy: the main set had newer data of clients | refused, if any of it may be valid; with `accept_loss` all of it is lost |
//! | more than that    | the main set is an old copy                       | refused, likewise; with `from_minority` the log is valid |
//!
//! Within a set, superblocks show which members are old copies ([`restripe_array::meta::choose`]). For a
//! whole set there is no such record.
//!
//! A member of the NVRAM set that fails lacks what is flushed from then on. Only the members that are left
//! have that on record, and they may fail next. So these and the log take one session more before the first
//! flush is acknowledged that the member lacks: started alone, it is older than the log. The main set need
//! not have that number, so that its mirrors stay in standby. After a further loss it has to follow.
//!
//! | flush of the NVRAM set | cause                                                      | next         |
//! |------------------------|------------------------------------------------------------|--------------|
//! | ended                  | no member left since the NVRAM set got its session         | acknowledged |
//! | ended                  | a member left                                              | held         |
//! | held                   | the NVRAM set and the log have recorded a session          | ended        |
//! | held                   | a set cannot record it, or the main set is in standby and has to follow | failed: the data goes into the log |

use super::nvram::Nvram;
use crate::overlay::{PartTag, Site};
use restripe_array::meta::superblock::BufferMark;
use restripe_array::{CommandError, RequestError};

impl Nvram {
    /// Whether the log is the one that the main set left.
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

    /// Whether the records in the NVRAM set may be the only copy of any data.
    pub(crate) fn needs_buffer(&self) -> bool {
        self.log_counts() && self.buffer_mark() == BufferMark::Counts
    }

    /// Whether the NVRAM set is of another time than the log. It gets each number before the log.
    pub(crate) fn is_buffer_old(&self) -> bool {
        let (buffer, log) = (self.buffer_set().session(), self.log().session());
        buffer < log || buffer > log.saturating_add(1)
    }

    /// Gives a start or a stop its number: true once all sets have it.
    pub(crate) fn number_sets(&mut self, session: u32) -> Result<bool, CommandError> {
        for site in [Site::Nvram, Site::Log, Site::Home] {
            let takes_part = site != Site::Nvram || self.buffer.used;
            if takes_part && !self.number_set(site, session)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gives a set its number: true once the set has recorded it.
    fn number_set(&mut self, site: Site, session: u32) -> Result<bool, CommandError> {
        let mut put = false;
        if self.sets[site].session() != session {
            if site == Site::Nvram {
                self.buffer.numbered = self.buffer_set().generation();
            }
            self.at(site, |core| put = core.put_session(session));
        }
        Ok(!put && self.sets[site].has_partner_durable()?)
    }

    /// The first number of a start or a stop that begins now.
    pub(crate) fn next_session(&self) -> u32 {
        self.home().session().saturating_add(1)
    }

    /// The NVRAM set was flushed, or could not be. If it has lost a member since it got its session, the
    /// flush counts only once it has another.
    pub(crate) fn buffer_flushed(&mut self, part: PartTag, result: Result<(), RequestError>) {
        let lost = self.buffer_set().generation() != self.buffer.numbered;
        match result.is_ok() && lost && !self.is_gone() {
            true => {
                let session = self.log().session().saturating_add(1);
                self.buffer.unnumbered = Some((part, session));
            }
            false => self.part_done(part, result),
        }
    }

    /// Continues to record the session that a flush of the NVRAM set waits for. False if that has to wait.
    pub(crate) fn number_after_loss(&mut self) -> bool {
        let Some((part, session)) = self.buffer.unnumbered else {
            return false;
        };
        if self.lacks_room() {
            return false;
        }
        let numbered = match self.is_gone() {
            // Nothing in the log is valid any more.
            true => Ok(true),
            false => self.number_buffer(session),
        };
        if numbered == Ok(false) {
            return false;
        }
        self.buffer.unnumbered = None;
        match numbered {
            Ok(_) => self.buffer_flushed(part, Ok(())),
            Err(_) => self.part_done(part, Err(RequestError::Unavailable)),
        }
        true
    }

    /// Gives the NVRAM set and the log this number: true once both have it. The main set is one behind at
    /// most.
    fn number_buffer(&mut self, session: u32) -> Result<bool, RequestError> {
        let follows = self.home().session().saturating_add(1) < session;
        if follows && !self.home().mirrors_up() {
            return Err(RequestError::Unavailable);
        }
        let sets = [
            (Site::Home, session - 1),
            (Site::Nvram, session),
            (Site::Log, session),
        ];
        for (site, session) in sets {
            let numbers = site != Site::Home || !self.home().partner_durable() || follows;
            let recorded = !numbers
                || self
                    .number_set(site, session)
                    .map_err(|_| RequestError::Unavailable)?;
            if !recorded {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
