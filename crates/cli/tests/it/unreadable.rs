//! Members with sectors that cannot be read, by the command alone: servers of ours that answer EIO there. A client gets
//! what redundancy recovers, and an error for exactly what nothing does. No member fails for what is lost.

use crate::harness::steps::{good, number, status, stop, wait_until};
use crate::harness::volatile::Volatile;
use crate::harness::{Daemon, Place, line_of};
use restripe_io::plain::Plain;
use serde_json::Value;
use std::collections::BTreeSet;

const BLOCK: usize = 4096;
const BLOCK_SECTORS: u64 = 8;
const MEMBER_BYTES: usize = 16 << 20;
/// Rows of which each member has a block, and their blocks of data: two of each.
const ROWS: u64 = 40;
const BLOCKS: u64 = 2 * ROWS;
/// More than a member may have errors.
const MANY: u64 = 30;

/// A RAID-5 that is served: three members, and a further device.
struct Array {
    place: Place,
    members: Vec<Volatile>,
    daemon: Daemon,
}

/// No two blocks are alike, nor the parities of two rows.
fn block(number: u64) -> Vec<u8> {
    let word = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word.to_le_bytes().repeat(BLOCK / 8)
}

impl Array {
    fn written(name: &str) -> Array {
        let place = Place::new(&format!("unreadable-{name}"));
        let listen =
            |member: usize| Volatile::listen(&place.path(&format!("m{member}.sock")), MEMBER_BYTES);
        let members: Vec<Volatile> = (0..4).map(listen).collect();
        let names: Vec<&str> = members[..3].iter().map(|one| one.uri.as_str()).collect();
        let words = ["create", "tank", "--level", "raid5", "--chunk", "4K"];
        good(place.run(&[&words[..], &names].concat()));
        let daemon = place.serve(&names);
        let array = Array {
            place,
            members,
            daemon,
        };
        let client = array.client();
        for row in 0..ROWS {
            array.write_row(&client, row);
        }
        client.flush().expect("it flushes");
        array
    }

    fn client(&self) -> Plain {
        let uri = format!("nbd+unix:///?socket={}", self.place.path("nbd.sock"));
        Plain::open(&uri, false).expect("it serves")
    }

    /// All of a row at once: no part of it is in a log.
    fn write_row(&self, client: &Plain, row: u64) {
        let both = [block(2 * row), block(2 * row + 1)].concat();
        let written = client.write(2 * row * BLOCK_SECTORS, &both);
        written.expect("it is acknowledged");
    }

    /// The member that has a block, and where.
    fn home(&self, number: u64) -> (usize, usize) {
        let wanted = block(number);
        let on = |member: usize| Some((member, self.members[member].find(&wanted)?));
        (0..3).find_map(on).expect("some member has it")
    }

    /// Makes a place unreadable on these members; the blocks of data that they have there.
    fn spoil(&self, members: &[usize], at: usize) -> Vec<u64> {
        for &member in members {
            self.members[member].spoil(at, BLOCK);
        }
        let there = |number: &u64| {
            let (member, place) = self.home(*number);
            place == at && members.contains(&member)
        };
        (0..BLOCKS).filter(there).collect()
    }

    /// Makes the places of so many rows unreadable on two members each; the blocks that are lost with that.
    fn lose_rows(&self, rows: u64) -> BTreeSet<u64> {
        let lost = (0..rows).flat_map(|row| {
            let (_, at) = self.home(2 * row);
            self.spoil(&[0, 1], at)
        });
        lost.collect()
    }

    /// Each block reads as it was written, or as an error if it is lost.
    fn check(&self, lost: &BTreeSet<u64>) {
        let client = self.client();
        for number in 0..BLOCKS {
            let mut found = vec![0; BLOCK];
            match client.read(number * BLOCK_SECTORS, &mut found) {
                Ok(()) => {
                    assert!(!lost.contains(&number), "block {number} was made up");
                    assert!(found == block(number), "block {number}");
                }
                Err(error) => assert!(lost.contains(&number), "block {number}: {error}"),
            }
        }
    }

