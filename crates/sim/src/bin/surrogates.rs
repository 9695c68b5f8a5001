//! Runs seeds of arrays with a surrogate: `surrogates --seeds 0..1000`, or one that failed:
//! `surrogates --seed N`.

use restripe_sim::program::{self, Arguments};
use restripe_sim::surrogate::{Event, Moment, Options, Outcome, run, why_not};
use restripe_sim::tally::Tally;
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
  --directed          and each event is to meet each moment of these
  --trace             say what happens
";

fn main() -> ExitCode {
    program::main("surrogates", HELP, parse, surrogates)
}

fn parse(mut rest: Arguments) -> Result<Option<(Range<u64>, Options)>, String> {
    let (mut seeds, mut options) = (0..1000, Options::default());
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--help" | "-h" => return Ok(None),
            "--seed" => seeds = rest.seed()?,
            "--seeds" => seeds = rest.seeds()?,
            "--bug" => options.bug = rest.bug()?,
            "--growth" => options.grows = true,
            "--gathers" => options.gathers = true,
            "--graid" => options.graid = true,
            "--eraid" => options.eraid = true,
            // Recorded command lines have the second name.
            "--directed" | "--quests" => (options.gathers, options.quests) = (true, true),
            "--trace" => options.trace = true,
            other => return program::unknown(other),
        }
    }
    Ok(Some((seeds, options)))
}

fn surrogates((seeds, options): (Range<u64>, Options)) -> ExitCode {
    let mut total = Outcome::default();
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
        total.add(&outcome.unwrap_or_default());
    }
    for (what, times) in total.met {
        println!("{times:>10}  {what}");
    }
    for ((phase, incident), times) in total.incidents {
        println!("{times:>10}  {phase:?}: {incident}");
    }
    if options.gathers {
        print!("{}", table(&total.events));
    }
    println!("{failed} failed");
    ExitCode::from(u8::from(failed > 0))
}

/// Events by what a code cache was at; a dash where one cannot meet the other.
fn table(events: &Tally<(Moment, Event)>) -> String {
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
