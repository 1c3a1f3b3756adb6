"""The page of what was measured, and the traces that are damaged for it.

Fault model: a page that calls a figure met that is not; a section that was not measured and looks as if; a recording that
fills the disk; damage that no analysis notices, so that its absence from the result would show nothing.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import FLEET, JOURNAL, ORDERED, ordo

from measure import grown, kills, proof

LONG = {
    "asked_seconds": 3600, "asked_bytes": 12e9, "seconds": 3600, "written": 12e9, "requested": 10_000_000_000, "requests": 9,
    "parts": 3, "disk": 1, "quarters": [[1, 2], None, [1, 2], [1, 2]], "peak": 767, "analysis_seconds": 1,
    "analysis_peak": 511, "analysis_status": 0,
}


def measure(*args: str | Path, expect: int = 0) -> str:
    command = [sys.executable, "-m", "measure", *map(str, args)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent.parent, check=False)
    assert ran.returncode == expect, ran.stdout + ran.stderr
    return ran.stderr


def page(folder: Path, figures: dict[str, Any]) -> str:
    """The page where the long recording is kept with these figures."""
    about = {"section": "long", "commit": "abc1234", "program": "00ff", "machine": "a machine", "load": "0.10 0.20 0.30"}
    (folder / "long.json").write_text(json.dumps(about | {"figures": figures}))
    measure("no-program", "--sections", "none", "--kept", folder, "--page", folder / "page.md")
    return (folder / "page.md").read_text()


def test_a_page_says_what_was_met_missed_and_not_measured(tmp_path: Path) -> None:
    text = page(tmp_path, LONG)
    assert "Commit abc1234, program 00ff; a machine; load before: 0.10 0.20 0.30." in text
    assert text.count("- Met: ") == 4 and "MISSED" not in text
    for name in ("proof", "sweep", "recorder", "estimate"):
        assert f"Not measured yet: `make bench-fleet SECTIONS={name}`." in text
    wrong = [{"requested": 9_999_999_999}, {"analysis_status": 1}, {"analysis_peak": 512}, {"peak": 768}, {"seconds": 3000}]
    for one in wrong:
        text = page(tmp_path, LONG | one)
        assert text.count("- MISSED: ") == 1 and text.count("- Met: ") == 3, one


def test_a_recording_that_the_disk_cannot_hold_is_not_begun(tmp_path: Path) -> None:
    said = measure(sys.executable, "--sections", "long", "--kept", tmp_path, "--gigabytes", 10**9, expect=1)
    assert "GB are free, and the long recording takes up to" in said and "GIGABYTES=" in said, said
    assert list(tmp_path.iterdir()) == []
    said = measure(sys.executable, "--sections", "longer", "--kept", tmp_path, expect=1)
    assert "no section is called longer; there are" in said, said


def test_the_proof_is_no_proof_where_a_byte_differs() -> None:
    one = {"states": 10_000_000, "at": 3, "tasks": 9, **proof.compared(b"result", b"result")}
    two = {"traces": 1000, "at": 4, "said": {"a": "why"}, "damaged": {"a": "how"}, **proof.compared(b"rest", b"rest")}

    def missed(**more: Any) -> list[str]:
        figures = {"sweep": one | more.get("sweep", {}), "analysis": two | more.get("analysis", {})}
        return [what for what, is_so in proof.verdicts(figures) if not is_so]

    assert missed() == []
    assert len(missed(sweep=proof.compared(b"result", b"resulT"))) == 1
    assert len(missed(analysis=proof.compared(b"rest", b""))) == 1
    assert len(missed(sweep={"states": 9_999_999})) == 1 and len(missed(analysis={"traces": 999})) == 1
    for said in ({}, {"b": "why"}, {"a": "why", "b": "why"}):
        assert len(missed(analysis={"said": said})) == 1


@pytest.mark.parametrize("kind", grown.DAMAGE)
def test_each_damage_is_noticed(tmp_path: Path, kind: Any) -> None:
    trace, root = JOURNAL.relative_to(FLEET), tmp_path / "fleet"
    shutil.copytree(FLEET, root)
    analyze = [ordo(), "analyze", str(root / trace), "--json"]
    assert subprocess.run(analyze, capture_output=True, check=False).returncode == 0
    how = kind(root / trace, root / ORDERED.relative_to(FLEET))
    ran = subprocess.run(analyze, capture_output=True, text=True, check=False)
    assert ran.returncode != 0 and how.split("`")[-2] in ran.stderr, f"{how}: {ran.stderr}"


def test_a_run_that_ends_before_its_middle_has_no_executor_killed(tmp_path: Path) -> None:
    ran = kills.kill_one(["sh", "-c", "echo said; exit 7"], {}, tmp_path / "log", lambda: False, 60)
    assert (ran.executor, ran.status, ran.log) == (None, 7, "said\n")
    ran = kills.kill_one(["sleep", "60"], {}, tmp_path / "log", lambda: True, 0.3)
    assert ran.executor is None and ran.status == -9
