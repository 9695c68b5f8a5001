//! Cells over cores, with a cache: a finished run is not done again.
//!
//! The cache belongs to the program that did the run: another program may give other results, and never
//! shows these as its own.
//!
//! Every cell is a function of its text, so the number of threads and the order in which they finish affect
//! the time only. Results are returned in the order of the cells.

use super::cell::{Cell, measure_capacity, run};
use super::content::hash;
use super::kept::{self, digest};
use crate::replay::facts::Log;
use crate::threads::over;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

/// What is counted of cells, once their capacities are known.
pub const RUNS: &str = "runs";

/// What is told while cells run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    pub what: &'static str,
    pub done: usize,
    pub total: usize,
    /// Of those done, how many came from the cache.
    pub cached: usize,
    /// Of those done, how many did not fail: these are in the cache, if there is one.
    pub kept: usize,
}

/// Why cells have no logs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failed {
    /// Of one of them, or of its capacity, a run failed.
    Run(String),
    /// A run could not be kept, as on a full disk: others would fare no better.
    Keep(String),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Failed::Run(error) | Failed::Keep(error)) = self;
        f.write_str(error)
    }
}

impl Failed {
    /// Says of which cell a run failed.
    fn of(self, what: &str, text: &str) -> Failed {
        match self {
            Failed::Run(error) => Failed::Run(format!("{error}\nin the {what} of\n{text}")),
            keep @ Failed::Keep(_) => keep,
        }
    }
}

pub struct Runner<'a> {
    pub threads: usize,
    /// Where runs are kept; without it they are not.
    pub cache: Option<PathBuf>,
    /// Do not believe what is kept, but keep what is run.
    pub fresh: bool,
    pub progress: &'a (dyn Fn(Progress) + Sync),
}

/// The program that runs, by what its file holds; of a file that cannot be read, by its version.
pub fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let version = env!("CARGO_PKG_VERSION");
        let bytes = fs::read("/proc/self/exe");
        bytes.map_or_else(
            |_| version.into(),
            |bytes| format!("{version} {}", digest(&bytes)),
        )
    })
}

