//! Where clients connect: the addresses of a daemon, taken before any array is started.

use crate::args::tls::Prepared;
use crate::daemon::certificates::Certificates;
use crate::daemon::refusals::Refusals;
use crate::daemon::running::Running;
use crate::failure::{Failure, Outcome};
use crate::print::terminal::warn;
use restripe_io::control::runtime_folder;
use restripe_io::front::iscsi::hub::{Hub, StateWriter, Target, default_name};
use restripe_io::front::listen::{Listener, Wire};
use restripe_io::front::{Report, iscsi, nbd, vhost_user};
use restripe_io::remote::ProtocolMaker;
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// What a killed daemon held stays in use for a moment; longer than this, and somebody lives.
const IN_USE_PATIENCE: Duration = Duration::from_secs(2);

/// The ports that are registered for the protocols.
const NBD_PORT: u16 = 10809;
pub(crate) const ISCSI_PORT: u16 = 3260;

const IN_USE_PAUSE: Duration = Duration::from_millis(20);

/// Where clients may connect.
pub(crate) struct Places {
    unix: Option<PathBuf>,
    tcp: Option<SocketAddr>,
    stdio: bool,
    inherited: Vec<Listener>,
    /// `None`: clear text.
    tls: Option<Prepared>,
    iscsi: Option<Portal>,
    /// By array: the socket of the disk of a virtual machine, or the folder of that socket.
    disks: Vec<Option<PathBuf>>,
}

/// Where initiators may connect, and what is there for them. Without targets each array is one.
pub(crate) struct Portal {
    addresses: Vec<SocketAddr>,
    targets: Vec<Target>,
    /// Where reservations outlive the daemon. Without it initiators cannot ask for that.
    state: Option<PathBuf>,
}

impl Portal {
    pub fn new(
        addresses: &[String],
        targets: Vec<Target>,
        state: Option<PathBuf>,
    ) -> Outcome<Portal> {
        let addresses = addresses.iter().map(|text| address_of(text, ISCSI_PORT));
        let portal = Portal {
            addresses: addresses.collect::<Outcome<_>>()?,
            targets,
            state,
        };
        portal.warnings().iter().for_each(warn);
        Ok(portal)
    }

    /// What the operator should know of a portal that other machines can reach.
    fn warnings(&self) -> Vec<String> {
        let far = self.addresses.iter().filter(|at| !at.ip().is_loopback());
        far.flat_map(|at| self.warnings_at(at)).collect()
    }

    fn warnings_at(&self, at: &SocketAddr) -> Vec<String> {
        let anyone = format!("anyone who can reach {at} can read and write");
        let named = |target: &Target| {
            let name = &target.name;
            match (target.secrets.is_some(), target.initiators.is_empty()) {
                (true, _) => None,
                (false, true) => Some(format!(
                    "{anyone} {name}: it has neither `chap` nor `initiators`"
                )),
                (false, false) => Some(format!(
                    "{anyone} {name}: an initiator states its name without proof, so `initiators` without `chap` \
                     keeps out only mistakes"
                )),
            }
        };
        let mut warnings: Vec<String> = self.targets.iter().filter_map(named).collect();
        if self.targets.is_empty() {
            warnings.push(format!(
                "{anyone} the arrays: targets with `chap` need a configuration file"
            ));
        }
        warnings.push(format!("the iSCSI connections to {at} are not encrypted"));
        warnings
    }

