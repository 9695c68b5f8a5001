//! Skewed arrays (S2-RAID), by the command alone: made with groups and partitions, told as such, rebuilt whole.

use crate::harness::steps::{content, good, has, refused, status};
use crate::harness::{Place, Run};
use serde_json::Value;

fn images(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("d{number}.img")).collect()
}

fn with<'a>(words: &[&'a str], members: &'a [String]) -> Vec<&'a str> {
    let members = members.iter().map(String::as_str);
    words.iter().copied().chain(members).collect()
}

/// Options, and so many new images for members.
fn create(place: &Place, options: &[&str], count: usize) -> Run {
    let start = ["create", "tank", "--image-size", "64M"];
    place.run(&with(&[&start[..], options].concat(), &images(count)))
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("it is JSON")
}

#[test]
fn groups_and_partitions_are_told() {
    let place = Place::new("skewed-told");
    let made = good(create(&place, &["--level", "5", "--groups", "3"], 9));
    let words = "RAID-5 left-symmetric, 9 members, 3 groups of 3, 3 partitions, chunk 64K, ";
    assert!(
        made.starts_with(&format!("created tank: {words}")),
        "{made}"
    );
    let all = images(9);
    let offline = good(place.run(&with(&["status", "--offline"], &all)));
    assert!(
        offline.contains("raid5 left-symmetric, 9 slots, 3 groups of 3, 3 partitions, chunk 64K"),
        "{offline}"
    );
    let offline = json(&good(
        place.run(&with(&["status", "--json", "--offline"], &all)),
    ));
    assert_eq!(
        (&offline["groups"], &offline["partitions"]),
        (&3.into(), &3.into())
    );
    let examined = good(place.run(&["examine", "d4.img"]));
    assert!(
        examined.contains("9 slots, 3 groups of 3, 3 partitions, chunk 64K"),
        "{examined}"
    );
    let examined = json(&good(place.run(&["examine", "--json", "d4.img"])));
    assert_eq!(examined[0]["array"]["partitions"], 3);
    let again = ["--level", "5", "--groups", "3", "--partitions", "1"];
    let again = [&again[..], &["--json", "--force", "--yes"]].concat();
    let made = json(&good(create(&place, &again, 9)));
    assert_eq!(
        (&made["groups"], &made["partitions"]),
        (&3.into(), &1.into())
    );
    let one = good(place.run(&["examine", "d0.img"]));
    assert!(one.contains("3 groups of 3, 1 partition, chunk"), "{one}");
}

/// An array that is not skewed says nothing of it.
#[test]
fn a_plain_array_has_no_groups() {
    let place = Place::new("skewed-not");
    let made = json(&good(create(&place, &["--level", "5", "--json"], 3)));
    assert!(made.get("groups").is_none(), "{made}");
    let offline = with(&["status", "--json", "--offline"], &images(3)).join(" ");
    let offline = json(&good(place.shell(&format!("restripe {offline}"))));
    assert!(offline.get("groups").is_none() && offline.get("partitions").is_none());
}

#[test]
fn a_configuration_file_has_groups() {
    let place = Place::new("skewed-config");
    let text = "[[array]]\nname='tank'\nlevel='raid6'\ngroups=4\npartitions=5\nimage-size='64M'\n";
    let members: Vec<String> = images(21).iter().map(|name| format!("{name:?}")).collect();
    let text = format!("{text}spares=1\nmembers=[{}]\n", members.join(","));
    place.write("tank.toml", 0, 0, text.as_bytes());
    let made = good(place.run(&["create", "--config", "tank.toml"]));
    assert!(
        made.contains("RAID-6 left-symmetric, 21 members, 4 groups of 5, 5 partitions"),
        "{made}"
    );
}

