//! A served RAID-5 beside nbdkit's memory plugin, over a Unix socket on one machine, round by round in turn.
//!
//! Then the same array behind TLS beside nbdkit behind TLS, and in clear text.
//!
//! `served` measures everything, `served WORD` only what has the word in its name. `served serve SOCKET MEMBER...` is
//! the server alone, for a profiler.
//! The ratio of each round is ours over nbdkit's of the same round; the figure is the lower quartile of the rounds.

mod load;
mod process;
mod rounds;
mod secure;
mod server;

use load::{Load, ping_pong};
use process::{Folder, Process};
use restripe_array::layout::{Level, Rotation};
use restripe_io::front::nbd::{Connection, Guard};
use restripe_io::front::{Protocol, Report};
use restripe_io::tls::{ClientSide, ServerSide};
use rounds::{FILL, ROUND, ROUNDS, Round, WORKLOADS, Workload, quantile, ratio};
use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

/// Names the folder of certificates of a server behind TLS.
const CERTIFICATES: &str = "RESTRIPE_BENCH_CERTIFICATES";
const MEMBERS: usize = 5;
const MEMBER_BYTES: u64 = 64 << 20;
const EXPORT: &str = "256M";

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    // The test runner's own flags (`--bench`) are of no interest.
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|text| !text.starts_with("--"))
        .collect();
    if let [verb, socket, members @ ..] = &arguments[..]
        && verb == "serve"
    {
        return serve(Path::new(socket), members);
    }
    let word = arguments.first().map_or("", String::as_str);
    let folder = Folder::new()?;
    let mut servers = Servers::start(&folder)?;
    println!(
        "{ROUNDS} rounds of {ROUND:?}, interleaved; requests a second (median), server CPU a request"
    );
    for workload in WORKLOADS {
        if workload.name.contains(word) {
            measure(&mut servers, workload)?;
        }
    }
    drop(servers);
    let secured = WORKLOADS.map(through_tls);
    let wanted: Vec<Workload> = secured
        .into_iter()
        .filter(|it| it.name.contains(word))
        .collect();
    if wanted.is_empty() {
        return Ok(());
    }
    match Servers::through_tls(&folder)? {
        None => println!("\nopenssl is not here: no certificates for TLS"),
        Some(mut servers) => {
            for workload in wanted {
                measure(&mut servers, workload)?;
            }
        }
    }
    Ok(())
}

/// Serves a new RAID-5, behind TLS if a folder of certificates is named.
fn serve(socket: &Path, members: &[String]) -> Outcome<()> {
    let guard = match std::env::var_os(CERTIFICATES) {
        None => None,
        Some(folder) => Some(Arc::new(Guard {
            tls: ServerSide::read(Path::new(&folder), false)?,
            required: true,
            clients: Vec::new(),
            report: Report::new(|_| {}),
        })),
    };
    let maker = move || -> Box<dyn Protocol> {
        Box::new(match &guard {
            Some(guard) => Connection::guarded(Arc::clone(guard)),
            None => Connection::new(),
        })
    };
    let level = Level::Raid5(Rotation::LeftSymmetric);
    server::serve(level, members, socket, Arc::new(maker))
}

/// The same behind TLS, under another name.
fn through_tls(workload: Workload) -> Workload {
    let name = match workload.name {
        "4 KiB reads, depth 32" => "TLS: 4 KiB reads, depth 32",
        "4 KiB reads, depth 1" => "TLS: 4 KiB reads, depth 1",
        "4 KiB writes, depth 32" => "TLS: 4 KiB writes, depth 32",
        "1 MiB reads, depth 8" => "TLS: 1 MiB reads, depth 8",
        _ => "TLS: 1 MiB writes, depth 8",
    };
    Workload { name, ..workload }
}

/// A server process.
struct Server {
    name: &'static str,
    socket: PathBuf,
    process: Process,
    yardstick: bool,
    /// It is reached through TLS.
    tls: Option<ClientSide>,
}

impl Server {
    fn ours(name: &'static str, socket: PathBuf, members: &[String]) -> Outcome<Server> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("serve")
            .arg(&socket)
            .args(members)
            .stdin(Stdio::piped());
        Server::start(name, socket, command, false)
    }

    fn nbdkit(socket: PathBuf) -> Option<Server> {
        let mut command = Command::new("nbdkit");
        command
            .stderr(Stdio::null())
            .args(["--foreground", "--unix"])
            .arg(&socket)
            .args(["memory", EXPORT]);
        Server::start("nbdkit memory", socket, command, true).ok()
    }

    fn start(
        name: &'static str,
        socket: PathBuf,
        command: Command,
        yardstick: bool,
    ) -> Outcome<Server> {
        Ok(Server {
            name,
            process: Process::start(name, &socket, command)?,
            socket,
            yardstick,
            tls: None,
        })
    }

