//! One VMM's connection.

use super::config;
use super::device::Device;
use super::ring::Ring;
use super::signals::Signals;
use super::socket::{Front, can_write, config_changed, look, request, take_channel};
use super::turn::MESSAGE_WORK;
use crate::front::{Export, Link, Nudge, Protocol, Received, Report};
use restripe_array::{Nanos, RequestError};
use std::io;
use std::ops::Range;
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
    report: Arc<Report>,
}

impl Door {
    pub(crate) fn new(array: usize, report: Report) -> io::Result<Door> {
        Ok(Door {
            array,
            taken: AtomicBool::new(false),
            signals: Arc::new(Signals::new()?),
            report: Arc::new(report),
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
    /// Seconds in which the peer had a message to finish or to take, or its first one to send.
    stalled: Option<u32>,
    /// Messages have come.
    spoken: bool,
    /// The rings that have to be idle before the message at the front is taken.
    waits: Option<Range<usize>>,
    gone: bool,
}

/// What to do after messages.
enum Going {
    /// Wait for the next.
    Rest,
    /// More may be there, for the next turn.
    On,
    /// The front one has to wait for what is in flight.
    Wait,
    /// The peer has to finish a message, or to read one.
    Stall,
    /// The connection ends, for this reason if it is not the peer's own end.
    End(Option<String>),
}

impl Connection {
    pub(crate) fn new(door: Arc<Door>) -> Connection {
        Connection { door, open: None }
    }

    /// Takes the socket's only place, or says why not.
    fn open(&mut self, link: &mut dyn Link) -> Result<(), String> {
        let (array, failed) = (self.door.array, |error: io::Error| error.to_string());
        let export = link.view(array).filter(|export| export.serving);
        let export = export.ok_or("the array does not serve")?;
        let socket = Arc::new(link.socket().map_err(failed)?);
        let stream = UnixStream::from(socket.try_clone().map_err(failed)?);
        if self.door.taken.swap(true, Ordering::AcqRel) {
            return Err(format!("{}: another VMM has its socket", export.name));
        }
        link.attach(array);
        let (signals, report) = (self.door.signals.clone(), self.door.report.clone());
        let device = Arc::new(Mutex::new(Device::new(array, export, signals, report)));
        self.open = Some(Open {
            messages: BackendReqHandler::from_stream(stream, Arc::clone(&device)),
            device,
            watch: Some(link.watch(&socket)),
            socket,
            channel: None,
            stalled: Some(0),
            spoken: false,
            waits: None,
            gone: false,
        });
        Ok(())
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

    /// Takes the messages that are there, and then chains.
    fn talk(&mut self, link: &mut dyn Link) {
        self.waits = None;
        let going = self.messages(link);
        self.stalled = match going {
            Going::Stall => Some(self.stalled.unwrap_or(0)),
            // A peer that says nothing keeps the place from others.
            Going::Rest if !self.spoken => Some(self.stalled.unwrap_or(0)),
            _ => None,
        };
        match going {
            Going::Rest if self.watch.is_none() => self.watch = Some(link.watch(&self.socket)),
            // No more is begun for it.
            Going::End(why) => return self.end(why.as_deref(), link),
            _ => {}
        }
        lock(&self.device).take(link);
    }

    /// Ends the connection, for this reason if it is not the peer that has ended it.
    fn end(&self, why: Option<&str>, link: &mut dyn Link) {
        if let Some(why) = why {
            let device = lock(&self.device);
            device
                .report
                .note(&format!("{}: {why}", device.export.name));
        }
        link.nudge(link.number(), Nudge::End);
    }

    fn messages(&mut self, link: &mut dyn Link) -> Going {
        while lock(&self.device).turn.has_time() {
            let (asked, first) = match look(self.fd()) {
                Front::Nothing => return Going::Rest,
                Front::Part => return Going::Stall,
                Front::Closed => return Going::End(None),
                Front::Nonsense => return Going::End(Some("no message is as long".to_owned())),
                Front::Message { request, first } => (request, first),
            };
            let rings = self.rings_to_drain(asked, first);
            if !lock(&self.device).drain(rings.clone()) {
                self.waits = Some(rings);
                return Going::Wait;
            }
            if !can_write(self.fd()) {
                return Going::Stall;
            }
            lock(&self.device).turn.spend(MESSAGE_WORK);
            self.spoken = true;
            if let Err(error) = self.message(asked, link) {
                return Going::End(Some(format!("message {asked}: {error}")));
            }
            self.look_at_rings(link);
        }
        Going::On
    }

    /// The rings that have to be idle before this message is taken. What another process had begun there is
    /// done again before a base is given, and not after a reset.
    fn rings_to_drain(&self, asked: u32, first: u32) -> Range<usize> {
        let device = &mut *lock(&self.device);
        let (rings, inflight) = (&mut device.rings, device.inflight.as_ref());
        let first = first as usize;
        match asked {
            request::RESET_OWNER | request::RESET_DEVICE => {
                rings.iter_mut().for_each(|ring| ring.forget(inflight));
                0..rings.len()
            }
            request::GET_VRING_BASE if first < rings.len() => first..first + 1,
            _ => 0..0,
        }
    }

    /// Takes the message at the front.
    fn message(&mut self, asked: u32, link: &mut dyn Link) -> vhost::vhost_user::Result<()> {
        let mut device = lock(&self.device);
        if let Some(export) = link.view(device.number) {
            device.export = export;
        }
        let protocol = VhostUserProtocolFeatures::from_bits_retain(device.protocol);
        drop(device);
        if asked == request::SET_BACKEND_REQ_FD {
            let acknowledge = protocol.contains(VhostUserProtocolFeatures::REPLY_ACK);
            let channel = take_channel(self.fd(), acknowledge);
            self.channel = Some(channel.map_err(vhost::vhost_user::Error::ReqHandlerError)?);
            return Ok(());
        }
        self.messages.handle_request()
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

    /// Has the VMM read the size of the array, each second until it has read this one. A VMM looks for it
    /// once its device runs.
    fn report_size(&mut self, link: &mut dyn Link) {
        let Some(channel) = &self.channel else { return };
        let device = lock(&self.device);
        let unread = |export: &Arc<Export>| device.size_read != Some(export.size_bytes);
        let view = link.view(device.number).filter(|export| export.serving);
        if view.is_some_and(|export| unread(&export)) && device.rings.iter().any(Ring::started) {
            let _ = config_changed(channel);
        }
    }
}

impl Protocol for Connection {
    fn opened(&mut self, link: &mut dyn Link) {
        if let Err(why) = self.open(link) {
            self.door.report.refused(link, &format!("a VMM: {why}"));
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
        if open.waits.is_some() && !open.gone {
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
            match open.watch.is_none() && open.stalled.is_none() {
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
            // What was answered at once may have been the last that a message waited for.
            let drained =
                |rings: &Range<usize>| device.rings[rings.clone()].iter().all(Ring::is_idle);
            let drained = open.waits.as_ref().is_some_and(drained);
            device.turn.renew() || drained
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
        if seconds >= STALLED_SECONDS_MAX {
            open.end(Some("it neither sends a message nor reads one"), link);
            return false;
        }
        open.stalled = Some(seconds + 1);
        open.talk(link);
        true
    }
}
