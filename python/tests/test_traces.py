"""Traces opened and read as frames of four kinds.

Fault model: a damaged trace that is counted, passed over in silence, or hides the whole ones; a folder's words lost; a
frame with other rows than the files have.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from conftest import FLEET, JOURNAL, ORDERED, Made, skip

import ordo_trace


def test_a_fleet_is_its_traces_with_what_the_folders_say() -> None:
    traces = ordo_trace.open(FLEET, deep=True)
    assert traces.traces == [JOURNAL, ORDERED] and not traces.damaged
    rows = traces.duckdb().sql("select host, device, fs, day, system, count(*) from requests group by all order by 1")
    count = {path: pq.read_metadata(path / "requests.parquet").num_rows for path in traces.traces}
    assert rows.fetchall() == [
        ("one", "vda", "ext3", "2026-11-01", "ext3", count[JOURNAL]),
        ("two", "vdb", "ext4", "2026-11-02", "ext4", count[ORDERED]),
    ]
    # A trace by itself knows its place as well.
    alone = ordo_trace.open(JOURNAL)
    assert len(alone) == 1 and set(alone.pandas("blocks")["host"]) == {"one"}


def test_frames_of_pandas_and_polars_have_the_rows_of_the_files() -> None:
    traces = ordo_trace.open(FLEET)
    held = [table for table in ordo_trace.TABLES if traces.files(table)]
    assert held[:4] == ["requests", "blocks", "transactions", "recounted"]
    for table in held:
        rows = sum(pq.read_metadata(file).num_rows for file in traces.files(table))
        pandas, polars = traces.pandas(table), traces.polars(table)
        assert len(pandas) == len(polars) == rows
        assert list(pandas.columns) == polars.columns
    lengths = sum(pq.read_table(file)["length"].to_numpy().sum() for file in traces.files("requests"))
    assert traces.pandas("requests")["length"].sum() == traces.polars("requests")["length"].sum() == lengths


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda t: (t / "blocks.parquet").unlink(), "blocks.parquet is missing"),
        (lambda t: (t / "requests.parquet").write_bytes((t / "requests.parquet").read_bytes()[:-9]), "requests.parquet"),
        (lambda t: (t / "blocks.parquet").write_bytes(b""), "blocks.parquet"),
    ],
)
def test_a_damaged_trace_is_named_and_the_rest_is_complete(tmp_path: Path, damage, says: str) -> None:  # type: ignore[no-untyped-def]
    shutil.copytree(FLEET, tmp_path / "fleet")
    damage(tmp_path / "fleet" / JOURNAL.relative_to(FLEET))
    traces = ordo_trace.open(tmp_path / "fleet")
    assert [path.name for path in traces.traces] == ["ordered.trace"]
    assert len(traces.damaged) == 1 and says in traces.damaged[0].why
    assert len(traces.query("amplification").fetchall()) == 1
    with pytest.raises(ordo_trace.TraceError, match=says):
        ordo_trace.open(tmp_path / "fleet" / JOURNAL.relative_to(FLEET))


def test_a_page_that_was_changed_is_found_when_all_is_read(tmp_path: Path) -> None:
    copy = Path(shutil.copytree(JOURNAL, tmp_path / "a.trace"))
    file = copy / "blocks.parquet"
    data = bytearray(file.read_bytes())
    data[200] ^= 1
    file.write_bytes(data)
    assert ordo_trace.look_at(copy, deep=False) is None
    why = ordo_trace.look_at(copy, deep=True)
    assert why is not None and "blocks.parquet: the column offset was changed" in why


def test_a_newer_format_is_refused(tmp_path: Path, made: Made) -> None:
    made.request("write", 0, 1, {"kind": "file_data"})
    newer = made.keep(tmp_path / "n.trace", **{"ordo.version": "2"})
    assert "newer" in (ordo_trace.look_at(newer) or "")
    assert ordo_trace.look_at(made.keep(tmp_path / "o.trace")) is None


def test_a_folder_without_traces_says_so(tmp_path: Path) -> None:
    with pytest.raises(ordo_trace.TraceError, match="no such folder"):
        ordo_trace.open(tmp_path / "none")
    empty = ordo_trace.open(tmp_path)
    with pytest.raises(ordo_trace.TraceError, match="no whole trace"):
        empty.query("waits")
    with pytest.raises(KeyError, match="there are amplification"):
        empty.query("nothing")


def test_strict_types() -> None:
    try:
        from mypy import api
    except ImportError:
        skip("mypy is not installed")
    root = Path(__file__).parent.parent
    out, _, status = api.run(["--config-file", str(root / "pyproject.toml"), "--cache-dir", str(root.parent / "target" / "mypy"), str(root / "ordo_trace"), str(root / "measure")])
    assert status == 0, out
