//! The commands that a logical unit has: one table, from which commands are recognised, checked against
//! reservations, and reported (REPORT SUPPORTED OPERATION CODES).

use super::sense::{self, Sense};

/// Bytes of a command descriptor block as iSCSI carries it. Shorter ones are followed by zeros.
pub(crate) const CDB_BYTES: usize = 16;
pub(crate) type Cdb = [u8; CDB_BYTES];

/// Operation codes.
pub(crate) mod code {
    pub(crate) const TEST_UNIT_READY: u8 = 0x00;
    pub(crate) const REQUEST_SENSE: u8 = 0x03;
    pub(crate) const READ_6: u8 = 0x08;
    pub(crate) const WRITE_6: u8 = 0x0a;
    pub(crate) const INQUIRY: u8 = 0x12;
    pub(crate) const MODE_SELECT_6: u8 = 0x15;
    pub(crate) const RESERVE_6: u8 = 0x16;
    pub(crate) const RELEASE_6: u8 = 0x17;
    pub(crate) const MODE_SENSE_6: u8 = 0x1a;
    pub(crate) const START_STOP: u8 = 0x1b;
    pub(crate) const PREVENT_ALLOW: u8 = 0x1e;
    pub(crate) const READ_CAPACITY_10: u8 = 0x25;
    pub(crate) const READ_10: u8 = 0x28;
    pub(crate) const WRITE_10: u8 = 0x2a;
    pub(crate) const WRITE_VERIFY_10: u8 = 0x2e;
    pub(crate) const VERIFY_10: u8 = 0x2f;
    pub(crate) const PREFETCH_10: u8 = 0x34;
    pub(crate) const SYNCHRONIZE_10: u8 = 0x35;
    pub(crate) const READ_DEFECTS_10: u8 = 0x37;
    pub(crate) const WRITE_SAME_10: u8 = 0x41;
    pub(crate) const UNMAP: u8 = 0x42;
    pub(crate) const MODE_SELECT_10: u8 = 0x55;
    pub(crate) const RESERVE_10: u8 = 0x56;
    pub(crate) const RELEASE_10: u8 = 0x57;
    pub(crate) const MODE_SENSE_10: u8 = 0x5a;
    pub(crate) const PERSISTENT_IN: u8 = 0x5e;
    pub(crate) const PERSISTENT_OUT: u8 = 0x5f;
    pub(crate) const READ_16: u8 = 0x88;
    pub(crate) const COMPARE_WRITE: u8 = 0x89;
    pub(crate) const WRITE_16: u8 = 0x8a;
    pub(crate) const OR_WRITE: u8 = 0x8b;
    pub(crate) const WRITE_VERIFY_16: u8 = 0x8e;
    pub(crate) const VERIFY_16: u8 = 0x8f;
    pub(crate) const PREFETCH_16: u8 = 0x90;
    pub(crate) const SYNCHRONIZE_16: u8 = 0x91;
    pub(crate) const WRITE_SAME_16: u8 = 0x93;
    pub(crate) const SERVICE_IN_16: u8 = 0x9e;
    pub(crate) const REPORT_LUNS: u8 = 0xa0;
    pub(crate) const MAINTENANCE_IN: u8 = 0xa3;
    pub(crate) const READ_12: u8 = 0xa8;
    pub(crate) const WRITE_12: u8 = 0xaa;
    pub(crate) const WRITE_VERIFY_12: u8 = 0xae;
    pub(crate) const VERIFY_12: u8 = 0xaf;
    pub(crate) const READ_DEFECTS_12: u8 = 0xb7;
}

/// Service actions.
pub(crate) mod service {
    pub(crate) const READ_CAPACITY_16: u8 = 0x10;
    pub(crate) const GET_LBA_STATUS: u8 = 0x12;
    pub(crate) const PORT_GROUPS: u8 = 0x0a;
    pub(crate) const REPORT_OPCODES: u8 = 0x0c;
}

/// What a command does, as far as reservations and unit attentions are concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// Neither reservations nor unit attentions stop it.
    Always,
    /// Reservations do not stop it.
    Free,
    /// About reservations themselves: the persistent ones do not stop it, but the older kind does.
    Reservation,
    /// RELEASE: of another's reservation it does nothing.
    Release,
    Read,
    Write,
}

/// A command, or one service action of it.
pub(crate) struct Opcode {
    pub(crate) code: u8,
    pub(crate) action: Option<u8>,
    pub(crate) access: Access,
    /// Which bits of the command descriptor block are evaluated; as long as the block.
    usage: &'static [u8],
}

/// `OPCODE / SERVICE ACTION => ACCESS, [usage of the bytes behind the opcode]`
macro_rules! opcodes {
    ($($name:ident $(/ $action:expr)? => $access:ident, [$($usage:expr),*];)*) => {
        &[$(Opcode {
            code: code::$name,
            action: at_most_one(&[$($action)?]),
            access: Access::$access,
            usage: &[code::$name, $($usage),*],
        }),*]
    };
}

