//! What an export promises its clients is no more than what its members keep: durable writes on file systems that
//! drop the flag for them, members that make nothing durable, and members whose server goes, hangs and comes back. What
//! an end achieved is what it says.

use crate::harness::steps::{good, has, refused, status, wait_until};
use crate::harness::{Daemon, Place, skipped};
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

/// An NBD server on a socket of this name, over an image of this name or with a plugin's arguments.
struct Far<'a> {
    place: &'a Place,
    name: &'a str,
}

impl Far<'_> {
    fn uri(&self) -> String {
        let socket = self.place.path(&format!("{}.sock", self.name));
        format!("nbd+unix:///?socket={socket}")
    }

    /// Starts it, and returns when it accepts connections.
    fn serve(&self, arguments: &[&str]) -> Daemon {
        let socket = self.place.path(&format!("{}.sock", self.name));
        let _ = fs::remove_file(&socket);
        let mut server = Command::new("nbdkit");
        server.args(["-f", "-U", &socket]).args(arguments);
        let server = Daemon::of(server.spawn().expect("it runs"));
        let wait = format!(
            "timeout 60 sh -c 'until [ -S {}.sock ]; do sleep 0.05; done'",
            self.name
        );
        good(self.place.shell(&wait));
        server
    }

    /// With an image of 64 MiB that outlives the server.
    fn serve_image(&self) -> Daemon {
        let image = self.place.path(&format!("{}.img", self.name));
        self.place
            .write(&format!("{}.img", self.name), 64 << 20, 0, &[]);
        self.serve(&["file", &image])
    }

    /// With neither FLUSH nor FUA, as nbd-server offers by default.
    fn serve_volatile(&self) -> Daemon {
        self.serve_eval(&[])
    }

    /// With what these scripts do beside reading and writing an image of 64 MiB.
    fn serve_eval(&self, more: &[&str]) -> Daemon {
        let image = self.place.path(&format!("{}.img", self.name));
        self.place
            .write(&format!("{}.img", self.name), 64 << 20, 0, &[]);
        let pread = format!(
            "pread=dd if={image} skip=$4 count=$3 iflag=count_bytes,skip_bytes status=none"
        );
        let pwrite =
            format!("pwrite=dd of={image} seek=$4 conv=notrunc oflag=seek_bytes status=none");
        let size = "get_size=echo 67108864";
        let plain = ["eval", size, "can_write=exit 0", &pread, &pwrite];
        self.serve(&[&plain[..], more].concat())
    }
}

/// What our own export offers, by nbdinfo.
fn offers(place: &Place) -> [bool; 2] {
    let info = good(place.shell("nbdinfo 'nbd+unix:///?socket=nbd.sock'"));
    ["can_flush", "can_fua"].map(|what| info.contains(&format!("{what}: true")))
}

// ------------------------------------------------------------------------------------------ durable writes on FUSE

/// A file system of one file `nbd`, which logs what reaches its medium.
struct Fuse<'a> {
    place: &'a Place,
    name: &'a str,
    _server: Daemon,
    mount: Daemon,
}

impl<'a> Fuse<'a> {
    fn mount(place: &'a Place, name: &'a str) -> Fuse<'a> {
        let far = Far { place, name };
        let log = format!("logfile={}", place.path(&format!("{name}.log")));
        let server = far.serve(&["--filter=log", "memory", "64M", &log]);
        fs::create_dir(place.path(name)).expect("a fresh folder");
        let mut mount = Command::new("nbdfuse");
        mount.args([&place.path(name), &far.uri()]);
        let mount = Daemon::of(mount.spawn().expect("it runs"));
        let wait = format!("timeout 60 sh -c 'until [ -f {name}/nbd ]; do sleep 0.05; done'");
        good(place.shell(&wait));
        Fuse {
            place,
            name,
            _server: server,
            mount,
        }
    }

    fn flushes(&self) -> usize {
        let log = self.place.bytes(&format!("{}.log", self.name));
        String::from_utf8_lossy(&log).matches(" Flush ").count()
    }
}

impl Drop for Fuse<'_> {
    fn drop(&mut self) {
        self.place.shell(&format!("umount -l {}", self.name));
        self.mount.kill();
    }
}

