//! Who borrows each lease: what the borrower's own superblocks in the lease say is noted in the array's
//! table.
//!
//! | state          | cause                                   | next                |
//! |----------------|-----------------------------------------|---------------------|
//! | due            | a turn, with memory                     | reading             |
//! | reading        | every place read, as the table says     | known               |
//! | reading        | every place read, not as the table says | noting              |
//! | reading        | it cannot be told from what is there    | unknown             |
//! | reading        | nobody, not wiped, somebody on record   | unknown             |
//! | noting         | on record                               | known               |
//! | noting         | refused                                 | unknown             |
//! | known, unknown | a superblock's place written            | due                 |
//! | reading, noting| a superblock's place written            | as above, then due  |
//! | unknown        | somebody would take the lease back      | due                 |
//!
//! Only a lease that is known to be nobody's is taken back without force. Looks are read in the users' lane:
//! they are no borrower's request, and keep no client from attaching.

use super::Shell;
use super::requests::Pending;
use restripe_array::meta::superblock::{SUPER_A_AT, SUPER_B_PLACES, SUPERBLOCK_BYTES};
use restripe_array::meta::{MetaError, PartnerRole, Superblock, copies_of, newest_of};
use restripe_array::{
    BufRef, Command, LeaseCommand, Request, RequestError, RequestOp, RequestTag, SECTOR_BYTES, Uuid,
};

/// Owner of memory for looks.
const LOOK_OWNER: u32 = u32::MAX - 2;

/// What the reactor knows of a lease's borrower.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Look {
    Due,
    Reading,
    Noting,
    Known,
    Unknown,
}

/// What lies at a superblock's place: `None` if it could not be read, or lies beyond the end.
type Copy = Option<Result<Superblock, MetaError>>;

/// A look under way: the places are read one after the other.
pub(super) struct Reading {
    lease: usize,
    buf: BufRef,
    found: Found,
}

/// What lies at the places of superblocks.
#[derive(Default)]
struct Found {
    copies: Vec<Copy>,
    /// A place could not be read: it may have told of somebody.
    unreadable: bool,
    /// The first place is as `surrogate remove` leaves it.
    wiped: bool,
}

impl Found {
    fn note(&mut self, result: Result<&[u8], RequestError>) {
        if self.copies.is_empty() {
            self.wiped = result.is_ok_and(|bytes| bytes.iter().all(|&byte| byte == 0));
        }
        self.unreadable |= result.is_err();
        self.copies.push(result.ok().map(Superblock::decode));
    }
}

/// Where superblocks may lie, in bytes, ascending.
fn places() -> impl Iterator<Item = u64> {
    let sectors = std::iter::once(SUPER_A_AT).chain(SUPER_B_PLACES);
    sectors.map(|sector| sector * SECTOR_BYTES)
}

/// Whether a change of these bytes of a lease may change who borrows it.
pub(super) fn touches_superblocks(offset: u64, bytes: u64) -> bool {
    let end = offset.saturating_add(bytes);
    places().any(|at| offset < at + SUPERBLOCK_BYTES as u64 && at < end)
}

impl Shell {
    /// Has a lease looked at: nothing is known of it, or something may have changed.
    pub(super) fn look_at(&mut self, place: usize) {
        let exposed = &mut self.exposed[place];
        match exposed.look {
            Look::Due => {}
            Look::Reading | Look::Noting => exposed.again = true,
            Look::Known | Look::Unknown => {
                exposed.look = Look::Due;
                self.looks_due.push_back(place);
            }
        }
    }

    /// Begins the looks that are due. Whether any was begun.
    pub(super) fn begin_looks(&mut self) -> bool {
        let mut begun = false;
        while let Some(&lease) = self.looks_due.front() {
            if self.exposed[lease].gone {
                self.exposed[lease].look = Look::Unknown;
            } else {
                let bytes = SUPERBLOCK_BYTES as u32;
                let Some(buf) = self.users.allocate_lent(bytes, LOOK_OWNER) else {
                    // The end of another look gives memory back.
                    break;
                };
                self.exposed[lease].look = Look::Reading;
                self.read_next(Box::new(Reading {
                    lease,
                    buf,
                    found: Found::default(),
                }));
                begun = true;
            }
            self.looks_due.pop_front();
        }
        begun
    }

    /// Reads the next place of a lease, or tells what all of them say.
    fn read_next(&mut self, reading: Box<Reading>) {
        let exposed = &self.exposed[reading.lease];
        let bytes = SUPERBLOCK_BYTES as u64;
        let next = places().nth(reading.found.copies.len());
        let within = next.and_then(|at| exposed.window.place(at, bytes));
        let Some(offset) = within.filter(|_| !exposed.gone) else {
            return self.all_read(*reading);
        };
        let (host, buf) = (exposed.host, reading.buf);
        let tag = RequestTag(u64::from(self.pending.insert(Pending::Look(reading))));
        let request = Request {
            tag,
            op: RequestOp::Read,
            offset,
            bytes,
            buf,
            fua: false,
        };
        self.hosts[host].request(request);
    }

    pub(super) fn looked(&mut self, mut reading: Box<Reading>, result: Result<(), RequestError>) {
        let memory = self.users.memory(reading.buf.buf);
        let found = result.map(|()| memory.slice(0, SUPERBLOCK_BYTES));
        reading.found.note(found);
        self.read_next(reading);
    }

