//! From answers to the log of facts: histograms by phase, the course in steps.

use super::facts::{Happened, Labour, Log, Phase, Rebuild, Step};
use super::histogram::Histogram;
use restripe_array::report::Counters;

/// An answered request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// When the answer came.
    pub at_ns: u64,
    pub took_ns: u64,
    pub bytes: u64,
    pub writes: bool,
    pub ok: bool,
    /// It waited before the array because too many were outstanding.
    pub held: bool,
    /// A surrogate took it, or served it alone.
    pub moved: bool,
}

/// What an array counts; a phase's share is the difference of two.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reading {
    pub counters: Counters,
    /// Writes that the array's surrogate took, and reads that it served alone.
    pub redirected: [u64; 2],
    pub busy_ns: Vec<u64>,
    pub labour: Vec<Labour>,
}

#[derive(Default)]
struct Times {
    all: Histogram,
    reads: Histogram,
    writes: Histogram,
    moved: Histogram,
}

pub struct Recorder {
    log: Log,
    phase: Phase,
    reading: Reading,
    times: Times,
    step: Histogram,
    step_bytes: u64,
    step_from: u64,
}

impl Recorder {
    pub fn new(step_ns: u64) -> Recorder {
        assert!(step_ns > 0, "time goes on");
        Recorder {
            log: Log {
                step_ns,
                ..Log::default()
            },
            phase: Phase::default(),
            reading: Reading::default(),
            times: Times::default(),
            step: Histogram::default(),
            step_bytes: 0,
            step_from: 0,
        }
    }

    /// A phase begins at a moment at which the array has counted this much.
    pub fn begin(&mut self, name: &str, at_ns: u64, reading: Reading) {
        self.phase = Phase {
            name: name.into(),
            from_ns: at_ns,
            ..Phase::default()
        };
        self.reading = reading;
        if self.log.phases.is_empty() {
            self.step_from = at_ns;
        }
    }

    pub fn answer(&mut self, answer: &Answer) {
        self.steps_until(answer.at_ns);
        self.phase.held += u64::from(answer.held);
        if !answer.ok {
            self.phase.failed += 1;
            return;
        }
        self.phase.bytes += answer.bytes;
        self.times.all.add(answer.took_ns);
        match answer.writes {
            true => self.times.writes.add(answer.took_ns),
            false => self.times.reads.add(answer.took_ns),
        }
        if answer.moved {
            self.times.moved.add(answer.took_ns);
        }
        self.step.add(answer.took_ns);
        self.step_bytes += answer.bytes;
    }

    pub fn end(&mut self, at_ns: u64, reading: Reading) {
        let mut phase = std::mem::take(&mut self.phase);
        phase.to_ns = at_ns;
        phase.times = self.times.all.times();
        phase.read_times = self.times.reads.times();
        phase.write_times = self.times.writes.times();
        phase.histogram = self.times.all.buckets();
        phase.moved_histogram = self.times.moved.buckets();
        let (new, old) = (&reading.counters, &self.reading.counters);
        for cause in 0..phase.ios.len() {
            phase.ios[cause] = new.ios[cause].saturating_sub(old.ios[cause]);
            phase.io_bytes[cause] = new.io_bytes[cause].saturating_sub(old.io_bytes[cause]);
        }
        let blocks = |c: &Counters| [c.blocks_asked, c.blocks_cached, c.blocks_fetched];
        let (now, then) = (blocks(new), blocks(old));
        phase.read_blocks = std::array::from_fn(|i| now[i].saturating_sub(then[i]));
        let (now, then) = (reading.redirected, self.reading.redirected);
        phase.redirected = std::array::from_fn(|i| now[i].saturating_sub(then[i]));
        let before = self.reading.busy_ns.iter().copied();
        let before = before.chain(std::iter::repeat(0));
        let busy = reading.busy_ns.iter().zip(before);
        phase.busy_ns = busy.map(|(new, old)| new.saturating_sub(old)).collect();
        let none = Labour::default();
        let before = self.reading.labour.iter().chain(std::iter::repeat(&none));
        let labour = reading.labour.iter().zip(before);
        phase.labour = labour.map(|(new, old)| new.since(old)).collect();
        self.log.phases.push(phase);
        self.times.all.clear();
        self.times.moved.clear();
        self.times.reads.clear();
        self.times.writes.clear();
    }

    pub fn happened(&mut self, at_ns: u64, what: impl Into<String>) {
        let what = what.into();
        self.log.happened.push(Happened { at_ns, what });
    }

    pub fn log(&mut self) -> &mut Log {
        &mut self.log
    }

    /// How long the phase that ended last took.
    pub fn lasted(&self) -> u64 {
        self.log.phases.last().map_or(0, Phase::length_ns)
    }

    pub fn rebuild(&self) -> Option<Rebuild> {
        self.log.rebuild
    }

    /// Closes the steps that end by `at_ns`.
    fn steps_until(&mut self, at_ns: u64) {
        while at_ns >= self.step_from + self.log.step_ns {
            self.close_step();
        }
    }

    fn close_step(&mut self) {
        let times = self.step.times();
        self.log.steps.push(Step {
            from_ns: self.step_from,
            requests: times.count,
            bytes: self.step_bytes,
            mean_ns: times.mean_ns,
            p50_ns: times.p50_ns,
            p99_ns: times.p99_ns,
            max_ns: times.max_ns,
        });
        self.step_from += self.log.step_ns;
        self.step_bytes = 0;
        self.step.clear();
    }

    /// The log, with the last step closed although it may be short.
    pub fn finish(mut self, at_ns: u64) -> Log {
        self.steps_until(at_ns);
        if at_ns > self.step_from {
            self.close_step();
        }
        self.log
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(at_ns: u64, took_ns: u64) -> Answer {
        Answer {
            at_ns,
            took_ns,
            bytes: 512,
            writes: false,
            ok: true,
            held: false,
            moved: false,
        }
    }

    #[test]
    fn phases_and_steps_part_the_answers() {
        let mut recorder = Recorder::new(100);
        recorder.begin("one", 0, Reading::default());
        recorder.answer(&answer(10, 5));
        recorder.answer(&answer(250, 7));
        let mut reading = Reading::default();
        reading.counters.ios = [3, 2, 1, 0];
        reading.busy_ns = vec![40];
        recorder.end(260, reading.clone());
        recorder.begin("two", 260, reading.clone());
        let mut failed = answer(270, 9);
        failed.ok = false;
        recorder.answer(&failed);
        reading.busy_ns = vec![45, 3];
        recorder.end(280, reading);
        let log = recorder.finish(280);
        let counts: Vec<u64> = log.steps.iter().map(|step| step.requests).collect();
        assert_eq!(counts, [1, 0, 1]);
        let [one, two] = [&log.phases[0], &log.phases[1]];
        assert_eq!((one.times.count, one.ios), (2, [3, 2, 1, 0]));
        assert_eq!((two.failed, two.times.count), (1, 0));
        assert_eq!((&two.busy_ns[..], two.ios), (&[5, 3][..], [0; 4]));
    }
}
