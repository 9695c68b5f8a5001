//! The memory of a tree: nodes of one size, all taken at construction, and how neighbours share what they
//! hold.
//!
//! A node is split only when it and three neighbours are full: four become five. Of five neighbours, one of
//! which has become too empty, four are made if four can hold it all. So nodes are four fifths full or more,
//! however items come and go, and a tree's memory is bounded by what it holds at most. (Where a root has
//! fewer than five children, these share among themselves: [`least`].)

use super::tree::Tree;
use alloc::vec;
use alloc::vec::Vec;

/// Items of a node at most.
pub(super) const WIDTH: usize = 64;
/// Nodes that are full before there is one more.
pub(super) const SHARERS: usize = 4;
/// Nodes that are looked at before there is one less.
const WINDOW: usize = SHARERS + 1;

/// Items that a node has at least, with so many siblings, itself included.
pub(super) fn least(siblings: usize) -> usize {
    let sharing = siblings.clamp(1, WINDOW);
    (sharing - 1) * WIDTH / sharing
}

/// Nodes that so many items take at most, whatever came and went before. Each of five or more has `least(5)`;
/// of n, which are fewer, each has `least(n)`, and the one added here covers that.
pub(super) fn nodes_max(items: usize) -> usize {
    items / (SHARERS * WIDTH / WINDOW) + 1
}

/// How many of a node's items begin at `home` or before. Every eighth is looked at, then eight: of these
/// looks none waits for another, as the steps of a binary search do, each for its own line of memory.
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

    /// The first home sector, by which items are ordered.
    fn first(&self) -> u64;

    /// The nodes of this kind.
    fn nodes(tree: &mut Tree) -> &mut Nodes<Self>;
}

/// A node, as its parent knows it.
#[derive(Clone, Copy)]
pub(super) struct Branch {
    /// That of its first item. Of an empty node without meaning.
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

/// Neighbouring children of a node, taken out of it to be changed together.
pub(super) struct Window {
    /// The first one's place in the parent.
    pub(super) start: usize,
    branches: [Branch; WINDOW],
    count: usize,
}

impl Window {
    /// Of `siblings`, `most` of those around `child`, or all.
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

/// What neighbours do for one of them.
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
    /// What a window holds, while it is dealt out anew.
    dealt: Vec<T>,
}

impl<T: Item> Nodes<T> {
    /// As many as `count`, which is below 2^32.
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

    /// Puts an item in a node that is not full. Its count is its parent's affair.
    pub(super) fn insert(&mut self, branch: &Branch, at: usize, item: T) {
        let items = &mut self.items[start_of(branch.node)..][..WIDTH];
        items.copy_within(at..branch.len(), at + 1);
        items[at] = item;
    }

    /// Takes an item out of a node. Its count is its parent's affair.
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

    /// Deals what a window's nodes hold evenly to as few as hold it.
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
