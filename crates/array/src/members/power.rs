//! Mirrors that sleep: copies beyond the first of each chunk, on members that stand still until something is
//! asked of them.
//!
//! | state   | cause                                                        | next    |
//! |---------|--------------------------------------------------------------|---------|
//! | awake   | to be put in standby, and nothing is under way that needs the member | resting |
//! | resting | the device has taken it                                      | asleep  |
//! | resting | the device cannot                                            | awake, for good |
//! | resting, asleep | any operation on it                                  | waking  |
//! | waking  | an operation on it has ended                                 | awake   |
//!
//! Whatever the engine wants of a sleeping member wakes it: a superblock that records a failure, a block that
//! its first copy cannot give, a task. So a member that sleeps lacks nothing, and what metadata say of it
//! stays true. Nothing is written only to keep it in step, because nothing changes meanwhile: whoever lets
//! mirrors sleep keeps users' writes elsewhere. Time-outs leave out the time that a spindle takes, and who
//! tells it: what is asked of a member that is being told to rest waits until that has ended, and then until
//! the spindle turns.

use super::Members;
use super::device::Power;
use crate::contract::{Class, IoError, IoOp};
use crate::energy::Phase;
use crate::members::ops::Owner;
use crate::units::{Member, Nanos};

/// What a spindle may take to turn again, beside all that is waited for otherwise. A shell gives up a command
/// of the operator's after as long, and the member is asked all the same.
pub(crate) const SPIN_UP_MAX: Nanos = Nanos::from_secs(60);
/// What it may take to stand still: a shell gives up as late, which leaves the member awake.
const REST_MAX: Nanos = Nanos::from_secs(60);

impl Members {
    pub(crate) fn is_restful(&self, member: Member) -> bool {
        let device = &self.devices[usize::from(member.0)];
        device.power == Power::Awake && device.in_flight == 0 && !device.unflushed
    }

    /// Lets every mirror rest that can.
    pub fn rest_mirrors(&mut self) {
        for member in self.mirrors() {
            if self.is_restful(member) {
                self.devices[usize::from(member.0)].power = Power::Resting;
                let (owner, class) = (Owner::Power(false), Class::Metadata);
                self.device_io(owner, member, IoOp::Standby, 0, 0, class, |_| {});
            }
        }
    }

    /// Wakes every mirror that sleeps.
    pub fn wake_mirrors(&mut self) {
        for member in self.mirrors() {
            let power = self.devices[usize::from(member.0)].power;
            if matches!(power, Power::Resting | Power::Asleep) {
                self.wake_member(member);
            }
        }
    }

    fn wake_member(&mut self, member: Member) {
        let (owner, class) = (Owner::Power(true), Class::Metadata);
        self.device_io(owner, member, IoOp::Wake, 0, 0, class, |_| {});
    }

    /// A disk spins up for whatever is asked of it; who does so in its place is told first.
    pub(crate) fn wake_for(&mut self, member: Member, op: IoOp) {
        let power = self.devices[usize::from(member.0)].power;
        let stands = matches!(power, Power::Resting | Power::Asleep);
        if stands && !matches!(op, IoOp::Standby | IoOp::Wake) {
            self.wake_member(member);
        }
    }

    /// How many mirrors are in a state of power.
    pub fn mirrors_in(&self, power: Power) -> u16 {
        let is_in = |one: &&Member| self.devices[usize::from(one.0)].power == power;
        self.mirrors().iter().filter(is_in).count() as u16 // 64 at most
    }

    /// Whether every mirror turns, and none is on its way to rest.
    pub fn mirrors_up(&self) -> bool {
        let up = |one: &Member| self.devices[usize::from(one.0)].power.is_up();
        self.mirrors().iter().all(up)
    }

    /// An operation is going to be sent: how much longer it may take for the member's spindle.
    pub(crate) fn rouse(&mut self, member: Member, op: IoOp) -> Nanos {
        let now = self.now;
        let device = &mut self.devices[usize::from(member.0)];
        if op == IoOp::Standby {
            device.rests_until = now.after(REST_MAX);
        }
        let rests = device.rests_until.since(now);
        match device.power {
            Power::Awake | Power::Restless => return rests,
            before @ (Power::Resting | Power::Asleep) if op != IoOp::Standby => {
                device.power = Power::Waking;
                device.spent.starts += u64::from(before == Power::Asleep);
            }
            _ => {}
        }
        rests.after(SPIN_UP_MAX)
    }

    /// An operation on a member has ended.
    pub(crate) fn roused(&mut self, member: Member, op: IoOp) {
        let device = &mut self.devices[usize::from(member.0)];
        if op == IoOp::Standby {
            device.rests_until = Nanos::ZERO;
        } else if device.power == Power::Waking {
            device.power = Power::Awake;
        }
    }

    /// A member was put in standby, or spun up. One that cannot spin up fails at its next operation.
    pub(crate) fn power_told(&mut self, member: Member, wakes: bool, result: Result<(), IoError>) {
        let device = &mut self.devices[usize::from(member.0)];
        match (device.power, result) {
            (Power::Resting, Ok(())) => {
                device.power = Power::Asleep;
                device.spent.stops += 1;
                self.rests += 1;
            }
            (Power::Resting, Err(_)) if !wakes => device.power = Power::Restless,
            // Something was asked of it while it ran out: it stops, and starts again.
            (Power::Waking | Power::Awake, Ok(())) if !wakes => {
                device.spent.stops += 1;
                device.spent.starts += 1;
            }
            _ => {}
        }
        self.note_phase(member);
    }

    /// What is under way on a member has changed, or its power: what it was at until now is added up.
    pub(crate) fn note_phase(&mut self, member: Member) {
        let device = &mut self.devices[usize::from(member.0)];
        let phase = match device.power {
            Power::Awake | Power::Restless if device.in_flight > 0 => Phase::Active,
            Power::Awake | Power::Restless => Phase::Idle,
            Power::Resting => Phase::Stopping,
            Power::Asleep => Phase::Standby,
            Power::Waking => Phase::Starting,
        };
        device.spent.turn(self.below.now, phase);
    }
}
