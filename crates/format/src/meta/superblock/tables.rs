//! The tables of a superblock: where the header says that they lie, and how long their entries are.

use super::{HEADER_BYTES, at};
use crate::meta::bytes::{get_u16, get_u32, put_u16, put_u32};
use crate::meta::{MetaError, field};
use alloc::vec::Vec;

/// Appends a table and notes in the header where it lies.
pub(super) fn append<T>(
    bytes: &mut Vec<u8>,
    descriptor: usize,
    entry_bytes: usize,
    entries: &[T],
    put_entry: fn(&mut [u8], &T),
) {
    let offset = append_entries(bytes, entry_bytes, entries, put_entry);
    let place = &mut bytes[descriptor..];
    put_u32(place, at::TABLE_OFFSET, narrow(offset).into());
    put_u16(place, at::TABLE_ENTRY_BYTES, narrow(entry_bytes));
    put_u16(place, at::TABLE_COUNT, narrow(entries.len()));
}

/// Gives the offset of the first.
pub(super) fn append_entries<T>(
    bytes: &mut Vec<u8>,
    entry_bytes: usize,
    entries: &[T],
    put_entry: fn(&mut [u8], &T),
) -> usize {
    let offset = bytes.len();
    bytes.resize(offset + entry_bytes * entries.len(), 0);
    let places = bytes[offset..].chunks_exact_mut(entry_bytes);
    for (entry, place) in entries.iter().zip(places) {
        put_entry(place, entry);
    }
    offset
}

pub(super) fn narrow(value: usize) -> u16 {
    u16::try_from(value).expect("bounded by the rules")
}

/// A table whose every entry lies within the used bytes. Entries of a later minor version may be longer than ours;
/// what we do not know of them is ignored.
pub(super) struct Table<'a> {
    pub(super) bytes: &'a [u8],
    entry_bytes: usize,
}

/// What a descriptor says of a table.
#[derive(Clone, Copy)]
pub(super) struct TablePlace {
    pub(super) offset: u32,
    pub(super) entry_bytes: u16,
    pub(super) count: u16,
}

impl<'a> Table<'a> {
    pub(super) fn open(
        bytes: &'a [u8],
        what: &'static str,
        descriptor: usize,
        entry_bytes_min: usize,
        limit: usize,
    ) -> Result<Table<'a>, MetaError> {
        let place = TablePlace {
            offset: get_u32(bytes, descriptor + at::TABLE_OFFSET),
            entry_bytes: get_u16(bytes, descriptor + at::TABLE_ENTRY_BYTES),
            count: get_u16(bytes, descriptor + at::TABLE_COUNT),
        };
        Table::at(bytes, what, place, entry_bytes_min, limit)
    }

    pub(super) fn at(
        bytes: &'a [u8],
        what: &'static str,
        place: TablePlace,
        entry_bytes_min: usize,
        limit: usize,
    ) -> Result<Table<'a>, MetaError> {
        let (offset, count) = (u64::from(place.offset), u64::from(place.count));
        if count > limit as u64 {
            let limit = limit as u64;
            return Err(MetaError::TooLarge { what, count, limit });
        }
        let entry_bytes = usize::from(place.entry_bytes);
        if entry_bytes < entry_bytes_min || offset < HEADER_BYTES as u64 {
            return field(what, offset);
        }
        let end = offset + entry_bytes as u64 * count;
        match used_bytes(bytes)?.get(offset as usize..end as usize) {
            Some(bytes) => Ok(Table { bytes, entry_bytes }),
            None => field(what, end),
        }
    }

    pub(super) fn read<T>(
        &self,
        get_entry: fn(&[u8]) -> Result<T, MetaError>,
    ) -> Result<Vec<T>, MetaError> {
        let entries = self.bytes.chunks_exact(self.entry_bytes);
        entries.map(get_entry).collect()
    }
}

pub(super) fn used_bytes(bytes: &[u8]) -> Result<&[u8], MetaError> {
    let length = get_u32(bytes, at::LENGTH);
    match bytes.get(..length as usize) {
        Some(used) => Ok(used),
        None => field("length", length.into()),
    }
}
