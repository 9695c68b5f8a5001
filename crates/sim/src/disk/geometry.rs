//! The location of the blocks of a mechanical drive: cylinder, surface, slot on the track, and angle.
//!
//! Blocks are numbered zone by zone, cylinder by cylinder, track by track. Angles are nanoseconds of
//! rotation, so that no fraction accumulates: slot `s` of a track of `n` slots begins `s * turn / n` after
//! the track's start.

use serde::{Deserialize, Serialize};

/// Where spare slots are, and whether slots skipped over as defective use them up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum Sparing {
    /// No spares within the zone: each slipped slot moves all that follows in the zone.
    None,
    /// Whole tracks at the end of the zone. A track with a defect is slipped whole.
    Tracks(u32),
    /// Slots at the end of each track.
    TrackEnd(u32),
    /// Slots at the end of each cylinder.
    CylinderEnd(u32),
    /// Slots at the front of each cylinder.
    CylinderFront(u32),
    /// Slots at the end of each range of so many cylinders.
    Range { cylinders: u32, spares: u32 },
    /// Slots at the end of the zone.
    Zone(u32),
}

/// In which order the tracks of a cylinder are numbered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum Order {
    /// From the first surface to the last on every cylinder.
    Forward,
    /// Back and forth, so that a change of cylinder needs no change of surface; anew in each zone.
    Serpentine,
    /// Back and forth by the parity of the cylinder.
    SerpentineByParity,
}

/// Cylinders of one density.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub struct Zone {
    pub first_cylinder: u32,
    pub last_cylinder: u32,
    pub slots_per_track: u32,
    /// The angle of the zone's first slot, in slots.
    pub offset: f64,
    /// Slots at the zone's front that hold no blocks.
    pub front: u64,
    /// From a track's start to the next track's on the same cylinder, in slots.
    pub track_skew: f64,
    /// From the last track's start to the next cylinder's first.
    pub cylinder_skew: f64,
    pub sparing: Sparing,
    /// Slots of the zone that are skipped over, sorted; with spare tracks: tracks of the zone.
    pub slips: Vec<u64>,
}

/// What a drive's platters look like.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub struct Layout {
    pub surfaces: u32,
    pub cylinders: u32,
    /// Of one turn.
    pub turn_ns: u64,
    pub order: Order,
    pub zones: Vec<Zone>,
    /// Blocks the drive says it has.
    pub blocks: u64,
}

/// Where a block is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    pub cylinder: u32,
    pub surface: u32,
    pub slots_per_track: u32,
    /// Where the block begins: nanoseconds of rotation, below the turn.
    pub angle_ns: u64,
    /// Blocks from this one on that follow one another without a gap on this track.
    pub run: u32,
    /// Slots of this track before the block's that are its neighbours: what a head that arrives early may read.
    pub before: u32,
}

struct Map {
    zone: Zone,
    first_block: u64,
    /// `slips[i] - i`, for a search by block.
    thresholds: Vec<u64>,
    /// Nanoseconds of rotation, times 2^16.
    offset: u64,
    track_skew: u64,
    /// All the skew of a whole cylinder: its tracks' and the change to the next.
    cylinder_turn: u64,
}

/// The layout, made fast to ask.
pub struct Geometry {
    layout: Layout,
    maps: Vec<Map>,
    first_blocks: Vec<u64>,
    blocks: u64,
}

const FRACTION: u32 = 16;

