//! `xtask iscsi-bench`: our iSCSI target beside tgt, by libiscsi's `iscsi-perf`, round by round in turn.
//!
//! Ours serves a RAID-5 of five members, tgt one file, all in memory. The ratio of each round is ours over
//! tgt's of the same round. The processor time is that of the server alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

type Outcome<T> = Result<T, String>;

const ROUNDS: usize = 7;
const SECONDS: u32 = 2;
const OURS: &str = "127.0.0.1:13263";
const THEIRS: &str = "127.0.0.1:13264";
/// tgt's control socket, by number.
const CONTROL: &str = "97";
const TARGET: &str = "iqn.2026-11.org.example:file";
/// Ticks of a second in /proc.
const TICKS: f64 = 100.0;
const MEMBERS: [&str; 5] = ["a.img", "b.img", "c.img", "d.img", "e.img"];

struct Load {
    name: &'static str,
    options: &'static [&'static str],
}

const LOADS: [Load; 3] = [
    Load {
        name: "4 KiB random reads, depth 32",
        options: &["-m", "32", "-b", "8", "-r"],
    },
    Load {
        name: "4 KiB random reads, depth 1",
        options: &["-m", "1", "-b", "8", "-r"],
    },
    Load {
        name: "1 MiB reads, depth 8",
        options: &["-m", "8", "-b", "2048"],
    },
];

/// A process that ends with its owner, and where it is reached.
struct Server {
    child: Child,
    uri: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; nobody else waits for it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a server did in one round.
#[derive(Clone, Copy)]
struct Figure {
    per_second: f64,
    /// Processor time of a request, in microseconds.
    cpu: f64,
}

/// What is needed and not installed.
fn lacking() -> Option<&'static str> {
    let tools = ["iscsi-perf", "tgtd", "tgtadm", "qemu-io"];
    let is_missing = |tool: &&str| output(Command::new("which").arg(tool)).is_err();
    let tool = tools.into_iter().find(is_missing);
    // Without its driver, qemu says so before it looks for the target.
    let opened = output(Command::new("qemu-io").args(["-c", "quit", "iscsi://127.0.0.1:1/none/0"]));
    let unknown = opened.is_err_and(|error| error.contains("Unknown protocol"));
    tool.or(unknown.then_some("qemu's driver for iSCSI"))
}

pub fn run() -> ExitCode {
    if let Some(tool) = lacking() {
        println!(
            "skipped iscsi-bench: {tool} is not installed (Debian: libiscsi-bin, tgt, qemu-utils, qemu-block-extra)"
        );
        return ExitCode::SUCCESS;
    }
    let folder = PathBuf::from(format!("/dev/shm/restripe-iscsi-{}", std::process::id()));
    let done = crate::md::binary().and_then(|binary| measure(&binary, &folder));
    // Images of ours.
    let _ = fs::remove_dir_all(&folder);
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("iscsi-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(binary: &Path, folder: &Path) -> Outcome<()> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let (ours, theirs) = (restripe(binary, folder)?, tgt(folder)?);
    println!(
        "{ROUNDS} rounds of {SECONDS} s, in turn; requests a second, server CPU a request (medians)"
    );
    for load in &LOADS {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            rounds.push([figure(&ours, load)?, figure(&theirs, load)?]);
        }
        let median = |of: &dyn Fn(&[Figure; 2]) -> f64| spread(rounds.iter().map(of).collect());
        println!("\n{}", load.name);
        for (name, at) in [("restripe", 0), ("tgt", 1)] {
            let [_, speed, _] = median(&|round| round[at].per_second);
            let [_, cpu, _] = median(&|round| round[at].cpu);
            println!("  {name:<10} {speed:>9.0} /s  {cpu:>7.1} us");
        }
        let [least, ratio, most] = median(&|round| round[0].per_second / round[1].per_second);
        let [_, cpu, _] = median(&|round| round[0].cpu / round[1].cpu);
        println!("  ratio {ratio:.2} ({least:.2} to {most:.2}), CPU a request {cpu:.2} of tgt's");
    }
    Ok(())
}

/// The least, the median and the largest.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [
        values[0],
        values[values.len() / 2],
        values[values.len() - 1],
    ]
}

