//! The acts of a slice: reads, writes and computations over the cells of its band. Where one fails, what the
//! slice notes, and whether the member fails with it.

use super::rows::{Handed, Rows};
use super::table::{Aim, Extra, Fragment, Kind, PARTIALS_MAX, Phase, Source};
use crate::clients::Copies;
use crate::contract::{
    Action, BufRef, Class, ComputeOp, Fact, FailCause, IoError, IoOp, LinearOutput, RequestError,
    ScrubMode, Segment, Verdict,
};
use crate::layout::reed_solomon::PARITIES_MAX;
use crate::layout::{CellSet, Recipe, Role, RowMap};
use crate::members::ops::{Owner, SliceOp};
use crate::roles::Home;
use crate::units::{Member, SECTOR_BYTES, Slot};

/// What a linear combination makes at most: each parity anew, then the partial ones, by their numbers.
pub(crate) const OUTPUTS: usize = PARTIALS_AT + PARTIALS_MAX;
/// The place of P's partial parity among them.
pub(crate) const PARTIALS_AT: usize = PARITIES_MAX;

/// One value for each output of a linear combination.
pub(crate) type Outputs<T> = [T; OUTPUTS];

/// One term of a linear combination: a source, and its coefficient in each output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    pub(crate) source: BufRef,
    pub(crate) coefficients: Outputs<u8>,
}

impl Term {
    pub(crate) const NONE: Term = Term {
        source: BufRef {
            buf: crate::Buf(0),
            offset: 0,
            bytes: 0,
        },
        coefficients: [0; OUTPUTS],
    };

    /// The content of a data cell in each parity.
    pub(crate) fn of_data(map: &RowMap, cell: u8, source: BufRef) -> Term {
        let mut coefficients = [0; OUTPUTS];
        for (parity, at) in map.parities() {
            coefficients[usize::from(parity)] = map.coefficient(at, cell);
        }
        Term {
            source,
            coefficients,
        }
    }

    /// A source as it is, in one output.
    pub(crate) fn plain(source: BufRef, output: usize) -> Term {
        Term::times(1, source, output)
    }

    pub(crate) fn times(factor: u8, source: BufRef, output: usize) -> Term {
        let mut coefficients = [0; OUTPUTS];
        coefficients[output] = factor;
        Term {
            source,
            coefficients,
        }
    }

    /// The same in the partial parities as in the whole ones.
    pub(crate) fn in_partials(mut self) -> Term {
        let (new, partial) = self.coefficients.split_at_mut(PARTIALS_AT);
        partial.copy_from_slice(&new[..PARTIALS_MAX]);
        self
    }
}

/// More read errors than this and a member is failed, if it can be spared (md's default is 20).
const READ_ERRORS_MAX: u32 = 20;

impl Rows {
    fn class_of(&self, id: u32) -> Class {
        match self.slices[id].kind {
            Kind::Write(_) => Class::Parity,
            Kind::Read(..) => Class::User,
            _ => Class::Task,
        }
    }

    /// The cells whose member can be read and whose medium has not erred in this band.
    pub(crate) fn readable(&self, id: u32) -> CellSet {
        let slice = &self.slices[id];
        let mut readable = self.live_cells(&slice.map).minus(slice.bad);
        if let Copies::Without(suspects) = slice.copies {
            readable = readable.minus(suspects.cells(&slice.map));
        }
        match slice.copies == Copies::First || self.first_alone(slice.row) {
            true => readable.intersection(slice.map.data_set()),
            false => readable,
        }
    }

