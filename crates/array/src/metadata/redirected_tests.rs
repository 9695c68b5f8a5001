//! Announcing redirected writes, on members that keep their metadata and answer when they are told to.

use super::*;
use crate::config::{Config, Limits};
use crate::contract::{
    Action, Actions, Command, CommandTag, DeviceIo, Event, IoOp, MemberInfo, Pool, Segment,
    StartMode, TaskKind, Verdict,
};
use crate::instance::Instance;
use crate::layout::Level;
use crate::set::Set;
use crate::units::{Member, Nanos, PAGE_BYTES, SECTOR_BYTES};
use alloc::boxed::Box;
use alloc::vec;
use restripe_format::meta::pages::{self, MapKind};
use restripe_format::meta::superblock::{MemberRole, SUPERBLOCK_BYTES, Superblock};
use restripe_format::meta::{Content, CreateOptions, Init, create};

const SECTORS: u64 = 2048;
/// Sectors of the array for each bit: four rows.
const SHARE: u64 = 4 * 8;
const PARTNER: Partner = Partner::new(PartnerRole::Main, Uuid([9; 16]));

/// Two members that hold the same, with a spare.
struct Pair {
    engine: Set,
    config: Config,
    members: Vec<Vec<u8>>,
    held: Vec<DeviceIo>,
    wake: Option<Nanos>,
    now: Nanos,
}

impl Pair {
    fn new(level: Level, partner: Option<Partner>) -> Pair {
        let info = MemberInfo {
            sectors: SECTORS,
            logical_block: 512,
            trim_zeroes: true,
            fast_zero: true,
            volatile: false,
        };
        let mut options = CreateOptions::new("pair", Uuid([7; 16]), level, 8);
        options.members = vec![info; 3];
        options.uuids = (1..=3).map(|number| Uuid([number; 16])).collect();
        options.spares = 1;
        options.init = Init::Zero;
        options.intent_rows = Some(4);
        options.partner = partner;
        let creation = create(&options).expect("sound options");
        let mut members = vec![vec![0; (SECTORS * SECTOR_BYTES) as usize]; 3];
        for (member, at, content) in &creation.writes {
            if let Content::Page(page) = content {
                bytes_at(&mut members[*member], *at).copy_from_slice(&page[..]);
            }
        }
        let pool = Pool {
            small: 64,
            large: 64,
        };
        let limits = Limits {
            pool,
            requests: 16,
            slices: 16,
            ios: 64,
            ..Limits::default()
        };
        let config = Config {
            members: options.members,
            limits,
            io_timeout: Nanos::from_secs(3600),
            bug: None,
        };
        let engine = Set::new(config.clone());
        let (held, wake, now) = (Vec::new(), None, Nanos::ZERO);
        Pair {
            engine,
            config,
            members,
            held,
            wake,
            now,
        }
    }

    fn started(partner: Option<Partner>) -> Pair {
        let mut pair = Pair::new(Level::Raid1, partner);
        pair.command(Command::Start(StartMode::default()));
        pair
    }

    /// The power goes, and comes again: every write was durable.
    fn restarted(&mut self, attached: bool) {
        self.engine = Set::new(self.config.clone());
        self.held.clear();
        self.instance().ties.attached = attached;
        self.command(Command::Start(StartMode::default()));
    }

    fn instance(&mut self) -> &mut Instance {
        self.engine.instance()
    }

    fn step(&mut self, event: Event) {
        let mut actions = Actions::new();
        self.engine.handle(self.now, event, &mut actions);
        for action in actions {
            match action {
                Action::Device(io) => self.held.push(*io),
                Action::Compute(compute) => self.step(Event::Compute(compute, Verdict::Done)),
                Action::Wake(at) => self.wake = Some(at),
                Action::CommandReply(_, result) => assert_eq!(result, Ok(())),
                _ => {}
            }
        }
    }

