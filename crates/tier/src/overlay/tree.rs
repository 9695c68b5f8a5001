//! The order of the map's entries: a B+-tree over a fixed number of nodes.
//!
//! Leaves hold entries, inner nodes a [`Branch`] for each child, with the child's count and the home sector
//! of its very first entry. These are exact, always: so the entry before any sector is in the leaf that a
//! search for it comes to. The root is an inner node, if only over one leaf. That entries do not overlap is
//! the map's affair.

use super::entry::Entry;
use super::nodes::{Branch, Item, Nodes, Sharing, WIDTH, Window, least, nodes_max, not_behind};

/// Inner levels at most: as 2^32 entries need in nodes as empty as they get, and to spare.
const LEVELS_MAX: usize = 8;

/// From the root to an entry, or to where one would stand. Good until the tree changes.
#[derive(Clone, Copy)]
pub(super) struct Way {
    /// By level, from the leaf: which item of which node.
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
    /// Of `entries` at most.
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

    /// Goes on to the next leaf from behind the last entry of one.
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

    /// The way to where an entry of `home` would stand: behind all that begin there or before.
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
        // A leaf without another entry is all there is: an empty one's first sector means nothing.
        if step.index == 0 && self.branch(&way, 0).count > 1 {
            self.set_first(&way, self.leaves.at(step.node, 1).home());
        }
        self.remove_item::<Entry>(&mut way, 0);
        self.len -= 1;
    }

    /// The first entry of a leaf begins elsewhere: so does every node whose first it is.
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

    /// A window of `before` children is theirs again, perhaps one more or one less.
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

    /// Holds the tree against its own laws: exact firsts and counts, fill, and no node astray.
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
            "as few as told"
        );
    }

    /// A root over one inner node only is none.
    fn lower(&mut self) {
        if self.root.count == 1 && self.height > 1 {
            let only = *self.inner.at(self.root.node, 0);
            self.inner.give_back(self.root.node);
            self.root = only;
            self.height -= 1;
        }
    }
}

/// Inner nodes over so many leaves, at most.
fn inner_max(leaves: usize) -> usize {
    let (mut below, mut sum) = (leaves, 0);
    while below > 1 || sum == 0 {
        below = nodes_max(below);
        sum += below;
    }
    sum
}
