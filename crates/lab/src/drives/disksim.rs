//! A drive from DiskSim's description of it: what its `.model`, `.diskspecs` and `.seek` say, in our terms.

use super::source::{Value, parse, seek_points};
use restripe_sim::disk::geometry::{Layout, Order, Sparing, Zone};
use restripe_sim::disk::mechanical::{
    Ahead, AheadTo, AheadWhen, Bus, Cache, Drive, Mechanism, OnWrite, Overheads,
};
use restripe_sim::disk::seek::SeekCurve;
use std::path::Path;

/// Reads the drive whose model file is `path`, with the `.diskspecs` and the `.seek` beside it.
pub fn load(path: &Path) -> Result<Drive, String> {
    let read =
        |path: &Path| std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()));
    let model = read(path)?;
    let specs = read(&path.with_extension("diskspecs"))?;
    let seek = read(&path.with_extension("seek"))?;
    drive(&model, &specs, &seek).map_err(|e| format!("{}: {e}", path.display()))
}

/// The drive that the texts of the three files describe.
pub fn drive(model: &str, specs: &str, seek: &str) -> Result<Drive, String> {
    let (model, specs) = (parse(model)?, parse(specs)?);
    let mechanics = model
        .field("Mechanical Model")
        .ok_or("there is no 'Mechanical Model'")?;
    let turns = mechanics.number("Rotation speed (in rpms)")?;
    if !(100.0..=100_000.0).contains(&turns) {
        return Err(format!("{turns} turns a minute"));
    }
    Ok(Drive {
        layout: layout(&model, (60e9 / turns).round() as u64)?,
        mechanism: Mechanism {
            seek: SeekCurve::Table(seek_points(seek)?),
            head_switch_ns: millis(mechanics, "Head switch time")?,
            write_settle_ns: millis(mechanics, "Add. write settling delay")?,
            zero_latency: specs.number_or("Read any free blocks", 0.0)? > 0.0,
        },
        bus: bus(&specs)?,
        overheads: overheads(&specs)?,
        cache: cache(&specs)?,
    })
}

fn millis(value: &Value, name: &str) -> Result<u64, String> {
    let ms = value.number(name)?;
    if !(0.0..10_000.0).contains(&ms) {
        return Err(format!("'{name}' is {ms} ms"));
    }
    Ok((ms * 1e6).round() as u64)
}

fn layout(model: &Value, turn_ns: u64) -> Result<Layout, String> {
    let layout = model
        .field("Layout Model")
        .ok_or("there is no 'Layout Model'")?;
    let scheme = layout.whole("Sparing scheme used")?;
    let range = layout.whole("Rangesize for sparing")?;
    let zones = layout
        .list("Zones")?
        .iter()
        .map(|value| zone(value, scheme, range));
    Ok(Layout {
        surfaces: model.whole("Number of data surfaces")?,
        cylinders: model.whole("Number of cylinders")?,
        turn_ns,
        order: match layout.whole("LBN-to-PBN mapping scheme")? {
            0 => Order::Forward,
            1 => Order::Serpentine,
            2 => Order::SerpentineByParity,
            other => return Err(format!("mapping scheme {other} is unknown")),
        },
        zones: zones.collect::<Result<_, _>>()?,
        blocks: u64::from(model.whole("Block count")?),
    })
}

fn zone(value: &Value, scheme: u32, range: u32) -> Result<Zone, String> {
    let mut slips = value.numbers("slips")?;
    slips.sort_unstable();
    slips.dedup();
    Ok(Zone {
        first_cylinder: value.whole("First cylinder number")?,
        last_cylinder: value.whole("Last cylinder number")?,
        slots_per_track: value.whole("Blocks per track")?,
        offset: value.number("Offset of first block")?,
        front: u64::from(value.whole("Empty space at zone front")?),
        track_skew: value.number("Skew for track switch")?,
        cylinder_skew: value.number("Skew for cylinder switch")?,
        sparing: sparing(scheme, value.whole("Number of spares")?, range)?,
        slips,
    })
}

/// The numbers are those of the DiskSim 4.0 reference manual, "Sparing scheme used".
fn sparing(scheme: u32, spares: u32, range: u32) -> Result<Sparing, String> {
    Ok(match scheme {
        0 | 7 => Sparing::None,
        1 => Sparing::Tracks(spares),
        2 | 4 => Sparing::CylinderEnd(spares),
        3 => Sparing::TrackEnd(spares),
        5 | 6 => Sparing::CylinderFront(spares),
        8 => Sparing::Range {
            cylinders: range.max(1),
            spares,
        },
        9 | 10 => Sparing::Zone(spares),
        other => return Err(format!("sparing scheme {other} is unknown")),
    })
}

fn bus(specs: &Value) -> Result<Bus, String> {
    let block = millis(specs, "Bulk sector transfer time")?;
    Ok(Bus {
        read_block_ns: block,
        write_block_ns: block,
        after_all: specs.number("High (read) water mark")? >= 1.0,
    })
}

fn overheads(specs: &Value) -> Result<Overheads, String> {
    let pair = |what: &str| -> Result<[u64; 2], String> {
        Ok([
            millis(specs, &format!("{what} over. after read"))?,
            millis(specs, &format!("{what} over. after write"))?,
        ])
    };
    Ok(Overheads {
        read_hit_ns: pair("Read hit")?,
        read_miss_ns: pair("Read miss")?,
        write_cached_ns: pair("Write miss")?,
        write_through_ns: pair("Write miss")?,
        read_done_ns: millis(specs, "Read completion overhead")?,
        write_done_ns: millis(specs, "Write completion overhead")?,
    })
}

fn cache(specs: &Value) -> Result<Cache, String> {
    Ok(Cache {
        segments: specs.whole("Number of buffer segments")?,
        segment_blocks: specs.whole("Segment size (in blks)")?,
        ahead: ahead(specs)?,
        on_write: OnWrite::KeepTail,
        write_back: specs.whole("Fast write level")? > 0,
        write_segments: specs.whole("Maximum number of write segments")?,
        write_delay_ns: 0,
        reads_hit_writes: specs.whole("Allow read hits on write data")? > 0,
    })
}

fn ahead(specs: &Value) -> Result<Ahead, String> {
    let over_requested = specs.number_or("Read-ahead over requested", 0.0)? > 0.0;
    Ok(Ahead {
        to: match specs.whole("Buffer continuous read")? {
            0 => AheadTo::Nowhere,
            1 => AheadTo::TrackEnd,
            2 | 3 => AheadTo::CylinderEnd,
            _ => AheadTo::SegmentFull,
        },
        when: AheadWhen::Always,
        blocks: specs.whole("Maximum read-ahead (blks)")?,
        over_requested,
        follows_hits: over_requested,
    })
}
