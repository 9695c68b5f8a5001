//! Requests of a block device's driver (virtio 1.2, section 5.2.6), from a chain to what the array is asked.

use super::chain::{Chain, Span, bytes_of, copy_from, take_front, take_last_byte};
use super::limits::{Guest, RANGE_SECTORS_MAX, RANGES_MAX};
use crate::front::BUFFER_BYTES_MAX;
use restripe_array::SECTOR_BYTES;
use vm_memory::GuestAddress;

const HEADER_BYTES: u32 = 16;
const RANGE_BYTES: u32 = 16;
/// Bytes of a device's name.
const ID_BYTES: usize = 20;

/// Kinds of requests.
mod kind {
    pub(crate) const IN: u32 = 0;
    pub(crate) const OUT: u32 = 1;
    pub(crate) const FLUSH: u32 = 4;
    pub(crate) const GET_ID: u32 = 8;
    pub(crate) const DISCARD: u32 = 11;
    pub(crate) const WRITE_ZEROES: u32 = 13;
}

/// What the driver is answered.
pub(crate) mod status {
    pub(crate) const OK: u8 = 0;
    pub(crate) const IOERR: u8 = 1;
    pub(crate) const UNSUPP: u8 = 2;
}

/// Bytes of the array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl Range {
    /// `None`: beyond the end of the array.
    fn within(size_bytes: u64, sector: u64, bytes: u64) -> Option<Range> {
        let offset = sector.checked_mul(SECTOR_BYTES)?;
        let end = offset.checked_add(bytes)?;
        (end <= size_bytes).then_some(Range { offset, bytes })
    }
}

/// What a driver wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    Read(Range, Vec<Span>),
    Write(Range, Vec<Span>),
    Flush,
    Id(Vec<Span>),
    Trim(Vec<Range>),
    Zero(Vec<Range>),
    /// Nothing of it is done.
    Refuse(u8),
}

/// Where the status of a request belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StatusPlace {
    pub(crate) at: GuestAddress,
    /// Bytes that may be written in front of it.
    pub(crate) behind: u64,
}

impl StatusPlace {
    /// The length of an answer (2.7.8.2): of what was written, as far as no byte is left out. `data`: bytes
    /// written from the first on. `status`: whether it was written.
    pub(crate) fn length(self, data: u32, status: bool) -> u32 {
        let whole = u64::from(data) == self.behind;
        data + u32::from(whole && status)
    }
}

/// A request, and where its status belongs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) asked: Asked,
    /// `None`: the chain has no room for it, so the driver sees a chain of no bytes.
    pub(crate) status: Option<StatusPlace>,
}

impl Asked {
    /// Whether it changes the array.
    pub(crate) fn changes(&self) -> bool {
        matches!(self, Asked::Write(..) | Asked::Trim(_) | Asked::Zero(_))
    }
}

/// Takes a chain for what it says, on an array of this size.
///
/// Nothing of it is read again: a guest may change it at any time.
pub(crate) fn parse(memory: &Guest, mut chain: Chain, size_bytes: u64) -> Request {
    let status = take_last_byte(&mut chain.writable).map(|at| StatusPlace {
        at,
        behind: bytes_of(&chain.writable),
    });
    let asked = match status {
        Some(_) => asked(memory, chain, size_bytes).unwrap_or(Asked::Refuse(status::IOERR)),
        None => Asked::Refuse(status::IOERR),
    };
    Request { asked, status }
}

/// `None`: it makes no sense.
fn asked(memory: &Guest, chain: Chain, size_bytes: u64) -> Option<Asked> {
    let Chain {
        mut readable,
        writable,
    } = chain;
    let mut header = [0; HEADER_BYTES as usize];
    let front = take_front(&mut readable, HEADER_BYTES)?;
    copy_from(memory, &front, &mut header).ok()?;
    let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four"));
    let sector = u64::from(word(12)) << 32 | u64::from(word(8));
    Some(match word(0) {
        kind::IN => Asked::Read(data(sector, &writable, size_bytes)?, writable),
        kind::OUT => Asked::Write(data(sector, &readable, size_bytes)?, readable),
        kind::FLUSH => Asked::Flush,
        kind::GET_ID => Asked::Id(writable),
        kind::DISCARD => match ranges(memory, &readable, size_bytes)? {
            (ranges, 0) => Asked::Trim(ranges),
            _ => Asked::Refuse(status::UNSUPP),
        },
        // The flag allows space to be given back. Without it zeros are zeros as well.
        kind::WRITE_ZEROES => match ranges(memory, &readable, size_bytes)? {
            (ranges, 0 | 1) => Asked::Zero(ranges),
            _ => Asked::Refuse(status::UNSUPP),
        },
        _ => Asked::Refuse(status::UNSUPP),
    })
}

