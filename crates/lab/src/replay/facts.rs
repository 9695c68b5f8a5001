//! The log of a run: its phases, its time series, its events. It has whole numbers only, so that one run is
//! one text on every machine. Every table and figure is a function of this log and of nothing else.

use super::histogram::Times;
use serde::{Deserialize, Serialize};

/// A part of a run. A request counts in the phase in which it is answered.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Phase {
    pub name: String,
    pub from_ns: u64,
    pub to_ns: u64,
    pub times: Times,
    pub read_times: Times,
    pub write_times: Times,
    pub bytes: u64,
    /// Requests that the array refused or could not serve.
    pub failed: u64,
    /// Requests that waited before the array because too many were outstanding.
    pub held: u64,
    /// Member operations by cause: user, parity, task, metadata.
    pub ios: [u64; 4],
    pub io_bytes: [u64; 4],
    /// Blocks of 4 KiB that reads asked for where anything was written, those of them that the read cache had, and those
    /// that members were asked for on account of the others.
    #[serde(default)]
    pub read_blocks: [u64; 3],
    /// Writes that a surrogate took, and reads that it served alone.
    #[serde(default)]
    pub redirected: [u64; 2],
    /// How long each member was busy; empty where nobody can tell.
    pub busy_ns: Vec<u64>,
    /// The same by what for; empty where nobody can tell.
    #[serde(default)]
    pub labour: Vec<Labour>,
    /// (largest time of the bucket, requests).
    pub histogram: Vec<(u64, u64)>,
    /// Of requests that a surrogate took, or served alone.
    #[serde(default)]
    pub moved_histogram: Vec<(u64, u64)>,
}

impl Phase {
    pub fn length_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// What a member did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Labour {
    /// Time from the beginning of an operation to its end, by the cause of the operation, as in [`Phase::ios`]. What a write
    /// cache takes over is done later, and delays whoever comes then.
    pub busy_ns: [u64; 4],
    /// Of the arm, of the platter until the right sector comes, and of data, whoever they are for.
    pub seek_ns: u64,
    pub rotate_ns: u64,
    pub transfer_ns: u64,
}

impl Labour {
    /// What came to it since.
    pub fn since(&self, then: &Labour) -> Labour {
        Labour {
            busy_ns: std::array::from_fn(|cause| self.busy_ns[cause] - then.busy_ns[cause]),
            seek_ns: self.seek_ns - then.seek_ns,
            rotate_ns: self.rotate_ns - then.rotate_ns,
            transfer_ns: self.transfer_ns - then.transfer_ns,
        }
    }

    pub fn sum(&self, other: &Labour) -> Labour {
        Labour {
            busy_ns: std::array::from_fn(|cause| self.busy_ns[cause] + other.busy_ns[cause]),
            seek_ns: self.seek_ns + other.seek_ns,
            rotate_ns: self.rotate_ns + other.rotate_ns,
            transfer_ns: self.transfer_ns + other.transfer_ns,
        }
    }
}

/// A step of the course over time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    pub from_ns: u64,
    pub requests: u64,
    pub bytes: u64,
    pub mean_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Happened {
    pub at_ns: u64,
    pub what: String,
}

/// How far a rebuild came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Rebuild {
    pub from_ns: u64,
    /// `None`: it had not ended when the run did.
    pub to_ns: Option<u64>,
    pub rows_done: u64,
    pub rows_total: u64,
}

/// What a second failure did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SecondLoss {
    pub from_ns: u64,
    /// Nothing was missing from here on; `None`: never.
    pub whole_ns: Option<u64>,
    /// The array had no redundancy for it, and serves reads only from then on.
    pub halted: bool,
    /// Array data that was lost by it, in whole chunks.
    pub lost_bytes: u64,
    pub size_bytes: u64,
}

