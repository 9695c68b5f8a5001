//! One daemon serves an array, and no array is beneath itself: with real NBD servers and several daemons.

use crate::harness::steps::has;
use crate::harness::{Daemon, Place, skipped};
use std::process::Stdio;

/// Image files behind exports that any number of clients may attach to.
struct Exports {
    place: Place,
    uris: Vec<String>,
    _servers: Vec<Daemon>,
}

fn exports(test: &str) -> Option<Exports> {
    let place = Place::new(test);
    if !has(&place, test, &["nbdkit", "unshare"]) {
        return None;
    }
    let (mut uris, mut servers) = (Vec::new(), Vec::new());
    for number in 0..3 {
        let made = place.shell(&format!("truncate -s 64M m{number}"));
        assert_eq!(made.status, 0, "{}", made.stderr);
        let script = format!("exec nbdkit -f -U $PWD/m{number}.sock file m{number}");
        let child = place.script(&script).stdout(Stdio::null()).spawn();
        servers.push(Daemon::of(child.expect("nbdkit runs")));
        let ready = format!(
            "for i in $(seq 500); do [ -S m{number}.sock ] && exit; sleep .02; done; exit 1"
        );
        assert_eq!(place.shell(&ready).status, 0, "nbdkit serves");
        uris.push(format!(
            "nbd+unix:///?socket={}",
            place.path(&format!("m{number}.sock"))
        ));
    }
    Some(Exports {
        place,
        uris,
        _servers: servers,
    })
}

impl Exports {
    fn members(&self) -> Vec<&str> {
        self.uris.iter().map(String::as_str).collect()
    }

    fn create(&self) {
        let options = ["create", "tank", "--level", "raid5"];
        let made = self.place.run(&[&options[..], &self.members()].concat());
        assert_eq!(made.status, 0, "{}", made.stderr);
    }

    /// What a start says with a runtime folder of its own, behind `before`.
    fn second(&self, before: &str) -> (i32, String) {
        self.second_with(before, "")
    }

    fn second_with(&self, before: &str, option: &str) -> (i32, String) {
        let members: Vec<String> = self.uris.iter().map(|uri| format!("'{uri}'")).collect();
        let serve = format!(
            "mkdir -m 700 -p r2; XDG_RUNTIME_DIR=$PWD/r2 {before} timeout 60 restripe assemble {option} {}",
            members.join(" ")
        );
        let run = self.place.shell(&serve);
        (run.status, run.stderr)
    }
}

#[test]
fn second_daemon_of_this_host_is_refused_and_names_the_first() {
    let Some(exports) = exports("owner-here") else {
        return;
    };
    exports.create();
    let daemon = exports.place.serve(&exports.members());
    let (code, said) = exports.second("");
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("is served by the process"), "{said}");
    assert!(said.contains("--force-owner"), "{said}");
    daemon.kill();
    let (code, said) = exports.second("");
    assert_eq!(code, 0, "the first has ended: {said}");
}

/// In a pid namespace of its own, as in a container or on another host, nothing is known of the first but its record.
#[test]
fn second_daemon_elsewhere_sees_the_record_renewed_and_is_refused() {
    let Some(exports) = exports("owner-far") else {
        return;
    };
    if exports.place.shell("unshare --pid --fork true").status != 0 {
        return skipped("owner-far", "no pid namespace can be made");
    }
    exports.create();
    let daemon = exports.place.serve(&exports.members());
    let (code, said) = exports.second("unshare --pid --fork --mount-proc");
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("it renews its owner record"), "{said}");
    daemon.terminate();
    assert_eq!(daemon.wait(), 0);
    let (code, said) = exports.second("unshare --pid --fork --mount-proc");
    assert_eq!(code, 0, "it was stopped: {said}");
}

