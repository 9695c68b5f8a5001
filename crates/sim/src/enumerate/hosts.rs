//! Crash images of arrays with spare partitions: members are lost and added while clients continue, from the
//! first loss until no rebuild and no copy-back is left.

use super::growth::take_capacity;
use super::{Enumeration, Reach, Report, first};
use crate::array::{Spec, earlier};
use crate::disk::{Disk, Simple};
use crate::image::Image;
use crate::invariant::{Invariant, Violation};
use crate::payload::Payload;
use crate::rng::{Rng, mix};
use crate::session::{News, PATIENCE, Session};
use crate::swarm::{Hosting, Scene, crowded};
use crate::workload::Workload;
use restripe_array::layout::{Level, Rotation, Skew};
use restripe_array::meta::{Init, WriteHole};
use restripe_array::report::{ArrayState, MemberState};
use restripe_array::{Command, Member, Nanos, Row, TaskKind};
use restripe_tier::Engine;
use restripe_tier::report::Status;

/// Steps at most: of a life, and until the tasks of an image have ended.
const STEPS: u64 = 12_000;
/// Cuts at a moment: all subsets of so many open writes, or so many samples.
pub(super) const ALL_SUBSETS: usize = 3;
pub(super) const SAMPLES: u64 = 6;
/// Steps without a task after which the next event comes, whatever it waits for.
const REST: u64 = 60;
/// New disks that may come.
const ARRIVALS: u32 = 2;

/// After a fact, so many steps are watched more closely: power is cut so many times as often.
const KEEN_STEPS: u64 = 40;
const KEEN: u64 = 4;
/// Users go on for so many steps when nothing else does.
const CALM: u64 = 150;

/// What happens to the members.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The first of all: of this slot.
    Fails(u16),
    /// A member fails, if redundancy bears it: one that hosts partitions of others, or any.
    HostFails,
    MemberFails,
    /// A failed member comes back as it is.
    ComesBack,
    /// A new disk comes.
    Arrives,
    /// Tasks stand, or go on.
    Pauses(bool),
}

/// When.
#[derive(Clone, Copy, Debug)]
enum Cue {
    Hosting(Hosting),
    Steps(u64),
}

const EVENTS: [Event; 6] = [
    Event::HostFails,
    Event::HostFails,
    Event::MemberFails,
    Event::ComesBack,
    Event::Arrives,
    Event::Arrives,
];
const CUES: [Hosting; 4] = [
    Hosting::Filling,
    Hosting::Serving,
    Hosting::GoingHome,
    Hosting::GoingHome,
];

/// A host comes back while what it hosted is on its way to another.
fn return_of_a_host(rng: &mut Rng) -> Vec<(Cue, Event)> {
    vec![
        (Cue::Hosting(Hosting::Serving), Event::HostFails),
        (Cue::Steps(rng.below(40)), Event::Pauses(true)),
        (Cue::Steps(rng.below(20)), Event::ComesBack),
        (Cue::Steps(rng.between(40, 150)), Event::Pauses(false)),
        (Cue::Hosting(Hosting::Serving), Event::Arrives),
    ]
}

/// What is hosted goes home, and users go on where it lay.
fn parting(rng: &mut Rng) -> Vec<(Cue, Event)> {
    let serving = Cue::Hosting(Hosting::Serving);
    let again = [(serving, Event::Arrives), (serving, Event::MemberFails)];
    again[..rng.between(1, 2) as usize].to_vec()
}

/// A place that is given up is needed at once.
fn handover(_: &mut Rng) -> Vec<(Cue, Event)> {
    vec![
        (Cue::Hosting(Hosting::Serving), Event::Arrives),
        (Cue::Hosting(Hosting::GoingHome), Event::MemberFails),
        (Cue::Hosting(Hosting::Serving), Event::Arrives),
    ]
}

fn anything(rng: &mut Rng) -> Vec<(Cue, Event)> {
    let event = |_| {
        let cue = match rng.chance(2, 3) {
            true => Cue::Hosting(*rng.pick(&CUES)),
            false => Cue::Steps(rng.below(150)),
        };
        (cue, *rng.pick(&EVENTS))
    };
    (0..4).map(event).collect()
}

/// Runs one seed of an array with spare partitions.
pub fn enumerate_hosts(seed: u64, reach: Reach) -> Report {
    let mut rng = Rng::new(mix(seed ^ 0x4057));
    let spec = spec(&mut rng);
    Enumeration::new(rng, reach, spec, None).run_hosts()
}

