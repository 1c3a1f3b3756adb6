"""What the tests share: the recorded traces of the repository, a trace made by hand, and loud skips."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

FLEET = HERE / "data" / "fleet"
JOURNAL = FLEET / "host=one/device=vda/fs=ext3/day=2026-11-01/journal.trace"
ORDERED = FLEET / "host=two/device=vdb/fs=ext4/day=2026-11-02/ordered.trace"


def skip(why: str) -> NoReturn:
    """Skips aloud; with ORDO_NO_SKIP set nothing may be skipped."""
    if os.environ.get("ORDO_NO_SKIP"):
        pytest.fail(f"nothing may be skipped here (ORDO_NO_SKIP), but: {why}")
    print(f"SKIPPED: {why}", file=sys.__stderr__)
    pytest.skip(why)


def ordo() -> str:
    """The program under test, which ORDO names."""
    program = os.environ.get("ORDO")
    if not program:
        skip("ORDO does not name the ordo program; cargo test --test python does")
    return program


class Made:
    """A trace made by hand, request by request."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.blocks: list[dict[str, Any]] = []
        self.moved: list[dict[str, Any]] = []
        self.calls: list[dict[str, Any]] = []
        self.waits: list[dict[str, Any]] = []
        self.files: list[dict[str, Any]] = []

    def request(self, op: str, issued: int, completed: int | None, *blocks: dict[str, Any], text: str | None = None) -> None:
        """A request with its blocks: each a kind and whatever else is known of it."""
        number = len(self.requests)
        offset = blocks[0].get("offset", 0) if blocks else 0
        length = sum(block.get("length", 4096) for block in blocks)
        self.requests.append(
            {"request": number, "op": op, "offset": offset, "length": length, "issued_ns": issued,
             "completed_ns": completed, "text": text}
        )
        for block in blocks:
            self.blocks.append({"request": number, "offset": 0, "length": 4096} | block)

    def keep(self, folder: Path, **says: str) -> Path:
        """Writes it as Ordo does."""
        folder.mkdir(parents=True)
        whole, text = pa.int64(), pa.string()
        meta = {"ordo.version": "1", "ordo.sector": "512", "ordo.timed": "true", "ordo.system": "ext4"} | says
        columns = {
            "requests": [("request", whole), ("op", text), ("offset", whole), ("length", whole), ("issued_ns", whole),
                         ("completed_ns", whole), ("text", text)],
            "blocks": [("request", whole), ("offset", whole), ("length", whole), ("kind", text), ("inode", whole),
                       ("path", text), ("transaction", whole), ("home_offset", whole), ("home_kind", text),
                       ("completes", whole)],
            "recounted": [("was", text), ("kind", text), ("bytes", whole)],
            "calls": [("call_number", whole), ("name", text), ("path", text), ("began_ns", whole), ("ended_ns", whole)],
            "waits": [("call_number", whole), ("request", whole), ("kind", text), ("waited_ns", whole)],
            "files": [("inode", whole), ("path", text)]
            + [(f"{what}_{unit}", whole) for what in ("data", "metadata", "journal", "read") for unit in ("bytes", "requests")],
        }
        rows = {"requests": self.requests, "blocks": self.blocks, "recounted": self.moved}
        # As with ordo: a trace without calls has no such tables.
        optional = {"calls": self.calls, "waits": self.waits, "files": self.files}
        rows |= {name: those for name, those in optional.items() if those}
        columns = {name: columns[name] for name in rows}
        for name, fields in columns.items():
            schema = pa.schema(fields, metadata=meta)
            full = [{key: row.get(key) for key, _ in fields} for row in rows[name]]
            pq.write_table(pa.Table.from_pylist(full, schema), folder / f"{name}.parquet", compression="zstd")
        return folder


@pytest.fixture
def made() -> Made:
    """An empty trace made by hand."""
    return Made()
