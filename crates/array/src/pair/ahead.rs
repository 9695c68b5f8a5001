//! GRAID: first copies at home go ahead of the further ones, which sleep; a log elsewhere has what those lack.
//!
//! | state     | cause                                                            | next      |
//! |-----------|------------------------------------------------------------------|-----------|
//! | believed  | a member of home fails                                           | doubted   |
//! | doubted   | all copies are here and in step, and the log holds nothing       | believed  |
//!
//! While first copies are believed, a write goes to them and into the log, is read of them, and goes from them to the further
//! copies: so a log that fails costs nothing, since they go on with what it had. While they are doubted the log counts alone, as
//! after every start: so a first copy that fails costs nothing, since log and mirror have all. Then no further write goes into the
//! log but over what lies there, and that goes home at once. So it does before copies are compared, and as long as they are.

use super::{Pair, Redirect, Stage};
use crate::contract::{Action, Command, CommandError, CommandTag, Event};
use crate::overlay::Site;

impl Pair {
    /// Whether a write goes into the log, and to first copies.
    pub(super) fn goes_ahead(&self) -> bool {
        let overlay = self.overlay.as_ref().expect("a serving pair has one");
        overlay.trusts() && !self.wants_log_empty()
    }

    /// Begins to believe first copies, or ceases to; false if nothing changes.
    pub(super) fn settle_trust(&mut self) -> bool {
        let Some(overlay) = &self.overlay else {
            return false;
        };
        if self.policy.redirect() != Redirect::Graid {
            return false;
        }
        let (whole, trusted) = (self.home().copies_are_whole(), overlay.trusts());
        let begins = self.stage == Stage::Serving
            && !overlay.is_broken()
            && !overlay.is_going_home()
            && !self.home().compares_copies()
            && overlay.is_void();
        let trusts = match trusted {
            true => whole,
            false => whole && begins && self.all_called_dirty() && self.is_on_record(),
        };
        if trusts == trusted {
            return self.release_held();
        }
        if !trusts {
            self.at_home(|core| {
                core.set_ahead(false);
                core.clean_by_and_by();
            });
        }
        let overlay = self.overlay.as_mut().expect("just seen");
        overlay.trust(trusts);
        true
    }

    /// Whether a crash would find every region in doubt: what reached first copies may not have reached the log.
    fn all_called_dirty(&mut self) -> bool {
        let home = &mut self.sets[Site::Home as usize];
        let before = home.intent.touched;
        let ready = home.dirty_all();
        self.children.delivered |= home.intent.touched && !before;
        ready
    }

    /// Whether a start without the log would believe first copies.
    fn is_on_record(&mut self) -> bool {
        if !self.home().superblock.ahead {
            self.at_home(|core| core.set_ahead(true));
        }
        self.home().keeper.partner_durable()
    }

    /// Whether what lies in the log is to go home for good.
    pub(super) fn wants_log_empty(&self) -> bool {
        let overlay = self.overlay.as_ref().expect("a serving pair has one");
        let ahead = self.policy.redirect() == Redirect::Graid;
        let compares = !self.policy.held.is_empty() || self.home().compares_copies();
        ahead && (!overlay.trusts() || overlay.is_broken() || compares)
    }

    /// A command that compares copies waits until they are the same; false if it need not.
    pub(super) fn hold(&mut self, tag: CommandTag, command: &Command) -> bool {
        let ahead = self.stage == Stage::Serving && self.policy.redirect() == Redirect::Graid;
        let holds = ahead && matches!(command, Command::Scrub { .. });
        if holds {
            self.policy.held.push((tag, *command));
        }
        holds
    }

    /// They are the same, or will not be; false if nothing waited for it.
    fn release_held(&mut self) -> bool {
        let overlay = self.overlay.as_ref().expect("a serving pair has one");
        let over = overlay.is_void() || !overlay.trusts();
        if self.policy.held.is_empty() || !over {
            return false;
        }
        for (tag, command) in core::mem::take(&mut self.policy.held) {
            self.tell(Site::Home, Event::Command(tag, command));
        }
        true
    }

    /// The array stops: what waits is not begun any more.
    pub(super) fn refuse_held(&mut self) {
        for (tag, _) in core::mem::take(&mut self.policy.held) {
            let error = CommandError::Busy("the array is stopping");
            self.out.push(Action::CommandReply(tag, Err(error)));
        }
    }
}
