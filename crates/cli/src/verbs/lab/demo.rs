//! `demo`: the whole thing on disk images, with real processes and a client that trusts nobody.
//!
//! The daemon is this program's own `serve` in another process, so that it can be killed for real. The load keeps its
//! own record of every block; its time line and the control socket's answers make the tables and the page.

use crate::failure::{Failure, Outcome, failed, failed_at};
use crate::print::terminal::{self, out, outln, percent};
use crate::units::{Size, parse_size};
use crate::verbs::lab::provenance::provenance;
use crate::verbs::lab::scheme_comparison::{self, SchemeComparison};
use clap::Args;
use restripe_io::control::{Reply, Request, StatusView, ask_at};
use restripe_lab::chart::{Chart, Mark};
use restripe_lab::latency::{Phase, course};
use restripe_lab::load::{self, Load, Spec};
use restripe_lab::nbd::{Address, Client};
use restripe_lab::pattern::BLOCK_BYTES;
use restripe_lab::plot::Plot;
use restripe_lab::report::{Page, Table, mebibytes, phases};
use std::fs::{self, DirBuilder};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

#[derive(Args, Debug)]
#[command(
    after_help = "Requires about six times --member-size of space in the temporary folder (TMPDIR, else /tmp); no root privileges."
)]
pub(crate) struct Demo {
    /// Size of each of the six images
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "192M")]
    pub member_size: u64,
    /// Maximum speed of the rebuild in bytes per second, low enough to watch it
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "32M")]
    pub rebuild_rate: u64,
    /// Seed of the load
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write the report to FILE
    #[arg(long, value_name = "FILE", default_value = "restripe-demo.html")]
    pub report: PathBuf,
    /// Do not delete the images, and print their path
    #[arg(long)]
    pub keep: bool,
}

const NAME: &str = "demo";
const MEMBERS: usize = 6;
const WORKERS: u64 = 8;
/// Of 4 KiB: the largest request is 32 KiB, so that requests of several workers meet in a chunk of 64 KiB.
const PLOT_BLOCKS: u64 = 8;
const READ_PERCENT: u64 = 70;
/// Any request, and the daemon's way back, take less; more is a failure.
const PATIENCE: Duration = Duration::from_secs(15);
const REBUILD_PATIENCE: Duration = Duration::from_secs(90);
const CALM: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// Where in the rebuild the daemon is killed.
const KILL_AT_PERCENT: u64 = 45;
/// Failures shown; the first ones tell.
const SHOWN_MAX: usize = 10;
const STEP_US: u64 = 200_000;

pub(crate) fn run(verb: &Demo) -> Outcome {
    let mut stage = Stage::build(verb)?;
    let acts = stage.play(verb)?;
    let tables = Told::of(&acts);
    out!("\n{}\n{}", tables.by_phase.text(), tables.numbers.text());
    let comparison = scheme_comparison::run()?;
    out!(
        "\n{}, simulated\n{}",
        comparison.title,
        comparison.table.text()
    );
    let chart = Told::chart(&acts);
    let page = tables.page(&acts, &stage.log, &chart, &comparison);
    fs::write(&verb.report, page)
        .map_err(failed_at("the report cannot be written", &verb.report))?;
    for (extension, plot) in [("svg", &comparison.plot), ("latency.svg", &chart)] {
        let picture = verb.report.with_extension(extension);
        fs::write(&picture, plot.alone())
            .map_err(failed_at("the picture cannot be written", &picture))?;
    }
    outln!("\nreport: {}", verb.report.display());
    judge(&acts)?;
    outln!("all data is correct");
    Ok(())
}

/// What happened, for tables and page.
struct Acts {
    outcome: load::Outcome,
    /// Differences found by reading everything at the end.
    differences: Vec<load::Failure>,
    phases: Vec<Phase>,
    marks: Vec<Mark>,
    member_bytes: u64,
    rebuild: Duration,
    restart: Duration,
    verified_bytes: u64,
}

impl Acts {
    /// Guarantees that were violated.
    fn failures(&self) -> usize {
        self.outcome.failures.len() + self.differences.len()
    }
}

fn judge(acts: &Acts) -> Outcome {
    let failures = [&acts.outcome.failures[..], &acts.differences].concat();
    for failure in failures.iter().take(SHOWN_MAX) {
        terminal::say(format_args!("  {failure}"));
    }
    if failures.is_empty() {
        return Ok(());
    }
    let violated = Failure::new(format!("{} guarantees were violated", failures.len()));
    Err(violated.hint("repeat it with --keep to inspect the images"))
}

// ------------------------------------------------------------------------------------------------------- the stage

