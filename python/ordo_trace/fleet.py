"""Many traces analysed, or a sweep of crashes, on Spark or on this machine alone: the same commands, the same results.

::

    python -m ordo_trace.fleet analyze fleet -o analysis.jsonl
    python -m ordo_trace.fleet crash tasks.jsonl --into results -o crash.json
    spark-submit python/ordo_trace/fleet.py crash tasks.jsonl --into /shared/results -o crash.json

Ordo does the work: each task is one `ordo analyze TRACE --json` or one `ordo crash task`. Spark says where, and does it
again where a machine is lost. This file needs nothing but Python's own library, so that it can be given to spark-submit
by itself; ``ordo`` and the folders must be there on every machine, under the same path. Results do not depend on who
carried a task out, nor on how often: an analysis is a function of the trace, and the result of a crash task has a name
that follows from its contents and is renamed into place.

What cannot be analysed is named and set aside; the rest is complete. Exit status: 0 all is well, 1 something was set
aside or a promise was broken, 2 it could not be done.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

#: How often a task is tried where it fails.
TRIES = 2
#: What a failed task says at most, of its complaints.
SAID_MAX = 2000
#: Exit statuses.
FINE, ASIDE, IMPOSSIBLE = 0, 1, 2

#: A task: its name, the command, and what goes to its standard input.
Task = tuple[str, list[str], str]
#: What came of it: its name, its standard output or nothing, its complaint or nothing.
Done = tuple[str, "str | None", "str | None"]


class FleetError(Exception):
    """It cannot be done: says why, and what to do."""


def carry_out(task: Task) -> Done:
    """Carries a task out on whatever machine this is. Does not raise: a task that fails does not stop the others."""
    name, command, given = task
    said = ""
    for _ in range(TRIES):
        try:
            ran = subprocess.run(command, input=given, capture_output=True, text=True, errors="replace", check=False)
        except OSError as error:
            return name, None, f"{command[0]}: {error.strerror}: ordo must be on every machine under this path"
        if ran.returncode == 0:
            return name, ran.stdout, None
        said = ran.stderr.strip()[-SAID_MAX:] or f"{command[0]} ended with status {ran.returncode}"
    return name, None, said


def on_this_machine(tasks: Iterable[Task], workers: int) -> Iterator[Done]:
    """All tasks, so many at a time, in order."""
    with ThreadPoolExecutor(max_workers=workers) as pool:
        yield from pool.map(carry_out, tasks)


def on_spark(tasks: list[Task], master: str | None, app: str) -> Iterator[Done]:
    """All tasks on Spark, in order; a part for each, so that what is lost with a machine is little."""
    from pyspark import cloudpickle
    from pyspark.sql import SparkSession

    # Executors get this file's functions with the tasks: nothing is installed there.
    if __name__ != "__main__":
        cloudpickle.register_pickle_by_value(sys.modules[__name__])
    builder = SparkSession.builder.appName(app).config("spark.ui.showConsoleProgress", "false")
    if master is not None:
        builder = builder.master(master)
    session = builder.getOrCreate()
    try:
        parts = session.sparkContext.parallelize(tasks, max(1, len(tasks)))
        yield from parts.map(carry_out).collect()
    finally:
        session.stop()


def is_under_spark() -> bool:
    """Whether spark-submit has started this."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def run(tasks: list[Task], args: argparse.Namespace) -> Iterator[Done]:
    """Where the arguments say: Spark under spark-submit or with --master, else this machine."""
    if args.master is not None or is_under_spark():
        return on_spark(tasks, args.master, f"ordo {args.what}")
    return on_this_machine(tasks, args.workers)


def traces(folders: Iterable[str]) -> list[tuple[str, Path]]:
    """The traces in the folders, with their names from there, in order."""
    found = []
    for folder in folders:
        root = Path(folder)
        if not root.is_dir():
            raise FleetError(f"{root}: there is no such folder; give folders with traces")
        for at, below, files in os.walk(root):
            # A part that was being written when its recorder was stopped is no trace.
            below[:] = sorted(name for name in below if not name.endswith(".writing"))
            if any(name in files for name in ("requests.parquet", "blocks.parquet")):
                name = os.path.relpath(at, root)
                found.append((str(root) if name == "." else name, Path(at).absolute()))
                below.clear()
    if not found:
        raise FleetError(f"no traces in {', '.join(folders)}; ordo trace run -o NAME.trace makes one")
    names = [name for name, _ in found]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise FleetError(f"{twice[0]} is in two of the folders; analyze one folder at a time")
    return sorted(found)


