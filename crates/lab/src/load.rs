//! Verified mixed load over NBD: every byte that is read is compared with the load's own record of its
//! writes.
//!
//! The area is divided into pieces of a few blocks, which are assigned to the workers in rotation. So
//! neighbours in a row belong to different workers and their requests meet in the array, while each block
//! has one owner with an exact record of its contents. A worker has one connection and one request at a
//! time.
//!
//! A daemon may be killed at any moment. Acknowledged writes must then be present. The one write that was
//! not acknowledged may have been done for some of its sectors. On its new connection the owner first reads
//! those blocks, accepts only the old or the new contents, and rewrites them.

use crate::latency::{Op, Sample};
use crate::nbd::{Address, Client, Error};
use crate::pattern::{self, BLOCK_BYTES, SECTOR_BYTES};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Bytes of one request while the whole area is written or read in order.
const STREAM_BLOCKS: u64 = 256;
/// A worker gives up after so many failures: one is already one too many.
const FAILURES_MAX: usize = 8;
/// Between two attempts to connect to a daemon that is not there.
const RECONNECT_PAUSE: Duration = Duration::from_millis(5);

#[derive(Clone, Debug)]
pub struct Spec {
    pub address: Address,
    pub export: String,
    pub seed: u64,
    /// The area under load, from the start of the export.
    pub blocks: u64,
    pub workers: u64,
    /// Blocks in a plot, and so in the largest request.
    pub plot_blocks: u64,
    /// Of a hundred requests.
    pub reads: u64,
    /// A request unanswered for this long is a failure; so is a daemon away for this long.
    pub patience: Duration,
}

impl Spec {
    fn connect(&self) -> io::Result<Client> {
        Client::connect(&self.address, &self.export, self.patience)
    }
}

/// What every block of the area holds: its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    versions: Vec<u32>,
}

impl Ledger {
    /// The record of an area never written.
    pub fn blank(blocks: u64) -> Ledger {
        let versions = vec![0; index(blocks)];
        Ledger { versions }
    }

    pub fn bytes(&self) -> u64 {
        self.versions.len() as u64 * BLOCK_BYTES as u64
    }
}

/// A broken promise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// A block does not hold what was written to it.
    Wrong {
        block: u64,
        expected: u32,
        found: String,
    },
    /// A request was answered with an error.
    Refused { op: Op, block: u64, errno: u32 },
    /// The server is away, or silent.
    Unreachable { why: String },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Wrong {
                block,
                expected: version,
                found,
            } => {
                write!(
                    f,
                    "block {block} (4 KiB) should hold version {version} and holds {found}"
                )
            }
            Failure::Refused { op, block, errno } => {
                write!(f, "{op} at block {block} failed with error {errno}")
            }
            Failure::Unreachable { why } => write!(f, "the server cannot be reached: {why}"),
        }
    }
}

/// What the workers tell while they run.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Stop without settling what is in doubt: the server is not coming back.
    abandon: AtomicBool,
    requests: AtomicU64,
    failures: AtomicU64,
}

/// A load under way.
pub struct Load {
    shared: Arc<Shared>,
    epoch: Instant,
    workers: Vec<JoinHandle<Worker>>,
}

/// What a load leaves.
pub struct Outcome {
    pub ledger: Ledger,
    pub samples: Vec<Sample>,
    pub failures: Vec<Failure>,
    /// The longest time that a worker was without a connection.
    pub longest_outage: Duration,
}

impl Load {
    pub fn start(spec: &Spec, ledger: Ledger) -> io::Result<Load> {
        let covered = ledger.versions.len() as u64;
        assert_eq!(covered, spec.blocks, "the record covers the area");
        let busy = spec.workers > 0 && spec.plot_blocks > 0;
        assert!(busy, "somebody has something to do");
        let shared = Arc::new(Shared::default());
        let epoch = Instant::now();
        let mut workers = Vec::new();
        for number in 0..spec.workers {
            let worker = Worker::new(spec, number, &ledger, Arc::clone(&shared), epoch);
            let named = thread::Builder::new().name(format!("load {number}"));
            workers.push(named.spawn(move || worker.run())?);
        }
        Ok(Load {
            shared,
            epoch,
            workers,
        })
    }

