//! The same work on several members at once: members may be far away, and one after the other takes as long as all
//! together.
//!
//! All of it ends before an error is told, so that nothing goes on behind the caller's back.

use crate::failure::Outcome;
use crate::print::terminal::Progress;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Members that are worked on at the same time.
const AT_ONCE: usize = 16;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Sectors done of all that there are to do; what is shown of it.
pub(crate) struct Extent {
    doing: &'static str,
    total: u64,
    done: AtomicU64,
    begun: Instant,
}

impl Extent {
    pub fn new(doing: &'static str, total: u64) -> Extent {
        Extent {
            doing,
            total,
            done: AtomicU64::new(0),
            begun: Instant::now(),
        }
    }

    pub fn add(&self, done: u64) {
        self.done.fetch_add(done, Ordering::Relaxed);
    }

    fn show(&self, progress: &mut Progress) {
        let done = self.done.load(Ordering::Relaxed);
        progress.show_slow(self.begun, self.doing, done, self.total);
    }
}

/// Works on every item, and gives what came of each, or the first item's error that failed.
pub(crate) fn on_each<T: Send, R: Send>(
    items: &mut [T],
    extent: &Extent,
    work: impl Fn(usize, &mut T) -> Outcome<R> + Sync,
) -> Outcome<Vec<R>> {
    let mut all = Vec::with_capacity(items.len());
    let mut progress = Progress::new();
    let mut first = 0;
    for some in items.chunks_mut(AT_ONCE) {
        let count = some.len();
        let done: Outcome<Vec<R>> = thread::scope(|scope| {
            let (sender, ended) = channel::<()>();
            let threads: Vec<_> = some
                .iter_mut()
                .enumerate()
                .map(|(index, item)| {
                    let (work, sender) = (&work, sender.clone());
                    scope.spawn(move || {
                        let done = work(first + index, item);
                        drop(sender);
                        done
                    })
                })
                .collect();
            drop(sender);
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(LOOK_EVERY) {
                extent.show(&mut progress);
            }
            let done = threads.into_iter().map(|thread| thread.join());
            // A panic goes on here; the others have ended.
            let done =
                done.map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            done.collect::<Vec<_>>().into_iter().collect()
        });
        all.extend(done?);
        first += count;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;
    use std::sync::{Condvar, Mutex};

    /// Each waits until all have begun, and gives up after a time: one after the other they would all give up.
    #[test]
    fn all_members_are_worked_on_at_once() {
        let mut items: Vec<usize> = (0..AT_ONCE).collect();
        let (begun, all) = (Mutex::new(0), Condvar::new());
        let extent = Extent::new("meeting", 1);
        let found = on_each(&mut items, &extent, |number, item| {
            let mut count = begun.lock().expect("no panic");
            *count += 1;
            all.notify_all();
            let patience = Duration::from_secs(10);
            let met = all.wait_timeout_while(count, patience, |count| *count < AT_ONCE);
            let timed_out = met.expect("no panic").1.timed_out();
            assert_eq!(number, *item);
            match timed_out {
                true => Err(Failure::new("alone")),
                false => Ok(*item),
            }
        });
        assert_eq!(found, Ok((0..AT_ONCE).collect()));
    }

    #[test]
    fn all_end_and_the_first_in_order_is_told() {
        let mut items = vec![0; AT_ONCE];
        let extent = Extent::new("failing", 1);
        let failed = on_each(&mut items, &extent, |number, item| {
            *item = 1;
            match number {
                3 | 5 => Err(Failure::new(format!("number {number}"))),
                _ => Ok(()),
            }
        });
        assert_eq!(failed, Err(Failure::new("number 3")));
        assert_eq!(items, [1; AT_ONCE]);
    }
}
