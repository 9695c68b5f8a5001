//! The same for what ties an array to its surrogate: records and anchors of the log, slots of its buffer, the redirected map, heat,
//! and the superblocks of all three sets.

use crate::ranges::{
    Decides, Fields, SUPERBLOCK, Structure, extras, map, number, superblocks, sweep, tables,
};
use crate::shell::{Array, CHUNK, Setup, raid1, raid5};
use restripe_array::layout::Level;
use restripe_array::meta::{MapKind, Partner, PartnerRole, WriteHole};
use restripe_array::{Command, HeatLimits, Nanos, Uuid};
use restripe_tier::overlay::format::{anchor, record, slot};
use restripe_tier::{Destage, Redirect};
use std::ops::Range;

pub const HOME: Uuid = Uuid([7; 16]);
pub const LOG: Uuid = Uuid([9; 16]);
pub const BUFFER: Uuid = Uuid([11; 16]);

struct Sets {
    array: Array,
    home: Range<usize>,
    log: Range<usize>,
    buffer: Range<usize>,
}

pub fn beside(
    mut setup: Setup,
    rows: u64,
    array: Uuid,
    first: u8,
    role: PartnerRole,
    of: Uuid,
) -> Setup {
    setup.rows = rows;
    let members = setup.options.members.len() as u8;
    setup.options.array = array;
    setup.options.uuids = (first..first + members).map(|n| Uuid([n; 16])).collect();
    setup.options.partner = Some(Partner::new(role, of));
    let room = setup.rows * CHUNK;
    setup.info(|info| info.sectors = 1536 + room)
}

/// With a log disk, or a code cache, that perhaps has a buffer. What users wrote lies in the log, or in the buffer, alone.
fn redirecting(redirect: Redirect, buffered: bool) -> Sets {
    let mut home = Setup::new(Level::Raid10 { copies: 2 }, 4);
    home.options.partner = Some(Partner::new(PartnerRole::Main, LOG));
    home.heat = HeatLimits {
        zone_sectors: 2 * 2 * CHUNK,
        epoch: Nanos::from_secs(600),
    };
    let log = match redirect {
        Redirect::Graid => Setup::new(Level::Raid0, 1).hole(WriteHole::None),
        _ => raid5(3).hole(WriteHole::WholeRows),
    };
    let mut log = beside(log, 96, LOG, 100, PartnerRole::Surrogate, HOME);
    log.options.buffered = buffered;
    let buffer = beside(
        raid1(2).hole(WriteHole::None),
        256,
        BUFFER,
        120,
        PartnerRole::Buffer,
        HOME,
    );
    let (logs, buffers) = (log.options.members.len(), if buffered { 2 } else { 0 });
    let mut array = home.made();
    let buffer = buffered.then(|| buffer.made());
    array.join_buffered(log.made(), buffer, redirect, Destage::default());
    array.start().expect("all sets are whole");
    array.run();
    for lba in [0, 2 * CHUNK, 40, 100] {
        array.written(lba, 12).expect("written");
        array.flushed();
    }
    array.written(64, 8).expect("written");
    array.crash(|_| true);
    Sets {
        array,
        home: 0..4,
        log: 4..4 + logs,
        buffer: 4 + logs..4 + logs + buffers,
    }
}

fn page(magic: [u8; 8], fields: fn(&[u8]) -> Vec<(usize, usize)>) -> Structure {
    Structure {
        magic,
        kind: None,
        sealed: 4096,
        crc: 12,
        fields: Fields::Found(fields),
        // Which bytes of which sectors a user wrote is just what they say.
        decides: Decides::One,
    }
}

fn record_fields(bytes: &[u8]) -> Vec<(usize, usize)> {
    use record::at;
    let mut fields = vec![
        (at::COUNT, 2),
        (at::EPOCH, 8),
        (at::SEQUENCE, 8),
        (at::DURABLE, 8),
        (at::AT, 8),
        (at::PAYLOAD_SECTORS, 4),
        (at::PAYLOAD_CRC, 4),
        (slot::at::VERSION, 4),
        (slot::at::CLOSED, 1),
    ];
    for index in 0..number(bytes, at::COUNT, 2) as usize {
        let extent = at::EXTENTS + index * record::EXTENT_BYTES;
        fields.extend([
            (extent + at::EXTENT_HOME, 8),
            (extent + at::EXTENT_SECTORS, 4),
            (extent + at::EXTENT_KIND, 1),
        ]);
    }
    fields
}

fn anchor_fields(_: &[u8]) -> Vec<(usize, usize)> {
    use anchor::at;
    let mut fields = vec![
        (at::EPOCH, 8),
        (at::PAGE_VERSION, 8),
        (at::DURABLE, 8),
        (at::INDEX, 4),
        (at::COUNT, 4),
        (at::SEGMENT_SECTORS, 4),
        (at::SEGMENTS, 4),
    ];
    for index in [0, 1, 2] {
        let entry = at::ENTRIES + index * anchor::ENTRY_BYTES;
        fields.extend([
            (entry + at::ENTRY_OBSOLETE_BELOW, 8),
            (entry + at::ENTRY_END, 8),
        ]);
    }
    fields
}

fn kinds() -> [Sets; 3] {
    [
        redirecting(Redirect::Graid, false),
        redirecting(Redirect::Reraid, false),
        redirecting(Redirect::Reraid, true),
    ]
}

#[test]
fn log_of_a_surrogate_out_of_range_is_ignored_or_refused() {
    for mut sets in kinds() {
        if sets.buffer.is_empty() {
            let records = page(record::MAGIC, record_fields);
            sweep(&mut sets.array, sets.log.clone(), &records);
        }
        let anchors = page(anchor::MAGIC, anchor_fields);
        sweep(&mut sets.array, sets.log, &anchors);
    }
}

#[test]
fn slot_of_a_buffer_out_of_range_is_ignored_or_refused() {
    let mut sets = redirecting(Redirect::Reraid, true);
    let slots = page(slot::MAGIC, record_fields);
    sweep(&mut sets.array, sets.buffer, &slots);
}

#[test]
fn maps_of_an_array_with_a_surrogate_out_of_range_are_ignored_or_refused() {
    for mut sets in kinds() {
        let redirected = Structure {
            decides: Decides::One,
            ..map(MapKind::Redirected)
        };
        sweep(&mut sets.array, sets.home, &redirected);
    }
}

#[test]
fn heat_out_of_range_is_ignored() {
    let mut sets = redirecting(Redirect::Graid, false);
    sets.array.start().expect("starts");
    sets.array.command(Command::Stop).expect("stops");
    sweep(&mut sets.array, sets.home, &map(MapKind::Heat));
}

#[test]
fn superblocks_of_three_sets_out_of_range_are_refused() {
    let mut sets = redirecting(Redirect::Reraid, true);
    for members in [sets.home, sets.log, sets.buffer] {
        for structure in [superblocks(extras), superblocks(tables), SUPERBLOCK] {
            // The last write was in memory alone when power was cut.
            let decides = Decides::One;
            let structure = Structure {
                decides,
                ..structure
            };
            sweep(&mut sets.array, members.clone(), &structure);
        }
    }
}
