//! The format of `blktrace`: a file of binary events for every CPU, as a folder, one file, or a tar archive
//! of them. On output, requests are the events of one CPU, each with a queue event only.
//!
//! The files are read one after another, so the reader's output goes through [`super::sort`]. The layout of
//! an event is the kernel's `blk_io_trace`; both byte orders are read.

use super::detect::{damage, detect};
use super::fields::{SECTOR, request, sectors};
use super::format::{Contents, Format, Opened};
use super::members::PassedOver;
use super::options::Action;
use super::source::{self, Bytes, Sample};
use super::tar::Archive;
use super::{Features, Item, Op, Place, Request, TraceError};
use std::collections::VecDeque;
use std::fs;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

/// The upper three bytes of an event's first word.
const MAGIC: u32 = 0x6561_7400;
const EVENT_BYTES: usize = 48;
const NAME_PART: &str = ".blktrace.";

// Categories, in the upper half of an event's action.
const READ: u32 = 1 << 16;
const WRITE: u32 = 1 << 17;
const FLUSH: u32 = 1 << 18;
/// Commands that are no reads or writes of a file system or process.
const COMMAND: u32 = 1 << 25;
const NOTIFY: u32 = 1 << 26;
/// The event is of the queue of requests.
const QUEUE: u32 = 1 << 20;
const DISCARD: u32 = 1 << 29;
const DRIVER_DATA: u32 = 1 << 30;

/// The version of the layout that is written, and the only one that kernels write.
const VERSION: u32 = 7;
const QUEUED: u32 = 1;
/// A message of whoever traced: text behind the event.
const MESSAGE: u32 = 2;
const MESSAGE_BYTES_MAX: usize = 1024;

pub(super) static FORMAT: Format = Format {
    is_grouped: true,
    begins: is_blktrace,
    ..Format::of_bytes(
        "blktrace",
        "blktrace's files by CPU: a folder, a tar archive, one file",
        open,
    )
};

/// One file of blktrace alone.
fn open(file: Opened<'_>) -> Result<Contents, TraceError> {
    let action = file.options.action.unwrap_or(Action::Queued);
    Ok(Contents {
        features: Features::ALL,
        label: label_of(&file.start),
        requests: Box::new(Blktrace::new(file.path, Parts::single(file.input), action)),
    })
}

/// Whether a file begins as blktrace's do.
fn is_blktrace(start: &[u8]) -> bool {
    let word = start.first_chunk().copied().unwrap_or_default();
    order_of(word).is_some()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Little,
    Big,
}

fn order_of(word: [u8; 4]) -> Option<Order> {
    if u32::from_le_bytes(word) & !0xff == MAGIC {
        Some(Order::Little)
    } else if u32::from_be_bytes(word) & !0xff == MAGIC {
        Some(Order::Big)
    } else {
        None
    }
}

/// The files of all CPUs, one after another.
pub enum Parts {
    Files {
        left: VecDeque<PathBuf>,
        current: Bytes,
    },
    Archive {
        archive: Archive,
        passed_over: PassedOver,
    },
}

/// What is looked at of an archive's other files, which may be traces of another format.
const START_BYTES: u64 = 64 << 10;

impl Parts {
    pub fn archive(archive: Archive, passed_over: PassedOver) -> Parts {
        Parts::Archive {
            archive,
            passed_over,
        }
    }

    /// The file that is read first, if it is one of several.
    pub fn first(&self) -> Option<&Path> {
        match self {
            Parts::Files { left, .. } => left.front().map(PathBuf::as_path),
            Parts::Archive { .. } => None,
        }
    }

