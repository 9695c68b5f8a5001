//! Admission of a request, and the reply when every part of it is done.

use super::Clients;
use super::requests::{Copies, Pending};
use crate::contract::{Request, RequestError, RequestOp};
use crate::durability::flusher::Waiter;
use crate::report::ArrayState;
use crate::units::{Nanos, SECTOR_BYTES};

impl Clients {
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
        }
    }

    pub fn admit(&self, request: &Request) -> Result<(), RequestError> {
        if !matches!(
            self.state,
            ArrayState::Healthy | ArrayState::Degraded | ArrayState::Failed
        ) {
            return Err(RequestError::Unavailable);
        }
        if self.disowned() {
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

    /// A write is acknowledged only when the failures since its admission are on record on the members that
    /// remain.
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
