#!/usr/bin/env python3
"""The programs with a known mistake on LazyFS itself (github.com/dsrhaslab/lazyfs), as root.

    LAZYFS=/path/to/lazyfs lazyfs.py NAME... COMMAND   tries one program: its check's name, and the words that run it

LazyFS is a FUSE file system above a directory. It keeps what was written and not synced in a cache of its own, and
loses that when it is killed. Its configuration names one fault for a run. So a first run without faults lists the
operations, and then the program is run once for each fault:

- `cleared`: LazyFS is killed after the n-th operation of a kind on a file. Everything that was not synced is lost.
- `torn`: besides, a part of one write is kept, as by its faults torn-op (the first or the last of three parts) and
  torn-seq (one of several writes in a row).

What the program had promised comes through a pipe. The check runs in the directory below.
"""
import collections
import concurrent.futures
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = ["/usr/bin/python3", "-I"]
CHECKS = os.path.join(HERE, "mistakes.py")
# Runs at once: nearly all of a run is waiting.
AT_ONCE = 4
# Seconds until a mount, and until a program ends.
PATIENCE = 30

CONFIG = """
[faults]
fifo_path="{at}/faults"
[cache]
apply_eviction=false
[cache.simple]
custom_size="0.01GB"
blocks_per_page=1
[filesystem]
log_all_operations={log}
logfile="{at}/log"
{fault}
"""
OPERATION = re.compile(r"lfs_(write|fsync|create|open|truncate|unlink|rename)\((?:path|from)=([^,)]*)(?:,to=([^,)]*))?")

Operation = collections.namedtuple("Operation", "kind path to number")


