//! What a kernel asks of a vector register, and the portable register.

/// A register of byte lanes over GF(2^8).
///
/// # Safety of the methods
/// Each is an instruction or a few, and may be called only on a CPU that has the implementing type's features; whoever
/// picks the type upholds that once, in [`super::Kernels`]. Those that take a slice access `BYTES` bytes of it from `at`
/// on, which the caller keeps within the slice.
pub(super) trait Vector: Copy {
    const BYTES: usize;

    /// Whether bodies are compiled anew for each small number of sources: a fifth faster in the caches, for much to compile,
    /// which the registers of CPUs that are still bought are worth.
    const BY_COUNT: bool;

    /// A source's bytes, prepared for multiplication by several coefficients.
    type Prepared: Copy;

    unsafe fn zero() -> Self;
    unsafe fn load(bytes: &[u8], at: usize) -> Self;
    unsafe fn store(self, bytes: &mut [u8], at: usize);
    /// Stores past the caches. The address is aligned to `BYTES`.
    unsafe fn stream(self, bytes: &mut [u8], at: usize);
    /// Asks for the line at `at`, which is soon stored to.
    unsafe fn fetch_for_store(bytes: &mut [u8], at: usize);
    /// Orders streamed stores before what follows.
    unsafe fn fence();
    unsafe fn xor(self, other: Self) -> Self;
    /// Each lane times the generator, 2.
    unsafe fn double(self) -> Self;
    unsafe fn prepare(self) -> Self::Prepared;
    /// `self + coefficient * source`, each lane.
    unsafe fn add_product(self, source: Self::Prepared, coefficient: u8) -> Self;
}

/// Eight lanes in each of some integers: the portable register, wide enough that compilers make vector instructions of
/// it, and with a single integer that of lengths below a real register.
#[derive(Clone, Copy)]
pub(super) struct Words<const COUNT: usize>([u64; COUNT]);

pub(super) type Word = Words<1>;

const fn splat(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

impl<const COUNT: usize> Words<COUNT> {
    #[inline(always)]
    fn zip(self, other: Self, operation: impl Fn(u64, u64) -> u64) -> Self {
        let mut result = self;
        for (word, other) in result.0.iter_mut().zip(other.0) {
            *word = operation(*word, other);
        }
        result
    }

    #[inline(always)]
    fn sum(self, other: Self) -> Self {
        self.zip(other, |a, b| a ^ b)
    }

    /// `2 * self + other`, where 2 is the generator.
    #[inline(always)]
    fn double_and_add(self, other: Self) -> Self {
        self.zip(other, |word, other| {
            let carries = word & splat(0x80);
            // 0x80 becomes 0xff in its own lane: twice it, less its lowest bit.
            let masks = (carries << 1).wrapping_sub(carries >> 7);
            ((word << 1) & splat(0xfe)) ^ (masks & splat(0x1d)) ^ other
        })
    }

    #[inline(always)]
    fn times(self, coefficient: u8) -> Self {
        let mut product = Words([0; COUNT]);
        for bit in (0..8).rev() {
            let mask = 0_u64.wrapping_sub(u64::from((coefficient >> bit) & 1));
            product = product.double_and_add(self.zip(self, |word, _| word & mask));
        }
        product
    }
}

impl<const COUNT: usize> Vector for Words<COUNT> {
    const BYTES: usize = 8 * COUNT;
    const BY_COUNT: bool = false;
    type Prepared = Self;

    #[inline(always)]
    unsafe fn zero() -> Self {
        Words([0; COUNT])
    }

    #[inline(always)]
    unsafe fn load(bytes: &[u8], at: usize) -> Self {
        debug_assert!(at + Self::BYTES <= bytes.len());
        // SAFETY: the caller keeps the words within the slice; the read need not be aligned.
        Words(unsafe {
            bytes
                .as_ptr()
                .add(at)
                .cast::<[u64; COUNT]>()
                .read_unaligned()
        })
    }

    #[inline(always)]
    unsafe fn store(self, bytes: &mut [u8], at: usize) {
        debug_assert!(at + Self::BYTES <= bytes.len());
        // SAFETY: the caller keeps the words within the slice; the write need not be aligned.
        unsafe {
            bytes
                .as_mut_ptr()
                .add(at)
                .cast::<[u64; COUNT]>()
                .write_unaligned(self.0)
        }
    }

    #[inline(always)]
    unsafe fn stream(self, bytes: &mut [u8], at: usize) {
        // SAFETY: as for `store`; no portable instruction passes the caches.
        unsafe { self.store(bytes, at) }
    }

    #[inline(always)]
    unsafe fn fetch_for_store(_: &mut [u8], _: usize) {}

    #[inline(always)]
    unsafe fn fence() {}

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        self.sum(other)
    }

    #[inline(always)]
    unsafe fn double(self) -> Self {
        self.double_and_add(Words([0; COUNT]))
    }

    #[inline(always)]
    unsafe fn prepare(self) -> Self {
        self
    }

    #[inline(always)]
    unsafe fn add_product(self, source: Self, coefficient: u8) -> Self {
        self.sum(source.times(coefficient))
    }
}
