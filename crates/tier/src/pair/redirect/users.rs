//! Users' requests on their way through the overlay: who asked, and when.

use restripe_array::{Nanos, Request, RequestOp, RequestTag, Slab};

#[derive(Clone, Copy)]
pub(crate) struct User {
    pub(crate) tag: RequestTag,
    pub(crate) op: RequestOp,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) begun: Nanos,
}

#[derive(Default)]
pub(crate) struct Users {
    list: Slab<User>,
}

impl Users {
    /// A request begins. The tag that it has meanwhile.
    pub(crate) fn begin(&mut self, request: &Request, now: Nanos) -> RequestTag {
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
    pub(crate) fn end(&mut self, tag: RequestTag) -> User {
        let user = self.list.remove(tag.0 as u32);
        user.expect("it has begun")
    }
}
