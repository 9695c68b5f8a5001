//! `cache-sim`: caches alone, on a trace or a synthetic workload, side by side.

use crate::failure::{Failure, Outcome, failed};
use crate::print::terminal::{Progress, out, outln};
use crate::units::{Size, parse_size, rule_parser, seconds};
use crate::verbs::lab::trace::args::TraceInput;
use crate::verbs::lab::trace::files::Input;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use restripe_array::cache::{Rule, Ties};
use restripe_lab::cache::{
    CacheError, Members, Outcome as Result, Rebuild, Setup, grid, rebuild_seconds, simulate,
};
use restripe_lab::experiment::choices::level;
use restripe_lab::experiment::scenario::Scale;
use restripe_lab::generate::{Generator, preset};
use restripe_lab::report::Table;
use restripe_lab::trace::{BLOCK_BYTES, Order, Requests, read_twice};
use serde::Serialize;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Blocks of a simulated cache at most: a terabyte.
const BLOCKS_MAX: i64 = 1 << 28;

#[derive(Args, Debug)]
#[command(
    override_usage = "restripe cache-sim [OPTIONS] <FILE>
       restripe cache-sim [OPTIONS] --workload <NAME>
       restripe cache-sim --grid <NAME> [--scale <SCALE>] [--traces <FOLDER>] [--csv <FILE>]",
    after_help = "RGR is the paper's request generation ratio: blocks read from the surviving disks per requested block.
GAIN is the reduction of these reads by a VDF rule, compared with the rule that it extends.

Examples: restripe cache-sim web.spc --disks 8 --failed 0 --blocks 131072,262144,524288
          restripe cache-sim --workload web2 --requests 1000000 --level raid6 --failed 0,3
          restripe cache-sim web.spc --failed 0 --rebuild 0.2..0.8 --follow-rebuild"
)]
pub(crate) struct CacheSim {
    #[command(flatten)]
    pub input: CacheInput,
    /// RAID level of the array behind the cache
    #[arg(long, default_value = "raid5")]
    pub level: String,
    /// Number of disks of the array
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub disks: u16,
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64K", help = "Chunk size of the array")]
    pub chunk: u64,
    /// Failed disks, counted from 0 [default: none]
    #[arg(long, value_name = "DISK,...", value_delimiter = ',')]
    pub failed: Vec<u16>,
    /// Cache sizes to simulate, in blocks of 4 KiB
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "262144", value_parser = clap::value_parser!(u32).range(1..=BLOCKS_MAX))]
    pub blocks: Vec<u32>,
    /// Eviction rules to simulate
    #[arg(long, value_name = "RULE,...", value_delimiter = ',', value_parser = rule_parser(), default_values = ["lru", "vdf-lru", "lfu", "vdf-lfu"])]
    pub policy: Vec<Rule>,
    /// Number of block accesses before counting starts
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub warm_up: u64,
    /// Also access written blocks; by default only read blocks, as in the paper
    #[arg(long)]
    pub writes: bool,
    /// Which of two blocks of equal weight is evicted
    #[arg(long, value_parser = ties(), default_value = "oldest")]
    pub ties: Ties,
    /// Rebuild the failed disks during this part of the trace, as in 0.2..0.8
    #[arg(long, value_name = "FROM..TO", value_parser = parse_shares, requires = "failed")]
    pub rebuild: Option<(f64, f64)>,
    /// Let the cache track which rows are rebuilt; the cache of the paper does not
    #[arg(long, requires = "rebuild")]
    pub follow_rebuild: bool,
    /// Bandwidth of the surviving disks in bytes per second, to compute the rebuild time
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires_all = ["user_rate", "to_read"])]
    pub bandwidth: Option<u64>,
    /// Bytes per second that users request from the cache
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "bandwidth")]
    pub user_rate: Option<u64>,
    /// Bytes that the rebuild reads from the surviving disks: their number × the lost capacity
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "bandwidth")]
    pub to_read: Option<u64>,
    /// Run a grid of caches, built in or from a file, compared by paired seeds
    #[arg(long, value_name = "NAME", conflicts_with_all = OF_ONE_TRACE)]
    pub grid: Option<String>,
    /// Scale of the grid: whole, quick or short [default: whole]
    #[arg(long, value_name = "SCALE", value_parser = ["whole", "quick", "short"])]
    pub scale: Option<String>,
    /// Folder with the grid's traces [default: ../shared/traces]
    #[arg(long, value_name = "FOLDER")]
    pub traces: Option<PathBuf>,
    /// With --grid: write one line per run to FILE
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What a grid sets itself.
const OF_ONE_TRACE: [&str; 24] = [
    "file",
    "format",
    "action",
    "block_size",
    "skip_bad",
    "sort",
    "workload",
    "seed",
    "requests",
    "level",
    "disks",
    "chunk",
    "failed",
    "blocks",
    "policy",
    "warm_up",
    "writes",
    "ties",
    "rebuild",
    "follow_rebuild",
    "bandwidth",
    "user_rate",
    "to_read",
    "json",
];

