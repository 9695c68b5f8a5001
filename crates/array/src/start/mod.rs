//! The floor of the start: read what the members say, decide who is current, recover, and begin to serve.
//!
//! Owns what a start has read so far. Asks every floor below. Sends [`crate::facts::Notice::UnreadOut`], so
//! that the operations of failed members end before the recovery.
//!
//! | stage       | waits for                           | next                              |
//! |-------------|-------------------------------------|-----------------------------------|
//! | Superblocks | both copies of every device         | Owner, Maps, or the command fails |
//! | Owner       | another run, or time ([`crate::claims`]) | Superblocks, Maps, or it fails |
//! | Maps        | every map page of current members   | Logs, Securing, Settle            |
//! | Logs        | the log headers                     | Securing, Settle                  |
//! | Securing    | a flush of every member             | Replaying, Flushing               |
//! | Replaying   | rows made consistent (`recover.rs`) | Flushing                          |
//! | Flushing    | what was replayed is durable        | Levelling                         |
//! | Levelling   | the chosen version on who lags      | Settle                            |
//! | Settle      | superblocks and maps durable        | serving                           |
//!
//! The daemon before this one may have died while the members and their volatile caches live on. So nothing
//! that was read counts as durable, and the start flushes every member before it writes anything. A recovery
//! then bases itself on durable bytes, and it voids no record whose writes a power cut could still undo. A
//! member that fails this flush is failed like any other; recovery goes on without it, or the start is
//! refused.
//!
//! A read-only start writes nothing and voids nothing, so it flushes nothing. A user's flush of a read-only
//! array reaches every member.

mod adopt;
mod gather;
mod recover;
mod serve;

use crate::choose::Candidate;
use crate::claims::{Claims, Ownership};
use crate::config::Config;
use crate::contract::{Action, Bug, CommandError, CommandTag, DeviceIo, IoError, Page, StartMode};
use crate::durability::parity_log::Logs;
use crate::facts::StartStage;
use crate::members::device::Device;
use crate::members::ops::Owner;
use crate::members::pool::Share;
use crate::metadata::maps::LostMap;
use crate::metadata::writer::MetadataWriter;
use crate::metadata::{super_place, superblock_in};
use crate::report::ArrayState;
use crate::units::Member;
use alloc::vec::Vec;
use restripe_format::meta::MetaError;
use restripe_format::meta::log::{DoneList, LogRecord};
use restripe_format::meta::pages::MapKind;
use restripe_format::meta::superblock::{
    SUPER_B_PLACES, SUPERBLOCK_PAGES, SUPERBLOCK_SECTORS, Superblock,
};

/// What a read of the start is for.
#[derive(Clone, Copy, Debug)]
enum Read {
    /// A place of a superblock, by its number.
    Super {
        index: usize,
    },
    Map {
        kind: MapKind,
        page: u32,
    },
    /// Part of a log, from this sector of it.
    Log {
        from: u64,
        pages: u64,
    },
}

/// A record of a member's log, with the sector of the log that it lies at.
type Record = (Member, u64, LogRecord);

