//! An array with a surrogate: two engines, the home set's and the surrogate's, and the overlay between users and both.
//!
//! ```text
//! users' requests -> overlay -> jobs -> child requests -> home set's engine    -> actions
//!                                                      -> surrogate's engine   -> actions
//! tasks (rebuild, scrub, ...) go on in the home set's engine, beneath the overlay, and see what home holds
//! ```
//!
//! A code cache may have a third one beside them, whose data space is its [buffer] in persistent memory.
//!
//! Both engines are whole: the surrogate has its own members, redundancy, rebuild and write hole; its data space is the
//! overlay's log. To a shell they are one engine: members are numbered through, the home set's first, and so are tags.
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

mod ahead;
mod buffer;
mod cached;
mod child;
mod clean;
mod cluster;
mod destage;
mod jobs;
mod keep;
mod kept;
mod leave;
mod migrate;
mod policy;
mod revive;
mod route;
mod session;
mod start;
mod users;
mod view;

use crate::Config;
use crate::overlay::{CopyTag, FETCHES, Overlay, SealCause, Site};
use alloc::boxed::Box;
use alloc::vec::Vec;
use buffer::Buffer;
use cached::Cached;
use child::{Children, Owner};
use cluster::Clusters;
pub use destage::{Budget, Destage, Sleep};
use jobs::Jobs;
use keep::Keeping;
use kept::Kept;
use migrate::Source;
pub use policy::Redirect;
use restripe_array::Config as SetConfig;
use restripe_array::meta::superblock::BufferMark;
use restripe_array::parts::{Buffers, NO_BUFFER, Part, Share, refuse_all};
use restripe_array::{
    Action, Actions, Command, CommandError, CommandTag, Event, Fact, Halt, Limits, Member,
    MemberInfo, Nanos, Pool, Request, RequestError, RequestOp, RequestTag, SECTOR_BYTES,
};
use revive::Revive;
use route::{PerSet, Route, SETS};
use start::Start;
use users::Users;

/// The surrogate's part of a configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SurrogateConfig {
    /// How many of the configured devices are the surrogate's: the last ones, but for its buffer's.
    pub members: u16,
    /// How many are its buffer's, the last ones.
    pub buffer_members: u16,
    pub limits: SurrogateLimits,
    pub redirect: Redirect,
    /// Users are moved out of a scrub's way, too, not only of tasks that restore redundancy.
    pub scrubs: bool,
    /// Where every write is redirected at all times.
    pub destage: Destage,
}

/// Bounds of the surrogate's engine and of the overlay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SurrogateLimits {
    /// Buffers of the surrogate's engine.
    pub pool: Pool,
    pub requests: u32,
    pub slices: u32,
    pub ios: u32,
    /// Extents of the map (IDO's D_Map), 31 bytes each.
    pub extents: u32,
    /// Or, if that is more, as many as a log holds of this length, in sectors, up to 2,097,152; 0: never.
    pub extent_sectors: u32,
    /// Copies on their way home at once, and as many on their way into the log.
    pub copies: u32,
    /// Where writes are gathered: records of 64 KiB of a cluster, which goes into the log at once.
    pub cluster_records: u32,
    /// And records in memory: those of clusters that are being filled or written, and the newest of those that were. None where
    /// nothing is gathered.
    pub records_in_memory: u32,
    /// Buffers of the engine of the code cache's buffer in persistent memory, if it has one.
    pub buffer_pool: Pool,
    /// And so many buffers of 64 KiB for what of the log is on its way home, besides those of the clusters that are just being read.
    pub parts_home: u32,
}

impl Default for SurrogateLimits {
    fn default() -> SurrogateLimits {
        SurrogateLimits {
            pool: Pool {
                small: 2048,
                large: 256,
            },
            requests: 1024,
            slices: 256,
            ios: 2048,
            extents: 1 << 18,
            extent_sectors: 0,
            copies: 8,
            cluster_records: 16,
            records_in_memory: 0,
            buffer_pool: Pool { small: 0, large: 0 },
            parts_home: 0,
        }
    }
}

