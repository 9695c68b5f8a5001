//! Places and turns, counted in requests and pieces: no test looks at a clock.

use super::*;
use restripe_array::{Buf, BufRef};

const MIB: u64 = 1 << 20;
const FLUSH: (RequestOp, u64) = (RequestOp::Flush, 0);
const WRITE: (RequestOp, u64) = (RequestOp::Write, 4096);
const ZERO: RequestOp = RequestOp::WriteZeroes { fast: false };
/// Every kind of request that a client can flood an array with, as large as NBD has it.
const FLOODS: [(RequestOp, u64); 7] = [
    (RequestOp::Read, 32 * MIB),
    (RequestOp::Write, 32 * MIB),
    (RequestOp::Write, 4096),
    (RequestOp::Read, 4096),
    FLUSH,
    (RequestOp::Trim, 4096 * MIB),
    (ZERO, 4096 * MIB),
];

/// Lanes, and the engine's part: it has taken what is in `taken`.
struct Bench {
    lanes: Lanes,
    next_tag: u64,
    taken: VecDeque<(u32, u32, Request)>,
}

impl Bench {
    fn new(places: u32) -> Bench {
        Bench {
            lanes: Lanes::new(places),
            next_tag: 0,
            taken: VecDeque::new(),
        }
    }

    fn push(&mut self, lane: u32, client: u32, what: (RequestOp, u64)) {
        self.push_at(lane, client, what, self.next_tag << 32);
    }

    fn push_at(&mut self, lane: u32, client: u32, (op, bytes): (RequestOp, u64), offset: u64) {
        let request = Request {
            tag: RequestTag(self.next_tag),
            op,
            offset,
            bytes,
            buf: BufRef::new(Buf(Buf::USER), 0, 0),
            fua: false,
        };
        self.next_tag += 1;
        self.lanes.push(lane, client, request);
    }

    fn fill(&mut self, lane: u32, client: u32, what: (RequestOp, u64), count: u32) {
        (0..count).for_each(|_| self.push(lane, client, what));
    }

    /// Takes all that may be taken, in pieces of a mebibyte. How many.
    fn take_all(&mut self) -> usize {
        let before = self.taken.len();
        let piece = |request: &Request| Work {
            bytes: request.bytes.min(MIB),
            cost: request.bytes.min(MIB),
        };
        while let Some(request) = self.lanes.take(piece) {
            let flight = self.lanes.flight(request.tag);
            let (lane, client) = (flight.lane, flight.client);
            self.taken.push_back((lane, client, request));
        }
        self.taken.len() - before
    }

    /// The engine answers what it took first. Whose it was, and the answer if it is the last piece.
    fn end(&mut self) -> (u32, u32, Option<Result<(), RequestError>>) {
        let (lane, client, request) = self.taken.pop_front().expect("it never runs dry");
        (lane, client, self.lanes.ended(request.tag, Ok(())))
    }

    fn taken_of(&self, lane: u32) -> usize {
        self.taken.iter().filter(|(of, ..)| *of == lane).count()
    }

    /// Pieces that the engine answers until a client has its answer.
    fn pieces_until_answered(&mut self, of: u32) -> usize {
        let most = 10_000;
        for count in 1..most {
            let (_, client, answer) = self.end();
            self.take_all();
            if client == of && answer.is_some() {
                return count;
            }
        }
        most
    }
}

#[test]
fn users_alone_have_every_place() {
    let mut bench = Bench::new(1024);
    bench.fill(USERS, 1, FLUSH, 3000);
    assert_eq!(bench.take_all(), 1024);
    assert_eq!(bench.end(), (USERS, 1, Some(Ok(()))));
    assert_eq!(bench.take_all(), 1);
}

#[test]
fn users_at_full_depth_leave_a_lease_its_places() {
    let mut bench = Bench::new(1024);
    let lease = bench.lanes.open();
    bench.fill(USERS, 1, FLUSH, 3000);
    assert_eq!(bench.take_all(), 1024 - 8);
    bench.fill(lease, 2, FLUSH, 100);
    assert_eq!((bench.take_all(), bench.taken_of(lease)), (8, 8));
    bench.taken.rotate_right(8);
    bench.end();
    assert_eq!(bench.take_all(), 1);
    assert_eq!(bench.taken_of(lease), 8, "its place is still its own");
}

/// A lease may come when users have every place: it has its own as they become free.
#[test]
fn places_are_handed_over_as_they_become_free() {
    let mut bench = Bench::new(128);
    bench.fill(USERS, 1, FLUSH, 1000);
    assert_eq!(bench.take_all(), 128);
    let lease = bench.lanes.open();
    bench.fill(lease, 2, FLUSH, 10);
    bench.end();
    assert_eq!((bench.take_all(), bench.taken_of(lease)), (1, 1));
}

