//! `xtask md`: Linux md and Restripe judge each other's arrays (docs/explanation/md.md says what is compared).
//!
//! Restripe leads every array through its life and leaves copies of the members; one boot of a guest whose kernel has
//! md judges them all and lets md lead the same lives; then Restripe judges what md left. Further boots mount file
//! systems on attached arrays ([`mounted`]) and on the disk of a virtual machine ([`machine`]). The guest is started by
//! `rig/md-guest` in the folder that `RESTRIPE_SHARED` names, `../shared` otherwise. Where it is absent, or not
//! run by root, everything is skipped, and counted.

mod bench;
mod cases;
mod content;
mod curve;
mod disks;
mod growth;
mod guest;
mod house;
mod machine;
mod mounted;
mod nbd;
mod stages;

pub use bench::run as measure;
use cases::{Case, DATA_OFFSET_KIB, MEMBER_KIB};
use content::{Numbers, SECTOR, plan_text};
use guest::{ENGINES, Guest};
use house::{Daemon, House, Outcome, words};
use mounted::Life;
use stages::{Stage, stages};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Comparisons that could not be made because there is no guest.
const NO_GUEST: &str = "Linux md: needs root and rig/md-guest below $RESTRIPE_SHARED";
/// Of the guest as a whole, which needs a minute or two, or five times as much where it is emulated.
const GUEST_SECONDS: u64 = 1500;
/// The last words of the guest's script.
const END: &str = "end of jobs";
const NOISE: &str = "noise.img";
const JOBS: &str = "jobs";

/// Runs the cases whose names contain one of the patterns, or all.
pub fn run(root: &Path, patterns: &[&str]) -> ExitCode {
    let chosen = choose(patterns);
    let lives = mounted::LIVES.iter();
    let mounts: Vec<&Life> = lives.filter(|life| wanted(life.name, patterns)).collect();
    let machine = wanted(machine::NAME, patterns);
    let Some(rig) = guest::rig(root) else {
        let names = chosen.iter().map(|(_, case)| case.name.as_str());
        let machine = machine.then_some(machine::NAME);
        let names = names.chain(mounts.iter().map(|life| life.name));
        let names: Vec<&str> = names.chain(machine).collect();
        for name in &names {
            println!("skipped {name}: {NO_GUEST}");
        }
        // A case each: how many comparisons it stands for is known to those who make them.
        println!("0 passed, 0 failed, {} skipped", names.len());
        return ExitCode::SUCCESS;
    };
    let folder = std::env::temp_dir().join(format!("restripe-md-{}", std::process::id()));
    let tally = match judged(root, &rig, &folder, &chosen, &mounts, machine) {
        Ok(tally) => tally,
        Err(error) => {
            eprintln!("md: {error}");
            println!("0 passed, 1 failed, 0 skipped");
            return ExitCode::FAILURE;
        }
    };
    println!(
        "{} passed, {} failed, 0 skipped",
        tally.passed, tally.failed
    );
    if tally.failed > 0 {
        println!("the images are kept in {}", folder.display());
        return ExitCode::FAILURE;
    }
    // Only images of ours; the next run makes a folder of its own.
    let _ = fs::remove_dir_all(&folder);
    ExitCode::SUCCESS
}

/// Whether Linux md can be asked here.
pub fn has_guest(root: &Path) -> bool {
    guest::rig(root).is_some()
}

fn choose(patterns: &[&str]) -> Vec<(usize, Case)> {
    let cases = cases::all().into_iter().enumerate();
    cases
        .filter(|(_, case)| wanted(&case.name, patterns))
        .collect()
}

fn wanted(name: &str, patterns: &[&str]) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| name.contains(pattern))
}

fn judged(
    root: &Path,
    rig: &Path,
    folder: &Path,
    chosen: &[(usize, Case)],
    mounts: &[&Life],
    machine: bool,
) -> Outcome<Tally> {
    let mut tally = match chosen.is_empty() {
        true => Tally::default(),
        false => compare(root, rig, folder, chosen)?,
    };
    for life in mounts {
        for (name, result) in mounted::run(root, rig, folder, life)? {
            tally.count(&name, &result);
        }
    }
    if machine {
        for (name, result) in machine::run(root, rig, folder)? {
            tally.count(&name, &result);
        }
    }
    Ok(tally)
}