    /// Reads cells into their buffers. They count as held at once; an error takes that back.
    pub(crate) fn read_cells(&mut self, id: u32, cells: CellSet) {
        self.slices.set_phase(id, Phase::Reading);
        for cell in cells.iter() {
            let target = self.cell_buffer(id, cell);
            let slice = &mut self.slices[id];
            let (place, row) = (slice.map.cells[cell as usize], slice.map.row);
            let (band, sectors) = (slice.band, slice.band_sectors);
            let home = self.homes(place.slot, row).read;
            let home = home.expect("only readable cells are read");
            let (member, at) = (home.member, home.at(place.at) + band);
            let (owner, class) = (Owner::Slice(id, SliceOp::Read(cell)), self.class_of(id));
            let slice = &mut self.slices[id];
            slice.have = slice.have.with(cell);
            slice.pending += 1;
            self.device_io(owner, member, IoOp::Read, at, sectors, class, |io| {
                io.segments.push(Segment::Buf(target))
            });
        }
    }

    /// Writes a buffer over the band of a cell, on every member that keeps it. `only`: there alone.
    pub(crate) fn write_cell(&mut self, id: u32, cell: u8, source: Source, only: Option<Home>) {
        let slice = &self.slices[id];
        let (start, sectors) = (slice.band, slice.band_sectors);
        let fragment = Fragment {
            cell,
            start,
            sectors,
            source,
            request: 0,
        };
        self.write_fragments(id, cell, &[fragment], IoOp::Write, only);
    }

    /// Writes (or discards) what `fragments` hold for a cell.
    pub(crate) fn write_fragments(
        &mut self,
        id: u32,
        cell: u8,
        fragments: &[Fragment],
        op: IoOp,
        only: Option<Home>,
    ) {
        self.cache_repair_begins(id, cell);
        let slice = &self.slices[id];
        let (row, place, durable) = (slice.map.row, slice.map.cells[cell as usize], slice.durable);
        let (start, sectors) = (slice.band, slice.band_sectors);
        let class = match slice.kind {
            Kind::Write(_) if !slice.map.parity_set().contains(cell) => Class::User,
            _ => self.class_of(id),
        };
        let owner = Owner::Slice(id, SliceOp::Write(cell));
        let homes = match only {
            Some(home) => [Some(home), None],
            None => self.homes(place.slot, row).write,
        };
        for home in homes.into_iter().flatten() {
            self.slices[id].pending += 1;
            let (member, at) = (home.member, home.at(place.at) + start);
            self.device_io(owner, member, op, at, sectors, class, |io| {
                io.durable = durable;
                if op == IoOp::Write {
                    let within = |one: &Fragment| one.segment(start, start + sectors);
                    io.segments.extend(fragments.iter().filter_map(within));
                }
            });
        }
    }

    /// `target = recipe over the cells held`.
    pub(crate) fn compute_recipe(&mut self, id: u32, recipe: &Recipe, target: BufRef) {
        let mut compute = self
            .ops
            .compute(Owner::Slice(id, SliceOp::Compute), ComputeOp::Linear);
        let mut coefficients = self.ops.boxes.coefficient_list();
        let slice = &self.slices[id];
        for (cell, coefficient) in recipe.iter() {
            if slice.zeroed.contains(cell) {
                continue;
            }
            compute.sources.push(slice.cell_ref(cell));
            coefficients.push(coefficient);
        }
        compute.outputs.push(LinearOutput {
            target,
            coefficients,
        });
        self.slices[id].pending += 1;
        self.out.push(Action::Compute(compute));
    }

    /// Several outputs over common terms. Zero coefficients cost nothing.
    pub(crate) fn compute_terms(
        &mut self,
        id: u32,
        terms: &[Term],
        targets: &Outputs<Option<BufRef>>,
    ) {
        let mut compute = self
            .ops
            .compute(Owner::Slice(id, SliceOp::Compute), ComputeOp::Linear);
        compute.sources.extend(terms.iter().map(|term| term.source));
        for (index, target) in targets.iter().enumerate() {
            let Some(target) = *target else { continue };
            let mut coefficients = self.ops.boxes.coefficient_list();
            coefficients.extend(terms.iter().map(|term| term.coefficients[index]));
            compute.outputs.push(LinearOutput {
                target,
                coefficients,
            });
        }
        self.slices[id].pending += 1;
        self.out.push(Action::Compute(compute));
    }

