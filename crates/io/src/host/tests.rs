//! Device operations on real devices, on every backend, without the engine's part.

use super::*;
use crate::backend::{BackendChoice, open as open_backend};
use crate::member::{self, OpenOptions};
use crate::memory::Memory;
use crate::plain::bare_io;
use crate::tokens::Owner;
use restripe_array::{Buf, BufRef, IoError, IoOp, Limits, Pool, Segment, Tag, zeroed_page};
use std::path::PathBuf;

const POOL: Pool = Pool { small: 8, large: 2 };
const LARGE: Buf = Buf(8);

/// A host of one member, with all it needs.
struct Bench {
    host: Host,
    backend: Box<dyn Backend>,
    users: UserMemory,
    next_tag: u32,
    file: Option<PathBuf>,
}

impl Bench {
    fn new(backend: BackendChoice, name: &str) -> Bench {
        let member = member::open(name, OpenOptions::default()).expect("the member opens");
        let limits = Limits {
            pool: POOL,
            ..Limits::default()
        };
        let config = Config {
            members: vec![member.info],
            limits,
            surrogate: None,
            io_timeout: Nanos::from_secs(30),
            bug: None,
        };
        let backend = open_backend(backend).expect("tried before");
        let host = Host::new(0, vec![member], config).expect("memory");
        Bench {
            host,
            backend,
            users: UserMemory::new(1 << 20),
            next_tag: 1,
            file: None,
        }
    }

    fn io(&mut self, op: IoOp, at: u64, sectors: u64, segments: Vec<Segment>) -> Box<DeviceIo> {
        let tag = Tag(self.next_tag);
        self.next_tag += 1;
        Box::new(DeviceIo {
            tag,
            segments,
            durable: op == IoOp::Write,
            ..bare_io(op, at, sectors)
        })
    }

    fn start(&mut self, io: Box<DeviceIo>) {
        self.start_together([io]);
    }

    /// As what the engine asks for in one step: neighbours become one.
    fn start_together<const COUNT: usize>(&mut self, ios: [Box<DeviceIo>; COUNT]) {
        let mut world = World::new(&mut *self.backend, &mut self.users);
        ios.into_iter()
            .for_each(|io| self.host.start(io, &mut world));
        self.host.start_joined(&mut world);
    }

    /// Gives up on an operation.
    fn detach(&mut self, tag: Tag) {
        let mut world = World::new(&mut *self.backend, &mut self.users);
        self.host.act(Nanos::ZERO, Action::Detach(tag), &mut world);
    }

    /// The next operation that is back.
    fn next(&mut self) -> (Box<DeviceIo>, Result<(), IoError>) {
        loop {
            if let Some(event) = self.host.inbox.pop_front() {
                let Event::Device(io, result) = event else {
                    panic!("not an operation: {event:?}")
                };
                return (io, result);
            }
            let mut done = Vec::new();
            self.backend.wait(None, &mut done).expect("waiting works");
            for completion in done {
                let Owner::Device { flight, .. } = Owner::of(completion.token) else {
                    panic!("not a flight")
                };
                let mut world = World::new(&mut *self.backend, &mut self.users);
                self.host.completed(flight, completion, &mut world);
            }
        }
    }

    fn run(
        &mut self,
        op: IoOp,
        at: u64,
        sectors: u64,
        segments: Vec<Segment>,
    ) -> (Box<DeviceIo>, Result<(), IoError>) {
        let io = self.io(op, at, sectors, segments);
        self.start(io);
        self.next()
    }

    fn memory(&mut self, buf: Buf) -> Memory {
        let handles = Handles::new(&mut self.host.pool, &mut self.users);
        handles.memory(buf).clone()
    }

    /// All of the large buffer, written to the beginning.
    fn write_large(&mut self) {
        let (_, result) = self.run(IoOp::Write, 0, 128, vec![part(LARGE, 0, 65536)]);
        assert_eq!(result, Ok(()));
    }

