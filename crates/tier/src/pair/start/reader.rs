//! The lower floor of a start: what it reads ([`super::reading`], [`super::again`], [`super::slots`]), and
//! how it ends.
//!
//! Owns the state of the start under way.

use super::state::{Phase, Start, of_buffer};
use crate::overlay::Site;
use crate::overlay::format::{LogLayout, LogOwner};
use crate::pair::facts::Stage;
use crate::pair::remove::Removal;
use crate::pair::route::SITES;
use alloc::boxed::Box;
use restripe_array::parts::TAG;
use restripe_array::{Action, CommandError, Fact};

pub(crate) struct LogReader {
    pub(crate) below: Removal,
    pub(crate) start: Option<Box<Start>>,
    /// How an attempt's start ended ([`crate::pair::revive`]).
    pub(crate) outcome: Option<Result<(), CommandError>>,
}

floor!(LogReader over Removal { start, outcome });

impl LogReader {
    pub(crate) fn start_mut(&mut self) -> &mut Start {
        self.start.as_mut().expect("a start is under way")
    }

    /// Not while it is only asked what is there.
    pub(crate) fn may_write(&mut self) -> bool {
        let start = self.start_mut();
        !start.mode.read_only && start.doubt.is_none()
    }

    pub(crate) fn accepts_loss(&mut self) -> bool {
        self.start_mut().mode.accept_loss && self.may_write()
    }

    pub(crate) fn log_owner(&self) -> LogOwner {
        let home = self.home();
        let partner = home.partner().expect("it was compared");
        LogOwner {
            array: home.id(),
            epoch: partner.epoch.into(),
        }
    }

    pub(crate) fn read_log(&mut self, layout: LogLayout) {
        let count = 2 * layout.anchors() as usize;
        self.start_mut().phase = Phase::Anchors {
            layout,
            homes: (0..count).map(|_| None).collect(),
            asked: 0,
            ended: 0,
        };
    }

    pub(crate) fn end_start(&mut self, result: Result<(), CommandError>, stage: Stage) {
        let start = self.start.take().expect("a start is under way");
        let lost = self.lost.take().unwrap_or_default();
        self.stage = stage;
        let home = &mut self.sets[Site::Home];
        let ties = home.ties_mut();
        ties.primaries_first &= stage != Stage::Alone;
        ties.counted_above = stage == Stage::Serving;
        ties.cached_above = stage == Stage::Serving;
        if start.tag == TAG {
            self.outcome = Some(result.clone());
        }
        if result.is_ok() {
            let home = self.home();
            let fact = Fact::Started {
                generation: home.generation(),
                recovered_rows: home.recovered_rows(),
            };
            if start.tag != TAG {
                self.answer_command(start.tag, Ok(()));
                self.out.push(Action::Fact(fact));
            }
            for site in SITES {
                self.at(site, |set| set.wait_for_tier(false));
            }
        } else if start.tag != TAG {
            self.answer_command(start.tag, result);
        }
        for (lba, sectors) in lost {
            self.tell_lost(lba, sectors);
        }
    }

    pub(crate) fn fail_start(&mut self, error: CommandError) {
        self.end_start(Err(error), Stage::Idle);
    }

    pub(crate) fn refuse(&mut self, error: CommandError) {
        let error = CommandError::OfSurrogate(Box::new(error));
        self.fail_start(error);
    }

    pub(crate) fn refuse_buffer(&mut self, error: CommandError) {
        self.fail_start(of_buffer(error));
    }

    /// A log that too few members are left of while the start is on its way is missing, as one that was not
    /// there.
    pub(crate) fn refuse_without(&mut self, error: CommandError) {
        let missing = matches!(error, CommandError::TooFew { .. });
        match missing && !self.home().halted() && !self.firsts_have_it() {
            true => self.fail_start(self.log_missing()),
            false => self.refuse(error),
        }
    }

    fn log_missing(&self) -> CommandError {
        CommandError::SurrogateMissing {
            surrogate: self.log().id(),
            extents: self.home().redirected_extents(),
        }
    }

    /// Whether a start without the log would believe first copies for what it had: then nothing is lost with
    /// it, whatever is accepted.
    pub(crate) fn firsts_have_it(&mut self) -> bool {
        self.home().records_primary_first() && self.start_mut().doubt.is_none()
    }

    /// The log cannot be written. If nothing counts in it, home goes on alone.
    pub(crate) fn cannot_write(&mut self) {
        match &self.start_mut().phase {
            Phase::Beginning { found } if found.extents.is_empty() => {
                self.go_on_alone();
            }
            _ => {
                let error = self.why_unwritable();
                self.refuse_without(error);
            }
        }
    }

    pub(crate) fn why_unwritable(&self) -> CommandError {
        let log = self.log();
        log.halt()
            .map_or(CommandError::Metadata, |halt| log.halt_error(halt))
    }

    /// Nothing counts in a log that cannot be written.
    pub(crate) fn go_on_alone(&mut self) {
        let why = Box::new(self.why_unwritable());
        self.tell_of_start(Fact::SurrogateAbsent { why });
        self.end_start(Ok(()), Stage::Alone);
    }
}
