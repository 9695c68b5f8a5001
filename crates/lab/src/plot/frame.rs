//! What all kinds of figures have: a title, a key, axes with numbers and a name.

use super::letters::Letters;
use super::scale::{Scale, number};
use super::sheet::{Anchor, Area, Sheet};
use super::style;

/// One entry of a key.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Entry {
    pub name: String,
    /// Of the series, which has its colour.
    pub number: usize,
    pub sample: Sample,
}

/// What is before an entry's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sample {
    /// Nothing: the name of what the entries are values of.
    Heading,
    /// A line with its dashes.
    Line,
    /// A line with the series' mark on it.
    Marked,
    /// A line without dashes: the only one of its panel.
    Sole,
    /// A dot on a line of the mark's style.
    Dot,
    /// A shaded area.
    Shade,
}

const SAMPLE: f64 = 24.0;

/// Dashes of lines without marks.
const DASHES: [&str; 5] = ["", "7 3", "2 2.5", "9 3 2 3", "4 2"];

pub(crate) fn line_attributes(number: usize, dashed: bool) -> String {
    let class = format!("class=\"line l{}\"", number % style::COLOURS);
    match DASHES[number % DASHES.len()] {
        dashes if dashed && !dashes.is_empty() => format!("{class} stroke-dasharray=\"{dashes}\""),
        _ => class,
    }
}

/// The title at the top, and what height it took.
pub(crate) fn title(sheet: &mut Sheet, text: &str) -> f64 {
    let mut y = 4.0;
    for line in Letters::Title.wrapped(text, sheet.width) {
        y += Letters::Title.line();
        sheet.text(Letters::Title, (0.0, y - 4.0), Anchor::Start, &line);
    }
    y + 4.0
}

/// Lines of text one below the other, from `top` on; the height behind them.
pub(crate) fn paragraph(
    sheet: &mut Sheet,
    text: &str,
    (x, top): (f64, f64),
    width: f64,
    anchor: Anchor,
) -> f64 {
    let mut y = top;
    for line in Letters::Normal.wrapped(text, width) {
        y += Letters::Normal.line();
        sheet.text(Letters::Normal, (x, y - 4.0), anchor, &line);
    }
    y
}

/// Entries side by side, in as many rows as they need; the height below them.
pub(crate) fn key(sheet: &mut Sheet, entries: &[Entry], top: f64) -> f64 {
    let mut place = (0.0, top + 14.0);
    if entries.is_empty() {
        return top;
    }
    for entry in entries {
        let before = if entry.sample == Sample::Heading {
            0.0
        } else {
            SAMPLE + 6.0
        };
        let name = Letters::Normal.fitted(&entry.name, sheet.width - before);
        let width = before + Letters::Normal.width(&name);
        if place.0 > 0.0 && place.0 + width > sheet.width {
            place = (0.0, place.1 + 19.0);
        }
        sample(sheet, entry, place);
        sheet.text(
            Letters::Normal,
            (place.0 + before, place.1),
            Anchor::Start,
            &name,
        );
        place.0 += width + 16.0;
    }
    place.1 + 8.0
}

fn sample(sheet: &mut Sheet, entry: &Entry, (x, y): (f64, f64)) {
    let (from, to) = ((x, y - 4.5), (x + SAMPLE, y - 4.5));
    let middle = (x + SAMPLE / 2.0, y - 4.5);
    match entry.sample {
        Sample::Heading => {}
        Sample::Line => sheet.polyline(&line_attributes(entry.number, true), &[from, to]),
        Sample::Sole => sheet.polyline(&line_attributes(entry.number, false), &[from, to]),
        Sample::Shade => {
            let area = Area {
                left: x,
                top: y - 11.0,
                width: SAMPLE,
                height: 13.0,
            };
            sheet.rectangle("shade", &area);
        }
        Sample::Marked => {
            sheet.polyline(&line_attributes(entry.number, false), &[from, to]);
            sheet.symbol(entry.number, middle);
        }
        Sample::Dot => {
            sheet.line("mark", (middle.0, y - 11.0), (middle.0, y + 2.0));
            sheet.symbol(entry.number, middle);
        }
    }
}

/// An axis from the left to the right below an area.
pub(crate) struct Across<'a> {
    pub scale: Scale,
    /// Values to prefer as numbers, if they have room.
    pub wanted: &'a [f64],
    pub name: &'a str,
}

impl Across<'_> {
    pub(crate) fn x(&self, area: &Area, value: f64) -> f64 {
        area.left + area.width * self.scale.part(value)
    }

    /// The most numbers that have room.
    pub(crate) fn numbers(&self, area: &Area) -> Vec<f64> {
        let wanted = self.wanted.iter().copied();
        let wanted: Vec<f64> = wanted.filter(|value| self.scale.holds(*value)).collect();
        let mut sets = self.scale.numbers();
        if wanted.len() >= super::scale::NUMBERS_MIN {
            sets.insert(0, wanted);
        }
        let room = |set: &Vec<f64>| {
            let ends = set.iter().map(|value| {
                let half = Letters::Small.width(&number(*value)) / 2.0;
                (self.x(area, *value) - half, self.x(area, *value) + half)
            });
            let ends: Vec<(f64, f64)> = ends.collect();
            ends.windows(2).all(|two| two[0].1 + 10.0 <= two[1].0)
        };
        let found = sets.iter().find(|set| room(set));
        found.or(sets.last()).cloned().unwrap_or_default()
    }

    /// Numbers with their ticks, and the name; lines through the area if `grid`. The height behind it.
    pub(crate) fn draw(&self, sheet: &mut Sheet, area: &Area, grid: bool) -> f64 {
        let foot = area.bottom();
        for value in self.numbers(area) {
            let x = self.x(area, value);
            if grid {
                sheet.line("grid", (x, area.top), (x, foot));
            }
            sheet.line("axis", (x, foot), (x, foot + 5.0));
            // At the edge of the paper a number moves inwards.
            let half = Letters::Small.width(&number(value)) / 2.0;
            let x = x.clamp(half, sheet.width - half);
            sheet.text(
                Letters::Small,
                (x, foot + 18.0),
                Anchor::Middle,
                &number(value),
            );
        }
        sheet.line("axis", (area.left, foot), (area.right(), foot));
        let middle = area.left + area.width / 2.0;
        let room = 2.0 * (sheet.width - middle).min(middle);
        paragraph(
            sheet,
            self.name,
            (middle, foot + 23.0),
            room,
            Anchor::Middle,
        ) + 4.0
    }
}

/// Numbers of an axis that goes up, at least 32 pixels from each other.
pub(crate) fn numbers_up(scale: &Scale, height: f64) -> Vec<f64> {
    let sets = scale.numbers();
    let room = |set: &&Vec<f64>| {
        let places: Vec<f64> = set
            .iter()
            .map(|value| scale.part(*value) * height)
            .collect();
        places.windows(2).all(|two| two[1] - two[0] >= 32.0)
    };
    let found = sets.iter().find(room);
    found.or(sets.last()).cloned().unwrap_or_default()
}
