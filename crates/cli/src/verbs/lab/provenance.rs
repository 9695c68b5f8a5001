//! Where a report's numbers come from: command, version, machine, date.

use crate::print::journal::utc;
use restripe_lab::report::Provenance;
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, fs, thread};

/// Seconds since 1970-01-01 UTC to take for the present, as reproducible builds have it.
const EPOCH: &str = "SOURCE_DATE_EPOCH";
/// The commit that the program is built of, for a report to name.
const COMMIT: &str = "RESTRIPE_COMMIT";
/// Options that do not change a result.
const ANYHOW: [&str; 3] = ["--threads", "--folder", "--fresh"];

/// Of this process.
pub(crate) fn provenance() -> Provenance {
    let arguments = env::args().skip(1);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_secs());
    Provenance {
        command: command(arguments.collect()),
        version: format!("restripe {}", env!("CARGO_PKG_VERSION")),
        commit: env::var(COMMIT).unwrap_or_default(),
        machine: machine(),
        date: utc(given_date().unwrap_or(now)),
    }
}

/// The date that stands for the present, if one is given: two runs then write the same bytes.
pub(crate) fn given_date() -> Option<u64> {
    env::var(EPOCH).ok().and_then(|text| text.parse().ok())
}

/// The command that makes the report again, as a shell takes it.
fn command(arguments: Vec<String>) -> String {
    let mut words = vec!["restripe".to_string()];
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let name = argument.split('=').next().unwrap_or_default();
        if !ANYHOW.contains(&name) {
            words.push(quoted(&argument));
        } else if name != "--fresh" && name == argument {
            arguments.next();
        }
    }
    // What `lab report` writes again, `lab run` computes.
    let command = words.join(" ");
    command.replacen("restripe lab report ", "restripe lab run ", 1)
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

fn machine() -> String {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let cores = match cores {
        1 => "1 core".to_string(),
        cores => format!("{cores} cores"),
    };
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    match model(&text) {
        Some(model) => format!("{cores}, {model}"),
        None => cores,
    }
}

/// The processor's model.
fn model(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo
        .lines()
        .find(|line| line.starts_with("model name"))?;
    let (_, model) = line.split_once(':')?;
    Some(model.trim()).filter(|model| !model.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> String {
        command(line.split(' ').map(String::from).collect())
    }

    #[test]
    fn a_command_is_what_computes_the_same() {
        assert_eq!(
            of("lab run own-trace --threads 3 --set a=1 --folder=x --fresh --seeds 2"),
            "restripe lab run own-trace --set a=1 --seeds 2"
        );
        assert_eq!(of("lab report ido --folder x"), "restripe lab run ido");
        let trace = vec!["replay".to_string(), "it's here.spc".to_string()];
        assert_eq!(command(trace), r"restripe replay 'it'\''s here.spc'");
    }

    #[test]
    fn a_processor_may_have_a_model() {
        assert_eq!(model("processor\t: 0\nmodel name\t: A B\n"), Some("A B"));
        assert_eq!(model("CPU part\t: 0xd0c\n"), None);
    }
}
