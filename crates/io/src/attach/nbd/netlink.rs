//! Generic netlink: as much of it as one request with one answer needs (netlink(7), RFC 3549, section 2).
//!
//! A message is a header of 16 bytes, a generic header of 4 bytes and attributes, in the byte order of the
//! host. An attribute is its length (with these 4 bytes), its kind and its value, padded to a multiple of 4.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

const HEADER_BYTES: usize = 16;
const GENERIC_BYTES: usize = 4;
/// The family that gives the numbers of families.
const CONTROLLER: u16 = libc::GENL_ID_CTRL as u16;
const GET_FAMILY: u8 = libc::CTRL_CMD_GETFAMILY as u8;
const FAMILY_ID: u16 = libc::CTRL_ATTR_FAMILY_ID as u16;
const FAMILY_NAME: u16 = libc::CTRL_ATTR_FAMILY_NAME as u16;
const VERSION: u8 = 1;
/// The kernel answers within the call, or after a device has come to rest.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// Attributes as they are written.
#[derive(Default, Clone)]
pub(super) struct Attributes(Vec<u8>);

impl Attributes {
    pub(super) fn u32(self, kind: u16, value: u32) -> Attributes {
        self.with(kind, &value.to_ne_bytes())
    }

    pub(super) fn u64(self, kind: u16, value: u64) -> Attributes {
        self.with(kind, &value.to_ne_bytes())
    }

    /// A text with its ending zero.
    pub(super) fn text(self, kind: u16, value: &str) -> Attributes {
        self.with(kind, &[value.as_bytes(), &[0]].concat())
    }

    pub(super) fn nested(self, kind: u16, inner: &Attributes) -> Attributes {
        self.with(kind | libc::NLA_F_NESTED as u16, &inner.0)
    }

    fn with(mut self, kind: u16, value: &[u8]) -> Attributes {
        let length = u16::try_from(value.len() + 4).expect("values are short");
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }
}

/// A request that is to be acknowledged.
fn encode(family: u16, command: u8, sequence: u32, attributes: &Attributes) -> Vec<u8> {
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
    let length = HEADER_BYTES + GENERIC_BYTES + attributes.0.len();
    let length = u32::try_from(length).expect("requests are short");
    let mut message = length.to_ne_bytes().to_vec();
    message.extend_from_slice(&family.to_ne_bytes());
    message.extend_from_slice(&flags.to_ne_bytes());
    message.extend_from_slice(&sequence.to_ne_bytes());
    // The port of the sender, which the kernel fills in.
    message.extend_from_slice(&0_u32.to_ne_bytes());
    message.extend_from_slice(&[command, VERSION, 0, 0]);
    message.extend_from_slice(&attributes.0);
    message
}

/// What one received datagram came to.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// The acknowledgement: 0, or the number of an error.
    Ended(i32),
    /// Only data; the acknowledgement is still to come.
    More,
}

