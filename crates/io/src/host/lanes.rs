//! Requests that wait for the engine, and the order in which the engine accepts them: round robin, weighted
//! by cost.
//!
//! The engine accepts a bounded number of requests at a time. Its places belong to lanes: one lane of the
//! array's clients, and one of each lease. A lane has some places that no other lane may use. All lanes
//! share the remaining places.
//!
//! In a lane the clients take turns; a client is a connection. The same rule holds among lanes and among
//! clients. Each counts the cost of the requests that were accepted from it, and the lowest count is next.
//! After a pause, a lane or client starts at the count of the others, so a pause earns no credit.
//!
//! | kind of request | cost | accepted |
//! |---|---|---|
//! | read, write | [`REQUEST_COST`] and its bytes | whole |
//! | flush | [`REQUEST_COST`] | whole |
//! | trim, write of zeros | [`REQUEST_COST`] and the work of the members, by the engine's estimate | in pieces |
//!
//! The total cost of the requests in the engine is bounded ([`Load`]), with a lower bound for trims and
//! zeros. So a request waits for a bounded amount of other clients' work, at any queue depth. A client
//! without others never waits for a turn. Below [`OWN_COST`] a client waits for no other client.
//!
//! Writes to one block are done one after the other, and so are writes to the same offset in other chunks of
//! its row. The engine gets [`SAME_BLOCK`] writes of a client to one block at a time, so that other clients'
//! writes to that block wait for no more than these. A client's other requests overtake those that wait for
//! a block.

use restripe_array::{
    PAGE_SECTORS, Request, RequestError, RequestOp, RequestTag, SECTOR_BYTES, Work,
};
use std::collections::VecDeque;

/// The lane of the array's own users.
pub const USERS: u32 = 0;
/// The client that all requests of this process are of. Connections come after it.
pub const LOCAL: u32 = 0;
/// Parts of the engine's places: users have one of so many to themselves, and a lease one of so many.
const USERS_PARTS: u32 = 2;
const LEASE_PARTS: u32 = 128;
/// What a request costs beside its bytes.
const REQUEST_COST: u64 = 64 * 1024;
/// Cost of each kind that a client may have in the engine whatever others have there.
const OWN_COST: u64 = 1 << 20;
/// Trims and zeros have one of so many parts of all cost in the engine.
const BULK_PARTS: u64 = 8;
/// Writes, trims and zeros of one client that begin in the same block.
const SAME_BLOCK: u8 = 4;
/// Blocks are counted by a hash of this length. Two blocks with one hash share a count.
const HASH_BITS: u32 = 10;
/// Waiting requests of a client that are looked at for one whose block has room.
const LOOKED_AT: usize = 64;

/// The engine takes a client's requests of one kind in the order of their arrival. A request passes those that wait for a block.
/// The kinds of one client take turns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    /// And flushes.
    Write,
    /// Trims and zeros: their bytes cost a client nothing to ask for.
    Bulk,
}

const KINDS: [Kind; 3] = [Kind::Read, Kind::Write, Kind::Bulk];

impl Kind {
    fn of(op: RequestOp) -> Kind {
        match op {
            RequestOp::Read => Kind::Read,
            RequestOp::Write | RequestOp::Flush => Kind::Write,
            RequestOp::CompareAndWrite | RequestOp::Or => Kind::Write,
            RequestOp::Trim | RequestOp::WriteZeroes { .. } => Kind::Bulk,
        }
    }
}

/// Cost of what the engine has.
struct Load {
    all: u64,
    bulk: u64,
    most: u64,
}

impl Load {
    fn allows(&self, kind: Kind) -> bool {
        let bulk = kind != Kind::Bulk || self.bulk < self.most / BULK_PARTS;
        self.all < self.most && bulk
    }

    fn add(&mut self, kind: Kind, cost: u64) {
        self.all += cost;
        if kind == Kind::Bulk {
            self.bulk += cost;
        }
    }

    fn remove(&mut self, kind: Kind, cost: u64) {
        self.all -= cost;
        if kind == Kind::Bulk {
            self.bulk -= cost;
        }
    }
}

/// Requests of one connection.
#[derive(Default)]
struct Client {
    waiting: [VecDeque<Request>; KINDS.len()],
    /// Cost in the engine.
    cost: [u64; KINDS.len()],
    /// The kind whose turn it is.
    turn: usize,
    /// The cost of all that it was given.
    given: u64,
    /// Requests in the engine by the hash of their first block.
    blocks: Vec<u8>,
}

/// The hash of the block in which a request that changes data begins.
fn block_of(request: &Request) -> Option<usize> {
    let block = request.offset / (PAGE_SECTORS * SECTOR_BYTES);
    let hash = block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - HASH_BITS);
    match request.op {
        RequestOp::Read | RequestOp::Flush => None,
        _ => Some(hash as usize),
    }
}

impl Client {
    /// Whether the engine has as many requests for a block as it may.
    fn has_enough_at(&self, block: usize) -> bool {
        let count = self.blocks.get(block);
        count.is_some_and(|count| *count >= SAME_BLOCK)
    }

