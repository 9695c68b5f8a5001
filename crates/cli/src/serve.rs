//! `assemble` and `serve`: an engine, its front ends and its control socket, until it is told to end.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use crate::command::{Assemble, BackendName, Serve, StartOptions};
use crate::config::{ArrayConfig, Config, ServeConfig, members_from};
use crate::desk::{Desk, End};
use crate::engine::{IO_TIMEOUT, MEMORY_BYTES, PROBE, Running, Setup, by_array, heat, read_cache};
use crate::failure::{Failure, Outcome};
use crate::print::journal::{self, LAST_WORDS, Level};
use crate::print::status;
use crate::print::terminal::{print, print_aside, say, warn};
use crate::units::PowerCommand;
use crate::wishes;
use restripe_array::{Nanos, StartMode};
use restripe_io::BackendChoice;
use restripe_io::backend::PowerHook;
use restripe_io::control::{
    Answer, Claim, FactView, Reply, Request, Server, StatusView, runtime_folder,
};
use restripe_io::front::listen::{Listener, Wire};
use restripe_io::front::nbd;
use restripe_io::remote::ProtocolMaker;
use restripe_io::signals::Termination;
use restripe_tier::{Destage, Sleep};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often a daemon looks whether its reactor still lives and, on standard input and output, its client.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// What a killed daemon held stays in use for a moment; longer than this, and somebody lives.
const IN_USE_PATIENCE: Duration = Duration::from_secs(2);
const IN_USE_PAUSE: Duration = Duration::from_millis(20);
/// Signals within this time are one.
const ECHO: Duration = Duration::from_secs(1);

pub fn assemble(verb: Assemble) -> Outcome {
    let members = members_from(verb.members, verb.config.as_deref())?;
    let setup = Setup {
        start: mode(&verb.start),
        degraded: verb.start.degraded,
        ..Setup::default()
    };
    let running = Running::start(&by_array(members, setup.start)?, &setup)?;
    let views = running
        .desks()
        .iter()
        .map(|desk| desk.status())
        .collect::<Result<Vec<StatusView>, _>>();
    let desks = running.desks().to_vec();
    let stopped = running.stop();
    if let Ok(views) = &views {
        tell_of_losses(&desks, views);
    }
    stopped?;
    for view in views? {
        if verb.json {
            print(serde_json::to_string(&view).map_err(|error| Failure::new(error.to_string()))?);
        } else {
            print(status::text(&view).trim_end());
        }
    }
    Ok(())
}

/// What a start gave up or went without, on standard error: no later one tells it again.
fn tell_of_losses(desks: &[Arc<Desk>], views: &[StatusView]) {
    for (desk, StatusView { name, .. }) in desks.iter().zip(views) {
        let (facts, _) = desk.facts_since(0);
        let lost = |fact: &&FactView| LOSSES.contains(&fact.kind.as_str());
        tell(name, facts.iter().filter(lost));
    }
}

/// Facts of an array, on standard error.
fn tell<'a>(name: &str, facts: impl Iterator<Item = &'a FactView>) {
    let mut more = 0;
    for (index, fact) in facts.enumerate() {
        if index < AT_ONCE || LOUD.contains(&fact.kind.as_str()) {
            journal::line(level(fact), format_args!("restripe: {name}: {}", fact.text));
        } else {
            more += 1;
        }
    }
    if more > 0 {
        say(format_args!("restripe: {name}: and {more} more"));
    }
}

/// How grave a fact is: what costs redundancy or data, what an operator should look at, and the rest.
fn level(fact: &FactView) -> Level {
    match fact.kind.as_str() {
        "member-failed" | "halted" | "lost" | "buffer-failed" => Level::Error,
        "surrogate-absent" | "buffer-absent" | "repaired" | "move-failed" | "mismatch"
        | "task-dropped" => Level::Warning,
        _ => Level::Info,
    }
}

