//! Descriptor chains of a guest (virtio 1.2, section 2.7), checked before anything is done with them.

use super::limits::{Guest, QUEUE_SIZE_MAX};
use super::turn::Turn;
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Address, Bytes, GuestAddress, GuestMemoryBackend};

/// Most descriptors of a chain, also of an indirect one: as the longest queue has.
const DESCRIPTORS_MAX: usize = QUEUE_SIZE_MAX as usize;
const DESCRIPTOR_BYTES: u32 = 16;

/// A range of the guest's memory, at least a byte, which was mapped when the chain was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) at: GuestAddress,
    pub(crate) bytes: u32,
}

/// What a chain lets the device read, and what it lets it write, in order.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Chain {
    pub(crate) readable: Vec<Span>,
    pub(crate) writable: Vec<Span>,
}

/// The chain breaks a rule, so none of its bytes can be trusted to be what it says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed;

/// A table of descriptors.
#[derive(Clone, Copy)]
pub(crate) struct Table {
    pub(crate) at: GuestAddress,
    pub(crate) count: u16,
}

/// Reads the chain that begins with descriptor `head` of the queue's table.
pub(crate) fn read(
    memory: &Guest,
    table: Table,
    head: u16,
    turn: &mut Turn,
) -> Result<Chain, Malformed> {
    let mut walk = Walk {
        memory,
        table,
        indirect: false,
        seen: 0,
    };
    let (mut chain, mut next) = (Chain::default(), Some(head));
    while let Some(index) = next {
        turn.spend(1);
        next = walk.step(index, &mut chain)?;
    }
    Ok(chain)
}

struct Walk<'a> {
    memory: &'a Guest,
    table: Table,
    indirect: bool,
    seen: usize,
}

impl Walk<'_> {
    /// Takes one descriptor up, and gives the index of the next.
    fn step(&mut self, index: u16, chain: &mut Chain) -> Result<Option<u16>, Malformed> {
        self.seen += 1;
        // A chain that comes back to itself ends here as well.
        if index >= self.table.count || self.seen > DESCRIPTORS_MAX {
            return Err(Malformed);
        }
        let offset = u64::from(index) * u64::from(DESCRIPTOR_BYTES);
        let at = self.table.at.checked_add(offset).ok_or(Malformed)?;
        let descriptor: Descriptor = self.memory.read_obj(at).map_err(|_| Malformed)?;
        if descriptor.refers_to_indirect_table() {
            return self.enter(&descriptor).map(Some);
        }
        let span = Span {
            at: descriptor.addr(),
            bytes: descriptor.len(),
        };
        if !self.memory.check_range(span.at, span.bytes as usize) {
            return Err(Malformed);
        }
        match descriptor.is_write_only() {
            _ if span.bytes == 0 => {}
            true => chain.writable.push(span),
            // What the device reads comes before what it writes (2.7.4.2).
            false if !chain.writable.is_empty() => return Err(Malformed),
            false => chain.readable.push(span),
        }
        Ok(descriptor.has_next().then(|| descriptor.next()))
    }

    /// Goes on in a table of its own, in which there is no other (2.7.5.3).
    fn enter(&mut self, descriptor: &Descriptor) -> Result<u16, Malformed> {
        let whole = descriptor.len().is_multiple_of(DESCRIPTOR_BYTES);
        let count = descriptor.len() / DESCRIPTOR_BYTES;
        let few = (1..=DESCRIPTORS_MAX as u32).contains(&count);
        if self.indirect || descriptor.has_next() || !whole || !few {
            return Err(Malformed);
        }
        self.indirect = true;
        self.table = Table {
            at: descriptor.addr(),
            count: count as u16,
        };
        Ok(0)
    }
}

/// The bytes of a list of spans.
pub(crate) fn bytes_of(spans: &[Span]) -> u64 {
    spans.iter().map(|span| u64::from(span.bytes)).sum()
}

/// Takes `count` bytes from the front of the spans, if there are as many.
pub(crate) fn take_front(spans: &mut Vec<Span>, count: u32) -> Option<Vec<Span>> {
    if bytes_of(spans) < u64::from(count) {
        return None;
    }
    let (mut taken, mut left) = (Vec::new(), count);
    while left > 0 {
        let first = spans.first_mut()?;
        let now = first.bytes.min(left);
        taken.push(Span {
            at: first.at,
            bytes: now,
        });
        left -= now;
        if now == first.bytes {
            spans.remove(0);
        } else {
            first.at = first.at.unchecked_add(u64::from(now));
            first.bytes -= now;
        }
    }
    Some(taken)
}

/// Takes the last byte of the spans.
pub(crate) fn take_last_byte(spans: &mut Vec<Span>) -> Option<GuestAddress> {
    let last = spans.last_mut()?;
    last.bytes -= 1;
    let at = last.at.unchecked_add(u64::from(last.bytes));
    spans.pop_if(|span| span.bytes == 0);
    Some(at)
}

/// Copies the guest's bytes to `into`, as far as both have any.
pub(crate) fn copy_from(memory: &Guest, spans: &[Span], into: &mut [u8]) -> Result<(), Malformed> {
    let mut rest = into;
    for span in spans {
        let (now, after) = rest.split_at_mut(rest.len().min(span.bytes as usize));
        memory.read_slice(now, span.at).map_err(|_| Malformed)?;
        rest = after;
    }
    Ok(())
}

