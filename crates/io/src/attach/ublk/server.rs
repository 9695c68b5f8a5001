//! The queue of a device, served by the reactor.

use super::kernel::served_by;
use crate::attach::export::{OwnExport, flush_io_without_waiting_for_itself};
use crate::control::Refusal;
use crate::front::listen::Wire;
use crate::front::ublk::{CharDevice, Queue, Setup};
use crate::front::{Export, Protocol};
use crate::remote::ProtocolMaker;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, PoisonError};

/// What serves queues, and knows which of them live.
pub(crate) trait Server {
    fn export(&self) -> Result<Export, Refusal>;

    /// Gives all `depth` slots of a device's queue to the driver.
    fn serve(&self, device: u32, depth: u16, read_only: bool) -> io::Result<()>;

    /// Queues that have not ended.
    fn connections(&self) -> usize;

    /// The error of a command that the driver does not take.
    fn refused(&self) -> Option<io::Error>;
}

impl Server for OwnExport {
    fn export(&self) -> Result<Export, Refusal> {
        let ended = |ended: crate::remote::Ended| Refusal::new(ended.to_string());
        if !self.remote.has_commands().map_err(ended)? {
            return Err(Refusal::new("ublk needs io_uring, which is off")
                .hint("serve the array with --backend uring, or use NBD: leave out --ublk"));
        }
        let export = self.remote.export(&self.name).map_err(ended)?;
        export.ok_or_else(|| Refusal::new("the array is not served"))
    }

    fn serve(&self, device: u32, depth: u16, read_only: bool) -> io::Result<()> {
        let file = open(device, depth)?;
        let wire = Wire::device(file.for_commands()?);
        let setup = Setup {
            array: self.name.clone(),
            depth,
            read_only,
        };
        let (alive, refused) = (Arc::clone(&self.alive), Arc::clone(&self.refused));
        let queue = Queue::new(Box::new(file), setup, alive, refused);
        let queue: Box<dyn Protocol + Send> = Box::new(queue);
        self.remote
            .adopt(wire, once(queue))
            .map_err(io::Error::other)
    }

    fn connections(&self) -> usize {
        OwnExport::connections(self)
    }

    fn refused(&self) -> Option<io::Error> {
        self.refused.error()
    }
}

/// udev makes the file a moment after the device.
fn open(device: u32, depth: u16) -> io::Result<CharDevice> {
    const ATTEMPTS: u32 = 100;
    const PAUSE: std::time::Duration = std::time::Duration::from_millis(20);
    let path = served_by(device);
    let mut opened = CharDevice::open(&path, depth);
    for _ in 0..ATTEMPTS {
        match &opened {
            Err(error) if error.kind() == ErrorKind::NotFound => std::thread::sleep(PAUSE),
            _ => break,
        }
        opened = CharDevice::open(&path, depth);
    }
    opened
}

/// Makes one connection of a protocol's that is there already.
fn once(protocol: Box<dyn Protocol + Send>) -> ProtocolMaker {
    let slot = Mutex::new(Some(protocol));
    Arc::new(move || {
        flush_io_without_waiting_for_itself();
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        slot.take().expect("a connection is made once")
    })
}
