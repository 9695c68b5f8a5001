//! What a seed decides before anything runs: the array, its disks, its users' temper and how rough the run
//! gets.

use crate::array::{Spec, pool};
use crate::payload::Payload;
use crate::rng::Rng;
use restripe_array::cache::Rule;
use restripe_array::layout::scaled::History;
use restripe_array::layout::{Geometry, Level, Rotation, Skew};
use restripe_array::meta::{Creation, Init, RegionKind, WriteHole};
use restripe_array::{Bug, CacheLimits, HeatLimits, Limits, Nanos, PLANTED};

/// How rough a run may get.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Roughness {
    /// Nothing goes wrong.
    Calm,
    /// Power goes.
    Crashes,
    /// Disks fail as well.
    #[default]
    Faults,
}

/// A family of levels, for running one at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    Raid0,
    Raid1,
    Raid4,
    Raid5,
    Raid6,
    Raid10,
    /// Three parities and more.
    ReedSolomon,
    /// Sub-arrays over groups of the slots.
    S2Raid5,
    S2Raid6,
    S2Raid10,
    /// With data slots that were added.
    Grown0,
    Grown4,
    /// With spares that become data slots.
    Grows0,
    Grows4,
    /// The same, and all chunks are dealt anew.
    Reshape0,
    Reshape4,
    Reshape5,
    Reshape6,
    /// With spares that become data slots, and one that becomes parity's.
    Outsources4,
}

pub const FAMILIES: [(&str, Family); 19] = [
    ("raid0", Family::Raid0),
    ("raid1", Family::Raid1),
    ("raid4", Family::Raid4),
    ("raid5", Family::Raid5),
    ("raid6", Family::Raid6),
    ("raid10", Family::Raid10),
    ("s2-raid5", Family::S2Raid5),
    ("s2-raid6", Family::S2Raid6),
    ("s2-raid10", Family::S2Raid10),
    ("grown0", Family::Grown0),
    ("grown4", Family::Grown4),
    ("grows0", Family::Grows0),
    ("grows4", Family::Grows4),
    ("reshape0", Family::Reshape0),
    ("reshape4", Family::Reshape4),
    ("reshape5", Family::Reshape5),
    ("reshape6", Family::Reshape6),
    ("rs", Family::ReedSolomon),
    ("outsources4", Family::Outsources4),
];
/// How many of them are plain.
const PLAIN: usize = 6;
/// How many are plain or skewed: a seed's own choice.
const SETTLED: usize = 9;

/// A planted bug by its name, as the engine spells it.
pub fn bug(name: &str) -> Result<Bug, String> {
    if !PLANTED {
        return Err("this build has no planted bugs: build it with --features planted".into());
    }
    let of_hosts = || Bug::OF_HOSTS.into_iter().chain(Bug::OF_SCRIPTS);
    let of_growths = || Bug::OF_GROWTHS.into_iter().chain(Bug::OF_RESHAPES);
    let of_logs = || Bug::OF_SURROGATES.into_iter().chain(Bug::OF_CODE_CACHES);
    let all = || Bug::ALL.into_iter().chain(of_hosts()).chain(of_growths());
    let all = || all().chain(of_logs());
    let names: Vec<String> = all().map(|bug| format!("{bug:?}")).collect();
    let found = all().find(|bug| format!("{bug:?}") == name);
    found.ok_or(format!("{name} is none of {}", names.join(", ")))
}

/// What is not left to the seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    pub roughness: Roughness,
    pub family: Option<Family>,
    pub write_hole: Option<WriteHole>,
    pub init: Option<Init>,
    pub payload: Option<Payload>,
    /// Say what happens.
    pub trace: bool,
    /// Expect what is not so: the run must fail.
    pub canary: bool,
    /// The bug that the engine is to have.
    pub bug: Option<Bug>,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub spec: Spec,
    pub geometry: Geometry,
    /// Where the set data begin on every member.
    pub data_start: u64,
    /// What the disks held before the array was made.
    pub dirt: Option<u64>,
    pub limits: Limits,
    pub lives: u64,
    pub requests: u64,
    pub queue_depth: u64,
    /// Requests need not be whole blocks.
    pub unaligned: bool,
    pub latency: Nanos,
    pub jitter: Nanos,
    pub rate: u64,
    /// Metadata take so much longer than data.
    pub far: Nanos,
    /// Spares are made data slots.
    pub grows: bool,
    /// And every chunk moves.
    pub reshapes: bool,
    /// Parity goes to a surrogate disk meanwhile.
    pub outsources: bool,
    /// Runs record themselves, as daemons do, and so write versions of the superblock that cover what was
    /// written. Users rest for longer.
    pub owned: bool,
}