/// The range that data of this length has. Whole sectors, and no more than a buffer holds.
fn data(sector: u64, spans: &[Span], size_bytes: u64) -> Option<Range> {
    let bytes = bytes_of(spans);
    let sound = bytes.is_multiple_of(SECTOR_BYTES) && bytes <= u64::from(BUFFER_BYTES_MAX);
    let range = Range::within(size_bytes, sector, bytes)?;
    (sound && bytes > 0).then_some(range)
}

/// The ranges of a discard or write of zeros, and all flags that any of them has.
fn ranges(memory: &Guest, spans: &[Span], size_bytes: u64) -> Option<(Vec<Range>, u32)> {
    let bytes = bytes_of(spans);
    let count = bytes / u64::from(RANGE_BYTES);
    let whole = bytes.is_multiple_of(u64::from(RANGE_BYTES));
    if !whole || !(1..=u64::from(RANGES_MAX)).contains(&count) {
        return None;
    }
    let mut list = [0; (RANGES_MAX * RANGE_BYTES) as usize];
    let list = &mut list[..bytes as usize];
    copy_from(memory, spans, list).ok()?;
    let (mut ranges, mut flags) = (Vec::new(), 0);
    for entry in list.chunks_exact(RANGE_BYTES as usize) {
        let sector = u64::from_le_bytes(entry[..8].try_into().expect("eight"));
        let sectors = u32::from_le_bytes(entry[8..12].try_into().expect("four"));
        flags |= u32::from_le_bytes(entry[12..].try_into().expect("four"));
        if sectors > RANGE_SECTORS_MAX {
            return None;
        }
        let bytes = u64::from(sectors) * SECTOR_BYTES;
        let range = Range::within(size_bytes, sector, bytes)?;
        ranges.extend((bytes > 0).then_some(range));
    }
    Some((ranges, flags))
}