    /// All of a folder's blktrace files, or those whose names begin with `stem`.
    pub(crate) fn in_folder(folder: &Path, stem: &str) -> io::Result<Parts> {
        let mut files = Vec::new();
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name();
            let name = name.to_string_lossy();
            if let Some((begin, cpu)) = cpu_of(&name)
                && (stem.is_empty() || begin == stem)
            {
                files.push((begin.to_string(), cpu, folder.join(name.as_ref())));
            }
        }
        if files.is_empty() {
            let reason = "no files named DEVICE.blktrace.CPU in it";
            return Err(io::Error::new(io::ErrorKind::NotFound, reason));
        }
        files.sort();
        Ok(Parts::Files {
            left: files.into_iter().map(|(_, _, path)| path).collect(),
            current: Box::new(io::empty()),
        })
    }

    pub fn single(input: Bytes) -> Parts {
        Parts::Files {
            left: VecDeque::new(),
            current: input,
        }
    }

    /// The remedy for a packed file. A folder's files are read through the compressions that are known.
    fn to_unpack(&self) -> &'static str {
        match self {
            Parts::Files { .. } => "unpack it",
            Parts::Archive { .. } => "unpack the archive",
        }
    }

    /// Nothing more is read of the current file.
    fn end_part(&mut self) {
        match self {
            Parts::Files { current, .. } => *current = Box::new(io::empty()),
            Parts::Archive { archive, .. } => archive.end_member(),
        }
    }

    /// Goes on to the next file and tells its name.
    fn next_part(&mut self) -> io::Result<Option<String>> {
        match self {
            Parts::Files { left, current } => {
                let Some(path) = left.pop_front() else {
                    return Ok(None);
                };
                *current = source::open(&path)?;
                Ok(Some(path.display().to_string()))
            }
            Parts::Archive {
                archive,
                passed_over,
            } => next_member(archive, passed_over),
        }
    }
}

/// Goes on to the archive's next file of blktrace. One that is another trace is an error, and what is none is passed over.
fn next_member(archive: &mut Archive, passed_over: &PassedOver) -> io::Result<Option<String>> {
    loop {
        let name = match archive.next_member()? {
            Some(name) if !is_part(&name) => name,
            other => return Ok(other),
        };
        if is_trace(archive, &name)? {
            let reason =
                format!("{name} is no file of blktrace as those before it: unpack the archive");
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        let mut passed = passed_over.lock().unwrap_or_else(PoisonError::into_inner);
        passed.push(name);
    }
}

/// What a file with these first bytes is packed with, where its reader gets it as it is.
fn packer(start: &[u8]) -> Option<&'static str> {
    let read = source::Compression::of(start).map(source::Compression::name);
    read.or_else(|| source::foreign(start))
}

/// Whether the file that the archive stands at is a trace, or cannot be told from one.
fn is_trace(archive: &mut Archive, name: &str) -> io::Result<bool> {
    let mut bytes = Vec::new();
    archive.take(START_BYTES).read_to_end(&mut bytes)?;
    let input = source::decompress(Box::new(Cursor::new(bytes)));
    let Sample { start, failed, .. } = source::sample(input, START_BYTES);
    let unreadable = start.is_empty() && failed.is_some();
    Ok(unreadable || detect(name, &start, false).is_ok() || damage(name, &start).is_some())
}

impl Read for Parts {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Parts::Files { current, .. } => current.read(buffer),
            Parts::Archive { archive, .. } => archive.read(buffer),
        }
    }
}

/// Whether a file is one of blktrace's, by its name.
pub fn is_part(name: &str) -> bool {
    cpu_of(name).is_some()
}

/// `sdb.blktrace.12` is CPU 12 of sdb.
fn cpu_of(name: &str) -> Option<(&str, u32)> {
    let (stem, cpu) = name.rsplit_once(NAME_PART)?;
    let cpu = cpu.split('.').next()?;
    Some((stem, cpu.parse().ok()?))
}

pub struct Blktrace {
    path: PathBuf,
    parts: Parts,
    action: Action,
    /// The name of the current file in the folder or archive; empty for a file of its own.
    part: String,
    position: u64,
    order: Order,
}

impl Blktrace {
    pub fn new(path: PathBuf, parts: Parts, action: Action) -> Blktrace {
        Blktrace {
            path,
            parts,
            action,
            part: String::new(),
            position: 0,
            order: Order::Little,
        }
    }

