#!/usr/bin/env python3
"""Programs with one well-known mistake each, their correct twins, and what a state must have.

    mistakes.py run NAME [twin]     in the directory: does the work, promises by lines to $ORDO_MARK
    mistakes.py check NAME          in the directory of a state: exit status 0, or 1 with what is missing
    mistakes.py list                names

Each stands for a habit seen in real programs. A record has a number and enough bytes to fill blocks.
"""
import ctypes
import os
import struct
import sys
import time
import zlib

BLOCK = 4096
ROUNDS = 3


def mark(text):
    with open(os.environ["ORDO_MARK"], "w") as marks:
        marks.write(text + "\n")


def acked():
    with open(os.environ["ORDO_ACKED"]) as lines:
        return [int(line.split()[1]) for line in lines if line.strip()]


def pending():
    with open(os.environ["ORDO_PENDING"]) as lines:
        return [int(line.split()[1]) for line in lines if line.strip()]


def promised(n):
    mark(f"done {n}")


def begin(n):
    mark(f"begin done {n}")


def fail(text):
    print(text)
    sys.exit(1)


def contents(n, blocks=3):
    """Blocks that all say which round they are of."""
    return struct.pack("<I", n).ljust(16, b".") * (BLOCK // 16 * blocks)


def write(path, data, flags=os.O_WRONLY | os.O_CREAT | os.O_TRUNC, sync=True):
    fd = os.open(path, flags, 0o644)
    os.write(fd, data)
    if sync:
        os.fsync(fd)
    os.close(fd)


def sync_dir(path="."):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)


def whole(path):
    """The round that a file is of, all of it; None where there is no file."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return None
    rounds = {data[at:at + 4] for at in range(0, len(data), 16)}
    if len(data) != 3 * BLOCK or len(rounds) != 1:
        fail(f"{path} is torn: {len(data)} bytes of {len(rounds)} rounds")
    return struct.unpack("<I", rounds.pop())[0]


def newest_is_there(path):
    found = whole(path)
    for n in acked():
        if found is None or found < n:
            fail(f"round {n} was promised, {path} has {found}")


def pause():
    """Time in which the kernel may write what it has."""
    time.sleep(0.12)


# A file is replaced by rename; nobody waits for its contents. (An fsync of the directory would hide it where the
# journal writes contents first.)
def rename_without_file_sync(twin):
    for n in range(1, ROUNDS + 1):
        begin(n)
        write("new", contents(n), sync=twin)
        os.rename("new", "db")
        if twin:
            sync_dir()
        promised(n)
        pause()


# The contents are waited for, the rename is not.
def rename_without_dir_sync(twin):
    for n in range(1, ROUNDS + 1):
        begin(n)
        write("new", contents(n))
        os.rename("new", "db")
        if twin:
            sync_dir()
        promised(n)


# A new file is promised that nobody waited for: it is empty, its name is all there is.
def create_without_dir_sync(twin):
    for n in range(1, ROUNDS + 1):
        os.mkdir(f"item{n}")
        if twin:
            sync_dir()
        promised(n)


def check_created():
    for n in acked():
        if not os.path.isdir(f"item{n}"):
            fail(f"directory {n} was promised and is missing")


# A removal is promised that nobody waited for.
def remove_without_dir_sync(twin):
    for n in range(1, ROUNDS + 1):
        write(f"item{n}", contents(n))
    sync_dir()
    mark("done 0")
    for n in range(1, ROUNDS + 1):
        begin(n)
        os.unlink(f"item{n}")
        if twin:
            sync_dir()
        promised(n)


def check_removed():
    gone = acked()
    for n in range(1, ROUNDS + 1):
        there = os.path.exists(f"item{n}")
        if n in gone and there:
            fail(f"removal {n} was promised, and the file is there")
        if 0 in gone and n not in gone and n not in pending() and not there:
            fail(f"file {n} was promised and is missing")


# The wrong descriptor is given to fsync: that of a lock file which was written long ago.
def wrong_descriptor(twin):
    lock = os.open("lock", os.O_RDWR | os.O_CREAT, 0o644)
    os.fsync(lock)
    data = os.open("log", os.O_RDWR | os.O_CREAT, 0o644)
    os.fsync(data)
    sync_dir()
    for n in range(1, ROUNDS + 1):
        begin(n)
        os.write(data, record(n))
        os.fsync(data if twin else lock)
        promised(n)


# It is promised, and nobody waited for anything.
def no_sync(twin):
    log = os.open("log", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    os.fsync(log)
    sync_dir()
    for n in range(1, ROUNDS + 1):
        begin(n)
        os.write(log, record(n))
        if twin:
            os.fdatasync(log)
        promised(n)


# sync_file_range is taken for fsync.
def sync_file_range(twin):
    libc = ctypes.CDLL(None, use_errno=True)
    log = os.open("log", os.O_RDWR | os.O_CREAT, 0o644)
    os.fsync(log)
    sync_dir()
    for n in range(1, ROUNDS + 1):
        begin(n)
        os.write(log, record(n))
        if twin:
            os.fdatasync(log)
        else:
            libc.sync_file_range(log, ctypes.c_long(0), ctypes.c_long(0), 7)
        promised(n)


def record(n):
    """A length, a sum, and more than a block."""
    data = contents(n, 2)
    return struct.pack("<II", len(data), zlib.crc32(data)) + data


def records(path, checked):
    """Numbers of the records of a log; what does not match its sum ends it, where sums are looked at."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return []
    out, at = [], 0
    while at + 8 <= len(data):
        length, total = struct.unpack_from("<II", data, at)
        body = data[at + 8:at + 8 + length]
        if checked and (length == 0 or zlib.crc32(body) != total):
            break
        if len(body) != length or length == 0 or zlib.crc32(body) != total:
            fail(f"record {len(out) + 1} of {path} is torn: {len(body)} of {length} bytes")
        out.append(struct.unpack_from("<I", body)[0])
        at += 8 + length
    return out


