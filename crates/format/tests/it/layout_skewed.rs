//! S2-RAID (Wan et al.): when rebuild streams collide, by enumeration, and the paper's figures and matrices.

use restripe_format::layout::{Geometry, GeometryError, Layout, Level, Role, Rotation, Skew};
use restripe_format::units::{Row, SLOTS_MAX, Slot};
use std::collections::BTreeSet;

const RAID5: Level = Level::Raid5(Rotation::LeftSymmetric);

fn geometry(level: Level, slots: u16, groups: u16, partitions: u16) -> Geometry {
    Geometry {
        level,
        slots,
        chunk_sectors: 8,
        slot_sectors: 8 * 2 * u64::from(partitions.max(1)),
        skew: Some(Skew { groups, partitions }),
        ..Geometry::PLAIN
    }
}

/// The slots that a stream of a lost slot's rebuild reads: those of its sub-array in this partition.
fn read_by_stream(skew: Skew, size: u16, lost: Slot, partition: u16) -> Vec<Slot> {
    let column = skew.column(size, partition, lost);
    let cells = (0..skew.groups).map(|group| skew.slot(size, group, partition, column));
    let (own, others): (Vec<Slot>, Vec<Slot>) = cells.partition(|slot| *slot == lost);
    assert_eq!(own, [lost], "a slot is in its own sub-arrays");
    others
}

fn streams_are_disjoint(skew: Skew, size: u16, lost: Slot) -> bool {
    let mut read = BTreeSet::new();
    let of = |partition| read_by_stream(skew, size, lost, partition);
    (0..skew.partitions)
        .flat_map(of)
        .all(|slot| read.insert(slot))
}

/// As below, for a lost slot of this group alone: its sub-arrays can only meet in groups so far from it.
fn nothing_vanishes_around(skew: Skew, size: u16, group: u16) -> bool {
    let distances = (0..skew.groups).filter(|other| *other != group);
    let distances = distances.map(|other| other.abs_diff(group));
    let mut products = distances.flat_map(|a| (1..skew.partitions).map(move |b| a * b));
    products.all(|product| !product.is_multiple_of(size))
}

/// The condition as it is derived, apart from how the layout computes it.
fn nothing_vanishes(skew: Skew, size: u16) -> bool {
    let products = (1..skew.groups).flat_map(|a| (1..skew.partitions).map(move |b| a * b));
    products
        .into_iter()
        .all(|product| !product.is_multiple_of(size))
}

/// Both ways, for every size up to 13, as many groups, one partition more, and every slot that may fail.
#[test]
fn streams_collide_exactly_when_the_condition_says_so() {
    let mut free = 0;
    for size in 1..=13 {
        for groups in 1..=size {
            for partitions in 1..=size + 1 {
                let skew = Skew { groups, partitions };
                let expected = nothing_vanishes(skew, size);
                assert_eq!(
                    skew.is_free_of_conflict(size),
                    expected,
                    "{skew:?} of {size}"
                );
                let disjoint = |lost: u16| {
                    let disjoint = streams_are_disjoint(skew, size, Slot(lost));
                    let around = nothing_vanishes_around(skew, size, lost / size);
                    assert_eq!(disjoint, around, "slot {lost}, {skew:?} of {size}");
                    disjoint
                };
                let colliding = (0..size * groups).filter(|lost| !disjoint(*lost)).count();
                assert_eq!(colliding == 0, expected, "{skew:?} of {size}");
                free += u32::from(expected);
            }
        }
    }
    assert!(free > 500, "{free} geometries");
}

/// With a prime size, and no more groups and partitions than that: the paper's own rule.
#[test]
fn prime_sizes_bear_as_many_groups_and_partitions() {
    for size in [2, 3, 5, 7, 11, 13] {
        for groups in 2..=size {
            assert_eq!(
                Skew::partitions_max(groups, size),
                size,
                "{groups} of {size}"
            );
        }
    }
    let most = |groups, size| Skew::partitions_max(groups, size);
    assert_eq!(
        (most(6, 6), most(4, 9), most(3, 12), most(3, 8)),
        (2, 3, 6, 4)
    );
    assert_eq!((most(3, 4), most(4, 4), most(2, 4)), (2, 2, 4));
}

