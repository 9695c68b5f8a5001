//! What happens to an array while a slot's partitions lie apart, in spare partitions or on several spares,
//! or are rebuilt there: there hosts are lost, former ones come back, and power goes, more often than chance
//! alone brings it about.

use super::coverage::{Hosting, Scene};
use super::directed::IDLE_STEPS;
use super::faults;
use super::life::{IO_TIMEOUT, Life, Run};
use super::plan::Roughness;
use crate::atlas::Atlas;
use crate::fault::Fault;
use crate::invariant::{Invariant, Violation};
use crate::oracle::WriteKind;
use crate::workload::Ask;
use restripe_array::layout::Layout;
use restripe_array::report::{MemberState, MemberStatus};
use restripe_array::{Command, Fact, Member, Nanos, Row, Slot, TaskKind};
use restripe_tier::report::Status;
use std::collections::BTreeSet;

/// The stream that it is drawn from.
const HOSTS: u64 = 0x4057;
/// And that of plots.
const PLOTS: u64 = 0x9107;
/// A plot brings so much about to begin with.
const PROVOKED: u32 = 4;
/// Steps until something happens to them.
const STEPS_MAX: u64 = 400;

/// What is done on purpose, since chance brings its steps together too seldom.
#[derive(Clone, Copy, Debug)]
pub enum Plot {
    /// A host fails, and comes back while what it hosted is on its way to another. Then power goes.
    Return(Return),
    /// A member of a host's group goes as soon as what it hosted is home: its place is needed again. Then power goes, and
    /// superblocks that were on their way do not arrive.
    Handover,
    /// The same, while an operation lingers in that place. Without a crash.
    Linger { host: Option<Member> },
}

/// How far a host is that fails and comes back.
#[derive(Clone, Copy, Debug)]
pub enum Return {
    Serves,
    Gone(Member),
    Back(Member),
}

/// Counted: plots that have come to their end.
pub const HOSTS_BACK: &str = "hosts back while what they hosted is elsewhere";
pub const PLACES_NEEDED: &str = "places needed as soon as they are given up";
pub const PLACES_LINGERED: &str = "places needed while an operation lingers there";

/// A partition was taken, or a task that fills one has ended.
pub fn watch_hosts(run: &mut Run, life: &mut Life) {
    let skewed = run.plan.spec.skew.is_some();
    if skewed && run.options.roughness == Roughness::Faults && life.disturb_after.is_none() {
        let mut rng = life.faults.rng.clone().fork(HOSTS);
        // Soon after, or much later.
        let most = *rng.pick(&[4, 40, 40, STEPS_MAX]);
        life.disturb_after = Some(life.steps + rng.below(most));
    }
}

/// Draws a plot for this life, perhaps. From a stream of its own.
pub fn draw_plot(run: &Run) -> Option<Plot> {
    let hosts = run.plan.spec.spare_partitions > 0;
    let mut rng = run.base.rng.clone().fork(PLOTS);
    let returns = Plot::Return(Return::Serves);
    let plots = [returns, Plot::Handover, Plot::Linger { host: None }];
    let plot = *rng.pick(&plots);
    let hatched = hosts && run.options.roughness == Roughness::Faults && rng.chance(2, 3);
    hatched.then_some(plot)
}

/// Goes on with the plot of this life. `home`: something has just come home.
pub fn advance(run: &mut Run, life: &mut Life, home: bool) {
    let status = life.session.world.status();
    // Copies that a crash left different may be told apart by whoever is lost: that is known to be wrong.
    let mut tasks = status.tasks.iter();
    if tasks.any(|task| task.kind == TaskKind::Resync) {
        return;
    }
    let plot = life.plot;
    life.plot = match plot {
        None => None,
        Some(plot) if set_the_scene(run, life, &status, plot) => Some(plot),
        Some(Plot::Return(stage)) => let_return(run, life, &status, stage).map(Plot::Return),
        Some(plot @ Plot::Handover) if !home => Some(plot),
        Some(Plot::Handover) => {
            if lose_mate(run, life, &status, None) {
                run.base.count(PLACES_NEEDED, 1);
                let steps = life.faults.rng.below(40);
                life.crash_within(steps);
                run.data_alone = true;
            }
            None
        }
        Some(Plot::Linger { host: None }) => {
            let host = let_linger(run, life, &status);
            Some(Plot::Linger { host })
        }
        Some(plot @ Plot::Linger { .. }) if !home => Some(plot),
        Some(Plot::Linger { host }) => {
            if lose_mate(run, life, &status, host) {
                run.base.count(PLACES_LINGERED, 1);
            }
            None
        }
    };
}

