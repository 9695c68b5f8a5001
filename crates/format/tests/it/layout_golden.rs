//! Layouts as drawn: md's own tables as golden data, and the drawings in `docs/reference/layouts.md`.
//!
//! The golden tables come from md's placement rules, not from this code. The drawings come from this code: with
//! `RESTRIPE_BLESS=1` the test rewrites them in the document, otherwise it compares.

use restripe_format::layout::Rotation::{
    self, LeftAsymmetric, LeftSymmetric, ParityFirst, ParityLast, RightAsymmetric, RightSymmetric,
};
use restripe_format::layout::scaled::{Growing, History, Scaled, Seat};
use restripe_format::layout::{Cell, Geometry, Layout, Level, Role, RowMap, Skew};
use restripe_format::units::{CELLS_MAX, Row, Slot};
use std::fmt::Write;
use std::path::PathBuf;

fn layout(level: Level, slots: u16, slot_chunks: u64) -> Layout {
    let geometry = Geometry {
        level,
        slots,
        chunk_sectors: 8,
        slot_sectors: 8 * slot_chunks,
        ..Geometry::PLAIN
    };
    Layout::new(geometry).unwrap()
}

/// Every chunk of every slot, named by `name`: one line a chunk, one word a slot, `-` where no cell is.
fn draw(layout: &Layout, name: impl Fn(&RowMap, &Cell) -> String) -> Vec<Vec<String>> {
    let geometry = layout.geometry();
    let line = |chunk: u64| {
        let word = |slot: u16| {
            let Some(row) = layout.row_at(Slot(slot), chunk * layout.chunk_sectors()) else {
                return "-".to_string();
            };
            let cells = layout.row(row);
            let cell = cells.cell_on(Slot(slot)).unwrap();
            name(&cells, &cells.cells()[usize::from(cell)])
        };
        (0..geometry.slots).map(word).collect()
    };
    (0..geometry.slot_sectors / layout.chunk_sectors())
        .map(line)
        .collect()
}

/// Data chunks by their number in the array.
fn by_number(layout: &Layout) -> Vec<Vec<String>> {
    draw(layout, |cells, cell| match cell.role {
        Role::Data(data) | Role::Copy { of: data } => {
            (cells.row.0 * layout.data_cells() + u64::from(data)).to_string()
        }
        // Where a line has several rows, parity is told by the row.
        Role::P if layout.width() < layout.geometry().slots => format!("P{}", cells.row.0),
        Role::P => "P".to_string(),
        Role::Q => "Q".to_string(),
        Role::Parity(parity) => format!("P{parity}"),
    })
}

/// Data chunks by the power of 2 with which they enter Q.
fn by_power(layout: &Layout) -> Vec<Vec<String>> {
    draw(layout, |cells, cell| match cell.role {
        Role::Data(data) => cells.exponent[usize::from(data)].to_string(),
        Role::P => "P".to_string(),
        Role::Q => "Q".to_string(),
        Role::Copy { .. } | Role::Parity(_) => unreachable!("stripes of P and Q alone"),
    })
}

fn assert_drawn(layout: &Layout, drawn: Vec<Vec<String>>, expected: &[&str]) {
    let lines: Vec<String> = drawn.iter().map(|words| words.join(" ")).collect();
    assert_eq!(lines, expected, "{layout:?}");
}

// ---------------------------------------------------------------------------------------------------- md's tables

