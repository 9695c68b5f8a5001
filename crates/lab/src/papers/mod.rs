//! The papers that the laboratory reproduces: what they print, and what scenarios answer.
//!
//! | module | owns |
//! |---|---|
//! | [`inventory`] | every figure, table and printed number of a paper |
//! | [`claims`] | the printed numbers of all scenarios, run and judged paper by paper |
//! | [`document`] | tables and the document of them |
//! | [`former`] | what a former run said of the same claims |

pub mod claims;
pub mod document;
pub mod former;
pub mod inventory;
