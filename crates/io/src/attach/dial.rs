//! Connections of this daemon to its own arrays, for the kernel.

use crate::front::listen::Wire;
use crate::front::nbd::{Connection, KernelPeer};
use crate::member::nbd::agree::{self, agree};
use crate::nbd_wire::client::{ExportInfo, Replies};
use crate::remote::{ProtocolMaker, Remote};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The reactor answers each message of a handshake within a turn.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// What makes connections, and knows which of them live.
pub(super) trait Dialer {
    /// A connection past its handshake: the client's end, and what the server said of the export.
    fn dial(&self, read_only: bool) -> io::Result<(OwnedFd, ExportInfo)>;

    /// Connections that have not ended.
    fn alive(&self) -> usize;
}

/// Makes connections to an array of a reactor.
pub struct OwnExport {
    remote: Remote,
    name: String,
    /// Each connection has a clone, until it has ended.
    alive: Arc<()>,
}

impl OwnExport {
    /// The export of the array `name`.
    pub fn new(remote: Remote, name: &str) -> OwnExport {
        OwnExport {
            remote,
            name: name.to_owned(),
            alive: Arc::default(),
        }
    }

    fn maker(&self, read_only: bool) -> ProtocolMaker {
        let alive = Arc::clone(&self.alive);
        Arc::new(move || {
            flush_io_without_waiting_for_itself();
            let peer = KernelPeer {
                read_only,
                alive: Some(Arc::clone(&alive)),
            };
            Box::new(Connection::for_kernel(peer))
        })
    }
}

impl Dialer for OwnExport {
    fn dial(&self, read_only: bool) -> io::Result<(OwnedFd, ExportInfo)> {
        let (ours, theirs) = UnixStream::pair()?;
        let wire = Wire::socket(ours.into());
        let adopted = self.remote.adopt(wire, self.maker(read_only));
        adopted.map_err(io::Error::other)?;
        let info = shake_hands(&theirs, &self.name)?;
        Ok((theirs.into(), info))
    }

    fn alive(&self) -> usize {
        Arc::strong_count(&self.alive) - 1
    }
}

/// The client's side of a handshake with simple replies, which are all that the kernel understands.
fn shake_hands(stream: &UnixStream, export: &str) -> io::Result<ExportInfo> {
    let deadline = Instant::now() + HANDSHAKE_WITHIN;
    let agreed = agree(stream, export, Replies::Simple, None, deadline)?;
    // The kernel waits without a limit.
    agree::patience(stream, None)?;
    let info = agreed.client.info().copied();
    info.ok_or_else(|| io::Error::other("a handshake without an export"))
}

/// Marks the reactor's thread: its allocations never wait for writes to block devices, which could be writes
/// that only this thread can serve (`PR_SET_IO_FLUSHER`, Linux 5.6). It has no effect without the right to.
fn flush_io_without_waiting_for_itself() {
    const PR_SET_IO_FLUSHER: libc::c_int = 57;
    const ON: libc::c_ulong = 1;
    const UNUSED: libc::c_ulong = 0;
    // SAFETY: no pointers are passed; kernels that do not know the request refuse it.
    let _ = unsafe { libc::prctl(PR_SET_IO_FLUSHER, ON, UNUSED, UNUSED, UNUSED) };
}
