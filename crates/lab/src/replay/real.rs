//! A replay on a real array: over NBD, or in this process by its reactor. Real time, real data.
//!
//! Every worker has its own connection. It takes the next request from the one source, waits for its time
//! (open loop), submits it, and records its duration. If all workers are busy, requests wait, and their wait
//! counts.

use super::Pace;
use super::facts::Log;
use super::record::{Answer, Reading, Recorder};
use super::stage::REQUEST_BYTES_MAX;
use crate::nbd::{Address, Client, Error};
use crate::trace::{Item, Op, Request};
use restripe_io::remote::{LocalClient, LocalError};
use std::sync::Mutex;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

/// The longest wait for a single answer.
const PATIENCE: Duration = Duration::from_secs(120);
/// Connections of an open loop: requests outstanding at most.
const WORKERS: u32 = 32;
/// What is written: this byte. A replay is about times and counts, not about data.
const FILLER: u8 = 0x5a;

/// Somebody who makes requests and waits for each.
pub trait Target: Send {
    /// Whether the array did it; an error if the array is gone.
    fn perform(&mut self, request: &Request, buffer: &mut [u8]) -> Result<bool, String>;
    fn size_bytes(&self) -> u64;
}

/// Where targets come from, and what the array counts where it tells.
pub trait Connect: Sync {
    fn connect(&self) -> Result<Box<dyn Target>, String>;

    fn reading(&self) -> Reading {
        Reading::default()
    }
}

// ----------------------------------------------------------------------------------------------------------- worlds

/// An export of an NBD server.
#[derive(Clone, Debug)]
pub struct Remote {
    pub address: Address,
    pub export: String,
}

impl Connect for Remote {
    fn connect(&self) -> Result<Box<dyn Target>, String> {
        let client = Client::connect(&self.address, &self.export, PATIENCE);
        Ok(Box::new(client.map_err(|error| error.to_string())?))
    }
}

impl Target for Client {
    fn perform(&mut self, request: &Request, buffer: &mut [u8]) -> Result<bool, String> {
        let result = match request.op {
            Op::Read => self.read(request.offset, buffer),
            Op::Write => self.write(request.offset, buffer, false),
            Op::Discard => self.trim(request.offset, buffer.len() as u32),
            Op::Flush => self.flush(),
        };
        match result {
            Ok(()) => Ok(true),
            Err(Error::Refused(_)) => Ok(false),
            Err(error @ Error::Connection(_)) => Err(error.to_string()),
        }
    }

    fn size_bytes(&self) -> u64 {
        Client::size_bytes(self)
    }
}

/// The array of this number, of a reactor of this process.
pub struct Local {
    pub remote: restripe_io::Remote,
    pub array: usize,
}

struct LocalTarget {
    client: LocalClient,
    size_bytes: u64,
}

impl Connect for Local {
    fn connect(&self) -> Result<Box<dyn Target>, String> {
        let status = self
            .remote
            .status(self.array)
            .map_err(|ended| ended.to_string())?;
        Ok(Box::new(LocalTarget {
            client: self.remote.client(self.array),
            size_bytes: status.ok_or("there is no such array")?.size_bytes,
        }))
    }

    fn reading(&self) -> Reading {
        let status = self.remote.status(self.array).ok().flatten();
        Reading {
            counters: status.map(|status| status.counters).unwrap_or_default(),
            ..Reading::default()
        }
    }
}

