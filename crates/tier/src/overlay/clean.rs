//! Log cleaning: live data of the oldest records is appended again, so that their segments are free without a
//! destage. A floor above the destage.
//!
//! | state    | cause                                                                 | next     |
//! |----------|-----------------------------------------------------------------------|----------|
//! | moving   | all live data is in records that are packed, or was written again     | flushing |
//! | flushing | the log is flushed: nothing live is left below                        | voiding  |
//! | voiding  | the log's anchor says durably that these records are obsolete         | over     |
//! | any      | the log failed, a destage began, or room is short: no more is moved   | over     |
//!
//! Data that moves is read by **windows** of the log, a record's payload long at most, and then packed piece
//! by piece like a client's write. When a piece's turn comes the map says what of it is still live at its old
//! place: only that is packed, and nothing that a copy in flight has. So what clients write meanwhile has the
//! higher sequence, and stays.

use super::destage::Destaging;
use super::effect::{Effect, PartTag};
use super::limits::{MOVES, SealCause};
use super::pack::{Source, Spot};
use super::requests::Owner;
use super::{Extent, Kind, Piece, Purpose};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use restripe_array::parts::Bug;
use restripe_array::{BufRef, RequestError, SECTOR_BYTES};

/// How far cleaning has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cleans {
    /// Live data is being read, and packed again.
    Moving,
    /// The log is being flushed.
    Flushing,
    /// It is being recorded in the log that the old records are obsolete.
    Voiding,
}

/// The oldest segments, as many as may be cleaned at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Oldest {
    /// All of their records are below, and no live data is elsewhere.
    below: u64,
    /// Their live data, the oldest segment first and by its place there.
    extents: Vec<Extent>,
    /// Sectors of it, and of the segments.
    pub live: u64,
    pub sectors: u64,
}

/// Part of the log that is read at once, and its live data.
struct Window {
    at: u64,
    sectors: u32,
    extents: VecDeque<Extent>,
}

struct Move {
    window: Window,
    serial: u64,
    part: PartTag,
    /// What was read.
    buf: Option<BufRef>,
    /// Copies out of it that are in flight.
    copies: u32,
}

impl Move {
    fn is_over(&self) -> bool {
        self.buf.is_some() && self.window.extents.is_empty() && self.copies == 0
    }
}

/// A cleaning that runs.
struct Cleaning {
    below: u64,
    stage: Cleans,
    windows: VecDeque<Window>,
    moves: Vec<Move>,
    failed: bool,
    /// Room in the log when it began, and [`Packer::clients_took`](super::pack::Packer) then.
    room: u64,
    took: u64,
}

pub struct Cleaner {
    below: Destaging,
    cleaning: Option<Cleaning>,
    /// The last cleaning freed nothing, and nothing was destaged since.
    in_vain: bool,
}

floor!(Cleaner over Destaging { cleaning, in_vain });

impl Cleaner {
    pub(super) fn is_cleaning(&self) -> bool {
        self.cleaning.is_some()
    }

    /// A destage is over, and may have freed room.
    pub(super) fn note_destage(&mut self, whole: bool) {
        self.in_vain &= !whole;
    }

    /// Whether the log is being cleaned, and how far that has come.
    pub fn cleans(&self) -> Option<Cleans> {
        self.cleaning.as_ref().map(|cleaning| cleaning.stage)
    }

    /// Whether the last cleaning freed nothing or was cut short, and nothing was destaged since.
    pub fn cleaned_in_vain(&self) -> bool {
        self.in_vain
    }

    /// The oldest segments whose live part has room in those that are reserved for cleaning; `None` if
    /// cleaning would free nothing.
    pub fn oldest(&self) -> Option<Oldest> {
        self.pack.as_ref()?;
        if self.broken || self.is_destaging() || self.cleaning.is_some() {
            return None;
        }
        let shape = *self.space.shape();
        let record = self.footprint(self.limits.record_sectors);
        // A client's flush may close one early.
        let records = (shape.segment_sectors / record * shape.reserve).saturating_sub(1);
        let most = u64::from(records) * u64::from(self.limits.record_sectors);
        let mut live = vec![0_u64; shape.segments as usize];
        // The log has not failed, so it has all of them.
        for extent in self.map.extents_from(0) {
            live[self.space.segment_of(extent.at) as usize] += u64::from(extent.sectors);
        }
        let (mut chosen, mut sum) = (Vec::new(), 0);
        for segment in self.space.oldest_closed() {
            let more = live[segment as usize];
            if sum + more > most {
                break;
            }
            sum += more;
            chosen.push(segment);
        }
        (!chosen.is_empty()).then(|| Oldest {
            sectors: chosen.len() as u64 * u64::from(shape.segment_sectors),
            live: sum,
            ..self.oldest_of(&chosen)
        })
    }

