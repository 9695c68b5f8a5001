//! Starting an array: read what the members say, decide who is current, recover, and begin to serve.
//!
//! | stage       | waits for                           | next                              |
//! |-------------|-------------------------------------|-----------------------------------|
//! | Superblocks | both copies of every device         | Maps, or the command fails        |
//! | Maps        | every map page of current members   | Logs, Settle                      |
//! | Logs        | the log headers                     | Replaying, Settle                 |
//! | Replaying   | rows made consistent (`recover.rs`) | Flushing                          |
//! | Flushing    | what was replayed is durable        | Levelling                         |
//! | Levelling   | the chosen version on who lags      | Settle                            |
//! | Settle      | superblocks and maps durable        | serving                           |

mod recover;

use crate::contract::{
    Action, Class, CommandError, CommandTag, DeviceIo, Fact, IoError, IoOp, Page, Segment,
    StartMode, TaskKind,
};
use crate::core::Core;
use crate::device::{Device, Health, Places, Standing};
use crate::flush::Waiter;
use crate::keeper::Keeper;
use crate::layout::Layout;
use crate::log::Logs;
use crate::maps::{BitMap, LostMap};
use crate::meta::log::{self, DoneList, LogRecord};
use crate::meta::pages::{self, INTENT_BITS, MapKind};
use crate::meta::superblock::{
    MemberRole, SUPER_A_AT, SUPER_B_PLACES, SUPERBLOCK_PAGES, SUPERBLOCK_SECTORS, Superblock,
};
use crate::meta::{Candidate, Choice, choose, copies_of};
use crate::meta::{MetaError, RegionKind};
use crate::ops::Owner;
use crate::planted::Bug;
use crate::report::ArrayState;
use crate::runset::RunSet;
use crate::task::Tasks;
use crate::units::{Member, PAGE_BYTES, PAGE_SECTORS, Row, SECTOR_BYTES};
use alloc::vec;
use alloc::vec::Vec;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Superblocks,
    Maps,
    Logs,
    Replaying,
    /// Replayed rows are being flushed.
    Flushing,
    /// Members that lag get the chosen version.
    Levelling,
    Settle,
}

/// What one read of the boot was for.
#[derive(Clone, Copy, Debug)]
enum Read {
    /// A place of a superblock, by its number.
    Super {
        index: usize,
    },
    Map {
        kind: MapKind,
        page: u32,
    },
    /// Part of a log, from this sector of it.
    Log {
        from: u64,
        pages: u64,
    },
}

pub(crate) struct Boot {
    tag: CommandTag,
    mode: StartMode,
    stage: Stage,
    reads: Vec<(Member, Read)>,
    /// Reads that wait for room.
    queue: Vec<u32>,
    outstanding: u32,
    candidates: Vec<Candidate>,
    /// What lies at each device's places of a superblock: copy A's, then copy B's.
    places: Vec<[Option<Result<Superblock, MetaError>>; 1 + SUPER_B_PLACES.len()]>,
    maps: Vec<MapVersion>,
    records: Vec<(Member, u64, LogRecord)>,
    /// Those found on members that failed, and may come back.
    stale_records: Vec<(Member, u64, LogRecord)>,
    /// The newest done-list of each member's log.
    done_lists: Vec<(Member, DoneList)>,
    /// Members whose newest copy is older than the one chosen.
    lagging: Vec<u16>,
    /// Members whose logs cannot be read in full.
    unread: Vec<Member>,
    replays_left: u32,
    replays_next: u32,
    recovered: u64,
}

/// The newest valid version of a map page met so far.
struct MapVersion {
    kind: MapKind,
    page: u32,
    newest: Option<(u64, Page)>,
}

/// Pages of a log read at once.
const LOG_PAGES: u64 = 16;
/// Boot reads in flight.
const READS: u32 = 64;

