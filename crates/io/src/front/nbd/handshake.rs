//! The handshake: which export, which kind of replies, which metadata contexts.

use super::Step;
use super::block_status::Context;
use super::guard::Guard;
use super::transmission::{Attachment, Client, Transmission};
use crate::front::{Export, Link, Then};
use crate::nbd_wire::option::{
    ContextQuery, EXPORT_NAME_PADDING_BYTES, InfoQuery, OPTION_BYTES, OptionHeader, code,
    encode_reply, info, name_from, reply,
};
use crate::nbd_wire::{handshake_flags, transmission_flags, wire_length};
use crate::tls::names::PeerNames;
use std::sync::Arc;

/// Longest data of an option that is read; that of longer ones is skipped and refused.
pub const OPTION_BYTES_MAX: u32 = 32 * 1024;
/// Most options of one handshake.
pub const OPTIONS_MAX: u32 = 128;

pub(super) struct Handshake {
    client: Client,
    stage: Stage,
    /// `None`: there is no TLS, and every export is for all.
    guard: Option<Arc<Guard>>,
    /// TLS has begun.
    secure: bool,
    peer: Option<PeerNames>,
    client_flags: u32,
    structured: bool,
    /// The contexts that were last asked for, and of which export.
    contexts: Option<(usize, Vec<Context>)>,
    options_seen: u32,
    /// Replies are gathered here, and sent once an option is dealt with.
    out: Vec<u8>,
}

enum Stage {
    /// The client's flags are due.
    Flags,
    /// An option is due.
    Options,
    /// The data of an option that is too long is due; then it is refused.
    Skip { option: u32, left: u32 },
}

impl Handshake {
    pub(super) fn new(client: Client, guard: Option<Arc<Guard>>) -> Handshake {
        Handshake {
            client,
            stage: Stage::Flags,
            guard,
            secure: false,
            peer: None,
            client_flags: 0,
            structured: false,
            contexts: None,
            options_seen: 0,
            out: Vec::new(),
        }
    }

    pub(super) fn step(&mut self, bytes: &[u8], link: &mut dyn Link) -> Step {
        match &mut self.stage {
            Stage::Flags => self.flags(bytes),
            Stage::Options => self.option(bytes, link),
            Stage::Skip { option, left } => {
                let option = *option;
                let (used, rest) = skip(bytes, *left);
                *left = rest;
                if rest > 0 {
                    return Step::Stop(used, Then::More);
                }
                self.stage = Stage::Options;
                match self.waits_for_tls() {
                    true => self.demand_tls(option),
                    false => self.refuse(option, reply::ERR_TOO_BIG, "the option is too long"),
                }
                self.flush(link);
                Step::Went(used)
            }
        }
    }

    fn flags(&mut self, bytes: &[u8]) -> Step {
        let Some(flags) = bytes.first_chunk::<4>() else {
            return Step::Stop(0, Then::More);
        };
        let flags = u32::from_be_bytes(*flags);
        let known = handshake_flags::CLIENT_FIXED_NEWSTYLE | handshake_flags::CLIENT_NO_ZEROES;
        if flags & !known != 0 {
            return Step::Stop(4, Then::Abort);
        }
        self.client_flags = flags;
        self.stage = Stage::Options;
        Step::Went(4)
    }

    fn client_has(&self, flag: u32) -> bool {
        self.client_flags & flag != 0
    }

    fn option(&mut self, bytes: &[u8], link: &mut dyn Link) -> Step {
        if link.full() {
            return Step::Stop(0, Then::Hold);
        }
        let Some((header, rest)) = bytes.split_first_chunk::<OPTION_BYTES>() else {
            return Step::Stop(0, Then::More);
        };
        let Some(header) = OptionHeader::decode(header) else {
            return Step::Stop(OPTION_BYTES, Then::Abort);
        };
        // A client of the time before fixed newstyle knows no replies to options.
        let replies_known = self.client_has(handshake_flags::CLIENT_FIXED_NEWSTYLE);
        if header.code != code::EXPORT_NAME && !replies_known {
            return Step::Stop(OPTION_BYTES, Then::Abort);
        }
        if header.bytes > OPTION_BYTES_MAX {
            return self.oversize(&header);
        }
        let Some(data) = rest.get(..header.bytes as usize) else {
            return Step::Stop(0, Then::More);
        };
        if !self.count_option() {
            return Step::Stop(OPTION_BYTES, Then::Abort);
        }
        let used = OPTION_BYTES + data.len();
        let step = self.dispatch(header.code, data, used, link);
        self.flush(link);
        step
    }

