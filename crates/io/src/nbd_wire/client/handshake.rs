//! A client's side of the handshake.
//!
//! ```text
//! Greeting --fixed--> Structured --ack or error--> Go --ack--> agreed
//!     |   |               (if wanted)               '--unsupported--> ExportName --size--> agreed
//!     |   '--TLS is demanded--> StartTls --ack--> Tls --secured--> as behind a fixed greeting
//!     '--not fixed--> ExportName, unless TLS is demanded
//! ```

use super::{ClientError, ExportInfo, Replies};
use crate::nbd_wire::beneath::listed;
use crate::nbd_wire::option::{
    EXPORT_NAME_PADDING_BYTES, GREETING_BYTES, OPTION_REPLY_BYTES, OptionReply, code,
    decode_greeting, encode_info_query, encode_option, info, reply,
};
use crate::nbd_wire::{Fields, STRING_BYTES_MAX, handshake_flags};
use restripe_array::Uuid;

/// What both sides agreed on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agreed {
    pub info: ExportInfo,
    pub structured: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wait {
    Greeting,
    /// The reply to `STARTTLS`.
    StartTls,
    /// The handshake of TLS.
    Tls,
    Structured,
    Go,
    /// The reply to `EXPORT_NAME` has no header.
    ExportName,
}

/// Replies that one handshake may take: a server cannot hold a client for ever with items of information.
const REPLIES_MAX: u32 = 64;

#[derive(Debug)]
pub(super) struct Handshake {
    export: String,
    replies: Replies,
    /// Nothing is asked in clear text.
    tls: bool,
    wait: Wait,
    structured: bool,
    no_zeroes: bool,
    info: Option<ExportInfo>,
    block_sizes: Option<(u32, u32, u32)>,
    replies_seen: u32,
    /// The arrays that lie beneath the export, as it says.
    beneath: Vec<Uuid>,
}

/// Bytes used, and the agreement if there is one now.
type Outcome = Result<(usize, Option<Agreed>), ClientError>;

impl Handshake {
    pub fn new(export: &str, replies: Replies) -> Handshake {
        Handshake {
            export: export.to_owned(),
            replies,
            tls: false,
            wait: Wait::Greeting,
            structured: false,
            no_zeroes: false,
            info: None,
            block_sizes: None,
            replies_seen: 0,
            beneath: Vec::new(),
        }
    }

    pub(super) fn through_tls(export: &str, replies: Replies) -> Handshake {
        Handshake {
            tls: true,
            ..Handshake::new(export, replies)
        }
    }

    pub(super) fn waits_for_tls(&self) -> bool {
        self.wait == Wait::Tls
    }

    pub(super) fn secured(&mut self, out: &mut Vec<u8>) {
        self.ask(out);
    }

