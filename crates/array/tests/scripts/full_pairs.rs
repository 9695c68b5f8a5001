//! An array with a surrogate runs out of space: on every member of one of its sets, at each step of a run of writes. It goes on by
//! itself once room was made, with every byte that it acknowledged.

use crate::ranges_pairs::{BUFFER, HOME, LOG, beside};
use crate::shell::{Array, CHUNK, Setup, raid1, raid5};
use restripe_array::layout::Level;
use restripe_array::meta::{Partner, PartnerRole, WriteHole};
use restripe_array::{Command, Destage, IoError, Member, Nanos, Redirect, RequestError, StartMode};
use std::ops::Range;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Family {
    /// Writes are redirected while a rebuild runs.
    WorkOut,
    LogDisk,
    NoLog,
    CodeCache,
    Buffered,
}

#[derive(Clone)]
struct Sets {
    home: Range<u16>,
    log: Range<u16>,
    buffer: Range<u16>,
}

fn pair(family: Family) -> (Array, Sets) {
    let mut home = Setup::new(Level::Raid10 { copies: 2 }, 4);
    if family != Family::NoLog {
        home.options.partner = Some(Partner::new(PartnerRole::Main, LOG));
    }
    let log = match family {
        Family::LogDisk => Setup::new(Level::Raid0, 1).hole(WriteHole::None),
        Family::WorkOut => raid1(2),
        _ => raid5(3).hole(WriteHole::WholeRows),
    };
    let mut log = beside(log, 96, LOG, 100, PartnerRole::Surrogate, HOME);
    let buffered = family == Family::Buffered;
    log.options.buffered = buffered;
    let buffer = raid1(2).hole(WriteHole::None);
    let buffer = beside(buffer, 256, BUFFER, 120, PartnerRole::Buffer, HOME);
    let logs = log.options.members.len() as u16;
    let redirect = match family {
        Family::WorkOut => Redirect::WorkOut,
        Family::LogDisk => Redirect::Graid,
        _ => Redirect::Reraid,
    };
    let mut array = home.made();
    let mut sets = Sets {
        home: 0..4,
        log: 4..4,
        buffer: 4..4,
    };
    if family == Family::NoLog {
        array.eraid(Nanos::from_secs(3600));
    } else {
        let buffer = buffered.then(|| buffer.made());
        array.join_buffered(log.made(), buffer, redirect, Destage::default());
        sets.log = 4..4 + logs;
        sets.buffer = sets.log.end..sets.log.end + if buffered { 2 } else { 0 };
    }
    array.start().expect("all sets are whole");
    array.run();
    for lba in [0, 2 * CHUNK, 40, 100] {
        array.written(lba, 12).expect("written");
    }
    array.flushed();
    if family == Family::WorkOut {
        // A rebuild that rests redirects writes.
        array.command(Command::Fail(Member(1))).expect("redundant");
        array.written(0, 200).expect("written");
        array.flushed();
        array.order(Command::Add(Member(1)));
        array.run_but("m1 write data");
        assert!(!array.engine.status().tasks.is_empty(), "it rebuilds");
    }
    (array, sets)
}

/// Ends operations in their order; those of full members that write fail. Not more than so many.
struct Space {
    full: Range<u16>,
    flushes: bool,
    steps: usize,
}

impl Space {
    fn lacks(&self, label: &str) -> bool {
        let member: u16 = label[1..].split(' ').next().unwrap().parse().unwrap();
        let writes = label.contains(" write ") || label.contains(" zero ");
        self.full.contains(&member) && (writes || self.flushes && label.contains("flush"))
    }

    /// Runs until nothing is under way; the space ends after so many steps.
    fn run(&mut self, array: &mut Array, held: &str) -> usize {
        for steps in 0..20_000 {
            let labels = array.labels();
            let Some(index) = labels.iter().position(|label| !label.contains(held)) else {
                return steps;
            };
            let fails = self.steps == 0 && self.lacks(labels[index]);
            self.steps = self.steps.saturating_sub(1);
            array.end_as(index, if fails { Err(IoError::NoSpace) } else { Ok(()) });
            array.turn();
        }
        panic!("it never rests: {:?}", array.labels());
    }
}

fn is_without_log(array: &Array) -> bool {
    let surrogate = array.engine.status().surrogate;
    let overlay = surrogate.and_then(|one| one.overlay);
    overlay.is_none_or(|one| one.broken)
}

const NEVER: &str = "no label has this";

