//! Quests: an incident that is to meet a task of a certain kind when it has come a certain way.
//!
//! Tasks are short and incidents rare, so chance alone leaves much of the table of tasks and incidents empty. A quest
//! provokes its task and then lies in wait for the phase.

use super::coverage::{Incident, Phase};
use super::life::{Life, Run};
use super::plan::Roughness;
use crate::rng::Rng;
use restripe_array::layout::Level;
use restripe_array::meta::{Init, WriteHole};
use restripe_array::report::MemberState;
use restripe_array::{Command, ScrubMode, TaskKind};
use restripe_tier::report::Status;

/// What is to happen, and when.
#[derive(Clone, Copy, Debug)]
pub struct Quest {
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

impl Quest {
    fn draw(rng: &mut Rng) -> Quest {
        Quest {
            kind: *rng.pick(&KINDS),
            phase: *rng.pick(&PHASES),
            incident: *rng.pick(&INCIDENTS),
            wait: rng.below(20),
            tries: TRIES,
        }
    }
}

impl Run {
    /// Sets out on a quest, if the array is one that can have such a task.
    pub fn set_out(&mut self) {
        if self.options.roughness < Roughness::Faults || self.quest.is_some() {
            return;
        }
        let mut quest = Quest::draw(&mut self.rng);
        let spec = &self.plan.spec;
        let resyncs = spec.write_hole != WriteHole::Ppl || spec.init == Init::Sync;
        if spec.level == Level::Raid0 {
            quest.kind = TaskKind::Replace;
        }
        if self.plan.grows && self.rng.clone().fork(GROWTH).chance(3, 4) {
            quest.kind = TaskKind::Growth;
        } else if quest.kind == TaskKind::Resync && !resyncs {
            quest.kind = TaskKind::Rebuild;
        }
        self.quest = self.rng.chance(3, 4).then_some(quest);
    }

    /// Looks whether the moment has come.
    pub fn pursue(&mut self, life: &mut Life) {
        let Some(mut quest) = self.quest else {
            return;
        };
        let status = life.session.world.status();
        life.watchful = !status.tasks.is_empty();
        let task = status.tasks.iter().find(|task| task.kind == quest.kind);
        let due = quest.wait == 0;
        quest.wait = quest.wait.saturating_sub(1);
        let tried = match task {
            Some(task) if Phase::of(task) == quest.phase => {
                if life.stirring.unplugs() {
                    self.unplug(life);
                    self.quest = None;
                    return;
                }
                if self.strike(life, quest.incident) {
                    self.quest = None;
                    return;
                }
                true
            }
            Some(task) if task.paused && due => {
                life.session.command(Command::Pause(false));
                true
            }
            None if due => {
                self.provoke(life, &status, quest.kind);
                true
            }
            _ => false,
        };
        if tried {
            quest.tries -= 1;
            quest.wait = if task.is_some() { 0 } else { WAIT / IDLE_STEPS };
        }
        self.quest = (quest.tries > 0).then_some(quest);
    }

    /// Makes a task of this kind begin.
    fn provoke(&mut self, life: &mut Life, status: &Status, kind: TaskKind) {
        let any = |state: MemberState| status.members.iter().any(|line| line.state == state);
        match kind {
            TaskKind::Check | TaskKind::Repair => {
                let repair = kind == TaskKind::Repair;
                life.session
                    .command(Command::Scrub(ScrubMode::writing(repair)));
            }
            TaskKind::Growth if any(MemberState::Spare) => self.grow(life),
            TaskKind::Replace if any(MemberState::Spare) => self.replace(life),
            TaskKind::Replace | TaskKind::Growth => self.arrive(life),
            TaskKind::Rebuild if any(MemberState::Failed) => {
                if life.stirring.rng.chance(1, 2) {
                    self.take_back(life)
                } else {
                    self.arrive(life)
                }
            }
            TaskKind::Rebuild => {
                self.lose_member(life, 6);
            }
            // Only a crash owes a resynchronisation.
            TaskKind::Resync => {
                let steps = life.stirring.rng.below(40);
                life.crash_within(steps);
            }
        }
    }

    /// What the quest is for. False if it cannot happen at this moment.
    fn strike(&mut self, life: &mut Life, incident: Incident) -> bool {
        match incident {
            Incident::CrashInRecovery => {
                life.crash_within(0);
                self.crash_again = true;
                self.plan.lives += 1;
                true
            }
            Incident::MemberLoss => {
                let way = *life.stirring.rng.pick(&[0, 1, 4, 5, 6]);
                self.lose_member(life, way)
            }
            Incident::LateWrite => {
                let way = *life.stirring.rng.pick(&[2, 3]);
                self.lose_member(life, way)
            }
            Incident::LatentError => self.latent_error(life),
            _ => {
                life.crash_within(0);
                true
            }
        }
    }
}
