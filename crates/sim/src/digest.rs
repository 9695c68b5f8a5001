//! A running hash of what the engine asked for: two runs of one seed must agree in it to the last byte.

use crate::image::words_digest;
use crate::rng::mix;
use restripe_array::{Action, Compute, DeviceIo, Nanos, RequestError, RequestTag, Segment};
use std::fmt::Write;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Digest {
        Digest(0x7265_7374_7269_7065)
    }
}

impl Digest {
    pub fn value(self) -> u64 {
        mix(self.0)
    }

    fn word(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9fb2_1c65_1e98_df25);
    }

    pub fn action(&mut self, now: Nanos, action: &Action) {
        self.word(now.0);
        match action {
            Action::Device(io) => self.device(io),
            Action::Compute(compute) => self.compute(compute),
            Action::Detach(tag) => self.words(&[3, tag.0.into()]),
            Action::Wake(at) => self.words(&[4, at.0]),
            Action::Reply(tag, Ok(())) => self.words(&[5, tag.0]),
            Action::Reply(tag, Err(error)) => self.refusal(*tag, *error),
            Action::CommandReply(_, Ok(())) => self.numbers(6, action),
            Action::CommandReply(_, Err(_)) => self.numbers(7, action),
            Action::Fact(_) => self.numbers(8, action),
        }
    }

    fn refusal(&mut self, tag: RequestTag, error: RequestError) {
        self.words(&[9, tag.0]);
        match error {
            RequestError::OutOfRange { end, size } => self.words(&[0, end, size]),
            RequestError::Lost { lba, sectors } => self.words(&[1, lba, sectors]),
            RequestError::ReadOnly => self.word(2),
            RequestError::NoSpace => self.word(3),
            RequestError::NotFast => self.word(4),
            RequestError::NotWholeSectors => self.word(5),
            RequestError::Unavailable => self.word(6),
        }
    }

    fn words(&mut self, words: &[u64]) {
        words.iter().for_each(|word| self.word(*word));
    }

    fn device(&mut self, io: &DeviceIo) {
        let head = [
            1,
            io.tag.0.into(),
            io.member.0.into(),
            io.op as u64,
            io.at,
            io.sectors,
            io.durable.into(),
        ];
        self.words(&head);
        self.word(io.class as u64);
        for segment in &io.segments {
            match segment {
                Segment::Page(page) => self.word(words_digest(0, &page[..])),
                Segment::Buf(buf) => {
                    self.words(&[buf.buf.0.into(), buf.offset.into(), buf.bytes.into()])
                }
                Segment::Zero(bytes) => self.word((*bytes).into()),
            }
        }
    }

    fn compute(&mut self, compute: &Compute) {
        self.words(&[2, compute.tag.0.into(), compute.op as u64]);
        for buf in compute
            .sources
            .iter()
            .chain(compute.outputs.iter().map(|output| &output.target))
        {
            self.words(&[buf.buf.0.into(), buf.offset.into(), buf.bytes.into()]);
        }
        for output in &compute.outputs {
            self.word(words_digest(0, &output.coefficients));
        }
    }

    /// Rare actions, by the numbers in their text: a digest does not depend on the names of types and fields.
    fn numbers(&mut self, kind: u64, action: &Action) {
        let mut text = String::new();
        write!(text, "{action:?}").expect("a string takes any text");
        let digits: Vec<&str> = text
            .split(|c: char| !c.is_ascii_digit())
            .filter(|digits| !digits.is_empty())
            .collect();
        self.words(&[kind, words_digest(6, digits.join(" ").as_bytes())]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use restripe_array::Tag;

    #[test]
    fn order_time_and_contents_count() {
        let of = |actions: &[(u64, Action)]| {
            let mut digest = Digest::default();
            actions
                .iter()
                .for_each(|(now, action)| digest.action(Nanos(*now), action));
            digest.value()
        };
        let (a, b) = (Action::Detach(Tag(1)), Action::Reply(RequestTag(1), Ok(())));
        let all = [
            of(&[(0, a.clone()), (0, b.clone())]),
            of(&[(0, b.clone()), (0, a.clone())]),
            of(&[(1, a.clone()), (1, b.clone())]),
            of(&[(0, a), (0, Action::Wake(Nanos(1)))]),
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|other| other != one));
        }
    }
}
