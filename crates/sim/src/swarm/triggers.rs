//! Triggered faults: incidents that strike while slices do something particular, which chance alone seldom
//! meets.

use super::faults;
use super::faults::HANG;
use super::life::{Life, Run};
use super::plan::Roughness;
use crate::atlas::Atlas;
use crate::oracle::WriteKind;
use crate::workload::Ask;
use restripe_array::layout::RowMap;
use restripe_array::meta::WriteHole;
use restripe_array::{Class, Command, DeviceIo, IoOp, Member, Row};

/// What is waited for, and what happens then.
#[derive(Clone, Copy, Debug)]
enum Condition {
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
    DisksAway,
    /// Sectors of one row become unreadable, no two in one block; then the row is read and written.
    Scattered,
    /// There is no space left, while slices of an array short of a member compute and others write.
    Full(Stage),
    /// A member hangs, misses a durable write and is failed; power goes behind the reply.
    Missed(Option<Member>),
}

/// How far a condition with two steps is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Set,
    Ready,
}

#[derive(Clone, Copy, Debug)]
pub struct Trigger {
    condition: Condition,
    /// Looks that are left.
    looks: u32,
}

const LOOKS: u32 = 1500;
/// A strike that redundancy could not have borne costs so many looks.
const REFUSED: u32 = 30;
/// Within so many blocks sectors are scattered.
const SCATTER: u64 = 16;

const TRAPS: [Condition; 16] = [
    Condition::Reads(Class::Parity),
    Condition::Reads(Class::Parity),
    Condition::Reads(Class::Task),
    Condition::Sums,
    Condition::Sums,
    Condition::Torn,
    Condition::Torn,
    Condition::Torn,
    Condition::DisksAway,
    Condition::DisksAway,
    Condition::Scattered,
    Condition::Scattered,
    Condition::Missed(None),
    Condition::Missed(None),
    Condition::Full(Stage::Set),
    Condition::Full(Stage::Ready),
];

/// Sets a triggered fault for this life, perhaps.
pub fn lay(run: &mut Run) {
    run.base.workload.relax();
    run.trigger = None;
    let redundant = run.base.layout.tolerance() > 0;
    if run.options.roughness < Roughness::Faults || !redundant || run.base.rng.chance(1, 2) {
        return;
    }
    let logged = run.plan.spec.write_hole == WriteHole::Ppl;
    let condition = match run.base.rng.below(16) {
        0..=9 if run.plan.unaligned => Condition::Merges,
        10..=11 if run.plan.unaligned => Condition::Full(Stage::Ready),
        0..=2 => Condition::Full(Stage::Set),
        3..=7 | 12..=13 if logged => Condition::Checks,
        _ => *run.base.rng.pick(&TRAPS),
    };
    if matches!(condition, Condition::Missed(_)) {
        run.base.workload.insist();
    }
    run.trigger = Some(Trigger {
        condition,
        looks: LOOKS,
    });
}

/// Whether computations take long in this life, so that the condition meets one.
pub fn ponders(run: &Run) -> bool {
    let condition = run.trigger.map(|trigger| trigger.condition);
    matches!(condition, Some(Condition::Full(_) | Condition::Checks))
}

