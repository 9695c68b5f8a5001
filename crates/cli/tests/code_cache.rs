//! Arrays of mirrors whose writes all go into a code cache (RERAID), by the command alone: killed, without two disks or three, and
//! with a file system.

#[allow(dead_code)]
mod harness;

use harness::steps::{
    Fio, PATIENCE, URI, comes_home, content, good, has, number, overlay, read_pattern, refused,
    serve_sleepers, status, stop, wait_until, write_pattern,
};
use harness::{Daemon, Place, Run};
use serde_json::Value;
use std::fs::File;
use std::thread;
use std::time::{Duration, Instant};

const HOME: [&str; 8] = ["a0", "a1", "b0", "b1", "c0", "c1", "d0", "d1"];
const CACHE: [&str; 4] = ["ca", "cb", "cc", "cd"];

const BUFFER: [&str; 2] = ["pa", "pb"];

fn of_mirrors(name: &str) -> Place {
    let place = Place::new(name);
    good(create(&place, &CACHE, &[]));
    place
}

fn create(place: &Place, cache: &[&str], more: &[&str]) -> Run {
    let cache = cache.join(",");
    let options = ["--level", "raid10", "--surrogate", &cache, "--code-cache"];
    place.create(&HOME, &[&options[..], more].concat())
}

fn serve(place: &Place, options: &[&str], gone: &[&str]) -> Daemon {
    serve_with(place, &CACHE, options, gone)
}

fn serve_with(place: &Place, cache: &[&str], options: &[&str], gone: &[&str]) -> Daemon {
    let all = HOME.iter().chain(cache);
    let members: Vec<&str> = all.copied().filter(|name| !gone.contains(name)).collect();
    serve_sleepers(place, options, &members)
}

/// The same without a buffer, and with buffers of one member and of two: the place, the members of the code cache, and the buffer's.
fn with_and_without_buffer(
    name: &str,
) -> impl Iterator<Item = (Place, [&'static [&'static str]; 2])> {
    (0..=BUFFER.len()).map(move |members| {
        let buffer = &BUFFER[..members];
        let name = format!("{name}-{members}");
        let place = match members {
            0 => of_mirrors(&name),
            _ => with_buffer(&name, buffer),
        };
        (place, [&CACHE[..], buffer])
    })
}

/// What lies in the log comes home when asked, by a destage.
fn is_destaged(place: &Place) {
    let found = comes_home(place);
    assert!(overlay(&found, "destages") > 0, "{found}");
}

#[test]
fn a_code_cache_is_of_three_members_or_more_with_parity() {
    let place = Place::new("code-cache-refused");
    let create = |options: &[&str]| {
        let words = [&["--level", "raid10"], options, &["--code-cache"]].concat();
        place.create(&["a", "b"], &words)
    };
    let two = create(&["--surrogate", "c,d"]);
    assert_eq!(two.status, 2, "{}", two.stderr);
    assert!(two.stderr.contains("a code cache has 3 to 16 members"));
    let copies = ["--surrogate", "c,d,e,f", "--surrogate-level", "raid10"];
    let mirrors = create(&copies);
    assert_eq!(mirrors.status, 2, "{}", mirrors.stderr);
    assert!(mirrors.stderr.contains("raid5, raid6 or rs3 to rs8"));
    assert_eq!(create(&[]).status, 2);
    let parity = ["--level", "raid5", "--surrogate", "d,e,f", "--code-cache"];
    let parity = place.create(&["a", "b", "c"], &parity);
    assert_eq!(parity.status, 2, "{}", parity.stderr);
    assert!(
        parity.stderr.contains("raid1 and raid10"),
        "{}",
        parity.stderr
    );
    let help = good(place.run(&["surrogate", "add", "--help"]));
    assert!(help.contains("raid10") && !help.contains("rs3"), "{help}");
    let few = create(&["--surrogate", "c,d,e", "--surrogate-level", "rs3"]);
    assert_ne!(few.status, 0);
    for told in ["the surrogate", "3 members are too few: this level needs 4"] {
        assert!(few.stderr.contains(told), "{}", few.stderr);
    }
}

