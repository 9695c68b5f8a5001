//! A checksum is no proof of range: structures that are sound but for one field, at every place of a field and with values
//! around every limit, each through a whole start of the engine and some work after it.
//!
//! A start ends in service or in an error, and service goes on. Where the field does not say what is written where, or is
//! wrong on one member alone, every byte that is read is right. `ranges_pairs` has the structures that tie an array to its surrogate.

use crate::shell::{Array, CHUNK, Disk, Setup, raid5};
use crate::spares::{superblock_on, three_by_three};
use restripe_array::layout::Level;
use restripe_array::meta::crc::crc32c_without;
use restripe_array::meta::leases::PARCEL_BYTES;
use restripe_array::meta::log::{
    DONE_MAGIC, HEADER_BYTES as RECORD_BYTES, MAGIC as RECORD_MAGIC, at as record, done_at,
};
use restripe_array::meta::pages::{MAGIC as MAP_MAGIC, MapKind};
use restripe_array::meta::superblock::{self, SUPERBLOCK_BYTES};
use restripe_array::meta::{MetaError, Superblock};
use restripe_array::{
    Command, CommandError, Fact, LeaseCommand, LeaseName, Member, Nanos, ScrubMode, StartMode,
};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

const PAGE: usize = 4096;

pub enum Fields {
    These(&'static [(usize, usize)]),
    /// As a structure that is there has them.
    Found(fn(&[u8]) -> Vec<(usize, usize)>),
}

impl Fields {
    fn of(&self, sample: &[u8]) -> Vec<(usize, usize)> {
        match self {
            Fields::These(fields) => fields.to_vec(),
            Fields::Found(fields) => fields(sample),
        }
    }
}

/// A kind of structure on the members.
pub struct Structure {
    pub magic: [u8; 8],
    /// Byte that must have this value, beside the magic.
    pub kind: Option<(usize, u8)>,
    /// Bytes that the checksum covers, and where it stands.
    pub sealed: usize,
    pub crc: usize,
    /// Where its fields lie, and how many bytes each has.
    pub fields: Fields,
    pub decides: Decides,
}

/// Which wrong structures may change what the array says that its users wrote. (The regions of a superblock say where the
/// data of its own member lie: these do, on one member.)
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Decides {
    None,
    /// Those of all members together.
    All,
    One,
}

const RECORD: Structure = Structure {
    magic: RECORD_MAGIC,
    kind: None,
    sealed: RECORD_BYTES,
    crc: 12,
    fields: Fields::These(&[
        (record::SEQUENCE, 8),
        (record::FLOOR, 8),
        (record::GENERATION, 8),
        (record::ROW, 8),
        (record::OFFSET, 4),
        (record::SECTORS, 4),
        (record::MODIFIED, 4),
        (record::PAYLOAD_SECTORS, 4),
        (record::PAYLOAD_CRC, 4),
        (record::COPIES, 1),
        (record::KIND, 1),
    ]),
    decides: Decides::None,
};

const DONE_LIST: Structure = Structure {
    magic: DONE_MAGIC,
    kind: None,
    sealed: PAGE,
    crc: 12,
    fields: Fields::These(&[
        (done_at::LIST_VERSION, 8),
        (done_at::FLOOR, 8),
        (done_at::COUNT, 8),
        (done_at::SEQUENCES, 8),
        (done_at::SEQUENCES + 8, 8),
    ]),
    decides: Decides::None,
};

pub fn map(kind: MapKind) -> Structure {
    Structure {
        magic: MAP_MAGIC,
        kind: Some((10, kind.code() as u8)),
        sealed: PAGE,
        crc: 12,
        // The first of its body: a count and an extent, a scale and an epoch, or bits.
        fields: Fields::These(&[(32, 8), (40, 4), (64, 8), (72, 8), (80, 8)]),
        decides: match kind {
            MapKind::Written => Decides::All,
            _ => Decides::None,
        },
    }
}

pub const SUPERBLOCK: Structure = Structure {
    magic: superblock::MAGIC,
    kind: None,
    sealed: SUPERBLOCK_BYTES,
    crc: superblock::at::CRC,
    fields: Fields::These(&[
        (superblock::at::FLAGS, 4),
        (superblock::at::INCOMPATIBLE, 8),
        (superblock::at::COMPATIBLE, 8),
        (superblock::at::GENERATION, 8),
        (superblock::at::SEQUENCE, 8),
        (superblock::at::LEVEL, 1),
        (superblock::at::COPIES, 1),
        (superblock::at::WRITE_HOLE, 1),
        (superblock::at::SLOTS, 2),
        (superblock::at::PARTITIONS, 1),
        (superblock::at::CHUNK_SECTORS, 4),
        (superblock::at::LOGICAL_BLOCK, 4),
        (superblock::at::SLOT_SECTORS, 8),
        (superblock::at::EXTENT_ROWS, 8),
        (superblock::at::INTENT_ROWS, 8),
        (superblock::at::LOG_FLOOR, 8),
        (superblock::at::REGIONS, 2),
        (superblock::at::MEMBERS, 2),
        (superblock::at::PLACEMENT, 2),
        (superblock::at::FORCED, 8),
    ]),
    decides: Decides::All,
};

/// Every number of every entry of a superblock's tables, and what says where these lie.
pub fn tables(bytes: &[u8]) -> Vec<(usize, usize)> {
    use superblock::at;
    let mut fields = vec![(at::LENGTH, 4)];
    for (descriptor, entry) in [
        (at::REGIONS, &[(0, 2), (8, 8), (16, 8)][..]),
        (
            at::MEMBERS,
            &[
                (16, 1),
                (17, 1),
                (18, 2),
                (20, 4),
                (24, 8),
                (32, 8),
                (40, 8),
            ],
        ),
        (
            at::PLACEMENT,
            &[(0, 2), (2, 2), (4, 2), (6, 2), (8, 2), (10, 2)],
        ),
        (at::TASKS, &[(0, 1), (1, 1), (2, 2), (4, 2)]),
        (at::RUNS, &[(0, 8), (8, 8)]),
    ] {
        fields.extend([(descriptor, 4), (descriptor + 4, 2), (descriptor + 6, 2)]);
        let offset = number(bytes, descriptor, 4) as usize;
        let each = number(bytes, descriptor + 4, 2) as usize;
        // The first and the last few of each table.
        let count = number(bytes, descriptor + 6, 2) as usize;
        let entries = (0..count).filter(|index| *index < 4 || index + 2 > count);
        fields.extend(entries.flat_map(|index| {
            let at = offset + index * each;
            entry.iter().map(move |(field, width)| (at + field, *width))
        }));
    }
    fields
}

/// What only some superblocks have: a partner, leases, groups, a history, a reshape, and the records of the tail.
pub fn extras(bytes: &[u8]) -> Vec<(usize, usize)> {
    use superblock::{at, left, tail::places};
    let mut fields = vec![
        (at::GROUPS, 1),
        (at::PARTITIONS, 1),
        (at::HISTORY_OFFSET, 2),
        (at::PARTNER_EPOCH, 4),
        (at::PARTNER_SESSION, 4),
        (at::PARTNER_ROLE, 1),
        (at::BUFFER, 1),
        (at::PARCELS_OFFSET, 2),
        (at::PARCELS_ENTRY_BYTES, 2),
        (at::PARCELS_COUNT, 2),
        (places::OWNER + places::OWNER_STARTED, 8),
        (places::OWNER + places::OWNER_PROCESS, 4),
        (places::OWNER + places::OWNER_INTERVAL, 4),
        (left::LEFT_AT, 8),
        (left::LEFT_AT + 8, 8),
    ];
    let behind = superblock::HEADER_BYTES;
    fields.extend([(behind, 2), (behind + 2, 1), (behind + 8, 8)]);
    let parcels = number(bytes, at::PARCELS_OFFSET, 2) as usize;
    for index in 0..number(bytes, at::PARCELS_COUNT, 2) as usize {
        let at = parcels + index * PARCEL_BYTES;
        fields.extend([(at, 8), (at + 8, 8)]);
    }
    let history = number(bytes, at::HISTORY_OFFSET, 2) as usize;
    if number(bytes, at::INCOMPATIBLE, 8) & 8 != 0 {
        fields.extend((history..history + superblock::HISTORY_BYTES).map(|at| (at, 1)));
    }
    fields
}

pub fn number(bytes: &[u8], at: usize, width: usize) -> u64 {
    let mut value = [0; 8];
    value[..width].copy_from_slice(&bytes[at..at + width]);
    u64::from_le_bytes(value)
}

/// Values around what numbers of these arrays are held against: rows, sectors of a chunk and a member, what a counter may
/// be, the ends of each width, and what stands there.
fn values(width: usize, own: u64) -> Vec<u64> {
    let max = u64::MAX >> (64 - 8 * width);
    let limits = [
        0,
        1,
        8,
        CHUNK + 1,
        1024,
        1 << 31,
        1 << 32,
        1 << 61,
        (1 << 62) - 1,
        1 << 63,
        max,
    ];
    let beside = [own.saturating_sub(1), own.saturating_add(1)];
    let mut values: Vec<u64> = limits.into_iter().chain(beside).collect();
    values.retain(|value| *value <= max && *value != own);
    values.sort_unstable();
    values.dedup();
    values
}

/// A crashed array: flushed writes, and some whose records are live, all of which have reached the members.
fn crashed(setup: Setup) -> Array {
    let mut array = setup.start();
    let half = array.layout.size_sectors() / 2;
    array.written(0, half).expect("written");
    array.flushed();
    for lba in [0, 3 * CHUNK, half - 8] {
        array.written(lba, 8).expect("written");
    }
    array.crash(|_| true);
    array
}

fn places(disk: &Disk, structure: &Structure) -> Vec<usize> {
    let is_it = |at: &usize| {
        let page = &disk.image[*at..];
        let of_kind = structure
            .kind
            .is_none_or(|(byte, value)| page[byte] == value);
        page.len() >= structure.sealed && page[..8] == structure.magic && of_kind
    };
    (0..disk.image.len()).step_by(PAGE).filter(is_it).collect()
}

/// Puts a value into a field of every such structure on a member, under a right checksum.
fn tamper(disk: &mut Disk, structure: &Structure, field: usize, bytes: &[u8]) {
    for at in places(disk, structure) {
        let mut copy = disk.image[at..at + structure.sealed].to_vec();
        copy[field..field + bytes.len()].copy_from_slice(bytes);
        let crc = crc32c_without(&copy, structure.crc);
        copy[structure.crc..structure.crc + 4].copy_from_slice(&crc.to_le_bytes());
        disk.forge((at / 512) as u64, &copy);
    }
}

/// Changes the superblocks on these members, each as it is there. Returns whether any of the new ones is sound; the
/// others stay.
pub fn forge_superblocks(disks: &mut [Disk], change: impl Fn(&mut Superblock)) -> bool {
    let mut forged = false;
    for disk in disks {
        for at in places(disk, &SUPERBLOCK) {
            let found = Superblock::decode(&disk.image[at..at + SUPERBLOCK_BYTES]);
            let mut superblock = found.expect("an engine wrote it");
            change(&mut superblock);
            if let Ok(pages) = superblock.encode() {
                let bytes: Vec<u8> = pages.iter().flat_map(|page| page.to_vec()).collect();
                disk.forge((at / 512) as u64, &bytes);
                forged = true;
            }
        }
    }
    forged
}

/// A start, and work after it if it serves; whether it does.
fn start_and_work(array: &mut Array, decides_contents: bool) -> bool {
    let mode = StartMode {
        accept_loss: decides_contents,
        ..StartMode::default()
    };
    let start = array.order(Command::Start(mode));
    array.run();
    // A start may wait for a task of another set.
    array.pass(Nanos::from_secs(60));
    if array.answer(start).expect("a start ends").is_err() {
        return false;
    }
    if !decides_contents {
        read_all(array);
    }
    let _ = array.written(CHUNK, 8);
    for command in [Command::Scrub(ScrubMode::Check), Command::Stop] {
        array.order(command);
        array.run();
        array.pass(Nanos::from_millis(200));
    }
    true
}

pub fn read_all(array: &mut Array) {
    for lba in (0..array.layout.size_sectors()).step_by(8) {
        if let Ok(found) = array.read(lba, 8) {
            assert!(
                found == array.wanted(lba, 8),
                "8 sectors at {lba} read wrongly"
            );
        }
    }
}

/// A field, how many bytes it has, what it gets, on how many members that is, and which member is missing meanwhile.
type Case = (usize, usize, u64, usize, Option<usize>);

/// Every value in every place of a field, on one of these members, on all, and on one while another is missing.
fn cases(structure: &Structure, sample: &[u8], members: &Range<usize>) -> Vec<Case> {
    let mut cases = Vec::new();
    for (field, width) in structure.fields.of(sample) {
        for value in values(width, number(sample, field, width)) {
            let ways = [(1, None), (members.len(), None), (1, Some(members.end - 1))];
            cases.extend(ways.map(|(on, missing)| (field, width, value, on, missing)));
        }
    }
    cases
}

pub fn sweep(array: &mut Array, members: Range<usize>, structure: &Structure) {
    let disks = &array.disks[members.clone()];
    let sample = disks.iter().find_map(|disk| sample(disk, structure));
    let sample = sample.expect("there are such structures");
    let cases = thinned(cases(structure, sample, &members));
    attempt(array, members, structure, cases);
}

/// Whether a field of a superblock says where the data of its own member lie.
fn says_where(disk: &Disk, field: usize) -> bool {
    let bytes = sample(disk, &SUPERBLOCK).unwrap_or_default();
    let entries = superblock::at::REGIONS;
    let offset = number(bytes, entries, 4) as usize;
    let count = number(bytes, entries + 6, 2) as usize;
    (offset..offset + count * superblock::REGION_BYTES).contains(&field)
}

/// What stands in a structure of this kind.
fn sample<'a>(disk: &'a Disk, structure: &Structure) -> Option<&'a [u8]> {
    let at = *places(disk, structure).first()?;
    Some(&disk.image[at..at + structure.sealed])
}

