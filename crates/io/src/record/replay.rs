//! Replaying a record: a new engine is told the same, and must want the same.

use super::MAGIC;
use super::code::Stored;
use super::coded::{Reader, Stop, Writer};
use restripe_array::{Action, Actions, Compute, DeviceIo, Event, IoOp, Nanos, Tag};
use restripe_tier::Engine;
use std::collections::BTreeMap;
use std::fmt;

/// One step of a run, for whoever watches it.
pub struct Step<'a> {
    pub number: u64,
    pub now: Nanos,
    pub event: &'a Event,
    pub actions: &'a [Action],
}

/// How a replay ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replay {
    pub steps: u64,
    pub now: Nanos,
    /// The record ends within a step: its recorder was killed.
    pub cut: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplayError {
    /// Not a record of this version.
    NotARecord,
    /// Bytes that no recorder writes, in this step.
    Damaged { step: u64 },
    /// The recorded world answered an operation that this engine never asked for.
    NotAsked { step: u64, tag: Tag },
    /// The engine wanted something else than in the recorded run.
    Differs { step: u64 },
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplayError::NotARecord => f.write_str("not a record of events of this version"),
            ReplayError::Damaged { step } => write!(f, "the record is damaged at step {step}"),
            ReplayError::NotAsked { step, tag } => {
                write!(
                    f,
                    "step {step} completes operation {}, which this engine did not submit",
                    tag.0
                )
            }
            ReplayError::Differs { step } => write!(
                f,
                "at step {step} the engine's actions differ from the record"
            ),
        }
    }
}

impl std::error::Error for ReplayError {}

/// Operations that the engine waits for.
#[derive(Default)]
struct Asked {
    ios: BTreeMap<Tag, Box<DeviceIo>>,
    computes: BTreeMap<Tag, Box<Compute>>,
}

impl Asked {
    fn note(&mut self, actions: Actions) {
        for action in actions {
            match action {
                Action::Device(io) => drop(self.ios.insert(io.tag, io)),
                Action::Compute(compute) => drop(self.computes.insert(compute.tag, compute)),
                _ => {}
            }
        }
    }
}

/// Replays a record from its first byte, showing each step to `watch`.
pub fn replay(record: &[u8], mut watch: impl FnMut(&Step<'_>)) -> Result<Replay, ReplayError> {
    let body = record.strip_prefix(MAGIC).ok_or(ReplayError::NotARecord)?;
    let mut reader = Reader::new(body);
    let config = reader.config().map_err(|_| ReplayError::NotARecord)?;
    let mut engine = Engine::new(config);
    let mut asked = Asked::default();
    let (mut number, mut now) = (0, Nanos::ZERO);
    loop {
        let next = take_step(&mut reader, &mut asked, number)?;
        let Some((delay, event, sum)) = next else {
            return Ok(Replay {
                steps: number,
                now,
                cut: !reader.at_end(),
            });
        };
        now = now.after(delay);
        let mut actions = Actions::new();
        engine.handle(now, event.clone(), &mut actions);
        watch(&Step {
            number,
            now,
            event: &event,
            actions: &actions,
        });
        if sum_of(&actions) != sum {
            return Err(ReplayError::Differs { step: number });
        }
        asked.note(actions);
        number += 1;
    }
}

fn sum_of(actions: &[Action]) -> u32 {
    let mut writer = Writer::default();
    actions.iter().for_each(|action| writer.action(action));
    restripe_code::crc32c(0, writer.bytes())
}

/// A step as it is stored.
struct Taken {
    delay: Nanos,
    stored: Stored,
    /// The operation that a device event answers, with its pages filled.
    io: Option<Box<DeviceIo>>,
    /// The computation that an event answers, with its page filled.
    compute: Option<Box<Compute>>,
    sum: u32,
}

fn take_stored(reader: &mut Reader<'_>, asked: &Asked) -> Result<Taken, Stop> {
    let delay = Nanos(reader.number()?);
    let stored = reader.event()?;
    let mut io = None;
    if let Stored::Device(tag, result) = stored {
        io = asked.ios.get(&tag).cloned();
        if let Some(io) = &mut io
            && io.op == IoOp::Read
            && result.is_ok()
        {
            reader.pages(io)?;
        }
    }
    let mut compute = None;
    if let Stored::Compute(tag, _) = stored {
        compute = asked.computes.get(&tag).cloned();
        if let Some(compute) = &mut compute {
            reader.page_taken(compute)?;
        }
    }
    Ok(Taken {
        delay,
        stored,
        io,
        compute,
        sum: reader.word()?,
    })
}

/// The next step, or `None` where the record ends.
fn take_step(
    reader: &mut Reader<'_>,
    asked: &mut Asked,
    step: u64,
) -> Result<Option<(Nanos, Event, u32)>, ReplayError> {
    let before = reader.clone();
    let taken = match take_stored(reader, asked) {
        Ok(taken) => taken,
        Err(Stop::Bad) => return Err(ReplayError::Damaged { step }),
        Err(Stop::End) => {
            *reader = before;
            return Ok(None);
        }
    };
    let event = match taken.stored {
        Stored::Plain(event) => event,
        Stored::Device(tag, result) => {
            asked.ios.remove(&tag);
            Event::Device(taken.io.ok_or(ReplayError::NotAsked { step, tag })?, result)
        }
        Stored::Compute(tag, verdict) => {
            asked.computes.remove(&tag);
            let compute = taken.compute.ok_or(ReplayError::NotAsked { step, tag })?;
            Event::Compute(compute, verdict)
        }
    };
    Ok(Some((taken.delay, event, taken.sum)))
}
