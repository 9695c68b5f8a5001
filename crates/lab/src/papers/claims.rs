//! The printed numbers of all scenarios, run and judged paper by paper.
//!
//! All judged numbers of a paper are one family, whatever scenario has them. Only the points that they need
//! are run, with more seeds where a scenario plans it and a number is undecided.

use super::inventory::source;
use crate::cache::grid;
use crate::experiment::cell::{Cell, Settings};
use crate::experiment::judged::{Judged, Repeated, judge, points_of, printed};
use crate::experiment::outcome::Group;
use crate::experiment::runner::Failed;
use crate::experiment::scenario::{self, Point, Scale, Scenario};
use crate::experiment::sequential::{Study, needed_by_printed};
use crate::replay::facts::Log;
use std::collections::BTreeMap;
use std::ops::Range;

/// What runs cells.
pub trait Runs {
    fn arrays(&self, scenario: &str, cells: &[Cell]) -> Result<Vec<Log>, Failed>;
    fn caches(
        &self,
        scenario: &str,
        points: Vec<Point>,
        seeds: Range<u64>,
    ) -> Result<Vec<grid::Cell>, String>;
}

/// Which printed numbers, and how they are run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// Those marked as headlines, at a scale; none: at the verify scale.
    Headlines(Option<Scale>),
    /// All, at a scale; none: at each scenario's usual one.
    All(Option<Scale>),
}

/// A printed number with the scenario that has it.
#[derive(Clone, Debug)]
pub struct Line {
    pub(crate) scenario: String,
    pub(crate) judged: Judged,
}

impl Line {
    /// Whether there is a number, be it decided or not.
    pub fn is_run(&self) -> bool {
        self.judged.is_run()
    }
}

/// The printed numbers of one paper.
pub struct Claims {
    subjects: Vec<Subject>,
    /// Scenarios that could not be run, each with the error.
    pub failures: Vec<(String, String)>,
}

enum Subject {
    Arrays(Box<Study>),
    Caches(Box<Grid>),
}

/// A grid of caches, as far as it is run.
struct Grid {
    scenario: Scenario,
    cells: Vec<grid::Cell>,
    looks: usize,
}

/// What could be run for a printed number.
#[derive(Clone, Debug)]
pub struct Planned {
    pub(crate) scenario: String,
    pub(crate) line: scenario::Printed,
    pub(crate) points: usize,
    /// Runs at first, and at the cap.
    pub(crate) runs: Range<u64>,
}

impl Claims {
    /// Of a paper by name. Scenarios without a printed number of it are left out.
    pub fn of(paper: &str, which: Which) -> Result<Claims, String> {
        let mut subjects = Vec::new();
        for name in scenario::names() {
            let text = scenario::named(name).unwrap_or_default();
            let scenario = scenario::parse_of::<Settings>(text);
            let scenario = scenario.map_err(|error| format!("{name}: {error}"))?;
            if let Some(scenario) = chosen(scenario, paper, which) {
                subjects.push(Subject::Arrays(Box::new(Study::of_printed(scenario))));
            }
        }
        for name in grid::names() {
            let scenario = grid::load(name).map_err(|error| format!("{name}: {error}"))?;
            if let Some(scenario) = chosen(scenario, paper, which) {
                subjects.push(Subject::Caches(Box::new(Grid::new(scenario))));
            }
        }
        Ok(Claims {
            subjects,
            failures: Vec::new(),
        })
    }

    /// A line for each printed number, with what it takes.
    pub fn planned(&self) -> Vec<Planned> {
        let of = |subject: &Subject| -> Vec<Planned> {
            let scenario = subject.scenario();
            let (points, looks) = (scenario.points(), scenario.looks());
            let plan = |line: &scenario::Printed| {
                let mut all: Vec<Point> = Vec::new();
                for point in points_of(line, &points).into_iter().flatten() {
                    if !all.contains(&point) {
                        all.push(point);
                    }
                }
                let runs = |look: Option<&u64>| all.len() as u64 * look.copied().unwrap_or(0);
                Planned {
                    scenario: scenario.name.clone(),
                    line: line.clone(),
                    points: all.len(),
                    runs: runs(looks.first())..runs(looks.last()),
                }
            };
            scenario.printed.iter().map(plan).collect()
        };
        self.subjects.iter().flat_map(of).collect()
    }

    /// The runs of all printed numbers together, which share points: at first, and at the cap.
    pub fn runs(&self) -> Range<u64> {
        let (mut first, mut cap) = (0, 0);
        for subject in &self.subjects {
            let looks = subject.scenario().looks();
            let points = subject.points().len() as u64;
            first += points * looks.first().copied().unwrap_or(0);
            cap += points * looks.last().copied().unwrap_or(0);
        }
        first..cap
    }

