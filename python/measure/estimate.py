"""The cost of ten thousand hosts for a day, on paper, from figures of this machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pyarrow.parquet as parquet

from .common import Figures, Options, need_space
from .recording import parts, record, remove

TITLE = "10,000 hosts for a day, on paper"
HOSTS, PER_SECOND, DAY = 10_000, 100, 86_400
#: How long the work goes on from which the figures are, in seconds.
LONG = 60


def measure(options: Options, folder: Path) -> Figures:
    """Bytes and processor time of each request."""
    need_space(folder, 2e9, "a recording without contents", "SECONDS=")
    bare, empty = folder / "bare", folder / "empty"
    how = ["--rotate", "64m"]
    recorded = record(
        options.ordo, folder, ["-o", str(bare), *how, "--without-contents"], 1 << 60, min(options.seconds, LONG)
    )
    idle = record(options.ordo, folder, ["-o", str(empty), *how], 0, 1)
    files, all_parts = list(bare.rglob("*.parquet")), parts(bare)
    requests = sum(parquet.read_metadata(part / "requests.parquet").num_rows for part in all_parts)
    began = os.times()
    subprocess.run([options.ordo, "analyze", str(bare), "--json"], stdout=subprocess.DEVNULL, check=True)
    ended = os.times()
    analysis = ended.children_user + ended.children_system - began.children_user - began.children_system
    figures = {
        "requests": requests, "bytes_each": sum(path.stat().st_size for path in files) / requests,
        "cpu_each": (recorded.seen[-1].cpu - idle.seen[-1].cpu) / requests, "analysis_each": analysis / requests,
        "files_each": len(files) / len(all_parts),
    }
    remove(folder, "bare", "empty")
    return figures


def page(figures: Figures) -> str:
    """The section."""
    size, cpu, analysis = figures["bytes_each"], figures["cpu_each"], figures["analysis_each"]
    host = PER_SECOND * DAY
    everywhere = HOSTS * host
    lines = [
        f"From {figures['requests']:,} requests recorded in parts without contents: {size:.0f} bytes a request in all tables, "
        f"{cpu * 1e6:.1f} µs of the processor a request in the recorder (the device, its requests and the writing included), "
        f"{analysis * 1e9:.0f} ns a request in `ordo analyze`. The assumption is {PER_SECOND} requests a second for each host: "
        f"{everywhere:.2e} in all.\n",
        "| | each host | all hosts |\n|---|---:|---:|",
        f"| bytes kept | {host * size / 1e6:.0f} MB | {everywhere * size / 1e12:.2f} TB |",
        f"| recording | {host * cpu:.0f} s of a core ({host * cpu / DAY * 100:.2f} %) | {everywhere * cpu / 3600:.0f} core-hours |",
        f"| analysis | {host * analysis:.1f} s of a core | {everywhere * analysis / 3600:.1f} core-hours |",
    ]
    for minutes in (10, 60):
        count = DAY // 60 // minutes * figures["files_each"]
        lines.append(f"| files, with `--rotate {minutes}min` | {count:.0f} | {count * HOSTS / 1e6:.1f} million |")
    return "\n".join(lines)
