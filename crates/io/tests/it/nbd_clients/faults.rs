//! Faults while clients work: a member fails under verified load, remote members err, stall and die, the server is
//! killed.

use crate::nbd_clients::array::{Array, IO_TIMEOUT, make, status, wait_until};
use crate::nbd_clients::checks;
use crate::nbd_clients::tools::{Folder, installed, succeed};
use restripe_array::layout::{Level, Rotation};
use restripe_array::report::ArrayState;
use restripe_array::{Fact, FailCause, Member, Nanos, TaskKind};
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const RAID5: Level = Level::Raid5(Rotation::LeftSymmetric);
const RAID6: Level = Level::Raid6(Rotation::LeftSymmetric);

/// Lets a load end, also when its test panics.
struct Last<'a>(&'a AtomicBool);

impl Drop for Last<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Runs a verified load, and something else once it is well under way. A whole load follows that, however late it came.
fn under_load(array: &Array, disturb: impl FnOnce()) {
    let target = array.target();
    let disturbed = AtomicBool::new(false);
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            loop {
                let last = disturbed.load(Ordering::SeqCst);
                checks::verified_load(&target, 2);
                if last {
                    break;
                }
            }
        });
        let last = Last(&disturbed);
        let begun = status(array.remote()).counters.writes;
        wait_until(|| load.is_finished() || status(array.remote()).counters.writes > begun + 200);
        disturb();
        drop(last);
        load.join().expect("the load finds its data");
    });
}

#[test]
fn members_fail_and_spares_fill_in_under_load() {
    if !installed(&["fio"]) {
        return;
    }
    for (level, losses) in [(RAID5, 1), (RAID6, 2), (Level::Raid1, 1)] {
        let array = Array::new(level, 4);
        under_load(&array, || {
            (0..losses).for_each(|member| array.fail(member));
        });
        assert_eq!(array.state(), ArrayState::Degraded);
        under_load(&array, || {
            (0..losses).for_each(|member| array.add_spare(10 + usize::from(member)));
        });
        (0..losses).for_each(|_| array.wait_for_end(TaskKind::Rebuild));
        wait_until(|| array.state() == ArrayState::Healthy);
        checks::copies_both_ways(&array.target());
    }
}

// ----------------------------------------------------------------------------------------------- remote members

/// A member behind nbdkit, which does to it what its filters say.
struct RemoteMember {
    nbdkit: Child,
    socket: PathBuf,
}

