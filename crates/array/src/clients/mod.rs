//! Clients: the floor above durability.
//!
//! Owns the table of requests, their latencies, and the read cache. Admits a request and replies to it; a
//! floor above cuts it into parts. Asks durability and the floors beneath. Sends no notice.

mod cached;
mod heat;
pub(crate) mod read_cache;
mod reads;

use crate::config::Config;
use crate::contract::{BufRef, Request, RequestError, RequestOp};
use crate::durability::Durability;
use crate::facts::Waiter;
use crate::members::pool::Share;
use crate::metadata::suspects::Suspects;
use crate::policy::latency::Latencies;
use crate::units::{Nanos, SECTOR_BYTES};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
use read_cache::ReadCache;

/// Why a set never gets an atomic request.
const ATOMIC: &str = "the engine makes reads and writes of it";

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
    parts: u32,
    error: Option<RequestError>,
    cut_all: bool,
    /// What had changed by its admission, as the read cache counts.
    pub(crate) begun: u64,
    admitted: Nanos,
}

pub(crate) struct Requests {
    list: Vec<Option<Pending>>,
    free: Vec<u32>,
    pub(crate) reads: VecDeque<u32>,
    pub(crate) writes: VecDeque<u32>,
    /// Done, but not to be acknowledged before metadata is durable.
    settling: Vec<u32>,
    /// Requests that wait, in order: for a reshape to release their sectors, or for a row to be
    /// resynchronised.
    held: Vec<u32>,
}

impl Pending {
    /// The byte of the array that its next part begins with, and how many are left from there on.
    pub(crate) fn uncut(&self) -> (u64, u64) {
        let Request { offset, bytes, .. } = self.request;
        (offset + self.cut, bytes - self.cut)
    }

    /// The buffer of the next bytes.
    pub(crate) fn buffer(&self, bytes: u64) -> BufRef {
        self.request.buf.part(self.cut as u32, bytes as u32)
    }

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

    /// Whether a request that changes some of these sectors is in flight.
    pub(crate) fn is_written(&self, sectors: &Range<u64>) -> bool {
        let mut list = self.list.iter().flatten();
        list.any(|pending| pending.request.op.changes() && pending.request.meets(sectors))
    }