impl Runner<'_> {
    /// Runs all cells; their logs in the same order.
    pub fn run(&self, cells: &[Cell]) -> Result<Vec<Log>, Failed> {
        let capacities = self.capacities(cells)?;
        self.all(RUNS, cells, |cell| {
            let capacity = cell.capacity_key().map(|key| capacities[&key]);
            let text = cell.canonical();
            self.kept(&text, || run(cell, capacity))
                .map_err(|failed| failed.of("run", &text))
        })
    }

    /// Requests a second, in thousandths, by [`Cell::capacity_key`].
    fn capacities(&self, cells: &[Cell]) -> Result<BTreeMap<String, u64>, Failed> {
        let mut keys: BTreeMap<String, &Cell> = BTreeMap::new();
        for cell in cells {
            if let Some(key) = cell.capacity_key() {
                keys.entry(key).or_insert(cell);
            }
        }
        let wanted: Vec<(String, &Cell)> = keys.into_iter().collect();
        let found = self.all("capacities", &wanted, |(key, cell)| {
            self.kept(key, || measure_capacity(cell))
                .map_err(|failed| failed.of("measurement", key))
        })?;
        Ok(wanted.into_iter().map(|(key, _)| key).zip(found).collect())
    }

    /// Does `work` for every item on the threads there are; it tells with a result whether that was kept. How many have
    /// ended and how many of those were kept is told of one moment, so that whoever watches may subtract.
    fn all<I: Sync, T: Send>(
        &self,
        what: &'static str,
        items: &[I],
        work: impl Fn(&I) -> Result<(T, bool), Failed> + Sync,
    ) -> Result<Vec<T>, Failed> {
        let (mut cached, mut kept) = (0, 0);
        let watch = |done, result: &Result<(T, bool), Failed>| {
            cached += usize::from(matches!(result, Ok((_, true))));
            kept += usize::from(result.is_ok());
            (self.progress)(Progress {
                what,
                done,
                total: items.len(),
                cached,
                kept,
            });
        };
        let found = over(self.threads, items, work, watch)?;
        Ok(found.into_iter().map(|(result, _)| result).collect())
    }

    /// What is kept under a text, or else what `make` gives; and whether it was kept.
    fn kept<T: Serialize + DeserializeOwned>(
        &self,
        text: &str,
        make: impl FnOnce() -> Result<T, String>,
    ) -> Result<(T, bool), Failed> {
        let text = &format!("program = {}\n{text}", program());
        let path = self
            .cache
            .as_ref()
            .map(|folder| folder.join(format!("{}.json", hash(text))));
        if let (Some(path), false) = (&path, self.fresh)
            && let Some(result) = kept::recall(path, text)
        {
            return Ok((result, true));
        }
        let result = make().map_err(Failed::Run)?;
        if let Some(path) = &path {
            kept::keep(path, text, &result)
                .map_err(|error| Failed::Keep(format!("{}: {error}", path.display())))?;
        }
        Ok((result, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_program_kept_is_not_believed() {
        let folder = std::env::temp_dir().join(format!("restripe-runner-{}", std::process::id()));
        let runner = Runner {
            threads: 1,
            cache: Some(folder.clone()),
            fresh: false,
            progress: &|_| {},
        };
        let ask = |value: u32| runner.kept("settings", || Ok(value)).expect("it is kept");
        assert_eq!((ask(1), ask(2)), ((1, false), (1, true)));
        // The file of this text, as another program would have left it.
        let kept = fs::read_dir(&folder).expect("a folder").next();
        let path = kept.expect("a file").expect("readable").path();
        let text = fs::read_to_string(&path).expect("a file of ours");
        fs::write(&path, text.replace(program(), "0.0.0 of another")).expect("ours");
        assert_eq!(ask(3), (3, false));
        fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn a_changed_byte_is_a_rerun_or_the_same_value_never_another() {
        let folder = std::env::temp_dir().join(format!("restripe-damaged-{}", std::process::id()));
        let runner = Runner {
            threads: 1,
            cache: Some(folder.clone()),
            fresh: false,
            progress: &|_| {},
        };
        let sound: Vec<u64> = vec![1_234_567, 89];
        // What a run that is done again gives here, which nothing that is kept does.
        let again: Vec<u64> = Vec::new();
        let ask = |make: &Vec<u64>| runner.kept("rate = 1", || Ok(make.clone())).expect("kept");
        assert_eq!(ask(&sound), (sound.clone(), false));
        let path = fs::read_dir(&folder).expect("a folder").next();
        let path = path.expect("a file").expect("readable").path();
        let whole = fs::read(&path).expect("ours");
        for at in 0..whole.len() {
            // Another digit or letter, another kind of sign, and what no text has.
            for changed in [whole[at] ^ 1, whole[at] ^ 0x40, b' ', 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = changed;
                let unchanged = changed == whole[at];
                fs::write(&path, bytes).expect("ours");
                let wanted = if unchanged {
                    (sound.clone(), true)
                } else {
                    (again.clone(), false)
                };
                assert_eq!(ask(&again), wanted, "byte {at} is {changed}");
            }
        }
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).expect("ours");
            assert_eq!(ask(&again), (again.clone(), false), "{length} bytes");
        }
        let longer = [&whole[..], b" "].concat();
        fs::write(&path, longer).expect("ours");
        assert_eq!(ask(&again), (again.clone(), false));
        // What was kept before there were digests.
        let text = format!("program = {}\nrate = 1", program());
        let former = serde_json::json!({"of": text, "result": [5]}).to_string();
        fs::write(&path, former).expect("ours");
        assert_eq!(ask(&sound), (sound.clone(), false));
        assert_eq!(ask(&again), (sound, true));
        fs::remove_dir_all(&folder).expect("ours");
    }
}
