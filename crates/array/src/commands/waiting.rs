//! Commands that wait: for what they changed to be durable, or for what their device has on record.

use crate::contract::{Command, CommandTag};
use crate::units::Member;
use restripe_format::meta::MetaError;
use restripe_format::meta::superblock::{SUPER_B_PLACES, Superblock};

/// The reply to a command, which waits until what it changed is on the members.
pub(super) struct Answer {
    pub(super) tag: CommandTag,
    pub(super) version: u64,
    /// The member that the command takes in. Its failure meanwhile is the command's.
    pub(super) added: Option<Member>,
}

/// The places where a device may have superblocks.
pub(super) const PLACES: usize = 1 + SUPER_B_PLACES.len();

/// A command that waits for what its device has on record.
pub(super) struct Admission {
    pub(super) tag: CommandTag,
    pub(super) command: Command,
    pub(super) member: Member,
    pub(super) places: [Option<Result<Superblock, MetaError>>; PLACES],
    pub(super) outstanding: u32,
    /// Copy A could not be read.
    pub(super) unread: bool,
    /// Whatever it carries may be overwritten, but for a member that is in use.
    pub(super) overwrites: bool,
    pub(super) twin: Option<Twin>,
}

/// The member in use whose superblock the device has.
pub(super) struct Twin {
    pub(super) member: Member,
    /// The newest superblock of the device before the step.
    pub(super) before: Superblock,
    /// The version to be awaited; none once the device is read again.
    pub(super) version: Option<u64>,
}