pub fn mode(options: &StartOptions) -> StartMode {
    StartMode {
        from_minority: options.from_minority,
        accept_loss: options.accept_loss,
        read_only: options.read_only,
        volatile_members: options.volatile_members,
        force_owner: options.force_owner,
        ..StartMode::default()
    }
}

pub fn serve(verb: Serve) -> Outcome {
    let inherited = Listener::systemd();
    let (groups, file) = what_to_serve(&verb)?;
    if verb.record.is_some() && groups.len() > 1 {
        return Err(
            Failure::usage("a record holds one array").hint("serve the other arrays separately")
        );
    }
    let places = Places::choose(&verb, &file, inherited)?;
    let setup = setup(&verb, &file)?;
    let beforehand = |names: &[&str], ends: &Sender<End>| {
        // Until here nothing is written, and a signal may end it at once: a remote member is waited for. From here on
        // it may not, and no thread is there yet that does not hold the signals back.
        let termination =
            Termination::hold().map_err(|error| Failure::new(format!("signals: {error}")))?;
        watch_signals(termination, ends.clone(), setup.power)?;
        Ok((claim_all(names)?, places.bind(names)?))
    };
    let (running, (claims, doors)) = Running::start_as(&groups, &setup, beforehand)?;
    journal::begin().map_err(|error| Failure::new(format!("the log: {error}")))?;
    let mut controls = Vec::new();
    let served = serve_until_told(&running, claims, doors, &mut controls);
    // The names are free once the members are, too.
    let _claims: Vec<_> = controls.into_iter().flatten().map(Server::end).collect();
    let stopped = running.stop();
    served.map(|journal| journal.tell())?;
    stopped
}

fn what_to_serve(verb: &Serve) -> Outcome<(Vec<Vec<String>>, ServeConfig)> {
    match &verb.config {
        None => Ok((
            by_array(verb.members.clone(), mode(&verb.start))?,
            ServeConfig::default(),
        )),
        Some(path) => {
            let config = Config::read(path)?;
            Ok((
                config
                    .arrays
                    .into_iter()
                    .map(ArrayConfig::all_members)
                    .collect(),
                config.serve,
            ))
        }
    }
}

fn setup(verb: &Serve, file: &ServeConfig) -> Outcome<Setup> {
    let cache = verb.cache.or(file.cache).unwrap_or(0);
    if cache == 0 && verb.cache_policy.is_some() {
        let what = "--cache-policy requires a cache";
        return Err(Failure::usage(what).hint("pass --cache SIZE as well"));
    }
    Ok(Setup {
        start: StartMode {
            volatile_members: verb.start.volatile_members || file.volatile_members,
            ..mode(&verb.start)
        },
        degraded: verb.start.degraded || file.degraded,
        backend: match verb.backend {
            BackendName::Auto => BackendChoice::Automatic,
            BackendName::Uring => BackendChoice::Ring,
            BackendName::Threads => BackendChoice::Threads,
        },
        memory: verb.memory.or(file.memory).unwrap_or(MEMORY_BYTES),
        cache: read_cache(cache, verb.cache_policy.or(file.cache_policy))?,
        io_timeout: verb.io_timeout.or(file.io_timeout).unwrap_or(IO_TIMEOUT),
        probe: verb.probe.or(file.probe).unwrap_or(PROBE),
        direct: !verb.buffered,
        rate: verb.rate.or(file.rate),
        throttle: verb.throttle.or(file.throttle).unwrap_or_default(),
        order: verb.order.or(file.order).unwrap_or_default(),
        on_demand: verb.on_demand || file.on_demand,
        copy_back: !verb.no_copy_back && file.copy_back.unwrap_or(true),
        heat: heat(verb.zone.or(file.zone), verb.epoch.or(file.epoch)),
        redirect: verb.redirect.or(file.redirect),
        destage: destage(verb, file),
        destage_memory: verb.destage_memory.or(file.destage_memory),
        power: verb
            .power
            .clone()
            .or(file.power.clone())
            .map(hook)
            .transpose()?,
        watts: verb.watts.clone().or(file.watts.clone()),
        redirect_scrubs: verb.redirect_scrubs || file.redirect_scrubs,
        record: verb.record.clone(),
        wishes: wishes::given(verb, file),
    })
}

