//! Slots of an NVRAM set: their pages, and their places.

use super::slot::{self, HALF_SECTORS, SlotLayout, Version};
use super::{LogOwner, RecordHeader, record};
use crate::overlay::{Extent, Kind};
use alloc::vec;
use restripe_array::meta::header;
use restripe_array::{PAGE_SECTORS, Uuid, zeroed_page};

const OWNER: LogOwner = LogOwner {
    array: Uuid([7; 16]),
    epoch: 3,
};

fn version(number: u32, closed: bool) -> Version {
    let at = 640;
    let extent = |home, sectors, before| Extent {
        home,
        sectors,
        at: at + PAGE_SECTORS + before,
        sequence: 70,
        kind: Kind::Instead,
    };
    Version {
        header: RecordHeader {
            sequence: 70,
            durable: 60,
            at,
            payload_sectors: 11,
            payload_crc: 0x1234,
        },
        version: number,
        closed,
        extents: vec![extent(1000, 8, 0), extent(40, 3, 8)],
    }
}

#[test]
fn a_version_comes_back_as_it_was() {
    for one in [
        version(1, false),
        version(2, true),
        version(u32::MAX, false),
    ] {
        let mut page = zeroed_page();
        slot::encode(&OWNER, &one, &mut page);
        assert_eq!(slot::decode(&OWNER, &page), Ok(one));
    }
}

/// A slot's page is not accepted as a record's header in a log, nor the reverse.
#[test]
fn a_version_is_no_record_and_a_record_no_version() {
    let one = version(1, true);
    let mut page = zeroed_page();
    slot::encode(&OWNER, &one, &mut page);
    assert!(record::decode(&OWNER, one.header.at, &page).is_err());
    let mut page = zeroed_page();
    record::encode(&OWNER, &one.header, &one.extents, &mut page);
    assert!(slot::decode(&OWNER, &page).is_err());
}

#[test]
fn what_is_damaged_or_of_another_is_no_version() {
    let one = version(4, false);
    let mut page = zeroed_page();
    slot::encode(&OWNER, &one, &mut page);
    for other in [
        LogOwner { epoch: 4, ..OWNER },
        LogOwner {
            array: Uuid([8; 16]),
            ..OWNER
        },
    ] {
        assert!(slot::decode(&other, &page).is_err(), "{other:?}");
    }
    for at in 0..page.len() {
        let mut harmed = zeroed_page();
        harmed.copy_from_slice(&page[..]);
        harmed[at] ^= 0x10;
        assert!(slot::decode(&OWNER, &harmed).is_err(), "{at}");
    }
    for (at, byte) in [
        (slot::at::CLOSED, 2),
        (slot::at::VERSION, 0),
        (slot::at::RESERVED, 1),
        (record::at::EXTENTS - 1, 1),
    ] {
        let mut hostile = zeroed_page();
        hostile.copy_from_slice(&page[..]);
        hostile[at] = byte;
        header::seal(&mut hostile[..]);
        assert!(slot::decode(&OWNER, &hostile).is_err(), "{at}");
    }
}

/// Records that may be in memory at once have their own slots, and two versions of one their own halves.
#[test]
fn no_two_versions_that_may_count_share_a_half() {
    for (sectors, slots) in [(255, 0), (256, 1), (2560, 10), (1 << 20, 64)] {
        let layout = SlotLayout::of(sectors);
        assert_eq!((layout.slots(), layout.halves()), (slots, 2 * slots));
        let mut halves: vec::Vec<u32> = (100..100 + u64::from(slots))
            .flat_map(|sequence| [1, 2].map(|version| layout.half_of(sequence, version)))
            .collect();
        halves.sort_unstable();
        assert_eq!(halves, (0..2 * slots).collect::<vec::Vec<_>>());
        let ends = halves
            .iter()
            .map(|half| layout.half_at(*half) + HALF_SECTORS);
        assert!(ends.max().unwrap_or(0) <= sectors);
        if slots > 0 {
            assert_eq!(layout.half_of(9, 1), layout.half_of(9, 3));
        }
    }
}
