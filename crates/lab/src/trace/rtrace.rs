//! Restripe's compact format, `.rtrace`: blocks of delta-coded requests, each with its checksum.
//!
//! `docs/reference/traces.md` has every byte. Each block can be decoded without the others, so a damaged one
//! can be skipped. The file ends with a block that counts all requests, which distinguishes a whole file
//! from a cut one. After that block another trace with the same header may follow. Any other bytes there are
//! an error.

use super::fields::request;
use super::format::{Contents, Format, Opened};
use super::source::{self, Bytes};
use super::{Features, Item, Op, Place, Request, TraceError};
use restripe_code::crc32c;
use std::io::{self, Write};
use std::path::PathBuf;
use std::vec::IntoIter;

const MAGIC: &[u8; 8] = b"rtrace\r\n";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 16;
const BLOCK_HEADER_BYTES: usize = 16;
/// Requests of a full block.
const BLOCK_REQUESTS: usize = 4096;
/// The most that a request takes: its tag and four numbers of at most ten bytes.
const REQUEST_BYTES_MAX: usize = 41;
const PAYLOAD_BYTES_MAX: usize = BLOCK_REQUESTS * REQUEST_BYTES_MAX;

const BLOCK_MAGIC: u32 = u32::from_le_bytes(*b"RBLK");
const END_MAGIC: u32 = u32::from_le_bytes(*b"REND");
const LABEL_MAGIC: u32 = u32::from_le_bytes(*b"RLBL");
/// What is longer is cut.
const LABEL_BYTES_MAX: usize = 4096;

const HAS_TIMES: u16 = 1;
const HAS_OPS: u16 = 2;
const HAS_LABEL: u16 = 4;
const FLAGS: u16 = HAS_TIMES | HAS_OPS | HAS_LABEL;

// A request's tag: two bits of operation, then what follows it.
const OP_MASK: u8 = 0b11;
const NEW_DEVICE: u8 = 1 << 2;
const NEW_OFFSET: u8 = 1 << 3;
const NEW_LENGTH: u8 = 1 << 4;
const EARLIER: u8 = 1 << 5;
const TAG_MASK: u8 = 0b11_1111;

/// What the next request is told against. Every block begins with this at zero.
#[derive(Default, Clone, Copy)]
struct Before {
    time: u64,
    device: u32,
    end: u64,
    length: u64,
}

impl Before {
    fn after(request: &Request) -> Before {
        Before {
            time: request.time,
            device: request.device,
            end: request.end(),
            length: request.length,
        }
    }
}

// ------------------------------------------------------------------------------------------------------------ writer

/// Writes requests; [`Writer::finish`] must end it.
pub struct Writer<W: Write> {
    output: W,
    payload: Vec<u8>,
    pending: u32,
    written: u64,
    before: Before,
}

impl<W: Write> Writer<W> {
    /// A label says what the trace is, where it is not what was recorded.
    pub fn new(mut output: W, features: Features, label: Option<&str>) -> io::Result<Writer<W>> {
        let flag = |set: bool, bit: u16| if set { bit } else { 0 };
        let flags = flag(features.times, HAS_TIMES)
            | flag(features.ops, HAS_OPS)
            | flag(label.is_some(), HAS_LABEL);
        let mut header = MAGIC.to_vec();
        header.extend(VERSION.to_le_bytes());
        header.extend(flags.to_le_bytes());
        header.extend(crc32c(0, &header).to_le_bytes());
        if let Some(label) = label {
            header.extend(label_block(label));
        }
        output.write_all(&header)?;
        Ok(Writer {
            output,
            payload: Vec::new(),
            pending: 0,
            written: 0,
            before: Before::default(),
        })
    }

    pub fn write(&mut self, request: &Request) -> io::Result<()> {
        encode(&self.before, request, &mut self.payload);
        self.before = Before::after(request);
        self.pending += 1;
        if self.pending as usize == BLOCK_REQUESTS {
            self.write_block()?;
        }
        Ok(())
    }

    /// Writes what is left and the end. Returns the output, and how many requests it got.
    pub fn finish(mut self) -> io::Result<(W, u64)> {
        self.write_block()?;
        let mut end = END_MAGIC.to_le_bytes().to_vec();
        end.extend(self.written.to_le_bytes());
        end.extend(crc32c(0, &end).to_le_bytes());
        self.output.write_all(&end)?;
        self.output.flush()?;
        Ok((self.output, self.written))
    }