impl Geometry {
    pub fn new(layout: Layout) -> Result<Geometry, String> {
        check(&layout)?;
        let mut maps = Vec::new();
        let mut next = 0;
        for zone in &layout.zones {
            let at = zone.first_cylinder;
            let none = || format!("the zone at cylinder {at} holds less than nothing");
            let count = zone_blocks(zone, layout.surfaces).ok_or_else(none)?;
            maps.push(Map::new(zone.clone(), next, &layout));
            next += count;
        }
        let first_blocks = maps.iter().map(|map| map.first_block).collect();
        Ok(Geometry {
            blocks: next.min(layout.blocks.max(1)),
            first_blocks,
            maps,
            layout,
        })
    }

    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// What the zones hold, whatever the drive says it has.
    pub fn capacity(&self) -> u64 {
        let last = self.maps.last().expect("checked: a drive has zones");
        last.first_block + zone_blocks(&last.zone, self.layout.surfaces).expect("checked")
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub fn turn_ns(&self) -> u64 {
        self.layout.turn_ns
    }

    /// The zone that holds a block.
    pub fn zone_of(&self, block: u64) -> usize {
        self.first_blocks.partition_point(|first| *first <= block) - 1
    }

    pub fn locate(&self, block: u64) -> Place {
        let map = &self.maps[self.zone_of(block)];
        let (slot, run) = map.slot(block - map.first_block, self.layout.surfaces);
        let zone = &map.zone;
        let slots = u64::from(zone.slots_per_track);
        let (track, in_track) = (slot / slots, slot % slots);
        let surfaces = u64::from(self.layout.surfaces);
        let (cylinder, nth) = (track / surfaces, track % surfaces);
        let skew = map.offset + cylinder * map.cylinder_turn + nth * map.track_skew;
        let angle = (skew >> FRACTION) + in_track * self.layout.turn_ns / slots;
        Place {
            cylinder: zone.first_cylinder + cylinder as u32,
            surface: self.surface(zone, cylinder as u32, nth as u32),
            slots_per_track: zone.slots_per_track,
            angle_ns: angle % self.layout.turn_ns,
            run: run.min(slots - in_track) as u32,
            before: in_track.min(block - map.first_block) as u32,
        }
    }

    fn surface(&self, zone: &Zone, cylinder: u32, nth: u32) -> u32 {
        let backward = match self.layout.order {
            Order::Forward => false,
            Order::Serpentine => cylinder % 2 == 1,
            Order::SerpentineByParity => (zone.first_cylinder + cylinder) % 2 == 1,
        };
        if backward {
            self.layout.surfaces - 1 - nth
        } else {
            nth
        }
    }
}

impl Map {
    fn new(zone: Zone, first_block: u64, layout: &Layout) -> Map {
        let slot = layout.turn_ns as f64 / f64::from(zone.slots_per_track);
        let scaled = |slots: f64| (slots * slot * f64::from(1u32 << FRACTION)).round() as u64;
        let turn = layout.turn_ns << FRACTION;
        let track_skew = scaled(zone.track_skew) % turn;
        let cylinder_turn =
            track_skew * u64::from(layout.surfaces - 1) + scaled(zone.cylinder_skew);
        Map {
            offset: scaled(zone.offset) % turn,
            track_skew,
            cylinder_turn: cylinder_turn % turn,
            thresholds: zone
                .slips
                .iter()
                .enumerate()
                .map(|(i, slip)| slip.saturating_sub(i as u64))
                .collect(),
            zone,
            first_block,
        }
    }

    /// The slot of the zone's `index`-th block, and how many blocks from there follow without a gap.
    fn slot(&self, index: u64, surfaces: u32) -> (u64, u64) {
        let track = u64::from(self.zone.slots_per_track);
        let cylinder = track * u64::from(surfaces);
        let (unit, front, spares) = match self.zone.sparing {
            Sparing::None | Sparing::Zone(_) => return self.slipped(index + self.zone.front),
            Sparing::Tracks(_) => {
                let slot = index + self.zone.front;
                let (nth, _) = self.slipped(slot / track);
                return (nth * track + slot % track, track - slot % track);
            }
            Sparing::TrackEnd(spares) => (track, 0, spares),
            Sparing::CylinderEnd(spares) => (cylinder, 0, spares),
            Sparing::CylinderFront(spares) => (cylinder, u64::from(spares), spares),
            Sparing::Range { cylinders, spares } => (cylinder * u64::from(cylinders), 0, spares),
        };
        let index = index + self.zone.front;
        let data = unit - u64::from(spares);
        let start = index / data * unit;
        let (slot, run) = self.slipped_within(start, start + front + index % data);
        (slot, run.min(data - index % data))
    }

