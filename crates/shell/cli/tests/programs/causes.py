#!/usr/bin/env python3
"""Programs that lose a promise for a reason that is easily mistaken for another one, and their correct twins.

    causes.py run NAME [twin]     in the directory: does the work, promises by lines to $ORDO_MARK
    causes.py check NAME          in the directory of a state: exit status 0, or 1 with what is missing

Each also changes `a-cache`, of which nothing is promised and which is never synced: it differs in most states, is the
first in the alphabet, and is never to blame.
"""
import ctypes
import mmap
import os
import struct
import sys

from rounds import acked, fail, mark

ROUNDS = 3
PAGE = 4096


def opened(path, flags=0):
    return os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o644)


def sync(path="."):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def cached(n):
    fd = opened("a-cache")
    os.pwrite(fd, bytes([n]) * PAGE, 0)
    os.close(fd)


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def rounds():
    for n in range(1, ROUNDS + 1):
        cached(n)
        yield n
        mark(f"done {n}")


def need(good, path, n):
    if not good:
        fail(f"round {n} was promised, and is not in {path}")


# A log and a small file whose descriptors sync each write; the small file is renamed.

def run_synced_writes(twin):
    log = opened("log", os.O_APPEND | os.O_DSYNC)
    sync()
    for n in rounds():
        os.write(log, b"%07d\n" % n)
        new = opened("new", os.O_TRUNC | os.O_SYNC)
        os.write(new, b"%d" % n)
        os.close(new)
        os.rename("new", "state")
        if twin:
            sync()


def check_synced_writes(n):
    need(len(read("log")) >= 8 * n, "log", n)
    need(int(read("state") or 0) >= n, "state", n)


# Two files that are mapped; only one is msynced, or only its first page.

def mapping(path):
    fd = opened(path)
    os.write(fd, bytes(2 * PAGE))
    os.fsync(fd)
    return mmap.mmap(fd, 2 * PAGE)


def run_mapped(twin):
    data, index = mapping("data"), mapping("index")
    sync()
    for n in rounds():
        for pages in (data, index):
            pages[:] = bytes([n]) * (2 * PAGE)
        data.flush()
        if twin:
            index.flush()


def check_mapped(n):
    for path in ("data", "index"):
        need(min(read(path)) >= n, path, n)


# The page is far behind the other one: the kernel may keep neighbours in one piece, and write them together.
FAR = 1 << 20


def run_mapped_pages(twin):
    fd = opened("index")
    for at in (0, FAR):
        os.pwrite(fd, bytes(PAGE), at)
        os.fsync(fd)
    index = mmap.mmap(fd, FAR + PAGE)
    sync()
    for n in rounds():
        for at in (0, FAR):
            index[at:at + PAGE] = bytes([n]) * PAGE
        index.flush(0, FAR + PAGE if twin else PAGE)


def check_mapped_pages(n):
    index = read("index")
    need(min(index[:PAGE] + index[FAR:]) >= n, "index", n)


# Records that are written through a ring of io_uring.

class Ring:
    WRITE, FSYNC = 23, 3

    def __init__(self):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.params = ctypes.create_string_buffer(120)
        self.fd = self.libc.syscall(425, 4, self.params)
        if self.fd < 0:
            sys.exit("no ring")
        entries, done = struct.unpack_from("<II", self.params, 0)
        sent, ended = struct.unpack_from("<8I", self.params, 40), struct.unpack_from("<8I", self.params, 80)
        self.tail, self.mask, self.array = sent[1], sent[2], sent[6]
        self.head_done, self.mask_done, self.results = ended[0], ended[2], ended[5]
        shared = mmap.MAP_SHARED
        self.sent = mmap.mmap(self.fd, self.array + 4 * entries, shared, offset=0)
        self.done = mmap.mmap(self.fd, self.results + 16 * done, shared, offset=0x8000000)
        self.entries = mmap.mmap(self.fd, 64 * entries, shared, offset=0x10000000)

    def request(self, what, fd, data=b"", at=0):
        number = lambda area, place: struct.unpack_from("<I", area, place)[0]
        kept = ctypes.create_string_buffer(data, len(data) or 1)
        tail = number(self.sent, self.tail)
        slot = tail & number(self.sent, self.mask)
        entry = struct.pack("<BBHiQQI", what, 0, 0, fd, at, data and ctypes.addressof(kept) or 0, len(data))
        self.entries[64 * slot:64 * slot + 64] = entry.ljust(64, b"\0")
        struct.pack_into("<I", self.sent, self.array + 4 * slot, slot)
        struct.pack_into("<I", self.sent, self.tail, tail + 1)
        self.libc.syscall(426, self.fd, 1, 1, 1, None, 0)
        head = number(self.done, self.head_done)
        place = self.results + 16 * (head & number(self.done, self.mask_done))
        result = struct.unpack_from("<i", self.done, place + 8)[0]
        struct.pack_into("<I", self.done, self.head_done, head + 1)
        assert result == len(data), result


def run_ring(twin):
    ring, log = Ring(), opened("log")
    os.fsync(log)
    sync()
    for n in rounds():
        ring.request(Ring.WRITE, log, bytes([n]) * PAGE, (n - 1) * PAGE)
        if twin:
            ring.request(Ring.FSYNC, log)


def check_ring(n):
    need(set(range(1, n + 1)) <= set(read("log")), "log", n)


# A directory is made, filled and renamed; only the name is made durable.

def run_renamed_directory(twin):
    for n in rounds():
        os.mkdir("new")
        fd = opened("new/part")
        os.write(fd, bytes([n]) * PAGE)
        if twin:
            os.fsync(fd)
            sync("new")
        os.close(fd)
        os.rename("new", f"set-{n}")
        sync()


def check_renamed_directory(n):
    need(read(f"set-{n}/part") == bytes([n]) * PAGE, f"set-{n}/part", n)


# Files are removed, and others moved away.

def run_removed(twin):
    os.mkdir("in")
    for n in range(1, ROUNDS + 1):
        os.close(opened(f"in/{n}"))
    os.sync()
    for n in rounds():
        os.unlink(f"in/{n}")
        if twin:
            sync("in")


def check_removed(n):
    if os.path.exists(f"in/{n}"):
        fail(f"in/{n} was removed, and is there")


# A header that is synced, and a record that is appended behind it and is not.

def run_appended_part(twin):
    log = opened("log")
    os.write(log, bytes(PAGE))
    os.fsync(log)
    sync()
    for n in rounds():
        os.pwrite(log, b"%d" % n, 0)
        os.fdatasync(log)
        os.pwrite(log, b"%07d\n" % n, PAGE + 8 * (n - 1))
        if twin:
            os.fdatasync(log)


def check_appended_part(n):
    need(read("log")[PAGE:].startswith(b"".join(b"%07d\n" % i for i in range(1, n + 1))), "log", n)


# The log is synced twice, the index never.

def run_second_fsync(twin):
    log, index = opened("wal", os.O_APPEND), opened("index")
    os.fsync(log)
    os.fsync(index)
    sync()
    for n in rounds():
        os.pwrite(index, b"%d" % n, 0)
        os.write(log, b"%d" % n)
        os.fsync(log)
        os.fsync(index if twin else log)


def check_second_fsync(n):
    need(int(read("index") or 0) >= n, "index", n)


def main():
    what, name = sys.argv[1], sys.argv[2].replace("-", "_")
    if what == "run":
        globals()[f"run_{name}"](sys.argv[3:] == ["twin"])
        return
    for n in acked():
        globals()[f"check_{name}"](n)


main()
