//! A cache alone, on a trace: the reads that it saves the members of an array, healthy or degraded.
//!
//! The measure is the request generation ratio of *Victim Disk First* (Wan et al., USENIX ATC 2011): blocks
//! read from the surviving members over blocks requested from the cache. A hit costs nothing. A miss costs
//! one read, or the number that the code needs if the block's member has failed. The rules are the code of
//! [`restripe_array::cache`].
//!
//! As in the paper, only reads are requested unless configured otherwise. A block is 4 KiB, and the trace's
//! devices follow each other on the array. The slides do not state the size of a block or of a chunk.

pub mod grid;

use crate::trace::{END_MAX, Op, Requests, TraceError};
use restripe_array::cache::{Cache, CacheConfig, Rule, Ties};
use restripe_array::layout::{Geometry, GeometryError, Layout, Level};
use restripe_array::{Row, SECTOR_BYTES, Slot};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// The array that the misses go to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Members {
    pub level: Level,
    pub count: u16,
    pub chunk_bytes: u64,
    /// Slots that have failed.
    pub failed: Vec<u16>,
}

/// A rebuild of all failed slots, row after row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rebuild {
    /// Where in the trace it begins and ends: shares of the blocks asked for.
    pub from: f64,
    pub to: f64,
    /// Whether the cache learns which rows are done. The paper's does not.
    pub followed: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Setup {
    pub members: Members,
    pub block_bytes: u64,
    /// Each is simulated by itself: a rule, and how many blocks it holds.
    pub contenders: Vec<(Rule, u32)>,
    pub ties: Ties,
    /// Blocks asked for before anything is counted.
    pub warm_up: u64,
    /// Whether written blocks are asked for too.
    pub writes: bool,
    pub rebuild: Option<Rebuild>,
    /// What the cache is told that a miss on a failed slot costs, in place of the truth; for ablations.
    pub weight: Option<u16>,
}

/// What one contender came to.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Outcome {
    pub rule: &'static str,
    pub blocks: u32,
    /// Blocks asked for.
    pub asked: u64,
    pub misses: u64,
    /// Misses of blocks whose member has failed and which were not rebuilt yet.
    pub misses_failed: u64,
    /// Blocks read from members.
    pub reads: u64,
    /// Of these, on account of blocks whose member has failed, rebuilt or not.
    pub reads_failed: u64,
    /// Blocks of failed slots that are held at the end.
    pub held_failed: u32,
}

impl Outcome {
    pub fn miss_ratio(&self) -> f64 {
        ratio(self.misses, self.asked)
    }

    /// The request generation ratio.
    pub fn rgr(&self) -> f64 {
        ratio(self.reads, self.asked)
    }

    /// The share of the reads that misses on failed slots cause: a rule that misses no less elsewhere cannot save more than
    /// that. With p of the misses on the failed slot of n, and nothing rebuilt, it is p(n-1) / ((1-p) + p(n-1)).
    pub fn bound(&self) -> f64 {
        ratio(self.reads_failed, self.reads)
    }

    /// Reads on account of blocks whose member stands.
    pub fn reads_standing(&self) -> u64 {
        self.reads - self.reads_failed
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// How long a rebuild takes, in seconds: the paper's RD = Q / (BW - BWu x RGR). `None` where users leave it nothing.
pub fn rebuild_seconds(
    bytes_to_read: f64,
    bandwidth: f64,
    user_rate: f64,
    rgr: f64,
) -> Option<f64> {
    let left = bandwidth - user_rate * rgr;
    (left > 0.0).then(|| bytes_to_read / left)
}

#[derive(Debug)]
pub enum CacheError {
    Trace(TraceError),
    Geometry(GeometryError),
    /// Blocks do not divide chunks.
    Block,
    /// No such slot.
    NoSlot(u16),
    /// The code does not reach over the failed slots.
    Undecodable,
    /// All caches together hold more blocks than are given memory.
    TooLarge {
        blocks: u64,
    },
    /// The trace reaches further than an array does.
    TooFar,
    /// The second pass met other requests than the first.
    Changed,
}

impl From<TraceError> for CacheError {
    fn from(error: TraceError) -> CacheError {
        CacheError::Trace(error)
    }
}

impl fmt::Display for CacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CacheError::Trace(error) => error.fmt(f),
            CacheError::Geometry(error) => error.fmt(f),
            CacheError::Block => f.write_str("a chunk is a whole number of cache blocks"),
            CacheError::NoSlot(slot) => write!(f, "the array has no disk {slot}"),
            CacheError::Undecodable => {
                f.write_str("with these disks failed the array has lost data")
            }
            CacheError::TooLarge { blocks } => write!(
                f,
                "the caches hold {blocks} blocks together, which takes about {} MiB of memory; at most {BLOCKS_MAX} are simulated at once",
                blocks.saturating_mul(BLOCK_COST) >> 20
            ),
            CacheError::TooFar => f.write_str("the trace reaches further than any array does"),
            CacheError::Changed => f.write_str("the trace changed while it was read"),
        }
    }
}

