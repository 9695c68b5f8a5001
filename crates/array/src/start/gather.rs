//! What the current members remember: map pages, tasks, and the logs.

use super::{LOG_PAGES, MapVersion, Read, Record, Start, StartState};
use crate::contract::{CommandError, DeviceIo, DroppedTask, Fact, ScrubMode, Segment, TaskKind};
use crate::facts::StartStage;
use crate::layout::CellSet;
use crate::metadata::maps::BitMap;
use crate::runset::RunSet;
use crate::units::{Member, PAGE_SECTORS, Row, Uuid};
use alloc::vec::Vec;
use restripe_format::meta::MetaError;
use restripe_format::meta::log::{self, DoneList, LogRecord};
use restripe_format::meta::pages::{self, MapKind};
use restripe_format::meta::rules::FOUND_LIMIT;
use restripe_format::meta::superblock::MemberRole;

impl Start {
    pub(super) fn ask_maps(&mut self) {
        let pages = |kind| (0..self.map_pages(kind) as u32).map(move |page| (kind, page));
        let wanted: Vec<(MapKind, u32)> = MapKind::ALL.into_iter().flat_map(pages).collect();
        let current = self.roles.serving();
        let room = |member: Member, kind, page| {
            let places = &self.devices[member.0 as usize].places;
            places.map_page(kind, page, 0).is_some()
        };
        let mut reads = Vec::new();
        for &member in &current {
            let wanted = wanted.iter();
            let there = wanted.filter(|(kind, page)| room(member, *kind, *page));
            reads.extend(there.map(|&(kind, page)| (member, Read::Map { kind, page })));
        }
        self.start = Some(StartStage::Maps);
        let starting = self.start_mut();
        let unmet = |(kind, page)| MapVersion {
            kind,
            page,
            newest: None,
            unread: false,
        };
        starting.maps = wanted.into_iter().map(unmet).collect();
        for (member, read) in reads {
            starting.ask(member, read);
        }
    }

    pub(super) fn start_maps(&mut self) -> bool {
        let maps = core::mem::take(&mut self.start_mut().maps);
        let mut unmapped = false;
        for map in maps {
            if self.load_map(&map) {
                continue;
            }
            if !self.dispensable(map.kind, map.page) {
                return self.start_fail(CommandError::Metadata);
            }
            unmapped |= map.kind == MapKind::Redirected && map.unread;
        }
        if unmapped {
            // What cannot be read today may be there tomorrow, under a higher sequence than what would be
            // written now.
            self.redirected = BitMap::new(0);
        }
        self.forget_unfinished();
        if let Err(error) = self.check_log_set() {
            return self.start_fail(error);
        }
        self.recall_heat();
        self.restore_tasks();
        if self.layout.is_reshaping() {
            self.begin_reshaping();
        }
        let unread = !self.logs_tell_nothing() || !self.returning_members().is_empty();
        if !self.logged() || !unread {
            let floor = self.superblock.log_floor.max(1);
            self.logs.start(floor);
            return self.start_secure();
        }
        self.start_mut().reads_logs = true;
        self.ask_logs();
        true
    }

    /// Takes over the newest version of a map page. False if none was found.
    fn load_map(&mut self, map: &MapVersion) -> bool {
        let Some((sequence, page)) = &map.newest else {
            return false;
        };
        let Ok(view) = pages::decode(page, map.kind, self.superblock.array, map.page) else {
            return false;
        };
        match map.kind {
            MapKind::Lost => {
                for (lba, sectors) in view.extents() {
                    self.lost.extents.insert(lba, sectors);
                }
                self.lost.pages[map.page as usize].sequence = *sequence;
            }
            MapKind::Heat => self.heat_pages.found(map.page, &view),
            MapKind::Written | MapKind::Intent | MapKind::Redirected => {
                let (bits, words) = (self.bit_map(map.kind), view.words());
                bits.load(map.page as usize, &words.collect::<Vec<u64>>(), *sequence);
            }
        }
        true
    }

    /// Nobody needs heat. And an earlier program may have replaced all members without writing the redirected
    /// map, of which it does not know: then there is no log set, and the map says nothing. Nor has a page
    /// with nothing but what a growth will add been written before that has begun.
    fn dispensable(&self, kind: MapKind, page: u32) -> bool {
        match kind {
            MapKind::Written if self.layout.is_growing() => {
                let bits = u64::from(self.layout.generations()) * self.extents();
                u64::from(page) >= bits.div_ceil(pages::BITS_PER_PAGE)
            }
            MapKind::Heat => true,
            MapKind::Redirected => self.log_set().is_none(),
            MapKind::Written | MapKind::Intent | MapKind::Lost => false,
        }
    }

