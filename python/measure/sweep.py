"""One worker, two workers, and Spark on the tasks of a sweep, by turns."""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median

from .common import CLUSTER, FLEET, Figures, Options, spark, spread, timed

TITLE = "Sweeps of crashes"
SWEEP = ["--fs", "ffs-soft-updates,lffs-file", "--workload", "random:clients=2,steps=60", "--states", "30000"]
ONE, TWO, START = "xargs -P1", "xargs -P2", "one task"


def start_and_end(options: Options, folder: Path, turn: int) -> float:
    """The seconds of Spark's start and end, with next to nothing to do."""
    few, result = folder / "few.jsonl", folder / "few.json"
    timed([options.ordo, "crash", "plan", "--fs", "ffs-sync", "--states", "10", "--runs", "1", "-o", str(few)])
    with few.open() as task:
        alone = timed([options.ordo, "crash", "task", "--into", str(folder / f"few{turn}")], stdin=task)
    into = ["--into", str(folder / f"few{turn}-spark"), "-o", str(result)]
    command = [sys.executable, str(FLEET), "crash", str(few), *into, "--master", CLUSTER, "--ordo", options.ordo]
    return timed(command, env=spark(folder)) - alone


def carry_out(options: Options, folder: Path, how: str, into: Path, tasks: Path, result: Path) -> float:
    """The seconds that the tasks and the merge take in one way."""
    if how == CLUSTER:
        command = [sys.executable, str(FLEET), "crash", str(tasks), "--into", str(into), "-o", str(result)]
        return timed([*command, "--master", CLUSTER, "--ordo", options.ordo], env=spark(folder))
    each = ["xargs", "-a", str(tasks), "-d", "\\n", "-n", "1", how.split()[1], options.ordo, "crash", "task", "--into"]
    return timed([*each, str(into)]) + timed([options.ordo, "crash", "merge", str(into), "-o", str(result)])


def measure(options: Options, folder: Path) -> Figures:
    """All ways by turns."""
    tasks = folder / "tasks.jsonl"
    plan = [*SWEEP, "--runs", str(options.runs), "--runs-each", "1"]
    timed([options.ordo, "crash", "plan", *plan, "-o", str(tasks)])
    seconds: dict[str, list[float]] = {ONE: [], TWO: [], CLUSTER: [], START: []}
    merged: set[bytes] = set()
    for turn in range(options.rounds):
        for i, (how, times) in enumerate(seconds.items()):
            if how == START:
                times.append(start_and_end(options, folder, turn))
                continue
            result = folder / f"{turn}-{i}.json"
            times.append(carry_out(options, folder, how, folder / f"{turn}-{i}", tasks, result))
            merged.add(result.read_bytes())
    return {
        "plan": plan, "tasks": len(tasks.read_text().splitlines()), "rounds": options.rounds, "seconds": seconds,
        "merged": len(merged),
    }


def verdicts(figures: Figures) -> list[tuple[str, bool]]:
    """What was wanted, with the figure, and whether it is so."""
    times = median(figures["seconds"][ONE]) / median(figures["seconds"][TWO])
    return [
        (f"two workers are 1.8 times as fast as one: {times:.2f} times", times >= 1.8),
        (f"all ways in all rounds give one merged result, byte for byte: {figures['merged']}", figures["merged"] == 1),
    ]


def page(figures: Figures) -> str:
    """The section."""
    seconds = figures["seconds"]
    names = {START: f"Spark's start and end ({CLUSTER}, one task, less the task)"}
    two, cluster, start = (median(seconds[how]) for how in (TWO, CLUSTER, START))
    lines = [
        f"{figures['tasks']} tasks of `ordo crash plan {' '.join(figures['plan'])}`, {figures['rounds']} rounds by turns, seconds "
        "with the merge: median (least to most).\n",
        "| | seconds |\n|---|---:|",
        *(f"| {names.get(how, how)} | {spread(times)} |" for how, times in seconds.items()),
        f"\nSpark over `xargs -P2`: {cluster - two:.1f} s, of which its start and end are {start:.1f} s.",
    ]
    return "\n".join(lines)
