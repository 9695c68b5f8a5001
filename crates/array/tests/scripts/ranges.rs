//! A checksum is no proof of range: structures that are sound but for one field, at every place of a field and with values
//! around every limit, each through a whole start of the engine and some work after it.
//!
//! A start ends in service or in an error, and service goes on. Where the field does not say what is written where,
//! every byte that is read is right.

use crate::shell::{Array, CHUNK, Disk, Setup, raid5};
use restripe_array::meta::crc::crc32c_without;
use restripe_array::meta::log::{
    DONE_MAGIC, HEADER_BYTES as RECORD_BYTES, MAGIC as RECORD_MAGIC, at as record, done_at,
};
use restripe_array::meta::pages::{MAGIC as MAP_MAGIC, MapKind};
use restripe_array::meta::superblock::{self, SUPERBLOCK_BYTES};
use restripe_array::{Command, Nanos, StartMode};
use std::panic::{AssertUnwindSafe, catch_unwind};

const PAGE: usize = 4096;

/// A kind of structure on the members.
struct Structure {
    magic: [u8; 8],
    /// Byte that must have this value, beside the magic.
    kind: Option<(usize, u8)>,
    /// Bytes that the checksum covers, and where it stands.
    sealed: usize,
    crc: usize,
    /// Where its fields lie, and how many bytes each has.
    fields: &'static [(usize, usize)],
    /// Whether a wrong value may change what the array says that its users wrote.
    decides_contents: bool,
}

const RECORD: Structure = Structure {
    magic: RECORD_MAGIC,
    kind: None,
    sealed: RECORD_BYTES,
    crc: 12,
    fields: &[
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
    ],
    decides_contents: false,
};

const DONE_LIST: Structure = Structure {
    magic: DONE_MAGIC,
    kind: None,
    sealed: PAGE,
    crc: 12,
    fields: &[
        (done_at::LIST_VERSION, 8),
        (done_at::FLOOR, 8),
        (done_at::COUNT, 8),
        (done_at::SEQUENCES, 8),
        (done_at::SEQUENCES + 8, 8),
    ],
    decides_contents: false,
};

fn map(kind: MapKind) -> Structure {
    Structure {
        magic: MAP_MAGIC,
        kind: Some((10, kind.code() as u8)),
        sealed: PAGE,
        crc: 12,
        // The first of its body: a count and an extent, a scale and an epoch, or bits.
        fields: &[(32, 8), (40, 4), (64, 8), (72, 8), (80, 8)],
        decides_contents: kind == MapKind::Written,
    }
}

const SUPERBLOCK: Structure = Structure {
    magic: superblock::MAGIC,
    kind: None,
    sealed: SUPERBLOCK_BYTES,
    crc: superblock::at::CRC,
    fields: &[
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
    ],
    decides_contents: true,
};

/// Values around what numbers of these arrays are held against: slots, rows, sectors of a chunk, a log and a member,
/// what a counter may be, and the ends of each width.
fn values(width: usize) -> Vec<u64> {
    let limits = [
        0,
        4,
        8,
        CHUNK,
        128,
        160,
        1024,
        1 << 16,
        1 << 31,
        1 << 32,
        1 << 62,
        1 << 63,
    ];
    let max = u64::MAX >> (64 - 8 * width);
    let around = limits
        .into_iter()
        .flat_map(|limit: u64| [limit.saturating_sub(1), limit, limit + 1]);
    let mut values: Vec<u64> = around.chain([max]).filter(|value| *value <= max).collect();
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

/// A start, and work after it if it serves; whether it does.
fn start_and_work(array: &mut Array, decides_contents: bool) -> bool {
    let mode = StartMode {
        accept_loss: decides_contents,
        ..StartMode::default()
    };
    if array.command(Command::Start(mode)).is_err() {
        return false;
    }
    if !decides_contents {
        read_all(array);
    }
    let _ = array.written(CHUNK, 8);
    array.flush();
    array.run();
    let _ = array.command(Command::Scrub { repair: false });
    for _ in 0..4 {
        array.pass(Nanos::from_millis(200));
    }
    true
}

fn read_all(array: &mut Array) {
    for lba in (0..array.layout.size_sectors()).step_by(8) {
        if let Ok(found) = array.read(lba, 8) {
            assert!(
                found == array.wanted(lba, 8),
                "8 sectors at {lba} read wrongly"
            );
        }
    }
}

/// Every value in every place of a field, on one member, on all, and on one while another is missing.
fn sweep(setup: &Setup, structure: &Structure) {
    let mut array = crashed(setup.clone());
    let (disks, model) = (array.disks.clone(), array.model.clone());
    let found = disks
        .iter()
        .filter(|disk| !places(disk, structure).is_empty());
    assert!(found.count() > 0, "there are such structures");
    let (mut wrong, mut served) = (Vec::new(), 0);
    for &(field, width) in structure.fields {
        for value in values(width) {
            for (on, missing) in [(1, None), (disks.len(), None), (1, Some(disks.len() - 1))] {
                array.disks.clone_from(&disks);
                array.model.clone_from(&model);
                let bytes = &value.to_le_bytes()[..width];
                let of_kind = |disk: &&mut Disk| !places(disk, structure).is_empty();
                let there = array.disks.iter_mut().filter(of_kind).take(on);
                there.for_each(|disk| tamper(disk, structure, field, bytes));
                if let Some(missing) = missing {
                    array.take_out(missing);
                }
                array.die();
                let decides = structure.decides_contents || missing.is_some();
                let work = || start_and_work(&mut array, decides);
                match catch_unwind(AssertUnwindSafe(work)) {
                    Ok(serves) => served += usize::from(serves),
                    Err(_) => wrong.push(format!(
                        "{value:#x} in {width} bytes at {field} on {on}, without {missing:?}"
                    )),
                }
            }
        }
    }
    assert!(served > 0, "some values are in range");
    assert!(wrong.is_empty(), "{} cases: {wrong:#?}", wrong.len());
}

fn four() -> Setup {
    raid5(4)
}

#[test]
fn log_record_out_of_range_is_ignored() {
    sweep(&four(), &RECORD);
}

#[test]
fn done_list_out_of_range_is_ignored() {
    sweep(&four(), &DONE_LIST);
}

#[test]
fn map_page_out_of_range_is_ignored_or_refused() {
    for kind in MapKind::ALL {
        if kind != MapKind::Redirected && kind != MapKind::Heat {
            sweep(&four(), &map(kind));
        }
    }
}

#[test]
fn superblock_out_of_range_is_refused() {
    sweep(&four(), &SUPERBLOCK);
}