impl Core {
    pub(crate) fn boot_start(&mut self, tag: CommandTag, mode: StartMode) {
        if self.boot.is_some() || self.state != ArrayState::Starting {
            self.out.push(Action::CommandReply(
                tag,
                Err(CommandError::Busy("the array is running")),
            ));
            return;
        }
        self.mode = mode;
        self.forget_attempt();
        let candidates = self
            .devices
            .iter()
            .enumerate()
            .map(|(index, device)| Candidate {
                member: Member(index as u16),
                info: device.info,
                copies: [None, None],
            });
        let mut boot = Boot {
            tag,
            mode,
            stage: Stage::Superblocks,
            reads: Vec::new(),
            queue: Vec::new(),
            outstanding: 0,
            candidates: candidates.collect(),
            places: Vec::new(),
            maps: Vec::new(),
            records: Vec::new(),
            stale_records: Vec::new(),
            done_lists: Vec::new(),
            lagging: Vec::new(),
            unread: Vec::new(),
            replays_left: 0,
            replays_next: 0,
            recovered: 0,
        };
        for index in 0..self.devices.len() {
            let sectors = self.devices[index].info.sectors;
            let member = Member(index as u16);
            boot.places.push(Default::default());
            for index in 0..=SUPER_B_PLACES.len() {
                if super_place(index) + SUPERBLOCK_SECTORS <= sectors {
                    boot.ask(member, Read::Super { index });
                }
            }
        }
        self.boot = Some(boot);
        self.boot_turn();
    }

    /// Until it is decided which members are current, nothing is written to any.
    pub(crate) fn undecided(&self) -> bool {
        let reading =
            |boot: &Boot| matches!(boot.stage, Stage::Superblocks | Stage::Maps | Stage::Logs);
        self.boot
            .as_ref()
            .map_or(self.state == ArrayState::Starting, reading)
    }

    /// Whether log records still decide what rows hold: until then none of them is declared void.
    pub(crate) fn replaying(&self) -> bool {
        self.boot
            .as_ref()
            .is_some_and(|boot| boot.stage != Stage::Settle)
    }

    /// A start that failed leaves nothing behind for the next.
    fn forget_attempt(&mut self) {
        self.tasks = Tasks::default();
        self.keeper = Keeper::default();
        self.logs = Logs::default();
        self.standing.clear();
        for device in &mut self.devices {
            // What the attempt has outstanding still is.
            let in_flight = device.in_flight;
            *device = Device::new(device.info);
            device.in_flight = in_flight;
        }
    }

    /// Issues queued reads; when a stage has nothing outstanding, goes on to the next.
    pub(crate) fn boot_turn(&mut self) {
        loop {
            let Some(boot) = &mut self.boot else { return };
            if boot.outstanding >= READS {
                return;
            }
            match boot.queue.pop() {
                Some(step) => {
                    boot.outstanding += 1;
                    self.boot_read(step);
                }
                None if boot.outstanding == 0 => {
                    if !self.boot_next() {
                        return;
                    }
                }
                None => return,
            }
        }
    }

    fn boot_read(&mut self, step: u32) {
        let boot = self.boot.as_ref().expect("reads belong to a boot");
        let (member, read) = boot.reads[step as usize];
        let places = self.devices[member.0 as usize].places;
        let (at, count) = match read {
            Read::Super { index } => (super_place(index), SUPERBLOCK_PAGES as u64),
            Read::Map { kind, page } => (pages::home(places.map(kind), page, 0), 2),
            Read::Log { from, pages } => (places.log + from, pages),
        };
        let mut fresh = Vec::new();
        fresh.resize_with(count as usize, || self.ops.page());
        let owner = Owner::Boot { step };
        self.device_io(
            owner,
            member,
            IoOp::Read,
            at,
            count * PAGE_SECTORS,
            Class::Metadata,
            |io| {
                io.segments.extend(fresh.into_iter().map(Segment::Page));
            },
        );
    }

    pub(crate) fn boot_read_done(&mut self, step: u32, io: &DeviceIo, result: Result<(), IoError>) {
        let array = self.superblock.array;
        let Some(boot) = &mut self.boot else { return };
        boot.outstanding -= 1;
        let (member, read) = boot.reads[step as usize];
        let whole = result.is_ok();
        match read {
            Read::Super { index } if whole => {
                boot.places[member.0 as usize][index] = Some(Superblock::decode(&joined(io)));
            }
            Read::Map { kind, page } if whole => boot.note_map(kind, page, array, io),
            Read::Log { from, .. } if whole => boot.note_log(member, from, array, io),
            Read::Log { from, pages } => boot.log_unread(member, from, pages),
            _ => {}
        }
    }

