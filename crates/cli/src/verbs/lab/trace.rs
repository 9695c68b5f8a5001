//! `trace`: what a block trace is like, and what is done to it before a replay.

use crate::failure::{Failure, Outcome};
use crate::print::terminal::{out, outln, print_note};
use crate::verbs::lab::trace::args::{
    FitName, Trace, TraceConvert, TraceInfo, TraceOutput, TraceRemap, TraceScale, TraceSlice,
    TraceVerb,
};
use crate::verbs::lab::trace::files::{Input, write};
use restripe_lab::trace::shape::{self, Cut, Fit};
use restripe_lab::trace::{FORMATS, Features, Order, Requests, Summary, WRITABLE, read_twice};
use std::sync::atomic::Ordering;

pub(crate) mod args;
pub(crate) mod files;
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

// ------------------------------------------------------------------------------------------------------------ input

// ----------------------------------------------------------------------------------------------------------- output

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
