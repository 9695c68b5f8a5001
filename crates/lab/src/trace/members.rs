//! The texts of a tar archive, one after another, each with its own compression: MSR Cambridge's traces are
//! published as tars of `.csv.gz`, one for each volume.
//!
//! One parser reads all of them, so volumes keep their numbers. A member that is no trace (a readme) is
//! skipped and named. A damaged trace, or a member that cannot be read, is a bad record. A member of another
//! format is an error.

use super::detect::{damage, detect};
use super::format::Format;
use super::source::{self, Bytes, Sample};
use super::tar::{Archive, Broken, is_archive};
use super::{Place, TraceError};
use std::collections::VecDeque;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Names of members that were passed over, while the trace is consumed elsewhere.
pub type PassedOver = Arc<Mutex<Vec<String>>>;

pub struct Members {
    path: PathBuf,
    archive: Arc<Mutex<Archive>>,
    /// What every member is read as; none until the first was found.
    format: Option<&'static Format>,
    /// The format was named: members are not asked for theirs.
    named: bool,
    skip_bad: bool,
    passed_over: PassedOver,
    /// Those before the first good one, not yet yielded.
    damaged: VecDeque<TraceError>,
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
    /// Files of blktrace, from the one that the archive stands at, and what was passed over before it.
    Blktrace(Archive, PassedOver),
    Text(&'static Format, Member, Members),
}

/// What is looked at to tell a member's format.
const START_BYTES: u64 = 64 << 10;

impl Members {
    pub fn open(
        path: &Path,
        input: Bytes,
        format: Option<&'static Format>,
        skip_bad: bool,
    ) -> Result<First, TraceError> {
        let mut members = Members {
            path: path.into(),
            archive: Arc::new(Mutex::new(Archive::new(input))),
            named: format.is_some(),
            format,
            skip_bad,
            passed_over: PassedOver::default(),
            damaged: VecDeque::new(),
        };
        loop {
            let name = match members.next_name() {
                Ok(Some(name)) => name,
                Ok(None) => return Err(members.nothing()),
                Err(error) => return Err(members.first_of(error)),
            };
            if super::blktrace::is_part(&name) && members.damaged.is_empty() {
                members.archive().hold(name);
                let archive = Arc::into_inner(members.archive).expect("no member is open");
                let archive = archive.into_inner().unwrap_or_else(PoisonError::into_inner);
                return Ok(First::Blktrace(archive, members.passed_over));
            }
            match members.look(name) {
                Ok(Some(member)) => {
                    let format = members.format.expect("the member has one");
                    return Ok(First::Text(format, member, members));
                }
                Ok(None) => {}
                Err(error) if error.skippable => members.damaged.push_back(error),
                Err(error) => return Err(members.first_of(error)),
            }
        }
    }

    pub fn passed_over(&self) -> PassedOver {
        Arc::clone(&self.passed_over)
    }

    /// The next member that is a trace. Behind an error that is skippable the search goes on.
    pub fn next_text(&mut self) -> Result<Option<Member>, TraceError> {
        if let Some(error) = self.damaged.pop_front() {
            return Err(error);
        }
        while let Some(name) = self.next_name()? {
            if let Some(member) = self.look(name)? {
                return Ok(Some(member));
            }
        }
        Ok(None)
    }

    /// Whether the members behind one that cannot be read further are found.
    pub fn go_on(&self) -> bool {
        self.archive().broken() != Some(Broken::Damaged)
    }

    /// Goes on to the next file of the archive.
    fn next_name(&self) -> Result<Option<String>, TraceError> {
        let next = self.archive().next_member();
        next.map_err(|error| self.error("", error.to_string(), self.go_on()))
    }

