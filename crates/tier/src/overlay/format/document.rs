//! Compares the tables of a log in `docs/reference/format.md` with the codec: every row names a constant and its offset.

use super::{EXTENTS_MAX, anchor, record, slot};
use alloc::format;
use restripe_array::PAGE_BYTES;
use restripe_format::agrees;
use restripe_format::format_tables::{DOCUMENT, size};

#[test]
fn overlay_records() {
    let end = agrees!(
        "record",
        record::at,
        [
            MAGIC,
            VERSION,
            COUNT,
            CRC,
            ARRAY,
            EPOCH,
            SEQUENCE,
            DURABLE,
            AT,
            PAYLOAD_SECTORS,
            PAYLOAD_CRC,
            RESERVED,
            EXTENTS,
        ]
    );
    assert_eq!(end, PAGE_BYTES);
    assert_eq!(size("record", "HEADER_BYTES"), record::HEADER_BYTES);
    let end = agrees!(
        "extent",
        record::at,
        [EXTENT_HOME, EXTENT_SECTORS, EXTENT_KIND, EXTENT_RESERVED]
    );
    assert_eq!(end, record::EXTENT_BYTES);
    assert_eq!(size("extent", "EXTENT_BYTES"), record::EXTENT_BYTES);
    assert!(DOCUMENT.contains(&format!("extents, 1 to {EXTENTS_MAX}")));
}

#[test]
fn slots_of_a_buffer() {
    let end = agrees!("slot", slot::at, [MAGIC, VERSION, CLOSED, RESERVED]);
    assert_eq!(end, record::HEADER_BYTES);
}

#[test]
fn overlay_anchors() {
    let end = agrees!(
        "anchor",
        anchor::at,
        [
            MAGIC,
            VERSION,
            CRC,
            ARRAY,
            EPOCH,
            PAGE_VERSION,
            DURABLE,
            INDEX,
            COUNT,
            SEGMENT_SECTORS,
            SEGMENTS,
            RESERVED,
            ENTRIES,
        ]
    );
    assert_eq!(end, PAGE_BYTES);
    assert_eq!(size("anchor", "HEADER_BYTES"), anchor::HEADER_BYTES);
    let end = agrees!("entry", anchor::at, [ENTRY_OBSOLETE_BELOW, ENTRY_END]);
    assert_eq!(end, anchor::ENTRY_BYTES);
    assert_eq!(size("entry", "ENTRY_BYTES"), anchor::ENTRY_BYTES);
    let each = format!("for each {} segments", anchor::SEGMENTS_PER_PAGE);
    assert!(DOCUMENT.contains(&each));
}
