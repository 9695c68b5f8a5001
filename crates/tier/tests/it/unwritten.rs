//! Space never written: zeros for nothing, made real by the first write.

use crate::shell::{CHUNK, raid1, raid5};
use restripe_array::meta::WriteHole;
use restripe_array::{Command, Fact, RequestError, RequestOp, StartMode};

#[test]
fn unwritten_space_reads_as_zeros_without_io() {
    let mut array = raid5(4).unwritten().start();
    let read = array.request(RequestOp::Read, 0, 40);
    array.expect(&["reply Ok(())"]);
    assert_eq!(array.reply(read), Some(Ok(())));
    array.verify();
}

#[test]
fn the_first_write_zeroes_then_marks_then_writes() {
    let mut array = raid5(4).unwritten().start();
    let write = array.write(0, 8);
    assert_eq!(array.labels().len(), 4, "{:?}", array.labels());
    assert!(
        array
            .held
            .iter()
            .all(|held| held.label.contains("zero data+0 32 durable"))
    );
    array.run_only("zero");
    assert_eq!(array.labels().len(), 4, "{:?}", array.labels());
    assert!(
        array
            .held
            .iter()
            .all(|held| held.label.contains("write written+"))
    );
    array.complete("m0 write written");
    assert!(!array.mentions("data+") && !array.mentions("log+"));
    array.run();
    assert_eq!(array.reply(write), Some(Ok(())));
    array.verify();
    array.consistent();
}

#[test]
fn the_last_zero_holds_the_mark() {
    let mut array = raid5(4).unwritten().start();
    array.write(0, 8);
    array.run_but("m2 zero");
    assert_eq!(array.labels(), ["m2 zero data+0 32 durable"]);
}

#[test]
fn a_second_write_to_an_extent_zeroes_nothing() {
    let mut array = raid5(4).unwritten().start();
    array.written(0, 8).expect("written");
    array.write(16, 8);
    assert!(!array.mentions("zero") && !array.mentions("write written"));
}

#[test]
fn writers_of_one_extent_share_its_making() {
    let mut array = raid5(4).unwritten().start();
    array.write(0, 8);
    array.write(48, 8);
    assert_eq!(
        array.labels().iter().filter(|l| l.contains("zero")).count(),
        4
    );
    array.run();
    array.verify();
}

#[test]
fn old_dirt_never_shows_through() {
    let mut array = raid5(4).unwritten().start();
    let start = array.data_start();
    for member in 0..4 {
        (0..4 * CHUNK).for_each(|sector| array.corrupt(member, start + sector));
    }
    array.written(3, 2).expect("written");
    array.verify();
    array.consistent();
}

#[test]
fn a_crash_before_the_mark_leaves_the_extent_unwritten() {
    let mut array = raid5(4).unwritten().start();
    array.write(0, 8);
    array.run_but("written+");
    array.model.fill(0);
    array.crash(|_| true);
    array.start().expect("starts");
    array.verify();
}

/// The map of intents is coarser than that of what is written, and the task has not come to the extent yet.
#[test]
fn an_extent_made_real_owes_a_resynchronisation_nothing() {
    let mut setup = raid5(4).unwritten().hole(WriteHole::Bitmap);
    setup.rows = 64;
    setup.options.intent_rows = Some(64);
    let mut array = setup.info(|info| info.sectors = 4096).start();
    let row = array.layout.row_sectors();
    array.written(0, 60 * row).expect("written");
    array.write(0, 8);
    array.crash_without(&[0], |_| true);
    let start = array.order(Command::Start(StartMode {
        accept_loss: true,
        ..StartMode::default()
    }));
    while array.answer(start).is_none() {
        array.end_first(Ok(()));
    }
    let last = 62 * row;
    let write = array.write(last + 16, 8);
    array.run_but("read data+0 ");
    assert_eq!(array.reply(write), Some(Ok(())));
    array.run_tasks();
    let lost = |fact: &Fact| matches!(fact, Fact::Lost { lba, .. } if *lba >= last);
    assert!(!array.has_fact(lost), "zeros were there to be had");
    array.read(last, 2 * row).expect("nothing of it is lost");
}

#[test]
fn trim_of_unwritten_space_does_nothing() {
    let mut array = raid5(4).unwritten().start();
    array.request(RequestOp::Trim, 0, 96);
    array.expect(&["reply Ok(())"]);
}

#[test]
fn zeroing_unwritten_space_does_nothing() {
    let mut array = raid5(4).unwritten().start();
    array.request(RequestOp::WriteZeroes { fast: false }, 0, 96);
    array.request(RequestOp::WriteZeroes { fast: true }, 0, 96);
    array.expect(&["reply Ok(())", "reply Ok(())"]);
}

#[test]
fn a_fast_zero_is_refused_where_it_would_be_slow() {
    let mut array = raid5(4).info(|info| info.fast_zero = false).start();
    let zero = array.request(RequestOp::WriteZeroes { fast: true }, 0, 48);
    assert_eq!(array.reply(zero), Some(Err(RequestError::NotFast)));
    array.expect(&["reply Err(NotFast)"]);
}

#[test]
fn a_slow_zero_is_done_however_long_it_takes() {
    for fast_zero in [false, true] {
        let mut array = raid5(4).info(|info| info.fast_zero = fast_zero).start();
        array.written(0, 96).expect("written");
        for (lba, sectors) in [(0, 48), (50, 7)] {
            let zero = array.request(RequestOp::WriteZeroes { fast: false }, lba, sectors);
            array.run();
            assert_eq!(array.reply(zero), Some(Ok(())));
        }
        array.verify();
        array.consistent();
    }
}

#[test]
fn a_trimmed_row_reads_as_zeros_where_members_promise_it() {
    let mut array = raid1(2).start();
    array.written(0, 32).expect("written");
    array.request(RequestOp::Trim, 0, 16);
    array.run();
    array.consistent();
}

#[test]
fn first_write_golden() {
    let mut array = raid5(3).unwritten().start();
    array.note("the first write");
    array.write(0, 8);
    array.note("zeros are durable");
    array.run_only("zero");
    array.note("the mark is durable");
    array.run_only("written");
    array.run();
    array.golden("first_write");
}

#[test]
fn beyond_its_tolerance_an_array_makes_no_extent_real() {
    let mut array = raid5(4).unwritten().start();
    array.depart(1);
    array.depart(2);
    array.run();
    assert_eq!(array.written(0, 8), Err(RequestError::ReadOnly));
    let zeros = array
        .read(CHUNK, 8)
        .expect("never written, and so not lost");
    assert!(zeros.iter().all(|byte| *byte == 0));
}
