//! A world with users: requests are made, remembered in the oracle, and every reply is judged.

use crate::invariant::{Invariant, Violation};
use crate::oracle::{FlushTicket, Oracle, ReadTicket, WriteId, WriteKind};
use crate::workload::Ask;
use crate::world::{Happening, Machine, World};
use restripe_array::layout::Layout;
use restripe_array::report::ArrayState;
use restripe_array::{
    Buf, BufRef, Command, CommandError, CommandTag, Fact, FailCause, Halt, Member, Nanos, Request,
    RequestError, RequestOp, RequestTag, SECTOR_BYTES, ScrubMode,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A request outstanding for longer is stuck: several time-outs one after another, of mirrors that are two minutes on their way to rest
/// and back, and a recovery.
pub const PATIENCE: Nanos = Nanos::from_secs(300);

/// Names sectors of a world's array.
pub type Survey<M> = fn(&World<M>) -> Vec<u64>;

/// A request without a reply yet.
#[derive(Clone, Copy, Debug)]
struct Open {
    what: Asked,
    buf: Option<Buf>,
    lba: u64,
    sectors: u64,
    fua: bool,
}

#[derive(Clone, Copy, Debug)]
enum Asked {
    Write(WriteId),
    Read(ReadTicket),
    Flush(FlushTicket),
}

/// What is left to the scenario.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum News {
    Mark(u64),
    CommandReply(CommandTag, Result<(), CommandError>),
    Fact(Fact),
}

pub struct Session<M> {
    pub world: World<M>,
    pub oracle: Oracle,
    open: BTreeMap<u64, Open>,
    next_tag: u64,
    news: VecDeque<News>,
    /// Parts of reads that told of a loss, to be read again when there is room.
    backlog: VecDeque<(u64, u64)>,
    violations: Vec<Violation>,
    /// The array may refuse requests: it is stopping, or too much of it is gone.
    pub refusals_expected: bool,
    /// Some member may be without space: requests may be refused for that.
    pub space_is_short: bool,
    /// The members that may be, or were.
    pub full: BTreeSet<Member>,
    /// The array writes nothing any more, and promises nothing.
    pub halted: Option<Halt>,
    /// It has stopped.
    stopped: bool,
    asked_before_halt: u64,
    /// Something may have been under way when it halted.
    cut_short: bool,
    /// Requests that were refused, by [`Session::refusals_expected`].
    pub refused: u64,
    /// Replies in all.
    pub replies: u64,
    /// Writes that were acknowledged as durable.
    pub durable_replies: u64,
    /// Sectors that reads were told are lost.
    pub told_lost: BTreeSet<u64>,
    /// In ruins: the sectors that the media do not give any more. Asked whenever a member fails for its read errors,
    /// for what was one loss too many already may then be two.
    pub unreadable: Option<Survey<M>>,
}

impl<M: Machine> Session<M> {
    pub fn new(world: World<M>, oracle: Oracle) -> Session<M> {
        Session {
            world,
            oracle,
            open: BTreeMap::new(),
            next_tag: 1,
            news: VecDeque::new(),
            backlog: VecDeque::new(),
            violations: Vec::new(),
            refusals_expected: false,
            space_is_short: false,
            full: BTreeSet::new(),
            halted: None,
            stopped: false,
            asked_before_halt: 0,
            cut_short: false,
            refused: 0,
            replies: 0,
            durable_replies: 0,
            told_lost: BTreeSet::new(),
            unreadable: None,
        }
    }

    /// Breaches found so far, by the users and by the world.
    pub fn violations(&self) -> impl Iterator<Item = &Violation> {
        self.violations.iter().chain(self.world.violations())
    }

    pub fn violation(&mut self, invariant: Invariant, detail: impl Into<String>) {
        self.violations.push(Violation::new(invariant, detail));
    }

    pub fn outstanding(&self) -> usize {
        self.open.len() + self.backlog.len()
    }

    /// The requests without a reply, in words: the first few.
    pub fn waiting(&self) -> String {
        let asked = |open: &Open| format!("{:?} of {} +{}", open.what, open.lba, open.sectors);
        let few: Vec<String> = self.open.values().take(4).map(asked).collect();
        few.join("; ")
    }

    // ---------------------------------------------------------------------------------------------- asking

    /// Makes this request.
    pub fn issue(&mut self, ask: Ask) {
        match ask {
            Ask::Read { lba, sectors } => self.read(lba, sectors),
            Ask::Write {
                lba,
                sectors,
                kind,
                fua,
                fast,
            } => self.write(lba, sectors, kind, fua, fast),
            Ask::Flush => self.flush(),
        }
    }