#[test]
fn groupings_that_do_not_work_are_refused_with_those_that_do() {
    let place = Place::new("skewed-refused");
    for (options, count, words) in [
        (
            &["--level", "5", "--groups", "3"][..],
            8,
            "8 members do not make 3 groups of one size; these work: 9 members as 3 x 3 with up to 3",
        ),
        (
            &["--level", "5", "--groups", "3", "--partitions", "4"],
            9,
            "3 at most; these work: 9 members as 3 x 3",
        ),
        (
            &["--level", "6", "--groups", "3"],
            9,
            "3 groups are too few",
        ),
        (
            &["--level", "5", "--groups", "1"],
            9,
            "1 group is too few: a row has a cell in each, and this level needs 2 or more; these work: 9 members as 3 x 3 \
             with up to 3",
        ),
        (
            &["--level", "5", "--groups", "9"],
            9,
            "9 groups of 1 member: each group needs at least 2 members; these work: 9 members as 3 x 3 with up to 3",
        ),
        (
            &["--level", "10", "--groups", "3"],
            9,
            "3 groups for 2 copies",
        ),
        (
            &["--level", "0", "--groups", "3"],
            9,
            "RAID-0 has no groups: levels 5, 6 and 10 have",
        ),
        (&["--level", "5"], 33, "33 members are too many"),
        (&["--level", "5", "--groups", "5"], 65, "at most 64 members"),
    ] {
        let told = refused(create(&place, options, count));
        assert!(told.contains(words), "{options:?}: {told}");
        assert!(!place.exists("d0.img"), "{options:?} left an image");
    }
    let alone = create(&place, &["--level", "5", "--partitions", "3"], 9);
    assert_eq!(alone.status, 2, "{}", alone.stderr);
    assert!(alone.stderr.contains("--groups"), "{}", alone.stderr);
}

/// Groups that rebuild in one stream only are made where that is asked for, and not by default.
#[test]
fn one_partition_has_to_be_asked_for() {
    let place = Place::new("skewed-one");
    let groups = ["--level", "5", "--groups", "4"];
    let told = refused(create(&place, &groups, 8));
    assert!(
        told.contains("1 at most; these work: 16 members as 4 x 4 with up to 2 partitions")
            && told.contains("hint: --partitions 1 "),
        "{told}"
    );
    let made = good(create(
        &place,
        &[&groups[..], &["--partitions", "1"]].concat(),
        8,
    ));
    assert!(made.contains("4 groups of 2, 1 partition, "), "{made}");
}

/// Every place of the array has bytes of its own.
fn distinct_bytes(length: u64) -> Vec<u8> {
    let word = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (1..=length / 8).flat_map(word).collect()
}

