//! Other people's initiators against our target: libiscsi's tools, its conformance suite, and qemu's block
//! layer. A tool that is not installed is skipped with a message that counts the skips.

use crate::nbd_clients::array::{Array, command};
use crate::nbd_clients::tools::{installed, run, skip, succeed};
use restripe_array::layout::{Level, Rotation};
use restripe_array::{Command, Fact, TaskKind};
use restripe_io::front::iscsi::chap::Secrets;
use restripe_io::front::iscsi::hub::Target;

const RAID5: Level = Level::Raid5(Rotation::LeftSymmetric);

/// Whether qemu's tools are there, with their driver for iSCSI.
fn qemu(uri: &str) -> bool {
    if !installed(&["qemu-io", "qemu-img"]) {
        return false;
    }
    let found = run("qemu-img", &["info", "-f", "raw", uri]);
    let there = found.status.success();
    if !there {
        let why = String::from_utf8_lossy(&found.stderr);
        assert!(why.contains("Unknown protocol 'iscsi'"), "{why}");
        skip("qemu-block-extra is not installed");
    }
    there
}

#[test]
fn libiscsi_sees_the_target() {
    if !installed(&["iscsi-ls", "iscsi-inq", "iscsi-readcapacity16"]) {
        return;
    }
    let array = Array::new(RAID5, 4);
    let uri = array.serve_iscsi(Vec::new());
    let portal = uri.split("/iqn").next().expect("a portal");
    let list = succeed("iscsi-ls", &["-s", portal]);
    assert!(
        list.contains("iqn.2026-11.restripe:disk") && list.contains("DIRECT_ACCESS"),
        "{list}"
    );
    let inquiry = succeed("iscsi-inq", &[&uri]);
    assert!(inquiry.contains("Vendor:RESTRIPE"), "{inquiry}");
    let capacity = succeed("iscsi-readcapacity16", &[&uri]);
    let size = format!("Total size:{}", array.target().size);
    assert!(
        capacity.contains(&size) && capacity.contains("LBPME:1 LBPRZ:1"),
        "{capacity}"
    );
}

fn patterns(uri: &str) {
    let mut arguments = vec!["-f", "raw"];
    for command in [
        "write -P 0x5a 0 1M",
        "write -P 0xa5 -f 65024 12288",
        "read -P 0x5a 0 65024",
        "read -P 0xa5 65024 12288",
        "write -z 64k 64k",
        "read -P 0 64k 64k",
        "write -z -u 256k 128k",
        "read -P 0 256k 128k",
        "discard 1M 64k",
        "aio_write -P 1 2M 64k",
        "aio_write -P 2 2112k 64k",
        "aio_flush",
        "flush",
        "read -P 1 2M 64k",
        "read -P 2 2112k 64k",
        "write -P 3 3M 7M",
        "read -P 3 3M 7M",
    ] {
        arguments.extend(["-c", command]);
    }
    arguments.push(uri);
    succeed("qemu-io", &arguments);
}

/// The same bytes through both front ends, in every health of the array.
#[test]
fn qemu_finds_its_patterns_through_a_loss() {
    let array = Array::new(RAID5, 4);
    let uri = array.serve_iscsi(Vec::new());
    if !qemu(&uri) {
        return;
    }
    let nbd = array.target().uri();
    let try_all = || {
        patterns(&uri);
        succeed(
            "qemu-img",
            &["compare", "-f", "raw", "-F", "raw", &uri, &nbd],
        );
    };
    try_all();
    array.fail(1);
    try_all();
    let rate = |rate| Command::Rate {
        min: rate,
        max: rate,
    };
    command(array.remote(), rate(64 << 10));
    array.add_spare(4);
    array.wait_for(|fact| matches!(fact, Fact::TaskStarted { .. }));
    try_all();
    command(array.remote(), rate(u64::MAX));
    array.wait_for_end(TaskKind::Rebuild);
    try_all();
}

#[test]
fn who_has_no_secret_is_refused() {
    if !installed(&["iscsi-inq"]) {
        return;
    }
    let array = Array::new(RAID5, 3);
    let text = "initiator alice wonderland-1865\ntarget tank looking-glass-1871";
    let target = Target {
        name: "iqn.2026-11.test:secret".to_owned(),
        luns: vec!["disk".to_owned()],
        secrets: Some(Secrets::parse(text).expect("they are right")),
        ..Target::default()
    };
    let uri = array.serve_iscsi(vec![target]);
    let with = |user: &str| uri.replace("iscsi://", &format!("iscsi://{user}@"));
    succeed("iscsi-inq", &[&with("alice%wonderland-1865")]);
    let mutual = "?target_user=tank&target_password=looking-glass-1871";
    succeed("iscsi-inq", &[&(with("alice%wonderland-1865") + mutual)]);
    for wrong in [
        &uri,
        &with("alice%wonderland-1866"),
        &with("bob%wonderland-1865"),
    ] {
        assert!(!run("iscsi-inq", &[wrong]).status.success(), "{wrong}");
    }
}

