//! A session that is logged in: its commands, from memory over data and the engine to an answer.
//!
//! Memory: a command waits in a queue for its memory, and for its turn of the reactor, which a command
//! without memory needs as well. While it waits, the connection goes on receiving, because data of earlier
//! commands, which hold memory until it has come, is behind it in the stream. Data that comes without being
//! asked for needs memory at once. If there is none, the connection waits; but while other commands wait for
//! data or memory, the answer is TASK SET FULL instead.

use super::hub::{Hub, Target};
use super::login::Agreed;
use super::pdu::{self, DIGEST_BYTES, FINAL, Header, opcode};
use super::send::{Answered, Sender};
use super::tasks::{Burst, Incoming, Pending, Task, Tasks, Until, Wait, Whose};
use super::text::TextAnswer;
use crate::front::scsi::{Answer, Around, Data, Job, Next, Nexus, Status};
use crate::front::{Ask, Link, Nudge, Then};
use restripe_array::RequestError;
use std::collections::VecDeque;
use std::sync::Arc;

/// A logical unit of the session's target.
#[derive(Clone, Copy)]
pub(crate) struct Lun {
    pub(crate) number: u16,
    pub(crate) export: usize,
    pub(crate) nexus: Nexus,
}

pub(crate) struct Session {
    pub(super) hub: Arc<Hub>,
    handle: u16,
    pub(super) initiator: String,
    /// `None`: a discovery session.
    pub(super) target: Option<String>,
    luns: Vec<Lun>,
    pub(super) numbers: Vec<u16>,
    pub(super) sender: Sender,
    pub(super) tasks: Tasks,
    /// Tasks that wait for memory or for their turn, the first first.
    pub(super) queue: VecDeque<usize>,
    /// The segment that is being received into a task's memory.
    pub(super) incoming: Option<Incoming>,
    /// PDUs since data last came, while some is awaited.
    pub(super) without_data: u32,
    /// Bytes to be passed over.
    pub(super) skip: u64,
    /// Task management, and commands, that wait for commands that they ended.
    pub(super) managed: Vec<Pending>,
    pub(super) text: TextAnswer,
    /// The initiator's number of the connection.
    pub(super) cid: [u8; 2],
    /// No command is answered any more.
    pub(super) left: bool,
    /// The tag of a logout that has yet to be answered.
    pub(super) logout: Option<u32>,
}

/// What a PDU, or a piece of one, came to.
pub(super) enum Step {
    Went(usize),
    Stop(usize, Then),
}

impl Session {
    pub(super) fn new(agreed: Agreed, hub: Arc<Hub>, link: &mut dyn Link) -> Session {
        let luns = match &agreed.target {
            Some(target) => attach_all(agreed.handle, target, &hub, link),
            None => Vec::new(),
        };
        Session {
            hub,
            handle: agreed.handle,
            initiator: agreed.initiator.name,
            target: agreed.target.map(|target| target.name),
            numbers: luns.iter().map(|lun| lun.number).collect(),
            luns,
            sender: Sender::new(agreed.parameters, agreed.status, agreed.command),
            tasks: Tasks::default(),
            queue: VecDeque::new(),
            incoming: None,
            without_data: 0,
            skip: 0,
            managed: Vec::new(),
            text: TextAnswer::default(),
            cid: agreed.cid,
            left: false,
            logout: None,
        }
    }

    /// Bytes that the peer owes before the next PDU can begin.
    pub(super) fn bytes_due(&self) -> u64 {
        let incoming = self.incoming.as_ref();
        let segment = incoming.map_or(0, |it| it.part.bytes as usize + it.beyond + it.tail);
        self.skip + segment as u64
    }

    /// Whether it holds memory for data that has yet to come.
    pub(super) fn awaits_data(&self) -> bool {
        self.tasks.gathers()
    }

    /// Padding and digest behind the data segment of this PDU.
    pub(super) fn tail(&self, data_bytes: u32) -> usize {
        let digest = self.sender.parameters.data_digest && data_bytes > 0;
        pdu::padding(data_bytes) + if digest { DIGEST_BYTES } else { 0 }
    }

    /// Passes over the data segment of a PDU.
    pub(super) fn pass_over(&mut self, header: &Header, used: usize) -> Step {
        let bytes = header.data_bytes();
        self.skip = u64::from(bytes) + self.tail(bytes) as u64;
        Step::Went(used)
    }

    pub(super) fn luns(&self) -> &[Lun] {
        &self.luns
    }

    pub(super) fn lun(&self, header: &Header) -> Option<Lun> {
        let number = pdu::single_level(header.unit())?;
        self.luns.iter().find(|lun| lun.number == number).copied()
    }

    pub(super) fn insert(&mut self, task: Task) -> usize {
        let slot = self.tasks.insert(task);
        self.sender.on_their_way = self.tasks.numbered();
        slot
    }

