//! Who is current: the superblock chosen, and every device put where it says.
//!
//! One set of a tier never starts without the other where that would serve old copies, or a log as data.
//!
//! A start without the log set is refused if the log set may have the only current copy of a sector. If the
//! superblock records that the primary copies have all data, the start succeeds, and the secondary copies are
//! resynchronised from them. With `accept_loss` the sectors are reported lost and the partner is given up, so
//! that it cannot return later with stale copies. The order of these writes serves no stale copy after a
//! crash:
//!
//! | durable              | what a crash leaves                  | next                   |
//! |----------------------|--------------------------------------|------------------------|
//! | nothing              | bits set, a partner                  | the list of the lost   |
//! | the list of the lost | bits set, a partner                  | superblocks without it |
//! | superblocks          | no partner: the bits say nothing     | bits cleared, serving  |

use super::Start;
use crate::choose::{Choice, choose, copies_of};
use crate::contract::{Bug, CommandError, StartMode};
use crate::members::Members;
use crate::members::device::{Device, Health, Places};
use crate::metadata::maps::{BitMap, LostMap};
use crate::units::Uuid;
use alloc::vec;
use restripe_format::meta::RegionKind;
use restripe_format::meta::pages::{self, INTENT_BITS};
use restripe_format::meta::superblock::{MemberRole, Partner, PartnerRole};

impl Start {
    pub(super) fn start_choose(&mut self) -> bool {
        let starting = self.start_mut();
        let (mut candidates, mode) = (starting.candidates.clone(), starting.mode);
        for (candidate, places) in candidates
            .iter_mut()
            .zip(core::mem::take(&mut starting.places))
        {
            let [a, b @ ..] = places;
            candidate.copies = copies_of(a, b);
        }
        let choice = match choose(&candidates, mode) {
            Ok(choice) => choice,
            Err(error) => return self.start_fail(error),
        };
        match self.may_take_over(&candidates, &choice) {
            Err(error) => return self.start_fail(error),
            Ok(false) => return true,
            Ok(true) => {}
        }
        let Ok(layout) = choice.superblock.layout() else {
            return self.start_fail(CommandError::NoArray);
        };
        self.layout = layout;
        if let Err(error) = self.adopt(choice) {
            return self.start_fail(error);
        }
        if let Err(error) = self.check_own_start() {
            return self.start_fail(error);
        }
        if let Err(error) = self.check_decodable(mode) {
            return self.start_fail(error);
        }
        self.size_parts();
        if self.must_claim() {
            let starting = self.start_mut();
            let lagging = core::mem::take(&mut starting.lagging);
            let chosen = starting.chosen.clone().expect("it was adopted");
            self.claim(chosen, &lagging);
            return false;
        }
        self.ask_maps();
        true
    }

    /// This run has the array: the start goes on with the maps.
    pub(crate) fn start_owned(&mut self) {
        if let Err(error) = self.check_decodable(self.mode) {
            self.start_fail(error);
            return;
        }
        self.ask_maps();
        self.start_turn();
    }

    /// Takes over the chosen superblock and puts every device where it says.
    fn adopt(&mut self, choice: Choice) -> Result<(), CommandError> {
        let starting = self.start_mut();
        starting.chosen = Some(choice.superblock.clone());
        starting.lagging = choice.lagging.clone();
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
            let mut lines = self.superblock.placement.iter();
            let placed = lines.any(|line| line.member == Some(entry as u16));
            if placed && self.planted(Bug::StaleMemberAccepted) {
                self.superblock.members[entry].role = MemberRole::Active;
            }
            let role = self.superblock.members[entry].role;
            let members: &mut Members = self;
            let device: &mut Device = &mut members.devices[index];
            device.entry = Some(entry as u16);
            let own = choice.regions.get(entry).filter(|own| !own.is_empty());
            device.regions = own.unwrap_or(&template).clone();
            device.places = Places::of(&device.regions);
            let outdated = choice.outdated.contains(&(entry as u16)) && role == MemberRole::Active;
            device.health = match role {
                MemberRole::Failed { .. } => Health::Failed,
                _ if outdated => Health::Failed,
                _ => Health::Good,
            };
            let end = device.places.data + members.below.superblock.geometry.slot_sectors;
            if device.info.sectors < end {
                let (has, needs) = (device.info.sectors, end);
                return Err(CommandError::TooSmall { has, needs });
            }
            let member = device.info.logical_block;
            let array = members.below.superblock.logical_block;
            if member > array {
                return Err(CommandError::LogicalBlock { member, array });
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
            let missing = self.roles.missing().collect();
            return Err(CommandError::TooFew { missing });
        }
        self.mode.read_only = true;
        Ok(())
    }