    fn oldest_of(&self, chosen: &[u32]) -> Oldest {
        let mut order = vec![None; self.space.shape().segments as usize];
        for (age, segment) in (0..).zip(chosen) {
            order[*segment as usize] = Some(age);
        }
        let (mut below, mut extents) = (self.acknowledged(), Vec::new());
        for extent in self.map.extents_from(0) {
            match order[self.space.segment_of(extent.at) as usize] {
                Some(age) => extents.push((age, extent)),
                None => below = below.min(extent.sequence),
            }
        }
        extents.sort_unstable_by_key(|(age, extent): &(u32, Extent)| (*age, extent.at));
        Oldest {
            below,
            extents: extents.into_iter().map(|(_, extent)| extent).collect(),
            live: 0,
            sectors: 0,
        }
    }

    /// Begins to move live data of the oldest segments; nothing if a cleaning or a destage runs already.
    pub(super) fn begin_cleaning(&mut self, oldest: &Oldest) {
        if self.cleaning.is_some() || self.is_destaging() || self.broken {
            return;
        }
        self.counters.cleanings += 1;
        self.cleaning = Some(Cleaning {
            below: oldest.below,
            stage: Cleans::Moving,
            windows: self.windows(&oldest.extents),
            moves: Vec::with_capacity(MOVES),
            failed: false,
            room: self.space.room(),
            took: self.clients_took,
        });
    }

    /// Nothing more is moved: what is in flight ends. False if no cleaning runs.
    pub(super) fn give_up_cleaning(&mut self) -> bool {
        let Some(cleaning) = &mut self.cleaning else {
            return false;
        };
        cleaning.failed = true;
        true
    }

    /// Cuts what is to be read so that each window lies in one segment, and fits a record.
    fn windows(&self, extents: &[Extent]) -> VecDeque<Window> {
        let most = u64::from(self.limits.record_sectors);
        let mut windows: VecDeque<Window> = VecDeque::new();
        for extent in extents {
            let mut from = extent.at;
            while let Some(piece) = extent.within_log(from..from + most) {
                from = piece.log_end();
                let segment = self.space.segment_of(piece.at);
                let joins = |window: &&mut Window| {
                    self.space.segment_of(window.at) == segment
                        && piece.log_end() - window.at <= most
                };
                match windows.back_mut().filter(joins) {
                    Some(window) => {
                        window.sectors = (piece.log_end() - window.at) as u32;
                        window.extents.push_back(piece);
                    }
                    None => windows.push_back(Window {
                        at: piece.at,
                        sectors: piece.sectors,
                        extents: VecDeque::from([piece]),
                    }),
                }
            }
        }
        windows
    }

    /// Goes on with what is being cleaned, as far as it can; true if that is over.
    pub(super) fn clean_more(&mut self) -> bool {
        let Some(mut cleaning) = self.cleaning.take() else {
            return false;
        };
        // Records that cleaning itself closes are not of the clients' doing.
        let took = self.clients_took;
        if !cleaning.failed {
            self.begin_moves(&mut cleaning);
            cleaning.failed = self.broken || self.is_destaging() || !self.pack_moves(&mut cleaning);
        }
        if cleaning.failed {
            cleaning.windows.clear();
            for one in &mut cleaning.moves {
                one.window.extents.clear();
            }
        }
        for one in cleaning.moves.extract_if(.., |one| one.is_over()) {
            let buf = one.buf.expect("it was read");
            self.emit(Effect::Moved { buf });
        }
        let moved = cleaning.windows.is_empty() && cleaning.moves.is_empty();
        if moved && cleaning.stage == Cleans::Moving {
            if cleaning.failed {
                return self.end_cleaning(true);
            }
            self.make_durable(&mut cleaning);
        }
        self.clients_took = took;
        self.cleaning = Some(cleaning);
        false
    }

    fn begin_moves(&mut self, cleaning: &mut Cleaning) {
        while cleaning.moves.len() < MOVES {
            let Some(window) = cleaning.windows.pop_front() else {
                return;
            };
            let serial = self.begin_reading();
            let part = self.begin_part(Owner::Move { serial });
            let (at, sectors) = (window.at, window.sectors);
            self.emit(Effect::Move { part, at, sectors });
            cleaning.moves.push(Move {
                window,
                serial,
                part,
                buf: None,
                copies: 0,
            });
        }
    }

    /// What was to be moved was read, or could not be.
    pub(super) fn window_read(&mut self, part: PartTag, result: Result<BufRef, RequestError>) {
        let cleaning = self.cleaning.as_mut().expect("it is being cleaned");
        let mut moves = cleaning.moves.iter();
        let index = moves.position(|one| one.buf.is_none() && one.part == part);
        let index = index.expect("it is in flight");
        match result {
            Ok(buf) => cleaning.moves[index].buf = Some(buf),
            Err(_) => {
                cleaning.failed = true;
                cleaning.moves.swap_remove(index);
            }
        }
    }

