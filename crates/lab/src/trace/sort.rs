//! Requests in the order of time, whatever their number: runs sorted in memory, spilled to a temporary file,
//! merged.
//!
//! Requests of the same time keep the order in which they came. Memory is one run and a small buffer for
//! each spilled run. The file is unlinked before it is written, so nothing is left behind however the
//! process ends.

use super::{Item, Op, Request, Requests, TraceError};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::vec::IntoIter;

/// Requests sorted in memory at a time: 40 MiB.
const RUN: usize = 1 << 20;
const RECORD_BYTES: usize = 29;
/// Records that the merge reads of a run at a time.
const BATCH: usize = 2048;

/// Puts requests into the order of time. Nothing is read before the first request is asked for.
pub struct Sorted {
    input: Option<Requests>,
    run: usize,
    output: Output,
}

enum Output {
    Memory(IntoIter<Request>),
    Merge(Merge),
}

impl Sorted {
    pub fn new(input: Requests) -> Sorted {
        Sorted::with_run(input, RUN)
    }

    fn with_run(input: Requests, run: usize) -> Sorted {
        Sorted {
            input: Some(input),
            run,
            output: Output::Memory(Vec::new().into_iter()),
        }
    }

    fn sort(&mut self, input: Requests) -> Result<(), TraceError> {
        let mut spill: Option<Spill> = None;
        let mut run = Vec::new();
        for request in input {
            run.push(request?);
            if run.len() == self.run {
                run.sort_by_key(|request: &Request| request.time);
                let mut file = match spill.take() {
                    Some(spill) => spill,
                    None => Spill::new()?,
                };
                file.write(&run)?;
                run.clear();
                spill = Some(file);
            }
        }
        run.sort_by_key(|request| request.time);
        self.output = match spill {
            None => Output::Memory(run.into_iter()),
            Some(mut spill) => {
                spill.write(&run)?;
                drop(run);
                Output::Merge(spill.merge()?)
            }
        };
        Ok(())
    }
}

impl Iterator for Sorted {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        if let Some(input) = self.input.take()
            && let Err(error) = self.sort(input)
        {
            return Some(Err(error));
        }
        match &mut self.output {
            Output::Memory(run) => run.next().map(Ok),
            Output::Merge(merge) => merge.next(),
        }
    }
}

fn failed(error: io::Error) -> TraceError {
    let reason = format!("sorting needs space for temporary files there: {error}");
    TraceError::of_file(std::env::temp_dir(), reason)
}

/// Sorted runs in one nameless file.
struct Spill {
    file: File,
    /// Where each run ends, in records.
    ends: Vec<u64>,
}

impl Spill {
    fn new() -> Result<Spill, TraceError> {
        let file = nameless().map_err(failed)?;
        let ends = Vec::new();
        Ok(Spill { file, ends })
    }

    fn write(&mut self, run: &[Request]) -> Result<(), TraceError> {
        let mut output = io::BufWriter::with_capacity(1 << 16, &self.file);
        for request in run {
            output.write_all(&encode(request)).map_err(failed)?;
        }
        output.flush().map_err(failed)?;
        drop(output);
        let before = self.ends.last().copied().unwrap_or(0);
        self.ends.push(before + run.len() as u64);
        Ok(())
    }

    fn merge(self) -> Result<Merge, TraceError> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let runs = starts.zip(&self.ends).map(|(next, end)| Run {
            next,
            end: *end,
            batch: Vec::new().into_iter(),
        });
        let mut merge = Merge {
            runs: runs.collect(),
            file: self.file,
            heads: BinaryHeap::new(),
        };
        for index in 0..merge.runs.len() {
            merge.advance(index)?;
        }
        Ok(merge)
    }
}

/// A file of ours in the temporary folder that no longer has a name.
fn nameless() -> io::Result<File> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("restripe-sort-{}-{count}", std::process::id());
    let path: PathBuf = std::env::temp_dir().join(name);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

struct Run {
    next: u64,
    end: u64,
    batch: IntoIter<Request>,
}

struct Merge {
    file: File,
    runs: Vec<Run>,
    /// The first request of each run that has one left, by time, then by run: runs came in order.
    heads: BinaryHeap<Reverse<Head>>,
}

struct Head {
    run: usize,
    request: Request,
}

impl Head {
    fn key(&self) -> (u64, usize) {
        (self.request.time, self.run)
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Head) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Head {}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Head {
    fn cmp(&self, other: &Head) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl Merge {
    /// Puts the next request of a run among the heads.
    fn advance(&mut self, index: usize) -> Result<(), TraceError> {
        let run = &mut self.runs[index];
        if run.batch.len() == 0 {
            let count = (run.end - run.next).min(BATCH as u64) as usize;
            let mut bytes = vec![0; count * RECORD_BYTES];
            let at = run.next * RECORD_BYTES as u64;
            self.file.read_exact_at(&mut bytes, at).map_err(failed)?;
            let records = bytes.as_chunks().0.iter().map(decode);
            run.batch = records.collect::<Vec<_>>().into_iter();
            run.next += count as u64;
        }
        if let Some(request) = run.batch.next() {
            let run = index;
            self.heads.push(Reverse(Head { run, request }));
        }
        Ok(())
    }

    fn next(&mut self) -> Option<Item> {
        let Reverse(Head { run, request }) = self.heads.pop()?;
        Some(self.advance(run).map(|()| request))
    }
}

fn encode(request: &Request) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    record[..8].copy_from_slice(&request.time.to_le_bytes());
    record[8..16].copy_from_slice(&request.offset.to_le_bytes());
    record[16..24].copy_from_slice(&request.length.to_le_bytes());
    record[24..28].copy_from_slice(&request.device.to_le_bytes());
    record[28] = request.op as u8;
    record
}

fn decode(record: &[u8; RECORD_BYTES]) -> Request {
    let long = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().expect("eight bytes"));
    Request {
        time: long(0),
        offset: long(8),
        length: long(16),
        device: u32::from_le_bytes(record[24..28].try_into().expect("four bytes")),
        op: match record[28] {
            0 => Op::Read,
            1 => Op::Write,
            2 => Op::Discard,
            _ => Op::Flush,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shuffled(count: u64) -> Vec<Request> {
        let ops = [Op::Read, Op::Write, Op::Discard, Op::Flush];
        let made = |index: u64| {
            let (device, op) = ((index % 3) as u32, ops[(index % 4) as usize]);
            Request::new(index * 7919 % 97, device, op, index << 40, index)
        };
        (0..count).map(made).collect()
    }

    #[test]
    fn spilled_runs_merge_into_what_a_stable_sort_gives() {
        for (count, run) in [(0, 4), (3, 4), (4, 4), (1000, 64), (5000, 3000)] {
            let mut expected = shuffled(count);
            let input = Box::new(expected.clone().into_iter().map(Ok));
            let found: Vec<Request> = Sorted::with_run(input, run).map(Result::unwrap).collect();
            expected.sort_by_key(|request| request.time);
            assert_eq!(found, expected, "{count} in runs of {run}");
        }
    }
}