/// Looks whether the moment has come.
pub fn look(run: &mut Run, life: &mut Life) {
    let Some(mut trigger) = run.trigger else {
        return;
    };
    let over = match trigger.condition {
        Condition::Reads(class) => {
            let reads = |io: &DeviceIo| io.op == IoOp::Read && io.class == class;
            let busy = members(life, reads);
            chance(life, 1, 8) && strike_one(run, life, &busy, &mut trigger)
        }
        Condition::Sums => {
            let computing = life.session.world.computing();
            computing && chance(life, 1, 8) && strike_computing(run, life, &mut trigger)
        }
        Condition::Merges => {
            let merging = life.session.world.merging();
            merging && chance(life, 1, 4) && strike_computing(run, life, &mut trigger)
        }
        Condition::Checks => {
            let checking = life.session.world.checking();
            checking && chance(life, 1, 2) && strike_computing(run, life, &mut trigger)
        }
        Condition::Torn => chance(life, 1, 8) && tear(run, life, &mut trigger),
        Condition::DisksAway => chance(life, 1, 8) && bereave(run, life),
        Condition::Scattered => {
            life.issued > 5 && chance(life, 1, 16) && scatter(run, life, &mut trigger)
        }
        Condition::Full(Stage::Set) => {
            if life.issued > 3 && chance(life, 1, 8) {
                faults::lose_member(run, life, 6);
                trigger.condition = Condition::Full(Stage::Ready);
            }
            false
        }
        Condition::Full(Stage::Ready) => run_full(run, life),
        Condition::Missed(None) => {
            if chance(life, 1, 32) {
                trigger.condition = Condition::Missed(hang_one(run, life));
            }
            false
        }
        Condition::Missed(Some(member)) => fail_missing(run, life, member),
    };
    trigger.looks = trigger.looks.saturating_sub(1);
    run.trigger = (!over && trigger.looks > 0).then_some(trigger);
}

/// One of these members goes, or any.
fn strike_one(run: &mut Run, life: &mut Life, busy: &[Member], trigger: &mut Trigger) -> bool {
    if busy.is_empty() {
        return false;
    }
    let way = *life.faults.rng.pick(&[0, 1, 1, 6]);
    let struck = if chance(life, 1, 2) {
        let member = *life.faults.rng.pick(busy);
        faults::lose_spared(run, life, member, way)
    } else {
        faults::lose_member(run, life, way)
    };
    trigger.struck(struck)
}

fn strike_computing(run: &mut Run, life: &mut Life, trigger: &mut Trigger) -> bool {
    let way = *life.faults.rng.pick(&[1, 1, 6]);
    let struck = faults::lose_member(run, life, way);
    trigger.struck(struck)
}

/// Some of what is being written becomes unreadable.
fn tear(run: &mut Run, life: &mut Life, trigger: &mut Trigger) -> bool {
    let writes =
        |io: &DeviceIo| io.op == IoOp::Write && matches!(io.class, Class::User | Class::Parity);
    let world = &life.session.world;
    let writes = world.under_way_as(writes).into_iter();
    let places: Vec<(Member, u64, u64)> = writes.map(|io| (io.member, io.at, io.sectors)).collect();
    if places.is_empty() {
        return false;
    }
    let mut struck = false;
    for _ in 0..2 {
        let (member, at, sectors) = *life.faults.rng.pick(&places);
        let at = at + life.faults.rng.below(sectors);
        if let Some((slot, at)) = place_of(life, member, at) {
            struck |= faults::latent_at(run, life, slot, at);
        }
    }
    if struck {
        let steps = life.faults.rng.below(4);
        life.crash_within(steps);
    }
    trigger.struck(struck)
}

/// What lies at a sector of a member that serves: the slot, and the sector of the slot.
fn place_of(life: &Life, member: Member, at: u64) -> Option<(u16, u64)> {
    let world = &life.session.world;
    let status = world.status();
    let line = status.members.iter().find(|line| line.member == member)?;
    let disks = world.disks();
    Atlas::of(disks)?.slot_sector(line.uuid, at)
}

fn bereave(run: &mut Run, life: &mut Life) -> bool {
    let writes = |io: &DeviceIo| io.op == IoOp::Write && io.class == Class::User;
    if members(life, writes).len() < 2 {
        return false;
    }
    let steps = life.faults.rng.below(3);
    life.crash_within(steps);
    run.disks_away = true;
    true
}

