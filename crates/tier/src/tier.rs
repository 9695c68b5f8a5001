//! An array with a log set: two sets, and the overlay between clients and both.
//!
//! ```text
//! clients' requests -> overlay -> jobs -> child requests -> main set -> actions
//!                                                        -> log set  -> actions
//! tasks (rebuild, scrub, ...) run in the main set, below the overlay, and see its data only
//! ```
//!
//! A code cache may have a third set, its [NVRAM](crate::nvram).
//!
//! Each set is complete: the log set has its own members, redundancy, rebuild and write hole. Its data space
//! is the overlay's log. A reactor sees one engine: members and tags are numbered through, the main set's
//! first.
//!
//! | stage    | cause                                                  | next     |
//! |----------|--------------------------------------------------------|----------|
//! | idle     | the command to start                                   | starting |
//! | starting | both sets serve, the log's records are known ([`crate::start`]) | serving  |
//! | starting | the main set serves, and no other set has valid data   | main only |
//! | starting | a set cannot start                                     | idle     |
//! | serving  | the command to stop                                    | stopping |
//! | main only | the command to stop                                    | stopping |
//! | stopping | clients' requests and jobs have ended, the sets stopped | stopped  |
//!
//! The tier has floors. Each owns its state and the floor beneath it, and calls downward only. From the top:
//!
//! | floor | what it does |
//! |---|---|
//! | `tier` | takes events, effects and results to the other floors; `commands`, `drive` and `view` belong to it |
//! | `revive`, `stop`, `start` | restarts halted sets; stops all sets; starts them |
//! | `remove` | removes the log set from an array that serves |
//! | `destage` | copies data from the log into the main set |
//! | `clean` | moves live data within the log |
//! | `redirect` | decides which requests go to the log set |
//! | `deferred_mirror` | writes primary copies first (GRAID, ERAID) |
//! | `nvram`, `sessions` | stores records in persistent memory until the log has them; numbers that show which set is old |
//! | `pack` | packs writes into whole rows of the log |
//! | `append` | writes records and anchors into the log |
//! | `reads` | reads and flushes for clients |
//! | `works` | memory and computations |
//! | `children` | requests of the sets |
//! | `facts` | sets, overlay, stage |
//!
//! The rules of a feature are in [`crate::overlay`], which moves no byte. Their execution is here, in a file
//! or folder of the same name.

use crate::children::{Answer, Owner};
use crate::config::{Config, SurrogateConfig};
use crate::facts::Stage;
use crate::overlay::{Effect, Site};
use crate::reads::lost_of_home;
use crate::revive::Revival;
use crate::route::{self, SITES};
use crate::start::reading::START_TAGS;
use crate::works::Job;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use restripe_array::parts::refuse_all;
use restripe_array::{
    Action, Actions, Compute, Event, Nanos, Request, RequestError, RequestOp, RequestTag,
    SECTOR_BYTES, Tag, Verdict,
};

pub(crate) struct Tier {
    below: Revival,
    /// Replies that wait until every set is known to be this run's.
    held: Vec<(RequestTag, Result<(), RequestError>)>,
}

floor!(Tier over Revival);

impl Tier {
    pub(crate) fn new(config: Config, surrogate: SurrogateConfig) -> Tier {
        Tier {
            held: Vec::new(),
            below: Revival::new(config, surrogate),
        }
    }

