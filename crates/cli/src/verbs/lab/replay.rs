//! `replay`: a trace or a synthetic workload against an array, simulated or served over NBD.

use crate::arrays::setup::{heat, read_cache};
use crate::failure::{Failure, Outcome, failed_at};
use crate::print::skew::skew_words;
use crate::print::terminal::{out, outln};
use crate::units::{
    Rate, order_parser, parse_epoch, parse_rate, parse_size, parse_throttle, parse_time,
    parse_zone, rule_parser,
};
use crate::verbs::lab::provenance::provenance;
use clap::Args;
use restripe_array::cache::Rule;
use restripe_array::layout::{Level, Skew};
use restripe_array::{Moves, Order, Throttle, shown};
use restripe_io::nbd_wire::uri::{Endpoint, NbdUri};
use restripe_lab::experiment::cell::check_form;
use restripe_lab::experiment::choices::{level, schedule, write_hole};
use restripe_lab::experiment::requests::{generated, onto};
use restripe_lab::experiment::{figure, page};
use restripe_lab::generate::{Parameters, preset};
use restripe_lab::nbd::Address;
use restripe_lab::replay::facts::{CAUSES, Log, Phase};
use restripe_lab::replay::real::{self, Connect, Remote};
use restripe_lab::replay::simulated::replay;
use restripe_lab::replay::source::{Placed, Survey};
use restripe_lab::replay::stage::{ArrayPlan, Stage, member_bytes_max};
use restripe_lab::replay::{Deed, Pace, Plan, Script, Until, answer};
use restripe_lab::report::Table;
use restripe_lab::trace::{
    Item, Op, Options, Requests, Trace, TraceError, open, read_twice, shape,
};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

#[derive(Args, Debug)]
#[command(
    after_help = "Without --nbd the array is simulated: in virtual time, on drive models, without data.

What a rebuild does to a volume, from a blktrace of it: docs/tutorial/your-own-trace.md.