    pub fn received(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Outcome {
        match self.wait {
            Wait::Greeting => self.greeting(bytes, out),
            Wait::Tls => Ok((0, None)),
            Wait::StartTls | Wait::Structured | Wait::Go => self.option_reply(bytes, out),
            Wait::ExportName => self.export_name_reply(bytes),
        }
    }

    fn greeting(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Outcome {
        let Some(greeting) = bytes.first_chunk::<GREETING_BYTES>() else {
            return Ok((0, None));
        };
        let flags = decode_greeting(greeting).ok_or(ClientError::NotNbd)?;
        let fixed = flags & handshake_flags::FIXED_NEWSTYLE != 0;
        self.no_zeroes = flags & handshake_flags::NO_ZEROES != 0;
        let mut answer = 0;
        if fixed {
            answer |= handshake_flags::CLIENT_FIXED_NEWSTYLE;
        }
        if self.no_zeroes {
            answer |= handshake_flags::CLIENT_NO_ZEROES;
        }
        out.extend_from_slice(&answer.to_be_bytes());
        match (fixed, self.tls) {
            (false, true) => return Err(no_tls("it is too old")),
            (false, false) => self.ask_export_name(out),
            (true, false) => self.ask(out),
            (true, true) => {
                self.wait = Wait::StartTls;
                encode_option(code::STARTTLS, &[], out);
            }
        }
        Ok((GREETING_BYTES, None))
    }

    /// Begins with the options of the handshake.
    fn ask(&mut self, out: &mut Vec<u8>) {
        match self.replies {
            Replies::Simple => self.ask_go(out),
            Replies::Structured => {
                self.wait = Wait::Structured;
                encode_option(code::STRUCTURED_REPLY, &[], out);
            }
        }
    }

    fn tls_reply(&mut self, header: &OptionReply, data: &[u8]) -> Result<(), ClientError> {
        match (header.code, header.kind) {
            (code::STARTTLS, reply::ACK) => {
                self.wait = Wait::Tls;
                Ok(())
            }
            (code::STARTTLS, kind) if kind & reply::ERROR_BIT != 0 => {
                Err(no_tls(&String::from_utf8_lossy(data)))
            }
            _ => Err(ClientError::Protocol("a reply to another option")),
        }
    }

    fn ask_go(&mut self, out: &mut Vec<u8>) {
        self.wait = Wait::Go;
        let query = encode_info_query(&self.export, &[info::BLOCK_SIZE, info::DESCRIPTION]);
        encode_option(code::GO, &[&query], out);
    }

    fn ask_export_name(&mut self, out: &mut Vec<u8>) {
        self.wait = Wait::ExportName;
        encode_option(code::EXPORT_NAME, &[self.export.as_bytes()], out);
    }

    fn option_reply(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Outcome {
        let Some((header, rest)) = bytes.split_first_chunk::<OPTION_REPLY_BYTES>() else {
            return Ok((0, None));
        };
        let header = OptionReply::decode(header).ok_or(ClientError::Protocol(
            "an option's reply begins with a wrong magic",
        ))?;
        let length = header.bytes as usize;
        if length > 2 * STRING_BYTES_MAX {
            return Err(ClientError::Protocol("an option's reply is too long"));
        }
        let Some(data) = rest.get(..length) else {
            return Ok((0, None));
        };
        self.replies_seen += 1;
        if self.replies_seen > REPLIES_MAX {
            return Err(ClientError::Protocol("the handshake does not end"));
        }
        let agreed = match self.wait {
            Wait::StartTls => self.tls_reply(&header, data).map(|()| None)?,
            Wait::Structured => self.structured_reply(&header, out)?,
            _ => self.go_reply(&header, data, out)?,
        };
        Ok((OPTION_REPLY_BYTES + length, agreed))
    }

    fn structured_reply(
        &mut self,
        header: &OptionReply,
        out: &mut Vec<u8>,
    ) -> Result<Option<Agreed>, ClientError> {
        if header.code != code::STRUCTURED_REPLY {
            return Err(ClientError::Protocol("a reply to another option"));
        }
        self.structured = header.kind == reply::ACK;
        self.ask_go(out);
        Ok(None)
    }

    fn go_reply(
        &mut self,
        header: &OptionReply,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Agreed>, ClientError> {
        if header.code != code::GO {
            return Err(ClientError::Protocol("a reply to another option"));
        }
        match header.kind {
            reply::INFO => self.item(data).map(|()| None),
            reply::ACK => self.agree().map(Some),
            reply::ERR_UNSUP => {
                self.ask_export_name(out);
                Ok(None)
            }
            kind if kind & reply::ERROR_BIT != 0 => Err(refused(kind, data)),
            _ => Err(ClientError::Protocol("an unknown reply to an option")),
        }
    }

    fn item(&mut self, data: &[u8]) -> Result<(), ClientError> {
        const MALFORMED: ClientError = ClientError::Protocol("a malformed item of information");
        let mut fields = Fields::new(data);
        match fields.u16().ok_or(MALFORMED)? {
            info::EXPORT => {
                let size_bytes = fields.u64().ok_or(MALFORMED)?;
                let flags = fields.u16().ok_or(MALFORMED)?;
                self.info = Some(ExportInfo::new(size_bytes, flags));
            }
            info::BLOCK_SIZE => {
                let minimum = fields.u32().ok_or(MALFORMED)?;
                let preferred = fields.u32().ok_or(MALFORMED)?;
                let maximum = fields.u32().ok_or(MALFORMED)?;
                if !minimum.is_power_of_two() || minimum > 65536 || maximum < minimum {
                    return Err(ClientError::Protocol("impossible block sizes"));
                }
                self.block_sizes = Some((minimum, preferred, maximum));
            }
            info::DESCRIPTION => self.beneath = listed(&String::from_utf8_lossy(&data[2..])),
            _ => {}
        }
        Ok(())
    }

    pub fn take_beneath(&mut self) -> Vec<Uuid> {
        std::mem::take(&mut self.beneath)
    }

    fn agree(&self) -> Result<Agreed, ClientError> {
        let mut info = self.info.ok_or(ClientError::Protocol(
            "the server agreed without sending the size",
        ))?;
        if let Some((minimum, preferred, maximum)) = self.block_sizes {
            info.block_minimum = minimum;
            info.block_preferred = preferred;
            info.payload_maximum = maximum;
        }
        Ok(Agreed {
            info,
            structured: self.structured,
        })
    }

    fn export_name_reply(&mut self, bytes: &[u8]) -> Outcome {
        let padding = match self.no_zeroes {
            true => 0,
            false => EXPORT_NAME_PADDING_BYTES,
        };
        let length = 10 + padding;
        let Some(data) = bytes.get(..length) else {
            return Ok((0, None));
        };
        let mut fields = Fields::new(data);
        let (Some(size_bytes), Some(flags)) = (fields.u64(), fields.u16()) else {
            return Ok((0, None));
        };
        self.info = Some(ExportInfo::new(size_bytes, flags));
        Ok((length, Some(self.agree()?)))
    }
}

fn no_tls(message: &str) -> ClientError {
    let message = match message.trim() {
        "" => "STARTTLS is refused",
        message => message,
    };
    ClientError::Refused(format!("it offers no TLS ({message})"))
}

fn refused(kind: u32, message: &[u8]) -> ClientError {
    let message = String::from_utf8_lossy(message);
    let message = message.trim();
    let number = kind & !reply::ERROR_BIT;
    if kind == reply::ERR_POLICY && message == reply::HELD {
        return ClientError::Held(message.to_owned());
    }
    ClientError::Refused(match (number, message) {
        (6, "") => "no such export".to_owned(),
        (5, _) => "it demands TLS: use nbds: in place of nbd:".to_owned(),
        (_, "") => format!("error {number}"),
        (_, message) => message.to_owned(),
    })
}
