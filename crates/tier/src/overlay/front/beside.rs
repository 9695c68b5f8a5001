//! First copies at home that go ahead of the further ones: what goes beside a record, or without one, and what it counts for
//! ([`super`], rule 8; `pair/ahead` says when they are believed).

use super::{Effect, Overlay, Record, Teller};
use crate::overlay::{Extent, Kind, Piece, UNLOGGED};
use alloc::vec::Vec;
use core::ops::Range;
use restripe_array::{Request, RequestError, SECTOR_BYTES};

/// What became of a record at home.
#[derive(Clone, Copy, Debug)]
pub(super) enum Beside {
    /// It does not go there.
    Not,
    UnderWay(Request),
    There(Request),
    /// Not all of it is there, or nobody knows.
    Failed(Request),
    /// On its way there, when nobody can know any more what that is worth.
    Doubted(Request),
    /// All copies get it, and have it.
    Mending,
    Mended,
}

impl Overlay {
    /// From now on what goes into the log goes to first copies at home as well, and they are believed to have it; or no more, and then
    /// no record is told before [`Overlay::lapsed`]. They are not believed before nothing is left of what they were not believed to
    /// have ([`Overlay::holds_nothing_instead`]).
    pub fn trust(&mut self, trusts: bool) {
        self.trusts = trusts;
        self.lapsing = !trusts;
        if let Some(home) = self.home.as_mut().filter(|_| !trusts) {
            home.failed = true;
            self.copy_more();
        }
    }

    /// It is on record that first copies are believed no more, or that the log is not.
    pub fn lapsed(&mut self) {
        if core::mem::take(&mut self.lapsing) {
            self.settle_records();
            for part in core::mem::take(&mut self.late_flushes) {
                self.part_done(part, Err(RequestError::Unavailable));
            }
        }
    }

    pub fn is_lapsing(&self) -> bool {
        self.lapsing
    }

    /// What is on its way to first copies, or there and not told, goes to all copies: a first copy was lost, and another one may soon
    /// stand in for it.
    pub fn doubt_records(&mut self) {
        for record in &mut self.records {
            record.beside = match record.beside {
                Beside::There(request) => Beside::Failed(request),
                Beside::UnderWay(request) => Beside::Doubted(request),
                other => other,
            };
        }
        self.settle_records();
    }

    pub fn trusts(&self) -> bool {
        self.trusts
    }

    /// Whether something of what was told can be had from the log alone.
    pub(super) fn needs_log(&self) -> bool {
        let has = |kind| self.map.total(kind).extents > 0;
        let beside = |record: &Record| !matches!(record.beside, Beside::Not);
        match self.trusts {
            true => has(Kind::Instead) || !self.records.iter().all(beside),
            false => !self.holds_nothing_instead(),
        }
    }

    /// Whether nothing can go home.
    pub fn is_stuck(&self) -> bool {
        self.broken && !self.trusts
    }

    /// The log has failed. First copies that go on without it tell nobody so before that is on record, or a start that finds the log
    /// again would count it.
    pub(super) fn fail_log(&mut self) {
        self.lapsing |= self.trusts && !self.broken;
        self.broken = true;
    }

    /// Whether first copies alone have what goes ahead: the log failed, or there never was one.
    pub fn is_alone(&self) -> bool {
        self.broken && self.trusts
    }

    /// Neither copies nor log have these sectors any more.
    ///
    /// # Panics
    /// If the log is in use: what it has is not lost.
    pub fn forget(&mut self, home: Range<u64>) {
        assert!(self.broken, "first copies alone had it");
        let mapped = |piece| match piece {
            Piece::Mapped(extent) => Some(extent),
            Piece::Hole { .. } => None,
        };
        let gone: Vec<Extent> = self.map.lookup(home).filter_map(mapped).collect();
        let mut taken = Vec::new();
        for extent in gone {
            let cut = extent.home..extent.end();
            let told = |piece| taken.push(piece);
            // In a map too full to cut an extent in two it stays: it reads as lost all the same.
            let _ = self.map.remove_if(cut, extent.sequence, told);
        }
        taken.into_iter().for_each(|piece| self.retire(piece, 0));
        self.settle_retired();
    }

    /// Whether there is no log, and never was one.
    pub fn is_logless(&self) -> bool {
        self.limits.logless
    }

    /// Whether what nobody wrote before may be written elsewhere.
    pub(super) fn takes_writes(&self) -> bool {
        !self.broken || self.limits.logless && self.trusts
    }

    /// As what a copy counts.
    pub(super) fn kind_now(&self, extent: &Extent) -> Kind {
        match extent.kind {
            Kind::Also if !self.trusts => Kind::Instead,
            kind => kind,
        }
    }

    /// What goes into the newest record goes to first copies at home, too.
    pub(super) fn go_beside(&mut self, sequence: u64, request: Request) {
        let record = self.records.back_mut().expect("it was begun just now");
        record.beside = Beside::UnderWay(request);
        let all = false;
        self.effects.push_back(Effect::Beside {
            sequence,
            request,
            all,
        });
    }

    /// The log has failed: first copies alone have what is written over what lies there, until it is home.
    /// False if the map has no room.
    pub(super) fn go_on_unlogged(&mut self, id: u32, request: &Request, cut: u64) -> bool {
        if !self.map.room_for(self.records.len() as u32 + 1) {
            return false;
        }
        let part = self.next_part(request, cut);
        let (home, sectors) = (part.offset / SECTOR_BYTES, part.bytes / SECTOR_BYTES);
        let sequence = self.sequence;
        self.sequence += 1;
        self.records.push_back(Record {
            extent: Extent {
                home,
                sectors: sectors as u32,
                at: UNLOGGED + home,
                sequence,
                kind: Kind::Instead,
            },
            teller: Teller::Request(id),
            sealed: None,
            result: Some(Err(RequestError::Unavailable)),
            beside: Beside::Not,
        });
        self.go_beside(sequence, part);
        let pending = self.pending(id);
        pending.cut += sectors;
        pending.parts += 1;
        true
    }

    /// First copies at home have what goes into a record, or do not.
    ///
    /// # Panics
    /// If no record of this sequence is under way.
    pub fn went_beside(&mut self, sequence: u64, result: Result<(), RequestError>) {
        let record = self.record_mut(sequence);
        record.beside = match (record.beside, result) {
            (Beside::UnderWay(request), Ok(())) => Beside::There(request),
            (Beside::UnderWay(request), Err(_)) => Beside::Failed(request),
            (Beside::Doubted(request), _) => Beside::Failed(request),
            (Beside::Mending, Ok(())) => Beside::Mended,
            _ => Beside::Not,
        };
        self.settle_records();
    }

    /// A record that counts neither here nor there, though first copies have it: all get it, or they would go on to differ. False if
    /// it is not such a one.
    pub(super) fn mends(&mut self, record: Record) -> bool {
        let request = match record.beside {
            Beside::There(request) if !self.trusts => request,
            Beside::Failed(request) => request,
            _ => return false,
        };
        if !self.broken && record.result == Some(Ok(())) {
            return false;
        }
        let sequence = record.extent.sequence;
        // Nothing more is asked of it: it is over when this is, however it ends.
        self.record_mut(sequence).beside = Beside::Mending;
        self.effects.push_back(Effect::Beside {
            sequence,
            request,
            all: true,
        });
        true
    }
}
