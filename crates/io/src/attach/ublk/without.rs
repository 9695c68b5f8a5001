//! The same in a build without ublk. A record of a device of ublk is kept: it may be mounted.

use super::export::OwnExport;
use super::hold::Devices;
use super::record::Record;
use super::served::{self, Subject, Tended};
use crate::control::{AttachOptions, Refusal};
use restripe_array::Uuid;
use std::io::{self, ErrorKind};

/// There is none.
pub(super) enum Attachment {}

fn refused() -> Refusal {
    Refusal::new("this restripe was built without ublk")
        .hint("build it with `cargo build --features ublk`, or use NBD: leave out --ublk")
}

impl served::Attachment for Attachment {
    type Kernel = dyn Devices;
    type Server = OwnExport;

    fn open() -> io::Result<Box<dyn Devices>> {
        Err(ErrorKind::Unsupported.into())
    }

    fn no_kernel(_error: &io::Error) -> Refusal {
        refused()
    }

    fn server(export: &OwnExport) -> &OwnExport {
        export
    }

    fn backend(uuid: Uuid) -> String {
        uuid.to_string()
    }

    fn begin(
        _subject: &Subject<'_, Attachment>,
        _device: Option<u32>,
        _options: AttachOptions,
    ) -> Result<Attachment, Refusal> {
        Err(refused())
    }

    fn resume(_subject: &Subject<'_, Attachment>, _record: Record) -> Result<Attachment, Refusal> {
        Err(refused())
    }

    fn tend(&mut self, _: &Subject<'_, Attachment>, _size_bytes: u64) -> Result<Tended, Refusal> {
        match *self {}
    }

    fn record(&self) -> &Record {
        match *self {}
    }
}
