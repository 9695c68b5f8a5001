//! Requests on their way: taken from the rings, asked of the array, and given back to the driver.
//!
//! A write's bytes are copied out of the guest's memory once, before parity is computed of them: a guest
//! may change its memory at any time, and parity must match what is on the members. A read goes by memory
//! of the daemon's own as well, since a member that was given up on may still write to the memory of its
//! last read.

use super::chain::{copy_from, copy_to, read};
use super::config;
use super::device::Device;
use super::job::{Job, What};
use super::limits::Guest;
use super::request::{Asked, Range, Request, StatusPlace, id_of, parse, status};
use super::ring::{Broken, Ring};
use super::turn::CHAIN_WORK;
use crate::front::{Ask, Export, Link};
use restripe_array::{RequestError, RequestOp};
use std::sync::Arc;
use vm_memory::Bytes;

impl Device {
    /// Takes what there is in all rings, as far as there are room and time.
    pub(crate) fn take(&mut self, link: &mut dyn Link) {
        let Some(memory) = self.memory.clone() else {
            return;
        };
        let (first, count) = (self.first, self.rings.len());
        for ring in (0..count).map(|step| (first + step) % count) {
            if !self.rings[ring].takes() {
                continue;
            }
            match self.take_from(ring, &memory, link) {
                // The ring behind the last that had its turn is the next.
                Ok(true) => self.first = (ring + 1) % count,
                Ok(false) => {}
                Err(Broken) => self.rings[ring].fail(),
            }
        }
    }

    /// Takes nothing more of these rings but what another process had begun. Whether nothing is in flight
    /// there.
    pub(crate) fn drain(&mut self, rings: std::ops::Range<usize>) -> bool {
        let drained = |idle: bool, ring: &mut Ring| ring.drain() && idle;
        self.rings[rings].iter_mut().fold(true, drained)
    }

    /// Takes what there is in one ring. Whether anything was.
    fn take_from(
        &mut self,
        ring: usize,
        memory: &Arc<Guest>,
        link: &mut dyn Link,
    ) -> Result<bool, Broken> {
        self.rings[ring].rouse(memory)?;
        let export = link.view(self.number);
        let export = export.unwrap_or_else(|| Arc::clone(&self.export));
        let mut taken = false;
        while self.turn.has_time() {
            if self.parked.is_some() || link.full() {
                link.await_turn();
                break;
            }
            self.turn.spend(CHAIN_WORK);
            match self.rings[ring].next(memory, self.inflight.as_ref())? {
                Some(head) => {
                    taken = true;
                    self.begin(ring, head, (memory, &export), link)?;
                }
                None if self.rings[ring].rest(memory)? => self.rings[ring].rouse(memory)?,
                None => break,
            }
        }
        Ok(taken)
    }

    /// Begins with a chain.
    fn begin(
        &mut self,
        ring: usize,
        head: u16,
        (memory, export): (&Arc<Guest>, &Export),
        link: &mut dyn Link,
    ) -> Result<(), Broken> {
        self.rings[ring].in_flight += 1;
        let request = read(memory, self.rings[ring].table(), head, &mut self.turn);
        let Ok(Request {
            asked,
            status: Some(place),
        }) = request.map(|chain| parse(memory, chain, export.size_bytes))
        else {
            // There is no place for a status that could be trusted to be one.
            return self.give_back(ring, head, 0);
        };
        if asked.changes() && export.read_only {
            return self.answer(ring, head, memory, place, Err(status::IOERR));
        }
        let (what, spans) = match asked {
            Asked::Read(range, spans) => (What::Read(range), spans),
            Asked::Write(range, spans) => (What::Write(range), spans),
            Asked::Flush => (What::Flush, Vec::new()),
            Asked::Trim(ranges) | Asked::Zero(ranges) if ranges.is_empty() => {
                return self.answer(ring, head, memory, place, Ok(0));
            }
            Asked::Trim(ranges) => (What::Ranges(RequestOp::Trim, ranges), Vec::new()),
            Asked::Zero(ranges) => {
                let op = RequestOp::WriteZeroes { fast: false };
                (What::Ranges(op, ranges), Vec::new())
            }
            Asked::Id(spans) => {
                let id = id_of(&self.export.name);
                let copied = copy_to(memory, &spans, &id).map_err(|_| Broken)?;
                return self.answer(ring, head, memory, place, Ok(copied));
            }
            Asked::Refuse(why) => return self.answer(ring, head, memory, place, Err(why)),
        };
        let job = self.jobs.insert(Job {
            ring,
            head,
            memory: Arc::clone(memory),
            status: place,
            spans,
            what,
            buf: None,
            left: 0,
            failed: false,
        });
        self.ask(job, link);
        Ok(())
    }

