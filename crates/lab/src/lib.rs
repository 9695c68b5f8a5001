//! The laboratory: loads that know what they wrote, measurements, charts and reports.
//!
//! | module | owns |
//! |---|---|
//! | [`cache`] | caches alone on requests, by the reads they cost an array; grids of them |
//! | [`drives`] | models of particular drives, and how well they keep to measurements |
//! | [`experiment`] | experiments as data: scenarios, cells, statistics, figures |
//! | [`generate`] | synthetic workloads: parameters, presets, requests, fits to traces |
//! | [`nbd`] | a small blocking NBD client |
//! | [`nearest`] | what a mistyped name may have meant |
//! | [`papers`] | what papers print, and what scenarios answer |
//! | [`pattern`] | what a block holds, as a function of its place and version |
//! | [`plan`] | layouts for given disks, compared before anything is written |
//! | [`load`] | verified mixed load: every byte read is checked against the load's own record |
//! | [`latency`] | samples, quantiles by phase, the course over time |
//! | [`chart`] | latency and throughput over time as a figure |
//! | [`plot`] | figures as SVG: curves, bars, heat maps, for wide and narrow windows, light and dark |
//! | [`reliability`] | how long arrays keep their data: chains, and lives of single disks |
//! | [`report`] | tables for a terminal, one self-contained HTML page |
//! | [`replay`] | traces against arrays, simulated and real, and the log of facts |
//! | `svg` | text for SVG and HTML |
//! | [`threads`] | independent pieces of work over threads, in order |
//! | [`trace`] | block traces of any format: readers, statistics, transformations |

/// TOML files that the command is built with: names and texts. Their folder is relative to the caller's file.
macro_rules! texts {
    ($folder:literal: $($name:literal,)+) => {
        &[$(($name, include_str!(concat!($folder, $name, ".toml")))),+]
    };
}

pub mod cache;
pub mod chart;
pub mod drives;
pub mod experiment;
pub mod generate;
pub mod latency;
pub mod load;
pub mod nbd;
pub mod nearest;
pub mod papers;
pub mod pattern;
pub mod plan;
pub mod plot;
pub mod reliability;
pub mod replay;
pub mod report;
mod svg;
pub mod threads;
pub mod trace;