/// A record's payload at most: what a large buffer holds.
const RECORD_SECTORS: u32 = restripe_array::BAND_SECTORS_MAX as u32;
/// What a map is made for, of a log that takes every write: extents of a quarter of a record, 16 KiB.
const EXTENT_SECTORS: u32 = RECORD_SECTORS / 4;
/// Extents of a map at most, 62 MiB, unless more were found in the log.
const EXTENTS_MOST: u64 = 1 << 21;
/// A buffer takes few requests at once, each of a record at most.
const BUFFER_POOL: Pool = Pool {
    small: 256,
    large: 32,
};
/// Requests, slices and operations of a buffer at once.
const BUFFER_REQUESTS: u32 = 64;
const BUFFER_SLICES: u32 = 16;
const BUFFER_IOS: u32 = 128;
/// Pages on their way into the log or out of it at once: headers of records, anchors.
const PAGES: u32 = 64;

impl SurrogateLimits {
    /// Of an array whose surrogate is a code cache: four clusters of 1 MiB in memory (RERAID, section 3.2), and 16 MiB on its way
    /// home, so many copies at once that drives can choose among them.
    pub fn gathering() -> SurrogateLimits {
        SurrogateLimits {
            extent_sectors: EXTENT_SECTORS,
            copies: 32,
            records_in_memory: 64,
            parts_home: 256,
            ..SurrogateLimits::default()
        }
    }

    /// The same with a buffer in persistent memory.
    pub fn with_buffer(mut self) -> SurrogateLimits {
        self.buffer_pool = BUFFER_POOL;
        self
    }

    /// Of an array whose first copies go ahead of the further ones: so many copies at once that drives can choose among them.
    pub fn ahead() -> SurrogateLimits {
        SurrogateLimits {
            extent_sectors: EXTENT_SECTORS,
            copies: SurrogateLimits::gathering().copies,
            ..SurrogateLimits::default()
        }
    }

    /// Extents of the map of a log of so many sectors.
    fn map_extents(&self, log_sectors: u64) -> u32 {
        let room = log_sectors.checked_div(self.extent_sectors.into());
        let room = room.unwrap_or(0).min(EXTENTS_MOST);
        self.extents.max(room as u32)
    }

    /// Buffers that neither engine has: for pages, and for copies.
    fn own_pool(&self) -> Pool {
        Pool {
            small: PAGES,
            large: 2 * self.copies + self.records_in_memory + self.homeward_buffers(),
        }
    }

    /// Buffers of what goes home from a log in which writes are gathered: kept, or being read.
    pub fn homeward_buffers(&self) -> u32 {
        self.parts_home.saturating_add(self.load_buffers())
    }

    /// Buffers of clusters that are being read, as many at once as there may be.
    fn load_buffers(&self) -> u32 {
        match self.parts_home {
            0 => 0,
            _ => self.cluster_records.saturating_mul(FETCHES as u32),
        }
    }

    /// All buffers that a surrogate takes of the pool: what the limits of its array need besides.
    pub fn whole_pool(&self) -> Pool {
        let own = self.own_pool();
        Pool {
            small: self.pool.small + own.small + self.buffer_pool.small,
            large: self.pool.large + own.large + self.buffer_pool.large,
        }
    }
}

/// What becomes of users' requests and of the two sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Idle,
    Starting,
    Serving,
    /// Without the surrogate: home has everything.
    Alone,
    Stopping(Stopping),
    Stopped,
}

/// How far a stop has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stopping {
    /// Users' requests and jobs are ending.
    Draining,
    /// What first copies have ahead of the further ones is made durable in the log.
    Flushing,
    /// All sets get this number on record, and those up to the last ([`session`]).
    Numbering { session: u32, last: u32 },
    /// A set is stopping, the other waits for it.
    Set(Site),
}

/// A stop that is under way.
struct Stop {
    /// Who asked for it.
    tag: CommandTag,
    /// Of what has stopped by now.
    result: Result<(), CommandError>,
}

