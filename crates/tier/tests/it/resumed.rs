//! A task that was cut and went on ends as one that was not: members and their labels, tasks, counters and what is lost.
//!
//! Each case runs once to its end. Then it is cut behind every step (power, the daemon alone, a clean stop), started anew
//! and run to its end. An order that was not answered before the cut is given again.

use crate::shell::{Array, CHUNK, Setup, raid1, raid5};
use crate::spares::three_by_three;
use restripe_array::layout::Level;
use restripe_array::meta::{Init, WriteHole};
use restripe_array::report::{ArrayState, DroppedTask, MemberState, MemberStatus};
use restripe_array::{
    Command, CommandError, Fact, Member, Nanos, ScrubMode, StartMode, TaskKind, Uuid,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cut {
    Power,
    Daemon,
    Stop,
}

impl Cut {
    fn apply_to(self, array: &mut Array) {
        match self {
            Cut::Power => array.crash(|_| false),
            Cut::Daemon => array.die(),
            Cut::Stop => {
                let tag = array.order(Command::Stop);
                array.run();
                // A reshape closes its window first, and waits for its pace.
                array.pass(Nanos::from_secs(1));
                assert_eq!(array.answer(tag), Some(Ok(())));
                array.die();
            }
        }
    }
}

const CUTS: [Cut; 3] = [Cut::Power, Cut::Daemon, Cut::Stop];
const STEPS_MAX: usize = 20_000;
/// Of a case, and of each kind of cut.
const CUTS_MAX: usize = 20;

struct Case {
    name: &'static str,
    setup: Setup,
    /// Sectors written before the orders.
    written: u64,
    orders: Vec<Command>,
    /// A user's write after this order, which a member may miss.
    missed: Option<usize>,
}

fn case(name: &'static str, setup: Setup, orders: &[Command]) -> Case {
    Case {
        name,
        setup,
        written: 100,
        orders: orders.to_vec(),
        missed: None,
    }
}

fn cases() -> Vec<Case> {
    let replace = |old, new| Command::Replace {
        old: Member(old),
        new: Member(new),
    };
    let fail = |member| Command::Fail(Member(member));
    let add = |member| Command::Add(Member(member));
    let remove = |member| Command::Remove(Member(member));
    let scrub = |repair| Command::Scrub(ScrubMode::writing(repair));
    let mut resync = raid5(3).hole(WriteHole::Bitmap);
    resync.options.init = Init::Sync;
    vec![
        case("replace", raid5(3).spares(1), &[replace(1, 3)]),
        case("replace of a copy", raid1(2).spares(1), &[replace(0, 2)]),
        case(
            "replace, and the old member fails",
            raid5(3).spares(1),
            &[replace(1, 3), fail(1)],
        ),
        case(
            "replace, and the new member fails",
            raid5(3).spares(1),
            &[replace(1, 3), fail(3)],
        ),
        case(
            "two replaces, and the first old member is removed",
            raid5(3).spares(2),
            &[replace(1, 3), replace(0, 4), remove(1)],
        ),
        case("rebuild onto a spare", raid5(3).spares(1), &[fail(2)]),
        Case {
            missed: Some(0),
            ..case("partial rebuild", raid5(3), &[fail(2), add(2)])
        },
        case("resync", resync, &[]),
        case("check", raid5(3), &[scrub(false)]),
        case("repair", raid5(3), &[scrub(true)]),
        case(
            "scrub that is paused",
            raid5(3),
            &[scrub(false), Command::Pause(true), Command::Pause(false)],
        ),
        case(
            "growth",
            Setup::new(Level::Raid4, 3).spares(1),
            &[Command::Grow { by: 1 }],
        ),
        case("reshape", raid5(3).spares(1), &[Command::Reshape { by: 1 }]),
        case(
            "partitions rebuilt onto hosts, and home to a spare",
            three_by_three().spares(1),
            &[fail(4)],
        ),
    ]
}

/// What a status tells that no cut may change. Not compared: the generation, since a start may begin one; what was
/// counted since the start; and what spindles did.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Shown {
    words: String,
    members: Vec<String>,
}

