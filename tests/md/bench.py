"""Linux md's side of the measurement of rebuilds under load (docs/explanation/performance.md): runs as root in a guest with md.

    bench.py PLAN

Every line of PLAN is a point to be measured, words separated by blanks:

    NAME bitmap|ppl STRIPE_CACHE MIN_KIB SECONDS FIO_OPTION...
        A level-5 array of the first four of the guest's simulated disks loses one and is given the fifth, while fio works
        on it: for so many seconds, or until the rebuild ends.

Prints for each `point NAME REBUILT_KIB MILLISECONDS FIO_TERSE`, or `failed NAME: WHAT`.
"""

import os
import signal
import subprocess
import sys
import time

MD = "/dev/md0"
SYSFS = "/sys/block/md0/md/"
DISKS = [f"/dev/nbd{nth}" for nth in range(5)]
SLOTS = 4
# Seconds until fio is at work: in the guest it takes its time to begin.
PATIENCE = 60
# What md may not reach.
NO_LIMIT_KIB = 10_000_000


class Failed(Exception):
    """A step that failed."""


def attribute(name):
    with open(SYSFS + name, encoding="ascii") as file:
        return file.read().strip()


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


def create(hole, stripe_cache):
    clear()
    policy = ["--bitmap=internal"] if hole == "bitmap" else ["--consistency-policy=ppl"]
    shape = ["--level=5", f"--raid-devices={SLOTS}", "--chunk=64"]
    mdadm("--create", MD, "--run", "--assume-clean", *shape, *policy, *DISKS[:SLOTS])
    put(SYSFS + "stripe_cache_size", stripe_cache)


def rebuilt_kib():
    done = attribute("sync_completed").split()[0]
    if attribute("sync_action") == "idle":
        return int(attribute("component_size"))
    return 0 if done in ("none", "delayed") else int(done) // 2


def reads_and_writes():
    with open("/sys/block/md0/stat", encoding="ascii") as file:
        words = file.read().split()
    return int(words[0]) + int(words[4])


def await_work(load):
    idle, end = reads_and_writes(), time.monotonic() + PATIENCE
    while reads_and_writes() < idle + 8:
        if load.poll() is not None or time.monotonic() > end:
            raise Failed("fio does not begin")
        time.sleep(0.01)


def measure(name, hole, stripe_cache, min_kib, seconds, *fio):
    create(hole, stripe_cache)
    put("/proc/sys/dev/raid/speed_limit_min", min_kib)
    put("/proc/sys/dev/raid/speed_limit_max", NO_LIMIT_KIB)
    mdadm(MD, "--fail", DISKS[SLOTS - 1], "--remove", DISKS[SLOTS - 1])
    command = ["fio", f"--filename={MD}", "--ioengine=libaio", "--direct=1", *fio]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as load:
        await_work(load)
        mdadm(MD, "--add", DISKS[SLOTS])
        begin, before = time.monotonic(), rebuilt_kib()
        end = begin + float(seconds)
        while time.monotonic() < end and attribute("sync_action") != "idle":
            time.sleep(0.05)
        after, elapsed = rebuilt_kib(), time.monotonic() - begin
        load.send_signal(signal.SIGINT)
        said = load.stdout.read().decode(errors="replace")
    # fio says so too when it is told to end early.
    terse = next((line for line in said.splitlines() if line.startswith("3;")), None)
    if terse is None:
        raise Failed(f"fio says {said.strip()}")
    print(f"point {name} {after - before} {round(elapsed * 1000)} {terse}", flush=True)


with open(sys.argv[1], encoding="ascii") as plan:
    for line in plan:
        words = line.split()
        try:
            measure(*words)
        except (Failed, OSError, subprocess.SubprocessError) as error:
            print(f"failed {words[0]}: {error}", flush=True)
clear()
print("end of jobs")
