//! Arguments that several verbs share, and the configuration file, which has the same words.

use crate::units::{Rate, parse_rate, parse_throttle};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use restripe_array::{StartMode, Throttle};
use std::fmt;

pub(crate) mod config;
pub(crate) mod renamed;
pub(crate) mod tls;
pub(crate) mod watts;

/// The array that a verb is about.
#[derive(Args, Debug, Clone)]
pub(crate) struct Target {
    /// Name of the array
    pub name: String,
    #[command(flatten)]
    pub without_daemon: WithoutDaemon,
}

/// Work on members that no daemon serves.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct WithoutDaemon {
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
pub(crate) struct StartOptions {
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

impl StartOptions {
    pub fn mode(&self) -> StartMode {
        StartMode {
            from_minority: self.from_minority,
            accept_loss: self.accept_loss,
            read_only: self.read_only,
            volatile_members: self.volatile_members,
            force_owner: self.force_owner,
            ..StartMode::default()
        }
    }
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LevelName {
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
pub(crate) enum SurrogateLevel {
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
pub(crate) fn served_level_parser() -> impl TypedValueParser<Value = SurrogateLevel> {
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
pub(crate) enum RotationName {
    LeftSymmetric,
    LeftAsymmetric,
    RightSymmetric,
    RightAsymmetric,
    ParityFirst,
    ParityLast,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InitName {
    /// Ready at once; data never written reads as zeros
    #[value(alias = "written")]
    Lazy,
    /// Ready at once; copies and parity are brought in sync in the background
    Sync,
    /// Zero every member first
    Zero,
    /// Assume that the members are in sync, without a check
    #[value(alias = "trust")]
    AssumeClean,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteHoleName {
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
pub(crate) enum BackendName {
    /// io_uring where the kernel allows it, else threads
    #[default]
    Auto,
    Uring,
    Threads,
}

#[derive(Args, Debug)]
#[group(multiple = false)]
pub(crate) struct Pace {
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