/// The next stage.
fn let_return(run: &mut Run, life: &mut Life, status: &Status, stage: Return) -> Option<Return> {
    let find = |member: Member| status.members.iter().find(|line| line.member == member);
    match stage {
        Return::Serves => {
            let serves = Scene::of(status).hosts(Hosting::Serving);
            let host = serves.then(|| pick_host(life, status)).flatten();
            let struck = host.filter(|_| life.faults.rng.chance(1, 2));
            let line = struck.and_then(find);
            run.hosted_last = line.and_then(|line| line.hosts.first().copied());
            match struck.filter(|host| faults::lose_spared(run, life, *host, 6)) {
                Some(host) => Some(Return::Gone(host)),
                None => Some(stage),
            }
        }
        Return::Gone(host) => {
            let failed = find(host).is_some_and(|line| line.state == MemberState::Failed);
            if failed && life.session.world.under_way(host) == 0 {
                touch(run, life, run.hosted_last);
                touch(run, life, run.hosted_last);
                life.session.command(Command::Add(host));
                return Some(Return::Back(host));
            }
            Some(stage)
        }
        Return::Back(host) => {
            let state = find(host).map(|line| line.state);
            if state == Some(MemberState::Active) {
                run.base.count(HOSTS_BACK, 1);
                let steps = life.faults.rng.below(60);
                life.crash_within(steps);
                return None;
            }
            Some(stage)
        }
    }
}

/// An operation on what is about to go home takes long: the host on which it lies.
fn let_linger(run: &mut Run, life: &mut Life, status: &Status) -> Option<Member> {
    let ready = life.session.world.ready();
    let goes = Scene::of(status).hosts(Hosting::GoingHome);
    if !ready || !goes || !life.faults.rng.chance(1, 8) {
        return None;
    }
    let host = pick_host(life, status)?;
    let line = status.members.iter().find(|line| line.member == host)?;
    let hosted = *life.faults.rng.pick(&line.hosts);
    life.faults.suspect(host);
    let delay = (life.faults.rng).between(IO_TIMEOUT.0 / 8, IO_TIMEOUT.0 * 3 / 4);
    let (operations, delay) = (1, Nanos(delay));
    let fault = Fault::Stuck { operations, delay };
    life.session.world.inject(host, fault);
    touch(run, life, Some(hosted));
    Some(host)
}

/// Somebody reads or, mostly, writes in a partition.
fn touch(run: &mut Run, life: &mut Life, partition: Option<(u16, u16)>) {
    let Some((slot, partition)) = partition.filter(|_| life.session.world.ready()) else {
        return;
    };
    let partition_of = |row: &Row| run.base.layout.partition_of(*row) == partition;
    let cells = (0..run.base.layout.rows())
        .map(Row)
        .filter(partition_of)
        .filter_map(|row| {
            let map = run.base.layout.row(row);
            let cell = map.cell_on(Slot(slot)).filter(|cell| *cell < map.data)?;
            Some(run.base.layout.lba(row, cell, 0))
        });
    let lbas: Vec<u64> = cells.collect();
    if lbas.is_empty() {
        return;
    }
    let (lba, sectors) = (*life.faults.rng.pick(&lbas), faults::block_sectors(run));
    let fua = life.faults.rng.chance(1, 2);
    let ask = match life.faults.rng.chance(1, 4) {
        true => Ask::read(lba, sectors),
        false => Ask::write(lba, sectors, WriteKind::Data, fua),
    };
    life.session.issue(ask);
}

/// Has something hosted, and a spare to bring it home to, as far as a plot needs that. True if something was done.
fn set_the_scene(run: &mut Run, life: &mut Life, status: &Status, plot: Plot) -> bool {
    let begins = matches!(
        plot,
        Plot::Return(Return::Serves) | Plot::Handover | Plot::Linger { host: None }
    );
    if !begins
        || !status.tasks.is_empty()
        || life.provoked >= PROVOKED
        || !life.faults.rng.chance(1, 3)
    {
        return false;
    }
    life.provoked += 1;
    let hosts = status.members.iter().any(|line| !line.hosts.is_empty());
    match hosts {
        false => {
            faults::lose_member(run, life, 6);
        }
        true if matches!(plot, Plot::Return(_)) => return false,
        true => faults::arrive(run, life),
    }
    true
}

fn pick_host(life: &mut Life, status: &Status) -> Option<Member> {
    let hosts = |line: &&MemberStatus| line.state == MemberState::Active && !line.hosts.is_empty();
    let hosts = status.members.iter().filter(hosts);
    let hosts: Vec<Member> = hosts.map(|line| line.member).collect();
    (!hosts.is_empty()).then(|| *life.faults.rng.pick(&hosts))
}

