//! Log records of a write: one for each parity that is there, durable before anything is written in place.

use super::rows::Rows;
use super::table::{PARTIALS, Phase};
use crate::contract::{BufRef, Bug, Class, IoOp, Segment};
use crate::durability::parity_log::Entry;
use crate::layout::{CellSet, RowMap};
use crate::members::ops::{Owner, SliceOp};
use crate::units::{Member, PAGE_BYTES, PAGE_SECTORS, SECTOR_BYTES};
use restripe_format::meta::log::{self, LogRecord, PayloadKind};

/// What a pass does next.
pub(super) enum Next {
    /// It waits for its record, or for metadata to move.
    Wait,
    /// All that has to be on record is: it is written in place.
    Write,
    /// It is outdated, and planned anew.
    Plan,
}

/// Writes the pass's record to the parity's members, when there is room and no older record forbids it.
pub(super) fn log_pass(rows: &mut Rows, id: u32) -> Next {
    if rows.logged() && !rows.settled() {
        // A crash now would take the failed member for a current one: what it misses must not be written yet.
        return await_log(rows, id);
    }
    let map = rows.slices[id].map;
    if pass_outdated(rows, id, &map) {
        return Next::Plan;
    }
    let holders = log_holders(rows, &map);
    if !rows.logged() || holders.iter().all(Option::is_none) {
        return Next::Write;
    }
    let slice = &rows.slices[id];
    let mut partials = PARTIALS.into_iter();
    let partial = partials.find_map(|extra| slice.extra_ref(extra));
    let payload_sectors = partial.map_or(0, |_| slice.band_sectors);
    let modified = pass_with_zeroed(rows, id).0;
    let slice = &rows.slices[id];
    let entry = Entry {
        row: map.row,
        start: slice.band,
        sectors: slice.band_sectors,
        modified,
        payload_sectors,
    };
    if !rows.log_ready(&holders, &entry) {
        return await_log(rows, id);
    }
    write_records(rows, id, &map, &holders, &entry);
    Next::Wait
}

/// The pass's record is on every member that is there. A member that failed meanwhile may lack the record. As
/// long as a start would take that member for a current one, its log would say that nothing was written in
/// place. Nothing of the pass is in place yet: an outdated pass is planned anew, and its next record waits
/// until this one is over.
pub(super) fn recorded(rows: &mut Rows, id: u32) -> Next {
    if !rows.settled() {
        return await_log(rows, id);
    }
    let map = rows.slices[id].map;
    if pass_outdated(rows, id, &map) {
        end(rows, id);
        Next::Plan
    } else {
        Next::Write
    }
}

/// The cells whose content this pass changes: as a bit set for the log, and those of them that are zeroed.
pub(super) fn pass_with_zeroed(rows: &mut Rows, id: u32) -> (u32, CellSet) {
    let map = rows.slices[id].map;
    let live = rows.live_cells(&map);
    let slice = &mut rows.slices[id];
    let zeroed = slice.zeroed.intersection(live).minus(slice.pass);
    (slice.pass.union(zeroed).0, zeroed)
}

/// The pass is written, or given up: its record counts no more.
pub(super) fn end(rows: &mut Rows, id: u32) {
    if let Some(sequence) = rows.slices[id].record.take() {
        let flushes = rows.flusher.begun;
        rows.logs.finished(sequence, flushes);
        if rows.planted(Bug::LogReusedEarly) {
            rows.logs.flushed(flushes + 1);
        }
    }
}

/// Whether a member failed since the pass was chosen, and one of its cells must not be written together with
/// others.
fn pass_outdated(rows: &mut Rows, id: u32, map: &RowMap) -> bool {
    let pass = rows.slices[id].pass;
    let planted = rows.planted(Bug::DegradedInOneStep);
    let whole = rows.whole_rows() && pass == map.data_set();
    let outdated = pass.len() > 1 && !pass.within(rows.firm_cells(map));
    rows.layout.parity() && outdated && !whole && !planted
}

/// Leaves a slice before its record until metadata moves.
fn await_log(rows: &mut Rows, id: u32) -> Next {
    if rows.slices[id].phase != Phase::Logging {
        rows.slices.set_phase(id, Phase::Logging);
    }
    rows.slices.wait(id);
    Next::Wait
}

/// The members whose logs take a record: P's, then Q's, with those being filled to replace them.
fn log_holders(rows: &Rows, map: &RowMap) -> [Option<Member>; 4] {
    let mut holders = [None; 4];
    for (index, parity) in [map.p(), map.q()].into_iter().enumerate() {
        if let Some(parity) = parity {
            let homes = rows.homes(map.cells[parity as usize].slot, map.row);
            [holders[2 * index], holders[2 * index + 1]] =
                homes.write.map(|home| home.map(|home| home.member));
        }
    }
    holders
}

fn write_records(
    rows: &mut Rows,
    id: u32,
    map: &RowMap,
    holders: &[Option<Member>; 4],
    entry: &Entry,
) {
    let sequence = rows.logs.take_sequence();
    rows.slices.set_phase(id, Phase::Logging);
    let slice = &mut rows.slices[id];
    slice.record = Some(sequence);
    slice.several |= slice.durable && entry.modified.count_ones() > 1;
    let has = |parity: usize| holders[2 * parity].or(holders[2 * parity + 1]).is_some();
    let copies = u8::from(has(0)) * log::COPY_P + u8::from(has(1)) * log::COPY_Q;
    for (index, member) in holders.iter().enumerate() {
        let Some(member) = *member else { continue };
        let parity = index / 2;
        let (kind, extra) = ([PayloadKind::P, PayloadKind::Q][parity], PARTIALS[parity]);
        let record = LogRecord {
            array: rows.superblock.array,
            sequence,
            floor: rows.logs.floor_of(member).min(sequence),
            generation: rows.superblock.generation,
            row: map.row.0,
            offset: entry.start as u32,
            sectors: entry.sectors as u32,
            modified: entry.modified,
            copies,
            kind,
            payload_sectors: entry.payload_sectors as u32,
            payload_crc: match entry.payload_sectors {
                0 => 0,
                _ => rows.slices[id].checksums[parity],
            },
        };
        let payload = rows.slices[id]
            .extra_ref(extra)
            .filter(|_| entry.payload_sectors > 0);
        write_record(rows, id, member, parity as u8, &record, payload, entry);
    }
}

fn write_record(
    rows: &mut Rows,
    id: u32,
    member: Member,
    parity: u8,
    record: &LogRecord,
    payload: Option<BufRef>,
    entry: &Entry,
) {
    let mut page = rows.ops.boxes.page();
    log::encode(record, &mut page);
    let at = rows.devices[member.0 as usize].places.log
        + rows.logs.place(member, record.sequence, entry);
    let padded = entry.payload_sectors.next_multiple_of(PAGE_SECTORS);
    let (owner, class) = (Owner::Slice(id, SliceOp::Log(parity)), Class::Metadata);
    let sectors = PAGE_SECTORS + padded;
    rows.slices[id].pending += 1;
    rows.device_io(owner, member, IoOp::Write, at, sectors, class, |io| {
        io.durable = true;
        io.segments.push(Segment::Page(page));
        if let Some(payload) = payload {
            io.segments.push(Segment::Buf(payload));
            let rest = (padded * SECTOR_BYTES) as u32 - payload.bytes;
            if rest > 0 {
                debug_assert!((rest as usize) < PAGE_BYTES);
                io.segments.push(Segment::Zero(rest));
            }
        }
    });
}
