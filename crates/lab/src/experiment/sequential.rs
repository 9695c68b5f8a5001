//! Sequential stopping: seeds until what is compared is decided, or until a planned cap.
//!
//! The first look has all points. After each look, only the points of undecided claims are run with the
//! seeds of the next look, so points have unequal numbers of seeds. The looks are planned in the scenario,
//! before anything is run, and every test is corrected for their number ([`super::verdict`]).

use super::cell::{Cell, Contents};
use super::judged::points_of;
use super::outcome::{Outcome, Run};
use super::scenario::{Point, Scenario};
use crate::replay::facts::Log;

/// The runs of a scenario, as far as they are done.
pub struct Study {
    pub(crate) scenario: Scenario,
    points: Vec<Point>,
    /// Seeds that each point was run with.
    done: Vec<u64>,
    /// By point, then by seed.
    runs: Vec<Run>,
    contents: Contents,
    /// Looks that have begun.
    looks: usize,
}

impl Study {
    /// Of all points of the sweep.
    pub fn new(scenario: Scenario) -> Study {
        let points = scenario.points();
        Study::of(scenario, points)
    }

    /// Of the points that printed numbers of the scenario need.
    pub fn of_printed(scenario: Scenario) -> Study {
        let mut points = scenario.points();
        let needed = needed_by_printed(&scenario, &points);
        points.retain(|point| needed.contains(point));
        Study::of(scenario, points)
    }

    fn of(scenario: Scenario, points: Vec<Point>) -> Study {
        Study {
            scenario,
            done: vec![0; points.len()],
            points,
            runs: Vec::new(),
            contents: Contents::default(),
            looks: 0,
        }
    }

    pub(crate) fn points(&self) -> &[Point] {
        &self.points
    }

    /// Cells of the next look: those of all points at first, then those that undecided claims need. `None`:
    /// all is decided, or the cap is reached.
    pub fn next_look(&mut self) -> Result<Option<Vec<Cell>>, String> {
        let needed = match self.looks {
            0 => self.points.clone(),
            _ => self.undecided(),
        };
        self.look_at(&needed)
    }

    /// Cells of the next look at these points.
    pub(crate) fn look_at(&mut self, needed: &[Point]) -> Result<Option<Vec<Cell>>, String> {
        let Some(seeds) = self.scenario.looks().get(self.looks).copied() else {
            return Ok(None);
        };
        self.looks += 1;
        let mut cells = Vec::new();
        for (point, done) in self.points.iter().zip(&mut self.done) {
            if needed.contains(point) {
                for seed in *done + 1..=seeds {
                    cells.push(Cell::new(point, seed, &mut self.contents)?);
                }
                *done = seeds.max(*done);
            }
        }
        Ok((!cells.is_empty()).then_some(cells))
    }

    /// What a look's cells came to.
    pub fn add(&mut self, cells: Vec<Cell>, logs: Vec<Log>) {
        let runs = cells.into_iter().zip(logs);
        self.runs.extend(runs.map(|(cell, log)| Run { cell, log }));
        let points = &self.points;
        let place = |run: &Run| {
            let point = points.iter().position(|point| *point == run.cell.point);
            (point, run.cell.seed)
        };
        self.runs.sort_by_cached_key(place);
    }

