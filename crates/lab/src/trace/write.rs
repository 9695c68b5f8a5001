//! Writing traces: our own format, and those that other tools read.
//!
//! A format that cannot hold a request (an address within a sector, a discard) refuses it; nothing is
//! rounded.

use super::fields::SECTOR;
use super::{Features, Format, Op, Request, blktrace, rtrace, text};
use std::io::{self, Error, ErrorKind, Write};

/// Formats that can be written.
pub static WRITABLE: [&Format; 6] = [
    &rtrace::FORMAT,
    &text::SPC,
    &text::DISKSIM,
    &text::SSDSIM,
    &text::FIO,
    &blktrace::FORMAT,
];

/// Writes requests in one format; [`TraceWriter::finish`] must end it.
pub enum TraceWriter<W: Write> {
    Rtrace(rtrace::Writer<W>),
    /// And the number of the event written last.
    Blktrace(W, u32),
    Text(W, &'static Format),
    Fio(W, FioFile, OneDevice),
}

/// The device whose requests go to an iolog, once there was one.
type OneDevice = Option<u32>;

/// The name of the one file of an iolog: it has no comments, so this is where a label goes.
type FioFile = &'static str;
const FIO_RECORDED: FioFile = "device0";
const FIO_SYNTHETIC: FioFile = "synthetic0";

impl<W: Write> TraceWriter<W> {
    pub fn new(
        output: W,
        format: &'static Format,
        features: Features,
    ) -> io::Result<TraceWriter<W>> {
        TraceWriter::labelled(output, format, features, None)
    }

    /// With a label that says what the trace is. Texts get it as a first line after `#`, an iolog as the name of its
    /// file, blktrace as a message.
    pub fn labelled(
        mut output: W,
        format: &'static Format,
        features: Features,
        label: Option<&str>,
    ) -> io::Result<TraceWriter<W>> {
        if *format == rtrace::FORMAT {
            return rtrace::Writer::new(output, features, label).map(TraceWriter::Rtrace);
        }
        if !WRITABLE.contains(&format) {
            return Err(refusal(format!("{} can be read, not written", format.name)));
        }
        if !features.times || !features.ops {
            return Err(refusal(format!(
                "the trace has no times or operations, which {} needs; rtrace can do without",
                format.name
            )));
        }
        if *format == blktrace::FORMAT {
            let first = label.map_or(Vec::new(), |label| blktrace::message(1, label));
            output.write_all(&first)?;
            return Ok(TraceWriter::Blktrace(output, u32::from(label.is_some())));
        }
        if *format == text::FIO {
            let file = label.map_or(FIO_RECORDED, |_| FIO_SYNTHETIC);
            write!(output, "fio version 3 iolog\n0 {file} add\n0 {file} open\n")?;
            return Ok(TraceWriter::Fio(output, file, None));
        }
        if let Some(label) = label {
            writeln!(output, "# {}", label.replace(char::is_control, " "))?;
        }
        Ok(TraceWriter::Text(output, format))
    }

    /// Times must be those since the trace's start.
    pub fn write(&mut self, request: &Request) -> io::Result<()> {
        match self {
            TraceWriter::Rtrace(writer) => writer.write(request),
            TraceWriter::Blktrace(output, number) => {
                *number = number.wrapping_add(1);
                output.write_all(&blktrace::queued(*number, request).map_err(refusal)?)
            }
            TraceWriter::Text(output, format) => {
                output.write_all(line(format, request)?.as_bytes())
            }
            TraceWriter::Fio(output, file, device) => {
                output.write_all(fio(file, device, request)?.as_bytes())
            }
        }
    }

