"""An array attached through ublk (docs/how-to/attach.md): runs as root in a guest whose kernel has the module ublk_drv.

    ublk.py RESTRIPE

Prints `ok ublk/WHAT: ...` or `not ok ublk/WHAT: ...`.
"""

import os
import signal
import subprocess
import time

from kit import LINK, MOUNT, RESTRIPE, Failed, Writer
from kit import attach, end, judge, lead, mount, refused, run, serve, size, status, until

MEMBERS = ["a.img", "b.img", "c.img"]
DEPTH = 128
# So that a rebuild is still under way after a few writes in an emulated machine.
SLOWLY = ["--rate", "1M..1M"]


def in_sysfs(device):
    return f"/sys/block/{os.path.basename(device)}"


def in_flight(device):
    with open(f"{in_sysfs(device)}/inflight", encoding="utf-8") as file:
        return sum(int(word) for word in file.read().split())


def queue(device, name):
    with open(f"{in_sysfs(device)}/queue/{name}", encoding="utf-8") as file:
        return file.read().strip()


def without_the_module(verdict):
    run("modprobe", "-r", "ublk_drv")
    said = refused(RESTRIPE, "attach", "tank", "--ublk")
    run("modprobe", "ublk_drv")
    verdict("modprobe ublk_drv" in said, "module", said.strip())


def fresh(verdict):
    device = attach("--ublk")
    told = status()
    good = size(device) == told["size_bytes"] and told["attached"]["device"] == device
    names = ("write_cache", "fua", "logical_block_size", "physical_block_size", "io_timeout")
    shown = [queue(device, name) for name in names]
    good = good and shown == ["write back", "1", "4096", "4096", "1000"]
    verdict(good, "device", f"{device}, {size(device)} bytes, {shown}")
    again = attach("--ublk") == device and attach(device) == device
    others = [["--ublk", "--read-only"], ["/dev/ublkb7"], []]
    said = [refused(RESTRIPE, "attach", "tank", *words) for words in others]
    said.append(refused(RESTRIPE, "attach", "tank", "--ublk", "--grace", "5s"))
    good = again and all("detach it first" in words for words in said[:3]) and "grace" in said[3]
    verdict(good, "again", " ".join(said).replace("\n", " "))
    return device


def raw(verdict, device):
    """Requests without a file system: a pattern, a part of it discarded, another overwritten by zeros."""
    step = 4 << 20
    pattern = os.urandom(4 * step)
    with open(device, "r+b") as disk:
        disk.write(pattern)
        disk.flush()
        os.fsync(disk.fileno())
    run("blkdiscard", "-o", str(step), "-l", str(step), device)
    run("blkdiscard", "-z", "-o", str(2 * step), "-l", str(step), device)
    with open(device, "rb") as disk:
        found = disk.read(4 * step)
    kept = all(found[at:at + step] == pattern[at:at + step] for at in (0, 3 * step))
    verdict(kept and not any(found[2 * step:3 * step]), "raw", "flushed, discarded, zeroed; the rest is as it was")


def files(verdict):
    run("mkfs.ext4", "-q", LINK)
    mount()
    fio = ["--filename", f"{MOUNT}/fio", "--size", "24M", "--bs", "4k-64k", "--ioengine", "psync", "--direct", "1"]
    run("fio", "--name", "v", "--rw", "randwrite", "--verify", "crc32c", "--verify_fatal", "1", *fio)
    os.unlink(f"{MOUNT}/fio")
    verdict(True, "fio", "24M written at random, read again and verified")
    busy = refused(RESTRIPE, "detach", "tank") + refused(RESTRIPE, "stop", "tank")
    verdict(busy.count(f"mounted at {os.path.abspath(MOUNT)}") == 2, "busy", busy.strip())


def outlive(verdict, writer, daemon):
    """The daemon is killed, killed again as it comes back, stays away, and is stopped by a signal, all under load."""
    for _ in range(2):
        end(daemon, signal.SIGKILL)
        daemon = serve(MEMBERS)
        writer.more(10, "writing after a kill")
    verdict(True, "killed", "the mount outlives two kills of the daemon under load")
    end(daemon, signal.SIGKILL)
    time.sleep(40)
    daemon = serve(MEMBERS)
    writer.more(10, "writing after a long time without a daemon")
    end(daemon, signal.SIGTERM)
    daemon = serve(MEMBERS)
    writer.more(10, "writing after a restart")
    verdict(True, "restarted", "the mount outlives 40 s without a daemon, and a clean end of it, under load")
    return daemon