/// None of these cases panics, and none that must not lets a user read what was not written.
fn attempt(
    array: &mut Array,
    members: Range<usize>,
    structure: &Structure,
    cases: impl IntoIterator<Item = Case>,
) {
    let (disks, model) = (array.disks.clone(), array.model.clone());
    let (mut wrong, mut served) = (Vec::new(), 0);
    for (field, width, value, on, missing) in cases {
        array.disks.clone_from(&disks);
        array.model.clone_from(&model);
        let there = array.disks[members.clone()].iter_mut();
        let there = there.filter(|disk| sample(disk, structure).is_some());
        let bytes = &value.to_le_bytes()[..width];
        there
            .take(on)
            .for_each(|disk| tamper(disk, structure, field, bytes));
        if let Some(missing) = missing {
            array.take_out(missing);
        }
        array.die();
        let decides = match structure.decides {
            Decides::None => missing.is_some(),
            Decides::All => {
                missing.is_some() || on > 1 || says_where(&array.disks[members.start], field)
            }
            Decides::One => true,
        };
        let work = || start_and_work(array, decides);
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(serves) => served += usize::from(serves),
            Err(_) => wrong.push(format!(
                "{value:#x} in {width} bytes at {field} on {on}, without {missing:?}"
            )),
        }
    }
    (array.disks, array.model) = (disks, model);
    array.die();
    assert!(
        served > 0 || structure.decides != Decides::None,
        "some values are in range"
    );
    assert!(wrong.is_empty(), "{} cases: {wrong:#?}", wrong.len());
}

