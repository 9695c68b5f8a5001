//! `create`: makes an array on empty members.
//!
//! Everything is checked before anything is touched: the options, every member, what it carries. Then the engine's own
//! plan of writes is carried out, with a flush at each of its boundaries. With a surrogate there are two plans, and the
//! surrogate's comes first: an array never names one that was not made.

mod at_once;
mod buffer;
mod skew;
mod surrogate;

use crate::command::{Create, InitName, LevelName, RotationName, SurrogateLevel, WriteHoleName};
use crate::config::{ArrayConfig, Config};
use crate::failure::{Failure, Outcome};
use crate::lease::refuse_as_member;
use crate::member::{
    Copies, check_distinct, content, io_failure, open, random_uuid, refuse_volatile,
};
use crate::owner::refuse_served;
use crate::print::skew::skew_words;
use crate::print::terminal::{Lost, confirm, outln, warn};
use crate::units::Size;
use at_once::{Extent, on_each};
use buffer::{BUFFER_FILE_BYTES, check_buffer};
use restripe_array::layout::{Level, Rotation};
use restripe_array::meta::create::Note;
use restripe_array::meta::{
    Content, CreateError, CreateOptions, Creation, Init, MemberEntry, WriteHole,
};
use restripe_array::{PAGE_SECTORS, SECTOR_BYTES, Uuid, shown};
use restripe_io::control::{self, is_name};
use restripe_io::member::{MemberSource, OpenFailure};
use restripe_io::plain::Plain;
use serde_json::json;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use surrogate::{check_surrogate, surrogate_of};

const CHUNK_BYTES: u64 = 64 << 10;
/// Zeroed between two looks at the progress: 64 MiB.
const ZERO_STEP_SECTORS: usize = 1 << 17;

pub fn run(verb: Create) -> Outcome {
    let (force, yes, json) = (verb.force, verb.yes, verb.json);
    check_name(verb.name.as_deref(), &verb.members)?;
    let wanted = wanted(verb)?;
    check(&wanted)?;
    let images = Images::make(&wanted)?;
    images.hand_over();
    let mut members = open_all(&wanted.members)?;
    let mut of_surrogate = open_all(&wanted.surrogate)?;
    let mut of_buffer = open_all(&wanted.buffer_file)?;
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
        buffer_file: given(verb.buffer_file, file.buffer_file),
        log_disk: verb.log_disk || file.log_disk,
        volatile_members: verb.volatile_members || file.volatile_members,
        code_cache_chunk: verb.code_cache_chunk.or(file.code_cache_chunk),
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
    check_named(&wanted.buffer_file, "a member of --buffer-file")?;
    check_surrogate(wanted)?;
    check_buffer(wanted)?;
    let all: Vec<String> = wanted
        .members
        .iter()
        .chain(&wanted.surrogate)
        .chain(&wanted.buffer_file)
        .cloned()
        .collect();
    check_distinct(&all)
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

pub fn open_all(names: &[String]) -> Outcome<Vec<Plain>> {
    let mut names: Vec<&String> = names.iter().collect();
    let looked = Extent::new("opening members", names.len() as u64);
    on_each(&mut names, &looked, |_, name| open(name, false))
}

// ---------------------------------------------------------------------------------------------------------- images

/// Image files made for this array; they go again if it is not made.
struct Images {
    made: Vec<Image>,
    stage: Stage,
}

/// Who may have touched the images, and so what may be undone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Not held all the time: somebody else may have taken one over.
    Offered,
    /// Open and locked as members; what they hold may be somebody else's of the time before.
    Held,
    /// What they held before was looked at, and is being overwritten.
    Written,
}

struct Image {
    path: PathBuf,
    file: File,
    /// It was there and empty, as an earlier `create` leaves it that was killed.
    was_there: bool,
}

impl Images {
    fn make(wanted: &ArrayConfig) -> Outcome<Images> {
        let mut images = Images {
            made: Vec::new(),
            stage: Stage::Offered,
        };
        let members = wanted.members.iter().chain(&wanted.surrogate);
        let sized = members.filter_map(|name| Some((name, wanted.image_size?)));
        let buffers = wanted.buffer_file.iter();
        for (name, size) in sized.chain(buffers.map(|name| (name, BUFFER_FILE_BYTES))) {
            if let Ok(MemberSource::Path(path)) = MemberSource::parse(name) {
                let failed = |error| image_failure(&error, size).at(name);
                images.provide(path, size).map_err(failed)?;
            }
        }
        Ok(images)
    }

