//! The log of facts of an array: what the engine reported, in words.

use crate::arrays::refusals::refusal;
use crate::print::surrogate::WITHOUT_LOG;
use restripe_array::{CommandError, Fact, Halt, Member, Nanos};
use restripe_io::control::{FactView, Telling, member_name};
use restripe_io::remote::{MemberName, Remote};
use std::collections::VecDeque;
use std::sync::mpsc::Receiver;

/// Entries of the log of facts that are kept for whoever asks.
const FACTS_KEPT: usize = 4096;

/// The log of facts. Every look at it takes in first what has come since the last one.
pub(super) struct FactLog {
    facts: Facts,
    teller: Teller,
    /// Unbounded: facts pile up here until the next look. An array that runs for long is looked at now and then, as
    /// `serve` does.
    source: Option<Receiver<(Nanos, Fact)>>,
}

impl FactLog {
    pub(super) fn new(remote: &Remote, array: usize, read_only: bool) -> FactLog {
        FactLog {
            facts: Facts::default(),
            teller: Teller {
                remote: remote.clone(),
                array,
                read_only,
                names: Vec::new(),
            },
            source: remote.facts(array).ok(),
        }
    }

    /// Takes in what has come, with the members' names as they are now.
    pub(super) fn look(&mut self, names: &[MemberName]) {
        self.teller.names.clear();
        self.teller.names.extend_from_slice(names);
        self.take_in();
    }

    fn take_in(&mut self) {
        for (at, fact) in self.source.iter().flat_map(Receiver::try_iter) {
            self.facts.take(fact, |fact| self.teller.tell(at, fact));
        }
    }

    pub(super) fn since(&mut self, since: u64) -> (Vec<FactView>, u64) {
        self.take_in();
        self.facts.since(since)
    }
}

#[derive(Default)]
struct Facts {
    /// The sequence number of the first entry kept.
    first: u64,
    kept: VecDeque<FactView>,
    /// What the last entry is about, as long as it may grow: nobody has it yet.
    growing: Option<Fact>,
}

impl Facts {
    /// Takes a fact in. One that goes on where the last ended, in the same words, makes that one longer: a loss of 8 KiB
    /// is one entry, also where it was found sector by sector.
    fn take(&mut self, fact: Fact, tell: impl FnOnce(&Fact) -> FactView) {
        let whole = self.growing.take().and_then(|last| joined(&last, &fact));
        let told = tell(whole.as_ref().unwrap_or(&fact));
        if whole.is_some() {
            self.kept.pop_back();
        }
        self.push(told);
        self.growing = Some(whole.unwrap_or(fact));
    }

    fn push(&mut self, fact: FactView) {
        let sequence = self.first + self.kept.len() as u64;
        self.kept.push_back(FactView { sequence, ..fact });
        if self.kept.len() > FACTS_KEPT {
            self.kept.pop_front();
            self.first += 1;
        }
    }

    fn since(&mut self, since: u64) -> (Vec<FactView>, u64) {
        self.growing = None;
        let facts = self.kept.iter().filter(|fact| fact.sequence >= since);
        let next = self.first + self.kept.len() as u64;
        (facts.cloned().collect(), next)
    }
}

/// Two facts about neighbouring ranges as one.
fn joined(last: &Fact, next: &Fact) -> Option<Fact> {
    match (last, next) {
        (
            Fact::Lost { lba, sectors },
            Fact::Lost {
                lba: next,
                sectors: more,
            },
        ) if lba + sectors == *next => Some(Fact::Lost {
            lba: *lba,
            sectors: sectors + more,
        }),
        (
            Fact::Repaired {
                member,
                at,
                sectors,
                rotten,
            },
            Fact::Repaired {
                member: other,
                at: next,
                sectors: more,
                rotten: was,
            },
        ) if (member, rotten) == (other, was) && at + sectors == *next => Some(Fact::Repaired {
            member: *member,
            at: *at,
            sectors: sectors + more,
            rotten: *rotten,
        }),
        (Fact::OfSurrogate(last), Fact::OfSurrogate(next)) => {
            Some(Fact::OfSurrogate(Box::new(joined(last, next)?)))
        }
        _ => None,
    }
}

