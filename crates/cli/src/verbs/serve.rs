//! `serve`: the options of a daemon, and what its command line and its configuration come to together.

use crate::args::config::{ArrayConfig, Config, IscsiConfig, ServeConfig};
use crate::args::tls::{Lists, Prepared, TlsOptions};
use crate::args::watts::parse_watts;
use crate::args::{BackendName, StartOptions};
use crate::arrays::opening::by_array;
use crate::arrays::setup::{GivenOption, IO_TIMEOUT, MEMORY_BYTES, PROBE, Setup, heat, read_cache};
use crate::daemon::control::lifecycle::End;
use crate::daemon::places::{Places, Portal};
use crate::daemon::running::Running;
use crate::daemon::serving::{claim_all, serve_until_told, watch_signals};
use crate::failure::{Failure, Outcome, failed};
use crate::print::journal;
use crate::print::terminal::say;
use crate::print::terminal::warn;
use crate::units::{
    PowerCommand, Rate, destage_order_parser, order_parser, parse_destage_memory, parse_epoch,
    parse_memory, parse_power, parse_rate, parse_size, parse_throttle, parse_wait, parse_zone,
    redirect_parser, rule_parser,
};
use clap::Args;
use restripe_array::cache::Rule;
use restripe_array::{Nanos, Order, StartMode, Throttle};
use restripe_io::BackendChoice;
use restripe_io::backend::PowerHook;
use restripe_io::control;
use restripe_io::control::{NamedRating, Server};
use restripe_io::front::listen::Listener;
use restripe_io::signals::Termination;
use restripe_tier::{Destage, DestageOrder, Redirect, Sleep};
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::time::Duration;

#[derive(Args, Debug)]
#[command(
    after_help = "Without --unix, --tcp, --iscsi, --vhost-user, --stdio or a socket from systemd, the NBD socket is
NAME.nbd in the runtime folder: $XDG_RUNTIME_DIR/restripe, else /run/restripe for root, else /run/user/UID/restripe if it exists,
else /tmp/restripe-UID. If another daemon uses that socket, it is NAME-PID.nbd. A line with the URI is printed
when clients can connect. SIGTERM and SIGINT complete the requests in flight, flush, and mark the array clean.
Log lines go to standard error, each with a time and a level; if that is systemd's journal, with its priorities.