    /// Copies, or zeroes when there is no source.
    pub(crate) fn compute_copy(&mut self, id: u32, source: Option<BufRef>, target: BufRef) {
        self.slices[id].pending += 1;
        self.copy(Owner::Slice(id, SliceOp::Compute), source, target);
    }

    /// A checksum, comparison or location over whole buffers; the verdict comes with `nth`.
    pub(crate) fn compute_verdict(&mut self, id: u32, op: ComputeOp, sources: &[BufRef], nth: u8) {
        let mut compute = self.ops.compute(Owner::Slice(id, SliceOp::Log(nth)), op);
        compute.sources.extend_from_slice(sources);
        self.slices[id].pending += 1;
        self.out.push(Action::Compute(compute));
    }

    /// Recovers cells from those held. False if some cell cannot be.
    pub(crate) fn recover_cells(&mut self, id: u32, wanted: CellSet) -> bool {
        let slice = &self.slices[id];
        let (map, held) = (slice.map, slice.have.union(slice.zeroed));
        for cell in wanted.iter() {
            let Some(recipe) = map.recover(cell, held) else {
                return false;
            };
            let target = self.cell_buffer(id, cell);
            self.compute_recipe(id, &recipe, target);
        }
        let slice = &mut self.slices[id];
        slice.have = slice.have.union(wanted);
        self.slices.set_phase(id, Phase::Recovering);
        true
    }

    /// The parities that are wanted over all data cells held (zeroed ones are zeros), into the extra buffers.
    pub(crate) fn compute_parity(&mut self, id: u32, wanted: CellSet) {
        let slice = &self.slices[id];
        let map = slice.map;
        let mut terms: [Term; crate::CELLS_MAX] = [Term::NONE; crate::CELLS_MAX];
        let mut count = 0;
        for cell in map.data_set().minus(slice.zeroed).iter() {
            terms[count] = Term::of_data(&map, cell, slice.cell_ref(cell));
            count += 1;
        }
        let mut targets = [None; OUTPUTS];
        for (parity, _) in map.parities().filter(|(_, cell)| wanted.contains(*cell)) {
            targets[usize::from(parity)] = Some(self.extra_buffer(id, Extra::New(parity)));
        }
        self.slices.set_phase(id, Phase::Combining);
        self.compute_terms(id, &terms[..count], &targets);
    }

    pub(crate) fn write_parity(&mut self, id: u32, map: &RowMap, live: CellSet) {
        for (parity, cell) in map.parities().filter(|(_, cell)| live.contains(*cell)) {
            if let Some(new) = self.slices[id].extra_ref(Extra::New(parity)) {
                self.write_cell(id, cell, Source::Buf(new), None);
            }
        }
    }

    pub(crate) fn note_repair(&mut self, id: u32, cell: u8) {
        let slice = &self.slices[id];
        let (place, row) = (slice.map.cells[cell as usize], slice.map.row);
        let (band, sectors) = (slice.band, slice.band_sectors);
        let without = matches!(slice.copies, Copies::Without(_));
        let rotten = without || slice.left_out || !slice.bad.contains(cell);
        let Some(home) = self.homes(place.slot, row).read else {
            return;
        };
        self.counters.repaired_sectors += sectors;
        let (member, at) = (home.member, home.at(place.at) + band);
        self.fact(Fact::Repaired {
            member,
            at,
            sectors,
            rotten,
        });
    }

    /// These parities as they were read with what was computed: each is the comparison of its number.
    pub(crate) fn compare_parity(&mut self, id: u32, map: &RowMap, read: CellSet) {
        for (parity, cell) in map.parities().filter(|(_, cell)| read.contains(*cell)) {
            let slice = &self.slices[id];
            let computed = slice.extra_ref(Extra::New(parity));
            let pair = [slice.cell_ref(cell), computed.expect("computed before")];
            self.compute_verdict(id, ComputeOp::Compare, &pair, parity);
        }
    }