impl std::error::Error for CacheError {}

/// Runs every contender over the trace, in one pass after one that surveys it.
pub fn simulate(
    setup: &Setup,
    mut open: impl FnMut() -> Result<Requests, TraceError>,
) -> Result<Vec<Outcome>, CacheError> {
    bounded(&setup.contenders)?;
    let survey = Survey::of(setup, open()?)?;
    let home = Home::new(setup, &survey)?;
    let run = |&(rule, blocks): &(Rule, u32)| Run::new(setup, &home, rule, blocks);
    let mut runs: Vec<Run> = setup.contenders.iter().map(run).collect();
    let mut pace = Pace::new(setup.rebuild, survey.asked, home.layout.rows());
    let mut asked = 0;
    for request in open()? {
        let request = request?;
        let Some(blocks) = asked_for(setup, request.op, request.offset, request.length) else {
            continue;
        };
        for block in survey.on_array(request.device, blocks)? {
            let fresh = pace.at(asked);
            let place = home.of(block);
            let question = Question {
                block,
                slot: place.slot,
                reads: home.penalties[usize::from(place.slot)].into(),
                failed: home.failed[usize::from(place.slot)],
                rebuilt: place.row < pace.done,
                counted: asked >= setup.warm_up,
            };
            for run in &mut runs {
                if let Some(rows) = &fresh {
                    run.follow(&home, rows.clone());
                }
                run.ask(&question, &home);
            }
            asked += 1;
        }
    }
    if asked != survey.asked {
        return Err(CacheError::Changed);
    }
    Ok(runs.into_iter().map(|run| run.outcome).collect())
}

/// Blocks that all contenders hold together, at most: caches are whole in memory from the start.
const BLOCKS_MAX: u64 = 1 << 25;
/// Bytes that a block takes: its frame, its place in a stack, a heap and the index, and one remembered by ARC. Rounded up.
const BLOCK_COST: u64 = 160;

fn bounded(contenders: &[(Rule, u32)]) -> Result<(), CacheError> {
    let blocks = contenders.iter().map(|(_, blocks)| u64::from(*blocks));
    match blocks.sum() {
        blocks if blocks > BLOCKS_MAX => Err(CacheError::TooLarge { blocks }),
        _ => Ok(()),
    }
}

/// The blocks of a request, on its device.
fn asked_for(setup: &Setup, op: Op, offset: u64, length: u64) -> Option<Range<u64>> {
    let counts = op == Op::Read || setup.writes && op == Op::Write;
    let end = (offset + length).div_ceil(setup.block_bytes);
    (counts && length > 0).then(|| offset / setup.block_bytes..end)
}

/// What has to be known of the trace beforehand.
struct Survey {
    /// Where the blocks of each device lie on the array.
    devices: BTreeMap<u32, Range<u64>>,
    blocks: u64,
    asked: u64,
}

impl Survey {
    fn of(setup: &Setup, requests: Requests) -> Result<Survey, CacheError> {
        let mut ends: BTreeMap<u32, u64> = BTreeMap::new();
        let mut asked = 0;
        for request in requests {
            let request = request?;
            if let Some(blocks) = asked_for(setup, request.op, request.offset, request.length) {
                asked += blocks.end - blocks.start;
                let end = ends.entry(request.device).or_default();
                *end = blocks.end.max(*end);
            }
        }
        let mut blocks = 0;
        let mut devices = BTreeMap::new();
        for (device, end) in ends {
            let behind = end.checked_add(blocks).ok_or(CacheError::TooFar)?;
            devices.insert(device, blocks..behind);
            blocks = behind;
        }
        Ok(Survey {
            devices,
            blocks,
            asked,
        })
    }

