//! Bits of a log that flip while nobody looks, by the command alone: redundancy has what was there; where there is none, the
//! start is refused and nothing is dropped in silence.

use crate::harness;
use crate::harness::steps::{URI, good, number, overlay, refused, status, stop, wait_until};
use crate::harness::{Daemon, Place};

const HOME: [&str; 4] = ["a0", "a1", "b0", "b1"];
const PAGE: usize = 4096;
/// Writes of 64 KiB, each flushed.
const WRITES: usize = 24;

fn serve(place: &Place, members: &[&str]) -> Daemon {
    let words = [&["serve", "--unix", "nbd.sock"], members].concat();
    place.await_service(&mut place.command(&words))
}

/// What is written: no two sectors are alike, so that no parity looks like a header.
fn data() -> Vec<u8> {
    let mut state = 1_u64;
    let words = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 32) as u32
    });
    let words = words.take(WRITES << 14);
    words.flat_map(u32::to_le_bytes).collect()
}

/// So many writes, each flushed, and then a kill.
fn write_and_kill(place: &Place, daemon: &Daemon) {
    let data = data();
    for (index, part) in data.chunks(1 << 16).enumerate() {
        place.write(&format!("part{index}"), part.len() as u64, 0, part);
    }
    let commands: String = (0..WRITES)
        .map(|n| format!("-c 'write -s part{n} {}k 64k' -c flush ", 64 * n))
        .collect();
    good(place.shell(&format!("qemu-io -f raw {commands} '{URI}'")));
    daemon.kill();
}

fn all_there(place: &Place) {
    good(place.shell(&format!("nbdcopy '{URI}' now.raw")));
    let (found, data) = (place.bytes("now.raw"), data());
    for (index, (part, was)) in found.chunks(1 << 16).zip(data.chunks(1 << 16)).enumerate() {
        assert!(part == was, "write {index}");
    }
}

/// Where on a member pages begin with these letters.
fn pages(place: &Place, member: &str, magic: &[u8]) -> Vec<usize> {
    let bytes = place.bytes(member);
    let all = bytes.chunks(PAGE).enumerate();
    let begins = all.filter(|(_, page)| page.starts_with(magic));
    begins.map(|(index, _)| index * PAGE).collect()
}

/// The first header that is one member's alone: of a row with nothing else parity is as the header.
fn header_of(place: &Place, member: &str, log: &[&str]) -> Option<usize> {
    let page = |name: &str, at: usize| place.bytes(name)[at..at + PAGE].to_vec();
    let mut headers = pages(place, member, b"RstrpOvl").into_iter();
    headers.find(|at| {
        let mut others = log.iter().filter(|other| **other != member);
        others.all(|other| page(other, *at) != page(member, *at))
    })
}

/// Flips a bit of the page there.
fn flip(place: &Place, member: &str, page: usize) {
    let at = page + 200;
    let byte = place.bytes(member)[at] ^ 1;
    place.write(member, place.bytes(member).len() as u64, at as u64, &[byte]);
}

/// The repairs that the log's set has counted.
fn repaired(place: &Place) -> u64 {
    number(&status(place)["surrogate"]["repaired_sectors"])
}

fn tools(place: &Place, test: &str) -> bool {
    harness::steps::has(place, test, &["qemu-io", "nbdcopy"])
}

