//! What happens to the members of both sets while a life goes on.

use super::coverage::{Incident, Phase};
use super::{Event, IO_TIMEOUT, Life, Moment, Run, Site, disk, overlay, set_of, spec_of};
use super::{buffer, directed, removal, rot};
use crate::array::earlier;
use crate::fault::Fault;
use crate::invariant::Invariant;
use crate::world::members_in;
use restripe_array::layout::Level;
use restripe_array::report::Status as SetStatus;
use restripe_array::report::{MapExtent, MemberState};
use restripe_array::{Command, Member, Nanos, TaskKind};

/// The stream that it is drawn from who is cut off with most of a surrogate.
const MOST: u64 = 0x305;

/// What is told with room for a few extents is what is told of the same sectors with room for all.
fn look_at_map(run: &mut Run, life: &mut Life) {
    let sectors = run.base.layout.size_sectors();
    let engine = life.session.world.machine();
    let [mut whole, mut short] = [Vec::new(), Vec::new()];
    let (from, most) = (life.steps * 11 % sectors, 1 + (life.steps % 2) as usize);
    engine.map(from, sectors - from, usize::MAX, &mut whole);
    engine.map(from, sectors - from, most, &mut short);
    let alike = |few: &MapExtent, one: &MapExtent| {
        let meet = few.lba < one.lba + one.sectors && one.lba < few.lba + few.sectors;
        !meet || (few.hole, few.health) == (one.hole, one.health)
    };
    let fits = |few: &MapExtent| whole.iter().all(|one| alike(few, one));
    if short.is_empty() || !short.iter().all(fits) {
        let detail = format!("with room for {most}: {short:?}, of {whole:?}");
        life.session.violation(Invariant::WrongMap, detail);
    }
    run.base.count("maps looked at", 1);
}

/// Nothing goes home, and nothing is announced there, while a mirror stands still.
pub(super) fn watch_sleepers(life: &mut Life) {
    let met = Moment::of(&life.session.world.status());
    let down = [Moment::Asleep, Moment::Resting, Moment::Waking];
    let up = !down.iter().any(|moment| met.contains(moment));
    let writes = |moment: &Moment| matches!(moment, Moment::Home(_) | Moment::Announcing);
    if !up && met.iter().any(writes) {
        let detail = format!("{met:?}");
        life.session.violation(Invariant::SleeperWritten, detail);
    }
}

/// Counts an incident against where users' data are.
pub(super) fn note(run: &mut Run, life: &Life, incident: Incident) {
    let phase = Phase::of(&life.session.world.status(), life.serving);
    run.base.say(|| format!("  {:?}: {incident}", phase));
    *run.outcome.incidents.entry((phase, incident)).or_default() += 1;
}

/// Something happens to a member of one of the sets. While data are on their way, a crash may come soon.
pub(super) fn perturb(run: &mut Run, life: &mut Life, busy: bool) {
    look_at_map(run, life);
    buffer::perturb(run, life);
    removal::perturb(run, life);
    let status = life.session.world.status();
    if busy && run.base.rng.chance(1, 6) {
        life.crash_after = Some(life.steps + run.base.rng.between(0, 60));
    }
    let third = match busy && !run.options.eraid {
        true => Site::Log,
        false => Site::Home,
    };
    let site = *run.base.rng.pick(&[Site::Home, Site::Log, third]);
    if site == Site::Log && (run.options.eraid || removal::is_removed(run)) {
        return;
    }
    let Some(set) = set_of(&status, site) else {
        return;
    };
    let set = set_state(run, life, set, site);
    if run.options.graid && site == Site::Log {
        if run.base.rng.chance(1, 20) && !set.serving.is_empty() {
            lose_log_disk(run, life, &set.serving);
        }
        return;
    }
    if site == Site::Log && run.base.rng.chance(1, if busy { 15 } else { 30 }) {
        return lose_surrogate(run, life, &set.serving);
    }
    let sleeps = run.plan.redirect.is_constant() && site == Site::Home && !set.serving.is_empty();
    if sleeps && run.base.rng.chance(1, 6) {
        return spoil_sleep(run, life, &set);
    }
    happen(run, life, site, &set);
}