/// What the surrogate held of the array, and when that was home again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Moved {
    /// Extents of the map at most, as seen once a step, and the bytes of memory of each.
    pub extents: u64,
    pub extent_bytes: u64,
    /// Bytes of clean copies at most: zones that were moved, reads that were kept.
    pub clean_bytes: u64,
    /// When redundancy was whole again, and when nothing was left that home did not have, as seen once a step.
    pub whole_ns: Option<u64>,
    pub home_ns: Option<u64>,
    /// Bytes of the table of what users read.
    pub heat_bytes: u64,
    /// Ways home of a log that takes every write.
    #[serde(default)]
    pub destages: u64,
    /// How often it was cleaned, and sectors that were moved for it.
    #[serde(default)]
    pub cleanings: u64,
    #[serde(default)]
    pub moved_sectors: u64,
    /// Writes and sectors by which it went home, and clusters read for it, at first and again.
    #[serde(default)]
    pub home_writes: u64,
    #[serde(default)]
    pub home_sectors: u64,
    #[serde(default)]
    pub clusters_read: u64,
    #[serde(default)]
    pub clusters_reread: u64,
    /// How often was looked, and how often something went home then.
    #[serde(default)]
    pub looks: u64,
    #[serde(default)]
    pub looks_home: u64,
}

/// What a member drew, over the whole run, in microjoules, and how often its spindle started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Energy {
    pub active_uj: u64,
    pub seek_uj: u64,
    pub idle_uj: u64,
    pub standby_uj: u64,
    pub spin_uj: u64,
    pub standby_ns: u64,
    pub total_ns: u64,
    pub spin_ups: u64,
    /// What `status` of a real array would say, by the drive's rating and the times that the engine knows.
    #[serde(default)]
    pub estimate_uj: u64,
}

impl Energy {
    pub fn total_uj(&self) -> u64 {
        self.turning_uj() + self.standby_uj + self.spin_uj
    }

    /// While its spindle turned.
    pub fn turning_uj(&self) -> u64 {
        self.active_uj + self.seek_uj + self.idle_uj
    }

    /// How often its spindle would start in a day like this.
    pub fn starts_a_day(&self) -> f64 {
        const DAY_NS: f64 = 86_400e9;
        self.spin_ups as f64 * DAY_NS / self.total_ns.max(1) as f64
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Log {
    pub phases: Vec<Phase>,
    pub steps: Vec<Step>,
    pub step_ns: u64,
    pub happened: Vec<Happened>,
    pub rebuild: Option<Rebuild>,
    /// Where a second member failed before the first was rebuilt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second: Option<SecondLoss>,
    /// Of an array with a surrogate.
    #[serde(default)]
    pub moved: Option<Moved>,
    /// From the rebuild's beginning, what the runs of an experiment are compared over; 0 where they are not.
    #[serde(default)]
    pub common_ns: u64,
    /// By member; empty where nobody can tell.
    pub energy: Vec<Energy>,
    /// What all of them drew in each step but the last, in microjoules; empty likewise.
    #[serde(default)]
    pub drawn_uj: Vec<u64>,
    /// Requests a second that were offered, and the degraded array's capacity, in thousandths; 0 where requests wait for
    /// each other, and where no capacity was measured.
    pub offered_milli: u64,
    pub capacity_milli: u64,
}

impl Log {
    pub fn phase(&self, name: &str) -> Option<&Phase> {
        self.phases.iter().find(|phase| phase.name == name)
    }

    /// Whether a phase ended before the rebuild that it was for. An array that halted did not rebuild, and is
    /// not cut.
    pub fn is_cut(&self, phase: &str) -> bool {
        let (Some(rebuild), Some(phase)) = (self.rebuild, self.phase(phase)) else {
            return false;
        };
        let (ended, halted) = self.second.map_or((rebuild.to_ns, false), |second| {
            (second.whole_ns, second.halted)
        });
        !halted && ended.is_none_or(|ended| ended > phase.to_ns)
    }

    /// Member operations of all phases, by cause.
    pub fn ios(&self) -> [u64; 4] {
        let mut sum = [0; 4];
        for phase in &self.phases {
            for (total, count) in sum.iter_mut().zip(phase.ios) {
                *total += count;
            }
        }
        sum
    }
}

/// Names of the causes, in the order of [`Phase::ios`].
pub const CAUSES: [&str; 4] = ["user", "parity", "rebuild", "metadata"];