class Run:
    """One run of a program on LazyFS, with one fault or none. After it: the lines that were promised, and a directory."""

    def __init__(self, lazyfs, command, fault=None, log=False):
        # LazyFS takes a path with "-o" for an option.
        self.at = tempfile.mkdtemp(prefix="ordo_lazyfs_")
        self.root, self.mount, self.marks = (os.path.join(self.at, name) for name in ("root", "mount", "marks"))
        os.mkdir(self.root)
        os.mkdir(self.mount)
        os.mkfifo(self.marks)
        self.lazyfs, self.command = lazyfs, command
        fault = fault.replace("ROOT", self.root) if fault else ""
        with open(self.path("config"), "w") as file:
            file.write(CONFIG.format(at=self.at, log=str(log).lower(), fault=fault))
        self.lines = []

    def path(self, name):
        return os.path.join(self.at, name)

    def __enter__(self):
        words = [self.lazyfs, self.mount, "--config-path", self.path("config"), "-o", "allow_other",
                 "-o", "modules=subdir", "-o", f"subdir={self.root}", "-f"]
        with open(self.path("out"), "w") as out:
            self.server = subprocess.Popen(words, stdout=out, stderr=out, cwd=self.at)
        outside, until = os.stat(self.at).st_dev, time.monotonic() + PATIENCE
        while os.stat(self.mount).st_dev == outside:
            if self.server.poll() is not None or time.monotonic() > until:
                with open(self.path("out")) as said:
                    sys.exit(f"LazyFS does not mount: {said.read()[-500:]}")
            time.sleep(0.005)
        # The pipe has a writer all the time, so that the reader sees no end between two lines.
        keep = os.open(self.marks, os.O_RDWR)
        reader = threading.Thread(target=self.read)
        reader.start()
        env = dict(os.environ, ORDO_MARK=self.marks)
        program = subprocess.Popen(self.command, cwd=self.mount, env=env, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        try:
            self.status = program.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            program.kill()
            self.status = program.wait()
        # Everything that the program did not sync is lost, also at its end.
        self.was_hit = self.server.poll() is not None
        self.server.send_signal(signal.SIGKILL)
        self.server.wait()
        subprocess.run(["umount", "-l", self.mount], check=True)
        os.write(keep, b"\0")
        reader.join()
        os.close(keep)
        return self

    def read(self):
        with open(self.marks, "rb", buffering=0) as pipe:
            data = b""
            while not data.endswith(b"\0"):
                data += pipe.read(4096)
        self.lines = data[:-1].decode().splitlines()

    def __exit__(self, *_):
        shutil.rmtree(self.at)

    def operations(self):
        """The operations that LazyFS logged, numbered for each kind and file."""
        seen, out = collections.Counter(), []
        with open(self.path("log")) as log:
            for kind, path, to in OPERATION.findall(log.read()):
                name = path.replace(self.root, "ROOT"), to.replace(self.root, "ROOT")
                seen[kind, name] += 1
                out.append(Operation(kind, *name, seen[kind, name]))
        return out

    def broken(self, name, twin, marks):
        """Whether the check reports a broken promise; `marks` are the lines of a whole run."""
        acked = [line for line in self.lines if not line.startswith("begin ")]
        begun = [line[6:] for line in self.lines if line.startswith("begin ")]
        if any(line.startswith("begin ") for line in marks):
            pending = [line for line in begun if line not in acked]
        else:
            pending = marks[len(acked):len(acked) + 1]
        env = dict(os.environ, ORDO_ACKED=self.path("acked"), ORDO_PENDING=self.path("pending"), TWIN=str(int(twin)))
        for file, lines in (("acked", acked), ("pending", pending)):
            with open(self.path(file), "w") as out:
                out.writelines(line + "\n" for line in lines)
        check = subprocess.run(PYTHON + [CHECKS, "check", name], cwd=self.root, env=env, capture_output=True)
        if check.returncode not in (0, 1):
            sys.exit(f"the check of {name} fails: {check.stderr.decode()}")
        return check.returncode == 1


def cleared(operations):
    """A fault for each operation: LazyFS is killed after it."""
    for kind, path, to, number in operations:
        more = f'to="{to}"\n' if to else ""
        yield f'[[injection]]\ntype="clear-cache"\ntiming="after"\nop="{kind}"\nfrom="{path}"\n{more}' \
              f'occurrence={number}\ncrash=true\n'


def torn(operations):
    """Faults that keep a part of a write, or one of several in a row."""
    groups, run = collections.Counter(), collections.Counter()
    for kind, path, _, number in operations:
        if kind == "write":
            for part in (1, 3):
                yield f'[[injection]]\ntype="torn-op"\nfile="{path}"\noccurrence={number}\nparts=3\npersist=[{part}]\n'
            run[path] += 1
            continue
        # A group of writes ends with an fsync.
        if kind == "fsync" and run[path]:
            groups[path] += 1
            for one in range(1, run[path] + 1) if run[path] > 1 else ():
                yield f'[[injection]]\ntype="torn-seq"\nop="write"\nfile="{path}"\npersist=[{one}]\n' \
                      f'occurrence={groups[path]}\n'
            run[path] = 0


def judge(lazyfs, name, command, twin=False):
    """For each sort of fault: the states that are broken, the states, and the seconds. The second sort has the first too."""
    began = time.monotonic()
    with Run(lazyfs, command, log=True) as run:
        operations, marks = run.operations(), run.lines
        end = run.broken(name, twin, marks)
        if run.status != 0:
            sys.exit(f"{name} ends with status {run.status} on LazyFS")
    out, broken, states = {}, int(end), 1

    def one(fault):
        with Run(lazyfs, command, fault) as run:
            return run.was_hit and run.broken(name, twin, marks), run.was_hit

    for sort, faults in (("cleared", cleared(operations)), ("torn", torn(operations))):
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            results = list(pool.map(one, faults))
        broken += sum(found for found, _ in results)
        # A fault that LazyFS did not inject is no state.
        states += sum(hit for _, hit in results)
        out[sort] = broken, states, time.monotonic() - began
    return out


def main():
    name, *command = sys.argv[1:]
    print(judge(os.environ["LAZYFS"], name, command, "twin" in command))


if __name__ == "__main__":
    main()
