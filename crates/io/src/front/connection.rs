//! One connection: its socket's side of a [`Protocol`].
//!
//! | state | receives | until |
//! |---|---|---|
//! | `Open(More)` | into the inbox | the protocol says otherwise |
//! | `Open(Payload)` | the rest of the payload, then the inbox | the payload is whole |
//! | `Open(Secure)` | messages of TLS | its handshake is over |
//! | `Open(Hold)` | nothing | a reply, or something was sent |
//! | `Open(Memory)` | nothing | memory was released and its turn came |
//! | `Finishing` | nothing | all is answered and sent |
//! | `Dead` | nothing | the kernel gave back what was in flight; of a session, also the engine |
//!
//! Under TLS the socket's bytes go through a [`SecureWire`]: received ones are opened and copied to the
//! payload or the inbox, and the outbox is sealed into ciphertext. Receiving waits for room for all that may
//! be opened.

use super::listen::{Wire, duplicate};
use super::outbox::Outbox;
use super::secure_wire::{SecureWire, next_send, sent};
use super::watches::{Watches, Watching};
use super::{
    Ask, DriverCommand, Export, HANDSHAKE_MAX, Link, MESSAGE_BYTES_MAX, Nudge, Protocol, Then,
};
use crate::memory::{Memory, Piece, UserMemory};
use crate::tls::{Channel, Event, Going};
use restripe_array::report::MapExtent;
use restripe_array::{BufRef, Nanos};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;

/// Requests in flight of one connection.
pub const IN_FLIGHT_MAX: u32 = 256;
/// Unsent bytes from which a connection takes no more requests: its peer does not read.
const UNSENT_MAX: u64 = 64 << 20;
/// Pieces of replies that may wait for one peer, as small bytes.
const UNSENT_SMALL_MAX: u64 = 256 * 1024;
/// Room for a whole message behind an unfinished one.
const INBOX_BYTES: usize = 2 * MESSAGE_BYTES_MAX;
/// Received behind a payload: enough for the next headers, little enough that the next payload is not copied.
const BEHIND_PAYLOAD_BYTES: usize = 512;
/// Bytes of exports that are mapped for one connection before others have their turns, and what a short
/// query counts as.
const MAPPED_A_TURN: u64 = 256 << 20;
const MAPPED_AT_LEAST: u64 = 1 << 20;
/// How long a peer may leave sent bytes untaken, and the slowest rate that is progress.
const SEND_PATIENCE: Nanos = Nanos::from_secs(30);
const BYTES_A_SECOND: u64 = 256 * 1024;
/// How long memory that others wait for may lie still, and how long a payload may keep it, at the same rate.
const HURRIED_PATIENCE: Nanos = Nanos::from_secs(5);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Open(Then),
    Finishing,
    Dead,
}

/// What a connection has attached to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attached {
    pub export: usize,
    /// It is a lease: its requests have memory of their own.
    pub lease: bool,
}

struct Payload {
    buf: BufRef,
    filled: u32,
}

impl Payload {
    fn due(&self) -> usize {
        (self.buf.bytes - self.filled) as usize
    }

    /// While others starve: a short time, and more only for what really comes.
    fn hurried_patience(&self) -> Nanos {
        let earned = Nanos::from_secs(u64::from(self.filled) / BYTES_A_SECOND);
        HURRIED_PATIENCE.after(earned)
    }
}

/// What the protocol changes through its [`Link`].
#[derive(Default)]
struct Linked {
    outbox: Outbox,
    /// What is sent and received goes through TLS.
    tls: Option<Box<SecureWire>>,
    in_flight: u32,
    /// What it attached to first.
    attached: Option<Attached>,
    /// The other exports that it has attached to: a session may have several.
    others: Vec<usize>,
    /// Bytes mapped since something was last received or sent.
    mapped: u64,
    /// It asked to be called when memory is free, and receives meanwhile.
    hungry: bool,
    /// It asked to be called when something was sent or answered.
    due: bool,
    /// Commands to be given to the driver, and how many it has.
    commands: Vec<DriverCommand>,
    commanded: usize,
    address: Option<SocketAddr>,
    /// That of the peer.
    peer: Option<SocketAddr>,
    socket: RawFd,
    watches: Watches,
}

impl Linked {
    fn is_borrowers(&self) -> bool {
        self.attached.is_some_and(|attached| attached.lease)
    }