/// A position of a slot and its sub-array find each other.
#[test]
fn every_partition_of_every_slot_is_in_one_sub_array() {
    for size in 1..=13 {
        for groups in 1..=size {
            let skew = Skew {
                groups,
                partitions: size,
            };
            for partition in 0..skew.partitions {
                for group in 0..groups {
                    for column in 0..size {
                        let slot = skew.slot(size, group, partition, column);
                        assert_eq!(slot.0 / size, group);
                        assert_eq!(skew.column(size, partition, slot), column);
                    }
                }
            }
        }
    }
}

/// Section 2.1: `m_i` is `m_(i-1)`, each of its lines shifted cyclically to the right by the line's number.
fn shift_matrices(groups: u16, size: u16, partitions: u16) -> Vec<Vec<u16>> {
    let line = |partition: u16| -> Vec<u16> {
        let mut shifted: Vec<u16> = (0..size).map(|column| partition * size + column).collect();
        let mut line = shifted.clone();
        for _ in 1..groups {
            shifted.rotate_right(usize::from(partition));
            line.extend(&shifted);
        }
        line
    };
    (0..partitions).map(line).collect()
}

/// The sub-array that each partition of each slot belongs to, from the layout.
fn sub_arrays(layout: &Layout) -> Vec<Vec<u16>> {
    let geometry = layout.geometry();
    let size = geometry.slots / geometry.skew.unwrap().groups;
    let of = |partition: u16, slot: u16| {
        let at = u64::from(partition) * (geometry.slot_sectors / u64::from(layout.partitions()));
        let row = layout.row_at(Slot(slot), at).unwrap();
        assert_eq!(layout.partition_of(row), partition);
        let column = row.0 % u64::from(size);
        partition * size + u16::try_from(column).unwrap()
    };
    let line = |partition| {
        (0..geometry.slots)
            .map(|slot| of(partition, slot))
            .collect()
    };
    (0..layout.partitions()).map(line).collect()
}

/// The matrix M that section 2.1 prints for nine disks as three groups of three.
#[test]
fn nine_slots_are_mapped_as_the_papers_matrix() {
    let layout = Layout::new(geometry(RAID5, 9, 3, 3)).unwrap();
    assert_eq!(
        sub_arrays(&layout),
        [
            [0, 1, 2, 0, 1, 2, 0, 1, 2],
            [3, 4, 5, 5, 3, 4, 4, 5, 3],
            [6, 7, 8, 7, 8, 6, 8, 6, 7],
        ]
    );
}

/// The paper's recursion gives what our closed form gives.
#[test]
fn shift_matrices_and_the_closed_form_agree() {
    for size in 1..=13 {
        for groups in 3..=size {
            let partitions = Skew::partitions_max(groups, size);
            if usize::from(size * groups) > SLOTS_MAX {
                continue;
            }
            let layout = Layout::new(geometry(RAID5, size * groups, groups, partitions)).unwrap();
            let matrices = shift_matrices(groups, size, partitions);
            assert_eq!(sub_arrays(&layout), matrices, "{groups} of {size}");
        }
    }
}

/// Figure 1's example: disk 4 has cells of the sub-arrays 1, 3 and 8, and what they are rebuilt from stands on six
/// different disks.
#[test]
fn the_fourth_disk_is_rebuilt_as_in_figure_1() {
    let layout = Layout::new(geometry(RAID5, 9, 3, 3)).unwrap();
    let column: Vec<u16> = sub_arrays(&layout).iter().map(|line| line[4]).collect();
    assert_eq!(column, [1, 3, 8]);
    let skew = layout.geometry().skew.unwrap();
    let read = (0..3).map(|partition| {
        let slots = read_by_stream(skew, 3, Slot(4), partition);
        slots.into_iter().map(|slot| slot.0).collect::<Vec<_>>()
    });
    assert_eq!(
        read.collect::<Vec<_>>(),
        [vec![1, 7], vec![0, 8], vec![2, 6]]
    );
}

