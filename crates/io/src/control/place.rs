//! Paths of control sockets (`NAME.sock` in the [runtime folder](super::folder)), and the right to take over
//! a socket of any kind.
//!
//! A socket file outlives a daemon that was killed. A lock shows whether it is stale: the daemon holds a
//! lock on `NAME.sock.lock` in the same folder, and the kernel drops the lock with the process. The holder
//! of the lock may replace the socket.

use super::folder::{failed, make_private, owner_of_private, runtime_folder};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes in an array's name, at most: it must fit a superblock field and, with its folder, a socket address.
const NAME_BYTES_MAX: usize = 32;
/// Bytes in a Unix socket's path, at most (`sun_path` less its ending zero).
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Between two looks at a lock that another process holds.
const PAUSE: Duration = Duration::from_millis(1);
/// Looks at a lock before its path counts as taken.
const TRIES: usize = 3;

#[derive(Debug)]
pub enum PlaceError {
    /// Not a name that an array may have.
    Name(String),
    /// The folder cannot be made or looked at.
    Folder {
        path: PathBuf,
        error: io::Error,
    },
    /// The folder belongs to someone else, or others may enter it.
    Unsafe {
        path: PathBuf,
        why: &'static str,
    },
    /// Another daemon serves this.
    Taken {
        path: PathBuf,
    },
    /// Something that is not a socket is in the way.
    InTheWay {
        path: PathBuf,
    },
    /// The path does not fit a socket address.
    TooLong {
        path: PathBuf,
    },
    Socket {
        path: PathBuf,
        error: io::Error,
    },
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlaceError::Name(name) => write!(
                f,
                "{name:?} is not a name: 1 to {NAME_BYTES_MAX} letters, digits, `-`, `_` or `.`, the first a letter or digit"
            ),
            PlaceError::Folder { path, error } => write!(f, "{}: {error}", path.display()),
            PlaceError::Unsafe { path, why } => write!(f, "{}: {why}", path.display()),
            PlaceError::Taken { path } => {
                write!(f, "{}: another process serves this", path.display())
            }
            PlaceError::InTheWay { path } => {
                write!(f, "{}: exists and is not a socket", path.display())
            }
            PlaceError::TooLong { path } => write!(
                f,
                "{}: longer than the {SOCKET_PATH_BYTES_MAX} bytes a socket address holds",
                path.display()
            ),
            PlaceError::Socket { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for PlaceError {}

impl PlaceError {
    fn socket(path: &Path) -> impl Fn(io::Error) -> PlaceError {
        |error| PlaceError::Socket {
            path: path.into(),
            error,
        }
    }
}

/// Whether an array may be called this. Names become file names, so nothing that a path or a shell reads.
pub fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let first = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    first && name.len() <= NAME_BYTES_MAX && name.chars().all(plain)
}

/// The control socket of the array `name`.
pub fn socket_path(name: &str) -> Result<PathBuf, PlaceError> {
    if !is_name(name) {
        return Err(PlaceError::Name(name.into()));
    }
    Ok(runtime_folder().join(format!("{name}.sock")))
}

/// Names of the arrays that have a control socket, in order. One may be stale: asking it tells. An error
/// where the folder is not to be trusted.
pub fn running() -> Result<Vec<String>, PlaceError> {
    let folder = runtime_folder();
    if owner_of_private(&folder)?.is_none() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(&folder).map_err(|error| failed(&folder, error))?;
    let name_of = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let name = name.strip_suffix(".sock")?;
        is_name(name).then(|| name.to_owned())
    };
    let mut names: Vec<String> = entries.flatten().filter_map(name_of).collect();
    names.sort();
    Ok(names)
}

/// Waits until the daemon that holds the control socket of `name` has ended, at most for `most`: whether it
/// has. A lock's file that a killed daemon left counts as free.
pub fn wait_until_free(name: &str, most: Duration) -> Result<bool, PlaceError> {
    let lock_path = lock_path(&socket_path(name)?);
    wait_for_lock(&lock_path, most).map_err(PlaceError::socket(&lock_path))
}

fn wait_for_lock(path: &Path, most: Duration) -> io::Result<bool> {
    let lock = match open_lock(path, false) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        opened => opened?,
    };
    let deadline = Instant::now() + most;
    // Another file at this path is the next daemon's.
    while is_at(path, &lock) && !try_lock(&lock)? {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        thread::sleep(PAUSE);
    }
    Ok(true)
}

