"""Traces found, checked, and read as frames."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as parquet
from duckdb import DuckDBPyConnection, DuckDBPyRelation, connect

from . import queries

if TYPE_CHECKING:
    import pandas
    import polars
    from pyspark.sql import DataFrame, SparkSession

#: The tables of a trace. The first two are in every trace; docs/formats/trace.md says when the others are.
TABLES = (
    "requests", "blocks", "transactions", "recounted", "shares", "files", "calls", "waits", "contents", "start"
)
#: Tables without which a folder is no trace.
NEEDED = ("requests", "blocks")
#: Tables by which a folder is recognised as a trace. The names of the others are common ones.
MARKS = TABLES[:4]
#: The newest version of the format that is known.
VERSION = 1
#: What folders may say, as columns of every table.
PARTITIONS = ("host", "device", "fs", "day")
#: What the files of results of `ordo crash` begin with or have in them.
RESULTS = ("ordo crash results 1", "ordo crash task result 1")

_PARTITION = re.compile(r"^([a-z_]+)=(.*)$")


class TraceError(Exception):
    """A trace, or a folder of them, that cannot be used: says which, why, and what to do."""


@dataclass(frozen=True)
class Damaged:
    """A trace that was set aside."""

    path: Path
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


def find(folder: str | os.PathLike[str]) -> list[Path]:
    """The traces in a folder, at any depth, or the folder itself, in order of their paths.

    A trace is a folder with one of its first tables: also one that lacks the others, so that it is named and not passed over.
    """
    root = Path(folder)
    if not root.is_dir():
        raise TraceError(f"{root}: there is no such folder; give a trace or a folder with traces")
    found = set()
    for at, folders, files in os.walk(root):
        # A part that was being written when its recorder was stopped is no trace.
        folders[:] = sorted(name for name in folders if not name.endswith(".writing"))
        if any(f"{table}.parquet" in files for table in MARKS):
            found.add(Path(at))
            folders.clear()
    return sorted(found)


def look_at(trace: Path, deep: bool = False) -> str | None:
    """Why a trace cannot be used, or nothing.

    Looks at the end of each file and at what the files say of themselves; with ``deep`` also reads all of each file and
    compares the check sums of its columns. `ordo analyze` looks closer still.
    """
    for table in TABLES:
        path = trace / f"{table}.parquet"
        if not path.exists():
            if table in NEEDED:
                return f"{table}.parquet is missing: not a trace, or only a part of one; record it again"
            continue
        try:
            footer = parquet.read_metadata(path)
            version = int((footer.metadata or {}).get(b"ordo.version", b"0"))
            if deep:
                _compare_sums(path, footer)
        except (OSError, ValueError, ArithmeticError) as error:
            return f"{path.name}: {str(error).splitlines()[0]}; use a copy, or record it again"
        if version > VERSION:
            return f"{path.name}: version {version} of the format, newer than {VERSION}; use a newer ordo_trace"
        if version < 1:
            return f"{path.name}: does not say that Ordo wrote it; record it again"
    return None


def _compare_sums(path: Path, footer: Any) -> None:
    """Compares the CRC-32C of each column of each group of rows with what the file says.

    Raises:
        ValueError: one differs.
    """
    import google_crc32c

    sums = (footer.metadata or {}).get(b"ordo.sums", b"").decode()
    with path.open("rb") as file:
        for group in range(footer.num_row_groups):
            for column in range(footer.num_columns):
                chunk = footer.row_group(group).column(column)
                starts = (chunk.dictionary_page_offset, chunk.data_page_offset)
                file.seek(min(start for start in starts if start is not None))
                found = f"{google_crc32c.value(file.read(chunk.total_compressed_size)):08x}"
                said, sums = sums[:8], sums[8:]
                if said and found != said:
                    raise ValueError(f"the column {chunk.path_in_schema} was changed after it was written")


def partitions(trace: Path, root: Path) -> dict[str, str | None]:
    """What the folders from ``root`` down to a trace say: ``host=a/fs=ext4`` and so on; the root's own path too."""
    found: dict[str, str | None] = dict.fromkeys(PARTITIONS)
    for part in (root.absolute() / trace.absolute().relative_to(root.absolute())).parts:
        match = _PARTITION.match(part)
        if match and match[1] in found:
            found[match[1]] = match[2]
    return found


def _is_result(path: Path) -> bool:
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(whole, dict) and whole.get("format") in RESULTS


