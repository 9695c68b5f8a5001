//! Files of reservations that outlive the daemon (APTPL, SPC-4 section 5.13.5): one for each unit, in a
//! folder of this host. A thread writes them, because the reactor must not wait for a disk.
//!
//! A file is replaced as a whole: a new file is written and flushed, renamed, and the folder flushed. So a
//! crash leaves the old one or the new one.

use crate::regular;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

/// Bytes of a file at most.
const FILE_BYTES_MAX: u64 = 1 << 20;

struct Order {
    path: PathBuf,
    /// `None`: nothing is to be kept any more.
    text: Option<String>,
    done: Sender<bool>,
    connection: u32,
}

/// The thread that writes the files.
#[derive(Clone, Debug)]
pub struct StateWriter {
    folder: PathBuf,
    orders: Sender<Order>,
}

impl StateWriter {
    /// `wake` is called with the number of a connection when its order is done, and `failed` with the reason
    /// if one could not be done.
    pub fn start(
        folder: PathBuf,
        wake: impl Fn(u32) + Send + 'static,
        failed: impl Fn(&Path, &io::Error) + Send + 'static,
    ) -> io::Result<StateWriter> {
        // The folders above it have names, too.
        let folder = std::path::absolute(folder)?;
        let (orders, received) = mpsc::channel::<Order>();
        let work = move || {
            for order in received {
                let kept = match &order.text {
                    Some(text) => replace(&order.path, text),
                    None => remove(&order.path),
                };
                if let Err(error) = &kept {
                    failed(&order.path, error);
                }
                // A unit that is gone needs no answer.
                let _ = order.done.send(kept.is_ok());
                wake(order.connection);
            }
        };
        thread::Builder::new()
            .name("reservations".into())
            .spawn(work)?;
        Ok(StateWriter { folder, orders })
    }

    /// The place of a unit's file.
    pub(crate) fn file(&self, unit: &str) -> StateFile {
        StateFile {
            path: self.folder.join(unit),
            orders: self.orders.clone(),
        }
    }
}

/// Where the reservations of one unit are kept.
#[derive(Clone, Debug)]
pub(crate) struct StateFile {
    path: PathBuf,
    orders: Sender<Order>,
}

impl StateFile {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What was kept, if anything.
    pub(crate) fn read(&self) -> io::Result<Option<String>> {
        let file = match regular::open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        Ok(Some(text))
    }

    /// Keeps this text, or nothing any more. The result comes later, and then the connection is woken.
    pub(super) fn keep(&self, text: Option<String>, connection: u32) -> Receiver<bool> {
        let (done, kept) = mpsc::channel();
        // Without the thread the sender is dropped, and that is a failure to the receiver.
        let _ = self.orders.send(Order {
            path: self.path.clone(),
            text,
            done,
            connection,
        });
        kept
    }
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let folder = folder_of(path)?;
    make_folder(folder)?;
    let fresh = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&fresh)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    File::open(folder)?.sync_all()
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => {
            removed?;
            File::open(folder_of(path)?)?.sync_all()
        }
    }
}

fn folder_of(path: &Path) -> io::Result<&Path> {
    path.parent()
        .ok_or_else(|| io::Error::from(ErrorKind::NotFound))
}

/// Makes a folder and those above it. Each is flushed into the one that it is in.
fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let above = folder_of(folder)?;
    make_folder(above)?;
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => made?,
    }
    File::open(above)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_removed_as_a_whole() {
        let folder = std::env::temp_dir().join(format!("restripe-writer-{}", std::process::id()));
        let (woken, wakes) = mpsc::channel();
        let (failures, failed) = mpsc::channel();
        let writer = StateWriter::start(
            folder.join("deep/down"),
            move |connection| woken.send(connection).expect("the test waits"),
            move |path, _| failures.send(path.to_owned()).expect("the test waits"),
        );
        let file = writer.expect("a thread").file("unit");
        assert_eq!(file.read().expect("none yet"), None);
        for text in [Some("one"), Some("two, longer"), None, None] {
            let kept = file.keep(text.map(str::to_owned), 7);
            assert_eq!(kept.recv(), Ok(true));
            assert_eq!(wakes.recv(), Ok(7));
            assert_eq!(file.read().expect("it is readable").as_deref(), text);
        }
        let names = fs::read_dir(folder.join("deep/down")).expect("it was made");
        assert_eq!(names.count(), 0, "no other file is left");
        fs::remove_dir_all(&folder).expect("ours");
        fs::write(&folder, "").expect("a file in its place");
        assert_eq!(file.keep(Some("one".to_owned()), 7).recv(), Ok(false));
        assert_eq!(failed.recv().expect("it is reported"), file.path());
        fs::remove_file(&folder).expect("ours");
    }
}