    fn error(&self, byte: u64, reason: String, skippable: bool) -> TraceError {
        let reason = match self.part.as_str() {
            "" => reason,
            part => format!("in {part}: {reason}"),
        };
        TraceError::new(&self.path, Place::Byte(byte), reason, skippable)
    }

    /// A file that was cut ends there, and the next one goes on.
    fn unreadable(&mut self, byte: u64, error: &io::Error) -> TraceError {
        let cut = source::is_truncated(error);
        if cut {
            self.parts.end_part();
        }
        self.error(byte, error.to_string(), cut)
    }

    /// The next event, of this file or the next one.
    fn event(&mut self) -> Result<Option<[u8; EVENT_BYTES]>, TraceError> {
        let mut event = [0; EVENT_BYTES];
        loop {
            let filled = source::fill(&mut self.parts, &mut event)
                .map_err(|error| self.unreadable(self.position, &error))?;
            if let Some(name) = packer(&event[..filled])
                && self.position == 0
            {
                let reason = format!("the file is packed with {name}: {}", self.parts.to_unpack());
                return Err(self.error(0, reason, false));
            }
            if filled == EVENT_BYTES {
                return Ok(Some(event));
            }
            if filled > 0 {
                let reason = format!("the file ends {filled} bytes into an event");
                // A tracer that was killed leaves such an end; what comes before it, and other CPUs' files, are whole.
                return Err(self.error(self.position, reason, true));
            }
            match self.parts.next_part() {
                Ok(None) => return Ok(None),
                Ok(Some(name)) => (self.part, self.position) = (name, 0),
                // An archive that was cut ends here; a file that cannot be opened ends the reading.
                Err(error) => {
                    let cut = source::is_truncated(&error);
                    return Err(self.error(self.position, error.to_string(), cut));
                }
            }
        }
    }

    fn step(&mut self) -> Result<Option<Option<Request>>, TraceError> {
        let Some(event) = self.event()? else {
            return Ok(None);
        };
        let start = self.position;
        let word = event.first_chunk().copied().expect("48 bytes");
        let Some(order) = order_of(word) else {
            return Err(self.error(start, "no event begins here".into(), false));
        };
        self.order = order;
        // Process names, messages and the like follow their event.
        let extra = u64::from(self.half(&event, 46));
        source::skip(&mut self.parts, extra).map_err(|error| self.unreadable(start, &error))?;
        self.position += EVENT_BYTES as u64 + extra;
        self.request(&event)
            .map(Some)
            .map_err(|reason| self.error(start, reason, true))
    }

    fn request(&self, event: &[u8; EVENT_BYTES]) -> Result<Option<Request>, String> {
        let action = self.word(event, 28);
        if action & (NOTIFY | COMMAND | DRIVER_DATA) != 0 || action & 0xff != self.code() {
            return Ok(None);
        }
        let length = u64::from(self.word(event, 24));
        let Some(op) = op(action, length) else {
            return Ok(None);
        };
        let offset = match op {
            Op::Flush => 0,
            _ => sectors(self.long(event, 16))?,
        };
        let (time, device) = (self.long(event, 8), self.word(event, 36));
        request(time, device, op, offset, length).map(Some)
    }

    /// The kernel's number of the action that stands for a request.
    fn code(&self) -> u32 {
        match self.action {
            Action::Queued => 1,
            Action::Issued => 7,
            Action::Completed => 8,
            Action::Inserted => 12,
        }
    }

    fn half(&self, event: &[u8], at: usize) -> u16 {
        let bytes = event[at..at + 2].try_into().expect("two bytes");
        match self.order {
            Order::Little => u16::from_le_bytes(bytes),
            Order::Big => u16::from_be_bytes(bytes),
        }
    }

    fn word(&self, event: &[u8], at: usize) -> u32 {
        let bytes = event[at..at + 4].try_into().expect("four bytes");
        match self.order {
            Order::Little => u32::from_le_bytes(bytes),
            Order::Big => u32::from_be_bytes(bytes),
        }
    }

