//! The overlay's effects, and the results of computations and child requests: each goes to the floor that
//! carries it out.

use super::Pair;
use super::children::Owner;
use super::jobs::Job;
use super::reads::lost_of_home;
use super::start::reading::START_TAGS;
use crate::overlay::{Effect, Site};
use alloc::boxed::Box;
use restripe_array::{Compute, RequestError, SECTOR_BYTES, Tag, Verdict};

impl Pair {
    pub(super) fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Read {
                part,
                home,
                copy,
                buf,
            } => self.read_cached(part, home, copy, buf),
            Effect::WritePrimaries {
                sequence,
                request,
                all,
            } => self.write_beside(sequence, request, all),
            Effect::Pass { part, request } => {
                self.ask(Site::Home, Owner::Part(part), request);
            }
            Effect::Flush { part, site } => self.flush_set(part, site),
            Effect::Append {
                extent,
                payload,
                durable,
            } => self.append(extent, payload, durable),
            Effect::Pack {
                tag,
                extent,
                at,
                source,
            } => self.pack(tag, extent, at, source),
            Effect::Seal {
                sequence,
                extents,
                payload_sectors,
                durable,
            } => self.seal(sequence, extents, payload_sectors, durable),
            Effect::WriteNvram(wanted) => self.keep_version(wanted),
            Effect::DisableNvram => self.forgo_buffer(),
            Effect::Fetch { part, pieces } => self.fetch(part, pieces),
            Effect::Move { part, at, sectors } => self.moves.push_back((part, at, sectors)),
            Effect::Moved { buf } => self.release_moved(buf),
            Effect::Forget { home, log } => self.forget_kept(home, &log),
            Effect::ExpectWrites { home, soon } => {
                self.at_home(|core| core.foresee_writes(home, soon))
            }
            Effect::Destage { part, extents } => self.send_home(part, extents),
            Effect::Void { part, below } => self.void(part, None, below),
            Effect::Reuse {
                part,
                segment,
                durable,
            } => self.void(part, Some(segment), durable),
            Effect::Copied(copy, result) => self.copied(copy, result),
            Effect::Reply(tag, result) => self.overlaid(tag, result),
        }
    }

    /// Starts what waited for an announcement, for its time or for a buffer; false if nothing could be.
    pub(super) fn resume_jobs(&mut self) -> bool {
        let packs = self.next_pack() | self.next_seal();
        let packs = packs | self.next_version() | self.next_forgo();
        let destages = self.next_fetch() | self.next_copy() | self.next_move();
        packs | self.next_beside() | self.next_append() | destages | self.next_anchors()
    }

    pub(super) fn computed(&mut self, tag: Tag, mut compute: Box<Compute>, verdict: Verdict) {
        let page = compute.page.take();
        self.jobs.boxes.recycle_compute(compute);
        if let Some(read) = tag.0.checked_sub(START_TAGS) {
            return self.start_computed(read, page, verdict);
        }
        if let Some(Job::Slot) = self.jobs.list.get(tag.0) {
            return self.slot_computed(page, verdict);
        }
        if let Some(page) = page {
            self.jobs.boxes.recycle_page(page);
        }
        match (self.jobs.list.get(tag.0).copied(), verdict) {
            (Some(Job::Pack(pack)), _) => {
                self.jobs.list.remove(tag.0);
                self.overlay_mut().packed(pack);
            }
            (Some(Job::Gathered { part, sequence }), _) => {
                self.gathered_read(tag.0, part, sequence);
            }
            (Some(Job::Seal(sequence)), Verdict::Checksum(crc)) => {
                self.put_sealed_header(tag.0, sequence, crc);
            }
            (Some(Job::Seal(sequence)), _) => self.write_sealed(tag.0, sequence),
            (Some(Job::Version(index)), Verdict::Checksum(crc)) => {
                self.put_version(tag.0, index, crc);
            }
            (Some(Job::Version(index)), _) => self.write_version(tag.0, index),
            (Some(Job::Keep(load)), _) => self.piece_kept(tag.0, load),
            (Some(Job::Cached { part, memory, way }), _) => {
                self.cached_copied(tag.0, part, memory, way);
            }
            (Some(Job::CopyHome(copy)), _) => self.copy_moved(tag.0, copy, Ok(())),
            (Some(Job::Append(_)), Verdict::Checksum(crc)) => self.put_header(tag.0, crc),
            (Some(Job::Append(_)), _) => self.write_record(tag.0),
            (Some(Job::Anchor(page)), _) => self.put_anchor(tag.0, page),
            (Some(Job::CopyOut(out)), _) => self.append_read(tag.0, out),
            (job, _) => unreachable!("{job:?} computes nothing"),
        }
    }

    pub(super) fn child_ended(&mut self, owner: Owner, result: Result<(), RequestError>) {
        let result = match owner {
            Owner::Job(job) if self.reads_first(job) => result,
            Owner::LogPart { .. } | Owner::Job(_) => result.map_err(|error| self.of_log(error)),
            _ => result,
        };
        match owner {
            Owner::User(tag) => self.reply(tag, result),
            Owner::Part(part) => self.part_done(part, result),
            Owner::FirstPart {
                part,
                home,
                at,
                buf,
            } => self.first_read(part, home, at, buf, result),
            Owner::Beside(sequence) => self.primaries_written(sequence, result),
            // Home has it, too.
            Owner::LogPart {
                part,
                home,
                clean,
                buf,
            } if self.is_gone() || clean && result.is_err() => {
                self.read(Site::Home, Owner::Part(part), home, buf);
            }
            Owner::LogPart {
                part, home, buf, ..
            } => {
                let sectors = u64::from(buf.bytes) / SECTOR_BYTES;
                let result = result.map_err(|error| lost_of_home(error, home, sectors));
                self.part_done(part, result);
            }
            Owner::Job(job) => self.job_child_ended(job, result),
            Owner::Stop => self.stop_flushed(result),
            Owner::Start => self.start_written(result),
            Owner::StartRead(read) => self.start_read(read, result),
        }
    }

    fn job_child_ended(&mut self, job: u32, result: Result<(), RequestError>) {
        match self.jobs.list.get(job).copied() {
            Some(Job::Append(_)) => self.append_written(job, result),
            Some(Job::CopyHome(copy)) => self.copy_moved(job, copy, result),
            Some(Job::Anchor(page)) => {
                let all = self.anchor_written(job, page, result);
                if let Some(result) = all.filter(|_| self.start.is_some()) {
                    self.start_written(result);
                }
            }
            Some(Job::Version(index)) => self.version_written(job, index, result),
            Some(Job::Slot) => self.slot_moved(result),
            Some(Job::Load(load)) => self.load_read(job, load, result),
            Some(Job::Move { part, buf }) => self.move_read(job, part, buf, result),
            Some(Job::Seal(sequence)) => {
                self.jobs.list.remove(job);
                self.sealed(sequence, result);
            }
            Some(
                Job::CopyOut(_)
                | Job::Pack(_)
                | Job::Gathered { .. }
                | Job::Keep(_)
                | Job::Cached { .. },
            )
            | None => {
                unreachable!("it asked for nothing, or is over")
            }
        }
    }
}
