"""A mounted ext4 over Linux's own iSCSI initiator: runs as root in a guest whose kernel has iscsi_tcp and dm-multipath.

    iscsi.py RESTRIPE

Serves an array in the guest and logs in to it. Files are written, each with fsync and its digest noted then, while a member
fails and is rebuilt, and the daemon is killed with -9 and started again. The same once more over two sessions under
dm-multipath, where each path fails in turn. Then fsck must find nothing, every file must be as it was noted, and the
kernel must have reported no I/O error: of a single session none, of two paths none that both had.

Prints `ok iscsi/WHAT: ...` or `not ok iscsi/WHAT: ...`.
"""

import glob
import os
import signal
import subprocess

from kit import RESTRIPE, Writer, judge, kernel_errors, lead, run, serve, status, until

MEMBERS = ["a.img", "b.img", "c.img", "d.img"]
LOST = "b.img"
PORTALS = ["127.0.0.2:3260", "127.0.0.3:3260"]
# All portals are addresses of the loopback, and reach the same daemon.
PORTAL = "--iscsi=0.0.0.0:3260"
TARGET = "iqn.2026-11.restripe:tank"
MOUNT = "files"
PATHS = "/dev/mapper/paths"
SETTINGS = {
    "node.session.timeo.replacement_timeout": "240",
    "node.conn[0].iscsi.HeaderDigest": "CRC32C",
    "node.conn[0].iscsi.DataDigest": "CRC32C",
}
SOON = {
    "node.session.timeo.replacement_timeout": "2",
    "node.conn[0].timeo.noop_out_interval": "1",
    "node.conn[0].timeo.noop_out_timeout": "1",
}


# ---------------------------------------------------------------------------------------------------------- the daemon


def is_whole():
    return status()["state"] == "healthy" and not status()["tasks"]


def kill(daemon):
    daemon.send_signal(signal.SIGKILL)
    daemon.wait()
    return serve(MEMBERS, PORTAL)


# ------------------------------------------------------------------------------------------------------- the initiator


