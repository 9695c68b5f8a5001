//! Arithmetic of GF(2^8) with md's polynomial, x^8 + x^4 + x^3 + x^2 + 1 (0x11d), and generator 2.
//!
//! The engine solves codes with it, a few multiplications a row; bytes of data are multiplied elsewhere.

/// The field's polynomial, without its leading term.
const POLYNOMIAL: u8 = 0x1d;

/// Non-zero elements: the order of the multiplicative group.
const ORDER: usize = 255;

/// Powers of the generator, twice over, so that a sum of two logarithms needs no reduction.
static POWERS: [u8; 2 * ORDER] = powers();

/// The logarithm of each non-zero element to the base of the generator.
static LOGARITHMS: [u8; 256] = logarithms();

const fn double(a: u8) -> u8 {
    if a & 0x80 == 0 {
        a << 1
    } else {
        a << 1 ^ POLYNOMIAL
    }
}

const fn powers() -> [u8; 2 * ORDER] {
    let mut table = [0; 2 * ORDER];
    let mut element = 1;
    let mut i = 0;
    while i < table.len() {
        table[i] = element;
        element = double(element);
        i += 1;
    }
    table
}

const fn logarithms() -> [u8; 256] {
    let table = powers();
    let mut inverse = [0; 256];
    let mut i = 0;
    while i < ORDER {
        inverse[table[i] as usize] = i as u8;
        i += 1;
    }
    inverse
}

/// The generator to the power `exponent`.
pub fn power(exponent: u8) -> u8 {
    POWERS[usize::from(exponent)]
}

/// The product of two elements. Their sum is their xor.
pub fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    let sum = usize::from(LOGARITHMS[usize::from(a)]) + usize::from(LOGARITHMS[usize::from(b)]);
    POWERS[sum]
}

/// `a` divided by `b`, or nothing when `b` is zero.
pub(crate) fn divide(a: u8, b: u8) -> Option<u8> {
    match (a, b) {
        (_, 0) => None,
        (0, _) => Some(0),
        _ => {
            let dividend = ORDER + usize::from(LOGARITHMS[usize::from(a)]);
            Some(POWERS[dividend - usize::from(LOGARITHMS[usize::from(b)])])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long multiplication, bit by bit.
    fn slow(mut a: u8, mut b: u8) -> u8 {
        let mut product = 0;
        while b != 0 {
            if b & 1 == 1 {
                product ^= a;
            }
            a = double(a);
            b >>= 1;
        }
        product
    }

    #[test]
    fn multiplies_and_divides_every_pair() {
        for a in 0..=255 {
            for b in 0..=255 {
                let product = multiply(a, b);
                assert_eq!(product, slow(a, b), "{a} * {b}");
                assert_eq!(divide(product, b), (b != 0).then_some(a), "{product} / {b}");
            }
        }
    }

    #[test]
    fn powers_of_the_generator_are_distinct() {
        let mut seen = [false; 256];
        for exponent in 0..255 {
            let element = usize::from(power(exponent));
            assert!(element != 0 && !seen[element]);
            seen[element] = true;
        }
        assert_eq!((power(0), power(1), power(8), power(255)), (1, 2, 0x1d, 1));
    }
}