#[test]
fn borrowers_share_evenly_whatever_their_depth() {
    let mut bench = Bench::new(256);
    let (deep, shallow) = (bench.lanes.open(), bench.lanes.open());
    bench.fill(USERS, 1, FLUSH, 5000);
    bench.fill(deep, 2, FLUSH, 5000);
    bench.take_all();
    let mut served = [0; 3];
    for _ in 0..3000 {
        let (lane, ..) = bench.end();
        served[lane as usize] += 1;
        if served[2] < 500 && bench.lanes.idle(shallow) {
            bench.push(shallow, 3, FLUSH);
        }
        bench.take_all();
    }
    assert!(served[0] > 1000 && served[1] > 1000, "{served:?}");
    assert!(served[2] >= 10, "{served:?}");
    // Both at full depth: one for one.
    bench.fill(shallow, 3, FLUSH, 5000);
    let mut served = [0u32; 3];
    for _ in 0..3000 {
        let (lane, ..) = bench.end();
        served[lane as usize] += 1;
        bench.take_all();
    }
    assert!(served[1].abs_diff(served[2]) <= 256, "{served:?}");
}

#[test]
fn a_closed_lane_is_used_again_once_it_is_idle() {
    let mut bench = Bench::new(1024);
    let first = bench.lanes.open();
    bench.fill(first, 1, FLUSH, 1);
    bench.take_all();
    bench.lanes.close(first);
    assert!(!bench.lanes.closed_are_idle());
    assert_ne!(bench.lanes.open(), first);
    bench.end();
    assert!(bench.lanes.closed_are_idle() && bench.lanes.idle(first));
    assert_eq!(bench.lanes.open(), first);
}

/// However many lanes there are, what is promised to all of them is there.
#[test]
fn no_more_is_promised_than_there_is() {
    for places in [1, 2, 16, 100, 1024] {
        let mut bench = Bench::new(places);
        let opened = (0..40).map(|_| bench.lanes.open());
        assert_eq!(opened.last(), Some(40));
        let promised: u32 = bench.lanes.lanes.iter().map(|lane| lane.own).sum();
        assert!(promised <= places, "{promised} of {places}");
        bench.fill(USERS, 1, FLUSH, 2000);
        bench.fill(40, 2, FLUSH, 2000);
        assert!(bench.take_all() as u32 <= places);
    }
}

/// Requests of every kind flood an array, from one connection or many; another client's, of every kind, is answered after
/// a bounded number of pieces. The flooders are users or borrowers, and so is the other.
#[test]
fn floods_of_every_kind_let_other_clients_have_their_turns() {
    for flood in FLOODS {
        for other in FLOODS.map(|(op, bytes)| (op, bytes.min(MIB))) {
            for (flooders, lent) in [(1, false), (1, true), (8, false)] {
                let mut bench = Bench::new(1024);
                let lease = bench.lanes.open();
                let (by, of) = if lent { (lease, USERS) } else { (USERS, lease) };
                for client in 1..=flooders {
                    bench.fill(by, client, flood, 256);
                }
                bench.take_all();
                for lane in [by, of] {
                    bench.push(lane, 20, other);
                    bench.take_all();
                    let pieces = bench.pieces_until_answered(20);
                    assert!(pieces <= 1024, "{flood:?} before {other:?}: {pieces}");
                }
            }
        }
    }
}

/// They wait for each other, and so does a write of another client to the same row.
#[test]
fn writes_of_one_client_to_one_block_are_few_at_a_time() {
    for op in [RequestOp::Write, RequestOp::Trim, ZERO] {
        let mut bench = Bench::new(512);
        (0..60).for_each(|_| bench.push_at(USERS, 1, (op, 4096), 8192));
        assert_eq!(bench.take_all(), usize::from(SAME_BLOCK));
        bench.push_at(USERS, 2, WRITE, 8192);
        assert_eq!(bench.take_all(), 1, "another client has its own");
        for other in [(RequestOp::Read, 4096), (op, 4096), FLUSH] {
            bench.push(USERS, 3, other);
            bench.push_at(USERS, 1, other, 1 << 40);
            let taken = bench.take_all();
            assert_eq!(taken, 2, "{other:?} elsewhere waits for none of them");
        }
        let mut answers = 0;
        while !bench.taken.is_empty() {
            answers += usize::from(bench.end().2.is_some());
            bench.take_all();
        }
        assert_eq!(answers, 67);
        assert!(bench.lanes.idle(USERS));
    }
}

#[test]
fn request_in_pieces_counts_for_its_first_block_until_its_answer() {
    let mut bench = Bench::new(8);
    bench.push_at(USERS, 1, (ZERO, 3 * MIB), 0);
    for piece in 1..=3 {
        assert_eq!(bench.take_all(), 1, "each waits for the one before");
        let (.., answer) = bench.end();
        assert_eq!(answer.is_some(), piece == 3);
    }
    assert!(bench.lanes.idle(USERS));
    (0..5).for_each(|_| bench.push_at(USERS, 1, WRITE, 0));
    assert_eq!(bench.take_all(), usize::from(SAME_BLOCK));
}

