//! The record's encoding: events as they are stored, actions as they are summed, and back.

use restripe_array::cache::Rule;
use restripe_array::{
    Action, ArrayOwner, Buf, BufRef, CacheLimits, Class, Command, Compute, ComputeOp, DeviceIo,
    ENDED_MAX, Event, Guilty, HeatLimits, IoError, IoOp, LeaseCommand, LeaseName, Limits, Member,
    MemberInfo, Moves, Nanos, Order, Page, Pool, Request, RequestOp, RequestTag, ScrubMode,
    Segment, StartMode, Tag, Throttle, Uuid, Verdict,
};
use restripe_tier::destage;
use restripe_tier::{Config, Destage, Redirect, Sleep, SurrogateConfig, SurrogateLimits};
use std::io::Write as _;

/// The most requests, slices and operations that a record may speak of.
const BOUND_MAX: u32 = 1 << 20;
/// The most extents of an overlay's map: 8 GiB of them.
const EXTENTS_MAX: u32 = 1 << 28;
/// The least small buffers that are left to the engine beside a read cache.
const SMALL_MIN: u32 = 128;

/// The bytes that a list of actions is compared by.
pub fn encode_actions(actions: &[Action], into: &mut Vec<u8>) {
    let mut writer = Writer {
        bytes: std::mem::take(into),
    };
    actions.iter().for_each(|action| writer.action(action));
    *into = writer.bytes;
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
        && [requests, slices, ios]
            .into_iter()
            .all(|bound| *bound <= BOUND_MAX)
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
        .and_then(|own| own.checked_add(surrogate.homeward_buffers()))
        .and_then(|own| own.checked_add(pool.large))
        .and_then(|own| own.checked_add(buffer_pool.large));
    [requests, slices, ios, copies, cluster_records]
        .into_iter()
        .all(|bound| bound <= BOUND_MAX)
        && extents <= EXTENTS_MAX
        && small.is_some_and(|small| small <= whole.pool.small)
        && large.is_some_and(|large| large <= whole.pool.large)
}

/// Throttles with a goal, behind the places of the plain ones.
const LATENCY: u8 = 16;
const FINISH: u8 = 17;

