//! The disk models against measured drives, and a served model against a client.
//!
//! The measurements are those of `disks` in the folder that `RESTRIPE_SHARED` names, `../shared` beside the project
//! otherwise.

use crate::shared;
use restripe_lab::drives::clock::Clockwork;
use restripe_lab::drives::export::{Backing, Export};
use restripe_lab::drives::preset::{self, Made};
use restripe_lab::drives::score::{replay, score};
use restripe_lab::drives::{disksim, fit, source};
use restripe_lab::nbd::{Address, Client};
use restripe_sim::disk::mechanical::{Command, Mechanical};
use restripe_sim::disk::queue::Policy;
use restripe_sim::disk::served::HardDisk;
use restripe_sim::rng::Rng;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The folder of the measured drives, or a note that it is missing.
fn measured(test: &str) -> Option<PathBuf> {
    shared::folder("disks", "README.md", &format!("drives::{test}"))
}

/// DiskSim's demerit on each drive's whole trace, per cent of the mean.
const DISKSIM: [(&str, f64); 7] = [
    ("hp_c3323a", 1.94),
    ("cheetah9LP", 2.50),
    ("ibm18es", 2.58),
    ("barracuda", 5.24),
    ("cheetah4LP", 5.97),
    ("atlas_III", 6.03),
    ("atlas10k", 6.88),
];

/// Fits on the first 60% of a half-trace, replays it whole, and scores the rest. Per cent.
fn demerit_of(folder: &Path, name: &str) -> f64 {
    let drive = disksim::load(&folder.join(format!("{name}.model"))).expect("a drive");
    let text = std::fs::read_to_string(folder.join(format!("{name}.first-half.trace")));
    let trace = source::trace(&text.expect("a trace")).expect("well formed");
    let training = fit::training(&trace);
    let fitted = fit::fit(&drive, training).expect("enough requests").drive;
    let times = replay(&fitted, &trace).expect("within the drive");
    let cut = training.len();
    score(&trace[cut..], &times[cut..]).demerit * 100.0
}

#[test]
fn fitted_models_keep_to_the_drives() {
    let Some(folder) = measured("fitted_models_keep_to_the_drives") else {
        return;
    };
    let mut found: Vec<f64> = std::thread::scope(|scope| {
        let folder = &folder;
        let fits = DISKSIM.map(|(name, _)| scope.spawn(move || demerit_of(folder, name)));
        fits.map(|fit| fit.join().expect("no panic")).to_vec()
    });
    for ((name, disksim), demerit) in DISKSIM.iter().zip(&found) {
        println!("{name:<12} {demerit:.2}% of the mean, DiskSim {disksim}%");
        assert!(
            *demerit <= 2.0 * disksim,
            "{name}: {demerit:.2}% of the mean, DiskSim {disksim}%"
        );
    }
    found.sort_by(f64::total_cmp);
    assert!(found[3] <= 5.24, "median {:.2}%, DiskSim 5.24%", found[3]);
}

/// DiskSim's further drives and what it makes of them, where the folder has them too.
const FURTHER: [(&str, f64); 3] = [("hp_c2490a", 2.02), ("dec_rz26", 2.15), ("hp_c2247a", 0.59)];

#[test]
fn further_drives_are_kept_to_where_they_are_there() {
    let Some(folder) = measured("further_drives_are_kept_to_where_they_are_there") else {
        return;
    };
    for (name, disksim) in FURTHER {
        if folder.join(format!("{name}.model")).is_file() {
            let demerit = demerit_of(&folder, name);
            assert!(demerit <= 2.0 * disksim, "{name}: {demerit:.2}%");
        }
    }
}

#[test]
fn described_layouts_hold_what_the_drives_say() {
    let Some(folder) = measured("described_layouts_hold_what_the_drives_say") else {
        return;
    };
    for (name, _) in DISKSIM {
        let drive = disksim::load(&folder.join(format!("{name}.model"))).expect("a drive");
        let said = drive.layout.blocks;
        let capacity = Mechanical::new(drive)
            .expect("in range")
            .geometry()
            .capacity();
        let excess = capacity as f64 / said as f64 - 1.0;
        assert!(
            (0.0..0.03).contains(&excess),
            "{name}: {capacity} blocks, {said} said"
        );
    }
}

/// Mean read times of 4 KiB in ms, `2^k` blocks of 4 KiB behind another read: measured on a Seagate ST500NM0001.
const ST500NM0001: [(u32, f64); 14] = [
    (8, 5.83),
    (9, 5.86),
    (10, 5.15),
    (11, 4.98),
    (12, 5.24),
    (13, 5.58),
    (14, 6.12),
    (15, 5.70),
    (16, 5.70),
    (17, 5.82),
    (18, 6.05),
    (19, 6.36),
    (20, 6.71),
    (21, 7.53),
];

