//! The order in which stripes are destaged from a log's clusters, in bounded memory (RERAID, section 3.4:
//! MCFD).
//!
//! A *cluster* was written as one, and holds blocks of many *stripes*; a stripe is destaged as one, and has
//! blocks in many clusters. A stripe is written when all its blocks are in memory, and a cluster is read as a
//! whole, so a read cluster also brings blocks of stripes whose turn comes later. Those stay in memory as
//! long as there is room; a dropped block is read again.
//!
//! | name | next | source |
//! |---|---|---|
//! | `rounds` | as `mcfd`, of the oldest clusters that memory has room for; then the next of them | |
//! | `mcfd` | the stripe with blocks in the fewest clusters that are not in memory, the first of equals | RERAID, 3.4.2: minimum correlation flush disk |
//! | `oldest` | the first stripe of the oldest cluster | a log's own order |
//! | `address` | the first stripe | an elevator's |
//!
//! In rounds no cluster is ever read again, and the log gets room back with each round, since always its
//! oldest records become obsolete. The price is that a stripe is written with only the blocks of its round.
//! The caller, who adds clusters and stripes, decides where a round ends.
//!
//! Memory is counted in blocks, and the bound always holds. With as much memory as the clusters hold, every
//! order reads each cluster once. With less, [`Destage::read_again`] reports the cost: the blocks of the
//! stripes whose turn comes first stay in memory. The table of blocks is sparse.
//!
//! | stripe  | cause                                                              | next    |
//! |---------|--------------------------------------------------------------------|---------|
//! | waiting | its turn has come, and memory has room for its missing blocks      | begun   |
//! | begun   | all its blocks are in memory: it is written, and its blocks dropped | -       |
//!
//! | block of a stripe | cause                                                    | next   |
//! |---------|--------------------------------------------------------------------|--------|
//! | away    | its cluster is read, for its stripe or with room to spare          | coming |
//! | coming  | the read has ended                                                 | here   |
//! | here    | its stripe waits, and room is needed for one whose turn is sooner  | away   |

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// An order by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub enum DestageOrder {
    Mcfd,
    Oldest,
    Address,
    #[default]
    Rounds,
}

restripe_array::named! {
    DestageOrder {
        Mcfd = "mcfd",
        Oldest = "oldest",
        Address = "address",
        Rounds = "rounds",
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    Away,
    Coming,
    Here,
}

/// Blocks of one stripe in one cluster.
#[derive(Clone, Copy, Debug)]
struct Part {
    blocks: u64,
    held: Held,
}

#[derive(Clone, Debug, Default)]
struct Cluster {
    /// By stripe; destaged ones are removed.
    parts: BTreeMap<u64, Part>,
    was_read: bool,
}

#[derive(Clone, Debug, Default)]
struct Stripe {
    /// The oldest first.
    clusters: Vec<u32>,
    /// The number of these clusters that have to be read: its correlation.
    unread: u32,
    /// Its blocks that are in memory, or being read.
    held: u64,
    begun: bool,
}

/// A read of a cluster, and the stripes whose blocks stay in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fetch {
    pub cluster: u32,
    pub keep: Vec<u64>,
}

/// The next step: blocks are dropped from memory, clusters read in this order, and then the stripe written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    pub stripe: u64,
    /// By cluster and stripe.
    pub dropped: Vec<(u32, u64)>,
    pub reads: Vec<Fetch>,
}

/// A destage of all that some clusters hold.
#[derive(Default)]
pub struct Destage {
    order: DestageOrder,
    /// Blocks.
    memory: u64,
    used: u64,
    /// Those of them that could be dropped: they are in memory, and their stripes wait.
    spare: u64,
    clusters: Vec<Cluster>,
    stripes: BTreeMap<u64, Stripe>,
    /// Stripes that wait, by their rank, lowest first.
    queue: BTreeSet<(u32, u64)>,
    /// Those stripes that have blocks in memory, or being read.
    keeping: BTreeSet<(u32, u64)>,
    reads: u64,
    read_again: u64,
}

