//! Widths of texts, for lines that fit and texts that do not meet.
//!
//! Which font a reader's system has is unknown. The widths are those of DejaVu Sans, one of the widest.

/// How a text is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Letters {
    Title,
    Group,
    Normal,
    Small,
}

impl Letters {
    /// Height of the letters, in pixels.
    pub(crate) fn size(self) -> f64 {
        match self {
            Letters::Title => 15.0,
            Letters::Group | Letters::Normal => 13.0,
            Letters::Small => 12.0,
        }
    }

    /// From one line of a text to the next.
    pub(crate) fn line(self) -> f64 {
        self.size() + 4.0
    }

    pub(crate) fn class(self) -> &'static str {
        match self {
            Letters::Title => "title",
            Letters::Group => "group",
            Letters::Normal => "",
            Letters::Small => "small",
        }
    }

    fn bold(self) -> bool {
        matches!(self, Letters::Title | Letters::Group)
    }

    /// Width of a text, in pixels.
    pub(crate) fn width(self, text: &str) -> f64 {
        let thousandths: u32 = text.chars().map(thousandths).sum();
        let bold = if self.bold() { 1.1 } else { 1.0 };
        f64::from(thousandths) / 1000.0 * self.size() * bold
    }

    /// The text, cut with an ellipsis if it is wider than this.
    pub(crate) fn fitted(self, text: &str, width: f64) -> String {
        if self.width(text) <= width {
            return text.to_string();
        }
        let mut start = text.to_string();
        while start.pop().is_some() {
            let cut = format!("{}…", start.trim_end());
            if self.width(&cut) <= width {
                return cut;
            }
        }
        String::new()
    }

    /// The lines of a text, none wider than this; a word that is wider alone is cut.
    pub(crate) fn wrapped(self, text: &str, width: f64) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for word in text.split_whitespace() {
            let longer = lines.last().map(|line| format!("{line} {word}"));
            match longer.filter(|longer| self.width(longer) <= width) {
                Some(longer) => {
                    lines.pop();
                    lines.push(longer);
                }
                None => lines.push(self.fitted(word, width)),
            }
        }
        lines
    }
}

/// Of the font's size.
fn thousandths(letter: char) -> u32 {
    match letter {
        'i' | 'j' | 'l' | '\'' => 280,
        ' ' | '.' | ',' => 320,
        'I' | 'J' => 300,
        'f' | 't' | ':' | ';' | '/' | '|' | '-' | '!' => 390,
        '(' | ')' | '[' | ']' => 395,
        'r' | 's' | '"' => 490,
        'c' | 'k' | 'v' | 'x' | 'y' | 'z' | 'L' | 'F' | '_' => 590,
        'm' | '%' | '…' => 980,
        'w' | '+' | '<' | '=' | '>' | '~' | '×' => 830,
        'W' => 990,
        'M' => 865,
        'D' | 'G' | 'H' | 'N' | 'O' | 'Q' | 'U' => 780,
        'A' | 'B' | 'C' | 'K' | 'R' | 'V' | 'X' => 700,
        '\u{2e80}'.. => 1000,
        _ => 637,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_and_keep_every_word() {
        let text = "share of requests moved to the surrogate during the rebuild, %";
        for width in [60.0, 120.0, 350.0, 1000.0] {
            let lines = Letters::Normal.wrapped(text, width);
            let widest = lines.iter().map(|line| Letters::Normal.width(line));
            assert!(widest.fold(0.0, f64::max) <= width);
            if width >= 120.0 {
                assert_eq!(lines.join(" "), text);
            }
        }
    }

    #[test]
    fn text_that_is_too_wide_ends_in_an_ellipsis() {
        let cut = Letters::Small.fitted("trace:/somewhere/far/away.blktrace", 80.0);
        assert!(cut.ends_with('…') && Letters::Small.width(&cut) <= 80.0);
        assert_eq!(Letters::Small.fitted("fin1", 80.0), "fin1");
    }
}
