//! Copies of a member that were made while the array served, in the place of the member after it failed. A copy has the
//! superblock under which the member left, or an older one. Whatever it is, a rebuild gives it all that was flushed. And
//! a member that is the same as when it failed gets back what it missed, and not much more.

use crate::sets::{PLAIN, Pair, Rest, Start, order, set};
use restripe_array::layout::{Level, Rotation};
use restripe_array::meta::{ArrayOwner, Init, RegionKind, WriteHole};
use restripe_array::report::{ArrayState, MemberState};
use restripe_array::{Bug, Command, Member, Nanos, StartMode, Uuid};
use restripe_sim::array::superblock_of;
use restripe_sim::image::Image;
use restripe_sim::oracle::WriteKind;
use restripe_sim::payload::Payload;
use restripe_sim::session::PATIENCE;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The member that is copied, and fails.
const MEMBER: usize = 1;
/// Sectors of a chunk, and rows of the array.
pub const CHUNK: u64 = 16;
const ROWS: u64 = 16;

/// A run that records itself, as a daemon does whose members are locked.
const OWNED: StartMode = StartMode {
    owner: Some(ArrayOwner {
        run: Uuid([7; 16]),
        host: Uuid([8; 16]),
        started: 9,
        process: 10,
        namespace: 11,
        interval_ms: 0,
    }),
    ..PLAIN
};

/// Every level with redundancy and every way to find interrupted writes, each row with a bit of its own in the maps.
fn arrays() -> Vec<Pair> {
    use WriteHole::{Bitmap, None, Ppl};
    let rotation = Rotation::default();
    let kinds: [(Level, u16, &[WriteHole]); 6] = [
        (Level::Raid1, 2, &[Bitmap, None]),
        (Level::Raid4, 3, &[Ppl]),
        (Level::Raid5(rotation), 3, &[Ppl, Bitmap, None]),
        (Level::Raid6(rotation), 4, &[Ppl, Bitmap]),
        (Level::Raid10 { copies: 2 }, 4, &[Bitmap]),
        (Level::ReedSolomon { parities: 3 }, 5, &[Bitmap]),
    ];
    let holes = kinds.into_iter().flat_map(|(level, slots, holes)| {
        let made = move |hole: &WriteHole| {
            [Init::Zero, Init::Written].map(|init| array(level, slots, *hole, init))
        };
        holes.iter().flat_map(made)
    });
    holes.collect()
}

fn array(level: Level, slots: u16, write_hole: WriteHole, init: Init) -> Pair {
    let mut pair = Pair::single(level, slots);
    let spec = &mut pair.specs[0];
    *spec = restripe_sim::array::Spec {
        write_hole,
        init,
        intent_rows: Some(1),
        extent_rows: Some(2),
        ..set(level, slots, 0)
    };
    assert_eq!((u64::from(spec.chunk_sectors), spec.chunks), (CHUNK, ROWS));
    pair
}

fn raid5(write_hole: WriteHole) -> Pair {
    array(
        Level::Raid5(Rotation::default()),
        3,
        write_hole,
        Init::Written,
    )
}

pub fn served(pair: &Pair, rest: Rest, mode: StartMode) -> Start {
    let mut start = Start::ask(pair, rest, mode);
    assert_eq!(start.go_on(), Ok(()));
    start
}

pub fn settle(start: &mut Start) {
    start.session.settle(PATIENCE);
    assert_eq!(start.session.violations().next(), None);
}

/// Some sectors of each of these chunks of the array.
pub fn write(start: &mut Start, chunks: impl Iterator<Item = u64>) {
    for chunk in chunks {
        let at = chunk * CHUNK + 3;
        while !start.session.world.ready() {
            start.session.step();
        }
        start.session.write(at, 9, WriteKind::Data, false, false);
    }
}

pub fn flush(start: &mut Start) {
    start.session.flush();
    settle(start);
}

pub fn pass(start: &mut Start, time: Nanos) {
    let until = start.session.world.now().after(time);
    start.session.world.mark(until, 1);
    while start.session.world.now() < until {
        start.session.step();
        while start.session.news().is_some() {}
    }
    settle(start);
}

fn live(start: &Start) -> Image {
    live_of(start, MEMBER as u16)
}

pub fn live_of(start: &Start, member: u16) -> Image {
    start.session.world.disk(Member(member)).live().clone()
}

pub fn version(image: &Image) -> u64 {
    superblock_of(image).map_or(0, |found| found.sequence)
}

