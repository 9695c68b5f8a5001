//! Growth that keeps the plain layout (md's reshape): slots are added, and every chunk moves to where a new
//! array of so many slots would have it.
//!
//! Rows are made in their new shape one after the other, from the first on. The *edge* is the first that is
//! not: a row below it is in the new shape, one from there on in the former. A row of the new shape holds
//! more, so the edge falls behind the data that it takes, and what lies between is dead: rows are made there,
//! a window of them at a time.
//!
//! | window    | waits for                                     | then                                    |
//! |-----------|-----------------------------------------------|-----------------------------------------|
//! | Draining  | users that are at work on the window's data   | Quiet                                   |
//! | Quiet     | extents of its rows that are being made real  | Making, Emptying, or Recording          |
//! | Emptying  | a flush of all logged writes                  | Opening                                 |
//! | Opening   | superblocks that say that logs hold no record | Copying                                 |
//! | Copying   | the row, in the journal                       | Copied                                  |
//! | Copied    | a flush                                       | Filling                                 |
//! | Filling   | superblocks that say that the row is there    | Making                                  |
//! | Making    | its rows, in their places                     | Made                                    |
//! | Made      | a flush                                       | Recording                               |
//! | Recording | superblocks with the next edge                | over                                    |
//!
//! Users wait who want what the window moves, and nobody else. A crash finds the window's data where they
//! were, or, once superblocks say so, where they are now. If a member fails, the window is given up and
//! nothing has happened; the reshape goes on when somebody has taken its place.
//!
//! **The first rows.** As long as a row is not behind the data that it takes, what is written over lives.
//! That row goes to the *journal* first: with logs, each cell to the log of its own member, so that as many
//! losses are borne as ever. Logs hold nothing else then, and so nobody writes until these rows, fewer than
//! there were data slots, are done. Without logs (and without redundancy) the row goes to the end of the
//! first member that was added. While the journal is filled nothing is given up: the row is made, whoever is
//! missing.
//!
//! **Records.** A record of the log is about a row in one shape. Before superblocks move the edge past a row,
//! or have it written over, all that was written in the former shape is flushed, and they have a floor above
//! its records.
//!
//! **What was never written** is not moved. An extent of the written map is real in the new shape if any of
//! the former rows that it takes is. Where none is, the edge passes. Its bit tells of the new shape from when
//! the edge is behind the extent: it is written before, when all that it could tell of the former shape is
//! dead, or in the journal.

use super::Background;
use super::reshaping::{Closing, Kind, Reshaping, Step, Window};
use super::table::{AGAIN_AFTER, State};
use crate::contract::{Bug, Class, CommandError, Halt, IoOp, TaskKind, refusals};
use crate::facts::{Waiter, Wake};
use crate::layout::{Geometry, Layout, Level};
use crate::members::ops::Owner;
use crate::policy::throttle::Decision;
use crate::report::{ArrayState, GrowthPlan};
use crate::runset::RunSet;
use crate::slice::reshape;
use crate::slice::table::Aim;
use crate::units::{CELLS_MAX, Row, SECTOR_BYTES};
use alloc::boxed::Box;
use core::ops::Range;
use restripe_format::meta::log::DONE_SECTORS;
use restripe_format::meta::superblock::RegionKind;
use restripe_format::meta::{Journal, Reshape};

/// A window that could not be made is tried again so often, if users cannot be let go on without it.
const TRIES: u32 = 3;

impl Background {
    // ------------------------------------------------------------------------------------------------------ begin