#[derive(Default)]
pub(crate) struct StartState {
    tag: CommandTag,
    mode: StartMode,
    reads: Vec<(Member, Read)>,
    /// Reads that wait for room.
    queue: Vec<u32>,
    outstanding: u32,
    candidates: Vec<Candidate>,
    /// What lies at each device's places of a superblock: copy A's, then copy B's.
    places: Vec<[Option<Result<Superblock, MetaError>>; 1 + SUPER_B_PLACES.len()]>,
    maps: Vec<MapVersion>,
    records: Vec<Record>,
    /// Those found on members that failed, and may come back.
    stale_records: Vec<Record>,
    /// What was read of members, and does not count, with how many of it.
    ignored: Vec<(Member, &'static str, u64)>,
    /// The newest done-list of each member's log.
    done_lists: Vec<(Member, DoneList)>,
    /// The version of the superblock that was chosen, as it was read.
    chosen: Option<Superblock>,
    /// Members whose newest copy is older than that.
    lagging: Vec<u16>,
    /// Members whose logs cannot be read in full.
    unread: Vec<Member>,
    /// The logs were read: what they record decides.
    reads_logs: bool,
    /// The data that the log set alone has is given up: it will not be taken for this array's any more.
    forsakes: bool,
    /// The second version of this start is being written, or is.
    confirms: bool,
    replays_next: u32,
    recovered: u64,
}

/// The newest valid version of a map page met so far.
struct MapVersion {
    kind: MapKind,
    page: u32,
    newest: Option<(u64, Page)>,
    /// Some member did not give its own.
    unread: bool,
}

/// Pages of a log read at once.
const LOG_PAGES: u64 = 16;
/// Reads of a start in flight.
const READS: u32 = 64;

pub struct Start {
    below: Claims,
    starting: Option<StartState>,
}

floor!(Start, Claims);

impl Start {
    pub(crate) fn new(config: Config, share: Share) -> Start {
        Start {
            starting: None,
            below: Claims::new(config, share),
        }
    }

    /// A start that only reads writes nothing, so it promises nothing either.
    fn allow_volatile(&self, mode: StartMode) -> Result<(), CommandError> {
        let allowed = mode.volatile_members || mode.read_only;
        let volatile = self.devices.iter().position(|device| device.info.volatile);
        match volatile.filter(|_| !allowed && !self.planted(Bug::VolatileTakenIn)) {
            Some(index) => Err(CommandError::Volatile(Member(index as u16))),
            None => Ok(()),
        }
    }

    pub(crate) fn begin_start(&mut self, tag: CommandTag, mode: StartMode) {
        if self.starts() || self.state != ArrayState::Starting {
            return self.answer(tag, Err(CommandError::Busy("the array is running")));
        }
        if let Err(error) = self.allow_volatile(mode) {
            return self.answer(tag, Err(error));
        }
        self.mode = mode;
        self.halt = None;
        self.forget_attempt();
        let devices = self.devices.iter().enumerate();
        let candidates = devices.map(|(index, device)| Candidate {
            member: Member(index as u16),
            info: device.info,
            copies: [None, None],
        });
        let starting = StartState {
            tag,
            mode,
            candidates: candidates.collect(),
            ..StartState::default()
        };
        self.starting = Some(starting);
        self.withheld = LostMap::new(0, 0);
        self.lossless = false;
        self.ownership = Ownership::default();
        self.doubted = false;
        self.ask_superblocks();
        self.start_turn();
    }

    /// Reads both copies of every device, wherever they may lie.
    fn ask_superblocks(&mut self) {
        let now = self.now;
        self.ownership.asked(now);
        let starting = self.starting.as_mut().expect("a start runs");
        self.below.start = Some(StartStage::Superblocks);
        starting.places.clear();
        for (index, device) in self.below.devices.iter().enumerate() {
            let sectors = device.info.sectors;
            let member = Member(index as u16);
            starting.places.push(Default::default());
            for index in 0..=SUPER_B_PLACES.len() {
                if super_place(index) + SUPERBLOCK_SECTORS <= sectors {
                    starting.ask(member, Read::Super { index });
                }
            }
        }
    }

    /// A start that waited to see whether another run owns the array begins anew.
    pub(crate) fn start_again(&mut self) {
        self.ask_superblocks();
        self.start_turn();
    }

    /// A start that failed leaves nothing behind for the next.
    fn forget_attempt(&mut self) {
        self.tasks.begin_anew();
        self.reshape = None;
        self.writer = MetadataWriter::default();
        self.logs = Logs::default();
        self.roles.clear();
        let unflushed = !self.planted(Bug::StartUnflushed);
        for device in &mut self.devices {
            // What the attempt has outstanding still is.
            let (in_flight, spent) = (device.in_flight, device.spent);
            *device = Device::new(device.info);
            (device.in_flight, device.spent) = (in_flight, spent);
            device.unflushed = unflushed;
        }
    }

