//! One queue: its rings in the guest's memory, and the descriptors that signal.

use super::chain::Table;
use super::inflight::{Inflight, Part};
use super::limits::{Guest, QUEUE_SIZE_MAX};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress};

/// The driver wants no signals (virtio 1.2, 2.7.7); has no meaning with event indexes.
const AVAIL_NO_INTERRUPT: u16 = 1;

/// The queue cannot be used any more, until it is set up anew.
pub(crate) struct Broken;

pub(crate) struct Ring {
    index: u16,
    queue: Queue,
    placed: bool,
    base: u16,
    pub(crate) kick: Option<Arc<OwnedFd>>,
    call: Option<Signal>,
    error: Option<Signal>,
    /// The kick that is watched, and the watch.
    pub(crate) watched: Option<(Arc<OwnedFd>, u16)>,
    pub(crate) enabled: bool,
    started: bool,
    broken: bool,
    /// Chains to be done again, that another process had begun.
    again: VecDeque<u16>,
    counter: u64,
    /// Chains that were taken and not answered.
    pub(crate) in_flight: u32,
    /// The driver is to be signalled.
    due: bool,
    /// Takes nothing more: a message waits for the end of what is in flight.
    pub(crate) draining: bool,
}

/// A descriptor by which a peer is signalled.
struct Signal {
    fd: OwnedFd,
    /// A write may have to wait, so it is first asked whether it would.
    blocks: bool,
}

impl Signal {
    fn new(file: File) -> io::Result<Signal> {
        let fd = OwnedFd::from(file);
        event_descriptor(&fd)?;
        // SAFETY: no pointers are passed.
        let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
        let blocks = flags & libc::O_NONBLOCK == 0;
        Ok(Signal { fd, blocks })
    }