Example: restripe serve --unix tank.nbd a.img b.img c.img"
)]
pub(crate) struct Serve {
    /// The members of one or more arrays and of their surrogates; superblocks identify the array of each
    #[arg(value_name = "MEMBER", required_unless_present = "config")]
    pub members: Vec<String>,
    /// Read members and options from this file
    #[arg(long, value_name = "FILE", conflicts_with = "members")]
    pub config: Option<PathBuf>,
    /// Listen on this Unix socket
    #[arg(long, value_name = "PATH")]
    pub unix: Option<PathBuf>,
    /// Listen on this TCP address: PORT, on loopback, or HOST:PORT
    #[arg(long, value_name = "ADDRESS")]
    pub tcp: Option<String>,
    /// Serve iSCSI on this TCP address: PORT (usually 3260), on loopback, or HOST:PORT; may be given several
    /// times. Each array is a target iqn.2026-11.restripe:NAME with logical unit 0, unless the configuration
    /// names targets
    #[arg(long, value_name = "ADDRESS")]
    pub iscsi: Vec<String>,
    /// Serve each array to a virtual machine on this machine (vhost-user-blk): PATH is the Unix socket, or a
    /// folder in which each array has the socket NAME.vhost
    #[arg(long, value_name = "PATH")]
    pub vhost_user: Option<PathBuf>,
    /// Serve one connection on standard input and output, then exit
    #[arg(long, conflicts_with_all = ["unix", "tcp", "iscsi", "vhost_user"])]
    pub stdio: bool,
    #[command(flatten)]
    pub tls: TlsOptions,
    #[command(flatten)]
    pub start: StartOptions,
    /// Memory for clients' requests [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    pub memory: Option<u64>,
    /// Size of the read cache of each array [default: 0]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub cache: Option<u64>,
    /// Rule that chooses the block to evict from the read cache [default: vdf-lfu]
    #[arg(long, value_name = "RULE", value_parser = rule_parser())]
    pub cache_policy: Option<Rule>,
    /// Fail a member that completes no operation within TIME, or one operation within four times TIME
    /// [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = parse_wait)]
    pub io_timeout: Option<Duration>,
    /// Probe an NBD member that has not replied for TIME; fail it if it does not answer within --io-timeout.
    /// Members in standby are not probed. The size of local members is read from the kernel every TIME
    /// [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = parse_wait)]
    pub probe: Option<Duration>,
    /// Limits of background work, as MIN..MAX in bytes per second of one member; MIN or MAX may be left out.
    /// 10M..200M runs at 10M or more even under load, and never above 200M [default: 1000K..2000000K]
    #[arg(long, value_name = "RATES", value_parser = parse_rate)]
    pub rate: Option<Rate>,
    /// Throttle of background work: restripe (the default); md-2.6, md-6.1 or md-2025 for the algorithms of
    /// Linux md; p99:20ms for the highest speed at which 99 of 100 requests take at most 20 ms (any
    /// percentile of 1 to 99, any time); finish:2h to finish two hours after the task started
    #[arg(long, value_name = "NAME", value_parser = parse_throttle)]
    pub throttle: Option<Throttle>,
    /// Order of rebuilds and resyncs: by address (pr, the default), most read by users since the task started
    /// (pro), most read before it (ido), or by address with one row in flight (sor) or as many rows as
    /// buffers hold (dor)
    #[arg(long, value_name = "NAME", value_parser = order_parser())]
    pub order: Option<Order>,
    /// Rebuild next what users read, whatever the order
    #[arg(long)]
    pub on_demand: bool,
    /// Leave what was rebuilt in spare partitions or on several spares of a skewed array there, distributed
    /// evenly
    #[arg(long)]
    pub no_copy_back: bool,
    /// Size of a zone in which reads are counted for --order ido and --redirect ido [default: 12M]
    #[arg(long, value_name = "SIZE", value_parser = parse_zone)]
    pub heat_zone: Option<u64>,
    /// Halve the read counts of zones after every TIME [default: 10m]
    #[arg(long, value_name = "TIME", value_parser = parse_epoch)]
    pub heat_epoch: Option<Duration>,
    /// Requests that go to a surrogate while a member is rebuilt: nothing (none); all writes, and data that
    /// is read again (workout); writes to a missing member's data, and all data read (vdf); all writes, and
    /// the zones read most (ido). At all times, with secondary copies in standby, all writes go to a code
    /// cache (reraid), to a log disk and the primary copies (graid), or to the primary copies only (eraid; a
    /// lost disk then loses data) [default: ido; reraid with a code cache, graid with a log disk]
    #[arg(long, value_name = "NAME", value_parser = redirect_parser())]
    pub redirect: Option<Redirect>,
    /// Redirect to a surrogate during scrubs as well
    #[arg(long)]
    pub redirect_scrubs: bool,
    /// With redirect reraid, graid or eraid: destage after TIME without user requests [default: only when the
    /// log is nearly full]
    #[arg(long, value_name = "TIME", value_parser = parse_wait)]
    pub destage_idle: Option<Duration>,
    /// With redirect reraid, graid or eraid: destage TIME after the previous destage (or the start), even
    /// under load [default: off]
    #[arg(long, value_name = "TIME", value_parser = parse_wait)]
    pub destage_every: Option<Duration>,
    /// Order in which a code cache is destaged, stripe by stripe: in rounds that fit in memory, oldest
    /// clusters first (rounds, the default); or over the whole log by least correlation (mcfd, as RERAID), by
    /// age (oldest) or by address (address)
    #[arg(long, value_name = "NAME", value_parser = destage_order_parser())]
    pub destage_order: Option<DestageOrder>,
    /// Memory for the destage of a code cache, 1M to 1G in steps of 64K [default: 16M]
    #[arg(long, value_name = "SIZE", value_parser = parse_destage_memory)]
    pub destage_memory: Option<u64>,
    /// With redirect reraid, graid or eraid: put secondary copies of a raid1 or raid10 in standby after TIME
    /// without a request for them [default: never]
    #[arg(long, value_name = "TIME", value_parser = parse_wait)]
    pub standby_after: Option<Duration>,
    /// At most N spin-downs a day of the secondary copies, within the start-stop rating of the drives
    /// [default: 27]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub spin_downs_per_day: Option<u32>,
    /// Always destage a code cache that runs low on space. Without this option its oldest segments are
    /// cleaned instead if they hold little live data, so secondary copies stay in standby
    #[arg(long)]
    pub no_log_cleaning: bool,
    /// Command that puts a member in standby or wakes it, for disks that the kernel cannot switch: exec: and
    /// the command with its arguments. It runs without a shell; `standby` or `wake` and the member's path are
    /// appended
    #[arg(long, value_name = "exec:CMD", value_parser = parse_power)]
    pub power: Option<PowerCommand>,
    /// Power rating of a member, to estimate joules in `status` and `metrics`: a drive's name, or watts by
    /// state and joules of a start and a stop, as in active=8.4,idle=6.4,standby=0.8,start=135J,stop=4J (the
    /// stop is optional). Power is not measured [default: wd1003fbyx, a 3.5" drive with published figures, if
    /// secondary copies may enter standby; else none]
    #[arg(long, value_name = "RATING", value_parser = parse_watts)]
    pub power_rating: Option<NamedRating>,
    /// How operations reach the kernel
    #[arg(long, value_enum, default_value_t)]
    pub backend: BackendName,
    /// Use the page cache for members instead of direct I/O
    #[arg(long)]
    pub buffered: bool,
    /// Record every event in FILE, for `restripe sim --replay`
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
}

