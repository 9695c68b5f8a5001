//! What stands between users and home: writes go into the log, reads are assembled from log and home, and what lies in
//! the log goes home again. It decides where bytes are; it moves none itself.
//!
//! A **record** is one write into the log, or a part of a large one.
//!
//! | state   | cause                                                   | next    |
//! |---------|---------------------------------------------------------|---------|
//! | waiting | room in log and map, and no older write waits           | writing |
//! | writing | the log has it                                          | landed  |
//! | writing | the log could not take it                               | failed  |
//! | landed  | every older record has landed: mapped, told to its user | -       |
//! | failed  | every older record has landed: the log is broken        | -       |
//!
//! Going home, of all records below a sequence: the oldest of the log, never some in the midst, or what those had
//! replaced would come back:
//!
//! | state    | cause                                                       | next     |
//! |----------|-------------------------------------------------------------|----------|
//! | copying  | every copy that counts and is older has been written home   | flushing |
//! | flushing | home and log are flushed                                    | voiding  |
//! | voiding  | the log's anchor says durably that these records are void   | copying the next of them, or over |
//!
//! Copies go in the order of home's addresses, or, where writes are gathered, stripe by stripe ([`stripes`]): then perhaps in rounds, of
//! the oldest records that memory has room for, and then of the next.
//!
//! What users write again and again would never be home. So when little is left, a last way home holds writes up that meet
//! it, from before its first copy until it is over.
//!
//! Rules, and why a crash at any moment is borne:
//! 1. Records are told to their users in the order of their sequences. So whatever was told is a prefix, and recovery
//!    may stop at the first record that is torn.
//! 2. A write on sectors that the map or a record under way has, of whatever kind, goes into the log: nothing at home
//!    is ever newer than what the log says.
//! 3. A piece leaves the map for good only when void: were it gone before, a write could go home, and a crash would
//!    bring the older piece back over it.
//! 4. What was replaced by a newer record keeps its place in the log until that one is durable, and until the reads
//!    that were begun before have ended.
//! 5. Before records are called void the log is flushed: what replaced some of them must be durable.
//! 6. A clean copy is made of sectors that nobody writes from before they are read until it is a record: what is written
//!    meanwhile spoils it.
//! 7. A start counts no clean copy: it may be of bytes that home had not made durable, and that a crash took back there.
//! 8. A write that goes *beside* its record to first copies at home, too, is told when both have it (GRAID). As long as home can be
//!    believed to have all that it was given ([`Overlay::trust`]), it is read there, and goes home from there to the further
//!    copies; from the moment when it cannot, and after every start, the record alone counts.
//! 9. A segment is written again only when its records are durably void: a record that is written over and torn would
//!    otherwise look like one that never was acknowledged, and end what counts ([`super::format`]).
//! 10. Cleaning ([`clean`]) moves what counts as a write of the same bytes would: a record of a higher sequence has them, in the map the
//!     newer place takes the older one's, and only if that is there still. Old records are called void when the log was flushed since the last
//!     of it was told.

mod beside;
mod buffered;
mod clean;
mod homeward;
mod pack;
mod records;
mod state;
mod stripes;

pub use clean::{Cleans, Oldest};
pub use pack::{PackTag, Packing, SealCause};
use restripe_array::parts::Bug;
use restripe_array::{
    BufRef, PAGE_SECTORS, Request, RequestError, RequestOp, RequestTag, SECTOR_BYTES,
};
pub use state::{Gathering, WayHome};
pub(crate) use stripes::FETCHES;
pub use stripes::Homeward;

use super::{Extent, ExtentMap, Kind, LogShape, LogSpace, Piece, Pressure, Refusal};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use beside::Beside;
use buffered::Buffering;
use clean::Cleaning;
use core::ops::Range;
use pack::Pack;
use stripes::Stripes;

/// Where a part of the work is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Site {
    Home,
    Log,
    /// What was gathered, and is to outlive a crash before the log has it.
    Buffer,
}

/// Names a part of the work, from its [`Effect`] to the call that ends it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct PartTag(pub u32);

