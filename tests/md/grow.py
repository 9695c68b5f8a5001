"""Linux md's side of the measurement of growth (docs/explanation/performance.md): runs as root in a guest with md.

    grow.py ROUNDS STRIPE_CACHE...

A level-4 array of the first four of the guest's simulated disks is reshaped onto all five, so often with each stripe cache; nobody else asks for
anything. Prints for each `grown STRIPE_CACHE SECONDS`, or `failed: WHAT`.
"""

import os
import subprocess
import sys
import time

MD = "/dev/md0"
SYSFS = "/sys/block/md0/md/"
DISKS = [f"/dev/nbd{nth}" for nth in range(5)]
# What md may not reach, and its default of the other side.
NO_LIMIT_KIB = 10_000_000
LEAST_KIB = 1_000


class Failed(Exception):
    """A step that failed."""


def put(path, value):
    with open(path, "w", encoding="ascii") as file:
        file.write(str(value))


def mdadm(*words):
    done = subprocess.run(["mdadm", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise Failed(f"mdadm {' '.join(words)}: {done.stdout.decode(errors='replace').strip()}")


def clear():
    """Ends the array, if there is one, and takes its traces off the disks."""
    if os.path.exists(SYSFS):
        mdadm("--stop", MD)
    for disk in DISKS:
        subprocess.run(["mdadm", "--zero-superblock", disk], stderr=subprocess.DEVNULL, check=False)


def idle():
    with open(SYSFS + "sync_action", encoding="ascii") as file:
        return file.read().strip() == "idle"


def grow(nth, stripe_cache):
    clear()
    shape = ["--level=4", f"--raid-devices={len(DISKS) - 1}", "--chunk=64", "--bitmap=none"]
    mdadm("--create", MD, "--run", "--assume-clean", *shape, *DISKS[:-1])
    put(SYSFS + "stripe_cache_size", stripe_cache)
    put("/proc/sys/dev/raid/speed_limit_min", LEAST_KIB)
    put("/proc/sys/dev/raid/speed_limit_max", NO_LIMIT_KIB)
    mdadm(MD, "--add", DISKS[-1])
    begin = time.monotonic()
    mdadm("--grow", MD, f"--raid-devices={len(DISKS)}", f"--backup-file=/dev/shm/backup{nth}")
    time.sleep(0.05)
    while not idle():
        time.sleep(0.05)
    print(f"grown {stripe_cache} {time.monotonic() - begin:.2f}", flush=True)


try:
    for nth in range(int(sys.argv[1])):
        for cache in sys.argv[2:]:
            grow(f"{nth}-{cache}", cache)
    clear()
except (Failed, OSError, subprocess.SubprocessError) as error:
    print(f"failed: {error}", flush=True)
