//! The laboratory: one program of tests, a module for each subject.

mod cache_grid;
mod cache_real;
mod disksim_files;
mod drives;
mod generate_presets;
mod lab_experiments;
mod lab_next_steps;
mod lab_schemes;
mod lab_worlds;
mod physics;
mod reliability;
mod shared;
mod trace_fuzz;
mod trace_locality;
mod trace_table;
