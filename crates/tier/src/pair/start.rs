//! Starting an array with a surrogate.
//!
//! | phase     | waits for                                                   | next                             |
//! |-----------|-------------------------------------------------------------|----------------------------------|
//! | Sets      | the surrogate's engine, then home's                         | Numbering, Anchors, or it ends   |
//! | Numbering | both sets have the number of this start on record           | Anchors, Beginning, or it ends   |
//! | Anchors   | the pages of the log's anchors                              | Scan                             |
//! | Slots     | what the buffer has ([`slots`])                             | Anchors                          |
//! | Scan      | headers and payloads of the records                         | Moving, Flushing, Losing, or it ends |
//! | Moving    | records that the buffer alone has whole are in the log      | Anchors                          |
//! | Losing    | what was accepted as lost is on record at home              | Numbering                        |
//! | Flushing  | what was found is durable                                   | Closing                          |
//! | Closing   | anchors that cut off what does not count                    | Beginning                        |
//! | Beginning | anchors that let new records count                          | it ends                          |
//!
//! Home knows whether anything that counts lies in the log (`redirected` of the set). If nothing does, nobody reads it: the
//! log begins anew under a higher epoch, which home has on record before the first record counts. If something does, and
//! cannot be found, the start is refused. What was accepted as lost is forgotten with the epoch.
//!
//! A start that failed may be tried again: sets that serve already go on to.

mod again;
mod begin;
mod log;
mod reading;
mod slots;

use super::child::Owner;
use super::route::SITES;
use super::{Pair, Stage, child_command, jobs};
use crate::overlay::format::{AnchorTable, LogLayout, Read, Recovered, Scan};
use crate::overlay::{Extent, FoundInLog, Kind, Site};
use alloc::boxed::Box;
use alloc::vec::Vec;
use begin::record_sectors;
use reading::Reading;
use restripe_array::parts::{RunSet, TAG};
use restripe_array::{Action, Command, CommandError, CommandTag, Event, Fact, Page, StartMode};
use slots::Slots;

enum Phase {
    Sets,
    /// Both homes of each anchor, in turn; how many are asked for, and how many are there.
    Anchors {
        layout: LogLayout,
        homes: Vec<Option<Page>>,
        asked: usize,
        ended: usize,
    },
    Scan(Box<Scan>),
    /// What the buffer has, and what of it goes into the log.
    Slots {
        layout: LogLayout,
    },
    Moving {
        layout: LogLayout,
    },
    /// Both sets get the start's number on record ([`super::session`]).
    Numbering {
        layout: LogLayout,
        session: u32,
        last: u32,
    },
    Flushing(Box<Recovered>),
    /// What the log does not tell is called lost.
    Losing {
        layout: LogLayout,
    },
    Closing {
        found: FoundInLog,
    },
    Beginning {
        found: FoundInLog,
    },
}

pub(super) struct Start {
    tag: CommandTag,
    mode: StartMode,
    phase: Phase,
    reads: Vec<Option<Reading>>,
    /// A read of the scan that found no buffer.
    next: Option<Read>,
    /// What home would lose, while the log is asked whether it has that.
    doubt: Option<Vec<(u64, u64)>>,
    /// What home called lost.
    lost: Vec<(u64, u64)>,
    /// The log counts up to this record: what it and those behind it had is lost.
    cut: Option<u64>,
    slots: Slots,
}

/// Whether a set that did not start in this mode would, with room for what it writes, or from the members that are here.
fn can_be_had(error: &CommandError, mode: StartMode) -> bool {
    match error.innermost() {
        CommandError::Minority { .. } => !mode.from_minority,
        error => *error == CommandError::NoSpace,
    }
}

impl Pair {
    pub(super) fn begin_start(&mut self, tag: CommandTag, mode: StartMode) {
        if self.stage != Stage::Idle {
            let error = CommandError::Busy("the array is running");
            self.out.push(Action::CommandReply(tag, Err(error)));
            return;
        }
        self.stage = Stage::Starting;
        self.absent = None;
        self.buffer_absent = None;
        if !self.revive.holds_overlay() {
            self.jobs.begin_anew();
        }
        self.start = Some(Box::new(Start {
            tag,
            mode,
            phase: Phase::Sets,
            reads: Vec::new(),
            next: None,
            doubt: None,
            lost: Vec::new(),
            cut: None,
            slots: Slots::default(),
        }));
        for site in SITES {
            let set = &mut self.sets[site];
            set.wait_for_tier(true);
            set.ties_mut().is_part = site != Site::Home;
        }
        if self.started[Site::Log] || self.surrogate.members == 0 {
            self.start_buffer(mode);
        } else {
            self.start_set(Site::Log, mode);
        }
    }

    fn start_set(&mut self, site: Site, mut mode: StartMode) {
        mode.from_minority |= self.starts_from_those_that_served(site);
        self.tell(
            site,
            Event::Command(child_command(site), Command::Start(mode)),
        );
        self.revives_without_loss(site);
    }

