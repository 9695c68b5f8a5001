//! Reservations of a logical unit: the older kind (RESERVE, RELEASE) and the persistent one (SPC-4 section
//! 5.13).

use super::cdb::PersistentOut;
use super::opcodes::Access;
use super::sense::{self, Sense};

/// The initiator's end of a nexus, as it is known over sessions: its name, and the identifier of its session.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Initiator {
    pub(crate) name: String,
    pub(crate) isid: [u8; 6],
}

impl Initiator {
    /// The identifier of its session in hexadecimal digits.
    pub(super) fn isid_digits(&self) -> String {
        self.isid.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Registrations of one unit at most.
const REGISTRATIONS_MAX: usize = 256;

/// Types of a persistent reservation.
const WRITE_EXCLUSIVE: u8 = 1;
const EXCLUSIVE: u8 = 3;
const WRITE_EXCLUSIVE_REGISTRANTS: u8 = 5;
const EXCLUSIVE_REGISTRANTS: u8 = 6;
const WRITE_EXCLUSIVE_ALL: u8 = 7;
const EXCLUSIVE_ALL: u8 = 8;

const TYPES: [u8; 6] = [
    WRITE_EXCLUSIVE,
    EXCLUSIVE,
    WRITE_EXCLUSIVE_REGISTRANTS,
    EXCLUSIVE_REGISTRANTS,
    WRITE_EXCLUSIVE_ALL,
    EXCLUSIVE_ALL,
];

/// Service actions of PERSISTENT RESERVE OUT.
mod action {
    pub(crate) const REGISTER: u8 = 0;
    pub(crate) const RESERVE: u8 = 1;
    pub(crate) const RELEASE: u8 = 2;
    pub(crate) const CLEAR: u8 = 3;
    pub(crate) const PREEMPT: u8 = 4;
    pub(crate) const PREEMPT_AND_ABORT: u8 = 5;
    pub(crate) const REGISTER_AND_IGNORE: u8 = 6;
}

/// Whether a PERSISTENT RESERVE OUT ends the commands of those whose registrations it removes.
pub(crate) fn aborts(command: &PersistentOut) -> bool {
    command.action == action::PREEMPT_AND_ABORT
}

/// Bytes of the parameters of PERSISTENT RESERVE OUT.
const PARAMETER_BYTES: usize = 24;

/// Why a command about reservations fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    Conflict,
    /// Another change is on its way to the disk.
    Busy,
    Sense(Sense),
}

impl From<Sense> for Refusal {
    fn from(sense: Sense) -> Refusal {
        Refusal::Sense(sense)
    }
}

/// A unit attention for an initiator, as a result of another's command.
pub(crate) type Attention = (Initiator, Sense);

#[derive(Clone, Default, Debug)]
pub(crate) struct Reservations {
    /// The older kind: of one initiator, alone.
    pub(super) simple: Option<Initiator>,
    pub(super) keys: Vec<(Initiator, u64)>,
    pub(super) held: Option<Held>,
    pub(super) generation: u32,
    /// The persistent kind can outlive the daemon.
    pub(super) can_be_kept: bool,
    /// It does (APTPL of the last registration).
    pub(super) kept: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Held {
    /// For the types of all registrants: any of them.
    pub(super) holder: Initiator,
    pub(super) kind: u8,
}

/// Whether there is such a type of a persistent reservation.
pub(super) fn is_type(kind: u8) -> bool {
    TYPES.contains(&kind)
}

impl Held {
    fn of_all(&self) -> bool {
        matches!(self.kind, WRITE_EXCLUSIVE_ALL | EXCLUSIVE_ALL)
    }

    fn shared(&self) -> bool {
        self.kind >= WRITE_EXCLUSIVE_REGISTRANTS
    }

