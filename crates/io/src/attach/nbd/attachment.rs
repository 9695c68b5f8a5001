//! An array as a block device of the kernel: how it is attached, found again after a restart, looked after,
//! and detached.
//!
//! | moment | kernel | record |
//! |---|---|---|
//! | begin | `CONNECT` a free device as the array's | written before, link after |
//! | the daemon dies | all connections are dead; requests wait for the grace | stays |
//! | resume | `RECONFIGURE` with new connections, if the identifier is ours | stays |
//! | tend | `RECONFIGURE` what has died, and the size after a growth | stays |
//! | end | `DISCONNECT`, unless the device is in use | removed after |
//!
//! A request that was in flight when its connection died is sent again, once its time-out has passed. It is
//! the same request, so doing it twice does no harm if nothing came between the two. Nothing does: the first
//! copy is dropped with its connection before the second is looked at (`Protocol::is_session`), or it has
//! begun and precedes the second in the engine's order of requests to a row.
//! And a daemon that was killed releases its members only after its last operation on them.

use super::dial::Dialer;
use super::kernel::{Kernel, Linux, Setup};
use crate::attach::export::OwnExport;
use crate::attach::hold::{Seen, is_connected, kernel_refusal, make_link, other_array, undo};
use crate::attach::record::Record;
use crate::attach::served::{self, Tended};
use crate::control::{AttachOptions, CONNECTIONS_MAX, Refusal};
use crate::nbd_wire::client::ExportInfo;
use crate::nbd_wire::transmission_flags::{
    CAN_MULTI_CONN, HAS_FLAGS, READ_ONLY, SEND_FLUSH, SEND_FUA, SEND_TRIM, SEND_WRITE_ZEROES,
};
use restripe_array::Uuid;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

/// The flags that a kernel of today understands. It is given no others, so that a later version of this
/// program need not offer those.
const FLAGS_USED: u16 =
    HAS_FLAGS | READ_ONLY | SEND_FLUSH | SEND_FUA | SEND_TRIM | SEND_WRITE_ZEROES | CAN_MULTI_CONN;

/// A device that has this array.
pub(crate) struct Attachment {
    pub record: Record,
    /// Bytes that the kernel knows of.
    size_bytes: u64,
}

type Subject<'a> = served::Subject<'a, Attachment>;

fn dial(subject: &Subject<'_>, connections: usize, read_only: bool) -> Result<Dialed, Refusal> {
    let mut dialed = Dialed::default();
    for _ in 0..connections {
        let (socket, info) = subject.server.dial(read_only).map_err(|error| {
            Refusal::new(format!("the array gives the kernel no connection: {error}"))
        })?;
        dialed.sockets.push(socket);
        dialed.info = Some(info);
    }
    Ok(dialed)
}

#[derive(Default)]
struct Dialed {
    sockets: Vec<OwnedFd>,
    info: Option<ExportInfo>,
}

impl Dialed {
    fn flags(&self, read_only: bool) -> u16 {
        let flags = self.info.map_or(0, |info| info.flags) & FLAGS_USED;
        if read_only { flags | READ_ONLY } else { flags }
    }
}

impl served::Attachment for Attachment {
    type Kernel = dyn Kernel;
    type Server = dyn Dialer;

    fn open() -> io::Result<Box<dyn Kernel>> {
        Ok(Box::new(Linux::open()?))
    }

    fn no_kernel(error: &io::Error) -> Refusal {
        match error.kind() {
            ErrorKind::NotFound => Refusal::new("the kernel's NBD client is not loaded")
                .hint("load it: modprobe nbd (a kernel without the module cannot attach)"),
            _ => Refusal::new(format!("the kernel's netlink: {error}")),
        }
    }

    fn server(export: &OwnExport) -> &Self::Server {
        export
    }

    fn backend(uuid: Uuid) -> String {
        format!("restripe:{uuid}")
    }

    fn begin(
        subject: &Subject<'_>,
        device: Option<u32>,
        options: AttachOptions,
    ) -> Result<Attachment, Refusal> {
        check(&options)?;
        let dialed = dial(subject, usize::from(options.connections), options.read_only)?;
        let info = dialed.info.ok_or_else(|| Refusal::new("no connection"))?;
        let setup = Setup {
            size_bytes: info.size_bytes,
            block_bytes: options.block_bytes,
            flags: dialed.flags(options.read_only),
            timeout: options.timeout(),
            grace: options.grace(),
            backend: Attachment::backend(subject.uuid),
        };
        if info.block_minimum > options.block_bytes {
            let what = format!("the array takes no blocks below {}", info.block_minimum);
            return Err(Refusal::new(what).hint("use a larger --block-size"));
        }
        let record = connect(subject, device, options, &setup, &dialed.sockets)?;
        match make_link(subject.places, record.node()) {
            Ok(()) => Ok(Attachment {
                record,
                size_bytes: info.size_bytes,
            }),
            Err(why) => Err(undo(subject.kernel, subject.places, &record, why)),
        }
    }