pub(crate) struct Pair {
    config: Config,
    surrogate: SurrogateConfig,
    /// By [`Site`].
    sets: PerSet<Part>,
    /// Which set was told to start, and serves.
    started: PerSet<bool>,
    now: Nanos,
    out: Actions,
    /// What a set answered in the step under way.
    scratch: Actions,
    route: Route,
    stage: Stage,
    start: Option<Box<Start>>,
    stop: Option<Stop>,
    overlay: Option<Overlay>,
    users: Users,
    children: Children,
    jobs: Jobs,
    buffers: Buffers,
    clusters: Clusters,
    buffer: Buffer,
    policy: policy::State,
    /// Clean copies on their way into the log.
    copies: Vec<(CopyTag, Source)>,
    keeping: Keeping,
    kept: Kept,
    cached: Cached,
    revive: Revive,
    /// The buffers of each set's engine.
    shares: PerSet<Share>,
    /// What the surrogate's set could not be started for.
    absent: Option<CommandError>,
    /// What its buffer's set could not.
    buffer_absent: Option<CommandError>,
    /// Replies that wait until every set is sure to be this run's.
    held: Vec<(RequestTag, Result<(), RequestError>)>,
}

impl Pair {
    pub(crate) fn new(config: Config, surrogate: SurrogateConfig) -> Pair {
        let (sets, shares, buffers) = build(&config, &surrogate);
        let logs = usize::from(surrogate.members);
        let homes = config.members.len() - logs - usize::from(surrogate.buffer_members);
        Pair {
            sets,
            started: PerSet([false; SETS]),
            now: Nanos::ZERO,
            out: Actions::new(),
            scratch: Actions::new(),
            route: Route::new(&config.members, homes, logs),
            stage: Stage::Idle,
            start: None,
            stop: None,
            overlay: None,
            users: Users::default(),
            children: Children::default(),
            jobs: Jobs::default(),
            buffers,
            clusters: Clusters::default(),
            buffer: Buffer::default(),
            policy: policy::State::new(surrogate.redirect, surrogate.scrubs),
            copies: Vec::new(),
            keeping: Keeping::default(),
            kept: Kept::default(),
            cached: Cached::default(),
            revive: Revive::default(),
            shares,
            absent: None,
            buffer_absent: None,
            held: Vec::new(),
            config,
            surrogate,
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
                self.tell(site, Event::Device(io, result));
            }
            Event::Compute(mut compute, verdict) => match route::untagged(compute.tag) {
                (Some(site), tag) => {
                    compute.tag = tag;
                    self.tell(site, Event::Compute(compute, verdict));
                }
                (None, tag) => self.computed(tag, compute, verdict),
            },
            Event::Timer => self.timer(),
            Event::Arrived(info) => self.arrived(info),
            Event::Departed(member) => {
                let (site, member) = self.route.set_of(member);
                self.tell_former(site, &Event::Departed(member));
                self.tell(site, Event::Departed(member));
            }
            Event::Command(tag, command) => self.command(tag, command),
            Event::Turn => self.turn(),
            Event::Paused(time) => route::SITES
                .into_iter()
                .for_each(|site| self.tell(site, Event::Paused(time))),
        }
    }

    /// Keeps back every answer while another run may have a set. Memory and log may be old by then.
    fn hold_while_unsure(&mut self) {
        if self.sets.0.iter().any(|set| set.unsure()) {
            let held = self
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
                self.tell(site, Event::Turn);
            }
            // What the sets are asked for in their turn begins with a further one.
            self.children.delivered = false;
            self.settle();
            if !self.children.delivered {
                break;
            }
        }
    }

    fn timer(&mut self) {
        for site in route::SITES {
            if self.route.is_due(site, self.now) {
                self.tell(site, Event::Timer);
            }
        }
    }

    /// Gives a set an event, and takes up what it wants.
    fn tell(&mut self, site: Site, event: Event) {
        self.tell_by(site, |set, now, actions| set.step(now, event, actions));
    }

    fn tell_by(&mut self, site: Site, step: impl FnOnce(&mut Part, Nanos, &mut Actions)) {
        let mut actions = core::mem::take(&mut self.scratch);
        step(&mut self.sets[site], self.now, &mut actions);
        for action in actions.drain(..) {
            self.take_up(site, action);
        }
        self.scratch = actions;
        if let Some(halt @ Halt::Owned(_)) = self.sets[site].halt() {
            self.all_disowned(halt);
        }
    }

    /// Another run has one of the sets, and so has the others, or will: nothing is concluded of that set's end.
    fn all_disowned(&mut self, halt: Halt) {
        for site in route::SITES {
            let set = &self.sets[site];
            if set.serving() && !set.halted() {
                self.tell_by(site, |set, now, actions| {
                    set.step_by(now, actions, |core| core.halt_for(halt));
                });
            }
        }
    }

    fn take_up(&mut self, site: Site, action: Action) {
        match action {
            Action::Reply(tag, result) => self.child_replied(site, tag, result),
            Action::Wake(at) => self.route.wake(site, at),
            Action::CommandReply(tag, result) => {
                let result = result.map_err(|error| self.route.error_of(site, error));
                match tag == child_command(site) {
                    true => self.answered(site, result),
                    false => self.out.push(Action::CommandReply(tag, result)),
                }
            }
            // Told by the pair, when both are ready.
            Action::Fact(Fact::Started { .. } | Fact::Stopped) => {}
            Action::Fact(Fact::Lost { lba, sectors }) if site == Site::Home => {
                self.lost_at_home(lba, sectors);
            }
            Action::Fact(fact) => {
                let fact = self.route.fact_of(site, fact);
                self.tell_of(site, fact);
            }
            action => self.out.push(self.route.action_of(site, action)),
        }
    }

    /// Everything that follows from the step, until nothing more does.
    fn settle(&mut self) {
        loop {
            while self.next_reply() || self.next_effect() || self.next_handed() || self.next_child()
            {
            }
            let works = !self.revive.holds_overlay() && (self.resume_jobs() || self.drive());
            let moves = works || self.advance_start() || self.advance_stop();
            if !moves && !self.unshelve() && !self.advance_revival() {
                break;
            }
        }
        if let Some(at) = self.route.armed() {
            self.out.push(Action::Wake(at));
        }
    }

    /// A child request ended: whoever asked for it goes on.
    fn next_reply(&mut self) -> bool {
        let Some((owner, result)) = self.children.reply() else {
            return false;
        };
        self.child_ended(owner, result);
        true
    }

    fn next_effect(&mut self) -> bool {
        if self.revive.holds_overlay() {
            return false;
        }
        let Some(effect) = self.overlay.as_mut().and_then(Overlay::effect) else {
            return false;
        };
        self.perform(effect);
        true
    }

    // ---------------------------------------------------------------------------------------------------- requests

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
                self.children.ask(Site::Home, owner, request);
            }
            _ => self.reply(request.tag, Err(RequestError::Unavailable)),
        }
    }

    fn request_overlaid(&mut self, mut request: Request) {
        if request.op != RequestOp::Read && self.lacks_room() {
            return self.reply(request.tag, Err(RequestError::NoSpace));
        }
        let home = &mut self.sets[Site::Home];
        if let Err(error) = home.admit(&request) {
            return self.reply(request.tag, Err(error));
        }
        home.note_request(&request);
        if request.op.changes() {
            home.cache_change_begins(request.offset, request.bytes);
        }
        request.tag = self.users.begin(&request, self.now);
        if request.op == RequestOp::Read {
            self.begin_keeping(&request);
        }
        let redirect = request.op.changes() && self.redirects(&request);
        let overlay = self.overlay.as_mut().expect("a serving pair has one");
        overlay.request(request, redirect);
    }

    fn reply(&mut self, tag: RequestTag, result: Result<(), RequestError>) {
        self.out.push(Action::Reply(tag, result));
    }

    /// As [`crate::Engine::ready`].
    pub(crate) fn ready(&self) -> bool {
        match (&self.overlay, self.stage) {
            _ if !self.revive.rests() => self.revive.has_room(self.config.limits.requests),
            (Some(overlay), Stage::Serving) => overlay.ready(),
            (_, Stage::Alone) => self.children.is_empty(Site::Home) && self.home().has_room(),
            _ => true,
        }
    }

    /// Changes something in the home set beside its events. Its turn follows.
    fn at_home<T>(&mut self, change: impl FnOnce(&mut Part) -> T) -> T {
        self.at(Site::Home, change)
    }

    /// The same in either set.
    fn at<T>(&mut self, site: Site, change: impl FnOnce(&mut Part) -> T) -> T {
        self.children.delivered = true;
        let set = &mut self.sets[site];
        let outcome = change(set);
        for action in set.take_actions() {
            self.take_up(site, action);
        }
        outcome
    }

    pub(crate) fn home(&self) -> &Part {
        &self.sets[Site::Home]
    }

    fn buffer_set(&self) -> &Part {
        &self.sets[Site::Buffer]
    }

    fn log(&self) -> &Part {
        &self.sets[Site::Log]
    }

    // ---------------------------------------------------------------------------------------------------- commands

    fn command(&mut self, tag: CommandTag, command: Command) {
        match command {
            Command::Start(mode) => {
                self.revive.note(mode);
                self.begin_start(tag, mode);
            }
            Command::Stop => self.begin_stop(tag),
            Command::Rate { .. }
            | Command::Throttle(_)
            | Command::Order(_)
            | Command::OnDemand(_)
            | Command::Moves(_)
            | Command::CopyBack(_)
            | Command::Date(_) => self.tell(Site::Home, Event::Command(tag, command)),
            Command::Surrogate(Some(_)) => {
                let error = CommandError::Busy("it was started as an array with a surrogate");
                self.out.push(Action::CommandReply(tag, Err(error)));
            }
            Command::AddToBuffer(_) if self.surrogate.buffer_members == 0 => {
                let error = CommandError::Busy(NO_BUFFER);
                self.out.push(Action::CommandReply(tag, Err(error)));
            }
            Command::AddToSurrogate(_) | Command::AddToBuffer(_) if self.stage == Stage::Alone => {
                let error = CommandError::Busy("the surrogate was not started with the array");
                self.out.push(Action::CommandReply(tag, Err(error)));
            }
            _ if !matches!(self.stage, Stage::Serving | Stage::Alone) => {
                let error = CommandError::Busy("the array is not serving");
                self.out.push(Action::CommandReply(tag, Err(error)));
            }
            Command::Surrogate(None) => self.begin_leaving(tag),
            Command::Destage => {
                let result = self.ask_destage();
                self.out.push(Action::CommandReply(tag, result));
            }
            command if self.hold(tag, &command) || self.fails_log(tag, &command) => {}
            command => {
                let (site, command) = self.route_command(command);
                self.tell(site, Event::Command(tag, command));
            }
        }
    }

    /// Whether a member may be failed by command. Of a log or buffer only the command tells: main members may have all its data.
    pub(crate) fn may_fail(&self, member: Member) -> Result<(), CommandError> {
        match self.route.set_of(member) {
            (Site::Home, own) => {
                let may = self.home().may_fail(own);
                may.map_err(|error| self.route.error_of(Site::Home, error))
            }
            _ => Ok(()),
        }
    }

    /// Whose a command is, in that set's numbers.
    fn route_command(&mut self, command: Command) -> (Site, Command) {
        let on = |route: &Route, member, make: fn(Member) -> Command| {
            let (site, member) = route.set_of(member);
            (site, make(member))
        };
        match command {
            Command::Fail(member) => on(&self.route, member, Command::Fail),
            Command::Remove(member) => on(&self.route, member, Command::Remove),
            Command::Add(member) => on(&self.route, member, Command::Add),
            Command::Overwrite(member) => on(&self.route, member, Command::Overwrite),
            Command::AddToSurrogate(member) => {
                (Site::Log, Command::Add(self.move_to(Site::Log, member)))
            }
            Command::AddToBuffer(member) => {
                let local = self.move_to(Site::Buffer, member);
                (Site::Buffer, Command::Add(local))
            }
            Command::Replace { old, new } => {
                let (site, old) = self.route.set_of(old);
                let new = self.move_to(site, new);
                // In a surrogate a member that is gone is replaced as well: devices are added to the array otherwise.
                match site != Site::Home && self.sets[site].slot_of(old).is_none() {
                    true => (site, Command::Add(new)),
                    false => (site, Command::Replace { old, new }),
                }
            }
            other => (Site::Home, other),
        }
    }

    /// A device that no set has taken in comes to this one.
    fn move_to(&mut self, site: Site, member: Member) -> Member {
        let (at, local) = self.route.set_of(member);
        if at == site || self.sets[at].slot_of(local).is_some() {
            return local;
        }
        let Some(info) = self.route.reassign(member, site) else {
            return local;
        };
        let overwrite = self.sets[at].may_overwrite(local);
        self.sets[site].arrived_from(info, overwrite);
        self.route.set_of(member).1
    }

    fn arrived(&mut self, info: MemberInfo) {
        self.route.arrived(info, Site::Home);
        self.tell_former(Site::Home, &Event::Arrived(info));
        self.tell(Site::Home, Event::Arrived(info));
    }

    fn begin_stop(&mut self, tag: CommandTag) {
        if !matches!(self.stage, Stage::Serving | Stage::Alone) {
            let error = CommandError::Busy("the array is not serving");
            self.out.push(Action::CommandReply(tag, Err(error)));
            return;
        }
        self.stop = Some(Stop {
            tag,
            result: Ok(()),
        });
        self.stage = Stage::Stopping(Stopping::Draining);
        self.refuse_held();
        self.keep_surrogate("the array is stopping");
        if let Some(overlay) = &mut self.overlay {
            overlay.rest();
        }
    }

    /// Goes on with a stop: home first, since what it ends with may need the log no more.
    fn advance_stop(&mut self) -> bool {
        match self.stage {
            Stage::Stopping(Stopping::Draining) => self.drain(),
            Stage::Stopping(Stopping::Numbering { session, last }) => self.number_on(session, last),
            _ => false,
        }
    }

    fn drain(&mut self) -> bool {
        let quiet = self.overlay.as_ref().is_none_or(Overlay::is_quiet);
        if let Some(overlay) = self.overlay.as_mut().filter(|one| one.is_idle()) {
            overlay.seal(SealCause::Stop);
        }
        let works = !self.jobs.is_idle()
            || !self.clusters.is_idle()
            || !self.buffer.is_idle()
            || !self.keeping.is_idle()
            || !self.copies.is_empty();
        if !quiet || works || !self.children.is_idle() {
            return false;
        }
        self.forget_redirects();
        let empty = self
            .overlay
            .as_ref()
            .is_none_or(Overlay::holds_nothing_instead);
        // While others are brought in step with first copies, these go on to be ahead.
        if empty && self.home().records_primary_first() && self.home().sectors_in_doubt() == 0 {
            self.at_home(|core| {
                core.set_ahead(false);
                core.clean_by_and_by();
            });
        }
        if self.home().is_all_dirty() && self.knows_what_is_ahead() {
            self.leave_ahead();
            self.number_stop();
            return true;
        }
        let buffered = self.buffer_mark() == BufferMark::Counts && !self.home().mode().read_only;
        match self.home().is_all_dirty() || buffered && self.overlay.is_some() {
            true => {
                self.stage = Stage::Stopping(Stopping::Flushing);
                self.children.ask(Site::Log, Owner::Stop, jobs::flush());
            }
            false => self.number_stop(),
        }
        true
    }

    /// The log has what home may be out of step in, or does not count any more. And it has all that the buffer had.
    fn stop_flushed(&mut self, result: Result<(), RequestError>) {
        let alone = result.is_err() || self.home().records_primary_only();
        match (self.home().is_all_dirty(), alone) {
            (true, true) => self.at_home(|home| home.set_alone()),
            (true, false) => self.at_home(|home| home.clean_by_and_by()),
            (false, _) => {}
        }
        let broken = self.overlay.as_ref().is_none_or(Overlay::is_broken);
        if result.is_ok() && self.buffer_mark() == BufferMark::Counts && !broken {
            // The log's stop puts it on record.
            let _ = self.mark_buffer(BufferMark::Idle);
        }
        self.number_stop();
    }

    /// Nothing is under way any more: a stop gives the sets numbers as a start does, and then stops them.
    fn number_stop(&mut self) {
        if !self.numbers_stop() {
            return self.stop_set(Site::Home);
        }
        let session = self.next_session();
        let last = session + 1;
        self.stage = Stage::Stopping(Stopping::Numbering { session, last });
    }

    /// False while a number is on its way. A set that cannot be written gets none: the sets stop as they are.
    fn number_on(&mut self, session: u32, last: u32) -> bool {
        match self.number_sets(session) {
            Ok(false) => return false,
            Ok(true) if session < last => {
                let session = session + 1;
                self.stage = Stage::Stopping(Stopping::Numbering { session, last });
            }
            Ok(true) | Err(_) => self.stop_set(Site::Home),
        }
        true
    }

    fn stop_set(&mut self, site: Site) {
        self.stage = Stage::Stopping(Stopping::Set(site));
        self.tell(site, Event::Command(child_command(site), Command::Stop));
    }

    /// A set has answered a command of the pair's own; errors name members as the pair does.
    fn answered(&mut self, site: Site, result: Result<(), CommandError>) {
        match self.stage {
            Stage::Stopping(Stopping::Set(Site::Home)) if self.started[Site::Log] => {
                self.note_stop(result);
                self.stop_set(Site::Log);
            }
            Stage::Stopping(Stopping::Set(Site::Home | Site::Log))
                if self.started[Site::Buffer] =>
            {
                self.note_log_stop(site, result);
                self.stop_set(Site::Buffer);
            }
            Stage::Stopping(Stopping::Set(Site::Buffer)) => self.stopped(),
            Stage::Stopping(_) => {
                self.note_log_stop(site, result);
                self.stopped();
            }
            _ => self.set_answered(site, result),
        }
    }

    /// A surrogate that holds nothing, and cannot be marked clean, is found out at its next start.
    fn note_log_stop(&mut self, site: Site, result: Result<(), CommandError>) {
        let holds = self.overlay.as_ref();
        if site == Site::Home || holds.is_some_and(|one| !one.holds_nothing_instead()) {
            self.note_stop(result);
        }
    }

    /// The first error of the sets is told.
    fn note_stop(&mut self, result: Result<(), CommandError>) {
        let stop = self.stop.as_mut().expect("one is under way");
        if stop.result.is_ok() {
            stop.result = result;
        }
    }

    fn stopped(&mut self) {
        self.stage = Stage::Stopped;
        let Stop { tag, result } = self.stop.take().expect("one is under way");
        if result.is_ok() {
            self.out.push(Action::Fact(Fact::Stopped));
        }
        self.out.push(Action::CommandReply(tag, result));
    }
}