    /// The member that the archive stands at, if it is a trace of the archive's format.
    fn look(&mut self, name: String) -> Result<Option<Member>, TraceError> {
        let shared = BufReader::new(Shared(Arc::clone(&self.archive)));
        let input = source::decompress(Box::new(shared));
        let sample = source::sample(input, START_BYTES);
        if !self.named {
            let base = name.rsplit('/').next().unwrap_or_default();
            match self.judge(base, &sample) {
                Ok(Some(found)) => self.keep_format(&name, found)?,
                Ok(None) => {
                    self.pass_over(name);
                    return Ok(None);
                }
                Err(reason) => {
                    drop(sample);
                    return Err(self.error(&name, reason, self.go_on()));
                }
            }
        }
        let Sample { start, bytes, .. } = sample;
        Ok(Some(Member { name, start, bytes }))
    }

    /// The format of a member; none where it is no trace; why that is not known, where it is damaged. With `skip_bad`, a
    /// damaged one is read in the archive's format if that is the nearest, so that its good lines count.
    fn judge(&self, base: &str, sample: &Sample) -> Result<Option<&'static Format>, String> {
        let start = &sample.start;
        if is_archive(start) {
            return Err("an archive within the archive is not read: unpack it".into());
        }
        let unknown = match detect(base, start, self.skip_bad) {
            Ok(found) => return Ok(Some(found)),
            Err(unknown) => damage(base, start).unwrap_or(unknown),
        };
        let damaged = self.format.filter(|format| unknown.is_damaged(format));
        if self.skip_bad && damaged.is_some() {
            return Ok(damaged);
        }
        match &sample.failed {
            Some(error) => Err(unknown.and_failed(start, error)),
            None if unknown.is_damage => Err(unknown.to_string()),
            None => Ok(None),
        }
    }

    fn keep_format(&mut self, name: &str, found: &'static Format) -> Result<(), TraceError> {
        let format = *self.format.get_or_insert(found);
        if format == found && found.lines().is_some() {
            return Ok(());
        }
        Err(self.error(name, mixed(found, format), false))
    }

    fn pass_over(&self, name: String) {
        let mut passed = self
            .passed_over
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        passed.push(name);
    }

    /// What is said of an archive in which nothing can be read.
    fn first_of(&mut self, error: TraceError) -> TraceError {
        TraceError {
            skippable: false,
            ..self.damaged.pop_front().unwrap_or(error)
        }
    }

    fn nothing(&mut self) -> TraceError {
        let passed = Arc::clone(&self.passed_over);
        let passed = passed.lock().unwrap_or_else(PoisonError::into_inner);
        let reason = match passed.first() {
            None => "the archive holds no file".into(),
            Some(first) => format!(
                "none of the archive's {} files is a trace of a known format (the first is {first}); \
                 --format names one",
                passed.len()
            ),
        };
        let error = self.error("", reason, false);
        self.first_of(error)
    }

    /// Of a member, or with no name of the archive.
    fn error(&self, name: &str, reason: String, skippable: bool) -> TraceError {
        let path = match name {
            "" => self.path.clone(),
            name => self.path.join(name),
        };
        TraceError::new(&path, Place::File, reason, skippable)
    }

    fn archive(&self) -> MutexGuard<'_, Archive> {
        self.archive.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn mixed(found: &Format, format: &Format) -> String {
    let (name, before) = (found.name, format.name);
    match found == format {
        true => format!("it is of format {name}: unpack the archive, only texts are read from one"),
        false => {
            format!("it is of format {name}, the files before it of {before}: unpack the archive")
        }
    }
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
    use super::super::{Format, Item, Options, TraceError, read, rtrace, source, text};
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
        let input = Box::new(Cursor::new(bytes.to_vec()));
        read(Path::new("t.tar"), input, &options)
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
        assert_eq!(trace.format, &text::MSR);
        let passed = trace.passed_over();
        let found = trace.map(|item| item.expect("it is sound"));
        let found = found.map(|request| (request.device, request.offset));
        assert_eq!(found.collect::<Vec<_>>(), [(1, 8192), (0, 4096), (0, 0)]);
        assert_eq!(*passed.lock().expect("it is whole"), ["MSR/readme.txt"]);
    }