    /// Carries out one operation that waits.
    fn end(&mut self, index: usize) {
        let mut io = self.held.remove(index);
        let member = &mut self.members[io.member.0 as usize];
        for (at, segment) in (io.at..).step_by(8).zip(&mut io.segments) {
            match segment {
                Segment::Page(page) if io.op == IoOp::Read => {
                    page.copy_from_slice(bytes_at(member, at))
                }
                Segment::Page(page) => bytes_at(member, at).copy_from_slice(&page[..]),
                _ => {}
            }
        }
        self.step(Event::Device(Box::new(io), Ok(())));
        self.step(Event::Turn);
    }

    fn run(&mut self) {
        self.step(Event::Turn);
        while !self.held.is_empty() {
            self.end(0);
        }
    }

    fn command(&mut self, command: Command) {
        self.step(Event::Command(CommandTag(1), command));
        self.run();
    }

    /// Runs until no task is left.
    fn run_tasks(&mut self) {
        self.run();
        while !self.instance().tasks.list.is_empty() {
            self.now = self.now.max(
                self.wake
                    .take()
                    .expect("a task that waits wants to be woken"),
            );
            self.step(Event::Timer);
            self.run();
        }
    }

    fn superblock(&self, member: usize) -> Superblock {
        let copy = |at: u64| {
            let from = (at * SECTOR_BYTES) as usize;
            Superblock::decode(&self.members[member][from..from + SUPERBLOCK_BYTES]).expect("sound")
        };
        let a = copy(0);
        let b = copy(
            a.region(RegionKind::SuperB)
                .expect("every copy has it")
                .start,
        );
        if b.sequence > a.sequence { b } else { a }
    }

    /// The bits that a member has.
    fn bits(&mut self, member: usize) -> u64 {
        let region = self.superblock(member).region(RegionKind::Redirected);
        let region = region.expect("made with one");
        let homes = [0, 1].map(|sequence| pages::home(region.start, 0, sequence));
        let homes = homes.map(|at| {
            let mut page = crate::contract::zeroed_page();
            page.copy_from_slice(bytes_at(&mut self.members[member], at));
            page
        });
        let view = |page| pages::decode(page, MapKind::Redirected, Uuid([7; 16]), 0);
        let view = pages::newest(view(&homes[0]), view(&homes[1])).expect("sound");
        view.words().next().expect("a page has words")
    }
}

fn bytes_at(member: &mut [u8], at: u64) -> &mut [u8] {
    &mut member[(at * SECTOR_BYTES) as usize..][..PAGE_BYTES]
}

#[test]
fn a_redirected_write_waits_for_its_bits_on_every_member() {
    let mut pair = Pair::started(Some(PARTNER));
    pair.instance().ties.attached = true;
    assert!(pair.instance().redirectable());
    assert!(
        !pair.instance().redirect_ready(SHARE - 1, 2),
        "nothing is on record"
    );
    pair.step(Event::Turn);
    assert_eq!(pair.held.len(), 2, "a page each: the spare has no maps");
    pair.end(0);
    assert!(
        !pair.instance().redirect_ready(SHARE - 1, 2),
        "one member lacks it"
    );
    pair.run();
    assert!(pair.instance().redirect_ready(SHARE - 1, 2));
    assert!(
        !pair.instance().redirect_ready(5 * SHARE, 1),
        "another region"
    );
    pair.run();
    assert!(pair.instance().redirect_ready(5 * SHARE, 1));
    let covered = [(0, 2 * SHARE), (5 * SHARE, SHARE)];
    assert_eq!(pair.instance().redirected_extents(), covered);
    assert_eq!([pair.bits(0), pair.bits(1)], [0b10_0011; 2]);
}