/// What the overlay wants done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Reads sectors into a user's buffer; ends with [`Overlay::part_done`].
    Read {
        part: PartTag,
        /// At home.
        home: u64,
        /// What the log has of it, and at which sector; nothing of what home alone has.
        copy: Option<(Kind, u64)>,
        buf: BufRef,
    },
    /// Hands a request on to home as it is; ends with [`Overlay::part_done`].
    Pass {
        part: PartTag,
        request: Request,
    },
    /// Makes all that was told durable; ends with [`Overlay::part_done`].
    Flush {
        part: PartTag,
        site: Site,
    },
    /// Writes a record: its header, and the payload where the extent says; ends with [`Overlay::appended`].
    Append {
        extent: Extent,
        /// `None`: zeros.
        payload: Option<BufRef>,
        /// Every record below is durable.
        durable: u64,
    },
    /// Writes to first copies at home what goes into a record, or to all of them what does not count in the end, so that they are
    /// the same; ends with [`Overlay::went_beside`].
    Beside {
        sequence: u64,
        request: Request,
        all: bool,
    },
    /// Copies part of a user's write, or zeros, into a record in memory, to where the extent says; ends with
    /// [`Overlay::packed`].
    Pack {
        tag: PackTag,
        extent: Extent,
        /// Of the record's header, in the log.
        at: u64,
        source: Option<BufRef>,
    },
    /// Writes a record that was gathered in memory; ends with [`Overlay::appended`]. Its memory is needed no more then.
    Seal {
        sequence: u64,
        extents: Vec<Extent>,
        payload_sectors: u32,
        /// Every record below is durable.
        durable: u64,
    },
    /// Writes a version of a record in memory into the buffer; ends with [`Overlay::kept`].
    Keep(WantedVersion),
    /// Puts on record that the buffer does not count; ends with [`Overlay::buffer_forgone`].
    Forgo,
    /// Reads pieces that lie near each other in the log into memory, to be kept there as far as there is room: they go home soon.
    /// Ends with [`Overlay::part_done`], whatever came of it.
    Fetch {
        part: PartTag,
        pieces: Vec<Extent>,
    },
    /// Reads part of the log into memory: what counts of it goes into the log again. Ends with [`Overlay::moved_in`].
    Move {
        part: PartTag,
        at: u64,
        sectors: u32,
    },
    /// What was read for that is needed no more.
    Moved {
        buf: BufRef,
    },
    /// Pieces of these homes, and of this part of the log, need not be kept any more.
    Forget {
        home: Range<u64>,
        log: Range<u64>,
    },
    /// Writes are soon going to these homes, or are over.
    Foresee {
        home: Range<u64>,
        soon: bool,
    },
    /// Writes copies to their home, where they lie side by side: from first copies there to further ones what both have; ends with
    /// [`Overlay::part_done`].
    CopyHome {
        part: PartTag,
        extents: Vec<Extent>,
    },
    /// Says durably in the log that all records below are void; ends with [`Overlay::part_done`].
    Void {
        part: PartTag,
        below: u64,
    },
    /// Says durably in the log that all records below are durable, and those of this segment void: new ones are going to
    /// be written over them. Ends with [`Overlay::part_done`].
    Reuse {
        part: PartTag,
        segment: u32,
        durable: u64,
    },
    /// The log has a clean copy now, or it could not be had.
    Copied(CopyTag, Result<(), RequestError>),
    Reply(RequestTag, Result<(), RequestError>),
}

/// A version of a record that the buffer is to have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WantedVersion {
    pub sequence: u64,
    pub version: u32,
    /// Every record below is durable in the log.
    pub durable: u64,
    /// Nothing more comes into the record.
    pub closed: bool,
    pub extents: Vec<Extent>,
    pub payload_sectors: u32,
}

/// Names a clean copy that is being made, from [`Overlay::begin_copy`] on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct CopyTag(pub u64);

/// Bounds, fixed at construction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OverlayLimits {
    /// Extents of the map.
    pub extents: u32,
    /// Requests accepted and not yet replied to.
    pub requests: u32,
    /// Sectors of a record's payload at most; a longer write becomes several records.
    pub record_sectors: u32,
    /// Copies on their way home at once, and as many clean ones on their way into the log.
    pub copies: u32,
    /// What is written to the log is so many sectors, or a multiple: whole pages.
    pub grain: u32,
    /// Writes are gathered in memory. Then no clean copies are made.
    pub packing: Option<Packing>,
    /// Slots of the buffer into which flushes go, where writes are gathered.
    pub slots: Option<u32>,
    /// There is no log: first copies at home alone have what goes ahead (ERAID).
    pub logless: bool,
}