    #[test]
    fn an_error_in_a_member_names_it() {
        let damaged = format!("{HM}128166372003061629,hm,0,Peek,4096,4096,551\n");
        let long = HM.repeat(200);
        let packed = packed(&(long.clone() + &damaged));
        let bytes = archive(&[("a.csv", long.as_bytes()), ("b.csv.gz", &packed)]);
        let mut trace = opened(&bytes, false).expect("it opens");
        let error = trace.find_map(Result::err);
        let error = error.expect("the last line is bad").to_string();
        assert!(error.contains("t.tar/b.csv.gz, line 403: "), "{error}");
        let skipping = opened(&bytes, true).expect("it opens");
        assert_eq!(skipping.filter(Result::is_ok).count(), 802);
    }

    #[test]
    fn archives_without_a_trace_or_of_several_formats_are_errors() {
        let spc = "0,303567,3584,w,0.000000\n".repeat(3);
        let two_formats = [("a.csv", HM.as_bytes()), ("b.csv", spc.as_bytes())];
        let blank: [(&str, &[u8]); 2] = [("readme", b"text\n"), ("b", b"")];
        type Files<'a> = &'a [(&'a str, &'a [u8])];
        let cases: [(Files, &str); 4] = [
            (&blank, "none of the archive's 2 files"),
            (&two_formats, "b.csv: it is of format spc"),
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
        let mut trace = opened(&bytes, false).expect("it opens");
        let error = trace.find_map(Result::err);
        assert!(error.expect("the member is cut").skippable);
        let sound = opened(&bytes, true).expect("it opens");
        let found = sound.map(|item| item.expect("bad ones are skipped").device);
        let found: Vec<u32> = found.collect();
        assert!(found.len() > 1000 && found.contains(&1));
    }

    /// What is read with `skip_bad`, or why it does not open, and the count of bad records. Within a minute.
    fn skipping(bytes: &[u8]) -> (Vec<Item>, u64, Vec<String>) {
        let bytes = bytes.to_vec();
        let (done, wait) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let read = match opened(&bytes, true) {
                Err(error) => (vec![Err(error)], 0, Vec::new()),
                Ok(mut trace) => {
                    let items = trace.by_ref().collect();
                    let passed = trace.passed_over();
                    let passed = passed.lock().expect("it is whole").clone();
                    (items, trace.skipped(), passed)
                }
            };
            done.send(read)
        });
        let limit = std::time::Duration::from_mins(1);
        wait.recv_timeout(limit).expect("it comes to an end")
    }

    /// The first error without `skip_bad`.
    fn refused(bytes: &[u8]) -> Option<TraceError> {
        match opened(bytes, false) {
            Err(error) => Some(error),
            Ok(trace) => trace.into_iter().find_map(Result::err),
        }
    }

    #[test]
    fn an_archive_that_is_cut_anywhere_is_one_bad_record_at_its_end() {
        let bytes = archive(&[
            ("a.csv", HM.as_bytes()),
            ("readme", b"text\n"),
            ("b.csv.gz", &packed(HM)),
            ("c.csv", HM.as_bytes()),
        ]);
        for cut in (300..bytes.len() - 512).step_by(7) {
            let error = refused(&bytes[..cut]);
            assert!(error.is_some(), "cut at {cut}");
            let (items, skipped, passed) = skipping(&bytes[..cut]);
            let found = items.iter().filter(|item| item.is_ok()).count();
            if items.iter().any(Result::is_err) {
                assert!(cut < 512 + 50, "cut at {cut}: nothing is read");
                continue;
            }
            assert_eq!(skipped, 1, "cut at {cut}");
            let readme = cut > 1536 + 5 && !passed.is_empty();
            assert!(readme || passed.is_empty(), "cut at {cut}: {passed:?}");
            let whole = [512 + HM.len(), 2560 + packed(HM).len(), 3584 + HM.len()];
            let whole = whole.iter().filter(|end| cut >= **end).count();
            let right = (2 * whole..=2 * whole + 2).contains(&found);
            assert!(right, "cut at {cut}: {found}");
        }
    }

    /// Members that are damaged in every way: the name, the bytes, and how many of its requests can be read.
    fn damaged() -> Vec<(&'static str, Vec<u8>)> {
        let long = HM.repeat(90);
        let whole = packed(&HM.repeat(5000));
        let mut flipped = whole.clone();
        flipped[60] ^= 0xff;
        use ruzstd::encoding::{CompressionLevel, compress_to_vec};
        let zstd = compress_to_vec(long.as_bytes(), CompressionLevel::Fastest);
        let misspelt = b"fio versiom 3 iolog\n0 /dev/a write 0 512\n";
        let headless = b"/dev/a read 0 512\nsome words\nof a text\n";
        vec![
            ("x.csv", format!("{long}xxx\n").into()),
            ("x.csv", format!("{HM}{}", "xxx\n".repeat(90)).into()),
            ("x.csv", format!("xxx\n{long}").into()),
            ("x.csv", format!("{long}xxx\n{long}").into()),
            ("x.csv.gz", packed(&format!("{long}xxx\n"))),
            ("x.csv.gz", whole[..5].to_vec()),
            ("x.csv.gz", whole[..40].to_vec()),
            ("x.csv.gz", whole[..whole.len() / 2].to_vec()),
            ("x.csv.gz", whole[..whole.len() - 1].to_vec()),
            ("x.csv.gz", flipped),
            ("x.csv.gz", [&whole, &b"garbage"[..]].concat()),
            ("x.csv.zst", zstd[..9].to_vec()),
            ("x.csv.zst", zstd[..zstd.len() - 1].to_vec()),
            ("x.csv.xz", b"\xfd7zXZ\0\0\x04".to_vec()),
            ("x.tar", archive(&[("x.csv", HM.as_bytes())])),
            ("x.lis", b"not\na\nlist\n".to_vec()),
            ("x.log", misspelt.to_vec()),
            ("x.log", headless.to_vec()),
        ]
    }

    #[test]
    fn a_damaged_trace_among_sound_ones_is_an_error_or_counted_and_never_passed_over() {
        let packed = source::tests::PACKED.iter();
        let packed = packed.map(|(start, _)| ("x.packed", start.to_vec()));
        for (name, bytes) in damaged().into_iter().chain(packed) {
            for place in 0..3 {
                let mut members = vec![("a.csv", HM.as_bytes()), ("b.csv", HM.as_bytes())];
                members.insert(place, (name, &bytes));
                members.insert(1, ("readme", b"Read me: \nTimestamp,Hostname\nand so on\n"));
                let bytes = archive(&members);
                let error = refused(&bytes).expect(name).to_string();
                assert!(error.contains(name), "{name} at {place}: {error}");
                let (items, skipped, passed) = skipping(&bytes);
                assert!(items.len() >= 4, "{name} at {place}: {items:?}");
                let sound = items.iter().all(Result::is_ok);
                assert!(sound, "{name} at {place}: {items:?}");
                let counted = skipped > 0 && passed == ["readme"];
                assert!(counted, "{name} at {place}: {passed:?}");
            }
        }
    }

    #[test]
    fn each_bad_line_of_a_damaged_file_is_counted_once_the_archive_has_a_format() {
        for bad in [1, 2, 90, 250] {
            let text = format!("{HM}{}{HM}", "xxx\n".repeat(bad));
            for text in [text.clone().into_bytes(), packed(&text)] {
                let bytes = archive(&[("a.csv", HM.as_bytes()), ("b.csv", &text)]);
                let (items, skipped, passed) = skipping(&bytes);
                assert_eq!((items.len(), skipped), (6, bad as u64), "{bad}");
                assert!(items.iter().all(Result::is_ok) && passed.is_empty());
            }
        }
    }

    #[test]
    fn each_text_of_an_archive_begins_anew() {
        let fio2 = |wait: u64| {
            format!("fio version 2 iolog\nf add\nf write 0 512\nf wait {wait}\nf read 0 512\n")
        };
        let fio3 = "fio version 3 iolog\n7 f write 0 512\n";
        let headless = "f write 0 512\nf wait 3\nf read 0 512\n";
        let queued = "8,0 0 1 0.000000001 9 Q R 8 + 8 [x]\n8,0 0 2 0.000000002 9 D R 8 + 8 [x]\n";
        let issued = "8,0 0 1 0.000000003 9 D R 8 + 8 [x]\n8,0 0 2 0.000000004 9 C R 8 + 8 [0]\n";
        let both_logs = [0, 0, 100_000_000, 5_000_000_000];
        let cases: [(Option<&'static Format>, &str, &str, &[u64]); 5] = [
            (None, &fio2(5000), &fio2(100), &both_logs),
            (None, fio3, &fio2(100), &[0, 7000, 100_000_000]),
            (Some(&text::FIO), fio3, headless, &[0, 7000, 3_000_000]),
            (None, queued, issued, &[1, 3]),
            (None, issued, queued, &[1, 3]),
        ];
        for (format, first, second, times) in cases {
            let bytes = archive(&[("a", first.as_bytes()), ("b", second.as_bytes())]);
            let options = Options {
                format,
                ..Options::default()
            };
            let trace =
                read(Path::new("t.tar"), Box::new(Cursor::new(bytes)), &options).expect(first);
            let found: Vec<u64> = trace.map(|item| item.expect(first).time).collect();
            assert_eq!(found, times, "{first}");
        }
        // One log behind the other in one file, too.
        let both = fio2(5000) + &fio2(100);
        let input = Box::new(Cursor::new(both));
        let trace = read(Path::new("t"), input, &Options::default()).expect("a log");
        let found: Vec<u64> = trace.map(|item| item.expect("sound").time).collect();
        assert_eq!(found, [0, 5_000_000_000, 0, 100_000_000]);
    }

    #[test]
    fn a_trace_among_files_of_blktrace_is_not_passed_over() {
        let mut event = 0x6561_7407u32.to_le_bytes().to_vec();
        event.resize(48, 0);
        let sound = |other: &[u8]| archive(&[("v.blktrace.0", &event), ("b.csv", other)]);
        for other in [
            HM.as_bytes().to_vec(),
            packed(HM),
            packed(HM)[..9].to_vec(),
            format!("{HM}x\n").into(),
        ] {
            for skip_bad in [false, true] {
                let mut trace = opened(&sound(&other), skip_bad).expect("it opens");
                let error = trace.find_map(Result::err).expect("it is another trace");
                let named = error.to_string().contains("b.csv is no file of blktrace");
                assert!(named, "{error}");
            }
        }
        let (_, _, passed) = skipping(&sound(b"some text\n"));
        assert_eq!(passed, ["b.csv"]);
    }

    #[test]
    fn an_empty_file_and_one_that_cannot_be_read_are_two_messages() {
        let names = ["t.csv", "t.spc", "t.lis", "t.u32le", "t"];
        for name in names {
            let error = |bytes: &[u8], format| {
                let options = Options {
                    format,
                    skip_bad: true,
                    ..Options::default()
                };
                let input = source::decompress(Box::new(Cursor::new(bytes.to_vec())));
                let opened = read(Path::new(name), input, &options);
                let found =
                    opened.map_or_else(Some, |trace| trace.into_iter().find_map(Result::err));
                found.expect(name).to_string()
            };
            for format in [None, Some(&text::SPC), Some(&rtrace::FORMAT)] {
                let cut = error(&packed(HM)[..12], format);
                assert!(cut.contains("nothing of it can be read"), "{cut}");
                assert!(!error(b"", format).contains("be read:"));
            }
            assert!(error(b"BZh91AY&SY", None).contains("bzip2"));
        }
    }
}