    fn read(&mut self, at: u64, sectors: u64) -> Vec<u8> {
        let bytes = (sectors * 512) as u32;
        let (_, result) = self.run(IoOp::Read, at, sectors, vec![part(LARGE, 0, bytes)]);
        result.expect("it can be read");
        self.memory(LARGE).slice(0, bytes as usize).to_vec()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Some(path) = &self.file {
            std::fs::remove_file(path).expect("ours");
        }
    }
}

fn part(buf: Buf, offset: u32, bytes: u32) -> Segment {
    Segment::Buf(BufRef::new(buf, offset, bytes))
}

/// A file member on this backend.
fn file_bench(backend: BackendChoice, test: &str) -> Bench {
    let process = std::process::id();
    let path = std::env::temp_dir().join(format!("restripe-host-{process}-{backend:?}-{test}"));
    let file = std::fs::File::create(&path).expect("a temporary file");
    file.set_len(1 << 20).expect("room");
    let mut bench = Bench::new(backend, path.to_str().expect("plain"));
    bench.file = Some(path);
    bench
}

/// Runs a test on a file on every backend, and on memory.
fn each(test: &str, body: impl Fn(&mut Bench)) {
    body(&mut Bench::new(BackendChoice::Threads, "ram:1M"));
    body(&mut file_bench(BackendChoice::Threads, test));
    if open_backend(BackendChoice::Ring).is_ok() {
        body(&mut file_bench(BackendChoice::Ring, test));
    }
}

#[test]
fn pages_buffers_and_zeros_make_one_write() {
    each("segments", |bench| {
        bench.memory(Buf(3)).fill(0, &[3; 4096]);
        let mut page = zeroed_page();
        page.fill(7);
        let segments = vec![
            part(Buf(3), 512, 1024),
            Segment::Page(page),
            Segment::Zero(512),
            part(Buf(3), 0, 512),
        ];
        let (io, result) = bench.run(IoOp::Write, 16, 12, segments);
        let whole = (Ok(()), 4);
        assert_eq!((result, io.segments.len()), whole, "the box comes back");
        let bytes = bench.read(16, 12);
        let want = [vec![3; 1024], vec![7; 4096], vec![0; 512], vec![3; 512]].concat();
        assert_eq!(bytes, want);
        let (io, _) = bench.run(IoOp::Read, 18, 8, vec![Segment::Page(zeroed_page())]);
        assert!(
            matches!(&io.segments[0], Segment::Page(page) if page.iter().all(|byte| *byte == 7))
        );
        assert_eq!(bench.host.in_flight(), 0);
    });
}

#[test]
fn zeroed_and_trimmed_ranges_read_as_zeros() {
    each("zero", |bench| {
        bench.memory(LARGE).fill(0, &[5; 65536]);
        for op in [IoOp::Zero, IoOp::Trim] {
            bench.write_large();
            assert_eq!(bench.run(op, 8, 16, vec![]).1, Ok(()));
            assert_eq!(bench.run(IoOp::Flush, 0, 0, vec![]).1, Ok(()));
            let bytes = bench.read(0, 128);
            assert!(bytes[4096..12288].iter().all(|byte| *byte == 0), "{op:?}");
            let mut others = bytes[..4096].iter().chain(&bytes[12288..]);
            assert!(others.all(|byte| *byte == 5), "{op:?}");
            bench.memory(LARGE).fill(0, &[5; 65536]);
        }
    });
}

#[test]
fn more_segments_than_a_call_takes() {
    each("many", |bench| {
        bench.memory(Buf(0)).fill(0, &[1; 4096]);
        bench.memory(Buf(1)).fill(0, &[2; 4096]);
        let segments = (0..2000).map(|i| part(Buf(i % 2), 0, 512)).collect();
        assert_eq!(bench.run(IoOp::Write, 0, 2000, segments).1, Ok(()));
        for (i, sector) in bench.read(1900, 100).chunks(512).enumerate() {
            assert!(sector.iter().all(|byte| *byte == 1 + i as u8 % 2));
        }
    });
}

