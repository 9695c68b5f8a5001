//! Curves over a common x axis, in one panel or in several below each other, with moments marked above them.

use super::frame::{self, Across, Entry, Sample, line_attributes, numbers_up};
use super::letters::Letters;
use super::scale::{Scale, number};
use super::sheet::{Anchor, Area, Sheet, area};
use super::style;

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Lines {
    pub title: String,
    pub x: Axis,
    /// What the curves are values of, before their names in the key.
    pub heading: String,
    pub panels: Vec<Panel>,
    /// Shaded parts of the x axis, and what they are, for the key.
    pub shades: Vec<(f64, f64)>,
    pub shaded: String,
    pub moments: Vec<Moment>,
    /// What the dots of the curves are, for the key.
    pub dots: String,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Axis {
    pub name: String,
    pub logarithmic: bool,
    /// Values to prefer as numbers of the axis.
    pub wanted: Vec<f64>,
    /// Its ends, if they are not those of the curves.
    pub ends: Option<(f64, f64)>,
}

/// A part with a y axis of its own.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Panel {
    pub name: String,
    pub logarithmic: bool,
    pub height: f64,
    pub curves: Vec<Curve>,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Curve {
    pub name: String,
    /// Of its colour.
    pub number: usize,
    /// Parts between gaps.
    pub pieces: Vec<Vec<Point>>,
    /// Each point has a mark: few points were measured.
    pub marked: bool,
    /// A moment of this curve alone.
    pub dot: Option<(f64, f64)>,
}

/// A point with its interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Point {
    pub x: f64,
    pub y: f64,
    pub low: f64,
    pub high: f64,
}

impl Point {
    /// Without an interval.
    pub(crate) fn sole((x, y): (f64, f64)) -> Point {
        let (low, high) = (y, y);
        Point { x, y, low, high }
    }
}

/// Something that happened, marked by a line through all panels.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Moment {
    pub x: f64,
    pub text: String,
}

/// A panel with what its axis is and where it lies.
struct Placed<'a> {
    panel: &'a Panel,
    scale: Scale,
    area: Area,
}

impl Placed<'_> {
    fn y(&self, value: f64) -> f64 {
        self.area.bottom() - self.area.height * self.scale.part(value)
    }
}

impl Curve {
    fn points(&self) -> impl Iterator<Item = &Point> {
        self.pieces.iter().flatten()
    }
}

impl Panel {
    fn scale(&self) -> Option<Scale> {
        let points = self.curves.iter().flat_map(Curve::points);
        Scale::round(
            points.flat_map(|point| [point.low, point.high]),
            self.logarithmic,
        )
    }
}

impl Panel {
    /// The key of its curves.
    fn entries(&self) -> Vec<Entry> {
        let named = self.curves.iter().filter(|curve| !curve.name.is_empty());
        let entry = |curve: &Curve| Entry {
            name: curve.name.clone(),
            number: curve.number,
            sample: match (curve.marked, self.dashed()) {
                (true, _) => Sample::Marked,
                (false, true) => Sample::Line,
                (false, false) => Sample::Sole,
            },
        };
        named.map(entry).collect()
    }

    /// Whether lines have dashes: there is another to distinguish them from.
    fn dashed(&self) -> bool {
        self.curves.len() > 1
    }
}

/// Height of a row of moments' texts.
const ROW: f64 = 16.0;

impl Lines {
    /// Whether there is anything to draw.
    pub(crate) fn is_empty(&self) -> bool {
        self.panels.iter().all(|panel| panel.scale().is_none())
    }

    /// The x axis: from the first point to the last, with room for marks.
    fn scale(&self) -> Option<Scale> {
        let curves = || self.panels.iter().flat_map(|panel| &panel.curves);
        let xs = curves().flat_map(Curve::points).map(|point| point.x);
        let ends = self.x.ends.into_iter().flat_map(|(from, to)| [from, to]);
        let mut scale = Scale::tight(xs.chain(ends), self.x.logarithmic)?;
        if curves().any(|curve| curve.marked) {
            let (low, high) = (scale.low, scale.high);
            match scale.logarithmic {
                true => {
                    let room = (high / low).powf(0.03);
                    (scale.low, scale.high) = (low / room, high * room);
                }
                false => {
                    let room = (high - low) * 0.03;
                    (scale.low, scale.high) = (low - room, high + room);
                }
            }
        }
        Some(scale)
    }