    pub fn write(&mut self, lba: u64, sectors: u64, kind: WriteKind, fua: bool, fast: bool) {
        let id = self.oracle.write(lba, sectors, kind, fua);
        let op = match kind {
            WriteKind::Data => RequestOp::Write,
            WriteKind::Zeroes => RequestOp::WriteZeroes { fast },
            WriteKind::Trim => RequestOp::Trim,
        };
        let buf = (kind == WriteKind::Data).then(|| self.fill(id, sectors));
        self.ask(Asked::Write(id), buf, (lba, sectors), fua, op);
    }

    fn fill(&mut self, id: WriteId, sectors: u64) -> Buf {
        let bytes = (sectors * SECTOR_BYTES) as u32;
        let memory = self.world.memory();
        let buf = memory.allocate(bytes);
        self.oracle
            .fill(id, memory.get_mut(BufRef::new(buf, 0, bytes)));
        buf
    }

    pub fn read(&mut self, lba: u64, sectors: u64) {
        let ticket = self.oracle.read(lba, sectors);
        let bytes = (sectors * SECTOR_BYTES) as u32;
        let memory = self.world.memory();
        let buf = memory.allocate(bytes);
        // What stands there is nobody's data: a read that forgets a sector is found out.
        memory.get_mut(BufRef::new(buf, 0, bytes)).fill(0xdb);
        let (asked, op) = (Asked::Read(ticket), RequestOp::Read);
        self.ask(asked, Some(buf), (lba, sectors), false, op);
    }

    pub fn flush(&mut self) {
        let ticket = self.oracle.flush();
        self.ask(Asked::Flush(ticket), None, (0, 0), false, RequestOp::Flush);
    }

    fn ask(
        &mut self,
        what: Asked,
        buf: Option<Buf>,
        (lba, sectors): (u64, u64),
        fua: bool,
        op: RequestOp,
    ) {
        let open = Open {
            what,
            buf,
            lba,
            sectors,
            fua,
        };
        let tag = self.next_tag;
        self.next_tag += 1;
        self.open.insert(tag, open);
        let bytes = open.sectors * SECTOR_BYTES;
        let buf = match open.buf {
            Some(buf) => BufRef::new(buf, 0, bytes as u32),
            None => BufRef::new(Buf(Buf::USER), 0, 0),
        };
        let offset = open.lba * SECTOR_BYTES;
        if self.world.traces() {
            eprintln!(
                "  {:>14} asks {tag}: {op:?} {} +{}{}",
                self.world.now().0,
                open.lba,
                open.sectors,
                if open.fua { " fua" } else { "" }
            );
        }
        self.world.request(Request {
            tag: RequestTag(tag),
            op,
            offset,
            bytes,
            buf,
            fua: open.fua,
        });
        self.listen();
    }

    /// Gives a command; its reply comes as [`News::CommandReply`].
    pub fn command(&mut self, command: Command) -> CommandTag {
        let tag = CommandTag(self.next_tag);
        self.next_tag += 1;
        self.world.command(tag, command);
        self.listen();
        tag
    }

    /// Asks for [`News::Mark`] this long from now.
    pub(crate) fn mark_in(&mut self, delay: Nanos, mark: u64) {
        let at = self.world.now().after(delay);
        self.world.mark(at, mark);
    }

    pub fn scrub(&mut self, repair: bool) {
        self.command(Command::Scrub(ScrubMode::writing(repair)));
    }

    // -------------------------------------------------------------------------------------------- listening

    /// Steps until a command is answered, and discards other notices.
    pub fn answer(&mut self, command: Command, steps: u64) -> Option<Result<(), CommandError>> {
        let tag = self.command(command);
        for _ in 0..steps {
            while let Some(news) = self.news() {
                match news {
                    News::CommandReply(answered, result) if answered == tag => return Some(result),
                    _ => {}
                }
            }
            self.step();
        }
        None
    }

    /// One step of the world. False when nothing is to come.
    pub fn step(&mut self) -> bool {
        while self.world.ready() && !self.backlog.is_empty() {
            let (lba, sectors) = self.backlog.pop_front().expect("just seen");
            self.read(lba, sectors);
        }
        let more = self.world.step();
        self.listen();
        more
    }