/// A member goes that is of one group with this one, or any: where there is room its partitions go to others of the
/// group first.
fn lose_mate(run: &mut Run, life: &mut Life, status: &Status, host: Option<Member>) -> bool {
    let skew = run.plan.spec.skew;
    let size = skew.map_or(1, |skew| run.plan.spec.slots / skew.groups);
    let active = |line: &&MemberStatus| line.state == MemberState::Active;
    let lines = || status.members.iter().filter(active);
    let group = |member: Member| {
        let line = lines().find(|line| line.member == member)?;
        Some(line.slot? / size)
    };
    let of_group = |line: &&MemberStatus| {
        let host = host.and_then(group);
        host.is_none_or(|host| group(line.member) == Some(host))
    };
    // What the loss of one would cost that serves without a record of it yet, the media do not tell.
    let world = &life.session.world;
    let Some(atlas) = Atlas::of(world.disks()) else {
        return false;
    };
    let mates: Vec<Member> = lines()
        .filter(of_group)
        .filter(|line| atlas.serves(line.uuid))
        .map(|line| line.member)
        .filter(|member| Some(*member) != host)
        .collect();
    !mates.is_empty() && {
        let mate = *life.faults.rng.pick(&mates);
        faults::lose_spared(run, life, mate, 6)
    }
}

/// If it is time for that.
pub fn disturb(run: &mut Run, life: &mut Life) {
    let home = std::mem::take(&mut life.came_home);
    let looks = home || life.watchful || life.steps.is_multiple_of(IDLE_STEPS);
    if life.plot.is_some() && looks {
        advance(run, life, home);
    }
    if life.disturb_after.is_none_or(|after| life.steps < after) {
        return;
    }
    life.disturb_after = None;
    match life.faults.rng.below(8) {
        0..=1 => lose_host(run, life),
        2 => {
            faults::lose_member(run, life, 1);
        }
        3 => faults::take_back(run, life),
        4..=5 => faults::arrive(run, life),
        6 => {
            faults::latent_error(run, life);
        }
        _ => {
            let steps = life.faults.rng.below(8);
            life.crash_within(steps);
            if life.faults.rng.chance(1, 2) {
                run.crash_again = true;
                run.plan.lives += 1;
            }
        }
    }
    if life.faults.rng.chance(7, 8) {
        watch_hosts(run, life);
    }
}

/// Whether every row is spread over as many members as it has cells.
pub fn look_for_crowds(run: &mut Run, life: &mut Life, fact: &Fact) {
    let places = matches!(
        fact,
        Fact::PartitionTaken { .. } | Fact::TaskStarted { .. } | Fact::Started { .. }
    );
    if !places || run.plan.spec.spare_partitions == 0 {
        return;
    }
    let status = life.session.world.status();
    if let Some(breach) = crowded(&run.base.layout, &status) {
        life.session.violation(breach.invariant, breach.detail);
    }
}

fn lose_host(run: &mut Run, life: &mut Life) {
    let status = life.session.world.status();
    let active = |line: &&MemberStatus| line.state == MemberState::Active;
    let active: Vec<&MemberStatus> = status.members.iter().filter(active).collect();
    let shares = |line: &&MemberStatus| {
        let slot = active.iter().filter(|other| other.slot == line.slot);
        slot.count() > 1
    };
    let lines = active.iter();
    let apart = lines.filter(|line| !line.hosts.is_empty() || shares(line));
    let hosts: Vec<Member> = apart.map(|line| line.member).collect();
    if !hosts.is_empty() {
        let host = *life.faults.rng.pick(&hosts);
        let way = life.faults.rng.below(7);
        faults::lose_spared(run, life, host, way);
    }
}

/// A member with two cells of a row, or where two may come to lie: its own partitions may be elsewhere and come home.
pub fn crowded(layout: &Layout, status: &Status) -> Option<Violation> {
    let rows = || (0..layout.rows()).map(Row);
    let there = |line: &MemberStatus, row: Row| -> BTreeSet<u16> {
        let partition = layout.partition_of(row);
        let hosted = line.hosts.iter().filter(|(_, other)| *other == partition);
        let hosted = hosted.map(|(slot, _)| *slot);
        let slots: BTreeSet<u16> = hosted.chain(line.slot).collect();
        let cells = layout.row(row);
        let of_row = |slot: &u16| cells.cell_on(Slot(*slot)).is_some();
        slots.into_iter().filter(of_row).collect()
    };
    let hosts = || status.members.iter().filter(|line| !line.hosts.is_empty());
    let crowd = hosts().find_map(|line| {
        let row = rows().find(|row| there(line, *row).len() > 1)?;
        Some((line, row))
    });
    crowd.map(|(line, row)| {
        let slots = there(line, row);
        let member = line.member;
        let detail = format!("{member:?} has the cells of slots {slots:?} in {row:?}");
        Violation::new(Invariant::RowOnOneMember, detail)
    })
}
