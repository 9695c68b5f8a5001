//! Users' requests on their way through the overlay: who asked, and when.

use crate::contract::{Request, RequestOp, RequestTag};
use crate::units::Nanos;
use alloc::vec::Vec;

#[derive(Clone, Copy)]
pub(super) struct User {
    pub(super) tag: RequestTag,
    pub(super) op: RequestOp,
    pub(super) begun: Nanos,
}

#[derive(Default)]
pub(super) struct Users {
    list: Vec<User>,
    free: Vec<u32>,
}

impl Users {
    /// A request begins. The tag that it has meanwhile.
    pub(super) fn begin(&mut self, request: &Request, now: Nanos) -> RequestTag {
        let user = User {
            tag: request.tag,
            op: request.op,
            begun: now,
        };
        let index = self.free.pop().unwrap_or_else(|| {
            self.list.push(user);
            self.list.len() as u32 - 1 // as many as requests
        });
        self.list[index as usize] = user;
        RequestTag(u64::from(index))
    }

    /// It ends.
    pub(super) fn end(&mut self, tag: RequestTag) -> User {
        let index = tag.0 as u32; // given by `begin`
        self.free.push(index);
        self.list[index as usize]
    }
}
