//! Members that fail while a task fills, replaces, brings home, grows or makes rows of a new shape, and come back as copies
//! of themselves from before. Whatever the task had written to a member by then counts only if no copy can lack it.

use crate::copies::{CHUNK, flush, is_whole_but, live_of, pass, served, settle, version, write};
use crate::sets::{PLAIN, Pair, Rest, Start, order, set};
use restripe_array::layout::{Level, Rotation, Skew};
use restripe_array::meta::{Init, MemberRole, WriteHole};
use restripe_array::report::MemberState;
use restripe_array::{Command, Member, Nanos};
use restripe_sim::array::{Spec, superblock_of};
use restripe_sim::image::Image;
use restripe_tier::Redirect;

/// A task, from when it has begun, and the members that fail meanwhile: each alone, at every stage.
struct Case {
    spec: Spec,
    begin: fn(&mut Start),
    fail: &'static [u16],
}

const ROTATION: Rotation = Rotation::LeftSymmetric;

fn spec(level: Level, slots: u16, spares: u16) -> Spec {
    Spec {
        write_hole: WriteHole::Ppl,
        init: Init::Written,
        intent_rows: Some(1),
        extent_rows: Some(2),
        spares,
        ..set(level, slots, 0)
    }
}

fn skewed(spares: u16, spare_partitions: u16) -> Spec {
    let (groups, partitions) = (3, 3);
    Spec {
        skew: Some(Skew { groups, partitions }),
        spare_partitions,
        chunks: 15,
        ..spec(Level::Raid5(ROTATION), 9, spares)
    }
}

fn given(start: &mut Start, command: Command) {
    assert_eq!(order(start, command), Ok(()), "{command:?}");
}

fn fail(start: &mut Start, member: u16) {
    given(start, Command::Fail(Member(member)));
}

fn replace(start: &mut Start) {
    let (old, new) = (Member(1), Member(4));
    given(start, Command::Remove(new));
    given(start, Command::Replace { old, new });
}

/// The member missed some rows.
fn returns(start: &mut Start) {
    fail(start, 1);
    settle(start);
    write(start, 4..12);
    settle(start);
    flush(start);
    given(start, Command::Add(Member(1)));
}

/// Two spares have a slot between them, and one gives its part to the other.
fn comes_home(start: &mut Start) {
    fail(start, 4);
    let shares = |member: u16, start: &Start| {
        let status = start.session.world.status();
        status.members[usize::from(member)].state == MemberState::Active
    };
    while !(shares(9, start) && shares(10, start)) {
        assert!(start.session.step(), "both have a part");
        while start.session.news().is_some() {}
    }
}

/// The array when its task has just begun.
fn begun(case: &Case, pair: &Pair) -> Start {
    let mut start = served(pair, pair.created(), PLAIN);
    let chunks = start.session.oracle.sectors() / CHUNK;
    write(&mut start, 0..chunks);
    settle(&mut start);
    flush(&mut start);
    // After this time no member lacks anything that users wrote.
    pass(&mut start, Nanos::from_secs(20));
    (case.begin)(&mut start);
    start
}

/// How many steps the task takes, until nothing more happens.
fn steps(case: &Case, pair: &Pair) -> u64 {
    let mut start = begun(case, pair);
    let mut steps = 0;
    while !start.session.world.quiescent() {
        start.session.step();
        steps += 1;
    }
    settle(&mut start);
    steps
}

/// The array after the member has failed at step `steps`, and copies of the member from before. `None` if the
/// array refuses the failure.
fn left(case: &Case, pair: &Pair, member: u16, steps: u64) -> Option<(Start, Vec<Image>)> {
    let mut start = begun(case, pair);
    let mut copies: Vec<Image> = Vec::new();
    for _ in 0..steps {
        let copy = live_of(&start, member);
        if copies
            .last()
            .is_none_or(|last| last.digest() != copy.digest())
        {
            copies.push(copy);
        }
        start.session.step();
        while start.session.news().is_some() {}
    }
    // No spare takes its place, and no further version is written before it fails.
    let status = start.session.world.status();
    let spares = status.members.iter();
    for spare in spares.filter(|one| one.state == MemberState::Spare) {
        start.session.command(Command::Remove(spare.member));
    }
    order(&mut start, Command::Fail(Member(member))).ok()?;
    settle(&mut start);
    write(&mut start, 5..7);
    settle(&mut start);
    flush(&mut start);
    Some((start, copies))
}

