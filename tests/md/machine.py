"""The disk of a virtual machine (docs/how-to/vhost-user.md): runs as root in a guest of qemu whose disk `judged` is an
array of the host.

    machine.py FOLDER

The host kills and grows what it serves when a file appears in the folder, and answers by another file.
Prints `ok machine/WHAT: ...` or `not ok machine/WHAT: ...`.
"""

import os
import subprocess
import sys

from kit import Failed, judge, kernel_errors, lead, run, until, Writer

HOST = sys.argv[1]
MOUNT = "/tmp/machine/files"


def host(word, answer):
    """Has the host do something, and waits until it has."""
    with open(f"{HOST}/{word}", "w", encoding="ascii"):
        pass
    until(lambda: os.path.exists(f"{HOST}/{answer}"), f"the host's {answer}")


def attribute(disk, name):
    with open(f"/sys/block/{disk}/{name}", encoding="ascii") as file:
        return file.read().strip()


def find():
    for disk in sorted(os.listdir("/sys/block")):
        if disk.startswith("vd") and attribute(disk, "serial") == "judged":
            return disk
    raise Failed("no disk has the array's name")


def life(verdict):
    disk = find()
    queues = len(os.listdir(f"/sys/block/{disk}/mq"))
    cache, discard = attribute(disk, "queue/write_cache"), attribute(disk, "queue/discard_max_bytes")
    verdict(queues == 2 and cache == "write back" and int(discard) > 0, "disk", f"{queues} queues, {cache}")
    device = f"/dev/{disk}"
    run("mkfs.ext4", "-q", "-F", device)
    os.makedirs(MOUNT)
    run("mount", "-o", "discard", device, MOUNT)
    writer = Writer(MOUNT)
    writer.start()
    writer.more(2, "the first files")
    fio = subprocess.Popen(
        ["fio", "--name=verify", f"--directory={MOUNT}", "--size=16M", "--bs=16k", "--rw=randwrite",
         "--ioengine=libaio", "--direct=1", "--iodepth=16", "--numjobs=2", "--verify=crc32c", "--loops=2",
         "--verify_state_save=0"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    host("kill", "killed")
    said = fio.communicate()[0]
    verdict(fio.returncode == 0, "fio", f"over three deaths of the daemon: {said.strip()[-100:]!r}")
    writer.more(2, "files after the deaths")
    writer.end()
    run("fstrim", MOUNT)
    run("umount", MOUNT)
    run("fsck.ext4", "-fn", device)
    run("mount", device, MOUNT)
    verdict(True, "files", f"{judge(writer.noted)} of {writer.count} files are as they were synced")
    run("umount", MOUNT)
    before = int(attribute(disk, "size"))
    host("grow", "grown")
    until(lambda: int(attribute(disk, "size")) > before, "a larger disk", 30)
    verdict(True, "grown", f"from {before} to {attribute(disk, 'size')} sectors")
    with open(f"/sys/block/{disk}/cache_type", "w", encoding="ascii") as file:
        file.write("write through")
    run("dd", "if=/dev/urandom", f"of={device}", "bs=64k", "count=16", "oflag=direct")
    run("blkdiscard", "-z", "-o", "0", "-l", "1M", device)
    with open(device, "rb") as file:
        zeros = file.read(1 << 20) == bytes(1 << 20)
    verdict(zeros and attribute(disk, "cache_type") == "write through", "through", "the mode is kept, and zeros are read")
    errors = kernel_errors("I/O error")
    verdict(not errors, "kernel", errors[0] if errors else "no error in its log")


lead("machine", life)