    /// Runs until all is decided, or the planned caps are reached, and judges. What cannot be run is kept
    /// as a failure.
    ///
    /// # Errors
    ///
    /// What was run could not be kept. Nothing is judged then: that would say of claims what is wrong with a
    /// disk.
    pub fn run(&mut self, runs: &impl Runs) -> Result<Vec<Line>, Failed> {
        let all = self.subjects.iter().map(Subject::points);
        let mut needed: Vec<Vec<Point>> = all.collect();
        loop {
            let mut more = false;
            for (subject, needed) in self.subjects.iter_mut().zip(&needed) {
                match subject.look_at(needed, runs) {
                    Ok(looked) => more |= looked,
                    Err(Failed::Keep(error)) => return Err(Failed::Keep(error)),
                    Err(Failed::Run(error)) => {
                        let name = subject.scenario().name.clone();
                        self.failures.push((name, error));
                    }
                }
            }
            let lines = self.judged();
            if !more {
                return Ok(lines.into_iter().flatten().collect());
            }
            let undecided = |lines: &Vec<Line>| {
                let lines = lines.iter().filter(|line| line.judged.is_undecided());
                lines.flat_map(|line| line.judged.of.clone()).collect()
            };
            needed = lines.iter().map(undecided).collect();
        }
    }

    /// Lines by subject, judged as one family.
    fn judged(&mut self) -> Vec<Vec<Line>> {
        let lines = |subject: &mut Subject| {
            let scenario = subject.scenario().name.clone();
            let named = |judged| Line {
                scenario: scenario.clone(),
                judged,
            };
            subject.printed().into_iter().map(named).collect()
        };
        let mut lines: Vec<Vec<Line>> = self.subjects.iter_mut().map(lines).collect();
        let all = lines.iter_mut().flatten().map(|line| &mut line.judged);
        judge(&mut all.collect::<Vec<_>>());
        lines
    }
}

/// The scenario at the scale, with nothing but the printed numbers that are asked for; `None` if it has
/// none of them.
fn chosen(scenario: Scenario, paper: &str, which: Which) -> Option<Scenario> {
    let scale = match which {
        Which::Headlines(scale) => scale.unwrap_or(Scale::Verify),
        Which::All(scale) => scale.unwrap_or(scenario.usual_scale()),
    };
    let mut scenario = scenario.scaled(scale);
    let wanted = |line: &scenario::Printed| {
        source(line).0 == paper && (line.headline || matches!(which, Which::All(_)))
    };
    scenario.printed.retain(wanted);
    scenario.comparisons.clear();
    scenario.figures.clear();
    (!scenario.printed.is_empty()).then_some(scenario)
}

impl Subject {
    fn scenario(&self) -> &Scenario {
        match self {
            Subject::Arrays(study) => &study.scenario,
            Subject::Caches(grid) => &grid.scenario,
        }
    }

    fn points(&self) -> Vec<Point> {
        match self {
            Subject::Arrays(study) => study.points().to_vec(),
            Subject::Caches(grid) => grid.cells.iter().map(|cell| cell.point.clone()).collect(),
        }
    }

    /// Runs the next look at these points; whether there was one.
    fn look_at(&mut self, needed: &[Point], runs: &impl Runs) -> Result<bool, Failed> {
        match self {
            _ if needed.is_empty() => Ok(false),
            Subject::Caches(grid) => grid.look_at(needed, runs).map_err(Failed::Run),
            Subject::Arrays(study) => {
                let Some(cells) = study.look_at(needed).map_err(Failed::Run)? else {
                    return Ok(false);
                };
                let mut logs = runs.arrays(&study.scenario.name, &cells)?;
                // Metrics are of phases; the course over time is what takes memory.
                for log in &mut logs {
                    (log.steps, log.drawn_uj) = (Vec::new(), Vec::new());
                }
                study.add(cells, logs);
                Ok(true)
            }
        }
    }

    fn printed(&mut self) -> Vec<Judged> {
        match self {
            Subject::Arrays(study) => study.with_outcome(|outcome| {
                let groups: Vec<Group<'_>> = outcome.groups().collect();
                printed(outcome.scenario, &groups)
            }),
            Subject::Caches(grid) => {
                let run = grid.cells.iter().filter(|cell| !cell.pairs.is_empty());
                let run: Vec<grid::Cell> = run.cloned().collect();
                printed(&grid.scenario, &run)
            }
        }
    }
}

impl Grid {
    fn new(scenario: Scenario) -> Grid {
        let points = scenario.points();
        let needed = needed_by_printed(&scenario, &points);
        let points = points.into_iter().filter(|point| needed.contains(point));
        let empty = |point| grid::Cell {
            point,
            pairs: Vec::new(),
        };
        Grid {
            cells: points.map(empty).collect(),
            scenario,
            looks: 0,
        }
    }