/// The stream that the cache is drawn from.
const CACHED: u64 = 0xcac4e;
/// And that of what is learned of reads.
const HEAT: u64 = 0x4ea7;
/// And that of whether runs record themselves: one array in eight.
const OWNED: u64 = 0x0e0d;
/// And that of how many rows there are.
const MANY_ROWS: u64 = 0x2035;
/// And that of whether slots are grouped, and how.
const SKEWED: u64 = 0x52;
/// And that of how many data slots a grown array has had.
const GROWN: u64 = 0x6707;
/// And that of whether members have room for partitions of others.
const SPARE_PARTITIONS: u64 = 0x5b;

impl Plan {
    pub fn draw(rng: &mut Rng, options: &Options) -> Plan {
        let cached = cached(&mut rng.clone().fork(CACHED));
        let heat = heat(&mut rng.clone().fork(HEAT));
        let owned = rng.clone().fork(OWNED).chance(1, 8);
        let shape = shape(rng, options.family);
        let (spec, creation) = spec(rng, options, shape);
        let data = creation.superblock.region(RegionKind::Data);
        let foreign = matches!(spec.init, Init::Written | Init::Zero);
        let calm = options.roughness == Roughness::Calm;
        Plan {
            dirt: (foreign && rng.chance(1, 2)).then(|| rng.word()),
            grows: options.family.is_some_and(grows),
            reshapes: options.family.is_some_and(reshapes),
            outsources: options.family == Some(Family::Outsources4),
            owned,
            limits: limits(
                rng,
                cells(&spec, options),
                cached.filter(|_| !options.family.is_some_and(reshapes)),
                heat,
            ),
            lives: if calm { 1 } else { rng.between(1, 3) },
            requests: rng.between(10, 90),
            queue_depth: *rng.pick(&[1, 2, 4, 8, 24]),
            unaligned: spec.logical_block > 512 && rng.chance(3, 4),
            latency: Nanos(*rng.pick(&[1_000, 20_000, 100_000, 5_000_000])),
            jitter: Nanos(*rng.pick(&[0, 1_000, 50_000, 2_000_000])),
            rate: *rng.pick(&[10 << 20, 200 << 20, 4 << 30]),
            far: Nanos(*rng.pick(&[0, 0, 300_000, 2_000_000])),
            geometry: creation.geometry,
            data_start: data.map_or(0, |region| region.start),
            spec,
        }
    }
}

/// Level, slots and how they are grouped.
type Shape = (Level, u16, Option<Skew>);

/// One array in six is skewed, unless a family is asked for.
fn shape(rng: &mut Rng, asked: Option<Family>) -> Shape {
    let mut own = rng.clone().fork(SKEWED);
    let skewed = own.chance(1, 6);
    let skewed = skewed.then(|| own.pick(&FAMILIES[PLAIN..SETTLED]).1);
    let family = asked.unwrap_or_else(|| rng.pick(&FAMILIES[..PLAIN]).1);
    let (level, slots) = level(rng, family);
    let grouped = grouped_shape(&mut own, asked.or(skewed).unwrap_or(family));
    grouped.unwrap_or((level, slots, None))
}

/// Of a family that has groups.
fn grouped_shape(rng: &mut Rng, family: Family) -> Option<Shape> {
    let rotation = *rng.pick(&Rotation::ALL);
    let (level, shapes): (Level, &[(u16, u16)]) = match family {
        Family::S2Raid6 => (Level::Raid6(rotation), &[(8, 4), (16, 4), (20, 4)]),
        Family::S2Raid10 => {
            let copies = *rng.pick(&[2, 2, 3]);
            let shapes: &[(u16, u16)] = match copies {
                2 => &[(4, 2), (6, 2), (8, 2)],
                _ => &[(9, 3), (12, 3)],
            };
            (Level::Raid10 { copies }, shapes)
        }
        Family::S2Raid5 => (
            Level::Raid5(rotation),
            &[(6, 3), (9, 3), (9, 3), (12, 3), (16, 4)],
        ),
        _ => return None,
    };
    let (slots, groups) = *rng.pick(shapes);
    let most = Skew::partitions_max(groups, slots / groups);
    let partitions = rng.between(1, u64::from(most)) as u16;
    Some((level, slots, Some(Skew { groups, partitions })))
}

