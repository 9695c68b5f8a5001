//! Mirrors after a crash: copies may differ until they are resynchronised, and no read shows a value that a lost copy takes
//! back.

use crate::shell::{Array, CHUNK, Setup, raid1};
use restripe_array::layout::Level;
use restripe_array::meta::WriteHole;
use restripe_array::{Command, RequestOp, StartMode};

/// Every layout of copies, small.
fn mirrors() -> Vec<Setup> {
    let raid10 = |copies, slots| Setup::new(Level::Raid10 { copies }, slots);
    let plain = [raid1(2), raid1(3), raid10(2, 3), raid10(2, 4), raid10(3, 4)];
    let holes = [WriteHole::Bitmap, WriteHole::None];
    let with = |setup: Setup| holes.map(|hole| setup.clone().hole(hole));
    plain.into_iter().flat_map(with).collect()
}

/// Where the copies of a sector lie: member and sector.
fn copies_of(array: &Array, lba: u64) -> Vec<(u16, u64)> {
    let spot = array.layout.place(lba);
    let map = array.layout.row(spot.row);
    let start = array.data_start() + spot.offset;
    let copies = map.copies_of(spot.data);
    let place = |cell: u8| {
        let cell = map.cells[usize::from(cell)];
        (cell.slot.0, start + cell.at)
    };
    copies.iter().map(place).collect()
}

/// What the copies of a sector hold, as they would be read.
fn contents(array: &Array, lba: u64) -> Vec<Vec<u8>> {
    let sector = |(member, at): (u16, u64)| {
        let image = &array.disks[usize::from(member)].image;
        image[at as usize * 512..][..512].to_vec()
    };
    copies_of(array, lba).into_iter().map(sector).collect()
}

/// A write of eight sectors reached one copy when power went; the array serves again, and nothing is resynchronised yet.
fn torn(setup: Setup, lba: u64, reached: usize) -> Array {
    let mut array = setup.start();
    array.written(0, 4 * CHUNK).expect("written");
    array.flushed();
    array.write(lba, 8);
    array.run();
    let (member, _) = copies_of(&array, lba)[reached];
    let label = format!("m{member} data");
    array.crash(|place| place.starts_with(&label));
    let start = array.order(Command::Start(Default::default()));
    array.run_but(" data");
    assert_eq!(array.answer(start), Some(Ok(())));
    array
}

/// Ends reads before writes until a request is answered.
fn answer(array: &mut Array, tag: u64) {
    while array.reply(tag).is_none() {
        let reads = |label: &&str| label.contains(" read ");
        let first = array.labels().iter().position(reads);
        array.end_as(first.unwrap_or(0), Ok(()));
        array.turn();
    }
    assert_eq!(array.reply(tag), Some(Ok(())));
}

/// Whether a copy of the first sector differs from what a read after a crash has shown of it.
pub fn is_shown_apart(setup: Setup) -> bool {
    let mut array = torn(setup, 0, 1);
    let read = array.request(RequestOp::Read, 0, 8);
    answer(&mut array, read);
    let shown = array.bytes_read(read)[..512].to_vec();
    contents(&array, 0).into_iter().any(|copy| copy != shown)
}

#[test]
fn copies_agree_before_a_read_between_a_crash_and_the_resync_is_answered() {
    for setup in mirrors() {
        for lba in [0, CHUNK, 3 * CHUNK + 4] {
            for reached in 0..copies_of(&setup.clone().made(), lba).len() {
                let mut array = torn(setup.clone(), lba, reached);
                let read = array.request(RequestOp::Read, lba, 8);
                answer(&mut array, read);
                let shown = array.bytes_read(read).to_vec();
                for sector in 0..8 {
                    let shown = &shown[sector as usize * 512..][..512];
                    for copy in contents(&array, lba + sector) {
                        assert!(copy == shown, "{lba}, {reached}: a copy differs");
                    }
                }
            }
        }
    }
}