    pub(crate) fn boot_read_given_up(&mut self, step: u32) {
        if let Some(boot) = &mut self.boot {
            boot.outstanding -= 1;
            let (member, read) = boot.reads[step as usize];
            if let Read::Log { from, .. } = read {
                boot.log_unread(member, from, 1);
            }
        }
    }

    /// The next stage. False when there is nothing to do but wait, or the boot has ended.
    fn boot_next(&mut self) -> bool {
        let stage = self.boot.as_ref().expect("checked by the caller").stage;
        match stage {
            Stage::Superblocks => self.boot_choose(),
            Stage::Maps => self.boot_maps(),
            Stage::Logs => self.boot_recover(),
            Stage::Replaying => self.boot_replay(),
            Stage::Flushing | Stage::Levelling => false,
            Stage::Settle => self.boot_settle(),
        }
    }

    fn boot_fail(&mut self, error: CommandError) -> bool {
        let boot = self.boot.take().expect("a boot runs");
        self.out.push(Action::CommandReply(boot.tag, Err(error)));
        false
    }

    fn boot_mut(&mut self) -> &mut Boot {
        self.boot.as_mut().expect("a boot runs")
    }

    // -------------------------------------------------------------------------------------------------- choosing

    fn boot_choose(&mut self) -> bool {
        let boot = self.boot_mut();
        let (mut candidates, mode) = (core::mem::take(&mut boot.candidates), boot.mode);
        for (candidate, places) in candidates.iter_mut().zip(core::mem::take(&mut boot.places)) {
            let [a, b @ ..] = places;
            candidate.copies = copies_of(a, b);
        }
        let choice = match choose(&candidates, mode) {
            Ok(choice) => choice,
            Err(error) => return self.boot_fail(error),
        };
        let Ok(layout) = Layout::new(choice.superblock.geometry) else {
            return self.boot_fail(CommandError::NoArray);
        };
        self.layout = layout;
        if let Err(error) = self.adopt(choice) {
            return self.boot_fail(error);
        }
        if let Err(error) = self.check_decodable(mode) {
            return self.boot_fail(error);
        }
        self.size_parts();
        self.ask_maps();
        true
    }

    /// Takes over the chosen superblock and puts every device where it says.
    fn adopt(&mut self, choice: Choice) -> Result<(), CommandError> {
        self.superblock = choice.superblock;
        self.boot_mut().lagging = choice.lagging.clone();
        let template = self.superblock.regions.clone();
        for (entry, opened) in choice.opened.iter().enumerate() {
            let Some(index) = *opened else { continue };
            if self.planted(Bug::StaleMemberAccepted)
                && self
                    .superblock
                    .placement
                    .iter()
                    .any(|p| p.member == Some(entry as u16))
            {
                self.superblock.members[entry].role = MemberRole::Active;
            }
            let role = self.superblock.members[entry].role;
            let device: &mut Device = &mut self.devices[index];
            device.entry = Some(entry as u16);
            device.regions = choice
                .regions
                .get(entry)
                .filter(|own| !own.is_empty())
                .unwrap_or(&template)
                .clone();
            device.places = Places::of(&device.regions);
            device.health = if matches!(role, MemberRole::Failed { .. }) {
                Health::Failed
            } else {
                Health::Good
            };
            let end = device.places.data + self.superblock.geometry.slot_sectors;
            if device.info.sectors < end {
                return Err(CommandError::TooSmall {
                    has: device.info.sectors,
                    needs: end,
                });
            }
            if device.info.logical_block > self.superblock.logical_block {
                let member = device.info.logical_block;
                return Err(CommandError::LogicalBlock {
                    member,
                    array: self.superblock.logical_block,
                });
            }
        }
        for member in choice.strayed {
            self.rebuild_in_full(member);
        }
        self.stand();
        Ok(())
    }

    /// What this failed member lacks is not known.
    fn rebuild_in_full(&mut self, member: Member) {
        let entry = self.devices[member.0 as usize].entry;
        if let Some(line) = entry.map(|entry| &mut self.superblock.members[entry as usize])
            && let MemberRole::Failed { partial, .. } = &mut line.role
        {
            *partial = false;
        }
    }