    /// Brings a cell of the band into its buffer: reads it, or the cells that it can be computed from, or
    /// computes it from those held. False if that is impossible.
    pub(super) fn fetch(&mut self, id: u32, cell: u8) -> bool {
        let readable = self.readable(id);
        if readable.contains(cell) {
            self.read_cells(id, CellSet::only(cell));
            return true;
        }
        let slice = &self.slices[id];
        let (map, have) = (slice.map, slice.have);
        let trusted = !self.layout.parity() || self.in_sync(map.row);
        let recipe = map.recover(cell, readable.union(have));
        let Some(recipe) = recipe.filter(|_| trusted) else {
            return false;
        };
        match recipe.set().within(have) {
            true => self.recover_cells(id, CellSet::only(cell)),
            false => {
                self.read_cells(id, recipe.set().minus(have));
                true
            }
        }
    }

    /// The data cells in `cells` are lost in this band.
    pub(super) fn lose_cells(&mut self, id: u32, cells: CellSet) {
        let slice = &self.slices[id];
        let (map, band, sectors) = (slice.map, slice.band, slice.band_sectors);
        for cell in cells.intersection(map.data_set()).iter() {
            if self.layout.is_addressed(map.row, cell) {
                let lba = self.layout.lba(map.row, cell, band);
                self.lose(lba, sectors);
            }
        }
    }

    /// Declares the data cells in `cells` lost in this band. Waits until that is on record; then they become
    /// zeros.
    pub(crate) fn declare_lost(&mut self, id: u32, cells: CellSet) {
        self.lose_cells(id, cells);
        let slice = &mut self.slices[id];
        slice.zeroed = slice.zeroed.union(cells);
        self.slices.await_metadata(id);
    }

    /// Passes on the data that a window of a task has of its band, if its zone is wanted. The window
    /// continues when each part has been copied or refused.
    pub(super) fn offer(&mut self, id: u32) {
        let slice = &self.slices[id];
        let (map, band, have, zeroed) = (slice.map, slice.band, slice.have, slice.zeroed);
        let zone = map.row.0 / self.heat.zone_rows().max(1);
        if !self.transfers.zones.contains(zone) || !zeroed.is_empty() {
            return;
        }
        let mut offered = CellSet::EMPTY;
        for cell in have.iter() {
            let data = match map.cells[usize::from(cell)].role {
                Role::Data(_) => cell,
                Role::Copy { of } => of,
                Role::P | Role::Q | Role::Parity(_) => continue,
            };
            let lba = self.layout.lba(map.row, data, band);
            let buf = self.slices[id].cell_ref(cell);
            let sectors = u64::from(buf.bytes) / SECTOR_BYTES;
            // What is lost is zeros on the members, and must not be taken for data.
            if offered.contains(data) || self.lost.first_in(lba, sectors).is_some() {
                continue;
            }
            offered = offered.with(data);
            self.slices.hold(id);
            let slice = id;
            self.transfers.add(Handed { slice, lba, buf });
        }
    }

    /// A task writes over a cell whose bytes may have been wrong, or different from a copy. The cache forgets
    /// what was read of it before, and also the row's other cells, which may have been recovered from it.
    pub(crate) fn cache_repair_begins(&mut self, id: u32, cell: u8) {
        if self.read_cache.is_none() {
            return;
        }
        let slice = &mut self.slices[id];
        let changed = match (slice.kind, slice.map.cells[usize::from(cell)].role) {
            (Kind::Scrub(_), _) => slice.map.data_set(),
            (Kind::Resync { .. }, Role::Data(data) | Role::Copy { of: data }) => {
                CellSet::only(data)
            }
            _ => return,
        };
        slice.uncached = slice.uncached.union(changed);
        for data in changed.iter() {
            self.cache_repaired(id, data);
        }
    }

