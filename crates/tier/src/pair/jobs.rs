//! What the overlay wants done, carried out by child requests and computations.
//!
//! | job         | steps                                                                               |
//! |-------------|-------------------------------------------------------------------------------------|
//! | append      | announced at home; the payload's checksum taken; the header put into a buffer; header and payload written |
//! | copy home   | copies that lie side by side at home, gathered from memory and from the log; written home at once |
//! | copy out    | what a user read copied into a buffer; appended as a clean copy                      |
//! | move       | part of the log read, to go into it again: [`super::clean`]                           |
//! | pack, seal | of records that are gathered in memory: [`super::cluster`]                           |
//! | anchors     | every anchor that changed put into a buffer and written durably; one round at a time |
//!
//! An append is *announced* when the home set's members say durably that the surrogate has something of these rows: so no
//! start goes on without it. A clean copy needs no announcement: home has the same.

use super::child::Owner;
use super::migrate::Source;
use super::{Pair, route};
use crate::overlay::format::{AnchorTable, RecordHeader, record};
use crate::overlay::{CopyTag, Effect, Extent, Kind, Overlay, PackTag, PartTag, Site, is_logged};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use restripe_array::meta::crc::crc32c_of_zeros;
use restripe_array::parts::{BlockCopy, Boxes, Bug, Copies, Noted, Size};
use restripe_array::{
    Action, Buf, BufRef, Compute, ComputeOp, LARGE_BYTES, LinearOutput, PAGE_SECTORS, Page,
    Request, RequestError, RequestOp, RequestTag, SECTOR_BYTES, SMALL_BYTES, Slab, Tag, Verdict,
    zeroed_page,
};

/// A record on its way into the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Append {
    extent: Extent,
    /// `None`: zeros.
    payload: Option<BufRef>,
    durable: u64,
    /// The buffer of its header, once it has one.
    header: Option<Buf>,
    /// Writes under way.
    writes: u8,
    failed: Option<RequestError>,
}

/// Copies on their way home, where they lie side by side.
#[derive(Clone, Debug)]
pub(super) struct CopyHome {
    part: PartTag,
    extents: Vec<Extent>,
    buf: Buf,
    /// Sectors that are home, and those that move at once: all, or one where some are lost in the log.
    done: u32,
    step: u32,
    /// They are being gathered by so many reads and computations; afterwards they are being written.
    under_way: u32,
    writing: bool,
    failed: Option<RequestError>,
}

impl CopyHome {
    fn sectors(&self) -> u32 {
        self.extents.iter().map(|extent| extent.sectors).sum()
    }

    /// The first sector at home of what moves now.
    fn home(&self) -> u64 {
        self.extents[0].home + u64::from(self.done)
    }

    /// First copies have it.
    fn is_first(&self) -> bool {
        self.extents[0].kind == Kind::Also
    }

    fn is_logged(&self) -> bool {
        self.extents.iter().all(|extent| is_logged(extent.at))
    }

    fn forgo_first(&mut self) {
        for extent in &mut self.extents {
            extent.kind = Kind::Instead;
        }
    }

