//! `attach` and `detach` where nothing can be attached: no kernel with the module nbd or ublk_drv is needed.
//! With one, tests/md/attached.py and tests/md/ublk.py judge them.

use crate::harness::steps::{good, wait_until};
use crate::harness::{THREE, raid5, skipped};
use serde_json::json;
use std::fs;
use std::path::Path;

#[test]
fn a_kernel_without_the_module_is_named_with_what_loads_it() {
    if Path::new("/sys/module/nbd").exists() {
        return skipped("attach", "this kernel has the module nbd");
    }
    let place = raid5("attach-module");
    let daemon = place.serve(&THREE);
    let refused = place.run(&["attach", "tank"]);
    assert_eq!(refused.status, 1, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("modprobe nbd"),
        "{}",
        refused.stderr
    );
    let status = good(place.run(&["status", "tank", "--json"]));
    assert!(!status.contains("attached"), "{status}");
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn a_kernel_without_ublk_is_named_with_what_loads_it() {
    if Path::new("/dev/ublk-control").exists() {
        return skipped("attach", "this kernel has the module ublk_drv");
    }
    let place = raid5("attach-ublk");
    let daemon = place.serve(&THREE);
    for words in [
        ["attach", "tank", "--ublk"],
        ["attach", "tank", "/dev/ublkb0"],
    ] {
        let refused = place.run(&words);
        assert_eq!(refused.status, 1, "{}", refused.stderr);
        let why = &refused.stderr;
        assert!(why.contains("modprobe ublk_drv"), "{why}");
    }
    let status = good(place.run(&["status", "tank", "--json"]));
    assert!(!status.contains("attached"), "{status}");
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn options_of_the_other_driver_are_refused() {
    let place = raid5("attach-driver");
    let cases = [
        vec!["attach", "tank", "--ublk", "/dev/nbd0"],
        vec!["attach", "tank", "--ublk", "--grace", "5s"],
        vec!["attach", "tank", "/dev/ublkb0", "--timeout", "5s"],
        vec!["attach", "tank", "/dev/ublkb0", "--connections", "2"],
    ];
    for words in cases {
        let refused = place.run(&words);
        assert_eq!(refused.status, 2, "{words:?}: {}", refused.stderr);
    }
}

#[test]
fn a_device_of_neither_driver_is_refused() {
    let place = raid5("attach-device");
    let daemon = place.serve(&THREE);
    for device in ["/dev/null", "sda", "/dev/nbd0p1"] {
        let refused = place.run(&["attach", "tank", device]);
        assert_eq!(refused.status, 1, "{}", refused.stderr);
        assert!(refused.stderr.contains("/dev/nbdN"), "{}", refused.stderr);
    }
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn what_is_not_attached_cannot_be_detached() {
    let place = raid5("detach");
    for served in [false, true] {
        let daemon = served.then(|| place.serve(&THREE));
        for which in ["tank", "/dev/nbd9"] {
            let refused = place.run(&["detach", which]);
            assert_eq!(refused.status, 1, "{}", refused.stderr);
            let why = &refused.stderr;
            assert!(
                why.contains("not attached") || why.contains("no array is attached"),
                "{why}"
            );
        }
        if let Some(daemon) = daemon {
            good(place.run(&["stop", "tank"]));
            assert_eq!(daemon.wait(), 0);
        }
    }
}

/// Its device may be mounted, so `stop` is refused until the record can be read or is gone.
#[test]
fn a_device_that_cannot_be_reconnected_is_shown_retried_and_not_stopped() {
    let place = raid5("attach-unreadable");
    let daemon = place.serve(&THREE);
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
    let record = place.path("restripe/tank.attached");
    fs::write(&record, "{}").expect("the folder is there");
    let daemon = place.serve(&THREE);
    let shown = good(place.run(&["status", "tank"]));
    assert!(
        shown.contains("TROUBLE WITH THE DEVICE: the record"),
        "{shown}"
    );
    let json = good(place.run(&["status", "tank", "--json"]));
    assert!(json.contains("\"trouble\""), "{json}");
    for verb in ["attach", "detach", "stop"] {
        let refused = place.run(&[verb, "tank"]);
        assert_eq!(refused.status, 1, "{verb}");
        assert!(
            refused.stderr.contains("tank.attached"),
            "{}",
            refused.stderr
        );
    }
    assert_eq!(fs::read_to_string(&record).expect("it is kept"), "{}");
    // The record of an earlier boot: nothing is left of that device, and the next look finds that.
    let options = json!({
        "connections": 2, "timeout_seconds": 30, "grace_seconds": 300, "read_only": false, "block_bytes": 4096,
    });
    let old = json!({
        "device": 0, "boot": "x", "backend": "restripe:x", "flags": 1, "options": options,
    });
    let fresh = format!("{record}.fresh");
    fs::write(&fresh, old.to_string()).expect("the folder is there");
    fs::rename(&fresh, &record).expect("the folder is there");
    wait_until(&place, |status| status.get("attached").is_none());
    assert!(!Path::new(&record).exists());
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn an_array_that_is_not_served_cannot_be_attached() {
    let place = raid5("attach-unserved");
    let refused = place.run(&["attach", "tank"]);
    assert_eq!(refused.status, 1);
    assert!(
        refused.stderr.contains("restripe serve"),
        "{}",
        refused.stderr
    );
    for wrong in [
        ["--timeout", "1500ms"],
        ["--connections", "0"],
        ["--connections", "99"],
    ] {
        let [option, value] = wrong;
        let refused = place.run(&["attach", "tank", option, value]);
        assert_eq!(refused.status, 2, "{}", refused.stderr);
    }
}
