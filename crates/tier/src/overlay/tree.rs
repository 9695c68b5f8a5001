//! The order of the map's entries: a B+-tree over a fixed number of nodes.
//!
//! Leaves hold entries, inner nodes a [`Branch`] for each child, with the child's count and the first sector
//! of its very first entry. These are always exact, so a search for a sector ends in the leaf that has the
//! entry before it. The root is an inner node, if only over one leaf. The map prevents overlaps.
//!
//! All nodes are taken at construction. A node is split only when it and three neighbours are full: four
//! become five. Of five neighbours, one of which has become too empty, four are made if four can hold all
//! items. So nodes are at least four fifths full, and the largest content bounds a tree's memory. (Where a
//! root has fewer than five children, these share among themselves: [`least`].)

use super::{EXTENT_SECTORS_MAX, Extent, HOME_SECTORS_MAX, Kind, LOG_SECTORS_MAX};
use alloc::vec;
use alloc::vec::Vec;

/// The largest number of inner levels: more than 2^32 entries need in the emptiest nodes.
const LEVELS_MAX: usize = 8;

/// The path from the root to an entry, or to a place for one. Valid until the tree changes.
#[derive(Clone, Copy)]
pub(super) struct Way {
    /// By level, from the leaf: the index of the item, and its node.
    steps: [Step; LEVELS_MAX + 1],
}

#[derive(Clone, Copy, Default)]
struct Step {
    node: u32,
    index: u32,
}

impl Step {
    fn new(node: u32, index: usize) -> Step {
        Step {
            node,
            index: index as u32, // below a node's width
        }
    }

    fn index(&self) -> usize {
        self.index as usize
    }
}

pub(super) struct Tree {
    pub(super) leaves: Nodes<Entry>,
    pub(super) inner: Nodes<Branch>,
    root: Branch,
    /// The root's level. Leaves are at 0.
    height: usize,
    len: usize,
}

