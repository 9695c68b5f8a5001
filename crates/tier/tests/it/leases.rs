//! Space lent to other arrays: changed while users are served, and on record before it is answered.

use crate::shell::{Array, raid1, raid5};
use restripe_array::report::Parcel;
use restripe_array::{
    Command, CommandError, LeaseCommand, LeaseError, LeaseName, Member, StartMode, Uuid,
};

fn name(text: &str) -> LeaseName {
    LeaseName::new(text).expect("a name")
}

fn lend(array: &mut Array, text: &str, sectors: u64) -> Result<(), CommandError> {
    let name = name(text);
    array.command(Command::Lease(LeaseCommand::Add { name, sectors }))
}

fn lent(array: &Array) -> Vec<Parcel> {
    array.engine.status().set.lent
}

#[test]
fn a_lease_is_answered_for_once_on_record() {
    let mut array = raid1(2).lending(40).start();
    let add = LeaseCommand::Add {
        name: name("log"),
        sectors: 1,
    };
    let order = array.order(Command::Lease(add));
    array.run_but("m1 write super");
    assert_eq!(array.answer(order), None);
    array.run();
    assert_eq!(array.answer(order), Some(Ok(())));
    let before = lent(&array);
    array.crash(|_| false);
    array.start().expect("a whole array starts");
    assert_eq!(lent(&array), before);
    assert_eq!(before[0].lease.map(|lease| lease.name), Some(name("log")));
}

/// A shell serves what the table says. So the table tells of no change before a crash could no longer take it back.
#[test]
fn a_change_is_seen_once_on_record() {
    let mut array = raid1(2).lending(40).start();
    let name = name("log");
    let add = LeaseCommand::Add { name, sectors: 1 };
    let remove = LeaseCommand::Remove { name, force: false };
    for command in [add, remove] {
        let before = lent(&array);
        let order = array.order(Command::Lease(command));
        array.run_but("write super");
        assert_eq!((array.answer(order), lent(&array)), (None, before.clone()));
        array.crash(|_| false);
        array.start().expect("a whole array starts");
        assert_eq!(lent(&array), before, "the disks agree");
        array.command(Command::Lease(command)).expect("it may be");
        assert_ne!(lent(&array), before);
    }
}

/// Of changes in a row each is seen when it is answered.
#[test]
fn a_change_is_seen_while_the_next_is_under_way() {
    let mut array = raid1(2).lending(40).start();
    let add = |text| LeaseCommand::Add {
        name: name(text),
        sectors: 1,
    };
    let first = array.order(Command::Lease(add("one")));
    array.turn();
    let second = array.order(Command::Lease(add("two")));
    while array.answer(first).is_none() {
        array.end_first(Ok(()));
    }
    let seen = |array: &Array, text| {
        let mut names = lent(array).into_iter().filter_map(|one| one.lease);
        names.any(|lease| lease.name == name(text))
    };
    assert!(seen(&array, "one") && !seen(&array, "two"));
    array.run();
    assert_eq!(array.answer(second), Some(Ok(())));
    assert!(seen(&array, "two"));
}

#[test]
fn users_see_what_lies_before_the_leases() {
    let whole = raid5(4).start().engine.status().size_bytes;
    let mut array = raid5(4).lending(1).start();
    let status = array.engine.status();
    let parcel = status.lent[0];
    assert_eq!(status.size_bytes, parcel.start * 512);
    assert_eq!(parcel.end() * 512, whole);
    // To the engine all of it is one space: borrowers' requests are like others.
    array
        .written(parcel.start, parcel.sectors)
        .expect("written");
    array.written(0, 10).expect("written");
    array.command(Command::Fail(Member(1))).expect("one can go");
    array.verify();
}

#[test]
fn who_borrows_is_kept_and_in_the_way_of_taking_back() {
    let mut array = raid1(2).lending(40).start();
    lend(&mut array, "log", 8).expect("room");
    let (by, log) = (Uuid([9; 16]), name("log"));
    let bind = LeaseCommand::Bind {
        name: log,
        borrower: Some(by),
    };
    array.command(Command::Lease(bind)).expect("it is there");
    array.crash(|_| false);
    array.start().expect("a whole array starts");
    let remove = |force| Command::Lease(LeaseCommand::Remove { name: log, force });
    let borrowed = LeaseError::Borrowed { name: log, by };
    assert_eq!(
        array.command(remove(false)),
        Err(CommandError::Lease(borrowed))
    );
    array.command(remove(true)).expect("by force");
    assert!(lent(&array).iter().all(|parcel| parcel.lease.is_none()));
}

#[test]
fn what_cannot_be_lent_is_refused() {
    let mut array = raid1(2).lending(40).start();
    for sectors in [41 + 8, u64::MAX] {
        let refused = lend(&mut array, "log", sectors);
        let no_room = matches!(refused, Err(CommandError::Lease(LeaseError::NoRoom { .. })));
        assert!(no_room, "{refused:?}");
    }
    let refused = lend(&mut raid1(2).start(), "log", 8);
    assert_eq!(refused, Err(CommandError::Lease(LeaseError::NotLending)));
    let mut idle = raid1(2).lending(40).made();
    assert!(matches!(
        lend(&mut idle, "log", 8),
        Err(CommandError::Busy(_))
    ));
    let read_only = StartMode {
        read_only: true,
        ..StartMode::default()
    };
    idle.command(Command::Start(read_only)).expect("it starts");
    assert!(matches!(
        lend(&mut idle, "log", 8),
        Err(CommandError::Busy(_))
    ));
}

/// Neither may come to do both while it serves.
#[test]
fn who_lends_gets_no_surrogate_and_who_has_one_lends_nothing() {
    let mut lender = raid1(2).lending(40).start();
    let surrogate = Command::LogSet(Some(Uuid([5; 16])));
    let lends = Err(CommandError::Lease(LeaseError::Lends));
    assert_eq!(lender.command(surrogate), lends);
    let mut borrower = raid1(2).start();
    borrower.command(surrogate).expect("it has none");
    let refused = lend(&mut borrower, "log", 8);
    assert_eq!(refused, Err(CommandError::Lease(LeaseError::NotLending)));
}

/// A lease is lent beside a failure, and the member that comes back has it on record like all others.
#[test]
fn leases_outlive_members() {
    let mut array = raid1(2).spares(1).lending(40).start();
    let failed = array.order(Command::Fail(Member(0)));
    lend(&mut array, "log", 8).expect("room");
    assert_eq!(array.answer(failed), Some(Ok(())));
    let last = lent(&array).last().copied().expect("there is one");
    array.written(last.start, 8).expect("written");
    array.run_tasks();
    array.flushed();
    array.crash_without(&[1], |_| false);
    let forced = StartMode {
        from_minority: true,
        ..StartMode::default()
    };
    array.command(Command::Start(forced)).expect("it starts");
    assert_eq!(
        lent(&array)[0].lease.map(|lease| lease.name),
        Some(name("log"))
    );
    array.verify();
}
