//! The NBD wire format: messages to and from bytes, without I/O.
//!
//! The names and numbers are those of the protocol's specification (`proto.md` of the NBD project); all
//! integers are big-endian. The server ([`crate::front::nbd`]) and the client ([`client`]) share what is
//! here, so that a message has one encoder and one decoder.
//!
//! | module | owns |
//! |---|---|
//! | [`option`] | the handshake: greeting, options, their replies |
//! | [`message`] | the transmission: requests, simple replies, structured chunks |
//! | [`client`] | a client's connection as a state machine |
//! | [`uri`] | `nbd://` and `nbd+unix://` |

pub mod beneath;
pub mod client;
pub mod message;
pub mod option;
pub mod uri;

use restripe_array::{IoError, RequestError};

/// First eight bytes of a server's greeting.
pub const MAGIC_GREETING: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// Opens the newstyle greeting and every option.
pub const MAGIC_OPTION: u64 = u64::from_be_bytes(*b"IHAVEOPT");
pub const MAGIC_OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
pub const MAGIC_REQUEST: u32 = 0x2560_9513;
pub const MAGIC_SIMPLE_REPLY: u32 = 0x6744_6698;
pub const MAGIC_STRUCTURED_REPLY: u32 = 0x668e_33ef;

/// Longest string of the protocol: names of exports, queries, messages.
pub const STRING_BYTES_MAX: usize = 4096;

/// The largest payload that a peer must expect when no block sizes were negotiated.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

/// Handshake flags of the server (16 bits) and of the client (32 bits).
pub mod handshake_flags {
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    pub const NO_ZEROES: u16 = 1 << 1;
    pub const CLIENT_FIXED_NEWSTYLE: u32 = 1 << 0;
    pub const CLIENT_NO_ZEROES: u32 = 1 << 1;
}

/// What an export offers.
pub mod transmission_flags {
    pub const HAS_FLAGS: u16 = 1 << 0;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const ROTATIONAL: u16 = 1 << 4;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    pub const SEND_CACHE: u16 = 1 << 10;
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// What a request asks for beyond its command.
pub mod command_flags {
    pub const FUA: u16 = 1 << 0;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Values with a number each on the wire: `code` leads to it, and `of_code` back.
macro_rules! codes {
    ($(#[$about:meta])* $kind:ident: $width:ident { $($value:ident = $code:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        pub enum $kind {
            $($value = $code,)+
        }

        impl $kind {
            pub const ALL: &[$kind] = &[$($kind::$value),+];

            pub fn code(self) -> $width {
                self as $width
            }

            pub fn of_code(code: $width) -> Option<$kind> {
                $kind::ALL.iter().copied().find(|one| one.code() == code)
            }
        }
    };
}

codes! {
    Command: u16 {
        Read = 0,
        Write = 1,
        Disconnect = 2,
        Flush = 3,
        Trim = 4,
        Cache = 5,
        WriteZeroes = 6,
        BlockStatus = 7,
    }
}

codes! {
    /// The error values that may appear on the wire.
    Errno: u32 {
        NotPermitted = 1,
        Io = 5,
        NoMemory = 12,
        Invalid = 22,
        NoSpace = 28,
        Overflow = 75,
        NotSupported = 95,
        Shutdown = 108,
    }
}

impl Errno {
    /// What a value on the wire means; the specification has unknown ones read as `Invalid`.
    pub(crate) fn from_code(code: u32) -> Errno {
        Errno::of_code(code).unwrap_or(Errno::Invalid)
    }

