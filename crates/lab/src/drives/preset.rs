//! Drives by name: TOML in which every number has its source.
//!
//! No maker prints a zone table. So a preset has an outer and an inner density with zones of equal width
//! between them, and the number of cylinders that the capacity needs. Skews are what a write needs to get to
//! the next track: head switch or one-cylinder seek, and the settling after it.

use super::disksim;
use crate::nearest::unknown;
use restripe_sim::disk::flash::{Flash, FlashDrive};
use restripe_sim::disk::geometry::{Layout, Order, Sparing, Zone};
use restripe_sim::disk::mechanical::{
    Ahead, AheadTo, AheadWhen, Bus, Cache, Drive, Mechanical, Mechanism, OnWrite, Overheads,
};
use restripe_sim::disk::power::PowerModel;
use restripe_sim::disk::seek::SeekCurve;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What the command is built with, by name.
const PRESETS: &[(&str, &str)] = texts![
    "../../presets/":
    "st500nm0001", "wd1600aajs", "st3500320as", "st500dm002", "wd1003fbyx", "wd4t7200", "ssd-sata", "unbounded",
];

/// Where a number comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    Measured,
    Printed,
    Assumed,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sourced {
    pub value: f64,
    pub source: Source,
    pub note: String,
}

/// Measured seek times: `[cylinders, ms]`.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeekPoints {
    pub points: Vec<(u32, f64)>,
    pub source: Source,
    pub note: String,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MechanicalPreset {
    pub capacity_blocks: Sourced,
    pub rpm: Sourced,
    pub surfaces: Sourced,
    pub zones: Sourced,
    pub outer_track_blocks: Sourced,
    pub inner_track_blocks: Sourced,
    pub seek_one_ms: Option<Sourced>,
    pub seek_average_ms: Option<Sourced>,
    pub seek_full_ms: Option<Sourced>,
    pub seek_table: Option<SeekPoints>,
    pub head_switch_ms: Sourced,
    pub write_settle_ms: Sourced,
    pub overhead_ms: Sourced,
    pub link_mb_s: Sourced,
    pub segments: Sourced,
    pub segment_blocks: Sourced,
    pub write_segments: Sourced,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlashPreset {
    pub capacity_blocks: Sourced,
    pub page_blocks: Sourced,
    pub channels: Sourced,
    pub read_us: Sourced,
    pub program_us: Sourced,
    pub overhead_us: Sourced,
    pub link_mb_s: Sourced,
    pub write_buffer_pages: Sourced,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PowerPreset {
    pub active_w: Sourced,
    pub seek_w: Sourced,
    pub idle_w: Sourced,
    pub standby_w: Sourced,
    pub spin_up_s: Sourced,
    pub spin_up_j: Sourced,
    pub spin_down_s: Sourced,
    pub spin_down_j: Sourced,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    pub name: String,
    pub summary: String,
    pub mechanical: Option<MechanicalPreset>,
    pub flash: Option<FlashPreset>,
    pub power: Option<PowerPreset>,
    /// All parameters of the model, in place of `mechanical`: of a fitted drive, and of DiskSim's files.
    #[serde(rename = "drive")]
    pub described: Option<Drive>,
}

/// A drive made from a preset.
pub enum Made {
    Mechanical(Box<Mechanical>),
    Flash(Flash),
}

impl Made {
    pub fn blocks(&self) -> u64 {
        match self {
            Made::Mechanical(drive) => drive.geometry().blocks(),
            Made::Flash(drive) => drive.drive().blocks,
        }
    }
}

/// The names that [`named`] knows.
pub fn names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|(name, _)| *name)
}

pub fn named(name: &str) -> Result<Preset, String> {
    let found = PRESETS.iter().find(|(known, _)| *known == name);
    let (_, text) = found.ok_or_else(|| unknown("drive", name, names()))?;
    parse(text)
}

/// A drive by a name that [`named`] knows, or by `file:PATH`: see [`at`].
pub fn of(name: &str) -> Result<Preset, String> {
    match name.strip_prefix("file:") {
        Some(path) => at(Path::new(path)),
        None => named(name),
    }
}

/// The drive that a file describes: a preset in TOML, or DiskSim's `.model` or `.diskspecs`. An error names
/// the file.
pub fn at(path: &Path) -> Result<Preset, String> {
    if !is_disksim(path) {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        return parse(&text).map_err(|e| format!("{}: {e}", path.display()));
    }
    let stem = path.file_stem().map(|stem| stem.to_string_lossy());
    Ok(Preset {
        name: stem.unwrap_or_default().into(),
        summary: "as DiskSim's files describe it".into(),
        mechanical: None,
        flash: None,
        power: None,
        described: Some(disksim::load(path)?),
    })
}

/// The files that the drive at `path` is read from.
pub fn files(path: &Path) -> Result<Vec<PathBuf>, String> {
    match is_disksim(path) {
        true => disksim::files(path),
        false => Ok(vec![path.into()]),
    }
}

fn is_disksim(path: &Path) -> bool {
    let extension = path.extension().and_then(|one| one.to_str());
    matches!(extension, Some("model" | "diskspecs"))
}

