//! The formats: their names, what they record, and how a file's format is told from its content and name.

use super::binary::VscsiVersion;
use super::blkparse::{Action, Blkparse};
use super::text::{Diskmon, Disksim, Fio, Fiu, Ftlsim, Lis, Msr, MsrCut, Parser, Spc, Ssdsim};
use super::{Features, Request, blktrace, rtrace, source};
use std::fmt;
use std::io;

/// A format of traces that can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    Rtrace,
    Spc,
    Msr,
    MsrCut,
    Disksim,
    Ssdsim,
    Blktrace,
    Blkparse,
    Fio,
    Vscsi,
    Srt,
    Fiu,
    Diskmon,
    Ftlsim,
    Lis,
    U32le,
}

impl Format {
    pub const ALL: [Format; 16] = [
        Format::Rtrace,
        Format::Spc,
        Format::Msr,
        Format::MsrCut,
        Format::Disksim,
        Format::Ssdsim,
        Format::Blktrace,
        Format::Blkparse,
        Format::Fio,
        Format::Vscsi,
        Format::Srt,
        Format::Fiu,
        Format::Diskmon,
        Format::Ftlsim,
        Format::Lis,
        Format::U32le,
    ];

    /// The name for `--format`.
    pub fn name(self) -> &'static str {
        self.words().0
    }

    /// What it is, in a few words.
    pub fn about(self) -> &'static str {
        self.words().1
    }

    fn words(self) -> (&'static str, &'static str) {
        match self {
            Format::Rtrace => ("rtrace", "the compact format of our own"),
            Format::Spc => ("spc", "SPC and UMass: ASU,LBA,size,opcode,seconds"),
            Format::Msr => ("msr", "MSR Cambridge CSV: Windows file times, bytes"),
            Format::MsrCut => (
                "msr-cut",
                "cut from MSR: ms device offset size 1=read, bytes",
            ),
            Format::Disksim => (
                "disksim",
                "DiskSim ASCII: ms device start length flags, bit 0 = read",
            ),
            Format::Ssdsim => ("ssdsim", "SSDsim and MQSim: ns device start length 1=read"),
            Format::Blktrace => (
                "blktrace",
                "blktrace's files by CPU: a folder, a tar archive, one file",
            ),
            Format::Blkparse => ("blkparse", "the text that blkparse prints"),
            Format::Fio => ("fio", "fio's iolog, versions 2 and 3"),
            Format::Vscsi => ("vscsi", "VMware vSCSI, versions 1 and 2 (CloudPhysics)"),
            Format::Srt => ("srt", "HP Labs SRT 1.3, binary"),
            Format::Fiu => (
                "fiu",
                "FIU: ns pid process start length op major minor hash",
            ),
            Format::Diskmon => (
                "diskmon",
                "Windows Diskmon: number seconds service disk op start length",
            ),
            Format::Ftlsim => ("ftlsim", "wiscsee's ftlsim: pid D|C op offset size seconds"),
            Format::Lis => (
                "lis",
                "address list of ARC: first count ignored number; no times",
            ),
            Format::U32le => ("u32le", "32-bit block numbers, little endian; no times"),
        }
    }

    pub fn of_name(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.name() == name)
    }

    /// What it records; for [`Format::Rtrace`] each file says so itself.
    pub fn features(self) -> Features {
        match self {
            Format::Lis | Format::U32le => Features::ADDRESSES,
            _ => Features::ALL,
        }
    }

    /// Whether it is one that [`detect`] knows by its lines.
    pub fn is_text(self) -> bool {
        !matches!(
            self,
            Format::Rtrace | Format::Blktrace | Format::Vscsi | Format::Srt | Format::U32le
        )
    }

    /// Refuses a line of another number of fields than the format has: five whole numbers are five whole numbers to the
    /// parser of four.
    fn has_fields(self, line: &str) -> Result<(), String> {
        let count = match self {
            Format::Spc | Format::Msr => line.split(',').count(),
            _ => line.split_ascii_whitespace().count(),
        };
        let (least, most) = match self {
            // SPC lets further fields follow.
            Format::Spc => (5, usize::MAX),
            Format::Msr | Format::Diskmon => (7, 7),
            Format::MsrCut | Format::Disksim | Format::Ssdsim => (5, 5),
            Format::Lis if !all_whole_numbers(line) => {
                return Err("it is not four whole numbers".into());
            }
            Format::Lis => (4, 4),
            _ => return Ok(()),
        };
        match (least..=most).contains(&count) {
            true => Ok(()),
            false => Err(format!("it has {count} fields")),
        }
    }

    /// Whether its records may come in another order than that of time, so that reading must sort.
    pub fn is_grouped(self) -> bool {
        matches!(self, Format::Blktrace | Format::Blkparse)
    }
}

/// Lines of text that are looked at.
const LINES: usize = 200;

