//! Runs seeds of arrays with a surrogate: `surrogates --seeds 0..1000`, or one that failed: `surrogates --seed N`.

use restripe_sim::surrogate::{Event, Incident, Moment, Options, Outcome, Phase, run, why_not};
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::catch_unwind;
use std::process::ExitCode;

const HELP: &str = "\
surrogates: random arrays with a surrogate, users and faults in virtual time, judged by an oracle

  --seed N            run one seed, saying what happens with --trace
  --seeds A..B        run many (default 0..1000)
  --growth            of arrays that grow meanwhile
  --gathers           of mirrors whose writes all go into a log of clusters
  --graid             of mirrors whose writes all go to first copies and into a log
  --eraid             of mirrors whose writes all go to first copies alone
  --quests            and each event is to meet each moment of these
  --trace             say what happens
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match parse(&arguments) {
        Ok(Some((seeds, options))) => surrogates(seeds, options),
        Ok(None) => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("surrogates: {error}");
            ExitCode::from(2)
        }
    }
}

fn parse(arguments: &[String]) -> Result<Option<(Range<u64>, Options)>, String> {
    let (mut seeds, mut options) = (0..1000, Options::default());
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--bug" {
            let name = rest.next().ok_or("--bug needs a value")?;
            options.bug = Some(restripe_sim::swarm::bug(name)?);
            continue;
        }
        let mut value = || rest.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--help" | "-h" => return Ok(None),
            "--seed" => seeds = number(value()?).map(|seed| seed..seed + 1)?,
            "--seeds" => seeds = range(value()?)?,
            "--growth" => options.grows = true,
            "--gathers" => options.gathers = true,
            "--graid" => options.graid = true,
            "--eraid" => options.eraid = true,
            "--quests" => (options.gathers, options.quests) = (true, true),
            "--trace" => options.trace = true,
            other => return Err(format!("unknown argument {other}; --help lists them")),
        }
    }
    Ok(Some((seeds, options)))
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is not a number"))
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let ends = text.split_once("..");
    let (from, to) = ends.ok_or(format!("{text} is not a range A..B"))?;
    let seeds = number(from)?..number(to)?;
    match seeds.is_empty() {
        true => Err(format!("{text} has no seed, and would find nothing wrong")),
        false => Ok(seeds),
    }
}

fn surrogates(seeds: Range<u64>, options: Options) -> ExitCode {
    let mut met: BTreeMap<&str, u64> = BTreeMap::new();
    let mut incidents: BTreeMap<(Phase, Incident), u64> = BTreeMap::new();
    let mut events: BTreeMap<(Moment, Event), u64> = BTreeMap::new();
    let mut failed = 0;
    let family = options.family();
    for seed in seeds {
        let outcome = catch_unwind(|| run(seed, options));
        let told = match &outcome {
            Ok(Outcome { violations, .. }) => violations.first().map(ToString::to_string),
            Err(_) => Some("a panic".to_string()),
        };
        if let Some(told) = told {
            failed += 1;
            println!("seed {seed}: {told}\n  replay: surrogates{family} --seed {seed} --trace");
        }
        let outcome = outcome.unwrap_or_default();
        for (what, times) in outcome.met {
            *met.entry(what).or_default() += times;
        }
        for (what, times) in outcome.incidents {
            *incidents.entry(what).or_default() += times;
        }
        for (what, times) in outcome.events {
            *events.entry(what).or_default() += times;
        }
    }
    for (what, times) in met {
        println!("{times:>10}  {what}");
    }
    for ((phase, incident), times) in incidents {
        println!("{times:>10}  {phase:?}: {incident}");
    }
    if options.gathers {
        print!("{}", table(&events));
    }
    println!("{failed} failed");
    ExitCode::from(u8::from(failed > 0))
}

/// Events by what a code cache was at; a dash where one cannot meet the other.
fn table(events: &BTreeMap<(Moment, Event), u64>) -> String {
    let mut out = format!("{:>18}", "");
    for event in Event::ALL {
        out += &format!(" {:>14}", format!("{event:?}"));
    }
    out.push('\n');
    for moment in Moment::ALL {
        out += &format!("{:>18}", moment.to_string());
        for event in Event::ALL {
            let times = events.get(&(moment, event)).copied().unwrap_or(0);
            let cell = match (times, why_not(moment, event)) {
                (0, Some(_)) => "-".into(),
                (times, _) => times.to_string(),
            };
            out += &format!(" {cell:>14}");
        }
        out.push('\n');
    }
    out
}