    /// What a member's error means to the engine.
    pub fn io_error(self) -> IoError {
        match self {
            Errno::Io => IoError::Media,
            Errno::NoSpace => IoError::NoSpace,
            Errno::NotSupported => IoError::Unsupported,
            Errno::Shutdown => IoError::Gone,
            Errno::NotPermitted | Errno::NoMemory | Errno::Invalid | Errno::Overflow => {
                IoError::Other(i32::try_from(self.code()).expect("errno values are small"))
            }
        }
    }
}

impl From<RequestError> for Errno {
    fn from(error: RequestError) -> Errno {
        match error {
            RequestError::OutOfRange { .. } => Errno::Invalid,
            RequestError::Lost { .. } => Errno::Io,
            RequestError::ReadOnly => Errno::NotPermitted,
            RequestError::NoSpace => Errno::NoSpace,
            RequestError::NotFast => Errno::NotSupported,
            RequestError::NotWholeSectors | RequestError::Differs => Errno::Invalid,
            RequestError::Unavailable => Errno::Shutdown,
        }
    }
}

/// Takes big-endian fields from the front of a message. Every take is checked: `None` means that the message ends too
/// early.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub fn new(bytes: &'a [u8]) -> Fields<'a> {
        Fields(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    /// A string that is preceded by its length in 32 bits.
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let count = self.u32()?;
        self.bytes(usize::try_from(count).ok()?)
    }

    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Puts big-endian fields into an array, front to back. A message's encoder fills its array exactly.
pub(crate) struct Put<const N: usize> {
    bytes: [u8; N],
    filled: usize,
}

impl<const N: usize> Put<N> {
    pub(crate) fn new() -> Put<N> {
        Put {
            bytes: [0; N],
            filled: 0,
        }
    }

    pub(crate) fn put<const M: usize>(mut self, field: [u8; M]) -> Put<N> {
        self.bytes[self.filled..self.filled + M].copy_from_slice(&field);
        self.filled += M;
        self
    }

    pub(crate) fn u16(self, value: u16) -> Put<N> {
        self.put(value.to_be_bytes())
    }

    pub(crate) fn u32(self, value: u32) -> Put<N> {
        self.put(value.to_be_bytes())
    }

    pub(crate) fn u64(self, value: u64) -> Put<N> {
        self.put(value.to_be_bytes())
    }

    pub(crate) fn done(self) -> [u8; N] {
        assert!(self.filled == N, "a message's fields fill it exactly");
        self.bytes
    }
}

/// A header of a fixed size: a magic number, then its fields in the order of the wire.
macro_rules! header {
    ($(#[$about:meta])* $name:ident, $size:ident, $width:ident $magic:ident {
        $($(#[$doc:meta])* $field:ident: $type:ident,)+
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)+
        }

        impl $name {
            pub fn encode(&self) -> [u8; $size] {
                Put::new().$width($magic)$(.$type(self.$field))+.done()
            }

            /// `None` when the magic is wrong: there is no telling where the next message begins.
            pub fn decode(bytes: &[u8; $size]) -> Option<$name> {
                let mut fields = $crate::nbd_wire::Fields::new(bytes);
                if fields.$width()? != $magic {
                    return None;
                }
                Some($name { $($field: fields.$type()?,)+ })
            }
        }
    };
}
use header;

/// Lengths of short strings and lists on the wire. They are bounded long before they reach 32 bits.
pub(crate) fn wire_length(length: usize) -> u32 {
    u32::try_from(length).expect("messages are bounded far below 4 GiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_meanings_are_one_to_one() {
        for &command in Command::ALL {
            assert_eq!(Command::of_code(command.code()), Some(command));
        }
        assert_eq!(Command::of_code(8), None);
        for &errno in Errno::ALL {
            assert_eq!(Errno::from_code(errno.code()), errno);
        }
        assert_eq!(Errno::from_code(4095), Errno::Invalid);
    }

    #[test]
    fn fields_end_where_the_message_ends() {
        let mut fields = Fields::new(&[0, 0, 0, 2, b'a', b'b', 9]);
        assert_eq!(fields.string(), Some(&b"ab"[..]));
        assert_eq!(fields.u16(), None);
        assert_eq!(fields.rest(), &[9]);
        assert_eq!(
            Fields::new(&[0xff, 0xff, 0xff, 0xff, b'a']).string(),
            None,
            "a length beyond the end is no string"
        );
    }
}
