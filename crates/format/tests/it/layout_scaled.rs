//! McPod (Zhang et al.): the map of a grown array and the moves that make it, by enumeration against tables that are
//! grown move by move, and the paper's figures.
//!
//! Exhaustive, within the 32 slots that an array may have: every growth of m disks by n, m and n up to 13, at sizes of
//! less than a region, one and several, whole and cut short; every history of two such growths; every history of up to
//! four growths by at most 3 from at most 3 data slots, over several hundred rows. Of the longer histories of larger
//! growths, every 11th of three and every 211th of four.

use restripe_format::layout::scaled::{Growing, Growth, History, Move, Region, Scaled, Seat};
use restripe_format::units::{CELLS_MAX, Row, Slot};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Disks of the paper, m and n.
const PAPER_MAX: u16 = 13;

/// Where every chunk stands, as a table: row by row, the chunk in each data slot.
type Table = Vec<Vec<u64>>;

/// Round-robin over the data slots, as an array is made.
fn made(slots: u16, rows: u64) -> Table {
    let slots = u64::from(slots);
    let line = |row| (0..slots).map(|slot| row * slots + slot).collect();
    (0..rows).map(line).collect()
}

/// What the paper tells of a growth, of its disks m and n, done to a table: the conditions of lines 12 of its two
/// algorithms say what leaves and where something arrives, and what moves keeps its order within a column.
fn grow(table: &Table, n: i64) -> Table {
    let m = table[0].len() as i64 + 1;
    let rows = table.len() as u64;
    let mut grown = Table::new();
    for (b, line) in (0..).zip(table) {
        let b1 = b % (m + n - 1);
        let sources = (0..m - 1).filter(|d0| (*d0..*d0 + n).contains(&b1));
        let targets = (m - 1..m + n - 1).filter(|d| (d - m + 1..*d).contains(&b1));
        let (sources, targets): (Vec<i64>, Vec<i64>) = (sources.collect(), targets.collect());
        assert_eq!(sources.len(), targets.len(), "column {b1} of {m} + {n}");
        let mut places = vec![None; (m + n - 1) as usize];
        for (slot, chunk) in (0..).zip(line) {
            let moved = sources.iter().position(|source| *source == slot);
            let place = moved.map_or(slot, |nth| targets[nth]);
            assert_eq!(places[place as usize].replace(*chunk), None);
        }
        let first_new = (m - 1) * rows as i64 + b * n;
        for y in 0..n {
            let place = (b1 - n + 1 + y).rem_euclid(m + n - 1);
            let chunk = (first_new + y) as u64;
            assert_eq!(places[place as usize].replace(chunk), None, "{m} + {n}");
        }
        grown.push(places.into_iter().map(Option::unwrap).collect());
    }
    grown
}

fn history(counts: &[u16]) -> History {
    History::of(counts).unwrap_or_else(|| panic!("{counts:?} are no history"))
}

fn scaled(counts: &[u16], rows: u64) -> Scaled {
    Scaled::new(history(counts), rows)
}

/// Every place of a table: row, slot and chunk.
fn places(table: &Table) -> impl Iterator<Item = (Row, Slot, u64)> {
    (0..).zip(table).flat_map(|(row, line)| {
        let slots = (0..).map(Slot);
        slots
            .zip(line)
            .map(move |(slot, chunk)| (Row(row), slot, *chunk))
    })
}

/// All laws, growth after growth.
fn obey(counts: &[u16], rows: u64) {
    let mut table = made(counts[0], rows);
    settled(&counts[..1], &table);
    for (nth, pair) in (2..).zip(counts.windows(2)) {
        let grown = grow(&table, i64::from(pair[1] - pair[0]));
        let growth = Growth {
            old: pair[0],
            added: pair[1] - pair[0],
        };
        settled(&counts[..nth], &grown);
        regions_move_the_difference(growth, &table, &grown);
        every_edge_divides(&counts[..nth], &table, &grown);
        what_was_there_is_even(growth, &grown);
        table = grown;
    }
}

