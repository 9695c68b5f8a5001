//! What operators may not do, and how an array starts and stops.

use crate::shell::{Array, Setup, raid1, raid5, raid6};
use restripe_array::layout::Level;
use restripe_array::meta::WriteHole;
use restripe_array::report::ArrayState;
use restripe_array::{
    Command, CommandError, Fact, IoError, Member, MemberInfo, RequestError, RequestOp, StartMode,
};

#[test]
fn an_indispensable_member_is_not_failed() {
    let mut array = raid5(4).start();
    array.command(Command::Fail(Member(0))).expect("one can go");
    let refused = array.command(Command::Fail(Member(1)));
    assert_eq!(refused, Err(CommandError::Indispensable(Member(1))));
}

#[test]
fn raid6_lets_two_go() {
    let mut array = raid6(5).start();
    array.command(Command::Fail(Member(0))).expect("one can go");
    array.command(Command::Fail(Member(1))).expect("two can go");
    let refused = array.command(Command::Fail(Member(2)));
    assert_eq!(refused, Err(CommandError::Indispensable(Member(2))));
}

#[test]
fn a_failed_member_is_answered_for_only_once_on_record() {
    let mut array = raid5(4).start();
    let fail = array.order(Command::Fail(Member(0)));
    array.run_but("m3 write super");
    assert_eq!(array.answer(fail), None);
    array.run();
    assert_eq!(array.answer(fail), Some(Ok(())));
}

#[test]
fn nobody_knows_a_member_that_is_not_there() {
    let mut array = raid5(4).start();
    let nobody = Member(9);
    let unknown = Err(CommandError::NoSuchMember(nobody));
    assert_eq!(array.command(Command::Fail(nobody)), unknown);
    assert_eq!(array.command(Command::Remove(nobody)), unknown);
    assert_eq!(array.command(Command::Add(nobody)), unknown);
    let replace = Command::Replace {
        old: Member(0),
        new: nobody,
    };
    assert_eq!(array.command(replace), unknown);
}

#[test]
fn a_member_in_use_is_not_removed_and_a_failed_one_is() {
    let mut array = raid5(4).start();
    let refused = array.command(Command::Remove(Member(0)));
    assert!(matches!(refused, Err(CommandError::Busy(_))));
    array.command(Command::Fail(Member(0))).expect("one can go");
    array.command(Command::Remove(Member(0))).expect("failed");
    array.written(0, 100).expect("written");
    array.verify();
}

#[test]
fn a_spare_can_be_removed() {
    let mut array = raid5(4).spares(1).start();
    array.command(Command::Remove(Member(4))).expect("a spare");
    array.depart(0);
    array.run();
    assert!(array.engine.status().tasks.is_empty());
}

fn info(sectors: u64, logical_block: u32) -> MemberInfo {
    MemberInfo {
        sectors,
        logical_block,
        trim_zeroes: true,
        fast_zero: true,
        volatile: false,
    }
}

#[test]
fn a_device_too_small_is_not_taken_in() {
    let mut array = raid5(4).start();
    let small = array.arrive(info(100, 512));
    let refused = array.command(Command::Add(small));
    assert!(
        matches!(refused, Err(CommandError::TooSmall { has: 100, .. })),
        "{refused:?}"
    );
}

#[test]
fn a_device_of_larger_blocks_is_not_taken_in() {
    let mut array = raid5(4).start();
    let coarse = array.arrive(info(1024, 4096));
    let wanted = CommandError::LogicalBlock {
        member: 4096,
        array: 512,
    };
    assert_eq!(array.command(Command::Add(coarse)), Err(wanted));
}

#[test]
fn a_device_that_arrives_becomes_a_spare_and_serves() {
    let mut array = raid5(4).start();
    array.written(0, 100).expect("written");
    let fresh = array.arrive(info(1024, 512));
    array.command(Command::Add(fresh)).expect("it fits");
    array.depart(1);
    array.run_tasks();
    assert_eq!(array.engine.status().state, ArrayState::Healthy);
    array.verify();
    array.consistent();
}

