//! The texts of a tar archive, one after another, each with its own compression: MSR Cambridge's traces are given out
//! as tars of `.csv.gz`, a volume each.
//!
//! One parser reads all of them, so volumes keep their numbers. A member that is no trace (a readme) is passed over and
//! named; a member of another format is an error.

use super::format::{Format, detect};
use super::source::{self, Bytes};
use super::tar::Archive;
use std::io::{self, BufReader, Error, ErrorKind, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Names of members that were passed over, while the trace is consumed elsewhere.
pub type PassedOver = Arc<Mutex<Vec<String>>>;

pub struct Members {
    archive: Arc<Mutex<Archive>>,
    /// What every member is read as; none until the first was found.
    format: Option<Format>,
    /// The format was named: members are not asked for theirs.
    named: bool,
    skip_bad: bool,
    passed_over: PassedOver,
}

/// A member that is a trace.
pub struct Member {
    pub name: String,
    pub start: Vec<u8>,
    /// All of it, from its start.
    pub bytes: Bytes,
}

/// What is first in an archive.
pub enum First {
    /// Files of blktrace, from the one that the archive stands at.
    Blktrace(Archive),
    Text(Format, Member, Members),
}

/// What is looked at to tell a member's format.
const START_BYTES: u64 = 64 << 10;

impl Members {
    pub fn open(input: Bytes, format: Option<Format>, skip_bad: bool) -> io::Result<First> {
        let mut members = Members {
            archive: Arc::new(Mutex::new(Archive::new(input))),
            named: format.is_some(),
            format,
            skip_bad,
            passed_over: PassedOver::default(),
        };
        while let Some(name) = members.next_name()? {
            if super::blktrace::is_part(&name) {
                members.archive().hold(name);
                let archive = Arc::into_inner(members.archive).expect("no member is open");
                let archive = archive.into_inner().unwrap_or_else(PoisonError::into_inner);
                return Ok(First::Blktrace(archive));
            }
            if let Some(member) = members.look(name)? {
                let format = members.format.expect("the member has one");
                return Ok(First::Text(format, member, members));
            }
        }
        Err(Error::new(ErrorKind::InvalidData, members.nothing()))
    }

    pub fn passed_over(&self) -> PassedOver {
        Arc::clone(&self.passed_over)
    }

    /// The next member that is a trace.
    pub fn next_text(&mut self) -> io::Result<Option<Member>> {
        while let Some(name) = self.next_name()? {
            if let Some(member) = self.look(name)? {
                return Ok(Some(member));
            }
        }
        Ok(None)
    }

    /// Goes on to the next file of the archive.
    fn next_name(&self) -> io::Result<Option<String>> {
        self.archive().next_member()
    }

    /// The member that the archive stands at, if it is a trace of the archive's format.
    fn look(&mut self, name: String) -> io::Result<Option<Member>> {
        let shared = BufReader::new(Shared(Arc::clone(&self.archive)));
        let of_member = |error: Error| Error::new(error.kind(), format!("{name}: {error}"));
        let input = source::decompress(Box::new(shared)).map_err(of_member)?;
        let (start, bytes) = source::peek(input, START_BYTES);
        let base = name.rsplit('/').next().unwrap_or_default();
        if !self.named {
            let Ok(found) = detect(base, &start, self.skip_bad) else {
                self.passed_over
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(name);
                return Ok(None);
            };
            let format = *self.format.get_or_insert(found);
            if format != found || !found.is_text() {
                return Err(Error::new(
                    ErrorKind::InvalidData,
                    mixed(&name, found, format),
                ));
            }
        }
        Ok(Some(Member { name, start, bytes }))
    }

    fn nothing(&self) -> String {
        let passed = self
            .passed_over
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match passed.first() {
            None => "the archive holds no file".into(),
            Some(first) => format!(
                "none of the archive's {} files is a trace of a known format (the first is {first}); \
                 --format names one",
                passed.len()
            ),
        }
    }

    fn archive(&self) -> MutexGuard<'_, Archive> {
        self.archive.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn mixed(name: &str, found: Format, format: Format) -> String {
    if found == format {
        return format!(
            "{name} is of format {}: unpack the archive, only texts are read from one",
            found.name()
        );
    }
    format!(
        "{name} is of format {}, the files before it of {}: unpack the archive",
        found.name(),
        format.name()
    )
}

/// Reads the member that the archive stands at.
struct Shared(Arc<Mutex<Archive>>);

impl Read for Shared {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut archive = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        archive.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tar::tests::archive;
    use super::super::{Format, Options, TraceError, read};
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::{Cursor, Write};
    use std::path::Path;

    fn packed(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).expect("a vector");
        encoder.finish().expect("a vector")
    }

    fn opened(bytes: &[u8], skip_bad: bool) -> Result<super::super::Trace, TraceError> {
        let options = Options {
            skip_bad,
            ..Options::default()
        };
        read(
            Path::new("t.tar"),
            Box::new(Cursor::new(bytes.to_vec())),
            &options,
        )
    }

    const HM: &str =
        "128166372003061629,hm,0,Read,4096,4096,551\n128166372003061639,hm,0,Write,0,512,5\n";
    const MDS: &str = "128166372003061619,mds,1,Write,8192,4096,551";

    #[test]
    fn an_archive_of_texts_is_one_trace_in_the_order_of_time() {
        let bytes = archive(&[
            ("MSR/readme.txt", b"how these traces were made\n"),
            ("MSR/hm_0.csv.gz", &packed(HM)),
            ("MSR/mds_1.csv", MDS.as_bytes()),
        ]);
        let trace = opened(&bytes, false).expect("it is a trace");
        assert_eq!(trace.format, Format::Msr);
        let passed = trace.passed_over();
        let found: Vec<(u32, u64)> = trace
            .map(|item| item.expect("it is sound"))
            .map(|request| (request.device, request.offset))
            .collect();
        assert_eq!(found, [(1, 8192), (0, 4096), (0, 0)]);
        assert_eq!(*passed.lock().expect("it is whole"), ["MSR/readme.txt"]);
    }

    #[test]
    fn an_error_in_a_member_names_it() {
        let damaged = format!("{HM}128166372003061629,hm,0,Peek,4096,4096,551\n");
        let long = HM.repeat(200);
        let bytes = archive(&[
            ("a.csv", long.as_bytes()),
            ("b.csv.gz", &packed(&(long.clone() + &damaged))),
        ]);
        let error = opened(&bytes, false)
            .expect("it opens")
            .find_map(Result::err);
        let error = error.expect("the last line is bad").to_string();
        assert!(error.contains("t.tar/b.csv.gz, line 403: "), "{error}");
        let skipping = opened(&bytes, true).expect("it opens");
        assert_eq!(skipping.filter(Result::is_ok).count(), 802);
    }

    #[test]
    fn archives_without_a_trace_or_of_several_formats_are_errors() {
        let spc = "0,303567,3584,w,0.000000\n".repeat(3);
        type Files<'a> = &'a [(&'a str, &'a [u8])];
        let cases: [(Files, &str); 4] = [
            (
                &[("readme", b"text\n"), ("b", b"")],
                "none of the archive's 2 files",
            ),
            (
                &[("a.csv", HM.as_bytes()), ("b.csv", spc.as_bytes())],
                "b.csv is of format spc",
            ),
            (&[("a.u32le", &[1, 0, 0, 0])], "only texts are read"),
            (
                &[("a.csv", b"# nothing\n")],
                "none of the archive's 1 files",
            ),
        ];
        for (members, expected) in cases {
            let bytes = archive(members);
            let error = match opened(&bytes, false) {
                Err(error) => error,
                Ok(trace) => {
                    let last = trace.last().expect("it does not end without a word");
                    last.expect_err("there is something wrong with it")
                }
            };
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn a_cut_member_costs_its_end() {
        let whole = packed(&HM.repeat(5000));
        let cut = &whole[..whole.len() / 2];
        let bytes = archive(&[("a.csv.gz", cut), ("b.csv", MDS.as_bytes())]);
        let error = opened(&bytes, false)
            .expect("it opens")
            .find_map(Result::err);
        assert!(error.expect("the member is cut").skippable);
        let found: Vec<u32> = opened(&bytes, true)
            .expect("it opens")
            .map(|item| item.expect("bad ones are skipped").device)
            .collect();
        assert!(found.len() > 1000 && found.contains(&1));
    }
}