impl CacheSim {
    /// What only a grid has. The parser would not miss the grid beside a trace, since the two exclude each other.
    fn only_of_a_grid(&self) -> Option<&'static str> {
        let said = [
            ("--scale", self.scale.is_some()),
            ("--traces", self.traces.is_some()),
            ("--csv", self.csv.is_some()),
        ];
        let found = said.into_iter().find(|(_, said)| *said);
        found.map(|(name, _)| name)
    }
}

/// What is asked for.
#[derive(Args, Debug)]
pub(crate) struct CacheInput {
    #[command(flatten)]
    pub trace: Option<TraceInput>,
    /// Simulate this synthetic workload, such as web2-high, instead of a trace
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    pub workload: Option<String>,
    /// Seed of the workload
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Maximum number of requests [default: all of a trace; 1000000 of a workload]
    #[arg(long, value_name = "N")]
    pub requests: Option<usize>,
}

const WORKLOAD_REQUESTS: usize = 1_000_000;
/// Beside a clone of this project.
pub(crate) const TRACES: &str = "../shared/traces";

pub(crate) fn run(verb: &CacheSim) -> Outcome {
    if let Some(name) = &verb.grid {
        return run_grid(verb, name);
    }
    if let Some(option) = verb.only_of_a_grid() {
        let what = format!("{option} requires a grid");
        return Err(Failure::usage(what).hint("pass --grid NAME as well"));
    }
    let setup = setup(verb)?;
    let results = outcomes(verb, &setup)?;
    if verb.warm_up > 0 && results.iter().all(|result| result.asked == 0) {
        let what = format!(
            "--warm-up {} is not below the total number of accesses, so none would be counted",
            verb.warm_up
        );
        return Err(Failure::usage(what).hint("use a smaller --warm-up, or more --requests"));
    }
    if verb.json {
        let text = serde_json::to_string_pretty(&json(verb, &results));
        outln!("{}", text.map_err(failed("the results cannot be written"))?);
    } else {
        print(verb, &results);
    }
    Ok(())
}

fn run_grid(verb: &CacheSim, name: &str) -> Outcome {
    let scenario = grid::load(name).map_err(Failure::usage)?;
    let scale = match verb.scale.as_deref() {
        Some("short") => Scale::Short,
        Some("quick") => Scale::Quick,
        _ => Scale::Whole,
    };
    let traces = verb.traces.as_deref().unwrap_or(Path::new(TRACES));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let line = Mutex::new(Progress::new());
    let progress = |done: usize, all: usize| {
        let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
        line.show(&format!("{done} of {all} passes"));
    };
    let run = grid::run(scenario.clone(), scale, traces, threads, &progress);
    drop(line);
    let cells = run.map_err(|error| match traces.is_dir() {
        true => Failure::new(error),
        false => Failure::new(error).hint("pass the folder of the grid's traces: --traces FOLDER"),
    })?;
    if let Some(path) = &verb.csv {
        std::fs::write(path, grid::csv(&scenario, &cells))
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    }
    out!("{}", grid::table(&scenario, &cells));
    Ok(())
}

fn setup(verb: &CacheSim) -> Outcome<Setup> {
    let sizes = verb.blocks.iter();
    Ok(Setup {
        members: Members {
            level: level(&verb.level).map_err(Failure::usage)?,
            count: verb.disks,
            chunk_bytes: verb.chunk,
            failed: verb.failed.clone(),
        },
        block_bytes: BLOCK_BYTES,
        contenders: sizes
            .flat_map(|&blocks| verb.policy.iter().map(move |&rule| (rule, blocks)))
            .collect(),
        ties: verb.ties,
        warm_up: verb.warm_up,
        writes: verb.writes,
        rebuild: verb.rebuild.map(|(from, to)| Rebuild {
            from,
            to,
            followed: verb.follow_rebuild,
        }),
        weight: None,
    })
}