/// An array takes what makes nothing durable only from a start that allows it, and says so as long as it is current.
pub fn volatile_taken_in(setup: Setup) -> Vec<&'static str> {
    let mut taken = Vec::new();
    let mut array = setup.start();
    let fresh = |array: &mut Array| {
        let volatile = true;
        array.arrive(MemberInfo {
            volatile,
            ..info(1024, 512)
        })
    };
    let spare = fresh(&mut array);
    if array.command(Command::Add(spare)) != Err(CommandError::Volatile(spare)) {
        taken.push("add");
    }
    let (old, new) = (Member(0), fresh(&mut array));
    if array.command(Command::Replace { old, new }) != Err(CommandError::Volatile(new)) {
        taken.push("replace");
    }
    assert!(array.engine.status().is_durable() == taken.is_empty());
    taken
}

#[test]
fn member_that_makes_nothing_durable_is_refused_at_run_time() {
    assert!(volatile_taken_in(raid5(4)).is_empty());
}

#[test]
fn array_is_durable_again_when_its_last_volatile_member_has_failed() {
    let volatile = |info: &mut MemberInfo| info.volatile = true;
    let mut array = raid5(4).info(volatile).made();
    let refused = Err(CommandError::Volatile(Member(0)));
    assert_eq!(array.command(Command::Start(StartMode::default())), refused);
    let allowed = StartMode {
        volatile_members: true,
        ..StartMode::default()
    };
    array
        .command(Command::Start(allowed))
        .expect("it is allowed");
    assert!(!array.engine.status().is_durable());
    let mut array = raid5(4).made();
    array.command(Command::Start(allowed)).expect("it starts");
    assert!(array.engine.status().is_durable());
    let spare = array.arrive(MemberInfo {
        volatile: true,
        ..info(1024, 512)
    });
    array.command(Command::Add(spare)).expect("it is allowed");
    assert!(!array.engine.status().is_durable());
    array.depart(spare.0);
    array.run();
    assert!(array.engine.status().is_durable());
}

#[test]
fn start_that_only_reads_takes_volatile_members() {
    let mut array = raid5(4).info(|info| info.volatile = true).made();
    let read_only = StartMode {
        read_only: true,
        ..StartMode::default()
    };
    array
        .command(Command::Start(read_only))
        .expect("nothing is written");
}

/// The command succeeds only if the member has answered and is on record.
#[test]
fn member_that_fails_as_it_is_taken_in_fails_the_command() {
    let back = |array: &mut Array| {
        array.command(Command::Fail(Member(1))).expect("one can go");
        (Member(1), Command::Add(Member(1)))
    };
    let spare = |array: &mut Array| {
        let fresh = array.arrive(info(1024, 512));
        (fresh, Command::Add(fresh))
    };
    let replacement = |array: &mut Array| {
        let (old, new) = (Member(0), array.arrive(info(1024, 512)));
        (new, Command::Replace { old, new })
    };
    type Way<'a> = &'a dyn Fn(&mut Array) -> (Member, Command);
    let ways: [Way; 3] = [&back, &spare, &replacement];
    for (nth, way) in ways.into_iter().enumerate() {
        for error in [IoError::Gone, IoError::Media] {
            let mut array = raid5(4).start();
            array.written(0, 100).expect("written");
            let (member, command) = way(&mut array);
            let tag = array.order(command);
            array.run_but("write super");
            assert_eq!(array.answer(tag), None, "way {nth}");
            array.fail(&format!("m{} write super", member.0), error);
            array.run();
            let wanted = Err(CommandError::FailedAgain(member));
            assert_eq!(array.answer(tag), Some(wanted), "way {nth}");
            array.verify();
        }
    }
}

#[test]
fn a_member_in_use_is_not_added() {
    let mut array = raid5(4).start();
    let refused = array.command(Command::Add(Member(0)));
    assert!(matches!(refused, Err(CommandError::Busy(_))));
}

#[test]
fn stop_waits_for_what_is_under_way() {
    let mut array = raid5(4).start();
    let write = array.write(0, 8);
    let stop = array.order(Command::Stop);
    assert_eq!(array.answer(stop), None);
    array.run();
    assert_eq!(
        (array.reply(write), array.answer(stop)),
        (Some(Ok(())), Some(Ok(())))
    );
    assert!(array.has_fact(|fact| *fact == Fact::Stopped));
    array.crash(|_| false);
    array.start().expect("starts");
    array.verify();
}

#[test]
fn requests_after_a_stop_are_refused() {
    let mut array = raid5(4).start();
    array.command(Command::Stop).expect("stops");
    for op in [
        RequestOp::Read,
        RequestOp::Write,
        RequestOp::Flush,
        RequestOp::Trim,
    ] {
        let late = array.request(op, 0, 8);
        assert_eq!(
            array.reply(late),
            Some(Err(RequestError::Unavailable)),
            "{op:?}"
        );
    }
    assert!(matches!(
        array.command(Command::Stop),
        Err(CommandError::Busy(_))
    ));
}

