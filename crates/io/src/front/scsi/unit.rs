//! A logical unit: what all its sessions share.

use super::answer::{Answer, BLOCK_BYTES};
use super::cdb::PersistentOut;
use super::mode::{self, Medium, Settings};
use super::opcodes::Access;
use super::reserve::{self, Attention, Initiator, Refusal, Reservations};
use super::sense::{self, Sense};
use super::state_file::StateFile;
use crate::front::Export;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, TryRecvError};

/// Unit attentions that wait for one nexus at most: of more, the oldest stay.
const ATTENTIONS_MAX: usize = 8;

/// Results of changes of reservations that wait for their commands at most: of more, the latest stay.
const PERSISTED_MAX: usize = 256;

/// Names an attached nexus of a unit: a session's end at it. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Nexus(u64);

pub(crate) struct Attached {
    nexus: Nexus,
    initiator: Initiator,
    /// The connection that is to be woken when its commands are cleared by others.
    connection: u32,
    attentions: VecDeque<Sense>,
    /// It prevents the removal of the medium.
    prevents: bool,
    /// Its commands that began before are cleared.
    since: u64,
    /// Requests in the engine of commands that began before `since`, and of later ones.
    running: Running,
}

#[derive(Clone, Copy, Default, Debug)]
struct Running {
    cleared: u32,
    live: u32,
}

/// What a change of reservations came to: connections that may have cleared commands, or why it was refused.
pub(crate) type Persisted = Result<Vec<u32>, Refusal>;

/// A change of the persistent reservations.
struct Change {
    nexus: Nexus,
    aborts: bool,
    after: Reservations,
    attentions: Vec<Attention>,
}

struct Pending {
    change: Change,
    kept: Receiver<bool>,
}

/// One array, as a disk.
#[derive(Default)]
pub(crate) struct Unit {
    pub(super) settings: Settings,
    pub(super) reservations: Reservations,
    nexuses: Vec<Attached>,
    nexuses_made: u64,
    size_bytes: Option<u64>,
    /// Its medium can be ejected.
    pub(crate) removable: bool,
    ejected: bool,
    /// Counts resets and other events that clear commands.
    epoch: u64,
    /// Nexuses that are lost, with the number of their requests that are still in the engine.
    lost: Vec<(Nexus, u32)>,
    /// Where reservations can outlive the daemon.
    state_file: Option<StateFile>,
    /// A change of reservations that is on its way to the disk.
    pending: Option<Pending>,
    /// What became of changes that had to reach the disk, by their tickets, until the commands have it.
    persisted: VecDeque<(u64, Persisted)>,
    tickets: u64,
    /// Connections to be woken when no request of a cleared command is in the engine any more.
    waiting: Vec<u32>,
}

impl Unit {
    // ----------------------------------------------------------------------------------------------- nexuses

    /// A nexus is new after a power-on, and after the loss of an earlier one, with which reservations and
    /// settings may have gone. Its first command learns that (SAM-5 section 5.14): by the code that stands
    /// for all of these, because no unit records who was here before. A removable medium is left out: Linux
    /// takes any attention of one for another medium, and fails what a mounted file system asks next.
    pub(crate) fn attach(&mut self, initiator: Initiator, connection: u32) -> Nexus {
        self.nexuses_made += 1;
        let nexus = Nexus(self.nexuses_made);
        self.nexuses.push(Attached {
            nexus,
            initiator,
            connection,
            attentions: match self.removable {
                true => VecDeque::new(),
                false => VecDeque::from([sense::POWER_ON]),
            },
            prevents: false,
            since: self.epoch,
            running: Running::default(),
        });
        nexus
    }

    /// The nexus is lost, and its commands are cleared. Persistent reservations stay.
    pub(crate) fn detach(&mut self, nexus: Nexus) {
        let place = self.nexuses.iter().position(|one| one.nexus == nexus);
        if let Some(place) = place {
            let gone = self.nexuses.swap_remove(place);
            self.reservations.lost(&gone.initiator);
            let running = gone.running.cleared + gone.running.live;
            if running > 0 {
                self.lost.push((nexus, running));
            }
        }
    }

    fn attached(&mut self, nexus: Nexus) -> Option<&mut Attached> {
        self.nexuses.iter_mut().find(|one| one.nexus == nexus)
    }

    pub(super) fn initiator(&self, nexus: Nexus) -> Option<&Initiator> {
        let mut nexuses = self.nexuses.iter();
        let found = nexuses.find(|one| one.nexus == nexus);
        found.map(|one| &one.initiator)
    }

    fn notify_others(&mut self, nexus: Option<Nexus>, sense: Sense) {
        let others = self
            .nexuses
            .iter_mut()
            .filter(|one| Some(one.nexus) != nexus);
        others.for_each(|one| one.notify(sense));
    }

    pub(super) fn notify(&mut self, attentions: Vec<Attention>) {
        for (initiator, sense) in attentions {
            let meant = self
                .nexuses
                .iter_mut()
                .filter(|one| one.initiator == initiator);
            meant.for_each(|one| one.notify(sense));
        }
    }

