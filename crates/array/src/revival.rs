//! How an array that halted for want of space goes on without a restart.
//!
//! | state    | cause                                              | next                              |
//! |----------|----------------------------------------------------|-----------------------------------|
//! | -        | a write, flush or command at a halted array        | draining                          |
//! | draining | nothing is under way any more                      | starting                          |
//! | draining | a member that is asked may still do what was given up on | -: what waits is refused    |
//! | starting | the array has been started anew                    | -: what waits goes to the new one |
//! | starting | the start was refused, and nothing of it is under way | -: what waits is refused       |
//!
//! A halted array is as if power had gone: what was being written is in doubt until a start recovers it. So
//! the engine starts the array once more beside its halted self, by the rules of every start, and puts that
//! in its place. Until then requests and commands wait. Members that are on record as failed take no part, so
//! they may hang. If the start is refused, the halted array is as before: it reads, and the next write tries
//! again after [`RETRY`].

use crate::config::Config;
use crate::contract::{
    Action, Actions, Command, CommandError, CommandTag, Event, Fact, Halt, RequestOp, StartMode,
};
use crate::facts::NEVER;
use crate::instance::Instance;
use crate::members::pool::Share;
use crate::units::Nanos;
use alloc::boxed::Box;
use alloc::collections::VecDeque;

/// Between a start that was refused or a halt that followed at once, and the next attempt for a write.
pub const RETRY: Nanos = Nanos::from_millis(500);
/// The tag of the attempt's own command.
pub const TAG: CommandTag = CommandTag(u64::MAX - 16);

/// What becomes of a halted array.
#[derive(Default)]
pub(crate) struct Revival {
    /// How the array was started.
    mode: StartMode,
    state: State,
    /// What came meanwhile.
    waiting: VecDeque<Event>,
    requests: u32,
    not_before: Nanos,
    refused: Refused,
    /// What the attempt has told so far: facts of an array that serves, if it will.
    told: Actions,
    /// What the halted array tells meanwhile of devices that come or go.
    former_told: Actions,
}

#[derive(Default)]
enum State {
    #[default]
    Rests,
    Draining,
    Starting {
        attempt: Box<Instance>,
        answer: Option<Result<(), CommandError>>,
    },
}

impl Revival {
    pub(crate) fn rests(&self) -> bool {
        matches!(self.state, State::Rests)
    }

    /// Requests that wait for its end.
    pub(crate) fn requests(&self) -> u32 {
        self.requests
    }

    /// Takes note of how the array is started.
    pub(crate) fn note(&mut self, event: &Event) {
        if let Event::Command(_, Command::Start(mode)) = event {
            self.mode = mode.again();
        }
    }

    /// One step of a set by itself, halted or not.
    pub(crate) fn step(
        &mut self,
        core: &mut Box<Instance>,
        config: &Config,
        now: Nanos,
        event: Event,
        actions: &mut Actions,
    ) {
        let asks = matches!(event, Event::Request(_) | Event::Command(..));
        let devices = matches!(event, Event::Arrived(_) | Event::Departed(_));
        if self.rests() && self.calls_for_it(core, now, &event) {
            self.state = State::Draining;
        }
        match &mut self.state {
            State::Rests => core.step(now, event, actions),
            _ if asks => {
                self.requests += u32::from(matches!(event, Event::Request(_)));
                self.waiting.push_back(event);
            }
            State::Draining => core.step(now, event, actions),
            State::Starting { attempt, answer } => {
                if devices {
                    step(core, now, event.clone(), &mut self.former_told, actions);
                    actions.retain(|action| !matches!(action, Action::Wake(_)));
                }
                let told = step(attempt, now, event, &mut self.told, actions);
                *answer = told.or(answer.take());
            }
        }
        self.advance(core, config, now, actions);
    }

    /// Whether an event at a halted array is worth an attempt.
    fn calls_for_it(&self, core: &Instance, now: Nanos, event: &Event) -> bool {
        let halted = core.halt == Some(Halt::NoSpace) && core.serving();
        let may_write = !self.mode.read_only && !core.orphans_may_count();
        let asks = match event {
            Event::Request(request) => request.op != RequestOp::Read && now >= self.not_before,
            Event::Command(_, command) => !matches!(command, Command::Start(_)),
            _ => false,
        };
        halted && may_write && asks
    }