def check_log(checked=True):
    found = records("log", checked)
    for n in acked():
        if n not in found:
            fail(f"record {n} was promised, the log has {found}")


# A record is appended in two writes, and whoever reads it believes the length.
def append_unchecked(twin):
    log = os.open("log", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    os.fsync(log)
    sync_dir()
    for n in range(1, ROUNDS + 1):
        begin(n)
        data = record(n)
        os.write(log, data[:BLOCK + 100])
        pause()
        os.write(log, data[BLOCK + 100:])
        os.fsync(log)
        promised(n)


# A file of several blocks is overwritten where it is.
def overwrite_in_place(twin):
    write("db", contents(0))
    sync_dir()
    mark("done 0")
    for n in range(1, ROUNDS + 1):
        begin(n)
        if twin:
            write("new", contents(n))
            os.rename("new", "db")
            sync_dir()
        else:
            fd = os.open("db", os.O_WRONLY)
            data = contents(n)
            os.pwrite(fd, data[:BLOCK], 0)
            pause()
            os.pwrite(fd, data[BLOCK:], BLOCK)
            os.fsync(fd)
            os.close(fd)
        promised(n)


# A file is cut to nothing and written anew.
def truncate_in_place(twin):
    write("db", contents(0))
    sync_dir()
    mark("done 0")
    for n in range(1, ROUNDS + 1):
        begin(n)
        if twin:
            write("new", contents(n))
            os.rename("new", "db")
            sync_dir()
        else:
            fd = os.open("db", os.O_WRONLY | os.O_TRUNC)
            pause()
            os.write(fd, contents(n))
            os.fsync(fd)
            os.close(fd)
        promised(n)


def check_db():
    newest_is_there("db")


PROGRAMS = {
    "rename-without-file-sync": (rename_without_file_sync, check_db),
    "rename-without-dir-sync": (rename_without_dir_sync, check_db),
    "create-without-dir-sync": (create_without_dir_sync, check_created),
    "remove-without-dir-sync": (remove_without_dir_sync, check_removed),
    "wrong-descriptor": (wrong_descriptor, check_log),
    "no-sync": (no_sync, check_log),
    "sync-file-range": (sync_file_range, check_log),
    "append-unchecked": (append_unchecked, lambda: check_log(os.environ.get("TWIN") == "1")),
    "overwrite-in-place": (overwrite_in_place, check_db),
    "truncate-in-place": (truncate_in_place, check_db),
}


def main():
    what, name = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    if what == "list":
        print("\n".join(PROGRAMS))
    elif what == "run":
        PROGRAMS[name][0](sys.argv[3:] == ["twin"])
    elif what == "check":
        PROGRAMS[name][1]()


main()