fn spec(rng: &mut Rng) -> Spec {
    let rotation = Rotation::default();
    let (level, slots, groups, partitions) = *rng.pick(&[
        (Level::Raid5(rotation), 6, 3, 1),
        (Level::Raid5(rotation), 9, 3, 2),
        (Level::Raid5(rotation), 9, 3, 3),
        (Level::Raid6(rotation), 8, 4, 1),
        (Level::Raid10 { copies: 2 }, 4, 2, 2),
        (Level::Raid10 { copies: 2 }, 6, 2, 3),
    ]);
    let parity = !matches!(level, Level::Raid10 { .. });
    Spec {
        skew: Some(Skew { groups, partitions }),
        spare_partitions: rng.between(1, 2) as u16,
        spares: rng.below(3) as u16,
        payload: Payload::Tokens,
        chunk_sectors: 8,
        chunks: u64::from(partitions) * rng.between(1, 2),
        write_hole: match parity && rng.chance(5, 6) {
            true => WriteHole::Ppl,
            false => WriteHole::Bitmap,
        },
        init: *rng.pick(&[Init::Written, Init::Zero]),
        member_sectors: 2048,
        extent_rows: Some(2),
        intent_rows: Some(2),
        ..Spec::small(level, slots)
    }
}

/// What is still to happen, the next last.
struct Course {
    rng: Rng,
    events: Vec<(Cue, Event)>,
    /// Steps since the last one.
    steps: u64,
    arrivals: u32,
    /// The last that failed behind the first.
    latest: Option<Member>,
}

impl Course {
    /// A life that begins with the loss of this slot's member.
    fn draw(mut rng: Rng, first: u16) -> Course {
        let kinds = [anything, anything, return_of_a_host, parting, handover];
        let mut events = rng.pick(&kinds)(&mut rng);
        events.insert(0, (Cue::Steps(0), Event::Fails(first)));
        events.reverse();
        Course {
            rng,
            events,
            steps: 0,
            arrivals: 0,
            latest: None,
        }
    }

    /// Brings the next event about, if it is time for it or nothing else goes on.
    fn go_on(&mut self, enumeration: &Enumeration, session: &mut Session<Engine>, rests: bool) {
        self.steps += 1;
        let Some((cue, event)) = self.events.last().copied() else {
            return;
        };
        let status = session.world.status();
        let due = match cue {
            Cue::Steps(steps) => self.steps > steps,
            Cue::Hosting(wanted) => Scene::of(&status).hosts(wanted) && self.rng.chance(1, 16),
        };
        if due || rests && self.steps > REST {
            self.events.pop();
            self.steps = 0;
            self.bring_about(event, enumeration, session, &status);
        }
    }

    fn bring_about(
        &mut self,
        event: Event,
        enumeration: &Enumeration,
        session: &mut Session<Engine>,
        status: &Status,
    ) {
        let some = |wanted: MemberState, hosting: bool| -> Vec<Member> {
            let lines = status.members.iter().filter(|line| line.state == wanted);
            let lines = lines.filter(|line| !hosting || !line.hosts.is_empty());
            lines.map(|line| line.member).collect()
        };
        match event {
            Event::Fails(slot) => {
                session.command(Command::Fail(Member(slot)));
            }
            Event::Pauses(paused) => {
                session.command(Command::Pause(paused));
            }
            Event::HostFails | Event::MemberFails => {
                let hosting = matches!(event, Event::HostFails);
                let members = some(MemberState::Active, hosting);
                if !members.is_empty() {
                    let member = *self.rng.pick(&members);
                    session.command(Command::Fail(member));
                    self.latest = Some(member);
                }
            }
            Event::ComesBack => {
                let members = some(MemberState::Failed, false);
                if let Some(member) = self.latest.take().or(members.first().copied()) {
                    session.command(Command::Add(member));
                }
            }
            Event::Arrives if self.arrivals < ARRIVALS => {
                self.arrivals += 1;
                let (spec, seed) = (&enumeration.spec, self.rng.word());
                let image = spec.blank(0, earlier(seed));
                let member = session.world.arrive(disk(spec, image, seed));
                session.command(Command::Add(member));
            }
            Event::Arrives => {}
        }
    }
}

fn disk(spec: &Spec, image: Image, seed: u64) -> Disk {
    let device = Box::new(Simple::new(Nanos(1000), 1 << 30, Nanos(3000)));
    spec.disk(0, image, device, seed)
}

