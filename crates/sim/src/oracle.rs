//! The contents that every sector of the array may have, and so whether a read returned a permitted one.
//!
//! Every write is recorded with the logical times at which it was issued, ended, acknowledged and made
//! durable. A sector may hold any write that no other write has replaced. B replaces A if A had ended before
//! B was issued, and B is acknowledged. After a crash, only replacements that are durable count. Writes that
//! overlapped in time do not replace each other. A trim replaces nothing: it adds zeros to the permitted
//! contents.

use crate::invariant::{Invariant, Violation};
use crate::payload::{Payload, Token, token_of};
use crate::rng::mix;
use std::collections::BTreeMap;

/// Names a write. Number 0 stands for the array as created: zeros everywhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct WriteId(u32);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteKind {
    Data,
    Zeroes,
    /// May or may not make zeros.
    Trim,
}

#[derive(Clone, Copy, Debug)]
struct Write {
    lba: u64,
    sectors: u64,
    kind: WriteKind,
    fua: bool,
    issued: u64,
    /// Its effects are over: it was replied to, or a crash came.
    ended: Option<u64>,
    /// It succeeded, and no crash has taken that back since.
    acked: Option<u64>,
    durable: Option<u64>,
}

impl Write {
    /// Whether it has taken the place of one that ended at `ended`.
    fn follows(&self, ended: Option<u64>) -> bool {
        self.kind != WriteKind::Trim && ended.is_some_and(|ended| ended < self.issued)
    }
}

#[derive(Clone, Debug)]
struct Sector {
    /// Writes that may still matter, in the order of issue.
    history: Vec<WriteId>,
    /// What was read since the last write, and when.
    pinned: Option<(Token, u64)>,
    /// More was broken than redundancy can repair: it may be reported lost.
    loss: Loss,
}

/// Whether a sector may be reported lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Loss {
    Never,
    Allowed,
    /// A write ended it: only what was asked before then may still be told of a loss.
    Ended(u64),
}

impl Sector {
    fn zeros() -> Sector {
        Sector {
            history: vec![WriteId(0)],
            pinned: None,
            loss: Loss::Never,
        }
    }

    fn end_loss(&mut self, now: u64) {
        if self.loss == Loss::Allowed {
            self.loss = Loss::Ended(now);
        }
    }

    /// A crash: what ended a loss may be gone, if it was not durable.
    fn may_lose_again(&mut self, writes: &[Write]) {
        let Loss::Ended(at) = self.loss else {
            return;
        };
        let lasts = |id: &WriteId| {
            let write = &writes[id.0 as usize];
            write.durable.is_some() && write.ended >= Some(at)
        };
        if !self.history.iter().any(lasts) {
            self.loss = Loss::Allowed;
        }
    }
}

/// A read under way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ReadTicket {
    issued: u64,
    pub lba: u64,
    pub sectors: u64,
}

/// A flush under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlushTicket {
    issued: u64,
}

#[derive(Clone)]
pub struct Oracle {
    payload: Payload,
    clock: u64,
    writes: Vec<Write>,
    sectors: Vec<Sector>,
    /// When each read under way was issued: histories are kept for the oldest.
    reads: BTreeMap<u64, ()>,
    crashed: Option<u64>,
    /// The daemon died since, and caches of members lived on: what is read may be of a write that was never acknowledged.
    died: bool,
    all_may_be_lost: bool,
}

/// Histories are cut when they get longer.
const HISTORY_KEPT: usize = 6;

impl Oracle {
    pub fn new(payload: Payload, sectors: u64) -> Oracle {
        let created = Write {
            lba: 0,
            sectors,
            kind: WriteKind::Zeroes,
            fua: true,
            issued: 0,
            ended: Some(0),
            acked: Some(0),
            durable: Some(0),
        };
        Oracle {
            payload,
            clock: 0,
            writes: vec![created],
            sectors: vec![Sector::zeros(); sectors as usize],
            reads: BTreeMap::new(),
            crashed: None,
            died: false,
            all_may_be_lost: false,
        }
    }

    pub fn sectors(&self) -> u64 {
        self.sectors.len() as u64
    }

