//! A real array of simulated drives in this process: drives behind NBD, the reactor, and users that come over NBD.

use restripe_array::layout::{Level, Skew};
use restripe_array::meta::{Content, CreateOptions, Init, Partner, PartnerRole, WriteHole, create};
use restripe_array::{
    Command, Fact, Limits, Member, Nanos, StartMode, TaskKind, TaskOutcome, Uuid,
};
use restripe_io::front::listen::Listener;
use restripe_io::front::nbd;
use restripe_io::plain::Plain;
use restripe_io::{ArraySpec, Running, Shell, ShellOptions};
use restripe_lab::drives::clock::Clockwork;
use restripe_lab::drives::export::{Backing, Export};
use restripe_lab::drives::preset::{self, Made};
use restripe_lab::nbd::Address;
use restripe_lab::replay::facts::Log;
use restripe_lab::replay::stage::ArrayPlan;
use restripe_lab::replay::{Pace, real};
use restripe_lab::trace::Item;
use restripe_sim::disk::mechanical::Mechanical;
use restripe_sim::disk::served::HardDisk;
use restripe_tier::{Destage, SurrogateConfig, SurrogateLimits};
use std::fs;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

/// What a member has beyond its set data.
const METADATA_BYTES: u64 = 16 << 20;
/// Commands within a drive at a time.
const DRIVE_DEPTH: u32 = 32;
const STEP: Duration = Duration::from_millis(250);
/// Longer than any rebuild at its least rate.
const PATIENCE: Duration = Duration::from_secs(300);

type Users<'a> = Box<dyn Iterator<Item = Item> + Send + 'a>;
type Facts = Receiver<(Nanos, Fact)>;

/// What came of a rebuild.
#[derive(Clone, Copy)]
pub struct Figures {
    pub rebuild_s: f64,
    /// Of requests answered during the rebuild; not a number where there were none.
    pub mean_ms: f64,
    /// Share of requests that the surrogate took or served alone.
    #[allow(dead_code)] // Not every example has a surrogate.
    pub moved: f64,
}

/// How long users ask before the member fails, and from then until there is a drive to rebuild onto.
#[derive(Clone, Copy)]
pub struct Times {
    pub healthy: Duration,
    pub degraded: Duration,
}

pub struct Rig {
    running: Running,
    drives: Vec<Drive>,
    blank: PathBuf,
    /// The blank drive is wanted: there is no spare.
    comes: bool,
    folder: PathBuf,
    door: PathBuf,
}

/// One set of the array: its own, or the surrogate's.
struct Set {
    identity: u8,
    level: Level,
    skew: Option<Skew>,
    spare_partitions: u16,
    members: u16,
    spares: u16,
    write_hole: WriteHole,
    partner: Option<PartnerRole>,
}

impl Rig {
    /// Formats blank drives and serves the array. No two of a name at a time.
    pub fn start(plan: &ArrayPlan, name: &str) -> Result<Rig, String> {
        let process = std::process::id();
        let folder = std::env::temp_dir().join(format!("restripe-schemes-{process}-{name}"));
        fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        let (mut drives, mut members) = (Vec::new(), Vec::new());
        for set in sets(plan) {
            let mut plain = Vec::new();
            for index in 0..set.members + set.spares {
                let socket = folder.join(format!("drive{}", drives.len()));
                let export = export(plan, index >= set.members)?;
                drives.push(Drive::serve(export, socket.clone())?);
                plain.push(open(&socket)?);
            }
            format(plan, &set, &plain)?;
            members.extend(plain.into_iter().map(Plain::into_member));
        }
        let blank = folder.join("blank");
        drives.push(Drive::serve(export(plan, true)?, blank.clone())?);
        let spec = spec(plan, members);
        let running = Shell::spawn(ShellOptions::default(), |shell| shell.host(spec).map(drop));
        let rig = Rig {
            running: running.map_err(|error| error.to_string())?,
            drives,
            blank,
            door: folder.join("array"),
            folder,
            comes: plan.spares == 0,
        };
        rig.serve(plan)?;
        Ok(rig)
    }

    fn serve(&self, plan: &ArrayPlan) -> Result<(), String> {
        self.order(Command::Start(StartMode::default()))?;
        self.order(Command::Throttle(plan.throttle))?;
        self.order(Command::Order(plan.order))?;
        self.order(Command::Rate {
            min: plan.rebuild_min,
            max: plan.rebuild_max,
        })?;
        let listener = Listener::unix(&self.door).map_err(|error| error.to_string())?;
        let maker = Arc::new(|| Box::new(nbd::Connection::new()) as _);
        let listens = self.running.remote.listen(listener, maker);
        listens.map_err(|_| "the reactor has ended".into())
    }

    fn order(&self, command: Command) -> Result<(), String> {
        let answer = self.running.remote.command(0, command);
        let answer = answer.map_err(|_| "the reactor has ended")?;
        answer.map_err(|error| format!("{command:?} was refused: {error:?}"))
    }

