//! An array of this daemon, as the kernel's drivers are served from it.

use crate::remote::Remote;
use std::sync::Arc;

/// Makes connections to an array of a reactor.
pub struct OwnExport {
    pub(super) remote: Remote,
    pub(super) name: String,
    /// Each connection has a clone, until it has ended.
    pub(super) alive: Arc<()>,
    #[cfg(feature = "ublk")]
    pub(super) refused: Arc<crate::front::ublk::Refused>,
}

impl OwnExport {
    /// The export of the array `name`.
    pub fn new(remote: Remote, name: &str) -> OwnExport {
        OwnExport {
            remote,
            name: name.to_owned(),
            alive: Arc::default(),
            #[cfg(feature = "ublk")]
            refused: Arc::default(),
        }
    }

    /// Connections that have not ended.
    pub(super) fn connections(&self) -> usize {
        Arc::strong_count(&self.alive) - 1
    }
}

/// Marks the reactor's thread: its allocations never wait for writes to block devices, which could be writes
/// that only this thread can serve (`PR_SET_IO_FLUSHER`, Linux 5.6). It has no effect without the right to.
pub(super) fn flush_io_without_waiting_for_itself() {
    const PR_SET_IO_FLUSHER: libc::c_int = 57;
    const ON: libc::c_ulong = 1;
    const UNUSED: libc::c_ulong = 0;
    // SAFETY: no pointers are passed; kernels that do not know the request refuse it.
    let _ = unsafe { libc::prctl(PR_SET_IO_FLUSHER, ON, UNUSED, UNUSED, UNUSED) };
}