    /// The slice ends; reads that met its writes on the way keep nothing.
    pub(crate) fn cache_repair_ends(&mut self, id: u32) {
        let changed = core::mem::take(&mut self.slices[id].uncached);
        for data in changed.iter() {
            self.cache_repaired(id, data);
        }
    }

    fn cache_repaired(&mut self, id: u32, data: u8) {
        let slice = &self.slices[id];
        let (row, start, sectors) = (slice.map.row, slice.start, slice.sectors);
        let lba = self.layout.lba(row, data, start);
        self.cache_lost(lba, sectors);
    }

    /// An operation of a slice has failed. If its member fails with it, the operation ends after all that
    /// this leads to.
    pub(crate) fn slice_op_failed(
        &mut self,
        id: u32,
        what: SliceOp,
        member: Member,
        error: IoError,
    ) {
        match what {
            SliceOp::Read(cell) => {
                let slice = &mut self.slices[id];
                slice.have = slice.have.without(cell);
                if error == IoError::Media {
                    slice.bad = slice.bad.with(cell);
                }
                // A narrowed slice reads the same sectors again, block by block. And a read without suspects
                // reads one place many times, and repairs only what is theirs.
                let counted = !slice.narrowed && !matches!(slice.copies, Copies::Without(_));
                if error != IoError::Media {
                    self.read_failed(member, error);
                } else if counted {
                    self.medium_failed(id, cell, member);
                }
            }
            SliceOp::Write(cell) => self.write_failed(id, cell, member, error),
            SliceOp::Log(_) => self.log_failed(id, member, error),
            _ => {}
        }
    }

    /// A member could not be read. Media errors are counted, and the slice repairs them. Any other error
    /// fails the member.
    pub(crate) fn read_failed(&mut self, member: Member, error: IoError) {
        if error != IoError::Media {
            let cause = match error {
                IoError::Gone => FailCause::Gone,
                _ => FailCause::ReadErrors,
            };
            self.fail_member(member, cause);
            return;
        }
        let Some(entry) = self.devices[member.0 as usize].entry else {
            return;
        };
        let count = &mut self.superblock.members[entry as usize].read_errors;
        *count = count.saturating_add(1);
        if *count > READ_ERRORS_MAX && !self.indispensable(member) {
            self.fail_member(member, FailCause::ReadErrors);
        }
    }

    /// The medium of a member erred. A slice counts that at its end, when it knows whether the rest of the
    /// row recovers what is there: what nothing recovers is met again by each. A read of first copies alone
    /// does not ask the others, and counts at once.
    pub(super) fn medium_failed(&mut self, id: u32, cell: u8, member: Member) {
        let slice = &mut self.slices[id];
        let at_once = match slice.kind {
            Kind::Read(..) => slice.copies == Copies::First,
            Kind::Write(_)
            | Kind::Fill(_)
            | Kind::Move
            | Kind::Reshape(_)
            | Kind::Resync { .. }
            | Kind::Scrub(_)
            | Kind::Replay(_) => false,
        };
        match at_once {
            true => self.read_failed(member, IoError::Media),
            false => slice.erred.add(slice.map.row, cell, member),
        }
    }

    /// Which cells that cannot be read in this band the others recover. Only what the slice has read of those
    /// counts: a replay reads little but what its record changed. To be called before the slice turns from
    /// the band or the row.
    pub(super) fn judge_errors(&mut self, id: u32) {
        let slice = &self.slices[id];
        if slice.erred.is_empty() || slice.bad.is_empty() {
            return;
        }
        let (map, kind, bad) = (slice.map, slice.kind, slice.bad);
        let held = slice.have.minus(bad).minus(slice.zeroed);
        // The members of a row in the journal are not those that serve it.
        let held = match kind {
            Kind::Reshape(_) => held,
            _ => held.intersection(self.live_cells(&map)),
        };
        let agrees = matches!(kind, Kind::Reshape(Aim::Settle) | Kind::Replay(_));
        let trusted = agrees || !self.layout.parity() || self.in_sync(map.row);
        for cell in bad.iter() {
            let sources = match (trusted, map.parity_at(cell)) {
                (true, _) => held,
                // Parity that nothing vouches for is made anew, and recovers nothing.
                (false, Some(_)) => held.intersection(map.data_set()),
                (false, None) => CellSet::EMPTY,
            };
            let recoverable = map.recover(cell, sources).is_some();
            self.slices[id].erred.judge(map.row, cell, recoverable);
        }
    }

