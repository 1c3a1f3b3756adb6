"""The named queries, on traces made by hand whose answers are known, and on recorded ones against Ordo's own counts.

Fault model: a query that counts a request twice, takes another trace's rows, or forgets what a guess turned out to be.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import FLEET, JOURNAL, ORDERED, Made, ordo

import ordo_trace

#: Runs a file as it is in a DuckDB of its own, in this folder, and prints all rows.
ALONE = "import sys, duckdb; print(duckdb.execute(open(sys.argv[1]).read()).fetchall())"


def with_calls(made: Made, folder: Path) -> Path:
    """A trace with system calls and files: two fsyncs, and a write that has not ended; three rows of files."""
    made.request("write", 0, 40, {"kind": "file_data"})
    made.request("flush", 40, 90)
    made.calls = [
        {"call_number": 0, "name": "fsync", "path": "a", "began_ns": 0, "ended_ns": 100},
        {"call_number": 1, "name": "fsync", "path": "a", "began_ns": 100, "ended_ns": 130},
        {"call_number": 2, "name": "write", "path": "b", "began_ns": 130, "ended_ns": None},
    ]
    made.waits = [
        {"call_number": 0, "request": 0, "kind": "file_data", "waited_ns": 40},
        {"call_number": 0, "request": 1, "kind": "flush", "waited_ns": 50},
        {"call_number": 1, "request": 1, "kind": "flush", "waited_ns": 5},
    ]
    small = {"inode": 12, "path": "small", "data_bytes": 4096, "metadata_bytes": 4096, "journal_bytes": 8192, "read_bytes": 0}
    large = {"inode": 13, "path": "large", "data_bytes": 65536, "metadata_bytes": 0, "journal_bytes": 0, "read_bytes": 512}
    none = {"inode": None, "path": None, "data_bytes": 0, "metadata_bytes": 512, "journal_bytes": 0, "read_bytes": 0}
    made.files = [small, none, large]
    return made.keep(folder)


def test_each_query_runs_alone_with_the_same_answer(tmp_path: Path, made: Made) -> None:
    (tmp_path / "results.json").write_text(json.dumps(RESULTS))
    # The recorded fleet has neither calls nor files.
    (own := tmp_path / "own").mkdir()
    with_calls(made, own / "a.trace")
    folders = {"promises": tmp_path, "slow_calls": own, "top_files": own}
    for name in ordo_trace.names():
        folder = folders.get(name, FLEET)
        file = Path(ordo_trace.queries.FOLDER) / f"{name}.sql"
        ran = subprocess.run(
            [sys.executable, "-c", ALONE, str(file)], cwd=folder, capture_output=True, text=True, check=True
        )
        rows = ordo_trace.open(folder).query(name).fetchall()
        here = repr(rows).replace(f"{folder}/", "")
        assert rows and ran.stdout.strip() == here, name
        assert ordo_trace.queries.about(name).endswith("?")


def test_bytes_for_each_byte_are_those_that_ordo_counts(tmp_path: Path, made: Made) -> None:
    for row in ordo_trace.open(FLEET).query("amplification").pl().iter_rows(named=True):
        said = subprocess.run([ordo(), "analyze", row["trace"], "--json"], capture_output=True, text=True, check=True)
        kinds = json.loads(said.stdout)["writes"]
        assert row["application_bytes"] == kinds["file_data"]["bytes"]
        assert row["written_bytes"] == sum(kind["bytes"] for kind in kinds.values())
        journal = sum(count["bytes"] for kind, count in kinds.items() if kind.startswith("journal"))
        assert row["journal_bytes"] == journal

    # What was taken for contents and was a directory's is not counted as the application's; reads are not counted.
    made.request("write", 0, 1, {"kind": "file_data", "length": 8192}, {"kind": "file_data"})
    made.request("write", 0, 1, {"kind": "journal_data", "length": 16384})
    made.request("read", 0, 1, {"kind": "file_data", "length": 65536})
    made.moved.append({"was": "file_data", "kind": "directory", "bytes": 4096})
    row = ordo_trace.open(made.keep(tmp_path / "a.trace")).query("amplification").pl().row(0, named=True)
    assert (row["application_bytes"], row["written_bytes"]) == (8192, 28672)
    assert (row["journal_bytes"], row["metadata_bytes"], row["amplification"]) == (16384, 4096, 3.5)


def test_the_file_that_causes_the_journal_traffic(tmp_path: Path, made: Made) -> None:
    """Two traces alike, in which inode 7 is another file: would catch rows of one joined with the other's."""
    for name, path in [("a.trace", "/a"), ("b.trace", "/b")]:
        one = Made()
        # Contents past the journal, then a transaction with a copy of a directory and one of an inode block.
        one.request("write", 0, 5, {"kind": "file_data", "offset": 40960, "inode": 7, "path": path, "length": 12288})
        one.request(
            "write", 10, 20,
            {"kind": "journal_descriptor", "transaction": 1},
            {"kind": "journal_data", "transaction": 1, "home_kind": "directory", "home_offset": 8192},
            {"kind": "journal_data", "transaction": 1, "home_kind": "inode_block", "home_offset": 4096},
        )
        one.request("write", 30, 40, {"kind": "journal_commit", "transaction": 1})
        # The directory is written where it belongs: only now is it known whose it was.
        one.request("write", 50, 60, {"kind": "directory", "offset": 8192, "inode": 2, "path": "/", "completes": 1})
        # Contents that a transaction had copied are written where they belong: the next one has not to do with it.
        one.request("write", 61, 69, {"kind": "file_data", "offset": 40960, "inode": 7, "path": path, "completes": 1})
        # A second transaction of nobody known.
        one.request("write", 70, 80, {"kind": "journal_descriptor", "transaction": 2})
        one.request("write", 90, 99, {"kind": "journal_commit", "transaction": 2})
        one.keep(tmp_path / name)
    rows = ordo_trace.open(tmp_path).query("journal_by_file").pl().rows(named=True)
    found = {(Path(r["trace"]).name, r["path"]): (r["own_bytes"], r["shared_bytes"], r["bytes"]) for r in rows}
    for name, path in [("a.trace", "/a"), ("b.trace", "/b")]:
        # 12 KiB of descriptor, inode block and commit: three parts of four are the file's.
        assert found[name, path] == (0, 9216, 9216)
        assert found[name, "/"] == (4096, 3072, 7168)
        assert found[name, None] == (0, 8192, 8192)
    assert len(rows) == 6


