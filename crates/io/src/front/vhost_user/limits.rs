//! What a device offers and takes at most, and the name of a guest's memory.

/// Queues that a VMM may set up, one a virtual processor.
pub(crate) const QUEUES_MAX: u16 = 64;
/// Descriptors of a queue.
pub(crate) const QUEUE_SIZE_MAX: u16 = 1024;
/// Pieces of data of a request, and bytes of each: together less than a buffer of the daemon has.
pub(crate) const SEGMENTS_MAX: u32 = 126;
pub(crate) const SEGMENT_BYTES_MAX: u32 = 256 * 1024;
/// Ranges of one discard, or write of zeros.
pub(crate) const RANGES_MAX: u32 = 16;
/// Sectors of one such range: 1 GiB.
pub(crate) const RANGE_SECTORS_MAX: u32 = 1 << 21;
/// Parts of a guest's memory.
pub(crate) const REGIONS_MAX: usize = 64;

/// A guest's memory.
pub(crate) type Guest = vm_memory::GuestMemoryMmap<()>;
