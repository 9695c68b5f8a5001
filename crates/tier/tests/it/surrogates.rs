//! Starting an array whose surrogate is not here: refused while the surrogate alone has current copies.

use crate::shell::{Array, CHUNK, Setup, raid1, raid5};
use restripe_array::meta::{
    MapKind, Partner, PartnerRole, RegionKind, Superblock, pages, superblock,
};
use restripe_array::{
    Command, CommandError, Fact, PAGE_BYTES, RequestError, StartMode, Uuid, zeroed_page,
};

/// Sectors of the array for each bit of the map: two rows of three chunks.
const SHARE: u64 = 2 * 3 * CHUNK;
const OTHER: Uuid = Uuid([9; 16]);

fn partner(role: PartnerRole) -> Partner {
    Partner {
        role,
        array: OTHER,
        epoch: 4,
        session: 0,
    }
}

/// RAID-5 on four, with a surrogate that held these bits' rows when it was last seen. Its data are zeros, and old.
fn redirected(bits: u64) -> Array {
    let mut array = with_surrogate(raid5(4)).made();
    mark(&mut array, &[bits]);
    array
}

fn with_surrogate(mut setup: Setup) -> Setup {
    setup.options.partner = Some(partner(PartnerRole::Main));
    setup
}

fn region(array: &Array, kind: RegionKind) -> u64 {
    let found = array.regions.iter().find(|region| region.kind == kind);
    found.expect("every array has it").start
}

/// Sets the map's first words on every member, as an engine did that redirected.
fn mark(array: &mut Array, words: &[u64]) {
    let start = region(array, RegionKind::Redirected);
    let sequence = 1 << 20;
    let mut page = zeroed_page();
    let kind = MapKind::Redirected;
    pages::encode_bits(kind, Uuid([7; 16]), 0, sequence, words, &mut page);
    for disk in &mut array.disks {
        disk.forge(pages::home(start, 0, sequence), &page[..]);
    }
}

fn page_at(array: &Array, member: usize, at: u64) -> restripe_array::Page {
    let mut page = zeroed_page();
    page.copy_from_slice(&array.disks[member].image[at as usize * 512..][..PAGE_BYTES]);
    page
}

/// The first word that a member's map has.
fn marked(array: &Array, member: usize) -> u64 {
    let start = region(array, RegionKind::Redirected);
    let homes = [0, 1].map(|sequence| page_at(array, member, pages::home(start, 0, sequence)));
    let view = |page| pages::decode(page, MapKind::Redirected, Uuid([7; 16]), 0);
    let view = pages::newest(view(&homes[0]), view(&homes[1])).expect("a sound home");
    view.words().next().expect("a page has words")
}

fn copies(array: &Array, member: usize) -> [Superblock; 2] {
    [RegionKind::SuperA, RegionKind::SuperB].map(|kind| {
        let at = region(array, kind) as usize * 512;
        Superblock::decode(&array.disks[member].image[at..]).expect("sound copies")
    })
}

fn recorded(array: &Array, member: usize) -> Option<Partner> {
    let copies = copies(array, member);
    let newest = copies.into_iter().max_by_key(|copy| copy.sequence);
    newest.and_then(|copy| copy.partner)
}

/// Changes every superblock, as if another program had written them.
fn rewrite(array: &mut Array, change: impl Fn(&mut Superblock)) {
    for member in 0..array.disks.len() {
        for mut copy in copies(array, member) {
            change(&mut copy);
            let home = copy.home().expect("both copies have a home").start;
            for (page, at) in copy
                .encode()
                .expect("sound")
                .iter()
                .zip((home..).step_by(8))
            {
                array.disks[member].forge(at, &page[..]);
            }
        }
    }
    assert_eq!(superblock::SUPERBLOCK_PAGES, 4);
}

fn images(array: &Array) -> Vec<Vec<u8>> {
    array.disks.iter().map(|disk| disk.image.clone()).collect()
}

const PLAIN: StartMode = StartMode {
    from_minority: false,
    accept_loss: false,
    read_only: false,
    ..StartMode::PLAIN
};
const ACCEPTING: StartMode = StartMode {
    accept_loss: true,
    ..PLAIN
};

fn refusal(extents: &[(u64, u64)]) -> Result<(), CommandError> {
    Err(CommandError::SurrogateMissing {
        surrogate: OTHER,
        extents: extents.to_vec(),
    })
}

/// The regions whose reads say that they are lost. All others read as the model says.
fn lost(array: &mut Array) -> u64 {
    let mut bits = 0;
    for bit in 0..4 {
        match array.read(bit * SHARE, SHARE) {
            Err(RequestError::Lost { .. }) => bits |= 1 << bit,
            Ok(found) => {
                let from = (bit * SHARE) as usize * 512;
                assert!(
                    found == array.model[from..from + found.len()],
                    "region {bit}"
                );
            }
            other => panic!("{other:?}"),
        }
    }
    bits
}