    fn long(&self, event: &[u8], at: usize) -> u64 {
        let bytes = event[at..at + 8].try_into().expect("eight bytes");
        match self.order {
            Order::Little => u64::from_le_bytes(bytes),
            Order::Big => u64::from_be_bytes(bytes),
        }
    }
}

fn op(action: u32, length: u64) -> Option<Op> {
    if length == 0 {
        return (action & FLUSH != 0).then_some(Op::Flush);
    }
    let ops = [(DISCARD, Op::Discard), (WRITE, Op::Write), (READ, Op::Read)];
    let found = ops.into_iter().find(|(bit, _)| action & bit != 0);
    found.map(|(_, op)| op)
}

impl Iterator for Blktrace {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        loop {
            match self.step() {
                Ok(None) => return None,
                Ok(Some(None)) => {}
                Ok(Some(Some(request))) => return Some(Ok(request)),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

// ----------------------------------------------------------------------------------------------------------- writing

/// The bytes of a queued request, `number` counting from 1; an error where an event has no room for it.
pub fn queued(number: u32, request: &Request) -> Result<Vec<u8>, String> {
    let category = match request.op {
        Op::Read => READ,
        Op::Write => WRITE,
        Op::Discard => WRITE | DISCARD,
        Op::Flush => WRITE | FLUSH,
    };
    let (offset, length, device) = (request.offset, request.length, request.device);
    if !offset.is_multiple_of(SECTOR) {
        return Err(format!(
            "{offset} is no multiple of blktrace's sectors of 512 bytes"
        ));
    }
    let bytes = u32::try_from(length);
    let bytes = bytes.map_err(|_| format!("{length} bytes are more than blktrace counts"))?;
    let (what, action) = (
        (request.time, offset / SECTOR, bytes),
        category | QUEUE | QUEUED,
    );
    Ok(event(number, what, action, device, b""))
}

/// A message, as blktrace keeps what is written to its `msg` file: it carries a label here.
pub fn message(number: u32, text: &str) -> Vec<u8> {
    let text = &text.as_bytes()[..text.len().min(MESSAGE_BYTES_MAX)];
    event(number, (0, 0, 0), NOTIFY | MESSAGE, 0, text)
}

/// What the first event says, if it is a message that says the trace is synthetic.
pub fn label_of(start: &[u8]) -> Option<String> {
    if order_of(*start.first_chunk()?)? != Order::Little {
        return None;
    }
    let action = u32::from_le_bytes(*start.get(28..)?.first_chunk()?);
    let bytes = u16::from_le_bytes(*start.get(46..)?.first_chunk()?);
    let text = start.get(EVENT_BYTES..EVENT_BYTES + usize::from(bytes))?;
    let text = String::from_utf8_lossy(text).replace(char::is_control, " ");
    (action == NOTIFY | MESSAGE && text.starts_with("synthetic")).then_some(text)
}

/// Time, first sector, bytes.
type What = (u64, u64, u32);

fn event(number: u32, what: What, action: u32, device: u32, text: &[u8]) -> Vec<u8> {
    let (time, sector, bytes) = what;
    let length = u16::try_from(text.len()).expect("a message is cut before");
    let mut out = Vec::with_capacity(EVENT_BYTES + text.len());
    out.extend((MAGIC | VERSION).to_le_bytes());
    out.extend(number.to_le_bytes());
    out.extend(time.to_le_bytes());
    out.extend(sector.to_le_bytes());
    // Behind the action: process, device, CPU; then the error, of which there is none.
    for word in [bytes, action, 0, device, 0] {
        out.extend(word.to_le_bytes());
    }
    out.extend([0; 2]);
    out.extend(length.to_le_bytes());
    out.extend(text);
    out
}

#[cfg(test)]
mod tests {
    use super::super::tar::tests::archive;
    use super::*;
    use std::io::Write;

    fn event(time: u64, sector: u64, bytes: u32, action: u32, extra: &[u8]) -> Vec<u8> {
        let mut event = (MAGIC | 7).to_le_bytes().to_vec();
        event.extend(1u32.to_le_bytes());
        event.extend(time.to_le_bytes());
        event.extend(sector.to_le_bytes());
        for word in [bytes, action, 77, (8 << 20) | 16] {
            event.extend(word.to_le_bytes());
        }
        event.extend([0; 6]);
        event.extend((extra.len() as u16).to_le_bytes());
        event.extend(extra);
        event
    }

    fn read(parts: Parts) -> Vec<Item> {
        super::super::drain(Blktrace::new("t".into(), parts, Action::Queued))
    }

    #[test]
    fn packed_file_is_named_with_its_packer() {
        let sound = event(5, 8, 4096, 1 | READ, b"");
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&sound).unwrap();
        let gzip = gzip.finish().unwrap();
        let read_ones: [(&[u8], &str); 3] = [
            (&gzip, "gzip"),
            (b"\xfd7zXZ\0\0\x04", "xz"),
            (b"\x28\xb5\x2f\xfd\x04\0", "zstd"),
        ];
        for (start, packer) in read_ones.iter().chain(source::tests::PACKED) {
            for length in [start.len(), 100] {
                let mut packed = start.to_vec();
                packed.resize(length.max(packed.len()), 7);
                let bytes = archive(&[("x.blktrace.0", &sound), ("x.blktrace.1.z", &packed)]);
                let archive = Archive::new(Box::new(Cursor::new(bytes)));
                let found = read(Parts::archive(archive, PassedOver::default()));
                assert!(found.len() == 2 && found[0].is_ok(), "{packer}: {found:?}");
                let error = found[1].as_ref().unwrap_err();
                let said = error.to_string();
                let named = said.contains("x.blktrace.1.z");
                let packed = format!("packed with {packer}: unpack");
                assert!(named && said.contains(&packed), "{said}");
                assert!(!error.skippable);
            }
        }
    }

    #[test]
    fn queue_events_of_all_members_are_read() {
        let first = [
            event(5, 8, 4096, 1 | READ, b""),
            event(6, 8, 4096, 7 | READ, b""),
            event(0, 0, 0, NOTIFY, b"fio\0\0\0\0\0"),
            event(7, 0, 0, 1 | WRITE | FLUSH, b""),
        ];
        let second = event(2, 16, 8192, 1 | WRITE | DISCARD, b"");
        let bytes = archive(&[
            ("x.blktrace.0", &first.concat()),
            ("readme", b"no events"),
            ("x.blktrace.1", &second),
        ]);
        let archive = Archive::new(Box::new(Cursor::new(bytes)));
        let passed_over = PassedOver::default();
        let found = read(Parts::archive(archive, PassedOver::clone(&passed_over)));
        assert_eq!(*passed_over.lock().unwrap(), ["readme"]);
        let found: Vec<Request> = found.into_iter().map(Result::unwrap).collect();
        let ops: Vec<Op> = found.iter().map(|request| request.op).collect();
        assert_eq!(ops, [Op::Read, Op::Flush, Op::Discard]);
        assert_eq!((found[0].offset, found[0].device), (4096, (8 << 20) | 16));
    }

    #[test]
    fn what_is_no_event_ends_the_reading() {
        let bytes = [event(5, 8, 4096, 1 | READ, b""), vec![9; 48]].concat();
        let found = read(Parts::single(Box::new(Cursor::new(bytes))));
        let error = found[1].clone().unwrap_err();
        assert_eq!(error.to_string(), "t, byte 48: no event begins here");
    }

    #[test]
    fn names_tell_the_cpu() {
        assert_eq!(cpu_of("sdb.blktrace.12"), Some(("sdb", 12)));
        assert_eq!(cpu_of("sdb.blktrace.12.xz"), Some(("sdb", 12)));
        assert_eq!(cpu_of("sdb.blktrace.x"), None);
    }
}
