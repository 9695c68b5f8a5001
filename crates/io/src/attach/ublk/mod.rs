//! Arrays as devices of the kernel's driver ublk: a queue that the reactor serves ([`crate::front::ublk`]),
//! and what is done when.
//!
//! | moment | kernel | record |
//! |---|---|---|
//! | begin | `ADD_DEV`, `SET_PARAMS`, the queue, `START_DEV` | written before `START_DEV`, link after |
//! | the daemon dies | the device waits, with all its requests | stays |
//! | resume | `START_USER_RECOVERY`, the queue, `END_USER_RECOVERY` | stays |
//! | a resume does not end | the device waits; the next resume repeats all but what is still done | stays |
//! | tend | `UPDATE_SIZE` after a growth | stays |
//! | end | `STOP_DEV`, `DEL_DEV`, unless the device is in use | removed after |
//!
//! The device has the first 64 bits of the array's identifier as its tag. So a daemon does not take a device
//! over that is another's.

mod kernel;
mod server;
#[cfg(test)]
mod tests;
mod uapi;

use super::export::OwnExport;
use super::hold::{kernel_refusal, make_link, other_array, undo};
use super::node::Node;
use super::record::Record;
use super::served::{self, Tended};
use crate::control::{AttachOptions, Driver, Refusal};
use crate::front::Export;
use kernel::{Kernel, Linux, Setup, identifier};
use restripe_array::Uuid;
use server::Server;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};
use uapi::Parameters;

/// Requests of a device that can be in flight.
const DEPTH: u16 = 128;
/// The longest request. Longer ones are cut by the kernel.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Smaller writes make the array read first.
const PHYSICAL_BYTES: u32 = 4096;
/// How long the kernel may take to clean up behind a daemon that was killed, before it is tried again later.
const RELEASED_WITHIN: Duration = Duration::from_secs(3);
const LOOK_AFTER: Duration = Duration::from_millis(20);
/// What helps where a device has a queue of this daemon that does not work.
const SERVE_AGAIN: &str = "end this daemon by a signal, and serve the array again";

type Subject<'a> = served::Subject<'a, Attachment>;

/// A device that has this array.
pub(super) struct Attachment {
    record: Record,
    /// Bytes that the kernel knows of.
    size_bytes: u64,
    /// The array's, which this kernel cannot give to the device.
    refused_bytes: Option<u64>,
}

impl served::Attachment for Attachment {
    type Kernel = dyn Kernel;
    type Server = dyn Server;

    fn open() -> io::Result<Box<dyn Kernel>> {
        Ok(Box::new(Linux::open()?))
    }

    fn no_kernel(error: &io::Error) -> Refusal {
        match error.kind() {
            ErrorKind::NotFound => Refusal::new("the kernel's driver ublk is not loaded").hint(
                "load it: modprobe ublk_drv (a kernel without the module can attach through NBD only)",
            ),
            ErrorKind::PermissionDenied => {
                Refusal::new("the kernel permits devices only to processes with CAP_SYS_ADMIN")
                    .hint("serve the array as root")
            }
            _ => Refusal::new(format!("the kernel's driver ublk: {error}")),
        }
    }

    fn server(export: &OwnExport) -> &Self::Server {
        export
    }

    fn backend(uuid: Uuid) -> String {
        identifier(tag_of(uuid))
    }

    fn begin(
        subject: &Subject<'_>,
        device: Option<u32>,
        options: AttachOptions,
    ) -> Result<Attachment, Refusal> {
        let export = subject.server.export()?;
        if !export.serving {
            return Err(Refusal::new("the array does not serve")
                .hint("`restripe status` says why; attach it when it serves"));
        }
        if export.minimum_block > options.block_bytes {
            let what = format!("the array takes no blocks below {}", export.minimum_block);
            return Err(Refusal::new(what).hint("use a larger --block-size"));
        }
        let setup = Setup {
            parameters: Parameters {
                attributes: attributes(&export, options.read_only),
                size_bytes: export.size_bytes,
                block_bytes: options.block_bytes,
                physical_bytes: PHYSICAL_BYTES,
                optimal_bytes: optimal(export.row_bytes),
                request_bytes_max: REQUEST_BYTES_MAX.min(export.maximum_block),
            },
            depth: DEPTH,
            tag: tag_of(subject.uuid),
        };
        let number = subject.kernel.add(device, &setup).map_err(|error| {
            kernel_refusal_of_ublk(&error, Node::new(Driver::Ublk, device.unwrap_or(0)))
        })?;
        let attachment = Attachment {
            record: Record {
                device: number,
                boot: subject.places.boot.clone(),
                backend: identifier(setup.tag),
                flags: setup.parameters.attributes,
                options,
            },
            size_bytes: export.size_bytes,
            refused_bytes: None,
        };
        match attachment.start(subject) {
            Ok(()) => Ok(attachment),
            Err(why) => Err(undo(
                subject.kernel,
                subject.places,
                &attachment.record,
                why,
            )),
        }
    }

    fn resume(subject: &Subject<'_>, record: Record) -> Result<Attachment, Refusal> {
        let export = subject.server.export()?;
        if attributes(&export, record.options.read_only) != record.flags {
            return Err(other_array(&record));
        }
        let node = record.node();
        begin_recovery(subject.kernel, node)?;
        let size = subject.kernel.size(node.number);
        let attachment = Attachment {
            record,
            size_bytes: size.unwrap_or(export.size_bytes),
            refused_bytes: None,
        };
        attachment.serve(subject)?;
        let ended = subject.kernel.end_recovery(node.number);
        ended.map_err(|error| {
            // Without all commands of the queue the kernel waits in vain.
            let why = subject.server.refused().unwrap_or(error);
            kernel_refusal_of_ublk(&why, node).hint(SERVE_AGAIN)
        })?;
        Ok(attachment)
    }