    /// What moves now.
    fn pieces(&self) -> Vec<Extent> {
        let moves = self.home()..self.home() + u64::from(self.step);
        let pieces = self.extents.iter();
        pieces
            .filter_map(|extent| extent.within(moves.clone()))
            .collect()
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct AnchorPage {
    index: u32,
    at: u64,
    buf: Buf,
}

/// Bytes of a read that are copied out of its memory, to be kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopyOut {
    copy: CopyTag,
    home: u64,
    target: BufRef,
    read: RequestTag,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Job {
    /// A copy into a record in memory.
    Pack(PackTag),
    /// A read of a record in memory.
    Gathered {
        part: PartTag,
        sequence: u64,
    },
    /// A record on its way out of memory.
    Seal(u64),
    /// A version of one on its way into the buffer, by its number in [`super::buffer`].
    Version(u32),
    /// A half of a slot that a start reads, or writes into the log.
    Slot,
    /// Part of the log that is read to go home, and a copy out of it to where it is kept: by the load's number.
    Load(u32),
    Keep(u32),
    /// A copy between a user's buffer and the read cache.
    Cached {
        part: PartTag,
        memory: u32,
        way: BlockCopy,
    },
    Append(Append),
    /// By its number in [`Jobs::homeward`].
    CopyHome(u32),
    Anchor(AnchorPage),
    CopyOut(CopyOut),
    /// Part of the log that is read to be moved.
    Move {
        part: PartTag,
        buf: BufRef,
    },
}

/// Anchors are written in rounds: what changes during one waits for the next.
#[derive(Default)]
struct Anchors {
    /// The overlay waits for a round that has yet to begin, and for the one under way.
    next: Vec<PartTag>,
    now: Vec<PartTag>,
    /// Pages under way.
    pages: u32,
    running: bool,
    /// One could not be written: which version lies there nobody knows, and none is written any more.
    failed: Option<RequestError>,
}

#[derive(Default)]
pub(super) struct Jobs {
    pub(super) list: Slab<Job>,
    /// Appends that are not announced yet, or have no buffer: the oldest first.
    appends: VecDeque<Append>,
    /// What goes into records, and is not announced yet, on its way to first copies.
    besides: VecDeque<(u64, Request, Copies)>,
    /// Copies that wait for their time, or a buffer.
    copies: VecDeque<(PartTag, Vec<Extent>)>,
    homeward: Slab<CopyHome>,
    /// Parts of the log that are to be moved, and wait for a buffer.
    pub(super) moves: VecDeque<(PartTag, u64, u32)>,
    anchors: Anchors,
    /// The anchors, once the log is known.
    pub(super) table: Option<AnchorTable>,
    boxes: Boxes,
}

impl Jobs {
    pub(super) fn is_idle(&self) -> bool {
        self.list.is_empty()
            && self.appends.is_empty()
            && self.besides.is_empty()
            && self.copies.is_empty()
            && self.homeward.is_empty()
            && self.moves.is_empty()
            && !self.anchors.running
    }

    /// A start begins: what an earlier one met is forgotten.
    pub(super) fn begin_anew(&mut self) {
        self.anchors = Anchors::default();
        self.table = None;
    }

    pub(super) fn page(&mut self) -> Page {
        self.boxes.page()
    }

    pub(super) fn table(&mut self) -> &mut AnchorTable {
        self.table.as_mut().expect("the log is known")
    }
}

/// A request of a set; its tag is given later.
pub(super) fn child(op: RequestOp, sector: u64, sectors: u64, buf: BufRef, fua: bool) -> Request {
    Request {
        tag: RequestTag(0),
        op,
        offset: sector * SECTOR_BYTES,
        bytes: sectors * SECTOR_BYTES,
        buf,
        fua,
    }
}

pub(super) fn flush() -> Request {
    child(RequestOp::Flush, 0, 0, BufRef::new(Buf(0), 0, 0), false)
}

impl Pair {
    pub(super) fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Read {
                part,
                home,
                copy,
                buf,
            } => self.read_cached(part, home, copy, buf),
            Effect::Beside {
                sequence,
                request,
                all,
            } => {
                let copies = if all { Copies::All } else { Copies::First };
                self.jobs.besides.push_back((sequence, request, copies));
            }
            Effect::Pass { part, request } => {
                self.children.ask(Site::Home, Owner::Part(part), request);
            }
            Effect::Flush { part, site } => self.flush_set(part, site),
            Effect::Append {
                extent,
                payload,
                durable,
            } => self.jobs.appends.push_back(Append {
                extent,
                payload,
                durable,
                header: None,
                writes: 0,
                failed: None,
            }),
            Effect::Pack {
                tag,
                extent,
                at,
                source,
            } => self.pack(tag, extent, at, source),
            Effect::Seal {
                sequence,
                extents,
                payload_sectors,
                durable,
            } => self.seal(sequence, extents, payload_sectors, durable),
            Effect::Keep(wanted) => self.keep_version(wanted),
            Effect::Forgo => self.forgo_buffer(),
            Effect::Fetch { part, pieces } => self.fetch(part, pieces),
            Effect::Move { part, at, sectors } => self.jobs.moves.push_back((part, at, sectors)),
            Effect::Moved { buf } => self.release_moved(buf),
            Effect::Forget { home, log } => self.forget_kept(home, &log),
            Effect::Foresee { home, soon } => self.at_home(|core| core.foresee_writes(home, soon)),
            Effect::CopyHome { part, extents } => self.jobs.copies.push_back((part, extents)),
            Effect::Void { part, below } => self.void(part, None, below),
            Effect::Reuse {
                part,
                segment,
                durable,
            } => self.void(part, Some(segment), durable),
            Effect::Copied(copy, result) => self.copied(copy, result),
            Effect::Reply(tag, result) => self.overlaid(tag, result),
        }
    }

