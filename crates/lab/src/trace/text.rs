//! Readers of formats that have one request a line.
//!
//! Each format is a parser of one line. Lines are independent, so a bad one can be skipped.

use super::fields::{self, MILLISECONDS, SECONDS, number, request, sectors};
use super::format::{Beginning, Fields, Format, Lines, Parsed, Parser};
use super::{Features, Op, Request};
use std::collections::BTreeMap;

/// Empty lines and comments hold nothing in any format.
fn holds_nothing(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || line.starts_with('#')
}

fn fold(line: &str, parse: impl FnOnce(&str) -> Result<Request, String>) -> Parsed {
    if holds_nothing(line) {
        return Ok(None);
    }
    parse(line).map(Some)
}

/// A format in which a line says all that its request is.
struct Plain(fn(&str) -> Result<Request, String>);

impl Parser for Plain {
    fn parse(&mut self, line: &str) -> Parsed {
        fold(line, self.0)
    }
}

/// A field that says whether a request reads, as 0 or 1.
fn bit<'a>(fields: &mut impl Iterator<Item = &'a str>, zero: Op, one: Op) -> Result<Op, String> {
    match fields::next(fields, "operation")? {
        "0" => Ok(zero),
        "1" => Ok(one),
        other => Err(format!("the operation is {other:?}, not 0 or 1")),
    }
}

/// A field that names the operation, by any of the words in use.
fn word<'a>(fields: &mut impl Iterator<Item = &'a str>) -> Result<Op, String> {
    let field = fields::next(fields, "operation")?;
    match field.to_ascii_lowercase().as_str() {
        "r" | "read" | "rs" => Ok(Op::Read),
        "w" | "write" | "ws" => Ok(Op::Write),
        "d" | "discard" | "trim" => Ok(Op::Discard),
        "f" | "flush" => Ok(Op::Flush),
        _ => Err(format!(
            "the operation is {field:?}, neither read nor write"
        )),
    }
}

/// SPC, as the UMass traces: `ASU,LBA,size,opcode,timestamp`; sectors of 512 bytes, bytes, seconds.
pub(super) static SPC: Format = Format {
    endings: &[".spc"],
    ..Format::of_lines(
        "spc",
        "SPC and UMass: ASU,LBA,size,opcode,seconds",
        Lines {
            // SPC lets further fields follow.
            fields: Fields::commas(5, usize::MAX),
            ..Lines::of("0,303567,3584,w,0.026214\n", |_| Box::new(Plain(spc)))
        },
    )
};

fn spc(line: &str) -> Result<Request, String> {
    let mut fields = line.split(',');
    let device = number(&mut fields, "ASU")?;
    let offset = sectors(number(&mut fields, "address")?)?;
    let length = number(&mut fields, "size")?;
    let op = word(&mut fields)?;
    let time = fields::time(&mut fields, SECONDS)?;
    request(time, device, op, offset, length)
}

/// MSR Cambridge: `filetime,host,disk,type,offset,size,response`; 100 ns, bytes. Volumes are numbered as they appear.
#[derive(Default)]
struct Msr {
    volumes: Names,
}

pub(super) static MSR: Format = Format::of_lines(
    "msr",
    "MSR Cambridge CSV: Windows file times, bytes",
    Lines {
        fields: Fields::commas(7, 7),
        ..Lines::of(
            "128166372003061629,mds,0,Read,3154132992,4096,551\n",
            |_| Box::new(Msr::default()),
        )
    },
);

impl Parser for Msr {
    fn parse(&mut self, line: &str) -> Parsed {
        if line.starts_with("Timestamp") {
            return Ok(None);
        }
        fold(line, |line| {
            let mut fields = line.split(',');
            let ticks: u64 = number(&mut fields, "time")?;
            let host = fields::next(&mut fields, "host")?;
            let disk: u32 = number(&mut fields, "disk")?;
            let op = word(&mut fields)?;
            let offset = number(&mut fields, "offset")?;
            let length = number(&mut fields, "size")?;
            let time = ticks
                .checked_mul(100)
                .ok_or_else(|| format!("the time {ticks} is out of range"))?;
            let device = self.volumes.number(&format!("{host}.{disk}"))?;
            request(time, device, op, offset, length)
        })
    }
}

