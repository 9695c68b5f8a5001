//! Independent pieces of work over threads. Results are returned in the order of the items, so the number of
//! threads affects the time only.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What has ended so far, by the place of its item, and who is told of it.
struct Ended<T, E, W> {
    results: BTreeMap<usize, Result<T, E>>,
    watch: W,
}

/// Does `work` for every item. After a failure no further item is begun; of several the first by order of items is told.
/// `watch` is told of each end one after another, with how many there were.
pub fn over<I: Sync, T: Send, E: Send>(
    threads: usize,
    items: &[I],
    work: impl Fn(&I) -> Result<T, E> + Sync,
    watch: impl FnMut(usize, &Result<T, E>) + Send,
) -> Result<Vec<T>, E> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let ended = Mutex::new(Ended {
        results: BTreeMap::new(),
        watch,
    });
    let one = || {
        while !failed.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else {
                break;
            };
            let result = work(item);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            let mut ended = ended.lock().expect("no thread panics with it");
            let done = ended.results.len() + 1;
            (ended.watch)(done, &result);
            ended.results.insert(index, result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, items.len().max(1)) {
            scope.spawn(one);
        }
    });
    let ended = ended.into_inner().expect("all threads have ended well");
    ended.results.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_items_and_each_end_is_told_once() {
        let items: Vec<u64> = (0..100).collect();
        for threads in [0, 1, 3] {
            let mut told = Vec::new();
            let squares = over(
                threads,
                &items,
                |item| Ok::<u64, String>(item * item),
                |done, _| told.push(done),
            );
            let wanted: Vec<u64> = items.iter().map(|item| item * item).collect();
            assert_eq!(squares, Ok(wanted));
            assert_eq!(told, (1..=100).collect::<Vec<_>>());
        }
        let none: Result<Vec<u64>, String> = over(2, &[], |item: &u64| Ok(*item), |_, _| {});
        assert_eq!(none, Ok(Vec::new()));
    }

    #[test]
    fn after_a_failure_nothing_more_is_begun_and_the_first_is_told() {
        let items: Vec<u64> = (0..100).collect();
        let mut ends = 0;
        let work = |item: &u64| match item {
            7.. => Err(format!("{item} failed")),
            item => Ok(*item),
        };
        let found = over(1, &items, work, |_, _| ends += 1);
        assert_eq!(found, Err("7 failed".into()));
        assert_eq!(ends, 8);
    }
}
