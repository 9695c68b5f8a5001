//! The handshake on the wire: greeting, options, and their replies.

use super::{
    Fields, MAGIC_GREETING, MAGIC_OPTION, MAGIC_OPTION_REPLY, Put, STRING_BYTES_MAX,
    handshake_flags, header, wire_length,
};

/// Bytes of the server's greeting: two magics and the handshake flags.
pub const GREETING_BYTES: usize = 18;
/// Bytes of an option without its data.
pub const OPTION_BYTES: usize = 16;
/// Bytes of an option's reply without its data.
pub const OPTION_REPLY_BYTES: usize = 20;
/// Zeros that end the reply to `EXPORT_NAME` unless both sides agreed to leave them out.
pub const EXPORT_NAME_PADDING_BYTES: usize = 124;

/// Option codes.
pub mod code {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Kinds of an option's reply.
pub mod reply {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    /// All kinds with this bit tell of an error.
    pub const ERROR_BIT: u32 = 1 << 31;
    pub const ERR_UNSUP: u32 = ERROR_BIT | 1;
    pub const ERR_POLICY: u32 = ERROR_BIT | 2;
    pub const ERR_INVALID: u32 = ERROR_BIT | 3;
    pub const ERR_TLS_REQD: u32 = ERROR_BIT | 5;
    pub const ERR_UNKNOWN: u32 = ERROR_BIT | 6;
    pub const ERR_TOO_BIG: u32 = ERROR_BIT | 9;

    /// What `ERR_POLICY` says of an export that one client has at a time, while another has it.
    pub(crate) const HELD: &str = "another client has it attached";
}

/// Items of information about an export.
pub mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// The greeting of a server that speaks fixed newstyle and can leave out the padding.
pub fn encode_greeting() -> [u8; GREETING_BYTES] {
    Put::new()
        .u64(MAGIC_GREETING)
        .u64(MAGIC_OPTION)
        .u16(handshake_flags::FIXED_NEWSTYLE | handshake_flags::NO_ZEROES)
        .done()
}

/// The handshake flags of a newstyle greeting; `None` for anything else.
pub fn decode_greeting(bytes: &[u8; GREETING_BYTES]) -> Option<u16> {
    let mut fields = Fields::new(bytes);
    let newstyle = fields.u64()? == MAGIC_GREETING && fields.u64()? == MAGIC_OPTION;
    newstyle.then_some(fields.u16()?)
}

header! {
    /// An option's header; `bytes` of data follow it.
    OptionHeader, OPTION_BYTES, u64 MAGIC_OPTION {
        code: u32,
        bytes: u32,
    }
}

header! {
    /// Header of a reply to an option; `bytes` of data follow it.
    OptionReply, OPTION_REPLY_BYTES, u64 MAGIC_OPTION_REPLY {
        /// The option that is answered.
        code: u32,
        kind: u32,
        bytes: u32,
    }
}

/// A whole reply to an option, appended to `out`.
pub fn encode_reply(code: u32, kind: u32, data: &[&[u8]], out: &mut Vec<u8>) {
    let data = data.concat();
    let bytes = wire_length(data.len());
    out.extend_from_slice(&OptionReply { code, kind, bytes }.encode());
    out.extend_from_slice(&data);
}

/// A whole option, appended to `out`.
pub fn encode_option(code: u32, data: &[&[u8]], out: &mut Vec<u8>) {
    let data = data.concat();
    let bytes = wire_length(data.len());
    out.extend_from_slice(&OptionHeader { code, bytes }.encode());
    out.extend_from_slice(&data);
}

/// What `INFO` and `GO` carry: which export, and which items a client wants to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InfoQuery<'a> {
    pub name: &'a str,
    items: &'a [u8],
}

