//! Answers the control requests of one array: from the socket of a daemon, or from a verb that works offline.
//!
//! The parts know the array and what stands below them in this table, not each other's callers.
//!
//! | part | requests |
//! |---|---|
//! | [`lifecycle`] | start and stop, and how they went ([`start`]) |
//! | [`log_set`], [`leases`], [`growth`] | changes of the array, one at a time ([`changes`]) |
//! | [`members`], [`tasks`] | devices that come and go; scrubs, pace and order of tasks |
//! | [`attach`] | the block device of the kernel that the array is attached to |
//! | [`array`], [`facts`] | the engine's answers, its members by name, and the log of facts |

pub(crate) mod array;
mod attach;
mod changes;
mod facts;
mod growth;
mod leases;
pub(crate) mod lifecycle;
mod log_set;
mod members;
mod start;
mod tasks;

use array::{Answered, Said, ServedArray, done};
use attach::Attached;
use changes::Changes;
use lifecycle::{BeforeEnd, End, Lifecycle};
use log_set::LogSet;
use restripe_array::{Command, StartMode};
use restripe_io::control::{Answer, AttachedView, Reply, Request, StatusView};
use restripe_io::metrics;
use std::sync::mpsc::Sender;

/// The handler of control requests of one array.
pub(crate) struct Control {
    pub(crate) array: ServedArray,
    changes: Changes,
    life: Lifecycle,
    attached: Attached,
}

impl Control {
    /// `number` is the array's in the reactor. `epoch` is when the reactor began: the zero of its clock. `ends` takes a
    /// message when the array has stopped.
    pub(crate) fn new(array: ServedArray, ends: Sender<End>) -> Control {
        Control {
            array,
            changes: Changes::default(),
            life: Lifecycle::new(ends),
            attached: Attached::default(),
        }
    }

    pub(crate) fn start(&self, mode: StartMode) -> Said {
        self.life.start(&self.array, mode)
    }

    /// Looks at an array that is about to be stopped with its reactor.
    pub(crate) fn before_end(&self) -> BeforeEnd {
        self.life.before_end(&self.array)
    }

    /// How the array has ended, once the reactor has.
    pub(crate) fn ended(&self, before: BeforeEnd) -> Said {
        self.life.ended(&self.array, before)
    }

    /// Reconnects the block device that an earlier daemon of the array left.
    pub(crate) fn resume_device(&self) {
        self.attached.resume(&self.array);
    }

    /// Looks after the block device; to be called often.
    pub(crate) fn tend_device(&self) {
        self.attached.tend(&self.array);
    }

    /// The block device, if the array is attached or was by an earlier daemon.
    pub(crate) fn device(&self) -> Option<AttachedView> {
        self.attached.view()
    }

    fn status(&self) -> Said<StatusView> {
        let attached = self.attached.view();
        let view = self.array.status()?;
        Ok(StatusView { attached, ..view })
    }

    /// A device goes before its array, and an array with a device in use does not stop. An array that may not
    /// stop keeps its device.
    fn stop(&self) -> Answered {
        let may_stop = || self.life.may_stop(&self.array);
        may_stop()?;
        let stop = || self.life.stop(&self.array);
        self.attached.end_and(&self.array, &may_stop, stop)
    }

    fn log_set(&self) -> LogSet<'_> {
        LogSet {
            array: &self.array,
            changes: &self.changes,
            life: &self.life,
        }
    }

    fn serve(&self, request: Request) -> Answered {
        let array = &self.array;
        match request {
            Request::Status => Ok(Reply::Status(Box::new(self.status()?))),
            Request::Metrics => Ok(Reply::Metrics {
                text: metrics::render(&array.status()?, &array.heat(0)?),
            }),
            Request::Heat { most } => Ok(Reply::Heat(Box::new(array.heat(most as usize)?))),
            Request::Facts { since } => {
                let (facts, next) = array.facts_since(since);
                Ok(Reply::Facts { facts, next })
            }
            Request::Which { member } => Ok(done(&array.resolve(&member)?.1)),
            Request::Fail {
                member,
                accept_loss,
                dry_run,
            } => members::fail(array, &member, accept_loss, dry_run),
            Request::Remove { member } => members::remove(array, &member),
            Request::Add {
                path,
                force,
                to_surrogate,
                to_buffer,
            } => members::add(array, &path, force, to_surrogate, to_buffer),
            Request::Replace { old, path, force } => members::replace(array, &old, &path, force),
            Request::Grow {
                members,
                moves,
                force,
                dry_run,
            } => {
                let asked = growth::Asked {
                    members: &members,
                    moves: moves.as_deref(),
                    force,
                };
                growth::grow(array, &self.changes, &asked, dry_run)
            }
            Request::AddSurrogate {
                members,
                level,
                force,
            } => self.log_set().add(&members, level.as_deref(), force),
            Request::RemoveSurrogate => self.log_set().remove(),
            Request::Destage => array.order(Command::Destage, "destage started"),
            Request::Scrub { repair, sync } => tasks::scrub(array, repair, sync),
            Request::Pause => array.order(Command::Pause(true), "paused"),
            Request::Resume => array.order(Command::Pause(false), "resumed"),
            Request::Cancel => array.order(Command::Cancel, "the scrub is cancelled"),
            Request::Rate {
                min_bytes,
                max_bytes,
            } => tasks::rate(array, min_bytes, max_bytes),
            Request::Throttle { name } => tasks::throttle(array, &name),
            Request::Order { name } => tasks::order(array, &name),
            Request::OnDemand { on } => tasks::on_demand(array, on),
            Request::CopyBack { on } => tasks::copy_back(array, on),
            Request::Lend { lease, bytes } => leases::lend(array, &self.changes, &lease, bytes),
            Request::TakeBack { lease, force } => {
                leases::take_back(array, &self.changes, &lease, force)
            }
            Request::Attach { device, options } => {
                self.attached.attach(array, device.as_deref(), options)
            }
            Request::Detach => self.attached.detach(array),
            Request::Stop => self.stop(),
        }
    }
}

impl Answer for Control {
    fn answer(&self, request: Request) -> Reply {
        self.serve(request).unwrap_or_else(Reply::Refused)
    }
}