/// Bytes being put together.
#[derive(Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    pub fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }

    fn small(&mut self, value: u32) {
        self.number(u64::from(value));
    }

    fn flag(&mut self, value: bool) {
        self.byte(u8::from(value));
    }

    pub fn config(&mut self, config: &Config) {
        self.number(config.members.len() as u64);
        config
            .members
            .iter()
            .for_each(|info| self.member_info(info));
        let limits = config.limits;
        for bound in [
            limits.pool.small,
            limits.pool.large,
            limits.requests,
            limits.slices,
            limits.ios,
        ] {
            self.small(bound);
        }
        self.cache(limits.cache);
        self.number(limits.heat.zone_sectors);
        self.number(limits.heat.epoch.0);
        self.number(config.io_timeout.0);
        self.surrogate(config.surrogate);
    }

    fn surrogate(&mut self, surrogate: Option<SurrogateConfig>) {
        self.flag(surrogate.is_some());
        if let Some(SurrogateConfig {
            buffer_members,
            members,
            limits,
            redirect,
            scrubs,
            destage,
        }) = surrogate
        {
            self.small(u32::from(members));
            self.small(u32::from(buffer_members));
            for bound in [
                limits.pool.small,
                limits.pool.large,
                limits.requests,
                limits.slices,
                limits.ios,
                limits.extents,
                limits.extent_sectors,
                limits.copies,
                limits.cluster_records,
                limits.records_in_memory,
                limits.buffer_pool.small,
                limits.buffer_pool.large,
                limits.parts_home,
            ] {
                self.small(bound);
            }
            let place = Redirect::ALL.iter().position(|one| *one == redirect);
            self.byte(place.map_or(0, |place| place as u8));
            self.flag(scrubs);
            let Destage {
                idle,
                every,
                seal,
                order,
                sleep,
                clean,
            } = destage;
            let place = destage::Order::ALL.iter().position(|one| *one == order);
            self.byte(place.map_or(0, |place| place as u8));
            for time in [idle, every, Some(seal), sleep.map(|sleep| sleep.after)] {
                self.number(time.map_or(u64::MAX, |time| time.0));
            }
            self.small(sleep.map_or(0, |sleep| sleep.starts_a_day));
            self.flag(clean);
        }
    }

    fn cache(&mut self, cache: Option<CacheLimits>) {
        self.flag(cache.is_some());
        if let Some(CacheLimits { blocks, rule }) = cache {
            self.small(blocks);
            let place = Rule::ALL.iter().position(|one| *one == rule);
            self.byte(place.map_or(0, |place| place as u8));
        }
    }

    fn member_info(&mut self, info: &MemberInfo) {
        self.number(info.sectors);
        self.small(info.logical_block);
        self.flag(info.trim_zeroes);
        // One byte for both: records of before `volatile` stay readable.
        self.byte(u8::from(info.fast_zero) | u8::from(info.volatile) << 1);
    }

    pub fn event(&mut self, event: &Event) {
        match event {
            Event::Request(request) => {
                self.byte(0);
                self.request(request);
            }
            Event::Device(io, result) => {
                self.byte(1);
                self.small(io.tag.0);
                self.device_result(io, *result);
            }
            Event::Compute(compute, verdict) => {
                self.byte(2);
                self.small(compute.tag.0);
                self.verdict(*verdict);
                if let (ComputeOp::TakePage, Some(page)) = (compute.op, &compute.page) {
                    self.raw(&page[..]);
                }
            }
            Event::Timer => self.byte(3),
            Event::Arrived(info) => {
                self.byte(4);
                self.member_info(info);
            }
            Event::Departed(member) => {
                self.byte(5);
                self.small(u32::from(member.0));
            }
            Event::Command(tag, command) => {
                self.byte(6);
                self.number(tag.0);
                self.command(*command);
            }
            Event::Turn => self.byte(7),
            Event::Paused(time) => {
                self.byte(8);
                self.number(time.0);
            }
        }
    }

    fn request(&mut self, request: &Request) {
        self.number(request.tag.0);
        self.byte(request_op(request.op));
        self.number(request.offset);
        self.number(request.bytes);
        self.part(request.buf);
        self.flag(request.fua);
    }

    fn part(&mut self, part: BufRef) {
        self.small(part.buf.0);
        self.small(part.offset);
        self.small(part.bytes);
    }

    fn device_result(&mut self, io: &DeviceIo, result: Result<(), IoError>) {
        match result {
            Ok(()) => self.byte(0),
            Err(IoError::Media) => self.byte(1),
            Err(IoError::Gone) => self.byte(2),
            Err(IoError::NoSpace) => self.byte(3),
            Err(IoError::Unsupported) => self.byte(4),
            Err(IoError::Other(errno)) => {
                self.byte(5);
                self.raw(&errno.to_le_bytes());
            }
        }
        if io.op == IoOp::Read && result.is_ok() {
            pages(&io.segments).for_each(|page| self.raw(&page[..]));
        }
    }

    fn verdict(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Done => self.byte(0),
            Verdict::Checksum(sum) => {
                self.byte(1);
                self.small(sum);
            }
            Verdict::Equal => self.byte(2),
            Verdict::Differ => self.byte(3),
            Verdict::Guilty(Guilty::P) => self.byte(4),
            Verdict::Guilty(Guilty::Q) => self.byte(5),
            Verdict::Guilty(Guilty::Data { exponent }) => self.raw(&[6, exponent]),
            Verdict::Ambiguous => self.byte(7),
        }
    }

    fn owner(&mut self, owner: &ArrayOwner) {
        self.raw(&owner.run.0);
        self.raw(&owner.host.0);
        self.number(owner.started);
        self.small(owner.process);
        self.small(owner.namespace);
        self.small(owner.interval_ms);
    }

    fn ended_runs(&mut self, ended: &[Option<Uuid>]) {
        let ended: Vec<Uuid> = ended.iter().copied().flatten().collect();
        if !ended.is_empty() {
            self.byte(ended.len() as u8);
            ended.iter().for_each(|run| self.raw(&run.0));
        }
    }

    fn start(&mut self, mode: &StartMode) {
        let bits = u8::from(mode.from_minority)
            | u8::from(mode.accept_loss) << 1
            | u8::from(mode.read_only) << 2
            | u8::from(mode.volatile_members) << 3
            | u8::from(mode.owner.is_some()) << 4
            | u8::from(mode.ended != [None; ENDED_MAX]) << 5
            | u8::from(mode.force_owner) << 6;
        self.raw(&[0, bits]);
        if let Some(owner) = mode.owner {
            self.owner(&owner);
        }
        self.ended_runs(&mode.ended);
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Start(mode) => self.start(&mode),
            Command::Stop => self.byte(1),
            Command::Fail(member) => self.member_command(2, member),
            Command::Remove(member) => self.member_command(3, member),
            Command::Add(member) => self.member_command(4, member),
            Command::Replace { old, new } => {
                self.member_command(5, old);
                self.small(u32::from(new.0));
            }
            Command::Scrub(mode) => self.raw(&[6, mode as u8]),
            Command::Date(date) => {
                self.byte(23);
                self.number(date);
            }
            Command::Pause(pause) => self.raw(&[7, u8::from(pause)]),
            Command::Cancel => self.byte(8),
            Command::Rate { min, max } => {
                self.byte(9);
                self.number(min);
                self.number(max);
            }
            Command::Throttle(throttle) => {
                self.byte(10);
                self.throttle(throttle);
            }
            Command::Order(order) => {
                let place = Order::ALL.iter().position(|one| *one == order);
                self.raw(&[11, place.map_or(0, |place| place as u8)]);
            }
            Command::OnDemand(on) => self.raw(&[12, u8::from(on)]),
            Command::CopyBack(on) => self.raw(&[16, u8::from(on)]),
            Command::Grow { by } => {
                self.byte(17);
                self.small(u32::from(by));
            }
            Command::Reshape { by } => {
                self.byte(18);
                self.small(u32::from(by));
            }
            Command::Moves(moves) => {
                let place = Moves::ALL.iter().position(|one| *one == moves);
                self.raw(&[19, place.map_or(0, |place| place as u8)]);
            }
            Command::Destage => self.byte(20),
            Command::AddToSurrogate(member) => self.member_command(13, member),
            Command::AddToBuffer(member) => self.member_command(21, member),
            Command::Overwrite(member) => self.member_command(22, member),
            Command::Surrogate(surrogate) => {
                self.raw(&[14, u8::from(surrogate.is_some())]);
                self.raw(&surrogate.unwrap_or(Uuid::NIL).0);
            }
            Command::Lease(command) => {
                self.byte(15);
                self.lease(command);
            }
        }
    }

    fn lease(&mut self, command: LeaseCommand) {
        match command {
            LeaseCommand::Add { name, sectors } => {
                self.byte(0);
                self.lease_name(name);
                self.number(sectors);
            }
            LeaseCommand::Remove { name, force } => {
                self.byte(1);
                self.lease_name(name);
                self.flag(force);
            }
            LeaseCommand::Bind { name, borrower } => {
                self.byte(2);
                self.lease_name(name);
                self.raw(&borrower.unwrap_or(Uuid::NIL).0);
            }
        }
    }

    fn lease_name(&mut self, name: LeaseName) {
        let name = name.as_str().as_bytes();
        self.number(name.len() as u64);
        self.raw(name);
    }

    fn throttle(&mut self, throttle: Throttle) {
        match throttle {
            Throttle::Latency(goal) => {
                self.raw(&[LATENCY, goal.percentile]);
                self.number(goal.at_most.0);
            }
            Throttle::Finish(within) => {
                self.byte(FINISH);
                self.number(within.0);
            }
            plain => {
                let place = Throttle::PLAIN.iter().position(|one| *one == plain);
                self.byte(place.map_or(0, |place| place as u8));
            }
        }
    }

    fn member_command(&mut self, code: u8, member: Member) {
        self.byte(code);
        self.small(u32::from(member.0));
    }

    /// Actions are only compared, never read back, so what is seldom takes its debug form.
    pub fn action(&mut self, action: &Action) {
        match action {
            Action::Device(io) => {
                self.byte(0);
                self.device(io);
            }
            Action::Compute(compute) => {
                self.byte(1);
                self.compute(compute);
            }
            Action::Detach(tag) => {
                self.byte(2);
                self.small(tag.0);
            }
            Action::Wake(time) => {
                self.byte(3);
                self.number(time.0);
            }
            Action::Reply(..) | Action::CommandReply(..) | Action::Fact(_) => {
                self.byte(4);
                write!(self.bytes, "{action:?}").expect("memory takes all bytes");
            }
        }
    }

    fn device(&mut self, io: &DeviceIo) {
        self.small(io.tag.0);
        self.small(u32::from(io.member.0));
        self.raw(&[io_op(io.op), class(io.class), u8::from(io.durable)]);
        self.number(io.at);
        self.number(io.sectors);
        for segment in &io.segments {
            match segment {
                // What a page holds before it is read means nothing.
                Segment::Page(page) if io.op == IoOp::Write => {
                    self.byte(0);
                    self.raw(&page[..]);
                }
                Segment::Page(_) => self.byte(1),
                Segment::Buf(part) => {
                    self.byte(2);
                    self.part(*part);
                }
                Segment::Zero(bytes) => {
                    self.byte(3);
                    self.small(*bytes);
                }
            }
        }
    }

    fn compute(&mut self, compute: &Compute) {
        self.small(compute.tag.0);
        self.byte(match compute.op {
            ComputeOp::Linear => 0,
            ComputeOp::Checksum => 1,
            ComputeOp::Compare => 2,
            ComputeOp::Locate => 3,
            ComputeOp::PutPage => 4,
            ComputeOp::TakePage => 5,
        });
        self.number(compute.sources.len() as u64);
        compute.sources.iter().for_each(|part| self.part(*part));
        for output in &compute.outputs {
            self.part(output.target);
            self.raw(&output.coefficients);
        }
        if let (ComputeOp::PutPage, Some(page)) = (compute.op, &compute.page) {
            self.raw(&page[..]);
        }
    }
}