/// Windows cut from MSR traces: `ms device offset size op`; bytes, 1 = read.
pub(super) static MSR_CUT: Format = Format::of_lines(
    "msr-cut",
    "cut from MSR: ms device offset size 1=read, bytes",
    Lines {
        fields: Fields::words(5, 5),
        suits: |text| has_fractions(text) && is_in_bytes(text),
        ..Lines::of("223.412 0 3159347200 36864 0\n", |_| {
            Box::new(Plain(msr_cut))
        })
    },
);

/// Whether times have decimals: DiskSim counts milliseconds with decimals, SSDsim whole nanoseconds.
fn has_fractions(text: &Beginning<'_>) -> bool {
    text.lines.iter().any(|(_, line)| {
        let time = line.split_ascii_whitespace().next();
        time.is_some_and(|time| time.contains('.'))
    })
}

/// MSR cuts look like DiskSim, but count bytes: every size and offset is a multiple of 512.
fn is_in_bytes(text: &Beginning<'_>) -> bool {
    let lines = text.lines.iter();
    let found = lines.map(|(_, line)| Plain(msr_cut).parse(line));
    let mut requests = found.filter_map(|parsed| parsed.ok().flatten()).peekable();
    let whole = |request: Request| (request.offset | request.length).is_multiple_of(512);
    requests.peek().is_some() && requests.all(whole)
}

fn msr_cut(line: &str) -> Result<Request, String> {
    let mut fields = line.split_ascii_whitespace();
    let time = fields::time(&mut fields, MILLISECONDS)?;
    let device = number(&mut fields, "device")?;
    let offset = number(&mut fields, "offset")?;
    let length = number(&mut fields, "size")?;
    let op = bit(&mut fields, Op::Write, Op::Read)?;
    request(time, device, op, offset, length)
}

/// DiskSim: `ms device start length flags`; sectors of 512 bytes, flags in hexadecimal, bit 0 = read.
pub(super) static DISKSIM: Format = Format::of_lines(
    "disksim",
    "DiskSim ASCII: ms device start length flags, bit 0 = read",
    Lines {
        fields: Fields::words(5, 5),
        suits: has_fractions,
        ..Lines::of("13.191135\t30\t0\t5\t1\n", |_| Box::new(Plain(disksim)))
    },
);

fn disksim(line: &str) -> Result<Request, String> {
    let mut fields = line.split_ascii_whitespace();
    let time = fields::time(&mut fields, MILLISECONDS)?;
    let device = number(&mut fields, "device")?;
    let offset = sectors(number(&mut fields, "start")?)?;
    let length = sectors(number(&mut fields, "length")?)?;
    let flags = fields::next(&mut fields, "flags")?;
    let flags = u32::from_str_radix(flags, 16)
        .map_err(|_| format!("the flags are {flags:?}, not hexadecimal"))?;
    let op = if flags & 1 == 1 { Op::Read } else { Op::Write };
    request(time, device, op, offset, length)
}

/// SSDsim and MQSim: `ns device start length op`; sectors of 512 bytes, 0 = write, 1 = read.
pub(super) static SSDSIM: Format = Format::of_lines(
    "ssdsim",
    "SSDsim and MQSim: ns device start length 1=read",
    Lines {
        fields: Fields::words(5, 5),
        suits: |text| !has_fractions(text),
        ..Lines::of("938513000 4 264719034 16 0\n", |_| Box::new(Plain(ssdsim)))
    },
);

fn ssdsim(line: &str) -> Result<Request, String> {
    let mut fields = line.split_ascii_whitespace();
    let time = number(&mut fields, "time")?;
    let device = number(&mut fields, "device")?;
    let offset = sectors(number(&mut fields, "start")?)?;
    let length = sectors(number(&mut fields, "length")?)?;
    let op = bit(&mut fields, Op::Write, Op::Read)?;
    request(time, device, op, offset, length)
}

/// FIU: `ns pid process start length op major minor hash`; sectors of 512 bytes.
///
/// The name of a process may hold blanks, so the fields behind it are found from the end.
pub(super) static FIU: Format = Format::of_lines(
    "fiu",
    "FIU: ns pid process start length op major minor hash",
    Lines::of("899 4270 nfsd 18579576 8 W 6 0 d6c7\n", |_| {
        Box::new(Plain(fiu))
    }),
);

fn fiu(line: &str) -> Result<Request, String> {
    let mut fields = line.split_ascii_whitespace();
    let time = number(&mut fields, "time")?;
    let _pid: u64 = number(&mut fields, "pid")?;
    let mut back = fields.rev();
    let _hash = fields::next(&mut back, "hash")?;
    let minor = number(&mut back, "minor number")?;
    let major = number(&mut back, "major number")?;
    let op = word(&mut back)?;
    let length = sectors(number(&mut back, "length")?)?;
    let offset = sectors(number(&mut back, "start")?)?;
    fields::next(&mut back, "process")?;
    request(time, device_number(major, minor)?, op, offset, length)
}

