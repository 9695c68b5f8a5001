//! Two engines over the same members: one run serves an array, and no two ever acknowledge.

use crate::shell::{Array, CHUNK, Setup, raid1, raid5};
use restripe_array::cache::Rule;
use restripe_array::meta::ArrayOwner;
use restripe_array::{
    Command, CommandError, Event, Fact, FailCause, Halt, Member, Nanos, RequestError, RequestOp,
    Rival, StartMode, Uuid,
};
use restripe_tier::Redirect;

const INTERVAL: Nanos = Nanos::from_secs(4);

fn owner(number: u8) -> ArrayOwner {
    ArrayOwner {
        run: Uuid([number; 16]),
        host: Uuid([9; 16]),
        started: 1,
        process: number.into(),
        namespace: 1,
        interval_ms: 4000,
    }
}

fn run(number: u8) -> StartMode {
    StartMode {
        owner: Some(owner(number)),
        ..StartMode::default()
    }
}

/// Two engines, and the members, which are with the one that is at work.
pub struct Rivals {
    at_work: Array,
    other: Array,
    /// Whether the engines' time leaves out what the other one took.
    time_stops: bool,
}

impl Rivals {
    pub fn new(setup: Setup) -> Rivals {
        Rivals {
            at_work: setup.clone().made(),
            other: setup.made(),
            time_stops: false,
        }
    }

    /// The other engine goes on, as late as this one is by now.
    fn change(&mut self) {
        std::mem::swap(&mut self.at_work.disks, &mut self.other.disks);
        std::mem::swap(&mut self.at_work.model, &mut self.other.model);
        std::mem::swap(&mut self.at_work, &mut self.other);
        let late = self.other.now().since(self.at_work.now());
        match self.time_stops {
            true => self.at_work.step(Event::Paused(late)),
            false => self.at_work.sleep(late),
        }
    }

    /// Both engines go on for a time, in turns.
    fn pass(&mut self, time: Nanos) {
        for _ in 0..time.0 / 500_000_000 {
            for _ in 0..2 {
                let now = self.at_work.now().max(self.other.now());
                self.at_work
                    .pass(now.after(Nanos::from_millis(250)).since(self.at_work.now()));
                self.change();
            }
        }
    }

    /// Starts the engine at work, while the other one stands still.
    fn start(&mut self, mode: StartMode) -> Result<(), CommandError> {
        let start = self.at_work.order(Command::Start(mode));
        for _ in 0..200 {
            self.at_work.run();
            if let Some(answer) = self.at_work.answer(start) {
                return answer;
            }
            self.at_work.pass(Nanos::from_millis(500));
        }
        panic!("the start never ends");
    }

    /// The same, while the other one goes on.
    fn start_beside(&mut self, mode: StartMode) -> Result<(), CommandError> {
        let start = self.at_work.order(Command::Start(mode));
        for _ in 0..200 {
            self.at_work.run();
            if let Some(answer) = self.at_work.answer(start) {
                return answer;
            }
            self.pass(Nanos::from_millis(500));
        }
        panic!("the start never ends");
    }
}

/// A run that stood still while another one took its array over: how its write and its flush end when it goes on.
pub fn back_from_a_pause(setup: Setup, time_stops: bool) -> [Option<Result<(), RequestError>>; 2] {
    let mut two = Rivals::new(setup);
    two.time_stops = time_stops;
    two.start(run(1)).expect("the first starts");
    two.at_work.written(0, 8).expect("written");
    two.change();
    two.start(run(2)).expect("the first shows no life");
    two.at_work.written(8, 8).expect("written");
    two.at_work.flushed();
    let taken = two.at_work.model.clone();
    two.change();
    let write = two.at_work.write(16, 8);
    two.at_work.run();
    let flush = two.at_work.flush();
    two.at_work.run();
    two.at_work.pass(INTERVAL);
    let ends = [two.at_work.reply(write), two.at_work.reply(flush)];
    two.change();
    two.at_work.model = taken;
    if ends
        .iter()
        .all(|end| *end == Some(Err(RequestError::Unavailable)))
    {
        two.at_work.verify();
        two.at_work.consistent();
    }
    ends
}

