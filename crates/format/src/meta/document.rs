//! Compares `docs/reference/format.md` with the codec: every row of its tables names a constant and its offset.

use super::{leases, log, pages, reshape, superblock};
use crate::format_tables::{DOCUMENT, agree, end, size};
use crate::units::PAGE_BYTES;
use alloc::format;
use alloc::vec::Vec;
use superblock::{last_scrub, left, tail};

#[test]
fn superblocks() {
    let tables = [
        "superblock",
        "descriptor",
        "region",
        "member",
        "placement",
        "task",
        "run",
        "grown",
        "history",
        "parcel",
    ];
    agree(superblock::at::ALL, &tables);
    agree(reshape::at::ALL, &["reshape"]);
    agree(tail::places::ALL, &["tail", "owner"]);
    agree(last_scrub::place::ALL, &["last-scrub", "scrubbed"]);
    agree(left::place::ALL, &["left"]);
    assert_eq!(end("tail"), superblock::SUPERBLOCK_BYTES);
    for (table, name, value) in [
        ("superblock", "HEADER_BYTES", superblock::HEADER_BYTES),
        ("history", "HISTORY_BYTES", superblock::HISTORY_BYTES),
        ("reshape", "RESHAPE_BYTES", reshape::RESHAPE_BYTES),
        ("parcel", "PARCEL_BYTES", leases::PARCEL_BYTES),
        ("owner", "OWNER_BYTES", tail::OWNER_BYTES),
        (
            "last-scrub",
            "LAST_SCRUB_BYTES",
            last_scrub::LAST_SCRUB_BYTES,
        ),
        ("scrubbed", "SCRUBBED_BYTES", last_scrub::SCRUBBED_BYTES),
    ] {
        assert_eq!(end(table), value, "{table}");
        assert_eq!(size(table, name), value, "{table}");
    }
    assert_eq!(end("left"), left::LEFT_BYTES);
    for (table, name, value) in [
        (
            "superblock",
            "SUPERBLOCK_BYTES",
            superblock::SUPERBLOCK_BYTES,
        ),
        ("region", "REGION_BYTES", superblock::REGION_BYTES),
        ("member", "MEMBER_BYTES", superblock::MEMBER_BYTES),
        ("placement", "PLACEMENT_BYTES", superblock::PLACEMENT_BYTES),
        ("task", "TASK_BYTES", superblock::TASK_BYTES),
        ("run", "RUN_BYTES", superblock::RUN_BYTES),
        ("tail", "TAIL_AT", tail::TAIL_AT),
        ("left", "LEFT_AT", left::LEFT_AT),
    ] {
        assert_eq!(size(table, name), value, "{table}");
    }
}

#[test]
fn map_pages() {
    agree(pages::at::ALL, &["map", "lost", "heat"]);
    assert_eq!((end("map"), end("heat")), (PAGE_BYTES, PAGE_BYTES));
    assert_eq!(size("map", "HEADER_BYTES"), pages::HEADER_BYTES);
    assert_eq!(size("heat", "ENTRY_BYTES"), pages::ENTRY_BYTES);
    assert!(DOCUMENT.contains(&format!("({} *i* + *n*)", pages::ENTRIES_PER_PAGE)));
}

#[test]
fn log_records() {
    agree(log::at::ALL, &["log"]);
    assert_eq!(end("log"), log::HEADER_BYTES);
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
