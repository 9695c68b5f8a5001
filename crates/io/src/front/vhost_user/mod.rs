//! Arrays as disks of virtual machines: a device of vhost-user-blk for each connection, without I/O of its
//! own.
//!
//! ```text
//! VMM --socket--> messages: memory, rings, descriptors       (vhost: parsed by the library of that name)
//! guest --rings in its memory, kicks--> chains --> requests  (virtio 1.2, sections 2.7 and 5.2)
//! ```
//!
//! | file | part |
//! |---|---|
//! | `socket` | whether a message is whole; the channel for our own |
//! | `device` | what the VMM sets up |
//! | `config` | features and the configuration space |
//! | `ring`, `signals` | one queue; signals to the driver and the VMM, which never wait |
//! | `chain`, `request` | a chain's memory, and what it asks for |
//! | `job`, `work` | requests on their way |
//! | `limits` | what is offered and taken at most |
//! | `turn` | what one connection may do before the others have their turns |
//! | `inflight` | requests in flight, for the process after this one |
//!
//! The socket and the kicks are polled by the reactor's own ring. A socket has one VMM at a time, and the
//! device is a session: what a VMM that is gone had asked for and has not begun never begins, so another
//! may ask again.
//!
//! Everything that a guest writes is checked and read once. A chain that makes no sense fails, a ring that
//! makes none is stopped. The VMM is trusted to leave the memory that it shared as long as it was.

mod chain;
mod config;
mod device;
mod disk;
mod inflight;
mod job;
mod limits;
mod request;
mod ring;
mod signals;
mod socket;
mod turn;
mod work;

use crate::front::{Protocol, Report};

/// Makes the connections of one socket, which all have the array of this index. `report` takes why a VMM was
/// refused, or its queue stopped.
pub fn disk(
    array: usize,
    report: Report,
) -> Result<impl Fn() -> Box<dyn Protocol> + Send + Sync + 'static, String> {
    let door = disk::Door::new(array, report).map_err(|error| {
        let remedy = match error.kind() {
            std::io::ErrorKind::WouldBlock => "raise the sysctl fs.aio-max-nr",
            _ => "vhost-user needs a kernel, and a container, that allow asynchronous I/O",
        };
        format!("no asynchronous I/O for signals to virtual machines: {error}: {remedy}")
    })?;
    let door = std::sync::Arc::new(door);
    Ok(move || -> Box<dyn Protocol> {
        Box::new(disk::Connection::new(std::sync::Arc::clone(&door)))
    })
}
