#!/usr/bin/env python3
"""Real programs under the power cut: what they do, and what their manuals promise.

    real.py setup|run|check NAME    in the directory of the program or of a state
    real.py campaign ORDO [FS...]   crashes all of them, and prints a page

A program whose manual promises nothing about a power cut is here too: it must be seen broken, or the search is blind.
"""
import json
import os
import re
import subprocess
import sys
import time
import traceback

from rounds import ROUNDS, acked, fail, in_order, mark, quiet
from servers import Etcd, Postgres, Rsyslogd
from stores import BerkeleyDb, Dpkg, Redb, RocksDb

class Sqlite:
    """SQLite through Python: rows committed one by one."""
    package = "python3"

    def __init__(self, journal, synchronous, durable):
        self.journal, self.synchronous, self.durable = journal, synchronous, durable

    def open(self):
        import sqlite3
        db = sqlite3.connect("db", isolation_level=None)
        db.execute(f"pragma journal_mode={self.journal}")
        db.execute(f"pragma synchronous={self.synchronous}")
        return db

    def setup(self):
        self.open().execute("create table t (n integer primary key, filler blob)")

    def run(self):
        db = self.open()
        for n in range(1, ROUNDS + 1):
            db.execute("begin")
            db.execute("insert into t values (?, zeroblob(9000))", (n,))
            db.execute("commit")
            mark(f"committed {n}")
            time.sleep(0.03)

    def check(self):
        import sqlite3
        try:
            db = self.open()
            said = db.execute("pragma integrity_check").fetchone()[0]
            found = [n for n, in db.execute("select n from t order by n")]
        except sqlite3.DatabaseError as error:
            fail(f"sqlite: {error}")
        if said != "ok":
            fail(f"integrity_check: {said.splitlines()[0]}")
        in_order(found, self.durable)


class Lmdb:
    """LMDB: a transaction a round."""
    package = "python3-lmdb"

    def __init__(self, sync):
        self.sync = sync

    def open(self):
        import lmdb
        return lmdb.open("db", map_size=4 << 20, sync=self.sync)

    def setup(self):
        self.open().sync(True)

    def run(self):
        env = self.open()
        for n in range(1, ROUNDS + 1):
            with env.begin(write=True) as txn:
                txn.put(b"%04d" % n, b"x" * 3000)
            mark(f"committed {n}")
            time.sleep(0.03)

    def check(self):
        import lmdb
        try:
            with self.open().begin() as txn:
                found = [int(key) for key, _ in txn.cursor()]
        except lmdb.Error as error:
            fail(f"lmdb: {error}")
        in_order(found)


class Leveldb:
    """LevelDB: a write a round."""
    package = "python3-plyvel"

    def __init__(self, sync):
        self.sync = sync

    def setup(self):
        import plyvel
        plyvel.DB("db", create_if_missing=True).close()

    def run(self):
        import plyvel
        db = plyvel.DB("db")
        for n in range(1, ROUNDS + 1):
            db.put(b"%04d" % n, b"x" * 3000, sync=self.sync)
            mark(f"committed {n}")
            time.sleep(0.03)

    def check(self):
        import plyvel
        try:
            found = [int(key) for key, _ in plyvel.DB("db")]
        except plyvel.Error as error:
            fail(f"leveldb: {error}")
        in_order(found)


class Redis:
    """Redis with an append-only file: an INCR a round."""
    package = "redis-server"

    def __init__(self, policy, durable):
        self.policy, self.durable = policy, durable

    def start(self):
        socket = os.path.join("/tmp", f"ordo-redis-{os.getpid()}.sock")
        words = ["redis-server", "--port", "0", "--unixsocket", socket, "--appendonly", "yes", "--save", "",
                 "--appendfsync", self.policy, "--dir", os.getcwd()]
        server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(300):
            said = subprocess.run(["redis-cli", "-s", socket, "ping"], capture_output=True, text=True)
            if said.stdout.strip() == "PONG":
                return server, lambda *words: quiet("redis-cli", "-s", socket, *words).strip()
            if server.poll() is not None:
                fail("redis does not start")
            time.sleep(0.01)
        fail("redis does not answer")

    def run(self):
        server, cli = self.start()
        for n in range(1, ROUNDS + 1):
            cli("rpush", "list", str(n))
            mark(f"committed {n}")
        server.kill()

    def check(self):
        server, cli = self.start()
        found = [int(n) for n in cli("lrange", "list", "0", "-1").split()]
        server.kill()
        in_order(found, self.durable)


