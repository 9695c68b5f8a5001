//! A replay in virtual time: requests at their times or by depth, deeds at the beginnings of phases.
//!
//! | state | event | next |
//! |---|---|---|
//! | phase | its time has passed, its rebuild has ended, or its last request is answered | the next phase, by its deed |
//! | last phase | the same | the end; what is outstanding is not waited for |

use super::facts::{Log, Moved, Rebuild};
use super::record::{Answer, Reading, Recorder};
use super::second::{Second, Twice};
use super::stage::Stage;
use super::{Deed, OUTSTANDING_MAX, Pace, Script, Until};
use crate::trace::{Op, Request, TraceError};
use restripe_array::layout::Layout;
use restripe_array::{
    BufRef, CommandError, Fact, Member, Nanos, RequestOp, RequestTag, SECTOR_BYTES, TaskKind,
    TaskOutcome,
};
use restripe_io::control::{FactView, Telling, member_name};
use restripe_sim::world::Happening;

/// Marks that a replay sets in the world.
const ARRIVAL: u64 = 1;
const PHASE_END: u64 = 2;
const LOOK: u64 = 3;
const SECOND_FAILURE: u64 = 4;
/// What an extent of the map costs (see `SurrogateLimits::extents`), and a zone of the table of reads.
const EXTENT_BYTES: u64 = 31;
const ZONE_BYTES: u64 = 8;

type Source<'a> = &'a mut dyn Iterator<Item = Result<Request, TraceError>>;

/// A request that was made.
#[derive(Clone, Copy)]
struct Open {
    arrived: Nanos,
    bytes: u64,
    writes: bool,
    held: bool,
    moved: bool,
}

/// A request that is to be made.
#[derive(Clone, Copy)]
struct Next {
    request: Request,
    due: Nanos,
    held: bool,
}

struct Replay<'a> {
    stage: &'a mut Stage,
    source: Source<'a>,
    script: &'a Script,
    recorder: Recorder,
    open: Vec<Option<Open>>,
    free: Vec<u32>,
    serial: u64,
    next: Option<Next>,
    exhausted: bool,
    /// The world's time at which the trace's time `first` is.
    base: Nanos,
    /// How long the array was away: requests are made by so much later.
    away: Nanos,
    first: Option<u64>,
    marked: Option<Nanos>,
    phase: usize,
    phase_end: Option<Nanos>,
    rebuild_ended: bool,
    twice: Twice,
    moved: Option<Moved>,
}

/// Replays requests on a simulated array.
pub fn replay(stage: &mut Stage, source: Source<'_>, script: &Script) -> Result<Log, String> {
    let most = match script.pace {
        Pace::Open { .. } => OUTSTANDING_MAX,
        Pace::Closed { depth } => depth.clamp(1, OUTSTANDING_MAX),
    };
    let base = stage.world.now();
    let replay = Replay {
        stage,
        source,
        script,
        recorder: Recorder::new(script.step_ns),
        open: vec![None; most as usize],
        free: (0..most).rev().collect(),
        serial: 0,
        next: None,
        exhausted: false,
        base,
        away: Nanos::ZERO,
        first: None,
        marked: None,
        phase: 0,
        phase_end: None,
        rebuild_ended: false,
        twice: Twice::default(),
        moved: None,
    };
    replay.run()
}

