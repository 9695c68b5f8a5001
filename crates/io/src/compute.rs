//! The engine's computations, carried out on the memory behind its handles.

use crate::memory::Handles;
use restripe_array::{BufRef, CELLS_MAX, Compute, ComputeOp, Guilty, Verdict};
use restripe_code::Located;

/// Sources and outputs up to which a computation needs no memory of its own: old and new cells of the widest row.
const SOURCES_FEW: usize = 2 * CELLS_MAX + 4;
const OUTPUTS_FEW: usize = CELLS_MAX;

/// Carries out a computation.
pub fn perform(compute: &mut Compute, handles: &Handles<'_>) -> Verdict {
    match compute.op {
        ComputeOp::PutPage | ComputeOp::TakePage => page(compute, handles),
        _ => combine(compute, handles),
    }
}

/// Metadata into a buffer, or out of one.
fn page(compute: &mut Compute, handles: &Handles<'_>) -> Verdict {
    let page = compute.page.as_mut().expect("the operation has one");
    match compute.outputs.first() {
        Some(output) => {
            let target = output.target;
            let memory = handles.memory(target.buf);
            memory.fill(target.offset as usize, &page[..]);
        }
        None => page.copy_from_slice(handles.slice(compute.sources[0])),
    }
    Verdict::Done
}

fn combine(compute: &Compute, handles: &Handles<'_>) -> Verdict {
    let source = |index: usize| handles.slice(compute.sources[index]);
    match compute.op {
        ComputeOp::Linear => {
            linear(compute, handles);
            Verdict::Done
        }
        ComputeOp::Checksum => Verdict::Checksum(restripe_code::crc32c(0, source(0))),
        ComputeOp::Compare if restripe_code::compare(source(0), source(1)) => Verdict::Equal,
        ComputeOp::Compare => Verdict::Differ,
        ComputeOp::Locate => verdict(restripe_code::locate(source(0), source(1))),
        ComputeOp::Or => or(compute, handles),
        ComputeOp::PutPage | ComputeOp::TakePage => unreachable!("the caller's"),
    }
}

fn or(compute: &Compute, handles: &Handles<'_>) -> Verdict {
    assert_disjoint(compute, handles);
    let [one, other] = [0, 1].map(|index| handles.slice(compute.sources[index]));
    let target = target_slice(handles, compute.outputs[0].target);
    for (byte, (one, other)) in target.iter_mut().zip(one.iter().zip(other)) {
        *byte = one | other;
    }
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

fn linear(compute: &Compute, handles: &Handles<'_>) {
    assert_disjoint(compute, handles);
    let (sources, outputs) = (compute.sources.len(), compute.outputs.len());
    if sources > SOURCES_FEW || outputs > OUTPUTS_FEW {
        return linear_wide(compute, handles);
    }
    let mut source = [&[] as &[u8]; SOURCES_FEW];
    let mut coefficients = [&[] as &[u8]; OUTPUTS_FEW];
    let mut target: [&mut [u8]; OUTPUTS_FEW] = std::array::from_fn(|_| &mut [] as &mut [u8]);
    for (slot, part) in source.iter_mut().zip(&compute.sources) {
        *slot = handles.slice(*part);
    }
    for (i, output) in compute.outputs.iter().enumerate() {
        coefficients[i] = &output.coefficients;
        target[i] = target_slice(handles, output.target);
    }
    let (source, coefficients) = (&source[..sources], &coefficients[..outputs]);
    restripe_code::linear(source, coefficients, &mut target[..outputs]);
}

fn linear_wide(compute: &Compute, handles: &Handles<'_>) {
    let source = compute.sources.iter().map(|part| handles.slice(*part));
    let source: Vec<&[u8]> = source.collect();
    let coefficients: Vec<&[u8]> = compute
        .outputs
        .iter()
        .map(|output| &output.coefficients[..])
        .collect();
    let mut target: Vec<&mut [u8]> = compute
        .outputs
        .iter()
        .map(|output| target_slice(handles, output.target))
        .collect();
    restripe_code::linear(&source, &coefficients, &mut target);
}

/// A target's bytes. Only after [`assert_disjoint`] and only one for each target.
#[expect(
    clippy::mut_from_ref,
    reason = "the memory is not the handles' own; the assertion keeps slices disjoint"
)]
fn target_slice<'a>(handles: &'a Handles<'_>, part: BufRef) -> &'a mut [u8] {
    let memory = handles.memory(part.buf);
    let start = memory.at(part.offset as usize, part.bytes as usize);
    // SAFETY: in bounds by `at`; no other slice of this computation overlaps it, by the assertion made before; no
    // operation in flight touches it, by rules 5 and 6 of the engine's contract.
    unsafe { std::slice::from_raw_parts_mut(start, part.bytes as usize) }
}

