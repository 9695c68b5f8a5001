//! The command table: every verb, option and word of help, here and in the files below. Parsing, `--help`, the man pages and the
//! completions all come from it.

pub mod lab;
pub mod trace;

use crate::units::{
    PowerCommand, Rate, destage_order_parser, order_parser, parse_destage_memory, parse_epoch,
    parse_memory, parse_power, parse_rate, parse_size, parse_throttle, parse_wait, parse_zone,
    redirect_parser, rule_parser, whether_parser,
};
use crate::watts::parse_watts;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
pub use lab::*;
use restripe_array::cache::Rule;
use restripe_array::{Order, Throttle};
use restripe_io::control::NamedRating;
use restripe_tier::{Redirect, destage};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
pub use trace::*;

/// Software RAID for Linux that serves data while disks fail, with the laboratory that tests it.
#[derive(Parser, Debug)]
#[command(
    name = "restripe",
    version,
    disable_help_subcommand = true,
    max_term_width = 100
)]
#[command(
    after_help = "Sizes take K, M, G or T (powers of 1024); times take ms, s, m or h.
A member is a file, a block device, or an NBD URI (nbd://host/export, nbd+unix:///export?socket=path).
Exit status: 0 success, 1 failure, 2 wrong usage."
)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Compare layouts for given disks; writes nothing
    Plan(crate::plan::Wanted),
    /// Create an array on empty members
    Create(Create),
    /// Check members, replay their logs, print the status and exit, without serving
    Assemble(Assemble),
    /// Serve arrays over NBD until stopped
    Serve(Serve),
    /// Show an array's state, members, tasks and lost data
    #[command(override_usage = "restripe status [NAME] [OPTIONS] [--offline <MEMBER>...]")]
    Status(Status),
    /// Show the metadata of members, read-only
    Examine(Examine),
    /// Fail a member: the array stops using it
    #[command(override_usage = "restripe fail <NAME> <MEMBER> [OPTIONS] [--offline <MEMBER>...]")]
    Fail(FailMember),
    /// Remove a failed member or a spare from the array
    #[command(override_usage = "restripe remove <NAME> <MEMBER> [OPTIONS] [--offline <MEMBER>...]")]
    Remove(OnMember),
    /// Add a device: a returning member to its slot, or a new spare
    #[command(override_usage = "restripe add <NAME> <MEMBER> [OPTIONS] [--offline <MEMBER>...]")]
    Add(Add),
    /// Replace a working member by copying it onto another device
    #[command(
        override_usage = "restripe replace <NAME> <OLD> <NEW> [OPTIONS] [--offline <MEMBER>...]"
    )]
    Replace(Replace),
    /// Grow an array by further members while it serves; or watch, pause or throttle a running growth
    #[command(
        override_usage = "restripe grow <NAME> --add <MEMBER>... [OPTIONS] [--offline <MEMBER>...]
       restripe grow <NAME> [OPTIONS] [--offline <MEMBER>...]"
    )]
    Grow(Grow),
    /// Watch, pause or throttle a running rebuild; rebuilds start automatically if there is a spare
    #[command(override_usage = "restripe rebuild <NAME> [OPTIONS] [--offline <MEMBER>...]")]
    Rebuild(Rebuild),
    /// Compare all copies and parity with the data; correct them only with --repair
    #[command(override_usage = "restripe scrub <NAME> [OPTIONS] [--offline <MEMBER>...]")]
    Scrub(Scrub),
    /// Flush, mark the array clean, and end its daemon
    Stop(Stop),
    /// Print the counters in the Prometheus text format
    #[command(override_usage = "restripe metrics <NAME> [OPTIONS] [--offline <MEMBER>...]")]
    Metrics(Metrics),
    /// Show the read counts of zones; `--order ido` rebuilds the most-read zones first
    Heat(Heat),
    /// Manage an array's surrogate, which takes users' writes while a member is rebuilt
    #[command(subcommand)]
    Surrogate(Surrogate),
    /// Manage leases: parts of an array lent to other arrays as space for surrogates
    #[command(subcommand)]
    Lease(crate::lease::Lease),
    /// Run arrays in the simulator: one seed, many seeds, or a recorded run
    Sim(Sim),
    /// Serve the model of a drive over NBD, at the speed of that drive
    SimDisk(SimDisk),
    /// Laboratory: experiments from files, reliability of arrays, models of drives
    #[command(subcommand)]
    Lab(Lab),
    /// Replay a block trace, or a synthetic workload, on a simulated or a served array
    Replay(Box<crate::replay::Replay>),
    /// Analyse block traces, and transform them for a replay
    Trace(Trace),
    /// Simulate read caches on a trace: how many disk reads they avoid, healthy or degraded
    CacheSim(Box<crate::cache_sim::CacheSim>),
    /// Demonstrate fault tolerance on disk images: a RAID-5 loses two disks and its daemon under load
    Demo(Demo),
    /// Write man pages and completions below a folder, as `share` has them
    #[command(hide = true)]
    Generate(Generate),
}

