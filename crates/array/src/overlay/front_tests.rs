//! The overlay alone, driven by hand: what no life with a working log comes to.

use super::{Effect, FoundInLog, LogShape, Overlay, OverlayLimits, PartTag, Site};
use crate::contract::{Buf, BufRef, Request, RequestError, RequestOp, RequestTag};
use crate::units::SECTOR_BYTES;
use alloc::vec::Vec;

const SECTORS: u32 = 8;
const BYTES: u32 = SECTORS * SECTOR_BYTES as u32;

fn overlay() -> Overlay {
    let limits = OverlayLimits {
        extents: 64,
        requests: 4,
        record_sectors: SECTORS,
        copies: 1,
        grain: 8,
        packing: None,
        logless: false,
    };
    let shape = LogShape {
        segments: 4,
        segment_sectors: 64,
        reserve: 1,
        reclaim_below: 1,
        drop_below: 1,
    };
    let found = FoundInLog {
        segments: Vec::new(),
        extents: Vec::new(),
        sequence: 1,
    };
    Overlay::new(limits, shape, &found).expect("nothing was found")
}

fn write(tag: u64) -> Request {
    Request {
        tag: RequestTag(tag),
        op: RequestOp::Write,
        offset: 0,
        bytes: u64::from(BYTES),
        buf: BufRef::new(Buf(0), 0, BYTES),
        fua: false,
    }
}

/// Writes the same sectors until a write waits for a flush of the log, to have what it replaced free.
fn until_it_waits(overlay: &mut Overlay) -> (RequestTag, PartTag) {
    for tag in 0..1000 {
        overlay.request(write(tag), true);
        while let Some(effect) = overlay.effect() {
            match effect {
                Effect::Append { extent, .. } => overlay.appended(extent.sequence, Ok(())),
                Effect::Reuse { part, .. } => overlay.part_done(part, Ok(())),
                Effect::Flush { part, site } => {
                    assert_eq!(site, Site::Log);
                    return (RequestTag(tag), part);
                }
                Effect::Reply(_, result) => assert_eq!(result, Ok(())),
                other => panic!("{other:?}"),
            }
        }
    }
    panic!("the log never fills");
}

/// It asked again at once, for ever, where a log answers that no flush succeeds any more.
#[test]
fn a_log_that_cannot_be_flushed_for_room_is_broken() {
    let mut overlay = overlay();
    let (waiting, flush) = until_it_waits(&mut overlay);
    overlay.part_done(flush, Err(RequestError::Unavailable));
    assert!(overlay.is_broken());
    match overlay.effect() {
        Some(Effect::Reply(tag, Err(_))) => assert_eq!(tag, waiting),
        other => panic!("{other:?}"),
    }
    assert!(overlay.effect().is_none());
}
