//! The members of a tar archive, one after another, without unpacking it: traces of several files are
//! published as archives.
//!
//! Only regular members are looked for: names are read from the old header, GNU headers are skipped, and pax
//! headers are searched for the records of a sparse file. Sizes are trusted up to the archive's end only.
//! Archives may follow each other (`tar --ignore-zeros`). An archive that does not end with a block of zeros
//! was cut.

use super::source::{self, Bytes};
use std::io::{self, Error, ErrorKind, Read};

const BLOCK: usize = 512;

/// The magic stands here in the header of a member.
const MAGIC_AT: usize = 257;
const MAGIC: &[u8] = b"ustar";

/// A pax header has records of this name for a sparse file. Its member is of the regular type.
const SPARSE_RECORD: &[u8] = b"GNU.sparse.";
/// The folder in which a sparse file is, for programs that cannot read pax headers.
const SPARSE_FOLDER: &str = "GNUSparseFile.";
/// The most that is searched of a pax header.
const PAX_BYTES_MAX: u64 = 1 << 20;

/// Reads the member that it stands on; ends where the member ends.
pub struct Archive {
    input: Bytes,
    /// Bytes of the current member not yet read.
    left: u64,
    /// Bytes of padding behind it.
    padding: u64,
    /// The name of the current member, if it is to be told again.
    held: Option<String>,
    /// The last block was one of zeros, as at an archive's end.
    at_mark: bool,
    broken: Option<Broken>,
}

/// Why nothing more of an archive can be read. That is an error once, and the archive's end from then on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// All that is there was read.
    Cut,
    Damaged,
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
            at_mark: false,
            broken: None,
        }
    }

    pub fn broken(&self) -> Option<Broken> {
        self.broken
    }

    fn give_up(&mut self, error: &Error) {
        self.broken = Some(match source::is_truncated(error) {
            true => Broken::Cut,
            false => Broken::Damaged,
        });
        self.input = Box::new(io::empty());
        (self.left, self.padding) = (0, 0);
    }

    /// The current member is the next one once more.
    pub fn hold(&mut self, name: String) {
        self.held = Some(name);
    }

    /// Nothing more is read of the current member; an archive that ends in it has no further one.
    pub fn end_member(&mut self) {
        if let Err(error) = self.skip_member() {
            self.give_up(&error);
        }
    }

    /// Goes on to the next regular member and tells its name; `None` at the end.
    pub fn next_member(&mut self) -> io::Result<Option<String>> {
        if let Some(name) = self.held.take() {
            return Ok(Some(name));
        }
        if self.broken.is_some() {
            return Ok(None);
        }
        let found = self.find_member();
        if let Err(error) = &found {
            self.give_up(error);
        }
        found
    }

    fn find_member(&mut self) -> io::Result<Option<String>> {
        let mut is_sparse = false;
        loop {
            self.skip_member()?;
            let Some(header) = self.next_header()? else {
                return Ok(None);
            };
            self.left = octal(&header[124..136])?;
            self.padding = self.left.next_multiple_of(BLOCK as u64) - self.left;
            let name = text(&header[..100]);
            match header[156] {
                b'S' | b'M' => return Err(sparse(&name)),
                b'0' | b'7' | 0 if is_sparse || is_in_sparse_folder(&header) => {
                    return Err(sparse(&name));
                }
                b'0' | b'7' | 0 => return Ok(Some(name)),
                b'x' => is_sparse = self.has_sparse_record()?,
                // Long names are between a pax header and its member.
                b'L' | b'K' => {}
                _ => is_sparse = false,
            }
        }
    }

    /// Whether the pax header that the archive stands at is that of a sparse file.
    fn has_sparse_record(&mut self) -> io::Result<bool> {
        let mut records = Vec::new();
        self.by_ref()
            .take(PAX_BYTES_MAX)
            .read_to_end(&mut records)?;
        let mut at = records.windows(SPARSE_RECORD.len());
        Ok(at.any(|window| window == SPARSE_RECORD))
    }

    fn skip_member(&mut self) -> io::Result<()> {
        let skipped = source::skip(&mut self.input, self.left + self.padding);
        skipped.map_err(|error| match source::is_truncated(&error) {
            true => cut("it ends within a member"),
            false => error,
        })?;
        (self.left, self.padding) = (0, 0);
        Ok(())
    }

    /// The next block that is not one of zeros; `None` at the end.
    fn next_header(&mut self) -> io::Result<Option<[u8; BLOCK]>> {
        loop {
            let mut header = [0; BLOCK];
            let filled = source::fill(&mut self.input, &mut header)?;
            let is_zero = header.iter().all(|byte| *byte == 0);
            if filled < BLOCK && is_zero && self.at_mark {
                return Ok(None);
            }
            if filled < BLOCK {
                return Err(cut("it does not end with a block of zeros"));
            }
            if !is_zero && is_archive(&header) && sum_is_right(&header) {
                self.at_mark = false;
                return Ok(Some(header));
            }
            if !is_zero {
                let reason = match self.at_mark {
                    true => "bytes that are no archive stand behind the archive's end",
                    false => "the header of a tar member is damaged",
                };
                return Err(Error::new(ErrorKind::InvalidData, reason));
            }
            self.at_mark = true;
        }
    }
}

