//! The first step of every command: what hinders it, its answer if it needs neither data from the initiator
//! nor the medium, or the job that it is.

use super::answer::{Answer, BLOCK_BYTES, Status};
use super::cdb::{self, Command, StartStop};
use super::job::Job;
use super::opcodes::{self, Access, Cdb};
use super::reserve::Refusal;
use super::sense::{self, Sense};
use super::unit::{Nexus, Unit};
use super::{inquiry, mode};
use crate::front::Export;

/// What a command is directed to: one unit of a target, by one nexus.
pub(crate) struct Addressed<'a> {
    pub unit: &'a mut Unit,
    pub nexus: Nexus,
    pub export: &'a Export,
    /// The numbers of the target's units.
    pub luns: &'a [u16],
}

/// Takes up a command.
pub(crate) fn begin(cdb: &Cdb, to: &mut Addressed<'_>) -> Result<Job, Answer> {
    to.unit.look_at_size(to.export.size_bytes);
    let access = opcodes::find(cdb)?.access;
    if access != Access::Always
        && let Some(attention) = to.unit.take_attention(to.nexus)
    {
        return Err(attention.into());
    }
    let command = cdb::decode(cdb)?;
    let who = to.unit.initiator(to.nexus).ok_or(sense::NOT_READY)?;
    if to.unit.reservations.conflicts(who, access) {
        return Err(Answer::status(Status::ReservationConflict));
    }
    let answer = of_reservations(&command, to.nexus, to.unit)
        .or_else(|| of_medium(&command, to))
        .or_else(|| of_unit(&command, to));
    match answer {
        Some(answer) => Err(answer),
        None => Job::new(command, access, to.unit.medium(to.export), to.export),
    }
}

fn of_reservations(command: &Command, nexus: Nexus, unit: &mut Unit) -> Option<Answer> {
    let good = |result: Result<(), Refusal>| match result {
        Ok(()) => Answer::GOOD,
        Err(refusal) => refusal.into(),
    };
    Some(match command {
        Command::Reserve | Command::Release => {
            let who = unit.initiator(nexus)?.clone();
            let free = unit.not_while_saving();
            let reservations = &mut unit.reservations;
            good(free.and_then(|()| match command {
                Command::Reserve => reservations.reserve(&who),
                _ => reservations.release(&who),
            }))
        }
        Command::PersistentIn { action, length } => match unit.reservations.report(*action) {
            Ok(data) => Answer::bytes(data, *length),
            Err(refusal) => refusal.into(),
        },
        _ => return None,
    })
}

/// A medium that can be removed: it is loaded and ejected, and may not be there.
fn of_medium(command: &Command, to: &mut Addressed<'_>) -> Option<Answer> {
    let unit = &mut to.unit;
    match command {
        Command::PreventAllow { prevent } => {
            unit.prevent_removal(to.nexus, *prevent);
            Some(Answer::GOOD)
        }
        Command::StartStop(StartStop::Nothing) => Some(Answer::GOOD),
        Command::StartStop(what) => Some(match unit.load(to.nexus, *what == StartStop::Load) {
            Ok(()) => Answer::GOOD,
            Err(sense) => sense.into(),
        }),
        Command::RequestSense { .. }
        | Command::Inquiry { .. }
        | Command::ReportLuns { .. }
        | Command::ModeSense(_)
        | Command::ModeSelect { .. }
        | Command::PersistentOut(_)
        | Command::ReportOpcodes(_)
        | Command::PortGroups { .. } => None,
        _ if unit.is_ejected() => Some(sense::NO_MEDIUM.into()),
        _ => None,
    }
}

