//! Requests in flight: who asked, and what becomes of the reply.

use super::Shell;
use super::borrowers::Reading;
use super::leases::{Route, Through};
use crate::front::Ask;
use crate::host::lanes::LOCAL;
use crate::memory::USER_BYTES_MAX;
use crate::remote::{LocalReply, LocalRequest};
use restripe_array::{Buf, BufRef, Request, RequestError, RequestOp, RequestTag};
use std::sync::mpsc::Sender;

/// Owner of memory for requests of this process.
const LOCAL_OWNER: u32 = u32::MAX;

/// A request that an engine has, by the index that is its tag.
pub(super) enum Pending {
    Remote {
        connection: u32,
        tag: u64,
        buf: Option<BufRef>,
        through: Option<Through>,
    },
    Local {
        tag: u64,
        op: RequestOp,
        buf: Option<BufRef>,
        reply: Sender<LocalReply>,
    },
    /// Its connection is gone.
    Orphan {
        buf: Option<BufRef>,
        through: Option<Through>,
    },
    /// The reactor's own: who borrows a lease.
    Look(Box<Reading>),
}

/// A request of this process that waits for memory.
pub(super) struct LocalWait {
    request: LocalRequest,
    reply: Sender<LocalReply>,
}

/// What a request without data names as its buffer.
fn no_buffer() -> BufRef {
    BufRef::new(Buf(Buf::USER), 0, 0)
}

/// A connection, as a client of an array's lanes.
fn client_of(connection: u32) -> u32 {
    LOCAL + 1 + connection
}

impl Shell {
    /// Hands the requests that a connection just made to their arrays.
    pub(super) fn take_asks(&mut self, connection: u32) {
        let mut asks = std::mem::take(&mut self.asks);
        for ask in asks.drain(..) {
            let route = self.route(&ask);
            let pending = Pending::Remote {
                connection,
                tag: ask.tag,
                buf: ask.buf,
                through: route.as_ref().and_then(|route| route.lease),
            };
            let tag = RequestTag(u64::from(self.pending.insert(pending)));
            match route {
                Some(route) => self.hand_in(tag, connection, &ask, &route),
                None => self.refused.push((tag, RequestError::Unavailable)),
            }
        }
        self.asks = asks;
    }

    fn hand_in(&mut self, tag: RequestTag, connection: u32, ask: &Ask, route: &Route) {
        let request = Request {
            tag,
            op: ask.op,
            offset: route.offset,
            bytes: ask.bytes,
            buf: ask.buf.unwrap_or_else(no_buffer),
            fua: ask.fua,
        };
        self.hosts[route.host].request_in(route.lane, client_of(connection), request);
    }

    /// Answers what never reached an engine. Whether there was any.
    pub(super) fn answer_refused(&mut self) -> bool {
        let refused = std::mem::take(&mut self.refused);
        let any = !refused.is_empty();
        for (tag, error) in refused {
            self.reply(tag, Err(error));
        }
        any
    }

    pub(super) fn reply(&mut self, tag: RequestTag, result: Result<(), RequestError>) {
        let index = u32::try_from(tag.0).expect("tags are indexes of the list");
        let pending = self.pending.remove(index);
        match pending.expect("a request is answered once") {
            Pending::Remote {
                connection,
                tag,
                through,
                ..
            } => {
                let result = self.translated(through, result);
                self.with(connection, |c, around| c.replied(tag, result, around));
                self.send_early(connection);
            }
            Pending::Local {
                tag,
                op,
                buf,
                reply,
            } => self.reply_local(tag, op, buf, &reply, result),
            Pending::Orphan { buf, through } => {
                // Nobody hears it, but a lease may have another borrower by it.
                let _ = self.translated(through, result);
                if let Some(buf) = buf {
                    self.users.release(buf);
                }
            }
            Pending::Look(reading) => self.looked(reading, result),
        }
    }

    fn translated(
        &mut self,
        through: Option<Through>,
        result: Result<(), RequestError>,
    ) -> Result<(), RequestError> {
        match through {
            Some(through) => self.came_through(through, result),
            None => result,
        }
    }

