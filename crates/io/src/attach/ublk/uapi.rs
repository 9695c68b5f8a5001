//! Control commands of the driver ublk and their structures, byte for byte (`linux/ublk_cmd.h`), in the byte
//! order of the machine.

use crate::front::ublk::wire::number_of;

/// Bytes of a control command's own in its entry of the ring, of which [`HEADER_BYTES`] are used.
pub(super) const ENTRY_BYTES: usize = 80;
const HEADER_BYTES: u32 = 32;

pub(super) const GET_DEV_INFO: u32 = number_of(0x02, HEADER_BYTES) & !(1 << 30);
pub(super) const ADD_DEV: u32 = number_of(0x04, HEADER_BYTES);
pub(super) const DEL_DEV: u32 = number_of(0x05, HEADER_BYTES);
pub(super) const START_DEV: u32 = number_of(0x06, HEADER_BYTES);
pub(super) const STOP_DEV: u32 = number_of(0x07, HEADER_BYTES);
pub(super) const SET_PARAMS: u32 = number_of(0x08, HEADER_BYTES);
pub(super) const START_USER_RECOVERY: u32 = number_of(0x10, HEADER_BYTES);
pub(super) const END_USER_RECOVERY: u32 = number_of(0x11, HEADER_BYTES);
/// Linux 6.16.
pub(super) const UPDATE_SIZE: u32 = number_of(0x15, HEADER_BYTES);

/// A device that the driver chooses.
pub(super) const ANY_DEVICE: u32 = u32::MAX;

/// A dead daemon's device waits for the next.
const USER_RECOVERY: u64 = 1 << 3;
/// Its requests without an answer are given to the next as well.
const USER_RECOVERY_REISSUE: u64 = 1 << 4;
/// The server copies the data of requests by reads and writes of the device (Linux 6.5).
const USER_COPY: u64 = 1 << 7;
/// What a device must have.
pub(super) const FEATURES: u64 = USER_RECOVERY | USER_RECOVERY_REISSUE | USER_COPY;

/// The state of a device that has no block device.
pub(super) const STATE_DEAD: u16 = 0;
/// Its daemon is gone, and its requests wait for the next.
pub(super) const STATE_QUIESCED: u16 = 2;

pub(super) const ATTRIBUTE_READ_ONLY: u16 = 1 << 0;
/// It has a cache, and so requests to flush it.
pub(super) const ATTRIBUTE_CACHE: u16 = 1 << 2;
pub(super) const ATTRIBUTE_FUA: u16 = 1 << 3;

const PARAMETERS_BASIC: u32 = 1 << 0;
const PARAMETERS_DISCARD: u32 = 1 << 1;
/// With both kinds of parameters.
pub(super) const PARAMETERS_BYTES: usize = 64;

pub(super) const INFO_BYTES: usize = 64;

const SECTOR_SHIFT: u8 = 9;
/// Of one discard or request for zeros: what 32 bits of bytes can hold.
const ERASED_SECTORS_MAX: u32 = u32::MAX >> SECTOR_SHIFT;

/// What a control command says in its entry. `buffer`: the address and length of its structure.
pub(super) fn encode_header(device: u32, buffer: (u64, u16), data: u64) -> [u8; ENTRY_BYTES] {
    let mut bytes = Fields([0; ENTRY_BYTES]);
    bytes.put(0, device.to_ne_bytes());
    // No queue.
    bytes.put(4, u16::MAX.to_ne_bytes());
    bytes.put(6, buffer.1.to_ne_bytes());
    bytes.put(8, buffer.0.to_ne_bytes());
    bytes.put(16, data.to_ne_bytes());
    bytes.0
}

struct Fields<const N: usize>([u8; N]);

impl<const N: usize> Fields<N> {
    fn put<const M: usize>(&mut self, at: usize, value: [u8; M]) {
        self.0[at..at + M].copy_from_slice(&value);
    }

    fn get<const M: usize>(&self, at: usize) -> [u8; M] {
        self.0[at..at + M].try_into().expect("within the structure")
    }
}

/// What the driver knows of a device: one with a single queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Info {
    pub depth: u16,
    pub state: u16,
    /// Of the longest request.
    pub bytes_max: u32,
    pub device: u32,
    /// Of the server.
    pub process: i32,
    pub features: u64,
    /// The server's own: whose device it is.
    pub tag: u64,
}

impl Info {
    pub(super) fn encode(&self) -> [u8; INFO_BYTES] {
        let mut bytes = Fields([0; INFO_BYTES]);
        bytes.put(0, 1_u16.to_ne_bytes());
        bytes.put(2, self.depth.to_ne_bytes());
        bytes.put(4, self.state.to_ne_bytes());
        bytes.put(8, self.bytes_max.to_ne_bytes());
        bytes.put(12, self.device.to_ne_bytes());
        bytes.put(16, self.process.to_ne_bytes());
        bytes.put(24, self.features.to_ne_bytes());
        bytes.put(32, self.tag.to_ne_bytes());
        bytes.0
    }