    fn all_read(&mut self, reading: Reading) {
        self.users.release(reading.buf);
        let on_record = self.on_record(reading.lease);
        let exposed = &self.exposed[reading.lease];
        match borrower(reading.found, on_record) {
            Some(borrower) if !exposed.again => self.note(reading.lease, borrower),
            _ => self.look_ended(reading.lease, Look::Unknown),
        }
    }

    fn look_ended(&mut self, place: usize, look: Look) {
        let exposed = &mut self.exposed[place];
        exposed.look = look;
        if std::mem::take(&mut exposed.again) && !exposed.gone {
            self.look_at(place);
        }
    }

    /// Who borrows, as the array's table has it; `None` if the lease is not in it.
    fn on_record(&mut self, place: usize) -> Option<Option<Uuid>> {
        let (host, name) = (self.exposed[place].host, self.exposed[place].name);
        let status = self.hosts[host].status();
        let mut leases = status.lent.iter().filter_map(|parcel| parcel.lease);
        let lease = leases.find(|lease| lease.name == name);
        lease.map(|lease| lease.borrower)
    }

    /// Has the array's table say who borrows.
    fn note(&mut self, place: usize, borrower: Option<Uuid>) {
        let (host, name) = (self.exposed[place].host, self.exposed[place].name);
        if self.on_record(place) == Some(borrower) {
            return self.look_ended(place, Look::Known);
        }
        self.exposed[place].look = Look::Noting;
        let command = LeaseCommand::Bind { name, borrower };
        self.note_borrower(host, place, Command::Lease(command));
    }

    /// The table says who borrows, or was not changed.
    pub(super) fn noted(&mut self, place: usize, on_record: bool) {
        let look = match on_record {
            true => Look::Known,
            false => Look::Unknown,
        };
        self.look_ended(place, look);
    }
}

/// Who has the lease on record in which this was found, as a start would believe it: the array whose surrogate it is, or
/// the one whose member. `Some(None)`: nobody. `None`: it cannot be told. Somebody who is on record has left only if the
/// first superblock was wiped: bytes that are none may be all that rot has left of it.
fn borrower(found: Found, on_record: Option<Option<Uuid>>) -> Option<Option<Uuid>> {
    let mut places = found.copies.into_iter();
    let a = places.next().flatten();
    let copies = copies_of(a, std::array::from_fn(|_| places.next().flatten()));
    if let Some(superblock) = newest_of(copies.iter().flatten()) {
        let partner = superblock.partner;
        let main = partner.filter(|partner| partner.role == PartnerRole::Surrogate);
        return Some(Some(main.map_or(superblock.array, |main| main.array)));
    }
    let nothing = |copy: &Result<Superblock, MetaError>| *copy == Err(MetaError::NotFound);
    let blank = !found.unreadable && copies.iter().flatten().all(nothing);
    let left = found.wiped || on_record.flatten().is_none();
    (blank && left).then_some(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLANK: [u8; SUPERBLOCK_BYTES] = [0; SUPERBLOCK_BYTES];

    fn found(places: &[Result<&[u8], RequestError>]) -> Found {
        let mut found = Found::default();
        places.iter().for_each(|place| found.note(*place));
        found
    }

    fn beginning_with(bytes: &[u8]) -> [u8; SUPERBLOCK_BYTES] {
        let mut page = BLANK;
        page[..bytes.len()].copy_from_slice(bytes);
        page
    }

    #[test]
    fn bytes_that_are_no_superblock_tell_of_nobody() {
        let nobody = Some(None);
        let other = beginning_with(b"no superblock");
        for first in [BLANK, other] {
            assert_eq!(borrower(found(&[Ok(&first), Ok(&BLANK)]), nobody), nobody);
        }
        let unread = found(&[Ok(&BLANK), Err(RequestError::Unavailable)]);
        assert_eq!(borrower(unread, nobody), None);
        let torn = beginning_with(b"Restripe");
        assert_eq!(borrower(found(&[Ok(&torn), Ok(&BLANK)]), nobody), None);
    }

    #[test]
    fn a_borrower_on_record_has_left_only_where_he_was_wiped() {
        let somebody = Some(Some(Uuid([7; 16])));
        let rotten = beginning_with(b"restripe");
        assert_eq!(borrower(found(&[Ok(&rotten), Ok(&BLANK)]), somebody), None);
        let wiped = found(&[Ok(&BLANK), Ok(&rotten)]);
        assert_eq!(borrower(wiped, somebody), Some(None));
    }

    #[test]
    fn the_places_of_both_copies_are_watched() {
        let second = SUPER_B_PLACES[2] * SECTOR_BYTES;
        let last = SUPERBLOCK_BYTES as u64 - 1;
        for (offset, bytes, touches) in [
            (0, 1, true),
            (last, 1, true),
            (last + 1, 512, false),
            (second - 512, 512, false),
            (second - 512, 513, true),
            (second + last, 1 << 20, true),
            (u64::MAX, 1, false),
        ] {
            let found = touches_superblocks(offset, bytes);
            assert_eq!(found, touches, "{offset} {bytes}");
        }
    }
}
