//! The models of this folder as a [`Device`] of the simulated world.
//!
//! A [`Device`] says when an operation ends as soon as it is sent, so a mechanical drive here serves in order of arrival;
//! a disk of depth one leaves the choice among those waiting to [`Device::choose`].

use super::flash::Flash;
use super::mechanical::{Access, Command, Mechanical};
use super::power::{Ledger, Power, PowerModel};
use super::queue::{Policy, Server, Waiting, choose};
use super::{Asked, Device};
use crate::rng::Rng;
use restripe_array::{IoOp, Nanos};
use std::collections::VecDeque;

/// A mechanical drive in the simulated world.
pub struct HardDisk {
    drive: Mechanical,
    policy: Policy,
    power: Option<Power>,
    upward: bool,
    waiting: Vec<Waiting>,
}

fn command(op: IoOp, at: u64, sectors: u64) -> Option<Command> {
    let access = match op {
        IoOp::Read => Access::Read,
        IoOp::Write => Access::Write,
        IoOp::Flush | IoOp::Zero | IoOp::Trim => return None,
    };
    let blocks = u32::try_from(sectors).ok().filter(|blocks| *blocks > 0)?;
    Some(Command {
        access,
        block: at,
        blocks,
    })
}

impl HardDisk {
    pub fn new(drive: Mechanical, policy: Policy, power: Option<PowerModel>) -> HardDisk {
        HardDisk {
            drive,
            policy,
            power: power.map(Power::new),
            upward: true,
            waiting: Vec::new(),
        }
    }

    pub fn drive(&self) -> &Mechanical {
        &self.drive
    }

    /// What it has drawn up to `now`, if its power is known.
    pub fn ledger(&mut self, now: Nanos) -> Option<Ledger> {
        self.power.as_mut().map(|power| power.ledger(now.0))
    }

    /// Stops the spindle.
    pub fn spin_down(&mut self, now: Nanos) {
        if let Some(power) = &mut self.power {
            power.spin_down(now.0);
        }
    }

    /// When a command that arrives at `now` ends; spins the drive up for it.
    pub fn service(&mut self, now: u64, command: Command) -> u64 {
        let ready = self.power.as_mut().map_or(now, |power| power.wake(now));
        let seeks = self.drive.work().seek_ns;
        let done = self.drive.service(ready, command);
        let sought = self.drive.work().seek_ns - seeks;
        if let Some(power) = &mut self.power {
            power.worked(ready, done, sought);
        }
        done
    }
}

impl HardDisk {
    /// When all that was written before `now` is on the medium.
    pub fn flush(&mut self, now: u64) -> u64 {
        self.drive.flush(now)
    }
}

impl Server for HardDisk {
    fn serve(&mut self, now: u64, command: Command) -> u64 {
        self.service(now, command)
    }

    fn positioning(&self, now: u64, command: Command) -> u64 {
        self.drive.positioning(now, command)
    }

    fn arm(&self) -> u64 {
        self.drive.last_block()
    }
}

impl Device for HardDisk {
    fn serve(&mut self, now: Nanos, op: IoOp, at: u64, sectors: u64, _rng: &mut Rng) -> Nanos {
        match command(op, at, sectors) {
            Some(command) => Nanos(self.service(now.0, command)),
            None if op == IoOp::Flush => Nanos(self.drive.flush(now.0)),
            None => now,
        }
    }

    fn choose(&mut self, now: Nanos, waiting: &VecDeque<Asked>) -> usize {
        self.waiting.clear();
        for (index, asked) in waiting.iter().enumerate() {
            let Some(command) = command(asked.op, asked.at, asked.sectors) else {
                return index;
            };
            self.waiting.push(Waiting {
                id: index as u64,
                arrived: asked.arrived.0,
                command,
            });
        }
        choose(
            self.policy,
            &self.drive,
            now.0,
            &self.waiting,
            &mut self.upward,
        )
    }
}

impl Device for Flash {
    fn serve(&mut self, now: Nanos, op: IoOp, at: u64, sectors: u64, _rng: &mut Rng) -> Nanos {
        command(op, at, sectors).map_or(now, |command| Nanos(self.service(now.0, command)))
    }
}
