"""Linux md's side of the comparison (docs/explanation/md.md): runs as root in a guest whose kernel has md.

    guest.py JOBS NOISE

JOBS has one job a line, words separated by blanks, paths relative to the working directory; NOISE is a member full of
noise. One process does nearly everything: starting one takes long in an emulated guest.

    judge NAME LEVEL LAYOUT CHUNK_KIB SIZE_KIB OFFSET_KIB EXPECTED agrees|differs MEMBER...
        Members written by Restripe (`missing` for a vacant slot) are copied to memory disks and made an array of with
        --assume-clean. It must read as EXPECTED, and a check must find no mismatch; or, with `differs`, some.
    live NAME LEVEL LAYOUT CHUNK_KIB SIZE_KIB OFFSET_KIB FOLDER MEMBERS
        md makes an array and leads the life that FOLDER/life tells, one step a line: `lose SLOT`, `rebuild`,
        `write PLAN IMAGE`, `keep NAME`, which leaves each slot's data in FOLDER/NAME.SLOT.

Prints `ok NAME: WHAT` or `not ok NAME: WHAT` for each comparison.
"""

import mmap
import os
import subprocess
import sys
import time

MD = "/dev/md0"
SYSFS = "/sys/block/md0/md/"
DISKS = 12
SECTOR = 512
# Bytes of one direct transfer.
PIECE = 1 << 20
# Seconds that md may take for a step.
PATIENCE = 60
BUFFER = memoryview(mmap.mmap(-1, PIECE))


class Failed(Exception):
    """A step of md's that failed."""


def disk(nth):
    return f"/dev/ram{nth}"


def verdict(good, name, what):
    print(f"{'ok' if good else 'not ok'} {name}: {what}", flush=True)


def until(condition, what):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise Failed(f"{what}: not within {PATIENCE} s")
        time.sleep(0.01)


def contents(path):
    with open(path, "rb") as file:
        return file.read()


def attribute(name):
    return contents(SYSFS + name).decode().strip()


def set_attribute(name, value):
    with open(SYSFS + name, "w", encoding="ascii") as file:
        file.write(value)


# ------------------------------------------------------------------------------------------------- direct transfers


def write_direct(device, at, data):
    descriptor = os.open(device, os.O_WRONLY | os.O_DIRECT)
    try:
        for start in range(0, len(data), PIECE):
            piece = data[start : start + PIECE]
            BUFFER[: len(piece)] = piece
            if os.pwritev(descriptor, [BUFFER[: len(piece)]], at + start) != len(piece):
                raise Failed(f"{device} takes part of a write")
    finally:
        os.close(descriptor)


def read_direct(device, at, length):
    descriptor = os.open(device, os.O_RDONLY | os.O_DIRECT)
    data = bytearray()
    try:
        while len(data) < length:
            want = min(PIECE, length - len(data))
            got = os.preadv(descriptor, [BUFFER[:want]], at + len(data))
            if got <= 0:
                raise Failed(f"{device} ends at byte {at + len(data)}")
            data += BUFFER[:got]
    finally:
        os.close(descriptor)
    return bytes(data)


def size_of(device):
    descriptor = os.open(device, os.O_RDONLY)
    try:
        return os.lseek(descriptor, 0, os.SEEK_END)
    finally:
        os.close(descriptor)


# ----------------------------------------------------------------------------------------------------------- arrays


