//! One queue: its rings in the guest's memory, and the descriptors that signal.

use super::chain::Table;
use super::inflight::{Inflight, Part};
use super::limits::{Guest, QUEUE_SIZE_MAX};
use super::signals::Signals;
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
    call: Option<OwnedFd>,
    error: Option<OwnedFd>,
    /// The kick that is watched, and the watch.
    pub(crate) watched: Option<(Arc<OwnedFd>, u16)>,
    pub(crate) enabled: bool,
    started: bool,
    broken: bool,
    /// There may be chains, and the driver does not kick for them.
    waiting: bool,
    /// Chains to be done again, that another process had begun.
    again: VecDeque<u16>,
    counter: u64,
    /// Chains that were taken and not answered.
    pub(crate) in_flight: u32,
    /// The driver is to be signalled, if it wants that now.
    due: bool,
    /// The driver is to be signalled whatever it wants.
    due_anyway: bool,
    /// The VMM is to be signalled that the ring is broken.
    error_due: bool,
    /// A message waits for the end of what is in flight.
    draining: bool,
}

/// Only a counter of events: of anything else a read or a poll may mean anything. No path of a file is called
/// as the kernel calls these.
fn event_descriptor(file: File) -> io::Result<OwnedFd> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    match link.as_os_str() == "anon_inode:[eventfd]" {
        true => Ok(file.into()),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Sets a descriptor's count to zero, and gives what it was. It does not wait for more than zero.
fn take_count(fd: &OwnedFd) -> io::Result<u64> {
    let mut count = [0u8; 8];
    let vector = libc::iovec {
        iov_base: count.as_mut_ptr().cast(),
        iov_len: count.len(),
    };
    // SAFETY: one vector of 8 writable bytes.
    let read = unsafe { libc::preadv2(fd.as_raw_fd(), &raw const vector, 1, -1, libc::RWF_NOWAIT) };
    match read {
        8 => Ok(u64::from_ne_bytes(count)),
        _ => Err(io::Error::last_os_error()),
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
            waiting: false,
            again: VecDeque::new(),
            counter: 0,
            in_flight: 0,
            due: false,
            due_anyway: false,
            error_due: false,
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

    pub(crate) fn set_kick(&mut self, file: Option<File>, signals: &Signals) -> io::Result<()> {
        // A queue that the device would have to look at all the time.
        let kick = event_descriptor(file.ok_or(io::ErrorKind::Unsupported)?)?;
        // So would one whose count a read lowers by one. The chains are looked at anyway.
        signals.send(&[kick.as_raw_fd(); 2]);
        if take_count(&kick)? < 2 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.kick = Some(Arc::new(kick));
        self.waiting = true;
        Ok(())
    }

    pub(crate) fn set_call(&mut self, file: Option<File>) -> io::Result<()> {
        self.call = file.map(event_descriptor).transpose()?;
        self.signal_anyway();
        Ok(())
    }

    /// What was given back before may never have been signalled: by a process that is gone, or through a
    /// descriptor that was another's. The driver would wait for it for ever (virtio 1.2, 2.7.7 allows more
    /// signals than are needed).
    fn signal_anyway(&mut self) {
        self.due_anyway |= self.started;
    }

    pub(crate) fn set_error(&mut self, file: Option<File>) -> io::Result<()> {
        self.error = file.map(event_descriptor).transpose()?;
        Ok(())
    }

    /// Whether all is there that it needs to start, and it has not.
    pub(crate) fn can_start(&self) -> bool {
        !self.started && !self.broken && self.placed && self.kick.is_some()
    }

    /// Starts, which takes about as much work as this call returns.
    pub(crate) fn start(
        &mut self,
        memory: &Guest,
        events: bool,
        inflight: Option<&Inflight>,
    ) -> u32 {
        self.queue.set_event_idx(events);
        self.queue.set_ready(true);
        self.started = self.resume(memory, inflight).is_some();
        self.waiting = true;
        self.signal_anyway();
        if !self.started {
            self.fail();
        }
        u32::from(self.queue.size())
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

    /// Takes nothing more but what another process had begun, until it is stopped. Whether nothing is in
    /// flight.
    pub(crate) fn drain(&mut self) -> bool {
        self.draining = true;
        self.is_idle()
    }

    /// Whether nothing is in flight, and nothing is to be done again.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.again.is_empty()
    }

    /// Does nothing again that another process had begun, nor does the process after this one.
    pub(crate) fn forget(&mut self, inflight: Option<&Inflight>) {
        let again = std::mem::take(&mut self.again);
        if let Some(part) = self.part(inflight) {
            again.into_iter().for_each(|head| part.forget(head));
        }
    }

    /// Stops, and gives the index of the next chain that it would have taken. It is idle.
    pub(crate) fn stop(&mut self) -> u16 {
        if self.started {
            self.base = self.queue.next_avail();
        }
        self.queue.set_ready(false);
        (self.started, self.broken, self.draining) = (false, false, false);
        // The driver may be another's from now on.
        (self.due, self.due_anyway) = (false, false);
        self.kick = None;
        self.base
    }

    /// Takes no more of a driver that breaks the rules, and signals that.
    pub(crate) fn fail(&mut self) {
        self.broken = true;
        self.error_due = true;
        self.again.clear();
    }

    // ---------------------------------------------------------------------------------------------------
    // chains

    /// Whether there may be chains that can be taken now.
    pub(crate) fn takes(&self) -> bool {
        let wanted = match self.draining {
            true => !self.again.is_empty(),
            false => self.enabled && self.waiting,
        };
        self.started && !self.broken && wanted
    }

    /// Takes the kicks that have come.
    pub(crate) fn take_kicks(&mut self) {
        if let Some(kick) = &self.kick {
            // Another may have taken the kicks.
            let _ = take_count(kick);
            self.waiting = true;
        }
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
        if self.draining {
            return Ok(None);
        }
        let available = self.queue.avail_idx(memory, Ordering::Acquire);
        if available.map_err(|_| Broken)?.0 == self.queue.next_avail() {
            return Ok(None);
        }
        let mut chains = self.queue.iter(memory).map_err(|_| Broken)?;
        // There is one, so its entry cannot be read.
        let head = chains.next().ok_or(Broken)?.head_index();
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
        if self.draining {
            return Ok(false);
        }
        self.waiting = self.queue.enable_notification(memory).map_err(|_| Broken)?;
        Ok(self.waiting)
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

    /// The descriptors to be signalled now: the driver's, if something was given back and it wants to know,
    /// and the VMM's. Without memory the driver's is none. Whether the ring was just stopped as broken.
    pub(crate) fn take_signals(&mut self, memory: Option<&Guest>, into: &mut Vec<RawFd>) -> bool {
        if let Some(error) = self.error.as_ref().filter(|_| self.error_due) {
            into.push(error.as_raw_fd());
        }
        let failed = std::mem::take(&mut self.error_due);
        let (Some(call), Some(memory)) = (&self.call, memory) else {
            return failed;
        };
        let call = call.as_raw_fd();
        let wanted = std::mem::take(&mut self.due) && self.wants_signal(memory);
        if std::mem::take(&mut self.due_anyway) || wanted {
            into.push(call);
        }
        failed
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
    use super::super::signals::tests::event;
    use super::*;

    const SIZE: u32 = 8;

    fn placed() -> (Guest, Ring) {
        let memory = Guest::from_ranges(&[(GuestAddress(0), 1 << 16)]).expect("memory");
        let mut ring = Ring::new(0);
        ring.set_size(SIZE).expect("a size");
        let [table, available, used] = [0x1000, 0x2000, 0x3000].map(GuestAddress);
        ring.place(table, available, used).expect("addresses");
        (memory, ring)
    }

    fn signals(ring: &mut Ring, memory: &Guest) -> usize {
        let mut list = Vec::new();
        ring.take_signals(Some(memory), &mut list);
        list.len()
    }

    /// The process before may have answered without a signal, and the driver would wait for one for ever.
    #[test]
    fn a_ring_that_starts_or_gets_another_descriptor_signals() {
        let (memory, mut ring) = placed();
        let call = || Some(event(0));
        ring.set_call(call()).expect("an event descriptor");
        assert_eq!(signals(&mut ring, &memory), 0, "it is not started");
        let kicks = Signals::new().expect("a context");
        ring.set_kick(Some(event(0)), &kicks)
            .expect("an event descriptor");
        ring.start(&memory, true, None);
        assert_eq!(signals(&mut ring, &memory), 1);
        ring.set_call(None).expect("none is allowed");
        assert!(ring.give_back(&memory, None, 0, 1).is_ok());
        assert_eq!(signals(&mut ring, &memory), 0);
        ring.set_call(call()).expect("an event descriptor");
        assert_eq!(
            signals(&mut ring, &memory),
            1,
            "what was given back meanwhile"
        );
    }

    #[test]
    fn only_event_descriptors_are_taken() {
        let folder = std::env::temp_dir();
        let named = folder.join(format!("[eventfd]-{}", std::process::id()));
        let file = || File::create(&named).expect("a file");
        let pipe = || File::from(OwnedFd::from(io::pipe().expect("a pipe").1));
        let mut ring = Ring::new(0);
        let signals = Signals::new().expect("a context");
        for wrong in [&file as &dyn Fn() -> File, &pipe] {
            assert!(ring.set_kick(Some(wrong()), &signals).is_err());
            assert!(ring.set_call(Some(wrong())).is_err());
            assert!(ring.set_error(Some(wrong())).is_err());
        }
        std::fs::remove_file(&named).expect("ours");
        // It could always be read, and keep the reactor busy.
        let semaphore = event(libc::EFD_SEMAPHORE);
        assert!(ring.set_kick(Some(semaphore), &signals).is_err());
        assert!(ring.set_kick(Some(event(0)), &signals).is_ok());
    }

    /// The index says that there is a chain, and its entry is not within the guest's memory any more.
    #[test]
    fn a_chain_that_cannot_be_had_breaks_the_ring() {
        let (memory, mut ring) = placed();
        let signals = Signals::new().expect("a context");
        ring.set_kick(Some(event(0)), &signals).expect("a kick");
        let available = GuestAddress(0xfffc);
        ring.place(GuestAddress(0x1000), available, GuestAddress(0x3000))
            .expect("addresses");
        ring.queue.set_ready(true);
        (ring.started, ring.enabled, ring.waiting) = (true, true, true);
        assert!(matches!(ring.next(&memory, None), Ok(None)));
        memory
            .write_obj(1u16, GuestAddress(0xfffe))
            .expect("memory");
        assert!(ring.next(&memory, None).is_err());
    }
}