/// Mapping and demapping are the table's and each other's inverse, and no place is left over.
fn settled(counts: &[u16], table: &Table) {
    let map = scaled(counts, table.len() as u64);
    assert_eq!(map.chunks(), (table.len() * table[0].len()) as u64);
    for (row, slot, chunk) in places(table) {
        let seat = map.seat(chunk);
        let told = (seat.row, map.slot(seat), map.chunk(seat));
        assert_eq!(told, (row, slot, chunk), "{chunk} of {map:?}");
        assert_eq!(map.seat_in(row, slot), seat, "{row:?} {slot:?} of {map:?}");
    }
    data_cells_are_in_the_order_of_addresses(&map);
}

/// The data cells of a row follow the array's addresses, in a run for each generation.
fn data_cells_are_in_the_order_of_addresses(map: &Scaled) {
    for row in 0..map.rows() {
        let cells = (0..map.history().slots()).map(|data| {
            let row = Row(row);
            map.chunk(Seat { row, data })
        });
        assert!(map.chunks_in(row..row + 1).flatten().eq(cells), "{map:?}");
    }
}

fn regions_of(growth: Growth, rows: u64) -> Vec<Region> {
    let regions = (0..growth.regions(rows)).map(|index| growth.region(index, rows));
    regions.collect()
}

/// What moves is what differs, each time from an old slot to an added one. It is read and written in runs, one of each
/// slot. A whole region moves as little as an even spread takes.
fn regions_move_the_difference(growth: Growth, before: &Table, after: &Table) {
    let mut rest = 0..before.len() as u64;
    for region in regions_of(growth, rest.end) {
        assert_eq!(region.rows().start, rest.start);
        rest.start = region.rows().end;
        let moves: Vec<Move> = region.moves().collect();
        let differing = region.rows().flat_map(|row| {
            let (before, after) = (&before[row as usize], &after[row as usize]);
            let from = before.iter().zip(0..).filter(|(chunk, from)| {
                let stays = after[usize::from(*from)] == **chunk;
                !stays
            });
            from.map(move |(chunk, from)| {
                let to = after.iter().zip(0..).find(|(other, _)| *other == chunk);
                let (from, to) = (Slot(from), Slot(to.unwrap().1));
                let row = Row(row);
                Move { row, from, to }
            })
        });
        assert!(differing.eq(moves.iter().copied()), "{region:?}");
        let (old, added) = (growth.old, growth.added);
        assert!(moves.iter().all(|one| one.from.0 < old && one.to.0 >= old));
        runs_are_the_moves(&region, &moves);

        let whole = region.rows().end - region.rows().start == u64::from(growth.width());
        if whole {
            // Of `old * width` chunks, the added slots' share.
            assert_eq!(moves.len(), usize::from(old) * usize::from(added));
            assert_eq!(region.reads().count(), usize::from(old));
            assert_eq!(region.writes().count(), usize::from(added));
        }
    }
    assert!(rest.is_empty());
}

fn runs_are_the_moves(region: &Region, moves: &[Move]) {
    let spread = |runs: &mut dyn Iterator<Item = (Slot, Range<u64>)>| {
        let mut slots = BTreeSet::new();
        let all = runs.flat_map(|(slot, rows)| {
            assert!(slots.insert(slot), "one run of {slot:?} in {region:?}");
            rows.map(move |row| (Row(row), slot))
        });
        all.collect::<BTreeSet<_>>()
    };
    let read = spread(&mut region.reads().map(|run| (run.slot, run.rows)));
    let written = spread(&mut region.writes().map(|run| (run.slot, run.rows)));
    let from = moves.iter().map(|one| (one.row, one.from)).collect();
    let to = moves.iter().map(|one| (one.row, one.to)).collect();
    assert_eq!((read, written), (from, to), "{region:?}");
    let rows: BTreeSet<u64> = moves.iter().map(|one| one.row.0).collect();
    assert!(region.parity().eq(rows), "{region:?}");
}

/// At the first edges, one in the middle and the last ones: the map is a bijection by side, and what the next region
/// writes on holds nothing that counts as data.
fn every_edge_divides(counts: &[u16], before: &Table, after: &Table) {
    let (growth, _) = history(counts).last().unwrap();
    let rows = before.len() as u64;
    let regions = growth.regions(rows);
    let edges = [0, 1, 2, regions / 2, regions - 1, regions];
    for moved in BTreeSet::from(edges.map(|edge| edge.min(regions))) {
        let map = Growing::new(history(counts), rows, moved).unwrap();
        assert_eq!(map.chunks(), (before.len() * before[0].len()) as u64);
        by_side(&map, before, after);
        if moved < regions {
            copies_overwrite_nothing(&map, counts, growth.region(moved, rows));
        }
        requests_are_cut_at_the_edge(&map);
    }
}

