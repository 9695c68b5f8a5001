//! A shelf of disks that goes, and comes back: more members than redundancy bears, one after the other. Nothing that was
//! acknowledged is lost, and the array starts again without being told to accept anything.

use crate::harness::steps::{good, has, read_pattern, refused, status, wait_until, write_pattern};
use crate::harness::{Daemon, Place};

const AT_HAND: [&str; 2] = ["a.img", "b.img"];
const SHELF: [&str; 2] = ["c", "d"];

/// A simulated disk on the shelf; what it holds is in a file.
fn plug_in(place: &Place, name: &str) -> Daemon {
    let (socket, data) = (format!("{name}.sock"), format!("{name}.data"));
    let _ = std::fs::remove_file(place.path(&socket));
    let arguments = ["sim-disk", "ssd-sata", "--size", "64M"];
    let more = ["--unix", &socket, "--file", &data];
    place.await_service(&mut place.command(&[&arguments[..], &more].concat()))
}

fn uri(name: &str) -> String {
    format!("nbd+unix:///?socket={name}.sock")
}

#[test]
fn an_array_serves_again_when_the_shelf_is_back() {
    let place = Place::new("shelf");
    if !has(
        &place,
        "an_array_serves_again_when_the_shelf_is_back",
        &["qemu-io"],
    ) {
        return;
    }
    let shelf = SHELF.map(|name| plug_in(&place, name));
    let exports = SHELF.map(uri);
    let members = [AT_HAND[0], AT_HAND[1], &exports[0], &exports[1]];
    good(place.create(&members, &["--level", "raid5"]));
    let daemon = place.serve(&members);
    write_pattern(&place, 1, "0", "8M");

    shelf[0].kill();
    write_pattern(&place, 2, "8M", "8M");
    assert_eq!(status(&place)["state"], "degraded");

    shelf[1].kill();
    let script = "qemu-io -f raw -c 'write -P 3 0 1M' 'nbd+unix:///?socket=nbd.sock'";
    assert_ne!(place.shell(script).status, 0, "no write is acknowledged");
    let found = wait_until(&place, |status| status["state"] == "failed");
    assert_eq!(found["read_only"], true);
    let told = refused(place.run(&["stop", "tank"]));
    assert!(
        told.contains("too many members") && told.contains("is no longer served"),
        "{told}"
    );
    daemon.wait();

    let _shelf = SHELF.map(|name| plug_in(&place, name));
    let _daemon = place.serve(&members);
    let back = status(&place);
    assert_eq!(
        (&back["state"], &back["read_only"]),
        (&"degraded".into(), &false.into())
    );
    // What was refused may be there or not.
    for (pattern, at, length) in [(1, "1M", "7M"), (2, "8M", "8M")] {
        let read = read_pattern(&place, pattern, at, length);
        assert_eq!(read.status, 0, "{}", read.stdout);
    }
    good(place.run(&["add", "tank", &exports[0]]));
    wait_until(&place, |status| status["state"] == "healthy");
    write_pattern(&place, 4, "0", "1M");
}
