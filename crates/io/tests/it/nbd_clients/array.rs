//! Arrays on image files or remote members, served by the real reactor.

use crate::nbd_clients::tools::{Folder, PATIENCE, Target};
use restripe_array::cache::Rule;
use restripe_array::layout::Level;
use restripe_array::meta::{Content, CreateOptions, Creation, create};
use restripe_array::report::ArrayState;
use restripe_array::{
    CacheLimits, Command, Fact, Limits, Member, Nanos, StartMode, TaskKind, TaskOutcome, Uuid,
};
use restripe_io::front::iscsi::{self, hub};
use restripe_io::front::listen::Listener;
use restripe_io::front::nbd::Connection;
use restripe_io::front::{Report, vhost_user};
use restripe_io::member::{OpenOptions, open, open_members};
use restripe_io::plain::Plain;
use restripe_io::{ArraySpec, Remote, Running, Shell, ShellOptions};
use restripe_tier::report::Status;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Instant;

const CHUNK_SECTORS: u32 = 128;
const MEMBER_BYTES: u64 = 12 << 20;
/// Longer than a device operation takes here, on a machine that has much else to do.
pub const IO_TIMEOUT: Nanos = Nanos::from_secs(180);

/// Members in the page cache: what is tested here is not the disks.
const OPEN: OpenOptions = OpenOptions {
    direct: true,
    read_only: false,
    exclusive: true,
    file_block: 512,
    patience: PATIENCE,
    power: None,
};

/// An array that is served until it is dropped.
pub struct Array {
    folder: Folder,
    running: Option<Running>,
    facts: Receiver<(Nanos, Fact)>,
    size: usize,
}

/// Makes image files with a new array on them, and tells their names.
pub fn make(folder: &Folder, level: Level, members: usize) -> Vec<String> {
    let names: Vec<String> = (0..members).map(|i| image(folder, i)).collect();
    let plain: Vec<Plain> = names
        .iter()
        .map(|name| Plain::open(name, false).expect("a new image"))
        .collect();
    let mut options = CreateOptions::new("disk", Uuid([7; 16]), level, CHUNK_SECTORS);
    options.members = plain.iter().map(Plain::info).collect();
    options.uuids = (1..=members).map(|i| Uuid([i as u8; 16])).collect();
    write(&create(&options).expect("a sound geometry"), &plain);
    names
}

/// An empty image file.
fn image(folder: &Folder, number: usize) -> String {
    let name = member(folder, number);
    let file = File::create_new(&name).expect("a new file");
    file.set_len(MEMBER_BYTES).expect("room for an image");
    name
}

/// The name of an image file.
pub fn member(folder: &Folder, number: usize) -> String {
    let path = folder.file(&format!("member-{number}"));
    path.display().to_string()
}

fn write(creation: &Creation, members: &[Plain]) {
    for (member, at, content) in &creation.writes {
        match content {
            Content::Page(page) => members[*member].write(*at, &page[..]),
            Content::Zero(sectors) => members[*member].zero(*at, *sectors),
        }
        .expect("room on the image");
    }
}

impl Array {
    pub fn new(level: Level, members: usize) -> Array {
        let folder = Folder::new();
        let names = make(&folder, level, members);
        Array::serve(folder, &names, IO_TIMEOUT)
    }

    /// With a read cache that is much smaller than what is read.
    pub fn cached(level: Level, members: usize) -> Array {
        let folder = Folder::new();
        let names = make(&folder, level, members);
        Array::serve_cached(folder, &names, ShellOptions::default())
    }

    pub fn serve_cached(folder: Folder, members: &[String], options: ShellOptions) -> Array {
        let limits = Limits::default().with_cache(Some(CacheLimits {
            blocks: 600,
            rule: Rule::VdfLfu,
        }));
        Array::serve_with(folder, members, IO_TIMEOUT, options, limits)
    }

    /// Starts an array on these members and serves it on a socket in the folder.
    pub fn serve(folder: Folder, members: &[String], io_timeout: Nanos) -> Array {
        let options = ShellOptions::default();
        Array::serve_with(folder, members, io_timeout, options, Limits::default())
    }

    /// Started read-only.
    pub fn read_only(level: Level, members: usize) -> Array {
        let folder = Folder::new();
        let names = make(&folder, level, members);
        let (options, limits) = (ShellOptions::default(), Limits::default());
        let mode = StartMode {
            read_only: true,
            ..StartMode::default()
        };
        Array::start(folder, &names, IO_TIMEOUT, options, limits, mode)
    }

    pub fn serve_with(
        folder: Folder,
        members: &[String],
        io_timeout: Nanos,
        options: ShellOptions,
        limits: Limits,
    ) -> Array {
        let mode = StartMode::default();
        Array::start(folder, members, io_timeout, options, limits, mode)
    }