/// Diskmon: `number seconds service disk op start length`; sectors of 512 bytes.
pub(super) static DISKMON: Format = Format::of_lines(
    "diskmon",
    "Windows Diskmon: number seconds service disk op start length",
    Lines {
        fields: Fields::words(7, 7),
        ..Lines::of("0\t0.047\t0.0001\t0\tRead\t1320146\t8\n", |_| {
            Box::new(Plain(diskmon))
        })
    },
);

fn diskmon(line: &str) -> Result<Request, String> {
    let mut fields = line.split_ascii_whitespace();
    let _number: u64 = number(&mut fields, "number")?;
    let time = fields::time(&mut fields, SECONDS)?;
    fields::next(&mut fields, "service time")?;
    let device = number(&mut fields, "disk")?;
    let op = word(&mut fields)?;
    let offset = sectors(number(&mut fields, "start")?)?;
    let length = sectors(number(&mut fields, "length")?)?;
    request(time, device, op, offset, length)
}

/// ftlsim, as wiscsee writes it: `pid event op offset size seconds ...`; bytes, event D = issued, C = completed.
struct Ftlsim;

pub(super) static FTLSIM: Format = Format::of_lines(
    "ftlsim",
    "wiscsee's ftlsim: pid D|C op offset size seconds",
    Lines::of("39949 D read 299008 4096 0.5 0 False\n", |_| {
        Box::new(Ftlsim)
    }),
);

impl Parser for Ftlsim {
    fn parse(&mut self, line: &str) -> Parsed {
        if holds_nothing(line) {
            return Ok(None);
        }
        let mut fields = line.split_ascii_whitespace();
        let _pid: u64 = number(&mut fields, "pid")?;
        match fields::next(&mut fields, "event")? {
            "D" => {}
            "C" => return Ok(None),
            other => return Err(format!("the event is {other:?}, not D or C")),
        }
        let op = word(&mut fields)?;
        let offset = number(&mut fields, "offset")?;
        let length = number(&mut fields, "size")?;
        let time = fields::time(&mut fields, SECONDS)?;
        request(time, 0, op, offset, length).map(Some)
    }
}

/// Address lists as ARC's: `first count ignored number`, in blocks. No times, no operations.
struct Lis {
    pub block_bytes: u64,
}

pub(super) static LIS: Format = Format {
    features: Features::ADDRESSES,
    endings: &[".lis"],
    ..Format::of_lines(
        "lis",
        "address list of ARC: first count ignored number; no times",
        Lines {
            fields: Fields::whole_numbers(4),
            ..Lines::of("10 2 0 7\n", |options| {
                let block_bytes = options.block_bytes;
                Box::new(Lis { block_bytes })
            })
        },
    )
};

impl Parser for Lis {
    fn parse(&mut self, line: &str) -> Parsed {
        fold(line, |line| {
            let mut fields = line.split_ascii_whitespace();
            let first: u64 = number(&mut fields, "first block")?;
            let count: u64 = number(&mut fields, "number of blocks")?;
            let bytes = |blocks: u64| {
                blocks
                    .checked_mul(self.block_bytes)
                    .ok_or_else(|| format!("block {blocks} is out of range"))
            };
            request(0, 0, Op::Read, bytes(first)?, bytes(count)?)
        })
    }
}

/// fio's iolog, version 2 (`file action [offset length]`; `wait` says how many milliseconds after the start the next one
/// is) and 3 (each line begins with microseconds). Bytes. Files are numbered as they appear.
#[derive(Default)]
struct Fio {
    timed: bool,
    /// When the next request is, in version 2: milliseconds since the start.
    waited: u64,
    files: Names,
}

pub(super) static FIO: Format = Format {
    begins: |start| start.starts_with(b"fio version "),
    ..Format::of_lines(
        "fio",
        "fio's iolog, versions 2 and 3",
        Lines {
            suits: |text| text.headless,
            ..Lines::of("fio version 3 iolog\n291 f write 3104768 4096\n", |_| {
                Box::new(Fio::default())
            })
        },
    )
};

impl Parser for Fio {
    fn begin(&mut self, _start: &[u8]) {
        (self.timed, self.waited) = (false, 0);
    }