/// Rotation, disks, one stripe a string.
#[rustfmt::skip]
const MD_RAID5: [(Rotation, u16, &[&str]); 18] = [
    (LeftAsymmetric, 4, &["0 1 2 P", "3 4 P 5", "6 P 7 8", "P 9 10 11"]),
    (RightAsymmetric, 4, &["P 0 1 2", "3 P 4 5", "6 7 P 8", "9 10 11 P"]),
    (LeftSymmetric, 4, &["0 1 2 P", "4 5 P 3", "8 P 6 7", "P 9 10 11"]),
    (RightSymmetric, 4, &["P 0 1 2", "5 P 3 4", "7 8 P 6", "9 10 11 P"]),
    (ParityFirst, 4, &["P 0 1 2", "P 3 4 5", "P 6 7 8", "P 9 10 11"]),
    (ParityLast, 4, &["0 1 2 P", "3 4 5 P", "6 7 8 P", "9 10 11 P"]),
    (LeftAsymmetric, 5, &["0 1 2 3 P", "4 5 6 P 7", "8 9 P 10 11", "12 P 13 14 15", "P 16 17 18 19"]),
    (RightAsymmetric, 5, &["P 0 1 2 3", "4 P 5 6 7", "8 9 P 10 11", "12 13 14 P 15", "16 17 18 19 P"]),
    (LeftSymmetric, 5, &["0 1 2 3 P", "5 6 7 P 4", "10 11 P 8 9", "15 P 12 13 14", "P 16 17 18 19"]),
    (RightSymmetric, 5, &["P 0 1 2 3", "7 P 4 5 6", "10 11 P 8 9", "13 14 15 P 12", "16 17 18 19 P"]),
    (ParityFirst, 5, &["P 0 1 2 3", "P 4 5 6 7", "P 8 9 10 11", "P 12 13 14 15", "P 16 17 18 19"]),
    (ParityLast, 5, &["0 1 2 3 P", "4 5 6 7 P", "8 9 10 11 P", "12 13 14 15 P", "16 17 18 19 P"]),
    (LeftAsymmetric, 6, &["0 1 2 3 4 P", "5 6 7 8 P 9", "10 11 12 P 13 14", "15 16 P 17 18 19", "20 P 21 22 23 24", "P 25 26 27 28 29"]),
    (RightAsymmetric, 6, &["P 0 1 2 3 4", "5 P 6 7 8 9", "10 11 P 12 13 14", "15 16 17 P 18 19", "20 21 22 23 P 24", "25 26 27 28 29 P"]),
    (LeftSymmetric, 6, &["0 1 2 3 4 P", "6 7 8 9 P 5", "12 13 14 P 10 11", "18 19 P 15 16 17", "24 P 20 21 22 23", "P 25 26 27 28 29"]),
    (RightSymmetric, 6, &["P 0 1 2 3 4", "9 P 5 6 7 8", "13 14 P 10 11 12", "17 18 19 P 15 16", "21 22 23 24 P 20", "25 26 27 28 29 P"]),
    (ParityFirst, 6, &["P 0 1 2 3 4", "P 5 6 7 8 9", "P 10 11 12 13 14", "P 15 16 17 18 19", "P 20 21 22 23 24", "P 25 26 27 28 29"]),
    (ParityLast, 6, &["0 1 2 3 4 P", "5 6 7 8 9 P", "10 11 12 13 14 P", "15 16 17 18 19 P", "20 21 22 23 24 P", "25 26 27 28 29 P"]),
];

