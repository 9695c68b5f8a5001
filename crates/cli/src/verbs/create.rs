//! `create`: makes an array on empty members.
//!
//! Everything is checked before anything is touched: the options, every member, what it carries. Then the engine's own
//! plan of writes is carried out, with a flush at each of its boundaries. With a surrogate there are two plans, and the
//! surrogate's comes first: an array never names one that was not made.

use crate::args::config::{ArrayConfig, Config};
use crate::args::{InitName, LevelName, RotationName, SurrogateLevel, WriteHoleName};
use crate::arrays::create::buffer::{self, check_buffer};
use crate::arrays::create::devices::{losses, open_all, permit};
use crate::arrays::create::plan::{options, planned};
use crate::arrays::create::surrogate::{self, check_surrogate, size_bytes, surrogate_config};
use crate::arrays::create::write::{carry_out, check_disks};
use crate::arrays::member::{Copies, check_distinct, refuse_as_member, refuse_volatile};
use crate::arrays::owner::refuse_served;
use crate::failure::{Failure, Outcome};
use crate::print::skew::skew_words;
use crate::print::terminal::{outln, warn};
use crate::units::{Size, parse_size};
use crate::verbs::create::images::Images;
use clap::Args;
use restripe_array::meta::create::Note;
use restripe_array::meta::{Creation, WriteHole};
use restripe_array::{SECTOR_BYTES, shown};
use restripe_io::control::{self, is_name};
use restripe_io::member::OpenFailure;
use restripe_io::plain::Plain;
use serde_json::json;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

mod images;

#[derive(Args, Debug)]
#[command(
    after_help = "The size of the smallest member is used of every member. With --spares N the last N members become spares.
A member that already contains an array, a file system or another known format is refused without --force.