/// Ranges that are written, each once.
fn ranges() -> Vec<(u64, u64)> {
    (0..7).map(|n| (n * 28 + 4, 3 + n * 3 % 7)).collect()
}

fn is_wanted(array: &mut Array, lba: u64, sectors: u64) -> Result<bool, RequestError> {
    let wanted = array.wanted(lba, sectors);
    Ok(array.read(lba, sectors)? == wanted)
}

struct Case {
    family: Family,
    /// Whose members run full.
    set: fn(&Sets) -> Range<u16>,
    /// Members that failed before.
    gone: &'static [u16],
}

/// One run: space ends after so many steps. How many there were, and whether writes were refused.
fn run_out(case: &Case, steps: usize, flushes: bool) -> (usize, bool) {
    let Case { family, set, gone } = *case;
    let (mut array, sets) = pair(family);
    for &member in gone {
        array
            .command(Command::Fail(Member(member)))
            .expect("redundant");
        array.run();
    }
    let held = match family {
        Family::WorkOut => "m1 write data",
        _ => NEVER,
    };
    let full = set(&sets);
    let mut space = Space {
        full: full.clone(),
        flushes,
        steps,
    };
    let what =
        format!("{family:?}, {full:?} full after {steps} steps, flushes {flushes}, {gone:?} gone");
    let mut asked = Vec::new();
    let mut taken = 0;
    for (n, &(lba, sectors)) in ranges().iter().enumerate() {
        asked.push((array.write(lba, sectors), Some((lba, sectors))));
        if n % 3 == 2 {
            asked.push((array.flush(), None));
            taken += space.run(&mut array, held);
        }
    }
    let held = NEVER;
    taken += space.run(&mut array, held);
    for _ in 0..3 {
        array.wait(Nanos::from_millis(300));
        space.run(&mut array, held);
    }
    // Attempts end midway: there is room for some operations only.
    for room in [0, steps % 41, 1 + steps % 97] {
        array.wait(Nanos::from_secs(11));
        space.steps = room;
        let tag = array.write(230, 5);
        space.run(&mut array, held);
        array.wait(Nanos::from_millis(300));
        space.run(&mut array, held);
        assert!(
            array.reply(tag).is_some(),
            "{what}: {room} operations had room"
        );
    }
    space.steps = 0;
    let mut refused = Vec::new();
    for (tag, range) in &asked {
        match array.reply(*tag) {
            Some(Ok(())) => {}
            Some(Err(_)) => refused.push(*range),
            None => panic!("{what}: no answer to {range:?}: {:?}", array.facts),
        }
    }
    let stopped = !refused.is_empty();
    let acknowledged = |range: &(u64, u64)| !refused.contains(&Some(*range));
    for range in ranges().iter().filter(|range| acknowledged(range)) {
        // A halted set may not know what is in doubt.
        let sound = is_wanted(&mut array, range.0, range.1);
        assert!(
            sound != Ok(false),
            "{what}: {range:?} while there is no space"
        );
    }
    // There is room again.
    space.full = 0..0;
    array.wait(Nanos::from_secs(11));
    space.run(&mut array, held);
    let mut tries = 0;
    for (lba, sectors) in refused
        .iter()
        .flatten()
        .copied()
        .chain([(230, 5), (220, 8)])
    {
        loop {
            let tag = array.write(lba, sectors);
            space.run(&mut array, held);
            match array.reply(tag) {
                Some(Ok(())) => break,
                told => {
                    tries += 1;
                    let refusal = array.engine.status().refusal;
                    assert!(
                        tries < 4,
                        "{what}: {told:?} though there is room: {refusal:?}, {:?}",
                        array.facts
                    );
                    array.wait(Nanos::from_secs(11));
                    space.run(&mut array, held);
                }
            }
        }
    }
    for _ in 0..5 {
        // A log that first copies went on without comes back once these are everywhere.
        if !is_without_log(&array) {
            break;
        }
        array.pass(Nanos::from_secs(11));
        array.written(220, 8).expect("there is room");
        array.flushed();
    }
    assert!(full == sets.buffer || !is_without_log(&array), "{what}");
    let flush = array.flush();
    space.run(&mut array, held);
    assert_eq!(array.reply(flush), Some(Ok(())), "{what}");
    for (lba, sectors) in ranges() {
        assert_eq!(
            is_wanted(&mut array, lba, sectors),
            Ok(true),
            "{what}: {lba}"
        );
    }
    if let Some(refusal) = array.engine.status().refusal {
        panic!("{what}: still {refusal:?}");
    }
    // It is durable, too.
    array.crash(|_| false);
    let mode = StartMode::PLAIN;
    array
        .command(Command::Start(mode))
        .unwrap_or_else(|error| panic!("{what}: {error:?}"));
    array.run();
    array.verify();
    (taken, stopped)
}

