//! Command descriptor blocks: sixteen bytes from an initiator, decoded and checked (SPC-4, SBC-3).

use super::opcodes::{self, Cdb, ReportOpcodes, code, service};
use super::sense::{self, Sense};

/// A command with its fields. Lengths are in bytes, extents in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    TestUnitReady,
    RequestSense {
        descriptor: bool,
        length: u32,
    },
    Inquiry {
        page: Option<u8>,
        length: u32,
    },
    ReportLuns {
        select: u8,
        length: u32,
    },
    ReadCapacity10,
    ReadCapacity16 {
        length: u32,
    },
    LbaStatus {
        lba: u64,
        length: u32,
    },
    ModeSense(ModeSense),
    ModeSelect {
        long: bool,
        save: bool,
        length: u32,
    },
    StartStop(StartStop),
    PreventAllow {
        prevent: bool,
    },
    Reserve,
    Release,
    PersistentIn {
        action: u8,
        length: u32,
    },
    PersistentOut(PersistentOut),
    ReportOpcodes(ReportOpcodes),
    PortGroups {
        length: u32,
    },
    ReadDefects {
        long: bool,
        /// Which lists, and in which format.
        lists: u8,
        length: u32,
    },
    Read(Extent),
    Write(Extent),
    Verify(Extent, Compare),
    WriteAndVerify(Extent, Compare),
    CompareAndWrite(Extent),
    OrWrite(Extent),
    WriteSame(WriteSame),
    Unmap {
        length: u32,
    },
    Synchronize(Extent),
    Prefetch(Extent),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    pub(crate) lba: u64,
    pub(crate) blocks: u64,
    /// Durable before the status.
    pub(crate) fua: bool,
}

/// What a verification compares the medium with (BYTCHK).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Compare {
    /// Nothing: it must be readable.
    Nothing,
    /// As many bytes from the initiator.
    All,
    /// One block from the initiator, again and again.
    OneBlock,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WriteSame {
    pub(crate) extent: Extent,
    /// No data: zeros.
    pub(crate) without_data: bool,
}