    /// Microseconds since the load began: the time of its samples.
    pub fn now_us(&self) -> u64 {
        micros(self.epoch.elapsed())
    }

    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    pub fn failures(&self) -> u64 {
        self.shared.failures.load(Ordering::Relaxed)
    }

    /// Ends a load whose server is not coming back: what went wrong so far.
    pub fn abandon(self) -> Vec<Failure> {
        self.shared.abandon.store(true, Ordering::SeqCst);
        self.finish().failures
    }

    /// Lets every worker end its request, and gathers what they know.
    pub fn finish(self) -> Outcome {
        self.shared.stop.store(true, Ordering::SeqCst);
        let mut blocks = BTreeMap::new();
        let (mut samples, mut failures) = (Vec::new(), Vec::new());
        let mut longest_outage = Duration::ZERO;
        for worker in self.workers {
            let ended = worker.join();
            let worker = ended.expect("a worker reports what goes wrong and does not panic");
            longest_outage = longest_outage.max(worker.longest_outage);
            blocks.extend(worker.owned_versions());
            samples.extend(worker.samples);
            failures.extend(worker.failures);
        }
        samples.sort_by_key(|sample: &Sample| sample.at_us);
        let versions = blocks.into_values().collect();
        let ledger = Ledger { versions };
        Outcome {
            ledger,
            samples,
            failures,
            longest_outage,
        }
    }
}

// ------------------------------------------------------------------------------------------------------- a worker

/// The versions that a block may hold: `low` was acknowledged, everything after it up to `high` was only sent.
#[derive(Clone, Copy)]
struct Block {
    low: u32,
    high: u32,
}

struct Worker {
    spec: Spec,
    number: u64,
    shared: Arc<Shared>,
    epoch: Instant,
    random: u64,
    /// By the worker's own numbering; see [`Worker::place`].
    blocks: Vec<Block>,
    buffer: Vec<u8>,
    expected: Vec<u8>,
    samples: Vec<Sample>,
    failures: Vec<Failure>,
    unreachable: bool,
    longest_outage: Duration,
}

/// A run of blocks within one plot, by the worker's own numbering.
#[derive(Clone, Copy)]
struct Run {
    first: u64,
    count: u64,
}

impl Worker {
    fn new(spec: &Spec, number: u64, ledger: &Ledger, shared: Arc<Shared>, epoch: Instant) -> Self {
        let mut worker = Worker {
            spec: spec.clone(),
            number,
            shared,
            epoch,
            random: pattern::mix(spec.seed ^ pattern::mix(number)),
            blocks: Vec::new(),
            buffer: vec![0; index(spec.plot_blocks) * BLOCK_BYTES],
            expected: vec![0; BLOCK_BYTES],
            samples: Vec::new(),
            failures: Vec::new(),
            unreachable: false,
            longest_outage: Duration::ZERO,
        };
        let version = |own| ledger.versions.get(index(worker.place(own))).copied();
        let versions = (0..).map_while(version);
        worker.blocks = versions
            .map(|version| Block {
                low: version,
                high: version,
            })
            .collect();
        worker
    }

    /// Where in the area the worker's own block of this number lies. Grows with the number.
    fn place(&self, own: u64) -> u64 {
        let (plot, within) = (own / self.spec.plot_blocks, own % self.spec.plot_blocks);
        (plot * self.spec.workers + self.number) * self.spec.plot_blocks + within
    }

    fn owned_versions(&self) -> Vec<(u64, u32)> {
        let numbered = (0..).zip(&self.blocks);
        numbered
            .map(|(own, block)| (self.place(own), block.low))
            .collect()
    }

    fn run(mut self) -> Worker {
        let mut lost_at = None;
        while !self.ended() && !self.blocks.is_empty() {
            let Some(mut client) = self.connect() else {
                break;
            };
            if let Some(moment) = lost_at {
                self.longest_outage = self.longest_outage.max(Instant::elapsed(&moment));
            }
            match self.session(&mut client) {
                // The connection is lost: try again.
                Err(Error::Connection(_)) => lost_at = Some(Instant::now()),
                _ => client.close(),
            }
        }
        self
    }

    fn ended(&self) -> bool {
        let doubts = self.blocks.iter().any(|block| block.low != block.high);
        let settled = self.shared.stop.load(Ordering::SeqCst) && !doubts;
        settled || self.unreachable || self.abandoned() || self.failures.len() >= FAILURES_MAX
    }

