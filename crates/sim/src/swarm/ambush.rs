//! Ambushes: incidents that strike while slices do something particular, which chance alone seldom meets.

use super::life::{Life, Run};
use super::plan::Roughness;
use super::stir::HANG;
use crate::atlas::Atlas;
use crate::workload::Ask;
use restripe_array::layout::RowMap;
use restripe_array::meta::WriteHole;
use restripe_array::{Class, Command, DeviceIo, IoOp, Member, Row, ScrubMode};

/// What is waited for, and what happens then.
#[derive(Clone, Copy, Debug)]
enum Trap {
    /// A member goes while slices of a class wait for what they read.
    Reads(Class),
    /// A member goes while slices compute.
    Sums,
    /// A member goes while less than a block is put over a block.
    Merges,
    /// A member goes while a log record's checksum is taken.
    Checks,
    /// What a write is about to replace becomes unreadable, and power goes.
    Torn,
    /// Power goes within a write to several cells, and disks stay away.
    Bereft,
    /// Sectors of one row become unreadable, no two in one block; then the row is read and written.
    Scattered,
    /// There is no space left, while slices of an array short of a member compute and others write.
    Full(Stage),
    /// A member hangs, misses a durable write and is failed; power goes behind the reply.
    Missed(Option<Member>),
}

/// How far a trap with two steps is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Set,
    Ready,
}

#[derive(Clone, Copy, Debug)]
pub struct Ambush {
    trap: Trap,
    /// Looks that are left.
    looks: u32,
}

const LOOKS: u32 = 1500;
/// A strike that redundancy could not have borne costs so many looks.
const REFUSED: u32 = 30;
/// Within so many blocks sectors are scattered.
const SCATTER: u64 = 16;

const TRAPS: [Trap; 16] = [
    Trap::Reads(Class::Parity),
    Trap::Reads(Class::Parity),
    Trap::Reads(Class::Task),
    Trap::Sums,
    Trap::Sums,
    Trap::Torn,
    Trap::Torn,
    Trap::Torn,
    Trap::Bereft,
    Trap::Bereft,
    Trap::Scattered,
    Trap::Scattered,
    Trap::Missed(None),
    Trap::Missed(None),
    Trap::Full(Stage::Set),
    Trap::Full(Stage::Ready),
];

impl Run {
    /// Lays an ambush for this life, perhaps.
    pub fn lay_ambush(&mut self) {
        self.workload.relax();
        self.ambush = None;
        let redundant = self.layout.tolerance() > 0;
        if self.options.roughness < Roughness::Faults || !redundant || self.rng.chance(1, 2) {
            return;
        }
        let logged = self.plan.spec.write_hole == WriteHole::Ppl;
        let trap = match self.rng.below(16) {
            0..=9 if self.plan.unaligned => Trap::Merges,
            10..=11 if self.plan.unaligned => Trap::Full(Stage::Ready),
            0..=2 => Trap::Full(Stage::Set),
            3..=7 | 12..=13 if logged => Trap::Checks,
            _ => *self.rng.pick(&TRAPS),
        };
        if matches!(trap, Trap::Missed(_)) {
            self.workload.insist();
        }
        self.ambush = Some(Ambush { trap, looks: LOOKS });
    }

    /// Whether computations take long in this life, so that the trap meets one.
    pub fn ponders(&self) -> bool {
        let trap = self.ambush.map(|ambush| ambush.trap);
        matches!(trap, Some(Trap::Full(_) | Trap::Checks))
    }

