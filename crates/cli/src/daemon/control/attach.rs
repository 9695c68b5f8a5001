//! The block device of the kernel that an array is attached to.
//!
//! The device outlives the daemon: after a kill, and after an end by a signal, requests wait for the next
//! daemon of the array, which reconnects the device at its start. `stop` ends the array for good, so it
//! detaches the device first, and is refused while the device is in use.

use crate::daemon::control::array::{Answered, Said, ServedArray, done, locked};
use crate::print::journal::{self, Level};
use restripe_array::Uuid;
use restripe_io::attach::{Device, OwnExport, Tended, device_number};
use restripe_io::control::{AttachOptions, AttachedView, Refusal};
use std::sync::Mutex;

/// Looks for dead connections between two looks at the array's size.
const LOOKS_A_SIZE: u32 = 5;

#[derive(Default)]
pub(super) struct Attached {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    device: Option<Device>,
    /// What is wrong with it, as it was logged.
    trouble: Option<Refusal>,
    looks: u32,
}

impl Attached {
    pub(super) fn attach(
        &self,
        array: &ServedArray,
        path: Option<&str>,
        options: AttachOptions,
    ) -> Answered {
        let mut state = locked(&self.state);
        if let Some(device) = &state.device {
            return already(device, path, options);
        }
        let (name, uuid, export) = export(array)?;
        let device = Device::attach(export, &name, uuid, path, options)?;
        let view = device.view();
        state.device = Some(device);
        Ok(done(&format!(
            "{name} is attached as {} ({})",
            view.device, view.link
        )))
    }

    pub(super) fn detach(&self) -> Answered {
        let path = self.end()?;
        let path = path.ok_or_else(|| Refusal::new("the array is not attached"))?;
        Ok(done(&format!("detached {path}")))
    }

    /// Detaches the device if there is one; its path.
    pub(super) fn end(&self) -> Said<Option<String>> {
        let mut state = locked(&self.state);
        let Some(device) = &state.device else {
            return Ok(None);
        };
        device.detach()?;
        let path = device.path();
        state.device = None;
        Ok(Some(path))
    }

    /// Reconnects the device that an earlier daemon left. The array is served also without it.
    pub(super) fn resume(&self, array: &ServedArray) {
        let resumed = export(array).and_then(|(name, uuid, export)| {
            let device = Device::resume(export, &name, uuid)?;
            Ok((name, device))
        });
        match resumed {
            Ok((_, None)) => {}
            Ok((name, Some(device))) => {
                let what = format_args!("restripe: {name}: {} is connected again", device.path());
                journal::line(Level::Info, what);
                locked(&self.state).device = Some(device);
            }
            Err(refusal) => log(array, "its device is not connected", &refusal),
        }
    }

    /// Looks after the device: connections that have died, and the size after a growth.
    pub(super) fn tend(&self, array: &ServedArray) {
        // A verb that is at work with the device looks after it.
        let Ok(mut state) = self.state.try_lock() else {
            return;
        };
        if state.device.is_none() {
            return;
        }
        state.looks += 1;
        let size = match state.looks % LOOKS_A_SIZE {
            0 => array.look().map_or(0, |(status, _)| status.size_bytes),
            _ => 0,
        };
        let Some(device) = &mut state.device else {
            return;
        };
        let path = device.path();
        let name = || {
            array
                .look()
                .map_or(String::new(), |(status, _)| status.set.name)
        };
        let say = |level, what: &str| {
            journal::line(level, format_args!("restripe: {}: {path} {what}", name()));
        };
        match device.tend(size) {
            Ok(Tended::Well) => state.trouble = None,
            Ok(Tended::Reconnected(_)) => say(Level::Warning, "lost connections and has new ones"),
            Ok(Tended::Resized(bytes)) => say(Level::Info, &format!("has {bytes} bytes now")),
            Ok(Tended::Gone) => {
                say(Level::Warning, "was disconnected by another program");
                state.device = None;
            }
            Err(refusal) if state.trouble.as_ref() == Some(&refusal) => {}
            Err(refusal) => {
                log(array, "its device", &refusal);
                state.trouble = Some(refusal);
            }
        }
    }

    pub(super) fn view(&self) -> Option<AttachedView> {
        locked(&self.state).device.as_ref().map(Device::view)
    }
}

/// What an array's device is made of.
fn export(array: &ServedArray) -> Said<(String, Uuid, OwnExport)> {
    let (status, _) = array.look()?;
    let name = status.set.name;
    let export = OwnExport::new(array.remote.clone(), &name);
    Ok((name, status.set.uuid, export))
}

/// An attached array can be attached again as it is: a service that starts does so every time.
fn already(device: &Device, path: Option<&str>, options: AttachOptions) -> Answered {
    let attached = device.path();
    let same = match path {
        Some(path) => device_number(path)? == device_number(&attached)?,
        None => true,
    };
    let what = format!("the array is already attached as {attached}");
    match same && options == device.options() {
        true => Ok(done(&what)),
        false if same => Err(Refusal::new(format!("{what}, with other options"))
            .hint("detach it first to change them")),
        false => Err(Refusal::new(what).hint("detach it first: an array has one device")),
    }
}

fn log(array: &ServedArray, what: &str, refusal: &Refusal) {
    let name = array
        .look()
        .map_or(String::new(), |(status, _)| status.set.name);
    let Refusal {
        what: why,
        at,
        hint,
        ..
    } = refusal;
    let text = format_args!("restripe: {name}: {what}: {why} ({at}): {hint}");
    journal::line(Level::Error, text);
}
