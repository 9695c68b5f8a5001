//! PDUs to the initiator: their numbers, padding and digests.

use super::keys::Parameters;
use super::pdu::{self, Header, NO_TAG, opcode};
use super::tasks::COMMANDS_MAX;
use crate::front::Link;
use crate::front::scsi::{Answer, Data, Status};
use restripe_array::BufRef;

const OVERFLOW: u8 = 0x04;
const UNDERFLOW: u8 = 0x02;
const WITH_STATUS: u8 = 0x01;

/// Numbers of statuses and commands, and what the session agreed on.
pub(crate) struct Sender {
    pub(crate) parameters: Parameters,
    status: u32,
    /// The number of the next command.
    pub(crate) command: u32,
    /// Numbered commands on their way.
    pub(crate) on_their_way: u32,
}

/// How what a command transferred differs from what the initiator expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Residual {
    flag: u8,
    bytes: u32,
}

impl Residual {
    /// `transferred`: what the command has or would have.
    pub(crate) fn of(transferred: u64, expected: u32) -> Residual {
        let expected = u64::from(expected);
        let (flag, bytes) = match transferred {
            more if more > expected => (OVERFLOW, more - expected),
            less if less < expected => (UNDERFLOW, expected - less),
            _ => (0, 0),
        };
        Residual {
            flag,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
        }
    }
}

/// The command that an answer is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Answered {
    pub(crate) tag: u32,
    pub(crate) expected: u32,
    pub(crate) reads: bool,
}

impl Sender {
    pub(crate) fn new(parameters: Parameters, status: u32, command: u32) -> Sender {
        Sender {
            parameters,
            status,
            command,
            on_their_way: 0,
        }
    }

    /// The highest number that the next command may have.
    pub(crate) fn window_end(&self) -> u32 {
        let room = COMMANDS_MAX.saturating_sub(self.on_their_way);
        self.command.wrapping_add(room).wrapping_sub(1)
    }

    /// Sets the numbers that every PDU has. `counts`: it carries a status of its own.
    fn numbered(&mut self, header: Header, counts: bool) -> Header {
        let header = header
            .with(24, self.status)
            .with(28, self.command)
            .with(32, self.window_end());
        self.status = self.status.wrapping_add(u32::from(counts));
        header
    }

    /// Sends a PDU with a short data segment. `counts`: it carries a status.
    pub(crate) fn send(&mut self, header: Header, data: &[u8], counts: bool, link: &mut dyn Link) {
        let mut header = self.numbered(header, counts);
        header.set_data_bytes(data.len());
        self.send_header(&header, link);
        if !data.is_empty() {
            link.send(data);
            self.end_segment(data, link);
        }
    }

    fn send_header(&self, header: &Header, link: &mut dyn Link) {
        link.send(&header.0);
        if self.parameters.header_digest {
            link.send(&pdu::digest(&header.0, 0));
        }
    }

    /// Padding and digest of a segment that was sent.
    fn end_segment(&self, data: &[u8], link: &mut dyn Link) {
        let padding = pdu::padding(data.len() as u32);
        link.send(&[0; 3][..padding]);
        if self.parameters.data_digest {
            link.send(&pdu::digest(data, padding));
        }
    }

    /// Sends a command's answer. `transferred`: what it has or would have. `sense` is encoded.
    pub(crate) fn answer(
        &mut self,
        command: Answered,
        answer: &Answer,
        transferred: u64,
        sense: Option<&[u8]>,
        buf: Option<BufRef>,
        link: &mut dyn Link,
    ) {
        let residual = Residual::of(transferred, command.expected);
        match &answer.data {
            Data::Bytes(bytes) if command.reads && !bytes.is_empty() && command.expected > 0 => {
                let count = bytes.len().min(command.expected as usize);
                self.data_of_bytes(command.tag, &bytes[..count], residual, link);
            }
            Data::Buffer(bytes) if command.reads && command.expected > 0 => {
                let count = (*bytes).min(command.expected);
                if let Some(buf) = buf {
                    self.data_of_buffer(command.tag, buf.part(0, count), residual, link);
                    return;
                }
            }
            _ => self.status(command.tag, answer.status, residual, sense, link),
        }
        if let Some(buf) = buf {
            link.release(buf);
        }
    }