    fn count_option(&mut self) -> bool {
        self.options_seen += 1;
        self.options_seen <= OPTIONS_MAX
    }

    fn flush(&mut self, link: &mut dyn Link) {
        if !self.out.is_empty() {
            link.send(&self.out);
            self.out.clear();
        }
    }

    fn oversize(&mut self, header: &OptionHeader) -> Step {
        if !self.count_option() || header.code == code::EXPORT_NAME {
            return Step::Stop(OPTION_BYTES, Then::Abort);
        }
        self.stage = Stage::Skip {
            option: header.code,
            left: header.bytes,
        };
        Step::Went(OPTION_BYTES)
    }

    /// Nothing is said of any export before TLS.
    fn waits_for_tls(&self) -> bool {
        !self.secure && self.guard.as_ref().is_some_and(|guard| guard.required)
    }

    fn demand_tls(&mut self, option: u32) {
        self.refuse(option, reply::ERR_TLS_REQD, "the server demands TLS");
    }

    /// TLS is there. Whatever was agreed on before does not count.
    pub(super) fn secured(&mut self, peer: Option<PeerNames>) {
        self.peer = peer;
    }

    fn start_tls(&mut self, data: &[u8], used: usize, link: &mut dyn Link) -> Step {
        let option = code::STARTTLS;
        let refusal = match &self.guard {
            _ if !data.is_empty() => (reply::ERR_INVALID, "STARTTLS takes no data"),
            _ if self.secure => (reply::ERR_INVALID, "TLS has begun already"),
            None => (reply::ERR_UNSUP, "TLS is not supported"),
            Some(guard) => {
                let channel = guard.tls.begin();
                self.reply(option, reply::ACK, &[]);
                self.flush(link);
                link.secure(channel);
                (self.structured, self.contexts, self.secure) = (false, None, true);
                return Step::Stop(used, Then::Secure);
            }
        };
        self.refuse(option, refusal.0, refusal.1);
        Step::Went(used)
    }

    fn dispatch(&mut self, option: u32, data: &[u8], used: usize, link: &mut dyn Link) -> Step {
        if self.waits_for_tls() && !matches!(option, code::ABORT | code::STARTTLS) {
            if option == code::EXPORT_NAME {
                return Step::Stop(used, Then::Abort);
            }
            self.demand_tls(option);
            return Step::Went(used);
        }
        match option {
            code::EXPORT_NAME => return self.export_name(data, used, link),
            code::GO => return self.go(data, used, link),
            code::ABORT => {
                self.reply(option, reply::ACK, &[]);
                return Step::Stop(used, Then::Finish);
            }
            code::INFO => {
                self.info(option, data, link);
            }
            code::LIST => self.list(data, link),
            code::STRUCTURED_REPLY => self.structured_reply(data),
            code::LIST_META_CONTEXT => self.list_contexts(data, link),
            code::SET_META_CONTEXT => self.set_contexts(data, link),
            code::STARTTLS => return self.start_tls(data, used, link),
            _ => self.refuse(option, reply::ERR_UNSUP, "unknown option"),
        }
        Step::Went(used)
    }

    fn reply(&mut self, option: u32, kind: u32, data: &[&[u8]]) {
        encode_reply(option, kind, data, &mut self.out);
    }

    fn refuse(&mut self, option: u32, kind: u32, message: &str) {
        self.reply(option, kind, &[message.as_bytes()]);
    }

    // --------------------------------------------------------------------------------------- choosing an export

    /// The old way in: no errors can be told, so whatever is wrong ends the connection.
    fn export_name(&mut self, data: &[u8], used: usize, link: &mut dyn Link) -> Step {
        let found = name_from(data).and_then(|name| find(name, link));
        let found = found.filter(|(_, export)| self.refusal(export, link).is_none());
        let Some((index, export)) = found.filter(|(_, export)| export.serving && !export.busy)
        else {
            return Step::Stop(used, Then::Abort);
        };
        let flags = offered(&export, self.structured);
        self.out.extend_from_slice(&export.size_bytes.to_be_bytes());
        self.out.extend_from_slice(&flags.to_be_bytes());
        if !self.client_has(handshake_flags::CLIENT_NO_ZEROES) {
            self.out.extend_from_slice(&[0; EXPORT_NAME_PADDING_BYTES]);
        }
        Step::Attached(used, Box::new(self.attach(index, &export, link)))
    }

