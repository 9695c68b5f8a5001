//! The commands of one session that are on their way.

use crate::front::scsi::{Job, Nexus};
use restripe_array::BufRef;

/// Numbered commands of one session that may be on their way: what MaxCmdSN grants.
pub(crate) const COMMANDS_MAX: u32 = 128;
/// Immediate commands come on top of these.
pub(crate) const TASKS_MAX: usize = COMMANDS_MAX as usize + 32;

/// What a task waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// Memory or its turn, in the session's queue.
    Memory,
    /// Data from the initiator.
    Data,
    /// Commands that came before it, with all that it needs itself.
    Order,
    /// The engine.
    Engine,
    /// The end of commands that it cleared.
    Cleared,
    /// Its change to reach the disk.
    Kept,
}

/// Which commands of its logical unit a command waits for (SAM-5 section 8.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attribute {
    /// Those of them that are ordered and came before it.
    Simple,
    /// All that came before it.
    Ordered,
    /// None.
    HeadOfQueue,
}

/// One command.
pub(crate) struct Task {
    pub(crate) tag: u32,
    /// The eight bytes of its logical unit number.
    pub(crate) unit: u64,
    pub(crate) export: usize,
    pub(crate) nexus: Nexus,
    /// When it began, as its unit counts.
    pub(crate) epoch: u64,
    pub(crate) attribute: Attribute,
    /// Its place among all commands of the session, once it is among the tasks.
    pub(crate) place: u64,
    /// It counts against MaxCmdSN.
    pub(crate) numbered: bool,
    pub(crate) job: Job,
    /// Bytes that the initiator expects to transfer.
    pub(crate) expected: u32,
    /// Bytes that the command would take from the initiator, if that sent all of them.
    pub(crate) full: u32,
    /// The initiator reads.
    pub(crate) reads: bool,
    pub(crate) buf: Option<BufRef>,
    pub(crate) wait: Wait,
    /// Bytes of data that have come, and with those that the command does not want.
    pub(crate) filled: u32,
    pub(crate) sent: u32,
    /// Data that was not asked for is still to come.
    pub(crate) unsolicited: bool,
    /// What was asked for and has not come.
    pub(crate) burst: Option<Burst>,
    /// The number of the next unsolicited PDU.
    pub(crate) next: u32,
    /// Requests for data so far.
    pub(crate) requests: u32,
    /// No response is sent: it was aborted.
    pub(crate) aborted: bool,
    /// Seconds for which it has waited for data.
    pub(crate) waited: u32,
}

/// One sequence of Data-Out PDUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Burst {
    /// The target's tag, by which the data names it.
    pub(crate) tag: u32,
    /// Where the sequence ends.
    pub(crate) end: u32,
    /// The number of the next PDU.
    pub(crate) next: u32,
}

/// What a segment is a part of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sequence {
    /// It came with its command, or behind it. `last`: no more comes without being asked for.
    Unsolicited {
        last: bool,
    },
    Burst {
        last: bool,
    },
}

/// A data segment that is being received into a task's memory.
#[derive(Clone, Copy)]
pub(crate) struct Incoming {
    pub(crate) slot: usize,
    pub(crate) part: BufRef,
    pub(crate) into: Sequence,
    /// Bytes of the segment.
    pub(crate) bytes: u32,
    /// Bytes behind the part that have yet to come: those that the command does not want; padding and digest.
    pub(crate) beyond: usize,
    pub(crate) tail: usize,
    /// The part is full.
    pub(crate) full: bool,
    /// Of what has come of the segment, if digests were agreed on.
    pub(crate) digest: u32,
}

/// What waits until commands that it ended have left the engine.
pub(crate) struct Pending {
    pub(crate) tag: u32,
    pub(crate) whose: Whose,
    pub(crate) until: Until,
}

/// Who asked for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whose {
    /// A task management function.
    Function,
    /// One after whose answer all sessions of the target end.
    ColdReset,
    /// The command in this slot.
    Command(usize),
}

/// What it waits for.
pub(crate) enum Until {
    /// None of these slots has the task of this tag any more.
    Gone(Vec<(usize, u32)>),
    /// No cleared command of these exports is in the engine.
    Cleared(Vec<usize>),
    /// A change of the reservations of this export is on the disk; with its ticket.
    Kept(usize, u64),
}

impl Task {
    /// Bytes of data that the command wants.
    pub(crate) fn wants(&self) -> u32 {
        self.job.data_out()
    }
}