fn level(rng: &mut Rng, family: Family) -> (Level, u16) {
    let rotations = [
        Rotation::LeftSymmetric,
        Rotation::LeftSymmetric,
        Rotation::LeftAsymmetric,
        Rotation::RightAsymmetric,
        Rotation::RightSymmetric,
        Rotation::ParityFirst,
        Rotation::ParityLast,
    ];
    let rotation = *rng.pick(&rotations);
    let mut slots = |low, high| rng.between(low, high) as u16;
    match family {
        Family::Raid0 | Family::Grown0 | Family::Grows0 | Family::Reshape0 => {
            (Level::Raid0, slots(2, 4))
        }
        Family::Raid1 => (Level::Raid1, slots(2, 3)),
        Family::Raid4
        | Family::Grown4
        | Family::Grows4
        | Family::Reshape4
        | Family::Outsources4 => (Level::Raid4, slots(3, 5)),
        Family::Raid5 | Family::S2Raid5 | Family::Reshape5 => (Level::Raid5(rotation), slots(3, 6)),
        Family::Raid6 | Family::S2Raid6 | Family::Reshape6 => (Level::Raid6(rotation), slots(4, 7)),
        Family::Raid10 | Family::S2Raid10 => {
            let copies = slots(2, 3) as u8;
            (Level::Raid10 { copies }, slots(u64::from(copies), 6))
        }
        Family::ReedSolomon => {
            let parities = *rng.pick(&[3, 3, 3, 4, 5]);
            let slots = u16::from(parities) + rng.between(1, 4) as u16;
            (Level::ReedSolomon { parities }, slots)
        }
    }
}

fn spec(rng: &mut Rng, options: &Options, shape: Shape) -> (Spec, Creation) {
    let (level, slots, skew) = shape;
    let grown = history(rng, options.family, level, slots);
    let slots = grown.map_or(slots, |history| history.slots() + level.parities());
    let reshapes = options.family.is_some_and(reshapes);
    // The logs are to have room for a chunk.
    let most = if reshapes { 128 } else { 256 };
    let chunk_sectors = (*rng.pick(&[8, 16, 16, 32, 128, 256])).min(most);
    let few = (1024 / u64::from(chunk_sectors)).clamp(3, 24) + rng.below(4);
    // More rows than a task's done-set may have pieces on record.
    let many = chunk_sectors == 8 && rng.clone().fork(MANY_ROWS).chance(1, 24);
    let chunks = if many { 150 } else { few };
    // A chunk or more for each partition.
    let chunks = chunks.max(skew.map_or(0, |skew| skew.partitions.into()));
    let logical_block = if rng.chance(1, 3) { 4096 } else { 512 };
    let faults = options.roughness == Roughness::Faults;
    let spares = if faults { rng.below(3) as u16 } else { 0 };
    let spares = spares + u16::from(options.family.is_some_and(grows));
    let spares = spares + u16::from(options.family == Some(Family::Outsources4));
    let hole = match reshapes {
        true => Some(WriteHole::Ppl),
        false => options.write_hole,
    };
    let mut spec = Spec {
        spares,
        spare_partitions: spare_partitions(rng, skew),
        chunk_sectors,
        chunks,
        write_hole: write_hole(rng, level, hole),
        init: options.init.unwrap_or_else(|| init(rng)),
        payload: options.payload.unwrap_or(match rng.chance(1, 10) {
            true => Payload::Bytes,
            false => Payload::Tokens,
        }),
        volatile: rng.chance(4, 5),
        depth: *rng.pick(&[1, 4, 32]),
        uneven_sectors: *rng.pick(&[0, 0, 8, 64]),
        logical_block,
        trim_zeroes: rng.chance(1, 2),
        extent_rows: rng.chance(1, 2).then(|| *rng.pick(&[1, 2, 5])),
        intent_rows: rng.chance(1, 2).then(|| *rng.pick(&[1, 2, 5])),
        identity: 0,
        partner: None,
        skew,
        grown,
        ..Spec::small(level, slots)
    };
    spec.member_sectors = (chunks * u64::from(chunk_sectors) + 1024).next_multiple_of(8);
    fit(spec)
}

fn grows(family: Family) -> bool {
    matches!(
        family,
        Family::Grows0 | Family::Grows4 | Family::Outsources4
    ) || reshapes(family)
}