#[test]
fn a_redirected_write_waits_for_the_partner_on_record() {
    let mut pair = Pair::started(None);
    pair.instance().set_partner(Some(PARTNER));
    pair.instance().redirect_ready(0, 8);
    pair.step(Event::Turn);
    let is_map = |io: &DeviceIo| io.sectors == 8;
    while let Some(index) = pair.held.iter().position(is_map) {
        pair.end(index);
    }
    assert_eq!(pair.held.len(), 3, "superblocks wait");
    pair.end(0);
    pair.end(0);
    assert!(
        !pair.instance().redirect_ready(0, 8),
        "a member does not know the partner"
    );
    assert!(
        pair.instance().redirected_extents().is_empty(),
        "a bit would speak of another log"
    );
    pair.run();
    assert!(!pair.instance().redirect_ready(0, 8), "now it is announced");
    pair.run();
    assert!(pair.instance().redirect_ready(0, 8));
    for member in 0..3 {
        assert_eq!(pair.superblock(member).partner, Some(PARTNER));
    }
    let next = Partner {
        epoch: 2,
        ..PARTNER
    };
    pair.instance().redirects_home();
    pair.instance().set_partner(Some(next));
    assert!(!pair.instance().redirect_ready(0, 8), "another epoch");
}

#[test]
fn the_last_that_goes_home_clears_the_bits() {
    let mut pair = Pair::started(Some(PARTNER));
    pair.instance().redirect_ready(0, 3 * SHARE);
    pair.run();
    pair.instance().redirects_home();
    pair.step(Event::Turn);
    assert!(
        !pair.instance().redirect_ready(SHARE, 1),
        "the clear page may land first"
    );
    pair.run();
    assert!(pair.instance().redirect_ready(SHARE, 1));
    assert_eq!(pair.bits(0), 0b10);
    pair.instance().redirects_home();
    pair.run();
    assert_eq!(pair.bits(1), 0);
    pair.restarted(false);
    assert!(pair.instance().redirected_extents().is_empty());
}

#[test]
fn a_start_with_the_log_set_takes_the_bits_over() {
    let mut pair = Pair::started(Some(PARTNER));
    pair.instance().redirect_ready(7 * SHARE, 1);
    pair.run();
    pair.restarted(true);
    assert_eq!(pair.instance().redirected_extents(), [(7 * SHARE, SHARE)]);
    assert!(
        pair.instance().redirect_ready(7 * SHARE, SHARE),
        "durable already"
    );
    assert_eq!(pair.instance().superblock.partner, Some(PARTNER));
}

/// The rows of an array that has grown hold more, and each bit stands for what it stood for.
#[test]
fn an_array_that_grows_has_more_bits_that_say_the_same() {
    let mut pair = Pair::new(Level::Raid4, Some(PARTNER));
    pair.command(Command::Start(StartMode::default()));
    pair.instance().ties.attached = true;
    let size = pair.instance().layout.size_sectors();
    pair.instance().redirect_ready(size - 1, 1);
    pair.run();
    let before = pair.instance().redirected_extents();
    pair.command(Command::Grow { by: 1 });
    pair.restarted(true);
    assert_eq!(pair.instance().redirected_extents(), before);
    pair.run_tasks();
    assert_eq!(pair.instance().layout.size_sectors(), 2 * size);
    assert_eq!(pair.instance().redirected_extents(), before);
    assert!(
        pair.instance().redirect_ready(size - 1, 1),
        "durable already"
    );
    assert!(!pair.instance().redirect_ready(2 * size - 1, 1));
    pair.run();
    pair.restarted(true);
    let covered = pair.instance().redirected_extents();
    assert_eq!(covered[0], before[0]);
    assert_eq!(covered[1].0 + covered[1].1, 2 * size);
}

#[test]
fn a_member_that_is_filled_gets_the_bits() {
    let mut pair = Pair::started(Some(PARTNER));
    pair.instance().redirect_ready(3 * SHARE, 1);
    pair.run();
    pair.command(Command::Fail(Member(1)));
    pair.run_tasks();
    let spare = pair.superblock(2);
    assert_eq!(spare.members[2].role, MemberRole::Active);
    assert_eq!(pair.bits(2), 1 << 3);
    assert_eq!(spare.partner, Some(PARTNER));
    assert!(
        pair.instance()
            .tasks
            .list
            .iter()
            .all(|task| task.kind != TaskKind::Rebuild)
    );
}