fn of_unit(command: &Command, to: &mut Addressed<'_>) -> Option<Answer> {
    let bytes = |data: Result<Vec<u8>, Sense>, length: u32| match data {
        Ok(data) => Answer::bytes(data, length),
        Err(sense) => sense.into(),
    };
    let export = to.export;
    Some(match command {
        Command::TestUnitReady if !export.serving => sense::NOT_READY.into(),
        Command::TestUnitReady => Answer::GOOD,
        Command::PortGroups { length } => Answer::bytes(inquiry::port_groups(), *length),
        Command::ReadDefects {
            long,
            lists,
            length,
        } => Answer::bytes(no_defects(*long, *lists), *length),
        Command::RequestSense { descriptor, length } => {
            let sense = to.unit.take_attention(to.nexus);
            let sense = sense.unwrap_or(sense::NO_SENSE);
            Answer::bytes(sense.encode(*descriptor), *length)
        }
        Command::Inquiry { page, length } => match page {
            Some(page) => bytes(inquiry::page(*page, export), *length),
            None => {
                let removable = to.unit.removable;
                Answer::bytes(inquiry::standard(Some(export), removable), *length)
            }
        },
        Command::ReportLuns { select, length } => report_luns(*select, *length, to.luns),
        Command::ReadCapacity10 => Answer::bytes(capacity_10(export), 8),
        Command::ReadCapacity16 { length } => Answer::bytes(capacity_16(export), *length),
        Command::ModeSense(query) => {
            let data = mode::sense(query, to.unit.settings, to.unit.medium(export));
            bytes(data, query.length)
        }
        Command::ReportOpcodes(query) => bytes(opcodes::report(query), query.length),
        _ => return None,
    })
}

/// READ CAPACITY (10): the last block, or all ones where that does not fit.
fn capacity_10(export: &Export) -> Vec<u8> {
    let last = (export.size_bytes / BLOCK_BYTES).saturating_sub(1);
    let last = u32::try_from(last).unwrap_or(u32::MAX);
    let mut data = last.to_be_bytes().to_vec();
    data.extend_from_slice(&(BLOCK_BYTES as u32).to_be_bytes());
    data
}

/// READ CAPACITY (16): thin, and unmapped blocks read zeros.
fn capacity_16(export: &Export) -> Vec<u8> {
    let mut data = vec![0; 32];
    let last = (export.size_bytes / BLOCK_BYTES).saturating_sub(1);
    data[..8].copy_from_slice(&last.to_be_bytes());
    data[8..12].copy_from_slice(&(BLOCK_BYTES as u32).to_be_bytes());
    data[13] = inquiry::physical_blocks(export).trailing_zeros() as u8;
    data[14] = 0xc0;
    data
}

/// READ DEFECT DATA (SBC-3 section 5.17): an array hides the defects of its members, so the lists are empty.
fn no_defects(long: bool, lists: u8) -> Vec<u8> {
    match long {
        true => vec![0, lists, 0, 0, 0, 0, 0, 0],
        false => vec![0, lists, 0, 0],
    }
}

/// The first bytes of a logical unit number: the peripheral device method, or flat space for numbers of more
/// than one byte (SAM-5 section 4.7). The others are zero.
pub(crate) fn unit_number(lun: u16) -> [u8; 2] {
    let flat = if lun > 255 { 0x4000 } else { 0 };
    (lun | flat).to_be_bytes()
}

/// The logical unit numbers of a target, as REPORT LUNS has them (SPC-4 section 6.33).
fn report_luns(select: u8, length: u32, luns: &[u16]) -> Answer {
    let listed: &[u16] = match select {
        0 | 2 => luns,
        1 => &[],
        _ => return sense::INVALID_FIELD.into(),
    };
    if length < 16 {
        return sense::INVALID_FIELD.into();
    }
    let mut data = ((listed.len() * 8) as u32).to_be_bytes().to_vec();
    data.extend_from_slice(&[0; 4]);
    for lun in listed {
        data.extend_from_slice(&unit_number(*lun));
        data.extend_from_slice(&[0; 6]);
    }
    Answer::bytes(data, length)
}

/// The answer to a command for a number without a unit.
pub(crate) fn without_unit(cdb: &Cdb, luns: &[u16]) -> Answer {
    match cdb::decode(cdb) {
        Ok(Command::Inquiry { page: None, length }) => {
            Answer::bytes(inquiry::standard(None, false), length)
        }
        Ok(Command::ReportLuns { select, length }) => report_luns(select, length, luns),
        Ok(Command::RequestSense { descriptor, length }) => {
            Answer::bytes(sense::NO_SUCH_UNIT.encode(descriptor), length)
        }
        _ => sense::NO_SUCH_UNIT.into(),
    }
}