    /// Where there is nothing but the portal, an array without a target is served nowhere.
    fn warn_of_hidden<'a>(&self, names: impl Iterator<Item = &'a str>) {
        let luns = || self.targets.iter().flat_map(|target| &target.luns);
        let hidden = names.filter(|name| !luns().any(|lun| lun == name));
        for name in hidden.filter(|_| !self.targets.is_empty()) {
            warn(format_args!(
                "no client can reach array {name}: no target has it, and it is served over iSCSI alone"
            ));
        }
    }

    /// No array that is for some clients of NBD is a logical unit as well: an initiator shows no certificate.
    fn check_lists(&self, names: &[&str], guard: &nbd::Guard) -> Outcome {
        let luns = || self.targets.iter().flat_map(|target| &target.luns);
        let exposed = |name: &str| self.targets.is_empty() || luns().any(|lun| lun == name);
        let listed = |name: &&&str| guard.clients.iter().any(|(array, _)| array == *name);
        match names.iter().filter(listed).find(|name| exposed(name)) {
            None => Ok(()),
            Some(name) => {
                let what =
                    format!("array {name} has a list of clients, and iSCSI serves it to others");
                Err(Failure::usage(what).hint("name targets without this array, or drop the list"))
            }
        }
    }

    /// Arrays whose targets would have the same name are refused: writes to one would reach the other.
    fn check_defaults(&self, names: &[&str]) -> Outcome {
        let same = |one: &str| {
            names
                .iter()
                .find(|other| **other != one && default_name(other) == default_name(one))
        };
        let pair = names.iter().find_map(|one| Some((one, same(one)?)));
        match pair.filter(|_| self.targets.is_empty()) {
            None => Ok(()),
            Some((one, other)) => {
                let target = default_name(one);
                let what =
                    format!("arrays {one} and {other} would both be the iSCSI target {target}");
                Err(Failure::usage(what).hint("name their targets in a configuration file"))
            }
        }
    }

    /// Each logical unit is an array of this daemon. `names` are those of all its arrays.
    fn check(&self, names: &[&str]) -> Outcome {
        self.check_defaults(names)?;
        for (nth, target) in self.targets.iter().enumerate() {
            let same = |other: &Target| other.name.eq_ignore_ascii_case(&target.name);
            let wrong = |what: String| Failure::usage(what).at(format!("target {}", target.name));
            if self.targets[..nth].iter().any(same) {
                return Err(wrong("two targets have this name".to_owned()));
            }
            if target.luns.is_empty() {
                return Err(wrong(
                    "a target needs at least one array in `luns`".to_owned(),
                ));
            }
            let luns = || target.luns.iter().enumerate();
            if let Some((_, lun)) = luns().find(|(nth, lun)| target.luns[..*nth].contains(lun)) {
                let what = format!("array {lun} would be two logical units of it");
                return Err(wrong(what).hint("an initiator would take them for two disks"));
            }
            let missing = target
                .luns
                .iter()
                .find(|lun| !names.contains(&lun.as_str()));
            if let Some(lun) = missing {
                let hint = format!("this daemon serves {}", names.join(", "));
                return Err(wrong(format!("no array {lun:?} for a logical unit")).hint(hint));
            }
        }
        Ok(())
    }
}

impl Places {
    pub fn new(
        unix: Option<PathBuf>,
        tcp: Option<&str>,
        stdio: bool,
        inherited: Vec<Listener>,
        iscsi: Option<Portal>,
        disks: Vec<Option<PathBuf>>,
        tls: Option<Prepared>,
    ) -> Outcome<Places> {
        let tcp = tcp.map(tcp_address).transpose()?;
        if let Some(address) = tcp.filter(|address| !address.ip().is_loopback()) {
            warn_of_strangers(address, tls.as_ref());
        }
        Ok(Places {
            unix,
            tcp,
            stdio,
            inherited,
            iscsi,
            disks,
            tls,
        })
    }