#[test]
fn three_parities_are_for_a_code_cache_alone() {
    let place = Place::new("code-cache-parities");
    let surrogate = ["--surrogate", "c,d,e,f", "--surrogate-level", "raidz3"];
    let refused = place.create(
        &["a", "b"],
        &[&["--level", "raid1"], &surrogate[..]].concat(),
    );
    assert_eq!(refused.status, 2, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("written by whole rows"),
        "{}",
        refused.stderr
    );
    let unknown = place.create(&["a", "b", "c", "d"], &["--level", "rs3"]);
    assert_eq!(unknown.status, 2, "{}", unknown.stderr);
}

/// All of them in one folder, in their order; and the array that sleeps prints what stands there.
#[test]
fn the_blocks_of_the_document_work_as_pasted() {
    let place = Place::new("code-cache-pasted");
    let test = "the_blocks_of_the_document_work_as_pasted";
    if !has(&place, test, &["nbdcopy"]) {
        return;
    }
    let document = include_str!("../../../docs/code-cache.md");
    let behind = |mark| {
        let parts = document.split(mark).skip(1);
        parts.filter_map(|rest| rest.split("```").next())
    };
    let blocks: Vec<&str> = behind("\n```sh\n").collect();
    assert!(blocks.len() > 4, "{blocks:?}");
    let run = place.shell(&format!("set -e\n{}wait\n", blocks.concat()));
    assert_eq!(run.status, 0, "{}\n{}", run.stdout, run.stderr);
    let shown = behind("<!-- asleep -->\n```text\n").next();
    let shown = shown.expect("the document has it");
    assert!(shown.contains("asleep") && shown.contains("wake a1\n"));
    assert!(run.stdout.contains(shown), "{shown} in\n{}", run.stdout);
}

#[test]
fn only_a_log_that_takes_every_write_is_destaged() {
    let place = Place::new("code-cache-none");
    good(place.create(&["a", "b"], &["--level", "raid1", "--surrogate", "c,d"]));
    let words = ["serve", "--unix", "nbd.sock", "a", "b", "c", "d"];
    let daemon = place.await_service(&mut place.command(&words));
    let told = refused(place.run(&["surrogate", "destage", "tank"]));
    assert!(told.contains("goes home by itself"), "{told}");
    stop(&place, &daemon);
}

#[test]
fn fio_verifies_through_a_kill_destages_and_two_lost_disks() {
    let test = "fio_verifies_through_a_kill_destages_and_two_lost_disks";
    for (place, cache) in with_and_without_buffer("code-cache-fio") {
        if has(&place, test, &["fio"]) {
            // Two disks that stay awake, each with a member of the array and one of the code cache; and of two members of a buffer one.
            let of_buffer = &cache[1][..cache[1].len() / 2];
            let gone = [&["a0", "ca", "c0", "cc"], of_buffer].concat();
            fio_verifies_without(&place, &cache.concat(), &gone);
        }
    }
}

/// Three parities bear three disks, of four that stay awake or of six.
#[test]
fn fio_verifies_through_a_kill_destages_and_three_lost_disks() {
    let test = "fio_verifies_through_a_kill_destages_and_three_lost_disks";
    for cache in [&CACHE[..], &["ca", "cb", "cc", "cd", "ce", "cf"]] {
        let place = Place::new(&format!("code-cache-rs3-{}", cache.len()));
        let made = good(create(&place, cache, &["--surrogate-level", "rs3"]));
        assert!(made.contains("RS-3 left-symmetric"), "{made}");
        if has(&place, test, &["fio"]) {
            fio_verifies_without(&place, cache, &["a0", "ca", "b0", "cb", "d0", "cd"]);
        }
    }
}

