//! `lab reliability`: solves a model's chain, and holds it against simulated disks where asked to.

use crate::failure::{Failure, Outcome};
use crate::print::terminal::outln;
use clap::{Args, ValueEnum};
use restripe_lab::reliability::chain::Expected;
use restripe_lab::reliability::mission::{Mission, mission};
use restripe_lab::reliability::model::{Choice, Known, MODELS, Parameters, known};
use restripe_lab::reliability::quantity::{parse_hours, parse_number, to_float};
use restripe_lab::reliability::simulate::{Estimate, Lives, NORMAL_95, simulate};
use restripe_lab::reliability::{Chain, Conditions, Exact, Model, Repair};
use serde::Serialize;

#[derive(Args, Debug)]
#[command(
    after_help = "Times are a number with ms, s, m, h, d, w or y (365 days), with decimals and powers of ten: 1e6h, 3.5d, 5y.
A parameter that the model does not use is refused.

Example: restripe lab reliability raid6 --disks 12 --mttf 1e6h --mttr 24h --mission 5y"
)]
pub(crate) struct Reliability {
    /// The model; without it, the models are listed
    pub model: Option<String>,
    /// Total number of disks, including disks in standby and the log disk [default: 8; graid and s2-raid5: 9]
    #[arg(long, value_name = "N")]
    pub disks: Option<usize>,
    /// Mean time to failure of a disk
    #[arg(long, value_name = "TIME", value_parser = parse_hours, default_value = "1e6h")]
    pub mttf: Exact,
    /// Mean time to repair a disk
    #[arg(long, value_name = "TIME", value_parser = parse_hours, default_value = "24h")]
    pub mttr: Exact,
    /// One repairer for all failed disks, or one for each
    #[arg(long, value_enum, default_value = "all")]
    pub repair: RepairBy,
    /// Mean time until a spare is available; 0h if spares are in stock
    #[arg(long, value_name = "TIME", value_parser = parse_hours, default_value = "0h")]
    pub spare_delay: Exact,
    /// Probability that a repair without remaining redundancy meets an unreadable sector and so loses data
    #[arg(long, value_name = "CHANCE", value_parser = parse_number, default_value = "0")]
    pub sector_loss: Exact,
    /// Failure rate of a disk in standby, relative to an active disk (reraid, graid, eraid) [default: 1]
    #[arg(long, value_name = "FACTOR", value_parser = parse_number)]
    pub asleep: Option<Exact>,
    /// Use the failure rate of an active disk for a standby disk while it is the source of a rebuild,
    /// whatever --asleep is (reraid, graid, eraid)
    #[arg(long)]
    pub wakes: bool,
    /// Number of lost disks that the model `code`, or the code cache of reraid and reraid-text, tolerates
    /// [default of reraid and reraid-text: 2]
    #[arg(long, value_name = "N")]
    pub tolerates: Option<usize>,
    /// Disks of a sub-array of s2-raid5 [default: 3]
    #[arg(long, value_name = "N")]
    pub row: Option<usize>,
    /// Partitions of a disk of s2-raid5 and s2-raid10 [default: the most without conflict]
    #[arg(long, value_name = "N")]
    pub partitions: Option<usize>,
    /// Time in service
    #[arg(long, value_name = "TIME", value_parser = parse_hours, default_value = "5y")]
    pub mission: Exact,
    /// Also simulate single disks, and compare with the chain
    #[arg(long)]
    pub simulate: bool,
    /// With --simulate: number of simulated arrays, one per seed
    #[arg(long, value_name = "N", requires = "simulate", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(2..=10_000_000))]
    pub seeds: u64,
    /// With --simulate: the first seed
    #[arg(long, value_name = "N", requires = "simulate", default_value_t = 1)]
    pub seed: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Who repairs.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RepairBy {
    /// One repairer, shared by all failed disks
    One,
    /// Every failed disk at once, at full speed
    All,
}

const HOURS_A_YEAR: f64 = 8760.0;
/// Failures, spares and repairs of a simulation: some ten seconds.
const EVENTS_MAX: u64 = 100_000_000;
/// An exact result with more digits is not read by anybody.
const EXACT_DIGITS_MAX: usize = 60;

pub(crate) fn run(verb: &Reliability) -> Outcome {
    let Some(name) = &verb.model else {
        for known in &MODELS {
            outln!("{:<12} {}", known.name, known.about);
        }
        return Ok(());
    };
    let known = known(name).map_err(Failure::usage)?;
    refuse_idle_switches(known, verb)?;
    let parameters = parameters(known, verb);
    let model = known.model(&parameters).map_err(Failure::usage)?;
    let conditions = conditions(verb);
    let chain = model.chain(&conditions).map_err(Failure::usage)?;
    let expected: Expected<f64> = chain.expect().map_err(|e| Failure::new(e.to_string()))?;
    let mission_hours = to_float(&verb.mission);
    let lives = match verb.simulate {
        true => Some(lives(verb, &model, &conditions, &expected)?),
        false => None,
    };
    let report = Report {
        model: model.name,
        disks: model.disks,
        states: chain.states(),
        mttdl_hours: expected.hours,
        mttdl_hours_exact: exact(&chain)?,
        failures_until_loss: expected.failures,
        repairs_until_loss: expected.repairs,
        mission_hours,
        mission: mission(&chain, mission_hours).map(Within::from),
        simulated: lives.map(|lives| Simulated::of(&lives, verb, &expected, mission_hours)),
    };
    if verb.json {
        let text = serde_json::to_string_pretty(&report)
            .map_err(|e| Failure::new(format!("the report cannot be written: {e}")))?;
        outln!("{text}");
    } else {
        report.print();
    }
    Ok(())
}

fn parameters(known: &Known, verb: &Reliability) -> Parameters {
    let usual = Parameters::new(verb.disks.unwrap_or(known.disks()));
    Parameters {
        tolerates: verb.tolerates,
        row: verb.row.unwrap_or(usual.row),
        partitions: verb.partitions,
        asleep: verb.asleep.clone().unwrap_or(usual.asleep),
        wakes: verb.wakes,
        ..usual
    }
}

/// A switch that the model does not look at would leave its result as it is, and whoever gave it in the dark.
fn refuse_idle_switches(known: &Known, verb: &Reliability) -> Outcome {
    let given = [
        ("--tolerates", Choice::Tolerates, verb.tolerates.is_some()),
        ("--row", Choice::Row, verb.row.is_some()),
        (
            "--partitions",
            Choice::Partitions,
            verb.partitions.is_some(),
        ),
        ("--asleep", Choice::Asleep, verb.asleep.is_some()),
        ("--wakes", Choice::Wakes, verb.wakes),
    ];
    let idle = given
        .iter()
        .find(|(_, choice, given)| *given && !known.takes.contains(choice));
    let Some((switch, choice, _)) = idle else {
        return Ok(());
    };
    let takers = MODELS.iter().filter(|other| other.takes.contains(choice));
    let takers: Vec<&str> = takers.map(|other| other.name).collect();
    let told = format!("the model {} does not use {switch}", known.name);
    Err(Failure::usage(told).hint(format!("it is for {}", takers.join(", "))))
}

fn conditions(verb: &Reliability) -> Conditions {
    Conditions {
        repair: match verb.repair {
            RepairBy::One => Repair::One,
            RepairBy::All => Repair::All,
        },
        spare_delay: verb.spare_delay.clone(),
        sector_loss: verb.sector_loss.clone(),
        ..Conditions::new(verb.mttf.clone(), verb.mttr.clone())
    }
}

/// Refuses what would take hours: the chain knows beforehand how many failures a life has.
fn lives(
    verb: &Reliability,
    model: &Model,
    conditions: &Conditions,
    expected: &Expected<f64>,
) -> Result<Lives, Failure> {
    let too_long = || {
        let failures = expected.failures * verb.seeds as f64;
        Failure::new(format!(
            "simulating {failures:.1e} failures of disks takes too long"
        ))
        .hint("use fewer --seeds, or make loss less rare: a shorter --mttf, a longer --mttr")
    };
    if expected.failures * verb.seeds as f64 > EVENTS_MAX as f64 {
        return Err(too_long());
    }
    simulate(
        model,
        conditions,
        verb.seed,
        verb.seeds,
        EVENTS_MAX.saturating_mul(4),
    )
    .ok_or_else(too_long)
}

/// Where the chain is small; as a fraction.
fn exact(chain: &Chain) -> Result<Option<String>, Failure> {
    if !Model::is_exact_cheap(chain) {
        return Ok(None);
    }
    let expected: Expected<Exact> = chain.expect().map_err(|e| Failure::new(e.to_string()))?;
    Ok(Some(expected.hours.to_string()))
}

#[derive(Serialize)]
struct Report {
    model: &'static str,
    disks: usize,
    states: usize,
    mttdl_hours: f64,
    mttdl_hours_exact: Option<String>,
    failures_until_loss: f64,
    repairs_until_loss: f64,
    mission_hours: f64,
    mission: Option<Within>,
    simulated: Option<Simulated>,
}

#[derive(Serialize)]
struct Within {
    loss_probability: f64,
    expected_losses: f64,
}

impl From<Mission> for Within {
    fn from(mission: Mission) -> Within {
        Within {
            loss_probability: mission.probability,
            expected_losses: mission.losses,
        }
    }
}

#[derive(Serialize)]
struct Simulated {
    seeds: u64,
    first_seed: u64,
    disk_failures: u64,
    mttdl_hours: f64,
    mttdl_half_width_95: f64,
    /// Within the mission.
    lives_lost: usize,
    /// The share of them, and the ends of its interval.
    loss_probability: f64,
    loss_probability_low_95: f64,
    loss_probability_high_95: f64,
    agrees: bool,
}

impl Simulated {
    fn of(lives: &Lives, verb: &Reliability, expected: &Expected<f64>, hours: f64) -> Simulated {
        let mean: Estimate = lives.mean(NORMAL_95);
        let interval = lives.lost_within(hours, NORMAL_95);
        let lost = lives.lost_by(hours);
        Simulated {
            seeds: verb.seeds,
            first_seed: verb.seed,
            disk_failures: lives.failures,
            mttdl_hours: mean.mean,
            mttdl_half_width_95: mean.half_width,
            lives_lost: lost,
            loss_probability: lost as f64 / verb.seeds as f64,
            // Beyond 0 and 1 by rounding alone.
            loss_probability_low_95: (interval.mean - interval.half_width).max(0.0),
            loss_probability_high_95: (interval.mean + interval.half_width).min(1.0),
            agrees: mean.contains(expected.hours),
        }
    }
}

impl Report {
    fn print(&self) {
        let (model, disks, states) = (&self.model, self.disks, self.states);
        outln!("{model} of {disks} disks, {states} states");
        outln!("  mean time to data loss   {}", time(self.mttdl_hours));
        if let Some(exact) = &self.mttdl_hours_exact {
            let digits = exact.len();
            if digits <= EXACT_DIGITS_MAX {
                outln!("    exactly                {exact} h");
            } else {
                outln!("    exactly                a fraction of {digits} digits, see --json");
            }
        }
        let [failures, repairs] = [self.failures_until_loss, self.repairs_until_loss].map(figure);
        outln!("  disk failures until then {failures}");
        outln!("  repairs until then       {repairs}");
        match &self.mission {
            Some(within) => {
                outln!("  within {}", time(self.mission_hours));
                let [chance, losses] =
                    [within.loss_probability, within.expected_losses].map(figure);
                outln!("    chance of loss         {chance}");
                outln!("    expected losses        {losses}");
            }
            None => outln!("  within a mission         too many states for that"),
        }
        if let Some(simulated) = &self.simulated {
            simulated.print();
        }
    }
}

impl Simulated {
    fn print(&self) {
        let last = self.first_seed.wrapping_add(self.seeds - 1);
        let (first, failures) = (self.first_seed, self.disk_failures);
        outln!("simulated, seeds {first} to {last}, {failures} disk failures");
        outln!(
            "  mean time to data loss   {}, 95% within {:.2}% of it: {} the chain",
            time(self.mttdl_hours),
            self.mttdl_half_width_95 / self.mttdl_hours * 100.0,
            if self.agrees {
                "agrees with"
            } else {
                "outside, differs from"
            }
        );
        outln!(
            "  lost within the mission  {} of {} arrays: a chance of {}, 95% between {} and {}",
            self.lives_lost,
            self.seeds,
            figure(self.loss_probability),
            figure(self.loss_probability_low_95),
            figure(self.loss_probability_high_95)
        );
    }
}

fn time(hours: f64) -> String {
    format!(
        "{} h ({} years)",
        figure(hours),
        figure(hours / HOURS_A_YEAR)
    )
}

/// Five digits, with a power of ten where the number is far from 1.
fn figure(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        0.001..1e6 => format!("{value:.4}"),
        _ => format!("{value:.4e}"),
    }
}