    fn lets_read(&self) -> bool {
        matches!(
            self.kind,
            WRITE_EXCLUSIVE | WRITE_EXCLUSIVE_REGISTRANTS | WRITE_EXCLUSIVE_ALL
        )
    }
}

impl Reservations {
    /// Whether a change from `before` to this has to reach the disk.
    pub(crate) fn must_be_kept_after(&self, before: &Reservations) -> bool {
        let differs = self.keys != before.keys || self.held != before.held;
        (self.kept && differs) || self.kept != before.kept
    }

    /// Whether a command of `who` conflicts with a reservation.
    pub(crate) fn conflicts(&self, who: &Initiator, access: Access) -> bool {
        if matches!(access, Access::Always | Access::Release) {
            return false;
        }
        if self.simple.as_ref().is_some_and(|holder| holder != who) {
            return true;
        }
        let Some(held) = &self.held else {
            return false;
        };
        match access {
            Access::Always | Access::Release | Access::Free | Access::Reservation => false,
            Access::Read if held.lets_read() => false,
            Access::Read | Access::Write => !self.admits(held, who),
        }
    }

    fn admits(&self, held: &Held, who: &Initiator) -> bool {
        match held.shared() {
            true => self.key_of(who).is_some(),
            false => held.holder == *who,
        }
    }

    fn key_of(&self, who: &Initiator) -> Option<u64> {
        let mut keys = self.keys.iter();
        keys.find(|(one, _)| one == who).map(|(_, key)| *key)
    }

    fn holds(&self, who: &Initiator) -> bool {
        let all = |held: &Held| held.of_all() && self.key_of(who).is_some();
        self.held
            .as_ref()
            .is_some_and(|held| held.holder == *who || all(held))
    }

    // ---------------------------------------------------------------------------------------- the older kind

    /// RESERVE: not while there are registrations (SPC-4 section 5.13.3, CRH of zero).
    pub(crate) fn reserve(&mut self, who: &Initiator) -> Result<(), Refusal> {
        if !self.keys.is_empty() {
            return Err(Refusal::Conflict);
        }
        match &self.simple {
            Some(holder) if holder != who => Err(Refusal::Conflict),
            _ => {
                self.simple = Some(who.clone());
                Ok(())
            }
        }
    }

    /// RELEASE: of another's reservation nothing happens, and that is no error.
    pub(crate) fn release(&mut self, who: &Initiator) -> Result<(), Refusal> {
        if !self.keys.is_empty() {
            return Err(Refusal::Conflict);
        }
        if self.simple.as_ref() == Some(who) {
            self.simple = None;
        }
        Ok(())
    }

    /// The nexus is lost: the older kind of reservation ends with it.
    pub(crate) fn lost(&mut self, who: &Initiator) {
        if self.simple.as_ref() == Some(who) {
            self.simple = None;
        }
    }

    pub(crate) fn reset(&mut self) {
        self.simple = None;
    }

    // ------------------------------------------------------------------------------------ the persistent one

    /// The answer to PERSISTENT RESERVE IN.
    pub(crate) fn report(&self, action: u8) -> Result<Vec<u8>, Refusal> {
        if self.simple.is_some() {
            return Err(Refusal::Conflict);
        }
        let list = match action {
            0 => self
                .keys
                .iter()
                .flat_map(|(_, key)| key.to_be_bytes())
                .collect(),
            1 => self.report_held(),
            2 => return Ok(capabilities(self.can_be_kept, self.kept)),
            3 => self.report_all(),
            _ => return Err(sense::INVALID_FIELD.into()),
        };
        let mut data = self.generation.to_be_bytes().to_vec();
        data.extend_from_slice(&(list.len() as u32).to_be_bytes());
        data.extend(list);
        Ok(data)
    }

    fn report_held(&self) -> Vec<u8> {
        let Some(held) = &self.held else {
            return Vec::new();
        };
        let key = match held.of_all() {
            true => 0,
            false => self.key_of(&held.holder).unwrap_or(0),
        };
        let mut data = key.to_be_bytes().to_vec();
        data.extend_from_slice(&[0, 0, 0, 0, 0, held.kind, 0, 0]);
        data
    }