impl OverlayLimits {
    fn parts(&self) -> u32 {
        self.requests * PARTS_PER_REQUEST + self.copies + PARTS_OF_OWN
    }
}

/// What a start finds in a log. Of a new log: nothing, and the first sequence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundInLog {
    /// Segments with records that count, the oldest first.
    pub segments: Vec<u32>,
    /// The copies that count, in the order of their sequences; clean ones never do.
    pub extents: Vec<Extent>,
    /// Of the next record: above all that was ever written.
    pub sequence: u64,
}

struct Pending {
    request: Request,
    /// Sectors of it that have been started.
    cut: u64,
    parts: u32,
    /// Of a read: whether home and the log have been asked.
    asked: [bool; 2],
    error: Option<RequestError>,
}

#[derive(Clone, Copy, Debug)]
enum Owner {
    /// Part of a request.
    Request(u32),
    /// Part of a request that keeps places in the log from being written over.
    Reading {
        request: u32,
        serial: u64,
    },
    /// A flush of the log that no user asked for.
    Space,
    Copy {
        serial: u64,
        stripe: Option<u64>,
    },
    Fetch {
        serial: u64,
    },
    /// Part of the log that is read to be moved.
    Move {
        serial: u64,
    },
    Reuse,
    /// A flush of the buffer.
    Buffer,
    /// A flush of the log that makes slots of the buffer free.
    Slots,
    /// The flush of the log after which the buffer does not count.
    Forgo,
    HomeFlush,
    LogFlush,
    Void,
    CleanFlush,
    CleanVoid,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    owner: Owner,
    /// Of a flush of the log: records below were told when it began.
    covers: Option<u64>,
}

/// Who is told when a record has landed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Teller {
    /// Whoever wrote was told when the record had it.
    Nobody,
    Request(u32),
    Copy(CopyTag),
}

#[derive(Clone, Copy, Debug)]
struct Record {
    extent: Extent,
    teller: Teller,
    /// Of one that is gathered in memory: nothing more comes into it, and why.
    sealed: Option<SealCause>,
    /// Whether the log has it.
    result: Option<Result<(), RequestError>>,
    beside: Beside,
}

/// A piece that the map let go, whose place may still be needed.
#[derive(Clone, Copy, Debug)]
struct Retired {
    piece: Extent,
    /// Reads begun before this one may be reading it.
    serial: u64,
    /// It is free when all records below are durable: so what replaced it is.
    until: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// From this sector of home on.
    Copying(u64),
    /// As [`stripes`] says.
    ByStripes,
    Flushing {
        left: u32,
    },
    Voiding,
}

#[derive(Clone, Copy, Debug)]
struct GoingHome {
    /// What goes home now: the oldest of what is to go.
    below: u64,
    /// What is to go.
    until: u64,
    /// Copies under way.
    copies: u32,
    stage: Stage,
    /// Something of it failed: it ends when nothing of it is under way, and can be begun again.
    failed: bool,
}

/// Counted since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OverlayCounters {
    pub redirected_writes: u64,
    pub reads_of_log: u64,
    pub reads_of_both: u64,
    pub records: u64,
    pub sectors_home: u64,
    /// Writes by which they went home.
    pub writes_home: u64,
    /// Clusters that were read for it, and how many of these had been read before on the same way.
    pub clusters_read: u64,
    pub clusters_reread: u64,
    pub copies_spoiled: u64,
    pub clean_copies: u64,
    /// How often the log was cleaned, and sectors that were moved for it.
    pub cleanings: u64,
    pub sectors_moved: u64,
    /// Versions of records that were written into the buffer.
    pub versions: u64,
    /// Records that were gathered in memory and sealed, by [`SealCause`].
    pub seals: [u64; SealCause::ALL.len()],
}