fn by_side(map: &Growing, before: &Table, after: &Table) {
    let side = |row: Row| {
        if row < map.edge() { after } else { before }
    };
    for (row, slot, _) in places(after) {
        let here = side(row)[row.0 as usize].get(usize::from(slot.0));
        let live = here.filter(|chunk| **chunk < map.chunks());
        let seat = live.map(|chunk| map.seat(*chunk));
        assert_eq!(map.seat_in(row, slot), seat, "{row:?} {slot:?} of {map:?}");
        assert!(seat.is_none_or(|seat| seat.row == row && map.slot(seat) == slot));
    }
    // Every chunk was met, since each row has as many as before.
    let live = places(after).filter(|(row, slot, _)| map.seat_in(*row, *slot).is_some());
    assert_eq!(live.count() as u64, map.chunks());
}

fn copies_overwrite_nothing(map: &Growing, counts: &[u16], region: Region) {
    let rows = map.chunks() / u64::from(map.growth().old);
    assert_eq!(region.rows().start, map.edge().0);
    let done = region.rows().end.div_ceil(u64::from(map.growth().width()));
    let next = Growing::new(history(counts), rows, done).unwrap();
    for Move { row, from, to } in region.moves() {
        let moved = map.seat_in(row, from);
        assert!(moved.is_some() && map.seat_in(row, to).is_none(), "{map:?}");
        assert_eq!(
            (next.seat_in(row, to), next.seat_in(row, from)),
            (moved, None)
        );
    }
}

/// A request is cut into runs of whole sides, with nothing between them.
fn requests_are_cut_at_the_edge(map: &Growing) {
    let side = |chunk: u64| map.seat(chunk).row < map.edge();
    let mut runs = 0;
    let mut rest = 0..map.chunks();
    while !rest.is_empty() {
        let run = map.cut(rest.clone());
        assert_eq!(run.start, rest.start);
        let mut sides = run.clone().map(side);
        let first = sides.next().unwrap();
        assert!(sides.all(|side| side == first), "{run:?} of {map:?}");
        // A shorter request ends where it ends.
        assert_eq!(
            map.cut(rest.start..rest.start + 1),
            rest.start..rest.start + 1
        );
        rest.start = run.end;
        runs += 1;
    }
    // Two sides for each generation that there was before.
    assert!(runs <= 2 * map.growth().old, "{runs} runs of {map:?}");
}

/// Each slot has as many of the chunks that were there before, but for a last region that is cut short.
fn what_was_there_is_even(growth: Growth, after: &Table) {
    let rows = after.len() as u64;
    let mut counts = vec![0; usize::from(growth.width())];
    let there = places(after).filter(|(.., chunk)| *chunk < rows * u64::from(growth.old));
    there.for_each(|(_, slot, _)| counts[usize::from(slot.0)] += 1);
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    let uneven = !rows.is_multiple_of(u64::from(growth.width()));
    let slack = if uneven {
        growth.added.min(growth.old)
    } else {
        0
    };
    assert!(most - least <= u64::from(slack), "{growth:?}, {rows} rows");
}

// --------------------------------------------------------------------------------------------------- the histories

/// Counts of data slots after so many growths of the paper's sizes, within what an array may have.
fn histories(growths: u32, first_max: u16, added_max: u16) -> Vec<Vec<u16>> {
    let first = (1..=first_max).map(|first| vec![first]).collect();
    (0..growths).fold(first, |shorter: Vec<Vec<u16>>, _| {
        let longer = shorter.iter().flat_map(|counts| {
            let last = *counts.last().unwrap();
            let grown = (1..=added_max).map(move |added| last + added);
            let grown = grown.filter(|count| usize::from(*count) <= CELLS_MAX);
            grown.map(|count| [&counts[..], &[count]].concat())
        });
        longer.collect()
    })
}

#[test]
fn every_growth_of_up_to_13_disks_by_up_to_13_obeys() {
    let pairs = histories(1, PAPER_MAX - 1, PAPER_MAX);
    assert_eq!(pairs.len(), 12 * 13);
    for counts in pairs {
        let width = u64::from(counts[1]);
        for rows in [
            1,
            width - 1,
            width,
            width + 1,
            2 * width,
            5 * width + width / 2,
        ] {
            obey(&counts, rows);
        }
    }
}