    fn start(
        folder: Folder,
        members: &[String],
        io_timeout: Nanos,
        options: ShellOptions,
        limits: Limits,
        mode: StartMode,
    ) -> Array {
        let members = held_by_the_dead(|| open_members(members, OPEN));
        let spec = ArraySpec {
            members,
            limits,
            surrogate: None,
            io_timeout,
            probe: Nanos::from_secs(10),
            record: None,
        };
        let running = Shell::spawn(options, |shell| shell.host(spec).map(drop)).expect("a reactor");
        let remote = running.remote.clone();
        let facts = remote.facts(0).expect("a reactor that runs");
        command(&remote, Command::Start(mode));
        let listener = held_by_the_dead(|| Listener::unix(&folder.file("socket")));
        let protocol = Arc::new(|| Box::new(Connection::new()) as Box<_>);
        remote
            .listen(listener, protocol)
            .expect("a reactor that runs");
        let size = status(&remote).size_bytes as usize;
        Array {
            folder,
            running: Some(running),
            facts,
            size,
        }
    }

    pub fn target(&self) -> Target {
        Target {
            socket: self.folder.file("socket"),
            export: "disk".to_owned(),
            size: self.size,
        }
    }

    /// Serves the array over iSCSI as well: the URI of its logical unit.
    pub fn serve_iscsi(&self, targets: Vec<hub::Target>) -> String {
        let [uri] = self.serve_portals(targets);
        uri
    }

    /// The same at several portals.
    pub fn serve_portals<const PORTALS: usize>(
        &self,
        targets: Vec<hub::Target>,
    ) -> [String; PORTALS] {
        let name = match targets.first() {
            Some(target) => target.name.clone(),
            None => format!("{}disk", hub::NAME_PREFIX),
        };
        let hub = Arc::new(hub::Hub::new(targets));
        std::array::from_fn(|_| {
            let listener = Listener::tcp(([127, 0, 0, 1], 0).into()).expect("a port");
            let address = listener.address().expect("it has one");
            let hub = Arc::clone(&hub);
            let protocol =
                Arc::new(move || Box::new(iscsi::Connection::new(hub.clone())) as Box<_>);
            let listening = self.remote().listen(listener, protocol);
            listening.expect("a reactor that runs");
            format!("iscsi://{address}/{name}/0")
        })
    }

    /// Serves the array to a VMM as well: the path of the socket.
    pub fn serve_vhost_user(&self) -> PathBuf {
        let path = self.folder.file("vhost-user");
        let listener = Listener::unix(&path).expect("a new socket");
        let report = Report::new(|_| {});
        let protocol = Arc::new(vhost_user::disk(0, report).expect("built with it"));
        let listening = self.remote().listen(listener, protocol);
        listening.expect("a reactor that runs");
        path
    }

    pub fn remote(&self) -> &Remote {
        &self.running.as_ref().expect("until it is dropped").remote
    }

    pub fn order(&self, order: Command) {
        command(self.remote(), order);
    }

    pub fn fail(&self, member: u16) {
        self.order(Command::Fail(Member(member)));
    }

    /// Adds a new image as a spare. A degraded array begins to rebuild onto it.
    pub fn add_spare(&self, number: usize) {
        let name = image(&self.folder, number);
        let member = open(&name, OPEN).expect("a new image");
        let remote = self.remote();
        let member = remote.arrive(0, member).expect("a reactor that runs");
        let member = member.expect("the array is there");
        command(remote, Command::Add(member));
    }

    /// The facts that nobody has waited for.
    pub fn told(&self) -> Vec<Fact> {
        self.facts.try_iter().map(|(_, fact)| fact).collect()
    }

    /// Waits until a fact is told.
    pub fn wait_for(&self, wanted: impl Fn(&Fact) -> bool) -> Fact {
        loop {
            let (_, fact) = self.facts.recv_timeout(PATIENCE).expect("a fact in time");
            if wanted(&fact) {
                return fact;
            }
        }
    }

    /// Waits for the end of a task, which must have been a good one.
    pub fn wait_for_end(&self, wanted: TaskKind) {
        let ended =
            self.wait_for(|fact| matches!(fact, Fact::TaskEnded { kind, .. } if *kind == wanted));
        let done = |fact: &Fact| {
            let outcome = TaskOutcome::Done;
            matches!(fact, Fact::TaskEnded { outcome: how, .. } if *how == outcome)
        };
        assert!(done(&ended), "{ended:?}");
    }

    pub fn state(&self) -> ArrayState {
        status(self.remote()).state
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        let Some(running) = self.running.take() else {
            return;
        };
        let stopped = running.remote.shutdown().is_ok() && running.join().is_ok();
        assert!(stopped || std::thread::panicking(), "the reactor ends well");
    }
}

pub fn command(remote: &Remote, command: Command) {
    let answer = remote.command(0, command).expect("a reactor that runs");
    assert_eq!(answer, Ok(()), "{command:?}");
}

/// Tries until it works: after a kill the kernel gives back what a ring held some moments after the process
/// is gone.
fn held_by_the_dead<T, E: std::fmt::Debug>(mut attempt: impl FnMut() -> Result<T, E>) -> T {
    let begun = Instant::now();
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{error:?}"),
        }
        thread::yield_now();
    }
}

/// Asks again and again until it is so.
pub fn wait_until(mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "in time");
        thread::yield_now();
    }
}

pub fn status(remote: &Remote) -> Status {
    let status = remote.status(0).expect("a reactor that runs");
    status.expect("the array is there")
}