/// The format of a file, from its first bytes and its name, compression taken off.
///
/// A text has a format if *all* its first lines are of it. Where records may be bad (`skip_bad`), or the name ends as
/// that format's files do, half of them are enough.
pub fn detect(name: &str, start: &[u8], skip_bad: bool) -> Result<Format, Unknown> {
    if let Some(format) = by_magic(start) {
        return Ok(format);
    }
    let foreign = source::foreign(start);
    let named = by_name(name).filter(|_| foreign.is_none());
    match nearest(start, named, false) {
        Some(near) if near.is_whole() => Ok(near.format),
        Some(near) if near.is_half() && (skip_bad || named.is_some()) => Ok(near.format),
        _ if named.is_some_and(|format| !format.is_text()) => Ok(named.expect("it is one")),
        _ if foreign.is_none() && VscsiVersion::of(start).is_some() => Ok(Format::Vscsi),
        near => Err(Unknown {
            is_empty: start.is_empty(),
            is_damage: false,
            foreign,
            nearest: near
                .filter(|near| near.understood > 0)
                .or_else(|| nearest_request(start)),
        }),
    }
}

/// Why a file without a format is a damaged trace. Its first line is a request, half of its lines are of a format, its
/// ending names one, or its packer is not read.
pub fn damage(name: &str, start: &[u8]) -> Option<Unknown> {
    let foreign = source::foreign(start);
    let near = nearest_request(start);
    let is_trace = |near: &Nearest| near.begun == Some(true) || near.is_half();
    let is_named = by_name(name).is_some() && !start.is_empty();
    let is_damaged = foreign.is_some() || is_named || near.as_ref().is_some_and(is_trace);
    is_damaged.then_some(Unknown {
        is_empty: false,
        is_damage: true,
        foreign,
        nearest: near,
    })
}

/// The nearest format of which the file has a request.
fn nearest_request(start: &[u8]) -> Option<Nearest> {
    nearest(start, None, true).filter(|near| near.requests > 0)
}

/// Why a file has no format.
#[derive(Debug)]
pub struct Unknown {
    is_empty: bool,
    /// It was a trace, or cannot be told from one.
    pub is_damage: bool,
    /// The compression that is not read.
    foreign: Option<&'static str>,
    nearest: Option<Nearest>,
}

impl Unknown {
    /// Whether it is a damaged trace whose nearest format is this one.
    pub fn is_damaged(&self, format: Format) -> bool {
        let near = self.nearest.as_ref();
        let near = near.filter(|_| self.is_damage && self.foreign.is_none());
        near.is_some_and(|near| near.format == format)
    }

    /// The same of a file whose first bytes end with an error.
    pub fn and_failed(&self, start: &[u8], error: &io::Error) -> String {
        match start.is_empty() {
            true => format!("nothing of it can be read: {error}"),
            false => format!("{error}; of what comes before that, {self}"),
        }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.nearest {
            _ if self.is_empty => write!(f, "the file is empty"),
            _ if self.foreign.is_some() => write!(
                f,
                "the file is packed with {}, which is not read: unpack it, or pack it with gzip, xz or zstd",
                self.foreign.unwrap_or_default()
            ),
            None => write!(
                f,
                "the file is of no known trace format; `restripe trace formats` lists them, --format names one"
            ),
            Some(near) => write!(f, "the file is of no known trace format; {near}"),
        }
    }
}

impl fmt::Display for Nearest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.format.name();
        match &self.odd {
            (0, _) if self.format == Format::Fio => write!(
                f,
                "the nearest is fio, but an iolog's first line is missing: \
                 add `fio version 2 iolog`, or `fio version 3 iolog` if its lines begin with times"
            ),
            (0, _) => write!(
                f,
                "all of its first {} lines are of {name}, but its name ends as files of another format do; \
                 --format {name} reads the file as that",
                self.lines
            ),
            (line, reason) => write!(
                f,
                "the nearest is {name}, which {} of the first {} lines are: line {line} is not ({reason}); \
                 --format {name} reads the file as that",
                self.understood, self.lines
            ),
        }
    }
}

/// The format whose parser understands the most of a text's first lines.
#[derive(Debug)]
struct Nearest {
    format: Format,
    understood: usize,
    /// Of the lines that are understood, those that hold a request.
    requests: usize,
    lines: usize,
    /// Whether the first line that holds anything is a request: it is none where it is not understood.
    begun: Option<bool>,
    /// The first line that is not of the format, from 1, and why.
    odd: (usize, String),
}

impl Nearest {
    fn understand(&mut self, is_request: bool) {
        self.understood += 1;
        if is_request {
            self.requests += 1;
            self.begun.get_or_insert(true);
        }
    }

