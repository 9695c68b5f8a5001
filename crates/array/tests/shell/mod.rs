//! The smallest shell there is: members that keep their metadata and forget their data, and answer at once.
//!
//! For measuring the engine alone: nothing of the shell allocates once it is warm.

use restripe_array::meta::{Content, CreateOptions, create};
use restripe_array::{
    Action, Actions, Buf, BufRef, Command, CommandTag, ComputeOp, Config, DeviceIo, Event, IoOp,
    Limits, Member, MemberInfo, Nanos, PAGE_SECTORS, Request, RequestOp, RequestTag, Segment, Set,
    StartMode, Uuid, Verdict,
};
use std::collections::VecDeque;

/// Metadata lies in front of this sector on every member made here.
const KEPT_SECTORS: u64 = 8192;
const PAGE: usize = 4096;

pub struct Shell {
    pub engine: Set,
    members: Vec<Vec<u8>>,
    events: VecDeque<Event>,
    actions: Actions,
    now: u64,
    pub replies: u64,
    pub refused: u64,
    next: u64,
    size_bytes: u64,
}

impl Shell {
    /// An array of `slots` members of `sectors` each, created and started.
    pub fn new(level: restripe_array::layout::Level, slots: u16, sectors: u64) -> Shell {
        let info = MemberInfo {
            sectors,
            logical_block: 512,
            trim_zeroes: true,
            fast_zero: true,
            volatile: false,
        };
        let mut options = CreateOptions::new("bench", Uuid([7; 16]), level, 128);
        options.members = vec![info; slots.into()];
        options.uuids = (1..=slots as u8).map(|number| Uuid([number; 16])).collect();
        options.init = restripe_array::meta::Init::Zero;
        let creation = create(&options).expect("the geometry is sound");
        let mut members = vec![vec![0; KEPT_SECTORS as usize * 512]; slots.into()];
        for (member, at, content) in &creation.writes {
            if let Content::Page(page) = content {
                members[*member][*at as usize * 512..][..PAGE].copy_from_slice(&page[..]);
            }
        }
        let config = Config {
            members: options.members,
            limits: Limits::default(),
            io_timeout: Nanos::from_secs(3600),
            bug: None,
        };
        let mut shell = Shell {
            engine: Set::new(config),
            members,
            events: VecDeque::with_capacity(4096),
            actions: Actions::with_capacity(4096),
            now: 0,
            replies: 0,
            refused: 0,
            next: 0,
            size_bytes: 0,
        };
        shell.command(Command::Start(StartMode::default()));
        shell.size_bytes = shell.engine.status().size_bytes;
        shell
    }

    pub fn command(&mut self, command: Command) {
        self.step(Event::Command(CommandTag(0), command));
        self.drain();
    }

    /// Gives a request and carries out everything that comes of it when `drain` is next called.
    pub fn request(&mut self, op: RequestOp, offset: u64, bytes: u64) {
        let tag = RequestTag(self.next);
        self.next += 1;
        let buf = BufRef::new(Buf(Buf::USER + (tag.0 % 64) as u32), 0, bytes as u32);
        self.step(Event::Request(Request {
            tag,
            op,
            offset,
            bytes,
            buf,
            fua: false,
        }));
    }

    /// Steps until nothing is left to do.
    pub fn drain(&mut self) {
        loop {
            while let Some(event) = self.events.pop_front() {
                self.step(event);
            }
            self.step(Event::Turn);
            if self.events.is_empty() {
                return;
            }
        }
    }

    fn step(&mut self, event: Event) {
        self.now += 100;
        let mut actions = std::mem::take(&mut self.actions);
        self.engine.handle(Nanos(self.now), event, &mut actions);
        for action in actions.drain(..) {
            self.act(action);
        }
        self.actions = actions;
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Device(mut io) => {
                self.device(&mut io);
                self.events.push_back(Event::Device(io, Ok(())));
            }
            Action::Compute(compute) => {
                let verdict = match compute.op {
                    ComputeOp::Linear
                    | ComputeOp::Or
                    | ComputeOp::PutPage
                    | ComputeOp::TakePage => Verdict::Done,
                    ComputeOp::Checksum => Verdict::Checksum(0),
                    ComputeOp::Compare | ComputeOp::Locate => Verdict::Equal,
                };
                self.events.push_back(Event::Compute(compute, verdict));
            }
            Action::Reply(_, result) => {
                self.replies += 1;
                self.refused += u64::from(result.is_err());
            }
            Action::CommandReply(_, result) => result.expect("the command is accepted"),
            Action::Wake(_) | Action::Detach(_) | Action::Fact(_) => {}
        }
    }

    fn device(&mut self, io: &mut DeviceIo) {
        let kept = &mut self.members[usize::from(io.member.0)];
        let mut at = io.at;
        for segment in &mut io.segments {
            if let Segment::Page(page) = segment {
                let place = at as usize * 512;
                match io.op {
                    IoOp::Read => page.copy_from_slice(&kept[place..place + PAGE]),
                    IoOp::Write => kept[place..place + PAGE].copy_from_slice(&page[..]),
                    _ => {}
                }
                at += PAGE_SECTORS;
            } else {
                at += u64::from(segment.bytes()) / 512;
            }
        }
    }

    pub fn fail(&mut self, member: u16) {
        self.command(Command::Fail(Member(member)));
    }
}

/// Requests all over an array, `depth` at a time, of 4 KiB: reads, and writes in the given share of 256.
pub fn mixed(shell: &mut Shell, requests: u64, depth: u64, writes: u64) {
    let blocks = shell.size_bytes / 4096;
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for number in 0..requests {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let op = if seed >> 40 & 0xff < writes {
            RequestOp::Write
        } else {
            RequestOp::Read
        };
        shell.request(op, seed % blocks * 4096, 4096);
        if number % depth == depth - 1 {
            shell.drain();
        }
    }
    shell.drain();
}