impl Read for Archive {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match self.input.by_ref().take(self.left).read(buffer) {
            Ok(0) if self.left > 0 && !buffer.is_empty() => Err(cut("it ends within a member")),
            other => other,
        };
        match &read {
            Ok(count) => self.left -= *count as u64,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => self.give_up(error),
        }
        read
    }
}

fn sparse(name: &str) -> Error {
    let reason = format!("{name} is stored in parts (sparse): unpack the archive");
    Error::new(ErrorKind::InvalidData, reason)
}

/// Whether the name, or the folder's part of a long one, has the folder of sparse files.
fn is_in_sparse_folder(header: &[u8; BLOCK]) -> bool {
    let prefix = text(&header[345..500]);
    text(&header[..100]).contains(SPARSE_FOLDER) || prefix.contains(SPARSE_FOLDER)
}

fn cut(how: &str) -> Error {
    Error::new(
        ErrorKind::UnexpectedEof,
        format!("the archive is cut: {how}"),
    )
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
        let typed = members
            .iter()
            .map(|(name, content)| (b'0', *name, *content));
        typed_archive(&typed.collect::<Vec<_>>())
    }

    /// The same of members with a type each.
    pub(crate) fn typed_archive(members: &[(u8, &str, &[u8])]) -> Vec<u8> {
        let mut all = Vec::new();
        for (kind, name, content) in members {
            let mut header = [0; BLOCK];
            header[..name.len()].copy_from_slice(name.as_bytes());
            header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
            header[148..156].fill(b' ');
            header[156] = *kind;
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

    /// The names of the members, and the error that ends them.
    fn names(bytes: Vec<u8>) -> (Vec<String>, Option<Error>) {
        let mut archive = Archive::new(Box::new(Cursor::new(bytes)));
        let mut names = Vec::new();
        loop {
            match archive.next_member() {
                Ok(Some(name)) => names.push(name),
                Ok(None) => return (names, None),
                Err(error) => {
                    // The error comes once. Further reads find the end.
                    assert!(archive.broken().is_some());
                    assert_eq!(archive.next_member().unwrap(), None);
                    assert_eq!(archive.read(&mut [0; 9]).unwrap(), 0);
                    return (names, Some(error));
                }
            }
        }
    }

    #[test]
    fn a_cut_anywhere_before_the_last_block_is_an_error_once() {
        let bytes = archive(&[("a", &[1; 700]), ("b", &[2; 512])]);
        for cut in 0..bytes.len() {
            let (names, error) = names(bytes[..cut].to_vec());
            let is_whole = cut >= bytes.len() - BLOCK;
            assert_eq!(error.is_none(), is_whole, "cut at {cut}");
            assert!(
                error.is_none_or(|error| source::is_truncated(&error)),
                "cut at {cut}"
            );
            assert_eq!(
                names.len(),
                usize::from(cut >= 512) + usize::from(cut >= 2048)
            );
        }
    }

    #[test]
    fn what_stands_behind_an_archive_is_another_one_or_an_error() {
        let one = archive(&[("a", b"x")]);
        let two = archive(&[("b", b"y")]);
        let (found, error) = names([one.clone(), vec![0; 20 * BLOCK], two].concat());
        assert!(found == ["a", "b"] && error.is_none());
        let (found, error) = names([one.clone(), vec![0; 100]].concat());
        assert!(found == ["a"] && error.is_none());
        let (_, error) = names([one, vec![b'x'; 2 * BLOCK]].concat());
        assert!(
            error
                .unwrap()
                .to_string()
                .contains("behind the archive's end")
        );
    }

    #[test]
    fn a_member_that_is_stored_in_parts_is_not_passed_over() {
        let pax = |record: &str| format!("{} {record}\n", record.len() + 4);
        let mtime = pax("mtime=1700000000.5");
        let pax = |record: &str| format!("{mtime}{}", pax(record));
        let (oldest, newest) = (pax("GNU.sparse.size=9"), pax("GNU.sparse.major=1"));
        type Typed<'a> = (u8, &'a str, &'a [u8]);
        let cases: [&[Typed]; 6] = [
            &[(b'S', "a", b"x")],
            &[(b'M', "a", b"x")],
            &[(b'0', "./GNUSparseFile.17/a", b"1\n0\n")],
            &[
                (b'x', "./PaxHeaders/a", oldest.as_bytes()),
                (b'0', "a", b"x"),
            ],
            &[(b'x', "./PaxHeaders/a", newest.as_bytes()), (0, "a", b"x")],
            &[
                (b'x', "./PaxHeaders/a", newest.as_bytes()),
                (b'L', "././@LongLink", b"long"),
                (b'0', "a", b"x"),
            ],
        ];
        for case in cases {
            let (found, error) = names(typed_archive(case));
            let error = error.expect("it is sparse").to_string();
            assert!(error.contains("sparse") && found.is_empty(), "{error}");
        }
    }

    #[test]
    fn pax_header_is_of_the_next_member_alone() {
        let sparse = b"22 GNU.sparse.major=1\n";
        let times = b"23 mtime=1700000000.50\n";
        let bytes = typed_archive(&[
            (b'x', "./PaxHeaders/a", times),
            (b'0', "a", b"x"),
            (b'x', "./PaxHeaders/d", sparse),
            (b'5', "d", b""),
            (b'0', "b", b"y"),
        ]);
        let (found, error) = names(bytes);
        assert!(found == ["a", "b"] && error.is_none(), "{error:?}");
    }
}