    /// The tasks that the superblock records go on from their durable done-sets.
    fn restore_tasks(&mut self) {
        self.recall_dropped();
        let mut dropped = false;
        let records = core::mem::take(&mut self.superblock.tasks);
        for record in records {
            let slot = record.filled_slot().map(usize::from);
            if let Some(slot) = slot.filter(|slot| !self.roles.is_filled(*slot)) {
                self.drop_task(record.kind, slot as u16);
                dropped = true;
                continue;
            }
            let done = RunSet::from_runs(&record.done);
            let done = match slot {
                Some(slot) => self.filled_before(slot, done),
                None => done,
            };
            let kind = match (record.kind, slot) {
                // Who served what is being filled is not here.
                (TaskKind::Replace, Some(at)) if self.roles.is_short(at) => TaskKind::Rebuild,
                (kind, _) => kind,
            };
            match kind {
                TaskKind::Check => self.start_scrub(ScrubMode::Check, done),
                // What is on record of it says whether more was asked for.
                TaskKind::Repair => self.start_scrub(ScrubMode::Repair, done),
                _ => self.start_task(kind, record.slot, done),
            }
            let task = self.tasks.list.last_mut().expect("started just now");
            task.paused = record.paused;
        }
        if dropped {
            // No member is filled for a slot whose task is gone.
            self.place_entries();
        }
    }

    /// The tasks that earlier starts dropped, and that were not begun anew since.
    fn recall_dropped(&mut self) {
        let facts = self.facts();
        for line in &facts.superblock.members {
            let failed = matches!(line.role, MemberRole::Failed { .. });
            let Some(slot) = line.dropped_for.filter(|_| failed) else {
                continue;
            };
            let kind = match facts.roles.is_short(slot.into()) {
                true => TaskKind::Rebuild,
                false => TaskKind::Replace,
            };
            facts.tasks.dropped.push(DroppedTask {
                kind,
                slot,
                target: line.uuid,
                waits: false,
            });
        }
    }

    /// The target of a task on record is not here.
    fn drop_task(&mut self, kind: TaskKind, slot: u16) {
        let facts = self.facts();
        let lines = facts.superblock.placement.iter();
        let mut of_slot = lines.filter(|line| line.slot == slot);
        let target = of_slot.find_map(|line| line.incoming);
        let uuid = |entry| facts.superblock.members[usize::from(entry)].uuid;
        facts.tasks.dropped.push(DroppedTask {
            kind,
            slot,
            target: target.map_or(Uuid::NIL, uuid),
            waits: facts.mode.read_only,
        });
    }

    /// The rows of a slot that need not be filled: those on record, and all that no member is filled with.
    fn filled_before(&mut self, slot: usize, mut done: RunSet) -> RunSet {
        for (partition, roles) in (0..).zip(self.roles.of_slot(slot)) {
            if roles.incoming.is_none() {
                let rows = self.layout.partition_rows(partition);
                done.insert(rows.start, rows.end - rows.start);
            }
        }
        done
    }

    /// Members that failed and are here, and whose rebuild may be a partial one.
    pub(super) fn returning_members(&self) -> Vec<Member> {
        let lines = self.superblock.members.iter().zip(self.entry_members());
        let partial = |role| matches!(role, MemberRole::Failed { partial: true, .. });
        let returning = lines.filter(|(line, _)| partial(line.role));
        returning.filter_map(|(_, member)| member).collect()
    }

    /// Whether the logs of those who serve tell nothing: after a stop, and while they are a reshape's
    /// journal.
    fn logs_tell_nothing(&self) -> bool {
        self.superblock.clean || self.logs_are_journal()
    }

    /// After a crash, the logs of all who serve; and always those of who may come back (see
    /// `note_returning`).
    fn ask_logs(&mut self) {
        let mut members = self.returning_members();
        if !self.logs_tell_nothing() {
            // Members that are being filled may hold records too, of rows that are filled.
            members.extend(self.roles.members());
        }
        let log = |one: &Member| self.devices[one.0 as usize].places.log_sectors;
        let sectors: Vec<u64> = members.iter().map(log).collect();
        self.start = Some(StartStage::Logs);
        let starting = self.start_mut();
        for (member, sectors) in members.into_iter().zip(sectors) {
            let mut from = 0;
            while from + PAGE_SECTORS <= sectors {
                let pages = ((sectors - from) / PAGE_SECTORS).min(LOG_PAGES);
                starting.ask(member, Read::Log { from, pages });
                from += LOG_PAGES * PAGE_SECTORS;
            }
        }
    }

    /// Drops the records that name something the array does not have. A checksum proves who wrote a record,
    /// and not that its numbers fit this geometry.
    pub(super) fn drop_records_out_of_range(&mut self) {
        let records = core::mem::take(&mut self.start_mut().records);
        let fits = |one: &Record| self.is_in_range(one.0, one.1, &one.2);
        let (sound, others): (Vec<_>, Vec<_>) = records.into_iter().partition(fits);
        let starting = self.start_mut();
        starting.records = sound;
        for (member, ..) in others {
            starting.ignore(member, RECORDS);
        }
    }

    /// Says what was read and does not count.
    pub(super) fn tell_ignored(&mut self) {
        for (member, what, count) in core::mem::take(&mut self.start_mut().ignored) {
            self.fact(Fact::Ignored {
                member,
                what,
                count,
            });
        }
    }