    /// The array takes `by` of its spares as slots, and all its chunks are dealt out again.
    pub(crate) fn command_reshape(&mut self, by: u16) -> Result<(), CommandError> {
        let before = self.superblock.geometry;
        let layout = self.layout_reshaped_by(by)?;
        let geometry = *layout.geometry();
        let layout = layout.reshaping(before.slots, 0);
        let spares = self.spares_to_take(by)?;
        let first_sectors = self.superblock.first_sectors(&self.layout);
        self.superblock.reshape = Some(Reshape {
            former: Some(before.slots),
            journal: Journal::Closed,
            first_sectors,
        });
        self.superblock.geometry = geometry;
        self.layout = layout;
        self.superblock.generation += 1;
        for member in spares {
            self.take_slot(member);
        }
        self.place_entries();
        self.size_ops();
        self.start_task(TaskKind::Growth, None, RunSet::default());
        self.begin_reshaping();
        self.rewrite_maps();
        Ok(())
    }

    /// What a reshape by `by` members would do, if it may begin now.
    pub(super) fn reshape_plan(&self, by: u16) -> Result<GrowthPlan, CommandError> {
        let reshaped = self.layout_reshaped_by(by)?;
        let chunk = self.layout.chunk_sectors() * SECTOR_BYTES;
        let moved_bytes = self.rows_of_generation(0) * self.layout.data_cells() * chunk;
        Ok(GrowthPlan {
            slots: reshaped.geometry().slots,
            size_bytes: reshaped.size_sectors() * SECTOR_BYTES,
            least_moves: false,
            moved_bytes,
            member_bytes: moved_bytes / reshaped.data_cells(),
            needs_bytes: self.needs_sectors() * SECTOR_BYTES,
            parity: None,
            pacing: self.tasks.pacing(TaskKind::Growth),
        })
    }

    /// The layout with `by` more slots, or why the array cannot be reshaped to it now.
    fn layout_reshaped_by(&self, by: u16) -> Result<Layout, CommandError> {
        self.check_may_reshape(by)?;
        let before = self.superblock.geometry;
        let data = before.slots - before.level.parities();
        let fits = by > 0 && usize::from(by) + usize::from(data) <= CELLS_MAX;
        let slots = before.slots.checked_add(by).filter(|_| fits);
        let slots = slots.ok_or(CommandError::Unsuited(crate::targets::TOO_MANY))?;
        let layout = Layout::new(Geometry { slots, ..before });
        let layout = layout.map_err(|_| CommandError::Unsuited(crate::targets::TOO_MANY))?;
        self.check_has_reshape_room(&layout.reshaping(before.slots, 0))?;
        Ok(layout)
    }

    fn check_may_reshape(&self, by: u16) -> Result<(), CommandError> {
        let unsuited = |why| Err(CommandError::Unsuited(why));
        let refused = |why| Err(CommandError::Busy(why));
        let geometry = &self.superblock.geometry;
        if geometry.skew.is_some() {
            return unsuited("arrays with groups cannot grow");
        }
        if matches!(geometry.level, Level::Raid1 | Level::Raid10 { .. }) {
            return unsuited("arrays of level 1 and 10 cannot grow");
        }
        if geometry.grown.is_some() {
            return unsuited("an array that has grown by the least moves can only grow that way");
        }
        if self.layout.parity() && !self.logged() {
            return unsuited("a reshape requires a partial parity log (ppl)");
        }
        if self.read_cache.is_some() {
            return refused("an array cannot be reshaped with a read cache: start it without one");
        }
        if self.superblock.partner.is_some() {
            return refused(refusals::CANNOT_RESHAPE);
        }
        self.check_free_to_grow(by)
    }

    /// In the journal, and in memory.
    fn check_has_reshape_room(&self, layout: &Layout) -> Result<(), CommandError> {
        let refused = |why| Err(CommandError::Unsuited(why));
        let chunk = layout.chunk_sectors();
        let log = self.superblock.region(RegionKind::Log);
        let journal = log.map_or(0, |log| log.sectors.saturating_sub(DONE_SECTORS));
        if self.logged() && journal < chunk {
            return refused(
                "the partial parity logs are smaller than a chunk, which the growth requires",
            );
        }
        let (data_before, slots) = layout.former_shape().expect("made for that");
        let (former, data) = (u64::from(data_before), layout.data_cells());
        let journaled = former.div_ceil(data - former);
        if !self.logged() && layout.rows() < journaled + data {
            return refused("the members are too small to grow");
        }
        if self.config.limits.pool.large < 2 * u32::from(layout.width() + slots + 5) {
            return refused("too few buffers for rows so wide");
        }
        Ok(())
    }