/// Rotation, disks, stripes, and the powers of 2 in Q of the same stripes.
#[rustfmt::skip]
const MD_RAID6: [(Rotation, u16, &[&str], &[&str]); 18] = [
    (LeftAsymmetric, 4, &["Q 0 1 P", "2 3 P Q", "4 P Q 5", "P Q 6 7"], &["Q 0 1 P", "0 1 P Q", "1 P Q 0", "P Q 0 1"]),
    (RightAsymmetric, 4, &["P Q 0 1", "2 P Q 3", "4 5 P Q", "Q 6 7 P"], &["P Q 0 1", "1 P Q 0", "0 1 P Q", "Q 0 1 P"]),
    (LeftSymmetric, 4, &["Q 0 1 P", "2 3 P Q", "5 P Q 4", "P Q 6 7"], &["Q 0 1 P", "0 1 P Q", "1 P Q 0", "P Q 0 1"]),
    (RightSymmetric, 4, &["P Q 0 1", "3 P Q 2", "4 5 P Q", "Q 6 7 P"], &["P Q 0 1", "1 P Q 0", "0 1 P Q", "Q 0 1 P"]),
    (ParityFirst, 4, &["P Q 0 1", "P Q 2 3", "P Q 4 5", "P Q 6 7"], &["P Q 0 1", "P Q 0 1", "P Q 0 1", "P Q 0 1"]),
    (ParityLast, 4, &["0 1 P Q", "2 3 P Q", "4 5 P Q", "6 7 P Q"], &["0 1 P Q", "0 1 P Q", "0 1 P Q", "0 1 P Q"]),
    (LeftAsymmetric, 5, &["Q 0 1 2 P", "3 4 5 P Q", "6 7 P Q 8", "9 P Q 10 11", "P Q 12 13 14"], &["Q 0 1 2 P", "0 1 2 P Q", "1 2 P Q 0", "2 P Q 0 1", "P Q 0 1 2"]),
    (RightAsymmetric, 5, &["P Q 0 1 2", "3 P Q 4 5", "6 7 P Q 8", "9 10 11 P Q", "Q 12 13 14 P"], &["P Q 0 1 2", "2 P Q 0 1", "1 2 P Q 0", "0 1 2 P Q", "Q 0 1 2 P"]),
    (LeftSymmetric, 5, &["Q 0 1 2 P", "3 4 5 P Q", "7 8 P Q 6", "11 P Q 9 10", "P Q 12 13 14"], &["Q 0 1 2 P", "0 1 2 P Q", "1 2 P Q 0", "2 P Q 0 1", "P Q 0 1 2"]),
    (RightSymmetric, 5, &["P Q 0 1 2", "5 P Q 3 4", "7 8 P Q 6", "9 10 11 P Q", "Q 12 13 14 P"], &["P Q 0 1 2", "2 P Q 0 1", "1 2 P Q 0", "0 1 2 P Q", "Q 0 1 2 P"]),
    (ParityFirst, 5, &["P Q 0 1 2", "P Q 3 4 5", "P Q 6 7 8", "P Q 9 10 11", "P Q 12 13 14"], &["P Q 0 1 2", "P Q 0 1 2", "P Q 0 1 2", "P Q 0 1 2", "P Q 0 1 2"]),
    (ParityLast, 5, &["0 1 2 P Q", "3 4 5 P Q", "6 7 8 P Q", "9 10 11 P Q", "12 13 14 P Q"], &["0 1 2 P Q", "0 1 2 P Q", "0 1 2 P Q", "0 1 2 P Q", "0 1 2 P Q"]),
    (LeftAsymmetric, 6, &["Q 0 1 2 3 P", "4 5 6 7 P Q", "8 9 10 P Q 11", "12 13 P Q 14 15", "16 P Q 17 18 19", "P Q 20 21 22 23"], &["Q 0 1 2 3 P", "0 1 2 3 P Q", "1 2 3 P Q 0", "2 3 P Q 0 1", "3 P Q 0 1 2", "P Q 0 1 2 3"]),
    (RightAsymmetric, 6, &["P Q 0 1 2 3", "4 P Q 5 6 7", "8 9 P Q 10 11", "12 13 14 P Q 15", "16 17 18 19 P Q", "Q 20 21 22 23 P"], &["P Q 0 1 2 3", "3 P Q 0 1 2", "2 3 P Q 0 1", "1 2 3 P Q 0", "0 1 2 3 P Q", "Q 0 1 2 3 P"]),
    (LeftSymmetric, 6, &["Q 0 1 2 3 P", "4 5 6 7 P Q", "9 10 11 P Q 8", "14 15 P Q 12 13", "19 P Q 16 17 18", "P Q 20 21 22 23"], &["Q 0 1 2 3 P", "0 1 2 3 P Q", "1 2 3 P Q 0", "2 3 P Q 0 1", "3 P Q 0 1 2", "P Q 0 1 2 3"]),
    (RightSymmetric, 6, &["P Q 0 1 2 3", "7 P Q 4 5 6", "10 11 P Q 8 9", "13 14 15 P Q 12", "16 17 18 19 P Q", "Q 20 21 22 23 P"], &["P Q 0 1 2 3", "3 P Q 0 1 2", "2 3 P Q 0 1", "1 2 3 P Q 0", "0 1 2 3 P Q", "Q 0 1 2 3 P"]),
    (ParityFirst, 6, &["P Q 0 1 2 3", "P Q 4 5 6 7", "P Q 8 9 10 11", "P Q 12 13 14 15", "P Q 16 17 18 19", "P Q 20 21 22 23"], &["P Q 0 1 2 3", "P Q 0 1 2 3", "P Q 0 1 2 3", "P Q 0 1 2 3", "P Q 0 1 2 3", "P Q 0 1 2 3"]),
    (ParityLast, 6, &["0 1 2 3 P Q", "4 5 6 7 P Q", "8 9 10 11 P Q", "12 13 14 15 P Q", "16 17 18 19 P Q", "20 21 22 23 P Q"], &["0 1 2 3 P Q", "0 1 2 3 P Q", "0 1 2 3 P Q", "0 1 2 3 P Q", "0 1 2 3 P Q", "0 1 2 3 P Q"]),
];

