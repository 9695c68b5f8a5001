//! Hot zones go to the log set in the pass that restores them (IDO, section 3.4). Data that the task's
//! windows pass on is appended as clean copies, and clients read it there.

use super::hot_reads::{HotReads, Source};
use crate::config::Redirect;
use crate::overlay::{CopyTag, Pressure, Site};
use alloc::vec::Vec;
use restripe_array::parts::{Handed, RunSet};
use restripe_array::{RequestError, SECTOR_BYTES};

/// The log's sectors are divided by this for the share of hot zones: the rest is for writes.
const SHARE_OF_LOG: u64 = 2;

pub(crate) struct HotZones {
    pub(crate) below: HotReads,
    /// The zones that go to the log set have been chosen, for the tasks that run.
    pub(crate) chosen: bool,
}

floor!(HotZones over HotReads { chosen });

impl HotZones {
    /// Chooses the zones to move when a task starts to restore redundancy, and none when no such task runs.
    pub(crate) fn choose(&mut self, restoring: bool) {
        if restoring == self.chosen {
            return;
        }
        self.chosen = restoring;
        self.choose_read_copies(restoring);
        let zones = match self.surrogate.redirect {
            Redirect::Ido if restoring => self.hot_zones(),
            _ => RunSet::default(),
        };
        self.sets[Site::Home].want_zones(zones);
    }

    /// The hottest zones, as many as are hot and as there is room for.
    fn hot_zones(&self) -> RunSet {
        let overlay = self.overlay();
        let heat = self.home().heat_map();
        let room = overlay.log_sectors() / SHARE_OF_LOG / heat.zone_sectors.max(1);
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let most = heat.hot_zones().min(room);
        let mut zones = RunSet::default();
        for zone in heat.hottest().into_iter().take(most) {
            zones.insert(u64::from(zone), 1);
        }
        zones
    }

    /// Takes the next data that a window has passed on.
    pub(crate) fn next_handed(&mut self) -> bool {
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

    /// Appends a piece, if there is room and no client writes it. The window waits for it.
    fn copy_piece(&mut self, handed: &Handed, lba: u64, sectors: u32) {
        let leaves = self.is_leaving();
        let overlay = self.overlay_mut();
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
        self.clean_copies.push((tag, Source::Window(handed.slice)));
    }

    /// The window waits for one piece fewer.
    fn let_go(&mut self, slice: u32) {
        self.sets[Site::Home].transferred(slice);
        self.delivered = true;
    }

    /// A clean copy is in the log, or could not be written.
    pub(crate) fn copied(&mut self, copy: CopyTag, result: Result<(), RequestError>) {
        let index = self.clean_copies.iter().position(|(tag, _)| *tag == copy);
        let index = index.expect("it was appended");
        let (_, source) = self.clean_copies.swap_remove(index);
        match source {
            Source::Window(slice) => self.let_go(slice),
            Source::Read { buf, lba, sectors } => {
                self.buffers.release(buf);
                if result.is_ok() {
                    self.note_copied(lba, sectors);
                }
            }
        }
    }
}