Examples: restripe replay sda --level raid5 --members 6 --drive wd1600aajs --fail-after 5m --rebuild-after 10m
          restripe replay --workload fin1 --requests 100000 --depth 16
          restripe replay sda --nbd 'nbd+unix:///tank?socket=/run/restripe/tank.nbd' --reads-only"
)]
pub(crate) struct Replay {
    /// The trace, in any format that `trace info` reads
    #[arg(value_name = "TRACE", required_unless_present = "workload")]
    pub trace: Option<PathBuf>,
    /// Replay this synthetic workload, such as fin1-high, instead of a trace
    #[arg(long, value_name = "NAME", conflicts_with = "trace")]
    pub workload: Option<String>,
    /// Seed of the workload and of the simulation
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Maximum number of requests [default: all of a trace; 100000 of a workload]
    #[arg(long, value_name = "N")]
    pub requests: Option<usize>,
    /// Open loop: divide the times of the trace by FACTOR
    #[arg(
        long,
        value_name = "FACTOR",
        default_value_t = 1.0,
        conflicts_with = "depth"
    )]
    pub speed: f64,
    /// Closed loop: hold N requests outstanding and ignore the times of the trace
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub depth: Option<u32>,
    /// Replay on a served array, given by its NBD URI, instead of a simulated one
    #[arg(long, value_name = "URI")]
    pub nbd: Option<String>,
    /// Skip every request that changes data
    #[arg(long)]
    pub reads_only: bool,
    /// Allow the replay to overwrite data of the served array
    #[arg(long)]
    pub overwrite: bool,
    #[arg(long, default_value = "raid5")]
    pub level: String,
    /// Number of members of the simulated array
    #[arg(long, default_value_t = 6)]
    pub members: u16,
    /// Divide the members into N skewed groups, as `create --groups` does (raid5, raid6, raid10)
    #[arg(long, value_name = "N", conflicts_with = "nbd")]
    pub groups: Option<u16>,
    /// With --groups: partitions of each member [default: the most that rebuild in parallel]
    #[arg(long, value_name = "N", requires = "groups")]
    pub partitions: Option<u16>,
    /// Chunk size of the simulated array
    #[arg(long, default_value = "64K", value_parser = parse_size)]
    pub chunk: u64,
    /// Drive model of the members: a name that `restripe sim-disk` lists, or file:PATH
    #[arg(long, default_value = "wd1600aajs")]
    pub drive: String,
    /// Bytes used of each member [default: as needed by the trace]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub member_size: Option<u64>,
    /// Protection against the write hole: none, bitmap, ppl or default
    #[arg(long, default_value = "default")]
    pub write_hole: String,
    /// Order of commands within a drive: fcfs, look or sptf
    #[arg(long, default_value = "look")]
    pub schedule: String,
    /// Switch the drives' write caches off
    #[arg(long)]
    pub no_write_cache: bool,
    /// Size of a read cache in front of the simulated array [default: 0]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "nbd")]
    pub cache: Option<u64>,
    /// Rule that chooses the block to evict from the read cache, as for `serve` [default: vdf-lfu]
    #[arg(long, value_name = "RULE", value_parser = rule_parser(), conflicts_with = "nbd")]
    pub cache_policy: Option<Rule>,
    /// Fail a member of the simulated array after TIME
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "nbd")]
    pub fail_after: Option<Duration>,
    /// Rebuild onto a blank drive, TIME after the failure
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "fail_after")]
    pub rebuild_after: Option<Duration>,
    /// Repeat the trace until the rebuild has ended, and then for the time of --fail-after
    #[arg(long, requires = "rebuild_after", conflicts_with = "requests")]
    pub repeat: bool,
    /// Lowest and highest speed of the rebuild, as MIN..MAX in bytes per second of one member
    #[arg(long, value_name = "RATE", default_value = "1M..200M", value_parser = parse_rate)]
    pub rebuild_rate: Rate,
    /// Throttle of the rebuild: restripe, md-2.6, md-6.1, md-2025, p99:TIME or finish:TIME
    #[arg(long, value_name = "NAME", default_value = "restripe", value_parser = parse_throttle)]
    pub throttle: Throttle,
    /// Order of the rebuild: by address (pr), most read since the rebuild started (pro), most read before it
    /// (ido), or by address with one row in flight (sor) or as many rows as buffers hold (dor) [default: pr]
    #[arg(long, value_name = "NAME", value_parser = order_parser(), conflicts_with = "nbd")]
    pub order: Option<Order>,
    /// Rebuild next what users read, whatever the order
    #[arg(long, conflicts_with = "nbd")]
    pub on_demand: bool,
    /// Size of a zone in which reads are counted for --order ido [default: 12M]
    #[arg(long, value_name = "SIZE", value_parser = parse_zone, conflicts_with = "nbd")]
    pub heat_zone: Option<u64>,
    /// Halve the read counts of zones after every TIME [default: 10m]
    #[arg(long, value_name = "TIME", value_parser = parse_epoch, conflicts_with = "nbd")]
    pub heat_epoch: Option<Duration>,
    /// Write the log of facts to FILE, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write an HTML report to FILE: summary, figures and tables
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Write the figures to FOLDER, as SVG
    #[arg(long, value_name = "FOLDER")]
    pub figures: Option<PathBuf>,
}

/// What a member has beyond what is asked for is not used; a trace never gets less than this.
const MEMBER_BYTES_MIN: u64 = 64 << 20;
const WORKLOAD_REQUESTS: usize = 100_000;
const STEP_NS: u64 = 1_000_000_000;
/// A rebuild that a replay waits for.
const REBUILD_NS_MAX: u64 = 30 * 24 * 3600 * 1_000_000_000;