    /// The array has so many sectors from now on; those that are new are zeros.
    pub fn grow(&mut self, sectors: u64) {
        self.sectors.resize(sectors as usize, Sector::zeros());
        self.writes[0].sectors = sectors;
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    // ------------------------------------------------------------------------------------------ what happens

    /// A write is issued.
    pub fn write(&mut self, lba: u64, sectors: u64, kind: WriteKind, fua: bool) -> WriteId {
        let issued = self.tick();
        let id = WriteId(self.writes.len() as u32);
        self.writes.push(Write {
            lba,
            sectors,
            kind,
            fua,
            issued,
            ended: None,
            acked: None,
            durable: None,
        });
        for sector in lba..lba + sectors {
            self.prune(sector);
            let sector = &mut self.sectors[sector as usize];
            sector.history.push(id);
            sector.pinned = None;
        }
        id
    }

    /// The contents of a write, for its buffer.
    pub fn fill(&self, id: WriteId, contents: &mut [u8]) {
        let unit = self.payload.unit();
        if unit == 0 {
            return;
        }
        let write = &self.writes[id.0 as usize];
        for (i, sector) in contents.chunks_exact_mut(unit).enumerate() {
            self.payload
                .fill(sector, self.value(id, write.lba + i as u64));
        }
    }

    /// A write was replied to.
    pub fn write_ended(&mut self, id: WriteId, success: bool) {
        let now = self.tick();
        let write = &mut self.writes[id.0 as usize];
        write.ended = Some(now);
        if success {
            write.acked = Some(now);
            write.durable = write.fua.then_some(now);
        }
        if success && write.kind != WriteKind::Trim {
            let written = write.lba..write.lba + write.sectors;
            written.for_each(|lba| self.sectors[lba as usize].end_loss(now));
        }
    }

    /// Whether a write to this sector failed: it may have been written all the same, and so be lost no more.
    pub fn failed_write(&self, lba: u64) -> bool {
        let covers = |write: &Write| write.lba <= lba && lba < write.lba + write.sectors;
        let failed = |write: &Write| write.ended.is_some() && write.acked.is_none();
        let mut writes = self.writes.iter();
        writes.any(|write| failed(write) && covers(write))
    }

    pub fn flush(&mut self) -> FlushTicket {
        FlushTicket {
            issued: self.tick(),
        }
    }

    /// A flush was replied to: what was acknowledged before it was issued is durable.
    pub fn flush_ended(&mut self, ticket: FlushTicket, success: bool) {
        let now = self.tick();
        if !success {
            return;
        }
        for write in &mut self.writes {
            if write.durable.is_none() && write.acked.is_some_and(|acked| acked < ticket.issued) {
                write.durable = Some(now);
            }
        }
        for lba in 0..self.sectors() {
            self.settle_read(lba, ticket.issued);
        }
    }

    /// What was read before a flush was asked for is durable with it, also where it was never acknowledged. Nothing was
    /// written there since it was read. A read under way that was asked for before may still give an older value.
    fn settle_read(&mut self, lba: u64, flushed: u64) {
        let oldest = self.reads.keys().next().copied().unwrap_or(u64::MAX);
        let before = flushed.min(oldest);
        let sector = &self.sectors[lba as usize];
        let Some((token, _)) = sector.pinned.filter(|(_, read)| *read < before) else {
            return;
        };
        let read = |id: &WriteId| self.value(*id, lba) == token;
        let history = sector.history.iter().copied().filter(read).collect();
        self.sectors[lba as usize].history = history;
    }

    pub fn read(&mut self, lba: u64, sectors: u64) -> ReadTicket {
        let issued = self.tick();
        self.reads.insert(issued, ());
        ReadTicket {
            issued,
            lba,
            sectors,
        }
    }

    /// A read was replied to with an error: nothing is to be checked here.
    pub fn read_failed(&mut self, ticket: ReadTicket) {
        self.reads.remove(&ticket.issued);
    }

    /// A read gave these contents.
    pub fn read_ended(&mut self, ticket: ReadTicket, contents: &[u8]) -> Result<(), Violation> {
        self.reads.remove(&ticket.issued);
        let unit = self.payload.unit();
        if unit == 0 {
            return Ok(());
        }
        for (i, sector) in contents.chunks_exact(unit).enumerate() {
            let lba = ticket.lba + i as u64;
            let token = self.payload.token(sector);
            let token = token
                .ok_or_else(|| Violation::new(Invariant::MadeUpBytes, self.strange(lba, sector)))?;
            self.check(lba, token, ticket.issued)?;
        }
        Ok(())
    }

    /// Power went: everything under way has ended, and what was acknowledged without being durable counts no more.
    pub fn crash(&mut self) {
        let now = self.tick();
        for write in &mut self.writes {
            write.ended.get_or_insert(now);
            if write.durable.is_none() {
                write.acked = None;
            }
        }
        let writes = &self.writes;
        for sector in &mut self.sectors {
            sector.pinned = None;
            sector.may_lose_again(writes);
        }
        self.reads.clear();
        self.died = false;
        self.crashed = Some(now);
    }

    /// The crash was of the daemon alone: what is read from now on may lie in a member's cache.
    pub fn outlived(&mut self) {
        self.died = true;
    }

    /// The daemon died, and the members and their caches live on: everything under way has ended. What was acknowledged
    /// counts as before, but only a flush makes it durable.
    pub fn death(&mut self) {
        self.died = true;
        let now = self.tick();
        for write in &mut self.writes {
            write.ended.get_or_insert(now);
        }
        for sector in &mut self.sectors {
            sector.pinned = None;
        }
        self.reads.clear();
    }

    // ------------------------------------------------------------------------------------------- what is right

    fn value(&self, id: WriteId, lba: u64) -> Token {
        match self.writes[id.0 as usize].kind {
            WriteKind::Data => token_of(id.0.into(), lba),
            WriteKind::Zeroes | WriteKind::Trim => 0,
        }
    }

    /// Whether one sector may hold `token` for a read issued at `issued`.
    fn check(&mut self, lba: u64, token: Token, issued: u64) -> Result<(), Violation> {
        let history = &self.sectors[lba as usize].history;
        let matches = || history.iter().filter(|id| self.value(**id, lba) == token);
        if matches().next().is_none() {
            return Err(self.unknown(lba, token));
        }
        let replaced_by = |id: &WriteId| self.replacement(*id, lba, issued);
        if let Some(later) = matches().map(replaced_by).min().flatten() {
            return Err(self.replaced(lba, token, later, issued));
        }
        self.pin(lba, token, issued)
    }

    /// The write that, before `issued`, had taken this one's place for good.
    fn replacement(&self, id: WriteId, lba: u64, issued: u64) -> Option<WriteId> {
        let ended = self.writes[id.0 as usize].ended;
        let history = &self.sectors[lba as usize].history;
        history.iter().copied().find(|later| {
            let later = &self.writes[later.0 as usize];
            later.acked.is_some_and(|acked| acked < issued) && later.follows(ended)
        })
    }

    /// A value that is none of the candidates: forgotten because it can never come back, or never written.
    fn unknown(&self, lba: u64, token: Token) -> Violation {
        let wrote = |id: usize| {
            let write = &self.writes[id];
            (write.lba..write.lba + write.sectors).contains(&lba)
                && self.value(WriteId(id as u32), lba) == token
        };
        let invariant = match (0..self.writes.len()).any(wrote) {
            true if self.crashed.is_some() => Invariant::FlushedWriteLost,
            true => Invariant::AckedWriteLost,
            false => Invariant::MadeUpBytes,
        };
        Violation::new(invariant, self.origin(lba, token))
    }

    fn replaced(&self, lba: u64, token: Token, later: WriteId, issued: u64) -> Violation {
        let write = &self.writes[later.0 as usize];
        let crashed_since = self
            .crashed
            .is_some_and(|crashed| write.acked.is_some_and(|acked| acked < crashed));
        let invariant = match (crashed_since, self.settled(lba, issued)) {
            (true, _) => Invariant::FlushedWriteLost,
            (false, true) => Invariant::AckedWriteLost,
            (false, false) => Invariant::StaleRead,
        };
        let detail = format!(
            "{}; write {} (lba {} +{}) replaced it",
            self.origin(lba, token),
            later.0,
            write.lba,
            write.sectors
        );
        Violation::new(invariant, detail)
    }

    /// Whether all writes of a sector had ended before `issued`.
    fn settled(&self, lba: u64, issued: u64) -> bool {
        let history = &self.sectors[lba as usize].history;
        history.iter().all(|id| {
            let write = &self.writes[id.0 as usize];
            write.ended.is_some_and(|ended| ended < issued)
        })
    }

    /// While nothing is written, every read must agree with the one before.
    fn pin(&mut self, lba: u64, token: Token, issued: u64) -> Result<(), Violation> {
        if !self.settled(lba, issued) {
            return Ok(());
        }
        let now = self.clock;
        match self.sectors[lba as usize].pinned.replace((token, now)) {
            Some((before, _)) if before != token => {
                let detail = format!(
                    "{}; read before: {}",
                    self.origin(lba, token),
                    self.origin(lba, before)
                );
                Err(Violation::new(Invariant::UnstableRead, detail))
            }
            _ => Ok(()),
        }
    }

    /// Whether a crash now may change a sector: some write of it is not durable.
    pub fn unsettled(&self, lba: u64) -> bool {
        let history = &self.sectors[lba as usize].history;
        history.iter().any(|id| {
            self.writes[id.0 as usize].durable.is_none() && !self.replaced_durably(*id, lba)
        })
    }

    fn replaced_durably(&self, id: WriteId, lba: u64) -> bool {
        let ended = self.writes[id.0 as usize].ended;
        let history = &self.sectors[lba as usize].history;
        history.iter().any(|later| {
            let later = &self.writes[later.0 as usize];
            later.durable.is_some() && later.follows(ended)
        })
    }

    /// From now on, until it is written again, a sector may be reported lost.
    pub fn allow_loss(&mut self, lba: u64) {
        self.sectors[lba as usize].loss = Loss::Allowed;
    }

    /// From now on any sector may be reported lost: a member went while redundancy was not in step.
    pub fn allow_all_losses(&mut self) {
        self.all_may_be_lost = true;
    }

    /// Whether any sector may be called lost.
    pub fn allows_losses(&self) -> bool {
        (0..self.sectors()).any(|lba| self.may_be_lost(lba, None))
    }

    /// Whether a sector may be reported lost to a read, or to whoever looks now.
    pub fn may_be_lost(&self, lba: u64, read: Option<ReadTicket>) -> bool {
        let asked = read.map_or(self.clock, |ticket| ticket.issued);
        let allowed = match self.sectors[lba as usize].loss {
            Loss::Never => false,
            Loss::Allowed => true,
            Loss::Ended(at) => asked < at,
        };
        self.all_may_be_lost || allowed
    }

    /// Whether a sector may be reported lost to a write, which first reads what it does not cover of a block.
    pub fn may_be_lost_to_write(&self, lba: u64, write: WriteId) -> bool {
        let issued = self.writes[write.0 as usize].issued;
        let ended_since = match self.sectors[lba as usize].loss {
            Loss::Ended(at) => issued < at,
            Loss::Never | Loss::Allowed => false,
        };
        ended_since || self.may_be_lost(lba, None)
    }

    /// A digest of everything that was asked and promised so far.
    pub fn promises(&self) -> u64 {
        let of = |write: &Write| [write.acked.is_some(), write.durable.is_some()].map(u64::from);
        self.writes.iter().fold(0, |digest, write| {
            let [acked, durable] = of(write);
            mix(digest ^ (acked << 1 | durable))
        })
    }

    /// Whether a sector was ever written.
    pub fn touched(&self, lba: u64) -> bool {
        self.sectors[lba as usize].history != [WriteId(0)]
    }

    /// Forgets writes that no read and no crash can bring back.
    fn prune(&mut self, lba: u64) {
        if self.sectors[lba as usize].history.len() <= HISTORY_KEPT {
            return;
        }
        let oldest_read = self.reads.keys().next().copied().unwrap_or(u64::MAX);
        let history = &self.sectors[lba as usize].history;
        // The newest that takes the place of what had ended before it: one look at each, as histories grow long without flushes.
        let replaces = |write: &Write| {
            let durable = write.durable.is_some_and(|durable| durable < oldest_read);
            durable && write.kind != WriteKind::Trim
        };
        let writes = history.iter().map(|id| &self.writes[id.0 as usize]);
        let issued = writes.filter(|write| replaces(write));
        let newest = issued.map(|write| write.issued).max();
        let gone = |id: &WriteId| {
            let write = &self.writes[id.0 as usize];
            write.ended.is_some_and(|ended| newest > Some(ended))
        };
        let kept = history.iter().copied().filter(|id| !gone(id)).collect();
        self.sectors[lba as usize].history = kept;
    }

    // ------------------------------------------------------------------------------------------ for the reader

    /// Where a value comes from, in words.
    fn origin(&self, lba: u64, token: Token) -> String {
        if token == 0 {
            return format!("lba {lba} holds zeros{}", self.expected(lba));
        }
        let from = |id: &usize| token_of(*id as u64, lba) == token;
        if let Some(id) = (1..self.writes.len()).find(from) {
            return format!("lba {lba} holds write {id}{}", self.expected(lba));
        }
        let elsewhere = (1..self.writes.len()).find_map(|id| {
            let write = &self.writes[id];
            let place = (write.lba..write.lba + write.sectors)
                .find(|other| token_of(id as u64, *other) == token)?;
            Some((id, place))
        });
        match elsewhere {
            Some((id, place)) => format!(
                "lba {lba} holds what write {id} put at {place}{}",
                self.expected(lba)
            ),
            None => format!(
                "lba {lba} holds {token:#018x}, which nobody wrote{}",
                self.expected(lba)
            ),
        }
    }

    fn strange(&self, lba: u64, sector: &[u8]) -> String {
        format!(
            "lba {lba} holds bytes that nobody wrote ({:02x?}...){}",
            &sector[..8],
            self.expected(lba)
        )
    }

    fn expected(&self, lba: u64) -> String {
        let history = &self.sectors[lba as usize].history;
        let of = |id: &WriteId| {
            let write = &self.writes[id.0 as usize];
            let state = match (write.durable, write.acked, write.ended) {
                (Some(_), ..) => "durable",
                (None, Some(_), _) => "acked",
                (None, None, Some(_)) => "ended",
                (None, None, None) => "under way",
            };
            format!("{} {:?} {state}", id.0, write.kind)
        };
        let list: Vec<String> = history.iter().map(of).collect();
        format!(" (its writes: {})", list.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: Payload = Payload::Tokens;

    struct Probe(Oracle);

    impl Probe {
        fn new() -> Probe {
            Probe(Oracle::new(P, 16))
        }

        fn acked(&mut self, lba: u64) -> WriteId {
            let id = self.0.write(lba, 1, WriteKind::Data, false);
            self.0.write_ended(id, true);
            id
        }

        fn flush(&mut self) {
            let ticket = self.0.flush();
            self.0.flush_ended(ticket, true);
        }

        /// What the oracle says to reading `value` now.
        fn reads(&mut self, lba: u64, value: Token) -> Option<Invariant> {
            let ticket = self.0.read(lba, 1);
            let mut sector = [0; 8];
            P.fill(&mut sector, value);
            let read = self.0.read_ended(ticket, &sector);
            read.err().map(|violation| violation.invariant)
        }

        fn value(&self, id: WriteId, lba: u64) -> Token {
            self.0.value(id, lba)
        }
    }

    #[test]
    fn a_new_array_reads_as_zeros() {
        let mut probe = Probe::new();
        assert_eq!(probe.reads(3, 0), None);
        assert_eq!(probe.reads(3, 77), Some(Invariant::MadeUpBytes));
    }

    #[test]
    fn an_acknowledged_write_must_read_back() {
        let mut probe = Probe::new();
        let id = probe.acked(3);
        let value = probe.value(id, 3);
        assert_eq!(probe.reads(3, value), None);
        assert_eq!(probe.reads(3, 0), Some(Invariant::AckedWriteLost));
        assert_eq!(probe.reads(4, value), Some(Invariant::MadeUpBytes));
    }

    #[test]
    fn concurrent_writes_read_as_either_and_then_stay() {
        let mut probe = Probe::new();
        let [a, b] = [(); 2].map(|()| probe.0.write(3, 1, WriteKind::Data, false));
        let (va, vb) = (probe.value(a, 3), probe.value(b, 3));
        assert_eq!([va, vb, 0].map(|value| probe.reads(3, value)), [None; 3]);
        probe.0.write_ended(a, true);
        probe.0.write_ended(b, true);
        assert_eq!(probe.reads(3, 0), Some(Invariant::AckedWriteLost));
        assert_eq!((probe.reads(3, va), probe.reads(3, va)), (None, None));
        assert_eq!(probe.reads(3, vb), Some(Invariant::UnstableRead));
    }

    #[test]
    fn a_read_that_began_before_a_write_may_see_either() {
        let mut probe = Probe::new();
        let early = probe.0.read(3, 1);
        let id = probe.acked(3);
        probe.flush();
        assert!(probe.0.read_ended(early, &[0; 8]).is_ok());
        let early = probe.0.read(3, 1);
        let value = probe.value(id, 3).to_le_bytes();
        assert!(probe.0.read_ended(early, &value).is_ok());
    }

    #[test]
    fn a_crash_brings_back_anything_since_the_flush_and_nothing_older() {
        let mut probe = Probe::new();
        let old = probe.acked(3);
        let flushed = probe.acked(3);
        probe.flush();
        let unflushed = probe.acked(3);
        let cut_short = probe.0.write(3, 1, WriteKind::Data, true);
        assert!(probe.0.unsettled(3) && !probe.0.unsettled(4));
        let values = [old, flushed, unflushed, cut_short].map(|id| probe.value(id, 3));
        let expected = [Some(Invariant::FlushedWriteLost), None, None, None];
        for (value, expected) in values.into_iter().zip(expected) {
            probe.0.crash();
            assert_eq!(probe.reads(3, value), expected);
        }
        assert_eq!(probe.reads(3, 0), Some(Invariant::FlushedWriteLost));
    }

    #[test]
    fn a_flush_does_not_cover_what_was_acknowledged_after_it_was_sent() {
        let mut probe = Probe::new();
        let before = probe.acked(3);
        let ticket = probe.0.flush();
        let after = probe.acked(4);
        probe.0.flush_ended(ticket, true);
        probe.0.crash();
        let (value, later) = (probe.value(before, 3), probe.value(after, 4));
        assert_eq!(probe.reads(3, 0), Some(Invariant::FlushedWriteLost));
        assert_eq!((probe.reads(3, value), probe.reads(4, 0)), (None, None));
        assert_eq!(probe.reads(5, later), Some(Invariant::MadeUpBytes));
    }

    #[test]
    fn forced_unit_access_is_durable_at_once_and_a_failed_write_never() {
        let mut probe = Probe::new();
        let fua = probe.0.write(3, 1, WriteKind::Data, true);
        probe.0.write_ended(fua, true);
        let failed = probe.0.write(4, 1, WriteKind::Data, true);
        probe.0.write_ended(failed, false);
        probe.0.crash();
        assert_eq!(probe.reads(3, 0), Some(Invariant::FlushedWriteLost));
        assert_eq!(probe.reads(4, 0), None);
    }

    #[test]
    fn a_trim_gives_zeros_or_what_was_there() {
        let mut probe = Probe::new();
        let id = probe.acked(3);
        let value = probe.value(id, 3);
        let trim = probe.0.write(3, 1, WriteKind::Trim, false);
        probe.0.write_ended(trim, true);
        assert_eq!(probe.reads(3, value), None);
        assert_eq!(probe.reads(3, 0), Some(Invariant::UnstableRead));
        let exact = probe.0.write(3, 1, WriteKind::Zeroes, false);
        probe.0.write_ended(exact, true);
        assert_eq!(probe.reads(3, 0), None);
        assert_eq!(probe.reads(3, value), Some(Invariant::AckedWriteLost));
    }

    #[test]
    fn histories_are_cut_without_losing_what_may_come_back() {
        let mut probe = Probe::new();
        for _ in 0..100 {
            probe.acked(3);
            probe.flush();
        }
        let last = probe.acked(3);
        assert!(probe.0.sectors[3].history.len() <= HISTORY_KEPT + 2);
        let value = probe.value(last, 3);
        assert_eq!(probe.reads(3, value), None);
        probe.0.crash();
        assert_eq!(probe.reads(3, 0), Some(Invariant::FlushedWriteLost));
    }
}
