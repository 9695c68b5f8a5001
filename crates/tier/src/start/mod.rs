//! Starting an array that has a log set.
//!
//! | phase     | waits for                                                     | next                             |
//! |-----------|---------------------------------------------------------------|----------------------------------|
//! | Sets      | the engines of the log set, the main set, and the NVRAM set   | Numbering, Anchors, or it ends   |
//! | Numbering | both sets have the number of this start recorded              | Anchors, Beginning, or it ends   |
//! | Anchors   | the pages of the log's anchors                                | Scan                             |
//! | Slots     | the records in the NVRAM set ([`slots`])                      | Anchors                          |
//! | Scan      | headers and payloads of the records                           | Moving, Flushing, Losing, or it ends |
//! | Moving    | records that only the NVRAM set has whole are in the log      | Anchors                          |
//! | Losing    | the main set has recorded which data was accepted as lost     | Numbering                        |
//! | Flushing  | the records that were found are durable                       | Closing                          |
//! | Closing   | anchors that cut off invalid records                          | Beginning                        |
//! | Beginning | anchors that make new records valid                           | it ends                          |
//!
//! The main set's superblock records whether the log may hold valid data (`redirected` of the set). If the
//! log holds none, it is not read: the log restarts under a higher epoch. The main set records that epoch
//! before the first record becomes valid. If the log holds valid data and cannot be found, the start is
//! refused. Data that was accepted as lost is invalid under the new epoch.
//!
//! A start that failed may be retried: sets that serve already continue to serve.
//!
//! Two floors: [`reading`] and [`slots`] read. Above them, [`log`] judges the records that were found, and
//! [`serve`] starts to serve clients.

mod log;
pub(crate) mod reading;
mod serve;
mod slots;
mod state;

use super::append::Rounds;
use super::children::child_command;
use super::facts::Stage;
use super::route::SITES;
use crate::overlay::format::Recovered;
use crate::overlay::{Kind, Site};
use alloc::boxed::Box;
use alloc::vec::Vec;
use reading::LogReader;
use restripe_array::parts::RunSet;
use restripe_array::{Command, CommandError, CommandTag, Event, Fact, StartMode};
use state::{Phase, Slots, StartState, can_be_had};

pub(crate) struct Start {
    pub(crate) below: LogReader,
}

floor!(Start over LogReader {});

impl Start {
    pub(crate) fn begin_start(&mut self, tag: CommandTag, mode: StartMode) {
        if self.stage != Stage::Idle {
            return self.answer_busy(tag, "the array is running");
        }
        self.stage = Stage::Starting;
        self.absent = None;
        self.buffer_absent = None;
        if !self.holds_overlay() {
            self.rounds = Rounds::default();
            self.table = None;
        }
        self.start = Some(Box::new(StartState {
            tag,
            mode,
            phase: Phase::Sets,
            reads: Vec::new(),
            next: None,
            doubt: None,
            cut: None,
            slots: Slots::default(),
        }));
        self.lost = Some(Vec::new());
        for site in SITES {
            let set = &mut self.sets[site];
            set.wait_for_tier(true);
            set.ties_mut().is_part = site != Site::Home;
        }
        if self.started[Site::Log] || self.surrogate.members == 0 {
            self.start_home();
        } else {
            self.start_set(Site::Log, mode);
        }
    }

    fn start_set(&mut self, site: Site, mut mode: StartMode) {
        mode.from_minority |= self.starts_from_those_that_served(site);
        self.step_set(
            site,
            Event::Command(child_command(site), Command::Start(mode)),
        );
        self.revives_without_loss(site);
    }

    /// Both sets serve. The NVRAM set starts last: by then it is known how old it may be, and a set that is
    /// older is refused before it writes anything.
    fn start_buffer(&mut self) {
        let has = self.surrogate.buffer_members > 0 && !self.started[Site::Nvram];
        if !has || self.buffer_absent.is_some() {
            return self.open_log();
        }
        let expected = (self.home().id(), self.log().session());
        let expected = self.needs_buffer().then_some(expected);
        self.sets[Site::Nvram].ties_mut().least_session = expected;
        let mode = self.start_mut().mode;
        self.start_set(Site::Nvram, mode);
    }

    fn start_home(&mut self) {
        let attached = self.absent.is_none() && self.surrogate.members > 0;
        let ties = self.sets[Site::Home].ties_mut();
        ties.attached = attached;
        // Until the log is read, it is not known whether the data in it is needed from the primary copies.
        ties.primaries_first = ties.attached;
        let serves = self.started[Site::Home];
        match self.absent.clone().filter(|_| serves) {
            Some(error) => self.fail_start(error),
            None if serves => self.start_buffer(),
            None => {
                let mut mode = self.start_mut().mode;
                // The main set may be started again, once it is known whether the log holds valid data.
                mode.accept_loss &= !self.log_can_be_had(mode);
                self.start_set(Site::Home, mode);
            }
        }
    }

    /// Whether the log's data is not lost, even with `accept_loss`: the log starts once its error is
    /// remedied.
    fn log_can_be_had(&self, mode: StartMode) -> bool {
        let absent = self.absent.as_ref();
        absent.is_some_and(|error| can_be_had(error, mode))
    }

