//! Text for SVG and HTML.

use restripe_array::shown;

/// Text of one line, with the marks of XML replaced.
pub(crate) fn escape(text: &str) -> String {
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
