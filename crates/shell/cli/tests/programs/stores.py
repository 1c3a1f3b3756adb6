"""Programs that are no servers: Berkeley DB, RocksDB, redb, dpkg."""
import ctypes
import ctypes.util
import os
import shutil
import subprocess
import tempfile
import time

from rounds import ROUNDS, acked, fail, in_order, mark, quiet

HERE = os.path.dirname(os.path.abspath(__file__))


class BerkeleyDb:
    """Berkeley DB: a transaction a round, recovered as its manual wants it."""
    package = "python3-bsddb3"

    def __init__(self, sync, durable):
        self.sync, self.durable = sync, durable

    def open(self):
        from bsddb3 import db
        env = db.DBEnv()
        env.open("env", db.DB_CREATE | db.DB_INIT_MPOOL | db.DB_INIT_LOG | db.DB_INIT_TXN | db.DB_INIT_LOCK
                 | db.DB_PRIVATE | db.DB_RECOVER)
        table = db.DB(env)
        table.open("db", dbtype=db.DB_BTREE, flags=db.DB_CREATE | db.DB_AUTO_COMMIT)
        return env, table

    def setup(self):
        os.mkdir("env")
        env, table = self.open()
        table.close()
        env.close()

    def run(self):
        from bsddb3 import db
        env, table = self.open()
        for n in range(1, ROUNDS + 1):
            txn = env.txn_begin()
            table.put(b"%04d" % n, b"x" * 3000, txn=txn)
            txn.commit(0 if self.sync else db.DB_TXN_NOSYNC)
            mark(f"committed {n}")
            if n % 2 == 0:
                env.txn_checkpoint(0, 0, db.DB_FORCE)
            time.sleep(0.03)
        os._exit(0)  # a clean end would write what was never waited for

    def check(self):
        from bsddb3 import db
        try:
            _, table = self.open()
            rows = table.items()
        except db.DBError as error:
            fail(f"berkeley db: {error}")
        if any(value != b"x" * 3000 for _, value in rows):
            fail("a row has other contents")
        in_order([int(key) for key, _ in rows], self.durable)


class RocksDb:
    """RocksDB through the functions that it has for C: a write a round."""
    package = "librocksdb7.8"

    def __init__(self, sync):
        self.sync = sync

    def open(self, create=False):
        lib = ctypes.CDLL(ctypes.util.find_library("rocksdb"))
        for name in ("open", "get", "options_create", "writeoptions_create", "readoptions_create"):
            getattr(lib, f"rocksdb_{name}").restype = ctypes.c_void_p
        options, error = ctypes.c_void_p(lib.rocksdb_options_create()), ctypes.c_char_p()
        lib.rocksdb_options_set_create_if_missing(options, ctypes.c_ubyte(create))
        # The log reserves as much as a table may have; the file system here is a small one.
        lib.rocksdb_options_set_write_buffer_size(options, ctypes.c_size_t(1 << 20))
        db = lib.rocksdb_open(options, b"db", ctypes.byref(error))
        if error.value:
            fail(f"rocksdb: {error.value.decode()}")
        return lib, ctypes.c_void_p(db)

    def setup(self):
        lib, db = self.open(True)
        lib.rocksdb_close(db)

    def run(self):
        lib, db = self.open()
        options, error = ctypes.c_void_p(lib.rocksdb_writeoptions_create()), ctypes.c_char_p()
        lib.rocksdb_writeoptions_set_sync(options, ctypes.c_ubyte(self.sync))
        for n in range(1, ROUNDS + 1):
            key, value = b"%04d" % n, b"x" * 3000
            lib.rocksdb_put(db, options, key, ctypes.c_size_t(len(key)), value, ctypes.c_size_t(len(value)),
                            ctypes.byref(error))
            if error.value:
                raise OSError(error.value)
            mark(f"committed {n}")
            time.sleep(0.03)
        os._exit(0)

    def check(self):
        lib, db = self.open()
        options, found = ctypes.c_void_p(lib.rocksdb_readoptions_create()), []
        for n in range(1, ROUNDS + 1):
            error, length, key = ctypes.c_char_p(), ctypes.c_size_t(), b"%04d" % n
            value = lib.rocksdb_get(db, options, key, ctypes.c_size_t(len(key)), ctypes.byref(length),
                                    ctypes.byref(error))
            if error.value:
                fail(f"rocksdb: {error.value.decode()}")
            if value:
                found.append(n)
                if ctypes.string_at(value, length.value) != b"x" * 3000:
                    fail(f"round {n} has other contents")
        in_order(found)


