//! Members without space, behind real NBD servers: the array goes on without those that it can spare, says why it refuses writes
//! otherwise, and goes on by itself when there is room again.

use crate::harness;
use crate::harness::Place;
use crate::harness::steps::{URI, good, has, refused, status, stop, wait_until};

const MEMBERS: [&str; 3] = ["a.img", "b.img", "c.img"];

/// Serves each image by a server that finds no space while the file `full-IMAGE` exists.
fn serve_images(place: &Place) -> Vec<String> {
    let folder = place.path("");
    let folder = folder.trim_end_matches('/');
    for image in MEMBERS {
        good(place.shell(&format!(
            "nbdkit -U {image}.sock -P {image}.pid --filter=error file {image} error=ENOSPC \
             error-pwrite-rate=100% error-zero-rate=100% error-file=$PWD/full-{image}"
        )));
    }
    let uri = |image: &&str| format!("nbd+unix:///?socket={folder}/{image}.sock");
    MEMBERS.iter().map(uri).collect()
}

/// One chunk at most: of a longer write that is cut short on a degraded array nothing tells what the missing member had.
fn writes(place: &Place, at: &str) -> harness::Run {
    place.shell(&format!(
        "qemu-io -f raw -c 'write -P 5 {at} 4k' -c 'read -P 5 {at} 4k' '{URI}' 2>&1"
    ))
}

#[test]
fn an_array_goes_on_without_a_full_member_and_again_when_all_have_room() {
    let place = Place::new("space");
    let test = "an_array_goes_on_without_a_full_member_and_again_when_all_have_room";
    if !has(&place, test, &["nbdkit", "qemu-io", "bash"]) {
        return;
    }
    good(place.create(&MEMBERS, &["--level", "raid5"]));
    let uris = serve_images(&place);
    let members: Vec<&str> = uris.iter().map(String::as_str).collect();
    let daemon = place.serve(&members);
    good(writes(&place, "0"));

    good(place.shell("touch full-a.img"));
    good(writes(&place, "4M"));
    let found = wait_until(&place, |now| now["state"] == "degraded");
    assert!(found["members"][0]["state"] == "failed" && found["members"][0]["full"] == true);
    assert!(found["refuses_writes"].is_null(), "{found}");
    let twice = good(place.run(&["fail", "tank", &uris[0]]));
    assert!(twice.contains("has failed already"), "{twice}");

    good(place.shell("touch full-b.img full-c.img"));
    assert_ne!(writes(&place, "8M").status, 0);
    let found = status(&place);
    assert_eq!(found["state"], "read-only", "{found}");
    let refusal = &found["refuses_writes"];
    assert!(refusal["reason"] == "no-space" && refusal["hint"].is_string());
    let culprits = refusal["members"].as_array().expect("a list");
    assert!(
        culprits
            .iter()
            .any(|one| one == &uris[1] || one == &uris[2]),
        "{refusal}"
    );
    let text = good(place.run(&["status", "tank"]));
    assert!(
        text.starts_with("tank: read-only\n") && text.contains("WRITES ARE REFUSED"),
        "{text}"
    );
    let metrics = good(place.run(&["metrics", "tank"]));
    assert!(metrics.contains("restripe_writes_refused{array=\"tank\",reason=\"no-space\"} 1"));
    assert!(metrics.contains("restripe_writes_refused_by{"), "{metrics}");
    good(place.shell(&format!("qemu-io -r -f raw -c 'read -P 5 4M 4k' '{URI}'")));

    good(place.shell("rm full-a.img full-b.img full-c.img"));
    let tries = || {
        let run = writes(&place, "8M");
        std::thread::sleep(std::time::Duration::from_millis(100));
        run.status == 0
    };
    let goes_on = (0..100).any(|_| tries());
    assert!(goes_on, "without a restart");
    let found = wait_until(&place, |now| now["refuses_writes"].is_null());
    if found["members"][0]["state"] == "failed" {
        good(place.run(&["add", "tank", &uris[0]]));
    }
    wait_until(&place, |now| now["state"] == "healthy");
    for at in ["0", "4M", "8M"] {
        let read = format!("qemu-io -r -f raw -c 'read -P 5 {at} 4k' '{URI}' 2>&1");
        let told = good(place.shell(&read));
        assert!(!told.contains("verification failed"), "{told}");
    }
    stop(&place, &daemon);
    good(place.shell("for pid in *.pid; do kill $(cat $pid); done"));
}

/// Also a start names the members without space. Once they have room it serves, and nothing is lost.
#[test]
fn a_start_without_space_names_the_members_and_its_way_out_works() {
    let place = Place::new("space-start");
    let test = "a_start_without_space_names_the_members_and_its_way_out_works";
    if !has(&place, test, &["nbdkit", "qemu-io", "bash"]) {
        return;
    }
    good(place.create(&MEMBERS, &["--level", "raid5"]));
    let uris = serve_images(&place);
    let members: Vec<&str> = uris.iter().map(String::as_str).collect();
    let daemon = place.serve(&members);
    good(writes(&place, "0"));
    daemon.kill();
    good(place.shell("touch full-a.img full-b.img"));
    let assemble = [&["assemble"][..], &members].concat();
    let told = refused(place.run(&assemble));
    assert!(told.contains("no space is left on a member"), "{told}");
    assert!(
        told.contains("a.img.sock") || told.contains("b.img.sock"),
        "{told}"
    );
    assert!(
        told.contains("free space on its file system, then retry"),
        "{told}"
    );
    good(place.shell("rm full-a.img full-b.img"));
    good(place.run(&assemble));
    let daemon = place.serve(&members);
    let read = format!("qemu-io -r -f raw -c 'read -P 5 0 4k' '{URI}' 2>&1");
    let read = good(place.shell(&read));
    assert!(!read.contains("verification failed"), "{read}");
    stop(&place, &daemon);
    good(place.shell("for pid in *.pid; do kill $(cat $pid); done"));
}
