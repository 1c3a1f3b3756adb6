"""A great sweep, and the analysis of many traces, on Spark with an executor killed each time: against one machine."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

from .common import CLUSTER, FLEET, Figures, MeasureError, Options, need_space, spark, timed
from .grown import Fleet, damage, grow
from .kills import Killed, kill_one

TITLE = "The proof at full size"
SYSTEMS = ["ffs-soft-updates", "ffs-sync", "lffs-file", "lffs-wafs-1async", "lfs", "dualfs"]
GEOMETRIES = ["4k-512", "8k-1k", "16k-2k", "16k-16k"]
#: The most states of a run, and how many it has at least on average, since small runs have no more.
EACH_MOST, EACH_LEAST = 30_000, 27_000
#: An executor is killed when this part of all is done.
MIDDLE = 3
#: The most that one run on Spark takes, in seconds.
LONGEST = 7200
#: The exit statuses of a sweep: promises kept, and one broken, which is a result too.
FOUND = (0, 1)


def kill_in_the_middle(folder: Path, name: str, args: list[str], done: Path, of: int) -> tuple[Killed, int]:
    """`fleet.py` on Spark, an executor killed when a third is done; also how much was done then."""
    at = 0

    def is_middle() -> bool:
        nonlocal at
        at = sum(1 for path in done.iterdir() if not path.name.startswith(".")) if done.is_dir() else 0
        return at >= of // MIDDLE

    command = [sys.executable, str(FLEET), *args, "--master", CLUSTER]
    # Nothing is counted after the kill, so `at` stays as it was then.
    killed = kill_one(command, spark(folder), folder / f"{name}.log", is_middle, LONGEST)
    if killed.executor is None or "Lost executor" not in killed.log:
        raise MeasureError(f"{name}: no executor was lost in the middle: {killed.log[-3000:]}")
    if killed.status not in FOUND:
        raise MeasureError(f"{name}: status {killed.status}: {killed.log[-3000:]}")
    return killed, at


def loss(killed: Killed, at: int) -> Figures:
    """When the executor was killed, and which of its tasks were carried out again; as Spark's log has it."""
    tasks = re.findall(r"Lost task (\S+) in stage .*ExecutorLostFailure", killed.log)
    said = next(line for line in killed.log.splitlines() if "Lost executor" in line)
    return {"spark_seconds": killed.seconds, "at": at, "lost": len(set(tasks)), "spark_said": said}