impl Tree {
    /// A tree for at most `entries` entries.
    pub(super) fn new(entries: usize) -> Tree {
        let leaf_count = nodes_max(entries);
        let mut leaves = Nodes::new(leaf_count);
        let mut inner: Nodes<Branch> = Nodes::new(inner_max(leaf_count));
        let root = Branch {
            node: inner.take(),
            count: 1,
            ..Branch::NONE
        };
        inner.at_mut(root.node, 0).node = leaves.take();
        Tree {
            leaves,
            inner,
            root,
            height: 1,
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Tree>() + self.leaves.bytes() + self.inner.bytes()
    }

    pub(super) fn entry(&self, way: &Way) -> &Entry {
        let step = way.steps[0];
        self.leaves.at(step.node, step.index())
    }

    /// The way to the first entry that ends behind `home`.
    pub(super) fn seek(&self, home: u64) -> Option<Way> {
        let mut way = self.descend(home);
        let step = &mut way.steps[0];
        if step.index > 0 && self.leaves.at(step.node, step.index() - 1).end() > home {
            step.index -= 1;
            return Some(way);
        }
        self.valid(way)
    }

    /// The way to the entry behind this one.
    pub(super) fn next(&self, mut way: Way) -> Option<Way> {
        way.steps[0].index += 1;
        self.valid(way)
    }

    /// Continues to the next leaf from behind the last entry of one.
    fn valid(&self, mut way: Way) -> Option<Way> {
        let ends = |level: &usize| way.steps[*level].index() + 1 < self.branch(&way, *level).len();
        if way.steps[0].index() < self.branch(&way, 0).len() {
            return Some(way);
        }
        let level = (1..=self.height).find(ends)?;
        way.steps[level].index += 1;
        for below in (0..level).rev() {
            way.steps[below] = Step::new(self.branch(&way, below).node, 0);
        }
        Some(way)
    }

    /// The way to the place for an entry at `home`: behind all that begin there or before.
    fn descend(&self, home: u64) -> Way {
        let mut way = Way {
            steps: [Step::default(); LEVELS_MAX + 1],
        };
        let mut branch = self.root;
        for level in (1..=self.height).rev() {
            let children = self.inner.of(&branch);
            let index = not_behind(children, home).saturating_sub(1);
            way.steps[level] = Step::new(branch.node, index);
            branch = children[index];
        }
        let after = not_behind(self.leaves.of(&branch), home);
        way.steps[0] = Step::new(branch.node, after);
        way
    }

    /// The node that a way goes through at a level.
    fn branch(&self, way: &Way, level: usize) -> &Branch {
        if level == self.height {
            return &self.root;
        }
        let above = way.steps[level + 1];
        self.inner.at(above.node, above.index())
    }

    fn branch_mut(&mut self, way: &Way, level: usize) -> &mut Branch {
        if level == self.height {
            return &mut self.root;
        }
        let above = way.steps[level + 1];
        self.inner.at_mut(above.node, above.index())
    }

    /// Puts an entry in before the one that a way leads to, or behind all.
    pub(super) fn insert(&mut self, before: Option<Way>, entry: Entry) {
        let mut way = before.unwrap_or_else(|| self.descend(entry.home()));
        if way.steps[0].index == 0 {
            self.set_first(&way, entry.home());
        }
        self.insert_item(&mut way, 0, entry);
        self.len += 1;
    }

    /// Puts an entry in the place of another, between the same neighbours.
    pub(super) fn replace(&mut self, way: &Way, entry: Entry) {
        let step = way.steps[0];
        *self.leaves.at_mut(step.node, step.index()) = entry;
        if step.index == 0 {
            self.set_first(way, entry.home());
        }
    }

    pub(super) fn remove(&mut self, mut way: Way) {
        let step = way.steps[0];
        // A leaf without another entry is the whole tree: the first sector of an empty leaf means nothing.
        if step.index == 0 && self.branch(&way, 0).count > 1 {
            self.set_first(&way, self.leaves.at(step.node, 1).home());
        }
        self.remove_item::<Entry>(&mut way, 0);
        self.len -= 1;
    }

    /// The first entry of a leaf begins elsewhere: so does every node whose first entry it is.
    fn set_first(&mut self, way: &Way, first: u64) {
        for level in 0..=self.height {
            self.branch_mut(way, level).first = first;
            if level < self.height && way.steps[level + 1].index > 0 {
                break;
            }
        }
    }

    fn insert_item<T: Item>(&mut self, way: &mut Way, level: usize, item: T) {
        let at = way.steps[level].index();
        let branch = *self.branch(way, level);
        if branch.len() < WIDTH {
            T::nodes(self).insert(&branch, at, item);
            self.branch_mut(way, level).count += 1;
            return;
        }
        if level == self.height {
            self.raise(way);
        }
        let mut window = self.window(way, level + 1, Sharing::Room);
        let child = way.steps[level + 1].index() - window.start;
        let before = window.branches().len();
        T::nodes(self).insert_dealing(&mut window, child, at, item);
        self.put_back(way, level + 1, &window, before);
    }

    /// Not the first item of a node, unless it is an entry.
    fn remove_item<T: Item>(&mut self, way: &mut Way, level: usize) {
        let branch = *self.branch(way, level);
        T::nodes(self).remove(&branch, way.steps[level].index());
        self.branch_mut(way, level).count -= 1;
        if level == self.height {
            return self.lower();
        }
        let siblings = self.branch(way, level + 1).len();
        if branch.len() > least(siblings) {
            return;
        }
        let mut window = self.window(way, level + 1, Sharing::Items);
        let before = window.branches().len();
        T::nodes(self).even_out(&mut window);
        self.put_back(way, level + 1, &window, before);
    }

    fn window(&self, way: &Way, level: usize, sharing: Sharing) -> Window {
        let siblings = self.inner.of(self.branch(way, level));
        Window::around(way.steps[level].index(), siblings, sharing)
    }

    /// Returns a window of `before` children to their parent, perhaps with one more or one less.
    fn put_back(&mut self, way: &mut Way, level: usize, window: &Window, before: usize) {
        let node = way.steps[level].node;
        let kept = before.min(window.branches().len());
        for (index, branch) in window.branches()[..kept].iter().enumerate() {
            *self.inner.at_mut(node, window.start + index) = *branch;
        }
        way.steps[level] = Step::new(node, window.start + kept);
        match window.branches().get(kept) {
            Some(added) => self.insert_item(way, level, *added),
            None if kept < before => self.remove_item::<Branch>(way, level),
            None => {}
        }
    }

    /// A new root over the old one.
    fn raise(&mut self, way: &mut Way) {
        let node = self.inner.take();
        *self.inner.at_mut(node, 0) = self.root;
        self.root = Branch {
            node,
            count: 1,
            ..self.root
        };
        self.height += 1;
        way.steps[self.height] = Step::new(node, 0);
    }

    /// Checks the invariants of the tree: exact firsts and counts, fill, and no stray node.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let (mut entries, mut leaves, mut inner) = (0, 0, 0);
        let mut last = None;
        let mut open = alloc::vec![(self.root, self.height)];
        while let Some((branch, level)) = open.pop() {
            if level == 0 {
                leaves += 1;
                entries += branch.len();
                for entry in self.leaves.of(&branch) {
                    assert!(
                        last < Some(entry.home()),
                        "home {} is in order",
                        entry.home()
                    );
                    last = Some(entry.home());
                }
                continue;
            }
            inner += 1;
            let children = self.inner.of(&branch);
            for child in children.iter().rev() {
                assert!(
                    (least(children.len())..=WIDTH).contains(&child.len()),
                    "fill"
                );
                open.push((*child, level - 1));
            }
            assert!(branch.first == children[0].first, "inner first");
            for child in children
                .iter()
                .filter(|child| level == 1 && child.len() > 0)
            {
                assert_eq!(
                    child.first,
                    self.leaves.at(child.node, 0).home(),
                    "leaf's first"
                );
            }
        }
        assert!(self.height == 1 || self.root.count > 1, "a root has a use");
        assert_eq!((entries, leaves), (self.len, self.leaves.taken()));
        assert_eq!(inner, self.inner.taken());
        assert!(
            leaves <= nodes_max(entries) && inner <= inner_max(leaves),
            "no more than the limits"
        );
    }

