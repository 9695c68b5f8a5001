//! What an overlay tells of what it is at.

use super::{Overlay, SealCause, Stage, Stripes};

/// What is being gathered in memory, and on its way into the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Gathering {
    /// A record is being filled.
    pub filling: bool,
    /// Copies into records are under way.
    pub copying: bool,
    /// Records that are sealed and not yet in the log, by [`SealCause`].
    pub sealed: [u32; SealCause::ALL.len()],
    /// How many of these are on their way into the log: the others wait for their cluster, or a copy into them.
    pub in_flight: u32,
    /// A record waits until the segment that it begins is void.
    pub reusing: bool,
}

/// How far a way home has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum WayHome {
    /// What lies in the log is being read, into memory.
    Reading,
    /// It is being written home.
    Writing,
    /// Home and log are being flushed.
    Flushing,
    /// The log is being told that its records are void.
    Voiding,
}

impl Overlay {
    /// What is being gathered; `None` where nothing ever is.
    pub fn gathering(&self) -> Option<Gathering> {
        let pack = self.pack.as_ref()?;
        let mut sealed = [0; SealCause::ALL.len()];
        for cause in self.records.iter().filter_map(|record| record.sealed) {
            sealed[cause as usize] += 1;
        }
        Some(Gathering {
            filling: pack.fills(),
            copying: pack.copies(),
            sealed,
            in_flight: (self.records.len() - pack.held()) as u32,
            reusing: pack.begins_segment(),
        })
    }

    /// How far the way home has come that is under way.
    pub fn way_home(&self) -> Option<WayHome> {
        Some(match self.home?.stage {
            Stage::Copying(_) => WayHome::Writing,
            Stage::ByStripes => match self.stripes.as_ref().is_some_and(Stripes::fetches) {
                true => WayHome::Reading,
                false => WayHome::Writing,
            },
            Stage::Flushing { .. } => WayHome::Flushing,
            Stage::Voiding => WayHome::Voiding,
        })
    }
}
