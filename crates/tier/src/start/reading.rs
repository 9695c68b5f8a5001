//! Reads the log at a start: one page or payload after the other, as far as buffers are free. Also ends a
//! start. Owns the state of the start in progress.
//!
//! A page or payload that reads wrong is read again from redundancy, before it is used.
//!
//! A member may return other bytes than were written, without an error. The checksum of a page or payload
//! shows that, but not which member is wrong. So the page is read as though one member after the other were
//! missing, then two members, and so on, as far as redundancy goes. The first reading with the right checksum
//! and a valid content is written where the wrong bytes were. After a crash that content may be a write that
//! was in flight when the crash came. It is valid or not by the same rules as if the write had arrived.
//!
//! Most pages where a header is expected have none: the log ends there, or a segment does. If the first other
//! readings give the same bytes, and there are [`AGREEING`] of them or more, no member is thought wrong, and
//! reading ends. Two members with the same wrong bytes there, mostly zeros, are found by these readings, and
//! more members as far as these readings go. Anchors are few: they are searched as far as redundancy goes.

use super::state::{
    Again, Brought, Phase, Reading, StartState, Step, Wanted, of_buffer, record_sectors,
};
use crate::children::Owner;
use crate::facts::Stage;
use crate::overlay::Site;
use crate::overlay::format::{
    LogLayout, LogOwner, PayloadFound, Read, RecordHeader, anchor, record,
};
use crate::remove::Removal;
use crate::route::SITES;
use alloc::boxed::Box;
use restripe_array::meta::crc::crc32c;
use restripe_array::parts::{Attempt, Bug, Copies, TAG};
use restripe_array::{
    Action, Buf, BufRef, CommandError, ComputeOp, Fact, PAGE_SECTORS, Page, RequestError,
    SECTOR_BYTES, SMALL_BYTES, Verdict, zeroed_page,
};

/// Computations of the start have tags from this value on.
pub(crate) const START_TAGS: u32 = 1 << 24;
/// The least number of readings that must agree that a page is no header, before the page counts as none.
/// There are as many without one member or two as a row has cells: one of them always has the page.
const AGREEING: usize = 16;

fn is_header(wanted: Wanted) -> bool {
    matches!(wanted, Wanted::Header(_))
}

fn is_page(wanted: Wanted) -> bool {
    !matches!(wanted, Wanted::Payload(_))
}

fn checksum((page, verdict): &Brought) -> Option<u32> {
    match (page, verdict) {
        (Some(page), _) => Some(crc32c(&page[..])),
        (None, Some(Verdict::Checksum(crc))) => Some(*crc),
        _ => None,
    }
}

/// Any two pages that are no valid page compare as equal.
fn as_first_read(wanted: Wanted, plain: Option<u32>) -> Brought {
    let page = plain.filter(|_| is_page(wanted)).map(|_| zeroed_page());
    (page, plain.map(Verdict::Checksum))
}

pub(crate) struct LogReader {
    pub(crate) below: Removal,
    pub(crate) start: Option<Box<StartState>>,
    /// The result of the start that an attempt made ([`crate::revive`]).
    pub(crate) outcome: Option<Result<(), CommandError>>,
}

floor!(LogReader over Removal { start, outcome });

impl LogReader {
    pub(crate) fn read_on(&mut self) -> bool {
        let mut any = false;
        while let Some(wanted) = self.next_wanted() {
            let Some(buf) = self.buffers.take_free(wanted.size()) else {
                self.unask(wanted);
                break;
            };
            self.read_for_start(Reading {
                wanted,
                buf,
                step: Step::Reading,
                again: None,
            });
            any = true;
        }
        any
    }

    fn next_wanted(&mut self) -> Option<Wanted> {
        let whole_rows = self.log().whole_rows();
        let start = self.start_mut();
        match &mut start.phase {
            Phase::Anchors { homes, asked, .. } if *asked < homes.len() => {
                *asked += 1;
                Some(Wanted::Anchor(*asked - 1))
            }
            Phase::Scan(scan) => {
                let most = record_sectors(scan.layout(), whole_rows);
                let fits = |header: &RecordHeader| header.payload_sectors <= most;
                loop {
                    match start.next.take().or_else(|| scan.next_read())? {
                        Read::Header { at } => return Some(Wanted::Header(at)),
                        Read::Payload(header) if fits(&header) => {
                            return Some(Wanted::Payload(header));
                        }
                        // No writer made it: the record is invalid.
                        Read::Payload(header) => {
                            scan.payload(header.sequence, PayloadFound::Torn);
                        }
                    }
                }
            }
            _ => None,
        }
    }