    fn parse(&mut self, line: &str) -> Parsed {
        if let Some(version) = line.strip_prefix("fio version ") {
            self.waited = 0;
            self.timed = match version.trim() {
                "2 iolog" => false,
                "3 iolog" => true,
                _ => return Err(format!("{line:?} is a version of iolog that is not known")),
            };
            return Ok(None);
        }
        if holds_nothing(line) {
            return Ok(None);
        }
        let (time, rest) = self.time(line.trim())?;
        let entry = Entry::parse(rest)?;
        let op = match entry.action {
            "add" | "open" | "close" => return Ok(None),
            "wait" => {
                self.waited = self.waited.max(entry.number(0, "wait")?);
                return Ok(None);
            }
            "read" => Op::Read,
            "write" => Op::Write,
            "trim" => Op::Discard,
            _ => Op::Flush,
        };
        let (mut offset, mut length) = (0, 0);
        if op != Op::Flush {
            (offset, length) = (entry.number(0, "offset")?, entry.number(1, "length")?);
        }
        request(time, self.files.number(entry.file)?, op, offset, length).map(Some)
    }
}

impl Fio {
    /// When a line's request is, in nanoseconds, and the line without that.
    fn time<'a>(&self, line: &'a str) -> Result<(u64, &'a str), String> {
        let (time, unit, rest) = match self.timed {
            false => (self.waited, 1_000_000, line),
            true => {
                let (time, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
                let time = number(&mut [time].into_iter(), "time")?;
                (time, 1000, rest.trim_start())
            }
        };
        let time: Option<u64> = time.checked_mul(unit);
        let time = time.ok_or_else(|| format!("the time of {line:?} is out of range"))?;
        Ok((time, rest))
    }
}

/// `file action [numbers]`. The name of a file may hold blanks, so the action is looked for from the end.
struct Entry<'a> {
    file: &'a str,
    action: &'a str,
    numbers: Vec<&'a str>,
}

/// What an iolog may say of a file. `sync_file_range` is taken for the flush that it stands nearest to.
const ACTIONS: &str = "add open close wait read write trim sync datasync sync_file_range";

impl<'a> Entry<'a> {
    fn parse(line: &'a str) -> Result<Entry<'a>, String> {
        let mut rest = line;
        let mut numbers = Vec::new();
        loop {
            let (before, last) = rest
                .rsplit_once(char::is_whitespace)
                .ok_or("the file or the action is missing")?;
            rest = before.trim_end();
            if ACTIONS.split(' ').any(|action| action == last) {
                numbers.reverse();
                return Ok(Entry {
                    file: rest,
                    action: last,
                    numbers,
                });
            }
            if numbers.len() == 2 || !last.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(format!("the action {last:?} is not known"));
            }
            numbers.push(last);
        }
    }

    fn number(&self, index: usize, name: &str) -> Result<u64, String> {
        number(&mut self.numbers.iter().skip(index).copied(), name)
    }
}

/// Numbers for names, in the order of their first appearance.
#[derive(Default)]
struct Names {
    numbers: BTreeMap<String, u32>,
}

/// More volumes than any trace has: a file with more names than this is not what it seems.
const NAMES_MAX: u32 = 65_536;

impl Names {
    fn number(&mut self, name: &str) -> Result<u32, String> {
        if let Some(number) = self.numbers.get(name) {
            return Ok(*number);
        }
        let number = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        if number >= NAMES_MAX {
            return Err(format!("{name:?} would be volume {number}: too many"));
        }
        self.numbers.insert(name.to_string(), number);
        Ok(number)
    }
}

