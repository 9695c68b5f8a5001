//! The surrogate of a new array: a set of its own, made together with the array, each naming the other.

use crate::args::config::ArrayConfig;
use crate::args::{LevelName, SurrogateLevel};
use crate::arrays::create::plan::{options, planned};
use crate::arrays::member::is_lease;
use crate::failure::{Failure, Outcome};
use crate::units::Size;
use restripe_array::layout::{Geometry, Layout, Level};
use restripe_array::meta::{CreateOptions, Creation, Partner, PartnerRole, RegionKind};
use restripe_array::refusals::NO_REDIRECT_MAP;
use restripe_array::{LeaseError, SECTOR_BYTES, Uuid};
use restripe_io::plain::Plain;
use serde_json::{Value, json};

/// An array that is there already, and is to have a surrogate.
pub(crate) struct Home<'a> {
    pub name: &'a str,
    pub array: Uuid,
    pub level: Level,
    pub logical_block: u32,
}

/// The plan of a surrogate for it, of these devices.
pub(crate) fn surrogate_for(
    home: &Home,
    names: &[String],
    level: Option<SurrogateLevel>,
    devices: &[Plain],
) -> Outcome<Creation> {
    let of_home = ArrayConfig {
        name: home.name.into(),
        level: (home.level == Level::Raid0).then_some(LevelName::Raid0),
        surrogate: names.to_vec(),
        surrogate_level: level,
        ..ArrayConfig::default()
    };
    check_surrogate(&of_home)?;
    let mut options = options(&surrogate_config(&of_home), devices)?;
    options.partner = Some(of_array(home.array));
    let creation = planned(&options, names)?;
    check_size(home.logical_block, &creation)?;
    Ok(creation)
}

/// What a surrogate's name adds to its array's.
const SUFFIX: &str = "-surrogate";
/// An array's name at most, in bytes.
const NAME_BYTES_MAX: usize = 32;
/// Bytes of a code cache's chunk at least, and of its row at most: that of a record.
const CODE_CACHE_CHUNK_MIN: u64 = 4096;
const CODE_CACHE_ROW_MAX: u64 = 64 << 10;
/// So a code cache has so many members at most.
const CODE_CACHE_MEMBERS_MAX: usize = 16;
/// Below this a log has not the segments that it needs.
const LOG_BYTES_MIN: u64 = 1 << 20;

/// A surrogate bears the loss of a member: what it holds may be the only copy.
pub(crate) fn check_surrogate(wanted: &ArrayConfig) -> Outcome {
    if wanted.code_cache {
        check_code_cache(wanted)?;
    }
    if wanted.log_disk {
        return check_log_disk(wanted);
    }
    let level = wanted.surrogate_level.map(SurrogateLevel::name);
    if let (false, Some(LevelName::ReedSolomon(parities))) = (wanted.code_cache, level) {
        let what = format!("{parities} parities require a surrogate that is written in whole rows");
        let hint = "pass --code-cache when the array is created, or choose raid6";
        return Err(Failure::usage(what).hint(hint));
    }
    match wanted.surrogate.len() {
        0 if wanted.surrogate_level.is_some() => Err(Failure::usage(
            "--surrogate-level requires members of a surrogate",
        )
        .hint("list them: --surrogate A,B")),
        1.. if wanted.lend.is_some() => {
            Err(Failure::usage(LeaseError::Lends.to_string()).hint("omit --lend or --surrogate"))
        }
        1 if !is_lease(&wanted.surrogate[0]) => Err(Failure::usage(
            "a surrogate with one member has no redundancy: its failure would lose data",
        )
        .at(&wanted.surrogate[0])
        .hint(
            "use two or more members (--surrogate A,B), a lease of another array, or --log-disk",
        )),
        1 if wanted.surrogate_level.is_some() => Err(Failure::usage(
            "a single lease has the redundancy of the array that lends it, and no level",
        )
        .hint("omit --surrogate-level")),
        1.. if wanted.level == Some(LevelName::Raid0) => Err(Failure::usage(
            "a raid0 cannot have a surrogate: it is never rebuilt",
        )),
        _ => Ok(()),
    }
}

/// What a log disk has, first copies have as well.
fn check_log_disk(wanted: &ArrayConfig) -> Outcome {
    let mirrors = matches!(wanted.level, Some(LevelName::Raid1 | LevelName::Raid10));
    match wanted.surrogate.len() {
        _ if wanted.code_cache => Err(Failure::usage(
            "--log-disk and --code-cache exclude each other",
        )),
        1 if is_lease(&wanted.surrogate[0]) => Err(Failure::usage("a lease cannot be a log disk")
            .at(&wanted.surrogate[0])
            .hint("use a disk, or omit --log-disk to use the lease as an ordinary surrogate")),
        1 if mirrors && wanted.lend.is_none() => Ok(()),
        1 if mirrors => Err(Failure::usage(LeaseError::Lends.to_string())),
        1 => Err(Failure::usage("a log disk requires raid1 or raid10")),
        _ => Err(Failure::usage("a log disk is a single disk").hint("use --surrogate DISK")),
    }
}