    /// No buffer is free for this read now.
    fn unask(&mut self, wanted: Wanted) {
        let start = self.start_mut();
        match (&mut start.phase, wanted) {
            (Phase::Anchors { asked, .. }, Wanted::Anchor(_)) => *asked -= 1,
            (_, Wanted::Header(at)) => start.next = Some(Read::Header { at }),
            (_, Wanted::Payload(header)) => start.next = Some(Read::Payload(header)),
            _ => unreachable!("anchors are read in their phase"),
        }
    }

    /// The sectors of the log set that are read.
    pub(crate) fn place_of(&mut self, wanted: Wanted) -> (u64, u64) {
        let source = self.start_mut().phase.layout();
        match wanted {
            Wanted::Anchor(home) => {
                let (index, parity) = (home as u32 / 2, home as u64 % 2);
                (source.anchor_home(index, parity), PAGE_SECTORS)
            }
            Wanted::Header(at) => (source.sector(at), PAGE_SECTORS),
            Wanted::Payload(header) if self.log().whole_rows() => (
                source.sector(header.at),
                u64::from(source.footprint(header.payload_sectors)),
            ),
            Wanted::Payload(header) => (
                source.sector(header.payload_at()),
                u64::from(header.payload_sectors),
            ),
        }
    }

    fn read_for_start(&mut self, reading: Reading) {
        let start = self.start_mut();
        let free = start.reads.iter().position(Option::is_none);
        let index = free.unwrap_or(start.reads.len());
        if index == start.reads.len() {
            start.reads.push(None);
        }
        start.reads[index] = Some(reading);
        self.ask_reading(index as u32);
    }

    fn ask_reading(&mut self, read: u32) {
        let Reading { wanted, buf, .. } = self.reading(read);
        let (at, sectors) = self.place_of(wanted);
        let bytes = (sectors * SECTOR_BYTES) as u32;
        self.ask_part(read, at, BufRef::new(buf, 0, bytes), Copies::All);
    }

    pub(crate) fn ask_part(&mut self, read: u32, at: u64, into: BufRef, copies: Copies) {
        self.read_copies(Site::Log, Owner::StartRead(read), at, into, copies);
    }

    /// The byte in its buffer at which a payload begins.
    pub(crate) fn payload_from(&self) -> u32 {
        match self.log().whole_rows() {
            true => SMALL_BYTES,
            false => 0,
        }
    }

    pub(crate) fn reading(&mut self, read: u32) -> Reading {
        self.start_mut().reads[read as usize].expect("it is in flight")
    }

    pub(crate) fn start_read(&mut self, read: u32, result: Result<(), RequestError>) {
        let Reading {
            wanted, buf, step, ..
        } = self.reading(read);
        if result.is_err() {
            return self.brought(read, (None, None));
        }
        match wanted {
            Wanted::Payload(header) if step == Step::Rewriting => {
                let sound = Verdict::Checksum(header.payload_crc);
                self.found(read, None, Some(sound));
            }
            Wanted::Payload(header) => {
                let bytes = header.payload_sectors * SECTOR_BYTES as u32;
                let from = self.payload_from();
                self.compute_for_start(read, BufRef::new(buf, from, bytes), false);
            }
            _ => self.compute_for_start(read, BufRef::new(buf, 0, SMALL_BYTES), true),
        }
    }

    pub(crate) fn start_computed(&mut self, read: u32, page: Option<Page>, verdict: Verdict) {
        self.brought(read, (page, Some(verdict)));
    }

    /// Handles the result of a read, before it is used.
    fn brought(&mut self, read: u32, brought: Brought) {
        let Reading {
            wanted, buf, step, ..
        } = self.reading(read);
        let (page, verdict) = match step {
            Step::Reading => match self.believed(read, brought) {
                Some(brought) => brought,
                None => return,
            },
            _ => brought,
        };
        let rewrites = self.log().whole_rows() && !self.start_mut().mode.read_only;
        match (wanted, step, verdict) {
            (Wanted::Payload(header), Step::Reading, Some(Verdict::Checksum(crc)))
                if rewrites && crc == header.payload_crc =>
            {
                self.step(read, Step::Sound);
                self.compute_for_start(read, BufRef::new(buf, 0, SMALL_BYTES), true);
            }
            (Wanted::Payload(header), Step::Sound, Some(_)) => {
                let page = page.expect("a page was taken");
                self.with_found_header(read, &header, buf, &page);
            }
            (Wanted::Payload(header), Step::Header, _) => self.write_again(read, &header, buf),
            _ => self.found(read, page, verdict),
        }
    }