    pub(super) fn read_overlaid(
        &mut self,
        part: PartTag,
        home: u64,
        copy: Option<(Kind, u64)>,
        buf: BufRef,
    ) {
        match copy {
            None => self.read_part(Owner::Part(part), Site::Home, home, buf),
            Some((Kind::Also, at)) => {
                let owner = Owner::FirstPart {
                    part,
                    home,
                    at,
                    buf,
                };
                let sectors = u64::from(buf.bytes) / SECTOR_BYTES;
                let request = child(RequestOp::Read, home, sectors, buf, false);
                let children = &mut self.children;
                children.ask_copies(Site::Home, owner, request, Copies::First);
            }
            // First copies alone had it, and are believed no more.
            Some((_, at)) if !is_logged(at) => {
                self.part_done(part, Err(RequestError::Unavailable));
            }
            Some((kind, at)) if !self.read_gathered(part, at, buf) => {
                let owner = Owner::LogPart {
                    part,
                    home,
                    clean: kind == Kind::Clean,
                    buf,
                };
                self.read_part(owner, Site::Log, at, buf);
            }
            Some(_) => {}
        }
    }

    /// Calls records below void, of one segment or of all.
    fn void(&mut self, part: PartTag, segment: Option<u32>, below: u64) {
        let table = self.jobs.table();
        table.flushed(below);
        match segment {
            Some(segment) => table.void(segment, below),
            None => table.void_all(below),
        }
        self.jobs.anchors.next.push(part);
    }

    fn flush_set(&mut self, part: PartTag, site: Site) {
        let way_home = self.overlay.as_ref().is_some_and(Overlay::is_going_home);
        if site == Site::Home && way_home && self.home().planted(Bug::VoidBeforeFlush) {
            return self.part_done(part, Ok(()));
        }
        self.children.ask(site, Owner::Part(part), flush());
    }

    fn read_part(&mut self, owner: Owner, site: Site, sector: u64, buf: BufRef) {
        let sectors = u64::from(buf.bytes) / SECTOR_BYTES;
        let at = match site {
            Site::Log => self.log_sector(sector),
            Site::Home | Site::Buffer => sector,
        };
        let request = child(RequestOp::Read, at, sectors, buf, false);
        self.children.ask(site, owner, request);
    }

    /// The sector of the surrogate that a sector of the log is.
    pub(super) fn log_sector(&mut self, at: u64) -> u64 {
        self.jobs.table().layout().sector(at)
    }

    /// Starts what waited for an announcement, for its time or for a buffer; false if nothing could be.
    pub(super) fn resume_jobs(&mut self) -> bool {
        let packs = self.next_pack() | self.next_seal();
        let packs = packs | self.next_version() | self.next_forgo();
        let homeward = self.next_fetch() | self.next_copy() | self.next_move();
        packs | self.next_beside() | self.next_append() | homeward | self.next_anchors()
    }

    // ----------------------------------------------------------------------------------------------------- appends

