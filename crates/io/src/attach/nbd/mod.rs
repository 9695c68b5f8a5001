//! Arrays as devices of the kernel's NBD client.
//!
//! The daemon makes connections to its own export and gives their other ends to the kernel ([`dial`]) by
//! generic netlink ([`netlink`], [`kernel`]). [`attachment`] has what is done when.
//!
//! The messages are written here and not by a crate: they are 150 lines over `libc`, which is used anyway.
//! The crates for generic netlink (neli, netlink-packet-generic) would bring several more for three commands.

mod attachment;
mod dial;
mod kernel;
mod netlink;
#[cfg(test)]
mod tests;

use super::export::OwnExport;
use super::hold::Devices;
use super::record::{Places, Record};
use super::served::{Served, Tended};
use crate::control::{AttachOptions, Refusal};
use attachment::{Attachment, Subject};
use kernel::Linux;
use restripe_array::Uuid;
use std::io::{self, ErrorKind};

/// An array, as its device is made of it.
struct Array {
    kernel: Linux,
    export: OwnExport,
    places: Places,
    uuid: Uuid,
}

impl Array {
    fn open(export: OwnExport, places: Places, uuid: Uuid) -> Result<Array, Refusal> {
        Ok(Array {
            kernel: Linux::open().map_err(|error| no_kernel(&error))?,
            export,
            places,
            uuid,
        })
    }

    fn subject(&self) -> Subject<'_> {
        Subject {
            kernel: &self.kernel,
            dialer: &self.export,
            places: &self.places,
            uuid: self.uuid,
        }
    }
}

struct Device {
    attachment: Attachment,
    array: Array,
}

impl Served for Device {
    fn record(&self) -> &Record {
        &self.attachment.record
    }

    fn places(&self) -> &Places {
        &self.array.places
    }

    fn connections(&self) -> usize {
        self.array.export.connections()
    }

    fn tend(&mut self, size_bytes: u64) -> Result<Tended, Refusal> {
        self.attachment.tend(&self.array.subject(), size_bytes)
    }

    fn detach(&self, may_end: &dyn Fn() -> Result<(), Refusal>) -> Result<(), Refusal> {
        self.attachment.end(&self.array.subject(), may_end)
    }
}

/// Attaches an array to the device of this number, or to the first free one.
pub(super) fn attach(
    export: OwnExport,
    places: Places,
    uuid: Uuid,
    number: Option<u32>,
    options: AttachOptions,
) -> Result<Box<dyn Served>, Refusal> {
    let array = Array::open(export, places, uuid)?;
    let attachment = Attachment::begin(&array.subject(), number, options)?;
    Ok(Box::new(Device { attachment, array }))
}

/// The device of the record, with new connections.
pub(super) fn resume(
    export: OwnExport,
    places: Places,
    uuid: Uuid,
) -> Result<Option<Box<dyn Served>>, Refusal> {
    let array = Array::open(export, places, uuid)?;
    let attachment = Attachment::resume(&array.subject())?;
    Ok(attachment.map(|attachment| -> Box<dyn Served> { Box::new(Device { attachment, array }) }))
}

/// Refuses if a device other than `own` has this array's identifier: see [`attachment::no_other_device`].
pub(super) fn no_other_device(uuid: Uuid, own: Option<u32>) -> Result<(), Refusal> {
    attachment::no_other_device(&kernel::shown(), uuid, own)
}

/// The devices of this driver. `None`: the kernel has none of its devices.
pub(super) fn devices() -> Result<Option<Box<dyn Devices>>, Refusal> {
    match Linux::open() {
        Ok(kernel) => Ok(Some(Box::new(kernel))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(no_kernel(&error)),
    }
}

fn no_kernel(error: &io::Error) -> Refusal {
    match error.kind() {
        ErrorKind::NotFound => Refusal::new("the kernel's NBD client is not loaded")
            .hint("load it: modprobe nbd (a kernel without the module cannot attach)"),
        _ => Refusal::new(format!("the kernel's netlink: {error}")),
    }
}
