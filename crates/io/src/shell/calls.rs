//! Calls from other threads, and the answers that engines owe them.

use super::Shell;
#[cfg(feature = "ublk")]
use crate::front::Export;
use crate::front::Nudge;
use crate::front::connection::Connection;
use crate::host::Host;
use crate::member::OpenMember;
use crate::remote::{Call, MemberName, NotTaken};
use restripe_array::Slab;
use restripe_array::report::Status as SetStatus;
use restripe_array::{Command, CommandError, CommandTag, Fact, Member, Nanos};
use restripe_tier::Engine;
use restripe_tier::report::Status;
use std::io;
use std::sync::mpsc::Sender;

enum Asker {
    Thread(Sender<Result<(), CommandError>>),
    /// One that takes a lease back.
    Lender {
        lease: usize,
        reply: Sender<Result<(), CommandError>>,
    },
    /// The reactor itself, which is shutting down.
    Shutdown,
    /// The reactor itself, which notes who borrows a lease.
    Note {
        lease: usize,
    },
}

/// How far the reactor's end has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Ending {
    #[default]
    No,
    /// So many arrays have not yet stopped.
    Stopping {
        arrays: usize,
    },
    Now,
}

/// Who waits for what.
#[derive(Default)]
pub(super) struct Answers {
    commands: Slab<Asker>,
    facts: Vec<(usize, Sender<(Nanos, Fact)>)>,
    ending: Ending,
}

impl Answers {
    fn asker(&mut self, tag: CommandTag) -> Asker {
        let index = u32::try_from(tag.0).expect("tags are indexes of the list");
        let asker = self.commands.remove(index);
        asker.expect("a command is answered once")
    }

    fn one_stopped(&mut self) {
        if let Ending::Stopping { arrays } = &mut self.ending {
            *arrays -= 1;
        }
    }

    pub fn fact(&mut self, array: usize, now: Nanos, fact: &Fact) {
        self.facts
            .retain(|(of, sink)| *of != array || sink.send((now, fact.clone())).is_ok());
    }

    pub fn stopping(&self) -> bool {
        self.ending != Ending::No
    }

    pub fn ended(&self) -> bool {
        matches!(self.ending, Ending::Now | Ending::Stopping { arrays: 0 })
    }
}

#[cfg(feature = "ublk")]
fn export_named(hosts: &[Host], name: &str) -> Option<Export> {
    let mut exports = hosts.iter().map(Host::export);
    exports.find(|export| export.name == name)
}

/// Operations on the members of all sets of an array.
fn progress(status: &Status) -> u64 {
    let of_set = |set: &SetStatus| set.counters.ios.iter().sum::<u64>();
    let of_surrogate = status.surrogate.as_ref().map_or(0, |surrogate| {
        let buffer = surrogate.buffer.as_ref();
        of_set(&surrogate.set) + buffer.map_or(0, |buffer| of_set(&buffer.set))
    });
    of_set(&status.set) + of_surrogate
}

impl Shell {
    fn ask_engine<T>(
        &self,
        array: usize,
        question: impl FnOnce(&Engine) -> Result<T, CommandError>,
    ) -> Result<T, CommandError> {
        let host = self.hosts.get(array).ok_or(CommandError::NoArray)?;
        question(host.engine())
    }

    /// Answers that nobody waits for any more are dropped.
    pub(super) fn call(&mut self, call: Call) {
        match call {
            Call::Status(array, reply) => {
                let _ = reply.send(self.hosts.get(array).map(Host::status));
            }
            Call::Progress(reply) => {
                let _ = reply.send(self.hosts.iter().map(|host| progress(&host.status())).sum());
            }
            Call::Heat(array, reply) => {
                let heat = |host: &Host| host.engine().heat();
                let _ = reply.send(self.hosts.get(array).map(heat));
            }
            Call::Growth(array, by, reply) => {
                let _ = reply.send(self.ask_engine(array, |engine| engine.growth_plan(by)));
            }
            Call::MayFail(array, member, reply) => {
                let _ = reply.send(self.ask_engine(array, |engine| engine.may_fail(member)));
            }
            #[cfg(feature = "ublk")]
            Call::Export(name, reply) => drop(reply.send(export_named(&self.hosts, &name))),
            #[cfg(feature = "ublk")]
            Call::HasCommands(reply) => drop(reply.send(self.backend.has_commands())),
            Call::Names(array, reply) => {
                let _ = reply.send(self.names(array));
            }
            Call::LeaseUses(array, reply) => {
                let _ = reply.send(self.lease_uses(array));
            }
            Call::Command(array, command, reply) => self.command(array, command, reply),
            Call::Arrive(array, member, reply) => {
                let _ = reply.send(self.arrive(array, member));
            }
            Call::Close(array, member) => {
                if let Some(host) = self.hosts.get_mut(array) {
                    host.close(member);
                }
            }
            Call::Hold(array, held) => {
                if let Some(host) = self.hosts.get_mut(array) {
                    host.hold(held);
                    self.quiet = false;
                }
            }
            Call::MayExchange(array, reply) => {
                let may = self.hosts.get(array).map(Host::may_exchange);
                let _ = reply.send(may.unwrap_or_else(|| Err(io::Error::other("no such array"))));
            }
            Call::Exchange(array, change, reply) => {
                let exchanged = self.hosts.get_mut(array).map(|host| host.exchange(*change));
                let _ =
                    reply.send(exchanged.unwrap_or_else(|| Err(io::Error::other("no such array"))));
            }
            Call::Facts(array, sink) => self.answers.facts.push((array, sink)),
            Call::Submit(request, reply) => self.submit_local(request, reply),
            Call::Listen(listener, protocol) => self.listen(listener, protocol),
            Call::Adopt(wire, protocol) => self.adopt(wire, &protocol),
            Call::Connections(reply) => {
                let _ = reply.send(self.connections.len());
            }
            Call::TurnedAway(reply) => {
                let _ = reply.send(self.turned_away);
            }
            Call::Wake(connection) => self.nudges.push((connection, Nudge::Wake)),
            Call::Shutdown => self.shut_down(),
            Call::Abandon => self.answers.ending = Ending::Now,
        }
    }