    // -------------------------------------------------------------------------------- commands in the engine

    /// The epoch in which commands begin now. Those of an earlier epoch are cleared.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether a command that began in this epoch was cleared since, or its nexus is lost.
    pub(crate) fn cleared(&self, nexus: Nexus, epoch: u64) -> bool {
        let mut nexuses = self.nexuses.iter();
        let found = nexuses.find(|one| one.nexus == nexus);
        found.is_none_or(|one| epoch < one.since)
    }

    /// A request of a command goes to the engine.
    pub(crate) fn went(&mut self, nexus: Nexus) {
        if let Some(one) = self.attached(nexus) {
            one.running.live += 1;
        }
    }

    /// It is back. Gives the connections to be woken.
    pub(crate) fn came(&mut self, nexus: Nexus, epoch: u64) -> Vec<u32> {
        let count = match self.nexuses.iter_mut().find(|one| one.nexus == nexus) {
            Some(one) if epoch < one.since => &mut one.running.cleared,
            Some(one) => &mut one.running.live,
            None => match self.lost.iter_mut().find(|one| one.0 == nexus) {
                Some(one) => &mut one.1,
                None => return Vec::new(),
            },
        };
        *count = count.saturating_sub(1);
        self.lost.retain(|(_, running)| *running > 0);
        match self.clearing() {
            true => Vec::new(),
            false => std::mem::take(&mut self.waiting),
        }
    }

    /// Clears the commands of some nexuses. Gives the connections of others than `by` that may have some.
    fn clear_commands(&mut self, by: Nexus, of: impl Fn(&Attached) -> bool) -> Vec<u32> {
        self.epoch += 1;
        let mut others = Vec::new();
        for one in self.nexuses.iter_mut().filter(|one| of(one)) {
            one.since = self.epoch;
            one.running.cleared += std::mem::take(&mut one.running.live);
            if one.nexus != by {
                others.push(one.connection);
            }
        }
        others
    }

    /// Whether requests of cleared commands are still in the engine.
    fn clearing(&self) -> bool {
        let cleared = |one: &Attached| one.running.cleared > 0;
        !self.lost.is_empty() || self.nexuses.iter().any(cleared)
    }

    /// Whether requests of cleared commands are still in the engine. If so, the connection is woken later.
    pub(crate) fn awaits_cleared(&mut self, connection: u32) -> bool {
        let clearing = self.clearing();
        if clearing && !self.waiting.contains(&connection) {
            self.waiting.push(connection);
        }
        clearing
    }

    /// CLEAR TASK SET: other initiators are notified that their commands were cleared.
    pub(crate) fn clear_task_set(&mut self, by: Nexus) -> Vec<u32> {
        self.notify_others(Some(by), sense::COMMANDS_CLEARED);
        self.clear_commands(by, |_| true)
    }

    /// LOGICAL UNIT RESET (SAM-5 section 6.3.3).
    pub(crate) fn reset(&mut self, by: Nexus) -> Vec<u32> {
        self.reservations.reset();
        self.settings = Settings::default();
        self.nexuses.iter_mut().for_each(|one| one.prevents = false);
        self.notify_others(None, sense::RESET);
        self.clear_commands(by, |_| true)
    }

    // ------------------------------------------------------------------------------------------ for commands

    pub(super) fn look_at_size(&mut self, size_bytes: u64) {
        if self
            .size_bytes
            .replace(size_bytes)
            .is_some_and(|before| before != size_bytes)
        {
            self.notify_others(None, sense::CAPACITY_CHANGED);
        }
    }

    pub(super) fn take_attention(&mut self, nexus: Nexus) -> Option<Sense> {
        self.attached(nexus)?.attentions.pop_front()
    }

    pub(super) fn medium(&self, export: &Export) -> Medium {
        Medium {
            blocks: export.size_bytes / BLOCK_BYTES,
            read_only: export.read_only || self.settings.write_protect,
            durable: export.durable,
        }
    }

    pub(super) fn prevent_removal(&mut self, nexus: Nexus, prevent: bool) {
        if let Some(one) = self.attached(nexus) {
            one.prevents = prevent;
        }
    }

    pub(super) fn is_ejected(&self) -> bool {
        self.ejected
    }

    /// Loads or ejects the medium, where that can be done and no nexus prevents it. Others are notified of a
    /// medium that is there again.
    pub(super) fn load(&mut self, nexus: Nexus, load: bool) -> Result<(), Sense> {
        if !self.removable {
            return Ok(());
        }
        if self.nexuses.iter().any(|one| one.prevents) {
            return Err(sense::REMOVAL_PREVENTED);
        }
        if std::mem::replace(&mut self.ejected, !load) && load {
            self.notify_others(Some(nexus), sense::MEDIUM_CHANGED);
        }
        Ok(())
    }

