//! The log at a start: decides whether its records are valid, and what happens if the log cannot be had.
//!
//! | fault of the log                                 | without `accept_loss` | with `accept_loss`                         |
//! |--------------------------------------------------|----------------|---------------------------------------------------|
//! | it is of another array, or unsuited              | refused        | refused                                           |
//! | it would start with free space, or from a minority | refused      | refused: nothing is lost                          |
//! | the primary copies have all that it had          | refused        | refused: nothing is lost                          |
//! | it is old or damaged, or takes no new session    | refused        | all that only the log may have is given up        |
//! | a record that was flushed cannot be read         | refused        | that record is given up, and all behind it        |
//! | it cannot be written after it was read           | refused        | refused                                           |
//!
//! If the log holds no valid data, the main set continues without it, or the log restarts empty. That is not
//! done for the log of another array, or for an unsuited one.

use super::Start;
use super::serve::{LOGLESS, LOGLESS_SHAPE, NOTHING};
use super::state::{Phase, Slots, can_be_had, found_of, record_sectors};
use crate::children::{Owner, flush};
use crate::config::{RECORD_SECTORS, Redirect};
use crate::facts::Stage;
use crate::overlay::format::slot::HALF_SECTORS;
use crate::overlay::format::{AnchorTable, LogLayout, LogOwner, LogRegion, Recovered, Scan};
use crate::overlay::{Extent, Kind, Site};
use alloc::boxed::Box;
use alloc::vec::Vec;
use restripe_array::meta::superblock::{BufferMark, Partner, PartnerRole};
use restripe_array::parts::RunSet;
use restripe_array::{CommandError, Fact, PAGE_SECTORS, Page};

/// The number of segments of a log, or a few more, unless the segments would be too small or too large.
const SEGMENTS: u64 = 64;
const SEGMENT_SECTORS_MIN: u64 = 64;
const SEGMENT_SECTORS_MAX: u64 = 16 << 11;

const ONLY_MIRRORS: &str = "redirect graid and eraid require raid1 or raid10";

const PRIMARIES_HAVE_DATA: &str = "its log is stale or cannot be read, but the primary copies hold all data: omit its members and pass --degraded; nothing is lost";

/// The sectors of a segment in a log of this many sectors: the same size always gives the same result.
fn segment_sectors(sectors: u64) -> u32 {
    let share = (sectors / SEGMENTS).max(1);
    let power = 1 << share.ilog2();
    power.clamp(SEGMENT_SECTORS_MIN, SEGMENT_SECTORS_MAX) as u32
}

/// The extents that are lost if records are valid up to `cut`, and the record from which on they are lost. An
/// earlier record with older copies of lost data must not be valid either.
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

/// Whether the records that were found fit an array of this many sectors.
fn sound(found: &Recovered, sectors: u64) -> bool {
    found.extents.iter().all(|extent| extent.end() <= sectors)
}

impl Start {
    /// Both sets serve. The log is read if it may hold valid data, and restarts empty if not.
    pub(crate) fn open_log(&mut self) {
        if self.holds_overlay() {
            return self.go_on_with_overlay();
        }
        if self.surrogate.members == 0 {
            return self.go_without_log();
        }
        let (home, log) = (self.home(), self.log());
        let partner = home.partner();
        let theirs = log.partner();
        let belong = partner
            .is_some_and(|partner| partner.role == PartnerRole::Main && partner.array == log.id())
            && theirs.is_some_and(|theirs| theirs.array == home.id());
        if !belong {
            let first = self.route.global(Site::Log, restripe_array::Member(0));
            return self.refuse(CommandError::Foreign(first));
        }
        let region = LogRegion {
            start: 0,
            sectors: log.layout().size_sectors(),
        };
        let grain = match log.whole_rows() {
            true => log.layout().row_sectors() as u32,
            false => PAGE_SECTORS as u32,
        };
        let segment = segment_sectors(region.sectors).max(grain) / grain * grain;
        match region.cut_in_grains(segment, grain) {
            Err(_) => self.refuse(CommandError::TooSmall {
                has: region.sectors,
                needs: 4 * SEGMENT_SECTORS_MIN,
            }),
            Ok(_) if self.surrogate.redirect == Redirect::Graid && !home.is_mirrored() => {
                self.refuse(CommandError::Unsuited(ONLY_MIRRORS));
            }
            Ok(_) if self.surrogate.redirect == Redirect::Eraid => {
                let why = "--redirect eraid requires an array without a surrogate, and this array has one";
                self.refuse(CommandError::Unsuited(why));
            }
            Ok(_) if self.surrogate.redirect == Redirect::Graid && log.whole_rows() => {
                let why = "redirect graid cannot use a code cache as its log";
                self.refuse(CommandError::Unsuited(why));
            }
            Ok(_) if grain > RECORD_SECTORS => {
                let why = "a row of a code cache must not be longer than a record";
                self.refuse(CommandError::Unsuited(why));
            }
            Ok(_) if log.whole_rows() && self.surrogate.limits.records_in_memory == 0 => {
                let why = "a code cache needs memory for its clusters";
                self.refuse(CommandError::Unsuited(why));
            }
            Ok(layout) => self.open_log_of(layout),
        }
    }