    fn go(&mut self, data: &[u8], used: usize, link: &mut dyn Link) -> Step {
        match self.info(code::GO, data, link) {
            Some((index, export)) => {
                Step::Attached(used, Box::new(self.attach(index, &export, link)))
            }
            None => Step::Went(used),
        }
    }

    fn attach(&mut self, index: usize, export: &Export, link: &mut dyn Link) -> Transmission {
        link.attach(index);
        let contexts = match self.contexts.take() {
            Some((of, contexts)) if of == index => contexts,
            _ => Vec::new(),
        };
        Transmission::new(Attachment {
            export: index,
            size_bytes: export.size_bytes,
            maximum_block: export.maximum_block,
            read_only: export.read_only || self.client == Client::Kernel { read_only: true },
            durable: export.durable,
            structured: self.structured,
            contexts,
            client: self.client,
        })
    }

    /// Answers `INFO` or `GO`; the export, if the answer is yes.
    fn info(&mut self, option: u32, data: &[u8], link: &dyn Link) -> Option<(usize, Export)> {
        let Some(query) = InfoQuery::decode(data) else {
            self.refuse(option, reply::ERR_INVALID, "malformed query");
            return None;
        };
        let (index, export) = self.serving(option, query.name, link)?;
        self.describe(option, &query, &export);
        self.reply(option, reply::ACK, &[]);
        Some((index, export))
    }

    fn describe(&mut self, option: u32, query: &InfoQuery, export: &Export) {
        let mut item = |kind: u16, data: &[&[u8]]| {
            let kind = kind.to_be_bytes();
            let parts: Vec<&[u8]> = std::iter::once(&kind[..])
                .chain(data.iter().copied())
                .collect();
            encode_reply(option, reply::INFO, &parts, &mut self.out);
        };
        let flags = offered(export, self.structured);
        let size = export.size_bytes.to_be_bytes();
        item(info::EXPORT, &[&size, &flags.to_be_bytes()]);
        if query.wants(info::NAME) || query.name != export.name {
            item(info::NAME, &[export.name.as_bytes()]);
        }
        if query.wants(info::DESCRIPTION) && !export.description.is_empty() {
            item(info::DESCRIPTION, &[export.description.as_bytes()]);
        }
        if query.wants(info::BLOCK_SIZE) {
            let [minimum, preferred, maximum] = block_sizes(export).map(u32::to_be_bytes);
            item(info::BLOCK_SIZE, &[&minimum, &preferred, &maximum]);
        }
    }

    /// The export of this name if clients can attach to it; otherwise the option is refused.
    fn serving(&mut self, option: u32, name: &str, link: &dyn Link) -> Option<(usize, Export)> {
        let refusal = match find(name, link) {
            Some((_, export)) if !self.admits(&export) => {
                let why = self.refusal(&export, link).unwrap_or_default();
                self.refuse(option, reply::ERR_POLICY, &why);
                return None;
            }
            Some((_, export)) if option == code::GO && export.busy => {
                self.refuse(option, reply::ERR_POLICY, reply::HELD);
                return None;
            }
            Some((index, export)) if export.serving => return Some((index, export)),
            Some(_) => "the array is not serving",
            None if name.is_empty() => "there is no default export: name one",
            None => "no such export",
        };
        self.refuse(option, reply::ERR_UNKNOWN, refusal);
        None
    }

    /// Whether the export is for this client.
    fn admits(&self, export: &Export) -> bool {
        let guard = self.guard.as_ref();
        guard.is_none_or(|guard| guard.admits(&export.name, self.peer.as_ref()))
    }

    /// Why the export is not for this client, which is logged.
    fn refusal(&self, export: &Export, link: &dyn Link) -> Option<String> {
        let guard = self.guard.as_ref().filter(|_| !self.admits(export))?;
        let why = not_for(self.peer.as_ref());
        guard
            .report
            .refused(link, &format!("{}: {why}", export.name));
        Some(why)
    }

    // ------------------------------------------------------------------------------------------- other options

    fn list(&mut self, data: &[u8], link: &dyn Link) {
        if !data.is_empty() {
            self.refuse(code::LIST, reply::ERR_INVALID, "LIST takes no data");
            return;
        }
        let exports = (0..link.exports()).filter_map(|index| link.export(index));
        for export in exports
            .filter(|export| self.admits(export))
            .collect::<Vec<_>>()
        {
            let length = wire_length(export.name.len()).to_be_bytes();
            let (name, description) = (&export.name, &export.description);
            let parts = [&length, name.as_bytes(), description.as_bytes()];
            self.reply(code::LIST, reply::SERVER, &parts);
        }
        self.reply(code::LIST, reply::ACK, &[]);
    }