    pub(super) fn remove(&mut self, slot: usize) -> Option<Task> {
        let task = self.tasks.remove(slot);
        self.sender.on_their_way = self.tasks.numbered();
        task
    }

    /// Starts the tasks that wait for memory or for their turn, as long as there is some.
    pub(super) fn feed(&mut self, link: &mut dyn Link) {
        self.begin_in_order(link);
        while let Some(&slot) = self.queue.front() {
            let Some(task) = self.tasks.get(slot) else {
                self.queue.pop_front();
                continue;
            };
            if link.full() {
                return link.await_turn();
            }
            task.buf = match task.job.memory() {
                0 => None,
                bytes => match link.buffer(bytes) {
                    None => return link.await_memory(),
                    buf => buf,
                },
            };
            self.queue.pop_front();
            self.go_on(slot, link);
        }
    }

    /// Starts the tasks that waited for others, which are gone.
    fn begin_in_order(&mut self, link: &mut dyn Link) {
        while let Some(slot) = self.tasks.next_in_order().filter(|_| !self.left) {
            if link.full() {
                return link.await_turn();
            }
            self.go_on(slot, link);
        }
    }

    /// The task is no longer in the queue.
    pub(super) fn leave_queue(&mut self, slot: usize) {
        self.queue.retain(|one| *one != slot);
    }

    /// The next thing that a task with its memory needs: data, or the engine.
    pub(super) fn go_on(&mut self, slot: usize, link: &mut dyn Link) {
        let Some(task) = self.tasks.get(slot) else {
            return;
        };
        // Another session may have cleared it just now.
        let cleared = {
            let mut state = self.hub.state();
            state.unit(task.export).cleared(task.nexus, task.epoch)
        };
        if cleared {
            return self.drop_task(slot, link);
        }
        if task.unsolicited || task.filled < task.wants() {
            let asked = task.unsolicited || task.burst.is_some();
            self.tasks.wait(slot, Wait::Data);
            if !asked {
                self.ask_for_data(slot, link);
            }
            return;
        }
        if !self.tasks.is_in_order(slot) {
            return self.tasks.wait(slot, Wait::Order);
        }
        self.tasks.wait(slot, Wait::Engine);
        self.work(slot, None, link);
    }

    /// Lets a task's job do its next step. `result`: the engine's answer to the last one.
    fn work(&mut self, slot: usize, result: Option<Result<(), RequestError>>, link: &mut dyn Link) {
        self.step_job(slot, link, |job, around| match result {
            None => job.start(around),
            Some(result) => job.replied(result, around),
        });
    }

    /// What a task changes has reached the disk, or could not.
    pub(super) fn kept(&mut self, slot: usize, link: &mut dyn Link) {
        self.step_job(slot, link, Job::kept);
    }

    fn step_job(
        &mut self,
        slot: usize,
        link: &mut dyn Link,
        step: impl FnOnce(&mut Job, &mut Around<'_>) -> Next,
    ) {
        let Some(task) = self.tasks.get(slot) else {
            return;
        };
        let next = {
            let mut state = self.hub.state();
            let mut around = Around {
                unit: state.unit(task.export),
                nexus: task.nexus,
                export: task.export,
                buf: task.buf,
                link,
            };
            let next = step(&mut task.job, &mut around);
            if matches!(next, Next::Ask(_)) {
                around.unit.went(task.nexus);
            }
            next
        };
        let (tag, export) = (task.tag, task.export);
        match next {
            Next::Done(answer) => self.done(slot, answer, link),
            Next::Cleared(others) => {
                self.tasks.wait(slot, Wait::Cleared);
                let until = self.cleared(vec![export], others, link);
                self.pend(slot, tag, until);
                self.look(link);
            }
            Next::Kept(ticket) => {
                self.tasks.wait(slot, Wait::Kept);
                self.pend(slot, tag, Until::Kept(export, ticket));
            }
            Next::Ask(request) => {
                let part = |(at, bytes)| task.buf.map(|buf| buf.part(at, bytes));
                link.submit(Ask {
                    tag: slot as u64,
                    export,
                    op: request.op,
                    offset: request.offset,
                    bytes: request.bytes,
                    buf: request.part.and_then(part),
                    fua: request.fua,
                });
            }
        }
    }

    /// A command waits for something other than the engine.
    fn pend(&mut self, slot: usize, tag: u32, until: Until) {
        let whose = Whose::Command(slot);
        self.managed.push(Pending { tag, whose, until });
    }

    pub(super) fn replied(
        &mut self,
        tag: u64,
        result: Result<(), RequestError>,
        link: &mut dyn Link,
    ) {
        let slot = usize::try_from(tag).unwrap_or(usize::MAX);
        let Some(task) = self.tasks.get(slot) else {
            return;
        };
        let cleared = {
            let mut state = self.hub.state();
            let unit = state.unit(task.export);
            for connection in unit.came(task.nexus, task.epoch) {
                link.nudge(connection, Nudge::Wake);
            }
            task.aborted || unit.cleared(task.nexus, task.epoch)
        };
        match cleared {
            true => self.drop_task(slot, link),
            false => self.work(slot, Some(result), link),
        }
        match self.left {
            true => self.answer_logout(link),
            false => self.feed(link),
        }
    }

    pub(super) fn done(&mut self, slot: usize, answer: Answer, link: &mut dyn Link) {
        self.leave_queue(slot);
        let Some(task) = self.remove(slot) else {
            return;
        };
        let transferred = match &answer.data {
            Data::Bytes(bytes) => bytes.len() as u64,
            Data::Buffer(bytes) => u64::from(*bytes),
            Data::Nothing if answer.status == Status::Good => u64::from(task.full),
            Data::Nothing => u64::from(task.filled),
        };
        let sense = self.encoded(task.export, &answer);
        let command = Answered {
            tag: task.tag,
            expected: task.expected,
            reads: task.reads,
        };
        let sense = sense.as_deref();
        self.sender
            .answer(command, &answer, transferred, sense, task.buf, link);
        self.begin_in_order(link);
    }

    /// Gives back what a task has. It is not answered.
    pub(super) fn drop_task(&mut self, slot: usize, link: &mut dyn Link) {
        self.leave_queue(slot);
        if let Some(buf) = self.remove(slot).and_then(|task| task.buf) {
            link.release(buf);
        }
        self.begin_in_order(link);
    }

    pub(super) fn encoded(&self, export: usize, answer: &Answer) -> Option<Vec<u8>> {
        let sense = answer.sense.as_ref()?;
        Some(self.hub.state().unit(export).encode(sense))
    }

    /// The session is over: nothing more is sent.
    pub(super) fn abandon(&mut self, link: &mut dyn Link) {
        self.left = true;
        self.managed.clear();
        self.incoming = self.incoming.filter(|incoming| !incoming.full);
        let slots: Vec<usize> = self.tasks.slots().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.clear(slot, link);
        }
        self.incoming = None;
    }

