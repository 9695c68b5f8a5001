//! A drive from DiskSim's description of it: what its `.model`, `.diskspecs` and `.seek` say, in our terms.

use super::source::{Value, parse, seek_points};
use restripe_sim::disk::geometry::{Layout, Order, Sparing, Zone};
use restripe_sim::disk::mechanical::{
    Ahead, AheadTo, AheadWhen, Bus, Cache, Drive, Mechanism, OnWrite, Overheads,
};
use restripe_sim::disk::seek::SeekCurve;
use std::path::{Path, PathBuf};

/// Reads a drive of DiskSim. `path` is its `.model`, with the `.diskspecs` next to it, which may be named
/// without `_validate`; or its `.diskspecs`, which names the model. The `.seek` is the one that the model
/// names, or one of the model's own name.
pub fn load(path: &Path) -> Result<Drive, String> {
    let files = Files::of(path)?;
    drive(&files.model, &files.specs, &files.seek).map_err(|e| format!("{}: {e}", path.display()))
}

/// The files of a drive at `path`: what a run that uses the drive hangs on.
pub fn files(path: &Path) -> Result<Vec<PathBuf>, String> {
    Ok(Files::of(path)?.paths)
}

/// The texts of a drive's files.
struct Files {
    model: String,
    specs: String,
    /// Empty where the model has a formula.
    seek: String,
    paths: Vec<PathBuf>,
}