    /// In memory, at the command or as the array starts, from what superblocks say.
    pub(crate) fn begin_reshaping(&mut self) {
        let journal = self.journal();
        let mut reshape = Box::new(Reshaping {
            writes_wait: journal != Journal::Closed && self.logged(),
            ..Reshaping::default()
        });
        let edge = self.layout.edge().0;
        if self.superblock.written_all {
            // From here on each extent has a say of its own.
            self.put_all_extents();
            reshape.extents_wait = true;
        }
        if journal == Journal::Filled {
            let mut window = self.window_of(edge..edge + 1, Kind::Journaled);
            window.step = Step::Making;
            reshape.window = Some(window);
        }
        self.reshape = Some(reshape);
        if self.mode.read_only {
            self.reshape_halts();
        }
        self.note_open();
    }

    fn set_journal(&mut self, journal: Journal) {
        if let Some(reshape) = &mut self.superblock.reshape {
            reshape.journal = journal;
        }
        self.writer.note_change();
    }

    // ---------------------------------------------------------------------------------------------------- windows

    /// Gives the reshape its turn.
    pub(super) fn reshape_turn(&mut self, index: usize) {
        loop {
            let reshape = self.reshape.as_ref().expect("one is under way");
            let more = match (&reshape.window, reshape.closing) {
                (Some(window), _) => {
                    let step = window.step;
                    self.window_turn(index, step)
                }
                (None, Some(closing)) => self.closing_turn(closing),
                (None, None) => self.between_windows(index),
            };
            self.note_open();
            if !more {
                return;
            }
        }
    }

    /// No other task gets windows as long as one of these is open.
    fn note_open(&mut self) {
        let open = self.reshape.as_ref().is_some_and(|one| one.is_open());
        self.tasks.reshape_open = open;
    }

    fn go_to(&mut self, step: Step) -> bool {
        self.window().step = step;
        true
    }

    fn between_windows(&mut self, index: usize) -> bool {
        if let State::Opening { version } = self.tasks.list[index].state {
            self.open_capacity(index, version);
            return false;
        }
        if self.reshaping().extents_wait && !self.written.dirty() {
            self.reshaping().extents_wait = false;
            self.superblock.written_all = false;
            self.writer.note_change();
        }
        let stands = self.tasks.list[index].stands() || self.state == ArrayState::Stopping;
        let stands = stands || !self.complete();
        if self.logs_are_journal() && (stands || !self.next_is_journaled()) {
            // Not before a crash would find that they are no logs.
            return self.writer.all_durable() && self.begin_closing();
        }
        if stands {
            self.tasks.paced = None;
            return false;
        }
        if self.layout.edge().0 == self.layout.rows() {
            return self.end_reshape(index);
        }
        if self.reshaping().extents_wait {
            return false;
        }
        let others = self.tasks.list.iter().enumerate();
        let mut others = others.filter(|(other, _)| *other != index);
        if others.any(|(_, task)| task.in_flight > 0) {
            return false;
        }
        let not_before = self.reshaping().not_before;
        if self.now < not_before {
            self.wake_at(Wake::Task, not_before);
            return false;
        }
        self.begin_window(index)
    }

    /// Whether the next row is not behind the data that it takes.
    fn next_is_journaled(&self) -> bool {
        let edge = self.layout.edge();
        edge.0 < self.layout.rows() && edge >= self.layout.live_from()
    }

