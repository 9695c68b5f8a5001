//! The running array: every part's state in one place, and the few operations that all parts share.

use crate::admission::Admission;
use crate::boot::Boot;
use crate::command::Answer;
use crate::contract::{
    Action, Actions, BufRef, Class, CommandTag, ComputeOp, DeviceIo, Fact, FailCause, Halt, IoOp,
    LinearOutput, RequestError, RequestTag, Segment, StartMode,
};
use crate::device::{Device, Health};
use crate::flush::Flusher;
use crate::full::Full;
use crate::handover::Handover;
use crate::heat_pages::HeatPages;
use crate::keeper::Keeper;
use crate::layout::{Geometry, Layout, Level, RowMap};
use crate::log::Logs;
use crate::maps::{BitMap, LostMap};
use crate::meta::superblock::{BufferMark, Superblock, Tail, WriteHole};
use crate::ops::{Ops, Owner};
use crate::owner::Ownership;
use crate::policy::heat::Heat;
use crate::policy::latency::Latencies;
use crate::policy::traffic::Traffic;
use crate::pool::{Buffers, Share};
use crate::read_cache::ReadCache;
use crate::report::{ArrayState, Counters};
use crate::request::Requests;
use crate::set::Config;
use crate::slice::Slices;
use crate::standing::{Home, Homes, Standing, Standings};
use crate::task::Tasks;
use crate::task::reshape::Reshaping;
use crate::units::{Member, Nanos, Row, Slot, Uuid};
use crate::written::{INITS_OPS, Inits};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

pub struct Core {
    pub(crate) config: Config,
    pub(crate) now: Nanos,
    pub(crate) out: Actions,
    pub(crate) state: ArrayState,
    pub(crate) mode: StartMode,
    pub(crate) layout: Layout,
    /// The superblock as it should be; `keeper` sees to it that members agree.
    pub(crate) superblock: Superblock,
    pub(crate) devices: Vec<Device>,
    pub(crate) standing: Standings,
    pub(crate) ops: Ops,
    pub(crate) buffers: Buffers,
    pub(crate) requests: Requests,
    pub(crate) slices: Slices,
    pub(crate) keeper: Keeper,
    pub(crate) written: BitMap,
    pub(crate) intent: BitMap,
    /// Writes in flight in each intent region.
    pub(crate) intent_users: Vec<crate::intent::IntentUsers>,
    pub(crate) lost: LostMap,
    pub(crate) redirected: BitMap,
    pub(crate) ties: Ties,
    pub(crate) inits: Inits,
    pub(crate) logs: Logs,
    pub(crate) flusher: Flusher,
    pub(crate) full: Full,
    pub(crate) tasks: Tasks,
    /// While rows are taken to another shape.
    pub(crate) reshape: Option<Box<Reshaping>>,
    pub(crate) traffic: Traffic,
    pub(crate) handover: Handover,
    pub(crate) heat: Heat,
    pub(crate) latencies: Latencies,
    pub(crate) heat_pages: HeatPages,
    pub(crate) read_cache: Option<ReadCache>,
    pub(crate) counters: Counters,
    /// How often members were let sleep, each counted by itself.
    pub(crate) rests: u64,
    /// A log was found, and counts more than first copies that went ahead.
    pub(crate) log_counts: bool,
    /// Every region is called dirty, and stays so.
    pub(crate) all_dirty: bool,
    /// Rows that the start made consistent.
    pub(crate) recovered_rows: u64,
    pub(crate) boot: Option<Boot>,
    /// Commands that wait for a version of the superblock to be durable.
    pub(crate) answers: Vec<Answer>,
    pub(crate) admissions: Vec<Admission>,
    pub(crate) stopping: Option<CommandTag>,
    /// What a failed member lacks is not on record yet.
    pub(crate) owing: bool,
    /// Nothing is written any more.
    pub(crate) halt: Option<Halt>,
    pub(crate) ownership: Ownership,
    pub(crate) stop_flush: bool,
    pub(crate) stop_version: u64,
    /// The second version of this stop is being written.
    pub(crate) stop_confirms: bool,
    /// Earliest moment at which each kind of timed work is due.
    pub(crate) wake: [Nanos; WAKES],
    pub(crate) armed: Nanos,
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
}