    fn send(&self) {
        if self.blocks && !can_write(self.fd.as_raw_fd()) {
            // The counter is at its maximum: the peer has a signal that it has not taken.
            return;
        }
        let one = 1u64.to_ne_bytes();
        // SAFETY: the buffer is 8 readable bytes.
        let _ = unsafe { libc::write(self.fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }
}

/// Whether a write would not have to wait.
pub(crate) fn can_write(fd: RawFd) -> bool {
    let mut polled = libc::pollfd {
        fd,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one live entry.
    unsafe { libc::poll(&raw mut polled, 1, 0) == 1 && polled.revents & libc::POLLOUT != 0 }
}

/// Only a counter of events: of anything else a read or a poll may mean anything.
fn event_descriptor(fd: &OwnedFd) -> io::Result<()> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
    match link.to_string_lossy().contains("[eventfd") {
        true => Ok(()),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

impl Ring {
    pub(crate) fn new(index: u16) -> Ring {
        let queue = Queue::new(QUEUE_SIZE_MAX);
        Ring {
            index,
            queue: queue.expect("the size is a power of two"),
            placed: false,
            base: 0,
            kick: None,
            call: None,
            error: None,
            watched: None,
            enabled: false,
            started: false,
            broken: false,
            again: VecDeque::new(),
            counter: 0,
            in_flight: 0,
            due: false,
            draining: false,
        }
    }

    // ---------------------------------------------------------------------------------------------------
    // set up

    pub(crate) fn started(&self) -> bool {
        self.started
    }

    pub(crate) fn set_size(&mut self, size: u32) -> Result<(), virtio_queue::Error> {
        let size = u16::try_from(size).map_err(|_| virtio_queue::Error::InvalidSize)?;
        self.queue.try_set_size(size)
    }

    pub(crate) fn place(
        &mut self,
        table: GuestAddress,
        available: GuestAddress,
        used: GuestAddress,
    ) -> Result<(), virtio_queue::Error> {
        self.queue.try_set_desc_table_address(table)?;
        self.queue.try_set_avail_ring_address(available)?;
        self.queue.try_set_used_ring_address(used)?;
        self.placed = true;
        Ok(())
    }

    pub(crate) fn set_base(&mut self, base: u16) {
        self.base = base;
    }

    pub(crate) fn set_kick(&mut self, file: Option<File>) -> io::Result<()> {
        // A queue that the device would have to look at all the time.
        let fd = OwnedFd::from(file.ok_or(io::ErrorKind::Unsupported)?);
        event_descriptor(&fd)?;
        self.kick = Some(Arc::new(fd));
        Ok(())
    }

    pub(crate) fn set_call(&mut self, file: Option<File>) -> io::Result<()> {
        self.call = file.map(Signal::new).transpose()?;
        self.signal_anyway();
        Ok(())
    }

    /// What was given back before may never have been signalled: by a process that is gone, or through a
    /// descriptor that was another's. The driver would wait for it for ever (virtio 1.2, 2.7.7 allows more
    /// signals than are needed).
    fn signal_anyway(&self) {
        if let Some(call) = self.call.as_ref().filter(|_| self.started) {
            call.send();
        }
    }

    pub(crate) fn set_error(&mut self, file: Option<File>) -> io::Result<()> {
        self.error = file.map(Signal::new).transpose()?;
        Ok(())
    }

    /// Starts when all that it needs is there. Whether it is started.
    pub(crate) fn start(
        &mut self,
        memory: &Guest,
        events: bool,
        inflight: Option<&Inflight>,
    ) -> bool {
        if self.started || self.broken || !self.placed || self.kick.is_none() {
            return self.started;
        }
        self.queue.set_event_idx(events);
        self.queue.set_ready(true);
        self.started = self.resume(memory, inflight).is_some();
        self.signal_anyway();
        if !self.started {
            self.fail();
        }
        self.started
    }

    /// Finds out where the queue stands. `None`: its rings are not within the guest's memory.
    fn resume(&mut self, memory: &Guest, inflight: Option<&Inflight>) -> Option<()> {
        if !self.queue.is_valid(memory) {
            return None;
        }
        let used = self.queue.used_idx(memory, Ordering::Acquire).ok()?.0;
        self.queue.set_next_used(used);
        self.queue.set_next_avail(self.base);
        if let Some(inflight) = inflight {
            let part = inflight.part(self.index, self.queue.size())?;
            let (again, counter) = part.recover(used);
            self.queue
                .set_next_avail(used.wrapping_add(again.len() as u16));
            self.again = again.into();
            self.counter = counter;
        }
        Some(())
    }

    /// Stops, and gives the index of the next chain that it would have taken. Nothing is in flight.
    pub(crate) fn stop(&mut self) -> u16 {
        if self.started {
            self.base = self.queue.next_avail();
        }
        self.queue.set_ready(false);
        (self.started, self.broken, self.draining) = (false, false, false);
        self.again.clear();
        self.kick = None;
        self.base
    }

    /// Takes no more of a driver that breaks the rules, and signals that.
    pub(crate) fn fail(&mut self) {
        self.broken = true;
        if let Some(error) = &self.error {
            error.send();
        }
    }

    // ---------------------------------------------------------------------------------------------------
    // chains

    /// Whether chains may be taken now.
    pub(crate) fn takes(&self) -> bool {
        self.started && self.enabled && !self.broken && !self.draining
    }

    /// Takes the kicks that have come.
    pub(crate) fn take_kicks(&self) {
        let Some(kick) = &self.kick else { return };
        let mut count = [0u8; 8];
        let vector = libc::iovec {
            iov_base: count.as_mut_ptr().cast(),
            iov_len: count.len(),
        };
        // SAFETY: one vector of 8 writable bytes. It does not wait: another may have taken the kicks.
        let _ =
            unsafe { libc::preadv2(kick.as_raw_fd(), &raw const vector, 1, -1, libc::RWF_NOWAIT) };
    }

    pub(crate) fn table(&self) -> Table {
        Table {
            at: GuestAddress(self.queue.desc_table()),
            count: self.queue.size(),
        }
    }

    /// The head of the next chain.
    pub(crate) fn next(
        &mut self,
        memory: &Guest,
        inflight: Option<&Inflight>,
    ) -> Result<Option<u16>, Broken> {
        if let Some(head) = self.again.pop_front() {
            return Ok(Some(head));
        }
        let mut chains = self.queue.iter(memory).map_err(|_| Broken)?;
        let Some(chain) = chains.next() else {
            return Ok(None);
        };
        let head = chain.head_index();
        if head >= self.queue.size() {
            return Err(Broken);
        }
        if let Some(part) = self.part(inflight) {
            part.begin(head, self.counter);
            self.counter = self.counter.wrapping_add(1);
        }
        Ok(Some(head))
    }

    fn part<'a>(&self, inflight: Option<&'a Inflight>) -> Option<Part<'a>> {
        inflight?.part(self.index, self.queue.size())
    }

    /// Asks to be kicked for the next chain. Whether there is one already.
    pub(crate) fn rest(&mut self, memory: &Guest) -> Result<bool, Broken> {
        self.queue.enable_notification(memory).map_err(|_| Broken)
    }

    /// Asks not to be kicked.
    pub(crate) fn rouse(&mut self, memory: &Guest) -> Result<(), Broken> {
        self.queue.disable_notification(memory).map_err(|_| Broken)
    }

    /// Gives a chain back, of which `bytes` were written.
    pub(crate) fn give_back(
        &mut self,
        memory: &Guest,
        inflight: Option<&Inflight>,
        head: u16,
        bytes: u32,
    ) -> Result<(), Broken> {
        if !self.started {
            return Ok(());
        }
        let part = self.part(inflight);
        if let Some(part) = &part {
            part.before_used(head);
        }
        let added = self.queue.add_used(memory, head, bytes);
        added.map_err(|_| Broken)?;
        if let Some(part) = &part {
            part.after_used(head, self.queue.next_used());
        }
        self.due = true;
        Ok(())
    }

    /// Signals the driver, if something was given back and it wants to know.
    pub(crate) fn signal(&mut self, memory: &Guest) {
        if self.call.is_none() || !std::mem::take(&mut self.due) || !self.wants_signal(memory) {
            return;
        }
        if let Some(call) = &self.call {
            call.send();
        }
    }

    fn wants_signal(&mut self, memory: &Guest) -> bool {
        let needed = self.queue.needs_notification(memory).unwrap_or(true);
        if self.queue.event_idx_enabled() {
            return needed;
        }
        let flags = GuestAddress(self.queue.avail_ring());
        let flags = memory.load::<u16>(flags, Ordering::Relaxed).unwrap_or(0);
        u16::from_le(flags) & AVAIL_NO_INTERRUPT == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::FromRawFd;

    fn event() -> File {
        // SAFETY: no pointers are passed, and the descriptor has no other owner.
        unsafe {
            let fd = libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC);
            File::from_raw_fd(fd)
        }
    }

    fn is_signalled(mut call: &File) -> bool {
        call.read_exact(&mut [0; 8]).is_ok()
    }

    /// The process before may have answered without a signal, and the driver would wait for one for ever.
    #[test]
    fn a_ring_that_starts_or_gets_another_descriptor_signals() {
        let memory = Guest::from_ranges(&[(GuestAddress(0), 1 << 16)]).expect("memory");
        let call = event();
        let copy = || Some(call.try_clone().expect("a copy"));
        let mut ring = Ring::new(0);
        ring.set_size(8).expect("a size");
        let [table, available, used] = [0x1000, 0x2000, 0x3000].map(GuestAddress);
        ring.place(table, available, used).expect("addresses");
        ring.set_call(copy()).expect("an event descriptor");
        assert!(!is_signalled(&call), "it is not started");
        ring.set_kick(Some(event())).expect("an event descriptor");
        assert!(ring.start(&memory, true, None) && is_signalled(&call));
        ring.set_call(None).expect("none is allowed");
        assert!(ring.give_back(&memory, None, 0, 1).is_ok());
        ring.signal(&memory);
        ring.set_call(copy()).expect("an event descriptor");
        assert!(is_signalled(&call), "what was given back meanwhile");
    }
}
