//! Pages of the log that rot while the power is off: headers and anchors, on as many members as redundancy bears.

use super::{End, Life, Run, Site, set_of, spec_of};
use crate::disk::Disk;
use crate::rng::Rng;
use restripe_array::layout::{Layout, Level};
use restripe_array::meta::WriteHole;
use restripe_array::report::{MemberState, MemberStatus};

/// The stream that rot is drawn from.
const ROT: u64 = 0x7077;
/// What the pages that are read to find the log begin with.
const HEADER: &[u8] = b"RstrpOvl";
const ANCHOR: &[u8] = b"RstrpAnc";
const PAGE: u64 = 8;
/// So many members that hold the same wrong bytes in place of a header are found out.
const FOUND_ALIKE: usize = 2;

impl Run {
    /// Whether each slot of the log has a member in step: one that came back after it was failed is an old copy.
    pub(super) fn log_is_whole(&self, life: &Life) -> bool {
        let status = life.session.world.status();
        set_of(&status, Site::Log).is_some_and(|set| {
            let active = |line: &&MemberStatus| line.state == MemberState::Active;
            let active = set.members.iter().filter(active).count();
            set.tasks.is_empty() && active == usize::from(spec_of(&self.plan, Site::Log).slots)
        })
    }

    /// Some pages of the log rot, if the log is whole and redundancy has them: after a crash what was being written without whole
    /// rows is made anew from the data there are.
    pub(super) fn rot(&mut self, end: End) -> bool {
        let spec = spec_of(&self.plan, Site::Log);
        let creation = spec.create().expect("plans are made to fit");
        let layout = Layout::new(creation.geometry).expect("a created geometry is sound");
        let settled =
            end == End::Stop || spec.write_hole == WriteHole::WholeRows && end == End::Crash;
        let here = self.log.len() == usize::from(spec.slots) && !self.log_gone;
        // One more life must have served before, so that what rotted last was found.
        let quiet = !self.lost_lately[Site::Log as usize] && !self.rotten;
        let redundant = spec.level != Level::Raid0 && layout.tolerance() > 0;
        let mut drawn = self.rng.clone().fork(ROT);
        if !(settled && here && quiet && redundant && drawn.chance(1, 3)) {
            return false;
        }
        let most = match layout.parity() {
            true => u64::from(layout.tolerance()),
            // The copies of one page may be anybody's.
            false => 1,
        };
        let members = drawn.between(1, most) as usize;
        let order = drawn.order(self.log.len());
        let share = drawn.between(1, 4);
        let mut pages = 0;
        for (number, member) in (0..).zip(order.into_iter().take(members)) {
            let byte = if members > FOUND_ALIKE { number } else { 0 };
            pages += spoil(&mut self.log[member], byte, share, &mut drawn);
        }
        self.rotten = pages > 0;
        self.count("pages of the log rotten", pages);
        self.rotten
    }
}

/// Spoils about one of so many pages of a member: a bit of it, or all. A header that is none any more has this byte there,
/// since members that agree are believed if they are too many; anchors may be lost alike. How many were.
fn spoil(disk: &mut Disk, byte: u8, share: u64, drawn: &mut Rng) -> u64 {
    let mut page = [0; 4096];
    let mut spoilt = 0;
    for at in (0..disk.info().sectors / PAGE).map(|page| page * PAGE) {
        disk.live().read_data(at, PAGE, &mut page);
        let (header, anchor) = (page.starts_with(HEADER), page.starts_with(ANCHOR));
        if !(header || anchor) || !drawn.chance(1, share) {
            continue;
        }
        match drawn.chance(1, 2) {
            true => page.fill(if anchor { 0 } else { byte }),
            false => page[drawn.below(4096) as usize] ^= 1 << drawn.below(8),
        }
        disk.meddle(|image| image.write_data(at, PAGE, &page));
        spoilt += 1;
    }
    spoilt
}