fn happen(run: &mut Run, life: &mut Life, site: Site, set: &SetState) {
    let incidents = if run.plan.grows { 7 } else { 5 };
    match run.base.rng.below(incidents) {
        0 | 1 if set.whole && set.quiet => lose_member(run, life, site, set),
        0 | 1 if set.bears_more => lose_member(run, life, site, set),
        2 if !set.failed.is_empty() => {
            let failed = *run.base.rng.pick(&set.failed);
            life.session.command(Command::Add(failed));
        }
        3 if site == Site::Home && !set.whole => add_new(run, life),
        3 if site == Site::Log && set.quiet && (set.whole || !set.failed.is_empty()) => {
            let of = if set.whole { &set.serving } else { &set.failed };
            let old = *run.base.rng.pick(of);
            let new = arrive(run, life, site);
            life.session.command(Command::Replace { old, new });
            run.base.count("members of the surrogate replaced", 1);
        }
        4 if site == Site::Home && set.whole && set.quiet => {
            let repair = run.base.rng.chance(1, 2);
            life.session.scrub(repair);
            run.base.count("scrubs", 1);
        }
        4 if site == Site::Log && set.whole && set.quiet => cut_off(run, life, set),
        4 if site == Site::Home => cut_off_home(run, life, set),
        5 | 6 if site == Site::Home && set.whole && set.quiet => {
            let by = run.base.rng.between(1, 2) as u16;
            life.session.command(Command::Grow { by });
        }
        5 | 6 if site == Site::Home => add_new(run, life),
        _ => {}
    }
}

/// A new disk is connected and added to home.
fn add_new(run: &mut Run, life: &mut Life) {
    let member = arrive(run, life, Site::Home);
    life.session.command(Command::Add(member));
}

pub(super) fn set_state(run: &Run, life: &Life, set: &SetStatus, site: Site) -> SetState {
    let serving = members_in(set, MemberState::Active);
    let failed = members_in(set, MemberState::Failed);
    // One that is dead, or cut off, may not have been found out yet.
    let faults = |member: &Member| &life.session.world.disk(*member).faults;
    let gone = |member: &Member| {
        let never = faults(member).hanging() || faults(member).sleeps_for_good();
        // One that cannot be read everywhere is not to be the last one, either.
        faults(member).dead() || never || faults(member).latent().next().is_some()
    };
    let spared = site == Site::Log && !rot::bears_loss_of_log(run);
    let here = serving.iter().filter(|member| !gone(member)).count();
    let slots = spec_of(&run.plan, site).slots;
    let slots = usize::from(set.geometry.map_or(slots, |geometry| geometry.slots));
    let bears_more = match (site, spec_of(&run.plan, site).level) {
        (Site::Home, Level::Raid6(_)) => here + 1 == slots,
        // A rebuild under way may have just begun.
        (Site::Log, Level::ReedSolomon { parities }) => here + usize::from(parities) > slots,
        _ => false,
    };
    SetState {
        whole: here == slots,
        bears_more: bears_more && !spared,
        misses_one: here + 1 == slots,
        quiet: set.tasks.is_empty() && !spared,
        resyncs: set.tasks.iter().any(|task| task.kind == TaskKind::Resync),
        serving: serving.into_iter().filter(|member| !gone(member)).collect(),
        failed,
    }
}

fn lose_member(run: &mut Run, life: &mut Life, site: Site, set: &SetState) {
    let incident = match site {
        Site::Home if set.whole => Incident::HomeLoss,
        Site::Home => Incident::SecondLoss,
        Site::Log | Site::Buffer => Incident::LogLoss,
    };
    note(run, life, incident);
    let member = *run.base.rng.pick(&set.serving);
    directed::note_event(run, life, loss_of(life, site, member));
    life.troubled[site as usize] = true;
    if site == Site::Log && !set.whole {
        run.base.count("further losses of the surrogate", 1);
    }
    if site == Site::Home {
        trouble_home(run, life);
        lose_beside(run, life);
    }
    if run.base.rng.chance(1, 2) {
        life.session.command(Command::Fail(member));
    } else {
        life.session.world.inject(member, Fault::Death);
    }
    run.base.count("members lost", 1);
}

