//! Which instructions serve: the choice, made once from the CPU, and the calls that follow it.
//!
//! A body (see `body`) is compiled for each level: words of any CPU, SSSE3, AVX2, and AVX-512 with GFNI. A [`Kernels`] of
//! a level exists only where the CPU has that level's features; all `unsafe` of the levels rests on it.

mod body;
mod vector;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(crate) use body::{DOT_TARGETS, Term};

use std::sync::OnceLock;

use crate::{crc, gf};

/// Alignment that streamed stores of every level are content with.
const STREAM_ALIGNMENT: usize = 64;

/// Bytes of all buffers of a call from which [`Store::Auto`] streams.
const STREAM_BYTES: usize = 2 << 20;

/// Where a kernel's targets go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Store {
    /// Past the caches if the call's buffers are too large to stay in them together anyway, else into them.
    #[default]
    Auto,
    /// Into the caches: somebody reads the targets soon.
    Cached,
    /// Past the caches to memory: saves reading the targets' old contents, and room. Targets that are not aligned to 64
    /// bytes go into the caches all the same.
    Streamed,
}

/// From the slowest up; a CPU with one of x86-64's levels has those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Level {
    Portable,
    Ssse3,
    Avx2,
    Avx512,
}

impl Level {
    const ALL: [Level; 4] = [Level::Portable, Level::Ssse3, Level::Avx2, Level::Avx512];

    /// Whether this CPU has what the level and those below it need.
    #[cfg(target_arch = "x86_64")]
    fn is_here(self) -> bool {
        match self {
            Level::Portable => true,
            Level::Ssse3 => is_x86_feature_detected!("ssse3"),
            Level::Avx2 => Level::Ssse3.is_here() && is_x86_feature_detected!("avx2"),
            Level::Avx512 => {
                Level::Avx2.is_here()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("gfni")
            }
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn is_here(self) -> bool {
        self == Level::Portable
    }
}

#[cfg(target_arch = "x86_64")]
fn has_crc_instruction() -> bool {
    is_x86_feature_detected!("sse4.2")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_crc_instruction() -> bool {
    false
}

/// A choice of instructions, and where targets go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kernels {
    /// Only of levels that this CPU has; the constructors see to it.
    level: Level,
    /// The CPU has an instruction for CRC-32C, and it may be used.
    crc_instruction: bool,
    store: Store,
}

impl Kernels {
    /// Plain integer instructions, on any CPU.
    pub const fn portable() -> Kernels {
        Kernels {
            level: Level::Portable,
            crc_instruction: false,
            store: Store::Auto,
        }
    }

    /// The fastest that this CPU has. Cheap enough to call each time: the choice is made once a process.
    pub fn detect() -> Kernels {
        static FASTEST: OnceLock<Kernels> = OnceLock::new();
        *FASTEST.get_or_init(|| {
            let here = Level::ALL.into_iter().rev().find(|level| level.is_here());
            Kernels::of(here.unwrap_or(Level::Portable))
        })
    }

    /// All that this CPU has, the slowest first: what tests compare.
    pub fn available() -> impl Iterator<Item = Kernels> {
        Level::ALL
            .into_iter()
            .filter(|level| level.is_here())
            .map(Kernels::of)
    }

    /// The kernels of a level that is here.
    fn of(level: Level) -> Kernels {
        assert!(level.is_here(), "the CPU has the level's features");
        let crc_instruction = level != Level::Portable && has_crc_instruction();
        Kernels {
            level,
            crc_instruction,
            store: Store::Auto,
        }
    }

    /// The same instructions with another place for the targets.
    pub const fn with_store(self, store: Store) -> Kernels {
        Kernels { store, ..self }
    }

    /// The instructions' name, for reports.
    pub const fn name(self) -> &'static str {
        match self.level {
            Level::Portable => "portable",
            Level::Ssse3 => "ssse3",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512+gfni",
        }
    }

    /// CRC-32C; see [`crate::crc32c`].
    pub fn crc32c(self, before: u32, bytes: &[u8]) -> u32 {
        #[cfg(target_arch = "x86_64")]
        if self.crc_instruction {
            // SAFETY: the flag is set only where the CPU has SSE4.2.
            return unsafe { crc::by_instruction(before, bytes) };
        }
        crc::by_tables(before, bytes)
    }

    /// `target = sum of sources`; zeros if there are none.
    ///
    /// # Panics
    /// If lengths differ.
    pub fn xor(self, sources: &[&[u8]], target: &mut [u8]) {
        assert_lengths(sources, target.len());
        if sources.is_empty() {
            return target.fill(0);
        }
        let stream = self.streams(sources.len() + 1, &[&*target]);
        // SAFETY: a level exists only where the CPU has its features, lengths were asserted, `streams` saw to alignment.
        unsafe { levels::xor(self.level, stream, sources, target) }
    }

    /// `p = sum of sources`, `q = sum of 2^k sources[k]`; zeros if there are none.
    ///
    /// # Panics
    /// If lengths differ, or with more sources than the field has coefficients.
    pub fn pq(self, sources: &[&[u8]], p: &mut [u8], q: &mut [u8]) {
        assert_lengths(sources, p.len());
        assert_eq!(p.len(), q.len(), "P and Q are of one length");
        assert!(
            sources.len() <= gf::ORDER as usize,
            "coefficients in Q are distinct"
        );
        if sources.is_empty() {
            p.fill(0);
            return q.fill(0);
        }
        let stream = self.streams(sources.len() + 2, &[&*p, &*q]);
        // SAFETY: as in `xor`.
        unsafe { levels::pq(self.level, stream, sources, p, q) }
    }

    /// `targets[t] = sum of coefficients[t] * source`, for one to [`DOT_TARGETS`] targets.
    pub(crate) fn dot(self, terms: &[Term], targets: &mut [&mut [u8]]) {
        let length = targets[0].len();
        assert!(
            (1..=DOT_TARGETS).contains(&targets.len()),
            "the sums fit the registers"
        );
        assert!(
            targets.iter().all(|target| target.len() == length),
            "targets are of one length"
        );
        assert!(
            terms.iter().all(|term| term.source.len() == length),
            "sources are as long as targets"
        );
        let stream = self.streams(terms.len() + targets.len(), targets);
        // SAFETY: as in `xor`.
        unsafe { levels::dot(self.level, stream, terms, targets) }
    }

    /// Whether targets are to go past the caches, in a call of so many buffers in all.
    fn streams<T: AsRef<[u8]>>(self, buffers: usize, targets: &[T]) -> bool {
        let wanted = match self.store {
            Store::Auto => buffers * targets[0].as_ref().len() >= STREAM_BYTES,
            Store::Cached => false,
            Store::Streamed => true,
        };
        let aligned = |target: &T| {
            target
                .as_ref()
                .as_ptr()
                .addr()
                .is_multiple_of(STREAM_ALIGNMENT)
        };
        wanted && targets.iter().all(aligned)
    }
}

fn assert_lengths(sources: &[&[u8]], length: usize) {
    assert!(
        sources.iter().all(|source| source.len() == length),
        "sources are as long as targets"
    );
}

/// The bodies, compiled for each level's features.
mod levels {
    use super::vector::Words;
    use super::{Level, Term, body};

