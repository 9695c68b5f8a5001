//! Speed of the kernels beside Intel's ISA-L on the same buffers, in one run.
//!
//! `cargo run --release -p restripe-code --example bench_kernels [PART OF A JOB'S NAME]`
//!
//! Every contender computes the same rows of chunks in turn, round after round, so that whatever else the machine does
//! meets all of them. Time is the thread's CPU time. A figure is GB of source data a second, the median of the rounds; a
//! ratio is of ours to ISA-L's of the same round, its median and its lower quartile. ISA-L is loaded at run time if the
//! system has it (`libisal.so.2`); beside what it chooses for this CPU, its kernels for AVX2 are shown.

use std::ffi::{CStr, c_int, c_void};
use std::time::Duration;

use restripe_code::{Kernels, Store, gf};

const ROUNDS: usize = 9;
/// CPU time of one measurement in the caches.
const SLOT: Duration = Duration::from_millis(4);
/// More than the last cache of any machine we know of.
const POOL_BYTES: usize = 384 << 20;
const PAGE: usize = 4096;

fn main() {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let libraries = IsaL::load_all();
    if libraries.is_empty() {
        println!("ISA-L: skipped, libisal.so.2 is not on this system");
    }
    let pool = Pool::new(POOL_BYTES);
    println!(
        "GB of source data per CPU second (median of {ROUNDS} rounds); ratios to ISA-L: median (lower quartile)\n"
    );
    for set in SETS {
        for (job, data) in JOBS {
            let title = title(job, data, set);
            if title.contains(&wanted) {
                println!("{title}");
                run(&pool, &libraries, job, data, set);
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Job {
    Xor,
    Pq,
    /// So many targets of general coefficients.
    ReedSolomon(usize),
}

/// Jobs, each with its number of sources.
const JOBS: [(Job, usize); 8] = [
    (Job::Xor, 4),
    (Job::Xor, 8),
    (Job::Pq, 4),
    (Job::Pq, 8),
    (Job::ReedSolomon(2), 4),
    (Job::ReedSolomon(2), 8),
    (Job::ReedSolomon(3), 8),
    (Job::ReedSolomon(4), 10),
];

impl Job {
    fn targets(self) -> usize {
        match self {
            Job::Xor => 1,
            Job::Pq => 2,
            Job::ReedSolomon(targets) => targets,
        }
    }

    fn rows(self, data: usize) -> Vec<Vec<u8>> {
        let powers = |base: u32| {
            (0..data as u32)
                .map(|exponent| gf::pow2(base * exponent))
                .collect()
        };
        match self {
            Job::Xor => vec![vec![1; data]],
            Job::Pq => vec![vec![1; data], powers(1)],
            Job::ReedSolomon(targets) => {
                (0..targets as u32).map(|nth| powers(3 + 2 * nth)).collect()
            }
        }
    }
}

/// A working set: rows of chunks, one that stays in the caches or as many as the pool has.
#[derive(Clone, Copy)]
struct Set {
    chunk: usize,
    dram: bool,
}

const SETS: [Set; 4] = [cached(64), cached(4096), cached(65536), dram(65536)];

const fn cached(chunk: usize) -> Set {
    Set { chunk, dram: false }
}

const fn dram(chunk: usize) -> Set {
    Set { chunk, dram: true }
}

enum Contender<'a> {
    Ours(Kernels),
    IsaL(&'a IsaL),
}

fn contenders(libraries: &[IsaL], set: Set) -> Vec<(String, Contender<'_>)> {
    let mut all = Vec::new();
    for kernels in Kernels::available() {
        all.push((kernels.name().to_string(), Contender::Ours(kernels)));
        if set.dram && kernels != Kernels::portable() {
            let streamed = kernels.with_store(Store::Streamed);
            all.push((
                format!("{} streamed", kernels.name()),
                Contender::Ours(streamed),
            ));
        }
    }
    all.extend(
        libraries
            .iter()
            .map(|library| (library.name.to_string(), Contender::IsaL(library))),
    );
    all
}

fn run(pool: &Pool, libraries: &[IsaL], job: Job, data: usize, set: Set) {
    let contenders = contenders(libraries, set);
    let rows = pool.rows(data + job.targets(), set);
    let coefficients = job.rows(data);
    let mut speeds = vec![Vec::new(); contenders.len()];
    for round in 0..=ROUNDS {
        for ((_, contender), speeds) in contenders.iter().zip(&mut speeds) {
            let speed = measure(contender, &rows, &coefficients, data, set);
            // The first round only warms up.
            if round > 0 {
                speeds.push(speed);
            }
        }
    }
    print(&contenders, &speeds);
}

fn title(job: Job, data: usize, set: Set) -> String {
    let name = match job {
        Job::Xor => format!("XOR-{data}"),
        Job::Pq => format!("PQ-{data}"),
        Job::ReedSolomon(parities) => format!("RS-{data}+{parities}"),
    };
    let place = if set.dram { "DRAM" } else { "cached" };
    format!("{name}, chunks of {} B, {place}", set.chunk)
}

fn print(contenders: &[(String, Contender)], speeds: &[Vec<f64>]) {
    let base = contenders
        .iter()
        .position(|(_, contender)| matches!(contender, Contender::IsaL(_)));
    for ((name, _), own) in contenders.iter().zip(speeds) {
        print!("  {name:24} {:6.1}", quantile(own, 0.5));
        if let Some(base) = base {
            let ratios: Vec<f64> = own
                .iter()
                .zip(&speeds[base])
                .map(|(own, base)| own / base)
                .collect();
            print!(
                "   {:5.2} ({:.2})",
                quantile(&ratios, 0.5),
                quantile(&ratios, 0.25)
            );
        }
        println!();
    }
}

fn quantile(values: &[f64], at: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * at).floor() as usize]
}

/// GB of source data a CPU second.
fn measure(
    contender: &Contender,
    rows: &[Vec<*mut u8>],
    coefficients: &[Vec<u8>],
    data: usize,
    set: Set,
) -> f64 {
    let coefficients: Vec<&[u8]> = coefficients.iter().map(Vec::as_slice).collect();
    let encoder = Encoder::new(contender, &coefficients, data);
    let start = cpu_time();
    let mut done = 0;
    // Reading the clock is a system call; small rows are repeated between readings.
    let repeats = if set.dram {
        1
    } else {
        (4 << 20) / (data * set.chunk)
    };
    loop {
        for _ in 0..repeats {
            for row in rows {
                encoder.encode(row, set.chunk);
            }
        }
        done += repeats * rows.len() * data * set.chunk;
        let spent = cpu_time() - start;
        if set.dram || spent >= SLOT {
            return done as f64 / spent.as_secs_f64() / 1e9;
        }
    }
}

struct Encoder<'a> {
    contender: &'a Contender<'a>,
    coefficients: &'a [&'a [u8]],
    data: usize,
    /// ISA-L's form of the coefficients; empty where it has a function for the very job.
    tables: Vec<u8>,
}

