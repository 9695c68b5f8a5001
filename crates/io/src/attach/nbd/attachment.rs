//! An array as a block device of the kernel: how it is attached, found again after a restart, looked after,
//! and detached.
//!
//! | moment | kernel | record |
//! |---|---|---|
//! | [`Attachment::begin`] | `CONNECT` a free device as the array's | written before, link after |
//! | the daemon dies | all connections are dead; requests wait for the grace | stays |
//! | [`Attachment::resume`] | `RECONFIGURE` with new connections, if the identifier is ours | stays |
//! | [`Attachment::tend`] | `RECONFIGURE` what has died, and the size after a growth | stays |
//! | [`Attachment::end`] | `DISCONNECT`, unless the device is in use | removed after |
//!
//! A request that was in flight when its connection died is sent again, once its time-out has passed. It is
//! the same request, so doing it twice does no harm if nothing came between the two. Nothing does: the first
//! copy is dropped with its connection before the second is looked at (`Protocol::is_session`), or it has
//! begun and precedes the second in the engine's order of requests to a row.
//! And a daemon that was killed releases its members only after its last operation on them.

use super::dial::Dialer;
use super::kernel::{Kernel, Setup};
use crate::attach::hold::{
    Before, Seen, check_block, clear_away, end_device, free_record, is_connected, kernel_refusal,
    link_is_free, make_link, undo,
};
use crate::attach::node::Node;
use crate::attach::record::{Places, Record};
use crate::attach::served::Tended;
use crate::control::{AttachOptions, CONNECTIONS_MAX, Driver, Refusal};
use crate::nbd_wire::client::ExportInfo;
use crate::nbd_wire::transmission_flags::{
    CAN_MULTI_CONN, HAS_FLAGS, READ_ONLY, SEND_FLUSH, SEND_FUA, SEND_TRIM, SEND_WRITE_ZEROES,
};
use restripe_array::Uuid;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;

/// The flags that a kernel of today understands. It is given no others, so that a later version of this
/// program need not offer those.
const FLAGS_USED: u16 =
    HAS_FLAGS | READ_ONLY | SEND_FLUSH | SEND_FUA | SEND_TRIM | SEND_WRITE_ZEROES | CAN_MULTI_CONN;

/// A device that has this array.
pub(super) struct Attachment {
    pub record: Record,
    /// Bytes that the kernel knows of.
    size_bytes: u64,
}

/// The array that is to be attached.
pub(super) struct Subject<'a> {
    pub kernel: &'a dyn Kernel,
    pub dialer: &'a dyn Dialer,
    pub places: &'a Places,
    pub uuid: Uuid,
}

/// The identifier of an array's device in the kernel.
fn backend_of(uuid: Uuid) -> String {
    format!("restripe:{uuid}")
}

impl Subject<'_> {
    fn backend(&self) -> String {
        backend_of(self.uuid)
    }

    fn dial(&self, connections: usize, read_only: bool) -> Result<Dialed, Refusal> {
        let mut dialed = Dialed::default();
        for _ in 0..connections {
            let (socket, info) = self.dialer.dial(read_only).map_err(|error| {
                Refusal::new(format!("the array gives the kernel no connection: {error}"))
            })?;
            dialed.sockets.push(socket);
            dialed.info = Some(info);
        }
        Ok(dialed)
    }
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

impl Attachment {
    /// Attaches the array to `device`, or to the first free one.
    pub(super) fn begin(
        subject: &Subject<'_>,
        device: Option<u32>,
        options: AttachOptions,
    ) -> Result<Attachment, Refusal> {
        check(&options)?;
        free_record(subject.kernel, subject.places)?;
        no_other_device(&subject.kernel.shown(), subject.uuid, None)?;
        link_is_free(subject.kernel, subject.places)?;
        let dialed = subject.dial(usize::from(options.connections), options.read_only)?;
        let info = dialed.info.ok_or_else(|| Refusal::new("no connection"))?;
        let setup = Setup {
            size_bytes: info.size_bytes,
            block_bytes: options.block_bytes,
            flags: dialed.flags(options.read_only),
            timeout: options.timeout(),
            grace: options.grace(),
            backend: subject.backend(),
        };
        if info.block_minimum > options.block_bytes {
            let what = format!("the array takes no blocks below {}", info.block_minimum);
            return Err(Refusal::new(what).hint("use a larger --block-size"));
        }
        let chosen = connect(subject, device, options, &setup, &dialed.sockets)?;
        let attachment = Attachment {
            record: chosen,
            size_bytes: info.size_bytes,
        };
        match make_link(subject.places, attachment.record.node()) {
            Ok(()) => Ok(attachment),
            Err(why) => Err(undo(
                subject.kernel,
                subject.places,
                &attachment.record,
                why,
            )),
        }
    }