#[test]
fn durable_writes_reach_the_medium_of_fuse_members_with_both_backends() {
    let test = "durable_writes_reach_the_medium_of_fuse_members_with_both_backends";
    let place = Place::new("fuse");
    if !has(&place, test, &["nbdkit", "nbdfuse", "qemu-io", "umount"]) {
        return;
    }
    if !Path::new("/dev/fuse").exists() || place.shell("[ $(id -u) = 0 ]").status != 0 {
        return skipped(test, "no /dev/fuse, or not root");
    }
    let fuses = ["x", "y"].map(|name| Fuse::mount(&place, name));
    let members = ["x/nbd", "y/nbd"];
    good(place.run(&[&["create", "tank", "--level", "raid1"][..], &members].concat()));
    for backend in ["threads", "uring"] {
        let serve = ["serve", "--backend", backend, "--unix", "nbd.sock"];
        let daemon = place.await_service(&mut place.command(&[&serve[..], &members].concat()));
        let before = fuses.each_ref().map(Fuse::flushes);
        let write = "qemu-io -f raw -c 'write -f -P 7 1M 4K' 'nbd+unix:///?socket=nbd.sock'";
        good(place.shell(write));
        for (fuse, before) in fuses.iter().zip(before) {
            assert!(fuse.flushes() > before, "{backend}: {}", fuse.name);
        }
        good(place.run(&["stop", "tank"]));
        assert_eq!(daemon.wait(), 0);
    }
}

// ------------------------------------------------------------------------------------------------ volatile members

#[test]
fn member_without_flush_and_fua_is_refused_unless_allowed_and_then_nothing_is_promised() {
    let test =
        "member_without_flush_and_fua_is_refused_unless_allowed_and_then_nothing_is_promised";
    let place = Place::new("volatile");
    if !has(&place, test, &["nbdkit", "nbdinfo"]) {
        return;
    }
    let far = Far {
        place: &place,
        name: "far",
    };
    let _server = far.serve_volatile();
    let uri = far.uri();
    let create = [
        "create",
        "tank",
        "--level",
        "raid1",
        "--image-size",
        "64M",
        "a.img",
        &uri,
    ];
    let told = refused(place.run(&create));
    assert!(
        told.contains("makes no write durable") && told.contains("--volatile-members"),
        "{told}"
    );
    assert!(
        !place.exists("a.img"),
        "nothing is left of what was refused"
    );
    good(place.run(&[&create[..], &["--volatile-members"]].concat()));
    for verb in [
        &["serve"][..],
        &["assemble"],
        &["scrub", "tank", "--offline"],
    ] {
        let told = refused(place.run(&[verb, &["a.img", &uri]].concat()));
        assert!(told.contains("makes no write durable"), "{verb:?}: {told}");
    }
    let daemon = place.serve(&["--volatile-members", "a.img", &uri]);
    assert_eq!(offers(&place), [false, false]);
    let found = status(&place);
    assert_eq!(found["volatile"], true, "{found}");
    assert_eq!(found["members"][0]["volatile"], false, "{found}");
    assert_eq!(found["members"][1]["volatile"], true, "{found}");
    let told = good(place.run(&["status", "tank"]));
    assert!(
        told.contains("healthy, volatile") && told.contains("VOLATILE: "),
        "{told}"
    );
    let metrics = good(place.run(&["metrics", "tank"]));
    assert!(
        metrics.contains("restripe_volatile{array=\"tank\"} 1"),
        "{metrics}"
    );
    // What the weakest member does not keep is promised again once it is none any more.
    good(place.run(&["fail", "tank", &uri]));
    assert_eq!(offers(&place), [true, true]);
    assert_eq!(status(&place)["volatile"], false);
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn member_without_flush_and_fua_is_not_added_where_flushes_were_promised() {
    let test = "member_without_flush_and_fua_is_not_added_where_flushes_were_promised";
    let place = Place::new("volatile-add");
    if !has(&place, test, &["nbdkit", "nbdinfo"]) {
        return;
    }
    let far = Far {
        place: &place,
        name: "far",
    };
    let _server = far.serve_volatile();
    let uri = far.uri();
    let lends = ["--level", "raid1", "--lend", "16M"];
    good(place.create(&["a.img", "b.img"], &lends));
    let daemon = place.serve(&["a.img", "b.img"]);
    for verb in [
        &["add", "tank", &uri][..],
        &["replace", "tank", "a.img", &uri],
    ] {
        let told = refused(place.run(verb));
        assert!(told.contains("--volatile-members"), "{verb:?}: {told}");
    }
    assert_eq!(offers(&place), [true, true]);
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
    let daemon = place.serve(&["--volatile-members", "a.img", "b.img"]);
    good(place.run(&["lease", "add", "tank", "one", "--size", "8M"]));
    let lease =
        "nbdinfo 'nbd+unix:///lease/tank/one?socket=nbd.sock' | grep -cE 'can_(flush|fua): true'";
    // A client of the array, and one of a lease: each was promised flushes.
    for export in ["", "lease/tank/one"] {
        let client = format!("nbd+unix:///{export}?socket={}", place.path("nbd.sock"));
        let held = far_client(&place, &client);
        let told = refused(place.run(&["add", "tank", &uri]));
        assert!(told.contains("disconnect"), "{told}");
        drop(held);
    }
    let added = || place.run(&["add", "tank", &uri]);
    let added = (0..600).map(|_| added()).find(|run| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        run.status == 0
    });
    good(added.expect("the clients have gone"));
    assert_eq!(offers(&place), [false, false]);
    assert_eq!(
        place.shell(&format!("[ $({lease}) = 0 ]")).status,
        0,
        "nor through a lease"
    );
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
}