    /// Makes one image, unless something is there. It is locked before its emptiness is judged.
    fn provide(&mut self, path: PathBuf, size: u64) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true);
        let was_there = match fs::metadata(&path) {
            Ok(found) if found.is_file() && found.len() == 0 => true,
            Ok(_) => return Ok(()),
            Err(_) => {
                options.create_new(true);
                false
            }
        };
        let file = options.open(&path)?;
        file.try_lock()?;
        if file.metadata()?.len() > 0 {
            return Ok(());
        }
        self.made.push(Image {
            path,
            file,
            was_there,
        });
        self.made[self.made.len() - 1].file.set_len(size)
    }

    /// Lets the locks go, for the members to be opened with locks of their own.
    fn hand_over(&self) {
        for image in &self.made {
            // Whoever cannot unlock finds the member in use.
            let _ = image.file.unlock();
        }
    }

    fn held(mut self) -> Images {
        self.stage = Stage::Held;
        self
    }

    fn written(&mut self) {
        self.stage = Stage::Written;
    }

    fn keep(mut self) {
        self.made.clear();
    }
}

/// A size that no file may have, or none on this file system, is told as that.
fn image_failure(error: &io::Error, size: u64) -> Failure {
    let beyond = matches!(
        error.kind(),
        ErrorKind::FileTooLarge | ErrorKind::InvalidInput
    );
    if beyond || i64::try_from(size).is_err() {
        let what = format!("a file cannot be as large as {} here", Size(size));
        return Failure::new(what).hint("choose a smaller --image-size");
    }
    Failure::new(format!("the image cannot be made: {error}"))
}

impl Drop for Images {
    fn drop(&mut self) {
        for image in &self.made {
            image.undo(self.stage);
        }
    }
}