pub(crate) fn run(verb: &Replay) -> Outcome {
    if !(1e-3..=1e6).contains(&verb.speed) {
        return Err(Failure::usage("--speed is between 0.001 and 1000000"));
    }
    // A long replay should not end in a file that cannot be written.
    for path in [&verb.json, &verb.report].into_iter().flatten() {
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        if folder.is_some_and(|folder| !folder.is_dir()) {
            return Err(Failure::new("its folder does not exist").at(path.display()));
        }
    }
    let replayed = match &verb.nbd {
        Some(uri) => on_nbd(verb, uri)?,
        None => on_stage(verb)?,
    };
    let log = &replayed.log;
    outln!("{}\n", shown(&replayed.array));
    out!("{}", phases(log).text());
    if log.phases.iter().any(|phase| phase.ios != [0; 4]) {
        out!("\nmember operations by cause\n{}", causes(log).text());
    }
    for happened in &log.happened {
        outln!(
            "{:>10.3} s  {}",
            happened.at_ns as f64 / 1e9,
            shown(&happened.what)
        );
    }
    outln!();
    replayed
        .said
        .iter()
        .for_each(|line| outln!("{}", shown(line)));
    save(verb, &replayed)
}

/// A replay that has ended: on what, what was recorded, and what that says.
struct Replayed {
    array: String,
    log: Log,
    said: Vec<String>,
}

// ------------------------------------------------------------------------------------------------------------ source

type Source = Box<dyn Iterator<Item = Item> + Send>;

fn name(verb: &Replay) -> String {
    match (&verb.workload, &verb.trace) {
        (Some(workload), _) => format!("synthetic workload {workload}, seed {}", verb.seed),
        (None, Some(path)) => path.display().to_string(),
        (None, None) => String::new(),
    }
}

/// The requests, placed within what `size` of the trace's needs says the array has.
fn source(verb: &Replay, survey: Option<&Survey>, size: u64) -> Outcome<Source> {
    let placed = match (&verb.workload, survey) {
        (Some(name), _) => {
            let parameters = parameters(name, size)?;
            generated(&parameters, size, verb.seed).map_err(Failure::new)?
        }
        (None, Some(survey)) => {
            let placing = survey
                .placed(size)
                .map_err(|error| Failure::new(error.to_string()))?;
            Placed::new(recorded(verb, survey)?, placing, size)
        }
        (None, None) => return Err(Failure::usage("a trace or a workload is required")),
    };
    let workload = verb.workload.is_some() && !verb.repeat;
    let most = verb.requests.or(workload.then_some(WORKLOAD_REQUESTS));
    let reads_only = verb.reads_only;
    let kept = placed.filter(move |item| wanted(item, reads_only));
    Ok(Box::new(kept.take(most.unwrap_or(usize::MAX))))
}

/// Whether a request is replayed; errors always are told.
fn wanted(item: &Item, reads_only: bool) -> bool {
    match item {
        Ok(request) => !request.is_void() && (!reads_only || request.op == Op::Read),
        Err(_) => true,
    }
}

/// A workload's parameters; its devices are scaled down if an array of `size` bytes does not have room for them.
fn parameters(name: &str, size: u64) -> Outcome<Parameters> {
    let unknown = || Failure::usage(preset::unknown(name));
    let found = preset::named(name).ok_or_else(unknown)?;
    let parameters = found.map_err(|error| Failure::new(error.to_string()))?;
    match extent(&parameters) > size {
        true => onto(parameters, size, 1.0).map_err(Failure::new),
        false => Ok(parameters),
    }
}

/// Bytes of all devices, end to end.
fn extent(parameters: &Parameters) -> u64 {
    let whole = |bytes: u64| bytes.next_multiple_of(1 << 20);
    parameters
        .devices
        .iter()
        .map(|device| whole(device.bytes))
        .sum()
}

fn trace(path: &Path) -> Result<Trace, TraceError> {
    let options = Options {
        sort: true,
        ..Options::default()
    };
    open(path, &options)
}

