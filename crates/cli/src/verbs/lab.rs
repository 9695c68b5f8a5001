//! Verbs of the laboratory: experiments, models of drives, reliability, traces and the simulator.

use crate::verbs::lab::fit_disk::FitDisk;
use crate::verbs::lab::reliability::Reliability;
use clap::Subcommand;

pub(crate) mod cache_sim;
pub(crate) mod claims;
pub(crate) mod demo;
pub(crate) mod experiments;
pub(crate) mod fit_disk;
pub(crate) mod provenance;
pub(crate) mod reliability;
pub(crate) mod replay;
pub(crate) mod scheme_comparison;
pub(crate) mod sim;
pub(crate) mod sim_disk;
pub(crate) mod trace;
pub(crate) mod under_way;

#[derive(Subcommand, Debug)]
pub(crate) enum Lab {
    /// List the scenarios
    List,
    /// Run an experiment, print its results and write its report
    Run(experiments::LabRun),
    /// Compare two values of a swept parameter, seed by seed
    Compare(experiments::LabCompare),
    /// Rewrite the report of an experiment; runs without stored results are run first
    Report(experiments::LabReport),
    /// Run the headline claims of the papers again, and say whether each holds
    Verify(claims::LabVerify),
    /// Write the document of everything that the papers print, with the results that answer it
    Papers(claims::LabPapers),
    /// Fit a drive's parameters to traces, and score the model on the part of each that the fit did not use
    FitDisk(FitDisk),
    /// Compute the mean time to data loss of an array by a Markov chain, and by simulation of disks
    Reliability(Box<Reliability>),
}
