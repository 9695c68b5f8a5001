//! How fast a RAID-5 is scrubbed and rebuilt, beside what one of its members does alone, round by round in turn.
//!
//! `tasks` measures everything, `tasks WORD` only the members with the word in their name. A member's own rate is the
//! lower of reading and writing it from end to end, 64 KiB at a time. These members share the processor with one
//! another and with the reactor, so the share falls short of what disks with a speed of their own would show.

use restripe_array::layout::{Level, Rotation};
use restripe_array::meta::{Content, CreateOptions, create};
use restripe_array::{
    Command, Fact, Limits, Member, Nanos, StartMode, TaskKind, TaskOutcome, Uuid,
};
use restripe_io::plain::Plain;
use restripe_io::{ArraySpec, Running, Shell, ShellOptions};
use std::error::Error;
use std::fs::File;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

const ROUNDS: usize = 7;
const SLOTS: usize = 5;
const MEMBERS: usize = SLOTS + 1;
const MEMBER_BYTES: u64 = 48 << 20;
const CHUNK_SECTORS: u32 = 128;
const PIECE: usize = 1 << 20;
const MIB: f64 = 1048576.0;
const PATIENCE: Duration = Duration::from_secs(60);

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    // The test runner's own flags (`--bench`) are of no interest.
    let word = std::env::args()
        .skip(1)
        .find(|text| !text.starts_with("--"))
        .unwrap_or_default();
    let folder = Folder::new()?;
    let kinds: Vec<Kind> = Kind::all(&folder)?
        .into_iter()
        .filter(|kind| kind.name.contains(&word))
        .collect();
    println!(
        "{SLOTS}-member RAID-5 and a spare, 64 KiB chunk; MiB a second of each member, medians"
    );
    println!("share: of the member's own rate, the lower quartile of {ROUNDS} interleaved rounds");
    let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); kinds.len()];
    for _ in 0..ROUNDS {
        for (kind, rounds) in kinds.iter().zip(&mut rounds) {
            rounds.push(round(&kind.names)?);
        }
    }
    for (kind, rounds) in kinds.iter().zip(&rounds) {
        report(kind.name, rounds);
    }
    Ok(())
}

fn report(name: &str, rounds: &[Round]) {
    let of =
        |pick: fn(&Round) -> f64, quarter| quantile(rounds.iter().map(pick).collect(), quarter);
    println!("\n{name}");
    println!(
        "  {:<18} {:>7.0}",
        "a member alone",
        of(|round| round.alone, 2)
    );
    let scrub = (
        of(|round| round.scrub, 2),
        of(|round| round.scrub / round.alone, 1),
    );
    println!("  {:<18} {:>7.0} {:>7.2} share", "scrub", scrub.0, scrub.1);
    let rebuild = (
        of(|round| round.rebuild, 2),
        of(|round| round.rebuild / round.alone, 1),
    );
    println!(
        "  {:<18} {:>7.0} {:>7.2} share",
        "rebuild", rebuild.0, rebuild.1
    );
}

/// The value a quarter (or two, or three) of the way through the sorted ones.
fn quantile(mut values: Vec<f64>, quarter: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() * quarter / 4]
}

// -------------------------------------------------------------------------------------------------------- rounds

/// MiB a second of one member.
#[derive(Clone, Copy)]
struct Round {
    alone: f64,
    scrub: f64,
    rebuild: f64,
}

fn round(names: &[String]) -> Outcome<Round> {
    let alone = alone(&names[0])?;
    let running = start(names)?;
    let facts = running.remote.facts(0)?;
    let bytes = fill(&running)?;
    let lifted = Command::Rate {
        min: u64::MAX,
        max: u64::MAX,
    };
    order(&running, lifted)?;
    order(&running, Command::Scrub { repair: false })?;
    let scrub = bytes / wait(&facts, TaskKind::Check)?;
    order(&running, Command::Fail(Member(1)))?;
    let rebuild = bytes / wait(&facts, TaskKind::Rebuild)?;
    running.remote.shutdown()?;
    running.join()?;
    Ok(Round {
        alone,
        scrub,
        rebuild,
    })
}