fn path(verb: &Replay) -> &Path {
    verb.trace.as_deref().unwrap_or(Path::new(""))
}

/// The trace's requests, once or without end.
fn recorded(verb: &Replay, survey: &Survey) -> Outcome<Requests> {
    if !verb.repeat {
        return Ok(Box::new(trace(path(verb))?));
    }
    let path = path(verb).to_path_buf();
    let reads_only = verb.reads_only;
    // A round in which nothing is left ends the trace; what is left out later would leave rounds without end.
    let round = move || -> Result<Requests, TraceError> {
        Ok(Box::new(
            trace(&path)?.filter(move |item| wanted(item, reads_only)),
        ))
    };
    Ok(shape::repeat(round, survey.period_ns()))
}

/// What must be known of a trace before it is replayed; of a workload all is known.
fn survey(verb: &Replay) -> Outcome<Option<Survey>> {
    if verb.workload.is_some() {
        return Ok(None);
    }
    read_twice(path(verb))?;
    let trace = trace(path(verb))?;
    if !trace.features.times && verb.depth.is_none() {
        let failure = Failure::from(TraceError::timeless(path(verb)));
        return Err(failure.hint("replay it in a closed loop, with --depth"));
    }
    Ok(Some(Survey::of(trace)?))
}

fn needed(verb: &Replay, survey: Option<&Survey>) -> Outcome<u64> {
    match (survey, &verb.workload) {
        (Some(survey), _) => Ok(survey.bytes()),
        (None, Some(name)) => Ok(extent(&parameters(name, u64::MAX)?)),
        (None, None) => Ok(0),
    }
}

fn pace(verb: &Replay) -> Pace {
    match verb.depth {
        Some(depth) => Pace::Closed { depth },
        None => Pace::Open {
            speed_milli: (verb.speed * 1e3) as u64,
        },
    }
}

// ------------------------------------------------------------------------------------------------------------ worlds

fn on_stage(verb: &Replay) -> Outcome<Replayed> {
    let survey = survey(verb)?;
    let needed = needed(verb, survey.as_ref())?;
    let plan = plan(verb, needed)?;
    let mut stage = Stage::new(&plan, verb.seed).map_err(Failure::new)?;
    let mut source = source(verb, survey.as_ref(), stage.size_bytes)?;
    let script = Script {
        pace: pace(verb),
        plans: plans(verb),
        step_ns: STEP_NS,
    };
    let log = replay(&mut stage, &mut *source, &script).map_err(Failure::new)?;
    Ok(Replayed {
        array: simulated(verb, &plan),
        said: answer::sentences(&log, plan.member_bytes),
        log,
    })
}

fn simulated(verb: &Replay, plan: &ArrayPlan) -> String {
    format!(
        "Simulated: {}, {} members, {}{} MiB used of each, chunk {} KiB, drives {}, write cache {}, schedule {}, \
         rebuild at {} to {} MB/s.",
        verb.level,
        plan.members,
        skew_words(plan.members, plan.skew),
        plan.member_bytes >> 20,
        plan.chunk_sectors / 2,
        plan.drive,
        if plan.write_cache { "on" } else { "off" },
        verb.schedule,
        plan.rebuild_min / 1_000_000,
        plan.rebuild_max / 1_000_000,
    )
}