pub(crate) fn run(verb: Serve) -> Outcome {
    let inherited = Listener::systemd();
    let ToServe {
        groups,
        lists,
        disks,
        file,
        iscsi,
    } = what_to_serve(&verb)?;
    if verb.record.is_some() && groups.len() > 1 {
        return Err(
            Failure::usage("a record holds one array").hint("serve the other arrays separately")
        );
    }
    let tls = verb.tls.clone().or(file.tls()).prepare(lists)?;
    let places = places(&verb, &file, &iscsi, disks, (inherited, tls))?;
    let setup = setup(&verb, &file)?;
    let beforehand = |names: &[&str], ends: &Sender<End>| {
        // Until here nothing is written, and a signal may end it at once: a remote member is waited for.
        // From here on it may not, and no thread is there yet that does not hold the signals back.
        let termination = Termination::hold().map_err(failed("signals"))?;
        watch_signals(termination, ends.clone(), setup.power)?;
        Ok((claim_all(names)?, places.bind(names)?))
    };
    let (running, (claims, doors)) = Running::start_as(&groups, &setup, beforehand)?;
    journal::begin().map_err(failed("the log"))?;
    let mut servers = Vec::new();
    let served = serve_until_told(&running, claims, doors, &mut servers);
    // The names are free once the members are, too.
    let _claims: Vec<_> = servers.into_iter().flatten().map(Server::end).collect();
    let stopped = running.stop();
    served.map(|log| log.tell())?;
    stopped
}

/// The arrays, and how they are served.
struct ToServe {
    /// The members of each array.
    groups: Vec<Vec<String>>,
    /// The clients of each.
    lists: Lists,
    /// Where virtual machines find each, if the file says it for that one.
    disks: Vec<Option<PathBuf>>,
    file: ServeConfig,
    iscsi: IscsiConfig,
}

fn what_to_serve(verb: &Serve) -> Outcome<ToServe> {
    let Some(path) = &verb.config else {
        let groups = by_array(verb.members.clone(), verb.start.mode())?;
        return Ok(ToServe {
            lists: Lists::new(),
            disks: vec![None; groups.len()],
            groups,
            file: ServeConfig::default(),
            iscsi: IscsiConfig::default(),
        });
    };
    let Config {
        arrays,
        serve,
        iscsi,
    } = Config::read(path)?;
    // A list on the command line overrides all of the file.
    let own = |array: &ArrayConfig| match verb.tls.tls_client.is_empty() {
        true => array.tls_clients.clone(),
        false => None,
    };
    let disks = arrays.iter().map(|array| array.vhost_user.clone());
    Ok(ToServe {
        lists: arrays.iter().map(own).collect(),
        disks: disks.collect(),
        groups: arrays.into_iter().map(ArrayConfig::all_members).collect(),
        file: serve,
        iscsi,
    })
}

