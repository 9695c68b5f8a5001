//! A machine with one array, for the tests of both drivers.

use super::hold::{Before, end_device};
use super::record::{Places, Record};
use super::served::{Attachment, Subject, Tended};
use crate::control::{AttachOptions, Refusal};
use restripe_array::Uuid;
use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;

pub(super) const SIZE: u64 = 1 << 30;
pub(super) const UUID: Uuid = Uuid([7; 16]);

/// A model of a driver's kernel, and of the daemon.
pub(super) trait World: Default {
    type Attachment: Attachment;

    fn kernel(&self) -> &<Self::Attachment as Attachment>::Kernel;

    fn server(&self) -> &<Self::Attachment as Attachment>::Server;
}

pub(super) struct Machine<W> {
    world: W,
    pub places: Places,
    pub folder: PathBuf,
    pub uuid: Uuid,
}

impl<W: World> Machine<W> {
    pub(super) fn new(name: &str) -> Machine<W> {
        let kind = std::any::type_name::<W>().replace(':', "-");
        let name = format!("{kind}-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        Machine {
            world: W::default(),
            places: Places::within(&folder, &folder.join("dev"), "tank", "boot\n"),
            folder,
            uuid: UUID,
        }
    }

    fn subject(&self) -> Subject<'_, W::Attachment> {
        Subject {
            kernel: self.world.kernel(),
            server: self.world.server(),
            places: &self.places,
            uuid: self.uuid,
        }
    }

    pub(super) fn begin(
        &self,
        device: Option<u32>,
        options: AttachOptions,
    ) -> Result<W::Attachment, String> {
        let begun = self.subject().begin(device, options);
        begun.map_err(|refusal| refusal.what)
    }

    pub(super) fn resume(&self) -> Result<Option<W::Attachment>, String> {
        let resumed = self.subject().resume();
        resumed.map_err(|refusal| refusal.what)
    }

    pub(super) fn tend(
        &self,
        attachment: &mut W::Attachment,
        bytes: u64,
    ) -> Result<Tended, String> {
        let tended = attachment.tend(&self.subject(), bytes);
        tended.map_err(|refusal| refusal.what)
    }

    pub(super) fn end(&self, attachment: &W::Attachment) -> Result<(), String> {
        self.end_if(attachment, &|| Ok(()))
    }

    pub(super) fn end_if(
        &self,
        attachment: &W::Attachment,
        may_end: &dyn Fn() -> Result<(), Refusal>,
    ) -> Result<(), String> {
        let ended = self.subject().end(attachment, may_end);
        ended.map_err(|refusal| refusal.what)
    }

    /// Detaches the device of an array that no daemon serves.
    pub(super) fn end_unserved(&self) -> Result<Option<Record>, Refusal> {
        let Some(record) = self.places.read()? else {
            return Ok(None);
        };
        end_device(self.world.kernel(), &self.places, &record, Before::Nothing)?;
        Ok(Some(record))
    }

    pub(super) fn is_clear(&self) -> bool {
        self.places.read() == Ok(None) && self.places.linked() == Ok(None)
    }
}

impl<W> Deref for Machine<W> {
    type Target = W;

    fn deref(&self) -> &W {
        &self.world
    }
}

impl<W> DerefMut for Machine<W> {
    fn deref_mut(&mut self) -> &mut W {
        &mut self.world
    }
}

impl<W> Drop for Machine<W> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
