//! What happens to a code cache's buffer in persistent memory: its members fail, are away, or are there as
//! they were before.

use super::{Life, Run, Site, set_of};
use super::{faults, removal};
use crate::array::superblock_of;
use crate::atlas::Atlas;
use crate::disk::Disk;
use crate::fault::Fault;
use crate::image::Image;
use crate::rng::Rng;
use crate::run::End;
use restripe_array::{Command, CommandError, Member, Nanos, StartMode};

/// Of a run, beside its buffer's disks.
pub(super) struct Buffers {
    /// A stream of its own: what is drawn for others stays as it was.
    rng: Rng,
    /// Left out of the life that goes on.
    away: Vec<Disk>,
    /// They are needed: the next life has them as they are.
    needed: bool,
    /// As it was before the life that goes on; and that life has begun to serve.
    copy: Option<Vec<Image>>,
    /// What it held when the copy was put in its place.
    newest: Option<(Vec<Image>, u32)>,
    /// It is lost for good.
    gone: bool,
}

/// What becomes of a start that was refused.
pub(super) enum Refused {
    Again,
    End(End),
}

impl Buffers {
    pub(super) fn new(seed: u64) -> Buffers {
        Buffers {
            rng: Rng::new(seed ^ 0xb0f_f00d),
            away: Vec::new(),
            needed: false,
            copy: None,
            newest: None,
            gone: false,
        }
    }
}

fn images(disks: &[Disk]) -> Vec<Image> {
    disks.iter().map(|disk| disk.live().clone()).collect()
}

/// The highest that they have on record.
fn session(disks: &[Disk]) -> u32 {
    let found = disks.iter().filter_map(|disk| superblock_of(disk.live()));
    let sessions = found.filter_map(|found| Some(found.partner?.session));
    sessions.max().unwrap_or(0)
}

fn with_images(disks: Vec<Disk>, images: Vec<Image>) -> Vec<Disk> {
    let pairs = disks.into_iter().zip(images);
    pairs.map(|(disk, image)| disk.restart(image)).collect()
}

/// The buffer's disks of the next life: all there are, or none, or as they were before the last life.
pub(super) fn take(run: &mut Run, with: bool) -> Vec<Disk> {
    let mut disks = std::mem::take(&mut run.buffer);
    let needed = std::mem::take(&mut run.buffers.needed);
    if disks.is_empty() {
        return disks;
    }
    let left_out = !needed && run.buffers.rng.chance(1, 8);
    if !with || left_out {
        run.buffers.away = disks;
        run.base.count("lives without the buffer", u64::from(with));
        return Vec::new();
    }
    let copy = run.buffers.copy.take();
    if let Some(copy) = copy.filter(|copy| copy.len() == disks.len() && !needed)
        && run.buffers.rng.chance(1, 3)
    {
        let newest = images(&disks);
        disks = with_images(disks, copy);
        run.buffers.newest = Some((newest, session(&disks)));
        run.base.count("old copies of buffers", 1);
    } else {
        run.buffers.copy = Some(images(&disks));
    }
    disks
}

/// The last life was refused for want of it.
pub(super) fn is_needed(run: &Run) -> bool {
    run.buffers.needed
}

/// The start may have been refused for the buffer.
pub(super) fn refused(
    run: &mut Run,
    life: &Life,
    error: &CommandError,
    mode: &mut StartMode,
) -> Option<Refused> {
    let inner = match error {
        CommandError::BufferMissing => error,
        CommandError::OfBuffer(inner) => &**inner,
        _ => return None,
    };
    let lost = run.buffers.gone || run.lost_lately[Site::Buffer as usize];
    let refused = match inner {
        CommandError::Minority { .. } if lost && !mode.from_minority => {
            mode.from_minority = true;
            Refused::Again
        }
        CommandError::BufferMissing if !run.buffers.away.is_empty() => {
            run.base.count("starts refused without a buffer", 1);
            run.buffers.needed = true;
            Refused::End(End::Without)
        }
        // An old copy of one member may know of the other.
        CommandError::BufferIsOld | CommandError::Minority { .. }
            if run.buffers.newest.is_some() =>
        {
            run.base.count("old buffers refused", 1);
            run.buffers.needed = true;
            Refused::End(End::Without)
        }
        _ if lost => {
            run.base.count("buffers lost with a crash", 1);
            Refused::End(End::Beyond)
        }
        _ => return None,
    };
    run.base.say(|| format!("  {} steps", life.steps));
    Some(refused)
}

/// Power went: what of the buffer is there afterwards.
pub(super) fn settle(run: &mut Run) {
    let away = std::mem::take(&mut run.buffers.away);
    run.buffer.extend(away);
    // One that a start has numbered is the buffer from then on.
    if let Some((newest, before)) = run.buffers.newest.take()
        && session(&run.buffer) == before
        && newest.len() == run.buffer.len()
    {
        run.buffer = with_images(std::mem::take(&mut run.buffer), newest);
    }
    let whole = Atlas::of(run.buffer.iter()).is_some_and(|atlas| atlas.whole(None));
    if run.buffer.is_empty() || !whole {
        run.buffers.gone = true;
    }
}

/// It was taken away with the log, whatever it held.
pub(super) fn forget(run: &mut Run) {
    run.buffer.clear();
    run.buffers.away.clear();
    (run.buffers.copy, run.buffers.newest) = (None, None);
}

/// Now and then something happens to a member of the buffer.
pub(super) fn perturb(run: &mut Run, life: &mut Life) {
    if run.plan.buffer.is_none() || removal::is_removed(run) || !run.buffers.rng.chance(1, 12) {
        return;
    }
    let status = life.session.world.status();
    let Some(set) = set_of(&status, Site::Buffer) else {
        return;
    };
    let set = faults::set_state(run, life, set, Site::Buffer);
    if set.serving.is_empty() {
        return;
    }
    let rng = &mut run.buffers.rng;
    let member = *rng.pick(&set.serving);
    let last = set.serving.len() == 1;
    match rng.below(4) {
        // Most runs would end with it.
        0 if !last || rng.chance(1, 3) => {
            let told = rng.chance(1, 2) && !last;
            life.troubled[Site::Buffer as usize] = true;
            match told {
                true => {
                    life.session.command(Command::Fail(member));
                }
                false => life.session.world.inject(member, Fault::Death),
            }
            run.base.count("members of buffers lost", 1);
        }
        1 | 2 => {
            let lasts = Nanos(rng.between(super::IO_TIMEOUT.0 / 4, 3 * super::IO_TIMEOUT.0));
            let all = rng.chance(1, 2);
            life.troubled[Site::Buffer as usize] = true;
            let cut: Vec<Member> = match all {
                true => set.serving.clone(),
                false => vec![member],
            };
            faults::hang(life, &cut, lasts);
            run.base.count("buffers cut off", 1);
        }
        _ if !set.failed.is_empty() => {
            let failed = *rng.pick(&set.failed);
            life.session.command(Command::Add(failed));
        }
        _ => {}
    }
}