#[test]
fn second_start_beside_a_live_run_is_refused() {
    for setup in [raid1(2), raid5(4)] {
        let mut two = Rivals::new(setup);
        two.start(run(1)).expect("the first starts");
        two.change();
        let (by, rival) = (owner(1), Rival::Renews);
        assert_eq!(
            two.start_beside(run(2)),
            Err(CommandError::Owned { by, rival })
        );
        two.change();
        two.at_work.written(0, 16).expect("the first goes on");
        two.pass(INTERVAL);
        two.at_work.flushed();
        two.at_work.verify();
    }
}

#[test]
fn paused_run_that_was_taken_over_writes_and_acknowledges_nothing() {
    let unavailable = Some(Err(RequestError::Unavailable));
    for setup in [raid1(2), raid1(3), raid5(4)] {
        for time_stops in [false, true] {
            let ends = back_from_a_pause(setup.clone(), time_stops);
            assert_eq!(ends, [unavailable; 2], "time stops: {time_stops}");
        }
    }
}

#[test]
fn forced_start_ends_a_live_run_before_it_writes() {
    for setup in [raid1(2), raid5(4)] {
        let mut two = Rivals::new(setup);
        two.start(run(1)).expect("the first starts");
        two.change();
        let forced = StartMode {
            force_owner: true,
            ..run(2)
        };
        two.start_beside(forced).expect("it was told to");
        two.change();
        let halted = Fact::Halted(Halt::Owned(owner(2)));
        assert!(two.at_work.has_fact(|fact| *fact == halted));
        assert_eq!(two.at_work.written(0, 8), Err(RequestError::Unavailable));
        assert_eq!(two.at_work.read(0, 8), Err(RequestError::Unavailable));
        assert!(two.at_work.command(Command::Stop).is_err());
    }
}

#[test]
fn of_two_starts_at_once_one_serves_at_most() {
    for first in 0..12 {
        let mut two = Rivals::new(raid5(4));
        let one = two.at_work.order(Command::Start(run(1)));
        for _ in 0..first * 4 {
            if !two.at_work.held.is_empty() {
                two.at_work.end_first(Ok(()));
                two.at_work.turn();
            }
        }
        two.change();
        let other = two.at_work.order(Command::Start(run(2)));
        two.pass(Nanos::from_secs(30));
        let served = [two.other.answer(one), two.at_work.answer(other)];
        let served = served.iter().filter(|answer| **answer == Some(Ok(())));
        assert!(served.count() <= 1, "{first}");
    }
}

#[test]
fn clean_stop_and_a_run_that_is_known_to_have_ended_need_no_wait() {
    let mut two = Rivals::new(raid1(2));
    two.start(run(1)).expect("starts");
    two.at_work.command(Command::Stop).expect("stops");
    two.change();
    let begun = two.at_work.now();
    two.start(run(2)).expect("no run owns it");
    assert!(two.at_work.now().since(begun) < INTERVAL);
    two.change();
    two.at_work.die();
    let ended = StartMode {
        ended: [Some(owner(2).run), None, None, None],
        ..run(3)
    };
    let begun = two.at_work.now();
    two.start(ended).expect("the second has ended");
    assert!(two.at_work.now().since(begun) < INTERVAL);
}

#[test]
fn unrenewed_record_stops_only_those_whose_members_no_lock_guards() {
    let locked = |number| StartMode {
        owner: Some(ArrayOwner {
            interval_ms: 0,
            ..owner(number)
        }),
        ..StartMode::default()
    };
    let mut two = Rivals::new(raid1(2));
    two.start(locked(1)).expect("starts");
    two.change();
    let by = locked(1).owner.expect("it has one");
    let rival = Rival::Silent;
    assert_eq!(two.start(run(2)), Err(CommandError::Owned { by, rival }));
    two.at_work.die();
    two.start(locked(3)).expect("the lock was to be had");
}