/// A temporary folder with images and a daemon; both go when this is dropped.
struct Stage {
    folder: PathBuf,
    keep: bool,
    program: PathBuf,
    rate: u64,
    daemon: Option<Child>,
    began: Instant,
    log: Vec<String>,
}

impl Stage {
    fn build(verb: &Demo) -> Outcome<Stage> {
        let failed = failed("the images cannot be created");
        let program = std::env::current_exe().map_err(&failed)?;
        let folder = std::env::temp_dir().join(format!("restripe-demo-{}", std::process::id()));
        let mut builder = DirBuilder::new();
        builder.mode(0o700).create(&folder).map_err(failed)?;
        Ok(Stage {
            folder,
            keep: verb.keep,
            program,
            rate: verb.rebuild_rate,
            daemon: None,
            began: Instant::now(),
            log: Vec::new(),
        })
    }

    fn say(&mut self, what: &str) {
        let line = format!("{:>6.2} s  {what}", self.began.elapsed().as_secs_f64());
        outln!("{line}");
        self.log.push(line);
    }

    fn image(&self, number: usize) -> PathBuf {
        self.folder.join(format!("disk{number}.img"))
    }

    fn nbd_socket(&self) -> PathBuf {
        self.folder.join("demo.nbd")
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(verb).env("XDG_RUNTIME_DIR", &self.folder);
        command.stdin(Stdio::null());
        command
    }