fn member_shown(member: &MemberStatus) -> String {
    format!(
        "{:?} {:?} {:?} {:?} replaced {} read errors {}",
        member.member, member.state, member.slot, member.hosts, member.replaced, member.read_errors
    )
}

fn shown(array: &Array) -> Shown {
    let status = array.engine.status();
    Shown {
        words: format!(
            "{:?} {:?} {} bytes, tasks {:?}, dropped {:?}, lost {:?}, in doubt {}, scrub {:?}",
            status.state,
            status.refusal,
            status.size_bytes,
            status.tasks,
            status.dropped,
            status.lost,
            status.in_doubt,
            status.last_scrub
        ),
        members: status.members.iter().map(member_shown).collect(),
    }
}

/// A case on its way.
#[derive(Clone, Copy)]
struct At {
    /// Orders that were answered.
    answered: usize,
    /// The one that waits for its answer.
    waits: Option<u64>,
    wrote: bool,
}

impl Case {
    fn made(&self) -> (Array, At) {
        let mut array = self.setup.clone().made();
        let paces = Command::Rate {
            min: 1,
            max: 1 << 30,
        };
        array.command(paces).expect("a pace");
        array.start().expect("a whole array starts");
        array.written(0, self.written).expect("written");
        array.flushed();
        let at = At {
            answered: 0,
            waits: None,
            wrote: false,
        };
        (array, at)
    }

    /// One operation ends, or an order is given, or time goes by. False at the end. An order that is refused while something
    /// is under way is given again behind the next step.
    fn step(&self, array: &mut Array, at: &mut At) -> bool {
        let answer = at.waits.and_then(|tag| array.answer(tag));
        match answer {
            Some(Err(CommandError::Busy(_))) => {
                at.waits = None;
                if go_on(array) {
                    return true;
                }
                at.answered += 1;
            }
            Some(_) => (at.waits, at.answered) = (None, at.answered + 1),
            None => {}
        }
        let missed = self.missed.is_some_and(|nth| nth + 1 == at.answered);
        if missed && !at.wrote {
            at.wrote = true;
            array.write(CHUNK, 3 * CHUNK);
        } else if at.waits.is_none() && at.answered < self.orders.len() {
            at.waits = Some(array.order(self.orders[at.answered]));
        } else {
            return go_on(array);
        }
        true
    }

    fn run(&self, array: &mut Array, at: &mut At, most: usize) -> usize {
        (0..most).find(|_| !self.step(array, at)).unwrap_or(most)
    }

    fn end(&self, array: &mut Array) -> Shown {
        // Maps that trail and moves that follow a rebuild.
        array.pass(Nanos::from_secs(20));
        array.run_tasks();
        shown(array)
    }

    fn cut_at(&self, steps: usize, cut: Cut) -> Shown {
        let (mut array, mut at) = self.made();
        self.run(&mut array, &mut at, steps);
        let answer = at.waits.and_then(|tag| array.answer(tag));
        if answer.is_some_and(|answer| !matches!(answer, Err(CommandError::Busy(_)))) {
            at.answered += 1;
        }
        cut.apply_to(&mut array);
        at.waits = None;
        at.wrote = false;
        restart(&mut array);
        let told = self.orders.get(at.answered).copied();
        if told.is_some_and(|order| is_done(&array, order)) {
            at.answered += 1;
        }
        self.run(&mut array, &mut at, STEPS_MAX);
        let end = self.end(&mut array);
        assert_eq!(
            at.answered,
            self.orders.len(),
            "{} {cut:?} {steps}",
            self.name
        );
        end
    }
}

/// One operation ends, or time goes by for the tasks. False where nothing is under way.
fn go_on(array: &mut Array) -> bool {
    if !array.held.is_empty() {
        array.end_first(Ok(()));
    } else if !array.engine.status().tasks.is_empty() {
        array.pass(Nanos::from_millis(200));
    } else {
        return false;
    }
    true
}