    fn stand(&mut self) {
        let members = self.entry_members();
        self.standing = vec![Standing::default(); self.superblock.geometry.slots as usize];
        for placement in &self.superblock.placement {
            let of_role = |entry: Option<u16>, role: MemberRole| {
                entry
                    .filter(|&entry| self.superblock.members[entry as usize].role == role)
                    .and_then(|entry| members[entry as usize])
            };
            self.standing[placement.slot as usize] = Standing {
                member: of_role(placement.member, MemberRole::Active),
                incoming: of_role(placement.incoming, MemberRole::Rebuilding),
            };
        }
    }

    /// Beyond what the level tolerates only a reading start is possible, and only if asked for.
    fn check_decodable(&mut self, mode: StartMode) -> Result<(), CommandError> {
        if self.all_decodable(|_| false) {
            return Ok(());
        }
        if !mode.accept_loss {
            let gone = |slot: &usize| self.standing[*slot].member.is_none();
            let missing = (0..self.standing.len())
                .filter(gone)
                .map(|slot| slot as u16)
                .collect();
            return Err(CommandError::TooFew { missing });
        }
        self.mode.read_only = true;
        Ok(())
    }

    /// Rooms whose size depends on the array.
    fn size_parts(&mut self) {
        let rows = self.layout.rows();
        self.tasks.set_rows(rows);
        self.written = BitMap::new(rows.div_ceil(self.superblock.extent_rows));
        self.intent = BitMap::new(INTENT_BITS * self.regions());
        self.intent_users = vec![Default::default(); self.regions() as usize];
        let lost = self
            .superblock
            .region(RegionKind::Lost)
            .map_or(0, |region| pages::pages_in(region.sectors));
        self.lost = LostMap::new(lost as usize, self.layout.size_sectors());
        self.size_ops();
    }

    // ------------------------------------------------------------------------------------------------------ maps

    fn ask_maps(&mut self) {
        let mut wanted: Vec<(MapKind, u32)> = Vec::new();
        for (kind, count) in [
            (MapKind::Written, self.written.pages.len()),
            (MapKind::Intent, self.intent.pages.len()),
            (MapKind::Lost, self.lost.pages.len()),
        ] {
            wanted.extend((0..count as u32).map(|page| (kind, page)));
        }
        let current = self.current_members();
        let boot = self.boot_mut();
        boot.stage = Stage::Maps;
        boot.maps = wanted
            .iter()
            .map(|&(kind, page)| MapVersion {
                kind,
                page,
                newest: None,
            })
            .collect();
        for member in current {
            for &(kind, page) in &wanted {
                boot.ask(member, Read::Map { kind, page });
            }
        }
    }

    fn current_members(&self) -> Vec<Member> {
        self.standing
            .iter()
            .filter_map(|standing| standing.member)
            .collect()
    }

    fn boot_maps(&mut self) -> bool {
        let array = self.superblock.array;
        let maps = core::mem::take(&mut self.boot_mut().maps);
        for map in maps {
            let Some((sequence, page)) = map.newest else {
                return self.boot_fail(CommandError::Metadata);
            };
            let Ok(view) = pages::decode(&page, map.kind, array, map.page) else {
                return self.boot_fail(CommandError::Metadata);
            };
            match map.kind {
                MapKind::Written | MapKind::Intent => {
                    let words: Vec<u64> = view.words().collect();
                    let bits = if map.kind == MapKind::Written {
                        &mut self.written
                    } else {
                        &mut self.intent
                    };
                    bits.load(map.page as usize, &words, sequence);
                }
                MapKind::Lost => {
                    for (lba, sectors) in view.extents() {
                        self.lost.extents.insert(lba, sectors);
                    }
                    self.lost.pages[map.page as usize].sequence = sequence;
                }
            }
        }
        self.restore_tasks();
        let unread = !self.superblock.clean || !self.returning_members().is_empty();
        if !self.logged() || !unread {
            self.logs.start(self.superblock.log_floor.max(1));
            return if self.mode.read_only {
                self.boot_recovered()
            } else {
                self.boot_flush()
            };
        }
        self.ask_logs();
        true
    }

