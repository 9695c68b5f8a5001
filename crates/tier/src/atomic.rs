//! Atomic requests: compare and write, and or. Each is a read, a computation and a write of the sets beneath,
//! while every other change of its sectors waits.
//!
//! | stage | cause | next |
//! |---|---|---|
//! | waits | no change of its sectors that came before is in flight | reads |
//! | reads | the bytes are read | computes |
//! | reads | they cannot be read | -: refused |
//! | computes | they are others than those to compare with | -: [`RequestError::Differs`] |
//! | computes | they are the same, or the or is made | computed |
//! | computed | there is room for a request | writes |
//! | writes | the write ended | -: answered as the write was |
//!
//! A change that meets an atomic request waits here, and continues when that has ended. Reads do not wait:
//! one that is in flight with a write may give either, as always.

use crate::route::own_tag;
use alloc::boxed::Box;
use alloc::vec::Vec;
use restripe_array::{
    Action, Actions, BufRef, Compute, ComputeOp, LinearOutput, Request, RequestError, RequestOp,
    RequestTag, Tag, Verdict,
};

/// The first of as many tags as numbers, for computations. The tier's own are below.
const TAGS: u32 = 1 << 25;
/// The last tag of a request; others of its kind are below. A front end's are smaller.
const LAST_REQUEST: u64 = u64::MAX;
/// As many as a tag has room for. Those in use at a time are no more than an engine has requests.
const NUMBERS: u32 = 1 << 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Waits,
    Reads,
    Computes,
    Computed,
    Writes,
}

struct Pending {
    request: Request,
    number: u32,
    stage: Stage,
}

/// Atomic requests, and changes that wait for them, in the order of their arrival.
#[derive(Default)]
pub(crate) struct Atomics {
    list: Vec<Pending>,
    next: u32,
}

impl Pending {
    /// A third of the buffer.
    fn part(&self, index: u32) -> BufRef {
        let bytes = self.request.bytes as u32;
        self.request.buf.part(index * bytes, bytes)
    }

    fn sub_request(&self, op: RequestOp, part: u32) -> Request {
        Request {
            tag: RequestTag(LAST_REQUEST - u64::from(self.number)),
            op,
            buf: self.part(part),
            ..self.request
        }
    }

    fn meets(&self, other: &Request) -> bool {
        self.request.meets(&other.sectors())
    }

    fn compute(&self) -> Box<Compute> {
        let (given, written, read) = (self.part(0), self.part(1), self.part(2));
        let output = LinearOutput {
            target: written,
            coefficients: Vec::new(),
        };
        let (op, outputs) = match self.request.op {
            RequestOp::Or => (ComputeOp::Or, alloc::vec![output]),
            _ => (ComputeOp::Compare, Vec::new()),
        };
        Box::new(Compute {
            tag: own_tag(TAGS + self.number),
            op,
            sources: alloc::vec![given, read],
            outputs,
            page: None,
        })
    }
}

impl Atomics {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether a request is atomic, or changes what an atomic one may.
    pub(crate) fn takes(&self, request: &Request) -> bool {
        let meets = || self.list.iter().any(|pending| pending.meets(request));
        request.op.is_atomic() || request.op.changes() && meets()
    }

    pub(crate) fn add(&mut self, request: Request) {
        let number = self.free_number();
        self.list.push(Pending {
            request,
            number,
            stage: Stage::Waits,
        });
    }

    /// A number that no request has: one may wait for long while many others come and go.
    fn free_number(&mut self) -> u32 {
        loop {
            let number = self.next;
            self.next = (self.next + 1) % NUMBERS;
            if self.list.iter().all(|pending| pending.number != number) {
                return number;
            }
        }
    }

    /// The next request for the sets. `is_written`: whether they have a change of a request's sectors.
    pub(crate) fn next(&mut self, is_written: impl Fn(&Request) -> bool) -> Option<Request> {
        let mut index = 0;
        while index < self.list.len() {
            let (former, rest) = self.list.split_at_mut(index);
            let pending = &mut rest[0];
            let waits = |former: &Pending| former.meets(&pending.request);
            match pending.stage {
                Stage::Computed => {
                    pending.stage = Stage::Writes;
                    return Some(pending.sub_request(RequestOp::Write, 1));
                }
                Stage::Waits if former.iter().any(waits) => {}
                Stage::Waits if !pending.request.op.is_atomic() => {
                    return Some(self.list.remove(index).request);
                }
                Stage::Waits if !is_written(&pending.request) => {
                    pending.stage = Stage::Reads;
                    return Some(pending.sub_request(RequestOp::Read, 2));
                }
                _ => {}
            }
            index += 1;
        }
        None
    }