impl<'a> InfoQuery<'a> {
    /// `None` when the data is not what its lengths say.
    pub fn decode(data: &'a [u8]) -> Option<InfoQuery<'a>> {
        let mut fields = Fields::new(data);
        let name = name_from(fields.string()?)?;
        let count = usize::from(fields.u16()?);
        let items = fields.bytes(count * 2)?;
        fields.is_empty().then_some(InfoQuery { name, items })
    }

    pub fn wants(&self, item: u16) -> bool {
        let mut items = self.items.chunks_exact(2);
        items.any(|bytes| bytes == item.to_be_bytes())
    }
}

/// A string behind its length in 32 bits.
fn put_string(text: &str, data: &mut Vec<u8>) {
    data.extend_from_slice(&wire_length(text.len()).to_be_bytes());
    data.extend_from_slice(text.as_bytes());
}

/// The data of `INFO` or `GO`.
pub fn encode_info_query(name: &str, items: &[u16]) -> Vec<u8> {
    let count = u16::try_from(items.len()).expect("there are few items");
    let mut data = Vec::with_capacity(4 + name.len() + 2 + 2 * items.len());
    put_string(name, &mut data);
    data.extend_from_slice(&count.to_be_bytes());
    for item in items {
        data.extend_from_slice(&item.to_be_bytes());
    }
    data
}

/// What `LIST_META_CONTEXT` and `SET_META_CONTEXT` carry: which export, and which contexts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContextQuery<'a> {
    pub name: &'a str,
    pub queries: Vec<&'a [u8]>,
}

impl<'a> ContextQuery<'a> {
    /// `None` when the data is not what its lengths say. The queries are bounded by the data: each takes 4 bytes of it.
    pub fn decode(data: &'a [u8]) -> Option<ContextQuery<'a>> {
        let mut fields = Fields::new(data);
        let name = name_from(fields.string()?)?;
        let count = fields.u32()?;
        let mut queries = Vec::new();
        for _ in 0..count {
            let query = fields.string()?;
            if query.len() > STRING_BYTES_MAX {
                return None;
            }
            queries.push(query);
        }
        fields.is_empty().then_some(ContextQuery { name, queries })
    }
}

/// The data of `LIST_META_CONTEXT` or `SET_META_CONTEXT`.
pub fn encode_context_query(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = Vec::new();
    put_string(name, &mut data);
    data.extend_from_slice(&wire_length(queries.len()).to_be_bytes());
    for query in queries {
        put_string(query, &mut data);
    }
    data
}

/// An export's name: UTF-8, not too long.
pub fn name_from(bytes: &[u8]) -> Option<&str> {
    if bytes.len() > STRING_BYTES_MAX {
        return None;
    }
    std::str::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greeting_is_fixed_newstyle() {
        let greeting = encode_greeting();
        assert_eq!(&greeting, b"NBDMAGICIHAVEOPT\0\x03");
        assert_eq!(decode_greeting(&greeting), Some(3));
        let oldstyle = b"NBDMAGIC\0\0\x42\x02\x81\x86\x12\x53\0\0";
        assert_eq!(decode_greeting(oldstyle), None);
    }

    #[test]
    fn queries_survive_the_wire_and_nothing_else_does() {
        let data = encode_info_query("disk", &[info::NAME, info::BLOCK_SIZE]);
        let query = InfoQuery::decode(&data).expect("well formed");
        assert_eq!(query.name, "disk");
        assert!(query.wants(info::NAME) && query.wants(info::BLOCK_SIZE));
        assert!(!query.wants(info::DESCRIPTION));
        for cut in 0..data.len() {
            assert_eq!(InfoQuery::decode(&data[..cut]), None);
        }

        let data = encode_context_query("disk", &["base:", "restripe:health"]);
        let query = ContextQuery::decode(&data).expect("well formed");
        assert_eq!(query.queries, [&b"base:"[..], b"restripe:health"]);
        for cut in 0..data.len() {
            assert_eq!(ContextQuery::decode(&data[..cut]), None);
        }
    }

    #[test]
    fn a_count_of_queries_beyond_the_data_allocates_nothing() {
        let mut data = encode_context_query("", &[]);
        let count = data.len() - 4;
        data[count..].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(ContextQuery::decode(&data), None);
    }
}
