//! The layout of a log's region: first the anchors' places, then the segments, then perhaps a rest.
//!
//! All parts begin and end at the edges of *grains*: pages, or whole rows if the set is written by them only.

use super::super::LOG_SECTORS_MAX;
use super::RecordHeader;
use super::anchor::SEGMENTS_PER_PAGE;
use core::fmt;
use restripe_array::PAGE_SECTORS;
use restripe_array::meta::log::total_sectors;

/// The least number of segments with which a log works: one to write, and one for cleaning.
pub const SEGMENTS_MIN: u32 = 2;

/// The sectors of a log set that a log has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogRegion {
    pub start: u64,
    pub sectors: u64,
}

/// A region divided into segments. The same region and segment size always give the same layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogLayout {
    start: u64,
    grain: u32,
    segment_sectors: u32,
    segments: u32,
}

/// Why a region cannot have a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionError {
    /// The region begins within a page, or ends beyond [`LOG_SECTORS_MAX`].
    Place(LogRegion),
    /// A segment has to be whole grains, and fit a record.
    SegmentSectors(u32),
    TooSmall {
        sectors: u64,
        needs: u64,
    },
    TooManySegments(u64),
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegionError::Place(LogRegion { start, sectors }) => {
                write!(f, "no log can lie in {sectors} sectors from {start} on")
            }
            RegionError::SegmentSectors(sectors) => {
                write!(f, "no segment of a log can have {sectors} sectors")
            }
            RegionError::TooSmall { sectors, needs } => {
                write!(f, "{sectors} sectors for a log; it needs {needs}")
            }
            RegionError::TooManySegments(segments) => {
                write!(f, "{segments} segments of a log; make them larger")
            }
        }
    }
}

impl LogRegion {
    /// Divides the region into as many segments as it has room for, with their anchors.
    pub fn cut(&self, segment_sectors: u32) -> Result<LogLayout, RegionError> {
        self.cut_in_grains(segment_sectors, PAGE_SECTORS as u32)
    }

    /// As `cut`, in grains of this many sectors: whole pages.
    pub(crate) fn cut_in_grains(
        &self,
        segment_sectors: u32,
        grain: u32,
    ) -> Result<LogLayout, RegionError> {
        let end = self.start.checked_add(self.sectors);
        if !self.start.is_multiple_of(PAGE_SECTORS) || end.is_none_or(|end| end > LOG_SECTORS_MAX) {
            return Err(RegionError::Place(*self));
        }
        let segment = u64::from(segment_sectors);
        let pages = u64::from(grain).is_multiple_of(PAGE_SECTORS) && grain > 0;
        let least = total_sectors(1).next_multiple_of(u64::from(grain.max(1)));
        if !pages || !segment_sectors.is_multiple_of(grain) || segment < least {
            return Err(RegionError::SegmentSectors(segment_sectors));
        }
        let count = segments_in(self.sectors, segment, 2 * u64::from(grain));
        if count < u64::from(SEGMENTS_MIN) {
            return Err(RegionError::TooSmall {
                sectors: self.sectors,
                needs: 2 * u64::from(grain) + u64::from(SEGMENTS_MIN) * segment,
            });
        }
        let segments = u32::try_from(count).map_err(|_| RegionError::TooManySegments(count))?;
        Ok(LogLayout {
            start: self.start,
            grain,
            segment_sectors,
            segments,
        })
    }
}

/// Each [`SEGMENTS_PER_PAGE`] segments have an anchor, and so do the remaining ones.
fn segments_in(sectors: u64, segment: u64, homes: u64) -> u64 {
    let each = SEGMENTS_PER_PAGE as u64;
    let group = homes + each * segment;
    let rest = (sectors % group).saturating_sub(homes);
    sectors / group * each + rest / segment
}

impl LogLayout {
    pub fn segment_sectors(&self) -> u32 {
        self.segment_sectors
    }

    pub fn segments(&self) -> u32 {
        self.segments
    }

    /// The number of anchors.
    pub fn anchors(&self) -> u32 {
        self.segments.div_ceil(SEGMENTS_PER_PAGE as u32)
    }

    /// The sector of the log set for an anchor of this version.
    pub(crate) fn anchor_home(&self, index: u32, version: u64) -> u64 {
        self.start + (2 * u64::from(index) + (version & 1)) * u64::from(self.grain)
    }

