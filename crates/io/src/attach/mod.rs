//! Arrays as block devices of this machine's kernel, through its NBD client.
//!
//! The daemon makes connections to its own export and gives their other ends to the kernel ([`dial`]) by
//! generic netlink ([`netlink`], [`kernel`]). The device belongs to the kernel: it outlives the daemon, and
//! its requests wait for the next one. [`attachment`] has what is done when, [`record`] what is noted for the
//! next daemon.
//!
//! The messages are written here and not by a crate: they are 150 lines over `libc`, which is used anyway.
//! The crates for generic netlink (neli, netlink-packet-generic) would bring several more for three commands.

mod attachment;
mod dial;
mod kernel;
mod netlink;
mod record;
#[cfg(test)]
mod tests;

pub use attachment::Tended;
pub use dial::OwnExport;

use crate::control::{AttachOptions, AttachedView, Refusal};
use attachment::{Attachment, Subject};
use dial::Dialer;
use kernel::{Linux, device_path, number_of};
use record::Places;
use restripe_array::Uuid;
use std::io::{self, ErrorKind};

/// The device of an array that this daemon serves.
pub struct Device {
    attachment: Attachment,
    array: Array,
}

/// The array, as its device is made of it.
struct Array {
    kernel: Linux,
    export: OwnExport,
    places: Places,
    uuid: Uuid,
}

impl Array {
    fn subject(&self) -> Subject<'_> {
        Subject {
            kernel: &self.kernel,
            dialer: &self.export,
            places: &self.places,
            uuid: self.uuid,
        }
    }
}

impl Device {
    /// Attaches the array `name` to the device at this path, or to the first free one.
    pub fn attach(
        export: OwnExport,
        name: &str,
        uuid: Uuid,
        path: Option<&str>,
        options: AttachOptions,
    ) -> Result<Device, Refusal> {
        let number = path.map(device_number).transpose()?;
        let array = Array {
            kernel: Linux::open().map_err(|error| no_kernel(&error))?,
            export,
            places: Places::of(name),
            uuid,
        };
        let attachment = Attachment::begin(&array.subject(), number, options)?;
        Ok(Device { attachment, array })
    }

    /// The device that an earlier daemon of this array had. `None` if it had none that the kernel still has.
    pub fn resume(export: OwnExport, name: &str, uuid: Uuid) -> Result<Option<Device>, Refusal> {
        let places = Places::of(name);
        let Some(kernel) = kernel_with_device(&places)? else {
            return Ok(None);
        };
        let array = Array {
            kernel,
            export,
            places,
            uuid,
        };
        let attachment = Attachment::resume(&array.subject())?;
        Ok(attachment.map(|attachment| Device { attachment, array }))
    }

    /// Replaces connections that have died, and passes a growth on; to be called often.
    pub fn tend(&mut self, size_bytes: u64) -> Result<Tended, Refusal> {
        self.attachment.tend(&self.array.subject(), size_bytes)
    }

    /// Writes out the device's cache and gives the device back. An error, and no effect, while it is in use.
    pub fn detach(&self) -> Result<(), Refusal> {
        self.attachment.end(&self.array.kernel, &self.array.places)
    }

    pub fn path(&self) -> String {
        device_path(self.attachment.record.device)
            .display()
            .to_string()
    }

    pub fn options(&self) -> AttachOptions {
        self.attachment.record.options
    }

    pub fn view(&self) -> AttachedView {
        let options = self.options();
        AttachedView {
            device: self.path(),
            link: self.array.places.link(),
            connections: self.array.export.alive(),
            read_only: options.read_only,
            block_bytes: options.block_bytes,
            timeout_seconds: options.timeout_seconds,
            grace_seconds: options.grace_seconds,
            trouble: None,
        }
    }
}

/// What [`Device::resume`] could not reconnect, and why.
pub fn not_connected(name: &str, why: String) -> AttachedView {
    let places = Places::of(name);
    let record = places.read().ok().flatten();
    let linked = || places.linked().ok().flatten();
    let device = record.as_ref().map(|record| record.device).or_else(linked);
    let unknown = || "an unknown device".to_owned();
    let path = |device| device_path(device).display().to_string();
    let options = record.map(|record| record.options);
    AttachedView {
        device: device.map_or_else(unknown, path),
        link: places.link(),
        connections: 0,
        read_only: options.is_some_and(|options| options.read_only),
        block_bytes: options.map_or(0, |options| options.block_bytes),
        timeout_seconds: options.map_or(0, |options| options.timeout_seconds),
        grace_seconds: options.map_or(0, |options| options.grace_seconds),
        trouble: Some(why),
    }
}

/// Detaches the device of an array to which no daemon has connected it; its path. `None`: it has no device.
pub fn detach_unserved(name: &str) -> Result<Option<String>, Refusal> {
    let places = Places::of(name);
    let Some(kernel) = kernel_with_device(&places)? else {
        return Ok(None);
    };
    let record = attachment::end_unserved(&kernel, &places)?;
    Ok(record.map(|record| device_path(record.device).display().to_string()))
}

/// The same of an array that this daemon serves. If the record is lost or cannot be read, the device is known
/// by the array's identifier, which the kernel shows from Linux 5.14 on.
pub fn detach_left(name: &str, uuid: Uuid) -> Result<Option<String>, Refusal> {
    let recorded = detach_unserved(name);
    let kernel = Linux::open();
    let (Ok(None) | Err(_), Ok(kernel)) = (&recorded, &kernel) else {
        return recorded;
    };
    match attachment::end_lost(kernel, &Places::of(name), uuid)? {
        Some(device) => Ok(Some(device_path(device).display().to_string())),
        None => recorded,
    }
}

/// The array whose device this is.
pub fn name_of_device(path: &str) -> Result<Option<String>, Refusal> {
    let number = device_number(path)?;
    let mut unreadable = Ok(None);
    for name in Places::names() {
        match Places::of(&name).read() {
            Ok(Some(record)) if record.device == number => return Ok(Some(name)),
            Ok(_) => {}
            // It could be that device's.
            Err(refusal) => unreadable = Err(refusal),
        }
    }
    unreadable
}

/// The number of the device at this path, which may be a link to it.
pub fn device_number(path: &str) -> Result<u32, Refusal> {
    let found = std::fs::canonicalize(path);
    let found = found.unwrap_or_else(|_| path.into());
    let number = found.strip_prefix("/dev").ok();
    let number = number.and_then(|name| number_of(name.to_str()?));
    number.ok_or_else(|| {
        Refusal::new("is not a device of the kernel's NBD client")
            .at(path)
            .hint("use /dev/nbdN, or leave it out")
    })
}

/// The kernel, if there is a record of a device in it. A kernel without the module has no devices.
fn kernel_with_device(places: &Places) -> Result<Option<Linux>, Refusal> {
    let Some(record) = places.read()? else {
        return Ok(None);
    };
    match Linux::open() {
        Ok(kernel) => Ok(Some(kernel)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            attachment::forget(places, record.device).map(|()| None)
        }
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
