//! Users' requests on their way through the overlay: who asked, and when.

use restripe_array::{Nanos, Request, RequestOp, RequestTag, Slab};

#[derive(Clone, Copy)]
pub(super) struct User {
    pub(super) tag: RequestTag,
    pub(super) op: RequestOp,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) begun: Nanos,
}

#[derive(Default)]
pub(super) struct Users {
    list: Slab<User>,
}

impl Users {
    /// A request begins. The tag that it has meanwhile.
    pub(super) fn begin(&mut self, request: &Request, now: Nanos) -> RequestTag {
        let index = self.list.insert(User {
            tag: request.tag,
            op: request.op,
            offset: request.offset,
            bytes: request.bytes,
            begun: now,
        });
        RequestTag(u64::from(index))
    }

    /// It ends.
    pub(super) fn end(&mut self, tag: RequestTag) -> User {
        let user = self.list.remove(tag.0 as u32);
        user.expect("it has begun")
    }
}