@pytest.mark.parametrize("trace", [JOURNAL, ORDERED])
def test_the_journal_is_all_given_to_somebody(trace: Path) -> None:
    traces = ordo_trace.open(trace)
    rows = traces.query("journal_by_file").pl()
    whole = traces.duckdb().sql(
        "select sum(b.length) from blocks b join requests r using (trace, request)"
        " where r.op = 'write' and kind like 'journal%' and transaction is not null"
    )
    assert abs(int(rows["bytes"].sum()) - int(whole.fetchall()[0][0])) <= len(rows)
    by_path = dict(zip(rows["path"], rows["own_bytes"], strict=True))
    # Contents are in the journal with data=journal, and only there.
    assert (by_path["/log"] > 0) == (trace == JOURNAL)


def test_from_an_fsync_to_its_commit(tmp_path: Path, made: Made) -> None:
    def commit(transaction: int, at: int) -> None:
        made.request("write", at, at + 10, {"kind": "journal_descriptor", "transaction": transaction})
        made.request("write", at + 20, at + 50, {"kind": "journal_commit", "transaction": transaction})

    commit(1, 100)
    made.request("mark", 200, None, text="fsync-begin 9")
    commit(2, 300)
    made.request("mark", 400, None, text="fsync 9 0 4096")
    # Nothing was to be committed: the commit of before is not this fsync's.
    made.request("mark", 500, None, text="fsync-begin 9")
    made.request("mark", 510, None, text="fsync 9 0 4096")
    # Without a mark of the call: from the transaction's first write.
    commit(3, 600)
    made.request("mark", 700, None, text="fsync 8 0 4096")
    made.request("mark", 800, None, text="fsync nonsense")
    rows = ordo_trace.open(made.keep(tmp_path / "a.trace")).query("fsync_latency").pl().rows(named=True)
    found = [(r["inode"], r["transaction"], r["to_commit_ns"], r["to_return_ns"]) for r in rows]
    assert found == [(9, 2, 150, 50), (9, None, None, None), (8, 3, 50, 50)]


