//! Text from outside, as it is shown: messages of servers, names in superblocks, paths, traces, names that clients give.
//!
//! A terminal obeys control characters, and a log's reader takes a line feed for the end of a line. So each character
//! that moves a cursor, ends a line or changes the order of letters is shown as its number, in the form that JSON
//! has for it: `\n`, `\u001b`. Such a text is one line, and what stands around it keeps its meaning.

use core::fmt::{self, Write};

/// Shows a text from outside in one line.
pub fn shown(text: &str) -> Shown<'_> {
    Shown { text, lines: false }
}

/// Shows a text of several lines: line feeds and tabs stay, and everything else is shown as by [`shown`]. For a sink
/// whose texts are the program's own, with [`shown`] inside them.
pub fn shown_lines(text: &str) -> Shown<'_> {
    Shown { text, lines: true }
}

#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    text: &'a str,
    lines: bool,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut plain = 0;
        for (at, c) in self.text.char_indices() {
            let stays = self.lines && matches!(c, '\n' | '\t');
            if stays || !acts(c) {
                continue;
            }
            f.write_str(&self.text[plain..at])?;
            number(c, f)?;
            plain = at + c.len_utf8();
        }
        f.write_str(&self.text[plain..])
    }
}

/// Whether a character acts on what shows it, or cannot be seen.
fn acts(c: char) -> bool {
    let invisible = matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    c.is_control() || invisible
}

fn number(c: char, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match c {
        '\n' => f.write_str("\\n"),
        '\r' => f.write_str("\\r"),
        '\t' => f.write_str("\\t"),
        c => {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                f.write_char('\\')?;
                write!(f, "u{unit:04x}")?;
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn what_acts_is_a_number_and_the_rest_stays() {
        for (text, line) in [
            ("/dev/disk/by-id/ärger \"x\" \\ 'y'", None),
            ("日本 e\u{301} 🦀", None),
            (
                "\u{1b}]0;owned\u{7}\u{1b}[2J",
                Some("\\u001b]0;owned\\u0007\\u001b[2J"),
            ),
            ("a\nb\tc\rd", Some("a\\nb\\tc\\rd")),
            ("\u{9b}2J\u{7f}\0", Some("\\u009b2J\\u007f\\u0000")),
            ("\u{202e}gmi.exe", Some("\\u202egmi.exe")),
            ("\u{e0041}", Some("\\udb40\\udc41")),
        ] {
            assert_eq!(shown(text).to_string(), line.unwrap_or(text));
        }
    }

    #[test]
    fn lines_keep_their_ends_and_nothing_else() {
        let shown = shown_lines("a\n\tb\u{1b}[2J\r\n").to_string();
        assert_eq!(shown, "a\n\tb\\u001b[2J\\r\n");
    }
}