/// Copies, disks, one chunk of every disk a string.
#[rustfmt::skip]
const MD_RAID10: [(u8, u16, &[&str]); 6] = [
    (2, 2, &["0 0", "1 1", "2 2"]),
    (2, 4, &["0 0 1 1", "2 2 3 3", "4 4 5 5"]),
    (2, 3, &["0 0 1", "1 2 2", "3 3 -"]),
    (2, 5, &["0 0 1 1 2", "2 3 3 4 4", "5 5 6 6 -"]),
    (3, 4, &["0 0 0 1", "1 1 2 2", "2 3 3 3", "4 4 4 -"]),
    (3, 5, &["0 0 0 1 1", "1 2 2 2 3", "3 3 4 4 4", "5 5 5 - -"]),
];

#[test]
fn raid5_stands_where_md_puts_it() {
    for (rotation, slots, stripes) in MD_RAID5 {
        let layout = layout(Level::Raid5(rotation), slots, u64::from(slots));
        assert_drawn(&layout, by_number(&layout), stripes);
    }
}

#[test]
fn raid6_stands_where_md_puts_it() {
    for (rotation, slots, stripes, powers) in MD_RAID6 {
        let layout = layout(Level::Raid6(rotation), slots, u64::from(slots));
        assert_drawn(&layout, by_number(&layout), stripes);
        assert_drawn(&layout, by_power(&layout), powers);
    }
}

#[test]
fn raid10_stands_where_md_puts_it() {
    for (copies, slots, chunks) in MD_RAID10 {
        let layout = layout(Level::Raid10 { copies }, slots, chunks.len() as u64);
        assert_drawn(&layout, by_number(&layout), chunks);
    }
}

#[test]
fn the_simple_levels_stand_where_md_puts_them() {
    let simple: [(Level, u16, &[&str]); 3] = [
        (Level::Raid0, 3, &["0 1 2", "3 4 5"]),
        (Level::Raid1, 3, &["0 0 0", "1 1 1"]),
        (Level::Raid4, 4, &["0 1 2 P", "3 4 5 P", "6 7 8 P"]),
    ];
    for (level, slots, chunks) in simple {
        let layout = layout(level, slots, chunks.len() as u64);
        assert_drawn(&layout, by_number(&layout), chunks);
    }
}

// --------------------------------------------------------------------------------------------------- the document

/// A drawing stands in a fenced block right after a line with this and its title.
const MARK: &str = "<!-- drawn: ";

#[test]
fn the_document_shows_every_layout() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/layouts.md");
    let written = std::fs::read_to_string(&path).expect("docs/reference/layouts.md can be read");
    let drawings = drawings();
    let drawn = redraw(&written, &drawings);
    for (title, _) in &drawings {
        let mark = format!("{MARK}{title} -->");
        assert_eq!(
            drawn.matches(&mark).count(),
            1,
            "docs/reference/layouts.md has one place for: {mark}"
        );
    }
    if std::env::var_os("RESTRIPE_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, drawn).expect("docs/reference/layouts.md can be written");
    } else {
        assert!(
            written == drawn,
            "docs/reference/layouts.md is out of date: run this with RESTRIPE_BLESS=1"
        );
    }
}

