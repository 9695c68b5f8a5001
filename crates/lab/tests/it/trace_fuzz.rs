//! Every reader on damaged and random bytes: an error or requests that keep their promises, never a panic, never without
//! end. Deterministic; `RESTRIPE_DEEP` runs fifty times as many.

use restripe_lab::trace::{
    FORMATS, Features, Format, LENGTH_MAX, Op, Options, Request, TraceWriter, read,
};
use std::io::Cursor;
use std::path::Path;

/// No input here is larger than 16 KiB, and no format packs a request into less than a bit.
const REQUESTS_MAX: usize = 1 << 17;

/// xorshift64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

fn try_reading(bytes: &[u8], format: Option<&'static Format>) {
    for skip_bad in [false, true] {
        let options = Options {
            format,
            skip_bad,
            ..Options::default()
        };
        let input = Box::new(Cursor::new(bytes.to_vec()));
        let Ok(trace) = read(Path::new("fuzz"), input, &options) else {
            continue;
        };
        let mut count = 0;
        for request in trace.flatten() {
            let moved = request.op != Op::Flush;
            assert!(!moved || request.length > 0);
            assert!(request.op == Op::Discard || request.length <= LENGTH_MAX);
            assert!(request.offset.checked_add(request.length).is_some());
            count += 1;
            assert!(count <= REQUESTS_MAX, "requests without end");
        }
    }
}

fn rtrace() -> Vec<u8> {
    let mut writer =
        TraceWriter::new(Vec::new(), named("rtrace"), Features::ALL).expect("a vector");
    for index in 0..200u64 {
        let request = Request {
            time: index * 1000,
            device: (index % 2) as u32,
            op: Op::Write,
            offset: index * 7919 * 512,
            length: 4096,
        };
        writer.write(&request).expect("a vector");
    }
    writer.finish().expect("a vector")
}

fn blktrace() -> Vec<u8> {
    let mut bytes = Vec::new();
    for index in 0..50u64 {
        bytes.extend(0x6561_7407u32.to_le_bytes());
        bytes.extend((index as u32).to_le_bytes());
        bytes.extend((index * 1000).to_le_bytes());
        bytes.extend((index * 8).to_le_bytes());
        bytes.extend(4096u32.to_le_bytes());
        bytes.extend(0x0001_0001u32.to_le_bytes());
        bytes.extend([0; 16]);
    }
    bytes
}

fn vscsi() -> Vec<u8> {
    let mut bytes = Vec::new();
    for index in 0..50u64 {
        bytes.extend([0; 4]);
        bytes.extend(512u32.to_le_bytes());
        bytes.extend([1, 0, 0, 0, 0x2a, 0, 0, 1]);
        bytes.extend(index.to_le_bytes());
        bytes.extend(index.to_le_bytes());
    }
    bytes
}

fn srt() -> Vec<u8> {
    let mut bytes = b"$$TR_IOREC-1.3\n\x0c".to_vec();
    for index in 0..50u32 {
        let words = [52, 1, index, 0, 0, 0, 4096, index, 256, 0, 0, 1, 0];
        words
            .iter()
            .for_each(|word: &u32| bytes.extend(word.to_be_bytes()));
    }
    bytes
}

fn named(name: &str) -> &'static Format {
    Format::of_name(name).expect("a format")
}

/// A small sound trace of every format.
fn sound() -> Vec<(&'static Format, Vec<u8>)> {
    let bytes = |format: &Format| match (format.example(), format.name) {
        (Some(example), _) => example.repeat(20).into_bytes(),
        (None, "rtrace") => rtrace(),
        (None, "blktrace") => blktrace(),
        (None, "vscsi") => vscsi(),
        (None, "srt") => srt(),
        (None, "u32le") => (0..100u32).flat_map(u32::to_le_bytes).collect(),
        (None, other) => panic!("{other} has no sound trace here"),
    };
    FORMATS
        .into_iter()
        .map(|format| (format, bytes(format)))
        .collect()
}

fn rounds() -> usize {
    match std::env::var_os("RESTRIPE_DEEP") {
        Some(_) => 5000,
        None => 100,
    }
}

fn damaged(random: &mut Random, sound: &[u8]) -> Vec<u8> {
    let mut bytes = sound.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        bytes[at] ^= 1 << random.below(8);
    }
    if random.below(3) == 0 {
        bytes.truncate(random.below(bytes.len()));
    }
    bytes
}

#[test]
fn sound_traces_are_read_whole() {
    for (format, bytes) in sound() {
        let options = Options {
            format: Some(format),
            ..Options::default()
        };
        let trace = read(Path::new("t"), Box::new(Cursor::new(bytes)), &options).expect("sound");
        let requests: Vec<_> = trace.map(|item| item.expect("sound")).collect();
        assert!(requests.len() >= 20, "{}", format.name);
    }
}

#[test]
fn damaged_traces_end_in_errors_or_requests() {
    let mut random = Random(0x5eed);
    for (format, sound) in sound() {
        for _ in 0..rounds() {
            let bytes = damaged(&mut random, &sound);
            try_reading(&bytes, Some(format));
            try_reading(&bytes, None);
        }
    }
}

#[test]
fn random_bytes_end_in_errors_or_requests() {
    let mut random = Random(0xace);
    for _ in 0..rounds() {
        let length = random.below(4096);
        let bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        try_reading(&bytes, None);
        for format in FORMATS {
            try_reading(&bytes, Some(format));
        }
    }
}

#[test]
fn damaged_compression_ends_in_errors_or_requests() {
    let mut random = Random(0xbad);
    let text = "0,303567,3584,w,0.026214\n".repeat(100);
    let zstd = ruzstd::encoding::compress_to_vec(
        text.as_bytes(),
        ruzstd::encoding::CompressionLevel::Fastest,
    );
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, text.as_bytes()).expect("a vector");
    let gzip = encoder.finish().expect("a vector");
    for sound in [zstd, gzip] {
        for _ in 0..rounds() {
            try_reading(&damaged(&mut random, &sound), Some(named("spc")));
        }
    }
}
