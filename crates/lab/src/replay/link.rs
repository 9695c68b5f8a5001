//! A network between the array and some of its drives: a round trip, and a rate that they share in each
//! direction.
//!
//! A drive gets its next operation when the reply to the last one is back, so it is idle during a round
//! trip. This is the behaviour of a member behind NBD with a queue depth of one.

use super::meter::Instrumented;
use restripe_array::{IoOp, Nanos, SECTOR_BYTES};
use restripe_sim::disk::{Asked, Device};
use restripe_sim::rng::Rng;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// What a link does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkPlan {
    /// From a drive and back, with nothing to carry.
    pub round_trip: Nanos,
    /// Bytes a second, each way; more than none.
    pub rate: u64,
}

/// The same link for all drives that hold a copy of it.
#[derive(Clone)]
pub struct Link {
    plan: LinkPlan,
    /// When each direction has carried what it was given: to the drives, and from them.
    free: Arc<Mutex<[Nanos; 2]>>,
}

#[derive(Clone, Copy)]
enum Way {
    There,
    Back,
}

impl Link {
    pub fn new(plan: LinkPlan) -> Link {
        assert!(plan.rate > 0, "a link carries something");
        Link {
            plan,
            free: Arc::default(),
        }
    }

    /// When bytes that are sent at `now` have all arrived.
    fn carry(&self, now: Nanos, way: Way, bytes: u64) -> Nanos {
        // Both ends live on one thread: the lock is never contended.
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let takes = u128::from(bytes) * 1_000_000_000 / u128::from(self.plan.rate);
        let takes = u64::try_from(takes).unwrap_or(u64::MAX / 4);
        let free = &mut free[way as usize];
        *free = now.max(*free).after(Nanos(takes));
        free.after(Nanos(self.plan.round_trip.0 / 2))
    }
}

/// A drive at the other end of a link, or here if there is none.
pub fn linked(drive: Instrumented, link: Option<&Link>) -> Box<dyn Device> {
    match link {
        None => Box::new(drive),
        Some(link) => Box::new(Linked {
            drive,
            link: link.clone(),
        }),
    }
}

struct Linked {
    drive: Instrumented,
    link: Link,
}

impl Device for Linked {
    fn serve(&mut self, now: Nanos, asked: &Asked, rng: &mut Rng) -> Nanos {
        let bytes = asked.sectors * SECTOR_BYTES;
        let (there, back) = match asked.op {
            IoOp::Read => (0, bytes),
            IoOp::Write => (bytes, 0),
            IoOp::Flush | IoOp::Zero | IoOp::Trim | IoOp::Standby | IoOp::Wake => (0, 0),
        };
        let arrived = self.link.carry(now, Way::There, there);
        let done = self.drive.serve(arrived, asked, rng);
        self.link.carry(done, Way::Back, back)
    }

    fn choose(&mut self, now: Nanos, waiting: &VecDeque<Asked>) -> usize {
        self.drive.choose(now, waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_carried_the_same_way_waits_for_what_was_carried_before() {
        let link = Link::new(LinkPlan {
            round_trip: Nanos(200),
            rate: 1_000_000_000,
        });
        let other = link.clone();
        assert_eq!(link.carry(Nanos(0), Way::There, 1000), Nanos(1100));
        assert_eq!(other.carry(Nanos(500), Way::There, 1000), Nanos(2100));
        assert_eq!(link.carry(Nanos(500), Way::Back, 10), Nanos(610));
        assert_eq!(link.carry(Nanos(9000), Way::There, 0), Nanos(9100));
    }
}
