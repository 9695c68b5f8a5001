//! The tables of `docs/reference/format.md`, for the tests that compare them with the codecs, here and in the tier.

use alloc::format;
use alloc::vec::Vec;

pub const DOCUMENT: &str = include_str!("../../../docs/reference/format.md");

/// (offset, bytes, field) of each row of the table under this heading comment.
pub fn rows(table: &str) -> Vec<(usize, usize, &'static str)> {
    let (_, after) = DOCUMENT
        .split_once(&format!("<!-- table {table}"))
        .expect("the table is there");
    let lines = after
        .lines()
        .skip(3)
        .take_while(|line| line.starts_with('|'));
    let row = |line: &'static str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        (
            cells[1].parse().expect("an offset"),
            cells[2].parse().expect("a size"),
            cells[3],
        )
    };
    lines.map(row).collect()
}

/// The size that the heading comment of a table gives under this name.
pub fn size(table: &str, name: &str) -> usize {
    let (_, after) = DOCUMENT
        .split_once(&format!("<!-- table {table}"))
        .expect("the table is there");
    let comment = after.lines().next().expect("the rest of the comment");
    let (_, value) = comment
        .split_once(&format!("{name}="))
        .expect("the size is named");
    value
        .split_whitespace()
        .next()
        .expect("a value")
        .parse()
        .expect("a number")
}

/// The tables have these constants, all of them, at their values, in order of place and without overlap.
pub fn agree(coded: &[(&str, usize)], tables: &[&str]) {
    let mut documented = Vec::new();
    for table in tables {
        let rows = rows(table);
        for pair in rows.windows(2) {
            let ordered = pair[0].0 + pair[0].1 <= pair[1].0;
            assert!(ordered, "{} overlaps {}", pair[0].2, pair[1].2);
        }
        documented.extend(rows.iter().map(|(offset, _, field)| (*field, *offset)));
    }
    let mut coded = coded.to_vec();
    coded.sort_unstable();
    documented.sort_unstable();
    assert_eq!(documented, coded, "tables {tables:?}");
}

/// Where the last field of a table ends.
pub fn end(table: &str) -> usize {
    let last = rows(table).pop().expect("a table has rows");
    last.0 + last.1
}
