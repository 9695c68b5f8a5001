//! The tests of the simulator, in one executable.

mod atomic;
mod code_cache;
mod copied_tasks;
mod copies;
mod cover;
mod disk_models;
mod first_writes;
mod golden;
mod images;
mod nvram_members;
mod overlay;
mod passthrough;
mod planted;
mod queue;
mod replays;
mod returns;
mod sets;
mod stale;
mod starts;
mod surrogate;
mod swarm;
mod table;
