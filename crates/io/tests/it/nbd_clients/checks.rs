//! What each program is asked to do with an export, and what must come of it. The same for every export: one in
//! memory, or an array whatever its health.

use crate::nbd_clients::tools::{Folder, Target, bounded, installed, succeed};
use crate::nbd_protocol::world::Random;
use std::fs;

pub type Check = fn(&Target);

/// The handshake, seen by libnbd.
pub fn describes_itself(target: &Target) {
    if !installed(&["nbdinfo"]) {
        return;
    }
    let uri = target.uri();
    let info = succeed("nbdinfo", &["--json", &uri]);
    for line in [
        "\"protocol\": \"newstyle-fixed\"",
        "\"structured\": true",
        "\"is_read_only\": false",
        "\"can_cache\": true",
        "\"can_df\": true",
        "\"can_fast_zero\": true",
        "\"can_flush\": true",
        "\"can_fua\": true",
        "\"can_multi_conn\": true",
        "\"can_trim\": true",
        "\"can_zero\": true",
        "\"base:allocation\"",
        "\"restripe:health\"",
        "\"block_size_minimum\": 1,",
        "\"block_size_maximum\": 33554432",
        &format!("\"export-size\": {}", target.size),
    ] {
        assert!(info.contains(line), "{line} is missing in {info}");
    }
    let list = succeed("nbdinfo", &["--list", &uri]);
    assert!(list.contains(&format!("export=\"{}\"", target.export)));
    assert_eq!(succeed("nbdinfo", &["--can", "connect", &uri]), "");
}

/// Block status covers the export from end to end, for both contexts.
pub fn maps_every_byte(target: &Target) {
    if !installed(&["nbdinfo"]) {
        return;
    }
    for context in ["base:allocation", "restripe:health"] {
        let map = format!("--map={context}");
        let printed = succeed("nbdinfo", &[&map, &target.uri()]);
        let mut end = 0;
        for line in printed.lines() {
            let mut numbers = line.split_whitespace().map(str::parse::<usize>);
            let (Some(Ok(offset)), Some(Ok(bytes))) = (numbers.next(), numbers.next()) else {
                panic!("a line of the map: {line}");
            };
            assert_eq!(offset, end, "extents follow each other");
            end += bytes;
        }
        assert_eq!(end, target.size, "{context} covers everything");
    }
}

/// A file of random bytes in, the export out, and qemu's opinion.
pub fn copies_both_ways(target: &Target) {
    if !installed(&["nbdcopy", "qemu-img"]) {
        return;
    }
    let folder = Folder::new();
    let (source, back) = (folder.file("source"), folder.file("back"));
    let mut bytes = vec![0; target.size];
    Random::new(7).fill(&mut bytes);
    // Long runs of zeros, so that zeroing commands are used too.
    bytes[target.size / 4..target.size / 2].fill(0);
    fs::write(&source, &bytes).expect("room for a file");
    let uri = target.uri();
    let (source, back) = (source.display().to_string(), back.display().to_string());
    let parallel = ["--connections=4", "--requests=64", "--flush"];
    succeed("nbdcopy", &[&parallel[..], &[&source, &uri]].concat());
    succeed("nbdcopy", &[&parallel[..], &[&uri, &back]].concat());
    assert!(fs::read(&back).expect("copied") == bytes, "what came back");
    succeed(
        "qemu-img",
        &["compare", "-f", "raw", "-F", "raw", &source, &uri],
    );
}

/// Aligned and unaligned patterns, zeros, discards, FUA and flush through qemu's block layer.
pub fn keeps_patterns(target: &Target) {
    if !installed(&["qemu-io", "qemu-img"]) {
        return;
    }
    let uri = target.uri();
    let commands = [
        "write -P 0x5a 0 1M",
        "write -P 0xa5 -f 65000 12345",
        "read -P 0x5a 0 65000",
        "read -P 0xa5 65000 12345",
        "read -P 0x5a 77345 4096",
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
    ];
    let mut arguments = vec!["-f", "raw"];
    for command in &commands {
        arguments.extend(["-c", command]);
    }
    arguments.push(&uri);
    succeed("qemu-io", &arguments);
    let map = succeed("qemu-img", &["map", "--output=json", "-f", "raw", &uri]);
    assert!(map.contains("\"start\": 0"), "{map}");
}

/// Random writes that are read back and checked, at depth 16.
pub fn passes_verified_load(target: &Target) {
    verified_load(target, 1);
}