Example: restripe create tank --level raid5 --image-size 1G a.img b.img c.img"
)]
pub(crate) struct Create {
    /// Name of the array: letters, digits, `-`, `_` and `.`
    pub name: Option<String>,
    /// The members in the order of their slots, then the spares
    #[arg(value_name = "MEMBER")]
    pub members: Vec<String>,
    /// Read the name, level, members and options from this file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// RAID level; its number suffices. Minimum members, not counting spares: raid0 1; raid1, raid4 and raid5
    /// 2; raid6 4; raid10 2, or the number of copies
    #[arg(long, value_enum)]
    pub level: Option<LevelName>,
    /// Chunk size: consecutive data on one member before the next member (4K to 4M) [default: 64K]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub chunk: Option<u64>,
    /// Rotation of parity over the members, for raid5 and raid6 [default: left-symmetric]
    #[arg(long, value_enum)]
    pub rotation: Option<RotationName>,
    /// Number of copies of each chunk, for raid10 [default: 2]
    #[arg(long, value_name = "N")]
    pub copies: Option<u8>,
    /// Divide the members into N groups and skew rows over them: a row uses one member of each group
    /// (S2-RAID; raid5, raid6, raid10). A lost member is rebuilt in several streams. Parity takes 1 (raid6:
    /// 2) of N chunks, and more of the other members cause data loss if they fail next
    /// (docs/reference/layouts.md)
    #[arg(long, value_name = "N")]
    pub groups: Option<u16>,
    /// With --groups: partitions of each member, which is the number of rebuild streams; 1 stripes over the
    /// groups without skew [default: the most whose streams read from different members]
    #[arg(long, value_name = "N")]
    pub partitions: Option<u16>,
    /// With --groups: space on each member for N partitions of other members. A lost member is rebuilt onto
    /// this space at once [default: 0]
    #[arg(long, value_name = "N")]
    pub spare_partitions: Option<u16>,
    /// Number of listed members that become spares [default: 0]
    #[arg(long, value_name = "N")]
    pub spares: Option<usize>,
    /// Initial contents of the members [default: lazy]
    #[arg(long, value_enum)]
    pub init: Option<InitName>,
    /// Protection of copies and parity against a crash during a write [default: ppl for raid4, raid5, raid6;
    /// bitmap for raid1, raid10]
    #[arg(long, value_enum)]
    pub write_hole: Option<WriteHoleName>,
    /// Use at most SIZE of each member for data [default: the smallest member without metadata and slack]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size_per_member: Option<u64>,
    /// Use the members to their ends. Without this option 1/1024 of the smallest member stays unused (at most
    /// 128M, none below 64M), so that a slightly smaller disk can replace a member
    #[arg(long, conflicts_with = "size_per_member")]
    pub no_slack: bool,
    /// Offset of the data region on each member; metadata is stored before it [default: about 1/16 of the
    /// smallest member, at most 4M (1M without ppl), more if the metadata needs it]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub data_offset: Option<u64>,
    /// Create members that do not exist, including the surrogate's, as image files of SIZE
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub image_size: Option<u64>,
    /// Reserve SIZE at the end of the array for leases to other arrays; users see the array smaller by SIZE
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "surrogate")]
    pub lend: Option<u64>,
    /// Members of a surrogate, as A,B: a second set that takes users' writes while a member of the array is
    /// rebuilt; or the URI of a lease of another array
    #[arg(long, value_name = "MEMBERS", value_delimiter = ',')]
    pub surrogate: Vec<String>,
    /// RAID level of the surrogate; rs3 to rs8 have 3 to 8 parities, for a code cache only [default: raid1
    /// for two members, raid5 for more; a lease has the redundancy of the lending array]
    #[arg(long, value_name = "LEVEL", value_enum, requires = "surrogate")]
    pub surrogate_level: Option<SurrogateLevel>,
    /// Make the surrogate a code cache (RERAID): `serve` packs all writes into clusters and logs them there
    /// in whole rows, at all times. Requires three or more members and raid5, raid6, or rs3 to rs8, which
    /// tolerate 3 to 8 lost disks [default: raid6 from four members on]
    #[arg(long, requires = "surrogate")]
    pub code_cache: bool,
    /// Chunk size of the code cache (a power of two from 4K; a row is at most 64K). Smaller chunks waste less
    /// padding when a flush ends a record early; larger chunks make a read use fewer members [default: the
    /// largest that a row allows]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "code_cache")]
    pub code_cache_chunk: Option<u64>,
    /// An NVRAM buffer for the code cache: a file or device in persistent memory, or two as A,B, as a mirror.
    /// A flush then writes to the buffer instead of ending a record early. The buffer takes 16 MiB of each,
    /// and files that do not exist are created. List them with the members in later commands. On an ordinary
    /// disk a flush takes as long as that disk does
    #[arg(long, value_name = "FILES", value_delimiter = ',')]
    pub nvram: Vec<String>,
    /// Use the single surrogate disk as a GRAID log: `serve` writes all data to the log and to the primary
    /// copies; secondary copies are updated at destage. Requires raid1 or raid10
    #[arg(long, requires = "surrogate", conflicts_with_all = ["code_cache", "surrogate_level"])]
    pub log_disk: bool,
    /// Accept members that make no write durable: NBD exports without FLUSH and FUA, files and devices that
    /// refuse fsync. `serve` needs this option as well
    #[arg(long)]
    pub volatile_members: bool,
    /// Overwrite what the members contain; lists what will be lost and asks
    #[arg(long)]
    pub force: bool,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(verb: Create) -> Outcome {
    let (force, yes, json) = (verb.force, verb.yes, verb.json);
    check_name(verb.name.as_deref(), &verb.members)?;
    let wanted = wanted(verb)?;
    check(&wanted)?;
    let images = Images::make(&wanted)?;
    images.hand_over();
    let mut members = open_all(&wanted.members)?;
    let mut of_surrogate = open_all(&wanted.surrogate)?;
    let mut of_buffer = open_all(&wanted.nvram)?;
    // Declared after the members, and so undone while they are locked.
    let mut images = images.held();
    let all = members.iter().chain(&of_surrogate).chain(&of_buffer);
    let volatile = all.filter(|member| member.info().volatile);
    refuse_volatile(volatile.map(Plain::name), wanted.volatile_members)?;
    refuse_served(members.iter().chain(&of_surrogate).chain(&of_buffer))?;
    let mut losses = losses(&mut members)?;
    losses.extend(self::losses(&mut of_surrogate)?);
    losses.extend(self::losses(&mut of_buffer)?);
    let plans = Plans::make(&wanted, &members, &of_surrogate, &of_buffer)?;
    if !losses.is_empty() {
        permit(&losses, force, yes)?;
        if !yes {
            // A daemon may have started while the question stood.
            refuse_served(members.iter().chain(&of_surrogate).chain(&of_buffer))?;
        }
    }
    images.written();
    if let Some(buffer) = &plans.buffer {
        carry_out(buffer, &mut of_buffer)?;
    }
    if let Some(surrogate) = &plans.surrogate {
        carry_out(surrogate, &mut of_surrogate)?;
    }
    carry_out(&plans.array, &mut members)?;
    let sets = [
        (Some(&plans.array), &members),
        (plans.surrogate.as_ref(), &of_surrogate),
        (plans.buffer.as_ref(), &of_buffer),
    ];
    for (creation, members) in sets {
        creation.map_or(Ok(()), |creation| check_disks(creation, members))?;
    }
    images.keep();
    report(&wanted, &plans, json);
    warn_of_namesake(&wanted.name);
    Ok(())
}

