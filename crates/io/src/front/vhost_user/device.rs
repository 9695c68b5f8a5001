//! The device as its VMM sets it up: the messages of vhost-user, each checked before it changes anything.

use super::config;
use super::inflight::{Inflight, check_bytes};
use super::job::Job;
use super::limits::{Guest, QUEUES_MAX, REGIONS_MAX};
use super::ring::Ring;
use super::signals::Signals;
use super::turn::Turn;
use crate::front::{Export, Report};
use restripe_array::Slab;
use std::fs::File;
use std::sync::Arc;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVirtioFeatures, VhostUserVringAddrFlags,
    VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};
use vhost::{VhostUserMemoryRegionBase, vhost_user::message::VhostUserLog};
use vm_memory::{FileOffset, GuestAddress, GuestMemoryRegion, GuestRegionMmap};

/// Where the VMM has a part of the guest's memory itself: addresses of rings come as its own.
#[derive(PartialEq, Eq)]
struct Region {
    user: u64,
    bytes: u64,
    guest: u64,
}

pub(crate) struct Device {
    pub(crate) number: usize,
    /// The array, as it was when the last message came.
    pub(crate) export: Arc<Export>,
    /// Bytes that it had when the VMM last read the size. Another connection of the VMM may have done so.
    pub(crate) size_read: Option<u64>,
    pub(crate) features: u64,
    pub(crate) protocol: u64,
    pub(crate) writeback: bool,
    pub(crate) memory: Option<Arc<Guest>>,
    regions: Vec<Region>,
    pub(crate) rings: Vec<Ring>,
    pub(crate) signals: Arc<Signals>,
    pub(crate) report: Arc<Report>,
    pub(crate) inflight: Option<Inflight>,
    pub(crate) jobs: Slab<Job>,
    /// The chain that waits for memory. Nothing is taken before it.
    pub(crate) parked: Option<u32>,
    /// The ring that is looked at first the next time.
    pub(crate) first: usize,
    pub(crate) turn: Turn,
}

impl Device {
    pub(crate) fn new(
        number: usize,
        export: Arc<Export>,
        signals: Arc<Signals>,
        report: Arc<Report>,
    ) -> Device {
        let writeback = export.durable;
        Device {
            number,
            export,
            size_read: None,
            features: 0,
            protocol: 0,
            writeback,
            memory: None,
            regions: Vec::new(),
            rings: (0..QUEUES_MAX).map(Ring::new).collect(),
            signals,
            report,
            inflight: None,
            jobs: Slab::default(),
            parked: None,
            first: 0,
            turn: Turn::new(),
        }
    }

    fn offered(&self) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::RESET_DEVICE
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
    }

    fn ring(&mut self, index: u32) -> Result<&mut Ring> {
        self.rings
            .get_mut(index as usize)
            .ok_or(Error::InvalidParam)
    }

    /// A ring that is being set up.
    fn resting(&mut self, index: u32) -> Result<&mut Ring> {
        let ring = self.ring(index)?;
        match ring.started() {
            true => Err(Error::InvalidOperation("the ring is started")),
            false => Ok(ring),
        }
    }

    /// An address of the VMM's as one of the guest's.
    fn guest_address(&self, user: u64) -> Result<GuestAddress> {
        let within = |region: &&Region| {
            let offset = user.checked_sub(region.user);
            offset.is_some_and(|offset| offset < region.bytes)
        };
        let region = self
            .regions
            .iter()
            .find(within)
            .ok_or(Error::InvalidParam)?;
        let address = (user - region.user).checked_add(region.guest);
        address.map(GuestAddress).ok_or(Error::InvalidParam)
    }

    /// As after a reset of the guest: nothing is in flight.
    fn reset(&mut self) {
        for ring in &mut self.rings {
            ring.stop();
            ring.enabled = false;
        }
        // Writes are answered as before: the VMM's own copy of the configuration outlives a reset.
        self.features = 0;
    }
}

impl Region {
    fn of(region: &VhostUserMemoryRegion) -> Region {
        Region {
            user: region.user_addr,
            bytes: region.memory_size,
            guest: region.guest_phys_addr,
        }
    }
}