class Git:
    """git: a commit a round."""
    package = "git"

    def __init__(self, fsync):
        self.fsync = fsync

    def git(self, *words):
        more = ["-c", f"core.fsync={self.fsync}"] if self.fsync else []
        env = dict(os.environ, GIT_CONFIG_GLOBAL="/dev/null", GIT_AUTHOR_DATE="1700000000 +0000", GIT_COMMITTER_DATE="1700000000 +0000")
        name = ["-c", "user.name=o", "-c", "user.email=o@o", "-c", "gc.auto=0", "-c", "safe.directory=*"]
        done = subprocess.run(["git", *name, *more, *words], capture_output=True, text=True, env=env)
        if done.returncode:
            fail(f"git {words[0]}: {(done.stderr or done.stdout).splitlines()[:1]}")
        return done.stdout

    def setup(self):
        self.git("init", "-q")

    def run(self):
        for n in range(1, ROUNDS + 1):
            with open(f"file{n}", "w") as file:
                file.write("x" * 5000)
            self.git("add", f"file{n}")
            self.git("commit", "-q", "-m", str(n))
            mark(f"committed {n}")

    def check(self):
        last = max(acked(), default=0)
        there = subprocess.run(["git", "-c", "safe.directory=*", "rev-parse", "-q", "--verify", "HEAD"],
                               capture_output=True, text=True)
        if there.returncode and last == 0:
            return
        self.git("fsck", "--full", "--strict")
        found = sorted(int(n) for n in self.git("log", "--format=%s").split())
        in_order(found)


class Shelve:
    """Python's shelve, with sync() after each change."""
    package = "python3"

    def setup(self):
        import shelve
        shelve.open("db").close()

    def run(self):
        import shelve
        db = shelve.open("db")
        for n in range(1, ROUNDS + 1):
            db[str(n)] = "x" * 3000
            db.sync()
            mark(f"committed {n}")
            time.sleep(0.03)

    def check(self):
        import shelve
        try:
            found = sorted(int(n) for n in shelve.open("db", "r"))
        except Exception as error:  # whatever its library raises
            fail(f"shelve: {error}")
        in_order(found)


class Rsync:
    """rsync of a file a round."""
    package = "rsync"

    def __init__(self, *flags):
        self.flags = flags

    def run(self):
        for n in range(1, ROUNDS + 1):
            source = f"/tmp/ordo-rsync-{os.getpid()}-{n}"
            with open(source, "w") as file:
                file.write(str(n) * 9000)
            quiet("rsync", "-a", *self.flags, source, f"file{n}")
            os.unlink(source)
            mark(f"committed {n}")

    def check(self):
        for n in acked():
            try:
                with open(f"file{n}", errors="replace") as file:
                    data = file.read()
            except FileNotFoundError:
                fail(f"file{n} is missing")
            if data != str(n) * 9000:
                fail(f"file{n} has {len(data)} bytes")


class Copy:
    """cp, and sync(1) of the file and of its directory."""
    package = "coreutils"

    def __init__(self, sync):
        self.sync = sync

    def run(self):
        for n in range(1, ROUNDS + 1):
            source = f"/tmp/ordo-cp-{os.getpid()}-{n}"
            with open(source, "w") as file:
                file.write(str(n) * 9000)
            quiet("cp", source, "new")
            if self.sync:
                quiet("sync", "new")
            quiet("mv", "new", f"file{n}")
            if self.sync:
                quiet("sync", ".")
            os.unlink(source)
            mark(f"committed {n}")

    check = Rsync.check


