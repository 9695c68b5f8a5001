//! Bars from the left to the right, in groups: each has its name before it and its value behind it.

use super::frame::{self, Across};
use super::letters::Letters;
use super::scale::Scale;
use super::sheet::{Anchor, Area, Sheet};
use super::style;

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Bars {
    pub title: String,
    /// Name of the axis of values, with its unit.
    pub name: String,
    /// What the groups are values of, and what the bars of each are.
    pub heading: String,
    pub groups: Vec<Group>,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Group {
    /// Empty: its bars stand alone.
    pub name: String,
    pub bars: Vec<Bar>,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Bar {
    pub name: String,
    /// Of its colour.
    pub number: usize,
    pub value: f64,
    /// Of its interval; both the value where there is none.
    pub low: f64,
    pub high: f64,
    /// Its value, as it is shown.
    pub shown: String,
}

const ROW: f64 = 18.0;
const BAR: f64 = 12.0;
const GROUP: f64 = 20.0;

impl Bars {
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.iter().all(|group| group.bars.is_empty())
    }

    fn bars(&self) -> impl Iterator<Item = &Bar> {
        self.groups.iter().flat_map(|group| &group.bars)
    }

    /// The widest of some texts.
    fn widest<'a>(&'a self, text: impl Fn(&'a Bar) -> &'a str) -> f64 {
        let widths = self.bars().map(|bar| Letters::Normal.width(text(bar)));
        widths.fold(0.0, f64::max)
    }

    pub(crate) fn sheet(&self, width: f64) -> Sheet {
        let mut sheet = Sheet::new(width, &self.title);
        let mut y = frame::title(&mut sheet, &self.title);
        sheet.height = y;
        let ends = self.bars().flat_map(|bar| [bar.value, bar.high]);
        let Some(scale) = Scale::from_zero(ends) else {
            return sheet;
        };
        y = frame::paragraph(&mut sheet, &self.heading, (0.0, y), width, Anchor::Start) + 4.0;
        let left = (self.widest(|bar| &bar.name) + 8.0).min(width * 0.4);
        let right = (self.widest(|bar| &bar.shown) + 8.0).min(width * 0.3);
        let named = self.groups.iter().filter(|group| !group.name.is_empty());
        let height = ROW * self.bars().count() as f64 + GROUP * named.count() as f64 + 4.0;
        let area = Area {
            left,
            top: y,
            width: width - left - right,
            height,
        };
        let across = Across {
            scale,
            wanted: &[],
            name: &self.name,
        };
        sheet.height = across.draw(&mut sheet, &area, true);
        self.draw(&mut sheet, &across, &area);
        sheet
    }

    fn draw(&self, sheet: &mut Sheet, across: &Across<'_>, area: &Area) {
        let mut y = area.top;
        for group in &self.groups {
            if !group.name.is_empty() {
                let name = Letters::Group.fitted(&group.name, sheet.width);
                sheet.text(Letters::Group, (0.0, y + 14.0), Anchor::Start, &name);
                y += GROUP;
            }
            for bar in &group.bars {
                draw_bar(sheet, across, area, bar, y);
                y += ROW;
            }
        }
    }
}

fn draw_bar(sheet: &mut Sheet, across: &Across<'_>, area: &Area, bar: &Bar, y: f64) {
    let name = Letters::Normal.fitted(&bar.name, area.left - 8.0);
    sheet.text(
        Letters::Normal,
        (area.left - 6.0, y + 13.0),
        Anchor::End,
        &name,
    );
    let (zero, end) = (across.x(area, 0.0), across.x(area, bar.value));
    let length = Area {
        left: zero.min(end),
        top: y + 3.0,
        width: (end - zero).abs(),
        height: BAR,
    };
    sheet.rectangle(&format!("f{}", bar.number % style::COLOURS), &length);
    let middle = y + 3.0 + BAR / 2.0;
    let mut behind = end.max(zero);
    if bar.low < bar.high {
        let (low, high) = (across.x(area, bar.low), across.x(area, bar.high));
        sheet.line("whisker", (low, middle), (high, middle));
        for x in [low, high] {
            sheet.line("whisker", (x, middle - 3.0), (x, middle + 3.0));
        }
        behind = behind.max(high);
    }
    let shown = Letters::Normal.fitted(&bar.shown, sheet.width - behind - 5.0);
    sheet.text(
        Letters::Normal,
        (behind + 5.0, y + 13.0),
        Anchor::Start,
        &shown,
    );
}

#[cfg(test)]
mod tests {
    use super::super::sheet::assert_legible;
    use super::super::{NARROW, WIDE};
    use super::*;

    fn bars(groups: usize, each: usize, name: &str) -> Bars {
        let bar = |number: usize| Bar {
            name: format!("{name}{number}"),
            number,
            value: 10.0 + number as f64,
            low: 9.0,
            high: 12.0 + 2.0 * number as f64,
            shown: "1234 sat.".into(),
        };
        let group = |number: usize| Group {
            name: format!("workload {number}"),
            bars: (0..each).map(bar).collect(),
        };
        Bars {
            title: "Share of requests moved off the array during the rebuild, by scheme".into(),
            name: "share of requests moved to the surrogate during the rebuild, %".into(),
            heading: "workload, and rebuild scheme".into(),
            groups: (0..groups).map(group).collect(),
        }
    }

    #[test]
    fn no_two_texts_meet_on_any_paper() {
        for (groups, each) in [(1, 1), (4, 9), (14, 2)] {
            for name in ["pr", "trace:/a/long/path/of/a/recorded/trace/by/its/name"] {
                for width in [WIDE, NARROW] {
                    let sheet = bars(groups, each, name).sheet(width);
                    assert_legible(&sheet);
                    let numbers = sheet
                        .texts()
                        .iter()
                        .filter(|(_, text)| text.parse::<f64>().is_ok());
                    assert!(numbers.count() >= 3, "three numbers on the axis");
                    let values = sheet.texts().iter().filter(|(_, text)| text == "1234 sat.");
                    assert_eq!(values.count(), groups * each, "each bar has its value");
                }
            }
        }
    }

    #[test]
    fn whiskers_end_where_the_interval_does() {
        let mut one = bars(1, 1, "pr");
        one.groups[0].bars[0] = Bar {
            name: "pr".into(),
            number: 0,
            value: 50.0,
            low: 25.0,
            high: 100.0,
            shown: "50".into(),
        };
        let drawn = one.sheet(WIDE).inline("");
        let bar = drawn
            .lines()
            .find(|line| line.contains("class=\"f0\""))
            .expect("a bar");
        let whisker = drawn
            .lines()
            .find(|line| line.contains("class=\"whisker\""))
            .expect("one");
        let number = |line: &str, key: &str| -> f64 {
            let behind = line.split(&format!(" {key}=\"")).nth(1).expect(key);
            behind
                .split('"')
                .next()
                .expect("closed")
                .parse()
                .expect("a number")
        };
        let (zero, half) = (number(bar, "x"), number(bar, "width"));
        assert!(
            (number(whisker, "x1") - (zero + half / 2.0)).abs() < 0.2,
            "{whisker}"
        );
        assert!(
            (number(whisker, "x2") - (zero + half * 2.0)).abs() < 0.2,
            "{whisker}"
        );
    }
}
