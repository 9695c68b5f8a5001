//! Facts of the set: the lowest floor. Every other floor may ask it.
//!
//! Owns the configuration, the time, the actions of this step, the layout, the superblock as it should be,
//! the roles of members, the progress of tasks, and the state of the set. Asks no other floor and sends no
//! notice.

use crate::config::Config;
use crate::contract::{
    Action, Actions, ArrayOwner, Bug, CommandError, CommandTag, DeviceIo, DroppedTask, Fact, Halt,
    IoOp, PLANTED, RequestError, RequestTag, Rival, StartMode, TaskKind,
};
use crate::layout::code::CellSet;
use crate::layout::{Layout, RowMap};
use crate::members::device::Places;
use crate::policy::heat::Heat;
use crate::report::{ArrayState, Counters};
use crate::roles::{Home, PartitionRoles, Roles};
use crate::runset::RunSet;
use crate::task::reshaping::Reshaping;
use crate::task::table::{Task, Tasks};
use crate::units::{Member, Nanos, Row, SECTOR_BYTES, Slot, Uuid};
use alloc::boxed::Box;
use alloc::vec::Vec;
use restripe_format::meta::superblock::{Superblock, WriteHole};

/// A batch has no more rows, so that it stays a small part of what buffers there are.
const BATCH_ROWS_MAX: u64 = 16;

pub struct Facts {
    pub(crate) config: Config,
    pub(crate) now: Nanos,
    pub(crate) out: Actions,
    pub(crate) state: ArrayState,
    pub(crate) mode: StartMode,
    /// How far the start is, while one runs.
    pub(crate) start: Option<StartStage>,
    pub(crate) layout: Layout,
    /// The superblock as it should be; the metadata writer writes it to the members.
    pub(crate) superblock: Superblock,
    pub(crate) roles: Roles,
    pub(crate) tasks: Tasks,
    /// While rows are taken to another shape.
    pub(crate) reshape: Option<Box<Reshaping>>,
    pub(crate) ties: Ties,
    pub(crate) counters: Counters,
    /// A log was found, and its data is newer than that of primary copies which were written first.
    pub(crate) log_counts: bool,
    /// Every region is called dirty, and stays so.
    pub(crate) all_dirty: bool,
    /// Rows that the start made consistent.
    pub(crate) recovered_rows: u64,
    /// Nothing is written any more.
    pub(crate) halt: Option<Halt>,
    /// The array halted while this run was unsure: nothing looks any more, so it stays so.
    pub(crate) doubted: bool,
    /// Earliest moment at which each kind of timed work is due.
    pub(crate) wake: [Nanos; WAKES],
    pub(crate) armed: Nanos,
    /// What the top has to attend to, in this order.
    pub(crate) notices: Vec<Notice>,
    /// How many of them are being attended to.
    pub(crate) attended: usize,
}

/// How a set takes part in a tier. None of this holds of a set by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ties {
    /// It is started as a part of the array that its superblock names, and not as an array.
    pub is_part: bool,
    /// Its partner is here, and started with it.
    pub attached: bool,
    /// Some writes go to primary copies only.
    pub primaries_first: bool,
    /// Users' requests are counted above.
    pub counted_above: bool,
    /// The read cache is asked from above, and users' changes are reported to it from there.
    pub cached_above: bool,
    /// As the buffer of this array it is refused if its session is lower.
    pub least_session: Option<(Uuid, u32)>,
}

/// Stages of a start; see [`crate::start`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StartStage {
    Superblocks,
    /// Another run may own the array: time shows whether it does ([`crate::claims`]).
    Owner,
    Maps,
    Logs,
    /// What was read is being made durable.
    Securing,
    Replaying,
    /// Replayed rows are being flushed.
    Flushing,
    /// Members that lag get the chosen version.
    Levelling,
    Settle,
}

/// Who waits for a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waiter {
    /// A user's flush.
    Request(u32),
    /// A log that is full, or a write whose record would clash with an unflushed one.
    Log,
    /// A task's checkpoint.
    Checkpoint,
    /// The lazy clearing of intent bits.
    Intent,
    /// A version of the superblock that covers what was written lately.
    Version,
    /// What a start found, and what its recovery wrote.
    Start,
    /// A member that was added.
    Join,
    Stop,
}

