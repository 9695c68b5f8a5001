//! A drive's command queue: which of the waiting commands is served next.
//!
//! | state | event | next |
//! |---|---|---|
//! | nothing served | a command is submitted | it is served |
//! | serving | a command is submitted | it waits |
//! | serving | the completion falls due | the policy's choice of those waiting is served, or nothing is |

use super::mechanical::{Command, Mechanical};

/// Who is next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// In order of arrival.
    Fcfs,
    /// The nearest one ahead of the arm; at the last one the arm turns round.
    Look,
    /// The one that arm and platter reach soonest (Jacobson and Wilkes 1991; Seltzer et al. 1990), but whoever has
    /// waited longer than `patience_ns` goes first.
    Sptf { patience_ns: u64 },
}

/// What serves commands one at a time.
pub trait Server {
    /// Serves a command from `now`; says when it completes.
    fn serve(&mut self, now: u64, command: Command) -> u64;
    /// Brings what it does by itself up to `now`, where a choice is made.
    fn reach(&mut self, now: u64) {
        let _ = now;
    }
    /// How long positioning for a command would take, from the time reached.
    fn positioning(&self, now: u64, command: Command) -> u64;
    /// The block that the arm is nearest to.
    fn arm(&self) -> u64;
}

impl Server for Mechanical {
    fn serve(&mut self, now: u64, command: Command) -> u64 {
        self.service(now, command)
    }

    fn reach(&mut self, now: u64) {
        self.advance(now);
    }

    fn positioning(&self, now: u64, command: Command) -> u64 {
        Mechanical::positioning(self, now, command)
    }

    fn arm(&self) -> u64 {
        self.last_block()
    }
}

/// A command that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    pub id: u64,
    pub arrived: u64,
    pub command: Command,
}

/// A command that was served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completed {
    pub id: u64,
    pub arrived: u64,
    pub started: u64,
    pub ended: u64,
}

pub struct Queue<S> {
    server: S,
    policy: Policy,
    depth: usize,
    /// In order of arrival.
    waiting: Vec<Waiting>,
    serving: Option<Completed>,
    upward: bool,
}

impl<S: Server> Queue<S> {
    /// At most `depth` commands are within the drive, the one being served included.
    pub fn new(server: S, policy: Policy, depth: u32) -> Queue<S> {
        assert!(depth > 0, "a drive takes at least one command");
        Queue {
            server,
            policy,
            depth: depth as usize,
            waiting: Vec::with_capacity(depth as usize),
            serving: None,
            upward: true,
        }
    }

    pub fn server(&self) -> &S {
        &self.server
    }

    pub fn server_mut(&mut self) -> &mut S {
        &mut self.server
    }

    pub fn full(&self) -> bool {
        self.len() >= self.depth
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Commands within the drive.
    pub fn len(&self) -> usize {
        self.waiting.len() + usize::from(self.serving.is_some())
    }

    /// Takes a command in. `now` is not before any time given earlier, nor after [`Queue::next_event`].
    pub fn submit(&mut self, now: u64, id: u64, command: Command) {
        assert!(!self.full(), "the host keeps to the drive's depth");
        self.waiting.push(Waiting {
            id,
            arrived: now,
            command,
        });
        if self.serving.is_none() {
            self.start(now);
        }
    }

    /// When the next command completes.
    pub fn next_event(&self) -> Option<u64> {
        self.serving.map(|serving| serving.ended)
    }

    /// The command that completed by `now`, if one did; the next one is then under way.
    pub fn advance(&mut self, now: u64) -> Option<Completed> {
        let done = self.serving.filter(|serving| serving.ended <= now)?;
        self.serving = None;
        self.start(done.ended);
        Some(done)
    }

    fn start(&mut self, now: u64) {
        if self.waiting.is_empty() {
            return;
        }
        self.server.reach(now);
        let (waiting, upward) = (&self.waiting, &mut self.upward);
        let index = choose(self.policy, &self.server, now, waiting, upward);
        let next = self.waiting.remove(index);
        let ended = self.server.serve(now, next.command);
        self.serving = Some(Completed {
            id: next.id,
            arrived: next.arrived,
            started: now,
            ended,
        });
    }
}

/// The index of the command to serve next. `upward` is which way the arm sweeps.
pub fn choose<S: Server>(
    policy: Policy,
    server: &S,
    now: u64,
    waiting: &[Waiting],
    upward: &mut bool,
) -> usize {
    match policy {
        Policy::Fcfs => 0,
        Policy::Look => look(server.arm(), waiting, upward),
        Policy::Sptf { patience_ns } => {
            if now.saturating_sub(waiting[0].arrived) > patience_ns {
                return 0;
            }
            least(waiting, |entry| server.positioning(now, entry.command))
        }
    }
}

fn look(arm: u64, waiting: &[Waiting], upward: &mut bool) -> usize {
    let is_ahead = |entry: &Waiting, upward: bool| (entry.command.block >= arm) == upward;
    if !waiting.iter().any(|entry| is_ahead(entry, *upward)) {
        *upward = !*upward;
    }
    least(waiting, |entry| {
        if is_ahead(entry, *upward) {
            entry.command.block.abs_diff(arm)
        } else {
            u64::MAX
        }
    })
}

fn least(waiting: &[Waiting], key: impl Fn(&Waiting) -> u64) -> usize {
    let keys = waiting.iter().map(key).zip(0..);
    keys.min().map_or(0, |(_, index)| index)
}