fn plan(verb: &Replay, needed: u64) -> Outcome<ArrayPlan> {
    let level = level(&verb.level).map_err(Failure::usage)?;
    let skew = skew(verb);
    let own = needed_of_each(verb, level, skew, needed).max(MEMBER_BYTES_MIN);
    // A trace that reaches further than the drives do is placed without what it does not touch.
    let own = own.min(member_bytes_max(&verb.drive).map_err(Failure::usage)?);
    let chunk =
        u32::try_from(verb.chunk / 512).map_err(|_| Failure::usage("the chunk is too large"))?;
    if chunk == 0 {
        return Err(Failure::usage("a chunk has at least 512 bytes"));
    }
    let plan = ArrayPlan {
        level,
        skew,
        grown: None,
        spare_partitions: 0,
        members: verb.members,
        spares: 0,
        chunk_sectors: chunk,
        member_bytes: verb.member_size.unwrap_or(own),
        write_hole: write_hole(&verb.write_hole, level).map_err(Failure::usage)?,
        drive: verb.drive.clone(),
        spare_drive: None,
        schedule: schedule(&verb.schedule).map_err(Failure::usage)?,
        write_cache: !verb.no_write_cache,
        region_rows: None,
        standby_ns: None,
        cache: read_cache(verb.cache.unwrap_or(0), verb.cache_policy)?,
        throttle: verb.throttle,
        order: verb.order.unwrap_or_default(),
        on_demand: verb.on_demand,
        moves: Moves::default(),
        heat: heat(verb.heat_zone, verb.heat_epoch),
        rebuild_min: verb.rebuild_rate.min,
        rebuild_max: verb.rebuild_rate.max,
        surrogate: None,
    };
    check_form(&plan).map_err(Failure::usage)?;
    Ok(plan)
}

fn skew(verb: &Replay) -> Option<Skew> {
    let groups = verb.groups?;
    let most = Skew::with_most_partitions(groups, verb.members);
    let partitions = verb.partitions.unwrap_or(most.partitions);
    Some(Skew { groups, partitions })
}

/// Bytes of each member for so many of the array, and what rounding to chunks and partitions may leave unused.
fn needed_of_each(verb: &Replay, level: Level, skew: Option<Skew>, needed: u64) -> u64 {
    // Cells of a row, and how many of them hold distinct data.
    let cells = skew.map_or(verb.members, |skew| skew.groups);
    let (data, cells) = match level {
        Level::Raid0 => (cells, cells),
        Level::Raid1 => (1, cells),
        Level::Raid10 { copies } => (1, u16::from(copies)),
        _ => (cells.saturating_sub(level.parities()), cells),
    };
    let cut = skew.map_or(0, |skew| skew.partitions.saturating_sub(1));
    let rounding = (4 << 20) + verb.chunk.saturating_mul(u64::from(cut));
    let rows = needed.div_ceil(u64::from(data.max(1)));
    let of_all = rows.saturating_mul(u64::from(cells));
    let of_each = of_all.div_ceil(u64::from(verb.members.max(1)));
    of_each.saturating_add(rounding)
}

fn plans(verb: &Replay) -> Vec<Plan> {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 4);
    let Some(fail) = verb.fail_after else {
        return vec![Plan::new("all", Deed::Nothing, Until::Exhausted)];
    };
    let mut plans = vec![Plan::new("before", Deed::Nothing, Until::Passed(ns(fail)))];
    match verb.rebuild_after {
        None => plans.push(Plan::new("degraded", Deed::Fail(0), Until::Exhausted)),
        Some(wait) => {
            let (until, rebuilt) = (Until::Passed(ns(wait)), Until::Rebuilt(REBUILD_NS_MAX));
            plans.push(Plan::new("degraded", Deed::Fail(0), until));
            plans.push(Plan::new("during", Deed::Spare, rebuilt));
            let after = match verb.repeat {
                true => Until::Passed(ns(fail)),
                false => Until::Exhausted,
            };
            plans.push(Plan::new("after", Deed::Nothing, after));
        }
    }
    plans
}