/// What was shown stays: whichever copy is lost then, and through a power cut behind a flush.
#[test]
fn a_value_that_was_read_after_a_crash_survives_the_loss_of_any_copy() {
    for (setup, cut) in mirrors()
        .into_iter()
        .flat_map(|one| [(one.clone(), false), (one, true)])
    {
        let copies = copies_of(&setup.clone().made(), 0).len();
        for (reached, lost) in (0..copies).flat_map(|one| (0..copies).map(move |two| (one, two))) {
            let mut array = torn(setup.clone(), 0, reached);
            let read = array.request(RequestOp::Read, 0, 8);
            answer(&mut array, read);
            let shown = array.bytes_read(read).to_vec();
            let (member, _) = copies_of(&array, 0)[lost];
            if cut {
                array.flushed();
                array.crash_without(&[member.into()], |_| false);
                let mode = StartMode {
                    from_minority: true,
                    ..StartMode::default()
                };
                let started = array.command(Command::Start(mode));
                started.expect("redundancy is left");
            } else {
                array.depart(member);
            }
            assert!(
                array.read(0, 8).expect("redundancy is left") == shown,
                "{reached}, {lost}"
            );
        }
    }
}

/// Unaligned reads and long ones as well, and none waits where copies are in sync.
#[test]
fn reads_of_every_shape_wait_for_the_rows_that_they_touch_and_for_no_others() {
    for setup in mirrors() {
        let mut array = torn(setup, 2 * CHUNK, 0);
        let size = array.layout.size_sectors();
        for (lba, sectors) in [
            (2 * CHUNK + 3, 1),
            (0, 4 * CHUNK),
            (2 * CHUNK, CHUNK),
            (0, size),
        ] {
            let read = array.request(RequestOp::Read, lba, sectors);
            answer(&mut array, read);
            for at in (lba..lba + sectors).filter(|at| *at < 4 * CHUNK) {
                let held = contents(&array, at);
                assert!(
                    held.iter().all(|copy| *copy == held[0]),
                    "{at}: a copy differs"
                );
            }
        }
        array.run_tasks();
        let read = array.request(RequestOp::Read, 2 * CHUNK, 8);
        let asked = array.labels().len();
        assert_eq!(asked, 1, "one read of one copy: {:?}", array.labels());
        answer(&mut array, read);
    }
}

/// A copy that cannot be read does not stop it, nor does a member that fails meanwhile.
#[test]
fn a_read_of_copies_out_of_sync_survives_what_happens_meanwhile() {
    for setup in mirrors() {
        for what in 0..3 {
            let mut array = torn(setup.clone(), 0, 0);
            let (member, at) = copies_of(&array, 0)[0];
            if what == 0 {
                array.spoil(member, at + 2, 1);
            }
            let read = array.request(RequestOp::Read, 0, 8);
            if what == 1 {
                array.depart(member);
            }
            if what == 2 {
                let stop = array.order(Command::Stop);
                array.run();
                assert_eq!(array.answer(stop), Some(Ok(())));
                assert!(
                    array.reply(read).is_some(),
                    "an end leaves no request behind"
                );
                continue;
            }
            answer(&mut array, read);
            let shown = array.bytes_read(read).to_vec();
            array.run_tasks();
            assert!(array.read(0, 8) == Ok(shown));
        }
    }
}

/// A read-only start writes nothing: it reads one and the same copy.
#[test]
fn a_read_only_start_reads_one_and_the_same_copy() {
    let mut array = torn(raid1(3), 0, 1);
    array.crash(|_| false);
    let mode = StartMode {
        read_only: true,
        ..StartMode::default()
    };
    array.command(Command::Start(mode)).expect("starts");
    let first = array.read(0, 8).expect("readable");
    for _ in 0..4 {
        assert!(array.read(0, 8) == Ok(first.clone()));
    }
}
