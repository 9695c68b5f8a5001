//! Scripts of events: what the engine does, in which order, and what it waits for.
//!
//! Each test holds the engine's operations and ends them one by one, with results that it chooses. Listings of actions
//! are compared with `golden/`; `RESTRIPE_BLESS=1` writes them anew.

mod cached;
mod commands;
mod degraded;
mod errors;
mod flushes;
mod full_pairs;
mod grown;
mod growth;
mod halts;
mod handed_on;
mod heats;
mod last_scrub;
mod leases;
mod math;
mod mirrors;
mod ordering;
mod orders;
mod outsourced;
mod owners;
mod parities;
mod planted;
mod ranges;
mod ranges_pairs;
mod ranges_tables;
mod reads;
mod recovery;
mod removals;
mod reshapes;
mod resumed;
mod scrubs;
mod shell;
mod spares;
mod spindles;
mod surrogates;
mod tasks;
mod throttles;
mod unwritten;
mod writes;
