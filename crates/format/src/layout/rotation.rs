//! Where a stripe keeps its parity: md's rotations for levels 4, 5 and 6, and for more parities those of level 6.
//!
//! These are the placements of Linux md bit for bit, so that either can take over the other's arrays. Q stands right
//! after P, around the end, and so does each further parity after the one before it. A symmetric stripe's data starts after the parity and goes around; an asymmetric one's
//! goes in slot order and steps over the parity.

use super::Rotation;
use crate::units::Row;

/// One stripe's arrangement over the slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stripe {
    slots: u16,
    parities: u16,
    symmetric: bool,
    pub p: u16,
}

impl Stripe {
    /// The stripe of `row`, with P alone (`parities` = 1), P and Q (2), or more, which are rotated symmetrically.
    pub fn new(rotation: Rotation, parities: u16, slots: u16, row: Row) -> Stripe {
        assert!(parities <= 2 || rotation == Rotation::LeftSymmetric);
        let turn = (row.0 % u64::from(slots)) as u16; // below `slots`
        let (p, symmetric) = match rotation {
            Rotation::LeftAsymmetric => (slots - 1 - turn, false),
            Rotation::RightAsymmetric => (turn, false),
            Rotation::LeftSymmetric => (slots - 1 - turn, true),
            Rotation::RightSymmetric => (turn, true),
            Rotation::ParityFirst => (0, false),
            Rotation::ParityLast => (slots - parities, false),
        };
        Stripe {
            slots,
            parities,
            symmetric,
            p,
        }
    }

    /// The slot of Q, in a stripe that has one.
    pub fn q(&self) -> u16 {
        self.parity(1)
    }

    /// The slot of the parity with this number, from P on.
    pub fn parity(&self, number: u16) -> u16 {
        self.around(self.p + number)
    }

    /// The slot of the data chunk with this index.
    pub fn data(&self, data: u16) -> u16 {
        let wraps = self.p + self.parities > self.slots;
        if self.symmetric {
            self.around(self.p + self.parities + data)
        } else if wraps {
            data + 1 // P is last and Q first
        } else if data >= self.p {
            data + self.parities
        } else {
            data
        }
    }

    /// The power of the generator with which a data slot enters Q. md counts the slots from the one after Q in slot
    /// order, skipping P; as P stands right before Q, it comes last and is never stepped over. Only in symmetric
    /// stripes is this the data index.
    pub fn exponent(&self, slot: u16) -> u8 {
        let distance = self.around(slot + self.slots - self.q() - 1);
        distance as u8 // below `slots`, so at most 31
    }

    /// A slot number brought back below the number of slots; it may be up to twice that.
    fn around(&self, slot: u16) -> u16 {
        if slot >= self.slots {
            slot - self.slots
        } else {
            slot
        }
    }
}
