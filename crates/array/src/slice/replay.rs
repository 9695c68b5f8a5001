//! Makes part of a row consistent after a crash, from the log record of the write that was cut short.
//!
//! Which cases there are, and why these are all, is in `start/recover.rs`.

use super::issue::{OUTPUTS, Term};
use super::rows::Rows;
use super::table::{Extra, PARTIALS, Phase};
use crate::contract::{BufRef, ComputeOp, IoOp, Segment};
use crate::layout::{CellSet, RowMap};
use crate::members::ops::{Owner, SliceOp};
use crate::task::table::Cut;
use crate::units::{Row, SECTOR_BYTES, Slot};
use restripe_format::meta::superblock::MemberRole;

pub(super) fn step(rows: &mut Rows, id: u32, record: u32) {
    let unrecorded = !rows.slices[id].zeroed.is_empty() && rows.lost.dirty();
    match rows.slices[id].phase {
        // The start has been refused: what it found out so far counts no more.
        Phase::Preparing | Phase::Reading if !rows.below.starts() => rows.band_done(id),
        Phase::Preparing if unrecorded => rows.slices.await_metadata(id),
        Phase::Preparing | Phase::Reading => plan(rows, id, record),
        Phase::Checksumming => judge(rows, id, record),
        Phase::Combining => rows.write_reset(id, None),
        Phase::Writing => rows.band_done(id),
        other => unreachable!("a replay is never {other:?}"),
    }
}

fn cut(rows: &Rows, record: u32) -> Option<Cut> {
    let replay = rows.tasks.replay(record);
    replay.cuts.get(replay.current).copied()
}

/// The newest that is on every log it was meant for, from the one in question on.
fn complete_cut(rows: &mut Rows, record: u32) -> Option<Cut> {
    let replay = &mut rows.tasks.replays[record as usize];
    let left = replay.cuts.get(replay.current..)?;
    replay.current += left.iter().position(|cut| cut.complete)?;
    replay.cuts.get(replay.current).copied()
}

fn plan(rows: &mut Rows, id: u32, record: u32) {
    let map = rows.slices[id].map;
    let here = rows.readable(id);
    let data = map.data_set().minus(rows.slices[id].zeroed);
    if data.within(here) {
        return rows.plan_reset(id, &map);
    }
    // Without a record that proves durable nothing was written in place, and the row is as it was.
    let Some(cut) = complete_cut(rows, record) else {
        return rows.band_done(id);
    };
    let modified = CellSet(cut.modified).intersection(data);
    let lost = modified.minus(here);
    // A medium that errs here and there has the rest of its cell, which parity was not made for.
    if !lost.intersection(rows.live_cells(&map)).is_empty() && rows.narrow(id) {
        return;
    }
    let parities = map.parity_set().intersection(here);
    let decodable = CellSet(cut.modified).len() == 1 && !parities.is_empty();
    if !lost.is_empty() && !decodable {
        // Lost only if the record proves whole: else nothing was in flight.
        if !partials_verified(rows, id, &cut) {
            load(rows, id, &cut, CellSet::EMPTY);
        } else if rows.ties.is_part {
            // They need not be decoded: a log may end with a torn record, and no client was answered for a
            // record behind it. As zeros they are no record.
            let slice = &mut rows.slices[id];
            slice.zeroed = slice.zeroed.union(lost);
            plan(rows, id, record);
        } else if !rows.narrow(id) {
            lose(rows, id, lost);
        }
        return;
    }
    // Nor has parity, of which the other one would then decide alone and leave this one as it is.
    let erring = map
        .parity_set()
        .intersection(rows.live_cells(&map))
        .minus(here);
    if !lost.is_empty() && !erring.is_empty() && rows.narrow(id) {
        return;
    }
    let telling = match lost.is_empty() {
        true => CellSet::EMPTY,
        false => parities,
    };
    load(rows, id, &cut, modified.minus(lost).union(telling));
}