/// When what lies in a log that takes every write goes home, and who sleeps meanwhile.
fn destage(verb: &Serve, file: &ServeConfig) -> Destage {
    let nanos = |time: Duration| Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    let starts_a_day = verb.starts_a_day.or(file.starts_a_day);
    let sleep = verb.sleep.or(file.sleep).map(|after| Sleep {
        after: nanos(after),
        starts_a_day: starts_a_day.unwrap_or(Sleep::default().starts_a_day),
    });
    Destage {
        idle: verb.destage_idle.or(file.destage_idle).map(nanos),
        every: verb.destage_every.or(file.destage_every).map(nanos),
        sleep,
        clean: !verb.no_clean_log && file.clean_log.unwrap_or(true),
        order: verb
            .destage_order
            .or(file.destage_order)
            .unwrap_or_default(),
        ..Destage::default()
    }
}

/// One that could never be run is no reason to begin.
fn hook(command: PowerCommand) -> Outcome<PowerHook> {
    let hook = PowerHook::new(command.0, |line| say(format_args!("restripe: {line}")));
    let there = hook.check();
    there.map_err(|why| Failure::new(format!("--power exec:{why}")))?;
    Ok(hook)
}

/// Signals become a reason to end. A second one, not just an echo of the first (a shell and its group may both send
/// it), is an order to end at once.
fn watch_signals(termination: Termination, ends: Sender<End>, power: Option<PowerHook>) -> Outcome {
    let watch = move || {
        while termination.wait().is_ok() && ends.send(End::Signal).is_ok() {
            let first = Instant::now();
            while termination.wait().is_ok() {
                if first.elapsed() > ECHO {
                    warn("a second signal ends restripe at once; no member is marked clean");
                    if let Some(hook) = power {
                        hook.end();
                    }
                    journal::end(LAST_WORDS);
                    std::process::exit(1);
                }
            }
        }
    };
    let spawned = thread::Builder::new().name("signals".into()).spawn(watch);
    spawned
        .map(|_| ())
        .map_err(|error| Failure::new(format!("signals: {error}")))
}

/// The control socket of an array, on which nobody answers yet.
type Claimed = (Claim, UnixListener);

/// Two arrays may have one name, or one array two copies: the second is refused before it is started.
fn claim_all(names: &[&str]) -> Outcome<Vec<Claimed>> {
    for (nth, name) in names.iter().enumerate() {
        if names[..nth].contains(name) {
            let what = format!("two of these arrays have the name {name:?}");
            let hint = "serve them in two daemons, each with its own XDG_RUNTIME_DIR";
            return Err(Failure::new(what).hint(hint));
        }
    }
    let claims = names.iter().map(|name| Claim::control(name));
    Ok(claims.collect::<Result<_, _>>()?)
}

/// Gives the journal back: that all ended well is still to be told.
fn serve_until_told(
    running: &Running,
    claims: Vec<Claimed>,
    doors: Doors,
    controls: &mut Vec<Option<Server>>,
) -> Outcome<Arc<Journal>> {
    let desks = running.desks();
    let names = desks.iter().map(|desk| Ok(desk.status()?.name));
    let names = names.collect::<Outcome<Vec<String>>>()?;
    let journal = Arc::new(Journal::new(running, names.clone()));
    for (desk, (claim, listener)) in desks.iter().zip(claims) {
        let answer = Arc::new(Answering {
            desk: Arc::clone(desk),
            journal: Arc::clone(&journal),
        });
        controls.push(Some(Server::on(claim, listener, answer)?));
    }
    let stdio = doors.stdio;
    let uris = doors.open(running)?;
    announce(&names, &uris, stdio);
    journal.begin();
    wait(running, &journal, controls, stdio)?;
    Ok(journal)
}