    /// Bytes that the peer has not taken.
    fn unsent(&self) -> u64 {
        let sealed = self.tls.as_ref().map_or(0, |tls| tls.channel.unsent());
        self.outbox.bytes() + sealed as u64
    }

    /// Whether everything is sent that can be.
    fn is_drained(&self) -> bool {
        match &self.tls {
            Some(tls) => tls.is_drained(&self.outbox),
            None => self.outbox.bytes() == 0,
        }
    }

    fn has_failed(&self) -> bool {
        self.tls
            .as_ref()
            .is_some_and(|tls| tls.channel.has_failed())
    }

    fn live<'a, 'b>(&'a mut self, around: &'a mut Surroundings<'b>) -> Live<'a, 'b> {
        Live { own: self, around }
    }
}

pub struct Connection {
    wire: Wire,
    protocol: Box<dyn Protocol>,
    state: State,
    inbox: Memory,
    start: usize,
    end: usize,
    payload: Option<Payload>,
    link: Linked,
    receiving: bool,
    sending: bool,
    /// What came belongs to the handshake of TLS, and waits for its turn.
    shakes_hands: bool,
    /// The protocol knows that it is dead.
    ended: bool,
    /// Its requests that had not begun were dropped.
    cut: bool,
    /// When the peer connected.
    born: Nanos,
    /// When the peer last finished something, or we last had nothing to ask of it. Single bytes do not
    /// count: a drip must not hold memory for ever.
    progress: Nanos,
    /// When a byte last went either way, or nothing was waited for.
    moved: Nanos,
}

/// What the shell lends to a connection while it is called.
pub struct Surroundings<'a> {
    pub now: Nanos,
    pub users: &'a mut UserMemory,
    pub catalogue: &'a dyn Catalogue,
    /// This connection's number, as the owner of memory.
    pub number: u32,
    /// Others wait for memory: none for this one but what is apart for the modest, unless it is its turn.
    pub memory_reserved: bool,
    /// Requests that the call makes.
    pub asks: &'a mut Vec<Ask>,
    /// What the call does to other connections.
    pub nudges: &'a mut Vec<(u32, Nudge)>,
}

/// What there is to attach to.
pub trait Catalogue {
    fn exports(&self) -> usize;
    fn export(&self, index: usize) -> Option<Export>;
    fn view(&self, index: usize) -> Option<Arc<Export>>;
    fn is_lease(&self, index: usize) -> bool;
    fn map(&self, export: usize, offset: u64, bytes: u64, max: usize) -> Vec<MapExtent>;
}

impl Connection {
    pub fn new(wire: Wire, protocol: Box<dyn Protocol>, now: Nanos) -> Connection {
        let link = Linked {
            address: wire.local_address(),
            peer: wire.peer_address(),
            socket: wire.input.fd,
            ..Linked::default()
        };
        Connection {
            wire,
            protocol,
            state: State::Open(Then::More),
            inbox: Memory::new(INBOX_BYTES),
            start: 0,
            end: 0,
            payload: None,
            link,
            receiving: false,
            sending: false,
            shakes_hands: false,
            ended: false,
            cut: false,
            born: now,
            progress: now,
            moved: now,
        }
    }

    pub fn wire(&self) -> &Wire {
        &self.wire
    }

    pub fn attached(&self) -> Option<Attached> {
        self.link.attached
    }

    /// The exports that it has attached to.
    pub fn exports(&self) -> impl Iterator<Item = usize> {
        let first = self.link.attached.map(|attached| attached.export);
        first.into_iter().chain(self.link.others.iter().copied())
    }

    /// Whether it is a borrower's, who shares nothing with others.
    pub fn is_borrowers(&self) -> bool {
        self.link.is_borrowers()
    }

    /// Bytes that the peer has not taken.
    pub fn unsent(&self) -> u64 {
        self.link.unsent()
    }

    /// Whether it waits for memory.
    pub fn starved(&self) -> bool {
        self.state == State::Open(Then::Memory) || (self.link.hungry && !self.dead())
    }

    pub fn dead(&self) -> bool {
        self.state == State::Dead
    }

    /// Dead, and the kernel uses nothing of it any more. A session's requests are over as well.
    pub fn gone(&self) -> bool {
        let over = self.link.in_flight == 0 || !self.protocol.is_session();
        let commanded = self.link.commanded > 0 || self.link.watches.any_in_flight();
        self.dead() && !self.receiving && !self.sending && !commanded && over
    }

