//! An array as the disk of a virtual machine: a guest of qemu, without hardware help, works on what a daemon of this
//! machine serves (tests/md/machine.py), which is killed and started again three times, and grows.

use super::house::{Daemon, House, Outcome, words};
use super::{END, Verdicts, verdicts};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

pub const NAME: &str = "machine";
const REPORTS: [&str; 6] = ["disk", "fio", "files", "grown", "through", "kernel"];

const MEMBER_BYTES: u64 = 64 << 20;
const GUEST_SECONDS: &str = "900";
const DEATHS: usize = 3;
/// Between two deaths.
const LIFE: Duration = Duration::from_secs(4);
const LOOK_AFTER: Duration = Duration::from_millis(200);
const SOCKET: &str = "judged.vhost";

/// What came of it, by what was to be seen. Nothing where Restripe was built without vhost-user.
pub fn run(root: &Path, rig: &Path, folder: &Path) -> Outcome<Verdicts> {
    let folder = folder.join(NAME);
    let house = House::new(super::binary()?, &folder)?;
    let members = images(&folder)?;
    let (first, spare) = members.split_at(3);
    house.create(&words(&["--level", "raid5"]), first)?;
    let options = ["--vhost-user", SOCKET, "--buffered"];
    let serve = || house.serve_with(&options, first);
    let mut daemon = match serve() {
        Err(error) if error.contains("built without vhost-user") => {
            println!("skipped {NAME}: restripe was built without vhost-user");
            return Ok(Verdicts::new());
        }
        daemon => Some(daemon?),
    };
    let mut guest = boot(root, rig, &folder)?;
    while guest
        .try_wait()
        .map_err(|error| error.to_string())?
        .is_none()
    {
        thread::sleep(LOOK_AFTER);
        if asked(&folder, "kill") {
            for _ in 0..DEATHS {
                thread::sleep(LIFE);
                // Dropped: killed, and nothing of it lives on.
                drop(daemon.take());
                daemon = Some(serve()?);
            }
            answer(&folder, "killed")?;
        }
        if asked(&folder, "grow")
            && let Some(daemon) = &daemon
        {
            grow(daemon, &spare[0])?;
            answer(&folder, "grown")?;
        }
    }
    let said = guest
        .wait_with_output()
        .map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    if !said.lines().any(|line| line == END) {
        return Err(format!("the guest ended before its end; it said:\n{said}"));
    }
    let mut found = verdicts(&said);
    for what in REPORTS {
        let missing = || Err(format!("nothing is said of it:\n{said}"));
        found
            .entry(format!("{NAME}/{what}"))
            .or_insert_with(missing);
    }
    Ok(found)
}

fn images(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let image = |nth: usize| {
        let path = folder.join(format!("{nth}.img"));
        let made = fs::File::create(&path).and_then(|file| file.set_len(MEMBER_BYTES));
        made.map(|()| path).map_err(|error| error.to_string())
    };
    (0..4).map(image).collect()
}

fn grow(daemon: &Daemon<'_>, spare: &Path) -> Outcome<()> {
    let spare = spare.display().to_string();
    daemon.ask("grow", &["--add", &spare, "--yes"])?;
    daemon.settle()
}

/// Takes a file that the guest has made.
fn asked(folder: &Path, word: &str) -> bool {
    fs::remove_file(folder.join(word)).is_ok()
}

fn answer(folder: &Path, word: &str) -> Outcome<()> {
    super::write(&folder.join(word), b"")
}

/// Boots the rig's guest with memory that the daemon shares, and its disk. The rig calls qemu by name: a script of that
/// name adds them.
fn boot(root: &Path, rig: &Path, folder: &Path) -> Outcome<Child> {
    let programs = folder.join("bin");
    fs::create_dir_all(&programs).map_err(|error| error.to_string())?;
    let qemu = programs.join("qemu-system-x86_64");
    let socket = folder.join(SOCKET);
    let script = format!(
        "#!/bin/sh\nPATH=${{PATH#*:}} exec qemu-system-x86_64 \"$@\" \
         -object memory-backend-memfd,id=shared,size=1G,share=on -numa node,memdev=shared \
         -chardev socket,id=disk,path={},reconnect=1 \
         -device vhost-user-blk-pci,chardev=disk,num-queues=2\n",
        socket.display()
    );
    super::write(&qemu, script.as_bytes())?;
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&qemu, mode).map_err(|error| error.to_string())?;
    let launcher = folder.join("launch");
    super::write(&launcher, b"exec python3 -B \"$@\"\n")?;
    let path = std::env::var("PATH").unwrap_or_default();
    let seen = |path: &Path| format!("/host{}", path.display());
    Command::new(rig)
        .args(["--engine", "tcg", "--mem", "1G", "--timeout", GUEST_SECONDS])
        .arg(launcher)
        .args([seen(&root.join("tests/md/machine.py")), seen(folder)])
        .env("PATH", format!("{}:{path}", programs.display()))
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{}: {error}", rig.display()))
}