    /// Takes a device in. One that makes nothing durable is refused while a client has an export of the array that
    /// offered flushes: such a client goes on to rely on them.
    fn arrive(&mut self, array: usize, member: OpenMember) -> Result<Member, NotTaken> {
        let host = self.hosts.get(array).ok_or(NotTaken::NoArray)?;
        if member.info.volatile && host.export().durable && self.has_clients(array) {
            return Err(NotTaken::Promised);
        }
        Ok(self.hosts[array].arrive(member))
    }

    fn has_clients(&self, array: usize) -> bool {
        let of_array = |(_, one): (u32, &Connection)| {
            let mut exports = one.exports();
            exports.any(|export| self.host_of(export) == Some(array))
        };
        self.connections.iter().any(of_array)
    }

    /// The array behind an export: itself, or the one that lends.
    fn host_of(&self, export: usize) -> Option<usize> {
        match export.checked_sub(self.hosts.len()) {
            None => Some(export),
            Some(lease) => self.exposed.get(lease).map(|exposed| exposed.host),
        }
    }

    fn names(&self, array: usize) -> Vec<MemberName> {
        let Some(host) = self.hosts.get(array) else {
            return Vec::new();
        };
        let named = |(name, open): (&str, bool)| MemberName {
            name: name.to_owned(),
            open,
        };
        host.member_names().map(named).collect()
    }

    fn command(&mut self, array: usize, command: Command, reply: Sender<Result<(), CommandError>>) {
        if self.hosts.get(array).is_none() {
            let _ = reply.send(Err(CommandError::NoArray));
            return;
        }
        if let Err(error) = self.lease_in_the_way(array, &command) {
            let _ = reply.send(Err(error));
            return;
        }
        let asker = match self.lease_to_take_back(array, &command) {
            Some(lease) => {
                self.note_leaving(lease, true);
                Asker::Lender { lease, reply }
            }
            None => Asker::Thread(reply),
        };
        self.order(array, asker, command);
    }

    fn order(&mut self, array: usize, asker: Asker, command: Command) {
        let index = self.answers.commands.insert(asker);
        self.hosts[array].command(CommandTag(u64::from(index)), command);
    }

    /// Has an array's table say who borrows a lease.
    pub(super) fn note_borrower(&mut self, array: usize, lease: usize, command: Command) {
        self.order(array, Asker::Note { lease }, command);
    }

    pub(super) fn command_answered(&mut self, tag: CommandTag, result: Result<(), CommandError>) {
        match self.answers.asker(tag) {
            // Whoever asked may have gone; that is their affair.
            Asker::Thread(reply) => {
                let _ = reply.send(result);
            }
            Asker::Lender { lease, reply } => self.taken_back(lease, result, reply),
            Asker::Shutdown => self.answers.one_stopped(),
            Asker::Note { lease } => self.noted(lease, result.is_ok()),
        }
    }

    fn shut_down(&mut self) {
        if self.answers.stopping() {
            return;
        }
        self.close_listeners();
        self.answers.ending = Ending::Stopping {
            arrays: self.hosts.len(),
        };
        for host in &mut self.hosts {
            let index = self.answers.commands.insert(Asker::Shutdown);
            host.command(CommandTag(u64::from(index)), Command::Stop);
        }
    }
}