/// What a floor has to say to those above it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Notice {
    /// A superblock or a page of a map has become durable.
    MetadataMoved,
    /// The array writes nothing any more.
    Halted(Halt),
    /// A member has failed: its outstanding operations are to be ended.
    MemberOut(Member),
    /// This waiter's flush, the one of this number, has ended.
    Flushed(Waiter, u64),
    /// A flush has ended on all members.
    FlushEnded,
    /// A command is carried out, and is answered when what it changed is durable.
    CarriedOut {
        tag: CommandTag,
        /// The member that it takes in.
        added: Option<Member>,
    },
    /// A start has waited to see whether another run owns the array, and reads the superblocks again.
    OwnerAwaited,
    /// The array is this run's: the start goes on.
    Owned,
    /// The superblocks do not show whose the array is: the start is refused.
    OwnerUnclear,
    /// Another run owns the array: the start is refused.
    OwnedBy(ArrayOwner),
    /// Members failed whose logs cannot be read in full: the start recovers without them.
    UnreadOut {
        /// It does not wait for a turn.
        goes_on: bool,
    },
}

/// Who may want to be woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wake {
    Watchdog,
    Task,
    Lazy,
    Heat,
    /// A version of the superblock, for what was written lately.
    Version,
    /// Members without space are judged.
    Full,
    /// Superblocks are looked at, for their owner.
    Owner,
}
const WAKES: usize = 7;

pub const NEVER: Nanos = Nanos(u64::MAX);

impl Facts {
    pub(crate) fn new(config: Config) -> Facts {
        // Of no array: it counts until the members have spoken.
        let superblock = Superblock {
            logical_block: 512,
            extent_rows: 1,
            written_all: true,
            intent_rows: 1,
            clean: true,
            ..Superblock::default()
        };
        let blank = Layout::new(superblock.geometry);
        Facts {
            now: Nanos::ZERO,
            out: Actions::new(),
            state: ArrayState::Starting,
            mode: StartMode::default(),
            start: None,
            layout: blank.expect("the blank geometry is sound"),
            superblock,
            roles: Roles::default(),
            tasks: Tasks::default(),
            reshape: None,
            ties: Ties::default(),
            counters: Counters::default(),
            log_counts: false,
            all_dirty: false,
            recovered_rows: 0,
            halt: None,
            doubted: false,
            wake: [NEVER; WAKES],
            armed: NEVER,
            notices: Vec::new(),
            attended: 0,
            config,
        }
    }

    /// This floor alone, from a floor above.
    #[inline]
    pub(crate) fn facts(&mut self) -> &mut Facts {
        self
    }

    // ---------------------------------------------------------------------------------------------- this step

    pub(crate) fn fact(&mut self, fact: Fact) {
        self.out.push(Action::Fact(fact));
    }

    pub(crate) fn reply(&mut self, tag: RequestTag, result: Result<(), RequestError>) {
        self.out.push(Action::Reply(tag, result));
    }

    pub(crate) fn answer(&mut self, tag: CommandTag, result: Result<(), CommandError>) {
        self.out.push(Action::CommandReply(tag, result));
    }

    /// Whether this run has a bug that was planted on purpose.
    #[inline]
    pub fn planted(&self, bug: Bug) -> bool {
        PLANTED && self.config.bug == Some(bug)
    }

    pub(crate) fn notify(&mut self, notice: Notice) {
        self.notices.push(notice);
    }

    /// Whether notices wait to be attended to.
    #[inline]
    pub(crate) fn has_notices(&self) -> bool {
        self.notices.len() > self.attended
    }

    pub(crate) fn wake_at(&mut self, who: Wake, at: Nanos) {
        let slot = &mut self.wake[who as usize];
        *slot = (*slot).min(at);
    }

    pub(crate) fn wake_after(&mut self, who: Wake, time: Nanos) {
        self.wake_at(who, self.now.after(time));
    }

    pub(crate) fn wake_now(&mut self, who: Wake) {
        self.wake_at(who, self.now);
    }

    pub(crate) fn arm(&mut self) {
        let next = self.wake.iter().copied().min().unwrap_or(NEVER);
        if next != self.armed && next != NEVER {
            self.armed = next;
            self.out.push(Action::Wake(next));
        }
    }