    fn connect(&self, workload: Workload) -> Outcome<Load> {
        Load::connect(&self.socket, self.tls.as_ref(), workload)
    }

    fn round(&self, workload: Workload) -> Outcome<Round> {
        let (load, before) = (self.connect(workload)?, self.process.cpu()?);
        let begin = Instant::now();
        let rate = load.run(ROUND)?;
        let requests = rate * begin.elapsed().as_secs_f64();
        Ok(Round {
            rate,
            cpu: (self.process.cpu()? - before).as_secs_f64() / requests,
        })
    }
}

struct Servers(Vec<Server>);

impl Servers {
    fn start(folder: &Folder) -> Outcome<Servers> {
        let mut servers = Vec::new();
        match Server::nbdkit(folder.file("nbdkit")) {
            Some(server) => servers.push(server),
            None => println!("nbdkit is not here: no yardstick"),
        }
        let memory = vec![format!("ram:{MEMBER_BYTES}"); MEMBERS];
        servers.push(Server::ours(
            "restripe, memory",
            folder.file("memory"),
            &memory,
        )?);
        let images: Vec<PathBuf> = (0..MEMBERS)
            .map(|i| folder.file(&format!("image{i}")))
            .collect();
        for image in &images {
            File::create(image)?.set_len(MEMBER_BYTES)?;
        }
        let names: Vec<String> = images
            .iter()
            .map(|image| image.display().to_string())
            .collect();
        servers.push(Server::ours(
            "restripe, page cache",
            folder.file("files"),
            &names,
        )?);
        for server in &servers {
            server.connect(FILL)?.fill()?;
        }
        Ok(Servers(servers))
    }

    /// Ours and nbdkit behind TLS, and ours in clear text. `None`: there are no certificates.
    fn through_tls(folder: &Folder) -> Outcome<Option<Servers>> {
        if !secure::make_certificates(&folder.0) {
            return Ok(None);
        }
        let side = ClientSide::read(&folder.0, true)?;
        let memory = vec![format!("ram:{MEMBER_BYTES}"); MEMBERS];
        let mut servers = Vec::new();
        let socket = folder.file("nbdkit-tls");
        let mut command = Command::new("nbdkit");
        command
            .stderr(Stdio::null())
            .args(["--foreground", "--unix"]);
        command.arg(&socket).arg("--tls=require");
        command.arg(format!("--tls-certificates={}", folder.0.display()));
        command.args(["memory", EXPORT]);
        servers.extend(Server::start("nbdkit, TLS", socket, command, true));
        let socket = folder.file("memory-tls");
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("serve")
            .arg(&socket)
            .args(&memory)
            .stdin(Stdio::piped());
        command.env(CERTIFICATES, &folder.0);
        servers.push(Server::start("restripe, TLS", socket, command, false)?);
        servers
            .iter_mut()
            .for_each(|server| server.tls = Some(side.clone()));
        let clear = folder.file("memory-clear");
        servers.push(Server::ours("restripe, clear text", clear, &memory)?);
        for server in &servers {
            server.connect(FILL)?.fill()?;
        }
        Ok(Some(Servers(servers)))
    }
}

fn measure(servers: &mut Servers, workload: Workload) -> Outcome<()> {
    println!("\n{}", workload.name);
    let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); servers.0.len()];
    let mut floor = Vec::new();
    for _ in 0..ROUNDS {
        for (server, rounds) in servers.0.iter().zip(&mut rounds) {
            rounds.push(server.round(workload)?);
        }
        if workload.depth == 1 {
            floor.push(ping_pong(workload.bytes as usize, ROUND / 2)?);
        }
    }
    if !floor.is_empty() {
        println!(
            "  {:<22} {:>9.0}/s",
            "bare socket ping-pong",
            quantile(floor, 2)
        );
    }
    let yardstick = servers.0.iter().position(|server| server.yardstick);
    for (index, server) in servers.0.iter().enumerate() {
        let rate = quantile(rounds[index].iter().map(|round| round.rate).collect(), 2);
        let cpu = quantile(rounds[index].iter().map(|round| round.cpu).collect(), 2) * 1e6;
        let ratio = yardstick
            .filter(|other| *other != index)
            .map(|other| ratio(&rounds[index], &rounds[other], 1));
        let ratio = ratio.map_or(String::new(), |ratio| format!("  {ratio:.2} times nbdkit"));
        println!("  {:<22} {rate:>9.0}/s {cpu:>8.2} us{ratio}", server.name);
    }
    let ours = |tls: bool| {
        let servers = servers.0.iter();
        let mut servers = servers.map(|server| !server.yardstick && server.tls.is_some() == tls);
        servers.position(|is_it| is_it)
    };
    if let (Some(tls), Some(clear)) = (ours(true), ours(false)) {
        let ratio = ratio(&rounds[tls], &rounds[clear], 1);
        println!("  {:<22} {ratio:.2} of the rate of clear text", "TLS");
    }
    Ok(())
}