fn reshapes(family: Family) -> bool {
    use Family::{Reshape0, Reshape4, Reshape5, Reshape6};
    matches!(family, Reshape0 | Reshape4 | Reshape5 | Reshape6)
}

/// Of rows that are wider than the plain ones, or may become so.
fn cells(spec: &Spec, options: &Options) -> u16 {
    match options.family {
        Some(family) if grows(family) => spec.slots + 8,
        _ => spec.grown.map_or(0, |_| spec.slots),
    }
}

/// From so many slots on, one to three growths.
fn history(rng: &Rng, family: Option<Family>, level: Level, slots: u16) -> Option<History> {
    if !matches!(family, Some(Family::Grown0 | Family::Grown4)) {
        return None;
    }
    let mut own = rng.clone().fork(GROWN);
    let mut counts = vec![slots - level.parities()];
    for _ in 0..own.between(1, 3) {
        let last = counts[counts.len() - 1];
        counts.push(last + own.between(1, 3) as u16);
    }
    History::of(&counts)
}

fn spare_partitions(rng: &mut Rng, skew: Option<Skew>) -> u16 {
    let drawn = rng.clone().fork(SPARE_PARTITIONS).below(4);
    skew.map_or(0, |_| drawn as u16)
}

/// Gives the members as much room as the metadata want.
fn fit(mut spec: Spec) -> (Spec, Creation) {
    loop {
        match spec.create() {
            Ok(creation) => return (spec, creation),
            Err(_) if spec.member_sectors < 1 << 16 => spec.member_sectors += 1024,
            Err(error) => panic!("plans are made to fit: {error:?}"),
        }
    }
}

/// `asked` counts where the level has parity.
fn write_hole(rng: &mut Rng, level: Level, asked: Option<WriteHole>) -> WriteHole {
    let choices: &[WriteHole] = match level {
        Level::Raid0 => &[WriteHole::None],
        Level::Raid1 | Level::Raid10 { .. } | Level::ReedSolomon { .. } => {
            &[WriteHole::Bitmap, WriteHole::Bitmap, WriteHole::None]
        }
        Level::Raid4 | Level::Raid5(_) | Level::Raid6(_) => {
            use WriteHole::{Bitmap, None, Ppl};
            &[Ppl, Ppl, Ppl, Bitmap, Bitmap, None]
        }
    };
    let drawn = *rng.pick(choices);
    let asked = asked.filter(|_| choices.contains(&WriteHole::Ppl));
    asked.unwrap_or(drawn)
}

fn init(rng: &mut Rng) -> Init {
    use Init::{Sync, Trust, Written, Zero};
    *rng.pick(&[Written, Written, Written, Zero, Sync, Trust])
}

/// `cells`: of rows that may be wider than the plain ones.
fn limits(rng: &mut Rng, cells: u16, cached: Option<CacheLimits>, heat: HeatLimits) -> Limits {
    let tight = rng.chance(1, 4);
    let (small, large) = if tight { (256, 64) } else { (1024, 256) };
    let limits = Limits {
        pool: pool(small, large),
        requests: if tight { 16 } else { 64 },
        slices: if tight { 8 } else { 64 },
        // One for each cell of each slice, and some for direct reads.
        ios: 64 * (u32::from(cells.max(7)) + 1),
        heat,
        ..Limits::default()
    };
    limits.with_cache(cached)
}

/// Zones from a row up, and epochs that end during a run or never.
fn heat(rng: &mut Rng) -> HeatLimits {
    HeatLimits {
        zone_sectors: *rng.pick(&[1, 1, 64, 1024]),
        epoch: Nanos(*rng.pick(&[50_000_000, 1_000_000_000, 600_000_000_000])),
    }
}

/// A read cache, in two runs of five: from one that holds next to nothing to one that holds all.
pub(crate) fn cached(rng: &mut Rng) -> Option<CacheLimits> {
    rng.chance(2, 5).then(|| CacheLimits {
        blocks: *rng.pick(&[1, 6, 40, 4096]),
        rule: *rng.pick(&Rule::ALL),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plan_makes_an_array() {
        for seed in 0..500 {
            let plan = Plan::draw(&mut Rng::new(seed), &Options::default());
            let created = plan.spec.create();
            let why = created.err();
            assert!(why.is_none(), "seed {seed}: {why:?} {:?}", plan.spec);
        }
    }
}