    /// Takes out of the actions from `first` on what answers requests of its own, and adds what follows.
    pub(crate) fn take_replies(&mut self, actions: &mut Actions, first: usize) {
        let lowest = LAST_REQUEST - u64::from(NUMBERS);
        let own = |action: &mut Action| matches!(action, Action::Reply(tag, _) if tag.0 > lowest);
        let replies: Vec<Action> = actions.extract_if(first.., own).collect();
        for reply in replies {
            if let Action::Reply(tag, result) = reply {
                self.replied((LAST_REQUEST - tag.0) as u32, result, actions);
            }
        }
    }

    fn replied(&mut self, number: u32, result: Result<(), RequestError>, actions: &mut Actions) {
        let index = self.find(number);
        let pending = &mut self.list[index];
        match pending.stage {
            Stage::Reads if result.is_ok() => {
                pending.stage = Stage::Computes;
                actions.push(Action::Compute(pending.compute()));
            }
            _ => self.end(index, result, actions),
        }
    }

    /// Whether a computation is one of its own.
    pub(crate) fn owns(tag: Tag) -> bool {
        tag.0 >= own_tag(TAGS).0
    }

    pub(crate) fn computed(&mut self, tag: Tag, verdict: Verdict, actions: &mut Actions) {
        let index = self.find(tag.0 - own_tag(TAGS).0);
        match verdict {
            Verdict::Differ => self.end(index, Err(RequestError::Differs), actions),
            _ => self.list[index].stage = Stage::Computed,
        }
    }

    fn find(&self, number: u32) -> usize {
        let mut list = self.list.iter();
        list.position(|pending| pending.number == number)
            .expect("an atomic request lives until its end")
    }

    fn end(&mut self, index: usize, result: Result<(), RequestError>, actions: &mut Actions) {
        let pending = self.list.remove(index);
        actions.push(Action::Reply(pending.request.tag, result));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use restripe_array::Buf;

    fn or(tag: u64, sector: u64) -> Request {
        Request {
            tag: RequestTag(tag),
            op: RequestOp::Or,
            offset: sector * 512,
            bytes: 512,
            buf: BufRef::new(Buf(Buf::USER), 0, 1536),
            fua: false,
        }
    }

    #[test]
    fn a_change_is_as_durable_as_was_asked() {
        for fua in [true, false] {
            let mut atomics = Atomics::default();
            atomics.add(Request { fua, ..or(0, 0) });
            let read = atomics.next(|_| false).expect("it reads").tag;
            let mut actions = alloc::vec![Action::Reply(read, Ok(()))];
            atomics.take_replies(&mut actions, 0);
            let Some(Action::Compute(compute)) = actions.pop() else {
                panic!("it computes");
            };
            atomics.computed(compute.tag, Verdict::Done, &mut actions);
            let write = atomics.next(|_| false).expect("it writes");
            assert_eq!((write.op, write.fua), (RequestOp::Write, fua));
        }
    }

    /// One waits for its member while as many others go by as there are numbers.
    #[test]
    fn numbers_of_those_that_wait_are_not_given_again() {
        let mut atomics = Atomics::default();
        atomics.add(or(0, 0));
        let slow = atomics.next(|_| false).expect("it reads").tag;
        for tag in 1..=u64::from(NUMBERS) + 1 {
            atomics.add(or(tag, tag));
            let read = atomics.next(|_| false).expect("it reads").tag;
            assert_ne!(read, slow, "request {tag}");
            let failed = Err(RequestError::Unavailable);
            let mut actions = alloc::vec![Action::Reply(read, failed)];
            atomics.take_replies(&mut actions, 0);
            assert_eq!(actions, [Action::Reply(RequestTag(tag), failed)]);
        }
        assert_eq!(atomics.len(), 1);
    }
}
