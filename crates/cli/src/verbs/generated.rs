//! Man pages and completions, made from the command table by `restripe generate DIR`. `make install`
//! calls it, so no generated file is part of the sources. Golden files of the tests hold the text of
//! every `--help`.

use crate::failure::{Outcome, failed_at};
use clap::{Arg, Args, Command};
use clap_complete::{Shell, generate};
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Args, Debug)]
pub(crate) struct Generate {
    /// The folder; `make install` names PREFIX/share
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}

/// Writes all files of the command `cli` below a `share` folder.
pub(crate) fn run(verb: &Generate, cli: Command) -> Outcome {
    for (path, content) in files(cli) {
        let path = verb.folder.join(path);
        write(&path, &content).map_err(failed_at("cannot write the file", &path))?;
    }
    Ok(())
}

fn write(path: &Path, content: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, content)
}

/// Paths below a `share` folder, as man and the shells look for them, and contents.
fn files(mut cli: Command) -> Vec<(String, Vec<u8>)> {
    let table = table(cli.clone());
    let verbs = verbs(&table);
    let mut files = vec![(
        "man/man1/restripe.1".to_string(),
        page(table, None, &verbs).into_bytes(),
    )];
    files.extend(verbs.iter().map(|entry| {
        let text = page(entry.command.clone(), Some(entry), &verbs);
        let path = format!("man/man1/restripe-{}.1", entry.name);
        (path, text.into_bytes())
    }));
    for (shell, path) in [
        (Shell::Bash, "bash-completion/completions/restripe"),
        (Shell::Zsh, "zsh/site-functions/_restripe"),
        (Shell::Fish, "fish/vendor_completions.d/restripe.fish"),
    ] {
        let mut text = Vec::new();
        generate(shell, &mut cli, "restripe", &mut text);
        files.push((path.into(), text));
    }
    files
}

fn table(mut cli: Command) -> Command {
    cli.build();
    cli
}

/// A verb, or a verb of a verb.
struct Entry {
    /// `serve`, `trace`, `trace-info`.
    name: String,
    /// The name of the verb that it belongs to: `trace` for `trace-info`.
    parent: Option<String>,
    command: Command,
}

/// All verbs but the hidden ones.
fn verbs(table: &Command) -> Vec<Entry> {
    let shown = |verb: &&Command| verb.get_name() != "help" && !verb.is_hide_set();
    let mut all = Vec::new();
    for verb in table.get_subcommands().filter(shown) {
        let name = verb.get_name().to_string();
        all.push(Entry {
            name: name.clone(),
            parent: None,
            command: verb.clone(),
        });
        let own = verb.get_subcommands().filter(shown);
        all.extend(own.map(|own| Entry {
            name: format!("{name}-{}", own.get_name()),
            parent: Some(name.clone()),
            command: own.clone(),
        }));
    }
    all
}

/// A page as clap_mangen makes it, with a synopsis that names values as well, and with related pages.
fn page(command: Command, entry: Option<&Entry>, verbs: &[Entry]) -> String {
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone())
        .date("")
        .render(&mut text)
        .expect("a vector takes it");
    let text = String::from_utf8(text).expect("the table is text");
    let mut out = String::new();
    let mut in_synopsis = false;
    for line in text.lines() {
        let heading = line.starts_with(".SH ");
        if line == ".SH SYNOPSIS" {
            out.push_str(&format!(".SH SYNOPSIS\n{}\n", synopsis(&command)));
        } else if heading || !in_synopsis {
            out.push_str(line);
            out.push('\n');
        }
        in_synopsis = line == ".SH SYNOPSIS" || in_synopsis && !heading;
    }
    let name = entry.map_or("", |entry| &entry.name);
    out + &configuration(name) + &see_also(entry, verbs)
}

/// Every option with its value, then the operands; an option that takes any number of values comes last.
fn synopsis(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let (greedy, plain): (Vec<&Arg>, Vec<&Arg>) = command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set())
        .partition(|argument| !argument.is_positional() && takes_many(argument));
    let mut words = vec![format!("\\fB{name}\\fR")];
    let (operands, options): (Vec<&Arg>, Vec<&Arg>) = plain
        .into_iter()
        .partition(|argument| argument.is_positional());
    words.extend(options.into_iter().chain(operands).chain(greedy).map(word));
    if command.has_subcommands() {
        words.push("\\fIVERB\\fR ...".into());
    }
    words.join(" ").replace('-', "\\-")
}

fn takes_many(argument: &Arg) -> bool {
    argument
        .get_num_args()
        .is_some_and(|count| count.max_values() > 1)
}

fn word(argument: &Arg) -> String {
    let values = argument.get_value_names().unwrap_or_default();
    let value = values.first().map_or("", |name| name.as_str());
    let many = if takes_many(argument) { "..." } else { "" };
    let takes = argument.get_action().takes_values();
    let text = match argument.get_long() {
        Some(long) if takes => format!("\\fB--{long}\\fR \\fI{value}\\fR{many}"),
        Some(long) => format!("\\fB--{long}\\fR"),
        None => format!("\\fI{value}\\fR{many}"),
    };
    if argument.is_required_set() {
        text
    } else {
        format!("[{text}]")
    }
}

