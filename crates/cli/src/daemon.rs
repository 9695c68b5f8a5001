//! Engines in this process: a reactor with the arrays of a daemon, or with the array of one verb.

pub(crate) mod certificates;
pub(crate) mod control;
pub(crate) mod event_log;
pub(crate) mod places;
pub(crate) mod refusals;
pub(crate) mod running;
pub(crate) mod serving;
