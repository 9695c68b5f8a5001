//! What a code cache is at when something happens: the rows and columns of its coverage table, and which
//! cells no run can meet.

use super::{Life, Site};
use crate::oracle::WriteKind;
use crate::workload::Ask;
use restripe_array::Member;
use restripe_tier::overlay::{Cleans, DestageStage, SealCause};
use restripe_tier::report::Status;
use std::collections::BTreeSet;
use std::fmt;

/// What a code cache is at. Several hold at once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Moment {
    /// The array has not served since it was last started.
    Starting,
    /// It was told to stop.
    Stopping,
    /// Nothing is gathered, and nothing lies in the log.
    Empty,
    /// A record is being filled.
    Filling,
    /// Bytes are being copied into a record.
    Copying,
    /// A record is sealed for this cause, and has not landed in the log.
    Sealed(SealCause),
    /// What it holds is being announced at home, before it is written.
    Announcing,
    /// A record is on its way into the log.
    InFlight,
    /// A record waits until the segment that it begins is void.
    Reusing,
    /// Something lies in the log alone.
    InLog,
    /// The log is so full that everything is to go home.
    Short,
    /// Users' writes wait for room in it.
    Starved,
    /// The log is being cleaned: what counts of the oldest is moved, made durable, or the old records are called void.
    Cleaning(Cleans),
    /// A destage has begun: what is gathered goes into the log first, and mirrors wake.
    Begun,
    /// The way home.
    Home(DestageStage),
    /// A mirror was told to stand still.
    Resting,
    Asleep,
    /// A mirror is asked to turn again.
    Waking,
    /// So one that is late.
    WakesLate,
    /// And one that never will.
    WakesNever,
}

all! { Moment {
    Starting, Stopping, Empty, Filling, Copying,
    Sealed(SealCause::Full), Sealed(SealCause::Age), Sealed(SealCause::Flush),
    Sealed(SealCause::Fua), Sealed(SealCause::Destage), Sealed(SealCause::Stop),
    Announcing, InFlight, Reusing, InLog, Short, Starved,
    Cleaning(Cleans::Moving), Cleaning(Cleans::Flushing), Cleaning(Cleans::Voiding), Begun,
    Home(DestageStage::Reading), Home(DestageStage::Writing),
    Home(DestageStage::Flushing), Home(DestageStage::Voiding),
    Resting, Asleep, Waking, WakesLate, WakesNever,
}}

impl Moment {
    /// What an array that serves is at, by what it tells.
    pub fn of(status: &Status) -> BTreeSet<Moment> {
        let overlay = status.surrogate.as_ref().and_then(|one| one.overlay);
        let Some((overlay, cache)) = overlay.and_then(|one| Some((one, one.code_cache?))) else {
            return BTreeSet::new();
        };
        let gathering = cache.gathering;
        let away = overlay.sectors[0] > 0;
        let fills = gathering.filling || gathering.copying;
        let idle = !fills && gathering.sealed.iter().all(|n| *n == 0);
        let begun = cache.destaging && cache.destage_stage.is_none();
        let mut met: BTreeSet<Moment> = [
            (!away && idle && !cache.destaging, Moment::Empty),
            (gathering.filling, Moment::Filling),
            (gathering.copying, Moment::Copying),
            (cache.announcing > 0, Moment::Announcing),
            (gathering.in_flight > cache.announcing, Moment::InFlight),
            (gathering.reusing, Moment::Reusing),
            (away, Moment::InLog),
            (cache.short, Moment::Short),
            (cache.starved, Moment::Starved),
            (begun, Moment::Begun),
            (cache.mirrors_resting > 0, Moment::Resting),
            (overlay.mirrors_asleep > 0, Moment::Asleep),
            (cache.mirrors_waking > 0, Moment::Waking),
        ]
        .into_iter()
        .filter_map(|(is, moment)| is.then_some(moment))
        .collect();
        let sealed = SealCause::ALL.into_iter().filter(|cause| {
            let refused = *cause == SealCause::Failed;
            !refused && gathering.sealed[*cause as usize] > 0
        });
        met.extend(sealed.map(Moment::Sealed));
        met.extend(cache.destage_stage.map(Moment::Home));
        met.extend(cache.cleans.map(Moment::Cleaning));
        met
    }

    /// What a life is at.
    pub(super) fn of_life(life: &Life) -> BTreeSet<Moment> {
        if !life.serving {
            return BTreeSet::from([Moment::Starting]);
        }
        let world = &life.session.world;
        let mut met = Moment::of(&world.status());
        if life.stopping {
            met.insert(Moment::Stopping);
        }
        if met.contains(&Moment::Waking) {
            met.extend(Moment::of_wakes(life));
        }
        met
    }