const CASES: usize = 250;

/// At most [`CASES`] cases, at even distances. With `RESTRIPE_DEEP` set: all cases.
fn thinned(cases: Vec<Case>) -> impl Iterator<Item = Case> {
    let deep = std::env::var_os("RESTRIPE_DEEP").is_some();
    let mut step = if deep { 1 } else { cases.len().div_ceil(CASES) };
    // Each of the three ways comes in turn.
    while step > 1 && step.is_multiple_of(3) {
        step += 1;
    }
    cases.into_iter().step_by(step)
}

fn sweep_set(setup: Setup, structure: &Structure) {
    let mut array = crashed(setup);
    let members = 0..array.disks.len();
    sweep(&mut array, members, structure);
}

fn four() -> Setup {
    raid5(4)
}

#[test]
fn log_record_out_of_range_is_ignored() {
    sweep_set(four(), &RECORD);
}

#[test]
fn done_list_out_of_range_is_ignored() {
    sweep_set(four(), &DONE_LIST);
}

#[test]
fn map_page_out_of_range_is_ignored_or_refused() {
    for kind in [MapKind::Written, MapKind::Intent, MapKind::Lost] {
        sweep_set(four(), &map(kind));
    }
}

#[test]
fn superblock_out_of_range_is_refused() {
    sweep_set(four(), &SUPERBLOCK);
}

