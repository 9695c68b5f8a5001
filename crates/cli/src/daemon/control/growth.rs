//! Growth by further members: they are taken in as spares first, and then made data members all at once.

use crate::arrays::member::open_failure;
use crate::arrays::origin::Whose;
use crate::daemon::control::array::{Answered, Said, ServedArray, done, ended, is_meant, name_in};
use crate::daemon::control::changes::Changes;
use crate::daemon::control::members::{Newcomer, admit, checked, held};
use crate::units::Size;
use restripe_array::report::{GrowthPlan, MemberState, MemberStatus};
use restripe_array::{Command, Member, SECTOR_BYTES};
use restripe_io::control::{GrowthView, Refusal, Reply};
use restripe_io::member;

/// What an array is to grow by.
struct Added<'a> {
    spares: Vec<Member>,
    devices: Vec<&'a String>,
}

/// Nothing is written to a device before all is known that speaks against the growth.
pub(super) fn grow(
    array: &ServedArray,
    changes: &Changes,
    members: &[String],
    force: bool,
    dry_run: bool,
) -> Answered {
    let _changing = changes.begin_growth()?;
    let by = u16::try_from(members.len()).unwrap_or(u16::MAX);
    let plan = growth_plan(array, by)?;
    let (status, _) = array.look()?;
    let view = GrowthView::new(&plan, &status);
    let added = to_be_added(array, members, &plan, force)?;
    if dry_run {
        return Ok(Reply::Growth(view));
    }
    let taken = take_all_in(array, &added, force)?;
    let grown = array.command(match plan.least_moves {
        true => Command::Grow { by },
        false => Command::Reshape { by },
    });
    grown.map_err(|refusal| let_all_go(array, &taken, refusal))?;
    let (from, to, size) = (view.slots, view.slots_after, Size(view.size_bytes_after));
    let grows = format!("grows from {from} to {to} members, then {size}");
    Ok(done(&format!(
        "{grows}; name all {to} members at the next start"
    )))
}

fn to_be_added<'a>(
    array: &ServedArray,
    members: &'a [String],
    plan: &GrowthPlan,
    force: bool,
) -> Said<Added<'a>> {
    let mut added = Added {
        spares: Vec::new(),
        devices: Vec::new(),
    };
    for path in members {
        match spare_named(array, path)? {
            Some(spare) => added.spares.push(spare),
            None => {
                could_be_taken_in(array, path, plan, force)?;
                added.devices.push(path);
            }
        }
    }
    came_last(array, &added.spares)?;
    Ok(added)
}

/// All devices, or none.
fn take_all_in(array: &ServedArray, added: &Added, force: bool) -> Said<Vec<Member>> {
    let mut taken = Vec::new();
    for path in &added.devices {
        let into = Some(Whose::Array);
        match admit(array, Newcomer { path, force, into }) {
            Ok(member) => taken.push(member),
            Err(refusal) => return Err(let_all_go(array, &taken, refusal)),
        }
    }
    Ok(taken)
}

/// The growth is refused: what was taken in for it is no spare either.
fn let_all_go(array: &ServedArray, taken: &[Member], refusal: Refusal) -> Refusal {
    let is_kept = |member: &&Member| array.command(Command::Remove(**member)).is_err();
    match taken.iter().filter(is_kept).count() {
        0 => refusal,
        some => refusal.hint(format!(
            "{some} of the devices are now spares of the array: remove them with `restripe remove`"
        )),
    }
}

fn growth_plan(array: &ServedArray, by: u16) -> Said<GrowthPlan> {
    let plan = array.remote.growth_plan(array.number, by).map_err(ended)?;
    plan.map_err(|error| array.refused(&error))
}

/// Opened as for taking it in, and let go again.
fn could_be_taken_in(array: &ServedArray, path: &str, plan: &GrowthPlan, force: bool) -> Said {
    held(array, path)?;
    let device = member::open(path, array.open).map_err(open_failure)?;
    let bytes = device.info.sectors * SECTOR_BYTES;
    if bytes < plan.needs_bytes {
        return Err(Refusal::new(format!("the device has {bytes} bytes"))
            .at(path)
            .hint(format!("it needs at least {} bytes", plan.needs_bytes)));
    }
    checked(array, device, force, Some(Whose::Array)).map(|_| ())
}

fn spare_named(array: &ServedArray, text: &str) -> Said<Option<Member>> {
    let (status, names) = array.look()?;
    let is_it = |member: &&MemberStatus| {
        let name = name_in(&names, member.member);
        member.state == MemberState::Spare && is_meant(text, member, name)
    };
    Ok(status.members.iter().find(is_it).map(|spare| spare.member))
}

/// An array grows by the spares that came last: these have to be the ones that are meant.
fn came_last(array: &ServedArray, meant: &[Member]) -> Said {
    let (status, _) = array.look()?;
    let members = status.members.iter();
    let spares = members.filter(|member| member.state == MemberState::Spare);
    let mut spares: Vec<Member> = spares.map(|spare| spare.member).collect();
    spares.sort_unstable();
    let last = spares.split_off(spares.len().saturating_sub(meant.len()));
    if meant.iter().all(|member| last.contains(member)) {
        return Ok(());
    }
    Err(
        Refusal::new("the array has spares that were added later than these")
            .hint("name the later spares, or all of them; `restripe remove` removes a spare"),
    )
}
