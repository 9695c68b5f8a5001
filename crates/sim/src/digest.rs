//! A running hash of what the engine asked for: two runs of one seed must agree in it to the last byte.

use crate::image::words_digest;
use crate::rng::mix;
use restripe_array::{Action, Compute, DeviceIo, Nanos, RequestError, RequestTag, Segment};
use std::fmt::Debug;

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
            Action::CommandReply(tag, Ok(())) => self.words(&[6, tag.0]),
            Action::CommandReply(tag, Err(error)) => {
                self.word(tag.0);
                self.text(7, error);
            }
            Action::Fact(fact) => self.text(8, fact),
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
            RequestError::Differs => self.word(7),
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
        let targets = compute.outputs.iter().map(|output| &output.target);
        for buf in compute.sources.iter().chain(targets) {
            self.words(&[buf.buf.0.into(), buf.offset.into(), buf.bytes.into()]);
        }
        for output in &compute.outputs {
            self.word(words_digest(0, &output.coefficients));
        }
    }

    /// Rare actions, by all that their text shows but the sentences in it: those are for people, and may be
    /// reworded.
    fn text(&mut self, kind: u64, what: &impl Debug) {
        let text = format!("{what:?}");
        let around: String = text.split('"').step_by(2).collect();
        self.words(&[kind, words_digest(6, around.as_bytes())]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use restripe_array::{CommandError, CommandTag, Fact, FailCause, Halt, IoError, Member, Tag};

    fn of(actions: &[(u64, Action)]) -> u64 {
        let mut digest = Digest::default();
        actions
            .iter()
            .for_each(|(now, action)| digest.action(Nanos(*now), action));
        digest.value()
    }

    fn all_differ(digests: &[u64]) {
        for (i, one) in digests.iter().enumerate() {
            assert!(!digests[..i].contains(one), "{i}: {digests:x?}");
        }
    }

    #[test]
    fn order_time_and_contents_count() {
        let (a, b) = (Action::Detach(Tag(1)), Action::Reply(RequestTag(1), Ok(())));
        all_differ(&[
            of(&[(0, a.clone()), (0, b.clone())]),
            of(&[(0, b.clone()), (0, a.clone())]),
            of(&[(1, a.clone()), (1, b.clone())]),
            of(&[(0, a), (0, Action::Wake(Nanos(1)))]),
        ]);
    }

    #[test]
    fn kinds_and_fields_of_facts_and_refusals_count_and_sentences_do_not() {
        let member = Member(1);
        let failed = |why| Fact::MemberFailed { member, why };
        let repaired = |rotten| Fact::Repaired {
            member,
            at: 8,
            sectors: 8,
            rotten,
        };
        let facts = [
            Fact::OutOfSpace { member },
            Fact::RoomAgain { member },
            failed(FailCause::Gone),
            failed(FailCause::WriteError(IoError::Gone)),
            repaired(false),
            repaired(true),
            Fact::Halted(Halt::NoSpace),
            Fact::Halted(Halt::TooFew),
        ];
        let refused = |error| Action::CommandReply(CommandTag(1), Err(error));
        let errors = [
            CommandError::NoArray,
            CommandError::Foreign(member),
            CommandError::NoSuchMember(member),
            CommandError::Busy("a task runs"),
            CommandError::Unsuited("a task runs"),
        ];
        let actions = facts.map(Action::Fact).into_iter();
        let actions = actions.chain(errors.map(refused));
        all_differ(&actions.map(|action| of(&[(0, action)])).collect::<Vec<_>>());
        let busy = |why| of(&[(0, refused(CommandError::Busy(why)))]);
        assert_eq!(busy("a scrub is running"), busy("a scrub runs"));
    }
}
