//! The table of requests, and the queues of those that could not be started yet.

use crate::contract::{Request, RequestError, RequestOp};
use crate::metadata::suspects::Suspects;
use crate::units::{Nanos, SECTOR_BYTES};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

/// Which copies of a chunk a request is about, where there are several. Others are not written, and are not
/// read in place of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Copies {
    #[default]
    All,
    First,
    /// All but the first.
    Further,
    /// What these members have is not believed: a read alone is about it, of any layout.
    Without(Suspects),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) request: Request,
    pub(crate) copies: Copies,
    /// Bytes of the request that have been cut into parts.
    pub(crate) cut: u64,
    /// Parts started and not done.
    pub(super) parts: u32,
    pub(super) error: Option<RequestError>,
    pub(super) cut_all: bool,
    /// What had changed by its admission, as the read cache counts.
    pub(crate) begun: u64,
    pub(super) admitted: Nanos,
}

pub(crate) struct Requests {
    pub(super) list: Vec<Option<Pending>>,
    pub(super) free: Vec<u32>,
    pub(crate) reads: VecDeque<u32>,
    pub(crate) writes: VecDeque<u32>,
    /// Done, but not to be acknowledged before metadata is durable.
    pub(super) settling: Vec<u32>,
    /// Requests that wait, in order: for a reshape to release their sectors, or for a row to be
    /// resynchronised.
    held: Vec<u32>,
}

impl Pending {
    pub(crate) fn cut_all(&mut self) {
        self.cut_all = true;
    }
}

impl Requests {
    pub(crate) fn new(limit: u32) -> Requests {
        Requests {
            list: alloc::vec![None; limit as usize],
            free: (0..limit).rev().collect(),
            reads: VecDeque::with_capacity(limit as usize),
            writes: VecDeque::with_capacity(limit as usize),
            settling: Vec::with_capacity(limit as usize),
            held: Vec::new(),
        }
    }

    /// A request waits until [`Requests::release_held`].
    pub(crate) fn hold(&mut self, id: u32) {
        self.held.push(id);
    }

    /// They go on before those that came since.
    pub(crate) fn release_held(&mut self) {
        while let Some(id) = self.held.pop() {
            match self.get(id).request.op {
                RequestOp::Read => self.reads.push_front(id),
                _ => self.writes.push_front(id),
            }
        }
    }

    /// Whether no request that has some of these sectors has a part under way. With `writes`, nor any request
    /// that changes something.
    pub(crate) fn quiet_in(&self, sectors: &Range<u64>, writes: bool) -> bool {
        let concerns = |pending: &&Pending| {
            let request = &pending.request;
            let first = request.offset / SECTOR_BYTES;
            let end = (request.offset + request.bytes).div_ceil(SECTOR_BYTES);
            let there = first < sectors.end && sectors.start < end;
            request.op != RequestOp::Flush && (there || writes && request.op.changes())
        };
        let mut list = self.list.iter().flatten().filter(concerns);
        list.all(|pending| pending.parts == 0)
    }

    pub(crate) fn room(&self) -> bool {
        !self.free.is_empty()
    }

    pub(crate) fn idle(&self) -> bool {
        self.free.len() == self.list.len()
    }

    /// Whether any is in a queue.
    pub(crate) fn waiting(&self) -> bool {
        !self.reads.is_empty() || !self.writes.is_empty()
    }

    pub(crate) fn get(&self, id: u32) -> &Pending {
        self.list[id as usize]
            .as_ref()
            .expect("a request lives until its reply")
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> &mut Pending {
        self.list[id as usize]
            .as_mut()
            .expect("a request lives until its reply")
    }

    /// Whether a request is under way that was admitted by then.
    pub(crate) fn any_since_before(&self, moment: Nanos) -> bool {
        let mut pending = self.list.iter().flatten();
        pending.any(|pending| pending.admitted <= moment)
    }

    /// One more part of a request is under way.
    pub(crate) fn begin_part(&mut self, id: u32) {
        self.get_mut(id).parts += 1;
    }
}