#[test]
fn a_start_without_the_surrogate_is_refused_and_writes_nothing() {
    let mut array = redirected(0b0110);
    let before = images(&array);
    for mode in [
        PLAIN,
        StartMode {
            read_only: true,
            ..PLAIN
        },
    ] {
        let told = array.command(Command::Start(mode));
        assert_eq!(told, refusal(&[(SHARE, 2 * SHARE)]));
    }
    assert!(images(&array) == before);
    mark(&mut array, &[0b1001]);
    let apart = [(0, SHARE), (3 * SHARE, SHARE)];
    assert_eq!(array.start(), refusal(&apart));
}

#[test]
fn the_extents_are_merged_where_there_are_too_many() {
    let mut setup = with_surrogate(raid1(2)).info(|info| info.sectors += 2400 * CHUNK);
    setup.rows = 2200;
    setup.options.intent_rows = Some(1);
    let mut array = setup.made();
    mark(&mut array, &[0x5555_5555_5555_5555; 40]);
    let Err(CommandError::SurrogateMissing { extents, .. }) = array.start() else {
        panic!("1100 rows are in the surrogate");
    };
    assert!(extents.len() <= 4 * 251, "{}", extents.len());
    let covered = |row: u64| {
        let within =
            |&(lba, sectors): &(u64, u64)| lba <= row * CHUNK && row * CHUNK < lba + sectors;
        extents.iter().any(within)
    };
    assert!((0..2200).step_by(2).all(covered));
}

#[test]
fn accepted_losses_are_listed_and_end_with_new_writes() {
    let mut array = redirected(0b0110);
    array.command(Command::Start(ACCEPTING)).expect("told so");
    let wanted = Fact::Lost {
        lba: SHARE,
        sectors: 2 * SHARE,
    };
    assert!(array.facts.contains(&wanted), "{:?}", array.facts);
    assert_eq!(lost(&mut array), 0b0110);
    array
        .written(SHARE, SHARE)
        .expect("what is lost can be written anew");
    array.flushed();
    assert_eq!(lost(&mut array), 0b0100);
    array.crash(|_| true);
    array.start().expect("there is no surrogate any more");
    assert_eq!(lost(&mut array), 0b0100);
    array.consistent();
    for member in 0..4 {
        assert_eq!(
            (recorded(&array, member), marked(&array, member)),
            (None, 0)
        );
    }
}

/// Wherever the power goes while a surrogate is given up: what it held is refused, or lost, and never old.
#[test]
fn no_crash_brings_old_copies_back_while_a_surrogate_is_given_up() {
    let (mut refused, mut started) = (0, 0);
    for steps in 0.. {
        let mut array = redirected(0b0110);
        let tag = array.order(Command::Start(ACCEPTING));
        array.turn();
        for _ in 0..steps {
            if !array.held.is_empty() {
                array.end_first(Ok(()));
                array.turn();
            }
        }
        let whole = array.answer(tag).is_some() && array.held.is_empty();
        array.crash(|_| steps % 2 == 0);
        match array.start() {
            Ok(()) => {
                assert_eq!(lost(&mut array), 0b0110, "{steps} steps");
                started += 1;
            }
            Err(error) => {
                assert_eq!(Err(error), refusal(&[(SHARE, 2 * SHARE)]));
                array
                    .command(Command::Start(ACCEPTING))
                    .expect("told so again");
                assert_eq!(lost(&mut array), 0b0110, "{steps} steps");
                refused += 1;
            }
        }
        assert!(started == 0 || recorded(&array, 0).is_none());
        if whole {
            break;
        }
    }
    assert!(
        refused > 20 && started > 3,
        "{refused} refused, {started} started"
    );
}

#[test]
fn a_reading_start_that_accepts_the_loss_writes_nothing() {
    let mut array = redirected(0b0001);
    let before = images(&array);
    let mode = StartMode {
        read_only: true,
        ..ACCEPTING
    };
    array.command(Command::Start(mode)).expect("told so");
    assert_eq!(lost(&mut array), 0b0001);
    assert!(images(&array) == before);
}

#[test]
fn a_surrogate_that_holds_nothing_is_not_needed_and_stays_on_record() {
    let mut array = redirected(0);
    array.start().expect("nothing is elsewhere");
    assert_eq!(lost(&mut array), 0);
    for member in 0..4 {
        assert_eq!(recorded(&array, member), Some(partner(PartnerRole::Main)));
    }
}

#[test]
fn bits_without_a_surrogate_say_nothing() {
    let mut array = raid5(4).made();
    mark(&mut array, &[0b1111]);
    array.start().expect("there is no surrogate");
    assert_eq!((lost(&mut array), marked(&array, 0)), (0, 0));
}

#[test]
fn a_surrogate_does_not_start_alone() {
    let mut setup = raid5(4);
    setup.options.partner = Some(partner(PartnerRole::Surrogate));
    let mut array = setup.made();
    let before = images(&array);
    for mode in [
        PLAIN,
        ACCEPTING,
        StartMode {
            read_only: true,
            ..ACCEPTING
        },
    ] {
        let told = array.command(Command::Start(mode));
        assert_eq!(told, Err(CommandError::IsSurrogate { of: OTHER }));
    }
    assert!(images(&array) == before);
}