    fn look_at(&mut self, needed: &[Point], runs: &impl Runs) -> Result<bool, String> {
        let Some(seeds) = self.scenario.looks().get(self.looks).copied() else {
            return Ok(false);
        };
        self.looks += 1;
        // Points that have as many seeds go together: they may share passes.
        let mut by_done: BTreeMap<u64, Vec<Point>> = BTreeMap::new();
        for cell in self
            .cells
            .iter()
            .filter(|cell| needed.contains(cell.point()))
        {
            let done = cell.pairs.len() as u64;
            by_done.entry(done).or_default().push(cell.point.clone());
        }
        for (done, points) in by_done {
            let found = runs.caches(&self.scenario.name, points, done..seeds)?;
            for found in found {
                let cell = self.cells.iter_mut().find(|cell| cell.point == found.point);
                if let Some(cell) = cell {
                    cell.pairs.extend(found.pairs);
                }
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::inventory;
    use super::*;

    /// Printed numbers of which the scenario has no points at a scale.
    fn without_points(scenario: &Scenario) -> Vec<String> {
        let points = scenario.points();
        let has = |line: &scenario::Printed| {
            let mut all = points_of(line, &points).into_iter().flatten().peekable();
            all.peek().is_some() && all.all(|point| points.contains(&point))
        };
        let lacking = scenario.printed.iter().filter(|line| !has(line));
        let shown = lacking.map(|line| format!("{}: {} {:?}", scenario.name, line.what, line.at));
        shown.collect()
    }

    fn lacking(paper: &str, which: Which) -> Vec<String> {
        let claims = Claims::of(paper, which).expect("sound");
        let subjects = claims.subjects.iter();
        subjects
            .flat_map(|one| without_points(one.scenario()))
            .collect()
    }

    #[test]
    fn every_printed_number_has_points_and_every_headline_at_the_verify_scale() {
        let mut headlines = 0;
        for inventory::Inventory { paper, .. } in inventory::all().expect("sound") {
            let claims = Claims::of(&paper, Which::Headlines(None)).expect("sound");
            headlines += claims.planned().len();
            let mut found = lacking(&paper, Which::Headlines(None));
            // Whole, or at the scale that is usual.
            let usual = lacking(&paper, Which::All(None));
            let whole = lacking(&paper, Which::All(Some(Scale::Whole)));
            found.extend(whole.into_iter().filter(|line| usual.contains(line)));
            assert!(found.is_empty(), "{}", found.join("\n"));
        }
        assert!(headlines >= 20, "{headlines}");
    }

    /// Nothing that is asked of arrays can be run.
    struct Broken(Failed);

    fn broken() -> Broken {
        Broken(Failed::Run("it is broken".into()))
    }

    impl Runs for Broken {
        fn arrays(&self, _: &str, _: &[Cell]) -> Result<Vec<Log>, Failed> {
            Err(self.0.clone())
        }

        fn caches(
            &self,
            _: &str,
            points: Vec<Point>,
            seeds: Range<u64>,
        ) -> Result<Vec<grid::Cell>, String> {
            grid::run_at(points, seeds, std::path::Path::new("."), 1, &|_, _| {})
        }
    }

    #[test]
    fn a_scenario_that_cannot_be_run_is_named_and_its_claims_are_not_run() {
        let mut claims = Claims::of("IDO", Which::Headlines(None)).expect("sound");
        let lines = claims.run(&broken()).expect("judged");
        assert_eq!(lines.len(), claims.planned().len());
        assert!(lines.iter().all(|line| !line.is_run()));
        let failed: Vec<&str> = claims
            .failures
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        assert!(failed.contains(&"ido"), "{failed:?}");
        assert!(
            claims
                .failures
                .iter()
                .all(|(_, error)| error == "it is broken")
        );
    }

    #[test]
    fn a_full_disk_ends_everything_and_is_no_verdict() {
        let mut claims = Claims::of("IDO", Which::Headlines(None)).expect("sound");
        let full = Failed::Keep("it is full".into());
        let ended = claims.run(&Broken(full.clone())).map(|lines| lines.len());
        assert_eq!(ended, Err(full));
        assert!(claims.failures.is_empty(), "{:?}", claims.failures);
    }

    #[test]
    fn caches_are_run_and_judged_too() {
        let mut claims = Claims::of("VDF", Which::All(Some(Scale::Short))).expect("sound");
        claims
            .subjects
            .retain(|subject| matches!(subject, Subject::Caches(_)));
        let lines = claims.run(&broken()).expect("judged");
        assert!(claims.failures.is_empty(), "{:?}", claims.failures);
        assert!(lines.iter().any(Line::is_run), "{lines:?}");
    }
}
