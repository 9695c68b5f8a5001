//! In which order stripes go home from the clusters of a log, in bounded memory (RERAID, section 3.4: MCFD).
//!
//! A *cluster* was written as one, and holds blocks of many *stripes*; a stripe goes home as one, and has blocks in many
//! clusters. A stripe is written when all its blocks are in memory, and a cluster is read as a whole, so a cluster that is read
//! brings blocks of stripes whose turn comes later. Those are kept as long as memory allows; what had to be dropped is read again.
//!
//! | name | next | source |
//! |---|---|---|
//! | `mcfd` | the stripe with blocks in the fewest clusters that are not in memory, the first of equals | RERAID, 3.4.2: minimum correlation flush disk |
//! | `oldest` | the first stripe of the oldest cluster | a log's own order |
//! | `address` | the first stripe | an elevator's |
//!
//! Memory is counted in blocks, and the bound holds always. With as much as the clusters hold, every order reads each cluster once.
//! Where it is less, [`Destage::read_again`] tells what that cost. The table of who has what is sparse: an entry for each
//! cluster and stripe that meet.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// An order by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub enum Order {
    #[default]
    Mcfd,
    Oldest,
    Address,
}

/// Blocks of one stripe in one cluster.
#[derive(Clone, Copy, Debug)]
struct Part {
    blocks: u64,
    in_memory: bool,
}

#[derive(Clone, Debug, Default)]
struct Cluster {
    /// By stripe; those that went home are gone.
    parts: BTreeMap<u64, Part>,
    was_read: bool,
}

#[derive(Clone, Debug, Default)]
struct Stripe {
    clusters: Vec<u32>,
    /// Of these, how many have to be read: its correlation.
    unread: u32,
}

/// What is done next: these clusters are read, in this order, and then the stripe is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    pub stripe: u64,
    pub reads: Vec<u32>,
}

/// A way home for all that some clusters hold.
pub struct Destage {
    order: Order,
    /// Blocks.
    memory: u64,
    used: u64,
    clusters: Vec<Cluster>,
    stripes: BTreeMap<u64, Stripe>,
    /// Stripes by their rank, lowest first.
    queue: BTreeSet<(u32, u64)>,
    reads: u64,
    read_again: u64,
}

impl Destage {
    /// `blocks`: how many blocks of a stripe a cluster holds, by cluster from the oldest on, and stripe; each pair once.
    /// None if some stripe has more blocks than memory.
    pub fn new(
        order: Order,
        memory: u64,
        blocks: impl IntoIterator<Item = (u32, u64, u64)>,
    ) -> Option<Destage> {
        let mut destage = Destage {
            order,
            memory,
            used: 0,
            clusters: Vec::new(),
            stripes: BTreeMap::new(),
            queue: BTreeSet::new(),
            reads: 0,
            read_again: 0,
        };
        for (cluster, stripe, blocks) in blocks {
            destage.note(cluster, stripe, blocks);
        }
        let stripes: Vec<u64> = destage.stripes.keys().copied().collect();
        for stripe in stripes {
            if destage.blocks_of(stripe) > memory {
                return None;
            }
            let rank = destage.rank(stripe);
            destage.queue.insert((rank, stripe));
        }
        Some(destage)
    }

    fn note(&mut self, cluster: u32, stripe: u64, blocks: u64) {
        let known = self.clusters.len().max(cluster as usize + 1);
        self.clusters.resize(known, Cluster::default());
        let in_memory = false;
        let part = Part { blocks, in_memory };
        let before = self.clusters[cluster as usize].parts.insert(stripe, part);
        assert!(before.is_none() && blocks > 0, "each pair once");
        let stripe = self.stripes.entry(stripe).or_default();
        stripe.clusters.push(cluster);
        stripe.clusters.sort_unstable();
        stripe.unread += 1;
    }

