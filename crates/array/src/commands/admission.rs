//! What a device has on record is read before a command takes it in: one that has a history of this array
//! which the running array does not have is refused ([`crate::choose::admit`]), and so is a member of another
//! array. `Command::Overwrite` lets the next such command take it as it is.
//!
//! A device may have the superblock of a member in use. It is a copy of that member, or a second path to its
//! disk. The array writes a new version of its superblocks. On a second path that version shows, and the
//! device is refused.
//!
//! | state    | cause                                         | next            |
//! |----------|-----------------------------------------------|-----------------|
//! | -        | a command that takes a device in              | reading         |
//! | reading  | every place of a superblock was read          | carried out     |
//! | reading  | the same, and what is there must not be lost  | refused         |
//! | reading  | the same, of a member that is in use          | stepping        |
//! | stepping | a new version of the superblocks is durable   | reading again   |
//! | reading again | the newest superblock is another one     | refused         |
//! | reading again | it is the same                           | as from reading |

use super::{Admission, Commands, PLACES, Twin};
use crate::choose::{Candidate, admit, copies_of, newest_of, returns_as_it_left};
use crate::contract::{Bug, Command, CommandError, CommandTag, DeviceIo, IoError};
use crate::members::device::{Device, Health};
use crate::members::ops::Owner;
use crate::metadata::{super_place, superblock_in};
use crate::units::Member;
use alloc::vec::Vec;
use restripe_format::meta::superblock::{SUPERBLOCK_PAGES, SUPERBLOCK_SECTORS, Superblock};

impl Commands {
    /// The device that a command takes in, if it is not known what it has on record, and whether that may be
    /// overwritten.
    fn device_to_add(&mut self, command: &Command) -> Option<(Member, bool)> {
        let (Command::Add(member) | Command::Replace { new: member, .. }) = *command else {
            return None;
        };
        let device = self.devices.get_mut(usize::from(member.0))?;
        let overwrites = core::mem::take(&mut device.overwrite);
        let known = device.health == Health::Good;
        (!known && !self.ops.busy(member)).then_some((member, overwrites))
    }

    /// Begins to read what a command has to know of its device; false if the command has not to wait for
    /// that.
    pub(super) fn look_before(&mut self, tag: CommandTag, command: Command) -> bool {
        let Some((member, overwrites)) = self.device_to_add(&command) else {
            return false;
        };
        if self.places_of(member).next().is_none() {
            return false;
        }
        self.read_device(Admission {
            tag,
            command,
            member,
            places: Default::default(),
            outstanding: 0,
            unread: false,
            overwrites,
            twin: None,
        });
        true
    }

    /// Where a device may have superblocks.
    fn places_of(&self, member: Member) -> impl Iterator<Item = usize> + Clone + use<> {
        let sectors = self.devices[usize::from(member.0)].info.sectors;
        let within = move |place: &usize| super_place(*place) + SUPERBLOCK_SECTORS <= sectors;
        (0..PLACES).filter(within)
    }

    fn read_device(&mut self, admission: Admission) {
        let member = admission.member;
        let places = self.places_of(member);
        self.admissions.push(Admission {
            places: Default::default(),
            outstanding: places.clone().count() as u32,
            ..admission
        });
        for place in places {
            let owner = Owner::Admission(place as u8);
            self.read_pages(owner, member, super_place(place), SUPERBLOCK_PAGES);
        }
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

    fn decide_admission(&mut self, mut admission: Admission) {
        let member = admission.member;
        let [a, b @ ..] = core::mem::take(&mut admission.places);
        let candidate = Candidate {
            member,
            info: self.devices[usize::from(member.0)].info,
            copies: copies_of(a, b),
        };
        let newest = newest_of(candidate.copies.iter().flatten());
        let verdict = match (&admission.twin, self.twin_of(member, newest)) {
            (None, Some(twin)) => return self.step_superblocks(admission, twin, newest),
            (Some(_), _) if newest.is_none() => Err(CommandError::Unreadable(member)),
            (Some(twin), _) if newest != Some(&twin.before) => {
                Err(CommandError::SameDevice(member, twin.member))
            }
            _ if admission.overwrites || self.planted(Bug::NewerOverwritten) => Ok(()),
            _ if admission.unread && candidate.copies[1].is_none() => {
                Err(CommandError::Unreadable(member))
            }
            _ => admit(&self.superblock, &candidate),
        };
        match verdict {
            Ok(()) => {
                self.rebuild_in_full_if_strayed(member, newest);
                self.carry_out(admission.tag, admission.command)
            }
            Err(error) => self.answer(admission.tag, Err(error)),
        }
    }

    /// A member that failed comes back: what it holds counts only if it is as it left.
    fn rebuild_in_full_if_strayed(&mut self, member: Member, newest: Option<&Superblock>) {
        let entry = self.devices[usize::from(member.0)].entry;
        let line = entry.map(|entry| &self.superblock.members[usize::from(entry)]);
        if line.is_some_and(|line| !returns_as_it_left(newest, line)) {
            self.rebuild_in_full(member);
        }
    }

    /// The member in use that another device says to be.
    fn twin_of(&self, device: Member, newest: Option<&Superblock>) -> Option<Member> {
        let newest = newest.filter(|copy| copy.array == self.superblock.array)?;
        let entry = self.superblock.index_of(newest.member)?;
        let mut members = (0..).map(Member).zip(&self.devices);
        let is_it = |(member, other): &(Member, &Device)| {
            *member != device && other.health == Health::Good && other.entry == Some(entry)
        };
        members.find(is_it).map(|(member, _)| member)
    }

    fn step_superblocks(
        &mut self,
        mut admission: Admission,
        member: Member,
        newest: Option<&Superblock>,
    ) {
        self.writer.note_change();
        admission.twin = newest.map(|before| Twin {
            member,
            before: before.clone(),
            version: Some(self.writer.version_wanted()),
        });
        self.admissions.push(admission);
    }

    /// Reads the devices again whose members have a new version.
    pub(crate) fn admissions_turn(&mut self) {
        let stepped = |one: &Admission| {
            let version = one.twin.as_ref().and_then(|twin| twin.version);
            version.is_some_and(|version| self.below.writer.is_durable(version))
        };
        let stepped: Vec<Admission> = self.admissions.extract_if(.., |one| stepped(one)).collect();
        for mut admission in stepped {
            let twin = admission.twin.iter_mut();
            twin.for_each(|twin| twin.version = None);
            match self.on_record() {
                Ok(()) => self.read_device(admission),
                Err(error) => self.answer(admission.tag, Err(error)),
            }
        }
    }

    /// What it carries may be overwritten.
    pub(super) fn command_overwrite(&mut self, member: Member) -> Result<(), CommandError> {
        let device = self.devices.get_mut(usize::from(member.0));
        device.ok_or(CommandError::NoSuchMember(member))?.overwrite = true;
        Ok(())
    }
}
