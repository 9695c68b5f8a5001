//! `lab fit-disk`: fits a drive's parameters to a trace of it, and says how well the model then keeps to the drive.

use crate::failure::{Failure, Outcome, failed_at};
use crate::print::terminal::outln;
use clap::Args;
use restripe_array::shown;
use restripe_lab::drives::score::{Score, replay, score};
use restripe_lab::drives::source::{Measured, trace};
use restripe_lab::drives::{disksim, fit, preset};
use restripe_sim::disk::mechanical::Drive;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Args, Debug)]
pub(crate) struct FitDisk {
    /// The drive's DiskSim .model file, with .diskspecs and .seek in the same folder; may be repeated
    #[arg(long, value_name = "FILE", required = true)]
    pub model: Vec<PathBuf>,
    /// A validation trace of the drive; once for each --model
    #[arg(long, value_name = "FILE", required = true)]
    pub trace: Vec<PathBuf>,
    /// Write the fitted drive to FILE, for array.drive=file:FILE and --drive file:FILE; with one --model
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Overwrite FILE if it exists
    #[arg(long, requires = "output")]
    pub force: bool,
    /// Print the fitted values
    #[arg(long)]
    pub verbose: bool,
}

pub(crate) fn run(verb: &FitDisk) -> Outcome {
    if verb.model.len() != verb.trace.len() {
        return Err(Failure::usage("each --model needs a --trace"));
    }
    if verb.output.is_some() && verb.model.len() > 1 {
        return Err(Failure::usage("--output takes the drive of one --model"));
    }
    // All is read before anything is said: fitting takes a while, and what is wrong should not be found behind it.
    let mut read = Vec::new();
    for (model, path) in verb.model.iter().zip(&verb.trace) {
        let drive = disksim::load(model).map_err(Failure::new)?;
        let text =
            std::fs::read_to_string(path).map_err(failed_at("the trace cannot be read", path))?;
        let measured = trace(&text).map_err(|e| Failure::new(e).at(path.display()))?;
        read.push((model, path, drive, measured));
    }
    outln!(
        "{:<28} {:>9} {:>9} {:>11} {:>11}",
        "drive, requests",
        "mean ms",
        "model ms",
        "demerit %",
        "request %"
    );
    for (model, path, drive, measured) in read {
        let fitted = fit_one(verb, model, &drive, &measured);
        let fitted = fitted.map_err(|e| Failure::new(e).at(path.display()))?;
        if let Some(file) = &verb.output {
            write(file, verb.force, &name_of(model), path, &fitted)?;
        }
    }
    outln!(
        "fitted on the first {}% of each trace; demerit and request error as shares of the measured mean",
        fit::TRAINING_PERCENT
    );
    Ok(())
}

type Fit = Result<Drive, String>;

fn fit_one(verb: &FitDisk, model: &Path, drive: &Drive, measured: &[Measured]) -> Fit {
    let training = fit::training(measured);
    let fitted = fit::fit(drive, training)?;
    let name = name_of(model);
    let times = replay(drive, measured)?;
    let cut = training.len();
    let described = score(&measured[cut..], &times[cut..]);
    print_score(&format!("{name}, as described"), &described);
    let times = replay(&fitted.drive, measured)?;
    let (fitted_on, scored_on) = (&times[..cut], score(&measured[cut..], &times[cut..]));
    print_score(&format!("{name}, fitted on"), &score(training, fitted_on));
    print_score(&format!("{name}, scored on"), &scored_on);
    if verb.verbose {
        let drive = &fitted.drive;
        let parts = (&drive.mechanism, &drive.bus, &drive.overheads, &drive.cache);
        outln!("{parts:#?}");
    }
    Ok(fitted.drive)
}

fn name_of(model: &Path) -> String {
    let stem = model.file_stem().map(|stem| stem.to_string_lossy());
    stem.unwrap_or("drive".into()).into_owned()
}

fn write(file: &Path, force: bool, name: &str, trace: &Path, drive: &Drive) -> Outcome {
    let trace = trace.file_name().unwrap_or_default().to_string_lossy();
    let summary = format!("fitted to {trace}");
    let text = preset::described(name, &summary, drive).map_err(Failure::new)?;
    let mut open = fs::File::options();
    let open = open
        .write(true)
        .create(true)
        .truncate(true)
        .create_new(!force);
    let mut file_of = open
        .open(file)
        .map_err(failed_at("the drive cannot be written", file))?;
    file_of
        .write_all(text.as_bytes())
        .map_err(failed_at("the drive cannot be written", file))
}

fn print_score(name: &str, score: &Score) {
    outln!(
        "{:<28} {:>9.3} {:>9.3} {:>11.2} {:>11.2}",
        shown(name).to_string(),
        score.measured_mean_ns / 1e6,
        score.model_mean_ns / 1e6,
        score.demerit * 100.0,
        score.request_error * 100.0
    );
}