    pub(crate) fn sheet(&self, width: f64) -> Sheet {
        let mut sheet = Sheet::new(width, &self.title);
        let mut y = frame::title(&mut sheet, &self.title);
        y = frame::key(&mut sheet, &self.entries(), y);
        let Some(scale) = self.scale() else {
            sheet.height = y;
            return sheet;
        };
        let across = Across {
            scale,
            wanted: &self.x.wanted,
            name: &self.x.name,
        };
        let left = self.left();
        let mut first = true;
        let mut placed: Vec<Placed<'_>> = Vec::new();
        for panel in &self.panels {
            let Some(scale) = panel.scale() else { continue };
            y = frame::paragraph(&mut sheet, &panel.name, (0.0, y), width, Anchor::Start) + 9.0;
            let mut area = Area {
                left,
                top: y,
                width: width - left - 10.0,
                height: panel.height,
            };
            if first {
                let rows = self.rows(&across, &area);
                area.top += ROW * rows.iter().map(|(row, _)| row + 1).max().unwrap_or(0) as f64;
                first = false;
            }
            y = area.bottom() + 10.0;
            placed.push(Placed { panel, scale, area });
        }
        self.draw(&mut sheet, &across, &placed);
        sheet
    }

    /// Room for the numbers of the y axes.
    fn left(&self) -> f64 {
        let scales = self
            .panels
            .iter()
            .filter_map(|panel| Some((panel.scale()?, panel.height)));
        let numbers = scales.flat_map(|(scale, height)| numbers_up(&scale, height));
        let widths = numbers.map(|value| Letters::Small.width(&number(value)));
        widths.fold(0.0, f64::max) + 10.0
    }

    fn entries(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = self.panels.iter().flat_map(Panel::entries).collect();
        if !entries.is_empty() && !self.heading.is_empty() {
            entries.insert(0, heading(&self.heading));
        }
        let mut curves = self.panels.iter().flat_map(|panel| &panel.curves);
        let first = curves.find(|curve| curve.dot.is_some());
        entries.extend(first.map(|curve| Entry {
            name: self.dots.clone(),
            number: curve.number,
            sample: Sample::Dot,
        }));
        entries.extend(self.shades.first().map(|_| Entry {
            name: self.shaded.clone(),
            number: 0,
            sample: Sample::Shade,
        }));
        entries
    }

