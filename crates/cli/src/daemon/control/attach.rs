//! The block device of the kernel that an array is attached to.
//!
//! The device outlives the daemon: after a kill, and after an end by a signal, requests wait for the next
//! daemon of the array, which reconnects the device at its start. If that fails it is tried again, about once
//! a second, for as long as the kernel has the device. `stop` ends the array for good, so it
//! detaches the device first, and is refused while the device is in use.

use crate::daemon::control::array::{Answered, Said, ServedArray, done, locked};
use crate::print::journal::{self, Level};
use restripe_array::Uuid;
use restripe_io::attach::{Device, OwnExport, Tended, detach_left, is_same_device, not_connected};
use restripe_io::control::{AttachOptions, AttachedView, Refusal};
use std::sync::Mutex;

/// Looks for dead connections between two looks at the array's size, or at a device that is not connected.
const LOOKS_A_SIZE: u32 = 5;

#[derive(Default)]
pub(super) struct Attached {
    /// Held while a verb is at work with the device, which may be long: it writes out a cache.
    state: Mutex<State>,
    /// The device as it was seen last.
    seen: Mutex<Option<AttachedView>>,
}

#[derive(Default)]
struct State {
    device: Option<Device>,
    /// The device of an earlier daemon that is not connected yet. It may be mounted.
    left: Option<AttachedView>,
    /// What is wrong with either, as it was logged.
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
        let state = &mut *locked(&self.state);
        if state.left.is_some() {
            reconnect(state, array);
        }
        if let Some(device) = &state.device {
            return already(device, path, options);
        }
        if let (Some(_), Some(why)) = (&state.left, &state.trouble) {
            return Err(why.clone());
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

    pub(super) fn detach(&self, array: &ServedArray) -> Answered {
        let path = end(&mut locked(&self.state), array, &|| Ok(()))?;
        let path = path.ok_or_else(|| Refusal::new("the array is not attached"))?;
        Ok(done(&format!("detached {path}")))
    }

    /// Detaches the device, if there is one, and then stops the array: no other verb of the device comes in
    /// between. `may_stop` is asked when the cache is written out, and leaves all as it is if it refuses. A
    /// refusal of `stop` itself, for a reason that began since, names the device that is detached.
    pub(super) fn end_and(
        &self,
        array: &ServedArray,
        may_stop: &dyn Fn() -> Said,
        stop: impl FnOnce() -> Answered,
    ) -> Answered {
        let state = &mut *locked(&self.state);
        let path = end(state, array, may_stop)?;
        stop().map_err(|refusal| without_device(refusal, path))
    }

    /// Reconnects the device that an earlier daemon left. The array is served also without it.
    pub(super) fn resume(&self, array: &ServedArray) {
        reconnect(&mut locked(&self.state), array);
    }

    /// Looks after the device: connections that have died, and the size after a growth.
    pub(super) fn tend(&self, array: &ServedArray) {
        // A verb that is at work with the device looks after it.
        let Ok(mut state) = self.state.try_lock() else {
            return;
        };
        *locked(&self.seen) = view(&state);
        state.looks = state.looks.wrapping_add(1);
        if state.left.is_some() && state.looks.is_multiple_of(LOOKS_A_SIZE) {
            reconnect(&mut state, array);
        }
        if state.device.is_none() {
            return;
        }
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

    /// Does not wait for a verb that is at work with the device.
    pub(super) fn view(&self) -> Option<AttachedView> {
        let mut seen = locked(&self.seen);
        if let Ok(state) = self.state.try_lock() {
            *seen = view(&state);
        }
        seen.clone()
    }
}

fn view(state: &State) -> Option<AttachedView> {
    let Some(device) = &state.device else {
        return state.left.clone();
    };
    Some(AttachedView {
        trouble: state.trouble.as_ref().map(sentence),
        ..device.view()
    })
}

/// Detaches the device if there is one, also one that is not connected; its path.
fn end(state: &mut State, array: &ServedArray, may_end: &dyn Fn() -> Said) -> Said<Option<String>> {
    let path = match &state.device {
        Some(device) => {
            device.detach(may_end)?;
            Some(device.path())
        }
        None => {
            let set = array.look()?.0.set;
            detach_left(&set.name, set.uuid)?
        }
    };
    (state.device, state.left, state.trouble) = (None, None, None);
    Ok(path)
}

/// The refusal of a stop after the device at this path was detached for it.
fn without_device(refusal: Refusal, path: Option<String>) -> Refusal {
    match path {
        Some(path) if !refusal.ended => Refusal {
            what: format!(
                "{}; the array is served on, but {path} is detached",
                refusal.what
            ),
            ..refusal
        },
        _ => refusal,
    }
}

/// Connects the device that an earlier daemon left, if there is one. A failure is kept to be shown, and is
/// logged once.
fn reconnect(state: &mut State, array: &ServedArray) {
    // An array without an answer is about to end.
    let Ok((name, uuid, export)) = export(array) else {
        return;
    };
    match Device::resume(export, &name, uuid) {
        Ok(found) => {
            if let Some(device) = &found {
                let what = format_args!("restripe: {name}: {} is connected again", device.path());
                journal::line(Level::Info, what);
            }
            (state.device, state.left, state.trouble) = (found, None, None);
        }
        Err(why) => {
            state.left = Some(not_connected(&name, sentence(&why)));
            if state.trouble.as_ref() != Some(&why) {
                log(array, "its device is not connected", &why);
                state.trouble = Some(why);
            }
        }
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
        Some(path) => is_same_device(path, &attached)?,
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

/// A refusal as one sentence.
fn sentence(refusal: &Refusal) -> String {
    let Refusal { what, at, hint, .. } = refusal;
    let mut text = what.clone();
    if !at.is_empty() {
        text += &format!(" ({at})");
    }
    if !hint.is_empty() {
        text += &format!(": {hint}");
    }
    text
}

fn log(array: &ServedArray, what: &str, refusal: &Refusal) {
    let name = array
        .look()
        .map_or(String::new(), |(status, _)| status.set.name);
    let why = sentence(refusal);
    journal::line(
        Level::Error,
        format_args!("restripe: {name}: {what}: {why}"),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_that_is_refused_names_the_device_that_it_detached() {
        let refused = |ended| Refusal {
            ended,
            ..Refusal::new("leases are in use")
        };
        let path = || Some("/dev/nbd3".to_owned());
        let said = without_device(refused(false), path()).what;
        assert_eq!(
            said,
            "leases are in use; the array is served on, but /dev/nbd3 is detached"
        );
        for (ended, path) in [(false, None), (true, path())] {
            assert_eq!(without_device(refused(ended), path), refused(ended));
        }
    }

    /// `status`, and the end of the daemon, do not wait for a device whose cache cannot be written out.
    #[test]
    fn a_verb_that_is_stuck_does_not_keep_others_from_looking() {
        let attached = Attached::default();
        let left = not_connected("no-such-array", "why".to_owned());
        locked(&attached.state).left = Some(left.clone());
        assert_eq!(attached.view().as_ref(), Some(&left));
        let _stuck = locked(&attached.state);
        assert_eq!(attached.view(), Some(left));
    }
}
