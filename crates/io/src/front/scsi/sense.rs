//! Sense data: why a command failed, as SPC-4 encodes it (section 4.5).

/// Length of sense data in the fixed format.
const FIXED_BYTES: usize = 18;

/// The sense key: what kind of fault it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Key {
    None = 0x0,
    NotReady = 0x2,
    Medium = 0x3,
    Hardware = 0x4,
    IllegalRequest = 0x5,
    UnitAttention = 0x6,
    DataProtect = 0x7,
    Aborted = 0xb,
    Miscompare = 0xe,
}

/// A sense key with its additional sense code and qualifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sense {
    pub(crate) key: Key,
    /// Additional sense code, and its qualifier.
    pub(crate) code: (u8, u8),
    /// The logical block address, or the offset, that the fault is about.
    pub(crate) information: Option<u64>,
}

macro_rules! senses {
    ($($name:ident = $key:ident, $code:literal, $qualifier:literal;)*) => {
        $(pub const $name: Sense = Sense::new(Key::$key, $code, $qualifier);)*
    };
}

senses! {
    NO_SENSE = None, 0x00, 0x00;
    NOT_READY = NotReady, 0x04, 0x00;
    WRITE_ERROR = Medium, 0x0c, 0x00;
    READ_ERROR = Medium, 0x11, 0x00;
    INTERNAL_FAILURE = Hardware, 0x44, 0x00;
    SHORT_DATA = IllegalRequest, 0x0e, 0x03;
    PARAMETER_LIST_LENGTH = IllegalRequest, 0x1a, 0x00;
    INVALID_OPCODE = IllegalRequest, 0x20, 0x00;
    BEYOND_THE_END = IllegalRequest, 0x21, 0x00;
    INVALID_FIELD = IllegalRequest, 0x24, 0x00;
    NO_SUCH_UNIT = IllegalRequest, 0x25, 0x00;
    INVALID_PARAMETER = IllegalRequest, 0x26, 0x00;
    INVALID_RELEASE = IllegalRequest, 0x26, 0x04;
    NO_SAVED_PAGES = IllegalRequest, 0x39, 0x00;
    REMOVAL_PREVENTED = IllegalRequest, 0x53, 0x02;
    NO_MEDIUM = NotReady, 0x3a, 0x00;
    MEDIUM_CHANGED = UnitAttention, 0x28, 0x00;
    UNKNOWN_ATTRIBUTE = IllegalRequest, 0x49, 0x00;
    NO_REGISTRATIONS_LEFT = IllegalRequest, 0x55, 0x04;
    WRITE_PROTECTED = DataProtect, 0x27, 0x00;
    NO_SPACE = DataProtect, 0x27, 0x07;
    MISCOMPARE = Miscompare, 0x1d, 0x00;
    POWER_ON = UnitAttention, 0x29, 0x00;
    RESET = UnitAttention, 0x29, 0x03;
    MODE_CHANGED = UnitAttention, 0x2a, 0x01;
    RESERVATIONS_PREEMPTED = UnitAttention, 0x2a, 0x03;
    RESERVATIONS_RELEASED = UnitAttention, 0x2a, 0x04;
    REGISTRATIONS_PREEMPTED = UnitAttention, 0x2a, 0x05;
    CAPACITY_CHANGED = UnitAttention, 0x2a, 0x09;
    COMMANDS_CLEARED = UnitAttention, 0x2f, 0x00;
    DATA_PHASE_ERROR = Aborted, 0x4b, 0x00;
}

impl Sense {
    const fn new(key: Key, code: u8, qualifier: u8) -> Sense {
        Sense {
            key,
            code: (code, qualifier),
            information: None,
        }
    }

    pub(crate) const fn at(self, information: u64) -> Sense {
        Sense {
            information: Some(information),
            ..self
        }
    }

    /// In the descriptor format, or in the fixed format.
    pub(crate) fn encode(&self, descriptor: bool) -> Vec<u8> {
        match descriptor {
            true => self.encode_descriptors(),
            false => self.encode_fixed(),
        }
    }

    fn encode_fixed(&self) -> Vec<u8> {
        let mut data = vec![0; FIXED_BYTES];
        data[0] = 0x70;
        data[2] = self.key as u8;
        data[7] = (FIXED_BYTES - 8) as u8;
        (data[12], data[13]) = self.code;
        // The field has four bytes: a larger address is not valid in it.
        if let Some(information) = self.information.and_then(|it| u32::try_from(it).ok()) {
            data[0] |= 0x80;
            data[3..7].copy_from_slice(&information.to_be_bytes());
        }
        data
    }

    fn encode_descriptors(&self) -> Vec<u8> {
        let mut data = vec![0x72, self.key as u8, self.code.0, self.code.1, 0, 0, 0, 0];
        if let Some(information) = self.information {
            data.extend_from_slice(&[0x00, 0x0a, 0x80, 0x00]);
            data.extend_from_slice(&information.to_be_bytes());
            data[7] = 12;
        }
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_have_the_address() {
        let lost = READ_ERROR.at(0x0102_0304);
        let fixed = lost.encode(false);
        assert_eq!((fixed[0], fixed[2], fixed[7]), (0xf0, 3, 10));
        assert_eq!((&fixed[3..7], fixed[12]), (&[1, 2, 3, 4][..], 0x11));
        let descriptor = lost.encode(true);
        assert_eq!((descriptor[0], descriptor[7]), (0x72, 12));
        assert_eq!(descriptor[16..], [1, 2, 3, 4]);
    }

    #[test]
    fn an_address_beyond_four_bytes_is_left_out_of_the_fixed_format() {
        let fixed = READ_ERROR.at(1 << 32).encode(false);
        assert_eq!((fixed[0], &fixed[3..7]), (0x70, &[0; 4][..]));
    }
}
