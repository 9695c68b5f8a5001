//! INQUIRY data: who the logical unit is and what it can do (SPC-4 sections 6.6 and 7.8, SBC-3 section 6.5).

use super::answer::BLOCK_BYTES;
use super::sense::{self, Sense};
use crate::front::{BUFFER_BYTES_MAX, Export};

const VENDOR: &[u8; 8] = b"RESTRIPE";
const PRODUCT: &[u8; 16] = b"Restripe array  ";
const REVISION: &[u8; 4] = b"1   ";

/// Peripheral qualifier and device type: a direct access device that is there, and none.
const DISK: u8 = 0x00;
const NO_UNIT: u8 = 0x7f;

/// Blocks of one transfer at most, as it is reported for all commands alike: an ORWRITE needs three times its
/// data as memory. Reads and writes are accepted up to the largest buffer.
const REPORTED_BLOCKS_MAX: u32 = (10 << 20) / BLOCK_BYTES as u32;
const _: () = assert!(3 * REPORTED_BLOCKS_MAX <= TRANSFER_BLOCKS_MAX);
pub(crate) const TRANSFER_BLOCKS_MAX: u32 = BUFFER_BYTES_MAX / BLOCK_BYTES as u32;
/// Blocks of one WRITE SAME at most.
pub(crate) const WRITE_SAME_BLOCKS_MAX: u64 = (1 << 30) / BLOCK_BYTES;
/// Blocks of one UNMAP at most. libiscsi's suite accepts no more.
pub(crate) const UNMAP_BLOCKS_MAX: u32 = (512 << 20) / BLOCK_BYTES as u32;
/// Descriptors of one UNMAP at most.
pub(crate) const UNMAP_DESCRIPTORS_MAX: u32 = 256;

/// SAM-5, iSCSI, SPC-4, SBC-3: the standards' numbers without a version.
const STANDARDS: [u16; 4] = [0x00a0, 0x0960, 0x0460, 0x04c0];

const SUPPORTED: u8 = 0x00;
const SERIAL_NUMBER: u8 = 0x80;
const IDENTIFICATION: u8 = 0x83;
const EXTENDED: u8 = 0x86;
const BLOCK_LIMITS: u8 = 0xb0;
const CHARACTERISTICS: u8 = 0xb1;
const PROVISIONING: u8 = 0xb2;
/// Every page, ascending.
const PAGES: [u8; 7] = [
    SUPPORTED,
    SERIAL_NUMBER,
    IDENTIFICATION,
    EXTENDED,
    BLOCK_LIMITS,
    CHARACTERISTICS,
    PROVISIONING,
];

/// The standard data. `None`: there is no unit at this number.
pub(crate) fn standard(export: Option<&Export>, removable: bool) -> Vec<u8> {
    let mut data = vec![0; 74];
    data[0] = if export.is_some() { DISK } else { NO_UNIT };
    data[1] = if removable { 0x80 } else { 0 };
    // Target port groups are implicit (TPGS).
    data[5] = 0x10;
    // SPC-4; response format 2, with hierarchical addressing; commands are queued.
    (data[2], data[3], data[4], data[7]) = (0x06, 0x12, 74 - 5, 0x02);
    data[8..16].copy_from_slice(VENDOR);
    data[16..32].copy_from_slice(PRODUCT);
    data[32..36].copy_from_slice(REVISION);
    for (place, standard) in data[58..].chunks_exact_mut(2).zip(STANDARDS) {
        place.copy_from_slice(&standard.to_be_bytes());
    }
    data
}

/// A page of vital product data.
pub(crate) fn page(page: u8, export: &Export) -> Result<Vec<u8>, Sense> {
    let mut body = match page {
        SUPPORTED => PAGES.to_vec(),
        SERIAL_NUMBER => serial_number(export),
        IDENTIFICATION => identification(export),
        EXTENDED => extended(),
        BLOCK_LIMITS => block_limits(export),
        CHARACTERISTICS => characteristics(),
        PROVISIONING => provisioning(),
        _ => return Err(sense::INVALID_FIELD),
    };
    let length = u16::try_from(body.len()).unwrap_or(u16::MAX).to_be_bytes();
    let mut data = vec![DISK, page, length[0], length[1]];
    data.append(&mut body);
    Ok(data)
}

