//! Parity kernels: what an array computes over its users' bytes.
//!
//! Everything a code needs is one operation, [`linear`]: each target is a linear combination of the sources over
//! GF(2^8). Copy, xor, P+Q, delta, recovery and Reed-Solomon differ only in their coefficients, and the kernel that
//! serves a call best is found from them. Beside it stand the checks: [`crc32c`], [`compare`], [`is_zero`], and
//! [`locate`], which names the cell that explains a pair of syndromes.
//!
//! The field is that of Linux md: polynomial 0x11d, generator 2, so that P and Q are bit for bit the same.
//!
//! Which instructions are used is a value, [`Kernels`]: found once from the CPU, or the portable ones, so that tests
//! compare them on one machine. Each kernel has a plain counterpart in [`mod@reference`].

pub mod gf;
pub mod reference;

mod check;
mod crc;
mod kernels;
mod linear;

pub use check::{Located, compare, is_zero, locate};
pub use crc::crc32c;
pub use kernels::{Kernels, Store};
pub use linear::linear;
