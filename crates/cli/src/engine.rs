//! Engines in this process: opens members, starts a reactor with one array or several, and ends it properly.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use crate::command::WithoutDaemon;
use crate::desk::stop::BeforeEnd;
use crate::desk::{Desk, End, Said};
use crate::failure::{Failure, Outcome};
use crate::member::{check_distinct, open_failure, readable_copies, refuse_cycle, refuse_volatile};
use crate::print::terminal::warn;
use crate::roster::{Prospect, Roster, refuse_to_lose, warn_of_mute};
use crate::sets::{Others, Sets, home_of};
use crate::units::{DESTAGE_STEP, Rate, Size, seconds};
use crate::wishes::{self, Wish};
use crate::{owner, watts};
use restripe_array::cache::Rule;
use restripe_array::meta::newest_of;
use restripe_array::{
    CacheLimits, Command, HeatLimits, Limits, Nanos, Order, SECTOR_BYTES, SMALL_BYTES, StartMode,
    Throttle, Uuid,
};
use restripe_io::BackendChoice;
use restripe_io::backend::PowerHook;
use restripe_io::control::NamedRating;
use restripe_io::member::{self, Device, MemberSource, OpenFailure, OpenMember, OpenOptions};
use restripe_io::plain::Plain;
use restripe_io::remote::Remote;
use restripe_io::shell::{self, ArraySpec, Shell, ShellOptions};
use restripe_tier::{Destage, Redirect, SurrogateConfig, SurrogateLimits};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Memory for requests, unless told otherwise.
pub const MEMORY_BYTES: u64 = 256 << 20;
/// The largest read cache of an array: its memory has half of the handles that are not the users'.
const CACHE_BYTES_MAX: u64 = 32 << 30;
/// Beyond twice the time-out of a member's operation, before an end is given up.
const STUCK_AFTER: Duration = Duration::from_secs(10);
pub const IO_TIMEOUT: Duration = Duration::from_secs(30);
pub const PROBE: Duration = Duration::from_secs(10);

/// How engines are started.
#[derive(Clone, Debug)]
pub struct Setup {
    pub start: StartMode,
    /// Going on without a current member was asked for.
    pub degraded: bool,
    pub backend: BackendChoice,
    pub memory: u64,
    /// The read cache of each array.
    pub cache: Option<CacheLimits>,
    pub io_timeout: Duration,
    /// A remote member that has been idle for so long is asked whether it is there.
    pub probe: Duration,
    pub direct: bool,
    pub rate: Option<Rate>,
    pub throttle: Throttle,
    pub order: Order,
    pub on_demand: bool,
    pub copy_back: bool,
    pub heat: HeatLimits,
    /// What goes to a surrogate, of an array that has one.
    pub redirect: Option<Redirect>,
    /// While a scrub runs, too.
    pub redirect_scrubs: bool,
    pub destage: Destage,
    /// Memory for what of a code cache is on its way home, where that was said.
    pub destage_memory: Option<u64>,
    /// What tells spindles in the kernel's place.
    pub power: Option<PowerHook>,
    /// What a member draws, as was said.
    pub watts: Option<NamedRating>,
    pub record: Option<PathBuf>,
    /// What of this was asked for, and may mean nothing to an array.
    pub wishes: Vec<Wish>,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            start: StartMode::default(),
            degraded: false,
            backend: BackendChoice::Automatic,
            memory: MEMORY_BYTES,
            cache: None,
            io_timeout: IO_TIMEOUT,
            probe: PROBE,
            direct: true,
            rate: None,
            throttle: Throttle::default(),
            order: Order::default(),
            on_demand: false,
            copy_back: true,
            heat: HeatLimits::default(),
            redirect: None,
            redirect_scrubs: false,
            destage: Destage::default(),
            destage_memory: None,
            power: None,
            watts: None,
            record: None,
            wishes: Vec::new(),
        }
    }
}

/// What an array's surrogate is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    Plain,
    CodeCache,
    LogDisk,
}

impl Form {
    /// Which writes go there unless `--redirect` says otherwise.
    pub fn usual_redirect(self) -> Redirect {
        match self {
            Form::CodeCache => Redirect::Reraid,
            Form::LogDisk => Redirect::Graid,
            Form::Plain => Redirect::default(),
        }
    }
}