// ----------------------------------------------------------------------------------------------------------- tally

#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
}

impl Tally {
    fn count(&mut self, name: &str, result: &Outcome<()>) {
        match result {
            Ok(()) => {
                self.passed += 1;
                println!("ok {name}");
            }
            Err(error) => {
                self.failed += 1;
                println!("FAILED {name}: {error}");
            }
        }
    }
}

/// Names of comparisons that the guest is to make, and how each ended.
type Verdicts = BTreeMap<String, Outcome<()>>;

// ------------------------------------------------------------------------------------------------------ both ways

fn compare(root: &Path, rig: &Path, folder: &Path, chosen: &[(usize, Case)]) -> Outcome<Tally> {
    let mut bench = Bench::new(folder)?;
    let mut tally = Tally::default();
    for (nth, case) in chosen {
        let led = bench.lead(case, *nth);
        tally.count(&format!("{} led by Restripe", case.name), &led);
        bench.plan_for_md(case, *nth)?;
    }
    let mut verdicts = bench.boot(root, rig)?;
    for name in &bench.expected {
        let missing = Err("the guest says nothing about it".to_string());
        let verdict = verdicts.remove(name).unwrap_or(missing);
        tally.count(&format!("{name}: md"), &verdict);
    }
    for (nth, case) in chosen {
        for stage in stages(case, *nth) {
            let judged = bench.judge(case, &stage);
            let name = format!("{}/{} of md's: Restripe", case.name, stage.name);
            tally.count(&name, &judged);
        }
        if case.level > 0 {
            let noticed = bench.notice(case, &stages(case, *nth)[0]);
            tally.count(&format!("{}/spoilt of md's: Restripe", case.name), &noticed);
        }
    }
    Ok(tally)
}

/// The folder of one run and what is to be done in the guest.
struct Bench {
    house: House,
    folder: PathBuf,
    jobs: String,
    /// Comparisons that the guest is to make.
    expected: Vec<String>,
}

impl Bench {
    fn new(folder: &Path) -> Outcome<Bench> {
        let house = House::new(binary()?, &folder.join("house"))?;
        let noise = Numbers::new(0).noise(MEMBER_KIB as usize * 1024);
        write(&folder.join(NOISE), &noise)?;
        Ok(Bench {
            house,
            folder: folder.to_path_buf(),
            jobs: String::new(),
            expected: Vec::new(),
        })
    }

    /// Restripe leads the array through its life; copies of its members are for md to judge.
    fn lead(&mut self, case: &Case, nth_case: usize) -> Outcome<()> {
        let folder = self.fresh(&format!("ours/{}", case.name))?;
        let mut members = self.noisy(&folder, "member", case.members)?;
        self.house
            .create(&create_options(case, case.init), &members)?;
        for stage in stages(case, nth_case) {
            let daemon = self.house.serve(&members)?;
            daemon.settle()?;
            self.pass(case, &stage, &folder, &daemon)?;
            let slots = daemon.slots(case.members)?;
            members = slots.iter().flatten().cloned().collect();
            daemon.stop()?;
            self.hand_over(case, &stage, &folder, &slots)?;
        }
        Ok(())
    }

    fn pass(&self, case: &Case, stage: &Stage, folder: &Path, daemon: &Daemon<'_>) -> Outcome<()> {
        if let Some(slot) = stage.loses {
            let slots = daemon.slots(case.members)?;
            let member = slots[slot as usize].as_ref();
            daemon.fail(member.ok_or_else(|| format!("slot {slot} is vacant already"))?)?;
        }
        if stage.rebuilds {
            for spare in self.noisy(folder, "spare", case.tolerance())? {
                daemon.rebuild_onto(&spare)?;
            }
        }
        let mut client = daemon.client()?;
        for extent in &stage.writes {
            let range = extent.bytes();
            let written = client.write(range.start, &stage.image[range]);
            written.map_err(|error| format!("writing {extent:?}: {error}"))?;
        }
        client
            .flush()
            .map_err(|error| format!("flushing: {error}"))?;
        drop(client);
        holds(daemon, &stage.image)
    }

