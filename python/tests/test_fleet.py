"""Fleets on this machine, under xargs, and on a real Spark cluster with one executor killed.

Fault model: a task that is lost with its machine, or counted twice when it is carried out again; a damaged trace or result
that stops the others or passes for whole; results that depend on who carried a task out.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import FLEET, JOURNAL, ORDERED, ordo, skip

import ordo_trace
from measure.common import CLUSTER, FLEET as SCRIPT, spark
from measure.kills import kill_one

#: A sweep of some seconds: every task takes a moment, so that there is a middle.
SWEEP = ["--fs", "ffs-none,ffs-sync", "--states", "60", "--runs", "6", "--workload", "random:clients=2,steps=30"]


def fleet(*args: str | Path, expect: int = 0) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, args), "--ordo", ordo()], capture_output=True, text=True, check=False
    )
    assert ran.returncode == expect, ran.stdout + ran.stderr
    return ran


def has_tasks() -> None:
    if subprocess.run([ordo(), "crash", "task", "--help"], capture_output=True, check=False).returncode != 0:
        pytest.fail("ordo crash task is not there")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """The tasks of a sweep, and what one machine finds without tasks."""
    has_tasks()
    folder = tmp_path_factory.mktemp("sweep")
    tasks = folder / "tasks.jsonl"
    subprocess.run([ordo(), "crash", "plan", *SWEEP, "--runs-each", "1", "-o", str(tasks)], check=True)
    assert len(tasks.read_text().splitlines()) == 12
    whole = folder / "whole.json"
    run = [ordo(), "crash", *SWEEP, "--quiet", "--no-shrink", "-o", str(whole)]
    subprocess.run(run, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    return tasks, whole.read_bytes()


def test_traces_are_analysed_and_damaged_ones_named(tmp_path: Path) -> None:
    shutil.copytree(FLEET, tmp_path / "fleet")
    fleet("analyze", tmp_path / "fleet", "-o", tmp_path / "one.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "one.jsonl").read_text().splitlines()]
    assert [(row["host"], row["fs"], row["analysis"]["system"]) for row in rows] == [
        ("one", "ext3", "ext3"),
        ("two", "ext4", "ext4"),
    ]
    alone = subprocess.run([ordo(), "analyze", str(JOURNAL), "--json"], capture_output=True, text=True, check=True)
    assert rows[0]["analysis"] == json.loads(alone.stdout)
    bad = tmp_path / "fleet" / JOURNAL.relative_to(FLEET) / "requests.parquet"
    bad.write_bytes(bad.read_bytes()[:-100])
    ran = fleet("analyze", tmp_path / "fleet", "--workers", "1", expect=1)
    assert "set aside: host=one/" in ran.stderr and "requests.parquet" in ran.stderr
    assert ran.stdout.splitlines() == (tmp_path / "one.jsonl").read_text().splitlines()[1:]
    fleet("analyze", tmp_path / "none", expect=2)


def test_xargs_gives_what_one_machine_finds(tmp_path: Path, sweep: tuple[Path, bytes]) -> None:
    tasks, whole = sweep
    into, merged = tmp_path / "results", tmp_path / "merged.json"
    xargs = ["xargs", "-a", str(tasks), "-d", "\\n", "-n", "1", "-P", "2", ordo(), "crash", "task", "--into", str(into)]
    subprocess.run(xargs, stdout=subprocess.DEVNULL, check=True)
    merge = [ordo(), "crash", "merge", str(into), "-o", str(merged)]
    subprocess.run(merge, stdout=subprocess.DEVNULL, check=True)
    assert merged.read_bytes() == whole
    before = {path.name: path.stat().st_mtime_ns for path in into.iterdir()}
    assert len(before) == 12

    # A result is cut short, another is lost: merging names both; carrying all out again does only what is missing.
    names = sorted(before)
    (into / names[2]).write_bytes((into / names[2]).read_bytes()[:-40])
    (into / names[5]).unlink()
    ran = subprocess.run(merge, capture_output=True, text=True, check=False)
    assert ran.returncode == 2 and names[2] in ran.stderr, ran.stderr
    assert "tasks 3, 6 of 12 are missing" in ran.stderr and "sed -n '3p;6p'" in ran.stderr, ran.stderr
    subprocess.run(xargs, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = {path.name: path.stat().st_mtime_ns for path in into.glob("*.json")}
    assert sorted(after) == names and (into / f"{names[2]}.damaged").exists()
    assert {name for name in names if after[name] != before[name]} == {names[2], names[5]}
    subprocess.run(merge, stdout=subprocess.DEVNULL, check=True)
    assert merged.read_bytes() == whole

    # A result that is given twice is refused, with both names.
    shutil.copy(into / names[0], into / "copy.json")
    ran = subprocess.run(merge, capture_output=True, text=True, check=False)
    assert ran.returncode == 2 and "copy.json" in ran.stderr and names[0] in ran.stderr, ran.stderr


def test_without_spark_the_same(tmp_path: Path, sweep: tuple[Path, bytes]) -> None:
    tasks, whole = sweep
    fleet("crash", tasks, "--into", tmp_path / "results", "-o", tmp_path / "merged.json")
    assert (tmp_path / "merged.json").read_bytes() == whole

    # A result that was damaged since is carried out again, and is kept beside the new one.
    result = sorted((tmp_path / "results").glob("*.json"))[4]
    good = result.read_bytes()
    result.write_bytes(good[:-40])
    fleet("crash", tasks, "--into", tmp_path / "results", "-o", tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == whole and result.read_bytes() == good
    assert result.with_name(f"{result.name}.damaged").read_bytes() == good[:-40]

    # One that is there twice is refused: there is no result then, and none that was there before is changed.
    shutil.copy(result, tmp_path / "results" / "copy.json")
    ran = fleet("crash", tasks, "--into", tmp_path / "results", "-o", tmp_path / "none.json", expect=2)
    assert "copy.json" in ran.stderr and result.name in ran.stderr, ran.stderr
    assert not (tmp_path / "none.json").exists()

    wrong = tmp_path / "wrong.jsonl"
    lines = tasks.read_text().splitlines()
    wrong.write_text("\n".join([lines[0], lines[1][:50], lines[2].replace('"seed":', '"seed":1', 1)]))
    ran = fleet("crash", wrong, "--into", tmp_path / "other", expect=1)
    assert "line 2 of" in ran.stderr and "line 3 of" in ran.stderr and "line 1 of" not in ran.stderr, ran.stderr


def under_spark(tmp_path: Path, slow: str, done: Path, args: list[str | Path], enough: int = 3, expect: int = 0) -> str:
    """Runs fleet.py on a cluster of two executors, kills one when so many files are in ``done``, and returns the log.

    ``slow`` is a test of a shell. A task for which it holds waits until the killing is done or a while has passed: so the
    middle is the middle, however fast the machine is.
    """
    if shutil.which("java") is None:
        skip("java is not installed")
    if importlib.util.find_spec("pyspark") is None:
        skip("pyspark is not installed")
    gate = tmp_path / "killed"
    program = tmp_path / "ordo"
    program.write_text(
        f'#!/bin/sh\nif {slow}; then\n'
        f'  i=0; while [ ! -e {gate} ] && [ $i -lt 600 ]; do sleep 0.1; i=$((i+1)); done\nfi\n'
        f'"{ordo()}" "$@"\nstatus=$?\n[ "$1" = analyze ] && : > {done}/$$\nexit $status\n'
    )
    program.chmod(0o755)
    command = [sys.executable, str(SCRIPT), *map(str, args), "--master", CLUSTER, "--ordo", str(program)]

    def is_middle() -> bool:
        return done.is_dir() and len(list(done.iterdir())) >= enough

    ran = kill_one(command, spark(tmp_path), tmp_path / "log", is_middle, 420, then=gate.touch)
    assert ran.executor is not None and ran.status == expect, ran.log
    assert "Lost executor" in ran.log, ran.log
    return ran.log


def test_spark_with_an_executor_killed_gives_what_one_machine_finds(tmp_path: Path, sweep: tuple[Path, bytes]) -> None:
    tasks, whole = sweep
    into, merged = tmp_path / "results", tmp_path / "merged.json"
    slow = f'[ "$2" = task ] && [ "$(ls {into} 2>/dev/null | wc -l)" -ge 3 ]'
    under_spark(tmp_path, slow, into, ["crash", tasks, "--into", into, "-o", merged])
    assert merged.read_bytes() == whole
    assert len(list(into.glob("*.json"))) == 12


def test_spark_analyses_traces_with_an_executor_killed(tmp_path: Path) -> None:
    fleet_of, done = tmp_path / "fleet", tmp_path / "done"
    done.mkdir()
    for host in range(24):
        shutil.copytree(JOURNAL if host % 2 else ORDERED, fleet_of / f"host=h{host:02}/fs=ext/day=2026-11-01/a.trace")
    fleet("analyze", fleet_of, "-o", tmp_path / "one.jsonl")
    bad = fleet_of / "host=h05/fs=ext/day=2026-11-01/a.trace/requests.parquet"
    bad.write_bytes(bad.read_bytes()[:-100])
    slow = f'[ "$(ls {done} | wc -l)" -ge 3 ]'
    args: list[str | Path] = ["analyze", fleet_of, "-o", tmp_path / "many.jsonl"]
    text = under_spark(tmp_path, slow, done, args, expect=1)
    assert "set aside: host=h05/" in text and "23 of 24 traces analysed; 1 set aside" in text, text
    lines = (tmp_path / "one.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == 24
    assert (tmp_path / "many.jsonl").read_bytes() == b"".join(lines[:5] + lines[6:])


def test_parts_of_a_recording_are_traces(tmp_path: Path) -> None:
    """Each part is analysed by itself; one that was being written when its recorder was killed is left alone."""
    into = tmp_path / "parts"
    subprocess.run([ordo(), "trace", "import", str(ORDERED), "--rotate", "64k", "-o", str(into)], check=True)

    def analysis(*args: str) -> dict[str, Any]:
        ran = subprocess.run([ordo(), "analyze", *args, "--json"], capture_output=True, check=True)
        found: dict[str, Any] = json.loads(ran.stdout)
        return found

    # The trace has no contents: naming it again, as the import does, gives fewer names than the recorder had.
    whole = analysis(str(ORDERED), "--again")
    assert analysis(str(into)) == whole
    first = sorted(into.rglob("requests.parquet"))[0].parent
    under_way = first.with_name(first.name + ".writing")
    shutil.copytree(first, under_way)
    fleet("analyze", into, "-o", tmp_path / "parts.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "parts.jsonl").read_text().splitlines()]
    assert len(rows) > 1 and {row["fs"] for row in rows} == {"ext4"}
    written = sum(kind["bytes"] for row in rows for kind in row["analysis"]["writes"].values())
    assert written == sum(kind["bytes"] for kind in whole["writes"].values())
    assert under_way not in ordo_trace.open(into).traces
    assert len(ordo_trace.open(into)) == len(rows)
    count = ordo_trace.open(into).duckdb().sql("select count(*), count(distinct recording) from traces").fetchall()
    assert count == [(len(rows), 1)]

    # A part is damaged, and another has lost a table that only the other parts need. All parts together are counted
    # without both, which are named; each by itself, without the damaged one.
    parts = [row["trace"] for row in rows]
    cut = into / parts[1] / "blocks.parquet"
    cut.write_bytes(cut.read_bytes()[:-100])
    (into / parts[0] / "earlier.parquet").unlink()
    ran = subprocess.run([ordo(), "analyze", str(into)], capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stderr
    named = [line for line in ran.stderr.splitlines() if "set aside" in line]
    assert len(named) == 2, ran.stderr
    assert parts[0] in named[0] and "earlier.parquet" in named[0] and parts[1] in named[1] and "blocks.parquet" in named[1]
    ran = fleet("analyze", into, expect=1)
    assert f"set aside: {parts[1]}: " in ran.stderr and f"{len(rows) - 1} of {len(rows)} traces" in ran.stderr, ran.stderr
    lines = (tmp_path / "parts.jsonl").read_text().splitlines()
    assert ran.stdout.splitlines() == lines[:1] + lines[2:]