#[test]
fn run_that_no_member_answers_acknowledges_nothing() {
    let mut two = Rivals::new(raid1(2));
    two.start(run(1)).expect("starts");
    two.at_work.wait(Nanos(3 * INTERVAL.0));
    let write = two.at_work.write(0, 8);
    assert!(
        !two.at_work.mentions(" write "),
        "it is not known who has the array"
    );
    assert_eq!(two.at_work.reply(write), None);
    two.at_work.run();
    two.at_work.pass(INTERVAL);
    assert_eq!(two.at_work.reply(write), Some(Ok(())));
}

#[test]
fn member_that_has_just_come_back_vouches_for_the_run_when_the_other_fails() {
    let mut array = raid1(2).made();
    let start = array.order(Command::Start(run(1)));
    array.run();
    array.pass(INTERVAL);
    assert_eq!(array.answer(start), Some(Ok(())));
    for (returns, fails) in [(1, 0), (0, 1)] {
        array
            .command(Command::Fail(Member(returns)))
            .expect("failed");
        array.command(Command::Add(Member(returns))).expect("added");
        array.run_tasks();
        array.command(Command::Fail(Member(fails))).expect("failed");
        array.pass(Nanos::from_secs(1));
        array
            .written(0, 8)
            .expect("the member that is left is this run's");
        array.flushed();
        array.command(Command::Add(Member(fails))).expect("added");
        array.run_tasks();
    }
    array.command(Command::Stop).expect("stops");
}

/// Its superblocks are as the former run left them until it is added.
#[test]
fn failed_member_that_is_added_right_after_a_start_proves_no_other_run() {
    for setup in [raid1(2), raid1(3), raid5(2), raid5(3)] {
        for late in [0, 1, 3, 5].map(Nanos::from_secs) {
            let mut array = setup.clone().made();
            let start = array.order(Command::Start(run(1)));
            array.run();
            array.pass(INTERVAL);
            assert_eq!(array.answer(start), Some(Ok(())));
            array.command(Command::Fail(Member(1))).expect("failed");
            array.written(0, 8).expect("written");
            array.die();
            let mode = StartMode {
                ended: [Some(owner(1).run), None, None, None],
                ..run(2)
            };
            let start = array.order(Command::Start(mode));
            array.run();
            array.pass(Nanos::from_secs(1));
            assert_eq!(array.answer(start), Some(Ok(())));
            array.pass(late);
            array.command(Command::Add(Member(1))).expect("added");
            array.pass(Nanos(3 * INTERVAL.0));
            assert!(!array.has_fact(|fact| matches!(fact, Fact::Halted { .. })));
            array.written(8, 8).expect("this run is alone");
            array.flushed();
            array.run_tasks();
            array.command(Command::Stop).expect("stops");
        }
    }
}

/// Also not of what it has in memory, or in a log.
#[test]
fn run_with_a_surrogate_that_no_member_answers_acknowledges_nothing() {
    for redirect in [Redirect::Ido, Redirect::Graid, Redirect::Reraid] {
        let mut array = crate::removals::made(redirect).array;
        let start = array.order(Command::Start(run(1)));
        array.run();
        array.pass(Nanos::from_secs(30));
        assert_eq!(array.answer(start), Some(Ok(())), "{redirect:?}");
        array.written(0, CHUNK).expect("written");
        array.wait(Nanos(3 * INTERVAL.0));
        let write = array.write(0, 8);
        let read = array.request(RequestOp::Read, 8, 8);
        for tag in [write, read] {
            assert_eq!(array.reply(tag), None, "{redirect:?}");
        }
        array.run();
        array.pass(INTERVAL);
        for tag in [write, read] {
            assert_eq!(array.reply(tag), Some(Ok(())), "{redirect:?}");
        }
        array.verify();
    }
}