    fn count_at(&mut self, block: usize) {
        self.blocks.resize(1 << HASH_BITS, 0);
        self.blocks[block] += 1;
    }

    fn waits(&self) -> bool {
        self.waiting.iter().any(|queue| !queue.is_empty())
    }

    /// The kind whose turn it is among those that may go, and the place of the request in its queue.
    fn next(&self, load: &Load) -> Option<(Kind, usize)> {
        let round = (0..KINDS.len()).map(|step| KINDS[(self.turn + step) % KINDS.len()]);
        let mut may = round.filter(|kind| {
            let own = self.cost[*kind as usize] < OWN_COST;
            own || load.allows(*kind)
        });
        may.find_map(|kind| Some((kind, self.next_of(kind)?)))
    }

    fn next_of(&self, kind: Kind) -> Option<usize> {
        let free = |request| block_of(request).is_none_or(|block| !self.has_enough_at(block));
        let mut waiting = self.waiting[kind as usize].iter().take(LOOKED_AT);
        waiting.position(free)
    }
}

#[derive(Default)]
struct Lane {
    /// By their numbers.
    clients: Vec<Client>,
    /// Those of them that have something waiting.
    turns: Vec<u32>,
    /// What the client that was last given something had been given before.
    clock: u64,
    /// The cost of all that it was given.
    given: u64,
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
        self.in_flight == 0 && self.turns.is_empty()
    }

    fn client(&mut self, number: u32) -> &mut Client {
        let place = number as usize;
        if self.clients.len() <= place {
            self.clients.resize_with(place + 1, Client::default);
        }
        &mut self.clients[place]
    }

    fn push(&mut self, number: u32, request: Request) {
        let clock = self.clock;
        let client = self.client(number);
        if !client.waits() {
            client.given = client.given.max(clock);
            self.turns.push(number);
        }
        let client = self.client(number);
        client.waiting[Kind::of(request.op) as usize].push_back(request);
    }

    /// Whose turn it is among those that may go.
    fn next_client(&self, load: &Load) -> Option<(u32, Kind, usize)> {
        let of = |number: &u32| &self.clients[*number as usize];
        let may = self.turns.iter().filter_map(|number| {
            let (kind, place) = of(number).next(load)?;
            Some((*number, kind, place))
        });
        may.min_by_key(|(number, ..)| of(number).given)
    }

    fn rest(&mut self, number: u32) {
        if !self.clients[number as usize].waits() {
            self.turns.retain(|waiting| *waiting != number);
        }
    }
}

/// A request that has come, until its answer goes.
#[derive(Clone, Copy)]
struct Flight {
    lane: u32,
    client: u32,
    kind: Kind,
    /// Pieces that the engine has, and their cost.
    pieces: u32,
    cost: u64,
    /// The hash of its first block, once the engine has some of it.
    block: Option<usize>,
    /// Some of it has not been taken yet.
    rest: bool,
    result: Result<(), RequestError>,
}

pub struct Lanes {
    lanes: Vec<Lane>,
    /// By their tags, which are indexes of a list.
    flights: Vec<Option<Flight>>,
    /// What the lane that was last given something had been given before.
    clock: u64,
    places: u32,
    in_flight: u32,
    load: Load,
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
            flights: Vec::new(),
            clock: 0,
            places,
            in_flight: 0,
            load: Load {
                all: 0,
                bulk: 0,
                most: u64::from(places) * REQUEST_COST,
            },
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

    pub fn push(&mut self, lane: u32, client: u32, request: Request) {
        let place = request.tag.0 as usize;
        if self.flights.len() <= place {
            self.flights.resize(place + 1, None);
        }
        self.flights[place] = Some(Flight {
            lane,
            client,
            kind: Kind::of(request.op),
            pieces: 0,
            cost: 0,
            block: None,
            rest: true,
            result: Ok(()),
        });
        let lane = &mut self.lanes[lane as usize];
        if lane.turns.is_empty() {
            lane.given = lane.given.max(self.clock);
        }
        lane.push(client, request);
    }

    /// Whether one may be taken now, as far as turns go.
    pub fn ready(&self) -> bool {
        self.next().is_some()
    }

    /// The next request for the engine, which has a place for it, or the next piece of one. `piece`: how much of a trim or a
    /// write of zeros is taken at once.
    pub fn take(&mut self, piece: impl FnOnce(&Request) -> Work) -> Option<Request> {
        let (place, number, kind, waits_at) = self.next()?;
        let client = &mut self.lanes[place].clients[number as usize];
        let queue = &mut client.waiting[kind as usize];
        let request = queue.get_mut(waits_at)?;
        let work = match kind {
            Kind::Bulk => piece(request),
            Kind::Read | Kind::Write => data_work(request),
        };
        let (taken, rest) = cut(request, work.bytes);
        if !rest {
            queue.remove(waits_at);
        }
        let cost = REQUEST_COST + work.cost;
        self.charge(place, number, kind, cost);
        let flight = self.flight(taken.tag);
        flight.pieces += 1;
        flight.cost += cost;
        flight.rest = rest;
        // By its first piece, whether or not that is back when the next one goes.
        if flight.block.is_none() {
            flight.block = block_of(&taken);
            if let Some(block) = flight.block {
                self.lanes[place].clients[number as usize].count_at(block);
            }
        }
        Some(taken)
    }