class Traces:
    """Traces as tables. Made by :func:`open`."""

    def __init__(self, root: Path, traces: Iterable[Path], damaged: Iterable[Damaged] = ()) -> None:
        self.root = root
        #: The whole ones, in order.
        self.traces: list[Path] = list(traces)
        #: Those that were set aside, with reasons.
        self.damaged: list[Damaged] = list(damaged)
        self._connection: DuckDBPyConnection | None = None

    def __len__(self) -> int:
        return len(self.traces)

    def __repr__(self) -> str:
        aside = f", {len(self.damaged)} set aside" if self.damaged else ""
        return f"<{len(self.traces)} trace(s) in {self.root}{aside}>"

    def files(self, table: str) -> list[str]:
        """The Parquet files of a table, one for each trace that has it."""
        if table not in TABLES:
            raise KeyError(f"no table is called {table!r}; there are {', '.join(TABLES)}")
        paths = (trace / f"{table}.parquet" for trace in self.traces)
        return [str(path) for path in paths if path.exists()]

    def results(self) -> list[str]:
        """The results of `ordo crash` beside the traces."""
        return [str(path) for path in sorted(self.root.rglob("*.json")) if _is_result(path)]

    def duckdb(self) -> DuckDBPyConnection:
        """A connection with a view for each table, and a table ``traces``: path, file system, recording and part (of
        recordings in parts), and what the folders say.

        Every view has the columns of docs/formats/trace.md, and ``trace``, the path; what traces lack is null.
        """
        if self._connection is not None:
            return self._connection
        connection = connect()
        columns = ", ".join(f"{name} varchar" for name in PARTITIONS)
        connection.execute(f"create table traces (trace varchar, system varchar, recording varchar, part bigint, {columns})")
        for trace in self.traces:
            says = parquet.read_metadata(trace / "requests.parquet").metadata or {}
            system = says.get(b"ordo.system", b"none").decode()
            part = [value.decode() if (value := says.get(key)) else None for key in (b"ordo.recording", b"ordo.part")]
            values = [str(trace), system, *part, *partitions(trace, self.root).values()]
            connection.execute(f"insert into traces values ({', '.join('?' * len(values))})", values)
        for table in TABLES:
            files = self.files(table)
            listed = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
            connection.execute(f"set variable {table} = [{listed}]" if files else f"set variable {table} = null")
            if files:
                connection.execute(
                    f"create view {table} as select t.*, p.* exclude (filename) from read_parquet([{listed}],"
                    " filename = true, union_by_name = true, hive_partitioning = false) p"
                    " join traces t on t.trace = regexp_replace(p.filename, '/[^/]*$', '')"
                )
        self._connection = connection
        return connection

    def query(self, name: str, **variables: int) -> DuckDBPyRelation:
        """The answer of a named query (:func:`ordo_trace.names`): ``.df()``, ``.pl()``, ``.fetchall()`` and so on.

        Raises:
            KeyError: there is no such query.
            TraceError: the traces have nothing that it needs.
        """
        text = queries.sql(name)
        connection = self.duckdb()
        if name == "promises":
            results = self.results()
            if not results:
                raise TraceError(f"{self.root}: no results of ordo crash; make some with ordo crash -o FILE")
            listed = ", ".join("'" + file.replace("'", "''") + "'" for file in results)
            connection.execute(f"set variable results = [{listed}]")
        elif not self.traces:
            raise TraceError(f"{self.root}: no whole trace; record one with ordo trace run -o NAME.trace")
        else:
            lacking = [t for t in TABLES if f"getvariable('{t}')" in text and not self.files(t)]
            if lacking:
                how = " --calls" if lacking[0] in ("calls", "waits") else ""
                raise TraceError(
                    f"{self.root}: no trace has {lacking[0]}.parquet, which {name} needs; ordo trace run{how} writes it"
                )
        for key, value in variables.items():
            connection.execute(f"set variable {_word(key)} = {int(value)}")
        return connection.sql(text)

    def pandas(self, table: str) -> pandas.DataFrame:
        """A whole table as a pandas frame: for traces that fit in memory."""
        frame: pandas.DataFrame = self.duckdb().sql(f"from {self._table(table)}").df()
        return frame

    def polars(self, table: str) -> polars.DataFrame:
        """A whole table as a Polars frame: for traces that fit in memory."""
        frame: polars.DataFrame = self.duckdb().sql(f"from {self._table(table)}").pl()
        return frame

    def spark(self, session: SparkSession, table: str) -> DataFrame:
        """A table as a Spark frame, read by the executors: the files lie where all of them can read them.

        Its columns are those of the view of :meth:`duckdb`.
        """
        from pyspark.sql import functions as f

        self._table(table)
        known = self.duckdb().sql("from traces")
        types = ", ".join(f"{c} {'bigint' if c == 'part' else 'string'}" for c in known.columns)
        traces = session.createDataFrame(known.fetchall(), types)
        files = session.read.option("mergeSchema", "true").parquet(*self.files(table))
        path = f.regexp_replace(f.url_decode(f.input_file_name()), "^file:/*", "/")
        joined: DataFrame = traces.join(files.withColumn("trace", f.regexp_replace(path, "/[^/]*$", "")), "trace")
        return joined

    def _table(self, table: str) -> str:
        if not self.files(table):
            raise TraceError(f"{self.root}: no whole trace has {table}.parquet")
        return table


def _word(text: str) -> str:
    if not text.isidentifier():
        raise KeyError(f"{text!r} is no name of a variable")
    return text


def open(folder: str | os.PathLike[str], deep: bool = False) -> Traces:
    """Opens a trace, or all traces in a folder, at any depth.

    Damaged ones are set aside, with reasons, in :attr:`Traces.damaged`: look there. With ``deep`` every page is read.

    Raises:
        TraceError: there is no such folder, or the only trace is damaged.
    """
    root = Path(folder)
    whole, damaged = [], []
    for trace in find(root):
        why = look_at(trace, deep)
        if why is None:
            whole.append(trace)
        else:
            damaged.append(Damaged(trace, why))
    if damaged and damaged[0].path == root:
        raise TraceError(str(damaged[0]))
    return Traces(root, whole, damaged)

