//! Connections of this daemon to its own arrays, for the kernel.

use crate::attach::export::{OwnExport, flush_io_without_waiting_for_itself};
use crate::front::listen::Wire;
use crate::front::nbd::{Connection, KernelPeer};
use crate::member::nbd::agree::{self, agree};
use crate::nbd_wire::client::{ExportInfo, Replies};
use crate::remote::ProtocolMaker;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The reactor answers each message of a handshake within a turn.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// What makes connections, and knows which of them live.
pub(crate) trait Dialer {
    /// A connection past its handshake: the client's end, and what the server said of the export.
    fn dial(&self, read_only: bool) -> io::Result<(OwnedFd, ExportInfo)>;

    /// Connections that have not ended.
    fn alive(&self) -> usize;
}

impl OwnExport {
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
        self.connections()
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