class Redb:
    """redb, of crates.io: a small program in Rust, which has its own check."""
    package = "the program in the folder redb"

    def __init__(self, durability):
        self.durability = durability

    def call(self, what):
        built = os.environ.get("REDB_ROUNDS") or f"{HERE}/../../../../../target/programs/release/redb-rounds"
        return subprocess.run([built, what, self.durability]).returncode

    def setup(self):
        if self.call("setup"):
            raise OSError("redb cannot be set up")

    def run(self):
        if self.call("run"):
            raise OSError("redb does not run")

    def check(self):
        code = self.call("check")
        if code == 1:
            fail("redb fails")
        if code:
            raise OSError(f"the check ends with {code}")


class Dpkg:
    """dpkg: version 1 to 6 of one package, each over the one before, with one file replaced and one new."""
    package = "dpkg"
    folder = "usr/share/tiny"
    # So long that the disk is still busy with them when they are renamed.
    length = 2_000_000
    # Here names may overtake contents.
    systems = ["ext4:data=writeback"]

    def __init__(self, durable, *flags, preload=""):
        self.durable, self.flags, self.preload = durable, flags, preload

    def dpkg(self, *words):
        env = dict(os.environ, LD_PRELOAD=self.preload)
        words = ["dpkg", f"--root={os.getcwd()}", "--log=/dev/null", *words]
        return subprocess.run(words, capture_output=True, text=True, env=env)

    def setup(self):
        for name in ("info", "updates", "triggers"):
            os.makedirs(f"var/lib/dpkg/{name}")
        for name in ("status", "available"):
            open(f"var/lib/dpkg/{name}", "w").close()

    def build(self, at, n):
        os.makedirs(f"{at}/{n}/{self.folder}")
        for name in ("data", f"page{n}"):
            with open(f"{at}/{n}/{self.folder}/{name}", "w") as file:
                file.write(str(n) * self.length)
        os.makedirs(f"{at}/{n}/DEBIAN")
        with open(f"{at}/{n}/DEBIAN/control", "w") as file:
            file.write(f"Package: tiny\nVersion: {n}\nArchitecture: all\nMaintainer: o <o@o>\nDescription: tiny\n")
        quiet("dpkg-deb", "--root-owner-group", "-b", f"{at}/{n}", f"{at}/{n}.deb")

    def run(self):
        at = tempfile.mkdtemp(prefix="ordo-dpkg-")
        try:
            for n in range(1, ROUNDS + 1):
                self.build(at, n)
            for n in range(1, ROUNDS + 1):
                done = self.dpkg(*self.flags, "-i", f"{at}/{n}.deb")
                if done.returncode:
                    raise OSError(done.stderr)
                mark(f"installed {n}")
        finally:
            shutil.rmtree(at)

    def check(self):
        last = max(acked(), default=0)
        said = self.dpkg("--audit")
        if said.returncode:
            fail(f"dpkg: {said.stderr.strip()}")
        here = {}
        for name in os.listdir(self.folder) if os.path.isdir(self.folder) else []:
            if ".dpkg-" in name:  # not in its place yet
                continue
            with open(f"{self.folder}/{name}", errors="replace") as file:
                data = file.read()
            if data[:1] not in list("123456") or data != data[0] * self.length:
                fail(f"{name} has {len(data)} bytes of no version")
            here[name] = int(data[0])
        if not self.durable:
            return
        known = self.known()
        if known[0] < last or here.get("data", 0) < last or known[1] and f"page{known[0]}" not in here:
            fail(f"{last} was installed; the files are {here}, the status knows {known}")

    def known(self):
        """The version that dpkg knows, and whether it calls it wholly installed."""
        said = quiet("dpkg-query", "--admindir=var/lib/dpkg", "-W", "-f", "${Version} ${Status}\n")
        words = said.split() or ["0"]
        return int(words[0] if words[0].isdigit() else 0), words[1:] == ["install", "ok", "installed"]