    fn write_block(&mut self) -> io::Result<()> {
        if self.pending == 0 {
            return Ok(());
        }
        let length = u32::try_from(self.payload.len()).expect("a payload is below 2^18 bytes");
        let mut header = BLOCK_MAGIC.to_le_bytes().to_vec();
        header.extend(self.pending.to_le_bytes());
        header.extend(length.to_le_bytes());
        let sum = crc32c(crc32c(0, &header), &self.payload);
        header.extend(sum.to_le_bytes());
        self.output.write_all(&header)?;
        self.output.write_all(&self.payload)?;
        self.written += u64::from(self.pending);
        self.payload.clear();
        self.pending = 0;
        self.before = Before::default();
        Ok(())
    }
}

fn label_block(label: &str) -> Vec<u8> {
    let mut length = label.len().min(LABEL_BYTES_MAX);
    while !label.is_char_boundary(length) {
        length -= 1;
    }
    let text = &label.as_bytes()[..length];
    let length = u32::try_from(length).expect("a label is at most 4 KiB");
    let mut block = LABEL_MAGIC.to_le_bytes().to_vec();
    block.extend(0u32.to_le_bytes());
    block.extend(length.to_le_bytes());
    block.extend(crc32c(crc32c(0, &block), text).to_le_bytes());
    block.extend(text);
    block
}

fn encode(before: &Before, request: &Request, payload: &mut Vec<u8>) {
    let mut tag = request.op as u8;
    let mut flag = |set: bool, bit: u8| tag |= if set { bit } else { 0 };
    flag(request.device != before.device, NEW_DEVICE);
    flag(request.offset != before.end, NEW_OFFSET);
    flag(request.length != before.length, NEW_LENGTH);
    flag(request.time < before.time, EARLIER);
    payload.push(tag);
    put(payload, request.time.abs_diff(before.time));
    if tag & NEW_DEVICE != 0 {
        put(payload, u64::from(request.device));
    }
    if tag & NEW_OFFSET != 0 {
        let delta = request.offset.wrapping_sub(before.end).cast_signed();
        put(payload, ((delta << 1) ^ (delta >> 63)).cast_unsigned());
    }
    if tag & NEW_LENGTH != 0 {
        put(payload, request.length);
    }
}

/// Seven bits a byte, the lowest first; the top bit says that more follow.
fn put(payload: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        payload.push(value as u8 | 0x80);
        value >>= 7;
    }
    payload.push(value as u8);
}

// ------------------------------------------------------------------------------------------------------------ reader

pub(super) static FORMAT: Format = Format {
    begins: |start| start.starts_with(MAGIC),
    ..Format::of_bytes("rtrace", "the compact format of our own", open)
};

fn open(file: Opened<'_>) -> Result<Contents, TraceError> {
    let damaged = |reason| file.failure(reason);
    let features = features(&file.start).map_err(damaged)?;
    let label = label(&file.start).map_err(damaged)?;
    let requests = Box::new(Reader::new(file.path, file.input, label.as_deref()));
    Ok(Contents {
        features,
        label,
        requests,
    })
}

/// What stands at the beginning of a file.
fn features(start: &[u8]) -> Result<Features, String> {
    let header: &[u8; HEADER_BYTES] = start.first_chunk().ok_or("the header is cut")?;
    let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    if crc32c(0, &header[..12]) != word(header, 12) {
        return Err("the checksum of the header is wrong".into());
    }
    if half(8) != VERSION {
        return Err(format!("version {} of the format is not known", half(8)));
    }
    if half(10) & !FLAGS != 0 {
        return Err(format!("flags {:#x} of the format are not known", half(10)));
    }
    Ok(Features {
        times: half(10) & HAS_TIMES != 0,
        ops: half(10) & HAS_OPS != 0,
    })
}

