//! An initiator in memory: builds PDUs, and takes those of the target apart.

use crate::nbd_protocol::world::{Peer, World};
use md5::{Digest, Md5};
use restripe_code::crc32c;
use restripe_io::front::iscsi::Connection;
use restripe_io::front::iscsi::hub::{Hub, NAME_PREFIX};
use restripe_io::front::{Nudge, Protocol, Then};
use sha2::Sha256;
use std::sync::Arc;

pub const HEADER: usize = 48;
pub const NAME: &str = "iqn.2026-11.test:one";

/// A PDU of the target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pdu {
    pub header: [u8; HEADER],
    pub data: Vec<u8>,
}

impl Pdu {
    pub fn opcode(&self) -> u8 {
        self.header[0] & 0x3f
    }

    pub fn number(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.header[at..at + 4].try_into().expect("four bytes"))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.data).replace('\0', "\n")
    }

    /// What its text has behind this beginning of a line.
    pub fn value(&self, key: &str) -> String {
        let text = self.text();
        let found = text.lines().find_map(|line| line.strip_prefix(key));
        found
            .unwrap_or_else(|| panic!("no {key} in {text}"))
            .to_owned()
    }
}

/// How a command ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    pub status: u8,
    pub data: Vec<u8>,
    /// Sense key, additional code and qualifier.
    pub sense: Option<(u8, u8, u8)>,
    /// The information field of the sense data, if it is valid.
    pub information: Option<u32>,
    /// Bytes over (positive) or under.
    pub residual: i64,
}

pub struct Initiator {
    pub peer: Peer<Connection>,
    inbox: Vec<u8>,
    pub tag: u32,
    pub command: u32,
    status: u32,
    header_digest: bool,
    data_digest: bool,
    /// Longest segment of data that is sent at once.
    pub segment: usize,
}

pub fn header(opcode: u8, flags: u8, tag: u32) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    (header[0], header[1]) = (opcode, flags);
    header[16..20].copy_from_slice(&tag.to_be_bytes());
    header
}

pub fn put(header: &mut [u8; HEADER], at: usize, number: u32) {
    header[at..at + 4].copy_from_slice(&number.to_be_bytes());
}

/// The response to a challenge of CHAP, by the algorithm that its text names.
pub fn chap_response(challenge: &Pdu, secret: &str) -> Vec<u8> {
    let algorithm = challenge.value("CHAP_A=");
    let identifier: u8 = challenge.value("CHAP_I=").parse().expect("a byte");
    let digits = challenge.value("CHAP_C=0x");
    let bytes = (0..digits.len()).step_by(2);
    let bytes = bytes.map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("digits"));
    chap_digest(&algorithm, identifier, secret, &bytes.collect::<Vec<u8>>())
}

pub fn chap_digest(algorithm: &str, identifier: u8, secret: &str, challenge: &[u8]) -> Vec<u8> {
    let all = [&[identifier], secret.as_bytes(), challenge].concat();
    match algorithm {
        "5" => Md5::digest(all).to_vec(),
        "7" => Sha256::digest(all).to_vec(),
        other => panic!("the algorithm {other}"),
    }
}

/// Bytes as a text value.
pub fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("0x{digits}")
}

pub fn hub() -> Arc<Hub> {
    Arc::new(Hub::new(Vec::new()))
}

impl Initiator {
    pub fn new(hub: &Arc<Hub>, world: World) -> Initiator {
        Initiator {
            peer: Peer::of(Connection::new(Arc::clone(hub)), world),
            inbox: Vec::new(),
            tag: 0,
            command: 1,
            status: 0,
            header_digest: false,
            data_digest: false,
            segment: 8192,
        }
    }

    /// Logged in to the only array, with these keys.
    pub fn logged_in(hub: &Arc<Hub>, world: World, keys: &[&str]) -> Initiator {
        let mut initiator = Initiator::new(hub, world);
        let target = format!("TargetName={NAME_PREFIX}disk");
        let name = format!("InitiatorName={NAME}");
        let mut all = vec![name.as_str(), &target, "SessionType=Normal"];
        all.extend(keys);
        let answer = initiator.log_in(1, 3, &all);
        assert_eq!(answer.header[36], 0, "{}", answer.text());
        initiator.take_digests(&answer);
        initiator.attend();
        initiator
    }

    /// Takes the unit attention of a new session, which a removable unit has not.
    pub fn attend(&mut self) {
        let status = self.read(&[0; 6], 0).status;
        assert!(matches!(status, 0 | 2), "{status}");
    }

    /// Digests are used from now on, if the answer to the login agrees to them.
    pub fn take_digests(&mut self, answer: &Pdu) {
        self.header_digest = answer.text().contains("HeaderDigest=CRC32C");
        self.data_digest = answer.text().contains("DataDigest=CRC32C");
    }

