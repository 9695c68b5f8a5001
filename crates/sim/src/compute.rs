//! Computations on the simulated memory, by the real kernels.

use crate::memory::BufferTable;
use crate::payload::Payload;
use restripe_array::{Compute, ComputeOp, Guilty, Verdict};
use restripe_code::{Located, crc32c, linear, locate};

/// Does what is asked, as of now. The references were checked before.
///
/// # Panics
/// On a page, if 8 bytes stand for a sector: it would not come back. See [`holds_pages`].
pub fn perform(compute: &mut Compute, payload: Payload, memory: &mut BufferTable) -> Verdict {
    if payload == Payload::None {
        return without_data(compute.op);
    }
    match compute.op {
        ComputeOp::PutPage => put_page(compute, memory),
        ComputeOp::TakePage => take_page(compute, memory),
        ComputeOp::Linear => combine(compute, memory),
        ComputeOp::Checksum => Verdict::Checksum(crc32c(0, memory.get(compute.sources[0]))),
        ComputeOp::Compare => compare(compute, memory),
        ComputeOp::Or => or(compute, memory),
        ComputeOp::Locate => verdict(locate(
            memory.get(compute.sources[0]),
            memory.get(compute.sources[1]),
        )),
    }
}

/// Without data everything agrees.
fn without_data(op: ComputeOp) -> Verdict {
    match op {
        ComputeOp::Linear | ComputeOp::Or | ComputeOp::PutPage | ComputeOp::TakePage => {
            Verdict::Done
        }
        ComputeOp::Checksum => Verdict::Checksum(0),
        ComputeOp::Compare | ComputeOp::Locate => Verdict::Equal,
    }
}

/// Whether data can hold a page of metadata, or what lies there is nobody's concern.
pub fn holds_pages(payload: Payload) -> bool {
    payload != Payload::Tokens
}

fn put_page(compute: &Compute, memory: &mut BufferTable) -> Verdict {
    let page = compute.page.as_ref().expect("checked at submission");
    let target = compute.outputs[0].target;
    memory.get_mut(target).copy_from_slice(&page[..]);
    Verdict::Done
}

fn take_page(compute: &mut Compute, memory: &BufferTable) -> Verdict {
    let page = compute.page.as_mut().expect("checked at submission");
    page.copy_from_slice(memory.get(compute.sources[0]));
    Verdict::Done
}

fn combine(compute: &Compute, memory: &mut BufferTable) -> Verdict {
    let length = |output: &restripe_array::LinearOutput| memory.get(output.target).len();
    let mut made: Vec<Vec<u8>> = compute
        .outputs
        .iter()
        .map(|output| vec![0; length(output)])
        .collect();
    let sources = compute.sources.iter().map(|source| memory.get(*source));
    let sources: Vec<&[u8]> = sources.collect();
    let coefficients: Vec<&[u8]> = compute
        .outputs
        .iter()
        .map(|output| &output.coefficients[..])
        .collect();
    let mut targets: Vec<&mut [u8]> = made.iter_mut().map(|target| &mut target[..]).collect();
    linear(&sources, &coefficients, &mut targets);
    for (output, bytes) in compute.outputs.iter().zip(&made) {
        memory.get_mut(output.target).copy_from_slice(bytes);
    }
    Verdict::Done
}

fn compare(compute: &Compute, memory: &BufferTable) -> Verdict {
    let equal = memory.get(compute.sources[0]) == memory.get(compute.sources[1]);
    if equal {
        Verdict::Equal
    } else {
        Verdict::Differ
    }
}

fn or(compute: &Compute, memory: &mut BufferTable) -> Verdict {
    let [one, other] = [0, 1].map(|index| memory.get(compute.sources[index]));
    let made: Vec<u8> = one
        .iter()
        .zip(other)
        .map(|(one, other)| one | other)
        .collect();
    memory
        .get_mut(compute.outputs[0].target)
        .copy_from_slice(&made);
    Verdict::Done
}

