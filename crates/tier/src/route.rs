//! One numbering for all sets: translates members and tags between a set's engine and the reactor.

use crate::overlay::Site;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};
use restripe_array::parts::NEVER;
use restripe_array::{Action, CommandError, Fact, Member, MemberInfo, Nanos, Tag};

pub(crate) const SITES: [Site; SETS] = [Site::Home, Site::Log, Site::Nvram];
/// The largest number of sets of an array.
pub(crate) const SETS: usize = 3;

/// A value for each set of an array.
#[derive(Clone, Copy, Default)]
pub(crate) struct PerSet<T>(pub(super) [T; SETS]);

impl<T> Index<Site> for PerSet<T> {
    type Output = T;

    #[inline]
    fn index(&self, site: Site) -> &T {
        &self.0[site as usize]
    }
}

impl<T> IndexMut<Site> for PerSet<T> {
    #[inline]
    fn index_mut(&mut self, site: Site) -> &mut T {
        &mut self.0[site as usize]
    }
}

/// The two highest bits of a tag say whose it is; those of the main set are unchanged.
const OWNER_SHIFT: u32 = 30;
const OWN: u32 = 3;

pub(crate) fn tagged(site: Site, tag: Tag) -> Tag {
    Tag(tag.0 | (site as u32) << OWNER_SHIFT)
}

/// The tag of a computation of the tier itself.
pub(crate) fn own_tag(index: u32) -> Tag {
    Tag(index | OWN << OWNER_SHIFT)
}

/// The set of a tag (`None`: the tier's own), and the tag within that set.
pub(crate) fn untagged(tag: Tag) -> (Option<Site>, Tag) {
    let site = match tag.0 >> OWNER_SHIFT {
        0 => Some(Site::Home),
        1 => Some(Site::Log),
        2 => Some(Site::Nvram),
        _ => None,
    };
    (site, Tag(tag.0 & ((1 << OWNER_SHIFT) - 1)))
}

struct Place {
    info: MemberInfo,
    site: Site,
    /// The member's number in its set.
    local: Member,
}

pub(crate) struct Route {
    /// By the reactor's numbers.
    places: Vec<Place>,
    /// The reactor's numbers, by those of the sets.
    globals: PerSet<Vec<Member>>,
    wakes: PerSet<Nanos>,
    own_wake: Nanos,
    armed: Nanos,
}

impl Route {
    /// The first `homes` members are the main set's, the next `logs` the log set's, the others the NVRAM
    /// set's.
    pub(crate) fn new(members: &[MemberInfo], homes: usize, logs: usize) -> Route {
        let mut route = Route {
            places: Vec::new(),
            globals: PerSet::default(),
            wakes: PerSet([NEVER; SETS]),
            own_wake: NEVER,
            armed: NEVER,
        };
        for (index, info) in members.iter().enumerate() {
            let site = match index {
                _ if index < homes => Site::Home,
                _ if index < homes + logs => Site::Log,
                _ => Site::Nvram,
            };
            route.arrived(*info, site);
        }
        route
    }

    /// A further device, the set's next.
    pub(crate) fn arrived(&mut self, info: MemberInfo, site: Site) {
        let global = Member(self.places.len() as u16);
        let local = self.next_of(site, global);
        self.places.push(Place { info, site, local });
    }

    fn next_of(&mut self, site: Site, global: Member) -> Member {
        let globals = &mut self.globals[site];
        globals.push(global);
        Member(globals.len() as u16 - 1)
    }

    /// Moves a device to another set, as the next of that set. The number that it had stays empty.
    pub(crate) fn reassign(&mut self, member: Member, site: Site) -> Option<MemberInfo> {
        let info = self.places.get(usize::from(member.0))?.info;
        let local = self.next_of(site, member);
        self.places[usize::from(member.0)] = Place { info, site, local };
        Some(info)
    }

