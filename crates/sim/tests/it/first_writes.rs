//! First writes to chunks that a growth added, in rows that a crash left in doubt, while a member is missing: its chunk
//! becomes part of the row as well, and is zeros that nothing but the row's parity tells.

use crate::copies::{CHUNK, flush, settle};
use crate::sets::{PLAIN, Pair, Rest, Start, set};
use restripe_array::layout::scaled::History;
use restripe_array::layout::{Layout, Level};
use restripe_array::meta::{Init, WriteHole};
use restripe_array::{Fact, Slot};
use restripe_sim::array::Spec;
use restripe_sim::fault::Fault;
use restripe_sim::oracle::WriteKind;
use restripe_tier::Redirect;

const ROWS: u64 = 64;
const SLOTS: u16 = 6;

fn pair(extent_rows: u64) -> Pair {
    let spec = Spec {
        grown: History::of(&[2, 3, 5]),
        write_hole: WriteHole::Bitmap,
        init: Init::Written,
        extent_rows: Some(extent_rows),
        intent_rows: Some(1),
        chunks: ROWS,
        ..set(Level::Raid4, SLOTS, 0)
    };
    Pair::new(vec![spec], Redirect::None)
}

fn layout(pair: &Pair) -> Layout {
    let created = pair.specs[0].create().expect("it fits its members");
    Layout::new(created.geometry).expect("it was created")
}

/// Each data cell of an extent: its first sector in the array, its generation, and its slot.
fn cells(layout: &Layout, extent_rows: u64, extent: u64) -> Vec<(u64, u8, Slot)> {
    let rows = extent * extent_rows..(extent + 1) * extent_rows;
    let lbas = (0..layout.size_sectors()).step_by(CHUNK as usize);
    let cell = |lba: u64| {
        let place = layout.place(lba);
        let slot = layout.row(place.row).cells[usize::from(place.data)].slot;
        rows.contains(&place.row.0)
            .then(|| (lba, layout.generation_of(place.data), slot))
    };
    lbas.filter_map(cell).collect()
}

fn write(start: &mut Start, lba: u64) {
    while !start.session.world.ready() {
        start.session.step();
    }
    start
        .session
        .write(lba + 3, 5, WriteKind::Data, false, false);
}

/// In each of these extents, the oldest cells were being written when power went.
fn in_doubt(pair: &Pair, extents: &[Vec<(u64, u8, Slot)>]) -> Rest {
    let mut start = Start::ask(pair, pair.created(), PLAIN);
    assert_eq!(start.go_on(), Ok(()));
    let oldest = || extents.iter().flatten().filter(|cell| cell.1 == 0);
    for flushes in [true, false] {
        oldest().for_each(|cell| write(&mut start, cell.0));
        settle(&mut start);
        if flushes {
            flush(&mut start);
        }
    }
    start.power_goes()
}

/// The start without a member; then cells of a later generation are written in the extents that a resync reaches last.
fn grow_into_doubt(pair: &Pair, rest: Rest, missing: Slot, later: &[u64]) {
    let mut start = Start::ask(pair, rest, PLAIN);
    let missing = usize::from(missing.0);
    start.inject(missing..missing + 1, Fault::Death);
    assert_eq!(start.go_on(), Ok(()), "no cell of the member is written");
    later.iter().for_each(|lba| write(&mut start, *lba));
    let is_loss = |fact: &Fact| matches!(fact, Fact::Lost { .. });
    while !start.session.world.quiescent() {
        start.session.step();
        while let Some(news) = start.session.news() {
            let lost = matches!(&news, restripe_sim::session::News::Fact(fact) if is_loss(fact));
            assert!(
                !lost,
                "without member {missing}, writes to {later:?}: {news:?}"
            );
        }
    }
    settle(&mut start);
    start.reads_all("without the member");
}

#[test]
fn what_was_never_written_stays_zeros_when_its_row_grows_in_doubt() {
    for extent_rows in [1, 2, 4] {
        let pair = pair(extent_rows);
        let layout = layout(&pair);
        let mut tried = 0;
        for missing in (0..SLOTS).map(Slot) {
            let extents = 0..ROWS / extent_rows;
            let extents = extents.map(|extent| cells(&layout, extent_rows, extent));
            // In these the member has none of the oldest cells, so that a start without it loses nothing.
            let spared = |cells: &Vec<(u64, u8, Slot)>| {
                let holds = |cell: &&(u64, u8, Slot)| cell.2 == missing;
                let mut own = cells.iter().filter(holds).peekable();
                own.peek().is_some() && own.all(|cell| cell.1 > 0)
            };
            let extents: Vec<_> = extents.filter(spared).collect();
            let Some(last) = extents.last() else {
                continue;
            };
            let rest = in_doubt(&pair, &extents);
            for later in last.iter().filter(|cell| cell.1 > 0) {
                grow_into_doubt(&pair, rest.clone(), missing, &[later.0]);
                tried += 1;
            }
            let all: Vec<u64> = extents.iter().rev().flatten().map(|cell| cell.0).collect();
            grow_into_doubt(&pair, rest, missing, &all);
        }
        assert!(tried > 2, "{tried} writes, {extent_rows} rows an extent");
    }
}
