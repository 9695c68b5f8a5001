//! The members of a tar archive, one after another, without unpacking it: traces of several files travel in archives.
//!
//! Only what is needed to find regular members: names of the old header, GNU and pax headers skipped. Sizes are
//! believed only as far as the archive goes.

use super::source::{self, Bytes};
use std::io::{self, Error, ErrorKind, Read};

const BLOCK: usize = 512;

/// The magic stands here in the header of a member.
const MAGIC_AT: usize = 257;
const MAGIC: &[u8] = b"ustar";

/// Reads the member that it stands on; ends where the member ends.
pub struct Archive {
    input: Bytes,
    /// Bytes of the current member not yet read.
    left: u64,
    /// Bytes of padding behind it.
    padding: u64,
    /// The name of the current member, if it is to be told again.
    held: Option<String>,
}

/// Whether these first bytes of a file are those of an archive.
pub fn is_archive(start: &[u8]) -> bool {
    start.get(MAGIC_AT..MAGIC_AT + MAGIC.len()) == Some(MAGIC)
}

impl Archive {
    pub fn new(input: Bytes) -> Archive {
        Archive {
            input,
            left: 0,
            padding: 0,
            held: None,
        }
    }

    /// The current member is the next one once more.
    pub fn hold(&mut self, name: String) {
        self.held = Some(name);
    }

    /// Nothing more is read of the current member; an archive that ends in it has no further one.
    pub fn end_member(&mut self) {
        if source::skip(&mut self.input, self.left + self.padding).is_err() {
            self.input = Box::new(io::empty());
        }
        (self.left, self.padding) = (0, 0);
    }

    /// Goes on to the next regular member and tells its name; `None` at the end.
    pub fn next_member(&mut self) -> io::Result<Option<String>> {
        if let Some(name) = self.held.take() {
            return Ok(Some(name));
        }
        loop {
            source::skip(&mut self.input, self.left + self.padding)?;
            (self.left, self.padding) = (0, 0);
            let mut header = [0; BLOCK];
            let filled = source::fill(&mut self.input, &mut header)?;
            if filled == 0 || header.iter().all(|byte| *byte == 0) {
                return Ok(None);
            }
            if filled < BLOCK || !is_archive(&header) || !sum_is_right(&header) {
                return Err(Error::new(
                    ErrorKind::InvalidData,
                    "the header of a tar member is damaged",
                ));
            }
            self.left = octal(&header[124..136])?;
            self.padding = self.left.next_multiple_of(BLOCK as u64) - self.left;
            if matches!(header[156], b'0' | 0) {
                return Ok(Some(text(&header[..100])));
            }
        }
    }
}

impl Read for Archive {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.by_ref().take(self.left).read(buffer)?;
        if count == 0 && self.left > 0 && !buffer.is_empty() {
            return Err(Error::new(
                ErrorKind::UnexpectedEof,
                "the archive ends within a member",
            ));
        }
        self.left -= count as u64;
        Ok(count)
    }
}

fn sum_is_right(header: &[u8; BLOCK]) -> bool {
    let counted = |(index, byte): (usize, &u8)| match index {
        148..156 => u64::from(b' '),
        _ => u64::from(*byte),
    };
    octal(&header[148..156]).ok() == Some(header.iter().enumerate().map(counted).sum())
}

fn text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&field[..end.unwrap_or(field.len())]).into_owned()
}

/// At most twelve digits, so the value stays below 2^36.
fn octal(field: &[u8]) -> io::Result<u64> {
    let text = text(field);
    u64::from_str_radix(text.trim(), 8)
        .map_err(|_| Error::new(ErrorKind::InvalidData, "a size in the archive is no number"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::io::Cursor;

    /// An archive of these members, as GNU tar writes it.
    pub(crate) fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
        let mut all = Vec::new();
        for (name, content) in members {
            let mut header = [0; BLOCK];
            header[..name.len()].copy_from_slice(name.as_bytes());
            header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
            header[148..156].fill(b' ');
            header[156] = b'0';
            header[257..265].copy_from_slice(b"ustar  \0");
            let sum: u64 = header.iter().map(|byte| u64::from(*byte)).sum();
            header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
            all.extend(header);
            all.extend(*content);
            all.resize(all.len().next_multiple_of(BLOCK), 0);
        }
        all.extend([0; 2 * BLOCK]);
        all
    }

    #[test]
    fn members_are_read_in_turn_whole_or_in_part() {
        let bytes = archive(&[("a", b"first"), ("b", &[7; 1000]), ("c", b"")]);
        let mut archive = Archive::new(Box::new(Cursor::new(bytes)));
        assert_eq!(archive.next_member().unwrap().as_deref(), Some("a"));
        let mut content = Vec::new();
        archive.read_to_end(&mut content).unwrap();
        assert_eq!(content, b"first");
        assert_eq!(archive.next_member().unwrap().as_deref(), Some("b"));
        assert_eq!(archive.next_member().unwrap().as_deref(), Some("c"));
        assert_eq!(archive.next_member().unwrap(), None);
    }

    #[test]
    fn a_size_beyond_the_archive_is_an_error() {
        let mut bytes = archive(&[("a", &[1; 2000])]);
        bytes.truncate(1024);
        let mut archive = Archive::new(Box::new(Cursor::new(bytes)));
        archive.next_member().unwrap();
        assert!(archive.read_to_end(&mut Vec::new()).is_err());
    }
}
