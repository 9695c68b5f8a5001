//! A drive model that runs by the wall clock: commands go in, and come out at the times of the model.
//!
//! It has no thread and no clock of its own: its caller passes the time, so tests need not wait.

use restripe_sim::disk::flash::Flash;
use restripe_sim::disk::mechanical::Command;
use restripe_sim::disk::queue::{Policy, Queue};
use restripe_sim::disk::served::HardDisk;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What a drive is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    Transfer(Command),
    Flush,
    Trim,
}

/// What stands behind the queue.
pub enum Works {
    Hard(Box<Queue<HardDisk>>),
    Flash { drive: Flash, depth: usize },
}

/// Where commands are: before the drive, within it, or done at a known time.
pub struct Clockwork {
    works: Works,
    /// More than the drive takes at a time, in order of arrival.
    before: VecDeque<(u64, Asked)>,
    /// Commands whose end is known, and that nothing changes any more.
    timed: BinaryHeap<Reverse<(u64, u64)>>,
}

impl Clockwork {
    pub fn hard(drive: HardDisk, policy: Policy, depth: u32) -> Clockwork {
        Clockwork::over(Works::Hard(Box::new(Queue::new(drive, policy, depth))))
    }

    pub fn flash(drive: Flash, depth: u32) -> Clockwork {
        Clockwork::over(Works::Flash {
            drive,
            depth: depth as usize,
        })
    }

    /// Whether it has something to turn.
    pub fn rotates(&self) -> bool {
        matches!(self.works, Works::Hard(_))
    }

    /// Whether it can make use of being told what is no longer needed.
    pub fn trims(&self) -> bool {
        matches!(self.works, Works::Flash { .. })
    }

    fn over(works: Works) -> Clockwork {
        Clockwork {
            works,
            before: VecDeque::new(),
            timed: BinaryHeap::new(),
        }
    }

    /// Takes a command in. `id` is the caller's and comes back once.
    pub fn submit(&mut self, now: u64, id: u64, asked: Asked) {
        self.before.push_back((id, asked));
        self.feed(now);
    }

    /// When something ends next.
    pub fn next_event(&self) -> Option<u64> {
        let timed = self.timed.peek().map(|Reverse((at, _))| *at);
        let queued = match &self.works {
            Works::Hard(queue) => queue.next_event(),
            Works::Flash { .. } => None,
        };
        [timed, queued].into_iter().flatten().min()
    }

    /// A command that has ended by `now`, until there is none.
    pub fn ended(&mut self, now: u64) -> Option<u64> {
        if let Works::Hard(queue) = &mut self.works
            && let Some(done) = queue.advance(now)
        {
            self.feed(done.ended.max(now));
            return Some(done.id);
        }
        let Reverse((at, _)) = self.timed.peek()?;
        if *at > now {
            return None;
        }
        let id = self.timed.pop().map(|Reverse((_, id))| id);
        self.feed(now);
        id
    }

    /// Moves what waits into the drive as far as it takes more.
    fn feed(&mut self, now: u64) {
        while let Some((id, asked)) = self.before.front().copied() {
            match (&mut self.works, asked) {
                (Works::Hard(queue), _) if queue.full() => return,
                (Works::Hard(queue), Asked::Transfer(command)) => queue.submit(now, id, command),
                (Works::Hard(queue), Asked::Flush) => {
                    self.timed
                        .push(Reverse((queue.server_mut().flush(now), id)));
                }
                // Nothing to do, and so nothing to wait for.
                (Works::Hard(_), Asked::Trim) => self.timed.push(Reverse((now, id))),
                (Works::Flash { depth, .. }, _) if self.timed.len() >= *depth => return,
                (Works::Flash { drive, .. }, Asked::Transfer(command)) => {
                    self.timed.push(Reverse((drive.service(now, command), id)));
                }
                (Works::Flash { drive, .. }, Asked::Flush) => {
                    self.timed.push(Reverse((drive.flush(now), id)));
                }
                (Works::Flash { drive, .. }, Asked::Trim) => {
                    self.timed.push(Reverse((drive.trim(now), id)));
                }
            }
            self.before.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::preset;
    use super::*;

    fn clockwork(name: &str, depth: u32) -> Clockwork {
        match preset::named(name)
            .and_then(|preset| preset.make())
            .expect("a preset")
        {
            preset::Made::Mechanical(drive) => Clockwork::hard(
                HardDisk::new(*drive, Policy::Fcfs, None),
                Policy::Fcfs,
                depth,
            ),
            preset::Made::Flash(drive) => Clockwork::flash(drive, depth),
        }
    }

    #[test]
    fn every_command_ends_once_and_in_time_order() {
        for name in ["wd1600aajs", "ssd-sata"] {
            let mut works = clockwork(name, 4);
            for id in 0..20 {
                let command = match id % 3 {
                    1 => Command::write(id * 1_000_000, 8),
                    _ => Command::read(id * 1_000_000, 8),
                };
                works.submit(0, id, Asked::Transfer(command));
            }
            works.submit(0, 20, Asked::Flush);
            works.submit(0, 21, Asked::Trim);
            let (mut seen, mut last) = (Vec::new(), 0);
            while let Some(at) = works.next_event() {
                assert!(at >= last, "{name}: time runs forward");
                last = at;
                seen.extend(works.ended(at));
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..22).collect::<Vec<u64>>(), "{name}");
        }
    }
}
