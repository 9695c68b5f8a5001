//! Figures as SVG: one description of a figure, drawn on paper of any width.
//!
//! | module | owns |
//! |---|---|
//! | [`scale`] | from numbers to parts of an axis; round numbers on an axis |
//! | [`sheet`] | the drawing: elements of SVG, and the box of every text |
//! | [`letters`] | widths of texts, lines that fit |
//! | [`style`] | the style sheet: colours in the light, in the dark and on paper |
//! | [`frame`] | what all kinds of figures have: title, key, names of axes, axis of numbers |
//! | [`lines`] | curves over a common x axis, in one or more panels |
//! | [`bars`] | bars with values and intervals, in groups |
//! | [`heat`] | a value for each cell of a grid, by shade |
//!
//! A figure is drawn twice: 720 pixels wide for desktops and print, and 350 wide for telephones. So its
//! letters have the same size on both. The order of everything is that of the description, and every
//! coordinate has one decimal, so a figure is the same text on every machine.

pub(crate) mod bars;
pub(crate) mod frame;
pub(crate) mod heat;
pub(crate) mod letters;
pub(crate) mod lines;
pub(crate) mod scale;
pub(crate) mod sheet;
pub(crate) mod style;

use sheet::Sheet;

/// Width of a figure on desktops and in print, in pixels.
pub(crate) const WIDE: f64 = 720.0;
/// Width of a figure on telephones.
pub(crate) const NARROW: f64 = 350.0;
/// Height of the panel of a figure that has one.
pub(crate) const HEIGHT: f64 = 260.0;

/// What can be drawn.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Kind {
    Lines(lines::Lines),
    Bars(bars::Bars),
    Heat(heat::Heat),
}

/// A figure, to be drawn on paper of any width.
#[derive(Clone, PartialEq, Debug)]
pub struct Plot(pub(crate) Kind);

impl Plot {
    /// The figure on paper of this width.
    pub(crate) fn sheet(&self, width: f64) -> Sheet {
        match &self.0 {
            Kind::Lines(lines) => lines.sheet(width),
            Kind::Bars(bars) => bars.sheet(width),
            Kind::Heat(heat) => heat.sheet(width),
        }
    }

    /// Whether there is nothing to draw.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.0 {
            Kind::Lines(lines) => lines.is_empty(),
            Kind::Bars(bars) => bars.is_empty(),
            Kind::Heat(heat) => heat.is_empty(),
        }
    }

    /// A file of its own: wide, with its style within it.
    pub fn alone(&self) -> String {
        self.sheet(WIDE).alone()
    }

    /// Elements of a page that has [`style::SHEET`]: one for wide windows, and one for narrow ones.
    pub(crate) fn inline(&self) -> String {
        let wide = self.sheet(WIDE).inline("wide");
        wide + &self.sheet(NARROW).inline("narrow")
    }
}

/// A figure by name.
#[derive(Clone, PartialEq, Debug)]
pub struct Picture {
    pub name: String,
    pub plot: Plot,
}