impl Setup {
    /// Of an engine with this surrogate, or without one.
    pub fn limits(&self, surrogate: Option<&SurrogateConfig>) -> Limits {
        let limits = Limits {
            heat: self.heat,
            ..Limits::default()
        };
        let surrogate = surrogate.map(|surrogate| surrogate.limits.whole_pool());
        limits.with_cache(self.cache).with_pool(surrogate)
    }

    /// A surrogate of so many members; none of 0, unless first copies go ahead without one.
    pub fn surrogate(&self, others: Others, form: Form) -> Option<SurrogateConfig> {
        let redirect = self.redirect.unwrap_or(form.usual_redirect());
        let limits = match form {
            Form::CodeCache if others.of_buffer > 0 => self.gathering().with_buffer(),
            Form::CodeCache => self.gathering(),
            _ if redirect.goes_ahead() => SurrogateLimits::ahead(),
            _ => SurrogateLimits::default(),
        };
        let members = others.of_surrogate;
        (members > 0 || redirect == Redirect::Eraid).then_some(SurrogateConfig {
            buffer_members: others.of_buffer,
            members,
            limits,
            redirect,
            scrubs: self.redirect_scrubs,
            destage: self.destage,
        })
    }

    fn gathering(&self) -> SurrogateLimits {
        let usual = SurrogateLimits::gathering();
        let buffers = self.destage_memory.map(|bytes| bytes / DESTAGE_STEP);
        let buffers = buffers.and_then(|count| u32::try_from(count).ok());
        SurrogateLimits {
            parts_home: buffers.unwrap_or(usual.parts_home),
            ..usual
        }
    }

    /// By which joules are estimated: what was said, and what is usual where mirrors sleep.
    pub fn rating(&self) -> Option<NamedRating> {
        let sleeps = self.destage.sleep.is_some();
        self.watts.clone().or_else(|| sleeps.then(watts::usual))
    }

    /// What was said of the paces of tasks.
    fn paces(&self) -> Vec<Command> {
        let rate = self
            .rate
            .map(|Rate { min, max }| Command::Rate { min, max });
        let mut paces: Vec<Command> = rate.into_iter().collect();
        if self.throttle != Throttle::default() {
            paces.push(Command::Throttle(self.throttle));
        }
        if self.order != Order::default() {
            paces.push(Command::Order(self.order));
        }
        if self.on_demand {
            paces.push(Command::OnDemand(true));
        }
        if !self.copy_back {
            paces.push(Command::CopyBack(false));
        }
        paces
    }

    /// Whether a start that leaves somebody behind was asked for.
    pub fn may_leave_behind(&self) -> bool {
        let mode = self.start;
        self.degraded || mode.from_minority || mode.accept_loss || mode.read_only
    }

    pub fn open_options(&self) -> OpenOptions {
        OpenOptions {
            direct: self.direct,
            read_only: self.start.read_only,
            power: self.power,
            ..OpenOptions::default()
        }
    }
}

/// The read cache of so many bytes; none for 0.
pub fn read_cache(bytes: u64, rule: Option<Rule>) -> Outcome<Option<CacheLimits>> {
    if bytes > CACHE_BYTES_MAX {
        let (asked, most) = (Size(bytes), Size(CACHE_BYTES_MAX));
        return Err(Failure::usage(format!(
            "a cache of {asked} is too large: the maximum is {most}"
        )));
    }
    if (1..u64::from(SMALL_BYTES)).contains(&bytes) {
        return Err(Failure::usage(format!(
            "a cache of {bytes} bytes is smaller than one block of 4K"
        ))
        .hint("sizes take K, M, G or T, as in 256M"));
    }
    let blocks = (bytes / u64::from(SMALL_BYTES)) as u32;
    Ok((blocks > 0).then_some(CacheLimits {
        blocks,
        rule: rule.unwrap_or(Rule::VdfLfu),
    }))
}

/// A reactor at work, with a desk for each array.
pub struct Running {
    reactor: shell::Running,
    desks: Vec<Arc<Desk>>,
    ends: Receiver<End>,
    io_timeout: Duration,
}

impl Running {
    /// One array, for the length of a verb. Members of one that is not called `name`, if that is given, are refused
    /// before anything is started.
    pub fn for_verb(
        name: Option<&str>,
        members: &[String],
        read_only: bool,
        without_daemon: &WithoutDaemon,
    ) -> Outcome<Running> {
        let start = StartMode {
            read_only,
            volatile_members: without_daemon.volatile_members,
            ..StartMode::default()
        };
        let setup = Setup {
            start,
            degraded: without_daemon.degraded,
            ..Setup::default()
        };
        Running::of(vec![spec(members, name, &setup)?], &setup, mpsc::channel())
    }