fn sweep(family: Family, set: fn(&Sets) -> Range<u16>) -> usize {
    sweep_of(Case {
        family,
        set,
        gone: &[],
    })
}

fn sweep_of(case: Case) -> usize {
    let mut refused = 0;
    for flushes in [false, true] {
        // Every other step with each kind of error.
        for steps in (usize::from(flushes)..).step_by(2) {
            let (taken, stopped) = run_out(&case, steps, flushes);
            refused += usize::from(stopped);
            if steps >= taken {
                break;
            }
        }
    }
    refused
}

#[test]
fn code_cache_with_a_full_log_goes_on() {
    assert!(sweep(Family::CodeCache, |sets| sets.log.clone()) > 10);
}

#[test]
fn code_cache_with_a_full_main_set_goes_on() {
    assert!(sweep(Family::CodeCache, |sets| sets.home.clone()) > 5);
}

#[test]
fn buffered_code_cache_with_a_full_log_goes_on() {
    assert!(sweep(Family::Buffered, |sets| sets.log.clone()) > 5);
}

#[test]
fn buffered_code_cache_with_a_full_main_set_goes_on() {
    assert!(sweep(Family::Buffered, |sets| sets.home.clone()) > 5);
}

#[test]
fn degraded_code_cache_that_is_full_goes_on() {
    let log = |sets: &Sets| sets.log.clone();
    let home = |sets: &Sets| sets.home.clone();
    for (set, gone) in [(log as fn(&Sets) -> Range<u16>, &[4][..]), (home, &[2])] {
        let refused = sweep_of(Case {
            family: Family::CodeCache,
            set,
            gone,
        });
        assert!(refused > 5);
    }
}

/// A stop, and the command that lets the surrogate go, are answered though there is no space. A start with room has what was flushed.
#[test]
fn code_cache_without_space_answers_commands() {
    for command in [Command::Stop, Command::Surrogate(None)] {
        for set in [
            |sets: &Sets| sets.log.clone(),
            |sets: &Sets| sets.home.clone(),
        ] {
            let (mut array, sets) = pair(Family::CodeCache);
            let flushed = array.model.clone();
            let full = set(&sets);
            let mut space = Space {
                full: full.clone(),
                flushes: false,
                steps: 0,
            };
            array.write(220, 8);
            let flush = array.flush();
            space.run(&mut array, NEVER);
            assert!(matches!(array.reply(flush), Some(Err(_))), "{full:?}");
            let tag = array.order(command);
            for _ in 0..20 {
                space.run(&mut array, NEVER);
                array.wait(Nanos::from_secs(1));
            }
            let answer = array.answer(tag);
            assert!(matches!(answer, Some(Err(_))), "{command:?}: {answer:?}");
            array.die();
            array.start().expect("there is room");
            array.run();
            array.model = flushed;
            for lba in [0, 2 * CHUNK, 40, 100] {
                assert_eq!(is_wanted(&mut array, lba, 12), Ok(true), "{lba}");
            }
        }
    }
}

/// The buffer is not needed: the log takes what it has.
#[test]
fn code_cache_with_a_full_buffer_goes_on() {
    sweep(Family::Buffered, |sets| sets.buffer.clone());
}

#[test]
fn array_with_a_full_log_disk_goes_on() {
    sweep(Family::LogDisk, |sets| sets.log.clone());
}

#[test]
fn array_with_a_log_disk_and_a_full_main_set_goes_on() {
    assert!(sweep(Family::LogDisk, |sets| sets.home.clone()) > 5);
}

#[test]
fn array_whose_first_copies_go_ahead_and_are_full_goes_on() {
    assert!(sweep(Family::NoLog, |sets| sets.home.clone()) > 5);
}

#[test]
fn redirecting_array_with_a_full_surrogate_goes_on() {
    let refused = sweep(Family::WorkOut, |sets| sets.log.clone());
    assert!(refused > 5, "{refused}");
}

#[test]
fn redirecting_array_with_a_full_main_set_goes_on() {
    sweep(Family::WorkOut, |sets| sets.home.clone());
}
