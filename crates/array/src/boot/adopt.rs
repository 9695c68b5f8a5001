//! Who is current: the superblock chosen, and every device put where it says.

use crate::choose::{Choice, choose, copies_of};
use crate::contract::{CommandError, StartMode};
use crate::core::Core;
use crate::members::Members;
use crate::members::device::{Device, Health, Places};
use crate::metadata::maps::{BitMap, LostMap};
use crate::planted::Bug;
use alloc::vec;
use restripe_format::meta::RegionKind;
use restripe_format::meta::pages::{self, INTENT_BITS};
use restripe_format::meta::superblock::MemberRole;

impl Core {
    pub(super) fn boot_choose(&mut self) -> bool {
        let boot = self.boot_mut();
        let (mut candidates, mode) = (boot.candidates.clone(), boot.mode);
        for (candidate, places) in candidates.iter_mut().zip(core::mem::take(&mut boot.places)) {
            let [a, b @ ..] = places;
            candidate.copies = copies_of(a, b);
        }
        let choice = match choose(&candidates, mode) {
            Ok(choice) => choice,
            Err(error) => return self.boot_fail(error),
        };
        match self.may_take_over(&candidates, &choice) {
            Err(error) => return self.boot_fail(error),
            Ok(false) => return true,
            Ok(true) => {}
        }
        let Ok(layout) = choice.superblock.layout() else {
            return self.boot_fail(CommandError::NoArray);
        };
        self.layout = layout;
        if let Err(error) = self.adopt(choice) {
            return self.boot_fail(error);
        }
        if let Err(error) = self.check_own_start() {
            return self.boot_fail(error);
        }
        if let Err(error) = self.check_decodable(mode) {
            return self.boot_fail(error);
        }
        self.size_parts();
        if self.must_claim() {
            self.claim();
            return false;
        }
        self.ask_maps();
        true
    }

    /// This run has the array: the start goes on with the maps.
    pub(crate) fn boot_owned(&mut self) {
        if let Err(error) = self.check_decodable(self.mode) {
            self.boot_fail(error);
            return;
        }
        self.ask_maps();
        self.boot_turn();
    }

    /// Takes over the chosen superblock and puts every device where it says.
    fn adopt(&mut self, choice: Choice) -> Result<(), CommandError> {
        let boot = self.boot_mut();
        boot.chosen = Some(choice.superblock.clone());
        (boot.lagging, boot.outdated) = (choice.lagging.clone(), choice.outdated.clone());
        self.superblock = choice.superblock;
        let mut regions = choice.regions.iter();
        let hosting = regions.find(|regions| {
            let mut kinds = regions.iter().map(|region| region.kind);
            kinds.any(|kind| kind == RegionKind::SparePartition)
        });
        if let Some(regions) = hosting {
            // Members that join get such, too, whoever's copy was chosen.
            self.superblock.regions.clone_from(regions);
        }
        let template = self.superblock.regions.clone();
        for (entry, opened) in choice.opened.iter().enumerate() {
            let Some(index) = *opened else { continue };
            if self.planted(Bug::StaleMemberAccepted)
                && self
                    .superblock
                    .placement
                    .iter()
                    .any(|p| p.member == Some(entry as u16))
            {
                self.superblock.members[entry].role = MemberRole::Active;
            }
            let role = self.superblock.members[entry].role;
            let members: &mut Members = self;
            let device: &mut Device = &mut members.devices[index];
            device.entry = Some(entry as u16);
            device.regions = choice
                .regions
                .get(entry)
                .filter(|own| !own.is_empty())
                .unwrap_or(&template)
                .clone();
            device.places = Places::of(&device.regions);
            let outdated = choice.outdated.contains(&(entry as u16)) && role == MemberRole::Active;
            device.health = if matches!(role, MemberRole::Failed { .. }) || outdated {
                Health::Failed
            } else {
                Health::Good
            };
            let end = device.places.data + members.below.superblock.geometry.slot_sectors;
            if device.info.sectors < end {
                return Err(CommandError::TooSmall {
                    has: device.info.sectors,
                    needs: end,
                });
            }
            if device.info.logical_block > members.below.superblock.logical_block {
                let member = device.info.logical_block;
                return Err(CommandError::LogicalBlock {
                    member,
                    array: members.below.superblock.logical_block,
                });
            }
        }
        for member in choice.strayed {
            self.rebuild_in_full(member);
        }
        self.stand();
        Ok(())
    }

    /// Beyond what the level tolerates only a reading start is possible, and only if asked for.
    pub(super) fn check_decodable(&mut self, mode: StartMode) -> Result<(), CommandError> {
        if self.all_decodable(|_| false) {
            return Ok(());
        }
        if !mode.accept_loss {
            let missing = self.standing.missing().collect();
            return Err(CommandError::TooFew { missing });
        }
        self.mode.read_only = true;
        Ok(())
    }

    /// Rooms whose size depends on the array.
    fn size_parts(&mut self) {
        let rows = self.layout.rows();
        self.tasks.set_rows(rows);
        self.heat = self.blank_heat();
        self.heat_pages = self.blank_heat_pages();
        self.written = BitMap::new(self.written_bits());
        self.intent = BitMap::new(INTENT_BITS * self.regions());
        self.redirected = BitMap::new(self.redirected_bits_of(&self.layout));
        self.intent_users = vec![Default::default(); self.regions() as usize];
        let lost = self
            .superblock
            .region(RegionKind::Lost)
            .map_or(0, |region| pages::pages_in(region.sectors));
        let first = self.superblock.first_sectors(&self.layout);
        self.lost = LostMap::new(lost as usize, first);
        self.boot_mut().would_lose = LostMap::new(lost as usize, first);
        self.size_ops();
    }
}