    /// Takes the next operation that a halted array may not start out of the actions.
    pub(crate) fn refused(&mut self) -> Option<Box<DeviceIo>> {
        if !self.halted() {
            return None;
        }
        let writes = |action: &Action| matches!(action, Action::Device(io) if io.op != IoOp::Read);
        let index = self.out.iter().position(writes)?;
        match self.out.remove(index) {
            Action::Device(io) => Some(io),
            _ => None,
        }
    }

    // ----------------------------------------------------------------------------------------------------- state

    /// Whether a start runs.
    #[inline]
    pub(crate) fn starts(&self) -> bool {
        self.start.is_some()
    }

    /// Until it is decided which members are current, and what they hold is durable, nothing is written to
    /// any.
    pub(crate) fn undecided(&self) -> bool {
        use StartStage::{Logs, Maps, Owner, Securing, Superblocks};
        match self.start {
            Some(stage) => matches!(stage, Superblocks | Owner | Maps | Logs | Securing),
            None => self.state == ArrayState::Starting,
        }
    }

    /// Whether what was read is being made durable.
    pub(crate) fn securing(&self) -> bool {
        self.start == Some(StartStage::Securing)
    }

    /// Whether log records still decide what rows hold: until then none of them is declared void.
    pub(crate) fn replaying(&self) -> bool {
        self.start.is_some_and(|stage| stage != StartStage::Settle)
    }

    #[inline]
    pub fn serving(&self) -> bool {
        matches!(
            self.state,
            ArrayState::Healthy | ArrayState::Degraded | ArrayState::Failed
        )
    }

    #[inline]
    pub fn halted(&self) -> bool {
        self.halt.is_some()
    }

    pub fn halt_error(&self, halt: Halt) -> CommandError {
        match halt {
            Halt::NoSpace => CommandError::NoSpace,
            Halt::Owned(by) => CommandError::Owned {
                by,
                rival: Rival::Claims,
            },
            Halt::TooFew => CommandError::TooFew {
                missing: self.roles.missing().collect(),
            },
        }
    }

    /// A halted array has written nothing down.
    pub(crate) fn on_record(&self) -> Result<(), CommandError> {
        match self.halt {
            None => Ok(()),
            Some(halt) => Err(self.halt_error(halt)),
        }
    }

    // ----------------------------------------------------------------------------------------------------- roles

    /// Who stands in the partition of a slot that a row's cell lies in.
    pub(crate) fn roles_at(&self, slot: Slot, row: Row) -> &PartitionRoles {
        self.roles.at(slot, self.layout.partition_of(row))
    }

    /// The slot in which a member serves, or into which it is filled: its own before those whose partitions
    /// it hosts.
    pub fn slot_of(&self, member: Member) -> Option<usize> {
        let there = |roles: &PartitionRoles| roles.members().any(|one| one == member);
        let own = self.roles.own_slot(member);
        own.or_else(|| self.roles.slot_where(there))
    }

    pub(crate) fn serves(&self, member: Member) -> bool {
        self.roles.iter().any(|one| one.serves(member))
    }

    /// Every partition of every slot is served.
    pub fn complete(&self) -> bool {
        self.roles.iter().all(|roles| roles.home.is_some())
    }

    /// Whether every row could be decoded if, besides what is missing now, what stands so were gone.
    pub(crate) fn all_decodable(&self, without: impl Fn(&PartitionRoles) -> bool) -> bool {
        self.layout.decodable_without_parts(|slot, partition| {
            let roles = self.roles.at(slot, partition);
            roles.home.is_none() || without(roles)
        })
    }

    /// Whether some row could not be decoded without this member.
    pub fn indispensable(&self, member: Member) -> bool {
        let serves = |roles: &PartitionRoles| roles.serves(member);
        self.roles.iter().any(serves) && !self.all_decodable(serves)
    }

    pub fn is_mirrored(&self) -> bool {
        self.superblock.geometry.level.mirrors()
    }

    /// Members that hold further copies only.
    pub(crate) fn mirrors(&self) -> Vec<Member> {
        let slots = 0..usize::from(self.superblock.geometry.slots);
        let further = slots.filter(|&slot| !self.layout.has_firsts(Slot(slot as u16)));
        let members = further.flat_map(|slot| self.roles.of_slot(slot));
        let homes = members.filter_map(|roles| roles.home);
        homes.map(|home| home.member).collect()
    }

    // ------------------------------------------------------------------------------------------------ superblock

