//! The bytes of a trace: files, decompressed as they are read.
//!
//! A file's first bytes show its compression, and not its name. Nothing is decompressed further than it is
//! read, and no decoder may use more than [`WINDOW_MAX`], so a hostile file costs time but not memory. A
//! compressed file that was cut is read to its last byte, and then an error reports the cut.

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::{Action, Status, XzStream};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder, errors};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Error, ErrorKind, Read};
use std::path::Path;

/// The furthest that a compressed stream may refer back: what `xz -9` and `zstd --long` need.
const WINDOW_MAX: u64 = 128 << 20;
const BUFFER: usize = 64 << 10;

const GZIP: &[u8] = &[0x1f, 0x8b];
const XZ: &[u8] = &[0xfd, b'7', b'z', b'X', b'Z', 0];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// Zstandard's skippable frames: these three bytes after one of 0x50 to 0x5f.
const ZSTD_SKIPPABLE: &[u8] = &[0x2a, 0x4d, 0x18];
/// The longest of these.
const MAGIC_BYTES: u64 = 6;

pub type Bytes = Box<dyn BufRead + Send>;

/// Opens a file and takes off its compression, if it has one.
pub fn open(path: &Path) -> io::Result<Bytes> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(Error::new(ErrorKind::IsADirectory, "it is a folder"));
    }
    Ok(decompress(Box::new(BufReader::with_capacity(BUFFER, file))))
}

/// The first bytes of an input.
pub struct Sample {
    /// Without a byte-order mark.
    pub start: Vec<u8>,
    /// Why there are no more of them, where that is not the input's end.
    pub failed: Option<Error>,
    /// All of the input, as if nothing had been read: an error among the first bytes comes again in its turn.
    pub bytes: Bytes,
}

/// Looks at the first bytes of an input.
pub fn sample(input: Bytes, count: u64) -> Sample {
    let mut sample = ahead(input, count);
    if sample.start.starts_with(MARK) {
        sample.start.drain(..MARK.len());
        sample.bytes.consume(MARK.len());
    }
    sample
}

fn ahead(mut input: Bytes, count: u64) -> Sample {
    let mut start = Vec::new();
    let ended = input.by_ref().take(count).read_to_end(&mut start);
    let failed = ended.err();
    let rest: Bytes = match &failed {
        None => input,
        Some(error) => {
            let again = Error::new(error.kind(), error.to_string());
            Box::new(BufReader::new(Failing(Some(again))))
        }
    };
    Sample {
        bytes: Box::new(Cursor::new(start.clone()).chain(rest)),
        start,
        failed,
    }
}

/// The byte-order mark that Windows' programs put before a text in UTF-8.
const MARK: &[u8] = "\u{feff}".as_bytes();

/// An input whose next read fails.
struct Failing(Option<Error>);

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

/// Whether an error says that a file was cut short: what came before is whole, and nothing follows.
pub(crate) fn is_truncated(error: &Error) -> bool {
    error.kind() == ErrorKind::UnexpectedEof
}

/// Takes off the compression that the first bytes tell of.
pub fn decompress(input: Bytes) -> Bytes {
    let Sample {
        start,
        bytes: input,
        ..
    } = ahead(input, MAGIC_BYTES);
    let decoder: Box<dyn Read + Send> = match Compression::of(&start) {
        Some(Compression::Gzip) => Box::new(MultiGzDecoder::new(input)),
        Some(Compression::Xz) => Box::new(XzStreams::new(input)),
        Some(Compression::Zstd) => Box::new(ZstdFrames::new(input)),
        None => return input,
    };
    Box::new(BufReader::with_capacity(BUFFER, decoder))
}

/// A compression that is read.
#[derive(Clone, Copy)]
pub enum Compression {
    Gzip,
    Xz,
    Zstd,
}

impl Compression {
    /// The one that the first bytes of a file have.
    pub fn of(start: &[u8]) -> Option<Compression> {
        if start.starts_with(GZIP) {
            Some(Compression::Gzip)
        } else if start.starts_with(XZ) {
            Some(Compression::Xz)
        } else if is_zstd(start) {
            Some(Compression::Zstd)
        } else {
            None
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Compression::Gzip => "gzip",
            Compression::Xz => "xz",
            Compression::Zstd => "zstd",
        }
    }
}

