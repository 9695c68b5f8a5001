//! Layouts by their public face: one program of tests, a module for each subject.

mod layout_golden;
mod layout_laws;
mod layout_reshape;
mod layout_scaled;
mod layout_skewed;
