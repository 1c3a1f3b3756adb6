#!/usr/bin/env python3
"""The search beside what other tools try, on the programs with a known mistake and their twins.

    compare.py tools ORDO MISTAKES-C MISTAKES-RUST [FS...]        prints two tables; LAZYFS=/path/to/lazyfs in the
                                                                  environment adds LazyFS itself to the second
    compare.py guarantees ORDO MISTAKES-C MISTAKES-RUST FS...     prints which guarantees mount options give
    compare.py speed ORDO MISTAKES-C MISTAKES-RUST                prints states a second with a trivial check

Two restrictions of the search stand for other tools: LazyFS loses everything that was not
synced, at any moment (only the states of amnesia); a replay of dm-log-writes applies the writes in the order in which
they were completed, up to each one (only prefixes). They share this search's way of recording and recovery, so only the choice of states differs.
lazyfs.py runs LazyFS itself.
"""
import json
import os
import resource
import subprocess
import sys
import tempfile

import lazyfs

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = ["/usr/bin/python3", "-I"]
# Name, language, and the mistake that must be named.
MISTAKES = [
    ("rename-without-file-sync", "rust", "rename-without-file-sync"),
    ("rename-without-dir-sync", "rust", "rename-without-directory-sync"),
    ("create-without-dir-sync", "rust", "create-without-directory-sync"),
    ("remove-without-dir-sync", "python", "remove-without-directory-sync"),
    ("wrong-descriptor", "c", "wrong-descriptor"),
    ("no-sync", "python", "no-sync"),
    ("sync-file-range", "c", "sync-file-range"),
    ("append-unchecked", "c", "append-unchecked"),
    ("overwrite-in-place", "c", "overwrite-in-place"),
    ("truncate-in-place", "python", "truncate-in-place"),
]
# Mistakes that do no harm on a file system: writing back journaled data commits the transaction, and flushes.
HARMLESS = {("sync-file-range", "ext3:data=journal")}
STATES = os.environ.get("PROGRAM_STATES", "150")
ALL = "ext4,ext3,ext3-journal,ext3-writeback,xfs,btrfs"
MANNERS = [("this search", None), ("as LazyFS", "amnesia"), ("as dm-log-writes", "amnesia,everything,prefix")]


def command(binaries, name, language, twin):
    """The words that run a program, or its twin."""
    mistakes = os.path.join(HERE, "mistakes.py")
    run = PYTHON + [mistakes, "run", name] if language == "python" else [binaries[language], name]
    return run + (["twin"] if twin else [])


def crash(ordo, binaries, name, language, twin, systems, only=None):
    """The rows of one program."""
    mistakes = os.path.join(HERE, "mistakes.py")
    run = command(binaries, name, language, twin)
    check = f"TWIN={int(twin)} {' '.join(PYTHON)} {mistakes} check {name}"
    words = [ordo, "crash", "--fs", systems, "--states", STATES, "--json", "--quiet"]
    saved = os.path.join(tempfile.gettempdir(), f"ordo-compare-{os.getpid()}.json")
    words += ["--syscalls", "--no-shrink", "--save", saved, "--check", check]
    words += ["--only", only] if only else []
    done = subprocess.run(words + ["--"] + run, capture_output=True, text=True)
    if os.path.exists(saved):
        os.unlink(saved)
    try:
        return json.loads(done.stdout)["rows"]
    except ValueError:
        sys.exit(f"{name}: {done.stderr.strip()}")


def causes(row):
    return [cause["mistake"] for cause in row["causes"]]