/// What was flushed is there after a kill, whoever is gone with it, and when it has come home.
fn fio_verifies_without(place: &Place, cache: &[&str], gone: &[&str]) {
    let fio = Fio { place };
    let serve = |options: &[&str], gone: &[&str]| {
        let sleeps = ["--power", "exec:true"];
        serve_with(place, cache, &[&sleeps, options].concat(), gone)
    };
    let daemon = serve(&[], &[]);
    good(fio.run("--verify_state_save=1 --verify_fatal=1 --end_fsync=1"));
    let found = wait_until(place, |status| overlay(status, "mirrors_asleep") == 4);
    assert!(overlay(&found, "redirected_writes") > 0, "{found}");
    assert!(overlay(&found, "away_bytes") > 0, "{found}");
    buffer_took_flushes(&found);
    daemon.kill();
    let daemon = serve(&[], &[]);
    fio.verify(0);
    for member in gone {
        good(place.run(&["fail", "tank", member, "--yes"]));
    }
    fio.verify(0);
    good(fio.run("--verify_state_save=1 --verify_fatal=1 --end_fsync=1"));
    daemon.kill();
    let daemon = serve(&["--degraded"], gone);
    fio.verify(0);
    is_destaged(place);
    fio.verify(0);
    stop(place, &daemon);
    let daemon = serve(&["--degraded"], gone);
    fio.verify(0);
    stop(place, &daemon);
}

/// Where there is a buffer, no flush had to seal a record.
fn buffer_took_flushes(status: &Value) {
    let surrogate = &status["surrogate"];
    if surrogate["buffer"].is_object() {
        assert!(buffer_of(status, "versions") > 0, "{status}");
        assert_eq!(seals_for_flushes(status), 0, "{status}");
    }
}

/// Records that went into the log for a FLUSH or FUA.
fn seals_for_flushes(status: &Value) -> u64 {
    let seals = &status["surrogate"]["overlay"]["seals"];
    number(&seals["flush"]) + number(&seals["fua"])
}

/// The daemon is killed while it writes; of what was flushed nothing is lost.
#[test]
fn fio_verifies_after_a_kill_in_its_midst() {
    let test = "fio_verifies_after_a_kill_in_its_midst";
    for (place, cache) in with_and_without_buffer("code-cache-kill") {
        if has(&place, test, &["fio"]) {
            fio_verifies_after_a_kill(&place, &cache.concat());
        }
    }
}

fn fio_verifies_after_a_kill(place: &Place, cache: &[&str]) {
    let fio = Fio { place };
    let daemon = serve_with(place, cache, &["--destage-every", "1s"], &[]);
    let writes = |status: &Value| number(&status["counters"]["writes"]);
    std::thread::scope(|scope| {
        let each_flushed = "--verify_state_save=1 --do_verify=0 --fsync=1";
        let load = scope.spawn(|| fio.run(each_flushed));
        buffer_took_flushes(&wait_until(place, |status| writes(status) > 300));
        daemon.kill();
        let ended = load.join().expect("no panic there");
        assert_ne!(ended.status, 0, "it was interrupted");
    });
    let daemon = serve_with(place, cache, &[], &[]);
    fio.verify(Fio::DEPTH);
    is_destaged(place);
    fio.verify(Fio::DEPTH);
    stop(place, &daemon);
}

#[test]
fn ext4_stays_clean_through_a_kill_and_a_destage() {
    let test = "ext4_stays_clean_through_a_kill_and_a_destage";
    let tools = ["nbdcopy", "mkfs.ext4", "debugfs", "e2fsck"];
    for (place, cache) in with_and_without_buffer("code-cache-ext4") {
        if has(&place, test, &tools) {
            ext4_stays_clean(&place, &cache.concat());
        }
    }
}