/// The name of a device, as its driver gets it.
pub(crate) fn id_of(name: &str) -> [u8; ID_BYTES] {
    let mut id = [0; ID_BYTES];
    let bytes = name.as_bytes();
    let bytes = &bytes[..bytes.len().min(ID_BYTES)];
    id[..bytes.len()].copy_from_slice(bytes);
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use vm_memory::Bytes;

    const SIZE_BYTES: u64 = 8 << 20;

    fn guest() -> Guest {
        Guest::from_ranges(&[(GuestAddress(0), 1 << 16)]).expect("memory")
    }

    fn span(at: u64, bytes: u32) -> Span {
        let at = GuestAddress(at);
        Span { at, bytes }
    }

    fn header(kind: u32, sector: u64) -> Vec<u8> {
        let mut header = kind.to_le_bytes().to_vec();
        header.extend([0; 4]);
        header.extend(sector.to_le_bytes());
        header
    }

    /// A request of `front` and `readable`, with room for `writable` bytes and the status.
    fn request(front: &[u8], readable: u32, writable: u32) -> Request {
        let memory = guest();
        memory
            .write_slice(front, GuestAddress(0x100))
            .expect("room");
        let chain = Chain {
            readable: vec![
                span(0x100, 5),
                span(0x105, front.len() as u32 - 5 + readable),
            ],
            writable: vec![span(0x8000, writable + 1)],
        };
        parse(&memory, chain, SIZE_BYTES)
    }

    #[test]
    fn a_header_may_lie_in_pieces() {
        let read = request(&header(kind::IN, 3), 0, 1024);
        let (at, behind) = (GuestAddress(0x8000 + 1024), 1024);
        assert_eq!(read.status, Some(StatusPlace { at, behind }));
        let range = Range {
            offset: 1536,
            bytes: 1024,
        };
        assert_eq!(read.asked, Asked::Read(range, vec![span(0x8000, 1024)]));
        let write = request(&header(kind::OUT, 3), 1024, 0);
        assert_eq!(write.asked, Asked::Write(range, vec![span(0x110, 1024)]));
        assert_eq!(request(&header(kind::FLUSH, 0), 0, 0).asked, Asked::Flush);
    }

    #[test]
    fn lengths_and_sectors_are_checked() {
        let refused = |request: Request| request.asked == Asked::Refuse(status::IOERR);
        assert!(
            refused(request(&header(kind::IN, 0), 0, 513)),
            "half a sector"
        );
        assert!(refused(request(&header(kind::IN, 0), 0, 0)), "nothing");
        assert!(
            refused(request(&header(kind::IN, u64::MAX / 2), 0, 512)),
            "overflow"
        );
        assert!(
            refused(request(&header(kind::IN, 16 << 10), 0, 512)),
            "beyond the end"
        );
        assert!(
            refused(request(&header(kind::IN, 0)[..12], 0, 512)),
            "half a header"
        );
        let unknown = request(&header(99, 0), 0, 0);
        assert_eq!(unknown.asked, Asked::Refuse(status::UNSUPP));
        let silent = parse(
            &guest(),
            Chain {
                readable: vec![span(0, 16)],
                writable: Vec::new(),
            },
            SIZE_BYTES,
        );
        assert!(silent.status.is_none() && refused(silent));
    }

    #[test]
    fn ranges_are_bounded_and_their_flags_known() {
        let range = |sector: u64, sectors: u32, flags: u32| {
            let mut range = sector.to_le_bytes().to_vec();
            range.extend(sectors.to_le_bytes());
            range.extend(flags.to_le_bytes());
            range
        };
        let ask = |kind, ranges: &[Vec<u8>]| {
            let mut front = header(kind, 0);
            ranges.iter().for_each(|range| front.extend(range));
            request(&front, 0, 0).asked
        };
        let two = [range(8, 8, 0), range(64, 1, 0)];
        let expected = [(4096, 4096), (32768, 512)];
        let expected = expected.map(|(offset, bytes)| Range { offset, bytes });
        assert_eq!(ask(kind::DISCARD, &two), Asked::Trim(expected.to_vec()));
        assert_eq!(
            ask(kind::WRITE_ZEROES, &two),
            Asked::Zero(expected.to_vec())
        );
        let unmap = [range(8, 8, 1)];
        assert_eq!(ask(kind::DISCARD, &unmap), Asked::Refuse(status::UNSUPP));
        assert!(matches!(ask(kind::WRITE_ZEROES, &unmap), Asked::Zero(_)));
        let refused =
            |ranges: &[Vec<u8>]| ask(kind::DISCARD, ranges) == Asked::Refuse(status::IOERR);
        assert!(refused(&[]) && refused(&vec![range(0, 1, 0); 17]));
        assert!(refused(&[range(u64::MAX, 1, 0)]) && refused(&[range(16 << 10, 1, 0)]));
        let empty = ask(kind::DISCARD, &[range(8, 0, 0)]);
        assert_eq!(empty, Asked::Trim(Vec::new()));
        assert!(refused(&[range(0, RANGE_SECTORS_MAX + 1, 0)]));
    }

    #[test]
    fn a_length_ends_at_the_first_byte_that_was_not_written() {
        let at = GuestAddress(0);
        let length = |behind, data, status| StatusPlace { at, behind }.length(data, status);
        assert_eq!(length(0, 0, true), 1, "a write");
        assert_eq!(length(4096, 4096, true), 4097, "a read");
        assert_eq!(length(4096, 0, true), 0, "a read that failed");
        assert_eq!(length(64, 20, true), 20, "an identifier with room to spare");
        assert_eq!(length(4096, 4096, false), 4096);
        assert_eq!(length(u64::from(u32::MAX) + 1, 0, true), 0);
    }

    #[test]
    fn a_long_name_is_cut() {
        assert_eq!(&id_of("tank")[..5], b"tank\0");
        assert_eq!(
            &id_of("a-name-of-more-than-20-bytes"),
            b"a-name-of-more-than-"
        );
    }
}
