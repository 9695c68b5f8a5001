//! Crash images at every write: a small array serves a few requests, and at every step of the world power is cut.
//!
//! Every subset of the writes whose fate is open, up to ten of them, else a sample, and of each some torn; with every
//! member here, or as many away as the level bears. The real engine assembles each image and everything is read back
//! under the oracle. Images are counted by what they hold: the same contents are never assembled twice.

use crate::array::Spec;
use crate::atlas::Atlas;
use crate::crash::{Cut, Site};
use crate::disk::{Disk, Simple};
use crate::image::Image;
use crate::invariant::{Invariant, Violation};
use crate::oracle::Oracle;
use crate::rng::{Rng, mix};
use crate::session::{News, PATIENCE, Session};
use crate::workload::{Ask, Workload};
use crate::world::{World, WorldConfig};
use restripe_array::layout::{Layout, Level, Rotation};
use restripe_array::meta::{Init, WriteHole};
use restripe_array::{Command, CommandError, Config, Engine, Limits, Nanos, Pool, StartMode};
use std::collections::BTreeSet;

/// All subsets of so many open writes; more are sampled.
const ALL_SUBSETS: usize = 10;
/// Cuts sampled at a step with more open writes than that.
const SAMPLES: u64 = 48;

/// What came of one seed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Different images, each assembled and read.
    pub images: u64,
    /// What they are told apart by: contents and promises.
    pub hashes: Vec<u64>,
    /// Moments at which power was cut.
    pub moments: u64,
    /// Cuts that gave an image met before.
    pub repeats: u64,
    /// Images with members away.
    pub reduced: u64,
    /// The first breach, with the number of the image that showed it.
    pub violation: Option<(u64, Violation)>,
}

/// How far a seed goes.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// Stop after so many images.
    pub images: u64,
    /// Say what happens in the start of this image.
    pub trace: Option<u64>,
    /// The bug that the engine is to have.
    #[cfg(feature = "planted")]
    pub bug: Option<restripe_array::Bug>,
}

impl Reach {
    pub fn images(images: u64) -> Reach {
        Reach {
            images,
            trace: None,
            #[cfg(feature = "planted")]
            bug: None,
        }
    }
}

/// Runs one seed.
pub fn enumerate(seed: u64, reach: Reach) -> Report {
    Enumeration::new(seed, reach).run()
}

struct Enumeration {
    rng: Rng,
    reach: Reach,
    spec: Spec,
    layout: Layout,
    seen: BTreeSet<u64>,
    report: Report,
}

fn spec(rng: &mut Rng) -> Spec {
    let rotation = Rotation::default();
    let (level, slots) = *rng.pick(&[
        (Level::Raid1, 2),
        (Level::Raid4, 3),
        (Level::Raid5(rotation), 3),
        (Level::Raid5(rotation), 4),
        (Level::Raid6(rotation), 4),
        (Level::Raid6(rotation), 5),
        (Level::Raid10 { copies: 2 }, 4),
    ]);
    let parity = !matches!(level, Level::Raid1 | Level::Raid10 { .. });
    let ppl = parity && rng.chance(3, 4);
    Spec {
        chunk_sectors: 8,
        chunks: 6,
        write_hole: if ppl {
            WriteHole::Ppl
        } else {
            WriteHole::Bitmap
        },
        init: *rng.pick(&[Init::Written, Init::Written, Init::Trust]),
        member_sectors: 1024,
        extent_rows: Some(2),
        intent_rows: Some(2),
        identity: 0,
        partner: None,
        ..Spec::small(level, slots)
    }
}

impl Enumeration {
    fn new(seed: u64, reach: Reach) -> Enumeration {
        let mut rng = Rng::new(mix(seed));
        let spec = spec(&mut rng);
        let layout = Layout::new(spec.create().expect("small arrays fit").geometry)
            .expect("a created geometry is sound");
        Enumeration {
            rng,
            reach,
            spec,
            layout,
            seen: BTreeSet::new(),
            report: Report::default(),
        }
    }