impl Image {
    /// Empties it again or removes it, unless it is, or may be, somebody else's by now. What is meant is the file that
    /// is open here, whatever its path leads to. A failure leaves a file of zeros.
    fn undo(&self, stage: Stage) {
        let ours = stage != Stage::Offered || self.file.try_lock().is_ok();
        let Ok(now) = self.file.metadata() else {
            return;
        };
        let untouched = now.blocks() == 0;
        if !ours || !(untouched || stage == Stage::Written) {
            return;
        }
        if self.was_there {
            let _ = self.file.set_len(0);
            return;
        }
        let there = fs::symlink_metadata(&self.path);
        if there.is_ok_and(|there| (there.dev(), there.ino()) == (now.dev(), now.ino())) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

// ---------------------------------------------------------------------------------------------------------- losses

fn losses(members: &mut [Plain]) -> Outcome<Vec<Lost>> {
    let looked = Extent::new("checking the contents of the members", members.len() as u64);
    let found = on_each(members, &looked, |_, member| {
        let what = content(member)?;
        Ok(what.map(|what| Lost {
            at: member.name().into(),
            what,
        }))
    })?;
    Ok(found.into_iter().flatten().collect())
}

fn permit(losses: &[Lost], force: bool, yes: bool) -> Outcome {
    if !force {
        let first = &losses[0];
        let more = losses.len() - 1;
        let at = if more == 0 {
            first.at.clone()
        } else {
            format!("{} and {more} more", first.at)
        };
        let hint = "choose an empty one, or pass --force to overwrite it";
        return Err(
            Failure::new(format!("this member already contains {}", first.what))
                .at(at)
                .hint(hint),
        );
    }
    confirm("These members will be overwritten:", losses, yes)
}

// -------------------------------------------------------------------------------------------------------- the plan

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
                let wanted = surrogate_of(wanted);
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

/// An array that is there already, and is to have a surrogate.
pub struct Home<'a> {
    pub name: &'a str,
    pub array: Uuid,
    pub level: Level,
    pub logical_block: u32,
}

/// The plan of a surrogate for it, of these devices.
pub fn surrogate_for(
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
    let mut options = options(&surrogate_of(&of_home), devices)?;
    options.partner = Some(surrogate::of_array(home.array));
    let creation = planned(&options, names)?;
    surrogate::check_size(home.logical_block, &creation)?;
    Ok(creation)
}

/// Nobody is asked: whoever says `force` was.
pub fn refuse_to_overwrite(devices: &mut [Plain], force: bool) -> Outcome {
    refuse_served(devices.iter())?;
    match losses(devices)? {
        losses if losses.is_empty() || force => Ok(()),
        losses => permit(&losses, false, false),
    }
}

fn planned(options: &CreateOptions, members: &[String]) -> Outcome<Creation> {
    restripe_array::meta::create(options).map_err(|error| create_failure(&error, members))
}

fn options(wanted: &ArrayConfig, members: &[Plain]) -> Outcome<CreateOptions> {
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
    options.skew = skew::skew(wanted)?;
    options.spare_partitions = wanted.spare_partitions.unwrap_or(0);
    options.size_per_member = sectors(wanted.size_per_member, "--size-per-member")?;
    options.slack = !wanted.no_slack;
    options.data_offset = sectors(wanted.data_offset, "--data-offset")?;
    options.lend_sectors = sectors(wanted.lend, "--lend")?;
    if let Some(init) = wanted.init {
        options.init = match init {
            InitName::Written => Init::Written,
            InitName::Sync => Init::Sync,
            InitName::Zero => Init::Zero,
            InitName::Trust => Init::Trust,
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

/// Writes what was planned, on all members at once, and flushes each at every boundary of the plan.
pub fn carry_out(creation: &Creation, members: &mut [Plain]) -> Outcome {
    let sectors = creation.writes.iter().map(|(_, _, what)| sectors_of(what));
    let written = Extent::new("writing", sectors.sum());
    let (wipes, seals) = (creation.wipes, creation.seals);
    let stages = [0..wipes, wipes..seals, seals..creation.writes.len()];
    for stage in stages.into_iter().filter(|stage| !stage.is_empty()) {
        let writes = &creation.writes[stage];
        on_each(members, &written, |number, member| {
            write_one(writes, number, member, &written)?;
            member.flush().map_err(io_failure(member, "flushing"))
        })?;
    }
    Ok(())
}

/// Each member has its own superblock: not if two of them are paths to one disk.
pub fn check_disks(creation: &Creation, members: &[Plain]) -> Outcome {
    for (member, entry) in members.iter().zip(&creation.superblock.members) {
        let copies = Copies::read(member)?;
        // A former array may have left a copy where this one has none.
        let sound = copies
            .found
            .iter()
            .filter_map(|(_, copy)| copy.as_ref().ok());
        let mut own = sound.filter(|copy| copy.array == creation.superblock.array);
        let found = own.next().map(|copy| copy.member);
        if found != Some(entry.uuid) {
            let other = |entry: &MemberEntry| Some(entry.uuid) == found;
            let other = creation.superblock.members.iter().position(other);
            let other = other.map_or("another member", |index| members[index].name());
            let what = format!("this member is the same disk as {other}, by a second path");
            return Err(Failure::new(what)
                .at(member.name())
                .hint("name each disk once"));
        }
    }
    Ok(())
}

/// One member's part of these writes. Pages that lie side by side are one operation.
fn write_one(
    writes: &[(usize, u64, Content)],
    number: usize,
    member: &Plain,
    written: &Extent,
) -> Outcome {
    let failed = io_failure(member, "writing");
    let own = writes.iter().filter(|(of, ..)| *of == number);
    let mut run = Vec::new();
    let mut start = 0;
    for (_, at, content) in own {
        let follows = start + run.len() as u64 / SECTOR_BYTES == *at;
        if !follows || matches!(content, Content::Zero(_)) {
            member.write(start, &run).map_err(&failed)?;
            run.clear();
        }
        match content {
            Content::Page(page) => {
                if run.is_empty() {
                    start = *at;
                }
                run.extend_from_slice(&page[..]);
                written.add(PAGE_SECTORS);
            }
            Content::Zero(sectors) => zero(member, *at, *sectors, written)?,
        }
    }
    member.write(start, &run).map_err(&failed)
}

fn zero(member: &Plain, at: u64, sectors: u64, written: &Extent) -> Outcome {
    for from in (0..sectors).step_by(ZERO_STEP_SECTORS) {
        let step = (sectors - from).min(ZERO_STEP_SECTORS as u64);
        let done = member.zero(at + from, step);
        done.map_err(io_failure(member, "writing"))?;
        written.add(step);
    }
    Ok(())
}

fn sectors_of(content: &Content) -> u64 {
    match content {
        Content::Page(_) => PAGE_SECTORS,
        Content::Zero(sectors) => *sectors,
    }
}

fn report(wanted: &ArrayConfig, plans: &Plans, json: bool) {
    let creation = &plans.array;
    let superblock = &creation.superblock;
    let whole = superblock.geometry.size_bytes_or_zero();
    let size = superblock.own_sectors(whole / SECTOR_BYTES) * SECTOR_BYTES;
    if json {
        let mut value = json!({
            "name": superblock.name,
            "uuid": superblock.array.to_string(),
            "level": superblock.geometry.level.to_string(),
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
            value["buffer"] = surrogate::told_as_json(buffer, &wanted.buffer_file);
        }
        outln!("{value}");
        return;
    }
    outln!(
        "created {}: {}, {} members, {}chunk {}, {} usable ({})",
        superblock.name,
        superblock.geometry.level,
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

trait GeometrySize {
    fn size_bytes_or_zero(&self) -> u64;
}

impl GeometrySize for restripe_array::layout::Geometry {
    /// What users see of an array of this geometry. A geometry that was made into an array is sound.
    fn size_bytes_or_zero(&self) -> u64 {
        restripe_array::layout::Layout::new(*self)
            .map_or(0, |layout| layout.size_sectors() * SECTOR_BYTES)
    }
}