    fn structured_reply(&mut self, data: &[u8]) {
        let option = code::STRUCTURED_REPLY;
        if data.is_empty() {
            self.structured = true;
            self.reply(option, reply::ACK, &[]);
        } else {
            self.refuse(option, reply::ERR_INVALID, "this option takes no data");
        }
    }

    fn list_contexts(&mut self, data: &[u8], link: &dyn Link) {
        let option = code::LIST_META_CONTEXT;
        let Some(query) = ContextQuery::decode(data) else {
            self.refuse(option, reply::ERR_INVALID, "malformed query");
            return;
        };
        if self.serving(option, query.name, link).is_none() {
            return;
        }
        for context in Context::ALL {
            let listed = query.queries.iter().any(|text| context.is_listed_by(text));
            if listed || query.queries.is_empty() {
                self.reply(option, reply::META_CONTEXT, &[&[0; 4], context.name()]);
            }
        }
        self.reply(option, reply::ACK, &[]);
    }

    /// Replaces the contexts that were chosen before, also when it fails.
    fn set_contexts(&mut self, data: &[u8], link: &dyn Link) {
        let option = code::SET_META_CONTEXT;
        self.contexts = None;
        let query = ContextQuery::decode(data).filter(|_| self.structured);
        let Some(query) = query else {
            let why = if self.structured {
                "malformed query"
            } else {
                "structured replies come first"
            };
            self.refuse(option, reply::ERR_INVALID, why);
            return;
        };
        let Some((index, _)) = self.serving(option, query.name, link) else {
            return;
        };
        let chosen: Vec<Context> = Context::ALL
            .into_iter()
            .filter(|context| query.queries.contains(&context.name()))
            .collect();
        for context in &chosen {
            let id = context.id().to_be_bytes();
            self.reply(option, reply::META_CONTEXT, &[&id, context.name()]);
        }
        self.reply(option, reply::ACK, &[]);
        self.contexts = Some((index, chosen));
    }
}

fn not_for(peer: Option<&PeerNames>) -> String {
    match peer {
        Some(peer) => format!("this export's list of clients does not have {peer}"),
        None => "this export is for clients with a certificate".to_owned(),
    }
}

/// How much of `left` bytes to skip is in `bytes`, and how much is then left.
pub(super) fn skip(bytes: &[u8], left: u32) -> (usize, u32) {
    let here = u32::try_from(bytes.len()).unwrap_or(u32::MAX).min(left);
    (here as usize, left - here)
}

/// The export of this name. The empty name means the only export, if there is but one for all comers.
fn find(name: &str, link: &dyn Link) -> Option<(usize, Export)> {
    let exports = || (0..link.exports()).filter_map(|index| Some((index, link.export(index)?)));
    let named = exports().find(|(_, export)| export.name == name);
    if named.is_none() && name.is_empty() {
        let mut for_all = exports().filter(|(_, export)| !export.exclusive);
        return for_all.next().filter(|_| for_all.next().is_none());
    }
    named
}

/// What an export offers. All connections go through one engine, whose flush covers every write that was replied to,
/// on whichever connection: hence `CAN_MULTI_CONN`, where there may be several.
fn offered(export: &Export, structured: bool) -> u16 {
    use transmission_flags::*;
    let mut flags = HAS_FLAGS | SEND_CACHE;
    if export.durable {
        flags |= SEND_FLUSH | SEND_FUA;
    }
    if !export.exclusive {
        flags |= CAN_MULTI_CONN;
    }
    if export.read_only {
        flags |= READ_ONLY;
    } else {
        flags |= SEND_TRIM | SEND_WRITE_ZEROES | SEND_FAST_ZERO;
    }
    if structured {
        flags |= SEND_DF;
    }
    flags
}

/// Smallest, preferred and largest block. Any byte may be addressed; the preferred size must be a power of two.
fn block_sizes(export: &Export) -> [u32; 3] {
    let preferred = export.preferred_block;
    let preferred = if preferred.is_power_of_two() {
        preferred.clamp(4096, export.maximum_block)
    } else {
        4096
    };
    [export.minimum_block, preferred, export.maximum_block]
}
