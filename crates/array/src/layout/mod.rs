//! Layouts: pure maps from logical chunks to rows of cells, and the code that binds the cells of a row.
//!
//! A layout never submits I/O and knows no devices: it speaks of slots, rows and chunks. The slice machine sees only
//! rows, cells and codes, so a new layout is a table plus the laws in `laws.rs`.

pub mod code;

use crate::units::{Row, SLOTS_MAX, Slot};

/// The RAID level and what it leaves open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Level {
    Raid0,
    /// Every slot holds a copy.
    Raid1,
    /// Parity on the last slot.
    Raid4,
    Raid5(Rotation),
    Raid6(Rotation),
    /// md's "near" layout.
    Raid10 { copies: u8 },
}

/// md's parity rotations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum Rotation {
    LeftAsymmetric,
    RightAsymmetric,
    #[default]
    LeftSymmetric,
    RightSymmetric,
    ParityFirst,
    ParityLast,
}

/// What a layout is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    pub level: Level,
    pub slots: u16,
    pub chunk_sectors: u32,
    /// Sectors of set data in each slot; a whole number of chunks.
    pub slot_sectors: u64,
}

/// What a cell holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Role {
    /// The row's data chunk of this index.
    Data(u8),
    /// A further copy of data chunk `of`.
    Copy { of: u8 },
    /// The xor of the data.
    P,
    /// The Reed-Solomon sum of the data, each with its own power of 2 (see [`RowMap::exponent`]).
    Q,
}

/// One slot's part of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    pub slot: Slot,
    pub role: Role,
    /// First sector of the chunk, counted from the start of the slot's set data.
    pub at: u64,
}

/// The cells of one row: data cells first, in logical order, then the others.
#[derive(Clone, Copy, Debug)]
pub struct RowMap {
    pub row: Row,
    /// Cells in use.
    pub width: u8,
    /// How many of them hold distinct data.
    pub data: u8,
    pub cells: [Cell; SLOTS_MAX],
    /// For each data cell, the power of the generator with which it enters Q.
    pub exponent: [u8; SLOTS_MAX],
}