fn ext4_stays_clean(place: &Place, cache: &[&str]) {
    let serve = |options: &[&str], gone: &[&str]| serve_with(place, cache, options, gone);
    let daemon = serve(&[], &[]);
    let size = number(&status(place)["size_bytes"]);
    good(place.shell(&format!(
        "set -e; truncate -s {size} fs.raw; mkfs.ext4 -q -F fs.raw
         head -c 9000000 /dev/urandom > file; debugfs -w -R 'write file file' fs.raw 2>/dev/null
         nbdcopy --flush fs.raw '{URI}'"
    )));
    buffer_took_flushes(&status(place));
    daemon.kill();
    let clean = "set -e; e2fsck -fn now.raw; debugfs -R 'dump file now.file' now.raw 2>/dev/null; cmp file now.file";
    let is_clean = || {
        content(place, "now.raw");
        good(place.shell(clean));
    };
    let daemon = serve(&[], &[]);
    is_clean();
    is_destaged(place);
    is_clean();
    // Two disks that stay awake.
    let gone = ["b0", "cb", "d0", "cd"];
    for member in gone {
        good(place.run(&["fail", "tank", member, "--yes"]));
    }
    is_clean();
    daemon.kill();
    let daemon = serve(&["--degraded"], &gone);
    is_clean();
    stop(place, &daemon);
}

/// The operator's command hears who may stand still and who is to turn; fio sees what it wrote all the while.
#[test]
fn mirrors_sleep_and_wake_by_the_operators_command() {
    let place = of_mirrors("code-cache-sleep");
    let test = "mirrors_sleep_and_wake_by_the_operators_command";
    good(place.shell(
        "printf '#!/bin/sh\\necho \"$1 $(basename $2)\" >> told\\n' > power.sh; chmod +x power.sh; touch told",
    ));
    let bad = place.run(&["serve", "--power", "hdparm", "a0"]);
    assert_eq!(bad.status, 2, "{}", bad.stderr);
    if !has(&place, test, &["fio"]) {
        return;
    }
    let told = |word: &str| {
        let bytes = place.bytes("told");
        let text = String::from_utf8(bytes).expect("letters");
        let of = text.lines().filter_map(|line| line.strip_prefix(word));
        let mut of: Vec<String> = of.map(|name| name.trim().to_string()).collect();
        of.sort();
        of
    };
    let mirrors = ["a1", "b1", "c1", "d1"];
    let fio = Fio { place: &place };
    let daemon = serve(&place, &["--power", "exec:./power.sh"], &[]);
    let asleep = |status: &Value| overlay(status, "mirrors_asleep") == 4;
    wait_until(&place, asleep);
    assert_eq!(told("standby"), mirrors);
    good(fio.run("--verify_state_save=1 --verify_fatal=1 --end_fsync=1"));
    let found = status(&place);
    assert!(asleep(&found), "they sleep through it: {found}");
    assert!(told("wake").is_empty());
    is_destaged(&place);
    assert_eq!(told("wake"), mirrors);
    fio.verify(0);
    // A lost disk of those that are awake wakes its mirror.
    wait_until(&place, asleep);
    good(place.run(&["fail", "tank", "a0"]));
    fio.verify(0);
    stop(&place, &daemon);
}

/// The words of a daemon whose command is this script, into a file.
fn serve_told(place: &Place, script: &str) -> Daemon {
    let script = format!("printf '#!/bin/sh\\n{script}\\n' > power.sh; chmod +x power.sh");
    good(place.shell(&script));
    let members = [&HOME[..], &CACHE].concat();
    let mut words = vec!["serve", "--unix", "nbd.sock", "--sleep", "1s"];
    words.extend(["--io-timeout", "1s", "--power", "exec:./power.sh"]);
    words.extend(members);
    let mut command = place.command(&words);
    let said = File::create(place.path("said")).expect("a file for what it says");
    place.await_service(command.stderr(said))
}