    /// Sectors of a grain: a write begins and ends at the edge of one.
    pub fn grain(&self) -> u32 {
        self.grain
    }

    /// Sectors that a record with a payload of this many takes.
    pub fn footprint(&self, payload: u32) -> u32 {
        (total_sectors(payload) as u32).next_multiple_of(self.grain)
    }

    /// The sector of the log behind a record.
    pub fn end_of(&self, record: &RecordHeader) -> u64 {
        let sectors = total_sectors(record.payload_sectors);
        record.at + sectors.next_multiple_of(u64::from(self.grain))
    }

    /// Converts a sector of the log's data space into a sector of the log set.
    pub fn sector(&self, at: u64) -> u64 {
        self.start + 2 * u64::from(self.anchors()) * u64::from(self.grain) + at
    }

    /// The sector of the log at which a segment begins.
    pub(crate) fn segment_start(&self, segment: u32) -> u64 {
        u64::from(segment) * u64::from(self.segment_sectors)
    }

    /// The segment of a sector of the log.
    ///
    /// # Panics
    /// If the log has no such sector.
    pub fn segment_of(&self, at: u64) -> u32 {
        let segment = at / u64::from(self.segment_sectors);
        let segment = u32::try_from(segment).expect("the log has this sector");
        assert!(segment < self.segments, "the log has this sector");
        segment
    }

    /// More records than the log can have at once.
    pub(crate) fn records_limit(&self) -> u64 {
        u64::from(self.segments) * u64::from(self.segment_sectors) / total_sectors(1) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(sectors: u64, segment_sectors: u32) -> Result<LogLayout, RegionError> {
        let region = LogRegion { start: 80, sectors };
        region.cut(segment_sectors)
    }

    #[test]
    fn things_follow_each_other() {
        let layout = cut(16 * 2 + 300 * 64 + 63, 64).unwrap();
        assert_eq!((layout.segments(), layout.anchors()), (300, 2));
        assert_eq!(layout.anchor_home(0, 2), 80);
        assert_eq!(layout.anchor_home(0, 1), 88);
        assert_eq!(layout.anchor_home(1, 7), 104);
        assert_eq!(layout.sector(0), 112);
        assert_eq!(layout.segment_start(299), 299 * 64);
        assert_eq!(layout.segment_of(299 * 64 + 63), 299);
    }

    #[test]
    fn grains_are_kept_whole() {
        let region = LogRegion {
            start: 0,
            sectors: 24 * 4 + 300 * 240,
        };
        let layout = region.cut_in_grains(240, 24).unwrap();
        assert_eq!((layout.segments(), layout.anchors()), (300, 2));
        assert_eq!(layout.anchor_home(1, 7), 72);
        assert_eq!(layout.sector(240), 96 + 240);
        assert_eq!(layout.footprint(1), 24);
        assert_eq!(layout.footprint(17), 48);
        let refused = region.cut_in_grains(244, 24);
        assert_eq!(refused, Err(RegionError::SegmentSectors(244)));
    }

    /// As many as fit, and not one fewer: compared with counting up.
    #[test]
    fn segments_fill_the_region() {
        let needs = |count: u64, segment: u64| {
            count.div_ceil(SEGMENTS_PER_PAGE as u64) * 16 + count * segment
        };
        for segment in [16, 24, 64] {
            let mut count = 0;
            for sectors in 0..9000 {
                while needs(count + 1, segment) <= sectors {
                    count += 1;
                }
                assert_eq!(
                    segments_in(sectors, segment, 16),
                    count,
                    "{sectors} in {segment}"
                );
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let small = RegionError::TooSmall {
            sectors: 143,
            needs: 144,
        };
        assert_eq!(cut(143, 64), Err(small));
        assert_eq!(cut(144, 64).map(|layout| layout.segments()), Ok(2));
        for sectors in [0, 8, 12, 65] {
            assert_eq!(
                cut(1 << 20, sectors),
                Err(RegionError::SegmentSectors(sectors))
            );
        }
        assert!(matches!(
            cut(1 << 40, 16),
            Err(RegionError::TooManySegments(_))
        ));
        for (start, sectors) in [(1, 1 << 20), (u64::MAX - 7, 8), (0, LOG_SECTORS_MAX + 8)] {
            let region = LogRegion { start, sectors };
            assert_eq!(region.cut(64), Err(RegionError::Place(region)));
        }
    }
}