pub fn superblocks(fields: fn(&[u8]) -> Vec<(usize, usize)>) -> Structure {
    Structure {
        fields: Fields::Found(fields),
        ..SUPERBLOCK
    }
}

/// A set whose tables have entries of each kind: members that failed and were rebuilt, a task under way, leases.
pub fn varied() -> Array {
    let mut setup = raid5(4).spares(2).lending(60);
    setup.rows = 16;
    let mut array = setup.info(|info| info.sectors = 2048).start();
    let (name, sectors) = (LeaseName::new("a").expect("a name"), 20);
    array
        .command(Command::Lease(LeaseCommand::Add { name, sectors }))
        .expect("there is space");
    array.written(0, 300).expect("written");
    array.flushed();
    array.order(Command::Fail(Member(1)));
    until_cut(&mut array, 60);
    array
}

/// Completes `steps` operations, then cuts the power while a task runs.
pub fn until_cut(array: &mut Array, steps: usize) {
    for _ in 0..steps {
        match array.held.is_empty() {
            true => array.pass(Nanos::from_millis(10)),
            false => array.end_first(Ok(())),
        }
    }
    assert!(!array.engine.status().tasks.is_empty());
    array.crash(|_| true);
}

#[test]
fn superblock_tables_out_of_range_are_refused() {
    let mut array = varied();
    sweep(&mut array, 0..6, &superblocks(tables));
    sweep(&mut array, 0..6, &superblocks(extras));
}

