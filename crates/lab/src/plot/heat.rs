//! A value for each cell of a grid, by shade, with its number in it.

use super::frame;
use super::letters::Letters;
use super::scale::number;
use super::sheet::{Anchor, Area, Sheet};
use super::style::SHADES;

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Heat {
    pub title: String,
    /// What the values are, with their unit.
    pub name: String,
    /// What the columns and the rows are values of.
    pub columns_of: String,
    pub rows_of: String,
    pub columns: Vec<String>,
    pub rows: Vec<String>,
    /// By row, then by column.
    pub cells: Vec<Vec<Option<Cell>>>,
}

/// A value with the word that marks it, as in tables.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Cell {
    pub value: f64,
    pub mark: &'static str,
}

const ROW: f64 = 34.0;

impl Heat {
    fn values(&self) -> impl Iterator<Item = f64> {
        let cells = self.cells.iter().flatten().flatten();
        cells.map(|cell| cell.value)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values().next().is_none()
    }

    pub(crate) fn sheet(&self, width: f64) -> Sheet {
        let mut sheet = Sheet::new(width, &self.title);
        let mut y = frame::title(&mut sheet, &self.title);
        y = frame::paragraph(
            &mut sheet,
            &format!("In the cells: {}", self.name),
            (0.0, y),
            width,
            Anchor::Start,
        );
        y = frame::paragraph(
            &mut sheet,
            &format!("Down: {}", self.rows_of),
            (0.0, y),
            width,
            Anchor::Start,
        ) + 6.0;
        let widths = self.rows.iter().map(|row| Letters::Normal.width(row));
        let left = (widths.fold(0.0, f64::max) + 8.0).min(width * 0.35);
        let area = Area {
            left,
            top: y,
            width: width - left,
            height: ROW * self.rows.len() as f64,
        };
        self.draw(&mut sheet, &area);
        let middle = area.left + area.width / 2.0;
        let room = 2.0 * (width - middle);
        let foot = (middle, area.bottom() + 24.0);
        sheet.height =
            frame::paragraph(&mut sheet, &self.columns_of, foot, room, Anchor::Middle) + 6.0;
        sheet
    }

    fn draw(&self, sheet: &mut Sheet, area: &Area) {
        let least = self.values().fold(f64::INFINITY, f64::min);
        let most = self.values().fold(f64::NEG_INFINITY, f64::max);
        let wide = area.width / self.columns.len().max(1) as f64;
        for ((row, cells), index) in self.rows.iter().zip(&self.cells).zip(0..) {
            let top = area.top + ROW * f64::from(index);
            let name = Letters::Normal.fitted(row, area.left - 8.0);
            sheet.text(
                Letters::Normal,
                (area.left - 6.0, top + 21.0),
                Anchor::End,
                &name,
            );
            for (cell, column) in cells.iter().zip(0..) {
                let cell_area = Area {
                    left: area.left + wide * f64::from(column),
                    top,
                    width: wide - 2.0,
                    height: ROW - 2.0,
                };
                draw_cell(sheet, &cell_area, *cell, (least, most));
            }
        }
        for (column, index) in self.columns.iter().zip(0..) {
            let middle = area.left + wide * (f64::from(index) + 0.5);
            let name = Letters::Small.fitted(column, wide - 4.0);
            sheet.text(
                Letters::Small,
                (middle, area.bottom() + 16.0),
                Anchor::Middle,
                &name,
            );
        }
    }
}

fn draw_cell(sheet: &mut Sheet, area: &Area, cell: Option<Cell>, (least, most): (f64, f64)) {
    let Some(Cell { value, mark }) = cell else {
        return;
    };
    let part = if most > least {
        (value - least) / (most - least)
    } else {
        0.0
    };
    let shade = ((part * SHADES as f64) as usize).min(SHADES - 1);
    sheet.rectangle(&format!("h{shade}"), area);
    let class = if shade > SHADES / 2 {
        "small bright"
    } else {
        "small"
    };
    let middle = (
        area.left + area.width / 2.0,
        area.top + area.height / 2.0 + 4.0,
    );
    let shown = shortest(value, mark, area.width - 4.0);
    sheet.text_of(class, Letters::Small, middle, Anchor::Middle, &shown);
}

/// As many digits of a number as fit with its mark, or the mark alone; nothing if not even that does.
fn shortest(value: f64, mark: &str, width: f64) -> String {
    let fewer = [2, 1, 0].map(|decimals| format!("{value:.decimals$}"));
    let numbers = std::iter::once(number(value)).chain(fewer);
    let marked = numbers.map(|number| format!("{number} {mark}").trim_end().to_string());
    let mut all = marked.chain([mark.to_string()]);
    all.find(|text| Letters::Small.width(text) <= width)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::sheet::assert_legible;
    use super::super::{NARROW, WIDE};
    use super::*;

    #[test]
    fn no_two_texts_meet_on_any_paper() {
        for columns in [1, 4, 12] {
            let heat = Heat {
                title: "RAID-5 under fin1, md-2.6: rebuild time by load and minimum rate".into(),
                name: "rebuild time, s".into(),
                columns_of: "offered load as a share of the degraded array's capacity, %".into(),
                rows_of: "minimum rebuild rate, MB/s".into(),
                columns: (0..columns).map(|column| format!("{column}0.25")).collect(),
                rows: vec![
                    "1".into(),
                    "a row with a very long name that does not fit".into(),
                ],
                cells: vec![
                    vec![
                        Some(Cell {
                            value: 12_345.678,
                            mark: "sat. cut"
                        });
                        columns
                    ],
                    vec![None; columns],
                ],
            };
            for width in [WIDE, NARROW] {
                assert_legible(&heat.sheet(width));
            }
        }
    }

    #[test]
    fn the_largest_value_has_the_darkest_shade() {
        let heat = Heat {
            title: String::new(),
            name: String::new(),
            columns_of: String::new(),
            rows_of: String::new(),
            columns: vec!["a".into(), "b".into()],
            rows: vec!["r".into()],
            cells: vec![
                [1.0, 9.0]
                    .map(|value| Some(Cell { value, mark: "cut" }))
                    .into(),
            ],
        };
        let drawn = heat.sheet(WIDE).inline("");
        assert!(drawn.contains("class=\"h0\"") && drawn.contains("class=\"h6\""));
        assert!(
            drawn.contains("1 cut") && drawn.contains("9 cut"),
            "{drawn}"
        );
        assert_eq!(shortest(12_345.678, "cut", 20.0), "cut");
    }
}
