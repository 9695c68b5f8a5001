//! Starting an array with a surrogate.
//!
//! | phase     | waits for                                                   | next                             |
//! |-----------|-------------------------------------------------------------|----------------------------------|
//! | Sets      | the surrogate's engine, then home's                         | Numbering, Anchors, or it ends   |
//! | Numbering | both sets have the number of this start on record           | Anchors, Beginning, or it ends   |
//! | Anchors   | the pages of the log's anchors                              | Scan                             |
//! | Slots     | what the buffer has ([`slots`])                             | Anchors                          |
//! | Scan      | headers and payloads of the records                         | Moving, Flushing, Losing, or it ends |
//! | Moving    | records that the buffer alone has whole are in the log      | Anchors                          |
//! | Losing    | what was accepted as lost is on record at home              | Numbering                        |
//! | Flushing  | what was found is durable                                   | Closing                          |
//! | Closing   | anchors that cut off what does not count                    | Beginning                        |
//! | Beginning | anchors that let new records count                          | it ends                          |
//!
//! Home knows whether anything that counts lies in the log (`redirected` of the set). If nothing does, nobody reads it: the
//! log begins anew under a higher epoch, which home has on record before the first record counts. If something does, and
//! cannot be found, the start is refused. What was accepted as lost is forgotten with the epoch.
//!
//! A start that failed may be tried again: sets that serve already go on to.

mod again;
mod log;
pub(crate) mod reader;
pub(crate) mod reading;
mod serve;
mod session;
mod slots;
pub(crate) mod starting;
mod state;