impl Destage {
    /// `blocks`: the number of blocks of a stripe in a cluster, by cluster from the oldest on, and stripe;
    /// each pair once. None if some stripe has more blocks than memory.
    pub fn new(
        order: DestageOrder,
        memory: u64,
        blocks: impl IntoIterator<Item = (u32, u64, u64)>,
    ) -> Option<Destage> {
        let mut destage = Destage {
            order,
            memory,
            ..Destage::default()
        };
        for (cluster, stripe, blocks) in blocks {
            destage.note(cluster, stripe, blocks);
        }
        for (number, stripe) in &destage.stripes {
            if destage.missing(*number, stripe) > memory {
                return None;
            }
            destage.queue.insert((destage.rank(stripe), *number));
        }
        Some(destage)
    }

    fn note(&mut self, cluster: u32, stripe: u64, blocks: u64) {
        let known = self.clusters.len().max(cluster as usize + 1);
        self.clusters.resize(known, Cluster::default());
        let held = Held::Away;
        let part = Part { blocks, held };
        let before = self.clusters[cluster as usize].parts.insert(stripe, part);
        assert!(before.is_none() && blocks > 0, "each pair once");
        let stripe = self.stripes.entry(stripe).or_default();
        let place = stripe.clusters.partition_point(|older| *older < cluster);
        stripe.clusters.insert(place, cluster);
        stripe.unread += 1;
    }

    /// Begins the next stripe. None if none waits, or if there is no room for it before others are written.
    pub fn next_stripe(&mut self) -> Option<Step> {
        let &(rank, number) = self.queue.first()?;
        let stripe = &self.stripes[&number];
        let (missing, held) = (self.missing(number, stripe), stripe.held);
        let here = self.blocks(number, stripe, Held::Here);
        if self.used - (self.spare - here) + missing > self.memory {
            return None;
        }
        self.queue.remove(&(rank, number));
        self.keeping.remove(&(rank, number));
        self.spare -= here;
        let mut dropped = Vec::new();
        self.make_room(missing, None, &mut dropped);
        // Room for all of it is taken before other stripes have any.
        self.used += missing;
        let stripe = self.stripes.get_mut(&number).expect("it waited");
        stripe.begun = true;
        stripe.held = held + missing;
        let mut reads = Vec::new();
        for cluster in stripe.clusters.clone() {
            if self.part(cluster, number).held == Held::Away {
                reads.push(self.read(cluster, number, &mut dropped));
            }
        }
        Some(Step {
            stripe: number,
            dropped,
            reads,
        })
    }

    /// A read has ended: its blocks are in memory.
    pub fn arrived(&mut self, fetch: &Fetch) {
        for stripe in &fetch.keep {
            let part = self.part(fetch.cluster, *stripe);
            part.held = Held::Here;
            let blocks = part.blocks;
            if !self.stripes[stripe].begun {
                self.spare += blocks;
            }
        }
    }

    /// A stripe is written: its blocks are no longer needed.
    ///
    /// # Panics
    /// If it was not begun, or some of its reads have not ended.
    pub fn written(&mut self, stripe: u64) {
        let gone = self.stripes.remove(&stripe);
        let gone = gone.filter(|gone| gone.begun).expect("it was begun");
        for cluster in gone.clusters {
            let part = self.clusters[cluster as usize].parts.remove(&stripe);
            let here = part.is_some_and(|part| part.held == Held::Here);
            assert!(here, "a stripe is written from memory");
        }
        self.used -= gone.held;
    }

    /// Whether every stripe is written.
    pub fn is_over(&self) -> bool {
        self.stripes.is_empty()
    }

    /// Those of them that had been read before.
    pub fn read_again(&self) -> u64 {
        self.read_again
    }

    fn rank(&self, stripe: &Stripe) -> u32 {
        match self.order {
            DestageOrder::Mcfd | DestageOrder::Rounds => stripe.unread,
            DestageOrder::Oldest => stripe.clusters[0],
            DestageOrder::Address => 0,
        }
    }

    fn part(&mut self, cluster: u32, stripe: u64) -> &mut Part {
        let parts = &mut self.clusters[cluster as usize].parts;
        parts.get_mut(&stripe).expect("they meet")
    }

    /// Blocks of a stripe that are not in memory.
    fn missing(&self, number: u64, stripe: &Stripe) -> u64 {
        self.blocks(number, stripe, Held::Away)
    }

