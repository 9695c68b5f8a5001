//! Memory and computations.
//!
//! Owns the buffers that no set has, the records in memory, the jobs under way, and the table of anchors.

use super::children::Children;
use super::facts::Facts;
use super::jobs::{Job, Jobs};
use super::pack::memory::{Gathered, Memory, part_of};
use super::route;
use crate::config::{Config, SurrogateConfig};
use crate::overlay::PartTag;
use crate::overlay::format::AnchorTable;
use restripe_array::parts::{Buffers, Bug, Size};
use restripe_array::{
    Action, Buf, BufRef, ComputeOp, LinearOutput, Page, SECTOR_BYTES, SMALL_BYTES,
};

pub(crate) struct Works {
    pub(crate) below: Children,
    pub(crate) jobs: Jobs,
    pub(crate) buffers: Buffers,
    pub(crate) memory: Memory,
    /// The anchors, once the log is known.
    pub(crate) table: Option<AnchorTable>,
}

floor!(Works over Children);

impl Works {
    pub(crate) fn new(config: Config, surrogate: SurrogateConfig) -> Works {
        let (facts, buffers) = Facts::new(config, surrogate);
        Works {
            below: Children::new(facts),
            jobs: Jobs::default(),
            buffers,
            memory: Memory::default(),
            table: None,
        }
    }

    pub(crate) fn table(&mut self) -> &mut AnchorTable {
        self.table.as_mut().expect("the log is known")
    }

    /// The sector of the surrogate that a sector of the log is.
    pub(crate) fn log_sector(&mut self, at: u64) -> u64 {
        self.table().layout().sector(at)
    }

    pub(crate) fn compute(
        &mut self,
        owner: u32,
        op: ComputeOp,
        source: Option<BufRef>,
        target: Option<BufRef>,
        page: Option<Page>,
    ) {
        let boxes = &mut self.jobs.boxes;
        let mut compute = boxes.compute(route::own_tag(owner), op);
        compute.page = page;
        compute.sources.extend(source);
        if let Some(target) = target {
            let mut coefficients = boxes.coefficient_list();
            coefficients.extend(source.map(|_| 1));
            compute.outputs.push(LinearOutput {
                target,
                coefficients,
            });
        }
        self.out.push(Action::Compute(compute));
    }

    /// Copies bytes from a buffer to another, or zeros.
    pub(crate) fn copy(&mut self, job: Job, source: Option<BufRef>, target: BufRef) {
        let job = self.jobs.list.insert(job);
        self.compute(job, ComputeOp::Linear, source, Some(target), None);
    }

    pub(crate) fn checksum(&mut self, job: u32, source: BufRef) {
        self.compute(job, ComputeOp::Checksum, Some(source), None, None);
    }

    pub(crate) fn put_page(&mut self, job: u32, page: Page, buf: Buf) {
        let target = BufRef::new(buf, 0, SMALL_BYTES);
        self.compute(job, ComputeOp::PutPage, None, Some(target), Some(page));
    }

    /// Makes room for copies and pages if records that have landed take all of it.
    pub(crate) fn large_buffer(&mut self) -> Option<Buf> {
        let free = self.buffers.take_free(Size::Large);
        free.or_else(|| self.forget_oldest())
    }

    /// The same for so many at once: they are promised, or none is.
    pub(crate) fn reserve_large(&mut self, count: u32) -> bool {
        while !self.buffers.reserve(Size::Large, count) {
            let Some(buf) = self.forget_oldest() else {
                return false;
            };
            self.buffers.release(buf);
        }
        true
    }

    /// The memory of the oldest record that lies in the log, and that nobody reads.
    pub(crate) fn forget_oldest(&mut self) -> Option<Buf> {
        let overlay = self.overlay.as_ref();
        let held = |one: &Gathered| overlay.is_some_and(|overlay| overlay.is_held(one.sequence));
        let idle = |one: &Gathered| one.landed && one.readers == 0 && !held(one);
        let index = self.memory.records.iter().position(idle)?;
        Some(self.memory.records.remove(index).buf)
    }

    /// Reads of the log are answered from memory where that has them.
    pub(crate) fn read_gathered(&mut self, part: PartTag, sector: u64, buf: BufRef) -> bool {
        if self.home().planted(Bug::BufferMissed) {
            return false;
        }
        let sectors = u64::from(buf.bytes) / SECTOR_BYTES;
        let room = self.overlay.as_ref().map_or(0, |one| one.record_sectors());
        let Some(one) = self.memory.at(sector, sectors, room.into()) else {
            return false;
        };
        one.readers += 1;
        let (sequence, source) = (one.sequence, part_of(one, sector, sectors));
        self.copy(Job::Gathered { part, sequence }, Some(source), buf);
        true
    }
}
