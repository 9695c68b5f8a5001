//! A served RAID-5 beside nbdkit's memory plugin, over a Unix socket on one machine, round by round in turn.
//!
//! Then the same array behind TLS beside nbdkit behind TLS, and in clear text.
//!
//! `served` measures everything, `served WORD` only what has the word in its name. `served serve SOCKET MEMBER...` is
//! the server alone, for a profiler.
//! The ratio of each round is ours over nbdkit's of the same round; the figure is the lower quartile of the rounds.

mod load;
mod secure;
mod server;

use load::{Load, Workload, ping_pong};
use restripe_io::tls::ClientSide;
use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(700);
const MEMBERS: usize = 5;
const MEMBER_BYTES: u64 = 64 << 20;
const EXPORT: &str = "256M";

const FILL: Workload = Workload {
    name: "fill",
    write: true,
    depth: 4,
    bytes: 1 << 20,
    stream: true,
    byte: 0x5a,
};

const WORKLOADS: [Workload; 5] = [
    Workload {
        name: "4 KiB reads, depth 32",
        write: false,
        depth: 32,
        bytes: 4096,
        stream: false,
        byte: 0x5a,
    },
    Workload {
        name: "4 KiB reads, depth 1",
        write: false,
        depth: 1,
        bytes: 4096,
        stream: false,
        byte: 0x5a,
    },
    Workload {
        name: "4 KiB writes, depth 32",
        write: true,
        depth: 32,
        bytes: 4096,
        stream: false,
        byte: 0x5a,
    },
    Workload {
        name: "1 MiB reads, depth 8",
        write: false,
        depth: 8,
        bytes: 1 << 20,
        stream: true,
        byte: 0x5a,
    },
    Workload {
        name: "1 MiB writes, depth 8",
        write: true,
        depth: 8,
        bytes: 1 << 20,
        stream: true,
        byte: 0x5a,
    },
];

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
        return server::serve(Path::new(socket), members);
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
    let secured = WORKLOADS.map(Workload::through_tls);
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

/// A folder for sockets and images, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Outcome<Folder> {
        let path = std::env::temp_dir().join(format!("restripe-bench-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Folder(path))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left behind is in the temporary folder, and named for us.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server process.
struct Server {
    name: &'static str,
    socket: PathBuf,
    child: Child,
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
        mut command: Command,
        yardstick: bool,
    ) -> Outcome<Server> {
        let child = command.spawn()?;
        let begin = Instant::now();
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            if begin.elapsed() > Duration::from_secs(10) {
                return Err(format!("{name} does not come up").into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Server {
            name,
            socket,
            child,
            yardstick,
            tls: None,
        })
    }

    /// User and system time so far.
    fn cpu(&self) -> Outcome<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        let ticks = |index: usize| {
            fields
                .get(index)
                .and_then(|text| text.parse::<u64>().ok())
                .unwrap_or(0)
        };
        // Ticks are 10 ms on every Linux that we know of.
        Ok(Duration::from_millis((ticks(11) + ticks(12)) * 10))
    }

    fn connect(&self, workload: Workload) -> Outcome<Load> {
        Load::connect(&self.socket, self.tls.as_ref(), workload)
    }

    fn round(&self, workload: Workload) -> Outcome<Round> {
        let (load, before) = (self.connect(workload)?, self.cpu()?);
        let begin = Instant::now();
        let rate = load.run(ROUND)?;
        let requests = rate * begin.elapsed().as_secs_f64();
        Ok(Round {
            rate,
            cpu: (self.cpu()? - before).as_secs_f64() / requests,
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Clone, Copy)]
struct Round {
    /// Requests a second.
    rate: f64,
    /// Seconds of the server's processor time a request.
    cpu: f64,
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
        command.env(server::CERTIFICATES, &folder.0);
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
            .map(|other| ratio(&rounds[index], &rounds[other]));
        let ratio = ratio.map_or(String::new(), |ratio| format!("  {ratio:.2} times nbdkit"));
        println!("  {:<22} {rate:>9.0}/s {cpu:>8.2} us{ratio}", server.name);
    }
    Ok(())
}

/// The lower quartile of the rounds' ratios.
fn ratio(ours: &[Round], theirs: &[Round]) -> f64 {
    quantile(
        ours.iter()
            .zip(theirs)
            .map(|(a, b)| a.rate / b.rate)
            .collect(),
        1,
    )
}

/// The value a quarter (or two, or three) of the way through the sorted ones.
fn quantile(mut values: Vec<f64>, quarter: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() * quarter / 4]
}