/// The label at the beginning of a file, whose header [`features`] has judged.
fn label(start: &[u8]) -> Result<Option<String>, String> {
    let flags = start.get(10..12).map_or(0, |flags| u16::from(flags[0]));
    if flags & HAS_LABEL == 0 {
        return Ok(None);
    }
    let rest = start.get(HEADER_BYTES..).unwrap_or_default();
    let header: &[u8; BLOCK_HEADER_BYTES] = rest.first_chunk().ok_or("the label is cut")?;
    let length = word(header, 8) as usize;
    if word(header, 0) != LABEL_MAGIC || length > LABEL_BYTES_MAX {
        return Err("the label is not there".into());
    }
    let text = rest.get(BLOCK_HEADER_BYTES..BLOCK_HEADER_BYTES + length);
    let text = text.ok_or("the label is cut")?;
    if crc32c(crc32c(0, &header[..12]), text) != word(header, 12) {
        return Err("the checksum of the label is wrong".into());
    }
    let text = std::str::from_utf8(text).map_err(|_| "the label is no text")?;
    Ok(Some(text.to_string()))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub struct Reader {
    path: PathBuf,
    input: Bytes,
    /// The header and the label's block, empty until they were read.
    header: Vec<u8>,
    header_bytes: usize,
    position: u64,
    block: IntoIter<Request>,
    count: u64,
    /// Whether blocks were skipped, so that the count at the end cannot fit.
    gaps: bool,
    /// The file was cut, and that was said.
    ended: bool,
}

impl Reader {
    /// The input stands at the header, which [`features`] and [`label`] have judged.
    pub fn new(path: PathBuf, input: Bytes, label: Option<&str>) -> Reader {
        Reader {
            header_bytes: HEADER_BYTES + label.map_or(0, |label| BLOCK_HEADER_BYTES + label.len()),
            header: Vec::new(),
            path,
            input,
            position: 0,
            block: Vec::new().into_iter(),
            count: 0,
            gaps: false,
            ended: false,
        }
    }

    fn error(&self, byte: u64, reason: impl Into<String>, skippable: bool) -> TraceError {
        TraceError::new(&self.path, Place::Byte(byte), reason, skippable)
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), TraceError> {
        let start = self.position;
        match source::fill(&mut self.input, buffer) {
            Ok(count) if count == buffer.len() => {
                self.position += count as u64;
                Ok(())
            }
            Ok(_) => Err(self.cut(start)),
            Err(error) => Err(self.unreadable(start, &error)),
        }
    }

    fn cut(&mut self, start: u64) -> TraceError {
        self.ended = true;
        let reason = "the file is cut: it does not end with its count";
        self.error(start, reason, true)
    }

    fn unreadable(&mut self, start: u64, error: &io::Error) -> TraceError {
        self.ended = source::is_truncated(error);
        self.error(start, error.to_string(), self.ended)
    }

    /// Reads the next block; false at the end of the file.
    fn next_block(&mut self) -> Result<bool, TraceError> {
        if self.header.is_empty() {
            let mut header = vec![0; self.header_bytes];
            self.fill(&mut header)?;
            self.header = header;
        }
        let start = self.position;
        let mut header = [0; BLOCK_HEADER_BYTES];
        self.fill(&mut header)?;
        match word(&header, 0) {
            BLOCK_MAGIC => {}
            END_MAGIC => {
                self.end(start, &header)?;
                return self.next_trace();
            }
            _ => return Err(self.error(start, "no block begins here", false)),
        }
        let (count, length) = (word(&header, 4) as usize, word(&header, 8) as usize);
        if count > BLOCK_REQUESTS || length > PAYLOAD_BYTES_MAX {
            return Err(self.error(start, "a block of more than a block may hold", false));
        }
        let mut payload = vec![0; length];
        self.fill(&mut payload)?;
        let sum = crc32c(crc32c(0, &header[..12]), &payload);
        let decoded = if sum == word(&header, 12) {
            decode(&payload, count)
        } else {
            Err("the checksum of the block is wrong".into())
        };
        let block = decoded.map_err(|reason| {
            self.gaps = true;
            self.error(start, reason, true)
        })?;
        self.count += count as u64;
        self.block = block.into_iter();
        Ok(true)
    }

    fn end(&mut self, start: u64, end: &[u8; BLOCK_HEADER_BYTES]) -> Result<(), TraceError> {
        if crc32c(0, &end[..12]) != word(end, 12) {
            return Err(self.error(start, "the checksum of the end is wrong", false));
        }
        let count = u64::from_le_bytes(end[4..12].try_into().expect("eight bytes"));
        if count != self.count && !self.gaps {
            let reason = format!("{count} requests were written, {} are here", self.count);
            return Err(self.error(start, reason, false));
        }
        Ok(())
    }

    /// Goes on to the trace behind the end of this one; false at the end of the file.
    fn next_trace(&mut self) -> Result<bool, TraceError> {
        let start = self.position;
        let mut header = vec![0; self.header_bytes];
        let filled = source::fill(&mut self.input, &mut header)
            .map_err(|error| self.unreadable(start, &error))?;
        if filled == 0 {
            return Ok(false);
        }
        if header[..filled] != self.header[..filled] {
            let reason = "bytes behind the end that are no further trace with the same header";
            return Err(self.error(start, reason, false));
        }
        if filled < header.len() {
            return Err(self.cut(start));
        }
        self.position += filled as u64;
        (self.count, self.gaps) = (0, false);
        Ok(true)
    }
}

impl Iterator for Reader {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        loop {
            if let Some(request) = self.block.next() {
                return Some(Ok(request));
            }
            if self.ended {
                return None;
            }
            match self.next_block() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// The requests of a block, all of them or none.
fn decode(payload: &[u8], count: usize) -> Result<Vec<Request>, String> {
    let mut bytes = payload.iter();
    let mut before = Before::default();
    let mut requests = Vec::with_capacity(count);
    for _ in 0..count {
        let request = decode_one(&mut bytes, &before)?;
        before = Before::after(&request);
        requests.push(request);
    }
    if bytes.len() > 0 {
        return Err(format!("{} bytes too many in the block", bytes.len()));
    }
    Ok(requests)
}

fn decode_one(bytes: &mut std::slice::Iter<u8>, before: &Before) -> Result<Request, String> {
    let tag = *bytes.next().ok_or("the block ends early")?;
    if tag & !TAG_MASK != 0 {
        return Err(format!("a request with the unknown tag {tag:#x}"));
    }
    let op = match tag & OP_MASK {
        0 => Op::Read,
        1 => Op::Write,
        2 => Op::Discard,
        _ => Op::Flush,
    };
    let delta = get(bytes)?;
    let time = match tag & EARLIER {
        0 => before.time.checked_add(delta),
        _ => before.time.checked_sub(delta),
    };
    let time = time.ok_or("a time out of range")?;
    let mut told = *before;
    if tag & NEW_DEVICE != 0 {
        told.device = u32::try_from(get(bytes)?).map_err(|_| "a device out of range")?;
    }
    if tag & NEW_OFFSET != 0 {
        let zigzag = get(bytes)?;
        let delta = (zigzag >> 1) ^ (zigzag & 1).wrapping_neg();
        told.end = before.end.wrapping_add(delta);
    }
    if tag & NEW_LENGTH != 0 {
        told.length = get(bytes)?;
    }
    request(time, told.device, op, told.end, told.length)
}

fn get(bytes: &mut std::slice::Iter<u8>) -> Result<u64, String> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.next().ok_or("the block ends within a number")?;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            break;
        }
        value |= bits << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err("a number of more than 64 bits".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::END_MAX;
    use std::io::Cursor;

    fn some(count: u64) -> Vec<Request> {
        let ops = [Op::Read, Op::Write, Op::Discard];
        let made = |index: u64| Request {
            time: (index * 1_000_003) ^ (index % 5),
            device: (index / 1000) as u32,
            op: ops[(index % 3) as usize],
            offset: (index * 0x9e37_79b9) % (1 << 44),
            length: 512 << (index % 4),
        };
        (0..count).map(made).collect()
    }

    fn sound(items: Vec<Item>) -> Vec<Request> {
        items.into_iter().map(Result::unwrap).collect()
    }

    fn written(requests: &[Request]) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), Features::ALL, None).unwrap();
        requests.iter().for_each(|one| writer.write(one).unwrap());
        let (bytes, count) = writer.finish().unwrap();
        assert_eq!(count, requests.len() as u64);
        bytes
    }

    fn read(bytes: Vec<u8>) -> Vec<Item> {
        let label = label(&bytes).unwrap_or_default();
        let input = Box::new(Cursor::new(bytes));
        super::super::drain(Reader::new("t".into(), input, label.as_deref()))
    }

    #[test]
    fn what_is_written_is_read() {
        let extreme = Request::new(u64::MAX, u32::MAX, Op::Discard, END_MAX - 1, 1);
        let flush = Request::new(0, 0, Op::Flush, 0, 0);
        for mut requests in [vec![], some(1), some(BLOCK_REQUESTS as u64), some(10_000)] {
            requests.extend([extreme, flush, extreme]);
            assert_eq!(sound(read(written(&requests))), requests);
        }
    }

    #[test]
    fn the_header_tells_features_and_refuses_other_versions() {
        let writer = Writer::new(Vec::new(), Features::ADDRESSES, None).unwrap();
        let (mut bytes, _) = writer.finish().unwrap();
        assert_eq!(features(&bytes), Ok(Features::ADDRESSES));
        bytes[8] = 2;
        assert!(features(&bytes).unwrap_err().contains("checksum"));
        let sum = crc32c(0, &bytes[..12]);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        assert!(features(&bytes).unwrap_err().contains("version 2"));
    }

    #[test]
    fn a_label_is_kept_and_damage_to_it_is_noticed() {
        let long = "ü".repeat(3000);
        for given in ["", "synthetic: a workload", &long] {
            let mut writer = Writer::new(Vec::new(), Features::ALL, Some(given)).unwrap();
            some(10).iter().for_each(|one| writer.write(one).unwrap());
            let (bytes, _) = writer.finish().unwrap();
            let found = label(&bytes).unwrap().unwrap();
            assert!(given.starts_with(&found) && found.len() == given.len().min(LABEL_BYTES_MAX));
            let requests: Vec<Request> = read(bytes.clone()).into_iter().flatten().collect();
            assert_eq!(requests, some(10));
            for at in HEADER_BYTES..HEADER_BYTES + BLOCK_HEADER_BYTES + found.len().min(40) {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1;
                assert!(label(&damaged).is_err(), "byte {at}");
            }
        }
        assert_eq!(label(&written(&some(1))), Ok(None));
    }

    #[test]
    fn every_flipped_byte_is_noticed_and_every_cut() {
        let requests = some(50);
        let bytes = written(&requests);
        for at in HEADER_BYTES..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            assert!(read(flipped).iter().any(Result::is_err), "byte {at}");
        }
        for length in HEADER_BYTES..bytes.len() {
            let last = read(bytes[..length].to_vec()).pop();
            assert!(last.is_some_and(|item| item.is_err()), "cut at {length}");
        }
    }

    #[test]
    fn what_stands_behind_the_end_is_another_trace_or_an_error() {
        let requests = some(50);
        let bytes = written(&requests);
        assert_eq!(sound(read(bytes.repeat(2))), requests.repeat(2));
        for cut in 1..bytes.len() {
            let found = read([&bytes, &bytes[..cut]].concat());
            let last = found.last().unwrap().as_ref();
            assert!(last.is_err_and(|error| error.skippable), "cut at {cut}");
        }
        let empty = Writer::new(Vec::new(), Features::ADDRESSES, None).unwrap();
        let (addresses, _) = empty.finish().unwrap();
        for behind in [vec![0], vec![0; 600], b"garbage".to_vec(), addresses] {
            let found = read([bytes.clone(), behind].concat());
            assert_eq!(found.len(), 51);
            assert!(found.last().unwrap().is_err());
        }
    }

    #[test]
    fn a_damaged_block_can_be_skipped() {
        let requests = some(3 * BLOCK_REQUESTS as u64);
        let mut bytes = written(&requests);
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        let found = read(bytes);
        let good = found.iter().filter(|item| item.is_ok()).count();
        let errors = found.iter().filter_map(|item| item.as_ref().err());
        let errors: Vec<&TraceError> = errors.collect();
        assert_eq!((good, errors.len()), (2 * BLOCK_REQUESTS, 1));
        assert!(errors[0].skippable);
    }

    #[test]
    fn sequential_requests_take_few_bytes() {
        let made = |index: u64| Request::new(index * 100, 0, Op::Read, index * 4096, 4096);
        let requests: Vec<Request> = (0..4096).map(made).collect();
        assert!(written(&requests).len() < 2 * 4096 + 100);
    }
}