#[test]
fn memory_that_suits_no_device_is_served_all_the_same() {
    each("crooked", |bench| {
        let bytes: Vec<u8> = (0..4096).map(|i| i as u8).collect();
        bench.memory(LARGE).fill(0, &bytes);
        let crooked = vec![
            part(LARGE, 7, 100),
            Segment::Zero(12),
            part(LARGE, 1001, 912),
        ];
        assert_eq!(bench.run(IoOp::Write, 4, 2, crooked).1, Ok(()));
        let segments = vec![part(Buf(2), 3, 500), part(Buf(3), 0, 524)];
        assert_eq!(bench.run(IoOp::Read, 4, 2, segments).1, Ok(()));
        let mut got = bench.memory(Buf(2)).slice(3, 500).to_vec();
        got.extend_from_slice(bench.memory(Buf(3)).slice(0, 524));
        assert_eq!(got, [&bytes[7..107], &[0; 12], &bytes[1001..1913]].concat());
    });
}

#[test]
fn a_file_cut_short_is_given_up_and_not_mended() {
    for backend in [BackendChoice::Threads, BackendChoice::Automatic] {
        let mut bench = file_bench(backend, "short");
        let path = bench.file.clone().expect("a file");
        let file = std::fs::File::options().write(true).open(path);
        file.expect("ours").set_len(4096).expect("ours");
        let (_, result) = bench.run(IoOp::Read, 0, 16, vec![part(LARGE, 0, 8192)]);
        assert_eq!(result, Err(IoError::Gone));
    }
}

/// Two neighbouring reads, the first of which is given up on at some moment.
fn late_read(mut bench: Bench, start: impl Fn(&mut Bench, [Box<DeviceIo>; 2], Tag)) {
    bench.memory(LARGE).fill(0, &[9; 65536]);
    bench.write_large();
    bench.memory(LARGE).fill(0, &[4; 65536]);
    let late = bench.io(IoOp::Read, 0, 8, vec![part(LARGE, 0, 4096)]);
    let neighbour = bench.io(IoOp::Read, 8, 8, vec![part(LARGE, 4096, 4096)]);
    let tag = late.tag;
    start(&mut bench, [late, neighbour], tag);
    bench.memory(LARGE).fill(0, &[6; 4096]);
    assert_eq!((bench.next().1, bench.next().1), (Ok(()), Ok(())));
    let memory = bench.memory(LARGE);
    let all = |at, wanted| memory.slice(at, 4096).iter().all(|byte| *byte == wanted);
    assert!(all(0, 6), "the late read went elsewhere");
    assert!(all(4096, 9), "the neighbour's data was brought over");
    assert_eq!(bench.host.in_flight(), 0);
}

#[test]
fn a_late_read_scribbles_on_nothing_and_its_neighbour_arrives() {
    for backend in [BackendChoice::Threads, BackendChoice::Automatic] {
        late_read(file_bench(backend, "detach"), |bench, ios, tag| {
            ios.into_iter().for_each(|io| bench.start(io));
            bench.detach(tag);
        });
        late_read(file_bench(backend, "detach-joined"), |bench, ios, tag| {
            bench.start_together(ios);
            bench.detach(tag);
        });
        // It has not begun, but its neighbour has to arrive all the same.
        late_read(file_bench(backend, "detach-early"), |bench, ios, tag| {
            let mut world = World::new(&mut *bench.backend, &mut bench.users);
            ios.into_iter()
                .for_each(|io| bench.host.start(io, &mut world));
            bench.detach(tag);
        });
    }
}