    pub fn news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    pub fn listen(&mut self) {
        while let Some(happening) = self.world.happening() {
            match happening {
                Happening::Reply(tag, result) => self.replied(tag, result),
                Happening::CommandReply(tag, result) => {
                    self.news.push_back(News::CommandReply(tag, result))
                }
                Happening::Fact(fact) => {
                    self.ruin_further(&fact);
                    if let Fact::Started { .. } = fact {
                        // Also after a halt: what was cut short is recovered.
                        self.halted = None;
                        self.stopped = false;
                        self.cut_short = false;
                    }
                    self.stopped |= fact == Fact::Stopped;
                    // A member that goes after the stop is no fault of it.
                    if let Fact::Halted(why) = fact
                        && !self.stopped
                    {
                        self.halted = Some(why);
                        self.asked_before_halt = self.next_tag;
                        let writes = |open: &Open| matches!(open.what, Asked::Write(_));
                        let at_rest = self.unreadable.is_some();
                        self.cut_short |= !at_rest || self.open.values().any(writes);
                    }
                    self.news.push_back(News::Fact(fact));
                }
                Happening::Mark(mark) => self.news.push_back(News::Mark(mark)),
            }
        }
    }

    fn ruin_further(&mut self, fact: &Fact) {
        let failed =
            matches!(fact, Fact::MemberFailed { why, .. } if *why == FailCause::ReadErrors);
        if let Some(unreadable) = self.unreadable.filter(|_| failed) {
            for lba in unreadable(&self.world) {
                self.oracle.allow_loss(lba);
            }
        }
    }

    fn replied(&mut self, tag: RequestTag, result: Result<(), RequestError>) {
        let open = self.open.remove(&tag.0);
        let open = open.expect("the world knows which requests are outstanding");
        if self.world.traces() {
            eprintln!("  {:>14} reply {} {result:?}", self.world.now().0, tag.0);
        }
        self.replies += 1;
        self.hold_to_halt(tag.0, &open, result);
        match open.what {
            Asked::Write(id) => {
                self.oracle.write_ended(id, result.is_ok());
                self.durable_replies += u64::from(open.fua && result.is_ok());
            }
            Asked::Flush(ticket) => self.oracle.flush_ended(ticket, result.is_ok()),
            Asked::Read(ticket) if result.is_ok() => self.judge(&open, ticket),
            Asked::Read(ticket) => self.oracle.read_failed(ticket),
        }
        if let Some(buf) = open.buf {
            self.world.memory().release(buf);
        }
        if let Err(error) = result {
            self.refusal(&open, error);
        }
    }

    /// What is halted acknowledges nothing but reads; without space there is one answer to everything else.
    fn hold_to_halt(&mut self, tag: u64, open: &Open, result: Result<(), RequestError>) {
        let right = match self.halted {
            None => true,
            Some(Halt::Owned(_)) => result.is_err(),
            Some(Halt::NoSpace) => {
                matches!(result, Err(RequestError::NoSpace | RequestError::NotFast))
            }
            Some(Halt::TooFew) => result.is_err() || self.surrogate_had(tag),
        };
        if !right && !matches!(open.what, Asked::Read(_)) {
            let asked = format!("{:?} {} +{}", open.what, open.lba, open.sectors);
            self.violation(Invariant::HaltBroken, format!("{asked}: {result:?}"));
        }
    }

    /// Whether a surrogate may have had this request before home halted: what it took, it has.
    fn surrogate_had(&self, tag: u64) -> bool {
        tag < self.asked_before_halt && self.world.status().surrogate.is_some()
    }

    fn judge(&mut self, open: &Open, ticket: ReadTicket) {
        let bytes = (open.sectors * SECTOR_BYTES) as u32;
        let buf = open.buf.expect("a read has a buffer");
        let contents = self.world.memory().get(BufRef::new(buf, 0, bytes));
        if let Err(violation) = self.oracle.read_ended(ticket, contents) {
            // Copies that a halt left different cannot be made one before the next start.
            let wavers = violation.invariant == Invariant::UnstableRead;
            if wavers && self.doubtful() {
                return;
            }
            self.violations.push(violation);
        }
    }

    fn refusal(&mut self, open: &Open, error: RequestError) {
        match error {
            RequestError::Lost { lba, sectors } => self.lost(open, lba, sectors),
            RequestError::NotFast => {}
            RequestError::NoSpace if self.space_is_short && !self.tolerates_full() => {
                self.refused += 1;
            }
            _ if self.refusals_expected => self.refused += 1,
            _ => self.violation(
                Invariant::RequestRefused,
                format!("{:?} {} +{}: {error}", open.what, open.lba, open.sectors),
            ),
        }
    }

