//! A code cache's buffer: what lies there alone, wrong copies, and members that are replaced.

use super::{
    BUFFER, CACHE, HOME, buffer_of, create, flushed, seals_for_flushes, serve, serve_with,
    with_buffer,
};
use crate::harness::Place;
use crate::harness::steps::{
    good, has, member_named, read_pattern, refused, status, stop, wait_until,
};
use serde_json::Value;

/// What was flushed lies in the buffer alone when the daemon is killed, and is there at the next start; without the buffer, or with an
/// old copy of it, there is none, unless that is accepted.
#[test]
fn a_buffer_has_what_was_flushed_before_the_log_has() {
    let test = "a_buffer_has_what_was_flushed_before_the_log_has";
    for members in [&BUFFER[..1], &BUFFER] {
        let place = with_buffer(&format!("code-cache-buffer-{}", members.len()), members);
        if !has(&place, test, &["qemu-io"]) {
            return;
        }
        let cache = [&CACHE[..], members].concat();
        let all = [&HOME[..], &cache].concat();
        let without = [&HOME[..], &CACHE].concat();
        let copy = |to: &str, from: &str| {
            good(place.shell(&format!("mkdir -p {to} && cp --sparse=always {from} {to}")));
        };
        copy("before", &members.join(" "));
        let daemon = serve_with(&place, &cache, &[], &[]);
        for pattern in 1..=9 {
            flushed(&place, pattern, &format!("{}K", 4 * pattern), "4K");
        }
        let found = status(&place);
        assert!(buffer_of(&found, "records") > 0, "{found}");
        assert_eq!(seals_for_flushes(&found), 0, "{found}");
        daemon.kill();
        copy("now", &members.join(" "));

        let told = refused(place.run(&[&["assemble"][..], &without].concat()));
        assert!(told.contains("may hold the only copy"), "{told}");
        good(place.shell("cp before/* ."));
        let told = refused(place.run(&[&["assemble"][..], &all].concat()));
        assert!(told.contains("misses the array's last start"), "{told}");
        good(place.shell("cp now/* ."));
        let daemon = serve_with(&place, &cache, &[], &[]);
        for pattern in 1..=9 {
            let at = format!("{}K", 4 * pattern);
            good(read_pattern(&place, pattern, &at, "4K"));
        }
        stop(&place, &daemon);

        // All is in the log, and the buffer is not needed.
        let daemon = serve(&place, &[], &[]);
        good(read_pattern(&place, 9, "36K", "4K"));
        flushed(&place, 10, "36K", "4K");
        daemon.kill();
        let daemon = serve_with(&place, &cache, &[], &[]);
        good(read_pattern(&place, 10, "36K", "4K"));
        flushed(&place, 11, "36K", "4K");
        daemon.kill();
        good(place.run(&[&["assemble", "--accept-loss"][..], &without].concat()));
        let daemon = serve(&place, &[], &[]);
        // A record that was old enough may have been sealed.
        let found = [10, 11].map(|pattern| read_pattern(&place, pattern, "36K", "4K").status);
        assert!(found.contains(&0), "{found:?}");
        good(read_pattern(&place, 8, "32K", "4K"));
        // It goes on without one, for good.
        let told = good(place.run(&["status", "tank"]));
        let absent = "NVRAM buffer: absent; not in use: flushes seal records early\n";
        assert!(told.contains(absent), "{told}");
        flushed(&place, 12, "36K", "4K");
        let found = status(&place);
        assert!(seals_for_flushes(&found) > 0, "{found}");
        good(place.shell("truncate -s 16M new"));
        let told = refused(place.run(&["add", "tank", "new", "--to-nvram"]));
        assert!(
            told.contains("the array is not served with an NVRAM buffer"),
            "{told}"
        );
        daemon.kill();

        // One that is found again is used from then on, and nothing that it has counts.
        let daemon = serve_with(&place, &cache, &[], &[]);
        good(read_pattern(&place, 12, "36K", "4K"));
        flushed(&place, 13, "36K", "4K");
        assert!(buffer_of(&status(&place), "records") > 0);
        daemon.kill();
        let daemon = serve_with(&place, &cache, &[], &[]);
        good(read_pattern(&place, 13, "36K", "4K"));
        stop(&place, &daemon);
    }
}