    /// Binds all addresses. If one cannot be bound, no array is started. From then on clients can connect,
    /// and wait until the arrays serve.
    pub fn bind(self, names: &[&str]) -> Outcome<Doors> {
        let asked =
            self.unix.is_some() || self.tcp.is_some() || self.stdio || !self.inherited.is_empty();
        let nowhere = !asked && self.iscsi.is_none() && self.disks.iter().any(Option::is_none);
        let nbd = asked || nowhere;
        if self.tls.is_some() && !nbd {
            let what = "TLS is for clients of NBD, and there is no address of NBD";
            return Err(Failure::usage(what)
                .hint("pass --unix or --tcp as well, or leave the options of TLS out"));
        }
        let mut doors = Doors {
            listeners: self.inherited,
            uris: Vec::new(),
            stdio: self.stdio,
            iscsi: None,
            disks: Vec::new(),
            guard: None,
            certificates: None,
            refusals: Refusals::default(),
        };
        let secure = self.tls.as_ref().is_some_and(|tls| tls.required);
        let scheme = if secure { "nbds" } else { "nbd" };
        let unix = match (nowhere, self.unix) {
            (true, _) => Some(listen_by_default(names[0])?),
            (false, Some(path)) => Some((listen_unix(&path)?, path)),
            (false, None) => None,
        };
        if let Some((listener, path)) = unix {
            doors.listeners.push(listener);
            let uri = |name: &&str| unix_uri(scheme, name, &path, names.len());
            doors.uris.extend(names.iter().map(uri));
        }
        if let Some(address) = self.tcp {
            let listener = listen_tcp(address).map_err(|error| listen_failure(&error, address))?;
            let address = listener.address().unwrap_or(address);
            doors.listeners.push(listener);
            let uri = |name: &&str| tcp_uri(scheme, name, address, names.len());
            doors.uris.extend(names.iter().map(uri));
        }
        let refusals = doors.refusals.clone();
        let report = Report::new(move |why| refusals.note(why));
        let certificates = |tls: &Prepared| Certificates::new(tls.tls.clone(), tls.folder.clone());
        doors.certificates = self.tls.as_ref().map(certificates);
        doors.guard = self.tls.map(|tls| Arc::new(tls.guard(names, report)));
        if let Some(portal) = self.iscsi {
            if !nbd {
                let disks = names.iter().zip(&self.disks);
                let without = disks.filter(|(_, disk)| disk.is_none());
                portal.warn_of_hidden(without.map(|(name, _)| *name));
            }
            if let Some(guard) = &doors.guard {
                portal.check_lists(names, guard)?;
            }
            doors.open_portal(portal, names)?;
        }
        doors.place_disks(&self.disks, names)?;
        Ok(doors)
    }
}

/// Addresses that are ours already, on which nobody answers yet.
pub(crate) struct Doors {
    listeners: Vec<Listener>,
    /// By which they are reached.
    uris: Vec<String>,
    pub stdio: bool,
    iscsi: Option<Gate>,
    /// Of virtual machines, one an array.
    disks: Vec<(Listener, ProtocolMaker)>,
    guard: Option<Arc<nbd::Guard>>,
    pub certificates: Option<Certificates>,
    pub refusals: Refusals,
}

/// A portal whose address is ours.
struct Gate {
    listeners: Vec<Listener>,
    hub: Hub,
    state: Option<PathBuf>,
}

impl Gate {
    /// Lets initiators in. Reservations that were kept hold from the first command on.
    fn open(self, running: &Running) -> Outcome {
        let ended = |_| Failure::new("the reactor ended unexpectedly");
        if let Some(state) = self.state {
            let remote = running.remote();
            let of = |array| Ok(remote.status(array)?.map(|status| (array, status.uuid)));
            let arrays = (0..running.controls().len()).filter_map(|array| of(array).transpose());
            let arrays = arrays.collect::<Result<Vec<_>, _>>().map_err(ended)?;
            let writer = writer(state.join("reservations"), running)?;
            self.hub.keep(&writer, &arrays).map_err(unreadable)?;
        }
        let hub = Arc::new(self.hub);
        let maker: ProtocolMaker =
            Arc::new(move || Box::new(iscsi::Connection::new(Arc::clone(&hub))));
        let mut listeners = self.listeners.into_iter();
        listeners
            .try_for_each(|one| running.remote().listen(one, Arc::clone(&maker)))
            .map_err(ended)
    }
}

fn writer(folder: PathBuf, running: &Running) -> Outcome<StateWriter> {
    let remote = running.remote().clone();
    let wake = move |connection| {
        // After the reactor nothing waits any more.
        let _ = remote.wake(connection);
    };
    let failed = |path: &Path, error: &io::Error| {
        let at = path.display();
        warn(format_args!(
            "{at}: a reservation cannot be kept, and was refused: {error}"
        ));
    };
    StateWriter::start(folder, wake, failed)
        .map_err(|error| Failure::new(format!("a thread: {error}")))
}

fn unreadable((path, why): (PathBuf, String)) -> Failure {
    Failure::new(format!(
        "the reservations of an array cannot be read: {why}"
    ))
    .at(path.display())
    .hint("remove the file once no cluster relies on it; initiators then register anew")
}

