//! The overlay alone, driven by hand: cases that do not occur while the log works.

use super::{
    Cleans, Effect, FoundInLog, LogShape, NvramVersion, Overlay, OverlayLimits, Packing, PartTag,
    SealCause, Site, StripeDestage,
};
use crate::policy::destage_order::DestageOrder;
use alloc::vec::Vec;
use restripe_array::{Buf, BufRef, Request, RequestError, RequestOp, RequestTag, SECTOR_BYTES};

const SECTORS: u32 = 8;
const BYTES: u32 = SECTORS * SECTOR_BYTES as u32;

fn overlay() -> Overlay {
    overlay_with(4, None)
}

fn overlay_with(segments: u32, packing: Option<Packing>) -> Overlay {
    overlay_of(segments, packing, None)
}

fn overlay_of(segments: u32, packing: Option<Packing>, slots: Option<u32>) -> Overlay {
    let limits = OverlayLimits {
        extents: 64,
        requests: 4,
        record_sectors: SECTORS,
        copies: 1,
        grain: 8,
        packing,
        logless: false,
        slots,
    };
    let shape = LogShape {
        segments,
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
    write_at(tag, 0)
}

fn write_at(tag: u64, sector: u64) -> Request {
    Request {
        tag: RequestTag(tag),
        op: RequestOp::Write,
        offset: sector * SECTOR_BYTES,
        bytes: u64::from(BYTES),
        buf: BufRef::new(Buf(0), 0, BYTES),
        fua: false,
    }
}

/// Writes the same sectors until a write waits for a flush of the log, which frees replaced places.
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

/// It requested flushes again and again, without end, if the log answered that no flush succeeds any more.
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

#[test]
fn write_waits_for_one_record_of_each_write_of_zeros() {
    let mut overlay = overlay();
    let (first, flush) = until_it_waits(&mut overlay);
    let zeros = |tag, sector, records: u64| Request {
        op: RequestOp::WriteZeroes { fast: false },
        bytes: records * u64::from(BYTES),
        ..write_at(tag, sector)
    };
    overlay.request(zeros(1001, 64, 6), true);
    overlay.request(zeros(1003, 128, 2), true);
    overlay.request(write_at(1002, 32), true);
    overlay.part_done(flush, Ok(()));
    let mut replies = Vec::new();
    while let Some(effect) = overlay.effect() {
        match effect {
            Effect::Append { extent, .. } => overlay.appended(extent.sequence, Ok(())),
            Effect::Reply(tag, result) => {
                assert_eq!(result, Ok(()));
                replies.push(tag);
            }
            Effect::Reuse { part, .. }
            | Effect::Flush { part, .. }
            | Effect::Destage { part, .. }
            | Effect::Void { part, .. } => overlay.part_done(part, Ok(())),
            other => panic!("{other:?}"),
        }
    }
    let order = [1002, 1003, 1001].map(RequestTag);
    assert_eq!(replies, [&[first][..], &order].concat());
}

/// Carries out all effects. Returns the clusters read, and the sequences below which records are obsolete.
fn settle(overlay: &mut Overlay) -> (Vec<u64>, Vec<u64>) {
    let (mut read, mut obsolete) = (Vec::new(), Vec::new());
    while let Some(effect) = overlay.effect() {
        match effect {
            Effect::Pack { tag, .. } => overlay.packed(tag),
            Effect::Seal { sequence, .. } => overlay.appended(sequence, Ok(())),
            Effect::Reuse { part, .. }
            | Effect::Flush { part, .. }
            | Effect::Destage { part, .. } => overlay.part_done(part, Ok(())),
            Effect::Fetch { part, pieces } => {
                read.extend(pieces.iter().map(|piece| piece.sequence));
                overlay.part_done(part, Ok(()));
            }
            Effect::Void { part, below } => {
                obsolete.push(below);
                overlay.part_done(part, Ok(()));
            }
            Effect::Reply(_, result) => assert_eq!(result, Ok(())),
            Effect::Forget { .. } | Effect::ExpectWrites { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    (read, obsolete)
}

/// Twelve records of one write each, and memory for four: they are destaged in three rounds, the oldest
/// first. Each is read once, and the log has room again after the first round.
#[test]
fn memory_is_destaged_round_by_round() {
    let destaged = |order| {
        let destage = StripeDestage {
            order,
            stripe_sectors: 16,
            run_sectors: 16,
            pages: 4,
        };
        let mut overlay = overlay_with(
            8,
            Some(Packing {
                records: 1,
                held: 4,
                destage,
            }),
        );
        for tag in 0..12 {
            // Neighbours in the main set are far from each other in the log.
            overlay.request(write_at(tag, u64::from(SECTORS) * (tag * 5 % 12)), true);
            settle(&mut overlay);
        }
        overlay.seal(SealCause::Flush);
        settle(&mut overlay);
        overlay.destage(overlay.next_sequence());
        let (read, obsolete) = settle(&mut overlay);
        assert!(overlay.holds_nothing_instead() && !overlay.is_destaging());
        (read, obsolete)
    };
    let (read, obsolete) = destaged(DestageOrder::Rounds);
    assert_eq!(read, (1..=12).collect::<Vec<u64>>());
    assert_eq!(obsolete, [5, 9, 13]);
    let (_, obsolete) = destaged(DestageOrder::Mcfd);
    assert_eq!(obsolete, [13]);
}

fn hot_and_cold() -> Overlay {
    let destage = StripeDestage {
        order: DestageOrder::Rounds,
        stripe_sectors: 16,
        run_sectors: 16,
        pages: 4,
    };
    let packing = Packing {
        records: 1,
        held: 4,
        destage,
    };
    let mut overlay = overlay_with(8, Some(packing));
    // One cold write, and two hot places in turn until six segments of four records are full.
    overlay.request(write_at(0, COLD), true);
    for tag in 1..26 {
        settle(&mut overlay);
        overlay.request(write_at(tag, HOT + tag % 2 * 16), true);
        settle(&mut overlay);
    }
    overlay.seal(SealCause::Flush);
    settle(&mut overlay);
    overlay
}

const COLD: u64 = 800;
const HOT: u64 = 0;

fn sequence_of(overlay: &Overlay, home: u64) -> u64 {
    let found = overlay.map().extents_from(home).next();
    found.expect("it is mapped").sequence
}

/// Starts cleaning, and returns the read of the cold write.
fn begin_to_clean(overlay: &mut Overlay) -> PartTag {
    let oldest = overlay.oldest().expect("segments are closed");
    assert_eq!(oldest.live, u64::from(SECTORS));
    overlay.clean(oldest);
    assert_eq!(overlay.cleans(), Some(Cleans::Moving));
    match overlay.effect() {
        Some(Effect::Move { part, sectors, .. }) if sectors == SECTORS => part,
        other => panic!("{other:?}"),
    }
}

fn read_to_move() -> Result<BufRef, RequestError> {
    Ok(BufRef::new(Buf(9), 0, BYTES))
}

/// Only valid data is read. After the flush of the log old records are obsolete. Memory is returned.
#[test]
fn cleaning_makes_old_records_obsolete_after_the_flush() {
    let mut overlay = hot_and_cold();
    let (pressure, before) = (overlay.pressure(), sequence_of(&overlay, COLD));
    let part = begin_to_clean(&mut overlay);
    overlay.moved_in(part, read_to_move());
    let mut order = Vec::new();
    while let Some(effect) = overlay.effect() {
        match effect {
            Effect::Pack { tag, extent, .. } => {
                order.push("pack");
                assert_eq!(extent.home, COLD);
                overlay.packed(tag);
            }
            Effect::Moved { .. } => order.push("released"),
            Effect::Seal { sequence, .. } => {
                order.push("seal");
                overlay.appended(sequence, Ok(()));
            }
            Effect::Flush { part, site } => {
                order.push("flush");
                assert_eq!(
                    (site, overlay.cleans()),
                    (Site::Log, Some(Cleans::Flushing))
                );
                overlay.part_done(part, Ok(()));
            }
            Effect::Void { part, below } => {
                order.push("void");
                assert!(before < below && below <= sequence_of(&overlay, HOT));
                overlay.part_done(part, Ok(()));
            }
            Effect::Reuse { part, .. } => overlay.part_done(part, Ok(())),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(order, ["pack", "released", "seal", "flush", "void"]);
    assert!(overlay.cleans().is_none() && !overlay.cleaned_in_vain() && overlay.is_quiet());
    assert!(before < sequence_of(&overlay, COLD));
    assert!(overlay.pressure() <= pressure);
}

/// Data that clients write during the read, or during the copy, is not replaced.
#[test]
fn client_writes_during_cleaning_stay() {
    let mut overlay = hot_and_cold();
    let part = begin_to_clean(&mut overlay);
    overlay.request(write_at(99, COLD), true);
    let Some(Effect::Pack { tag, extent, .. }) = overlay.effect() else {
        panic!("a write is destaged")
    };
    // The copy of it is in flight: the map still has the old one.
    overlay.moved_in(part, read_to_move());
    assert_eq!(overlay.effect(), None);
    overlay.packed(tag);
    let newer = extent.sequence;
    let mut packs = 0;
    while let Some(effect) = overlay.effect() {
        match effect {
            Effect::Pack { .. } => packs += 1,
            Effect::Seal { sequence, .. } => overlay.appended(sequence, Ok(())),
            Effect::Flush { part, .. } | Effect::Void { part, .. } => {
                overlay.part_done(part, Ok(()));
            }
            _ => {}
        }
    }
    assert_eq!((packs, sequence_of(&overlay, COLD)), (0, newer));
    assert!(overlay.cleans().is_none() && overlay.is_quiet());
}

/// The old records are not obsolete then, and cleaning does not restart before all data was destaged.
#[test]
fn unreadable_or_unflushed_moves_make_nothing_obsolete() {
    for fails in ["read", "flush"] {
        let mut overlay = hot_and_cold();
        let part = begin_to_clean(&mut overlay);
        match fails {
            "read" => overlay.moved_in(part, Err(RequestError::Unavailable)),
            _ => overlay.moved_in(part, read_to_move()),
        }
        while let Some(effect) = overlay.effect() {
            match effect {
                Effect::Pack { tag, .. } => overlay.packed(tag),
                Effect::Seal { sequence, .. } => overlay.appended(sequence, Ok(())),
                Effect::Reuse { part, .. } => overlay.part_done(part, Ok(())),
                Effect::Flush { part, .. } => {
                    overlay.part_done(part, Err(RequestError::Unavailable));
                }
                Effect::Moved { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(
            overlay.cleans().is_none() && overlay.cleaned_in_vain(),
            "{fails}"
        );
        assert!(overlay.is_quiet() && overlay.is_broken() == (fails == "flush"));
    }
}

/// All data is destaged at once, and the memory of the reads is returned.
#[test]
fn destage_ends_cleaning() {
    let mut overlay = hot_and_cold();
    let part = begin_to_clean(&mut overlay);
    overlay.destage(overlay.next_sequence());
    assert!(overlay.is_destaging());
    overlay.moved_in(part, read_to_move());
    assert!(overlay.cleans().is_none());
    let released = matches!(overlay.effect(), Some(Effect::Fetch { .. }));
    assert!(released, "the first step of the destage");
}

fn flush(tag: u64) -> Request {
    Request {
        tag: RequestTag(tag),
        op: RequestOp::Flush,
        offset: 0,
        bytes: 0,
        ..write_at(tag, 0)
    }
}

/// Carries out all effects except those for NVRAM. Returns these, and the replies.
fn around_nvram(overlay: &mut Overlay) -> (Vec<Effect>, Vec<(u64, bool)>) {
    let (mut asked, mut replies) = (Vec::new(), Vec::new());
    while let Some(effect) = overlay.effect() {
        match effect {
            Effect::Pack { tag, .. } => overlay.packed(tag),
            Effect::Seal { sequence, .. } => {
                asked.push(effect);
                overlay.appended(sequence, Ok(()));
            }
            Effect::Reuse { part, .. } => overlay.part_done(part, Ok(())),
            Effect::Flush { part, site } if site != Site::Nvram => {
                if site == Site::Log {
                    asked.push(effect);
                }
                overlay.part_done(part, Ok(()));
            }
            Effect::Reply(tag, result) => replies.push((tag.0, result.is_ok())),
            effect => asked.push(effect),
        }
    }
    (asked, replies)
}

fn with_buffer() -> Overlay {
    let packing = Packing {
        records: 4,
        held: 4,
        destage: StripeDestage {
            order: DestageOrder::Rounds,
            stripe_sectors: 16,
            run_sectors: 16,
            pages: 4,
        },
    };
    let mut overlay = overlay_of(8, Some(packing), Some(4));
    overlay.request(write(1), true);
    assert_eq!(around_nvram(&mut overlay), (Vec::new(), [(1, true)].into()));
    overlay.request(flush(2), false);
    overlay
}

/// A flush is acknowledged when NVRAM has a version and was flushed. No record is sealed, and the log is not
/// flushed. Flushes that came meanwhile wait for the next round.
#[test]
fn a_flush_is_acknowledged_when_nvram_is_flushed() {
    let mut overlay = with_buffer();
    let (asked, replies) = around_nvram(&mut overlay);
    assert!(replies.is_empty());
    let [
        Effect::WriteNvram(NvramVersion {
            version: 1,
            closed: false,
            ..
        }),
    ] = asked[..]
    else {
        panic!("{asked:?}")
    };
    overlay.request(write_at(3, 64), true);
    overlay.request(flush(4), false);
    assert_eq!(around_nvram(&mut overlay), (Vec::new(), Vec::new()));
    overlay.nvram_written(Ok(()));
    let (asked, replies) = around_nvram(&mut overlay);
    let [
        Effect::Flush {
            part,
            site: Site::Nvram,
        },
    ] = asked[..]
    else {
        panic!("{asked:?}")
    };
    assert_eq!(replies, [(3, true)], "a write waits for versions only");
    overlay.part_done(part, Ok(()));
    let (asked, replies) = around_nvram(&mut overlay);
    assert_eq!(replies, [(2, true)]);
    let versions: Vec<(u64, u32)> = asked
        .iter()
        .filter_map(|effect| match effect {
            Effect::WriteNvram(wanted) => Some((wanted.sequence, wanted.version)),
            _ => None,
        })
        .collect();
    assert_eq!(versions, [(2, 1)], "the first record's is whole");
    assert_eq!(overlay.records_in_nvram(), 2);
}

/// NVRAM fails: all data goes into the log, then that is recorded, and then flushes are acknowledged. From
/// then on flushes seal records.
#[test]
fn failed_nvram_is_disabled_before_flushes_are_acknowledged() {
    let mut overlay = with_buffer();
    around_nvram(&mut overlay);
    overlay.nvram_written(Err(RequestError::Unavailable));
    let (asked, replies) = around_nvram(&mut overlay);
    assert!(replies.is_empty() && !overlay.uses_nvram());
    let [
        Effect::Seal { .. },
        Effect::Flush {
            site: Site::Log, ..
        },
        Effect::DisableNvram,
    ] = asked[..]
    else {
        panic!("{asked:?}")
    };
    overlay.nvram_disabled();
    assert_eq!(around_nvram(&mut overlay).1, [(2, true)]);
    overlay.request(write_at(5, 64), true);
    overlay.request(flush(6), false);
    let (asked, replies) = around_nvram(&mut overlay);
    assert_eq!(replies, [(5, true), (6, true)]);
    assert!(matches!(
        asked[..],
        [Effect::Seal { .. }, Effect::Flush { .. }]
    ));
}
