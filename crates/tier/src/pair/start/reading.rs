//! What a start reads of the log, one page or payload after the other, as far as there are buffers for it.

use super::reader::LogReader;
use super::state::{Brought, Phase, Reading, Step, Wanted, record_sectors};
use crate::overlay::Site;
use crate::overlay::format::{PayloadFound, Read, RecordHeader, record};
use crate::pair::children::Owner;
use restripe_array::parts::Copies;
use restripe_array::{
    Buf, BufRef, ComputeOp, PAGE_SECTORS, Page, RequestError, SECTOR_BYTES, SMALL_BYTES, Verdict,
    zeroed_page,
};

/// Computations of the start have tags from here on.
pub(crate) const START_TAGS: u32 = 1 << 24;

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
                        // No writer made it: it does not count.
                        Read::Payload(header) => {
                            scan.payload(header.sequence, PayloadFound::Torn);
                        }
                    }
                }
            }
            _ => None,
        }
    }

    /// There is no buffer for it now.
    fn unask(&mut self, wanted: Wanted) {
        let start = self.start_mut();
        match (&mut start.phase, wanted) {
            (Phase::Anchors { asked, .. }, Wanted::Anchor(_)) => *asked -= 1,
            (_, Wanted::Header(at)) => start.next = Some(Read::Header { at }),
            (_, Wanted::Payload(header)) => start.next = Some(Read::Payload(header)),
            _ => unreachable!("anchors are wanted in their phase"),
        }
    }

    /// The sectors of the surrogate that are read.
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

    /// Where a payload begins in its buffer.
    pub(crate) fn payload_from(&self) -> u32 {
        match self.log().whole_rows() {
            true => SMALL_BYTES,
            false => 0,
        }
    }

    pub(crate) fn reading(&mut self, read: u32) -> Reading {
        self.start_mut().reads[read as usize].expect("it is under way")
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

    /// What a read brought, before it is believed.
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
        reading.expect("it is under way").step = step;
    }

    /// What was read before the payload may be another header than was found, which a member had that is not here, and the others made
    /// of what only some of them have.
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

    /// Writes a record as it was found, whole.
    fn write_again(&mut self, read: u32, header: &RecordHeader, buf: Buf) {
        let layout = self.start_mut().phase.layout();
        self.step(read, Step::Rewriting);
        let sectors = u64::from(layout.footprint(header.payload_sectors));
        let source = BufRef::new(buf, 0, (sectors * SECTOR_BYTES) as u32);
        let at = layout.sector(header.at);
        self.write(Site::Log, Owner::StartRead(read), at, source);
    }

    /// What a read brought; nothing if it failed.
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

    /// A computation of the start: the page of a buffer is wanted, or the checksum of what lies in one.
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
}
