//! Caches by their public face: one program of tests.

mod cache;