    /// Starts every group of members as an array of its own. All serve, or none. What the superblocks tell is judged
    /// for all before any is started. What a start would lose only the engine can tell, as it starts; so the arrays
    /// that may lose something are started first, and when one of them is refused, only others of them were touched.
    /// These are shut down again.
    pub fn start(groups: &[Vec<String>], setup: &Setup) -> Outcome<Running> {
        Running::start_as(groups, setup, |_, _| Ok(())).map(|(running, ())| running)
    }

    /// The same, with something that is to be had before any array is started, for their names. It may also have a reason
    /// to end sent, which is heard once all have started.
    pub fn start_as<T>(
        groups: &[Vec<String>],
        setup: &Setup,
        beforehand: impl FnOnce(&[&str], &Sender<End>) -> Outcome<T>,
    ) -> Outcome<(Running, T)> {
        let specs = groups.iter().map(|members| spec(members, None, setup));
        let specs: Vec<(ArraySpec, Prospect)> = specs.collect::<Outcome<_>>()?;
        let prospects: Vec<&Prospect> = specs.iter().map(|(_, prospect)| prospect).collect();
        wishes::judge(&prospects, setup)?;
        for (spec, prospect) in &specs {
            if wishes::lets_sleep(prospect, setup) {
                warn_of_restless(&prospect.name, spec, setup);
            }
        }
        if setup.start.read_only {
            specs
                .iter()
                .for_each(|(_, prospect)| prospect.warn_of_reading());
        }
        let names = specs.iter().map(|(_, prospect)| prospect.name.as_str());
        let ends = mpsc::channel();
        let had = beforehand(&names.collect::<Vec<_>>(), &ends.0)?;
        Ok((Running::of(specs, setup, ends)?, had))
    }

    fn of(
        hopes: Vec<(ArraySpec, Prospect)>,
        setup: &Setup,
        (ends_sender, ends): (Sender<End>, Receiver<End>),
    ) -> Outcome<Running> {
        let (specs, prospects): (Vec<_>, Vec<_>) = hopes.into_iter().unzip();
        let epoch = Instant::now();
        let options = ShellOptions {
            backend: setup.backend,
            memory: setup.memory,
        };
        let host_all = move |shell: &mut Shell| {
            specs
                .into_iter()
                .try_for_each(|spec| shell.host(spec).map(|_| ()))
        };
        let reactor = Shell::spawn(options, host_all).map_err(reactor_failure)?;
        let desk = |array: usize| {
            let remote = reactor.remote.clone();
            let desk = Desk::new(remote, array, epoch, setup.clone(), ends_sender.clone());
            Arc::new(desk)
        };
        let desks: Vec<Arc<Desk>> = (0..prospects.len()).map(desk).collect();
        let running = Running {
            reactor,
            desks,
            ends,
            io_timeout: setup.io_timeout,
        };
        match running.start_all(&prospects, setup) {
            Ok(()) => Ok(running),
            Err(failure) => {
                // The reason for the end is the failure to start; how the end went matters less.
                let _ = running.stop();
                Err(failure)
            }
        }
    }

    /// The doubtful ones first.
    fn start_all(&self, prospects: &[Prospect], setup: &Setup) -> Outcome {
        let mut order: Vec<_> = self.desks.iter().zip(prospects).collect();
        order.sort_by_key(|(_, prospect)| !prospect.may_lose);
        for (desk, prospect) in order {
            // What a start goes on with is paced from its beginning.
            for pace in setup.paces().into_iter().chain([date()]) {
                desk.command(pace)?;
            }
            let started = desk.start(prospect.start);
            started.map_err(|refused| prospect.way_out(refused))?;
            prospect.warn_of_lacking_surrogate();
        }
        Ok(())
    }

    /// The desk of the first array.
    pub fn desk(&self) -> &Desk {
        &self.desks[0]
    }

    pub fn desks(&self) -> &[Arc<Desk>] {
        &self.desks
    }

    pub fn remote(&self) -> &Remote {
        &self.reactor.remote
    }

    /// The next reason to end; `None` if there was none in this time.
    pub fn next_end(&self, within: Duration) -> Option<End> {
        self.ends.recv_timeout(within).ok()
    }