/// Sectors of a row become unreadable in as many cells as that can bear and one more.
fn scatter(run: &mut Run, life: &mut Life, trigger: &mut Trigger) -> bool {
    let rng = &mut life.faults.rng;
    let Some(row) = life.written.map(|lba| run.base.layout.place(lba).row) else {
        return false;
    };
    let map = run.base.layout.row(row);
    let (block, chunk) = (faults::block_sectors(run), run.base.layout.chunk_sectors());
    let span = (SCATTER * block).min(chunk);
    let base = rng.below(chunk / span) * span;
    let cells = rng.order(usize::from(map.width));
    let count = usize::from(run.base.layout.tolerance()) + 1;
    let mut hit = Vec::new();
    for cell in cells.into_iter().take(count) {
        let offset = base + life.faults.rng.below(span / block) * block;
        let place = map.cells[cell];
        if faults::latent_at(run, life, place.slot.0, place.at + offset) {
            hit.push(cell as u8);
        }
    }
    if !hit.is_empty() {
        visit(run, life, row, &map, &hit, (base, span));
    }
    trigger.struck(!hit.is_empty())
}

/// Requests, or a task, that meet what is unreadable in a row.
fn visit(
    run: &mut Run,
    life: &mut Life,
    row: Row,
    map: &RowMap,
    hit: &[u8],
    (base, span): (u64, u64),
) {
    run.base.aim_at_row(row);
    let data = hit.iter().copied().find(|cell| *cell < map.data);
    let at = run.base.layout.lba(row, data.unwrap_or(0), base);
    let ready = life.session.world.ready() && !life.stopping;
    match life.faults.rng.below(4) {
        0 => life.session.scrub(true),
        1 if ready => life.session.issue(Ask::read(at, span)),
        2 | 3 if ready => life
            .session
            .issue(Ask::write(at, span, WriteKind::Data, false)),
        _ => {}
    }
}

/// A member that redundancy can spare hangs from now on.
fn hang_one(run: &mut Run, life: &mut Life) -> Option<Member> {
    let members: Vec<Member> = life.session.world.members().collect();
    let member = *life.faults.rng.pick(&members);
    faults::lose_spared(run, life, member, HANG).then_some(member)
}

/// What is being written now will not find space.
fn run_full(run: &mut Run, life: &mut Life) -> bool {
    let world = &life.session.world;
    let writing = !world.under_way_as(|io| io.op == IoOp::Write).is_empty();
    let computing = if run.plan.unaligned {
        world.merging()
    } else {
        world.computing()
    };
    let odds = if computing { 2 } else { 256 };
    let strikes = writing && chance(life, 1, odds);
    if strikes {
        faults::fill_up(run, life);
    }
    strikes
}

/// It has been sent a write that is to be durable, and will not have it; nobody else is busy, so that the next
/// durable reply is that write's.
fn fail_missing(run: &mut Run, life: &mut Life, member: Member) -> bool {
    let missed = |io: &DeviceIo| {
        io.member == member && io.op == IoOp::Write && io.class == Class::User && io.durable
    };
    let elsewhere = |io: &DeviceIo| io.member != member;
    if members(life, missed).is_empty() || !members(life, elsewhere).is_empty() {
        return false;
    }
    // The command may bring the reply with it.
    life.crash_at_durable_reply();
    run.swept = true;
    life.session.command(Command::Fail(member));
    true
}

impl Trigger {
    /// Whether it is over: it has struck. A strike that redundancy refused costs looks.
    fn struck(&mut self, struck: bool) -> bool {
        if !struck {
            self.looks = self.looks.saturating_sub(REFUSED);
        }
        struck
    }
}

fn chance(life: &mut Life, of: u64, out_of: u64) -> bool {
    life.faults.rng.chance(of, out_of)
}

/// The members with operations of a kind under way.
fn members(life: &Life, wanted: impl Fn(&DeviceIo) -> bool) -> Vec<Member> {
    let found = life.session.world.under_way_as(wanted);
    let mut members: Vec<Member> = found.iter().map(|io| io.member).collect();
    members.dedup();
    members
}
