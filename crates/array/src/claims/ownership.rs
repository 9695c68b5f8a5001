//! What a run knows of its claim on the array. [`super`] has the rules.

use crate::contract::{Action, ArrayOwner, DeviceIo, RequestError, RequestTag};
use crate::units::{Member, Nanos, Uuid};
use alloc::boxed::Box;
use alloc::vec::Vec;
use restripe_format::meta::MetaError;
use restripe_format::meta::superblock::Superblock;

/// Intervals in which a record that is renewed changes.
pub(crate) const WAITS: u64 = 2;
/// Intervals for which a look counts.
pub(crate) const TRUSTS: u64 = 2;
/// Intervals between the claim of a run and its first write, where a former run may live.
pub(crate) const GUARDS: u64 = 3;
/// The same where none can live; and the longest time between the reads and the claim of such a start.
pub(crate) const MOMENT: Nanos = Nanos(500_000_000);
/// Versions that leave no other run's copy on a member.
pub(crate) const VERSIONS: u8 = 2;
/// Looks without a sound superblock until a member counts as overwritten.
pub(crate) const BLANKS: u8 = 3;

/// What takes the place of an owner that left no record.
pub(crate) const UNKNOWN: ArrayOwner = ArrayOwner {
    run: Uuid::NIL,
    host: Uuid::NIL,
    started: 0,
    process: 0,
    namespace: 0,
    interval_ms: 0,
};

pub(crate) type Copies = [Option<Result<Superblock, MetaError>>; 2];

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Waiting {
        next: Nanos,
    },
    /// Members that lag get the chosen version first.
    Levelling,
    Claiming,
    Guarding {
        until: Nanos,
    },
    Confirming,
    Serving {
        next: Nanos,
    },
}

#[derive(Default)]
pub(crate) struct Ownership {
    pub(crate) phase: Phase,
    pub(crate) interval: Nanos,
    /// How long the shell stood still, of which the time of the engine knows nothing.
    pub(crate) paused: Nanos,
    /// When this start last began to read superblocks.
    pub(crate) asked: Nanos,
    /// Since when a start waits, and what the superblocks held then.
    pub(crate) seen: Option<(Nanos, Vec<Copies>)>,
    /// The version to which a claim brings members that lag.
    pub(crate) chosen: Option<Superblock>,
    /// A former run may live.
    pub(crate) former: bool,
    /// Writes of levelling and of the claim that are under way.
    pub(crate) outstanding: u32,
    /// A member had no space for one of them.
    pub(crate) full: Option<Member>,
    /// By device.
    pub(crate) looks: Vec<Look>,
    pub(crate) renewed: bool,
    // They come boxed, and go on so.
    #[allow(clippy::vec_box)]
    pub(crate) held: Vec<Box<DeviceIo>>,
    pub(crate) replies: Vec<(RequestTag, Result<(), RequestError>)>,
}

/// The last look at a device.
#[derive(Clone, Default)]
pub(crate) struct Look {
    pub(crate) begun: Nanos,
    pub(crate) outstanding: u8,
    pub(crate) copies: Copies,
    /// When the last look was begun that found this run's superblock to be the newest there.
    pub(crate) alone: Option<Nanos>,
    /// Versions that this run has written there, as far as they matter: before there are [`VERSIONS`],
    /// another run's copy may be one that lay there, and proves nothing.
    pub(crate) versions: u8,
    /// Looks in a row that found no sound superblock.
    pub(crate) blanks: u8,
}

impl Ownership {
    pub(crate) fn asked(&mut self, now: Nanos) {
        self.asked = self.world_time(now);
    }

    pub(crate) fn paused(&mut self, time: Nanos) {
        self.paused = self.paused.after(time);
    }

    pub(crate) fn world_time(&self, now: Nanos) -> Nanos {
        now.after(self.paused)
    }

    /// A device has a version of this run.
    pub(crate) fn version_written(&mut self, member: Member) {
        if let Some(look) = self.looks.get_mut(usize::from(member.0)) {
            look.versions = (look.versions + 1).min(VERSIONS);
        }
    }

    pub(crate) fn times(&self, intervals: u64) -> Nanos {
        Nanos(self.interval.0.saturating_mul(intervals))
    }
}

/// What is known may be old by now.
pub fn refuse_all(actions: &mut [Action]) {
    for action in actions {
        if let Action::Reply(_, result) = action {
            *result = result.and(Err(RequestError::Unavailable));
        }
    }
}

pub(crate) fn interval_of(owner: &ArrayOwner) -> Nanos {
    Nanos(u64::from(owner.interval_ms) * 1_000_000)
}

pub(crate) fn changed(before: &[Copies], now: &[Copies]) -> bool {
    let differs = |(old, new): (&Copies, &Copies)| {
        let both = old.iter().zip(new);
        both.into_iter()
            .any(|(old, new)| old.is_some() && new.is_some() && old != new)
    };
    before.iter().zip(now).any(differs)
}
