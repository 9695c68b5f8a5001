//! The slice machine: one sector range of a row, worked on under a lock, for every layout alike.
//!
//! Analyse, decide, act: a slice issues a batch of operations, waits until all have ended, and looks again at
//! its row. A member may fail between any two steps.
//!
//! | phase         | waits for                               | then                                                |
//! |---------------|-----------------------------------------|-----------------------------------------------------|
//! | Queued        | older slices on the same sectors        | Preparing                                           |
//! | Preparing     | extent, intent, lost map, log room      | Reading, Merging, Combining, Writing, Finished      |
//! | Reading       | old data and parity                     | Reading (another way), Recovering, Merging, ...     |
//! | Recovering    | lost cells computed                     | Merging, Combining, Comparing, Writing, Delivering  |
//! | Merging       | new bytes put over an old block; a move: rows that go together | Reading, Recovering, Combining, Logging, Writing |
//! | Combining     | parity and partial parity computed      | Checksumming, Logging, Writing                      |
//! | Checksumming  | checksum of the partial parity          | Logging, Writing; a replay: Preparing, judged       |
//! | Logging       | the record durable                      | Writing                                             |
//! | Writing       | all cells written                       | Preparing (next pass or band), Finished             |
//! | Delivering    | bytes put into the request's buffer     | Writing (repair), Preparing (next band), Finished   |
//! | Comparing     | verdicts of a scrub                     | Recovering, Preparing (narrower), Writing, Finished |
//! | Finished      |                                         | freed                                               |
//!
//! Any phase before Writing goes back to Preparing when a member fails that the plan needs, or when the band
//! is narrowed. `crates/sim/tests/it/table.rs` lists every transition.
//!
//! A slice works on its range band by band. If a band cannot be decoded because of an unreadable sector, the
//! band is narrowed to one logical block, so that exactly the lost sectors are lost.
//!
//! Each kind of slice is a module of functions over [`rows::Rows`]: `read`, `write` (with `combine` and
//! `record`), `fill`, `resync`, `scrub`, `relocate`, `reshape` and `replay`; `reset` has what several of them
//! do. `run` dispatches to the kinds, `window` starts and ends those of tasks. Beneath the kinds are the
//! table of slices (`table`), what all slices do alike (`rows`) and their operations (`issue`, `failed`).

pub(crate) mod coalesce;
mod combine;
mod failed;
mod fill;
pub(crate) mod findings;
pub(crate) mod fragment;
mod issue;
pub(crate) mod made;
pub(crate) mod read;
mod record;
pub(crate) mod relocate;
mod replay;
mod reset;
pub(crate) mod reshape;
mod resync;
pub(crate) mod rows;
mod run;
mod scrub;
pub(crate) mod table;
pub(crate) mod transfer;
mod window;
pub(crate) mod write;
