//! The buffer of a new code cache: a set of its own, on persistent memory.

use crate::args::config::ArrayConfig;
use crate::args::{InitName, LevelName, WriteHoleName};
use crate::arrays::create::plan::{options, planned};
use crate::arrays::create::surrogate::name_with;
use crate::arrays::member::is_lease;
use crate::failure::{Failure, Outcome};
use crate::units::Size;
use restripe_array::Uuid;
use restripe_array::meta::{Creation, Partner, PartnerRole};
use restripe_io::plain::Plain;

/// What a buffer takes of each of its members, its metadata with it.
pub(crate) const BUFFER_FILE_BYTES: u64 = 16 << 20;
/// Of that, what records lie in: all slots that there may be, of 128 KiB.
const SLOTS_BYTES: u64 = 8 << 20;
const CHUNK_BYTES: u64 = 64 << 10;

pub(crate) fn check_buffer(wanted: &ArrayConfig) -> Outcome {
    let members = &wanted.nvram;
    match members.len() {
        0 => Ok(()),
        _ if !wanted.code_cache => Err(Failure::usage("an NVRAM buffer requires a code cache")
            .hint("pass --code-cache and --surrogate MEMBERS, or omit --nvram")),
        3.. => Err(Failure::usage(
            "an NVRAM buffer has one member, or two that mirror each other",
        )),
        _ => match members.iter().find(|name| is_lease(name)) {
            Some(lease) => Err(Failure::usage("a lease is not persistent memory")
                .at(lease)
                .hint("use files or devices of this host")),
            None => Ok(()),
        },
    }
}

fn too_small(member: &Plain) -> Failure {
    let (has, wanted) = (Size(member.bytes()), Size(BUFFER_FILE_BYTES));
    Failure::new(format!("this member has {has}, but {wanted} are required"))
        .at(member.name())
        .hint("choose a larger one, or name a file that does not exist to create it")
}

/// The buffer as an array of its own; none if there is to be none.
pub(crate) fn plan(
    wanted: &ArrayConfig,
    array: Uuid,
    devices: &[Plain],
) -> Outcome<Option<Creation>> {
    let level = match wanted.nvram.len() {
        0 => return Ok(None),
        1 => LevelName::Raid0,
        _ => LevelName::Raid1,
    };
    let wanted = ArrayConfig {
        name: name_with(&wanted.name, "-buffer"),
        members: wanted.nvram.clone(),
        level: Some(level),
        chunk: (level == LevelName::Raid0).then_some(CHUNK_BYTES),
        // Nothing is put on record but versions: each tells by its checksum whether it is whole.
        init: Some(InitName::Zero),
        write_hole: Some(WriteHoleName::None),
        size_per_member: Some(SLOTS_BYTES),
        ..ArrayConfig::default()
    };
    let of_buffer = |why: Failure| why.of("the NVRAM buffer");
    let mut options = options(&wanted, devices).map_err(of_buffer)?;
    options.partner = Some(Partner::new(PartnerRole::Buffer, array));
    let planned = planned(&options, &wanted.members);
    planned.map(Some).map_err(|why| {
        let small = devices.iter().find(|one| one.bytes() < BUFFER_FILE_BYTES);
        of_buffer(small.map_or(why, too_small))
    })
}