/// Who may want to be woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wake {
    Watchdog,
    Task,
    Lazy,
    Heat,
    /// Members without space are judged.
    Full,
    /// A halted array may look whether there is room again.
    Room,
    /// Superblocks are looked at, for their owner.
    Owner,
}
const WAKES: usize = 7;
/// How many time-outs one operation may take on a member that goes on completing others.
const TIMEOUTS_MAX: u64 = 4;
/// Operations before the array is known: reads of metadata.
const BOOT_OPS: u32 = 256;
/// Operations of superblocks, maps and flushes.
pub(crate) const METADATA_OPS: u32 = 3072;
pub const NEVER: Nanos = Nanos(u64::MAX);

impl Core {
    pub fn new(config: Config, share: Share) -> Core {
        let blank = blank_geometry();
        let limits = config.limits;
        Core {
            now: Nanos::ZERO,
            out: Actions::new(),
            state: ArrayState::Starting,
            mode: StartMode::default(),
            layout: Layout::new(blank).expect("the blank geometry is sound"),
            superblock: blank_superblock(blank),
            devices: config.members.iter().copied().map(Device::new).collect(),
            standing: Standings::default(),
            ops: Ops::new(BOOT_OPS),
            buffers: Buffers::new(share),
            requests: Requests::new(limits.requests),
            slices: Slices::new(limits.slices),
            keeper: Keeper::default(),
            written: BitMap::new(0),
            intent: BitMap::new(0),
            intent_users: Vec::new(),
            lost: LostMap::default(),
            redirected: BitMap::new(0),
            ties: Ties::default(),
            inits: Inits::default(),
            logs: Logs::default(),
            flusher: Flusher::default(),
            full: Full::default(),
            tasks: Tasks::default(),
            reshape: None,
            traffic: Traffic::default(),
            handover: Handover::default(),
            heat: Heat::default(),
            latencies: Latencies::default(),
            heat_pages: HeatPages::default(),
            read_cache: None,
            counters: Counters::default(),
            rests: 0,
            log_counts: false,
            all_dirty: false,
            recovered_rows: 0,
            boot: None,
            answers: Vec::new(),
            admissions: Vec::new(),
            stopping: None,
            owing: false,
            halt: None,
            ownership: Ownership::default(),
            stop_flush: false,
            stop_version: 0,
            stop_confirms: false,
            wake: [NEVER; WAKES],
            armed: NEVER,
            config,
        }
    }

    /// Room for what every admitted slice, the metadata and the direct reads may have outstanding.
    pub(crate) fn size_ops(&mut self) {
        let width = u32::from(self.layout.width());
        self.slices.op_reserve =
            self.config.limits.slices * (4 * width + 8) + METADATA_OPS + INITS_OPS;
        self.ops
            .grow(self.slices.op_reserve + self.config.limits.ios);
    }

    // ------------------------------------------------------------------------------------------------ each step

    /// The shell has nothing more for now: everything that waited for a turn gets one.
    pub(crate) fn turn(&mut self) {
        if self.boot.is_some() {
            self.run_slices();
            self.boot_turn();
        }
        // Also in the turn that ended the boot: on an idle array nothing else would come to wake a task that the
        // members tell of.
        if self.boot.is_none() {
            self.pump();
            // Slices that end without any operation make room that nothing else would tell the waiting requests of.
            while self.run_slices() && self.requests.waiting() {
                self.pump();
            }
            self.task_turn();
        }
    }