    fn draw(&self, sheet: &mut Sheet, across: &Across<'_>, placed: &[Placed<'_>]) {
        for (from, to) in &self.shades {
            for Placed { area, .. } in placed {
                let (from, to) = (across.x(area, *from), across.x(area, *to));
                let part = Area {
                    left: from,
                    width: to - from,
                    ..*area
                };
                sheet.rectangle("shade", &part);
            }
        }
        for one in placed {
            up(sheet, one);
        }
        self.mark(sheet, across, placed);
        for one in placed {
            for curve in &one.panel.curves {
                draw_curve(sheet, across, one, curve);
            }
        }
        if let Some(last) = placed.last() {
            sheet.height = across.draw(sheet, &last.area, false);
        }
    }

    /// For each moment its row above the first panel, 0 the lowest, and the box of its text as if that row
    /// were at 0.
    fn rows(&self, across: &Across<'_>, area: &Area) -> Vec<(usize, Area)> {
        let boxes = self.moments.iter().map(|moment| {
            let wide = Letters::Small.width(&moment.text);
            let left = (across.x(area, moment.x) + 3.0).min(area.right() + 8.0 - wide);
            self::area(
                Letters::Small,
                (left.max(0.0), 0.0),
                Anchor::Start,
                &moment.text,
            )
        });
        let boxes: Vec<Area> = boxes.collect();
        let at: Vec<f64> = self
            .moments
            .iter()
            .map(|moment| across.x(area, moment.x))
            .collect();
        let pushed = |index: usize| boxes[index].left < at[index];
        let mut order: Vec<usize> = (0..boxes.len()).collect();
        // From right to left, so that a line ends before the texts of the rows below begin; then those at
        // the edge.
        order.sort_by(|a, b| pushed(*a).cmp(&pushed(*b)).then(at[*b].total_cmp(&at[*a])));
        let mut rows = vec![usize::MAX; boxes.len()];
        for index in order {
            let others: Vec<usize> = (0..boxes.len())
                .filter(|other| rows[*other] != usize::MAX)
                .collect();
            let crosses = |line: usize, text: usize| {
                (boxes[text].left - 2.0..=boxes[text].right() + 2.0).contains(&at[line])
            };
            let meets = |other: usize| {
                boxes[other].left < boxes[index].right() + 8.0
                    && boxes[index].left < boxes[other].right() + 8.0
            };
            let free = |row: usize| {
                others.iter().all(|&other| match rows[other].cmp(&row) {
                    std::cmp::Ordering::Equal => !meets(other),
                    std::cmp::Ordering::Less => !crosses(index, other),
                    std::cmp::Ordering::Greater => !crosses(other, index),
                })
            };
            let above = others
                .iter()
                .map(|other| rows[*other] + 1)
                .max()
                .unwrap_or(0);
            rows[index] = (0..=above).find(|row| free(*row)).unwrap_or(above);
        }
        rows.into_iter().zip(boxes).collect()
    }

    fn mark(&self, sheet: &mut Sheet, across: &Across<'_>, placed: &[Placed<'_>]) {
        let (Some(first), Some(last)) = (placed.first(), placed.last()) else {
            return;
        };
        let rows = self.rows(across, &first.area);
        for (moment, (row, text)) in self.moments.iter().zip(rows) {
            let x = across.x(&first.area, moment.x);
            let y = first.area.top - 5.0 - ROW * row as f64;
            let top = if text.left < x { y + 2.0 } else { y - 10.0 };
            sheet.line("mark", (x, top), (x, last.area.bottom()));
            sheet.text_of(
                "small soft",
                Letters::Small,
                (text.left, y),
                Anchor::Start,
                &moment.text,
            );
        }
    }
}

pub(crate) fn heading(name: &str) -> Entry {
    Entry {
        name: format!("{name}:"),
        number: 0,
        sample: Sample::Heading,
    }
}

/// Numbers of a panel's axis, with lines through it.
fn up(sheet: &mut Sheet, placed: &Placed<'_>) {
    let area = &placed.area;
    for value in numbers_up(&placed.scale, area.height) {
        let y = placed.y(value);
        sheet.line("grid", (area.left, y), (area.right(), y));
        sheet.text(
            Letters::Small,
            (area.left - 6.0, y + 4.0),
            Anchor::End,
            &number(value),
        );
    }
}

fn draw_curve(sheet: &mut Sheet, across: &Across<'_>, placed: &Placed<'_>, curve: &Curve) {
    let at = |x: f64, y: f64| (across.x(&placed.area, x), placed.y(y));
    for piece in &curve.pieces {
        band(sheet, curve, piece, &at);
        let middle: Vec<(f64, f64)> = piece.iter().map(|point| at(point.x, point.y)).collect();
        let dashed = !curve.marked && placed.panel.dashed();
        sheet.polyline(&line_attributes(curve.number, dashed), &middle);
        if curve.marked {
            for (point, place) in piece.iter().zip(middle) {
                whisker(sheet, &at, point);
                sheet.symbol(curve.number, place);
            }
        }
    }
    if let Some((x, y)) = curve.dot {
        let (x, y) = at(x, y);
        sheet.line("mark", (x, placed.area.top), (x, placed.area.bottom()));
        sheet.symbol(curve.number, (x, y));
    }
}

/// The interval from point to point.
fn band(sheet: &mut Sheet, curve: &Curve, piece: &[Point], at: &dyn Fn(f64, f64) -> (f64, f64)) {
    if piece.iter().all(|point| point.low >= point.high) {
        return;
    }
    let above = piece.iter().map(|point| at(point.x, point.high));
    let below = piece.iter().rev().map(|point| at(point.x, point.low));
    let corners: Vec<(f64, f64)> = above.chain(below).collect();
    let class = format!("class=\"band f{}\"", curve.number % style::COLOURS);
    sheet.polygon(&class, &corners);
}