def analyze(args: argparse.Namespace) -> int:
    """One line of JSON for each trace, in order of their names."""
    found = traces(args.folders)
    tasks: list[Task] = [(name, [args.ordo, "analyze", str(path), "--json"], "") for name, path in found]
    lines, aside = [], []
    for name, out, complaint in run(tasks, args):
        row: dict[str, Any] = {"trace": name}
        row |= dict(part.split("=", 1) for part in name.split("/") if "=" in part)
        if out is None:
            aside.append(f"{name}: {complaint}")
        else:
            lines.append(json.dumps(row | {"analysis": json.loads(out)}, sort_keys=False) + "\n")
    put(args.output, "".join(lines))
    return tell(aside, f"{len(lines)} of {len(found)} traces analysed")


def crash(args: argparse.Namespace) -> int:
    """Carries out the tasks that have no result yet, and puts all results together."""
    tasks: list[Task] = []
    into = str(Path(args.into).absolute())
    for number, line in enumerate(Path(args.tasks).read_text(encoding="utf-8").splitlines(), 1):
        if line.strip():
            tasks.append((f"line {number}", [args.ordo, "crash", "task", "--into", into], line))
    if not tasks:
        raise FleetError(f"{args.tasks}: no tasks; ordo crash plan ... > {args.tasks} makes them")
    aside = [f"{name} of {args.tasks}: {complaint}" for name, _, complaint in run(tasks, args) if complaint is not None]
    if aside:
        return tell(aside, f"{len(tasks) - len(aside)} of {len(tasks)} tasks carried out")
    return merge(args.ordo, into, args.output)


def merge(ordo: str, into: str, output: str | None) -> int:
    """`ordo crash merge`; its exit status says whether a promise was broken."""
    more = ["-o", output] if output else ["--json"]
    ran = subprocess.run([ordo, "crash", "merge", into, *more], stdout=subprocess.PIPE, text=True, check=False)
    sys.stdout.write(ran.stdout)
    return ran.returncode


def put(output: str | None, text: str) -> None:
    """Writes a file wholly or not at all; or prints."""
    if output is None:
        sys.stdout.write(text)
        return
    beside = Path(f"{output}.{os.getpid()}.part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(output)


def tell(aside: list[str], done: str) -> int:
    """Names what was set aside."""
    for what in aside:
        print(f"set aside: {what}", file=sys.stderr)
    if aside:
        print(f"{done}; {len(aside)} set aside", file=sys.stderr)
    return ASIDE if aside else FINE


def arguments() -> argparse.ArgumentParser:
    """What can be asked for."""
    parser = argparse.ArgumentParser(prog="fleet.py", description=(__doc__ or "").split("\n")[0])
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--ordo", default=os.environ.get("ORDO", "ordo"), help="the program [ordo, or $ORDO]")
    common.add_argument("--master", help="run on this Spark; under spark-submit its own is taken")
    common.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="without Spark: tasks at a time")
    common.add_argument("-o", "--output", help="write to this file [standard output]")
    what = parser.add_subparsers(dest="what", required=True)
    one = what.add_parser("analyze", parents=[common], help="ordo analyze of every trace: a line of JSON each")
    one.add_argument("folders", nargs="+", metavar="DIR", help="folders with traces, at any depth")
    two = what.add_parser("crash", parents=[common], help="the tasks of ordo crash plan, and their results merged")
    two.add_argument("tasks", help="the file that ordo crash plan wrote")
    two.add_argument("--into", required=True, help="the folder of results, which all machines share")
    return parser


def main(given: list[str] | None = None) -> int:
    """The command."""
    args = arguments().parse_args(given)
    try:
        return analyze(args) if args.what == "analyze" else crash(args)
    except (FleetError, OSError) as error:
        print(f"fleet.py: {error}", file=sys.stderr)
        return IMPOSSIBLE


if __name__ == "__main__":
    sys.exit(main())