const fn at_most_one(actions: &[u8]) -> Option<u8> {
    match actions {
        [action] => Some(*action),
        _ => None,
    }
}

const A: u8 = 0xff;

/// Every command, with its service action if it has one, ascending.
const TABLE: &[Opcode] = opcodes! {
    TEST_UNIT_READY => Free, [0, 0, 0, 0, 7];
    REQUEST_SENSE => Always, [1, 0, 0, A, 7];
    READ_6 => Read, [0x1f, A, A, A, 7];
    WRITE_6 => Write, [0x1f, A, A, A, 7];
    INQUIRY => Always, [1, A, A, A, 7];
    MODE_SELECT_6 => Write, [0x11, 0, 0, A, 7];
    RESERVE_6 => Reservation, [0, 0, 0, 0, 7];
    RELEASE_6 => Release, [0, 0, 0, 0, 7];
    MODE_SENSE_6 => Read, [0x08, A, A, A, 7];
    START_STOP => Write, [1, 0, 0x0f, 0xf7, 7];
    PREVENT_ALLOW => Read, [0, 0, 0, 3, 7];
    READ_CAPACITY_10 => Free, [0, 0, 0, 0, 0, 0, 0, 0, 7];
    READ_10 => Read, [0x18, A, A, A, A, 0, A, A, 7];
    WRITE_10 => Write, [0x18, A, A, A, A, 0, A, A, 7];
    WRITE_VERIFY_10 => Write, [0x12, A, A, A, A, 0, A, A, 7];
    VERIFY_10 => Read, [0x16, A, A, A, A, 0, A, A, 7];
    PREFETCH_10 => Read, [2, A, A, A, A, 0, A, A, 7];
    SYNCHRONIZE_10 => Write, [2, A, A, A, A, 0, A, A, 7];
    READ_DEFECTS_10 => Free, [0, 0x1f, 0, 0, 0, 0, A, A, 7];
    WRITE_SAME_10 => Write, [0x08, A, A, A, A, 0, A, A, 7];
    UNMAP => Write, [0, 0, 0, 0, 0, 0, A, A, 7];
    MODE_SELECT_10 => Write, [0x11, 0, 0, 0, 0, 0, A, A, 7];
    RESERVE_10 => Reservation, [0, 0, 0, 0, 0, 0, 0, 0, 7];
    RELEASE_10 => Release, [0, 0, 0, 0, 0, 0, 0, 0, 7];
    MODE_SENSE_10 => Read, [0x18, A, A, 0, 0, 0, A, A, 7];
    PERSISTENT_IN / 0 => Reservation, [0x1f, 0, 0, 0, 0, 0, A, A, 7];
    PERSISTENT_IN / 1 => Reservation, [0x1f, 0, 0, 0, 0, 0, A, A, 7];
    PERSISTENT_IN / 2 => Reservation, [0x1f, 0, 0, 0, 0, 0, A, A, 7];
    PERSISTENT_IN / 3 => Reservation, [0x1f, 0, 0, 0, 0, 0, A, A, 7];
    PERSISTENT_OUT / 0 => Reservation, [0x1f, A, 0, 0, A, A, A, A, 7];
    PERSISTENT_OUT / 1 => Reservation, [0x1f, A, 0, 0, A, A, A, A, 7];
    PERSISTENT_OUT / 2 => Reservation, [0x1f, A, 0, 0, A, A, A, A, 7];
    PERSISTENT_OUT / 3 => Reservation, [0x1f, A, 0, 0, A, A, A, A, 7];
    PERSISTENT_OUT / 4 => Reservation, [0x1f, A, 0, 0, A, A, A, A, 7];
    PERSISTENT_OUT / 5 => Reservation, [0x1f, A, 0, 0, A, A, A, A, 7];
    PERSISTENT_OUT / 6 => Reservation, [0x1f, A, 0, 0, A, A, A, A, 7];
    READ_16 => Read, [0x18, A, A, A, A, A, A, A, A, A, A, A, A, 0, 7];
    COMPARE_WRITE => Write, [0x18, A, A, A, A, A, A, A, A, 0, 0, 0, A, 0, 7];
    WRITE_16 => Write, [0x18, A, A, A, A, A, A, A, A, A, A, A, A, 0, 7];
    OR_WRITE => Write, [0x18, A, A, A, A, A, A, A, A, A, A, A, A, 0, 7];
    WRITE_VERIFY_16 => Write, [0x12, A, A, A, A, A, A, A, A, A, A, A, A, 0, 7];
    VERIFY_16 => Read, [0x16, A, A, A, A, A, A, A, A, A, A, A, A, 0, 7];
    PREFETCH_16 => Read, [2, A, A, A, A, A, A, A, A, A, A, A, A, 0, 7];
    SYNCHRONIZE_16 => Write, [2, A, A, A, A, A, A, A, A, A, A, A, A, 0, 7];
    WRITE_SAME_16 => Write, [0x09, A, A, A, A, A, A, A, A, A, A, A, A, 0, 7];
    SERVICE_IN_16 / service::READ_CAPACITY_16 => Free, [0x10, 0, 0, 0, 0, 0, 0, 0, 0, A, A, A, A, 0, 7];
    SERVICE_IN_16 / service::GET_LBA_STATUS => Read, [0x12, A, A, A, A, A, A, A, A, A, A, A, A, 0, 7];
    REPORT_LUNS => Always, [0, A, 0, 0, 0, A, A, A, A, 0, 7];
    MAINTENANCE_IN / service::PORT_GROUPS => Free, [0x0a, 0, 0, 0, 0, A, A, A, A, 0, 7];
    MAINTENANCE_IN / service::REPORT_OPCODES => Free, [0x0c, 0x87, A, A, A, A, A, A, A, 0, 7];
    READ_12 => Read, [0x18, A, A, A, A, A, A, A, A, 0, 7];
    WRITE_12 => Write, [0x18, A, A, A, A, A, A, A, A, 0, 7];
    WRITE_VERIFY_12 => Write, [0x12, A, A, A, A, A, A, A, A, 0, 7];
    VERIFY_12 => Read, [0x16, A, A, A, A, A, A, A, A, 0, 7];
    READ_DEFECTS_12 => Free, [0x1f, 0, 0, 0, 0, A, A, A, A, 0, 7];
};

