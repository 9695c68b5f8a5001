//! The last writes of a start into the log, and the overlay that then serves clients. Anchors cut off invalid
//! records and make new records valid.

use super::Start;
use super::state::{Phase, found_of, record_sectors};
use crate::config::RECORD_SECTORS;
use crate::destage::staging;
use crate::facts::Stage;
use crate::overlay::format::LogLayout;
use crate::overlay::{FoundInLog, LogShape, Overlay, OverlayLimits, Packing, Site, StripeDestage};
use alloc::boxed::Box;
use alloc::vec::Vec;
use restripe_array::layout::Level;
use restripe_array::{BAND_SECTORS_MAX, CommandError, Fact, PAGE_SECTORS, RequestError};

/// The number of segments reserved for cleaning. Fewer free segments than the two shares below start a
/// destage, and the dropping of clean data.
const RESERVE: u32 = 1;
/// The reserve where a log is cleaned: one segment's data may move at once, though a flush closes a record
/// early.
const RESERVE_OF_CLEANED: u32 = 2;
/// A log with fewer segments has none to spare.
const SEGMENTS_OF_CLEANED: u32 = 8;
const RECLAIM_SHARE: u32 = 8;
const DROP_SHARE: u32 = 4;

/// How records are laid out in a log.
pub(crate) struct LogUse {
    record_sectors: u32,
    grain: u32,
    logless: bool,
}

/// For an array without a log.
pub(crate) const LOGLESS: LogUse = LogUse {
    record_sectors: RECORD_SECTORS,
    grain: PAGE_SECTORS as u32,
    logless: true,
};
pub(crate) const LOGLESS_SHAPE: LogShape = LogShape {
    segments: 4,
    segment_sectors: 2 * RECORD_SECTORS,
    reserve: 1,
    reclaim_below: 1,
    drop_below: 1,
};
/// For a log that restarts empty, and for an array without a log.
pub(crate) const NOTHING: FoundInLog = FoundInLog {
    segments: Vec::new(),
    extents: Vec::new(),
    sequence: 1,
};

fn shape(layout: &LogLayout, cleaned: bool) -> LogShape {
    let segments = layout.segments();
    let (reserve, least) = match cleaned && segments >= SEGMENTS_OF_CLEANED {
        // Cleaning starts before clients have to wait.
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

impl Start {
    /// A flush of the start has ended, or a round of its anchors.
    pub(crate) fn start_written(&mut self, result: Result<(), RequestError>) {
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
            self.table = Some(recovered.table);
        }
    }

    pub(crate) fn write_anchors(&mut self) -> bool {
        if self.home().writes_lost_list() || self.log().writes_lost_list() {
            // Records that are cut off are recorded as lost first, and repairs as found.
            return false;
        }
        let mut any = false;
        while self.write_anchor() {
            any = true;
        }
        if any || self.writes_anchors() {
            return any;
        }
        if self.table().changed().is_some() {
            return false;
        }
        let start = self.start_mut();
        match core::mem::replace(&mut start.phase, Phase::Sets) {
            Phase::Closing { found } => {
                let next = found.sequence;
                start.phase = Phase::Beginning { found };
                self.table().begin(next);
            }
            Phase::Beginning { found } => self.open_overlay(&found),
            _ => unreachable!("anchors are written in these phases"),
        }
        true
    }

    /// How packed data is destaged: a stripe is a chunk of each primary copy.
    pub(crate) fn stripe_destage(&self) -> StripeDestage {
        let geometry = self.home().geometry();
        let copies = match geometry.level {
            Level::Raid10 { copies } => u64::from(copies),
            _ => u64::from(geometry.slots),
        };
        let chunk = self.home().layout().chunk_sectors();
        StripeDestage {
            order: self.surrogate.destage.order,
            stripe_sectors: chunk * (u64::from(geometry.slots) / copies).max(1),
            run_sectors: BAND_SECTORS_MAX as u32,
            pages: u64::from(self.surrogate.limits.parts_home) * staging::PAGES,
        }
    }

    pub(crate) fn open_overlay(&mut self, found: &FoundInLog) {
        let layout = *self.table().layout();
        let log = LogUse {
            record_sectors: record_sectors(&layout, self.log().whole_rows()),
            grain: layout.grain(),
            logless: false,
        };
        let cleaned = self.log().whole_rows() && self.surrogate.destage.cleans();
        self.open_overlay_of(log, found, shape(&layout, cleaned));
    }

    pub(crate) fn open_overlay_of(&mut self, log: LogUse, found: &FoundInLog, shape: LogShape) {
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
                destage: self.stripe_destage(),
            }),
        };
        let overlay = Overlay::new(limits, shape, found);
        let mut overlay = overlay.expect("the map has room for what was found");
        overlay.plant(self.config.bug);
        self.overlay = Some(overlay);
        if self.home().log_counts() && self.home().records_primary_first() {
            // From here on only the log is valid.
            self.at_home(|core| core.set_ahead(false));
        }
        self.settle_copies();
        self.forget_redirects();
        self.end_start(Ok(()), Stage::Serving);
    }

    /// Copies of the main set may differ only where primary copies are written first. Otherwise they are
    /// repaired.
    pub(crate) fn settle_copies(&mut self) {
        let defers = self.surrogate.redirect.goes_ahead();
        self.sets[Site::Home].ties_mut().primaries_first = defers;
    }
}

// -------------------------------------------------------------------------------------------------- sessions

impl Start {
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
                self.numbering_failed(layout);
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
                Err(_) => self.numbering_failed(layout),
            },
            Err(error) if self.buffer.used && self.buffer_set().halted() => {
                self.lose_buffer(error, layout);
            }
            Err(_) if !self.log_counts() && !self.home().halted() => self.continue_without_log(),
            Err(error) => self.without_log(error, layout),
        }
        true
    }

    /// The log set cannot record its number or its mark.
    fn numbering_failed(&mut self, layout: LogLayout) {
        match !self.log_counts() && !self.home().halted() {
            true => self.continue_without_log(),
            false => {
                let error = self.why_unwritable();
                self.without_log(error, layout);
            }
        }
    }

    /// The NVRAM set failed during the start: the start continues without it if it holds no valid data.
    fn lose_buffer(&mut self, error: CommandError, layout: LogLayout) {
        if self.start_mut().slots.counts {
            return self.refuse_buffer(error);
        }
        self.buffer.used = false;
        let why = Box::new(CommandError::OfBuffer(Box::new(error)));
        let forgone = false;
        self.report_of_start(Fact::BufferAbsent { why, forgone });
        self.number_from_now(layout);
    }
}