/// What a member of a mirrored buffer has is not given up while it is here, and giving it up is told by whoever does it.
#[test]
fn a_buffer_is_given_up_only_where_it_must_be() {
    let place = with_buffer("buffer-given-up", &BUFFER);
    let test = "a_buffer_is_given_up_only_where_it_must_be";
    if !has(&place, test, &["qemu-io"]) {
        return;
    }
    let daemon = serve_with(&place, &[&CACHE[..], &BUFFER].concat(), &[], &[]);
    flushed(&place, 1, "64K", "4K");
    daemon.kill();
    let others = [&HOME[..], &CACHE].concat();
    let accepting = ["assemble", "--accept-loss"];
    let told = refused(place.run(&[&accepting[..], &others, &["pb"]].concat()));
    assert!(
        told.contains("only 1 of the 2 current members are present")
            && told.contains("--from-minority"),
        "{told}"
    );
    good(place.shell("mkdir kept && cp --sparse=always [abcd][01] c[abcd] p[ab] kept"));
    let daemon = serve_with(
        &place,
        &[&CACHE[..], &["pb"]].concat(),
        &["--from-minority"],
        &[],
    );
    good(read_pattern(&place, 1, "64K", "4K"));
    stop(&place, &daemon);
    good(place.shell("cp --sparse=always kept/* ."));
    let run = place.run(&[&accepting[..], &others].concat());
    assert_eq!(run.status, 0, "{}", run.stderr);
    let told = "tank: continues without its NVRAM buffer, which is missing: THE LAST FLUSHED WRITES ARE DISCARDED";
    assert!(run.stderr.contains(told), "{}", run.stderr);
}

/// Of a record in a mirrored buffer one copy may be wrong, and its member not say so: the other has it.
#[test]
fn a_wrong_copy_in_a_buffer_is_not_believed() {
    let place = with_buffer("buffer-rot", &BUFFER);
    let test = "a_wrong_copy_in_a_buffer_is_not_believed";
    if !has(&place, test, &["qemu-io"]) {
        return;
    }
    let members = [&CACHE[..], &BUFFER].concat();
    let daemon = serve_with(&place, &members, &[], &[]);
    for nth in 1..5 {
        flushed(&place, nth, &format!("{}K", u32::from(nth) * 64), "4K");
    }
    daemon.kill();
    good(place.shell("mkdir kept && cp --sparse=always [abcd][01] c[abcd] p[ab] kept"));
    for member in BUFFER {
        for (page, byte) in [(0, 200), (1, 0)] {
            good(place.shell("cp --sparse=always kept/* ."));
            let bytes = place.bytes(member);
            let at = newest_version(&bytes) + page * 4096 + byte;
            place.write(member, 0, at as u64, &[bytes[at] ^ 1]);
            let daemon = serve_with(&place, &members, &[], &[]);
            for nth in 1..5 {
                let at = format!("{}K", u32::from(nth) * 64);
                good(read_pattern(&place, nth, &at, "4K"));
            }
            stop(&place, &daemon);
        }
    }
}

/// Where the page of the newest version in a buffer's member begins: of the last record, by its sequence and version.
fn newest_version(member: &[u8]) -> usize {
    let number = |page: &[u8], at: usize, length: usize| {
        let mut bytes = [0; 8];
        bytes[..length].copy_from_slice(&page[at..at + length]);
        u64::from_le_bytes(bytes)
    };
    let pages = member.chunks_exact(4096).enumerate();
    let versions = pages.filter(|(_, page)| page.starts_with(b"RstrpBuf"));
    let newest = versions.max_by_key(|(_, page)| (number(page, 40, 8), number(page, 72, 4)));
    newest.expect("there are versions").0 * 4096
}

/// What a set of the array says of one of its members.
fn state_of(members: &Value, name: &str) -> String {
    member_named(members, name).map_or("unknown".into(), |found| {
        found["state"].as_str().expect("a word").into()
    })
}