    pub(crate) fn step(&mut self, read: u32, step: Step) {
        let reading = self.start_mut().reads[read as usize].as_mut();
        reading.expect("it is in flight").step = step;
    }

    /// The page in front of the payload may be another header than the scan found. A member that is missing
    /// now had that header, and redundancy recovered the page from cells that only some members have.
    fn with_found_header(&mut self, read: u32, header: &RecordHeader, buf: Buf, page: &Page) {
        let Phase::Scan(scan) = &self.start_mut().phase else {
            unreachable!("payloads are read in this phase")
        };
        let same = record::decode(scan.owner(), header.at, page);
        if same.map(|view| view.header) == Ok(*header) {
            return self.write_again(read, header, buf);
        }
        let found = scan.header_page(header.sequence);
        self.step(read, Step::Header);
        self.put_for_start(read, BufRef::new(buf, 0, SMALL_BYTES), found);
    }

    /// Rewrites a record as it was found, whole.
    fn write_again(&mut self, read: u32, header: &RecordHeader, buf: Buf) {
        let layout = self.start_mut().phase.layout();
        self.step(read, Step::Rewriting);
        let sectors = u64::from(layout.footprint(header.payload_sectors));
        let source = BufRef::new(buf, 0, (sectors * SECTOR_BYTES) as u32);
        let at = layout.sector(header.at);
        self.write(Site::Log, Owner::StartRead(read), at, source);
    }

    /// Passes the result of a read on to its phase; nothing if the read failed.
    fn found(&mut self, read: u32, page: Option<Page>, verdict: Option<Verdict>) {
        let Reading { wanted, buf, .. } = self.reading(read);
        self.start_mut().reads[read as usize] = None;
        self.buffers.release(buf);
        match (&mut self.start_mut().phase, wanted) {
            (Phase::Anchors { homes, ended, .. }, Wanted::Anchor(home)) => {
                homes[home] = page;
                *ended += 1;
            }
            (Phase::Scan(scan), Wanted::Header(at)) => scan.header(at, page.as_ref()),
            (Phase::Scan(scan), Wanted::Payload(header)) => {
                let found = match verdict {
                    Some(Verdict::Checksum(crc)) if crc == header.payload_crc => {
                        PayloadFound::Sound
                    }
                    Some(_) => PayloadFound::Torn,
                    None => PayloadFound::Unreadable,
                };
                scan.payload(header.sequence, found);
            }
            _ => unreachable!("a phase ends when its reads have"),
        }
    }

    /// A computation of the start: takes the page of a buffer, or computes the checksum of its content.
    fn compute_for_start(&mut self, read: u32, source: BufRef, is_page: bool) {
        let (op, page) = match is_page {
            true => (ComputeOp::TakePage, Some(zeroed_page())),
            false => (ComputeOp::Checksum, None),
        };
        self.compute(START_TAGS + read, op, Some(source), None, page);
    }

    fn put_for_start(&mut self, read: u32, target: BufRef, page: Page) {
        let (tag, op) = (START_TAGS + read, ComputeOp::PutPage);
        self.compute(tag, op, None, Some(target), Some(page));
    }

    // ------------------------------------------------------------------------- readings without some members

    /// The result to use, if the read brought a valid one or no other reading is better. None: it is read
    /// again.
    pub(crate) fn believed(&mut self, read: u32, brought: Brought) -> Option<Brought> {
        let Reading { wanted, again, .. } = self.reading(read);
        let sound = self.is_sound(wanted, &brought);
        let Some(now) = again else {
            let plain = checksum(&brought);
            return match sound || self.log().planted(Bug::RotBelieved) {
                true => Some(brought),
                false => self.read_without_next(read, plain, true, None),
            };
        };
        if now.attempt.suspects.repairs {
            if sound {
                self.note_rot(wanted);
            }
            return Some(brought);
        }
        let read_only = self.start_mut().mode.read_only;
        match sound {
            true if read_only => Some(brought),
            true => {
                let attempt = now.attempt.repairing();
                self.ask_without(read, Again { attempt, ..now });
                None
            }
            false => {
                // A page that cannot be read is no evidence.
                let sum = checksum(&brought);
                let agreed = now.agreed && (sum.is_none() || sum == now.plain);
                self.read_without_next(read, now.plain, agreed, Some(now.attempt))
            }
        }
    }