#[test]
fn neighbours_that_fail_together_have_results_of_their_own() {
    for backend in [BackendChoice::Threads, BackendChoice::Automatic] {
        let mut bench = file_bench(backend, "split");
        bench.memory(LARGE).fill(0, &[9; 65536]);
        bench.write_large();
        let path = bench.file.clone().expect("a file");
        let file = std::fs::File::options().write(true).open(path);
        file.expect("ours").set_len(4096).expect("ours");
        bench.memory(LARGE).fill(0, &[4; 65536]);
        let there = bench.io(IoOp::Read, 0, 8, vec![part(LARGE, 0, 4096)]);
        let cut_off = bench.io(IoOp::Read, 8, 8, vec![part(LARGE, 4096, 4096)]);
        let tag = there.tag;
        bench.start_together([cut_off, there]);
        for _ in 0..2 {
            let (io, result) = bench.next();
            let wanted = match io.tag == tag {
                true => Ok(()),
                false => Err(IoError::Gone),
            };
            assert_eq!(result, wanted);
        }
        let memory = bench.memory(LARGE);
        assert!(memory.slice(0, 4096).iter().all(|byte| *byte == 9));
        assert_eq!(bench.host.in_flight(), 0);
    }
}

#[test]
fn neighbours_are_written_where_each_belongs() {
    each("joined", |bench| {
        for small in 0..4u32 {
            bench.memory(Buf(small)).fill(0, &[small as u8 + 1; 4096]);
        }
        let places = [3, 1, 2, 0u32];
        let writes = places.map(|small| {
            let at = u64::from(small) * 8;
            bench.io(IoOp::Write, at, 8, vec![part(Buf(small), 0, 4096)])
        });
        bench.start_together(writes);
        (0..4).for_each(|_| assert_eq!(bench.next().1, Ok(())));
        let bytes = bench.read(0, 32);
        for (place, page) in bytes.chunks(4096).enumerate() {
            assert!(page.iter().all(|byte| *byte == place as u8 + 1));
        }
    });
}

/// Each operation that a failed member left on a buffer of 32 MiB cost a copy of the buffer: the reactor stood still for
/// ten seconds and more.
#[test]
fn a_buffer_is_copied_once_for_all_that_is_given_up_on_it() {
    let mut bench = file_bench(BackendChoice::Threads, "detach-many");
    let place = |n: u32| vec![part(LARGE, 4096 * n, 4096)];
    let reads = [0, 1, 2].map(|n| bench.io(IoOp::Read, 8 * u64::from(n), 8, place(n)));
    let mut tags: Vec<Tag> = reads.iter().map(|io| io.tag).collect();
    reads.into_iter().for_each(|io| bench.start(io));
    let detach = |bench: &mut Bench, tag: Tag| {
        bench.detach(tag);
        bench.memory(LARGE)
    };
    let before = bench.memory(LARGE);
    let first = detach(&mut bench, tags[0]);
    assert!(!first.same(&before), "it is another memory");
    assert!(detach(&mut bench, tags[1]).same(&first), "and stays so");
    // What began since uses the new memory, and takes it along.
    let late = bench.io(IoOp::Read, 24, 8, vec![part(LARGE, 12288, 4096)]);
    tags.push(late.tag);
    bench.start(late);
    assert!(!detach(&mut bench, tags[3]).same(&first));
    for _ in tags {
        assert_eq!(bench.next().1, Ok(()));
    }
}

#[test]
fn a_closed_member_is_gone_but_answers_for_what_was_in_flight() {
    let mut bench = file_bench(BackendChoice::Automatic, "close");
    let io = bench.io(IoOp::Read, 0, 8, vec![part(LARGE, 0, 4096)]);
    bench.start(io);
    bench.host.close(Member(0));
    assert_eq!(bench.next().1, Ok(()));
    let (_, result) = bench.run(IoOp::Read, 0, 8, vec![part(LARGE, 0, 4096)]);
    assert_eq!(result, Err(IoError::Gone));
    assert_eq!(bench.host.member_names().collect::<Vec<_>>().len(), 1);
}

#[test]
fn a_member_that_never_was_is_gone() {
    let mut bench = Bench::new(BackendChoice::Threads, "ram:1M");
    let mut io = bench.io(IoOp::Flush, 0, 0, vec![]);
    io.member = Member(9);
    bench.start(io);
    assert_eq!(bench.next().1, Err(IoError::Gone));
    let beyond = bench.run(IoOp::Read, 2040, 16, vec![part(LARGE, 0, 8192)]);
    assert_eq!(beyond.1, Err(IoError::Other(libc::EINVAL)));
}