/// These cells cannot be decoded. If the member of one could be added, or nothing may be lost, the start is
/// refused.
fn lose(rows: &mut Rows, id: u32, cells: CellSet) {
    let slice = &rows.slices[id];
    let (map, band, sectors) = (slice.map, slice.band, slice.band_sectors);
    let absent = |cell: &u8| merely_absent(rows, map.cells[*cell as usize].slot, map.row);
    let asks = rows.may_lose_nothing() || cells.iter().any(|cell| absent(&cell));
    if rows.mode.accept_loss || !asks {
        return rows.declare_lost(id, cells);
    }
    let addressed = |cell: &u8| rows.layout.is_addressed(map.row, *cell);
    let cells = cells.intersection(map.data_set()).iter().filter(addressed);
    for cell in cells.collect::<CellSet>().iter() {
        let lba = rows.layout.lba(map.row, cell, band);
        rows.would_lose(lba, sectors);
    }
    rows.band_done(id);
}

/// Whether the slot's member is current, and only not here.
fn merely_absent(rows: &Rows, slot: Slot, row: Row) -> bool {
    let partition = rows.layout.partition_of(row);
    let placement = rows.superblock.placement_of(slot.0, partition);
    let entry = placement.and_then(|placement| placement.member);
    let line = entry.map(|entry| &rows.superblock.members[entry as usize]);
    let current = line.is_some_and(|line| line.role == MemberRole::Active);
    current && rows.roles_at(slot, row).home.is_none()
}

/// Whether the partial parities of this record are in their buffers and were found whole.
fn partials_verified(rows: &Rows, id: u32, cut: &Cut) -> bool {
    let slice = &rows.slices[id];
    cut.payloads.iter().all(Option::is_none) || slice.verdicts.located
}

/// Reads the cells wanted and the partial parities, as far as they are not held yet.
fn load(rows: &mut Rows, id: u32, cut: &Cut, cells: CellSet) {
    let have = rows.slices[id].have;
    let verified = partials_verified(rows, id, cut);
    if cells.within(have) && verified {
        return combine(rows, id, cut);
    }
    let slice = &rows.slices[id];
    let loaded = PARTIALS.iter().any(|&one| slice.extra_ref(one).is_some());
    if cells.within(have) && loaded {
        return verify(rows, id, cut);
    }
    rows.read_cells(id, cells.minus(have));
    if !loaded {
        read_partials(rows, id, cut);
    }
    rows.slices.requeue_if_idle(id);
}

fn read_partials(rows: &mut Rows, id: u32, cut: &Cut) {
    for (parity, payload) in cut.payloads.iter().enumerate() {
        let Some(payload) = *payload else { continue };
        let target = whole_partial(rows, id, PARTIALS[parity], cut);
        let owner = Owner::Slice(id, SliceOp::Log(parity as u8));
        rows.slices[id].pending += 1;
        let (member, at, class) = (payload.member, payload.at, crate::Class::Task);
        rows.device_io(owner, member, IoOp::Read, at, cut.sectors, class, |io| {
            io.segments.push(Segment::Buf(target));
        });
    }
}

/// The buffer of a partial parity of the whole record, of which the band is a part.
fn whole_partial(rows: &mut Rows, id: u32, extra: Extra, cut: &Cut) -> BufRef {
    let buf = rows.extra_buffer(id, extra).buf;
    BufRef::new(buf, 0, (cut.sectors * SECTOR_BYTES) as u32)
}

fn verify(rows: &mut Rows, id: u32, cut: &Cut) {
    rows.slices.set_phase(id, Phase::Checksumming);
    for (parity, payload) in cut.payloads.iter().enumerate() {
        if payload.is_some() {
            let whole = whole_partial(rows, id, PARTIALS[parity], cut);
            rows.compute_verdict(id, ComputeOp::Checksum, &[whole], parity as u8);
        }
    }
}

