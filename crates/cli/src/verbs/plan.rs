//! `plan`: compares layouts for given disks, before anything is written.

use crate::failure::{Failure, Outcome};
use crate::print::terminal::{out, outln};
use crate::units::{Size, parse_size, seconds};
use clap::Args;
use restripe_array::layout::Skew;
use restripe_lab::plan::candidates::{LEVELS, nearest};
use restripe_lab::plan::lifetime::years;
use restripe_lab::plan::{Candidate, Course, Disks, Lives, Plan, Speed, plans};
use restripe_lab::reliability::Exact;
use restripe_lab::reliability::quantity::{parse_hours, to_float};
use restripe_lab::replay::stage::member_bytes_max;
use restripe_lab::report::Table;
use serde_json::{Value, json};

const SPREAD: &str =
    "spread: with spare partitions on every disk, too (`create --spare-partitions`)";

#[derive(Args, Debug)]
#[command(
    after_help = "Capacities and failures are counted from each layout. Rebuild times are lower bounds: every disk at full
sequential speed, no seeks, no user requests, one spare disk. docs/reference/layouts.md describes the columns.

Examples: restripe plan --disks 9 --disk-size 10G --speed 60M
          restripe plan --disks 24 --disk wd4t7200 --flat --repair 24h"
)]
pub(crate) struct Wanted {
    /// Number of disks, not counting the spare
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=64))]
    pub disks: u16,
    /// Bytes used of each disk [default: the capacity of the model in --disk]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, required_unless_present = "disk")]
    pub disk_size: Option<u64>,
    /// Use the capacity and speed of this drive model; `restripe sim-disk` lists the models
    #[arg(long, value_name = "MODEL", required_unless_present = "speed")]
    pub disk: Option<String>,
    /// Sequential speed of a disk in bytes per second, for reads and writes
    #[arg(long, value_name = "RATE", value_parser = parse_size, conflicts_with = "disk")]
    pub speed: Option<u64>,
    /// Mean time to failure of a disk
    #[arg(long, value_name = "TIME", value_parser = parse_hours, default_value = "1e6h")]
    pub mttf: Exact,
    /// Mean time to repair a disk, the same for every layout [default: each layout's rebuild time]
    #[arg(long, value_name = "TIME", value_parser = parse_hours)]
    pub repair: Option<Exact>,
    /// Also show groups without skew (RAID-50, RAID-60)
    #[arg(long)]
    pub flat: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(verb: &Wanted) -> Outcome {
    let disks = disks(verb)?;
    let lives = Lives {
        mttf: verb.mttf.clone(),
        repair: verb.repair.clone(),
    };
    let plans = plans(&disks, &lives, verb.flat).map_err(Failure::usage)?;
    if verb.json {
        outln!("{}", as_json(&disks, &lives, &plans));
    } else {
        out!("{}", text(&disks, &lives, &plans));
    }
    Ok(())
}

fn disks(verb: &Wanted) -> Outcome<Disks> {
    let bytes = match (&verb.disk_size, &verb.disk) {
        (Some(bytes), _) => *bytes,
        (None, Some(drive)) => member_bytes_max(drive).map_err(Failure::usage)?,
        (None, None) => return Err(Failure::usage("a disk needs a size: --disk-size")),
    };
    let speed = match (&verb.disk, verb.speed) {
        (Some(drive), _) => Speed::of_drive(drive, bytes).map_err(Failure::usage)?,
        (None, Some(1..)) => Speed::even(verb.speed.unwrap_or(1) as f64),
        (None, _) => {
            return Err(Failure::usage(
                "a disk needs a speed above zero: --speed 60M",
            ));
        }
    };
    Ok(Disks {
        count: verb.disks,
        bytes,
        speed,
    })
}

// ------------------------------------------------------------------------------------------------------- for people

fn text(disks: &Disks, lives: &Lives, plans: &[Plan]) -> String {
    let mut table = Table::new(
        "layout|groups|holds|spent|2nd loss hurts|and takes|streams|rebuild|MTTDL, y|spread: holds|rebuild|MTTDL, y",
    );
    for plan in plans {
        table.row(row(disks, plan));
    }
    let notes: String = notes(disks, plans)
        .into_iter()
        .map(|note| format!("{note}\n"))
        .collect();
    format!("{}\n{}{notes}", heading(disks, lives), table.text())
}

fn heading(disks: &Disks, lives: &Lives) -> String {
    let rate = |speed: f64| format!("{:.1} MB/s", speed / 1e6);
    let (read, write) = (rate(disks.speed.read), rate(disks.speed.write));
    let speed = match read == write {
        true => read,
        false => format!("{read} read and {write} written"),
    };
    let repair = match &lives.repair {
        None => "in its rebuild's time".into(),
        Some(repair) => format!("in {} h", to_float(repair)),
    };
    let (count, bytes) = (disks.count, Size(disks.bytes));
    let mttf = figure(to_float(&lives.mttf));
    format!(
        "{count} disks of {bytes}, {speed}, and one spare; a disk fails after {mttf} h and is repaired {repair}"
    )
}

