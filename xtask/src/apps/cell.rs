//! One run: drives, array, file system and server start on a copy of prepared members; the load warms up and is
//! measured; a member fails, and the load is measured until the rebuild ends; everything is checked and stopped.

use super::array::{Array, Operations, Restripe, copy_files};
use super::attach::{Mounted, Traffic};
use super::limit::Limit;
use super::pgbench::{Pgbench, Service, Transaction, within};
use super::plan::{Cell, Layout, Scale, Workload};
use super::postgres::Postgres;
use super::postmark::PostMark;
use super::results::Figures;
use super::tools::{Outcome, now, pause, write};
use super::undo::{Process, Undo};
use std::fs;
use std::path::{Path, PathBuf};

/// Seconds after the failure that are also measured by themselves. Where a load exceeds what an array can serve, requests
/// wait the longer the longer it lasts: then rebuilds of unequal lengths say little of each other's responses.
pub const FIRST_S: f64 = 15.0;

/// What every run needs to know of its surroundings.
pub struct Setting<'a> {
    pub scale: &'a Scale,
    /// The `restripe` command.
    pub binary: PathBuf,
    /// PostgreSQL's programs; unused by PostMark.
    pub programs: PathBuf,
    /// SQL and pgbench scripts.
    pub scripts: PathBuf,
    /// Prepared members are kept here.
    pub store: PathBuf,
}

/// Prepares the members of a workload on a layout, at the speed of the machine: a file system with full tables. Does
/// nothing if they are there.
pub fn prepare(setting: &Setting<'_>, workload: Workload, layout: Layout) -> Outcome<PathBuf> {
    let files = prepared(setting, workload, layout);
    let ready = files.join("ready");
    if ready.is_file() {
        return Ok(files);
    }
    // Whatever is there is half of it.
    let _ = fs::remove_dir_all(&files);
    let undo = Undo::start(&folder("prepare"))?;
    let restripe = Restripe::new(setting.binary.clone(), undo.folder());
    restripe.create(&files, layout, setting.scale)?;
    let array = restripe.serve_files(&undo, &files)?;
    let mounted = Mounted::new(&undo, &array.socket, true)?;
    if workload != Workload::PostMark {
        let postgres = Postgres::new(&undo, &setting.programs, &mounted.place)?;
        postgres.make()?;
        let server = postgres.start(&undo, setting.scale, None, false)?;
        postgres.fill(workload, setting.scale, &setting.scripts)?;
        server.end()?;
    }
    mounted.end()?;
    array.end()?;
    write(&ready, "")?;
    Ok(files)
}

pub fn prepared(setting: &Setting<'_>, workload: Workload, layout: Layout) -> PathBuf {
    let name = format!("{}.{}", workload.name(), layout.name());
    setting.store.join(name)
}

fn folder(name: &str) -> PathBuf {
    let process = std::process::id();
    std::env::temp_dir().join(format!("restripe-apps-{process}-{name}"))
}

/// Runs it and gives its figures.
pub fn run(setting: &Setting<'_>, cell: &Cell) -> Outcome<Figures> {
    let scale = setting.scale;
    let files = prepare(setting, cell.workload, cell.scheme.layout)?;
    let undo = Undo::start(&folder(&cell.name()))?;
    let drives = undo.folder().join("drives");
    copy_files(&files, &drives)?;
    let limit = Limit::new(&undo, scale.memory_mib)?;
    let restripe = Restripe::new(setting.binary.clone(), undo.folder());
    let array = restripe.serve_drives(&undo, &drives, &cell.scheme, scale)?;
    let mounted = Mounted::new(&undo, &array.socket, false)?;

    let mut figures = Figures::default();
    figures.number("load_before", load_average());
    let mut load = Load::start(&undo, setting, cell, &mounted.place, &limit)?;
    pause(u64::from(scale.warm_up_s) * 1000);
    let mark = |load: &Load| Mark::new(load, &mounted, &array);
    let healthy = mark(&load)?;
    pause(u64::from(scale.healthy_s) * 1000);
    load.check()?;
    let failed = mark(&load)?;
    let rebuilt = array.rebuild(f64::from(scale.rebuild_s), &mut || load.check())?;
    let over = mark(&load)?;
    figures.number("load_after", load_average());

    figures.number("rebuild_s", rebuilt.whole_s());
    figures.number("rebuild_share", rebuilt.share);
    let ended = load.end(cell.workload)?;
    for (name, from, to) in [("healthy", &healthy, &failed), ("rebuild", &failed, &over)] {
        served(&mut figures, name, &ended, from, to)?;
    }
    if let Some(all) = ended.filter(|_| over.at - failed.at >= FIRST_S) {
        let first = within(&all, failed.at, failed.at + FIRST_S)?;
        figures.number("first.mean_ms", first.mean_ms);
        figures.number("first.p99_ms", first.p99_ms);
    }
    drop(limit);
    mounted.end()?;
    array.end()?;
    Ok(figures)
}

