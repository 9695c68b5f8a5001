//! The iSCSI target's protocol, without sockets: a small initiator against a connection in memory, and hostile
//! and broken streams.

mod commands;
mod fuzz;
mod initiator;
mod kept;
mod login;
mod mode;
mod newer;
mod swarm;
mod tasks;
