//! pgbench as the load: its options for each workload, and its log of transactions.

use super::plan::{Scale, Workload};
use super::postgres::Postgres;
use super::tools::{Outcome, text_error};
use super::undo::{Process, Undo};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// TPC-C's mix (clause 5.2.3), in shares of 100.
const TPC_C: [(&str, u32); 5] = [
    ("new_order", 45),
    ("payment", 43),
    ("order_status", 4),
    ("delivery", 4),
    ("stock_level", 4),
];
/// TPC-W's shopping mix (clause 5.2.3), in shares of 10,000. Order inquiry and display are one script, and so are the two of
/// the administrator.
const TPC_W: [(&str, u32); 12] = [
    ("home", 1600),
    ("new_products", 500),
    ("best_sellers", 500),
    ("product_detail", 1700),
    ("search_request", 2000),
    ("search_results", 1700),
    ("shopping_cart", 1160),
    ("customer_registration", 300),
    ("buy_request", 260),
    ("buy_confirm", 120),
    ("order_display", 141),
    ("admin", 19),
];
const LOG: &str = "pgbench-log";

/// A running pgbench.
pub struct Pgbench {
    process: Process,
    log: PathBuf,
}

impl Pgbench {
    pub fn start(
        undo: &Undo,
        postgres: &Postgres,
        workload: Workload,
        scale: &Scale,
        scripts: &Path,
        seed: u32,
    ) -> Outcome<Pgbench> {
        let prefix = undo.folder().join(LOG);
        // Longer than any run: it ends by a signal.
        let longest = scale.warm_up_s + scale.healthy_s + 2 * scale.rebuild_s + 600;
        let mut command = Command::new(postgres.program("pgbench"));
        command
            .args(postgres.address())
            .args(["-n", "-j", "1", "-l", "--max-tries=20"])
            .args(["-c", &workload.clients().to_string()])
            .args(["-T", &longest.to_string()])
            .args(["--random-seed", &seed.to_string()])
            .arg(format!("--log-prefix={}", prefix.display()))
            .args(mix(workload, scale, scripts))
            .stdout(Stdio::null());
        if let Some(rate) = workload.rate() {
            command.arg(format!("--rate={rate:.3}"));
        }
        command.arg("postgres");
        let process = Process::start(undo, command, "ALRM")?;
        let log = prefix.with_extension(process.id().to_string());
        Ok(Pgbench { process, log })
    }

    pub fn check(&mut self) -> Outcome<()> {
        self.process.check()
    }

    /// Ends it as at the end of its time, and gives every transaction.
    pub fn end(self) -> Outcome<Vec<Transaction>> {
        self.process.end()?;
        let text = fs::read_to_string(&self.log).map_err(text_error(&self.log))?;
        transactions(&text)
    }
}

fn mix(workload: Workload, scale: &Scale, scripts: &Path) -> Vec<String> {
    let (scripts_of, variables): (&[(&str, u32)], Vec<String>) = match workload {
        Workload::TpcC => (&TPC_C, vec![format!("warehouses={}", scale.warehouses)]),
        Workload::TpcW => (
            &TPC_W,
            vec![
                format!("items={}", scale.tpcw_items),
                format!("customers={}", scale.tpcw_customers),
            ],
        ),
        Workload::TpcB => return vec!["--builtin=tpcb-like".into()],
        Workload::PostMark => (&[], Vec::new()),
    };
    let folder = scripts.join(workload.name());
    let mut options: Vec<String> = variables
        .into_iter()
        .flat_map(|variable| ["-D".into(), variable])
        .collect();
    for (name, weight) in scripts_of {
        let script = folder.join(format!("{name}.sql"));
        options.push(format!("--file={}@{weight}", script.display()));
    }
    options
}

/// A line of the log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transaction {
    /// When it ended, in seconds since 1970.
    pub end: f64,
    /// From the time at which it should begin, if there is a rate.
    pub milliseconds: f64,
}

/// Of the log of pgbench 15: `client number microseconds script seconds microseconds ...`; a transaction that failed
/// has a word in the third place.
fn transactions(log: &str) -> Outcome<Vec<Transaction>> {
    let mut all = Vec::new();
    for line in log.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        if fields
            .get(2)
            .is_some_and(|time| *time == "failed" || *time == "skipped")
        {
            return Err(format!("pgbench: a transaction failed: {line}"));
        }
        let number = |index: usize| {
            fields
                .get(index)
                .and_then(|field| field.parse::<f64>().ok())
        };
        let found = (|| {
            Some(Transaction {
                end: number(4)? + number(5)? / 1e6,
                milliseconds: number(2)? / 1000.0,
            })
        })();
        all.push(found.ok_or(format!("pgbench: cannot read {line}"))?);
    }
    Ok(all)
}

/// What clients had in a window of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Service {
    pub per_second: f64,
    pub mean_ms: f64,
    pub p99_ms: f64,
}

/// Of the transactions that ended in it.
pub fn within(all: &[Transaction], from: f64, to: f64) -> Outcome<Service> {
    let mut times: Vec<f64> = all
        .iter()
        .filter(|one| one.end >= from && one.end < to)
        .map(|one| one.milliseconds)
        .collect();
    if times.is_empty() {
        return Err(format!("no transaction ended within {:.0} s", to - from));
    }
    times.sort_by(f64::total_cmp);
    let rank = (times.len() as f64 * 0.99).ceil() as usize;
    Ok(Service {
        per_second: times.len() as f64 / (to - from),
        mean_ms: times.iter().sum::<f64>() / times.len() as f64,
        p99_ms: times[rank.max(1) - 1],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apps::plan::QUICK;

    #[test]
    fn a_log_gives_ends_and_latencies() {
        let log = "0 1 4500 0 1700000000 250000\n3 1 1500000 1 1700000001 0 700 0\n";
        let all = transactions(log).expect("a log");
        assert_eq!(all[0].milliseconds, 4.5);
        assert!((all[0].end - 1_700_000_000.25).abs() < 1e-6);
        assert_eq!(all[1].milliseconds, 1500.0);
        assert!(transactions("0 1 failed 0 1700000000 250000\n").is_err());
        assert!(transactions("0 1 x\n").is_err());
    }

    #[test]
    fn a_window_counts_what_ended_in_it() {
        let all: Vec<Transaction> = (0..200)
            .map(|n| Transaction {
                end: f64::from(n) / 10.0,
                milliseconds: f64::from(n),
            })
            .collect();
        let service = within(&all, 0.0, 10.0).expect("transactions");
        assert_eq!(service.per_second, 10.0);
        assert_eq!(service.mean_ms, 49.5);
        assert_eq!(service.p99_ms, 98.0);
        assert!(within(&all, 30.0, 40.0).is_err());
    }

    #[test]
    fn mixes_are_whole_and_every_script_is_there() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/apps");
        for (workload, scripts, whole) in [
            (Workload::TpcC, &TPC_C[..], 100),
            (Workload::TpcW, &TPC_W[..], 10_000),
        ] {
            let sum: u32 = scripts.iter().map(|(_, weight)| weight).sum();
            assert_eq!(sum, whole);
            for (name, _) in scripts {
                let script = folder.join(workload.name()).join(format!("{name}.sql"));
                assert!(script.is_file(), "{}", script.display());
            }
            let options = mix(workload, &QUICK, &folder);
            let files = options.iter().filter(|option| option.starts_with("--file"));
            assert_eq!(files.count(), scripts.len());
        }
    }
}