/// An array after its stop, or after a crash, with the member failed; and copies of the member from before it failed.
struct Left {
    copies: Vec<Image>,
    stopped: Rest,
    crashed: Vec<Rest>,
}

/// The member is copied after each step while users write, before it fails and others go on without it.
fn left(pair: &Pair) -> Left {
    let mut start = served(pair, pair.created(), PLAIN);
    write(&mut start, (0..ROWS).step_by(2));
    settle(&mut start);
    flush(&mut start);
    let (mut seen, mut copies) = (BTreeSet::new(), Vec::new());
    write(&mut start, (0..ROWS).step_by(3));
    for flushes in [false, true] {
        if flushes {
            start.session.flush();
        }
        while !start.session.world.quiescent() {
            let copy = live(&start);
            if seen.insert(copy.digest()) {
                copies.push(copy);
            }
            start.session.step();
        }
    }
    let crashed = fail(&mut start);
    write(&mut start, 5..7);
    settle(&mut start);
    flush(&mut start);
    assert_eq!(order(&mut start, Command::Stop), Ok(()));
    Left {
        copies,
        stopped: start.power_goes(),
        crashed,
    }
}

/// The member fails; what power leaves that goes at each step of that, if it is on record by then.
fn fail(start: &mut Start) -> Vec<Rest> {
    start.session.command(Command::Fail(Member(MEMBER as u16)));
    let mut crashed = Vec::new();
    loop {
        let site = start.session.world.site();
        let mut oracle = start.session.oracle.clone();
        oracle.crash();
        let images = site.images(&site.nothing());
        let others = images
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != MEMBER);
        let on_record = others
            .filter_map(|(_, image)| superblock_of(image))
            .any(|found| {
                let role = found.members[MEMBER].role;
                role != restripe_array::meta::MemberRole::Active
            });
        if on_record {
            crashed.push(Rest { images, oracle });
        }
        if start.session.world.quiescent() {
            return crashed;
        }
        start.session.step();
    }
}

/// Starts without the member and takes the device in. Then the first member fails.
fn comes_back(pair: &Pair, rest: &Rest, copy: &Image) {
    let mut rest = rest.clone();
    rest.images[MEMBER] = copy.clone();
    let mut start = served(pair, rest, PLAIN);
    let taken = order(&mut start, Command::Add(Member(MEMBER as u16)));
    assert_eq!(taken, Ok(()));
    is_whole(&mut start);
}

fn is_whole(start: &mut Start) {
    is_whole_but(start, MEMBER as u16);
}

/// All is there, also without another member than the one that came back.
pub fn is_whole_but(start: &mut Start, member: u16) {
    settle(start);
    let status = start.session.world.status();
    assert_eq!(status.state, ArrayState::Healthy);
    start.reads_all("with the device");
    let mut others = status.members.iter().filter(|one| one.member.0 != member);
    let other = others.find(|one| one.state == MemberState::Active);
    let other = other.expect("one that serves").member;
    assert_eq!(order(start, Command::Fail(other)), Ok(()));
    settle(start);
    start.reads_all("with the device instead of another member");
}

#[test]
fn a_copy_in_the_place_of_a_failed_member_is_rebuilt() {
    for pair in arrays() {
        let left = left(&pair);
        let many = left.copies.len() > 3 && !left.crashed.is_empty();
        let kind = (&pair.specs[0].level, pair.specs[0].write_hole);
        assert!(many, "{kind:?}: {} copies", left.copies.len());
        for copy in &left.copies {
            comes_back(&pair, &left.stopped, copy);
        }
        // The oldest, and others at intervals. Without a log such a crash costs data, and the start says so.
        let logged = pair.specs[0].write_hole == WriteHole::Ppl;
        let mirrored = pair.specs[0].level.mirrors();
        for rest in left.crashed.iter().filter(|_| logged || mirrored) {
            for copy in left.copies.iter().step_by(7) {
                comes_back(&pair, rest, copy);
            }
        }
    }
}

/// The sweep above finds a member that is owed only what it missed.
#[test]
fn a_member_that_is_owed_only_what_it_missed_is_found() {
    let mut pair = raid5(WriteHole::Ppl);
    pair.bug = Some(Bug::CopyNotOwed);
    let left = left(&pair);
    let stays = |copy: &&Image| {
        let returns = || comes_back(&pair, &left.stopped, copy);
        catch_unwind(AssertUnwindSafe(returns)).is_ok()
    };
    assert!(left.copies.iter().filter(stays).count() < left.copies.len());
}