def full(verdict, daemon, device):
    """The daemon is killed while every request that the queue can have is in flight: soon the next has them."""
    reader = subprocess.Popen(
        ["fio", "--name", "full", "--filename", device, "--rw", "randread", "--bs", "64k", "--size", "64M", "--direct", "1",
         "--ioengine", "libaio", "--iodepth", "256", "--output", "/dev/null"], stdin=subprocess.DEVNULL)
    until(lambda: in_flight(device) >= DEPTH, "a full queue")
    begun = time.monotonic()
    end(daemon, signal.SIGKILL)
    daemon = serve(MEMBERS)
    until(lambda: "trouble" not in status()["attached"], "the takeover of a full queue")
    took = time.monotonic() - begun
    good = reader.wait() == 0 and took < 20
    verdict(good, "full", f"{DEPTH} requests in flight at a kill; the next daemon has the device after {took:.0f} s")
    return daemon


def unconnected(verdict, writer, daemon):
    """The next daemon serves the array otherwise, and the one after that as before."""
    end(daemon, signal.SIGTERM)
    daemon = serve(MEMBERS, "--read-only")
    trouble = status()["attached"]["trouble"]
    said = refused(RESTRIPE, "detach", "tank") + refused(RESTRIPE, "stop", "tank")
    busy = said.count(f"mounted at {os.path.abspath(MOUNT)}") == 2
    end(daemon, signal.SIGTERM)
    daemon = serve(MEMBERS, *SLOWLY)
    writer.more(10, "writing after the array was served read-only")
    good = busy and "trouble" not in status()["attached"]
    verdict(good, "unconnected", f"{trouble}; {said.strip()}".replace("\n", " "))
    return daemon


def interrupted(verdict, writer, daemon, device):
    """A recovery fails when the kernel has prepared the device; it is repeated by this daemon, and by the next."""
    served_by = device.replace("ublkb", "ublkc")
    end(daemon, signal.SIGKILL)
    os.rename(served_by, "/dev/away")
    daemon = serve(MEMBERS)
    trouble = status()["attached"]["trouble"]
    os.rename("/dev/away", served_by)
    writer.more(10, "writing after a second attempt of the same daemon")
    end(daemon, signal.SIGKILL)
    os.rename(served_by, "/dev/away")
    daemon = serve(MEMBERS)
    end(daemon, signal.SIGKILL)
    os.rename("/dev/away", served_by)
    daemon = serve(MEMBERS)
    writer.more(10, "writing after a daemon that died in a recovery")
    verdict("trouble" not in status()["attached"], "interrupted", trouble)
    return daemon


def rebuild(verdict, writer, daemon):
    run(RESTRIPE, "fail", "tank", "b.img")
    writer.more(10, "writing without a member")
    run("truncate", "-s", "96M", "d.img")
    run(RESTRIPE, "add", "tank", "d.img")
    writer.more(10, "writing during the rebuild")
    end(daemon, signal.SIGKILL)
    daemon = serve(["a.img", "c.img", "d.img"], *SLOWLY)
    writer.more(10, "writing after a kill during the rebuild")
    good = [task["kind"] for task in status()["tasks"]] == ["rebuild"]
    run(RESTRIPE, "rebuild", "tank", "--rate", "100M..2G")
    until(lambda: not status()["tasks"] and status()["state"] == "healthy", "the rebuild")
    writer.more(10, "writing after the rebuild")
    verdict(good, "rebuilt", "a member failed and was rebuilt beneath the mount, in spite of a kill")
    return daemon


