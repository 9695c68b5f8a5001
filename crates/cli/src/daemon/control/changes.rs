//! Changes of an array that exclude each other: a growth, leases, and a log set that is added or removed.

use crate::daemon::control::array::{Said, ServedArray, locked};
use restripe_io::control::Refusal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

#[derive(Default)]
pub(super) struct Changes {
    /// Held while the engine is exchanged, or leases are changed.
    changing: Mutex<()>,
    /// The log set is being removed. That lasts until it is destaged, and no other change waits for so long.
    removing: AtomicBool,
}

/// No other removal of the log set begins while this lives.
pub(super) struct Removal<'a> {
    // The lock ends first: whoever comes between the two is refused and does not wait.
    _changing: MutexGuard<'a, ()>,
    _removing: Removing<'a>,
}

struct Removing<'a>(&'a AtomicBool);

impl Drop for Removing<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Changes {
    /// Waits for other changes, which end in moments; refused while the log set is removed.
    pub(super) fn begin(&self, array: &ServedArray) -> Said<MutexGuard<'_, ()>> {
        match self.removing.load(Ordering::Relaxed) {
            true => Err(is_being_emptied(array)?),
            false => Ok(locked(&self.changing)),
        }
    }

    /// The growth of an array waits for no other change.
    pub(super) fn begin_growth(&self) -> Said<MutexGuard<'_, ()>> {
        let begun = self.changing.try_lock();
        begun.map_err(|_| Refusal::new("another growth or another change has started"))
    }

    pub(super) fn begin_removal(&self, array: &ServedArray) -> Said<Removal<'_>> {
        if self.removing.swap(true, Ordering::Relaxed) {
            return Err(is_being_emptied(array)?);
        }
        let removing = Removing(&self.removing);
        Ok(Removal {
            _changing: locked(&self.changing),
            _removing: removing,
        })
    }
}

fn is_being_emptied(array: &ServedArray) -> Said<Refusal> {
    let name = array.look()?.0.set.name;
    let what = "not now: a removal of the array's surrogate is already running";
    let hint = format!("`restripe surrogate status {name}` shows how much is left");
    Ok(Refusal::new(what).hint(hint))
}