    /// How mirrors that are asked to turn do it.
    fn of_wakes(life: &Life) -> Vec<Moment> {
        let world = &life.session.world;
        let members = (0..).map(Member).zip(&life.sites);
        let homes =
            members.filter(|(member, site)| **site == Site::Home && world.under_way(*member) > 0);
        let faults = homes.map(|(member, _)| &world.disk(member).faults);
        faults
            .filter_map(|faults| match (faults.never_woke(), faults.wakes_late()) {
                (true, _) => Some(Moment::WakesNever),
                (_, true) => Some(Moment::WakesLate),
                _ => None,
            })
            .collect()
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Moment::Sealed(cause) => write!(f, "sealed ({})", cause.name()),
            Moment::Home(stage) => write!(f, "home: {stage:?}"),
            Moment::Cleaning(stage) => write!(f, "cleaning: {stage:?}"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// What happens to a code cache.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Event {
    /// A user asks.
    Write,
    Read,
    Flush,
    /// A write that is to be durable with its reply.
    Fua,
    Zeroes,
    Trim,
    /// The array is told to stop.
    Stop,
    Crash,
    /// The array serves again after a crash at that moment.
    Start,
    /// A member of the log is lost: one, and, where the log bears that, another while it is missing.
    LogLoss,
    SecondLogLoss,
    /// A disk is lost that has the first copy of chunks and a member of the log; and a second one.
    DiskLoss,
    SecondDiskLoss,
    /// All of the log is lost.
    SurrogateLoss,
    /// A member of home is lost that turns, or that stands still.
    AwakeLoss,
    AsleepLoss,
    /// A mirror is asked to wake, and never will.
    FailedWake,
}

all! { Event {
    Write, Read, Flush, Fua, Zeroes, Trim, Stop, Crash, Start, LogLoss, SecondLogLoss, DiskLoss,
    SecondDiskLoss, SurrogateLoss, AwakeLoss, AsleepLoss, FailedWake,
}}

impl Event {
    /// What a user's request is.
    pub(super) fn of(ask: &Ask) -> Event {
        match ask {
            Ask::Read { .. } => Event::Read,
            Ask::Flush => Event::Flush,
            Ask::Write { kind, fua, .. } => match kind {
                WriteKind::Trim => Event::Trim,
                WriteKind::Zeroes => Event::Zeroes,
                WriteKind::Data if *fua => Event::Fua,
                WriteKind::Data => Event::Write,
            },
        }
    }

    fn asks(self) -> bool {
        self <= Event::Trim
    }
}

/// The cells of the table that can be met.
pub(super) fn cells() -> Vec<(Moment, Event)> {
    let events = Event::ALL.into_iter();
    let cells = events.flat_map(|event| Moment::ALL.map(|moment| (moment, event)));
    let met = cells.filter(|(moment, event)| why_not(*moment, *event).is_none());
    met.collect()
}

/// The seeds whose runs set out for this cell; none if it cannot be met.
pub fn seeds_for(moment: Moment, event: Event) -> impl Iterator<Item = u64> {
    let cells = cells();
    let found = cells.iter().position(|cell| *cell == (moment, event));
    let found = found.into_iter();
    found.flat_map(move |cell| (cell as u64..).step_by(cells.len()))
}

/// Why an event cannot meet a moment; `None` if it can, and so must.
pub fn why_not(moment: Moment, event: Event) -> Option<&'static str> {
    use Moment::{Begun, Home, Sealed, Starting, Stopping};
    match (moment, event) {
        (Starting | Stopping | Sealed(SealCause::Stop), Event::Stop) => {
            Some("an array that does not serve, or is stopping, refuses to")
        }
        (Starting | Stopping | Sealed(SealCause::Stop), event) if event.asks() => {
            Some("an array that does not serve, or is stopping, refuses users")
        }
        (Starting, Event::AsleepLoss | Event::FailedWake) => {
            Some("no mirror is let sleep before the array serves")
        }
        (Begun | Home(_) | Sealed(SealCause::Destage), Event::AsleepLoss) => {
            Some("every mirror was asked to wake when the destage began")
        }
        (Moment::Announcing, Event::AsleepLoss | Event::FailedWake) => {
            Some("all of home was announced before the first mirror was let sleep")
        }
        (Moment::Starved, Event::AsleepLoss) => Some(
            "a destage begins at once, and every mirror is asked to wake, or the log is cleaned",
        ),
        (Home(_), Event::FailedWake) => Some("nothing goes home before every mirror turns"),
        _ => None,
    }
}