    fn next_beside(&mut self) -> bool {
        let Some((sequence, request, copies)) = self.jobs.besides.front().copied() else {
            return false;
        };
        let (lba, sectors) = (request.offset / SECTOR_BYTES, request.bytes / SECTOR_BYTES);
        let needless = copies == Copies::All || self.is_logless();
        let announced = needless || self.is_announced(lba, sectors);
        if !announced && !self.home().halted() {
            return false;
        }
        self.jobs.besides.pop_front();
        if announced {
            // What is lost is regained by all copies together, and where one is missing none goes ahead.
            let home = self.home();
            let copies = match home.complete() && home.lost_in(lba, sectors).is_none() {
                true => copies,
                false => Copies::All,
            };
            let owner = Owner::Beside(sequence);
            let children = &mut self.children;
            children.ask_copies(Site::Home, owner, request, copies);
        } else {
            let error = Err(self.home().refusal(RequestOp::Write));
            self.policy.beside_failed = true;
            let overlay = self.overlay.as_mut().expect("it writes");
            overlay.went_beside(sequence, error);
        }
        true
    }

    fn next_append(&mut self) -> bool {
        let Some(append) = self.jobs.appends.front().copied() else {
            return false;
        };
        let extent = append.extent;
        let announced = match extent.kind {
            Kind::Clean => Some(Ok(())),
            Kind::Instead | Kind::Also => self.announced(&[extent]),
        };
        match announced {
            None => return false,
            Some(Err(error)) => {
                self.jobs.appends.pop_front();
                self.appended(extent.sequence, Err(error));
                return true;
            }
            Some(Ok(())) => {}
        }
        let Some(header) = self.buffers.take_free(Size::Small) else {
            return false;
        };
        self.jobs.appends.pop_front();
        let job = self.jobs.list.insert(Job::Append(Append {
            header: Some(header),
            ..append
        }));
        match append.payload {
            Some(payload) => {
                let compute = self.compute(job, ComputeOp::Checksum, Some(payload), None, None);
                self.out.push(Action::Compute(compute));
            }
            None => self.put_header(job, crc32c_of_zeros(u64::from(extent.sectors))),
        }
        true
    }

    /// Whether home knows durably that the surrogate may have these sectors. It is told otherwise.
    pub(super) fn is_announced(&mut self, lba: u64, sectors: u64) -> bool {
        let home = &mut self.sets[Site::Home];
        let Noted { durable, in_turn } = home.announce_redirect(lba, sectors);
        // What is being written comes back by itself.
        self.children.delivered |= in_turn;
        durable || self.home().planted(Bug::RedirectNotAnnounced)
    }

    /// Announces all of these, the last one as well where the first has to wait: what is announced together becomes durable together.
    /// `None` until it is; an error if it never will be.
    pub(super) fn announced(&mut self, extents: &[Extent]) -> Option<Result<(), RequestError>> {
        let mut all = true;
        for extent in extents {
            all &= self.is_announced(extent.home, u64::from(extent.sectors));
        }
        match (all, self.home().halted()) {
            (true, _) => Some(Ok(())),
            (false, true) if self.lacks_room() => None,
            (false, true) => Some(Err(self.home().refusal(RequestOp::Write))),
            (false, false) => None,
        }
    }

    fn put_header(&mut self, job: u32, payload_crc: u32) {
        let append = *self.append(job);
        let extent = append.extent;
        let header = RecordHeader {
            sequence: extent.sequence,
            durable: append.durable,
            at: extent.at - PAGE_SECTORS,
            payload_sectors: extent.sectors,
            payload_crc,
        };
        let mut page = self.jobs.boxes.page();
        record::encode(self.jobs.table().owner(), &header, &[extent], &mut page);
        let buf = append.header.expect("it was taken");
        self.put_page(job, page, buf);
    }

    fn put_page(&mut self, job: u32, page: Page, buf: Buf) {
        let target = BufRef::new(buf, 0, SMALL_BYTES);
        let compute = self.compute(job, ComputeOp::PutPage, None, Some(target), Some(page));
        self.out.push(Action::Compute(compute));
    }

    fn write_record(&mut self, job: u32) {
        let Append {
            extent,
            payload,
            header,
            ..
        } = *self.append(job);
        self.append(job).writes = 2;
        let at = self.log_sector(extent.at - PAGE_SECTORS);
        let header = BufRef::new(header.expect("it was taken"), 0, SMALL_BYTES);
        let sectors = u64::from(extent.sectors);
        let (op, buf) = match payload {
            Some(payload) => (RequestOp::Write, payload),
            None => (RequestOp::WriteZeroes { fast: false }, header.part(0, 0)),
        };
        for request in [
            child(RequestOp::Write, at, PAGE_SECTORS, header, false),
            child(op, at + PAGE_SECTORS, sectors, buf, false),
        ] {
            self.children.ask(Site::Log, Owner::Job(job), request);
        }
    }

