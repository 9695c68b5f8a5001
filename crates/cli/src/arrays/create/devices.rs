//! The devices of a new set: opened, and judged by what they contain.

use crate::arrays::create::at_once::{Extent, on_each};
use crate::arrays::member::{content, open};
use crate::arrays::owner::refuse_served;
use crate::failure::{Failure, Outcome};
use crate::print::terminal::{Lost, confirm};
use restripe_io::plain::Plain;

pub(crate) fn open_all(names: &[String]) -> Outcome<Vec<Plain>> {
    let mut names: Vec<&String> = names.iter().collect();
    let looked = Extent::new("opening members", names.len() as u64);
    on_each(&mut names, &looked, |_, name| open(name, false))
}

pub(crate) fn losses(members: &mut [Plain]) -> Outcome<Vec<Lost>> {
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

pub(crate) fn permit(losses: &[Lost], force: bool, yes: bool) -> Outcome {
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

/// Nobody is asked: whoever says `force` was.
pub(crate) fn refuse_to_overwrite(devices: &mut [Plain], force: bool) -> Outcome {
    refuse_served(devices.iter())?;
    match losses(devices)? {
        losses if losses.is_empty() || force => Ok(()),
        losses => permit(&losses, false, false),
    }
}