    /// After every step: metadata, flushes and answers that the step made due.
    pub(crate) fn settle_turn(&mut self) {
        if self.securing() {
            self.flusher_turn();
            // With nobody to flush that has ended already.
            self.boot_turn();
        }
        if self.undecided() {
            return self.arm();
        }
        self.settle_ahead();
        self.keep();
        self.flusher_turn();
        if self.run_slices() && self.requests.waiting() {
            self.wake_at(Wake::Task, self.now);
        }
        self.keep();
        self.stop_turn();
        self.stop_settle();
        self.admissions_turn();
        self.answers_turn();
        self.arm();
    }

    pub(crate) fn timer(&mut self) {
        self.armed = NEVER;
        let due = |wake: &mut Nanos, now: Nanos| {
            let due = *wake <= now;
            if due {
                *wake = NEVER;
            }
            due
        };
        let now = self.now;
        let (watchdog, lazy, heat) = (
            due(&mut self.wake[Wake::Watchdog as usize], now),
            due(&mut self.wake[Wake::Lazy as usize], now),
            due(&mut self.wake[Wake::Heat as usize], now),
        );
        for who in [Wake::Task, Wake::Full, Wake::Room, Wake::Owner] {
            due(&mut self.wake[who as usize], now);
        }
        if watchdog {
            self.watch();
        }
        if lazy {
            self.lazy_timer();
        }
        if heat {
            self.heat_timer();
        }
        self.turn();
    }

    /// Fails members that have completed nothing for too long, or kept one operation for `TIMEOUTS_MAX` times as long:
    /// a slow member with a long queue is not a dead one.
    fn watch(&mut self) {
        loop {
            let (late, next) = self.ops.overdue(self.now);
            match late {
                Some((tag, member)) => {
                    let progress = self.devices[member.0 as usize].progress;
                    let until = progress.after(self.config.io_timeout);
                    if !self.ops.extend(tag, self.now, until) {
                        self.time_out(member);
                    }
                }
                None => {
                    if next != NEVER {
                        self.wake_at(Wake::Watchdog, next);
                    }
                    return;
                }
            }
        }
    }

    fn time_out(&mut self, member: Member) {
        if self.good(member) && self.boot.is_none() {
            self.fail_member(member, FailCause::TimedOut);
        }
        // Whatever it was doing, nobody waits for it any longer.
        self.abandon(member);
    }

    fn arm(&mut self) {
        let next = self.wake.iter().copied().min().unwrap_or(NEVER);
        if next != self.armed && next != NEVER {
            self.armed = next;
            self.out.push(Action::Wake(next));
        }
    }

    pub fn idle(&self) -> bool {
        self.ops.idle() && self.idle_but_for_orphans()
    }

    /// Nothing is under way but operations that were given up on, whose buffers are their own.
    pub fn idle_but_for_orphans(&self) -> bool {
        self.requests.idle()
            && self.slices.idle()
            && self.ops.only_orphans()
            && self.flusher.idle()
            && self.buffers.all_free()
    }

    pub(crate) fn fact(&mut self, fact: Fact) {
        self.out.push(Action::Fact(fact));
    }

    pub(crate) fn reply(&mut self, tag: RequestTag, result: Result<(), RequestError>) {
        self.out.push(Action::Reply(tag, result));
    }

    // ------------------------------------------------------------------------------------------- operations

