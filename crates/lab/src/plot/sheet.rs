//! A drawing in SVG that knows the box of each of its texts.

use super::letters::Letters;
use super::style;
use crate::svg::escape;
use std::fmt::Write;

/// A rectangle, in pixels from the upper left corner.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Area {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
}

impl Area {
    pub(crate) fn right(&self) -> f64 {
        self.left + self.width
    }

    pub(crate) fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// Whether they have a part in common.
    #[cfg(test)]
    pub(crate) fn meets(&self, other: &Area) -> bool {
        self.left < other.right()
            && other.left < self.right()
            && self.top < other.bottom()
            && other.top < self.bottom()
    }
}

/// Which part of a text is at its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// An SVG under construction. A point is (x, y).
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Sheet {
    pub width: f64,
    pub height: f64,
    title: String,
    body: String,
    texts: Vec<(Area, String)>,
}

// Writing to a string cannot fail, here and below.
impl Sheet {
    pub(crate) fn new(width: f64, title: &str) -> Sheet {
        Sheet {
            width,
            height: 0.0,
            title: title.into(),
            body: String::new(),
            texts: Vec::new(),
        }
    }

    /// The texts with their boxes.
    #[cfg(test)]
    pub(crate) fn texts(&self) -> &[(Area, String)] {
        &self.texts
    }

    pub(crate) fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let _ = writeln!(
            self.body,
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        );
    }

    pub(crate) fn polyline(&mut self, attributes: &str, points: &[(f64, f64)]) {
        self.points("polyline", attributes, &seen(points));
    }

    pub(crate) fn polygon(&mut self, attributes: &str, points: &[(f64, f64)]) {
        self.points("polygon", attributes, points);
    }

    fn points(&mut self, tag: &str, attributes: &str, points: &[(f64, f64)]) {
        let points: Vec<String> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let points = points.join(" ");
        let _ = writeln!(self.body, "<{tag} {attributes} points=\"{points}\"/>");
    }

    pub(crate) fn rectangle(&mut self, class: &str, area: &Area) {
        let (width, height) = (area.width.max(0.0), area.height.max(0.0));
        let _ = writeln!(
            self.body,
            "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>",
            area.left, area.top
        );
    }

    /// The mark of a series: a circle, a square, a triangle or a diamond, by its number.
    pub(crate) fn symbol(&mut self, number: usize, (x, y): (f64, f64)) {
        let class = format!("class=\"dot f{}\"", number % style::COLOURS);
        match number % 4 {
            0 => {
                let _ = writeln!(
                    self.body,
                    "<circle {class} cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>"
                );
            }
            1 => {
                let corners = [(-3.5, -3.5), (3.5, -3.5), (3.5, 3.5), (-3.5, 3.5)];
                self.polygon(&class, &corners.map(|(right, down)| (x + right, y + down)));
            }
            2 => {
                let corners = [(0.0, -4.5), (4.5, 3.5), (-4.5, 3.5)];
                self.polygon(&class, &corners.map(|(right, down)| (x + right, y + down)));
            }
            _ => {
                let corners = [(0.0, -5.0), (5.0, 0.0), (0.0, 5.0), (-5.0, 0.0)];
                self.polygon(&class, &corners.map(|(right, down)| (x + right, y + down)));
            }
        }
    }

    /// A text whose letters stand on `y`.
    pub(crate) fn text(
        &mut self,
        letters: Letters,
        (x, y): (f64, f64),
        anchor: Anchor,
        content: &str,
    ) {
        self.text_of(letters.class(), letters, (x, y), anchor, content);
    }

    /// The same with a class of its own.
    pub(crate) fn text_of(
        &mut self,
        class: &str,
        letters: Letters,
        (x, y): (f64, f64),
        anchor: Anchor,
        content: &str,
    ) {
        if content.is_empty() {
            return;
        }
        self.texts
            .push((area(letters, (x, y), anchor, content), content.into()));
        let class = match class {
            "" => String::new(),
            class => format!(" class=\"{class}\""),
        };
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let content = escape(content);
        let _ = writeln!(
            self.body,
            "<text{class} x=\"{x:.1}\" y=\"{y:.1}\"{anchor}>{content}</text>"
        );
    }

    /// For a page that has the style.
    pub(crate) fn inline(&self, class: &str) -> String {
        format!(
            "<svg class=\"plot {class}\" viewBox=\"0 0 {:.0} {:.0}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n",
            self.width,
            self.height,
            escape(&self.title),
            self.body
        )
    }

    /// A file of its own.
    pub(crate) fn alone(&self) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" viewBox=\"0 0 {0:.0} {1:.0}\" width=\"{0:.0}\" \
             height=\"{1:.0}\" role=\"img\">\n<title>{2}</title>\n<style>{3}</style>\n\
             <rect class=\"paper\" width=\"{0:.0}\" height=\"{1:.0}\"/>\n{4}</svg>\n",
            self.width,
            self.height,
            escape(&self.title),
            style::SHEET,
            self.body
        )
    }
}