#[test]
fn every_history_of_two_growths_obeys() {
    for counts in histories(2, PAPER_MAX - 1, PAPER_MAX) {
        obey(&counts, u64::from(counts[2]) * 3 / 2);
    }
}

/// Each history is held to the laws growth by growth, so the shorter ones are in it.
#[test]
fn every_history_of_up_to_four_small_growths_obeys() {
    for counts in histories(4, 3, 3) {
        obey(&counts, 420);
    }
}

#[test]
fn longer_histories_of_larger_growths_obey() {
    for (growths, step) in [(3, 11), (4, 211)] {
        let all = histories(growths, PAPER_MAX - 1, PAPER_MAX);
        assert!(all.len() > 500 * step / 10, "{} histories", all.len());
        for counts in all.iter().step_by(step) {
            obey(counts, u64::from(*counts.last().unwrap()) + 5);
        }
    }
}

/// One slot at a time up to the most, and all at once.
#[test]
fn the_widest_histories_obey() {
    let most = CELLS_MAX as u16;
    obey(&(1..=most).collect::<Vec<_>>(), 70);
    obey(&[1, most], 70);
    obey(&[most - 1, most], 70);
}

#[test]
fn what_is_no_history_is_refused() {
    let most = CELLS_MAX as u16;
    let long: Vec<u16> = (1..=most + 1).collect();
    for counts in [
        &[][..],
        &[0],
        &[0, 3],
        &[3, 3],
        &[4, 3],
        &[3, 5, 5],
        &[3, most + 1],
        &long,
    ] {
        assert_eq!(History::of(counts), None, "{counts:?}");
    }
    assert_eq!(history(&[3]).last(), None);
    assert_eq!(Growing::new(history(&[3]), 10, 0), None);
    let growth = Growth { old: 3, added: 2 };
    assert_eq!(history(&[3, 5]).last(), Some((growth, history(&[3]))));
}

// ------------------------------------------------------------------------------------------------ what the paper says

/// Section 4.1: the head triangle goes m - 1 disks on, the tail triangle n, and what stands in a column keeps its order.
#[test]
fn triangles_keep_their_shapes() {
    for counts in histories(1, PAPER_MAX - 1, PAPER_MAX) {
        let (old, added) = (counts[0], counts[1] - counts[0]);
        let growth = Growth { old, added };
        let moves = growth.region(0, u64::from(growth.width())).moves();
        for Move { row, from, to } in moves {
            let column = row.0 as u16;
            if column < old.min(added) {
                assert_eq!(to.0 - from.0, old, "head of {growth:?}");
            }
            if column + 1 >= old.max(added) {
                assert_eq!(to.0 - from.0, added, "tail of {growth:?}");
            }
        }
    }
}

/// Moving and Demoving, Placing and Deplacing undo each other, and the two kinds of place do not meet.
#[test]
fn every_function_has_its_inverse() {
    for counts in histories(1, PAPER_MAX - 1, PAPER_MAX) {
        let (old, added) = (counts[0], counts[1] - counts[0]);
        let growth = Growth { old, added };
        for row in (0..2 * u64::from(growth.width())).map(Row) {
            let mut seen = BTreeSet::new();
            for slot in (0..old).map(Slot) {
                let moved = growth.moving(row, slot);
                assert!(moved.is_none_or(|to| growth.demoving(row, to) == Some(slot)));
                let place = moved.unwrap_or(slot);
                assert_eq!(growth.deplacing(row, place), None);
                assert!(seen.insert(place));
            }
            for new in 0..added {
                let place = growth.placing(row, new);
                assert_eq!(growth.deplacing(row, place), Some(new));
                assert!(place.0 < old || growth.demoving(row, place).is_none());
                assert!(seen.insert(place));
            }
        }
    }
}