/// A moment of a run.
struct Mark {
    at: f64,
    traffic: Traffic,
    operations: Operations,
    /// Moved by PostMark.
    bytes: u64,
}

impl Mark {
    fn new(load: &Load, mounted: &Mounted, array: &Array) -> Outcome<Mark> {
        Ok(Mark {
            at: now(),
            traffic: mounted.traffic()?,
            operations: array.operations()?,
            bytes: match load {
                Load::PostMark(postmark) => postmark.bytes()?,
                Load::Tables(_) => 0,
            },
        })
    }
}

/// What the load had between two moments.
fn served(
    figures: &mut Figures,
    name: &str,
    transactions: &Option<Vec<Transaction>>,
    from: &Mark,
    to: &Mark,
) -> Outcome<()> {
    let seconds = to.at - from.at;
    let mut number = |what: &str, value: f64| figures.number(&format!("{name}.{what}"), value);
    let (reads, read_ms) = to.traffic.reads_since(&from.traffic);
    let (writes, write_ms) = to.traffic.writes_since(&from.traffic);
    number("device_reads_per_second", reads / seconds);
    number("device_read_ms", read_ms);
    number("device_writes_per_second", writes / seconds);
    number("device_write_ms", write_ms);
    number(
        "operations_per_request",
        to.operations.each_since(&from.operations),
    );
    match transactions {
        Some(all) => {
            let Service {
                per_second,
                mean_ms,
                p99_ms,
            } = within(all, from.at, to.at)?;
            number("per_second", per_second);
            number("mean_ms", mean_ms);
            number("p99_ms", p99_ms);
        }
        None => {
            let megabytes = (to.bytes - from.bytes) as f64 / 1e6;
            number("per_second", megabytes / seconds);
        }
    }
    Ok(())
}

fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split(' ').next().unwrap_or_default();
    first.parse().unwrap_or(0.0)
}

/// What clients run. Fields end in their order: clients before their server.
enum Load {
    Tables(Box<Tables>),
    PostMark(PostMark),
}

struct Tables {
    pgbench: Pgbench,
    postgres: Postgres,
    server: Process,
}

impl Load {
    fn start(
        undo: &Undo,
        setting: &Setting<'_>,
        cell: &Cell,
        place: &Path,
        limit: &Limit,
    ) -> Outcome<Load> {
        let (scale, seed) = (setting.scale, cell.repetition);
        if cell.workload == Workload::PostMark {
            let postmark = PostMark::start(undo, place, scale, Some(limit), seed)?;
            return Ok(Load::PostMark(postmark));
        }
        let postgres = Postgres::new(undo, &setting.programs, place)?;
        let server = postgres.start(undo, scale, Some(limit), true)?;
        let pgbench = Pgbench::start(
            undo,
            &postgres,
            cell.workload,
            scale,
            &setting.scripts,
            seed,
        )?;
        Ok(Load::Tables(Box::new(Tables {
            pgbench,
            postgres,
            server,
        })))
    }

    /// Fails if clients or server have ended.
    fn check(&mut self) -> Outcome<()> {
        match self {
            Load::Tables(tables) => {
                tables.pgbench.check()?;
                tables.server.check()
            }
            Load::PostMark(postmark) => postmark.check(),
        }
    }

    /// Ends the clients, asks whether the tables are consistent, and ends the server. Gives what pgbench logged.
    fn end(self, workload: Workload) -> Outcome<Option<Vec<Transaction>>> {
        match self {
            Load::Tables(tables) => {
                let transactions = tables.pgbench.end()?;
                tables.postgres.verify(workload)?;
                tables.server.end()?;
                Ok(Some(transactions))
            }
            Load::PostMark(_) => Ok(None),
        }
    }
}
