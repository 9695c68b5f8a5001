//! The bytes of a trace: files, decompressed as they are read.
//!
//! What a file is compressed with is told by its first bytes, not by its name. Nothing is decompressed further than it
//! is read, and no decoder may ask for more than [`WINDOW_MAX`], so a hostile file costs time but not memory.

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
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

pub type Bytes = Box<dyn BufRead + Send>;

/// Opens a file and takes off its compression, if it has one.
pub fn open(path: &Path) -> io::Result<Bytes> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(Error::new(ErrorKind::IsADirectory, "it is a folder"));
    }
    decompress(Box::new(BufReader::with_capacity(BUFFER, file)))
}

/// The first bytes of an input, and the input as if they had not been read: an error among them comes again in its turn.
pub fn peek(mut input: Bytes, count: u64) -> (Vec<u8>, Bytes) {
    let mut start = Vec::new();
    let ended = input.by_ref().take(count).read_to_end(&mut start);
    let rest: Bytes = match ended {
        Ok(_) => input,
        Err(error) => Box::new(BufReader::new(Failing(Some(error)))),
    };
    if start.starts_with(MARK) {
        start.drain(..MARK.len());
    }
    (start.clone(), Box::new(Cursor::new(start).chain(rest)))
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
pub fn is_cut(error: &Error) -> bool {
    error.kind() == ErrorKind::UnexpectedEof
}

/// Takes off the compression that the first bytes tell of.
pub fn decompress(mut input: Bytes) -> io::Result<Bytes> {
    let start = input.fill_buf()?;
    let decoder: Box<dyn Read + Send> = if start.starts_with(GZIP) {
        Box::new(MultiGzDecoder::new(input))
    } else if start.starts_with(XZ) {
        let limit = u32::try_from(WINDOW_MAX >> 10).expect("131,072");
        Box::new(XzReader::new_mem_limit(input, true, limit))
    } else if is_zstd(start) {
        Box::new(ZstdFrames::new(input))
    } else {
        return Ok(input);
    };
    Ok(Box::new(BufReader::with_capacity(BUFFER, decoder)))
}

fn is_zstd(start: &[u8]) -> bool {
    let skippable = start.first().is_some_and(|byte| byte & 0xf0 == 0x50)
        && start.get(1..4) == Some(ZSTD_SKIPPABLE);
    start.starts_with(ZSTD) || skippable
}

/// All frames of a Zstandard file, one after another, each with its checksum compared.
struct ZstdFrames {
    input: Bytes,
    decoder: FrameDecoder,
    within: bool,
}

impl ZstdFrames {
    fn new(input: Bytes) -> ZstdFrames {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_MAX);
        ZstdFrames {
            input,
            decoder,
            within: false,
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
            Err(error) => return Err(damaged(error.to_string())),
        }
        Ok(true)
    }

    fn end(&mut self) -> io::Result<()> {
        self.within = false;
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
            self.decoder
                .decode_blocks(&mut self.input, BlockDecodingStrategy::UptoBlocks(1))
                .map_err(|error| cut_or_damaged(&error))?;
        }
    }
}

/// Which of the two it is stands in the cause.
fn cut_or_damaged(error: &(dyn std::error::Error + 'static)) -> Error {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<Error>().is_some_and(is_cut) {
            return Error::new(ErrorKind::UnexpectedEof, "the compressed file is cut");
        }
        cause = error.source();
    }
    damaged(error.to_string())
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
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    fn read(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        decompress(Box::new(Cursor::new(bytes)))?.read_to_end(&mut all)?;
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
        let mut members = Vec::new();
        for text in ["one ", "two"] {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(text.as_bytes()).unwrap();
            members.extend(encoder.finish().unwrap());
        }
        assert_eq!(read(members).unwrap(), b"one two");
        let skippable = [0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 9, 9];
        let frames = [zstd(b"one "), skippable.to_vec(), zstd(b"two")].concat();
        assert_eq!(read(frames).unwrap(), b"one two");
    }

    #[test]
    fn a_cut_file_is_an_error_not_an_end() {
        let whole = zstd(&vec![7; 300_000]);
        assert!(read(whole[..whole.len() - 6].to_vec()).is_err());
    }

    #[test]
    fn a_window_beyond_the_limit_is_refused() {
        // Frame header: no single segment, window descriptor of 2^(10 + 31).
        let hostile = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xf8, 1, 0, 0];
        assert!(read(hostile.to_vec()).is_err());
    }
}