fn verdict(located: Located) -> Verdict {
    match located {
        Located::Clean => Verdict::Equal,
        Located::Data { exponent } => Verdict::Guilty(Guilty::Data { exponent }),
        Located::P => Verdict::Guilty(Guilty::P),
        Located::Q => Verdict::Guilty(Guilty::Q),
        Located::Ambiguous => Verdict::Ambiguous,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use restripe_array::{Buf, BufRef, LinearOutput, Pool, SMALL_BYTES, Tag};

    fn reference(buf: u32) -> BufRef {
        BufRef::new(Buf(buf), 0, 512)
    }

    fn compute(op: ComputeOp, sources: &[u32], outputs: Vec<LinearOutput>) -> Compute {
        Compute {
            tag: Tag(1),
            op,
            sources: sources.iter().map(|buf| reference(*buf)).collect(),
            outputs,
            page: None,
        }
    }

    fn memory(values: &[u8]) -> BufferTable {
        let mut memory = BufferTable::new(Payload::Tokens, Pool { small: 8, large: 0 });
        for (buf, value) in values.iter().enumerate() {
            memory.get_mut(reference(buf as u32)).fill(*value);
        }
        memory
    }

    fn perform(mut compute: Compute, memory: &mut BufferTable) -> Verdict {
        super::perform(&mut compute, Payload::Tokens, memory)
    }

    #[test]
    fn a_page_goes_through_a_buffer() {
        let mut memory = BufferTable::new(Payload::Bytes, Pool { small: 1, large: 0 });
        let whole = BufRef::new(Buf(0), 0, SMALL_BYTES);
        let page = |value| Some(Box::new([value; SMALL_BYTES as usize]));
        let target = LinearOutput {
            target: whole,
            coefficients: Vec::new(),
        };
        let mut put = Compute {
            page: page(7),
            ..compute(ComputeOp::PutPage, &[], vec![target])
        };
        super::perform(&mut put, Payload::Bytes, &mut memory);
        let mut take = Compute {
            sources: vec![whole],
            page: page(0),
            ..compute(ComputeOp::TakePage, &[], Vec::new())
        };
        super::perform(&mut take, Payload::Bytes, &mut memory);
        assert_eq!(take.page, page(7));
    }

    #[test]
    fn parity_and_syndromes_on_tokens() {
        let mut memory = memory(&[0x11, 0x22]);
        let output = |target, coefficients: &[u8]| LinearOutput {
            target: reference(target),
            coefficients: coefficients.to_vec(),
        };
        let both = compute(
            ComputeOp::Linear,
            &[0, 1],
            vec![output(2, &[1, 1]), output(3, &[1, 2])],
        );
        assert_eq!(perform(both, &mut memory), Verdict::Done);
        let parities = [2, 3].map(|buf| memory.get(reference(buf))[0]);
        assert_eq!(parities, [0x33, 0x55]);
        // The error 0x11 in data cell 1 enters P as it is and Q doubled.
        memory.get_mut(reference(4)).fill(0x11);
        memory.get_mut(reference(5)).fill(0x22);
        let guilty = compute(ComputeOp::Locate, &[4, 5], Vec::new());
        let expected = Verdict::Guilty(Guilty::Data { exponent: 1 });
        assert_eq!(perform(guilty, &mut memory), expected);
    }

    #[test]
    fn comparison_and_checksum() {
        let mut memory = memory(&[7, 7, 8]);
        let mut ask = |op, sources: &[u32]| perform(compute(op, sources, Vec::new()), &mut memory);
        assert_eq!(ask(ComputeOp::Compare, &[0, 1]), Verdict::Equal);
        assert_eq!(ask(ComputeOp::Compare, &[0, 2]), Verdict::Differ);
        let sum = Verdict::Checksum(crc32c(0, &[7; 8]));
        assert_eq!(ask(ComputeOp::Checksum, &[0]), sum);
    }
}