def test_recorded_fsyncs_have_commits() -> None:
    rows = ordo_trace.open(FLEET).query("fsync_latency").pl()
    assert len(rows) == 6 and rows["path"].to_list() == ["/d/p"] * 6
    assert all(0 < ns < 10**10 for ns in rows["to_commit_ns"].to_list() + rows["to_return_ns"].to_list())


def test_who_waits_for_whom(tmp_path: Path, made: Made) -> None:
    data, commit = {"kind": "file_data"}, {"kind": "journal_commit"}
    made.request("write", 0, 100, data)
    made.request("write", 10, 60, data)  # beside another one: waits for nobody
    made.request("flush", 110, 150)  # waited for the first, which completed last
    made.request("write", 160, 200, commit)
    made.request("read", 170, 500, data)  # reads are nobody's business here
    made.request("flush", 210, 220)
    made.request("write", 9_000_000, 9_000_100, data)  # long after: it came by itself
    made.request("write", 9_000_200, None, data)  # cut off
    made.request("flush", 9_000_300, 9_000_400)  # something is still under way
    traces = ordo_trace.open(made.keep(tmp_path / "a.trace"))
    rows = traces.query("waits").pl().rows(named=True)
    found = {(r["waiter"], r["waits_for"]): (r["times"], r["waited_ns"], r["median_gap_ns"]) for r in rows}
    assert found == {
        ("flush", "file_data"): (1, 100, 10),
        ("journal_commit", "flush"): (1, 40, 10),
        ("flush", "journal_commit"): (1, 40, 10),
        ("file_data", "file_data"): (1, 100, 100),
    }
    assert len(traces.query("waits", gap_ns=10**9).fetchall()) == 5


def _task(system: str, version: str, broken: int) -> dict[str, object]:
    life = {"seed": 1, "states": 10, "promise_broken": broken, "broken": "lost /a" if broken else None}
    task = {"system": system, "model": "volatile", "geometry": {"name": "4k-512"}, "workload": "random",
            "sweep": {"program": {"version": version}}}
    return {"format": "ordo crash task result 1", "task": task, "lives": [life, life]}


RESULTS = {
    "rows": [{"system": "lfs", "model": "prefix", "geometry": {"name": "4k-512"}, "workload": "random", "states": 7,
              "promise_broken": 2, "first_broken": [3, "torn"]}],
    "plan": {},
    "format": "ordo crash results 1",
}


def test_promises_broken_by_system_and_version(tmp_path: Path) -> None:
    def put(name: str, value: object) -> None:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(value))

    put("version=9/all.json", RESULTS)
    put("1.json", _task("ffs-none", "1.0", 3))
    put("2.json", _task("ffs-none", "1.1", 0))
    put("3.json", _task("ffs-none", "1.0", 0))
    put("other.json", {"format": "something else", "rows": [{"system": "none"}]})
    put("list.json", [1, 2])
    (tmp_path / "cut.json").write_text('{"format": "ordo crash resu')
    rows = ordo_trace.open(tmp_path).query("promises").pl()
    columns = ["system", "version", "states", "broken", "example"]
    assert rows.select(columns).rows() == [
        ("ffs-none", "1.0", 40, 6, "lost /a"),
        ("lfs", "9", 7, 2, "torn"),
        ("ffs-none", "1.1", 20, 0, None),
    ]


def test_slow_calls_say_what_they_waited_for(tmp_path: Path, made: Made) -> None:
    rows = ordo_trace.open(with_calls(made, tmp_path / "a.trace")).query("slow_calls").pl().rows(named=True)
    found = [(row["name"], row["path"], row["kind"], row["calls"], row["requests"], row["ns"]) for row in rows]
    # The time of both calls is 130, and so is the sum; a call that has not ended has none.
    assert found == [
        ("fsync", "a", "flush", 2, 2, 55), ("fsync", "a", "file_data", 1, 1, 40), ("fsync", "a", None, 2, 0, 35)
    ]
    with pytest.raises(ordo_trace.TraceError, match="--calls"):
        ordo_trace.open(FLEET).query("slow_calls")


def test_top_files_count_all_that_is_written_for_a_file(tmp_path: Path, made: Made) -> None:
    rows = ordo_trace.open(with_calls(made, tmp_path / "a.trace")).query("top_files").pl().rows(named=True)
    assert [(row["path"], row["written_bytes"]) for row in rows] == [("large", 65536), ("small", 16384), (None, 512)]
    assert [row["written_for_each_byte"] for row in rows] == [1.0, 4.0, None]