fn check_code_cache(wanted: &ArrayConfig) -> Outcome {
    let members = wanted.surrogate.len();
    if !matches!(wanted.level, Some(LevelName::Raid1 | LevelName::Raid10)) {
        return Err(Failure::usage(
            "a code cache requires raid1 or raid10",
        )
        .hint("omit --code-cache for an ordinary surrogate, which takes writes while a member is rebuilt"));
    }
    if !(3..=CODE_CACHE_MEMBERS_MAX).contains(&members) {
        let what = format!("a code cache has 3 to {CODE_CACHE_MEMBERS_MAX} members, not {members}");
        return Err(
            Failure::usage(what).hint("use one partition of each disk that holds primary copies")
        );
    }
    if let Some(SurrogateLevel::Raid1 | SurrogateLevel::Raid10) = wanted.surrogate_level {
        return Err(Failure::usage(
            "a code cache has level raid5, raid6, or rs3 to rs8",
        ));
    }
    let most = code_cache_chunk(level_of(wanted), members);
    match wanted.code_cache_chunk {
        Some(chunk)
            if !chunk.is_power_of_two() || !(CODE_CACHE_CHUNK_MIN..=most).contains(&chunk) =>
        {
            let what = format!(
                "invalid chunk size {} for a code cache of {members} members",
                Size(chunk)
            );
            let hint = format!("use a power of two from 4K to {}", Size(most));
            Err(Failure::usage(what).hint(hint))
        }
        _ => Ok(()),
    }
}

/// The largest chunk of which a row fits a record: so what is read of a record lies on few members.
fn code_cache_chunk(level: LevelName, members: usize) -> u64 {
    let parities = match level {
        LevelName::Raid6 => 2,
        LevelName::ReedSolomon(parities) => usize::from(parities),
        _ => 1,
    };
    let data = members.saturating_sub(parities).max(1) as u64;
    1 << (CODE_CACHE_ROW_MAX / data)
        .max(CODE_CACHE_CHUNK_MIN)
        .ilog2()
}

fn level_of(wanted: &ArrayConfig) -> LevelName {
    match (wanted.surrogate_level, wanted.surrogate.len()) {
        (Some(level), _) => level.name(),
        // A lease: the lender's redundancy is below.
        (None, 1) => LevelName::Raid0,
        (None, 2) => LevelName::Raid1,
        (None, 4..) if wanted.code_cache => LevelName::Raid6,
        (None, _) => LevelName::Raid5,
    }
}

/// The surrogate as an array of its own: as large as its members allow, all else by default.
pub(crate) fn surrogate_config(wanted: &ArrayConfig) -> ArrayConfig {
    let level = level_of(wanted);
    let chunk = || code_cache_chunk(level, wanted.surrogate.len());
    ArrayConfig {
        name: name_of(&wanted.name),
        members: wanted.surrogate.clone(),
        level: Some(level),
        chunk: (wanted.code_cache).then(|| wanted.code_cache_chunk.unwrap_or_else(chunk)),
        code_cache: wanted.code_cache,
        no_slack: wanted.no_slack,
        ..ArrayConfig::default()
    }
}

fn name_of(array: &str) -> String {
    name_with(array, SUFFIX)
}

/// Names are of letters, digits and three signs, so a byte is a letter.
pub(crate) fn name_with(array: &str, suffix: &str) -> String {
    let kept = array.len().min(NAME_BYTES_MAX - suffix.len());
    format!("{}{suffix}", &array[..kept])
}

/// Puts each on the other's record, and gives the surrogate's options back.
pub(crate) fn partnered(array: &mut CreateOptions, mut surrogate: CreateOptions) -> CreateOptions {
    array.partner = Some(Partner::new(PartnerRole::Main, surrogate.array));
    surrogate.partner = Some(of_array(array.array));
    surrogate
}

/// What a surrogate has on record of its array.
pub(crate) fn of_array(array: Uuid) -> Partner {
    Partner::new(PartnerRole::Surrogate, array)
}

/// Whether the array can keep on record what its surrogate holds, and the surrogate take whatever is written to it.
pub(crate) fn check_fit(array: &Creation, surrogate: &Creation) -> Outcome {
    let ours = &array.superblock;
    if ours.region(RegionKind::Redirected).is_none() {
        return Err(Failure::usage(NO_REDIRECT_MAP)
            .hint("omit --data-offset, or choose another --write-hole"));
    }
    check_size(ours.logical_block, surrogate)
}

