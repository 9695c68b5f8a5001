//! How an array of a script is made.

use super::*;

/// What an array is made like.
#[derive(Clone)]
pub struct Setup {
    pub options: CreateOptions,
    pub info: MemberInfo,
    pub rows: u64,
    pub cache: Option<CacheLimits>,
    pub heat: HeatLimits,
    pub bug: Option<restripe_array::Bug>,
}

impl Setup {
    pub fn new(level: Level, slots: u16) -> Setup {
        let info = MemberInfo {
            sectors: 1024,
            logical_block: 512,
            trim_zeroes: true,
            fast_zero: true,
            volatile: false,
        };
        let mut options = CreateOptions::new("script", Uuid([7; 16]), level, CHUNK as u32);
        options.members = vec![info; slots.into()];
        options.log_sectors = Some(160);
        options.init = Init::Zero;
        options.extent_rows = Some(2);
        options.intent_rows = Some(2);
        Setup {
            options,
            info,
            rows: 8,
            cache: None,
            heat: HeatLimits::default(),
            bug: None,
        }
    }

    pub fn spares(mut self, spares: usize) -> Setup {
        self.options.spares = spares;
        let members = self.options.members.len() + spares;
        self.options.members.resize(members, self.info);
        self
    }

    pub fn unwritten(mut self) -> Setup {
        self.options.init = Init::Written;
        self
    }

    pub fn hole(mut self, hole: WriteHole) -> Setup {
        self.options.write_hole = hole;
        self
    }

    pub fn info(mut self, change: impl FnOnce(&mut MemberInfo)) -> Setup {
        change(&mut self.info);
        self.options.members.fill(self.info);
        self
    }

    /// Chunks of so many sectors, on members that have room for them.
    pub fn chunk(mut self, sectors: u32) -> Setup {
        self.options.geometry.chunk_sectors = sectors;
        let room = self.rows * u64::from(sectors);
        self.info(|info| info.sectors += room)
    }

    /// With so many sectors of the array or more set aside for leases.
    pub fn lending(mut self, sectors: u64) -> Setup {
        self.options.lend_sectors = Some(sectors);
        self
    }

    /// With a read cache of so many blocks.
    pub fn cached(mut self, blocks: u32, rule: Rule) -> Setup {
        self.cache = Some(CacheLimits { blocks, rule });
        self
    }

    pub(super) fn limits(&self) -> Limits {
        let limits = Limits {
            pool: POOL,
            requests: 64,
            slices: 64,
            ios: 256,
            heat: self.heat,
            ..Limits::default()
        };
        limits.with_cache(self.cache)
    }

    /// Creates the array on fresh members, not yet started.
    pub fn made(mut self) -> Array {
        let members = self.options.members.len();
        if self.options.uuids.is_empty() {
            self.options.uuids = (1..=members as u8).map(|n| Uuid([n; 16])).collect();
        }
        self.options.size_per_member =
            Some(self.rows * u64::from(self.options.geometry.chunk_sectors));
        let creation = create(&self.options).expect("the geometry is sound");
        let mut disks = vec![Disk::new(self.info.sectors); members];
        for (member, at, content) in &creation.writes {
            if let Content::Page(page) = content {
                let place = (*at * SECTOR) as usize;
                disks[*member].durable[place..place + page.len()].copy_from_slice(&page[..]);
            }
        }
        for disk in &mut disks {
            disk.image = disk.durable.clone();
        }
        let layout = Layout::new(creation.geometry).expect("the geometry is sound");
        let model = vec![0; (layout.size_sectors() * SECTOR) as usize];
        let config = Config {
            members: self.options.members.clone(),
            limits: self.limits(),
            surrogate: None,
            io_timeout: TIMEOUT,
            bug: self.bug,
        };
        Array {
            engine: Engine::new(config.clone()),
            config,
            regions: creation.superblock.regions,
            layout,
            disks,
            paths: BTreeMap::new(),
            model,
            buffers: BTreeMap::new(),
            held: Vec::new(),
            computes: None,
            replies: BTreeMap::new(),
            answers: BTreeMap::new(),
            facts: Vec::new(),
            listing: String::new(),
            wake: None,
            now: 0,
            next: 0,
            events: VecDeque::new(),
        }
    }

    /// Creates and starts.
    pub fn start(self) -> Array {
        let mut array = self.made();
        array.start().expect("a whole array starts");
        array.listing.clear();
        array
    }
}

/// A RAID-4 that has had so many data slots, one count after the other.
pub fn grown4(counts: &[u16]) -> Setup {
    let grown = History::of(counts).expect("a history");
    let mut setup = Setup::new(Level::Raid4, grown.slots() + 1);
    setup.options.geometry.grown = Some(grown);
    setup
}

pub fn raid5(slots: u16) -> Setup {
    Setup::new(Level::Raid5(Default::default()), slots)
}

pub fn raid6(slots: u16) -> Setup {
    Setup::new(Level::Raid6(Default::default()), slots)
}

pub fn raid1(slots: u16) -> Setup {
    Setup::new(Level::Raid1, slots)
}
