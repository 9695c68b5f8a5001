//! The full feature phase: PDUs from the initiator, each to where it belongs (RFC 7143 sections 4 and 11).
//!
//! Error recovery level 0: a broken digest ends the connection, and with it the session.

use super::keys;
use super::management;
use super::pdu::{self, DIGEST_BYTES, FINAL, HEADER_BYTES, Header, NO_TAG, opcode};
use super::send::Answered;
use super::session::{Session, Step};
use super::tasks::{Attribute, Sequence, TASKS_MAX, Task, Wait};
use crate::front::scsi::{self, Addressed, Answer, Cdb, Data, Status};
use crate::front::{Link, Then};

/// Longest data segment of a PDU that is read as a whole: text, pings.
const WHOLE_BYTES_MAX: u32 = 32 * 1024;
/// PDUs that may come while data is awaited and none comes: memory is held for it. Far more than the window
/// of commands, so only an initiator that keeps its data back sends them.
const WITHOUT_DATA_MAX: u32 = 4096;
/// The target's tag of its pings.
const PING_TAG: u32 = 1;
/// Reasons of a Reject.
const PROTOCOL_ERROR: u8 = 0x04;
const NOT_SUPPORTED: u8 = 0x05;
const INVALID_FIELD: u8 = 0x09;
/// Reasons of a logout, and its responses.
const CLOSE_SESSION: u8 = 0;
const CLOSE_CONNECTION: u8 = 1;
const FOR_RECOVERY: u8 = 2;
const LOGGED_OUT: u8 = 0;
const NO_SUCH_CONNECTION: u8 = 1;
const NO_RECOVERY: u8 = 2;