    /// Issues queued reads; when a stage has nothing outstanding, goes on to the next.
    pub(crate) fn start_turn(&mut self) {
        loop {
            let Some(starting) = &mut self.starting else {
                return;
            };
            if starting.outstanding >= READS {
                return;
            }
            match starting.queue.pop() {
                Some(step) => {
                    starting.outstanding += 1;
                    self.start_read(step);
                }
                None if starting.outstanding == 0 => {
                    if !self.start_next() {
                        return;
                    }
                }
                None => return,
            }
        }
    }

    fn start_read(&mut self, step: u32) {
        let starting = self.starting.as_ref().expect("reads belong to a start");
        let (member, read) = starting.reads[step as usize];
        let places = self.devices[member.0 as usize].places;
        let (at, count) = match read {
            Read::Super { index } => (super_place(index), SUPERBLOCK_PAGES as u64),
            Read::Map { kind, page } => {
                let first = places.map_page(kind, page, 0);
                (first.expect("only members with room for it are asked"), 2)
            }
            Read::Log { from, pages } => (places.log + from, pages),
        };
        self.read_pages(Owner::Start(step), member, at, count as usize);
    }

    pub(crate) fn start_read_done(
        &mut self,
        step: u32,
        io: &DeviceIo,
        result: Result<(), IoError>,
    ) {
        let array = self.superblock.array;
        let Some(starting) = &mut self.starting else {
            return;
        };
        starting.outstanding -= 1;
        let (member, read) = starting.reads[step as usize];
        let whole = result.is_ok();
        match read {
            Read::Super { index } if whole => {
                starting.places[member.0 as usize][index] = Some(superblock_in(io));
            }
            Read::Map { kind, page } if whole => starting.note_map(kind, page, array, io),
            Read::Map { kind, page } => starting.map_unread(kind, page),
            Read::Log { from, .. } if whole => starting.note_log(member, from, array, io),
            Read::Log { from, pages } => starting.log_unread(member, from, pages),
            _ => {}
        }
    }

    pub(crate) fn start_read_given_up(&mut self, step: u32) {
        if let Some(starting) = &mut self.starting {
            starting.outstanding -= 1;
            let (member, read) = starting.reads[step as usize];
            match read {
                Read::Log { from, .. } => starting.log_unread(member, from, 1),
                Read::Map { kind, page } => starting.map_unread(kind, page),
                Read::Super { .. } => {}
            }
        }
    }

    /// The next stage. False when there is nothing to do but wait, or the start has ended.
    fn start_next(&mut self) -> bool {
        match self.start.expect("checked by the caller") {
            StartStage::Superblocks => self.start_choose(),
            StartStage::Maps => {
                self.tell_ignored();
                self.start_maps()
            }
            StartStage::Logs => {
                self.drop_records_out_of_range();
                self.tell_ignored();
                self.start_secure()
            }
            StartStage::Replaying => self.replay_at_start(),
            StartStage::Owner
            | StartStage::Securing
            | StartStage::Flushing
            | StartStage::Levelling => false,
            StartStage::Settle => self.start_settle(),
        }
    }

    pub(crate) fn start_fail(&mut self, error: CommandError) -> bool {
        // Of two causes in one step the first ends the start.
        if self.starting.is_some() {
            let starting = self.end_start();
            self.out
                .push(Action::CommandReply(starting.tag, Err(error)));
        }
        false
    }

    /// The start is over.
    fn end_start(&mut self) -> StartState {
        self.start = None;
        self.starting.take().expect("a start runs")
    }

    fn start_mut(&mut self) -> &mut StartState {
        self.starting.as_mut().expect("a start runs")
    }
}
