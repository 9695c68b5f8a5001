//! Crashes: what is left of home and log, and what a start finds there.

use super::{FIRST, FURTHER, Record, SECTORS, World};
use restripe_array::RequestOp;
use restripe_tier::overlay::{Effect, Extent, FoundInLog, Kind, Overlay};

impl World {
    pub(super) fn crash(&mut self) {
        let stage = self.doing.iter().map(|effect| match effect {
            Effect::Destage { .. } => "crash while copying",
            Effect::Void { .. } => "crash while voiding",
            Effect::Append { .. } => "crash while appending",
            Effect::Seal { .. } => "crash while sealing",
            Effect::Pack { .. } => "crash while packing",
            Effect::Move { .. } => "crash while moving",
            Effect::WriteNvram(_) => "crash while keeping",
            _ => "crash",
        });
        let stages: Vec<&str> = stage.collect();
        stages.into_iter().for_each(|stage| self.count(stage));
        if self.buffer.fails && self.buffer.counts {
            self.count("crash while a buffer fails");
        }
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
        self.begin_buffer(found.sequence);
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

    pub(super) fn read_all(&mut self) {
        self.ask_for(RequestOp::Read, 0, SECTORS, false);
        self.drain();
    }

    /// What was under way may have been done, or not; what was not flushed may be gone.
    pub(super) fn cut_short(&mut self) {
        for effect in std::mem::take(&mut self.doing) {
            let done = self.rng.chance(1, 3);
            if done && !matches!(effect, Effect::Flush { .. } | Effect::Read { .. }) {
                self.perform(&effect);
            }
        }
        let rng = &mut self.rng;
        self.log.retain(|record| record.durable || rng.chance(2, 3));
        self.cut_buffer();
    }

    /// The records that count: those not void, up to the first that is missing of what was not known to be durable.
    pub(super) fn recover(&mut self) -> FoundInLog {
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
        self.move_from_buffer(next);
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

    /// Records that the log lacks, from this one on and up to the first that nobody has, are brought there. One that was still open
    /// when its version was written may have others behind it: it was closed with nothing new.
    fn move_from_buffer(&mut self, mut next: u64) {
        let mut open = false;
        loop {
            if self.log.iter().all(|record| record.sequence != next) {
                let Some((record, closed)) = self.in_buffer(next) else {
                    break;
                };
                let new = record.footprint.clone();
                let apart =
                    |old: &Record| old.footprint.end <= new.start || new.end <= old.footprint.start;
                self.log.retain(apart);
                self.log.push(record);
                self.count("records from the buffer");
                if open {
                    self.count("records from the buffer behind an open one");
                }
                open |= !closed;
            }
            next += 1;
        }
        self.log.sort_by_key(|record| record.sequence);
    }

    pub(super) fn segment_of(&self, at: u64) -> u32 {
        (at / u64::from(self.shape.segment_sectors)) as u32
    }
}
