//! Rust source as tokens: what is a name, a literal, a comment or a mark. No syntax beyond that.

/// What a token is. Numbers count as words; characters and lifetimes as `Other`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Word,
    /// A string literal, with its quotes.
    Text,
    Comment,
    /// Punctuation: one character, or one of `::`, `->` and `=>`.
    Mark,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    pub kind: Kind,
    pub text: &'a str,
    /// The line where the token starts, counted from 1.
    pub line: usize,
}

impl Token<'_> {
    pub fn is(&self, text: &str) -> bool {
        self.text == text && matches!(self.kind, Kind::Word | Kind::Mark)
    }
}

pub fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut reader = Reader {
        source,
        bytes: source.as_bytes(),
        at: 0,
        line: 1,
    };
    let mut found = Vec::new();
    while reader.at < reader.bytes.len() {
        let (start, line) = (reader.at, reader.line);
        let Some(kind) = reader.next_kind() else {
            continue;
        };
        let text = &source[start..reader.at];
        found.push(Token { kind, text, line });
    }
    found
}

struct Reader<'a> {
    source: &'a str,
    bytes: &'a [u8],
    at: usize,
    line: usize,
}

impl Reader<'_> {
    /// Passes over one token, or over one byte of space.
    fn next_kind(&mut self) -> Option<Kind> {
        let rest = &self.bytes[self.at..];
        if let Some((quote, hashes)) = raw_string(rest) {
            let end = format!("\"{}", "#".repeat(hashes));
            self.pass(quote + 1);
            self.pass_until(&end);
            return Some(Kind::Text);
        }
        match rest {
            [b'/', b'/', ..] => {
                let length = rest.iter().position(|byte| *byte == b'\n');
                self.pass(length.unwrap_or(rest.len()));
                Some(Kind::Comment)
            }
            [b'/', b'*', ..] => {
                self.block_comment();
                Some(Kind::Comment)
            }
            [b'"', ..] | [b'b' | b'c', b'"', ..] => {
                self.pass(if rest[0] == b'"' { 1 } else { 2 });
                self.string();
                Some(Kind::Text)
            }
            [b'b', b'\'', ..] => {
                self.pass(1);
                self.character();
                Some(Kind::Other)
            }
            [b'\'', ..] => {
                self.character();
                Some(Kind::Other)
            }
            [byte, ..] if is_word(*byte) => {
                let length = rest.iter().position(|byte| !is_word(*byte));
                self.pass(length.unwrap_or(rest.len()));
                Some(Kind::Word)
            }
            [b':', b':', ..] | [b'-' | b'=', b'>', ..] => {
                self.pass(2);
                Some(Kind::Mark)
            }
            [byte, ..] => {
                let space = byte.is_ascii_whitespace();
                self.pass(1);
                (!space).then_some(Kind::Mark)
            }
            [] => None,
        }
    }

    fn pass(&mut self, length: usize) {
        let end = (self.at + length).min(self.bytes.len());
        self.line += self.bytes[self.at..end]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        self.at = end;
    }

    fn pass_until(&mut self, end: &str) {
        let length = self.source[self.at..].find(end);
        self.pass(length.map_or(self.bytes.len(), |length| length + end.len()));
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        while self.at < self.bytes.len() {
            match self.bytes[self.at..] {
                [b'/', b'*', ..] => {
                    depth += 1;
                    self.pass(2);
                }
                [b'*', b'/', ..] => {
                    depth -= 1;
                    self.pass(2);
                    if depth == 0 {
                        return;
                    }
                }
                _ => self.pass(1),
            }
        }
    }

    /// To the end of a string whose opening quote is passed.
    fn string(&mut self) {
        while self.at < self.bytes.len() {
            match self.bytes[self.at] {
                b'\\' => self.pass(2),
                b'"' => return self.pass(1),
                _ => self.pass(1),
            }
        }
    }

    /// A character, or else the quote and the name of a lifetime.
    fn character(&mut self) {
        let mut after = self.source[self.at + 1..].chars();
        match (after.next(), after.next()) {
            (Some('\\'), _) => {
                self.pass(3);
                self.pass_until("'");
            }
            (Some(one), Some('\'')) => self.pass(2 + one.len_utf8()),
            _ => {
                self.pass(1);
                let name = self.bytes[self.at..].iter().take_while(|b| is_word(**b));
                self.pass(name.count());
            }
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// The position of the quote, and how many `#` stand before it, if a raw string starts here.
fn raw_string(rest: &[u8]) -> Option<(usize, usize)> {
    let prefix = match rest {
        [b'r', ..] => 1,
        [b'b' | b'c', b'r', ..] => 2,
        _ => return None,
    };
    let hashes = rest[prefix..].iter().take_while(|b| **b == b'#').count();
    (rest.get(prefix + hashes) == Some(&b'"')).then_some((prefix + hashes, hashes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(source: &str) -> Vec<(Kind, &str, usize)> {
        tokens(source)
            .iter()
            .map(|token| (token.kind, token.text, token.line))
            .collect()
    }

    #[test]
    fn comments_and_literals_are_not_words() {
        let source =
            "a // b\n/* c /* d */\n e */ \"f \\\" g\" r#\"h \" i\"# b'j' 'k' '\\n' '\\'' l";
        assert_eq!(
            kinds(source),
            [
                (Kind::Word, "a", 1),
                (Kind::Comment, "// b", 1),
                (Kind::Comment, "/* c /* d */\n e */", 2),
                (Kind::Text, "\"f \\\" g\"", 3),
                (Kind::Text, "r#\"h \" i\"#", 3),
                (Kind::Other, "b'j'", 3),
                (Kind::Other, "'k'", 3),
                (Kind::Other, "'\\n'", 3),
                (Kind::Other, "'\\''", 3),
                (Kind::Word, "l", 3),
            ]
        );
    }

    #[test]
    fn a_lifetime_ends_with_its_name() {
        assert_eq!(
            kinds("&'a str")[1..],
            [(Kind::Other, "'a", 1), (Kind::Word, "str", 1)]
        );
    }

    #[test]
    fn double_marks_are_one_token() {
        let marks: Vec<&str> = tokens("a::b -> c => d")
            .iter()
            .filter(|token| token.kind == Kind::Mark)
            .map(|token| token.text)
            .collect();
        assert_eq!(marks, ["::", "->", "=>"]);
    }
}