    /// The next stripe, all of whose blocks are in memory once its reads are done. It stays until [`Destage::written`].
    pub fn next_stripe(&mut self) -> Option<Step> {
        let &(_, stripe) = self.queue.first()?;
        let clusters = self.stripes[&stripe].clusters.clone();
        let mut reads = Vec::new();
        for cluster in clusters {
            if !self.clusters[cluster as usize].parts[&stripe].in_memory {
                self.read(cluster, stripe);
                reads.push(cluster);
            }
        }
        Some(Step { stripe, reads })
    }

    /// A stripe is home: its blocks are needed no more.
    pub fn written(&mut self, stripe: u64) {
        let rank = self.rank(stripe);
        self.queue.remove(&(rank, stripe));
        let gone = self
            .stripes
            .remove(&stripe)
            .expect("a stripe that is not home");
        for cluster in gone.clusters {
            let part = self.clusters[cluster as usize].parts.remove(&stripe);
            let part = part.filter(|part| part.in_memory);
            self.used -= part.expect("a stripe is written from memory").blocks;
        }
    }

    /// Blocks in memory.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Clusters read so far, each as often as it was.
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// Of those, how many had been read before.
    pub fn read_again(&self) -> u64 {
        self.read_again
    }

    fn rank(&self, stripe: u64) -> u32 {
        let found = &self.stripes[&stripe];
        match self.order {
            Order::Mcfd => found.unread,
            Order::Oldest => found.clusters[0],
            Order::Address => 0,
        }
    }

    fn blocks_of(&self, stripe: u64) -> u64 {
        let clusters = self.stripes[&stripe].clusters.iter();
        clusters
            .map(|cluster| self.clusters[*cluster as usize].parts[&stripe].blocks)
            .sum()
    }

    /// Reads a cluster for a stripe. What it brings of others is kept where there is room.
    fn read(&mut self, cluster: u32, stripe: u64) {
        let found = &mut self.clusters[cluster as usize];
        self.reads += 1;
        self.read_again += u64::from(core::mem::replace(&mut found.was_read, true));
        let wanted = found.parts[&stripe].blocks;
        let others: Vec<u64> = found
            .parts
            .keys()
            .copied()
            .filter(|other| *other != stripe)
            .collect();
        self.make_room(wanted, stripe);
        self.hold(cluster, stripe);
        for other in others {
            let part = self.clusters[cluster as usize].parts[&other];
            if !part.in_memory && self.used + part.blocks <= self.memory {
                self.hold(cluster, other);
            }
        }
    }

    /// Drops blocks of the stripes that are written last, until so many fit.
    fn make_room(&mut self, blocks: u64, stripe: u64) {
        let last: Vec<u64> = self.queue.iter().rev().map(|(_, stripe)| *stripe).collect();
        for other in last.into_iter().filter(|other| *other != stripe) {
            for cluster in self.stripes[&other].clusters.clone() {
                if self.used + blocks <= self.memory {
                    return;
                }
                self.drop_part(cluster, other);
            }
        }
        assert!(self.used + blocks <= self.memory, "a stripe fits");
    }

    fn hold(&mut self, cluster: u32, stripe: u64) {
        let part = self.clusters[cluster as usize]
            .parts
            .get_mut(&stripe)
            .expect("a part of it");
        part.in_memory = true;
        self.used += part.blocks;
        self.count(stripe, |unread| unread - 1);
    }

    fn drop_part(&mut self, cluster: u32, stripe: u64) {
        let part = self.clusters[cluster as usize]
            .parts
            .get_mut(&stripe)
            .expect("a part of it");
        if core::mem::take(&mut part.in_memory) {
            self.used -= part.blocks;
            self.count(stripe, |unread| unread + 1);
        }
    }