    /// Asks the array, or parks the job when there is no memory for it.
    fn ask(&mut self, number: u32, link: &mut dyn Link) {
        let job = self.jobs.get_mut(number).expect("the caller's");
        if let What::Read(range) | What::Write(range) = &job.what {
            self.turn.spend_copy(range.bytes);
            job.buf = link.buffer(range.bytes as u32);
            let Some(buf) = job.buf else {
                self.parked = Some(number);
                return link.await_memory();
            };
            if matches!(job.what, What::Write(_))
                && copy_from(&job.memory, &job.spans, link.bytes_mut(buf)).is_err()
            {
                job.failed = true;
                return self.finish(number, link);
            }
        }
        let (op, ranges) = match &job.what {
            What::Read(range) => (RequestOp::Read, vec![*range]),
            What::Write(range) => (RequestOp::Write, vec![*range]),
            What::Ranges(op, ranges) => (*op, ranges.clone()),
            What::Flush => (
                RequestOp::Flush,
                vec![Range {
                    offset: 0,
                    bytes: 0,
                }],
            ),
        };
        let through = !(self.writeback && config::flushes(self.features));
        let (tag, export, buf) = (u64::from(number), self.number, job.buf);
        job.left = ranges.len() as u32;
        for range in ranges {
            link.submit(Ask {
                tag,
                export,
                op,
                offset: range.offset,
                bytes: range.bytes,
                buf,
                fua: through && self.export.durable && op.changes(),
            });
        }
    }

    /// Memory may be free now.
    pub(crate) fn unpark(&mut self, link: &mut dyn Link) {
        if let Some(number) = self.parked.take() {
            self.ask(number, link);
        }
    }

    /// The VMM is gone: nothing more is asked.
    pub(crate) fn abandon(&mut self, link: &mut dyn Link) {
        if let Some(number) = self.parked.take() {
            self.drop_job(number, link);
        }
    }

    /// The array has answered. `gone`: the VMM is, so its memory is left as it is.
    pub(crate) fn replied(
        &mut self,
        tag: u64,
        result: Result<(), RequestError>,
        gone: bool,
        link: &mut dyn Link,
    ) {
        let number = tag as u32;
        let Some(job) = self.jobs.get_mut(number) else {
            return;
        };
        job.failed |= result.is_err();
        job.left -= 1;
        if job.left > 0 {
            return;
        }
        match gone {
            true => self.drop_job(number, link),
            false => self.finish(number, link),
        }
    }

    /// Gives the chain of a job back.
    fn finish(&mut self, number: u32, link: &mut dyn Link) {
        let Some(job) = self.jobs.remove(number) else {
            return;
        };
        let mut result = match job.failed {
            true => Err(status::IOERR),
            false => Ok(0),
        };
        if let Some(buf) = job.buf {
            if matches!(job.what, What::Read(_)) && result.is_ok() {
                let copied = copy_to(&job.memory, &job.spans, link.bytes(buf));
                result = copied.map_err(|_| status::IOERR);
            }
            link.release(buf);
        }
        let answered = self.answer(job.ring, job.head, &job.memory, job.status, result);
        if answered.is_err() {
            self.rings[job.ring].fail();
        }
    }

    fn drop_job(&mut self, number: u32, link: &mut dyn Link) {
        if let Some(job) = self.jobs.remove(number) {
            self.rings[job.ring].in_flight -= 1;
            if let Some(buf) = job.buf {
                link.release(buf);
            }
        }
    }

    /// Writes the status: how many bytes were written before it, or why not.
    fn answer(
        &mut self,
        ring: usize,
        head: u16,
        memory: &Guest,
        place: StatusPlace,
        result: Result<u32, u8>,
    ) -> Result<(), Broken> {
        let (status, bytes) = match result {
            Ok(bytes) => (status::OK, bytes),
            Err(why) => (why, 0),
        };
        let written = memory.write_obj(status, place.at);
        self.give_back(ring, head, place.length(bytes, written.is_ok()))
    }

    fn give_back(&mut self, ring: usize, head: u16, bytes: u32) -> Result<(), Broken> {
        let memory = self.memory.clone().ok_or(Broken)?;
        let ring = &mut self.rings[ring];
        ring.in_flight -= 1;
        ring.give_back(&memory, self.inflight.as_ref(), head, bytes)
    }

    /// Signals the driver of all that was given back since the last call.
    pub(crate) fn signal(&mut self) {
        let (memory, mut list) = (self.memory.as_deref(), Vec::new());
        for (number, ring) in self.rings.iter_mut().enumerate() {
            if ring.take_signals(memory, &mut list) {
                let name = &self.export.name;
                let why = format!("{name}: queue {number} makes no sense, and was stopped");
                self.report.note(&why);
            }
        }
        self.signals.send(&list);
    }
}