    /// Whether no request that has some of these sectors has a part under way. With `writes`, nor any request
    /// that changes something.
    pub(crate) fn quiet_in(&self, sectors: &Range<u64>, writes: bool) -> bool {
        let concerns = |pending: &&Pending| {
            let request = &pending.request;
            let there = request.meets(sectors);
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

pub struct Clients {
    pub(crate) below: Durability,
    pub(crate) requests: Requests,
    pub(crate) latencies: Latencies,
    pub(crate) read_cache: Option<ReadCache>,
}

floor!(Clients, Durability);

impl Clients {
    pub(crate) fn new(config: Config, share: Share) -> Clients {
        Clients {
            requests: Requests::new(config.limits.requests),
            latencies: Latencies::default(),
            read_cache: None,
            below: Durability::new(config, share),
        }
    }

    pub(crate) fn request(&mut self, request: Request, copies: Copies) {
        if let Err(error) = self.admit(&request) {
            self.reply(request.tag, Err(error));
            return;
        }
        if !self.ties.counted_above {
            self.note_request(&request);
        }
        let Some(id) = self.requests.free.pop() else {
            // The shell did not heed `ready`.
            self.reply(request.tag, Err(RequestError::Unavailable));
            return;
        };
        self.requests.list[id as usize] = Some(Pending {
            request,
            copies,
            cut: 0,
            parts: 0,
            error: None,
            cut_all: false,
            begun: self.cache_clock(),
            admitted: self.now,
        });
        if request.op.changes() && !self.ties.cached_above {
            self.cache_change_begins(request.offset, request.bytes);
        }
        match request.op {
            RequestOp::Flush => {
                let pending = self.requests.get_mut(id);
                pending.cut_all = true;
                pending.parts = 1;
                self.flush_for(Waiter::Request(id));
            }
            RequestOp::Read => self.requests.reads.push_back(id),
            RequestOp::Write | RequestOp::Trim | RequestOp::WriteZeroes { .. } => {
                self.requests.writes.push_back(id)
            }
            RequestOp::CompareAndWrite | RequestOp::Or => unreachable!("{ATOMIC}"),
        }
    }

    pub fn admit(&self, request: &Request) -> Result<(), RequestError> {
        if !self.serving() || self.disowned() {
            return Err(RequestError::Unavailable);
        }
        let size = self.layout.size_sectors() * SECTOR_BYTES;
        let end = request.offset.saturating_add(request.bytes);
        if request.op != RequestOp::Flush && end > size {
            return Err(RequestError::OutOfRange { end, size });
        }
        let writes = request.op.changes();
        if writes && self.halted() {
            return Err(self.refusal(request.op));
        }
        if writes && self.mode.read_only {
            return Err(RequestError::ReadOnly);
        }
        if writes && self.spares_the_full() {
            return Err(RequestError::NoSpace);
        }
        if matches!(request.op, RequestOp::WriteZeroes { fast: true })
            && !self.zeroing_is_fast(request)
        {
            return Err(RequestError::NotFast);
        }
        Ok(())
    }

    /// Counts a user's request, and what it reads as heat.
    pub fn note_request(&mut self, request: &Request) {
        match request.op {
            RequestOp::Read => {
                self.note_heat(request.offset, request.bytes);
                self.counters.reads += 1;
                self.counters.read_bytes += request.bytes;
            }
            RequestOp::Write | RequestOp::WriteZeroes { .. } => {
                self.counters.writes += 1;
                self.counters.written_bytes += request.bytes;
            }
            RequestOp::Flush => self.counters.flushes += 1,
            RequestOp::Trim => self.counters.trims += 1,
            RequestOp::CompareAndWrite | RequestOp::Or => unreachable!("{ATOMIC}"),
        }
    }

    /// The whole request has been cut; it may be done already.
    pub(crate) fn all_cut(&mut self, id: u32) {
        self.requests.get_mut(id).cut_all = true;
        self.reply_if_done(id);
    }

    pub(crate) fn request_part_done(&mut self, id: u32, result: Result<(), RequestError>) {
        let pending = self.requests.get_mut(id);
        pending.parts -= 1;
        if let Err(error) = result {
            pending.error.get_or_insert(error);
        }
        self.reply_if_done(id);
    }

    fn reply_if_done(&mut self, id: u32) {
        let pending = self.requests.get(id);
        if !pending.cut_all || pending.parts > 0 {
            return;
        }
        if self.may_acknowledge(pending) {
            self.finish_request(id);
        } else {
            self.requests.settling.push(id);
        }
    }

    /// A write is acknowledged only when all known failures are on record on the members that remain.
    fn may_acknowledge(&self, pending: &Pending) -> bool {
        let writes = pending.request.op.changes();
        !writes || self.settled() && !(pending.request.fua && self.lost.dirty())
    }

    fn finish_request(&mut self, id: u32) {
        let pending = self.requests.list[id as usize]
            .take()
            .expect("a request is finished once");
        self.requests.free.push(id);
        if pending.request.op.changes() && !self.ties.cached_above {
            self.cache_change_ends(pending.request.offset, pending.request.bytes);
        }
        if !self.ties.counted_above {
            let latency = self.now.since(pending.admitted);
            self.note_latency(pending.request.op, latency);
        }
        let reads = pending.request.op == RequestOp::Read;
        let result = match pending.error {
            _ if self.halted() && !reads || self.disowned() => {
                Err(self.refusal(pending.request.op))
            }
            Some(error) => Err(error),
            None => Ok(()),
        };
        self.reply(pending.request.tag, result);
    }

    /// Only reads and writes count: the time of a flush or trim depends on how much there is to flush or
    /// trim.
    pub fn note_latency(&mut self, op: RequestOp, latency: Nanos) {
        if matches!(op, RequestOp::Read | RequestOp::Write) {
            self.latencies.note(self.now, latency);
            self.tasks.note_latency(latency);
        }
    }

    /// Metadata became durable: acknowledges what waited for it.
    pub(crate) fn requests_settle(&mut self) {
        let mut index = 0;
        while index < self.requests.settling.len() {
            let id = self.requests.settling[index];
            if self.may_acknowledge(self.requests.get(id)) {
                self.requests.settling.swap_remove(index);
                self.finish_request(id);
            } else {
                index += 1;
            }
        }
    }
}
