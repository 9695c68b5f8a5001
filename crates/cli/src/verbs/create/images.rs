//! Image files that `create` makes; they go again if the array is not made.

use crate::args::config::ArrayConfig;
use crate::arrays::create::buffer::BUFFER_FILE_BYTES;
use crate::failure::{Failure, Outcome};
use crate::units::Size;
use restripe_io::member::MemberSource;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Image files made for this array; they go again if it is not made.
pub(crate) struct Images {
    made: Vec<Image>,
    stage: Stage,
}

/// Who may have touched the images, and so what may be undone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Not held all the time: somebody else may have taken one over.
    Offered,
    /// Open and locked as members; what they hold may be somebody else's of the time before.
    Held,
    /// What they held before was looked at, and is being overwritten.
    Written,
}

struct Image {
    path: PathBuf,
    file: File,
    /// It was there and empty, as an earlier `create` leaves it that was killed.
    was_there: bool,
}

impl Images {
    pub fn make(wanted: &ArrayConfig) -> Outcome<Images> {
        let mut images = Images {
            made: Vec::new(),
            stage: Stage::Offered,
        };
        let members = wanted.members.iter().chain(&wanted.surrogate);
        let sized = members.filter_map(|name| Some((name, wanted.image_size?)));
        let buffers = wanted.nvram.iter();
        for (name, size) in sized.chain(buffers.map(|name| (name, BUFFER_FILE_BYTES))) {
            if let Ok(MemberSource::Path(path)) = MemberSource::parse(name) {
                let failed = |error| image_failure(&error, size).at(name);
                images.provide(path, size).map_err(failed)?;
            }
        }
        Ok(images)
    }

    /// Makes one image, unless something is there. It is locked before its emptiness is judged.
    fn provide(&mut self, path: PathBuf, size: u64) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true);
        let was_there = match fs::metadata(&path) {
            Ok(found) if found.is_file() && found.len() == 0 => true,
            Ok(_) => return Ok(()),
            Err(_) => {
                options.create_new(true);
                false
            }
        };
        let file = options.open(&path)?;
        file.try_lock()?;
        if file.metadata()?.len() > 0 {
            return Ok(());
        }
        self.made.push(Image {
            path,
            file,
            was_there,
        });
        self.made[self.made.len() - 1].file.set_len(size)
    }

    /// Lets the locks go, for the members to be opened with locks of their own.
    pub(crate) fn hand_over(&self) {
        for image in &self.made {
            // Whoever cannot unlock finds the member in use.
            let _ = image.file.unlock();
        }
    }

    pub fn held(mut self) -> Images {
        self.stage = Stage::Held;
        self
    }

    pub fn written(&mut self) {
        self.stage = Stage::Written;
    }

    pub fn keep(mut self) {
        self.made.clear();
    }
}

/// A size that no file may have, or none on this file system, is told as that.
fn image_failure(error: &io::Error, size: u64) -> Failure {
    let beyond = matches!(
        error.kind(),
        ErrorKind::FileTooLarge | ErrorKind::InvalidInput
    );
    if beyond || i64::try_from(size).is_err() {
        let what = format!("a file cannot be as large as {} here", Size(size));
        return Failure::new(what).hint("choose a smaller --image-size");
    }
    Failure::new(format!("the image cannot be made: {error}"))
}

impl Drop for Images {
    fn drop(&mut self) {
        for image in &self.made {
            image.undo(self.stage);
        }
    }
}

impl Image {
    /// Empties it again or removes it, unless it is, or may be, somebody else's by now. What is meant is the file that
    /// is open here, whatever its path leads to. A failure leaves a file of zeros.
    fn undo(&self, stage: Stage) {
        let ours = stage != Stage::Offered || self.file.try_lock().is_ok();
        let Ok(now) = self.file.metadata() else {
            return;
        };
        let untouched = now.blocks() == 0;
        if !ours || !(untouched || stage == Stage::Written) {
            return;
        }
        if self.was_there {
            let _ = self.file.set_len(0);
            return;
        }
        let there = fs::symlink_metadata(&self.path);
        if there.is_ok_and(|there| (there.dev(), there.ino()) == (now.dev(), now.ino())) {
            let _ = fs::remove_file(&self.path);
        }
    }
}