# Name, program, whether its manual promises that what was acknowledged survives a power cut.
PROGRAMS = {
    # Of FULL the manual says that a commit may be rolled back if the power goes just after it: EXTRA is for that.
    "sqlite-delete-full": (Sqlite("delete", "full", False), True),
    "sqlite-delete-full, as if durable": (Sqlite("delete", "full", True), False),
    "sqlite-delete-extra": (Sqlite("delete", "extra", True), True),
    "sqlite-wal-full": (Sqlite("wal", "full", True), True),
    "sqlite-wal-normal": (Sqlite("wal", "normal", False), True),
    "sqlite-wal-normal, as if durable": (Sqlite("wal", "normal", True), False),
    "sqlite-delete-off": (Sqlite("delete", "off", True), False),
    "lmdb": (Lmdb(True), True),
    "lmdb-nosync": (Lmdb(False), False),
    "leveldb-sync": (Leveldb(True), True),
    "leveldb-nosync": (Leveldb(False), False),
    "redis-always": (Redis("always", True), True),
    "redis-everysec": (Redis("everysec", False), True),
    "git-fsync-all": (Git("all"), True),
    "git-default": (Git(""), False),
    "python-shelve": (Shelve(), False),
    "rsync-fsync": (Rsync("--fsync"), False),
    "rsync": (Rsync(), False),
    "cp-sync-mv-sync": (Copy(True), True),
    "cp-mv": (Copy(False), False),
    "postgresql": (Postgres(), True),
    # A page is two units of the disk, and without full_page_writes a torn one is not repaired.
    "postgresql, torn writes": (Postgres(rule="tear file_data"), True),
    "postgresql-no-full-page-writes, torn writes": (Postgres("full_page_writes=off", rule="tear file_data"), False),
    "postgresql-fsync-off": (Postgres("fsync=off"), False),
    "berkeley-db": (BerkeleyDb(True, True), True),
    "berkeley-db-nosync": (BerkeleyDb(False, False), True),
    "berkeley-db-nosync, as if durable": (BerkeleyDb(False, True), False),
    "etcd": (Etcd(), True),
    "etcd-unsafe-no-fsync": (Etcd("--unsafe-no-fsync"), False),
    "rocksdb-sync": (RocksDb(True), True),
    "rocksdb-nosync": (RocksDb(False), False),
    "redb-immediate": (Redb("immediate"), True),
    "redb-none": (Redb("none"), False),
    # The manual promises that files are not left empty, and nothing of an installation that has ended.
    "dpkg": (Dpkg(False), True),
    "dpkg, as if durable": (Dpkg(True), False),
    "dpkg-force-unsafe-io": (Dpkg(False, "--force-unsafe-io"), False),
    "dpkg under libeatmydata": (Dpkg(False, preload="libeatmydata.so"), False),
    "rsyslogd-sync": (Rsyslogd("on"), True),
    "rsyslogd": (Rsyslogd("off"), False),
}


NOTES = """
What the losses are:

- **SQLite with a rollback journal.** A commit is the removal of the journal, and with `synchronous=FULL` SQLite does not wait for
  the directory then. So a power cut may bring the journal back, and the next reader rolls the commit back. The manual says so, and has EXTRA,
  which waits for the directory; with EXTRA nothing may be lost.
- **git with `core.fsync=all`.** git waits for the contents of every file, and for no directory. So the last commit may be gone everywhere,
  since nobody waited for the rename of the branch's file. On btrfs the index or a branch may also name an object that is not there: an
  fsync of a later file makes the rename of the index durable, and not the name of the object in another directory. The manual speaks of
  components that are "hardened", and says nothing of directories. `git fsck` reports such a repository. To repeat it:
  `ordo crash --fs btrfs --syscalls --setup 'git init -q' --check 'git fsck --strict || exit 1' -- sh -c 'for n in 1 2 3; do echo $n
  >f$n; git add f$n; git -c core.fsync=all -c user.name=o -c user.email=o@o commit -qm $n; done'`
- **Redis with `appendfsync everysec`, on ext4.** The manual promises that at most a second is lost, and that a file that was cut off is
  loaded. But ext4 may make the new size of a file durable before its contents, and then the file ends with zeros. Redis finds a bad
  format and does not start until `redis-check-aof --fix` has cut the file. Two lines show what ext4 does, in its default mode; with
  `data=journal`, and on XFS and btrfs, no state of this kind was found:
  `ordo crash --fs ext4 --check 'tr -d "\\0" <log | cmp -s - log || test ! -e log' -- sh -c 'for n in 1 2 3 4; do printf abcdefgh
  >>log; sleep 0.1; done'`
- **Python's shelve** is a file of ndbm here, which has no `sync` and writes when it is closed. There is no system call that could be the cause.
- **PostgreSQL without `full_page_writes`.** A page is 8 KiB, and the disk here writes 4 KiB or nothing. A page that a checkpoint
  wrote by half is repaired from the log only if the log has the whole page, so the manual warns of this setting. Where contents are
  overwritten in place (ext4, XFS) such states are found; btrfs writes them elsewhere and then changes the reference. With the
  setting on, no torn write may do harm. Both rows have only states with torn contents (`--rule 'tear file_data'`).
- **dpkg with `--force-unsafe-io`** leaves out the fsync before the renames, and the manual says that files may then be empty after a
  crash. But dpkg still calls sync_file_range for each file, so the contents reach the disk before the rename, and the next flush covers
  them: dpkg is kinder here than its manual. The disk here is fast; on one that is slow or busy a rename may overtake contents that are
  still being written. Under libeatmydata, which leaves out sync_file_range too, the same check shows what it has to find.
  dpkg without the option is judged by the same words: no file is empty or cut. That an installed package is there is not in the manual:
  the row `as if durable` asks for it.
- **rsyslogd** acknowledges nothing. Here a line counts as logged when the action after the synced file, a file elsewhere, has
  it. `systemd-journald` needs systemd, and is not tried.
- **etcd** has a log of its own, and bbolt below it; bbolt alone is not tried. **RocksDB** is called through its functions for C.

A program whose manual promises nothing must be seen broken, or the search would be blind there. A row that shows no loss although
nothing is promised is explained above, or says only that this file system was kinder than it must be.
"""