/// The file of a drive with all parameters of the model, as a fit gives them. [`at`] reads it.
pub fn described(name: &str, summary: &str, drive: &Drive) -> Result<String, String> {
    #[derive(Serialize)]
    struct Described<'a> {
        name: &'a str,
        summary: &'a str,
        drive: &'a Drive,
    }
    let described = Described {
        name,
        summary,
        drive,
    };
    toml::to_string(&described).map_err(|error| error.to_string())
}

pub fn parse(text: &str) -> Result<Preset, String> {
    toml::from_str(text).map_err(|e| e.to_string())
}

/// A whole number within a range.
fn whole(number: &Sourced, most: u32) -> Result<u32, String> {
    let value = number.value;
    if value.fract() != 0.0 || !(1.0..=f64::from(most)).contains(&value) {
        return Err(format!("{value} is not a whole number from 1 to {most}"));
    }
    Ok(value as u32)
}

fn blocks(number: &Sourced) -> Result<u64, String> {
    if number.value.fract() != 0.0 || !(1.0..=1e15).contains(&number.value) {
        return Err(format!("a drive of {} blocks", number.value));
    }
    Ok(number.value as u64)
}

/// A time of at most an hour, in nanoseconds.
fn ns(number: &Sourced, unit: f64) -> Result<u64, String> {
    let ns = number.value * unit;
    if !(0.0..=3.6e12).contains(&ns) {
        return Err(format!("a time of {} is out of range", number.value));
    }
    Ok(ns.round() as u64)
}

/// Watts to milliwatts, joules to millijoules.
fn thousandths(number: &Sourced) -> Result<u32, String> {
    let value = number.value;
    if !(0.0..=1e6).contains(&value) {
        return Err(format!("a power or energy of {value} is out of range"));
    }
    Ok((value * 1e3).round() as u32)
}

impl Preset {
    pub fn make(&self) -> Result<Made, String> {
        match &self.flash {
            Some(flash) if self.mechanical.is_none() => {
                Ok(Made::Flash(Flash::new(flash.drive()?)?))
            }
            _ => Ok(Made::Mechanical(Box::new(Mechanical::new(self.drive()?)?))),
        }
    }

    /// What a mechanical drive is made of.
    pub fn drive(&self) -> Result<Drive, String> {
        match (&self.mechanical, &self.described, &self.flash) {
            (Some(mechanical), None, None) => mechanical.drive(),
            (None, Some(described), None) => Ok(described.clone()),
            _ => Err(format!(
                "the preset '{}' is neither mechanical nor flash, or both",
                self.name
            )),
        }
    }

    pub fn power(&self) -> Result<Option<PowerModel>, String> {
        self.power.as_ref().map(PowerPreset::model).transpose()
    }
}

impl PowerPreset {
    fn model(&self) -> Result<PowerModel, String> {
        Ok(PowerModel {
            active_mw: thousandths(&self.active_w)?,
            seek_mw: thousandths(&self.seek_w)?,
            idle_mw: thousandths(&self.idle_w)?,
            standby_mw: thousandths(&self.standby_w)?,
            spin_up_ns: ns(&self.spin_up_s, 1e9)?,
            spin_up_mj: u64::from(thousandths(&self.spin_up_j)?),
            spin_down_ns: ns(&self.spin_down_s, 1e9)?,
            spin_down_mj: u64::from(thousandths(&self.spin_down_j)?),
            timer_ns: None,
        })
    }
}

impl FlashPreset {
    pub fn drive(&self) -> Result<FlashDrive, String> {
        Ok(FlashDrive {
            blocks: blocks(&self.capacity_blocks)?,
            page_blocks: whole(&self.page_blocks, 1 << 16)?,
            channels: whole(&self.channels, 4096)?,
            read_ns: ns(&self.read_us, 1e3)?,
            program_ns: ns(&self.program_us, 1e3)?,
            overhead_ns: ns(&self.overhead_us, 1e3)?,
            link_rate: u64::from(whole(&self.link_mb_s, 1 << 20)?) * 1_000_000,
            write_buffer_pages: whole(&self.write_buffer_pages, 1 << 20)?,
        })
    }
}

impl MechanicalPreset {
    pub fn drive(&self) -> Result<Drive, String> {
        let turn_ns = 60_000_000_000 / u64::from(whole(&self.rpm, 100_000)?);
        let layout = self.layout(turn_ns)?;
        let overhead = ns(&self.overhead_ms, 1e6)?;
        let block_ns = 512_000 / u64::from(whole(&self.link_mb_s, 1 << 20)?);
        Ok(Drive {
            mechanism: Mechanism {
                seek: self.seek(layout.cylinders)?,
                head_switch_ns: ns(&self.head_switch_ms, 1e6)?,
                write_settle_ns: ns(&self.write_settle_ms, 1e6)?.cast_signed(),
                zero_latency: true,
            },
            layout,
            bus: Bus {
                read_block_ns: block_ns,
                write_block_ns: block_ns,
                read_mark: 0,
                write_mark: 0,
            },
            overheads: Overheads {
                read_hit_ns: [overhead; 2],
                read_miss_ns: [overhead; 2],
                write_cached_ns: [overhead; 2],
                write_through_ns: [overhead; 2],
                read_done_ns: 0,
                write_done_ns: 0,
            },
            cache: self.cache()?,
        })
    }

