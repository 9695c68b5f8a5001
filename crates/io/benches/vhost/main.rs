//! An array as a disk of virtual machines beside qemu-storage-daemon's export of a file, round by round in turn.
//!
//! Both through the page cache: a RAID-0 of one file, and a file of the same size, each with one queue. The
//! client is the library that qemu and fio have for such disks.
//!
//! `vhost` measures everything, `vhost WORD` only what has the word in its name. `vhost serve SOCKET FILE` is the
//! server alone, for a profiler.

mod disk;
#[path = "../served/process.rs"]
mod process;
#[path = "../served/rounds.rs"]
mod rounds;
#[path = "../served/server.rs"]
mod server;

use disk::Disk;
use process::{Folder, Process};
use restripe_array::layout::Level;
use restripe_io::front::{Report, vhost_user};
use rounds::{FILL, ROUND, ROUNDS, Round, WORKLOADS, Workload, quantile, ratio};
use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

type Outcome<T> = Result<T, Box<dyn Error>>;

const FILE_BYTES: u64 = 256 << 20;
const YARDSTICK: &str = "qemu-storage-daemon";

fn main() -> Outcome<()> {
    // The test runner's own flags (`--bench`) are of no interest.
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|text| !text.starts_with("--"))
        .collect();
    if let [verb, socket, files @ ..] = &arguments[..]
        && verb == "serve"
    {
        let maker = Arc::new(vhost_user::disk(0, Report::new(|_| {}))?);
        return server::serve(Level::Raid0, files, Path::new(socket), maker);
    }
    let word = arguments.first().map_or("", String::as_str);
    let folder = Folder::new()?;
    let servers = [storage_daemon(&folder), Some(ours(&folder)?)];
    let servers: Vec<Server> = servers.into_iter().flatten().collect();
    for server in &servers {
        Disk::connect(&server.socket, FILL)?.fill()?;
    }
    println!(
        "{ROUNDS} rounds of {ROUND:?}, interleaved; requests a second (median), server CPU a request; ratio: \
         median (lowest to highest)"
    );
    let wanted = WORKLOADS.into_iter().filter(|it| it.name.contains(word));
    for workload in wanted {
        measure(&servers, workload)?;
    }
    Ok(())
}

struct Server {
    name: &'static str,
    socket: PathBuf,
    process: Process,
}

fn image(folder: &Folder, name: &str) -> Outcome<String> {
    let path = folder.file(name);
    File::create(&path)?.set_len(FILE_BYTES)?;
    Ok(path.display().to_string())
}

fn ours(folder: &Folder) -> Outcome<Server> {
    let socket = folder.file("restripe");
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("serve").arg(&socket);
    command.arg(image(folder, "member")?).stdin(Stdio::piped());
    let name = "restripe";
    Ok(Server {
        name,
        process: Process::start(name, &socket, command)?,
        socket,
    })
}

fn storage_daemon(folder: &Folder) -> Option<Server> {
    let started = storage_daemon_of(folder);
    if let Err(error) = &started {
        println!("skipped: {YARDSTICK}, so there is no yardstick: {error}");
    }
    started.ok()
}

fn storage_daemon_of(folder: &Folder) -> Outcome<Server> {
    let socket = folder.file("qemu");
    let node = format!(
        "driver=file,node-name=disk,filename={}",
        image(folder, "file")?
    );
    let export = format!(
        "type=vhost-user-blk,id=export,node-name=disk,writable=on,addr.type=unix,addr.path={}",
        socket.display()
    );
    let mut command = Command::new(YARDSTICK);
    command.args(["--blockdev", &node, "--export", &export]);
    Ok(Server {
        name: YARDSTICK,
        process: Process::start(YARDSTICK, &socket, command)?,
        socket,
    })
}

fn measure(servers: &[Server], workload: Workload) -> Outcome<()> {
    println!("\n{}", workload.name);
    let connected = servers
        .iter()
        .map(|one| Disk::connect(&one.socket, workload));
    let mut disks = connected.collect::<Outcome<Vec<Disk>>>()?;
    let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); servers.len()];
    for _ in 0..ROUNDS {
        for ((server, disk), rounds) in servers.iter().zip(&mut disks).zip(&mut rounds) {
            rounds.push(round(server, disk)?);
        }
    }
    for (server, own) in servers.iter().zip(&rounds) {
        let rate = quantile(own.iter().map(|round| round.rate).collect(), 2);
        let cpu = quantile(own.iter().map(|round| round.cpu).collect(), 2) * 1e6;
        println!(
            "  {:<20} {rate:>9.0}/s {cpu:>8.2} us{}",
            server.name,
            beside(own, &rounds)
        );
    }
    Ok(())
}

/// The ratio to the yardstick, which is the first of two.
fn beside(own: &[Round], all: &[Vec<Round>]) -> String {
    let [yardstick, ours] = all else {
        return String::new();
    };
    if !std::ptr::eq(own, &ours[..]) {
        return String::new();
    }
    let [lowest, median, highest] = [0, 2, 4].map(|quarter| ratio(own, yardstick, quarter));
    format!("  {median:.2} times {YARDSTICK} ({lowest:.2} to {highest:.2})")
}

fn round(server: &Server, disk: &mut Disk) -> Outcome<Round> {
    let (before, begin) = (server.process.cpu()?, Instant::now());
    let requests = disk.run(ROUND)? as f64;
    let seconds = begin.elapsed().as_secs_f64();
    Ok(Round {
        rate: requests / seconds,
        cpu: (server.process.cpu()? - before).as_secs_f64() / requests,
    })
}
