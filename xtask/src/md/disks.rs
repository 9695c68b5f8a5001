//! The guest's kind of disks, on this side.

use super::house::Outcome;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Of each.
pub const DISK: &str = "512M";
const PATIENCE: Duration = Duration::from_secs(30);

/// Simulated disks behind NBD, as many as were asked for.
pub struct Disks {
    children: Vec<Child>,
    pub names: Vec<PathBuf>,
}

impl Disks {
    /// So many of them, by the program beside the rig's own.
    pub fn start(rig: &Path, folder: &Path, count: usize) -> Outcome<Disks> {
        let (program, source) = (folder.join("hddsim"), rig.with_file_name("hddsim.c"));
        let built = Command::new("cc")
            .args(["-O2", "-pthread", "-o"])
            .args([&program, &source])
            .arg("-lm")
            .status();
        if !built.is_ok_and(|status| status.success()) {
            return Err(format!("cannot build {}", source.display()));
        }
        let mut disks = Disks {
            children: Vec::new(),
            names: Vec::new(),
        };
        for nth in 0..count {
            disks.add(&program, &folder.join(format!("port{nth}")))?;
        }
        Ok(disks)
    }

    fn add(&mut self, program: &Path, port_file: &Path) -> Outcome<()> {
        let child = Command::new(program)
            .args(["--listen", "127.0.0.1:0", "--size", DISK, "--port-file"])
            .arg(port_file)
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        self.children.push(child);
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            let text = fs::read_to_string(port_file).unwrap_or_default();
            if let Ok(port) = text.trim().parse::<u16>() {
                self.names.push(format!("nbd://127.0.0.1:{port}").into());
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err("a simulated disk does not come up".into())
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
