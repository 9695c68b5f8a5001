//! The transmission phase on the wire: requests, simple replies, and the chunks of structured replies.

use super::{Errno, MAGIC_REQUEST, MAGIC_SIMPLE_REPLY, MAGIC_STRUCTURED_REPLY, Put, header};

/// Bytes of a request without its payload.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of a simple reply without its payload.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// Bytes of a structured chunk's header.
pub const CHUNK_BYTES: usize = 20;

header! {
    /// A request's header. The command is kept as it came: an unknown one still has a cookie to answer.
    Request, REQUEST_BYTES, u32 MAGIC_REQUEST {
        flags: u16,
        command: u16,
        cookie: u64,
        offset: u64,
        bytes: u32,
    }
}

header! {
    /// A simple reply's header; the data of a successful read follows it.
    SimpleReply, SIMPLE_REPLY_BYTES, u32 MAGIC_SIMPLE_REPLY {
        /// 0 for success.
        error: u32,
        cookie: u64,
    }
}

impl SimpleReply {
    pub fn new(cookie: u64, result: Result<(), Errno>) -> SimpleReply {
        let error = result.err().map_or(0, Errno::code);
        SimpleReply { error, cookie }
    }
}

/// Set in the last chunk of a reply.
pub const CHUNK_DONE: u16 = 1 << 0;

pub mod chunk_kind {
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const OFFSET_HOLE: u16 = 2;
    pub const BLOCK_STATUS: u16 = 5;
    /// All kinds with this bit tell of an error.
    pub const ERROR_BIT: u16 = 1 << 15;
    pub const ERROR: u16 = ERROR_BIT | 1;
    pub const ERROR_OFFSET: u16 = ERROR_BIT | 2;
}

header! {
    /// The header of one chunk of a structured reply; `bytes` of payload follow it.
    Chunk, CHUNK_BYTES, u32 MAGIC_STRUCTURED_REPLY {
        flags: u16,
        kind: u16,
        cookie: u64,
        bytes: u32,
    }
}

impl Chunk {
    pub fn is_done(&self) -> bool {
        self.flags & CHUNK_DONE != 0
    }
}

/// Bytes before the data in a chunk of data: the chunk's header and the data's offset.
pub const DATA_CHUNK_BYTES: usize = CHUNK_BYTES + 8;

/// All of a read's reply but its data: one last chunk that carries `bytes` bytes from `offset` on.
pub fn encode_data_chunk(cookie: u64, offset: u64, bytes: u32) -> [u8; DATA_CHUNK_BYTES] {
    let header = Chunk {
        flags: CHUNK_DONE,
        kind: chunk_kind::OFFSET_DATA,
        cookie,
        bytes: bytes + 8,
    };
    Put::new().put(header.encode()).u64(offset).done()
}

/// The last chunk of a reply that failed, with a message for people and, if known, where in the request it failed.
pub fn encode_error_chunk(
    cookie: u64,
    errno: Errno,
    message: &str,
    offset: Option<u64>,
    out: &mut Vec<u8>,
) {
    let message = &message.as_bytes()[..message.len().min(ERROR_MESSAGE_BYTES_MAX)];
    let message_bytes = u16::try_from(message.len()).expect("cut above");
    let (kind, offset_bytes) = match offset {
        Some(_) => (chunk_kind::ERROR_OFFSET, 8),
        None => (chunk_kind::ERROR, 0),
    };
    let header = Chunk {
        flags: CHUNK_DONE,
        kind,
        cookie,
        bytes: 4 + 2 + u32::from(message_bytes) + offset_bytes,
    };
    out.extend_from_slice(&header.encode());
    out.extend_from_slice(&errno.code().to_be_bytes());
    out.extend_from_slice(&message_bytes.to_be_bytes());
    out.extend_from_slice(message);
    if let Some(offset) = offset {
        out.extend_from_slice(&offset.to_be_bytes());
    }
}

/// Longest message that goes with an error.
pub const ERROR_MESSAGE_BYTES_MAX: usize = 256;

/// One stretch of a block status reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Descriptor {
    pub bytes: u32,
    pub flags: u32,
}

/// One chunk of a block status reply: what one metadata context says.
pub fn encode_status_chunk(
    cookie: u64,
    flags: u16,
    context: u32,
    descriptors: &[Descriptor],
    out: &mut Vec<u8>,
) {
    let header = Chunk {
        flags,
        kind: chunk_kind::BLOCK_STATUS,
        cookie,
        bytes: 4 + 8 * super::wire_length(descriptors.len()),
    };
    out.extend_from_slice(&header.encode());
    out.extend_from_slice(&context.to_be_bytes());
    for descriptor in descriptors {
        out.extend_from_slice(&descriptor.bytes.to_be_bytes());
        out.extend_from_slice(&descriptor.flags.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_bytes_of_the_specification() {
        let request = Request {
            flags: 1,
            command: 1,
            cookie: 0x0102_0304_0506_0708,
            offset: 0x1000,
            bytes: 512,
        };
        let bytes = request.encode();
        assert_eq!(
            bytes,
            [
                0x25, 0x60, 0x95, 0x13, 0, 1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0x10,
                0, 0, 0, 2, 0
            ]
        );
        assert_eq!(Request::decode(&bytes), Some(request));
        let mut broken = bytes;
        broken[0] ^= 1;
        assert_eq!(Request::decode(&broken), None);
    }

    #[test]
    fn replies_have_the_bytes_of_the_specification() {
        let simple = SimpleReply::new(7, Err(Errno::NoSpace));
        let bytes = simple.encode();
        assert_eq!(bytes, *b"\x67\x44\x66\x98\0\0\0\x1c\0\0\0\0\0\0\0\x07");
        assert_eq!(SimpleReply::decode(&bytes), Some(simple));

        let data = encode_data_chunk(7, 0x200, 16);
        assert_eq!(
            data,
            [
                0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 24, 0, 0, 0,
                0, 0, 0, 2, 0
            ]
        );

        let mut error = Vec::new();
        encode_error_chunk(7, Errno::Io, "lost", Some(5), &mut error);
        assert_eq!(&error[4..8], [0, 1, 0x80, 2]);
        let rest = b"\0\0\0\x12\0\0\0\x05\0\x04lost\0\0\0\0\0\0\0\x05";
        assert_eq!(&error[16..], rest);
    }
}
