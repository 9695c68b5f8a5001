//! What users ask, and what they are told.

use super::media::at;
use super::{Asked, Copy, SECTORS, UNIT, World};
use restripe_array::{Buf, BufRef, Request, RequestError, RequestOp, RequestTag, SECTOR_BYTES};
use restripe_sim::oracle::WriteKind;
use restripe_tier::overlay::CopyTag;

impl World {
    pub(super) fn ask(&mut self) {
        if !self.overlay.ready() {
            return;
        }
        let first = self.rng.below(SECTORS);
        let longest = *self.rng.pick(&[1, 4, 16, 40]);
        let sectors = self.rng.between(1, longest).min(SECTORS - first);
        let op = match self.rng.below(12) {
            0 => RequestOp::Flush,
            1 => RequestOp::Trim,
            2 => RequestOp::WriteZeroes { fast: false },
            3..=6 => RequestOp::Read,
            _ => RequestOp::Write,
        };
        let redirect = self.rng.chance(2, 3);
        self.ask_for(op, first, sectors, redirect);
    }

    pub(super) fn ask_for(&mut self, op: RequestOp, first: u64, sectors: u64, redirect: bool) {
        self.next += 1;
        let buf = Buf(Buf::USER + self.next);
        let fua = self.rng.chance(1, 8);
        let mut contents = vec![0; sectors as usize * UNIT];
        let asked = match op {
            RequestOp::Flush => Asked::Flush(self.oracle.flush()),
            RequestOp::Read => Asked::Read(self.oracle.read(first, sectors)),
            _ => {
                let kind = match op {
                    RequestOp::Trim => WriteKind::Trim,
                    RequestOp::Write => WriteKind::Data,
                    _ => WriteKind::Zeroes,
                };
                let id = self.oracle.write(first, sectors, kind, fua);
                self.oracle.fill(id, &mut contents);
                Asked::Write(id)
            }
        };
        self.memory.insert(buf, contents);
        self.asked.insert(u64::from(self.next), asked);
        let bytes = if op == RequestOp::Flush {
            0
        } else {
            sectors * SECTOR_BYTES
        };
        let request = Request {
            tag: RequestTag(u64::from(self.next)),
            op,
            offset: first * SECTOR_BYTES,
            bytes,
            buf: BufRef::new(buf, 0, bytes as u32),
            fua: fua && matches!(op, RequestOp::Write | RequestOp::WriteZeroes { .. }),
        };
        let redirect = redirect && (!self.ahead || self.overlay.trusts());
        self.overlay.request(request, redirect);
        self.collect();
    }

    /// A clean copy is begun, or read, or appended.
    pub(super) fn copy_in(&mut self) {
        let Some(index) = self.copies.iter().position(|copy| !copy.read) else {
            return self.begin_copy();
        };
        if self.rng.chance(1, 2) {
            return;
        }
        let copy = &mut self.copies[index];
        copy.read = true;
        let (tag, home, sectors, buf) = (copy.tag, copy.home, copy.sectors, copy.buf);
        let bytes = sectors * SECTOR_BYTES as u32;
        let whole = BufRef::new(buf, 0, bytes);
        self.memory.insert(buf, vec![0; at(bytes)]);
        self.read(home, None, whole);
        // Time passes between the read and what comes of it.
        for _ in 0..self.rng.below(6) {
            self.work();
            self.ask();
        }
        self.overlay.append_copy(tag, whole);
        self.collect();
    }

    pub(super) fn begin_copy(&mut self) {
        let home = self.rng.below(SECTORS - 24);
        let sectors = self.rng.between(1, 24) as u32;
        if let Some(tag) = self.overlay.begin_copy(home, sectors) {
            self.next += 1;
            let buf = Buf(Buf::USER + self.next);
            self.copies.push(Copy {
                tag,
                home,
                sectors,
                buf,
                read: false,
            });
        }
    }

    pub(super) fn copied(&mut self, tag: CopyTag, result: Result<(), RequestError>) {
        self.count(if result.is_ok() {
            "copies"
        } else {
            "copies given up"
        });
        let index = self.copies.iter().position(|copy| copy.tag == tag);
        let copy = self.copies.swap_remove(index.expect("it was begun"));
        self.memory.remove(&copy.buf);
    }

    pub(super) fn reply(&mut self, tag: RequestTag, result: Result<(), RequestError>) {
        let buf = Buf(Buf::USER + tag.0 as u32);
        let contents = self.memory.remove(&buf).expect("asked once");
        match self.asked.remove(&tag.0).expect("replied to once") {
            Asked::Write(id) => self.oracle.write_ended(id, result.is_ok()),
            Asked::Flush(ticket) => self.oracle.flush_ended(ticket, result.is_ok()),
            Asked::Read(ticket) => {
                assert_eq!(result, Ok(()));
                let right = self.oracle.read_ended(ticket, &contents);
                right.unwrap_or_else(|violation| panic!("{violation}"));
            }
        }
    }
}