impl Target for LocalTarget {
    fn perform(&mut self, request: &Request, buffer: &mut [u8]) -> Result<bool, String> {
        let data = match request.op {
            Op::Write => buffer.to_vec(),
            _ => Vec::new(),
        };
        let result = match request.op {
            Op::Read => self.client.read(request.offset, request.length).map(drop),
            Op::Write => self.client.write(request.offset, data, false),
            Op::Discard => self.client.trim(request.offset, request.length),
            Op::Flush => self.client.flush(),
        };
        match result {
            Ok(()) => Ok(true),
            Err(LocalError::Request(_)) => Ok(false),
            Err(LocalError::Ended) => Err("the array's reactor has ended".into()),
        }
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
}

// ----------------------------------------------------------------------------------------------------------- replay

struct Shared<S> {
    source: Mutex<(S, Option<u64>)>,
    pace: Pace,
    start: Instant,
}

/// Replays requests until there are no more.
pub fn replay<S>(world: &dyn Connect, source: S, pace: Pace, step_ns: u64) -> Result<Log, String>
where
    S: Iterator<Item = Item> + Send,
{
    let workers = match pace {
        Pace::Open { .. } => WORKERS,
        Pace::Closed { depth } => depth.max(1),
    };
    let targets: Result<Vec<Box<dyn Target>>, String> =
        (0..workers).map(|_| world.connect()).collect();
    let targets = targets?;
    let mut recorder = Recorder::new(step_ns);
    recorder.begin("all", 0, world.reading());
    let shared = Shared {
        source: Mutex::new((source, None)),
        pace,
        start: Instant::now(),
    };
    let outcome: Result<(), String> = std::thread::scope(|scope| {
        let (sender, answers) = mpsc::channel();
        let (shared, mut threads) = (&shared, Vec::new());
        for target in targets {
            let sender = sender.clone();
            threads.push(scope.spawn(move || work(shared, target, &sender)));
        }
        drop(sender);
        answers.iter().for_each(|answer| recorder.answer(&answer));
        let panicked = |_| "a worker panicked".to_string();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(panicked)?)
    });
    outcome?;
    let end = nanos(shared.start.elapsed());
    recorder.end(end, world.reading());
    Ok(recorder.finish(end))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A request with its time, in nanoseconds since the start; of a closed loop there is none.
struct Taken {
    request: Request,
    due_ns: Option<u64>,
}

fn take<S: Iterator<Item = Item>>(shared: &Shared<S>) -> Result<Option<Taken>, String> {
    let mut guard = shared
        .source
        .lock()
        .map_err(|_| "another worker panicked")?;
    let (source, first) = &mut *guard;
    let Some(request) = source.next() else {
        return Ok(None);
    };
    let request = request.map_err(|error| error.to_string())?;
    let due_ns = match shared.pace {
        Pace::Closed { .. } => None,
        Pace::Open { speed_milli } => {
            let since = request
                .time
                .saturating_sub(*first.get_or_insert(request.time));
            let scaled = u128::from(since) * 1000 / u128::from(speed_milli.max(1));
            Some(u64::try_from(scaled).unwrap_or(u64::MAX))
        }
    };
    Ok(Some(Taken { request, due_ns }))
}

fn work<S: Iterator<Item = Item>>(
    shared: &Shared<S>,
    mut target: Box<dyn Target>,
    answers: &Sender<Answer>,
) -> Result<(), String> {
    let mut buffer = vec![FILLER; REQUEST_BYTES_MAX as usize];
    while let Some(Taken { request, due_ns }) = take(shared)? {
        let taken = nanos(shared.start.elapsed());
        let due = due_ns.unwrap_or(taken);
        if due > taken {
            std::thread::sleep(Duration::from_nanos(due - taken));
        }
        let part = &mut buffer[..usize::try_from(request.length).unwrap_or(usize::MAX)];
        let ok = target.perform(&request, part)?;
        if request.op == Op::Read {
            // What was read must not be what is written next.
            part.fill(FILLER);
        }
        let at_ns = nanos(shared.start.elapsed());
        let answer = Answer {
            at_ns,
            took_ns: at_ns.saturating_sub(due),
            bytes: request.length,
            writes: request.op != Op::Read,
            ok,
            // The kernel's timers are no better than this.
            held: due_ns.is_some() && taken > due + 1_000_000,
            // An array behind its door tells nobody.
            moved: false,
        };
        if answers.send(answer).is_err() {
            return Ok(());
        }
    }
    Ok(())
}