    /// Removes a root over only one inner node.
    fn lower(&mut self) {
        if self.root.count == 1 && self.height > 1 {
            let only = *self.inner.at(self.root.node, 0);
            self.inner.give_back(self.root.node);
            self.root = only;
            self.height -= 1;
        }
    }
}

/// The largest number of inner nodes over this many leaves.
fn inner_max(leaves: usize) -> usize {
    let (mut below, mut sum) = (leaves, 0);
    while below > 1 || sum == 0 {
        below = nodes_max(below);
        sum += below;
    }
    sum
}

// --------------------------------------------------------------------------------------------------- entries

/// Bits of a length; the place in the main set takes the others of its word.
const LENGTH_BITS: u32 = EXTENT_SECTORS_MAX.trailing_zeros();
const LENGTH_MASK: u64 = EXTENT_SECTORS_MAX as u64 - 1;
const KIND_BITS: u32 = 2;
const KIND_MASK: u64 = (1 << KIND_BITS) - 1;

const _: () = assert!(LENGTH_BITS + HOME_SECTORS_MAX.trailing_zeros() == u64::BITS);
const _: () = assert!(KIND_BITS + LOG_SECTORS_MAX.trailing_zeros() == u64::BITS);
const _: () = assert!(size_of::<Entry>() == 24);

/// An extent as the map stores it: 24 bytes, ordered by its place in the main set.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    /// The place in the main set, then the length less one.
    place: u64,
    /// The sector in the log, then the kind.
    log: u64,
    sequence: u64,
}

impl Entry {
    pub(super) fn home(&self) -> u64 {
        self.place >> LENGTH_BITS
    }

    pub(super) fn end(&self) -> u64 {
        self.home() + (self.place & LENGTH_MASK) + 1
    }

    pub(super) fn extent(&self) -> Extent {
        Extent {
            home: self.home(),
            sectors: (self.place & LENGTH_MASK) as u32 + 1, // 20 bits
            at: self.log >> KIND_BITS,
            sequence: self.sequence,
            kind: match self.log & KIND_MASK {
                0 => Kind::Instead,
                1 => Kind::Also,
                _ => Kind::Clean,
            },
        }
    }
}