    fn begin_window(&mut self, index: usize) -> bool {
        let task = &self.tasks.list[index];
        let (serial, view) = (task.serial, self.throttle_view(task));
        let rows = match self.decide(serial, &view) {
            Decision::Issue(bytes) => (bytes / view.window).max(1),
            Decision::Hold => return false,
            Decision::Wait(until) => {
                self.wake_at(Wake::Task, until);
                return false;
            }
        };
        let (rows, kind) = self.next_window(rows);
        let moved = match kind {
            Kind::Passed => 0,
            _ => rows.end - rows.start,
        };
        if let Some(paced) = &mut self.tasks.paced {
            paced.pacer.issued(moved * view.window);
        }
        let window = self.window_of(rows, kind);
        let logged = self.logged();
        let reshape = self.reshaping();
        reshape.writes_wait |= kind == Kind::Journaled && logged;
        reshape.window = Some(window);
        true
    }

    /// The rows to be made next, so many at most, and how.
    fn next_window(&mut self, most: u64) -> (Range<u64>, Kind) {
        let (edge, each) = (self.layout.edge().0, self.superblock.extent_rows);
        let extent = edge / each;
        if edge.is_multiple_of(each) {
            let mut end = extent;
            while end < self.extents() && !self.is_fed(end) {
                end += 1;
            }
            if end > extent {
                return (edge..(end * each).min(self.layout.rows()), Kind::Passed);
            }
        }
        let dead = self.layout.live_from().0;
        if dead <= edge {
            let kind = match self.planted(Bug::RowOverItself) {
                true => Kind::Moved,
                false => Kind::Journaled,
            };
            return (edge..edge + 1, kind);
        }
        let most = (edge + most).min(dead);
        let mut end = (extent + 1) * each;
        while end < most && self.is_fed(end / each) {
            end += each;
        }
        (edge..most.min(end), Kind::Moved)
    }

    /// Whether an extent of the new shape takes anything that was written.
    fn is_fed(&self, extent: u64) -> bool {
        let each = self.superblock.extent_rows;
        let rows = extent * each..((extent + 1) * each).min(self.layout.rows());
        self.has_written_source(&rows)
    }

    fn has_written_source(&self, rows: &Range<u64>) -> bool {
        let (sources, each) = (self.sources_of(rows), self.superblock.extent_rows);
        let mut extents = sources.start / each..sources.end.div_ceil(each);
        !sources.is_empty() && extents.any(|extent| self.was_written(Row(extent * each)))
    }

    fn window_of(&self, rows: Range<u64>, kind: Kind) -> Window {
        let (former, _) = self.layout.former_shape().expect("one is under way");
        let chunk = self.layout.chunk_sectors();
        let start = rows.start * self.layout.data_cells() * chunk;
        let end = self.sources_of(&rows).end * u64::from(former) * chunk;
        Window {
            zone: start..end.max(start),
            next: rows.start,
            rows,
            kind,
            ..Window::default()
        }
    }

    /// Takes a window as far as it goes now. Whether it has gone on.
    fn window_turn(&mut self, index: usize, step: Step) -> bool {
        if self.is_given_up() {
            return self.give_up();
        }
        match step {
            Step::Draining => self.drain(),
            Step::Quiet => self.begin_rows(),
            Step::Emptying => self.empty_logs(),
            Step::Opening { version } => {
                self.writer.is_durable(version) && self.go_to(Step::Copying)
            }
            Step::Copying => self.make_rows(Aim::Journal) && self.go_to(Step::Copied),
            Step::Copied => self.flushed_once() && self.fill_journal(),
            Step::Filling { version } => self.writer.is_durable(version) && self.begin_settling(),
            Step::Making => self.make_window(),
            Step::Made => self.made_turn(index),
            Step::Recording { version } => {
                self.writer.is_durable(version) && self.end_window(index)
            }
        }
    }

