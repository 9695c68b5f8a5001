"""A mounted ext4 on an array with a surrogate (docs/explanation/md.md): runs as root in a guest, for this kernel's NBD client holds a
mounted device through the death of its server.

    mounted.py RESTRIPE

Serves an array in the guest, attaches its export, makes an ext4 and writes files, each with fsync and its digest noted
then, while: a member fails, its rebuild begins and writes go to the surrogate, the daemon is killed with -9 and started
again, the rebuild ends, and everything comes home. Then fsck must find nothing, and every file must be as it was noted.

Prints `ok mounted/WHAT: ...` or `not ok mounted/WHAT: ...`.
"""

import hashlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

RESTRIPE = os.path.abspath(sys.argv[1])
HOME = ["a.img", "b.img", "c.img", "d.img"]
BOTH = HOME + ["s0.img", "s1.img"]
DEVICE = "/dev/nbd0"
MOUNT = "files"
# Seconds for whatever must come.
PATIENCE = 240
# Files that are written, overwritten and removed in turn.
FILES = 40


class Failed(Exception):
    """Something that must hold does not."""


def verdict(good, name, what):
    print(f"{'ok' if good else 'not ok'} mounted/{name}: {what}", flush=True)


def run(*words):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"{' '.join(words)}: {done.returncode}: {(done.stdout + done.stderr).strip()[-500:]}")
    return done.stdout


def until(condition, what):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise Failed(f"{what}: not within {PATIENCE} s")
        time.sleep(0.05)


# ----------------------------------------------------------------------------------------------- the kernel's client

CONNECT, DISCONNECT, RECONFIGURE = 1, 2, 3
INDEX, SIZE, BLOCK, TIMEOUT, SERVER_FLAGS, SOCKETS, DEAD_TIMEOUT = 1, 2, 3, 4, 5, 7, 8
NESTED = 1 << 15


def attribute(kind, payload):
    data = struct.pack("HH", len(payload) + 4, kind) + payload
    return data + bytes(-len(data) % 4)


def ask(channel, family, command, version, attributes):
    body = struct.pack("BBH", command, version, 0) + attributes
    # NLM_F_REQUEST and NLM_F_ACK.
    channel.send(struct.pack("IHHII", len(body) + 16, family, 5, 1, 0) + body)
    answers = b""
    while True:
        answer = channel.recv(65536)
        at = 0
        while at < len(answer):
            length, kind = struct.unpack_from("IH", answer, at)
            if kind == 2:
                error = -struct.unpack_from("i", answer, at + 16)[0]
                if error:
                    raise Failed(f"netlink: {os.strerror(error)}")
                return answers
            answers += answer[at + 20 : at + length]
            at += (length + 3) & ~3


def nbd(command, attributes):
    channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16)
    channel.bind((0, 0))
    found = ask(channel, 16, 3, 1, attribute(2, b"nbd\0"))
    family, at = None, 0
    while at < len(found):
        length, kind = struct.unpack_from("HH", found, at)
        if kind == 1:
            family = struct.unpack_from("H", found, at + 4)[0]
        at += (length + 3) & ~3
    ask(channel, family, command, 1, attributes)
    channel.close()


def negotiate():
    """A connection to the array's export, ready for the kernel."""
    wire = socket.socket(socket.AF_UNIX)
    wire.connect("nbd.sock")

    def take(count):
        data = b""
        while len(data) < count:
            data += wire.recv(count - len(data))
        return data

    take(18)
    # Fixed newstyle without zeroes; the default export by its name.
    wire.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 1, 0))
    size, flags = struct.unpack(">QH", take(10))
    return wire, size, flags


def connect(command):
    wire, size, flags = negotiate()
    item = attribute(1 | NESTED, attribute(1, struct.pack("I", wire.fileno())))
    attributes = attribute(INDEX, struct.pack("I", 0)) + attribute(SOCKETS | NESTED, item)
    if command == CONNECT:
        numbers = {SIZE: size, BLOCK: 4096, TIMEOUT: 0, SERVER_FLAGS: flags, DEAD_TIMEOUT: PATIENCE}
        attributes += b"".join(attribute(kind, struct.pack("Q", value)) for kind, value in numbers.items())
    nbd(command, attributes)
    # The kernel has it now.
    wire.close()