/// A member of a buffer that failed, one that serves, and one that is gone are replaced: what was flushed into the buffer alone is there
/// after kills between all that, and in each of the members.
#[test]
fn a_member_of_a_buffer_is_replaced() {
    let place = with_buffer("code-cache-buffer-replaced", &BUFFER);
    if !has(&place, "a_member_of_a_buffer_is_replaced", &["qemu-io"]) {
        return;
    }
    let serve = |options: &[&str], buffer: &[&str]| {
        serve_with(&place, &[&CACHE[..], buffer].concat(), options, &[])
    };
    let in_buffer = |name: &str, members: &Value| {
        let status = status(&place);
        let buffer = &status["surrogate"]["buffer"];
        assert_eq!(state_of(&buffer["members"], name), *members, "{status}");
        buffer["state"].as_str().expect("a word").to_string()
    };
    // Lies in the buffer alone, whoever of it is there.
    let write = |pattern: u8| {
        flushed(&place, pattern, &format!("{}K", 4 * pattern), "4K");
        let found = status(&place);
        assert!(buffer_of(&found, "records") > 0, "{found}");
        assert_eq!(seals_for_flushes(&found), 0, "{found}");
    };
    let reads_to = |last: u8| {
        for pattern in 1..=last {
            good(read_pattern(
                &place,
                pattern,
                &format!("{}K", 4 * pattern),
                "4K",
            ));
        }
    };
    good(place.shell("truncate -s 16M pc pd pe"));
    let failed = Value::from("failed");

    let daemon = serve(&[], &BUFFER);
    write(1);
    good(place.run(&["fail", "tank", "pa"]));
    assert_eq!(in_buffer("pa", &failed), "degraded");
    let text = good(place.run(&["status", "tank"]));
    assert!(
        text.starts_with("tank: degraded, NVRAM buffer degraded\n"),
        "{text}"
    );
    let told = refused(place.run(&["fail", "tank", "pb"]));
    assert!(
        told.contains("the NVRAM buffer is degraded already"),
        "{told}"
    );
    write(2);
    daemon.kill();

    // It is not taken for what it was, and its place is taken by another.
    let daemon = serve(&[], &BUFFER);
    reads_to(2);
    assert_eq!(in_buffer("pa", &failed), "degraded");
    write(3);
    let told = good(place.run(&["replace", "tank", "pa", "pc"]));
    assert!(told.contains("is replaced"), "{told}");
    // Another serves in its place. Still it failed, and a restart would say so.
    assert_eq!(in_buffer("pa", &failed), "healthy");
    write(4);
    daemon.kill();

    // The new one alone has what the buffer had.
    let all = [&HOME[..], &CACHE, &["pa", "pc"]].concat();
    let told = refused(place.run(&[&["assemble"][..], &all].concat()));
    assert!(told.contains("the NVRAM buffer"), "{told}");
    let daemon = serve(&["--from-minority"], &["pc"]);
    reads_to(4);
    write(5);
    // The one that was left out is gone for good: there is no old one to name.
    let told = good(place.run(&["add", "tank", "pd", "--to-nvram"]));
    assert!(told.contains("is added"), "{told}");
    wait_until(&place, |found| {
        found["surrogate"]["buffer"]["state"] == "healthy"
    });
    write(6);
    daemon.kill();

    // One that serves is replaced, and the daemon killed before that is over.
    let daemon = serve(&[], &["pc", "pd"]);
    reads_to(6);
    write(7);
    good(place.run(&["replace", "tank", "pc", "pe", "--no-wait"]));
    write(8);
    daemon.kill();
    let daemon = serve(&[], &["pc", "pd", "pe"]);
    reads_to(8);
    wait_until(&place, |found| {
        let members = &found["surrogate"]["buffer"]["members"];
        state_of(members, "pe") == "active" && state_of(members, "pd") == "active"
    });
    write(9);
    daemon.kill();
    let daemon = serve(&["--from-minority"], &["pe"]);
    reads_to(9);
    stop(&place, &daemon);
}

#[test]
fn a_buffer_is_for_a_code_cache() {
    let place = Place::new("code-cache-no-buffer");
    let plain = place.create(
        &["a", "b", "c"],
        &["--level", "raid5", "--surrogate", "d,e", "--nvram", "p"],
    );
    assert_eq!(plain.status, 2, "{}", plain.stderr);
    assert!(
        plain.stderr.contains("requires a code cache"),
        "{}",
        plain.stderr
    );
    let three = create(&place, &CACHE, &["--nvram", "p,q,r"]);
    assert_eq!(three.status, 2, "{}", three.stderr);
    good(create(&place, &CACHE, &["--nvram", "p"]));
    let told = refused(place.run(&["assemble", "p"]));
    assert!(told.contains("the NVRAM buffer"), "{told}");
    let told = good(place.run(&["examine", "p", "ca"]));
    assert!(
        told.contains("it is the NVRAM buffer of the code cache"),
        "{told}"
    );
    assert!(told.contains("it has an NVRAM buffer"), "{told}");
}
