//! Arrays as block devices of this machine's kernel, through its NBD client ([`nbd`]) or its driver ublk
//! ([`ublk`]).
//!
//! The device belongs to the kernel: it outlives the daemon, and its requests wait for the next one.
//! [`record`] has what is noted for the next daemon, [`hold`] what holds for the devices of both drivers.

mod export;
mod hold;
#[cfg(test)]
mod machine;
mod nbd;
mod node;
mod record;
mod served;
#[cfg_attr(not(feature = "ublk"), path = "ublk/without.rs")]
mod ublk;

pub use export::OwnExport;
pub use served::Tended;

use crate::control::{AttachOptions, AttachedView, Driver, Refusal};
use hold::{Before, Devices, end_device, forget, free_record};
use node::Node;
use record::{Places, Record};
use restripe_array::Uuid;
use served::{Attachment, Served};

/// The device of an array that this daemon serves.
pub struct Device {
    served: Box<dyn Served>,
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
        let node = path.map(Node::of_path).transpose()?;
        if let Some(node) = node.filter(|node| node.driver != options.driver) {
            return Err(Refusal::new("is a device of the other driver")
                .at(node.shown())
                .hint("leave out --ublk or the device"));
        }
        let (places, number) = (Places::of(name), node.map(|node| node.number));
        other_driver_is_free(&places, uuid, options.driver)?;
        let attach = match options.driver {
            Driver::Nbd => served::attach::<nbd::Attachment>,
            Driver::Ublk => served::attach::<ublk::Attachment>,
        };
        let served = attach(export, places, uuid, number, options)?;
        Ok(Device { served })
    }

    /// The device that an earlier daemon of this array had. `None` if it had none that the kernel still has.
    pub fn resume(export: OwnExport, name: &str, uuid: Uuid) -> Result<Option<Device>, Refusal> {
        let places = Places::of(name);
        let Some((record, _)) = device_of_record(&places)? else {
            return Ok(None);
        };
        let resume = match record.options.driver {
            Driver::Nbd => served::resume::<nbd::Attachment>,
            Driver::Ublk => served::resume::<ublk::Attachment>,
        };
        let served = resume(export, places, uuid)?;
        Ok(served.map(|served| Device { served }))
    }

    /// Replaces connections that have died, and passes a growth on; to be called often.
    pub fn tend(&mut self, size_bytes: u64) -> Result<Tended, Refusal> {
        self.served.tend(size_bytes)
    }

    /// Writes out the device's cache and gives the device back. An error, and no effect, while it is in use,
    /// or if `may_end` gives one, which is asked in between.
    pub fn detach(&self, may_end: &dyn Fn() -> Result<(), Refusal>) -> Result<(), Refusal> {
        self.served.detach(may_end)
    }

    pub fn path(&self) -> String {
        self.served.record().node().shown()
    }

    pub fn options(&self) -> AttachOptions {
        self.served.record().options
    }

    pub fn view(&self) -> AttachedView {
        let (link, connections) = (self.served.places().link(), self.served.connections());
        view(self.path(), link, connections, Some(self.options()))
    }
}

fn view(
    device: String,
    link: String,
    connections: usize,
    options: Option<AttachOptions>,
) -> AttachedView {
    let nbd = options.is_none_or(|options| options.driver == Driver::Nbd);
    let seconds = |of: fn(AttachOptions) -> u64| nbd.then(|| options.map_or(0, of));
    AttachedView {
        device,
        link,
        connections,
        read_only: options.is_some_and(|options| options.read_only),
        block_bytes: options.map_or(0, |options| options.block_bytes),
        timeout_seconds: seconds(|options| options.timeout_seconds),
        grace_seconds: seconds(|options| options.grace_seconds),
        trouble: None,
    }
}

/// What [`Device::resume`] could not reconnect, and why.
pub fn not_connected(name: &str, why: String) -> AttachedView {
    let places = Places::of(name);
    let record = places.read().ok().flatten();
    let linked = || places.linked().ok().flatten();
    let node = record.as_ref().map(Record::node).or_else(linked);
    let device = node.map_or_else(|| "an unknown device".to_owned(), Node::shown);
    let options = record.map(|record| record.options);
    AttachedView {
        trouble: Some(why),
        ..view(device, places.link(), 0, options)
    }
}

