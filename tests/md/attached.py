"""An array attached as a block device (docs/how-to/attach.md): runs as root in a guest whose kernel has the module nbd.

    attached.py RESTRIPE

Prints `ok attached/WHAT: ...` or `not ok attached/WHAT: ...`.
"""

import os
import signal
import subprocess
import time

from kit import LINK, MOUNT, RESTRIPE, Failed, Writer
from kit import attach, end, judge, lead, mount, refused, run, serve, size, status, until

MEMBERS = ["a.img", "b.img", "c.img"]


def pid(device):
    return f"/sys/block/{os.path.basename(device)}/pid"


def without_the_module(verdict):
    run("modprobe", "-r", "nbd")
    said = refused(RESTRIPE, "attach", "tank")
    run("modprobe", "nbd")
    verdict("modprobe nbd" in said, "module", said.strip())


def without_root(verdict):
    """A daemon of another user, with a folder of its own."""
    folder = os.path.abspath("other")
    os.makedirs(folder, mode=0o700)
    os.chown(folder, 65534, 65534)
    user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    around = {**os.environ, "XDG_RUNTIME_DIR": folder}
    members = ["x.img", "y.img"]

    def other(*words):
        command = user + [RESTRIPE, *words]
        return subprocess.Popen(command, cwd=folder, env=around, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    other("create", "other", "--level", "raid1", "--image-size", "32M", *members).communicate()
    daemon = other("serve", "--buffered", "--unix", "nbd.sock", *members)
    until(lambda: os.path.exists(f"{folder}/restripe/other.sock"), "the other daemon")
    said = other("attach", "other").communicate()[0]
    other("stop", "other").communicate()
    daemon.wait()
    verdict("as root" in said, "root", said.strip().replace("\n", " "))


def fresh(verdict):
    device = attach("--timeout", "5s", "--connections", "3")
    told = status()
    attached = told["attached"]
    good = size(device) == told["size_bytes"] and attached["device"] == device and attached["connections"] == 3
    verdict(good, "device", f"{device} has {size(device)} bytes and {attached['connections']} connections")
    again = attach("--timeout", "5s", "--connections", "3") == device
    others = [refused(RESTRIPE, "attach", "tank", word) for word in ("/dev/nbd7", "--read-only")]
    again = again and all("detach it first" in said for said in others)
    verdict(again, "again", " ".join(others).replace("\n", " "))
    run("mkfs.ext4", "-q", LINK)
    mount()
    fio = ["--filename", f"{MOUNT}/fio", "--size", "32M", "--bs", "4k-64k", "--ioengine", "psync", "--direct", "1"]
    run("fio", "--name", "v", "--rw", "randwrite", "--verify", "crc32c", "--verify_fatal", "1", *fio)
    os.unlink(f"{MOUNT}/fio")
    verdict(True, "fio", "32M written at random, read again and verified")
    busy = refused(RESTRIPE, "detach", "tank") + refused(RESTRIPE, "stop", "tank")
    verdict(busy.count(f"mounted at {os.path.abspath(MOUNT)}") == 2, "busy", busy.strip())
    return device


def outlive(verdict, writer, daemon):
    """The daemon is killed, killed again as it comes back, and stopped by a signal, all under load."""
    for _ in range(2):
        end(daemon, signal.SIGKILL)
        daemon = serve(MEMBERS)
        writer.more(10, "writing after a kill")
    verdict(True, "killed", "the mount outlives two kills of the daemon under load")
    end(daemon, signal.SIGKILL)
    time.sleep(7)
    daemon = serve(MEMBERS)
    writer.more(10, "writing after more than the time-out")
    end(daemon, signal.SIGTERM)
    daemon = serve(MEMBERS, "--rate", "4M..4M")
    writer.more(10, "writing after a restart")
    daemon.send_signal(signal.SIGSTOP)
    time.sleep(8)
    daemon.send_signal(signal.SIGCONT)
    writer.more(10, "writing after a pause that exceeds the time-out")
    until(lambda: status()["attached"]["connections"] == 3, "new connections")
    verdict(True, "restarted", "the mount outlives a clean end of the daemon, and a pause of it, under load")
    return daemon


def retried(verdict, writer, daemon):
    """The next daemon cannot reconnect the device at its start, and does so when the cause is gone."""
    record = "restripe/tank.attached"
    with open(record, encoding="utf-8") as file:
        good = file.read()
    end(daemon, signal.SIGKILL)
    with open(record, "w", encoding="utf-8") as file:
        file.write("{}")
    daemon = serve(MEMBERS, "--rate", "4M..4M")
    trouble = status()["attached"]["trouble"]
    said = [refused(RESTRIPE, verb, "tank") for verb in ("attach", "detach", "stop")]
    right = all("cannot be read" in words for words in [trouble, *said])
    with open(record + ".fresh", "w", encoding="utf-8") as file:
        file.write(good)
    os.rename(record + ".fresh", record)
    until(lambda: status()["attached"]["connections"] == 3, "the device to be connected again")
    writer.more(10, "writing after a late reconnection")
    verdict(right and "trouble" not in status()["attached"], "retried", trouble)
    end(daemon, signal.SIGTERM)
    daemon = serve(MEMBERS, "--read-only")
    trouble = status()["attached"]["trouble"]
    said = refused(RESTRIPE, "detach", "tank") + refused(RESTRIPE, "stop", "tank")
    busy = said.count(f"mounted at {os.path.abspath(MOUNT)}") == 2
    end(daemon, signal.SIGTERM)
    daemon = serve(MEMBERS, "--rate", "4M..4M")
    writer.more(10, "writing after the array was served read-only")
    verdict(busy, "unconnected", f"{trouble}; {said.strip()}".replace("\n", " "))
    return daemon


def rebuild(verdict, writer, daemon):
    run(RESTRIPE, "fail", "tank", "b.img")
    writer.more(10, "writing without a member")
    run("truncate", "-s", "96M", "d.img")
    run(RESTRIPE, "add", "tank", "d.img")
    writer.more(10, "writing during the rebuild")
    end(daemon, signal.SIGKILL)
    daemon = serve(["a.img", "c.img", "d.img"], "--rate", "4M..4M")
    writer.more(10, "writing after a kill during the rebuild")
    good = [task["kind"] for task in status()["tasks"]] == ["rebuild"]
    run(RESTRIPE, "rebuild", "tank", "--rate", "100M..2G")
    until(lambda: not status()["tasks"] and status()["state"] == "healthy", "the rebuild")
    writer.more(10, "writing after the rebuild")
    verdict(good, "rebuilt", "a member failed and was rebuilt beneath the mount, in spite of a kill")
    return daemon


def grow(verdict, writer, device):
    before = size(device)
    run("truncate", "-s", "96M", "e.img")
    run(RESTRIPE, "grow", "tank", "--add", "e.img")
    until(lambda: size(device) > before and size(device) == status()["size_bytes"], "the growth")
    run("resize2fs", device)
    blocks = os.statvfs(MOUNT)
    grown = blocks.f_blocks * blocks.f_frsize > before
    with open(f"{MOUNT}/large", "wb") as file:
        for _ in range(before // (1 << 20) - 24):
            file.write(os.urandom(1 << 20))
        os.fsync(file.fileno())
    writer.more(10, "writing after the growth")
    verdict(grown, "grown", f"{before} to {size(device)} bytes, and the file system with it")


def leave(verdict, writer, device, daemon):
    writer.end()
    run("umount", MOUNT)
    run("e2fsck", "-fn", device)
    mount("-o", "ro")
    verdict(True, "files", f"{judge(writer.noted)} of {writer.count} written are as they were synced; fsck finds nothing")
    run("umount", MOUNT)
    run(RESTRIPE, "detach", "tank")
    gone = not os.path.lexists(LINK) and not os.path.exists(pid(device)) and "attached" not in status()
    verdict(gone, "detached", "device, link and record are gone")
    device = attach("--read-only")
    until(lambda: size(device) == status()["size_bytes"], "the size")
    wrote = subprocess.run(["dd", "if=/dev/zero", f"of={device}", "bs=4096", "count=1", "oflag=direct"],
                           stdin=subprocess.DEVNULL, capture_output=True, check=False)
    mount("-o", "ro")
    run("umount", MOUNT)
    verdict(wrote.returncode != 0, "read-only", "the device refuses writes")
    end(daemon, signal.SIGKILL)
    said = run(RESTRIPE, "detach", device)
    verdict(not os.path.exists(pid(device)), "orphan", said.strip())


def stop(verdict):
    daemon = serve(["a.img", "c.img", "d.img", "e.img"])
    if "attached" in status():
        raise Failed("a detached device is back")
    device = attach("/dev/nbd3")
    run("nbd-client", "-d", device)
    until(lambda: "attached" not in status(), "noticing that another program disconnected the device")
    verdict(not os.path.lexists(LINK), "foreign", "a device that another program disconnects is given up")
    device = attach("/dev/nbd3")
    run(RESTRIPE, "stop", "tank")
    good = daemon.wait() == 0 and not os.path.exists(pid(device)) and not os.path.lexists(LINK)
    verdict(good, "stop", "a stop detaches a device that is not in use")


def life(verdict):
    run(RESTRIPE, "create", "tank", "--level", "raid5", "--image-size", "96M", *MEMBERS)
    daemon = serve(MEMBERS)
    without_the_module(verdict)
    without_root(verdict)
    device = fresh(verdict)
    writer = Writer(MOUNT)
    writer.start()
    writer.more(10, "writing")
    daemon = outlive(verdict, writer, daemon)
    daemon = retried(verdict, writer, daemon)
    daemon = rebuild(verdict, writer, daemon)
    grow(verdict, writer, device)
    leave(verdict, writer, device, daemon)
    stop(verdict)


lead("attached", life)