    /// Users ask, a member fails, a drive comes in its place, or a spare is there, and they go on until the rebuild is over.
    pub fn rebuild(
        &self,
        asked: impl Iterator<Item = Item>,
        times: Times,
    ) -> Result<Figures, String> {
        // A generator stays on its thread: what it makes is more than users ask for until the rebuild's end.
        let ended = AtomicBool::new(false);
        let most = Nanos((times.healthy + times.degraded + PATIENCE).as_nanos() as u64);
        let asked = asked.take_while(|item| item.as_ref().is_ok_and(|one| one.time < most.0));
        let asked: Vec<Item> = asked.collect();
        let users: Users<'_> = Box::new(
            asked
                .into_iter()
                .take_while(|_| !ended.load(Ordering::Relaxed)),
        );
        let facts = self.facts()?;
        let world = real::Remote {
            address: Address::Unix(self.door.clone()),
            export: String::new(),
        };
        let world = &world;
        thread::scope(|scope| {
            let begun = Instant::now();
            let pace = Pace::Open { speed_milli: 1000 };
            let replay =
                scope.spawn(move || real::replay(world, users, pace, STEP.as_nanos() as u64));
            // Time in which users only ask.
            thread::sleep(times.healthy);
            let window = self.fail_and_wait(&facts, begun, times.degraded);
            ended.store(true, Ordering::Relaxed);
            let log = replay.join().map_err(|_| "the replay panicked")??;
            Ok(window?.figures(&log))
        })
    }

    fn facts(&self) -> Result<Facts, String> {
        let facts = self.running.remote.facts(0);
        facts.map_err(|_| "the reactor has ended".into())
    }

    fn fail_and_wait(
        &self,
        facts: &Facts,
        begun: Instant,
        degraded: Duration,
    ) -> Result<Window, String> {
        self.order(Command::Fail(Member(0)))?;
        let blank = open(&self.blank)?.into_member();
        thread::sleep(degraded);
        let before = self.moved()?;
        if self.comes {
            let arrived = self.running.remote.arrive(0, blank);
            let arrived = arrived.map_err(|_| "the reactor has ended")?;
            let arrived = arrived.map_err(|_| "the array does not take the device")?;
            self.order(Command::Add(arrived))?;
        }
        let mut from = None;
        loop {
            let (at, fact) = facts
                .recv_timeout(PATIENCE)
                .map_err(|error| error.to_string())?;
            match fact {
                Fact::TaskStarted {
                    kind: TaskKind::Rebuild,
                    ..
                } => from = Some((at, begun.elapsed())),
                Fact::TaskEnded {
                    kind: TaskKind::Rebuild,
                    outcome,
                    ..
                } => {
                    let (began, from) = from.ok_or("a rebuild ended that never began")?;
                    if outcome != TaskOutcome::Done {
                        return Err(format!("the rebuild ended as {outcome:?}"));
                    }
                    return Ok(Window {
                        rebuild_s: at.since(began).0 as f64 / 1e9,
                        from,
                        to: begun.elapsed(),
                        moved: self.moved()? - before,
                    });
                }
                Fact::Lost { .. } => return Err("something was lost".into()),
                _ => {}
            }
        }
    }

    /// Requests that the surrogate took, or served alone.
    fn moved(&self) -> Result<u64, String> {
        let status = self.running.remote.status(0);
        let status = status.map_err(|_| "the reactor has ended")?;
        let surrogate = status.ok_or("there is no array")?.surrogate;
        let counted = surrogate
            .and_then(|one| one.overlay)
            .map(|one| one.counters);
        Ok(counted.map_or(0, |counted| {
            counted.redirected_writes + counted.reads_of_log - counted.reads_of_both
        }))
    }

    pub fn end(self) -> Result<(), String> {
        self.running
            .remote
            .shutdown()
            .map_err(|_| "the reactor has ended")?;
        self.running.join().map_err(|error| error.to_string())?;
        for drive in &self.drives {
            drive.end().map_err(|error| error.to_string())?;
        }
        fs::remove_dir_all(&self.folder).map_err(|error| error.to_string())
    }
}

/// The time of a rebuild, by the users' clock.
struct Window {
    rebuild_s: f64,
    from: Duration,
    to: Duration,
    moved: u64,
}

impl Window {
    /// Of the answers within it, to a step.
    fn figures(&self, log: &Log) -> Figures {
        let span = self.from.as_nanos()..self.to.as_nanos();
        let within = log
            .steps
            .iter()
            .filter(|step| span.contains(&u128::from(step.from_ns)));
        let (requests, time) = within.fold((0, 0.0), |(requests, time), step| {
            (
                requests + step.requests,
                time + step.mean_ns as f64 * step.requests as f64,
            )
        });
        Figures {
            rebuild_s: self.rebuild_s,
            mean_ms: time / requests as f64 / 1e6,
            moved: self.moved as f64 / requests as f64,
        }
    }
}