    fn blocks(&self, number: u64, stripe: &Stripe, held: Held) -> u64 {
        let clusters = stripe.clusters.iter();
        let parts = clusters.map(|cluster| self.clusters[*cluster as usize].parts[&number]);
        let such = parts.filter(|part| part.held == held);
        such.map(|part| part.blocks).sum()
    }

    /// Reads a cluster for a stripe that was begun. Blocks of other stripes stay in memory where there is
    /// room, or where they are needed sooner than the blocks that have the room.
    fn read(&mut self, cluster: u32, stripe: u64, dropped: &mut Vec<(u32, u64)>) -> Fetch {
        let found = &mut self.clusters[cluster as usize];
        self.reads += 1;
        self.read_again += u64::from(core::mem::replace(&mut found.was_read, true));
        self.part(cluster, stripe).held = Held::Coming;
        let mut keep = Vec::from([stripe]);
        for (rank, other) in self.others_in(cluster) {
            let blocks = self.part(cluster, other).blocks;
            if self.make_room(blocks, Some((rank, other)), dropped) {
                self.hold(cluster, other);
                keep.push(other);
            }
        }
        keep.sort_unstable();
        Fetch { cluster, keep }
    }

    /// The waiting stripes with blocks of a cluster that are not in memory, and their rank with these blocks.
    fn others_in(&self, cluster: u32) -> Vec<(u32, u64)> {
        let parts = self.clusters[cluster as usize].parts.iter();
        let away = parts.filter(|(_, part)| part.held == Held::Away);
        let stripes = away.map(|(number, _)| (*number, &self.stripes[number]));
        let counts = u32::from(matches!(
            self.order,
            DestageOrder::Mcfd | DestageOrder::Rounds
        ));
        let ranked = stripes.map(|(number, stripe)| (self.rank(stripe) - counts, number));
        let mut others: Vec<(u32, u64)> = ranked.collect();
        others.sort_unstable();
        others
    }

    /// Drops blocks of waiting stripes, the last first, until this many fit: of those whose turn comes after
    /// another's, or of any. False if they do not fit.
    fn make_room(
        &mut self,
        blocks: u64,
        after: Option<(u32, u64)>,
        dropped: &mut Vec<(u32, u64)>,
    ) -> bool {
        let mut behind = None;
        while self.used + blocks > self.memory {
            let last = match behind {
                None => self.keeping.last().copied(),
                Some(behind) => self.keeping.range(..behind).next_back().copied(),
            };
            let Some(last) = last.filter(|last| Some(*last) > after) else {
                return false;
            };
            behind = Some(last);
            let number = last.1;
            for cluster in self.stripes[&number].clusters.clone() {
                if self.part(cluster, number).held == Held::Here {
                    self.let_go(cluster, number);
                    dropped.push((cluster, number));
                }
            }
        }
        true
    }

    fn hold(&mut self, cluster: u32, stripe: u64) {
        let part = self.part(cluster, stripe);
        part.held = Held::Coming;
        let blocks = part.blocks;
        self.used += blocks;
        self.change(stripe, |found| {
            found.unread -= 1;
            found.held += blocks;
        });
    }

    fn let_go(&mut self, cluster: u32, stripe: u64) {
        let part = self.part(cluster, stripe);
        part.held = Held::Away;
        let blocks = part.blocks;
        self.used -= blocks;
        self.spare -= blocks;
        self.change(stripe, |found| {
            found.unread += 1;
            found.held -= blocks;
        });
    }