/// The tasks by slot. A slot is the tag of a request to the engine, and part of the target's transfer tag.
#[derive(Default)]
pub(crate) struct Tasks {
    slots: Vec<Option<Task>>,
    free: Vec<usize>,
    numbered: u32,
    /// Tasks that are ordered.
    ordered: u32,
    /// Tasks that wait for data.
    gathering: u32,
    /// Tasks that wait for their order.
    parked: u32,
    /// Of the task that came last.
    last_place: u64,
    last_burst: u32,
}

impl Tasks {
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Numbered commands on their way.
    pub(crate) fn numbered(&self) -> u32 {
        self.numbered
    }

    /// Whether any task waits for data.
    pub(crate) fn gathers(&self) -> bool {
        self.gathering > 0
    }

    /// Whether any task waits for memory.
    pub(crate) fn any_hungry(&self) -> bool {
        let mut tasks = self.slots.iter().flatten();
        tasks.any(|task| task.wait == Wait::Memory && task.job.memory() > 0)
    }

    pub(crate) fn insert(&mut self, mut task: Task) -> usize {
        self.last_place += 1;
        task.place = self.last_place;
        self.ordered += u32::from(task.attribute == Attribute::Ordered);
        self.numbered += u32::from(task.numbered);
        self.gathering += u32::from(task.wait == Wait::Data);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(task);
        slot
    }

    pub(crate) fn get(&mut self, slot: usize) -> Option<&mut Task> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// A second has passed. The longest time that a task has waited for data, in seconds.
    pub(crate) fn second(&mut self) -> u32 {
        let tasks = self.slots.iter_mut().flatten();
        let waiting = tasks.filter(|task| task.wait == Wait::Data);
        let waited = waiting.map(|task| {
            task.waited += 1;
            task.waited
        });
        waited.max().unwrap_or(0)
    }

    pub(crate) fn wait(&mut self, slot: usize, wait: Wait) {
        if let Some(task) = self.slots.get_mut(slot).and_then(Option::as_mut) {
            self.gathering -= u32::from(task.wait == Wait::Data);
            self.gathering += u32::from(wait == Wait::Data);
            self.parked -= u32::from(task.wait == Wait::Order);
            self.parked += u32::from(wait == Wait::Order);
            task.wait = wait;
        }
    }

    pub(crate) fn remove(&mut self, slot: usize) -> Option<Task> {
        let task = self.slots.get_mut(slot)?.take()?;
        self.free.push(slot);
        self.ordered -= u32::from(task.attribute == Attribute::Ordered);
        self.numbered -= u32::from(task.numbered);
        self.gathering -= u32::from(task.wait == Wait::Data);
        self.parked -= u32::from(task.wait == Wait::Order);
        Some(task)
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = (usize, &Task)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(slot, task)| Some((slot, task.as_ref()?)))
    }

    /// Whether no task that came before this one has to end first.
    pub(crate) fn is_in_order(&self, slot: usize) -> bool {
        let Some(Some(task)) = self.slots.get(slot) else {
            return true;
        };
        let before = |other: &Task| other.place < task.place && other.export == task.export;
        let is_ordered = |other: &Task| other.attribute == Attribute::Ordered;
        let mut tasks = self.slots.iter().flatten();
        match task.attribute {
            Attribute::HeadOfQueue => true,
            Attribute::Ordered => !tasks.any(before),
            Attribute::Simple => {
                self.ordered == 0 || !tasks.any(|other| is_ordered(other) && before(other))
            }
        }
    }

    /// A task that waited for those before it, and need not any more.
    pub(crate) fn next_in_order(&self) -> Option<usize> {
        if self.parked == 0 {
            return None;
        }
        let waiting = self.slots().filter(|(_, task)| task.wait == Wait::Order);
        let mut slots = waiting.map(|(slot, _)| slot);
        slots.find(|slot| self.is_in_order(*slot))
    }

    /// The task with this initiator's tag, if it was not aborted.
    pub(crate) fn named(&self, tag: u32) -> Option<usize> {
        let found = self
            .slots()
            .find(|(_, task)| task.tag == tag && !task.aborted);
        found.map(|(slot, _)| slot)
    }

    /// A tag for the next burst of a task: its slot, and a number that makes it unlike earlier ones.
    pub(crate) fn burst_tag(&mut self, slot: usize) -> u32 {
        self.last_burst = (self.last_burst + 1) & 0x7f_ffff;
        self.last_burst << 8 | (slot as u32 & 0xff)
    }

    /// The task that waits for the burst of this tag.
    pub(crate) fn of_burst(&self, tag: u32) -> Option<usize> {
        let slot = (tag & 0xff) as usize;
        let task = self.slots.get(slot)?.as_ref()?;
        task.burst.filter(|burst| burst.tag == tag).map(|_| slot)
    }
}