/// Of an extent that the map can address: the caller has checked that.
impl From<Extent> for Entry {
    fn from(extent: Extent) -> Entry {
        debug_assert!(extent.is_addressable(), "{extent:?}");
        Entry {
            place: extent.home << LENGTH_BITS | u64::from(extent.sectors - 1),
            log: extent.at << KIND_BITS | extent.kind as u64,
            sequence: extent.sequence,
        }
    }
}

impl Item for Entry {
    const NONE: Entry = Entry {
        place: 0,
        log: 0,
        sequence: 0,
    };

    fn first(&self) -> u64 {
        self.home()
    }

    fn nodes(tree: &mut Tree) -> &mut Nodes<Entry> {
        &mut tree.leaves
    }
}

// ----------------------------------------------------------------------------------------------------- nodes

/// The largest number of items of a node.
pub(super) const WIDTH: usize = 64;
/// The number of nodes that are full before a node is added.
pub(super) const SHARERS: usize = 4;
/// The number of nodes that are examined before a node is removed.
const WINDOW: usize = SHARERS + 1;

/// The least number of items of a node with this many siblings, itself included.
pub(super) fn least(siblings: usize) -> usize {
    let sharing = siblings.clamp(1, WINDOW);
    (sharing - 1) * WIDTH / sharing
}

/// The largest number of nodes for this many items, whatever was added and removed before. Each of five or
/// more has `least(5)`; of n, which are fewer, each has `least(n)`, and the one added here covers that.
pub(super) fn nodes_max(items: usize) -> usize {
    items / (SHARERS * WIDTH / WINDOW) + 1
}

/// The number of a node's items that begin at `home` or before. It examines every eighth item, then eight.
/// None of these loads waits for another, unlike in a binary search, where each step waits for a cache line.
pub(super) fn not_behind<T: Item>(items: &[T], home: u64) -> usize {
    let begins = |item: &T| item.first() <= home;
    let eights = items.chunks_exact(8);
    let whole = 8 * eights.filter(|eight| begins(&eight[7])).count();
    let rest = items[whole..].iter().take(8);
    whole + rest.filter(|item| begins(item)).count()
}

/// What a node holds: entries, or branches to nodes below.
pub(super) trait Item: Copy {
    const NONE: Self;

    /// The first sector in the main set, by which items are ordered.
    fn first(&self) -> u64;

    /// The nodes of this kind.
    fn nodes(tree: &mut Tree) -> &mut Nodes<Self>;
}

/// A node, as its parent describes it.
#[derive(Clone, Copy)]
pub(super) struct Branch {
    /// The first sector of its first item. Of an empty node without meaning.
    pub(super) first: u64,
    pub(super) node: u32,
    pub(super) count: u32,
}

impl Branch {
    pub(super) fn len(&self) -> usize {
        self.count as usize
    }
}

impl Item for Branch {
    const NONE: Branch = Branch {
        first: 0,
        node: 0,
        count: 0,
    };

    fn first(&self) -> u64 {
        self.first
    }

    fn nodes(tree: &mut Tree) -> &mut Nodes<Branch> {
        &mut tree.inner
    }
}

/// Adjacent children of a node, taken out of it to be changed together.
pub(super) struct Window {
    /// The first one's place in the parent.
    pub(super) start: usize,
    branches: [Branch; WINDOW],
    count: usize,
}

impl Window {
    /// Takes `most` of the `siblings` around `child`, or all.
    pub(super) fn around(child: usize, siblings: &[Branch], sharing: Sharing) -> Window {
        let most = match sharing {
            Sharing::Room => SHARERS,
            Sharing::Items => WINDOW,
        };
        let count = most.min(siblings.len());
        let start = child.saturating_sub(count / 2).min(siblings.len() - count);
        let mut branches = [Branch::NONE; WINDOW];
        branches[..count].copy_from_slice(&siblings[start..start + count]);
        Window {
            start,
            branches,
            count,
        }
    }

