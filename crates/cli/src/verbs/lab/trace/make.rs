//! `trace generate` and `trace fit`: traces that are made, always called synthetic, and what they are made from.

use crate::failure::{Failure, Outcome};
use crate::print::terminal::{out, outln, print_note};
use crate::verbs::lab::trace::args::{TraceFit, TraceGenerate, TraceOutput};
use crate::verbs::lab::trace::files::{Input, cannot_write, write};
use restripe_lab::generate::fit::{Fitted, Unfit};
use restripe_lab::generate::parameters::numbers;
use restripe_lab::generate::{
    Generator, Invalid, Parameters, Preset, fit as fit_trace, label, preset,
};
use restripe_lab::trace::{Features, Order, Summary, read_twice};
use serde_json::json;
use std::fmt::Write;
use std::fs;
use std::path::Path;

pub(crate) fn generate(verb: &TraceGenerate) -> Outcome {
    let Some(workload) = &verb.workload else {
        list();
        return Ok(());
    };
    let parameters = named(workload)?;
    if verb.parameters {
        out!("{}", parameters.to_toml());
        return Ok(());
    }
    let output = verb.output.clone().ok_or_else(|| {
        Failure::usage("an output file is required")
            .hint("pass --output FILE, or --parameters to print the parameters")
    })?;
    let target = TraceOutput {
        output,
        to: verb.to.clone(),
        force: verb.force,
    };
    let label = label(&parameters, verb.seed);
    let generator =
        Generator::new(&parameters, verb.seed).map_err(|error| unsound(workload, &error))?;
    let requests = generator.requests(verb.requests);
    let count = write(&target, Features::ALL, Some(&label), requests)?;
    print_note(&format!(
        "{count} requests written to {}",
        target.output.display()
    ));
    print_note(&label);
    Ok(())
}

fn list() {
    for preset in Preset::all() {
        let localities = preset.localities();
        let names = match localities.is_empty() {
            true => String::new(),
            false => format!("-{}", localities.join(", -")),
        };
        outln!("{:<8}{names:<18} {}", preset.name, preset.summary);
    }
}

/// A preset, or a file where no preset has the name.
fn named(workload: &str) -> Outcome<Parameters> {
    if let Some(found) = preset::named(workload) {
        return found.map_err(|error| Failure::usage(error.to_string()));
    }
    let path = Path::new(workload);
    if !path.exists() {
        let what = format!(
            "{workload:?} is not a file, and {}",
            preset::unknown(workload)
        );
        return Err(Failure::usage(what).hint("`restripe trace generate` lists the names"));
    }
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("it cannot be read: {error}")).at(workload))?;
    Parameters::from_toml(&text).map_err(|error| unsound(workload, &error))
}

fn unsound(workload: &str, error: &Invalid) -> Failure {
    Failure::new(error.to_string())
        .at(workload)
        .hint("`restripe trace generate fin1 --parameters` prints a sound example")
}

// --------------------------------------------------------------------------------------------------------------- fit

pub(crate) fn fit(verb: &TraceFit) -> Outcome {
    if let Some(path) = verb
        .output
        .as_ref()
        .filter(|path| path.exists() && !verb.force)
    {
        return Err(Failure::new("the file exists already")
            .at(path.display())
            .hint("--force overwrites it"));
    }
    read_twice(&verb.input.file)?;
    let mut input = Input::of(&verb.input)?;
    let (_, features, _) = input.open(Order::AsRecorded)?;
    let path = &verb.input.file;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let fitted = fit_trace(&name, features, |order| {
        input.open(order).map(|(_, _, requests)| requests)
    });
    let mut fitted = fitted.map_err(|error| match error {
        Unfit::Trace(error) => Failure::from(error),
        other => Failure::new(other.to_string()).at(path.display()),
    })?;
    input.tell_skipped();
    for number in numbers() {
        let source = format!("fitted: to {name}");
        fitted.parameters.sources.insert(number.into(), source);
    }
    let toml = fitted.parameters.to_toml();
    if let Some(output) = &verb.output {
        fs::write(output, &toml).map_err(cannot_write(output))?;
    }
    if verb.json {
        let value = json!({
            "parameters": fitted.parameters,
            "real": fitted.real,
            "synthetic": fitted.made,
        });
        outln!("{value:#}");
        return Ok(());
    }
    out!("{}", table(&fitted));
    match &verb.output {
        Some(output) => {
            outln!();
            print_note(&format!("Parameters written to {}", output.display()));
        }
        None => out!("\n{toml}"),
    }
    Ok(())
}

/// Real and generated statistics, side by side.
fn table(fitted: &Fitted) -> String {
    let (real, made) = (rows(&fitted.real), rows(&fitted.made));
    let mut text = format!("{:<34} {:>12} {:>12}\n", "", "real", "synthetic");
    for ((name, real), (_, made)) in real.into_iter().zip(made) {
        let _ = writeln!(text, "{name:<34} {:>12} {:>12}", figure(real), figure(made));
    }
    text
}

fn figure(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.2}"))
}

fn rows(of: &Summary) -> Vec<(&'static str, Option<f64>)> {
    let kib = |bytes: Option<f64>| bytes.map(|bytes| bytes / 1024.0);
    let zones = of.locality.of_12_mib();
    vec![
        ("requests", Some(of.requests as f64)),
        ("writes, %", of.write_share()),
        ("mean read, KiB", kib(of.mean_read_bytes())),
        ("mean write, KiB", kib(of.mean_written_bytes())),
        ("rate, requests a second", of.iops_mean),
        ("gap CV", of.gap_cv),
        ("dispersion of counts a second", of.dispersion),
        ("footprint, MiB", Some(of.footprint_blocks as f64 / 256.0)),
        ("sequential, %", of.sequential),
        ("rewrite, % of blocks", of.rewrite),
        ("reuse, % of blocks", of.reuse),
        ("zones of 12 MiB read", Some(zones.zones as f64)),
        ("in-sample, top 10% of zones, %", zones.in_sample[0]),
        ("in-sample, top 20%", zones.in_sample[1]),
        ("in-sample, top 30%", zones.in_sample[2]),
        ("in-sample by noise alone, top 20%", zones.null),
        ("theta, as it looks", zones.theta),
        ("learned, top 10% of zones, %", zones.learned[0]),
        ("learned, top 20%", zones.learned[1]),
        ("learned, top 30%", zones.learned[2]),
        ("learned, all zones", zones.learned_all),
        ("learned alternately, top 20%", zones.alternating),
        ("zone read before, %", zones.reactive),
        (
            "request read in first half, %",
            of.locality.request_proactive,
        ),
        (
            "request read in second half, %",
            of.locality.request_reactive,
        ),
    ]
}