    /// Whether a job reads first copies.
    pub(super) fn reads_first(&self, job: u32) -> bool {
        match self.jobs.list.get(job) {
            Some(Job::CopyHome(copy)) => {
                let copy = self.jobs.homeward.get(*copy);
                copy.is_some_and(|copy| copy.is_first() && !copy.writing)
            }
            _ => false,
        }
    }

    fn log_is_broken(&self) -> bool {
        self.overlay.as_ref().is_none_or(Overlay::is_broken)
    }

    fn append(&mut self, job: u32) -> &mut Append {
        match self.jobs.list.get_mut(job) {
            Some(Job::Append(append)) => append,
            other => unreachable!("{other:?} is no append"),
        }
    }

    fn append_written(&mut self, job: u32, result: Result<(), RequestError>) {
        let append = self.append(job);
        append.writes -= 1;
        if let Err(error) = result {
            append.failed.get_or_insert(error);
        }
        let append = *append;
        if append.writes > 0 {
            return;
        }
        self.buffers.release(append.header.expect("it was taken"));
        self.jobs.list.remove(job);
        self.appended(append.extent.sequence, append.failed.map_or(Ok(()), Err));
    }

    pub(super) fn appended(&mut self, sequence: u64, result: Result<(), RequestError>) {
        // Users ask home, and know nothing of the log's places.
        let result = result.map_err(|error| match error {
            RequestError::NoSpace => RequestError::NoSpace,
            _ => RequestError::Unavailable,
        });
        let overlay = self.overlay.as_mut().expect("it appends");
        overlay.appended(sequence, result);
    }

    // --------------------------------------------------------------------------------------------------- copies home

    fn next_copy(&mut self) -> bool {
        let Some((_, extents)) = self.jobs.copies.front() else {
            return false;
        };
        let sectors = extents.iter().map(|extent| extent.sectors).sum();
        if !self.may_copy_home(sectors) {
            return false;
        }
        let Some(buf) = self.large_buffer() else {
            return false;
        };
        let (part, extents) = self.jobs.copies.pop_front().expect("it was seen");
        let copy = self.jobs.homeward.insert(CopyHome {
            part,
            extents,
            buf,
            done: 0,
            step: sectors,
            under_way: 0,
            writing: false,
            failed: None,
        });
        self.gather_copy(copy);
        true
    }

    fn copy_home(&mut self, copy: u32) -> &mut CopyHome {
        let found = self.jobs.homeward.get_mut(copy);
        found.expect("it is on its way home")
    }

    /// Brings together what moves now, from memory where that has it, or from first copies.
    fn gather_copy(&mut self, copy: u32) {
        let found = self.copy_home(copy);
        found.writing = false;
        if found.is_first() {
            return self.read_firsts(copy);
        }
        let (pieces, home) = (found.pieces(), found.home());
        let whole = copy_of(found.step, found.buf);
        let parts: Vec<(Extent, Option<BufRef>)> = pieces
            .into_iter()
            .flat_map(|piece| self.sources_of(piece))
            .collect();
        self.copy_home(copy).under_way = parts.len() as u32; // a sector each at least
        for (piece, source) in parts {
            let bytes = (u64::from(piece.sectors) * SECTOR_BYTES) as u32;
            let offset = ((piece.home - home) * SECTOR_BYTES) as u32;
            let target = whole.part(offset, bytes);
            let job = self.jobs.list.insert(Job::CopyHome(copy));
            match source {
                Some(source) => {
                    let op = ComputeOp::Linear;
                    let compute = self.compute(job, op, Some(source), Some(target), None);
                    self.out.push(Action::Compute(compute));
                }
                None => {
                    let (at, sectors) = (self.log_sector(piece.at), u64::from(piece.sectors));
                    let request = child(RequestOp::Read, at, sectors, target, false);
                    self.children.ask(Site::Log, Owner::Job(job), request);
                }
            }
        }
    }