    /// A device's blocks where they lie on the array.
    fn on_array(&self, device: u32, blocks: Range<u64>) -> Result<Range<u64>, CacheError> {
        let device = self.devices.get(&device).ok_or(CacheError::Changed)?;
        match blocks.end > device.end - device.start {
            true => Err(CacheError::Changed),
            false => Ok(device.start + blocks.start..device.start + blocks.end),
        }
    }
}

/// Where blocks are, and what they cost.
struct Home {
    layout: Layout,
    block_sectors: u64,
    failed: Vec<bool>,
    /// Reads that a miss costs, by slot, until its row is rebuilt: the same in every row.
    penalties: Vec<u16>,
}

/// A block's home.
struct Place {
    row: u64,
    slot: u16,
}

impl Home {
    fn new(setup: &Setup, survey: &Survey) -> Result<Home, CacheError> {
        let members = &setup.members;
        if setup.block_bytes == 0 || !members.chunk_bytes.is_multiple_of(setup.block_bytes) {
            return Err(CacheError::Block);
        }
        let layout = |chunks: u64| {
            let chunk_sectors = (members.chunk_bytes / SECTOR_BYTES).try_into().unwrap_or(0);
            Layout::new(Geometry {
                level: members.level,
                slots: members.count,
                chunk_sectors,
                slot_sectors: chunks * u64::from(chunk_sectors),
                ..Geometry::PLAIN
            })
            .map_err(CacheError::Geometry)
        };
        // A slot of as many chunks as rows, and a turn more, so that small traces meet every rotation.
        let data = layout(u64::from(members.count))?.data_cells();
        let block_sectors = setup.block_bytes / SECTOR_BYTES;
        let sectors = survey.blocks.checked_mul(block_sectors);
        let sectors = sectors.filter(|sectors| *sectors <= END_MAX / SECTOR_BYTES);
        let sectors = sectors.ok_or(CacheError::TooFar)?;
        let chunks = sectors.div_ceil(members.chunk_bytes / SECTOR_BYTES);
        let mut home = Home {
            layout: layout(chunks.div_ceil(data) + u64::from(members.count))?,
            block_sectors,
            failed: vec![false; members.count.into()],
            penalties: Vec::new(),
        };
        for &slot in &members.failed {
            let failed = home.failed.get_mut(usize::from(slot));
            *failed.ok_or(CacheError::NoSlot(slot))? = true;
        }
        home.weigh()?;
        Ok(home)
    }

    /// Learns from the layout what each slot's misses cost.
    fn weigh(&mut self) -> Result<(), CacheError> {
        let gone = |slot: Slot| self.failed[usize::from(slot.0)];
        if !self.layout.decodable_without(gone) {
            return Err(CacheError::Undecodable);
        }
        // On a slot that holds no data nothing is missed.
        let reads = |slot| self.layout.reads_without(slot, gone).unwrap_or(1);
        let slots = (0..self.layout.geometry().slots).map(Slot);
        self.penalties = slots.map(reads).collect();
        Ok(())
    }

    fn of(&self, block: u64) -> Place {
        let place = self.layout.place(block * self.block_sectors);
        let slot = self.layout.data_cell(place.row, place.data).slot.0;
        let row = place.row.0;
        Place { row, slot }
    }

    /// The blocks of a row that lie on failed slots.
    fn failed_blocks(&self, row: u64) -> impl Iterator<Item = u64> + '_ {
        let of_chunk = self.layout.chunk_sectors() / self.block_sectors;
        let cells = 0..self.layout.data_cells() as u8;
        let failed = move |data: &u8| {
            self.failed[usize::from(self.layout.data_cell(Row(row), *data).slot.0)]
        };
        cells.filter(failed).flat_map(move |data| {
            let first = self.layout.lba(Row(row), data, 0) / self.block_sectors;
            first..first + of_chunk
        })
    }
}

/// How far the rebuild has come.
struct Pace {
    rebuild: Option<Rebuild>,
    asked: u64,
    rows: u64,
    /// Rows below this are rebuilt.
    done: u64,
}

impl Pace {
    fn new(rebuild: Option<Rebuild>, asked: u64, rows: u64) -> Pace {
        Pace {
            rebuild,
            asked,
            rows,
            done: 0,
        }
    }

