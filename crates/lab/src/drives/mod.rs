//! Drives: what is known about them, from where, and how well the model keeps to it.

pub mod clock;
pub mod disksim;
pub mod export;
pub mod fit;
pub mod preset;
pub mod score;
pub mod source;
