//! How fast a disk is from end to end: given, or that of a modelled drive.

use crate::drives::preset::{self, Made};
use restripe_array::SECTOR_BYTES;
use restripe_sim::disk::mechanical::Command;

/// Commands of 1 MiB, one after the other.
const COMMAND_BLOCKS: u64 = 2048;
/// Looked at in so many places of the disk, evenly: tracks are shorter towards its end.
const PLACES: u64 = 32;
/// And 64 MiB at each, to the medium: what a write cache takes in is not yet there.
const COMMANDS: u64 = 64;

/// Bytes a second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Speed {
    pub read: f64,
    pub write: f64,
}

impl Speed {
    pub fn even(bytes_a_second: f64) -> Speed {
        Speed {
            read: bytes_a_second,
            write: bytes_a_second,
        }
    }

    /// The speed over the first `bytes` of a drive, which [`preset::of`] finds by its name or file.
    pub fn of_drive(name: &str, bytes: u64) -> Result<Speed, String> {
        let preset = preset::of(name)?;
        let blocks = bytes / SECTOR_BYTES;
        let whole = preset.make()?.blocks();
        if blocks > whole {
            let has = whole >> 11;
            return Err(format!(
                "{name} has {has} MiB, and {} are asked of it",
                blocks >> 11
            ));
        }
        let measure = |command| average(preset.make()?, blocks, command);
        let read = measure(Command::read)?;
        match preset.make()? {
            // A platter takes what passes the head as fast as it gives it. One command at a time would lose turns between
            // them, which reading ahead spares reads, and a queue of writes spares writes.
            Made::Mechanical(_) => Ok(Speed::even(read)),
            Made::Flash(_) => Ok(Speed {
                read,
                write: measure(Command::write)?,
            }),
        }
    }
}

/// Bytes a second over all places, each of which stands for as many bytes.
fn average(mut drive: Made, blocks: u64, command: fn(u64, u32) -> Command) -> Result<f64, String> {
    let run = COMMANDS * COMMAND_BLOCKS;
    if blocks < run {
        return Err(format!("a disk of less than {} MiB", run >> 11));
    }
    let (mut now, mut ns) = (0, 0);
    for place in 0..PLACES {
        let first = (blocks - run) / (PLACES - 1) * place;
        // There without a seek that counts.
        now = serve(&mut drive, now, Command::read(first, 1));
        let begun = now;
        for number in 0..COMMANDS {
            let at = first + number * COMMAND_BLOCKS;
            now = serve(&mut drive, now, command(at, COMMAND_BLOCKS as u32));
        }
        now = match &mut drive {
            Made::Mechanical(drive) => drive.flush(now),
            Made::Flash(drive) => drive.flush(now),
        };
        ns += now - begun;
    }
    let bytes = PLACES * COMMANDS * COMMAND_BLOCKS * SECTOR_BYTES;
    Ok(bytes as f64 * 1e9 / ns as f64)
}

fn serve(drive: &mut Made, now: u64, command: Command) -> u64 {
    match drive {
        Made::Mechanical(drive) => drive.service(now, command),
        Made::Flash(drive) => drive.service(now, command),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// IDO's disks are said to sustain 60 MB/s, and no drive is faster than its tracks turn by.
    #[test]
    fn a_drive_is_as_fast_as_its_tracks() {
        let outer = Speed::of_drive("wd1600aajs", 10 << 30).expect("it has that");
        let whole = Speed::of_drive("wd1600aajs", 149 << 30).expect("it has that");
        assert!((40e6..90e6).contains(&whole.read), "{whole:?}");
        assert!(outer.read > whole.read && outer.read < 98e6, "{outer:?}");
        let flash = Speed::of_drive("ssd-sata", 10 << 30).expect("it has that");
        assert!(flash.read > outer.read && flash.write > 0.0, "{flash:?}");
    }

    #[test]
    fn what_a_drive_has_not_is_refused() {
        assert!(Speed::of_drive("wd1600aajs", 1 << 40).is_err());
        assert!(Speed::of_drive("wd1600aajs", 1 << 20).is_err());
        assert!(Speed::of_drive("wd1600ajs", 1 << 30).is_err_and(|told| told.contains("aajs")));
    }
}