/// Made, filled, short of a member, and whole again on another one: what users read is the same throughout.
fn lives_through_a_loss(name: &str, options: &[&str], count: usize, shape: &str) {
    let place = Place::new(name);
    if !has(&place, name, &["nbdcopy"]) {
        return;
    }
    let sized = [options, &["--size-per-member", "6M"]].concat();
    good(create(&place, &sized, count));
    let members = images(count);
    let daemon = place.serve(&with(&[], &members));
    let found = status(&place);
    let size = found["size_bytes"].as_u64().expect("a size");
    let whole = distinct_bytes(size);
    place.write("whole.raw", size, 0, &whole);
    good(place.shell("nbdcopy whole.raw 'nbd+unix:///?socket=nbd.sock'"));
    good(place.run(&["fail", "tank", "d4.img"]));
    assert!(content(&place, "degraded.raw") == whole, "read without it");
    place.write("new.img", 64 << 20, 0, &[]);
    good(place.run(&["add", "tank", "new.img"]));
    good(place.run(&["rebuild", "tank"]));
    let text = good(place.run(&["status", "tank"]));
    assert!(
        text.starts_with("tank: healthy") && text.contains(shape),
        "{text}"
    );
    let scrubbed = good(place.run(&["scrub", "tank"]));
    assert!(scrubbed.contains("every row agrees"), "{scrubbed}");
    // Only the new member and one other have what stands on this one.
    good(place.run(&["fail", "tank", "d0.img"]));
    assert!(
        content(&place, "again.raw") == whole,
        "read from the new one"
    );
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn nine_members_as_three_groups_are_rebuilt_whole() {
    let options = ["--level", "5", "--groups", "3"];
    let shape = "9 slots, 3 groups of 3, 3 partitions";
    lives_through_a_loss("skewed-3x3", &options, 9, shape);
}

#[test]
fn skewed_mirrors_of_eight_members_are_rebuilt_whole() {
    let options = ["--level", "10", "--groups", "2"];
    let shape = "8 slots, 2 groups of 4, 4 partitions";
    lives_through_a_loss("skewed-mirrors", &options, 8, shape);
}

/// Whole again before anybody has brought a spare, and home on it afterwards.
#[test]
fn a_lost_member_is_hosted_until_there_is_a_spare() {
    let place = Place::new("skewed-hosts");
    let alone = create(&place, &["--level", "5", "--spare-partitions", "2"], 4);
    assert!(alone.stderr.contains("give groups"), "{}", alone.stderr);
    let options = ["--level", "5", "--groups", "3", "--spare-partitions", "2"];
    let sized = [&options[..], &["--size-per-member", "6M"]].concat();
    good(create(&place, &sized, 9));
    let daemon = place.serve(&images(9).iter().map(String::as_str).collect::<Vec<_>>());
    good(place.run(&["fail", "tank", "d4.img"]));
    good(place.run(&["rebuild", "tank"]));
    let text = good(place.run(&["status", "tank"]));
    assert!(
        text.starts_with("tank: healthy") && text.contains("d3.img hosts 4/0 4/2"),
        "{text}"
    );
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
    let examined = good(place.run(&["examine", "d3.img"]));
    assert!(
        examined.contains("slot 3, hosts 4/0, hosts 4/2"),
        "{examined}"
    );
    // The failed one is not named: nothing of the array is on it any more.
    let others: Vec<String> = images(9)
        .into_iter()
        .filter(|name| name != "d4.img")
        .collect();
    let daemon = place.serve(&with(&["--no-copy-back"], &others));
    place.write("new.img", 64 << 20, 0, &[]);
    good(place.run(&["add", "tank", "new.img"]));
    good(place.run(&["rebuild", "tank"]));
    let text = good(place.run(&["status", "tank"]));
    let hosts = text.lines().filter(|line| line.contains(".img hosts 4/"));
    assert_eq!(hosts.count(), 3, "it stays, spread over three: {text}");
    good(place.run(&["rebuild", "tank", "--copy-back"]));
    good(place.run(&["rebuild", "tank"]));
    let text = good(place.run(&["status", "tank"]));
    assert!(
        text.starts_with("tank: healthy") && !text.contains("hosts 4/"),
        "{text}"
    );
    let scrubbed = good(place.run(&["scrub", "tank"]));
    assert!(scrubbed.contains("every row agrees"), "{scrubbed}");
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
}

// ---------------------------------------------------------------------------------------------------- in simulation

#[test]
fn a_replay_runs_a_skewed_array_through_its_rebuild() {
    let place = Place::new("skewed-replay");
    let line = "replay --workload noise --requests 3000 --members 9 --groups 3 --member-size 64M \
                --fail-after 1s --rebuild-after 1s --json log.json";
    let told = good(place.run(&line.split_whitespace().collect::<Vec<_>>()));
    assert!(
        told.contains("raid5, 9 members, 3 groups of 3, 3 partitions, 64 MiB used"),
        "{told}"
    );
    let log = json(&good(place.shell("cat log.json")));
    let phases = log["phases"].as_array().expect("phases");
    let whole = phases.iter().all(|phase| phase["failed"] == 0);
    assert!(phases.len() == 4 && whole, "{:?}", log["happened"]);
    let (done, all) = (&log["rebuild"]["rows_done"], &log["rebuild"]["rows_total"]);
    assert_eq!(done, all);
    // 1024 chunks are three partitions of 341, each of three sub-arrays with as many stripes.
    assert_eq!(all, 3 * 3 * 341);
    let line = "replay --workload noise --members 8 --groups 3";
    let run = place.run(&line.split(' ').collect::<Vec<_>>());
    assert_eq!(run.status, 2, "{}", run.stderr);
    assert!(run.stderr.contains("9 members as 3 x 3"), "{}", run.stderr);
}