#[derive(Args, Debug)]
pub struct Generate {
    /// The folder; `make install` names PREFIX/share
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}

// ------------------------------------------------------------------------------------------------ shared arguments

/// The array that a verb is about.
#[derive(Args, Debug, Clone)]
pub struct Target {
    /// Name of the array
    pub name: String,
    #[command(flatten)]
    pub without_daemon: WithoutDaemon,
}

/// Work on members that no daemon serves.
#[derive(Args, Debug, Clone, Default)]
pub struct WithoutDaemon {
    /// Work on these members directly, without a daemon
    #[arg(long, value_name = "MEMBER", num_args = 1..)]
    pub offline: Vec<String>,
    /// With --offline: start without the current members that are not listed; they must then be rebuilt
    #[arg(long, requires = "offline")]
    pub degraded: bool,
    /// With --offline: also accept members that make no write durable; a daemon needs this option at its
    /// start
    #[arg(long)]
    pub volatile_members: bool,
}

/// As the end of another command line on the same members.
impl fmt::Display for WithoutDaemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.degraded {
            f.write_str(" --degraded")?;
        }
        if self.volatile_members {
            f.write_str(" --volatile-members")?;
        }
        match self.offline.is_empty() {
            true => Ok(()),
            false => write!(f, " --offline {}", self.offline.join(" ")),
        }
    }
}

/// How an array is started.
#[derive(Args, Debug, Clone, Default)]
pub struct StartOptions {
    /// Start although a current member is missing; that member becomes stale and must be rebuilt
    #[arg(long)]
    pub degraded: bool,
    /// Start although fewer than a majority of the members are present; implies --degraded
    #[arg(long)]
    pub from_minority: bool,
    /// Start although data is lost by it; lost ranges are listed and read as errors; implies --degraded
    #[arg(long)]
    pub accept_loss: bool,
    /// Refuse users' writes and never write to any member. After a crash, logs are not replayed, so data that
    /// needs a log to recover reads as an error
    #[arg(long)]
    pub read_only: bool,
    /// Accept members that make no write durable: NBD exports without FLUSH and FUA, files and devices that
    /// refuse fsync. While such a member is current, clients are offered neither FLUSH nor FUA, and a power
    /// failure may lose their writes
    #[arg(long)]
    pub volatile_members: bool,
    /// Take the array over from the daemon that its superblocks record. Use it only if that daemon has ended,
    /// or hangs on another host
    #[arg(long)]
    pub force_owner: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelName {
    #[value(alias = "0")]
    Raid0,
    #[value(alias = "1")]
    Raid1,
    #[value(alias = "4")]
    Raid4,
    #[value(alias = "5")]
    Raid5,
    #[value(alias = "6")]
    Raid6,
    #[value(alias = "10")]
    Raid10,
    /// So many parities: a code cache's alone, by its own name.
    #[value(skip)]
    ReedSolomon(u8),
}

/// The level of a surrogate, which has to bear a failure of its own.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum SurrogateLevel {
    #[value(alias = "1")]
    Raid1,
    #[value(alias = "5")]
    Raid5,
    #[value(alias = "6")]
    Raid6,
    #[value(alias = "10")]
    Raid10,
    #[value(alias = "raidz3")]
    Rs3,
    Rs4,
    Rs5,
    Rs6,
    Rs7,
    Rs8,
}