#[test]
fn requests_before_a_start_are_refused() {
    let mut array = raid5(4).made();
    let early = array.request(RequestOp::Read, 0, 8);
    assert_eq!(array.reply(early), Some(Err(RequestError::Unavailable)));
    assert!(matches!(
        array.command(Command::Fail(Member(0))),
        Err(CommandError::Busy(_))
    ));
}

#[test]
fn a_stop_leaves_nothing_to_recover() {
    for setup in [raid5(4), raid1(2)] {
        let mut array = setup.start();
        array.written(0, 40).expect("written");
        array.command(Command::Stop).expect("stops");
        array.crash(|_| false);
        array.start().expect("starts");
        let clean = |fact: &Fact| {
            matches!(
                fact,
                Fact::Started {
                    recovered_rows: 0,
                    ..
                }
            )
        };
        assert!(array.has_fact(clean));
        assert!(array.engine.status().tasks.is_empty());
        array.verify();
    }
}

/// Stops, and blanks these members.
fn stopped_without(mut array: Array, gone: &[usize]) -> Array {
    array.written(0, 32).expect("written");
    array.command(Command::Stop).expect("stops");
    array.crash_without(gone, |_| true);
    array
}

fn start(array: &mut Array, change: impl FnOnce(&mut StartMode)) -> Result<(), CommandError> {
    let mut mode = StartMode::default();
    change(&mut mode);
    array.command(Command::Start(mode))
}

#[test]
fn nothing_starts_from_blank_devices() {
    let mut array = stopped_without(raid5(4).start(), &[0, 1, 2, 3]);
    assert_eq!(array.start(), Err(CommandError::NoArray));
}

#[test]
fn a_minority_does_not_start_unless_told() {
    let mut array = stopped_without(raid1(3).start(), &[0, 1]);
    let refused = array.start();
    assert!(
        matches!(refused, Err(CommandError::Minority { .. })),
        "{refused:?}"
    );
    start(&mut array, |mode| mode.from_minority = true).expect("told so");
    array.verify();
}

#[test]
fn too_few_do_not_start() {
    let mut array = stopped_without(raid5(5).start(), &[1, 3]);
    let refused = array.start();
    assert_eq!(
        refused,
        Err(CommandError::TooFew {
            missing: vec![1, 3]
        })
    );
}

#[test]
fn too_few_start_for_reading_when_the_loss_is_accepted() {
    let mut array = stopped_without(raid5(5).start(), &[1, 3]);
    start(&mut array, |mode| mode.accept_loss = true).expect("told so");
    assert!(array.engine.status().read_only);
    assert!(array.read(0, 16).is_ok());
    assert!(matches!(array.read(16, 8), Err(RequestError::Lost { .. })));
    let write = array.request(RequestOp::Write, 0, 8);
    assert_eq!(array.reply(write), Some(Err(RequestError::ReadOnly)));
}

#[test]
fn a_clone_is_refused_and_both_are_named() {
    let mut array = stopped_without(raid1(3).start(), &[]);
    array.disks[2] = array.disks[1].clone();
    assert_eq!(
        array.start(),
        Err(CommandError::Clone(Member(1), Member(2)))
    );
}

#[test]
fn a_read_only_start_writes_nothing() {
    let mut array = stopped_without(raid5(4).start(), &[]);
    array.listing();
    start(&mut array, |mode| mode.read_only = true).expect("whole");
    array.verify();
    assert!(!array.listing().contains("write"));
    let write = array.request(RequestOp::Write, 0, 8);
    assert_eq!(array.reply(write), Some(Err(RequestError::ReadOnly)));
}

#[test]
fn a_second_start_is_refused() {
    let mut array = raid5(4).start();
    assert!(matches!(array.start(), Err(CommandError::Busy(_))));
}

#[test]
fn a_start_that_was_refused_can_be_tried_again() {
    let mut array = stopped_without(raid1(3).start(), &[0, 1]);
    for _ in 0..3 {
        assert!(array.start().is_err());
    }
    start(&mut array, |mode| mode.from_minority = true).expect("told so");
}