    /// What first copies have goes to the further ones.
    fn read_firsts(&mut self, copy: u32) {
        let found = self.copy_home(copy);
        found.under_way = 1;
        let (home, sectors) = (found.home(), u64::from(found.step));
        let target = copy_of(found.step, found.buf);
        let job = self.jobs.list.insert(Job::CopyHome(copy));
        let request = child(RequestOp::Read, home, sectors, target, false);
        let owner = Owner::Job(job);
        let children = &mut self.children;
        children.ask_copies(Site::Home, owner, request, Copies::First);
    }

    fn copy_moved(&mut self, job: u32, copy: u32, result: Result<(), RequestError>) {
        self.jobs.list.remove(job);
        let found = self.copy_home(copy);
        found.under_way -= 1;
        if let Err(error) = result {
            // What cannot be had for now is no loss: that comes before one.
            if matches!(found.failed, None | Some(RequestError::Lost { .. })) {
                found.failed = Some(error);
            }
        }
        if found.under_way > 0 {
            return;
        }
        let again = found.is_first() && !found.writing && found.is_logged();
        let (failed, writing) = (found.failed.take(), found.writing);
        if failed.is_some() && again && !self.log_is_broken() {
            // The log has it, too. Then it goes to all copies.
            self.copy_home(copy).forgo_first();
            return self.gather_copy(copy);
        }
        let found = self.copy_home(copy);
        match (failed, writing) {
            (None, false) => self.write_copy(copy),
            (None, true) => self.piece_home(copy),
            (Some(RequestError::Lost { .. }), false) if found.step > 1 => {
                // Sector by sector, so that exactly what is lost is lost.
                found.step = 1;
                self.gather_copy(copy);
            }
            (Some(RequestError::Lost { .. }), false) => {
                let home = found.home();
                self.lose_for_good(home, 1);
                self.piece_home(copy);
            }
            (Some(error), _) => self.end_copy(copy, Err(error)),
        }
    }

    fn write_copy(&mut self, copy: u32) {
        let found = self.copy_home(copy);
        (found.writing, found.under_way) = (true, 1);
        let (home, sectors) = (found.home(), u64::from(found.step));
        let source = copy_of(found.step, found.buf);
        let copies = match found.is_first() {
            true => Copies::Further,
            false => Copies::All,
        };
        let job = self.jobs.list.insert(Job::CopyHome(copy));
        let request = child(RequestOp::Write, home, sectors, source, false);
        let owner = Owner::Job(job);
        let children = &mut self.children;
        children.ask_copies(Site::Home, owner, request, copies);
    }

    /// What moved is home, or lost.
    fn piece_home(&mut self, copy: u32) {
        let found = self.copy_home(copy);
        found.done += found.step;
        if found.done < found.sectors() {
            self.gather_copy(copy);
        } else {
            self.end_copy(copy, Ok(()));
        }
    }

    fn end_copy(&mut self, copy: u32, result: Result<(), RequestError>) {
        let over = self.jobs.homeward.remove(copy);
        let over = over.expect("it is on its way home");
        self.buffers.release(over.buf);
        self.part_done(over.part, result);
    }

    // ------------------------------------------------------------------------------------------------------ anchors

    /// Begins a round of anchors if somebody waits for one, goes on with the one under way, or ends it.
    fn next_anchors(&mut self) -> bool {
        let anchors = &mut self.jobs.anchors;
        if !anchors.running {
            // What was lost on the way home is on record before the log says that it is home.
            if anchors.next.is_empty() || self.sets[Site::Home].writes_lost_list() {
                return false;
            }
            anchors.running = true;
            anchors.now = core::mem::take(&mut anchors.next);
        }
        let mut any = false;
        while self.write_anchor() {
            any = true;
        }
        let left = self.jobs.anchors.failed.is_none() && self.jobs.table().changed().is_some();
        if any || left || self.writes_anchors() {
            return any;
        }
        self.end_round();
        true
    }

    fn end_round(&mut self) {
        let anchors = &mut self.jobs.anchors;
        anchors.running = false;
        let result = anchors.failed.map_or(Ok(()), Err);
        for part in core::mem::take(&mut anchors.now) {
            self.part_done(part, result);
        }
    }

