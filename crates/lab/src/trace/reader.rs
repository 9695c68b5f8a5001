//! From a path to requests: compression, format, reader, skipping of bad records, order of time.

use super::blktrace::{Blktrace, Parts};
use super::detect::detect;
use super::format::{Contents, Format, Opened, Reading};
use super::lines::TextReader;
use super::members::{First, Member, Members, PassedOver};
use super::options::{Action, Options};
use super::sort::Sorted;
use super::source::{self, Bytes, Sample};
use super::tar::is_archive;
use super::write::text_label;
use super::{Features, Item, Requests, TraceError, blktrace};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A trace that is being read: an iterator of requests that ends after its first error.
pub struct Trace {
    pub format: &'static Format,
    pub features: Features,
    /// What the file says of itself: that it is synthetic, and of what.
    pub label: Option<String>,
    path: PathBuf,
    requests: Requests,
    skipped: Arc<AtomicU64>,
    passed_over: PassedOver,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing was found yet.
    Begun,
    Going,
    /// It ended with an error.
    Failed,
}

impl Trace {
    /// How many bad records were skipped so far.
    pub fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    /// The count of skipped records, which goes on while the trace is consumed elsewhere.
    pub fn skipped_count(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.skipped)
    }

    /// The files of an archive that were no traces, so far.
    pub fn passed_over(&self) -> PassedOver {
        Arc::clone(&self.passed_over)
    }

    /// A trace without a request is none: whatever is computed from it would be made up.
    fn nothing(&self) -> TraceError {
        let skipped = match self.skipped() {
            0 => String::new(),
            count => format!("; {count} bad records were skipped"),
        };
        let format = self.format.name;
        let reason = format!("no request in it, read as {format}{skipped}");
        TraceError::of_file(&self.path, reason)
    }
}

impl Iterator for Trace {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        if self.state == State::Failed {
            return None;
        }
        let item = match self.requests.next() {
            None if self.state == State::Begun => Some(Err(self.nothing())),
            item => item,
        };
        self.state = match item {
            Some(Err(_)) => State::Failed,
            _ => State::Going,
        };
        item
    }
}

/// Passes good records on, and bad ones where they are not to be skipped; ends after the first that it passes on.
struct Skipping {
    input: Requests,
    skip_bad: bool,
    ended: bool,
    skipped: Arc<AtomicU64>,
}

impl Iterator for Skipping {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        while !self.ended {
            match self.input.next() {
                Some(Err(error)) if error.skippable && self.skip_bad => {
                    self.skipped.fetch_add(1, Ordering::Relaxed);
                }
                Some(Ok(request)) => return Some(Ok(request)),
                last => {
                    self.ended = true;
                    return last;
                }
            }
        }
        None
    }
}

/// What is looked at to tell the format.
const START_BYTES: u64 = 64 << 10;
/// Where a label is, if a file of blktrace has one.
const LABEL_BYTES: u64 = 4 << 10;

/// Opens a trace: a file, plain or compressed, an archive of such files, or a folder of blktrace's files.
pub fn open(path: &Path, options: &Options) -> Result<Trace, TraceError> {
    let failed = |reason: String| TraceError::of_file(path, reason);
    if let Some(parts) = parts(path).transpose() {
        let parts = parts.map_err(|error| failed(error.to_string()))?;
        let label = parts.first().and_then(label_of_part);
        return Ok(blktrace_of(path, parts, label, options));
    }
    let input = source::open(path).map_err(|error| failed(error.to_string()))?;
    read(path, input, options)
}

fn blktrace_of(path: &Path, parts: Parts, label: Option<String>, options: &Options) -> Trace {
    let action = options.action.unwrap_or(Action::Queued);
    let requests = Box::new(Blktrace::new(path.into(), parts, action));
    let contents = Contents {
        features: Features::ALL,
        label,
        requests,
    };
    finish(path, &blktrace::FORMAT, contents, options)
}

/// What the first of several files says of itself. One that cannot be read says so when it is its turn.
fn label_of_part(path: &Path) -> Option<String> {
    let mut start = Vec::new();
    let input = source::open(path).ok()?;
    input.take(LABEL_BYTES).read_to_end(&mut start).ok()?;
    blktrace::label_of(&start)
}

/// The files that a trace's path stands for, in the order in which they are read.
pub fn files(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    Ok(match parts(path)? {
        Some(Parts::Files { left, .. }) => left.into(),
        _ => vec![path.into()],
    })
}