/// Levels of a surrogate that is no code cache: those are made with their array.
fn served_level_parser() -> impl TypedValueParser<Value = SurrogateLevel> {
    use SurrogateLevel::{Raid1, Raid5, Raid6, Raid10};
    let levels = [Raid1, Raid5, Raid6, Raid10];
    let names = levels.map(|level| level.to_possible_value().expect("none is hidden"));
    PossibleValuesParser::new(names)
        .map(|name| SurrogateLevel::from_str(&name, true).expect("one of those"))
}

impl SurrogateLevel {
    /// As an array's.
    pub fn name(self) -> LevelName {
        match self {
            SurrogateLevel::Raid1 => LevelName::Raid1,
            SurrogateLevel::Raid5 => LevelName::Raid5,
            SurrogateLevel::Raid6 => LevelName::Raid6,
            SurrogateLevel::Raid10 => LevelName::Raid10,
            SurrogateLevel::Rs3 => LevelName::ReedSolomon(3),
            SurrogateLevel::Rs4 => LevelName::ReedSolomon(4),
            SurrogateLevel::Rs5 => LevelName::ReedSolomon(5),
            SurrogateLevel::Rs6 => LevelName::ReedSolomon(6),
            SurrogateLevel::Rs7 => LevelName::ReedSolomon(7),
            SurrogateLevel::Rs8 => LevelName::ReedSolomon(8),
        }
    }
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotationName {
    LeftSymmetric,
    LeftAsymmetric,
    RightSymmetric,
    RightAsymmetric,
    ParityFirst,
    ParityLast,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitName {
    /// Ready at once; data never written reads as zeros
    Written,
    /// Ready at once; copies and parity are brought in sync in the background
    Sync,
    /// Zero every member first
    Zero,
    /// Assume that the members are in sync, without a check
    Trust,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteHoleName {
    /// Log partial parity before each write
    Ppl,
    /// Mark regions that have writes in flight, as md does. A crash while degraded loses the missing member's
    /// data in these regions
    Bitmap,
    /// No protection: a crash requires a resync of the whole array, and a crash while degraded loses the
    /// missing member's data
    None,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BackendName {
    /// io_uring where the kernel allows it, else threads
    #[default]
    Auto,
    Uring,
    Threads,
}

// ----------------------------------------------------------------------------------------------------------- verbs

#[derive(Args, Debug)]
#[command(
    after_help = "The size of the smallest member is used of every member. With --spares N the last N members become spares.
A member that already contains an array, a file system or another known format is refused without --force.

Example: restripe create tank --level raid5 --image-size 1G a.img b.img c.img"
)]
pub struct Create {
    /// Name of the array: letters, digits, `-`, `_` and `.`
    pub name: Option<String>,
    /// The members in the order of their slots, then the spares
    #[arg(value_name = "MEMBER")]
    pub members: Vec<String>,
    /// Read the name, level, members and options from this file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// RAID level; its number suffices. Minimum members, not counting spares: raid0 1; raid1, raid4 and raid5
    /// 2; raid6 4; raid10 2, or the number of copies
    #[arg(long, value_enum)]
    pub level: Option<LevelName>,
    /// Chunk size: consecutive data on one member before the next member (4K to 4M) [default: 64K]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub chunk: Option<u64>,
    /// Rotation of parity over the members, for raid5 and raid6 [default: left-symmetric]
    #[arg(long, value_enum)]
    pub rotation: Option<RotationName>,
    /// Number of copies of each chunk, for raid10 [default: 2]
    #[arg(long, value_name = "N")]
    pub copies: Option<u8>,
    /// Divide the members into N groups and skew rows over them: a row uses one member of each group
    /// (S2-RAID; raid5, raid6, raid10). A lost member is rebuilt in several streams. Parity takes 1 (raid6:
    /// 2) of N chunks, and more of the other members cause data loss if they fail next
    /// (docs/reference/layouts.md)
    #[arg(long, value_name = "N")]
    pub groups: Option<u16>,
    /// With --groups: partitions of each member, which is the number of rebuild streams; 1 stripes over the
    /// groups without skew [default: the most whose streams read from different members]
    #[arg(long, value_name = "N")]
    pub partitions: Option<u16>,
    /// With --groups: space on each member for N partitions of other members. A lost member is rebuilt onto
    /// this space at once [default: 0]
    #[arg(long, value_name = "N")]
    pub spare_partitions: Option<u16>,
    /// Number of listed members that become spares [default: 0]
    #[arg(long, value_name = "N")]
    pub spares: Option<usize>,
    /// Initial contents of the members [default: written]
    #[arg(long, value_enum)]
    pub init: Option<InitName>,
    /// Protection of copies and parity against a crash during a write [default: ppl for raid4, raid5, raid6;
    /// bitmap for raid1, raid10]
    #[arg(long, value_enum)]
    pub write_hole: Option<WriteHoleName>,
    /// Use at most SIZE of each member for data [default: the smallest member without metadata and slack]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size_per_member: Option<u64>,
    /// Use the members to their ends. Without this option 1/1024 of the smallest member stays unused (at most
    /// 128M, none below 64M), so that a slightly smaller disk can replace a member
    #[arg(long, conflicts_with = "size_per_member")]
    pub no_slack: bool,
    /// Offset of the data region on each member; metadata is stored before it [default: about 1/16 of the
    /// smallest member, at most 4M (1M without ppl), more if the metadata needs it]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub data_offset: Option<u64>,
    /// Create members that do not exist, including the surrogate's, as image files of SIZE
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub image_size: Option<u64>,
    /// Reserve SIZE at the end of the array for leases to other arrays; users see the array smaller by SIZE
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "surrogate")]
    pub lend: Option<u64>,
    /// Members of a surrogate, as A,B: a second set that takes users' writes while a member of the array is
    /// rebuilt; or the URI of a lease of another array
    #[arg(long, value_name = "MEMBERS", value_delimiter = ',')]
    pub surrogate: Vec<String>,
    /// RAID level of the surrogate; rs3 to rs8 have 3 to 8 parities, for a code cache only [default: raid1
    /// for two members, raid5 for more; a lease has the redundancy of the lending array]
    #[arg(long, value_name = "LEVEL", value_enum, requires = "surrogate")]
    pub surrogate_level: Option<SurrogateLevel>,
    /// Make the surrogate a code cache (RERAID): `serve` packs all writes into clusters and logs them there
    /// in whole rows, at all times. Requires three or more members and raid5, raid6, or rs3 to rs8, which
    /// tolerate 3 to 8 lost disks [default: raid6 from four members on]
    #[arg(long, requires = "surrogate")]
    pub code_cache: bool,
    /// Chunk size of the code cache (a power of two from 4K; a row is at most 64K). Smaller chunks waste less
    /// padding when a flush ends a record early; larger chunks make a read use fewer members [default: the
    /// largest that a row allows]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "code_cache")]
    pub code_cache_chunk: Option<u64>,
    /// An NVRAM buffer for the code cache: a file or device in persistent memory, or two as A,B, as a mirror.
    /// A flush then writes to the buffer instead of ending a record early. The buffer takes 16 MiB of each,
    /// and files that do not exist are created. List them with the members in later commands. On an ordinary
    /// disk a flush takes as long as that disk does
    #[arg(long, value_name = "FILES", value_delimiter = ',')]
    pub buffer_file: Vec<String>,
    /// Use the single surrogate disk as a GRAID log: `serve` writes all data to the log and to the primary
    /// copies; secondary copies are updated at destage. Requires raid1 or raid10
    #[arg(long, requires = "surrogate", conflicts_with_all = ["code_cache", "surrogate_level"])]
    pub log_disk: bool,
    /// Accept members that make no write durable: NBD exports without FLUSH and FUA, files and devices that
    /// refuse fsync. `serve` needs this option as well
    #[arg(long)]
    pub volatile_members: bool,
    /// Overwrite what the members contain; lists what will be lost and asks
    #[arg(long)]
    pub force: bool,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Assemble {
    /// The members of one array and of its surrogate
    #[arg(value_name = "MEMBER", required_unless_present = "config")]
    pub members: Vec<String>,
    /// Read the members from this file
    #[arg(long, value_name = "FILE", conflicts_with = "members")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub start: StartOptions,
    /// Print the status as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Without --unix, --tcp, --stdio or a socket from systemd, the NBD socket is NAME.nbd in the
runtime folder: $XDG_RUNTIME_DIR/restripe, else /run/restripe for root, else /run/user/UID/restripe if it exists,
else /tmp/restripe-UID. If another daemon uses that socket, it is NAME-PID.nbd. A line with the URI is printed
when clients can connect. SIGTERM and SIGINT complete the requests in flight, flush, and mark the array clean.
Log lines go to standard error, each with a time and a level; if that is systemd's journal, with its priorities.

Example: restripe serve --unix tank.nbd a.img b.img c.img"
)]
pub struct Serve {
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
    /// Serve one connection on standard input and output, then exit
    #[arg(long, conflicts_with_all = ["unix", "tcp"])]
    pub stdio: bool,
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
    pub zone: Option<u64>,
    /// Halve the read counts of zones after every TIME [default: 10m]
    #[arg(long, value_name = "TIME", value_parser = parse_epoch)]
    pub epoch: Option<Duration>,
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
    pub destage_order: Option<destage::Order>,
    /// Memory for the destage of a code cache, 1M to 1G in steps of 64K [default: 16M]
    #[arg(long, value_name = "SIZE", value_parser = parse_destage_memory)]
    pub destage_memory: Option<u64>,
    /// With redirect reraid, graid or eraid: put secondary copies of a raid1 or raid10 in standby after TIME
    /// without a request for them [default: never]
    #[arg(long, value_name = "TIME", value_parser = parse_wait)]
    pub sleep: Option<Duration>,
    /// At most N spin-downs a day of the secondary copies, within the start-stop rating of the drives
    /// [default: 27]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub starts_a_day: Option<u32>,
    /// Always destage a code cache that runs low on space. Without this option its oldest segments are
    /// cleaned instead if they hold little live data, so secondary copies stay in standby
    #[arg(long)]
    pub no_clean_log: bool,
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
    pub watts: Option<NamedRating>,
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

#[derive(Args, Debug)]
pub struct Status {
    /// Name of the array [default: every served array, or the array of the members given with --offline]
    pub name: Option<String>,
    /// Read these members directly, without a daemon; changes nothing
    #[arg(long, value_name = "MEMBER", num_args = 1..)]
    pub offline: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Exit with 0 if all arrays are healthy, 1 if an array is degraded, 2 if an array has failed, 3 if the
    /// state is unknown, for example because no array is served
    #[arg(long)]
    pub exit_code: bool,
}

#[derive(Args, Debug)]
#[command(
    after_help = "A member in use is read as well, without disturbing its daemon, and is shown as in use.

--export prints the udev properties (ID_FS_TYPE=restripe_member and others) and nothing else; the udev rule
that `make install` installs runs it."
)]
pub struct Examine {
    /// The members to examine
    #[arg(value_name = "MEMBER", required_unless_present = "config")]
    pub members: Vec<String>,
    /// Read the members from this file
    #[arg(long, value_name = "FILE", conflicts_with = "members")]
    pub config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print one member's identity as KEY=VALUE lines for udev; exit with 1 if it is not a member
    #[arg(long, conflicts_with_all = ["json", "config"])]
    pub export: bool,
}