/// A socket path that is ours until this is dropped: then the socket file goes, and the lock with it.
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
    /// The device and number of the file that we made.
    made: Option<(u64, u64)>,
    _lock: Lock,
}

impl Claim {
    /// Takes the control socket of `name`, replacing one that a killed daemon left.
    pub fn control(name: &str) -> Result<(Claim, UnixListener), PlaceError> {
        let path = socket_path(name)?;
        make_private(&runtime_folder())?;
        let (claim, listener) = Claim::take(&path)?;
        let closed = fs::set_permissions(&path, fs::Permissions::from_mode(0o600));
        closed.map_err(PlaceError::socket(&path))?;
        Ok((claim, listener))
    }

    /// Takes any socket path, replacing one that a killed daemon left. The process's umask says who may
    /// connect.
    pub fn take(path: &Path) -> Result<(Claim, UnixListener), PlaceError> {
        if path.as_os_str().as_bytes().len() > SOCKET_PATH_BYTES_MAX {
            return Err(PlaceError::TooLong { path: path.into() });
        }
        let lock = Lock::beside(path)?;
        remove_stale(path)?;
        let listener = UnixListener::bind(path).map_err(PlaceError::socket(path))?;
        // From here on the file is ours to remove.
        let claim = Claim {
            path: path.into(),
            made: file_at(path),
            _lock: lock,
        };
        Ok((claim, listener))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Claim {
    /// Under the lock, which goes after it, the socket file is ours; but if somebody took both away, others
    /// may have the path by now.
    fn drop(&mut self) {
        if self.made.is_some() && file_at(&self.path) == self.made {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn file_at(path: &Path) -> Option<(u64, u64)> {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// The lock on a socket path, held by the open file.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    file: File,
}

impl Lock {
    /// A lock counts on the file that has the name when it is held: the one before may just have been
    /// removed.
    fn beside(path: &Path) -> Result<Lock, PlaceError> {
        let lock_path = lock_path(path);
        let failed = PlaceError::socket(&lock_path);
        loop {
            let file = try_lock_beside(path)?;
            let same = |found: &fs::Metadata, held: &fs::Metadata| {
                (found.dev(), found.ino()) == (held.dev(), held.ino())
            };
            match (fs::symlink_metadata(&lock_path), file.metadata()) {
                (Ok(found), Ok(held)) if same(&found, &held) => {
                    let path = lock_path.clone();
                    return Ok(Lock { path, file });
                }
                (Err(error), _) if error.kind() == io::ErrorKind::NotFound => {}
                (Err(error), _) | (_, Err(error)) => return Err(failed(error)),
                (Ok(_), Ok(_)) => {}
            }
        }
    }
}

impl Drop for Lock {
    /// The file goes while its lock is held, and can so only be ours. Whoever opened it before it goes, and
    /// gets its lock after, sees that it is not the one of that name any more.
    fn drop(&mut self) {
        if is_at(&self.path, &self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn is_at(path: &Path, file: &File) -> bool {
    let held = file.metadata().map(|held| (held.dev(), held.ino()));
    held.is_ok_and(|held| file_at(path) == Some(held))
}

fn lock_path(path: &Path) -> PathBuf {
    let mut lock_path = path.as_os_str().to_os_string();
    lock_path.push(".lock");
    PathBuf::from(lock_path)
}

fn try_lock_beside(path: &Path) -> Result<File, PlaceError> {
    let lock_path = lock_path(path);
    let failed = PlaceError::socket(&lock_path);
    let lock = open_lock(&lock_path, true).map_err(&failed)?;
    // `wait_until_free` of a verb holds a free lock for an instant.
    for _ in 0..TRIES {
        if try_lock(&lock).map_err(&failed)? {
            return Ok(lock);
        }
        thread::sleep(PAUSE);
    }
    Err(PlaceError::Taken { path: path.into() })
}

fn open_lock(path: &Path, create: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .create(create)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW);
    options.open(path)
}

/// Whether this open file has the lock now.
fn try_lock(lock: &File) -> io::Result<bool> {
    // SAFETY: `lock` is an open descriptor for the length of the call, and flock touches no memory of ours.
    if unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        error => Err(error),
    }
}

fn remove_stale(path: &Path) -> Result<(), PlaceError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(PlaceError::socket(path)(error)),
        Ok(found) if !found.file_type().is_socket() => {
            Err(PlaceError::InTheWay { path: path.into() })
        }
        Ok(_) => {
            // A server without our lock (another program) still answers on a socket that is not stale.
            if std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(PlaceError::Taken { path: path.into() });
            }
            fs::remove_file(path).map_err(PlaceError::socket(path))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn folder(name: &str) -> PathBuf {
        let name = format!("restripe-place-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        make_private(&path).expect("a fresh folder");
        path
    }

    #[test]
    fn lock_counts_as_free_once_its_holder_has_ended() {
        let folder = folder("free");
        let path = folder.join("tank.sock");
        let lock = lock_path(&path);
        let free = |most| wait_for_lock(&lock, Duration::from_millis(most)).expect("a look");
        assert!(free(0), "no daemon was there");
        fs::write(&lock, "").expect("a file");
        assert!(free(0), "a killed daemon left this file");
        let (first, _) = Claim::take(&path).expect("it is free");
        assert!(!free(5), "a daemon lives");
        // The next daemon takes the path while the verb waits for the end of the first.
        let next = thread::scope(|scope| {
            let waits = scope.spawn(|| free(60_000));
            thread::sleep(Duration::from_millis(20));
            drop(first);
            let next = Claim::take(&path).expect("it is free again");
            assert!(waits.join().expect("it ends"));
            next
        });
        assert!(!free(5), "the next daemon lives");
        drop(next);
        fs::remove_dir_all(&folder).expect("it was there");
    }

    #[test]
    fn names_are_plain() {
        for good in ["tank", "a", "A-1_b.c", "0"] {
            assert!(is_name(good), "{good}");
        }
        let long = "a".repeat(33);
        for bad in ["", ".hidden", "-x", "a/b", "a b", "ä", "x\0", &long] {
            assert!(!is_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_place_that_is_taken_is_refused() {
        let folder = folder("claim");
        let path = folder.join("a.sock");
        let (claim, _listener) = Claim::take(&path).expect("a free place");
        assert!(matches!(Claim::take(&path), Err(PlaceError::Taken { .. })));
        drop(claim);
        let left = fs::read_dir(&folder).expect("ours").count();
        assert_eq!(left, 0, "neither the socket nor its lock is left");
        Claim::take(&path).expect("free again");
        let _ = fs::remove_dir_all(folder);
    }

    #[test]
    fn a_lock_on_a_file_that_is_gone_does_not_count() {
        let folder = folder("gone");
        let path = folder.join("a.sock");
        let early = File::create(lock_path(&path)).expect("opened before it is removed");
        fs::remove_file(lock_path(&path)).expect("ours");
        // SAFETY: `early` is an open descriptor for the length of the call.
        let locked = unsafe { libc::flock(early.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
        assert_eq!(locked, 0);
        let (_claim, _listener) = Claim::take(&path).expect("that lock is nobody's");
        assert!(lock_path(&path).exists());
        let _ = fs::remove_dir_all(folder);
    }

    #[test]
    fn a_socket_without_a_lock_that_still_answers_is_refused() {
        let folder = folder("foreign");
        let path = folder.join("a.sock");
        let _other = UnixListener::bind(&path).expect("another program's socket");
        assert!(matches!(Claim::take(&path), Err(PlaceError::Taken { .. })));
        let left = fs::read_dir(&folder).expect("ours").count();
        assert!(path.exists(), "it is not ours to remove");
        assert_eq!(left, 1, "the lock is");
        let _ = fs::remove_dir_all(folder);
    }

    #[test]
    fn a_socket_file_without_a_server_is_replaced() {
        let folder = folder("stale");
        let path = folder.join("a.sock");
        drop(UnixListener::bind(&path).expect("a socket"));
        assert!(path.exists());
        let (claim, _listener) = Claim::take(&path).expect("nobody answers on it");
        UnixStream::connect(claim.path()).expect("now somebody does");
        drop(claim);
        assert!(!path.exists());
        let _ = fs::remove_dir_all(folder);
    }

    #[test]
    fn what_is_not_a_socket_is_left_alone() {
        let folder = folder("file");
        let path = folder.join("a.sock");
        fs::write(&path, "precious").expect("a file");
        let taken = Claim::take(&path);
        assert!(matches!(taken, Err(PlaceError::InTheWay { .. })));
        assert_eq!(fs::read_to_string(&path).expect("still there"), "precious");
        let _ = fs::remove_dir_all(folder);
    }
}