    /// The device that an earlier daemon of this array had, with new connections. `None` if it had none, or
    /// the kernel has ended it.
    pub(super) fn resume(subject: &Subject<'_>) -> Result<Option<Attachment>, Refusal> {
        let Some(record) = subject.places.read()? else {
            return Ok(None);
        };
        let node = record.node();
        if record.backend != subject.backend() {
            return Err(Refusal::new("another array of this name had a device")
                .at(node.shown())
                .hint("detach that device first"));
        }
        if !is_connected(subject.kernel, subject.places, &record) {
            clear_away(subject.kernel, subject.places, &record)?;
            return Ok(None);
        }
        let dialed = subject.dial(
            usize::from(record.options.connections),
            record.options.read_only,
        )?;
        let flags = dialed.flags(record.options.read_only);
        if record.flags & !flags != 0 || (record.flags ^ flags) & READ_ONLY != 0 {
            return Err(Refusal::new("the array is not what its device was attached to")
                .at(node.shown())
                .hint("serve it as before (--read-only, members that can flush), or detach the device"));
        }
        let backend = &record.backend;
        let reconnected = subject
            .kernel
            .reconnect(node.number, backend, &dialed.sockets);
        reconnected.map_err(|error| kernel_refusal(&error, node))?;
        // The link is a help; without it the device is as good.
        let _ = subject.places.make_link(node);
        let mut attachment = Attachment {
            record,
            size_bytes: 0,
        };
        attachment.resize(subject, dialed.info.map_or(0, |info| info.size_bytes))?;
        Ok(Some(attachment))
    }

    /// Replaces connections that have died, and passes a growth on. `size_bytes` is the array's.
    pub(super) fn tend(
        &mut self,
        subject: &Subject<'_>,
        size_bytes: u64,
    ) -> Result<Tended, Refusal> {
        let (node, options) = (self.record.node(), self.record.options);
        let wanted = usize::from(options.connections);
        let lacking = wanted.saturating_sub(subject.dialer.alive());
        if lacking > 0 {
            if !is_connected(subject.kernel, subject.places, &self.record) {
                clear_away(subject.kernel, subject.places, &self.record)?;
                return Ok(Tended::Gone);
            }
            let dialed = subject.dial(lacking, options.read_only)?;
            let backend = &self.record.backend;
            let reconnected = subject
                .kernel
                .reconnect(node.number, backend, &dialed.sockets);
            reconnected.map_err(|error| kernel_refusal(&error, node))?;
            return Ok(Tended::Reconnected(lacking));
        }
        if size_bytes != self.size_bytes && size_bytes > 0 {
            self.resize(subject, size_bytes)?;
            return Ok(Tended::Resized(size_bytes));
        }
        Ok(Tended::Well)
    }

    fn resize(&mut self, subject: &Subject<'_>, size_bytes: u64) -> Result<(), Refusal> {
        let (node, backend) = (self.record.node(), &self.record.backend);
        let resized = subject.kernel.resize(node.number, backend, size_bytes);
        resized.map_err(|error| kernel_refusal(&error, node))?;
        self.size_bytes = size_bytes;
        Ok(())
    }

    /// Detaches the device, unless it is in use.
    pub(super) fn end(
        &self,
        subject: &Subject<'_>,
        may_end: &dyn Fn() -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let before = Before::Flush(may_end);
        end_device(subject.kernel, subject.places, &self.record, before)
    }
}

/// Refuses if a device other than `own` has this array's identifier. It may be lost, with its record. Or
/// another daemon serves it, of a copy of the array: the kernel does not show whether a device's connections
/// live. So only a person may end it.
pub(super) fn no_other_device(
    shown: &[(u32, Seen)],
    uuid: Uuid,
    own: Option<u32>,
) -> Result<(), Refusal> {
    let ours = Seen::Connected(Some(backend_of(uuid)));
    let mut others = shown.iter();
    let other = others.find(|(device, seen)| Some(*device) != own && *seen == ours);
    other.map_or(Ok(()), |(device, _)| {
        let path = Node::new(Driver::Nbd, *device).shown();
        let what = "this device has the array's identifier, but its record is missing or cannot be read";
        let hint = format!(
            "if a copy of the array is attached there, detach that; if not: umount, nbd-client -d {path}"
        );
        Err(Refusal::new(what).at(path).hint(hint))
    })
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
    check_block(options)?;
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
