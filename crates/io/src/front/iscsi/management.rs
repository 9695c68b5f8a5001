//! Task management (RFC 7143 sections 11.5 and 11.6). A function is answered once no command that it ended is
//! in the engine any more.

use super::pdu::{self, FINAL, Header, opcode};
use super::session::Session;
use super::tasks::{Pending, Until, Wait, Whose};
use crate::front::scsi::Answer;
use crate::front::{Link, Nudge};

const ABORT_TASK: u8 = 1;
const ABORT_TASK_SET: u8 = 2;
const CLEAR_TASK_SET: u8 = 4;
const UNIT_RESET: u8 = 5;
const WARM_RESET: u8 = 6;
const COLD_RESET: u8 = 7;
const REASSIGN: u8 = 8;

const COMPLETE: u8 = 0;
const NO_SUCH_TASK: u8 = 1;
const NO_SUCH_UNIT: u8 = 2;
const NO_REASSIGNMENT: u8 = 4;
const NOT_SUPPORTED: u8 = 5;
const REJECTED: u8 = 255;

/// Functions that wait at once.
const PENDING_MAX: usize = 64;

/// Takes up a function.
pub(super) fn manage(session: &mut Session, header: &Header, link: &mut dyn Link) {
    let tag = header.task_tag();
    if session.managed.len() >= PENDING_MAX {
        return respond(session, tag, REJECTED, link);
    }
    let function = header.flags() & 0x7f;
    let lun = session.lun(header);
    let until = match (function, lun) {
        (ABORT_TASK | ABORT_TASK_SET | CLEAR_TASK_SET | UNIT_RESET, None) => Err(NO_SUCH_UNIT),
        (ABORT_TASK, Some(_)) => abort_task(session, header, link),
        (ABORT_TASK_SET, Some(_)) => Ok(abort_all(session, header.unit(), link)),
        (CLEAR_TASK_SET, Some(lun)) => {
            let others = {
                let mut state = session.hub.state();
                state.unit(lun.export).clear_task_set(lun.nexus)
            };
            Ok(session.cleared(vec![lun.export], others, link))
        }
        (UNIT_RESET, Some(lun)) => {
            let others = session.hub.state().unit(lun.export).reset(lun.nexus);
            Ok(session.cleared(vec![lun.export], others, link))
        }
        (WARM_RESET | COLD_RESET, _) => Ok(reset_target(session, link)),
        (REASSIGN, _) => Err(NO_REASSIGNMENT),
        _ => Err(NOT_SUPPORTED),
    };
    match until {
        Ok(until) => session.managed.push(Pending {
            tag,
            whose: match function {
                COLD_RESET => Whose::ColdReset,
                _ => Whose::Function,
            },
            until,
        }),
        Err(response) => respond(session, tag, response, link),
    }
    session.look(link);
}

impl Session {
    /// Answers the functions and commands that need not wait any more.
    pub(super) fn look(&mut self, link: &mut dyn Link) {
        if self.managed.is_empty() {
            return;
        }
        let (mut done, mut left) = (Vec::new(), Vec::new());
        for pending in std::mem::take(&mut self.managed) {
            match is_over(self, &pending.until, link.number()) {
                true => done.push(pending),
                false => left.push(pending),
            }
        }
        self.managed = left;
        for Pending { tag, whose, .. } in done {
            match whose {
                Whose::Function => respond(self, tag, COMPLETE, link),
                Whose::ColdReset => {
                    respond(self, tag, COMPLETE, link);
                    let target = self.target.as_deref().unwrap_or_default();
                    self.hub.state().end_all(target, link);
                }
                Whose::Command(slot) => self.resume(slot, tag, link),
            }
        }
    }

    /// Goes on with a command that waited, unless it was ended itself.
    fn resume(&mut self, slot: usize, tag: u32, link: &mut dyn Link) {
        let task = self.tasks.get(slot).filter(|task| task.tag == tag);
        match task.map(|task| task.wait) {
            Some(Wait::Cleared) => self.done(slot, Answer::GOOD, link),
            Some(Wait::Kept) => self.kept(slot, link),
            _ => {}
        }
    }

    /// Tasks of these exports were cleared, of this session and of those at other connections.
    pub(super) fn cleared(
        &mut self,
        exports: Vec<usize>,
        others: Vec<u32>,
        link: &mut dyn Link,
    ) -> Until {
        for connection in others {
            link.nudge(connection, Nudge::Wake);
        }
        self.drop_cleared(link);
        Until::Cleared(exports)
    }
}

/// If it is not over, the connection of this number is to be woken when it may be.
fn is_over(session: &mut Session, until: &Until, connection: u32) -> bool {
    match until {
        Until::Gone(tasks) => tasks.iter().all(|(slot, tag)| {
            let task = session.tasks.get(*slot);
            task.is_none_or(|task| task.tag != *tag || !task.aborted)
        }),
        Until::Kept(export, ticket) => {
            let mut state = session.hub.state();
            !state.unit(*export).is_saving(*ticket)
        }
        Until::Cleared(exports) => {
            let mut state = session.hub.state();
            let mut clearing = exports
                .iter()
                .filter(|export| state.unit(**export).awaits_cleared(connection));
            clearing.next().is_none()
        }
    }
}

fn respond(session: &mut Session, tag: u32, response: u8, link: &mut dyn Link) {
    let mut header = Header::new(opcode::TASK_MANAGEMENT_RESPONSE, FINAL).with(16, tag);
    header.0[2] = response;
    session.sender.send(header, &[], true, link);
}

fn abort_task(session: &mut Session, header: &Header, link: &mut dyn Link) -> Result<Until, u8> {
    let named = header.number(20);
    let found = session.tasks.named(named);
    let slot = found.ok_or(NO_SUCH_TASK)?;
    session.clear(slot, link);
    Ok(Until::Gone(vec![(slot, named)]))
}

/// The initiator's own tasks of a unit.
fn abort_all(session: &mut Session, unit: u64, link: &mut dyn Link) -> Until {
    let unit = pdu::single_level(unit);
    let tasks = session.tasks.slots();
    let of_unit = tasks.filter(|(_, task)| pdu::single_level(task.unit) == unit);
    let slots: Vec<(usize, u32)> = of_unit.map(|(slot, task)| (slot, task.tag)).collect();
    for (slot, _) in &slots {
        session.clear(*slot, link);
    }
    Until::Gone(slots)
}

fn reset_target(session: &mut Session, link: &mut dyn Link) -> Until {
    let mut others = Vec::new();
    let exports: Vec<usize> = session.luns().iter().map(|lun| lun.export).collect();
    for lun in session.luns().to_vec() {
        others.extend(session.hub.state().unit(lun.export).reset(lun.nexus));
    }
    others.sort_unstable();
    others.dedup();
    session.cleared(exports, others, link)
}