/// A command that fails leaves mirrors awake, and is told with its reason and what it said: once.
#[test]
fn an_operators_command_that_fails_is_told() {
    let place = of_mirrors("code-cache-fails");
    for program in ["./nowhere", "nowhere-in-path", "/etc/passwd"] {
        let command = format!("exec:{program}");
        let told = refused(place.run(&["serve", "--power", &command, "a0", "a1"]));
        assert!(told.contains(program), "{told}");
    }
    let daemon = serve_told(&place, "echo no; echo disk >&2; exit 3");
    let restless = |status: &Value| overlay(status, "mirrors_restless") == 4;
    assert_eq!(wait_until(&place, restless)["state"], "healthy");
    stop(&place, &daemon);
    let said = String::from_utf8(place.bytes("said")).expect("letters");
    for mirror in ["a1", "b1", "c1", "d1"] {
        let told = format!(
            "restripe: {mirror}: ./power.sh standby: exit status: 3; the mirror stays awake: no disk"
        );
        assert_eq!(said.matches(&told).count(), 1, "{said}");
    }
}

/// A stop does not wait for a command that hangs, leaves nothing of it behind, and costs no member.
#[test]
fn a_stop_ends_an_operators_command_that_hangs() {
    let place = of_mirrors("code-cache-hangs");
    let script = "[ $1 = wake ] || { sleep 987 & echo $! >> told; echo talks; wait; }";
    let daemon = serve_told(&place, script);
    let told = || String::from_utf8(place.bytes("told")).expect("letters");
    let deadline = Instant::now() + PATIENCE;
    while !place.exists("told") || told().lines().count() < 4 {
        assert!(Instant::now() < deadline, "all mirrors are told");
        thread::sleep(Duration::from_millis(50));
    }
    let begun = Instant::now();
    stop(&place, &daemon);
    assert!(begun.elapsed() < Duration::from_secs(30));
    let left = "for p in $(cat told); do kill -0 $p && grep -v '[)] Z' /proc/$p/stat; done; true";
    assert_eq!(good(place.shell(left)), "");
    let said = String::from_utf8(place.bytes("said")).expect("letters");
    assert!(
        !said.contains("talks") && !said.contains("failed"),
        "{said}"
    );
}

/// Members of the code cache that cannot grow any more: writes are refused for want of space, and nothing is called healthy.
#[test]
fn a_code_cache_without_space_says_so() {
    let place = Place::new("code-cache-space");
    let test = "a_code_cache_without_space_says_so";
    if !has(&place, test, &["qemu-io", "bash"]) {
        return;
    }
    good(place.shell("for m in ca cb cc cd; do truncate -s 160M $m; done"));
    good(create(&place, &CACHE, &[]));
    // As of a file system that is full behind all that the array's own members have.
    let members = [&HOME[..], &CACHE].concat().join(" ");
    let script =
        format!("trap '' XFSZ; ulimit -f 66560; exec restripe serve --unix nbd.sock {members}");
    let daemon = place.await_service(&mut place.script(&script));
    let write = |nth: u64| {
        let at = nth % 4 * 32;
        place.shell(&format!(
            "qemu-io -f raw -c 'write -P 3 {at}M 32M' -c flush '{URI}' 2>&1"
        ))
    };
    let told = (0..8)
        .map(write)
        .map(|run| run.stdout)
        .find(|told| told.contains("failed"));
    let told = told.expect("it has no room for all");
    assert!(told.contains("No space left on device"), "{told}");
    let found = status(&place);
    let overlay = &found["surrogate"]["overlay"];
    assert!(
        overlay["full"] == true && overlay["broken"] == true,
        "{found}"
    );
    let text = good(place.run(&["status", "tank"]));
    let first = text.lines().next().expect("a line");
    assert_eq!(first, "tank: degraded, the log has NO SPACE");
    daemon.kill();
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
    let members = [&HOME[..], &CACHE].concat().join(" ");
    let script =
        format!("trap '' XFSZ; ulimit -f 66560; exec restripe serve --unix nbd.sock {members}");
    let daemon = place.await_service(&mut place.script(&script));
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
    assert_eq!(first, "tank: degraded, the log is FULL, read-only");
    let why = "the log is FULL: what lies there does not go home";
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
    good(create(&place, &CACHE, &["--buffer-file", "pa,pb"]));
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
        }
        let end = "for pid in *.pid; do kill $(cat $pid); done; rm -f *.pid *.sock";
        good(place.shell(end));
    }
    let daemon = serve_with(&place, &with_buffer, &[], &[]);
    good(read_pattern(&place, 7, "0", "2M"));
    stop(&place, &daemon);
}

