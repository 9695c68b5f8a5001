//! No space left, or too few members: the array halts, and loses nothing.

use crate::shell::{Array, CHUNK, Setup, raid1, raid5, raid6};
use restripe_array::layout::Level;
use restripe_array::meta::WriteHole;
use restripe_array::report::{MemberState, WhyRefused};
use restripe_array::{
    Command, CommandError, Fact, FailCause, Halt, IoError, Member, Nanos, RequestError, RequestOp,
    ScrubMode,
};

/// Ends everything; what is done to a member in one of these ways fails for want of space.
fn run_without_space(array: &mut Array, ways: &[&str]) {
    while !array.held.is_empty() {
        let fails = ways.iter().any(|way| array.labels()[0].contains(way));
        array.end_first(if fails { Err(IoError::NoSpace) } else { Ok(()) });
    }
}

fn run_full(array: &mut Array) {
    run_without_space(array, &[" write ", " zero "]);
}

fn written(setup: Setup) -> Array {
    let mut array = setup.start();
    array.written(0, 48).expect("written");
    array.flushed();
    array
}

#[test]
fn an_array_without_space_halts_and_loses_nothing() {
    for setup in [raid5(4), raid6(5), raid1(2)] {
        let mut array = written(setup);
        let old = array.model.clone();
        let write = array.write(0, 8);
        run_full(&mut array);
        assert_eq!(array.reply(write), Some(Err(RequestError::NoSpace)));
        assert!(array.has_fact(|fact| *fact == Fact::Halted(Halt::NoSpace)));
        let status = array.engine.status();
        assert!(status.read_only && status.lost.is_empty());
        let flush = array.flush();
        run_full(&mut array);
        assert_eq!(array.reply(flush), Some(Err(RequestError::NoSpace)));
        let write = array.write(32, 8);
        run_full(&mut array);
        assert_eq!(array.reply(write), Some(Err(RequestError::NoSpace)));
        array.model = old;
        let mut told = 0;
        for lba in CHUNK..48 {
            // What a missing member held beside the write is in doubt; nothing is made up.
            if let Ok(found) = array.read(lba, 1) {
                assert!(found == array.model[lba as usize * 512..][..512]);
                told += 1;
            }
        }
        assert!(told >= CHUNK, "members that are here are read: {told}");
        array.crash(|_| true);
        array.start().expect("starts when there is space again");
        for lba in 8..48 {
            let found = array.read(lba, 1).expect("nothing is lost");
            assert!(found == array.model[lba as usize * 512..][..512], "{lba}");
        }
    }
}

#[test]
fn what_is_under_way_when_an_array_halts_is_not_acknowledged() {
    let mut array = written(raid5(4));
    array.depart(1);
    array.run();
    let writes: Vec<u64> = (0..6).map(|row| array.write(row * 3 * CHUNK, 8)).collect();
    let read = array.request(RequestOp::Read, 2 * CHUNK, 8);
    run_full(&mut array);
    for write in writes {
        assert!(matches!(array.reply(write), Some(Err(_))));
    }
    assert!(array.reply(read).is_some());
    assert!(array.engine.idle(), "{:?}", array.labels());
    let stop = array.order(Command::Stop);
    run_full(&mut array);
    assert_eq!(array.answer(stop), Some(Err(CommandError::NoSpace)));
}

#[test]
fn a_rebuild_without_space_ends_and_the_array_goes_on() {
    let mut array = written(raid5(4).spares(1));
    array.depart(1);
    array.run_but("m4");
    while array.mentions("m4") {
        let index = array
            .held
            .iter()
            .position(|held| held.label.starts_with("m4"));
        array.end_as(index.expect("one is held"), Err(IoError::NoSpace));
        array.run_but("m4");
    }
    assert!(array.failed(4));
    assert!(!array.has_fact(|fact| *fact == Fact::Halted(Halt::NoSpace)));
    array.written(0, 8).expect("the others have space");
    array.verify();
}