    /// One request of the login, with a transit from one stage to the next.
    pub fn log_in(&mut self, stage: u8, next: u8, keys: &[&str]) -> Pdu {
        self.begin_login(stage, next, keys);
        if self.peer.then == Then::Hold {
            // Refused, which comes later.
            assert!(self.peer.world.sent.is_empty() && self.pass(2));
            let finish = (self.peer.world.number, Nudge::Finish);
            assert_eq!(self.peer.world.nudges.pop(), Some(finish));
            self.peer.then = Then::Finish;
        }
        let answer = self.receive().expect("a login is answered");
        assert_eq!(answer.opcode(), 0x23);
        self.status = answer.number(24);
        answer
    }

    pub fn begin_login(&mut self, stage: u8, next: u8, keys: &[&str]) {
        let transit = if next > stage { 0x80 } else { 0 };
        let mut request = header(0x43, transit | stage << 2 | next, 7);
        request[8..14].copy_from_slice(&[0x80, 0, 0, 0, 0, 1]);
        put(&mut request, 24, self.command);
        let text: Vec<u8> = keys
            .iter()
            .flat_map(|key| [key.as_bytes(), b"\0"].concat())
            .collect();
        self.send(request, &text);
    }

    /// Sends a PDU with its padding and digests.
    pub fn send(&mut self, header: [u8; HEADER], data: &[u8]) {
        let bytes = self.encode(header, data);
        self.peer.feed(&bytes);
    }

    pub fn encode(&self, mut header: [u8; HEADER], data: &[u8]) -> Vec<u8> {
        let [_, length @ ..] = (data.len() as u32).to_be_bytes();
        header[5..8].copy_from_slice(&length);
        let mut bytes = header.to_vec();
        if self.header_digest {
            bytes.extend_from_slice(&crc32c(0, &header).to_le_bytes());
        }
        let mut padded = data.to_vec();
        padded.resize(data.len().next_multiple_of(4), 0);
        bytes.extend_from_slice(&padded);
        if self.data_digest && !data.is_empty() {
            bytes.extend_from_slice(&crc32c(0, &padded).to_le_bytes());
        }
        bytes
    }

    /// The next PDU of the target, if it has sent one. Digests are checked.
    pub fn receive(&mut self) -> Option<Pdu> {
        self.inbox.extend(self.peer.take());
        if self.inbox.len() < HEADER {
            return None;
        }
        let header: [u8; HEADER] = self.inbox[..HEADER].try_into().expect("a header");
        let length = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
        let padded = length.next_multiple_of(4);
        let mut at = HEADER;
        if self.header_digest {
            let digest = crc32c(0, &header).to_le_bytes();
            assert_eq!(self.inbox[at..at + 4], digest, "the header's digest");
            at += 4;
        }
        let data = self.inbox[at..at + length].to_vec();
        if self.data_digest && length > 0 {
            let digest = crc32c(0, &self.inbox[at..at + padded]).to_le_bytes();
            assert_eq!(self.inbox[at + padded..][..4], digest, "the data's digest");
            at += 4;
        }
        self.inbox.drain(..at + padded);
        Some(Pdu { header, data })
    }

    /// The header of a numbered SCSI command.
    pub fn scsi(&mut self, cdb: &[u8], reads: usize, writes: usize) -> [u8; HEADER] {
        self.tag += 1;
        let read = if reads > 0 { 0x40 } else { 0 };
        let write = if writes > 0 { 0x20 } else { 0 };
        let mut request = header(0x01, 0x80 | read | write, self.tag);
        put(&mut request, 20, reads.max(writes) as u32);
        put(&mut request, 24, self.command);
        request[32..32 + cdb.len()].copy_from_slice(cdb);
        self.command = self.command.wrapping_add(1);
        request
    }

    pub fn read(&mut self, cdb: &[u8], bytes: usize) -> Outcome {
        let request = self.scsi(cdb, bytes, 0);
        self.send(request, &[]);
        self.finish(&[])
    }

    /// A command that writes: `immediate` bytes come with it, the rest as they are asked for.
    pub fn write(&mut self, cdb: &[u8], data: &[u8], immediate: usize) -> Outcome {
        let request = self.scsi(cdb, 0, data.len());
        self.send(request, &data[..immediate]);
        self.finish(data)
    }

    /// Answers requests for data until the command of the last tag has ended.
    pub fn finish(&mut self, data: &[u8]) -> Outcome {
        let mut read = Vec::new();
        let mut pieces = 0;
        loop {
            self.peer.settle();
            let pdu = self.receive().expect("the command is answered");
            assert_eq!(pdu.number(16), self.tag, "of this command");
            match pdu.opcode() {
                0x31 => self.data_out(&pdu, data),
                0x25 => {
                    assert_eq!(pdu.number(40) as usize, read.len(), "data is in order");
                    assert_eq!(pdu.number(36), pieces);
                    pieces += 1;
                    read.extend_from_slice(&pdu.data);
                    if pdu.header[1] & 1 != 0 {
                        return self.ended(&pdu, read);
                    }
                }
                0x21 => return self.ended(&pdu, read),
                other => panic!("an opcode of {other:#x}"),
            }
        }
    }