    fn create(&mut self, member_bytes: u64) -> Outcome {
        let mut command = self.command("create");
        command.args([NAME, "--level", "raid5", "--spares", "1"]);
        command.args(["--image-size", &member_bytes.to_string()]);
        command.args((0..MEMBERS).map(|number| self.image(number)));
        let output = command.output().map_err(failed("create cannot be run"))?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            return Err(Failure::new("create failed").at(why.trim()));
        }
        let lines = String::from_utf8_lossy(&output.stdout);
        self.say(lines.lines().next().unwrap_or_default());
        Ok(())
    }

    /// Starts the daemon and waits until clients can connect; the time that took.
    fn serve(&mut self) -> Outcome<Duration> {
        let began = Instant::now();
        let failed = failed("the daemon cannot be started");
        let mut command = self.command("serve");
        // At a fixed rate, so that there is a rebuild to look at however fast the disks are.
        command.arg("--rate").arg(format!("{0}..{0}", self.rate));
        command.arg("--unix").arg(self.nbd_socket());
        command.args((0..MEMBERS).map(|number| self.image(number)));
        command.stdout(Stdio::piped());
        let daemon = self.daemon.insert(command.spawn().map_err(&failed)?);
        let mut line = String::new();
        if let Some(stdout) = daemon.stdout.take() {
            let mut stdout = BufReader::new(stdout);
            stdout.read_line(&mut line).map_err(failed)?;
        }
        if line.is_empty() {
            return Err(Failure::new("the daemon ended before it served"));
        }
        Ok(began.elapsed())
    }

    /// SIGKILL: no drain, no flush, no goodbye.
    fn kill(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            // It may have died by itself, which the restart would show.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }

    fn ask(&self, request: &Request) -> Outcome<Reply> {
        let socket = self.folder.join("restripe").join(format!("{NAME}.sock"));
        match ask_at(&socket, request, PATIENCE)? {
            Reply::Refused(refusal) => Err(refusal.into()),
            reply => Ok(reply),
        }
    }

    fn status(&self) -> Outcome<StatusView> {
        match self.ask(&Request::Status)? {
            Reply::Status(status) => Ok(*status),
            _ => Err(Failure::new("the daemon did not answer `status`")),
        }
    }

    fn fail(&mut self, number: usize) -> Outcome {
        let member = self.image(number).to_string_lossy().into_owned();
        self.ask(&Request::Fail {
            member,
            accept_loss: false,
            dry_run: false,
        })?;
        Ok(())
    }

    /// Looks at the status until it is as wanted.
    fn wait_for(
        &self,
        what: &str,
        load: &Load,
        wanted: impl Fn(&StatusView) -> bool,
    ) -> Outcome<StatusView> {
        let deadline = Instant::now() + REBUILD_PATIENCE;
        loop {
            let status = self.status()?;
            if wanted(&status) {
                return Ok(status);
            }
            if load.failures() > 0 {
                return Err(Failure::new("the load found wrong data")
                    .hint("run `restripe demo --keep` to inspect the images"));
            }
            if Instant::now() > deadline {
                let tasks: Vec<String> = status.tasks.iter().map(terminal::task_line).collect();
                return Err(Failure::new(format!("{what} did not happen"))
                    .at(format!("{} {tasks:?}", status.state)));
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    fn stop(&mut self) -> Outcome {
        self.ask(&Request::Stop)?;
        let Some(mut daemon) = self.daemon.take() else {
            return Ok(());
        };
        match daemon.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Failure::new(format!("the daemon ended with {status}"))),
            Err(error) => Err(failed("the exit status of the daemon is unknown")(error)),
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.kill();
        if self.keep {
            outln!("the images are in {}", self.folder.display());
            return;
        }
        // A temporary folder that stays is a nuisance and nothing worse.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

// -------------------------------------------------------------------------------------------------------- the play

impl Stage {
    fn play(&mut self, verb: &Demo) -> Outcome<Acts> {
        self.create(verb.member_size)?;
        self.serve()?;
        self.say("served over NBD on a Unix socket");
        let spec = self.spec(verb.seed)?;
        let ledger = load::fill_all(&spec).map_err(failed("the first fill failed"))?;
        let filled = Size(ledger.bytes());
        self.say(&format!(
            "{filled} written, every block with its own content"
        ));
        let load = Load::start(&spec, ledger).map_err(failed("the load"))?;
        match self.under_load(&load) {
            Ok(script) => self.finish(&spec, load, script),
            Err(failure) => {
                // What the load saw says more than what the script missed.
                for found in load.abandon().iter().take(SHOWN_MAX) {
                    terminal::say(format_args!("  {found}"));
                }
                Err(failure)
            }
        }
    }

    fn spec(&self, seed: u64) -> Outcome<Spec> {
        let address = Address::Unix(self.nbd_socket());
        let client = Client::connect(&address, NAME, PATIENCE);
        let client = client.map_err(failed("the array cannot be reached"))?;
        let blocks = client.size_bytes() / BLOCK_BYTES as u64;
        client.close();
        Ok(Spec {
            address,
            export: NAME.into(),
            seed,
            blocks,
            workers: WORKERS,
            plot_blocks: PLOT_BLOCKS,
            reads: READ_PERCENT,
            patience: PATIENCE,
        })
    }

    /// Everything that is done to the array while the load runs.
    fn under_load(&mut self, load: &Load) -> Outcome<Script> {
        let mut script = Script::default();
        self.say(&format!(
            "{WORKERS} clients read and write at random, checking every byte"
        ));
        thread::sleep(CALM);

        script.mark(load, "disk 1 lost");
        self.say("disk1.img is removed under load; a rebuild onto the spare starts");
        let rebuild = Instant::now();
        self.fail(1)?;
        let rebuilds = |status: &StatusView| status.tasks.iter().any(|task| task.kind == "rebuild");
        self.wait_for("the start of the rebuild", load, rebuilds)?;
        let half = |status: &StatusView| {
            let mut tasks = status.tasks.iter().filter(|task| task.kind == "rebuild");
            tasks.all(|task| task.rows_done * 100 >= task.rows_total * KILL_AT_PERCENT)
        };
        let before = self.wait_for("the middle of the rebuild", load, half)?;
        let done = done_of(&before);
        self.say(&format!("kill -9 to the daemon, its rebuild at {done}"));
        script.mark(load, "kill -9");
        self.kill();
        script.restart = self.serve()?;
        script.mark(load, "serves again");
        let done = done_of(&self.status()?);
        let restart = script.restart.as_secs_f64();
        self.say(&format!(
            "serves again after {restart:.2} s and resumes the rebuild at {done}"
        ));

        let healthy = |status: &StatusView| status.state == "healthy" && status.tasks.is_empty();
        let status = self.wait_for("the end of the rebuild", load, healthy)?;
        script.rebuild = rebuild.elapsed();
        script.member_bytes = status.size_bytes / u64::from(status.slots - 1);
        script.mark(load, "rebuilt");
        let took = script.rebuild.as_secs_f64();
        self.say(&format!("rebuilt after {took:.1} s: redundant again"));
        thread::sleep(CALM);

        script.mark(load, "disk 3 lost");
        self.say("disk3.img is removed as well, and no spare is left");
        self.fail(3)?;
        thread::sleep(CALM);
        script.mark(load, "end");
        Ok(script)
    }

    fn finish(&mut self, spec: &Spec, load: Load, script: Script) -> Outcome<Acts> {
        let outcome = load.finish();
        let differences = load::verify_all(spec, &outcome.ledger);
        let differences = differences.map_err(failed("the array cannot be read to its end"))?;
        let verified_bytes = outcome.ledger.bytes();
        let verified = Size(verified_bytes);
        self.say(&format!(
            "{verified} read back and compared, with two disks missing"
        ));
        self.stop()?;
        self.say("stopped: flushed and marked clean");
        Ok(Acts {
            phases: script.phases(),
            marks: script.marks,
            member_bytes: script.member_bytes,
            rebuild: script.rebuild,
            restart: script.restart,
            outcome,
            differences,
            verified_bytes,
        })
    }
}

fn done_of(status: &StatusView) -> String {
    match status.tasks.iter().find(|task| task.kind == "rebuild") {
        Some(task) => percent(task.rows_done, task.rows_total),
        None => "100%".into(),
    }
}

/// What was done, on the load's time line.
#[derive(Default)]
struct Script {
    marks: Vec<Mark>,
    rebuild: Duration,
    restart: Duration,
    member_bytes: u64,
}

impl Script {
    fn mark(&mut self, load: &Load, what: &str) {
        self.marks.push(Mark::new(load.now_us(), what));
    }

    fn at(&self, what: &str) -> u64 {
        let found = self.marks.iter().find(|mark| mark.text == what);
        found.map_or(0, |mark| mark.at_us)
    }

    fn phases(&self) -> Vec<Phase> {
        let (lost, rebuilt) = (self.at("disk 1 lost"), self.at("rebuilt"));
        let (second, end) = (self.at("disk 3 lost"), self.at("end"));
        vec![
            Phase::new("before", 0, lost),
            Phase::new("during the rebuild", lost, rebuilt),
            Phase::new("after", rebuilt, second),
            Phase::new("second disk lost", second, end),
        ]
    }
}

// ------------------------------------------------------------------------------------------------------- the tables

struct Told {
    by_phase: Table,
    numbers: Table,
}

impl Told {
    fn of(acts: &Acts) -> Told {
        let rebuild = acts.rebuild.as_secs_f64();
        let rate = mebibytes((acts.member_bytes as f64 / rebuild.max(0.001)) as u64);
        let restart = acts.restart.as_secs_f64();
        let outage = format!("{:.2} s", acts.outcome.longest_outage.as_secs_f64());
        let requests = acts.outcome.samples.len();
        let compared = mebibytes(acts.verified_bytes);
        let wrong = acts.failures();
        let mut numbers = Table::new("measured|value");
        let mut row = |name: &str, value: String| numbers.row([name.into(), value]);
        row("rebuild time", format!("{rebuild:.1} s"));
        row("rebuild rate", format!("{rate} MiB/s"));
        row("ready again after kill -9", format!("{restart:.2} s"));
        row("longest time a client was cut off", outage);
        row("requests under load", requests.to_string());
        row("bytes compared at the end", format!("{compared} MiB"));
        row("wrong or refused", wrong.to_string());
        let by_phase = phases(&acts.outcome.samples, &acts.phases);
        Told { by_phase, numbers }
    }

    /// Latency and throughput over time.
    fn chart(acts: &Acts) -> Plot {
        let steps = course(&acts.outcome.samples, STEP_US);
        // The last mark is only the end of the last phase.
        let marks = &acts.marks[..acts.marks.len().saturating_sub(1)];
        let chart = Chart {
            title: "A RAID-5 loses two disks and its daemon under load",
            steps: &steps,
            step_us: STEP_US,
            phases: &acts.phases,
            marks,
        };
        chart.plot()
    }

    fn page(
        &self,
        acts: &Acts,
        log: &[String],
        chart: &Plot,
        comparison: &SchemeComparison,
    ) -> String {
        let simulated = format!("{}, simulated", comparison.title);
        let page = Page {
            title: "Restripe: a RAID-5 loses two disks and its daemon under load",
            lead: "Five disk images and a spare, served over NBD; eight clients read and write at random through all of \
                   it and check every byte against their own record.",
            verdict: match acts.failures() {
                0 => "All data is correct.",
                _ => "Guarantees were violated: see the table of numbers.",
            },
            provenance: &provenance(),
            tables: &[("By phase", &self.by_phase), ("In numbers", &self.numbers)],
            chart,
            pictures: &[(&simulated, &comparison.plot, &comparison.html)],
            log,
        };
        page.html()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_follow_the_marks() {
        let marks = [
            "disk 1 lost",
            "kill -9",
            "serves again",
            "rebuilt",
            "disk 3 lost",
            "end",
        ];
        let marks = (1..)
            .zip(marks)
            .map(|(at, text)| Mark::new(at * 100, text))
            .collect();
        let script = Script {
            marks,
            ..Script::default()
        };
        let spans: Vec<(u64, u64)> = script
            .phases()
            .iter()
            .map(|phase| (phase.from_us, phase.to_us))
            .collect();
        assert_eq!(spans, [(0, 100), (100, 400), (400, 500), (500, 600)]);
    }
}