#[test]
fn a_start_without_space_says_so_and_the_next_one_recovers() {
    let mut array = written(raid5(4));
    array.write(0, 8);
    array.run();
    array.crash(|label| label.starts_with("m0 data"));
    let start = array.order(Command::Start(Default::default()));
    run_full(&mut array);
    assert_eq!(array.answer(start), Some(Err(CommandError::NoSpace)));
    array.crash(|_| true);
    array.start().expect("starts when there is space again");
    array.consistent();
    array.verify();
}

#[test]
fn an_extent_that_could_not_be_zeroed_is_not_real() {
    for (setup, gone) in [
        (Setup::new(Level::Raid0, 3).hole(WriteHole::None), None),
        (raid5(4), None),
        (raid5(4), Some(1)),
    ] {
        let mut array = setup.unwritten().made();
        let start = array.data_start();
        for disk in &mut array.disks {
            disk.scribble_from(start);
        }
        array.start().expect("starts");
        if let Some(gone) = gone {
            array.depart(gone);
            array.run();
        }
        let write = array.write(0, 8);
        run_full(&mut array);
        assert!(matches!(array.reply(write), Some(Err(_))));
        for lba in 0..48 {
            let found = array.read(lba, 1).expect("never written");
            assert!(found.iter().all(|byte| *byte == 0), "{lba} was made up");
        }
        let stop = array.order(Command::Stop);
        array.run();
        assert!(array.answer(stop).is_some(), "it can be stopped");
    }
}

#[test]
fn a_halted_array_stops_although_a_task_waits_for_an_extent() {
    for setup in [raid5(4), raid1(2)] {
        let mut array = setup.unwritten().start();
        array.written(0, 8).expect("the first extent is real");
        let size = array.layout.size_sectors();
        let write = array.write(size - 8, 8);
        array.run_but("written");
        assert!(array.mentions("written"), "{:?}", array.labels());
        array.order(Command::Scrub(ScrubMode::Check));
        array.run_but("written");
        run_full(&mut array);
        assert_eq!(array.reply(write), Some(Err(RequestError::NoSpace)));
        let stop = array.order(Command::Stop);
        run_full(&mut array);
        assert_eq!(array.answer(stop), Some(Err(CommandError::NoSpace)));
    }
}

/// Ends everything; what is written to these members finds no space, and flushes neither, if they are to fail.
fn run_with_full(array: &mut Array, full: &[u16], flushes: bool) {
    while !array.held.is_empty() {
        let label = array.labels()[0].to_string();
        let is_full = full
            .iter()
            .any(|member| label.starts_with(&format!("m{member} ")));
        let writes = label.contains(" write ") || label.contains(" zero ");
        let fails = is_full && (writes || flushes && label.contains("flush"));
        array.end_first(if fails { Err(IoError::NoSpace) } else { Ok(()) });
        array.turn();
    }
}

fn redundant() -> [Setup; 5] {
    let raid10 = Setup::new(Level::Raid10 { copies: 2 }, 4);
    [raid5(4), raid6(5), raid1(2), raid1(3), raid10]
}

fn refusal(array: &Array) -> Option<(WhyRefused, Vec<u16>)> {
    let refusal = array.engine.status().set.refusal?;
    Some((
        refusal.why,
        refusal.members.iter().map(|one| one.0).collect(),
    ))
}

/// Whichever it is, and whether writes meet it or a flush: it fails, and nothing is refused. It comes back when there is room.
#[test]
fn one_full_member_fails_and_no_write_is_refused() {
    for setup in redundant() {
        for (full, flushes) in
            (0..setup.options.members.len() as u16).flat_map(|m| [(m, false), (m, true)])
        {
            let mut array = written(setup.clone());
            let writes: Vec<u64> = (0..4).map(|one| array.write(one * CHUNK + 4, 8)).collect();
            let flush = array.flush();
            run_with_full(&mut array, &[full], flushes);
            for asked in writes.into_iter().chain([flush]) {
                assert_eq!(array.reply(asked), Some(Ok(())), "m{full}");
            }
            let fails = |why| {
                matches!(
                    why,
                    FailCause::WriteError(IoError::NoSpace)
                        | FailCause::FlushError(IoError::NoSpace)
                )
            };
            let failed = |fact: &Fact| matches!(fact, Fact::MemberFailed { member, why } if member.0 == full && fails(*why));
            assert!(array.has_fact(failed), "m{full}");
            assert!(!array.has_fact(|fact| matches!(fact, Fact::Halted(_))));
            assert_eq!(refusal(&array), None);
            array.written(0, 16).expect("the others have space");
            array.verify();
            array
                .command(Command::Add(Member(full)))
                .expect("room was made");
            array.run_tasks();
            array.verify();
            array.consistent();
        }
    }
}