    /// Full status: each registration with its initiator's name.
    fn report_all(&self) -> Vec<u8> {
        let mut data = Vec::new();
        for (who, key) in &self.keys {
            let mut entry = vec![0; 24];
            entry[..8].copy_from_slice(&key.to_be_bytes());
            if self.holds(who) {
                entry[12] = 0x01;
                entry[13] = self.held.as_ref().map_or(0, |held| held.kind);
            }
            entry[19] = 1;
            let name = transport_id(who);
            entry[20..24].copy_from_slice(&(name.len() as u32).to_be_bytes());
            data.extend(entry);
            data.extend(name);
        }
        data
    }

    /// PERSISTENT RESERVE OUT. What others are to be notified of is added to `attentions`.
    pub(crate) fn change(
        &mut self,
        who: &Initiator,
        command: &PersistentOut,
        list: &[u8],
        attentions: &mut Vec<Attention>,
    ) -> Result<(), Refusal> {
        if self.simple.is_some() {
            return Err(Refusal::Conflict);
        }
        let list = list
            .first_chunk::<PARAMETER_BYTES>()
            .filter(|_| command.length as usize == PARAMETER_BYTES)
            .ok_or(sense::PARAMETER_LIST_LENGTH)?;
        let number = |at: usize| {
            list[at..at + 8]
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let (key, new) = (number(0), number(8));
        // SPEC_I_PT and ALL_TG_PT are not there. APTPL is where registrations can outlive the daemon.
        let registers = matches!(
            command.action,
            action::REGISTER | action::REGISTER_AND_IGNORE
        );
        let keep = registers && list[20] & 0x01 != 0;
        if list[20] & 0x0c != 0 || (keep && !self.can_be_kept) {
            return Err(sense::INVALID_PARAMETER.into());
        }
        let typed = matches!(
            command.action,
            action::RESERVE | action::RELEASE | action::PREEMPT | action::PREEMPT_AND_ABORT
        );
        if typed && (command.scope != 0 || !TYPES.contains(&command.kind)) {
            return Err(sense::INVALID_FIELD.into());
        }
        match command.action {
            action::REGISTER => self.register(who, Some(key), new, keep, attentions),
            action::REGISTER_AND_IGNORE => self.register(who, None, new, keep, attentions),
            _ if self.key_of(who) != Some(key) => Err(Refusal::Conflict),
            action::RESERVE => self.hold(who, command.kind),
            action::RELEASE => self.let_go(who, command.kind, attentions),
            action::CLEAR => {
                self.clear(who, attentions);
                Ok(())
            }
            action::PREEMPT | action::PREEMPT_AND_ABORT => {
                self.preempt(who, new, command.kind, attentions)
            }
            _ => Err(sense::INVALID_FIELD.into()),
        }
    }

    fn register(
        &mut self,
        who: &Initiator,
        key: Option<u64>,
        new: u64,
        keep: bool,
        attentions: &mut Vec<Attention>,
    ) -> Result<(), Refusal> {
        let known = self.key_of(who);
        if key.is_some_and(|key| key != known.unwrap_or(0)) {
            return Err(Refusal::Conflict);
        }
        match (known, new) {
            (None, 0) => return Ok(()),
            (Some(_), 0) => self.unregister(who, attentions),
            (None, _) if self.keys.len() >= REGISTRATIONS_MAX => {
                return Err(sense::NO_REGISTRATIONS_LEFT.into());
            }
            (None, _) => self.keys.push((who.clone(), new)),
            (Some(_), _) => {
                let mine = self.keys.iter_mut().filter(|(one, _)| one == who);
                mine.for_each(|(_, key)| *key = new);
            }
        }
        self.kept = keep;
        self.generation = self.generation.wrapping_add(1);
        Ok(())
    }

    fn unregister(&mut self, who: &Initiator, attentions: &mut Vec<Attention>) {
        self.keys.retain(|(one, _)| one != who);
        let Some(held) = self.held.take_if(|held| held.holder == *who) else {
            return;
        };
        match self.keys.first() {
            // Another registrant holds it now.
            Some((next, _)) if held.of_all() => {
                let holder = next.clone();
                self.held = Some(Held { holder, ..held });
            }
            _ if held.shared() => self.notify(who, sense::RESERVATIONS_RELEASED, attentions),
            _ => {}
        }
    }

    fn notify(&self, who: &Initiator, sense: Sense, attentions: &mut Vec<Attention>) {
        let others = self.keys.iter().filter(|(one, _)| one != who);
        attentions.extend(others.map(|(one, _)| (one.clone(), sense)));
    }

    fn hold(&mut self, who: &Initiator, kind: u8) -> Result<(), Refusal> {
        match &self.held {
            None => {
                let holder = who.clone();
                self.held = Some(Held { holder, kind });
                Ok(())
            }
            Some(held) if held.kind == kind && self.holds(who) => Ok(()),
            Some(_) => Err(Refusal::Conflict),
        }
    }

    fn let_go(
        &mut self,
        who: &Initiator,
        kind: u8,
        attentions: &mut Vec<Attention>,
    ) -> Result<(), Refusal> {
        let Some(held) = self.held.clone().filter(|_| self.holds(who)) else {
            return Ok(());
        };
        if held.kind != kind {
            return Err(sense::INVALID_RELEASE.into());
        }
        self.held = None;
        if held.shared() {
            self.notify(who, sense::RESERVATIONS_RELEASED, attentions);
        }
        Ok(())
    }

    fn clear(&mut self, who: &Initiator, attentions: &mut Vec<Attention>) {
        self.notify(who, sense::RESERVATIONS_PREEMPTED, attentions);
        self.keys.clear();
        self.held = None;
        self.generation = self.generation.wrapping_add(1);
    }

    fn preempt(
        &mut self,
        who: &Initiator,
        victim: u64,
        kind: u8,
        attentions: &mut Vec<Attention>,
    ) -> Result<(), Refusal> {
        let of_all = self.held.as_ref().is_some_and(Held::of_all);
        if victim == 0 && !of_all {
            return Err(sense::INVALID_PARAMETER.into());
        }
        let is_victim = |one: &Initiator, key: u64| one != who && (victim == 0 || key == victim);
        let holds = |held: &Held| self.key_of(&held.holder) == Some(victim);
        let takes = self.held.as_ref().is_some_and(|held| match of_all {
            true => victim == 0,
            false => holds(held),
        });
        let (mut gone, mut left) = (Vec::new(), Vec::new());
        for (one, key) in std::mem::take(&mut self.keys) {
            match is_victim(&one, key) {
                true => gone.push(one),
                false => left.push((one, key)),
            }
        }
        self.keys = left;
        if gone.is_empty() && !takes {
            return Err(Refusal::Conflict);
        }
        let preempted = gone
            .iter()
            .map(|one| (one.clone(), sense::REGISTRATIONS_PREEMPTED));
        attentions.extend(preempted);
        if takes {
            let before = self.held.replace(Held {
                holder: who.clone(),
                kind,
            });
            if before.is_some_and(|held| held.kind != kind) {
                self.notify(who, sense::RESERVATIONS_RELEASED, attentions);
            }
        } else if of_all
            && self
                .held
                .as_ref()
                .is_some_and(|held| gone.contains(&held.holder))
        {
            let holder = who.clone();
            self.held = self.held.take().map(|held| Held { holder, ..held });
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(())
    }
}

/// REPORT CAPABILITIES: all types. `can_be_kept`: PTPL_C; `kept`: PTPL_A.
fn capabilities(can_be_kept: bool, kept: bool) -> Vec<u8> {
    let (can, is) = (u8::from(can_be_kept), u8::from(kept));
    vec![0, 8, can, 0x80 | is, 0xea, 0x01, 0, 0]
}

/// The TransportID of an iSCSI initiator port (SPC-4 section 7.6.4.6).
fn transport_id(who: &Initiator) -> Vec<u8> {
    let digits = who.isid_digits();
    let mut name = format!("{},i,0x{digits}\0", who.name).into_bytes();
    name.resize(name.len().next_multiple_of(4), 0);
    let length = u16::try_from(name.len()).unwrap_or(0).to_be_bytes();
    let mut data = vec![0x45, 0, length[0], length[1]];
    data.extend(name);
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    fn initiator(number: u8) -> Initiator {
        Initiator {
            name: format!("iqn.2026-11.test:{number}"),
            isid: [number; 6],
        }
    }

    fn out(action: u8, kind: u8) -> PersistentOut {
        PersistentOut {
            action,
            scope: 0,
            kind,
            length: PARAMETER_BYTES as u32,
        }
    }

    fn list(key: u64, new: u64) -> Vec<u8> {
        let mut list = key.to_be_bytes().to_vec();
        list.extend_from_slice(&new.to_be_bytes());
        list.resize(PARAMETER_BYTES, 0);
        list
    }

    fn change(
        all: &mut Reservations,
        who: u8,
        action: u8,
        kind: u8,
        keys: (u64, u64),
    ) -> Vec<Attention> {
        let mut attentions = Vec::new();
        let command = out(action, kind);
        all.change(
            &initiator(who),
            &command,
            &list(keys.0, keys.1),
            &mut attentions,
        )
        .expect("it may");
        attentions
    }

    #[test]
    fn each_type_admits_whom_the_standard_names() {
        for (kind, others_read, registered_write) in [
            (WRITE_EXCLUSIVE, true, false),
            (EXCLUSIVE, false, false),
            (WRITE_EXCLUSIVE_REGISTRANTS, true, true),
            (EXCLUSIVE_REGISTRANTS, false, true),
            (WRITE_EXCLUSIVE_ALL, true, true),
            (EXCLUSIVE_ALL, false, true),
        ] {
            let mut all = Reservations::default();
            change(&mut all, 1, action::REGISTER, 0, (0, 11));
            change(&mut all, 2, action::REGISTER, 0, (0, 22));
            change(&mut all, 1, action::RESERVE, kind, (11, 0));
            let conflicts = |who, access| all.conflicts(&initiator(who), access);
            assert!(!conflicts(1, Access::Write));
            assert_eq!(!conflicts(3, Access::Read), others_read, "type {kind}");
            assert!(conflicts(3, Access::Write), "type {kind}");
            assert_eq!(
                !conflicts(2, Access::Write),
                registered_write,
                "type {kind}"
            );
        }
    }

    #[test]
    fn a_preempted_holder_is_notified_and_replaced() {
        let mut all = Reservations::default();
        change(&mut all, 1, action::REGISTER, 0, (0, 11));
        change(&mut all, 2, action::REGISTER, 0, (0, 22));
        change(&mut all, 1, action::RESERVE, EXCLUSIVE, (11, 0));
        let told = change(&mut all, 2, action::PREEMPT, EXCLUSIVE, (22, 11));
        assert_eq!(told, [(initiator(1), sense::REGISTRATIONS_PREEMPTED)]);
        assert!(all.conflicts(&initiator(1), Access::Read));
        assert!(!all.conflicts(&initiator(2), Access::Write));
        assert_eq!(all.key_of(&initiator(1)), None);
    }

    #[test]
    fn the_older_kind_ends_with_its_nexus() {
        let mut all = Reservations::default();
        all.reserve(&initiator(1)).expect("it is free");
        assert!(all.conflicts(&initiator(2), Access::Free));
        assert_eq!(all.reserve(&initiator(2)), Err(Refusal::Conflict));
        all.lost(&initiator(1));
        assert!(!all.conflicts(&initiator(2), Access::Free));
    }
}
