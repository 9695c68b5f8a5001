//! The models of this folder as a [`Device`] of the simulated world.
//!
//! A [`Device`] returns the end of an operation when the operation is sent. So a mechanical drive serves in
//! the order of arrival here. A disk of depth one leaves the choice among waiting operations to
//! [`Device::choose`].

use super::flash::Flash;
use super::mechanical::{Command, Mechanical};
use super::power::{Course, Ledger, Power, PowerModel};
use super::queue::{Policy, Server, Waiting, choose};
use super::{Asked, Device};
use crate::rng::Rng;
use restripe_array::energy::Rating;
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

/// What moves data; `None` of all else.
fn command(asked: &Asked) -> Option<Command> {
    let blocks = u32::try_from(asked.sectors).ok();
    let blocks = blocks.filter(|blocks| *blocks > 0)?;
    match asked.op {
        IoOp::Read => Some(Command::read(asked.at, blocks)),
        IoOp::Write => Some(Command {
            durable: asked.durable,
            ..Command::write(asked.at, blocks)
        }),
        IoOp::Flush | IoOp::Zero | IoOp::Trim | IoOp::Standby | IoOp::Wake => None,
    }
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

    /// Keeps what it draws from now on step by step.
    pub fn chart(&mut self, now: Nanos, step_ns: u64) {
        if let Some(power) = &mut self.power {
            power.chart(now.0, step_ns);
        }
    }

    /// What it has drawn up to `now`, step by step, if its power is known and that is kept.
    pub fn course(&mut self, now: Nanos) -> Option<&Course> {
        self.power.as_mut()?.course(now.0)
    }

    /// What is known of it without its model.
    pub fn rating(&self) -> Option<Rating> {
        let power = self.power.as_ref()?;
        Some(power.model().rating())
    }

    /// Stops the spindle.
    pub fn spin_down(&mut self, now: Nanos) {
        if let Some(power) = &mut self.power {
            power.spin_down(now.0);
        }
    }

    /// Starts the spindle: when it turns.
    pub fn wake(&mut self, now: Nanos) -> Nanos {
        let power = self.power.as_mut();
        power.map_or(now, |power| Nanos(power.wake(now.0)))
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

    /// When all that was written before `now` is on the medium.
    pub fn flush(&mut self, now: u64) -> u64 {
        self.drive.flush(now)
    }
}

impl Server for HardDisk {
    fn serve(&mut self, now: u64, command: Command) -> u64 {
        self.service(now, command)
    }

    fn reach(&mut self, now: u64) {
        self.drive.advance(now);
    }

    fn positioning(&self, now: u64, command: Command) -> u64 {
        self.drive.positioning(now, command)
    }

    fn arm(&self) -> u64 {
        self.drive.last_block()
    }
}

impl Device for HardDisk {
    /// A drive that turns has nothing to trim. Zeroing is free too: nobody has told what a drive takes for it.
    fn serve(&mut self, now: Nanos, asked: &Asked, _rng: &mut Rng) -> Nanos {
        match command(asked) {
            Some(command) => Nanos(self.service(now.0, command)),
            None if asked.op == IoOp::Flush => Nanos(self.drive.flush(now.0)),
            None if asked.op == IoOp::Standby => {
                let flushed = Nanos(self.drive.flush(now.0));
                self.spin_down(flushed);
                flushed
            }
            None if asked.op == IoOp::Wake => self.wake(now),
            None => now,
        }
    }

    fn choose(&mut self, now: Nanos, waiting: &VecDeque<Asked>) -> usize {
        self.waiting.clear();
        for (index, asked) in waiting.iter().enumerate() {
            let Some(command) = command(asked) else {
                return index;
            };
            self.waiting.push(Waiting {
                id: index as u64,
                arrived: asked.arrived.0,
                command,
            });
        }
        self.drive.advance(now.0);
        let (waiting, upward) = (&self.waiting, &mut self.upward);
        choose(self.policy, &self.drive, now.0, waiting, upward)
    }
}

impl Device for Flash {
    fn serve(&mut self, now: Nanos, asked: &Asked, _rng: &mut Rng) -> Nanos {
        match command(asked) {
            Some(command) => Nanos(self.service(now.0, command)),
            None if asked.op == IoOp::Flush => Nanos(self.flush(now.0)),
            None => Nanos(self.trim(now.0)),
        }
    }
}