    pub(crate) fn logged(&self) -> bool {
        self.superblock.write_hole == WriteHole::Ppl && self.layout.parity()
    }

    /// Whether nothing says where writes were under way: then that may be anywhere.
    pub(crate) fn unguarded(&self) -> bool {
        self.superblock.write_hole == WriteHole::None
    }

    /// Whether rows are written whole only, and none that is cut short counts for anybody.
    pub fn whole_rows(&self) -> bool {
        self.superblock.write_hole == WriteHole::WholeRows
    }

    pub(crate) fn regions(&self) -> u64 {
        self.layout.rows().div_ceil(self.superblock.intent_rows)
    }

    pub(crate) fn intent_region(&self, row: Row) -> u64 {
        row.0 / self.superblock.intent_rows
    }

    pub(crate) fn dirty_bit(&self, region: u64) -> u64 {
        region
    }

    pub(crate) fn owed_bit(&self, region: u64) -> u64 {
        self.regions() + region
    }

    /// Bytes that are the users' own.
    pub(crate) fn own_bytes(&self) -> u64 {
        self.superblock.own_sectors(self.layout.size_sectors()) * SECTOR_BYTES
    }

    /// What a member has to have.
    pub(crate) fn needs_sectors(&self) -> u64 {
        Places::of(&self.superblock.regions).data + self.superblock.geometry.slot_sectors
    }

    // ------------------------------------------------------------------------------------------ extents and rows

    pub(crate) fn extents(&self) -> u64 {
        self.layout.rows().div_ceil(self.superblock.extent_rows)
    }

    pub(crate) fn extent_of(&self, row: Row) -> u64 {
        row.0 / self.superblock.extent_rows
    }

    /// The bit that says that a generation is written in an extent.
    pub(crate) fn written_bit(&self, extent: u64, generation: u8) -> u64 {
        match generation {
            0 => extent,
            later => u64::from(later) * self.extents() + extent,
        }
    }

    /// Bits for every generation, with that of a growth under way.
    pub(crate) fn written_bits(&self) -> u64 {
        u64::from(self.layout.generations_to_come()) * self.extents()
    }

    /// Whether it is a row in a new shape of an extent that has others in the former.
    pub(crate) fn is_made(&self, row: Row) -> bool {
        let end = (self.extent_of(row) + 1) * self.superblock.extent_rows;
        row < self.layout.edge() && self.layout.edge().0 < end.min(self.layout.rows())
    }

    /// The cells of a row in `generations` generations, at their present places.
    pub(crate) fn row_with(&self, row: Row, generations: u8) -> RowMap {
        match !self.layout.is_growing() || self.tasks.is_moved(row) {
            true => self.layout.row_through(row, generations),
            false => self.layout.row_before(row, generations),
        }
    }

    /// Zeros go to whoever serves a slot, and to whoever is being filled for it: no later pass skips them
    /// wrongly.
    pub(crate) fn extent_homes(&self, slot: Slot, partition: u16) -> [Option<Home>; 2] {
        let roles = self.roles.at(slot, partition);
        [roles.home, roles.incoming]
    }

    // ----------------------------------------------------------------------------------------------------- tasks

    /// Whether the codes of a row can be trusted: no resynchronisation still owes it.
    pub(crate) fn in_sync(&self, row: Row) -> bool {
        self.tasks.in_sync(row)
    }

    /// The rows that no recorded resynchronisation owes.
    pub(crate) fn resynced_before(&self) -> RunSet {
        let mut done = RunSet::default();
        done.insert(0, self.layout.rows());
        for (first, count) in self.tasks.resync_owes().unwrap_or_default() {
            done.remove(first, count);
        }
        done
    }

    /// Whether superblocks have room for one task more that fills a slot.
    pub(crate) fn may_fill(&self) -> bool {
        self.tasks.may_fill()
    }

    /// Half of the large buffers' worth of windows at most, so that users' requests have the other half.
    pub(crate) fn most_windows(&self) -> u32 {
        (self.config.limits.pool.large / (2 * self.task_buffers())).max(1)
    }

    /// The most buffers that one window of a task takes.
    pub(crate) fn task_buffers(&self) -> u32 {
        match self.layout.is_reshaping() {
            true => self.reshape_buffers(),
            false => u32::from(self.layout.width()) + self.parity_buffers() + 3,
        }
    }