    /// The rows rebuilt since the last call.
    fn at(&mut self, asked: u64) -> Option<Range<u64>> {
        let rebuild = self.rebuild?;
        let [from, to] = [rebuild.from, rebuild.to].map(|part| part * self.asked as f64);
        let share = ((asked as f64 - from) / (to - from).max(1.0)).clamp(0.0, 1.0);
        let done = (share * self.rows as f64) as u64;
        let fresh = std::mem::replace(&mut self.done, done)..done;
        (!fresh.is_empty()).then_some(fresh)
    }
}

/// A block that is asked for, the same for every contender.
struct Question {
    block: u64,
    slot: u16,
    /// Reads that a miss costs, until the row is rebuilt.
    reads: u64,
    /// Whether its slot has failed, and whether its row is rebuilt.
    failed: bool,
    rebuilt: bool,
    /// Whether the warm-up is over.
    counted: bool,
}

/// One contender under way.
struct Run {
    cache: Cache,
    followed: bool,
    outcome: Outcome,
}

impl Run {
    fn new(setup: &Setup, home: &Home, rule: Rule, blocks: u32) -> Run {
        let mut cache = Cache::new(CacheConfig {
            frames: blocks,
            stacks: setup.members.count,
            rule,
            ties: setup.ties,
        });
        for (stack, &reads) in home.penalties.iter().enumerate() {
            let told = setup.weight.filter(|_| home.failed[stack]);
            cache.set_penalty(stack as u16, told.unwrap_or(reads)); // as many stacks as slots
        }
        Run {
            cache,
            followed: setup.rebuild.is_some_and(|rebuild| rebuild.followed),
            outcome: Outcome {
                rule: rule.name(),
                blocks,
                asked: 0,
                misses: 0,
                misses_failed: 0,
                reads: 0,
                reads_failed: 0,
                held_failed: 0,
            },
        }
    }

    /// The cache learns that rows were rebuilt.
    fn follow(&mut self, home: &Home, rows: Range<u64>) {
        if self.followed {
            for block in rows.flat_map(|row| home.failed_blocks(row)) {
                self.cache.rebuilt(block);
            }
        }
    }