    /// Whether somebody has failed whom the window counted on, and nothing is the worse for it.
    fn is_given_up(&mut self) -> bool {
        let complete = self.complete();
        let window = self.window();
        let committed = match window.step {
            Step::Filling { .. } | Step::Recording { .. } => true,
            Step::Making | Step::Made => window.kind == Kind::Journaled,
            _ => false,
        };
        !committed && window.out == 0 && (!complete || window.failed)
    }

    fn give_up(&mut self) -> bool {
        if self.window().failed {
            self.reshaping().not_before = self.now.after(AGAIN_AFTER);
        }
        self.close_window();
        true
    }

    fn close_window(&mut self) {
        self.reshaping().window = None;
        self.release_users();
    }

    /// Requests that waited may go on.
    fn release_users(&mut self) {
        let writes_wait = self.journal() != Journal::Closed && self.logged();
        self.reshaping().writes_wait = writes_wait;
        self.requests.release_held();
        self.slices.wake_waiting();
        self.wake_now(Wake::Task);
    }

    fn drain(&mut self) -> bool {
        let reshape = self.reshape.as_ref().expect("one is under way");
        let window = reshape.window.as_ref().expect("a window is open");
        let (zone, writes) = (window.zone.clone(), reshape.writes_wait);
        self.requests.quiet_in(&zone, writes) && self.go_to(Step::Quiet)
    }

    fn begin_rows(&mut self) -> bool {
        let window = self.window().clone();
        if self.makes_any_of(&self.extents_of(&window)) {
            return false;
        }
        if window.kind == Kind::Passed && self.has_written_source(&window.rows) {
            // It was when users were still at work.
            self.close_window();
            return true;
        }
        if window.kind != Kind::Journaled {
            self.put_extents_behind(&window);
        }
        self.window().barrier = self.logs.next_sequence();
        self.go_to(match window.kind {
            Kind::Passed => Step::Made,
            Kind::Moved => Step::Making,
            Kind::Journaled => Step::Emptying,
        })
    }

    /// The extents that the edge is behind after this window.
    fn extents_behind(&self, window: &Window) -> Range<u64> {
        let each = self.superblock.extent_rows;
        let all = window.rows.end == self.layout.rows();
        let end = match all {
            true => self.extents(),
            false => window.rows.end / each,
        };
        (window.rows.start / each).min(end)..end
    }

    /// Their bits are of the new shape: rows of the former that they could tell of are dead, or in the
    /// journal.
    fn put_extents_behind(&mut self, window: &Window) {
        for extent in self.extents_behind(window) {
            self.put_extent(extent, window.kind != Kind::Passed);
        }
    }

    /// Makes all rows of the window; whether they are made.
    fn make_rows(&mut self, aim: Aim) -> bool {
        let most = self.most_windows();
        loop {
            let window = self.window();
            let row = Row(window.next);
            let all = row.0 == window.rows.end || window.out >= most;
            if all || !reshape::start(self, row, aim) {
                break;
            }
            let window = self.window();
            (window.next, window.out) = (window.next + 1, window.out + 1);
        }
        self.note_rows_out();
        self.run_slices();
        let window = self.window();
        window.next == window.rows.end && window.out == 0 && !window.failed
    }

    fn make_window(&mut self) -> bool {
        if self.window().kind == Kind::Moved {
            return self.make_rows(Aim::Place) && self.go_to(Step::Made);
        }
        if !self.owes_journaled() {
            return false;
        }
        let window = self.window().clone();
        self.put_extents_behind(&window);
        if self.window().failed && self.window().out == 0 {
            self.reshaping().not_before = self.now.after(AGAIN_AFTER);
            let window = self.window();
            (window.next, window.failed) = (window.rows.start, false);
            window.tries += 1;
            if window.tries == TRIES {
                // Without redundancy nobody takes the place of who cannot be written to. The row can be read
                // from the journal, and users need not wait for ever.
                let why = match self.window().no_space {
                    true => Halt::NoSpace,
                    false => Halt::TooFew,
                };
                self.halt_for(why);
                return false;
            }
        }
        let not_before = self.reshaping().not_before;
        if self.now < not_before {
            self.wake_at(Wake::Task, not_before);
            return false;
        }
        self.make_rows(Aim::Settle) && self.go_to(Step::Made)
    }

