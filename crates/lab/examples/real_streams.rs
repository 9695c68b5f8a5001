//! Does a real array rebuild in K streams as fast as the laboratory says? Nine drives of `sim-disk` as RAID-5 and as S2-RAID5 of
//! three groups of three, onto one spare of their kind, and onto that and spare partitions, lose a member while nobody asks for
//! anything, and under users who come over NBD: in real time, by the reactor. Beside each stands what the laboratory has for the
//! same settings, and the same requests.
//!
//! `cargo run --release -p restripe-lab --example real_streams`: half an hour, most of it waiting; `-- none restripe`, `-- fin1 md-2.6`
//! or `-- fin1 restripe` for one workload and throttle.

mod realtime;

use realtime::late;
use realtime::rig::{Figures, Rig, Times};
use restripe_lab::experiment::cell::{Cell, Contents, run};
use restripe_lab::experiment::metric::metric;
use restripe_lab::experiment::requests::requests;
use restripe_lab::experiment::scenario::{Point, Value, named, parse};
use restripe_lab::replay::stage::size_bytes;
use std::time::Duration;

/// With the throttle.
const WORKLOADS: [(&str, &str); 3] = [
    ("none", "restripe"),
    ("fin1", "md-2.6"),
    ("fin1", "restripe"),
];
const FORMS: [&str; 3] = ["flat", "3", "3+1"];
const RUNS: u64 = 5;
const HEALTHY_S: i64 = 10;
const DEGRADED_S: i64 = 1;
/// Of the scenario `s2-online`, at a fortieth of the paper's disks.
const SHORTENED: [(&str, Value); 9] = [
    ("array.member_mib", Value::Whole(255)),
    ("workload.fill_mib", Value::Whole(1377)),
    ("rebuild.per_stream", Value::Flag(true)),
    ("phases.warm_up_s", Value::Whole(1)),
    ("phases.before_s", Value::Whole(HEALTHY_S - 1)),
    ("phases.degraded_s", Value::Whole(DEGRADED_S)),
    ("phases.rebuild_s", Value::Whole(280)),
    ("phases.after_s", Value::Whole(1)),
    ("phases.common_s", Value::Whole(0)),
];

fn main() -> Result<(), String> {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    println!("workload  throttle  form  run     rebuild lab s  real s  mean lab ms  real ms");
    for (workload, throttle) in WORKLOADS {
        if asked.is_empty() || asked == [workload, throttle] {
            let (compared, late) = late::watched(|| compare(workload, throttle));
            compared?;
            println!("{workload:<9} {throttle:<9} {late}");
        }
    }
    Ok(())
}

/// The forms in turn, run by run: whatever else the machine does meets all of them.
fn compare(workload: &str, throttle: &str) -> Result<(), String> {
    let name = |form: &str| format!("{workload:<9} {throttle:<9} {form:<5}");
    let mut all: [Vec<[Figures; 2]>; FORMS.len()] = Default::default();
    for seed in 1..=RUNS {
        for (form, pairs) in FORMS.iter().zip(&mut all) {
            let cell = Cell::new(
                &point(workload, throttle, form)?,
                seed,
                &mut Contents::default(),
            )?;
            let pair = [simulated(&cell)?, real(&cell)?];
            told(&name(form), &seed.to_string(), pair);
            pairs.push(pair);
        }
    }
    for (form, pairs) in FORMS.iter().zip(&all) {
        let of = |world: usize, pick: fn(&Figures) -> f64| {
            median(pairs.iter().map(|pair| pick(&pair[world])).collect())
        };
        let both = [0, 1].map(|world| Figures {
            rebuild_s: of(world, |one| one.rebuild_s),
            mean_ms: of(world, |one| one.mean_ms),
            moved: 0.0,
        });
        told(&name(form), "median", both);
        let ratios = pairs
            .iter()
            .map(|[lab, real]| real.rebuild_s / lab.rebuild_s);
        let ratio = median(ratios.collect());
        println!("{} real over laboratory, median: {ratio:.3}", name(form));
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn told(name: &str, run: &str, [lab, real]: [Figures; 2]) {
    let ms = |one: Figures| match one.mean_ms.is_nan() {
        true => "-".to_string(),
        false => format!("{:.1}", one.mean_ms),
    };
    println!(
        "{name} {run:<6} {:>14.2} {:>7.2} {:>12} {:>8}",
        lab.rebuild_s,
        real.rebuild_s,
        ms(lab),
        ms(real)
    );
}

fn point(workload: &str, throttle: &str, form: &str) -> Result<Point, String> {
    let scenario = parse(named("s2-online").ok_or("there is no such scenario")?)?;
    let mut point = scenario.points().remove(0);
    point.insert("workload.source".into(), Value::Text(workload.into()));
    point.insert("array.skew".into(), Value::Text(form.into()));
    point.insert("rebuild.throttle".into(), Value::Text(throttle.into()));
    if workload == "none" {
        // As in the offline scenarios.
        point.insert("rebuild.max_mb_s".into(), Value::Whole(10_000));
    }
    for (path, value) in SHORTENED {
        point.insert(path.into(), value);
    }
    Ok(point)
}

fn simulated(cell: &Cell) -> Result<Figures, String> {
    let log = run(cell, None)?;
    Ok(Figures {
        rebuild_s: metric(&log, "rebuild_s").ok_or("the rebuild did not end")?,
        mean_ms: metric(&log, "during.mean_ms").unwrap_or(f64::NAN),
        moved: 0.0,
    })
}

fn real(cell: &Cell) -> Result<Figures, String> {
    let settings = &cell.settings;
    let plan = settings.plan()?;
    let asked = requests(settings, size_bytes(&plan)?, cell.seed, None)?.source;
    let rig = Rig::start(&plan, "streams")?;
    let seconds = |whole: i64| Duration::from_secs(whole.unsigned_abs());
    let times = Times {
        healthy: seconds(HEALTHY_S),
        // Spares that are there take part at once.
        degraded: seconds(if plan.spares == 0 { DEGRADED_S } else { 0 }),
    };
    let figures = rig.rebuild(asked, times)?;
    rig.end()?;
    Ok(figures)
}