fn on_nbd(verb: &Replay, uri: &str) -> Outcome<Replayed> {
    if !verb.reads_only && !verb.overwrite {
        let what = "a replay overwrites data of the array";
        return Err(Failure::usage(what).hint("pass --overwrite to allow it, or --reads-only"));
    }
    let parsed = NbdUri::parse(uri).map_err(|error| Failure::usage(error.to_string()).at(uri))?;
    if parsed.is_secure() {
        let what = "a replay is sent in clear text, and this URI asks for TLS";
        return Err(Failure::usage(what)
            .at(uri)
            .hint("use a Unix socket of this host"));
    }
    let address = match parsed.endpoint {
        Endpoint::Unix(path) => Address::Unix(path),
        Endpoint::Tcp { host, port } => Address::Tcp(format!("{host}:{port}")),
    };
    let remote = Remote {
        address,
        export: parsed.export,
    };
    let failed = |error: String| Failure::new(error).at(uri);
    let size = remote.connect().map_err(failed)?.size_bytes();
    let survey = survey(verb)?;
    let source = source(verb, survey.as_ref(), size)?;
    let log = real::replay(&remote, source, pace(verb), STEP_NS).map_err(failed)?;
    Ok(Replayed {
        array: format!("Served: {} MiB at {uri}.", size >> 20),
        said: answer::sentences(&log, 0),
        log,
    })
}

// ------------------------------------------------------------------------------------------------------------- shown

fn phases(log: &Log) -> Table {
    let mut table =
        Table::new("phase|seconds|requests|per s|mean ms|p50|p95|p99|longest|held|failed|busy %");
    for phase in &log.phases {
        let seconds = phase.length_ns() as f64 / 1e9;
        let ms = |ns: u64| format!("{:.2}", ns as f64 / 1e6);
        let busy: u64 = phase.busy_ns.iter().sum();
        let members = phase.busy_ns.len().max(1) as f64;
        let times = &phase.times;
        table.row([
            phase.name.clone(),
            format!("{seconds:.1}"),
            times.count.to_string(),
            format!("{:.1}", times.count as f64 / seconds.max(1e-9)),
            ms(times.mean_ns),
            ms(times.p50_ns),
            ms(times.p95_ns),
            ms(times.p99_ns),
            ms(times.max_ns),
            phase.held.to_string(),
            phase.failed.to_string(),
            match phase.busy_ns.is_empty() {
                true => "-".into(),
                false => format!("{:.1}", busy as f64 / 1e7 / seconds.max(1e-9) / members),
            },
        ]);
    }
    table
}

fn causes(log: &Log) -> Table {
    let heading = std::iter::once("phase").chain(CAUSES).map(String::from);
    let row = |phase: &Phase| {
        let counts = phase.ios.iter().map(u64::to_string);
        std::iter::once(phase.name.clone()).chain(counts).collect()
    };
    Table {
        heading: heading.collect(),
        rows: log.phases.iter().map(row).collect(),
    }
}

fn unwritable(path: &Path) -> impl Fn(io::Error) -> Failure {
    failed_at("cannot be written", path)
}

fn save(verb: &Replay, replayed: &Replayed) -> Outcome {
    let log = &replayed.log;
    if let Some(path) = &verb.json {
        let text = serde_json::to_string(log).map_err(|error| Failure::new(error.to_string()))?;
        fs::write(path, text).map_err(unwritable(path))?;
    }
    let figures = figure::of_run(log);
    if let Some(folder) = &verb.figures {
        fs::create_dir_all(folder).map_err(unwritable(folder))?;
        for picture in &figures {
            let path = folder.join(format!("{}.svg", picture.name));
            fs::write(&path, picture.plot.alone()).map_err(unwritable(&path))?;
        }
    }
    if let Some(path) = &verb.report {
        let (phases, causes) = (phases(log), causes(log));
        let tables = [
            ("By phase", &phases),
            ("Member operations by cause", &causes),
        ];
        let mut lead = vec![format!("Replayed: {}.", name(verb)), replayed.array.clone()];
        lead.extend(replayed.said.iter().cloned());
        let title = format!("Replay of {}", name(verb));
        let page = page::html(&title, &lead, &provenance(), &figures, &tables);
        fs::write(path, page).map_err(unwritable(path))?;
    }
    Ok(())
}