    fn start_buffer(&mut self, mode: StartMode) {
        let has = self.surrogate.buffer_members > 0 && self.absent.is_none();
        match has && !self.started[Site::Buffer] {
            true => self.start_set(Site::Buffer, mode),
            false => self.start_home(),
        }
    }

    fn start_home(&mut self) {
        let home = &mut self.sets[Site::Home];
        let ties = home.ties_mut();
        ties.attached = self.absent.is_none() && self.surrogate.members > 0;
        // Until the log is read it is not known whether first copies are needed for what they have.
        ties.primaries_first = ties.attached;
        let serves = self.started[Site::Home];
        match self.absent.clone().filter(|_| serves) {
            Some(error) => self.end_start(Err(error), Stage::Idle),
            None if serves => self.open_log(),
            None => {
                let mut mode = self.start_mut().mode;
                // Home may be asked again, once it is known whether the log counts.
                mode.accept_loss &= !self.log_can_be_had(mode);
                self.start_set(Site::Home, mode);
            }
        }
    }

    /// Whether what the log has is not lost, whatever is accepted: it starts once that is done which its error asks for.
    fn log_can_be_had(&self, mode: StartMode) -> bool {
        let absent = self.absent.as_ref();
        absent.is_some_and(|error| can_be_had(error, mode))
    }

    fn start_mut(&mut self) -> &mut Start {
        self.start.as_mut().expect("a start is under way")
    }

    pub(super) fn set_answered(&mut self, site: Site, result: Result<(), CommandError>) {
        match (site, result) {
            (_, Err(error)) if matches!(error.innermost(), CommandError::Owned { .. }) => {
                self.end_start(Err(error), Stage::Idle)
            }
            (Site::Log, Ok(())) => {
                self.started[Site::Log] = true;
                let mode = self.start_mut().mode;
                self.start_buffer(mode);
            }
            (Site::Buffer, result) => {
                self.started[Site::Buffer] = result.is_ok();
                self.buffer_absent = result.err();
                self.start_home();
            }
            (Site::Log, Err(error)) => {
                if let CommandError::OfSurrogate(why) = &error {
                    let why = why.clone();
                    self.tell_of_start(Fact::SurrogateAbsent { why });
                }
                self.absent = Some(error);
                self.start_home();
            }
            (Site::Home, Ok(())) => {
                self.started[Site::Home] = true;
                match self.absent {
                    Some(_) => self.end_start(Ok(()), Stage::Alone),
                    None => self.open_log(),
                }
            }
            (Site::Home, Err(CommandError::WouldLose { extents })) if self.log_may_have() => {
                self.start_mut().doubt = Some(extents);
                self.open_log();
            }
            (Site::Home, Err(CommandError::WouldLose { .. })) if self.withheld_in_vain() => {
                let mode = self.start_mut().mode;
                self.start_set(Site::Home, mode);
            }
            (Site::Home, Err(error)) => {
                let error = self.told_of_absence(error);
                self.end_start(Err(error), Stage::Idle);
            }
        }
    }

    /// Whether the log may have what home would lose.
    fn log_may_have(&self) -> bool {
        self.absent.is_none() && self.log_counts()
    }

    /// Home was not told that losses are accepted, for the sake of a log that can be had; and nothing in that counts. Home's own
    /// superblock and map say so, and have been read by now.
    fn withheld_in_vain(&mut self) -> bool {
        let mode = self.start_mut().mode;
        mode.accept_loss && self.log_can_be_had(mode) && !self.log_counts()
    }

