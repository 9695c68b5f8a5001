//! Compares `docs/reference/format.md` with the codec: every row of its tables names a constant and its offset.

use super::{leases, log, pages, reshape, superblock};
use crate::format_tables::{DOCUMENT, size};
use alloc::format;
use alloc::vec::Vec;

#[test]
fn superblock_header() {
    let end = agrees!(
        "superblock",
        superblock::at,
        [
            MAGIC,
            MAJOR,
            MINOR,
            LENGTH,
            CRC,
            FLAGS,
            INCOMPATIBLE,
            COMPATIBLE,
            ARRAY,
            MEMBER,
            CREATED,
            GENERATION,
            SEQUENCE,
            NAME,
            LEVEL,
            ROTATION,
            COPIES,
            WRITE_HOLE,
            SLOTS,
            GROUPS,
            PARTITIONS,
            CHUNK_SECTORS,
            LOGICAL_BLOCK,
            SLOT_SECTORS,
            EXTENT_ROWS,
            INTENT_ROWS,
            LOG_FLOOR,
            REGIONS,
            MEMBERS,
            PLACEMENT,
            TASKS,
            RUNS,
            FORCED,
            PARTNER,
            PARTNER_EPOCH,
            PARTNER_SESSION,
            PARTNER_ROLE,
            BUFFER,
            PARCELS_OFFSET,
            PARCELS_ENTRY_BYTES,
            PARCELS_COUNT,
        ]
    );
    assert_eq!(end, superblock::HEADER_BYTES);
    assert_eq!(size("superblock", "HEADER_BYTES"), superblock::HEADER_BYTES);
    assert_eq!(
        size("superblock", "SUPERBLOCK_BYTES"),
        superblock::SUPERBLOCK_BYTES
    );
}

#[test]
fn superblock_tables() {
    agrees!(
        "descriptor",
        superblock::at,
        [TABLE_OFFSET, TABLE_ENTRY_BYTES, TABLE_COUNT]
    );
    agrees!(
        "region",
        superblock::at,
        [REGION_KIND, REGION_START, REGION_SECTORS]
    );
    agrees!(
        "member",
        superblock::at,
        [
            MEMBER_UUID,
            MEMBER_ROLE,
            MEMBER_PARTIAL,
            MEMBER_DROPPED,
            MEMBER_READ_ERRORS,
            MEMBER_STALE_SINCE,
            MEMBER_LOG_FLOOR,
            MEMBER_CURRENT_SINCE,
        ]
    );
    agrees!(
        "placement",
        superblock::at,
        [
            PLACEMENT_SLOT,
            PLACEMENT_PARTITION,
            PLACEMENT_MEMBER,
            PLACEMENT_INCOMING,
            PLACEMENT_REGION,
            PLACEMENT_INCOMING_REGION,
        ]
    );
    agrees!(
        "task",
        superblock::at,
        [TASK_KIND, TASK_PAUSED, TASK_SLOT, TASK_RUNS]
    );
    agrees!("run", superblock::at, [RUN_ROW, RUN_ROWS]);
    agrees!("grown", superblock::at, [HISTORY_OFFSET]);
    let end = agrees!("history", superblock::at, [HISTORY_COUNTS]);
    assert_eq!(end, superblock::HISTORY_BYTES);
    assert_eq!(size("history", "HISTORY_BYTES"), superblock::HISTORY_BYTES);
    let end = agrees!(
        "reshape",
        reshape::at,
        [FORMER_SLOTS, JOURNAL, FIRST_SECTORS]
    );
    assert_eq!(end, reshape::RESHAPE_BYTES);
    assert_eq!(size("reshape", "RESHAPE_BYTES"), reshape::RESHAPE_BYTES);
    let end = agrees!(
        "parcel",
        superblock::at,
        [PARCEL_START, PARCEL_SECTORS, PARCEL_BORROWER, PARCEL_NAME]
    );
    assert_eq!(end, leases::PARCEL_BYTES);
    assert_eq!(size("parcel", "PARCEL_BYTES"), leases::PARCEL_BYTES);
    assert_eq!(size("region", "REGION_BYTES"), superblock::REGION_BYTES);
    assert_eq!(size("member", "MEMBER_BYTES"), superblock::MEMBER_BYTES);
    assert_eq!(
        size("placement", "PLACEMENT_BYTES"),
        superblock::PLACEMENT_BYTES
    );
    assert_eq!(size("task", "TASK_BYTES"), superblock::TASK_BYTES);
    assert_eq!(size("run", "RUN_BYTES"), superblock::RUN_BYTES);
}