/// Linux numbers devices so: 12 bits of major, 20 bits of minor.
pub fn device_number(major: u32, minor: u32) -> Result<u32, String> {
    if major >= 1 << 12 || minor >= 1 << 20 {
        return Err(format!("there is no device {major},{minor}"));
    }
    Ok((major << 20) | minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(parser: &mut impl Parser, line: &str) -> Request {
        parser.parse(line).unwrap().unwrap()
    }

    fn made(time: u64, device: u32, op: Op, offset: u64, length: u64) -> Request {
        Request::new(time, device, op, offset, length)
    }

    #[test]
    fn spc_counts_sectors_and_seconds() {
        let found = one(&mut Plain(spc), "1,240840,3072,w,0.026214\r");
        assert_eq!(found, made(26_214_000, 1, Op::Write, 240_840 * 512, 3072));
        for (line, wrong) in [
            (
                "1,2,3,x,0.0",
                "the operation is \"x\", neither read nor write",
            ),
            ("1,2,3,r", "the time is missing"),
        ] {
            assert_eq!(Plain(spc).parse(line).unwrap_err(), wrong);
        }
    }

    #[test]
    fn msr_counts_bytes_and_ticks_and_numbers_volumes() {
        let mut msr = Msr::default();
        let line = "128166372003061629,mds,0,Read,3154132992,4096,551";
        let time = 12_816_637_200_306_162_900;
        let found = one(&mut msr, line);
        assert_eq!(found, made(time, 0, Op::Read, 3_154_132_992, 4096));
        assert_eq!(one(&mut msr, &line.replace("mds,0", "mds,1")).device, 1);
        assert_eq!(one(&mut msr, line).device, 0);
    }

    #[test]
    fn the_two_kinds_of_disksim_differ_in_units_and_bits() {
        let found = one(&mut Plain(disksim), "13.191135\t30\t8\t5\t1");
        assert_eq!(found, made(13_191_135, 30, Op::Read, 4096, 2560));
        assert_eq!(one(&mut Plain(disksim), "1 0 8 5 10").op, Op::Write);
        let found = one(&mut Plain(ssdsim), "26214000 1 240840 6 0");
        assert_eq!(found, made(26_214_000, 1, Op::Write, 240_840 * 512, 3072));
        assert!(Plain(ssdsim).parse("1.5 1 2 3 0").is_err());
    }

    #[test]
    fn a_process_may_have_blanks_in_its_name() {
        let line = "899 4270 my proc 80 8 W 6 0 d6c7";
        let found = one(&mut Plain(fiu), line);
        assert_eq!(found, made(899, 6 << 20, Op::Write, 40_960, 4096));
        assert!(Plain(fiu).parse("899 4270 80 8 W 6 0 d6c7").is_err());
    }

    #[test]
    fn completions_are_not_requests() {
        let line = "39949 D discard 4096 8192 0.5 0 False";
        let found = one(&mut Ftlsim, line);
        assert_eq!(found, made(500_000_000, 0, Op::Discard, 4096, 8192));
        assert_eq!(Ftlsim.parse(&line.replace(" D ", " C ")), Ok(None));
    }

    #[test]
    fn fio_2_waits_and_fio_3_says_when() {
        let mut fio = Fio::default();
        assert_eq!(fio.parse("fio version 2 iolog"), Ok(None));
        for without in ["add", "wait 1500", "wait 2500 0"] {
            assert_eq!(fio.parse(&format!("/dev/a {without}")), Ok(None));
        }
        let found = one(&mut fio, "/dev/a write 4096 512");
        assert_eq!(found, made(2_500_000_000, 0, Op::Write, 4096, 512));
        assert_eq!(one(&mut fio, "/dev/b sync").device, 1);
        assert_eq!(fio.parse("fio version 3 iolog"), Ok(None));
        let found = one(&mut fio, "291 /dev/a read 0 512");
        assert_eq!(found, made(291_000, 0, Op::Read, 0, 512));
        assert!(fio.parse("fio version 9 iolog").is_err());
    }

    #[test]
    fn a_file_of_an_iolog_may_have_blanks_in_its_name() {
        for (version, before) in [("2", ""), ("3", "7 ")] {
            let mut fio = Fio::default();
            assert_eq!(fio.parse(&format!("fio version {version} iolog")), Ok(None));
            assert_eq!(fio.parse(&format!("{before}my read 9 file add")), Ok(None));
            let found = one(&mut fio, &format!("{before}my read 9 file write 4096 512"));
            assert_eq!((found.op, found.offset, found.device), (Op::Write, 4096, 0));
            for flush in ["sync", "datasync 0 0", "sync_file_range 0 512"] {
                let found = one(&mut fio, &format!("{before}other file {flush}"));
                assert_eq!((found.op, found.device), (Op::Flush, 1));
            }
            for wrong in "file|file peek 0 512|file read 0|file read 0 1 2|a read x 512".split('|')
            {
                assert!(fio.parse(&format!("{before}{wrong}")).is_err(), "{wrong}");
            }
        }
    }

    #[test]
    fn lists_count_blocks() {
        let mut lis = Lis { block_bytes: 4096 };
        let found = one(&mut lis, "10 2 0 7");
        assert_eq!(found, made(0, 0, Op::Read, 40_960, 8192));
    }
}
