//! A file system on an array, by way of nbdfuse and a loop device: no block driver of ours or of NBD in the kernel.

use crate::nbd_clients::array::{Array, wait_until};
use crate::nbd_clients::tools::{Folder, Target, installed, run, skip, succeed};
use crate::nbd_protocol::world::Random;
use restripe_array::TaskKind;
use restripe_array::layout::{Level, Rotation};
use restripe_array::report::ArrayState;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// An export as a file, for as long as this lives.
struct Fuse {
    nbdfuse: Child,
    folder: Folder,
}

impl Fuse {
    fn mount(target: &Target) -> Option<Fuse> {
        let folder = Folder::new();
        let mut nbdfuse = Command::new("nbdfuse")
            .arg(folder.path())
            .arg(target.uri())
            .stderr(Stdio::null())
            .spawn()
            .expect("nbdfuse is installed");
        let file = folder.file("nbd");
        let mut ended = None;
        wait_until(|| {
            ended = nbdfuse.try_wait().ok().flatten();
            ended.is_some() || file.exists()
        });
        ended.is_none().then_some(Fuse { nbdfuse, folder })
    }

    fn file(&self) -> PathBuf {
        self.folder.file("nbd")
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        run("fusermount3", &[Path::new("-u"), self.folder.path()]);
        let _ = self.nbdfuse.wait();
    }
}

/// A file as a block device.
struct Loop(String);

impl Loop {
    fn attach(file: &Path) -> Option<Loop> {
        let output = run("losetup", &[Path::new("--find"), Path::new("--show"), file]);
        let device = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(Loop(device))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["--detach", &self.0]);
    }
}

/// A mounted file system.
struct Mount(Folder);

impl Mount {
    fn new(device: &Loop) -> Mount {
        let folder = Folder::new();
        succeed("mount", &[Path::new(&device.0), folder.path()]);
        Mount(folder)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        run("umount", &[self.0.path()]);
    }
}

/// Writes some files of random bytes, reads them back after a remount.
fn exercise(device: &Loop, seed: u64) {
    let mut random = Random::new(seed);
    let files: Vec<(String, Vec<u8>)> = (0..40)
        .map(|i| {
            let mut bytes = vec![0; 1 + random.below(200_000)];
            random.fill(&mut bytes);
            (format!("{seed}-{i}"), bytes)
        })
        .collect();
    let mount = Mount::new(device);
    for (name, bytes) in &files {
        fs::write(mount.0.file(name), bytes).expect("room for a file");
    }
    succeed("sync", &[mount.0.path()]);
    succeed("fstrim", &[mount.0.path()]);
    drop(mount);
    let mount = Mount::new(device);
    for (name, bytes) in &files {
        let found = fs::read(mount.0.file(name)).expect("it was written");
        assert!(found == *bytes, "{name}");
        fs::remove_file(mount.0.file(name)).expect("it is there");
    }
    drop(mount);
    succeed("e2fsck", &["-fn", &device.0]);
}

#[test]
fn ext4_lives_through_a_loss_and_a_rebuild() {
    let programs = [
        "nbdfuse",
        "fusermount3",
        "losetup",
        "mkfs.ext4",
        "e2fsck",
        "fstrim",
    ];
    if !installed(&programs) {
        return;
    }
    let array = Array::new(Level::Raid5(Rotation::LeftSymmetric), 4);
    let Some(fuse) = Fuse::mount(&array.target()) else {
        return skip("nbdfuse may not mount here");
    };
    let Some(device) = Loop::attach(&fuse.file()) else {
        return skip("no loop device for the file");
    };
    succeed("mkfs.ext4", &["-q", &device.0]);
    exercise(&device, 1);
    array.fail(0);
    exercise(&device, 2);
    array.add_spare(9);
    exercise(&device, 3);
    array.wait_for_end(TaskKind::Rebuild);
    wait_until(|| array.state() == ArrayState::Healthy);
    array.fail(1);
    exercise(&device, 4);
}
