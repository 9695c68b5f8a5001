//! A drive model inside the simulated world that reports its busy time and its energy.

use super::facts::{Energy, Labour};
use restripe_array::energy::Spent;
use restripe_array::{Class, Nanos};
use restripe_sim::disk::flash::Flash;
use restripe_sim::disk::mechanical::Work;
use restripe_sim::disk::power::Ledger;
use restripe_sim::disk::served::HardDisk;
use restripe_sim::disk::{Asked, Device};
use restripe_sim::rng::Rng;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub enum Model {
    Hard(Box<HardDisk>),
    Flash(Box<Flash>),
}

impl Model {
    fn device(&mut self) -> &mut dyn Device {
        match self {
            Model::Hard(disk) => &mut **disk,
            Model::Flash(flash) => &mut **flash,
        }
    }
}

struct Metered {
    model: Model,
    busy_ns: [u64; 4],
    free_at: u64,
}

/// The world's side of a metered drive.
pub struct Instrumented(Arc<Mutex<Metered>>);

/// The observer's side; of a member that lies on another's drive, which counts both, nothing.
#[derive(Clone)]
pub struct Meter {
    drive: Arc<Mutex<Metered>>,
    counts: bool,
}

/// A member on another's drive, behind what that has of it. The drive takes what either asks in the order in which it is begun.
pub struct Beside {
    drive: Arc<Mutex<Metered>>,
    base: u64,
    shifted: VecDeque<Asked>,
}

pub fn metered(model: Model) -> (Instrumented, Meter) {
    let shared = Arc::new(Mutex::new(Metered {
        model,
        busy_ns: [0; 4],
        free_at: 0,
    }));
    let (drive, counts) = (Arc::clone(&shared), true);
    (Instrumented(shared), Meter { drive, counts })
}

fn serve(metered: &mut Metered, now: Nanos, asked: &Asked, rng: &mut Rng) -> Nanos {
    let end = metered.model.device().serve(now, asked, rng);
    let from = now.0.max(metered.free_at);
    metered.busy_ns[cause(asked.class)] += end.0.saturating_sub(from);
    metered.free_at = metered.free_at.max(end.0);
    end
}

impl Device for Beside {
    fn serve(&mut self, now: Nanos, asked: &Asked, rng: &mut Rng) -> Nanos {
        let at = asked.at + self.base;
        serve(&mut lock(&self.drive), now, &Asked { at, ..*asked }, rng)
    }

    fn choose(&mut self, now: Nanos, waiting: &VecDeque<Asked>) -> usize {
        self.shifted.clone_from(waiting);
        self.shifted
            .iter_mut()
            .for_each(|asked| asked.at += self.base);
        let mut metered = lock(&self.drive);
        metered.model.device().choose(now, &self.shifted)
    }
}

/// Both sides live on one thread: the lock is never contended, and a poisoned one has seen a panic already.
fn lock(shared: &Mutex<Metered>) -> MutexGuard<'_, Metered> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Device for Instrumented {
    fn serve(&mut self, now: Nanos, asked: &Asked, rng: &mut Rng) -> Nanos {
        serve(&mut lock(&self.0), now, asked, rng)
    }

    fn choose(&mut self, now: Nanos, waiting: &VecDeque<Asked>) -> usize {
        lock(&self.0).model.device().choose(now, waiting)
    }
}

impl Meter {
    /// A further member on this drive, from this block on.
    pub fn beside(&self, base: u64) -> (Beside, Meter) {
        let beside = Beside {
            drive: Arc::clone(&self.drive),
            base,
            shifted: VecDeque::new(),
        };
        let (drive, counts) = (Arc::clone(&self.drive), false);
        (beside, Meter { drive, counts })
    }

    /// Whether it has a drive of its own.
    pub fn counts(&self) -> bool {
        self.counts
    }

    pub fn busy_ns(&self) -> u64 {
        match self.counts {
            true => lock(&self.drive).busy_ns.iter().sum(),
            false => 0,
        }
    }

    pub fn labour(&self) -> Labour {
        if !self.counts {
            return Labour::default();
        }
        let metered = lock(&self.drive);
        let work = match &metered.model {
            Model::Hard(disk) => disk.drive().work(),
            Model::Flash(_) => Work::default(),
        };
        Labour {
            busy_ns: metered.busy_ns,
            seek_ns: work.seek_ns,
            rotate_ns: work.rotate_ns,
            transfer_ns: work.transfer_ns,
        }
    }

    /// What the drive drew up to `now`; `None` where its power is not known. `spent` is what the engine knows of the members on it.
    pub fn energy(&self, now: Nanos, spent: &Spent) -> Option<Energy> {
        match &mut lock(&self.drive).model {
            Model::Hard(disk) => {
                let estimate_uj = micro(disk.rating()?.energy_nj(spent));
                let mut drawn = energy(&disk.ledger(now)?);
                drawn.estimate_uj = estimate_uj;
                Some(drawn)
            }
            Model::Flash(_) => None,
        }
    }

    /// Keeps what the drive draws from now on step by step.
    pub fn chart(&self, now: Nanos, step_ns: u64) {
        if let Model::Hard(disk) = &mut lock(&self.drive).model {
            disk.chart(now, step_ns);
        }
    }

    /// What the drive drew in each step up to `now`, in microjoules; `None` where its power is not known.
    pub fn course(&self, now: Nanos) -> Option<Vec<u64>> {
        match &mut lock(&self.drive).model {
            Model::Hard(disk) => {
                let course = disk.course(now)?.drawn_nj();
                Some(course.iter().copied().map(micro).collect())
            }
            Model::Flash(_) => None,
        }
    }

    /// What the engine knows of the members on this drive, one beside the other; `all` are members' meters and times, in the same order.
    pub fn spent<'a>(&self, all: impl Iterator<Item = (&'a Meter, Spent)>) -> Spent {
        let on_it = all.filter(|(other, _)| Arc::ptr_eq(&self.drive, &other.drive));
        let times = on_it.map(|(_, spent)| spent);
        times.reduce(|a, b| a.beside(&b)).unwrap_or_default()
    }
}

/// As in [`super::facts::CAUSES`].
fn cause(class: Class) -> usize {
    match class {
        Class::User => 0,
        Class::Parity => 1,
        Class::Task => 2,
        Class::Metadata => 3,
    }
}

fn micro(nano: u128) -> u64 {
    u64::try_from(nano / 1000).unwrap_or(u64::MAX)
}

fn energy(ledger: &Ledger) -> Energy {
    Energy {
        active_uj: micro(ledger.active_nj),
        seek_uj: micro(ledger.seek_nj),
        idle_uj: micro(ledger.idle_nj),
        standby_uj: micro(ledger.standby_nj),
        spin_uj: micro(ledger.spin_nj),
        standby_ns: ledger.standby_ns,
        total_ns: ledger.total_ns(),
        spin_ups: ledger.spin_ups,
        estimate_uj: 0,
    }
}