/// Members that run full together are judged together: none of them fails, but where a log was written first. With room again the
/// next write goes on, without a restart.
#[test]
fn members_that_are_full_together_halt_the_array_until_there_is_room() {
    let setups = redundant().into_iter();
    let setups = setups.flat_map(|one| [one.clone(), one.hole(WriteHole::None)]);
    for setup in setups {
        let all: Vec<u16> = (0..setup.options.members.len() as u16).collect();
        let logs = setup.options.write_hole == WriteHole::Ppl;
        let mut array = written(setup);
        let old = array.model.clone();
        let write = array.write(0, 48);
        run_with_full(&mut array, &all, true);
        assert_eq!(array.reply(write), Some(Err(RequestError::NoSpace)));
        let failed = |array: &Array| {
            all.iter()
                .copied()
                .filter(|one| array.failed(*one))
                .collect()
        };
        let gone: Vec<u16> = failed(&array);
        assert!(logs || gone.is_empty());
        let (why, members) = refusal(&array).expect("a reason");
        assert!(
            why == WhyRefused::NoSpace && members.len() > 1,
            "{members:?}"
        );
        array.model = old;
        let read_on = array.model.clone();
        // Still none: the attempt is refused, and reads go on.
        for _ in 0..3 {
            array.wait(Nanos::from_secs(1));
            let write = array.write(0, 8);
            run_with_full(&mut array, &all, true);
            assert_eq!(array.reply(write), Some(Err(RequestError::NoSpace)));
            assert!(refusal(&array).is_some() && array.engine.idle());
            array.model = read_on.clone();
            let size = array.layout.size_sectors();
            let read = array.request(RequestOp::Read, size - 8, 8);
            array.run();
            assert!(array.reply(read) == Some(Ok(())) && array.brought(read, size - 8));
        }
        array.wait(Nanos::from_secs(1));
        for lba in (0..48).step_by(8) {
            array.written(lba, 8).expect("there is room again");
        }
        assert!(array.has_fact(|fact| matches!(fact, Fact::RoomAgain { .. })));
        array.flushed();
        // A failure that was not on record when the array halted counts for nothing: no write was acknowledged since.
        let failed = |member: &u16| {
            let line = &array.engine.status().members[usize::from(*member)];
            line.state == MemberState::Failed
        };
        let gone: Vec<u16> = gone.into_iter().filter(failed).collect();
        for member in gone {
            let added = array.command(Command::Add(Member(member)));
            added.expect("one that failed for its log comes back");
        }
        array.run_tasks();
        assert_eq!(refusal(&array), None);
        array.verify();
        array.consistent();
    }
}

/// One that fills up after another that redundancy had given for it is the culprit, and can be replaced.
#[test]
fn a_full_member_that_cannot_be_spared_is_named_and_replaced() {
    for setup in [raid5(4), raid1(2)] {
        let mut array = written(setup);
        array.depart(1);
        array.run();
        let write = array.write(0, 8);
        run_with_full(&mut array, &[0, 2, 3], true);
        let outcome = array.reply(write);
        assert_eq!(outcome, Some(Err(RequestError::NoSpace)));
        let (why, members) = refusal(&array).expect("a reason");
        assert_eq!(why, WhyRefused::NoSpace);
        let full = Member(members[0]);
        // Metadata has its place already: only what users write finds no space.
        let info = array.info_of(0);
        let new = array.arrive(info);
        let replace = array.order(Command::Replace { old: full, new });
        while array.answer(replace).is_none() {
            array.run();
            array.wait(Nanos::from_millis(100));
        }
        assert_eq!(array.answer(replace), Some(Ok(())));
        array.run_tasks();
        array.written(0, 16).expect("the full one is replaced");
        array.flushed();
        assert_eq!(
            refusal(&array).filter(|(_, members)| members.contains(&full.0)),
            None
        );
    }
}