fn map(region: &VhostUserMemoryRegion, file: File) -> Result<GuestRegionMmap> {
    let bytes = usize::try_from(region.memory_size).map_err(|_| Error::InvalidParam)?;
    check_bytes(&file, region.mmap_offset, region.memory_size).map_err(Error::ReqHandlerError)?;
    let file = FileOffset::new(file, region.mmap_offset);
    let at = GuestAddress(region.guest_phys_addr);
    GuestRegionMmap::from_range(at, bytes, Some(file)).map_err(|_| Error::InvalidParam)
}

impl VhostUserBackendReqHandlerMut for Device {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    /// Of no use any more by the standard; some send it before they go.
    fn reset_owner(&mut self) -> Result<()> {
        self.reset();
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        self.reset();
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(config::features(&self.export))
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !config::acceptable(&self.export) != 0 {
            return Err(Error::FeatureMismatch);
        }
        self.features = features;
        if features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() == 0 {
            self.rings.iter_mut().for_each(|ring| ring.enabled = true);
        }
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy_listening: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        let mapped = regions
            .iter()
            .zip(files)
            .map(|(region, file)| map(region, file));
        let mut mapped = mapped.collect::<Result<Vec<_>>>()?;
        mapped.sort_by_key(GuestMemoryRegion::start_addr);
        let memory = Guest::from_regions(mapped).map_err(|_| Error::InvalidParam)?;
        // What is in flight keeps the memory that it began with.
        self.memory = Some(Arc::new(memory));
        self.regions = regions.iter().map(Region::of).collect();
        Ok(None)
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(REGIONS_MAX as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        fd: File,
        _postcopy_listening: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        if self.regions.len() >= REGIONS_MAX {
            return Err(Error::InvalidParam);
        }
        let added = Arc::new(map(region, fd)?);
        let memory = match &self.memory {
            Some(memory) => memory.insert_region(added),
            None => Guest::from_arc_regions(vec![added]),
        };
        self.memory = Some(Arc::new(memory.map_err(|_| Error::InvalidParam)?));
        self.regions.push(Region::of(region));
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let region = Region::of(region);
        let at = self.regions.iter().position(|known| *known == region);
        let (at, memory) = at.zip(self.memory.as_ref()).ok_or(Error::InvalidParam)?;
        let removed = memory.remove_region(GuestAddress(region.guest), region.bytes);
        let (memory, _) = removed.map_err(|_| Error::InvalidParam)?;
        self.memory = Some(Arc::new(memory));
        self.regions.swap_remove(at);
        Ok(())
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let ring = self.resting(index)?;
        ring.set_size(num).map_err(|_| Error::InvalidParam)
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        let table = self.guest_address(descriptor)?;
        let (available, used) = (self.guest_address(available)?, self.guest_address(used)?);
        let placed = self.resting(index)?.place(table, available, used);
        placed.map_err(|_| Error::InvalidParam)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        self.resting(index)?.set_base(base);
        Ok(())
    }

    /// All that came before the base is answered and signalled: after this answer the VMM looks at neither.
    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        if !self.ring(index)?.is_idle() {
            return Err(Error::InvalidOperation("requests are in flight"));
        }
        self.signal();
        let base = self.ring(index)?.stop();
        Ok(VhostUserVringState::new(index, u32::from(base)))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let signals = Arc::clone(&self.signals);
        let ring = self.ring(u32::from(index))?;
        ring.set_kick(fd, &signals).map_err(Error::ReqHandlerError)
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let ring = self.ring(u32::from(index))?;
        ring.set_call(fd).map_err(Error::ReqHandlerError)
    }

    fn set_vring_err(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let ring = self.ring(u32::from(index))?;
        ring.set_error(fd).map_err(Error::ReqHandlerError)
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(self.offered())
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        if features & !self.offered().bits() != 0 {
            return Err(Error::FeatureMismatch);
        }
        self.protocol = features;
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(u64::from(QUEUES_MAX))
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.ring(index)?.enabled = enable;
        Ok(())
    }