fn mechanical(name: &str) -> Mechanical {
    match preset::named(name).and_then(|preset| preset.make()) {
        Ok(Made::Mechanical(drive)) => *drive,
        Ok(Made::Flash(_)) => panic!("{name} is a flash drive"),
        Err(error) => panic!("{name}: {error}"),
    }
}

#[test]
fn the_sata_preset_keeps_to_the_measured_seek_times() {
    let mut drive = mechanical("st500nm0001");
    let blocks = drive.geometry().blocks();
    let mut rng = Rng::new(3);
    let mut now = 0;
    let mut squares = 0.0;
    for (k, measured) in ST500NM0001 {
        let (distance, count) = (8u64 << k, 2_000);
        let mut sum = 0;
        for _ in 0..count {
            let block = rng.below((blocks - distance - 8) / 8) * 8;
            let read = |block| Command::read(block, 8);
            let first = drive.service(now, read(block));
            let second = drive.service(first, read(block + distance));
            sum += second - first;
            now = second + 50_000_000 + rng.below(50_000_000);
        }
        let mean = sum as f64 / f64::from(count) / 1e6;
        squares += (mean / measured - 1.0).powi(2);
    }
    let rms = (squares / ST500NM0001.len() as f64).sqrt();
    assert!(rms < 0.10, "{:.1}%", rms * 100.0);
}

#[test]
fn presets_are_drives_of_their_capacity() {
    for name in preset::names() {
        let preset = preset::named(name).expect("well formed");
        assert_eq!(preset.name, name);
        let blocks = preset.make().expect("in range").blocks();
        let said = preset
            .mechanical
            .as_ref()
            .map(|drive| drive.capacity_blocks.value);
        let said = said.or(preset
            .flash
            .as_ref()
            .map(|drive| drive.capacity_blocks.value));
        assert_eq!(Some(blocks as f64), said, "{name}");
        preset.power().expect("in range");
    }
    assert!(preset::named("no such drive").is_err());
    assert!(preset::parse("name = 'x'\nsummary = ''\n[mechanical]\nrpm = 7200").is_err());
}

/// A file may hold a preset or DiskSim's description of a drive. An error names the file.
#[test]
fn drives_come_from_files_too() {
    let folder = std::env::temp_dir().join(format!("restripe-own-drive-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("own.toml");
    let text = include_str!("../../presets/wd1600aajs.toml").replace("312581808", "100000000");
    std::fs::write(&path, text).expect("a file");
    let name = format!("file:{}", path.display());
    let own = preset::of(&name).and_then(|preset| preset.make());
    assert_eq!(own.expect("a drive").blocks(), 100_000_000);
    let size = restripe_lab::replay::stage::member_bytes_max(&name).expect("a drive");
    assert!((50_000_000_000..51_200_000_000).contains(&size), "{size}");
    assert_eq!(preset::files(&path), Ok(vec![path.clone()]));
    let error = |name: &str| preset::of(name).expect_err("no drive");
    std::fs::write(&path, "name = 'half'").expect("a file");
    assert!(error(&name).contains("own.toml"), "{}", error(&name));
    let missing = format!("file:{}", folder.join("none.model").display());
    assert!(
        error(&missing).contains("none.model"),
        "{}",
        error(&missing)
    );
    assert!(error("wd1600").contains("wd1600aajs"), "a near name");
    std::fs::remove_dir_all(&folder).expect("a folder of ours");
    let Some(folder) = measured("drives_come_from_files_too") else {
        return;
    };
    let model = folder.join("cheetah9LP.model");
    let drive = preset::of(&format!("file:{}", model.display())).expect("a drive");
    assert_eq!(drive.name, "cheetah9LP");
    assert_eq!(preset::files(&model).map(|files| files.len()), Ok(3));
    assert!(matches!(drive.make(), Ok(Made::Mechanical(_))));
}

#[test]
fn a_described_seek_curve_goes_through_its_points() {
    let drive = mechanical("wd1600aajs");
    let (cylinders, curve) = (
        drive.drive().layout.cylinders,
        &drive.drive().mechanism.seek,
    );
    let table = restripe_sim::disk::seek::SeekTable::new(curve, cylinders).expect("in range");
    let near = |distance, ms: f64| (table.ns(distance) as f64 / 1e6 - ms).abs() < 0.01;
    assert!(near(1, 2.0) && near(cylinders / 3, 8.9) && near(cylinders - 1, 21.0));
}

// -------------------------------------------------------------------------------------------------------- served

/// A served drive on a socket of its own folder.
fn serve(test: &str, clockwork: Clockwork, size: u64) -> (PathBuf, Export) {
    let folder =
        std::env::temp_dir().join(format!("restripe-drives-{test}-{}", std::process::id()));
    drop(std::fs::remove_dir_all(&folder));
    std::fs::create_dir_all(&folder).expect("a folder");
    let socket = folder.join("socket");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let export = Export::start(clockwork, Backing::memory(), size);
    let serving = export.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(8).flatten() {
            serving.attach(stream);
        }
    });
    (socket, export)
}

