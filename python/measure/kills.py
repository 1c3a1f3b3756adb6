"""Spark on this machine, one of whose executors is killed in the middle of its work."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Killed:
    """A run of Spark in which an executor was killed."""

    #: The exit status.
    status: int
    #: What it printed.
    log: str
    #: How long it took.
    seconds: float
    #: The process that was killed; none if the run ended before.
    executor: int | None


def executors(of: int) -> list[int]:
    """The executors among the descendants of a process."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
                names[int(entry.name)] = (entry / "cmdline").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rsplit(")", 1)[1].split()[1])

    def descends(process: int) -> bool:
        while process > 1 and process != of:
            process = parents.get(process, 0)
        return process == of

    return [p for p, name in names.items() if "CoarseGrainedExecutorBackend" in name and descends(p)]


def kill_one(
    command: list[str],
    environment: dict[str, str],
    log: Path,
    is_middle: Callable[[], bool],
    most: float,
    then: Callable[[], None] = lambda: None,
) -> Killed:
    """Runs a command that starts Spark, and kills one executor (SIGKILL) as soon as it is in the middle; ``then`` follows.

    The run may take ``most`` seconds; then all of it is killed, and the status is not 0.
    """
    began = time.monotonic()
    with log.open("w") as out:
        run = subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True)
    killed = None
    try:
        while run.poll() is None and time.monotonic() - began < most:
            if killed is None and is_middle() and (found := executors(run.pid)):
                killed = found[0]
                os.kill(killed, signal.SIGKILL)
                then()
            time.sleep(0.1)
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
    return Killed(run.wait(), log.read_text(errors="replace"), time.monotonic() - began, killed)
