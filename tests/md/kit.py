"""What the scripts that run Restripe in a guest share: commands, patience, and files that are judged afterwards."""

import hashlib
import json
import os
import subprocess
import sys
import threading
import time

RESTRIPE = os.path.abspath(sys.argv[1])
# Seconds for whatever must come.
PATIENCE = 240
LINK = "/dev/restripe/tank"
MOUNT = "files"
# Files that are written, overwritten and removed in turn.
FILES = 40


class Failed(Exception):
    """Something that must hold does not."""


def run(*words):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"{' '.join(words)}: {done.returncode}: {(done.stdout + done.stderr).strip()[-500:]}")
    return done.stdout


def refused(*words):
    """What a command said that must fail."""
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        raise Failed(f"{' '.join(words)} succeeds: {done.stdout}")
    return done.stdout + done.stderr


def until(condition, what, seconds=PATIENCE):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise Failed(f"{what}: not within {seconds} s")
        time.sleep(0.05)


def serve(members, *options):
    command = [RESTRIPE, "serve", "--buffered", "--unix", "nbd.sock", *options, *members]
    daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    if not daemon.stdout.readline().startswith("nbd+unix:"):
        raise Failed("the daemon does not serve")
    return daemon


def status():
    return json.loads(run(RESTRIPE, "status", "tank", "--json"))


def end(daemon, number):
    daemon.send_signal(number)
    daemon.wait()


def attach(*options):
    run(RESTRIPE, "attach", "tank", *options)
    return os.path.realpath(LINK)


def size(device):
    return int(run("blockdev", "--getsize64", device))


def mount(*options):
    os.makedirs(MOUNT, exist_ok=True)
    run("mount", "-t", "ext4", *options, LINK, MOUNT)


class Writer(threading.Thread):
    """Writes files below a folder until it is to end; what was synced is noted."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.folder = folder
        self.noted, self.count, self.error, self.ending = {}, 0, None, False
        # Seconds between two files.
        self.pause = 0

    def run(self):
        try:
            while not self.ending:
                self.write(self.count)
                self.count += 1
                time.sleep(self.pause)
        except OSError as error:
            self.error = error

    def write(self, nth):
        name = f"{self.folder}/{nth % FILES}"
        data = hashlib.sha256(str(nth).encode()).digest() * (512 + nth * 37 % 4096)
        if nth % 7 == 3 and name in self.noted:
            os.unlink(name)
        self.noted.pop(name, None)
        with open(name, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        folder = os.open(self.folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        self.noted[name] = hashlib.sha256(data).hexdigest()

    def more(self, files, what):
        wanted = self.count + files
        until(lambda: self.error or self.count >= wanted, what)
        if self.error:
            raise Failed(f"{what}: {self.error}")

    def end(self):
        self.ending = True
        self.join()
        if self.error:
            raise Failed(f"the last write: {self.error}")


def kernel_errors(*words):
    """The lines of the kernel's log that have one of these words."""
    return [line for line in run("dmesg").splitlines() if any(word in line for word in words)]


def judge(noted):
    """Every noted file must be as it was synced; how many."""
    for name, digest in noted.items():
        with open(name, "rb") as file:
            if hashlib.sha256(file.read()).hexdigest() != digest:
                raise Failed(f"{name} is not as it was synced")
    return len(noted)


def lead(name, life):
    """Runs a life in a folder in memory; an error is a verdict."""

    def verdict(good, what, text):
        print(f"{'ok' if good else 'not ok'} {name}/{what}: {text}", flush=True)

    folder = f"/tmp/{name}"
    os.makedirs(folder, exist_ok=True)
    run("mount", "-t", "tmpfs", "-o", "size=1G", "none", folder)
    os.chdir(folder)
    os.environ["XDG_RUNTIME_DIR"] = folder
    try:
        life(verdict)
    except (Failed, OSError) as error:
        verdict(False, "led", str(error).replace("\n", " "))
    print("end of jobs", flush=True)
