//! What is measured: workloads, schemes and the two scales. A cell is one run of a workload on a scheme.

/// A workload of the paper's figure 7, or pgbench's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// pgbench's TPC-B form: clients without think time.
    TpcB,
    /// Five transactions on nine tables, at the rate of 20 warehouses' terminals.
    TpcC,
    /// Twelve interactions of the shopping mix, at the rate of 150 browsers.
    TpcW,
    /// Files of 4 to 500 KB, one client.
    PostMark,
}

pub const WORKLOADS: [Workload; 4] = [
    Workload::PostMark,
    Workload::TpcC,
    Workload::TpcW,
    Workload::TpcB,
];

impl Workload {
    pub fn name(self) -> &'static str {
        match self {
            Workload::TpcB => "tpcb",
            Workload::TpcC => "tpcc",
            Workload::TpcW => "tpcw",
            Workload::PostMark => "postmark",
        }
    }

    /// Rebuild time of md over S2-RAID as the paper prints it: at least this, or this.
    pub fn printed(self) -> Option<&'static str> {
        match self {
            Workload::TpcB => None,
            Workload::TpcC | Workload::PostMark => Some("over 6"),
            Workload::TpcW => Some("4.25"),
        }
    }

    pub fn clients(self) -> u32 {
        match self {
            Workload::TpcB => 8,
            Workload::TpcC | Workload::TpcW => 16,
            Workload::PostMark => 1,
        }
    }

    /// Transactions a second that clients ask for; without it each asks as soon as it is answered.
    pub fn rate(self) -> Option<f64> {
        match self {
            // A warehouse's ten terminals start at most 12.86 new orders a minute (TPC-C 4.1), 45 of 100 transactions.
            Workload::TpcC => Some(20.0 * 12.86 / 60.0 / 0.45),
            // A browser thinks 7 seconds on average (TPC-W 5.3.1.1).
            Workload::TpcW => Some(150.0 / 7.0),
            Workload::TpcB | Workload::PostMark => None,
        }
    }

    pub fn unit(self) -> &'static str {
        match self {
            Workload::PostMark => "MB/s",
            _ => "1/s",
        }
    }
}

/// How nine drives are arranged. Schemes with the same layout start from the same members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// RAID-5 of nine.
    Flat,
    /// Three groups of three, three partitions, room for one partition more on each member.
    Skewed,
}