    fn run(mut self) -> Report {
        let dirt = (self.spec.init == Init::Written).then(|| self.rng.word());
        let images = self.spec.format(dirt).expect("small arrays fit");
        let oracle = Oracle::new(self.spec.payload, self.layout.size_sectors());
        let mut session = self.session(images, oracle, false);
        if let Err(violation) = self.start(&mut session) {
            self.report.violation = Some((0, violation));
            return self.report;
        }
        let (size, row) = (self.layout.size_sectors(), self.layout.row_sectors());
        let mut workload =
            Workload::new(self.rng.fork(1), size, self.layout.chunk_sectors(), row, 1);
        let requests = self.rng.between(4, 12);
        for _ in 0..requests {
            ask(&mut session, &mut workload);
            let more = self.rng.chance(1, 2);
            while !more && session.outstanding() > 0 {
                session.step();
                self.cut_here(&session);
                if self.over() {
                    return self.report;
                }
            }
        }
        while session.outstanding() > 0 && session.step() && !self.over() {
            self.cut_here(&session);
        }
        self.report
    }

    fn over(&self) -> bool {
        self.report.violation.is_some() || self.report.images >= self.reach.images
    }

    fn session(&mut self, images: Vec<Image>, oracle: Oracle, trace: bool) -> Session<Engine> {
        let device = || Box::new(Simple::new(Nanos(1000), 1 << 30, Nanos(3000)));
        let seed = self.rng.word();
        let disks: Vec<Disk> = images
            .into_iter()
            .enumerate()
            .map(|(i, image)| self.spec.disk(i as u16, image, device(), seed))
            .collect();
        self.session_on(disks, oracle, trace)
    }

    fn session_on(&mut self, disks: Vec<Disk>, oracle: Oracle, trace: bool) -> Session<Engine> {
        let limits = Limits {
            pool: Pool {
                small: 128,
                large: 32,
            },
            requests: 16,
            slices: 8,
            ios: 256,
            ..Limits::default()
        };
        let members = disks.iter().map(Disk::info).collect();
        let engine = Engine::new(Config {
            members,
            limits,
            surrogate: None,
            io_timeout: Nanos::from_secs(1),
            #[cfg(feature = "planted")]
            bug: self.reach.bug,
        });
        let config = WorldConfig {
            payload: self.spec.payload,
            limits,
            seed: self.rng.word(),
            compute_delay: Nanos(100),
            strict: false,
            record: false,
            trace,
        };
        let mut session = Session::new(World::new(config, engine, disks), oracle);
        session.trace = trace;
        session
    }

    fn start(&mut self, session: &mut Session<Engine>) -> Result<(), Violation> {
        let mut mode = StartMode::default();
        for _ in 0..3 {
            match start(session, mode)? {
                Ok(()) => return Ok(()),
                Err(CommandError::Minority { present, current }) if present * 2 <= current => {
                    mode.from_minority = true
                }
                Err(CommandError::WouldLose { .. }) if may_lose(session) => mode.accept_loss = true,
                Err(error) => {
                    return Err(Violation::new(
                        Invariant::StartRefused,
                        format!("{mode:?}: {error:?}"),
                    ));
                }
            }
        }
        Err(Violation::new(
            Invariant::StartRefused,
            format!("{mode:?}, over and over"),
        ))
    }

    /// Cuts power at this moment in as many ways as are worth it.
    fn cut_here(&mut self, session: &Session<Engine>) {
        let site = session.world.site();
        self.report.moments += 1;
        let open = site.open_count();
        if open <= ALL_SUBSETS {
            for subset in 0..1 << open {
                self.try_cut(&site, &site.subset(subset), &session.oracle);
            }
        }
        for _ in 0..if open <= ALL_SUBSETS {
            open as u64
        } else {
            SAMPLES
        } {
            let cut = site.sample(&mut self.rng);
            self.try_cut(&site, &cut, &session.oracle);
        }
    }

