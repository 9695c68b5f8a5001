//! A daemon at work: its control sockets and front ends, until it is told to end.

use crate::daemon::certificates::Certificates;
use crate::daemon::control::lifecycle::End;
use crate::daemon::event_log::{Answering, EventLog};
use crate::daemon::places::Doors;
use crate::daemon::refusals::{Refusals, TurnedAway};
use crate::daemon::running::Running;
use crate::failure::{Failure, Outcome};
use crate::print::journal::{self, LAST_WORDS};
use crate::print::terminal::{print_aside, say, warn};
use crate::units::seconds;
use restripe_io::backend::PowerHook;
use restripe_io::control::{AttachedView, Claim, Server};
use restripe_io::signals::Termination;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

/// How often a daemon looks whether its reactor still lives and, on standard input and output, its client.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Signals within this time are one.
const ECHO: Duration = Duration::from_secs(1);

/// Signals become a reason to end. A second one, not just an echo of the first (a shell and its group may both send
/// it), is an order to end at once.
pub(crate) fn watch_signals(
    termination: Termination,
    ends: Sender<End>,
    power: Option<PowerHook>,
) -> Outcome {
    let watch = move || {
        while termination.wait().is_ok() && ends.send(End::Signal).is_ok() {
            let first = Instant::now();
            while termination.wait().is_ok() {
                if first.elapsed() > ECHO {
                    warn("a second signal ends restripe at once; no member is marked clean");
                    if let Some(hook) = power {
                        hook.end();
                    }
                    journal::end(LAST_WORDS);
                    std::process::exit(1);
                }
            }
        }
    };
    let spawned = thread::Builder::new().name("signals".into()).spawn(watch);
    spawned
        .map(|_| ())
        .map_err(|error| Failure::new(format!("signals: {error}")))
}

/// The control socket of an array, on which nobody answers yet.
type Claimed = (Claim, UnixListener);

/// Two arrays may have one name, or one array two copies: the second is refused before it is started.
pub(crate) fn claim_all(names: &[&str]) -> Outcome<Vec<Claimed>> {
    for (nth, name) in names.iter().enumerate() {
        if names[..nth].contains(name) {
            let what = format!("two of these arrays have the name {name:?}");
            let hint = "serve them in two daemons, each with its own XDG_RUNTIME_DIR";
            return Err(Failure::new(what).hint(hint));
        }
    }
    let claims = names.iter().map(|name| Claim::control(name));
    Ok(claims.collect::<Result<_, _>>()?)
}

/// Gives the journal back: that all ended well is still to be told.
pub(crate) fn serve_until_told(
    running: &Running,
    claims: Vec<Claimed>,
    mut doors: Doors,
    servers: &mut Vec<Option<Server>>,
) -> Outcome<Arc<EventLog>> {
    let controls = running.controls();
    let names = controls
        .iter()
        .map(|control| Ok(control.array.status()?.name));
    let names = names.collect::<Outcome<Vec<String>>>()?;
    let log = Arc::new(EventLog::new(running, names.clone()));
    // Before any client or operator: a device may be mounted, and `stop` has to see it.
    controls.iter().for_each(|control| control.resume_device());
    for (control, (claim, listener)) in controls.iter().zip(claims) {
        let answer = Arc::new(Answering {
            control: Arc::clone(control),
            log: Arc::clone(&log),
        });
        servers.push(Some(Server::on(claim, listener, answer)?));
    }
    let stdio = doors.stdio;
    let mut notices = Notices {
        refusals: doors.refusals.clone(),
        turned_away: TurnedAway::default(),
        certificates: doors.certificates.take(),
    };
    let uris = doors.open(running)?;
    announce(&names, &uris, stdio);
    log.begin();
    wait(running, &log, servers, stdio, &mut notices)?;
    Ok(log)
}

/// What is logged of clients and certificates as time passes.
struct Notices {
    refusals: Refusals,
    turned_away: TurnedAway,
    certificates: Option<Certificates>,
}

impl Notices {
    fn look(&mut self, turned_away: u64) {
        self.turned_away.look(turned_away);
        self.refusals.look();
        if let Some(certificates) = &mut self.certificates {
            certificates.look();
        }
    }
}

/// Waits for the end of all arrays. One that is stopped before gives up its control socket.
fn wait(
    running: &Running,
    log: &EventLog,
    servers: &mut [Option<Server>],
    stdio: bool,
    notices: &mut Notices,
) -> Outcome {
    let mut left = running.controls().len();
    let mut had_client = false;
    loop {
        let end = running.next_end(LOOK_EVERY);
        log.tell();
        let controls = running.controls().iter();
        controls.for_each(|control| control.tend_device());
        match end {
            Some(End::Signal) => {
                say("restripe: stopping on a signal");
                say_of_devices(running);
                return Ok(());
            }
            Some(End::Stopped(array)) => {
                left -= 1;
                if left > 0 {
                    servers[array] = None;
                }
            }
            None => {
                let ended = |_| Failure::new("the reactor ended unexpectedly");
                let clients = running.remote().connections().map_err(ended)?;
                notices.look(running.remote().turned_away().map_err(ended)?);
                if stdio && had_client && clients == 0 {
                    return Ok(());
                }
                had_client = had_client || clients > 0 || stdio;
            }
        }
        if left == 0 {
            return Ok(());
        }
    }
}

/// What waits for the next daemon.
fn say_of_devices(running: &Running) {
    let devices = running.controls().iter().filter_map(|one| one.device());
    for AttachedView {
        device,
        grace_seconds,
        ..
    } in devices
    {
        let wait = grace_seconds.map_or(String::new(), |grace| format!(" for {}", seconds(grace)));
        say(format_args!(
            "restripe: {device} stays attached: its requests wait{wait} for the array to be served again"
        ));
    }
}

/// Tells people (one line an array and place) and systemd that clients can connect.
fn announce(names: &[String], uris: &[String], stdio: bool) {
    let what = if uris.is_empty() {
        names
            .iter()
            .map(|name| format!("{name}: serving"))
            .collect()
    } else {
        uris.to_vec()
    };
    match stdio {
        true => what.iter().for_each(say),
        // On a thread of its own: nothing needs to read it.
        false => drop(thread::spawn(move || what.iter().for_each(print_aside))),
    }
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET")
        && let Ok(sender) = UnixDatagram::unbound()
    {
        // A manager that does not read must not stop the daemon.
        let _ = sender.set_nonblocking(true);
        let _ = sender.send_to(b"READY=1\n", Path::new(&socket));
    }
}