    /// Ends it at once. What it has in flight comes back soon.
    pub fn kill(&mut self) {
        if !self.dead() {
            self.state = State::Dead;
            self.wire.shut();
        }
    }

    /// The peer sends what it misses again on another connection.
    pub(crate) fn resends(&self) -> bool {
        self.protocol.resends() && !self.dead()
    }

    /// The peer has not finished its handshake, and is not the kernel of this machine.
    pub(crate) fn is_stranger(&self) -> bool {
        !self.protocol.is_proven() && !self.protocol.resends()
    }

    pub(crate) fn born(&self) -> Nanos {
        self.born
    }

    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        self.link.peer
    }

    pub(crate) fn is_session(&self) -> bool {
        self.protocol.is_session()
    }

    /// It is a session, and its end is due when its peer closes.
    pub(crate) fn ends_with_peer(&self) -> bool {
        self.is_session() && !self.dead() && !self.protocol.outlasts_peer()
    }

    /// Notes that its requests that had not begun are dropped now. `false`: none are to be.
    pub fn cut(&mut self) -> bool {
        self.dead() && self.protocol.is_session() && !std::mem::replace(&mut self.cut, true)
    }

    /// Notifies the protocol of the end, once.
    pub fn end(&mut self, around: &mut Surroundings<'_>) {
        if self.dead() && !std::mem::replace(&mut self.ended, true) {
            self.protocol.ended(&mut self.link.live(around));
        }
    }

    // ---------------------------------------------------------------------------------------- the
    // protocol's turns

    pub fn opened(&mut self, around: &mut Surroundings<'_>) {
        self.protocol.opened(&mut self.link.live(around));
    }

    pub fn replied(
        &mut self,
        tag: u64,
        result: Result<(), restripe_array::RequestError>,
        around: &mut Surroundings<'_>,
    ) {
        self.link.in_flight -= 1;
        if self.dead() && !self.protocol.is_session() {
            return;
        }
        self.end(around);
        self.protocol
            .replied(tag, result, &mut self.link.live(around));
        if self.dead() {
            return;
        }
        self.take_turn(around);
        self.offer_if(Then::Hold, around);
    }

    /// Something was sent or answered.
    fn take_turn(&mut self, around: &mut Surroundings<'_>) {
        if std::mem::take(&mut self.link.due) {
            self.protocol.memory(&mut self.link.live(around));
        }
    }

    /// Another connection asked for it.
    pub(crate) fn nudged(&mut self, how: Nudge, around: &mut Surroundings<'_>) {
        match how {
            _ if self.dead() => {}
            Nudge::End => self.kill(),
            Nudge::Finish => self.state = State::Finishing,
            Nudge::Wake => {
                self.protocol.woken(&mut self.link.live(around));
                self.offer_if(Then::Hold, around);
            }
        }
    }

    /// A second has passed.
    pub fn second(&mut self, around: &mut Surroundings<'_>) {
        let open = matches!(self.state, State::Open(_)) && self.protocol.is_session();
        if open && !self.protocol.second(&mut self.link.live(around)) {
            self.kill();
        }
    }

    /// Memory may be there now. Whether it was enough.
    pub fn retry_memory(&mut self, around: &mut Surroundings<'_>) -> bool {
        if std::mem::take(&mut self.link.hungry) {
            self.protocol.memory(&mut self.link.live(around));
        }
        self.offer_if(Then::Memory, around);
        !self.starved()
    }

    fn offer_if(&mut self, waiting_for: Then, around: &mut Surroundings<'_>) {
        if self.state == State::Open(waiting_for) {
            self.state = State::Open(Then::More);
            self.offer(around);
        }
    }

    /// Offers what lies in the inbox until the protocol wants something else.
    fn offer(&mut self, around: &mut Surroundings<'_>) {
        while self.state == State::Open(Then::More) && self.start < self.end {
            let bytes = self.inbox.slice(self.start, self.end - self.start);
            let received = self.protocol.received(bytes, &mut self.link.live(around));
            assert!(
                received.consumed <= bytes.len(),
                "a protocol consumes what it was offered"
            );
            self.start += received.consumed;
            if received.consumed > 0 {
                self.progress = around.now;
            }
            let stuck = received.consumed == 0 && received.then == Then::More;
            self.turn_to(received.then, around);
            if stuck {
                break;
            }
        }
        self.compact();
    }

    /// Bytes of the protocol that can be taken at once.
    fn capacity(&self) -> usize {
        let due = self.payload.as_ref().map_or(0, Payload::due);
        due + INBOX_BYTES - (self.end - self.start)
    }

    fn turn_to(&mut self, then: Then, around: &mut Surroundings<'_>) {
        self.state = State::Open(then);
        match then {
            Then::More | Then::Hold | Then::Memory => {}
            Then::Finish => self.state = State::Finishing,
            Then::Abort => self.kill(),
            Then::Secure => self.begin_tls(around),
            Then::Payload(buf) => {
                self.payload = Some(Payload { buf, filled: 0 });
                self.fill_from_inbox(around);
            }
        }
    }

    /// Moves what already came of a payload to its place.
    fn fill_from_inbox(&mut self, around: &mut Surroundings<'_>) {
        let Some(payload) = &self.payload else { return };
        let count = (self.end - self.start).min(payload.due());
        let bytes = self.inbox.slice(self.start, count);
        let at = (payload.buf.offset + payload.filled) as usize;
        around.users.memory(payload.buf.buf).fill(at, bytes);
        self.start += count;
        self.add_payload(count as u32, around);
    }

    fn add_payload(&mut self, count: u32, around: &mut Surroundings<'_>) {
        let Some(payload) = &mut self.payload else {
            return;
        };
        payload.filled += count;
        if payload.filled == payload.buf.bytes {
            self.payload = None;
            self.progress = around.now;
            self.state = State::Open(Then::More);
            self.protocol.filled(&mut self.link.live(around));
        }
    }

    fn compact(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > INBOX_BYTES / 2 {
            let rest = self.inbox.slice(self.start, self.end - self.start);
            self.inbox.fill(0, rest);
            (self.start, self.end) = (0, self.end - self.start);
        }
    }

    // ---------------------------------------------------------------------------------------------------
    // receiving

    /// What to receive into, if anything is to be received now.
    pub fn next_receive(&mut self, users: &UserMemory) -> Option<Vec<Piece>> {
        let State::Open(then) = self.state else {
            return None;
        };
        let waits = matches!(then, Then::Hold | Then::Memory) || self.choked();
        let reads_itself = self.wire.is_device() || self.protocol.carries_descriptors();
        if self.receiving || self.shakes_hands || waits || reads_itself {
            return None;
        }
        if self.link.tls.is_some() {
            return self.next_sealed_receive();
        }
        let mut pieces = Vec::with_capacity(2);
        let mut room = INBOX_BYTES - self.end;
        if let Some(payload) = &self.payload {
            let left = payload.buf.bytes - payload.filled;
            pieces.push(Piece::new(
                users.memory(payload.buf.buf).clone(),
                payload.buf.offset + payload.filled,
                left,
            ));
            room = room.min(BEHIND_PAYLOAD_BYTES);
        } else if room == 0 {
            // The protocol asks for more than a message can have.
            self.kill();
            return None;
        }
        pieces.push(Piece::new(self.inbox.clone(), self.end as u32, room as u32));
        self.receiving = true;
        Some(pieces)
    }

    /// The peer does not take what we send, so we take nothing more of it.
    fn choked(&self) -> bool {
        self.link.unsent() > UNSENT_MAX
    }

    /// A receive is back.
    pub fn received(&mut self, result: i32, around: &mut Surroundings<'_>) {
        self.receiving = false;
        self.link.mapped = 0;
        if self.dead() {
            return;
        }
        match result {
            count if count > 0 && self.link.tls.is_some() => {
                self.took_sealed(count as usize, around)
            }
            count if count > 0 => self.took(count as usize, around),
            0 if self.protocol.is_session() => self.kill(),
            0 => self.state = State::Finishing,
            again if matches!(-again, libc::EAGAIN | libc::EINTR) => {}
            _ => self.kill(),
        }
    }

    fn took(&mut self, count: usize, around: &mut Surroundings<'_>) {
        self.moved = around.now;
        let due = self.payload.as_ref().map_or(0, Payload::due);
        let into_payload = count.min(due);
        self.end += count - into_payload;
        if into_payload > 0 {
            self.add_payload(into_payload as u32, around);
        }
        self.offer(around);
    }

    // --------------------------------------------------------------------------------------------------- TLS

    /// What came behind the protocol's last message is TLS's.
    fn begin_tls(&mut self, around: &mut Surroundings<'_>) {
        let came = self.inbox.slice(self.start, self.end - self.start);
        let tls = self.link.tls.as_mut();
        let taken = tls.is_some_and(|tls| tls.channel.take_in(came));
        (self.start, self.end) = (0, 0);
        match taken {
            true => self.open_sealed(around),
            false => self.kill(),
        }
    }

    fn next_sealed_receive(&mut self) -> Option<Vec<Piece>> {
        let capacity = self.capacity();
        let piece = self.link.tls.as_mut()?.channel.receive(capacity);
        match piece {
            Some(piece) => {
                self.receiving = true;
                Some(vec![piece])
            }
            None => {
                // Longer than any record, and any message of the protocol.
                self.kill();
                None
            }
        }
    }

    fn took_sealed(&mut self, count: usize, around: &mut Surroundings<'_>) {
        self.moved = around.now;
        if let Some(tls) = &mut self.link.tls {
            tls.channel.received(count);
        }
        self.open_sealed(around);
    }

    /// Opens what came. What belongs to a handshake waits for [`Connection::shake_hands`].
    fn open_sealed(&mut self, around: &mut Surroundings<'_>) {
        let tls = self.link.tls.as_ref();
        self.shakes_hands = tls.is_some_and(|tls| !tls.channel.is_secured());
        if !self.shakes_hands {
            self.open(around);
        }
    }

    /// Whether a step of the handshake of TLS waits for its turn.
    pub(crate) fn shakes_hands(&self) -> bool {
        self.shakes_hands && !self.dead()
    }

    /// Takes a step of the handshake of TLS, if one waits.
    pub(crate) fn shake_hands(&mut self, around: &mut Surroundings<'_>) {
        if self.shakes_hands() {
            self.shakes_hands = false;
            self.open(around);
        }
    }

    fn open(&mut self, around: &mut Surroundings<'_>) {
        let Some(mut tls) = self.link.tls.take() else {
            return;
        };
        let going = tls.channel.open(&mut |event| match event {
            Event::Secured(peer) if self.state == State::Open(Then::Secure) => {
                self.progress = around.now;
                self.state = State::Open(Then::More);
                self.protocol.secured(peer);
            }
            Event::Secured(_) => {}
            Event::Plain(bytes) => self.took_opened(bytes, around),
        });
        self.link.tls = Some(tls);
        if let Going::Failed(why) = &going {
            let link = self.link.live(around);
            self.protocol.tls_failed(why, &link);
        }
        match going {
            Going::On => {}
            // What is in flight is answered, or the alert is sent that says why not.
            Going::Closed | Going::Failed(_) if !self.dead() => self.state = State::Finishing,
            Going::Closed | Going::Failed(_) => {}
        }
    }

    /// Takes bytes of the protocol; there is room, since no more was received.
    fn took_opened(&mut self, mut bytes: &[u8], around: &mut Surroundings<'_>) {
        if let Some(payload) = &self.payload {
            let (now, rest) = bytes.split_at(bytes.len().min(payload.due()));
            let at = (payload.buf.offset + payload.filled) as usize;
            around.users.memory(payload.buf.buf).fill(at, now);
            self.add_payload(now.len() as u32, around);
            bytes = rest;
        }
        if bytes.len() > INBOX_BYTES - self.end {
            self.inbox
                .fill(0, self.inbox.slice(self.start, self.end - self.start));
            (self.start, self.end) = (0, self.end - self.start);
        }
        if matches!(self.state, State::Open(_)) {
            self.inbox.fill(self.end, bytes);
            self.end += bytes.len();
            self.offer(around);
        }
    }

    // ---------------------------------------------------------------------------------- commands to a driver

    /// The commands that are to be given to the driver now.
    pub(crate) fn next_commands(&mut self) -> Vec<DriverCommand> {
        self.link.commanded += self.link.commands.len();
        std::mem::take(&mut self.link.commands)
    }

    /// A command is back.
    pub(crate) fn commanded(&mut self, slot: u16, result: i32, around: &mut Surroundings<'_>) {
        self.link.commanded -= 1;
        if !self.dead() {
            let link = &mut self.link.live(around);
            self.protocol.commanded(slot, result, link);
        }
    }

    /// What the connection's watches want of the backend.
    pub(crate) fn next_watch(&mut self) -> Option<Watching> {
        let dead = self.dead();
        self.link.watches.next(dead)
    }

    /// A poll is back.
    pub(crate) fn watched(&mut self, watch: u16, around: &mut Surroundings<'_>) {
        if self.link.watches.over(watch) && !self.dead() {
            self.protocol.ready(watch, &mut self.link.live(around));
        }
    }

    /// The reactor's turn ends. Whether it is to be woken in the next.
    pub(crate) fn turn_over(&mut self) -> bool {
        self.protocol.carries_descriptors() && !self.dead() && self.protocol.turn_over()
    }

    // ----------------------------------------------------------------------------------------------- sending

    /// What to send, if something waits and nothing is on its way.
    pub fn next_send(&mut self) -> Option<Vec<Piece>> {
        if self.sending || self.dead() {
            return None;
        }
        let done = self.state == State::Finishing && self.link.in_flight == 0;
        let outbox = &mut self.link.outbox;
        let mut tls = self.link.tls.as_deref_mut();
        let mut pieces = next_send(tls.as_deref_mut(), outbox);
        if let Some(tls) = tls
            && pieces.is_none()
            && done
            && outbox.bytes() == 0
        {
            tls.channel.close();
            pieces = next_send(Some(tls), outbox);
        }
        self.sending = pieces.is_some();
        pieces
    }

    /// A send is back: what to send next of the same batch.
    pub fn sent(
        &mut self,
        result: i32,
        pieces: Vec<Piece>,
        release: &mut Vec<BufRef>,
        around: &mut Surroundings<'_>,
    ) -> Option<Vec<Piece>> {
        self.sending = false;
        self.link.mapped = 0;
        let count = match result {
            _ if self.dead() => return None,
            count if count >= 0 => count as u64,
            again if matches!(-again, libc::EAGAIN | libc::EINTR) => 0,
            _ => {
                self.kill();
                return None;
            }
        };
        if count > 0 {
            (self.progress, self.moved) = (around.now, around.now);
        }
        let outbox = &mut self.link.outbox;
        let more = sent(self.link.tls.as_deref_mut(), count, pieces, outbox, release);
        self.sending = more.is_some();
        // Before it is offered more: whether it holds its share decides.
        release.drain(..).for_each(|buf| around.users.release(buf));
        self.take_turn(around);
        self.offer_if(Then::Hold, around);
        more
    }

    // -------------------------------------------------------------------------------------------------- ends

    /// Whether everything is answered and sent, when that was all that was left to do.
    pub fn finish_if_done(&mut self) {
        let answered = self.link.in_flight == 0 || self.link.has_failed();
        if self.state == State::Finishing && answered && self.link.is_drained() {
            self.kill();
        }
    }

    /// Kills it when its peer kept us waiting for too long.
    /// `hurried`: others wait for the memory that it may hold.
    pub fn check_patience(&mut self, now: Nanos, hurried: bool) {
        if self.is_stranger() && now.since(self.born) > HANDSHAKE_MAX {
            return self.kill();
        }
        let waits_for_peer = match self.state {
            State::Open(Then::Hold | Then::Memory) => self.sending,
            // Also between two receives: else a byte with each look would start the clock anew.
            State::Open(_) => true,
            State::Finishing => self.sending || self.receiving,
            State::Dead => return,
        };
        let patience = match self.sending {
            true => Some(SEND_PATIENCE.after(Nanos::from_secs(self.unsent() / BYTES_A_SECOND))),
            false => match &self.payload {
                Some(payload) if hurried => Some(payload.hurried_patience()),
                _ => self.protocol.patience(),
            },
        };
        let holds_memory = self.sending || self.payload.is_some() || self.protocol.awaits_data();
        let stalled = hurried && holds_memory && now.since(self.moved) > HURRIED_PATIENCE;
        match patience.filter(|_| waits_for_peer) {
            // The clock starts when there is something to wait for.
            None => (self.progress, self.moved) = (now, now),
            Some(limit) if stalled || now.since(self.progress) > limit => self.kill(),
            Some(_) => {}
        }
    }
}

