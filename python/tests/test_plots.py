"""Plots: what is drawn, and that it can be saved. Fault model: bytes that a bin loses, a write counted twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import FLEET, JOURNAL, Made, skip

import ordo_trace

try:
    import matplotlib

    matplotlib.use("Agg")
except ImportError:
    skip("matplotlib is not installed")

from ordo_trace import plots


def test_bandwidth_is_all_that_was_written() -> None:
    traces = ordo_trace.open(JOURNAL)
    row = traces.query("amplification").pl().row(0, named=True)
    step = plots._span(traces) / plots.BINS
    rows = plots.bandwidth_data(traces)
    assert round(sum(rate * step for _, _, rate in rows)) == row["written_bytes"]
    assert "journal_data" in {kind for kind, _, _ in rows}


def test_outstanding_writes_go_up_and_down(tmp_path: Path, made: Made) -> None:
    block = {"kind": "file_data"}
    made.request("write", 10**9, 4 * 10**9, block)
    made.request("write", 2 * 10**9, 3 * 10**9, block)
    made.request("read", 2 * 10**9, 9 * 10**9, block)
    made.request("write", 4 * 10**9, 5 * 10**9, block)
    made.request("write", 4 * 10**9, None, block)
    traces = ordo_trace.open(made.keep(tmp_path / "a.trace"))
    assert plots.outstanding_data(traces) == [(0, 1), (1, 2), (2, 1), (3, 1), (4, 0)]
    assert plots.latency_data(traces) == {"read": [7000.0], "write": [1000.0, 1000.0, 3000.0]}


@pytest.mark.parametrize("plot", [plots.bandwidth, plots.outstanding, plots.latency])
def test_each_can_be_saved(tmp_path: Path, plot) -> None:  # type: ignore[no-untyped-def]
    axes = plot(ordo_trace.open(FLEET))
    axes.figure.savefig(tmp_path / "x.svg")
    assert (tmp_path / "x.svg").stat().st_size > 5000 and axes.get_title()


def test_a_trace_without_times_says_so(tmp_path: Path, made: Made) -> None:
    made.request("write", 0, 1, {"kind": "file_data"})
    made.requests[0] |= {"issued_ns": None, "completed_ns": None}
    with pytest.raises(ordo_trace.TraceError, match="without times"):
        plots.bandwidth(ordo_trace.open(made.keep(tmp_path / "a.trace")))