impl Doors {
    fn open_portal(&mut self, portal: Portal, names: &[&str]) -> Outcome {
        portal.check(names)?;
        let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
        for wanted in portal.addresses {
            let listener = listen_tcp(wanted).map_err(|error| listen_failure(&error, wanted))?;
            addresses.push(listener.address().unwrap_or(wanted));
            listeners.push(listener);
        }
        let targets = portal.targets;
        let by_default = names.iter().map(|name| format!("{}/0", default_name(name)));
        let units = |target: &Target| {
            let name = target.name.clone();
            (0..target.luns.len()).map(move |lun| format!("{name}/{lun}"))
        };
        let named: Vec<String> = match targets.is_empty() {
            true => by_default.collect(),
            false => targets.iter().flat_map(units).collect(),
        };
        for address in &addresses {
            let uri = |unit| format!("iscsi://{address}/{unit}");
            self.uris.extend(named.iter().map(uri));
        }
        let refusals = self.refusals.clone();
        let report = Report::new(move |why| refusals.note(why));
        self.iscsi = Some(Gate {
            listeners,
            hub: Hub::new(targets).at(addresses).reporting(report),
            state: portal.state,
        });
        Ok(())
    }

    /// Takes the sockets of virtual machines' disks.
    fn place_disks(&mut self, paths: &[Option<PathBuf>], names: &[&str]) -> Outcome {
        for (array, socket) in disk_sockets(paths, names)? {
            let refusals = self.refusals.clone();
            let report = Report::new(move |why| refusals.note(why));
            let maker = vhost_user::disk(array, report).map_err(Failure::new)?;
            self.disks.push((listen_unix(&socket)?, Arc::new(maker)));
            let socket = absolute(&socket);
            self.uris.push(format!("vhost-user-blk:{socket}"));
        }
        Ok(())
    }

    /// Lets clients in, and gives the URIs.
    pub fn open(self, running: &Running) -> Outcome<Vec<String>> {
        let guard = self.guard;
        let maker: ProtocolMaker = Arc::new(move || {
            Box::new(match &guard {
                Some(guard) => nbd::Connection::guarded(Arc::clone(guard)),
                None => nbd::Connection::new(),
            })
        });
        let remote = running.remote();
        let ended = |_| Failure::new("the reactor ended unexpectedly");
        for listener in self.listeners {
            remote.listen(listener, Arc::clone(&maker)).map_err(ended)?;
        }
        if let Some(gate) = self.iscsi {
            gate.open(running)?;
        }
        for (listener, maker) in self.disks {
            remote.listen(listener, maker).map_err(ended)?;
        }
        if self.stdio {
            let wire = Wire::stdio()
                .map_err(|error| Failure::new(format!("standard input and output: {error}")))?;
            remote.adopt(wire, maker).map_err(ended)?;
        }
        Ok(self.uris)
    }
}

/// Listens on `NAME.nbd` in the runtime folder. A daemon that has stopped this array and serves others may
/// still have that socket: then on `NAME-PID.nbd`.
fn listen_by_default(name: &str) -> Outcome<(Listener, PathBuf)> {
    let usual = runtime_folder().join(format!("{name}.nbd"));
    match Listener::unix(&usual) {
        Ok(listener) => Ok((listener, usual)),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let free = runtime_folder().join(format!("{name}-{}.nbd", std::process::id()));
            Ok((listen_unix(&free)?, free))
        }
        Err(error) => Err(listen_failure(&error, usual.display())),
    }
}

/// The arrays that have a socket of their own for a VMM, which asks for no name, and that socket.
fn disk_sockets(paths: &[Option<PathBuf>], names: &[&str]) -> Outcome<Vec<(usize, PathBuf)>> {
    let mut sockets: Vec<(usize, PathBuf)> = Vec::new();
    for (array, (path, name)) in paths.iter().zip(names).enumerate() {
        let Some(path) = path else { continue };
        let socket = match path.is_dir() {
            true => path.join(format!("{name}.vhost")),
            false => path.clone(),
        };
        if let Some((first, _)) = sockets.iter().find(|(_, taken)| *taken == socket) {
            let both = format!("{} and {name}", names[*first]);
            return Err(Failure::usage(format!(
                "one socket for the virtual machines of two arrays, {both}"
            ))
            .at(socket.display())
            .hint("name a folder (mkdir, chmod 700), in which each array has a socket"));
        }
        sockets.push((array, socket));
    }
    Ok(sockets)
}