/// A connection's view of the shell during a call.
struct Live<'a, 'b> {
    own: &'a mut Linked,
    around: &'a mut Surroundings<'b>,
}

impl Live<'_, '_> {
    /// Whether it must give memory back before it asks for more. A borrower's own is its bound.
    fn share_taken(&self) -> bool {
        !self.own.is_borrowers() && self.around.users.share_taken(self.around.number)
    }
}

impl Link for Live<'_, '_> {
    fn exports(&self) -> usize {
        self.around.catalogue.exports()
    }

    fn export(&self, index: usize) -> Option<Export> {
        self.around.catalogue.export(index)
    }

    fn view(&self, index: usize) -> Option<Arc<Export>> {
        self.around.catalogue.view(index)
    }

    fn attach(&mut self, export: usize) {
        if self.own.attached.is_some() {
            return self.own.others.push(export);
        }
        let lease = self.around.catalogue.is_lease(export);
        self.own.attached = Some(Attached { export, lease });
    }

    fn map(&mut self, export: usize, offset: u64, bytes: u64, max: usize) -> Vec<MapExtent> {
        self.own.mapped += bytes.max(MAPPED_AT_LEAST);
        self.around.catalogue.map(export, offset, bytes, max)
    }

    fn buffer(&mut self, bytes: u32) -> Option<BufRef> {
        let (users, number) = (&mut *self.around.users, self.around.number);
        if self.own.is_borrowers() {
            return users.allocate_lent(bytes, number);
        }
        if self.around.memory_reserved {
            return users.allocate_apart(bytes, number);
        }
        users.allocate(bytes, number)
    }