/// A daemon that stood still, as in a suspended machine, while another one took the array over.
#[test]
fn first_daemon_that_goes_on_after_a_takeover_writes_nothing() {
    let Some(exports) = exports("owner-paused") else {
        return;
    };
    let place = &exports.place;
    let tools = "command -v qemu-io && unshare --pid --fork true";
    if place.shell(tools).status != 0 {
        return skipped("owner-paused", "no qemu-io or pid namespaces");
    }
    exports.create();
    let daemon = place.serve(&exports.members());
    let write = "qemu-io -f raw -c 'write -P 7 0 64k' 'nbd+unix:///?socket=nbd.sock'";
    assert_eq!(place.shell(write).status, 0, "it serves");
    daemon.signal("STOP");
    let (code, said) = exports.second("unshare --pid --fork --mount-proc");
    assert_eq!(code, 0, "the first shows no life: {said}");
    let images = || ["m0", "m1", "m2"].map(|image| place.bytes(image));
    let taken_over = images();
    daemon.signal("CONT");
    let late = place.shell(&write.replace("-P 7", "-P 9"));
    assert_ne!(late.status, 0, "{}", late.stdout);
    assert!(images() == taken_over, "the former daemon wrote");
}

/// Also with `--force`: the daemon that has it would write on.
#[test]
fn member_in_use_elsewhere_is_not_overwritten() {
    let Some(exports) = exports("owner-kept") else {
        return;
    };
    let place = &exports.place;
    exports.create();
    let daemon = place.serve(&exports.members());
    let images = ["x0.img", "x1.img"];
    let options = ["create", "other", "--level", "raid1", "--image-size", "32M"];
    assert_eq!(place.run(&[&options[..], &images].concat()).status, 0);
    let _other = place.await_service(&mut place.command(&[
        "serve",
        "--unix",
        "other.nbd",
        images[0],
        images[1],
    ]));
    let uri = &exports.uris[0];
    let (two, force) = (&exports.members()[..2], ["--force", "--yes"]);
    let create = ["create", "new", "--level", "raid1"];
    for verb in [
        [&create[..], &force, two].concat(),
        [&["add", "other", uri][..], &force].concat(),
        [&["replace", "other", images[0], uri][..], &force].concat(),
        [&["surrogate", "add", "other", uri][..], &force].concat(),
    ] {
        let refused = place.run(&verb);
        assert_eq!(refused.status, 1, "{verb:?}: {}", refused.stdout);
        let says = "it is a member of the array \"tank\"";
        assert!(
            refused.stderr.contains(says),
            "{verb:?}: {}",
            refused.stderr
        );
    }
    let far = "unshare --pid --fork --mount-proc";
    if place.shell(&format!("{far} true")).status != 0 {
        skipped("owner-kept", "no pid namespace can be made");
    } else {
        let names = format!("'{}' '{}'", two[0], two[1]);
        let create = format!("{far} restripe create new --level raid1 --force --yes {names}");
        let refused = place.shell(&create);
        assert_eq!(refused.status, 1, "{}", refused.stdout);
        assert!(refused.stderr.contains("elsewhere"), "{}", refused.stderr);
    }
    daemon.terminate();
    assert_eq!(daemon.wait(), 0, "nothing was taken from it");
    let taken = place.run(&[&create[..], &force, two].concat());
    assert_eq!(taken.status, 0, "it has stopped: {}", taken.stderr);
}

/// A member that failed here, and that another daemon has taken since, is no more to be overwritten than one that was never here.
#[test]
fn failed_member_that_another_array_took_is_not_overwritten() {
    let test = "owner-taken";
    let Some(exports) = exports(test) else {
        return;
    };
    let place = &exports.place;
    let far = "unshare --pid --fork --mount-proc";
    if place.shell(&format!("{far} true")).status != 0 {
        return skipped(test, "no pid namespace can be made");
    }
    exports.create();
    let _daemon = place.serve(&exports.members());
    let uri = &exports.uris[0];
    assert_eq!(place.run(&["fail", "tank", uri, "--yes"]).status, 0);
    let create = "restripe create new --level raid0 --init assume-clean --force --yes";
    let taken = place.shell(&format!("{far} {create} '{uri}'"));
    assert_eq!(taken.status, 0, "it is renewed no more: {}", taken.stderr);
    let serve = format!(
        "mkdir -m 700 r2; export XDG_RUNTIME_DIR=$PWD/r2; exec {far} --kill-child restripe serve --unix new.nbd '{uri}'"
    );
    let _other = place.await_service(&mut place.script(&serve));
    let force = ["--force", "--yes"];
    for verb in [
        [&["add", "tank", uri][..], &force].concat(),
        [&["replace", "tank", &exports.uris[1], uri][..], &force].concat(),
    ] {
        let refused = place.run(&verb);
        assert_eq!(refused.status, 1, "{verb:?}: {}", refused.stdout);
        assert!(refused.stderr.contains("elsewhere"), "{}", refused.stderr);
    }
}

