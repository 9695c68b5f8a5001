//! The disk on which a member is a partition: members there share a spindle.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// The kernel's name of the whole disk of a block device; `None` of what is none.
pub fn whole_disk(path: &str) -> Option<String> {
    let found = fs::metadata(path).ok()?;
    let number = found.rdev();
    let (major, minor) = (libc::major(number), libc::minor(number));
    found.file_type().is_block_device().then_some(())?;
    whole_of(&Path::new("/sys/dev/block").join(format!("{major}:{minor}")))
}

/// A partition's folder lies in that of its disk, and has a file that says which it is.
fn whole_of(device: &Path) -> Option<String> {
    let folder = device.canonicalize().ok()?;
    let disk = match folder.join("partition").exists() {
        true => folder.parent()?,
        false => &folder,
    };
    Some(disk.file_name()?.to_str()?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_of_their_disk_and_files_of_none() {
        let name = format!("restripe-disk-{}", std::process::id());
        let scratch = std::env::temp_dir().join(name);
        let part = scratch.join("sdq/sdq2");
        fs::create_dir_all(&part).expect("a scratch folder");
        fs::write(part.join("partition"), "2\n").expect("a scratch file");
        assert_eq!(whole_of(&part).as_deref(), Some("sdq"));
        assert_eq!(whole_of(&scratch.join("sdq")).as_deref(), Some("sdq"));
        assert_eq!(whole_of(&scratch.join("sdr")), None);
        let file = part.join("partition");
        assert_eq!(whole_disk(file.to_str().expect("letters")), None);
        fs::remove_dir_all(&scratch).expect("ours");
    }
}
