//! Arrays of simulated drives in real time, for the examples that hold the laboratory's predictions against them.

pub mod late;
pub mod rig;