/// The tag of commands that the pair itself gives to a set.
fn child_command(site: Site) -> CommandTag {
    CommandTag(u64::MAX - site as u64)
}

/// The engines of the sets, and the buffers that none has.
fn build(config: &Config, surrogate: &SurrogateConfig) -> (PerSet<Part>, PerSet<Share>, Buffers) {
    let mut rest = Share::whole(config.limits.pool);
    let whole = surrogate.limits.whole_pool();
    let pools = [
        Pool {
            small: config.limits.pool.small - whole.small,
            large: config.limits.pool.large - whole.large,
        },
        surrogate.limits.pool,
        surrogate.limits.buffer_pool,
    ];
    let shares = PerSet(pools.map(|pool| rest.split_off(pool)));
    let sets = PerSet(route::SITES.map(|site| {
        let (pool, share) = (pools[site as usize], &shares[site]);
        Part::new(set_config(config, surrogate, site, pool), share.clone())
    }));
    (sets, shares, Buffers::new(rest))
}

fn set_config(config: &Config, surrogate: &SurrogateConfig, site: Site, pool: Pool) -> SetConfig {
    let buffers = config.members.len() - usize::from(surrogate.buffer_members);
    let (others, buffer) = config.members.split_at(buffers);
    let (home, log) = others.split_at(buffers - usize::from(surrogate.members));
    let limits = match site {
        Site::Home => Limits {
            pool,
            ..config.limits
        },
        Site::Log => Limits {
            pool,
            requests: surrogate.limits.requests,
            slices: surrogate.limits.slices,
            ios: surrogate.limits.ios,
            cache: None,
            ..config.limits
        },
        Site::Buffer => Limits {
            pool,
            requests: BUFFER_REQUESTS,
            slices: BUFFER_SLICES,
            ios: BUFFER_IOS,
            cache: None,
            ..config.limits
        },
    };
    let members = [home, log, buffer][site as usize];
    config.of_set(members.to_vec(), limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_log_has_a_larger_map() {
        const GIB: u64 = 1 << 21;
        let of =
            |limits: SurrogateLimits| [1, 4, 16, 1024].map(|gib| limits.map_extents(gib * GIB));
        assert_eq!(
            of(SurrogateLimits::gathering()),
            [1 << 18, 1 << 18, 1 << 20, 1 << 21]
        );
        assert_eq!(of(SurrogateLimits::default()), [1 << 18; 4]);
    }
}