impl Files {
    fn of(path: &Path) -> Result<Files, String> {
        let (model_path, specs_path) = pair(path)?;
        let (model, specs) = (read(&model_path)?, read(&specs_path)?);
        let mut paths = vec![model_path.clone(), specs_path];
        let parsed = parse(&model).map_err(|e| format!("{}: {e}", model_path.display()))?;
        let mut seek = String::new();
        if is_extracted(&parsed) {
            let named = parsed.field("Mechanical Model");
            let named = named.and_then(|one| one.text("Full seek curve").ok());
            let named = named.map(|name| model_path.with_file_name(name));
            let seek_path = named.filter(|path| path.is_file());
            let seek_path = seek_path.unwrap_or(model_path.with_extension("seek"));
            seek = read(&seek_path)?;
            paths.push(seek_path);
        }
        Ok(Files {
            model,
            specs,
            seek,
            paths,
        })
    }
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// The paths of the model and of the specifications.
fn pair(path: &Path) -> Result<(PathBuf, PathBuf), String> {
    if path.extension().is_some_and(|one| one == "diskspecs") {
        let specs = parse(&read(path)?).map_err(|e| format!("{}: {e}", path.display()))?;
        let named = specs.text("Model").ok();
        let named = named.and_then(|text| text.strip_prefix("source "));
        let named = named.map(|name| path.with_file_name(name.trim()));
        let model = named.filter(|path| path.is_file());
        return Ok((model.unwrap_or(path.with_extension("model")), path.into()));
    }
    let own = path.with_extension("diskspecs");
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    let shorter = stem.and_then(|stem| stem.strip_suffix("_validate"));
    let shorter = shorter.map(|stem| path.with_file_name(format!("{stem}.diskspecs")));
    let specs = shorter.filter(|path| !own.is_file() && path.is_file());
    Ok((path.into(), specs.unwrap_or(own)))
}

fn is_extracted(model: &Value) -> bool {
    let mechanics = model.field("Mechanical Model");
    let kind = mechanics.and_then(|one| one.text("Seek type").ok());
    kind.is_none_or(|kind| kind == "extracted")
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
    let layout = layout(&model, (60e9 / turns).round() as u64)?;
    Ok(Drive {
        mechanism: Mechanism {
            seek: match is_extracted(&model) {
                true => SeekCurve::Table(seek_points(seek)?),
                false => formula(mechanics, layout.cylinders)?,
            },
            head_switch_ns: millis(mechanics, "Head switch time")?,
            write_settle_ns: settling(mechanics)?,
            zero_latency: specs.number_or("Read any free blocks", 0.0)? > 0.0,
        },
        layout,
        bus: bus(&specs)?,
        overheads: overheads(&specs)?,
        cache: cache(&specs)?,
    })
}

/// May be below 0: then a write is on its track before a read.
fn settling(mechanics: &Value) -> Result<i64, String> {
    let name = "Add. write settling delay";
    let ms = mechanics.number(name)?;
    if !(-1_000.0..10_000.0).contains(&ms) {
        return Err(format!("'{name}' is {ms} ms"));
    }
    Ok((ms * 1e6).round() as i64)
}

/// Seek times that the model gives by formula (DiskSim 4.0 reference manual, "Seek type"), as a point for
/// each distance.
fn formula(mechanics: &Value, cylinders: u32) -> Result<SeekCurve, String> {
    let equation = || -> Result<[f64; 6], String> {
        let values = mechanics.numbers("HPL seek equation values")?;
        let six = values.try_into();
        six.map_err(|_| "the 'HPL seek equation values' are six".into())
    };
    let ms: Box<dyn Fn(f64) -> f64> = match mechanics.text("Seek type")? {
        "constant" => {
            let constant = mechanics.number("Constant seek time")?;
            Box::new(move |_| constant)
        }
        "curve" => {
            let one = mechanics.number("Single cylinder seek time")?;
            let average = mechanics.number("Average seek time")?;
            let full = mechanics.number("Full strobe seek time")?;
            Box::new(move |far| one + average * (far - 1.0) + full * (far - 1.0).sqrt())
        }
        "hpl" => {
            let equation = equation()?;
            Box::new(move |far| match far == 1.0 && equation[5] != -1.0 {
                true => equation[5],
                false => ruemmler(&equation, far),
            })
        }
        "hplplus10" => {
            let equation = equation()?;
            let first: Vec<f64> = mechanics.numbers("First ten seek times")?;
            if first.len() < 10 {
                return Err("the 'First ten seek times' are ten".into());
            }
            Box::new(move |far| match first.get(far as usize - 1) {
                Some(ms) if far <= 10.0 => *ms,
                _ => ruemmler(&equation, far),
            })
        }
        other => return Err(format!("the seek type '{other}' is not known")),
    };
    let point = |distance| match ms(f64::from(distance)) {
        ms if (0.0..10_000.0).contains(&ms) => Ok((distance, (ms * 1e6).round() as u64)),
        ms => Err(format!("a seek over {distance} cylinders takes {ms} ms")),
    };
    let points = (1..cylinders.max(2)).map(point);
    Ok(SeekCurve::Table(points.collect::<Result<_, _>>()?))
}

/// A root below a distance, and from there a line (Ruemmler and Wilkes 1994, section 3).
fn ruemmler(equation: &[f64; 6], distance: f64) -> f64 {
    match distance < equation[0] {
        true => equation[1] + equation[2] * distance.sqrt(),
        false => equation[3] + equation[4] * distance,
    }
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
    let zones = layout.list("Zones")?.iter();
    let zones: Vec<Zone> = zones
        .map(|value| zone(value, scheme, range))
        .collect::<Result<_, _>>()?;
    // DiskSim takes a zone at its word where it ends behind the number of cylinders.
    let last = zones.iter().map(|zone| zone.last_cylinder).max();
    let cylinders = last.map_or(0, |last| last.saturating_add(1));
    Ok(Layout {
        surfaces: model.whole("Number of data surfaces")?,
        cylinders: model.whole("Number of cylinders")?.max(cylinders),
        turn_ns,
        order: match layout.whole("LBN-to-PBN mapping scheme")? {
            0 => Order::Forward,
            1 => Order::Serpentine,
            2 => Order::SerpentineByParity,
            other => return Err(format!("mapping scheme {other} is unknown")),
        },
        zones,
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
    let mark = |name: &str| match specs.number_or(name, 0.0)? {
        share if (0.0..=1.0).contains(&share) => Ok((share * 100.0).round() as u32),
        share => Err(format!("'{name}' is {share}, not a share")),
    };
    Ok(Bus {
        read_block_ns: block,
        write_block_ns: block,
        read_mark: mark("High (read) water mark")?,
        write_mark: mark("Low (write) water mark")?,
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
