//! A turn of the reactor, as far as one connection has a share in it.

/// Work of one turn, about a descriptor each: half a millisecond or less.
pub(crate) const WORK_A_TURN: u32 = 4096;
/// A message: it may map memory.
pub(crate) const MESSAGE_WORK: u32 = 256;
/// A chain, without its descriptors.
pub(crate) const CHAIN_WORK: u32 = 8;
/// Bytes that are copied in the time of a descriptor.
const BYTES_A_UNIT: u64 = 1024;

/// All work that a peer can ask for is done while there is time. The rest goes on in the next turn, and the
/// other connections have theirs before.
pub(crate) struct Turn {
    left: u32,
    more: bool,
}

impl Turn {
    pub(crate) fn new() -> Turn {
        Turn {
            left: WORK_A_TURN,
            more: false,
        }
    }

    /// Whether there is time for what waits. If not, it waits for the next turn.
    pub(crate) fn has_time(&mut self) -> bool {
        self.more |= self.left == 0;
        self.left > 0
    }

    pub(crate) fn spend(&mut self, work: u32) {
        self.left = self.left.saturating_sub(work);
    }

    pub(crate) fn spend_copy(&mut self, bytes: u64) {
        self.spend(u32::try_from(bytes / BYTES_A_UNIT).unwrap_or(WORK_A_TURN));
    }

    /// Begins another turn. Whether something waits for it.
    pub(crate) fn renew(&mut self) -> bool {
        std::mem::replace(self, Turn::new()).more
    }
}