    /// Who is missing lacks the row that was in the journal; true once that is on record.
    fn owes_journaled(&mut self) -> bool {
        let row = self.layout.edge();
        self.layout.tolerance() == 0 || self.complete() || self.owe_rows(row, row)
    }

    /// Asks for a flush, and again until one ended that began since.
    fn flushed_once(&mut self) -> bool {
        let begun = self.flusher.begun;
        let window = self.window();
        if core::mem::take(&mut window.flushed) {
            window.asked = None;
            return true;
        }
        if window.asked.is_none() {
            window.asked = Some(begun);
            self.flush_for(Waiter::Checkpoint);
            self.wake_now(Wake::Task);
        }
        false
    }

    /// This flush has ended.
    pub(super) fn reshape_flushed(&mut self, flush: u64) {
        let Some(reshape) = &mut self.reshape else {
            return;
        };
        let waits = |window: &&mut Window| window.asked.is_some_and(|asked| asked < flush);
        if let Some(window) = reshape.window.as_mut().filter(waits) {
            window.flushed = true;
            self.wake_now(Wake::Task);
        }
    }

    /// The flush is over, and what comes next needs more than that.
    fn flush_again(&mut self) -> bool {
        let window = self.window();
        (window.flushed, window.asked) = (true, None);
        false
    }

    // ---------------------------------------------------------------------------------------------------- journal

    /// No write runs: after a flush no record is live.
    fn empty_logs(&mut self) -> bool {
        if !self.logged() {
            return self.go_to(Step::Copying);
        }
        if self.logs.floor() < self.logs.next_sequence() {
            self.flushed_once();
            return false;
        }
        let window = self.window();
        (window.asked, window.flushed) = (None, false);
        if self.journal() == Journal::Open {
            return self.go_to(Step::Copying);
        }
        self.set_journal(Journal::Open);
        let version = self.writer.version_wanted();
        self.go_to(Step::Opening { version })
    }

    /// The row lies in the journal, whole: from here on it is made, whatever happens.
    fn fill_journal(&mut self) -> bool {
        if self.lost.dirty() {
            return self.flush_again();
        }
        self.set_journal(Journal::Filled);
        let version = self.writer.version_wanted();
        self.go_to(Step::Filling { version })
    }

    fn begin_settling(&mut self) -> bool {
        let window = self.window();
        (window.next, window.failed) = (window.rows.start, false);
        self.go_to(Step::Making)
    }

    /// What was in the journal is no record either: it is wiped out before logs are logs again.
    fn begin_closing(&mut self) -> bool {
        let chunk = self.layout.chunk_sectors();
        let mut outstanding = 0;
        for member in self.roles.members() {
            let places = self.devices[member.0 as usize].places;
            let sectors = chunk.min(places.log_sectors.saturating_sub(DONE_SECTORS));
            if sectors > 0 && self.good(member) {
                outstanding += 1;
                let (owner, at) = (Owner::Journal, places.log + DONE_SECTORS);
                let class = Class::Metadata;
                self.device_io(owner, member, IoOp::Zero, at, sectors, class, |io| {
                    io.durable = true;
                });
            }
        }
        self.reshaping().closing = Some(Closing::Zeroing { outstanding });
        outstanding == 0
    }

    pub(crate) fn journal_wiped(&mut self) {
        let reshape = self.reshape.as_mut();
        let closing = reshape.and_then(|reshape| reshape.closing.as_mut());
        if let Some(Closing::Zeroing { outstanding }) = closing {
            *outstanding -= 1;
        }
        self.wake_now(Wake::Task);
    }

