//! The map of an array whose rows are taken to another shape, at every edge: where everything is, and that nothing is written
//! over before it is somewhere else.

use restripe_format::layout::{Geometry, Layout, Level, Place, Rotation};
use restripe_format::units::{Row, Slot};
use std::collections::BTreeSet;

const CHUNK: u64 = 8;
const ROWS: u64 = 37;

fn plain(level: Level, slots: u16) -> Layout {
    Layout::new(Geometry {
        level,
        slots,
        chunk_sectors: CHUNK as u32,
        slot_sectors: ROWS * CHUNK,
        ..Geometry::PLAIN
    })
    .expect("a sound geometry")
}

/// Former and new shape.
fn shapes() -> Vec<(Layout, Layout)> {
    let mut shapes = vec![];
    for rotation in Rotation::ALL {
        let levels = [
            (Level::Raid0, 1),
            (Level::Raid0, 3),
            (Level::Raid4, 2),
            (Level::Raid4, 5),
            (Level::Raid5(rotation), 3),
            (Level::Raid5(rotation), 6),
            (Level::Raid6(rotation), 4),
            (Level::Raid6(rotation), 7),
        ];
        for (level, slots) in levels {
            if slots < level.slots_min() {
                continue;
            }
            for by in 1..=4 {
                shapes.push((plain(level, slots), plain(level, slots + by)));
            }
        }
    }
    shapes
}

/// Each pair of shapes at each edge, with the map that is half the one and half the other.
fn each(mut check: impl FnMut(&Layout, &Layout, &Layout, u64)) {
    for (former, new) in shapes() {
        for edge in 0..=ROWS {
            let between = new.reshaping(former.geometry().slots, edge);
            check(&former, &new, &between, edge);
        }
    }
}

#[test]
fn addresses_are_found_in_the_one_shape_or_the_other() {
    each(|former, new, between, edge| {
        assert_eq!(between.size_sectors(), former.size_sectors());
        let moved = edge * new.row_sectors();
        let mut taken = BTreeSet::new();
        for lba in (0..former.size_sectors()).step_by(CHUNK as usize) {
            let place = between.place(lba + 3);
            let shape = if lba < moved { new } else { former };
            assert_eq!(place, shape.place(lba + 3));
            let Place { row, data, offset } = place;
            assert_eq!(between.lba(row, data, offset), lba + 3);
            assert_eq!(between.data_cell(row, data), shape.data_cell(row, data));
            assert!(between.is_addressed(row, data));
            let cell = between.data_cell(row, data);
            assert!(
                taken.insert((cell.slot, cell.at)),
                "two chunks in one place"
            );
            let run = between.run_sectors(place, Row(row.0 + 1));
            assert!(run > 0 && lba + 3 + run <= former.size_sectors().max(moved));
        }
    });
}

#[test]
fn rows_are_whole_in_one_shape() {
    each(|former, new, between, edge| {
        assert_eq!(between.edge(), Row(edge));
        for row in (0..ROWS).map(Row) {
            let shape = if row.0 < edge { new } else { former };
            assert_eq!(between.row(row).cells(), shape.row(row).cells());
            assert_eq!(between.new_row(row).cells(), new.row(row).cells());
            assert_eq!(between.former_row(row).cells(), former.row(row).cells());
            assert_eq!(between.sectors_of(row), shape.row_sectors());
            for slot in (0..new.geometry().slots).map(Slot) {
                let stands = shape.row(row).cell_on(slot).is_some();
                assert_eq!(between.stands_on(row, slot), stands);
            }
        }
    });
}

/// A row is made where nothing of the array is, or else all that is there goes into that very row.
#[test]
fn nothing_is_written_over_that_is_nowhere_else() {
    each(|former, new, between, edge| {
        let live = between.live_from();
        for row in (0..ROWS).map(Row) {
            let data = 0..former.data_cells() as u8;
            let held = data.filter(|data| row.0 >= edge && between.is_addressed(row, *data));
            let held: Vec<u8> = held.collect();
            assert_eq!(between.is_dead(row), (edge..live.0).contains(&row.0));
            assert_eq!(row.0 >= edge && held.is_empty(), between.is_dead(row));
            if row.0 == edge && !held.is_empty() {
                let into = |data: u8| new.place(former.lba(row, data, 0)).row;
                assert!(held.iter().all(|data| into(*data) == row));
            }
        }
        if edge < ROWS && live.0 <= edge {
            let (old, more) = (former.data_cells(), new.data_cells() - former.data_cells());
            assert!(edge * more < old, "only the first rows");
        }
    });
}

#[test]
fn as_many_losses_are_borne_as_ever() {
    each(|_, new, between, _| {
        let slots = new.geometry().slots;
        let gone = |lost: u16| move |slot: Slot| slot.0 >= 1 && slot.0 <= lost;
        let tolerance = u16::from(new.tolerance());
        assert!(between.decodable_without(gone(tolerance)));
        assert!(!between.decodable_without(gone(tolerance + 1)) || slots <= tolerance + 1);
    });
}
