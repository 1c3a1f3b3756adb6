"""A recorder with a work under it: its time, and its memory while it goes on."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from os import sysconf
from pathlib import Path

from .common import MeasureError

#: Runs in the mount: writes of 4 to 128 KB at random places of eight files, every sixteenth followed by an fdatasync.
#: Ends after so many bytes or seconds, whichever is first. With an even pace: the bytes are spread over the seconds.
WORK = r"""
import os, random, sys, time
most, seconds, is_even, random = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "even", random.Random(1)
pool, written, writes, began = os.urandom(32 << 20), 0, 0, time.monotonic()
files = [os.open(f"f{i}", os.O_RDWR | os.O_CREAT) for i in range(8)]
# A machine that is slower than the pace gets twice the time.
until = began + (2 * seconds if is_even else seconds)
while written < most and time.monotonic() < until:
    length = random.choice((4, 4, 4, 16, 64, 128)) << 10
    file = random.choice(files)
    at = random.randrange(len(pool) - length)
    os.pwrite(file, pool[at:at + length], random.randrange(32 << 20) // 4096 * 4096)
    written, writes = written + length, writes + 1
    if writes % 16 == 0:
        os.fdatasync(file)
    if is_even:
        time.sleep(max(0, began + seconds * written / most - time.monotonic()))
os.sync()
print(time.monotonic() - began, written, file=sys.stderr)
"""


@dataclass(frozen=True)
class Seen:
    """A recorder at one moment."""

    at: float
    #: Memory now and at most, in KB.
    rss: int
    peak: int
    #: Seconds of the processor so far.
    cpu: float


@dataclass(frozen=True)
class Recorded:
    """A recording."""

    #: How long the work took.
    seconds: float
    #: The bytes that the work wrote.
    written: int
    seen: list[Seen]

    @property
    def peak(self) -> float:
        """The recorder's memory at most, in MB."""
        return max(one.peak for one in self.seen) / 1024


def look(process: int, at: float) -> Seen:
    """A process now."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    status = dict(line.split(":\t") for line in lines if ":\t" in line)
    stat = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    cpu = (int(stat[11]) + int(stat[12])) / sysconf("SC_CLK_TCK")
    return Seen(at, int(status["VmRSS"].split()[0]), int(status["VmHWM"].split()[0]), cpu)


def record(ordo: str, folder: Path, how: list[str], most: int, seconds: float, is_even: bool = False) -> Recorded:
    """Records the work on an ext4 of 512 MB in memory."""
    work = folder / "work.py"
    work.write_text(WORK)
    pace = "even" if is_even else "free"
    doing = [sys.executable, str(work), str(most), str(seconds), pace]
    command = [ordo, "trace", "run", "--fs", "ext4", "--size", "512m", *how, "--", *doing]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    seen: list[Seen] = []
    began, over = time.monotonic(), threading.Event()

    def watch() -> None:
        while not over.wait(0.02 if len(seen) < 50 else 0.2):
            try:
                seen.append(look(run.pid, time.monotonic() - began))
            except (OSError, KeyError):
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    said = run.communicate()[1]
    over.set()
    watcher.join()
    if run.returncode != 0 or "the recording has ended" in said:
        raise MeasureError(f"{' '.join(command)}: {said}")
    if not seen:
        raise MeasureError(f"{' '.join(command)}: it ended before it was looked at")
    line = next(line for line in said.splitlines() if line.replace(".", "").replace(" ", "").isdigit())
    return Recorded(float(line.split()[0]), int(line.split()[1]), seen)


def parts(folder: Path) -> list[Path]:
    """The parts of the recordings in a folder, in order."""
    return sorted(path.parent for path in folder.rglob("requests.parquet"))


def remove(folder: Path, *names: str) -> None:
    """Removes recordings."""
    for name in names:
        shutil.rmtree(folder / name, ignore_errors=True)