/// The box of a text.
pub(crate) fn area(letters: Letters, (x, y): (f64, f64), anchor: Anchor, content: &str) -> Area {
    let width = letters.width(content);
    let left = match anchor {
        Anchor::Start => x,
        Anchor::Middle => x - width / 2.0,
        Anchor::End => x - width,
    };
    Area {
        left,
        top: y - letters.size() * 0.8,
        width,
        height: letters.size(),
    }
}

/// The first point, the last, and of those between what is a pixel or more away from the one drawn before.
fn seen(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut drawn: Vec<(f64, f64)> = Vec::new();
    for (index, (x, y)) in points.iter().enumerate() {
        let near = |(left, top): &(f64, f64)| (x - left).abs() < 1.0 && (y - top).abs() < 1.0;
        let near = drawn.last().is_some_and(near);
        if !near || index + 1 == points.len() {
            drawn.push((*x, *y));
        }
    }
    drawn
}

/// For tests of every kind of figure: no two texts meet, and none leaves the paper.
#[cfg(test)]
pub(crate) fn assert_legible(sheet: &Sheet) {
    let whole = (sheet.width + 0.5, sheet.height + 0.5);
    for (index, (area, text)) in sheet.texts.iter().enumerate() {
        let inside = area.left >= -0.5 && area.top >= -0.5;
        let inside = inside && area.right() <= whole.0 && area.bottom() <= whole.1;
        assert!(inside, "{text:?} at {area:?} leaves {whole:?}");
        for (other, second) in &sheet.texts[index + 1..] {
            assert!(!area.meets(other), "{text:?} and {second:?} meet");
        }
    }
    let inline = sheet.inline("");
    assert!(!inline.contains("NaN") && !inline.contains("inf,") && !inline.contains("\"inf"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_that_cannot_be_distinguished_are_left_out() {
        let points = (0..=100).map(|step| (f64::from(step) / 10.0, 5.0));
        let points: Vec<(f64, f64)> = points.collect();
        let drawn = seen(&points);
        assert_eq!(
            (drawn.len(), drawn[0], drawn[10]),
            (11, points[0], points[100])
        );
    }

    #[test]
    fn texts_are_escaped_and_have_boxes() {
        let mut sheet = Sheet::new(100.0, "a < b");
        sheet.height = 50.0;
        sheet.text(Letters::Normal, (50.0, 20.0), Anchor::Middle, "x & y");
        assert!(sheet.inline("wide").contains("x &amp; y</text>"));
        assert!(sheet.alone().contains("<title>a &lt; b</title>"));
        let (area, _) = &sheet.texts()[0];
        assert!((area.left + area.width / 2.0 - 50.0).abs() < 1e-9);
        assert_legible(&sheet);
    }

    #[test]
    #[should_panic(expected = "meet")]
    fn texts_that_meet_are_found() {
        let mut sheet = Sheet::new(100.0, "");
        sheet.height = 50.0;
        sheet.text(Letters::Normal, (10.0, 20.0), Anchor::Start, "one");
        sheet.text(Letters::Normal, (20.0, 25.0), Anchor::Start, "two");
        assert_legible(&sheet);
    }
}