    /// For what the parities of a row will be. A row of fewer than two counts as one of two: what else tasks
    /// and writes take beside it is reckoned so.
    pub(crate) fn parity_buffers(&self) -> u32 {
        u32::from(self.layout.geometry().level.parities()).max(2)
    }

    /// Buffers for a row of the new shape and one of the former at a time.
    pub(crate) fn reshape_buffers(&self) -> u32 {
        let (_, former) = self.layout.former_shape().unwrap_or_default();
        u32::from(self.layout.width()) + u32::from(former) + 5
    }

    /// McPod's region: as many rows as there will be data slots, after which what moves is the same again.
    pub(crate) fn region_rows(&self) -> u64 {
        let generations = self.layout.generations_to_come();
        u64::from(self.layout.cells_through(generations))
    }

    /// Rows whose moves go together: a region of the growth, or part of one.
    pub(crate) fn batch_rows(&self) -> u64 {
        match self.tasks.moves.coalesces() {
            true => {
                let most = BATCH_ROWS_MAX.min(u64::from(self.most_windows()));
                self.region_rows().min(most)
            }
            false => 1,
        }
    }

    /// What a new member takes of so much of each: what every member takes of a whole row, where chunks are
    /// dealt anew.
    pub(crate) fn moved_of(&self, much: u64) -> u64 {
        let former = u64::from(self.layout.cells_through(self.layout.generations()));
        much * former / self.region_rows().max(1)
    }

    /// Bytes of one member that a task has yet to go through.
    pub(crate) fn left_of(&self, task: &Task) -> u64 {
        let rows = self.layout.rows() - task.done.len();
        let chunks = match task.kind {
            TaskKind::Growth => self.moved_of(rows),
            _ => self.layout.rows_of_slot(rows),
        };
        chunks * self.layout.chunk_sectors() * SECTOR_BYTES
    }

    /// Bytes of one member that a window moves. What fills a slot has windows in rows of that alone; of what
    /// goes through all rows a member of a skewed array has a part, and the others have theirs at the same
    /// time.
    pub(crate) fn window_bytes(&self, kind: TaskKind) -> u64 {
        let chunk = self.layout.chunk_sectors() * SECTOR_BYTES;
        match kind {
            TaskKind::Rebuild | TaskKind::Replace => chunk,
            TaskKind::Resync | TaskKind::Check | TaskKind::Repair => {
                self.layout.rows_of_slot(chunk)
            }
            TaskKind::Growth => self.moved_of(chunk),
        }
    }

    /// The cells of a row that stand elsewhere after the growth, and the row as it is then.
    pub(crate) fn moving_cells(&self, map: &RowMap) -> (CellSet, RowMap) {
        let generations = self.layout.generation_of(map.data - 1) + 1;
        let before = self.layout.row_before(map.row, generations);
        let after = self.layout.row_through(map.row, generations);
        let slot = |map: &RowMap, cell: u8| map.cells[usize::from(cell)].slot;
        let moves = |cell: &u8| slot(&before, *cell) != slot(&after, *cell);
        let cells = (0..map.data).filter(moves);
        (cells.fold(CellSet::EMPTY, CellSet::with), after)
    }

    /// Nothing is known yet of what users read.
    pub(crate) fn blank_heat(&self) -> Heat {
        let (rows, row_sectors) = (self.layout.rows(), self.layout.row_sectors());
        Heat::new(self.config.limits.heat, rows, row_sectors, self.now)
    }

    /// The tasks as the superblock shows them.
    pub(crate) fn tasks_to_superblock(&mut self) {
        self.tasks.records_into(&mut self.superblock.tasks);
    }

    /// A member is used for something else, or leaves the table.
    pub(crate) fn forget_dropped_target(&mut self, entry: u16) {
        let target = self.superblock.members[usize::from(entry)].uuid;
        self.forget_dropped(|one| one.target == target);
    }

    /// Removes dropped tasks that a command or another task has replaced, also from the member table.
    pub(crate) fn forget_dropped(&mut self, settled: impl Fn(&DroppedTask) -> bool) {
        for one in self.tasks.dropped.extract_if(.., |one| settled(one)) {
            if let Some(entry) = self.superblock.index_of(one.target) {
                self.superblock.members[usize::from(entry)].dropped_for = None;
            }
        }
    }
}
