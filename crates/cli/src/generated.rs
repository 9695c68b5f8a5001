//! What is generated from the command table: man pages and completions in `docs/`, and the text of every `--help` as a
//! golden file. A difference fails; `cargo run -p xtask -- man` writes them anew.

use crate::command::Cli;
use clap::{Command, CommandFactory};
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
    let page = |command: Command, name: &str| {
        let mut text = Vec::new();
        clap_mangen::Man::new(command)
            .date("")
            .render(&mut text)
            .expect("a vector takes it");
        hold(&folder.join(name), &text);
    };
    page(table(), "restripe.1");
    for (name, verb) in verbs() {
        page(verb, &format!("restripe-{name}.1"));
    }
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