    /// All members serve, and this one has had so many errors at what is lost.
    fn serves(&self, member: usize, lost_errors: u64) {
        let found = status(&self.place);
        let members = found["members"].as_array().expect("a list");
        let active = |one: &Value| one["state"] == "active";
        assert!(members.iter().all(active), "{found}");
        let line = &members[member];
        assert!(number(&line["lost_errors"]) >= lost_errors, "{found}");
        assert!(number(&line["read_errors"]) >= lost_errors, "{found}");
    }
}

#[test]
fn reads_recover_what_can_be_had_and_fail_for_exactly_what_is_lost() {
    let array = Array::written("reads");
    let (member, at) = array.home(9);
    let recoverable = array.spoil(&[member], at);
    assert_eq!(recoverable, [9]);
    let (first, at) = array.home(20);
    let lost: BTreeSet<u64> = array
        .spoil(&[first, (first + 1) % 3], at)
        .into_iter()
        .collect();
    assert!(lost.contains(&20));
    for _ in 0..MANY {
        array.check(&lost);
    }
    array.serves(first, MANY);
    assert!(
        array.members[member].is_readable(array.home(9).1, BLOCK),
        "rewritten"
    );
    let told = line_of(
        &good(array.place.run(&["status", "tank"])),
        &array.members[first].uri,
    );
    assert!(told.contains("read errors at lost sectors"), "{told}");
    let metrics = good(array.place.run(&["metrics", "tank"]));
    let series = "restripe_member_lost_errors_total{";
    assert!(!line_of(&metrics, series).is_empty(), "{metrics}");
    // What is written anew is well again.
    array.write_row(&array.client(), 10);
    array.check(&BTreeSet::new());
    stop(&array.place, &array.daemon);
}

#[test]
fn scrubs_tell_what_is_lost_and_fail_no_member_for_it() {
    let array = Array::written("scrubs");
    let lost = array.lose_rows(MANY);
    let (member, at) = array.home(BLOCKS - 1);
    array.spoil(&[member], at);
    for repair in [false, true] {
        let words: &[&str] = match repair {
            true => &["scrub", "tank", "--repair"],
            false => &["scrub", "tank"],
        };
        let ended = array.place.run(words);
        assert_eq!(ended.status, 1, "{}{}", ended.stdout, ended.stderr);
        array.serves(0, MANY);
        array.serves(1, MANY);
        assert_eq!(array.members[member].is_readable(at, BLOCK), repair);
        let last = &status(&array.place)["last_scrub"];
        assert_eq!(number(&last["rows_unreadable"]), MANY + 1, "{last}");
    }
    array.check(&lost);
    stop(&array.place, &array.daemon);
}

#[test]
fn a_rebuild_declares_lost_what_its_sources_cannot_tell() {
    let array = Array::written("rebuild");
    let (gone, new) = (array.members[2].uri.clone(), array.members[3].uri.clone());
    let mut lost = BTreeSet::new();
    for row in [3, 7, 8] {
        let (_, at) = array.home(2 * row);
        lost.extend(array.spoil(&[0], at));
        let on_gone = |one: &u64| array.home(*one) == (2, at);
        lost.extend((0..BLOCKS).filter(on_gone));
    }
    good(array.place.run(&["fail", "tank", &gone, "--yes"]));
    good(array.place.run(&["remove", "tank", &gone]));
    good(array.place.run(&["add", "tank", &new]));
    let healthy = |status: &Value| {
        status["state"] == "healthy" && status["tasks"].as_array().is_some_and(Vec::is_empty)
    };
    let found = wait_until(&array.place, healthy);
    assert_eq!(
        number(&found["lost_bytes"]),
        (lost.len() * BLOCK) as u64,
        "{found}"
    );
    array.check(&lost);
    stop(&array.place, &array.daemon);
}