impl Layout {
    pub fn name(self) -> &'static str {
        match self {
            Layout::Flat => "flat",
            Layout::Skewed => "skewed",
        }
    }

    pub fn options(self) -> &'static [&'static str] {
        match self {
            Layout::Flat => &[],
            Layout::Skewed => &["--groups=3", "--partitions=3", "--spare-partitions=1"],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheme {
    pub name: &'static str,
    pub layout: Layout,
    pub throttle: &'static str,
    /// The least speed of a rebuild, KiB a second, of all its streams together.
    pub least_kib: u32,
    pub ido: bool,
    /// The RAID-5 that its ratios are of.
    pub base: &'static str,
}

/// md's default least speed, and the paper's.
const LEAST_KIB: u32 = 1000;
/// The throttle of the paper's kernel, which yields to clients down to the minimum.
const PAPERS: &str = "md-2.6";
/// One that hardly yields: the layout decides, not the minimum.
const EAGER: &str = "md-6.1";

const RAID5: Scheme = Scheme {
    name: "raid5",
    layout: Layout::Flat,
    throttle: PAPERS,
    least_kib: LEAST_KIB,
    ido: false,
    base: "raid5",
};

pub const SCHEMES: [Scheme; 6] = [
    RAID5,
    // The paper runs an md array for each of the three streams, and each keeps the least speed.
    Scheme {
        name: "s2",
        layout: Layout::Skewed,
        least_kib: 3 * LEAST_KIB,
        ..RAID5
    },
    Scheme {
        name: "s2-one-minimum",
        layout: Layout::Skewed,
        ..RAID5
    },
    Scheme {
        name: "ido",
        ido: true,
        ..RAID5
    },
    Scheme {
        name: "raid5-md-6.1",
        throttle: EAGER,
        base: "raid5-md-6.1",
        ..RAID5
    },
    Scheme {
        name: "s2-md-6.1",
        layout: Layout::Skewed,
        throttle: EAGER,
        base: "raid5-md-6.1",
        ..RAID5
    },
];

impl Scheme {
    /// Schemes with another throttle than the paper's are run only if they are named.
    fn is_chosen(&self, patterns: &[String]) -> bool {
        let named = |pattern: &String| pattern.contains(self.throttle);
        self.throttle == PAPERS || patterns.iter().any(named)
    }
}

/// How large and how long.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    pub name: &'static str,
    /// Of each run, unless told otherwise.
    pub repetitions: u32,
    /// Data, parity included, of each member in MiB.
    pub member_mib: u32,
    pub warm_up_s: u32,
    pub healthy_s: u32,
    /// The longest that a rebuild is watched.
    pub rebuild_s: u32,
    /// What PostgreSQL's processes, or PostMark, may use of memory, with the file system's cache.
    pub memory_mib: u32,
    pub shared_buffers_mib: u32,
    pub checkpoint_s: u32,
    pub pgbench_scale: u32,
    pub warehouses: u32,
    pub tpcw_items: u32,
    pub tpcw_customers: u32,
    pub postmark_files: u32,
    pub ido_zone: &'static str,
    /// Each of IDO's two drives: more than clients write during a rebuild.
    pub surrogate_mib: u32,
}

pub const QUICK: Scale = Scale {
    name: "quick",
    repetitions: 1,
    member_mib: 57,
    warm_up_s: 5,
    healthy_s: 12,
    rebuild_s: 120,
    memory_mib: 72,
    shared_buffers_mib: 8,
    checkpoint_s: 30,
    pgbench_scale: 12,
    warehouses: 2,
    tpcw_items: 50_000,
    tpcw_customers: 100_000,
    postmark_files: 600,
    ido_zone: "3M",
    surrogate_mib: 1024,
};

/// The paper's data sets, on a hundredth of its drives.
pub const FULL: Scale = Scale {
    name: "full",
    repetitions: 3,
    member_mib: 1023,
    warm_up_s: 120,
    healthy_s: 300,
    rebuild_s: 3600,
    memory_mib: 512,
    shared_buffers_mib: 64,
    checkpoint_s: 300,
    pgbench_scale: 150,
    warehouses: 20,
    tpcw_items: 100_000,
    tpcw_customers: 432_000,
    postmark_files: 20_000,
    ido_zone: "12M",
    surrogate_mib: 16 * 1024,
};

impl Scale {
    /// Data, parity included, of each member: the array's `--size-per-member`.
    pub fn data_kib(&self) -> u64 {
        u64::from(self.member_mib) * 1024
    }

    /// A member's file: its data, room for partitions of others where the layout has it, and metadata.
    pub fn file_kib(&self, layout: Layout) -> u64 {
        let room = match layout {
            Layout::Flat => 0,
            Layout::Skewed => self.data_kib() / 3,
        };
        self.data_kib() + room + 16 * 1024
    }
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    pub workload: Workload,
    pub scheme: Scheme,
    pub repetition: u32,
}

impl Cell {
    /// Also the name of its file of results.
    pub fn name(&self) -> String {
        let (workload, scheme) = (self.workload.name(), self.scheme.name);
        format!("{workload}.{scheme}.{}", self.repetition)
    }
}

/// Cells to run: those whose names contain one of the patterns, or all of the paper's throttle. Workload by workload,
/// and within it the schemes in turn, so that other work on the machine affects all of them.
pub fn cells(patterns: &[String], repetitions: u32) -> Vec<Cell> {
    let mut cells = every_cell(patterns, repetitions);
    cells.retain(|cell| cell.scheme.is_chosen(patterns));
    cells
}

/// Cells of every throttle.
pub fn every_cell(patterns: &[String], repetitions: u32) -> Vec<Cell> {
    let mut cells = Vec::new();
    for workload in WORKLOADS {
        for repetition in 1..=repetitions {
            for scheme in SCHEMES {
                let cell = Cell {
                    workload,
                    scheme,
                    repetition,
                };
                let name = cell.name();
                if patterns.is_empty() || patterns.iter().any(|pattern| name.contains(pattern)) {
                    cells.push(cell);
                }
            }
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_take_turns_within_a_workload() {
        let names: Vec<String> = cells(&["tpcw".into()], 2).iter().map(Cell::name).collect();
        assert_eq!(names.len(), 2 * 4);
        assert_eq!(names[0], "tpcw.raid5.1");
        assert_eq!(names[1], "tpcw.s2.1");
        assert_eq!(names[4], "tpcw.raid5.2");
        assert_eq!(cells(&[], 3).len(), 4 * 3 * 4);
        assert_eq!(cells(&["tpcb.ido.1".into()], 3).len(), 1);
    }

    #[test]
    fn another_throttle_is_run_only_if_it_is_named() {
        let names = |pattern: &str| -> Vec<String> {
            cells(&[pattern.into()], 1).iter().map(Cell::name).collect()
        };
        assert_eq!(names("tpcc.raid5"), ["tpcc.raid5.1"]);
        assert_eq!(names("tpcc.s2-md-6.1"), ["tpcc.s2-md-6.1.1"]);
        assert_eq!(names("md-6.1").len(), 2 * WORKLOADS.len());
    }

    #[test]
    fn a_skewed_member_has_as_much_data_and_a_third_more_room() {
        for scale in [QUICK, FULL] {
            let [flat, skewed] = [Layout::Flat, Layout::Skewed].map(|of| scale.file_kib(of));
            assert_eq!((skewed - flat) * 3, scale.data_kib());
        }
    }

    #[test]
    fn rates_are_those_of_the_papers_terminals_and_browsers() {
        let rate = |workload: Workload| workload.rate().expect("a rate");
        assert!((rate(Workload::TpcC) - 9.53).abs() < 0.01);
        assert!((rate(Workload::TpcW) - 21.43).abs() < 0.01);
    }
}