    fn ask(&mut self, of: &Question, home: &Home) {
        let missed = self.cache.ask(of.block).is_none();
        if missed {
            let evicted = self.cache.admit(of.block, of.slot).evicted;
            let lost = evicted.is_some_and(|block| home.failed[usize::from(home.of(block).slot)]);
            let held = &mut self.outcome.held_failed;
            *held = *held + u32::from(of.failed) - u32::from(lost);
            if self.followed && of.failed && of.rebuilt {
                self.cache.rebuilt(of.block);
            }
        }
        if !of.counted {
            return;
        }
        let outcome = &mut self.outcome;
        outcome.asked += 1;
        if missed {
            outcome.misses += 1;
            outcome.misses_failed += u64::from(of.failed && !of.rebuilt);
            let reads = if of.rebuilt { 1 } else { of.reads };
            outcome.reads += reads;
            outcome.reads_failed += if of.failed { reads } else { 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Request;
    use restripe_array::layout::Rotation;

    const BLOCK: u64 = 4096;

    /// RAID-5 of three with chunks of one block, and one LRU cache.
    fn setup(failed: &[u16], blocks: u32) -> Setup {
        Setup {
            members: Members {
                level: Level::Raid5(Rotation::default()),
                count: 3,
                chunk_bytes: BLOCK,
                failed: failed.to_vec(),
            },
            block_bytes: BLOCK,
            contenders: vec![(Rule::Lru, blocks)],
            ties: Ties::Oldest,
            warm_up: 0,
            writes: false,
            rebuild: None,
            weight: None,
        }
    }

    fn reads(blocks: &[u64]) -> Requests {
        let read = |block: &u64| Ok(Request::new(0, 0, Op::Read, block * BLOCK, BLOCK));
        Box::new(blocks.iter().map(read).collect::<Vec<_>>().into_iter())
    }

    fn outcome(setup: &Setup, blocks: &[u64]) -> Outcome {
        let found = simulate(setup, || Ok(reads(blocks)));
        found.expect("a sound trace").remove(0)
    }

    /// How many of the first six blocks, three rows of two, lie on a slot.
    fn on_slot(slot: u16) -> u64 {
        let all: Vec<u64> = (0..6).collect();
        outcome(&setup(&[slot], 8), &all).misses_failed
    }

    #[test]
    fn a_miss_costs_one_read_and_two_where_one_of_three_has_failed() {
        // Six blocks once each, then again from the cache: each slot holds a parity and two blocks of three rows.
        let twice: Vec<u64> = (0..6).chain(0..6).collect();
        let whole = outcome(&setup(&[], 8), &twice);
        assert_eq!((whole.asked, whole.misses, whole.reads), (12, 6, 6));
        assert_eq!((whole.rgr(), whole.misses_failed), (0.5, 0));
        for slot in 0..3 {
            let found = outcome(&setup(&[slot], 8), &twice);
            assert_eq!((found.misses, found.misses_failed), (6, 2));
            assert_eq!((found.reads, found.rgr()), (8, 8.0 / 12.0));
            assert_eq!((found.reads_standing(), found.bound()), (4, 0.5));
            assert_eq!(on_slot(slot), 2);
        }
    }

    #[test]
    fn what_is_asked_in_the_warm_up_fills_the_cache_and_is_not_counted() {
        let twice: Vec<u64> = (0..6).chain(0..6).collect();
        let mut warm = setup(&[0], 8);
        warm.warm_up = 6;
        let found = outcome(&warm, &twice);
        assert_eq!((found.asked, found.misses, found.reads), (6, 0, 0));
    }

    #[test]
    fn rows_that_are_rebuilt_cost_one_read_whether_the_cache_follows_or_not() {
        let all: Vec<u64> = (0..6).cycle().take(60).collect();
        let degraded = outcome(&setup(&[0], 1), &all);
        assert_eq!((degraded.reads, degraded.misses_failed), (80, 20));
        for followed in [false, true] {
            let mut rebuilding = setup(&[0], 1);
            rebuilding.rebuild = Some(Rebuild {
                from: 0.0,
                to: 0.5,
                followed,
            });
            let found = outcome(&rebuilding, &all);
            let both = (found.asked, found.misses);
            assert_eq!(both, (60, 60), "one frame hits nothing");
            assert_eq!(found.reads, 60 + found.misses_failed);
            let standing = found.reads_standing();
            assert_eq!(standing, 40, "a third lies on the failed slot");
            let early = (1..=10).contains(&found.misses_failed);
            assert!(early, "none in the second half");
        }
    }

    /// An LRU cache as anyone would write it.
    fn naive_misses(blocks: &[u64], frames: usize) -> u64 {
        let mut held: Vec<u64> = Vec::new();
        let mut misses = 0;
        for block in blocks {
            match held.iter().position(|other| other == block) {
                Some(at) => drop(held.remove(at)),
                None => misses += 1,
            }
            held.insert(0, *block);
            held.truncate(frames);
        }
        misses
    }

    #[test]
    fn lru_misses_what_a_naive_lru_misses() {
        let mut state = 1u64;
        let draw = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005);
            state = state.wrapping_add(1);
            (state >> 33) % 97 * ((state >> 50) % 7)
        };
        let blocks: Vec<u64> = (0..4000).map(draw).collect();
        for frames in [1, 3, 16, 64, 1000] {
            let found = outcome(&setup(&[1], frames), &blocks);
            let naive = naive_misses(&blocks, frames as usize);
            assert_eq!(found.misses, naive, "{frames}");
        }
    }

    #[test]
    fn a_trace_that_changes_between_the_passes_is_an_error() {
        let passes: [(&[u64], &[u64]); 3] = [(&[0, 1], &[0]), (&[0], &[0, 0]), (&[0], &[9])];
        for (first, second) in passes {
            let mut passes = [first, second].into_iter();
            let found = simulate(&setup(&[], 8), || {
                Ok(reads(passes.next().expect("two passes")))
            });
            assert!(matches!(found, Err(CacheError::Changed)), "{second:?}");
        }
    }

    #[test]
    fn caches_beyond_memory_are_refused_with_what_they_need() {
        let mut large = setup(&[], 1 << 25);
        large.contenders.push((Rule::Lfu, 1));
        let error = simulate(&large, || Ok(reads(&[0]))).expect_err("one block too many");
        assert!(error.to_string().contains("5120 MiB"), "{error}");
    }
}
