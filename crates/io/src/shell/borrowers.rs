//! Who borrows each lease: what the borrower's own superblocks in the lease say is noted in the array's table.
//!
//! | state          | cause                                   | next                |
//! |----------------|-----------------------------------------|---------------------|
//! | due            | a turn, with memory                     | reading             |
//! | reading        | every place read, as the table says     | known               |
//! | reading        | every place read, not as the table says | noting              |
//! | reading        | it cannot be told from what is there    | unknown             |
//! | noting         | on record                               | known               |
//! | noting         | refused                                 | unknown             |
//! | known, unknown | a superblock's place written            | due                 |
//! | reading, noting| a superblock's place written            | as above, then due  |
//! | unknown        | somebody would take the lease back      | due                 |
//!
//! Only a lease that is known to be nobody's is taken back without force. Looks are read in the users' lane: they are no
//! borrower's request, and keep no client from attaching.

use super::Shell;
use super::requests::Pending;
use crate::host::lanes::USERS;
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
    found: Vec<Copy>,
    /// A place could not be read: it may have told of somebody.
    unreadable: bool,
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
                    found: Vec::new(),
                    unreadable: false,
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
        let next = places().nth(reading.found.len());
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
        self.hosts[host].request_in(USERS, request);
    }

    pub(super) fn looked(&mut self, mut reading: Box<Reading>, result: Result<(), RequestError>) {
        let memory = self.users.memory(reading.buf.buf);
        let found = result.map(|()| Superblock::decode(memory.slice(0, SUPERBLOCK_BYTES)));
        reading.unreadable |= found.is_err();
        reading.found.push(found.ok());
        self.read_next(reading);
    }

    fn all_read(&mut self, reading: Reading) {
        self.users.release(reading.buf);
        let exposed = &self.exposed[reading.lease];
        match borrower(reading.found, reading.unreadable) {
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

    /// Has the array's table say who borrows.
    fn note(&mut self, place: usize, borrower: Option<Uuid>) {
        let (host, name) = (self.exposed[place].host, self.exposed[place].name);
        let status = self.hosts[host].status();
        let mut leases = status.lent.iter().filter_map(|parcel| parcel.lease);
        let known = leases.any(|lease| lease.name == name && lease.borrower == borrower);
        if known {
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
/// the one whose member. `Some(None)`: nobody. `None`: it cannot be told.
fn borrower(found: Vec<Copy>, unreadable: bool) -> Option<Option<Uuid>> {
    let mut found = found.into_iter();
    let a = found.next().flatten();
    let copies = copies_of(a, std::array::from_fn(|_| found.next().flatten()));
    if let Some(superblock) = newest_of(copies.iter().flatten()) {
        let partner = superblock.partner;
        let main = partner.filter(|partner| partner.role == PartnerRole::Surrogate);
        return Some(Some(main.map_or(superblock.array, |main| main.array)));
    }
    let nothing = |copy: &Result<Superblock, MetaError>| *copy == Err(MetaError::NotFound);
    let blank = !unreadable && copies.iter().flatten().all(nothing);
    blank.then_some(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(bytes: &[u8]) -> Copy {
        Some(Superblock::decode(bytes))
    }

    #[test]
    fn bytes_that_are_no_superblock_tell_of_nobody() {
        let blank = || decoded(&[0; SUPERBLOCK_BYTES]);
        assert_eq!(borrower(vec![blank(), blank()], false), Some(None));
        assert_eq!(borrower(vec![blank(), None], true), None);
        let mut torn = vec![0; SUPERBLOCK_BYTES];
        torn[..8].copy_from_slice(b"Restripe");
        assert_eq!(borrower(vec![decoded(&torn), blank()], false), None);
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
            assert_eq!(
                touches_superblocks(offset, bytes),
                touches,
                "{offset} {bytes}"
            );
        }
    }
}