    pub fn ended(&mut self, pdu: &Pdu, data: Vec<u8>) -> Outcome {
        assert_eq!(
            pdu.number(24),
            self.status_number(),
            "statuses are numbered"
        );
        let sense = match pdu.opcode() {
            0x21 if pdu.data.len() > 14 => Some((pdu.data[4] & 15, pdu.data[14], pdu.data[15])),
            _ => None,
        };
        let information = match pdu.opcode() {
            0x21 if pdu.data.len() > 14 && pdu.data[2] & 0x80 != 0 => Some(u32::from_be_bytes([
                pdu.data[5],
                pdu.data[6],
                pdu.data[7],
                pdu.data[8],
            ])),
            _ => None,
        };
        let bytes = i64::from(pdu.number(44));
        let residual = match pdu.header[1] & 6 {
            4 => bytes,
            2 => -bytes,
            _ => 0,
        };
        Outcome {
            status: pdu.header[3],
            data,
            sense,
            information,
            residual,
        }
    }

    pub fn status_number(&mut self) -> u32 {
        self.status += 1;
        self.status
    }

    /// Data that was asked for, in segments.
    pub fn data_out(&mut self, request: &Pdu, data: &[u8]) {
        let (from, length) = (request.number(40) as usize, request.number(44) as usize);
        let part = &data[from..from + length];
        let segments: Vec<&[u8]> = part.chunks(self.segment).collect();
        let mut at = from;
        for (number, segment) in segments.iter().enumerate() {
            let last = number + 1 == segments.len();
            let mut pdu = header(0x05, if last { 0x80 } else { 0 }, self.tag);
            put(&mut pdu, 20, request.number(20));
            put(&mut pdu, 36, number as u32);
            put(&mut pdu, 40, at as u32);
            self.send(pdu, segment);
            at += segment.len();
        }
    }

    /// Data from one offset to another that was not asked for, in segments, behind its command.
    pub fn unsolicited(&mut self, data: &[u8], from: usize, until: usize) {
        let mut at = from;
        for number in 0.. {
            let end = until.min(at + self.segment);
            let last = if end == until { 0x80 } else { 0 };
            let mut pdu = header(0x05, last, self.tag);
            put(&mut pdu, 20, u32::MAX);
            put(&mut pdu, 36, number);
            put(&mut pdu, 40, at as u32);
            self.send(pdu, &data[at..end]);
            at = end;
            if at == until {
                return;
            }
        }
    }

    /// A text request: its answer.
    pub fn text(&mut self, text: &str) -> Pdu {
        self.tag += 1;
        let mut request = header(0x44, 0x80, self.tag);
        put(&mut request, 20, u32::MAX);
        put(&mut request, 24, self.command);
        self.send(request, format!("{text}\0").as_bytes());
        let answer = self.receive().expect("it is answered");
        assert_eq!((answer.opcode(), answer.number(16)), (0x24, self.tag));
        self.status_number();
        answer
    }

    /// A ping with data: its answer.
    pub fn ping(&mut self, data: &[u8]) -> Pdu {
        self.tag += 1;
        let mut request = header(0x40, 0x80, self.tag);
        put(&mut request, 20, u32::MAX);
        put(&mut request, 24, self.command);
        self.send(request, data);
        let answer = self.receive().expect("it is answered");
        assert_eq!((answer.opcode(), answer.number(16)), (0x20, self.tag));
        assert_eq!(answer.number(24), self.status_number());
        answer
    }

    /// Asks to log out.
    pub fn log_out(&mut self) {
        self.tag += 1;
        let mut request = header(0x46, 0x80, self.tag);
        put(&mut request, 24, self.command);
        self.send(request, &[]);
    }

    /// Seconds pass. Whether the connection goes on.
    pub fn pass(&mut self, seconds: u32) -> bool {
        let peer = &mut self.peer;
        (0..seconds).all(|_| peer.connection.second(&mut peer.world))
    }

    pub fn is_proven(&self) -> bool {
        self.peer.connection.is_proven()
    }

    /// A task management function: its response.
    pub fn manage(&mut self, function: u8, task: u32) -> u8 {
        self.tag += 1;
        let mut request = header(0x42, 0x80 | function, self.tag);
        put(&mut request, 20, task);
        put(&mut request, 24, self.command);
        self.send(request, &[]);
        self.peer.settle();
        let pdu = self.receive().expect("it is answered");
        assert_eq!((pdu.opcode(), pdu.number(16)), (0x22, self.tag));
        self.status_number();
        pdu.header[2]
    }
}

pub fn read_10(lba: u32, blocks: u16) -> [u8; 10] {
    cdb_10(0x28, lba, blocks)
}

pub fn write_10(lba: u32, blocks: u16) -> [u8; 10] {
    cdb_10(0x2a, lba, blocks)
}

pub fn cdb_10(opcode: u8, lba: u32, blocks: u16) -> [u8; 10] {
    let [a, b, c, d] = lba.to_be_bytes();
    let [high, low] = blocks.to_be_bytes();
    [opcode, 0, a, b, c, d, 0, high, low, 0]
}
