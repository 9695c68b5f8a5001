//! Zones of heat: how an array's rows are divided for the map of what users read, which members keep.

use crate::units::Nanos;

/// Larger arrays have larger zones: the table takes 1 MiB at most.
pub const ZONES_MAX: u64 = 1 << 17;

/// How heat is learned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeatLimits {
    /// Array data of a zone: as many whole rows as hold so much, or more if there would be too many zones.
    pub zone_sectors: u64,
    /// A millisecond or more.
    pub epoch: Nanos,
}

/// The paper's zones, 12 MiB; its epoch is not printed, and assumed here.
impl Default for HeatLimits {
    fn default() -> HeatLimits {
        HeatLimits {
            zone_sectors: 12 << 11,
            epoch: Nanos::from_secs(600),
        }
    }
}

/// Rows of a zone.
pub fn zone_rows(limits: HeatLimits, rows: u64, row_sectors: u64) -> u64 {
    let wanted = limits.zone_sectors.div_ceil(row_sectors);
    wanted.clamp(1, rows.max(1)).max(rows.div_ceil(ZONES_MAX))
}

/// How many zones an array of so many rows has.
pub fn zones_of(limits: HeatLimits, rows: u64, row_sectors: u64) -> u64 {
    rows.div_ceil(zone_rows(limits, rows, row_sectors))
}