    pub(super) fn branches(&self) -> &[Branch] {
        &self.branches[..self.count]
    }
}

/// Why neighbours share items with one of them.
#[derive(Clone, Copy)]
pub(super) enum Sharing {
    /// It is full.
    Room,
    /// It has too few.
    Items,
}

pub(super) struct Nodes<T> {
    items: Vec<T>,
    free: Vec<u32>,
    /// The items of a window, while they are redistributed.
    dealt: Vec<T>,
}

impl<T: Item> Nodes<T> {
    /// For `count` nodes, which is below 2^32.
    pub(super) fn new(count: usize) -> Nodes<T> {
        Nodes {
            items: vec![T::NONE; count * WIDTH],
            free: (0..count as u32).rev().collect(),
            dealt: Vec::with_capacity(WINDOW * WIDTH),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let items = self.items.capacity() + self.dealt.capacity();
        items * size_of::<T>() + self.free.capacity() * size_of::<u32>()
    }

    pub(super) fn take(&mut self) -> u32 {
        self.free
            .pop()
            .expect("there are as many nodes as the capacity can take")
    }

    pub(super) fn give_back(&mut self, node: u32) {
        self.free.push(node);
    }

    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.items.len() / WIDTH - self.free.len()
    }

    pub(super) fn of(&self, branch: &Branch) -> &[T] {
        &self.items[start_of(branch.node)..][..branch.len()]
    }

    pub(super) fn at(&self, node: u32, index: usize) -> &T {
        &self.items[start_of(node) + index]
    }

    pub(super) fn at_mut(&mut self, node: u32, index: usize) -> &mut T {
        &mut self.items[start_of(node) + index]
    }

    /// Puts an item in a node that is not full. The parent maintains the count.
    pub(super) fn insert(&mut self, branch: &Branch, at: usize, item: T) {
        let items = &mut self.items[start_of(branch.node)..][..WIDTH];
        items.copy_within(at..branch.len(), at + 1);
        items[at] = item;
    }

    /// Takes an item out of a node. The parent maintains the count.
    pub(super) fn remove(&mut self, branch: &Branch, at: usize) {
        let items = &mut self.items[start_of(branch.node)..][..branch.len()];
        items.copy_within(at + 1.., at);
    }

    /// Puts an item in the `child`-th of a window's nodes, and deals all evenly to as few nodes as hold them.
    pub(super) fn insert_dealing(&mut self, window: &mut Window, child: usize, at: usize, item: T) {
        self.gather(&window.branches()[..child]);
        let before = self.dealt.len();
        self.gather(&window.branches()[child..]);
        self.dealt.insert(before + at, item);
        self.deal(window);
    }

    /// Distributes the items of a window's nodes evenly to as few nodes as hold them.
    pub(super) fn even_out(&mut self, window: &mut Window) {
        self.gather(window.branches());
        self.deal(window);
    }

    fn gather(&mut self, branches: &[Branch]) {
        for branch in branches {
            let items = &self.items[start_of(branch.node)..][..branch.len()];
            self.dealt.extend_from_slice(items);
        }
    }

    fn deal(&mut self, window: &mut Window) {
        let total = self.dealt.len();
        let nodes = total.div_ceil(WIDTH);
        self.resize(window, nodes);
        let mut from = 0;
        for (index, branch) in window.branches[..nodes].iter_mut().enumerate() {
            let count = total / nodes + usize::from(index < total % nodes);
            let share = &self.dealt[from..from + count];
            self.items[start_of(branch.node)..][..count].copy_from_slice(share);
            branch.first = share[0].first();
            branch.count = count as u32; // a node's width at most
            from += count;
        }
        self.dealt.clear();
    }

    fn resize(&mut self, window: &mut Window, nodes: usize) {
        while window.count < nodes {
            window.branches[window.count].node = self.take();
            window.count += 1;
        }
        while window.count > nodes {
            window.count -= 1;
            self.give_back(window.branches[window.count].node);
        }
    }
}

fn start_of(node: u32) -> usize {
    node as usize * WIDTH
}
