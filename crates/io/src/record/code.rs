//! The record's encoding: events as they are stored, actions as they are summed, and back.

use super::coded::{Coded, Reader, Stop, Taken, Writer, around, fields, one_of_all, variants};
use restripe_array::cache::Rule;
use restripe_array::{
    Action, ArrayOwner, Buf, BufRef, CacheLimits, Class, Command, CommandTag, Compute, ComputeOp,
    DeviceIo, ENDED_MAX, Event, Guilty, HeatLimits, IoError, IoOp, LeaseCommand, LeaseName, Limits,
    Member, MemberInfo, Moves, Nanos, Order, Page, Pool, Request, RequestOp, RequestTag, ScrubMode,
    Segment, StartMode, Tag, Throttle, Uuid, Verdict,
};
use restripe_tier::DestageOrder;
use restripe_tier::{Config, Destage, Redirect, Sleep, SurrogateConfig, SurrogateLimits};

/// The most requests, slices and operations that a record may speak of.
const BOUND_MAX: u32 = 1 << 20;
/// The most extents of an overlay's map: 8 GiB of them.
const EXTENTS_MAX: u32 = 1 << 28;
/// The least small buffers that are left to the engine beside a read cache.
const SMALL_MIN: u32 = 128;

/// The bytes that a list of actions is compared by.
pub fn encode_actions(actions: &[Action], into: &mut Vec<u8>) {
    let mut writer = Writer::over(std::mem::take(into));
    actions.iter().for_each(|action| writer.action(action));
    *into = writer.take();
}

/// An event as it is stored: operations by their tags.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Stored {
    Plain(Event),
    /// Whether pages are here, of this and of the next, depends on the operation: they are read when it is known.
    Device(Tag, Result<(), IoError>),
    Compute(Tag, Verdict),
}

around!(Buf, CommandTag, Member, Nanos, RequestTag, Tag);
one_of_all!(Redirect, Rule, DestageOrder, Order, Moves, ScrubMode);
fields! {
    Pool { small, large }
    HeatLimits { zone_sectors, epoch }
    BufRef { buf, offset, bytes }
    Request { tag, op, offset, bytes, buf, fua }
    ArrayOwner { run, host, started, process, namespace, interval_ms }
    SurrogateLimits {
        pool, requests, slices, ios, extents, extent_sectors, copies, cluster_records, records_in_memory,
        buffer_pool, parts_home,
    }
}

variants! {
    RequestOp {
        0: Read, 1: Write, 2: Flush, 3: Trim,
        4: WriteZeroes { fast = false }, 5: WriteZeroes { fast = true },
        6: CompareAndWrite, 7: Or,
    }
    IoOp { 0: Read, 1: Write, 2: Flush, 3: Zero, 4: Trim, 5: Standby, 6: Wake, }
    Class { 0: User, 1: Parity, 2: Task, 3: Metadata, }
    ComputeOp { 0: Linear, 1: Checksum, 2: Compare, 3: Locate, 4: PutPage, 5: TakePage, 6: Or, }
    // 0 is no error.
    IoError { 1: Media, 2: Gone, 3: NoSpace, 4: Unsupported, 5: Other(errno), }
    Command {
        0: Start(mode),
        1: Stop,
        2: Fail(member),
        3: Remove(member),
        4: Add(member),
        5: Replace { old, new },
        6: Scrub(mode),
        7: Pause(pause),
        8: Cancel,
        9: Rate { min, max },
        10: Throttle(throttle),
        11: Order(order),
        12: OnDemand(on),
        13: AddToSurrogate(member),
        14: LogSet(array),
        15: Lease(command),
        16: CopyBack(on),
        17: Grow { by },
        18: Reshape { by },
        19: Moves(moves),
        20: Destage,
        21: AddToBuffer(member),
        22: Overwrite(member),
        23: Date(date),
    }
}

impl Coded for Option<CacheLimits> {
    fn put(&self, to: &mut Writer) {
        self.is_some().put(to);
        if let Some(CacheLimits { blocks, rule }) = self {
            blocks.put(to);
            rule.put(to);
        }
    }

    fn take(from: &mut Reader<'_>) -> Taken<Option<CacheLimits>> {
        if !bool::take(from)? {
            return Ok(None);
        }
        let (blocks, rule) = (Coded::take(from)?, Coded::take(from)?);
        let some = CacheLimits { blocks, rule };
        (blocks > 0).then_some(Some(some)).ok_or(Stop::Bad)
    }
}

