//! Requests that wait for the engine, and whose turn it is: a lane for users, and one for each lease.
//!
//! The engine takes a bounded number of requests at a time. A lane has some of these places to itself, whether it uses
//! them or not; the others go to whoever's turn it is, round about. So users at any depth hold up no borrower, and no
//! borrower another.

use restripe_array::{Request, RequestTag};
use std::collections::VecDeque;

/// The lane of the array's own users.
pub const USERS: u32 = 0;
/// Parts of the engine's places: users have one of so many to themselves, and a lease one of so many.
const USERS_PARTS: u32 = 2;
const LEASE_PARTS: u32 = 128;
/// Bits of a tag that are its request's; those above tell the lane.
const TAG_BITS: u32 = 32;

#[derive(Default)]
struct Lane {
    waiting: VecDeque<Request>,
    in_flight: u32,
    /// Places that are nobody else's.
    own: u32,
    open: bool,
}

impl Lane {
    fn unused(&self) -> u32 {
        self.own.saturating_sub(self.in_flight)
    }

    fn idle(&self) -> bool {
        self.in_flight == 0 && self.waiting.is_empty()
    }
}

pub struct Lanes {
    lanes: Vec<Lane>,
    /// Whose turn it is.
    turn: usize,
    places: u32,
    in_flight: u32,
    waiting: usize,
}

impl Lanes {
    /// For an engine that takes so many requests at a time.
    pub fn new(places: u32) -> Lanes {
        let users = Lane {
            own: places / USERS_PARTS,
            open: true,
            ..Lane::default()
        };
        Lanes {
            lanes: vec![users],
            turn: 0,
            places,
            in_flight: 0,
            waiting: 0,
        }
    }

    /// A lane for a lease.
    pub fn open(&mut self) -> u32 {
        let own = (self.places / LEASE_PARTS).max(1);
        let taken: u32 = self.lanes.iter().map(|lane| lane.own).sum();
        let lane = Lane {
            own: own.min(self.places.saturating_sub(taken)),
            open: true,
            ..Lane::default()
        };
        let free = self.lanes.iter().position(|lane| !lane.open && lane.idle());
        let place = free.unwrap_or(self.lanes.len());
        match free {
            Some(place) => self.lanes[place] = lane,
            None => self.lanes.push(lane),
        }
        u32::try_from(place).expect("as many as leases")
    }

    /// Nothing more comes; what is there still gets its turn.
    pub fn close(&mut self, lane: u32) {
        let lane = &mut self.lanes[lane as usize];
        (lane.open, lane.own) = (false, 0);
    }

    pub fn idle(&self, lane: u32) -> bool {
        self.lanes[lane as usize].idle()
    }

    /// Whether all is done of the lanes that are closed.
    pub fn closed_are_idle(&self) -> bool {
        self.lanes.iter().all(|lane| lane.open || lane.idle())
    }

    pub fn push(&mut self, lane: u32, mut request: Request) {
        request.tag = RequestTag(u64::from(lane) << TAG_BITS | request.tag.0);
        self.lanes[lane as usize].waiting.push_back(request);
        self.waiting += 1;
    }

    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Whether one may be taken now, as far as lanes go.
    pub fn ready(&self) -> bool {
        self.next_lane().is_some()
    }

    /// The next request for the engine, which has a place for it.
    pub fn take(&mut self) -> Option<Request> {
        let place = self.next_lane()?;
        let lane = &mut self.lanes[place];
        let request = lane.waiting.pop_front()?;
        let own = lane.unused() > 0;
        lane.in_flight += 1;
        self.in_flight += 1;
        self.waiting -= 1;
        // Who takes a place of his own takes no turn: he would take the next one's with it.
        if !own {
            self.turn = (place + 1) % self.lanes.len();
        }
        Some(request)
    }

    fn next_lane(&self) -> Option<usize> {
        if self.waiting == 0 {
            return None;
        }
        let unused: u32 = self.lanes.iter().map(Lane::unused).sum();
        let count = self.lanes.len();
        let round = (0..count).map(|step| (self.turn + step) % count);
        let mut may = round.filter(|place| {
            let lane = &self.lanes[*place];
            let has_place = lane.unused() > 0 || self.in_flight + unused < self.places;
            !lane.waiting.is_empty() && has_place
        });
        may.next()
    }

