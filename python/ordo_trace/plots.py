"""Plots of a trace, for a notebook or a file. Needs matplotlib.

Each takes :class:`~ordo_trace.Traces` and draws all of its traces together, each from its first request; give one trace
to see one. Each returns the axes, so that more can be drawn or ``axes.figure.savefig("x.svg")`` be called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .traces import Traces, TraceError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Points on the time axis, unless said otherwise.
BINS = 200
#: Kinds that have a colour of their own; the rest is "other".
KINDS = 8

_START = "(select trace, min(issued_ns) as start from requests group by all)"


def _axes(axes: Axes | None) -> Axes:
    if axes is not None:
        return axes
    from matplotlib import pyplot

    made: Axes = pyplot.subplots(figsize=(9, 4), layout="constrained")[1]
    return made


def _span(traces: Traces) -> float:
    """Seconds that the longest trace takes."""
    if not traces.traces:
        raise TraceError(f"{traces.root}: no whole trace to draw")
    sql = f"select max(coalesce(completed_ns, issued_ns) - start) from requests join {_START} using (trace)"
    longest: Any = traces.duckdb().sql(sql).fetchall()[0][0]
    if longest is None:
        raise TraceError(f"{traces.root}: recorded without times: nothing can be drawn over time")
    return max(int(longest), 1) / 1e9


def bandwidth_data(traces: Traces, bins: int = BINS) -> list[tuple[str, float, float]]:
    """Kind, seconds from the start, bytes written a second: in so many steps of the time axis."""
    step = _span(traces) / bins
    sql = f"""
        with written as (
            select b.kind, b.length, least(floor((r.issued_ns - s.start) / 1e9 / {step}), {bins - 1}) as bin
            from blocks b join requests r using (trace, request) join {_START} s using (trace)
            where r.op = 'write'),
        most as (
            select kind, row_number() over (order by sum(length) desc, kind) <= {KINDS} as own
            from written group by kind)
        select case when own then kind else 'other' end as kind, bin * {step} as seconds, sum(length) / {step} as rate
        from written join most using (kind) group by all order by 1, 2"""
    return [(str(k), float(t), float(r)) for k, t, r in traces.duckdb().sql(sql).fetchall()]


def bandwidth(traces: Traces, axes: Axes | None = None, bins: int = BINS) -> Axes:
    """Bytes written a second, by kind of block, on top of one another."""
    rows, step = bandwidth_data(traces, bins), _span(traces) / bins
    axes = _axes(axes)
    kinds = sorted({kind for kind, _, _ in rows})
    below = [0.0] * bins
    for kind in kinds:
        rates = [0.0] * bins
        for name, seconds, rate in rows:
            if name == kind:
                rates[min(round(seconds / step), bins - 1)] += rate / 1e6
        axes.bar([i * step for i in range(bins)], rates, step, below, align="edge", label=kind.replace("_", " "))
        below = [a + b for a, b in zip(below, rates, strict=True)]
    axes.set(xlabel="seconds", ylabel="MB written a second", title="Bandwidth by kind")
    axes.legend(fontsize="small", loc="upper right")
    return axes


def outstanding_data(traces: Traces) -> list[tuple[float, int]]:
    """Seconds from the start, and how many writes are under way from then on."""
    _span(traces)
    sql = f"""
        with events as (
            select (issued_ns - start) / 1e9 as seconds, 1 as change
            from requests join {_START} using (trace) where op = 'write' and completed_ns is not null
            union all
            select (completed_ns - start) / 1e9, -1
            from requests join {_START} using (trace) where op = 'write' and completed_ns is not null),
        moments as (select seconds, sum(change) as change from events group by seconds)
        select seconds, sum(change) over (order by seconds) from moments order by seconds"""
    return [(float(t), int(n)) for t, n in traces.duckdb().sql(sql).fetchall()]


def outstanding(traces: Traces, axes: Axes | None = None) -> Axes:
    """How many writes are under way, over time. Writes that were cut off are left out."""
    rows = outstanding_data(traces)
    axes = _axes(axes)
    axes.step([t for t, _ in rows], [n for _, n in rows], where="post", linewidth=0.8)
    axes.set(xlabel="seconds", ylabel="writes under way", title="Outstanding writes")
    return axes


def latency_data(traces: Traces) -> dict[str, list[float]]:
    """Milliseconds from issue to completion, sorted, for each kind of request."""
    _span(traces)
    sql = """select op, (completed_ns - issued_ns) / 1e6 as ms from requests
        where completed_ns is not null and op <> 'mark' order by op, ms"""
    found: dict[str, list[float]] = {}
    for op, ms in traces.duckdb().sql(sql).fetchall():
        found.setdefault(str(op), []).append(float(ms))
    return found


def latency(traces: Traces, axes: Axes | None = None) -> Axes:
    """The share of requests that completed within a time, for reads, writes, flushes."""
    axes = _axes(axes)
    for op, times in latency_data(traces).items():
        shares = [(i + 1) / len(times) for i in range(len(times))]
        axes.step([max(t, 1e-6) for t in times], shares, where="post", label=f"{op} ({len(times):,})")
    axes.set(xscale="log", xlabel="milliseconds", ylabel="share completed", title="Latency", ylim=(0, 1))
    axes.legend(fontsize="small", loc="upper right")
    return axes