/// A member of the code cache that failed is no less trouble than one of the array's own.
#[test]
fn an_array_whose_code_cache_is_degraded_is_not_called_healthy() {
    let place = of_mirrors("code-cache-degraded");
    let daemon = serve(&place, &[], &[]);
    good(place.run(&["fail", "tank", "cb", "--yes"]));
    let text = good(place.run(&["status", "tank"]));
    let first = text.lines().next().expect("a line");
    assert_eq!(first, "tank: degraded, surrogate degraded");
    let found = status(&place);
    assert_eq!(found["state"], "degraded", "{found}");
    assert_eq!(found["own_state"], "healthy", "{found}");
    stop(&place, &daemon);
}

/// Without a daemon it is waited for; with one, where that is said.
#[test]
fn a_destage_is_waited_for() {
    let place = of_mirrors("code-cache-wait");
    if !has(&place, "a_destage_is_waited_for", &["qemu-io"]) {
        return;
    }
    let members = [&HOME[..], &CACHE].concat();
    let offline = [&["surrogate", "destage", "tank", "--offline"], &members[..]].concat();
    let daemon = serve(&place, &[], &[]);
    write_pattern(&place, 0x5a, "1M", "4M");
    let found = status(&place);
    assert!(overlay(&found, "away_bytes") >= 4 << 20, "{found}");
    let told = good(place.run(&["surrogate", "destage", "tank", "--wait"]));
    assert_eq!(told, "all that lay away is home\n");
    assert_eq!(overlay(&status(&place), "away_bytes"), 0);
    write_pattern(&place, 0xa5, "1M", "4M");
    stop(&place, &daemon);
    let told = good(place.run(&offline));
    assert_eq!(told, "all that lay away is home\n");
    let look = [&["surrogate", "status", "tank", "--offline"], &members[..]].concat();
    let told = good(place.run(&look));
    assert!(!told.contains("away"), "{told}");
    let daemon = serve(&place, &[], &[]);
    good(read_pattern(&place, 0xa5, "1M", "4M"));
    stop(&place, &daemon);
}

/// Each order brings home what was written, in little memory too; what makes no sense is refused at the start.
#[test]
fn an_order_and_memory_are_chosen_for_destages() {
    let place = of_mirrors("code-cache-order");
    let wrong = place.run(&["serve", "--destage-memory", "64K", "a0"]);
    assert_eq!(wrong.status, 2, "{}", wrong.stderr);
    assert!(wrong.stderr.contains("from 1M to 1G"), "{}", wrong.stderr);
    let wrong = place.run(&["serve", "--destage-order", "random", "a0"]);
    assert_eq!(wrong.status, 2, "{}", wrong.stderr);
    if !has(
        &place,
        "an_order_and_memory_are_chosen_for_destages",
        &["qemu-io"],
    ) {
        return;
    }
    let orders = ["rounds", "mcfd", "oldest", "address"];
    for (pattern, order) in (1..).zip(orders) {
        let options = ["--destage-order", order, "--destage-memory", "1M"];
        let daemon = serve(&place, &options, &[]);
        write_pattern(&place, pattern, "1M", "4M");
        write_pattern(&place, pattern, "20M", "1M");
        write_pattern(&place, pattern, "3M", "1M");
        good(place.run(&["surrogate", "destage", "tank", "--wait"]));
        assert_eq!(overlay(&status(&place), "away_bytes"), 0, "{order}");
        for (at, length) in [("1M", "4M"), ("20M", "1M")] {
            good(read_pattern(&place, pattern, at, length));
        }
        stop(&place, &daemon);
    }
}