/// The lower of a member's rates from end to end.
fn alone(name: &str) -> Outcome<f64> {
    let member = Plain::open(name, false)?;
    let mut piece = vec![0x5a; PIECE];
    let sectors = (PIECE / 512) as u64;
    let places = || (0..MEMBER_BYTES / PIECE as u64).map(|index| index * sectors);
    let begin = Instant::now();
    for at in places() {
        member.write(at, &piece)?;
    }
    let written = begin.elapsed();
    let begin = Instant::now();
    for at in places() {
        member.read(at, &mut piece)?;
    }
    let slower = written.max(begin.elapsed());
    Ok(MEMBER_BYTES as f64 / MIB / slower.as_secs_f64())
}

fn order(running: &Running, command: Command) -> Outcome<()> {
    let answer = running.remote.command(0, command)?;
    answer.map_err(|error| format!("refused: {error:?}").into())
}

/// Writes all of the array. Gives the MiB of data of each member.
fn fill(running: &Running) -> Outcome<f64> {
    let status = running.remote.status(0)?.ok_or("no array")?;
    let mut client = running.remote.client(0);
    let mut at = 0;
    while at < status.size_bytes {
        let bytes = (PIECE as u64).min(status.size_bytes - at);
        client.write(at, vec![at as u8; bytes as usize], false)?;
        at += bytes;
    }
    client.flush()?;
    Ok(status.size_bytes as f64 / MIB / (SLOTS - 1) as f64)
}

/// Seconds from a task's start to its end, by the reactor's clock.
fn wait(facts: &Receiver<(Nanos, Fact)>, wanted: TaskKind) -> Outcome<f64> {
    let mut began = None;
    loop {
        match facts.recv_timeout(PATIENCE)? {
            (at, Fact::TaskStarted { kind, .. }) if kind == wanted => began = Some(at),
            (at, Fact::TaskEnded { kind, outcome }) if kind == wanted => {
                if outcome != TaskOutcome::Done {
                    return Err(format!("{kind:?} ended as {outcome:?}").into());
                }
                let began = began.ok_or("a task ended that never started")?;
                return Ok(at.since(began).0 as f64 / 1e9);
            }
            _ => {}
        }
    }
}

/// A new array on these members, the last of them a spare.
fn start(names: &[String]) -> Outcome<Running> {
    let members = names
        .iter()
        .map(|name| Plain::open(name, false))
        .collect::<Result<Vec<_>, _>>()?;
    let level = Level::Raid5(Rotation::LeftSymmetric);
    let mut options = CreateOptions::new("bench", Uuid([7; 16]), level, CHUNK_SECTORS);
    options.members = members.iter().map(Plain::info).collect();
    options.uuids = (1..=names.len()).map(|i| Uuid([i as u8; 16])).collect();
    options.spares = names.len() - SLOTS;
    let creation = create(&options).map_err(|error| error.to_string())?;
    for (member, at, content) in &creation.writes {
        match content {
            Content::Page(page) => members[*member].write(*at, &page[..])?,
            Content::Zero(sectors) => members[*member].zero(*at, *sectors)?,
        }
    }
    let spec = ArraySpec {
        members: members.into_iter().map(Plain::into_member).collect(),
        limits: Limits::default(),
        io_timeout: Nanos::from_secs(30),
        record: None,
    };
    let running = Shell::spawn(ShellOptions::default(), move |shell| {
        shell.host(spec).map(drop)
    })?;
    order(&running, Command::Start(StartMode::default()))?;
    Ok(running)
}

// ------------------------------------------------------------------------------------------------------- members

/// Members of one kind.
struct Kind {
    name: &'static str,
    names: Vec<String>,
}

impl Kind {
    fn all(folder: &Folder) -> Outcome<Vec<Kind>> {
        Ok(vec![
            Kind {
                name: "memory",
                names: vec![format!("ram:{MEMBER_BYTES}"); MEMBERS],
            },
            Kind {
                name: "files in the page cache",
                names: images(folder)?,
            },
        ])
    }
}

fn images(folder: &Folder) -> Outcome<Vec<String>> {
    let mut names = Vec::new();
    for index in 0..MEMBERS {
        let path = folder.file(&format!("image{index}"));
        File::create(&path)?.set_len(MEMBER_BYTES)?;
        names.push(path.display().to_string());
    }
    Ok(names)
}

/// A folder for images, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Outcome<Folder> {
        let path = std::env::temp_dir().join(format!("restripe-tasks-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Folder(path))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left behind is in the temporary folder, and named for us.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