/// The array's UUID in hexadecimal digits.
fn serial_number(export: &Export) -> Vec<u8> {
    export.uuid.to_string().replace('-', "").into_bytes()
}

/// Designators: the array's UUID as a T10 vendor identification and as a locally assigned name, and the port.
fn identification(export: &Export) -> Vec<u8> {
    let mut named = VENDOR.to_vec();
    named.append(&mut serial_number(export));
    // Locally assigned: 3, and 60 bits of our own.
    let mut local = [0; 8];
    local.copy_from_slice(&export.uuid.0[..8]);
    local[0] = 0x30 | local[0] & 0x0f;
    let mut data = Vec::new();
    designator(&mut data, 0x02, 0x01, &named);
    designator(&mut data, 0x01, 0x03, &local);
    // Of the target port: its relative number, and its group.
    designator(&mut data, 0x01, 0x14, &[0, 0, 0, 1]);
    designator(&mut data, 0x01, 0x15, &[0, 0, 0, 1]);
    data
}

/// `code_set`: binary (1) or ASCII (2). `kind`: what it names, and how.
fn designator(data: &mut Vec<u8>, code_set: u8, kind: u8, value: &[u8]) {
    // The protocol identifier of iSCSI is 5. It is valid for designators of ports.
    let (protocol, valid) = match kind & 0x30 {
        0 => (0, 0),
        _ => (0x50, 0x80),
    };
    data.extend_from_slice(&[protocol | code_set, valid | kind, 0, value.len() as u8]);
    data.extend_from_slice(value);
}

/// The answer to REPORT TARGET PORT GROUPS (SPC-4 section 6.37): one group with one port, which is active and
/// as good as any.
pub(crate) fn port_groups() -> Vec<u8> {
    let group = [0x00, 0x01, 0, 1, 0, 0, 0, 1];
    let port = [0, 0, 0, 1];
    [&12_u32.to_be_bytes()[..], &group, &port].concat()
}

fn extended() -> Vec<u8> {
    let mut body = vec![0; 60];
    // Of task attributes there are SIMPLE and ORDERED. The cache is volatile.
    (body[1], body[2]) = (0x03, 0x01);
    body
}

fn block_limits(export: &Export) -> Vec<u8> {
    let mut body = vec![0; 60];
    let physical = physical_blocks(export);
    // WSNZ of zero: a WRITE SAME of zero blocks goes to the end.
    // The number of blocks of a COMPARE AND WRITE has one byte.
    body[1] = u8::MAX;
    body[2..4].copy_from_slice(&(physical as u16).to_be_bytes());
    let most = export.maximum_block / BLOCK_BYTES as u32;
    let most = most.min(REPORTED_BLOCKS_MAX);
    body[4..8].copy_from_slice(&most.to_be_bytes());
    body[8..12].copy_from_slice(&most.min(2048).to_be_bytes());
    body[16..20].copy_from_slice(&UNMAP_BLOCKS_MAX.to_be_bytes());
    body[20..24].copy_from_slice(&UNMAP_DESCRIPTORS_MAX.to_be_bytes());
    body[24..28].copy_from_slice(&physical.to_be_bytes());
    // The alignment is valid, and zero.
    body[28] = 0x80;
    body[32..40].copy_from_slice(&WRITE_SAME_BLOCKS_MAX.to_be_bytes());
    body
}

/// No rotation rate, form factor or zones to report.
fn characteristics() -> Vec<u8> {
    vec![0; 60]
}

/// Thin: UNMAP and both WRITE SAME unmap, and unmapped blocks read zeros.
fn provisioning() -> Vec<u8> {
    vec![0, 0xe4, 0x02, 0]
}

/// Logical blocks of a physical one.
pub(crate) fn physical_blocks(export: &Export) -> u32 {
    let blocks = export.preferred_block / BLOCK_BYTES as u32;
    match blocks.is_power_of_two() {
        true => blocks.min(1 << 15),
        false => 1,
    }
}
