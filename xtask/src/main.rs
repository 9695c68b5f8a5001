//! One entry point for the project's own checks and generators: `cargo run -p xtask -- VERB`.
//!
//! Plain Rust without dependencies, so that the checks run wherever the project builds.

mod apps;
mod deep;
mod edges;
mod iscsi;
mod links;
mod md;
mod ratchet;
mod rules;
mod source;
mod tokens;
mod walk;

use source::{Finding, Tree};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str =
    "usage: xtask tidy | ratchet [--rise | show SCOPE COUNT] | golden | deep [list | PART...] | md [PATTERN...] | md-bench [PATTERN...]
       xtask iscsi-bench
       xtask apps [--quick] [--repetitions N] [--report] [--only NAME]...

  tidy  check the house rules: edges between crates, length of files and functions, leftovers,
        links of the documents, and the counts that may only fall (xtask/ratchet.txt)
  ratchet  record counts that fell; --rise records a rise as well, whose reason the commit gives;
        show lists the places of one count
  golden  write the golden files of --help from the command table (crates/cli/tests/golden)
  deep  run the long tests that have not passed for these sources, or the named parts
  md    compare with Linux md in a guest, all cases or those whose names contain a pattern
  md-bench  rebuild under load, and growth, beside Linux md on the same simulated disks: minutes
  iscsi-bench  the iSCSI target beside tgt, with libiscsi's iscsi-perf: two minutes
  apps  PostgreSQL and PostMark on a mounted array while a member is rebuilt, as in the S2-RAID paper, on simulated
        drives: with --quick twenty minutes, else a day in parts; needs root and `make build`";

fn main() -> ExitCode {
    let verbs: Vec<String> = std::env::args().skip(1).collect();
    match verbs.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy(),
        ["ratchet"] => ratchet(|tree| ratchet::write(tree, &root(), false)),
        ["ratchet", "--rise"] => ratchet(|tree| ratchet::write(tree, &root(), true)),
        ["ratchet", "show", scope, name] => ratchet(|tree| ratchet::show(tree, scope, name)),
        // The former name, which wrote man pages as well.
        ["golden" | "man"] => golden(),
        ["deep", ref parts @ ..] => deep::run(&root(), parts),
        ["md", ref patterns @ ..] => md::run(&root(), patterns),
        ["md-bench", ref patterns @ ..] => md::measure(&root(), patterns),
        ["iscsi-bench"] => iscsi::run(),
        ["apps", ref arguments @ ..] => apps::run(&root(), arguments),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// The workspace's root: the parent of this crate's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies within the workspace")
        .to_path_buf()
}

fn tidy() -> ExitCode {
    let Some(tree) = read() else {
        return ExitCode::FAILURE;
    };
    let findings = check(&tree);
    for finding in &findings {
        eprintln!("{finding}");
    }
    if findings.is_empty() {
        println!("tidy: {} files, no findings", tree.files.len());
        ExitCode::SUCCESS
    } else {
        eprintln!("tidy: {} findings", findings.len());
        ExitCode::FAILURE
    }
}

fn ratchet(act: impl Fn(&Tree) -> Result<String, Vec<Finding>>) -> ExitCode {
    let Some(tree) = read() else {
        return ExitCode::FAILURE;
    };
    match act(&tree) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(findings) => {
            for finding in &findings {
                eprintln!("{finding}");
            }
            ExitCode::FAILURE
        }
    }
}

fn read() -> Option<Tree> {
    let tree = Tree::read(&root());
    if let Err(error) = &tree {
        eprintln!("tidy: cannot read the sources: {error}");
    }
    tree.ok()
}

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = edges::check(tree);
    findings.extend(rules::check(tree));
    findings.extend(links::check(tree, &|path| root().join(path).exists()));
    findings.extend(walk::check(tree));
    findings.extend(ratchet::check(tree, &root()));
    findings
}

/// The command table lives in the command's crate, and so does the golden test of its help texts. The test writes the
/// files instead of comparing them when asked to.
fn golden() -> ExitCode {
    let status = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
        .args([
            "test",
            "--quiet",
            "-p",
            "restripe-cli",
            "--bin",
            "restripe",
            "generated_help",
        ])
        .env("RESTRIPE_BLESS", "1")
        .current_dir(root())
        .status();
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("golden: cannot run cargo: {error}");
            ExitCode::FAILURE
        }
    }
}
