//! The formats: their names, what they record, and how a file's format is told from its content and name.

use super::binary::VscsiVersion;
use super::blkparse::{Action, Blkparse};
use super::text::{Diskmon, Disksim, Fiu, Ftlsim, Lis, Msr, MsrCut, Parser, Spc, Ssdsim};
use super::{Features, Request, blktrace, rtrace, tar};

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

    /// Whether its records may come in another order than that of time, so that reading must sort.
    pub fn is_grouped(self) -> bool {
        matches!(self, Format::Blktrace | Format::Blkparse)
    }
}

/// Lines of text that are looked at.
const LINES: usize = 200;

/// Tells the format of a file from its first bytes and its name, compression taken off.
pub fn detect(name: &str, start: &[u8]) -> Option<Format> {
    by_magic(start)
        .or_else(|| by_name(name))
        .or_else(|| by_lines(start))
        .or_else(|| VscsiVersion::of(start).map(|_| Format::Vscsi))
}

fn by_magic(start: &[u8]) -> Option<Format> {
    if start.starts_with(rtrace::MAGIC) {
        Some(Format::Rtrace)
    } else if blktrace::is_blktrace(start) || tar::is_archive(start) {
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

/// The format whose parser understands the most of the first lines, and at least half of them. Of equals the first.
fn by_lines(start: &[u8]) -> Option<Format> {
    let whole = start.iter().rposition(|byte| *byte == b'\n');
    let text = String::from_utf8_lossy(&start[..whole.map_or(start.len(), |at| at + 1)]);
    let lines = text
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let lines: Vec<&str> = lines.take(LINES).collect();
    let mut best = (lines.len().div_ceil(2).max(1), None);
    for (format, mut parser) in candidates(&text, &lines) {
        let understood = lines
            .iter()
            .filter(|line| parser.parse(line).is_ok())
            .count();
        if understood > best.0 || understood == best.0 && best.1.is_none() {
            best = (understood, Some(format));
        }
    }
    best.1
}

fn candidates(text: &str, lines: &[&str]) -> Vec<(Format, Box<dyn Parser>)> {
    let action = Action::guess(text);
    let mut all: Vec<(Format, Box<dyn Parser>)> = vec![
        (Format::Blkparse, Box::new(Blkparse { action })),
        (Format::Spc, Box::new(Spc)),
        (Format::Msr, Box::new(Msr::default())),
        (Format::Ftlsim, Box::new(Ftlsim)),
        (Format::Fiu, Box::new(Fiu)),
        (Format::Diskmon, Box::new(Diskmon)),
    ];
    if in_bytes(lines) {
        all.push((Format::MsrCut, Box::new(MsrCut)));
    }
    if lines.iter().any(|line| has_fraction(line)) {
        all.push((Format::Disksim, Box::new(Disksim)));
    } else {
        all.push((Format::Ssdsim, Box::new(Ssdsim)));
    }
    all.push((Format::Lis, Box::new(Lis { block_bytes: 4096 })));
    all
}

/// DiskSim counts milliseconds with decimals, SSDsim whole nanoseconds.
fn has_fraction(line: &str) -> bool {
    let time = line.split_ascii_whitespace().next();
    time.is_some_and(|time| time.contains('.'))
}

/// MSR cuts look like DiskSim, but count bytes: every size and offset is a multiple of 512, and times have decimals.
fn in_bytes(lines: &[&str]) -> bool {
    let found = lines.iter().map(|line| MsrCut.parse(line));
    let mut requests = found.filter_map(|parsed| parsed.ok().flatten()).peekable();
    let whole = |request: Request| (request.offset | request.length).is_multiple_of(512);
    requests.peek().is_some() && requests.all(whole) && lines.iter().any(|line| has_fraction(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detected(text: &str) -> Option<Format> {
        detect("t.txt", text.as_bytes())
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
    fn names_lead_to_formats_and_back() {
        for format in Format::ALL {
            assert_eq!(Format::of_name(format.name()), Some(format));
        }
        assert_eq!(detect("x.U32LE.xz", &[1, 2, 3, 4]), Some(Format::U32le));
    }
}
