//! A device that this daemon serves: what is the same of it whichever driver has it.

use super::export::OwnExport;
use super::hold::{
    Before, Devices, check_block, clear_away, end_device, free_record, is_connected, link_is_free,
    no_other_device,
};
use super::record::{Places, Record};
use crate::control::{AttachOptions, Refusal};
use restripe_array::Uuid;
use std::io::{self, ErrorKind};

/// What a look after a device did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Tended {
    /// All is as it should be.
    Well,
    /// Connections that had died were replaced.
    Reconnected(usize),
    /// The array has this size now, and so has the device.
    Resized(u64),
    /// Something else has disconnected the device: it is not attached any more.
    Gone,
}

/// An array as a device of one driver.
pub(super) trait Attachment: Sized + Send + 'static {
    /// The driver's side, or a model of it.
    type Kernel: Devices + ?Sized;
    /// The daemon's side, or a model of it.
    type Server: ?Sized;

    /// The running kernel. `NotFound` if it is without the driver.
    fn open() -> io::Result<Box<Self::Kernel>>;

    /// An error of `open`, for people.
    fn no_kernel(error: &io::Error) -> Refusal;

    fn server(export: &OwnExport) -> &Self::Server;

    /// The identifier of an array's device in the kernel.
    fn backend(uuid: Uuid) -> String;

    /// Attaches the array to `device`, or to the first that is free.
    fn begin(
        subject: &Subject<'_, Self>,
        device: Option<u32>,
        options: AttachOptions,
    ) -> Result<Self, Refusal>;

    /// Takes over the device of an earlier daemon, which the kernel has.
    fn resume(subject: &Subject<'_, Self>, record: Record) -> Result<Self, Refusal>;

    /// Looks after the device. `size_bytes` is the array's, or 0.
    fn tend(&mut self, subject: &Subject<'_, Self>, size_bytes: u64) -> Result<Tended, Refusal>;

    fn record(&self) -> &Record;

    /// Whether the device can be ended by this daemon now.
    fn may_end(&self, _subject: &Subject<'_, Self>) -> Result<(), Refusal> {
        Ok(())
    }
}

/// The array that is attached, and the two sides of its device.
pub(super) struct Subject<'a, A: Attachment> {
    pub kernel: &'a A::Kernel,
    pub server: &'a A::Server,
    pub places: &'a Places,
    pub uuid: Uuid,
}

impl<A: Attachment> Subject<'_, A> {
    pub(super) fn begin(&self, device: Option<u32>, options: AttachOptions) -> Result<A, Refusal> {
        check_block(&options)?;
        free_record(self.kernel, self.places)?;
        no_other_device(self.kernel, &A::backend(self.uuid), None)?;
        link_is_free(self.kernel, self.places)?;
        A::begin(self, device, options)
    }

    /// The device that an earlier daemon of this array had. `None` if it had none, or the kernel ended it.
    pub(super) fn resume(&self) -> Result<Option<A>, Refusal> {
        let Some(record) = self.places.read()? else {
            return Ok(None);
        };
        let node = record.node();
        if record.backend != A::backend(self.uuid) {
            return Err(Refusal::new("another array of this name had a device")
                .at(node.shown())
                .hint("detach that device first"));
        }
        if self.is_gone(&record)? {
            return Ok(None);
        }
        let attachment = A::resume(self, record)?;
        // The link is a help; without it the device is as good.
        let _ = self.places.make_link(node);
        Ok(Some(attachment))
    }

    /// Whether the kernel has a record's device no more. What is left of it is cleared away.
    pub(super) fn is_gone(&self, record: &Record) -> Result<bool, Refusal> {
        match is_connected(self.kernel, self.places, record) {
            true => Ok(false),
            false => clear_away(self.kernel, self.places, record).map(|()| true),
        }
    }

    /// Detaches the device, unless it is in use.
    pub(super) fn end(
        &self,
        attachment: &A,
        may_end: &dyn Fn() -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        // The array may stop serving while the device is flushed.
        let may_end = || attachment.may_end(self).and_then(|()| may_end());
        attachment.may_end(self)?;
        let before = Before::Flush(&may_end);
        end_device(self.kernel, self.places, attachment.record(), before)
    }
}

/// A device that is served.
pub(super) trait Served: Send {
    fn record(&self) -> &Record;

    fn places(&self) -> &Places;

    /// Connections between kernel and daemon that live.
    fn connections(&self) -> usize;

    fn tend(&mut self, size_bytes: u64) -> Result<Tended, Refusal>;

    fn detach(&self, may_end: &dyn Fn() -> Result<(), Refusal>) -> Result<(), Refusal>;
}

struct Device<A: Attachment> {
    attachment: A,
    array: Array<A>,
}

impl<A: Attachment> Served for Device<A> {
    fn record(&self) -> &Record {
        self.attachment.record()
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
        self.array.subject().end(&self.attachment, may_end)
    }
}

/// An array, as its device is made of it.
struct Array<A: Attachment> {
    kernel: Box<A::Kernel>,
    export: OwnExport,
    places: Places,
    uuid: Uuid,
}

impl<A: Attachment> Array<A> {
    fn open(export: OwnExport, places: Places, uuid: Uuid) -> Result<Array<A>, Refusal> {
        Ok(Array {
            kernel: A::open().map_err(|error| A::no_kernel(&error))?,
            export,
            places,
            uuid,
        })
    }

    fn subject(&self) -> Subject<'_, A> {
        Subject {
            kernel: &self.kernel,
            server: A::server(&self.export),
            places: &self.places,
            uuid: self.uuid,
        }
    }
}

/// Attaches an array to the device of this number, or to the first that is free.
pub(super) fn attach<A: Attachment>(
    export: OwnExport,
    places: Places,
    uuid: Uuid,
    number: Option<u32>,
    options: AttachOptions,
) -> Result<Box<dyn Served>, Refusal> {
    let array = Array::<A>::open(export, places, uuid)?;
    let attachment = array.subject().begin(number, options)?;
    Ok(Box::new(Device { attachment, array }))
}

/// The device of the record, served by this daemon.
pub(super) fn resume<A: Attachment>(
    export: OwnExport,
    places: Places,
    uuid: Uuid,
) -> Result<Option<Box<dyn Served>>, Refusal> {
    let array = Array::<A>::open(export, places, uuid)?;
    let attachment = array.subject().resume()?;
    Ok(attachment.map(|attachment| -> Box<dyn Served> { Box::new(Device { attachment, array }) }))
}

/// The running kernel. `None`: it is without the driver, and so without such devices.
pub(super) fn kernel<A: Attachment>() -> Result<Option<Box<A::Kernel>>, Refusal> {
    match A::open() {
        Ok(kernel) => Ok(Some(kernel)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(A::no_kernel(&error)),
    }
}
