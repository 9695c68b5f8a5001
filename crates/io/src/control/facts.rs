//! Facts of the engine in words, as the log and the control socket report them.

use super::schema::task_word;
use super::scrub::{fact_bytes, mismatch_text, scrubbed_text};
use restripe_array::report::DroppedTask;
use restripe_array::{
    CommandError, Fact, FailCause, Halt, Member, Nanos, SECTOR_BYTES, TaskKind, TaskOutcome,
};
use serde::{Deserialize, Serialize};

view! {
    /// One entry of the log of facts: a fact in words. Its sequence number is its log's to give.
    FactView: pub fn new(at: Nanos, fact: &Fact, telling: Telling<impl FnMut(Member) -> String>) {
        let told = match fact {
            Fact::OfSurrogate(fact) | Fact::OfBuffer(fact) => &**fact,
            own => own,
        };
        let (task, outcome) = match told {
            Fact::TaskStarted { kind, .. } => (task_word(*kind), ""),
            Fact::TaskEnded { kind, outcome, .. } => (task_word(*kind), outcome_word(*outcome)),
            _ => ("", ""),
        };
    } => {
        sequence: u64 = 0,
        /// Nanoseconds since the daemon began.
        at_ns: u64 = at.0,
        kind: String = fact_kind(fact).into(),
        text: String = fact_text(fact, telling),
        /// The task it is about: `rebuild`, `replace`, `resync`, `check` or `repair`. Empty for other kinds.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        task: String = task.into(),
        /// How a task ended: `done`, `cancelled` or `failed`. Empty for other kinds.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        outcome: String = outcome.into(),
        /// It is told of the surrogate's set, not of the array's own.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        of_surrogate: bool = matches!(fact, Fact::OfSurrogate(_)),
        /// It is told of the set of a code cache's buffer.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        of_buffer: bool = matches!(fact, Fact::OfBuffer(_)),
    }
}

/// What words for a fact depend on, besides the fact.
pub struct Telling<N> {
    /// Nothing is written to the array.
    pub read_only: bool,
    /// Names members as whoever reads it knows them.
    pub name_of: N,
}

fn fact_kind(fact: &Fact) -> &'static str {
    match fact {
        Fact::Started { .. } => "started",
        Fact::Stopped => "stopped",
        Fact::Halted(_) => "halted",
        Fact::OutOfSpace { .. } => "out-of-space",
        Fact::RoomAgain { .. } => "room-again",
        Fact::StaysHalted { .. } => "stays-halted",
        Fact::MemberFailed { .. } => "member-failed",
        Fact::SpareTaken { .. } => "spare-taken",
        Fact::PartitionTaken { .. } => "partition-taken",
        Fact::Repaired { .. } => "repaired",
        Fact::Ignored { .. } => "ignored",
        Fact::Lost { .. } => "lost",
        Fact::TaskStarted { .. } => "task-started",
        Fact::TaskEnded { .. } => "task-ended",
        Fact::TaskDropped(_) => "task-dropped",
        Fact::Mismatch { .. } => "mismatch",
        Fact::Scrubbed(_) => "scrubbed",
        Fact::MoveFailed { .. } => "move-failed",
        Fact::Throttled { .. } => "throttled",
        Fact::OfSurrogate(fact) | Fact::OfBuffer(fact) => fact_kind(fact),
        // Its tasks are not the array's.
        Fact::BufferAbsent { .. } => "buffer-absent",
        Fact::BufferFailed => "buffer-failed",
        Fact::SurrogateAbsent { .. } => "surrogate-absent",
    }
}

fn repaired_text(member: &str, at: u64, sectors: u64, rotten: bool) -> String {
    let were = if rotten { "wrong" } else { "unreadable" };
    let bytes = sectors * SECTOR_BYTES;
    format!("{bytes} bytes at sector {at} of {member} were {were} and are rewritten")
}

fn ignored_text(member: &str, what: &str, count: u64) -> String {
    format!(
        "{count} {what} on {member} have sequence numbers that are invalid for this array, and are ignored"
    )
}

fn outcome_word(outcome: TaskOutcome) -> &'static str {
    match outcome {
        TaskOutcome::Done => "done",
        TaskOutcome::Cancelled => "cancelled",
        TaskOutcome::Failed => "failed",
    }
}

