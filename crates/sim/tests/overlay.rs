//! The overlay against the oracle: users' requests, going home and crashes in any order, on a home and a log that keep
//! what was flushed and lose what they like of the rest. Home has two copies; in some runs the first goes ahead (GRAID), and is
//! lost, or the log is.

use restripe_array::destage::Order;
use restripe_array::overlay::{
    Cleans, CopyTag, Effect, Extent, FoundInLog, Homeward, Kind, LogShape, Overlay, OverlayLimits,
    Packing, SealCause, Site,
};
use restripe_array::{Buf, BufRef, Request, RequestError, RequestOp, RequestTag, SECTOR_BYTES};
use restripe_sim::oracle::{FlushTicket, Oracle, ReadTicket, WriteId, WriteKind};
use restripe_sim::payload::{Payload, Token};
use restripe_sim::rng::Rng;
use std::collections::BTreeMap;

const SECTORS: u64 = 96;
/// Small logs run full, large ones hold much when a crash comes.
fn shape(seed: u64) -> LogShape {
    LogShape {
        segments: [7, 16][seed as usize % 2],
        segment_sectors: 96,
        // Some have more for cleaning.
        reserve: 1 + u32::from(seed.is_multiple_of(5)),
        reclaim_below: 4,
        drop_below: 6,
    }
}
/// Some gather what is written.
fn limits(seed: u64) -> OverlayLimits {
    let packing = Packing {
        records: 1 + (seed / 3) as u32 % 3,
        held: 3 + (seed / 9) as u32 % 3,
        homeward: Homeward {
            order: Order::ALL[(seed / 7) as usize % 4],
            stripe_sectors: [8, 32][(seed / 5) as usize % 2],
            run_sectors: 16,
            // Often too few for all, now and then for some stripe.
            pages: [3, 5, 12, 64][(seed / 2) as usize % 4],
        },
    };
    let packs = seed.is_multiple_of(3);
    OverlayLimits {
        extents: 160,
        requests: 8,
        record_sectors: 24,
        copies: 2,
        grain: if packs {
            [8, 16, 24][(seed / 3) as usize % 3]
        } else {
            8
        },
        logless: false,
        slots: None,
        packing: packs.then_some(packing),
    }
}
const UNIT: usize = Payload::Tokens.unit();

/// What a user waits for.
#[derive(Clone, Copy)]
enum Asked {
    Write(WriteId),
    Read(ReadTicket),
    Flush(FlushTicket),
}

struct Copy {
    tag: CopyTag,
    home: u64,
    sectors: u32,
    buf: Buf,
    read: bool,
}

/// A record as it lies in the log.
#[derive(Clone)]
struct Record {
    sequence: u64,
    footprint: std::ops::Range<u64>,
    extents: Vec<Extent>,
    /// From its first sector of payload on.
    contents: Vec<Token>,
    /// All records below were durable when it was written.
    durable_below: u64,
    durable: bool,
}

impl Record {
    fn payload_at(&self) -> u64 {
        self.footprint.start + 8
    }

    fn payload(&self) -> std::ops::Range<u64> {
        self.payload_at()..self.payload_at() + self.contents.len() as u64
    }
}

/// What the log says durably of its records.
#[derive(Default)]
struct Anchor {
    /// All below are durable.
    durable: u64,
    /// Records of a segment below are void.
    void_below: BTreeMap<u32, u64>,
}

impl Anchor {
    fn void(&mut self, segment: u32, below: u64) {
        let held = self.void_below.entry(segment).or_default();
        *held = below.max(*held);
    }
}

/// What a copy of home holds, and may hold after a crash.
struct Home {
    live: Vec<Token>,
    durable: Vec<Token>,
    /// Since the last flush, in order.
    written: Vec<(u64, Token)>,
}

impl Home {
    fn new() -> Home {
        Home {
            live: vec![0; SECTORS as usize],
            durable: vec![0; SECTORS as usize],
            written: Vec::new(),
        }
    }

    fn flush(&mut self) {
        self.durable.clone_from(&self.live);
        self.written.clear();
    }
}

const FIRST: usize = 0;
const FURTHER: usize = 1;