fn row(disks: &Disks, plan: &Plan) -> [String; 12] {
    let Plan {
        candidate,
        exposure,
        spare,
        spread,
    } = plan;
    let of = |course: &Course| {
        let about = if course.lifetime.exact { "" } else { "~" };
        [
            bytes(course.bytes),
            seconds(course.rebuild.seconds.round() as u64),
            format!("{about}{}", figure(years(course.lifetime.hours))),
        ]
    };
    let [holds, rebuild, mttdl] = of(spare);
    let [spread_holds, spread_rebuild, spread_mttdl] = match spread {
        Some(spread) => of(spread),
        None => ["-"; 3].map(String::from),
    };
    [
        candidate.name(),
        groups(candidate),
        holds,
        share(spent(disks, spare)),
        format!("{} of {}", exposure.hurting, exposure.others),
        share(exposure.lost_share),
        spare.rebuild.streams.to_string(),
        rebuild,
        mttdl,
        spread_holds,
        spread_rebuild,
        spread_mttdl,
    ]
}

/// Of all that the disks have.
fn spent(disks: &Disks, course: &Course) -> f64 {
    1.0 - course.bytes as f64 / disks.bytes_of_all() as f64
}

fn groups(candidate: &Candidate) -> String {
    match candidate.skew {
        None => "-".into(),
        Some(Skew { groups, .. }) => format!("{groups} x {}", candidate.slots / groups),
    }
}

/// To a tenth, of the unit that it is one or more of.
fn bytes(bytes: u64) -> String {
    let units = [(40, 'T'), (30, 'G'), (20, 'M')];
    let fitting = units.iter().find(|(shift, _)| bytes >> shift > 0);
    let (shift, unit) = *fitting.unwrap_or(&(10, 'K'));
    let tenths = (bytes as f64 * 10.0 / (1u64 << shift) as f64).round() / 10.0;
    format!("{tenths}{unit}")
}

fn share(share: f64) -> String {
    match share {
        0.0 => "0".into(),
        share => format!("{:.1}%", 100.0 * share),
    }
}

/// Two digits, and a power of ten where the number is long.
fn figure(value: f64) -> String {
    match value {
        0.1..100.0 => format!("{value:.1}"),
        _ => format!("{value:.1e}"),
    }
}

fn notes(disks: &Disks, plans: &[Plan]) -> Vec<String> {
    let counted = |plan: &Plan| {
        let courses = [Some(&plan.spare), plan.spread.as_ref()];
        courses.into_iter().flatten().any(|one| !one.lifetime.exact)
    };
    let mut notes = Vec::new();
    if plans.iter().any(counted) {
        notes.push(
            "~ from a chain that counts failed disks; the true mean is a little longer".into(),
        );
    }
    if plans.iter().any(|plan| plan.spread.is_some()) {
        notes.push(SPREAD.into());
    }
    if plans.iter().all(|plan| plan.candidate.skew.is_some()) {
        notes.push("an array that is not skewed has at most 32 members".into());
    }
    notes.extend(LEVELS.into_iter().filter_map(|level| {
        let has = |plan: &Plan| {
            let same = plan.candidate.level == level;
            same && plan.candidate.partitions() > 1
        };
        (!plans.iter().any(has)).then(|| without(disks.count, &nearest(level, disks.count)))
    }));
    notes
}

/// What to take where so many disks have no groups that rebuild in parallel.
fn without(count: u16, nearest: &[Candidate]) -> String {
    let told = |one: &Candidate| format!("{} do, as {}", one.slots, groups(one));
    let told: Vec<String> = nearest.iter().map(told).collect();
    let name = nearest.first().map_or("S2-RAID".into(), Candidate::name);
    format!(
        "{count} disks cannot form groups for {name}; {}",
        told.join("; ")
    )
}

// ----------------------------------------------------------------------------------------------------- for programs

fn as_json(disks: &Disks, lives: &Lives, plans: &[Plan]) -> Value {
    let layouts: Vec<Value> = plans.iter().map(|plan| layout(disks, plan)).collect();
    json!({
        "disks": disks.count,
        "disk_bytes": disks.bytes,
        "read_bytes_per_s": disks.speed.read,
        "write_bytes_per_s": disks.speed.write,
        "mttf_hours": to_float(&lives.mttf),
        "repair_hours": lives.repair.as_ref().map(to_float),
        "layouts": layouts,
    })
}

fn layout(disks: &Disks, plan: &Plan) -> Value {
    let Plan {
        candidate,
        exposure,
        ..
    } = plan;
    json!({
        "layout": candidate.name(),
        "level": candidate.level.to_string(),
        "groups": candidate.skew.map(|skew| skew.groups),
        "partitions": candidate.skew.map(|skew| skew.partitions),
        "second_loss_hurts": exposure.hurting,
        "others": exposure.others,
        "second_loss_share": exposure.lost_share,
        "spare": course(disks, &plan.spare),
        "spread": plan.spread.as_ref().map(|spread| course(disks, spread)),
    })
}

fn course(disks: &Disks, course: &Course) -> Value {
    json!({
        "bytes": course.bytes,
        "spent_share": spent(disks, course),
        "streams": course.rebuild.streams,
        "rebuild_seconds": course.rebuild.seconds,
        "mttdl_hours": course.lifetime.hours,
        "mttdl_exact": course.lifetime.exact,
    })
}
