//! Where the partitions of a lost slot are rebuilt: onto a physical spare, and onto spare partitions of members in service
//! (S2-RAID, section 5), so that as many members write as the rebuild has streams.
//!
//! Two cells of a row never lie on one member, or its loss would cost both. So nobody takes a partition whose rows have
//! another cell there, or may get one: a member's own slot may lie in spare partitions for a while, and come home.
//!
//! Of those that are left the least busy takes each partition: who reads for a stream of this rebuild is busy with that, and
//! so is who writes for one. That balances the writes and keeps them off the members that are read, as far as there is
//! room: those of the lost slot's own group are never read. A partition that few can take is placed before others. Physical
//! spares take their shares like everybody else, and before their equals: there a partition is at home, if it will be
//! brought to one of them in the end.

use crate::layout::Layout;
use crate::roles::Roles;
use crate::units::{Member, Slot};
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Who may take partitions.
struct Taker {
    member: Member,
    room: usize,
    /// Streams of this rebuild that read it.
    reads: usize,
    /// Streams that read it or write to it.
    load: usize,
}

/// Who takes which of these partitions of a slot, of spares and of hosts with room for so many each. What nobody can take is
/// left out.
pub(crate) fn targets(
    layout: &Layout,
    roles: &Roles,
    slot: Slot,
    partitions: &[u16],
    spares: &[Member],
    hosts: &[(Member, usize)],
) -> Vec<(u16, Member)> {
    let spares = spares.iter().map(|member| (*member, partitions.len()));
    let offered = spares.chain(hosts.iter().copied());
    let mut takers: Vec<Taker> = offered
        .map(|(member, room)| {
            let read = |partition: &&u16| reads(layout, roles, slot, **partition, member);
            let reads = partitions.iter().filter(read).count();
            Taker {
                member,
                room,
                reads,
                load: reads,
            }
        })
        .collect();
    let may = |taker: &Taker, partition: u16| {
        taker.room > 0 && !clashes(layout, roles, slot, partition, taker.member)
    };
    let (mut left, mut chosen) = (partitions.to_vec(), Vec::new());
    while !left.is_empty() {
        let choices = |partition: &u16| takers.iter().filter(|one| may(one, *partition)).count();
        let scarcest = (0..left.len()).min_by_key(|index| choices(&left[*index]));
        let partition = left.remove(scarcest.expect("some are left"));
        let able = takers.iter_mut().filter(|taker| may(taker, partition));
        if let Some(taker) = able.min_by_key(|taker| (taker.load, taker.reads)) {
            (taker.room, taker.load) = (taker.room - 1, taker.load + 1);
            chosen.push((partition, taker.member));
        }
    }
    chosen.sort_unstable();
    chosen
}

/// Of the partitions that members host, one that would better lie on one of these, which have room, and on which: its host has at
/// least two more than that. Moved until there is none, they lie as evenly as they may.
pub(crate) fn uneven(
    layout: &Layout,
    roles: &Roles,
    room: &[Member],
) -> Option<(Slot, u16, Member)> {
    let hosted = |member: &Member| roles.hosted_by(*member).len();
    let (mut hosts, mut takers) = (roles.serving(), room.to_vec());
    hosts.sort_by_key(|host| Reverse(hosted(host)));
    takers.sort_by_key(hosted);
    let with_each = |host| takers.iter().map(move |taker| (host, taker));
    let pairs = hosts.iter().flat_map(with_each);
    let mut uneven = pairs.filter(|(host, taker)| hosted(host) >= hosted(taker) + 2);
    uneven.find_map(|(host, taker)| {
        let may = |(slot, partition): &(u16, u16)| {
            let own = roles.own_slot(*taker) == Some(usize::from(*slot));
            !own && !clashes(layout, roles, Slot(*slot), *partition, *taker)
        };
        let moved = roles.hosted_by(*host).into_iter().find(may);
        moved.map(|(slot, partition)| (Slot(slot), partition, *taker))
    })
}

