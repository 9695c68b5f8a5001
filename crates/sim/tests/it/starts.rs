//! Starts of an array with a code cache and a buffer, each with one fault at a chosen step: what users flushed is there after it, or the
//! start is refused and it is there once the fault is gone.

use crate::sets::{ACCEPTING, FROM_MINORITY, PAGE, PLAIN, Pair, RECORDS, Start, spoil};
use restripe_array::meta::RegionKind;
use restripe_array::{CommandError, DeviceIo, Fact, IoOp, Member};
use restripe_sim::array::superblock_of;
use restripe_sim::fault::Fault;
use restripe_sim::image::Image;
use restripe_sim::oracle::WriteKind;
use restripe_sim::payload::Payload;
use restripe_sim::session::PATIENCE;
use restripe_tier::overlay::format::slot::HALF_SECTORS;
use std::ops::Range;

/// Where a member's data lie.
fn data_of(image: &Image) -> Range<u64> {
    let superblock = superblock_of(image).expect("a member");
    let data = |region: &&restripe_array::meta::Region| region.kind == RegionKind::Data;
    let region = superblock.regions.iter().find(data);
    let region = region.expect("every member has data");
    region.start..region.start + region.sectors
}

/// Where the newest version begins on a member of a buffer: of the last record, by its sequence and version.
fn newest_version(image: &Image) -> u64 {
    let data = data_of(image).start;
    let number = |page: &[u8], at: usize, length: usize| {
        let mut bytes = [0; 8];
        bytes[..length].copy_from_slice(&page[at..at + length]);
        u64::from_le_bytes(bytes)
    };
    let halves = (0..2 * RECORDS).map(|half| data + half * HALF_SECTORS);
    let versions = halves.filter_map(|at| {
        let mut page = [0; 4096];
        image.read_data(at, PAGE, &mut page);
        let is_one = page.starts_with(b"RstrpBuf");
        is_one.then(|| ((number(&page, 40, 8), number(&page, 72, 4)), at))
    });
    versions.max().expect("the buffer has records").1
}

fn is_half_read(io: &DeviceIo) -> bool {
    io.op == IoOp::Read && io.sectors == HALF_SECTORS
}

const LOG: usize = 1;
const BUFFER: usize = 2;

fn is_of_buffer(error: &CommandError) -> bool {
    matches!(
        error,
        CommandError::OfBuffer(_) | CommandError::BufferMissing
    )
}

/// Space ends on all members of the log, or of the buffer, at any step of a start, and nothing is given up though losses are accepted.
#[test]
fn a_start_whose_space_ends_midway_loses_nothing() {
    let pair = Pair::buffered();
    let rest = pair.written(14);
    pair.has_all(&rest, PLAIN, "without a fault");
    for set in [LOG, BUFFER] {
        let (mut refused, mut served) = (0, 0);
        for steps in 0.. {
            let mut start = Start::ask(&pair, rest.clone(), ACCEPTING);
            let ended = (0..steps).any(|_| !start.step());
            start.inject(pair.members(set), Fault::Full { flushes: false });
            let what = format!("no space for set {set} after {steps} steps");
            match start.go_on() {
                Ok(()) => served += 1,
                Err(CommandError::OfSurrogate(why) | CommandError::OfBuffer(why)) => {
                    assert_eq!(*why, CommandError::NoSpace, "{what}");
                    refused += 1;
                }
                other => panic!("{what}: {other:?}"),
            }
            assert_eq!(start.forgone(), 0, "{what}");
            pair.has_all(&start.power_goes(), PLAIN, &what);
            if ended {
                break;
            }
        }
        assert!(refused > 20 && served > 0, "{refused} {served}");
    }
}

/// Of the newest version one copy holds other bytes, and the other cannot be read from any step of the start on.
#[test]
fn a_copy_that_cannot_be_read_beside_a_wrong_one_is_missed() {
    let pair = Pair::buffered();
    let mut rest = pair.written(14);
    for wrong in pair.members(BUFFER) {
        let other = pair.members(BUFFER).find(|member| *member != wrong);
        let other = other.expect("a mirror has two");
        let at = newest_version(&rest.images[wrong]);
        let sound = rest.images[wrong].clone();
        spoil(&mut rest.images[wrong], at);
        let (mut refused, mut served) = (0, 0);
        for steps in 0.. {
            let mut start = Start::ask(&pair, rest.clone(), PLAIN);
            let ended = (0..steps).any(|_| !start.step());
            let sectors = HALF_SECTORS;
            start.inject(other..other + 1, Fault::Latent { at, sectors });
            let what = format!("member {other} not read from step {steps} on");
            match start.go_on() {
                Ok(()) => {
                    start.reads_all(&what);
                    served += 1;
                }
                Err(error) => {
                    assert!(is_of_buffer(&error), "{what}: {error:?}");
                    refused += 1;
                }
            }
            pair.has_all(&start.power_goes(), PLAIN, &what);
            if ended {
                break;
            }
        }
        assert!(refused > 20 && served > 20, "{refused} {served}");
        let mut start = Start::ask(&pair, rest.clone(), ACCEPTING);
        let sectors = HALF_SECTORS;
        start.inject(other..other + 1, Fault::Latent { at, sectors });
        assert_eq!((start.go_on(), start.forgone()), (Ok(()), 1));
        rest.images[wrong] = sound;
    }
}

