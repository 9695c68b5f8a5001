"""A mounted ext4 on an array with a surrogate (docs/explanation/md.md): runs as root in a guest, for this kernel's NBD client holds a
mounted device through the death of its server.

    mounted.py RESTRIPE

Serves an array in the guest, attaches it, makes an ext4 and writes files, each with fsync and its digest noted
then, while: a member fails, its rebuild begins and writes go to the surrogate, the daemon is killed with -9 and started
again, the rebuild ends, and everything comes home. Then fsck must find nothing, and every file must be as it was noted.

Prints `ok mounted/WHAT: ...` or `not ok mounted/WHAT: ...`.
"""

import os
import signal

from kit import RESTRIPE, Writer, judge, lead, run, serve, status, until

HOME = ["a.img", "b.img", "c.img", "d.img"]
BOTH = HOME + ["s0.img", "s1.img"]
DEVICE = "/dev/restripe/tank"
MOUNT = "files"


def overlay():
    return status()["surrogate"]["overlay"]


def life(verdict):
    options = ["--level", "raid5", "--init", "zero", "--spares", "1", "--image-size", "64M"]
    run(RESTRIPE, "create", "tank", *options, "--surrogate", "s0.img,s1.img", *HOME)
    slowly = ["--rate", "256K..256K", "--redirect", "ido"]
    daemon = serve(BOTH, *slowly)
    run(RESTRIPE, "attach", "tank", "--timeout", "5s")
    run("mkfs.ext4", "-q", DEVICE)
    os.makedirs(MOUNT, exist_ok=True)
    run("mount", "-t", "ext4", DEVICE, MOUNT)
    writer = Writer(MOUNT)
    writer.start()
    writer.more(20, "writing")
    run(RESTRIPE, "fail", "tank", "b.img")
    writer.more(20, "writing without a member")
    verdict(overlay()["redirected_writes"] > 0, "away", f"{overlay()['redirected_writes']} writes went to the surrogate")
    daemon.send_signal(signal.SIGKILL)
    daemon.wait()
    daemon = serve(BOTH, *slowly)
    writer.more(20, "writing after a kill")
    verdict(overlay()["away_bytes"] > 0, "killed", "the mount outlives the daemon, and something is away")
    run(RESTRIPE, "rebuild", "tank", "--rate", "100M..2G")
    # Writes to what is in the log are redirected as well: at full speed they would keep it from becoming empty.
    writer.pause = 0.2
    until(lambda: not status()["tasks"] and overlay()["away_bytes"] == 0, "coming home")
    writer.more(5, "writing at home")
    writer.end()
    run("umount", MOUNT)
    run("e2fsck", "-fn", DEVICE)
    verdict(True, "fsck", "finds nothing")
    run("mount", "-t", "ext4", "-o", "ro", DEVICE, MOUNT)
    verdict(True, "files", f"{judge(writer.noted)} of {writer.count} written are as they were synced")
    run("umount", MOUNT)
    run(RESTRIPE, "stop", "tank")
    verdict(daemon.wait() == 0, "stop", "the daemon ends well")


run("modprobe", "nbd")
lead("mounted", life)
