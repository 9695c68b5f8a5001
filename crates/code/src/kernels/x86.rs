//! The vector registers of x86-64: SSSE3 (small servers' Atoms have no more), AVX2, and AVX-512 with the Galois-field
//! instructions.

use std::arch::x86_64::*;

use super::vector::Vector;
use crate::gf::{MATRICES, NIBBLES};

/// What differs between the registers in the names of instructions only. Each function needs the instructions of its
/// type, which is the caller's promise.
macro_rules! memory_and_xor {
    ($zero:ident, $load:ident, $store:ident, $stream:ident, $xor:ident) => {
        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the instructions are the caller's promise.
            Self(unsafe { $zero() })
        }

        #[inline(always)]
        unsafe fn load(bytes: &[u8], at: usize) -> Self {
            debug_assert!(at + Self::BYTES <= bytes.len());
            // SAFETY: instructions and room in the slice are the caller's promise; a load need not be aligned.
            Self(unsafe { $load(bytes.as_ptr().add(at).cast()) })
        }

        #[inline(always)]
        unsafe fn store(self, bytes: &mut [u8], at: usize) {
            debug_assert!(at + Self::BYTES <= bytes.len());
            // SAFETY: instructions and room in the slice are the caller's promise; a store need not be aligned.
            unsafe { $store(bytes.as_mut_ptr().add(at).cast(), self.0) }
        }

        #[inline(always)]
        unsafe fn stream(self, bytes: &mut [u8], at: usize) {
            debug_assert!(at + Self::BYTES <= bytes.len());
            // SAFETY: instructions, room and alignment are the caller's promise, who fences before returning.
            unsafe { $stream(bytes.as_mut_ptr().add(at).cast(), self.0) }
        }

        #[inline(always)]
        unsafe fn fetch_for_store(bytes: &mut [u8], at: usize) {
            debug_assert!(at < bytes.len());
            // SAFETY: the address is within the slice, and a hint reads and writes nothing.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(bytes.as_ptr().add(at).cast()) }
        }

        #[inline(always)]
        unsafe fn fence() {
            // SAFETY: every x86-64 has it.
            unsafe { _mm_sfence() }
        }

        #[inline(always)]
        unsafe fn xor(self, other: Self) -> Self {
            // SAFETY: the instructions are the caller's promise.
            Self(unsafe { $xor(self.0, other.0) })
        }
    };
}

/// 16 lanes; products from look-ups of nibbles (Plank, Greenan and Miller, "Screaming fast Galois field arithmetic using
/// Intel SIMD instructions", FAST 2013). Needs SSSE3.
#[derive(Clone, Copy)]
pub(super) struct Ssse3(__m128i);

impl Vector for Ssse3 {
    const BYTES: usize = 16;
    const BY_COUNT: bool = false;
    /// The low nibbles and the high ones.
    type Prepared = (__m128i, __m128i);

    memory_and_xor!(
        _mm_setzero_si128,
        _mm_loadu_si128,
        _mm_storeu_si128,
        _mm_stream_si128,
        _mm_xor_si128
    );

    #[inline(always)]
    unsafe fn double(self) -> Ssse3 {
        // SAFETY: SSSE3 is the caller's promise.
        unsafe {
            let carries = _mm_cmpgt_epi8(_mm_setzero_si128(), self.0);
            let reduction = _mm_and_si128(carries, _mm_set1_epi8(0x1d));
            Ssse3(_mm_xor_si128(_mm_add_epi8(self.0, self.0), reduction))
        }
    }

    #[inline(always)]
    unsafe fn prepare(self) -> (__m128i, __m128i) {
        // SAFETY: SSSE3 is the caller's promise.
        unsafe {
            let mask = _mm_set1_epi8(15);
            let high = _mm_and_si128(_mm_srli_epi64::<4>(self.0), mask);
            (_mm_and_si128(self.0, mask), high)
        }
    }