# ---------------------------------------------------------------------------------------------------------- the daemon


def serve(members, *options):
    command = [RESTRIPE, "serve", "--buffered", "--unix", "nbd.sock", *options, *members]
    daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    if not daemon.stdout.readline().startswith("nbd+unix:"):
        raise Failed("the daemon does not serve")
    return daemon


def status():
    return json.loads(run(RESTRIPE, "status", "tank", "--json"))


def overlay():
    return status()["surrogate"]["overlay"]


# ----------------------------------------------------------------------------------------------------------- the files


class Writer(threading.Thread):
    """Writes files until told to end; what was synced is noted."""

    def __init__(self):
        super().__init__(daemon=True)
        self.noted, self.count, self.error, self.ending = {}, 0, None, False

    def run(self):
        try:
            while not self.ending:
                self.write(self.count)
                self.count += 1
        except OSError as error:
            self.error = error

    def write(self, nth):
        name = f"{MOUNT}/{nth % FILES}"
        data = hashlib.sha256(str(nth).encode()).digest() * (512 + nth * 37 % 4096)
        if nth % 7 == 3 and name in self.noted:
            os.unlink(name)
        self.noted.pop(name, None)
        with open(name, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        folder = os.open(MOUNT, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        self.noted[name] = hashlib.sha256(data).hexdigest()

    def more(self, files, what):
        wanted = self.count + files
        until(lambda: self.error or self.count >= wanted, what)
        if self.error:
            raise Failed(f"{what}: {self.error}")


def judge(noted):
    for name, digest in noted.items():
        with open(name, "rb") as file:
            if hashlib.sha256(file.read()).hexdigest() != digest:
                raise Failed(f"{name} is not as it was synced")
    return len(noted)


# ------------------------------------------------------------------------------------------------------------ the test


def lead():
    options = ["--level", "raid5", "--init", "zero", "--spares", "1", "--image-size", "64M"]
    run(RESTRIPE, "create", "tank", *options, "--surrogate", "s0.img,s1.img", *HOME)
    slowly = ["--rate", "256K..256K", "--redirect", "ido"]
    daemon = serve(BOTH, *slowly)
    connect(CONNECT)
    run("mkfs.ext4", "-q", DEVICE)
    os.makedirs(MOUNT, exist_ok=True)
    run("mount", "-t", "ext4", DEVICE, MOUNT)
    writer = Writer()
    writer.start()
    writer.more(20, "writing")
    run(RESTRIPE, "fail", "tank", "b.img")
    writer.more(20, "writing without a member")
    verdict(overlay()["redirected_writes"] > 0, "away", f"{overlay()['redirected_writes']} writes went to the surrogate")
    daemon.send_signal(signal.SIGKILL)
    daemon.wait()
    daemon = serve(BOTH, *slowly)
    connect(RECONFIGURE)
    writer.more(20, "writing after a kill")
    verdict(overlay()["away_bytes"] > 0, "killed", "the mount outlives the daemon, and something is away")
    run(RESTRIPE, "rebuild", "tank", "--rate", "100M..2G")
    until(lambda: not status()["tasks"] and overlay()["away_bytes"] == 0, "coming home")
    writer.more(5, "writing at home")
    writer.ending = True
    writer.join()
    run("umount", MOUNT)
    run("e2fsck", "-fn", DEVICE)
    verdict(True, "fsck", "finds nothing")
    run("mount", "-t", "ext4", "-o", "ro", DEVICE, MOUNT)
    verdict(True, "files", f"{judge(writer.noted)} of {writer.count} written are as they were synced")
    run("umount", MOUNT)
    nbd(DISCONNECT, attribute(INDEX, struct.pack("I", 0)))
    run(RESTRIPE, "stop", "tank")
    verdict(daemon.wait() == 0, "stop", "the daemon ends well")


def main():
    run("modprobe", "nbd")
    folder = "/tmp/mounted"
    os.makedirs(folder, exist_ok=True)
    run("mount", "-t", "tmpfs", "-o", "size=1G", "none", folder)
    os.chdir(folder)
    os.environ["XDG_RUNTIME_DIR"] = folder
    try:
        lead()
    except (Failed, OSError) as error:
        verdict(False, "led", str(error).replace("\n", " "))
    print("end of jobs", flush=True)


main()
