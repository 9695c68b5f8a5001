//! Other people's NBD clients against our server: nbdinfo, nbdcopy, nbdsh, qemu-io, qemu-img, fio and nbdkit.
//!
//! First over the smallest possible shell with a disk in memory, which tests the protocol alone; then over arrays of
//! every level in every health ([`levels`]), through faults under load ([`faults`]) and
//! through kills of the server ([`crash`]). A tool that is not installed
//! is skipped with a message that counts the skips.

pub mod array;
mod checks;
mod crash;
mod faults;
mod filesystem;
mod hostile;
mod levels;
mod memory_server;
mod server;
pub mod tools;

use checks::Check;
use memory_server::{Access, MemoryServer};

/// More than the largest block, so that a request can be too long without leaving the export.
const SIZE: usize = 40 << 20;

fn over_memory(check: Check) {
    let server = MemoryServer::start(SIZE, Access::All);
    check(&server.target());
}

#[test]
fn nbdinfo_sees_what_is_offered() {
    over_memory(checks::describes_itself);
}

#[test]
fn nbdinfo_maps_data_and_holes() {
    over_memory(checks::maps_every_byte);
}

#[test]
fn nbdcopy_copies_both_ways_over_four_connections() {
    over_memory(checks::copies_both_ways);
}

#[test]
fn qemu_io_finds_its_patterns() {
    over_memory(checks::keeps_patterns);
}

#[test]
fn fio_verifies_checksums() {
    over_memory(checks::passes_verified_load);
}

#[test]
fn nbdsh_probes_get_answers() {
    over_memory(checks::answers_probes);
}

#[test]
fn nbdsh_without_modern_options_gets_the_same_bytes() {
    over_memory(checks::serves_old_clients);
}

#[test]
fn a_read_only_export_stays_as_it_is() {
    let server = MemoryServer::start(SIZE, Access::ReadOnly);
    checks::refuses_writes(&server.target());
}

#[test]
fn nbdkit_is_a_client_too() {
    over_memory(checks::serves_through_nbdkit);
}