#[test]
fn a_start_that_cannot_flush_for_want_of_space_says_so() {
    let mut array = written(raid5(4));
    array.depart(1);
    array.run();
    array.write(0, 48);
    array.run_but("flush");
    array.crash(|label| label.starts_with("m0 data"));
    let start = array.order(Command::Start(Default::default()));
    run_without_space(&mut array, &["flush"]);
    assert_eq!(array.answer(start), Some(Err(CommandError::NoSpace)));
}

/// Members go one after the other, the last of them one more than redundancy tolerates.
pub fn lost_too_many(setup: Setup, gone: &[u16]) -> Array {
    let mut array = written(setup);
    for &member in gone {
        array.depart(member);
        array.run();
    }
    array
}

/// Whose failure redundancy does not bear is not put on record: the members that are back make up the array again.
#[test]
fn an_array_that_lost_too_many_members_starts_when_they_are_back() {
    let setups = [
        (raid5(4), &[2, 1][..]),
        (raid6(5), &[4, 0, 3]),
        (raid1(2), &[0, 1]),
        (Setup::new(Level::Raid0, 3), &[1]),
        (Setup::new(Level::Raid10 { copies: 2 }, 4), &[0, 3, 1]),
    ];
    for (setup, gone) in setups {
        let mut array = lost_too_many(setup, gone);
        let old = array.model.clone();
        assert!(array.has_fact(|fact| *fact == Fact::Halted(Halt::TooFew)));
        let write = array.write(0, 8);
        let flush = array.flush();
        array.run();
        assert_eq!(array.reply(write), Some(Err(RequestError::ReadOnly)));
        assert_eq!(array.reply(flush), Some(Err(RequestError::Unavailable)));
        let stopped = array.command(Command::Stop);
        assert!(
            matches!(stopped, Err(CommandError::TooFew { .. })),
            "{stopped:?}"
        );
        array.model = old;
        array.crash(|_| true);
        array.start().expect("all are back");
        array.verify();
        array.written(0, 16).expect("written");
        array.flushed();
    }
}

#[test]
fn what_is_under_way_when_a_member_too_many_goes_is_not_acknowledged() {
    for last in ["log+", "write data", "write intent", "flush"] {
        let mut array = written(raid5(4));
        array.depart(1);
        array.run();
        let mut asked: Vec<u64> = (0..6).map(|row| array.write(row * 3 * CHUNK, 8)).collect();
        asked.push(array.flush());
        array.run_but(last);
        let before: Vec<_> = asked.iter().map(|tag| array.reply(*tag)).collect();
        array.depart(3);
        array.run();
        for (tag, before) in asked.into_iter().zip(before) {
            let after = array.reply(tag);
            assert!(
                after == before || matches!(after, Some(Err(_))),
                "{after:?}"
            );
        }
        assert!(array.engine.idle(), "{:?}", array.labels());
        array.crash(|_| true);
        array.start().expect("all are back");
        array.command(Command::Add(Member(1))).expect("it is back");
        array.run_tasks();
        array.consistent();
    }
}

/// A spare was being filled: nothing is called lost, and the rebuild goes on at the next start.
#[test]
fn a_rebuild_goes_on_when_the_members_are_back() {
    let mut array = written(raid5(4).spares(1));
    array.depart(2);
    array.run_but("m4 write data");
    array.depart(1);
    array.run();
    assert!(!array.has_fact(|fact| matches!(fact, Fact::Lost { .. })));
    assert!(array.engine.status().read_only);
    array.crash(|_| true);
    array.start().expect("all are back");
    array.run_tasks();
    array.verify();
    array.consistent();
}