    /// Drains, flushes, marks clean, and waits for the end. An error if that was not achieved of every array. The wait has
    /// an end of its own: operations on members time out, and if nothing moves for twice as long, a member or the kernel
    /// holds the reactor itself.
    pub fn stop(self) -> Outcome {
        let before: Vec<BeforeEnd> = self.desks.iter().map(|desk| desk.before_end()).collect();
        // It may have ended by itself, which joining tells.
        let _ = self.reactor.remote.shutdown();
        let patience = 2 * self.io_timeout + STUCK_AFTER;
        match self.reactor.join_moving(patience) {
            Some(ended) => ended.map_err(reactor_failure)?,
            None => return Err(stuck(patience)),
        }
        let ended = self.desks.iter().zip(before);
        let ended: Vec<Said> = ended.map(|(desk, before)| desk.ended(before)).collect();
        Ok(ended.into_iter().collect::<Said>()?)
    }
}

fn stuck(patience: Duration) -> Failure {
    let what = format!(
        "the shutdown hangs: no progress for {}",
        seconds(patience.as_secs())
    );
    Failure::new(what)
        .hint("check for a member that does not respond; the next start recovers writes in flight")
}

fn reactor_failure(error: io::Error) -> Failure {
    Failure::new(format!("the reactor: {error}"))
}

/// An array that may be started; `name` is what it must be called.
fn spec(members: &[String], name: Option<&str>, setup: &Setup) -> Outcome<(ArraySpec, Prospect)> {
    let nanos = |time: Duration| Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    let (members, absent) = open_all(members, setup.open_options())?;
    let volatile = members.iter().filter(|member| member.info.volatile);
    allow_volatile(volatile.map(|member| &*member.name), setup.start)?;
    let mut sets = Sets::of(Roster::read(members, absent)?);
    let mut prospect = sets.check(name, setup)?;
    let form = match (sets.has_code_cache(), sets.has_log_disk()) {
        (true, _) => Form::CodeCache,
        (_, true) => Form::LogDisk,
        _ => Form::Plain,
    };
    let fits = |redirect| matches!(redirect, Redirect::Graid | Redirect::None);
    if form == Form::LogDisk && !setup.redirect.is_none_or(fits) {
        let what =
            "a log disk has no redundancy of its own, and this policy would lose data with it";
        return Err(
            Failure::usage(what).hint("use --redirect graid (the default with a log disk) or none")
        );
    }
    let owners = sets.owners();
    let (members, others) = sets.into_members();
    for member in &members {
        refuse_cycle(
            &prospect.name,
            prospect.array,
            &member.name,
            member.beneath(),
        )?;
    }
    prospect.start = owner::mode(setup.start, &prospect.name, &owners, &members)?;
    let surrogate = setup.surrogate(others, form);
    prospect.form = (others.of_surrogate > 0).then_some(form);
    let spec = ArraySpec {
        members,
        limits: setup.limits(surrogate.as_ref()),
        surrogate,
        io_timeout: nanos(setup.io_timeout),
        probe: nanos(setup.probe),
        record: setup.record.clone(),
    };
    Ok((spec, prospect))
}

/// Members that make nothing durable have to be allowed, and are named.
fn allow_volatile<'a>(members: impl Iterator<Item = &'a str>, start: StartMode) -> Outcome {
    if start.read_only {
        return Ok(());
    }
    refuse_volatile(members, start.volatile_members)
}

/// Of an array whose mirrors are to sleep. A command is asked in the kernel's place, and only about what lies on this host.
fn warn_of_restless(name: &str, spec: &ArraySpec, setup: &Setup) {
    let others = spec.surrogate.as_ref();
    let others = others.map_or(0, |one| one.members + one.buffer_members);
    let of_home = spec.members.len().saturating_sub(usize::from(others));
    let restless = spec.members[..of_home]
        .iter()
        .filter(|one| !one.may_be_told_to_rest());
    let (here, remote): (Vec<_>, Vec<_>) =
        restless.partition(|one| matches!(one.device, Device::File(_)));
    let told_by = match setup.power.is_some() {
        true => "and --power cannot control",
        false => "and --power could not control",
    };
    for (members, why) in [
        (
            here,
            "because the kernel does not control their disks: use --power exec:CMD".to_string(),
        ),
        (
            remote,
            format!("{told_by} members that are not a file or disk of this host"),
        ),
    ] {
        if let Some(first) = members.first() {
            let more = match members.len() - 1 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            warn(format_args!(
                "{name}: {}{more} cannot enter standby, {why}",
                first.name
            ));
        }
    }
}