impl Replay<'_> {
    fn run(mut self) -> Result<Log, String> {
        self.stage.chart(self.script.step_ns);
        self.look();
        self.enter()?;
        while self.phase < self.script.plans.len() {
            self.feed()?;
            if self.phase_over() {
                self.leave();
                self.phase += 1;
                self.enter()?;
                continue;
            }
            if !self.stage.world.step() {
                return Err("the array came to rest before the replay's end".into());
            }
            while let Some(happening) = self.stage.world.happening() {
                self.happen(happening)?;
            }
        }
        if let Some(violation) = self.stage.world.violations().first() {
            return Err(format!("the engine broke its contract: {violation:?}"));
        }
        Ok(self.finish())
    }

    fn now(&self) -> Nanos {
        self.stage.world.now()
    }

    /// Nanoseconds since the replay began.
    fn elapsed(&self) -> u64 {
        self.now().since(self.base).0
    }

    // ----------------------------------------------------------------------------------------------- phases

    fn enter(&mut self) -> Result<(), String> {
        let Some(plan) = self.script.plans.get(self.phase) else {
            return Ok(());
        };
        let (name, deed, until) = (&plan.name, plan.deed, plan.until);
        if deed == Deed::Crash {
            self.crash()?;
        }
        let reading = self.reading();
        self.recorder.begin(name, self.elapsed(), reading);
        let most = match until {
            Until::Passed(ns) | Until::Rebuilt(ns) => Some(Nanos(ns)),
            Until::RebuiltTwice {
                member,
                at_milli,
                most,
            } => {
                self.twice.plan(Second { member, at_milli });
                self.stage.world.mark(self.now(), SECOND_FAILURE);
                Some(Nanos(most))
            }
            Until::Since { before, least } => {
                let passed = self.recorder.lasted();
                Some(Nanos(match before > passed {
                    true => before - passed,
                    false => least,
                }))
            }
            Until::Exhausted => None,
        };
        self.phase_end = most.map(|most| self.now().after(most));
        if let Some(end) = self.phase_end {
            self.stage.world.mark(end, PHASE_END);
        }
        match deed {
            Deed::Nothing | Deed::Crash => {}
            Deed::Fail(member) => {
                self.stage.fail(Member(member));
            }
            Deed::Spare => {
                self.stage.add_spare()?;
            }
            Deed::Check => {
                self.stage.check();
            }
            Deed::Grow => {
                self.stage.grow();
            }
            Deed::Reshape => {
                self.stage.reshape();
            }
        }
        Ok(())
    }

    /// Power goes and comes back. Whoever waited for an answer is gone; requests to come wait until the array serves.
    fn crash(&mut self) -> Result<(), String> {
        let gone = self.now();
        self.stage.crash()?;
        let away = self.now().since(gone);
        self.away = self.away.after(away);
        if let Some(next) = &mut self.next {
            next.due = next.due.after(away);
        }
        self.open.fill(None);
        self.free = (0..self.open.len() as u32).rev().collect();
        self.marked = None;
        let at = self.elapsed();
        self.recorder.happened(at, "power was cut");
        let tasks = self.stage.world.status().set.tasks;
        if !tasks.iter().any(|task| task.kind == TaskKind::Resync) {
            return Err("after the cut there is nothing to resynchronise".into());
        }
        self.begins(at, "resynchronisation begins");
        self.look();
        Ok(())
    }

    /// What restores redundancy has begun.
    fn begins(&mut self, at_ns: u64, told: &str) {
        self.recorder.happened(at_ns, told);
        self.recorder.log().rebuild = Some(Rebuild {
            from_ns: at_ns,
            to_ns: None,
            rows_done: 0,
            rows_total: 0,
        });
    }

    fn phase_over(&self) -> bool {
        let Some(plan) = self.script.plans.get(self.phase) else {
            return true;
        };
        let passed = self.phase_end.is_some_and(|end| self.now() >= end);
        match plan.until {
            Until::Passed(_) | Until::Since { .. } => passed,
            Until::Rebuilt(_) => passed || self.rebuild_ended,
            Until::RebuiltTwice { .. } => passed || self.twice.has_ended(),
            Until::Exhausted => self.exhausted && self.free.len() == self.open.len(),
        }
    }

    fn leave(&mut self) {
        let reading = self.reading();
        self.recorder.end(self.now().since(self.base).0, reading);
    }

    fn reading(&self) -> Reading {
        let status = self.stage.world.status();
        let overlay = status
            .surrogate
            .as_ref()
            .and_then(|surrogate| surrogate.overlay);
        Reading {
            counters: status.counters,
            redirected: overlay.map_or([0; 2], |overlay| {
                let counted = overlay.counters;
                let alone = counted.reads_of_log.saturating_sub(counted.reads_of_both);
                [counted.redirected_writes, alone]
            }),
            busy_ns: self.stage.busy_ns(),
            labour: self.stage.labour(),
        }
    }

    /// Looks at what the surrogate has of the array, once a step.
    fn look(&mut self) {
        let status = self.stage.world.status();
        let Some(overlay) = status.surrogate.and_then(|surrogate| surrogate.overlay) else {
            return;
        };
        let [instead, also, clean] = overlay.sectors;
        let elapsed = self.elapsed();
        let whole = self.recorder.rebuild().and_then(|rebuild| rebuild.to_ns);
        let zones = self.stage.world.machine().heat().popularity.len() as u64;
        let moved = self.moved.get_or_insert_default();
        moved.extents = moved.extents.max(overlay.extents.into());
        moved.extent_bytes = EXTENT_BYTES;
        moved.clean_bytes = moved.clean_bytes.max(clean * SECTOR_BYTES);
        moved.heat_bytes = zones * ZONE_BYTES;
        moved.destages = overlay.destages;
        moved.cleanings = overlay.counters.cleanings;
        moved.moved_sectors = overlay.counters.sectors_moved;
        moved.home_writes = overlay.counters.destage_writes;
        moved.home_sectors = overlay.counters.sectors_destaged;
        moved.clusters_read = overlay.counters.clusters_read;
        moved.clusters_reread = overlay.counters.clusters_reread;
        moved.looks += 1;
        moved.looks_home += u64::from(overlay.going_home);
        moved.whole_ns = whole;
        if whole.is_some() && instead + also == 0 {
            moved.home_ns.get_or_insert(elapsed);
        }
        let next = self.now().after(Nanos(self.script.step_ns));
        self.stage.world.mark(next, LOOK);
    }

    // --------------------------------------------------------------------------------------------- requests

    /// Makes the requests that are due, as far as there is room.
    fn feed(&mut self) -> Result<(), String> {
        while let Some(mut next) = self.peek()? {
            if next.due > self.now() {
                self.wait_until(next.due);
                break;
            }
            if self.free.is_empty() || !self.stage.world.ready() {
                next.held = matches!(self.script.pace, Pace::Open { .. });
                self.next = Some(next);
                break;
            }
            self.next = None;
            self.make(&next);
        }
        Ok(())
    }

    fn wait_until(&mut self, due: Nanos) {
        if self.marked != Some(due) {
            self.marked = Some(due);
            self.stage.world.mark(due, ARRIVAL);
        }
    }

    fn peek(&mut self) -> Result<Option<Next>, String> {
        if self.next.is_none() && !self.exhausted {
            match self.source.next() {
                None => self.exhausted = true,
                Some(request) => {
                    let request = request.map_err(|error| error.to_string())?;
                    let due = self.due(&request);
                    let held = false;
                    self.next = Some(Next { request, due, held });
                }
            }
        }
        Ok(self.next)
    }

    /// When a request is to be made. A trace that goes back in time does so at once.
    fn due(&mut self, request: &Request) -> Nanos {
        let Pace::Open { speed_milli } = self.script.pace else {
            return self.base;
        };
        let first = *self.first.get_or_insert(request.time);
        let since = u128::from(request.time.saturating_sub(first));
        let scaled = since * 1000 / u128::from(speed_milli.max(1));
        self.base
            .after(self.away)
            .after(Nanos(u64::try_from(scaled).unwrap_or(u64::MAX / 2)))
    }

    /// Requests that the surrogate took, or served alone.
    fn moved_so_far(&self) -> u64 {
        let counted = self.stage.world.machine().moved();
        counted.map_or(0, |counted| {
            let alone = counted.reads_of_log.saturating_sub(counted.reads_of_both);
            counted.redirected_writes + alone
        })
    }

    fn make(&mut self, next: &Next) {
        let slot = self.free.pop().expect("seen to be there");
        let request = &next.request;
        let arrived = match self.script.pace {
            Pace::Open { .. } => next.due,
            Pace::Closed { .. } => self.now(),
        };
        self.open[slot as usize] = Some(Open {
            arrived,
            bytes: request.length,
            writes: request.op != Op::Read,
            held: next.held,
            moved: false,
        });
        let before = self.moved_so_far();
        self.serial += 1;
        let length = u32::try_from(request.length).expect("the source cuts what is longer");
        self.stage.world.request(restripe_array::Request {
            tag: RequestTag(self.serial * self.open.len() as u64 + u64::from(slot)),
            op: operation(request.op),
            offset: request.offset,
            bytes: request.length,
            buf: BufRef::new(self.stage.buffer, 0, length),
            fua: false,
        });
        // Where it goes is decided as it comes, unless it has to wait.
        let moved = self.moved_so_far() > before;
        if let Some(open) = &mut self.open[slot as usize] {
            open.moved = moved;
        }
    }

    // --------------------------------------------------------------------------------------------- happenings

    fn happen(&mut self, happening: Happening) -> Result<(), String> {
        match happening {
            Happening::Reply(tag, result) => self.answered(tag, result.is_ok()),
            // That the first member has failed was not on record when the second did.
            Happening::CommandReply(_, Err(_)) if self.twice.is_planned() => {}
            Happening::CommandReply(_, Err(error)) => {
                return Err(refusal(&error));
            }
            Happening::Fact(fact) if self.twice.is_planned() => fact_of_two(self, &fact),
            Happening::Fact(fact) => return self.fact(&fact),
            Happening::Mark(LOOK) => self.look(),
            Happening::Mark(SECOND_FAILURE) => {
                let at = self.elapsed();
                let again = self.twice.look(self.stage, &mut self.recorder, at);
                if let Some(again) = again {
                    self.stage.world.mark(again, SECOND_FAILURE);
                }
            }
            Happening::CommandReply(..) | Happening::Mark(_) => {}
        }
        Ok(())
    }

    fn answered(&mut self, tag: RequestTag, ok: bool) {
        let slot = (tag.0 % self.open.len() as u64) as u32;
        let open = self.open[slot as usize].take();
        let open = open.expect("the world answers what is outstanding, once");
        self.free.push(slot);
        self.recorder.answer(&Answer {
            at_ns: self.now().since(self.base).0,
            took_ns: self.now().since(open.arrived).0,
            bytes: open.bytes,
            writes: open.writes,
            ok,
            held: open.held,
            moved: open.moved,
        });
    }

    fn fact(&mut self, fact: &Fact) -> Result<(), String> {
        let at = self.elapsed();
        match fact {
            Fact::MemberFailed { .. } => self.recorder.happened(at, in_words(fact)),
            Fact::TaskStarted { kind, .. } => match kind {
                TaskKind::Rebuild => self.begins(at, "rebuild begins"),
                TaskKind::Check => self.begins(at, "check begins"),
                TaskKind::Growth => self.begins(at, "growth begins"),
                _ => {}
            },
            Fact::TaskEnded {
                kind: TaskKind::Rebuild | TaskKind::Resync | TaskKind::Check | TaskKind::Growth,
                outcome,
                ..
            } => {
                self.recorder.happened(at, in_words(fact));
                if *outcome != TaskOutcome::Done {
                    return Err(in_words(fact));
                }
                self.rebuild_ended = true;
                if let Some(rebuild) = &mut self.recorder.log().rebuild {
                    rebuild.to_ns = Some(at);
                }
            }
            Fact::Lost { lba, sectors } => {
                return Err(format!("{sectors} sectors at {lba} were lost"));
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(mut self) -> Log {
        let end = self.elapsed();
        let status = self.stage.world.status();
        let running = status.tasks.iter().find(|task| {
            use TaskKind::{Check, Growth, Rebuild, Resync};
            [Rebuild, Resync, Check, Growth].contains(&task.kind)
        });
        let layout = status.geometry.map(Layout::new).and_then(Result::ok);
        let rows = layout.map_or(0, |layout| layout.rows());
        if let Some(rebuild) = &mut self.recorder.log().rebuild {
            rebuild.rows_total = rows;
            rebuild.rows_done = running.map_or(rows, |task| task.rows_done);
        }
        self.recorder.log().moved = self.moved;
        self.recorder.log().energy = self.stage.energy(&status);
        // The last step is cut short: its power would look like less than it was.
        let mut drawn = self.stage.course_uj();
        drawn.truncate((end / self.script.step_ns) as usize);
        self.recorder.log().drawn_uj = drawn;
        self.recorder.finish(end)
    }
}

/// A fact while two members fail. That tasks end early, and that data are lost, is what is asked about.
fn fact_of_two(replay: &mut Replay, fact: &Fact) {
    let at = replay.elapsed();
    let rebuilds = matches!(
        fact,
        Fact::TaskStarted {
            kind: TaskKind::Rebuild,
            ..
        }
    );
    if rebuilds && replay.recorder.rebuild().is_none() {
        replay.begins(at, "rebuild begins");
    } else if matches!(fact, Fact::MemberFailed { .. } | Fact::TaskEnded { .. }) {
        replay.recorder.happened(at, in_words(fact));
    }
    let (stage, recorder) = (&*replay.stage, &mut replay.recorder);
    replay.twice.note(stage, recorder, fact, at);
}

/// A fact in the words that a served array has for it.
fn in_words(fact: &Fact) -> String {
    let telling = Telling {
        read_only: false,
        name_of: |member| member_name(member, None),
    };
    FactView::new(Nanos::ZERO, fact, telling).text
}

/// Why a deed could not be done. The script's own deeds meet only the first.
fn refusal(error: &CommandError) -> String {
    match error {
        CommandError::Indispensable(member) => {
            let member = member.0;
            format!(
                "member {member} cannot fail: the array has no redundancy to continue without it"
            )
        }
        other => format!("the simulated array refused what the replay asked of it: {other:?}"),
    }
}

fn operation(op: Op) -> RequestOp {
    match op {
        Op::Read => RequestOp::Read,
        Op::Write => RequestOp::Write,
        Op::Discard => RequestOp::Trim,
        Op::Flush => RequestOp::Flush,
    }
}
