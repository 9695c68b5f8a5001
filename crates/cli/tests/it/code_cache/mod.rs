//! Arrays of mirrors whose writes all go into a code cache (RERAID), by the command alone: killed, without two disks or three, and
//! with a file system.

mod buffer;
mod damage;
mod sleep;
mod space;

use crate::harness::steps::{
    Fio, URI, comes_home, content, good, has, number, overlay, read_pattern, refused,
    serve_sleepers, status, stop, wait_until, write_pattern,
};
use crate::harness::{Daemon, Place, Run};
use serde_json::Value;

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

fn with_buffer(name: &str, buffer: &[&str]) -> Place {
    let place = Place::new(name);
    good(create(&place, &CACHE, &["--nvram", &buffer.join(",")]));
    place
}

fn buffer_of(status: &Value, what: &str) -> u64 {
    number(&status["surrogate"]["buffer"][what])
}

/// What lies in the log comes home when asked, by a destage.
fn is_destaged(place: &Place) {
    let found = comes_home(place);
    assert!(overlay(&found, "destages") > 0, "{found}");
}

fn flushed(place: &Place, pattern: u8, at: &str, length: &str) {
    let write = format!("write -P {pattern} {at} {length}");
    good(place.shell(&format!("qemu-io -f raw -c '{write}' -c flush '{URI}'")));
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
    assert!(mirrors.stderr.contains("raid5, raid6, or rs3 to rs8"));
    assert_eq!(create(&[]).status, 2);
    let parity = ["--level", "raid5", "--surrogate", "d,e,f", "--code-cache"];
    let parity = place.create(&["a", "b", "c"], &parity);
    assert_eq!(parity.status, 2, "{}", parity.stderr);
    assert!(
        parity.stderr.contains("requires raid1 or raid10"),
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
        refused.stderr.contains("written in whole rows"),
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
    let document = include_str!("../../../../../docs/how-to/code-cache.md");
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
    assert!(shown.contains("in standby") && shown.contains("wake a1\n"));
    assert!(run.stdout.contains(shown), "{shown} in\n{}", run.stdout);
}

#[test]
fn only_a_log_that_takes_every_write_is_destaged() {
    let place = Place::new("code-cache-none");
    good(place.create(&["a", "b"], &["--level", "raid1", "--surrogate", "c,d"]));
    let words = ["serve", "--unix", "nbd.sock", "a", "b", "c", "d"];
    let daemon = place.await_service(&mut place.command(&words));
    let told = refused(place.run(&["surrogate", "destage", "tank"]));
    assert!(told.contains("destaged automatically"), "{told}");
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
    assert_eq!(told, "destage complete\n");
    assert_eq!(overlay(&status(&place), "away_bytes"), 0);
    write_pattern(&place, 0xa5, "1M", "4M");
    stop(&place, &daemon);
    let told = good(place.run(&offline));
    assert_eq!(told, "destage complete\n");
    let look = [&["surrogate", "status", "tank", "--offline"], &members[..]].concat();
    let told = good(place.run(&look));
    assert!(!told.contains("in log"), "{told}");
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
    assert!(wrong.stderr.contains("use 1M to 1G"), "{}", wrong.stderr);
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
    refusal("ca only as a stale copy");
    good(place.shell("cp before/c[abcd] ."));
    refusal("misses the array's last start");
    good(place.run(&[&["assemble", "--accept-loss"][..], &all].concat()));
    let daemon = serve(&place, &[], &[]);
    for pattern in [0, 1, 2] {
        refused(read_pattern(&place, pattern, "0", "64K"));
    }
    stop(&place, &daemon);
    good(place.shell("cp now/* . && cp before/[abcd][01] ."));
    refusal("a stale copy");
    let daemon = serve(&place, &["--from-minority"], &[]);
    good(read_pattern(&place, 2, "0", "1M"));
    stop(&place, &daemon);
    good(place.shell("cp now/* ."));
    let daemon = serve(&place, &[], &[]);
    good(read_pattern(&place, 2, "0", "1M"));
    stop(&place, &daemon);
}