#[test]
fn superblock_tail() {
    let end = agrees!("tail", superblock::tail::places, [OWNER, LAST_SCRUB]);
    assert_eq!(end, superblock::SUPERBLOCK_BYTES);
    let end = agrees!(
        "owner",
        superblock::tail::places,
        [
            OWNER_RUN,
            OWNER_HOST,
            OWNER_STARTED,
            OWNER_PROCESS,
            OWNER_NAMESPACE,
            OWNER_INTERVAL,
            OWNER_RESERVED,
        ]
    );
    assert_eq!(end, superblock::tail::OWNER_BYTES);
    assert_eq!(size("owner", "OWNER_BYTES"), superblock::tail::OWNER_BYTES);
    let end = agrees!(
        "last-scrub",
        superblock::last_scrub::place,
        [
            SCRUB_MODE,
            SCRUB_STATE,
            SCRUB_ROWS_LISTED,
            SCRUB_MEMBERS_LISTED,
            SCRUB_OTHERS,
            SCRUB_BEGUN,
            SCRUB_ENDED,
            SCRUB_ROWS,
            SCRUB_DONE,
            SCRUB_COMPARED,
            SCRUB_UNWRITTEN,
            SCRUB_WRONG,
            SCRUB_UNREADABLE,
            SCRUB_REPAIRED,
            SCRUB_IN_SYNC,
            SCRUB_LEFT,
            SCRUB_SECTORS,
            SCRUB_FIRST_ROWS,
            SCRUB_MEMBERS,
        ]
    );
    let last_scrub = superblock::last_scrub::LAST_SCRUB_BYTES;
    assert_eq!(end, last_scrub);
    assert_eq!(size("last-scrub", "LAST_SCRUB_BYTES"), last_scrub);
    let end = agrees!(
        "scrubbed",
        superblock::last_scrub::place,
        [SCRUBBED_MEMBER, SCRUBBED_WRONG, SCRUBBED_UNREADABLE]
    );
    let line = superblock::last_scrub::SCRUBBED_BYTES;
    assert_eq!(end, line);
    assert_eq!(size("scrubbed", "SCRUBBED_BYTES"), line);
    assert_eq!(size("tail", "TAIL_AT"), superblock::tail::TAIL_AT);
    let end = agrees!("left", superblock::left::place, [LEFT_SEQUENCE]);
    assert_eq!(end, superblock::left::LEFT_BYTES);
    assert_eq!(size("left", "LEFT_AT"), superblock::left::LEFT_AT);
}

#[test]
fn map_pages() {
    let end = agrees!(
        "map",
        pages::at,
        [
            MAGIC, VERSION, KIND, CRC, ARRAY, SEQUENCE, INDEX, RESERVED, BODY
        ]
    );
    assert_eq!(end, crate::units::PAGE_BYTES);
    assert_eq!(size("map", "HEADER_BYTES"), pages::HEADER_BYTES);
    agrees!("lost", pages::at, [COUNT, EXTENTS]);
    let end = agrees!("heat", pages::at, [ENTRY_ROWS, EPOCH, ENTRIES]);
    assert_eq!(end, crate::units::PAGE_BYTES);
    assert_eq!(size("heat", "ENTRY_BYTES"), pages::ENTRY_BYTES);
    assert!(DOCUMENT.contains(&format!("({} *i* + *n*)", pages::ENTRIES_PER_PAGE)));
}

#[test]
fn log_records() {
    let end = agrees!(
        "log",
        log::at,
        [
            MAGIC,
            VERSION,
            CRC,
            ARRAY,
            SEQUENCE,
            FLOOR,
            GENERATION,
            ROW,
            OFFSET,
            SECTORS,
            MODIFIED,
            PAYLOAD_SECTORS,
            PAYLOAD_CRC,
            COPIES,
            KIND,
            RESERVED,
        ]
    );
    assert_eq!(end, log::HEADER_BYTES);
    assert_eq!(size("log", "HEADER_BYTES"), log::HEADER_BYTES);
}

#[test]
fn places_and_limits() {
    // A phrase may go over the end of a line.
    let document = DOCUMENT.split_whitespace().collect::<Vec<_>>().join(" ");
    let places = superblock::SUPER_B_PLACES
        .map(|place| format!("{place}"))
        .join(", ");
    assert!(document.contains(&format!("**{places}**")));
    let limits = format!(
        "at most {} regions, {} members, {} placements, {} tasks, {} runs, {} parcels",
        superblock::REGIONS_MAX,
        superblock::MEMBERS_MAX,
        superblock::PLACEMENTS_MAX,
        superblock::TASKS_MAX,
        superblock::RUNS_MAX,
        leases::PARCELS_MAX
    );
    assert!(document.contains(&limits));
    assert!(document.contains(&format!("at most {}", pages::EXTENTS_PER_PAGE)));
    assert!(document.contains(&format!("{} bits", pages::BITS_PER_PAGE)));
}