/// Tests of libiscsi's conformance suite that do not pass; docs/reference/iscsi.md says why.
const MISSES: [&str; 2] = ["GetLBAStatus: UnmapSingle", "WriteSame10: UnmapUntilEnd"];
/// Suites of which some tests write, and suites that write what they then read in another way.
const WRITING: [&str; 16] = [
    "CompareAndWrite",
    "ExtendedCopy",
    "GetLBAStatus",
    "OrWrite",
    "ProutReserve",
    "Unmap",
    "Write10",
    "Write12",
    "Write16",
    "WriteSame10",
    "WriteSame16",
    "WriteVerify10",
    "WriteVerify12",
    "WriteVerify16",
    "iSCSIResiduals",
    "iSCSITMF",
];
/// Tests of the suite.
const TESTS: u32 = 230;

/// What the suite says of a target.
struct Verdict {
    printed: String,
    missed: Vec<String>,
    /// Messages by which tests skip what a disk does not have; such a test passes.
    skips: usize,
}

/// Runs the whole suite on one path to a logical unit, or two.
fn judged(uris: &[&str]) -> Verdict {
    let output = run(
        "iscsi-test-cu",
        &[&["-d", "-n", "-t", "ALL"], uris].concat(),
    );
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let missed = printed.lines().filter_map(|line| {
        let failed = line
            .strip_prefix("Suite ")?
            .strip_suffix(" had failures:")?;
        Some(failed.replacen(", Test", ":", 1))
    });
    let missed: Vec<String> = missed.collect();
    let count = missed.len() as u32;
    let expected = [TESTS, TESTS, TESTS - count, count, 0];
    assert_eq!(counts(&printed), expected, "{printed}");
    let skips = printed.matches("[SKIPPED]").count();
    Verdict {
        printed,
        missed,
        skips,
    }
}

/// The faces of a target are those of docs/reference/iscsi.md, which has their skip messages.
fn conforms(verdict: &Verdict, skips_max: usize) {
    assert_eq!(verdict.missed, MISSES, "{}", verdict.printed);
    let skips = verdict.skips;
    assert!(
        skips <= skips_max,
        "{skips} messages of skips: {}",
        verdict.printed
    );
}

#[test]
fn the_conformance_suite_passes() {
    if !installed(&["iscsi-test-cu"]) {
        return;
    }
    let array = Array::new(RAID5, 4);
    conforms(&judged(&[&array.serve_iscsi(Vec::new())]), 54);
}

#[test]
fn the_conformance_suite_passes_over_two_portals() {
    if !installed(&["iscsi-test-cu"]) {
        return;
    }
    let array = Array::new(RAID5, 4);
    let [first, second] = array.serve_portals(Vec::new());
    conforms(&judged(&[&first, &second]), 50);
}

#[test]
fn a_removable_medium_conforms_as_well() {
    if !installed(&["iscsi-test-cu"]) {
        return;
    }
    let array = Array::new(RAID5, 3);
    let target = Target {
        name: "iqn.2026-11.test:removable".to_owned(),
        luns: vec!["disk".to_owned()],
        removable: true,
        ..Target::default()
    };
    let [first, second] = array.serve_portals(vec![target]);
    conforms(&judged(&[&first, &second]), 41);
}

/// Each test that fails there has to write.
#[test]
fn a_read_only_array_conforms_but_for_writes() {
    if !installed(&["iscsi-test-cu"]) {
        return;
    }
    let array = Array::read_only(RAID5, 3);
    let verdict = judged(&[&array.serve_iscsi(Vec::new())]);
    let writes = |test: &String| {
        WRITING
            .iter()
            .any(|suite| test.starts_with(&format!("{suite}:")))
    };
    let missed = &verdict.missed;
    assert!(
        missed.iter().all(writes) && missed.len() == 74,
        "{missed:?}"
    );
}

/// Tests in all, and how many ran, passed, failed, and were inactive.
fn counts(printed: &str) -> Vec<u32> {
    let mut lines = printed.lines();
    let tests = lines.find(|line| line.trim().starts_with("tests"));
    let words = tests.unwrap_or_default().split_whitespace();
    words.filter_map(|word| word.parse().ok()).collect()
}
