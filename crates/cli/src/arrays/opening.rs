//! Opens the members of arrays that are to be started, sorts them by array, and judges each array beforehand.

use crate::arrays::member::{
    check_distinct, home_of, open_failure, readable_copies, refuse_cycle, refuse_volatile,
};
use crate::arrays::owner;
use crate::arrays::preflight::{MemberList, Preview, refuse_to_lose, warn_of_mute};
use crate::arrays::sets::Sets;
use crate::arrays::setup::{Form, Setup};
use crate::failure::{Failure, Outcome};
use crate::print::terminal::warn;
use restripe_array::meta::newest_of;
use restripe_array::{Nanos, StartMode, Uuid};
use restripe_io::member::{self, Device, MemberSource, OpenFailure, OpenMember, OpenOptions};
use restripe_io::plain::Plain;
use restripe_io::shell::ArraySpec;
use restripe_tier::Redirect;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// An array that may be started; `name` is what it must be called.
pub(crate) fn spec(
    members: &[String],
    name: Option<&str>,
    setup: &Setup,
) -> Outcome<(ArraySpec, Preview)> {
    let nanos = |time: Duration| Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    let (members, absent) = open_all(members, setup.open_options())?;
    let volatile = members.iter().filter(|member| member.info.volatile);
    allow_volatile(volatile.map(|member| &*member.name), setup.start)?;
    let mut sets = Sets::of(MemberList::read(members, absent)?);
    let mut preview = sets.check(name, setup)?;
    let form = match (sets.has_code_cache(), sets.has_log_disk()) {
        (true, _) => Form::CodeCache,
        (_, true) => Form::LogDisk,
        _ => Form::Plain,
    };
    let fits = |redirect| matches!(redirect, Redirect::Graid | Redirect::None);
    if form == Form::LogDisk && !setup.redirect.is_none_or(fits) {
        let what =
            "a log disk has no redundancy of its own, and this policy would lose data with it";
        return Err(
            Failure::usage(what).hint("use --redirect graid (the default with a log disk) or none")
        );
    }
    let owners = sets.owners();
    let (members, others) = sets.into_members();
    for member in &members {
        refuse_cycle(&preview.name, preview.array, &member.name, member.beneath())?;
    }
    preview.start = owner::mode(setup.start, &preview.name, &owners, &members)?;
    let surrogate = setup.surrogate(others, form);
    preview.form = (others.of_surrogate > 0).then_some(form);
    let spec = ArraySpec {
        members,
        limits: setup.limits(surrogate.as_ref()),
        surrogate,
        io_timeout: nanos(setup.io_timeout),
        probe: nanos(setup.probe),
        record: setup.record.clone(),
    };
    Ok((spec, preview))
}

/// Members that make nothing durable have to be allowed, and are named.
fn allow_volatile<'a>(members: impl Iterator<Item = &'a str>, start: StartMode) -> Outcome {
    if start.read_only {
        return Ok(());
    }
    refuse_volatile(members, start.volatile_members)
}

/// Of an array whose mirrors are to sleep. A command is asked in the kernel's place, and only about what lies on this host.
pub(crate) fn warn_of_restless(name: &str, spec: &ArraySpec, setup: &Setup) {
    let others = spec.surrogate.as_ref();
    let others = others.map_or(0, |one| one.members + one.buffer_members);
    let of_home = spec.members.len().saturating_sub(usize::from(others));
    let restless = spec.members[..of_home]
        .iter()
        .filter(|one| !one.may_be_told_to_rest());
    let (here, remote): (Vec<_>, Vec<_>) =
        restless.partition(|one| matches!(one.device, Device::File(_)));
    let remote_reason = match setup.power.is_some() {
        true => "and --power cannot control",
        false => "and --power could not control",
    };
    let of_here =
        "because the kernel does not control their disks: use --power exec:CMD".to_string();
    let of_remote = format!("{remote_reason} members that are not a file or disk of this host");
    for (members, why) in [(here, of_here), (remote, of_remote)] {
        if let Some(first) = members.first() {
            let more = match members.len() - 1 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let first = &first.name;
            warn(format_args!(
                "{name}: {first}{more} cannot enter standby, {why}"
            ));
        }
    }
}

/// Opens what can be opened, and names what cannot. A member that is not there is what redundancy is for; one in use by
/// somebody else is a mistake.
fn open_all(names: &[String], options: OpenOptions) -> Outcome<(Vec<OpenMember>, Vec<String>)> {
    check_distinct(names)?;
    let mut members = Vec::new();
    let mut absent = Vec::new();
    let mut missing = None;
    for name in names {
        match member::open(name, options) {
            Ok(member) => members.push(member),
            Err(error) if is_missing(&error.why) => {
                warn(format_args!("{error}"));
                absent.push(name.clone());
                missing = Some(error);
            }
            Err(error) => return Err(open_failure(error)),
        }
    }
    match missing {
        Some(error) if members.is_empty() => Err(open_failure(error)),
        _ => Ok((members, absent)),
    }
}

fn is_missing(why: &OpenFailure) -> bool {
    matches!(why, OpenFailure::Io(error) if error.kind() != io::ErrorKind::PermissionDenied)
        || matches!(why, OpenFailure::Remote(_))
}

/// Sorts members by the array they belong to, those of a surrogate with its array's, in the order of the first of each.
///
/// Members that cannot be looked at are taken for members of the one array that there is, or refused. Those that are
/// open and cannot be read are left out, if this start may: they are waited for once, not again at every step.
pub(crate) fn by_array(names: Vec<String>, start: StartMode) -> Outcome<Vec<Vec<String>>> {
    let mut groups: Vec<Vec<String>> = Vec::new();
    let mut places: BTreeMap<Uuid, usize> = BTreeMap::new();
    let mut rest = Vec::new();
    let mut mute = Vec::new();
    for name in names {
        match array_of(&name)? {
            Belongs::Unknown => rest.push(name),
            Belongs::To(array) => {
                let place = *places.entry(array).or_insert_with(|| {
                    groups.push(Vec::new());
                    groups.len() - 1
                });
                groups[place].push(name);
            }
            Belongs::Mute(error) => {
                warn_of_mute(&name, &error);
                mute.push(name);
            }
        }
    }
    refuse_to_lose(&mute, start)?;
    match (groups.len(), rest.len()) {
        (0, 0) if !mute.is_empty() => {
            Err(Failure::new("none of these members can be read").at(mute.join(", ")))
        }
        (_, 0) => Ok(groups),
        (0 | 1, _) => Ok(vec![groups.into_iter().flatten().chain(rest).collect()]),
        (..) => Err(
            Failure::new("it is unknown which array this member belongs to")
                .at(rest.join(", "))
                .hint("serve each array separately, or list the members in a configuration file"),
        ),
    }
}

/// Where a member belongs, as far as it tells.
enum Belongs {
    To(Uuid),
    Unknown,
    Mute(io::Error),
}

fn array_of(name: &str) -> Outcome<Belongs> {
    if matches!(MemberSource::parse(name), Ok(MemberSource::Ram { .. })) {
        return Ok(Belongs::Unknown);
    }
    let member = match Plain::open(name, true) {
        // A member that cannot be opened is told about when the array is.
        Err(error) if is_missing(&error.why) => return Ok(Belongs::Unknown),
        Err(error) => return Err(open_failure(error)),
        Ok(member) => member,
    };
    Ok(match readable_copies(&member) {
        Err(error) => Belongs::Mute(error),
        Ok(copies) => newest_of(copies.iter().flatten())
            .map_or(Belongs::Unknown, |newest| Belongs::To(home_of(newest))),
    })
}