    /// MODE SELECT with its parameters.
    pub(super) fn select(&mut self, nexus: Nexus, list: &[u8], long: bool) -> Answer {
        match mode::select(list, long, self.settings) {
            Ok(changed) => {
                if std::mem::replace(&mut self.settings, changed) != changed {
                    self.notify_others(Some(nexus), sense::MODE_CHANGED);
                }
                Answer::GOOD
            }
            Err(sense) => sense.into(),
        }
    }

    /// Whether a reservation keeps a nexus from a command.
    pub(super) fn conflicts(&self, nexus: Nexus, access: Access) -> bool {
        let who = self.initiator(nexus);
        who.is_none_or(|who| self.reservations.conflicts(who, access))
    }

    // ------------------------------------------------------------------------------- persistent reservations

    /// Keeps reservations here from now on, and has those that were kept. The error says what is wrong with
    /// the file.
    pub(crate) fn keep(&mut self, file: StateFile) -> Result<(), String> {
        let text = file.read().map_err(|error| error.to_string())?;
        let kept = text.map(|text| Reservations::decode(&text)).transpose()?;
        self.reservations = kept.unwrap_or_default();
        self.reservations.can_be_kept = true;
        self.state_file = Some(file);
        Ok(())
    }

    /// PERSISTENT RESERVE OUT with its parameters. A ticket: the change must reach the disk first. Then the
    /// connection is woken, and [`Unit::persisted`] has what it came to.
    pub(super) fn persist(
        &mut self,
        nexus: Nexus,
        command: &PersistentOut,
        list: &[u8],
        connection: u32,
    ) -> Result<Persisted, u64> {
        match self.change(nexus, command, list) {
            Err(refusal) => Ok(Err(refusal)),
            Ok(change) => match &self.state_file {
                Some(file) if change.after.must_be_kept_after(&self.reservations) => {
                    let text = change.after.kept.then(|| change.after.encode());
                    let kept = file.keep(text, connection);
                    self.pending = Some(Pending { change, kept });
                    self.tickets += 1;
                    Err(self.tickets)
                }
                _ => Ok(Ok(self.apply(change))),
            },
        }
    }

    fn change(
        &self,
        nexus: Nexus,
        command: &PersistentOut,
        list: &[u8],
    ) -> Result<Change, Refusal> {
        self.not_while_saving()?;
        let who = self.initiator(nexus).ok_or(sense::NOT_READY)?;
        let (mut after, mut attentions) = (self.reservations.clone(), Vec::new());
        after.change(who, command, list, &mut attentions)?;
        Ok(Change {
            nexus,
            aborts: reserve::aborts(command),
            after,
            attentions,
        })
    }

    /// PREEMPT AND ABORT clears the commands of those whose registrations it removes (SPC-4 section
    /// 5.13.11.2.8). Gives their connections.
    fn apply(&mut self, change: Change) -> Vec<u32> {
        self.reservations = change.after;
        let mut others = Vec::new();
        if change.aborts {
            let preempted = |(_, sense): &&Attention| *sense == sense::REGISTRATIONS_PREEMPTED;
            let preempted = change.attentions.iter().filter(preempted);
            let victims: Vec<&Initiator> = preempted.map(|(one, _)| one).collect();
            others = self.clear_commands(change.nexus, |one| victims.contains(&&one.initiator));
        }
        self.notify(change.attentions);
        others
    }

    /// One change after the other reaches the disk.
    pub(super) fn not_while_saving(&self) -> Result<(), Refusal> {
        match self.pending {
            Some(_) => Err(Refusal::Busy),
            None => Ok(()),
        }
    }

    /// Makes a change that has reached the disk. One that has not is refused.
    pub(crate) fn settle(&mut self) {
        let Some(pending) = &self.pending else {
            return;
        };
        let kept = match pending.kept.try_recv() {
            Err(TryRecvError::Empty) => return,
            kept => kept == Ok(true),
        };
        if let Some(Pending { change, .. }) = self.pending.take() {
            let result = match kept {
                true => Ok(self.apply(change)),
                false => Err(sense::INTERNAL_FAILURE.into()),
            };
            // Commands that were aborted do not come for theirs.
            self.persisted.truncate(PERSISTED_MAX);
            self.persisted.push_front((self.tickets, result));
        }
    }

    /// Whether the change of this ticket is on its way to the disk. The latest ticket is that of the only one
    /// that can be.
    pub(crate) fn is_saving(&self, ticket: u64) -> bool {
        self.pending.is_some() && ticket == self.tickets
    }

    /// What the change of this ticket came to.
    pub(super) fn persisted(&mut self, ticket: u64) -> Option<Persisted> {
        let place = self.persisted.iter().position(|(one, _)| *one == ticket)?;
        self.persisted.remove(place).map(|(_, result)| result)
    }

    /// A sense, encoded as initiators asked for.
    pub(crate) fn encode(&self, sense: &Sense) -> Vec<u8> {
        sense.encode(self.settings.descriptor_sense)
    }
}

impl Attached {
    fn notify(&mut self, sense: Sense) {
        if self.attentions.len() < ATTENTIONS_MAX && !self.attentions.contains(&sense) {
            self.attentions.push_back(sense);
        }
    }
}
