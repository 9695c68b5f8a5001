//! The cache's rules on real requests: counts against naive exact caches, VDF without a failure against the rule it
//! starts from, and the counts that another simulator gives.
//!
//! The traces are those of `traces` in the folder that `RESTRIPE_SHARED` names, `../shared` beside the project otherwise.

use crate::shared;
use restripe_array::cache::{Cache, CacheConfig, Rule, Ties};
use restripe_lab::trace::{BLOCK_BYTES, Options, open};
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

const SECTOR_BYTES: u64 = 512;
/// Blocks of a trace that are asked for at most: the tests take seconds.
const ASKED_MAX: usize = 250_000;
/// Slots of the array, and blocks of a chunk: a stack for each slot, by turns.
const STACKS: u64 = 8;
const CHUNK_BLOCKS: u64 = 16;

/// The files, of every format that has addresses.
const FILES: [&str; 20] = [
    "umass-financial1.req00001-06000.disksim.zst",
    "umass-websearch.req00001-16000.disksim.zst",
    "tpcc.req0001-4500.disksim.zst",
    "msr-cambridge.cut-rw_20_80.105.txt.zst",
    "msr-cambridge.cut-most_thpt_rand_iops.1006.txt.zst",
    "fiu-cheetah.req0001-6600.txt.zst",
    "cloudphysics.req00001-80000.vscsi1.zst",
    "hplajw-1992.days1-5.srt.zst",
    "hadoop-blktrace.node9.tar.xz",
    "ycsb-blkparse.ext4.txt.zst",
    "java-nvme-blkparse.txt.zst",
    "dmcrypt-nvme-blkparse.txt.zst",
    "sqlite-wal-ext4.ftlsim.txt.zst",
    "disksim-ssd-postmark.disksim.zst",
    "disksim-ascii.req00001-70000.disksim.zst",
    "diskmon-desktop1.txt.zst",
    "diskmon-desktop2.txt.zst",
    "diskmon-desktop3.txt.zst",
    "addr-only.cloudphysics-w106.u32le.xz",
    "addr-only.arc-OLTP.lis.zst",
];

/// The trace's reads and writes, block by block. Devices are far apart.
fn blocks(path: &Path) -> Vec<u64> {
    let trace = open(path, &Options::default()).expect("it opens");
    let moved = trace.map(|item| item.unwrap_or_else(|error| panic!("{error}")));
    let moved = moved.filter(|request| request.op.moves_data() && request.length > 0);
    let all = moved.flat_map(|request| {
        let device = u64::from(request.device) << 48;
        let end = request.end().div_ceil(BLOCK_BYTES);
        (request.offset / BLOCK_BYTES..end).map(move |block| device + block)
    });
    all.take(ASKED_MAX).collect()
}

/// LRU and LFU without a stack: an ordered set of all that is held, the least of which goes. A frequency is forgotten
/// with its block, and of equal ones the least recent goes; room is made before the block comes in.
struct Naive {
    counts: bool,
    frames: usize,
    clock: u64,
    /// Frequency (always 0 of LRU) and last request of each block.
    held: HashMap<u64, (u64, u64)>,
    order: BTreeSet<(u64, u64, u64)>,
}

impl Naive {
    fn new(counts: bool, frames: usize) -> Naive {
        Naive {
            counts,
            frames,
            clock: 0,
            held: HashMap::new(),
            order: BTreeSet::new(),
        }
    }

    /// `None` of a hit, or who made room.
    fn request(&mut self, block: u64) -> Option<Option<u64>> {
        self.clock += 1;
        let known = self.held.get(&block).copied();
        let mut evicted = None;
        if let Some((frequency, asked)) = known {
            self.order.remove(&(frequency, asked, block));
        } else if self.held.len() == self.frames {
            let (_, _, victim) = self.order.pop_first().expect("it is full");
            self.held.remove(&victim);
            evicted = Some(victim);
        }
        let before = known.map_or(0, |(frequency, _)| frequency);
        let now = (before + u64::from(self.counts), self.clock);
        self.held.insert(block, now);
        self.order.insert((now.0, now.1, block));
        known.is_none().then_some(evicted)
    }
}

fn cache(rule: Rule, frames: u32) -> Cache {
    Cache::new(CacheConfig {
        frames,
        stacks: STACKS as u16,
        rule,
        ties: Ties::Oldest,
    })
}