def every_system(ordo, binaries, systems):
    """The first table: every mistake and its twin on every file system. Returns the number of wrong cells."""
    names = systems.split(",")
    wrong = 0
    print(f"| program | language | {' | '.join(names)} | twin accused |")
    print("|---|---|" + "---|" * (len(names) + 1), flush=True)
    for name, language, mistake in MISTAKES:
        cells = []
        for row in crash(ordo, binaries, name, language, False, systems):
            found, harmless = row["promise_broken"] > 0, (name, row["system"]) in HARMLESS
            named = mistake in causes(row)
            wrong += found if harmless else not (found and named)
            missed = "does no harm" if harmless else "MISSED"
            said = "found, named" if named else f"found, named {' and '.join(causes(row)) or 'nothing'}" if found else missed
            cells.append(f"{said} ({row['promise_broken']} of {row['states']})")
        accused = [row for row in crash(ordo, binaries, name, language, True, systems) if row["promise_broken"]]
        wrong += len(accused)
        said = ", ".join(row["system"] for row in accused) or "no"
        print(f"| {name} | {language} | {' | '.join(cells)} | {said} |", flush=True)
    return wrong


RESTRICTIONS = """
The two columns beside this search are restrictions of it: states without anything that was not flushed, and states through which an
in-order replay passes. Each has a recording of its own of the same program, with this search's recovery and check. The mistakes that all
columns find lose something in the plainest states already, so a restriction needs fewer states. The causes need the system calls and not the
states."""

LAZYFS = """
LazyFS itself runs the program once for each of its faults, several at a time: it is killed after each operation on a file; with writes torn,
it also keeps a part of each write, and one of several writes in a row. It passes a rename, a new name and a removal on to the
directory below at once, so it cannot lose them. It has no disk below it that reorders: what it keeps of a file is what was synced. A
program that is broken only where a file's parts are durable apart needs its torn writes."""


def every_manner(ordo, binaries, system):
    """The second table: the search and the two restrictions on one file system, and LazyFS itself where it is given."""
    other = os.environ.get("LAZYFS")
    names = [name for name, _ in MANNERS] + (["LazyFS itself", "LazyFS itself, writes torn too"] if other else [])
    print(f"| program, on {system} | " + " | ".join(names) + " |")
    print("|---|" + "---|" * len(names), flush=True)
    found, states, seconds = [0] * len(names), [0] * len(names), [0.0] * len(names)
    accused = []
    for name, language, _ in MISTAKES:
        results, cells = [], []
        for _, only in MANNERS:
            row = crash(ordo, binaries, name, language, False, system, only)[0]
            results.append((row["promise_broken"], row["states"], row["seconds"]))
        if other:
            results += lazyfs.judge(other, name, command(binaries, name, language, False)).values()
            twin = lazyfs.judge(other, name, command(binaries, name, language, True), True)
            accused += [f"{name} ({broken} of {all_} states, {sort})" for sort, (broken, all_, _) in twin.items() if broken]
        for n, (broken, judged, time) in enumerate(results):
            found[n] += broken > 0
            states[n] += judged
            seconds[n] += time
            cells.append(f"{'found' if broken else 'missed'}: {broken} of {judged} states, {time:.1f} s")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    sums = [f"{f} of {len(MISTAKES)} found, {s} states, {t:.0f} s" for f, s, t in zip(found, states, seconds)]
    print(f"| all | {' | '.join(sums)} |", flush=True)
    print(RESTRICTIONS)
    if other:
        print(LAZYFS)
        print(f"\nTwins that LazyFS itself accuses: {'; '.join(accused) or 'none'}.", flush=True)
    else:
        print("\nLazyFS itself was not run: `make crash-programs LAZYFS=/path/to/lazyfs` does it.")


def log_writes():
    """Whether dm-log-writes itself can run here, in words."""
    try:
        said = subprocess.run(["dmsetup", "targets"], capture_output=True, text=True)
    except FileNotFoundError:
        return "dmsetup is not installed, so the kernel was not asked for dm-log-writes."
    if any(line.split()[:1] == ["log-writes"] for line in said.stdout.splitlines()):
        return "The kernel has dm-log-writes; it was not run: `--only prefix` is the same order of writes."
    why = "has no device mapper" if said.returncode else "has no target log-writes, and none could be loaded"
    return f"dm-log-writes itself cannot run here: the kernel {why}. `--only prefix` is the same order of writes."