/// A record whose partial parity is not whole was never durable: an older one decides.
fn judge(rows: &mut Rows, id: u32, record: u32) {
    let Some(cut) = cut(rows, record) else {
        return rows.band_done(id);
    };
    let slice = &mut rows.slices[id];
    let unreadable = slice.verdicts.differ != 0;
    let mut payloads = cut.payloads.iter().zip(slice.checksums);
    let torn = payloads.any(|(payload, sum)| payload.is_some_and(|one| one.checksum != sum));
    if unreadable {
        // The old data are unknown: what is missing is lost.
        let map = slice.map;
        let absent = map.data_set().minus(slice.zeroed).minus(rows.readable(id));
        return lose(rows, id, absent);
    }
    if torn {
        rows.tasks.replays[record as usize].current += 1;
        rows.drop_buffers(id);
    } else {
        slice.verdicts.located = true;
    }
    // With another record, or without a member that failed meanwhile, other cells may be wanted.
    rows.slices.set_phase(id, Phase::Preparing);
    rows.slices.requeue(id);
}

/// P and Q from the partial parities and the cells as they are; a single missing cell takes its value from P.
fn combine(rows: &mut Rows, id: u32, cut: &Cut) {
    let map = rows.slices[id].map;
    let live = rows.live_cells(&map);
    let slice = &rows.slices[id];
    let modified = CellSet(cut.modified).minus(slice.zeroed);
    let offset = ((slice.band - cut.start) * SECTOR_BYTES) as u32;
    let of_band = |part: BufRef| BufRef::new(part.buf, offset, part.bytes);
    let partial = PARTIALS.map(|extra| slice.extra_ref(extra).map(of_band));
    let lost = modified.minus(live.minus(slice.bad));
    let mut terms = [Term::NONE; crate::CELLS_MAX + 2];
    let count = match lost.first() {
        Some(cell) => match terms_of_lost(rows, id, &map, cell, partial, &mut terms) {
            Some(count) => count,
            // One parity is left, and it says what the cell is.
            None => return rows.band_done(id),
        },
        None => terms_of_present(rows, id, &map, modified, partial, &mut terms),
    };
    let mut targets = [None; OUTPUTS];
    for (parity, cell) in map.parities() {
        let decoded_from = parity == 0 && !lost.is_empty();
        if live.contains(cell) && !decoded_from {
            targets[usize::from(parity)] = Some(rows.extra_buffer(id, Extra::New(parity)));
        }
    }
    rows.slices.set_phase(id, Phase::Combining);
    rows.compute_terms(id, &terms[..count], &targets);
}

fn terms_of_present(
    rows: &Rows,
    id: u32,
    map: &RowMap,
    modified: CellSet,
    partial: [Option<BufRef>; 2],
    terms: &mut [Term],
) -> usize {
    let slice = &rows.slices[id];
    let mut count = 0;
    for cell in modified.iter() {
        terms[count] = Term::of_data(map, cell, slice.cell_ref(cell));
        count += 1;
    }
    for (parity, source) in partial.into_iter().enumerate() {
        if let Some(source) = source {
            terms[count] = Term::plain(source, parity);
            count += 1;
        }
    }
    count
}

/// The cell is P less partial P, whatever part of the write P has seen; Q is made to agree with that.
fn terms_of_lost(
    rows: &Rows,
    id: u32,
    map: &RowMap,
    cell: u8,
    partial: [Option<BufRef>; 2],
    terms: &mut [Term],
) -> Option<usize> {
    let slice = &rows.slices[id];
    let (p, q) = (map.p()?, map.q()?);
    if !slice.have.contains(p) || !slice.have.contains(q) {
        return None;
    }
    let factor = map.coefficient(q, cell);
    terms[0] = Term::times(factor, slice.cell_ref(p), 1);
    terms[1] = Term::times(factor, partial[0]?, 1);
    terms[2] = Term::plain(partial[1]?, 1);
    Some(3)
}
