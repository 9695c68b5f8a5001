//! Verbs of `restripe trace`.

use crate::units::{parse_size, parse_time};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args, Debug)]
#[command(
    after_help = "A trace is a file (uncompressed, .gz, .xz or .zst), a tar archive or a folder of blktrace's files, or
the common prefix of these files. The format is detected from the content; --format overrides it.

Example: restripe trace info sda"
)]
pub(crate) struct Trace {
    #[command(subcommand)]
    pub verb: TraceVerb,
}

#[derive(Subcommand, Debug)]
pub(crate) enum TraceVerb {
    /// Print sizes, rates, burstiness, footprint, reuse, locality, and a heat map
    Info(TraceInfo),
    /// Write a trace in another format
    Convert(TraceConvert),
    /// Extract a part of a trace, by time, request number or device
    Slice(TraceSlice),
    /// Make a trace faster or slower
    Scale(TraceScale),
    /// Map all devices into one address space, or all addresses into a capacity
    Remap(TraceRemap),
    /// Generate a synthetic trace from a named workload or from your own parameters
    Generate(TraceGenerate),
    /// Derive a workload's parameters from a trace, and show both side by side
    Fit(TraceFit),
    /// List the formats
    Formats,
}

#[derive(Args, Debug, Clone)]
pub(crate) struct TraceInput {
    /// The trace
    pub file: PathBuf,
    /// Read the trace as this format instead of detecting it
    #[arg(long, value_name = "NAME")]
    pub format: Option<String>,
    /// Event that is counted as a request, for blktrace and blkparse: Q, I, D or C [default: Q if present,
    /// else D]
    #[arg(long, value_name = "LETTER")]
    pub action: Option<char>,
    /// Block size of lists of addresses
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "4K")]
    pub block_size: u64,
    /// Skip unreadable records, and count them
    #[arg(long)]
    pub skip_bad: bool,
    /// Sort requests by time
    #[arg(long)]
    pub sort: bool,
}

#[derive(Args, Debug, Clone)]
pub(crate) struct TraceOutput {
    /// The file to write
    pub output: PathBuf,
    /// The format to write [default: rtrace]
    #[arg(long, value_name = "NAME")]
    pub to: Option<String>,
    /// Overwrite an existing file
    #[arg(long)]
    pub force: bool,
}

#[derive(Args, Debug)]
pub(crate) struct TraceGenerate {
    /// The workload: a name such as fin1-mid, or a TOML file; without it, the names are listed
    pub workload: Option<String>,
    /// Number of requests
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub requests: u64,
    /// Seed; the same seed gives the same trace
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The file to write
    #[arg(long, short, value_name = "FILE", requires = "workload")]
    pub output: Option<PathBuf>,
    /// The format to write [default: rtrace]
    #[arg(long, value_name = "NAME")]
    pub to: Option<String>,
    /// Overwrite an existing file
    #[arg(long)]
    pub force: bool,
    /// Print the workload's parameters and their sources instead of a trace
    #[arg(long, conflicts_with_all = ["output", "to", "force"], requires = "workload")]
    pub parameters: bool,
}

#[derive(Args, Debug)]
pub(crate) struct TraceFit {
    #[command(flatten)]
    pub input: TraceInput,
    /// Write the parameters to this file, for `trace generate`
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Overwrite an existing file
    #[arg(long)]
    pub force: bool,
    /// Print the parameters and both summaries as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct TraceInfo {
    #[command(flatten)]
    pub input: TraceInput,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct TraceConvert {
    #[command(flatten)]
    pub input: TraceInput,
    #[command(flatten)]
    pub output: TraceOutput,
}

#[derive(Args, Debug)]
pub(crate) struct TraceSlice {
    #[command(flatten)]
    pub input: TraceInput,
    #[command(flatten)]
    pub output: TraceOutput,
    /// Start at this time after the first request
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub from: Option<Duration>,
    /// End at this time after the first request
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub until: Option<Duration>,
    /// Select a range of the remaining requests by number from 0, as FIRST..END
    #[arg(long, value_name = "RANGE", value_parser = parse_numbers)]
    pub requests: Option<(u64, Option<u64>)>,
    /// Select the requests of one device
    #[arg(long, value_name = "NUMBER")]
    pub device: Option<u32>,
}

#[derive(Args, Debug)]
pub(crate) struct TraceScale {
    #[command(flatten)]
    pub input: TraceInput,
    #[command(flatten)]
    pub output: TraceOutput,
    /// Multiply all times: 0.5 makes the trace twice as fast
    #[arg(long, value_name = "FACTOR")]
    pub time: Option<f64>,
    /// Multiply the offered rate: 2 makes the trace twice as fast
    #[arg(long, value_name = "FACTOR")]
    pub rate: Option<f64>,
    /// Set the average number of reads and writes per second
    #[arg(long, value_name = "N")]
    pub iops: Option<f64>,
}

#[derive(Args, Debug)]
pub(crate) struct TraceRemap {
    #[command(flatten)]
    pub input: TraceInput,
    #[command(flatten)]
    pub output: TraceOutput,
    /// Place the devices one after another in one address space
    #[arg(long)]
    pub fold: bool,
    /// Alignment of the start of each folded device
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "24M")]
    pub align: u64,
    /// Map every request into this capacity
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub capacity: Option<u64>,
    /// How addresses are mapped into the capacity
    #[arg(long, value_enum, default_value_t)]
    pub fit: FitName,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum FitName {
    /// Modulo the capacity
    #[default]
    Wrap,
    /// In proportion
    Shrink,
}

/// `100..200`, `..200`, `100..`: where it begins, and how many.
fn parse_numbers(text: &str) -> Result<(u64, Option<u64>), String> {
    let wrong = || format!("{text:?} is not FIRST..END, such as 0..1000");
    let (first, end) = text.split_once("..").ok_or_else(wrong)?;
    let number = |side: &str| side.parse::<u64>().map_err(|_| wrong());
    let first = if first.is_empty() { 0 } else { number(first)? };
    if end.is_empty() {
        return Ok((first, None));
    }
    let count = number(end)?.checked_sub(first).ok_or_else(wrong)?;
    Ok((first, Some(count)))
}
