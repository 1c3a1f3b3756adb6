"""Tables as Spark frames. Fault model: columns that differ from DuckDB's, rows of a trace given to another."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

from conftest import FLEET, skip

import ordo_trace


def test_spark_frames_have_the_rows_of_duckdb(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    if shutil.which("java") is None or importlib.util.find_spec("pyspark") is None:
        skip("java or pyspark is not installed")
    from pyspark.sql import SparkSession

    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    # A path with a space, which Spark writes otherwise than others.
    fleet = Path(shutil.copytree(FLEET, tmp_path / "a fleet"))
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "1").config("spark.local.dir", str(tmp_path))
    session = builder.config("spark.sql.warehouse.dir", os.fspath(tmp_path)).getOrCreate()
    try:
        traces = ordo_trace.open(fleet)
        frame = traces.spark(session, "blocks")
        ours = traces.duckdb().sql("select trace, host, kind, count(*), sum(length) from blocks group by all")
        theirs = frame.groupBy("trace", "host", "kind").agg({"*": "count", "length": "sum"}).collect()
        found = sorted((r["trace"], r["host"], r["kind"], r["count(1)"], r["sum(length)"]) for r in theirs)
        assert found == sorted(ours.fetchall()) and len(found) > 10
        assert set(frame.columns) == set(traces.pandas("blocks").columns)
    finally:
        session.stop()