    /// Copies the members and puts md's jobs with them on the list. The first stage is judged a second time with a
    /// byte of redundancy changed: a check that finds nothing there would find nothing anywhere.
    fn hand_over(
        &mut self,
        case: &Case,
        stage: &Stage,
        folder: &Path,
        slots: &[Option<PathBuf>],
    ) -> Outcome<()> {
        let vacant = |slot: &u64| slots[*slot as usize].is_none();
        let found: Vec<u64> = (0..case.members).filter(vacant).collect();
        let mut wanted = stage.vacant.clone();
        wanted.sort_unstable();
        if found != wanted {
            return Err(format!(
                "{}: slots {found:?} are vacant, not {wanted:?}",
                stage.name
            ));
        }
        let copies = self.copies(folder, &stage.name, slots)?;
        let image = format!("ours/{}/{}.img", case.name, stage.name);
        write(&self.folder.join(&image), &stage.image)?;
        self.judge_job(case, &stage.name, &image, &copies, true);
        if stage.name == "healthy" && case.level > 0 {
            let copies = self.copies(folder, "spoilt", slots)?;
            spoil(
                &self.folder.join(&copies[redundant_slot(case)]),
                DATA_OFFSET_KIB * 1024,
            )?;
            self.judge_job(case, "spoilt", &image, &copies, false);
        }
        Ok(())
    }

    /// Copies of the members, by their paths within the folder; `missing` for a vacant slot.
    fn copies(&self, folder: &Path, name: &str, slots: &[Option<PathBuf>]) -> Outcome<Vec<String>> {
        let mut copies = Vec::with_capacity(slots.len());
        for (slot, member) in slots.iter().enumerate() {
            let Some(member) = member else {
                copies.push("missing".into());
                continue;
            };
            let copy = folder.join(format!("{name}.{slot}"));
            fs::copy(member, &copy).map_err(|error| format!("{}: {error}", copy.display()))?;
            let within = copy.strip_prefix(&self.folder).unwrap_or(&copy);
            copies.push(within.display().to_string());
        }
        Ok(copies)
    }

    fn judge_job(&mut self, case: &Case, what: &str, image: &str, copies: &[String], agrees: bool) {
        let name = format!("{}/{what}", case.name);
        let verdict = if agrees { "agrees" } else { "differs" };
        let shape = shape(case);
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(
            self.jobs,
            "judge {name} {shape} {image} {verdict} {}",
            copies.join(" ")
        );
        self.expected.push(name);
    }

    /// The same life, for md.
    fn plan_for_md(&mut self, case: &Case, nth_case: usize) -> Outcome<()> {
        let name = format!("theirs/{}", case.name);
        let folder = self.fresh(&name)?;
        let mut life = String::new();
        for stage in stages(case, nth_case) {
            let (plan, image) = (
                format!("{}.plan", stage.name),
                format!("{}.img", stage.name),
            );
            write(&folder.join(&plan), plan_text(&stage.writes).as_bytes())?;
            write(&folder.join(&image), &stage.image)?;
            if let Some(slot) = stage.loses {
                let _ = writeln!(life, "lose {slot}");
            }
            if stage.rebuilds {
                life.push_str("rebuild\n");
            }
            let _ = writeln!(life, "write {plan} {image}\nkeep {}", stage.name);
        }
        write(&folder.join("life"), life.as_bytes())?;
        let shape = shape(case);
        let led = format!("{}/led", case.name);
        let _ = writeln!(self.jobs, "live {led} {shape} {name} {}", case.members);
        if case.level > 0 {
            self.expected.push(led);
        }
        Ok(())
    }

    /// One boot for all jobs, of the first engine that says anything.
    fn boot(&self, root: &Path, rig: &Path) -> Outcome<Verdicts> {
        write(&self.folder.join(JOBS), self.jobs.as_bytes())?;
        let guest = Guest {
            root,
            rig,
            folder: &self.folder,
            options: Vec::new(),
            seconds: GUEST_SECONDS,
        };
        let said = guest.run(&ENGINES, "guest.py", &[JOBS, NOISE])?;
        if !said.lines().any(|line| line == END) {
            return Err(format!("the guest ended before its jobs; it said:\n{said}"));
        }
        Ok(verdicts(&said))
    }

