//! Every reader on damaged and random bytes: an error or requests that keep their promises, never a panic, never without
//! end. Deterministic; `RESTRIPE_DEEP` runs fifty times as many.

use restripe_lab::trace::{Features, Format, LENGTH_MAX, Op, Options, Request, TraceWriter, read};
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

fn try_reading(bytes: &[u8], format: Option<Format>) {
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
    let mut writer = TraceWriter::new(Vec::new(), Format::Rtrace, Features::ALL).expect("a vector");
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

/// A small sound trace of every format.
fn sound() -> Vec<(Format, Vec<u8>)> {
    let text = |line: &str| line.repeat(20).into_bytes();
    Format::ALL
        .into_iter()
        .map(|format| {
            let bytes = match format {
                Format::Rtrace => rtrace(),
                Format::Blktrace => blktrace(),
                Format::Vscsi => vscsi(),
                Format::Srt => srt(),
                Format::U32le => (0..100u32).flat_map(u32::to_le_bytes).collect(),
                Format::Spc => text("0,303567,3584,w,0.026214\n"),
                Format::Msr => text("128166372003061629,mds,0,Read,3154132992,4096,551\n"),
                Format::MsrCut => text("223.412 0 3159347200 36864 0\n"),
                Format::Disksim => text("13.191135\t30\t0\t5\t1\n"),
                Format::Ssdsim => text("938513000 4 264719034 16 0\n"),
                Format::Blkparse => text("259,2 0 1 0.5 4020 Q R 282624 + 8 [java]\n"),
                Format::Fio => text("fio version 3 iolog\n291 f write 3104768 4096\n"),
                Format::Fiu => text("899 4270 nfsd 18579576 8 W 6 0 d6c7\n"),
                Format::Diskmon => text("0\t0.047\t0.0001\t0\tRead\t1320146\t8\n"),
                Format::Ftlsim => text("39949 D read 299008 4096 0.5 0 False\n"),
                Format::Lis => text("10 2 0 7\n"),
            };
            (format, bytes)
        })
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
        assert!(requests.len() >= 20, "{}", format.name());
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
        for format in Format::ALL {
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
            try_reading(&damaged(&mut random, &sound), Some(Format::Spc));
        }
    }
}
