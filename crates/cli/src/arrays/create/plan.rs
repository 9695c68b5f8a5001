//! The plan of a new set: what is asked for as options of the engine, and the writes that it plans.

use crate::args::config::ArrayConfig;
use crate::args::{InitName, LevelName, RotationName, WriteHoleName};
use crate::arrays::create::skew;
use crate::arrays::member::random_uuid;
use crate::failure::{Failure, Outcome};
use restripe_array::layout::{Level, Rotation};
use restripe_array::meta::{CreateError, CreateOptions, Creation, Init, WriteHole};
use restripe_array::{SECTOR_BYTES, Uuid};
use restripe_io::plain::Plain;
use std::time::{SystemTime, UNIX_EPOCH};

const CHUNK_BYTES: u64 = 64 << 10;

pub(crate) fn planned(options: &CreateOptions, members: &[String]) -> Outcome<Creation> {
    restripe_array::meta::create(options).map_err(|error| create_failure(&error, members))
}

pub(crate) fn options(wanted: &ArrayConfig, members: &[Plain]) -> Outcome<CreateOptions> {
    let level = level(wanted)?;
    let chunk_sectors = chunk_sectors(wanted)?;
    let mut options = CreateOptions::new(&wanted.name, random_uuid()?, level, chunk_sectors);
    options.created = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs());
    options.members = members.iter().map(Plain::info).collect();
    options.uuids = members
        .iter()
        .map(|_| random_uuid())
        .collect::<Outcome<Vec<Uuid>>>()?;
    options.spares = wanted.spares.unwrap_or(0);
    options.geometry.skew = skew::skew(wanted)?;
    options.spare_partitions = wanted.spare_partitions.unwrap_or(0);
    options.size_per_member = sectors(wanted.size_per_member, "--size-per-member")?;
    options.slack = !wanted.no_slack;
    options.data_offset = sectors(wanted.data_offset, "--data-offset")?;
    options.lend_sectors = sectors(wanted.lend, "--lend")?;
    if let Some(init) = wanted.init {
        options.init = match init {
            InitName::Lazy => Init::Written,
            InitName::Sync => Init::Sync,
            InitName::Zero => Init::Zero,
            InitName::AssumeClean => Init::Trust,
        };
    }
    if let Some(write_hole) = wanted.write_hole {
        options.write_hole = match write_hole {
            WriteHoleName::Ppl => WriteHole::Ppl,
            WriteHoleName::Bitmap => WriteHole::Bitmap,
            WriteHoleName::None => WriteHole::None,
        };
    }
    Ok(options)
}

fn level(wanted: &ArrayConfig) -> Outcome<Level> {
    let rotation = match wanted.rotation.unwrap_or(RotationName::LeftSymmetric) {
        RotationName::LeftSymmetric => Rotation::LeftSymmetric,
        RotationName::LeftAsymmetric => Rotation::LeftAsymmetric,
        RotationName::RightSymmetric => Rotation::RightSymmetric,
        RotationName::RightAsymmetric => Rotation::RightAsymmetric,
        RotationName::ParityFirst => Rotation::ParityFirst,
        RotationName::ParityLast => Rotation::ParityLast,
    };
    let level = match wanted
        .level
        .ok_or_else(|| Failure::usage("the array needs a level"))?
    {
        LevelName::Raid0 => Level::Raid0,
        LevelName::Raid1 => Level::Raid1,
        LevelName::Raid4 => Level::Raid4,
        LevelName::Raid5 => Level::Raid5(rotation),
        LevelName::Raid6 => Level::Raid6(rotation),
        LevelName::Raid10 => Level::Raid10 {
            copies: wanted.copies.unwrap_or(2),
        },
        LevelName::ReedSolomon(parities) => Level::ReedSolomon { parities },
    };
    let rotates = matches!(level, Level::Raid5(_) | Level::Raid6(_));
    if wanted.rotation.is_some() && !rotates {
        return Err(Failure::usage(format!("{level} has no rotation")).hint("omit --rotation"));
    }
    if wanted.copies.is_some() && !matches!(level, Level::Raid10 { .. }) {
        return Err(
            Failure::usage(format!("{level} has no number of copies")).hint("omit --copies")
        );
    }
    Ok(level)
}

fn chunk_sectors(wanted: &ArrayConfig) -> Outcome<u32> {
    let sectors =
        sectors(Some(wanted.chunk.unwrap_or(CHUNK_BYTES)), "--chunk")?.unwrap_or_default();
    u32::try_from(sectors).map_err(|_| Failure::usage("a chunk is at most 4M"))
}

fn sectors(bytes: Option<u64>, option: &str) -> Outcome<Option<u64>> {
    match bytes {
        Some(bytes) if !bytes.is_multiple_of(SECTOR_BYTES) => Err(Failure::usage(format!(
            "{option} must be a multiple of {SECTOR_BYTES} bytes"
        ))),
        bytes => Ok(bytes.map(|bytes| bytes / SECTOR_BYTES)),
    }
}

fn create_failure(error: &CreateError, members: &[String]) -> Failure {
    let failure = Failure::new(format!("the array cannot be created: {error}"));
    match error {
        CreateError::MemberTooSmall { member, needs, .. } => {
            let at = members.get(*member).map_or("", String::as_str);
            failure
                .at(at)
                .hint(format!("it needs at least {} bytes", needs * SECTOR_BYTES))
        }
        CreateError::Geometry(error) => skew::hint_at(error, failure),
        _ => failure,
    }
}
