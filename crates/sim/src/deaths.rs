//! Crashes of the daemon alone: members keep their volatile caches, and a power cut may follow later.
//!
//! Some crashes of a run become such a crash. Operations in flight are done or not. The next start finds all
//! acknowledged writes, none of which is durable yet. Often it only reads, flushes and ends, and then a
//! power cut drops all data that is not durable. The draws are from a stream of their own, so that a seed
//! keeps its meaning except for these crashes.

use crate::rng::Rng;
use restripe_array::Bug;

/// What tells the stream of deaths from others.
const DEATHS: u64 = 0xdead_dae0;
/// Counted: lives that did no more than flush what a dead daemon had written.
pub const DEATHS_ALONE: &str = "flushes alone after a death";

/// Whether lives with this planted bug have deaths. The seeds that find the other bugs do so without deaths.
pub fn happen(bug: Option<Bug>) -> bool {
    bug.is_none_or(|bug| bug == Bug::StartUnflushed)
}

pub struct Deaths {
    rng: Rng,
    happen: bool,
    /// The daemon of the life before died.
    just_died: bool,
    /// Nothing survives the next cut that is not durable.
    swept: bool,
}

impl Deaths {
    /// Deaths of a seed, if they are to happen at all with this planted bug.
    pub fn new(seed: u64, bug: Option<Bug>) -> Deaths {
        Deaths {
            rng: Rng::new(seed ^ DEATHS),
            happen: happen(bug),
            just_died: false,
            swept: false,
        }
    }

    /// Whether this crash is the death of the daemon alone.
    pub fn is_death(&mut self) -> bool {
        self.just_died = self.happen && self.rng.chance(1, 4);
        self.just_died
    }

    /// Whether the life that begins does no more than flush.
    pub fn hushes(&mut self) -> bool {
        std::mem::take(&mut self.just_died) && self.rng.chance(1, 3)
    }

    /// Whether the cut that ends a life takes all that is not durable.
    pub fn sweeps(&mut self) -> bool {
        std::mem::take(&mut self.swept)
    }

    /// A life that only flushes has begun: nothing that it does not make durable survives the cut at its end. Whether it
    /// ends by a stop.
    pub fn begin_flush(&mut self) -> bool {
        self.swept = true;
        self.rng.chance(1, 2)
    }

    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }
}
