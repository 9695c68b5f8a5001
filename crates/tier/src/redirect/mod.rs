//! Decides which requests go to the log set: none, all, or those of clients that a task would slow.
//!
//! Owns the clients' requests while they pass through the overlay. [`hot_reads`] and [`hot_zones`] also bring
//! data there that clients read. A write that overlaps data in the log goes there in any case: the overlay
//! decides that (`change` in `overlay/machine.rs`).

pub(crate) mod hot_reads;
pub(crate) mod hot_zones;

use super::deferred_mirror::DeferredMirror;
use crate::config::Redirect;
use crate::overlay::Site;
use restripe_array::{
    Halt, Nanos, Request, RequestError, RequestOp, RequestTag, SECTOR_BYTES, Slab, TaskKind,
};

pub(crate) struct Redirects {
    pub(crate) below: DeferredMirror,
    /// Requests of clients in the overlay, as they arrived, and the times. The number is the tag there.
    clients: Slab<(Request, Nanos)>,
    /// The time of a client's last request.
    pub(crate) last_request: Nanos,
    /// A write or flush was refused because the log is broken.
    pub(crate) refused_write: bool,
}

floor!(Redirects over DeferredMirror { clients, last_request, refused_write });

impl Redirects {
    /// A client's request goes through the overlay: it gets the tag that it has there.
    pub(crate) fn begin_client(&mut self, request: &mut Request) -> Result<(), RequestError> {
        let now = self.now;
        let home = &mut self.sets[Site::Home];
        home.admit(request)?;
        home.note_request(request);
        if request.op.changes() {
            home.cache_change_begins(request.offset, request.bytes);
        }
        let index = self.clients.insert((*request, now));
        request.tag = RequestTag(u64::from(index));
        Ok(())
    }

    /// Whether a task runs for which clients are redirected: one that restores redundancy, or a scrub if
    /// configured.
    pub(crate) fn redirects_clients(&self) -> bool {
        let counts = |kind: TaskKind| match kind {
            TaskKind::Check | TaskKind::Repair => self.surrogate.scrubs,
            TaskKind::Rebuild | TaskKind::Replace | TaskKind::Resync | TaskKind::Growth => true,
        };
        self.home().running_tasks().any(counts)
    }

    /// Whether a write is to go to the log set.
    pub(crate) fn redirects(&mut self, request: &Request) -> bool {
        self.last_request = self.now;
        if self.is_leaving() {
            return false;
        }
        match self.surrogate.redirect {
            Redirect::Reraid => true,
            Redirect::Graid | Redirect::Eraid => self.defers_writes(),
            _ if !self.redirects_clients() || request.op == RequestOp::Trim => false,
            Redirect::None => false,
            Redirect::WorkOut | Redirect::Ido => true,
            Redirect::Vdf => self.misses_member(request),
        }
    }

    /// Whether some of the cells of a request have no member to be read from.
    fn misses_member(&self, request: &Request) -> bool {
        let home = self.home();
        let first = request.offset / SECTOR_BYTES;
        let end = (request.offset + request.bytes).div_ceil(SECTOR_BYTES);
        let chunk = home.layout().chunk_sectors();
        (first / chunk..end.div_ceil(chunk)).any(|index| home.misses_member_of(index * chunk))
    }

    /// Answers a client whose request went through the overlay.
    pub(crate) fn answer(&mut self, tag: RequestTag, result: Result<(), RequestError>) {
        let client = self.clients.remove(tag.0 as u32);
        let (client, begun) = client.expect("it has begun");
        self.refused_write |= client.op != RequestOp::Read
            && self.log_has_no_space()
            && matches!(
                result,
                Err(RequestError::Unavailable | RequestError::NoSpace)
            );
        let took = self.now.since(begun);
        let home = &mut self.sets[Site::Home];
        home.note_latency(client.op, took);
        if client.op.changes() {
            home.cache_change_ends(client.offset, client.bytes);
        }
        let result = result.map_err(|error| self.as_writer(client.op, error));
        self.reply(client.tag, result);
    }

    /// A write that fails because the log has no space gets that error.
    fn as_writer(&self, op: RequestOp, error: RequestError) -> RequestError {
        match error {
            RequestError::Unavailable if op != RequestOp::Read && self.log_has_no_space() => {
                RequestError::NoSpace
            }
            error => error,
        }
    }

    pub(crate) fn log_has_no_space(&self) -> bool {
        let broken = self.overlay.as_ref().is_some_and(|one| one.is_broken());
        let full = self.log().full_members().next().is_some();
        let no_space = self.log().halt() == Some(Halt::NoSpace) || !self.log().halted() && full;
        (broken || self.lacks_room()) && no_space
    }
}