/// Waits for the end of all arrays. One that is stopped before gives up its control socket.
fn wait(
    running: &Running,
    journal: &Journal,
    controls: &mut [Option<Server>],
    stdio: bool,
) -> Outcome {
    let mut left = running.desks().len();
    let mut had_client = false;
    loop {
        let end = running.next_end(LOOK_EVERY);
        journal.tell();
        match end {
            Some(End::Signal) => {
                say("restripe: stopping on a signal");
                return Ok(());
            }
            Some(End::Stopped(array)) => {
                left -= 1;
                if left > 0 {
                    controls[array] = None;
                }
            }
            None => {
                let ended = |_| Failure::new("the reactor ended unexpectedly");
                let clients = running.remote().connections().map_err(ended)?;
                if stdio && had_client && clients == 0 {
                    return Ok(());
                }
                had_client = had_client || clients > 0 || stdio;
            }
        }
        if left == 0 {
            return Ok(());
        }
    }
}

/// What befalls the arrays, on standard error, where an operator or the system's journal looks for it.
struct Journal {
    desks: Vec<Arc<Desk>>,
    names: Vec<String>,
    /// How far each array's log of facts has been told.
    next: Mutex<Vec<u64>>,
}

/// Answers for an array that a daemon serves. The daemon's log has a verb's lines before the verb has its answer. So a
/// daemon killed after the answer loses none of them.
struct Answering {
    desk: Arc<Desk>,
    journal: Arc<Journal>,
}

impl Answer for Answering {
    fn answer(&self, request: Request) -> Reply {
        let reply = self.desk.answer(request);
        self.desk.wait_for_facts();
        self.journal.tell();
        journal::settle();
        reply
    }
}

impl Journal {
    fn new(running: &Running, names: Vec<String>) -> Journal {
        let desks = running.desks().to_vec();
        Journal {
            next: Mutex::new(vec![0; desks.len()]),
            desks,
            names,
        }
    }

    /// Logs the slots without a member and what is lost.
    fn begin(&self) {
        for status in self.desks.iter().filter_map(|desk| desk.status().ok()) {
            for slot in status::vacant_slots(&status) {
                let what = format_args!("restripe: {}: slot {slot} has no member", status.name);
                journal::line(Level::Warning, what);
            }
            for lost in &status.lost {
                let (name, lost) = (&status.name, status::lost_line(lost));
                journal::line(Level::Error, format_args!("restripe: {name}: {lost}"));
            }
        }
    }

    fn tell(&self) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let places = self.names.iter().zip(&mut *next);
        for (desk, (name, next)) in self.desks.iter().zip(places) {
            let (facts, following) = desk.facts_since(*next);
            *next = following;
            let silent = |kind: &str| SILENT.contains(&kind);
            tell(name, facts.iter().filter(|fact| !silent(&fact.kind)));
        }
    }
}

/// So many facts of one look are told, and of the others those that nobody may miss; the rest is counted.
const AT_ONCE: usize = 20;
const LOUD: [&str; 8] = [
    "scrubbed",
    "task-dropped",
    "member-failed",
    "halted",
    "started",
    "stopped",
    "surrogate-absent",
    "buffer-absent",
];
/// What a start did without.
const LOSSES: [&str; 3] = ["lost", "surrogate-absent", "buffer-absent"];
/// Facts too frequent for a journal: `status` has them.
const SILENT: [&str; 1] = ["throttled"];

// ---------------------------------------------------------------------------------------------------------- places

/// Where clients may connect.
struct Places {
    unix: Option<PathBuf>,
    tcp: Option<SocketAddr>,
    stdio: bool,
    inherited: Vec<Listener>,
}