/// Verbs find an array by its name, and would go to the one that is served.
fn warn_of_namesake(name: &str) {
    if control::ask(name, &control::Request::Status).is_ok() {
        warn(format_args!(
            "an array named {name:?} is already served, and all verbs would act on that array; serve the new array with a separate XDG_RUNTIME_DIR, or create it under another name"
        ));
    }
}

/// What the command line and the file together ask for; the command line has the last word.
fn wanted(verb: Create) -> Outcome<ArrayConfig> {
    let file = match &verb.config {
        None => ArrayConfig::default(),
        Some(path) => Config::read(path)?.array(verb.name.as_deref())?,
    };
    let given = |here: Vec<String>, file| if here.is_empty() { file } else { here };
    Ok(ArrayConfig {
        name: verb.name.unwrap_or(file.name),
        members: given(verb.members, file.members),
        level: verb.level.or(file.level),
        chunk: verb.chunk.or(file.chunk),
        rotation: verb.rotation.or(file.rotation),
        copies: verb.copies.or(file.copies),
        groups: verb.groups.or(file.groups),
        partitions: verb.partitions.or(file.partitions),
        spare_partitions: verb.spare_partitions.or(file.spare_partitions),
        spares: verb.spares.or(file.spares),
        init: verb.init.or(file.init),
        write_hole: verb.write_hole.or(file.write_hole),
        size_per_member: verb.size_per_member.or(file.size_per_member),
        no_slack: verb.no_slack || file.no_slack,
        data_offset: verb.data_offset.or(file.data_offset),
        image_size: verb.image_size.or(file.image_size),
        lend: verb.lend.or(file.lend),
        surrogate: given(verb.surrogate, file.surrogate),
        surrogate_level: verb.surrogate_level.or(file.surrogate_level),
        code_cache: verb.code_cache || file.code_cache,
        nvram: given(verb.nvram, file.nvram),
        log_disk: verb.log_disk || file.log_disk,
        volatile_members: verb.volatile_members || file.volatile_members,
        code_cache_chunk: verb.code_cache_chunk.or(file.code_cache_chunk),
        tls_clients: file.tls_clients,
        vhost_user: file.vhost_user,
    })
}

/// Whoever forgets the name gives the first member in its place.
fn check_name(name: Option<&str>, members: &[String]) -> Outcome {
    let Some(name) = name else { return Ok(()) };
    if name.contains('/') || is_like_all(name, members) || looks_like_member(name, members) {
        let what = format!("{name:?} is a member, not a name for an array");
        let hint = "the name comes first: restripe create NAME --level LEVEL MEMBER...";
        return Err(Failure::usage(what).hint(hint));
    }
    Ok(())
}

/// Whether a name has the ending of all the members, as in `x1.img x2.img x3.img`, or differs from theirs in its number, as in `x1 x2 x3`.
fn is_like_all(name: &str, members: &[String]) -> bool {
    let ending = |name: &str| Path::new(name).extension().map(OsStr::to_owned);
    let letters = |name: &str| name.replace(|c: char| c.is_ascii_digit(), "");
    let like = |member: &String| {
        let same_ending = ending(name).is_some() && ending(name) == ending(member);
        let numbered = letters(name) != name;
        same_ending || numbered && letters(name) == letters(member)
    };
    !members.is_empty() && members.iter().all(like)
}

/// A file may well be called as the array is. It is taken for a member if it is a device, is in an array, or is just
/// as long as the members named after it.
fn looks_like_member(name: &str, members: &[String]) -> bool {
    let Ok(found) = fs::metadata(name) else {
        return false;
    };
    let as_long = |member: &String| {
        let other = fs::metadata(member);
        found.len() > 0 && other.is_ok_and(|other| other.is_file() && other.len() == found.len())
    };
    found.file_type().is_block_device()
        || found.is_file() && (members.iter().any(as_long) || is_in_an_array(name))
}

fn is_in_an_array(name: &str) -> bool {
    match Plain::open(name, true) {
        Ok(member) => Copies::read(&member).is_ok_and(|copies| copies.newest().is_some()),
        Err(error) => matches!(error.why, OpenFailure::InUse),
    }
}

