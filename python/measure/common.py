"""What the sections share: the machine, the options, times, and the free space of a disk."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FLEET = ROOT / "ordo_trace" / "fleet.py"
CLUSTER = "local-cluster[2,1,1024]"
#: Figures of a section, as they are kept.
Figures = dict[str, Any]


class MeasureError(Exception):
    """It cannot be measured: says why, and what to do."""


@dataclass(frozen=True)
class Options:
    """What is measured with, and how much of it."""

    #: The program.
    ordo: str
    #: Of the long recording.
    seconds: float
    #: Written in the long recording, in bytes.
    bytes: int
    #: Of everything that is timed.
    rounds: int
    #: Runs of the sweep for each file system.
    runs: int
    #: Written for the cost of recording, in bytes.
    cost_bytes: int
    #: Crash states of the proof.
    states: int
    #: Traces of the proof, and how many of them are damaged.
    traces: int
    damaged: int


def spread(values: list[float], digits: int = 1) -> str:
    """The median, the least and the greatest."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def machine() -> str:
    """Which machine this is."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = [line.split(": ")[1] for line in lines if line.startswith("model name")]
    return f"{os.cpu_count()} cores of {model[0] if model else 'an unknown processor'}"


def load() -> str:
    """The load over 1, 5 and 15 minutes."""
    return " ".join(Path("/proc/loadavg").read_text().split()[:3])


def commit() -> str:
    """The commit, and whether what measures and carries out was changed since."""
    def git(*args: str) -> str:
        ran = subprocess.run(["git", "-C", str(ROOT), *args], capture_output=True, text=True, check=False)
        return ran.stdout.strip()

    changed = git("status", "--porcelain", "--", "measure", "ordo_trace")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + (" with changes" if changed else "")


def digest(program: str) -> str:
    """The first digits of the SHA-256 of a program."""
    return hashlib.sha256(Path(program).read_bytes()).hexdigest()[:12]


def timed(command: list[str], good: tuple[int, ...] = (0,), **more: Any) -> float:
    """The seconds that a command takes, whose exit status is one of the good ones."""
    began = time.monotonic()
    ran = subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **more)
    if ran.returncode not in good:
        raise MeasureError(f"{' '.join(command)[:300]}: status {ran.returncode}: {ran.stderr[-2000:]}")
    return time.monotonic() - began


def spark(folder: Path) -> dict[str, str]:
    """The environment of a Spark on this machine that keeps its files in a folder."""
    return os.environ | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false --conf spark.executor.memory=512m "
        "--driver-memory 512m pyspark-shell",
    }


#: Runs a command, and prints its exit status, seconds, and memory at most in KB. The memory of a process counts from before
#: its exec, when it is still a copy of the one that starts it: so that is this small one.
PEAK = r"""
import json, resource, subprocess, sys, time
began = time.monotonic()
status = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
print(json.dumps([status, time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss]))
"""


def peak(command: list[str]) -> tuple[int, float, float]:
    """The exit status of a command, its seconds, and its memory at most in MB."""
    ran = subprocess.run([sys.executable, "-S", "-c", PEAK, *command], stdout=subprocess.PIPE, text=True, check=True)
    status, seconds, memory = json.loads(ran.stdout)
    return status, seconds, memory / 1024


def need_space(folder: Path, size: float, what: str, fewer: str) -> None:
    """Refuses to begin where the disk has less free than so many bytes."""
    free = shutil.disk_usage(folder).free
    if free < size:
        raise MeasureError(
            f"{folder}: {free / 1e9:.1f} GB are free, and {what} takes up to {size / 1e9:.1f} GB; "
            f"free some, take another disk with --kept, or ask for less with {fewer}"
        )
