//! What holds for a device of either driver: whose it is, that its record and link are not replaced, and that
//! it ends only while nothing uses it.

use super::node::Node;
use super::record::{Places, Record};
use crate::control::{AttachOptions, Driver, Refusal};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::RangeInclusive;

/// The smallest logical block of a block device, and the largest on every machine: a page.
const BLOCK_BYTES: RangeInclusive<u32> = 512..=4096;

/// What the kernel shows of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    /// There is no such device yet.
    Missing,
    /// It is free.
    Idle,
    /// It has this identifier and no block device: it was not started, or is stopped. Only ublk has such.
    #[cfg_attr(not(feature = "ublk"), allow(dead_code))]
    Dead(String),
    /// It has a server: ours if the identifier is ours. Kernels before 5.14 show none of their NBD client.
    Connected(Option<String>),
}

/// The devices of one driver of the kernel, by their numbers, or a model of it.
pub(super) trait Devices: Send {
    fn driver(&self) -> Driver;

    fn seen(&self, device: u32) -> Seen;

    /// All devices, in the order of their numbers.
    fn shown(&self) -> Vec<(u32, Seen)>;

    /// Whether nothing will make a block device of a dead device any more.
    fn is_abandoned(&self, _device: u32) -> bool {
        false
    }

    /// Ends a device; what is in flight fails. `held` is closed as soon as nothing can be mounted any more.
    fn disconnect(&self, device: u32, held: Option<File>) -> io::Result<()>;

    /// Opens a device so that nothing can mount it or use it exclusively; `ResourceBusy` if something does.
    fn hold(&self, device: u32) -> io::Result<Option<File>> {
        Node::new(self.driver(), device).hold().map(Some)
    }

    /// Who uses a device, for people: mounts, swap space, other block devices. Empty if that is not known.
    fn users(&self, device: u32) -> Vec<String> {
        Node::new(self.driver(), device).users()
    }
}

/// What precedes the end of a device.
#[derive(Clone, Copy)]
pub(super) enum Before<'a> {
    /// Its cache is written out, which may take long. An error of the function then leaves the device as it
    /// is.
    Flush(&'a dyn Fn() -> Result<(), Refusal>),
    /// There is no daemon that would answer a flush.
    Nothing,
}

/// Detaches the device of a record, unless it is in use.
pub(super) fn end_device(
    devices: &(impl Devices + ?Sized),
    places: &Places,
    record: &Record,
    before: Before<'_>,
) -> Result<(), Refusal> {
    match is_connected(devices, places, record) {
        true => end_connected(devices, places, record.node(), before),
        false => clear_away(devices, places, record),
    }
}

/// Detaches a device of this array, unless it is in use.
fn end_connected(
    devices: &(impl Devices + ?Sized),
    places: &Places,
    node: Node,
    before: Before<'_>,
) -> Result<(), Refusal> {
    // Open until the end, so that nothing is mounted in between.
    let held = held(devices, node)?;
    if let Before::Flush(may_end) = before {
        let flushed = held.as_ref().map_or(Ok(()), File::sync_all);
        flushed.map_err(|error| {
            Refusal::new(format!("the device's cache cannot be written: {error}")).at(node.shown())
        })?;
        may_end()?;
    }
    let ended = devices.disconnect(node.number, held);
    ended.map_err(|error| kernel_refusal(&error, node))?;
    forget(places, node)
}

/// Ends a device that was attached but for the last steps: nothing uses it yet. The record stays until the
/// device is gone, because only the record leads back to it. The result is why it is not attached.
pub(super) fn undo(
    devices: &(impl Devices + ?Sized),
    places: &Places,
    record: &Record,
    why: Refusal,
) -> Refusal {
    let node = record.node();
    let ended = devices.disconnect(node.number, None);
    let left = match ended {
        Err(error) if left_of(devices, places, record) != Left::Nothing => {
            kernel_refusal(&error, node)
        }
        _ => match forget(places, node) {
            Ok(()) => return why,
            Err(refusal) => refusal,
        },
    };
    Refusal::new(format!(
        "{}; and the device is not gone: {}",
        why.what, left.what
    ))
    .at(node.shown())
    .hint("detach it: restripe detach")
}

/// Opens the device exclusively.
fn held(devices: &(impl Devices + ?Sized), node: Node) -> Result<Option<File>, Refusal> {
    let path = node.shown();
    devices
        .hold(node.number)
        .map_err(|error| match error.kind() {
            ErrorKind::ResourceBusy => {
                let users = devices.users(node.number).join(", ");
                let users = if users.is_empty() { "in use" } else { &users };
                Refusal::new(format!("the device is busy: {users}"))
                    .at(&path)
                    .hint("unmount it, or end what uses it, first")
            }
            _ => Refusal::new(format!("the device cannot be opened: {error}")).at(&path),
        })
}

/// What the kernel has of the device of a record, which may be of an earlier boot.
#[derive(PartialEq, Eq)]
enum Left {
    Nothing,
    Dead,
    /// As far as the kernel shows it, for this record.
    Connected,
}

fn left_of(devices: &(impl Devices + ?Sized), places: &Places, record: &Record) -> Left {
    match devices.seen(record.device) {
        _ if record.boot != places.boot => Left::Nothing,
        Seen::Connected(None) => Left::Connected,
        Seen::Connected(Some(backend)) if backend == record.backend => Left::Connected,
        Seen::Dead(backend) if backend == record.backend => Left::Dead,
        _ => Left::Nothing,
    }
}

