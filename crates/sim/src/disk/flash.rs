//! A simple flash drive: pages striped over channels, each of which does one operation at a time.
//!
//! Page `p` is on channel `p mod channels`. A read or a program occupies its channel and then the link to
//! the host. There is no translation layer and no garbage collection: a write always costs `program_ns`, so
//! `program_ns` has to be the value of a drive in steady state.

use super::mechanical::{Access, Command};

/// Blocks are 512 bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlashDrive {
    pub blocks: u64,
    pub page_blocks: u32,
    pub channels: u32,
    pub read_ns: u64,
    pub program_ns: u64,
    /// Until the first page is asked for, and after the last is done.
    pub overhead_ns: u64,
    /// Bytes a second on the link to the host.
    pub link_rate: u64,
    /// Writes end when the drive has their data, unless they are to be durable; so many pages may be waiting to be programmed on a channel.
    pub write_buffer_pages: u32,
}

pub struct Flash {
    drive: FlashDrive,
    free_at: Vec<u64>,
    link_free: u64,
    busy_ns: u64,
}

impl Flash {
    pub fn new(drive: FlashDrive) -> Result<Flash, String> {
        if drive.channels == 0
            || drive.channels > 4096
            || drive.page_blocks == 0
            || drive.link_rate == 0
        {
            return Err("a flash drive has 1 to 4096 channels, pages and a link".into());
        }
        Ok(Flash {
            free_at: vec![0; drive.channels as usize],
            link_free: 0,
            busy_ns: 0,
            drive,
        })
    }

    pub fn drive(&self) -> &FlashDrive {
        &self.drive
    }

    /// Time that channels were busy, added up.
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns
    }

    /// When a command ends that arrives at `now`. Commands overlap as far as their channels do.
    pub fn service(&mut self, now: u64, command: Command) -> u64 {
        assert!(command.blocks > 0, "a command has blocks");
        match command.access {
            Access::Read => self.read(now, command),
            Access::Write => self.write(now, command),
        }
    }

    /// When every page that was taken in before `now` is programmed.
    pub fn flush(&self, now: u64) -> u64 {
        self.free_at.iter().copied().fold(now, u64::max)
    }

    /// When a range has been given up, or made to read as zeros: an entry in a map, whatever its length.
    pub fn trim(&self, now: u64) -> u64 {
        now + self.drive.overhead_ns
    }

    fn pages(&self, command: Command) -> std::ops::RangeInclusive<u64> {
        let page = u64::from(self.drive.page_blocks);
        command.block / page..=(command.block + u64::from(command.blocks) - 1) / page
    }

    fn link(&mut self, from: u64, command: Command) -> u64 {
        let bytes = u128::from(command.blocks) * 512;
        let ns = bytes * 1_000_000_000 / u128::from(self.drive.link_rate);
        self.link_free = self.link_free.max(from) + ns as u64;
        self.link_free
    }

    /// Occupies a page's channel, from `from` at the earliest. Returns when it is free again.
    fn occupy(&mut self, page: u64, from: u64, ns: u64) -> u64 {
        let channel = (page % u64::from(self.drive.channels)) as usize;
        self.free_at[channel] = self.free_at[channel].max(from) + ns;
        self.busy_ns += ns;
        self.free_at[channel]
    }

    fn read(&mut self, now: u64, command: Command) -> u64 {
        let from = now + self.drive.overhead_ns;
        let pages = self.pages(command);
        let ends = pages.map(|page| self.occupy(page, from, self.drive.read_ns));
        let read = ends.max().expect("a command has pages");
        self.link(read, command)
    }

    fn write(&mut self, now: u64, command: Command) -> u64 {
        let received = self.link(now + self.drive.overhead_ns, command);
        let buffered = match command.durable {
            true => 0,
            false => u64::from(self.drive.write_buffer_pages),
        };
        let slack = buffered * self.drive.program_ns;
        let ends = self
            .pages(command)
            .map(|page| self.occupy(page, received, self.drive.program_ns));
        let written = ends.max().expect("a command has pages");
        received.max(written.saturating_sub(slack))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drive() -> Flash {
        let drive = FlashDrive {
            blocks: 1 << 20,
            page_blocks: 8,
            channels: 4,
            read_ns: 60_000,
            program_ns: 600_000,
            overhead_ns: 10_000,
            link_rate: 512_000_000,
            write_buffer_pages: 0,
        };
        Flash::new(drive).expect("in range")
    }

    fn command(access: Access, block: u64, blocks: u32) -> Command {
        Command {
            access,
            block,
            blocks,
            durable: false,
        }
    }

    #[test]
    fn pages_on_different_channels_overlap_and_on_one_do_not() {
        let mut flash = drive();
        assert_eq!(flash.service(0, command(Access::Read, 0, 8)), 78_000);
        assert_eq!(
            flash.service(0, command(Access::Read, 8, 8)),
            86_000,
            "waits for the link only"
        );
        assert_eq!(
            flash.service(0, command(Access::Read, 32, 8)),
            138_000,
            "waits for its channel"
        );
    }

    #[test]
    fn a_buffer_hides_programming_until_it_is_full() {
        let mut flash = drive();
        flash.drive.write_buffer_pages = 2;
        let mut now = 0;
        let times: Vec<u64> = (0..4)
            .map(|_| {
                let done = flash.service(now, command(Access::Write, 0, 8));
                let time = done - now;
                now = done;
                time
            })
            .collect();
        assert_eq!(times[..2], [18_000, 18_000]);
        assert!(times[3] > 500_000, "{times:?}");
    }
}