    /// A waiting stripe changes, and so may its place among the others.
    fn change(&mut self, number: u64, change: impl FnOnce(&mut Stripe)) {
        let mut stripe = self.stripes.remove(&number).expect("it waits");
        let before = self.rank(&stripe);
        self.queue.remove(&(before, number));
        self.keeping.remove(&(before, number));
        change(&mut stripe);
        let rank = self.rank(&stripe);
        self.queue.insert((rank, number));
        if stripe.held > 0 {
            self.keeping.insert((rank, number));
        }
        self.stripes.insert(number, stripe);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// The paper's Table 1: clusters 1 to 7, and the stripes of which each has blocks.
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

    /// All steps, with this many stripes begun at once. The bound holds, and every block is written once.
    fn run_at_once(mut destage: Destage, most: usize) -> (Vec<Step>, u64) {
        let (mut steps, mut begun) = (Vec::new(), Vec::new());
        let mut here: BTreeSet<(u32, u64)> = BTreeSet::new();
        loop {
            let next = (begun.len() < most).then(|| destage.next_stripe());
            if let Some(step) = next.flatten() {
                assert!(destage.used <= destage.memory);
                for dropped in &step.dropped {
                    assert!(here.remove(dropped), "{dropped:?} was here");
                }
                begun.push(step);
                continue;
            }
            if begun.is_empty() {
                break;
            }
            let step: Step = begun.remove(0);
            for fetch in &step.reads {
                destage.arrived(fetch);
                here.extend(fetch.keep.iter().map(|stripe| (fetch.cluster, *stripe)));
            }
            destage.written(step.stripe);
            here.retain(|(_, stripe)| *stripe != step.stripe);
            steps.push(step);
        }
        assert!(destage.is_over() && here.is_empty());
        assert_eq!(destage.used, 0);
        assert!(
            destage
                .clusters
                .iter()
                .all(|cluster| cluster.parts.is_empty())
        );
        (steps, destage.read_again())
    }

    fn run(destage: Destage) -> (Vec<Step>, u64) {
        run_at_once(destage, 1)
    }

    /// The paper's example (3.4.2): stripe 8 with cluster 2, then stripe 3 with cluster 5; no cluster is read
    /// twice.
    #[test]
    fn the_paper_s_example_goes_as_it_says() {
        let destage = Destage::new(DestageOrder::Mcfd, 100, table()).expect("room for all");
        let (steps, again) = run(destage);
        let clusters =
            |step: &Step| -> Vec<u32> { step.reads.iter().map(|fetch| fetch.cluster).collect() };
        assert_eq!((steps[0].stripe, clusters(&steps[0])), (8, vec![2]));
        assert_eq!((steps[1].stripe, clusters(&steps[1])), (3, vec![5]));
        assert_eq!(steps[0].reads[0].keep, [3, 8]);
        assert_eq!((steps.len(), again), (8, 0));
        let mut read: Vec<u32> = steps.iter().flat_map(clusters).collect();
        read.sort_unstable();
        assert_eq!(read, [1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn orders_are_what_they_are_called() {
        let stripes = |order| -> Vec<u64> {
            let destage = Destage::new(order, 100, table()).expect("room for all");
            run(destage).0.iter().map(|step| step.stripe).collect()
        };
        assert_eq!(stripes(DestageOrder::Address), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(stripes(DestageOrder::Oldest), [1, 2, 4, 7, 3, 8, 5, 6]);
    }

    #[test]
    fn a_stripe_that_does_not_fit_is_refused() {
        // Stripe 4 has blocks in five clusters.
        assert!(Destage::new(DestageOrder::Mcfd, 4, table()).is_none());
        assert!(Destage::new(DestageOrder::Mcfd, 5, table()).is_some());
    }

    /// The bound holds at every size. Repeated reads are counted: none where all blocks have room.
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
            for order in DestageOrder::ALL {
                let (_, again) = run(Destage::new(order, all, entries()).expect("room for all"));
                assert_eq!(again, 0, "{order:?}");
                let least = (1..).find(|memory| Destage::new(order, *memory, entries()).is_some());
                let least = least.expect("some memory will do");
                for (memory, most) in [(least, 1), (least, 4), (least + random(9), 3)] {
                    let destage = Destage::new(order, memory, entries()).expect("it did");
                    run_at_once(destage, most);
                }
            }
        }
    }

    /// The purpose of the order: in little memory fewer clusters are read again than by address.
    #[test]
    fn the_least_correlation_reads_less_again() {
        let again = |order| {
            let destage = Destage::new(order, 6, table()).expect("a stripe fits");
            run(destage).1
        };
        assert!(
            again(DestageOrder::Mcfd) <= again(DestageOrder::Address),
            "{} {}",
            again(DestageOrder::Mcfd),
            again(DestageOrder::Address)
        );
    }
}