#[test]
fn superblock_with_groups_out_of_range_is_refused() {
    let mut array = three_by_three().spares(1).start();
    array.written(0, 100).expect("written");
    array.order(Command::Fail(Member(4)));
    until_cut(&mut array, 60);
    sweep(&mut array, 0..10, &superblocks(tables));
    sweep(&mut array, 0..10, &superblocks(extras));
}

/// A growth that was cut.
pub fn of_growth(command: Command) -> Array {
    let mut setup = Setup::new(Level::Raid4, 3).spares(1);
    setup.rows = 16;
    let mut array = setup.info(|info| info.sectors = 2048).start();
    let size = array.layout.size_sectors();
    array.written(0, size).expect("written");
    array.flushed();
    array.order(command);
    until_cut(&mut array, 60);
    array
}

#[test]
fn superblock_of_a_growth_out_of_range_is_refused() {
    for command in [Command::Reshape { by: 1 }, Command::Grow { by: 1 }] {
        let mut array = of_growth(command);
        sweep(&mut array, 0..4, &superblocks(tables));
        sweep(&mut array, 0..4, &superblocks(extras));
        sweep(&mut array, 0..4, &SUPERBLOCK);
    }
}

/// The fields of the last scrub.
fn of_last_scrub(_: &[u8]) -> Vec<(usize, usize)> {
    use superblock::last_scrub::place;
    let bytes = (place::SCRUB_MODE..place::SCRUB_OTHERS).map(|at| (at, 1));
    let counters = (place::SCRUB_BEGUN..place::SCRUB_MEMBERS).step_by(8);
    let members = [place::SCRUBBED_WRONG, place::SCRUBBED_UNREADABLE];
    let members = members.map(|at| (place::SCRUB_MEMBERS + at, 4));
    let fields = bytes.chain(counters.map(|at| (at, 8))).chain(members);
    let of_tail = |(at, width)| (superblock::tail::places::LAST_SCRUB + at, width);
    fields.map(of_tail).collect()
}

/// A scrub that goes on counts further from what is on record.
#[test]
fn last_scrub_out_of_range_is_ignored_and_its_counters_have_no_overflow() {
    let mut array = raid5(4).start();
    let size = array.layout.size_sectors();
    array.written(0, size).expect("written");
    array.flushed();
    let start = array.data_start();
    for row in [0, 3, 7] {
        array.spoil(1, start + row * CHUNK, 1);
    }
    array.order(Command::Scrub(ScrubMode::Check));
    array.run_but("read data");
    array.crash(|_| true);
    assert!(array.disks.iter().all(has_last_scrub));
    sweep(&mut array, 0..4, &superblocks(of_last_scrub));
}