impl Coded for Result<(), IoError> {
    fn put(&self, to: &mut Writer) {
        match self {
            Ok(()) => to.raw(&[0]),
            Err(error) => error.put(to),
        }
    }

    fn take(from: &mut Reader<'_>) -> Taken<Result<(), IoError>> {
        let mut after = from.clone();
        if u8::take(&mut after)? != 0 {
            return Ok(Err(Coded::take(from)?));
        }
        *from = after;
        Ok(Ok(()))
    }
}

impl Coded for Verdict {
    fn put(&self, to: &mut Writer) {
        match *self {
            Verdict::Done => to.raw(&[0]),
            Verdict::Checksum(sum) => to.tagged(1, &sum),
            Verdict::Equal => to.raw(&[2]),
            Verdict::Differ => to.raw(&[3]),
            Verdict::Guilty(Guilty::P) => to.raw(&[4]),
            Verdict::Guilty(Guilty::Q) => to.raw(&[5]),
            Verdict::Guilty(Guilty::Data { exponent }) => to.raw(&[6, exponent]),
            Verdict::Ambiguous => to.raw(&[7]),
        }
    }

    fn take(from: &mut Reader<'_>) -> Taken<Verdict> {
        Ok(match u8::take(from)? {
            0 => Verdict::Done,
            1 => Verdict::Checksum(Coded::take(from)?),
            2 => Verdict::Equal,
            3 => Verdict::Differ,
            4 => Verdict::Guilty(Guilty::P),
            5 => Verdict::Guilty(Guilty::Q),
            6 => Verdict::Guilty(Guilty::Data {
                exponent: Coded::take(from)?,
            }),
            7 => Verdict::Ambiguous,
            _ => return Err(Stop::Bad),
        })
    }
}

impl Coded for MemberInfo {
    fn put(&self, to: &mut Writer) {
        self.sectors.put(to);
        self.logical_block.put(to);
        self.trim_zeroes.put(to);
        // One byte for both: records of before `volatile` stay readable.
        to.raw(&[u8::from(self.fast_zero) | u8::from(self.volatile) << 1]);
    }

    fn take(from: &mut Reader<'_>) -> Taken<MemberInfo> {
        let (sectors, logical_block) = (Coded::take(from)?, Coded::take(from)?);
        let (trim_zeroes, bits) = (Coded::take(from)?, u8::take(from)?);
        if bits > 3 {
            return Err(Stop::Bad);
        }
        Ok(MemberInfo {
            sectors,
            logical_block,
            trim_zeroes,
            fast_zero: bits & 1 != 0,
            volatile: bits & 2 != 0,
        })
    }
}

impl Coded for StartMode {
    fn put(&self, to: &mut Writer) {
        let flags = [
            self.from_minority,
            self.accept_loss,
            self.read_only,
            self.volatile_members,
            self.owner.is_some(),
            self.ended != [None; ENDED_MAX],
            self.force_owner,
        ];
        let bits = flags.iter().enumerate();
        let bits = bits.fold(0, |bits, (at, flag)| bits | u8::from(*flag) << at);
        bits.put(to);
        if let Some(owner) = self.owner {
            owner.put(to);
        }
        let ended: Vec<Uuid> = self.ended.iter().copied().flatten().collect();
        if !ended.is_empty() {
            to.raw(&[ended.len() as u8]);
            ended.iter().for_each(|run| run.put(to));
        }
    }

    fn take(from: &mut Reader<'_>) -> Taken<StartMode> {
        let bits = u8::take(from)?;
        let flag = |at: u8| bits >> at & 1 != 0;
        let owner = flag(4).then(|| Coded::take(from)).transpose()?;
        let mut ended = [None; ENDED_MAX];
        if flag(5) {
            let count = usize::from(u8::take(from)?);
            for place in ended.get_mut(..count).ok_or(Stop::Bad)? {
                *place = Some(Uuid::take(from)?);
            }
        }
        Ok(StartMode {
            from_minority: flag(0),
            accept_loss: flag(1),
            read_only: flag(2),
            volatile_members: flag(3),
            owner,
            ended,
            force_owner: flag(6),
        })
    }
}

/// Throttles with a goal, behind the places of the plain ones.
const LATENCY: u8 = 16;
const FINISH: u8 = 17;