    /// Slips anywhere before a slot, or a track, move it.
    fn slipped(&self, slot: u64) -> (u64, u64) {
        let before = (self.thresholds).partition_point(|threshold| *threshold <= slot);
        let next = self.thresholds.get(before);
        let run = next.map_or(u64::MAX, |next| next - slot);
        (slot + before as u64, run)
    }

    /// Only slips of the same unit, which begins at `start`, move a block: each unit has its own spares.
    fn slipped_within(&self, start: u64, slot: u64) -> (u64, u64) {
        let slips = &self.zone.slips;
        let from = slips.partition_point(|slip| *slip < start);
        let mut slot = slot;
        for slip in &slips[from..] {
            if *slip > slot {
                return (slot, slip - slot);
            }
            slot += 1;
        }
        (slot, u64::MAX)
    }
}

fn zone_blocks(zone: &Zone, surfaces: u32) -> Option<u64> {
    let cylinders = u64::from(zone.last_cylinder - zone.first_cylinder + 1);
    let track = u64::from(zone.slots_per_track);
    let tracks = cylinders * u64::from(surfaces);
    let slips = zone.slips.len() as u64;
    let lost = match zone.sparing {
        Sparing::None => slips,
        Sparing::Tracks(spares) => u64::from(spares) * track,
        Sparing::TrackEnd(spares) => u64::from(spares) * tracks,
        Sparing::CylinderEnd(spares) | Sparing::CylinderFront(spares) => {
            u64::from(spares) * cylinders
        }
        Sparing::Range {
            cylinders: range,
            spares,
        } => cylinders.div_ceil(u64::from(range)) * u64::from(spares),
        Sparing::Zone(spares) => u64::from(spares),
    };
    (tracks * track).checked_sub(lost)?.checked_sub(zone.front)
}

fn check(layout: &Layout) -> Result<(), String> {
    if layout.surfaces == 0
        || layout.surfaces > 64
        || layout.turn_ns == 0
        || layout.turn_ns > 1_000_000_000
    {
        return Err("a drive has 1 to 64 surfaces and turns at least once a second".into());
    }
    if layout.zones.is_empty() {
        return Err("a drive has at least one zone".into());
    }
    let mut next = 0;
    for zone in &layout.zones {
        if zone.first_cylinder < next
            || zone.last_cylinder < zone.first_cylinder
            || zone.last_cylinder >= layout.cylinders
        {
            let at = zone.first_cylinder;
            return Err(format!("the zone at cylinder {at} is out of place"));
        }
        next = zone.last_cylinder + 1;
        check_zone(zone, layout)?;
    }
    Ok(())
}

fn check_zone(zone: &Zone, layout: &Layout) -> Result<(), String> {
    let at = zone.first_cylinder;
    let track = zone.slots_per_track;
    if track == 0 || u64::from(track) > layout.turn_ns / 8 {
        return Err(format!(
            "the zone at cylinder {at} has {track} blocks on a track"
        ));
    }
    let skews = [zone.offset, zone.track_skew, zone.cylinder_skew];
    if skews.iter().any(|skew| !(0.0..=1e6).contains(skew)) {
        return Err(format!("the zone at cylinder {at} has a skew out of range"));
    }
    if zone.slips.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Err(format!(
            "the slips of the zone at cylinder {at} are not sorted"
        ));
    }
    let cylinder = u64::from(track) * u64::from(layout.surfaces);
    let (unit, spares) = match zone.sparing {
        Sparing::TrackEnd(spares) => (u64::from(track), spares),
        Sparing::CylinderEnd(spares) | Sparing::CylinderFront(spares) => (cylinder, spares),
        Sparing::Range { cylinders, spares } => (cylinder * u64::from(cylinders), spares),
        Sparing::Tracks(spares) if zone.slips.len() > spares as usize => {
            return Err(format!(
                "the zone at cylinder {at} has more tracks with defects than spare tracks"
            ));
        }
        Sparing::None | Sparing::Tracks(_) | Sparing::Zone(_) => return Ok(()),
    };
    if u64::from(spares) >= unit {
        return Err(format!("the zone at cylinder {at} has nothing but spares"));
    }
    Ok(())
}