/// Refuses what cannot be read a second time from its start: a pipe would seem empty then.
pub fn read_twice(path: &Path) -> Result<(), TraceError> {
    let once = std::fs::metadata(path).is_ok_and(|of| !of.is_file() && !of.is_dir());
    let reason = "it is read twice, which takes a file: a pipe or a device is none";
    match once {
        true => Err(TraceError::of_file(path, reason)),
        false => Ok(()),
    }
}

/// Reads a trace from bytes that are already there, under the name of a path.
pub fn read(path: &Path, input: Bytes, options: &Options) -> Result<Trace, TraceError> {
    let sample = source::sample(input, START_BYTES);
    if is_archive(&sample.start) {
        return archive(path, sample.bytes, options);
    }
    let format = format_of(path, &sample, options);
    let format = format.map_err(|reason| TraceError::of_file(path, reason))?;
    let file = Opened::new(path, options, sample.bytes, sample.start);
    let contents = contents(format, file, None)?;
    Ok(finish(path, format, contents, options))
}

/// A file of which nothing can be read has no format, whatever it is said to be.
fn format_of(path: &Path, sample: &Sample, options: &Options) -> Result<&'static Format, String> {
    let start = &sample.start;
    match (options.format, &sample.failed) {
        (_, Some(error)) if start.is_empty() => Err(format!("nothing of it can be read: {error}")),
        (Some(format), _) => Ok(format),
        (None, failed) => {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            detect(&name, start, options.skip_bad).map_err(|unknown| match failed {
                Some(error) => unknown.and_failed(start, error),
                None => unknown.to_string(),
            })
        }
    }
}

/// The files of an archive as one trace, in the order of time.
fn archive(path: &Path, input: Bytes, options: &Options) -> Result<Trace, TraceError> {
    let first = Members::open(path, input, options.format, options.skip_bad)?;
    let (format, first, members) = match first {
        First::Blktrace(archive, passed_over) => {
            let parts = Parts::archive(archive, Arc::clone(&passed_over));
            let mut trace = blktrace_of(path, parts, None, options);
            trace.passed_over = passed_over;
            return Ok(trace);
        }
        First::Text(format, first, members) => (format, first, members),
    };
    let passed_over = members.passed_over();
    let Member { name, start, bytes } = first;
    let file = Opened::new(path, options, bytes, start);
    let contents = contents(format, file, Some((name, members)))?;
    let mut options = options.clone();
    options.sort = true;
    let mut trace = finish(path, format, contents, &options);
    trace.passed_over = passed_over;
    Ok(trace)
}

/// What a file holds. The first file of an archive comes with its name there, and the files that follow.
fn contents(
    format: &Format,
    file: Opened<'_>,
    members: Option<(String, Members)>,
) -> Result<Contents, TraceError> {
    let lines = match &format.reading {
        Reading::Bytes(open) => return open(file),
        Reading::Lines(lines) => lines,
    };
    let label = text_label(&file.start);
    let parser = (lines.parser)(file.options);
    let reader = TextReader::new(file.path, file.input, &file.start, parser);
    Ok(Contents {
        features: format.features,
        label,
        requests: Box::new(match members {
            Some((name, members)) => reader.with_members(name, members),
            None => reader,
        }),
    })
}

/// A folder, or the name that all files of a blktrace share (`sdb` for `sdb.blktrace.0` and so on).
fn parts(path: &Path) -> std::io::Result<Option<Parts>> {
    if path.is_dir() {
        return Parts::in_folder(path, "").map(Some);
    }
    let stem = path.file_name().unwrap_or_default().to_string_lossy();
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if path.exists() || !folder.join(format!("{stem}.blktrace.0")).exists() {
        return Ok(None);
    }
    Parts::in_folder(folder, &stem).map(Some)
}

fn finish(path: &Path, format: &'static Format, contents: Contents, options: &Options) -> Trace {
    let (features, label) = (contents.features, contents.label);
    let skipped = Arc::new(AtomicU64::new(0));
    let mut requests: Requests = Box::new(Skipping {
        input: contents.requests,
        skip_bad: options.skip_bad,
        ended: false,
        skipped: Arc::clone(&skipped),
    });
    if features.times && (options.sort || format.is_grouped) {
        requests = Box::new(Sorted::new(requests));
    }
    if *format == blktrace::FORMAT {
        requests = from_first(requests);
    }
    Trace {
        format,
        features,
        label,
        path: path.into(),
        requests,
        skipped,
        passed_over: PassedOver::default(),
        state: State::Begun,
    }
}

/// blktrace's clock counts from when the machine started, which tells nothing: times become those since the first
/// request, as blkparse shows them.
fn from_first(requests: Requests) -> Requests {
    let mut first = None;
    Box::new(requests.map(move |item| {
        item.map(|mut request| {
            request.time -= *first.get_or_insert(request.time);
            request
        })
    }))
}
