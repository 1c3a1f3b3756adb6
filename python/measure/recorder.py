"""The cost of parts against a recording in memory."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from .common import Figures, Options, need_space, spread
from .recording import record, remove

TITLE = "The recorder"
MEMORY, PARTS = "recorded to memory, then written", "in parts of 64 MB"
WAYS: dict[str, list[str]] = {
    "counts only": [],
    MEMORY: ["-o", "memory"],
    PARTS: ["-o", "parts", "--rotate", "64m"],
    "in parts, without contents": ["-o", "bare", "--rotate", "64m", "--without-contents"],
}


def measure(options: Options, folder: Path) -> Figures:
    """All ways by turns."""
    need_space(folder, 2 * options.cost_bytes + 1e9, "a recording", "--megabytes")
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    peaks: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(options.rounds):
        for way, how in WAYS.items():
            into = [str(folder / word) if word in ("memory", "parts", "bare") else word for word in how]
            recorded = record(options.ordo, folder, into, options.cost_bytes, 600)
            seconds[way].append(recorded.seconds)
            peaks[way].append(recorded.peak)
            remove(folder, "memory", "parts", "bare")
    return {"bytes": options.cost_bytes, "rounds": options.rounds, "seconds": seconds, "peaks": peaks}


def page(figures: Figures) -> str:
    """The section."""
    seconds, peaks = figures["seconds"], figures["peaks"]
    lines = [
        f"ext4 on a device of 512 MB in memory, {figures['bytes'] >> 20} MB written by one process at random places with an "
        f"fdatasync after each 16 writes; {figures['rounds']} rounds by turns: median (least to most). The device is "
        "in that memory, as far as it is used.\n",
        "| | seconds of the work | most memory, MB |\n|---|---:|---:|",
        *(f"| {way} | {spread(seconds[way], 2)} | {spread(peaks[way], 0)} |" for way in seconds),
        f"\nIn parts against memory: {median(seconds[PARTS]) / median(seconds[MEMORY]):.2f} times as long.",
    ]
    return "\n".join(lines)
