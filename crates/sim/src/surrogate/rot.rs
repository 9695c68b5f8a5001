//! Pages of the log that rot while the power is off: headers and anchors, on as many members as redundancy
//! bears.

use super::{Life, Run, Site, set_of, spec_of};
use crate::array::superblock_of;
use crate::atlas::Atlas;
use crate::disk::Disk;
use crate::rng::Rng;
use crate::run::End;
use restripe_array::layout::{Layout, Level};
use restripe_array::meta::WriteHole;
use restripe_array::report::{MemberState, MemberStatus};
use restripe_array::{Row, Slot};
use std::collections::BTreeSet;

/// The stream that rot is drawn from.
const ROT: u64 = 0x7077;
/// What the pages that are read to find the log begin with.
const HEADER: &[u8] = b"RstrpOvl";
const ANCHOR: &[u8] = b"RstrpAnc";
const PAGE: u64 = 8;
/// So many members that hold the same wrong bytes in place of a header are found out.
const FOUND_ALIKE: usize = 2;

/// Whether each slot of the log has a member in step: one that came back after it was failed is an old copy.
pub(super) fn log_is_whole(run: &Run, life: &Life) -> bool {
    let status = life.session.world.status();
    set_of(&status, Site::Log).is_some_and(|set| {
        let active = |line: &&MemberStatus| line.state == MemberState::Active;
        let active = set.members.iter().filter(active).count();
        set.tasks.is_empty() && active == usize::from(spec_of(&run.plan, Site::Log).slots)
    })
}

/// Some pages of the log rot, if the log is whole and redundancy has them: after a crash what was being written without whole
/// rows is made anew from the data there are.
pub(super) fn rot(run: &mut Run, end: End) -> bool {
    let spec = spec_of(&run.plan, Site::Log);
    let creation = spec.create().expect("plans are made to fit");
    let layout = Layout::new(creation.geometry).expect("a created geometry is sound");
    let settled = end == End::Stop || spec.write_hole == WriteHole::WholeRows && end == End::Crash;
    let here = run.log.len() == usize::from(spec.slots) && !run.log_gone;
    // One more life must have served before, so that what rotted last was found.
    let quiet = !run.lost_lately[Site::Log as usize] && bears_loss_of_log(run);
    let redundant = spec.level != Level::Raid0 && layout.tolerance() > 0;
    let mut drawn = run.base.rng.clone().fork(ROT);
    if !(settled && here && quiet && redundant && drawn.chance(1, 3)) {
        return false;
    }
    let most = match layout.parity() {
        true => u64::from(layout.tolerance()),
        // The copies of one page may be anybody's.
        false => 1,
    };
    let members = drawn.between(1, most) as usize;
    let order = drawn.order(run.log.len());
    let share = drawn.between(1, 4);
    let mut spoilt = Vec::new();
    for (number, member) in (0..).zip(order.into_iter().take(members)) {
        let byte = if members > FOUND_ALIKE { number } else { 0 };
        let pages = spoil(&run.log[member], byte, share, &mut drawn);
        spoilt.extend(pages.map(|(at, page)| Spoilt { member, at, page }));
    }
    let spoilt = with_a_header(&run.log, spoilt);
    for (Spoilt { member, at, page }, _) in &spoilt {
        run.log[*member].meddle(|image| image.write_data(*at, PAGE, page));
    }
    run.rotten = !spoilt.is_empty();
    run.parities_rotten = spoilt.iter().any(|(_, cell)| cell.parity);
    run.base
        .count("pages of the log rotten", spoilt.len() as u64);
    run.rotten
}

/// Whether nothing in the log is wrong already: what no start has read yet, and parities, which no start mends.
pub(super) fn bears_loss_of_log(run: &Run) -> bool {
    !run.rotten && !run.parities_rotten
}

/// What a page of a disk of the log is to hold.
struct Spoilt {
    member: usize,
    at: u64,
    page: [u8; 4096],
}

/// Without pages of no row, and without parities that begin like a header, or an anchor, where none of the row is spoilt: no start reads
/// these.
fn with_a_header(log: &[Disk], spoilt: Vec<Spoilt>) -> Vec<(Spoilt, CellPage)> {
    let atlas = Atlas::of(log.iter()).expect("a whole log");
    let placed = |page: Spoilt| cell_of(&atlas, log, &page).map(|cell| (page, cell));
    let mut placed: Vec<(Spoilt, CellPage)> = spoilt.into_iter().filter_map(placed).collect();
    let cells = placed.iter().map(|(_, cell)| *cell);
    let headers = cells.filter(|cell| !cell.parity);
    let headers: BTreeSet<(Row, u64)> = headers.map(|cell| (cell.row, cell.offset)).collect();
    placed.retain(|(_, cell)| !cell.parity || headers.contains(&(cell.row, cell.offset)));
    placed
}

/// Where a page lies in the row that it is of.
#[derive(Clone, Copy)]
struct CellPage {
    row: Row,
    /// From the first sector of its cell.
    offset: u64,
    parity: bool,
}

fn cell_of(atlas: &Atlas, log: &[Disk], page: &Spoilt) -> Option<CellPage> {
    let own = superblock_of(log[page.member].live())?;
    let (slot, at) = atlas.slot_sector(own.member, page.at)?;
    let row = atlas.layout().row_at(Slot(slot), at)?;
    let map = atlas.layout().row(row);
    let cell = map.cell_on(Slot(slot))?;
    Some(CellPage {
        row,
        offset: at - map.cells[usize::from(cell)].at,
        parity: map.parity_set().contains(cell),
    })
}

/// About one of so many pages of a member, and what it is to hold: a bit of it is wrong, or all. A header that is none any more
/// has this byte there, since members that agree are believed if they are too many; anchors may be lost alike.
fn spoil<'a>(
    disk: &'a Disk,
    byte: u8,
    share: u64,
    drawn: &'a mut Rng,
) -> impl Iterator<Item = (u64, [u8; 4096])> + 'a {
    let pages = (0..disk.info().sectors / PAGE).map(|page| page * PAGE);
    pages.filter_map(move |at| {
        let mut page = [0; 4096];
        disk.live().read_data(at, PAGE, &mut page);
        let (header, anchor) = (page.starts_with(HEADER), page.starts_with(ANCHOR));
        if !(header || anchor) || !drawn.chance(1, share) {
            return None;
        }
        match drawn.chance(1, 2) {
            true => page.fill(if anchor { 0 } else { byte }),
            false => page[drawn.below(4096) as usize] ^= 1 << drawn.below(8),
        }
        Some((at, page))
    })
}