    fn refuse(&mut self, line: usize, reason: String) {
        self.begun.get_or_insert(false);
        if self.odd.0 == 0 {
            self.odd = (line, reason);
        }
    }

    fn is_whole(&self) -> bool {
        self.understood == self.lines
    }

    fn is_half(&self) -> bool {
        self.understood >= self.lines.div_ceil(2)
    }
}

fn by_magic(start: &[u8]) -> Option<Format> {
    if start.starts_with(rtrace::MAGIC) {
        Some(Format::Rtrace)
    } else if blktrace::is_blktrace(start) {
        Some(Format::Blktrace)
    } else if start.starts_with(b"fio version ") {
        Some(Format::Fio)
    } else if start.starts_with(b"$$TR_IOREC") {
        Some(Format::Srt)
    } else {
        None
    }
}

/// Only endings that nothing but the format has.
fn by_name(name: &str) -> Option<Format> {
    let mut name = name.to_ascii_lowercase();
    for packed in [".gz", ".xz", ".zst"] {
        name.truncate(name.strip_suffix(packed).map_or(name.len(), str::len));
    }
    let ends = |ending: &str| name.ends_with(ending);
    if ends(".lis") {
        Some(Format::Lis)
    } else if ends(".u32le") {
        Some(Format::U32le)
    } else if ends(".spc") {
        Some(Format::Spc)
    } else if ends(".srt") {
        Some(Format::Srt)
    } else if ends(".vscsi") || ends(".vscsi1") || ends(".vscsi2") {
        Some(Format::Vscsi)
    } else {
        None
    }
}

/// Of equals the first. Only the named format is tried where there is one. `headless` also tries what a sound file tells by
/// its first line: fio's iologs.
fn nearest(start: &[u8], named: Option<Format>, headless: bool) -> Option<Nearest> {
    let whole = start.iter().rposition(|byte| *byte == b'\n');
    let text = String::from_utf8_lossy(&start[..whole.map_or(start.len(), |at| at + 1)]);
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let lines: Vec<(usize, &str)> = lines.take(LINES).collect();
    if lines.is_empty() {
        return None;
    }
    let mut tried = candidates(&text, &lines, named);
    if headless {
        tried.push((Format::Fio, Box::new(Fio::default())));
    }
    let tried = tried.into_iter();
    let measured = tried.map(|(format, parser)| measure(format, parser, &lines));
    measured.reduce(|best, next| match next.understood > best.understood {
        true => next,
        false => best,
    })
}

fn measure(format: Format, mut parser: Box<dyn Parser>, lines: &[(usize, &str)]) -> Nearest {
    let mut near = Nearest {
        format,
        understood: 0,
        requests: 0,
        lines: lines.len(),
        begun: None,
        odd: (0, String::new()),
    };
    for (index, line) in lines {
        let parsed = parser.parse(line);
        match parsed.and_then(|found| format.has_fields(line).map(|()| found)) {
            Ok(found) => near.understand(found.is_some()),
            Err(reason) => near.refuse(index + 1, reason),
        }
    }
    near
}

fn candidates(
    text: &str,
    lines: &[(usize, &str)],
    named: Option<Format>,
) -> Vec<(Format, Box<dyn Parser>)> {
    let action = Action::guess(text);
    let timed = lines.iter().any(|(_, line)| has_fraction(line));
    let mut all: Vec<(Format, Box<dyn Parser>)> = vec![
        (Format::Blkparse, Box::new(Blkparse::new(Some(action)))),
        (Format::Spc, Box::new(Spc)),
        (Format::Msr, Box::new(Msr::default())),
        (Format::Ftlsim, Box::new(Ftlsim)),
        (Format::Fiu, Box::new(Fiu)),
        (Format::Diskmon, Box::new(Diskmon)),
    ];
    if timed && in_bytes(lines) {
        all.push((Format::MsrCut, Box::new(MsrCut)));
    }
    match timed {
        true => all.push((Format::Disksim, Box::new(Disksim))),
        false => all.push((Format::Ssdsim, Box::new(Ssdsim))),
    }
    all.push((Format::Lis, Box::new(Lis { block_bytes: 4096 })));
    all.retain(|(format, _)| named.is_none_or(|named| named == *format));
    all
}

fn all_whole_numbers(line: &str) -> bool {
    line.split_ascii_whitespace()
        .all(|field| field.parse::<u64>().is_ok())
}

/// DiskSim counts milliseconds with decimals, SSDsim whole nanoseconds.
fn has_fraction(line: &str) -> bool {
    let time = line.split_ascii_whitespace().next();
    time.is_some_and(|time| time.contains('.'))
}

