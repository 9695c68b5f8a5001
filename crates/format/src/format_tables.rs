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

/// The table names these constants, all of them, at their values, in order and without overlap.
#[macro_export]
macro_rules! agrees {
    ($table:literal, $module:path, [$($field:ident),+ $(,)?]) => {{
        use $module as at;
        let documented = $crate::format_tables::rows($table);
        let coded = [$((stringify!($field), at::$field)),+];
        let names: alloc::vec::Vec<(&str, usize)> =
            documented.iter().map(|(offset, _, field)| (*field, *offset)).collect();
        assert_eq!(names, coded, "table {}", $table);
        for pair in documented.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{} overlaps {}", pair[0].2, pair[1].2);
        }
        documented.last().map(|(offset, bytes, _)| offset + bytes).expect("a table has rows")
    }};
}
