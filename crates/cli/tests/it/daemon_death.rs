//! A daemon is killed while its members and their volatile caches live on; the next one flushes, or stops, and then power
//! goes at the members. What read new and was flushed is there, and redundancy fits it.

use crate::harness::steps::{status, wait_until};
use crate::harness::volatile::Volatile;
use crate::harness::{Daemon, Place};
use restripe_io::plain::Plain;

const BLOCK: usize = 64 << 10;
const BLOCK_SECTORS: u64 = BLOCK as u64 / 512;
const BLOCKS: u64 = 24;
const MEMBER_BYTES: usize = 24 << 20;
/// Overwritten after the first flush, and acknowledged only.
const LATE: [u64; 3] = [0, 7, 15];

/// Options of `create`, and how many members.
const KINDS: [(&[&str], usize); 8] = [
    (&["--level", "raid0"], 2),
    (&["--level", "raid1"], 2),
    (&["--level", "raid4"], 4),
    (&["--level", "raid5"], 3),
    (&["--level", "raid5", "--write-hole", "bitmap"], 3),
    (&["--level", "raid5", "--write-hole", "none"], 3),
    (&["--level", "raid6"], 4),
    (&["--level", "raid10"], 4),
];

struct Killed {
    place: Place,
    members: Vec<Volatile>,
    names: Vec<String>,
}

impl Killed {
    /// An array with flushed blocks, some of them overwritten without a flush; its daemon is dead.
    fn new(name: &str, options: &[&str], count: usize) -> Killed {
        let place = Place::new(&format!("death-{name}"));
        let listen =
            |member: usize| Volatile::listen(&place.path(&format!("m{member}.sock")), MEMBER_BYTES);
        let members: Vec<Volatile> = (0..count).map(listen).collect();
        let names: Vec<String> = members.iter().map(|member| member.uri.clone()).collect();
        let killed = Killed {
            place,
            members,
            names,
        };
        let made = [&["create", "tank"], options, &killed.names()].concat();
        let made = killed.place.run(&made);
        assert_eq!(made.status, 0, "{}", made.stderr);
        let daemon = killed.serve();
        let client = killed.client();
        for number in 0..BLOCKS {
            write(&client, number, &block(1, number));
        }
        client.flush().expect("it flushes");
        for number in LATE {
            write(&client, number, &block(2, number));
        }
        daemon.kill();
        assert!(killed.members.iter().any(Volatile::holds_back));
        killed
    }

    fn names(&self) -> Vec<&str> {
        self.names.iter().map(String::as_str).collect()
    }

    fn serve(&self) -> Daemon {
        self.place.serve(&self.names())
    }

    fn client(&self) -> Plain {
        let uri = format!("nbd+unix:///?socket={}", self.place.path("nbd.sock"));
        Plain::open(&uri, false).expect("it serves")
    }

    fn check(&self, when: &str) {
        let client = self.client();
        for number in 0..BLOCKS {
            let mut found = vec![0; BLOCK];
            let read = client.read(number * BLOCK_SECTORS, &mut found);
            read.unwrap_or_else(|error| panic!("{when}: block {number}: {error}"));
            let age = if LATE.contains(&number) { 2 } else { 1 };
            assert!(found == block(age, number), "{when}: block {number}");
        }
    }

    fn cut(&self) {
        self.members.iter().for_each(Volatile::cut);
    }

    /// Everything is there after the cut, also from what redundancy tells.
    fn is_whole(&self, redundant: bool) {
        let daemon = self.serve();
        self.check("behind the cut");
        if redundant {
            wait_until(&self.place, |status| {
                status["tasks"].as_array().is_some_and(Vec::is_empty)
            });
            let failed = ["fail", "tank", &self.names[0], "--yes"];
            let failed = self.place.run(&failed);
            assert_eq!(failed.status, 0, "{}{}", failed.stderr, status(&self.place));
            self.check("behind the cut, without a member");
        }
        daemon.kill();
    }
}

fn write(client: &Plain, number: u64, bytes: &[u8]) {
    let written = client.write(number * BLOCK_SECTORS, bytes);
    written.expect("it is acknowledged");
}

fn block(age: u8, number: u64) -> Vec<u8> {
    let mut bytes = vec![number as u8; BLOCK];
    bytes[0] = age;
    bytes
}

#[test]
fn what_is_flushed_after_a_restart_survives_a_power_cut() {
    for (number, (options, count)) in KINDS.iter().enumerate() {
        let killed = Killed::new(&format!("flush{number}"), options, *count);
        let daemon = killed.serve();
        killed.check("behind the restart");
        killed.client().flush().expect("it flushes");
        daemon.kill();
        killed.cut();
        killed.is_whole(number > 0);
    }
}

#[test]
fn what_was_served_before_a_clean_stop_survives_a_power_cut() {
    for (number, (options, count)) in KINDS.iter().enumerate() {
        let killed = Killed::new(&format!("stop{number}"), options, *count);
        let daemon = killed.serve();
        killed.check("behind the restart");
        daemon.terminate();
        assert_eq!(daemon.wait(), 0);
        killed.cut();
        killed.is_whole(number > 0);
    }
}

#[test]
fn a_start_that_is_killed_again_loses_nothing_that_it_believed() {
    let killed = Killed::new("again", &["--level", "raid4"], 4);
    killed.serve().kill();
    killed.cut();
    killed.is_whole(true);
}