    /// Looks whether the moment has come.
    pub fn lie_in_wait(&mut self, life: &mut Life) {
        let Some(mut ambush) = self.ambush else {
            return;
        };
        let over = match ambush.trap {
            Trap::Reads(class) => {
                let reads = |io: &DeviceIo| io.op == IoOp::Read && io.class == class;
                let busy = members(life, reads);
                chance(life, 1, 8) && self.strike_one(life, &busy, &mut ambush)
            }
            Trap::Sums => {
                let computing = life.session.world.computing();
                computing && chance(life, 1, 8) && self.strike_computing(life, &mut ambush)
            }
            Trap::Merges => {
                let merging = life.session.world.merging();
                merging && chance(life, 1, 4) && self.strike_computing(life, &mut ambush)
            }
            Trap::Checks => {
                let checking = life.session.world.checking();
                checking && chance(life, 1, 2) && self.strike_computing(life, &mut ambush)
            }
            Trap::Torn => chance(life, 1, 8) && self.tear(life, &mut ambush),
            Trap::Bereft => chance(life, 1, 8) && self.bereave(life),
            Trap::Scattered => {
                life.issued > 5 && chance(life, 1, 16) && self.scatter(life, &mut ambush)
            }
            Trap::Full(Stage::Set) => {
                if life.issued > 3 && chance(life, 1, 8) {
                    self.lose_member(life, 6);
                    ambush.trap = Trap::Full(Stage::Ready);
                }
                false
            }
            Trap::Full(Stage::Ready) => self.run_full(life),
            Trap::Missed(None) => {
                if chance(life, 1, 32) {
                    ambush.trap = Trap::Missed(self.hang_one(life));
                }
                false
            }
            Trap::Missed(Some(member)) => self.fail_missing(life, member),
        };
        ambush.looks = ambush.looks.saturating_sub(1);
        self.ambush = (!over && ambush.looks > 0).then_some(ambush);
    }

    /// One of these members goes, or any.
    fn strike_one(&mut self, life: &mut Life, busy: &[Member], ambush: &mut Ambush) -> bool {
        if busy.is_empty() {
            return false;
        }
        let way = *life.stirring.rng.pick(&[0, 1, 1, 6]);
        let struck = if chance(life, 1, 2) {
            let member = *life.stirring.rng.pick(busy);
            self.lose_spared(life, member, way)
        } else {
            self.lose_member(life, way)
        };
        ambush.struck(struck)
    }

    fn strike_computing(&mut self, life: &mut Life, ambush: &mut Ambush) -> bool {
        let way = *life.stirring.rng.pick(&[1, 1, 6]);
        let struck = self.lose_member(life, way);
        ambush.struck(struck)
    }

    /// Some of what is being written becomes unreadable.
    fn tear(&mut self, life: &mut Life, ambush: &mut Ambush) -> bool {
        let writes =
            |io: &DeviceIo| io.op == IoOp::Write && matches!(io.class, Class::User | Class::Parity);
        let world = &life.session.world;
        let places: Vec<(Member, u64, u64)> = world
            .under_way_as(writes)
            .iter()
            .map(|io| (io.member, io.at, io.sectors))
            .collect();
        if places.is_empty() {
            return false;
        }
        let mut struck = false;
        for _ in 0..2 {
            let (member, at, sectors) = *life.stirring.rng.pick(&places);
            let at = at + life.stirring.rng.below(sectors);
            if let Some((slot, at)) = self.place_of(life, member, at) {
                struck |= self.latent_at(life, slot, at);
            }
        }
        if struck {
            let steps = life.stirring.rng.below(4);
            life.crash_within(steps);
        }
        ambush.struck(struck)
    }

    /// What lies at a sector of a member that serves: the slot, and the sector of the slot.
    fn place_of(&self, life: &Life, member: Member, at: u64) -> Option<(u16, u64)> {
        let world = &life.session.world;
        let status = world.status();
        let line = status.members.iter().find(|line| line.member == member)?;
        let disks = world.members().map(|member| world.disk(member));
        Atlas::of(disks)?.slot_sector(line.uuid, at)
    }

    fn bereave(&mut self, life: &mut Life) -> bool {
        let writes = |io: &DeviceIo| io.op == IoOp::Write && io.class == Class::User;
        if members(life, writes).len() < 2 {
            return false;
        }
        let steps = life.stirring.rng.below(3);
        life.crash_within(steps);
        self.bereft = true;
        true
    }