/// Compressions and containers that are not read, by their first bytes.
const FOREIGN: &[(&[u8], &str)] = &[
    (b"BZh", "bzip2"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"PK\x07\x08", "zip"),
    (b"7z\xbc\xaf\x27\x1c", "7-Zip"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"\x02\x21\x4c\x18", "lz4"),
    (b"\x1f\x9d\x90", "compress"),
    (b"LZIP", "lzip"),
    (b"Rar!", "rar"),
    (b"\x89LZO\0\r\n\x1a\n", "lzop"),
    (b"LRZI", "lrzip"),
    (b"\xff\x06\0\0sNaPpY", "snappy"),
    (b"MSCF\0\0\0\0", "cab"),
];

/// The name of a compression or a container that is not read.
pub fn foreign(start: &[u8]) -> Option<&'static str> {
    let mut known = FOREIGN.iter();
    let found = known.find(|(magic, _)| start.starts_with(magic));
    found
        .map(|(_, name)| *name)
        .or_else(|| is_lzma(start).then_some("lzma"))
}

/// Whether these are the first bytes of a file of `lzma`, which has no magic: the usual properties, then the size of the
/// dictionary as such programs choose it. The length of the content and a zero follow.
///
/// Lists of 32-bit block numbers begin with `5d 00 00 00` too, so the length decides for such a dictionary.
fn is_lzma(start: &[u8]) -> bool {
    let Some(&[0x5d, 0, 0, low, high]) = start.first_chunk() else {
        return false;
    };
    let dictionary = u16::from_le_bytes([low, high]);
    let is_size = matches!(dictionary >> dictionary.trailing_zeros().min(15), 1 | 3);
    let length = start.get(5..13).and_then(|length| length.try_into().ok());
    let is_length = |length| length == u64::MAX || length < 1 << 40;
    let is_followed = length.is_some_and(|length| is_length(u64::from_le_bytes(length)))
        && start.get(13) == Some(&0);
    is_size && (low != 0 || is_followed)
}

fn is_zstd(start: &[u8]) -> bool {
    let skippable = start.first().is_some_and(|byte| byte & 0xf0 == 0x50)
        && start.get(1..4) == Some(ZSTD_SKIPPABLE);
    start.starts_with(ZSTD) || skippable
}

/// All streams of an xz file, one after another.
struct XzStreams {
    input: Bytes,
    decoder: XzStream,
}

impl XzStreams {
    fn new(input: Bytes) -> XzStreams {
        let limit = u32::try_from(WINDOW_MAX >> 10).expect("131,072");
        XzStreams {
            input,
            decoder: XzStream::new_mem_limit(true, limit),
        }
    }
}

impl Read for XzStreams {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !buffer.is_empty() {
            let input = self.input.fill_buf()?;
            let action = match input.is_empty() {
                true => Action::Finish,
                false => Action::Run,
            };
            let done = self.decoder.process(input, buffer, action)?;
            self.input.consume(done.bytes_consumed);
            if done.bytes_produced > 0 {
                return Ok(done.bytes_produced);
            }
            if done.status == Status::StreamEnd {
                break;
            }
            if done.bytes_consumed == 0 && action == Action::Finish {
                return Err(cut());
            }
        }
        Ok(0)
    }
}

/// All frames of a Zstandard file, one after another, each with its checksum compared.
struct ZstdFrames {
    input: Bytes,
    decoder: FrameDecoder,
    within: bool,
    /// The file ended within this frame: its error comes when all that was decoded has been read.
    cut: bool,
}

/// An empty last block, and room for a checksum.
const ZSTD_LAST_BLOCK: &[u8] = &[1, 0, 0, 0, 0, 0, 0];

