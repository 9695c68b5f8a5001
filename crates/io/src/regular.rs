//! Files that are read by their name at a start. A pipe in the place of one would hang the start for ever, so
//! only regular files are opened.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a file to read it.
pub fn open(path: &Path) -> io::Result<File> {
    // Without a writer the opening of a pipe would wait for one.
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

/// What a file of text has.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn what_is_not_a_regular_file_is_refused_at_once() {
        let folder = std::env::temp_dir().join(format!("restripe-regular-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a new folder");
        let pipe = folder.join("pipe");
        let name = CString::new(pipe.as_os_str().as_bytes()).expect("no zero in it");
        // SAFETY: the name ends with a zero and outlives the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        for path in [pipe.as_path(), &folder, Path::new("/dev/null")] {
            let refused = open(path).expect_err("it is not a regular file");
            assert!(refused.to_string().contains("regular"), "{refused}");
        }
        let text = folder.join("text");
        std::fs::write(&text, "words").expect("room");
        assert_eq!(read_to_string(&text).expect("it is there"), "words");
        std::fs::remove_dir_all(&folder).expect("ours");
    }
}