def discover():
    # The guest's root is read-only.
    for folder in ("/etc/iscsi", "/run/lock"):
        run("mount", "-t", "tmpfs", "none", folder)
    with open("/etc/iscsi/iscsid.conf", "w") as file:
        file.write("node.startup = manual\n")
    with open("/etc/iscsi/initiatorname.iscsi", "w") as file:
        file.write("InitiatorName=iqn.2026-11.org.example:guest\n")
    subprocess.Popen(["iscsid", "-f"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for portal in PORTALS:
        until(lambda portal=portal: is_found(portal), f"discovery at {portal}")
        set_up(portal, SETTINGS)


def is_found(portal):
    words = ["iscsiadm", "-m", "discovery", "-t", "sendtargets", "-p", portal]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode == 0 and TARGET in done.stdout


def node(portal, *words):
    return run("iscsiadm", "-m", "node", "-T", TARGET, "-p", portal, *words)


def set_up(portal, settings):
    for name, value in settings.items():
        node(portal, "-o", "update", "-n", name, "-v", value)


def logout(portals):
    for portal in portals:
        node(portal, "--logout")
    until(lambda: not disks(), "the logout")


def disks():
    return sorted(glob.glob("/sys/block/sd*"))


def login(portal):
    """The name of the disk that a login to a portal gives."""
    before = disks()
    node(portal, "--login")
    until(lambda: len(disks()) > len(before), f"a disk of {portal}")
    return os.path.basename(next(disk for disk in disks() if disk not in before))


def size(disk):
    with open(f"/sys/block/{disk}/size") as file:
        return int(file.read())


def identity(disk):
    with open(f"/sys/block/{disk}/device/wwid") as file:
        return file.read().strip()


def number(disk):
    with open(f"/sys/block/{disk}/dev") as file:
        return file.read().strip()


def cut(portal, how):
    """Drops what is sent to a portal's address, or (`del`) does so no more."""
    run("ip", "rule", how, "pref", "10", "to", portal.split(":")[0], "blackhole")


# ------------------------------------------------------------------------------------------------------------ the test


def write_through(device, daemon, mkfs, interrupt):
    """Files are written on a device through a member's failure, an interruption and a rebuild. The daemon then."""
    if mkfs:
        run("mkfs.ext4", "-q", device)
    run("mount", "-t", "ext4", "-o", "errors=remount-ro", device, MOUNT)
    writer = Writer(MOUNT)
    writer.start()
    writer.more(20, "writing")
    run(RESTRIPE, "fail", "tank", LOST)
    writer.more(20, "writing without a member")
    daemon = interrupt(writer, daemon)
    run(RESTRIPE, "remove", "tank", LOST)
    run(RESTRIPE, "add", "tank", LOST)
    writer.more(10, "writing during a rebuild")
    until(is_whole, "the rebuild")
    writer.more(10, "writing after the rebuild")
    writer.end()
    run("umount", MOUNT)
    run("e2fsck", "-fn", device)
    run("mount", "-t", "ext4", "-o", "ro", device, MOUNT)
    told = f"{judge(writer.noted)} files of {writer.count} written are as they were synced"
    run("umount", MOUNT)
    return daemon, told


def killed(writer, daemon):
    daemon = kill(daemon)
    writer.more(20, "writing after a kill")
    return daemon


def paths_fail(first, second):
    """Each path is cut, and comes back; then both go with the daemon."""

    def interrupt(writer, daemon):
        for portal in PORTALS:
            cut(portal, "add")
            writer.more(10, f"writing without {portal}")
            cut(portal, "del")
            bring_back(writer, (first, second))
        daemon = kill(daemon)
        bring_back(writer, (first, second))
        writer.more(20, "writing after a kill")
        return daemon

    return interrupt


def bring_back(writer, disks):
    """Both paths are used again: what multipathd does."""
    count = writer.count

    def back():
        for disk in disks:
            run("dmsetup", "message", "paths", "0", f"reinstate_path {number(disk)}")
        states = run("dmsetup", "status", "paths")
        return writer.count > count + 5 and all(f"{number(disk)} A" in states for disk in disks)

    until(back, "both paths")


def single(daemon, verdict):
    disk = login(PORTALS[0])
    daemon, told = write_through(f"/dev/{disk}", daemon, True, killed)
    verdict(True, "files", told)
    logout(PORTALS[:1])
    bad = kernel_errors("I/O error")
    verdict(not bad, "errors", bad[0] if bad else "no request of a session failed")
    return daemon


def multipath(daemon, verdict):
    # What is sent to an address can only be dropped before the table of local addresses is looked at.
    run("ip", "rule", "add", "pref", "100", "lookup", "local")
    run("ip", "rule", "del", "pref", "0")
    for portal in PORTALS:
        set_up(portal, SOON)
    first, second = (login(portal) for portal in PORTALS)
    verdict(identity(first) == identity(second), "identity", f"{first} and {second} are {identity(first)}")
    paths = f"/dev/{first} 1 /dev/{second} 1"
    table = f"0 {size(first)} multipath 1 queue_if_no_path 0 1 1 round-robin 0 2 1 {paths}"
    run("dmsetup", "create", "paths", "--noudevsync", "--table", table)
    run("dmsetup", "mknodes", "paths")
    daemon, told = write_through(PATHS, daemon, False, paths_fail(first, second))
    verdict(True, "multipath", told)
    run("dmsetup", "remove", "paths")
    logout(PORTALS)
    return daemon


def life(verdict):
    os.makedirs(MOUNT, exist_ok=True)
    options = ["--level", "raid5", "--init", "zero", "--image-size", "64M"]
    run(RESTRIPE, "create", "tank", *options, *MEMBERS)
    daemon = serve(MEMBERS, PORTAL)
    discover()
    daemon = multipath(single(daemon, verdict), verdict)
    # A path that was cut fails requests, and the other one takes them.
    bad = kernel_errors("EXT4-fs error", "Buffer I/O error", "I/O error, dev dm-")
    verdict(not bad, "kernel", bad[0] if bad else "reports no error of a file system, or of both paths")
    run(RESTRIPE, "stop", "tank")
    verdict(daemon.wait() == 0, "stop", "the daemon ends well")


for module in ("iscsi_tcp", "sd_mod", "dm_multipath", "dm_round_robin"):
    run("modprobe", module)
run("ip", "link", "set", "lo", "up")
lead("iscsi", life)