/// The array serves again, and tasks have done nothing yet.
fn restart(array: &mut Array) {
    let tag = array.order(Command::Start(StartMode::default()));
    while array.answer(tag).is_none() {
        array.end_first(Ok(()));
    }
    assert_eq!(array.answer(tag), Some(Ok(())));
}

/// An order that reached the superblocks before the cut, and whose answer did not come.
fn is_done(array: &Array, order: Command) -> bool {
    let status = array.engine.status();
    let state = |member: Member| status.members[usize::from(member.0)].state;
    let paused = || status.tasks.iter().map(|task| task.paused).next();
    match order {
        Command::Replace { new, .. } | Command::Add(new) => {
            matches!(state(new), MemberState::Rebuilding | MemberState::Active)
        }
        Command::Fail(member) => state(member) == MemberState::Failed,
        Command::Remove(member) => state(member) == MemberState::Foreign,
        Command::Pause(pauses) => paused() == Some(pauses),
        Command::Scrub { .. } | Command::Grow { .. } | Command::Reshape { .. } => {
            !status.tasks.is_empty()
        }
        _ => false,
    }
}

#[test]
fn a_task_that_was_cut_ends_as_one_that_was_not() {
    for case in cases() {
        let (mut array, mut at) = case.made();
        let steps = case.run(&mut array, &mut at, STEPS_MAX);
        assert!(steps < STEPS_MAX, "{} never ends", case.name);
        let uncut = case.end(&mut array);
        for cut in CUTS {
            for step in (0..=steps).step_by(1 + steps / CUTS_MAX) {
                let found = case.cut_at(step, cut);
                assert_eq!(found, uncut, "{}: {cut:?} at step {step}", case.name);
            }
        }
    }
}

/// A start without the target of a replace serves on, names task and target, and shows both until the slot is filled anew.
#[test]
fn a_replace_without_its_target_is_dropped_with_a_notice() {
    for cut in CUTS {
        let case = case(
            "replace",
            raid5(3).spares(1),
            &[Command::Replace {
                old: Member(1),
                new: Member(3),
            }],
        );
        let (mut array, mut at) = case.made();
        while at.answered == 0 {
            assert!(case.step(&mut array, &mut at));
        }
        cut.apply_to(&mut array);
        let dropped = DroppedTask {
            kind: TaskKind::Replace,
            slot: 1,
            target: Uuid([4; 16]),
            waits: false,
        };
        let target = array.take_out(3);
        let looks = StartMode {
            read_only: true,
            ..StartMode::default()
        };
        array
            .command(Command::Start(looks))
            .expect("starts to read");
        let waits = DroppedTask {
            waits: true,
            ..dropped
        };
        assert_eq!(array.engine.status().dropped, [waits], "{cut:?}");
        array.die();
        array.start().expect("starts without the target");
        let status = array.engine.status();
        assert_eq!(status.dropped, [dropped], "{cut:?}");
        assert_eq!(status.state, ArrayState::Healthy);
        assert!(status.tasks.is_empty());
        let is_told = |array: &Array| {
            let told = array.has_fact(|fact| *fact == Fact::TaskDropped(dropped));
            told && array.engine.status().dropped == [dropped]
        };
        assert!(is_told(&array));
        cut.apply_to(&mut array);
        array.start().expect("starts without the target");
        assert!(is_told(&array), "{cut:?}: once more");
        // The target comes back, and the replace is ordered anew.
        cut.apply_to(&mut array);
        array.put_back(3, target);
        array
            .command(Command::Start(looks))
            .expect("starts to read");
        assert!(is_told(&array), "{cut:?}: also where nothing is written");
        array.die();
        array.start().expect("starts with the target");
        assert!(is_told(&array), "{cut:?}: it is here");
        let [order] = case.orders[..] else {
            panic!("one order");
        };
        array.command(order).expect("the target may be used");
        assert!(array.engine.status().dropped.is_empty());
        array.run_tasks();
        cut.apply_to(&mut array);
        array.start().expect("starts");
        let status = array.engine.status();
        assert!(status.dropped.is_empty() && status.members[1].replaced);
        assert_eq!(status.members[3].state, MemberState::Active);
        array.verify();
        array.consistent();
    }
}