    /// Sectors of a row become unreadable in as many cells as that can bear and one more.
    fn scatter(&mut self, life: &mut Life, ambush: &mut Ambush) -> bool {
        let rng = &mut life.stirring.rng;
        let Some(row) = life.written.map(|lba| self.layout.place(lba).row) else {
            return false;
        };
        let map = self.layout.row(row);
        let (block, chunk) = (self.block_sectors(), self.layout.chunk_sectors());
        let span = (SCATTER * block).min(chunk);
        let base = rng.below(chunk / span) * span;
        let cells = rng.order(usize::from(map.width));
        let count = usize::from(self.layout.tolerance()) + 1;
        let mut hit = Vec::new();
        for cell in cells.into_iter().take(count) {
            let offset = base + life.stirring.rng.below(span / block) * block;
            let place = map.cells[cell];
            if self.latent_at(life, place.slot.0, place.at + offset) {
                hit.push(cell as u8);
            }
        }
        if !hit.is_empty() {
            self.visit(life, row, &map, &hit, (base, span));
        }
        ambush.struck(!hit.is_empty())
    }

    /// Requests, or a task, that meet what is unreadable in a row.
    fn visit(
        &mut self,
        life: &mut Life,
        row: Row,
        map: &RowMap,
        hit: &[u8],
        (base, span): (u64, u64),
    ) {
        self.workload
            .aim(self.layout.lba(row, 0, 0), self.layout.row_sectors());
        let data = hit.iter().copied().find(|cell| *cell < map.data);
        let at = self.layout.lba(row, data.unwrap_or(0), base);
        let ready = life.session.world.ready() && !life.stopping;
        match life.stirring.rng.below(4) {
            0 => {
                life.session.command(Command::Scrub(ScrubMode::Sync));
            }
            1 if ready => super::life::issue(
                &mut life.session,
                Ask::Read {
                    lba: at,
                    sectors: span,
                },
            ),
            2 | 3 if ready => super::life::issue(
                &mut life.session,
                Ask::Write {
                    lba: at,
                    sectors: span,
                    kind: crate::oracle::WriteKind::Data,
                    fua: false,
                    fast: false,
                },
            ),
            _ => {}
        }
    }

    /// A member that redundancy can spare hangs from now on.
    fn hang_one(&mut self, life: &mut Life) -> Option<Member> {
        let members: Vec<Member> = life.session.world.members().collect();
        let member = *life.stirring.rng.pick(&members);
        self.lose_spared(life, member, HANG).then_some(member)
    }

    /// What is being written now will not find space.
    fn run_full(&mut self, life: &mut Life) -> bool {
        let world = &life.session.world;
        let writing = !world.under_way_as(|io| io.op == IoOp::Write).is_empty();
        let computing = if self.plan.unaligned {
            world.merging()
        } else {
            world.computing()
        };
        let odds = if computing { 2 } else { 256 };
        let strikes = writing && chance(life, 1, odds);
        if strikes {
            self.fill_up(life);
        }
        strikes
    }

    /// It has been sent a write that is to be durable, and will not have it; nobody else is busy, so that the next
    /// durable reply is that write's.
    fn fail_missing(&mut self, life: &mut Life, member: Member) -> bool {
        let missed = |io: &DeviceIo| {
            io.member == member && io.op == IoOp::Write && io.class == Class::User && io.durable
        };
        let elsewhere = |io: &DeviceIo| io.member != member;
        if members(life, missed).is_empty() || !members(life, elsewhere).is_empty() {
            return false;
        }
        // The command may bring the reply with it.
        life.crash_at_durable_reply();
        self.swept = true;
        life.session.command(Command::Fail(member));
        true
    }
}

impl Ambush {
    /// Whether it is over: it has struck. A strike that redundancy refused costs looks.
    fn struck(&mut self, struck: bool) -> bool {
        if !struck {
            self.looks = self.looks.saturating_sub(REFUSED);
        }
        struck
    }
}

fn chance(life: &mut Life, of: u64, out_of: u64) -> bool {
    life.stirring.rng.chance(of, out_of)
}

/// The members with operations of a kind under way.
fn members(life: &Life, wanted: impl Fn(&DeviceIo) -> bool) -> Vec<Member> {
    let found = life.session.world.under_way_as(wanted);
    let mut members: Vec<Member> = found.iter().map(|io| io.member).collect();
    members.dedup();
    members
}