impl Places {
    fn choose(verb: &Serve, file: &ServeConfig, inherited: Vec<Listener>) -> Outcome<Places> {
        let asked = verb.unix.is_some() || verb.tcp.is_some() || verb.stdio;
        let (unix, tcp) = match asked {
            true => (verb.unix.clone(), verb.tcp.clone()),
            false => (file.unix.clone(), file.tcp.clone()),
        };
        let tcp = tcp.as_deref().map(tcp_address).transpose()?;
        Ok(Places {
            unix,
            tcp,
            stdio: verb.stdio,
            inherited,
        })
    }

    /// Takes the addresses: one that cannot be had is a reason not to start any array. Whoever connects waits until the
    /// arrays serve.
    fn bind(self, names: &[&str]) -> Outcome<Doors> {
        let nowhere =
            self.unix.is_none() && self.tcp.is_none() && !self.stdio && self.inherited.is_empty();
        let mut doors = Doors {
            listeners: self.inherited,
            uris: Vec::new(),
            stdio: self.stdio,
        };
        let unix = match (nowhere, self.unix) {
            (true, _) => Some(listen_by_default(names[0])?),
            (false, Some(path)) => Some((listen_unix(&path)?, path)),
            (false, None) => None,
        };
        if let Some((listener, path)) = unix {
            doors.listeners.push(listener);
            let uris = names.iter().map(|name| unix_uri(name, &path, names.len()));
            doors.uris.extend(uris);
        }
        if let Some(address) = self.tcp {
            let listener = listen_tcp(address).map_err(|error| listen_failure(&error, address))?;
            let address = listener.address().unwrap_or(address);
            doors.listeners.push(listener);
            let uris = names.iter().map(|name| tcp_uri(name, address, names.len()));
            doors.uris.extend(uris);
        }
        Ok(doors)
    }
}

/// Addresses that are ours already, on which nobody answers yet.
struct Doors {
    listeners: Vec<Listener>,
    /// By which they are reached.
    uris: Vec<String>,
    stdio: bool,
}

impl Doors {
    /// Lets clients in, and gives the URIs.
    fn open(self, running: &Running) -> Outcome<Vec<String>> {
        let maker: ProtocolMaker = Arc::new(|| Box::new(nbd::Connection::new()));
        let remote = running.remote();
        let ended = |_| Failure::new("the reactor ended unexpectedly");
        for listener in self.listeners {
            remote.listen(listener, Arc::clone(&maker)).map_err(ended)?;
        }
        if self.stdio {
            let wire = Wire::stdio()
                .map_err(|error| Failure::new(format!("standard input and output: {error}")))?;
            remote.adopt(wire, maker).map_err(ended)?;
        }
        Ok(self.uris)
    }
}

/// Listens on `NAME.nbd` in the runtime folder. A daemon that has stopped this array and serves others may still have that
/// socket: then on `NAME-PID.nbd`.
fn listen_by_default(name: &str) -> Outcome<(Listener, PathBuf)> {
    let usual = runtime_folder().join(format!("{name}.nbd"));
    match Listener::unix(&usual) {
        Ok(listener) => Ok((listener, usual)),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let free = runtime_folder().join(format!("{name}-{}.nbd", std::process::id()));
            Ok((listen_unix(&free)?, free))
        }
        Err(error) => Err(listen_failure(&error, &usual)),
    }
}

fn listen_unix(path: &PathBuf) -> Outcome<Listener> {
    Listener::unix(path).map_err(|error| listen_failure(&error, path))
}

/// Listens on a TCP address, again and again for a moment while somebody else does: the socket of a daemon that was
/// killed is closed only after its last operations are back.
fn listen_tcp(address: SocketAddr) -> io::Result<Listener> {
    let deadline = Instant::now() + IN_USE_PATIENCE;
    loop {
        match Listener::tcp(address) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < deadline => {
                thread::sleep(IN_USE_PAUSE);
            }
            listening => return listening,
        }
    }
}

