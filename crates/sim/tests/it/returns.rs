//! Members that return to a running array: one half of a set served on, the other half is started alone later, and the half with the newer writes
//! is taken in by any command. It is refused unless it may be overwritten; who missed writes only is taken in unasked.

use crate::sets::{FROM_MINORITY, PLAIN, Pair, Rest, Start, order};
use restripe_array::layout::{Level, Rotation};
use restripe_array::{Command, CommandError, Member};
use restripe_sim::array::Spec;
use restripe_sim::disk::Simple;
use restripe_sim::image::Image;
use restripe_sim::oracle::WriteKind;
use restripe_sim::payload::Payload;
use restripe_sim::session::PATIENCE;

/// A set whose members part.
struct Case {
    pair: Pair,
    set: usize,
    /// Those that drop out first.
    older: Vec<usize>,
    newer: Vec<usize>,
}

type Taking = fn(Member) -> Command;

fn add_of(set: usize) -> Taking {
    [Command::Add, Command::AddToSurrogate, Command::AddToBuffer][set]
}

fn cases() -> Vec<Case> {
    let single = |level, slots, older: &[usize], newer: &[usize]| Case {
        pair: Pair::single(level, slots),
        set: 0,
        older: older.to_vec(),
        newer: newer.to_vec(),
    };
    let of_pair = |pair: Pair, set: usize| {
        let members = pair.members(set);
        let (older, newer) = (vec![members.start], vec![members.start + 1]);
        Case {
            pair,
            set,
            older,
            newer,
        }
    };
    vec![
        single(Level::Raid1, 2, &[0], &[1]),
        single(Level::Raid1, 2, &[1], &[0]),
        single(Level::Raid1, 3, &[0], &[1, 2]),
        single(Level::Raid1, 3, &[0, 2], &[1]),
        of_pair(Pair::redundant(), 1),
        of_pair(Pair::buffered(), 2),
    ]
}

fn writes(start: &mut Start) {
    for nth in 0..4 {
        start
            .session
            .write(nth * 24, 16, WriteKind::Data, false, false);
    }
    start.session.flush();
    assert!(start.session.settle(PATIENCE));
}

fn stop(mut start: Start) -> Rest {
    assert_eq!(order(&mut start, Command::Stop), Ok(()));
    start.power_goes()
}

fn blank(image: &Image) -> Image {
    Image::new(Payload::Bytes, image.sectors())
}

/// Some members are not here.
fn without(rest: &Rest, gone: &[usize]) -> Rest {
    let mut rest = rest.clone();
    for &member in gone {
        rest.images[member] = blank(&rest.images[member]);
    }
    rest
}

fn of_set(error: CommandError) -> CommandError {
    match error {
        CommandError::OfSurrogate(error) | CommandError::OfBuffer(error) => *error,
        error => error,
    }
}

impl Case {
    fn spec(&self) -> &Spec {
        &self.pair.specs[self.set]
    }

    /// All serve, the older ones drop out, and the others go on until a clean stop.
    fn parted(&self) -> Rest {
        let mut start = Start::ask(&self.pair, self.pair.created(), PLAIN);
        assert_eq!(start.go_on(), Ok(()));
        writes(&mut start);
        for member in &self.older {
            let member = Member(*member as u16);
            assert_eq!(order(&mut start, Command::Fail(member)), Ok(()));
            assert!(start.session.settle(PATIENCE));
        }
        writes(&mut start);
        stop(start)
    }

    fn arrive(&self, start: &mut Start, image: &Image) -> Member {
        let device = Simple::new(
            restripe_array::Nanos(1000),
            1 << 30,
            restripe_array::Nanos(1),
        );
        let disk = self.spec().disk(0, image.clone(), Box::new(device), 9);
        start.session.world.arrive(disk)
    }

    /// The older ones are started alone. They lack what was flushed: the oracle is not asked any more.
    fn older_serve(&self, rest: &Rest) -> Start {
        let mut start = Start::ask(&self.pair, without(rest, &self.newer), FROM_MINORITY);
        assert_eq!(
            start.go_on(),
            Ok(()),
            "set {} of {:?}",
            self.set,
            self.spec().level
        );
        start
    }

    fn takings(&self) -> Vec<Command> {
        let place = |member: &usize| Member(*member as u16);
        // The last to drop out: its superblock counts those before out.
        let old = place(self.older.last().expect("some dropped out"));
        vec![
            add_of(self.set)(Member(0)),
            Command::Replace {
                old,
                new: Member(0),
            },
        ]
    }
}

fn of(command: Command, member: Member) -> Command {
    match command {
        Command::Add(_) => Command::Add(member),
        Command::AddToSurrogate(_) => Command::AddToSurrogate(member),
        Command::AddToBuffer(_) => Command::AddToBuffer(member),
        Command::Replace { old, .. } => Command::Replace { old, new: member },
        other => other,
    }
}

#[test]
fn newer_members_are_taken_in_only_to_be_overwritten() {
    for case in cases() {
        let rest = case.parted();
        for newer in &case.newer {
            for taking in case.takings() {
                let mut start = case.older_serve(&rest);
                let image = &rest.images[*newer];
                let member = case.arrive(&mut start, image);
                let command = of(taking, member);
                let error = order(&mut start, command).expect_err("it has newer writes");
                let OtherHistory { theirs, ours } = OtherHistory::of(of_set(error));
                assert_ne!(theirs, ours);
                let now = start.session.world.disk(member).live();
                assert_eq!(now.digest(), image.digest(), "nothing was written to it");
                assert_eq!(order(&mut start, Command::Overwrite(member)), Ok(()));
                assert_eq!(order(&mut start, command), Ok(()), "{command:?}");
            }
        }
    }
}