    /// Asks the outcome so far.
    pub(crate) fn with_outcome<T>(&mut self, ask: impl FnOnce(&Outcome<'_>) -> T) -> T {
        let outcome = Outcome::new(&self.scenario, std::mem::take(&mut self.runs));
        let answer = ask(&outcome);
        self.runs = outcome.runs;
        answer
    }

    pub fn into_runs(self) -> Vec<Run> {
        self.runs
    }

    /// Points of claims that further seeds may decide.
    fn undecided(&mut self) -> Vec<Point> {
        self.with_outcome(|outcome| {
            let (judged, compared) = (outcome.judged(), outcome.compared());
            let judged = judged.into_iter().filter(|line| line.is_undecided());
            let compared = compared.into_iter().filter(|line| line.is_undecided());
            let points = judged.flat_map(|line| line.of);
            points.chain(compared.flat_map(|line| line.of)).collect()
        })
    }
}

/// Those of the points that printed numbers need.
pub(crate) fn needed_by_printed(scenario: &Scenario, points: &[Point]) -> Vec<Point> {
    let of = |printed| points_of(printed, points).into_iter().flatten();
    scenario.printed.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::super::scenario::{named, parse};
    use super::*;
    use crate::replay::facts::{Phase, Rebuild};

    /// Two minimum rates under two sources, with a claim about each source.
    fn scenario() -> Scenario {
        let text = named("rebuild-cost").expect("built in");
        let mut scenario = parse(text).expect("sound").shortened();
        scenario.figures.clear();
        scenario.comparisons.clear();
        let claim = |source: &str| {
            let text = format!(
                "what = \"w\"\nsource = \"IDO, table 1\"\nvalue = 2.0\nclaim = \"sign\"\nmetric = \"rebuild_s\"\n\
                 between = {{ vary = \"rebuild.min_mb_s\", of = 1, to = 50 }}\nat = {{ \"workload.source\" = \"{source}\" }}"
            );
            toml::from_str(&text).expect("a printed number")
        };
        scenario.printed = vec![claim("fin1"), claim("fin2")];
        let text = |text: &str| super::super::value::Value::Text(text.into());
        let whole = super::super::value::Value::Whole;
        scenario
            .sweep
            .values_mut()
            .for_each(|values| values.truncate(1));
        for (path, values) in [
            ("workload.source", vec![text("fin1"), text("fin2")]),
            ("rebuild.min_mb_s", vec![whole(1), whole(50)]),
            ("rebuild.throttle", vec![text("restripe")]),
            ("workload.load", vec![super::super::value::Value::Real(0.5)]),
        ] {
            scenario.fixed.remove(path);
            scenario.sweep.insert(path.into(), values);
        }
        let looks = vec![3, 6, 9];
        scenario.stopping = Some(super::super::claim::Stopping { looks });
        scenario
    }

    fn log(rebuild_ns: u64) -> Log {
        Log {
            phases: vec![Phase::default()],
            rebuild: Some(Rebuild {
                from_ns: 0,
                to_ns: Some(rebuild_ns),
                rows_done: 1,
                rows_total: 1,
            }),
            ..Log::default()
        }
    }

    /// Under fin1 the minimum decides clearly; under fin2 the sign changes from seed to seed.
    fn made_up(cell: &Cell) -> Log {
        let fast = cell.settings.rebuild.min_mb_s > 1.0;
        let fin1 = cell.settings.workload.source == "fin1";
        let wobble = 1000 + 400 * (cell.seed % 2);
        match (fin1, fast) {
            (true, true) => log(1000 + cell.seed),
            (true, false) => log(3000 + 5 * cell.seed),
            (false, true) => log(1200),
            (false, false) => log(wobble),
        }
    }

    #[test]
    fn only_points_of_undecided_claims_get_more_seeds() {
        let mut study = Study::new(scenario());
        let mut asked = Vec::new();
        while let Some(cells) = study.next_look().expect("sound") {
            asked.push(cells.len());
            let logs = cells.iter().map(made_up).collect();
            study.add(cells, logs);
        }
        // Four points, then the two of fin2 until the cap.
        assert_eq!(asked, [12, 6, 6]);
        let scenario = study.scenario.clone();
        let outcome = Outcome::new(&scenario, study.into_runs());
        let seeds: Vec<usize> = outcome.groups().map(|group| group.runs.len()).collect();
        let mut sorted = seeds.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [3, 3, 9, 9]);
        let judged = outcome.judged();
        let says: Vec<String> = judged
            .iter()
            .map(super::super::judged::Judged::says)
            .collect();
        assert_eq!(says, ["holds", "undecided"]);
        let counts = judged.iter().map(|line| line.ours.expect("measured").count);
        assert_eq!(counts.collect::<Vec<_>>(), [3, 9]);
    }

    #[test]
    fn only_what_printed_numbers_need_is_run() {
        let mut scenario = scenario();
        scenario.printed.truncate(1);
        assert_eq!(Study::of_printed(scenario.clone()).points().len(), 2);
        scenario.printed.clear();
        assert!(Study::of_printed(scenario).points().is_empty());
    }
}