/// A bit of a header, of each member that has one in turn; and on the last all headers, and whatever else.
#[test]
fn a_code_cache_reads_a_rotten_header_from_parity() {
    const LOG: [&str; 6] = ["c0", "c1", "c2", "c3", "c4", "c5"];
    for (level, members) in [("raid5", 4), ("raid6", 4), ("rs3", 6)] {
        let place = Place::new(&format!("rot-{level}"));
        if !tools(&place, "a_code_cache_reads_a_rotten_header_from_parity") {
            return;
        }
        let log = &LOG[..members];
        let names = log.join(",");
        let words = ["--level", "raid10", "--code-cache"];
        let of_log = ["--surrogate", &names, "--surrogate-level", level];
        good(place.create(&HOME, &[&words[..], &of_log].concat()));
        let all = [&HOME[..], log].concat();
        write_and_kill(&place, &serve(&place, &all));
        let mut tried = 0;
        for member in log {
            let Some(page) = header_of(&place, member, log) else {
                continue;
            };
            tried += 1;
            flip(&place, member, page);
            let daemon = serve(&place, &all);
            all_there(&place);
            assert!(repaired(&place) >= 8, "{level} {member}");
            daemon.kill();
            assert!(
                pages(&place, member, b"RstrpOvl").contains(&page),
                "written again"
            );
        }
        assert!(tried > 1, "{level}: {tried}");
        // What the member holds of the log, anchors, headers and payloads.
        let lost = place.bytes("c2");
        let first = pages(&place, "c2", b"Rstrp")[0].max(1 << 20);
        place.write(
            "c2",
            lost.len() as u64,
            first as u64,
            &vec![0; lost.len() - first],
        );
        let daemon = serve(&place, &all);
        all_there(&place);
        good(place.run(&["surrogate", "destage", "tank"]));
        wait_until(&place, |status| overlay(status, "away_bytes") == 0);
        all_there(&place);
        stop(&place, &daemon);
    }
}

/// Users are moved out of a rebuild's way, and the log is of mirrors or of parity.
#[test]
fn a_surrogate_reads_a_rotten_header_from_the_others() {
    for (level, log) in [("raid1", &["s0", "s1"][..]), ("raid5", &["s0", "s1", "s2"])] {
        let place = Place::new(&format!("rot-ido-{level}"));
        if !tools(&place, "a_surrogate_reads_a_rotten_header_from_the_others") {
            return;
        }
        let home = ["a", "b", "c", "d"];
        let names = log.join(",");
        let words = ["--level", "raid5", "--spares", "1", "--init", "zero"];
        let surrogate = ["--surrogate", &names, "--surrogate-level", level];
        good(place.create(&home, &[&words[..], &surrogate].concat()));
        let all = [&home[..], log].concat();
        let slow = [
            &["serve", "--unix", "nbd.sock", "--rate", "4K..4K"],
            &all[..],
        ]
        .concat();
        let daemon = place.await_service(&mut place.command(&slow));
        good(place.run(&["fail", "tank", "b"]));
        wait_until(&place, |status| status["tasks"] != serde_json::json!([]));
        write_and_kill(&place, &daemon);
        for member in log {
            for page in pages(&place, member, b"RstrpOvl").into_iter().take(1) {
                flip(&place, member, page);
            }
            let daemon = place.await_service(&mut place.command(&slow));
            all_there(&place);
            // A second copy that may be out of step is not read, but made of the first.
            let read = level != "raid1" || *member == log[0];
            assert!(!read || repaired(&place) >= 8, "{level} {member}");
            daemon.kill();
        }
    }
}

/// A single log disk has nothing to repair it from: the start is refused, and first copies go on alone.
#[test]
fn a_rotten_log_disk_is_left_out() {
    let place = Place::new("rot-graid");
    if !tools(&place, "a_rotten_log_disk_is_left_out") {
        return;
    }
    good(place.create(
        &HOME,
        &["--level", "raid10", "--surrogate", "l", "--log-disk"],
    ));
    let all = [&HOME[..], &["l"]].concat();
    write_and_kill(&place, &serve(&place, &all));
    let headers = pages(&place, "l", b"RstrpOvl");
    flip(&place, "l", headers[headers.len() / 2]);
    let words = [&["serve", "--unix", "nbd.sock"], &all[..]].concat();
    let told = refused(place.run(&words));
    assert!(told.contains("surrogate"), "{told}");
    let words = [&["serve", "--unix", "nbd.sock", "--degraded"], &HOME[..]].concat();
    let daemon = place.await_service(&mut place.command(&words));
    all_there(&place);
    stop(&place, &daemon);
}