/// The same in bytes that members write: what a flood has in the engine is bounded.
#[test]
fn zeros_in_the_engine_are_bounded_whatever_is_asked() {
    let mut bench = Bench::new(1024);
    bench.fill(USERS, 1, (ZERO, 4096 * MIB), 256);
    assert!((4..=8).contains(&bench.take_all()), "{}", bench.taken.len());
    bench.fill(USERS, 2, (RequestOp::Trim, 4096 * MIB), 256);
    assert_eq!(bench.take_all(), 1, "the second has one piece at once");
    for client in 1..=2 {
        bench.fill(USERS, client, WRITE, 1);
    }
    assert_eq!(bench.take_all(), 2, "and neither holds up data");
}

/// Two clients with as much as they like of different things get as much work done.
#[test]
fn turns_go_by_cost_and_not_by_requests() {
    let mut bench = Bench::new(64);
    bench.fill(USERS, 1, (RequestOp::Write, MIB), 400);
    bench.fill(USERS, 2, WRITE, 4000);
    bench.take_all();
    let mut cost = [0; 3];
    for _ in 0..1000 {
        let bytes = bench.taken[0].2.bytes;
        let (_, client, _) = bench.end();
        cost[client as usize] += REQUEST_COST + bytes;
        bench.take_all();
    }
    let gap = u64::abs_diff(cost[1], cost[2]);
    assert!(gap < 10 * MIB && cost[1] > 20 * MIB, "{cost:?}");
}

/// A client's reads do not wait for its own zeros: a file system discards much and reads on.
#[test]
fn kinds_of_one_client_take_turns() {
    let mut bench = Bench::new(1024);
    bench.fill(USERS, 1, (RequestOp::Trim, 4096 * MIB), 200);
    bench.take_all();
    bench.push(USERS, 1, (RequestOp::Read, 4096));
    bench.push(USERS, 1, FLUSH);
    assert_eq!(bench.take_all(), 2);
}

#[test]
fn a_client_that_pauses_saves_no_turns() {
    let mut bench = Bench::new(16);
    bench.fill(USERS, 1, WRITE, 1000);
    bench.take_all();
    for _ in 0..500 {
        bench.end();
        bench.take_all();
    }
    bench.fill(USERS, 2, WRITE, 1000);
    let mut served = [0u32; 3];
    for _ in 0..200 {
        let (_, client, _) = bench.end();
        served[client as usize] += 1;
        bench.take_all();
    }
    assert!(served[1] > 80, "{served:?}");
}

#[test]
fn pieces_cover_their_request_and_are_answered_as_one() {
    let mut bench = Bench::new(1024);
    bench.push(USERS, 1, (ZERO, 10 * MIB + 512));
    let (mut next, mut answers) = (0, 0);
    while bench.take_all() > 0 || !bench.taken.is_empty() {
        let (_, _, piece) = bench.taken[0];
        assert_eq!(piece.offset, next);
        next += piece.bytes;
        answers += usize::from(bench.end().2.is_some());
    }
    assert_eq!((next, answers), (10 * MIB + 512, 1));
    assert!(bench.lanes.idle(USERS) && bench.lanes.load.all == 0);
}

#[test]
fn a_piece_that_fails_ends_its_request_with_its_error() {
    let mut bench = Bench::new(1024);
    bench.push(USERS, 1, (ZERO, 4096 * MIB));
    bench.take_all();
    let error = Err(RequestError::NotFast);
    let mut answers = Vec::new();
    while let Some((.., piece)) = bench.taken.pop_front() {
        let first = piece.offset == 0;
        let result = if first { error } else { Ok(()) };
        answers.extend(bench.lanes.ended(piece.tag, result));
        assert_eq!(bench.take_all(), 0, "nothing more is begun");
    }
    assert_eq!(answers, [error]);
}

#[test]
fn what_a_client_that_is_gone_asked_for_is_not_begun() {
    let mut bench = Bench::new(16);
    bench.fill(USERS, 1, WRITE, 100);
    bench.fill(USERS, 1, (ZERO, 4096 * MIB), 2);
    let begun = bench.take_all();
    let answers = bench.lanes.forget(1);
    assert_eq!(bench.take_all(), 0);
    let ended: Vec<_> = (0..begun).filter_map(|_| bench.end().2).collect();
    assert_eq!(answers.len() + ended.len(), 102, "each is answered once");
    assert!(bench.lanes.idle(USERS) && bench.lanes.load.all == 0);
    bench.push(USERS, 1, WRITE);
    assert_eq!(bench.take_all(), 1, "its number may be another's");
}