    /// Restripe takes over what md left at this stage, as members made with `--init assume-clean`.
    fn judge(&self, case: &Case, stage: &Stage) -> Outcome<()> {
        let members = self.take_over(case, stage)?;
        let daemon = self.house.serve(&members)?;
        for slot in &stage.vacant {
            daemon.fail(&members[*slot as usize])?;
        }
        holds(&daemon, &stage.image)?;
        if stage.vacant.is_empty() && case.level > 0 {
            daemon.scrub()?;
            // With any one member away the parity that md wrote is what is read.
            daemon.fail(&members[0])?;
            holds(&daemon, &stage.image)?;
        }
        daemon.stop()
    }

    /// Members with a byte of redundancy changed: Restripe's check must see it.
    fn notice(&self, case: &Case, stage: &Stage) -> Outcome<()> {
        let members = self.take_over(case, stage)?;
        spoil(&members[redundant_slot(case)], DATA_OFFSET_KIB * 1024)?;
        let daemon = self.house.serve(&members)?;
        match daemon.scrub() {
            Err(error) if error.contains("1 row disagrees") => daemon.stop(),
            Err(error) => Err(error),
            Ok(()) => Err("a scrub finds nothing wrong".into()),
        }
    }

    fn take_over(&self, case: &Case, stage: &Stage) -> Outcome<Vec<PathBuf>> {
        let folder = self.fresh(&format!("taken/{}/{}", case.name, stage.name))?;
        let theirs = self.folder.join("theirs").join(&case.name);
        let members = self.noisy(&folder, "member", case.members)?;
        self.house
            .create(&create_options(case, "assume-clean"), &members)?;
        for (slot, member) in members.iter().enumerate() {
            if stage.vacant.contains(&(slot as u64)) {
                continue;
            }
            let data = read(&theirs.join(format!("{}.{slot}", stage.name)))?;
            if data.len() as u64 != case.size_kib * 1024 {
                return Err(format!("md left {} bytes in slot {slot}", data.len()));
            }
            let written = overwrite(member, DATA_OFFSET_KIB * 1024, &data);
            written.map_err(|error| format!("{}: {error}", member.display()))?;
        }
        Ok(members)
    }

    /// Images full of noise: what is not written shows.
    fn noisy(&self, folder: &Path, name: &str, count: u64) -> Outcome<Vec<PathBuf>> {
        let noise = self.folder.join(NOISE);
        let image = |nth| {
            let path = folder.join(format!("{name}{nth}.img"));
            let copied = fs::copy(&noise, &path);
            copied.map_err(|error| format!("{}: {error}", path.display()))?;
            Ok(path)
        };
        (0..count).map(image).collect()
    }

    fn fresh(&self, name: &str) -> Outcome<PathBuf> {
        let folder = self.folder.join(name);
        // It may not be there, which is as well.
        let _ = fs::remove_dir_all(&folder);
        let made = fs::create_dir_all(&folder);
        made.map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(folder)
    }
}

// ---------------------------------------------------------------------------------------------------------- pieces

/// The release binary of the target folder that this very program lies in, unless another is named.
pub fn binary() -> Outcome<PathBuf> {
    if let Some(path) = std::env::var_os("RESTRIPE_BIN") {
        return fs::canonicalize(path).map_err(|error| format!("RESTRIPE_BIN: {error}"));
    }
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let target = own.parent().and_then(Path::parent);
    let target = target.ok_or("this program lies in no target folder")?;
    Ok(target.join("release/restripe"))
}

fn create_options(case: &Case, init: &str) -> Vec<String> {
    let mut options = words(&["--init", init]);
    let mut say = |option: &str, value: String| options.extend([option.to_string(), value]);
    say("--level", format!("raid{}", case.level));
    say("--chunk", format!("{}K", case.chunk_kib));
    say("--size-per-member", format!("{}K", case.size_kib));
    say("--data-offset", format!("{DATA_OFFSET_KIB}K"));
    if let Some(rotation) = case.rotation {
        say("--rotation", rotation.into());
    }
    if case.level == 10 {
        say("--copies", case.copies.to_string());
    }
    if let Some(write_hole) = case.write_hole {
        say("--write-hole", write_hole.into());
    }
    options
}

