//! Carries out the plan of a new set on its devices.

use crate::arrays::create::at_once::{Extent, on_each};
use crate::arrays::member::{Copies, io_failure};
use crate::failure::{Failure, Outcome};
use restripe_array::meta::{Content, Creation, MemberEntry};
use restripe_array::{PAGE_SECTORS, SECTOR_BYTES};
use restripe_io::plain::Plain;

/// Zeroed between two looks at the progress: 64 MiB.
const ZERO_STEP_SECTORS: usize = 1 << 17;

/// Writes what was planned, on all members at once, and flushes each at every boundary of the plan.
pub(crate) fn carry_out(creation: &Creation, members: &mut [Plain]) -> Outcome {
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
pub(crate) fn check_disks(creation: &Creation, members: &[Plain]) -> Outcome {
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