    fn get_config(&mut self, at: u32, bytes: u32, _flags: VhostUserConfigFlags) -> Result<Vec<u8>> {
        if config::has_size(at, bytes) {
            self.size_read = Some(self.export.size_bytes);
        }
        config::space(&self.export, self.writeback, at, bytes).ok_or(Error::InvalidParam)
    }

    fn set_config(&mut self, at: u32, bytes: &[u8], _flags: VhostUserConfigFlags) -> Result<()> {
        match (at as usize, bytes) {
            (config::WRITEBACK_AT, [writeback]) => {
                self.writeback = *writeback != 0 && self.export.durable;
                if let Some(inflight) = &self.inflight {
                    inflight.keep_writeback(self.writeback);
                }
                Ok(())
            }
            _ => Err(Error::InvalidParam),
        }
    }

    fn get_inflight_fd(&mut self, wanted: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        Inflight::create(wanted).map_err(Error::ReqHandlerError)
    }

    fn set_inflight_fd(&mut self, inflight: &VhostUserInflight, file: File) -> Result<()> {
        if self.rings.iter().any(Ring::started) {
            return Err(Error::InvalidOperation("a ring is started"));
        }
        let inflight = Inflight::map(inflight, file).map_err(Error::ReqHandlerError)?;
        self.writeback = inflight.writeback(self.writeback) && self.export.durable;
        inflight.keep_writeback(self.writeback);
        self.inflight = Some(inflight);
        Ok(())
    }

    // ------------------------------------------------------------------------------------- what is not
    // offered

    fn set_gpu_socket(&mut self, _backend: GpuBackend) -> Result<()> {
        Err(Error::InvalidOperation("a disk"))
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
        Err(Error::InvalidOperation("not offered"))
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _fd: File,
    ) -> Result<Option<File>> {
        Err(Error::InvalidOperation("not offered"))
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(Error::InvalidOperation("not offered"))
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(Error::InvalidOperation("not offered"))
    }

    fn set_log_base(&mut self, _log: &VhostUserLog, _file: File) -> Result<()> {
        Err(Error::InvalidOperation("not offered"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connected() -> Device {
        let signals = Signals::new().expect("a context");
        let export = Arc::new(config::tests::export());
        let report = Arc::new(Report::new(|_| {}));
        Device::new(0, export, Arc::new(signals), report)
    }

    fn set_writeback(device: &mut Device, writeback: u8) {
        let at = config::WRITEBACK_AT as u32;
        let set = device.set_config(at, &[writeback], VhostUserConfigFlags::WRITABLE);
        set.expect("it can be set");
    }

    /// A VMM sends the mode once, not again to the process after this one, nor after a reset.
    #[test]
    fn write_through_outlives_the_process_and_a_reset() {
        let wanted = VhostUserInflight {
            mmap_size: 0,
            mmap_offset: 0,
            num_queues: 1,
            queue_size: 8,
        };
        let mut first = connected();
        let (named, file) = first.get_inflight_fd(&wanted).expect("memory");
        let reconnected = |device: &mut Device| {
            let copy = file.try_clone().expect("a copy");
            device.set_inflight_fd(&named, copy).expect("sound");
            device.writeback
        };
        assert!(reconnected(&mut first), "the mode of a device without one");
        set_writeback(&mut first, 0);
        assert!(!reconnected(&mut connected()));
        first.reset_device().expect("it can be reset");
        assert!(!first.writeback);
        set_writeback(&mut first, 1);
        assert!(reconnected(&mut connected()));
    }

    #[test]
    fn memory_of_another_program_means_write_through() {
        let (named, file) = connected()
            .get_inflight_fd(&VhostUserInflight {
                mmap_size: 0,
                mmap_offset: 0,
                num_queues: 1,
                queue_size: 8,
            })
            .expect("memory");
        let named = VhostUserInflight {
            mmap_size: named.mmap_size - 64,
            ..named
        };
        let mut device = connected();
        device.set_inflight_fd(&named, file).expect("sound");
        assert!(!device.writeback);
    }
}
