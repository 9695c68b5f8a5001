//! `xtask md-bench growth`: a RAID-4 of four disks grows by a fifth with nobody asking for anything, Linux md's reshape beside
//! Restripe, on simulated disks of the same kind. md runs in the rig's guest, with a backup file in memory.

use super::disks::{DISK, Disks};
use super::guest::{Engine, Guest};
use super::house::{House, Outcome, words};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

pub const NAME: &str = "growth";
const ENGINES: [Engine; 2] = [Engine::UserMode, Engine::UserModeOnLargeState];
const DISKS: usize = 5;
const SLOTS: usize = 4;
/// Each side grows so often.
const ROUNDS: usize = 3;
/// md's `stripe_cache_size`: its default, and tuned.
const STRIPE_CACHES: [u32; 2] = [256, 4096];
/// What a round in the guest takes at most.
const ROUND_SECONDS: u64 = 240;

pub fn run(root: &Path, rig: &Path, folder: &Path) -> Outcome<()> {
    fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    let house = House::new(super::binary()?, &folder.join("house"))?;
    let disks = Disks::start(rig, folder, DISKS)?;
    let mut ours = Vec::new();
    for _ in 0..ROUNDS {
        ours.push(our_round(&house, &disks)?);
    }
    drop(disks);
    println!("raid4 from 4 to 5 disks of {DISK}, seconds");
    println!("{}", line("restripe", &ours));
    for (cache, theirs) in theirs(root, rig, folder)? {
        let over = median(&theirs) / median(&ours);
        let who = format!("md, stripe cache {cache}");
        println!("{}, {over:.1} times as long", line(&who, &theirs));
    }
    Ok(())
}

fn our_round(house: &House, disks: &Disks) -> Outcome<f64> {
    let members = &disks.names[..SLOTS];
    let options = [
        "--level",
        "raid4",
        "--chunk",
        "64K",
        "--init",
        "assume-clean",
    ];
    let options = [&options[..], &["--write-hole", "none", "--force", "--yes"]].concat();
    house.create(&words(&options), members)?;
    let daemon = house.serve(members)?;
    let added = disks.names[SLOTS].display().to_string();
    let begin = Instant::now();
    daemon.ask("grow", &["--add", &added, "--force", "--yes"])?;
    let elapsed = begin.elapsed();
    daemon.stop()?;
    Ok(elapsed.as_secs_f64())
}

/// Seconds of each round, by md's stripe cache.
fn theirs(root: &Path, rig: &Path, folder: &Path) -> Outcome<BTreeMap<u32, Vec<f64>>> {
    let guest = Guest {
        root,
        rig,
        folder,
        options: words(&[&["--mem", "1G"][..], &["--hdd", DISK].repeat(DISKS)].concat()),
        seconds: ROUND_SECONDS * (ROUNDS * STRIPE_CACHES.len()) as u64,
    };
    let caches = STRIPE_CACHES.map(|cache| cache.to_string());
    let rounds = ROUNDS.to_string();
    let arguments: Vec<&str> = [&rounds]
        .into_iter()
        .chain(&caches)
        .map(String::as_str)
        .collect();
    let said = guest.run(&ENGINES, "grow.py", &arguments)?;
    let mut found: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (cache, seconds) in said.lines().filter_map(told) {
        found.entry(cache).or_default().push(seconds);
    }
    let whole = |cache| {
        found
            .get(cache)
            .is_some_and(|rounds: &Vec<f64>| rounds.len() == ROUNDS)
    };
    match STRIPE_CACHES.iter().all(whole) {
        true => Ok(found),
        false => Err(format!("the guest says {said}")),
    }
}

/// A line `grown STRIPE_CACHE SECONDS`.
fn told(line: &str) -> Option<(u32, f64)> {
    let (cache, seconds) = line.strip_prefix("grown ")?.split_once(' ')?;
    Some((cache.parse().ok()?, seconds.parse().ok()?))
}

fn median(rounds: &[f64]) -> f64 {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn line(who: &str, rounds: &[f64]) -> String {
    let (least, most) = rounds
        .iter()
        .fold((f64::MAX, 0.0_f64), |(least, most), seconds| {
            (least.min(*seconds), most.max(*seconds))
        });
    format!("{who}: {:.1} ({least:.1} to {most:.1})", median(rounds))
}