/// A fact as a sentence.
fn fact_text(fact: &Fact, telling: Telling<impl FnMut(Member) -> String>) -> String {
    let Telling {
        read_only,
        mut name_of,
    } = telling;
    match fact {
        Fact::Started {
            generation,
            recovered_rows,
        } => {
            format!("serving, generation {generation}, {recovered_rows} rows recovered")
        }
        Fact::Stopped if read_only => "stopped, nothing was written".into(),
        Fact::Stopped => "stopped and marked clean".into(),
        Fact::Halted(why) => halted_text(why),
        Fact::OutOfSpace { member } => format!("no space is left on {}", name_of(*member)),
        Fact::StaysHalted { why } => stays_halted_text(why),
        Fact::RoomAgain { member } => format!("{} has space again", name_of(*member)),
        Fact::MemberFailed { member, why } => {
            format!("{} failed: {}", name_of(*member), cause_text(why))
        }
        Fact::SpareTaken { spare, slot } => format!("{} serves slot {slot}", name_of(*spare)),
        Fact::PartitionTaken {
            host,
            slot,
            partition,
        } => {
            let host = name_of(*host);
            format!("{host} hosts partition {partition} of slot {slot}")
        }
        Fact::Repaired {
            member,
            at,
            sectors,
            rotten,
        } => repaired_text(&name_of(*member), *at, *sectors, *rotten),
        Fact::Ignored {
            member,
            what,
            count,
        } => ignored_text(&name_of(*member), what, *count),
        Fact::Lost { lba, sectors } => lost_text(*lba, *sectors),
        Fact::TaskStarted { kind, slot } => task_started_text(*kind, *slot, read_only),
        Fact::TaskEnded {
            kind,
            slot,
            outcome,
        } => task_ended_text(*kind, *slot, *outcome),
        Fact::TaskDropped(dropped) => task_dropped_text(dropped),
        Fact::Mismatch {
            row,
            sectors,
            guilty,
            unreadable,
            cure,
            ..
        } => mismatch_text(*row, *sectors, guilty.map(name_of), *unreadable, *cure),
        Fact::Scrubbed(last) => scrubbed_text(last),
        Fact::MoveFailed { member, why } => move_failed_text(&name_of(*member), *why),
        Fact::Throttled { rate, .. } => format!("tasks are throttled to {rate} bytes per second"),
        Fact::OfSurrogate(fact) => of_set("surrogate", fact, Telling { read_only, name_of }),
        Fact::OfBuffer(fact) => of_set("NVRAM buffer", fact, Telling { read_only, name_of }),
        Fact::BufferAbsent { .. } => "the NVRAM buffer cannot be used".into(),
        Fact::BufferFailed => BUFFER_FAILED.into(),
        Fact::SurrogateAbsent { .. } => "the surrogate cannot be started".into(),
    }
}

fn lost_text(lba: u64, sectors: u64) -> String {
    let (bytes, at) = (fact_bytes(sectors), fact_bytes(lba));
    format!("{bytes} bytes at byte {at} of the array are lost")
}

fn halted_text(why: &Halt) -> String {
    match why {
        Halt::NoSpace => {
            "too many members have no space: writes are refused until space is available".into()
        }
        Halt::TooFew => {
            "too many members are missing: writes are refused until a restart with the returned members".into()
        }
        Halt::Owned(by) => {
            format!("another daemon (run {}, process {}) has taken the array: this daemon no longer reads or writes it", by.run, by.process)
        }
    }
}

fn stays_halted_text(why: &CommandError) -> String {
    let why = match why {
        CommandError::WouldLose { extents } => {
            let sectors: u64 = extents.iter().map(|(_, sectors)| sectors).sum();
            let bytes = sectors * SECTOR_BYTES;
            format!(
                "{bytes} bytes that were being written would be lost: run `restripe stop`, then `restripe serve --accept-loss`"
            )
        }
        _ => {
            "the array cannot be restarted: run `restripe stop`, then `restripe serve` to see the cause".into()
        }
    };
    format!("writes remain refused: {why}")
}

fn of_set(set: &str, fact: &Fact, telling: Telling<impl FnMut(Member) -> String>) -> String {
    format!("{set}: {}", fact_text(fact, telling))
}

const BUFFER_FAILED: &str = "the NVRAM buffer failed: its records are in the log, and flushes seal records early from now on";

fn move_failed_text(name: &str, why: restripe_array::IoError) -> String {
    format!("the growth cannot write to {name} ({why}): it retries")
}

fn task_started_text(kind: TaskKind, slot: Option<u16>, read_only: bool) -> String {
    let what = match read_only {
        true => "waits for a start that may write",
        false => "started",
    };
    format!("{} {what}", task_of(kind, slot))
}

fn task_dropped_text(dropped: &DroppedTask) -> String {
    let DroppedTask {
        kind,
        slot,
        target,
        waits,
    } = dropped;
    let task = task_of(*kind, Some(*slot));
    let target = format!("its target, member {target},");
    match waits {
        true => format!(
            "{task} waits for a start that may write and includes its target: {target} is missing"
        ),
        false => format!(
            "{task} is dropped: {target} was missing at a start. `restripe status` shows the command that restarts it"
        ),
    }
}

fn task_ended_text(kind: TaskKind, slot: Option<u16>, outcome: TaskOutcome) -> String {
    format!("{} ended: {}", task_of(kind, slot), outcome_word(outcome))
}

fn task_of(kind: TaskKind, slot: Option<u16>) -> String {
    let place = slot.map_or(String::new(), |slot| format!(" of slot {slot}"));
    format!("{}{place}", task_word(kind))
}

fn cause_text(cause: &FailCause) -> String {
    match cause {
        FailCause::Command => "by command".into(),
        FailCause::WriteError(error) => format!("a write failed ({error})"),
        FailCause::FlushError(error) => format!("a flush failed ({error})"),
        FailCause::ReadErrors => "too many read errors".into(),
        FailCause::Gone => "the device disappeared".into(),
        FailCause::TimedOut => "it did not respond in time".into(),
        FailCause::Metadata => "its metadata cannot be read or written".into(),
        FailCause::Overwritten => "another program has overwritten its superblocks".into(),
    }
}