/// For an array of these logical blocks.
pub(crate) fn check_size(logical_block: u32, surrogate: &Creation) -> Outcome {
    let theirs = &surrogate.superblock;
    if theirs.logical_block > logical_block {
        let large = theirs.logical_block;
        return Err(Failure::new(format!(
            "the surrogate has logical blocks of {large} bytes, the array of {logical_block} bytes"
        ))
        .hint("use devices with logical blocks no larger than the array's"));
    }
    let bytes = size_bytes(theirs.geometry);
    if bytes < LOG_BYTES_MIN {
        let (has, needs) = (Size(bytes), Size(LOG_BYTES_MIN));
        return Err(
            Failure::new(format!("the surrogate has space for only {has}")).hint(format!(
                "it needs at least {needs}; a larger surrogate can log more writes"
            )),
        );
    }
    Ok(())
}

/// A set of another's: its surrogate, or that one's buffer.
pub(crate) fn told(set: &Creation, what: &str, holds: &str) -> String {
    let superblock = &set.superblock;
    format!(
        "  with the {what} {}: {}, {} members, {} for {holds} ({})",
        superblock.name,
        superblock.geometry,
        superblock.members.len(),
        Size(size_bytes(superblock.geometry)),
        superblock.array,
    )
}

pub(crate) fn told_as_json(surrogate: &Creation, members: &[String]) -> Value {
    let superblock = &surrogate.superblock;
    json!({
        "name": superblock.name,
        "uuid": superblock.array.to_string(),
        "level": superblock.geometry.to_string(),
        "size_bytes": size_bytes(superblock.geometry),
        "members": members,
    })
}

/// What users see of an array of this geometry. A geometry that was made into an array is sound.
pub(crate) fn size_bytes(geometry: Geometry) -> u64 {
    Layout::new(geometry).map_or(0, |layout| layout.size_sectors() * SECTOR_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use restripe_io::control::is_name;

    #[test]
    fn a_surrogate_has_a_name_whatever_its_arrays() {
        assert_eq!(name_of("tank"), "tank-surrogate");
        let long = name_of("a23456789012345678901234567890ab");
        assert!(is_name(&long) && long.len() == NAME_BYTES_MAX, "{long}");
    }

    /// As a log disk it would be served as a surrogate.
    #[test]
    fn lease_is_no_log_disk() {
        let wanted = |disk: &str| ArrayConfig {
            level: Some(LevelName::Raid1),
            surrogate: vec![disk.into()],
            log_disk: true,
            ..ArrayConfig::default()
        };
        assert!(check_surrogate(&wanted("/dev/sdz")).is_ok());
        assert!(check_surrogate(&wanted("nbd://host/lease/pool/log")).is_err());
    }

    #[test]
    fn the_level_follows_the_members() {
        let wanted = |members: &[&str], level| ArrayConfig {
            level: Some(LevelName::Raid5),
            surrogate: members.iter().map(|name| name.to_string()).collect(),
            surrogate_level: level,
            ..ArrayConfig::default()
        };
        let level = |members: &[&str], level| surrogate_config(&wanted(members, level)).level;
        assert_eq!(level(&["a", "b"], None), Some(LevelName::Raid1));
        assert_eq!(level(&["a", "b", "c"], None), Some(LevelName::Raid5));
        let mirrors = Some(SurrogateLevel::Raid10);
        assert_eq!(
            level(&["a", "b", "c", "d"], mirrors),
            Some(LevelName::Raid10)
        );
        let parities = Some(SurrogateLevel::Rs3);
        assert!(check_surrogate(&wanted(&["a", "b", "c", "d"], parities)).is_err());
        let of_parity = ArrayConfig {
            code_cache: true,
            ..wanted(&["a", "b", "c", "d"], parities)
        };
        assert!(check_surrogate(&of_parity).is_err(), "nobody would sleep");
        let cache = ArrayConfig {
            level: Some(LevelName::Raid10),
            ..of_parity
        };
        assert!(check_surrogate(&cache).is_ok());
        let level_of = |wanted| surrogate_config(wanted).level;
        assert_eq!(level_of(&cache), Some(LevelName::ReedSolomon(3)));
        let lease = &["nbd://host/lease/pool/log"];
        assert_eq!(level(lease, None), Some(LevelName::Raid0));
        assert!(check_surrogate(&wanted(lease, None)).is_ok());
        assert!(check_surrogate(&wanted(lease, mirrors)).is_err());
        let both = ArrayConfig {
            lend: Some(1 << 30),
            ..wanted(lease, None)
        };
        assert!(check_surrogate(&both).is_err(), "who lends does not borrow");
        assert!(check_surrogate(&wanted(&["a"], None)).is_err());
        assert!(check_surrogate(&wanted(&[], mirrors)).is_err());
        assert!(check_surrogate(&wanted(&[], None)).is_ok());
    }
}
