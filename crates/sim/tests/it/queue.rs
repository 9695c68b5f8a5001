//! Work on all cores, and the switches of the environment.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Whether files on record are written anew.
pub fn blesses() -> bool {
    std::env::var_os("RESTRIPE_BLESS").is_some()
}

/// Gives each item to `work` until that returns false, on all cores.
pub fn on_all_cores<T: Send>(
    items: impl Iterator<Item = T> + Send,
    work: impl Fn(T) -> bool + Sync,
) {
    let (items, enough) = (Mutex::new(items), AtomicBool::new(false));
    let take = || {
        while !enough.load(Ordering::Relaxed) {
            let item = lock(&items).next();
            let Some(item) = item else { return };
            if !work(item) {
                enough.store(true, Ordering::Relaxed);
            }
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(take);
        }
    });
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