/// Puts facts into words.
struct Teller {
    remote: Remote,
    array: usize,
    read_only: bool,
    /// By number, as far as they were asked for.
    names: Vec<MemberName>,
}

impl Teller {
    fn tell(&mut self, at: Nanos, fact: &Fact) -> FactView {
        let telling = Telling {
            read_only: self.read_only,
            name_of: |member| self.name_of(member),
        };
        let mut told = FactView::new(at, fact, telling);
        match fact {
            Fact::SurrogateAbsent { why } => {
                told.text = absent_text("the surrogate", why, &self.names);
            }
            Fact::BufferAbsent { why, forgone } => {
                told.text = buffer_text(why, *forgone, &self.names);
            }
            Fact::OfSurrogate(fact)
                if **fact == Fact::Halted(Halt::TooFew) && self.goes_on_without_log() =>
            {
                told.text = format!("surrogate: the log disk is missing: {WITHOUT_LOG}");
            }
            _ => {}
        }
        told
    }

    fn goes_on_without_log(&self) -> bool {
        let status = self.remote.status(self.array).ok().flatten();
        let surrogate = status.and_then(|status| status.surrogate);
        let overlay = surrogate.and_then(|surrogate| surrogate.overlay);
        overlay.is_some_and(|overlay| overlay.without_log)
    }

    /// A number is given once, so a name that is known stays right. The reactor has better to do than to answer for each
    /// fact, and the log would trail what it tells of.
    fn name_of(&mut self, member: Member) -> String {
        if usize::from(member.0) >= self.names.len() {
            // After the reactor's end there are only numbers.
            self.names = self.remote.member_names(self.array).unwrap_or_default();
        }
        name_among(&self.names, member)
    }
}

/// A member by its number and, if it was ever given one, its name.
pub(super) fn name_among(names: &[MemberName], member: Member) -> String {
    let found = names.get(usize::from(member.0));
    member_name(member, found.map(|found| found.name.as_str()))
}

fn absent_text(what: &str, why: &CommandError, names: &[MemberName]) -> String {
    let refused = refusal(why, names);
    let at = match refused.at.is_empty() {
        true => String::new(),
        false => format!(" ({})", refused.at),
    };
    format!("continues without {what}: {}{at}", refused.what)
}

fn buffer_text(why: &CommandError, forgone: bool, names: &[MemberName]) -> String {
    let cause = match why {
        CommandError::BufferMissing => {
            "continues without its NVRAM buffer, which is missing".into()
        }
        CommandError::OfBuffer(inner) if forgone && **inner == CommandError::Metadata => {
            "the contents of its NVRAM buffer cannot be read".into()
        }
        CommandError::OfBuffer(inner) => absent_text("its NVRAM buffer", inner, names),
        why => absent_text("its NVRAM buffer", why, names),
    };
    let then = match forgone {
        true => "THE LAST FLUSHED WRITES ARE DISCARDED, the array returns to the state of the log",
        false => "flushes seal records early",
    };
    format!("{cause}: {then}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_surrogate_is_told_with_its_reason() {
        let (present, current) = (1, 2);
        let why = CommandError::Minority { present, current };
        let because = "only 1 of the 2 current members are present";
        let expected = format!("continues without the surrogate: {because}");
        assert_eq!(absent_text("the surrogate", &why, &[]), expected);
    }

    #[test]
    fn the_log_of_facts_keeps_the_newest() {
        let mut facts = Facts::default();
        for _ in 0..FACTS_KEPT + 10 {
            facts.push(FactView::default());
        }
        let (kept, next) = facts.since(0);
        assert_eq!((kept.len(), kept[0].sequence), (FACTS_KEPT, 10));
        assert_eq!(next, FACTS_KEPT as u64 + 10);
        assert!(facts.since(next).0.is_empty());
    }
}