/// The good copy errs just while the wrong one is being written again: what was found counts.
#[test]
fn a_version_that_cannot_be_written_again_stays_found() {
    let pair = Pair::buffered();
    let mut rest = pair.written(14);
    let wrong = pair.members(BUFFER).start;
    let good = wrong + 1;
    let at = newest_version(&rest.images[wrong]);
    spoil(&mut rest.images[wrong], at);
    let mut start = Start::ask(&pair, rest, PLAIN);
    let reads = |io: &DeviceIo| usize::from(io.member.0) == good && is_half_read(io) && io.at == at;
    assert!(start.until(reads), "it is read without the wrong one");
    assert!(
        start.until_next(reads),
        "and once more, to write that again"
    );
    let sectors = HALF_SECTORS;
    start.inject(good..good + 1, Fault::Latent { at, sectors });
    assert!(start.until(|io| is_half_read(io) && io.at != at));
    let good = Member(good as u16);
    start.session.world.disk_mut(good).faults.mend_reads();
    assert_eq!(start.go_on(), Ok(()));
    start.reads_all("the good copy erred once");
}

/// A record was whole when the buffer was looked through, and in no copy any more when it is to go into the log.
#[test]
fn a_record_that_is_gone_when_it_is_moved_is_not_dropped_in_silence() {
    let pair = Pair::buffered();
    let rest = pair.written(14);
    let at = newest_version(&rest.images[pair.members(BUFFER).start]);
    let (log, buffer) = (pair.members(LOG), pair.members(BUFFER));
    let data = data_of(&rest.images[log.start]);
    let of = |set: &Range<usize>, io: &DeviceIo| set.contains(&usize::from(io.member.0));
    for mode in [PLAIN, ACCEPTING] {
        let mut start = Start::ask(&pair, rest.clone(), mode);
        // The log is read behind the buffer.
        assert!(start.until(|io| of(&buffer, io) && is_half_read(io)));
        assert!(start.until(|io| of(&log, io) && io.op == IoOp::Read && data.contains(&io.at)));
        for member in pair.members(BUFFER) {
            start.spoil(member, at);
        }
        let unread = CommandError::OfBuffer(Box::new(CommandError::Metadata));
        let (result, forgone) = match mode.accept_loss {
            true => (Ok(()), 1),
            false => (Err(unread), 0),
        };
        assert_eq!((start.go_on(), start.forgone()), (result, forgone));
    }
}

/// What no copy gives is given up once losses are accepted, and told once, however much that is.
#[test]
fn what_a_buffer_does_not_give_is_told() {
    let pair = Pair::buffered();
    let rest = pair.written(14);
    let data = data_of(&rest.images[pair.members(BUFFER).start]).start;
    let latent = Fault::Latent {
        at: data,
        sectors: 2 * RECORDS * HALF_SECTORS,
    };
    let mut start = Start::ask(&pair, rest.clone(), PLAIN);
    start.inject(pair.members(BUFFER), latent);
    let error = start.go_on().expect_err("nobody has what was flushed");
    assert!(is_of_buffer(&error), "{error:?}");
    pair.has_all(&start.power_goes(), PLAIN, "after a refusal");
    let mut start = Start::ask(&pair, rest, ACCEPTING);
    start.inject(pair.members(BUFFER), latent);
    assert_eq!((start.go_on(), start.forgone()), (Ok(()), 1));
}

/// Halves that nobody ever wrote are no reason to refuse a start with one member of the buffer.
#[test]
fn a_buffer_of_one_member_starts() {
    let pair = Pair::buffered();
    for writes in [1, 14] {
        for gone in pair.members(BUFFER) {
            let mut rest = pair.written(writes);
            let blank = Image::new(Payload::Bytes, rest.images[gone].sectors());
            rest.images[gone] = blank;
            pair.has_all(&rest, FROM_MINORITY, "one member of the buffer");
        }
    }
}

/// Home's own losses are asked about and accepted, whatever a log lacks that nothing lies in.
#[test]
fn losses_of_home_are_not_refused_for_a_log_that_does_not_count() {
    let pair = Pair::redundant();
    let mut start = Start::ask(&pair, pair.created(), PLAIN);
    assert_eq!(start.go_on(), Ok(()));
    start.session.write(0, 16, WriteKind::Data, false, false);
    assert!(start.session.settle(PATIENCE));
    let mut rest = start.power_goes();
    for member in [0, pair.members(LOG).start] {
        rest.images[member] = Image::new(Payload::Bytes, rest.images[member].sectors());
    }
    let error = Start::ask(&pair, rest.clone(), PLAIN).go_on();
    assert!(
        matches!(error, Err(CommandError::WouldLose { .. })),
        "{error:?}"
    );
    let mut start = Start::ask(&pair, rest, ACCEPTING);
    assert_eq!(start.go_on(), Ok(()));
    let lost = |fact: &Fact| matches!(fact, Fact::Lost { .. });
    assert!(start.facts.iter().any(lost), "{:?}", start.facts);
}