impl ZstdFrames {
    fn new(input: Bytes) -> ZstdFrames {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_MAX);
        ZstdFrames {
            input,
            decoder,
            within: false,
            cut: false,
        }
    }

    /// Begins the next frame; false at the end of the file.
    fn begin(&mut self) -> io::Result<bool> {
        if self.input.fill_buf()?.is_empty() {
            return Ok(false);
        }
        match self.decoder.reset(&mut self.input) {
            Ok(()) => self.within = true,
            Err(errors::FrameDecoderError::ReadFrameHeaderError(
                errors::ReadFrameHeaderError::SkipFrame { length, .. },
            )) => skip(&mut self.input, u64::from(length))?,
            Err(error) => return Err(cut_or_damaged(&error)),
        }
        Ok(true)
    }

    /// Decodes a block. Where the file ends within it, the frame ends before it: the decoder holds back a window's worth
    /// of bytes until then.
    fn decode(&mut self) -> io::Result<()> {
        let one = || BlockDecodingStrategy::UptoBlocks(1);
        let decoded = self.decoder.decode_blocks(&mut self.input, one());
        let Err(error) = decoded.map_err(|error| cut_or_damaged(&error)) else {
            return Ok(());
        };
        if !is_truncated(&error) {
            return Err(error);
        }
        self.cut = true;
        let ended = self.decoder.decode_blocks(ZSTD_LAST_BLOCK, one());
        ended.map(drop).map_err(|_| error)
    }

    fn end(&mut self) -> io::Result<()> {
        self.within = false;
        if self.cut {
            return Err(cut());
        }
        let stored = self.decoder.get_checksum_from_data();
        if stored.is_some() && stored != self.decoder.get_calculated_checksum() {
            return Err(damaged("the checksum of a zstd frame is wrong".into()));
        }
        Ok(())
    }
}

impl Read for ZstdFrames {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.within {
                if !self.begin()? {
                    return Ok(0);
                }
                continue;
            }
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            }
            if self.decoder.is_finished() {
                self.end()?;
                continue;
            }
            self.decode()?;
        }
    }
}

/// Which of the two it is stands in the cause.
fn cut_or_damaged(error: &(dyn std::error::Error + 'static)) -> Error {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<Error>().is_some_and(is_truncated) {
            return cut();
        }
        cause = error.source();
    }
    damaged(error.to_string())
}

fn cut() -> Error {
    Error::new(ErrorKind::UnexpectedEof, "the compressed file is cut")
}

fn damaged(reason: String) -> Error {
    Error::new(ErrorKind::InvalidData, reason)
}

/// Reads past this many bytes; the file may not end before.
pub fn skip(input: &mut impl Read, length: u64) -> io::Result<()> {
    let skipped = io::copy(&mut input.by_ref().take(length), &mut io::sink())?;
    if skipped < length {
        return Err(Error::new(ErrorKind::UnexpectedEof, "the file ends early"));
    }
    Ok(())
}