fn has_last_scrub(disk: &Disk) -> bool {
    let compatible = |at: &usize| number(&disk.image[*at..], superblock::at::COMPATIBLE, 8);
    let copies = places(disk, &SUPERBLOCK);
    copies.iter().any(|at| compatible(at) & 2 != 0)
}

/// As a program leaves it that does not know the record.
pub fn forget_last_scrub(disk: &mut Disk) {
    let compatible = superblock::at::COMPATIBLE;
    let bytes = sample(disk, &SUPERBLOCK).expect("it has one");
    let others = number(bytes, compatible, 8) & !2;
    tamper(disk, &SUPERBLOCK, compatible, &others.to_le_bytes());
}

/// Where the entry of a region of this kind lies in a superblock.
fn region_entry(bytes: &[u8], kind: u64) -> usize {
    use superblock::at;
    let offset = number(bytes, at::REGIONS, 4) as usize;
    let mut entries = (offset..).step_by(superblock::REGION_BYTES);
    entries
        .find(|entry| number(bytes, entry + at::REGION_KIND, 2) == kind)
        .expect("there is such a region")
}

/// A log region that no record fits was taken, and the first write ended the daemon.
#[test]
fn log_region_without_room_for_a_record_is_refused_by_name() {
    let mut array = crashed(four());
    let bytes = sample(&array.disks[0], &SUPERBLOCK).expect("it has one");
    let field = region_entry(bytes, 6) + superblock::at::REGION_SECTORS;
    for sectors in [8_u64, 16, 152] {
        for disk in &mut array.disks {
            tamper(disk, &SUPERBLOCK, field, &sectors.to_le_bytes());
        }
        array.die();
        let error = MetaError::Field {
            name: "sectors of the log",
            value: sectors,
        };
        let member = Member(0);
        assert_eq!(array.start(), Err(CommandError::Unsound { member, error }));
    }
}

/// Spare partitions that a member's own regions do not have. A start names the member if the tables count on one of them,
/// and serves the right bytes if not.
#[test]
fn regions_that_the_tables_do_not_fit_are_refused_by_name() {
    let mut array = three_by_three().spares(1).start();
    let size = array.layout.size_sectors();
    array.written(0, size).expect("written");
    array.flushed();
    array.order(Command::Fail(Member(4)));
    until_cut(&mut array, 60);
    let lines = superblock_on(&array, 0).placement;
    let hosts = lines.iter().filter(|line| line.incoming_region > 0);
    let hosts: Vec<u16> = hosts.filter_map(|line| line.incoming).collect();
    assert_eq!(hosts, [3, 5]);
    let disks = array.disks.clone();
    for member in (0..9).filter(|member| *member != 4) {
        array.disks.clone_from(&disks);
        let disk = &mut array.disks[usize::from(member)];
        let bytes = sample(disk, &SUPERBLOCK).expect("it has one");
        let field = region_entry(bytes, 9) + superblock::at::REGION_SECTORS;
        tamper(disk, &SUPERBLOCK, field, &8_u64.to_le_bytes());
        array.die();
        let started = array.start();
        if hosts.contains(&member) {
            let member = Member(member);
            let error = MetaError::Field {
                name: "placement region",
                value: 1,
            };
            assert_eq!(started, Err(CommandError::Unsound { member, error }));
        } else {
            assert_eq!(started, Ok(()), "member {member}");
            array.verify();
            array.run_tasks();
            array.verify();
        }
    }
}

/// A record that fits no row leaves a word, and names whose log it is in.
#[test]
fn log_record_that_is_ignored_is_told() {
    let mut array = crashed(four());
    tamper(
        &mut array.disks[1],
        &RECORD,
        record::ROW,
        &999_u64.to_le_bytes(),
    );
    array.die();
    array.start().expect("it goes on without it");
    let told = |fact: &Fact| matches!(fact, Fact::Ignored { member, what: "log records", .. } if *member == Member(1));
    assert!(array.has_fact(told), "{:?}", array.facts);
    read_all(&mut array);
}