fn outcomes(verb: &CacheSim, setup: &Setup) -> Outcome<Vec<Result>> {
    let input = &verb.input;
    let found = match (&input.workload, &input.trace) {
        (Some(name), _) => {
            let unknown = || Failure::usage(preset::unknown(name));
            let parameters = preset::named(name).ok_or_else(unknown)?;
            let parameters = parameters.map_err(|error| Failure::new(error.to_string()))?;
            // Refused before the simulation begins, so that it can only succeed in it.
            let fresh = || Generator::new(&parameters, input.seed);
            fresh().map_err(|error| Failure::new(error.to_string()))?;
            simulate(setup, || {
                let generator = fresh().expect("made a moment ago");
                let most = input.requests.unwrap_or(WORKLOAD_REQUESTS);
                Ok(Box::new(generator.map(Ok).take(most)) as Requests)
            })
        }
        (None, Some(trace)) => {
            read_twice(&trace.file)?;
            let mut file = Input::of(trace)?;
            let found = simulate(setup, || {
                let (_, _, requests) = file.open(Order::AsRecorded)?;
                let most = input.requests.unwrap_or(usize::MAX);
                Ok(Box::new(requests.take(most)) as Requests)
            });
            file.tell_skipped();
            found
        }
        (None, None) => return Err(Failure::usage("a trace or a workload is required")),
    };
    found.map_err(|error| match error {
        CacheError::Trace(error) => error.into(),
        error @ CacheError::Changed => Failure::new(error.to_string()),
        other => Failure::usage(other.to_string()),
    })
}

/// How much less than its base rule a VDF rule asks of the disks, if both ran at this size.
fn gain(results: &[Result], of: &Result) -> Option<f64> {
    let base = of.rule.strip_prefix("vdf-")?;
    let mut others = results.iter().filter(|other| other.blocks == of.blocks);
    let base = others.find(|other| other.rule == base)?;
    (base.reads > 0).then(|| 1.0 - of.rgr() / base.rgr())
}

fn duration(verb: &CacheSim, of: &Result) -> Option<Option<f64>> {
    let (bandwidth, user, read) = (verb.bandwidth?, verb.user_rate?, verb.to_read?);
    let [read, bandwidth, user] = [read, bandwidth, user].map(|bytes| bytes as f64);
    Some(rebuild_seconds(read, bandwidth, user, of.rgr()))
}

fn print(verb: &CacheSim, results: &[Result]) {
    let mut table = Table::new("RULE|BLOCKS|CACHE|ASKED|MISSED|OF FAILED|RGR|GAIN|REBUILD");
    for result in results {
        let rebuild = duration(verb, result).map_or("-".into(), |found| {
            found.map_or("never".into(), |found| seconds(found.round() as u64))
        });
        table.row([
            result.rule.to_string(),
            result.blocks.to_string(),
            Size(u64::from(result.blocks) * BLOCK_BYTES).to_string(),
            result.asked.to_string(),
            percent(result.miss_ratio()),
            percent(result.misses_failed as f64 / result.asked.max(1) as f64),
            format!("{:.4}", result.rgr()),
            gain(results, result).map_or("-".into(), percent),
            rebuild,
        ]);
    }
    if let Some(name) = &verb.input.workload {
        outln!("synthetic workload {name}, seed {}", verb.input.seed);
    }
    out!("{}", table.text());
}

fn percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

/// A result with what is derived from it.
#[derive(Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    outcome: &'a Result,
    miss_ratio: f64,
    rgr: f64,
    gain: Option<f64>,
    rebuild_seconds: Option<f64>,
}

pub(crate) fn json(verb: &CacheSim, results: &[Result]) -> serde_json::Value {
    let row = |outcome| Row {
        outcome,
        miss_ratio: outcome.miss_ratio(),
        rgr: outcome.rgr(),
        gain: gain(results, outcome),
        rebuild_seconds: duration(verb, outcome).flatten(),
    };
    let rows: Vec<Row> = results.iter().map(row).collect();
    json!({
        "synthetic": verb.input.workload.is_some(),
        "workload": verb.input.workload,
        "seed": verb.input.workload.as_ref().map(|_| verb.input.seed),
        "trace": verb.input.trace.as_ref().map(|trace| trace.file.display().to_string()),
        "requests": verb.input.requests.or(verb.input.workload.as_ref().map(|_| WORKLOAD_REQUESTS)),
        "writes": verb.writes,
        "warm_up": verb.warm_up,
        "ties": verb.ties.name(),
        "rebuild": verb.rebuild.map(|(from, to)| json!({
            "from": from,
            "to": to,
            "followed": verb.follow_rebuild,
        })),
        "level": verb.level,
        "disks": verb.disks,
        "chunk_bytes": verb.chunk,
        "block_bytes": BLOCK_BYTES,
        "failed": verb.failed,
        "results": rows,
    })
}

fn ties() -> impl TypedValueParser<Value = Ties> {
    PossibleValuesParser::new(Ties::ALL.map(Ties::name))
        .map(|name| Ties::named(&name).expect("one of those"))
}

/// `0.2..0.8`: shares of a whole, in order.
fn parse_shares(text: &str) -> std::result::Result<(f64, f64), String> {
    let wrong = || format!("{text:?} is not FROM..TO, such as 0.2..0.8");
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let share = |text: &str| text.parse().map_err(|_| wrong());
    let (from, to): (f64, f64) = (share(from)?, share(to)?);
    if !(0.0..=1.0).contains(&from) || !(from..=1.0).contains(&to) || from == to {
        return Err(wrong());
    }
    Ok((from, to))
}