    fn abandoned(&self) -> bool {
        self.shared.abandon.load(Ordering::SeqCst)
    }

    fn fail(&mut self, failure: Failure) {
        self.shared.failures.fetch_add(1, Ordering::Relaxed);
        self.failures.push(failure);
    }

    /// Connects, again and again while the daemon is away; gives up after the patience.
    fn connect(&mut self) -> Option<Client> {
        let deadline = Instant::now() + self.spec.patience;
        loop {
            match self.spec.connect() {
                Ok(client) => return Some(client),
                Err(_) if self.abandoned() => return None,
                Err(error) if Instant::now() >= deadline => {
                    self.unreachable = true;
                    let why = error.to_string();
                    self.fail(Failure::Unreachable { why });
                    return None;
                }
                Err(_) => thread::sleep(RECONNECT_PAUSE),
            }
        }
    }

    /// Works over one connection until it is lost or the load ends.
    fn session(&mut self, client: &mut Client) -> Result<(), Error> {
        self.settle(client)?;
        while !self.ended() {
            let draw = self.draw(100);
            let run = self.draw_run();
            if draw < self.spec.reads {
                self.read(client, run)?;
            } else if draw == 99 {
                self.flush(client)?;
            } else {
                self.write(client, run)?;
            }
            self.shared.requests.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Looks at what a lost connection left in doubt, and writes it afresh.
    fn settle(&mut self, client: &mut Client) -> Result<(), Error> {
        for first in 0..self.blocks.len() as u64 {
            let block = self.blocks[index(first)];
            if block.low != block.high {
                let run = Run { first, count: 1 };
                self.read(client, run)?;
                self.write(client, run)?;
            }
        }
        Ok(())
    }

    fn read(&mut self, client: &mut Client, run: Run) -> Result<(), Error> {
        let bytes = index(run.count) * BLOCK_BYTES;
        let place = self.place(run.first);
        let began = Instant::now();
        let result = client.read(place * BLOCK_BYTES as u64, &mut self.buffer[..bytes]);
        if self.answered(Op::Read, run, began, result)? {
            for nth in 0..run.count {
                self.check(run.first + nth, index(nth));
            }
        }
        Ok(())
    }

    fn write(&mut self, client: &mut Client, run: Run) -> Result<(), Error> {
        for nth in 0..run.count {
            let own = index(run.first + nth);
            let place = self.place(run.first + nth);
            self.blocks[own].high += 1;
            let bytes = &mut self.buffer[index(nth) * BLOCK_BYTES..][..BLOCK_BYTES];
            pattern::fill(self.spec.seed, place, self.blocks[own].high, bytes);
        }
        let (place, fua) = (self.place(run.first), self.draw(16) == 0);
        let bytes = index(run.count) * BLOCK_BYTES;
        let began = Instant::now();
        let result = client.write(place * BLOCK_BYTES as u64, &self.buffer[..bytes], fua);
        if self.answered(Op::Write, run, began, result)? {
            for block in &mut self.blocks[index(run.first)..index(run.first + run.count)] {
                block.low = block.high;
            }
        }
        Ok(())
    }

    fn flush(&mut self, client: &mut Client) -> Result<(), Error> {
        let began = Instant::now();
        let (result, run) = (client.flush(), Run { first: 0, count: 0 });
        self.answered(Op::Flush, run, began, result).map(|_| ())
    }

    /// Notes how a request went; true if it succeeded.
    fn answered(
        &mut self,
        op: Op,
        run: Run,
        began: Instant,
        result: Result<(), Error>,
    ) -> Result<bool, Error> {
        match result {
            Ok(()) => {
                let latency_us = u32::try_from(micros(began.elapsed())).unwrap_or(u32::MAX);
                let bytes = u32::try_from(run.count * BLOCK_BYTES as u64).unwrap_or(u32::MAX);
                self.samples.push(Sample {
                    at_us: micros(self.epoch.elapsed()),
                    latency_us,
                    bytes,
                    op,
                });
                Ok(true)
            }
            Err(Error::Refused(errno)) => {
                let block = self.place(run.first);
                self.fail(Failure::Refused { op, block, errno });
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Compares the `nth` block of the buffer with what the worker's own block `own` may hold.
    fn check(&mut self, own: u64, nth: usize) {
        let found = &self.buffer[nth * BLOCK_BYTES..][..BLOCK_BYTES];
        let (block, versions) = (self.place(own), self.blocks[index(own)]);
        let wrong = wrong(self.spec.seed, block, versions, found, &mut self.expected);
        if let Some(failure) = wrong {
            self.fail(failure);
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        pattern::mix(self.random) % below
    }

    /// Half of the runs are one block, the others any length that the plot holds.
    fn draw_run(&mut self) -> Run {
        let blocks = self.blocks.len() as u64;
        let first = self.draw(blocks);
        let room = (self.spec.plot_blocks - first % self.spec.plot_blocks).min(blocks - first);
        let more = if self.draw(2) == 0 {
            0
        } else {
            self.draw(room)
        };
        Run {
            first,
            count: 1 + more,
        }
    }
}

/// What is wrong with what was found in a block that may hold these versions.
fn wrong(seed: u64, block: u64, may: Block, found: &[u8], scratch: &mut [u8]) -> Option<Failure> {
    if matches(seed, block, may.low, may.high, found, scratch) {
        return None;
    }
    let found = describe(seed, block, may.high, found, scratch);
    Some(Failure::Wrong {
        block,
        expected: may.low,
        found,
    })
}

/// Whether every sector of a block holds one of the versions from `low` to `high`.
fn matches(seed: u64, block: u64, low: u32, high: u32, found: &[u8], scratch: &mut [u8]) -> bool {
    let mut good = [false; BLOCK_BYTES / SECTOR_BYTES];
    for version in low..=high {
        pattern::fill(seed, block, version, scratch);
        let sectors = found.chunks(SECTOR_BYTES).zip(scratch.chunks(SECTOR_BYTES));
        for (good, (found, expected)) in good.iter_mut().zip(sectors) {
            *good |= found == expected;
        }
    }
    good.iter().all(|good| *good)
}

/// What wrong bytes are, as far as that can be told: it shows at once whether a write was lost, torn or made up.
fn describe(seed: u64, block: u64, high: u32, found: &[u8], scratch: &mut [u8]) -> String {
    if found.iter().all(|byte| *byte == 0) {
        return "zeros".into();
    }
    let mut sectors = vec!["?".to_string(); found.len() / SECTOR_BYTES];
    for version in 0..=high {
        pattern::fill(seed, block, version, scratch);
        let pairs = found.chunks(SECTOR_BYTES).zip(scratch.chunks(SECTOR_BYTES));
        for (name, (found, expected)) in sectors.iter_mut().zip(pairs) {
            if found == expected {
                *name = version.to_string();
            }
        }
    }
    format!("versions {} by sector", sectors.join(" "))
}

// ------------------------------------------------------------------------------------------------ the whole area

/// Writes the whole area in order, in large requests: version 1 everywhere.
pub fn fill_all(spec: &Spec) -> Result<Ledger, Error> {
    let mut client = spec.connect()?;
    let mut bytes = vec![0; index(STREAM_BLOCKS) * BLOCK_BYTES];
    for first in (0..spec.blocks).step_by(index(STREAM_BLOCKS)) {
        let count = STREAM_BLOCKS.min(spec.blocks - first);
        for (block, bytes) in (first..first + count).zip(bytes.chunks_mut(BLOCK_BYTES)) {
            pattern::fill(spec.seed, block, 1, bytes);
        }
        let bytes = &bytes[..index(count) * BLOCK_BYTES];
        client.write(first * BLOCK_BYTES as u64, bytes, false)?;
    }
    client.flush()?;
    client.close();
    let versions = vec![1; index(spec.blocks)];
    Ok(Ledger { versions })
}

/// Reads the whole area in order and compares it with the record. Lists the first few differences.
pub fn verify_all(spec: &Spec, ledger: &Ledger) -> Result<Vec<Failure>, Error> {
    let mut client = spec.connect()?;
    let mut failures = Vec::new();
    let mut bytes = vec![0; index(STREAM_BLOCKS) * BLOCK_BYTES];
    let mut expected = vec![0; BLOCK_BYTES];
    for first in (0..spec.blocks).step_by(index(STREAM_BLOCKS)) {
        let count = STREAM_BLOCKS.min(spec.blocks - first);
        let bytes = &mut bytes[..index(count) * BLOCK_BYTES];
        client.read(first * BLOCK_BYTES as u64, bytes)?;
        for (block, found) in (first..).zip(bytes.chunks(BLOCK_BYTES)) {
            let version = ledger.versions[index(block)];
            let only = Block {
                low: version,
                high: version,
            };
            failures.extend(wrong(spec.seed, block, only, found, &mut expected));
        }
        if failures.len() >= FAILURES_MAX {
            break;
        }
    }
    client.close();
    Ok(failures)
}

/// A number of blocks of memory that is there: it fits.
fn index(blocks: u64) -> usize {
    usize::try_from(blocks).expect("the record is in memory, so its indices fit")
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbd::testing::{Medium, serve};
    use std::sync::Mutex;

    const BLOCKS: u64 = 200;

    fn area(name: &str) -> (Spec, Arc<Mutex<Medium>>) {
        let medium = Medium::of_bytes(index(BLOCKS) * BLOCK_BYTES);
        let spec = Spec {
            address: serve(name, Arc::clone(&medium)),
            export: String::new(),
            seed: 7,
            blocks: BLOCKS,
            workers: 3,
            plot_blocks: 4,
            reads: 50,
            patience: Duration::from_secs(20),
        };
        (spec, medium)
    }

    fn run_for(spec: &Spec, ledger: Ledger, requests: u64) -> Outcome {
        let load = Load::start(spec, ledger).expect("threads");
        while load.requests() < requests && load.failures() == 0 {
            thread::yield_now();
        }
        load.finish()
    }

    #[test]
    fn a_faithful_server_passes() {
        let (spec, _medium) = area("faithful");
        let ledger = fill_all(&spec).expect("it takes it");
        let outcome = run_for(&spec, ledger, 2000);
        assert_eq!(outcome.failures, []);
        assert!(outcome.samples.len() >= 2000);
        assert!(outcome.samples.is_sorted_by_key(|sample| sample.at_us));
        assert_eq!(verify_all(&spec, &outcome.ledger).expect("it reads"), []);
    }

    #[test]
    fn one_wrong_byte_is_found_and_named() {
        let (spec, medium) = area("wrong");
        let ledger = fill_all(&spec).expect("it takes it");
        medium.lock().expect("free").bytes[5 * BLOCK_BYTES + 700] ^= 1;
        let failures = verify_all(&spec, &ledger).expect("it reads");
        let wrong =
            "block 5 (4 KiB) should hold version 1 and holds versions 1 ? 1 1 1 1 1 1 by sector";
        assert_eq!(failures.len(), 1);
        assert_eq!(failures[0].to_string(), wrong);
    }

    #[test]
    fn a_lost_write_is_found_under_load() {
        let (spec, medium) = area("lost");
        let ledger = fill_all(&spec).expect("it takes it");
        medium.lock().expect("free").bytes[..index(BLOCKS) * BLOCK_BYTES].fill(0);
        let outcome = run_for(&spec, ledger, 100_000);
        let lost =
            |failure: &Failure| matches!(failure, Failure::Wrong { found, .. } if found == "zeros");
        assert!(outcome.failures.iter().any(lost), "{:?}", outcome.failures);
    }

    #[test]
    fn an_error_reply_is_a_failure() {
        let (spec, medium) = area("error");
        medium.lock().expect("free").refuse = Some(5);
        let outcome = run_for(&spec, Ledger::blank(BLOCKS), 1);
        let refused = |failure: &Failure| matches!(failure, Failure::Refused { errno: 5, .. });
        assert!(refused(&outcome.failures[0]));
    }

    #[test]
    fn a_connection_lost_in_the_middle_leaves_no_doubt() {
        let (spec, medium) = area("cut");
        let ledger = fill_all(&spec).expect("it takes it");
        let load = Load::start(&spec, ledger).expect("threads");
        for round in 1..20 {
            medium.lock().expect("free").requests_left = Some(17);
            while load.requests() < round * 100 && load.failures() == 0 {
                thread::yield_now();
            }
        }
        let outcome = load.finish();
        assert_eq!(outcome.failures, []);
        assert_eq!(verify_all(&spec, &outcome.ledger).expect("it reads"), []);
    }
}