    /// A set was restarted below the overlay.
    fn go_on_with_overlay(&mut self) {
        let doubt = self.start_mut().doubt.take();
        let doubt = doubt.map(|extents| CommandError::WouldLose { extents });
        match self.absent.take().or(doubt) {
            Some(error) => self.fail_start(error),
            None => {
                self.settle_copies();
                self.end_start(Ok(()), Stage::Serving);
            }
        }
    }

    fn open_log_of(&mut self, layout: LogLayout) {
        match self.check_sessions() {
            // The main set may be so old that it had nothing redirected.
            Err(error) if self.log_counts() || error == CommandError::LogIsNewer => {
                return self.of_another_time(error, layout);
            }
            _ => {}
        }
        self.open_buffer(layout);
    }

    /// The log is not of the main set's last start. An older log does not show which of its records are still
    /// valid, so it is given up whole or not at all. Members of the main set that were started from a
    /// minority may be old, and then a newer log is right.
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

    /// Both sets serve, and are of one time. Continues with the NVRAM set, or without it if it is not needed.
    fn open_buffer(&mut self, layout: LogLayout) {
        let mark = self.buffer_mark();
        let needed = self.needs_buffer();
        let here = self.has_own_buffer();
        let has = self.surrogate.buffer_members > 0;
        let error = match mark {
            _ if !here && has && self.started[Site::Nvram] => {
                let first = self.route.global(Site::Nvram, restripe_array::Member(0));
                Some(CommandError::Foreign(first))
            }
            _ if !here => Some(
                self.buffer_absent
                    .clone()
                    .unwrap_or(CommandError::BufferMissing),
            ),
            BufferMark::None => Some(CommandError::Unsuited(
                "this log was created without an NVRAM buffer",
            )),
            _ if !self.log().whole_rows() => Some(CommandError::Unsuited(
                "only a code cache has an NVRAM buffer",
            )),
            _ if self.slots().slots() < self.surrogate.limits.cluster_records => {
                let (has, needs) = (self.buffer_set().layout().size_sectors(), 2 * HALF_SECTORS);
                let needs = needs * u64::from(self.surrogate.limits.cluster_records);
                Some(CommandError::TooSmall { has, needs })
            }
            _ if needed && self.is_buffer_old() => Some(CommandError::BufferIsOld),
            _ => None,
        };
        let start = self.start_mut();
        let mode = start.mode;
        start.slots = Slots {
            counts: needed && error.is_none(),
            ..Slots::default()
        };
        self.buffer.used = error.is_none();
        if let Some(error) = error {
            if needed && (!self.accepts_loss() || can_be_had(&error, mode)) {
                return self.refuse_buffer(error);
            }
            if has || mark != BufferMark::None {
                let (why, forgone) = (Box::new(error), needed);
                self.report_of_start(Fact::BufferAbsent { why, forgone });
            }
        }
        match self.may_write() {
            true => self.number_from_now(layout),
            false => self.take_log(layout),
        }
    }

    pub(crate) fn take_log(&mut self, layout: LogLayout) {
        match self.log_counts() {
            true if self.start_mut().slots.counts => {
                self.start_mut().phase = Phase::Slots { layout };
            }
            true => self.read_log(layout),
            false => self.begin_anew(layout),
        }
    }

    /// Writes go to the primary copies first, and no other copy has their data (ERAID).
    fn go_without_log(&mut self) {
        let why = match self.surrogate.redirect {
            Redirect::Eraid if !self.home().is_mirrored() => ONLY_MIRRORS,
            Redirect::Eraid => return self.open_overlay_of(LOGLESS, &NOTHING, LOGLESS_SHAPE),
            _ => "there is no surrogate to redirect to",
        };
        self.fail_start(CommandError::Unsuited(why));
    }

