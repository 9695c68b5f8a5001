//! The same functions in a build without ublk. A record of a device of ublk is kept: it may be mounted.

use super::export::OwnExport;
use super::hold::Devices;
use super::record::Places;
use super::served::Served;
use crate::control::{AttachOptions, Refusal};
use restripe_array::Uuid;

fn refused<T>() -> Result<T, Refusal> {
    Err(Refusal::new("this restripe was built without ublk")
        .hint("build it with `cargo build --features ublk`, or use NBD: leave out --ublk"))
}

pub(super) fn attach(
    _export: OwnExport,
    _places: Places,
    _uuid: Uuid,
    _number: Option<u32>,
    _options: AttachOptions,
) -> Result<Box<dyn Served>, Refusal> {
    refused()
}

pub(super) fn resume(
    _export: OwnExport,
    _places: Places,
    _uuid: Uuid,
) -> Result<Option<Box<dyn Served>>, Refusal> {
    refused()
}

pub(super) fn devices() -> Result<Option<Box<dyn Devices>>, Refusal> {
    refused()
}