/// The document with each fenced block after a mark replaced by the drawing of that title.
fn redraw(document: &str, drawings: &[(String, String)]) -> String {
    let mut lines = document.lines();
    let mut drawn = String::new();
    while let Some(line) = lines.next() {
        writeln!(drawn, "{line}").unwrap();
        let Some(title) = line
            .strip_prefix(MARK)
            .and_then(|rest| rest.strip_suffix(" -->"))
        else {
            continue;
        };
        let drawing = drawings.iter().find(|(known, _)| known == title);
        let (_, drawing) = drawing.unwrap_or_else(|| panic!("no such drawing: {title}"));
        assert_eq!(lines.next(), Some("```text"), "a block follows {title}");
        assert!(
            lines.by_ref().any(|line| line == "```"),
            "the block of {title} ends"
        );
        write!(drawn, "```text\n{drawing}```\n").unwrap();
    }
    drawn
}

/// Titles and drawings.
fn drawings() -> Vec<(String, String)> {
    let mut drawings = vec![("limits".to_string(), limits())];
    let mut add = |level: Level, slots: u16, slot_chunks: u64| {
        let title = format!("{level}, {slots} members");
        drawings.push((title, picture(&layout(level, slots, slot_chunks))));
    };
    add(Level::Raid0, 4, 3);
    add(Level::Raid1, 3, 3);
    add(Level::Raid4, 5, 3);
    Rotation::ALL
        .iter()
        .for_each(|&rotation| add(Level::Raid5(rotation), 5, 6));
    Rotation::ALL
        .iter()
        .for_each(|&rotation| add(Level::Raid6(rotation), 6, 7));
    add(Level::ReedSolomon { parities: 3 }, 6, 6);
    add(Level::Raid10 { copies: 2 }, 4, 3);
    add(Level::Raid10 { copies: 2 }, 5, 3);
    add(Level::Raid10 { copies: 3 }, 4, 4);
    drawings.extend(skewed_drawings());
    drawings.push(grown_drawing());
    drawings
}

/// Two chunks a partition of a RAID-5, for its parity to be seen to move, and one of mirrors.
fn skewed_drawings() -> [(String, String); 2] {
    let drawing = |level: Level, slots: u16, skew: Skew, chunks: u64| {
        let layout = Layout::new(Geometry {
            level,
            slots,
            chunk_sectors: 8,
            slot_sectors: 8 * chunks,
            skew: Some(skew),
            ..Geometry::PLAIN
        });
        let Skew { groups, partitions } = skew;
        let size = slots / groups;
        let title = format!("S2-{level}, {groups} groups of {size}, {partitions} partitions");
        (title, picture(&layout.unwrap()))
    };
    let skew = |groups, partitions| Skew { groups, partitions };
    [
        drawing(Level::Raid5(LeftSymmetric), 9, skew(3, 3), 6),
        drawing(Level::Raid10 { copies: 2 }, 8, skew(2, 4), 4),
    ]
}

