//! The signals that ask a process to end. A daemon handles them in order, on one thread.

use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

/// SIGTERM, SIGINT and SIGHUP, held back from their usual effect. A terminal that closes ends a daemon as Ctrl-C does,
/// unless it was started to outlive it (`nohup`).
pub struct Termination {
    set: libc::sigset_t,
}

impl Termination {
    /// Holds the signals back on this thread and on every thread it starts from now on: to be called when no others are
    /// there.
    pub fn hold() -> io::Result<Termination> {
        let hang_up = (!is_ignored(libc::SIGHUP)).then_some(libc::SIGHUP);
        Termination::hold_all([libc::SIGTERM, libc::SIGINT].into_iter().chain(hang_up))
    }

    /// The same, but for those that this process ignores since its start: a shell's script has what it starts
    /// in the background ignore SIGINT.
    pub fn hold_heeded() -> io::Result<Termination> {
        let all = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];
        Termination::hold_all(all.into_iter().filter(|signal| !is_ignored(*signal)))
    }

    fn hold_all(signals: impl Iterator<Item = libc::c_int>) -> io::Result<Termination> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set, and fails only on a bad pointer, which this is not.
        let mut set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            set.assume_init()
        };
        for signal in signals {
            // SAFETY: the set is initialised.
            unsafe { libc::sigaddset(&raw mut set, signal) };
        }
        // SAFETY: the set is initialised; the old mask is not asked for.
        match unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut())
        } {
            0 => Ok(Termination { set }),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Waits for the next of them; its number.
    pub fn wait(&self) -> io::Result<i32> {
        let mut signal = 0;
        // SAFETY: the set is initialised and the number is ours to write.
        match unsafe { libc::sigwait(&raw const self.set, &raw mut signal) } {
            0 => Ok(signal),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

/// Whether whoever started this process has it ignore a signal. Held back, it would come all the same.
fn is_ignored(signal: libc::c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no new action is given; the old one is written where there is room for it.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeros are a valid action, and the kernel may have written a better one.
    asked == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Lets this process end, without a word, when it writes to a pipe that nobody reads any more, as programs that only
/// print do. Not for one that serves: a client that hangs up would end it.
pub fn end_on_closed_pipe() {
    // SAFETY: the default action takes no handler; nothing else of this process depends on the signal's action.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Lets a write beyond the limit on the size of files fail, as one on a full disk does, rather than end this process: a
/// daemon halts its array then, and a `create` takes back what it made.
pub fn outlive_file_size_limit() {
    // SAFETY: the signal is ignored, without a handler; nothing else of this process depends on its action.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// An error if this process was started with its standard output closed, or open for reading alone. The runtime opens `/dev/null`
/// in place of the former before `main`, and takes the error of a write to the latter for success.
pub fn stdout_is_writable() -> io::Result<()> {
    match STDOUT_UNWRITABLE.load(Ordering::Relaxed) {
        true => Err(io::Error::from_raw_os_error(libc::EBADF)),
        false => Ok(()),
    }
}

static STDOUT_UNWRITABLE: AtomicBool = AtomicBool::new(false);

extern "C" fn look_at_stdout() {
    // SAFETY: no pointers are passed, and a descriptor that is not open is an error.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFL) };
    let unwritable = flags < 0 || flags & libc::O_ACCMODE == libc::O_RDONLY;
    STDOUT_UNWRITABLE.store(unwritable, Ordering::Relaxed);
}

// SAFETY: the loader calls what is in this section once, before the runtime of Rust begins; the function needs none of it.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_AT_STDOUT: extern "C" fn() = look_at_stdout;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_held_back_is_waited_for() {
        let held = std::thread::spawn(|| {
            let termination = Termination::hold().expect("signals can be held back");
            // SAFETY: the signal goes to this thread alone, which holds it back.
            unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGTERM) };
            termination.wait()
        });
        let came = held.join().expect("it does not die of it");
        assert_eq!(came.expect("it has come"), libc::SIGTERM);
    }
}