/// Copies bytes to the guest, as far as there is room; how many.
pub(crate) fn copy_to(memory: &Guest, spans: &[Span], bytes: &[u8]) -> Result<u32, Malformed> {
    let mut rest = bytes;
    for span in spans {
        let (now, after) = rest.split_at(rest.len().min(span.bytes as usize));
        memory.write_slice(now, span.at).map_err(|_| Malformed)?;
        rest = after;
    }
    Ok((bytes.len() - rest.len()) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEXT: u16 = 1;
    const WRITE: u16 = 2;
    const INDIRECT: u16 = 4;

    const BYTES: u64 = 1 << 16;

    fn guest() -> Guest {
        Guest::from_ranges(&[(GuestAddress(0), BYTES as usize)]).expect("memory")
    }

    fn put(memory: &Guest, at: u64, list: &[(u64, u32, u16, u16)]) {
        for (index, (addr, bytes, flags, next)) in (0u64..).zip(list) {
            let descriptor = Descriptor::new(*addr, *bytes, *flags, *next);
            let at = GuestAddress(at + 16 * index);
            memory.write_obj(descriptor, at).expect("within memory");
        }
    }

    fn chain(list: &[(u64, u32, u16, u16)]) -> Result<Chain, Malformed> {
        let memory = guest();
        put(&memory, 0, list);
        read_first(&memory)
    }

    fn read_first(memory: &Guest) -> Result<Chain, Malformed> {
        let (at, count) = (GuestAddress(0), 8);
        read(memory, Table { at, count }, 0, &mut Turn::new())
    }

    fn span(at: u64, bytes: u32) -> Span {
        let at = GuestAddress(at);
        Span { at, bytes }
    }

    #[test]
    fn a_chain_is_what_its_descriptors_say() {
        let request = [
            (0x1000, 16, NEXT, 2),
            (0, 0, 0, 0),
            (0x2000, 512, NEXT | WRITE, 3),
            (0x3000, 1, WRITE, 0),
        ];
        let expected = Chain {
            readable: vec![span(0x1000, 16)],
            writable: vec![span(0x2000, 512), span(0x3000, 1)],
        };
        assert_eq!(chain(&request), Ok(expected.clone()));
        let memory = guest();
        put(&memory, 0x4000, &[(0x1000, 16, NEXT, 1)]);
        put(&memory, 0x4010, &[(0x2000, 512, NEXT | WRITE, 2)]);
        put(&memory, 0x4020, &[(0x3000, 1, WRITE, 0)]);
        put(&memory, 0, &[(0x4000, 48, INDIRECT, 0)]);
        assert_eq!(read_first(&memory), Ok(expected));
    }

    #[test]
    fn a_chain_that_breaks_a_rule_is_malformed() {
        let cases: [&[(u64, u32, u16, u16)]; 9] = [
            // Around and around, and beyond the table.
            &[(0x1000, 16, NEXT, 0)],
            &[(0x1000, 16, NEXT, 8)],
            // Memory that is not there, also by overflow.
            &[(BYTES - 8, 16, 0, 0)],
            &[(u64::MAX - 8, 16, 0, 0)],
            // Read after written.
            &[(0x1000, 16, NEXT | WRITE, 1), (0x2000, 16, 0, 0)],
            // Tables: in a table, with a next, of half a descriptor, of none.
            &[(0, 32, INDIRECT, 0)],
            &[(0x4000, 16, INDIRECT | NEXT, 1)],
            &[(0x4000, 24, INDIRECT, 0)],
            &[(0x4000, 0, INDIRECT, 0)],
        ];
        for case in cases {
            assert_eq!(chain(case), Err(Malformed), "{case:?}");
        }
        let beyond = [(BYTES - 16, 32, INDIRECT, 0)];
        let memory = guest();
        put(&memory, 0, &beyond);
        put(&memory, BYTES - 16, &[(0x1000, 16, NEXT, 1)]);
        assert_eq!(read_first(&memory), Err(Malformed));
    }

    /// Random tables end in a value, within bounds, and what they give lies in the guest's memory.
    #[test]
    fn random_chains_stay_within_the_guest() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = |limit: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % limit
        };
        let memory = guest();
        let mut whole = 0;
        for _ in 0..20_000 {
            for index in 0..8 {
                let addr = match random(4) {
                    0 => random(u64::MAX),
                    1 => random(128) * 16,
                    _ => random(BYTES + 64),
                };
                let bytes = [random(64), random(8) * 16, random(u64::from(u32::MAX))];
                let bytes = bytes[random(3) as usize] as u32;
                let (flags, next) = (random(8) as u16, random(10) as u16);
                put(&memory, 16 * index, &[(addr, bytes, flags, next)]);
            }
            let Ok(mut chain) = read_first(&memory) else {
                continue;
            };
            whole += 1;
            let spans = chain.readable.iter().chain(&chain.writable);
            for span in spans {
                assert!(span.at.0 + u64::from(span.bytes) <= BYTES);
            }
            assert!(chain.readable.len() + chain.writable.len() <= DESCRIPTORS_MAX);
            let before = bytes_of(&chain.readable);
            let taken = take_front(&mut chain.readable, 16);
            let left = bytes_of(&chain.readable) + taken.map_or(0, |taken| bytes_of(&taken));
            assert_eq!(left, before);
            let before = bytes_of(&chain.writable);
            let last = take_last_byte(&mut chain.writable);
            let one = u64::from(last.is_some());
            assert_eq!(bytes_of(&chain.writable) + one, before);
        }
        assert!(whole > 1000, "{whole} chains were sound");
    }
}
