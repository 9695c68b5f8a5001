//! An array with a surrogate: two engines, the home set's and the surrogate's, and the overlay between users
//! and both.
//!
//! ```text
//! users' requests -> overlay -> jobs -> child requests -> home set's engine    -> actions
//!                                                      -> surrogate's engine   -> actions
//! tasks (rebuild, scrub, ...) go on in the home set's engine, beneath the overlay, and see what home holds
//! ```
//!
//! A code cache may have a third one beside them, whose data space is its [buffer](nvram) in persistent
//! memory.
//!
//! Both engines are whole: the surrogate has its own members, redundancy, rebuild and write hole; its data
//! space is the overlay's log. To a shell they are one engine: members are numbered through, the home set's
//! first, and so are tags.
//!
//! | stage    | cause                                                  | next     |
//! |----------|--------------------------------------------------------|----------|
//! | idle     | the command to start                                   | starting |
//! | starting | both sets serve, the log's records are known ([`start`]) | serving  |
//! | starting | home serves, and nothing that counts lies elsewhere    | alone    |
//! | starting | a set cannot start                                     | idle     |
//! | serving  | the command to stop                                    | stopping |
//! | alone    | the command to stop                                    | stopping |
//! | stopping | users' requests and jobs are over, both sets stopped   | stopped  |
//!
//! The tier has floors. Each owns its state and the floor beneath it, and calls downward only. From the top:
//!
//! | floor               | what it does                                                            |
//! |---------------------|-------------------------------------------------------------------------|
//! | [`Pair`]            | takes events, effects and results to the other floors; status           |
//! | [`revive`], [`stop`], [`start`] | starts halted sets again; stops all sets; starts them       |
//! | [`remove`]          | removes the log set from an array that serves                           |
//! | [`destage`]         | brings data from the log into the main set                              |
//! | [`clean`]           | moves live data within the log                                          |
//! | [`redirect`]        | decides which requests go to the log set                                |
//! | [`deferred_mirror`] | writes primary copies first (GRAID, ERAID)                              |
//! | [`nvram`]           | keeps records in persistent memory until the log has them               |
//! | [`pack`]            | packs writes into whole rows of the log                                 |
//! | [`append`]          | writes records and anchors into the log                                 |
//! | [`reads`]           | reads and flushes for users                                             |
//! | [`works`]           | memory and computations                                                 |
//! | [`children`]        | requests of the sets                                                    |
//! | [`facts`]           | sets, overlay, stage                                                    |

mod append;
mod children;
mod clean;
mod commands;
mod deferred_mirror;
mod destage;
mod drive;
mod effects;
mod facts;
mod jobs;
mod nvram;
mod pack;
mod reads;
mod redirect;
mod remove;
mod revive;
mod route;
mod start;
mod stop;
mod view;
mod works;

use crate::config::{Config, SurrogateConfig};
use crate::overlay::Site;
use alloc::vec::Vec;
use children::{Answer, Owner};
pub use destage::budget::Budget;
use facts::Stage;
use restripe_array::parts::refuse_all;
use restripe_array::{
    Action, Actions, Event, Nanos, Request, RequestError, RequestOp, RequestTag, SECTOR_BYTES,
};
use revive::Revival;

pub(crate) struct Pair {
    below: Revival,
    /// Replies that wait until every set is sure to be this run's.
    held: Vec<(RequestTag, Result<(), RequestError>)>,
}

floor!(Pair over Revival);

impl Pair {
    pub(crate) fn new(config: Config, surrogate: SurrogateConfig) -> Pair {
        Pair {
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
                self.tell_former(site, &Event::Departed(member));
                self.deliver(site, Event::Departed(member));
            }
            Event::Command(tag, command) => self.command(tag, command),
            Event::Turn => self.turn(),
            Event::Paused(time) => route::SITES
                .into_iter()
                .for_each(|site| self.deliver(site, Event::Paused(time))),
        }
        self.attend();
    }

    /// Gives a set an event, and attends to its answer.
    fn deliver(&mut self, site: Site, event: Event) {
        self.tell(site, event);
        self.attend();
    }

    /// Sets have answered commands of the tier's own: the start or stop goes on, and then the sets' further
    /// actions are taken up.
    fn attend(&mut self) {
        for Answer { site, result, rest } in core::mem::take(&mut self.answers) {
            self.answered(site, result);
            self.attend();
            self.take_up_rest(site, rest);
            self.attend();
        }
    }

    /// Keeps back every answer while another run may have a set. Memory and log may be old by then.
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
            for site in route::SITES {
                self.deliver(site, Event::Turn);
            }
            // What the sets are asked for in their turn begins with a further one.
            self.delivered = false;
            self.settle();
            if !self.delivered {
                break;
            }
        }
    }

    fn timer(&mut self) {
        for site in route::SITES {
            let now = self.now;
            if self.route.is_due(site, now) {
                self.deliver(site, Event::Timer);
            }
        }
    }

    /// Everything that follows from the step, until nothing more does.
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

    /// Goes on with an attempt to start halted sets once more; false if it has to wait.
    fn revive_on(&mut self) -> bool {
        let moves = self.advance_revival();
        self.attend();
        for event in self.released() {
            self.take(event);
        }
        moves
    }

    /// A child request ended: whoever asked for it goes on.
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
            Stage::Alone => {
                let owner = Owner::User(request.tag);
                self.ask(Site::Home, owner, request);
            }
            _ => self.reply(request.tag, Err(RequestError::Unavailable)),
        }
    }

    fn request_overlaid(&mut self, mut request: Request) {
        if request.op != RequestOp::Read && self.lacks_room() {
            return self.reply(request.tag, Err(RequestError::NoSpace));
        }
        if let Err(error) = self.begin_user(&mut request) {
            return self.reply(request.tag, Err(error));
        }
        if request.op == RequestOp::Read {
            self.begin_keeping(&request);
        }
        let redirect = request.op.changes() && self.redirects(&request);
        if redirect && self.surrogate.redirect == crate::Redirect::Reraid {
            self.note_gathered();
        }
        self.overlay_mut().request(request, redirect);
    }

    /// As [`crate::Engine::ready`].
    pub(crate) fn ready(&self) -> bool {
        match (&self.overlay, self.stage) {
            _ if !self.attempt.rests() => self.revive.has_room(self.config.limits.requests),
            (Some(overlay), Stage::Serving) => overlay.ready(),
            (_, Stage::Alone) => self.none_waits_for(Site::Home) && self.home().has_room(),
            _ => true,
        }
    }
}
