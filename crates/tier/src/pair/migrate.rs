//! Hot zones go to the surrogate in the pass that restores them (IDO, section 3.4): what the task's windows hand over is
//! appended as clean copies, and users read it there.

use super::{Pair, Redirect};
use crate::overlay::{CopyTag, Pressure, Site};
use alloc::vec::Vec;
use restripe_array::parts::{Handed, RunSet};
use restripe_array::{Buf, RequestError, SECTOR_BYTES};

/// Of the log's sectors, so many at most are for hot zones: the rest is for writes.
const SHARE_OF_LOG: u64 = 2;

/// Where the bytes of a clean copy come from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    /// A window of a task.
    Window(u32),
    /// What a user read of these sectors of home, in a buffer of the pair's own.
    Read { buf: Buf, lba: u64, sectors: u64 },
}

impl Pair {
    /// Chooses the zones to move when a task begins to restore redundancy, and none when none does.
    pub(super) fn choose(&mut self, restoring: bool) {
        if restoring == self.policy.chosen {
            return;
        }
        self.policy.chosen = restoring;
        self.choose_keeping(restoring);
        let zones = match self.policy.redirect() {
            Redirect::Ido if restoring => self.hot_zones(),
            _ => RunSet::default(),
        };
        self.sets[Site::Home].want_zones(zones);
    }

    /// The zones that count as hot, as many as there is room for, the hottest of them.
    fn hot_zones(&self) -> RunSet {
        let overlay = self.overlay.as_ref().expect("a serving pair has one");
        let heat = self.home().heat_map();
        let room = overlay.log_sectors() / SHARE_OF_LOG / heat.zone_sectors.max(1);
        let most = heat
            .hot_zones()
            .min(usize::try_from(room).unwrap_or(usize::MAX));
        let mut zones = RunSet::default();
        for zone in heat.hottest().into_iter().take(most) {
            zones.insert(u64::from(zone), 1);
        }
        zones
    }

    /// Takes up what a window has handed over.
    pub(super) fn next_handed(&mut self) -> bool {
        let Some(handed) = self.sets[Site::Home].next_handed() else {
            return false;
        };
        let end = handed.lba + u64::from(handed.buf.bytes) / SECTOR_BYTES;
        let overlay = self.overlay.as_ref();
        let holes = overlay.map_or_else(Vec::new, |overlay| overlay.holes(handed.lba..end));
        for (lba, sectors) in holes {
            self.copy_piece(&handed, lba, sectors);
        }
        self.let_go(handed.slice);
        true
    }

    /// Appends a piece, if there is room and nobody writes it. The window waits for it.
    fn copy_piece(&mut self, handed: &Handed, lba: u64, sectors: u32) {
        let leaves = self.is_leaving();
        let overlay = self.overlay.as_mut().expect("it copies");
        if leaves || overlay.pressure() != Pressure::None {
            return;
        }
        let Some(tag) = overlay.begin_copy(lba, sectors) else {
            return;
        };
        let offset = ((lba - handed.lba) * SECTOR_BYTES) as u32;
        let payload = handed.buf.part(offset, sectors * SECTOR_BYTES as u32);
        overlay.append_copy(tag, payload);
        self.sets[Site::Home].hold(handed.slice);
        self.copies.push((tag, Source::Window(handed.slice)));
    }

    /// A window waits for one piece less.
    fn let_go(&mut self, slice: u32) {
        self.sets[Site::Home].transferred(slice);
        self.children.delivered = true;
    }

    /// A clean copy is in the log, or could not be had.
    pub(super) fn copied(&mut self, copy: CopyTag, result: Result<(), RequestError>) {
        let index = self.copies.iter().position(|(tag, _)| *tag == copy);
        let (_, source) = self.copies.swap_remove(index.expect("it was appended"));
        match source {
            Source::Window(slice) => self.let_go(slice),
            Source::Read { buf, lba, sectors } => {
                self.buffers.release(buf);
                if result.is_ok() {
                    self.kept(lba, sectors);
                }
            }
        }
    }
}