impl Session {
    pub(super) fn step(&mut self, bytes: &[u8], link: &mut dyn Link) -> Step {
        if self.skip > 0 {
            let count = self.skip.min(bytes.len() as u64);
            self.skip -= count;
            return match self.skip {
                0 => Step::Went(count as usize),
                _ => Step::Stop(count as usize, Then::More),
            };
        }
        if self.incoming.is_some() {
            return self.end_segment(bytes, link);
        }
        if self.left {
            return Step::Stop(0, Then::Finish);
        }
        if link.unread() {
            return Step::Stop(0, Then::Hold);
        }
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Step::Stop(0, Then::More);
        };
        let header = Header(*header);
        let checked = HEADER_BYTES + header.additional_bytes();
        let digest = if self.sender.parameters.header_digest {
            DIGEST_BYTES
        } else {
            0
        };
        let Some(whole) = bytes.get(..checked + digest) else {
            return Step::Stop(0, Then::More);
        };
        let (segments, found) = whole.split_at(checked);
        if digest > 0 && found != pdu::digest(segments, 0) {
            return Step::Stop(whole.len(), Then::Abort);
        }
        if header.data_bytes() > keys::SEGMENT_BYTES_MAX {
            return Step::Stop(whole.len(), Then::Abort);
        }
        let used = whole.len();
        if !self.counts_on() {
            return Step::Stop(used, Then::Abort);
        }
        self.header(&header, bytes, used, link)
    }

    /// Counts the PDUs since data last came for a task. Whether there may be more.
    fn counts_on(&mut self) -> bool {
        self.without_data = if self.awaits_data() {
            self.without_data + 1
        } else {
            0
        };
        self.without_data <= WITHOUT_DATA_MAX
    }

    /// A header of `used` bytes, at the beginning of `bytes`.
    fn header(&mut self, header: &Header, bytes: &[u8], used: usize, link: &mut dyn Link) -> Step {
        match header.opcode() {
            opcode::COMMAND => self.command(header, used, link),
            opcode::DATA_OUT => self.data_out(header, used, link),
            opcode::NOP_OUT | opcode::TEXT | opcode::LOGOUT | opcode::TASK_MANAGEMENT => {
                self.whole(header, bytes, used, link)
            }
            other => {
                // All but this one have a number, whatever they are.
                let numbered = match other {
                    opcode::SNACK => Numbered::Next,
                    _ => self.take_number(header),
                };
                self.refuse_numbered(numbered, NOT_SUPPORTED, header, used, link)
            }
        }
    }

    /// Rejects a PDU whose number makes this of it.
    fn refuse_numbered(
        &mut self,
        numbered: Numbered,
        reason: u8,
        header: &Header,
        used: usize,
        link: &mut dyn Link,
    ) -> Step {
        match numbered {
            Numbered::Gap => return Step::Stop(used, Then::Abort),
            Numbered::Outside => {}
            Numbered::Next => self.reject(header, reason, link),
        }
        self.pass_over(header, used)
    }

    /// A PDU whose data segment is short: it is received whole.
    fn whole(&mut self, header: &Header, bytes: &[u8], used: usize, link: &mut dyn Link) -> Step {
        let length = header.data_bytes();
        if length > WHOLE_BYTES_MAX {
            let numbered = self.number_of_whole(header);
            return self.refuse_numbered(numbered, PROTOCOL_ERROR, header, used, link);
        }
        let end = used + length as usize;
        let tail = self.tail(length);
        let Some(data) = bytes.get(used..end).filter(|_| bytes.len() >= end + tail) else {
            return Step::Stop(0, Then::More);
        };
        let padding = pdu::padding(length);
        if self.sender.parameters.data_digest
            && length > 0
            && bytes[end + padding..end + tail] != pdu::digest(data, padding)
        {
            return Step::Stop(end + tail, Then::Abort);
        }
        match self.number_of_whole(header) {
            Numbered::Next => {}
            Numbered::Outside => return Step::Went(end + tail),
            Numbered::Gap => return Step::Stop(end + tail, Then::Abort),
        }
        match header.opcode() {
            opcode::NOP_OUT if is_pong(header) => {}
            opcode::NOP_OUT => self.pong(header, data, link),
            opcode::TEXT => self.text(header, data, link),
            opcode::TASK_MANAGEMENT => management::manage(self, header, link),
            _ => {
                if self.log_out(header, link) {
                    return Step::Stop(end + tail, Then::Finish);
                }
            }
        }
        Step::Went(end + tail)
    }

    /// A PDU that is received whole takes its number; the answer to a ping of ours has none.
    fn number_of_whole(&mut self, header: &Header) -> Numbered {
        match is_pong(header) {
            true => Numbered::Next,
            false => self.take_number(header),
        }
    }

    /// The number of a command: the next, or outside of the window, which is ignored. On one connection
    /// numbers ascend, so a gap is never filled.
    fn take_number(&mut self, header: &Header) -> Numbered {
        if header.immediate() {
            return Numbered::Next;
        }
        let distance = header.number(24).wrapping_sub(self.sender.command);
        let window = self.sender.window_end().wrapping_sub(self.sender.command);
        match distance {
            0 if window < u32::MAX => {
                self.sender.command = self.sender.command.wrapping_add(1);
                Numbered::Next
            }
            _ if window < u32::MAX && distance <= window => Numbered::Gap,
            _ => Numbered::Outside,
        }
    }

    fn command(&mut self, header: &Header, used: usize, link: &mut dyn Link) -> Step {
        let before = self.sender.command;
        match self.take_number(header) {
            Numbered::Next => {}
            Numbered::Outside => return self.pass_over(header, used),
            Numbered::Gap => return Step::Stop(used, Then::Abort),
        }
        let parameters = &self.sender.parameters;
        let data = header.data_bytes();
        let allowed = parameters.immediate_data && data <= parameters.first_burst;
        if data > 0 && (!allowed || data > header.number(20)) {
            return Step::Stop(used, Then::Abort);
        }
        if self.tasks.len() >= TASKS_MAX {
            self.refuse(header, &Answer::status(Status::TaskSetFull), link);
            return self.pass_over(header, used);
        }
        match self.begin(header, link) {
            Ok(task) => {
                let step = self.take_up(task, header, used, link);
                if matches!(step, Step::Stop(0, _)) {
                    // It is offered again.
                    self.sender.command = before;
                }
                step
            }
            Err((answer, transferred)) => {
                self.answer_at_once(header, &answer, transferred, link);
                self.pass_over(header, used)
            }
        }
    }

    /// The task of a command; or its answer, with the bytes that it has or would have transferred.
    fn begin(&mut self, header: &Header, link: &mut dyn Link) -> Result<Task, (Answer, u64)> {
        let mut cdb: Cdb = [0; scsi::CDB_BYTES];
        cdb.copy_from_slice(&header.0[32..48]);
        let lun = self.lun(header);
        let export = lun.and_then(|lun| link.view(lun.export));
        let (Some(lun), Some(export)) = (lun, export) else {
            return Err(sized(scsi::without_unit(&cdb, &self.numbers)));
        };
        let attribute = attribute(header);
        let attribute = attribute.ok_or_else(|| sized(scsi::UNKNOWN_ATTRIBUTE.into()))?;
        let mut state = self.hub.state();
        let unit = state.unit(lun.export);
        let epoch = unit.epoch();
        let mut addressed = Addressed {
            unit,
            nexus: lun.nexus,
            export: &export,
            luns: &self.numbers,
        };
        let mut job = scsi::begin(&cdb, &mut addressed).map_err(sized)?;
        let (reads, writes) = (header.flags() & 0x40 != 0, header.flags() & 0x20 != 0);
        let expected = header.number(20);
        let wants = job.data_out();
        let sends = if writes { expected } else { 0 };
        let short = sends < wants && !job.shorten(sends);
        if short || (job.is_exact() && sends != wants) {
            return Err((job.wrong_size().into(), wants.into()));
        }
        Ok(Task {
            tag: header.task_tag(),
            unit: header.unit(),
            export: lun.export,
            nexus: lun.nexus,
            epoch,
            attribute,
            place: 0,
            numbered: !header.immediate(),
            job,
            expected,
            full: wants,
            reads,
            buf: None,
            wait: Wait::Memory,
            filled: 0,
            sent: 0,
            unsolicited: wants > 0
                && writes
                && !header.is_final()
                && !self.sender.parameters.initial_r2t,
            burst: None,
            next: 0,
            requests: 0,
            aborted: false,
            waited: 0,
        })
    }

    /// Takes a task up: its memory is there, or is waited for.
    fn take_up(
        &mut self,
        mut task: Task,
        header: &Header,
        used: usize,
        link: &mut dyn Link,
    ) -> Step {
        let data = header.data_bytes();
        let memory = task.job.memory();
        let at_once = memory > 0 && (data > 0 || task.unsolicited);
        if !at_once {
            let slot = self.insert(task);
            self.queue.push_back(slot);
            self.feed(link);
            return self.pass_over(header, used);
        }
        self.feed(link);
        let full = link.full() || !self.queue.is_empty();
        let buf = if full { None } else { link.buffer(memory) };
        if buf.is_none() && (self.tasks.gathers() || self.tasks.any_hungry()) {
            self.refuse(header, &Answer::status(Status::TaskSetFull), link);
            return self.pass_over(header, used);
        }
        if buf.is_none() {
            let then = if full { Then::Hold } else { Then::Memory };
            return Step::Stop(0, then);
        }
        (task.buf, task.wait) = (buf, Wait::Data);
        let unsolicited = task.unsolicited;
        let slot = self.insert(task);
        if data > 0 {
            let last = !unsolicited;
            return self.receive_into(slot, data, Sequence::Unsolicited { last }, used);
        }
        Step::Went(used)
    }

    fn refuse(&mut self, header: &Header, answer: &Answer, link: &mut dyn Link) {
        self.answer_at_once(header, answer, 0, link);
    }

    fn answer_at_once(
        &mut self,
        header: &Header,
        answer: &Answer,
        transferred: u64,
        link: &mut dyn Link,
    ) {
        let sense = match self.lun(header) {
            Some(lun) => self.encoded(lun.export, answer),
            None => answer.sense.as_ref().map(|sense| sense.encode(false)),
        };
        let command = Answered {
            tag: header.task_tag(),
            expected: header.number(20),
            reads: header.flags() & 0x40 != 0,
        };
        let sense = sense.as_deref();
        self.sender
            .answer(command, answer, transferred, sense, None, link);
    }

    /// Pings the initiator: it answers with a NOP-Out that has our tag (section 11.19).
    pub(super) fn ping(&mut self, link: &mut dyn Link) {
        let mut ping = Header::new(opcode::NOP_IN, FINAL)
            .with(16, NO_TAG)
            .with(20, PING_TAG);
        // With a tag the PDU names a logical unit.
        let unit = scsi::unit_number(self.numbers.first().copied().unwrap_or(0));
        ping.0[8..10].copy_from_slice(&unit);
        self.sender.send(ping, &[], false, link);
    }

    /// The answer to a ping: its data.
    fn pong(&mut self, header: &Header, data: &[u8], link: &mut dyn Link) {
        let most = self.sender.parameters.peer_segment as usize;
        let mut answer = Header::new(opcode::NOP_IN, FINAL)
            .with(16, header.task_tag())
            .with(20, NO_TAG);
        answer.0[8..16].copy_from_slice(&header.0[8..16]);
        self.sender
            .send(answer, &data[..data.len().min(most)], true, link);
    }

    fn text(&mut self, header: &Header, data: &[u8], link: &mut dyn Link) {
        let parameters = &mut self.sender.parameters;
        let known = (self.initiator.as_str(), self.target.as_deref());
        match self
            .text
            .answer(header, data, parameters, known, &self.hub, link)
        {
            Some((header, data)) => self.sender.send(header, &data, true, link),
            None => self.reject(header, PROTOCOL_ERROR, link),
        }
    }

    fn reject(&mut self, header: &Header, reason: u8, link: &mut dyn Link) {
        let mut answer = Header::new(opcode::REJECT, FINAL).with(16, NO_TAG);
        answer.0[2] = reason;
        self.sender.send(answer, &header.0, true, link);
    }

    /// No command is answered from now on. The logout is, once none of them is in the engine: what comes in a
    /// later session finds nothing of this one under way. Whether the session ends: a logout of another
    /// connection, or for a recovery, is refused (section 11.14).
    fn log_out(&mut self, header: &Header, link: &mut dyn Link) -> bool {
        let own = header.0[20..22] == self.cid;
        let refusal = match header.flags() & 0x7f {
            CLOSE_SESSION => None,
            CLOSE_CONNECTION if own => None,
            CLOSE_CONNECTION => Some(NO_SUCH_CONNECTION),
            FOR_RECOVERY => Some(NO_RECOVERY),
            _ => {
                self.reject(header, INVALID_FIELD, link);
                return false;
            }
        };
        if let Some(response) = refusal {
            self.respond_to_logout(header.task_tag(), response, link);
            return false;
        }
        self.abandon(link);
        self.end();
        self.logout = Some(header.task_tag());
        self.answer_logout(link);
        true
    }

    fn respond_to_logout(&mut self, tag: u32, response: u8, link: &mut dyn Link) {
        let mut answer = Header::new(opcode::LOGOUT_RESPONSE, FINAL).with(16, tag);
        answer.0[2] = response;
        self.sender.send(answer, &[], true, link);
    }

    pub(super) fn answer_logout(&mut self, link: &mut dyn Link) {
        if self.tasks.len() > 0 {
            return;
        }
        if let Some(tag) = self.logout.take() {
            self.respond_to_logout(tag, LOGGED_OUT, link);
        }
    }
}

/// The attribute of a command (section 11.3.1); `None`: ACA, which is not offered, and reserved ones.
fn attribute(header: &Header) -> Option<Attribute> {
    match header.flags() & 7 {
        0 | 1 => Some(Attribute::Simple),
        2 => Some(Attribute::Ordered),
        3 => Some(Attribute::HeadOfQueue),
        _ => None,
    }
}

/// Whether it answers a ping of ours.
fn is_pong(header: &Header) -> bool {
    header.opcode() == opcode::NOP_OUT && header.task_tag() == NO_TAG
}

/// What the number of a PDU makes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Numbered {
    Next,
    Outside,
    Gap,
}

/// An answer with what it transfers.
fn sized(answer: Answer) -> (Answer, u64) {
    let bytes = match &answer.data {
        Data::Bytes(bytes) => bytes.len() as u64,
        _ => 0,
    };
    (answer, bytes)
}