#[derive(Args, Debug)]
pub struct FailMember {
    #[command(flatten)]
    pub of: OnMember,
    /// Fail the member even if it holds the only current copy of some data (possible with `serve --redirect
    /// eraid`)
    #[arg(long)]
    pub accept_loss: bool,
}

#[derive(Args, Debug)]
pub struct OnMember {
    /// Name of the array
    pub name: String,
    /// The member: its path, its UUID, or its number in `status` (the order in which they were named to the
    /// daemon)
    pub member: String,
    #[command(flatten)]
    pub without_daemon: WithoutDaemon,
    /// Do not ask, even if the array then has no redundancy left
    #[arg(long)]
    pub yes: bool,
}

#[derive(Args, Debug)]
pub struct Add {
    /// Name of the array
    pub name: String,
    /// The device to add
    pub member: String,
    #[command(flatten)]
    pub without_daemon: WithoutDaemon,
    /// Add to the array's surrogate: in place of a missing member, otherwise as a spare. A returning member
    /// of the surrogate needs no option
    #[arg(long)]
    pub to_surrogate: bool,
    /// Add to the NVRAM buffer of the array's code cache: in place of a missing member, otherwise as a spare
    #[arg(long, conflicts_with = "to_surrogate")]
    pub to_buffer: bool,
    /// Overwrite what the device contains; lists what will be lost and asks
    #[arg(long)]
    pub force: bool,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

#[derive(Args, Debug)]
pub struct Replace {
    /// Name of the array
    pub name: String,
    /// The member to replace
    pub old: String,
    /// The new device, at least as large: a spare of the array, or a blank device
    pub new: String,
    #[command(flatten)]
    pub without_daemon: WithoutDaemon,
    /// Return when the copy has started
    #[arg(long)]
    pub no_wait: bool,
    /// Overwrite what the device contains; lists what will be lost and asks
    #[arg(long)]
    pub force: bool,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Level 0 and 4: only the new members' share of the data is moved, each chunk within its row; parity is not moved.
Level 5 and 6: every chunk is moved into the new layout. This requires `ppl`, and neither a read cache nor a surrogate.
Level 1 and 10, and arrays with groups: no growth.
Users are served during a growth. If the daemon ends, the growth resumes at the next start; while a member is missing
it waits. The new capacity is available at the end and reads as zeros; NBD clients see it when they reconnect.

Example: restripe grow tank --add e.img --dry-run"
)]
pub struct Grow {
    #[command(flatten)]
    pub target: Target,
    /// The devices to add: new ones, or spares of the array
    #[arg(long, value_name = "MEMBER", num_args = 1.., conflicts_with_all = ["pause", "resume"])]
    pub add: Vec<String>,
    /// Print what would be moved, how long it takes and what is at risk; change nothing
    #[arg(long, requires = "add", conflicts_with_all = ["force", "no_wait", "Pace"])]
    pub dry_run: bool,
    /// Return when the growth has started
    #[arg(long, requires = "add")]
    pub no_wait: bool,
    /// Overwrite what the devices contain; lists what will be lost and asks
    #[arg(long, requires = "add")]
    pub force: bool,
    /// Do not ask
    #[arg(long, requires = "add")]
    pub yes: bool,
    #[command(flatten)]
    pub pace: Pace,
}

