//! `trace`: what a block trace is like, and what is done to it before a replay.

use crate::failure::{Failure, Outcome};
use crate::print::terminal::{out, outln, print_note, warn};
use crate::verbs::lab::trace::args::{
    FitName, Trace, TraceConvert, TraceInfo, TraceInput, TraceOutput, TraceRemap, TraceScale,
    TraceSlice, TraceVerb,
};
use restripe_lab::nearest;
use restripe_lab::trace::shape::{self, Cut, Fit};
use restripe_lab::trace::{
    Action, FORMATS, Features, Format, Op, Options, Order, PassedOver, Requests, Summary,
    TraceError, TraceWriter, WRITABLE, open, read_twice,
};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

pub mod args;
mod make;
mod show;

pub(crate) fn run(verb: &Trace) -> Outcome {
    match &verb.verb {
        TraceVerb::Info(verb) => info(verb),
        TraceVerb::Convert(verb) => convert(verb),
        TraceVerb::Slice(verb) => slice(verb),
        TraceVerb::Scale(verb) => scale(verb),
        TraceVerb::Remap(verb) => remap(verb),
        TraceVerb::Generate(verb) => make::generate(verb),
        TraceVerb::Fit(verb) => make::fit(verb),
        TraceVerb::Formats => {
            formats();
            Ok(())
        }
    }
}

fn formats() {
    for format in FORMATS {
        let written = if WRITABLE.contains(&format) {
            "read, write"
        } else {
            "read"
        };
        outln!("{:<9} {written:<12} {}", format.name, format.about);
    }
}

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

// ------------------------------------------------------------------------------------------------------------ input

/// A trace named on the command line, opened as often as it takes.
pub(crate) struct Input {
    path: PathBuf,
    options: Options,
    skipped: Arc<AtomicU64>,
    passed_over: PassedOver,
    /// What the file says of itself, known once it was opened.
    label: Option<String>,
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
    fn requests(&mut self) -> Outcome<(Features, Requests)> {
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
    fn survey(&mut self) -> Outcome<Survey> {
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

struct Survey {
    start: u64,
    last: u64,
    requests: u64,
    extents: BTreeMap<u32, u64>,
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

// ----------------------------------------------------------------------------------------------------------- output

/// Writes beside the target and renames when it is whole, so that a failure leaves nothing half done.
fn write(
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
        fs::rename(&partial, path).map_err(|error| cannot_write(path, &error))?;
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
    let failed = |error: std::io::Error| cannot_write(path, &error);
    let output = BufWriter::new(File::create(path).map_err(failed)?);
    let mut writer = TraceWriter::labelled(output, format, features, label).map_err(failed)?;
    let mut count = 0;
    for request in requests {
        writer.write(&request?).map_err(failed)?;
        count += 1;
    }
    writer
        .finish()
        .and_then(|mut output| output.flush())
        .map_err(failed)?;
    Ok(count)
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("the trace cannot be written: {error}")).at(path.display())
}

fn finish(input: &Input, target: &TraceOutput, features: Features, requests: Requests) -> Outcome {
    let count = write(target, features, input.label.as_deref(), requests)?;
    input.tell_skipped();
    print_note(&format!(
        "{count} requests written to {}",
        target.output.display()
    ));
    Ok(())
}

// ------------------------------------------------------------------------------------------------------------ verbs

fn info(verb: &TraceInfo) -> Outcome {
    read_twice(&verb.input.file)?;
    let mut input = Input::of(&verb.input)?;
    let (format, features, _) = input.open(Order::AsRecorded)?;
    let summary = Summary::measure(features, |order| {
        input.open(order).map(|(_, _, requests)| requests)
    })?;
    let skipped = input.skipped.load(Ordering::Relaxed);
    if skipped == 0 {
        // Skipped records are among the figures.
        input.tell_skipped();
    }
    let shown = show::Shown {
        file: &verb.input.file,
        format,
        features,
        label: input.label.as_deref(),
        skipped,
        summary: &summary,
    };
    if verb.json {
        outln!("{}", shown.json());
    } else {
        out!("{}", shown.text());
    }
    Ok(())
}

fn convert(verb: &TraceConvert) -> Outcome {
    let mut input = Input::of(&verb.input)?;
    let survey = input.survey()?;
    let (features, requests) = input.requests()?;
    let requests = shape::rebase(requests, survey.start);
    finish(&input, &verb.output, features, requests)
}

fn slice(verb: &TraceSlice) -> Outcome {
    let nanoseconds =
        |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let (first, count) = verb.requests.unwrap_or((0, None));
    let cut = Cut {
        from: verb.from.map(nanoseconds),
        to: verb.until.map(nanoseconds),
        first,
        count,
        device: verb.device,
    };
    let mut input = Input::of(&verb.input)?;
    let survey = input.survey()?;
    let (features, requests) = input.requests()?;
    if !features.times && (cut.from.is_some() || cut.to.is_some()) {
        return Err(
            Failure::new("the trace has no times to slice by").hint("slice it by --requests")
        );
    }
    let cut_out = shape::cut(requests, survey.start, cut.clone());
    let start = survey.start.saturating_add(cut.from.unwrap_or(0));
    let mut rebased = shape::rebase(cut_out, start).peekable();
    if rebased.peek().is_none() {
        let what = "no request of the trace is in this range";
        return Err(Failure::new(what).at(verb.input.file.display()).hint(
            "`restripe trace info` prints the number of requests, the duration and the devices",
        ));
    }
    finish(&input, &verb.output, features, Box::new(rebased))
}

fn scale(verb: &TraceScale) -> Outcome {
    let mut input = Input::of(&verb.input)?;
    let survey = input.survey()?;
    let (features, requests) = input.requests()?;
    let duration = survey.last.saturating_sub(survey.start);
    if !features.times || duration == 0 {
        return Err(Failure::new("the trace has no times to scale").at(verb.input.file.display()));
    }
    let mean = survey.requests as f64 * 1e9 / duration as f64;
    let factor = match (verb.time, verb.rate, verb.iops) {
        (Some(factor), None, None) => factor,
        (None, Some(factor), None) => 1.0 / factor,
        (None, None, Some(iops)) => mean / iops,
        _ => return Err(Failure::usage("pass one of --time, --rate and --iops")),
    };
    if !(factor.is_finite() && factor > 0.0 && duration as f64 * factor < 9.2e18) {
        return Err(Failure::usage(
            "invalid times: a factor must be above 0 and not too large",
        ));
    }
    finish(
        &input,
        &verb.output,
        features,
        shape::stretch(requests, survey.start, factor),
    )
}

fn remap(verb: &TraceRemap) -> Outcome {
    let mut input = Input::of(&verb.input)?;
    let survey = input.survey()?;
    let (features, requests) = input.requests()?;
    let mut requests = shape::rebase(requests, survey.start);
    let aligned = |extent: &u64| {
        extent
            .div_ceil(verb.align.max(1))
            .saturating_mul(verb.align.max(1))
    };
    let mut extent = survey.extents.values().copied().max().unwrap_or(0);
    if verb.fold {
        extent = survey
            .extents
            .values()
            .map(aligned)
            .fold(0, u64::saturating_add);
        requests = shape::fold(requests, &survey.extents, verb.align);
    }
    if let Some(capacity) = verb.capacity {
        let how = match verb.fit {
            FitName::Wrap => Fit::Wrap,
            FitName::Shrink => Fit::Shrink,
        };
        requests = shape::fit(requests, extent, capacity, how);
    } else if !verb.fold {
        return Err(Failure::usage("pass --fold, --capacity, or both"));
    }
    finish(&input, &verb.output, features, requests)
}