/// Of the copies, those that may pass for the member by their superblocks: the oldest and the newest of each version, one
/// in between, and what is older than all these.
fn passing(start: &Start, member: u16, copies: &[Image]) -> Vec<Image> {
    let others =
        (0..start.session.world.status().members.len() as u16).filter(|one| *one != member);
    let newest = others
        .filter_map(|other| superblock_of(&live_of(start, other)))
        .max_by_key(|found| found.sequence);
    let newest = newest.expect("an array");
    let line = copies
        .iter()
        .find_map(superblock_of)
        .and_then(|own| newest.members.iter().find(|line| line.uuid == own.member));
    let left_at = match line {
        Some(line) if matches!(line.role, MemberRole::Failed { .. }) => line.left_at,
        _ => newest.sequence,
    };
    let of = |wanted: u64| {
        let found: Vec<&Image> = copies
            .iter()
            .filter(|copy| version(copy) == wanted)
            .collect();
        let places = [0, found.len() / 2, found.len().saturating_sub(1)];
        let some = places.map(|place| found.get(place).map(|copy| (*copy).clone()));
        some.into_iter().flatten().collect::<Vec<Image>>()
    };
    let mut chosen = [of(left_at.saturating_sub(1)), of(left_at)].concat();
    chosen.extend(copies.first().cloned());
    chosen.dedup_by_key(|copy| copy.digest());
    chosen
}

fn comes_back(pair: &Pair, rest: &Rest, member: u16, copy: &Image) {
    let mut rest = rest.clone();
    rest.images[usize::from(member)] = copy.clone();
    let mut start = served(pair, rest, PLAIN);
    given(&mut start, Command::Add(Member(member)));
    is_whole_but(&mut start, member);
}

/// The points at which members fail: all over the task, and closer where its end is put on record.
fn points(steps: u64) -> Vec<u64> {
    let mut points: Vec<u64> = (0..12).map(|part| steps * part / 12).collect();
    points.extend((0..20).map(|nth| steps.saturating_sub(2 * nth)));
    points.sort_unstable();
    points.dedup();
    points
}

fn sweep(case: &Case) {
    let pair = Pair {
        uneven: true,
        ..Pair::new(vec![case.spec.clone()], Redirect::None)
    };
    let steps = steps(case, &pair);
    for &member in case.fail {
        let mut tried = 0;
        for point in points(steps) {
            let Some((mut start, copies)) = left(case, &pair, member, point) else {
                continue;
            };
            let chosen = passing(&start, member, &copies);
            given(&mut start, Command::Stop);
            let rest = start.power_goes();
            for copy in &chosen {
                comes_back(&pair, &rest, member, copy);
                tried += 1;
            }
            // While it serves, the one that lacks most.
            if let Some(copy) = chosen.first() {
                let (mut start, _) = left(case, &pair, member, point).expect("as before");
                let disk = start.session.world.disk_mut(Member(member));
                disk.meddle(|image| *image = copy.clone());
                given(&mut start, Command::Add(Member(member)));
                is_whole_but(&mut start, member);
            }
        }
        assert!(
            tried >= 5,
            "{tried} copies of member {member} in {steps} steps"
        );
    }
}

#[test]
fn a_member_that_failed_while_a_spare_was_filled() {
    sweep(&Case {
        spec: spec(Level::Raid6(ROTATION), 4, 1),
        begin: |start| fail(start, 1),
        fail: &[4, 0, 3],
    });
}

#[test]
fn a_member_that_failed_while_one_was_replaced() {
    sweep(&Case {
        spec: spec(Level::Raid6(ROTATION), 4, 1),
        begin: replace,
        fail: &[4, 1, 0],
    });
}

#[test]
fn a_member_that_failed_while_it_got_what_it_had_missed() {
    sweep(&Case {
        spec: spec(Level::Raid6(ROTATION), 4, 0),
        begin: returns,
        fail: &[1, 0],
    });
}

/// Here a member is filled that serves other partitions already, and is called active all the while.
#[test]
fn a_member_that_failed_while_partitions_came_home() {
    sweep(&Case {
        spec: skewed(2, 0),
        begin: comes_home,
        fail: &[9, 10, 0],
    });
}

#[test]
fn a_member_that_failed_while_others_took_a_slot_in() {
    sweep(&Case {
        spec: skewed(0, 2),
        begin: |start| fail(start, 4),
        fail: &[0, 1, 3, 5, 8],
    });
}

#[test]
fn a_member_that_failed_while_chunks_moved_to_a_new_one() {
    sweep(&Case {
        spec: spec(Level::Raid4, 3, 1),
        begin: |start| given(start, Command::Grow { by: 1 }),
        fail: &[0, 2, 3],
    });
}

#[test]
fn a_member_that_failed_while_rows_of_a_new_shape_were_made() {
    sweep(&Case {
        spec: spec(Level::Raid5(ROTATION), 3, 1),
        begin: |start| given(start, Command::Reshape { by: 1 }),
        fail: &[0, 2, 3],
    });
}

// ----------------------------------------------------------------------- copies of the member that is being filled

/// So slow that the members have several checkpoints of it.
fn slowly(start: &mut Start) {
    let (min, max) = (1 << 10, 32 << 10);
    given(start, Command::Rate { min, max });
}