/// The map of an array with a surrogate is read, or the start is refused; without one nobody misses it.
#[test]
fn an_unreadable_map_counts_only_with_a_surrogate() {
    let torn = |mut array: Array| {
        let start = region(&array, RegionKind::Redirected);
        for disk in &mut array.disks {
            disk.forge(start, &[0xa5; 2 * PAGE_BYTES]);
        }
        array
    };
    let mut paired = torn(redirected(0b0001));
    assert_eq!(paired.start(), Err(CommandError::Metadata));
    let mut alone = torn(raid5(4).made());
    alone.start().expect("nothing is redirected");
    assert_eq!(marked(&alone, 3), 0, "written anew");
}

/// A media error that goes by brings the map of before back: it must not be taken for that of a surrogate attached since.
#[test]
fn a_map_that_could_not_be_read_is_left_alone() {
    let mut array = raid5(4).made();
    let start = region(&array, RegionKind::Redirected);
    mark(&mut array, &[0b0011]);
    for disk in &mut array.disks {
        disk.bad.insert(start);
    }
    array.start().expect("nothing is redirected");
    array.command(Command::Stop).expect("stopped");
    assert_eq!(marked(&array, 2), 0b0011, "nothing was written over it");
}

/// An array of an earlier program has no region for the map.
#[test]
fn an_array_without_the_map_serves_and_takes_no_surrogate() {
    let without = |mut setup: Setup, partner: Option<Partner>| {
        setup.options.partner = None;
        let mut array = setup.spares(1).made();
        rewrite(&mut array, |copy| {
            copy.regions
                .retain(|region| region.kind != RegionKind::Redirected);
            copy.partner = partner;
        });
        array
    };
    let mut array = without(raid5(4), None);
    let start = region(&array, RegionKind::Redirected) as usize * 512;
    for disk in &mut array.disks {
        disk.forge(start as u64 / 512, &[0x77; 2 * PAGE_BYTES]);
    }
    array.start().expect("it has all that it needs");
    array.written(0, 2 * SHARE).expect("written");
    array
        .command(Command::Fail(restripe_array::Member(1)))
        .expect("failed");
    array.run_tasks();
    array.flushed();
    array.verify();
    for disk in &array.disks {
        assert!(
            disk.image[start..start + 2 * PAGE_BYTES]
                .iter()
                .all(|byte| *byte == 0x77)
        );
    }
    let mut paired = without(raid5(4), Some(partner(PartnerRole::Main)));
    assert_eq!(paired.start(), Err(CommandError::Metadata));
}

/// An array that serves without the surrogate that it has on record, or without any, is told of another state of that.
fn changed(surrogate: Option<Uuid>) -> (Array, u64) {
    let mut setup = raid5(4);
    if surrogate.is_none() {
        setup = with_surrogate(setup);
    }
    let mut array = setup.start();
    array.written(0, SHARE).expect("written");
    array.flushed();
    let tag = array.order(Command::LogSet(surrogate));
    (array, tag)
}

/// Wherever the power goes meanwhile, the array starts, with the one on record or without; once answered, as it was told.
#[test]
fn a_surrogate_comes_on_record_and_off_it_whole() {
    for surrogate in [Some(OTHER), None] {
        let (mut before, mut after) = (0, 0);
        for steps in 0.. {
            let (mut array, tag) = changed(surrogate);
            for _ in 0..steps {
                if !array.held.is_empty() {
                    array.end_first(Ok(()));
                    array.turn();
                }
            }
            let answered = array.answer(tag);
            let whole = answered.is_some() && array.held.is_empty();
            assert!(!whole || answered == Some(Ok(())), "{answered:?}");
            array.crash(|_| steps % 2 == 0);
            array.start().expect("nothing is away");
            let found = array.engine.status().log_set;
            assert!(found == surrogate || answered.is_none(), "{steps} steps");
            match found == surrogate {
                true => after += 1,
                false => before += 1,
            }
            array.run();
            array.verify();
            if whole {
                break;
            }
        }
        assert!(before > 0 && after > 2, "{before} before, {after} after");
    }
}

#[test]
fn what_cannot_be_on_record_is_refused() {
    let busy = |result| matches!(result, Err(CommandError::Busy(_)));
    let mut array = raid5(4).start();
    assert!(busy(array.command(Command::LogSet(None))), "it has none");
    array
        .command(Command::LogSet(Some(OTHER)))
        .expect("it has room for it");
    assert_eq!(
        recorded(&array, 3),
        Some(Partner {
            epoch: 1,
            ..partner(PartnerRole::Main)
        })
    );
    let another = Command::LogSet(Some(Uuid([8; 16])));
    assert!(busy(array.command(another)), "it has one");
    array
        .command(Command::LogSet(None))
        .expect("nothing is there");
    assert_eq!(recorded(&array, 3), None);
}