/// Figure 2's rule: partition j of data disk d has its copy on disk (d + j) mod h of the mirrors.
#[test]
fn mirrors_of_partitions_go_around_the_second_half() {
    let half = 4;
    let layout = Layout::new(geometry(Level::Raid10 { copies: 2 }, 8, 2, 4)).unwrap();
    for row in (0..layout.rows()).map(Row) {
        let map = layout.row(row);
        let (data, copy) = (map.cells()[0], map.cells()[1]);
        assert_eq!(
            (data.role, copy.role),
            (Role::Data(0), Role::Copy { of: 0 })
        );
        let partition = layout.partition_of(row);
        assert_eq!(copy.slot.0, half + (data.slot.0 + partition) % half);
        assert_eq!(data.at, copy.at);
    }
}

/// Section 2.2: the first units of an array go to the sub-arrays of the first partition in turn.
#[test]
fn rows_are_dealt_to_the_sub_arrays_of_a_partition_until_it_is_full() {
    let layout = Layout::new(geometry(RAID5, 9, 3, 3)).unwrap();
    let data = |row: u64| -> Vec<u16> {
        let map = layout.row(Row(row));
        let cells = &map.cells()[..usize::from(map.data)];
        cells.iter().map(|cell| cell.slot.0).collect()
    };
    // Two stripes of each: the parity of the first stands in the last group, of the second in the middle.
    let first: Vec<_> = (0..6).map(data).collect();
    assert_eq!(first, [[0, 3], [1, 4], [2, 5], [6, 0], [7, 1], [8, 2]]);
    let partitions: Vec<u16> = (0..18).map(|row| layout.partition_of(Row(row))).collect();
    assert_eq!(partitions, [[0; 6], [1; 6], [2; 6]].concat());
    assert_eq!(layout.partition_rows(1), 6..12);
    // A third of the space is parity (section 2.2), where RAID-5 over nine has a ninth.
    assert_eq!(layout.size_sectors(), 9 * 6 * 8 * 2 / 3);
}

/// What cannot be is refused with what can.
#[test]
fn impossible_geometries_are_refused_with_the_nearest_that_work() {
    let error = |geometry| Layout::new(geometry).unwrap_err();
    let colliding = error(geometry(RAID5, 16, 4, 3));
    assert!(matches!(
        colliding,
        GeometryError::Colliding { size: 4, .. }
    ));
    assert_eq!(
        colliding.to_string(),
        "with 3 partitions the rebuild streams of 4 groups of 4 collide: 2 at most; these work: 16 members as 4 x 4 with \
         up to 2 partitions, 20 members as 4 x 5 with up to 5 partitions, 24 members as 4 x 6 with up to 2 partitions"
    );
    assert_eq!(
        error(geometry(RAID5, 8, 3, 2)).to_string(),
        "8 members do not make 3 groups of one size; these work: 9 members as 3 x 3 with up to 3 partitions, 12 members as \
         3 x 4 with up to 2 partitions, 15 members as 3 x 5 with up to 5 partitions"
    );
    for (level, slots, groups) in [
        (Level::Raid0, 9, 3),
        (Level::Raid1, 9, 3),
        (Level::Raid4, 9, 3),
        (Level::Raid6(Rotation::LeftSymmetric), 9, 3),
        (Level::Raid10 { copies: 3 }, 8, 2),
        (RAID5, 9, 0),
        (RAID5, 9, 1),
        (Level::Raid10 { copies: 2 }, 9, 3),
    ] {
        let error = error(geometry(level, slots, groups, 1));
        assert!(matches!(error, GeometryError::NotSkewed { .. }), "{error}");
    }
    // A mirror of one copy is none, in one group as over all members.
    assert!(matches!(
        error(geometry(Level::Raid10 { copies: 1 }, 4, 1, 300)),
        GeometryError::TooFewCopies { copies: 1 }
    ));
    assert!(matches!(
        error(geometry(RAID5, 9, 3, 0)),
        GeometryError::Colliding { .. }
    ));
    assert!(matches!(
        error(geometry(RAID5, 0, 3, 1)),
        GeometryError::UnevenGroups { .. }
    ));
    assert!(matches!(
        error(geometry(RAID5, 66, 3, 11)),
        GeometryError::TooManySlots { .. }
    ));
    let thin = Geometry {
        slot_sectors: 16,
        ..geometry(RAID5, 9, 3, 3)
    };
    assert!(matches!(
        error(thin),
        GeometryError::ThinPartitions { chunks: 2, .. }
    ));
    let limits = geometry(RAID5, u16::MAX, u16::MAX, u16::MAX);
    assert!(Layout::new(limits).is_err());
}