/// What the loss of a member is to a code cache.
pub(super) fn loss_of(life: &Life, site: Site, member: Member) -> Event {
    let asleep = life.session.world.disk(member).faults.asleep();
    match (site, asleep) {
        (Site::Log | Site::Buffer, _) => Event::LogLoss,
        (Site::Home, true) => Event::AsleepLoss,
        (Site::Home, false) => Event::AwakeLoss,
    }
}

/// A disk that has a member of home and one of a code cache goes with both.
fn lose_beside(run: &mut Run, life: &mut Life) {
    let status = life.session.world.status();
    let Some(set) = set_of(&status, Site::Log).filter(|_| run.options.gathers) else {
        return;
    };
    let log = set_state(run, life, set, Site::Log);
    let bears = log.whole && log.quiet || log.bears_more && !log.serving.is_empty();
    if bears && run.base.rng.chance(1, 2) {
        let beside = *run.base.rng.pick(&log.serving);
        life.troubled[Site::Log as usize] = true;
        life.session.world.inject(beside, Fault::Death);
        run.base.count("disks lost with both", 1);
    }
}

/// A member of home wakes late from its next standby, or never: then it is one that is lost.
fn spoil_sleep(run: &mut Run, life: &mut Life, set: &SetState) {
    let late = Nanos(run.base.rng.between(1, 30) * 1_000_000_000);
    let never = set.whole && set.quiet && run.base.rng.chance(1, 3);
    let member = *run.base.rng.pick(&set.serving);
    spoil_member(run, life, member, (!never).then_some(late));
}

/// A member wakes so much later, or never.
pub(super) fn spoil_member(run: &mut Run, life: &mut Life, member: Member, after: Option<Nanos>) {
    if after.is_none() {
        trouble_home(run, life);
        life.spoilt.push(member);
    }
    life.session.world.inject(member, Fault::Wakes { after });
    run.base.count("sleeps spoilt", 1);
}

/// The log disk dies. If first copies are believed nobody loses anything, nor is anybody refused.
fn lose_log_disk(run: &mut Run, life: &mut Life, members: &[Member]) {
    let overlay = overlay(&life.session.world.status());
    let ahead = overlay.is_some_and(|overlay| overlay.ahead);
    if life.troubled[Site::Home as usize] || !ahead {
        return lose_surrogate(run, life, members);
    }
    note(run, life, Incident::SurrogateLoss);
    life.troubled[Site::Log as usize] = true;
    // It may be there again with the next start, with what it had: that must not count then.
    let returns = run.base.rng.clone().fork(MOST).chance(1, 2);
    let fault = if returns { Fault::Hang } else { Fault::Death };
    for member in members {
        life.session.world.inject(*member, fault);
    }
    run.log_gone = !returns;
    run.log_away = true;
    run.base.count("log disks lost", 1);
}

/// Home loses something: what first copies alone have, since the log is lost, may be lost with it.
fn trouble_home(run: &mut Run, life: &mut Life) {
    life.troubled[Site::Home as usize] = true;
    if run.options.eraid || run.options.graid && run.log_away {
        life.session.refusals_expected = true;
        life.session.oracle.allow_all_losses();
    }
}

/// All of the surrogate dies. What it alone has is lost, and may be called so; nothing may be made up.
pub(super) fn lose_surrogate(run: &mut Run, life: &mut Life, members: &[Member]) {
    note(run, life, Incident::SurrogateLoss);
    directed::note_event(run, life, Event::SurrogateLoss);
    for member in members {
        life.session.world.inject(*member, Fault::Death);
    }
    life.troubled[Site::Log as usize] = true;
    life.session.refusals_expected = true;
    life.session.oracle.allow_all_losses();
    run.log_gone = true;
    run.base.count("surrogates lost", 1);
}