    /// Whether redundancy tolerates all members without space, so that none of them is a reason to refuse anything.
    fn tolerates_full(&self) -> bool {
        let status = self.world.status();
        let whole = status.state == ArrayState::Healthy && status.tasks.is_empty();
        let geometry = status.geometry;
        let layout = geometry.and_then(|geometry| Layout::new(geometry).ok());
        let tolerance = layout.map_or(0, |layout| layout.tolerance());
        whole && self.full.len() <= usize::from(tolerance)
    }

    /// Sectors were called lost. That must be allowed for, and the rest of the request must still be readable.
    fn lost(&mut self, open: &Open, lba: u64, sectors: u64) {
        let oracle = &self.oracle;
        let allowed = |lba: &u64| match open.what {
            Asked::Read(ticket) => oracle.may_be_lost(*lba, Some(ticket)),
            Asked::Write(id) => oracle.may_be_lost_to_write(*lba, id),
            Asked::Flush(_) => false,
        };
        let wrongly: Vec<u64> = match self.doubtful() {
            true => Vec::new(),
            false => (lba..lba + sectors).filter(|lba| !allowed(lba)).collect(),
        };
        let block = u64::from(self.world.status().logical_block.max(512)) / SECTOR_BYTES;
        let (from, end) = (open.lba / block * block, open.lba + open.sectors);
        let outside = lba < from || lba + sectors > end.next_multiple_of(block) || sectors == 0;
        if outside || !wrongly.is_empty() {
            let asked = format!("{:?} of {} +{}", open.what, open.lba, open.sectors);
            let detail = format!(
                "{asked}: {sectors} sectors at {lba} are called lost; not allowed for {wrongly:?}"
            );
            return self.violation(Invariant::LossReportedWrongly, detail);
        }
        if matches!(open.what, Asked::Read(_)) {
            self.told_lost.extend(lba..lba + sectors);
            if !self.doubtful() {
                self.reread(open);
            }
        }
    }

    /// A fact calls sectors lost: that must be allowed for.
    pub fn judge_loss(&mut self, lba: u64, sectors: u64) {
        let allowed = |lba: &u64| self.oracle.may_be_lost(*lba, None);
        let wrongly: Vec<u64> = (lba..lba + sectors).filter(|lba| !allowed(lba)).collect();
        if !wrongly.is_empty() {
            let detail = format!(
                "a fact calls {sectors} sectors at {lba} lost; not allowed for {wrongly:?}"
            );
            self.violation(Invariant::LossReportedWrongly, detail);
        }
    }

    /// Whether something can only be had from redundancy: where a halt cut writes short, that is in doubt until the next
    /// start.
    fn doubtful(&self) -> bool {
        if !self.cut_short {
            return false;
        }
        let unreadable = |member| self.world.disk(member).faults.latent().next().is_some();
        let healthy = self.world.status().state == ArrayState::Healthy;
        !healthy || self.world.members().any(unreadable)
    }

    /// Reads in halves what could not be read as a whole.
    fn reread(&mut self, open: &Open) {
        let block = u64::from(self.world.status().logical_block.max(512)) / SECTOR_BYTES;
        let half = (open.sectors / 2).div_ceil(block) * block;
        if half < open.sectors && half > 0 {
            self.backlog.push_back((open.lba, half));
            self.backlog
                .push_back((open.lba + half, open.sectors - half));
        }
    }

    // ------------------------------------------------------------------------------------------------ ends

    /// Steps until nobody waits for anything. After `patience` without an end, the oldest request is stuck.
    pub fn settle(&mut self, patience: Nanos) -> bool {
        let deadline = self.world.now().after(patience);
        while !self.world.quiescent() || !self.backlog.is_empty() {
            let more = self.step();
            if self.violations().next().is_some() {
                return false;
            }
            if (!more && !self.world.quiescent()) || self.world.now() > deadline {
                let detail = format!(
                    "nothing ends them: {} ({} operations under way)",
                    self.waiting(),
                    self.world.operations()
                );
                self.violation(Invariant::StuckRequest, detail);
                return false;
            }
        }
        true
    }

    /// Reads the whole array, `at_once` sectors a request.
    pub fn read_all(&mut self, at_once: u64, patience: Nanos) -> bool {
        let size = self.oracle.sectors();
        let mut lba = 0;
        while lba < size {
            let sectors = at_once.min(size - lba);
            while !self.world.ready() {
                if !self.settle(patience) {
                    return false;
                }
            }
            self.read(lba, sectors);
            lba += sectors;
        }
        self.settle(patience)
    }
}
