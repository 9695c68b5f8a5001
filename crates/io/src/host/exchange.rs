//! Replacement of the engine of an array while clients stay connected: the array gets a surrogate, or
//! continues without one.
//!
//! ```text
//! hold -> the command to stop -> exchange -> the command to start -> let go
//! ```
//!
//! Requests that arrive meanwhile wait here. The old engine has stopped, so everything is flushed and
//! recorded; the new engine reads its state from the members, as after a restart. No operation of the old
//! engine may be in flight, because its tag would be mistaken for one of the new engine.

use super::Host;
use crate::front::Export;
use crate::member::OpenMember;
use crate::memory::PoolMemory;
use restripe_array::report::{ArrayState, Health, MapExtent, MemberState, MemberStatus};
use restripe_array::{Limits, Member, SECTOR_BYTES};
use restripe_tier::{Engine, SurrogateConfig};
use std::io;

const OUTSTANDING: &str = "operations on a failed member are still outstanding";
const RECORDED: &str = "a recorded run cannot change its engine";

/// What an array goes on with.
pub struct Exchange {
    /// Devices that join those that are there.
    pub joining: Vec<OpenMember>,
    /// Devices that are none of this array's any more. They stay open until they are closed.
    pub leaving: Vec<Member>,
    pub limits: Limits,
    /// The last devices are a surrogate.
    pub surrogate: Option<SurrogateConfig>,
}

impl Host {
    /// From now on requests wait, or do so no longer. Who connects meanwhile sees the array as it was.
    pub fn hold(&mut self, held: bool) {
        self.view.forget();
        self.held_as = held.then(|| Export {
            // The new engine may take whole sectors only.
            minimum_block: SECTOR_BYTES as u32,
            ..self.export()
        });
    }

    /// Nobody is told of holes that another engine may know of.
    pub(super) fn map_while_held(&self, first: u64, end: u64) -> Option<Vec<MapExtent>> {
        self.held_as.as_ref()?;
        Some(vec![MapExtent {
            lba: first,
            sectors: end - first,
            hole: false,
            health: Health::Healthy,
        }])
    }

    /// Gives the devices to another engine, which has yet to be started. Refused, all is as it was.
    pub fn exchange(&mut self, change: Exchange) -> io::Result<()> {
        self.check_exchange()?;
        self.view.forget();
        let pool = PoolMemory::new(change.limits.pool)?;
        for member in change.joining {
            self.config.members.push(member.info);
            self.fleet.arrive(member);
        }
        let open: Vec<bool> = self.fleet.names().map(|(_, open)| open).collect();
        for (number, info) in (0..).zip(&mut self.config.members) {
            // A device without a sector carries nothing of any array.
            if !open[usize::from(number)] || change.leaving.contains(&Member(number)) {
                info.sectors = 0;
            }
        }
        self.config.limits = change.limits;
        self.config.surrogate = change.surrogate;
        self.engine = Engine::new(self.config.clone());
        self.pool = pool;
        self.inbox.clear();
        self.wake = None;
        Ok(())
    }

    /// Whether nothing would be in the way of an exchange once the engine has stopped: operations that were given up with
    /// their members do not end with it.
    pub fn may_exchange(&self) -> io::Result<()> {
        let status = self.status();
        let out = |member: &MemberStatus| {
            let serves = matches!(member.state, MemberState::Active | MemberState::Rebuilding);
            !serves && self.fleet.is_used(member.member)
        };
        let why = match () {
            () if self.recorder.is_some() => RECORDED,
            () if status.all_members().any(out) => OUTSTANDING,
            () => return Ok(()),
        };
        Err(io::Error::other(why))
    }

    fn check_exchange(&self) -> io::Result<()> {
        let why = match () {
            () if self.status().state != ArrayState::Stopped => "the array has not stopped",
            () if self.fleet.in_flight() > 0 => OUTSTANDING,
            () if self.recorder.is_some() => RECORDED,
            () => return Ok(()),
        };
        Err(io::Error::other(why))
    }
}
