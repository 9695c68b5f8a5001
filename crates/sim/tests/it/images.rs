//! Crash images, each assembled by the real engine. A failure prints the line that replays it with the `crashes` binary.
//!
//! Images differ in what they hold and in what was promised. The first seeds are the same in each run; the others are
//! fresh ones.

use crate::cover::{assert_none, deep, fresh, is_deep};
use crate::queue::{lock, on_all_cores};
use restripe_sim::enumerate::{
    Reach, Report, enumerate, enumerate_grown, enumerate_growth, enumerate_hosts, enumerate_reshape,
};
use restripe_sim::swarm::Hosting;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Crash images of one kind.
struct Kind {
    /// The command that replays a seed, without the seed.
    command: String,
    enumerate: fn(u64, Reach) -> Report,
    reach: Reach,
    /// As many seeds from 0 on before the fresh ones.
    first: u64,
    /// As many images in all.
    wanted: u64,
    /// A slow machine ends its run after this, with as many as it has.
    longest: Option<Duration>,
}

impl Kind {
    /// Images of a seed at most, and of all: each in an ordinary run and in a deep one.
    fn new(
        options: &str,
        enumerate: fn(u64, Reach) -> Report,
        each: [u64; 2],
        wanted: [u64; 2],
    ) -> Kind {
        Kind {
            command: format!("crashes{options}"),
            enumerate,
            reach: Reach::images(deep(each[0], each[1])),
            // Fresh seeds give half of them at least.
            first: (wanted[0] / each[0] / 2).min(8),
            wanted: deep(wanted[0], wanted[1]),
            longest: None,
        }
    }

    fn seeds(&self) -> impl Iterator<Item = u64> + Send + use<> {
        let first = if is_deep() { 20_000 } else { self.first };
        (0..first).chain(fresh()..fresh() + 1_000)
    }
}

/// What all threads gather.
#[derive(Default)]
struct Gathered {
    broken: Vec<String>,
    images: BTreeSet<u64>,
    /// Images by how spare partitions were in use.
    hosting: BTreeMap<Hosting, u64>,
}

impl Gathered {
    fn add(&mut self, replay: &str, report: Option<Report>) {
        let Some(report) = report else {
            return self.broken.push(format!("{replay}: a panic"));
        };
        let broken = report.violation;
        let broken = broken.map(|(image, why)| format!("{replay} --trace {image}: {why}"));
        self.broken.extend(broken);
        self.images.extend(report.hashes);
        for (hosting, images) in report.hosting {
            *self.hosting.entry(hosting).or_default() += images;
        }
    }
}

/// Assembles as many images as are wanted, on all cores. Gives them by how spare partitions were in use.
fn assemble(kind: &Kind) -> BTreeMap<Hosting, u64> {
    let begun = Instant::now();
    let late = || {
        kind.longest
            .is_some_and(|longest| begun.elapsed() >= longest)
    };
    let gathered = Mutex::new(Gathered::default());
    on_all_cores(kind.seeds(), |seed| {
        let report = catch_unwind(AssertUnwindSafe(|| (kind.enumerate)(seed, kind.reach)));
        let mut gathered = lock(&gathered);
        gathered.add(&format!("{} --seed {seed}", kind.command), report.ok());
        (gathered.images.len() as u64) < kind.wanted && !late()
    });
    let Gathered {
        broken,
        images,
        hosting,
    } = std::mem::take(&mut *lock(&gathered));
    println!("{}: {} images, {hosting:?}", kind.command, images.len());
    assert_none(&broken);
    let count = images.len() as u64;
    assert!(count >= kind.wanted || late(), "{count} images");
    hosting
}

#[test]
fn crash_images_are_assembled() {
    let mut kind = Kind::new("", enumerate, [500, 2_000], [20_000, 1_000_000]);
    kind.longest = Some(Duration::from_secs(3600));
    assemble(&kind);
}

/// Power is cut at one step in this many, and more often after something has happened to the members.
const STRIDE_OF_HOSTS: u64 = 80;

/// The same while partitions of a lost member are rebuilt onto others, served there and brought home.
#[test]
fn crash_images_of_hosts_are_assembled() {
    let options = format!(" --hosts --stride {STRIDE_OF_HOSTS}");
    let mut kind = Kind::new(&options, enumerate_hosts, [250, 1_000], [4_000, 400_000]);
    kind.reach.stride = STRIDE_OF_HOSTS;
    let hosting = assemble(&kind);
    for met in [Hosting::Filling, Hosting::Serving, Hosting::GoingHome] {
        let images = hosting.get(&met).copied().unwrap_or(0);
        let least = kind.wanted / deep(40, 20);
        assert!(images >= least, "{met:?}: {images}");
    }
}

/// The same of arrays that have grown.
#[test]
fn crash_images_of_grown_arrays_are_assembled() {
    let kind = Kind::new(" --grown", enumerate_grown, [500, 2_000], [4_000, 200_000]);
    assemble(&kind);
}

/// The same while an array grows: what a start finds goes on to the end, and its new capacity is zeros but where users wrote.
#[test]
fn crash_images_of_growths_are_assembled() {
    let kind = Kind::new(
        " --growth",
        enumerate_growth,
        [500, 2_000],
        [4_000, 400_000],
    );
    assemble(&kind);
}

/// And while it keeps the plain layout.
#[test]
fn crash_images_of_reshapes_are_assembled() {
    let kind = Kind::new(
        " --reshape",
        enumerate_reshape,
        [500, 2_000],
        [4_000, 400_000],
    );
    assemble(&kind);
}