#[derive(Args, Debug)]
#[group(multiple = false)]
pub struct Pace {
    /// Pause the running task
    #[arg(long)]
    pub pause: bool,
    /// Resume the paused task
    #[arg(long)]
    pub resume: bool,
    /// Limits of background work until the daemon ends, as MIN..MAX in bytes per second of one member:
    /// 10M..200M, 10M.. or ..200M. With --offline they apply to this command
    #[arg(long, value_name = "RATES", value_parser = parse_rate)]
    pub rate: Option<Rate>,
    /// Throttle of background work until the daemon ends: restripe; md-2.6, md-6.1 or md-2025 for the
    /// algorithms of Linux md; p99:20ms for the highest speed at which 99 of 100 requests take at most 20 ms;
    /// finish:2h to finish two hours after the task started
    #[arg(long, value_name = "NAME", value_parser = parse_throttle)]
    pub throttle: Option<Throttle>,
}

impl Pace {
    /// The members keep it, so that it lasts longer than who serves them.
    pub fn is_kept(&self) -> bool {
        self.pause || self.resume
    }
}

#[derive(Args, Debug)]
pub struct Rebuild {
    #[command(flatten)]
    pub target: Target,
    /// Watch the running rebuild (the default without other options)
    #[arg(long, conflicts_with = "Pace")]
    pub watch: bool,
    /// Order of rebuilds and resyncs: by address (pr), most read by users from now on (pro), most read so far
    /// (ido), or by address with one row in flight (sor) or as many rows as buffers hold (dor)
    #[arg(long, value_name = "NAME", value_parser = order_parser(), conflicts_with_all = ["watch", "Pace"])]
    pub order: Option<Order>,
    /// Rebuild next what users read, whatever the order; off: follow only the order
    #[arg(long, value_name = "WHETHER", value_parser = whether_parser(), num_args = 0..=1, require_equals = true,
        default_missing_value = "on", conflicts_with_all = ["watch", "order", "Pace"])]
    pub on_demand: Option<bool>,
    /// Collect what was rebuilt in spare partitions or on several spares onto one spare as soon as possible;
    /// off: leave it distributed evenly
    #[arg(long, value_name = "WHETHER", value_parser = whether_parser(), num_args = 0..=1, require_equals = true,
        default_missing_value = "on", conflicts_with_all = ["watch", "order", "on_demand", "Pace"])]
    pub copy_back: Option<bool>,
    #[command(flatten)]
    pub pace: Pace,
}

