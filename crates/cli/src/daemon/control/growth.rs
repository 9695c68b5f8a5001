//! Growth by further members: they are taken in as spares first, and then made data members all at once.

use crate::arrays::member::open_failure;
use crate::arrays::origin::Whose;
use crate::daemon::control::array::{Answered, Said, ServedArray, done, ended, is_meant, name_in};
use crate::daemon::control::changes::Changes;
use crate::daemon::control::members::{Newcomer, admit, checked, held};
use crate::units::Size;
use restripe_array::report::{GrowthPlan, MemberState, MemberStatus};
use restripe_array::{Command, Member, Moves, SECTOR_BYTES};
use restripe_io::control::{GrowthView, Refusal, Reply};
use restripe_io::member;

/// A growth as it was asked for.
pub(super) struct Asked<'a> {
    pub(super) members: &'a [String],
    pub(super) moves: Option<&'a str>,
    pub(super) force: bool,
}

/// What an array is to grow by.
struct Added<'a> {
    spares: Vec<Member>,
    devices: Vec<&'a String>,
}

/// Nothing is written to a device before all is known that speaks against the growth.
pub(super) fn grow(
    array: &ServedArray,
    changes: &Changes,
    asked: &Asked,
    dry_run: bool,
) -> Answered {
    let _changing = changes.begin_growth()?;
    let by = u16::try_from(asked.members.len()).unwrap_or(u16::MAX);
    let moves = moves_named(asked.moves)?;
    let plan = growth_plan(array, by)?;
    let (status, _) = array.look()?;
    let mut view = GrowthView::new(&plan, &status);
    let added = to_be_added(array, asked, &plan)?;
    if moves == Moves::ParityOutsourced {
        let (from, to) = parity_moves(array, &plan, &added)?;
        (view.parity_from, view.parity_to) = (Some(from), Some(to));
    }
    if dry_run {
        return Ok(Reply::Growth(view));
    }
    let taken = take_all_in(array, &added, asked.force)?;
    let grown = begin(array, &plan, moves, by);
    grown.map_err(|refusal| let_all_go(array, &taken, refusal))?;
    Ok(done(&begun(&view)))
}

fn begin(array: &ServedArray, plan: &GrowthPlan, moves: Moves, by: u16) -> Said {
    if !plan.least_moves {
        return array.command(Command::Reshape { by });
    }
    // Also the best way is named: the last growth may have gone another.
    array.command(Command::Moves(moves))?;
    array.command(Command::Grow { by })
}

fn begun(view: &GrowthView) -> String {
    let (from, to, size) = (view.slots, view.slots_after, Size(view.size_bytes_after));
    let grows = format!("grows from {from} to {to} members, then {size}");
    match (&view.parity_from, &view.parity_to) {
        (Some(old), Some(new)) => format!(
            "{grows}; parity moves from {old} to {new}, and {old} becomes a spare; \
             name all {} devices at the next start",
            to + 1
        ),
        _ => format!("{grows}; name all {to} members at the next start"),
    }
}

fn moves_named(name: Option<&str>) -> Said<Moves> {
    let Some(name) = name else {
        return Ok(Moves::Best);
    };
    let served = Moves::named(name).filter(|moves| Moves::SERVED.contains(moves));
    served.ok_or_else(|| {
        let names = Moves::SERVED.map(Moves::name).join(" or ");
        Refusal::new(format!("a growth cannot move by '{name}'")).hint(format!("name {names}"))
    })
}

/// The member that parity moves from, and the spare that it moves to: the last that the growth leaves. Any
/// will do, since the former member has all parity until the end.
fn parity_moves(array: &ServedArray, plan: &GrowthPlan, added: &Added) -> Said<(String, String)> {
    let Some(parity) = plan.parity else {
        let what = "parity-outsourced requires level 4, where one member has all parity";
        return Err(Refusal::new(what).hint("grow without --moves"));
    };
    let (status, names) = array.look()?;
    let members = status.members.iter();
    let spares = members.filter(|member| member.state == MemberState::Spare);
    let left = spares.map(|spare| spare.member);
    let left = left.filter(|spare| !added.spares.contains(spare)).max();
    let Some(spare) = left else {
        let what = "no spare is left that parity could move to";
        let hint = format!("add one first: restripe add {} DEVICE", status.set.name);
        return Err(Refusal::new(what).hint(hint));
    };
    let named = |member| name_in(&names, member).to_string();
    Ok((named(parity), named(spare)))
}

fn to_be_added<'a>(array: &ServedArray, asked: &Asked<'a>, plan: &GrowthPlan) -> Said<Added<'a>> {
    let mut added = Added {
        spares: Vec::new(),
        devices: Vec::new(),
    };
    for path in asked.members {
        match spare_named(array, path)? {
            Some(spare) => added.spares.push(spare),
            None => {
                could_be_taken_in(array, path, plan, asked.force)?;
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