/// What is put back as it was before the last start lacks what was flushed since: nobody takes it for what it is a copy of.
#[test]
fn an_old_copy_is_not_taken_for_the_log_or_a_part_of_it() {
    let place = of_mirrors("code-cache-old");
    let test = "an_old_copy_is_not_taken_for_the_log_or_a_part_of_it";
    if !has(&place, test, &["qemu-io"]) {
        return;
    }
    let session = |pattern: u8| {
        let daemon = serve(&place, &[], &[]);
        good(place.shell(&format!(
            "qemu-io -f raw -c 'write -P {pattern} 0 1M' -c flush '{URI}'"
        )));
        daemon.kill();
    };
    let keep = |folder: &str, what: &str| {
        good(place.shell(&format!(
            "mkdir {folder} && cp --sparse=always {what} {folder}"
        )));
    };
    let all = [&HOME[..], &CACHE].concat();
    let refusal = |why: &str| {
        let told = refused(place.run(&[&["assemble"][..], &all].concat()));
        assert!(told.contains(why), "{told}");
    };
    session(1);
    keep("before", "[abcd][01] c[abcd]");
    session(2);
    keep("now", "[abcd][01] c[abcd]");
    good(place.shell("cp before/ca ca"));
    refusal("ca only in an old copy");
    good(place.shell("cp before/c[abcd] ."));
    refusal("before the array's last start");
    good(place.run(&[&["assemble", "--accept-loss"][..], &all].concat()));
    let daemon = serve(&place, &[], &[]);
    for pattern in [0, 1, 2] {
        refused(read_pattern(&place, pattern, "0", "64K"));
    }
    stop(&place, &daemon);
    good(place.shell("cp now/* . && cp before/[abcd][01] ."));
    refusal("an old copy");
    let daemon = serve(&place, &["--from-minority"], &[]);
    good(read_pattern(&place, 2, "0", "1M"));
    stop(&place, &daemon);
    good(place.shell("cp now/* ."));
    let daemon = serve(&place, &[], &[]);
    good(read_pattern(&place, 2, "0", "1M"));
    stop(&place, &daemon);
}

/// Members that are all there, with a log that tells nothing any more: it is called damaged, and not missing.
#[test]
fn a_damaged_log_is_not_called_missing() {
    let place = of_mirrors("code-cache-damaged");
    let test = "a_damaged_log_is_not_called_missing";
    if !has(&place, test, &["qemu-io"]) {
        return;
    }
    let daemon = serve(&place, &[], &[]);
    flushed(&place, 1, "0", "1M");
    daemon.kill();
    for member in CACHE {
        let anchors = place.bytes(member);
        let anchors = anchors.chunks_exact(4096).enumerate();
        for (nth, _) in anchors.filter(|(_, page)| page.starts_with(b"RstrpAnc")) {
            place.write(member, 0, nth as u64 * 4096, &[0xff; 4096]);
        }
    }
    let all = [&HOME[..], &CACHE].concat();
    let told = refused(place.run(&[&["assemble"][..], &all].concat()));
    assert!(told.contains("the log of the surrogate "), "{told}");
    assert!(
        told.contains(" is damaged, and may have the only current copies of "),
        "{told}"
    );
    let daemon = serve(&place, &["--accept-loss"], &[]);
    refused(read_pattern(&place, 1, "0", "64K"));
    flushed(&place, 2, "0", "1M");
    daemon.kill();
    let daemon = serve(&place, &[], &[]);
    good(read_pattern(&place, 2, "0", "1M"));
    stop(&place, &daemon);
}

fn with_buffer(name: &str, buffer: &[&str]) -> Place {
    let place = Place::new(name);
    good(create(
        &place,
        &CACHE,
        &["--buffer-file", &buffer.join(",")],
    ));
    place
}

fn buffer_of(status: &Value, what: &str) -> u64 {
    number(&status["surrogate"]["buffer"][what])
}