#[derive(Args, Debug)]
pub struct Scrub {
    #[command(flatten)]
    pub target: Target,
    /// Repair what is unreadable, and what a second parity or a majority of copies proves wrong; leave other
    /// rows unchanged
    #[arg(long)]
    pub repair: bool,
    /// With --repair: also bring rows in sync where no second parity or third copy shows what is wrong; their
    /// data may stay wrong
    #[arg(long, requires = "repair")]
    pub yes: bool,
    /// Return when the scrub has started
    #[arg(long)]
    pub no_wait: bool,
    /// Watch the running scrub instead of starting one
    #[arg(long, conflicts_with_all = ["repair", "no_wait", "offline", "Pace"])]
    pub watch: bool,
    /// Cancel the running scrub
    #[arg(long, conflicts_with_all = ["repair", "no_wait", "offline", "watch", "Pace"])]
    pub cancel: bool,
    #[command(flatten)]
    pub pace: Pace,
}

#[derive(Args, Debug)]
pub struct Stop {
    /// Name of the array
    pub name: String,
}

#[derive(Args, Debug)]
pub struct Metrics {
    /// Name of the array
    pub name: String,
    /// Read these members directly, without a daemon; changes nothing
    #[arg(long, value_name = "MEMBER", num_args = 1..)]
    pub offline: Vec<String>,
}

