//! Compares the tables of a log in `docs/reference/format.md` with the codec: rows name constants and
//! offsets.

use super::{EXTENTS_MAX, anchor, record, slot};
use alloc::format;
use restripe_array::PAGE_BYTES;
use restripe_format::format_tables::{DOCUMENT, agree, end, size};

#[test]
fn overlay_records() {
    agree(record::at::ALL, &["record", "extent"]);
    assert_eq!(end("record"), PAGE_BYTES);
    assert_eq!(size("record", "HEADER_BYTES"), record::HEADER_BYTES);
    assert_eq!(end("extent"), record::EXTENT_BYTES);
    assert_eq!(size("extent", "EXTENT_BYTES"), record::EXTENT_BYTES);
    assert!(DOCUMENT.contains(&format!("extents, 1 to {EXTENTS_MAX}")));
}

#[test]
fn slots_of_a_buffer() {
    agree(slot::at::ALL, &["slot"]);
    assert_eq!(end("slot"), record::HEADER_BYTES);
}

#[test]
fn overlay_anchors() {
    agree(anchor::at::ALL, &["anchor", "entry"]);
    assert_eq!(end("anchor"), PAGE_BYTES);
    assert_eq!(size("anchor", "HEADER_BYTES"), anchor::HEADER_BYTES);
    assert_eq!(end("entry"), anchor::ENTRY_BYTES);
    assert_eq!(size("entry", "ENTRY_BYTES"), anchor::ENTRY_BYTES);
    let each = format!("for each {} segments", anchor::SEGMENTS_PER_PAGE);
    assert!(DOCUMENT.contains(&each));
}