    fn closing_turn(&mut self, closing: Closing) -> bool {
        match closing {
            Closing::Zeroing { outstanding } if outstanding > 0 => false,
            Closing::Zeroing { .. } => {
                self.set_journal(Journal::Closed);
                let version = self.writer.version_wanted();
                self.reshaping().closing = Some(Closing::Recording { version });
                true
            }
            Closing::Recording { version } if self.writer.is_durable(version) => {
                self.reshaping().closing = None;
                self.release_users();
                true
            }
            Closing::Recording { .. } => false,
        }
    }

    // ----------------------------------------------------------------------------------------------------- record

    /// A flush ends all records of the former shape, unless one is still being written for.
    fn made_turn(&mut self, index: usize) -> bool {
        let barrier = self.window().barrier;
        if self.logs.open_below(barrier) {
            return false;
        }
        let flushed = self.planted(Bug::EdgeRunsAhead) || self.flushed_once();
        flushed && self.record_edge(index)
    }

    /// The rows are made and flushed: superblocks may say so when nothing on record speaks of their former
    /// shape, and all that does of their new one is there.
    fn record_edge(&mut self, index: usize) -> bool {
        let window = self.window().clone();
        let written = self.extents_durable(self.extents_behind(&window));
        let over = self.logs.floor() >= window.barrier || self.planted(Bug::EdgeRunsAhead);
        assert!(over, "all were finished");
        if self.lost.dirty() || !written || window.kind == Kind::Journaled && !self.owes_journaled()
        {
            return self.flush_again();
        }
        let task = &mut self.tasks.list[index];
        task.pass(0, window.rows.end);
        task.durable = task.done.clone();
        if self.journal() == Journal::Filled {
            let journal = match self.logged() {
                true => Journal::Open,
                false => Journal::Closed,
            };
            self.set_journal(journal);
        } else {
            self.writer.note_change();
        }
        let version = self.writer.version_wanted();
        self.go_to(Step::Recording { version })
    }

    fn end_window(&mut self, index: usize) -> bool {
        let window = self.window().clone();
        if window.kind != Kind::Passed {
            let bytes = self.window_bytes(TaskKind::Growth);
            let rows = window.rows.end - window.rows.start;
            self.tasks.list[index].moved += rows * bytes;
        }
        let (_, slots) = self.layout.former_shape().expect("one is under way");
        self.layout = self.layout.reshaping(slots, window.rows.end);
        self.close_window();
        true
    }

    /// The array writes nothing any more: nobody waits for what will not be.
    pub(crate) fn reshape_halts(&mut self) {
        let edge = self.layout.edge();
        let Some(reshape) = &mut self.reshape else {
            return;
        };
        let window = reshape.window.take();
        let writes = |step: Step| {
            let recording = matches!(step, Step::Recording { .. });
            recording || matches!(step, Step::Making | Step::Made)
        };
        let torn = |window: Window| window.kind == Kind::Journaled && writes(window.step);
        (reshape.closing, reshape.writes_wait) = (None, false);
        if window.is_some_and(torn) {
            reshape.torn = Some(edge);
            let (_, slots) = self.layout.former_shape().expect("one is under way");
            self.layout = self.layout.reshaping(slots, edge.0 + 1);
        }
        self.requests.release_held();
        self.note_open();
    }

    // --------------------------------------------------------------------------------------------------------- end

    /// All rows are in the new shape.
    fn end_reshape(&mut self, index: usize) -> bool {
        if let Some(reshape) = &mut self.superblock.reshape {
            reshape.former = None;
        }
        self.writer.note_change();
        let version = self.writer.version_wanted();
        self.tasks.list[index].state = State::Opening { version };
        false
    }

    /// Superblocks no longer know of a former shape.
    pub(super) fn reshape_ended(&mut self) {
        if self.reshape.take().is_some() {
            self.tasks.reshape_open = false;
            self.slices.wake_waiting();
        }
    }
}