fn hard(name: &str) -> Clockwork {
    let drive = HardDisk::new(mechanical(name), Policy::Fcfs, None);
    Clockwork::hard(drive, Policy::Fcfs, 32)
}

#[test]
fn a_served_drive_keeps_data_and_takes_its_time() {
    let (socket, export) = serve("data", hard("wd1600aajs"), 64 << 20);
    let mut client =
        Client::connect(&Address::Unix(socket), "", Duration::from_secs(20)).expect("a connection");
    assert_eq!(client.size_bytes(), 64 << 20);
    let written: Vec<u8> = (0..200_000u32)
        .map(|at| (at % 251) as u8)
        .take(192 * 1024)
        .collect();
    client.write(4096 * 5, &written, false).expect("a write");
    client.flush().expect("a flush");
    let mut read = vec![1; written.len() + 4096];
    client.read(4096 * 5, &mut read).expect("a read");
    assert_eq!(read[..written.len()], written[..]);
    assert!(read[written.len()..].iter().all(|byte| *byte == 0));
    // Twenty reads to and fro across 64 MB, none of them a hit: no drive answers them faster than its overhead.
    let started = Instant::now();
    for index in 0..20 {
        client
            .read(
                (index % 2) * (32 << 20) + index * (1 << 20),
                &mut read[..4096],
            )
            .expect("a read");
    }
    assert!(
        started.elapsed() > Duration::from_millis(20),
        "{:?}",
        started.elapsed()
    );
    assert!(
        client.read((64 << 20) - 512, &mut read[..4096]).is_err(),
        "beyond the end"
    );
    client.close();
    export.stop().expect("memory");
}

/// Flags of the handshake: flush is bit 2, FUA bit 3, rotational bit 4, trim bit 5.
#[test]
fn a_served_drive_says_what_it_can_and_does_it() {
    let flash = match preset::named("ssd-sata").and_then(|preset| preset.make()) {
        Ok(preset::Made::Flash(drive)) => Clockwork::flash(drive, 32),
        _ => panic!("a flash drive"),
    };
    for (name, clockwork, can) in [
        ("hard", hard("wd1600aajs"), 0b01_1100),
        ("flash", flash, 0b10_1100),
    ] {
        let (socket, export) = serve(name, clockwork, 4 << 20);
        let mut client = Client::connect(&Address::Unix(socket), "", Duration::from_secs(20))
            .expect("a connection");
        assert_eq!(client.flags() & 0b11_1100, can, "{name}");
        client
            .write(65_536, &[7; 131_072], true)
            .expect("a forced write");
        let trimmed = client.trim(65_536, 65_536);
        assert_eq!(trimmed.is_ok(), name == "flash");
        assert!(client.trim(4 << 20, 512).is_err(), "beyond the end");
        let mut read = vec![1; 131_072];
        client.read(65_536, &mut read).expect("a read");
        let zeroed = read.iter().take_while(|byte| **byte == 0).count();
        assert_eq!(zeroed, if name == "flash" { 65_536 } else { 0 });
        assert!(read[65_536..].iter().all(|byte| *byte == 7));
        client.close();
        export.stop().expect("memory");
    }
}

#[test]
fn connections_that_speak_nonsense_end_alone() {
    let (socket, export) = serve("nonsense", hard("wd1600aajs"), 1 << 20);
    for nonsense in [
        &[0xff; 200][..],
        b"\0\0\0\x03IHAVEOPT\0\0\0\x07\xff\xff\xff\xff",
    ] {
        let mut stream = UnixStream::connect(&socket).expect("a connection");
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a timeout");
        // The server may end the connection while this is still being sent.
        drop(stream.write_all(nonsense));
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        assert!(answer.len() <= 18, "no more than a greeting");
    }
    let mut client =
        Client::connect(&Address::Unix(socket), "", Duration::from_secs(20)).expect("a connection");
    client.read(0, &mut [0; 512]).expect("others are served");
    client.close();
    export.stop().expect("memory");
}
