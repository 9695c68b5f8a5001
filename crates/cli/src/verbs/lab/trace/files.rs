//! Traces as files: opened with the options of a verb, and written.

use crate::failure::{Failure, Outcome, failed_at};
use crate::print::terminal::warn;
use crate::verbs::lab::trace::args::{TraceInput, TraceOutput};
use restripe_lab::nearest;
use restripe_lab::trace::{
    Action, FORMATS, Features, Format, Op, Options, Order, PassedOver, Requests, TraceError,
    TraceWriter, WRITABLE, open, read_twice,
};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Failure {
        let hint = if error.skippable {
            "--skip-bad skips and counts such records; `restripe trace formats` lists the values of --format"
        } else {
            ""
        };
        Failure::new(error.reason.clone())
            .at(place(&error))
            .hint(hint)
    }
}

/// The error's text without its reason.
fn place(error: &TraceError) -> String {
    let text = error.to_string();
    let end = text.len() - error.reason.len();
    text[..end].trim_end_matches(": ").to_string()
}

/// A trace named on the command line, opened as often as it takes.
pub(crate) struct Input {
    path: PathBuf,
    options: Options,
    pub(super) skipped: Arc<AtomicU64>,
    passed_over: PassedOver,
    /// What the file says of itself, known once it was opened.
    pub(super) label: Option<String>,
}

impl Input {
    pub fn of(input: &TraceInput) -> Outcome<Input> {
        let unknown = |name: &String| {
            let names = FORMATS.map(|format| format.name);
            Failure::usage(nearest::unknown("trace format", name, names))
                .hint("`restripe trace formats` describes each")
        };
        let named = |name: &String| Format::of_name(name).ok_or_else(|| unknown(name));
        Ok(Input {
            path: input.file.clone(),
            options: Options {
                format: input.format.as_ref().map(named).transpose()?,
                action: input.action.map(action).transpose()?,
                block_bytes: input.block_size,
                skip_bad: input.skip_bad,
                sort: input.sort,
            },
            skipped: Arc::default(),
            passed_over: PassedOver::default(),
            label: None,
        })
    }

    pub fn open(
        &mut self,
        order: Order,
    ) -> Result<(&'static Format, Features, Requests), TraceError> {
        let options = Options {
            sort: self.options.sort || order == Order::ByTime,
            ..self.options.clone()
        };
        let trace = open(&self.path, &options)?;
        self.skipped = trace.skipped_count();
        self.passed_over = trace.passed_over();
        self.label.clone_from(&trace.label);
        Ok((trace.format, trace.features, Box::new(trace)))
    }

    /// The requests in the order of time, as slicing and scaling want them.
    pub fn requests(&mut self) -> Outcome<(Features, Requests)> {
        let (_, features, requests) = self.open(Order::AsRecorded)?;
        Ok((features, requests))
    }

    pub(crate) fn tell_skipped(&self) {
        let skipped = self.skipped.load(Ordering::Relaxed);
        if skipped > 0 {
            warn(format_args!(
                "skipped {skipped} bad records of {}",
                self.path.display()
            ));
        }
        let passed = self
            .passed_over
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !passed.is_empty() {
            let names = passed.join(", ");
            warn(format_args!(
                "not traces, and skipped in {}: {names}",
                self.path.display()
            ));
        }
    }

    /// What has to be known of a whole trace before it is changed.
    pub(super) fn survey(&mut self) -> Outcome<Survey> {
        read_twice(&self.path)?;
        let mut survey = Survey::default();
        for request in self.requests()?.1 {
            let request = request?;
            survey.start = survey.start.min(request.time);
            survey.last = survey.last.max(request.time);
            survey.requests += u64::from(request.op.moves_data());
            if request.op != Op::Flush {
                let end = survey.extents.entry(request.device).or_insert(0);
                *end = request.end().max(*end);
            }
        }
        Ok(survey)
    }
}

pub(super) struct Survey {
    pub(super) start: u64,
    pub(super) last: u64,
    pub(super) requests: u64,
    pub(super) extents: BTreeMap<u32, u64>,
}

impl Default for Survey {
    fn default() -> Survey {
        Survey {
            start: u64::MAX,
            last: 0,
            requests: 0,
            extents: BTreeMap::new(),
        }
    }
}

fn action(letter: char) -> Outcome<Action> {
    Action::of_letter(letter).ok_or_else(|| {
        Failure::usage(format!(
            "{letter:?} is not an action that can count as a request"
        ))
        .hint("use Q (queued), I (inserted), D (issued) or C (completed)")
    })
}

/// Writes beside the target and renames when it is whole, so that a failure leaves nothing half done.
pub(crate) fn write(
    target: &TraceOutput,
    features: Features,
    label: Option<&str>,
    requests: Requests,
) -> Outcome<u64> {
    let path = &target.output;
    let format = match &target.to {
        Some(name) => Format::of_name(name),
        None => WRITABLE.first().copied(),
    };
    let format = format
        .filter(|format| WRITABLE.contains(format))
        .ok_or_else(|| {
            let names: Vec<&str> = WRITABLE.iter().map(|format| format.name).collect();
            Failure::usage("this format cannot be written")
                .hint(format!("use --to with {}", names.join(", ")))
        })?;
    // A device or pipe would be replaced by a file of its name.
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(Failure::new("it exists and is not a file").at(path.display()));
    }
    if path.exists() && !target.force {
        return Err(Failure::new("the file exists already")
            .at(path.display())
            .hint("--force overwrites it"));
    }
    let mut partial = path.clone().into_os_string();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let written = write_to(&partial, format, features, label, requests);
    let done = written.and_then(|count| {
        fs::rename(&partial, path).map_err(cannot_write(path))?;
        Ok(count)
    });
    if done.is_err() {
        // Nothing is lost with it, and the first failure is the one to tell.
        let _ = fs::remove_file(&partial);
    }
    done
}

fn write_to(
    path: &Path,
    format: &'static Format,
    features: Features,
    label: Option<&str>,
    requests: Requests,
) -> Outcome<u64> {
    let failed = cannot_write(path);
    let output = BufWriter::new(File::create(path).map_err(&failed)?);
    let mut writer = TraceWriter::labelled(output, format, features, label).map_err(&failed)?;
    let mut count = 0;
    for request in requests {
        writer.write(&request?).map_err(&failed)?;
        count += 1;
    }
    writer
        .finish()
        .and_then(|mut output| output.flush())
        .map_err(&failed)?;
    Ok(count)
}

pub(crate) fn cannot_write(path: &Path) -> impl Fn(io::Error) -> Failure {
    failed_at("the trace cannot be written", path)
}
