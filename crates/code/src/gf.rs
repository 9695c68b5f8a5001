//! The field GF(2^8) with polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d) and generator 2, as Linux md and most RAID-6
//! arrays use it, and the tables of a coefficient that the vector kernels multiply by.
//!
//! All tables are made by the compiler; nothing is initialised at run time.

/// The field's polynomial, with its leading term.
pub const POLYNOMIAL: u16 = 0x11d;

/// Number of non-zero elements, which is the order of the generator.
pub const ORDER: u32 = 255;

const fn double(value: u8) -> u8 {
    let carry = if value & 0x80 == 0 {
        0
    } else {
        (POLYNOMIAL & 0xff) as u8
    };
    (value << 1) ^ carry
}

/// `EXPONENTIALS[e]` is 2^e. It runs twice around the group, so that a sum of two logarithms needs no reduction.
const EXPONENTIALS: [u8; 512] = {
    let mut table = [0; 512];
    let mut value = 1;
    let mut exponent = 0;
    while exponent < table.len() {
        table[exponent] = value;
        value = double(value);
        exponent += 1;
    }
    table
};

/// `LOGARITHMS[x]` is the e with 2^e = x. The entry of 0 means nothing.
const LOGARITHMS: [u8; 256] = {
    let mut table = [0; 256];
    let mut exponent = 0;
    while exponent < ORDER as usize {
        table[EXPONENTIALS[exponent] as usize] = exponent as u8;
        exponent += 1;
    }
    table
};

/// The product of two elements.
pub const fn mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXPONENTIALS[LOGARITHMS[a as usize] as usize + LOGARITHMS[b as usize] as usize]
}

/// 2^exponent: md's coefficient in Q of the data cell with this number.
pub const fn pow2(exponent: u32) -> u8 {
    EXPONENTIALS[(exponent % ORDER) as usize]
}

/// The exponent below 255 with 2^exponent = value; none for 0.
pub const fn log(value: u8) -> Option<u8> {
    if value == 0 {
        None
    } else {
        Some(LOGARITHMS[value as usize])
    }
}

/// The element whose product with `value` is 1; none for 0.
pub const fn inv(value: u8) -> Option<u8> {
    match log(value) {
        Some(exponent) => Some(pow2(ORDER - exponent as u32)),
        None => None,
    }
}

/// For each coefficient its products with the 16 low nibbles, then with the 16 high ones: multiplication is linear, so
/// two look-ups of 16 entries make any product.
#[cfg(any(test, target_arch = "x86_64"))]
pub(crate) static NIBBLES: [[u8; 32]; 256] = {
    let mut tables = [[0; 32]; 256];
    let mut coefficient = 0;
    while coefficient < 256 {
        let mut nibble = 0;
        while nibble < 16 {
            tables[coefficient][nibble] = mul(coefficient as u8, nibble as u8);
            tables[coefficient][16 + nibble] = mul(coefficient as u8, (nibble << 4) as u8);
            nibble += 1;
        }
        coefficient += 1;
    }
    tables
};

/// For each coefficient the bit matrix of multiplying by it, as the instruction GF2P8AFFINEQB takes it: byte `7 - i` has
/// the bits of the input that make bit `i` of the output.
#[cfg(any(test, target_arch = "x86_64"))]
pub(crate) static MATRICES: [u64; 256] = {
    let mut matrices = [0; 256];
    let mut coefficient = 0;
    while coefficient < 256 {
        matrices[coefficient] = matrix(coefficient as u8);
        coefficient += 1;
    }
    matrices
};

#[cfg(any(test, target_arch = "x86_64"))]
const fn matrix(coefficient: u8) -> u64 {
    let mut matrix = 0;
    let mut input = 0;
    while input < 8 {
        let column = mul(coefficient, 1 << input);
        let mut output = 0;
        while output < 8 {
            let bit = ((column >> output) & 1) as u64;
            matrix |= bit << ((7 - output) * 8 + input);
            output += 1;
        }
        input += 1;
    }
    matrix
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference;

    #[test]
    fn products_equal_the_reference() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(mul(a, b), reference::mul(a, b), "{a} * {b}");
            }
        }
    }

    #[test]
    fn inverses_and_logarithms_invert() {
        assert_eq!((log(0), inv(0)), (None, None));
        for value in 1..=255 {
            assert_eq!(mul(value, inv(value).unwrap()), 1);
            assert_eq!(pow2(log(value).unwrap().into()), value);
        }
    }

    #[test]
    fn the_generator_has_full_order() {
        let mut seen: Vec<u8> = (0..ORDER).map(pow2).collect();
        seen.sort_unstable();
        assert_eq!(seen, (1..=255).collect::<Vec<u8>>());
        assert_eq!((pow2(0), pow2(1), pow2(8), pow2(ORDER)), (1, 2, 0x1d, 1));
    }

    #[test]
    fn tables_of_a_coefficient_make_its_products() {
        for coefficient in 0..=255_u8 {
            for value in 0..=255_u8 {
                let [low, high] = [value & 15, value >> 4].map(usize::from);
                let table = &NIBBLES[usize::from(coefficient)];
                assert_eq!(table[low] ^ table[16 + high], mul(coefficient, value));
                let rows = MATRICES[usize::from(coefficient)].to_be_bytes();
                let bits = (0..8).map(|i| (((rows[i] & value).count_ones() & 1) as u8) << i);
                assert_eq!(bits.sum::<u8>(), mul(coefficient, value));
            }
        }
    }
}