fn listen_unix(path: &Path) -> Outcome<Listener> {
    Listener::unix(path).map_err(|error| listen_failure(&error, path.display()))
}

/// Listens on a TCP address. While the address is in use, it tries again for a moment: the kernel closes the
/// socket of a killed daemon only when the daemon's last operations have ended.
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

fn listen_failure(error: &io::Error, at: impl Display) -> Failure {
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
        .at(at)
        .hint(hint)
}

/// The address for NBD.
fn tcp_address(text: &str) -> Outcome<SocketAddr> {
    address_of(text, NBD_PORT)
}

/// What an address of the network means for the array.
fn warn_of_strangers(address: SocketAddr, tls: Option<&Prepared>) {
    let anyone = format!("anyone who can reach {address} can read and write the array");
    match tls {
        Some(tls) if tls.verifies => {}
        Some(tls) if tls.required => warn(format_args!("{anyone}; pass --tls-verify-peer")),
        Some(_) => warn(format_args!(
            "{anyone}, also without encryption; use --tls require"
        )),
        None => warn(format_args!("{anyone}; the connection is not encrypted")),
    }
}

/// A port, or a host and a port. A port alone is on loopback: to let the world connect, give the host.
/// `usual` is the protocol's port.
fn address_of(text: &str, usual: u16) -> Outcome<SocketAddr> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    let wrong = || {
        Failure::usage(format!("{text:?} is not an address"))
            .hint(format!("use a port such as {usual}, or HOST:PORT"))
    };
    let port = text.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    let unknown = |error: io::Error| match port {
        Some(Ok(_)) => Failure::new(format!("the host of {text} is not found: {error}")),
        _ => wrong(),
    };
    let mut addresses = text.to_socket_addrs().map_err(unknown)?;
    addresses.next().ok_or_else(wrong)
}

/// One array is the default export, so its name is left out.
fn unix_uri(scheme: &str, name: &str, path: &Path, arrays: usize) -> String {
    let export = if arrays == 1 { "" } else { name };
    format!(
        "{scheme}+unix:///{export}?socket={}",
        escaped(&absolute(path))
    )
}

