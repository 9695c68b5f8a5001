//! What a kernel asks of a vector register, and the portable register.

use std::ops::BitXor;

/// A register of byte lanes over GF(2^8).
///
/// # Safety of the methods
/// Each is an instruction or a few, and may be called only on a CPU that has the implementing type's features; whoever
/// picks the type upholds that once, in [`super::Kernels`]. Those that take a slice access `BYTES` bytes of it from `at`
/// on, which the caller keeps within the slice.
pub(super) trait Vector: Copy {
    const BYTES: usize;

    /// A source's bytes, prepared for multiplication by several coefficients.
    type Prepared: Copy;

    unsafe fn zero() -> Self;
    unsafe fn load(bytes: &[u8], at: usize) -> Self;
    unsafe fn store(self, bytes: &mut [u8], at: usize);
    /// Stores past the caches. The address is aligned to `BYTES`.
    unsafe fn stream(self, bytes: &mut [u8], at: usize);
    /// Orders streamed stores before what follows.
    unsafe fn fence();
    unsafe fn xor(self, other: Self) -> Self;
    /// Each lane times the generator, 2.
    unsafe fn double(self) -> Self;
    unsafe fn prepare(self) -> Self::Prepared;
    /// `self + coefficient * source`, each lane.
    unsafe fn add_product(self, source: Self::Prepared, coefficient: u8) -> Self;
}

/// Eight lanes in an integer: the portable register, and that of lengths below a real one.
#[derive(Clone, Copy)]
pub(super) struct Word(u64);

const fn splat(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

impl BitXor for Word {
    type Output = Word;

    #[inline(always)]
    fn bitxor(self, other: Word) -> Word {
        Word(self.0 ^ other.0)
    }
}

impl Word {
    #[inline(always)]
    fn doubled(self) -> Word {
        let carries = self.0 & splat(0x80);
        // 0x80 becomes 0xff in its own lane: twice it, less its lowest bit.
        let masks = (carries << 1).wrapping_sub(carries >> 7);
        Word(((self.0 << 1) & splat(0xfe)) ^ (masks & splat(0x1d)))
    }

    #[inline(always)]
    fn times(self, coefficient: u8) -> Word {
        let mut product = Word(0);
        for bit in (0..8).rev() {
            let mask = 0_u64.wrapping_sub(u64::from((coefficient >> bit) & 1));
            product = product.doubled() ^ Word(self.0 & mask);
        }
        product
    }
}

impl Vector for Word {
    const BYTES: usize = 8;
    type Prepared = Word;

    #[inline(always)]
    unsafe fn zero() -> Word {
        Word(0)
    }

    #[inline(always)]
    unsafe fn load(bytes: &[u8], at: usize) -> Word {
        debug_assert!(at + Self::BYTES <= bytes.len());
        // SAFETY: the caller keeps the 8 bytes within the slice; the read need not be aligned.
        Word(unsafe { bytes.as_ptr().add(at).cast::<u64>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, bytes: &mut [u8], at: usize) {
        debug_assert!(at + Self::BYTES <= bytes.len());
        // SAFETY: the caller keeps the 8 bytes within the slice; the write need not be aligned.
        unsafe {
            bytes
                .as_mut_ptr()
                .add(at)
                .cast::<u64>()
                .write_unaligned(self.0)
        }
    }

    #[inline(always)]
    unsafe fn stream(self, bytes: &mut [u8], at: usize) {
        // SAFETY: as for `store`; no portable instruction passes the caches.
        unsafe { self.store(bytes, at) }
    }

    #[inline(always)]
    unsafe fn fence() {}

    #[inline(always)]
    unsafe fn xor(self, other: Word) -> Word {
        self ^ other
    }

    #[inline(always)]
    unsafe fn double(self) -> Word {
        self.doubled()
    }

    #[inline(always)]
    unsafe fn prepare(self) -> Word {
        self
    }

    #[inline(always)]
    unsafe fn add_product(self, source: Word, coefficient: u8) -> Word {
        self ^ source.times(coefficient)
    }
}
