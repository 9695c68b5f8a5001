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
//! Home knows whether anything that counts lies in the log ([`crate::redirected`]). If nothing does, nobody reads it: the
//! log begins anew under a higher epoch, which home has on record before the first record counts. If something does, and
//! cannot be found, the start is refused. What was accepted as lost is forgotten with the epoch.
//!
//! A start that failed may be tried again: sets that serve already go on to.

mod again;
mod reading;
mod slots;

use super::child::Owner;
use super::route::SITES;
use super::{Pair, RECORD_SECTORS, Redirect, Stage, child_command, jobs, kept};
use crate::BAND_SECTORS_MAX;
use crate::contract::{
    Action, Command, CommandError, CommandTag, Event, Fact, Page, RequestError, StartMode,
};
use crate::core::Core;
use crate::layout::Level;
use crate::meta::superblock::{Partner, PartnerRole};
use crate::overlay::format::{AnchorTable, LogLayout, LogOwner, LogRegion, Read, Recovered, Scan};
use crate::overlay::{
    Extent, FoundInLog, Homeward, Kind, LogShape, Overlay, OverlayLimits, Packing, Site,
};
use crate::runset::RunSet;
use crate::units::PAGE_SECTORS;
use alloc::boxed::Box;
use alloc::vec::Vec;
use reading::Reading;
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

/// A log has so many segments or a few more, unless they would be too small or too large.
const SEGMENTS: u64 = 64;
const SEGMENT_SECTORS_MIN: u64 = 64;
const SEGMENT_SECTORS_MAX: u64 = 16 << 11;
/// Of its segments, so many are kept for cleaning, and fewer than these free ask for going home, and for dropping what is
/// clean.
const RESERVE: u32 = 1;
/// Where a log is cleaned: as much as one has may be moved at once, though somebody's flush closes a record early.
const RESERVE_OF_CLEANED: u32 = 2;
/// A log of fewer segments has none to spare.
const SEGMENTS_OF_CLEANED: u32 = 8;
const RECLAIM_SHARE: u32 = 8;
const DROP_SHARE: u32 = 4;

const ONLY_MIRRORS: &str = "first copies go ahead in raid1 and raid10 only (redirect graid, eraid)";

const FIRSTS_HAVE_IT: &str = "its log cannot be read, and first copies have all that it had: leave it out and say --degraded, and nothing is lost";

/// How records come to lie in a log.
struct LogUse {
    record_sectors: u32,
    grain: u32,
    logless: bool,
}

/// Of an array that has none.
const LOGLESS: LogUse = LogUse {
    record_sectors: RECORD_SECTORS,
    grain: PAGE_SECTORS as u32,
    logless: true,
};
const LOGLESS_SHAPE: LogShape = LogShape {
    segments: 4,
    segment_sectors: 2 * RECORD_SECTORS,
    reserve: 1,
    reclaim_below: 1,
    drop_below: 1,
};
/// In a log that begins, and where there is none.
const NOTHING: FoundInLog = FoundInLog {
    segments: Vec::new(),
    extents: Vec::new(),
    sequence: 1,
};

/// Whether a set that did not start in this mode would, with room for what it writes, or from the members that are here.
fn can_be_had(error: &CommandError, mode: StartMode) -> bool {
    match error {
        CommandError::OfSurrogate(error) | CommandError::OfBuffer(error) => can_be_had(error, mode),
        CommandError::Minority { .. } => !mode.from_minority,
        error => *error == CommandError::NoSpace,
    }
}

/// The sectors of a segment in a log of so many: the same size always gives the same.
fn segment_sectors(sectors: u64) -> u32 {
    let share = (sectors / SEGMENTS).max(1);
    let power = 1 << share.ilog2();
    power.clamp(SEGMENT_SECTORS_MIN, SEGMENT_SECTORS_MAX) as u32
}

