//! The tests of the simulator, in one executable.

mod code_cache;
mod disk_models;
mod golden;
mod overlay;
mod passthrough;
mod planted;
mod returns;
mod sets;
mod stale;
mod starts;
mod surrogate;
mod swarm;
mod table;