/// What makes the mutable slices sound: no target overlaps a source or another target, also where two handles or two
/// parts of one handle are involved.
fn assert_disjoint(compute: &Compute, handles: &Handles<'_>) {
    let span = |part: BufRef| {
        let memory = handles.memory(part.buf);
        let start = memory.at(part.offset as usize, part.bytes as usize) as usize;
        (start, start + part.bytes as usize)
    };
    for (i, output) in compute.outputs.iter().enumerate() {
        let (start, end) = span(output.target);
        let apart = |part: BufRef| {
            let (from, to) = span(part);
            to <= start || end <= from
        };
        let sound = compute.sources.iter().all(|source| apart(*source));
        assert!(sound, "a target overlaps a source");
        assert!(
            compute.outputs[..i].iter().all(|other| apart(other.target)),
            "two targets overlap"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{PoolMemory, UserMemory};
    use restripe_array::{Buf, LinearOutput, Pool, Tag};

    fn perform(mut compute: Compute, handles: &Handles<'_>) -> Verdict {
        super::perform(&mut compute, handles)
    }

    fn with_handles(test: impl Fn(Handles<'_>)) {
        let mut pool = PoolMemory::new(Pool { small: 4, large: 0 }).expect("memory");
        let mut users = UserMemory::new(1 << 20);
        test(Handles::new(&mut pool, &mut users));
    }

    fn part(buf: u32, offset: u32) -> BufRef {
        BufRef::new(Buf(buf), offset, 512)
    }

    fn compute(op: ComputeOp, sources: Vec<BufRef>, outputs: Vec<LinearOutput>) -> Compute {
        Compute {
            tag: Tag(1),
            op,
            sources,
            outputs,
            page: None,
        }
    }

    #[test]
    fn parity_of_two_cells_in_one_buffer() {
        with_handles(|handles| {
            handles.memory(Buf(0)).fill(0, &[0x0f; 512]);
            handles.memory(Buf(0)).fill(512, &[0x33; 512]);
            let p = LinearOutput {
                target: part(0, 1024),
                coefficients: vec![1, 1],
            };
            let q = LinearOutput {
                target: part(1, 0),
                coefficients: vec![1, 2],
            };
            let sources = vec![part(0, 0), part(0, 512)];
            let linear = compute(ComputeOp::Linear, sources, vec![p, q]);
            assert_eq!(perform(linear, &handles), Verdict::Done);
            assert!(handles.slice(part(0, 1024)).iter().all(|b| *b == 0x3c));
            assert!(handles.slice(part(1, 0)).iter().all(|b| *b == 0x0f ^ 0x66));
        });
    }

    #[test]
    fn checks_answer_with_verdicts() {
        with_handles(|handles| {
            handles.memory(Buf(1)).fill(7, &[1]);
            let check =
                |op, a, b| perform(compute(op, vec![part(a, 0), part(b, 0)], vec![]), &handles);
            assert_eq!(check(ComputeOp::Compare, 0, 2), Verdict::Equal);
            assert_eq!(check(ComputeOp::Compare, 0, 1), Verdict::Differ);
            assert_eq!(check(ComputeOp::Locate, 0, 2), Verdict::Equal);
            assert_eq!(check(ComputeOp::Locate, 1, 0), Verdict::Guilty(Guilty::P));
            assert_eq!(check(ComputeOp::Locate, 0, 1), Verdict::Guilty(Guilty::Q));
            assert_eq!(
                check(ComputeOp::Locate, 1, 1),
                Verdict::Guilty(Guilty::Data { exponent: 0 })
            );
        });
    }

    #[test]
    #[should_panic(expected = "a target overlaps a source")]
    fn an_overlap_is_refused() {
        with_handles(|handles| {
            let bad = LinearOutput {
                target: part(0, 256),
                coefficients: vec![1],
            };
            let linear = compute(ComputeOp::Linear, vec![part(0, 0)], vec![bad]);
            perform(linear, &handles);
        });
    }
}