    /// Reads without the next set of suspects. Returns the first result if there are no more suspects, or if
    /// redundancy agrees with it.
    fn read_without_next(
        &mut self,
        read: u32,
        plain: Option<u32>,
        agreed: bool,
        last: Option<Attempt>,
    ) -> Option<Brought> {
        let wanted = self.reading(read).wanted;
        let (at, sectors, _) = self.place_again(wanted);
        let enough = usize::from(self.log().layout().width()).max(AGREEING);
        let believed = |next: &Attempt| agreed && is_header(wanted) && next.nth() >= enough;
        let next = self.log().next_attempt(at..at + sectors, last);
        let Some(attempt) = next.filter(|next| !believed(next)) else {
            return Some(as_first_read(wanted, plain));
        };
        self.ask_without(
            read,
            Again {
                agreed,
                plain,
                attempt,
            },
        );
        None
    }

    fn ask_without(&mut self, read: u32, again: Again) {
        let reading = self.start_mut().reads[read as usize].as_mut();
        reading.expect("it is in flight").again = Some(again);
        let Reading { wanted, buf, .. } = self.reading(read);
        let (at, sectors, from) = self.place_again(wanted);
        let into = BufRef::new(buf, from, (sectors * SECTOR_BYTES) as u32);
        self.ask_part(read, at, into, Copies::Without(again.attempt.suspects));
    }

    /// The sectors that are read again, and their place in the buffer. A payload that was read with its
    /// header is read again without it: the payload's checksum does not cover the header, and bytes computed
    /// from parity would overwrite it.
    fn place_again(&mut self, wanted: Wanted) -> (u64, u64, u32) {
        let (at, sectors) = self.place_of(wanted);
        match wanted {
            Wanted::Payload(header) => {
                let from = self.payload_from();
                let before = u64::from(from) / SECTOR_BYTES;
                (at + before, u64::from(header.payload_sectors), from)
            }
            _ => (at, sectors, 0),
        }
    }

    /// Whether the result is valid at this place.
    fn is_sound(&mut self, wanted: Wanted, brought: &Brought) -> bool {
        let owner = self.log_owner();
        match (&self.start_mut().phase, wanted, brought) {
            (Phase::Anchors { layout, .. }, Wanted::Anchor(home), (Some(page), _)) => {
                anchor::is_sound(&owner, layout, home, page)
            }
            (Phase::Scan(scan), Wanted::Header(at), (Some(page), _)) => scan.expects(at, page),
            (_, Wanted::Payload(header), (_, Some(Verdict::Checksum(crc)))) => {
                *crc == header.payload_crc
            }
            _ => false,
        }
    }

    /// Reports a repair: something in the log was wrong, and is right again.
    fn note_rot(&mut self, wanted: Wanted) {
        if let (Phase::Scan(scan), Wanted::Header(at)) = (&mut self.start_mut().phase, wanted) {
            scan.mistrust(at);
        }
    }

    // -------------------------------------------------------------------------------------- how a start ends

    pub(crate) fn start_mut(&mut self) -> &mut StartState {
        self.start.as_mut().expect("a start is in progress")
    }

    /// False while the start only inspects.
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
        let start = self.start.take().expect("a start is in progress");
        let lost = self.lost.take().unwrap_or_default();
        self.stage = stage;
        let home = &mut self.sets[Site::Home];
        let ties = home.ties_mut();
        ties.primaries_first &= stage != Stage::MainOnly;
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
            self.report_lost(lba, sectors);
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

    /// A log that loses too many members during the start is treated as one that was not present.
    pub(crate) fn refuse_without(&mut self, error: CommandError) {
        let missing = matches!(error, CommandError::TooFew { .. });
        match missing && !self.home().halted() && !self.primaries_have_data() {
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

    /// Whether a start without the log would trust the primary copies for the log's data. Then nothing is
    /// lost without the log, so `accept_loss` does not apply.
    pub(crate) fn primaries_have_data(&mut self) -> bool {
        self.home().records_primary_first() && self.start_mut().doubt.is_none()
    }

    /// The log cannot be written. If it holds no valid data, the main set continues without it.
    pub(crate) fn cannot_write(&mut self) {
        match &self.start_mut().phase {
            Phase::Beginning { found } if found.extents.is_empty() => {
                self.continue_without_log();
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

    /// Continues without a log that cannot be written and holds no valid data.
    pub(crate) fn continue_without_log(&mut self) {
        let why = Box::new(self.why_unwritable());
        self.report_of_start(Fact::SurrogateAbsent { why });
        self.end_start(Ok(()), Stage::MainOnly);
    }
}
