//! A second member that fails before the first is rebuilt: when, and what is lost by it.
//!
//! What is lost is counted from the layout, row by row, and from what the engine says of the first member's
//! rows that are rebuilt. It is exact at the moment of the failure. A restart trusts the rows of the last
//! checkpoint only, of which one begins every two seconds, and none where no write hole is closed: so it may
//! lose more.

use super::facts::SecondLoss;
use super::record::Recorder;
use super::stage::Stage;
use restripe_array::layout::{CellSet, Layout, RowMap};
use restripe_array::report::ArrayState;
use restripe_array::{Fact, Member, Nanos, Row, SECTOR_BYTES, TaskKind};

/// The interval of the looks at how much is rebuilt.
const LOOK_EVERY: Nanos = Nanos::from_millis(20);

/// A further member fails when these thousandths of the rows are rebuilt.
#[derive(Clone, Copy)]
pub(super) struct Second {
    pub(super) member: u16,
    pub(super) at_milli: u32,
}

/// The second failure of a replay, if it has one.
#[derive(Default)]
pub(super) struct Twice {
    planned: Option<Second>,
    ended: bool,
}

impl Twice {
    pub(super) fn plan(&mut self, second: Second) {
        self.planned = Some(second);
    }

    pub(super) fn is_planned(&self) -> bool {
        self.planned.is_some()
    }

    /// Nothing is missing any more, or nothing will be mended.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// The second member fails if it is time. Else: when to look again.
    pub(super) fn look(
        &self,
        stage: &mut Stage,
        recorder: &mut Recorder,
        at: u64,
    ) -> Option<Nanos> {
        let second = self.planned.filter(|_| recorder.log().second.is_none())?;
        if !is_due(stage, second) {
            return Some(stage.world.now().after(LOOK_EVERY));
        }
        let member = Member(second.member);
        recorder.log().second = Some(SecondLoss {
            from_ns: at,
            lost_bytes: lost_bytes(stage, member).unwrap_or(0),
            size_bytes: stage.size_bytes,
            ..SecondLoss::default()
        });
        stage.lose(member);
        None
    }

    /// A task has ended, or a member has failed: the array is whole again, or halts for good.
    pub(super) fn note(&mut self, stage: &Stage, recorder: &mut Recorder, fact: &Fact, at: u64) {
        let changes = matches!(fact, Fact::MemberFailed { .. } | Fact::TaskEnded { .. });
        let Some(loss) = recorder.log().second.as_mut().filter(|_| changes) else {
            return;
        };
        match stage.world.status().state {
            ArrayState::Healthy => {
                loss.whole_ns = Some(at);
                let rebuild = recorder.log().rebuild.as_mut();
                rebuild.expect("it had begun").to_ns = Some(at);
            }
            ArrayState::Failed => loss.halted = true,
            _ => return,
        }
        self.ended = true;
    }
}

/// Whether the share of the rows is rebuilt at which the second member is to fail.
fn is_due(stage: &Stage, second: Second) -> bool {
    let status = stage.world.status();
    let mut tasks = status.tasks.iter();
    let rebuild = tasks.find(|task| task.kind == TaskKind::Rebuild);
    rebuild.is_some_and(|task| {
        let done = u128::from(task.rows_done) * 1000;
        done >= u128::from(second.at_milli) * u128::from(task.rows_total)
    })
}

/// Bytes of the array that are lost without this member, in whole chunks.
fn lost_bytes(stage: &Stage, gone: Member) -> Option<u64> {
    let layout = Layout::new(stage.world.status().geometry?).ok()?;
    let lost_of = |row: Row| {
        let map = layout.row(row);
        let here = cells_left(stage, &map, gone);
        let lost =
            |data: &u8| layout.is_addressed(row, *data) && map.reads_for(*data, here).is_none();
        (0..map.data).filter(lost).count() as u64
    };
    let chunks: u64 = (0..layout.rows()).map(|row| lost_of(Row(row))).sum();
    Some(chunks * layout.chunk_sectors() * SECTOR_BYTES)
}

/// The cells of a row that other members have.
fn cells_left(stage: &Stage, map: &RowMap, gone: Member) -> CellSet {
    let reader = |slot| stage.world.machine().reader_of(slot, map.row);
    let has = |slot| reader(slot).is_some_and(|member| member != gone);
    let left = (0..).zip(map.cells()).filter(|(_, cell)| has(cell.slot));
    left.fold(CellSet::EMPTY, |here, (cell, _)| here.with(cell))
}
