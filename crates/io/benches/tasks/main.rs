//! How fast a RAID-5 is scrubbed and rebuilt, beside what one of its members does alone, round by round in turn.
//!
//! `tasks` measures everything, `tasks WORD` only the members with the word in their name. A member's own rate is the
//! lower of reading and writing it from end to end. Members in memory and in the page cache share the processor with one
//! another and with the reactor: their share tells what an operation costs. Whether members are kept busy is told by
//! those with a speed of their own, which are far slower than the processor.

#[path = "../served/load.rs"]
#[allow(dead_code)] // Its other user has more workloads.
mod load;
mod members;
mod paced;
#[path = "../served/process.rs"]
#[allow(dead_code)] // Its other users have processes.
mod process;
#[path = "../served/rounds.rs"]
#[allow(dead_code)] // Its rounds are of other figures.
mod rounds;
#[path = "../served/secure.rs"]
#[allow(dead_code)] // TLS is its other user's.
mod secure;

use load::Load;
use members::{Kind, kinds};
use process::Folder;
use restripe_array::layout::{Level, Rotation};
use restripe_array::meta::{Content, CreateOptions, Init, create};
use restripe_array::{
    Command, Fact, Limits, Member, Nanos, ScrubMode, StartMode, TaskKind, TaskOutcome, Uuid,
};
use restripe_io::plain::Plain;
use restripe_io::{ArraySpec, Running, Shell, ShellOptions};
use rounds::{ROUNDS, Workload, quantile};
use std::error::Error;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

const SLOTS: usize = 5;
const MEMBERS: usize = SLOTS + 1;
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
    let kinds = kinds(&folder, &word)?;
    println!(
        "{SLOTS}-member RAID-5 and a spare, 64 KiB chunk; MiB a second of each member, medians"
    );
    println!("share: of the member's own rate, the lower quartile of {ROUNDS} interleaved rounds");
    let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); kinds.len()];
    for _ in 0..ROUNDS {
        for (kind, rounds) in kinds.iter().zip(&mut rounds) {
            rounds.push(round(kind)?);
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

// -------------------------------------------------------------------------------------------------------- rounds

/// MiB a second of one member.
#[derive(Clone, Copy)]
struct Round {
    alone: f64,
    scrub: f64,
    rebuild: f64,
}

fn round(kind: &Kind) -> Outcome<Round> {
    let alone = if kind.remote() {
        alone_remotely(kind)?
    } else {
        alone(kind)?
    };
    let running = start(kind)?;
    let facts = running.remote.facts(0)?;
    let bytes = if kind.remote() {
        size(&running)?
    } else {
        fill(&running)?
    };
    let lifted = Command::Rate {
        min: u64::MAX,
        max: u64::MAX,
    };
    order(&running, lifted)?;
    order(&running, Command::Scrub(ScrubMode::Check))?;
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

/// The lower of a member's rates from end to end, one piece at a time.
fn alone(kind: &Kind) -> Outcome<f64> {
    let member = Plain::open(&kind.names[0], false)?;
    let mut piece = vec![0x5a; PIECE];
    let sectors = (PIECE / 512) as u64;
    let places = || (0..kind.bytes / PIECE as u64).map(|index| index * sectors);
    let begin = Instant::now();
    for at in places() {
        member.write(at, &piece)?;
    }
    let written = begin.elapsed();
    let begin = Instant::now();
    for at in places() {
        member.read(at, &mut piece)?;
    }
    Ok(slower(kind, written, begin.elapsed()))
}

/// The same with several pieces in flight, as whoever wants all that a disk can do asks for them.
fn alone_remotely(kind: &Kind) -> Outcome<f64> {
    let mut times = [Duration::ZERO; 2];
    for (write, time) in [true, false].into_iter().zip(&mut times) {
        let workload = Workload {
            name: "alone",
            write,
            depth: 8,
            bytes: PIECE as u32,
            stream: true,
            // The array to be made of these members trusts them to agree.
            byte: 0,
        };
        let begin = Instant::now();
        Load::over(kind.connect(0)?, workload)?.fill()?;
        *time = begin.elapsed();
    }
    Ok(slower(kind, times[0], times[1]))
}

fn slower(kind: &Kind, one: Duration, other: Duration) -> f64 {
    kind.bytes as f64 / MIB / one.max(other).as_secs_f64()
}

fn order(running: &Running, command: Command) -> Outcome<()> {
    let answer = running.remote.command(0, command)?;
    answer.map_err(|error| format!("refused: {error:?}").into())
}

/// The MiB of data of each member.
fn size(running: &Running) -> Outcome<f64> {
    let status = running.remote.status(0)?.ok_or("no array")?;
    Ok(status.size_bytes as f64 / MIB / (SLOTS - 1) as f64)
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
    size(running)
}

/// Seconds from a task's start to its end, by the reactor's clock.
fn wait(facts: &Receiver<(Nanos, Fact)>, wanted: TaskKind) -> Outcome<f64> {
    let mut began = None;
    loop {
        match facts.recv_timeout(PATIENCE)? {
            (at, Fact::TaskStarted { kind, .. }) if kind == wanted => began = Some(at),
            (at, Fact::TaskEnded { kind, outcome, .. }) if kind == wanted => {
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
fn start(kind: &Kind) -> Outcome<Running> {
    let names = &kind.names;
    let members = names
        .iter()
        .map(|name| Plain::open(name, false))
        .collect::<Result<Vec<_>, _>>()?;
    let level = Level::Raid5(Rotation::LeftSymmetric);
    let mut options = CreateOptions::new("bench", Uuid([7; 16]), level, CHUNK_SECTORS);
    options.members = members.iter().map(Plain::info).collect();
    options.uuids = (1..=names.len()).map(|i| Uuid([i as u8; 16])).collect();
    options.spares = names.len() - SLOTS;
    if kind.remote() {
        // They hold zeros, which agree: nobody has to wait until slow members are filled.
        options.init = Init::Trust;
    }
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
        surrogate: None,
        io_timeout: Nanos::from_secs(30),
        probe: Nanos::from_secs(10),
        record: None,
    };
    let running = Shell::spawn(ShellOptions::default(), move |shell| {
        shell.host(spec).map(drop)
    })?;
    order(&running, Command::Start(StartMode::default()))?;
    Ok(running)
}
