//! Requests of clients, and parts of the work in flight: a floor above the log.

use super::effect::{Effect, PartTag};
use super::log::Log;
use alloc::vec::Vec;
use core::ops::Range;
use restripe_array::{Request, RequestError, RequestOp, SECTOR_BYTES};

pub(super) struct Pending {
    pub(super) request: Request,
    /// Sectors of it that have been started.
    pub(super) cut: u64,
    pub(super) parts: u32,
    /// Of a read: whether it has read from the main set and from the log.
    pub(super) asked: [bool; 2],
    pub(super) error: Option<RequestError>,
}

/// What a part of the work is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Owner {
    /// Part of a request.
    Request(u32),
    /// Part of a request that keeps places in the log from being written over.
    Reading {
        request: u32,
        serial: u64,
    },
    /// A flush of the log that no client asked for.
    Space,
    Copy {
        serial: u64,
        stripe: Option<u64>,
    },
    Fetch {
        serial: u64,
    },
    /// Part of the log that is read to be moved.
    Move {
        serial: u64,
    },
    Reuse,
    /// A flush of NVRAM.
    Nvram,
    /// A flush of the log that makes slots of NVRAM free.
    Slots,
    /// The flush of the log after which NVRAM is not valid.
    NvramEnd,
    MainFlush,
    LogFlush,
    Obsolete,
    CleanFlush,
    CleanObsolete,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) owner: Owner,
    /// Of a flush of the log: records below were acknowledged when it began.
    pub(super) covers: Option<u64>,
}

pub struct Requests {
    below: Log,
    requests: Vec<Option<Pending>>,
    free: Vec<u32>,
    parts: Vec<Option<Part>>,
    free_parts: Vec<u32>,
}

floor!(Requests over Log);

impl Requests {
    pub(super) fn new(below: Log) -> Requests {
        let (requests, parts) = (below.limits.requests, below.limits.parts());
        Requests {
            below,
            requests: (0..requests).map(|_| None).collect(),
            free: (0..requests).rev().collect(),
            parts: (0..parts).map(|_| None).collect(),
            free_parts: (0..parts).rev().collect(),
        }
    }

    /// Whether another request is accepted now.
    pub fn ready(&self) -> bool {
        !self.free.is_empty()
    }

    /// Whether no request of a client is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.free.len() == self.requests.len()
    }

    pub(super) fn has_parts(&self) -> bool {
        self.free_parts.len() < self.parts.len()
    }

    /// Whether a read may take a part: it leaves room for other work.
    pub(super) fn may_read(&self) -> bool {
        self.free_parts.len() as u32 > self.limits.parts_without_reads()
    }

    /// Whether a request that changes some of these sectors is in flight.
    pub(crate) fn is_written(&self, range: &Range<u64>) -> bool {
        let mut requests = self.requests.iter().flatten();
        requests.any(|pending| pending.request.op.changes() && pending.request.meets(range))
    }

    /// Takes a request in; refuses it if there are too many.
    pub(super) fn accept(&mut self, request: Request) -> Option<u32> {
        let Some(id) = self.free.pop() else {
            let refused = Err(RequestError::Unavailable);
            self.emit(Effect::Reply(request.tag, refused));
            return None;
        };
        self.requests[id as usize] = Some(Pending {
            request,
            cut: 0,
            parts: 0,
            asked: [false; 2],
            error: None,
        });
        Some(id)
    }

    pub(super) fn pending(&mut self, id: u32) -> &mut Pending {
        self.requests[id as usize]
            .as_mut()
            .expect("a request lives until its reply")
    }

    /// Ends what is left of a request with an error.
    pub(super) fn give_up(&mut self, id: u32, error: RequestError) {
        let pending = self.pending(id);
        pending.error.get_or_insert(error);
        pending.cut = whole(&pending.request);
        self.reply_if_done(id);
    }

    pub(super) fn request_part_done(&mut self, id: u32, result: Result<(), RequestError>) {
        let pending = self.pending(id);
        pending.parts -= 1;
        if let Err(error) = result {
            pending.error.get_or_insert(error);
        }
        self.reply_if_done(id);
    }

    pub(super) fn reply_if_done(&mut self, id: u32) {
        let pending = self.pending(id);
        if pending.parts > 0 || pending.cut < whole(&pending.request) {
            return;
        }
        let result = pending.error.map_or(Ok(()), Err);
        let tag = pending.request.tag;
        self.requests[id as usize] = None;
        self.free.push(id);
        self.emit(Effect::Reply(tag, result));
    }

    // ------------------------------------------------------------------------------------------------ parts

    pub(super) fn begin_part(&mut self, owner: Owner) -> PartTag {
        let index = self.free_parts.pop().expect("room is kept for it");
        self.parts[index as usize] = Some(Part {
            owner,
            covers: None,
        });
        if let Owner::Request(id) | Owner::Reading { request: id, .. } = owner {
            self.pending(id).parts += 1;
        }
        PartTag(index)
    }

    pub(super) fn part_mut(&mut self, tag: PartTag) -> &mut Part {
        self.parts[tag.0 as usize]
            .as_mut()
            .expect("it is in flight")
    }

    pub(super) fn end_part(&mut self, tag: PartTag) -> Part {
        let part = self.parts[tag.0 as usize].take().expect("it is in flight");
        self.free_parts.push(tag.0);
        part
    }

    /// Whether a part is of a client's request.
    pub(crate) fn is_of_client(&self, part: PartTag) -> bool {
        let part = self.parts[part.0 as usize].as_ref();
        part.is_some_and(|part| matches!(part.owner, Owner::Request(_) | Owner::Reading { .. }))
    }
}

/// How many sectors have to be started of a request; none of a flush.
pub(super) fn whole(request: &Request) -> u64 {
    match request.op {
        RequestOp::Flush => 0,
        _ => request.bytes / SECTOR_BYTES,
    }
}