fn lookup(code: u8, action: u8) -> Option<&'static Opcode> {
    let matches = |it: &&Opcode| it.code == code && it.action.is_none_or(|own| own == action);
    TABLE.iter().find(matches)
}

/// The entry of a command. An opcode or service action that is not in the table is refused.
pub(crate) fn find(cdb: &Cdb) -> Result<&'static Opcode, Sense> {
    let found = lookup(cdb[0], cdb[1] & 0x1f);
    found.ok_or_else(|| match has_actions(cdb[0]) {
        true => sense::INVALID_FIELD,
        false => sense::INVALID_OPCODE,
    })
}

/// Whether an opcode is in the table with service actions: another service action is then a wrong field.
fn has_actions(code: u8) -> bool {
    TABLE
        .iter()
        .any(|it| it.code == code && it.action.is_some())
}

/// REPORT SUPPORTED OPERATION CODES.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReportOpcodes {
    /// With descriptors of time-outs.
    pub(crate) timeouts: bool,
    pub(crate) options: u8,
    pub(crate) opcode: u8,
    pub(crate) action: u16,
    pub(crate) length: u32,
}

/// The answer to REPORT SUPPORTED OPERATION CODES (SPC-4 section 6.35).
pub(crate) fn report(query: &ReportOpcodes) -> Result<Vec<u8>, Sense> {
    match query.options {
        0 => Ok(report_all(query.timeouts)),
        1 if has_actions(query.opcode) => Err(sense::INVALID_FIELD),
        1 => Ok(report_one(query, lookup(query.opcode, 0))),
        2 if has_actions(query.opcode) => Ok(report_one(query, of_action(query))),
        3 => Ok(report_one(query, of_either(query))),
        _ => Err(sense::INVALID_FIELD),
    }
}

fn of_action(query: &ReportOpcodes) -> Option<&'static Opcode> {
    let action = u8::try_from(query.action).ok()?;
    lookup(query.opcode, action)
}

fn of_either(query: &ReportOpcodes) -> Option<&'static Opcode> {
    match has_actions(query.opcode) || query.action == 0 {
        true => of_action(query),
        false => None,
    }
}

/// No time-outs are known: the descriptor of each is there, and empty.
const TIMEOUTS: [u8; 12] = [0, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn report_all(timeouts: bool) -> Vec<u8> {
    let mut list = Vec::new();
    for entry in TABLE {
        let flags = u8::from(entry.action.is_some()) | if timeouts { 2 } else { 0 };
        let action = entry.action.unwrap_or(0);
        list.extend_from_slice(&[
            entry.code,
            0,
            0,
            action,
            0,
            flags,
            0,
            entry.usage.len() as u8,
        ]);
        if timeouts {
            list.extend_from_slice(&TIMEOUTS);
        }
    }
    let mut data = (list.len() as u32).to_be_bytes().to_vec();
    data.append(&mut list);
    data
}

fn report_one(query: &ReportOpcodes, found: Option<&Opcode>) -> Vec<u8> {
    let Some(entry) = found else {
        return vec![0, 1, 0, 0];
    };
    let usage = entry.usage;
    let timeouts = if query.timeouts { 0x80 } else { 0 };
    let mut data = vec![0, timeouts | 3, 0, usage.len() as u8];
    data.extend_from_slice(usage);
    if query.timeouts {
        data.extend_from_slice(&TIMEOUTS);
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_in_order_and_as_long_as_its_group() {
        let key = |it: &Opcode| (it.code, it.action);
        assert!(TABLE.windows(2).all(|pair| key(&pair[0]) < key(&pair[1])));
        for entry in TABLE {
            let bytes = [6, 10, 10, 0, 16, 12, 0, 0][usize::from(entry.code >> 5)];
            assert_eq!(entry.usage.len(), bytes, "{:#x}", entry.code);
            assert_eq!(entry.usage[0], entry.code);
        }
    }
}
