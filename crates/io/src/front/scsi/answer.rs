//! How a command ends, and what is sent to the initiator then.

use super::reserve::Refusal;
use super::sense::Sense;

/// Bytes of a logical block.
pub(crate) const BLOCK_BYTES: u64 = 512;

/// How a command ended (SAM-5 section 5.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Status {
    Good = 0x00,
    CheckCondition = 0x02,
    Busy = 0x08,
    ReservationConflict = 0x18,
    TaskSetFull = 0x28,
}

/// What is sent to the initiator with the status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Data {
    Nothing,
    Bytes(Vec<u8>),
    /// The first bytes of the job's buffer.
    Buffer(u32),
}

/// The end of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    pub(crate) status: Status,
    pub(crate) data: Data,
    /// With a status of `CheckCondition`.
    pub(crate) sense: Option<Sense>,
}

impl Answer {
    pub(crate) const GOOD: Answer = Answer {
        status: Status::Good,
        data: Data::Nothing,
        sense: None,
    };

    pub(crate) fn bytes(mut bytes: Vec<u8>, length: u32) -> Answer {
        bytes.truncate(length as usize);
        Answer {
            data: Data::Bytes(bytes),
            ..Answer::GOOD
        }
    }

    pub(crate) fn status(status: Status) -> Answer {
        Answer {
            status,
            ..Answer::GOOD
        }
    }
}

impl From<Sense> for Answer {
    fn from(sense: Sense) -> Answer {
        Answer {
            sense: Some(sense),
            ..Answer::status(Status::CheckCondition)
        }
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Answer {
        match refusal {
            Refusal::Busy => Answer::status(Status::Busy),
            Refusal::Conflict => Answer::status(Status::ReservationConflict),
            Refusal::Sense(sense) => sense.into(),
        }
    }
}