/// Detaches the device of an array to which no daemon has connected it; its path. `None`: it has no device.
pub fn detach_unserved(name: &str) -> Result<Option<String>, Refusal> {
    let places = Places::of(name);
    let Some((record, devices)) = device_of_record(&places)? else {
        return Ok(None);
    };
    end_device(&*devices, &places, &record, Before::Nothing)?;
    Ok(Some(record.node().shown()))
}

/// The same of an array that this daemon serves. Without a record that can be read, a device that has the
/// array's identifier, which the kernel shows from Linux 5.14 on, is named in a refusal and left alone.
pub fn detach_left(name: &str, uuid: Uuid) -> Result<Option<String>, Refusal> {
    let recorded = detach_unserved(name);
    if !matches!(recorded, Ok(Some(_))) {
        // A device that is on record and in use is refused as that.
        let record = Places::of(name).read().ok().flatten();
        let own = record.map(|record| record.node());
        let own = |driver| {
            own.filter(|node| node.driver == driver)
                .map(|node| node.number)
        };
        no_other_device::<nbd::Attachment>(uuid, own(Driver::Nbd))?;
        no_other_device::<ublk::Attachment>(uuid, own(Driver::Ublk))?;
    }
    recorded
}

/// The array whose device this is.
pub fn name_of_device(path: &str) -> Result<Option<String>, Refusal> {
    let node = Node::of_path(path)?;
    let mut unreadable = Ok(None);
    for name in Places::names() {
        match Places::of(&name).read() {
            Ok(Some(record)) if record.node() == node => return Ok(Some(name)),
            Ok(_) => {}
            // It could be that device's.
            Err(refusal) => unreadable = Err(refusal),
        }
    }
    unreadable
}

/// Whether both paths lead to the same device.
pub fn is_same_device(path: &str, other: &str) -> Result<bool, Refusal> {
    Ok(Node::of_path(path)? == Node::of_path(other)?)
}

/// The driver that has the device at this path.
pub fn driver_of(path: &str) -> Result<Driver, Refusal> {
    Ok(Node::of_path(path)?.driver)
}

/// A record, and the devices of its driver.
type Found = (Record, Box<dyn Devices>);

/// The record of a device, and the driver that may have it. A record of an earlier boot is removed, and so is
/// one where the kernel is without the driver: it has no such devices.
fn device_of_record(places: &Places) -> Result<Option<Found>, Refusal> {
    let Some(record) = places.read()? else {
        return Ok(None);
    };
    if record.boot != places.boot {
        return forget(places, record.node()).map(|()| None);
    }
    match devices(record.options.driver)? {
        Some(devices) => Ok(Some((record, devices))),
        // A namespace may hide the driver, and the device is there.
        None if record.node().is_used() => Err(Refusal::new(format!(
            "{} is in use, and its driver does not show here",
            record.node().shown()
        ))
        .hint("run this where the device was attached: outside of containers and namespaces")),
        None => forget(places, record.node()).map(|()| None),
    }
}

fn devices(driver: Driver) -> Result<Option<Box<dyn Devices>>, Refusal> {
    Ok(match driver {
        Driver::Nbd => served::kernel::<nbd::Attachment>()?.map(|one| one as Box<dyn Devices>),
        Driver::Ublk => served::kernel::<ublk::Attachment>()?.map(|one| one as Box<dyn Devices>),
    })
}

/// See [`hold::no_other_device`]. A driver that cannot be asked has made no device for this daemon.
fn no_other_device<A: Attachment>(uuid: Uuid, own: Option<u32>) -> Result<(), Refusal> {
    match served::kernel::<A>() {
        Ok(Some(kernel)) => hold::no_other_device(&*kernel, &A::backend(uuid), own),
        Ok(None) | Err(_) => Ok(()),
    }
}

/// The array has no device of the other driver, and no record of one is left.
fn other_driver_is_free(places: &Places, uuid: Uuid, driver: Driver) -> Result<(), Refusal> {
    match device_of_record(places)? {
        Some((record, devices)) if record.options.driver != driver => {
            free_record(&*devices, places)?;
        }
        _ => {}
    }
    match driver {
        Driver::Nbd => no_other_device::<ublk::Attachment>(uuid, None),
        Driver::Ublk => no_other_device::<nbd::Attachment>(uuid, None),
    }
}