    pub(super) fn end(&mut self) {
        self.hub.state().end(self.handle);
    }

    /// A task is to end without an answer.
    pub(super) fn clear(&mut self, slot: usize, link: &mut dyn Link) {
        let incoming = self.incoming.as_ref();
        let receiving = incoming.is_some_and(|incoming| incoming.slot == slot);
        match self.tasks.get(slot) {
            // The engine, or the socket, still uses its memory.
            Some(task) if receiving || task.wait == Wait::Engine => task.aborted = true,
            _ => self.drop_task(slot, link),
        }
    }

    /// Drops the commands that a session, this or another, has cleared.
    pub(super) fn drop_cleared(&mut self, link: &mut dyn Link) {
        let cleared: Vec<usize> = {
            let mut state = self.hub.state();
            let mut is_cleared =
                |task: &Task| state.unit(task.export).cleared(task.nexus, task.epoch);
            let tasks = self.tasks.slots().filter(|(_, task)| is_cleared(task));
            tasks.map(|(slot, _)| slot).collect()
        };
        for slot in cleared {
            self.clear(slot, link);
        }
    }

    /// Asks for a task's next data: as much as one burst may have.
    pub(super) fn ask_for_data(&mut self, slot: usize, link: &mut dyn Link) {
        let tag = self.tasks.burst_tag(slot);
        let most = self.sender.parameters.max_burst;
        let Some(task) = self.tasks.get(slot) else {
            return;
        };
        let bytes = (task.wants() - task.filled).min(most);
        task.burst = Some(Burst {
            tag,
            end: task.filled + bytes,
            next: 0,
        });
        let mut header = Header::new(opcode::READY_TO_TRANSFER, FINAL)
            .with(16, task.tag)
            .with(20, tag)
            .with(36, task.requests)
            .with(40, task.filled)
            .with(44, bytes);
        header.0[8..16].copy_from_slice(&task.unit.to_be_bytes());
        task.requests += 1;
        self.sender.send(header, &[], false, link);
    }
}

/// The logical units of a target. The place of a name is the number of its unit, also behind one whose array
/// is not served.
fn attach_all(handle: u16, target: &Target, hub: &Hub, link: &mut dyn Link) -> Vec<Lun> {
    let mut state = hub.state();
    let mut luns = Vec::new();
    for (number, name) in (0..).zip(&target.luns) {
        let Some(export) = find_shared(name, link) else {
            continue;
        };
        if let Some(nexus) = state.attach(handle, export, target.removable) {
            link.attach(export);
            luns.push(Lun {
                number,
                export,
                nexus,
            });
        }
    }
    luns
}

/// The export of this name, if several clients may have it.
fn find_shared(name: &str, link: &dyn Link) -> Option<usize> {
    let named = |index: &usize| {
        let export = link.export(*index);
        export.is_some_and(|export| export.name == name && !export.exclusive)
    };
    (0..link.exports()).find(named)
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}