/// The device is overwritten while its member has failed. The array still has it open when it is added.
#[test]
fn a_device_that_was_overwritten_while_it_was_out_is_rebuilt() {
    let pair = raid5(WriteHole::Ppl);
    let left = left(&pair);
    let sectors = left.copies[0].sectors();
    let blank = Image::new(Payload::Bytes, sectors);
    let older = pair.created().images.swap_remove(MEMBER);
    for content in [&blank, &older, &left.copies[0]] {
        let mut start = served(&pair, pair.created(), PLAIN);
        write(&mut start, (0..ROWS).step_by(2));
        settle(&mut start);
        flush(&mut start);
        assert_eq!(order(&mut start, Command::Fail(Member(1))), Ok(()));
        settle(&mut start);
        let disk = start.session.world.disk_mut(Member(1));
        disk.meddle(|image| *image = content.clone());
        assert_eq!(order(&mut start, Command::Add(Member(1))), Ok(()));
        is_whole(&mut start);
    }
}

/// Rows of the member that a rebuild writes, if something changed all of them behind its back.
fn rows_rebuilt(pair: &Pair, mut rest: Rest) -> u64 {
    let found = superblock_of(&rest.images[MEMBER]).expect("it was a member");
    let data = found
        .region(RegionKind::Data)
        .expect("it has set data")
        .start;
    let at = |row: u64| data + row * CHUNK + CHUNK - 1;
    let mut sector = [0; 512];
    for row in 0..ROWS {
        let image = &mut rest.images[MEMBER];
        image.read_data(at(row), 1, &mut sector);
        sector[17] ^= 0x55;
        image.write_data(at(row), 1, &sector);
    }
    let spoiled = rest.images[MEMBER].clone();
    let mut start = served(pair, rest, PLAIN);
    assert_eq!(order(&mut start, Command::Add(Member(1))), Ok(()));
    settle(&mut start);
    assert_eq!(start.session.world.status().state, ArrayState::Healthy);
    let now = live(&start);
    let changed = |row: &u64| {
        let (mut before, mut after) = ([0; 512], [0; 512]);
        spoiled.read_data(at(*row), 1, &mut before);
        now.read_data(at(*row), 1, &mut after);
        before != after
    };
    (0..ROWS).filter(changed).count() as u64
}

/// Users write everywhere, this time passes, and the member fails for a moment in which users write one row.
fn glitch(pair: &Pair, mode: StartMode, time: Nanos) -> Rest {
    let mut start = served(pair, pair.created(), mode);
    write(&mut start, 0..2 * ROWS);
    settle(&mut start);
    pass(&mut start, time);
    assert_eq!(order(&mut start, Command::Fail(Member(1))), Ok(()));
    settle(&mut start);
    write(&mut start, 8..9);
    settle(&mut start);
    assert_eq!(order(&mut start, Command::Stop), Ok(()));
    start.power_goes()
}

#[test]
fn a_member_that_comes_back_gets_what_it_missed_and_what_was_written_lately() {
    let moments = [
        (Nanos(0), ROWS),
        (Nanos::from_secs(50), ROWS),
        (Nanos::from_secs(150), 1),
    ];
    for write_hole in [WriteHole::Ppl, WriteHole::Bitmap] {
        let pair = raid5(write_hole);
        for (time, rows) in moments {
            let rest = glitch(&pair, OWNED, time);
            assert_eq!(rows_rebuilt(&pair, rest), rows, "{write_hole:?} {time:?}");
        }
        let rest = glitch(&pair, PLAIN, Nanos::from_secs(150));
        assert_eq!(rows_rebuilt(&pair, rest), ROWS, "no version was written");
    }
}

/// Two versions cover what was written, and nothing is written after them.
#[test]
fn an_idle_array_writes_no_versions() {
    let pair = raid5(WriteHole::Ppl);
    let mut start = served(&pair, pair.created(), OWNED);
    settle(&mut start);
    let versions = |start: &mut Start| {
        let before = version(&live(start));
        pass(start, Nanos::from_secs(1000));
        version(&live(start)) - before
    };
    assert_eq!(versions(&mut start), 0);
    write(&mut start, 0..1);
    assert_eq!(versions(&mut start), 2);
    assert_eq!(versions(&mut start), 0);
}
