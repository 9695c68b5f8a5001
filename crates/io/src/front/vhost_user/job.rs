//! A request on its way.

use super::chain::Span;
use super::limits::Guest;
use super::request::{Range, StatusPlace};
use restripe_array::{BufRef, RequestOp};
use std::sync::Arc;

/// A chain that was taken and has not been given back.
pub(crate) struct Job {
    pub(crate) ring: usize,
    pub(crate) head: u16,
    /// As it was mapped when the chain was taken.
    pub(crate) memory: Arc<Guest>,
    pub(crate) status: StatusPlace,
    /// Where data comes from or goes to.
    pub(crate) spans: Vec<Span>,
    pub(crate) what: What,
    pub(crate) buf: Option<BufRef>,
    /// Requests of the array that are not answered.
    pub(crate) left: u32,
    pub(crate) failed: bool,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum What {
    Read(Range),
    Write(Range),
    Ranges(RequestOp, Vec<Range>),
    Flush,
}