def sweep(options: Options, folder: Path) -> Figures:
    """The tasks on Spark, against `ordo crash` with the same arguments."""
    runs = -(-options.states // (len(SYSTEMS) * len(GEOMETRIES) * EACH_LEAST))
    plan = ["--fs", ",".join(SYSTEMS), "--geometry", ",".join(GEOMETRIES), "--workload", "random:clients=2,steps=60",
            "--states", str(min(EACH_MOST, options.states)), "--runs", str(runs)]
    tasks, whole, merged, into = (folder / name for name in ("tasks.jsonl", "whole.json", "merged.json", "results"))
    timed([options.ordo, "crash", "plan", *plan, "--runs-each", "1", "-o", str(tasks)])
    count = len(tasks.read_text().splitlines())
    alone = [options.ordo, "crash", *plan, "--quiet", "--no-shrink", "-o", str(whole)]
    alone_seconds = timed(alone, FOUND, cwd=folder)
    args = ["crash", str(tasks), "--into", str(into), "-o", str(merged), "--ordo", options.ordo]
    killed, at = kill_in_the_middle(folder, "sweep", args, into, count)
    rows = json.loads(whole.read_bytes())["rows"]
    return {
        "plan": plan, "tasks": count, "asked": options.states, "states": sum(row["states"] for row in rows),
        "broken": sum(row["promise_broken"] for row in rows), "alone_seconds": alone_seconds,
        **loss(killed, at), **compared(whole.read_bytes(), merged.read_bytes()),
    }


def compared(one: bytes, other: bytes) -> Figures:
    """Whether two results are the same bytes."""
    return {"bytes": len(one), "sha256": hashlib.sha256(one).hexdigest(), "other_sha256": hashlib.sha256(other).hexdigest()}


def counting(options: Options, folder: Path, done: Path) -> Path:
    """The program, which also leaves a file for each analysis, so that the middle can be seen."""
    program = folder / "counting"
    program.write_text(f'#!/bin/sh\n"{options.ordo}" "$@"\nstatus=$?\n: > {done}/$$\nexit $status\n')
    program.chmod(0o755)
    return program


def analysis(options: Options, folder: Path) -> Figures:
    """The traces on Spark, some of them damaged, against `fleet.py` on this machine before the damage."""
    done = folder / "done"
    done.mkdir()
    fleet: Fleet = grow(options.ordo, folder, options.traces)
    one, many = folder / "one.jsonl", folder / "many.jsonl"
    embedded = [sys.executable, str(FLEET), "analyze", str(fleet.root)]
    alone_seconds = timed([*embedded, "-o", str(one), "--ordo", options.ordo])
    lines = dict(zip(fleet.names, one.read_bytes().splitlines(keepends=True), strict=True))
    for name, line in lines.items():
        if json.loads(line)["trace"] != name:
            raise MeasureError(f"{name}: another trace is in its place")
    damaged = damage(fleet, options.damaged)
    program = counting(options, folder, done)
    args = ["analyze", str(fleet.root), "-o", str(many), "--ordo", str(program)]
    killed, at = kill_in_the_middle(folder, "analysis", args, done, len(lines))
    rest = b"".join(line for name, line in lines.items() if name not in damaged)
    said = dict(re.findall(r"^set aside: (\S+): (.*)$", killed.log, re.MULTILINE))
    return {
        "asked": options.traces, "traces": len(lines), "recordings": fleet.recordings, "systems": fleet.systems,
        "requests": fleet.requests, "different": len({json.dumps(json.loads(line)["analysis"]) for line in lines.values()}),
        "alone_seconds": alone_seconds, **loss(killed, at),
        "damaged": damaged, "said": said, **compared(rest, many.read_bytes()),
    }


def measure(options: Options, folder: Path) -> Figures:
    """The sweep, then the traces."""
    need_space(folder, 2e9, "the proof", "STATES= and TRACES=")
    version = subprocess.run([sys.executable, "-c", "import pyspark; print(pyspark.__version__)"],
                             capture_output=True, text=True, check=True).stdout.strip()
    return {"spark": version, "analysis": analysis(options, folder), "sweep": sweep(options, folder)}


def verdicts(figures: Figures) -> list[tuple[str, bool]]:
    """What was wanted, with the figure, and whether it is so."""
    one, two = figures["sweep"], figures["analysis"]
    named = sorted(two["said"]) == sorted(two["damaged"])
    return [
        (f"ten million crash states are judged: {one['states']:,}", one["states"] >= 10_000_000),
        (f"the sweep: the merged result, an executor killed after {one['at']} of {one['tasks']} tasks, is byte for byte that of "
         f"`ordo crash` on one machine: {one['bytes']:,} bytes, SHA-256 {one['sha256'][:16]} and {one['other_sha256'][:16]}",
         one["sha256"] == one["other_sha256"]),
        (f"a thousand traces are analysed: {two['traces']:,}", two["traces"] >= 1000),
        (f"the analysis: the result, an executor killed after {two['at']} of {two['traces']} traces, is byte for byte that of one "
         f"machine without the damaged traces: {two['bytes']:,} bytes, SHA-256 {two['sha256'][:16]} and "
         f"{two['other_sha256'][:16]}", two["sha256"] == two["other_sha256"]),
        (f"the damaged traces are named, and no others: {len(two['said'])} named of {len(two['damaged'])}", named),
    ]


def page(figures: Figures) -> str:
    """The section."""
    one, two = figures["sweep"], figures["analysis"]
    systems = ", ".join(two["systems"])
    lines = [
        f"On `{CLUSTER}` of Spark {figures['spark']}. When a third was done, one of its two executors was killed (SIGKILL).\n",
        f"**A sweep.** {one['tasks']} tasks of `ordo crash plan {' '.join(one['plan'])} --runs-each 1`: {one['states']:,} states, "
        f"{one['broken']:,} with a broken promise. One machine is `ordo crash` with the same arguments, a thread for each processor.\n",
        f"**Traces.** {two['traces']:,} parts of {two['recordings']} recordings of {systems}, all made on this machine with other "
        "random work in each, without contents, `--rotate 128k`; the folders give each recording a host of its own. "
        f"They have {two['requests']:,} requests, and {two['different']:,} different analyses. One machine is `fleet.py analyze` "
        f"without Spark. Then {len(two['damaged'])} traces were damaged.\n",
        "| seconds | one machine | Spark, an executor killed | tasks that were lost with it, and carried out again |",
        "|---|---:|---:|---:|",
        f"| sweep | {one['alone_seconds']:.0f} | {one['spark_seconds']:.0f} | {one['lost']} |",
        f"| traces | {two['alone_seconds']:.0f} | {two['spark_seconds']:.0f} | {two['lost']} |\n",
        "| damage | what the analysis said |\n|---|---|",
        *(f"| {how} | {brief(name, two['said'].get(name, 'nothing'))} |" for name, how in two["damaged"].items()),
    ]
    return "\n".join(lines)


def brief(name: str, said: str) -> str:
    """A complaint without the folders before the trace's name."""
    return re.sub(rf"\S*/{re.escape(name)}", "…", said).removeprefix("ordo: ").replace("|", "\\|")
