"""Memory over a long recording in parts, and of the analysis of all of them."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pyarrow.compute as compute
import pyarrow.parquet as parquet

from .common import Figures, Options, need_space, peak
from .recording import parts, record, remove

TITLE = "Memory over a long recording"
#: The size of the device, and what the work fills of it, in MB: so much of the recorder's memory is the device at least.
DEVICE, FILLED = 512, 256
#: The most memory beside the device, and of the analysis, in MB.
MEMORY_MOST = 512
#: The least that is to be recorded and analysed, in bytes.
LEAST = 10_000_000_000


def measure(options: Options, folder: Path) -> Figures:
    """Records for the given time, then analyses all parts."""
    # Contents are random bytes, which no packing makes smaller; journal and tables come to them.
    need_space(folder, 1.3 * options.bytes + 1e9, "the long recording", "GIGABYTES=")
    into = folder / "long"
    recorded = record(
        options.ordo, folder, ["-o", str(into), "--rotate", "64m"], options.bytes, options.seconds, is_even=True
    )
    took = max(recorded.seconds, 1)
    quarters = []
    for quarter in range(4):
        some = [one.rss / 1024 for one in recorded.seen if quarter <= 4 * one.at / took < quarter + 1]
        quarters.append([min(some), max(some)] if some else None)
    all_parts = parts(into)
    requested, requests = 0, 0
    for part in all_parts:
        table = parquet.read_table(part / "requests.parquet", columns=["op", "length"])
        moved = table.filter(compute.is_in(table["op"], value_set=pyarrow.array(["read", "write"])))
        requested += compute.sum(moved["length"]).as_py() or 0
        requests += table.num_rows
    status, seconds, memory = peak([options.ordo, "analyze", str(into), "--json"])
    figures = {
        "asked_seconds": options.seconds, "asked_bytes": options.bytes,
        "seconds": recorded.seconds, "written": recorded.written, "requested": requested, "requests": requests,
        "parts": len(all_parts), "disk": sum(path.stat().st_size for path in into.rglob("*.parquet")),
        "quarters": quarters, "peak": recorded.peak,
        "analysis_seconds": seconds, "analysis_peak": memory, "analysis_status": status,
    }
    remove(folder, "long")
    return figures


def verdicts(figures: Figures) -> list[tuple[str, bool]]:
    """What was wanted, with the figure, and whether it is so."""
    over = figures["peak"] - FILLED
    return [
        (f"the recording goes on for {figures['asked_seconds']:.0f} s: {figures['seconds']:.0f} s",
         figures["seconds"] >= 0.99 * figures["asked_seconds"]),
        (f"the recorder's memory stays below {MEMORY_MOST} MB beside the {FILLED} MB that the work fills of the device: "
         f"{over:.0f} MB", over < MEMORY_MOST),
        (f"at least {LEAST / 1e9:.0f} GB of requests are recorded and analysed: {figures['requested'] / 1e9:.1f} GB",
         figures["requested"] >= LEAST and figures["analysis_status"] == 0),
        (f"`ordo analyze` takes less than {MEMORY_MOST} MB: {figures['analysis_peak']:.0f} MB",
         figures["analysis_peak"] < MEMORY_MOST),
    ]


def page(figures: Figures) -> str:
    """The section."""
    rows = [
        f"| quarter {i} | {quarter[0]:.0f} to {quarter[1]:.0f} |"
        for i, quarter in enumerate(figures["quarters"], 1) if quarter
    ]
    lines = [
        f"The same work, {figures['asked_bytes'] / 1e9:g} GB spread evenly over {figures['asked_seconds']:.0f} s (without a "
        "limit the contents of an hour would fill the disk), with contents, `--rotate 64m`: "
        f"{figures['written'] / 1e9:.1f} GB written by the process in {figures['seconds']:.0f} s, {figures['requests']:,} requests "
        f"of {figures['requested'] / 1e9:.1f} GB in {figures['parts']} parts, {figures['disk'] / 1e9:.1f} GB on disk. The device "
        f"of {DEVICE} MB is in the recorder's memory, as far as it is used: files of {FILLED} MB, and the metadata.\n",
        "| part of the run | the recorder's memory, MB, least to most |\n|---|---:|", *rows,
        f"\nAt most {figures['peak']:.0f} MB, the device included.\n",
        f"`ordo analyze` over all parts: {figures['analysis_seconds']:.2f} s.",
    ]
    return "\n".join(lines)