/// The same so many times over.
pub fn verified_load(target: &Target, rounds: u32) {
    if !installed(&["fio"]) {
        return;
    }
    let folder = Folder::new();
    let uri = format!("--uri={}", target.uri());
    let size = format!("--size={}", target.size / 2);
    let rounds = format!("--loops={rounds}");
    let output = bounded("fio")
        .args(["--name=load", "--ioengine=nbd", &uri, &size])
        .args(["--rw=randrw", "--bsrange=512-64k", "--iodepth=16", &rounds])
        .args(["--verify=crc32c", "--verify_fatal=1", "--fsync=64"])
        .current_dir(folder.path())
        .output()
        .expect("fio runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Requests that no decent client makes. libnbd's own checks are off; the server must answer each and go on.
pub fn answers_probes(target: &Target) {
    if !installed(&["nbdsh"]) {
        return;
    }
    nbdsh(&["-u", &target.uri(), "-c", PROBES]);
}

/// Runs scripts that end by printing that all was answered.
pub fn nbdsh(arguments: &[&str]) {
    // nbdsh belongs to the system's Python, whichever comes first in the path.
    let system = ["PATH=/usr/bin:/bin", "nbdsh"];
    let printed = succeed("env", &[&system[..], arguments].concat());
    assert!(printed.contains("all probes answered"), "{printed}");
}

const PROBES: &str = r#"
import errno

h.set_strict_mode(0)
size = h.get_size()

def refused(expected, command, *arguments):
    try:
        command(*arguments)
    except nbd.Error as error:
        assert error.errnum == expected, (command.__name__, error.string, error.errno)
    else:
        raise AssertionError((command.__name__, "was not refused"))

# Unaligned.
h.pwrite(b"abc", 4095)
assert h.pread(5, 4094)[1:4] == b"abc"
# Beyond the end: no room for writes, invalid otherwise.
refused(errno.ENOSPC, h.pwrite, b"x" * 512, size)
refused(errno.ENOSPC, h.pwrite, b"x" * 512, size - 1)
refused(errno.ENOSPC, h.zero, 512, size)
refused(errno.EINVAL, h.pread, 512, size)
refused(errno.EINVAL, h.pread, 512, 2**63)
refused(errno.EINVAL, h.trim, 512, size)
refused(errno.EINVAL, h.cache, 512, size)
# Nothing at all.
refused(errno.EINVAL, h.pwrite, b"", 0)
refused(errno.EINVAL, h.pread, 0, 0)
refused(errno.EINVAL, h.trim, 0, 0)
refused(errno.EINVAL, h.zero, 0, 0)
# Flags that do not belong.
refused(errno.EINVAL, h.pwrite, b"x" * 512, 0, nbd.CMD_FLAG_DF)
refused(errno.EINVAL, h.pread, 512, 0, nbd.CMD_FLAG_NO_HOLE)
refused(errno.EINVAL, h.pread, 512, 0, 0x4000)
refused(errno.EINVAL, h.trim, 512, 0, nbd.CMD_FLAG_FAST_ZERO)
refused(errno.EINVAL, h.flush, 0x8000)
# Block status without a context.
refused(errno.EINVAL, h.block_status, 512, 0, lambda *a: 0)
# As large as allowed, and larger.
largest = min(size, 32 << 20)
if size > largest + 512:
    refused(errno.EINVAL, h.pread, largest + 512, 0)
    refused(errno.EINVAL, h.pwrite, bytes(largest + 512), 0)
pattern = bytes(range(256)) * (largest // 256)
h.pwrite(pattern, 0, nbd.CMD_FLAG_FUA)
assert h.pread(largest, 0) == pattern
assert h.pread(65536, 512, nbd.CMD_FLAG_DF) == pattern[512:512 + 65536]
h.zero(4096, 512, nbd.CMD_FLAG_NO_HOLE)
assert h.pread(4096, 512) == bytes(4096)
try:
    h.zero(4096, 8192, nbd.CMD_FLAG_FAST_ZERO)
except nbd.Error as error:
    assert error.errnum == errno.ENOTSUP, error.string
h.cache(4096, 0)
h.flush()
assert h.aio_is_ready()
print("all probes answered")
"#;

/// Clients that know neither structured replies nor `GO`, nor even fixed newstyle.
pub fn serves_old_clients(target: &Target) {
    if !installed(&["nbdsh"]) {
        return;
    }
    let set_up = format!("uri = '{}'", target.uri());
    nbdsh(&["-c", &set_up, "-c", OLD_CLIENTS]);
}

const OLD_CLIENTS: &str = r#"
import errno

def modern(h):
    pass

def simple(h):
    h.set_request_structured_replies(False)

def oldest(h):
    h.set_request_structured_replies(False)
    h.set_handshake_flags(0)

for prepare in (modern, simple, oldest):
    h = nbd.NBD()
    h.set_strict_mode(0)
    prepare(h)
    h.connect_uri(uri)
    structured = prepare is modern
    assert h.get_structured_replies_negotiated() == structured
    assert h.can_df() == structured
    h.pwrite(prepare.__name__.encode() * 1000, 12345)
    assert h.pread(6, 12345) == prepare.__name__.encode()
    if not structured:
        for attempt in (lambda: h.pread(512, 0, nbd.CMD_FLAG_DF),
                        lambda: h.pread(512, h.get_size())):
            try:
                attempt()
            except nbd.Error as error:
                assert error.errnum == errno.EINVAL, error.string
            else:
                raise AssertionError("was not refused")
    h.flush()
    h.shutdown()
print("all probes answered")
"#;

/// A read-only export says so and refuses everything that writes.
pub fn refuses_writes(target: &Target) {
    if !installed(&["nbdinfo", "nbdsh"]) {
        return;
    }
    let uri = target.uri();
    let info = succeed("nbdinfo", &["--json", &uri]);
    assert!(info.contains("\"is_read_only\": true"), "{info}");
    nbdsh(&["-u", &uri, "-c", READ_ONLY]);
}

const READ_ONLY: &str = r#"
import errno

h.set_strict_mode(0)
for attempt in (lambda: h.pwrite(b"x" * 512, 0),
                lambda: h.zero(512, 0),
                lambda: h.trim(512, 0)):
    try:
        attempt()
    except nbd.Error as error:
        assert error.errnum == errno.EPERM, error.string
    else:
        raise AssertionError("was not refused")
assert h.pread(512, 0) == bytes(512)
h.flush()
print("all probes answered")
"#;

/// nbdkit's client, with retries, between qemu and us.
pub fn serves_through_nbdkit(target: &Target) {
    if !installed(&["nbdkit", "qemu-io"]) {
        return;
    }
    let inner = "qemu-io -f raw -c 'write -P 7 1M 1M' -c 'read -P 7 1M 1M' -c flush \"$uri\"";
    let uri = format!("uri={}", target.uri());
    let arguments = ["-U", "-", "--filter=retry", "nbd", &uri, "--run", inner];
    succeed("nbdkit", &arguments);
}
