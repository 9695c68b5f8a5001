//! A SCSI disk over an array: a logical unit as a state machine without transport, sockets or clock.
//!
//! ```text
//! bytes of a command --decode--> Command --begin--> Answer
//!                                           |
//!                                           '--> Job: data, requests to the engine --> Answer
//! ```
//!
//! A [`Unit`] is one array. All sessions share it: its mode pages, its reservations, and what each nexus is
//! yet to be notified of. A [`Job`] is one command on its way. A transport gathers the data that the job
//! wants, hands its requests to the engine, and sends its [`Answer`].
//!
//! Blocks have 512 bytes. A block that was unmapped reads zeros, because UNMAP writes zeros by whatever the
//! engine does best; so LBPRZ is true. COMPARE AND WRITE and ORWRITE are atomic requests of the engine.

mod answer;
mod begin;
mod cdb;
mod inquiry;
mod job;
mod kept;
mod mode;
mod opcodes;
mod reserve;
mod sense;
mod state_file;
mod thin;
mod unit;

pub(crate) use answer::{Answer, Data, Status};
pub(crate) use begin::{Addressed, begin, unit_number, without_unit};
pub(crate) use job::{Around, Job, Next};
pub(crate) use opcodes::{CDB_BYTES, Cdb};
pub(crate) use reserve::Initiator;
pub(crate) use sense::{DATA_PHASE_ERROR, UNKNOWN_ATTRIBUTE};
pub use state_file::StateWriter;
pub(crate) use unit::{Nexus, Unit};