    /// The tasks that the superblock records go on from their durable done-sets.
    fn restore_tasks(&mut self) {
        let records = core::mem::take(&mut self.superblock.tasks);
        for record in records {
            let filling = matches!(record.kind, TaskKind::Rebuild | TaskKind::Replace);
            let target = record
                .slot
                .and_then(|slot| self.standing.get(slot as usize))
                .and_then(|s| s.incoming);
            if filling && target.is_none() {
                continue;
            }
            self.start_task(record.kind, record.slot, RunSet::from_runs(&record.done));
            let task = self.tasks.list.last_mut().expect("started just now");
            task.paused = record.paused;
        }
    }

    /// Members that may hold records: those that serve, and those being filled, in rows that are.
    fn log_keepers(&self) -> Vec<Member> {
        let both = |standing: &Standing| [standing.member, standing.incoming];
        self.standing.iter().flat_map(both).flatten().collect()
    }

    /// Members that failed and are here, and whose rebuild may be a partial one.
    fn returning_members(&self) -> Vec<Member> {
        let lines = self.superblock.members.iter().zip(self.entry_members());
        lines
            .filter(|(line, _)| matches!(line.role, MemberRole::Failed { partial: true, .. }))
            .filter_map(|(_, member)| member)
            .collect()
    }

    /// After a crash, the logs of all who serve; and always those of who may come back (see `note_returning`).
    fn ask_logs(&mut self) {
        let mut members = self.returning_members();
        if !self.superblock.clean {
            members.extend(self.log_keepers());
        }
        let sectors: Vec<u64> = members
            .iter()
            .map(|m| self.devices[m.0 as usize].places.log_sectors)
            .collect();
        let boot = self.boot_mut();
        boot.stage = Stage::Logs;
        for (member, sectors) in members.into_iter().zip(sectors) {
            let mut from = 0;
            while from + PAGE_SECTORS <= sectors {
                let pages = ((sectors - from) / PAGE_SECTORS).min(LOG_PAGES);
                boot.ask(member, Read::Log { from, pages });
                from += LOG_PAGES * PAGE_SECTORS;
            }
        }
    }

    // ---------------------------------------------------------------------------------------------------- serving

    /// Rows are consistent: a crash must not take that back once their records are void.
    fn boot_flush(&mut self) -> bool {
        self.boot_mut().stage = Stage::Flushing;
        self.flush_for(Waiter::Boot);
        false
    }

    /// Brings lagging members to the chosen version before anybody gets a next one, which would go over their last.
    pub(crate) fn boot_flushed(&mut self) {
        self.boot_mut().stage = Stage::Levelling;
        let lagging = core::mem::take(&mut self.boot_mut().lagging);
        let members = self.entry_members();
        for entry in lagging {
            if let Some(member) = members[entry as usize].filter(|&member| self.good(member)) {
                self.write_superblock(member);
            }
        }
        self.boot_levelled();
    }

    /// Goes on when the last lagging member has been written.
    pub(crate) fn boot_levelled(&mut self) {
        let levelling = self
            .boot
            .as_ref()
            .is_some_and(|boot| boot.stage == Stage::Levelling);
        if levelling && self.keeper.quiet() {
            self.boot_recovered();
        }
    }

    /// Rows are consistent, or owed by a resynchronisation: what is missing is written down and service begins.
    fn boot_recovered(&mut self) -> bool {
        if let Err(error) = self.owe_resync() {
            return self.boot_fail(error);
        }
        self.boot_mut().stage = Stage::Settle;
        if self.mode.read_only {
            return true;
        }
        self.note_missing();
        for slot in 0..self.standing.len() {
            let standing = self.standing[slot];
            for member in [standing.member, standing.incoming].into_iter().flatten() {
                let sectors = self.devices[member.0 as usize].places.log_sectors;
                if self.logged() {
                    self.logs.open(member, sectors);
                    let version = self.boot_mut().done_version(member);
                    self.logs.found_done_list(member, version);
                }
            }
        }
        if !self.superblock.clean {
            for row in self.boot_mut().rows() {
                self.tasks.undo_replace(row, 1);
            }
            self.undo_owed_replacements();
            if self.layout.tolerance() == 0 {
                // Nothing tells which rows were being written.
                self.tasks.undo_replace(0, self.layout.rows());
            }
        }
        self.superblock.clean = false;
        self.keeper.change(true);
        self.rewrite_maps();
        true
    }