fn sets(plan: &ArrayPlan) -> Vec<Set> {
    let mut sets = vec![Set {
        identity: 1,
        level: plan.level,
        skew: plan.skew,
        spare_partitions: plan.spare_partitions,
        members: plan.members,
        spares: plan.spares,
        write_hole: plan.write_hole,
        partner: plan.surrogate.map(|_| PartnerRole::Main),
    }];
    sets.extend(plan.surrogate.map(|surrogate| Set {
        identity: 2,
        level: surrogate.level,
        skew: None,
        spare_partitions: 0,
        members: surrogate.members,
        spares: 0,
        write_hole: WriteHole::default_for(surrogate.level),
        partner: Some(PartnerRole::Surrogate),
    }));
    sets
}

fn spec(plan: &ArrayPlan, members: Vec<restripe_io::member::OpenMember>) -> ArraySpec {
    let surrogate = plan.surrogate.map(|surrogate| SurrogateConfig {
        buffer_members: 0,
        members: surrogate.members,
        limits: SurrogateLimits::default(),
        redirect: surrogate.redirect,
        scrubs: false,
        destage: Destage::default(),
    });
    let limits = Limits {
        heat: plan.heat,
        ..Limits::default().with_pool(surrogate.as_ref().map(|one| one.limits.whole_pool()))
    };
    ArraySpec {
        members,
        limits,
        surrogate,
        io_timeout: Nanos::from_secs(60),
        probe: Nanos::from_secs(10),
        record: None,
    }
}

fn open(socket: &Path) -> Result<Plain, String> {
    let name = format!("nbd+unix:///?socket={}", socket.display());
    Plain::open(&name, false).map_err(|error| format!("{error:?}"))
}

/// Makes a set of blank drives, which agree.
fn format(plan: &ArrayPlan, set: &Set, drives: &[Plain]) -> Result<(), String> {
    let array = Uuid([0xa0 + set.identity; 16]);
    let mut options = CreateOptions::new("schemes", array, set.level, plan.chunk_sectors);
    options.members = drives.iter().map(Plain::info).collect();
    let number = |index: usize| Uuid([set.identity * 0x20 + index as u8; 16]);
    options.uuids = (0..drives.len()).map(number).collect();
    options.geometry.skew = set.skew;
    options.spare_partitions = set.spare_partitions;
    options.spares = set.spares.into();
    options.write_hole = set.write_hole;
    options.init = Init::Trust;
    options.size_per_member = Some(plan.member_bytes / 512);
    options.partner = set
        .partner
        .map(|role| Partner::new(role, Uuid([0xa0 + 3 - set.identity; 16])));
    let creation = create(&options).map_err(|error| error.to_string())?;
    for (member, at, content) in &creation.writes {
        let written = match content {
            Content::Page(page) => drives[*member].write(*at, &page[..]),
            Content::Zero(sectors) => drives[*member].zero(*at, *sectors),
        };
        written.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// A drive as `restripe sim-disk` serves it.
struct Drive {
    export: Export,
    socket: PathBuf,
    ended: Arc<AtomicBool>,
}

impl Drive {
    fn serve(export: Export, socket: PathBuf) -> Result<Drive, String> {
        // What an earlier rig has left.
        drop(fs::remove_file(&socket));
        let listener = UnixListener::bind(&socket).map_err(|error| error.to_string())?;
        let drive = Drive {
            export,
            socket,
            ended: Arc::default(),
        };
        let (served, ended) = (drive.export.clone(), Arc::clone(&drive.ended));
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if ended.load(Ordering::Relaxed) {
                    break;
                }
                served.attach(stream);
            }
        });
        Ok(drive)
    }

    /// Frees what was written, which whoever waits for the next connection holds, too.
    fn end(&self) -> io::Result<()> {
        self.export.stop()?;
        self.ended.store(true, Ordering::Relaxed);
        UnixStream::connect(&self.socket).map(drop)
    }
}

/// A drive of the members' kind, or of the spares'.
fn export(plan: &ArrayPlan, spare: bool) -> Result<Export, String> {
    let name = plan.spare_drive.as_ref().filter(|_| spare);
    let clockwork = match preset::named(name.unwrap_or(&plan.drive))?.make()? {
        Made::Flash(drive) => Clockwork::flash(drive, DRIVE_DEPTH),
        Made::Mechanical(drive) => {
            let mut parts = drive.drive().clone();
            parts.cache.write_back = plan.write_cache;
            let disk = HardDisk::new(Mechanical::new(parts)?, plan.schedule, None);
            Clockwork::hard(disk, plan.schedule, DRIVE_DEPTH)
        }
    };
    let partitions = plan.skew.map_or(1, |skew| u64::from(skew.partitions));
    let hosted = plan.member_bytes / partitions * u64::from(plan.spare_partitions);
    let bytes = plan.member_bytes + hosted + METADATA_BYTES;
    Ok(Export::start(clockwork, Backing::memory(), bytes))
}