    fn tend(&mut self, subject: &Subject<'_>, size_bytes: u64) -> Result<Tended, Refusal> {
        let node = self.record.node();
        if subject.server.connections() == 0 {
            if subject.is_gone(&self.record)? {
                return Ok(Tended::Gone);
            }
            return Err(Refusal::new("the kernel has ended the device's queue")
                .at(node.shown())
                .hint(SERVE_AGAIN));
        }
        if let Some(error) = subject.server.refused() {
            let what = format!("the kernel refuses a command of the device's queue: {error}");
            return Err(Refusal::new(what).at(node.shown()).hint(SERVE_AGAIN));
        }
        match size_bytes {
            // The array's size was not looked at, so what was said of it holds.
            0 if self.refused_bytes.is_some() => Err(self.keeps_its_size()),
            0 => Ok(Tended::Well),
            bytes if self.refused_bytes == Some(bytes) => Err(self.keeps_its_size()),
            bytes if bytes == self.size_bytes => Ok(Tended::Well),
            bytes => self.resize(subject.kernel, bytes),
        }
    }

    fn record(&self) -> &Record {
        &self.record
    }

    /// An array that is not served, but may be again, has requests that wait for that: the kernel would wait
    /// for them.
    fn may_end(&self, subject: &Subject<'_>) -> Result<(), Refusal> {
        match subject.server.export()?.serving {
            true => Ok(()),
            false => Err(
                Refusal::new("requests of the device wait for the array to be served")
                    .at(self.record.node().shown())
                    .hint("end this daemon by a signal, then detach the device"),
            ),
        }
    }
}

impl Attachment {
    /// Makes a block device of what was added.
    fn start(&self, subject: &Subject<'_>) -> Result<(), Refusal> {
        let (record, node) = (&self.record, self.record.node());
        let written = subject.places.write(record);
        written.map_err(|error| Refusal::new(format!("the record of the device: {error}")))?;
        self.serve(subject)?;
        let started = subject.kernel.start(node.number);
        started.map_err(|error| kernel_refusal_of_ublk(&error, node))?;
        make_link(subject.places, node)
    }

    fn serve(&self, subject: &Subject<'_>) -> Result<(), Refusal> {
        let Record {
            device, options, ..
        } = self.record;
        let served = subject.server.serve(device, DEPTH, options.read_only);
        served.map_err(|error| {
            Refusal::new(format!("the device's queue: {error}")).at(self.record.node().shown())
        })
    }

    fn resize(&mut self, kernel: &dyn Kernel, bytes: u64) -> Result<Tended, Refusal> {
        let node = self.record.node();
        match kernel.resize(node.number, bytes) {
            Ok(()) => {
                (self.size_bytes, self.refused_bytes) = (bytes, None);
                Ok(Tended::Resized(bytes))
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                self.refused_bytes = Some(bytes);
                Err(self.keeps_its_size())
            }
            Err(error) => Err(kernel_refusal_of_ublk(&error, node)),
        }
    }

    fn keeps_its_size(&self) -> Refusal {
        let size = self.size_bytes;
        Refusal::new(format!(
            "the device keeps its {size} bytes: this kernel cannot change them (Linux 6.16 can)"
        ))
        .at(self.record.node().shown())
        .hint("detach and attach the array")
    }
}

fn tag_of(uuid: Uuid) -> u64 {
    let first = uuid.0.first_chunk().expect("it has 16 bytes");
    u64::from_be_bytes(*first)
}

/// The best request: a row, or the largest power of two that divides it, because the driver takes no others.
fn optimal(row_bytes: u64) -> u32 {
    match row_bytes {
        0 => PHYSICAL_BYTES,
        bytes => PHYSICAL_BYTES.max(1 << bytes.trailing_zeros().min(30)),
    }
}

/// How an array is described to the kernel.
fn attributes(export: &Export, read_only: bool) -> u16 {
    let durable = match export.durable {
        true => uapi::ATTRIBUTE_CACHE | uapi::ATTRIBUTE_FUA,
        false => 0,
    };
    match read_only || export.read_only {
        true => durable | uapi::ATTRIBUTE_READ_ONLY,
        false => durable,
    }
}

/// The kernel refuses while it cleans up behind the daemon of before. If an earlier recovery ended before the
/// queue was served, the device is still prepared, which kernels before 6.16 say by `InvalidInput`.
fn begin_recovery(kernel: &dyn Kernel, node: Node) -> Result<(), Refusal> {
    let since = Instant::now();
    loop {
        let Err(error) = kernel.begin_recovery(node.number) else {
            return Ok(());
        };
        match error.kind() {
            ErrorKind::InvalidInput if kernel.waits(node.number) => return Ok(()),
            ErrorKind::ResourceBusy if since.elapsed() < RELEASED_WITHIN => {
                std::thread::sleep(LOOK_AFTER);
            }
            ErrorKind::ResourceBusy => {
                return Err(
                    Refusal::new("the kernel has not released the device from a daemon")
                        .at(node.shown())
                        .hint(
                            "end that daemon; if there is none and this stays, detach the device",
                        ),
                );
            }
            _ => return Err(kernel_refusal_of_ublk(&error, node)),
        }
    }
}

fn kernel_refusal_of_ublk(error: &io::Error, node: Node) -> Refusal {
    match error.kind() {
        ErrorKind::Unsupported => {
            Refusal::new("this kernel's ublk lacks what a daemon needs: Linux 6.5 has it")
                .hint("use NBD: leave out --ublk")
        }
        ErrorKind::TimedOut => Refusal::new("the kernel does not answer").at(node.shown()),
        _ => kernel_refusal(error, node),
    }
}