    pub(super) fn decode(bytes: [u8; INFO_BYTES]) -> Info {
        let bytes = Fields(bytes);
        Info {
            depth: u16::from_ne_bytes(bytes.get(2)),
            state: u16::from_ne_bytes(bytes.get(4)),
            bytes_max: u32::from_ne_bytes(bytes.get(8)),
            device: u32::from_ne_bytes(bytes.get(12)),
            process: i32::from_ne_bytes(bytes.get(16)),
            features: u64::from_ne_bytes(bytes.get(24)),
            tag: u64::from_ne_bytes(bytes.get(32)),
        }
    }
}

/// What a block device is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Parameters {
    pub attributes: u16,
    pub size_bytes: u64,
    /// Logical block: a power of two.
    pub block_bytes: u32,
    /// Physical block: a power of two.
    pub physical_bytes: u32,
    /// Of the best request: a power of two.
    pub optimal_bytes: u32,
    pub request_bytes_max: u32,
}

impl Parameters {
    pub(super) fn encode(&self) -> [u8; PARAMETERS_BYTES] {
        let mut bytes = Fields([0; PARAMETERS_BYTES]);
        bytes.put(0, (PARAMETERS_BYTES as u32).to_ne_bytes());
        let kinds = PARAMETERS_BASIC | PARAMETERS_DISCARD;
        bytes.put(4, kinds.to_ne_bytes());
        bytes.put(8, u32::from(self.attributes).to_ne_bytes());
        let shift = |bytes: u32| bytes.trailing_zeros() as u8;
        let physical = shift(self.physical_bytes);
        // Logical and physical block, the best request and the smallest good one.
        let optimal = shift(self.optimal_bytes);
        let shifts = [shift(self.block_bytes), physical, optimal, physical];
        bytes.put(12, shifts);
        let sectors_max = self.request_bytes_max >> SECTOR_SHIFT;
        bytes.put(16, sectors_max.to_ne_bytes());
        bytes.put(24, sectors(self.size_bytes).to_ne_bytes());
        bytes.put(44, self.physical_bytes.to_ne_bytes());
        bytes.put(48, ERASED_SECTORS_MAX.to_ne_bytes());
        bytes.put(52, ERASED_SECTORS_MAX.to_ne_bytes());
        // Ranges of one discard.
        bytes.put(56, 1_u16.to_ne_bytes());
        bytes.0
    }
}

pub(super) fn sectors(bytes: u64) -> u64 {
    bytes >> SECTOR_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that the kernel's header comes to on a usual machine.
    #[test]
    fn commands_have_the_kernels_numbers() {
        assert_eq!(GET_DEV_INFO, 0x8020_7502);
        assert_eq!(ADD_DEV, 0xc020_7504);
        assert_eq!(END_USER_RECOVERY, 0xc020_7511);
        assert_eq!(UPDATE_SIZE, 0xc020_7515);
    }

    #[test]
    fn a_header_has_its_fields_where_the_kernel_looks() {
        let bytes = encode_header(3, (0x1122_3344_5566, 64), 7);
        assert_eq!(bytes[..4], 3_u32.to_ne_bytes());
        assert_eq!(bytes[4..6], [0xff, 0xff]);
        assert_eq!(bytes[6..8], 64_u16.to_ne_bytes());
        assert_eq!(bytes[8..16], 0x1122_3344_5566_u64.to_ne_bytes());
        assert_eq!(bytes[16..24], 7_u64.to_ne_bytes());
        assert!(bytes[24..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn what_is_known_of_a_device_comes_back() {
        let info = Info {
            depth: 128,
            state: 2,
            bytes_max: 1 << 20,
            device: 9,
            process: -1,
            features: FEATURES,
            tag: u64::MAX - 1,
        };
        let bytes = info.encode();
        assert_eq!(bytes[..2], 1_u16.to_ne_bytes(), "one queue");
        assert_eq!(bytes[24..32], 0x98_u64.to_ne_bytes());
        assert_eq!(Info::decode(bytes), info);
    }

    #[test]
    fn parameters_have_their_fields_where_the_kernel_looks() {
        let parameters = Parameters {
            attributes: ATTRIBUTE_CACHE | ATTRIBUTE_FUA,
            size_bytes: 1 << 30,
            block_bytes: 512,
            physical_bytes: 4096,
            optimal_bytes: 1 << 16,
            request_bytes_max: 1 << 20,
        };
        let bytes = parameters.encode();
        assert_eq!(bytes[..4], 64_u32.to_ne_bytes());
        assert_eq!(bytes[4..8], 3_u32.to_ne_bytes());
        assert_eq!(bytes[8..12], 12_u32.to_ne_bytes());
        assert_eq!(bytes[12..16], [9, 12, 16, 12]);
        assert_eq!(bytes[16..20], 2048_u32.to_ne_bytes());
        assert_eq!(bytes[24..32], (1_u64 << 21).to_ne_bytes());
        assert_eq!(bytes[44..48], 4096_u32.to_ne_bytes());
        assert_eq!(bytes[48..52], 8_388_607_u32.to_ne_bytes());
        assert_eq!(bytes[56..58], 1_u16.to_ne_bytes());
    }
}
