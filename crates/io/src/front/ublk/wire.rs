//! What passes between a server of ublk and the kernel, byte for byte (`linux/ublk_cmd.h`). All of it is in
//! the byte order of the machine.

use restripe_array::SECTOR_BYTES;

/// Bytes of a request's descriptor in the memory that the driver shares.
pub(crate) const DESCRIPTOR_BYTES: usize = 24;
/// Bytes of a command's own in its entry of the ring.
pub(crate) const COMMAND_BYTES: usize = 16;

/// The longest request: its bytes have 25 bits of a position in the device.
pub(crate) const REQUEST_BYTES_MAX: u32 = 1 << POSITION_BYTE_BITS;
const POSITION_BYTE_BITS: u32 = 25;
const POSITION_SLOT_BITS: u32 = 16;
/// Where the data of requests begins in the device.
const POSITION_BASE: u64 = 0x8000_0000;

/// A command that gives a slot to the driver, for its first request.
pub(crate) const FETCH: u32 = io_command(0x20);
/// A command that answers a slot's request, and gives the slot to the driver for the next.
pub(crate) const COMMIT_AND_FETCH: u32 = io_command(0x21);
/// The result of a command whose slot has a request.
pub(crate) const RESULT_REQUEST: i32 = 0;
/// The result of a command whose device has ended.
pub(crate) const RESULT_ENDED: i32 = -libc::ENODEV;

const OP_READ: u32 = 0;
const OP_WRITE: u32 = 1;
const OP_FLUSH: u32 = 2;
const OP_DISCARD: u32 = 3;
const OP_WRITE_ZEROES: u32 = 5;
const FLAG_FUA: u32 = 1 << 13;

/// The number of a command that reads and writes its own bytes: `_IOWR('u', number, 16 bytes)`.
const fn io_command(number: u32) -> u32 {
    number_of(number, COMMAND_BYTES as u32)
}

/// `_IOWR('u', number, bytes)`: two bits of direction, 14 of size, 8 of type, 8 of number.
pub(crate) const fn number_of(number: u32, bytes: u32) -> u32 {
    3 << 30 | bytes << 16 | (b'u' as u32) << 8 | number
}

/// What a request of the kernel does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Read,
    Write,
    Flush,
    Discard,
    WriteZeroes,
    Unknown(u8),
}

/// A request of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub operation: Operation,
    /// Durable when it is answered.
    pub fua: bool,
    pub offset: u64,
    pub bytes: u64,
}

impl Request {
    /// `None`: the offset is beyond what 64 bits can hold.
    pub(crate) fn decode(descriptor: &[u8; DESCRIPTOR_BYTES]) -> Option<Request> {
        let u32_at = |at: usize| {
            let bytes = descriptor[at..at + 4].try_into().expect("four bytes");
            u32::from_ne_bytes(bytes)
        };
        let sector = descriptor[8..16].try_into().expect("eight bytes");
        let op = u32_at(0);
        let operation = match op & 0xff {
            OP_READ => Operation::Read,
            OP_WRITE => Operation::Write,
            OP_FLUSH => Operation::Flush,
            OP_DISCARD => Operation::Discard,
            OP_WRITE_ZEROES => Operation::WriteZeroes,
            other => Operation::Unknown(other as u8),
        };
        // What the kernel has for the place of a flush means nothing.
        let (first, sectors) = match operation {
            Operation::Flush => (0, 0),
            _ => (u64::from_ne_bytes(sector), u32_at(4)),
        };
        Some(Request {
            operation,
            fua: op & FLAG_FUA != 0,
            offset: first.checked_mul(SECTOR_BYTES)?,
            bytes: u64::from(sectors) * SECTOR_BYTES,
        })
    }
}

/// The bytes of a command for a slot of the first queue. `result`: of the request that it answers, a count or
/// a negative errno.
pub(crate) fn encode_command(slot: u16, result: i32) -> [u8; COMMAND_BYTES] {
    let mut bytes = [0; COMMAND_BYTES];
    bytes[2..4].copy_from_slice(&slot.to_ne_bytes());
    bytes[4..8].copy_from_slice(&result.to_ne_bytes());
    bytes
}

/// Where the data of a slot's request is read and written in the device.
pub(crate) fn position(slot: u16) -> u64 {
    const { assert!(u16::BITS == POSITION_SLOT_BITS) }
    POSITION_BASE + (u64::from(slot) << POSITION_BYTE_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(op: u32, sectors: u32, first: u64) -> [u8; DESCRIPTOR_BYTES] {
        let mut bytes = [0xee; DESCRIPTOR_BYTES];
        bytes[..4].copy_from_slice(&op.to_ne_bytes());
        bytes[4..8].copy_from_slice(&sectors.to_ne_bytes());
        bytes[8..16].copy_from_slice(&first.to_ne_bytes());
        bytes
    }

    /// The values that the kernel's header comes to on a usual machine.
    #[test]
    fn commands_have_the_kernels_numbers() {
        assert_eq!(FETCH, 0xc010_7520);
        assert_eq!(COMMIT_AND_FETCH, 0xc010_7521);
        assert_eq!(number_of(4, 32), 0xc020_7504);
        let mut expected = [0; COMMAND_BYTES];
        expected[2..4].copy_from_slice(&7_u16.to_ne_bytes());
        expected[4..8].copy_from_slice(&(-5_i32).to_ne_bytes());
        assert_eq!(encode_command(7, -5), expected);
    }

    #[test]
    fn data_of_slots_does_not_overlap() {
        assert_eq!(position(0), 1 << 31);
        assert_eq!(position(1), (1 << 31) + (1 << 25));
        assert_eq!(position(2) - position(1), u64::from(REQUEST_BYTES_MAX));
    }

    #[test]
    fn descriptors_are_decoded() {
        let fua = OP_WRITE | FLAG_FUA | 1 << 11;
        let expected = Request {
            operation: Operation::Write,
            fua: true,
            offset: 4096,
            bytes: 1024,
        };
        assert_eq!(Request::decode(&descriptor(fua, 2, 8)), Some(expected));
        let kinds = [
            (0, Operation::Read),
            (3, Operation::Discard),
            (4, Operation::Unknown(4)),
            (5, Operation::WriteZeroes),
            (13, Operation::Unknown(13)),
        ];
        for (op, operation) in kinds {
            let request = Request::decode(&descriptor(op, u32::MAX, 0)).expect("in range");
            assert_eq!((request.operation, request.fua), (operation, false));
            assert_eq!(request.bytes, u64::from(u32::MAX) * 512);
        }
        assert_eq!(Request::decode(&descriptor(0, 1, u64::MAX / 256)), None);
        let flush = Request {
            operation: Operation::Flush,
            fua: false,
            offset: 0,
            bytes: 0,
        };
        let nowhere = descriptor(2, 0, u64::MAX);
        assert_eq!(Request::decode(&nowhere), Some(flush), "as Linux sends it");
    }
}