    /// Another number of clusters has to be read for a stripe, which changes its rank.
    fn count(&mut self, stripe: u64, change: impl FnOnce(u32) -> u32) {
        let before = self.rank(stripe);
        self.queue.remove(&(before, stripe));
        let found = self
            .stripes
            .get_mut(&stripe)
            .expect("a stripe that is not home");
        found.unread = change(found.unread);
        let rank = self.rank(stripe);
        self.queue.insert((rank, stripe));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's Table 1: clusters 1 to 7, of which stripes each has blocks.
    const TABLE: [(u32, &[u64]); 7] = [
        (1, &[1, 2, 4, 7]),
        (2, &[3, 8]),
        (3, &[2, 4, 5, 6]),
        (4, &[2, 4, 7]),
        (5, &[3, 4, 6]),
        (6, &[1, 4]),
        (7, &[2, 5, 7]),
    ];

    fn table() -> impl Iterator<Item = (u32, u64, u64)> {
        let rows = TABLE.into_iter();
        rows.flat_map(|(cluster, stripes)| stripes.iter().map(move |stripe| (cluster, *stripe, 1)))
    }

    /// All steps, with the bound held and every block written once.
    fn run(mut destage: Destage) -> (Vec<Step>, u64) {
        let mut steps = Vec::new();
        while let Some(step) = destage.next_stripe() {
            assert!(destage.used() <= destage.memory);
            destage.written(step.stripe);
            steps.push(step);
        }
        assert_eq!(destage.used(), 0);
        assert!(
            destage
                .clusters
                .iter()
                .all(|cluster| cluster.parts.is_empty())
        );
        (steps, destage.read_again())
    }

    /// The paper's worked example (3.4.2): stripe 8 with cluster 2, then stripe 3 with cluster 5; each cluster is read once.
    #[test]
    fn the_paper_s_example_goes_as_it_says() {
        let destage = Destage::new(Order::Mcfd, 100, table()).expect("room for all");
        let (steps, again) = run(destage);
        let step = |stripe, reads: &[u32]| Step {
            stripe,
            reads: reads.into(),
        };
        assert_eq!(steps[..2], [step(8, &[2]), step(3, &[5])]);
        assert_eq!((steps.len(), again), (8, 0));
        let mut read: Vec<u32> = steps.iter().flat_map(|step| step.reads.clone()).collect();
        read.sort_unstable();
        assert_eq!(read, [1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn orders_are_what_they_are_called() {
        let stripes = |order| -> Vec<u64> {
            let destage = Destage::new(order, 100, table()).expect("room for all");
            run(destage).0.iter().map(|step| step.stripe).collect()
        };
        assert_eq!(stripes(Order::Address), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(stripes(Order::Oldest), [1, 2, 4, 7, 3, 8, 5, 6]);
    }

    #[test]
    fn a_stripe_that_does_not_fit_is_refused() {
        // Stripe 4 has blocks in five clusters.
        assert!(Destage::new(Order::Mcfd, 4, table()).is_none());
        assert!(Destage::new(Order::Mcfd, 5, table()).is_some());
    }

    /// The bound holds at every size; what is read again is counted, and none is where there is room for all.
    #[test]
    fn the_bound_holds_in_all_orders() {
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let mut blocks = BTreeMap::new();
            for _ in 0..1 + random(120) {
                *blocks.entry((random(12) as u32, random(20))).or_insert(0) += 1 + random(3);
            }
            let all: u64 = blocks.values().sum();
            let entries = || {
                blocks
                    .iter()
                    .map(|((cluster, stripe), blocks)| (*cluster, *stripe, *blocks))
            };
            for order in [Order::Mcfd, Order::Oldest, Order::Address] {
                let (_, again) = run(Destage::new(order, all, entries()).expect("room for all"));
                assert_eq!(again, 0, "{order:?}");
                let least = (1..).find_map(|memory| Destage::new(order, memory, entries()));
                run(least.expect("some memory will do"));
            }
        }
    }

    /// What the order is for: in little memory fewer clusters are read again than by address.
    #[test]
    fn the_least_correlation_reads_less_again() {
        let again = |order| {
            let destage = Destage::new(order, 6, table()).expect("a stripe fits");
            run(destage).1
        };
        assert!(
            again(Order::Mcfd) <= again(Order::Address),
            "{} {}",
            again(Order::Mcfd),
            again(Order::Address)
        );
    }
}