pub struct Overlay {
    limits: OverlayLimits,
    map: ExtentMap,
    space: LogSpace,
    /// Of the next record.
    sequence: u64,
    /// Every record below is durable.
    durable: u64,
    /// The oldest first; their sequences have no gap.
    records: VecDeque<Record>,
    requests: Vec<Option<Pending>>,
    free: Vec<u32>,
    /// The first record of a segment, until the log's anchor says that what lies there is void.
    append_waiting: Option<Effect>,
    /// Writes that found no room, the oldest first.
    writes: VecDeque<u32>,
    /// Reads that found no room, the oldest first.
    reads: VecDeque<u32>,
    parts: Vec<Option<Part>>,
    free_parts: Vec<u32>,
    /// Serials of the reads under way, the oldest first.
    reading: VecDeque<(u64, bool)>,
    serial: u64,
    retired: VecDeque<Retired>,
    space_flush: bool,
    /// Flushes of the log that wait until records below have landed.
    flushes: VecDeque<(u64, PartTag)>,
    pack: Option<Pack>,
    buffering: Option<Buffering>,
    home: Option<GoingHome>,
    stripes: Option<Stripes>,
    cleaning: Option<Cleaning>,
    /// The last cleaning won nothing, and nothing went home since.
    in_vain: bool,
    /// The last way home goes on, or is about to begin: writes that meet what lies in the log wait.
    closing: bool,
    held_up: Vec<u32>,
    /// The last way home that ended was cut short.
    fell_short: bool,
    /// Clean copies whose sectors are being read.
    copies: Vec<CleanCopy>,
    next_copy: u64,
    broken: bool,
    trusts: bool,
    /// First copies are believed no more, or the log is not, and that is not on record yet.
    lapsing: bool,
    /// Flushes of a log that failed, until that is on record.
    late_flushes: Vec<PartTag>,
    counters: OverlayCounters,
    effects: VecDeque<Effect>,
    pub(crate) bug: Option<Bug>,
}

/// Sectors of home that are being read for a clean copy.
#[derive(Clone, Copy, Debug)]
struct CleanCopy {
    tag: CopyTag,
    home: u64,
    sectors: u32,
    /// Somebody has begun to write some of them.
    spoiled: bool,
}

/// Parts under way for each request, besides its records: a read that alternates between log and home waits for room.
const PARTS_PER_REQUEST: u32 = 8;
/// Parts that are nobody's request: a flush for space, the two flushes or the void of going home, the reuse of a segment, clusters
/// that are read; what cleaning reads, and its flush or void; and three for a buffer.
const PARTS_OF_OWN: u32 = 7 + stripes::FETCHES as u32 + clean::MOVES as u32 + 1;

impl Overlay {
    /// An overlay of a log in which this was found. What was found is durable.
    ///
    /// # Errors
    /// If more extents were found than the map holds.
    ///
    /// # Panics
    /// If a record of the longest payload does not fit a segment, or a shape or segment cannot be.
    pub fn new(
        limits: OverlayLimits,
        shape: LogShape,
        found: &FoundInLog,
    ) -> Result<Overlay, Refusal> {
        assert!(
            footprint(limits.record_sectors, limits.grain) <= shape.segment_sectors,
            "a record lies within a segment"
        );
        let (parts, requests) = (limits.parts(), limits.requests as usize);
        let mut overlay = Overlay {
            limits,
            map: ExtentMap::new(limits.extents),
            space: LogSpace::new(shape, &found.segments),
            sequence: found.sequence,
            durable: found.sequence,
            records: VecDeque::new(),
            requests: (0..requests).map(|_| None).collect(),
            free: (0..limits.requests).rev().collect(),
            append_waiting: None,
            reads: VecDeque::with_capacity(requests),
            writes: VecDeque::with_capacity(requests),
            parts: (0..parts).map(|_| None).collect(),
            free_parts: (0..parts).rev().collect(),
            reading: VecDeque::with_capacity(parts as usize),
            serial: 0,
            retired: VecDeque::new(),
            space_flush: false,
            flushes: VecDeque::new(),
            pack: limits.packing.map(Pack::new),
            buffering: limits.slots.map(Buffering::new),
            home: None,
            stripes: None,
            cleaning: None,
            in_vain: false,
            closing: false,
            fell_short: false,
            held_up: Vec::with_capacity(requests),
            copies: Vec::with_capacity(limits.copies as usize),
            next_copy: 0,
            broken: limits.logless,
            trusts: false,
            lapsing: false,
            late_flushes: Vec::new(),
            counters: OverlayCounters::default(),
            effects: VecDeque::new(),
            bug: None,
        };
        for extent in &found.extents {
            overlay.restore(*extent)?;
        }
        for &segment in &found.segments {
            let start = overlay.space.segment_range(segment).start;
            overlay.space.landed(start);
        }
        Ok(overlay)
    }