/// Data slots, and the chunks of each row once the last growth is done.
#[rustfmt::skip]
const GROWN: [(&[u16], &[&[u64]]); 4] = [
    (&[3], &[&[0, 1, 2], &[3, 4, 5], &[6, 7, 8], &[9, 10, 11], &[12, 13, 14]]),
    // Figure 1: four disks to six.
    (&[3, 5], &[&[16, 1, 2, 0, 15], &[17, 18, 5, 3, 4], &[6, 19, 20, 7, 8], &[9, 10, 21, 22, 11], &[12, 13, 14, 23, 24]]),
    // More new disks than old ones: three to six.
    (&[2, 5], &[&[12, 1, 0, 10, 11], &[14, 15, 2, 3, 13], &[16, 17, 18, 4, 5], &[6, 19, 20, 21, 7], &[8, 9, 22, 23, 24]]),
    // One disk is added to three.
    (&[2, 3], &[&[6, 1, 0], &[2, 7, 3], &[4, 5, 8]]),
];

#[test]
fn grown_arrays_stand_as_worked_out_by_hand() {
    for (counts, lines) in GROWN {
        let map = scaled(counts, lines.len() as u64);
        for (row, line) in (0..).map(Row).zip(lines) {
            let slots = (0..map.history().slots()).map(Slot);
            let told: Vec<u64> = slots
                .map(|slot| map.chunk(map.seat_in(row, slot)))
                .collect();
            assert_eq!(told, *line, "{row:?} of {counts:?}");
        }
    }
}

/// Figures 2 and 3: from four disks to six, three reads bring the blocks 0 and 3, 4 and 7, 8 and 11, and two writes put
/// 0, 3, 7 and 4, 8, 11 onto the new disks. In the next region it is the same, 15 blocks on.
#[test]
fn four_disks_become_six_as_in_the_figures() {
    let (before, after) = (scaled(&[3], 10), scaled(&[3, 5], 10));
    let growth = Growth { old: 3, added: 2 };
    for (index, first) in [(0, 0), (1, 15)] {
        let region = growth.region(index, 10);
        let chunks = |map: &Scaled, slot: Slot, rows: Range<u64>| -> Vec<u64> {
            let rows = rows.map(Row);
            rows.map(|row| map.chunk(map.seat_in(row, slot)) - first)
                .collect()
        };
        let moved = region.moves().map(|one| {
            let seat = before.seat_in(one.row, one.from);
            before.chunk(seat) - first
        });
        assert!(moved.eq([0, 3, 4, 7, 8, 11]));
        let reads = region
            .reads()
            .map(|run| chunks(&before, run.slot, run.rows));
        assert!(reads.eq([[0, 3], [4, 7], [8, 11]]));
        let writes = region
            .writes()
            .map(|run| chunks(&after, run.slot, run.rows));
        assert!(writes.eq([[0, 3, 7], [4, 8, 11]]));
        // Figure 4: the last stripe of a region moves nothing.
        assert_eq!(region.parity(), 5 * index..5 * index + 4);
    }
}

/// A generation does not stay even: the blocks that four disks had at first, when there are seven.
#[test]
fn the_first_generation_spreads_unevenly_over_several_growths() {
    let map = scaled(&[3, 4, 5, 6], 360);
    let mut counts = [0; 6];
    for chunk in 0..3 * 360 {
        counts[usize::from(map.slot(map.seat(chunk)).0)] += 1;
    }
    assert_eq!(counts.iter().sum::<u64>(), 6 * 180);
    let span = (*counts.iter().min().unwrap(), *counts.iter().max().unwrap());
    assert_eq!(span, (132, 192));
}

// ----------------------------------------------------------------------------------------------------- parity, on bytes

const CHUNK: usize = 8;
type Bytes = [u8; CHUNK];

fn xor(into: &mut Bytes, other: &Bytes) {
    into.iter_mut().zip(other).for_each(|(a, b)| *a ^= b);
}

/// Bytes that differ by chunk and by version.
fn bytes(chunk: u64, version: u64) -> Bytes {
    let mixed = (chunk << 8 | version).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).to_le_bytes()
}

/// The members of a RAID-4 in bytes: every data slot and the parity. Nothing is known of what is live.
struct Members {
    slots: Vec<Vec<Bytes>>,
    parity: Vec<Bytes>,
}

impl Members {
    fn new(slots: u16, rows: u64) -> Members {
        let blank = vec![[0; CHUNK]; rows as usize];
        Members {
            slots: vec![blank.clone(); slots.into()],
            parity: blank,
        }
    }

