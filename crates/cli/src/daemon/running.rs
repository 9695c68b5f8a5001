//! Engines in this process: opens members, starts a reactor with one array or several, and ends it properly.

use crate::args::WithoutDaemon;
use crate::arrays::opening::{spec, warn_of_restless};
use crate::arrays::option_check;
use crate::arrays::preflight::Preview;
use crate::arrays::setup::Setup;
use crate::daemon::control::Control;
use crate::daemon::control::array::{Said, ServedArray, date};
use crate::daemon::control::lifecycle::{BeforeEnd, End};
use crate::failure::{Failure, Outcome};
use crate::units::seconds;
use restripe_array::StartMode;
use restripe_io::remote::Remote;
use restripe_io::shell::{self, ArraySpec, Shell, ShellOptions};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

/// Beyond twice the time-out of a member's operation, before an end is given up.
const STUCK_AFTER: Duration = Duration::from_secs(10);
/// A reactor at work, with a control for each array.
pub(crate) struct Running {
    reactor: shell::Running,
    controls: Vec<Arc<Control>>,
    ends: Receiver<End>,
    io_timeout: Duration,
}

impl Running {
    /// One array, for the length of a verb. Members of one that is not called `name`, if that is given, are refused
    /// before anything is started.
    pub(crate) fn for_verb(
        name: Option<&str>,
        members: &[String],
        read_only: bool,
        without_daemon: &WithoutDaemon,
    ) -> Outcome<Running> {
        let start = StartMode {
            read_only,
            volatile_members: without_daemon.volatile_members,
            ..StartMode::default()
        };
        let setup = Setup {
            start,
            degraded: without_daemon.degraded,
            ..Setup::default()
        };
        Running::of(vec![spec(members, name, &setup)?], &setup, mpsc::channel())
    }

    /// Starts every group of members as an array of its own. All serve, or none. What the superblocks tell is judged
    /// for all before any is started. What a start would lose only the engine can tell, as it starts; so the arrays
    /// that may lose something are started first, and when one of them is refused, only others of them were touched.
    /// These are shut down again.
    pub fn start(groups: &[Vec<String>], setup: &Setup) -> Outcome<Running> {
        Running::start_as(groups, setup, |_, _| Ok(())).map(|(running, ())| running)
    }

    /// The same, with something that is to be had before any array is started, for their names. It may also have a reason
    /// to end sent, which is heard once all have started.
    pub(crate) fn start_as<T>(
        groups: &[Vec<String>],
        setup: &Setup,
        beforehand: impl FnOnce(&[&str], &Sender<End>) -> Outcome<T>,
    ) -> Outcome<(Running, T)> {
        let specs = groups.iter().map(|members| spec(members, None, setup));
        let specs: Vec<(ArraySpec, Preview)> = specs.collect::<Outcome<_>>()?;
        let previews: Vec<&Preview> = specs.iter().map(|(_, preview)| preview).collect();
        option_check::judge(&previews, setup)?;
        for (spec, preview) in &specs {
            if option_check::lets_sleep(preview, setup) {
                warn_of_restless(&preview.name, spec, setup);
            }
        }
        if setup.start.read_only {
            specs
                .iter()
                .for_each(|(_, preview)| preview.warn_of_reading());
        }
        let names = specs.iter().map(|(_, preview)| preview.name.as_str());
        let ends = mpsc::channel();
        let had = beforehand(&names.collect::<Vec<_>>(), &ends.0)?;
        Ok((Running::of(specs, setup, ends)?, had))
    }

    fn of(
        hopes: Vec<(ArraySpec, Preview)>,
        setup: &Setup,
        (ends_sender, ends): (Sender<End>, Receiver<End>),
    ) -> Outcome<Running> {
        let (specs, previews): (Vec<_>, Vec<_>) = hopes.into_iter().unzip();
        let epoch = Instant::now();
        let options = ShellOptions {
            backend: setup.backend,
            memory: setup.memory,
        };
        let host_all = move |shell: &mut Shell| {
            specs
                .into_iter()
                .try_for_each(|spec| shell.host(spec).map(|_| ()))
        };
        let reactor = Shell::spawn(options, host_all).map_err(reactor_failure)?;
        let control = |array: usize| {
            let array = ServedArray::new(reactor.remote.clone(), array, epoch, setup.clone());
            Arc::new(Control::new(array, ends_sender.clone()))
        };
        let controls: Vec<Arc<Control>> = (0..previews.len()).map(control).collect();
        let running = Running {
            reactor,
            controls,
            ends,
            io_timeout: setup.io_timeout,
        };
        match running.start_all(&previews, setup) {
            Ok(()) => Ok(running),
            Err(failure) => {
                // The reason for the end is the failure to start; how the end went matters less.
                let _ = running.stop();
                Err(failure)
            }
        }
    }

    /// The doubtful ones first.
    fn start_all(&self, previews: &[Preview], setup: &Setup) -> Outcome {
        let mut order: Vec<_> = self.controls.iter().zip(previews).collect();
        order.sort_by_key(|(_, preview)| !preview.may_lose);
        for (control, preview) in order {
            // What a start goes on with is paced from its beginning.
            for pace in setup.paces().into_iter().chain([date()]) {
                control.array.command(pace)?;
            }
            let started = control.start(preview.start);
            started.map_err(|refused| preview.way_out(refused))?;
            preview.warn_of_lacking_surrogate();
        }
        Ok(())
    }

    /// The control of the first array.
    pub fn control(&self) -> &Control {
        &self.controls[0]
    }

    pub(crate) fn controls(&self) -> &[Arc<Control>] {
        &self.controls
    }

    pub fn remote(&self) -> &Remote {
        &self.reactor.remote
    }

    /// The next reason to end; `None` if there was none in this time.
    pub(crate) fn next_end(&self, within: Duration) -> Option<End> {
        self.ends.recv_timeout(within).ok()
    }

    /// Drains, flushes, marks clean, and waits for the end. An error if that was not achieved of every array. The wait has
    /// an end of its own: operations on members time out, and if nothing moves for twice as long, a member or the kernel
    /// holds the reactor itself.
    pub fn stop(self) -> Outcome {
        let before: Vec<BeforeEnd> = self
            .controls
            .iter()
            .map(|control| control.before_end())
            .collect();
        // It may have ended by itself, which joining tells.
        let _ = self.reactor.remote.shutdown();
        let patience = 2 * self.io_timeout + STUCK_AFTER;
        match self.reactor.join_moving(patience) {
            Some(ended) => ended.map_err(reactor_failure)?,
            None => return Err(stuck(patience)),
        }
        let ended = self.controls.iter().zip(before);
        let ended: Vec<Said> = ended
            .map(|(control, before)| control.ended(before))
            .collect();
        Ok(ended.into_iter().collect::<Said>()?)
    }
}

fn stuck(patience: Duration) -> Failure {
    let what = format!(
        "the shutdown hangs: no progress for {}",
        seconds(patience.as_secs())
    );
    Failure::new(what)
        .hint("check for a member that does not respond; the next start recovers writes in flight")
}

fn reactor_failure(error: io::Error) -> Failure {
    Failure::new(format!("the reactor: {error}"))
}