    /// Whether a record at a sector of a member's log is about cells of a row that exists, and lies within
    /// the log.
    fn is_in_range(&self, member: Member, at: u64, record: &LogRecord) -> bool {
        let end = u64::from(record.offset) + u64::from(record.sectors);
        record.sequence < FOUND_LIMIT
            && record.row < self.layout.rows()
            && end <= self.layout.chunk_sectors()
            && at + record.total_sectors() <= self.devices[member.0 as usize].places.log_sectors
            && CellSet(record.modified).within(self.row_map(Row(record.row)).data_set())
    }
}

const RECORDS: &str = "log records";
const DONE_LISTS: &str = "lists of finished log records";
const MAP_PAGES: &str = "map pages";

impl StartState {
    fn ignore(&mut self, member: Member, what: &'static str) {
        let mut ignored = self.ignored.iter_mut();
        match ignored.find(|(other, of, _)| (*other, *of) == (member, what)) {
            Some((.., count)) => *count += 1,
            None => self.ignored.push((member, what, 1)),
        }
    }

    fn note_done_list(&mut self, member: Member, found: Result<DoneList, MetaError>) {
        let found = match found {
            Ok(found) => found,
            Err(MetaError::Field { .. }) => return self.ignore(member, DONE_LISTS),
            Err(_) => return,
        };
        let newest = found.sequences.iter().copied().max();
        if found.floor.max(newest.unwrap_or(0)).max(found.version) >= FOUND_LIMIT {
            return self.ignore(member, DONE_LISTS);
        }
        let mut lists = self.done_lists.iter_mut();
        match lists.find(|(other, _)| *other == member) {
            Some((_, held)) if held.version < found.version => *held = found,
            Some(_) => {}
            None => self.done_lists.push((member, found)),
        }
    }

    pub(super) fn done_version(&self, member: Member) -> u64 {
        let mut lists = self.done_lists.iter();
        let list = lists.find(|(other, _)| *other == member);
        list.map_or(0, |(_, list)| list.version)
    }

    /// The rows that the logs speak of.
    pub(super) fn rows(&self) -> Vec<u64> {
        let rows = self.records.iter().map(|(_, _, record)| record.row);
        let mut rows: Vec<u64> = rows.collect();
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    pub(super) fn ask(&mut self, member: Member, read: Read) {
        self.queue.push(self.reads.len() as u32);
        self.reads.push((member, read));
    }

    pub(super) fn map_unread(&mut self, kind: MapKind, page: u32) {
        let alike = |map: &&mut MapVersion| map.kind == kind && map.page == page;
        if let Some(map) = self.maps.iter_mut().find(alike) {
            map.unread = true;
        }
    }

    pub(super) fn note_map(&mut self, kind: MapKind, page: u32, array: crate::Uuid, io: &DeviceIo) {
        let mut unfit = 0;
        let mut maps = self.maps.iter_mut();
        let Some(held) = maps.find(|map| map.kind == kind && map.page == page) else {
            return;
        };
        for segment in &io.segments {
            let Segment::Page(bytes) = segment else {
                continue;
            };
            let view = match pages::decode(bytes, kind, array, page) {
                Ok(view) if view.sequence < FOUND_LIMIT => view,
                Ok(_) | Err(MetaError::Field { .. } | MetaError::TooLarge { .. }) => {
                    unfit += 1;
                    continue;
                }
                Err(_) => continue,
            };
            let newest = held.newest.as_ref();
            if newest.is_none_or(|(sequence, _)| *sequence < view.sequence) {
                held.newest = Some((view.sequence, bytes.clone()));
            }
        }
        for _ in 0..unfit {
            self.ignore(io.member, MAP_PAGES);
        }
    }

    /// Part of a log cannot be read: page by page, then; and a member with a page that stays unreadable may
    /// keep from us what was being written.
    pub(super) fn log_unread(&mut self, member: Member, from: u64, pages: u64) {
        if pages > 1 {
            for page in 0..pages {
                let from = from + page * PAGE_SECTORS;
                self.ask(member, Read::Log { from, pages: 1 });
            }
        } else if !self.unread.contains(&member) {
            self.unread.push(member);
        }
    }

    pub(super) fn note_log(
        &mut self,
        member: Member,
        from: u64,
        array: crate::Uuid,
        io: &DeviceIo,
    ) {
        for (index, segment) in io.segments.iter().enumerate() {
            let Segment::Page(bytes) = segment else {
                continue;
            };
            let at = from + index as u64 * PAGE_SECTORS;
            if at < log::DONE_SECTORS {
                self.note_done_list(member, log::decode_done(bytes, array));
            } else {
                match log::decode(bytes, array) {
                    Ok(record) => self.records.push((member, at, record)),
                    Err(MetaError::Field { .. }) => self.ignore(member, RECORDS),
                    Err(_) => {}
                }
            }
        }
    }
}