fn whisker(sheet: &mut Sheet, at: &dyn Fn(f64, f64) -> (f64, f64), point: &Point) {
    if point.low < point.high {
        let (low, high) = (at(point.x, point.low), at(point.x, point.high));
        sheet.line("whisker", low, high);
        for (x, y) in [low, high] {
            sheet.line("whisker", (x - 3.0, y), (x + 3.0, y));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sheet::assert_legible;
    use super::super::{NARROW, WIDE};
    use super::*;

    fn curve(number: usize, points: &[(f64, f64)]) -> Curve {
        Curve {
            name: format!("minimum rebuild rate {number} MB/s"),
            number,
            pieces: vec![points.iter().copied().map(Point::sole).collect()],
            marked: true,
            dot: None,
        }
    }

    fn lines(curves: Vec<Curve>, logarithmic: bool) -> Lines {
        Lines {
            title: "RAID-5 under fin1 at a load of 0.5: mean response during the rebuild by load"
                .into(),
            x: Axis {
                name: "offered load as a share of the degraded array's capacity, %".into(),
                logarithmic,
                wanted: vec![1.0, 2.0, 5.0, 10.0, 20.0, 50.0],
                ends: None,
            },
            heading: "throttle of the rebuild".into(),
            panels: vec![Panel {
                name: "share of requests moved to the surrogate during the rebuild, %".into(),
                logarithmic,
                height: 260.0,
                curves,
            }],
            shades: Vec::new(),
            shaded: String::new(),
            moments: Vec::new(),
            dots: String::new(),
        }
    }

    #[test]
    fn no_two_texts_meet_on_any_paper() {
        let ends = [(1.0, 3.0), (1.1, 50_000.0), (11.0, 14.0), (0.001, 0.0012)];
        for (low, high) in ends {
            for logarithmic in [false, true] {
                for count in [1, 3, 9] {
                    let curves =
                        (0..count).map(|number| curve(number, &[(1.0, low), (50.0, high)]));
                    let lines = lines(curves.collect(), logarithmic);
                    for width in [WIDE, NARROW] {
                        let sheet = lines.sheet(width);
                        assert_legible(&sheet);
                        let numbers = sheet.texts().iter().filter(|(_, text)| {
                            text.bytes()
                                .all(|byte| byte.is_ascii_digit() || b".,-".contains(&byte))
                        });
                        assert!(numbers.count() >= 6, "three numbers on each of two axes");
                    }
                }
            }
        }
    }

    #[test]
    fn moments_that_are_near_each_other_have_rows_of_their_own() {
        let mut lines = lines(vec![curve(0, &[(0.0, 1.0), (1000.0, 2.0)])], false);
        let moments = [
            (300.0, "disk 1 lost: the rebuild begins"),
            (430.0, "kill -9"),
            (436.0, "serves again"),
            (700.0, "rebuilt"),
            (990.0, "disk 3 lost"),
            (1000.0, "the end of all of it"),
        ];
        lines.moments = moments
            .map(|(x, text)| Moment {
                x,
                text: text.into(),
            })
            .into();
        for width in [WIDE, NARROW] {
            let sheet = lines.sheet(width);
            assert_legible(&sheet);
            for (_, text) in moments {
                assert!(sheet.texts().iter().any(|(_, shown)| shown == text));
            }
        }
    }

    #[test]
    fn a_gap_breaks_the_line_and_an_interval_is_a_band_with_whiskers() {
        let mut one = curve(0, &[(0.0, 1.0), (1.0, 2.0)]);
        one.pieces.push(vec![
            Point {
                x: 3.0,
                y: 2.0,
                low: 1.5,
                high: 4.0,
            },
            Point {
                x: 4.0,
                y: 2.0,
                low: 1.0,
                high: 3.0,
            },
        ]);
        let lines = lines(vec![one], false);
        let drawn = lines.sheet(WIDE).inline("");
        // Two pieces, and the sample in the key.
        assert_eq!(drawn.matches("<polyline").count(), 3);
        assert_eq!(drawn.matches("class=\"band f0\"").count(), 1);
        assert_eq!(drawn.matches("class=\"whisker\"").count(), 2 * 3);
    }

    #[test]
    fn a_figure_of_nothing_is_a_figure() {
        let empty = lines(Vec::new(), true);
        assert!(empty.is_empty());
        assert_legible(&empty.sheet(WIDE));
    }
}