def crash(ordo, name, system, states):
    """One program on one file system: the row, or why there is none."""
    program, me = PROGRAMS[name][0], os.path.abspath(__file__)
    word = [f"/usr/bin/python3 {me}", f"'{name}'"]
    words = [ordo, "crash", "--fs", system, "--states", states, "--json", "--quiet", "--syscalls"]
    words += ["--save", f"/tmp/ordo-program-{os.getpid()}.json", "--check", f"{word[0]} check {word[1]}"]
    for option in ("size", "threads", "rule"):
        if hasattr(program, option):
            words += [f"--{option}", getattr(program, option)]
    if hasattr(program, "setup"):
        words += ["--setup", f"{word[0]} setup {word[1]}"]
    done = subprocess.run(words + ["--", "/usr/bin/python3", me, "run", name], capture_output=True, text=True)
    try:
        row = json.loads(done.stdout)["rows"][0]
        status = row["command_status"]
        return (None, f"the program ended with {status}") if status else (row, "")
    except (ValueError, LookupError):
        return None, (done.stderr.strip().splitlines() or ["nothing said"])[-1]


def campaign(ordo, systems):
    states = os.environ.get("PROGRAM_STATES", "200")
    names = re.compile(os.environ.get("PROGRAM_NAMES", ""))
    print(f"Up to {states} states for each program and file system, with the recovery of one in 200 cut too.\n")
    print("| program | promised | file system | states | a second | lost | not atomic | causes |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    wrong = 0
    for name, (program, promised) in PROGRAMS.items():
        more = [system for system in getattr(program, "systems", []) if system not in systems]
        for system in systems + more if names.search(name) else []:
            begin = f"| {name} | {'yes' if promised else 'no'} | {system} |"
            row, why = crash(ordo, name, system, states)
            if row is None:
                print(f"{begin} | | | | not run: {why} |", flush=True)
                wrong += 1
                continue
            causes = "; ".join(sorted({cause["mistake"] for cause in row["causes"]}))
            if row["check_failed"]:
                causes = "; ".join(filter(None, [causes, f"not judged: {row['check_failed']} states"]))
            rate = row["states"] / max(row["seconds"], 1e-9)
            wrong += bool(promised and row["promise_broken"] or row["check_failed"])
            print(f"{begin} {row['states']} | {rate:.0f} | {row['lost_durable']} | {row['not_atomic']} | {causes} |",
                  flush=True)
    print(NOTES)
    return wrong


def main():
    what, name = sys.argv[1], sys.argv[2]
    if what == "campaign":
        sys.exit(campaign(os.path.abspath(name), sys.argv[3:] or ["ext4", "xfs", "btrfs"]) > 0)
    try:
        getattr(PROGRAMS[name][0], what)()
    except Exception:  # a failure of this program, and no broken promise
        traceback.print_exc()
        sys.exit(2)


main()
