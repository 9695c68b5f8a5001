//! The guest whose kernel has md: booted by `rig/md-guest` in the folder that `RESTRIPE_SHARED` names.

use super::house::Outcome;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the rig may boot, the fastest first.
pub const ENGINES: [Engine; 3] = [
    Engine::UserMode,
    Engine::UserModeOnLargeState,
    Engine::Emulated,
];

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// User-mode Linux, the rig's own choice.
    UserMode,
    /// The same with tests/md/xstate.c beneath it: without that it ends at once on processors with AMX.
    UserModeOnLargeState,
    /// A machine without hardware help, about ten times slower.
    Emulated,
}

/// The program that boots the guest, if it may run here.
pub fn rig(root: &Path) -> Option<PathBuf> {
    let rig = folder(root)?.join("md-guest");
    (rig.is_file() && is_root()).then_some(rig)
}

/// The rig's folder.
fn folder(root: &Path) -> Option<PathBuf> {
    let shared = std::env::var_os("RESTRIPE_SHARED").map(PathBuf::from);
    let shared = shared.unwrap_or_else(|| root.join("../shared"));
    Some(fs::canonicalize(shared).ok()?.join("rig"))
}

fn is_root() -> bool {
    let answer = Command::new("id").arg("-u").output();
    answer.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// One boot.
pub struct Guest<'a> {
    pub root: &'a Path,
    pub rig: &'a Path,
    /// Where the script works.
    pub folder: &'a Path,
    /// Of the rig's.
    pub options: Vec<String>,
    /// Of the guest as a whole.
    pub seconds: u64,
}

impl Guest<'_> {
    /// What a script of tests/md printed, on the first engine that says anything.
    pub fn run(&self, engines: &[Engine], script: &str, arguments: &[&str]) -> Outcome<String> {
        for engine in engines {
            if let Some(said) = self.run_on(*engine, script, arguments)? {
                return Ok(said);
            }
        }
        Ok(String::new())
    }

    /// Nothing if it never ran.
    fn run_on(&self, engine: Engine, script: &str, arguments: &[&str]) -> Outcome<Option<String>> {
        // The guest sees the root folder of this machine as /host, and starts in the folder that we are in.
        let script = self.root.join("tests/md").join(script);
        let script = format!("/host{}", script.display());
        let launcher = self.folder.join("launch");
        super::write(&launcher, b"exec python3 -B \"$@\"\n")?;
        let mut command = Command::new(self.rig);
        match engine {
            Engine::UserMode => {}
            Engine::UserModeOnLargeState => match self.xstate() {
                Some(library) => drop(command.env("LD_PRELOAD", library)),
                None => return Ok(None),
            },
            Engine::Emulated => drop(command.args(["--engine", "tcg"])),
        }
        let output = command
            .args(&self.options)
            .args(["--timeout", &self.seconds.to_string()])
            .arg(launcher)
            .arg(&script)
            .args(arguments)
            .current_dir(self.folder)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("{}: {error}", self.rig.display()))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok((!said.is_empty()).then_some(said))
    }

    /// Builds tests/md/xstate.c, where there is a compiler.
    fn xstate(&self) -> Option<PathBuf> {
        let library = self.folder.join("xstate.so");
        let built = Command::new("cc")
            .args(["-O2", "-fPIC", "-shared", "-o"])
            .args([&library, &self.root.join("tests/md/xstate.c")])
            .status();
        built
            .is_ok_and(|status| status.success())
            .then_some(library)
    }
}
