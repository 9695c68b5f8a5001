//! NVRAM: persistent memory that flushes of a code cache go to. Records go into the log when they are full.
//!
//! [`slots`] decides which records need NVRAM, and is a floor below packing. [`rounds`] writes them there
//! when clients flush, and is a floor above.

pub(super) mod rounds;
pub(super) mod slots;