/// What the guest's script calls LEVEL LAYOUT CHUNK_KIB SIZE_KIB OFFSET_KIB.
fn shape(case: &Case) -> String {
    format!(
        "{} {} {} {} {DATA_OFFSET_KIB}",
        case.level,
        case.md_layout(),
        case.chunk_kib,
        case.size_kib
    )
}

/// A slot that holds redundancy, not the first copy of data, in its first chunk.
fn redundant_slot(case: &Case) -> usize {
    let last = case.members as usize - 1;
    let rotation = case.rotation.unwrap_or("parity-last");
    match (case.level, rotation) {
        (1 | 10, _) => 1,
        (_, "parity-first" | "right-symmetric" | "right-asymmetric") => 0,
        // md's level 6 has P in front of Q; left rotations begin with P last, and Q on the first member.
        (6, "left-symmetric" | "left-asymmetric") => 0,
        _ => last,
    }
}

fn holds(daemon: &Daemon<'_>, image: &[u8]) -> Outcome<()> {
    let mut client = daemon.client()?;
    if client.size != image.len() as u64 {
        return Err(format!(
            "the array has {} bytes, not {}",
            client.size,
            image.len()
        ));
    }
    let read = client.read(0, image.len());
    let read = read.map_err(|error| format!("reading: {error}"))?;
    let differs = |(ours, theirs): (&[u8], &[u8])| ours != theirs;
    match read
        .chunks(SECTOR)
        .zip(image.chunks(SECTOR))
        .position(differs)
    {
        None => Ok(()),
        Some(sector) => Err(format!("sector {sector} reads as something else")),
    }
}

fn verdicts(said: &str) -> Verdicts {
    let mut verdicts = Verdicts::new();
    for line in said.lines() {
        let (good, rest) = match line.strip_prefix("not ok ") {
            Some(rest) => (false, rest),
            None => (true, line.strip_prefix("ok ").unwrap_or_default()),
        };
        let Some((name, what)) = rest.split_once(": ") else {
            continue;
        };
        // A comparison has several parts; the first that fails is told.
        let verdict = verdicts.entry(name.to_string()).or_insert(Ok(()));
        if !good && verdict.is_ok() {
            *verdict = Err(what.to_string());
        }
    }
    verdicts
}

fn write(path: &Path, bytes: &[u8]) -> Outcome<()> {
    fs::write(path, bytes).map_err(|error| format!("{}: {error}", path.display()))
}

fn read(path: &Path) -> Outcome<Vec<u8>> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn overwrite(path: &Path, at: u64, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).open(path)?;
    file.seek(SeekFrom::Start(at))?;
    file.write_all(bytes)
}

/// Turns over the bits of one byte.
fn spoil(path: &Path, at: u64) -> Outcome<()> {
    let mut byte = [0];
    let spoilt = fs::File::open(path)
        .and_then(|mut file| file.seek(SeekFrom::Start(at)).map(|_| file))
        .and_then(|mut file| file.read_exact(&mut byte))
        .and_then(|()| overwrite(path, at, &[!byte[0]]));
    spoilt.map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_of_a_comparison_is_told() {
        let said =
            "ok a: fine\nnot ok b: bytes\nok b: fine\nnot ok b: parity\nnoise\nend of jobs\n";
        let verdicts = verdicts(said);
        assert_eq!(verdicts.len(), 2);
        assert_eq!(verdicts["a"], Ok(()));
        assert_eq!(verdicts["b"], Err("bytes".into()));
    }

    #[test]
    fn patterns_choose_cases() {
        assert_eq!(choose(&[]).len(), cases::all().len());
        assert!(
            choose(&["raid6", "raid10"])
                .iter()
                .all(|(_, case)| [6, 10].contains(&case.level))
        );
        assert!(choose(&["nothing"]).is_empty());
    }
}