/// Whether the kernel still has the device of a record as a block device.
pub(super) fn is_connected(
    devices: &(impl Devices + ?Sized),
    places: &Places,
    record: &Record,
) -> bool {
    left_of(devices, places, record) == Left::Connected
}

/// Removes what is left of a device that is not connected any more: in the kernel, and then its record.
pub(super) fn clear_away(
    devices: &(impl Devices + ?Sized),
    places: &Places,
    record: &Record,
) -> Result<(), Refusal> {
    let node = record.node();
    if left_of(devices, places, record) == Left::Dead {
        let ended = devices.disconnect(node.number, None);
        ended.map_err(|error| kernel_refusal(&error, node))?;
    }
    forget(places, node)
}

/// Removes the record, and the link if it is that device's.
pub(super) fn forget(places: &Places, node: Node) -> Result<(), Refusal> {
    let cleared = places.clear(node);
    cleared.map_err(|error| Refusal::new(error.to_string()).at(places.link()))
}

/// Clears away a record whose device is not connected any more. The record of a device that is connected must
/// not be replaced: no daemon would find that device again.
pub(super) fn free_record(
    devices: &(impl Devices + ?Sized),
    places: &Places,
) -> Result<(), Refusal> {
    let Some(record) = places.read()? else {
        return Ok(());
    };
    match is_connected(devices, places, &record) {
        true => Err(
            Refusal::new("the array's device of before is still connected")
                .at(record.node().shown())
                .hint("detach that device first: restripe detach"),
        ),
        false => clear_away(devices, places, &record),
    }
}

/// Refuses if a device other than `own` has this array's identifier. It may be lost, with its record. Or
/// another daemon serves it, of a copy of the array: the kernel does not show whether a device's connections
/// live. So only a person may end it. A dead one that is abandoned is ended.
pub(super) fn no_other_device(
    devices: &(impl Devices + ?Sized),
    backend: &str,
    own: Option<u32>,
) -> Result<(), Refusal> {
    for (number, seen) in devices.shown() {
        let node = Node::new(devices.driver(), number);
        match seen {
            Seen::Connected(Some(other)) | Seen::Dead(other) if other != backend => {}
            _ if own == Some(number) => {}
            Seen::Dead(_) if devices.is_abandoned(number) => {
                let ended = devices.disconnect(number, None);
                ended.map_err(|error| kernel_refusal(&error, node))?;
            }
            Seen::Dead(_) | Seen::Connected(Some(_)) => return Err(other_device(node)),
            Seen::Missing | Seen::Idle | Seen::Connected(None) => {}
        }
    }
    Ok(())
}

fn other_device(node: Node) -> Refusal {
    let end = match node.driver {
        Driver::Nbd => format!("nbd-client -d {}", node.shown()),
        Driver::Ublk => format!("ublk del -n {}", node.number),
    };
    Refusal::new(
        "this device has the array's identifier, but its record is missing or cannot be read",
    )
    .at(node.shown())
    .hint(format!(
        "if a copy of the array is attached there, detach that; if not: umount, {end}"
    ))
}

/// The place of the link has nothing, or a link that leads nowhere.
pub(super) fn link_is_free(
    devices: &(impl Devices + ?Sized),
    places: &Places,
) -> Result<(), Refusal> {
    let Some(linked) = places.linked()? else {
        return Ok(());
    };
    let leads_to_one = match linked.driver == devices.driver() {
        true => matches!(devices.seen(linked.number), Seen::Connected(_)),
        false => linked.is_used(),
    };
    match leads_to_one {
        true => Err(
            Refusal::new(format!("leads to {}, which is connected", linked.shown()))
                .at(places.link())
                .hint("detach that device first: restripe detach"),
        ),
        false => Ok(()),
    }
}

pub(super) fn make_link(places: &Places, node: Node) -> Result<(), Refusal> {
    places.make_link(node).map_err(|error| {
        Refusal::new(format!("the link cannot be made: {error}")).at(places.link())
    })
}

/// The array of a device is served otherwise than when it was attached.
pub(super) fn other_array(record: &Record) -> Refusal {
    Refusal::new("the array is not what its device was attached to")
        .at(record.node().shown())
        .hint("serve it as before (--read-only, members that can flush), or detach the device")
}

/// A block size that a block device can have.
pub(super) fn check_block(options: &AttachOptions) -> Result<(), Refusal> {
    let bytes = options.block_bytes;
    match bytes.is_power_of_two() && BLOCK_BYTES.contains(&bytes) {
        true => Ok(()),
        false => Err(
            Refusal::new(format!("a block size of {bytes} is impossible"))
                .hint("use 512, 1024, 2048 or 4096"),
        ),
    }
}

/// An error of the kernel, for people.
pub(super) fn kernel_refusal(error: &io::Error, node: Node) -> Refusal {
    let path = node.shown();
    match error.kind() {
        ErrorKind::ResourceBusy | ErrorKind::AlreadyExists => {
            Refusal::new("the device is busy: it has another client")
                .at(path)
                .hint("leave the device out to use the first that is free")
        }
        ErrorKind::PermissionDenied => {
            Refusal::new("the kernel permits devices only to processes with CAP_SYS_ADMIN")
                .hint("serve the array as root")
        }
        _ => Refusal::new(format!("the kernel refused: {error}"))
            .at(path)
            .hint("the kernel's log (dmesg) has the reason"),
    }
}