fn request(cache: &mut Cache, block: u64) -> Option<Option<u64>> {
    if cache.ask(block).is_some() {
        return None;
    }
    let stack = (block / CHUNK_BLOCKS % STACKS) as u16;
    Some(cache.admit(block, stack).evicted)
}

fn folder(test: &str) -> Option<PathBuf> {
    shared::folder("traces", "README.md", &format!("cache_real::{test}"))
}

/// Sizes of a cache from tiny to most of what a sample touches.
const SIZES: [u32; 4] = [10, 300, 4000, 50_000];

#[test]
fn on_real_requests_every_hit_and_victim_is_the_naive_caches_and_vdfs() {
    let name = "on_real_requests_every_hit_and_victim_is_the_naive_caches_and_vdfs";
    let Some(folder) = folder(name) else {
        return;
    };
    for file in FILES {
        let blocks = blocks(&folder.join(file));
        assert!(blocks.len() > 200, "{file}");
        for (base, vdf) in [(Rule::Lru, Rule::VdfLru), (Rule::Lfu, Rule::VdfLfu)] {
            for frames in SIZES {
                let mut naive = Naive::new(base == Rule::Lfu, frames as usize);
                let (mut base, mut vdf) = (cache(base, frames), cache(vdf, frames));
                for (step, &block) in blocks.iter().enumerate() {
                    let wanted = naive.request(block);
                    assert_eq!(
                        request(&mut base, block),
                        wanted,
                        "{file}, {frames}, {step}"
                    );
                    assert_eq!(request(&mut vdf, block), wanted, "{file}, {frames}, {step}");
                }
            }
        }
    }
}

/// A cache size with the misses of LRU and of LFU.
type Row = (u32, u64, u64);

/// Each request one object by its first sector, whatever its length, no warm-up, as `--ignore-obj-size` has it:
/// libCacheSim 0.3.5's counts on the sample.
const OF_SAMPLE: [Row; 8] = [
    (100, 69_454, 69_931),
    (500, 66_047, 66_897),
    (1000, 65_606, 65_994),
    (2000, 65_205, 64_794),
    (5000, 63_671, 63_036),
    (10_000, 55_435, 58_864),
    (20_000, 51_728, 47_401),
    (40_000, 41_043, 41_043),
];

/// The same of the whole trace.
const OF_WHOLE: [Row; 8] = [
    (100, 100_215, 100_973),
    (500, 95_398, 96_651),
    (1000, 94_823, 95_562),
    (2000, 94_189, 93_707),
    (5000, 91_527, 89_798),
    (10_000, 79_438, 81_059),
    (20_000, 72_053, 64_431),
    (40_000, 48_994, 48_999),
];

fn first_sectors(path: &Path) -> Vec<u64> {
    let trace = open(path, &Options::default()).expect("it opens");
    let offset = |item| -> u64 {
        let item: restripe_lab::trace::Item = item;
        item.expect("a sound trace").offset / SECTOR_BYTES
    };
    trace.map(offset).collect()
}

fn misses(rule: Rule, frames: u32, objects: &[u64]) -> u64 {
    let mut cache = cache(rule, frames);
    let missed = |object: &&u64| request(&mut cache, **object).is_some();
    objects.iter().filter(missed).count() as u64
}

fn counts_are(table: &[Row], objects: &[u64]) {
    for &(frames, lru, lfu) in table {
        for (rules, wanted) in [
            ([Rule::Lru, Rule::VdfLru], lru),
            ([Rule::Lfu, Rule::VdfLfu], lfu),
        ] {
            for rule in rules {
                let name = rule.name();
                assert_eq!(misses(rule, frames, objects), wanted, "{name}, {frames}");
            }
        }
    }
}

#[test]
fn on_cloudphysics_the_counts_are_another_simulators() {
    let test = "on_cloudphysics_the_counts_are_another_simulators";
    let Some(folder) = folder(test) else {
        return;
    };
    let sample = first_sectors(&folder.join("cloudphysics.req00001-80000.vscsi1.zst"));
    assert_eq!(sample.len(), 80_000);
    counts_are(&OF_SAMPLE, &sample);
    // Whoever has the whole as well, as libCacheSim ships it, puts it beside its beginning.
    let whole = folder.join("cloudPhysicsIO.vscsi");
    if whole.is_file() {
        let whole = first_sectors(&whole);
        assert_eq!(whole.len(), 113_872);
        counts_are(&OF_WHOLE, &whole);
    }
}