    /// Home misses its surrogate, or what that may have: what it could be started by, if it could, says more.
    fn told_of_absence(&mut self, error: CommandError) -> CommandError {
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

    /// What of these extents of home the log does not have.
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

    /// The log has been read, to know what home would lose indeed. If that is nothing, home starts.
    fn settle_doubt(&mut self, found: &Recovered, extents: &[(u64, u64)], gap: u64) {
        let extents = self.not_in_log(found, extents, gap);
        if !extents.is_empty() {
            return self.end_start(Err(CommandError::WouldLose { extents }), Stage::Idle);
        }
        let start = self.start_mut();
        start.phase = Phase::Sets;
        let mode = StartMode {
            accept_loss: true,
            ..start.mode
        };
        self.start_set(Site::Home, mode);
    }

    /// Home calls sectors lost: they are, unless the log has them.
    pub(super) fn lost_at_home(&mut self, lba: u64, sectors: u64) {
        match &mut self.start {
            Some(start) => start.lost.push((lba, sectors)),
            None => self.tell_lost(lba, sectors),
        }
    }

    /// Neither home nor the log has these sectors.
    pub(super) fn lose_for_good(&mut self, lba: u64, sectors: u64) {
        self.at_home(|home| home.lose(lba, sectors));
        self.out.push(Action::Fact(Fact::Lost { lba, sectors }));
    }

    fn tell_lost(&mut self, lba: u64, sectors: u64) {
        let lost = match self.overlay.as_ref().or(self.revive.former_overlay()) {
            Some(overlay) => overlay.not_instead(lba..lba + sectors),
            None => alloc::vec![(lba, sectors)],
        };
        for (lba, sectors) in lost {
            self.tell_of(Site::Home, Fact::Lost { lba, sectors });
        }
    }

    fn end_start(&mut self, result: Result<(), CommandError>, stage: Stage) {
        let start = self.start.take().expect("a start is under way");
        self.stage = stage;
        let home = &mut self.sets[Site::Home];
        let ties = home.ties_mut();
        ties.primaries_first &= stage != Stage::Alone;
        ties.counted_above = stage == Stage::Serving;
        ties.cached_above = stage == Stage::Serving;
        if start.tag == TAG {
            self.revive.outcome = Some(result.clone());
        }
        if result.is_ok() {
            let fact = Fact::Started {
                generation: home.generation(),
                recovered_rows: home.recovered_rows(),
            };
            if start.tag != TAG {
                self.out.push(Action::CommandReply(start.tag, Ok(())));
                self.out.push(Action::Fact(fact));
            }
            for site in SITES {
                self.at(site, |set| set.wait_for_tier(false));
            }
        } else if start.tag != TAG {
            self.out.push(Action::CommandReply(start.tag, result));
        }
        for (lba, sectors) in start.lost {
            self.tell_lost(lba, sectors);
        }
    }

    // ----------------------------------------------------------------------------------------------------- reading

    fn read_log(&mut self, layout: LogLayout) {
        let count = 2 * layout.anchors() as usize;
        self.start_mut().phase = Phase::Anchors {
            layout,
            homes: (0..count).map(|_| None).collect(),
            asked: 0,
            ended: 0,
        };
    }

    /// Goes on with a start; false if it has to wait.
    pub(super) fn advance_start(&mut self) -> bool {
        let Some(start) = &mut self.start else {
            return false;
        };
        match &start.phase {
            Phase::Anchors { .. } | Phase::Scan(_) => self.read_on(),
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

    fn load(&mut self, layout: LogLayout, homes: &[Option<Page>]) {
        let owner = self.log_owner();
        let whole_rows = self.log().whole_rows();
        match AnchorTable::load(owner, layout, homes) {
            Ok(table) => {
                let start = self.start_mut();
                let mut scan = Scan::new(table);
                scan.look_behind(layout.footprint(record_sectors(&layout, whole_rows)));
                if let Some(cut) = start.cut {
                    scan.cut_at(cut);
                }
                start.phase = Phase::Scan(Box::new(scan));
            }
            Err(_) => self.damaged(),
        }
    }

    fn scanned(&mut self) {
        let size = self.home().layout().size_sectors();
        let start = self.start_mut();
        let layout = match &start.phase {
            Phase::Scan(scan) => *scan.layout(),
            _ => unreachable!("a scan has ended"),
        };
        let nothing = Phase::Anchors {
            layout,
            homes: Vec::new(),
            asked: 0,
            ended: 0,
        };
        let Phase::Scan(scan) = core::mem::replace(&mut start.phase, nothing) else {
            unreachable!("a scan has ended")
        };
        if self.move_from_buffer(&scan) {
            return;
        }
        let gap = scan.gap();
        match scan.finish() {
            Ok(found) if sound(&found, size) && found.damage.is_empty() => {
                self.go_on(layout, found, gap);
            }
            _ => self.damaged(),
        }
    }

    fn go_on(&mut self, layout: LogLayout, recovered: Recovered, gap: u64) {
        if let Some(extents) = self.start_mut().doubt.take() {
            return self.settle_doubt(&recovered, &extents, gap);
        }
        if let Some(&first) = recovered.unread.first() {
            if self.log().halted() {
                // It was read, and could not be written again.
                return self.cannot_write();
            }
            return self.cut_off(layout, &recovered, first);
        }
        if self.start_mut().mode.read_only {
            let found = found_of(&recovered);
            self.jobs.table = Some(recovered.table);
            return self.open_overlay(&found);
        }
        self.start_mut().phase = Phase::Flushing(Box::new(recovered));
        self.children.ask(Site::Log, Owner::Start, jobs::flush());
    }
}

/// Whether what was found can be of an array of so many sectors.
fn sound(found: &Recovered, sectors: u64) -> bool {
    found.extents.iter().all(|extent| extent.end() <= sectors)
}

/// What counts from now on: no clean copies, since a crash may have taken back at home what they are of.
fn found_of(recovered: &Recovered) -> FoundInLog {
    let counts = |extent: &&Extent| extent.kind != Kind::Clean;
    FoundInLog {
        segments: recovered.segments.clone(),
        extents: recovered.extents.iter().filter(counts).copied().collect(),
        sequence: recovered.next,
    }
}
