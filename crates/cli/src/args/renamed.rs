//! Names of options that have changed: the former ones are accepted, with a warning, until the next release.

use std::ffi::OsString;

/// The former name of an option, and the present one. In a file the names have no dashes in front.
const OPTIONS: [(&str, &str); 8] = [
    ("--buffer-file", "--nvram"),
    ("--epoch", "--heat-epoch"),
    ("--no-clean-log", "--no-log-cleaning"),
    ("--sleep", "--standby-after"),
    ("--starts-a-day", "--spin-downs-per-day"),
    ("--to-buffer", "--to-nvram"),
    ("--watts", "--power-rating"),
    ("--zone", "--heat-zone"),
];
/// A key that is no option.
const KEYS: [(&str, &str); 1] = [("--clean-log", "--log-cleaning")];
/// Values of `--init`.
const INITS: [(&str, &str); 2] = [("written", "lazy"), ("trust", "assume-clean")];

fn present(names: &[(&str, &'static str)], former: &str) -> Option<&'static str> {
    let found = names.iter().find(|(name, _)| *name == former);
    found.map(|(_, present)| *present)
}

/// The verbs that have such options.
const VERBS: [&str; 4] = ["add", "create", "replay", "serve"];

/// A command line with the present names, and a warning for each former one.
pub(crate) fn line(words: Vec<OsString>) -> (Vec<OsString>, Vec<String>) {
    let mut warnings = Vec::new();
    let verb = words.get(1).and_then(|verb| verb.to_str());
    if !verb.is_some_and(|verb| VERBS.contains(&verb)) {
        return (words, warnings);
    }
    let mut renamed: Vec<OsString> = Vec::with_capacity(words.len());
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        if word == "--" {
            renamed.push(word);
            renamed.extend(words);
            break;
        }
        let of_init = renamed.last().is_some_and(|last| last == "--init");
        let new = word.to_str().and_then(|text| now(text, of_init));
        if let Some((former, name, _)) = &new {
            warnings.push(format!(
                "{former} is now called {name}; the old name is deprecated"
            ));
        }
        renamed.push(new.map_or(word, |(_, _, whole)| whole.into()));
    }
    (renamed, warnings)
}

/// The former name in a word, the present one, and the word with that.
fn now(word: &str, of_init: bool) -> Option<(String, String, String)> {
    let (option, value) = match word.split_once('=') {
        Some((option, value)) => (option, Some(value)),
        None => (word, None),
    };
    let init = |former: &str| Some((former.to_string(), present(&INITS, former)?));
    match (option, value) {
        _ if of_init => {
            let (former, name) = init(word)?;
            Some((
                format!("--init {former}"),
                format!("--init {name}"),
                name.into(),
            ))
        }
        ("--init", Some(value)) => {
            let (former, name) = init(value)?;
            Some((
                format!("--init {former}"),
                format!("--init {name}"),
                format!("--init={name}"),
            ))
        }
        _ => {
            let name = present(&OPTIONS, option)?;
            let whole = value.map_or(name.to_string(), |value| format!("{name}={value}"));
            Some((option.into(), name.into(), whole))
        }
    }
}

/// A warning for each key of a configuration, and each value of `init`, by its former name.
pub(crate) fn keys(file: &toml::Table) -> Vec<String> {
    let mut warnings = Vec::new();
    for (key, value) in file {
        let inner = match value {
            toml::Value::Array(list) => list.iter().filter_map(toml::Value::as_table).collect(),
            toml::Value::Table(table) => vec![table],
            _ => Vec::new(),
        };
        let name = match value.as_str().filter(|_| key == "init") {
            Some(value) => present(&INITS, value)
                .map(|name| (format!("init = {value:?}"), format!("{name:?}"))),
            None => present(&[&OPTIONS[..], &KEYS].concat(), &format!("--{key}"))
                .map(|name| (key.clone(), name.trim_start_matches('-').to_string())),
        };
        warnings.extend(name.map(|(former, name)| {
            format!("{former} is now called {name}; the old name is deprecated")
        }));
        warnings.extend(inner.into_iter().flat_map(keys));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        let words = ["restripe"].into_iter().chain(line.split(' '));
        words.map(OsString::from).collect()
    }

    #[test]
    fn former_names_become_present_ones_and_are_warned_of() {
        let cases = [
            (
                "serve --sleep 1s a",
                "serve --standby-after 1s a",
                "--sleep is now called --standby-after",
            ),
            (
                "serve --zone=1M a",
                "serve --heat-zone=1M a",
                "--zone is now called --heat-zone",
            ),
            (
                "create t --init trust a",
                "create t --init assume-clean a",
                "--init trust is now called --init assume-clean",
            ),
            (
                "create t --init=written a",
                "create t --init=lazy a",
                "--init written is now called --init lazy",
            ),
        ];
        for (before, after, warning) in cases {
            let (now, warnings) = line(words(before));
            assert_eq!(now, words(after));
            assert_eq!(warnings, [format!("{warning}; the old name is deprecated")]);
        }
    }

    #[test]
    fn words_behind_two_dashes_and_of_other_verbs_stay() {
        for same in ["add t -- --zone", "examine --zone", "help serve --zone"] {
            assert_eq!(line(words(same)), (words(same), Vec::new()), "{same}");
        }
    }

    #[test]
    fn former_keys_of_a_file_are_warned_of() {
        let file = "[[array]]\ninit = \"trust\"\n[serve]\nclean-log = false\nsleep = \"1s\"\n";
        let table = file.parse().expect("it is TOML");
        let warned = [
            "init = \"trust\" is now called \"assume-clean\"; the old name is deprecated",
            "clean-log is now called log-cleaning; the old name is deprecated",
            "sleep is now called standby-after; the old name is deprecated",
        ];
        assert_eq!(keys(&table), warned);
    }
}
