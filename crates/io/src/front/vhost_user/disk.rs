//! One VMM's connection.

use super::config;
use super::device::Device;
use super::signals::Signals;
use super::socket::{Front, can_write, config_changed, look, request, take_channel};
use super::turn::MESSAGE_WORK;
use crate::front::{Link, Nudge, Protocol, Received};
use restripe_array::{Nanos, RequestError};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vhost::vhost_user::BackendReqHandler;
use vhost::vhost_user::message::VhostUserProtocolFeatures;

/// How long a VMM may leave a message unfinished, or an answer unread, in seconds.
const STALLED_SECONDS_MAX: u32 = 30;

/// One socket, and what its connections share.
pub(crate) struct Door {
    array: usize,
    taken: AtomicBool,
    signals: Arc<Signals>,
}

impl Door {
    pub(crate) fn new(array: usize) -> io::Result<Door> {
        Ok(Door {
            array,
            taken: AtomicBool::new(false),
            signals: Arc::new(Signals::new()?),
        })
    }
}

pub(crate) struct Connection {
    door: Arc<Door>,
    /// `None`: another VMM has the door, or the array does not serve.
    open: Option<Open>,
}

/// A connection that has a device.
struct Open {
    messages: BackendReqHandler<Mutex<Device>>,
    device: Arc<Mutex<Device>>,
    socket: Arc<OwnedFd>,
    /// Of the socket.
    watch: Option<u16>,
    /// For requests of ours.
    channel: Option<OwnedFd>,
    /// Bytes of the array when the VMM last had reason to read them.
    size_bytes: u64,
    /// Seconds in which the peer had a message to finish or to take.
    stalled: Option<u32>,
    /// A message waits until what is in flight is over.
    waits: bool,
    gone: bool,
}

/// What to do after messages.
enum Going {
    /// Wait for the next.
    Rest,
    /// More may be there, for the next turn.
    On,
    /// The front one cannot be taken now.
    Wait,
    End,
}

impl Connection {
    pub(crate) fn new(door: Arc<Door>) -> Connection {
        Connection { door, open: None }
    }

    fn open(&mut self, link: &mut dyn Link) -> Option<()> {
        let array = self.door.array;
        let export = link.view(array).filter(|export| export.serving)?;
        let socket = Arc::new(link.socket().ok()?);
        let stream = UnixStream::from(socket.try_clone().ok()?);
        if self.door.taken.swap(true, Ordering::AcqRel) {
            return None;
        }
        link.attach(array);
        let size_bytes = export.size_bytes;
        let signals = Arc::clone(&self.door.signals);
        let device = Arc::new(Mutex::new(Device::new(array, export, signals)));
        self.open = Some(Open {
            messages: BackendReqHandler::from_stream(stream, Arc::clone(&device)),
            device,
            watch: Some(link.watch(&socket)),
            socket,
            channel: None,
            size_bytes,
            stalled: None,
            waits: false,
            gone: false,
        });
        Some(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(open) = &self.open
            && !open.gone
        {
            self.door.taken.store(false, Ordering::Release);
        }
    }
}

/// A panic would have ended the process.
fn lock(device: &Mutex<Device>) -> MutexGuard<'_, Device> {
    device.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Open {
    fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Takes the messages that are there.
    fn talk(&mut self, link: &mut dyn Link) {
        let going = self.messages(link);
        (self.waits, self.stalled) = match going {
            Going::Wait if self.waits => (true, None),
            Going::Wait => (false, Some(self.stalled.unwrap_or(0))),
            _ => (false, None),
        };
        match going {
            Going::Rest if self.watch.is_none() => self.watch = Some(link.watch(&self.socket)),
            Going::End => link.nudge(link.number(), Nudge::End),
            Going::Rest | Going::On | Going::Wait => {}
        }
        lock(&self.device).take(link);
    }

    fn messages(&mut self, link: &mut dyn Link) -> Going {
        while lock(&self.device).turn.has_time() {
            let (asked, first) = match look(self.fd()) {
                Front::Nothing => return Going::Rest,
                Front::Part => {
                    self.waits = false;
                    return Going::Wait;
                }
                Front::Closed | Front::Nonsense => return Going::End,
                Front::Message { request, first } => (request, first),
            };
            if !self.is_idle_for(asked, first) {
                self.waits = true;
                return Going::Wait;
            }
            if !can_write(self.fd()) {
                self.waits = false;
                return Going::Wait;
            }
            lock(&self.device).turn.spend(MESSAGE_WORK);
            if !self.message(asked, link) {
                return Going::End;
            }
            self.look_at_rings(link);
        }
        Going::On
    }

    /// Whether nothing is in flight that a request has to wait for. If something is, no more is taken from
    /// these rings.
    fn is_idle_for(&self, asked: u32, first: u32) -> bool {
        let device = &mut *lock(&self.device);
        let rings = match asked {
            request::RESET_OWNER | request::RESET_DEVICE => &mut device.rings[..],
            request::GET_VRING_BASE => match device.rings.get_mut(first as usize) {
                Some(ring) => std::slice::from_mut(ring),
                None => &mut [],
            },
            _ => &mut [],
        };
        let idle = rings.iter().all(|ring| ring.in_flight == 0);
        if !idle {
            rings.iter_mut().for_each(|ring| ring.draining = true);
        }
        idle
    }

    /// Takes the message at the front. `false`: the peer breaks the protocol.
    fn message(&mut self, asked: u32, link: &mut dyn Link) -> bool {
        let mut device = lock(&self.device);
        if let Some(export) = link.view(device.number) {
            self.size_bytes = export.size_bytes;
            device.export = export;
        }
        let protocol = VhostUserProtocolFeatures::from_bits_retain(device.protocol);
        drop(device);
        if asked == request::SET_BACKEND_REQ_FD {
            let acknowledge = protocol.contains(VhostUserProtocolFeatures::REPLY_ACK);
            self.channel = take_channel(self.fd(), acknowledge).ok();
            return self.channel.is_some();
        }
        self.messages.handle_request().is_ok()
    }

    /// Starts the rings that can be, and watches their kicks.
    fn look_at_rings(&mut self, link: &mut dyn Link) {
        let device = &mut *lock(&self.device);
        if let Some(memory) = &device.memory {
            let events = device.features & config::EVENT_IDX != 0;
            for ring in device.rings.iter_mut().filter(|ring| ring.can_start()) {
                if !device.turn.has_time() {
                    break;
                }
                let work = ring.start(memory, events, device.inflight.as_ref());
                device.turn.spend(work);
            }
        }
        for ring in &mut device.rings {
            let stale = |(fd, _): &mut (Arc<OwnedFd>, u16)| {
                ring.kick.as_ref().is_none_or(|kick| !Arc::ptr_eq(kick, fd))
            };
            if let Some((_, watch)) = ring.watched.take_if(stale) {
                link.unwatch(watch);
            }
            if let (Some(kick), None) = (&ring.kick, &ring.watched) {
                ring.watched = Some((Arc::clone(kick), link.watch(kick)));
            }
        }
    }

    fn kicked(&mut self, watch: u16, link: &mut dyn Link) {
        let device = &mut *lock(&self.device);
        let is_its = |watched: &mut (Arc<OwnedFd>, u16)| watched.1 == watch;
        for ring in &mut device.rings {
            if ring.watched.take_if(is_its).is_some() {
                ring.take_kicks();
                let again = |kick: &Arc<OwnedFd>| (Arc::clone(kick), link.watch(kick));
                ring.watched = ring.kick.as_ref().map(again);
            }
        }
        device.take(link);
    }

    /// Has the VMM look at the size of the array, if that is another.
    fn report_size(&mut self, link: &mut dyn Link) {
        let Some(channel) = &self.channel else { return };
        let view = link.view(lock(&self.device).number);
        let Some(export) = view.filter(|export| export.size_bytes != self.size_bytes) else {
            return;
        };
        // A peer that does not read now gets it in a second.
        if config_changed(channel).is_ok() {
            self.size_bytes = export.size_bytes;
        }
    }
}

impl Protocol for Connection {
    fn opened(&mut self, link: &mut dyn Link) {
        if self.open(link).is_none() {
            link.nudge(link.number(), Nudge::End);
        }
    }