/// The payload of a record at most. Where a record is written at once, with its header, it is one buffer with that.
fn record_sectors(layout: &LogLayout, whole_rows: bool) -> u32 {
    let header = PAGE_SECTORS as u32;
    match whole_rows {
        true => {
            RECORD_SECTORS.min(layout.segment_sectors()) / layout.grain() * layout.grain() - header
        }
        false => RECORD_SECTORS.min(layout.segment_sectors() - header),
    }
}

fn shape(layout: &LogLayout, cleaned: bool) -> LogShape {
    let segments = layout.segments();
    let (reserve, least) = match cleaned && segments >= SEGMENTS_OF_CLEANED {
        // Cleaning begins before users wait.
        true => (RESERVE_OF_CLEANED, RESERVE_OF_CLEANED + 1),
        false => (RESERVE, RESERVE),
    };
    let reclaim_below = (segments / RECLAIM_SHARE).max(least);
    LogShape {
        segments,
        segment_sectors: layout.segment_sectors(),
        reserve,
        reclaim_below,
        drop_below: (segments / DROP_SHARE).max(reclaim_below),
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
        self.jobs.begin_anew();
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
            let set = &mut self.sets[site as usize];
            set.tasks.held = true;
            set.serves_as_surrogate = site != Site::Home;
        }
        if self.started[Site::Log as usize] || self.surrogate.members == 0 {
            self.start_buffer(mode);
        } else {
            self.start_set(Site::Log, mode);
        }
    }

    fn start_set(&mut self, site: Site, mode: StartMode) {
        self.tell(
            site,
            Event::Command(child_command(site), Command::Start(mode)),
        );
    }

    fn start_buffer(&mut self, mode: StartMode) {
        let has = self.surrogate.buffer_members > 0 && self.absent.is_none();
        match has && !self.started[Site::Buffer as usize] {
            true => self.start_set(Site::Buffer, mode),
            false => self.start_home(),
        }
    }

    fn start_home(&mut self) {
        let home = &mut self.sets[Site::Home as usize];
        home.attached = self.absent.is_none() && self.surrogate.members > 0;
        // Until the log is read it is not known whether first copies are needed for what they have.
        home.copies_apart = home.attached;
        if self.started[Site::Home as usize] {
            self.open_log();
        } else {
            let mut mode = self.start_mut().mode;
            // Home may be asked again, once it is known whether the log counts.
            mode.accept_loss &= !self.log_can_be_had(mode);
            self.start_set(Site::Home, mode);
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
            (Site::Log, Ok(())) => {
                self.started[Site::Log as usize] = true;
                let mode = self.start_mut().mode;
                self.start_buffer(mode);
            }
            (Site::Buffer, result) => {
                self.started[Site::Buffer as usize] = result.is_ok();
                self.buffer_absent = result.err();
                self.start_home();
            }
            (Site::Log, Err(error)) => {
                if let CommandError::OfSurrogate(why) = &error {
                    let why = why.clone();
                    self.out.push(Action::Fact(Fact::SurrogateAbsent { why }));
                }
                self.absent = Some(error);
                self.start_home();
            }
            (Site::Home, Ok(())) => {
                self.started[Site::Home as usize] = true;
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
        let lost = match &self.overlay {
            Some(overlay) => overlay.not_instead(lba..lba + sectors),
            None => alloc::vec![(lba, sectors)],
        };
        for (lba, sectors) in lost {
            self.out.push(Action::Fact(Fact::Lost { lba, sectors }));
        }
    }

    fn end_start(&mut self, result: Result<(), CommandError>, stage: Stage) {
        let start = self.start.take().expect("a start is under way");
        self.stage = stage;
        let home = &mut self.sets[Site::Home as usize];
        home.copies_apart &= stage != Stage::Alone;
        home.counted_above = stage == Stage::Serving;
        home.cached_above = stage == Stage::Serving;
        if result.is_ok() {
            let fact = Fact::Started {
                generation: home.superblock.generation,
                recovered_rows: home.recovered_rows,
            };
            self.out.push(Action::CommandReply(start.tag, Ok(())));
            self.out.push(Action::Fact(fact));
            for site in SITES {
                self.at(site, |set| set.tasks.held = false);
            }
        } else {
            self.out.push(Action::CommandReply(start.tag, result));
        }
        for (lba, sectors) in start.lost {
            self.tell_lost(lba, sectors);
        }
    }

    // ----------------------------------------------------------------------------------------------------- the log

    /// Both sets serve. The log is read if anything in it counts, and begun anew if not.
    fn open_log(&mut self) {
        if self.surrogate.members == 0 {
            return self.go_without_log();
        }
        let (home, log) = (self.home(), self.log());
        let partner = home.superblock.partner;
        let theirs = log.superblock.partner;
        let belong = partner.is_some_and(|partner| {
            partner.role == PartnerRole::Main && partner.array == log.superblock.array
        }) && theirs.is_some_and(|theirs| theirs.array == home.superblock.array);
        if !belong {
            let first = self.route.global(Site::Log, crate::Member(0));
            return self.refuse(CommandError::Foreign(first));
        }
        let region = LogRegion {
            start: 0,
            sectors: log.layout.size_sectors(),
        };
        let grain = match log.whole_rows() {
            true => log.layout.row_sectors() as u32,
            false => PAGE_SECTORS as u32,
        };
        let segment = segment_sectors(region.sectors).max(grain) / grain * grain;
        match region.cut_in_grains(segment, grain) {
            Err(_) => self.refuse(CommandError::TooSmall {
                has: region.sectors,
                needs: 4 * SEGMENT_SECTORS_MIN,
            }),
            Ok(_) if self.policy.redirect() == Redirect::Graid && !home.is_mirrored() => {
                self.refuse(CommandError::Unsuited(ONLY_MIRRORS));
            }
            Ok(_) if self.policy.redirect() == Redirect::Eraid => {
                let why = "redirect eraid has no log: this array has a surrogate";
                self.refuse(CommandError::Unsuited(why));
            }
            Ok(_) if self.policy.redirect() == Redirect::Graid && log.whole_rows() => {
                let why = "a code cache is no log for redirect graid";
                self.refuse(CommandError::Unsuited(why));
            }
            Ok(_) if grain > RECORD_SECTORS => {
                let why = "a row of a code cache is no longer than a record";
                self.refuse(CommandError::Unsuited(why));
            }
            Ok(_) if log.whole_rows() && self.surrogate.limits.records_in_memory == 0 => {
                let why = "a code cache takes memory for its clusters";
                self.refuse(CommandError::Unsuited(why));
            }
            Ok(layout) => self.open_log_of(layout),
        }
    }

    fn open_log_of(&mut self, layout: LogLayout) {
        if self.log_counts()
            && let Err(error) = self.check_sessions()
        {
            return self.of_another_time(error, layout);
        }
        self.open_buffer(layout);
    }

    /// Not while it is only asked what is there.
    fn may_write(&mut self) -> bool {
        let start = self.start_mut();
        !start.mode.read_only && start.doubt.is_none()
    }

    /// The log is not of home's last start. One that is older cannot tell which of its records still count, so it is given up whole or not at all;
    /// beside members of home that were started from a minority, which are older than they might be, a newer one is right.
    fn of_another_time(&mut self, error: CommandError, layout: LogLayout) {
        let newer = matches!(error, CommandError::LogIsNewer);
        if newer && self.start_mut().mode.from_minority && self.may_write() {
            self.open_buffer(layout);
        } else if newer {
            self.refuse(error);
        } else {
            self.without_log(error, layout);
        }
    }

    /// The log cannot be used: what may lie there alone is lost, if that is accepted.
    fn without_log(&mut self, error: CommandError, layout: LogLayout) {
        let mode = self.start_mut().mode;
        let accepts = self.accepts_loss() && !can_be_had(&error, mode) && !self.firsts_have_it();
        match accepts && !self.home().halted() {
            true => self.give_up_log(layout),
            false => self.refuse_without(error),
        }
    }

    fn accepts_loss(&mut self) -> bool {
        self.start_mut().mode.accept_loss && self.may_write()
    }

    /// A log that too few members are left of while the start is on its way is missing, as one that was not there.
    fn refuse_without(&mut self, error: CommandError) {
        let missing = matches!(error, CommandError::TooFew { .. });
        match missing && !self.home().halted() && !self.firsts_have_it() {
            true => self.end_start(Err(self.log_missing()), Stage::Idle),
            false => self.refuse(error),
        }
    }

    fn log_missing(&self) -> CommandError {
        CommandError::SurrogateMissing {
            surrogate: self.log().superblock.array,
            extents: self.home().redirected_extents(),
        }
    }

    fn number_from_now(&mut self, layout: LogLayout) {
        let session = self.next_session();
        let last = session + 1;
        self.start_mut().phase = Phase::Numbering {
            layout,
            session,
            last,
        };
    }

    /// Whether anything in the log may be all that there is of it. Where first copies went on without it, it lacks what they have.
    fn log_counts(&self) -> bool {
        let home = self.home();
        !home.superblock.alone && !home.redirected_extents().is_empty()
    }

    fn take_log(&mut self, layout: LogLayout) {
        match self.log_counts() {
            true if self.start_mut().slots.counts => {
                self.start_mut().phase = Phase::Slots { layout };
            }
            true => self.read_log(layout),
            false => self.begin_anew(layout),
        }
    }

    fn number(&mut self) -> bool {
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
        match self.number_start(session) {
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
        self.out
            .push(Action::Fact(Fact::BufferAbsent { why, forgone }));
        self.number_from_now(layout);
    }

    /// First copies go ahead, and nobody else has what they have (ERAID).
    fn go_without_log(&mut self) {
        let why = match self.policy.redirect() {
            Redirect::Eraid if !self.home().is_mirrored() => ONLY_MIRRORS,
            Redirect::Eraid => return self.open_overlay_of(LOGLESS, &NOTHING, LOGLESS_SHAPE),
            _ => "there is no surrogate to redirect to",
        };
        self.end_start(Err(CommandError::Unsuited(why)), Stage::Idle);
    }

    fn read_log(&mut self, layout: LogLayout) {
        let count = 2 * layout.anchors() as usize;
        self.start_mut().phase = Phase::Anchors {
            layout,
            homes: (0..count).map(|_| None).collect(),
            asked: 0,
            ended: 0,
        };
    }

    /// A record that may have been acknowledged cannot be read in full, and nobody can tell whether what can be read of it
    /// was ever written. So it is lost with those behind it, unless nobody accepts that; the log is read again up to it.
    fn cut_off(&mut self, layout: LogLayout, recovered: &Recovered, first: u64) {
        if self.firsts_have_it() {
            return self.refuse(CommandError::Unsuited(FIRSTS_HAVE_IT));
        }
        let (cut, extents) = lost_from(&recovered.extents, first);
        if !self.start_mut().mode.accept_loss {
            return self.end_start(Err(CommandError::WouldLose { extents }), Stage::Idle);
        }
        self.at_home(|home| {
            for &(lba, sectors) in &extents {
                home.lose(lba, sectors);
            }
        });
        self.start_mut().cut = Some(cut);
        self.read_log(layout);
    }

    /// Whether a start without the log would believe first copies for what it had: then nothing is lost with it, whatever is accepted.
    fn firsts_have_it(&mut self) -> bool {
        self.home().superblock.ahead && self.start_mut().doubt.is_none()
    }

    fn refuse(&mut self, error: CommandError) {
        let error = CommandError::OfSurrogate(Box::new(error));
        self.end_start(Err(error), Stage::Idle);
    }

    /// Nothing in the log counts.
    fn begin_anew(&mut self, layout: LogLayout) {
        if self.start_mut().mode.read_only {
            return self.end_start(Ok(()), Stage::Alone);
        }
        // What a member took of the log counts no more than the rest of it, and must not look like damage to later starts.
        self.at(Site::Log, |log| log.lost.forget());
        self.at_home(|home| {
            if home.superblock.alone {
                home.redirects_home();
            }
        });
        let epoch = self.raise_epoch();
        let owner = LogOwner {
            array: self.home().superblock.array,
            epoch: epoch.into(),
        };
        self.jobs.table = Some(AnchorTable::new(owner, layout));
        self.start_mut().phase = Phase::Beginning { found: NOTHING };
    }

    /// The log does not tell what it should have.
    fn damaged(&mut self) {
        if self.firsts_have_it() {
            return self.refuse(CommandError::Unsuited(FIRSTS_HAVE_IT));
        }
        let layout = match &self.start_mut().phase {
            Phase::Anchors { layout, .. } => *layout,
            Phase::Scan(scan) => *scan.layout(),
            _ => unreachable!("damage is met while reading"),
        };
        if self.accepts_loss() {
            return self.give_up_log(layout);
        }
        if let Some(extents) = self.start_mut().doubt.take() {
            return self.end_start(Err(CommandError::WouldLose { extents }), Stage::Idle);
        }
        let error = CommandError::LogDamaged {
            surrogate: self.log().superblock.array,
            extents: self.home().redirected_extents(),
        };
        self.end_start(Err(error), Stage::Idle);
    }

    /// All that may lie in the log alone is lost.
    fn give_up_log(&mut self, layout: LogLayout) {
        self.at_home(|home| {
            for (lba, sectors) in home.redirected_extents() {
                home.lose(lba, sectors);
            }
        });
        self.start_mut().phase = Phase::Losing { layout };
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

    /// What was lost is on record: nothing in the log counts any more. Home has a higher epoch on record before the log gets a number that could have it taken
    /// for what home left in it.
    fn forget_log(&mut self, layout: LogLayout) -> bool {
        if self.home().lost.dirty() {
            return false;
        }
        if self.log_counts() {
            self.at_home(Core::redirects_home);
            self.raise_epoch();
            return true;
        }
        match self.home().has_partner_durable() {
            Ok(false) => return false,
            Ok(true) => self.open_log_of(layout),
            Err(error) => self.end_start(Err(error), Stage::Idle),
        }
        true
    }

    /// What lies in the log counts no more.
    fn raise_epoch(&mut self) -> u32 {
        let before = self.home().superblock.partner.expect("it was compared");
        let epoch = before.epoch + 1;
        self.at_home(|home| home.set_partner(Some(Partner { epoch, ..before })));
        epoch
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
        let size = self.home().layout.size_sectors();
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

    // ------------------------------------------------------------------------------------------------------ writing

    /// A flush of the start has ended, or a round of its anchors.
    pub(super) fn start_written(&mut self, result: Result<(), RequestError>) {
        if result.is_err() {
            return self.cannot_write();
        }
        let start = self.start_mut();
        if matches!(start.phase, Phase::Flushing(_)) {
            let Phase::Flushing(recovered) = core::mem::replace(&mut start.phase, Phase::Sets)
            else {
                unreachable!("just seen")
            };
            let found = found_of(&recovered);
            self.start_mut().phase = Phase::Closing { found };
            self.jobs.table = Some(recovered.table);
        }
    }

    /// The log cannot be written. If nothing counts in it, home goes on alone.
    fn cannot_write(&mut self) {
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

    fn why_unwritable(&self) -> CommandError {
        let log = self.log();
        log.halt
            .map_or(CommandError::Metadata, |halt| log.halt_error(halt))
    }

    /// Nothing counts in a log that cannot be written.
    fn go_on_alone(&mut self) {
        let why = Box::new(self.why_unwritable());
        self.out.push(Action::Fact(Fact::SurrogateAbsent { why }));
        self.end_start(Ok(()), Stage::Alone);
    }

    fn write_anchors(&mut self) -> bool {
        if self.home().lost.dirty() || self.log().lost.dirty() {
            // What is cut off is on record as lost first, and what is forgotten as found.
            return false;
        }
        let mut any = false;
        while self.write_anchor() {
            any = true;
        }
        if any || self.writes_anchors() {
            return any;
        }
        if self.jobs.table().changed().is_some() {
            return false;
        }
        let start = self.start_mut();
        match core::mem::replace(&mut start.phase, Phase::Sets) {
            Phase::Closing { found } => {
                let next = found.sequence;
                start.phase = Phase::Beginning { found };
                self.jobs.table().begin(next);
            }
            Phase::Beginning { found } => self.open_overlay(&found),
            _ => unreachable!("anchors are written in these phases"),
        }
        true
    }

    /// How what was gathered goes home: a stripe is a chunk of each first copy.
    fn homeward(&self) -> Homeward {
        let geometry = self.home().superblock.geometry;
        let copies = match geometry.level {
            Level::Raid10 { copies } => u64::from(copies),
            _ => u64::from(geometry.slots),
        };
        let chunk = self.home().layout.chunk_sectors();
        Homeward {
            order: self.surrogate.destage.order,
            stripe_sectors: chunk * (u64::from(geometry.slots) / copies).max(1),
            run_sectors: BAND_SECTORS_MAX as u32,
            pages: u64::from(self.surrogate.limits.parts_home) * kept::PAGES,
        }
    }

    fn open_overlay(&mut self, found: &FoundInLog) {
        let layout = *self.jobs.table().layout();
        let log = LogUse {
            record_sectors: record_sectors(&layout, self.log().whole_rows()),
            grain: layout.grain(),
            logless: false,
        };
        let cleaned = self.log().whole_rows() && self.surrogate.destage.cleans();
        self.open_overlay_of(log, found, shape(&layout, cleaned));
    }

    fn open_overlay_of(&mut self, log: LogUse, found: &FoundInLog, shape: LogShape) {
        let limits = self.surrogate.limits;
        let found_extents = u32::try_from(found.extents.len()).unwrap_or(u32::MAX);
        let needed = found_extents
            .saturating_add(self.config.limits.requests)
            .saturating_mul(2);
        let limits = OverlayLimits {
            extents: limits.map_extents(shape.sectors()).max(needed),
            requests: self.config.limits.requests,
            record_sectors: log.record_sectors,
            copies: limits.copies,
            grain: log.grain,
            logless: log.logless,
            slots: self.buffer.used.then(|| self.slots().slots()),
            packing: self.log().whole_rows().then_some(Packing {
                records: limits.cluster_records,
                held: limits.records_in_memory,
                homeward: self.homeward(),
            }),
        };
        let overlay = Overlay::new(limits, shape, found);
        #[cfg_attr(not(feature = "planted"), allow(unused_mut))]
        let mut overlay = overlay.expect("the map has room for what was found");
        #[cfg(feature = "planted")]
        overlay.plant(self.config.bug);
        self.overlay = Some(overlay);
        if self.home().log_counts && self.home().superblock.ahead {
            // From here on the log alone counts.
            self.at_home(|core| core.set_ahead(false));
        }
        let ahead = self.policy.redirect().goes_ahead();
        self.sets[Site::Home as usize].copies_apart = ahead;
        self.forget_redirects();
        self.end_start(Ok(()), Stage::Serving);
    }
}

/// What is lost if records count up to this one: and from which on, since one before it that has older copies of some of
/// that must not count either.
fn lost_from(extents: &[Extent], mut cut: u64) -> (u64, Vec<(u64, u64)>) {
    let counts = |extent: &&Extent| extent.kind != Kind::Clean;
    let mut lost = RunSet::default();
    loop {
        for extent in extents.iter().filter(counts) {
            if extent.sequence >= cut {
                lost.insert(extent.home, u64::from(extent.sectors));
            }
        }
        let older = |extent: &&Extent| {
            let met = lost.within(extent.home, u64::from(extent.sectors));
            extent.sequence < cut && !met.is_empty()
        };
        match extents.iter().filter(counts).find(older) {
            Some(extent) => cut = extent.sequence,
            None => return (cut, lost.runs().to_vec()),
        }
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
