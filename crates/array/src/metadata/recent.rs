//! What was written lately. A copy of a member that passes for the member may lack it.
//!
//! A member that left is rebuilt in part when it comes back, if its superblock has the version under which
//! it left or the one before: a crash may cut a version short
//! ([`restripe_format::meta::superblock::MemberEntry::is_outdated`]). A copy that was made of the member
//! under one of these versions has the same superblock. The copy has all that was flushed before the older
//! of the two was begun. So a member that leaves is owed every region that was written since, and what it
//! misses from then on.
//!
//! This takes no write before a member fails. A run that records itself as the owner writes a version now and
//! then while the array is written, so that little was written since the last two.

/// Times are counted in flushes, as in [`crate::metadata::intent::IntentUsers`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Recent {
    /// The last flush that ended.
    flushed: u64,
    /// The last flush that had ended when each of the last two versions of the superblock was begun, the
    /// older version first.
    versions: [u64; 2],
    /// How many flushes had begun when the array was last written.
    written: u64,
}

impl Recent {
    /// Whether a further version behind a flush would leave less that was written lately.
    pub(crate) fn is_any(&self) -> bool {
        self.may_lack(self.written)
    }

    pub(crate) fn flush_ended(&mut self, flush: u64) {
        self.flushed = flush;
    }

    /// A version of the superblock is begun.
    pub(super) fn version_begun(&mut self) {
        self.versions = [self.versions[1], self.flushed];
    }

    /// Something was written when this number of flushes had begun.
    pub(crate) fn note_write(&mut self, begun: u64) {
        self.written = begun;
    }

    /// Whether a device with one of the last two versions may lack what was written when this number of
    /// flushes had begun. (A start flushes before anything is written: 0 is never.)
    pub(super) fn may_lack(&self, begun: u64) -> bool {
        begun != 0 && begun >= self.versions[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_recent_until_two_versions_were_begun_behind_its_flush() {
        let mut recent = Recent::default();
        assert!(!recent.may_lack(0), "nothing was written");
        recent.flush_ended(1);
        recent.version_begun();
        recent.version_begun();
        recent.note_write(1);
        assert!(recent.may_lack(1));
        recent.version_begun();
        recent.version_begun();
        assert!(recent.may_lack(1), "versions without a flush cover nothing");
        recent.flush_ended(2);
        assert!(recent.may_lack(1));
        recent.version_begun();
        assert!(
            recent.may_lack(1),
            "the version before may be the newest there"
        );
        recent.version_begun();
        assert!(!recent.may_lack(1));
        assert!(recent.may_lack(2), "written behind the flush");
    }
}