impl Coded for Throttle {
    fn put(&self, to: &mut Writer) {
        match self {
            Throttle::Latency(goal) => {
                to.raw(&[LATENCY, goal.percentile]);
                goal.at_most.put(to);
            }
            Throttle::Finish(within) => to.tagged(FINISH, within),
            plain => {
                let place = Throttle::PLAIN.iter().position(|one| one == plain);
                to.raw(&[place.map_or(0, |place| place as u8)]);
            }
        }
    }

    fn take(from: &mut Reader<'_>) -> Taken<Throttle> {
        match u8::take(from)? {
            LATENCY => {
                let percentile = u8::take(from)?;
                Throttle::latency(percentile, Coded::take(from)?).ok_or(Stop::Bad)
            }
            FINISH => Ok(Throttle::Finish(Coded::take(from)?)),
            place => {
                let plain = Throttle::PLAIN.get(usize::from(place));
                plain.copied().ok_or(Stop::Bad)
            }
        }
    }
}

impl Coded for LeaseCommand {
    fn put(&self, to: &mut Writer) {
        match self {
            LeaseCommand::Add { name, sectors } => {
                to.tagged(0, name);
                sectors.put(to);
            }
            LeaseCommand::Remove { name, force } => {
                to.tagged(1, name);
                force.put(to);
            }
            LeaseCommand::Bind { name, borrower } => {
                to.tagged(2, name);
                borrower.unwrap_or(Uuid::NIL).put(to);
            }
        }
    }

    fn take(from: &mut Reader<'_>) -> Taken<LeaseCommand> {
        let (kind, name) = (u8::take(from)?, Coded::take(from)?);
        Ok(match kind {
            0 => LeaseCommand::Add {
                name,
                sectors: Coded::take(from)?,
            },
            1 => LeaseCommand::Remove {
                name,
                force: Coded::take(from)?,
            },
            2 => LeaseCommand::Bind {
                name,
                borrower: Some(Uuid::take(from)?).filter(|uuid| *uuid != Uuid::NIL),
            },
            _ => return Err(Stop::Bad),
        })
    }
}

impl Coded for LeaseName {
    fn put(&self, to: &mut Writer) {
        let name = self.as_str().as_bytes();
        to.number(name.len() as u64);
        to.raw(name);
    }

    fn take(from: &mut Reader<'_>) -> Taken<LeaseName> {
        let length = usize::try_from(from.number()?).map_err(|_| Stop::Bad)?;
        let name = std::str::from_utf8(from.raw(length)?).map_err(|_| Stop::Bad)?;
        LeaseName::new(name).map_err(|_| Stop::Bad)
    }
}

impl Coded for Limits {
    fn put(&self, to: &mut Writer) {
        self.pool.put(to);
        for bound in [self.requests, self.slices, self.ios] {
            bound.put(to);
        }
        self.cache.put(to);
        self.heat.put(to);
    }

    fn take(from: &mut Reader<'_>) -> Taken<Limits> {
        let limits = Limits {
            pool: Coded::take(from)?,
            requests: Coded::take(from)?,
            slices: Coded::take(from)?,
            ios: Coded::take(from)?,
            cache: Coded::take(from)?,
            heat: Coded::take(from)?,
        };
        bounded(&limits).then_some(limits).ok_or(Stop::Bad)
    }
}

impl Coded for Destage {
    fn put(&self, to: &mut Writer) {
        self.order.put(to);
        let after = self.sleep.map(|sleep| sleep.after);
        for time in [self.idle, self.every, Some(self.seal), after] {
            time.put(to);
        }
        self.sleep.map_or(0, |sleep| sleep.starts_a_day).put(to);
        self.clean.put(to);
    }

    fn take(from: &mut Reader<'_>) -> Taken<Destage> {
        let order = Coded::take(from)?;
        let (idle, every) = (Coded::take(from)?, Coded::take(from)?);
        let seal: Option<Nanos> = Coded::take(from)?;
        let after: Option<Nanos> = Coded::take(from)?;
        let starts_a_day = Coded::take(from)?;
        Ok(Destage {
            idle,
            every,
            seal: seal.ok_or(Stop::Bad)?,
            order,
            sleep: after.map(|after| Sleep {
                after,
                starts_a_day,
            }),
            clean: Coded::take(from)?,
        })
    }
}

fn put_surrogate(surrogate: Option<SurrogateConfig>, to: &mut Writer) {
    surrogate.is_some().put(to);
    if let Some(one) = surrogate {
        one.members.put(to);
        one.buffer_members.put(to);
        one.limits.put(to);
        one.redirect.put(to);
        one.scrubs.put(to);
        one.destage.put(to);
    }
}

