//! What the connections of one portal share: its targets, their logical units, and the sessions.

use super::chap::Secrets;
pub use crate::front::scsi::StateWriter;
use crate::front::scsi::{Initiator, Nexus, Unit};
use crate::front::{Link, Nudge, Report};
use restripe_array::Uuid;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The names of targets that nothing else names begin with this; the array's name follows.
pub const NAME_PREFIX: &str = "iqn.2026-11.restripe:";

/// The target of an array that nothing else names. Names of targets are compared without regard to case,
/// and have letters, digits, `-`, `.` and `:` alone (RFC 7143, section 4.2.7.2): two arrays may have the
/// same.
pub fn default_name(array: &str) -> String {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:".contains(&byte);
    let letter = |byte: u8| match allowed(byte) {
        true => byte.to_ascii_lowercase().into(),
        false => '-',
    };
    NAME_PREFIX
        .chars()
        .chain(array.bytes().map(letter))
        .collect()
}
/// Sessions with targets at once: half of the connections that the reactor has, so the others are left to
/// NBD. Discovery sessions have a part of the places of those who have yet to log in.
pub(crate) const SESSIONS_MAX: usize = 128;

/// A target as it is configured.
#[derive(Clone, Default, Debug)]
pub struct Target {
    pub name: String,
    /// Names of exports; the place is the number of the logical unit.
    pub luns: Vec<String>,
    /// Names of the initiators that may log in. Empty: all may.
    pub initiators: Vec<String>,
    /// The medium of its units can be ejected by an initiator, and loaded.
    pub removable: bool,
    /// With them an initiator must prove who it is.
    pub secrets: Option<Secrets>,
}

impl Target {
    pub(crate) fn admits(&self, initiator: &str) -> bool {
        let same = |one: &String| one.eq_ignore_ascii_case(initiator);
        self.initiators.is_empty() || self.initiators.iter().any(same)
    }
}

/// A session that is logged in.
struct Registered {
    handle: u16,
    initiator: Initiator,
    /// `None`: a discovery session.
    target: Option<String>,
    connection: u32,
    /// Its ends at the logical units, by export.
    nexuses: Vec<(usize, Nexus)>,
}

#[derive(Default)]
pub(crate) struct State {
    units: BTreeMap<usize, Unit>,
    sessions: Vec<Registered>,
    last_handle: u16,
}

/// The portal. Each connection has a reference to it.
pub struct Hub {
    /// Empty: each array is a target of its own.
    targets: Vec<Target>,
    /// Fills bytes with what no peer can foresee.
    pub(crate) random: fn(&mut [u8]),
    /// Where it is reached. All of them are one portal group.
    portals: Vec<SocketAddr>,
    pub(super) report: Option<Report>,
    state: Mutex<State>,
}

impl Hub {
    pub fn new(targets: Vec<Target>) -> Hub {
        Hub {
            targets,
            random: entropy,
            portals: Vec::new(),
            report: None,
            state: Mutex::default(),
        }
    }

    /// Has it name these portals to initiators that look for targets.
    pub fn at(self, portals: Vec<SocketAddr>) -> Hub {
        Hub { portals, ..self }
    }

    /// The portals that an initiator can reach as it reached this one, which is the first: those of its
    /// address family, and on loopback or not.
    pub(super) fn portals(&self, link: &dyn Link) -> Vec<SocketAddr> {
        let mut found: Vec<SocketAddr> = link.local_address().into_iter().collect();
        let Some(&here) = found.first() else {
            return found;
        };
        for portal in &self.portals {
            let mut portal = *portal;
            if portal.ip().is_unspecified() && portal.is_ipv4() == here.is_ipv4() {
                portal.set_ip(here.ip());
            }
            let reached = portal.is_ipv4() == here.is_ipv4()
                && portal.ip().is_loopback() == here.ip().is_loopback();
            if reached && !found.contains(&portal) {
                found.push(portal);
            }
        }
        found
    }

    /// Has it say which initiators were refused, and why.
    pub fn reporting(self, report: Report) -> Hub {
        Hub {
            report: Some(report),
            ..self
        }
    }

