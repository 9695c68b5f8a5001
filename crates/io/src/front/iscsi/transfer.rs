//! Data from the initiator: with a command, unsolicited, and as it was asked for (RFC 7143 sections 4.2.4,
//! 11.7, 11.8).

use super::pdu::{self, Header, NO_TAG};
use super::session::{Session, Step};
use super::tasks::{Incoming, Sequence, Wait};
use crate::front::scsi::DATA_PHASE_ERROR;
use crate::front::{Link, Then};
use restripe_code::crc32c;

impl Session {
    /// Receives a segment of `bytes` behind what the task has. What the command does not want is passed over.
    pub(super) fn receive_into(
        &mut self,
        slot: usize,
        bytes: u32,
        into: Sequence,
        used: usize,
    ) -> Step {
        let tail = self.tail(bytes);
        let Some((buf, filled, wants)) = self
            .tasks
            .get(slot)
            .and_then(|task| Some((task.buf?, task.filled, task.wants())))
        else {
            return Step::Stop(used, Then::Abort);
        };
        let wanted = bytes.min(wants.saturating_sub(filled));
        let incoming = Incoming {
            slot,
            part: buf.part(filled.min(buf.bytes), wanted),
            into,
            bytes,
            beyond: (bytes - wanted) as usize,
            tail,
            full: wanted == 0,
            digest: 0,
        };
        self.incoming = Some(incoming);
        match wanted {
            0 => Step::Went(used),
            _ => Step::Stop(used, Then::Payload(incoming.part)),
        }
    }

    /// The part is full.
    pub(super) fn filled(&mut self, link: &mut dyn Link) {
        if let Some(incoming) = &mut self.incoming {
            incoming.full = true;
            if self.sender.parameters.data_digest {
                incoming.digest = crc32c(0, link.bytes(incoming.part));
            }
            if incoming.beyond + incoming.tail == 0 {
                self.delivered(link);
            }
        }
    }

    /// What is behind the part: passes over what the command does not want, and checks the digest of all.
    pub(super) fn end_segment(&mut self, bytes: &[u8], link: &mut dyn Link) -> Step {
        let checked = self.sender.parameters.data_digest;
        let Some(incoming) = self.incoming.as_mut().filter(|incoming| incoming.full) else {
            return Step::Stop(0, Then::Abort);
        };
        let (beyond, rest) = bytes.split_at(incoming.beyond.min(bytes.len()));
        incoming.digest = crc32c(incoming.digest, beyond);
        incoming.beyond -= beyond.len();
        let Some(tail) = rest.get(..incoming.tail).filter(|_| incoming.beyond == 0) else {
            return Step::Stop(beyond.len(), Then::More);
        };
        let (padding, found) = tail.split_at(pdu::padding(incoming.bytes));
        let digest = crc32c(incoming.digest, padding).to_le_bytes();
        if checked && incoming.bytes > 0 && found != digest {
            return Step::Stop(beyond.len() + tail.len(), Then::Abort);
        }
        self.delivered(link);
        Step::Went(beyond.len() + tail.len())
    }

    /// A segment has come whole.
    fn delivered(&mut self, link: &mut dyn Link) {
        let Some(incoming) = self.incoming.take() else {
            return;
        };
        if incoming.part.bytes > 0 {
            self.without_data = 0;
        }
        let slot = incoming.slot;
        let Some(task) = self.tasks.get(slot) else {
            return;
        };
        if task.aborted {
            return self.drop_task(slot, link);
        }
        task.filled += incoming.part.bytes;
        task.sent += incoming.bytes;
        match incoming.into {
            Sequence::Unsolicited { last } => task.unsolicited = !last,
            Sequence::Burst { last } => {
                if last {
                    task.burst = None;
                }
            }
        }
        if task.unsolicited || task.burst.is_some() {
            return;
        }
        self.go_on(slot, link);
    }

    /// A Data-Out. That of a task that is gone is passed over: it was aborted, or refused. One out of order
    /// ends its command.
    pub(super) fn data_out(&mut self, header: &Header, used: usize, link: &mut dyn Link) -> Step {
        let (tag, bytes) = (header.number(20), header.data_bytes());
        let unsolicited = tag == NO_TAG;
        let slot = match unsolicited {
            true => self.tasks.named(header.task_tag()),
            false => self.tasks.of_burst(tag),
        };
        let first_burst = self.sender.parameters.first_burst;
        let Some((slot, task)) = slot.and_then(|slot| Some((slot, self.tasks.get(slot)?))) else {
            return self.pass_over(header, used);
        };
        if task.aborted {
            return self.pass_over(header, used);
        }
        let in_place = header.number(40) == task.sent && task.tag == header.task_tag();
        let end = task.sent.saturating_add(bytes);
        let in_order = match &mut task.burst {
            Some(burst) if !unsolicited => {
                let ok = header.number(36) == burst.next && end <= burst.end;
                burst.next = burst.next.wrapping_add(1);
                ok && (header.is_final() == (end == burst.end))
            }
            None if unsolicited => {
                let ok = header.number(36) == task.next;
                task.next = task.next.wrapping_add(1);
                ok && task.unsolicited && end <= first_burst
            }
            _ => false,
        };
        // An empty PDU that ends nothing could be sent for ever.
        let has_use = bytes > 0 || header.is_final();
        if !in_place || !in_order || !has_use || task.wait != Wait::Data {
            self.done(slot, DATA_PHASE_ERROR.into(), link);
            self.feed(link);
            return self.pass_over(header, used);
        }
        let last = header.is_final();
        let into = match unsolicited {
            true => Sequence::Unsolicited { last },
            false => Sequence::Burst { last },
        };
        self.receive_into(slot, bytes, into, used)
    }
}
