//! Protocol data units: the basic header segment, padding and digests (RFC 7143 section 11).

use restripe_code::crc32c;

/// Bytes of a basic header segment.
pub(crate) const HEADER_BYTES: usize = 48;
pub(crate) const DIGEST_BYTES: usize = 4;
/// "No task": of a tag that names none.
pub(crate) const NO_TAG: u32 = 0xffff_ffff;

/// Operation codes.
pub(crate) mod opcode {
    pub(crate) const NOP_OUT: u8 = 0x00;
    pub(crate) const COMMAND: u8 = 0x01;
    pub(crate) const TASK_MANAGEMENT: u8 = 0x02;
    pub(crate) const LOGIN: u8 = 0x03;
    pub(crate) const TEXT: u8 = 0x04;
    pub(crate) const DATA_OUT: u8 = 0x05;
    pub(crate) const LOGOUT: u8 = 0x06;
    pub(crate) const SNACK: u8 = 0x10;
    pub(crate) const NOP_IN: u8 = 0x20;
    pub(crate) const RESPONSE: u8 = 0x21;
    pub(crate) const TASK_MANAGEMENT_RESPONSE: u8 = 0x22;
    pub(crate) const LOGIN_RESPONSE: u8 = 0x23;
    pub(crate) const TEXT_RESPONSE: u8 = 0x24;
    pub(crate) const DATA_IN: u8 = 0x25;
    pub(crate) const LOGOUT_RESPONSE: u8 = 0x26;
    pub(crate) const READY_TO_TRANSFER: u8 = 0x31;
    pub(crate) const REJECT: u8 = 0x3f;
}

/// The last PDU of a sequence, and other bits of the second byte.
pub(crate) const FINAL: u8 = 0x80;

/// A basic header segment. The fields are read and written by their offset; a number is big-endian.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header(pub [u8; HEADER_BYTES]);

impl Header {
    pub(crate) fn new(opcode: u8, flags: u8) -> Header {
        let mut header = Header([0; HEADER_BYTES]);
        header.0[0] = opcode;
        header.0[1] = flags;
        header
    }

    pub(crate) fn opcode(&self) -> u8 {
        self.0[0] & 0x3f
    }

    /// To be delivered at once, without a number of its own.
    pub(crate) fn immediate(&self) -> bool {
        self.0[0] & 0x40 != 0
    }

    pub(crate) fn flags(&self) -> u8 {
        self.0[1]
    }

    pub(crate) fn is_final(&self) -> bool {
        self.0[1] & FINAL != 0
    }

    /// Bytes of additional header segments.
    pub(crate) fn additional_bytes(&self) -> usize {
        usize::from(self.0[4]) * 4
    }

    /// Bytes of the data segment, without padding.
    pub(crate) fn data_bytes(&self) -> u32 {
        u32::from_be_bytes([0, self.0[5], self.0[6], self.0[7]])
    }

    pub(crate) fn set_data_bytes(&mut self, bytes: usize) {
        let [_, high, middle, low] = (bytes as u32).to_be_bytes();
        self.0[5..8].copy_from_slice(&[high, middle, low]);
    }

    pub(crate) fn number(&self, at: usize) -> u32 {
        u32::from_be_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    pub(crate) fn set_number(&mut self, at: usize, number: u32) {
        self.0[at..at + 4].copy_from_slice(&number.to_be_bytes());
    }

    pub(crate) fn with(mut self, at: usize, number: u32) -> Header {
        self.set_number(at, number);
        self
    }

    /// The initiator's task tag.
    pub(crate) fn task_tag(&self) -> u32 {
        self.number(16)
    }

    /// The eight bytes of the logical unit number.
    pub(crate) fn unit(&self) -> u64 {
        u64::from(self.number(8)) << 32 | u64::from(self.number(12))
    }
}

/// A logical unit number of one level, of its eight bytes: peripheral or flat addressing (SAM-5 section 4.7).
pub(crate) fn single_level(unit: u64) -> Option<u16> {
    let [high, low, rest @ ..] = unit.to_be_bytes();
    let flat = u16::from_be_bytes([high & 0x3f, low]);
    match high >> 6 {
        _ if rest != [0; 6] => None,
        0 if high == 0 => Some(u16::from(low)),
        1 => Some(flat),
        _ => None,
    }
}

/// Zeros behind a segment of this length, up to a multiple of four bytes.
pub(crate) fn padding(bytes: u32) -> usize {
    (bytes.wrapping_neg() & 3) as usize
}

/// The digest of some bytes and of the zeros behind them, as it is sent (RFC 7143 section 13.1).
pub(crate) fn digest(bytes: &[u8], zeros: usize) -> [u8; DIGEST_BYTES] {
    crc32c(crc32c(0, bytes), &[0; 3][..zeros]).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_that_of_the_rfc() {
        // RFC 7143 appendix A.4: 32 bytes of zeros; 0 to 31.
        assert_eq!(digest(&[0; 32], 0), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(digest(&[0; 29], 3), [0xaa, 0x36, 0x91, 0x8a]);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(digest(&ascending, 0), [0x4e, 0x79, 0xdd, 0x46]);
    }

    #[test]
    fn units_of_one_level_are_recognised() {
        assert_eq!(single_level(0), Some(0));
        assert_eq!(single_level(0x0007 << 48), Some(7));
        assert_eq!(single_level(0x4123 << 48), Some(0x123));
        assert_eq!(single_level(0x0107 << 48), None);
        assert_eq!(single_level(1), None);
    }
}