    /// Begins to write an anchor that changed; false if there is none, or no buffer.
    pub(super) fn write_anchor(&mut self) -> bool {
        if self.jobs.anchors.failed.is_some() {
            return false;
        }
        let Some(index) = self.jobs.table().changed() else {
            return false;
        };
        let buf = match self.log().whole_rows() {
            true => self.large_buffer(),
            false => self.buffers.take_free(Size::Small),
        };
        let Some(buf) = buf else {
            return false;
        };
        let mut page = self.jobs.boxes.page();
        let at = self.jobs.table().encode(index, &mut page);
        self.jobs.anchors.pages += 1;
        let job = self
            .jobs
            .list
            .insert(Job::Anchor(AnchorPage { index, at, buf }));
        self.put_page(job, page, buf);
        true
    }

    fn anchor_written(&mut self, job: u32, page: AnchorPage, result: Result<(), RequestError>) {
        self.buffers.release(page.buf);
        self.jobs.list.remove(job);
        self.jobs.anchors.pages -= 1;
        match result {
            Ok(()) => self.jobs.table().written(page.index),
            Err(_) => self.jobs.anchors.failed = Some(RequestError::Unavailable),
        }
        if self.start.is_some() && self.jobs.anchors.pages == 0 {
            self.start_written(self.jobs.anchors.failed.map_or(Ok(()), Err));
        }
    }

    /// Whether anchors are on their way.
    pub(super) fn writes_anchors(&self) -> bool {
        self.jobs.anchors.pages > 0
    }

    // -------------------------------------------------------------------------------------------------- copies out

    /// Copies what was read of a range of home out of a request's memory; false if there is no buffer.
    pub(super) fn copy_out(
        &mut self,
        copy: CopyTag,
        home: u64,
        source: BufRef,
        read: RequestTag,
    ) -> bool {
        let Some(buf) = self.buffers.take_free(Size::Large) else {
            return false;
        };
        let target = BufRef::new(buf, 0, source.bytes);
        let job = self.jobs.list.insert(Job::CopyOut(CopyOut {
            copy,
            home,
            target,
            read,
        }));
        let compute = self.compute(job, ComputeOp::Linear, Some(source), Some(target), None);
        self.out.push(Action::Compute(compute));
        true
    }

    fn append_read(&mut self, job: u32, out: CopyOut) {
        self.jobs.list.remove(job);
        let sectors = u64::from(out.target.bytes) / SECTOR_BYTES;
        let source = Source::Read {
            buf: out.target.buf,
            lba: out.home,
            sectors,
        };
        self.copies.push((out.copy, source));
        let overlay = self.overlay.as_mut().expect("it copies");
        overlay.append_copy(out.copy, out.target);
        self.copied_out(out.read);
    }

    // ------------------------------------------------------------------------------------------------- computations

    pub(super) fn compute(
        &mut self,
        owner: u32,
        op: ComputeOp,
        source: Option<BufRef>,
        target: Option<BufRef>,
        page: Option<Page>,
    ) -> Box<Compute> {
        let boxes = &mut self.jobs.boxes;
        let mut compute = boxes.compute(route::own_tag(owner), op);
        compute.page = page;
        compute.sources.extend(source);
        if let Some(target) = target {
            let mut coefficients = boxes.coefficient_list();
            coefficients.extend(source.map(|_| 1));
            compute.outputs.push(LinearOutput {
                target,
                coefficients,
            });
        }
        compute
    }