    pub(crate) fn set_answered(&mut self, site: Site, result: Result<(), CommandError>) {
        match (site, result) {
            (_, Err(error)) if matches!(error.innermost(), CommandError::Owned { .. }) => {
                self.fail_start(error)
            }
            (Site::Log, Ok(())) => {
                self.started[Site::Log] = true;
                self.start_home();
            }
            (Site::Nvram, result) => {
                self.started[Site::Nvram] = result.is_ok();
                self.buffer_absent = result.err().map(|error| match error.innermost() {
                    CommandError::BufferIsOld => CommandError::BufferIsOld,
                    _ => error,
                });
                self.open_log();
            }
            (Site::Log, Err(error)) => {
                if let CommandError::OfSurrogate(why) = &error {
                    let why = why.clone();
                    self.report_of_start(Fact::SurrogateAbsent { why });
                }
                self.absent = Some(error);
                self.start_home();
            }
            (Site::Home, Ok(())) => {
                self.started[Site::Home] = true;
                match self.absent {
                    Some(_) => self.end_start(Ok(()), Stage::MainOnly),
                    None => self.start_buffer(),
                }
            }
            (Site::Home, Err(CommandError::WouldLose { extents })) if self.log_may_have() => {
                self.start_mut().doubt = Some(extents);
                self.start_buffer();
            }
            (Site::Home, Err(CommandError::WouldLose { .. })) if self.withheld_needlessly() => {
                let mode = self.start_mut().mode;
                self.start_set(Site::Home, mode);
            }
            (Site::Home, Err(error)) => {
                let error = self.absence_error(error);
                self.fail_start(error);
            }
        }
    }

    /// Whether the log may have the data that the main set would lose.
    fn log_may_have(&self) -> bool {
        self.absent.is_none() && self.log_counts()
    }

    /// Whether `accept_loss` was withheld from the main set, for a log that could be had but holds no valid
    /// data. The main set's superblock and map record that, and have been read by now.
    fn withheld_needlessly(&mut self) -> bool {
        let mode = self.start_mut().mode;
        mode.accept_loss && self.log_can_be_had(mode) && !self.log_counts()
    }

    /// The error to report if the main set misses its log set, or data that the log set may have. If the log
    /// set could be started in another way, the log set's error says more.
    fn absence_error(&mut self, error: CommandError) -> CommandError {
        let missing = matches!(error, CommandError::SurrogateMissing { .. });
        let CommandError::OfSurrogate(why) = self.absent.clone().unwrap_or(CommandError::NoArray)
        else {
            return error;
        };
        let mode = self.start_mut().mode;
        let can_be_had = can_be_had(&why, mode);
        let would_lose = |error: &CommandError| matches!(error, CommandError::WouldLose { .. });
        let could_start = can_be_had || would_lose(&why) && !mode.accept_loss;
        let may_have = can_be_had && self.log_counts();
        match missing && could_start || would_lose(&error) && may_have {
            true => CommandError::OfSurrogate(why),
            false => error,
        }
    }

    /// The parts of these extents of the main set that the log does not have.
    fn not_in_log(&self, found: &Recovered, extents: &[(u64, u64)], gap: u64) -> Vec<(u64, u64)> {
        let mut left = RunSet::from_runs(extents);
        let sure = found.unread.first().copied().unwrap_or(u64::MAX);
        for extent in &found.extents {
            if extent.kind != Kind::Clean && extent.sequence < sure {
                left.remove(extent.home, u64::from(extent.sectors));
            }
        }
        let slots = self.start.as_ref().map(|start| &start.slots);
        for (_, version) in slots.map_or(Vec::new(), |slots| slots.chain(gap)) {
            for extent in &version.extents {
                left.remove(extent.home, u64::from(extent.sectors));
            }
        }
        left.runs().to_vec()
    }

    /// The log has been read, to find the data that the main set would lose. If there is none, the main set
    /// starts.
    pub(crate) fn settle_doubt(&mut self, found: &Recovered, extents: &[(u64, u64)], gap: u64) {
        let extents = self.not_in_log(found, extents, gap);
        if !extents.is_empty() {
            return self.fail_start(CommandError::WouldLose { extents });
        }
        let start = self.start_mut();
        start.phase = Phase::Sets;
        let mode = StartMode {
            accept_loss: true,
            ..start.mode
        };
        self.start_set(Site::Home, mode);
    }

    /// Continues a start. Returns false if the start has to wait.
    pub(crate) fn advance_start(&mut self) -> bool {
        let Some(start) = &mut self.start else {
            return false;
        };
        match &start.phase {
            Phase::Anchors { .. } | Phase::Scan(_) => self.read_on() || self.all_read(),
            Phase::Slots { .. } | Phase::Moving { .. } => self.slots_on(),
            Phase::Closing { .. } | Phase::Beginning { .. } => self.write_anchors(),
            Phase::Numbering { .. } => self.number(),
            Phase::Losing { layout } => {
                let layout = *layout;
                self.forget_log(layout)
            }
            Phase::Sets | Phase::Flushing(_) => false,
        }
    }
}