/// A client that stays: nbdkit's own, with an export of its own over ours.
fn far_client(place: &Place, uri: &str) -> Daemon {
    let client = Far {
        place,
        name: "client",
    };
    let server = client.serve(&["nbd", &format!("uri={uri}"), "shared=true"]);
    good(place.shell("nbdinfo 'nbd+unix:///?socket=client.sock'"));
    server
}

/// FUA is a write and a flush then.
#[test]
fn member_with_flush_and_without_fua_keeps_what_was_promised() {
    let test = "member_with_flush_and_without_fua_keeps_what_was_promised";
    let place = Place::new("no-fua");
    if !has(&place, test, &["nbdkit", "nbdinfo", "qemu-io"]) {
        return;
    }
    let far = Far {
        place: &place,
        name: "far",
    };
    let log = format!("logfile={}", place.path("far.log"));
    let none = ["--filter=fua", "--filter=log", "memory", "64M", &log];
    let _server = far.serve(&none);
    let uri = far.uri();
    good(place.create(&["a.img", &uri], &["--level", "raid1"]));
    let daemon = place.serve(&["a.img", &uri]);
    assert_eq!(offers(&place), [true, true]);
    let flushes = || {
        let log = place.bytes("far.log");
        String::from_utf8_lossy(&log).matches(" Flush ").count()
    };
    let before = flushes();
    let write = "qemu-io -f raw -c 'write -f -P 7 1M 4K' 'nbd+unix:///?socket=nbd.sock'";
    good(place.shell(write));
    assert!(flushes() > before);
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
}

// ---------------------------------------------------------------------------------------- servers that go and come

/// Politely, it answers every request with ESHUTDOWN for as long as a connection lasts.
#[test]
fn member_whose_server_was_restarted_is_added_back_over_a_new_connection() {
    let test = "member_whose_server_was_restarted_is_added_back_over_a_new_connection";
    let place = Place::new("restarted");
    if !has(&place, test, &["nbdkit", "qemu-io"]) {
        return;
    }
    let (home, log) = (
        Far {
            place: &place,
            name: "home",
        },
        Far {
            place: &place,
            name: "log",
        },
    );
    let (mut home_server, mut log_server) = (home.serve_image(), log.serve_image());
    let surrogate = format!("s.img,{}", log.uri());
    let home_uri = home.uri();
    good(place.create(
        &["a.img", "b.img", &home_uri],
        &[
            "--level",
            "raid5",
            "--init",
            "zero",
            "--surrogate",
            &surrogate,
        ],
    ));
    // Nothing is asked of the log meanwhile, so a question has to find its server gone.
    let daemon = place.serve(&[
        "--probe",
        "200ms",
        "a.img",
        "b.img",
        &home_uri,
        "s.img",
        &log.uri(),
    ]);
    let write = "qemu-io -f raw -c 'write -P 4 0 1M' -c flush 'nbd+unix:///?socket=nbd.sock'";
    for politely in [true, false] {
        for (far, server, of_surrogate) in [
            (&home, &mut home_server, false),
            (&log, &mut log_server, true),
        ] {
            match politely {
                true => server.terminate(),
                false => server.kill(),
            }
            if !of_surrogate {
                good(place.shell(write));
            }
            let sick = |status: &serde_json::Value| match of_surrogate {
                false => status["own_state"] == "degraded",
                true => status["surrogate"]["state"] == "degraded",
            };
            wait_until(&place, sick);
            *server = far.serve_image();
            good(place.run(&["add", "tank", &far.uri()]));
            wait_until(&place, |status| {
                status["state"] == "healthy" && status["surrogate"]["state"] == "healthy"
            });
        }
    }
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
}