fn listen_failure(error: &io::Error, at: impl ToText) -> Failure {
    let hint = match error.kind() {
        ErrorKind::AddrInUse => "stop the process that listens there, or choose another address",
        ErrorKind::NotFound => "create its folder first (mkdir -p), or choose another path",
        ErrorKind::PermissionDenied => "choose a path with write permission, or a port above 1023",
        ErrorKind::AddrNotAvailable => {
            "choose an address of this machine (`ip address` lists them)"
        }
        _ => "choose another address",
    };
    Failure::new(format!("cannot listen: {error}"))
        .at(at.to_text())
        .hint(hint)
}

trait ToText {
    fn to_text(&self) -> String;
}

impl ToText for &PathBuf {
    fn to_text(&self) -> String {
        self.display().to_string()
    }
}

impl ToText for SocketAddr {
    fn to_text(&self) -> String {
        self.to_string()
    }
}

/// A port, or a host and a port. A port alone is on loopback: whoever wants the world to connect says so.
fn tcp_address(text: &str) -> Outcome<SocketAddr> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    let wrong = || {
        Failure::usage(format!("{text:?} is not an address"))
            .hint("use a port such as 10809, or HOST:PORT")
    };
    let address = text
        .to_socket_addrs()
        .map_err(|_| wrong())?
        .next()
        .ok_or_else(wrong)?;
    if !address.ip().is_loopback() {
        warn(format_args!(
            "anyone who can reach {address} can read and write the array; the connection is not encrypted"
        ));
    }
    Ok(address)
}

/// One array is the default export, so its name is left out.
fn unix_uri(name: &str, path: &Path, arrays: usize) -> String {
    let export = if arrays == 1 { "" } else { name };
    format!("nbd+unix:///{export}?socket={}", escaped(&absolute(path)))
}

fn tcp_uri(name: &str, address: SocketAddr, arrays: usize) -> String {
    let export = if arrays == 1 { "" } else { name };
    format!("nbd://{address}/{export}")
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path)
        .unwrap_or_else(|_| path.to_path_buf())
        .to_string_lossy()
        .into_owned()
}

/// Percent-escapes what a URI's query would read otherwise.
fn escaped(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    path.bytes()
        .map(|byte| {
            if plain(byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

/// Tells people (one line an array and place) and systemd that clients can connect.
fn announce(names: &[String], uris: &[String], stdio: bool) {
    let what = if uris.is_empty() {
        names
            .iter()
            .map(|name| format!("{name}: serving"))
            .collect()
    } else {
        uris.to_vec()
    };
    match stdio {
        true => what.iter().for_each(say),
        // On a thread of its own: nothing needs to read it.
        false => drop(thread::spawn(move || what.iter().for_each(print_aside))),
    }
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET")
        && let Ok(sender) = UnixDatagram::unbound()
    {
        // A manager that does not read must not stop the daemon.
        let _ = sender.set_nonblocking(true);
        let _ = sender.send_to(b"READY=1\n", Path::new(&socket));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_on_loopback() {
        assert_eq!(
            tcp_address("10809").expect("a port").to_string(),
            "127.0.0.1:10809"
        );
        assert_eq!(tcp_address("127.0.0.1:0").expect("an address").port(), 0);
        assert!(tcp_address("nonsense").is_err() && tcp_address("99999").is_err());
    }

    #[test]
    fn uris_name_the_export_only_among_several() {
        let path = Path::new("/run/a b/x.nbd");
        assert_eq!(
            unix_uri("tank", path, 1),
            "nbd+unix:///?socket=/run/a%20b/x.nbd"
        );
        assert_eq!(
            unix_uri("tank", path, 2),
            "nbd+unix:///tank?socket=/run/a%20b/x.nbd"
        );
        let address = SocketAddr::from(([127, 0, 0, 1], 10809));
        assert_eq!(tcp_uri("tank", address, 1), "nbd://127.0.0.1:10809/");
    }
}
