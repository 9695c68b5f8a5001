//! The shell's arithmetic, as plainly as it can be put.

use restripe_array::{Compute, ComputeOp, Guilty, Verdict};

/// A product in GF(2^8) with the polynomial 0x11d.
fn product(mut a: u8, mut b: u8) -> u8 {
    let mut sum = 0;
    while b != 0 {
        if b & 1 == 1 {
            sum ^= a;
        }
        a = (a << 1) ^ if a & 0x80 != 0 { 0x1d } else { 0 };
        b >>= 1;
    }
    sum
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 }
        })
    })
}

/// Which exponent of 2 takes every byte of `p` to that of `q`.
fn locate(p: &[u8], q: &[u8]) -> Verdict {
    let zero = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0);
    match (zero(p), zero(q)) {
        (true, true) => return Verdict::Equal,
        (false, true) => return Verdict::Guilty(Guilty::P),
        (true, false) => return Verdict::Guilty(Guilty::Q),
        (false, false) => {}
    }
    let mut factor = 1;
    for exponent in 0..255 {
        if p.iter().zip(q).all(|(&p, &q)| product(p, factor) == q) {
            return Verdict::Guilty(Guilty::Data { exponent });
        }
        factor = product(factor, 2);
    }
    Verdict::Ambiguous
}

/// The outputs of a computation, in order, and its verdict.
pub fn compute(compute: &Compute, sources: &[Vec<u8>]) -> (Vec<Vec<u8>>, Verdict) {
    let verdict = match compute.op {
        ComputeOp::Linear => Verdict::Done,
        ComputeOp::Checksum => Verdict::Checksum(crc32c(&sources[0])),
        ComputeOp::Compare if sources[0] == sources[1] => Verdict::Equal,
        ComputeOp::Compare => Verdict::Differ,
        ComputeOp::Or => {
            let pairs = sources[0].iter().zip(&sources[1]);
            return (
                vec![pairs.map(|(one, other)| one | other).collect()],
                Verdict::Done,
            );
        }
        ComputeOp::Locate => locate(&sources[0], &sources[1]),
        ComputeOp::PutPage | ComputeOp::TakePage => unreachable!("the shell's own affair"),
    };
    let outputs = compute.outputs.iter().map(|output| {
        let mut sum = vec![0; output.target.bytes as usize];
        for (source, &coefficient) in sources.iter().zip(&output.coefficients) {
            for (byte, &from) in sum.iter_mut().zip(source) {
                *byte ^= product(from, coefficient);
            }
        }
        sum
    });
    (outputs.collect(), verdict)
}
