//! The devices the engine knows, and which of them stands where.

use crate::contract::MemberInfo;
use crate::energy::Spent;
use crate::units::Nanos;
use alloc::vec::Vec;
use restripe_format::meta::pages::{self, MapKind};
use restripe_format::meta::superblock::{Region, RegionKind};

/// Where a member keeps what, in sectors of the member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Places {
    pub(crate) superblock: [u64; 2],
    /// Where each map's region starts, and its sectors: none of a map that the member has no room for.
    maps: [(u64, u64); MapKind::ALL.len()],
    pub(crate) log: u64,
    pub(crate) log_sectors: u64,
    pub(crate) data: u64,
    pub(crate) data_sectors: u64,
}

impl Places {
    pub(crate) fn of(regions: &[Region]) -> Places {
        let mut places = Places::default();
        for kind in MapKind::ALL {
            let mut own = regions.iter().filter(|region| region.kind == kind.region());
            places.maps[kind as usize] = own
                .next()
                .map_or((0, 0), |region| (region.start, region.sectors));
        }
        for region in regions {
            match region.kind {
                RegionKind::SuperA => places.superblock[0] = region.start,
                RegionKind::SuperB => places.superblock[1] = region.start,
                RegionKind::Log => {
                    (places.log, places.log_sectors) = (region.start, region.sectors)
                }
                RegionKind::Data => {
                    (places.data, places.data_sectors) = (region.start, region.sectors)
                }
                _ => {}
            }
        }
        places
    }

    /// The sector at which a page of a map lies under this sequence, if the member has room for it.
    pub(crate) fn map_page(&self, kind: MapKind, page: u32, sequence: u64) -> Option<u64> {
        let (start, sectors) = self.maps[kind as usize];
        (u64::from(page) < pages::pages_in(sectors)).then(|| pages::home(start, page, sequence))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Power {
    #[default]
    Awake,
    Resting,
    Asleep,
    Waking,
    /// It cannot be put in standby: the attempt failed.
    Restless,
}

impl Power {
    pub(crate) fn is_up(self) -> bool {
        matches!(self, Power::Awake | Power::Restless)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Health {
    /// Opened, not (yet) of this array.
    Stranger,
    Good,
    Failed,
}

#[derive(Clone, Debug)]
pub(crate) struct Device {
    pub(crate) info: MemberInfo,
    pub(crate) health: Health,
    /// Its line in the superblock's member table.
    pub(crate) entry: Option<u16>,
    pub(crate) regions: Vec<Region>,
    pub(crate) places: Places,
    /// Something may lie there that no flush of this daemon has covered: whatever it held when it came, and
    /// what was written since.
    pub(crate) unflushed: bool,
    /// Its last write or flush found no space.
    pub(crate) full: bool,
    pub(crate) in_flight: u32,
    pub(crate) power: Power,
    /// By then whoever tells it to rest has ended, if anybody does so now.
    pub(crate) rests_until: Nanos,
    /// What it was at so far, and for how long.
    pub(crate) spent: Spent,
    /// Media errors that the last check met.
    pub(crate) check_errors: u32,
    /// Errors in this run where nothing is known to recover what is there. They never fail it.
    pub(crate) lost_errors: u32,
    /// When it last completed anything.
    pub(crate) progress: Nanos,
    /// The next command that takes it in may overwrite what it carries.
    pub(crate) overwrite: bool,
    /// The version of the superblock under which it last gave up a place, or all.
    pub(crate) left_under: u64,
}

impl Device {
    pub(crate) fn new(info: MemberInfo) -> Device {
        Device {
            info,
            health: Health::Stranger,
            entry: None,
            regions: Vec::new(),
            places: Places::default(),
            unflushed: true,
            full: false,
            in_flight: 0,
            power: Power::default(),
            rests_until: Nanos::ZERO,
            spent: Spent::default(),
            check_errors: 0,
            lost_errors: 0,
            progress: Nanos(0),
            overwrite: false,
            left_under: 0,
        }
    }
}