    fn received(&mut self, _bytes: &[u8], _link: &mut dyn Link) -> Received {
        unreachable!("the reactor receives nothing for a connection that carries descriptors")
    }

    fn filled(&mut self, _link: &mut dyn Link) {}

    fn replied(&mut self, tag: u64, result: Result<(), RequestError>, link: &mut dyn Link) {
        let Some(open) = &mut self.open else { return };
        lock(&open.device).replied(tag, result, open.gone, link);
        if open.waits && !open.gone {
            open.talk(link);
        }
    }

    fn patience(&self) -> Option<Nanos> {
        None
    }

    fn memory(&mut self, link: &mut dyn Link) {
        let Some(open) = &mut self.open else { return };
        let mut device = lock(&open.device);
        device.unpark(link);
        device.take(link);
    }

    fn woken(&mut self, link: &mut dyn Link) {
        if let Some(open) = &mut self.open {
            open.look_at_rings(link);
            match open.watch.is_none() && !open.waits && open.stalled.is_none() {
                true => open.talk(link),
                false => lock(&open.device).take(link),
            }
        }
    }

    fn is_session(&self) -> bool {
        true
    }

    /// Without a device it ends at once. With one it has the only place of its socket.
    fn is_proven(&self) -> bool {
        self.open.is_some()
    }

    fn carries_descriptors(&self) -> bool {
        true
    }

    fn ready(&mut self, watch: u16, link: &mut dyn Link) {
        let Some(open) = &mut self.open else { return };
        if open.watch.take_if(|own| *own == watch).is_some() {
            open.talk(link);
        } else {
            open.kicked(watch, link);
        }
    }

    fn turn_over(&mut self) -> bool {
        self.open.as_ref().is_some_and(|open| {
            let mut device = lock(&open.device);
            device.signal();
            device.turn.renew()
        })
    }

    fn ended(&mut self, link: &mut dyn Link) {
        if let Some(open) = &mut self.open {
            open.gone = true;
            lock(&open.device).abandon(link);
            self.door.taken.store(false, Ordering::Release);
        }
    }

    fn second(&mut self, link: &mut dyn Link) -> bool {
        let Some(open) = &mut self.open else {
            return true;
        };
        open.report_size(link);
        let Some(seconds) = open.stalled else {
            return true;
        };
        open.stalled = Some(seconds + 1);
        open.talk(link);
        seconds < STALLED_SECONDS_MAX
    }
}
