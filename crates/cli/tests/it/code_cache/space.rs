//! No space left: for the log, for what goes home, or when the array starts.

use super::{CACHE, HOME, create, flushed, is_destaged, serve, serve_with};
use crate::harness::steps::{URI, good, has, read_pattern, refused, status, stop, wait_until};
use crate::harness::{Daemon, Place};

/// As on a file system that is full behind 65 MiB of each member.
fn serve_without_space(place: &Place) -> Daemon {
    let members = [&HOME[..], &CACHE].concat().join(" ");
    let script =
        format!("trap '' XFSZ; ulimit -S -f 66560; exec restripe serve --unix nbd.sock {members}");
    place.await_service(&mut place.script(&script))
}

/// Members of the code cache that cannot grow any more: writes are refused for want of space, and nothing is called healthy. Once
/// there is room, as the hint asks for, the same daemon goes on, with every write that it acknowledged.
#[test]
fn a_code_cache_without_space_says_so_and_goes_on_with_room() {
    let place = Place::new("code-cache-space");
    let test = "a_code_cache_without_space_says_so_and_goes_on_with_room";
    if !has(&place, test, &["qemu-io", "bash", "prlimit"]) {
        return;
    }
    good(place.shell("for m in ca cb cc cd; do truncate -s 160M $m; done"));
    good(create(&place, &CACHE, &[]));
    // Behind all that the array's own members have.
    let daemon = serve_without_space(&place);
    let write = |pattern: u64| {
        let at = pattern % 4 * 32;
        place.shell(&format!(
            "qemu-io -f raw -c 'write -P {pattern} {at}M 32M' -c flush '{URI}' 2>&1"
        ))
    };
    let mut patterns = 1..9;
    let told = patterns.find_map(|pattern| {
        let told = write(pattern).stdout;
        told.contains("failed").then_some((pattern, told))
    });
    let (refused_pattern, told) = told.expect("it has no room for all");
    assert!(told.contains("No space left on device"), "{told}");
    let found = status(&place);
    let overlay = &found["surrogate"]["overlay"];
    assert!(
        overlay["full"] == true && overlay["broken"] == true,
        "{found}"
    );
    let text = good(place.run(&["status", "tank"]));
    let first = text.lines().next().expect("a line");
    assert_eq!(first, "tank: read-only, the log has NO SPACE");
    let refusal = &found["refuses_writes"];
    assert_eq!(refusal["reason"], "log-full", "{refusal}");
    let hint = "free space: the next write retries, without a restart; `restripe status tank` shows when writes succeed";
    assert_eq!(refusal["hint"], hint);
    good(place.shell(&format!("prlimit --fsize=unlimited: --pid {}", daemon.id())));
    let tries = || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        !write(refused_pattern).stdout.contains("failed")
    };
    assert!((0..100).any(|_| tries()), "without a restart");
    wait_until(&place, |found| found["refuses_writes"].is_null());
    for pattern in (1..=refused_pattern).rev().take(4) {
        let at = format!("{}M", pattern % 4 * 32);
        good(read_pattern(&place, pattern as u8, &at, "32M"));
    }
    stop(&place, &daemon);
}

/// Members of the array that cannot grow any more: what lies in the log cannot go home, which is told; with room again it does.
#[test]
fn a_code_cache_that_cannot_be_emptied_says_so() {
    let place = Place::new("code-cache-full");
    let test = "a_code_cache_that_cannot_be_emptied_says_so";
    if !has(&place, test, &["qemu-io", "bash"]) {
        return;
    }
    good(place.shell("truncate -s 256M a0 a1 b0 b1 c0 c1 d0 d1; truncate -s 48M ca cb cc cd"));
    good(create(&place, &CACHE, &[]));
    let daemon = serve_without_space(&place);
    // The flush that finds it full fails: what was flushed before is there.
    let mut kept = Vec::new();
    for at in (512..640).step_by(16) {
        let write = format!("write -P 7 {at}M 16M");
        let run = place.shell(&format!("qemu-io -f raw -c '{write}' -c flush '{URI}'"));
        if run.status != 0 {
            break;
        }
        kept.push(format!("{at}M"));
    }
    let text = good(place.run(&["status", "tank"]));
    let first = text.lines().next().expect("a line");
    assert_eq!(first, "tank: read-only, the log is FULL");
    let why = "the log is FULL: it cannot be destaged";
    assert!(text.contains(why), "{text}");
    let overlay_now = &status(&place)["surrogate"]["overlay"];
    assert!(
        overlay_now["full"] == true && overlay_now["broken"] == false,
        "{overlay_now}"
    );
    daemon.kill();
    let daemon = serve(&place, &[], &[]);
    let text = good(place.run(&["status", "tank"]));
    assert!(!text.contains("FULL"), "{text}");
    is_destaged(&place);
    assert!(!kept.is_empty());
    for at in &kept {
        good(read_pattern(&place, 7, at, "16M"));
    }
    stop(&place, &daemon);
}

/// A file system that is full when the array starts loses nothing: the start is refused, whatever is accepted, until there is room.
#[test]
fn a_start_without_space_for_the_log_loses_nothing() {
    let place = Place::new("code-cache-no-room");
    let test = "a_start_without_space_for_the_log_loses_nothing";
    if !has(&place, test, &["qemu-io", "nbdkit"]) {
        return;
    }
    good(create(&place, &CACHE, &["--nvram", "pa,pb"]));
    let buffer = ["pa", "pb"];
    let with_buffer = [&CACHE[..], &buffer].concat();
    let daemon = serve_with(&place, &with_buffer, &[], &[]);
    flushed(&place, 7, "0", "2M");
    daemon.kill();
    let uri = |member: &str| {
        let folder = place.path("");
        format!(
            "nbd+unix:///?socket={}/{member}.sock",
            folder.trim_end_matches('/')
        )
    };
    for (name, full) in [("surrogate", &CACHE[..]), ("buffer", &buffer)] {
        for member in full {
            good(place.shell(&format!(
                "nbdkit -U {member}.sock -P {member}.pid --filter=error file {member} \
                     error=ENOSPC error-pwrite-rate=100% error-zero-rate=100%"
            )));
        }
        let members = HOME.iter().chain(&with_buffer);
        let members: Vec<String> = members
            .map(|member| match full.contains(member) {
                true => uri(member),
                false => member.to_string(),
            })
            .collect();
        let members: Vec<&str> = members.iter().map(String::as_str).collect();
        for options in [&["assemble"][..], &["assemble", "--accept-loss"]] {
            let told = refused(place.run(&[options, &members].concat()));
            assert!(
                told.contains(name) && told.contains("no space is left on a member"),
                "{told}"
            );
            let ways = "free space and start again; or omit its members and pass --accept-loss";
            assert!(told.contains(ways), "{told}");
        }
        let end = "for pid in *.pid; do kill $(cat $pid); done; rm -f *.pid *.sock";
        good(place.shell(end));
    }
    let daemon = serve_with(&place, &with_buffer, &[], &[]);
    good(read_pattern(&place, 7, "0", "2M"));
    stop(&place, &daemon);
}
