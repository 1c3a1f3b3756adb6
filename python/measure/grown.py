"""A thousand traces: parts of recordings of several file systems, and damage to some of them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as parquet

from .common import MeasureError
from .recording import parts

#: File systems and mount options, by turns.
SYSTEMS = [("ext4", "defaults"), ("ext2", "defaults"), ("xfs", "defaults"), ("ext3", "data=journal"), ("btrfs", "defaults"),
           ("ext4", "data=writeback"), ("ntfs", "defaults"), ("ext3", "data=ordered")]
#: The most recordings.
RECORDINGS = 20

#: Runs in the mount: files are made, written over, renamed and removed, until the recording has so many parts.
WORK = r"""
import os, random, sys, time
into, parts, random = sys.argv[1], int(sys.argv[2]), random.Random(int(sys.argv[3]))
until, files, made = time.monotonic() + 300, [], 0
def written():
    return sum("requests.parquet" in names for at, _, names in os.walk(into) if not at.endswith(".writing"))
while written() < parts and time.monotonic() < until:
    for _ in range(random.randrange(5, 40)):
        what = random.random()
        if what < 0.5 or len(files) < 8:
            folder = f"d{random.randrange(12)}"
            os.makedirs(folder, exist_ok=True)
            files.append(f"{folder}/f{made}")
            made += 1
            open(files[-1], "wb").write(os.urandom(random.randrange(1, 120_000)))
        elif what < 0.75:
            with open(random.choice(files), "r+b") as file:
                file.seek(random.randrange(60_000))
                file.write(os.urandom(random.randrange(1, 20_000)))
                file.flush()
                os.fsync(file.fileno())
        elif what < 0.85:
            at = random.randrange(len(files))
            os.rename(files[at], files[at] + "r")
            files[at] += "r"
        else:
            os.unlink(files.pop(random.randrange(len(files))))
        while len(files) > 300:
            os.unlink(files.pop(0))
    os.sync()
"""


@dataclass(frozen=True)
class Fleet:
    """Traces of many hosts."""

    root: Path
    #: The traces, by the order of their names.
    names: list[str]
    recordings: int
    #: File systems with mount options, each once.
    systems: list[str]
    requests: int


def grow(ordo: str, folder: Path, traces: int) -> Fleet:
    """So many traces, each a part of a recording of its own seed."""
    root, work = folder / "fleet", folder / "grow.py"
    root.mkdir()
    work.write_text(WORK)
    recordings, systems, left = min(RECORDINGS, traces), [], traces
    for host in range(recordings):
        wanted = left // (recordings - host)
        left -= wanted
        system, how = SYSTEMS[host % len(SYSTEMS)]
        systems.append(system if how == "defaults" else f"{system} ({how})")
        into = folder / "recording"
        doing = [sys.executable, str(work), str(into), str(wanted), str(host)]
        command = [ordo, "trace", "run", "--fs", system, "--mount-opts", how, "--rotate", "128k", "--without-contents", "-o",
                   str(into), "--", *doing]
        ran = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        made = parts(into)
        if ran.returncode != 0 or len(made) < wanted:
            raise MeasureError(f"{' '.join(command)}: {len(made)} parts of {wanted}: {ran.stderr[-2000:]}")
        for part in made[wanted:]:
            shutil.rmtree(part)
        next(into.glob("host=*")).rename(root / f"host=h{host:02}")
        shutil.rmtree(into)
    all_parts = parts(root)
    requests = sum(parquet.read_metadata(part / "requests.parquet").num_rows for part in all_parts)
    names = sorted(str(part.relative_to(root)) for part in all_parts)
    return Fleet(root, names, recordings, sorted(set(systems)), requests)


def cut(trace: Path, _: Path) -> str:
    """A file without its end."""
    file = trace / "requests.parquet"
    file.write_bytes(file.read_bytes()[:-100])
    return "`requests.parquet` without its last 100 bytes"


def change(trace: Path, _: Path) -> str:
    """Another bit in a column that the analysis reads. One in a column that it does not read changes no analysis."""
    file = trace / "blocks.parquet"
    group = parquet.read_metadata(file).row_group(0)
    columns = [group.column(i) for i in range(group.num_columns)]
    kind = next(column for column in columns if column.path_in_schema == "kind")
    data = bytearray(file.read_bytes())
    data[(kind.dictionary_page_offset or kind.data_page_offset) + kind.total_compressed_size // 2] ^= 1
    file.write_bytes(data)
    return "one bit of the column `kind` in `blocks.parquet`"


def empty(trace: Path, _: Path) -> str:
    """A file of no bytes."""
    (trace / "recounted.parquet").write_bytes(b"")
    return "`recounted.parquet` of no bytes"


def lose(trace: Path, _: Path) -> str:
    """No file."""
    (trace / "requests.parquet").unlink()
    return "`requests.parquet` removed"


def confuse(trace: Path, other: Path) -> str:
    """A file of another trace."""
    shutil.copy(other / "blocks.parquet", trace / "blocks.parquet")
    return "`blocks.parquet` of another trace"


DAMAGE: list[Callable[[Path, Path], str]] = [cut, change, empty, lose, confuse]


def damage(fleet: Fleet, many: int) -> dict[str, str]:
    """Damages so many traces, spread over all; returns their names, and what was done to each."""
    done, step = {}, len(fleet.names) // max(many, 1)
    for i in range(many):
        name, other = fleet.names[i * step + step // 2], fleet.names[i * step + step // 2 - 1]
        done[name] = DAMAGE[i % len(DAMAGE)](fleet.root / name, fleet.root / other)
    return done