    fn release(&mut self, buf: BufRef) {
        self.around.users.release(buf);
    }

    fn full(&self) -> bool {
        self.own.in_flight >= IN_FLIGHT_MAX
            || self.own.mapped >= MAPPED_A_TURN
            || self.own.outbox.small_bytes() > UNSENT_SMALL_MAX
            || self.share_taken()
    }

    fn unread(&self) -> bool {
        self.own.outbox.small_bytes() > UNSENT_SMALL_MAX || self.own.unsent() > UNSENT_MAX
    }

    fn await_memory(&mut self) {
        self.own.hungry = true;
    }

    fn await_turn(&mut self) {
        self.own.due = true;
    }

    fn local_address(&self) -> Option<SocketAddr> {
        self.own.address
    }

    fn bytes(&self, part: BufRef) -> &[u8] {
        let memory = self.around.users.memory(part.buf);
        memory.slice(part.offset as usize, part.bytes as usize)
    }

    fn piece(&self, part: BufRef) -> Piece {
        let memory = self.around.users.memory(part.buf).clone();
        Piece::new(memory, part.offset, part.bytes)
    }

    fn bytes_mut(&mut self, part: BufRef) -> &mut [u8] {
        let memory = self.around.users.memory_mut(part.buf);
        memory.slice_mut(part.offset as usize, part.bytes as usize)
    }