fn io_op(op: IoOp) -> u8 {
    match op {
        IoOp::Read => 0,
        IoOp::Write => 1,
        IoOp::Flush => 2,
        IoOp::Zero => 3,
        IoOp::Trim => 4,
        IoOp::Standby => 5,
        IoOp::Wake => 6,
    }
}

fn class(class: Class) -> u8 {
    match class {
        Class::User => 0,
        Class::Parity => 1,
        Class::Task => 2,
        Class::Metadata => 3,
    }
}

fn request_op(op: RequestOp) -> u8 {
    match op {
        RequestOp::Read => 0,
        RequestOp::Write => 1,
        RequestOp::Flush => 2,
        RequestOp::Trim => 3,
        RequestOp::WriteZeroes { fast: false } => 4,
        RequestOp::WriteZeroes { fast: true } => 5,
    }
}

fn pages(segments: &[Segment]) -> impl Iterator<Item = &Page> {
    segments.iter().filter_map(|segment| match segment {
        Segment::Page(page) => Some(page),
        Segment::Buf(_) | Segment::Zero(_) => None,
    })
}

// -------------------------------------------------------------------------------------------------------- reading

/// Why bytes could not be read: `End` may be the end of a run that was killed, `Bad` never is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    End,
    Bad,
}

/// Bytes being taken apart.
#[derive(Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

