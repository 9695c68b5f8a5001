//! Drives as DiskSim's files describe them: what it accepts, we accept, and read the same.

use restripe_lab::drives::disksim;
use restripe_sim::disk::mechanical::{Command, Drive, Mechanical};
use restripe_sim::disk::seek::SeekTable;
use std::path::PathBuf;

const SPECS: &str = "disksim_disk X { Model = source MODEL, Bulk sector transfer time = 0.0,
    High (read) water mark = 0.0, Read hit over. after read = 0.1, Read hit over. after write = 0.1,
    Read miss over. after read = 0.2, Read miss over. after write = 0.2,
    Write miss over. after read = 0.3, Write miss over. after write = 0.3,
    Read completion overhead = 0.0, Write completion overhead = 0.0, Number of buffer segments = 1,
    Segment size (in blks) = 64, Buffer continuous read = 3, Maximum read-ahead (blks) = 64,
    Fast write level = 0, Maximum number of write segments = 1, Allow read hits on write data = 0 }";

const EXTRACTED: &str = "Seek type = extracted, Full seek curve = measured.curve,";

fn model(seek: &str, settling: &str) -> String {
    format!(
        "dm_disk X {{ Number of data surfaces = 2, Number of cylinders = 100, Block count = 6000,
        Layout Model = dm_layout_g1 {{ LBN-to-PBN mapping scheme = 0, Sparing scheme used = 0,
            Rangesize for sparing = 1, Zones = [ dm_layout_g1_zone {{ First cylinder number = 0,
                Last cylinder number = LAST, Blocks per track = 30, Offset of first block = 0,
                Empty space at zone front = 0, Skew for track switch = 3, Skew for cylinder switch = 6,
                Number of spares = 0, slips = [], defects = [] }} ] }},
        Mechanical Model = dm_mech_g1 {{ {seek} Add. write settling delay = {settling},
            Head switch time = 0.5, Rotation speed (in rpms) = 6000 }} }}"
    )
}

/// The files in a folder of the test's own.
fn files(test: &str, all: &[(&str, &str)]) -> PathBuf {
    let own = format!("restripe-disksim-{test}-{}", std::process::id());
    let folder = std::env::temp_dir().join(own);
    std::fs::create_dir_all(&folder).expect("a folder");
    for (name, text) in all {
        std::fs::write(folder.join(name), text).expect("a file");
    }
    folder
}

fn load(test: &str, seek: &str, settling: &str, last: u32) -> Result<Drive, String> {
    let model = model(seek, settling).replace("LAST", &last.to_string());
    let curve = "Seek distances measured: 2\n1, 1.5\n50, 6.25, 0.125\n";
    let folder = files(
        test,
        &[
            ("x.model", &model),
            ("x.diskspecs", SPECS),
            ("measured.curve", curve),
        ],
    );
    let drive = disksim::load(&folder.join("x.model"));
    std::fs::remove_dir_all(folder).expect("a folder of ours");
    drive
}

fn seek_ms(drive: &Drive, distance: u32) -> f64 {
    let table = SeekTable::new(&drive.mechanism.seek, drive.layout.cylinders);
    table.expect("in range").ns(distance) as f64 / 1e6
}

#[test]
fn a_settling_below_nothing_makes_writes_sooner_than_reads() {
    let drive = load("settling", EXTRACTED, "-0.4", 99).expect("a drive");
    assert_eq!(drive.mechanism.write_settle_ns, -400_000);
    // From cylinder 0 to 49: the write's seek is 0.4 ms shorter, the sooner or the same turn.
    let far = |command| {
        let mut drive = Mechanical::new(drive.clone()).expect("in range");
        drive.service(0, command)
    };
    let (read, write) = (0..60)
        .map(|at| {
            let block = 60 * 49 + at;
            (far(Command::read(block, 1)), far(Command::write(block, 1)))
        })
        .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    // Overheads differ by 0.1 ms the other way.
    assert!(write + 60 * 100_000 < read, "{write} {read}");
    assert!(load("much", EXTRACTED, "-4000", 99).is_err());
}

#[test]
fn seek_times_come_by_formula_or_from_the_file_that_is_named() {
    let drive = load("curve", EXTRACTED, "0.0", 99).expect("a drive");
    assert_eq!((seek_ms(&drive, 1), seek_ms(&drive, 50)), (1.5, 6.25));

    let equation = "HPL seek equation values = [ 25, 2.0, 0.5, 4.0, 0.01, 0.7 ],";
    let hpl = format!("Seek type = hpl, {equation}");
    let drive = load("hpl", &hpl, "0.0", 99).expect("a drive");
    let found = [1, 4, 24, 25, 99].map(|distance| seek_ms(&drive, distance));
    let expected = [0.7, 3.0, 2.0 + 0.5 * 24f64.sqrt(), 4.25, 4.99];
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-5, "{found} {expected}");
    }

    let ten = "First ten seek times = [ 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 1.0 ],";
    let both = format!("Seek type = hplplus10, {equation} {ten}");
    let drive = load("ten", &both, "0.0", 99).expect("a drive");
    let found = [1, 10, 16, 99].map(|distance| seek_ms(&drive, distance));
    assert_eq!(found, [1.1, 1.0, 4.0, 4.99]);

    let lee = "Seek type = curve, Single cylinder seek time = 1.0, Average seek time = 0.01,
        Full strobe seek time = 0.5,";
    let drive = load("lee", lee, "0.0", 99).expect("a drive");
    assert_eq!((seek_ms(&drive, 1), seek_ms(&drive, 17)), (1.0, 3.16));
    assert!(load("none", "Seek type = guessed,", "0.0", 99).is_err());
    assert!(
        load(
            "short",
            "Seek type = hpl, HPL seek equation values = [ 1 ],",
            "0",
            99
        )
        .is_err()
    );
}

#[test]
fn a_zone_may_end_behind_the_number_of_cylinders() {
    let drive = load("zone", EXTRACTED, "0.0", 100).expect("a drive");
    assert_eq!(drive.layout.cylinders, 101);
    let model = Mechanical::new(drive).expect("in range");
    assert_eq!(model.geometry().capacity(), 101 * 2 * 30);
}

#[test]
fn specifications_name_the_model_and_a_model_finds_its_specifications() {
    let model = model(EXTRACTED, "0.0").replace("LAST", "99");
    let specs = SPECS.replace("MODEL", "y_validate.model");
    let folder = files(
        "pair",
        &[
            ("y_validate.model", &model),
            ("y.diskspecs", &specs),
            ("y_validate.seek", "1, 2.0\n"),
        ],
    );
    let by_specs = disksim::load(&folder.join("y.diskspecs")).expect("a drive");
    let by_model = disksim::load(&folder.join("y_validate.model")).expect("a drive");
    assert_eq!(by_specs, by_model);
    assert_eq!(seek_ms(&by_specs, 1), 2.0);
    let files = disksim::files(&folder.join("y.diskspecs")).expect("three files");
    assert_eq!(files.len(), 3);
    let missing = disksim::load(&folder.join("z.model")).expect_err("no file");
    assert!(missing.contains("z.model"), "{missing}");
    std::fs::remove_dir_all(folder).expect("a folder of ours");
}
