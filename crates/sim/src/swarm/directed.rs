//! Directed scenarios: an incident that is to meet a task of a certain kind when it has come a certain way.
//!
//! Tasks are short and incidents rare, so chance alone leaves much of the table of tasks and incidents
//! empty. A directed scenario provokes its task and then lies in wait for the phase.

use super::coverage::{Incident, Phase};
use super::faults;
use super::life::{Life, Run};
use super::plan::Roughness;
use crate::rng::Rng;
use restripe_array::layout::Level;
use restripe_array::meta::{Init, WriteHole};
use restripe_array::report::MemberState;
use restripe_array::{Command, TaskKind};
use restripe_tier::report::Status;

/// What is to happen, and when.
#[derive(Clone, Copy, Debug)]
pub struct Directed {
    kind: TaskKind,
    phase: Phase,
    incident: Incident,
    /// Looks until the task is provoked (again).
    wait: u64,
    /// Provocations and strikes that may still be tried.
    tries: u32,
}

/// The stream that growths are drawn from.
const GROWTH: u64 = 0x6708;
const TRIES: u32 = 40;
/// Looks between two provocations.
const WAIT: u64 = 200;
/// Without a task, so many steps go by between two looks.
pub const IDLE_STEPS: u64 = 16;

const KINDS: [TaskKind; 5] = [
    TaskKind::Rebuild,
    TaskKind::Replace,
    TaskKind::Resync,
    TaskKind::Check,
    TaskKind::Repair,
];
const INCIDENTS: [Incident; 7] = [
    Incident::Crash,
    Incident::CrashInRecovery,
    Incident::MemberLoss,
    Incident::LatentError,
    Incident::LatentError,
    Incident::LateWrite,
    Incident::LateWrite,
];
const PHASES: [Phase; 4] = [Phase::Beginning, Phase::Middle, Phase::End, Phase::End];

impl Directed {
    fn draw(rng: &mut Rng) -> Directed {
        Directed {
            kind: *rng.pick(&KINDS),
            phase: *rng.pick(&PHASES),
            incident: *rng.pick(&INCIDENTS),
            wait: rng.below(20),
            tries: TRIES,
        }
    }
}

/// Sets out on a directed scenario, if the array is one that can have such a task.
pub fn draw_next(run: &mut Run) {
    if run.options.roughness < Roughness::Faults || run.directed.is_some() {
        return;
    }
    let mut directed = Directed::draw(&mut run.base.rng);
    let spec = &run.plan.spec;
    let resyncs = spec.write_hole != WriteHole::Ppl || spec.init == Init::Sync;
    if spec.level == Level::Raid0 {
        directed.kind = TaskKind::Replace;
    }
    if run.plan.grows && run.base.rng.clone().fork(GROWTH).chance(3, 4) {
        directed.kind = TaskKind::Growth;
    } else if directed.kind == TaskKind::Resync && !resyncs {
        directed.kind = TaskKind::Rebuild;
    }
    run.directed = run.base.rng.chance(3, 4).then_some(directed);
}

/// Looks whether the moment has come.
pub fn look(run: &mut Run, life: &mut Life) {
    let Some(mut directed) = run.directed else {
        return;
    };
    let status = life.session.world.status();
    life.watchful = !status.tasks.is_empty();
    let task = status.tasks.iter().find(|task| task.kind == directed.kind);
    let due = directed.wait == 0;
    directed.wait = directed.wait.saturating_sub(1);
    let tried = match task {
        Some(task) if Phase::of(task) == directed.phase => {
            if life.faults.unplugs() {
                faults::unplug(run, life);
                run.directed = None;
                return;
            }
            if strike(run, life, directed.incident) {
                run.directed = None;
                return;
            }
            true
        }
        Some(task) if task.paused && due => {
            life.session.command(Command::Pause(false));
            true
        }
        None if due => {
            trigger(run, life, &status, directed.kind);
            true
        }
        _ => false,
    };
    if tried {
        directed.tries -= 1;
        directed.wait = if task.is_some() { 0 } else { WAIT / IDLE_STEPS };
    }
    run.directed = (directed.tries > 0).then_some(directed);
}

/// Makes a task of this kind begin.
fn trigger(run: &mut Run, life: &mut Life, status: &Status, kind: TaskKind) {
    let any = |state: MemberState| status.members.iter().any(|line| line.state == state);
    match kind {
        TaskKind::Check | TaskKind::Repair => life.session.scrub(kind == TaskKind::Repair),
        TaskKind::Growth if any(MemberState::Spare) => faults::grow(run, life),
        TaskKind::Replace if any(MemberState::Spare) => faults::replace(life),
        TaskKind::Replace | TaskKind::Growth => faults::arrive(run, life),
        TaskKind::Rebuild if any(MemberState::Failed) => {
            if life.faults.rng.chance(1, 2) {
                faults::take_back(run, life)
            } else {
                faults::arrive(run, life)
            }
        }
        TaskKind::Rebuild => {
            faults::lose_member(run, life, 6);
        }
        // Only a crash owes a resynchronisation.
        TaskKind::Resync => {
            let steps = life.faults.rng.below(40);
            life.crash_within(steps);
        }
    }
}

/// What the directed scenario is for. False if it cannot happen at this moment.
fn strike(run: &mut Run, life: &mut Life, incident: Incident) -> bool {
    match incident {
        Incident::CrashInRecovery => {
            life.crash_within(0);
            run.crash_again = true;
            run.plan.lives += 1;
            true
        }
        Incident::MemberLoss => {
            let way = *life.faults.rng.pick(&[0, 1, 4, 5, 6]);
            faults::lose_member(run, life, way)
        }
        Incident::LateWrite => {
            let way = *life.faults.rng.pick(&[2, 3]);
            faults::lose_member(run, life, way)
        }
        Incident::LatentError => faults::latent_error(run, life),
        _ => {
            life.crash_within(0);
            true
        }
    }
}