impl<'a> Encoder<'a> {
    fn new(contender: &'a Contender<'a>, coefficients: &'a [&'a [u8]], data: usize) -> Encoder<'a> {
        let general = coefficients[0].iter().any(|&coefficient| coefficient > 1);
        let tables = match contender {
            Contender::IsaL(library) if general => library.tables(coefficients, data),
            _ => Vec::new(),
        };
        Encoder {
            contender,
            coefficients,
            data,
            tables,
        }
    }

    fn encode(&self, row: &[*mut u8], chunk: usize) {
        match self.contender {
            Contender::Ours(kernels) => self.ours(*kernels, row, chunk),
            Contender::IsaL(library) => library.encode(row, chunk, self.data, &self.tables),
        }
    }

    fn ours(&self, kernels: Kernels, row: &[*mut u8], chunk: usize) {
        const MOST: usize = 10;
        let mut sources: [&[u8]; MOST] = [&[]; MOST];
        for (source, &pointer) in sources.iter_mut().zip(&row[..self.data]) {
            // SAFETY: the pool's chunks are disjoint, initialised and live as long as the pool; nobody writes a source.
            *source = unsafe { std::slice::from_raw_parts(pointer, chunk) };
        }
        // SAFETY: as above; each target is borrowed once.
        let target =
            |index: usize| unsafe { std::slice::from_raw_parts_mut(row[self.data + index], chunk) };
        let sources = &sources[..self.data];
        match self.coefficients.len() {
            1 => kernels.linear(sources, self.coefficients, &mut [target(0)]),
            2 => kernels.linear(sources, self.coefficients, &mut [target(0), target(1)]),
            3 => {
                let mut targets = [target(0), target(1), target(2)];
                kernels.linear(sources, self.coefficients, &mut targets)
            }
            4 => {
                let mut targets = [target(0), target(1), target(2), target(3)];
                kernels.linear(sources, self.coefficients, &mut targets)
            }
            more => unreachable!("no job has {more} targets"),
        }
    }
}

/// Memory that chunks are cut from.
struct Pool {
    bytes: Vec<u8>,
}

impl Pool {
    fn new(length: usize) -> Pool {
        let mut state = 1_u32;
        let mut bytes = vec![0; length + PAGE];
        for byte in bytes.iter_mut() {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (state >> 24) as u8;
        }
        Pool { bytes }
    }