    fn resume(subject: &Subject<'_>, record: Record) -> Result<Attachment, Refusal> {
        let AttachOptions {
            connections,
            read_only,
            ..
        } = record.options;
        let dialed = dial(subject, usize::from(connections), read_only)?;
        let flags = dialed.flags(read_only);
        if record.flags & !flags != 0 || (record.flags ^ flags) & READ_ONLY != 0 {
            return Err(other_array(&record));
        }
        let mut attachment = Attachment {
            record,
            size_bytes: 0,
        };
        attachment.reconnect(subject, &dialed)?;
        attachment.resize(subject, dialed.info.map_or(0, |info| info.size_bytes))?;
        Ok(attachment)
    }

    /// Replaces connections that have died, and passes a growth on.
    fn tend(&mut self, subject: &Subject<'_>, size_bytes: u64) -> Result<Tended, Refusal> {
        let options = self.record.options;
        let wanted = usize::from(options.connections);
        let lacking = wanted.saturating_sub(subject.server.alive());
        if lacking > 0 {
            if subject.is_gone(&self.record)? {
                return Ok(Tended::Gone);
            }
            self.reconnect(subject, &dial(subject, lacking, options.read_only)?)?;
            return Ok(Tended::Reconnected(lacking));
        }
        if size_bytes != self.size_bytes && size_bytes > 0 {
            self.resize(subject, size_bytes)?;
            return Ok(Tended::Resized(size_bytes));
        }
        Ok(Tended::Well)
    }

    fn record(&self) -> &Record {
        &self.record
    }
}

impl Attachment {
    fn reconnect(&self, subject: &Subject<'_>, dialed: &Dialed) -> Result<(), Refusal> {
        let (node, backend) = (self.record.node(), &self.record.backend);
        let kernel = subject.kernel;
        let reconnected = kernel.reconnect(node.number, backend, &dialed.sockets);
        reconnected.map_err(|error| kernel_refusal(&error, node))
    }

    fn resize(&mut self, subject: &Subject<'_>, size_bytes: u64) -> Result<(), Refusal> {
        let (node, backend) = (self.record.node(), &self.record.backend);
        let resized = subject.kernel.resize(node.number, backend, size_bytes);
        resized.map_err(|error| kernel_refusal(&error, node))?;
        self.size_bytes = size_bytes;
        Ok(())
    }
}

/// Longest time-out and grace. The kernel counts them in 32 bits of a clock of up to 1000 Hz, and longer ones
/// would become short.
const WAIT_SECONDS_MAX: u64 = 7 * 24 * 3600;

/// Options come from clients of the control socket.
fn check(options: &AttachOptions) -> Result<(), Refusal> {
    let refused = |what: String, hint: String| Err(Refusal::new(what).hint(hint));
    if !(1..=CONNECTIONS_MAX).contains(&options.connections) {
        let what = format!("{} connections are impossible", options.connections);
        return refused(what, format!("use 1 to {CONNECTIONS_MAX}"));
    }
    if options.timeout_seconds == 0 || options.grace_seconds == 0 {
        let what = "the time-out and the grace are whole seconds, at least one".to_owned();
        return refused(what, "use a time such as 30s".into());
    }
    if options.timeout_seconds.max(options.grace_seconds) > WAIT_SECONDS_MAX {
        let what = "the time-out and the grace are at most a week".to_owned();
        return refused(what, "use a time such as 30s or 1h".into());
    }
    Ok(())
}

/// Connects `device`, or the first that is free; the record of it.
fn connect(
    subject: &Subject<'_>,
    device: Option<u32>,
    options: AttachOptions,
    setup: &Setup,
    sockets: &[OwnedFd],
) -> Result<Record, Refusal> {
    for candidate in candidates(subject.kernel, device) {
        let record = Record {
            device: candidate,
            boot: subject.places.boot.clone(),
            backend: setup.backend.clone(),
            flags: setup.flags,
            options,
        };
        let written = subject.places.write(&record);
        written.map_err(|error| Refusal::new(format!("the record of the device: {error}")))?;
        let error = match subject.kernel.connect(candidate, setup, sockets) {
            Ok(()) => return Ok(record),
            Err(error) => error,
        };
        let node = record.node();
        let is_answered = error.kind() != ErrorKind::WouldBlock;
        if is_answered || !is_connected(subject.kernel, subject.places, &record) {
            let _ = subject.places.clear(node);
        }
        // Another client was faster.
        if error.kind() != ErrorKind::ResourceBusy || device.is_some() {
            return Err(kernel_refusal(&error, node));
        }
    }
    Err(Refusal::new("all devices have clients").hint("detach one, or name a further /dev/nbdN"))
}

/// The device that is asked for; otherwise all that are free, and one that does not exist yet.
fn candidates(kernel: &dyn Kernel, device: Option<u32>) -> Vec<u32> {
    if let Some(device) = device {
        return vec![device];
    }
    let all = kernel.shown();
    let next = all.last().map_or(0, |(last, _)| last + 1);
    let free = |(device, seen)| (seen == Seen::Idle).then_some(device);
    all.into_iter().filter_map(free).chain([next]).collect()
}
