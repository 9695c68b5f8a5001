//! Extents that were never written read as zeros and cost nothing; the first write makes one real.
//!
//! | state      | cause                             | next       |
//! |------------|-----------------------------------|------------|
//! | unwritten  | a write wants the extent          | zeroing    |
//! | zeroing    | zeros durable on all live cells   | marking    |
//! | marking    | its bit durable on all members    | written    |
//!
//! Zeros satisfy every code, so the extent's rows are in step from the moment they are theirs.

use crate::contract::{Class, FailCause, IoError, IoOp};
use crate::core::Core;
use crate::ops::Owner;
use crate::planted::Bug;
use crate::standing::Home;
use crate::units::{Member, Row, Slot};
use alloc::vec::Vec;

#[derive(Clone, Copy, Debug)]
struct Init {
    extent: u64,
    outstanding: u32,
    zeroed: bool,
}

/// Extents being made real. Few at a time: writers of one extent share it.
#[derive(Default)]
pub(crate) struct Inits {
    list: Vec<Option<Init>>,
}

impl Inits {
    fn find(&self, extent: u64) -> Option<usize> {
        self.list
            .iter()
            .position(|init| init.is_some_and(|init| init.extent == extent))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.iter().all(Option::is_none)
    }

    fn add(&mut self, init: Init) -> usize {
        match self.list.iter().position(Option::is_none) {
            Some(index) => {
                self.list[index] = Some(init);
                index
            }
            None => {
                self.list.push(Some(init));
                self.list.len() - 1
            }
        }
    }
}

/// Most operations that zeroing one extent takes.
const INIT_OPS: u32 = 2 * crate::SLOTS_MAX as u32;

/// Sectors of one partition of a slot.
struct Part {
    slot: Slot,
    partition: u16,
    from: u64,
    to: u64,
}

impl Part {
    /// Takes in a chunk that lies beside what is there.
    fn cover(&mut self, at: u64, chunk: u64) {
        assert!(
            at <= self.to,
            "a slot's chunks of neighbouring rows are neighbours"
        );
        self.from = self.from.min(at);
        self.to = self.to.max(at + chunk);
    }
}

impl Core {
    /// Whether a row's extent can be written; starts to make it real if need be. False: wait for metadata to move.
    pub(crate) fn extent_ready(&mut self, row: Row) -> bool {
        if self.superblock.written_all {
            return true;
        }
        let extent = self.extent_of(row);
        if self.written.is_durable(extent) {
            return true;
        }
        let wanted = self.inits.find(extent).is_none() && !self.written.get(extent);
        if wanted && self.ops.available() > INIT_OPS && self.extent_announced(extent) {
            self.begin_init(extent);
        }
        false
    }

    /// While a member is missing, a whole extent that becomes real is something it lacks: that is on record first.
    fn extent_announced(&mut self, extent: u64) -> bool {
        self.layout.tolerance() == 0 || self.complete() || self.owe_extent(extent)
    }

    fn owe_extent(&mut self, extent: u64) -> bool {
        let first = extent * self.superblock.extent_rows;
        let last = (first + self.superblock.extent_rows).min(self.layout.rows()) - 1;
        self.owe_rows(Row(first), Row(last))
    }

    /// A member failed: extents that are just becoming real may be real without it.
    pub(crate) fn owe_inits(&mut self) {
        for index in 0..self.inits.list.len() {
            if let Some(init) = self.inits.list[index] {
                self.owe_extent(init.extent);
            }
        }
    }

    /// Whether a task must wait with a row because its extent is just being made real.
    pub(crate) fn extent_in_motion(&self, row: Row) -> bool {
        if self.superblock.written_all {
            return false;
        }
        let extent = self.extent_of(row);
        self.inits.find(extent).is_some()
            || self.written.get(extent) != self.written.is_durable(extent)
    }

    fn begin_init(&mut self, extent: u64) {
        let index = self.inits.add(Init {
            extent,
            outstanding: 0,
            zeroed: false,
        });
        let first = extent * self.superblock.extent_rows;
        let end = (first + self.superblock.extent_rows).min(self.layout.rows());
        let mut started = 0;
        let zeroes = !self.planted(Bug::ExtentNotZeroed);
        for part in self.parts(first, end) {
            let (from, to) = (part.from, part.to);
            for home in self
                .extent_homes(&part)
                .into_iter()
                .flatten()
                .filter(|_| zeroes)
            {
                let (member, at) = (home.member, home.at(from));
                let owner = Owner::ExtentInit { init: index as u32 };
                self.device_io(
                    owner,
                    member,
                    IoOp::Zero,
                    at,
                    to - from,
                    Class::Metadata,
                    |io| io.durable = true,
                );
                started += 1;
            }
        }
        self.init_mut(index).outstanding = started;
        if started == 0 {
            self.init_zeroed(index);
        }
    }

    /// Zeros go to whoever serves a slot, and to whoever is being filled for it: no later pass skips them wrongly.
    fn extent_homes(&self, part: &Part) -> [Option<Home>; 2] {
        let standing = self.standing.at(part.slot, part.partition);
        [standing.home, standing.incoming]
    }

    /// What rows `first..end` cover of each slot's partitions.
    fn parts(&self, first: u64, end: u64) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        let chunk = self.layout.chunk_sectors();
        for row in (first..end).map(Row) {
            let (map, partition) = (self.layout.row(row), self.layout.partition_of(row));
            for cell in map.cells() {
                let known =
                    |part: &&mut Part| (part.slot, part.partition) == (cell.slot, partition);
                match parts.iter_mut().find(known) {
                    Some(part) => part.cover(cell.at, chunk),
                    None => parts.push(Part {
                        slot: cell.slot,
                        partition,
                        from: cell.at,
                        to: cell.at + chunk,
                    }),
                }
            }
        }
        parts
    }

    fn init_mut(&mut self, index: usize) -> &mut Init {
        self.inits.list[index]
            .as_mut()
            .expect("an init lives until its bit is durable")
    }

    pub(crate) fn extent_zeroed(&mut self, init: u32, member: Member, result: Result<(), IoError>) {
        if let Err(error) = result {
            self.fail_member(member, FailCause::WriteError(error));
        }
        let state = self.init_mut(init as usize);
        state.outstanding -= 1;
        if state.outstanding == 0 {
            self.init_zeroed(init as usize);
        }
    }

    /// The extent counts as written once it is on record who was not there to be zeroed.
    fn init_zeroed(&mut self, index: usize) {
        self.init_mut(index).zeroed = true;
        self.inits_settle();
    }

    pub(crate) fn inits_settle(&mut self) {
        for index in 0..self.inits.list.len() {
            if self.halted() {
                // Its zeros are nowhere but in its being unwritten.
                self.inits.list[index] = self.inits.list[index].filter(|init| !init.zeroed);
            }
            if let Some(init) = self.inits.list[index].filter(|init| init.zeroed)
                && self.settled()
                && self.extent_announced(init.extent)
            {
                self.inits.list[index] = None;
                self.written.put(init.extent, true);
                let first = init.extent * self.superblock.extent_rows;
                self.tasks.note_in_step(first, self.superblock.extent_rows);
            }
        }
    }
}
