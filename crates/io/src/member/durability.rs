//! How a write to a file or a block device is made durable, and whether it can be at all.
//!
//! A durable write carries `RWF_DSYNC` where the kernel is known to honour that flag on an asynchronous
//! direct write. Everywhere else an `fdatasync` follows the write. The kind of member decides:
//!
//! | member                       | way         | reason |
//! |------------------------------|-------------|--------|
//! | block device                 | [`Way::Flag`] | the write goes out as FUA, or the block layer flushes behind it |
//! | ext2, ext3, ext4, XFS, Btrfs | [`Way::Flag`] | the kernel syncs the file before it completes the write |
//! | tmpfs, ramfs                 | [`Way::Flag`] | nothing there outlives the power, whatever is asked |
//! | fsync(2) is refused          | [`Way::None`] | nothing there can be made durable: the member is volatile |
//! | FUSE, network, all others    | [`Way::Sync`] | FUSE drops the flag of an asynchronous direct write; of others nothing is known |
//!
//! [`probe`] asks once at open. A member that refuses the flag later takes the other way from then on.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// `RWF_DSYNC` on the write.
    Flag,
    /// `fdatasync` behind the write.
    Sync,
    /// None: the member is volatile.
    None,
}

/// File system magics of statfs(2) whose `RWF_DSYNC` reaches the medium.
const TRUSTED: [(i64, &str); 5] = [
    (0xef53, "ext2, ext3, ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
];

/// The way for files of the file system with this magic.
fn way_on(magic: i64) -> Way {
    match TRUSTED.iter().any(|(trusted, _)| *trusted == magic) {
        true => Way::Flag,
        false => Way::Sync,
    }
}

/// The way for an open member, by its kind. A file system that does not say what it is counts as unknown.
pub fn way_of(file: &File, block_device: bool) -> Way {
    match block_device {
        true => Way::Flag,
        false => magic_of(file).map_or(Way::Sync, way_on),
    }
}

fn magic_of(file: &File) -> Option<i64> {
    let mut answer = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the answer has room for what is written.
    let result = unsafe { libc::fstatfs(file.as_raw_fd(), answer.as_mut_ptr()) };
    // SAFETY: zeros are a valid answer, and the kernel may have written a better one.
    let answer = unsafe { answer.assume_init() };
    // The width of the field differs by architecture, and magics are 32 bits.
    (result == 0).then_some(i64::from(answer.f_type as u32))
}

/// Whether `fdatasync` works on a member: false where it is refused, an error where it fails.
pub fn probe(file: &File) -> io::Result<bool> {
    // SAFETY: no pointers are passed.
    if unsafe { libc::fdatasync(file.as_raw_fd()) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(errno) if refuses(errno) => Ok(false),
        _ => Err(error),
    }
}

/// Whether this error of a sync means that there is no sync, rather than that one failed.
pub fn refuses(errno: i32) -> bool {
    use libc::{EINVAL, ENOSYS, ENOTTY, EOPNOTSUPP, EROFS};
    [EINVAL, EROFS, EOPNOTSUPP, ENOSYS, ENOTTY].contains(&errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_file_systems_known_to_honour_the_flag_are_trusted() {
        for (magic, name) in TRUSTED {
            assert_eq!(way_on(magic), Way::Flag, "{name}");
        }
        let untrusted = [
            (0x6573_5546, "fuse"),
            (0x6969, "nfs"),
            (0xff53_4d42, "cifs"),
            (0xfe53_4d42, "smb2"),
            (0x0102_1997, "9p"),
            (0x00c3_6400, "ceph"),
            (0x0116_1970, "gfs2"),
            (0x794c_7630, "overlayfs"),
            (0x2fc1_2fc1, "zfs"),
            (0xca45_1a4e, "bcachefs"),
            (0xf2f5_2010, "f2fs"),
            (0, "none"),
        ];
        for (magic, name) in untrusted {
            assert_eq!(way_on(magic), Way::Sync, "{name}");
        }
    }

    #[test]
    fn an_answer_that_there_is_no_sync_differs_from_a_sync_that_failed() {
        use libc::{EDQUOT, EINTR, EIO, ENODEV, ENOSPC};
        let all = [EIO, ENOSPC, EDQUOT, ENODEV, EINTR];
        assert!(!all.into_iter().any(refuses));
        let none = [libc::EINVAL, libc::EROFS, libc::ENOTSUP, libc::ENOSYS];
        assert!(none.into_iter().all(refuses));
    }

    #[test]
    fn pipe_end_refuses_sync_and_file_takes_it() {
        let (reader, _writer) = io::pipe().expect("a pipe");
        let pipe = File::from(std::os::fd::OwnedFd::from(reader));
        assert!(!probe(&pipe).expect("it is refused"));
        let path = std::env::temp_dir().join(format!("restripe-sync-{}", std::process::id()));
        let file = File::create(&path).expect("a temporary file");
        assert!(probe(&file).expect("it works"));
        std::fs::remove_file(&path).expect("ours");
    }
}