struct OtherHistory {
    theirs: (u64, u64),
    ours: (u64, u64),
}

impl OtherHistory {
    fn of(error: CommandError) -> OtherHistory {
        match error {
            CommandError::OtherHistory { theirs, ours, .. } => OtherHistory { theirs, ours },
            error => panic!("{error:?}"),
        }
    }
}

/// Those that dropped out first have nothing that the others lack.
#[test]
fn older_members_are_taken_in_unasked() {
    for case in cases() {
        let rest = case.parted();
        for older in &case.older {
            let mut start = Start::ask(&case.pair, without(&rest, &case.older), PLAIN);
            assert_eq!(start.go_on(), Ok(()));
            start.reads_all("the newer ones");
            let member = case.arrive(&mut start, &rest.images[*older]);
            let command = add_of(case.set)(member);
            assert_eq!(order(&mut start, command), Ok(()));
            assert!(start.session.settle(PATIENCE));
            start.reads_all("and all of them");
        }
    }
}

#[test]
fn a_member_of_another_array_is_taken_in_only_to_be_overwritten() {
    let case = &cases()[0];
    let other = Spec {
        identity: 0x7000,
        ..case.spec().clone()
    };
    let image = &other.format(None).expect("it fits")[0];
    let mut start = Start::ask(&case.pair, case.pair.created(), PLAIN);
    assert_eq!(start.go_on(), Ok(()));
    let member = case.arrive(&mut start, image);
    let refused = Err(CommandError::Foreign(member));
    assert_eq!(order(&mut start, Command::Add(member)), refused);
    assert_eq!(order(&mut start, Command::Overwrite(member)), Ok(()));
    assert_eq!(order(&mut start, Command::Add(member)), Ok(()));
}

/// One older state of a member is started alone, and the member's newer copy of another comes: only versions tell.
#[test]
fn a_member_that_served_on_beside_a_restored_one_is_not_overwritten() {
    let rotation = Rotation::default();
    for (level, slots) in [(Level::Raid1, 2), (Level::Raid5(rotation), 3)] {
        let pair = Pair::single(level, slots);
        let old = stop({
            let mut start = Start::ask(&pair, pair.created(), PLAIN);
            assert_eq!(start.go_on(), Ok(()));
            writes(&mut start);
            start
        });
        let new = stop({
            let mut start = Start::ask(&pair, old.clone(), PLAIN);
            assert_eq!(start.go_on(), Ok(()));
            writes(&mut start);
            start
        });
        let last = usize::from(slots) - 1;
        let case = Case {
            pair,
            set: 0,
            older: (0..last).collect(),
            newer: vec![last],
        };
        let mut start = case.older_serve(&old);
        let member = case.arrive(&mut start, &new.images[last]);
        let error = order(&mut start, Command::Add(member)).expect_err("it has newer writes");
        OtherHistory::of(error);
    }
}

/// An older state of a member is started alone, in which a spare is still a spare. The device that became active from that
/// spare comes, and whatever the restored member counted since, the device is not overwritten.
#[test]
fn a_spare_that_became_active_beside_a_restored_member_is_not_overwritten() {
    let mut pair = Pair::single(Level::Raid1, 2);
    pair.specs[0].spares = 1;
    let case = Case {
        pair,
        set: 0,
        older: vec![0],
        newer: vec![1, 2],
    };
    let served = |rest: Rest| {
        let mut start = Start::ask(&case.pair, rest, PLAIN);
        assert_eq!(start.go_on(), Ok(()));
        start
    };
    let mut start = served(case.pair.created());
    writes(&mut start);
    let old = stop(start);
    let mut start = served(old.clone());
    assert_eq!(order(&mut start, Command::Fail(Member(1))), Ok(()));
    assert!(start.session.settle(PATIENCE));
    writes(&mut start);
    let new = stop(start);
    for further_starts in [0, 1, 8] {
        let mut start = case.older_serve(&old);
        for _ in 0..further_starts {
            start = served(stop(start));
        }
        let image = &new.images[2];
        let member = case.arrive(&mut start, image);
        let error = order(&mut start, Command::Add(member)).expect_err("it has newer writes");
        OtherHistory::of(error);
        let now = start.session.world.disk(member).live();
        assert_eq!(now.digest(), image.digest(), "nothing was written to it");
        // A start of both takes neither for stale.
        let mut both = without(&old, &[1]);
        both.images[0] = stop(start).images.swap_remove(0);
        both.images[2] = image.clone();
        let refused = Start::ask(&case.pair, both, FROM_MINORITY).go_on();
        assert!(
            matches!(refused, Err(CommandError::Split(..))),
            "{refused:?}"
        );
    }
}

#[test]
fn a_newer_half_that_is_overwritten_is_found() {
    let mut case = cases().swap_remove(0);
    let rest = case.parted();
    case.pair.bug = Some(restripe_array::Bug::NewerOverwritten);
    let mut start = case.older_serve(&rest);
    let member = case.arrive(&mut start, &rest.images[case.newer[0]]);
    assert_eq!(order(&mut start, Command::Add(member)), Ok(()));
}
