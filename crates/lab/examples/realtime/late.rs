//! How busy the machine is: how long after its time a thread runs that wants next to nothing of it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const SLEEP: Duration = Duration::from_millis(2);

/// Times by which a thread that slept was late, in order.
pub struct Late(Vec<Duration>);

/// Does something, and watches meanwhile.
pub fn watched<T>(work: impl FnOnce() -> T) -> (T, Late) {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let watching = scope.spawn(|| watch(&ended));
        let result = work();
        ended.store(true, Ordering::Relaxed);
        let mut late = watching.join().expect("it only sleeps");
        late.sort_unstable();
        (result, Late(late))
    })
}

fn watch(ended: &AtomicBool) -> Vec<Duration> {
    let mut late = Vec::new();
    while !ended.load(Ordering::Relaxed) {
        let from = Instant::now();
        thread::sleep(SLEEP);
        late.push(from.elapsed().saturating_sub(SLEEP));
    }
    late
}

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |thousandths: usize| self.0.get(self.0.len() * thousandths / 1000);
        let ms = |thousandths| at(thousandths).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3);
        write!(
            f,
            "threads run late by {:.2} ms in the median, {:.2} ms at the 99th percentile, {:.2} ms at 99.9",
            ms(500),
            ms(990),
            ms(999)
        )
    }
}