fn check(wanted: &ArrayConfig) -> Outcome {
    if !is_name(&wanted.name) {
        let what = match wanted.name.as_str() {
            "" => "the array needs a name".to_string(),
            name => format!("{name:?} is not a name for an array"),
        };
        let hint = "up to 32 letters, digits, `-`, `_` and `.`, the first a letter or digit";
        return Err(Failure::usage(what).hint(hint));
    }
    if wanted.level.is_none() {
        return Err(Failure::usage("the array needs a level").hint("--level raid5, for example"));
    }
    if wanted.members.is_empty() {
        return Err(
            Failure::usage("the array needs members").hint("list files, block devices or NBD URIs")
        );
    }
    refuse_as_member(&wanted.members)?;
    check_named(&wanted.members, "a member")?;
    check_named(&wanted.surrogate, "a member of --surrogate")?;
    check_named(&wanted.nvram, "a member of --nvram")?;
    check_surrogate(wanted)?;
    check_buffer(wanted)?;
    check_distinct(&wanted.clone().all_members())
}

/// Nothing lies between two commas, or behind the last one.
fn check_named(names: &[String], whose: &str) -> Outcome {
    match names.iter().any(String::is_empty) {
        true => {
            let what = format!("{whose} has no name: {:?}", names.join(","));
            Err(Failure::usage(what).hint("separate the names by single commas"))
        }
        false => Ok(()),
    }
}

/// What is to be written.
struct Plans {
    array: Creation,
    surrogate: Option<Creation>,
    buffer: Option<Creation>,
}

impl Plans {
    fn make(
        wanted: &ArrayConfig,
        members: &[Plain],
        of_surrogate: &[Plain],
        of_buffer: &[Plain],
    ) -> Outcome<Plans> {
        let mut array = options(wanted, members)?;
        let buffer = buffer::plan(wanted, array.array, of_buffer)?;
        let surrogate = match wanted.surrogate.is_empty() {
            true => None,
            false => {
                let wanted = surrogate_config(wanted);
                let mut options = options(&wanted, of_surrogate)?;
                if wanted.code_cache {
                    options.write_hole = WriteHole::WholeRows;
                    options.buffered = buffer.is_some();
                }
                let options = surrogate::partnered(&mut array, options);
                Some(planned(&options, &wanted.members).map_err(|why| why.of("the surrogate"))?)
            }
        };
        let array = planned(&array, &wanted.members)?;
        if let Some(surrogate) = &surrogate {
            surrogate::check_fit(&array, surrogate)?;
        }
        Ok(Plans {
            array,
            surrogate,
            buffer,
        })
    }
}

fn report(wanted: &ArrayConfig, plans: &Plans, json: bool) {
    let creation = &plans.array;
    let superblock = &creation.superblock;
    let whole = size_bytes(superblock.geometry);
    let size = superblock.own_sectors(whole / SECTOR_BYTES) * SECTOR_BYTES;
    if json {
        let mut value = json!({
            "name": superblock.name,
            "uuid": superblock.array.to_string(),
            "level": superblock.geometry.to_string(),
            "size_bytes": size,
            "lent_bytes": whole - size,
            "chunk_bytes": u64::from(superblock.geometry.chunk_sectors) * SECTOR_BYTES,
            "members": wanted.members,
            "spares": wanted.spares.unwrap_or(0),
        });
        if let Some(skew) = superblock.geometry.skew {
            value["groups"] = json!(skew.groups);
            value["partitions"] = json!(skew.partitions);
        }
        if let Some(surrogate) = &plans.surrogate {
            value["surrogate"] = surrogate::told_as_json(surrogate, &wanted.surrogate);
        }
        if let Some(buffer) = &plans.buffer {
            value["buffer"] = surrogate::told_as_json(buffer, &wanted.nvram);
        }
        outln!("{value}");
        return;
    }
    outln!(
        "created {}: {}, {} members, {}chunk {}, {} usable ({})",
        superblock.name,
        superblock.geometry,
        wanted.members.len(),
        skew_words(superblock.geometry.slots, superblock.geometry.skew),
        Size(u64::from(superblock.geometry.chunk_sectors) * SECTOR_BYTES),
        Size(size),
        superblock.array,
    );
    if whole > size {
        outln!("  {} reserved for leases", Size(whole - size));
    }
    if let Some(surrogate) = &plans.surrogate {
        outln!("{}", surrogate::told(surrogate, "surrogate", "a log"));
        tell_unused(surrogate, &wanted.surrogate);
    }
    if let Some(buffer) = &plans.buffer {
        let holds = "flushed data";
        outln!("{}", surrogate::told(buffer, "buffer", holds));
    }
    tell_unused(creation, &wanted.members);
}

fn tell_unused(creation: &Creation, members: &[String]) {
    for Note::Unused { member, sectors } in &creation.notes {
        let unused = Size(sectors * SECTOR_BYTES);
        outln!(
            "note: {unused} of {} stay unused: the smallest member sets the size",
            shown(&members[*member])
        );
    }
}