    /// A slice is at its end: its errors count against their members, but for those at what is lost. Such
    /// errors never fail a member, for what else that has may be on no other. `complete`: it has been through
    /// all its bands.
    pub(super) fn count_errors(&mut self, id: u32, complete: bool) {
        let slice = &mut self.slices[id];
        let kind = slice.kind;
        let failed = slice.error.is_some();
        for (member, lost) in slice.erred.take(complete) {
            let lost = match kind {
                Kind::Read(..) => failed,
                Kind::Reshape(_) => lost || failed,
                _ => lost,
            };
            if lost {
                let errors = &mut self.devices[member.0 as usize].lost_errors;
                *errors = errors.saturating_add(1);
            } else if kind == Kind::Scrub(ScrubMode::Check) {
                self.check_failed(member);
            } else {
                self.read_failed(member, IoError::Media);
            }
        }
    }

    /// A check cannot read a sector. It repairs nothing, so each check that runs would count the same sector
    /// again: each has a count of its own.
    fn check_failed(&mut self, member: Member) {
        let errors = &mut self.devices[member.0 as usize].check_errors;
        *errors += 1;
        if *errors > READ_ERRORS_MAX && !self.indispensable(member) {
            self.fail_member(member, FailCause::ReadErrors);
        }
    }

    fn write_failed(&mut self, id: u32, cell: u8, member: Member, error: IoError) {
        let slice = &self.slices[id];
        let (kind, row) = (slice.kind, slice.map.row);
        let serves = |slot| {
            let home = self.roles_at(slot, row).home;
            home.is_none_or(|serving| serving.member == member)
        };
        let journals = kind == Kind::Reshape(Aim::Journal);
        if !journals && !self.slots_written(id, cell).any(serves) {
            // It was being filled: the member that serves has the bytes as well.
            return self.fail_member(member, FailCause::WriteError(error));
        }
        if self.layout.tolerance() > 0 {
            return self.fail_member(member, FailCause::WriteError(error));
        }
        let reported = match error {
            IoError::NoSpace => {
                self.note_full(member);
                RequestError::NoSpace
            }
            _ => RequestError::ReadOnly,
        };
        self.slices[id].error.get_or_insert(reported);
        match kind {
            _ if error == IoError::Gone => self.fail_member(member, FailCause::WriteError(error)),
            Kind::Move | Kind::Reshape(_) => {
                let why = error;
                self.fact(Fact::MoveFailed { member, why });
            }
            _ => {}
        }
    }

    /// The slots that a cell of a slice is written to: what moves, where it was or where it will be.
    fn slots_written(&self, id: u32, cell: u8) -> impl Iterator<Item = Slot> + use<> {
        let slice = &self.slices[id];
        let slot = |map: &RowMap| map.cells[usize::from(cell)].slot;
        let moved = (slice.kind == Kind::Move).then(|| slot(&self.moving_cells(&slice.map).1));
        [Some(slot(&slice.map)), moved].into_iter().flatten()
    }

    fn log_failed(&mut self, id: u32, member: Member, error: IoError) {
        if let Kind::Replay(_) = self.slices[id].kind {
            self.slices[id].verdicts.note(0, Verdict::Differ);
            return;
        }
        self.fail_member(member, FailCause::WriteError(error));
    }
}
