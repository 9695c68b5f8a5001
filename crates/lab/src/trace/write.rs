//! Writing traces: our own format, and those that other tools read.
//!
//! A format that cannot hold a request (an address within a sector, a discard) refuses it; nothing is rounded.

use super::fields::SECTOR;
use super::{Features, Format, Op, Request, rtrace};
use std::io::{self, Error, ErrorKind, Write};

/// Formats that can be written.
pub const WRITABLE: [Format; 5] = [
    Format::Rtrace,
    Format::Spc,
    Format::Disksim,
    Format::Ssdsim,
    Format::Fio,
];

/// Writes requests in one format; [`TraceWriter::finish`] must end it.
pub enum TraceWriter<W: Write> {
    Rtrace(rtrace::Writer<W>),
    Text(W, Format),
}

impl<W: Write> TraceWriter<W> {
    pub fn new(mut output: W, format: Format, features: Features) -> io::Result<TraceWriter<W>> {
        if format == Format::Rtrace {
            return rtrace::Writer::new(output, features).map(TraceWriter::Rtrace);
        }
        if !WRITABLE.contains(&format) {
            return Err(refusal(format!(
                "{} can be read, not written",
                format.name()
            )));
        }
        if !features.times || !features.ops {
            return Err(refusal(format!(
                "the trace has no times or operations, which {} needs; rtrace can do without",
                format.name()
            )));
        }
        if format == Format::Fio {
            output.write_all(b"fio version 3 iolog\n0 device0 add\n0 device0 open\n")?;
        }
        Ok(TraceWriter::Text(output, format))
    }

    /// Times must be those since the trace's start.
    pub fn write(&mut self, request: &Request) -> io::Result<()> {
        match self {
            TraceWriter::Rtrace(writer) => writer.write(request),
            TraceWriter::Text(output, format) => {
                let line = line(*format, request)?;
                output.write_all(line.as_bytes())
            }
        }
    }

    pub fn finish(self) -> io::Result<W> {
        match self {
            TraceWriter::Rtrace(writer) => writer.finish().map(|(output, _)| output),
            TraceWriter::Text(mut output, _) => output.flush().map(|()| output),
        }
    }
}

fn refusal(reason: String) -> Error {
    Error::new(ErrorKind::InvalidInput, reason)
}

fn line(format: Format, request: &Request) -> io::Result<String> {
    if format == Format::Fio {
        return fio(request);
    }
    let (time, device) = (request.time, request.device);
    let writes = match request.op {
        Op::Read => false,
        Op::Write => true,
        other => {
            let reason = format!("{} has no {}", format.name(), other.name());
            return Err(refusal(reason));
        }
    };
    let start = whole(request.offset)?;
    Ok(match format {
        Format::Spc => {
            let op = if writes { 'w' } else { 'r' };
            format!(
                "{device},{start},{},{op},{}\n",
                request.length,
                fraction(time, 1_000_000_000)
            )
        }
        Format::Disksim => {
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

/// fio has files, not devices, and one is what a replay goes to: fold devices first.
fn fio(request: &Request) -> io::Result<String> {
    if request.device != 0 {
        let reason =
            "an iolog goes to one device: fold the trace first (restripe trace remap --fold)";
        return Err(refusal(reason.into()));
    }
    let time = request.time / 1000;
    let action = match request.op {
        Op::Read => "read",
        Op::Write => "write",
        Op::Discard => "trim",
        Op::Flush => return Ok(format!("{time} device0 sync 0 0\n")),
    };
    Ok(format!(
        "{time} device0 {action} {} {}\n",
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
    use super::super::{Options, read};
    use super::*;
    use std::io::Cursor;
    use std::path::Path;

    fn requests() -> Vec<Request> {
        let made = |index: u64| Request {
            time: index * 1_001_000,
            device: 0,
            op: if index % 3 == 0 { Op::Write } else { Op::Read },
            offset: index * 7 * 512,
            length: 512 * (1 + index % 5),
        };
        (0..100).map(made).collect()
    }

    #[test]
    fn every_writable_format_is_read_back() {
        for format in WRITABLE {
            let mut writer = TraceWriter::new(Vec::new(), format, Features::ALL).unwrap();
            requests()
                .iter()
                .for_each(|request| writer.write(request).unwrap());
            let bytes = writer.finish().unwrap();
            let input = Box::new(Cursor::new(bytes));
            let trace = read(Path::new("t"), input, &Options::default()).unwrap();
            assert_eq!(trace.format, format);
            let found: Vec<Request> = trace.map(Result::unwrap).collect();
            assert_eq!(found, requests(), "{}", format.name());
        }
    }

    #[test]
    fn what_a_format_cannot_hold_is_refused() {
        let mut writer = TraceWriter::new(Vec::new(), Format::Spc, Features::ALL).unwrap();
        let request = requests()[0];
        assert!(
            writer
                .write(&Request {
                    offset: 100,
                    ..request
                })
                .is_err()
        );
        assert!(
            writer
                .write(&Request {
                    op: Op::Discard,
                    ..request
                })
                .is_err()
        );
        assert!(TraceWriter::new(Vec::new(), Format::Spc, Features::ADDRESSES).is_err());
        assert!(TraceWriter::new(Vec::new(), Format::Srt, Features::ALL).is_err());
    }
}