fn setup(verb: &Serve, file: &ServeConfig) -> Outcome<Setup> {
    let cache = verb.cache.or(file.cache).unwrap_or(0);
    if cache == 0 && verb.cache_policy.is_some() {
        let what = "--cache-policy requires a cache";
        return Err(Failure::usage(what).hint("pass --cache SIZE as well"));
    }
    let power = verb.power.clone().or(file.power.clone());
    Ok(Setup {
        start: StartMode {
            volatile_members: verb.start.volatile_members || file.volatile_members,
            ..verb.start.mode()
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
        heat: heat(
            verb.heat_zone.or(file.heat_zone),
            verb.heat_epoch.or(file.heat_epoch),
        ),
        redirect: verb.redirect.or(file.redirect),
        destage: destage(verb, file),
        destage_memory: verb.destage_memory.or(file.destage_memory),
        power: power.map(hook).transpose()?,
        watts: verb.power_rating.clone().or(file.power_rating.clone()),
        redirect_scrubs: verb.redirect_scrubs || file.redirect_scrubs,
        record: verb.record.clone(),
        given: given(verb, file),
    })
}

/// When a log that takes every write is destaged, and when mirrors are put in standby.
fn destage(verb: &Serve, file: &ServeConfig) -> Destage {
    let nanos = |time: Duration| Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    let order = verb.destage_order.or(file.destage_order);
    let starts_a_day = verb.spin_downs_per_day.or(file.spin_downs_per_day);
    let sleep = verb
        .standby_after
        .or(file.standby_after)
        .map(|after| Sleep {
            after: nanos(after),
            starts_a_day: starts_a_day.unwrap_or(Sleep::default().starts_a_day),
        });
    Destage {
        idle: verb.destage_idle.or(file.destage_idle).map(nanos),
        every: verb.destage_every.or(file.destage_every).map(nanos),
        sleep,
        clean: !verb.no_log_cleaning && file.log_cleaning.unwrap_or(true),
        order: order.unwrap_or_default(),
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

/// The options about logs and standby that are given; the command line has the last word.
fn given(verb: &Serve, file: &ServeConfig) -> Vec<GivenOption> {
    use crate::arrays::setup::Subject::{CodeCache, Destage, OfSleep, Redirect, Sleep};
    let given = |subject, key: &str, by_line: bool, by_file: bool| {
        let word = format!("{}{key}", if by_line { "--" } else { "" });
        (by_line || by_file).then_some(GivenOption {
            subject,
            word,
            by_file: !by_line,
        })
    };
    macro_rules! either {
        ($subject:expr, $key:literal, $field:ident) => {
            given($subject, $key, verb.$field.is_some(), file.$field.is_some())
        };
    }
    let mut options = vec![
        either!(Redirect, "redirect", redirect),
        either!(Sleep, "standby-after", standby_after),
        either!(OfSleep, "spin-downs-per-day", spin_downs_per_day),
        either!(OfSleep, "power", power),
        either!(Destage, "destage-idle", destage_idle),
        either!(Destage, "destage-every", destage_every),
        either!(CodeCache, "destage-order", destage_order),
        either!(CodeCache, "destage-memory", destage_memory),
    ];
    let unclean = file.log_cleaning == Some(false);
    let no = if verb.no_log_cleaning { "no-" } else { "" };
    let key = format!("{no}log-cleaning");
    options.push(given(CodeCache, &key, verb.no_log_cleaning, unclean));
    options.into_iter().flatten().collect()
}

/// Where clients may connect: places on the command line replace all those of the file, also those of single
/// arrays. Targets are from the file.
fn places(
    verb: &Serve,
    file: &ServeConfig,
    iscsi: &IscsiConfig,
    disks: Vec<Option<PathBuf>>,
    (inherited, tls): (Vec<Listener>, Option<Prepared>),
) -> Outcome<Places> {
    let sockets = [&verb.unix, &verb.vhost_user]
        .into_iter()
        .any(Option::is_some);
    let asked = sockets || verb.tcp.is_some() || !verb.iscsi.is_empty() || verb.stdio;
    let (unix, tcp, portals, disk) = match asked {
        true => (&verb.unix, &verb.tcp, &verb.iscsi, &verb.vhost_user),
        false => (&file.unix, &file.tcp, &iscsi.listen, &file.vhost_user),
    };
    let own = disks.into_iter().map(|own| own.filter(|_| !asked));
    let disks = own.map(|own| own.or_else(|| disk.clone()));
    let portal = match portals.is_empty() {
        false => {
            let state = iscsi.state.clone().or_else(control::state_folder);
            Some(Portal::new(portals, iscsi.targets()?, state)?)
        }
        true => {
            if !iscsi.target.is_empty() {
                warn(
                    "the targets of the configuration are not served: there is no address for iSCSI",
                );
            }
            None
        }
    };
    Places::new(
        unix.clone(),
        tcp.as_deref(),
        verb.stdio,
        inherited,
        portal,
        disks.collect(),
        tls,
    )
}
