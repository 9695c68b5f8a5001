//! Scans logs that are written page by page: what is read, which records are valid, what counts as damage.

use super::record::encode;
use super::*;
use crate::overlay::{Extent, Kind};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use restripe_array::{Page, zeroed_page};
use restripe_format::meta::random::Random;

const OWNER: LogOwner = LogOwner {
    array: Uuid([9; 16]),
    epoch: 5,
};
/// Every record has eight sectors, and so there are four in a segment.
const RECORD_SECTORS: u64 = 16;
const SEGMENT_SECTORS: u64 = 4 * RECORD_SECTORS;

/// A log of four segments. Payloads are sound unless set otherwise.
struct Log {
    table: AnchorTable,
    /// By sector of the log; blank where there is none.
    headers: BTreeMap<u64, Page>,
    /// By sector of the log.
    unreadable: Vec<u64>,
    /// By sequence.
    payloads: BTreeMap<u64, PayloadFound>,
    longest: u32,
}

/// The reads of a scan, and its result.
struct Outcome {
    headers: Vec<u64>,
    payloads: Vec<u64>,
    recovered: Recovered,
}

impl Outcome {
    fn sequences(&self) -> Vec<u64> {
        let extents = self.recovered.extents.iter();
        extents.map(|extent| extent.sequence).collect()
    }
}

fn place(segment: u64, slot: u64) -> u64 {
    segment * SEGMENT_SECTORS + slot * RECORD_SECTORS
}

impl Log {
    fn new() -> Log {
        let region = LogRegion {
            start: 0,
            sectors: 16 + 4 * SEGMENT_SECTORS,
        };
        let layout = region.cut(SEGMENT_SECTORS as u32).expect("room");
        Log {
            table: AnchorTable::new(OWNER, layout),
            headers: BTreeMap::new(),
            unreadable: Vec::new(),
            payloads: BTreeMap::new(),
            longest: 0,
        }
    }

    /// Records one behind the other in a segment: (sequence, durable).
    fn put(&mut self, segment: u64, records: &[(u64, u64)]) {
        for ((sequence, durable), slot) in records.iter().zip(0..) {
            self.put_record(&OWNER, place(segment, slot), *sequence, *durable, 8);
        }
    }

    fn put_record(&mut self, owner: &LogOwner, at: u64, sequence: u64, durable: u64, sectors: u32) {
        let extent = Extent {
            home: sequence % 1000 * 8,
            sectors,
            at: at + 8,
            sequence,
            kind: Kind::Instead,
        };
        let header = RecordHeader {
            sequence,
            durable,
            at,
            payload_sectors: sectors,
            payload_crc: 0,
        };
        let mut page = zeroed_page();
        encode(owner, &header, &[extent], &mut page);
        self.headers.insert(at, page);
    }

    fn scan(self) -> Outcome {
        self.try_scan().expect("a log of ours")
    }

    fn try_scan(self) -> Result<Outcome, MetaError> {
        let mut scan = Scan::new(self.table);
        scan.look_behind(self.longest);
        let (mut headers, mut payloads) = (Vec::new(), Vec::new());
        let blank = zeroed_page();
        while let Some(read) = scan.next_read() {
            match read {
                Read::Header { at } => {
                    headers.push(at);
                    let page = self.headers.get(&at).unwrap_or(&blank);
                    scan.header(at, (!self.unreadable.contains(&at)).then_some(page));
                }
                Read::Payload(RecordHeader { sequence, .. }) => {
                    payloads.push(sequence);
                    let found = self.payloads.get(&sequence);
                    scan.payload(sequence, found.copied().unwrap_or(PayloadFound::Sound));
                }
            }
        }
        assert!(scan.is_done());
        Ok(Outcome {
            headers,
            payloads,
            recovered: scan.finish()?,
        })
    }
}

#[test]
fn a_new_log_is_empty() {
    let outcome = Log::new().scan();
    assert_eq!(outcome.headers, [0, 1, 2, 3].map(|index| place(index, 0)));
    assert_eq!((outcome.sequences(), outcome.payloads), (vec![], vec![]));
    assert_eq!(outcome.recovered.segments, []);
    assert!(outcome.recovered.next > 1);
}