    /// The set of a device, and its number there. An unknown device counts as the main set's.
    pub(crate) fn set_of(&self, member: Member) -> (Site, Member) {
        match self.places.get(usize::from(member.0)) {
            Some(place) => (place.site, place.local),
            None => (Site::Home, Member(u16::MAX)),
        }
    }

    /// The reactor's number of a set's member.
    pub(crate) fn global(&self, site: Site, member: Member) -> Member {
        let found = self.globals[site].get(usize::from(member.0));
        found.copied().unwrap_or(member)
    }

    // ------------------------------------------------------------------------------------------------ time

    pub(crate) fn wake(&mut self, site: Site, at: Nanos) {
        self.wakes[site] = at;
    }

    /// Requests a timer event for the tier itself.
    pub(crate) fn wake_own(&mut self, at: Nanos) {
        self.own_wake = self.own_wake.min(at);
    }

    /// Whether a set requested this time. The request is removed.
    pub(crate) fn is_due(&mut self, site: Site, now: Nanos) -> bool {
        self.armed = NEVER;
        if self.own_wake <= now {
            self.own_wake = NEVER;
        }
        let due = self.wakes[site] <= now;
        if due {
            self.wakes[site] = NEVER;
        }
        due
    }

    /// The time to request from the reactor, if it is not the one requested last.
    pub(crate) fn armed(&mut self) -> Option<Nanos> {
        let wakes = self.wakes.0.iter();
        let next = wakes.fold(self.own_wake, |one, next| one.min(*next));
        if next == self.armed || next == NEVER {
            return None;
        }
        self.armed = next;
        Some(next)
    }

    // -------------------------------------------------------------------------------------------- outwards

    /// A set's action, in the reactor's numbers.
    pub(crate) fn action_of(&self, site: Site, action: Action) -> Action {
        match action {
            Action::Device(mut io) => {
                io.tag = tagged(site, io.tag);
                io.member = self.global(site, io.member);
                Action::Device(io)
            }
            Action::Compute(mut compute) => {
                compute.tag = tagged(site, compute.tag);
                Action::Compute(compute)
            }
            Action::Detach(tag) => Action::Detach(tagged(site, tag)),
            other => other,
        }
    }

    pub(crate) fn fact_of(&self, site: Site, mut fact: Fact) -> Fact {
        match &mut fact {
            Fact::MemberFailed { member, .. }
            | Fact::Repaired { member, .. }
            | Fact::Ignored { member, .. }
            | Fact::MoveFailed { member, .. }
            | Fact::OutOfSpace { member }
            | Fact::RoomAgain { member }
            | Fact::PartitionTaken { host: member, .. }
            | Fact::SpareTaken { spare: member, .. }
            | Fact::Mismatch {
                guilty: Some(member),
                ..
            } => *member = self.global(site, *member),
            _ => {}
        }
        match site {
            Site::Home => fact,
            Site::Log => Fact::OfSurrogate(Box::new(fact)),
            Site::Nvram => Fact::OfBuffer(Box::new(fact)),
        }
    }

    pub(crate) fn error_of(&self, site: Site, mut error: CommandError) -> CommandError {
        match &mut error {
            CommandError::Clone(one, other)
            | CommandError::Split(one, other)
            | CommandError::SameDevice(one, other) => {
                *one = self.global(site, *one);
                *other = self.global(site, *other);
            }
            CommandError::Foreign(member)
            | CommandError::Indispensable(member)
            | CommandError::OtherHistory { member, .. }
            | CommandError::Unreadable(member)
            | CommandError::Unsound { member, .. }
            | CommandError::FailedAgain(member)
            | CommandError::Volatile(member)
            | CommandError::NoSuchMember(member) => *member = self.global(site, *member),
            _ => {}
        }
        match site {
            Site::Home => error,
            Site::Log => CommandError::OfSurrogate(Box::new(error)),
            Site::Nvram => CommandError::OfBuffer(Box::new(error)),
        }
    }
}