    /// Packs what was read, the oldest first; false if there is no room for it, and will be none.
    fn pack_moves(&mut self, cleaning: &mut Cleaning) -> bool {
        for one in &mut cleaning.moves {
            let Some(buf) = one.buf else {
                continue;
            };
            while let Some(extent) = one.window.extents.front().copied() {
                let Some(piece) = self.still_there(&extent) else {
                    one.window.extents.pop_front();
                    continue;
                };
                let source = (piece.at - one.window.at, buf);
                match self.pack_moved(&piece, source, one.serial) {
                    Packed::Sectors(sectors) => {
                        one.copies += 1;
                        self.counters.sectors_moved += u64::from(sectors);
                        let from = piece.home + u64::from(sectors);
                        let front = one.window.extents.front_mut().expect("it was seen");
                        match extent.within(from..extent.end()) {
                            Some(rest) => *front = rest,
                            None => drop(one.window.extents.pop_front()),
                        }
                    }
                    Packed::Later => return true,
                    Packed::Never => return false,
                }
            }
        }
        true
    }

    /// The first part of an extent that the map still has at its place.
    fn still_there(&self, extent: &Extent) -> Option<Extent> {
        let same = |piece| match piece {
            Piece::Mapped(found) => {
                let place = extent.within(found.home..found.end())?;
                let same = (place.at, place.sequence) == (found.at, found.sequence);
                (same && found.kind == Kind::Instead).then_some(found)
            }
            Piece::Hole { .. } => None,
        };
        self.map.lookup(extent.home..extent.end()).find_map(same)
    }

    /// Packs the beginning of a piece again.
    fn pack_moved(&mut self, piece: &Extent, source: (u64, BufRef), serial: u64) -> Packed {
        // A copy in flight is newer.
        if !self.may_copy_in(&(piece.home..piece.end())) {
            return Packed::Later;
        }
        let copies = self.copies_in_flight();
        if !self.map.room_for(copies + 1) {
            return match copies {
                0 => Packed::Never,
                _ => Packed::Later,
            };
        }
        let sectors = match self.spot(piece.home, piece.sectors) {
            Spot::Behind(sectors) => sectors,
            // The map would name the record being filled.
            Spot::Over(_) => unreachable!("what the record being filled has is newer"),
            Spot::None => {
                self.close_record(SealCause::Full);
                return match self.open_record(Purpose::Cleaning) {
                    true => self.pack_moved(piece, source, serial),
                    false if self.record_waits() => Packed::Later,
                    false => Packed::Never,
                };
            }
        };
        let extent = self.lay(piece.home, sectors);
        let bytes = (u64::from(sectors) * SECTOR_BYTES) as u32;
        let (skip, buf) = source;
        let source = buf.part((skip * SECTOR_BYTES) as u32, bytes);
        self.copy_in(Source::Move(serial), extent, false, Some(source));
        Packed::Sectors(sectors)
    }

    /// A copy out of what was read has ended.
    pub(super) fn moved(&mut self, serial: u64) {
        let cleaning = self.cleaning.as_mut().expect("its copies are in flight");
        let mut moves = cleaning.moves.iter_mut();
        let one = moves.find(|one| one.serial == serial);
        one.expect("its copies are in flight").copies -= 1;
    }

    fn make_durable(&mut self, cleaning: &mut Cleaning) {
        if self.planted(Bug::MovedNotAwaited) {
            return self.make_cleaned_obsolete(cleaning);
        }
        cleaning.stage = Cleans::Flushing;
        self.flush_log(Owner::CleanFlush, SealCause::Flush);
    }

    fn make_cleaned_obsolete(&mut self, cleaning: &mut Cleaning) {
        cleaning.stage = Cleans::Voiding;
        let part = self.begin_part(Owner::CleanObsolete);
        let below = cleaning.below;
        self.emit(Effect::Void { part, below });
    }

    /// The log was flushed, or could not be; true if that ends the cleaning.
    pub(super) fn clean_flushed(&mut self, result: Result<(), RequestError>) -> bool {
        let mut cleaning = self.cleaning.take().expect("it is flushing");
        let left = |extent: Extent| extent.sequence < cleaning.below;
        let left = self.map.extents_from(0).any(left);
        if result.is_err() || cleaning.failed || self.broken || left {
            return self.end_cleaning(true);
        }
        self.make_cleaned_obsolete(&mut cleaning);
        self.cleaning = Some(cleaning);
        false
    }

    /// The old records are obsolete, or could not be made so: the cleaning is over.
    pub(super) fn clean_voided(&mut self, result: Result<(), RequestError>) -> bool {
        let cleaning = self.cleaning.take().expect("its anchors are written");
        // If moves took as much as was freed, cleaning would go on for ever.
        let open = match self.pack.as_ref().is_some_and(|pack| pack.filling) {
            true => self.footprint(self.limits.record_sectors),
            false => 0,
        };
        let taken = self.clients_took - cleaning.took;
        let room = self.space.room() + taken + u64::from(open);
        self.end_cleaning(result.is_err() || cleaning.failed || room <= cleaning.room)
    }

    fn end_cleaning(&mut self, in_vain: bool) -> bool {
        self.in_vain |= in_vain;
        true
    }
}

/// How far the packing of a piece came.
enum Packed {
    Sectors(u32),
    /// It waits for memory, or for copies in flight.
    Later,
    /// Nothing that is in flight makes room for it.
    Never,
}
