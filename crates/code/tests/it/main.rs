//! Kernels and codes: one program of tests, a module for each subject.

mod independent;
mod kernels;
mod recovery;