impl Enumeration {
    fn run_hosts(mut self) -> Report {
        let images = self.spec.format(self.earlier()).expect("small arrays fit");
        self.far = Nanos(*self.rng.pick(&[0, 0, 30_000, 100_000]));
        let Some((mut session, mut workload)) = self.begin(images) else {
            return self.report;
        };
        let first_lost = self.aim(&mut workload);
        let mut course = Course::draw(self.rng.fork(2), first_lost);
        let before = self.rng.between(4, 12);
        let (mut issued, mut calm, mut keen) = (0, 0, 0);
        let first_cut = self.rng.below(self.reach.stride);
        for step in 0..STEPS {
            let status = session.world.status();
            let rests = status.tasks.is_empty();
            calm = match rests && course.events.is_empty() {
                true => calm + 1,
                false => 0,
            };
            if issued >= before {
                self.lost = true;
                course.go_on(&self, &mut session, rests);
            }
            if session.outstanding() < 2 && calm < CALM && session.world.ready() {
                issued += 1;
                session.issue(workload.draw());
            }
            let more = session.step();
            keen = match self.look(&mut session) {
                true => KEEN_STEPS,
                false => u64::saturating_sub(keen, 1),
            };
            let stride = match keen > 0 || calm > 0 {
                true => self.reach.stride.div_ceil(KEEN),
                false => self.reach.stride,
            };
            if self.lost && step % stride == first_cut % stride {
                self.cut_here(&session);
            }
            if self.over() || calm >= CALM && session.outstanding() == 0 && !more {
                break;
            }
        }
        self.end(&session)
    }

    /// Sends most requests to one row, perhaps. The slot that is to lose its member: the one with the row's parity, if it
    /// has one.
    fn aim(&mut self, workload: &mut Workload) -> u16 {
        let row = Row(self.rng.below(self.layout.rows()));
        let map = self.layout.row(row);
        let cells = &map.cells[..usize::from(map.width)];
        self.near = cells.iter().map(|cell| cell.slot.0).collect();
        if self.rng.chance(3, 4) {
            workload.aim(self.layout.lba(row, 0, 0), self.layout.row_sectors());
        }
        if self.rng.chance(1, 2) {
            workload.insist();
        }
        match map.p() {
            Some(parity) if self.rng.chance(3, 4) => map.cells[usize::from(parity)].slot.0,
            _ => *self.rng.pick(&self.near),
        }
    }

    /// What is under way, and whether every row is spread as it should be. True if something is told.
    fn look(&mut self, session: &mut Session<Engine>) -> bool {
        let mut moved = false;
        while let Some(news) = session.news() {
            moved |= matches!(news, News::Fact(_));
        }
        let status = session.world.status();
        self.scene = Some(Scene::of(&status));
        if moved && let Some(breach) = crowded(&self.layout, &status) {
            let number = self.report.images;
            self.report.violation.get_or_insert((number, breach));
        }
        moved
    }

    /// Everything that is to be filled is, and reads right then, too.
    pub(super) fn end_tasks(&self, session: &mut Session<Engine>) -> Result<(), Violation> {
        for _ in 0..STEPS {
            let status = session.world.status();
            let ended = status.tasks.is_empty() || status.state == ArrayState::Failed;
            if ended && session.world.quiescent() || !session.step() {
                break;
            }
            while session.news().is_some() {}
            first(session)?;
        }
        let status = session.world.status();
        let mut members = status.members.iter();
        let idle = members.any(|line| line.state == MemberState::Spare);
        let waits = status.state == ArrayState::Degraded && idle;
        // A growth waits while a member is missing.
        let whole = status.state == ArrayState::Healthy;
        let mut tasks = status.tasks.iter();
        let stays = tasks.any(|task| whole || task.kind != TaskKind::Growth);
        let stays = stays && status.state != ArrayState::Failed;
        let paused = status.tasks.iter().any(|task| task.paused);
        if (waits || stays) && !paused {
            let detail = format!("a spare idles, or a task never ends: {:?}", status.tasks);
            return Err(Violation::new(Invariant::NotWholeAgain, detail));
        }
        take_capacity(session);
        session.read_all(self.layout.row_sectors(), PATIENCE);
        first(session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn hosts_are_cut_while_partitions_are_filled_served_and_brought_home() {
        let mut met = BTreeSet::new();
        for seed in 0..12 {
            let reach = Reach {
                stride: 150,
                ..Reach::images(150)
            };
            let report = enumerate_hosts(seed, reach);
            assert!(report.violation.is_none(), "seed {seed}: {report:?}");
            met.extend(report.hosting.keys().copied());
        }
        let report = enumerate_hosts(0, Reach::images(60));
        assert_eq!(report, enumerate_hosts(0, Reach::images(60)));
        let all = [Hosting::Filling, Hosting::Serving, Hosting::GoingHome];
        assert_eq!(met, BTreeSet::from(all));
    }
}
