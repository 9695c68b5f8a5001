//! The NBD server's and client's protocol, without sockets: transcripts from the specification, hostile and broken
//! streams, and client against server in memory.

mod fuzz;
mod golden;
mod pair;
pub mod world;