    /// The module of a level: each body as a function that has the level's features. The numbers are the registers that
    /// a step computes.
    #[cfg(target_arch = "x86_64")]
    macro_rules! level {
        ($level:ident, $register:ident, $features:literal, xor $xor:literal, pq $pq:literal, dot $few:literal $many:literal) => {
            mod $level {
                use super::super::body::{self, Term};
                use super::super::x86::$register;

                #[target_feature(enable = $features)]
                pub(super) fn xor<const STREAM: bool>(sources: &[&[u8]], target: &mut [u8]) {
                    // SAFETY: this function has the register's features; the rest is its caller's promise.
                    unsafe { body::xor::<$register, $xor, STREAM>(sources, target) }
                }

                #[target_feature(enable = $features)]
                pub(super) fn pq<const STREAM: bool>(
                    sources: &[&[u8]],
                    p: &mut [u8],
                    q: &mut [u8],
                ) {
                    // SAFETY: as in `xor`.
                    unsafe { body::pq::<$register, $pq, STREAM>(sources, p, q) }
                }

                #[target_feature(enable = $features)]
                pub(super) fn dot<const STREAM: bool>(terms: &[Term], targets: &mut [&mut [u8]]) {
                    // SAFETY: as in `xor`.
                    unsafe { body::dot::<$register, $few, $many, STREAM>(terms, targets) }
                }
            }
        };
    }

    #[cfg(target_arch = "x86_64")]
    level!(ssse3, Ssse3, "ssse3", xor 4, pq 2, dot 4 2);
    #[cfg(target_arch = "x86_64")]
    level!(avx2, Avx2, "avx2", xor 4, pq 2, dot 4 2);
    #[cfg(target_arch = "x86_64")]
    level!(avx512, Avx512, "avx512f,avx512bw,gfni", xor 4, pq 2, dot 4 2);

    /// A function that calls a body at a level, storing one way or the other.
    macro_rules! call_at_level {
        ($name:ident($($argument:ident: $type:ty),+), $($words:literal),+) => {
            /// # Safety
            /// The CPU has the level's features; all lengths are equal; if `stream`, targets are aligned to 64 bytes.
            pub(super) unsafe fn $name(level: Level, stream: bool, $($argument: $type),+) {
                // SAFETY: the caller's promises.
                unsafe {
                    match (level, stream) {
                        #[cfg(target_arch = "x86_64")]
                        (Level::Ssse3, false) => ssse3::$name::<false>($($argument),+),
                        #[cfg(target_arch = "x86_64")]
                        (Level::Ssse3, true) => ssse3::$name::<true>($($argument),+),
                        #[cfg(target_arch = "x86_64")]
                        (Level::Avx2, false) => avx2::$name::<false>($($argument),+),
                        #[cfg(target_arch = "x86_64")]
                        (Level::Avx2, true) => avx2::$name::<true>($($argument),+),
                        #[cfg(target_arch = "x86_64")]
                        (Level::Avx512, false) => avx512::$name::<false>($($argument),+),
                        #[cfg(target_arch = "x86_64")]
                        (Level::Avx512, true) => avx512::$name::<true>($($argument),+),
                        _ => body::$name::<Words<8>, $($words),+, false>($($argument),+),
                    }
                }
            }
        };
    }

    call_at_level!(xor(sources: &[&[u8]], target: &mut [u8]), 1);
    call_at_level!(pq(sources: &[&[u8]], p: &mut [u8], q: &mut [u8]), 1);
    call_at_level!(dot(terms: &[Term], targets: &mut [&mut [u8]]), 1, 1);
}