    /// After a crash, members of an array without a log may differ wherever the intent map says so.
    fn owe_resync(&mut self) -> Result<(), CommandError> {
        let unlogged = self.layout.tolerance() > 0 && !self.logged();
        let dirty: Vec<u64> = (0..self.regions())
            .filter(|&region| self.intent.get(self.dirty_bit(region)))
            .collect();
        if self.superblock.clean || !unlogged || dirty.is_empty() {
            return Ok(());
        }
        let mut done = self.resynced_before();
        for region in dirty {
            let first = region * self.superblock.intent_rows;
            let count = self.superblock.intent_rows.min(self.layout.rows() - first);
            done.remove(first, count);
            self.tasks.undo_replace(first, count);
        }
        self.tasks.list.retain(|task| task.kind != TaskKind::Resync);
        self.start_task(TaskKind::Resync, None, done);
        if self.mode.read_only {
            // What is in doubt reads as lost for now; nothing is written down.
            return Ok(());
        }
        self.lose_unsynced_slots()
    }

    /// Rows whose parity was missing were written without a record; they are among those owed.
    fn undo_owed_replacements(&mut self) {
        for region in 0..self.regions() {
            if self.intent.get(self.owed_bit(region)) {
                let first = region * self.superblock.intent_rows;
                let count = self.superblock.intent_rows.min(self.layout.rows() - first);
                self.tasks.undo_replace(first, count);
            }
        }
    }

    /// The rows that no recorded resynchronisation owes.
    fn resynced_before(&self) -> RunSet {
        let mut done = RunSet::default();
        done.insert(0, self.layout.rows());
        for (first, count) in self.tasks.resync_owes().unwrap_or_default() {
            done.remove(first, count);
        }
        done
    }

    /// With members missing and parity untrusted, what only parity held is lost: not without being told so.
    fn lose_unsynced_slots(&mut self) -> Result<(), CommandError> {
        if !self.layout.parity() || self.logged() {
            return Ok(());
        }
        let before = self.lost.extents.len();
        for slot in 0..self.standing.len() {
            if self.standing[slot].member.is_none() {
                self.lose_unsynced(slot);
            }
        }
        let lost = self.lost.extents.len() - before;
        if lost > 0 && !self.mode.accept_loss {
            return Err(CommandError::WouldLose { sectors: lost });
        }
        Ok(())
    }

    /// Current members that are not here are current no longer.
    fn note_missing(&mut self) {
        let members = self.entry_members();
        let stale_since = self.superblock.generation + 1;
        let mut any = false;
        for (entry, line) in self.superblock.members.iter_mut().enumerate() {
            let partial = line.role == MemberRole::Active;
            let absent = members[entry].is_none();
            if absent && matches!(line.role, MemberRole::Active | MemberRole::Rebuilding) {
                line.role = MemberRole::Failed {
                    stale_since,
                    partial,
                };
                any = true;
            }
        }
        if any {
            self.superblock.generation = stale_since;
        }
        // A failure may be on record without what it left owing.
        if !self.superblock.clean && self.layout.tolerance() > 0 && !self.complete() {
            let rows = self.boot_mut().rows();
            for row in rows {
                self.owe_rows(Row(row), Row(row));
            }
            for region in 0..self.regions() {
                if self.intent.get(self.dirty_bit(region)) {
                    self.intent.put(self.owed_bit(region), true);
                }
            }
        }
        self.owe_returning();
    }

    /// What was being written when a member left with a crash may be known to its own log alone: a partial rebuild of
    /// it includes those rows. Done before recovery, which is not theirs to decide.
    fn note_returning(&mut self) {
        let returning = self.returning_members();
        let boot = self.boot_mut();
        let unread = boot
            .unread
            .extract_if(.., |member| returning.contains(member));
        let unread: Vec<Member> = unread.collect();
        let ours = |entry: &mut (Member, u64, LogRecord)| returning.contains(&entry.0);
        boot.stale_records = boot.records.extract_if(.., ours).collect();
        for member in unread {
            self.rebuild_in_full(member);
        }
    }

    fn owe_returning(&mut self) {
        let records = core::mem::take(&mut self.boot_mut().stale_records);
        for (member, _, record) in &records {
            let row = Row(record.row);
            if record.sequence >= self.record_floor(*member, &records) && row.0 < self.layout.rows()
            {
                self.owe_rows(row, row);
            }
        }
    }

