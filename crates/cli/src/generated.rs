//! What is generated from the command table: man pages and completions in `docs/`, and the text of every `--help` as a
//! golden file. A difference fails; `cargo run -p xtask -- man` writes them anew.

use crate::command::Cli;
use clap::{Arg, Command, CommandFactory};
use clap_complete::{Shell, generate};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compares a file with what it should be, or writes it when asked to.
fn hold(path: &Path, expected: &[u8]) {
    if std::env::var_os("RESTRIPE_BLESS").is_some() {
        fs::create_dir_all(path.parent().expect("a file lies in a folder"))
            .expect("a folder of ours");
        fs::write(path, expected).expect("a file of ours");
        return;
    }
    let found = fs::read(path).unwrap_or_default();
    let same = found == expected;
    assert!(
        same,
        "{} is out of date: run `cargo run -p xtask -- man`",
        path.display()
    );
}

fn table() -> Command {
    let mut table = Cli::command();
    table.build();
    table
}

/// Every verb and every verb of a verb, by name: `serve`, `trace`, `trace-info`.
fn verbs() -> Vec<(String, Command)> {
    let mut all = Vec::new();
    for verb in table()
        .get_subcommands()
        .filter(|verb| verb.get_name() != "help")
    {
        let name = verb.get_name().to_string();
        all.push((name.clone(), verb.clone()));
        let own = verb
            .get_subcommands()
            .filter(|own| own.get_name() != "help");
        all.extend(own.map(|own| (format!("{name}-{}", own.get_name()), own.clone())));
    }
    all
}

#[test]
fn generated_man_pages_are_current() {
    let folder = root().join("docs/man");
    let verbs = verbs();
    let names: Vec<&str> = verbs.iter().map(|(name, _)| name.as_str()).collect();
    hold(
        &folder.join("restripe.1"),
        page(table(), "", &names).as_bytes(),
    );
    for (name, verb) in &verbs {
        let text = page(verb.clone(), name, &names);
        hold(&folder.join(format!("restripe-{name}.1")), text.as_bytes());
    }
}

/// A page as it is generated, but for the synopsis, which tells values too, and what to see beside it.
fn page(command: Command, name: &str, names: &[&str]) -> String {
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
    out + &configuration(name) + &see_also(name, names)
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

/// The command, the verb above and those beside it.
fn see_also(name: &str, names: &[&str]) -> String {
    let has_verbs = names.iter().any(|other| parent(other) == Some(name));
    let family = parent(name).or(has_verbs.then_some(name));
    let is_beside = |other: &&str| match family {
        Some(family) => *other == family || parent(other) == Some(family),
        None => parent(other).is_none(),
    };
    let beside = names.iter().copied().filter(is_beside);
    let others = beside.filter(|other| *other != name);
    let top = (!name.is_empty()).then(|| "restripe".to_string());
    let pages: Vec<String> = top
        .into_iter()
        .chain(others.map(|other| format!("restripe-{other}")))
        .map(|page| format!("\\fB{}\\fR(1)", page.replace('-', "\\-")))
        .collect();
    format!(".SH \"SEE ALSO\"\n{}\n", pages.join(",\n"))
}

/// The verb that a verb such as `trace-info` belongs to; `sim-disk` is one by itself.
fn parent(name: &str) -> Option<&str> {
    let (parent, _) = name.split_once('-')?;
    let table = table();
    let verb = table.find_subcommand(parent)?;
    verb.has_subcommands().then_some(parent)
}

#[test]
fn generated_completions_are_current() {
    let folder = root().join("docs/completions");
    for (shell, name) in [
        (Shell::Bash, "restripe.bash"),
        (Shell::Zsh, "_restripe"),
        (Shell::Fish, "restripe.fish"),
    ] {
        let mut text = Vec::new();
        generate(shell, &mut Cli::command(), "restripe", &mut text);
        hold(&folder.join(name), &text);
    }
}

#[test]
fn generated_help_is_current() {
    let folder = root().join("crates/cli/tests/golden");
    hold(
        &folder.join("help.txt"),
        table().render_long_help().to_string().as_bytes(),
    );
    for (name, mut verb) in verbs() {
        hold(
            &folder.join(format!("help-{name}.txt")),
            verb.render_long_help().to_string().as_bytes(),
        );
    }
}

#[test]
fn the_table_is_sound() {
    Cli::command().debug_assert();
    for (name, verb) in verbs() {
        assert!(verb.get_about().is_some(), "{name} says what it does");
        for argument in verb
            .get_arguments()
            .filter(|argument| argument.get_id() != "help")
        {
            let told = argument.get_help().is_some() || argument.is_positional();
            let by_name = matches!(argument.get_id().as_str(), "level" | "version");
            assert!(
                told || by_name,
                "{name} {} says what it is",
                argument.get_id()
            );
        }
    }
}
