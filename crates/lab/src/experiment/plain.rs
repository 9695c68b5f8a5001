//! What is wrong with a value, in the words of scenarios: a reader of a scenario knows numbers, text and
//! lists, and nothing of the types that read them.

use crate::nearest;
use toml::de::Error;

/// An error in a file: the place with its line, then what is wrong.
pub(crate) fn of_file(error: &Error) -> String {
    let message = error.message();
    let whole = error.to_string();
    let place = whole.trim_end().strip_suffix(message).unwrap_or_default();
    format!("{place}{}", plain(message))
}

/// An error in parameters that are no file: the parameter, then what is wrong.
pub(crate) fn of_parameters(error: &Error) -> String {
    let said = plain(error.message());
    let whole = error.to_string();
    let place = whole.trim_end().rsplit_once("\nin `");
    match place.and_then(|(_, place)| place.strip_suffix('`')) {
        Some(path) => format!("{path}: {said}"),
        None => said,
    }
}

/// A message of the reader's, in plain words; one that is not of values as it is.
pub(crate) fn plain(message: &str) -> String {
    if [
        "wanted string or table",
        "wanted exactly",
        "expected table, found",
        "invalid type: unit variant",
    ]
    .iter()
    .any(|start| message.starts_with(start))
    {
        return "takes one of its names, in quotation marks".into();
    }
    let found = mistyped(message)
        .or_else(|| unknown(message))
        .or_else(|| missing(message))
        .or_else(|| miscounted(message));
    match found {
        Some(said) => said,
        None if message.starts_with("data did not match any variant") => {
            "takes a number, true, false, or text in quotation marks".into()
        }
        None => message.into(),
    }
}

/// A value of another type, or out of its type's range.
fn mistyped(message: &str) -> Option<String> {
    let kinds = ["invalid type: ", "invalid value: "];
    let rest = kinds.iter().find_map(|kind| message.strip_prefix(kind))?;
    let (given, wanted) = rest.rsplit_once(", expected ")?;
    Some(format!("takes {}, not {}", type_of(wanted), value(given)))
}

fn type_of(wanted: &str) -> String {
    let most = match wanted {
        "u8" => u64::from(u8::MAX),
        "u16" => u64::from(u16::MAX),
        "u32" => u64::from(u32::MAX),
        // A number in a scenario is no larger.
        "u64" | "usize" => i64::MAX as u64,
        "i8" | "i16" | "i32" | "i64" | "isize" => return "a whole number".into(),
        "f32" | "f64" => return "a number".into(),
        "a boolean" => return "true or false".into(),
        "a string" => return "text".into(),
        "a map" => return "a table".into(),
        _ if wanted.starts_with("struct ") => return "a table".into(),
        _ => return "a list".into(),
    };
    format!("a whole number from 0 to {most}")
}

fn value(given: &str) -> String {
    let quoted = given.split_once('`');
    match (given, quoted.and_then(|(_, rest)| rest.strip_suffix('`'))) {
        (_, Some(number)) => number.into(),
        ("sequence", _) => "a list".into(),
        ("map", _) => "a table".into(),
        _ => given.strip_prefix("string ").unwrap_or(given).into(),
    }
}

/// A name that is none of a few.
fn unknown(message: &str) -> Option<String> {
    let kinds = [("unknown variant `", "value"), ("unknown field `", "key")];
    kinds.iter().find_map(|(start, what)| {
        let (name, rest) = message.strip_prefix(start)?.split_once("`, ")?;
        // Every second part stands between back-ticks.
        let known = rest.split('`').skip(1).step_by(2);
        Some(nearest::unknown(what, name, known))
    })
}

fn missing(message: &str) -> Option<String> {
    let name = message.strip_prefix("missing field `")?.strip_suffix('`')?;
    Some(format!("{name} is missing"))
}

/// A list of another length.
fn miscounted(message: &str) -> Option<String> {
    let (given, wanted) = message
        .strip_prefix("invalid length ")?
        .split_once(", expected ")?;
    let wanted = wanted.split(' ').find(|word| word.parse::<u32>().is_ok())?;
    Some(format!("takes a list of {wanted} values, not of {given}"))
}

#[cfg(test)]
mod tests {
    use super::super::cell::Settings;
    use super::super::parameters::Grouped;
    use super::super::scenario::{Value, named, parse, parse_of};

    /// Words of the types that read a scenario.
    const FOREIGN: [&str; 16] = [
        "expected", "invalid", "variant", "field", "struct", "enum", "sequence", "boolean",
        "floating", "integer", "`", "u8", "u16", "u32", "u64", "f64",
    ];

    fn is_plain(told: &str) {
        let found = FOREIGN.iter().find(|word| told.contains(**word));
        assert_eq!(found, None, "{told}");
    }

    #[test]
    fn every_parameter_says_plainly_what_it_takes() {
        let scenario = parse(named("rebuild-cost").expect("built in")).expect("sound");
        let point = scenario.shortened().points().remove(0);
        let mut refused = 0;
        for path in Settings::all() {
            for value in [
                Value::Text("many".into()),
                Value::Whole(-70_000),
                Value::Whole(i64::MAX),
                Value::Real(4.5),
                Value::Real(f64::NAN),
                Value::Flag(true),
            ] {
                let mut point = point.clone();
                point.insert(path.clone(), value);
                if let Err(told) = Settings::of(&point) {
                    refused += 1;
                    is_plain(&told);
                }
            }
        }
        assert!(refused > 200, "{refused}");
        let mut point = point;
        for (path, value, told) in [
            (
                "array.members",
                Value::Whole(70_000),
                "a whole number from 0 to 65535, not 70000",
            ),
            (
                "array.members",
                Value::Text("many".into()),
                "a whole number from 0 to 65535, not \"many\"",
            ),
            ("workload.fill", Value::Flag(true), "a number, not true"),
            ("array.write_cache", Value::Whole(1), "true or false, not 1"),
        ] {
            let sound = point.insert(path.into(), value);
            let refused = Settings::of(&point).expect_err(path);
            assert_eq!(refused, format!("{path}: takes {told}"));
            match sound {
                Some(value) => point.insert(path.into(), value),
                None => point.remove(path),
            };
        }
    }

    #[test]
    fn every_key_of_a_scenario_says_plainly_what_it_takes() {
        let text = include_str!("../../../../scenarios/ido.toml").to_string();
        let text = text + "\n[stopping]\nlooks = [2, 3]\n\n[verify]\nseeds = 2\n";
        parse(&text).expect("sound");
        let lines: Vec<&str> = text.lines().collect();
        let mut refused = 0;
        for (at, line) in lines.iter().enumerate() {
            let Some((key, _)) = line.split_once(" = ") else {
                continue;
            };
            for wrong in ["true", "-7", "1.5", "\"text\"", "[1]", "{ a = 1 }", ""] {
                let line = match wrong {
                    "" => String::new(),
                    wrong => format!("{key} = {wrong}"),
                };
                let mut lines = lines.clone();
                lines[at] = &line;
                let text = lines.join("\n");
                // Not of values: lists over several lines that lack their beginning.
                if text.parse::<toml::Table>().is_err() {
                    continue;
                }
                if let Err(told) = parse_of::<Settings>(&text) {
                    refused += 1;
                    // The file's own line is shown too.
                    let own = told.lines().filter(|line| !line.contains(" | "));
                    own.for_each(is_plain);
                }
            }
        }
        assert!(refused > 300, "{refused}");
    }
}