    /// Serves once the members agree on the new state of things.
    fn boot_settle(&mut self) -> bool {
        let durable = self.keeper.all_durable()
            && !self.written.dirty()
            && !self.intent.dirty()
            && !self.lost.dirty();
        if !durable && !self.mode.read_only {
            return false;
        }
        let boot = self.boot.take().expect("a boot runs");
        self.state = ArrayState::Healthy;
        self.assess();
        self.out.push(Action::CommandReply(boot.tag, Ok(())));
        let generation = self.superblock.generation;
        self.fact(Fact::Started {
            generation,
            recovered_rows: boot.recovered,
        });
        false
    }
}

impl Boot {
    fn note_done_list(&mut self, member: Member, found: Result<DoneList, MetaError>) {
        let Ok(found) = found else { return };
        match self
            .done_lists
            .iter_mut()
            .find(|(other, _)| *other == member)
        {
            Some((_, held)) if held.version < found.version => *held = found,
            Some(_) => {}
            None => self.done_lists.push((member, found)),
        }
    }

    fn done_version(&self, member: Member) -> u64 {
        self.done_lists
            .iter()
            .find(|(other, _)| *other == member)
            .map_or(0, |(_, list)| list.version)
    }

    /// The rows that the logs speak of.
    fn rows(&self) -> Vec<u64> {
        let mut rows: Vec<u64> = self
            .records
            .iter()
            .map(|(_, _, record)| record.row)
            .collect();
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    fn ask(&mut self, member: Member, read: Read) {
        self.queue.push(self.reads.len() as u32);
        self.reads.push((member, read));
    }

    fn note_map(&mut self, kind: MapKind, page: u32, array: crate::Uuid, io: &DeviceIo) {
        let Some(held) = self
            .maps
            .iter_mut()
            .find(|map| map.kind == kind && map.page == page)
        else {
            return;
        };
        for segment in &io.segments {
            let Segment::Page(bytes) = segment else {
                continue;
            };
            let Ok(view) = pages::decode(bytes, kind, array, page) else {
                continue;
            };
            if held
                .newest
                .as_ref()
                .is_none_or(|(sequence, _)| *sequence < view.sequence)
            {
                held.newest = Some((view.sequence, bytes.clone()));
            }
        }
    }

    /// Part of a log cannot be read: page by page, then; and a member with a page that stays unreadable may keep from
    /// us what was being written.
    fn log_unread(&mut self, member: Member, from: u64, pages: u64) {
        if pages > 1 {
            for page in 0..pages {
                let from = from + page * PAGE_SECTORS;
                self.ask(member, Read::Log { from, pages: 1 });
            }
        } else if !self.unread.contains(&member) {
            self.unread.push(member);
        }
    }

    fn note_log(&mut self, member: Member, from: u64, array: crate::Uuid, io: &DeviceIo) {
        for (index, segment) in io.segments.iter().enumerate() {
            let Segment::Page(bytes) = segment else {
                continue;
            };
            let at = from + index as u64 * PAGE_SECTORS;
            if at < log::DONE_SECTORS {
                self.note_done_list(member, log::decode_done(bytes, array));
            } else if let Ok(record) = log::decode(bytes, array) {
                self.records.push((member, at, record));
            }
        }
    }
}

/// The sector of a place where a superblock may lie: copy A's, then copy B's in their order.
fn super_place(index: usize) -> u64 {
    index
        .checked_sub(1)
        .map_or(SUPER_A_AT, |index| SUPER_B_PLACES[index])
}

fn joined(io: &DeviceIo) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(io.segments.len() * PAGE_BYTES);
    for segment in &io.segments {
        if let Segment::Page(page) = segment {
            bytes.extend_from_slice(&page[..]);
        }
    }
    bytes
}

impl Places {
    fn map(&self, kind: MapKind) -> u64 {
        match kind {
            MapKind::Written => self.written,
            MapKind::Intent => self.intent,
            MapKind::Lost => self.lost,
        }
    }
}

const _: () = assert!(PAGE_SECTORS * SECTOR_BYTES == PAGE_BYTES as u64);
