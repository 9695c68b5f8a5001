//! The folder of control sockets, and whom a verb and a daemon talk to.
//!
//! The first of these that there is: `$XDG_RUNTIME_DIR/restripe`; for root `/run/restripe`;
//! `/run/user/UID/restripe`; `/tmp/restripe-UID`. Everybody may make a name in `/tmp`, so a folder counts
//! only if it is a folder, ours and closed to others. This is checked by the daemon that makes it and by
//! each verb that looks into it.
//!
//! The kernel says whose process is at the other end of a Unix socket. Both ends ask:
//!
//! | we are | we talk to |
//! |---|---|
//! | a user | processes of the same user, and of root |
//! | root | processes of root, and of the owner of the folder that `XDG_RUNTIME_DIR` names |

use super::PlaceError;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

pub const ROOT: u32 = 0;

/// The folder of control sockets, whether or not it exists yet.
pub fn runtime_folder() -> PathBuf {
    match named_by_environment() {
        Some(folder) => folder.join("restripe"),
        None => usual_folder(own_uid(), Path::new("/run"), Path::new("/tmp")),
    }
}

fn named_by_environment() -> Option<PathBuf> {
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    named.filter(|folder| folder.is_absolute())
}

/// The folder of what outlives a daemon, whether or not it exists yet. The first of `$STATE_DIRECTORY`
/// (systemd); for root `/var/lib/restripe`; `$XDG_STATE_HOME/restripe`; `~/.local/state/restripe`. `None`:
/// the environment names no such place.
pub fn state_folder() -> Option<PathBuf> {
    let absolute = |path: PathBuf| path.is_absolute().then_some(path);
    let named = |name: &str| absolute(PathBuf::from(std::env::var_os(name)?));
    let of_service = || {
        let all = std::env::var_os("STATE_DIRECTORY")?;
        absolute(std::env::split_paths(&all).next()?)
    };
    let of_root = || (own_uid() == ROOT).then(|| PathBuf::from("/var/lib/restripe"));
    let of_user = || {
        let home = || Some(named("HOME")?.join(".local/state"));
        let state = named("XDG_STATE_HOME").or_else(home)?;
        Some(state.join("restripe"))
    };
    of_service().or_else(of_root).or_else(of_user)
}

/// Where nothing else is said.
fn usual_folder(uid: u32, run: &Path, tmp: &Path) -> PathBuf {
    if uid == ROOT && run.is_dir() {
        return run.join("restripe");
    }
    let of_session = run.join(format!("user/{uid}"));
    let found = fs::symlink_metadata(&of_session);
    match found.is_ok_and(|found| found.is_dir() && found.uid() == uid) {
        true => of_session.join("restripe"),
        false => tmp.join(format!("restripe-{uid}")),
    }
}

/// Makes the folder, or checks that the one there is ours alone.
pub(super) fn make_private(path: &Path) -> Result<(), PlaceError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(path, error)),
    }
    let found = fs::symlink_metadata(path).map_err(|error| failed(path, error))?;
    check(path, &found, own_uid())
}

/// The user to whom the runtime folder belongs, who is one that we talk to. `None`: there is no such folder.
pub(super) fn owner_of_private(path: &Path) -> Result<Option<u32>, PlaceError> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found.map_err(|error| failed(path, error))?,
    };
    let own = own_uid();
    // Root may look into the folder of whoever root names, as with every other file.
    let owner = match own == ROOT && named_by_environment().is_some() {
        true => found.uid(),
        false => own,
    };
    check(path, &found, owner)?;
    Ok(Some(owner))
}

fn check(path: &Path, found: &fs::Metadata, owner: u32) -> Result<(), PlaceError> {
    let why = match found {
        _ if !found.is_dir() => "is not a folder",
        _ if found.uid() != owner => "belongs to another user",
        _ if found.mode() & 0o077 != 0 => "is open to other users (make it mode 0700)",
        _ => return Ok(()),
    };
    Err(PlaceError::Unsafe {
        path: path.into(),
        why,
    })
}

pub(super) fn failed(path: &Path, error: io::Error) -> PlaceError {
    PlaceError::Folder {
        path: path.into(),
        error,
    }
}

/// The number of the process at the other end; an error where its user is none that we talk to.
pub(super) fn check_peer(stream: &UnixStream, owner: u32) -> io::Result<u32> {
    let peer = peer(stream)?;
    match [own_uid(), ROOT, owner].contains(&peer.uid) {
        true => Ok(peer.pid.cast_unsigned()),
        false => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("the other end belongs to another user ({})", peer.uid),
        )),
    }
}

fn peer(stream: &UnixStream) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both pointers are to variables of the lengths told, which outlive the call.
    let asked = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    match asked {
        0 => Ok(peer),
        _ => Err(io::Error::last_os_error()),
    }
}

pub(super) fn own_uid() -> u32 {
    // SAFETY: geteuid takes nothing, touches no memory and cannot fail.
    unsafe { libc::geteuid() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn folder(name: &str) -> PathBuf {
        let name = format!("restripe-folder-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        make_private(&path).expect("a fresh folder");
        path
    }

    fn refused(path: &Path) -> [bool; 2] {
        let unsafe_ = |error| matches!(error, Some(PlaceError::Unsafe { .. }));
        [make_private(path).err(), owner_of_private(path).err()].map(unsafe_)
    }

    /// Both ends refuse the same folders.
    #[test]
    fn a_folder_that_others_made_or_may_enter_is_refused() {
        let folder = folder("open");
        assert_eq!(refused(&folder), [false; 2]);
        for mode in [0o755, 0o710, 0o701, 0o777, 0o1777] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).expect("chmod");
            assert_eq!(refused(&folder), [true; 2], "{mode:o}");
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("chmod");
        let link = folder.join("link");
        symlink(&folder, &link).expect("a link");
        assert_eq!(refused(&link), [true; 2], "a link to what is ours");
        fs::write(folder.join("file"), "").expect("a file");
        assert_eq!(refused(&folder.join("file")), [true; 2]);
        assert!(matches!(owner_of_private(&folder.join("gone")), Ok(None)));
        let found = fs::metadata(&folder).expect("ours");
        let stranger = own_uid().wrapping_add(1);
        assert!(check(&folder, &found, stranger).is_err());
        let _ = fs::remove_dir_all(folder);
    }

    #[test]
    fn a_folder_of_the_system_goes_before_one_that_anybody_can_make() {
        let place = folder("usual");
        let (run, tmp) = (place.join("run"), place.join("tmp"));
        let own = own_uid();
        let last = tmp.join(format!("restripe-{own}"));
        assert_eq!(usual_folder(own, &run, &tmp), last, "there is no /run");
        fs::create_dir_all(run.join(format!("user/{own}"))).expect("ours");
        let session = run.join(format!("user/{own}/restripe"));
        let expected = match own {
            ROOT => run.join("restripe"),
            _ => session,
        };
        assert_eq!(usual_folder(own, &run, &tmp), expected);
        let other = own + 4711;
        fs::create_dir_all(run.join(format!("user/{other}"))).expect("ours");
        let not_theirs = tmp.join(format!("restripe-{other}"));
        assert_eq!(usual_folder(other, &run, &tmp), not_theirs);
        let _ = fs::remove_dir_all(place);
    }

    #[test]
    fn the_other_end_of_a_socket_is_known() {
        let (here, _there) = UnixStream::pair().expect("a pair");
        assert_eq!(peer(&here).expect("a socket").uid, own_uid());
        check_peer(&here, own_uid()).expect("ourselves");
    }
}