    fn restore(&mut self, extent: Extent) -> Result<(), Refusal> {
        let mut replaced = Vec::new();
        self.map.insert(extent, |piece| replaced.push(piece))?;
        self.space.mapped(&extent);
        for piece in replaced {
            self.space.unmapped(&piece);
        }
        Ok(())
    }

    /// What is wanted next.
    pub fn effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Whether another request is accepted now.
    pub fn ready(&self) -> bool {
        !self.free.is_empty()
    }

    pub fn map(&self) -> &ExtentMap {
        &self.map
    }

    pub fn counters(&self) -> OverlayCounters {
        self.counters
    }

    /// Of the next record: going home below it takes all that there is.
    pub fn next_sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether writes wait for room that only going home can make, or cleaning that has yet to begin.
    pub fn is_starved(&self) -> bool {
        let gathers = self.pack.as_ref().is_some_and(Pack::waits);
        let waits = gathers || self.append_waiting.is_some() || !self.retired.is_empty();
        !self.writes.is_empty() && !waits && self.cleaning.is_none()
    }

    /// How short the log's space is.
    pub fn pressure(&self) -> Pressure {
        self.space.pressure()
    }

    /// The log cannot be written any more: nobody waits for room in it.
    pub fn break_log(&mut self) {
        self.fail_log();
        self.pump_writes();
        self.clean_more();
        self.begin_last();
    }