/// A run that is sure of its array, and flushed something.
fn serving(setup: Setup) -> Array {
    let mut array = setup.made();
    array.order(Command::Start(run(1)));
    array.run();
    array.pass(INTERVAL);
    array.written(0, 16).expect("written");
    array.flushed();
    array
}

/// Writes over all metadata of a member.
fn overwrite(array: &mut Array, member: usize, image: &[u8]) {
    let bytes = array.data_start() as usize * 512;
    array.disks[member].forge(0, &image[..bytes]);
}

fn is_overwritten(array: &Array, member: u16) -> bool {
    let (member, why) = (Member(member), FailCause::Overwritten);
    array.facts.contains(&Fact::MemberFailed { member, why })
}

/// By a daemon that did not look: the member is failed, and the array goes on or halts.
#[test]
fn member_with_another_array_s_superblocks_is_failed() {
    for setup in [raid1(2), raid5(4)] {
        let mut other = setup.clone();
        other.options.array = Uuid([8; 16]);
        let image = other.made().disks.swap_remove(0).image;
        let mut array = serving(setup);
        overwrite(&mut array, 1, &image);
        array.pass(Nanos(2 * INTERVAL.0));
        assert!(is_overwritten(&array, 1), "{:?}", array.facts);
        array.verify();
        array.written(8, 8).expect("it goes on");
        overwrite(&mut array, 0, &image);
        array.pass(Nanos(2 * INTERVAL.0));
        let write = array.write(0, 8);
        array.run();
        assert!(matches!(array.reply(write), Some(Err(_))));
    }
}

/// Superblocks that were wiped are written anew while the run is sure of its array. Once it is not, nothing tells whose the members are.
#[test]
fn wiped_superblocks_come_back_or_fail_their_members() {
    let blank = vec![0; 1 << 20];
    let mut array = serving(raid1(2));
    overwrite(&mut array, 1, &blank);
    array.pass(Nanos(2 * INTERVAL.0));
    array.written(8, 8).expect("it goes on");
    array.command(Command::Stop).expect("stops");
    array.die();
    array.start().expect("its superblocks are back");
    array.verify();

    let mut array = serving(raid1(2));
    array.wait(Nanos(3 * INTERVAL.0));
    (0..2).for_each(|member| overwrite(&mut array, member, &blank));
    let write = array.write(0, 8);
    array.run();
    array.pass(INTERVAL);
    assert!((0..2).any(|member| is_overwritten(&array, member)));
    assert!(matches!(array.reply(write), Some(Err(_))));
}

/// Its members are lost before a look has told whose they are: no answer tells old bytes, neither then nor later.
#[test]
fn run_that_halts_while_it_is_unsure_answers_with_errors() {
    let cached = |setup: Setup| setup.cached(64, Rule::Lru);
    let mirrored = serving(cached(raid1(2)));
    let parity = serving(cached(raid5(4)));
    let mut pair = crate::removals::made(Redirect::Reraid).array;
    pair.order(Command::Start(run(1)));
    pair.run();
    pair.pass(Nanos::from_secs(30));
    pair.written(0, 16).expect("written");
    for mut array in [mirrored, parity, pair] {
        array.read(0, 8).expect("it is in memory from here on");
        array.wait(Nanos(3 * INTERVAL.0));
        let read = array.request(RequestOp::Read, 0, 8);
        assert_eq!(array.reply(read), None);
        (0..array.disks.len() as u16).for_each(|member| array.depart(member));
        let later = array.request(RequestOp::Read, 0, 8);
        array.run();
        for tag in [read, later] {
            let answer = array.reply(tag);
            assert!(matches!(answer, Some(Err(_))), "{answer:?}");
        }
    }
}
