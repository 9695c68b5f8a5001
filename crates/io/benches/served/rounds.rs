//! What is asked of servers that are measured, and the figures of rounds in turn.

use std::time::Duration;

pub const ROUNDS: usize = 7;
pub const ROUND: Duration = Duration::from_millis(700);

/// What is asked of a server.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    pub name: &'static str,
    pub write: bool,
    pub depth: u64,
    pub bytes: u32,
    /// In address order rather than at random.
    pub stream: bool,
    /// All that is written is made of it.
    pub byte: u8,
}

pub const FILL: Workload = Workload {
    name: "fill",
    write: true,
    depth: 4,
    bytes: 1 << 20,
    stream: true,
    byte: 0x5a,
};

pub const WORKLOADS: [Workload; 5] = [
    small("4 KiB reads, depth 32", 32, false),
    small("4 KiB reads, depth 1", 1, false),
    small("4 KiB writes, depth 32", 32, true),
    Workload {
        name: "1 MiB reads, depth 8",
        write: false,
        depth: 8,
        ..FILL
    },
    Workload {
        name: "1 MiB writes, depth 8",
        depth: 8,
        ..FILL
    },
];

const fn small(name: &'static str, depth: u64, write: bool) -> Workload {
    Workload {
        name,
        write,
        depth,
        bytes: 4096,
        stream: false,
        byte: 0x5a,
    }
}

/// The order in which a workload goes over its blocks.
pub struct Addresses {
    workload: Workload,
    blocks: u64,
    state: u64,
}

impl Addresses {
    pub fn new(workload: Workload, size_bytes: u64) -> Addresses {
        Addresses {
            workload,
            blocks: size_bytes / u64::from(workload.bytes),
            state: 1,
        }
    }

    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Where the next request begins.
    pub fn next(&mut self) -> u64 {
        let block = if self.workload.stream {
            self.state += 1;
            self.state
        } else {
            self.state = self
                .state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            self.state >> 20
        };
        block % self.blocks * u64::from(self.workload.bytes)
    }
}

#[derive(Clone, Copy)]
pub struct Round {
    /// Requests a second.
    pub rate: f64,
    /// Seconds of the server's processor time a request.
    pub cpu: f64,
}

/// This quartile of the rounds' ratios.
pub fn ratio(ours: &[Round], theirs: &[Round], quarter: usize) -> f64 {
    let pairs = ours.iter().zip(theirs);
    quantile(pairs.map(|(a, b)| a.rate / b.rate).collect(), quarter)
}

/// The value this many quarters of the way through the sorted ones: 0 is the lowest, 2 the median.
pub fn quantile(mut values: Vec<f64>, quarter: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) * quarter / 4]
}
