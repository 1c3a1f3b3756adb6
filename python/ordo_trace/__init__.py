"""Traces that Ordo recorded, as tables of DuckDB, pandas, Polars or Spark.

A trace is a folder of Parquet files (docs/formats/trace.md). A fleet of traces is a folder with traces at any depth,
usually ``host=.../device=.../fs=.../day=.../NAME.trace``: what the folders say becomes columns.

>>> import ordo_trace
>>> traces = ordo_trace.open("fleet")            # looks at every file; damaged traces are named and set aside
>>> traces.damaged
[]
>>> traces.query("journal_by_file").df()         # a named query, as a pandas frame
>>> traces.pandas("blocks"), traces.polars("requests"), traces.spark(session, "blocks")
>>> traces.duckdb().sql("select host, count(*) from requests group by all")

Layers: :mod:`~ordo_trace.traces` finds and checks traces and gives frames; :mod:`~ordo_trace.queries` has the named
queries, each a file of SQL that runs alone too; :mod:`~ordo_trace.plots` draws; :mod:`~ordo_trace.fleet` runs Ordo on
many machines, through Spark or on this one.

Invariants: nothing is written beside a trace; a damaged trace is never counted and never hides a whole one; the same
traces give the same rows in the same order, where a query says an order.
"""

from .queries import names, sql
from .traces import TABLES, Damaged, Traces, TraceError, find, look_at, open

__all__ = ["TABLES", "Damaged", "TraceError", "Traces", "find", "look_at", "names", "open", "sql"]