    fn cache(&self) -> Result<Cache, String> {
        let segment_blocks = whole(&self.segment_blocks, 1 << 20)?;
        Ok(Cache {
            segments: whole(&self.segments, 2048)?,
            segment_blocks,
            ahead: Ahead {
                to: AheadTo::SegmentFull,
                when: AheadWhen::Always,
                blocks: segment_blocks,
                over_requested: true,
                follows_hits: true,
            },
            on_write: OnWrite::DropAll,
            write_back: true,
            write_segments: whole(&self.write_segments, 2048)?,
            write_delay_ns: 0,
            reads_hit_writes: true,
        })
    }

    /// Zones of equal width from the outer density to the inner, on as many cylinders as the capacity needs.
    fn layout(&self, turn_ns: u64) -> Result<Layout, String> {
        let capacity = blocks(&self.capacity_blocks)?;
        let surfaces = whole(&self.surfaces, 64)?;
        let zones = whole(&self.zones, 256)?;
        let outer = whole(&self.outer_track_blocks, 1 << 16)?;
        let inner = whole(&self.inner_track_blocks, outer)?;
        let slots = |zone: u32| outer - (outer - inner) * zone / (zones - 1).max(1);
        let on_one = (0..zones).map(|zone| u64::from(slots(zone)) * u64::from(surfaces));
        let too_many = "the drive has too many cylinders";
        let width = capacity.div_ceil(on_one.sum());
        let width = u32::try_from(width).map_err(|_| too_many)?;
        let zone = |zone: u32| self.zone(zone, width, slots(zone), turn_ns);
        Ok(Layout {
            surfaces,
            cylinders: width.checked_mul(zones).ok_or(too_many)?,
            turn_ns,
            order: Order::SerpentineByParity,
            zones: (0..zones).map(zone).collect::<Result<_, _>>()?,
            blocks: capacity,
        })
    }

    fn zone(&self, zone: u32, width: u32, slots: u32, turn_ns: u64) -> Result<Zone, String> {
        let slot_ms = turn_ns as f64 / 1e6 / f64::from(slots);
        let switch_ms = self.head_switch_ms.value;
        // The angle of a slot is rounded down: a track that begins a hair late is not missed.
        let skew = |ms: f64| ((ms + self.write_settle_ms.value + 1e-5) / slot_ms).ceil();
        Ok(Zone {
            first_cylinder: zone * width,
            last_cylinder: (zone + 1) * width - 1,
            slots_per_track: slots,
            offset: 0.0,
            front: 0,
            track_skew: skew(switch_ms),
            cylinder_skew: skew(switch_ms.max(self.one_cylinder_ms()?)),
            sparing: Sparing::None,
            slips: Vec::new(),
        })
    }

    fn one_cylinder_ms(&self) -> Result<f64, String> {
        let table = self.seek_table.as_ref();
        let point = table.and_then(|table| table.points.first());
        let ms = point.map(|(_, ms)| *ms);
        let ms = ms.or(self.seek_one_ms.as_ref().map(|ms| ms.value));
        ms.ok_or("the drive has no seek time".into())
    }

    /// The table, or the curve through one cylinder, the average (at a third of the way) and the full stroke.
    fn seek(&self, cylinders: u32) -> Result<SeekCurve, String> {
        if let Some(table) = &self.seek_table {
            let point = |(distance, ms): &(u32, f64)| (*distance, (ms * 1e6).round() as u64);
            return Ok(SeekCurve::Table(table.points.iter().map(point).collect()));
        }
        let (Some(one), Some(average), Some(full)) =
            (&self.seek_one_ms, &self.seek_average_ms, &self.seek_full_ms)
        else {
            return Err(
                "the drive has neither a seek table nor one, average and full seek times".into(),
            );
        };
        let knee = (cylinders / 3).max(2);
        let root_ms = (average.value - one.value) / (f64::from(knee).sqrt() - 1.0);
        Ok(SeekCurve::RootLine {
            base_ns: (one.value - root_ms) * 1e6,
            root_ns: root_ms * 1e6,
            knee,
            slope_ns: (full.value - average.value) * 1e6 / f64::from((cylinders - knee).max(1)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_with_all_parameters_is_read_as_it_was_written() {
        for name in ["st500nm0001", "wd1003fbyx"] {
            let preset = named(name).expect("built in");
            let mut drive = preset.mechanical.expect("it is").drive().expect("sound");
            drive.layout.zones[0].offset = 0.1 + 0.2;
            let text = described("fitted", "fitted to a trace", &drive).expect("it can be written");
            let read = parse(&text).expect("ours");
            assert_eq!(
                (read.name.as_str(), read.described),
                ("fitted", Some(drive))
            );
        }
    }
}