/// A disk by two paths is no mirror.
#[test]
fn one_disk_by_two_paths_is_one_member_at_most() {
    let Some(exports) = exports("owner-paths") else {
        return;
    };
    let place = &exports.place;
    let second = "nbdkit -U $PWD/second.sock -P $PWD/second.pid file m0 && echo started";
    assert_eq!(place.shell(second).status, 0);
    let second = format!("nbd+unix:///?socket={}", place.path("second.sock"));
    let both = [
        "create",
        "twice",
        "--level",
        "raid1",
        &exports.uris[0],
        &second,
    ];
    let refused = place.run(&both);
    assert_eq!(refused.status, 1, "{}", refused.stdout);
    assert!(refused.stderr.contains("second path"), "{}", refused.stderr);
    let options = ["create", "tank", "--level", "raid5", "--force", "--yes"];
    let made = place.run(&[&options[..], &exports.members()].concat());
    assert_eq!(made.status, 0, "{}", made.stderr);
    let _daemon = place.serve(&exports.members());
    for verb in [
        &["add", "tank", &second, "--force", "--yes"][..],
        &[
            "replace",
            "tank",
            &exports.uris[1],
            &second,
            "--force",
            "--yes",
        ],
    ] {
        let refused = place.run(verb);
        assert_eq!(refused.status, 1, "{verb:?}: {}", refused.stdout);
        assert!(
            refused.stderr.contains("second path"),
            "{verb:?}: {}",
            refused.stderr
        );
    }
    place.shell("kill $(cat second.pid)");
}

/// It never looks at the superblocks, and would not stop.
#[test]
fn daemon_that_locks_its_members_is_not_taken_over() {
    let Some(exports) = exports("owner-locks") else {
        return;
    };
    exports.create();
    let daemon = exports.place.serve(&["m0", "m1", "m2"]);
    for force in ["", "--force-owner"] {
        let (code, said) = exports.second_with("", force);
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("is served by the process"), "{said}");
        assert!(said.contains("stop that daemon: it guards"), "{said}");
    }
    daemon.kill();
    let (code, said) = exports.second("");
    assert_eq!(code, 0, "the first has ended: {said}");
}

#[test]
fn array_takes_no_export_that_it_feeds() {
    let place = Place::new("cycle");
    // An export of the larger one is large enough for the smaller.
    for (name, size) in [("large", "256M"), ("small", "64M")] {
        let images = ["0", "1"].map(|number| format!("{name}{number}.img"));
        let images: Vec<&str> = images.iter().map(String::as_str).collect();
        let options = ["create", name, "--level", "raid1", "--image-size", size];
        assert_eq!(place.run(&[&options[..], &images].concat()).status, 0);
    }
    let a = place.await_service(&mut place.command(&[
        "serve",
        "--unix",
        "large.nbd",
        "large0.img",
        "large1.img",
    ]));
    let b = place.await_service(&mut place.command(&[
        "serve",
        "--unix",
        "small.nbd",
        "small0.img",
        "small1.img",
    ]));
    let uri = |name: &str| {
        format!(
            "nbd+unix:///{name}?socket={}",
            place.path(&format!("{name}.nbd"))
        )
    };
    let own = place.run(&["add", "large", &uri("large"), "--force", "--yes"]);
    assert_eq!(own.status, 1);
    assert!(
        own.stderr.contains("export of the array \"large\" itself"),
        "{}",
        own.stderr
    );
    let fed = place.run(&["add", "small", &uri("large"), "--force", "--yes"]);
    assert_eq!(fed.status, 0, "{}", fed.stderr);
    for verb in ["add", "replace"] {
        let name = uri("small");
        let old: &[&str] = if verb == "replace" {
            &["large0.img"]
        } else {
            &[]
        };
        let ring =
            place.run(&[&[verb, "large"], old, &[name.as_str(), "--force", "--yes"]].concat());
        assert_eq!(ring.status, 1, "{verb}: {}", ring.stdout);
        assert!(
            ring.stderr.contains("this export depends on"),
            "{}",
            ring.stderr
        );
    }
    for daemon in [b, a] {
        daemon.terminate();
        assert_eq!(daemon.wait(), 0);
    }
}
