//! What a device has on record is read before a command takes it in: one that has a history of this array which the running array does not have is
//! refused ([`crate::meta::admit`]), and so is a member of another array. `Command::Overwrite` lets the next such command take it as it is.
//!
//! | state   | cause                                        | next            |
//! |---------|----------------------------------------------|-----------------|
//! | -       | a command that takes a device in             | reading         |
//! | reading | every place of a superblock was read         | carried out     |
//! | reading | the same, and what is there must not be lost | refused         |

use crate::boot::{super_place, superblock_in};
use crate::contract::{Class, Command, CommandError, CommandTag, DeviceIo, IoError, IoOp, Segment};
use crate::core::Core;
use crate::device::Health;
use crate::meta::superblock::{SUPER_B_PLACES, SUPERBLOCK_PAGES, SUPERBLOCK_SECTORS, Superblock};
use crate::meta::{Candidate, MetaError, admit, copies_of};
use crate::ops::Owner;
use crate::planted::Bug;
use crate::units::Member;
use alloc::vec::Vec;

const PLACES: usize = 1 + SUPER_B_PLACES.len();

/// A command that waits for what its device has on record.
pub(crate) struct Admission {
    tag: CommandTag,
    command: Command,
    member: Member,
    places: [Option<Result<Superblock, MetaError>>; PLACES],
    outstanding: u32,
    /// Copy A could not be read.
    unread: bool,
}

impl Core {
    /// The device that a command takes in, if nobody knows what it has on record.
    fn taken_in(&mut self, command: &Command) -> Option<Member> {
        let (Command::Add(member) | Command::Replace { new: member, .. }) = *command else {
            return None;
        };
        let device = self.devices.get_mut(usize::from(member.0))?;
        let overwrites = core::mem::take(&mut device.overwrite);
        let known = device.health == Health::Good || overwrites;
        (!known && !self.ops.busy(member)).then_some(member)
    }

    /// Begins to read what a command has to know of its device; false if the command has not to wait for that.
    pub(crate) fn look_before(&mut self, tag: CommandTag, command: Command) -> bool {
        let Some(member) = self.taken_in(&command) else {
            return false;
        };
        let sectors = self.devices[usize::from(member.0)].info.sectors;
        let within = |place: &usize| super_place(*place) + SUPERBLOCK_SECTORS <= sectors;
        let places: Vec<usize> = (0..PLACES).filter(within).collect();
        if places.is_empty() {
            return false;
        }
        self.admissions.push(Admission {
            tag,
            command,
            member,
            places: Default::default(),
            outstanding: places.len() as u32,
            unread: false,
        });
        for place in places {
            self.read_superblock(member, place);
        }
        true
    }

    fn read_superblock(&mut self, member: Member, place: usize) {
        let mut fresh = Vec::new();
        fresh.resize_with(SUPERBLOCK_PAGES, || self.ops.page());
        let owner = Owner::Admission { place: place as u8 };
        self.device_io(
            owner,
            member,
            IoOp::Read,
            super_place(place),
            SUPERBLOCK_SECTORS,
            Class::Metadata,
            |io| io.segments.extend(fresh.into_iter().map(Segment::Page)),
        );
    }

    pub(crate) fn admission_read(
        &mut self,
        member: Member,
        place: u8,
        read: Result<&DeviceIo, IoError>,
    ) {
        let waits = |one: &Admission| one.member == member;
        let Some(index) = self.admissions.iter().position(waits) else {
            return;
        };
        let admission = &mut self.admissions[index];
        match read {
            Ok(io) => admission.places[usize::from(place)] = Some(superblock_in(io)),
            Err(_) => admission.unread |= place == 0,
        }
        admission.outstanding -= 1;
        if admission.outstanding == 0 {
            let admission = self.admissions.remove(index);
            self.decide_admission(admission);
        }
    }

    fn decide_admission(&mut self, admission: Admission) {
        let Admission {
            tag,
            command,
            member,
            places: [a, b @ ..],
            unread,
            ..
        } = admission;
        let info = self.devices[usize::from(member.0)].info;
        let copies = copies_of(a, b);
        let candidate = Candidate {
            member,
            info,
            copies,
        };
        let blind = self.planted(Bug::NewerOverwritten);
        let verdict = match unread && candidate.copies[1].is_none() {
            _ if blind => Ok(()),
            true => Err(CommandError::Unreadable(member)),
            false => admit(&self.superblock, &candidate),
        };
        match verdict {
            Ok(()) => self.carry_out(tag, command),
            Err(error) => self.answer(tag, Err(error)),
        }
    }

    /// What it carries may be overwritten.
    pub(crate) fn command_overwrite(&mut self, member: Member) -> Result<(), CommandError> {
        let device = self.devices.get_mut(usize::from(member.0));
        device.ok_or(CommandError::NoSuchMember(member))?.overwrite = true;
        Ok(())
    }
}