/// Fills the buffer as far as the file goes: less than its length only at the end.
pub fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use flate2::write::GzEncoder;
    use std::io::Write;

    fn read(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        decompress(Box::new(Cursor::new(bytes))).read_to_end(&mut all)?;
        Ok(all)
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(text, ruzstd::encoding::CompressionLevel::Fastest)
    }

    #[test]
    fn plain_bytes_stay_as_they_are() {
        assert_eq!(read(b"1 2 3".to_vec()).unwrap(), b"1 2 3");
        assert_eq!(read(Vec::new()).unwrap(), b"");
    }

    #[test]
    fn gzip_members_and_zstd_frames_follow_each_other() {
        let members = [gzip(b"one "), gzip(b"two")].concat();
        assert_eq!(read(members).unwrap(), b"one two");
        let skippable = [0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 9, 9];
        let frames = [zstd(b"one "), skippable.to_vec(), zstd(b"two")].concat();
        assert_eq!(read(frames).unwrap(), b"one two");
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn xz(text: &[u8]) -> Vec<u8> {
        let options = lzma_rust2::XzOptions::with_preset(1);
        let mut encoder = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    /// What is read before the error, and the error.
    fn read_cut(bytes: &[u8]) -> (Vec<u8>, io::Result<()>) {
        let mut all = Vec::new();
        let mut input = decompress(Box::new(Cursor::new(bytes.to_vec())));
        let ended = input.read_to_end(&mut all).map(drop);
        assert_eq!(input.read(&mut [0; 9]).ok().unwrap_or(0), 0, "it goes on");
        (all, ended)
    }

    #[test]
    fn of_a_cut_file_all_that_it_holds_is_read_and_the_cut_is_an_error() {
        let line = |index: u64| format!("{index},{}\n", index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let text: String = (0..20_000).map(line).collect();
        let text = text.as_bytes();
        for (name, whole) in [("gzip", gzip(text)), ("xz", xz(text)), ("zstd", zstd(text))] {
            assert_eq!(read(whole.clone()).unwrap(), text, "{name}");
            let mut before = 0;
            for cut in (7..whole.len())
                .step_by(whole.len() / 40)
                .chain(whole.len() - 12..whole.len())
            {
                let (found, ended) = read_cut(&whole[..cut]);
                assert!(is_truncated(&ended.expect_err(name)), "{name} cut at {cut}");
                assert!(
                    text.starts_with(&found) && found.len() >= before,
                    "{name} cut at {cut}"
                );
                // A block of zstd is at most 128 KiB, and only whole ones are decoded.
                let ratio = text.len() as f64 / whole.len() as f64;
                let least = cut as f64 * ratio - f64::from(140 << 10);
                assert!(
                    found.len() as f64 >= least,
                    "{name} cut at {cut}: {} bytes",
                    found.len()
                );
                before = found.len();
            }
            assert_eq!(
                before,
                text.len(),
                "{name}: only the end of the file is missing"
            );
        }
    }

    #[test]
    fn bytes_behind_a_compressed_file_are_another_one_or_an_error() {
        for (name, whole) in [
            ("gzip", gzip(b"one ")),
            ("xz", xz(b"one ")),
            ("zstd", zstd(b"one ")),
        ] {
            assert_eq!(read(whole.repeat(2)).unwrap(), b"one one ", "{name}");
            for behind in [&b"garbage"[..], &whole[..whole.len() - 1]] {
                assert!(read([&whole, behind].concat()).is_err(), "{name}");
            }
        }
    }

    /// Yields a byte at a time.
    struct Dripping(Vec<u8>);

    impl Read for Dripping {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = buffer.len().min(self.0.len()).min(1);
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0.drain(..count);
            Ok(count)
        }
    }

    #[test]
    fn a_compression_is_seen_however_few_bytes_come_at_a_time() {
        for whole in [gzip(b"one"), xz(b"one"), zstd(b"one"), b"one".to_vec()] {
            let mut all = Vec::new();
            let input = Box::new(BufReader::new(Dripping(whole)));
            decompress(input).read_to_end(&mut all).unwrap();
            assert_eq!(all, b"one");
        }
    }

    /// The first bytes of files of packers that are not read.
    pub(crate) const PACKED: &[(&[u8], &str)] = &[
        (b"BZh91AY&SY", "bzip2"),
        (b"PK\x03\x04\x14\0", "zip"),
        (b"7z\xbc\xaf\x27\x1c\0\x04", "7-Zip"),
        (b"\x1f\x9d\x90\x31", "compress"),
        (b"\x04\x22\x4d\x18\x64\x40", "lz4"),
        (b"\x02\x21\x4c\x18\x2b\0\0\0", "lz4"),
        (b"LZIP\x01\x0c", "lzip"),
        (b"Rar!\x1a\x07\x01\0", "rar"),
        (b"\x89LZO\0\r\n\x1a\n\x10", "lzop"),
        (b"LRZI\0\x06", "lrzip"),
        (b"\xff\x06\0\0sNaPpY", "snappy"),
        (b"MSCF\0\0\0\0", "cab"),
        // Written by `xz --format=lzma` at levels 0, 6 and 9, and with a known length.
        (b"\x5d\0\0\x04\0\xff\xff\xff\xff\xff\xff\xff\xff\0", "lzma"),
        (b"\x5d\0\0\x80\0\xff\xff\xff\xff\xff\xff\xff\xff\0", "lzma"),
        (b"\x5d\0\0\0\x04\xff\xff\xff\xff\xff\xff\xff\xff\0", "lzma"),
        (b"\x5d\0\0\0\x01\x87\xd6\x12\0\0\0\0\0\0", "lzma"),
        (b"\x5d\0\0\x80\0", "lzma"),
    ];

    #[test]
    fn packer_that_is_not_read_is_known_by_its_first_bytes() {
        for (start, name) in PACKED {
            assert_eq!(foreign(start), Some(*name), "{start:x?}");
            let cut = &start[..2];
            assert_eq!(foreign(cut), None, "{cut:x?}");
        }
    }

    #[test]
    fn list_of_block_numbers_is_not_taken_for_lzma() {
        for numbers in [
            [93, 94, 95, 96],
            [93, 0, 1, 2],
            [93, 4, 5, 6],
            [93, 1, 0, 1],
        ] {
            let bytes: Vec<u8> = numbers.into_iter().flat_map(u32::to_le_bytes).collect();
            assert_eq!(foreign(&bytes), None, "{numbers:?}");
        }
    }

    #[test]
    fn a_window_beyond_the_limit_is_refused() {
        // Frame header: no single segment, window descriptor of 2^(10 + 31).
        let hostile = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xf8, 1, 0, 0];
        assert!(read(hostile.to_vec()).is_err());
    }
}