/// One region of a RAID-4 of four members that grows by two: as it was, once all has moved, and with the new capacity.
fn grown_drawing() -> (String, String) {
    let (history, rows) = (History::of(&[3, 5]).unwrap(), 5);
    let growing = |moved| Growing::new(history, rows, moved).unwrap();
    let (before, moved, grown) = (growing(0), growing(1), Scaled::new(history, rows));
    let number = |seat: Option<Seat>| match seat {
        Some(seat) => format!("D{}", grown.chunk(seat)),
        None => "-".to_string(),
    };
    let states: [&dyn Fn(Row, Slot) -> String; 3] = [
        &|row, slot| number(before.seat_in(row, slot)),
        &|row, slot| number(moved.seat_in(row, slot)),
        &|row, slot| number(Some(grown.seat_in(row, slot))),
    ];
    let mut text = "chunk".to_string();
    for _ in states {
        (0..6).for_each(|member| write!(text, "{:>5}", format!("m{member}")).unwrap());
        text.push_str("   ");
    }
    for row in 0..rows {
        write!(text, "\n{row:>5}").unwrap();
        for name in states {
            let mut words: Vec<String> = (0..5).map(|slot| name(Row(row), Slot(slot))).collect();
            words.insert(3, "P".to_string()); // the parity stays where it is
            words
                .iter()
                .for_each(|word| write!(text, "{word:>5}").unwrap());
            text.push_str("   ");
        }
    }
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let title = "RAID-4, 4 members grown to 6".to_string();
    (title, lines.join("\n") + "\n")
}

/// The chunks of each member, a line a chunk; beside stripes with Q, how it is made.
fn picture(layout: &Layout) -> String {
    let mut text = "chunk".to_string();
    for member in 0..layout.geometry().slots {
        write!(text, "{:>5}", format!("m{member}")).unwrap();
    }
    text.push('\n');
    for (chunk, words) in (0..).zip(by_number(layout)) {
        write!(text, "{chunk:>5}").unwrap();
        for word in words {
            let is_number = word.starts_with(|first: char| first.is_ascii_digit());
            let name = if is_number { format!("D{word}") } else { word };
            write!(text, "{name:>5}").unwrap();
        }
        if let Level::Raid6(_) = layout.geometry().level {
            write!(text, "    Q = {}", sum(layout, Row(chunk))).unwrap();
        }
        text.push('\n');
    }
    text
}

/// The sum that makes a row's Q, by rising powers of 2.
fn sum(layout: &Layout, row: Row) -> String {
    let cells = layout.row(row);
    let term = |exponent: u8| {
        let data = cells
            .data_of_exponent(exponent)
            .expect("powers have no gaps");
        let name = format!("D{}", row.0 * layout.data_cells() + u64::from(data));
        if exponent == 0 {
            name
        } else {
            format!("{} {name}", 1 << exponent)
        }
    };
    (0..cells.data).map(term).collect::<Vec<_>>().join(" + ")
}

/// What each level takes and gives, found by trying.
fn limits() -> String {
    let levels = [
        Level::Raid0,
        Level::Raid1,
        Level::Raid4,
        Level::Raid5(LeftSymmetric),
        Level::Raid6(LeftSymmetric),
        Level::ReedSolomon { parities: 3 },
        Level::ReedSolomon { parities: 4 },
        Level::Raid10 { copies: 2 },
        Level::Raid10 { copies: 3 },
    ];
    let mut text = format!(
        "{:<16}{:>7}{:>7}{:>17}{:>23}\n",
        "", "fewest", "most", "losses survived", "6 members of 100 hold"
    );
    for level in levels {
        let fits = |&slots: &u16| {
            let geometry = Geometry {
                level,
                slots,
                chunk_sectors: 8,
                slot_sectors: 800,
                ..Geometry::PLAIN
            };
            Layout::new(geometry).is_ok()
        };
        let fewest = (0..=u16::MAX)
            .find(fits)
            .expect("some number of members fits");
        let most = (0..=u16::MAX)
            .rfind(fits)
            .expect("some number of members fits");
        assert_eq!(usize::from(most), CELLS_MAX);
        let six = layout(level, 6, 100);
        let (losses, chunks) = (six.tolerance(), six.size_sectors() / six.chunk_sectors());
        let name = match level {
            Level::Raid5(_) => "RAID-5".to_string(),
            Level::Raid6(_) => "RAID-6".to_string(),
            Level::ReedSolomon { parities } => format!("RS-{parities}"),
            other => other.to_string(),
        };
        writeln!(
            text,
            "{name:<16}{fewest:>7}{most:>7}{losses:>17}{chunks:>23}"
        )
        .unwrap();
    }
    text
}