def mdadm(*words):
    done = subprocess.run(["mdadm", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        said = done.stdout.decode(errors="replace").strip().splitlines()
        raise Failed(f"mdadm {' '.join(words)}: {said[-1] if said else done.returncode}")


class Array:
    """An array of md's while it lasts."""

    def __init__(self, shape, devices, *options):
        self.level, layout, chunk, self.size, self.offset = shape
        words = ["--create", MD, "--run", "--metadata=1.2", f"--level={self.level}", f"--raid-devices={len(devices)}"]
        words.append(f"--data-offset={self.offset}K")
        if layout != "-":
            words.append(f"--layout={layout}")
        if self.level != "1":
            words.append(f"--chunk={chunk}")
        if self.level != "0":
            # md sets no size on level 0: its array is longer than ours, and the beginning is compared.
            words += [f"--size={self.size}", "--bitmap=none"]
        self.members = len(devices)
        mdadm(*words, *options, *devices)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        set_attribute("array_state", "clear")
        until(lambda: not os.path.exists(SYSFS), "ending the array")

    def settle(self):
        if self.level != "0":
            until(lambda: attribute("sync_action") == "idle", attribute("sync_action"))

    def mismatches(self):
        set_attribute("sync_action", "check")
        self.settle()
        return int(attribute("mismatch_cnt"))

    def device_of(self, slot):
        link = f"{SYSFS}rd{slot}/block"
        return os.path.basename(os.path.realpath(link)) if os.path.exists(link) else None

    def lose(self, slot):
        device = self.device_of(slot)
        set_attribute(f"dev-{device}/state", "faulty")

        def removed():
            try:
                set_attribute(f"dev-{device}/state", "remove")
            except OSError:
                return False  # still in use
            return True

        until(removed, f"removing {device}")

    def rebuild(self, noise):
        fresh = self.members
        while attribute("degraded") != "0":
            before = attribute("degraded")
            write_direct(disk(fresh), 0, noise)
            mdadm(MD, "--add", disk(fresh))
            fresh += 1
            until(lambda: attribute("degraded") != before, "rebuilding")
            self.settle()

    def write(self, plan, image):
        data = contents(image)
        for line in contents(plan).decode().splitlines():
            at, length = (int(word) * SECTOR for word in line.split())
            write_direct(MD, at, data[at : at + length])

    def keep(self, name):
        for slot in range(self.members):
            device = self.device_of(slot)
            if device is not None:
                data = read_direct(f"/dev/{device}", int(self.offset) * 1024, int(self.size) * 1024)
                with open(f"{name}.{slot}", "wb") as file:
                    file.write(data)


# ------------------------------------------------------------------------------------------------------------- jobs


def first_difference(ours, theirs):
    sectors = range(0, len(ours), SECTOR)
    return next(at // SECTOR for at in sectors if ours[at : at + SECTOR] != theirs[at : at + SECTOR])


def judge(name, *words):
    shape, expected, verdict_wanted, members = words[:5], contents(words[5]), words[6], words[7:]
    devices = []
    for nth, member in enumerate(members):
        if member == "missing":
            devices.append(member)
            continue
        write_direct(disk(nth), 0, contents(member))
        devices.append(disk(nth))
    with Array(shape, devices, "--assume-clean") as array:
        size = size_of(MD)
        verdict(size == len(expected) or array.level == "0", name, f"md's array has {size} bytes, ours {len(expected)}")
        agrees = verdict_wanted == "agrees"
        if agrees:
            # With copies that differ md may read either.
            read = read_direct(MD, 0, len(expected))
            same = read == expected
            where = "" if same else f", but sector {first_difference(expected, read)}"
            verdict(same, name, f"md reads what was written{where}")
        if array.level != "0":
            count = array.mismatches()
            verdict((count == 0) == agrees, name, f"md's check finds {count} sectors that disagree")


def live(name, *words):
    shape, folder, members = words[:5], words[5], int(words[6])
    noise = contents(NOISE)
    for nth in range(members):
        write_direct(disk(nth), 0, noise)
    with Array(shape, [disk(nth) for nth in range(members)]) as array:
        array.settle()
        for line in contents(f"{folder}/life").decode().splitlines():
            match line.split():
                case ["lose", slot]:
                    array.lose(int(slot))
                case ["rebuild"]:
                    array.rebuild(noise)
                case ["write", plan, image]:
                    array.write(f"{folder}/{plan}", f"{folder}/{image}")
                case ["keep", stage]:
                    array.keep(f"{folder}/{stage}")
        if array.level != "0":
            count = array.mismatches()
            verdict(count == 0, name, f"md's check of its own finds {count} sectors that disagree")


def run(kind, name, *words):
    try:
        {"judge": judge, "live": live}[kind](name, *words)
    except (Failed, OSError) as error:
        verdict(False, name, error)


JOBS, NOISE = sys.argv[1:]
subprocess.run(["rmmod", "brd"], check=False)
subprocess.run(["modprobe", "brd", f"rd_nr={DISKS}", f"rd_size={os.path.getsize(NOISE) // 1024}"], check=True)
for limit in ("min", "max"):
    with open(f"/proc/sys/dev/raid/speed_limit_{limit}", "w", encoding="ascii") as file:
        file.write("1000000")
for job in contents(JOBS).decode().splitlines():
    run(*job.split())
print("end of jobs")