    /// Starts a device operation; `fill` adds its segments and flags.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn device_io(
        &mut self,
        owner: Owner,
        member: Member,
        op: IoOp,
        at: u64,
        sectors: u64,
        class: Class,
        fill: impl FnOnce(&mut DeviceIo),
    ) {
        self.wake_for(member, op);
        let spins_up = self.rouse(member, op);
        let deadline = self.now.after(self.config.io_timeout).after(spins_up);
        let last = Nanos(self.config.io_timeout.0.saturating_mul(TIMEOUTS_MAX));
        let last = self.now.after(last).after(spins_up);
        let mut io = self
            .ops
            .device(owner, member, op, at, sectors, class, deadline, last);
        fill(&mut io);
        let carried: u64 = io
            .segments
            .iter()
            .map(|segment| u64::from(segment.bytes()))
            .sum();
        debug_assert!(
            !matches!(op, IoOp::Read | IoOp::Write) || carried == sectors * crate::SECTOR_BYTES,
            "segments cover the operation: {io:?}"
        );
        self.devices[member.0 as usize].in_flight += 1;
        self.note_phase(member);
        self.counters.ios[class as usize] += 1;
        self.counters.io_bytes[class as usize] += sectors * crate::SECTOR_BYTES;
        self.traffic.note(member, owner, class, sectors);
        if self.wake[Wake::Watchdog as usize] == NEVER {
            self.wake_at(Wake::Watchdog, deadline);
        }
        self.out.push(Action::Device(io));
    }

    /// Starts a write of whole metadata pages.
    pub(crate) fn write_pages(
        &mut self,
        owner: Owner,
        member: Member,
        at: u64,
        pages: Vec<crate::Page>,
    ) {
        let sectors = pages.len() as u64 * crate::PAGE_SECTORS;
        self.device_io(
            owner,
            member,
            IoOp::Write,
            at,
            sectors,
            Class::Metadata,
            |io| {
                io.durable = true;
                io.segments.extend(pages.into_iter().map(Segment::Page));
            },
        );
    }

    /// Copies bytes, or makes them zeros when there is no source.
    pub(crate) fn copy(&mut self, owner: Owner, source: Option<BufRef>, target: BufRef) {
        let mut compute = self.ops.compute(owner, ComputeOp::Linear);
        let mut coefficients = self.ops.coefficient_list();
        if let Some(source) = source {
            compute.sources.push(source);
            coefficients.push(1);
        }
        compute.outputs.push(LinearOutput {
            target,
            coefficients,
        });
        self.out.push(Action::Compute(compute));
    }

    /// Accounts for a completed operation; the caller has its owner already.
    pub(crate) fn settle_io(&mut self, io: &DeviceIo, ok: bool) {
        let device = &mut self.devices[io.member.0 as usize];
        device.in_flight -= 1;
        device.progress = self.now;
        self.roused(io.member, io.op);
        self.note_phase(io.member);
        let device = &mut self.devices[io.member.0 as usize];
        if ok && !io.durable && matches!(io.op, IoOp::Write | IoOp::Zero | IoOp::Trim) {
            device.unflushed = true;
        }
        if ok && device.full && io.class == Class::User && matches!(io.op, IoOp::Write | IoOp::Zero)
        {
            self.note_room(io.member);
        }
    }

    pub(crate) fn recycle(&mut self, io: Box<DeviceIo>) {
        self.ops.recycle_io(io);
    }

    pub(crate) fn wake_at(&mut self, who: Wake, at: Nanos) {
        let slot = &mut self.wake[who as usize];
        *slot = (*slot).min(at);
    }

    // ------------------------------------------------------------------------------------------------ standing

    /// Who stands in the partition of a slot that a row's cell lies in.
    pub(crate) fn standing_at(&self, slot: Slot, row: Row) -> &Standing {
        self.standing.at(slot, self.layout.partition_of(row))
    }

    /// Who can read and who must write a slot's part of a row.
    pub(crate) fn homes(&self, slot: Slot, row: Row) -> Homes {
        let standing = self.standing_at(slot, row);
        let filled = standing.incoming.filter(|_| self.tasks.filled(slot, row));
        let home = match self.is_torn(row) {
            true => self.slot_in_journal(slot, row),
            false => standing.home.or(filled),
        };
        Homes {
            read: home,
            write: [standing.home, filled],
        }
    }

    /// The cells of a row that have somewhere to be read from.
    pub(crate) fn live_cells(&self, map: &RowMap) -> crate::layout::code::CellSet {
        let mut set = crate::layout::code::CellSet::default();
        for cell in 0..map.width {
            if self
                .homes(map.cells[cell as usize].slot, map.row)
                .read
                .is_some()
            {
                set = set.with(cell);
            }
        }
        set
    }

    /// The cells of a row that are live and will be after a crash: a cell on a member that is being filled counts only
    /// when the members' superblocks say that it is there.
    pub(crate) fn firm_cells(&self, map: &RowMap) -> crate::layout::code::CellSet {
        let mut set = crate::layout::code::CellSet::default();
        for cell in 0..map.width {
            let slot = map.cells[cell as usize].slot;
            let standing = self.standing_at(slot, map.row);
            let filled = standing.incoming.is_some()
                && self.keeper.all_durable()
                && self.tasks.filled_durably(slot, map.row);
            if standing.home.is_some() || filled {
                set = set.with(cell);
            }
        }
        set
    }

    pub(crate) fn good(&self, member: Member) -> bool {
        self.devices
            .get(member.0 as usize)
            .is_some_and(|device| device.health == Health::Good)
    }

    /// Every partition of every slot is served.
    pub fn complete(&self) -> bool {
        self.standing.iter().all(|standing| standing.home.is_some())
    }

    pub(crate) fn logged(&self) -> bool {
        self.superblock.write_hole == WriteHole::Ppl && self.layout.parity()
    }

    /// Whether the codes of a row can be trusted: no resynchronisation still owes it.
    pub(crate) fn in_sync(&self, row: Row) -> bool {
        self.tasks.in_sync(row)
    }

    pub(crate) fn intent_region(&self, row: Row) -> u64 {
        row.0 / self.superblock.intent_rows
    }

    /// The array's state as its members leave it.
    pub(crate) fn assess(&mut self) {
        if matches!(
            self.state,
            ArrayState::Starting | ArrayState::Stopping | ArrayState::Stopped
        ) {
            return;
        }
        self.state = if self.complete() {
            ArrayState::Healthy
        } else if self.all_decodable(|_| false) {
            ArrayState::Degraded
        } else {
            ArrayState::Failed
        };
        self.price_misses();
    }

    /// Whether every row could be decoded if, besides what is missing now, what stands so were gone.
    pub(crate) fn all_decodable(&self, without: impl Fn(&Standing) -> bool) -> bool {
        self.layout.decodable_without_parts(|slot, partition| {
            let standing = self.standing.at(slot, partition);
            standing.home.is_none() || without(standing)
        })
    }

    /// The slot in which a member serves, or into which it is filled: its own before those whose partitions it hosts.
    pub fn slot_of(&self, member: Member) -> Option<usize> {
        let there = |standing: &Standing| standing.members().any(|one| one == member);
        let own = self.standing.own_slot(member);
        own.or_else(|| self.standing.slot_where(there))
    }

    /// Where a partition of a slot would lie in this region of a member; nowhere if the member has no such region.
    pub(crate) fn home_on(&self, member: Member, region: u16, partition: u16) -> Option<Home> {
        let regions = &self.devices[member.0 as usize].regions;
        let (start, from) = self.superblock.place_in(regions, region, partition)?;
        Some(Home {
            member,
            region,
            start,
            from,
        })
    }
}

/// What stands in until the members have spoken.
fn blank_geometry() -> Geometry {
    Geometry {
        level: Level::Raid0,
        slots: 2,
        chunk_sectors: 8,
        slot_sectors: 8,
        skew: None,
        grown: None,
    }
}

fn blank_superblock(geometry: Geometry) -> Superblock {
    Superblock {
        array: Uuid::NIL,
        name: String::new(),
        created: 0,
        generation: 0,
        sequence: 0,
        member: Uuid::NIL,
        geometry,
        logical_block: 512,
        write_hole: WriteHole::None,
        regions: Vec::new(),
        extent_rows: 1,
        written_all: true,
        intent_rows: 1,
        clean: true,
        forced: 0,
        log_floor: 0,
        resync_pending: false,
        ahead: false,
        alone: false,
        members: Vec::new(),
        placement: Vec::new(),
        tasks: Vec::new(),
        partner: None,
        buffer: BufferMark::None,
        lent: Vec::new(),
        reshape: None,
        tail: Tail::default(),
    }
}
