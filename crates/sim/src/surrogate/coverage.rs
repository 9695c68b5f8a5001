//! What lives with a surrogate have met: incidents, by where users' data were at that moment.

use restripe_array::TaskKind;
use restripe_tier::report::OverlayStatus;
use restripe_tier::report::Status;
use std::fmt;

/// Where users' data are, and where they are going.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// The array has not served since it was last started.
    Starting,
    /// All data are at home, and no task restores redundancy.
    AtHome,
    /// A task restores redundancy, and nothing has been moved away yet.
    Before,
    /// Hot zones or what was read lie in the log as well; home has everything.
    Copied,
    /// Something lies in the log alone, while a task restores redundancy.
    Away,
    /// It goes home, while a task restores redundancy: the log is short of room.
    MakingRoom,
    /// It goes home, and redundancy is whole.
    GoingHome,
    /// Something lies in the log alone, redundancy is whole, and it does not go home at this moment: the array is scrubbed, say.
    Waiting,
}

/// What happens to a pair of sets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Incident {
    Crash,
    /// The daemon died, and the members' caches lived on.
    Death,
    /// A member of home is lost; in some lives it is the second one.
    HomeLoss,
    /// A member of home is lost while another one is missing.
    SecondLoss,
    LogLoss,
    /// The whole surrogate is lost.
    SurrogateLoss,
    /// A member of the surrogate cannot be reached for a while, and comes back.
    Cut,
    /// So with all of them, or too many.
    WholeCut,
    /// So with too many of home.
    HomeCut,
    /// Pages of the log rot while the power is off.
    Rot,
}

all! { Phase { Starting, AtHome, Before, Copied, Away, MakingRoom, GoingHome, Waiting } }

impl Phase {
    pub fn of(status: &Status, serving: bool) -> Phase {
        let overlay = status.surrogate.as_ref().and_then(|one| one.overlay);
        let Some(overlay) = overlay.filter(|_| serving) else {
            return Phase::Starting;
        };
        let mut tasks = status.tasks.iter();
        let restoring = tasks.any(|task| !matches!(task.kind, TaskKind::Check | TaskKind::Repair));
        let OverlayStatus {
            sectors: [away, also, clean],
            going_home,
            ..
        } = overlay;
        match (restoring, away + also > 0) {
            (true, false) if clean > 0 => Phase::Copied,
            (true, false) => Phase::Before,
            (true, true) if going_home => Phase::MakingRoom,
            (true, true) => Phase::Away,
            (false, true) if going_home => Phase::GoingHome,
            (false, true) => Phase::Waiting,
            (false, false) => Phase::AtHome,
        }
    }
}

impl fmt::Display for Incident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Incident::Crash => "a crash",
            Incident::Death => "the daemon's death",
            Incident::HomeLoss => "a member of home lost",
            Incident::SecondLoss => "a second member of home lost",
            Incident::LogLoss => "a member of the surrogate lost",
            Incident::SurrogateLoss => "the surrogate lost",
            Incident::Cut => "a member of the surrogate cut off",
            Incident::WholeCut => "the surrogate cut off",
            Incident::HomeCut => "home cut off",
            Incident::Rot => "pages of the log rotten",
        })
    }
}