    /// Has the persistent reservations of these exports outlive the daemon, if initiators ask for that, and
    /// takes up those that did. The error names the file that cannot be used, and says why.
    pub fn keep(
        &self,
        writer: &StateWriter,
        exports: &[(usize, Uuid)],
    ) -> Result<(), (PathBuf, String)> {
        let mut state = self.state();
        for (export, uuid) in exports {
            let file = writer.file(&uuid.to_string());
            let path = file.path().to_owned();
            let kept = state.unit(*export).keep(file);
            kept.map_err(|why| (path, why))?;
        }
        Ok(())
    }

    /// The reactor's thread alone calls it once there are connections, so it never waits.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All targets, as they are configured or by default.
    pub(crate) fn targets(&self, link: &dyn Link) -> Vec<Target> {
        if !self.targets.is_empty() {
            return self.targets.clone();
        }
        let exports = (0..link.exports()).filter_map(|index| link.export(index));
        let shared = exports.filter(|export| !export.exclusive);
        shared
            .map(|export| Target {
                name: default_name(&export.name),
                luns: vec![export.name],
                ..Target::default()
            })
            .collect()
    }

    pub(crate) fn target(&self, name: &str, link: &dyn Link) -> Option<Target> {
        let mut targets = self.targets(link).into_iter();
        targets.find(|target| target.name.eq_ignore_ascii_case(name))
    }
}

impl State {
    pub(crate) fn unit(&mut self, export: usize) -> &mut Unit {
        let unit = self.units.entry(export).or_default();
        unit.settle();
        unit
    }

    /// Registers a session and gives its handle. An older session of this initiator with this target ends
    /// (RFC 7143 section 6.3.5: reinstatement). `None`: there are too many.
    pub(crate) fn register(
        &mut self,
        initiator: &Initiator,
        target: Option<&str>,
        link: &mut dyn Link,
    ) -> Option<u16> {
        let same = |one: &Registered| {
            target.is_some() && one.target.as_deref() == target && one.initiator == *initiator
        };
        let old: Vec<Registered> = self.sessions.extract_if(.., |one| same(one)).collect();
        for old in old {
            link.nudge(old.connection, Nudge::End);
            self.detach(&old);
        }
        let with_target = self.sessions.iter().filter(|one| one.target.is_some());
        if target.is_some() && with_target.count() >= SESSIONS_MAX {
            return None;
        }
        let handle = self.next_handle();
        self.sessions.push(Registered {
            handle,
            initiator: initiator.clone(),
            target: target.map(str::to_owned),
            connection: link.number(),
            nexuses: Vec::new(),
        });
        Some(handle)
    }

    /// Has all sessions of a target end, once they have sent what they have to send.
    pub(crate) fn end_all(&self, target: &str, link: &mut dyn Link) {
        let of_target = |one: &&Registered| one.target.as_deref() == Some(target);
        for session in self.sessions.iter().filter(of_target) {
            link.nudge(session.connection, Nudge::Finish);
        }
    }

    /// A handle that no session has; never zero.
    fn next_handle(&mut self) -> u16 {
        loop {
            self.last_handle = self.last_handle.checked_add(1).unwrap_or(1);
            let handle = self.last_handle;
            if self.sessions.iter().all(|one| one.handle != handle) {
                return handle;
            }
        }
    }

    pub(crate) fn has_session(&self, handle: u16) -> bool {
        self.sessions.iter().any(|one| one.handle == handle)
    }

    /// Attaches a session to a logical unit, whose medium may be `removable`.
    pub(crate) fn attach(&mut self, handle: u16, export: usize, removable: bool) -> Option<Nexus> {
        let session = self.sessions.iter_mut().find(|one| one.handle == handle)?;
        let unit = self.units.entry(export).or_default();
        unit.removable |= removable;
        let nexus = unit.attach(session.initiator.clone(), session.connection);
        session.nexuses.push((export, nexus));
        Some(nexus)
    }

    fn detach(&mut self, session: &Registered) {
        for (export, nexus) in &session.nexuses {
            self.unit(*export).detach(*nexus);
        }
    }

    /// A session has ended, if it is still there.
    pub(crate) fn end(&mut self, handle: u16) {
        if let Some(place) = self.sessions.iter().position(|one| one.handle == handle) {
            let session = self.sessions.swap_remove(place);
            self.detach(&session);
        }
    }
}

/// Random bytes from the kernel. It blocks only early in the boot of the machine, before there are any.
fn entropy(bytes: &mut [u8]) {
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut bytes[filled..];
        // SAFETY: the pointer and length are those of a slice that nothing else uses.
        let count = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        filled += usize::try_from(count).unwrap_or(0);
    }
}