    /// Cuts the requests of a connection loose, and lists the memory that they still use.
    pub(super) fn orphan_requests(&mut self, gone: u32) -> Vec<Buf> {
        let mut in_use = Vec::new();
        for (_, pending) in self.pending.iter_mut() {
            if let Pending::Remote {
                connection,
                buf,
                through,
                ..
            } = pending
                && *connection == gone
            {
                in_use.extend(buf.map(|buf| buf.buf));
                *pending = Pending::Orphan {
                    buf: *buf,
                    through: *through,
                };
            }
        }
        in_use
    }

    /// Begins nothing more of what a connection asked for that is gone.
    pub(super) fn drop_waiting(&mut self, gone: u32) {
        for host in 0..self.hosts.len() {
            for (tag, result) in self.hosts[host].lanes().forget(client_of(gone)) {
                self.reply(tag, result);
                self.quiet = false;
            }
        }
    }

    // ---------------------------------------------------------------------------------- requests of this process

    pub(super) fn submit_local(&mut self, request: LocalRequest, reply: Sender<LocalReply>) {
        let data = matches!(request.op, RequestOp::Read | RequestOp::Write);
        let too_long = data && request.bytes > u64::from(USER_BYTES_MAX);
        let odd = request.op == RequestOp::Write && request.data.len() as u64 != request.bytes;
        if self.hosts.get(request.array).is_none() || too_long || odd {
            let result = Err(RequestError::Unavailable);
            // A client that is gone needs no answer; here and below.
            let _ = reply.send(LocalReply {
                tag: request.tag,
                result,
                data: Vec::new(),
            });
            return;
        }
        self.local_waiting.push_back(LocalWait { request, reply });
    }

    /// Starts waiting requests of this process while there is memory. Whether any was started.
    pub(super) fn feed_local(&mut self) -> bool {
        let mut fed = false;
        while self.starved.is_empty() {
            let Some(wait) = self.local_waiting.pop_front() else {
                break;
            };
            match self.local_buffer(&wait.request) {
                Ok(buf) => {
                    self.start_local(wait, buf);
                    fed = true;
                }
                Err(()) => {
                    self.local_waiting.push_front(wait);
                    break;
                }
            }
        }
        fed
    }

    fn local_buffer(&mut self, request: &LocalRequest) -> Result<Option<BufRef>, ()> {
        if !matches!(request.op, RequestOp::Read | RequestOp::Write) || request.bytes == 0 {
            return Ok(None);
        }
        let bytes = request.bytes as u32;
        let buf = self.users.allocate(bytes, LOCAL_OWNER).ok_or(())?;
        if request.op == RequestOp::Write {
            self.users.memory(buf.buf).fill(0, &request.data);
        }
        Ok(Some(buf))
    }

    fn start_local(&mut self, wait: LocalWait, buf: Option<BufRef>) {
        let LocalWait { request, reply } = wait;
        let pending = Pending::Local {
            tag: request.tag,
            op: request.op,
            buf,
            reply,
        };
        let tag = RequestTag(u64::from(self.pending.insert(pending)));
        let (op, offset, bytes, fua) = (request.op, request.offset, request.bytes, request.fua);
        let buf = buf.unwrap_or_else(no_buffer);
        self.hosts[request.array].request(Request {
            tag,
            op,
            offset,
            bytes,
            buf,
            fua,
        });
    }

    fn reply_local(
        &mut self,
        tag: u64,
        op: RequestOp,
        buf: Option<BufRef>,
        reply: &Sender<LocalReply>,
        result: Result<(), RequestError>,
    ) {
        let mut data = Vec::new();
        if let Some(buf) = buf {
            if op == RequestOp::Read && result.is_ok() {
                data.extend_from_slice(self.users.memory(buf.buf).slice(0, buf.bytes as usize));
            }
            self.users.release(buf);
        }
        let _ = reply.send(LocalReply { tag, result, data });
    }
}
