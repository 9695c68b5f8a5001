//! What every kernel must equal, written to be evidently right rather than fast: products bit by bit, one byte at a time,
//! no tables. Tests hold the kernels against it; nothing serves users with it.

use crate::Located;

/// The product in GF(2^8), polynomial 0x11d, by shift and add.
pub fn mul(a: u8, b: u8) -> u8 {
    let mut product: u16 = 0;
    for bit in (0..8).rev() {
        product <<= 1;
        if product & 0x100 != 0 {
            product ^= 0x11d;
        }
        if (b >> bit) & 1 != 0 {
            product ^= u16::from(a);
        }
    }
    u8::try_from(product).expect("reduced below 256 by the polynomial")
}

/// `targets[j] = sum over i of coefficients[j][i] * sources[i]`.
pub fn linear(sources: &[&[u8]], coefficients: &[&[u8]], targets: &mut [&mut [u8]]) {
    assert_eq!(
        coefficients.len(),
        targets.len(),
        "a row of coefficients for each target"
    );
    for (row, target) in coefficients.iter().zip(targets) {
        assert_eq!(row.len(), sources.len(), "a coefficient for each source");
        for (at, byte) in target.iter_mut().enumerate() {
            let products = row
                .iter()
                .zip(sources)
                .map(|(&coefficient, source)| mul(coefficient, source[at]));
            *byte = products.fold(0, |sum, product| sum ^ product);
        }
    }
}

/// CRC-32C (Castagnoli) of `bytes`, going on from the checksum `before` of what precedes them (0 for nothing).
pub fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    let mut state = !before;
    for &byte in bytes {
        state ^= u32::from(byte);
        for _ in 0..8 {
            let carry = if state & 1 == 0 { 0 } else { 0x82f6_3b78 };
            state = (state >> 1) ^ carry;
        }
    }
    !state
}

/// The single cell whose being wrong explains both syndromes, by trying all of them.
pub fn locate(p_syndrome: &[u8], q_syndrome: &[u8]) -> Located {
    assert_eq!(p_syndrome.len(), q_syndrome.len(), "syndromes of one slice");
    let zero = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0);
    match (zero(p_syndrome), zero(q_syndrome)) {
        (true, true) => return Located::Clean,
        (false, true) => return Located::P,
        (true, false) => return Located::Q,
        (false, false) => {}
    }
    let mut coefficient = 1;
    for exponent in 0..255 {
        if p_syndrome
            .iter()
            .zip(q_syndrome)
            .all(|(&p, &q)| mul(coefficient, p) == q)
        {
            return Located::Data { exponent };
        }
        coefficient = mul(coefficient, 2);
    }
    Located::Ambiguous
}
