#!/usr/bin/env python3
"""Programs with one well-known mistake each, their correct twins, and what a state must have. Some are in C (mistakes.c),
some in Rust (mistakes.rs), the others here; all checks are here.

    mistakes.py run NAME [twin]     in the directory: does the work, promises by lines to $ORDO_MARK
    mistakes.py check NAME          in the directory of a state: exit status 0, or 1 with what is missing

Each stands for a habit seen in real programs. A record has a number and enough bytes to fill blocks.
"""
import os
import struct
import sys
import time
import zlib

from rounds import acked, fail, mark

BLOCK = 4096
ROUNDS = 3


def pending():
    with open(os.environ["ORDO_PENDING"]) as lines:
        return [int(line.split()[1]) for line in lines if line.strip()]


def promised(n):
    mark(f"done {n}")


def begin(n):
    mark(f"begin done {n}")


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


def replace(path, data):
    """Replaces a file as it should be done."""
    write("new", data)
    os.rename("new", path)
    sync_dir()


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


# A file is cut to nothing and written anew.
def truncate_in_place(twin):
    replace("db", contents(0))
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


RUNS = {
    "remove-without-dir-sync": remove_without_dir_sync,
    "no-sync": no_sync,
    "truncate-in-place": truncate_in_place,
}
CHECKS = {
    "rename-without-file-sync": check_db,
    "rename-without-dir-sync": check_db,
    "create-without-dir-sync": check_created,
    "remove-without-dir-sync": check_removed,
    "wrong-descriptor": check_log,
    "no-sync": check_log,
    "sync-file-range": check_log,
    "append-unchecked": lambda: check_log(os.environ.get("TWIN") == "1"),
    "overwrite-in-place": check_db,
    "truncate-in-place": check_db,
}


def main():
    what, name = sys.argv[1], sys.argv[2]
    if what == "run":
        RUNS[name](sys.argv[3:] == ["twin"])
    elif what == "check":
        CHECKS[name]()


main()