    /// A request has been answered. Gives its tag back as it came.
    pub fn ended(&mut self, tag: RequestTag) -> RequestTag {
        let lane = &mut self.lanes[(tag.0 >> TAG_BITS) as usize];
        lane.in_flight -= 1;
        self.in_flight -= 1;
        RequestTag(tag.0 & ((1 << TAG_BITS) - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use restripe_array::{Buf, BufRef, RequestOp};

    fn request(tag: u64) -> Request {
        Request {
            tag: RequestTag(tag),
            op: RequestOp::Flush,
            offset: 0,
            bytes: 0,
            buf: BufRef::new(Buf(Buf::USER), 0, 0),
            fua: false,
        }
    }

    fn fill(lanes: &mut Lanes, lane: u32, count: u64) {
        (0..count).for_each(|tag| lanes.push(lane, request(tag)));
    }

    fn take_all(lanes: &mut Lanes) -> Vec<(u32, RequestTag)> {
        let taken = std::iter::from_fn(|| lanes.take());
        taken
            .map(|request| ((request.tag.0 >> TAG_BITS) as u32, request.tag))
            .collect()
    }

    fn count(taken: &[(u32, RequestTag)], lane: u32) -> usize {
        taken.iter().filter(|(of, _)| *of == lane).count()
    }

    #[test]
    fn users_alone_have_every_place() {
        let mut lanes = Lanes::new(1024);
        fill(&mut lanes, USERS, 3000);
        let taken = take_all(&mut lanes);
        assert_eq!(taken.len(), 1024);
        assert_eq!(lanes.ended(taken[5].1), RequestTag(5));
        assert_eq!(take_all(&mut lanes).len(), 1);
    }

    #[test]
    fn users_at_full_depth_leave_a_lease_its_places() {
        let mut lanes = Lanes::new(1024);
        let lease = lanes.open();
        fill(&mut lanes, USERS, 3000);
        assert_eq!(take_all(&mut lanes).len(), 1024 - 8);
        fill(&mut lanes, lease, 100);
        let taken = take_all(&mut lanes);
        assert_eq!((taken.len(), count(&taken, lease)), (8, 8));
        lanes.ended(taken[0].1);
        let next = take_all(&mut lanes);
        assert_eq!(
            (next.len(), count(&next, lease)),
            (1, 1),
            "its place is still its own"
        );
    }

    /// A lease may come when users have every place: it has its own as they become free.
    #[test]
    fn places_are_handed_over_as_they_become_free() {
        let mut lanes = Lanes::new(128);
        fill(&mut lanes, USERS, 1000);
        let taken = take_all(&mut lanes);
        assert_eq!(taken.len(), 128);
        let lease = lanes.open();
        fill(&mut lanes, lease, 10);
        lanes.ended(taken[0].1);
        let next = take_all(&mut lanes);
        assert_eq!((next.len(), count(&next, lease)), (1, 1));
    }

    #[test]
    fn borrowers_share_evenly_whatever_their_depth() {
        let mut lanes = Lanes::new(256);
        let (deep, shallow) = (lanes.open(), lanes.open());
        fill(&mut lanes, USERS, 5000);
        fill(&mut lanes, deep, 5000);
        let mut in_flight = VecDeque::from(take_all(&mut lanes));
        let mut served = [0; 3];
        for _ in 0..3000 {
            let (lane, tag) = in_flight.pop_front().expect("it never runs dry");
            lanes.ended(tag);
            served[lane as usize] += 1;
            if served[2] < 500 && lanes.idle(shallow) {
                lanes.push(shallow, request(0));
            }
            in_flight.extend(take_all(&mut lanes));
        }
        assert!(
            served[USERS as usize] > 1000 && served[deep as usize] > 1000,
            "{served:?}"
        );
        assert!(served[shallow as usize] >= 10, "{served:?}");
        // Both at full depth: one for one.
        fill(&mut lanes, shallow, 5000);
        let mut served = [0u32; 3];
        for _ in 0..3000 {
            let (lane, tag) = in_flight.pop_front().expect("it never runs dry");
            lanes.ended(tag);
            served[lane as usize] += 1;
            in_flight.extend(take_all(&mut lanes));
        }
        assert!(
            served[deep as usize].abs_diff(served[shallow as usize]) <= 256,
            "{served:?}"
        );
    }

    #[test]
    fn a_closed_lane_is_used_again_once_it_is_idle() {
        let mut lanes = Lanes::new(1024);
        let first = lanes.open();
        fill(&mut lanes, first, 1);
        let taken = take_all(&mut lanes);
        lanes.close(first);
        assert!(!lanes.closed_are_idle());
        assert_ne!(lanes.open(), first);
        lanes.ended(taken[0].1);
        assert!(lanes.closed_are_idle() && lanes.idle(first));
        assert_eq!(lanes.open(), first);
    }

    /// However many lanes there are, what is promised to all of them is there.
    #[test]
    fn no_more_is_promised_than_there_is() {
        for places in [1, 2, 16, 100, 1024] {
            let mut lanes = Lanes::new(places);
            let opened = (0..40).map(|_| lanes.open());
            assert_eq!(opened.last(), Some(40));
            let promised: u32 = lanes.lanes.iter().map(|lane| lane.own).sum();
            assert!(promised <= places, "{promised} of {places}");
            fill(&mut lanes, USERS, 2000);
            fill(&mut lanes, 40, 2000);
            assert!(take_all(&mut lanes).len() as u32 <= places);
        }
    }
}
