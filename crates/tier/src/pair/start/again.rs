//! What reads wrong in the log is read again from what redundancy has, before anything is made of it.
//!
//! A member may hold other bytes than it was given, and not say so. A page or payload with a checksum shows that, but not
//! whose fault it is. So it is read as though one member after the other were missing, then two of them, and so on, as far as
//! redundancy goes; what then has the right checksum, and says what may stand there, is written where it was
//! wrong. After a crash it may be what was on its way there when the crash came, and counts or does not as if it had
//! arrived.
//!
//! Most pages where a header is expected have none: the log ends there, or a segment does. If the first other readings give the same
//! bytes, [`AGREEING`] of them or more, nobody is thought wrong, and no more are tried: two members that hold the same wrong bytes there,
//! zeros mostly, are found out, and more as far as these readings go. Anchors are few, and are looked for as far as redundancy goes.

use super::reader::LogReader;
use super::state::{Again, Brought, Phase, Reading, Wanted};
use crate::overlay::format::anchor;
use restripe_array::meta::crc::crc32c;
use restripe_array::parts::{Attempt, Bug, Copies};
use restripe_array::{BufRef, SECTOR_BYTES, Verdict, zeroed_page};

/// Readings that agree on what is no header, before it is believed: so many at least. Those without one member or two are as many as
/// a row has cells, since one of them always has the page itself.
const AGREEING: usize = 16;

fn is_header(wanted: Wanted) -> bool {
    matches!(wanted, Wanted::Header(_))
}

fn is_page(wanted: Wanted) -> bool {
    !matches!(wanted, Wanted::Payload(_))
}

fn checksum((page, verdict): &Brought) -> Option<u32> {
    match (page, verdict) {
        (Some(page), _) => Some(crc32c(&page[..])),
        (None, Some(Verdict::Checksum(crc))) => Some(*crc),
        _ => None,
    }
}

/// Of a page, one that is none is as good as the other.
fn as_first_read(wanted: Wanted, plain: Option<u32>) -> Brought {
    let page = plain.filter(|_| is_page(wanted)).map(|_| zeroed_page());
    (page, plain.map(Verdict::Checksum))
}

impl LogReader {
    /// What to go on with, if a read has brought what it should, or nobody has anything better. None: it is read again.
    pub(crate) fn believed(&mut self, read: u32, brought: Brought) -> Option<Brought> {
        let Reading { wanted, again, .. } = self.reading(read);
        let sound = self.is_sound(wanted, &brought);
        let Some(now) = again else {
            let plain = checksum(&brought);
            return match sound || self.log().planted(Bug::RotBelieved) {
                true => Some(brought),
                false => self.ask_others(read, plain, true, None),
            };
        };
        if now.attempt.suspects.repairs {
            if sound {
                self.note_rot(wanted);
            }
            return Some(brought);
        }
        let read_only = self.start_mut().mode.read_only;
        match sound {
            true if read_only => Some(brought),
            true => {
                let attempt = now.attempt.repairing();
                self.ask_without(read, Again { attempt, ..now });
                None
            }
            false => {
                // What cannot be read says nothing.
                let sum = checksum(&brought);
                let agreed = now.agreed && (sum.is_none() || sum == now.plain);
                self.ask_others(read, now.plain, agreed, Some(now.attempt))
            }
        }
    }

    /// Reads without the next set of suspects; what was read at first, if there are no more, or redundancy agrees with it.
    fn ask_others(
        &mut self,
        read: u32,
        plain: Option<u32>,
        agreed: bool,
        last: Option<Attempt>,
    ) -> Option<Brought> {
        let wanted = self.reading(read).wanted;
        let (at, sectors, _) = self.place_again(wanted);
        let enough = usize::from(self.log().layout().width()).max(AGREEING);
        let believed = |next: &Attempt| agreed && is_header(wanted) && next.nth() >= enough;
        let next = self.log().next_attempt(at..at + sectors, last);
        let Some(attempt) = next.filter(|next| !believed(next)) else {
            return Some(as_first_read(wanted, plain));
        };
        self.ask_without(
            read,
            Again {
                agreed,
                plain,
                attempt,
            },
        );
        None
    }

    fn ask_without(&mut self, read: u32, again: Again) {
        let reading = self.start_mut().reads[read as usize].as_mut();
        reading.expect("it is under way").again = Some(again);
        let Reading { wanted, buf, .. } = self.reading(read);
        let (at, sectors, from) = self.place_again(wanted);
        let into = BufRef::new(buf, from, (sectors * SECTOR_BYTES) as u32);
        self.ask_part(read, at, into, Copies::Without(again.attempt.suspects));
    }

    /// What is read again, and where it goes in the buffer: of a payload that was read with its header that alone, for its checksum
    /// says nothing of the header, which would be written over with whatever parity makes of it.
    fn place_again(&mut self, wanted: Wanted) -> (u64, u64, u32) {
        let (at, sectors) = self.place_of(wanted);
        match wanted {
            Wanted::Payload(header) => {
                let from = self.payload_from();
                let before = u64::from(from) / SECTOR_BYTES;
                (at + before, u64::from(header.payload_sectors), from)
            }
            _ => (at, sectors, 0),
        }
    }

    /// Whether it is what may stand there.
    fn is_sound(&mut self, wanted: Wanted, brought: &Brought) -> bool {
        let owner = self.log_owner();
        match (&self.start_mut().phase, wanted, brought) {
            (Phase::Anchors { layout, .. }, Wanted::Anchor(home), (Some(page), _)) => {
                anchor::is_sound(&owner, layout, home, page)
            }
            (Phase::Scan(scan), Wanted::Header(at), (Some(page), _)) => scan.expects(at, page),
            (_, Wanted::Payload(header), (_, Some(Verdict::Checksum(crc)))) => {
                *crc == header.payload_crc
            }
            _ => false,
        }
    }

    /// Something of the log was wrong, and is as it was: the repair has been told of.
    fn note_rot(&mut self, wanted: Wanted) {
        if let (Phase::Scan(scan), Wanted::Header(at)) = (&mut self.start_mut().phase, wanted) {
            scan.mistrust(at);
        }
    }
}
