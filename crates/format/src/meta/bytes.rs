//! Little-endian fields at fixed offsets. Every caller has checked the length of what it reads from or writes to.

use crate::units::Uuid;

pub fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

pub fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    put(bytes, at, value.to_le_bytes());
}

pub fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    put(bytes, at, value.to_le_bytes());
}

pub fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    put(bytes, at, value.to_le_bytes());
}

pub fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    core::array::from_fn(|i| bytes[at + i])
}

pub fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(get(bytes, at))
}

pub fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(get(bytes, at))
}

pub fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(get(bytes, at))
}

pub fn get_uuid(bytes: &[u8], at: usize) -> Uuid {
    Uuid(get(bytes, at))
}