    fn advance(
        &mut self,
        core: &mut Box<Instance>,
        config: &Config,
        now: Nanos,
        actions: &mut Actions,
    ) {
        if matches!(self.state, State::Draining) {
            if core.orphans_may_count() {
                return self.end(core, now, actions);
            }
            if core.idle_but_for_orphans() {
                self.begin(core, config, now, actions);
            }
        }
        let State::Starting { attempt, answer } = &mut self.state else {
            return;
        };
        match answer {
            Some(Ok(())) => self.succeed(core, now, actions),
            Some(Err(why)) if attempt.idle_but_for_orphans() => {
                attempt.hand_operations_to(core);
                self.refused.record(why.clone(), actions);
                // Recovery may have brought rows in sync that were in doubt.
                core.cache_forgets();
                core.armed = NEVER;
                self.told.clear();
                actions.append(&mut self.former_told);
                self.end(core, now, actions);
            }
            _ => {}
        }
    }

    fn begin(&mut self, core: &mut Instance, config: &Config, now: Nanos, actions: &mut Actions) {
        let share = Share::whole(config.limits.pool);
        let mut attempt = Box::new(Instance::new(config.clone(), share));
        attempt.tasks.paced_like(&core.tasks);
        for member in core.failed_before() {
            attempt.devices[usize::from(member.0)].info.sectors = 0; // So nothing is asked of it.
        }
        core.hand_operations_to(&mut attempt);
        let mode = StartMode {
            from_minority: core.is_complete(),
            ..self.mode
        };
        let start = Event::Command(TAG, Command::Start(mode));
        let answer = step(&mut attempt, now, start, &mut self.told, actions);
        attempt.lose_nothing();
        self.state = State::Starting { attempt, answer };
    }

    fn succeed(&mut self, core: &mut Box<Instance>, now: Nanos, actions: &mut Actions) {
        let State::Starting { mut attempt, .. } = core::mem::take(&mut self.state) else {
            unreachable!("the caller looked");
        };
        attempt.go_on_after(core);
        self.refused = Refused::default();
        *core = attempt;
        keep_untold(&mut self.former_told, &self.told, is_failure);
        actions.append(&mut self.former_told);
        actions.append(&mut self.told);
        self.end(core, now, actions);
    }

    /// What waited goes to the array as it is now.
    fn end(&mut self, core: &mut Instance, now: Nanos, actions: &mut Actions) {
        self.state = State::Rests;
        self.requests = 0;
        self.not_before = now.after(RETRY);
        for event in core::mem::take(&mut self.waiting) {
            core.step(now, event, actions);
        }
        core.step(now, Event::Turn, actions);
    }
}

/// Why the last attempt was refused.
#[derive(Default)]
pub struct Refused(Option<CommandError>);

impl Refused {
    /// Records the error of an attempt. It is a fact, unless it is `NoSpace` or the same as last time.
    pub fn record(&mut self, why: CommandError, actions: &mut Actions) {
        if *why.innermost() != CommandError::NoSpace && self.0.as_ref() != Some(&why) {
            let why = Box::new(why.clone());
            actions.push(Action::Fact(Fact::StaysHalted { why }));
        }
        self.0 = Some(why);
    }
}

/// Of what a halted array told while an attempt was under way, members' failures alone count where that
/// serves: each once.
pub fn keep_untold(former: &mut Actions, told: &Actions, is_failure: impl Fn(&Fact) -> bool) {
    let failed = |action: &Action| matches!(action, Action::Fact(fact) if is_failure(fact));
    former.retain(|action| failed(action) && !told.contains(action));
}

/// Whether a fact is that a member of a set failed.
pub(crate) fn is_failure(fact: &Fact) -> bool {
    matches!(fact, Fact::MemberFailed { .. })
}

/// One step of an attempt: its answer, if it gave one. What it tells is kept back until it serves.
fn step(
    attempt: &mut Instance,
    now: Nanos,
    event: Event,
    told: &mut Actions,
    actions: &mut Actions,
) -> Option<Result<(), CommandError>> {
    let mut own = Actions::new();
    attempt.step(now, event, &mut own);
    let mut answer = None;
    for action in own {
        match action {
            Action::CommandReply(TAG, result) => answer = Some(result),
            Action::Fact(_) => told.push(action),
            other => actions.push(other),
        }
    }
    answer
}