    /// Assembles what a cut leaves, once with all members and once without some.
    fn try_cut(&mut self, site: &Site, cut: &Cut, oracle: &Oracle) {
        let images = site.images(cut);
        let contents: Vec<u64> = images.iter().map(Image::digest).collect();
        let away = self.rng.below(images.len() as u64 + 1) as usize;
        for away in [images.len(), away] {
            if !self.over() {
                self.try_image(&images, &contents, away, oracle);
            }
        }
    }

    /// Assembles the images without the one of number `away`.
    fn try_image(&mut self, images: &[Image], contents: &[u64], away: usize, oracle: &Oracle) {
        let key = contents
            .iter()
            .enumerate()
            .filter(|(i, _)| *i != away)
            .fold(mix(away as u64), |key, (_, one)| mix(key ^ one));
        // What may be read also depends on what was promised by now.
        let hash = mix(key ^ oracle.promises());
        if !self.seen.insert(hash) {
            self.report.repeats += 1;
            return;
        }
        self.report.hashes.push(hash);
        let number = self.report.images;
        self.report.images += 1;
        if let Err(violation) = self.assemble(
            images,
            away,
            oracle.clone(),
            self.reach.trace == Some(number),
        ) {
            self.report.violation = Some((number, violation));
        }
    }

    fn assemble(
        &mut self,
        images: &[Image],
        away: usize,
        mut oracle: Oracle,
        trace: bool,
    ) -> Result<(), Violation> {
        oracle.crash();
        let mut disks = Vec::new();
        for (i, image) in images.iter().enumerate().filter(|(i, _)| *i != away) {
            let device = Box::new(Simple::new(Nanos(1000), 1 << 30, Nanos(3000)));
            disks.push(self.spec.disk(i as u16, image.clone(), device, 1));
        }
        let atlas = Atlas::of(disks.iter())
            .ok_or_else(|| Violation::new(Invariant::StartRefused, "no superblock is left"))?;
        if !atlas.whole(None) {
            return Ok(());
        }
        self.report.reduced += u64::from(atlas.absent() > 0);
        atlas.grant_losses(self.spec.write_hole, false, &mut oracle);
        let mut session = self.session_on(disks, oracle, trace);
        self.start(&mut session)?;
        session.read_all(self.layout.row_sectors(), PATIENCE);
        first(&session)
    }
}

fn first(session: &Session<Engine>) -> Result<(), Violation> {
    session
        .violations()
        .next()
        .map_or(Ok(()), |violation| Err(violation.clone()))
}

fn may_lose(session: &Session<Engine>) -> bool {
    (0..session.oracle.sectors()).any(|lba| session.oracle.may_be_lost(lba, None))
}

/// One start; the answer, or what was broken meanwhile.
fn start(
    session: &mut Session<Engine>,
    mode: StartMode,
) -> Result<Result<(), CommandError>, Violation> {
    let tag = session.command(Command::Start(mode));
    loop {
        while let Some(news) = session.news() {
            match news {
                News::CommandReply(answered, result) if answered == tag => return Ok(result),
                _ => {}
            }
        }
        first(session)?;
        if !session.step() {
            return Err(Violation::new(
                Invariant::StuckRequest,
                "the start never ends",
            ));
        }
    }
}

fn ask(session: &mut Session<Engine>, workload: &mut Workload) {
    match workload.draw() {
        Ask::Read { .. } | Ask::Flush => session.flush(),
        Ask::Write {
            lba,
            sectors,
            kind,
            fua,
            fast,
        } => session.write(lba, sectors, kind, fua, fast),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_differ_and_repeats_are_known() {
        let reach = Reach::images(300);
        let first = enumerate(1, reach);
        assert_eq!(first, enumerate(1, reach));
        assert!(first.images >= 100 && first.moments > 10, "{first:?}");
    }
}