    #[inline(always)]
    unsafe fn add_product(self, (low, high): (__m128i, __m128i), coefficient: u8) -> Ssse3 {
        let table = NIBBLES[usize::from(coefficient)].as_ptr();
        // SAFETY: SSSE3 is the caller's promise; a table has 32 bytes, two loads of 16.
        unsafe {
            let lows = _mm_loadu_si128(table.cast());
            let highs = _mm_loadu_si128(table.add(16).cast());
            let low_products = _mm_shuffle_epi8(lows, low);
            let high_products = _mm_shuffle_epi8(highs, high);
            Ssse3(_mm_xor_si128(
                self.0,
                _mm_xor_si128(low_products, high_products),
            ))
        }
    }
}

/// 32 lanes, otherwise as [`Ssse3`]. Needs AVX2.
#[derive(Clone, Copy)]
pub(super) struct Avx2(__m256i);

impl Vector for Avx2 {
    const BYTES: usize = 32;
    const BY_COUNT: bool = true;
    /// The low nibbles and the high ones.
    type Prepared = (__m256i, __m256i);

    memory_and_xor!(
        _mm256_setzero_si256,
        _mm256_loadu_si256,
        _mm256_storeu_si256,
        _mm256_stream_si256,
        _mm256_xor_si256
    );

    #[inline(always)]
    unsafe fn double(self) -> Avx2 {
        // SAFETY: AVX2 is the caller's promise.
        unsafe {
            let carries = _mm256_cmpgt_epi8(_mm256_setzero_si256(), self.0);
            let reduction = _mm256_and_si256(carries, _mm256_set1_epi8(0x1d));
            Avx2(_mm256_xor_si256(_mm256_add_epi8(self.0, self.0), reduction))
        }
    }

    #[inline(always)]
    unsafe fn prepare(self) -> (__m256i, __m256i) {
        // SAFETY: AVX2 is the caller's promise.
        unsafe {
            let mask = _mm256_set1_epi8(15);
            let high = _mm256_and_si256(_mm256_srli_epi64::<4>(self.0), mask);
            (_mm256_and_si256(self.0, mask), high)
        }
    }

    #[inline(always)]
    unsafe fn add_product(self, (low, high): (__m256i, __m256i), coefficient: u8) -> Avx2 {
        let table = NIBBLES[usize::from(coefficient)].as_ptr();
        // SAFETY: AVX2 is the caller's promise; a table has 32 bytes, two loads of 16.
        unsafe {
            let lows = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.cast()));
            let highs = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.add(16).cast()));
            let low_products = _mm256_shuffle_epi8(lows, low);
            let high_products = _mm256_shuffle_epi8(highs, high);
            Avx2(_mm256_xor_si256(
                self.0,
                _mm256_xor_si256(low_products, high_products),
            ))
        }
    }
}

/// 64 lanes; a product is one instruction that applies the coefficient's bit matrix. Needs AVX-512 F and BW and GFNI.
#[derive(Clone, Copy)]
pub(super) struct Avx512(__m512i);

impl Vector for Avx512 {
    const BYTES: usize = 64;
    const BY_COUNT: bool = true;
    type Prepared = __m512i;

    memory_and_xor!(
        _mm512_setzero_si512,
        _mm512_loadu_si512,
        _mm512_storeu_si512,
        _mm512_stream_si512,
        _mm512_xor_si512
    );

    #[inline(always)]
    unsafe fn double(self) -> Avx512 {
        // SAFETY: AVX-512 with GFNI is the caller's promise.
        unsafe {
            let matrix = _mm512_set1_epi64(MATRICES[2].cast_signed());
            Avx512(_mm512_gf2p8affine_epi64_epi8::<0>(self.0, matrix))
        }
    }

    #[inline(always)]
    unsafe fn prepare(self) -> __m512i {
        self.0
    }

    #[inline(always)]
    unsafe fn add_product(self, source: __m512i, coefficient: u8) -> Avx512 {
        let matrix = MATRICES[usize::from(coefficient)].cast_signed();
        // SAFETY: AVX-512 with GFNI is the caller's promise.
        unsafe {
            let product = _mm512_gf2p8affine_epi64_epi8::<0>(source, _mm512_set1_epi64(matrix));
            Avx512(_mm512_xor_si512(self.0, product))
        }
    }
}