// ------------------------------------------------------------------------------------------------- health and ends

/// Nothing is asked of the array meanwhile.
#[test]
fn idle_member_whose_file_was_cut_short_is_failed_and_comes_back() {
    let place = Place::new("cut-short");
    good(place.create(&["a.img", "b.img"], &["--level", "raid1"]));
    let daemon = place.serve(&["--probe", "200ms", "a.img", "b.img"]);
    good(place.shell("truncate -s 1M b.img"));
    wait_until(&place, |status| status["state"] == "degraded");
    good(place.shell("truncate -s 64M b.img"));
    good(place.run(&["add", "tank", "b.img"]));
    wait_until(&place, |status| status["state"] == "healthy");
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
}

/// Nothing is asked of the array meanwhile.
#[test]
fn idle_member_whose_server_hangs_is_failed_within_a_bound() {
    let test = "idle_member_whose_server_hangs_is_failed_within_a_bound";
    let place = Place::new("hangs");
    if !has(&place, test, &["nbdkit"]) {
        return;
    }
    let far = Far {
        place: &place,
        name: "far",
    };
    let server = far.serve_image();
    let uri = far.uri();
    good(place.create(
        &["a.img", &uri],
        &["--level", "raid1", "--init", "assume-clean"],
    ));
    let hurried = ["--probe", "200ms", "--io-timeout", "1s", "a.img", &uri];
    let daemon = place.serve(&hurried);
    server.signal("STOP");
    wait_until(&place, |status| status["state"] == "degraded");
    server.signal("CONT");
    good(place.run(&["add", "tank", &uri]));
    wait_until(&place, |status| status["state"] == "healthy");
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn end_says_which_member_could_not_be_flushed_and_fails() {
    let test = "end_says_which_member_could_not_be_flushed_and_fails";
    let place = Place::new("unflushed");
    if !has(&place, test, &["nbdkit", "qemu-io"]) {
        return;
    }
    let far = Far {
        place: &place,
        name: "far",
    };
    // The daemon flushes of itself, too, some time after writes: the device fails when the end has begun.
    let (broken, log) = (place.path("broken"), place.path("serve.log"));
    let ends = format!("[ -e {broken} ] || grep -qs 'stopping on a signal' {log}");
    let flush = format!("flush=if {ends}; then echo EIO broken >&2; exit 1; fi");
    let _server = far.serve_eval(&["can_flush=exit 0", &flush]);
    let uri = far.uri();
    let members = ["a.img", "b.img", &uri];
    good(place.create(&members, &["--level", "raid5", "--init", "assume-clean"]));
    for by_signal in [false, true] {
        let told = File::create(&log).expect("a folder that can be written");
        let words = [&["serve", "--unix", "nbd.sock", "--degraded"][..], &members].concat();
        let daemon = place.await_service(place.command(&words).stderr(told));
        if by_signal {
            good(place.run(&["add", "tank", &uri]));
        }
        wait_until(&place, |status| status["state"] == "healthy");
        let write = "qemu-io -f raw -c 'write -P 4 0 1M' 'nbd+unix:///?socket=nbd.sock'";
        good(place.shell(write));
        if by_signal {
            daemon.terminate();
        } else {
            place.write("broken", 0, 0, b"x");
            let told = refused(place.run(&["stop", "tank"]));
            assert!(
                told.contains("some members could not") && told.contains(&uri),
                "{told}"
            );
            fs::remove_file(&broken).expect("ours");
        }
        assert_eq!(daemon.wait(), 1, "the daemon says so, too");
    }
    fs::remove_file(&log).expect("ours");
    // The others know, and are whole.
    let daemon = place.serve(&[&["--degraded"][..], &members].concat());
    assert_eq!(status(&place)["state"], "degraded");
    let told = good(place.run(&["stop", "tank"]));
    assert!(told.contains("stopped, degraded"), "{told}");
    assert_eq!(daemon.wait(), 0);
}