/// One member of the surrogate, or more than it bears, is beyond reach for a while: shorter or longer than is waited
/// for. What was on its way there arrives late.
fn cut_off(run: &mut Run, life: &mut Life, set: &SetState) {
    let all = run.base.rng.chance(1, 3);
    let lasts = Nanos(run.base.rng.between(IO_TIMEOUT.0 / 4, 3 * IO_TIMEOUT.0));
    let one = *run.base.rng.pick(&set.serving);
    let (incident, cut) = match all {
        true => (Incident::WholeCut, most_of(run, &set.serving)),
        false => (Incident::Cut, vec![one]),
    };
    note(run, life, incident);
    life.troubled[Site::Log as usize] = true;
    // What lies there alone cannot be had meanwhile, nor after it if all of them were given up.
    life.session.refusals_expected |= all;
    hang(life, &cut, lasts);
}

/// Too many members of home are beyond reach for a while: it halts, and is there again with the next start.
fn cut_off_home(run: &mut Run, life: &mut Life, set: &SetState) {
    note(run, life, Incident::HomeCut);
    // Drawn from a stream of its own.
    let mut drawn = run.base.rng.clone().fork(MOST);
    let lasts = Nanos(drawn.between(IO_TIMEOUT.0 / 4, 3 * IO_TIMEOUT.0));
    trouble_home(run, life);
    life.session.refusals_expected = true;
    if set.resyncs || life.bad_sectors {
        // The first to be missed is missed before it is seen that the others are gone as well; and the last copy of a sector may be
        // bad.
        life.session.oracle.allow_all_losses();
    }
    hang(life, &most_of(run, &set.serving), lasts);
}

/// Members are beyond reach for this long.
pub(super) fn hang(life: &mut Life, members: &[Member], lasts: Nanos) {
    for member in members {
        life.session.world.inject(*member, Fault::Hang);
        life.session.mark_in(lasts, u64::from(member.0));
    }
}

/// More than half of the members, or all of them: those that are left may keep a record of who went first.
fn most_of(run: &Run, members: &[Member]) -> Vec<Member> {
    // Drawn from a stream of its own.
    let mut drawn = run.base.rng.clone().fork(MOST);
    let least = members.len() as u64 / 2 + 1;
    let count = drawn.between(least.min(members.len() as u64), members.len() as u64);
    let order = drawn.order(members.len()).into_iter();
    let some = order.take(count as usize).map(|index| members[index]);
    some.collect()
}

/// The members that were cut off can be reached again, and are added if they were given up.
pub(super) fn come_back(run: &mut Run, life: &mut Life, member: Member) {
    let world = &mut life.session.world;
    let removed = removal::is_removed(run) && life.sites[usize::from(member.0)] != Site::Home;
    if removed || !world.disk(member).faults.hanging() {
        return;
    }
    world.inject(member, Fault::Revive);
    world.release(member, Nanos(1));
    let status = world.status();
    let set = status.surrogate.as_ref().map(|surrogate| &surrogate.set);
    let sets = set.into_iter().chain(set_of(&status, Site::Buffer));
    let failed = { sets }.any(|set| {
        let mut members = set.members.iter();
        members.any(|line| line.member == member && line.state == MemberState::Failed)
    });
    if failed && life.serving {
        life.session.command(Command::Add(member));
    }
    run.base.count("members come back", 1);
}

/// A new disk is connected that is to serve in a set.
pub(super) fn arrive(run: &mut Run, life: &mut Life, site: Site) -> Member {
    let spec = spec_of(&run.plan, site);
    let index = spec.slots + spec.spares;
    let seed = run.base.rng.word();
    let image = spec.blank(index, earlier(seed));
    let disk = disk(&run.plan, spec, index, image, seed);
    life.sites.push(site);
    life.session.world.arrive(disk)
}

/// Who serves in a set, and who does not.
pub(super) struct SetState {
    /// Every slot has a member that answers.
    pub(super) whole: bool,
    /// One more may be missing.
    bears_more: bool,
    /// One is missing.
    pub(super) misses_one: bool,
    /// No task runs, and nothing is wrong that counts as lost.
    pub(super) quiet: bool,
    /// Redundancy is not in step.
    pub(super) resyncs: bool,
    /// Members that serve and answer.
    pub(super) serving: Vec<Member>,
    pub(super) failed: Vec<Member>,
}