/// Payloads below D are not read: D is the highest *durable* of any record, even of an invalid one.
#[test]
fn only_payloads_that_may_be_torn_are_read() {
    let mut log = Log::new();
    log.put(2, &[(1, 1), (2, 1), (3, 1), (4, 3)]);
    log.put(0, &[(5, 3), (6, 3)]);
    let outcome = log.scan();
    assert_eq!(outcome.sequences(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(outcome.payloads, [3, 4, 5, 6]);
    assert_eq!(outcome.recovered.segments, [2, 0]);
    let mut log = Log::new();
    log.put(2, &[(1, 1), (2, 1), (3, 1), (4, 3)]);
    log.put(0, &[(6, 4)]);
    let outcome = log.scan();
    assert_eq!(outcome.sequences(), [1, 2, 3, 4]);
    assert_eq!(outcome.payloads, [4]);
}

#[test]
fn a_missing_sequence_ends_what_counts_everywhere() {
    let mut log = Log::new();
    log.put(0, &[(1, 1), (2, 1), (4, 2)]);
    log.put(1, &[(5, 2), (6, 2)]);
    let outcome = log.scan();
    assert_eq!(outcome.sequences(), [1, 2]);
    let Recovered { table, next, .. } = outcome.recovered;
    assert_eq!(table.end(0), Some(3));
    assert!(table.is_obsolete(1), "nothing of it counts");
    assert!(table.is_obsolete(2), "nor of what may be there unseen");
    assert!(next > 6);
}

/// A header rotted. The record behind it records that it was flushed, or does not.
#[test]
fn a_flushed_record_that_is_missing_in_a_chain_is_damage() {
    let damage = |records: &[(u64, u64)], rotten: u64| {
        let mut log = Log::new();
        log.longest = RECORD_SECTORS as u32;
        log.put(0, records);
        log.headers.remove(&place(0, rotten));
        let found = log.scan().recovered.damage;
        found.iter().map(|damage| damage.cause).collect::<Vec<_>>()
    };
    let missing = |from| {
        vec![Cause::Missing {
            from,
            end: from + 1,
        }]
    };
    let records = [(1, 1), (2, 1), (3, 3), (4, 3)];
    assert_eq!(damage(&records, 0), missing(1));
    assert_eq!(damage(&records, 1), missing(2));
    assert_eq!(
        damage(&records, 2),
        [],
        "no record says that it was flushed"
    );
    assert_eq!(damage(&records, 3), [], "nothing lies behind it");
    assert_eq!(
        damage(&[(1, 1), (2, 1), (3, 2), (4, 2)], 1),
        [],
        "on its way at the crash"
    );
}

/// Records that an anchor has made obsolete since, and records that were found elsewhere, are not missing.
#[test]
fn obsolete_records_are_not_missing() {
    let mut log = Log::new();
    log.longest = RECORD_SECTORS as u32;
    log.put(0, &[(1, 1), (2, 1), (3, 3)]);
    log.headers.remove(&place(0, 0));
    log.table.flushed(3);
    log.table.make_obsolete(0, 2);
    assert_eq!(log.scan().recovered.damage, []);
}

#[test]
fn a_torn_payload_ends_what_counts_everywhere() {
    let mut log = Log::new();
    log.put(0, &[(1, 1), (2, 1), (4, 2)]);
    log.put(1, &[(3, 2), (5, 2)]);
    log.payloads.insert(3, PayloadFound::Torn);
    let outcome = log.scan();
    assert_eq!(outcome.payloads, [2, 3], "no more than must be");
    assert_eq!(outcome.sequences(), [1, 2]);
}

/// Segments 1 and 3 had the records 3 to 6, which were destaged; segment 1 was rewritten since.
#[test]
fn sequences_of_freed_segments_are_not_missing() {
    let mut log = Log::new();
    log.put(0, &[(1, 1), (2, 1)]);
    log.put(3, &[(5, 1), (6, 1)]);
    log.put(1, &[(7, 1)]);
    log.table.flushed(7);
    log.table.make_obsolete(1, 5);
    log.table.make_obsolete(3, 7);
    let outcome = log.scan();
    assert_eq!(outcome.sequences(), [1, 2, 7]);
    assert_eq!(outcome.payloads, [7], "the anchors' D is as good");
    assert_eq!(outcome.recovered.segments, [0, 1]);
}

/// Segment 0 had the records 1 to 4, all of them replaced by 5 to 8, which only memory knows to be flushed.
/// Then it was rewritten, and its first header torn.
#[test]
fn a_segment_that_is_torn_as_it_is_written_again_leaves_no_gap() {
    let mut log = Log::new();
    log.put(1, &[(5, 1), (6, 1), (7, 1), (8, 1)]);
    log.table.flushed(9);
    log.table.make_obsolete(0, 5);
    let outcome = log.scan();
    assert_eq!(outcome.sequences(), [5, 6, 7, 8]);
    assert_eq!(outcome.recovered.segments, [1]);
}

/// Records of a segment's earlier use are behind its new records.
#[test]
fn older_records_end_a_chain() {
    let mut log = Log::new();
    log.put(0, &[(7, 7), (2, 1), (8, 7)]);
    log.table.flushed(7);
    log.table.make_obsolete(0, 1);
    assert_eq!(log.scan().sequences(), [7]);
}

#[test]
fn records_of_others_or_in_the_wrong_place_end_a_chain() {
    let mut log = Log::new();
    log.put(0, &[(1, 1), (2, 1), (3, 1)]);
    let earlier = LogOwner { epoch: 4, ..OWNER };
    log.put_record(&earlier, place(0, 1), 2, 1, 8);
    assert_eq!(log.scan().sequences(), [1]);
    let mut log = Log::new();
    log.put(0, &[(1, 1), (2, 1)]);
    let copied = log.headers[&place(0, 1)].clone();
    log.headers.insert(place(0, 1), zeroed_page());
    log.headers.insert(place(1, 0), copied);
    assert_eq!(log.scan().sequences(), [1]);
}

#[test]
fn a_record_lies_within_its_segment() {
    let mut log = Log::new();
    log.put(0, &[(1, 1), (2, 1)]);
    log.put_record(&OWNER, place(0, 2), 3, 1, 24);
    assert_eq!(log.scan().sequences(), [1, 2, 3], "to its very end");
    let mut log = Log::new();
    log.put(0, &[(1, 1), (2, 1)]);
    log.put_record(&OWNER, place(0, 2), 3, 1, 25);
    assert_eq!(log.scan().sequences(), [1, 2]);
}

/// Nothing behind its end is read, and nothing of it if it is obsolete.
#[test]
fn a_closed_segment_is_read_to_its_end() {
    let mut log = Log::new();
    log.put(0, &[(1, 1), (2, 1), (9, 1)]);
    log.put(1, &[(3, 1)]);
    log.table.flushed(4);
    log.table.close(0, 3);
    log.table.close(1, 4);
    log.table.make_obsolete(1, 2);
    log.table.cut(2);
    let outcome = log.scan();
    let read = [place(0, 0), place(1, 0), place(3, 0), place(0, 1)];
    assert_eq!(outcome.headers, read);
    assert_eq!(outcome.sequences(), [1, 2, 3]);
    assert_eq!(outcome.recovered.damage, []);
}

#[test]
fn records_missing_from_a_closed_segment_are_damage() {
    let mut log = Log::new();
    log.put(0, &[(1, 1), (2, 1)]);
    log.table.flushed(9);
    log.table.close(0, 4);
    log.table.close(2, 9);
    let outcome = log.scan();
    assert_eq!(outcome.sequences(), [1, 2]);
    let missing = |segment, at, from, end| Damage {
        segment,
        at,
        cause: Cause::Missing { from, end },
    };
    let expected = [missing(0, place(0, 2), 3, 4), missing(2, place(2, 0), 1, 9)];
    assert_eq!(outcome.recovered.damage, expected);
}

#[test]
fn a_header_that_cannot_be_read_is_damage() {
    let mut log = Log::new();
    log.put(0, &[(1, 1), (2, 1), (3, 1)]);
    log.unreadable = vec![place(0, 1), place(3, 0)];
    let outcome = log.scan();
    assert_eq!(outcome.sequences(), [1]);
    let unreadable = |segment, at| Damage {
        segment,
        at,
        cause: Cause::Unreadable,
    };
    let expected = [unreadable(0, place(0, 1)), unreadable(3, place(3, 0))];
    assert_eq!(outcome.recovered.damage, expected);
}

/// The other place is sound, but which of them was the newer one?
#[test]
fn an_anchor_s_home_that_cannot_be_read_is_damage() {
    let mut log = Log::new();
    log.put(0, &[(1, 1)]);
    let mut page = zeroed_page();
    log.table.encode(0, &mut page);
    let layout = *log.table.layout();
    log.table = AnchorTable::load(OWNER, layout, &[None, Some(page)]).expect("one is sound");
    let outcome = log.scan();
    assert_eq!(outcome.sequences(), [1]);
    let doubted = Damage {
        segment: 0,
        at: 0,
        cause: Cause::Anchor { index: 0 },
    };
    assert_eq!(outcome.recovered.damage, [doubted]);
}

/// It may have been flushed, and its sectors in the main set be stale: it is valid, and extents that the map
/// still has of it are lost.
#[test]
fn a_payload_that_cannot_be_read_counts() {
    let mut log = Log::new();
    log.put(0, &[(1, 1), (2, 1), (3, 1), (4, 1)]);
    log.payloads.insert(2, PayloadFound::Unreadable);
    log.payloads.insert(4, PayloadFound::Torn);
    let outcome = log.scan();
    assert_eq!(outcome.sequences(), [1, 2, 3]);
    assert_eq!(outcome.recovered.unread, [2]);
}

#[test]
fn of_two_records_with_one_sequence_one_is_damage() {
    let mut log = Log::new();
    log.put(1, &[(1, 1), (2, 1)]);
    log.put(2, &[(2, 1), (3, 1)]);
    let outcome = log.scan();
    assert_eq!(outcome.sequences(), [1, 2, 3]);
    let twin = Damage {
        segment: 2,
        at: place(2, 0),
        cause: Cause::Twice { sequence: 2 },
    };
    assert_eq!(outcome.recovered.damage, [twin]);
}

#[test]
fn a_log_that_has_counted_too_far_is_refused() {
    let mut log = Log::new();
    log.put(0, &[((1 << 61) - 100, 1)]);
    assert!(log.try_scan().is_ok());
    for sequence in [1 << 61, (1 << 62) - 1] {
        let mut log = Log::new();
        log.put(0, &[(sequence, 1)]);
        let error = log.try_scan().err();
        let named =
            matches!(error, Some(MetaError::Field { name, .. }) if name == "next record sequence");
        assert!(named, "{error:?}");
    }
}

/// A start after a start, nothing written between them, finds the same.
#[test]
fn a_start_changes_nothing_that_counts() {
    let mut log = Log::new();
    log.put(0, &[(1, 1), (2, 1), (4, 2)]);
    log.put(1, &[(5, 2)]);
    let headers = log.headers.clone();
    let mut found = log.scan().recovered;
    while let Some(index) = found.table.changed() {
        found.table.encode(index, &mut zeroed_page());
        found.table.written(index);
    }
    found.table.begin(found.next);
    assert!(!found.table.is_obsolete(1) && !found.table.counts(1, 5));
    let again = Log {
        headers,
        table: found.table,
        ..Log::new()
    };
    let outcome = again.scan();
    assert_eq!(outcome.sequences(), [1, 2]);
    assert_eq!(
        (outcome.payloads, outcome.recovered.damage),
        (vec![], vec![])
    );
    assert!(outcome.recovered.next > found.next);
}

/// Whatever the headers say, the outcome is in order and in range.
#[test]
fn hostile_logs_never_panic() {
    let mut random = Random::new(1);
    let mut counted = 0;
    for _ in 0..3000 {
        let mut log = Log::new();
        for segment in 0..4 {
            let mut sequence = random.below(6);
            let records: Vec<(u64, u64)> = (0..4)
                .map(|_| {
                    sequence += 1 + random.below(2);
                    (sequence, random.below(sequence + 1))
                })
                .collect();
            log.put(segment, &records);
        }
        for page in log.headers.values_mut() {
            for _ in 0..random.below(3) {
                let place = 40 + random.below(72) as usize;
                page[place] = random.number() as u8 >> random.below(8);
            }
            header::seal(&mut page[..]);
        }
        log.table.flushed(random.below(8));
        log.table.make_obsolete(0, log.table.durable() / 2);
        log.table.close(1, log.table.durable());
        let Ok(outcome) = log.try_scan() else {
            continue;
        };
        let sequences = outcome.sequences();
        assert!(sequences.is_sorted_by(|one, next| one < next));
        assert!(
            sequences
                .iter()
                .all(|sequence| *sequence < outcome.recovered.next)
        );
        let in_log = |extent: &Extent| extent.log_end() <= 4 * SEGMENT_SECTORS;
        assert!(outcome.recovered.extents.iter().all(in_log));
        counted += sequences.len();
    }
    assert!(counted > 1000, "{counted} counted");
}
