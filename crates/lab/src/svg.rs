//! Elements of SVG, for [`crate::chart`] and the figures of experiments. A point is (x, y).

use restripe_array::shown;
use std::fmt::Write;

// Writing to a string cannot fail, here and below.
pub fn line(out: &mut String, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    let _ = writeln!(
        out,
        "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
    );
}

/// With these attributes, besides its points.
pub fn polyline(out: &mut String, attributes: &str, points: impl Iterator<Item = (f64, f64)>) {
    let _ = write!(out, "<polyline {attributes} points=\"");
    for (x, y) in points {
        let _ = write!(out, "{x:.1},{y:.1} ");
    }
    out.push_str("\"/>\n");
}

pub fn text(out: &mut String, (x, y): (f64, f64), anchor: &str, content: &str) {
    let content = escape(content);
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{content}</text>"
    );
}

/// Text of one line for HTML and SVG.
pub fn escape(text: &str) -> String {
    let shown = shown(text).to_string();
    let marks = [
        ('&', "&amp;"),
        ('<', "&lt;"),
        ('>', "&gt;"),
        ('"', "&quot;"),
    ];
    let replace = |text: String, (mark, by)| text.replace(mark, by);
    marks.into_iter().fold(shown, replace)
}