/// Decodes the messages of a datagram. Attributes of data messages go to `data`; messages with another
/// sequence number are passed over. `None`: the datagram is malformed.
fn decode(mut datagram: &[u8], sequence: u32, data: &mut Vec<u8>) -> Option<Answer> {
    while !datagram.is_empty() {
        let length = u32_at(datagram, 0)? as usize;
        let message = datagram.get(..length)?;
        let body = message.get(HEADER_BYTES..)?;
        if u32_at(message, 8)? == sequence {
            match i32::from(u16_at(message, 4)?) {
                libc::NLMSG_ERROR => return Some(Answer::Ended(-(u32_at(body, 0)?.cast_signed()))),
                libc::NLMSG_NOOP => {}
                _ => data.extend_from_slice(body.get(GENERIC_BYTES..)?),
            }
        }
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    Some(Answer::More)
}

/// The value of the first attribute of this kind. A malformed list ends where it is malformed.
fn attribute(mut list: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16_at(list, 0)?);
        let value = list.get(4..length)?;
        if u16_at(list, 2)? & !(libc::NLA_F_NESTED as u16) == kind {
            return Some(value);
        }
        list = list.get(length.next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_ne_bytes(bytes.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

/// A socket to one family of the kernel.
pub(super) struct Channel {
    socket: OwnedFd,
    family: u16,
}

impl Channel {
    /// An error of kind `NotFound` if the kernel has no such family.
    pub(super) fn open(family: &str) -> io::Result<Channel> {
        let socket = open_socket()?;
        let mut channel = Channel {
            socket,
            family: CONTROLLER,
        };
        let found = channel.call(GET_FAMILY, &Attributes::default().text(FAMILY_NAME, family))?;
        let number = attribute(&found, FAMILY_ID).and_then(|value| u16_at(value, 0));
        channel.family = number.ok_or_else(malformed)?;
        Ok(channel)
    }

    /// Sends a command and waits for its acknowledgement; the attributes of the answer.
    pub(super) fn call(&self, command: u8, attributes: &Attributes) -> io::Result<Vec<u8>> {
        const SEQUENCE: u32 = 1;
        let message = encode(self.family, command, SEQUENCE, attributes);
        // SAFETY: the pointer and the length are of a live slice.
        let sent = unsafe {
            let fd = self.socket.as_raw_fd();
            libc::send(fd, message.as_ptr().cast(), message.len(), 0)
        };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut data = Vec::new();
        let mut datagram = vec![0; 32 * 1024];
        loop {
            let received = self.receive(&mut datagram)?;
            match decode(received, SEQUENCE, &mut data).ok_or_else(malformed)? {
                Answer::More => {}
                Answer::Ended(0) => return Ok(data),
                Answer::Ended(errno) => return Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }

    fn receive<'a>(&self, into: &'a mut [u8]) -> io::Result<&'a [u8]> {
        loop {
            // SAFETY: the pointer and the length are of a live slice that nothing else uses.
            let count = unsafe {
                let fd = self.socket.as_raw_fd();
                libc::recv(fd, into.as_mut_ptr().cast(), into.len(), 0)
            };
            match usize::try_from(count) {
                Ok(count) => return Ok(&into[..count]),
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
    }
}

fn open_socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed.
    let fd = unsafe {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_GENERIC)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, owned by this value alone.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let patience = libc::timeval {
        tv_sec: ANSWER_WITHIN.as_secs().cast_signed(),
        tv_usec: 0,
    };
    // SAFETY: the pointer and the length are of a live variable.
    let set = unsafe {
        let length = size_of::<libc::timeval>() as libc::socklen_t;
        let value = (&raw const patience).cast();
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, value, length)
    };
    match set {
        0 => Ok(socket),
        _ => Err(io::Error::last_os_error()),
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed netlink answer")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message of the kernel for a request: an error's number, then the request's header.
    fn acknowledgement(sequence: u32, errno: i32) -> Vec<u8> {
        let mut message = 36_u32.to_ne_bytes().to_vec();
        message.extend((libc::NLMSG_ERROR as u16).to_ne_bytes());
        message.extend([0; 2]);
        message.extend(sequence.to_ne_bytes());
        message.extend(4_u32.to_ne_bytes());
        message.extend((-errno).to_ne_bytes());
        message.resize(36, 0);
        message
    }

    #[test]
    fn attributes_are_padded_and_found_again() {
        let inner = Attributes::default().u32(1, 7);
        let list = Attributes::default()
            .text(10, "ab")
            .nested(7, &inner)
            .u64(2, u64::MAX);
        assert_eq!(&list.0[..8], [7, 0, 10, 0, b'a', b'b', 0, 0]);
        assert_eq!(attribute(&list.0, 10), Some(&b"ab\0"[..]));
        assert_eq!(attribute(&list.0, 7), Some(&inner.0[..]));
        assert_eq!(attribute(&list.0, 2), Some(&[0xff; 8][..]));
        assert_eq!(attribute(&list.0, 3), None);
    }

    #[test]
    fn a_request_is_as_long_as_its_header_says() {
        let message = encode(0x1c, 3, 9, &Attributes::default().u32(1, 5));
        assert_eq!(u32_at(&message, 0), Some(28));
        assert_eq!(message.len(), 28);
        assert_eq!(u16_at(&message, 4), Some(0x1c));
        assert_eq!(u16_at(&message, 6), Some(5), "request and acknowledge");
        assert_eq!(u32_at(&message, 8), Some(9));
        assert_eq!(message[16..20], [3, 1, 0, 0]);
    }

    #[test]
    fn an_answer_is_its_data_and_then_its_acknowledgement() {
        let mut data = Vec::new();
        let reply = encode(0x1c, 1, 9, &Attributes::default().u32(1, 5));
        let both = [reply, acknowledgement(9, 0)].concat();
        assert_eq!(decode(&both, 9, &mut data), Some(Answer::Ended(0)));
        let value = attribute(&data, 1).and_then(|value| u32_at(value, 0));
        assert_eq!(value, Some(5));
        let refused = acknowledgement(9, libc::EBUSY);
        let busy = Some(Answer::Ended(libc::EBUSY));
        assert_eq!(decode(&refused, 9, &mut data), busy);
        let other = decode(&refused, 8, &mut Vec::new());
        assert_eq!(other, Some(Answer::More), "the answer to another request");
    }

    /// Whatever is cut off or made up, it is an error or nothing, and never a panic or an endless loop.
    #[test]
    fn a_malformed_answer_is_refused() {
        let reply = encode(0x1c, 1, 9, &Attributes::default().text(1, "abcdef"));
        let whole = [reply, acknowledgement(9, 3)].concat();
        for end in 0..whole.len() {
            let answer = decode(&whole[..end], 9, &mut Vec::new());
            assert_ne!(answer, Some(Answer::Ended(3)), "{end}");
        }
        for at in 0..whole.len() {
            for byte in [0, 1, 3, 0x7f, 0xff] {
                let mut spoilt = whole.clone();
                spoilt[at] = byte;
                let mut data = Vec::new();
                let _ = decode(&spoilt, 9, &mut data);
                let _ = attribute(&data, 2);
            }
        }
        assert_eq!(decode(&[0; 16], 9, &mut Vec::new()), None);
        assert_eq!(attribute(&[0; 8], 1), None);
        assert_eq!(attribute(&[3, 0, 1, 0], 1), None);
    }
}