    /// A new member is blank.
    fn add(&mut self, added: u16) {
        let blank = vec![[0; CHUNK]; self.parity.len()];
        let slots = self.slots.len() + usize::from(added);
        self.slots.resize(slots, blank);
    }

    /// A small write: what lies there counts in the parity, whatever it is.
    fn write(&mut self, row: Row, slot: Slot, new: Bytes) {
        let row = row.0 as usize;
        let old = std::mem::replace(&mut self.slots[usize::from(slot.0)][row], new);
        xor(&mut self.parity[row], &old);
        xor(&mut self.parity[row], &new);
    }

    fn read(&self, row: Row, slot: Slot) -> Bytes {
        self.slots[usize::from(slot.0)][row.0 as usize]
    }

    /// As the other members tell it, and all that they have.
    fn recover(&self, row: Row, slot: Slot) -> Bytes {
        let others = (0..).zip(&self.slots).filter(|(other, _)| *other != slot.0);
        let mut sum = self.parity[row.0 as usize];
        others.for_each(|(_, other)| xor(&mut sum, &other[row.0 as usize]));
        sum
    }

    /// Copies a region and adds what moved to the parity: P' = P xor moved.
    fn copy(&mut self, region: &Region) {
        for Move { row, from, to } in region.moves() {
            let moved = self.read(row, from);
            assert_eq!(self.read(row, to), [0; CHUNK], "a blank place takes it");
            self.slots[usize::from(to.0)][row.0 as usize] = moved;
            xor(&mut self.parity[row.0 as usize], &moved);
        }
    }

    fn holds_in_every_row(&self) {
        for row in 0..self.parity.len() {
            let mut sum = self.parity[row];
            self.slots.iter().for_each(|slot| xor(&mut sum, &slot[row]));
            assert_eq!(sum, [0; CHUNK], "row {row}");
        }
    }
}

/// Chunks that were written, and what they hold.
type Written = BTreeMap<u64, Bytes>;

/// What was written reads back from its slot, and without it.
fn all_is_there(members: &Members, written: &Written, place: impl Fn(u64) -> (Row, Slot)) {
    members.holds_in_every_row();
    for (chunk, bytes) in written {
        let (row, slot) = place(*chunk);
        assert_eq!(members.read(row, slot), *bytes, "chunk {chunk}");
        assert_eq!(members.recover(row, slot), *bytes, "chunk {chunk}");
    }
}

/// Region by region, with a write to some chunks on both sides of each edge.
fn live_through_a_growth(members: &mut Members, written: &mut Written, counts: &[u16], rows: u64) {
    let (growth, _) = history(counts).last().unwrap();
    members.add(growth.added);
    for moved in 0..=growth.regions(rows) {
        let map = Growing::new(history(counts), rows, moved).unwrap();
        let place = |chunk| {
            let seat = map.seat(chunk);
            (seat.row, map.slot(seat))
        };
        for chunk in (moved % 5..map.chunks()).step_by(5) {
            let (new, (row, slot)) = (bytes(chunk, moved + 1), place(chunk));
            members.write(row, slot, new);
            written.insert(chunk, new);
        }
        all_is_there(members, written, place);
        if moved < growth.regions(rows) {
            members.copy(&growth.region(moved, rows));
        }
    }
}

/// Parity holds in every state, any one data slot can be lost, and the new capacity takes the places of dead copies:
/// through two growths of up to four data slots by up to four, with writes in between.
#[test]
fn parity_counts_dead_copies_until_they_are_replaced() {
    for counts in histories(2, 4, 4) {
        let rows = u64::from(counts[1] + counts[2] + 1);
        let mut members = Members::new(counts[0], rows);
        let mut written = Written::new();
        for nth in 1..=counts.len() {
            if nth > 1 {
                live_through_a_growth(&mut members, &mut written, &counts[..nth], rows);
            }
            let map = scaled(&counts[..nth], rows);
            let place = |chunk| {
                let seat = map.seat(chunk);
                (seat.row, map.slot(seat))
            };
            // Every second chunk of what is new: some dead copies are replaced, others are there for the next growth.
            for chunk in (0..map.chunks()).filter(|chunk| chunk % 2 == 0) {
                let (row, slot) = place(chunk);
                members.write(row, slot, bytes(chunk, 0));
                written.insert(chunk, bytes(chunk, 0));
            }
            all_is_there(&members, &written, place);
        }
    }
}