    /// As [`crate::Engine::handle`].
    pub(crate) fn handle(&mut self, now: Nanos, event: Event, actions: &mut Actions) {
        self.now = now;
        core::mem::swap(&mut self.out, actions);
        if let Some(event) = self.park(event) {
            self.take(event);
        }
        self.settle();
        self.hold_while_unsure();
        core::mem::swap(&mut self.out, actions);
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Request(request) => self.request(request),
            Event::Device(mut io, result) => {
                let (site, member) = self.route.set_of(io.member);
                io.member = member;
                io.tag = route::untagged(io.tag).1;
                self.deliver(site, Event::Device(io, result));
            }
            Event::Compute(mut compute, verdict) => match route::untagged(compute.tag) {
                (Some(site), tag) => {
                    compute.tag = tag;
                    self.deliver(site, Event::Compute(compute, verdict));
                }
                (None, tag) => self.computed(tag, compute, verdict),
            },
            Event::Timer => self.timer(),
            Event::Arrived(info) => self.arrived(info),
            Event::Departed(member) => {
                let (site, member) = self.route.set_of(member);
                self.step_former_set(site, &Event::Departed(member));
                self.deliver(site, Event::Departed(member));
            }
            Event::Command(tag, command) => self.command(tag, command),
            Event::Turn => self.turn(),
            Event::Paused(time) => SITES
                .into_iter()
                .for_each(|site| self.deliver(site, Event::Paused(time))),
        }
        self.attend();
    }

    /// Gives a set an event, and attends to its answer.
    pub(crate) fn deliver(&mut self, site: Site, event: Event) {
        self.step_set(site, event);
        self.attend();
    }

    /// Attends to sets that have answered commands of the tier's own: the start or stop continues, and then
    /// the sets' further actions are taken up.
    fn attend(&mut self) {
        for Answer { site, result, rest } in core::mem::take(&mut self.answers) {
            self.answered(site, result);
            self.attend();
            self.take_up_rest(site, rest);
            self.attend();
        }
    }

    /// Holds back every reply while another run may have a set. Memory and log may be stale by then.
    fn hold_while_unsure(&mut self) {
        if self.sets.0.iter().any(|set| set.unsure()) {
            let held = self
                .below
                .out
                .extract_if(.., |action| matches!(action, Action::Reply(..)));
            self.held.extend(held.filter_map(|action| match action {
                Action::Reply(tag, result) => Some((tag, result)),
                _ => None,
            }));
            return;
        }
        let held = core::mem::take(&mut self.held).into_iter();
        self.out
            .extend(held.map(|(tag, result)| Action::Reply(tag, result)));
        if self.sets.0.iter().any(|set| set.disowned()) {
            refuse_all(&mut self.out);
        }
    }

    fn turn(&mut self) {
        loop {
            for site in SITES {
                self.deliver(site, Event::Turn);
            }
            // Requests that the sets get in their turn begin with a further turn.
            self.delivered = false;
            self.settle();
            if !self.delivered {
                break;
            }
        }
    }

    fn timer(&mut self) {
        for site in SITES {
            let now = self.now;
            if self.route.is_due(site, now) {
                self.deliver(site, Event::Timer);
            }
        }
    }

    /// Does everything that follows from the step, until nothing more does.
    fn settle(&mut self) {
        loop {
            while self.next_reply() || self.next_effect() || self.next_handed() || self.next_child()
            {
                self.attend();
            }
            let works = !self.holds_overlay() && (self.resume_jobs() || self.drive());
            let moves = works || self.advance_start() || self.advance_stop();
            self.attend();
            if !moves && !self.unshelve() && !self.revive_on() {
                break;
            }
        }
        if let Some(at) = self.route.armed() {
            self.out.push(Action::Wake(at));
        }
    }

    /// Continues an attempt to restart halted sets. Returns false if it has to wait.
    fn revive_on(&mut self) -> bool {
        let moves = self.advance_revival();
        self.attend();
        for event in self.released() {
            self.take(event);
        }
        moves
    }

    /// A child request ended: its owner continues.
    fn next_reply(&mut self) -> bool {
        let Some((owner, result)) = self.next_ended() else {
            return false;
        };
        self.child_ended(owner, result);
        true
    }

    fn next_effect(&mut self) -> bool {
        if self.holds_overlay() {
            return false;
        }
        let Some(effect) = self.overlay.as_mut().and_then(|one| one.effect()) else {
            return false;
        };
        self.perform(effect);
        true
    }

    fn request(&mut self, request: Request) {
        if !request.offset.is_multiple_of(SECTOR_BYTES)
            || !request.bytes.is_multiple_of(SECTOR_BYTES)
        {
            return self.reply(request.tag, Err(RequestError::NotWholeSectors));
        }
        match self.stage {
            Stage::Serving => self.request_overlaid(request),
            Stage::MainOnly => {
                let owner = Owner::Client(request.tag);
                self.ask(Site::Home, owner, request);
            }
            _ => self.reply(request.tag, Err(RequestError::Unavailable)),
        }
    }

    fn request_overlaid(&mut self, mut request: Request) {
        if request.op != RequestOp::Read && self.lacks_room() {
            return self.reply(request.tag, Err(RequestError::NoSpace));
        }
        if let Err(error) = self.begin_client(&mut request) {
            return self.reply(request.tag, Err(error));
        }
        if request.op == RequestOp::Read {
            self.begin_read_copies(&request);
        }
        let redirect = request.op.changes() && self.redirects(&request);
        if redirect && self.surrogate.redirect == crate::Redirect::Reraid {
            self.note_packed();
        }
        self.overlay_mut().request(request, redirect);
    }

    /// As [`crate::Engine::ready`].
    pub(crate) fn ready(&self) -> bool {
        match (&self.overlay, self.stage) {
            _ if !self.attempt.rests() => self.revive.has_room(self.config.limits.requests),
            (Some(overlay), Stage::Serving) => overlay.ready(),
            (_, Stage::MainOnly) => self.none_waits_for(Site::Home) && self.home().has_room(),
            _ => true,
        }
    }

    /// Whether a request that changes some of these sectors may be in flight.
    pub(crate) fn is_written(&self, sectors: &Range<u64>) -> bool {
        match (&self.overlay, self.stage) {
            _ if !self.attempt.rests() => true,
            (Some(overlay), Stage::Serving) => overlay.is_written(sectors),
            (_, Stage::MainOnly) => {
                !self.none_waits_for(Site::Home) || self.home().is_written(sectors)
            }
            _ => false,
        }
    }

    // ----------------------------------------------------------------------------------- effects and results

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Read {
                part,
                home,
                copy,
                buf,
            } => self.read_cached(part, home, copy, buf),
            Effect::WritePrimaries {
                sequence,
                request,
                all,
            } => self.queue_primary_write(sequence, request, all),
            Effect::Pass { part, request } => {
                self.ask(Site::Home, Owner::Part(part), request);
            }
            Effect::Flush { part, site } => self.flush_set(part, site),
            Effect::Append {
                extent,
                payload,
                durable,
            } => self.append(extent, payload, durable),
            Effect::Pack {
                tag,
                extent,
                at,
                source,
            } => self.pack(tag, extent, at, source),
            Effect::Seal {
                sequence,
                extents,
                payload_sectors,
                durable,
            } => self.seal(sequence, extents, payload_sectors, durable),
            Effect::WriteNvram(wanted) => self.queue_version(wanted),
            Effect::DisableNvram => self.disable_buffer(),
            Effect::Fetch { part, pieces } => self.fetch(part, pieces),
            Effect::Move { part, at, sectors } => self.moves.push_back((part, at, sectors)),
            Effect::Moved { buf } => self.release_moved(buf),
            Effect::Forget { home, log } => self.forget_staged(home, &log),
            Effect::ExpectWrites { home, soon } => {
                self.at_home(|core| core.foresee_writes(home, soon))
            }
            Effect::Destage { part, extents } => self.queue_copy(part, extents),
            Effect::Void { part, below } => self.make_obsolete(part, None, below),
            Effect::Reuse {
                part,
                segment,
                durable,
            } => self.make_obsolete(part, Some(segment), durable),
            Effect::Copied(copy, result) => self.copied(copy, result),
            Effect::Reply(tag, result) => {
                if !self.holds_reply(tag, result) {
                    self.answer(tag, result);
                }
            }
        }
    }

    /// Starts work that waited for a mark, for its time or for a buffer. Returns false if none could start.
    fn resume_jobs(&mut self) -> bool {
        let packs = self.next_pack() | self.next_seal();
        let packs = packs | self.next_version() | self.advance_disable();
        let packs = packs | self.number_after_loss();
        let destages = self.next_fetch() | self.next_copy() | self.next_move();
        packs | self.next_primary_write() | self.next_append() | destages | self.next_anchors()
    }

    fn computed(&mut self, tag: Tag, mut compute: Box<Compute>, verdict: Verdict) {
        let page = compute.page.take();
        self.jobs.boxes.recycle_compute(compute);
        if let Some(read) = tag.0.checked_sub(START_TAGS) {
            return self.start_computed(read, page, verdict);
        }
        if let Some(Job::Slot) = self.jobs.list.get(tag.0) {
            return self.slot_computed(page, verdict);
        }
        if let Some(page) = page {
            self.jobs.boxes.recycle_page(page);
        }
        match (self.jobs.list.get(tag.0).copied(), verdict) {
            (Some(Job::Pack(pack)), _) => {
                self.jobs.list.remove(tag.0);
                self.overlay_mut().packed(pack);
            }
            (Some(Job::ReadMemory { part, sequence }), _) => {
                self.memory_read(tag.0, part, sequence);
            }
            (Some(Job::Seal(sequence)), Verdict::Checksum(crc)) => {
                self.put_sealed_header(tag.0, sequence, crc);
            }
            (Some(Job::Seal(sequence)), _) => self.write_sealed(tag.0, sequence),
            (Some(Job::Version(index)), Verdict::Checksum(crc)) => {
                self.put_version(tag.0, index, crc);
            }
            (Some(Job::Version(index)), _) => self.write_version(tag.0, index),
            (Some(Job::Stage(load)), _) => self.piece_staged(tag.0, load),
            (Some(Job::Cached { part, memory, way }), _) => {
                self.cached_copied(tag.0, part, memory, way);
            }
            (Some(Job::DestageCopy(copy)), _) => self.copy_moved(tag.0, copy, Ok(())),
            (Some(Job::Append(_)), Verdict::Checksum(crc)) => self.put_header(tag.0, crc),
            (Some(Job::Append(_)), _) => self.write_record(tag.0),
            (Some(Job::Anchor(page)), _) => self.put_anchor(tag.0, page),
            (Some(Job::CopyOut(out)), _) => self.append_read(tag.0, out),
            (job, _) => unreachable!("{job:?} computes nothing"),
        }
    }

    fn child_ended(&mut self, owner: Owner, result: Result<(), RequestError>) {
        let result = match owner {
            Owner::Job(job) if self.reads_primary(job) => result,
            Owner::LogPart { .. } | Owner::Job(_) => result.map_err(|error| self.of_log(error)),
            _ => result,
        };
        match owner {
            Owner::Client(tag) => self.reply(tag, result),
            Owner::Part(part) => self.part_done(part, result),
            Owner::PrimaryPart {
                part,
                home,
                at,
                buf,
            } => self.primary_read(part, home, at, buf, result),
            Owner::Primaries(sequence) => self.primaries_written(sequence, result),
            // The main set has the data, too.
            Owner::LogPart {
                part,
                home,
                clean,
                buf,
            } if self.is_gone() || clean && result.is_err() => {
                self.read(Site::Home, Owner::Part(part), home, buf);
            }
            Owner::LogPart {
                part, home, buf, ..
            } => {
                let sectors = u64::from(buf.bytes) / SECTOR_BYTES;
                let result = result.map_err(|error| lost_of_home(error, home, sectors));
                self.part_done(part, result);
            }
            Owner::Job(job) => self.job_child_ended(job, result),
            Owner::NvramFlush(part) => self.buffer_flushed(part, result),
            Owner::Stop => self.stop_flushed(result),
            Owner::Start => self.start_written(result),
            Owner::StartRead(read) => self.start_read(read, result),
        }
    }

    fn job_child_ended(&mut self, job: u32, result: Result<(), RequestError>) {
        match self.jobs.list.get(job).copied() {
            Some(Job::Append(_)) => self.append_written(job, result),
            Some(Job::DestageCopy(copy)) => self.copy_moved(job, copy, result),
            Some(Job::Anchor(page)) => {
                let all = self.anchor_written(job, page, result);
                if let Some(result) = all.filter(|_| self.start.is_some()) {
                    self.start_written(result);
                }
            }
            Some(Job::Version(index)) => self.version_written(job, index, result),
            Some(Job::Slot) => self.slot_moved(result),
            Some(Job::Load(load)) => self.load_read(job, load, result),
            Some(Job::Move { part, buf }) => self.move_read(job, part, buf, result),
            Some(Job::Seal(sequence)) => {
                self.jobs.list.remove(job);
                self.sealed(sequence, result);
            }
            Some(
                Job::CopyOut(_)
                | Job::Pack(_)
                | Job::ReadMemory { .. }
                | Job::Stage(_)
                | Job::Cached { .. },
            )
            | None => {
                unreachable!("it requested nothing, or has ended")
            }
        }
    }
}