/// Opens what can be opened, and names what cannot. A member that is not there is what redundancy is for; one in use by
/// somebody else is a mistake.
fn open_all(names: &[String], options: OpenOptions) -> Outcome<(Vec<OpenMember>, Vec<String>)> {
    check_distinct(names)?;
    let mut members = Vec::new();
    let mut absent = Vec::new();
    let mut missing = None;
    for name in names {
        match member::open(name, options) {
            Ok(member) => members.push(member),
            Err(error) if is_missing(&error.why) => {
                warn(format_args!("{error}"));
                absent.push(name.clone());
                missing = Some(error);
            }
            Err(error) => return Err(open_failure(error)),
        }
    }
    match missing {
        Some(error) if members.is_empty() => Err(open_failure(error)),
        _ => Ok((members, absent)),
    }
}

fn is_missing(why: &OpenFailure) -> bool {
    matches!(why, OpenFailure::Io(error) if error.kind() != io::ErrorKind::PermissionDenied)
        || matches!(why, OpenFailure::Remote(_))
}

/// Sorts members by the array they belong to, those of a surrogate with its array's, in the order of the first of each.
///
/// Members that cannot be looked at are taken for members of the one array that there is, or refused. Those that are
/// open and cannot be read are left out, if this start may: they are waited for once, not again at every step.
pub fn by_array(names: Vec<String>, start: StartMode) -> Outcome<Vec<Vec<String>>> {
    let mut groups: Vec<Vec<String>> = Vec::new();
    let mut places: BTreeMap<Uuid, usize> = BTreeMap::new();
    let mut rest = Vec::new();
    let mut mute = Vec::new();
    for name in names {
        match array_of(&name)? {
            Belongs::Unknown => rest.push(name),
            Belongs::To(array) => {
                let place = *places.entry(array).or_insert_with(|| {
                    groups.push(Vec::new());
                    groups.len() - 1
                });
                groups[place].push(name);
            }
            Belongs::Mute(error) => {
                warn_of_mute(&name, &error);
                mute.push(name);
            }
        }
    }
    refuse_to_lose(&mute, start)?;
    match (groups.len(), rest.len()) {
        (0, 0) if !mute.is_empty() => {
            Err(Failure::new("none of these members can be read").at(mute.join(", ")))
        }
        (_, 0) => Ok(groups),
        (0 | 1, _) => Ok(vec![groups.into_iter().flatten().chain(rest).collect()]),
        (..) => Err(
            Failure::new("it is unknown which array this member belongs to")
                .at(rest.join(", "))
                .hint("serve each array separately, or list the members in a configuration file"),
        ),
    }
}

/// Where a member belongs, as far as it tells.
enum Belongs {
    To(Uuid),
    Unknown,
    Mute(io::Error),
}

fn array_of(name: &str) -> Outcome<Belongs> {
    if matches!(MemberSource::parse(name), Ok(MemberSource::Ram { .. })) {
        return Ok(Belongs::Unknown);
    }
    let member = match Plain::open(name, true) {
        // A member that cannot be opened is told about when the array is.
        Err(error) if is_missing(&error.why) => return Ok(Belongs::Unknown),
        Err(error) => return Err(open_failure(error)),
        Ok(member) => member,
    };
    Ok(match readable_copies(&member) {
        Err(error) => Belongs::Mute(error),
        Ok(copies) => newest_of(copies.iter().flatten())
            .map_or(Belongs::Unknown, |newest| Belongs::To(home_of(newest))),
    })
}

/// What is learned of reads, in zones of so many bytes and epochs of so long, as far as it was said.
pub fn heat(zone: Option<u64>, epoch: Option<Duration>) -> HeatLimits {
    let usual = HeatLimits::default();
    HeatLimits {
        zone_sectors: zone.map_or(usual.zone_sectors, |bytes| bytes / SECTOR_BYTES),
        epoch: epoch.map_or(usual.epoch, |time| {
            Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
        }),
    }
}

/// The date, for the records that the engine keeps; 0, not known, of a clock before 1970.
pub fn date() -> Command {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Command::Date(since.map_or(0, |since| since.as_secs()))
}
