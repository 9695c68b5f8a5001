//! An array with a surrogate runs out of space: on every member of one of its sets, at each step of a run of writes. It goes on by
//! itself once room was made, with every byte that it acknowledged.

use crate::ranges_pairs::{BUFFER, HOME, LOG, beside};
use crate::shell::{Array, CHUNK, Setup, raid1, raid5};
use restripe_array::layout::Level;
use restripe_array::meta::{Partner, PartnerRole, WriteHole};
use restripe_array::{Command, Fact, IoError, Member, Nanos, RequestError, RequestOp, StartMode};
use restripe_tier::{Destage, Redirect};
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

/// The members of one set.
type Set = fn(&Sets) -> Range<u16>;
const HOME_SET: Set = |sets| sets.home.clone();
const LOG_SET: Set = |sets| sets.log.clone();

fn pair(family: Family) -> (Array, Sets) {
    pair_limited(family, None)
}

/// The number of requests that the log takes at once.
fn pair_limited(family: Family, log_requests: Option<u32>) -> (Array, Sets) {
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
    if let Some(requests) = log_requests {
        array.limit_surrogate(|limits| limits.requests = requests);
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

/// Ends operations in their order, up to a number. Writes of full members fail.
struct Space {
    full: Range<u16>,
    flushes: bool,
    steps: usize,
}

impl Space {
    /// None is left on these members.
    fn none_on(full: Range<u16>) -> Space {
        Space {
            full,
            flushes: false,
            steps: 0,
        }
    }

    fn lacks(&self, label: &str) -> bool {
        let member: u16 = label[1..].split(' ').next().unwrap().parse().unwrap();
        let writes = label.contains(" write ") || label.contains(" zero ");
        self.full.contains(&member) && (writes || self.flushes && label.contains("flush"))
    }

    /// Runs until nothing is under way. The space ends after a number of steps.
    fn run(&mut self, array: &mut Array, held: &str) -> usize {
        let steps = self.run_some(array, 20_000, |label| label.contains(held));
        assert!(steps < 20_000, "it never rests: {:?}", array.labels());
        steps
    }

    /// Runs up to a number of steps, without what is held. Returns how many there were.
    fn run_some(&mut self, array: &mut Array, most: usize, held: impl Fn(&str) -> bool) -> usize {
        for steps in 0..most {
            let labels = array.labels();
            let Some(index) = labels.iter().position(|label| !held(label)) else {
                return steps;
            };
            let fails = self.steps == 0 && self.lacks(labels[index]);
            self.steps = self.steps.saturating_sub(1);
            array.end_as(index, if fails { Err(IoError::NoSpace) } else { Ok(()) });
            array.turn();
        }
        most
    }

    /// Runs until nothing is under way and lets one second pass, `times` times.
    fn run_on(&mut self, array: &mut Array, times: usize) {
        for _ in 0..times {
            self.run(array, NEVER);
            array.wait(Nanos::from_secs(1));
        }
    }
}

/// The space of these members ends: a write is refused, or its flush.
fn refused_on(array: &mut Array, full: Range<u16>) -> Space {
    let mut space = Space::none_on(full);
    let tags = [array.write(200, 8), array.flush()];
    space.run(array, NEVER);
    let refused = |tag: u64| matches!(array.reply(tag), Some(Err(_)));
    assert!(tags.into_iter().any(refused), "{:?}", array.facts);
    array.wait(Nanos::from_secs(1));
    space
}

/// Whether an operation is a write of one of these members.
fn writes_to(members: &Range<u16>, label: &str) -> bool {
    Space::none_on(members.clone()).lacks(label)
}

fn is_without_log(array: &Array) -> bool {
    let surrogate = array.engine.status().surrogate;
    let overlay = surrogate.and_then(|one| one.overlay);
    overlay.is_none_or(|one| one.broken)
}

/// Power fails, and the array starts with all that was acknowledged.
fn comes_back(array: &mut Array) {
    array.crash(|_| false);
    array.start().expect("there is room");
    array.run();
    array.verify();
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
    set: Set,
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
        let sound = is_wanted(&mut array, range.0, range.1);
        // A code cache has in memory what its log has no room for. A halted set may not know what is in doubt.
        let knows = matches!(family, Family::CodeCache | Family::Buffered) && full == sets.log;
        assert!(
            sound == Ok(true) || sound.is_err() && !knows,
            "{what}: {range:?} while there is no space: {sound:?}"
        );
    }
    // There is room again.
    space.full = 0..0;
    array.wait(Nanos::from_secs(11));
    space.run(&mut array, held);
    let mut tries = 0;
    let again = refused.iter().flatten().copied();
    for (lba, sectors) in again.chain([(230, 5), (220, 8)]) {
        loop {
            let tag = array.write(lba, sectors);
            space.run(&mut array, held);
            match array.reply(tag) {
                Some(Ok(())) => break,
                told => {
                    tries += 1;
                    let refusal = array.engine.status().set.refusal;
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
        let sound = is_wanted(&mut array, lba, sectors);
        assert_eq!(sound, Ok(true), "{what}: {lba}");
    }
    if let Some(refusal) = array.engine.status().set.refusal {
        panic!("{what}: still {refusal:?}");
    }
    // It is durable, too.
    comes_back(&mut array);
    (taken, stopped)
}

fn sweep(family: Family, set: Set) -> usize {
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
    assert!(sweep(Family::CodeCache, LOG_SET) > 10);
}

#[test]
fn code_cache_with_a_full_main_set_goes_on() {
    assert!(sweep(Family::CodeCache, HOME_SET) > 5);
}

#[test]
fn buffered_code_cache_with_a_full_log_goes_on() {
    assert!(sweep(Family::Buffered, LOG_SET) > 5);
}

#[test]
fn buffered_code_cache_with_a_full_main_set_goes_on() {
    assert!(sweep(Family::Buffered, HOME_SET) > 5);
}

#[test]
fn degraded_code_cache_that_is_full_goes_on() {
    for (set, gone) in [(LOG_SET, &[4][..]), (HOME_SET, &[2])] {
        let refused = sweep_of(Case {
            family: Family::CodeCache,
            set,
            gone,
        });
        assert!(refused > 5);
    }
}

/// A start with room has what was flushed.
fn has_flushed(array: &mut Array, flushed: Vec<u8>) {
    array.die();
    array.start().expect("there is room");
    array.run();
    array.model = flushed;
    for lba in [0, 2 * CHUNK, 40, 100] {
        assert_eq!(is_wanted(array, lba, 12), Ok(true), "{lba}");
    }
}

/// A stop, and the command that lets the surrogate go, are answered though there is no space. A start with room has what was flushed.
#[test]
fn code_cache_without_space_answers_commands() {
    for command in [Command::Stop, Command::LogSet(None)] {
        for set in [LOG_SET, HOME_SET] {
            let (mut array, sets) = pair(Family::CodeCache);
            let flushed = array.model.clone();
            let mut space = refused_on(&mut array, set(&sets));
            let tag = array.order(command);
            space.run_on(&mut array, 20);
            let answer = array.answer(tag);
            assert!(matches!(answer, Some(Err(_))), "{command:?}: {answer:?}");
            has_flushed(&mut array, flushed);
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
    sweep(Family::LogDisk, LOG_SET);
}

#[test]
fn array_with_a_log_disk_and_a_full_main_set_goes_on() {
    assert!(sweep(Family::LogDisk, HOME_SET) > 5);
}

#[test]
fn array_whose_first_copies_go_ahead_and_are_full_goes_on() {
    assert!(sweep(Family::NoLog, HOME_SET) > 5);
}

#[test]
fn redirecting_array_with_a_full_surrogate_goes_on() {
    let refused = sweep(Family::WorkOut, LOG_SET);
    assert!(refused > 5, "{refused}");
}

#[test]
fn redirecting_array_with_a_full_main_set_goes_on() {
    sweep(Family::WorkOut, HOME_SET);
}

/// The main set halts while a record is on its way into the log. A write has the main set started anew, and after so many steps of
/// that the log has no space for the record. Whether the attempt had ended by then.
fn fill_one_after_the_other(steps: usize, home_has_room: bool) -> bool {
    let what = format!("the log is full after {steps} steps, home has room: {home_has_room}");
    let (mut array, sets) = pair(Family::CodeCache);
    let (home, log) = (sets.home, sets.log);
    let mut space = Space {
        full: home.clone(),
        flushes: false,
        steps: usize::MAX,
    };
    array.written(4, 5).expect("there is room");
    array.flushed();
    array.order(Command::Destage);
    let homeward = |label: &str| writes_to(&home, label) && label.contains("data");
    space.run_some(&mut array, 20_000, homeward);
    assert!(
        array.labels().into_iter().any(homeward),
        "{what}: it goes home"
    );
    let acknowledged = array.write(60, 7);
    let flush = array.flush();
    let held = |label: &str| writes_to(&log, label);
    space.run_some(&mut array, 20_000, |label| homeward(label) || held(label));
    assert!(array.labels().into_iter().any(held), "{what}: it is sealed");
    space.steps = 0;
    space.run_some(&mut array, 20_000, held);
    assert_eq!(array.reply(acknowledged), Some(Ok(())), "{what}");
    assert!(
        matches!(array.reply(flush), Some(Err(_))),
        "{what}: {:?}",
        array.facts
    );
    assert!(array.labels().into_iter().any(held), "{what}: it is sealed");
    if home_has_room {
        space.full = 0..0;
    }
    array.wait(Nanos::from_secs(1));
    let asks = array.write(200, 3);
    let over = space.run_some(&mut array, steps, held) < steps;
    // The log is full, too.
    space.full = match home_has_room {
        true => log.clone(),
        false => 0..log.end,
    };
    for _ in 0..3 {
        space.run(&mut array, NEVER);
        array.wait(Nanos::from_secs(1));
        array.flush();
    }
    space.run(&mut array, NEVER);
    assert!(array.reply(asks).is_some(), "{what}: no answer");
    for (lba, sectors) in [(4, 5), (60, 7)] {
        assert_eq!(is_wanted(&mut array, lba, sectors), Ok(true), "{what}");
    }
    space.full = 0..0;
    let mut tries = 0;
    loop {
        array.wait(Nanos::from_secs(11));
        let write = array.write(200, 3);
        space.run(&mut array, NEVER);
        let flush = array.flush();
        space.run(&mut array, NEVER);
        let done = |tag: u64| array.reply(tag) == Some(Ok(()));
        if done(write) && done(flush) {
            break;
        }
        tries += 1;
        assert!(tries < 4, "{what}: {:?}", array.facts);
    }
    comes_back(&mut array);
    over
}

#[test]
fn code_cache_whose_sets_run_full_one_after_the_other_goes_on() {
    for home_has_room in [false, true] {
        let mut steps = 0;
        while !fill_one_after_the_other(steps, home_has_room) {
            steps += 1;
        }
        assert!(steps > 10, "{steps}");
    }
}

/// A read of more pieces than the log takes at once is under way when a write has the log started anew.
#[test]
fn attempt_lets_users_reads_end() {
    let (mut array, sets) = pair_limited(Family::CodeCache, Some(4));
    for n in 0..8 {
        array.written(n * 20, 4).expect("there is room");
    }
    array.flushed();
    // No piece is in memory any more.
    comes_back(&mut array);
    let mut space = refused_on(&mut array, sets.log);
    let wanted = array.wanted(0, 160);
    let read = array.request(RequestOp::Read, 0, 160);
    assert!(array.mentions("read"), "{:?}", array.labels());
    let write = array.write(220, 4);
    space.run_on(&mut array, 3);
    assert_eq!(array.reply(read), Some(Ok(())));
    assert!(array.bytes_read(read) == wanted);
    assert_eq!(array.reply(write), Some(Err(RequestError::NoSpace)));
    let stop = array.order(Command::Stop);
    space.run(&mut array, NEVER);
    assert!(array.answer(stop).is_some(), "{:?}", array.facts);
}

/// After an attempt copies at home are repaired from each other, as after every start.
#[test]
fn unreadable_block_is_repaired_after_an_attempt() {
    let (mut array, sets) = pair(Family::CodeCache);
    refused_on(&mut array, sets.log);
    array.written(200, 8).expect("there is room");
    array.flushed();
    let read = array.request(RequestOp::Read, 160, 8);
    let label = array.labels()[0].to_owned();
    assert!(label.contains("read data"), "{label}");
    array.fail(&label, IoError::Media);
    array.run();
    assert_eq!(array.reply(read), Some(Ok(())));
    assert!(array.has_fact(|fact| matches!(fact, Fact::Repaired { .. })));
}

/// A code cache whose main set has halted, and is being started anew.
fn attempt_under_way() -> (Array, Space) {
    let (mut array, sets) = pair(Family::CodeCache);
    let space = refused_on(&mut array, sets.home);
    array.write(200, 3);
    assert!(array.mentions("m0 read"), "{:?}", array.labels());
    (array, space)
}

fn failures(array: &Array, member: u16) -> usize {
    let told = |fact: &&Fact| match fact {
        Fact::OfSurrogate(fact) => is_failure(fact, member),
        fact => is_failure(fact, member),
    };
    array.facts.iter().filter(told).count()
}

fn is_failure(fact: &Fact, failed: u16) -> bool {
    matches!(fact, Fact::MemberFailed { member, .. } if member.0 == failed)
}

/// Members that fail during an attempt are told of once, whether or not it succeeds, and whether or not their set is started anew.
#[test]
fn attempt_tells_of_failures_once() {
    for room in [false, true] {
        for member in [1, 5] {
            let (mut array, mut space) = attempt_under_way();
            if room {
                space.full = 0..0;
            }
            let before = failures(&array, member);
            array.depart(member);
            array.turn();
            space.run_on(&mut array, 2);
            let told = failures(&array, member) - before;
            assert_eq!(told, 1, "{member}, {room}: {:?}", array.facts);
        }
    }
}

/// The array was started without its log, which had no space. An attempt starts that, and not the main set; the next starts both.
#[test]
fn log_that_an_attempt_started_serves_the_next() {
    let (mut array, sets) = pair(Family::CodeCache);
    array.command(Command::Destage).expect("it can");
    array.run();
    array.command(Command::Stop).expect("it stops");
    array.die();
    let mut space = Space::none_on(sets.log);
    let start = array.order(Command::Start(StartMode::PLAIN));
    space.run(&mut array, NEVER);
    assert_eq!(array.answer(start), Some(Ok(())));
    let absent = |fact: &Fact| matches!(fact, Fact::SurrogateAbsent { .. });
    assert!(array.has_fact(absent), "{:?}", array.facts);
    space.full = sets.home;
    for _ in 0..3 {
        array.write(200, 3);
        space.run_on(&mut array, 1);
    }
    space.full = 0..0;
    for _ in 0..2 {
        array.write(200, 3);
        space.run_on(&mut array, 1);
    }
    array.written(200, 3).expect("there is room");
    array.flushed();
    let status = array.engine.status().surrogate;
    assert!(
        status.is_some_and(|one| one.overlay.is_some_and(|overlay| !overlay.broken)),
        "it has its log: {:?}",
        array.facts
    );
    array.verify();
    array.command(Command::Stop).expect("it stops");
    comes_back(&mut array);
}

/// The main set has halted. A read of it is under way when a write asks for an attempt, and then the log loses its members: the write
/// is answered at once, and what was flushed is there when they are back.
#[test]
fn log_that_fails_while_an_attempt_waits_ends_it() {
    for family in [
        Family::CodeCache,
        Family::Buffered,
        Family::LogDisk,
        Family::WorkOut,
    ] {
        let (mut array, sets) = pair(family);
        let flushed = array.model.clone();
        let mut space = refused_on(&mut array, sets.home);
        let wanted = array.wanted(160, 8);
        let read = array.request(RequestOp::Read, 160, 8);
        let under_way = |label: &str| label.contains(" read data");
        assert!(array.labels().into_iter().any(under_way), "{family:?}");
        let write = array.write(220, 4);
        space.run_some(&mut array, 1_000, under_way);
        assert_eq!(array.reply(write), None, "{family:?}: it waits");
        sets.log.for_each(|member| array.depart(member));
        space.run_some(&mut array, 1_000, under_way);
        let refused = matches!(array.reply(write), Some(Err(_)));
        assert!(refused, "{family:?}: {:?}", array.facts);
        space.run(&mut array, NEVER);
        assert_eq!(array.reply(read), Some(Ok(())), "{family:?}");
        assert!(array.bytes_read(read) == wanted, "{family:?}");
        has_flushed(&mut array, flushed);
    }
}