/// While parity is brought in step each data cell is told by its member alone.
#[test]
fn a_member_that_alone_tells_some_data_is_not_failed() {
    let mut array = raid5(4).hole(WriteHole::None).start();
    array.written(0, 100).expect("written");
    array.crash(|_| true);
    array
        .command(Command::Rate { min: 1, max: 1 })
        .expect("taken");
    array.start().expect("all are here");
    let refused = array.command(Command::Fail(Member(0)));
    assert_eq!(refused, Err(CommandError::Indispensable(Member(0))));
    let (min, max) = (1 << 30, 1 << 30);
    array.command(Command::Rate { min, max }).expect("taken");
    array.run_tasks();
    array.command(Command::Fail(Member(0))).expect("in step");
    array.verify();
}

/// Superblocks that a crash may find still believe what a member held that has just failed.
#[test]
fn what_has_just_failed_is_given_no_other_place() {
    let mut array = raid6(6).start();
    array.written(0, 100).expect("written");
    array.flushed();
    let (old, new) = (Member(0), Member(1));
    array.order(Command::Fail(new));
    array.run_but("m3 write super");
    let early = array.order(Command::Replace { old, new });
    array.run_but("m3 write super");
    assert!(matches!(
        array.answer(early),
        Some(Err(CommandError::Busy(_)))
    ));
    assert!(!array.mentions("m1 write data"));
    array.run();
    array
        .command(Command::Replace { old, new })
        .expect("it is on record");
    array.run_tasks();
    array.verify();
}

/// Nor is a spare that served a moment ago.
#[test]
fn a_spare_that_has_just_failed_is_given_no_other_place() {
    let mut setup = Setup::new(Level::Raid10 { copies: 2 }, 4).spares(1);
    setup.rows = 8;
    let mut array = setup.start();
    array.written(0, 100).expect("written");
    array.flushed();
    array.order(Command::Fail(Member(0)));
    array.run_but("m3 write super");
    array.order(Command::Add(Member(0)));
    array.order(Command::Fail(Member(2)));
    array.run_but("m3 write super");
    assert!(!array.mentions("m0 write data"), "{:?}", array.labels());
    let tasks = array.engine.status().set.tasks;
    assert!(tasks.iter().all(|task| task.slot != Some(2)), "{tasks:?}");
    array.run_tasks();
    assert_eq!(array.engine.status().state, ArrayState::Healthy);
    array.verify();
}

/// A growth takes the spare that an answered command has added: nothing of that command is under way any more.
#[test]
fn a_member_is_added_once_it_is_flushed_and_on_record() {
    let mut array = raid5(4).start();
    let spare = array.arrive(MemberInfo {
        sectors: 1 << 20,
        logical_block: 512,
        trim_zeroes: true,
        fast_zero: true,
        volatile: false,
    });
    let add = array.order(Command::Add(spare));
    array.complete_held(" read ");
    array.run_but("flush");
    assert_eq!(array.answer(add), None, "the flush is under way");
    array.run();
    assert_eq!(array.answer(add), Some(Ok(())));
}

/// `add` and `replace` refuse a second path to a member's disk, also with `Overwrite`. A copy is another disk, which `Overwrite` allows.
#[test]
fn second_path_to_a_disk_in_use_is_refused_and_a_copy_is_not() {
    for setup in [
        raid1(2),
        raid5(4),
        raid6(5),
        crate::spares::three_by_three(),
    ] {
        let setup = setup.spares(1);
        let members = setup.clone().made().disks.len() as u16;
        for member in 0..members {
            let mut array = setup.clone().start();
            let size = array.layout.size_sectors();
            array.written(0, size).expect("written");
            let old = Member(u16::from(member == 0));
            let path = array.arrive_by_path(member);
            for (command, overwrites) in [
                (Command::Add(path), true),
                (Command::Add(path), false),
                (Command::Replace { old, new: path }, true),
                (Command::Replace { old, new: path }, false),
            ] {
                if overwrites {
                    let answer = array.command(Command::Overwrite(path));
                    answer.expect("the device is not in the array");
                }
                let refused = array.command(command);
                assert_eq!(refused, Err(CommandError::SameDevice(path, Member(member))));
            }
            let copy = array.arrive_copied(member);
            array.command(Command::Overwrite(copy)).expect("it is here");
            array.command(Command::Add(copy)).expect("it is a copy");
            array.run_tasks();
            array.verify();
        }
    }
}
