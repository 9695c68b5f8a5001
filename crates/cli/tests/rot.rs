//! Bits of a log that flip while nobody looks, by the command alone: redundancy has what was there; where there is none, the
//! start is refused and nothing is dropped in silence.

#[allow(dead_code)]
mod harness;

use harness::steps::{URI, good, number, overlay, refused, status, stop, wait_until};
use harness::{Daemon, Place};

const HOME: [&str; 4] = ["a0", "a1", "b0", "b1"];
const PAGE: usize = 4096;
/// Patterns that are written, each 64 KiB and flushed.
const WRITES: u8 = 24;

fn serve(place: &Place, members: &[&str]) -> Daemon {
    let words = [&["serve", "--unix", "nbd.sock"], members].concat();
    place.await_service(&mut place.command(&words))
}

/// So many writes, each flushed, and then a kill.
fn write_and_kill(place: &Place, daemon: Daemon) {
    let commands: String = (0..WRITES)
        .map(|n| {
            format!(
                "-c 'write -P {} {}k 64k' -c flush ",
                n + 1,
                64 * u32::from(n)
            )
        })
        .collect();
    good(place.shell(&format!("qemu-io -f raw {commands} '{URI}'")));
    daemon.kill();
}

fn all_there(place: &Place) {
    good(place.shell(&format!("nbdcopy '{URI}' now.raw")));
    let found = place.bytes("now.raw");
    for n in 0..WRITES {
        let at = usize::from(n) << 16;
        let wrong = found[at..at + (1 << 16)]
            .iter()
            .filter(|byte| **byte != n + 1);
        assert_eq!(wrong.count(), 0, "write {n}");
    }
}

/// Where on a member pages begin with these letters.
fn pages(place: &Place, member: &str, magic: &[u8]) -> Vec<usize> {
    let bytes = place.bytes(member);
    let all = bytes.chunks(PAGE).enumerate();
    let begins = all.filter(|(_, page)| page.starts_with(magic));
    begins.map(|(index, _)| index * PAGE).collect()
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
    for level in ["raid5", "raid6", "rs3"] {
        let place = Place::new(&format!("rot-{level}"));
        if !tools(&place, "a_code_cache_reads_a_rotten_header_from_parity") {
            return;
        }
        let log = ["c0", "c1", "c2", "c3"];
        let words = [
            "--level",
            "raid10",
            "--surrogate",
            "c0,c1,c2,c3",
            "--code-cache",
        ];
        good(place.create(&HOME, &[&words[..], &["--surrogate-level", level]].concat()));
        let all = [&HOME[..], &log].concat();
        write_and_kill(&place, serve(&place, &all));
        for member in log {
            let Some(&page) = pages(&place, member, b"RstrpOvl").first() else {
                continue;
            };
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
        write_and_kill(&place, daemon);
        for member in log {
            for page in pages(&place, member, b"RstrpOvl").into_iter().take(1) {
                flip(&place, member, page);
            }
            let daemon = place.await_service(&mut place.command(&slow));
            all_there(&place);
            assert!(repaired(&place) >= 8, "{level} {member}");
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
    write_and_kill(&place, serve(&place, &all));
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
