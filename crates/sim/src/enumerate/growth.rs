//! Crash images of arrays that grow, once or twice in a row: from the command until the new capacity has
//! been written for a while.

use super::{Enumeration, Reach, Report};
use crate::array::Spec;
use crate::payload::Payload;
use crate::rng::{Rng, mix};
use crate::session::{News, Session};
use crate::swarm::Scene;
use restripe_array::layout::{Level, Rotation};
use restripe_array::meta::{Init, WriteHole};
use restripe_array::{Command, Fact, TaskKind};
use restripe_tier::Engine;

/// Steps of a life at most.
const STEPS: u64 = 12_000;
/// Users go on for so many requests when the array has grown.
const AFTERWARDS: u64 = 6;

/// Runs one seed of an array that grows.
pub fn enumerate_growth(seed: u64, reach: Reach) -> Report {
    let mut rng = Rng::new(mix(seed ^ 0x6706));
    let spec = spec(&mut rng);
    Enumeration::new(rng, reach, spec, None).run_growth(|by| Command::Grow { by })
}

/// Runs one seed of an array that takes another shape.
pub fn enumerate_reshape(seed: u64, reach: Reach) -> Report {
    let mut rng = Rng::new(mix(seed ^ 0x3e54));
    let spec = shaped(&mut rng);
    Enumeration::new(rng, reach, spec, None).run_growth(|by| Command::Reshape { by })
}

fn shaped(rng: &mut Rng) -> Spec {
    let rotation = *rng.pick(&Rotation::ALL);
    let (level, slots) = *rng.pick(&[
        (Level::Raid0, 2),
        (Level::Raid4, 3),
        (Level::Raid5(rotation), 3),
        (Level::Raid5(rotation), 4),
        (Level::Raid6(rotation), 4),
        (Level::Raid6(rotation), 5),
    ]);
    Spec {
        write_hole: match level {
            Level::Raid0 => WriteHole::None,
            _ => WriteHole::Ppl,
        },
        chunks: rng.between(6, 9),
        ..small(rng, level, slots)
    }
}

fn spec(rng: &mut Rng) -> Spec {
    let (level, slots) = *rng.pick(&[
        (Level::Raid0, 2),
        (Level::Raid0, 3),
        (Level::Raid4, 3),
        (Level::Raid4, 3),
        (Level::Raid4, 4),
    ]);
    let write_hole = match level {
        Level::Raid0 => WriteHole::None,
        _ if rng.chance(3, 4) => WriteHole::Ppl,
        _ => WriteHole::Bitmap,
    };
    Spec {
        write_hole,
        ..small(rng, level, slots)
    }
}

fn small(rng: &mut Rng, level: Level, slots: u16) -> Spec {
    Spec {
        spares: rng.between(1, 2) as u16,
        payload: Payload::Tokens,
        chunk_sectors: 8,
        chunks: rng.between(4, 7),
        init: *rng.pick(&[Init::Written, Init::Zero]),
        member_sectors: 1024,
        extent_rows: Some(2),
        intent_rows: Some(2),
        ..Spec::small(level, slots)
    }
}

impl Enumeration {
    fn run_growth(mut self, grow: impl Fn(u16) -> Command) -> Report {
        let images = self.spec.format(self.earlier()).expect("small arrays fit");
        let Some((mut session, mut workload)) = self.begin(images) else {
            return self.report;
        };
        let before = self.rng.between(4, 12);
        let mut growths = self.growths().into_iter();
        let (mut issued, mut most) = (0, u64::MAX);
        for step in 0..STEPS {
            if issued == before && self.scene.is_none() {
                let by = growths.next().expect("the first");
                session.command(grow(by));
                self.scene = Some(Scene::default());
            }
            if session.outstanding() < 2 && issued < most && session.world.ready() {
                issued += 1;
                session.issue(workload.draw());
            }
            let more = session.step();
            if has_ended(&mut session) {
                workload.grow(take_capacity(&mut session));
                match growths.next() {
                    Some(by) => {
                        session.command(grow(by));
                    }
                    None => most = issued + AFTERWARDS,
                }
            }
            if self.scene.is_some() && step % self.reach.stride == 0 {
                self.cut_here(&session);
            }
            if self.over() || issued >= most && session.outstanding() == 0 && !more {
                break;
            }
        }
        self.end(&session)
    }

    /// By how many members the array grows, each time.
    fn growths(&mut self) -> Vec<u16> {
        let spares = self.spec.spares;
        match spares {
            2 if self.rng.chance(1, 2) => vec![1, 1],
            _ => vec![self.rng.between(1, spares.into()) as u16],
        }
    }
}

/// Whether the array has grown in this step.
fn has_ended(session: &mut Session<Engine>) -> bool {
    let mut ended = false;
    while let Some(news) = session.news() {
        let kind = TaskKind::Growth;
        ended |= matches!(news, News::Fact(Fact::TaskEnded { kind: other, .. }) if other == kind);
    }
    ended
}

/// The oracle knows of all the sectors that the array has; how many.
pub(super) fn take_capacity(session: &mut Session<Engine>) -> u64 {
    let size = session.world.status().size_bytes / 512;
    if size > session.oracle.sectors() {
        session.oracle.grow(size);
    }
    size
}

#[cfg(test)]
mod tests {
    use super::super::Enumerate;
    use super::*;

    #[test]
    fn a_growth_is_cut_until_new_capacity_is_written() {
        let reach = Reach {
            stride: 20,
            ..Reach::images(400)
        };
        for (what, enumerate) in [
            ("growth", enumerate_growth as Enumerate),
            ("reshape", enumerate_reshape),
        ] {
            for seed in 0..6 {
                let report = enumerate(seed, reach);
                assert!(report.violation.is_none(), "{what} {seed}: {report:?}");
                assert!(report.images > 20, "{what} {seed}: {report:?}");
            }
        }
        let report = enumerate_growth(0, Reach::images(60));
        assert_eq!(report, enumerate_growth(0, Reach::images(60)));
    }
}
