"""The sections by name, and the page of those that are kept."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

from . import estimate, long, proof, recorder, sweep

#: In the order of the page.
ALL: dict[str, ModuleType] = {
    "proof": proof, "sweep": sweep, "recorder": recorder, "long": long, "estimate": estimate,
}


def verdict(what: str, is_so: bool) -> str:
    """One line of what was wanted."""
    return f"- {'Met' if is_so else 'MISSED'}: {what}."


def section(name: str, kept: Path) -> str:
    """One section; of one that is not kept, how it is measured."""
    of = ALL[name]
    if not kept.exists():
        return f"## {of.TITLE}\n\nNot measured yet: `make bench-fleet SECTIONS={name}`.\n"
    one = json.loads(kept.read_text())
    wanted = [verdict(*each) for each in of.verdicts(one["figures"])] if hasattr(of, "verdicts") else []
    verdicts = "\n" + "\n".join(wanted) + "\n" if wanted else ""
    after = f", after: {one['load_after']}" if "load_after" in one else ""
    about = f"Commit {one['commit']}, program {one['program']}; {one['machine']}; load before: {one['load']}{after}."
    return f"## {of.TITLE}\n\n{of.page(one['figures'])}\n{verdicts}\n{about}\n"


def page(kept: Path) -> str:
    """The whole page."""
    head = (
        "# Fleets, and recording in parts\n\nWritten by `make bench-fleet`. Each section is measured by itself "
        "(`SECTIONS=`), and says at which commit, by which program (SHA-256), and under which load.\n"
    )
    return "\n".join([head, *(section(name, kept / f"{name}.json") for name in ALL)])
