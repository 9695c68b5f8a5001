//! Who goes first.

/// How a cache chooses the block that makes room.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Rule {
    /// The one not asked for for longest.
    Lru,
    /// The one asked for least often since it came in.
    Lfu,
    /// As LRU, the time without being asked for divided by what a miss would cost: Algorithm 1.
    VdfLru,
    /// As LFU, the number of times multiplied by what a miss would cost: Algorithm 2.
    VdfLfu,
    /// As ARC (Megiddo and Modha, FAST 2003) balances recency and frequency.
    Arc,
    /// As ARC; the list that makes room gives the block whose age over penalty is most.
    VdfArc,
}

restripe_format::named! {
    Rule {
        Lru = "lru",
        Lfu = "lfu",
        VdfLru = "vdf-lru",
        VdfLfu = "vdf-lfu",
        Arc = "arc",
        VdfArc = "vdf-arc",
    }
}

impl Rule {
    /// Whether it counts how often a block is asked for.
    pub(super) fn counts(self) -> bool {
        matches!(self, Rule::Lfu | Rule::VdfLfu)
    }

    /// Whether it looks at what a miss would cost.
    pub(super) fn weighs(self) -> bool {
        matches!(self, Rule::VdfLru | Rule::VdfLfu | Rule::VdfArc)
    }

    /// Whether it keeps two lists and remembers what they let go.
    pub(super) fn adapts(self) -> bool {
        matches!(self, Rule::Arc | Rule::VdfArc)
    }

    /// The rule that this one is when nothing has failed.
    pub fn base(self) -> Rule {
        match self {
            Rule::VdfLru => Rule::Lru,
            Rule::VdfLfu => Rule::Lfu,
            Rule::VdfArc => Rule::Arc,
            plain => plain,
        }
    }

    /// Whether `one` makes room rather than `other`.
    pub(super) fn goes_before(self, ties: Ties, one: &Candidate, other: &Candidate) -> bool {
        let by_weight = if self.counts() {
            one.times().cmp(&other.times()).reverse()
        } else {
            // Age over penalty, without the division.
            let (left, right) = (one.age_times(other), other.age_times(one));
            left.cmp(&right)
        };
        let by_age = match ties {
            Ties::Oldest => one.age.cmp(&other.age),
            Ties::Newest => other.age.cmp(&one.age),
        };
        by_weight.then(by_age).is_gt()
    }
}

/// Which of two bottoms of equal weight goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum Ties {
    /// The one not asked for for longest, as the stacks themselves are ordered.
    #[default]
    Oldest,
    /// Algorithm 2's "minimum W and GTS - TS", read literally.
    Newest,
}

restripe_format::named! {
    Ties {
        Oldest = "oldest",
        Newest = "newest",
    }
}

/// The bottom of a stack.
#[derive(Clone, Copy)]
pub(super) struct Candidate {
    pub(super) frame: u32,
    /// Requests since it was last asked for.
    pub(super) age: u64,
    pub(super) frequency: u32,
    /// Reads that a miss would cost.
    pub(super) penalty: u16,
}

impl Candidate {
    fn times(&self) -> u64 {
        u64::from(self.frequency) * u64::from(self.penalty)
    }

    fn age_times(&self, other: &Candidate) -> u64 {
        self.age.saturating_mul(other.penalty.into())
    }
}
