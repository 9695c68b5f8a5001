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
/// Rows of which each member has a block.
const ROWS: u64 = 90;
/// Errors that a member may have, where the rest of the row recovers what is there.
const LIMIT: u64 = 20;
/// More than that.
const MANY: u64 = 30;

/// An array that is served, with blocks of data in each row, and a further device behind its members.
struct Array {
    place: Place,
    data: u64,
    members: Vec<Volatile>,
    /// The member that has a block, and where.
    homes: Vec<(usize, usize)>,
    daemon: Daemon,
}

/// No two blocks are alike, nor the parities of two rows.
fn block(number: u64) -> Vec<u8> {
    let word = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word.to_le_bytes().repeat(BLOCK / 8)
}

impl Array {
    /// A RAID-5 of three members.
    fn written(name: &str) -> Array {
        Array::of(name, "raid5", 3, 2)
    }

    fn of(name: &str, level: &str, width: usize, data: u64) -> Array {
        let place = Place::new(&format!("unreadable-{name}"));
        let listen =
            |member: usize| Volatile::listen(&place.path(&format!("m{member}.sock")), MEMBER_BYTES);
        let members: Vec<Volatile> = (0..=width).map(listen).collect();
        let names: Vec<&str> = members[..width]
            .iter()
            .map(|one| one.uri.as_str())
            .collect();
        let words = ["create", "tank", "--level", level, "--chunk", "4K"];
        good(place.run(&[&words[..], &names].concat()));
        let daemon = place.serve(&names);
        let mut array = Array {
            place,
            data,
            members,
            homes: Vec::new(),
            daemon,
        };
        let client = array.client();
        for row in 0..ROWS {
            array.write_row(&client, row);
        }
        client.flush().expect("it flushes");
        array.homes = array.blocks().map(|number| array.find(number)).collect();
        array
    }

    fn client(&self) -> Plain {
        let uri = format!("nbd+unix:///?socket={}", self.place.path("nbd.sock"));
        Plain::open(&uri, false).expect("it serves")
    }

    /// All of a row at once: no part of it is in a log.
    fn write_row(&self, client: &Plain, row: u64) {
        let first = row * self.data;
        let blocks: Vec<Vec<u8>> = (first..first + self.data).map(block).collect();
        let written = client.write(first * BLOCK_SECTORS, &blocks.concat());
        written.expect("it is acknowledged");
    }

    fn home(&self, number: u64) -> (usize, usize) {
        self.homes[number as usize]
    }

    fn find(&self, number: u64) -> (usize, usize) {
        let wanted = block(number);
        let on = |member: usize| Some((member, self.members[member].find(&wanted)?));
        let width = self.members.len() - 1;
        (0..width).find_map(on).expect("some member has it")
    }

    fn blocks(&self) -> std::ops::Range<u64> {
        0..ROWS * self.data
    }

    /// Where the members have this row.
    fn place_of(&self, row: u64) -> usize {
        self.home(row * self.data).1
    }

    /// The blocks of data that these members have at a place.
    fn blocks_on(&self, members: &[usize], at: usize) -> Vec<u64> {
        let there = |number: &u64| {
            let (member, place) = self.home(*number);
            place == at && members.contains(&member)
        };
        self.blocks().filter(there).collect()
    }

    /// Makes a place unreadable on these members; the blocks of data that they have there.
    fn spoil(&self, members: &[usize], at: usize) -> Vec<u64> {
        for &member in members {
            self.members[member].spoil(at, BLOCK);
        }
        self.blocks_on(members, at)
    }

    /// Makes the first `rows` rows unreadable on two members. Returns the blocks that are lost by it.
    fn lose_rows(&self, rows: u64) -> BTreeSet<u64> {
        let lost = (0..rows).flat_map(|row| self.spoil(&[0, 1], self.place_of(row)));
        lost.collect()
    }

    /// Each block reads as it was written, or as an error if it is lost.
    fn check(&self, lost: &BTreeSet<u64>) {
        let client = self.client();
        for number in self.blocks() {
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

    /// Asserts that all members serve, and that this one has `lost_errors` errors at lost sectors or more.
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
    let (member, at) = array.home(array.blocks().end - 1);
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

impl Array {
    /// Another device takes the place of the third member, and is filled.
    fn rebuild(&self) -> Value {
        let (gone, new) = (&self.members[2].uri, self.members.last().expect("one more"));
        good(self.place.run(&["fail", "tank", gone, "--yes"]));
        good(self.place.run(&["remove", "tank", gone]));
        good(self.place.run(&["add", "tank", &new.uri]));
        let healthy = |status: &Value| {
            status["state"] == "healthy" && status["tasks"].as_array().is_some_and(Vec::is_empty)
        };
        wait_until(&self.place, healthy)
    }
}

#[test]
fn a_rebuild_declares_lost_what_its_sources_cannot_tell() {
    let array = Array::written("rebuild");
    let mut lost = BTreeSet::new();
    for row in [3, 7, 8] {
        let at = array.place_of(row);
        array.spoil(&[0], at);
        lost.extend(array.blocks_on(&[0, 2], at));
    }
    let found = array.rebuild();
    let lost_bytes = (lost.len() * BLOCK) as u64;
    assert_eq!(number(&found["lost_bytes"]), lost_bytes, "{found}");
    array.check(&lost);
    stop(&array.place, &array.daemon);
}

/// Rows that nothing recovers are many. In others one source errs: there the first member has what is needed.
#[test]
fn a_rebuild_fails_no_source_for_what_is_lost_and_loses_nothing_else() {
    let array = Array::of("sources", "raid6", 5, 3);
    let mut lost = BTreeSet::new();
    for row in 0..MANY {
        let at = array.place_of(row);
        array.spoil(&[0, 1], at);
        lost.extend(array.blocks_on(&[0, 1, 2], at));
    }
    for row in MANY..MANY + 10 {
        array.spoil(&[1], array.place_of(row));
    }
    let found = array.rebuild();
    let lost_bytes = (lost.len() * BLOCK) as u64;
    assert_eq!(number(&found["lost_bytes"]), lost_bytes, "{found}");
    array.serves(0, MANY);
    array.serves(1, MANY);
    array.check(&lost);
    stop(&array.place, &array.daemon);
}

/// What is written of a lost block is there from then on, and the rest of it stays lost.
#[test]
fn writes_into_lost_blocks_fail_no_member() {
    let array = Array::written("writes");
    // A write reads each of the two in one row of three.
    let lost = array.lose_rows(3 * MANY - 5);
    let client = array.client();
    for number in &lost {
        let part = client.write(number * BLOCK_SECTORS + 1, &[7; 512]);
        part.expect("it is acknowledged");
    }
    for number in &lost {
        let mut part = [0; 512];
        let read = client.read(number * BLOCK_SECTORS + 1, &mut part);
        assert!(read.is_ok() && part == [7; 512], "block {number}");
    }
    array.serves(0, LIMIT + 1);
    array.serves(1, LIMIT + 1);
    array.check(&lost);
    for number in &lost {
        let whole = client.write(number * BLOCK_SECTORS, &block(*number));
        whole.expect("it is acknowledged");
    }
    array.serves(0, LIMIT + 1);
    array.check(&BTreeSet::new());
    stop(&array.place, &array.daemon);
}