    pub fn finish(self) -> io::Result<W> {
        match self {
            TraceWriter::Rtrace(writer) => writer.finish().map(|(output, _)| output),
            TraceWriter::Blktrace(mut output, _)
            | TraceWriter::Text(mut output, _)
            | TraceWriter::Fio(mut output, ..) => output.flush().map(|()| output),
        }
    }
}

fn refusal(reason: String) -> Error {
    Error::new(ErrorKind::InvalidInput, reason)
}

/// The label of a text that begins so, if it has one.
pub fn text_label(start: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(start.get(..start.len().min(4096))?).into_owned();
    let first = text.lines().next()?;
    if first.starts_with("fio version") {
        let synthetic = text.lines().nth(1)?.contains(FIO_SYNTHETIC);
        return synthetic.then(|| "synthetic".into());
    }
    let label = first.strip_prefix("# ")?;
    label.starts_with("synthetic").then(|| label.to_string())
}

fn line(format: &Format, request: &Request) -> io::Result<String> {
    let (time, device) = (request.time, request.device);
    let writes = match request.op {
        Op::Read => false,
        Op::Write => true,
        other => {
            let reason = format!("{} has no {}", format.name, other.name());
            return Err(refusal(reason));
        }
    };
    let start = whole(request.offset)?;
    Ok(match format {
        _ if *format == text::SPC => {
            let op = if writes { 'w' } else { 'r' };
            format!(
                "{device},{start},{},{op},{}\n",
                request.length,
                fraction(time, 1_000_000_000)
            )
        }
        _ if *format == text::DISKSIM => {
            let length = whole(request.length)?;
            let time = fraction(time, 1_000_000);
            format!("{time} {device} {start} {length} {}\n", u8::from(!writes))
        }
        _ => {
            let length = whole(request.length)?;
            format!("{time} {device} {start} {length} {}\n", u8::from(!writes))
        }
    })
}

/// fio has files, not devices, and one is what a replay goes to: several devices are to be folded first.
fn fio(file: FioFile, device: &mut OneDevice, request: &Request) -> io::Result<String> {
    let first = *device.get_or_insert(request.device);
    if request.device != first {
        return Err(refusal(format!(
            "an iolog goes to one device, and the trace has {first} and {}: fold it first (restripe trace remap --fold)",
            request.device
        )));
    }
    let time = request.time / 1000;
    let action = match request.op {
        Op::Read => "read",
        Op::Write => "write",
        Op::Discard => "trim",
        Op::Flush => return Ok(format!("{time} {file} sync 0 0\n")),
    };
    Ok(format!(
        "{time} {file} {action} {} {}\n",
        request.offset, request.length
    ))
}

fn whole(bytes: u64) -> io::Result<u64> {
    if !bytes.is_multiple_of(SECTOR) {
        return Err(refusal(format!(
            "{bytes} is no multiple of the format's sectors of 512 bytes"
        )));
    }
    Ok(bytes / SECTOR)
}

/// A time as a decimal fraction of a unit of so many nanoseconds.
fn fraction(time: u64, unit: u64) -> String {
    let digits = unit.ilog10() as usize;
    format!("{}.{:0digits$}", time / unit, time % unit)
}

#[cfg(test)]
mod tests {
    use super::super::{Options, binary, read};
    use super::*;
    use std::io::Cursor;
    use std::path::Path;

    fn requests() -> Vec<Request> {
        let ops = [Op::Write, Op::Read, Op::Read];
        let made = |index: u64| {
            let (op, length) = (ops[index as usize % 3], 512 * (1 + index % 5));
            Request::new(index * 1_001_000, 0, op, index * 7 * 512, length)
        };
        (0..100).map(made).collect()
    }

    #[test]
    fn every_writable_format_is_read_back() {
        for format in WRITABLE {
            let mut writer = TraceWriter::new(Vec::new(), format, Features::ALL).unwrap();
            for request in requests() {
                writer.write(&request).unwrap();
            }
            let bytes = writer.finish().unwrap();
            let input = Box::new(Cursor::new(bytes));
            let trace = read(Path::new("t"), input, &Options::default()).unwrap();
            assert_eq!(trace.format, format);
            let found: Vec<Request> = trace.map(Result::unwrap).collect();
            assert_eq!(found, requests(), "{}", format.name);
        }
    }

    #[test]
    fn every_format_keeps_that_a_trace_is_synthetic() {
        for format in WRITABLE {
            for label in [None, Some("synthetic: x\ny")] {
                let (output, all) = (Vec::new(), Features::ALL);
                let mut writer = TraceWriter::labelled(output, format, all, label).unwrap();
                for request in requests() {
                    writer.write(&request).unwrap();
                }
                let input = Box::new(Cursor::new(writer.finish().unwrap()));
                let trace = read(Path::new("t"), input, &Options::default()).unwrap();
                assert_eq!(trace.format, format);
                let found = trace.label.clone();
                assert_eq!(found.is_some(), label.is_some(), "{}", format.name);
                assert!(found.is_none_or(|label| label.starts_with("synthetic")));
                assert_eq!(trace.filter(Result::is_ok).count(), requests().len());
            }
        }
    }

    #[test]
    fn an_iolog_takes_one_device_of_any_number() {
        let written = |devices: [u32; 2]| {
            let mut writer = TraceWriter::new(Vec::new(), &text::FIO, Features::ALL).unwrap();
            devices.into_iter().try_for_each(|device| {
                let mut request = requests()[0];
                request.device = device;
                writer.write(&request)
            })
        };
        assert!(written([8 << 20 | 16; 2]).is_ok());
        let error = written([0, 1]).unwrap_err().to_string();
        assert!(error.contains("fold it first"), "{error}");
    }

    #[test]
    fn what_a_format_cannot_hold_is_refused() {
        let mut writer = TraceWriter::new(Vec::new(), &text::SPC, Features::ALL).unwrap();
        for (op, offset) in [(Op::Write, 100), (Op::Discard, 0)] {
            let request = Request::new(0, 0, op, offset, 512);
            assert!(writer.write(&request).is_err(), "{request:?}");
        }
        assert!(TraceWriter::new(Vec::new(), &text::SPC, Features::ADDRESSES).is_err());
        assert!(TraceWriter::new(Vec::new(), &binary::SRT, Features::ALL).is_err());
    }
}