/// The verbs that read a configuration file say where it is described.
fn configuration(name: &str) -> String {
    let reads = matches!(name, "create" | "assemble" | "serve" | "examine");
    let text = ".SH FILES\nThe file of \\fB\\-\\-config\\fR is described in docs/reference/configuration.md.\n";
    if reads { text.into() } else { String::new() }
}

/// The command, the verb above and the verbs of the same family. `entry` is none for the command itself.
fn see_also(entry: Option<&Entry>, verbs: &[Entry]) -> String {
    let name = entry.map(|entry| entry.name.as_str());
    let has_verbs = verbs.iter().any(|other| other.parent.as_deref() == name);
    let parent = entry.and_then(|entry| entry.parent.as_deref());
    let family = parent.or(name.filter(|_| has_verbs));
    let is_relative = |other: &&Entry| match family {
        Some(family) => other.name == family || other.parent.as_deref() == Some(family),
        None => other.parent.is_none(),
    };
    let others = verbs
        .iter()
        .filter(is_relative)
        .filter(|other| Some(other.name.as_str()) != name);
    let top = name.map(|_| "restripe".to_string());
    let pages: Vec<String> = top
        .into_iter()
        .chain(others.map(|other| format!("restripe-{}", other.name)))
        .map(|page| format!("\\fB{}\\fR(1)", page.replace('-', "\\-")))
        .collect();
    format!(".SH \"SEE ALSO\"\n{}\n", pages.join(",\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::Cli;
    use clap::CommandFactory;
    use std::collections::BTreeMap;

    /// Compares a golden file with `expected`, or writes it when asked to.
    fn hold(name: &str, expected: &str) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        let path = folder.join(name);
        if std::env::var_os("RESTRIPE_BLESS").is_some() {
            write(&path, expected.as_bytes()).expect("a file of ours");
            return;
        }
        let is_current = fs::read_to_string(&path).unwrap_or_default() == expected;
        let path = path.display();
        assert!(
            is_current,
            "{path} is out of date: run `cargo run -p xtask -- golden`"
        );
    }

    fn texts() -> BTreeMap<String, String> {
        let text = |bytes| String::from_utf8(bytes).expect("a file of text");
        let files = files(Cli::command()).into_iter();
        files.map(|(path, bytes)| (path, text(bytes))).collect()
    }

    #[test]
    fn generated_help_is_current() {
        let all = table(Cli::command()).render_long_help().to_string();
        hold("help.txt", &all);
        for mut verb in verbs(&table(Cli::command())) {
            let text = verb.command.render_long_help().to_string();
            hold(&format!("help-{}.txt", verb.name), &text);
        }
    }

    #[test]
    fn generated_pages_cover_every_verb_and_option() {
        let texts = texts();
        let all = &texts["man/man1/restripe.1"];
        for entry in verbs(&table(Cli::command())) {
            let name = &entry.name;
            if entry.parent.is_none() {
                let line = format!("restripe\\-{}(1)", name.replace('-', "\\-"));
                assert!(all.contains(&line), "restripe.1 lists {line}");
            }
            let page = &texts[&format!("man/man1/restripe-{name}.1")];
            let options = entry.command.get_arguments();
            let shown = options.filter(|option| !option.is_hide_set());
            for long in shown.filter_map(|option| option.get_long()) {
                let option = format!("\\-\\-{}", long.replace('-', "\\-"));
                assert!(page.contains(&option), "restripe-{name}.1 has {option}");
            }
            let up = entry.parent.map_or("restripe\\fR(1)".into(), |parent| {
                format!("restripe\\-{}\\fR(1)", parent.replace('-', "\\-"))
            });
            assert!(page.contains(&up), "restripe-{name}.1 refers to {up}");
        }
        assert!(!all.contains("generate"), "the verb is hidden");
    }

    #[test]
    fn generated_completions_know_every_verb() {
        let texts = texts();
        for path in [
            "bash-completion/completions/restripe",
            "zsh/site-functions/_restripe",
            "fish/vendor_completions.d/restripe.fish",
        ] {
            for entry in verbs(&table(Cli::command())) {
                let verb = entry.command.get_name();
                assert!(texts[path].contains(verb), "{path} has {}", entry.name);
            }
        }
    }

    #[test]
    fn the_table_is_sound() {
        Cli::command().debug_assert();
        for Entry { name, command, .. } in verbs(&table(Cli::command())) {
            assert!(command.get_about().is_some(), "{name} says what it does");
            for argument in command.get_arguments() {
                let id = argument.get_id().as_str();
                let described = argument.get_help().is_some() || argument.is_positional();
                let by_name = matches!(id, "level" | "version" | "help");
                assert!(described || by_name, "{name} {id} says what it is");
            }
        }
    }
}
