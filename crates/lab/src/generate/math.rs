//! Logarithm and exponential from additions, multiplications and divisions in a fixed order.
//!
//! The standard library leaves both to the platform, whose last digits differ; the four operations are exact
//! by IEEE 754. So a seed means the same bytes on every machine and at every optimisation level. Errors are
//! below 1e-14.

const LN_2: f64 = std::f64::consts::LN_2;
/// ln 2 in two parts, the first of few enough bits that its multiples by exponents are exact.
const LN_2_HIGH: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
const LN_2_LOW: f64 = f64::from_bits(0x3dea_39ef_3579_3c76);

/// Natural logarithm of a positive, normal number.
pub fn ln(x: f64) -> f64 {
    assert!(x >= f64::MIN_POSITIVE && x.is_finite(), "a positive number");
    let bits = x.to_bits();
    let mut exponent = f64::from((bits >> 52) as i32 - 1023);
    let mut mantissa = f64::from_bits(bits & 0x000f_ffff_ffff_ffff | 0x3ff0_0000_0000_0000);
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1.0;
    }
    // The series of the inverse hyperbolic tangent, whose argument is at most 0.172.
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let square = t * t;
    let mut sum = 0.0;
    for odd in (1..=23).rev().step_by(2) {
        sum = sum * square + 1.0 / f64::from(odd);
    }
    exponent * LN_2 + 2.0 * t * sum
}

/// e to the power of `x`; beyond 700 either way as at 700.
pub fn exp(x: f64) -> f64 {
    let x = x.clamp(-700.0, 700.0);
    let power = (x / LN_2 + 0.5).floor();
    let rest = x - power * LN_2_HIGH - power * LN_2_LOW;
    let mut sum = 1.0;
    for n in (1..=15).rev() {
        sum = sum * rest / f64::from(n) + 1.0;
    }
    let exponent = (power as i64 + 1023) as u64;
    sum * f64::from_bits(exponent << 52)
}

/// A positive number to any power.
pub fn pow(base: f64, exponent: f64) -> f64 {
    exp(exponent * ln(base))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_agree_with_the_platform() {
        for step in 1..4000 {
            let x = f64::from(step) * 0.37;
            assert!((ln(x) - x.ln()).abs() < 1e-13, "ln {x}");
            let y = f64::from(step - 2000) * 0.11;
            assert!((exp(y) / y.exp() - 1.0).abs() < 1e-13, "exp {y}");
        }
        assert_eq!((ln(1.0), exp(0.0)), (0.0, 1.0));
        assert!((ln(1e-300) - 1e-300f64.ln()).abs() < 1e-11);
    }

    #[test]
    fn a_few_values_to_the_last_bit() {
        let bits = [ln(3.0), exp(1.0), pow(7.0, -0.9)].map(f64::to_bits);
        let told = [
            4_607_626_529_066_517_258,
            4_613_303_445_314_885_482,
            4_595_420_632_948_888_324,
        ];
        assert_eq!(bits, told);
    }
}