def grow(verdict, writer, device):
    """A kernel that cannot change the size of a device (before 6.16) says so; detached and attached, it has the size."""
    before = size(device)
    run("truncate", "-s", "96M", "e.img")
    run(RESTRIPE, "grow", "tank", "--add", "e.img")
    until(lambda: status()["size_bytes"] > before, "the growth")
    after = status()["size_bytes"]
    until(lambda: size(device) == after or "trouble" in status()["attached"], "a word about the size")
    until(lambda: not status()["tasks"], "the growth's end")
    writer.more(10, "writing after the growth")
    told = status()["attached"].get("trouble", "the kernel has the size")
    right = size(device) == after or f"keeps its {before} bytes" in told
    writer.end()
    run("umount", MOUNT)
    run(RESTRIPE, "detach", "tank")
    device = attach("--ublk")
    good = size(device) == after
    run("e2fsck", "-fp", device)
    run("resize2fs", device)
    mount()
    blocks = os.statvfs(MOUNT)
    grown = blocks.f_blocks * blocks.f_frsize > before
    with open(f"{MOUNT}/large", "wb") as file:
        for _ in range(before // (1 << 20) - 24):
            file.write(os.urandom(1 << 20))
        os.fsync(file.fileno())
    verdict(right and good and grown, "grown", f"{before} to {after} bytes, and the file system with it; {told}")
    return device


def leave(verdict, writer, device, daemon):
    run("umount", MOUNT)
    run("e2fsck", "-fn", device)
    mount("-o", "ro")
    verdict(True, "files", f"{judge(writer.noted)} of {writer.count} written are as they were synced; fsck finds nothing")
    run("umount", MOUNT)
    run(RESTRIPE, "detach", "tank")
    gone = not os.path.lexists(LINK) and not os.path.exists(in_sysfs(device)) and "attached" not in status()
    verdict(gone, "detached", "device, link and record are gone")
    device = attach("/dev/ublkb5", "--read-only")
    wrote = subprocess.run(["dd", "if=/dev/zero", f"of={device}", "bs=4096", "count=1", "oflag=direct"],
                           stdin=subprocess.DEVNULL, capture_output=True, check=False)
    mount("-o", "ro")
    run("umount", MOUNT)
    good = wrote.returncode != 0 and device == "/dev/ublkb5"
    verdict(good, "read-only", f"{device} refuses writes")
    end(daemon, signal.SIGKILL)
    said = run(RESTRIPE, "detach", device)
    verdict(not os.path.exists(in_sysfs(device)), "orphan", said.strip())


def lost(verdict):
    """The record of a device is lost with its daemon: nothing makes a second device, or ends the array under this one."""
    daemon = serve(["a.img", "c.img", "d.img", "e.img"])
    device = attach("--ublk")
    end(daemon, signal.SIGKILL)
    os.rename("restripe/tank.attached", "record")
    daemon = serve(["a.img", "c.img", "d.img", "e.img"])
    said = [refused(RESTRIPE, *words) for words in (["attach", "tank", "--ublk"], ["detach", "tank"], ["stop", "tank"])]
    os.rename("record", "restripe/tank.attached")
    end(daemon, signal.SIGKILL)
    run(RESTRIPE, "detach", "tank")
    good = all(device in words for words in said) and not os.path.exists(in_sysfs(device))
    verdict(good, "lost", said[0].strip().replace("\n", " "))


def stop(verdict):
    daemon = serve(["a.img", "c.img", "d.img", "e.img"])
    if "attached" in status():
        raise Failed("a detached device is back")
    run("modprobe", "nbd")
    device = attach()
    said = refused(RESTRIPE, "attach", "tank", "--ublk")
    run(RESTRIPE, "detach", "tank")
    verdict(device.startswith("/dev/nbd") and "detach it first" in said, "nbd", said.strip())
    device = attach("--ublk")
    run(RESTRIPE, "stop", "tank")
    good = daemon.wait() == 0 and not os.path.exists(in_sysfs(device)) and not os.path.lexists(LINK)
    verdict(good, "stop", "a stop detaches a device that is not in use")


def life(verdict):
    run(RESTRIPE, "create", "tank", "--level", "raid5", "--image-size", "96M", *MEMBERS)
    daemon = serve(MEMBERS)
    without_the_module(verdict)
    device = fresh(verdict)
    raw(verdict, device)
    files(verdict)
    writer = Writer(MOUNT)
    writer.start()
    writer.more(10, "writing")
    daemon = outlive(verdict, writer, daemon)
    daemon = full(verdict, daemon, device)
    daemon = interrupted(verdict, writer, daemon, device)
    daemon = unconnected(verdict, writer, daemon)
    daemon = rebuild(verdict, writer, daemon)
    device = grow(verdict, writer, device)
    leave(verdict, writer, device, daemon)
    lost(verdict)
    stop(verdict)


run("modprobe", "ublk_drv")
lead("ublk", life)