/// With more rows.
fn long(spec: Spec, chunks: u64) -> Spec {
    Spec { chunks, ..spec }
}

fn fills_a_spare() -> Case {
    Case {
        spec: long(spec(Level::Raid6(ROTATION), 4, 1), 64),
        begin: |start| {
            slowly(start);
            fail(start, 1);
        },
        fail: &[4],
    }
}

fn fills_and_amid() -> [Case; 3] {
    let replaces = Case {
        spec: long(spec(Level::Raid6(ROTATION), 4, 1), 64),
        begin: |start| {
            slowly(start);
            replace(start);
        },
        fail: &[4],
    };
    // Here the members that are filled are current in other partitions.
    let hosts = Case {
        spec: long(skewed(0, 2), 60),
        begin: |start| {
            slowly(start);
            fail(start, 4);
        },
        fail: &[0, 3, 5],
    };
    [fills_a_spare(), replaces, hosts]
}

/// Takes a step; a copy of the member is added if it has changed.
fn step_and_copy(start: &mut Start, member: u16, copies: &mut Vec<Image>) {
    let copy = live_of(start, member);
    let known = copies.last().map(Image::digest);
    if known != Some(copy.digest()) {
        copies.push(copy);
    }
    start.session.step();
    while start.session.news().is_some() {}
}

/// What power leaves that goes now.
fn cut(start: &Start) -> Rest {
    let site = start.session.world.site();
    let mut oracle = start.session.oracle.clone();
    oracle.crash();
    let images = site.images(&site.nothing());
    Rest { images, oracle }
}

/// Of the copies with one of these versions: the first and the last of each.
fn of_versions(copies: &[Image], wanted: std::ops::RangeInclusive<u64>) -> Vec<&Image> {
    let of = |wanted: u64| {
        let mut found = copies.iter().filter(move |copy| version(copy) == wanted);
        [found.next(), found.next_back()].into_iter().flatten()
    };
    wanted.flat_map(of).collect()
}

/// How many rows a superblock calls done of tasks that fill a member.
fn rows_filled(image: &Image) -> u64 {
    let tasks = superblock_of(image).map_or(Vec::new(), |found| found.tasks);
    let filling = tasks.iter().filter(|task| task.kind.fills());
    let runs = filling.flat_map(|task| &task.done);
    runs.map(|run| run.1).sum()
}

/// Power goes behind a checkpoint, and a copy of the member that is being filled takes its place, made under that version
/// or the one before. What it lacks is filled again.
#[test]
fn a_copy_of_a_member_that_was_being_filled_lacks_no_row_that_counts() {
    for case in fills_and_amid() {
        let pair = Pair {
            uneven: true,
            ..Pair::new(vec![case.spec.clone()], Redirect::None)
        };
        for &member in case.fail {
            let (mut start, mut copies) = (begun(&case, &pair), Vec::new());
            let (mut last, mut tried) = (0, 0);
            while !start.session.world.status().tasks.is_empty() {
                step_and_copy(&mut start, member, &mut copies);
                let witness = usize::from(member == 0);
                let rest = cut(&start);
                let newest = version(&rest.images[witness]);
                if newest == last || rows_filled(&rest.images[witness]) == 0 {
                    continue;
                }
                last = newest;
                for copy in of_versions(&copies, newest - 1..=newest) {
                    let mut rest = rest.clone();
                    rest.images[usize::from(member)] = copy.clone();
                    let mut start = served(&pair, rest, PLAIN);
                    is_whole_but(&mut start, member);
                    tried += 1;
                }
            }
            assert!(tried >= 4, "{tried} copies of member {member}");
        }
    }
}

/// The array is stopped while a spare is being filled, an old copy of which takes its place. The next start is cut short
/// at each of its steps.
#[test]
fn an_old_copy_of_a_member_that_was_being_filled_stays_old_through_starts() {
    let case = fills_a_spare();
    let (pair, member) = (Pair::new(vec![case.spec.clone()], Redirect::None), 4);
    let (mut start, mut copies) = (begun(&case, &pair), Vec::new());
    while rows_filled(&live_of(&start, 0)) == 0 {
        step_and_copy(&mut start, member, &mut copies);
    }
    given(&mut start, Command::Stop);
    let mut rest = start.power_goes();
    let stopped = version(&rest.images[0]);
    assert!(rows_filled(&rest.images[0]) > 0, "at {stopped}");
    for copy in of_versions(&copies, version(&copies[0])..=stopped - 2) {
        rest.images[usize::from(member)] = copy.clone();
        for steps in 0.. {
            let mut start = Start::ask(&pair, rest.clone(), PLAIN);
            let ended = (0..steps).any(|_| !start.step());
            let mut start = served(&pair, start.power_goes(), PLAIN);
            is_whole_but(&mut start, member);
            if ended {
                break;
            }
        }
    }
}