    /// Whether the log failed: what must go there is refused, and what lies there alone cannot be had.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    pub fn is_going_home(&self) -> bool {
        self.home.is_some() || self.closing
    }

    /// Whether the last way home that ended was cut short by an error, or by [`Overlay::rest`].
    pub fn fell_short(&self) -> bool {
        self.fell_short
    }

    /// Whether users' writes wait for the last way home.
    pub fn is_closing(&self) -> bool {
        self.closing
    }

    /// Whether no request of a user is under way.
    pub fn is_idle(&self) -> bool {
        self.free.len() == self.requests.len()
    }

    /// Whether nothing at all is under way.
    pub fn is_quiet(&self) -> bool {
        let parts = self.free_parts.len() == self.parts.len() && self.append_waiting.is_none();
        let works = self.home.is_some() || !self.copies.is_empty() || !self.records.is_empty();
        let works = works || self.cleaning.is_some();
        self.is_idle() && parts && !works && !self.memory_works() && self.effects.is_empty()
    }

    /// Whether records in memory, or versions of them for the buffer, are at work.
    fn memory_works(&self) -> bool {
        let records = self.pack.as_ref().is_some_and(|pack| !pack.is_quiet());
        records || self.buffering.as_ref().is_some_and(|one| !one.is_quiet())
    }

    /// Whether home has everything, and nothing is on its way into the log.
    pub fn holds_nothing_instead(&self) -> bool {
        let held = [Kind::Instead, Kind::Also].map(|kind| self.map.total(kind).extents);
        held == [0, 0] && self.records.is_empty()
    }

    /// The same, and no write waits to go there.
    pub fn is_void(&self) -> bool {
        self.holds_nothing_instead() && self.writes.is_empty()
    }

    /// Whether nothing lies in the log, not even what home has, and nothing is on its way there or home. Reads of
    /// it may be under way.
    pub fn is_empty(&self) -> bool {
        let copied = self.map.total(Kind::Clean).extents > 0 || !self.copies.is_empty();
        let works =
            self.is_going_home() || self.cleaning.is_some() || self.append_waiting.is_some();
        self.is_void() && !copied && !self.memory_works() && !works
    }

    /// Sectors of a record's payload at most.
    pub fn record_sectors(&self) -> u32 {
        self.limits.record_sectors
    }

    /// Sectors of the log.
    pub fn log_sectors(&self) -> u64 {
        self.space.sectors()
    }

    // ---------------------------------------------------------------------------------------------------- requests

    /// A user's request, in whole sectors. `redirect`: into the log, if it writes. What overlaps something there goes
    /// there in any case.
    pub fn request(&mut self, request: Request, redirect: bool) {
        let Some(id) = self.free.pop() else {
            let refused = Err(RequestError::Unavailable);
            return self.effects.push_back(Effect::Reply(request.tag, refused));
        };
        self.requests[id as usize] = Some(Pending {
            request,
            cut: 0,
            parts: 0,
            asked: [false; 2],
            error: None,
        });
        match request.op {
            RequestOp::Flush => self.flush_both(id),
            RequestOp::Read => {
                self.reads.push_back(id);
                self.pump_reads();
            }
            RequestOp::Write | RequestOp::WriteZeroes { .. } | RequestOp::Trim => {
                self.change(id, redirect);
            }
        }
    }

    fn change(&mut self, id: u32, redirect: bool) {
        let request = self.pending(id).request;
        self.spoil(sectors_of(&request));
        let met = self.is_in_log(sectors_of(&request));
        match request.op {
            // To do nothing is a trim, too.
            RequestOp::Trim if met || redirect => {
                self.pending(id).cut = whole(&request);
                self.reply_if_done(id);
            }
            RequestOp::WriteZeroes { fast: true } if met || redirect => {
                self.pending(id).error = Some(RequestError::NotFast);
                self.pending(id).cut = whole(&request);
                self.reply_if_done(id);
            }
            RequestOp::Write | RequestOp::WriteZeroes { .. } if met && self.closing => {
                self.held_up.push(id);
            }
            RequestOp::Write | RequestOp::WriteZeroes { .. }
                if met || redirect && self.takes_writes() =>
            {
                self.counters.redirected_writes += 1;
                self.writes.push_back(id);
                self.pump_writes();
            }
            _ => self.pass(id, request),
        }
    }

    fn pass(&mut self, id: u32, request: Request) {
        self.pending(id).cut = whole(&request);
        let part = self.begin_part(Owner::Request(id));
        self.effects.push_back(Effect::Pass { part, request });
    }

    /// Whether any of these sectors is mapped, or is in a record under way.
    fn is_in_log(&self, sectors: Range<u64>) -> bool {
        let mapped = |piece: Piece| matches!(piece, Piece::Mapped(_));
        let packs = |pack: &Pack| pack.touches(&sectors);
        self.pack.as_ref().is_some_and(packs)
            || self
                .records
                .iter()
                .any(|record| record.extent.within(sectors.clone()).is_some())
            || self.map.lookup(sectors).any(mapped)
    }

    fn flush_both(&mut self, id: u32) {
        self.pending(id).cut = 0;
        let home = self.begin_part(Owner::Request(id));
        self.effects.push_back(Effect::Flush {
            part: home,
            site: Site::Home,
        });
        self.flush_log(Owner::Request(id));
    }

    /// Flushes the log, when all that was told lies there.
    fn flush_log(&mut self, owner: Owner) {
        let cause = match owner {
            Owner::Request(id) if self.pending(id).request.fua => SealCause::Fua,
            Owner::LogFlush => SealCause::Destage,
            _ => SealCause::Flush,
        };
        let part = self.begin_part(owner);
        if matches!(owner, Owner::Request(_)) && self.flush_buffer(part) {
            return;
        }
        // A user's: one for space would make none, again and again.
        let unsealed = cause == SealCause::Flush && matches!(owner, Owner::Request(_));
        let unsealed = unsealed && self.planted(Bug::FlushUnsealed);
        let until = match self.pack {
            Some(_) if !unsealed => self.sequence,
            _ => self.told(),
        };
        self.flushes.push_back((until, part));
        if !unsealed {
            self.seal(cause);
        }
        self.begin_flushes();
    }

    fn begin_flushes(&mut self) {
        let told = self.told();
        while let Some((_, part)) = self.flushes.pop_front_if(|(until, _)| *until <= told) {
            self.flush_told(part);
        }
    }

    /// Makes durable in the log what was told.
    fn flush_told(&mut self, part: PartTag) {
        let (told, site) = (self.told(), Site::Log);
        self.part_mut(part).covers = Some(told);
        self.effects.push_back(Effect::Flush { part, site });
    }

    // ------------------------------------------------------------------------------------------------------- reads

    fn pump_reads(&mut self) {
        while let Some(&id) = self.reads.front() {
            if !self.cut_read(id) {
                return;
            }
            self.reads.pop_front();
            self.reply_if_done(id);
        }
    }

    /// Starts what is left of a read, piece by piece; false if there was no room for all of it.
    fn cut_read(&mut self, id: u32) -> bool {
        loop {
            let pending = self.pending(id);
            let (request, cut, asked) = (pending.request, pending.cut, pending.asked);
            let sectors = sectors_of(&request);
            if cut == whole(&request) {
                self.counters.reads_of_log += u64::from(asked[Site::Log as usize]);
                self.counters.reads_of_both += u64::from(asked == [true; 2]);
                return true;
            }
            if self.free_parts.len() as u32 <= self.kept_parts() {
                return false;
            }
            let rest = sectors.start + cut..sectors.end;
            let home = rest.start;
            let piece = self.map.lookup(rest).next().expect("a range has pieces");
            let (copy, count) = match piece {
                Piece::Mapped(extent) => {
                    let copy = (self.kind_now(&extent), extent.at);
                    (Some(copy), u64::from(extent.sectors))
                }
                Piece::Hole { sectors, .. } => (None, sectors),
            };
            let at_home = copy.is_none_or(|(kind, _)| kind == Kind::Also);
            self.pending(id).asked[usize::from(!at_home)] = true;
            let serial = self.begin_reading();
            let part = self.begin_part(Owner::Reading {
                request: id,
                serial,
            });
            let bytes = (count * SECTOR_BYTES) as u32;
            let buf = request.buf.part((cut * SECTOR_BYTES) as u32, bytes);
            self.pending(id).cut += count;
            self.effects.push_back(Effect::Read {
                part,
                home,
                copy,
                buf,
            });
        }
    }

    /// Parts that reads leave to others, so that nothing waits for reads only.
    fn kept_parts(&self) -> u32 {
        self.limits.requests * 2 + self.limits.copies + PARTS_OF_OWN
    }

    fn begin_reading(&mut self) -> u64 {
        self.serial += 1;
        self.reading.push_back((self.serial, false));
        self.serial
    }

    fn end_reading(&mut self, serial: u64) {
        let first = self.reading.front().expect("it is under way").0;
        self.reading[(serial - first) as usize].1 = true;
        while self.reading.front().is_some_and(|(_, ended)| *ended) {
            self.reading.pop_front();
        }
        self.settle_retired();
    }

    // ------------------------------------------------------------------------------------------------------- parts

    fn begin_part(&mut self, owner: Owner) -> PartTag {
        let index = self.free_parts.pop().expect("room is kept for it");
        self.parts[index as usize] = Some(Part {
            owner,
            covers: None,
        });
        if let Owner::Request(id) | Owner::Reading { request: id, .. } = owner {
            self.pending(id).parts += 1;
        }
        PartTag(index)
    }

    fn part_mut(&mut self, tag: PartTag) -> &mut Part {
        self.parts[tag.0 as usize]
            .as_mut()
            .expect("it is under way")
    }

    /// Whether a part is of a user's request.
    pub fn is_users(&self, part: PartTag) -> bool {
        let part = self.parts[part.0 as usize].as_ref();
        part.is_some_and(|part| matches!(part.owner, Owner::Request(_) | Owner::Reading { .. }))
    }

    /// The log has no room for now: users' flushes that wait for records, and writes that wait for the last way home, are refused.
    /// Records stay on their way. False if there are none.
    pub fn refuse_users(&mut self, error: RequestError) -> bool {
        let waiting = core::mem::take(&mut self.flushes);
        let (users, others) = waiting
            .into_iter()
            .partition(|(_, part)| self.is_users(*part));
        self.flushes = others;
        let mut parts: Vec<PartTag> = users.into_iter().map(|(_, part): (u64, _)| part).collect();
        parts.extend(self.unanswered_flushes());
        let held_up = core::mem::take(&mut self.held_up);
        let any = !parts.is_empty() || !held_up.is_empty();
        for tag in parts {
            let part = self.parts[tag.0 as usize].take().expect("it is under way");
            self.free_parts.push(tag.0);
            if let Owner::Request(id) = part.owner {
                self.request_part_done(id, Err(error));
            }
        }
        for id in held_up {
            let pending = self.pending(id);
            pending.error.get_or_insert(error);
            pending.cut = whole(&pending.request);
            self.reply_if_done(id);
        }
        any
    }

    /// A part of the work has ended.
    ///
    /// # Panics
    /// If it is not under way.
    pub fn part_done(&mut self, tag: PartTag, result: Result<(), RequestError>) {
        if self.part_mut(tag).covers.is_some() && result.is_err() && self.trusts {
            self.fail_log();
            if self.lapsing {
                return self.late_flushes.push(tag);
            }
        }
        let part = self.parts[tag.0 as usize].take().expect("it is under way");
        self.free_parts.push(tag.0);
        let result = match (part.covers, result) {
            // Some of what was told may be in memory only.
            (Some(_), Ok(())) if self.broken && self.pack.is_some() => {
                Err(RequestError::Unavailable)
            }
            (_, result) => result,
        };
        let result = match (part.covers, result) {
            // Nothing that was told lies in the log alone: that it fails costs nobody anything.
            (Some(_), Err(_)) if !self.needs_log() => {
                self.broken = true;
                Ok(())
            }
            (Some(covers), Ok(())) => {
                self.log_flushed(covers);
                Ok(())
            }
            // The log may have room again: the write that filled it was not given up.
            (Some(_), Err(RequestError::NoSpace))
                if self.pack.is_some() && matches!(part.owner, Owner::Request(_)) =>
            {
                Err(RequestError::NoSpace)
            }
            // What lies there may be lost, and who asks again at once would ask for ever.
            (Some(_), Err(error)) => {
                self.broken = true;
                Err(error)
            }
            (None, result) => result,
        };
        match part.owner {
            Owner::Request(id) => self.request_part_done(id, result),
            Owner::Reading { request, serial } => {
                self.end_reading(serial);
                self.request_part_done(request, result);
            }
            Owner::Space => self.space_flush = false,
            Owner::Buffer => self.buffer_flushed(result),
            Owner::Slots => self.slots_won(),
            Owner::Forgo => self.buffer_sealed(result),
            Owner::Copy { serial, stripe } => self.copied(serial, stripe, result),
            // What could not be read at once is read piece by piece.
            Owner::Fetch { serial } => {
                self.fetched(tag, serial);
                self.copy_more();
            }
            Owner::HomeFlush | Owner::LogFlush => self.flushed_for_home(result),
            Owner::Void if result.is_ok() => self.voided(),
            Owner::Void => self.end_way_home(false),
            Owner::Reuse => self.reused(result),
            Owner::Move { serial } => self.end_reading(serial),
            Owner::CleanFlush => self.clean_flushed(result),
            Owner::CleanVoid => self.clean_voided(result),
        }
        self.pump_reads();
        self.pump_writes();
        self.clean_more();
        self.begin_last();
    }

    fn pending(&mut self, id: u32) -> &mut Pending {
        self.requests[id as usize]
            .as_mut()
            .expect("a request lives until its reply")
    }

    fn request_part_done(&mut self, id: u32, result: Result<(), RequestError>) {
        let pending = self.pending(id);
        pending.parts -= 1;
        if let Err(error) = result {
            pending.error.get_or_insert(error);
        }
        self.reply_if_done(id);
    }

    fn reply_if_done(&mut self, id: u32) {
        let pending = self.pending(id);
        if pending.parts > 0 || pending.cut < whole(&pending.request) {
            return;
        }
        let result = pending.error.map_or(Ok(()), Err);
        let tag = pending.request.tag;
        self.requests[id as usize] = None;
        self.free.push(id);
        self.effects.push_back(Effect::Reply(tag, result));
    }
}

/// The sectors that a request is about.
fn sectors_of(request: &Request) -> Range<u64> {
    let first = request.offset / SECTOR_BYTES;
    first..first + request.bytes / SECTOR_BYTES
}

/// How many they are, as what is left of it is counted; none for a flush.
fn whole(request: &Request) -> u64 {
    match request.op {
        RequestOp::Flush => 0,
        _ => request.bytes / SECTOR_BYTES,
    }
}

/// Sectors that a record takes of the log: its header, and its payload, in whole grains.
fn footprint(payload: u32, grain: u32) -> u32 {
    (PAGE_SECTORS as u32 + payload).next_multiple_of(grain)
}
