//! One client floods an array, and others ask for a little: counted in operations of members, with the real
//! engine.

use super::*;
use crate::host::lanes::USERS;
use crate::host::{Delivery, Host};
use restripe_array::{CommandTag, Request, RequestOp};

const ZERO: RequestOp = RequestOp::WriteZeroes { fast: false };
/// Requests of a flood. Each that has no data is as large as the array.
const FLOOD: u32 = 200;
/// Operations of members until the other client has its answer. The whole flood takes many times as many.
const WITHIN: usize = 8192;

/// What is written.
const PATTERN: u8 = 7;

fn answers(tag: RequestTag) -> impl Fn(&Outcome) -> bool {
    move |outcome| matches!(outcome, Outcome::Reply(of, Ok(())) if *of == tag)
}

/// A host whose members' completions wait until they are released.
struct Stage {
    host: Host,
    backend: Box<dyn Backend>,
    users: UserMemory,
    next_tag: u64,
    size: u64,
}

impl Stage {
    /// `fast`: the members zero without writing.
    fn new(fast: bool) -> Stage {
        let members = plain(&vec!["ram:16M".to_owned(); 3]);
        create_with(&members, RAID5, |options| options.init = Init::Zero);
        let members = members.into_iter().map(|member| {
            let mut member = member.into_member();
            member.info.fast_zero = fast;
            member
        });
        let members: Vec<OpenMember> = members.collect();
        let config = Config {
            members: members.iter().map(|member| member.info).collect(),
            limits: Limits::default(),
            surrogate: None,
            io_timeout: Nanos::from_secs(3600),
            bug: None,
        };
        let mut stage = Stage {
            host: Host::new(0, members, config).expect("memory"),
            backend: backend::open(BackendChoice::Threads).expect("a portable one"),
            users: UserMemory::new(256 * MIB),
            next_tag: 0,
            size: 0,
        };
        stage.host.deliver(Delivery::Held);
        let start = Command::Start(StartMode::default());
        stage.host.command(CommandTag(0), start);
        let started = |outcome: &Outcome| matches!(outcome, Outcome::CommandReply(_, Ok(())));
        stage.operations_until(WITHIN, started);
        stage.size = stage.host.status().size_bytes;
        stage
    }

    fn settle(&mut self) {
        let mut world = World::new(&mut *self.backend, &mut self.users);
        while self.host.busy() {
            self.host.settle(Nanos::from_secs(1), u32::MAX, &mut world);
        }
        let mut world = World::new(&mut *self.backend, &mut self.users);
        self.host.settle(Nanos::from_secs(1), u32::MAX, &mut world);
    }

    /// Members' operations that end, in their order, before something is told.
    fn operations_until(&mut self, most: usize, wanted: impl Fn(&Outcome) -> bool) -> usize {
        for count in 0..most {
            self.settle();
            if self.host.outcomes.drain(..).any(|outcome| wanted(&outcome)) {
                return count;
            }
            assert!(!self.host.held().is_empty(), "something is under way");
            self.host.release(0);
        }
        most
    }

    fn ask(&mut self, client: u32, op: RequestOp, offset: u64, bytes: u64) -> (RequestTag, BufRef) {
        let tag = RequestTag(self.next_tag);
        self.next_tag += 1;
        let data = matches!(op, RequestOp::Read | RequestOp::Write);
        let none = self.users.allocate(1, client).expect("enough").part(0, 0);
        let buf = match data {
            true => self.users.allocate(bytes as u32, client).expect("enough"),
            false => none,
        };
        if op == RequestOp::Write {
            let pattern = vec![PATTERN; bytes as usize];
            self.users.memory(buf.buf).fill(0, &pattern);
        }
        let request = Request {
            tag,
            op,
            offset,
            bytes,
            buf,
            fua: false,
        };
        self.host.request_in(USERS, client, request);
        (tag, buf)
    }

    /// Does a request to its end. What is in its memory then, and how many operations of members it took.
    fn done(&mut self, op: RequestOp, offset: u64, bytes: u64) -> (Vec<u8>, usize) {
        let (tag, buf) = self.ask(1, op, offset, bytes);
        let count = self.operations_until(1_000_000, answers(tag));
        let memory = self.users.memory(buf.buf);
        (memory.slice(0, buf.bytes as usize).to_vec(), count)
    }

    fn flood(&mut self, op: RequestOp) {
        let bytes = match op {
            RequestOp::Flush => 0,
            RequestOp::Read | RequestOp::Write => MIB / 2,
            RequestOp::Trim | RequestOp::WriteZeroes { .. } => self.size,
            RequestOp::CompareAndWrite | RequestOp::Or => {
                unreachable!("no front end floods with these")
            }
        };
        for number in 0..u64::from(FLOOD) {
            let offset = match bytes < self.size {
                true => number % 16 * bytes,
                false => 0,
            };
            self.ask(1, op, offset, bytes);
        }
        self.settle();
        self.host.outcomes.clear();
    }
}

#[test]
fn a_flood_of_any_kind_holds_up_others_for_a_bounded_number_of_operations() {
    let little = [
        (RequestOp::Read, 4096),
        (RequestOp::Write, 4096),
        (RequestOp::Flush, 0),
        (RequestOp::Trim, MIB),
        (ZERO, MIB),
    ];
    let floods = |fast| little.map(|(flood, _)| (fast, flood));
    for (fast, flood) in [false, true].into_iter().flat_map(floods) {
        let mut stage = Stage::new(fast);
        stage.flood(flood);
        for (op, bytes) in little {
            let offset = if bytes == 0 { 0 } else { stage.size - 2 * MIB };
            let (tag, _) = stage.ask(2, op, offset, bytes);
            let count = stage.operations_until(WITHIN, answers(tag));
            let what = format!("{op:?} behind a flood of {flood:?}, fast {fast}");
            assert!(count < WITHIN, "{what}");
        }
    }
}

/// The last byte before a zeroing that is done in pieces, and the first behind it, stay what they were.
#[test]
fn pieces_of_a_large_zeroing_zero_all_of_it_and_nothing_else() {
    for fast in [false, true] {
        let mut stage = Stage::new(fast);
        let ends = [0, stage.size - MIB];
        for at in ends {
            stage.done(RequestOp::Write, at, MIB);
        }
        let bytes = stage.size - 2 * 4096;
        assert!(stage.done(ZERO, 4096, bytes).1 > 100, "operations");
        for at in ends {
            let (found, _) = stage.done(RequestOp::Read, at, MIB);
            let (kept, zeroed) = (vec![PATTERN; 4096], vec![0; MIB as usize - 4096]);
            let expected = match at {
                0 => [kept, zeroed].concat(),
                _ => [zeroed, kept].concat(),
            };
            assert!(found == expected, "at {at}, fast {fast}");
        }
    }
}