    /// The log holds no valid data.
    pub(crate) fn begin_anew(&mut self, layout: LogLayout) {
        if self.start_mut().mode.read_only {
            return self.end_start(Ok(()), Stage::MainOnly);
        }
        // Sectors that a member lost are as invalid as the rest of the log, and must not look like damage
        // later.
        self.at(Site::Log, |log| log.forget_lost());
        self.at_home(|home| {
            if home.records_primary_only() {
                home.redirects_home();
            }
        });
        let epoch = self.raise_epoch();
        let owner = LogOwner {
            array: self.home().id(),
            epoch: epoch.into(),
        };
        self.table = Some(AnchorTable::new(owner, layout));
        self.start_mut().phase = Phase::Beginning { found: NOTHING };
    }

    /// Continues with the next phase if all of this phase's reads have ended.
    pub(crate) fn all_read(&mut self) -> bool {
        match &mut self.start_mut().phase {
            Phase::Anchors {
                layout,
                homes,
                ended,
                ..
            } if *ended == homes.len() => {
                let (layout, homes) = (*layout, core::mem::take(homes));
                self.load(layout, &homes);
                true
            }
            Phase::Scan(scan) if scan.is_done() => {
                self.scanned();
                true
            }
            _ => false,
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
        let layout = start.phase.layout();
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
                // The record was read, and could not be rewritten.
                return self.cannot_write();
            }
            return self.cut_off(layout, &recovered, first);
        }
        if self.start_mut().mode.read_only {
            let found = found_of(&recovered);
            self.table = Some(recovered.table);
            return self.open_overlay(&found);
        }
        self.start_mut().phase = Phase::Flushing(Box::new(recovered));
        self.ask(Site::Log, Owner::Start, flush());
    }

    /// The log cannot be used: the data that only the log may have is lost, if that is accepted.
    pub(crate) fn without_log(&mut self, error: CommandError, layout: LogLayout) {
        if error == CommandError::LogIsOld && self.primaries_have_data() {
            return self.refuse(CommandError::Unsuited(PRIMARIES_HAVE_DATA));
        }
        let mode = self.start_mut().mode;
        let accepts =
            self.accepts_loss() && !can_be_had(&error, mode) && !self.primaries_have_data();
        match accepts && !self.home().halted() {
            true => self.give_up_log(layout),
            false => self.refuse_without(error),
        }
    }

    /// The log lacks anchors or records that it should have.
    fn damaged(&mut self) {
        if self.primaries_have_data() {
            return self.refuse(CommandError::Unsuited(PRIMARIES_HAVE_DATA));
        }
        let layout = self.start_mut().phase.layout();
        if self.accepts_loss() {
            return self.give_up_log(layout);
        }
        if let Some(extents) = self.start_mut().doubt.take() {
            return self.fail_start(CommandError::WouldLose { extents });
        }
        let error = CommandError::LogDamaged {
            surrogate: self.log().id(),
            extents: self.home().redirected_extents(),
        };
        self.fail_start(error);
    }

    /// A record that may have been acknowledged cannot be read in full, and the rest of it may be old. So
    /// this record and those behind it are lost, if that is accepted. The log is read again up to it.
    fn cut_off(&mut self, layout: LogLayout, recovered: &Recovered, first: u64) {
        if self.primaries_have_data() {
            return self.refuse(CommandError::Unsuited(PRIMARIES_HAVE_DATA));
        }
        let (cut, extents) = lost_from(&recovered.extents, first);
        if !self.start_mut().mode.accept_loss {
            return self.fail_start(CommandError::WouldLose { extents });
        }
        self.at_home(|home| {
            for &(lba, sectors) in &extents {
                home.lose(lba, sectors);
            }
        });
        self.start_mut().cut = Some(cut);
        self.read_log(layout);
    }

    /// All data that only the log may have is lost.
    fn give_up_log(&mut self, layout: LogLayout) {
        self.at_home(|home| {
            for (lba, sectors) in home.redirected_extents() {
                home.lose(lba, sectors);
            }
        });
        self.start_mut().phase = Phase::Losing { layout };
    }

    /// The loss is recorded: no record in the log is valid any more. The main set records a higher epoch
    /// before the log gets its number. Otherwise the log could be taken for the one that the main set left.
    pub(crate) fn forget_log(&mut self, layout: LogLayout) -> bool {
        if self.home().writes_lost_list() {
            return false;
        }
        if self.log_counts() {
            self.at_home(|home| home.redirects_home());
            self.raise_epoch();
            return true;
        }
        match self.home().has_partner_durable() {
            Ok(false) => return false,
            Ok(true) => self.open_log_of(layout),
            Err(error) => self.fail_start(error),
        }
        true
    }

    /// Makes all records in the log invalid.
    fn raise_epoch(&mut self) -> u32 {
        let before = self.home().partner().expect("it was compared");
        let epoch = before.epoch + 1;
        self.at_home(|home| home.set_partner(Some(Partner { epoch, ..before })));
        epoch
    }
}