fn tcp_uri(scheme: &str, name: &str, address: SocketAddr, arrays: usize) -> String {
    let export = if arrays == 1 { "" } else { name };
    format!("{scheme}://{address}/{export}")
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

#[cfg(test)]
mod tests {
    use super::*;
    use restripe_io::front::iscsi::chap::Secrets;

    #[test]
    fn a_port_alone_is_on_loopback() {
        assert_eq!(
            tcp_address("10809").expect("a port").to_string(),
            "127.0.0.1:10809"
        );
        assert_eq!(tcp_address("127.0.0.1:0").expect("an address").port(), 0);
        let said = |text| tcp_address(text).expect_err("no address").to_string();
        for text in ["nonsense", "99999", "host:", ":", "host:port"] {
            assert!(said(text).contains("is not an address"), "{text}");
        }
    }

    #[test]
    fn a_portal_for_other_machines_warns_of_what_it_lets_in() {
        let target = |secret: bool, initiators: &[&str]| Target {
            name: "iqn.x:a".to_owned(),
            luns: vec!["tank".to_owned()],
            initiators: initiators.iter().map(|&name| name.to_owned()).collect(),
            secrets: secret.then(|| Secrets::parse("initiator a 0123456789abc").expect("sound")),
            ..Target::default()
        };
        let warnings = |address: &str, targets| {
            let portal = Portal::new(&[address.to_owned()], targets, None).expect("an address");
            portal.warnings()
        };
        assert!(warnings("3260", Vec::new()).is_empty());
        assert!(warnings("127.0.0.1:3260", vec![target(false, &[])]).is_empty());
        let far = |targets| warnings("192.0.2.1:3260", targets);
        assert!(far(Vec::new())[0].contains("can read and write the arrays"));
        assert!(far(vec![target(false, &[])])[0].contains("neither `chap` nor `initiators`"));
        assert!(far(vec![target(false, &["iqn.x:y"])])[0].contains("without proof"));
        let [encryption] = &far(vec![target(true, &[])])[..] else {
            panic!("one warning");
        };
        assert!(encryption.contains("not encrypted"));
    }

    #[test]
    fn a_logical_unit_that_is_no_array_is_refused() {
        let target = |name: &str, luns: &[&str]| Target {
            name: name.to_owned(),
            luns: luns.iter().map(|&lun| lun.to_owned()).collect(),
            ..Target::default()
        };
        let check = |targets| {
            let portal = Portal::new(&["0".to_owned()], targets, None).expect("an address");
            portal.check(&["tank", "vault"])
        };
        let refused = |targets| check(targets).expect_err("it is refused").to_string();
        check(vec![
            target("a", &["vault", "tank"]),
            target("b", &["tank"]),
        ])
        .expect("sound");
        let missing = refused(vec![target("a", &["tank", "pool", "vault"])]);
        assert!(missing.contains("no array \"pool\"") && missing.contains("tank, vault"));
        assert!(refused(vec![target("a", &[])]).contains("at least one array"));
        let same = refused(vec![target("a", &["tank", "vault", "tank"])]);
        assert!(same.contains("array tank would be two logical units"));
        let twice = vec![target("a", &["tank"]), target("A", &["vault"])];
        assert!(refused(twice).contains("two targets"));
    }

    #[test]
    fn no_two_arrays_are_one_target() {
        let check = |names: &[&str]| {
            let portal = Portal::new(&["0".to_owned()], Vec::new(), None).expect("an address");
            portal.check(names)
        };
        check(&["tank", "Vault", "my_pool"]).expect("each has its own");
        for (one, other) in [("tank", "TANK"), ("my_pool", "my-pool")] {
            let said = check(&["vault", one, other]).expect_err("one target for two");
            assert!(said.to_string().contains("would both be the iSCSI target"));
        }
        assert_eq!(default_name("My_Tank"), "iqn.2026-11.restripe:my-tank");
    }

    #[test]
    fn each_array_has_a_socket_for_its_machine() {
        let folder = std::env::temp_dir();
        let (socket, other) = (Path::new("/none/tank.sock"), Path::new("/none/vault.sock"));
        let sockets = |paths: &[Option<&Path>]| {
            let paths: Vec<_> = paths.iter().map(|path| path.map(PathBuf::from)).collect();
            disk_sockets(&paths, &["tank", "vault"][..paths.len()])
        };
        let one = sockets(&[Some(socket)]).expect("a socket");
        assert_eq!(one, [(0, socket.to_path_buf())]);
        let two = sockets(&[Some(&folder), Some(&folder)]).expect("a folder");
        let in_folder = |name: &str| folder.join(format!("{name}.vhost"));
        assert_eq!(two, [(0, in_folder("tank")), (1, in_folder("vault"))]);
        let own = sockets(&[Some(socket), Some(other)]).expect("two sockets");
        assert_eq!(own, [(0, socket.to_path_buf()), (1, other.to_path_buf())]);
        let second = sockets(&[None, Some(&folder)]).expect("one has none");
        assert_eq!(second, [(1, in_folder("vault"))]);
        let refused = sockets(&[Some(socket), Some(socket)]);
        let refused = refused.expect_err("one socket for two").to_string();
        assert!(refused.contains("two arrays, tank and vault"), "{refused}");
    }

    #[test]
    fn uris_name_the_export_only_among_several() {
        let path = Path::new("/run/a b/x.nbd");
        assert_eq!(
            unix_uri("nbd", "tank", path, 1),
            "nbd+unix:///?socket=/run/a%20b/x.nbd"
        );
        assert_eq!(
            unix_uri("nbds", "tank", path, 2),
            "nbds+unix:///tank?socket=/run/a%20b/x.nbd"
        );
        let address = SocketAddr::from(([127, 0, 0, 1], 10809));
        assert_eq!(tcp_uri("nbd", "tank", address, 1), "nbd://127.0.0.1:10809/");
    }
}