GUARANTEES = {
    "rename-without-file-sync": "a file replaced by rename is the old or the new one, and a promised one is there",
    "rename-without-dir-sync": "a rename is durable",
    "create-without-dir-sync": "a new name is durable",
    "remove-without-dir-sync": "a removal is durable",
    "no-sync": "appended contents are durable",
    "sync-file-range": "contents are durable after sync_file_range; with waits: after fdatasync",
    "overwrite-in-place": "contents of several blocks are replaced as a whole; with waits: by rename",
    "truncate-in-place": "a file that is cut and written anew is never empty; with waits: by rename",
}


def guarantees(ordo, binaries, systems):
    """Which guarantees each file system gives with its mount options: to the programs that wait as they should, and to
    those that do not. A cell counts the states in which the guarantee was broken."""
    print(f"| guarantee | waits | {' | '.join(f'`{system}`' for system in systems)} |")
    print("|---|---|" + "---|" * len(systems), flush=True)
    languages = {name: language for name, language, _ in MISTAKES}
    for name, words in GUARANTEES.items():
        for twin in (True, False):
            cells = []
            for system in systems:
                row = crash(ordo, binaries, name, languages[name], twin, system)[0]
                broken, states = row["promise_broken"], row["states"]
                cells.append(f"lost in {broken} of {states}" if broken else f"kept in {states}")
            print(f"| {words} | {'yes' if twin else 'no'} | {' | '.join(cells)} |", flush=True)


# The wanted number of states a second on two cores.
TARGETS = {"ext4": 60, "xfs": 30, "btrfs": 30}
SPEED_RUN = "for n in $(seq 30); do echo $n >>log; sync log; echo $n >f$n; sync f$n .; echo $n >\"$ORDO_MARK\"; done"


def speed(ordo, binaries, _):
    """States a second where the check does nothing, the recovery of each state included."""
    print("| file system | states | distinct disks | seconds | processor seconds | states a second | wanted |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for system, target in TARGETS.items():
        words = [ordo, "crash", "--fs", system, "--states", "400", "--recovery-every", "0", "--json", "--quiet",
                 "--check", "true", "--", "sh", "-c", SPEED_RUN]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        row = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)["rows"][0]
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        rate = row["images"] / row["seconds"]
        said = f"{target}" if rate >= target else f"{target}: MISSED"
        print(f"| {system} | {row['states']} | {row['images']} | {row['seconds']:.1f} | {used:.1f} "
              f"| {rate:.0f} | {said} |", flush=True)
    print(BOUND)


BOUND = """
A state is put on a device in memory, mounted, recovered, compared with the trees seen before, checked with `true`, and unmounted. Processor
seconds are those of the recording and of the search, without the kernel's own threads. Where they are fewer than the seconds, the search waits
for the kernel, mostly for its mount and unmount.

B3 (CrashMonkey and Ace, OSDI 2018) tested 3.37 million workloads in two days on 65 machines, which is 0.3 workloads a second on each. A
workload there is one to three operations, with one state at each of its syncs, in a virtual machine with a copy of the disk."""


def main():
    what = sys.argv[1]
    if what != "speed":
        print(f"Up to {STATES} states for each program and file system.\n", flush=True)
    ordo, c, rust = (os.path.abspath(word) for word in sys.argv[2:5])
    binaries, given = {"c": c, "rust": rust}, sys.argv[5:]
    if what in ("guarantees", "speed"):
        return {"guarantees": guarantees, "speed": speed}[what](ordo, binaries, given)
    systems = ",".join(given) or ALL
    wrong = every_system(ordo, binaries, systems)
    print(f"\n{wrong} cells are wrong.\n")
    every_manner(ordo, binaries, systems.split(",")[0])
    print(f"\n{log_writes()}")
    sys.exit(wrong > 0)


main()