impl RemoteMember {
    fn start(image: &str, filters: &[&str], parameters: &[&str]) -> RemoteMember {
        let image = Path::new(image);
        let socket = image.with_extension("socket");
        let nbdkit = Command::new("nbdkit")
            .args(["--foreground", "--exit-with-parent", "--unix"])
            .arg(&socket)
            .args(filters.iter().map(|filter| format!("--filter={filter}")))
            .arg("file")
            .arg(image)
            .args(parameters)
            .stderr(Stdio::null())
            .spawn()
            .expect("nbdkit is installed");
        wait_until(|| UnixStream::connect(&socket).is_ok());
        RemoteMember { nbdkit, socket }
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    fn signal(&self, signal: &str) {
        let pid = self.nbdkit.id().to_string();
        succeed("kill", &["-s", signal, &pid]);
    }
}

impl Drop for RemoteMember {
    fn drop(&mut self) {
        // It may be dead already, which is as well.
        let _ = self.nbdkit.kill();
        let _ = self.nbdkit.wait();
    }
}

/// A RAID-5 whose member 2 is remote.
fn with_remote(filters: &[&str], parameters: &[&str], io_timeout: Nanos) -> (Array, RemoteMember) {
    let folder = Folder::new();
    let mut names = make(&folder, RAID5, 4);
    let remote = RemoteMember::start(&names[2], filters, parameters);
    names[2] = remote.uri();
    (Array::serve(folder, &names, io_timeout), remote)
}

fn cause_of_failure(array: &Array) -> FailCause {
    let fact = array.wait_for(|fact| matches!(fact, Fact::MemberFailed { .. }));
    let Fact::MemberFailed { member, why } = fact else {
        unreachable!("waited for it");
    };
    assert_eq!(member, Member(2));
    why
}

#[test]
fn a_slow_remote_member_is_a_member() {
    if !installed(&["nbdkit", "nbdcopy", "qemu-img"]) {
        return;
    }
    let delays = ["rdelay=1ms", "wdelay=1ms"];
    let (array, _remote) = with_remote(&["delay"], &delays, IO_TIMEOUT);
    checks::copies_both_ways(&array.target());
    checks::passes_verified_load(&array.target());
    assert_eq!(array.state(), ArrayState::Healthy);
}

#[test]
fn a_remote_member_that_errs_is_failed() {
    if !installed(&["nbdkit", "fio"]) {
        return;
    }
    let trigger = Folder::new();
    let file = trigger.file("trigger");
    let errors = format!("error-file={}", file.display());
    let errors = ["error=EIO", "error-rate=100%", &errors];
    let (array, _remote) = with_remote(&["error"], &errors, IO_TIMEOUT);
    under_load(&array, || {
        fs::write(&file, b"").expect("room for a file");
    });
    let why = cause_of_failure(&array);
    let expected = matches!(
        why,
        FailCause::WriteError(_) | FailCause::FlushError(_) | FailCause::ReadErrors
    );
    assert!(expected, "{why:?}");
    assert_eq!(array.state(), ArrayState::Degraded);
    checks::copies_both_ways(&array.target());
}

#[test]
fn a_remote_member_that_dies_is_gone() {
    if !installed(&["nbdkit", "fio"]) {
        return;
    }
    let (array, remote) = with_remote(&[], &[], IO_TIMEOUT);
    under_load(&array, || remote.signal("KILL"));
    cause_of_failure(&array);
    assert_eq!(array.state(), ArrayState::Degraded);
    checks::copies_both_ways(&array.target());
}

#[test]
fn a_remote_member_that_stalls_is_failed_in_time() {
    if !installed(&["nbdkit", "fio"]) {
        return;
    }
    let (array, remote) = with_remote(&[], &[], Nanos::from_secs(1));
    under_load(&array, || remote.signal("STOP"));
    assert_eq!(cause_of_failure(&array), FailCause::TimedOut);
    assert_eq!(array.state(), ArrayState::Degraded);
    checks::copies_both_ways(&array.target());
    remote.signal("CONT");
}

/// Beyond what the level tolerates: what is lost is an error, what is not is still there.
#[test]
fn two_losses_of_a_raid5_are_told_and_the_rest_is_read() {
    if !installed(&["nbdkit", "nbdsh", "nbdinfo"]) {
        return;
    }
    let folder = Folder::new();
    let mut names = make(&folder, RAID5, 4);
    let remotes: Vec<RemoteMember> = names[2..]
        .iter_mut()
        .map(|name| {
            let remote = RemoteMember::start(name, &[], &[]);
            *name = remote.uri();
            remote
        })
        .collect();
    let array = Array::serve(folder, &names, IO_TIMEOUT);
    let uri = array.target().uri();
    checks::nbdsh(&["-u", &uri, "-c", WRITE]);
    drop(remotes);
    checks::nbdsh(&["-u", &uri, "-c", READ]);
    assert_eq!(array.state(), ArrayState::Failed);
    // Also for a client that comes now.
    checks::nbdsh(&["-u", &uri, "-c", READ]);
}

const WRITE: &str = r#"
h.pwrite(b"x" * (6 << 20), 0, nbd.CMD_FLAG_FUA)
print("all probes answered")
"#;

/// Half of the data cells are on the members that are left.
const READ: &str = r#"
import errno

h.set_strict_mode(0)
lost = 0
chunks = 6 << 4
for chunk in range(chunks):
    try:
        assert h.pread(65536, chunk * 65536) == b"x" * 65536, chunk
    except nbd.Error as error:
        assert error.errnum == errno.EIO, error.string
        lost += 1
assert lost == chunks // 2, (lost, chunks)
try:
    h.pwrite(b"y" * 65536, 0)
    raise AssertionError("an array that lost data takes no writes")
except nbd.Error as error:
    assert error.errnum in (errno.EPERM, errno.EIO), error.string
print("all probes answered")
"#;