    /// A client had its turn.
    fn charge(&mut self, place: usize, number: u32, kind: Kind, cost: u64) {
        let lane = &mut self.lanes[place];
        let client = &mut lane.clients[number as usize];
        (lane.clock, self.clock) = (client.given, lane.given);
        client.given += cost;
        client.cost[kind as usize] += cost;
        client.turn = (kind as usize + 1) % KINDS.len();
        lane.given += cost;
        lane.in_flight += 1;
        lane.rest(number);
        self.in_flight += 1;
        self.load.add(kind, cost);
    }

    fn next(&self) -> Option<(usize, u32, Kind, usize)> {
        let unused: u32 = self.lanes.iter().map(Lane::unused).sum();
        let may = self.lanes.iter().enumerate().filter_map(|(place, lane)| {
            let has_place = lane.unused() > 0 || self.in_flight + unused < self.places;
            let (number, kind, at) = lane.next_client(&self.load).filter(|_| has_place)?;
            Some((place, number, kind, at))
        });
        may.min_by_key(|(place, ..)| self.lanes[*place].given)
    }

    fn flight(&mut self, tag: RequestTag) -> &mut Flight {
        let flight = self.flights[tag.0 as usize].as_mut();
        flight.expect("a request is there until its answer")
    }

    /// The engine has answered a request, or a piece of one. Gives the answer once that of every piece is there.
    pub fn ended(
        &mut self,
        tag: RequestTag,
        result: Result<(), RequestError>,
    ) -> Option<Result<(), RequestError>> {
        let flight = self.flight(tag);
        // Which of its pieces it was is not known, nor does it matter: each gives back as much.
        let cost = flight.cost / u64::from(flight.pieces);
        flight.cost -= cost;
        flight.pieces -= 1;
        flight.result = flight.result.and(result);
        let Flight {
            lane, client, kind, ..
        } = *flight;
        let drops = result.is_err() && flight.rest;
        let lane = &mut self.lanes[lane as usize];
        lane.in_flight -= 1;
        lane.clients[client as usize].cost[kind as usize] -= cost;
        self.in_flight -= 1;
        self.load.remove(kind, cost);
        if drops {
            self.drop_rest(tag);
        }
        self.answer(tag)
    }

    /// A piece failed, so nothing more of its request is done.
    fn drop_rest(&mut self, tag: RequestTag) {
        let flight = self.flight(tag);
        flight.rest = false;
        let Flight {
            lane, client, kind, ..
        } = *flight;
        let lane = &mut self.lanes[lane as usize];
        lane.clients[client as usize].waiting[kind as usize].retain(|request| request.tag != tag);
        lane.rest(client);
    }

    /// The answer to a request, if the engine has nothing of it any more and is to have nothing more.
    fn answer(&mut self, tag: RequestTag) -> Option<Result<(), RequestError>> {
        let done = |flight: &mut Flight| flight.pieces == 0 && !flight.rest;
        let flight = self.flights[tag.0 as usize].take_if(done)?;
        if let Some(block) = flight.block {
            let lane = &mut self.lanes[flight.lane as usize];
            lane.clients[flight.client as usize].blocks[block] -= 1;
        }
        Some(flight.result)
    }

    /// A client is gone: what it asked for is not begun any more. Gives the answers that are due by that.
    pub fn forget(&mut self, client: u32) -> Vec<(RequestTag, Result<(), RequestError>)> {
        let clients = self.lanes.iter_mut();
        let clients = clients.filter_map(|lane| lane.clients.get_mut(client as usize));
        let waiting = clients.flat_map(|client| client.waiting.iter_mut());
        let dropped: Vec<Request> = waiting.flat_map(|queue| queue.drain(..)).collect();
        for lane in &mut self.lanes {
            lane.turns.retain(|waiting| *waiting != client);
        }
        let mut answers = Vec::new();
        for RequestTag(tag) in dropped.iter().map(|request| request.tag) {
            let flight = self.flight(RequestTag(tag));
            flight.rest = false;
            flight.result = Err(RequestError::Unavailable);
            let answer = self.answer(RequestTag(tag));
            answers.extend(answer.map(|result| (RequestTag(tag), result)));
        }
        answers
    }
}

fn data_work(request: &Request) -> Work {
    Work {
        bytes: request.bytes,
        cost: match request.op {
            RequestOp::Flush => 0,
            _ => request.bytes,
        },
    }
}

/// Takes the first bytes of a request, and says whether there are more. What is refused as a whole may have any range.
fn cut(request: &mut Request, bytes: u64) -> (Request, bool) {
    if bytes >= request.bytes {
        return (*request, false);
    }
    let taken = Request { bytes, ..*request };
    request.offset += bytes;
    request.bytes -= bytes;
    (taken, true)
}

#[cfg(test)]
mod tests;