    /// Rooms whose size depends on the array.
    fn size_parts(&mut self) {
        let rows = self.layout.rows();
        self.tasks.rows = rows;
        self.heat = self.blank_heat();
        self.heat_pages = self.blank_heat_pages();
        self.written = BitMap::new(self.written_bits());
        self.intent = BitMap::new(INTENT_BITS * self.regions());
        self.redirected = BitMap::new(self.redirected_bits_of(&self.layout));
        self.intent_users = vec![Default::default(); self.regions() as usize];
        let lost = self.superblock.region(RegionKind::Lost);
        let lost = lost.map_or(0, |region| pages::pages_in(region.sectors));
        let first = self.superblock.first_sectors(&self.layout);
        self.lost = LostMap::new(lost as usize, first);
        self.withheld = LostMap::new(lost as usize, first);
        self.size_ops();
    }

    /// A log set has a log where others have data, and a buffer has records: only their array can read them.
    pub(super) fn check_own_start(&self) -> Result<(), CommandError> {
        match self.superblock.partner {
            Some(partner) if partner.role.serves() && !self.ties.is_part => {
                Err(CommandError::serves_another(partner.array))
            }
            Some(partner) if self.is_old_buffer(&partner) => Err(CommandError::BufferIsOld),
            _ => Ok(()),
        }
    }

    /// Whether it is the buffer of the array that starts it, and that array has records that came later.
    fn is_old_buffer(&self, partner: &Partner) -> bool {
        let least = self.ties.least_session;
        partner.role == PartnerRole::Buffer
            && least.is_some_and(|(array, least)| partner.array == array && partner.session < least)
    }

    /// Sectors of which only the log set has a current copy are not served. Called when the maps are read and
    /// nothing is written.
    pub(super) fn check_log_set(&mut self) -> Result<(), CommandError> {
        let Some(partner) = self.log_set() else {
            self.redirected.clear();
            return Ok(());
        };
        self.log_counts = self.ties.attached && !self.superblock.alone;
        if !self.redirectable() {
            return Err(CommandError::Metadata);
        }
        let extents = self.redirected_extents();
        if self.ties.attached || extents.is_empty() {
            return Ok(());
        }
        if self.is_ahead() {
            // First copies have all that the log had.
            self.start_mut().forsakes = !self.mode.read_only;
            return Ok(());
        }
        if !self.mode.accept_loss {
            return Err(self.log_set_missing(partner, &extents));
        }
        for (lba, sectors) in extents {
            self.lose(lba, sectors);
        }
        self.start_mut().forsakes = !self.mode.read_only;
        Ok(())
    }

    fn log_set_missing(&mut self, array: Uuid, extents: &[(u64, u64)]) -> CommandError {
        for &(lba, sectors) in extents {
            self.would_lose(lba, sectors);
        }
        let extents = self.withheld.extents.runs().to_vec();
        CommandError::log_set_missing(array, extents)
    }

    /// Goes on with giving up a log set, whose sectors are on the members' list of the lost by now. True
    /// while it is not durable that there is none.
    pub(super) fn forsake_log_set(&mut self) -> bool {
        if !self.start_mut().forsakes {
            return false;
        }
        let known = self.superblock.partner.take().is_some();
        if known {
            self.writer.note_partner();
        } else {
            self.redirected.clear();
        }
        known
    }
}