struct World {
    limits: OverlayLimits,
    shape: LogShape,
    rng: Rng,
    oracle: Oracle,
    overlay: Overlay,
    home: [Home; 2],
    /// First copies go ahead of the further ones.
    ahead: bool,
    log: Vec<Record>,
    anchor: Anchor,
    /// Started and not ended, in the order in which they were.
    doing: Vec<Effect>,
    asked: BTreeMap<u64, Asked>,
    /// Clean copies being made: begun, perhaps read, perhaps being appended.
    copies: Vec<Copy>,
    memory: BTreeMap<Buf, Vec<u8>>,
    /// What is gathered in memory, by its sector of the log.
    gathered: BTreeMap<u64, Token>,
    /// What is kept on its way home: by home, with its sector of the log.
    kept: BTreeMap<u64, (u64, Token)>,
    next: u32,
    met: BTreeMap<&'static str, u64>,
}

fn new_log() -> FoundInLog {
    FoundInLog {
        segments: Vec::new(),
        extents: Vec::new(),
        sequence: 1,
    }
}

impl World {
    fn new(seed: u64) -> World {
        World {
            limits: limits(seed),
            shape: shape(seed),
            rng: Rng::new(seed),
            oracle: Oracle::new(Payload::Tokens, SECTORS),
            overlay: Overlay::new(limits(seed), shape(seed), &new_log())
                .expect("nothing was found"),
            home: [Home::new(), Home::new()],
            ahead: seed % 3 == 1,
            log: Vec::new(),
            anchor: Anchor::default(),
            doing: Vec::new(),
            asked: BTreeMap::new(),
            copies: Vec::new(),
            memory: BTreeMap::new(),
            gathered: BTreeMap::new(),
            kept: BTreeMap::new(),
            next: 0,
            met: BTreeMap::new(),
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.met.entry(what).or_default() += 1;
    }

    fn step(&mut self) {
        if self.ahead {
            self.step_ahead();
        }
        match self.rng.below(100) {
            0 if self.overlay.is_broken() => {}
            0 => self.crash(),
            1 if self.rng.chance(1, 2) => {
                self.overlay.seal(SealCause::Age);
                self.collect();
            }
            1 => {
                let next = self.overlay.next_sequence();
                let below = next - self.rng.below(next.min(12));
                match self.rng.chance(1, 4) {
                    true => self.overlay.go_home_for_good(),
                    false => self.overlay.go_home(below),
                }
                self.collect();
            }
            2..=4 if self.limits.packing.is_some() => self.clean(),
            2..=10 => self.copy_in(),
            11..=30 => self.ask(),
            _ => self.work(),
        }
        if self.overlay.is_starved() {
            self.count("starved");
            self.make_room();
        }
    }

    /// By cleaning, where that may win something, or by going home.
    fn make_room(&mut self) {
        let oldest = match self.overlay.cleaned_in_vain() || self.rng.chance(1, 4) {
            true => None,
            false => self.overlay.oldest(),
        };
        match oldest {
            Some(oldest) => self.overlay.clean(oldest),
            None => {
                self.overlay.seal(SealCause::Age);
                self.overlay.go_home(self.overlay.next_sequence());
            }
        }
        self.collect();
    }

    /// The oldest of what was gathered is moved, or that is cut short.
    fn clean(&mut self) {
        if self.overlay.cleans().is_some() {
            if self.rng.chance(1, 60) {
                self.count("cleaning cut short");
                self.overlay.stop_cleaning();
            }
        } else if let Some(oldest) = self.overlay.oldest() {
            self.overlay.clean(oldest);
        }
        self.collect();
    }

    /// First copies are believed again, or lost, or the log is: never both.
    fn step_ahead(&mut self) {
        let overlay = &mut self.overlay;
        let empty = overlay.holds_nothing_instead() && !overlay.is_going_home();
        if !overlay.trusts() && empty && !overlay.is_broken() && self.rng.chance(1, 4) {
            overlay.trust(true);
        } else if overlay.trusts() && !overlay.is_broken() && self.rng.chance(1, 150) {
            self.lose_first();
        } else if overlay.trusts() && !overlay.is_broken() && self.rng.chance(1, 600) {
            self.count("logs lost");
            self.overlay.break_log();
            self.collect();
        }
        if self.overlay.is_broken() && self.rng.chance(1, 20) {
            let next = self.overlay.next_sequence();
            match self.rng.chance(1, 2) {
                true => self.overlay.go_home_for_good(),
                false => self.overlay.go_home(next),
            }
            self.collect();
        }
    }

    /// What was on its way to the first copy arrives nowhere, and a further copy stands in for it.
    fn lose_first(&mut self) {
        self.count("first copies lost");
        self.overlay.trust(false);
        let (besides, others): (Vec<Effect>, Vec<Effect>) = std::mem::take(&mut self.doing)
            .into_iter()
            .partition(|effect| matches!(effect, Effect::Beside { .. }));
        self.doing = others;
        let further = self.home[FURTHER].live.clone();
        self.home[FIRST].live = further;
        self.home[FIRST].flush();
        self.home[FURTHER].flush();
        self.overlay.lapsed();
        for effect in besides {
            if let Effect::Beside { sequence, .. } = effect {
                let error = Err(RequestError::ReadOnly);
                self.overlay.went_beside(sequence, error);
            }
        }
        self.collect();
    }

    // ------------------------------------------------------------------------------------------------------- users

    fn ask(&mut self) {
        if !self.overlay.ready() {
            return;
        }
        let first = self.rng.below(SECTORS);
        let longest = *self.rng.pick(&[1, 4, 16, 40]);
        let sectors = self.rng.between(1, longest).min(SECTORS - first);
        let op = match self.rng.below(12) {
            0 => RequestOp::Flush,
            1 => RequestOp::Trim,
            2 => RequestOp::WriteZeroes { fast: false },
            3..=6 => RequestOp::Read,
            _ => RequestOp::Write,
        };
        let redirect = self.rng.chance(2, 3);
        self.ask_for(op, first, sectors, redirect);
    }

    fn ask_for(&mut self, op: RequestOp, first: u64, sectors: u64, redirect: bool) {
        self.next += 1;
        let buf = Buf(Buf::USER + self.next);
        let fua = self.rng.chance(1, 8);
        let mut contents = vec![0; sectors as usize * UNIT];
        let asked = match op {
            RequestOp::Flush => Asked::Flush(self.oracle.flush()),
            RequestOp::Read => Asked::Read(self.oracle.read(first, sectors)),
            _ => {
                let kind = match op {
                    RequestOp::Trim => WriteKind::Trim,
                    RequestOp::Write => WriteKind::Data,
                    _ => WriteKind::Zeroes,
                };
                let id = self.oracle.write(first, sectors, kind, fua);
                self.oracle.fill(id, &mut contents);
                Asked::Write(id)
            }
        };
        self.memory.insert(buf, contents);
        self.asked.insert(u64::from(self.next), asked);
        let bytes = if op == RequestOp::Flush {
            0
        } else {
            sectors * SECTOR_BYTES
        };
        let request = Request {
            tag: RequestTag(u64::from(self.next)),
            op,
            offset: first * SECTOR_BYTES,
            bytes,
            buf: BufRef::new(buf, 0, bytes as u32),
            fua: fua && matches!(op, RequestOp::Write | RequestOp::WriteZeroes { .. }),
        };
        let redirect = redirect && (!self.ahead || self.overlay.trusts());
        self.overlay.request(request, redirect);
        self.collect();
    }

    /// A clean copy is begun, or read, or appended.
    fn copy_in(&mut self) {
        let Some(index) = self.copies.iter().position(|copy| !copy.read) else {
            return self.begin_copy();
        };
        if self.rng.chance(1, 2) {
            return;
        }
        let copy = &mut self.copies[index];
        copy.read = true;
        let (tag, home, sectors, buf) = (copy.tag, copy.home, copy.sectors, copy.buf);
        let bytes = sectors * SECTOR_BYTES as u32;
        let whole = BufRef::new(buf, 0, bytes);
        self.memory.insert(buf, vec![0; at(bytes)]);
        self.read(home, None, whole);
        // Time passes between the read and what comes of it.
        for _ in 0..self.rng.below(6) {
            self.work();
            self.ask();
        }
        self.overlay.append_copy(tag, whole);
        self.collect();
    }

    fn begin_copy(&mut self) {
        let home = self.rng.below(SECTORS - 24);
        let sectors = self.rng.between(1, 24) as u32;
        if let Some(tag) = self.overlay.begin_copy(home, sectors) {
            self.next += 1;
            let buf = Buf(Buf::USER + self.next);
            self.copies.push(Copy {
                tag,
                home,
                sectors,
                buf,
                read: false,
            });
        }
    }

    fn copied(&mut self, tag: CopyTag, result: Result<(), RequestError>) {
        self.count(if result.is_ok() {
            "copies"
        } else {
            "copies given up"
        });
        let index = self.copies.iter().position(|copy| copy.tag == tag);
        let copy = self.copies.swap_remove(index.expect("it was begun"));
        self.memory.remove(&copy.buf);
    }

    fn reply(&mut self, tag: RequestTag, result: Result<(), RequestError>) {
        let buf = Buf(Buf::USER + tag.0 as u32);
        let contents = self.memory.remove(&buf).expect("asked once");
        match self.asked.remove(&tag.0).expect("replied to once") {
            Asked::Write(id) => self.oracle.write_ended(id, result.is_ok()),
            Asked::Flush(ticket) => self.oracle.flush_ended(ticket, result.is_ok()),
            Asked::Read(ticket) => {
                assert_eq!(result, Ok(()));
                let right = self.oracle.read_ended(ticket, &contents);
                right.unwrap_or_else(|violation| panic!("{violation}"));
            }
        }
    }

    // ------------------------------------------------------------------------------------------------- the media

    /// Takes up what the overlay wants.
    fn collect(&mut self) {
        if self.overlay.is_lapsing() {
            self.overlay.lapsed();
        }
        while let Some(effect) = self.overlay.effect() {
            match effect {
                Effect::Reply(tag, result) => self.reply(tag, result),
                Effect::Copied(tag, result) => self.copied(tag, result),
                Effect::Foresee { .. } => {}
                Effect::Moved { buf } => {
                    self.memory.remove(&buf.buf).expect("it was read");
                }
                Effect::Forget { home, log } => {
                    self.kept
                        .retain(|sector, (at, _)| !home.contains(sector) || !log.contains(at));
                }
                effect => {
                    // What lay there may be gone as soon as it is begun.
                    if let Some(place) = self.written_in_log(&effect) {
                        let apart = |old: &Record| {
                            old.footprint.end <= place.start || place.end <= old.footprint.start
                        };
                        self.log.retain(apart);
                    }
                    self.doing.push(effect);
                }
            }
        }
    }

    fn written_in_log(&self, effect: &Effect) -> Option<std::ops::Range<u64>> {
        let (from, payload) = match effect {
            Effect::Append { extent, .. } => (extent.at - 8, extent.sectors),
            Effect::Seal {
                extents,
                payload_sectors,
                ..
            } => (extents[0].at - 8, *payload_sectors),
            _ => return None,
        };
        let sectors = (8 + payload).next_multiple_of(self.limits.grain);
        Some(from..from + u64::from(sectors))
    }

    /// Ends something that is under way.
    fn work(&mut self) {
        if self.doing.is_empty() {
            return;
        }
        let mut index = self.rng.below(self.doing.len() as u64) as usize;
        // Home keeps the order of writes that overlap.
        while let Some(before) = self.doing[..index]
            .iter()
            .position(|other| clash(other, &self.doing[index]))
        {
            index = before;
        }
        let effect = self.doing.remove(index);
        self.perform(&effect);
        match effect {
            Effect::Append { extent, .. } => {
                let result = self.of_log();
                self.overlay.appended(extent.sequence, result);
            }
            Effect::Beside { sequence, .. } => self.overlay.went_beside(sequence, Ok(())),
            Effect::Void { part, .. }
            | Effect::Reuse { part, .. }
            | Effect::Flush {
                part,
                site: Site::Log,
            } => {
                let result = self.of_log();
                self.overlay.part_done(part, result);
            }
            Effect::Pack { tag, .. } => self.overlay.packed(tag),
            Effect::Move { part, at, sectors } => {
                let read = self.move_in(at, sectors);
                self.overlay.moved_in(part, read);
            }
            Effect::Seal {
                sequence, extents, ..
            } => {
                for extent in extents {
                    for at in extent.at..extent.log_end() {
                        self.gathered.remove(&at);
                    }
                }
                self.overlay.appended(sequence, Ok(()));
            }
            Effect::Read { part, .. }
            | Effect::Pass { part, .. }
            | Effect::Flush { part, .. }
            | Effect::Fetch { part, .. }
            | Effect::CopyHome { part, .. } => self.overlay.part_done(part, Ok(())),
            Effect::Keep { .. } | Effect::Forgo => unreachable!("there is no buffer"),
            Effect::Reply(..)
            | Effect::Copied(..)
            | Effect::Moved { .. }
            | Effect::Forget { .. }
            | Effect::Foresee { .. } => {
                unreachable!("words are not work")
            }
        }
        self.collect();
    }

    /// What becomes of what is asked of the log.
    fn of_log(&self) -> Result<(), RequestError> {
        match self.overlay.is_broken() {
            true => Err(RequestError::Unavailable),
            false => Ok(()),
        }
    }

    fn perform(&mut self, effect: &Effect) {
        match effect {
            Effect::Read {
                home, copy, buf, ..
            } => self.read(*home, *copy, *buf),
            Effect::Pass { request, .. } => {
                self.pass(FIRST, request);
                self.pass(FURTHER, request);
            }
            Effect::Beside { request, all, .. } => {
                self.count("writes beside");
                self.pass(FIRST, request);
                if *all {
                    self.count("writes mended");
                    self.pass(FURTHER, request);
                }
            }
            Effect::Flush {
                site: Site::Home, ..
            } => self.home.iter_mut().for_each(Home::flush),
            Effect::Flush {
                site: Site::Log | Site::Buffer,
                ..
            } => {
                self.log.iter_mut().for_each(|record| record.durable = true);
            }
            Effect::Append {
                extent,
                payload,
                durable,
            } => {
                let footprint = self.written_in_log(effect).expect("it is written");
                let record = self.record(*extent, *payload, *durable, footprint);
                self.log.push(record);
            }
            Effect::Pack { extent, source, .. } => {
                let tokens = self.tokens_of(*source, extent.sectors);
                for (at, token) in (extent.at..).zip(tokens) {
                    if self.gathered.insert(at, token).is_some() {
                        self.count("written over in memory");
                    }
                }
            }
            Effect::Seal {
                sequence,
                extents,
                payload_sectors,
                durable,
                ..
            } => {
                let footprint = self.written_in_log(effect).expect("it is written");
                let first = footprint.start + 8;
                let payload = first..first + u64::from(*payload_sectors);
                if extents.len() > 1 {
                    self.count("records of several extents");
                }
                self.log.push(Record {
                    sequence: *sequence,
                    footprint,
                    extents: extents.clone(),
                    contents: payload.map(|at| self.gathered[&at]).collect(),
                    durable_below: *durable,
                    durable: false,
                });
            }
            Effect::Fetch { pieces, .. } => {
                for piece in pieces {
                    let contents = self.in_log(piece.at, piece.sectors);
                    for ((home, at), token) in (piece.home..).zip(piece.at..).zip(contents) {
                        self.kept.insert(home, (at, token));
                    }
                }
                let (most, kept) = (self.limits.packing, self.kept.len() as u64);
                let most = most.expect("it gathers").homeward.pages * 8;
                assert!(kept <= most, "{kept} sectors in memory for {most}");
            }
            Effect::CopyHome { extents, .. } => {
                for extent in extents {
                    self.bring_home(extent);
                }
            }
            Effect::Void { below, .. } => {
                if self.overlay.cleans() == Some(Cleans::Voiding) {
                    self.count("void after all was moved");
                }
                self.anchor.durable = self.anchor.durable.max(*below);
                (0..self.shape.segments).for_each(|segment| self.anchor.void(segment, *below));
            }
            Effect::Reuse {
                segment, durable, ..
            } => {
                self.anchor.durable = self.anchor.durable.max(*durable);
                self.anchor.void(*segment, *durable);
                let held = |record: &&Record| self.segment_of(record.footprint.start) == *segment;
                let newest = self.log.iter().filter(held).map(|record| record.sequence);
                assert!(
                    newest.max() < Some(*durable),
                    "a record is written over that counts"
                );
            }
            Effect::Move { .. }
            | Effect::Reply(..)
            | Effect::Copied(..)
            | Effect::Moved { .. }
            | Effect::Forget { .. }
            | Effect::Keep { .. }
            | Effect::Forgo
            | Effect::Foresee { .. } => {}
        }
    }

    /// Reads part of the log to be moved, but for what was given up there; now and then it cannot.
    fn move_in(&mut self, at: u64, sectors: u32) -> Result<BufRef, RequestError> {
        if self.rng.chance(1, 100) {
            self.count("not to be moved");
            return Err(RequestError::Unavailable);
        }
        let mut contents = vec![0; sectors as usize * UNIT];
        for (place, at) in contents.chunks_exact_mut(UNIT).zip(at..) {
            let holds = |record: &&Record| record.payload().contains(&at);
            if let Some(record) = self.log.iter().find(holds) {
                let token = record.contents[(at - record.payload_at()) as usize];
                Payload::Tokens.fill(place, token);
            }
        }
        self.next += 1;
        let buf = Buf(Buf::USER + self.next);
        self.memory.insert(buf, contents);
        Ok(BufRef::new(buf, 0, sectors * SECTOR_BYTES as u32))
    }

    /// From memory, where that has it.
    fn bring_home(&mut self, extent: &Extent) {
        if extent.kind == Kind::Also {
            self.count("brought to further copies");
            for home in extent.home..extent.end() {
                let token = self.home[FIRST].live[home as usize];
                self.write_home(FURTHER, home, token);
            }
            return;
        }
        for (home, at) in (extent.home..extent.end()).zip(extent.at..) {
            let kept = self.kept.get(&home).filter(|kept| kept.0 == at).copied();
            let token = match kept {
                Some((_, token)) => {
                    self.count("brought home from memory");
                    token
                }
                None => self.in_log(at, 1)[0],
            };
            self.write_home(FIRST, home, token);
            self.write_home(FURTHER, home, token);
        }
    }

    fn tokens_of(&self, payload: Option<BufRef>, sectors: u32) -> Vec<Token> {
        match payload {
            Some(buf) => {
                let bytes = &self.memory[&buf.buf][at(buf.offset)..at(buf.offset + buf.bytes)];
                bytes.chunks_exact(UNIT).map(token).collect()
            }
            None => vec![0; sectors as usize],
        }
    }

    fn record(
        &self,
        extent: Extent,
        payload: Option<BufRef>,
        durable_below: u64,
        footprint: std::ops::Range<u64>,
    ) -> Record {
        Record {
            sequence: extent.sequence,
            footprint,
            extents: vec![extent],
            contents: self.tokens_of(payload, extent.sectors),
            durable_below,
            durable: false,
        }
    }

    /// What home alone has is the same in both copies, but for what is being written.
    fn read(&mut self, home: u64, copy: Option<(Kind, u64)>, buf: BufRef) {
        let sectors = buf.bytes / SECTOR_BYTES as u32;
        let either = self.rng.below(2) as usize;
        let trusts = self.overlay.trusts();
        let at_home =
            |copy: usize| self.home[copy].live[home as usize..][..sectors as usize].to_vec();
        let tokens = match copy {
            None => at_home(either),
            Some((Kind::Also, _)) if trusts => at_home(FIRST),
            Some((_, at)) => self.in_log(at, sectors),
        };
        let memory = self
            .memory
            .get_mut(&buf.buf)
            .expect("it is being read into");
        let target = &mut memory[at(buf.offset)..at(buf.offset + buf.bytes)];
        for (place, token) in target.chunks_exact_mut(UNIT).zip(tokens) {
            Payload::Tokens.fill(place, token);
        }
    }

    /// What a place of the log holds. That it was written over is a failure.
    fn in_log(&self, at: u64, sectors: u32) -> Vec<Token> {
        let place = |at: u64| {
            if let Some(token) = self.gathered.get(&at) {
                return *token;
            }
            let holds = |record: &&Record| record.payload().contains(&at);
            let record = self.log.iter().find(holds).expect("what counts is there");
            record.contents[(at - record.payload_at()) as usize]
        };
        (at..at + u64::from(sectors)).map(place).collect()
    }

    fn pass(&mut self, copy: usize, request: &Request) {
        let first = request.offset / SECTOR_BYTES;
        let sectors = request.bytes / SECTOR_BYTES;
        for i in 0..sectors {
            let token = match request.op {
                RequestOp::Write => token(
                    &self.memory[&request.buf.buf][at(request.buf.offset) + i as usize * UNIT..]
                        [..UNIT],
                ),
                _ => 0,
            };
            self.write_home(copy, first + i, token);
        }
        if request.fua {
            let home = &mut self.home[copy];
            for sector in first..first + sectors {
                home.durable[sector as usize] = home.live[sector as usize];
            }
            home.written
                .retain(|(sector, _)| !(first..first + sectors).contains(sector));
        }
    }

    fn write_home(&mut self, copy: usize, sector: u64, token: Token) {
        self.home[copy].live[sector as usize] = token;
        self.home[copy].written.push((sector, token));
    }

    // ----------------------------------------------------------------------------------------------------- crashes

    fn crash(&mut self) {
        let stage = self.doing.iter().map(|effect| match effect {
            Effect::CopyHome { .. } => "crash while copying",
            Effect::Void { .. } => "crash while voiding",
            Effect::Append { .. } => "crash while appending",
            Effect::Seal { .. } => "crash while sealing",
            Effect::Pack { .. } => "crash while packing",
            Effect::Move { .. } => "crash while moving",
            _ => "crash",
        });
        let stages: Vec<&str> = stage.collect();
        stages.into_iter().for_each(|stage| self.count(stage));
        self.cut_short();
        for home in &mut self.home {
            home.live.clone_from(&home.durable);
            for (sector, token) in std::mem::take(&mut home.written) {
                if self.rng.chance(1, 2) {
                    home.live[sector as usize] = token;
                }
            }
        }
        // Every region is in doubt: copies are brought in step.
        let source = match self.rng.chance(1, 4) {
            true => FURTHER,
            false => FIRST,
        };
        let live = self.home[source].live.clone();
        for home in &mut self.home {
            home.live.clone_from(&live);
            home.flush();
        }
        let found = self.recover();
        self.overlay = Overlay::new(self.limits, self.shape, &found)
            .expect("no more is found than was mapped");
        self.asked.clear();
        self.copies.clear();
        self.memory.clear();
        self.gathered.clear();
        self.kept.clear();
        self.oracle.crash();
        self.read_all();
        if self.rng.chance(1, 2) {
            // What was read once is read again, wherever it lies by then.
            self.settle();
        }
    }

    fn read_all(&mut self) {
        self.ask_for(RequestOp::Read, 0, SECTORS, false);
        self.drain();
    }

    /// What was under way may have been done, or not; what was not flushed may be gone.
    fn cut_short(&mut self) {
        for effect in std::mem::take(&mut self.doing) {
            let done = self.rng.chance(1, 3);
            if done && !matches!(effect, Effect::Flush { .. } | Effect::Read { .. }) {
                self.perform(&effect);
            }
        }
        let rng = &mut self.rng;
        self.log.retain(|record| record.durable || rng.chance(2, 3));
    }

    /// The records that count: those not void, up to the first that is missing of what was not known to be durable.
    fn recover(&mut self) -> FoundInLog {
        self.log.sort_by_key(|record| record.sequence);
        let above = self.log.last().map_or(1, |last| last.sequence + 1);
        let sequence = above.max(self.overlay.next_sequence());
        let known = self
            .log
            .iter()
            .map(|record| record.durable_below)
            .max()
            .unwrap_or(0);
        let mut next = known.max(self.anchor.durable);
        let mut counted = 0;
        for record in &self.log {
            if record.sequence >= next {
                if record.sequence > next {
                    break;
                }
                next += 1;
            }
            counted += 1;
        }
        if counted < self.log.len() {
            self.count("records behind a gap");
        }
        // What does not count is wiped, so that no later start takes it for the continuation of something.
        self.log.truncate(counted);
        self.log.iter_mut().for_each(|record| record.durable = true);
        let standing = |record: &&Record| {
            let segment = self.segment_of(record.footprint.start);
            let void_below = self.anchor.void_below.get(&segment);
            void_below.is_none_or(|below| record.sequence >= *below)
        };
        let standing = self.log.iter().filter(standing);
        let extents = standing.flat_map(|record| record.extents.iter().copied());
        let extents: Vec<Extent> = extents.filter(|one| one.kind != Kind::Clean).collect();
        let mut segments: Vec<u32> = Vec::new();
        for extent in &extents {
            let segment = self.segment_of(extent.at);
            segments.retain(|held| *held != segment);
            segments.push(segment);
        }
        FoundInLog {
            segments,
            extents,
            sequence,
        }
    }

    fn segment_of(&self, at: u64) -> u32 {
        (at / u64::from(self.shape.segment_sectors)) as u32
    }

    // ------------------------------------------------------------------------------------------------------- an end

    /// Lets everything end, brings all home, and reads all of it.
    fn settle(&mut self) {
        self.drain();
        self.overlay.seal(SealCause::Age);
        self.collect();
        self.drain();
        self.overlay.go_home(self.overlay.next_sequence());
        self.collect();
        self.drain();
        assert!(
            self.overlay.map().is_empty() && !self.overlay.is_going_home(),
            "left: {:?}, trusts {} broken {} going {} fell {} closing {}",
            self.overlay.map().extents_from(0).collect::<Vec<_>>(),
            self.overlay.trusts(),
            self.overlay.is_broken(),
            self.overlay.is_going_home(),
            self.overlay.fell_short(),
            self.overlay.is_closing()
        );
        self.read_all();
        assert!(self.asked.is_empty());
    }

    fn drain(&mut self) {
        while !self.doing.is_empty() || !self.asked.is_empty() {
            if self.overlay.is_starved() {
                self.make_room();
            }
            assert!(!self.doing.is_empty(), "somebody waits for nothing");
            self.work();
        }
    }
}

fn at(bytes: u32) -> usize {
    Payload::Tokens.scaled(bytes)
}

fn token(bytes: &[u8]) -> Token {
    Payload::Tokens
        .token(bytes)
        .expect("eight bytes are a token")
}

/// The sectors that an effect writes at home.
fn written_at_home(effect: &Effect) -> Option<(u64, u64)> {
    match effect {
        Effect::Pass { request, .. } => {
            let first = request.offset / SECTOR_BYTES;
            Some((first, first + request.bytes / SECTOR_BYTES))
        }
        Effect::Beside { request, .. } => {
            let first = request.offset / SECTOR_BYTES;
            Some((first, first + request.bytes / SECTOR_BYTES))
        }
        Effect::CopyHome { extents, .. } => {
            let last = extents.last().expect("something goes home");
            Some((extents[0].home, last.end()))
        }
        _ => None,
    }
}

fn clash(one: &Effect, other: &Effect) -> bool {
    match (written_at_home(one), written_at_home(other)) {
        (Some(one), Some(other)) => one.0 < other.1 && other.0 < one.1,
        _ => false,
    }
}

#[test]
fn what_was_told_is_read_whatever_happens() {
    let mut met: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..1000 {
        let mut world = World::new(seed);
        for _ in 0..1500 {
            world.step();
        }
        world.settle();
        let counters = world.overlay.counters();
        world.met.insert("read from both", counters.reads_of_both);
        world.met.insert("sectors home", counters.sectors_home);
        world.met.insert("cleanings", counters.cleanings);
        world.met.insert("sectors moved", counters.sectors_moved);
        world.met.insert("copies spoiled", counters.copies_spoiled);
        world.met.insert("clusters read", counters.clusters_read);
        world
            .met
            .insert("clusters read again", counters.clusters_reread);
        for (what, count) in world.met {
            *met.entry(what).or_default() += count;
        }
    }
    println!("{met:?}");
    for what in [
        "crash while copying",
        "crash while voiding",
        "crash while appending",
        "crash while packing",
        "crash while sealing",
        "crash while moving",
        "cleanings",
        "cleaning cut short",
        "void after all was moved",
        "sectors moved",
        "not to be moved",
        "records of several extents",
        "written over in memory",
        "records behind a gap",
        "read from both",
        "sectors home",
        "copies",
        "copies spoiled",
        "clusters read",
        "clusters read again",
        "brought home from memory",
        "starved",
        "writes beside",
        "brought to further copies",
        "first copies lost",
        "logs lost",
    ] {
        assert!(
            met.get(what).is_some_and(|count| *count > 20),
            "{what}: {met:?}"
        );
    }
}
