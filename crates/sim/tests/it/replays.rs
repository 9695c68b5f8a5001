//! Rows of two parities that a crash cut short, with a member missing and a sector of one parity that cannot be read: the
//! rest of that parity is brought in sync with the other one.

use crate::copies::{CHUNK, flush, settle};
use crate::sets::{PLAIN, Pair, Rest, Start, order, set};
use restripe_array::layout::{Layout, Level, Rotation};
use restripe_array::meta::{Init, RegionKind, WriteHole};
use restripe_array::{Command, Member, Row};
use restripe_sim::array::{Spec, superblock_of};
use restripe_sim::fault::Fault;
use restripe_sim::oracle::WriteKind;
use restripe_sim::rng::Rng;
use restripe_tier::Redirect;

const SLOTS: u16 = 5;
const ROW: Row = Row(2);
/// The one of the parity's cell that cannot be read.
const SECTOR: u64 = 5;

fn pair() -> Pair {
    let spec = Spec {
        write_hole: WriteHole::Ppl,
        init: Init::Written,
        ..set(Level::Raid6(Rotation::LeftSymmetric), SLOTS, 0)
    };
    Pair::new(vec![spec], Redirect::None)
}

fn layout(pair: &Pair) -> Layout {
    let created = pair.specs[0].create().expect("it fits its members");
    Layout::new(created.geometry).expect("it was created")
}

fn write(start: &mut Start, lba: u64, sectors: u64) {
    start
        .session
        .write(lba, sectors, WriteKind::Data, false, false);
}

/// A member has failed, and power goes at each step of a write to its cell of the row.
fn cuts(pair: &Pair, layout: &Layout, data: u8) -> Vec<Rest> {
    let mut start = Start::ask(pair, pair.created(), PLAIN);
    assert_eq!(start.go_on(), Ok(()));
    let cells = 0..layout.row(ROW).data;
    for cell in cells {
        write(&mut start, layout.lba(ROW, cell, 0), CHUNK);
    }
    settle(&mut start);
    flush(&mut start);
    let missing = layout.row(ROW).cells[usize::from(data)].slot.0;
    assert_eq!(order(&mut start, Command::Fail(Member(missing))), Ok(()));
    settle(&mut start);
    write(&mut start, layout.lba(ROW, data, 2), 10);
    let (mut cuts, mut rng) = (Vec::new(), Rng::new(11));
    while !start.session.world.quiescent() {
        start.session.step();
        let site = start.session.world.site();
        for _ in 0..16 {
            let mut oracle = start.session.oracle.clone();
            oracle.crash();
            let images = site.images(&site.sample(&mut rng));
            cuts.push(Rest { images, oracle });
        }
    }
    cuts
}

#[test]
fn a_parity_that_errs_in_a_sector_is_in_sync_elsewhere_after_a_crash() {
    let pair = pair();
    let layout = layout(&pair);
    let map = layout.row(ROW);
    for data in 0..map.data {
        let missing = map.cells[usize::from(data)].slot.0;
        let cuts = cuts(&pair, &layout, data);
        assert!(cuts.len() >= 32, "{} cuts", cuts.len());
        let mut others = (0..map.data).filter(|cell| *cell != data);
        let other = others.next_back().expect("three have data");
        let another = map.cells[usize::from(other)].slot.0;
        for (_, cell) in map.parities() {
            let parity = map.cells[usize::from(cell)];
            let member = usize::from(parity.slot.0);
            for rest in &cuts {
                let found = superblock_of(&rest.images[member]).expect("a member");
                let region = found.region(RegionKind::Data).expect("it has data");
                let at = region.start + parity.at + SECTOR;
                let mut start = Start::ask(&pair, rest.clone(), PLAIN);
                start.inject(member..member + 1, Fault::Latent { at, sectors: 1 });
                assert_eq!(
                    start.go_on(),
                    Ok(()),
                    "without {missing}, {member} errs at {at}"
                );
                settle(&mut start);
                start.reads_all("with both parities");
                // From here on the parities together tell what two members had, but for the sector.
                for cell in [data, other] {
                    let lba = layout.lba(ROW, cell, SECTOR);
                    start.session.oracle.allow_loss(lba);
                }
                assert_eq!(order(&mut start, Command::Fail(Member(another))), Ok(()));
                settle(&mut start);
                start.reads_all("with the parities instead of two members");
            }
        }
    }
}
