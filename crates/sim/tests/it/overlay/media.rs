//! Home and log: what the overlay wants of them is done in any order, and reads find what lies there.

use super::{FIRST, FURTHER, Home, Record, UNIT, World};
use restripe_array::{Buf, BufRef, Request, RequestError, RequestOp, SECTOR_BYTES};
use restripe_sim::payload::{Payload, Token};
use restripe_tier::overlay::{Cleans, Effect, Extent, Kind, Site};

impl World {
    /// Takes up what the overlay wants.
    pub(super) fn collect(&mut self) {
        if self.overlay.is_lapsing() {
            self.overlay.lapsed();
        }
        self.forget_memory();
        while let Some(effect) = self.overlay.effect() {
            match effect {
                Effect::Reply(tag, result) => self.reply(tag, result),
                Effect::Copied(tag, result) => self.copied(tag, result),
                Effect::ExpectWrites { .. } => {}
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
                    self.begin_version(&effect);
                    self.doing.push(effect);
                }
            }
        }
    }

    pub(super) fn written_in_log(&self, effect: &Effect) -> Option<std::ops::Range<u64>> {
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
    pub(super) fn work(&mut self) {
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
            Effect::WritePrimaries { sequence, .. } => {
                self.overlay.primaries_written(sequence, Ok(()))
            }
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
                self.overlay.appended(sequence, Ok(()));
                self.leave_memory(sequence, extents);
            }
            Effect::Flush {
                part,
                site: Site::Nvram,
            } => {
                let result = self.of_buffer();
                self.overlay.part_done(part, result);
            }
            Effect::WriteNvram(_) => {
                let result = self.of_buffer();
                self.overlay.nvram_written(result);
            }
            Effect::DisableNvram => self.overlay.nvram_disabled(),
            Effect::Read { part, .. }
            | Effect::Pass { part, .. }
            | Effect::Flush { part, .. }
            | Effect::Fetch { part, .. }
            | Effect::Destage { part, .. } => self.overlay.part_done(part, Ok(())),
            Effect::Reply(..)
            | Effect::Copied(..)
            | Effect::Moved { .. }
            | Effect::Forget { .. }
            | Effect::ExpectWrites { .. } => {
                unreachable!("words are not work")
            }
        }
        self.collect();
    }

    /// What becomes of what is asked of the log.
    pub(super) fn of_log(&self) -> Result<(), RequestError> {
        match self.overlay.is_broken() {
            true => Err(RequestError::Unavailable),
            false => Ok(()),
        }
    }

    pub(super) fn perform(&mut self, effect: &Effect) {
        match effect {
            Effect::Read {
                home, copy, buf, ..
            } => self.read(*home, *copy, *buf),
            Effect::Pass { request, .. } => {
                self.pass(FIRST, request);
                self.pass(FURTHER, request);
            }
            Effect::WritePrimaries { request, all, .. } => {
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
                site: Site::Log, ..
            } => {
                self.log.iter_mut().for_each(|record| record.durable = true);
            }
            Effect::Flush {
                site: Site::Nvram, ..
            } => self.flush_buffer(),
            Effect::WriteNvram(wanted) => self.keep_version(wanted),
            Effect::DisableNvram => {
                self.count("buffers forgone");
                self.buffer.counts = false;
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
                let most = most.expect("it gathers").destage.pages * 8;
                assert!(kept <= most, "{kept} sectors in memory for {most}");
            }
            Effect::Destage { extents, .. } => {
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
            | Effect::ExpectWrites { .. } => {}
        }
    }

    /// Reads part of the log to be moved, but for what was given up there; now and then it cannot.
    pub(super) fn move_in(&mut self, at: u64, sectors: u32) -> Result<BufRef, RequestError> {
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
    pub(super) fn bring_home(&mut self, extent: &Extent) {
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

    pub(super) fn tokens_of(&self, payload: Option<BufRef>, sectors: u32) -> Vec<Token> {
        match payload {
            Some(buf) => {
                let bytes = &self.memory[&buf.buf][at(buf.offset)..at(buf.offset + buf.bytes)];
                bytes.chunks_exact(UNIT).map(token).collect()
            }
            None => vec![0; sectors as usize],
        }
    }

    pub(super) fn record(
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
    pub(super) fn read(&mut self, home: u64, copy: Option<(Kind, u64)>, buf: BufRef) {
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
    pub(super) fn in_log(&self, at: u64, sectors: u32) -> Vec<Token> {
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

    pub(super) fn pass(&mut self, copy: usize, request: &Request) {
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

    pub(super) fn write_home(&mut self, copy: usize, sector: u64, token: Token) {
        self.home[copy].live[sector as usize] = token;
        self.home[copy].written.push((sector, token));
    }
}

pub(super) fn at(bytes: u32) -> usize {
    Payload::Tokens.scaled(bytes)
}

pub(super) fn token(bytes: &[u8]) -> Token {
    Payload::Tokens
        .token(bytes)
        .expect("eight bytes are a token")
}

/// The sectors that an effect writes at home.
pub(super) fn written_at_home(effect: &Effect) -> Option<(u64, u64)> {
    match effect {
        Effect::Pass { request, .. } => {
            let first = request.offset / SECTOR_BYTES;
            Some((first, first + request.bytes / SECTOR_BYTES))
        }
        Effect::WritePrimaries { request, .. } => {
            let first = request.offset / SECTOR_BYTES;
            Some((first, first + request.bytes / SECTOR_BYTES))
        }
        Effect::Destage { extents, .. } => {
            let last = extents.last().expect("something goes home");
            Some((extents[0].home, last.end()))
        }
        _ => None,
    }
}

pub(super) fn clash(one: &Effect, other: &Effect) -> bool {
    match (written_at_home(one), written_at_home(other)) {
        (Some(one), Some(other)) => one.0 < other.1 && other.0 < one.1,
        _ => false,
    }
}