/// Whether a member holds another cell of the rows that have one in this partition of a slot, or may get one.
pub(crate) fn clashes(
    layout: &Layout,
    roles: &Roles,
    slot: Slot,
    partition: u16,
    member: Member,
) -> bool {
    let own = roles.own_slot(member);
    layout.beside(slot, partition).any(|other| {
        let mut members = roles.at(other, partition).members();
        own == Some(usize::from(other.0)) || members.any(|one| one == member)
    })
}

/// Whether what rebuilds a partition of a slot is read from this member.
fn reads(layout: &Layout, roles: &Roles, slot: Slot, partition: u16, member: Member) -> bool {
    let mut others = layout.beside(slot, partition);
    others.any(|other| roles.at(other, partition).serves(member))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Geometry, Level, Skew};
    use crate::roles::Home;

    /// Beyond all slots.
    const SPARE: Member = Member(60);

    fn layout(level: Level, slots: u16, groups: u16, partitions: u16) -> Layout {
        Layout::new(Geometry {
            level,
            slots,
            chunk_sectors: 8,
            slot_sectors: 8 * 24,
            skew: Some(Skew { groups, partitions }),
            ..Geometry::PLAIN
        })
        .expect("it is sound")
    }

    fn three_by_three() -> Layout {
        layout(Level::Raid5(Default::default()), 9, 3, 3)
    }

    fn home(member: u16, region: u16) -> Option<Home> {
        Some(Home {
            member: Member(member),
            region,
            start: 0,
            from: 0,
        })
    }

    /// Every slot served by the member of its number, but for these.
    fn without(layout: &Layout, lost: &[u16]) -> Roles {
        let slots = layout.geometry().slots;
        let mut roles = Roles::new(slots, layout.partitions());
        for slot in (0..slots).filter(|slot| !lost.contains(slot)) {
            for one in roles.of_slot_mut(slot.into()) {
                one.home = home(slot, 0);
            }
        }
        roles
    }

    fn all(room: usize, members: impl IntoIterator<Item = u16>) -> Vec<(Member, usize)> {
        members.into_iter().map(|one| (Member(one), room)).collect()
    }

    /// Where the partitions of slot 4 go.
    fn placed(spares: &[Member], hosts: &[(Member, usize)]) -> Vec<(u16, u16)> {
        let layout = three_by_three();
        let roles = without(&layout, &[4]);
        let targets = targets(&layout, &roles, Slot(4), &[0, 1, 2], spares, hosts);
        targets.iter().map(|(part, one)| (*part, one.0)).collect()
    }

    #[test]
    fn a_spare_and_two_hosts_take_one_each() {
        let chosen = placed(&[SPARE], &all(2, [0, 1, 2, 3, 5, 6, 7, 8]));
        assert_eq!(chosen, [(0, SPARE.0), (1, 3), (2, 5)]);
    }

    #[test]
    fn two_of_the_own_group_alone_take_two_and_one() {
        assert_eq!(placed(&[], &all(2, [3, 5])), [(0, 3), (1, 5), (2, 3)]);
    }

    #[test]
    fn spares_take_before_hosts() {
        let hosts = all(2, [0, 1, 2, 3, 5, 6, 7, 8]);
        let spares = [0, 1, 2].map(|more| Member(SPARE.0 + more));
        let chosen = placed(&spares[..2], &hosts);
        assert_eq!(chosen, [(0, SPARE.0), (1, SPARE.0 + 1), (2, 3)]);
        let chosen = placed(&spares, &hosts);
        assert_eq!(chosen, [0, 1, 2].map(|one| (one, SPARE.0 + one)));
    }

    #[test]
    fn a_spare_alone_takes_everything() {
        assert_eq!(placed(&[SPARE], &[]), [0, 1, 2].map(|part| (part, SPARE.0)));
    }

    #[test]
    fn what_nobody_can_take_is_left_out() {
        assert_eq!(placed(&[], &all(1, [5])), [(0, 5)]);
        assert_eq!(placed(&[], &[]), []);
        let layout = three_by_three();
        // Member 0 stands beside slot 4 in one partition: with room for all it takes the two others.
        let beside = |part: &u16| layout.beside(Slot(4), *part).any(|other| other == Slot(0));
        let others: Vec<u16> = (0..3).filter(|part| !beside(part)).collect();
        let chosen = placed(&[], &all(3, [0]));
        assert_eq!(
            (others.len(), chosen),
            (2, others.iter().map(|part| (*part, 0)).collect())
        );
    }

    /// Also where others are by now, will be, or may come home to.
    #[test]
    fn no_member_gets_two_cells_of_a_row() {
        let layout = three_by_three();
        let mut roles = without(&layout, &[4]);
        let other = layout.beside(Slot(4), 1).next().expect("of two");
        let clashes = |roles: &Roles, member| clashes(&layout, roles, Slot(4), 1, Member(member));
        assert!(clashes(&roles, other.0) && !clashes(&roles, 3));
        let cell = |roles: &mut Roles| {
            roles.of_slot_mut(other.0.into())[1].home = home(3, 1);
        };
        cell(&mut roles);
        assert!(clashes(&roles, 3), "it hosts the cell");
        assert!(clashes(&roles, other.0), "the cell may come home");
        roles.of_slot_mut(other.0.into())[1].home = None;
        roles.of_slot_mut(other.0.into())[1].incoming = home(5, 2);
        assert!(clashes(&roles, 5), "it will host the cell");
    }

    /// Member 3 hosts two, which could also lie with 5, of the same group, or with some of the others; in the end all have one.
    #[test]
    fn what_is_hosted_is_spread() {
        let layout = three_by_three();
        let mut roles = without(&layout, &[4]);
        for (partition, region) in [(0, 1), (1, 2), (2, 3)] {
            roles.of_slot_mut(4)[partition].home = home(3, region);
        }
        let others: Vec<Member> = [0, 1, 2, 3, 5, 6, 7, 8].map(Member).to_vec();
        assert_eq!(uneven(&layout, &roles, &[]), None);
        assert_eq!(uneven(&layout, &roles, &[Member(3)]), None);
        let alone = uneven(&layout, &roles, &[Member(5)]);
        assert_eq!(alone, Some((Slot(4), 0, Member(5))));
        let mut moves = 0;
        while let Some((slot, partition, member)) = uneven(&layout, &roles, &others) {
            assert!(!clashes(&layout, &roles, slot, partition, member));
            roles.of_slot_mut(4)[usize::from(partition)].home = home(member.0, 1);
            moves += 1;
        }
        let most = others.iter().map(|one| roles.hosted_by(*one).len());
        assert_eq!((moves, most.max()), (2, Some(1)));
    }

    /// Every geometry of the paper's kinds, one slot lost and then another: what is placed is balanced and never clashes, and
    /// with room in the own group nobody who is read has to write.
    #[test]
    fn members_that_are_read_do_not_write_while_others_can() {
        let raid5 = Level::Raid5(Default::default());
        let raid10 = Level::Raid10 { copies: 2 };
        for (level, slots, groups, partitions) in [
            (raid5, 9, 3, 3),
            (raid5, 15, 3, 5),
            (raid5, 25, 5, 5),
            (Level::Raid6(Default::default()), 20, 4, 5),
            (raid10, 8, 2, 4),
            (raid10, 10, 2, 5),
        ] {
            let layout = layout(level, slots, groups, partitions);
            let parts: Vec<u16> = (0..partitions).collect();
            for lost in 0..slots {
                let roles = without(&layout, &[lost]);
                let others = (0..slots).filter(|slot| *slot != lost);
                let hosts = all(usize::from(partitions), others);
                let chosen = targets(&layout, &roles, Slot(lost), &parts, &[], &hosts);
                assert_eq!(chosen.len(), parts.len());
                let size = slots / groups;
                let mates = |member: Member| member.0 / size == lost / size;
                let most = usize::from(partitions.div_ceil(size - 1));
                for &(partition, member) in &chosen {
                    let there = chosen.iter().filter(|(_, other)| *other == member).count();
                    assert!(!clashes(&layout, &roles, Slot(lost), partition, member));
                    assert!(mates(member), "{lost}: {chosen:?}");
                    assert!(there <= most, "{lost}: {chosen:?}");
                }
            }
        }
    }
}
