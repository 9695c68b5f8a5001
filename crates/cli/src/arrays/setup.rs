//! How engines are started: what the options of a verb and the configuration file come to.

use crate::args::watts;
use crate::failure::{Failure, Outcome};
use crate::units::{DESTAGE_STEP, Rate, Size};
use restripe_array::cache::Rule;
use restripe_array::{
    CacheLimits, Command, HeatLimits, Limits, Nanos, Order, SECTOR_BYTES, SMALL_BYTES, StartMode,
    Throttle,
};
use restripe_io::BackendChoice;
use restripe_io::backend::PowerHook;
use restripe_io::control::NamedRating;
use restripe_io::member::OpenOptions;
use restripe_tier::{Destage, Redirect, SurrogateConfig, SurrogateLimits};
use std::path::PathBuf;
use std::time::Duration;

/// Memory for requests, unless told otherwise.
pub(crate) const MEMORY_BYTES: u64 = 256 << 20;

/// The largest read cache of an array: its memory has half of the handles that are not the users'.
const CACHE_BYTES_MAX: u64 = 32 << 30;

pub(crate) const IO_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) const PROBE: Duration = Duration::from_secs(10);

/// How engines are started.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
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
    pub given: Vec<GivenOption>,
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
            given: Vec::new(),
        }
    }
}

/// What an array's surrogate is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Plain,
    CodeCache,
    LogDisk,
}

impl Form {
    /// Which writes go there unless `--redirect` says otherwise.
    pub(crate) fn usual_redirect(self) -> Redirect {
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
    pub fn paces(&self) -> Vec<Command> {
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
    pub(crate) fn may_leave_behind(&self) -> bool {
        let mode = self.start;
        self.degraded || mode.from_minority || mode.accept_loss || mode.read_only
    }

    pub(crate) fn open_options(&self) -> OpenOptions {
        OpenOptions {
            direct: self.direct,
            read_only: self.start.read_only,
            power: self.power,
            ..OpenOptions::default()
        }
    }
}

/// The read cache of so many bytes; none for 0.
pub(crate) fn read_cache(bytes: u64, rule: Option<Rule>) -> Outcome<Option<CacheLimits>> {
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

/// What is learned of reads, in zones of so many bytes and epochs of so long, as far as it was said.
pub(crate) fn heat(zone: Option<u64>, epoch: Option<Duration>) -> HeatLimits {
    let usual = HeatLimits::default();
    HeatLimits {
        zone_sectors: zone.map_or(usual.zone_sectors, |bytes| bytes / SECTOR_BYTES),
        epoch: epoch.map_or(usual.epoch, |time| {
            Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
        }),
    }
}

/// How many of an array's members are of its other sets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Others {
    pub of_surrogate: u16,
    pub of_buffer: u16,
}

/// What such an option is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Subject {
    Redirect,
    Destage,
    CodeCache,
    Sleep,
    /// Of mirrors that sleep, and said beside `--standby-after` alone.
    OfSleep,
}

/// An option that was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct GivenOption {
    pub subject: Subject,
    /// As it was written.
    pub word: String,
    pub by_file: bool,
}
