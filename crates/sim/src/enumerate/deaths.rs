//! Crashes of the daemon alone: members keep their caches, and any subset of the operations in flight is
//! done.
//!
//! Another daemon starts over the same caches. Power is cut during its start, after a flush that it
//! acknowledged, or after its stop. Data that is not durable by then is lost, all of it or a sample.

use super::{Enumeration, STEPS_OF_PAIR, Surrogate, first};
use crate::atlas::Atlas;
use crate::crash::Site;
use crate::disk::{Disk, Pending, Simple};
use crate::image::Image;
use crate::invariant::Violation;
use crate::oracle::Oracle;
use crate::session::{PATIENCE, Session};
use restripe_array::{Command, Nanos, StartMode};
use restripe_tier::Engine;

/// The stream of the deaths.
pub(super) const DEATHS: u64 = 0xdead_dae0;
/// One death at so many moments.
const STRIDE: u64 = 4;
/// All subsets of so many open writes behind a death; more are sampled.
const ALL_SUBSETS: usize = 2;
/// Steps of a start at most, at which power is cut.
const STEPS_OF_START: u64 = 60;

impl Enumeration {
    /// The daemon dies at this moment, if it is one of those.
    pub(super) fn die_here(&mut self, site: &Site, oracle: &Oracle) {
        if !crate::run::happen(self.reach.bug)
            || self.over()
            || !self.report.moments.is_multiple_of(STRIDE)
        {
            return;
        }
        self.report.deaths += 1;
        std::mem::swap(&mut self.rng, &mut self.deaths);
        if let Err(violation) = self.outlive(site, oracle.clone()) {
            let found = (self.report.images, violation);
            self.report.violation.get_or_insert(found);
        }
        std::mem::swap(&mut self.rng, &mut self.deaths);
    }

    fn outlive(&mut self, site: &Site, mut oracle: Oracle) -> Result<(), Violation> {
        let gathers = self.surrogate.as_ref().is_some_and(Surrogate::gathers);
        // What was acknowledged may lie in the memory of a code cache.
        match gathers {
            true => oracle.crash(),
            false => oracle.death(),
        }
        let cut = site.sample(&mut self.rng);
        let caches = site.caches(&cut).into_iter().enumerate();
        let disks = caches.map(|(index, cache)| self.outlived(index, cache));
        let disks: Vec<Disk> = disks.collect();
        let homes = self.homes(disks.len());
        let Some(atlas) = Atlas::of(disks[..homes].iter()).filter(|atlas| atlas.whole(None)) else {
            return Ok(());
        };
        atlas.grant_losses(self.spec.write_hole, self.lost, &mut oracle);
        let others = self.others_without(&[]);
        let mut session = self.session_on(disks, others, oracle, false);
        if self.rng.chance(1, 2) {
            session.command(Command::Start(StartMode::default()));
            let steps = self.rng.below(STEPS_OF_START);
            for _ in 0..steps {
                session.step();
            }
        } else {
            self.start(&mut session)?;
            session.read_all(self.layout.row_sectors(), PATIENCE);
            first(&session)?;
            match self.rng.chance(1, 2) {
                true => stop(&mut session),
                false => flush(&mut session),
            }
        }
        first(&session)?;
        self.cut_behind_a_death(&session);
        Ok(())
    }

    /// The disk of this number with what is durable there, and its cache.
    fn outlived(&self, index: usize, (durable, cache): (Image, Vec<Pending>)) -> Disk {
        let device = Box::new(Simple::new(Nanos(1000), 1 << 30, Nanos(3000)));
        self.disk(index, durable, device, 1).outlive(cache)
    }

    fn cut_behind_a_death(&mut self, session: &Session<Engine>) {
        let site = session.world.site();
        self.try_cut(&site, &site.nothing(), &session.oracle);
        let open = site.open_count();
        if open <= ALL_SUBSETS {
            for subset in 1..1 << open {
                self.try_cut(&site, &site.subset(subset), &session.oracle);
            }
        } else {
            let cut = site.sample(&mut self.rng);
            self.try_cut(&site, &cut, &session.oracle);
        }
    }
}

fn flush(session: &mut Session<Engine>) {
    session.flush();
    session.settle(PATIENCE);
}

fn stop(session: &mut Session<Engine>) {
    session.refusals_expected = true;
    let ticket = session.oracle.flush();
    if let Some(result) = session.answer(Command::Stop, STEPS_OF_PAIR) {
        session.oracle.flush_ended(ticket, result.is_ok());
    }
}