    /// A SCSI Response (section 11.4).
    fn status(
        &mut self,
        tag: u32,
        status: Status,
        residual: Residual,
        sense: Option<&[u8]>,
        link: &mut dyn Link,
    ) {
        let mut header = Header::new(opcode::RESPONSE, pdu::FINAL | residual.flag)
            .with(16, tag)
            .with(44, residual.bytes);
        header.0[3] = status as u8;
        let mut data = Vec::new();
        if let Some(sense) = sense {
            data.extend_from_slice(&(sense.len() as u16).to_be_bytes());
            data.extend_from_slice(sense);
        }
        self.send(header, &data, true, link);
    }

    fn data_of_bytes(&mut self, tag: u32, bytes: &[u8], residual: Residual, link: &mut dyn Link) {
        let mut pieces = self.pieces(bytes.len() as u32);
        while let Some(piece) = pieces.next() {
            let header = self.data_in(tag, piece, residual);
            self.send_header(&header, link);
            let part = &bytes[piece.offset as usize..][..piece.bytes as usize];
            link.send(part);
            self.end_segment(part, link);
        }
    }

    /// The last piece releases the buffer.
    fn data_of_buffer(&mut self, tag: u32, data: BufRef, residual: Residual, link: &mut dyn Link) {
        let mut pieces = self.pieces(data.bytes);
        while let Some(piece) = pieces.next() {
            let header = self.data_in(tag, piece, residual);
            self.send_header(&header, link);
            let part = data.part(piece.offset, piece.bytes);
            let padding = pdu::padding(piece.bytes);
            let digest = self.parameters.data_digest;
            let digest = digest.then(|| pdu::digest(link.bytes(part), padding));
            match piece.last {
                true => link.send_buffer(part),
                false => link.send_part(part),
            }
            link.send(&[0; 3][..padding]);
            if let Some(digest) = digest {
                link.send(&digest);
            }
        }
    }

    fn pieces(&self, bytes: u32) -> Pieces {
        Pieces {
            bytes,
            segment: self.parameters.peer_segment,
            burst: self.parameters.max_burst,
            offset: 0,
            number: 0,
        }
    }

    /// A Data-In (section 11.7). The last carries the status, which is good.
    fn data_in(&mut self, tag: u32, piece: Piece, residual: Residual) -> Header {
        let mut flags = if piece.ends_burst { pdu::FINAL } else { 0 };
        if piece.last {
            flags |= WITH_STATUS | residual.flag;
        }
        let header = Header::new(opcode::DATA_IN, flags)
            .with(16, tag)
            .with(20, NO_TAG)
            .with(36, piece.number)
            .with(40, piece.offset);
        let mut header = self.numbered(header, piece.last);
        match piece.last {
            true => header.set_number(44, residual.bytes),
            false => header.set_number(24, 0),
        }
        header.set_data_bytes(piece.bytes as usize);
        header
    }
}

/// Part of a command's data that is sent in one PDU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Piece {
    number: u32,
    offset: u32,
    bytes: u32,
    ends_burst: bool,
    last: bool,
}

/// Cuts data into segments no longer than the initiator receives, and these into bursts.
struct Pieces {
    bytes: u32,
    segment: u32,
    burst: u32,
    offset: u32,
    number: u32,
}

impl Pieces {
    fn next(&mut self) -> Option<Piece> {
        let left = self.bytes - self.offset;
        let of_burst = self.burst - self.offset % self.burst;
        let bytes = left.min(self.segment).min(of_burst);
        if bytes == 0 {
            return None;
        }
        let piece = Piece {
            number: self.number,
            offset: self.offset,
            bytes,
            ends_burst: bytes == of_burst || bytes == left,
            last: bytes == left,
        };
        self.offset += bytes;
        self.number += 1;
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_cut_by_segments_and_bursts() {
        let mut pieces = Pieces {
            bytes: 25,
            segment: 8,
            burst: 12,
            offset: 0,
            number: 0,
        };
        let mut found = Vec::new();
        while let Some(piece) = pieces.next() {
            found.push((piece.offset, piece.bytes, piece.ends_burst, piece.last));
        }
        let expected = [
            (0, 8, false, false),
            (8, 4, true, false),
            (12, 8, false, false),
            (20, 4, true, false),
            (24, 1, true, true),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn residuals_say_which_side_expected_more() {
        assert_eq!(Residual::of(512, 512), Residual { flag: 0, bytes: 0 });
        let over = Residual::of(512, 200);
        assert_eq!((over.flag, over.bytes), (OVERFLOW, 312));
        let under = Residual::of(0, 512);
        assert_eq!((under.flag, under.bytes), (UNDERFLOW, 512));
    }
}
