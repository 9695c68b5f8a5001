//! What others see of a member: the identity for udev, the rule that asks for it, and what `make install` installs.

use super::mirror;
use crate::harness::{Place, skipped};
use std::path::Path;

const RULES: &str = "64-restripe.rules";

fn root() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize()
        .expect("the repository")
        .display()
        .to_string()
}

#[test]
fn a_member_has_an_identity_and_nothing_else_has() {
    let place = mirror("identity");
    let run = place.run(&["examine", "--export", "a.img"]);
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    let pairs: Vec<(&str, &str)> = run
        .stdout
        .lines()
        .map(|line| line.split_once('=').expect("KEY=VALUE"))
        .collect();
    for (key, value) in &pairs {
        let plain = |c: char| c.is_ascii_alphanumeric() || "#+-.:=@_\\".contains(c);
        assert!(
            key.starts_with("ID_FS_") && value.chars().all(plain),
            "{key}={value}"
        );
    }
    let of = |name: &str| {
        pairs
            .iter()
            .find(|(key, _)| *key == name)
            .map(|pair| pair.1)
    };
    for (key, value) in [
        ("ID_FS_TYPE", "restripe_member"),
        ("ID_FS_USAGE", "raid"),
        ("ID_FS_VERSION", "1"),
        ("ID_FS_LABEL", "tank"),
        ("ID_FS_LABEL_ENC", "tank"),
    ] {
        assert_eq!(of(key), Some(value), "{key}");
    }
    let examined = place.run(&["examine", "a.img"]).stdout;
    for key in ["ID_FS_UUID", "ID_FS_UUID_SUB"] {
        assert!(
            examined.contains(of(key).expect("an identifier")),
            "{key}: {examined}"
        );
        assert_eq!(of(key), of(&format!("{key}_ENC")));
    }
    // With one superblock gone it is a member yet.
    place.write("a.img", 0, 0, &[0; 65536]);
    assert_eq!(
        place.run(&["examine", "--export", "a.img"]).stdout,
        run.stdout
    );
    place.write("empty", 64 << 20, 0, &[]);
    place.write("short", 100, 0, b"x");
    place.write("ext4", 64 << 20, 1080, &[0x53, 0xef]);
    place.write("torn", 64 << 20, 0, b"Restripe\x01\0\0\0");
    for other in ["empty", "short", "ext4", "torn", "missing"] {
        let run = place.run(&["examine", "--export", other]);
        assert_eq!((run.status, run.stdout.as_str()), (1, ""), "{other}");
    }
}

/// Without tools: each line is one that udev's grammar knows, and each jump has its target.
#[test]
fn the_rule_is_well_formed_and_asks_this_command() {
    let rules = std::fs::read_to_string(format!("{}/docs/udev/{RULES}", root())).expect("the rule");
    assert!(rules.contains("IMPORT{program}=\"@BINDIR@/restripe examine --export $devnode\""));
    let lines = rules
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    for part in lines.flat_map(|line| line.split(", ")) {
        let (key, value) = part.split_once('=').expect("KEY=VALUE");
        let value = value.trim_start_matches('=');
        assert!(
            value.starts_with('"') && value.ends_with('"') && value.len() > 1,
            "{part}"
        );
        let key = key.trim_end_matches(['!', '+']);
        let known = ["SUBSYSTEM", "ACTION", "KERNEL", "GOTO", "LABEL", "SYMLINK"];
        assert!(
            known.contains(&key) || key.starts_with("ENV{") || key == "IMPORT{program}",
            "{part}"
        );
        if key == "GOTO" {
            assert!(rules.contains(&format!("LABEL={value}")), "{part}");
        }
    }
}

/// By udev's own reader, in a namespace in which the rule is installed. It says which lines it cannot take.
#[test]
fn udev_reads_the_rule() {
    let place = Place::new("udev");
    let script = format!(
        "command -v udevadm >/dev/null || exit 99
         unshare -m true 2>/dev/null || exit 99
         sed 's|@BINDIR@|{bin}|g' {root}/docs/udev/{RULES} > rule
         printf 'NONSENSE==\"x\"\\n' > nonsense
         look() {{ unshare -m sh -c \"mkdir -p /run/udev/rules.d; mount -t tmpfs none /run/udev/rules.d; cp $1 /run/udev/rules.d/{RULES}
           udevadm test /sys/devices/virtual/mem/null 2>&1\"; }}
         look $PWD/rule > read; look $PWD/nonsense > unread
         grep -i '{RULES}' read; echo --; grep -i '{RULES}' unread",
        bin = Path::new(place.binary()).parent().expect("a folder").display(),
        root = root(),
    );
    let run = place.shell(&script);
    if run.status == 99 {
        return skipped("prober::udev_reads_the_rule", "needs root and udevadm");
    }
    let (read, unread) = run.stdout.split_once("--\n").expect("two parts");
    assert!(read.contains("Reading rules file"), "{read}");
    assert!(
        !read.contains("nvalid") && !read.contains("nknown"),
        "{read}"
    );
    assert!(
        unread.contains("nvalid") || unread.contains("nknown"),
        "it would say so: {unread}"
    );
}

#[test]
fn an_installation_has_the_rule_with_the_commands_place() {
    let place = Place::new("installed");
    let run = place.shell(&format!(
        "command -v make >/dev/null || exit 99
         make -s -C {} install BIN={} PREFIX=/opt/restripe DESTDIR=$PWD/image >/dev/null
         cd image/opt/restripe && cat lib/udev/rules.d/{RULES}
         cd share && for page in '' -serve -lease-add; do head -c 6 man/man1/restripe$page.1 >/dev/null || exit 1; done
         for file in bash-completion/completions/restripe zsh/site-functions/_restripe \\
           fish/vendor_completions.d/restripe.fish man/man1/restripe.1; do stat -c '%a %n' $file; done",
        root(),
        place.binary()
    ));
    if run.status == 99 {
        return skipped("prober::an_installation", "there is no make");
    }
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(
        run.stdout
            .contains("\"/opt/restripe/bin/restripe examine --export $devnode\""),
        "{}",
        run.stdout
    );
    assert!(!run.stdout.contains("@BINDIR@"));
    let readable = run.stdout.lines().filter(|line| line.starts_with("644 "));
    assert_eq!(readable.count(), 4, "{}", run.stdout);
}