    /// Rows of so many chunks, each aligned to a page and none twice.
    fn rows(&self, cells: usize, set: Set) -> Vec<Vec<*mut u8>> {
        let start = self.bytes.as_ptr().align_offset(PAGE);
        let row_bytes = cells * set.chunk;
        let count = if set.dram { POOL_BYTES / row_bytes } else { 1 };
        let chunk = |row: usize, cell: usize| {
            let offset = start + row * row_bytes + cell * set.chunk;
            self.bytes[offset..offset + set.chunk].as_ptr().cast_mut()
        };
        (0..count)
            .map(|row| (0..cells).map(|cell| chunk(row, cell)).collect())
            .collect()
    }
}

fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills the structure it is given.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(failed, 0, "every Linux has a thread's CPU clock");
    Duration::new(
        time.tv_sec.cast_unsigned(),
        u32::try_from(time.tv_nsec).expect("below a second"),
    )
}

type Generate = unsafe extern "C" fn(vectors: c_int, length: c_int, array: *const *mut u8) -> c_int;
type InitTables =
    unsafe extern "C" fn(data: c_int, rows: c_int, coefficients: *const u8, tables: *mut u8);
type EncodeData = unsafe extern "C" fn(
    c_int,
    data: c_int,
    rows: c_int,
    tables: *const u8,
    *const *mut u8,
    *const *mut u8,
);

/// The functions of ISA-L that do our jobs.
struct IsaL {
    name: &'static str,
    xor: Generate,
    pq: Generate,
    init_tables: InitTables,
    encode: EncodeData,
}

impl IsaL {
    /// What the library chooses for this CPU, first, and its kernels for AVX2.
    fn load_all() -> Vec<IsaL> {
        // SAFETY: loading a library of the system; its initialisers only look at the CPU.
        let library = unsafe { libc::dlopen(c"libisal.so.2".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return Vec::new();
        }
        let chosen = IsaL::load(library, "ISA-L", [c"xor_gen", c"pq_gen", c"ec_encode_data"]);
        let names = [c"xor_gen_avx", c"pq_gen_avx2", c"ec_encode_data_avx2"];
        let has_avx2 = Kernels::available().any(|kernels| kernels.name() == "avx2");
        let avx2 = if has_avx2 {
            IsaL::load(library, "ISA-L, avx2", names)
        } else {
            None
        };
        chosen.into_iter().chain(avx2).collect()
    }

    fn load(
        library: *mut c_void,
        name: &'static str,
        [xor, pq, encode]: [&CStr; 3],
    ) -> Option<IsaL> {
        // SAFETY: the types are those of the library's headers (raid.h, erasure_code.h); it is never unloaded.
        unsafe {
            Some(IsaL {
                name,
                xor: std::mem::transmute::<*mut c_void, Generate>(symbol(library, xor)?),
                pq: std::mem::transmute::<*mut c_void, Generate>(symbol(library, pq)?),
                init_tables: std::mem::transmute::<*mut c_void, InitTables>(symbol(
                    library,
                    c"ec_init_tables",
                )?),
                encode: std::mem::transmute::<*mut c_void, EncodeData>(symbol(library, encode)?),
            })
        }
    }

    fn tables(&self, coefficients: &[&[u8]], data: usize) -> Vec<u8> {
        let mut tables = vec![0; 32 * data * coefficients.len()];
        let flat = coefficients.concat();
        // SAFETY: the library wants 32 bytes a coefficient.
        unsafe {
            (self.init_tables)(
                c_int_of(data),
                c_int_of(coefficients.len()),
                flat.as_ptr(),
                tables.as_mut_ptr(),
            )
        };
        tables
    }

    fn encode(&self, row: &[*mut u8], chunk: usize, data: usize, tables: &[u8]) {
        let (length, targets) = (c_int_of(chunk), row.len() - data);
        // SAFETY: a row has the sources and then the targets, all of the chunk's length and aligned to a page.
        unsafe {
            if !tables.is_empty() {
                let targets_at = row[data..].as_ptr();
                (self.encode)(
                    length,
                    c_int_of(data),
                    c_int_of(targets),
                    tables.as_ptr(),
                    row.as_ptr(),
                    targets_at,
                );
            } else {
                let generate = if targets == 1 { self.xor } else { self.pq };
                generate(c_int_of(row.len()), length, row.as_ptr());
            }
        }
    }
}

fn c_int_of(value: usize) -> c_int {
    c_int::try_from(value).expect("counts and chunks are small")
}

/// # Safety
/// `library` is a handle of `dlopen`.
unsafe fn symbol(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the caller's promise.
    let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!symbol.is_null()).then_some(symbol)
}
