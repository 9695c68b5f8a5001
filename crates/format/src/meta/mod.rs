//! What the engine keeps on its members: superblocks, map pages, log records. Encoding, decoding, and what a new array
//! begins with ([`create`](create::create)).
//!
//! `docs/reference/format.md` describes every byte. Decoding is total: whatever the bytes are, it ends in a value whose every
//! field is in range, or in a [`MetaError`].

pub mod bytes;
pub mod crc;
pub mod create;
#[cfg(test)]
mod document;
mod error;
pub mod header;
pub mod leases;
pub mod log;
pub mod pages;
#[cfg(any(test, feature = "testing"))]
pub mod random;
pub mod reshape;
pub mod rules;
pub mod superblock;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use create::{Content, CreateError, CreateOptions, Creation, Init, create};
pub use error::{MetaError, field};
pub use leases::{Lease, LeaseCommand, LeaseError, LeaseName, Parcel};
pub use log::LogRecord;
pub use pages::{MapKind, PageView};
pub use reshape::{Journal, Reshape};
pub use superblock::{
    ArrayOwner, BufferMark, LastScrub, MemberEntry, MemberRole, Partner, PartnerRole, Placement,
    Region, RegionKind, ScrubState, ScrubbedMember, Superblock, Tail, TaskRecord, WriteHole,
};

/// The format version that this code writes. A reader refuses another major version and takes any minor one.
pub const FORMAT_MAJOR: u16 = 1;
pub const FORMAT_MINOR: u16 = 0;
