//! Experiments as data: a scenario is a text file, its cells are independent runs, and all output is a
//! function of their logs.
//!
//! | module | owns |
//! |---|---|
//! | [`scenario`] | the file: fixed parameters with their origins, the sweep, the output, the numbers that papers printed |
//! | [`value`] | a parameter's value |
//! | [`claim`] | what is compared, and with which numbers that papers printed |
//! | `named` | whether what it compares is of the scenario |
//! | [`fair`] | whether two sides of a comparison promise the same |
//! | [`scheme`] | rebuild schemes by the papers' names |
//! | [`choices`] | what the names stand for that are values of parameters |
//! | `plain` | what is wrong with a value, in plain words |
//! | [`form`] | groups, partitions and spare partitions of a skewed array by a name |
//! | [`cell`] | one point of the sweep: settings, canonical text, hash, its run |
//! | [`content`] | digests of traces and of drives' files |
//! | [`requests`] | the requests of its workload |
//! | [`runner`] | cells over cores, the cache, progress |
//! | [`kept`] | results as files, with digests |
//! | [`metric`] | numbers of a run by name |
//! | [`statistics`] | geometric means, intervals, tests, families of them |
//! | [`verdict`] | whether a printed number holds |
//! | [`judged`] | printed numbers with ours |
//! | [`outcome`] | groups of seeds, comparisons, tables, CSV and JSON lines |
//! | [`sequential`] | seeds until claims are decided |
//! | [`ratios`] | printed ratios by the values of a parameter |
//! | [`figure`] | its figures |
//! | `course` | courses over time, with failure and rebuild marked |
//! | `words` | what metrics and parameters are called in figures and pages, with their units |
//! | [`page`] | one HTML report |

pub mod cell;
pub mod choices;
pub mod claim;
mod content;
mod course;
pub mod fair;
pub mod figure;
pub mod form;
pub mod judged;
pub mod kept;
pub mod metric;
mod named;
pub mod outcome;
pub mod page;
pub mod parameters;
mod plain;
mod ratios;
pub mod requests;
pub mod runner;
pub mod scenario;
pub mod scheme;
pub mod sequential;
pub mod statistics;
pub mod value;
pub mod verdict;
pub(crate) mod words;