/// MSR cuts look like DiskSim, but count bytes: every size and offset is a multiple of 512.
fn in_bytes(lines: &[(usize, &str)]) -> bool {
    let found = lines.iter().map(|(_, line)| MsrCut.parse(line));
    let mut requests = found.filter_map(|parsed| parsed.ok().flatten()).peekable();
    let whole = |request: Request| (request.offset | request.length).is_multiple_of(512);
    requests.peek().is_some() && requests.all(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detected(text: &str) -> Option<Format> {
        detect("t.txt", text.as_bytes(), false).ok()
    }

    #[test]
    fn texts_are_told_apart_by_their_lines() {
        let cases = [
            ("0,303567,3584,w,0.000000\n", Format::Spc),
            (
                "128166372003061629,mds,0,Read,3154132992,4096,551\n",
                Format::Msr,
            ),
            (
                "0.000 0 200626176 4096 0\n223.412 0 3159347200 36864 0\n",
                Format::MsrCut,
            ),
            (
                "13.191135\t30\t0\t5\t1\n17.8 20 576560 6 1\n",
                Format::Disksim,
            ),
            ("938513000 4 264719034 16 0\n", Format::Ssdsim),
            (
                "259,2 0 1 0.000000000 4020 Q R 282624 + 8 [java]\n",
                Format::Blkparse,
            ),
            ("fio version 3 iolog\n", Format::Fio),
            ("899 4270 nfsd 18579576 8 W 6 0 d6c7\n", Format::Fiu),
            ("0\t0.047\t0.0001\t0\tRead\t1320146\t8\n", Format::Diskmon),
            (
                "39949 D read 299008 4096 0.000000000 0 False\n",
                Format::Ftlsim,
            ),
            ("1 1 0 0\n2 1 0 0\n", Format::Lis),
        ];
        for (text, format) in cases {
            assert_eq!(detected(text), Some(format), "{text}");
        }
    }

    #[test]
    fn what_is_no_trace_is_nothing() {
        for text in ["", "\n\n", "hello\n", "a,b,c\n"] {
            assert_eq!(detected(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_guess_is_confirmed_by_every_line_or_not_made() {
        let good = "0,303567,3584,w,0.000000\n".repeat(20);
        for odd in ["0,x,3584,w,1.0\n", "hello\n", "1 2 3 4\n"] {
            for text in [
                format!("{odd}{good}"),
                format!("{good}{odd}"),
                format!("{good}{odd}{good}"),
            ] {
                let refused = detect("t.txt", text.as_bytes(), false)
                    .expect_err(&text)
                    .to_string();
                assert!(refused.contains("the nearest is spc") && refused.contains("--format spc"));
                assert!(refused.contains(&format!("{} of the first", text.lines().count() - 1)));
                assert_eq!(
                    detect("t.txt", text.as_bytes(), true).ok(),
                    Some(Format::Spc)
                );
                assert_eq!(
                    detect("t.spc", text.as_bytes(), false).ok(),
                    Some(Format::Spc)
                );
            }
        }
    }

    #[test]
    fn iolog_without_its_first_line_is_said_to_lack_it() {
        for text in [
            "/dev/a write 0 512\n",
            "f read 0 512\nf wait 3\nf read 0 512\n",
            "7 /dev/a write 0 512\n",
        ] {
            let whole = detect("t.log", text.as_bytes(), false).expect_err(text);
            let member = damage("t.log", text.as_bytes()).expect(text);
            for unknown in [whole, member] {
                let said = unknown.to_string();
                assert!(said.contains("first line is missing"), "{said}");
                assert!(!said.contains("line 0") && !said.contains("()"), "{said}");
            }
        }
    }

    #[test]
    fn text_whose_name_ends_as_that_of_another_format_is_said_to_be_whole() {
        let text = "0,303567,3584,w,0.000000\n".repeat(3);
        for name in ["t.lis", "t.u32le.gz"] {
            let unknown = damage(name, text.as_bytes()).expect(name);
            let said = unknown.to_string();
            assert!(said.contains("first 3 lines are of spc"), "{said}");
            assert!(!said.contains("line 0") && !said.contains("()"), "{said}");
        }
    }

    #[test]
    fn numbers_of_another_count_are_no_format_of_numbers() {
        for line in [
            "1000 16",
            "1000 16 13",
            "1000 16 13 x",
            "1000 16 13 0.5",
            "1000 16 0 7 8 9",
            "100 8 W kworker 0.5 7",
            "0.5 0 8 8 1 7",
            "9 8 7 6 5 4 3 2 1 0",
            "128166372003061629,mds,0,Read,3154132992,4096",
        ] {
            let text = format!("{line}\n").repeat(50);
            assert_eq!(detected(&text), None, "{line}");
        }
    }

    #[test]
    fn names_lead_to_formats_and_back() {
        for format in Format::ALL {
            assert_eq!(Format::of_name(format.name()), Some(format));
        }
        assert_eq!(
            detect("x.U32LE.xz", &[1, 2, 3, 4], false).ok(),
            Some(Format::U32le)
        );
    }
}