type Taken<T> = Result<T, Stop>;

/// An event as it is stored: operations by their tags.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stored {
    Plain(Event),
    /// Whether pages are here, of this and of the next, depends on the operation: they are read when it is known.
    Device(Tag, Result<(), IoError>),
    Compute(Tag, Verdict),
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub fn at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn raw(&mut self, count: usize) -> Taken<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Stop::End)?;
        self.rest = rest;
        Ok(taken)
    }

    pub fn word(&mut self) -> Taken<u32> {
        let bytes = self.raw(4)?;
        Ok(u32::from_le_bytes(
            bytes.try_into().expect("4 bytes were taken"),
        ))
    }

    fn byte(&mut self) -> Taken<u8> {
        Ok(self.raw(1)?[0])
    }

    pub fn number(&mut self) -> Taken<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift).ok_or(Stop::Bad)?;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Stop::Bad)
    }

    fn small(&mut self) -> Taken<u32> {
        u32::try_from(self.number()?).map_err(|_| Stop::Bad)
    }

    fn flag(&mut self) -> Taken<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Stop::Bad),
        }
    }

    fn member(&mut self) -> Taken<Member> {
        u16::try_from(self.number()?)
            .map(Member)
            .map_err(|_| Stop::Bad)
    }

    pub fn config(&mut self) -> Taken<Config> {
        let count = self.number()?;
        let members = (0..count.min(1 << 16))
            .map(|_| self.member_info())
            .collect::<Taken<Vec<_>>>()?;
        let pool = Pool {
            small: self.small()?,
            large: self.small()?,
        };
        let limits = Limits {
            pool,
            requests: self.small()?,
            slices: self.small()?,
            ios: self.small()?,
            cache: self.cache()?,
            heat: HeatLimits {
                zone_sectors: self.number()?,
                epoch: Nanos(self.number()?),
            },
        };
        if !bounded(&limits) {
            return Err(Stop::Bad);
        }
        let io_timeout = Nanos(self.number()?);
        let surrogate = self.surrogate(&limits, members.len())?;
        Ok(Config {
            members,
            limits,
            surrogate,
            io_timeout,
            bug: None,
        })
    }

    fn destage(&mut self) -> Taken<Destage> {
        let order = destage::Order::ALL.get(usize::from(self.byte()?));
        let order = *order.ok_or(Stop::Bad)?;
        let mut time = || -> Taken<Option<Nanos>> {
            let time = self.number()?;
            Ok((time < u64::MAX).then_some(Nanos(time)))
        };
        let (idle, every, seal, after) = (time()?, time()?, time()?, time()?);
        let starts_a_day = self.small()?;
        Ok(Destage {
            idle,
            every,
            seal: seal.ok_or(Stop::Bad)?,
            order,
            sleep: after.map(|after| Sleep {
                after,
                starts_a_day,
            }),
            clean: self.flag()?,
        })
    }

    fn surrogate(&mut self, whole: &Limits, members: usize) -> Taken<Option<SurrogateConfig>> {
        if !self.flag()? {
            return Ok(None);
        }
        let of_members = u16::try_from(self.number()?).map_err(|_| Stop::Bad)?;
        let of_buffer = u16::try_from(self.number()?).map_err(|_| Stop::Bad)?;
        let limits = SurrogateLimits {
            pool: Pool {
                small: self.small()?,
                large: self.small()?,
            },
            requests: self.small()?,
            slices: self.small()?,
            ios: self.small()?,
            extents: self.small()?,
            extent_sectors: self.small()?,
            copies: self.small()?,
            cluster_records: self.small()?,
            records_in_memory: self.small()?,
            buffer_pool: Pool {
                small: self.small()?,
                large: self.small()?,
            },
            parts_home: self.small()?,
        };
        let redirect = Redirect::ALL.get(usize::from(self.byte()?));
        let fits =
            usize::from(of_members) + usize::from(of_buffer) <= members && part_of(&limits, whole);
        let redirect = *redirect.filter(|_| fits).ok_or(Stop::Bad)?;
        Ok(Some(SurrogateConfig {
            buffer_members: of_buffer,
            members: of_members,
            limits,
            redirect,
            scrubs: self.flag()?,
            destage: self.destage()?,
        }))
    }

    fn cache(&mut self) -> Taken<Option<CacheLimits>> {
        if !self.flag()? {
            return Ok(None);
        }
        let blocks = self.small()?;
        let rule = Rule::ALL.get(usize::from(self.byte()?));
        let rule = *rule.filter(|_| blocks > 0).ok_or(Stop::Bad)?;
        Ok(Some(CacheLimits { blocks, rule }))
    }

    fn member_info(&mut self) -> Taken<MemberInfo> {
        let (sectors, logical_block) = (self.number()?, self.small()?);
        let trim_zeroes = self.flag()?;
        let bits = self.byte()?;
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

    pub fn event(&mut self) -> Taken<Stored> {
        let plain = match self.byte()? {
            0 => Event::Request(self.request()?),
            1 => return Ok(Stored::Device(Tag(self.small()?), self.device_result()?)),
            2 => return Ok(Stored::Compute(Tag(self.small()?), self.verdict()?)),
            3 => Event::Timer,
            4 => Event::Arrived(self.member_info()?),
            5 => Event::Departed(self.member()?),
            6 => Event::Command(restripe_array::CommandTag(self.number()?), self.command()?),
            7 => Event::Turn,
            8 => Event::Paused(Nanos(self.number()?)),
            _ => return Err(Stop::Bad),
        };
        Ok(Stored::Plain(plain))
    }

    fn request(&mut self) -> Taken<Request> {
        Ok(Request {
            tag: RequestTag(self.number()?),
            op: self.request_op()?,
            offset: self.number()?,
            bytes: self.number()?,
            buf: BufRef::new(
                restripe_array::Buf(self.small()?),
                self.small()?,
                self.small()?,
            ),
            fua: self.flag()?,
        })
    }

    fn request_op(&mut self) -> Taken<RequestOp> {
        Ok(match self.byte()? {
            0 => RequestOp::Read,
            1 => RequestOp::Write,
            2 => RequestOp::Flush,
            3 => RequestOp::Trim,
            4 => RequestOp::WriteZeroes { fast: false },
            5 => RequestOp::WriteZeroes { fast: true },
            _ => return Err(Stop::Bad),
        })
    }

    fn device_result(&mut self) -> Taken<Result<(), IoError>> {
        Ok(match self.byte()? {
            0 => Ok(()),
            1 => Err(IoError::Media),
            2 => Err(IoError::Gone),
            3 => Err(IoError::NoSpace),
            4 => Err(IoError::Unsupported),
            5 => Err(IoError::Other(self.word()? as i32)),
            _ => return Err(Stop::Bad),
        })
    }

    fn verdict(&mut self) -> Taken<Verdict> {
        Ok(match self.byte()? {
            0 => Verdict::Done,
            1 => Verdict::Checksum(self.small()?),
            2 => Verdict::Equal,
            3 => Verdict::Differ,
            4 => Verdict::Guilty(Guilty::P),
            5 => Verdict::Guilty(Guilty::Q),
            6 => Verdict::Guilty(Guilty::Data {
                exponent: self.byte()?,
            }),
            7 => Verdict::Ambiguous,
            _ => return Err(Stop::Bad),
        })
    }

    fn uuid(&mut self) -> Taken<Uuid> {
        let bytes = self.raw(16)?.first_chunk().ok_or(Stop::End)?;
        Ok(Uuid(*bytes))
    }

    fn ended_runs(&mut self) -> Taken<[Option<Uuid>; ENDED_MAX]> {
        let count = usize::from(self.byte()?);
        let mut ended = [None; ENDED_MAX];
        for place in ended.get_mut(..count).ok_or(Stop::Bad)? {
            *place = Some(self.uuid()?);
        }
        Ok(ended)
    }

    fn owner(&mut self) -> Taken<ArrayOwner> {
        Ok(ArrayOwner {
            run: self.uuid()?,
            host: self.uuid()?,
            started: self.number()?,
            process: self.small()?,
            namespace: self.small()?,
            interval_ms: self.small()?,
        })
    }

    fn command(&mut self) -> Taken<Command> {
        Ok(match self.byte()? {
            0 => {
                let bits = self.byte()?;
                Command::Start(StartMode {
                    from_minority: bits & 1 != 0,
                    accept_loss: bits & 2 != 0,
                    read_only: bits & 4 != 0,
                    volatile_members: bits & 8 != 0,
                    owner: match bits & 16 != 0 {
                        true => Some(self.owner()?),
                        false => None,
                    },
                    ended: match bits & 32 != 0 {
                        true => self.ended_runs()?,
                        false => [None; ENDED_MAX],
                    },
                    force_owner: bits & 64 != 0,
                })
            }
            1 => Command::Stop,
            2 => Command::Fail(self.member()?),
            3 => Command::Remove(self.member()?),
            4 => Command::Add(self.member()?),
            5 => Command::Replace {
                old: self.member()?,
                new: self.member()?,
            },
            6 => {
                let mode = usize::from(self.byte()?);
                Command::Scrub(*ScrubMode::ALL.get(mode).ok_or(Stop::Bad)?)
            }
            7 => Command::Pause(self.flag()?),
            8 => Command::Cancel,
            9 => Command::Rate {
                min: self.number()?,
                max: self.number()?,
            },
            10 => Command::Throttle(self.throttle()?),
            11 => {
                let place = usize::from(self.byte()?);
                Command::Order(*Order::ALL.get(place).ok_or(Stop::Bad)?)
            }
            12 => Command::OnDemand(self.flag()?),
            16 => Command::CopyBack(self.flag()?),
            17 => Command::Grow {
                by: self.member()?.0,
            },
            18 => Command::Reshape {
                by: self.member()?.0,
            },
            19 => {
                let place = usize::from(self.byte()?);
                Command::Moves(*Moves::ALL.get(place).ok_or(Stop::Bad)?)
            }
            20 => Command::Destage,
            13 => Command::AddToSurrogate(self.member()?),
            21 => Command::AddToBuffer(self.member()?),
            22 => Command::Overwrite(self.member()?),
            23 => Command::Date(self.number()?),
            14 => {
                let some = self.flag()?;
                let bytes = self.raw(16)?.try_into().map_err(|_| Stop::Bad)?;
                Command::Surrogate(some.then_some(Uuid(bytes)))
            }
            15 => Command::Lease(self.lease()?),
            _ => return Err(Stop::Bad),
        })
    }

    fn lease(&mut self) -> Taken<LeaseCommand> {
        let kind = self.byte()?;
        let name = self.lease_name()?;
        Ok(match kind {
            0 => LeaseCommand::Add {
                name,
                sectors: self.number()?,
            },
            1 => LeaseCommand::Remove {
                name,
                force: self.flag()?,
            },
            2 => {
                let uuid = self.raw(16)?.first_chunk().ok_or(Stop::Bad)?;
                let borrower = Some(Uuid(*uuid)).filter(|uuid| *uuid != Uuid::NIL);
                LeaseCommand::Bind { name, borrower }
            }
            _ => return Err(Stop::Bad),
        })
    }

    fn lease_name(&mut self) -> Taken<LeaseName> {
        let length = usize::try_from(self.number()?).map_err(|_| Stop::Bad)?;
        let name = std::str::from_utf8(self.raw(length)?).map_err(|_| Stop::Bad)?;
        LeaseName::new(name).map_err(|_| Stop::Bad)
    }

    fn throttle(&mut self) -> Taken<Throttle> {
        match self.byte()? {
            LATENCY => {
                let percentile = self.byte()?;
                Throttle::latency(percentile, Nanos(self.number()?)).ok_or(Stop::Bad)
            }
            FINISH => Ok(Throttle::Finish(Nanos(self.number()?))),
            place => {
                let plain = Throttle::PLAIN.get(usize::from(place));
                plain.copied().ok_or(Stop::Bad)
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
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
        let commands = [
            Command::Start(mode),
            Command::Stop,
            Command::Fail(Member(3)),
            Command::Replace {
                old: Member(1),
                new: Member(900),
            },
            Command::Scrub(ScrubMode::Sync),
            Command::Date(1_795_000_000),
            Command::Rate {
                min: 0,
                max: u64::MAX,
            },
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
            Command::Surrogate(Some(Uuid([5; 16]))),
            Command::Surrogate(None),
            Command::Lease(LeaseCommand::Add { name, sectors: 640 }),
            Command::Lease(LeaseCommand::Remove { name, force: true }),
            Command::Lease(LeaseCommand::Bind {
                name,
                borrower: Some(Uuid([9; 16])),
            }),
            Command::Lease(LeaseCommand::Bind {
                name,
                borrower: None,
            }),
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
            member: Member(0),
            op: IoOp::Read,
            at: 0,
            sectors: 8,
            segments: vec![Segment::Page(page)],
            durable: false,
            class: Class::Metadata,
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
        let cache = CacheLimits {
            blocks: 600,
            rule: Rule::VdfLru,
        };
        let limits = Limits::default().with_cache(Some(cache));
        assert_eq!(
            taken(limits).map(|config| config.limits.cache),
            Ok(Some(cache))
        );
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