fn take_surrogate(
    from: &mut Reader<'_>,
    whole: &Limits,
    all: usize,
) -> Taken<Option<SurrogateConfig>> {
    if !bool::take(from)? {
        return Ok(None);
    }
    let (members, buffer_members) = (u16::take(from)?, u16::take(from)?);
    let (limits, redirect) = (Coded::take(from)?, Coded::take(from)?);
    if usize::from(members) + usize::from(buffer_members) > all || !part_of(&limits, whole) {
        return Err(Stop::Bad);
    }
    Ok(Some(SurrogateConfig {
        buffer_members,
        members,
        limits,
        redirect,
        scrubs: Coded::take(from)?,
        destage: Coded::take(from)?,
    }))
}

// ------------------------------------------------------------------------------------------------ writing

impl Writer {
    pub fn config(&mut self, config: &Config) {
        self.number(config.members.len() as u64);
        config.members.iter().for_each(|info| info.put(self));
        config.limits.put(self);
        config.io_timeout.put(self);
        put_surrogate(config.surrogate, self);
    }

    pub fn event(&mut self, event: &Event) {
        match event {
            Event::Request(request) => self.tagged(0, request),
            Event::Device(io, result) => {
                self.tagged(1, &io.tag);
                result.put(self);
                if io.op == IoOp::Read && result.is_ok() {
                    pages(&io.segments).for_each(|page| self.raw(&page[..]));
                }
            }
            Event::Compute(compute, verdict) => {
                self.tagged(2, &compute.tag);
                verdict.put(self);
                if let (ComputeOp::TakePage, Some(page)) = (compute.op, &compute.page) {
                    self.raw(&page[..]);
                }
            }
            Event::Timer => self.raw(&[3]),
            Event::Arrived(info) => self.tagged(4, info),
            Event::Departed(member) => self.tagged(5, member),
            Event::Command(tag, command) => {
                self.tagged(6, tag);
                command.put(self);
            }
            Event::Turn => self.raw(&[7]),
            Event::Paused(time) => self.tagged(8, time),
        }
    }

    fn tagged(&mut self, number: u8, value: &impl Coded) {
        self.raw(&[number]);
        value.put(self);
    }

    /// Actions are only compared, never read back, so what is seldom takes its debug form.
    pub fn action(&mut self, action: &Action) {
        match action {
            Action::Device(io) => {
                self.raw(&[0]);
                self.device(io);
            }
            Action::Compute(compute) => {
                self.raw(&[1]);
                self.compute(compute);
            }
            Action::Detach(tag) => self.tagged(2, tag),
            Action::Wake(time) => self.tagged(3, time),
            Action::Reply(..) | Action::CommandReply(..) | Action::Fact(_) => {
                self.raw(&[4]);
                self.debug(action);
            }
        }
    }

    fn device(&mut self, io: &DeviceIo) {
        io.tag.put(self);
        io.member.put(self);
        io.op.put(self);
        io.class.put(self);
        io.durable.put(self);
        io.at.put(self);
        io.sectors.put(self);
        for segment in &io.segments {
            match segment {
                // What a page holds before it is read means nothing.
                Segment::Page(page) if io.op == IoOp::Write => {
                    self.raw(&[0]);
                    self.raw(&page[..]);
                }
                Segment::Page(_) => self.raw(&[1]),
                Segment::Buf(part) => self.tagged(2, part),
                Segment::Zero(bytes) => self.tagged(3, bytes),
            }
        }
    }

    fn compute(&mut self, compute: &Compute) {
        compute.tag.put(self);
        compute.op.put(self);
        self.number(compute.sources.len() as u64);
        compute.sources.iter().for_each(|part| part.put(self));
        for output in &compute.outputs {
            output.target.put(self);
            self.raw(&output.coefficients);
        }
        if let (ComputeOp::PutPage, Some(page)) = (compute.op, &compute.page) {
            self.raw(&page[..]);
        }
    }
}

fn pages(segments: &[Segment]) -> impl Iterator<Item = &Page> {
    segments.iter().filter_map(|segment| match segment {
        Segment::Page(page) => Some(page),
        Segment::Buf(_) | Segment::Zero(_) => None,
    })
}

// ------------------------------------------------------------------------------------------------ reading