fn flushed(place: &Place, pattern: u8, at: &str, length: &str) {
    let write = format!("write -P {pattern} {at} {length}");
    good(place.shell(&format!("qemu-io -f raw -c '{write}' -c flush '{URI}'")));
}

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
        assert!(told.contains("may lie there alone"), "{told}");
        good(place.shell("cp before/* ."));
        let told = refused(place.run(&[&["assemble"][..], &all].concat()));
        assert!(told.contains("before the array's last start"), "{told}");
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
        let absent = "buffer: absent; not in use: flushes seal records\n";
        assert!(told.contains(absent), "{told}");
        flushed(&place, 12, "36K", "4K");
        let found = status(&place);
        assert!(seals_for_flushes(&found) > 0, "{found}");
        good(place.shell("truncate -s 16M new"));
        let told = refused(place.run(&["add", "tank", "new", "--to-buffer"]));
        assert!(told.contains("the array has no buffer here"), "{told}");
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
        told.contains("only 1 of the 2 current members are here")
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
    let told =
        "tank: goes on without its buffer, which is not here: WHAT USERS FLUSHED LAST IS GIVEN UP";
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
    let members = members.as_array().expect("members");
    let path = |one: &&Value| {
        one["path"]
            .as_str()
            .is_some_and(|path| path.ends_with(name))
    };
    let found = members.iter().find(path).map(|one| &one["state"]);
    found.map_or("unknown".into(), |state| {
        state.as_str().expect("a word").into()
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
    let replaced = Value::from("replaced");

    let daemon = serve(&[], &BUFFER);
    write(1);
    good(place.run(&["fail", "tank", "pa"]));
    assert_eq!(in_buffer("pa", &failed), "degraded");
    let text = good(place.run(&["status", "tank"]));
    assert!(
        text.starts_with("tank: degraded, buffer degraded\n"),
        "{text}"
    );
    let told = refused(place.run(&["fail", "tank", "pb"]));
    assert!(told.contains("the buffer is degraded already"), "{told}");
    write(2);
    daemon.kill();

    // It is not taken for what it was, and its place is taken by another.
    let daemon = serve(&[], &BUFFER);
    reads_to(2);
    assert_eq!(in_buffer("pa", &failed), "degraded");
    write(3);
    let told = good(place.run(&["replace", "tank", "pa", "pc"]));
    assert!(told.contains("is replaced"), "{told}");
    assert_eq!(in_buffer("pa", &replaced), "healthy");
    write(4);
    daemon.kill();

    // The new one alone has what the buffer had.
    let all = [&HOME[..], &CACHE, &["pa", "pc"]].concat();
    let told = refused(place.run(&[&["assemble"][..], &all].concat()));
    assert!(told.contains("the buffer"), "{told}");
    let daemon = serve(&["--from-minority"], &["pc"]);
    reads_to(4);
    write(5);
    // The one that was left out is gone for good: there is no old one to name.
    let told = good(place.run(&["add", "tank", "pd", "--to-buffer"]));
    assert!(told.contains("is taken in"), "{told}");
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
        &[
            "--level",
            "raid5",
            "--surrogate",
            "d,e",
            "--buffer-file",
            "p",
        ],
    );
    assert_eq!(plain.status, 2, "{}", plain.stderr);
    assert!(
        plain.stderr.contains("is for a code cache"),
        "{}",
        plain.stderr
    );
    let three = create(&place, &CACHE, &["--buffer-file", "p,q,r"]);
    assert_eq!(three.status, 2, "{}", three.stderr);
    good(create(&place, &CACHE, &["--buffer-file", "p"]));
    let told = refused(place.run(&["assemble", "p"]));
    assert!(told.contains("the buffer"), "{told}");
    let told = good(place.run(&["examine", "p", "ca"]));
    assert!(
        told.contains("it is the buffer of the code cache"),
        "{told}"
    );
    assert!(told.contains("it has a buffer"), "{told}");
}