#[derive(Args, Debug)]
#[command(
    after_help = "A read is counted in every zone that it touches; counts are halved after each epoch (`serve --zone, --epoch`).\n\
    The members store the counts: at the end of an epoch with reads, and at a clean stop. A crash loses the reads of\n\
    its epoch. Arrays created by early versions have no space for the counts, which then start at zero."
)]
pub struct Heat {
    /// Name of the array
    pub name: String,
    /// Number of zones to show, hottest first
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub top: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand, Debug)]
pub enum Surrogate {
    /// Show the surrogate's members, its contents, and its counters
    Status(SurrogateStatus),
    /// Add a surrogate to an array that has none
    Add(AddSurrogate),
    /// Remove the surrogate; its log is destaged first if it holds at most 64M
    Remove(Target),
    /// Destage a code cache, a log disk, or writes that are on primary copies only
    Destage(DestageNow),
}

#[derive(Args, Debug)]
pub struct DestageNow {
    #[command(flatten)]
    pub target: Target,
    /// Return when everything that was logged at the request is destaged; --offline always waits
    #[arg(long)]
    pub wait: bool,
}

#[derive(Args, Debug)]
pub struct AddSurrogate {
    /// Name of the array that gets the surrogate
    pub name: String,
    /// Members of the surrogate, two or more: files, block devices or NBD URIs; or the URI of a lease of
    /// another array
    #[arg(required = true)]
    pub members: Vec<String>,
    /// RAID level of the surrogate [default: raid1 for two members, raid5 for more]
    #[arg(long, value_name = "LEVEL", value_parser = served_level_parser())]
    pub level: Option<SurrogateLevel>,
    #[command(flatten)]
    pub without_daemon: WithoutDaemon,
    /// Overwrite what the devices contain; lists what will be lost and asks
    #[arg(long)]
    pub force: bool,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

#[derive(Args, Debug)]
pub struct SurrogateStatus {
    /// Name of the array with the surrogate
    pub name: String,
    /// Read these members of the array and of the surrogate directly, without a daemon; changes nothing
    #[arg(long, value_name = "MEMBER", num_args = 1..)]
    pub offline: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
#[command(
    after_help = "The seed determines the run: the same seed gives the same run on every machine."
)]
pub struct Sim {
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Number of seeds to run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub count: u64,
    /// Replay the events that `serve --record` wrote
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "count"])]
    pub replay: Option<PathBuf>,
    /// Print every fact
    #[arg(long)]
    pub verbose: bool,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Requires about six times --member-size of space in the temporary folder (TMPDIR, else /tmp); no root privileges."
)]
pub struct Demo {
    /// Size of each of the six images
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "192M")]
    pub member_size: u64,
    /// Maximum speed of the rebuild in bytes per second, low enough to watch it
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "32M")]
    pub rebuild_rate: u64,
    /// Seed of the load
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write the report to FILE
    #[arg(long, value_name = "FILE", default_value = "restripe-demo.html")]
    pub report: PathBuf,
    /// Do not delete the images, and print their path
    #[arg(long)]
    pub keep: bool,
}