impl<'a> Reader<'a> {
    pub fn config(&mut self) -> Taken<Config> {
        let count = self.number()?;
        let members = (0..count.min(1 << 16)).map(|_| Coded::take(self));
        let members: Vec<MemberInfo> = members.collect::<Taken<_>>()?;
        let limits = Coded::take(self)?;
        let io_timeout = Coded::take(self)?;
        let surrogate = take_surrogate(self, &limits, members.len())?;
        Ok(Config {
            members,
            limits,
            surrogate,
            io_timeout,
            bug: None,
        })
    }

    pub fn event(&mut self) -> Taken<Stored> {
        let plain = match u8::take(self)? {
            0 => Event::Request(Coded::take(self)?),
            1 => return Ok(Stored::Device(Coded::take(self)?, Coded::take(self)?)),
            2 => return Ok(Stored::Compute(Coded::take(self)?, Coded::take(self)?)),
            3 => Event::Timer,
            4 => Event::Arrived(Coded::take(self)?),
            5 => Event::Departed(Coded::take(self)?),
            6 => Event::Command(Coded::take(self)?, Coded::take(self)?),
            7 => Event::Turn,
            8 => Event::Paused(Coded::take(self)?),
            _ => return Err(Stop::Bad),
        };
        Ok(Stored::Plain(plain))
    }

    /// Fills the pages of a read.
    pub fn pages(&mut self, io: &mut DeviceIo) -> Taken<()> {
        for segment in &mut io.segments {
            if let Segment::Page(page) = segment {
                let bytes = self.raw(page.len())?;
                page.copy_from_slice(bytes);
            }
        }
        Ok(())
    }

    /// Fills the page of a computation that takes one out of a buffer.
    pub fn page_taken(&mut self, compute: &mut Compute) -> Taken<()> {
        if let (ComputeOp::TakePage, Some(page)) = (compute.op, &mut compute.page) {
            let bytes = self.raw(page.len())?;
            page.copy_from_slice(bytes);
        }
        Ok(())
    }
}

/// Whether limits are such as a shell would choose: what they ask for is taken at once.
fn bounded(limits: &Limits) -> bool {
    let Limits {
        pool,
        requests,
        slices,
        ios,
        cache,
        heat: _,
    } = limits;
    let handles = pool.small.checked_add(pool.large);
    // A shell leaves the engine memory beside the cache's.
    let lent = cache.map_or(0, |cache| cache.buffers().saturating_add(SMALL_MIN));
    handles.is_some_and(|handles| handles <= Buf::USER)
        && *requests.max(slices).max(ios) <= BOUND_MAX
        && lent <= pool.small
}