/// What a START STOP UNIT is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StartStop {
    Load,
    Eject,
    /// Start, stop, or a power condition: of no effect.
    Nothing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ModeSense {
    pub(crate) long: bool,
    /// Without a block descriptor.
    pub(crate) bare: bool,
    /// Which values: current (0), changeable (1), default (2), saved (3).
    pub(crate) control: u8,
    pub(crate) page: u8,
    pub(crate) subpage: u8,
    pub(crate) length: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PersistentOut {
    pub(crate) action: u8,
    pub(crate) scope: u8,
    pub(crate) kind: u8,
    pub(crate) length: u32,
}

/// Decodes a command. An opcode or service action that is not in the table is refused, and so is a field that
/// asks for something that is not there.
pub(crate) fn decode(cdb: &Cdb) -> Result<Command, Sense> {
    opcodes::find(cdb)?;
    decode_other(cdb)
}

fn decode_medium(cdb: &Cdb) -> Result<Command, Sense> {
    let extent = extent(cdb);
    match cdb[0] {
        code::READ_6 | code::READ_10 | code::READ_12 | code::READ_16 => {
            unprotected(cdb)?;
            Ok(Command::Read(extent))
        }
        code::WRITE_6 | code::WRITE_10 | code::WRITE_12 | code::WRITE_16 => {
            unprotected(cdb)?;
            Ok(Command::Write(extent))
        }
        code::COMPARE_WRITE => {
            unprotected(cdb)?;
            let blocks = u64::from(cdb[13]);
            Ok(Command::CompareAndWrite(Extent { blocks, ..extent }))
        }
        code::OR_WRITE => {
            unprotected(cdb)?;
            Ok(Command::OrWrite(extent))
        }
        code::VERIFY_10 | code::VERIFY_12 | code::VERIFY_16 => {
            Ok(Command::Verify(extent, compare(cdb)?))
        }
        code::WRITE_VERIFY_10 | code::WRITE_VERIFY_12 | code::WRITE_VERIFY_16 => {
            let extent = Extent {
                fua: true,
                ..extent
            };
            Ok(Command::WriteAndVerify(extent, compare(cdb)?))
        }
        code::WRITE_SAME_10 | code::WRITE_SAME_16 => write_same(cdb, extent),
        code::UNMAP => match cdb[1] & 1 {
            0 => Ok(Command::Unmap {
                length: word(cdb, 7),
            }),
            // Anchored blocks do not exist here.
            _ => Err(sense::INVALID_FIELD),
        },
        code::SYNCHRONIZE_10 | code::SYNCHRONIZE_16 => Ok(Command::Synchronize(extent)),
        code::PREFETCH_10 | code::PREFETCH_16 => Ok(Command::Prefetch(extent)),
        _ => Err(sense::INVALID_OPCODE),
    }
}

fn decode_other(cdb: &Cdb) -> Result<Command, Sense> {
    Ok(match cdb[0] {
        code::TEST_UNIT_READY => Command::TestUnitReady,
        code::REQUEST_SENSE => Command::RequestSense {
            descriptor: cdb[1] & 1 != 0,
            length: u32::from(cdb[4]),
        },
        code::INQUIRY => inquiry(cdb)?,
        code::REPORT_LUNS => Command::ReportLuns {
            select: cdb[2],
            length: long(cdb, 6),
        },
        code::READ_CAPACITY_10 => Command::ReadCapacity10,
        code::SERVICE_IN_16 => service_in(cdb),
        code::MODE_SENSE_6 | code::MODE_SENSE_10 => mode_sense(cdb),
        code::MODE_SELECT_6 | code::MODE_SELECT_10 => mode_select(cdb)?,
        code::START_STOP => Command::StartStop(match (cdb[4] >> 4, cdb[4] & 3) {
            (0, 2) => StartStop::Eject,
            (0, 3) => StartStop::Load,
            _ => StartStop::Nothing,
        }),
        code::PREVENT_ALLOW => Command::PreventAllow {
            prevent: cdb[4] & 3 != 0,
        },
        code::RESERVE_6 | code::RESERVE_10 => whole_unit(cdb, Command::Reserve)?,
        code::RELEASE_6 | code::RELEASE_10 => whole_unit(cdb, Command::Release)?,
        code::PERSISTENT_IN => Command::PersistentIn {
            action: cdb[1] & 0x1f,
            length: word(cdb, 7),
        },
        code::PERSISTENT_OUT => Command::PersistentOut(PersistentOut {
            action: cdb[1] & 0x1f,
            scope: cdb[2] >> 4,
            kind: cdb[2] & 0xf,
            length: long(cdb, 5),
        }),
        code::MAINTENANCE_IN => maintenance_in(cdb)?,
        code::READ_DEFECTS_10 => Command::ReadDefects {
            long: false,
            lists: cdb[2] & 0x1f,
            length: word(cdb, 7),
        },
        code::READ_DEFECTS_12 => Command::ReadDefects {
            long: true,
            lists: cdb[1] & 0x1f,
            length: long(cdb, 6),
        },
        _ => return decode_medium(cdb),
    })
}

fn word(cdb: &Cdb, at: usize) -> u32 {
    u32::from(u16::from_be_bytes([cdb[at], cdb[at + 1]]))
}

fn long(cdb: &Cdb, at: usize) -> u32 {
    u32::from_be_bytes([cdb[at], cdb[at + 1], cdb[at + 2], cdb[at + 3]])
}

fn wide(cdb: &Cdb, at: usize) -> u64 {
    u64::from(long(cdb, at)) << 32 | u64::from(long(cdb, at + 4))
}

/// The extent of a command that accesses the medium; the opcode's group says where it is.
fn extent(cdb: &Cdb) -> Extent {
    let (lba, blocks) = match cdb[0] >> 5 {
        0 => {
            let blocks = u64::from(cdb[4]);
            let lba = u64::from(long(cdb, 0) & 0x1f_ffff);
            (lba, if blocks == 0 { 256 } else { blocks })
        }
        4 => (wide(cdb, 2), u64::from(long(cdb, 10))),
        5 => (u64::from(long(cdb, 2)), u64::from(long(cdb, 6))),
        _ => (u64::from(long(cdb, 2)), u64::from(word(cdb, 7))),
    };
    Extent {
        lba,
        blocks,
        fua: cdb[0] >> 5 != 0 && cdb[1] & 0x08 != 0,
    }
}

/// Protection information does not exist here (RDPROTECT, WRPROTECT, VRPROTECT).
fn unprotected(cdb: &Cdb) -> Result<(), Sense> {
    match cdb[0] >> 5 != 0 && cdb[1] >> 5 != 0 {
        true => Err(sense::INVALID_FIELD),
        false => Ok(()),
    }
}

fn compare(cdb: &Cdb) -> Result<Compare, Sense> {
    unprotected(cdb)?;
    match cdb[1] >> 1 & 3 {
        0 => Ok(Compare::Nothing),
        1 => Ok(Compare::All),
        3 if matches!(cdb[0], code::VERIFY_10 | code::VERIFY_12 | code::VERIFY_16) => {
            Ok(Compare::OneBlock)
        }
        _ => Err(sense::INVALID_FIELD),
    }
}

fn write_same(cdb: &Cdb, extent: Extent) -> Result<Command, Sense> {
    unprotected(cdb)?;
    let anchor = cdb[1] & 0x10 != 0;
    let without_data = cdb[0] == code::WRITE_SAME_16 && cdb[1] & 1 != 0;
    // PBDATA and LBDATA are obsolete.
    let obsolete = cdb[1] & 0x06 != 0;
    if anchor || obsolete {
        return Err(sense::INVALID_FIELD);
    }
    Ok(Command::WriteSame(WriteSame {
        extent: Extent {
            fua: false,
            ..extent
        },
        without_data,
    }))
}

fn inquiry(cdb: &Cdb) -> Result<Command, Sense> {
    let vital = cdb[1] & 1 != 0;
    if !vital && cdb[2] != 0 || cdb[1] & 2 != 0 {
        return Err(sense::INVALID_FIELD);
    }
    Ok(Command::Inquiry {
        page: vital.then_some(cdb[2]),
        length: word(cdb, 3),
    })
}

fn service_in(cdb: &Cdb) -> Command {
    let length = long(cdb, 10);
    match cdb[1] & 0x1f {
        service::READ_CAPACITY_16 => Command::ReadCapacity16 { length },
        _ => Command::LbaStatus {
            lba: wide(cdb, 2),
            length,
        },
    }
}

fn maintenance_in(cdb: &Cdb) -> Result<Command, Sense> {
    let length = long(cdb, 6);
    match (cdb[1] & 0x1f, cdb[1] >> 5) {
        (service::REPORT_OPCODES, _) => Ok(Command::ReportOpcodes(ReportOpcodes {
            timeouts: cdb[2] & 0x80 != 0,
            options: cdb[2] & 7,
            opcode: cdb[3],
            action: u16::from_be_bytes([cdb[4], cdb[5]]),
            length,
        })),
        (_, 0) => Ok(Command::PortGroups { length }),
        // The extended format does not exist here.
        _ => Err(sense::INVALID_FIELD),
    }
}

fn mode_sense(cdb: &Cdb) -> Command {
    let long = cdb[0] == code::MODE_SENSE_10;
    Command::ModeSense(ModeSense {
        long,
        bare: cdb[1] & 0x08 != 0,
        control: cdb[2] >> 6,
        page: cdb[2] & 0x3f,
        subpage: cdb[3],
        length: if long {
            word(cdb, 7)
        } else {
            u32::from(cdb[4])
        },
    })
}

fn mode_select(cdb: &Cdb) -> Result<Command, Sense> {
    let long = cdb[0] == code::MODE_SELECT_10;
    // Without the page format the parameters are the vendor's own: there are none.
    if cdb[1] & 0x10 == 0 {
        return Err(sense::INVALID_FIELD);
    }
    Ok(Command::ModeSelect {
        long,
        save: cdb[1] & 1 != 0,
        length: if long {
            word(cdb, 7)
        } else {
            u32::from(cdb[4])
        },
    })
}

/// Reservations for a third party, or of extents, are obsolete.
fn whole_unit(cdb: &Cdb, command: Command) -> Result<Command, Sense> {
    match cdb[1] & 0x1f {
        0 => Ok(command),
        _ => Err(sense::INVALID_FIELD),
    }
}

#[cfg(test)]
mod tests {
    use super::super::opcodes::CDB_BYTES;
    use super::*;

    fn cdb(bytes: &[u8]) -> Cdb {
        let mut cdb = [0; CDB_BYTES];
        cdb[..bytes.len()].copy_from_slice(bytes);
        cdb
    }

    fn read(lba: u64, blocks: u64, fua: bool) -> Result<Command, Sense> {
        Ok(Command::Read(Extent { lba, blocks, fua }))
    }

    #[test]
    fn reads_of_every_length() {
        let six = cdb(&[0x08, 0x3f, 0xff, 0xfe, 0]);
        assert_eq!(decode(&six), read(0x1f_fffe, 256, false));
        let ten = cdb(&[0x28, 0x18, 1, 2, 3, 4, 0, 0, 9]);
        assert_eq!(decode(&ten), read(0x0102_0304, 9, true));
        let twelve = cdb(&[0xa8, 0, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0]);
        assert_eq!(decode(&twelve), read(0xffff_ffff, 1 << 24, false));
        let sixteen = cdb(&[0x88, 0x08, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3]);
        assert_eq!(decode(&sixteen), read((1 << 56) + 2, 3, true));
    }

    #[test]
    fn what_is_not_there_is_refused() {
        assert_eq!(decode(&cdb(&[0x9c])), Err(sense::INVALID_OPCODE));
        assert_eq!(decode(&cdb(&[0x9e, 0x1f])), Err(sense::INVALID_FIELD));
        assert_eq!(decode(&cdb(&[0x28, 0x20])), Err(sense::INVALID_FIELD));
        assert_eq!(decode(&cdb(&[0x12, 0, 0x80])), Err(sense::INVALID_FIELD));
        assert_eq!(decode(&cdb(&[0x2e, 0x06])), Err(sense::INVALID_FIELD));
    }

    #[test]
    fn a_start_stop_loads_and_ejects_without_a_power_condition() {
        let decoded = |flags: u8| decode(&cdb(&[0x1b, 0, 0, 0, flags]));
        assert_eq!(decoded(0x02), Ok(Command::StartStop(StartStop::Eject)));
        assert_eq!(decoded(0x03), Ok(Command::StartStop(StartStop::Load)));
        assert_eq!(decoded(0x12), Ok(Command::StartStop(StartStop::Nothing)));
        assert_eq!(decoded(0x01), Ok(Command::StartStop(StartStop::Nothing)));
    }

    #[test]
    fn any_bytes_are_decoded_or_refused() {
        let mut state = 1_u64;
        for _ in 0..200_000 {
            let mut bytes = [0; CDB_BYTES];
            for byte in &mut bytes {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                *byte = (state >> 56) as u8;
            }
            let _ = decode(&bytes);
        }
    }
}