    fn fill(&mut self, part: BufRef, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(part.bytes as usize)];
        let memory = self.around.users.memory(part.buf);
        memory.fill(part.offset as usize, bytes);
    }

    fn peer_address(&self) -> Option<SocketAddr> {
        self.own.peer
    }

    fn number(&self) -> u32 {
        self.around.number
    }

    fn nudge(&mut self, connection: u32, how: Nudge) {
        self.around.nudges.push((connection, how));
    }

    fn submit(&mut self, ask: Ask) {
        self.own.in_flight += 1;
        self.around.asks.push(ask);
    }

    fn socket(&self) -> io::Result<OwnedFd> {
        duplicate(self.own.socket)
    }

    fn watch(&mut self, fd: &Arc<OwnedFd>) -> u16 {
        self.own.watches.add(fd)
    }

    fn unwatch(&mut self, watch: u16) {
        self.own.watches.give_up(watch);
    }

    fn secure(&mut self, channel: Channel) {
        self.own.tls = Some(Box::new(SecureWire::new(channel, false)));
    }

    fn send(&mut self, bytes: &[u8]) {
        self.own.outbox.push(bytes);
    }

    fn send_part(&mut self, part: BufRef) {
        let piece = self.piece(part);
        self.own.outbox.push_piece(piece);
    }

    fn command(&mut self, command: DriverCommand) {
        self.own.commands.push(command);
    }

    fn send_buffer(&mut self, buf: BufRef) {
        let piece = self.piece(buf);
        self.own.outbox.push_buffer(buf, piece);
    }
}