fn restripe(binary: &Path, folder: &Path) -> Outcome<Server> {
    let command = |words: &[&str]| {
        let mut command = Command::new(binary);
        command.args(words).args(MEMBERS).current_dir(folder);
        command.env("XDG_RUNTIME_DIR", folder).stdin(Stdio::null());
        command
    };
    let create = [
        "create",
        "tank",
        "--level",
        "raid5",
        "--init",
        "zero",
        "--image-size",
        "64M",
    ];
    output(&mut command(&create))?;
    let portal = format!("--iscsi={OURS}");
    let serve = ["serve", "--buffered", "--unix", "nbd.sock", &portal];
    let server = Server {
        child: started(&mut command(&serve))?,
        uri: format!("iscsi://{OURS}/iqn.2026-11.restripe:tank/0"),
    };
    up(&server.uri)?;
    fill(&server.uri)?;
    Ok(server)
}

fn tgt(folder: &Path) -> Outcome<Server> {
    let file = folder.join("tgt.img");
    let made = fs::File::create(&file).and_then(|file| file.set_len(192 << 20));
    made.map_err(|error| format!("{}: {error}", file.display()))?;
    let portal = format!("portal={THEIRS}");
    let server = Server {
        child: started(Command::new("tgtd").args(["-f", "-C", CONTROL, "--iscsi", &portal]))?,
        uri: format!("iscsi://{THEIRS}/{TARGET}/1"),
    };
    let file = file.display().to_string();
    let steps = [
        &[
            "--mode", "target", "--op", "new", "--tid", "1", "-T", TARGET,
        ][..],
        &[
            "--mode",
            "logicalunit",
            "--op",
            "new",
            "--tid",
            "1",
            "--lun",
            "1",
            "-b",
            &file,
        ],
        &[
            "--mode", "target", "--op", "bind", "--tid", "1", "-I", "ALL",
        ],
    ];
    for step in steps {
        patiently(|| {
            output(
                Command::new("tgtadm")
                    .args(["-C", CONTROL, "--lld", "iscsi"])
                    .args(step),
            )
        })?;
    }
    up(&server.uri)?;
    fill(&server.uri)?;
    Ok(server)
}

fn started(command: &mut Command) -> Outcome<Child> {
    let silent = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    silent
        .spawn()
        .map_err(|error| format!("{command:?}: {error}"))
}

fn output(command: &mut Command) -> Outcome<String> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    match output.status.success() {
        true => Ok(said),
        false => Err(format!("{command:?}: {}", said.trim())),
    }
}

/// Tries for ten seconds: a server has to come up.
fn patiently<T>(mut attempt: impl FnMut() -> Outcome<T>) -> Outcome<T> {
    for _ in 0..100 {
        if let Ok(done) = attempt() {
            return Ok(done);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    attempt()
}

fn up(uri: &str) -> Outcome<()> {
    patiently(|| output(Command::new("iscsi-inq").arg(uri))).map(drop)
}

/// Blocks that were never written are read from no member.
fn fill(uri: &str) -> Outcome<()> {
    let fill = ["-f", "raw", "-c", "write -P 90 0 190M", uri];
    output(Command::new("qemu-io").args(fill)).map(drop)
}

fn figure(server: &Server, load: &Load) -> Outcome<Figure> {
    let before = ticks(server)?;
    let mut command = Command::new("iscsi-perf");
    command
        .args(load.options)
        .args(["-t", &SECONDS.to_string(), &server.uri]);
    let said = output(&mut command)?;
    let per_second = average(&said).ok_or(format!("iscsi-perf: {said}"))?;
    let cpu = (ticks(server)? - before) / TICKS * 1e6;
    Ok(Figure {
        per_second,
        cpu: cpu / (per_second * f64::from(SECONDS)),
    })
}

/// The last average of `iscsi-perf`.
fn average(said: &str) -> Option<f64> {
    let (_, last) = said.rsplit_once("iops average ")?;
    last.split_whitespace().next()?.parse().ok()
}

/// User and system time of a server, in ticks.
fn ticks(server: &Server) -> Outcome<f64> {
    let path = format!("/proc/{}/stat", server.child.id());
    let stat = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let fields: Vec<f64> = rest
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    // Without the state: utime is the 11th field behind it, stime the 12th.
    fields
        .get(10..12)
        .map(|both| both.iter().sum())
        .ok_or(format!("{path}: too short"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_average_counts() {
        let said = "iops average 100 (1 MB/s) \riops average 52824 (206 MB/s)   \n";
        assert_eq!(average(said), Some(52824.0));
        assert_eq!(average("nothing"), None);
    }

    #[test]
    fn the_middle_of_the_rounds_counts() {
        assert_eq!(spread(vec![3.0, 1.0, 2.0]), [1.0, 2.0, 3.0]);
    }
}