    pub(super) fn computed(&mut self, tag: Tag, mut compute: Box<Compute>, verdict: Verdict) {
        let page = compute.page.take();
        self.jobs.boxes.recycle_compute(compute);
        if let Some(read) = tag.0.checked_sub(START_TAGS) {
            return self.start_computed(read, page, verdict);
        }
        if let Some(Job::Slot) = self.jobs.list.get(tag.0) {
            return self.slot_computed(page, verdict);
        }
        if let Some(page) = page {
            self.jobs.boxes.recycle_page(page);
        }
        match (self.jobs.list.get(tag.0).copied(), verdict) {
            (Some(Job::Pack(pack)), _) => {
                self.jobs.list.remove(tag.0);
                self.overlay.as_mut().expect("it gathers").packed(pack);
            }
            (Some(Job::Gathered { part, sequence }), _) => {
                self.gathered_read(tag.0, part, sequence);
            }
            (Some(Job::Seal(sequence)), Verdict::Checksum(crc)) => {
                self.put_sealed_header(tag.0, sequence, crc);
            }
            (Some(Job::Seal(sequence)), _) => self.write_sealed(tag.0, sequence),
            (Some(Job::Version(index)), Verdict::Checksum(crc)) => {
                self.put_version(tag.0, index, crc);
            }
            (Some(Job::Version(index)), _) => self.write_version(tag.0, index),
            (Some(Job::Keep(load)), _) => self.piece_kept(tag.0, load),
            (Some(Job::Cached { part, memory, way }), _) => {
                self.cached_copied(tag.0, part, memory, way);
            }
            (Some(Job::CopyHome(copy)), _) => self.copy_moved(tag.0, copy, Ok(())),
            (Some(Job::Append(_)), Verdict::Checksum(crc)) => self.put_header(tag.0, crc),
            (Some(Job::Append(_)), _) => self.write_record(tag.0),
            (Some(Job::Anchor(page)), _) => {
                let sectors = u64::from(self.jobs.table().layout().grain());
                let source = BufRef::new(page.buf, 0, (sectors * SECTOR_BYTES) as u32);
                let request = child(RequestOp::Write, page.at, sectors, source, true);
                self.children.ask(Site::Log, Owner::Job(tag.0), request);
            }
            (Some(Job::CopyOut(out)), _) => self.append_read(tag.0, out),
            (job, _) => unreachable!("{job:?} computes nothing"),
        }
    }

    /// A computation of the start: the page of a buffer is wanted, or the checksum of what lies in one.
    pub(super) fn compute_for_start(&mut self, read: u32, source: BufRef, is_page: bool) {
        let (op, page) = match is_page {
            true => (ComputeOp::TakePage, Some(zeroed_page())),
            false => (ComputeOp::Checksum, None),
        };
        let compute = self.compute(START_TAGS + read, op, Some(source), None, page);
        self.out.push(Action::Compute(compute));
    }

    pub(super) fn put_for_start(&mut self, read: u32, target: BufRef, page: Page) {
        let (tag, op) = (START_TAGS + read, ComputeOp::PutPage);
        let compute = self.compute(tag, op, None, Some(target), Some(page));
        self.out.push(Action::Compute(compute));
    }

    pub(super) fn job_child_ended(&mut self, job: u32, result: Result<(), RequestError>) {
        match self.jobs.list.get(job).copied() {
            Some(Job::Append(_)) => self.append_written(job, result),
            Some(Job::CopyHome(copy)) => self.copy_moved(job, copy, result),
            Some(Job::Anchor(page)) => self.anchor_written(job, page, result),
            Some(Job::Version(index)) => self.version_written(job, index, result),
            Some(Job::Slot) => self.slot_moved(result),
            Some(Job::Load(load)) => self.load_read(job, load, result),
            Some(Job::Move { part, buf }) => self.move_read(job, part, buf, result),
            Some(Job::Seal(sequence)) => {
                self.jobs.list.remove(job);
                self.sealed(sequence, result);
            }
            Some(
                Job::CopyOut(_)
                | Job::Pack(_)
                | Job::Gathered { .. }
                | Job::Keep(_)
                | Job::Cached { .. },
            )
            | None => {
                unreachable!("it asked for nothing, or is over")
            }
        }
    }
}

/// Computations of the start have tags from here on.
const START_TAGS: u32 = 1 << 24;

/// The buffer's part that so many sectors fill.
fn copy_of(sectors: u32, buf: Buf) -> BufRef {
    let bytes = (u64::from(sectors) * SECTOR_BYTES) as u32;
    assert!(bytes <= LARGE_BYTES, "a copy fits a buffer");
    BufRef::new(buf, 0, bytes)
}