/// Whether a surrogate's limits are such as a shell would choose, its buffers among the whole's.
fn part_of(surrogate: &SurrogateLimits, whole: &Limits) -> bool {
    let SurrogateLimits {
        pool,
        requests,
        slices,
        ios,
        extents,
        extent_sectors: _,
        copies,
        cluster_records,
        records_in_memory,
        buffer_pool,
        parts_home: _,
    } = *surrogate;
    let small = pool.small.checked_add(SMALL_MIN);
    let small = small.and_then(|small| small.checked_add(buffer_pool.small));
    let large = copies
        .checked_mul(2)
        .and_then(|own| own.checked_add(records_in_memory))
        .and_then(|own| own.checked_add(surrogate.destage_buffers()))
        .and_then(|own| own.checked_add(pool.large))
        .and_then(|own| own.checked_add(buffer_pool.large));
    [requests, slices, ios, copies, cluster_records]
        .into_iter()
        .all(|bound| bound <= BOUND_MAX)
        && extents <= EXTENTS_MAX
        && small.is_some_and(|small| small <= whole.pool.small)
        && large.is_some_and(|large| large <= whole.pool.large)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plain::bare_io;
    use restripe_array::{Buf, CommandTag, zeroed_page};

    fn request() -> Request {
        let op = RequestOp::WriteZeroes { fast: true };
        let buf = BufRef::new(Buf(Buf::USER + 3), 512, 4096);
        Request {
            tag: RequestTag(u64::MAX),
            op,
            offset: 1 << 40,
            bytes: 4096,
            buf,
            fua: true,
        }
    }

    #[test]
    fn plain_events_come_back_as_they_were() {
        let mode = StartMode {
            from_minority: true,
            accept_loss: false,
            read_only: true,
            volatile_members: true,
            owner: Some(ArrayOwner {
                run: Uuid([1; 16]),
                host: Uuid([2; 16]),
                started: 3,
                process: 4,
                namespace: u32::MAX,
                interval_ms: 4000,
            }),
            ended: [Some(Uuid([5; 16])), Some(Uuid([6; 16])), None, None],
            force_owner: true,
        };
        let info = MemberInfo {
            sectors: 12345,
            logical_block: 4096,
            trim_zeroes: true,
            fast_zero: false,
            volatile: true,
        };
        let name = LeaseName::new("log").expect("a name");
        let (old, new, min, max) = (Member(1), Member(900), 0, u64::MAX);
        let bind = |borrower| Command::Lease(LeaseCommand::Bind { name, borrower });
        let commands = [
            Command::Start(mode),
            Command::Stop,
            Command::Fail(Member(3)),
            Command::Replace { old, new },
            Command::Scrub(ScrubMode::Sync),
            Command::Date(1_795_000_000),
            Command::Rate { min, max },
            Command::Throttle(Throttle::Md61),
            Command::Throttle(Throttle::Finish(Nanos::from_secs(7200))),
            Command::Throttle(Throttle::latency(99, Nanos::from_millis(20)).expect("a share")),
            Command::Order(Order::Ido),
            Command::OnDemand(true),
            Command::CopyBack(false),
            Command::Grow { by: 3 },
            Command::Reshape { by: 2 },
            Command::Moves(Moves::Recorded),
            Command::Destage,
            Command::AddToSurrogate(Member(3)),
            Command::AddToBuffer(Member(4)),
            Command::Overwrite(Member(5)),
            Command::LogSet(Some(Uuid([5; 16]))),
            Command::LogSet(None),
            Command::Lease(LeaseCommand::Add { name, sectors: 640 }),
            Command::Lease(LeaseCommand::Remove { name, force: true }),
            bind(Some(Uuid([9; 16]))),
            bind(None),
        ];
        let mut events = vec![
            Event::Request(request()),
            Event::Timer,
            Event::Arrived(info),
            Event::Departed(Member(7)),
        ];
        events.extend(commands.map(|command| Event::Command(CommandTag(9), command)));
        events.push(Event::Turn);
        events.push(Event::Paused(Nanos::from_secs(3)));
        let mut writer = Writer::default();
        events.iter().for_each(|event| writer.event(event));
        let mut reader = Reader::new(writer.bytes());
        for event in events {
            assert_eq!(reader.event(), Ok(Stored::Plain(event)));
        }
        assert_eq!(reader.event(), Err(Stop::End));
    }

    #[test]
    fn a_read_brings_its_pages_along() {
        let mut page = zeroed_page();
        page[17] = 42;
        let mut io = DeviceIo {
            tag: Tag(5),
            segments: vec![Segment::Page(page)],
            ..bare_io(IoOp::Read, 0, 8)
        };
        let mut writer = Writer::default();
        writer.event(&Event::Device(Box::new(io.clone()), Ok(())));
        let mut reader = Reader::new(writer.bytes());
        assert_eq!(reader.event(), Ok(Stored::Device(Tag(5), Ok(()))));
        let before = io.clone();
        io.segments = vec![Segment::Page(zeroed_page())];
        reader.pages(&mut io).expect("they are there");
        assert_eq!(io, before);
    }

    #[test]
    fn limits_come_back_unless_they_are_no_shells() {
        let taken = |limits: Limits| {
            let config = Config {
                members: Vec::new(),
                limits,
                surrogate: None,
                io_timeout: Nanos(1),
                bug: None,
            };
            let mut writer = Writer::default();
            writer.config(&config);
            Reader::new(writer.bytes()).config()
        };
        let (blocks, rule) = (600, Rule::VdfLru);
        let cache = CacheLimits { blocks, rule };
        let limits = Limits::default().with_cache(Some(cache));
        let cache_taken = taken(limits).map(|config| config.limits.cache);
        assert_eq!(cache_taken, Ok(Some(cache)));
        let mut wrong = [limits; 3];
        wrong[0].pool.large = u32::MAX;
        wrong[1].requests = u32::MAX;
        wrong[2].pool.small = 600;
        for limits in wrong {
            assert_eq!(taken(limits).map(|_| ()), Err(Stop::Bad));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(Reader::new(&[9]).event(), Err(Stop::Bad));
        assert_eq!(Reader::new(&[0xff; 16]).number(), Err(Stop::Bad));
        assert_eq!(Reader::new(&[0x80]).number(), Err(Stop::End));
    }
}
