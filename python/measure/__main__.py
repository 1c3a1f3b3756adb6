"""`make bench-fleet`: measures the sections that are asked for, and writes the page from all that are kept."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from . import common, sections
from .common import MeasureError, Options


def arguments() -> argparse.ArgumentParser:
    """What can be asked for."""
    parser = argparse.ArgumentParser(prog="python -m measure", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("ordo", help="the program")
    parser.add_argument("--sections", default=",".join(sections.ALL), metavar="LIST", help="[%(default)s]; none: only the page")
    parser.add_argument("--kept", type=Path, default=Path("target/fleet"), help="folder of figures, and of recordings meanwhile")
    parser.add_argument("--page", type=Path, help="write the page of all kept figures to this file")
    parser.add_argument("--seconds", type=float, default=3600, help="of the long recording [%(default)s]")
    parser.add_argument("--gigabytes", type=float, default=12, help="written in the long recording [%(default)s]")
    parser.add_argument("--rounds", type=int, default=5, help="of what is timed [%(default)s]")
    parser.add_argument("--runs", type=int, default=12, help="of the sweep, for each file system [%(default)s]")
    parser.add_argument("--megabytes", type=int, default=600, help="written for the cost of recording [%(default)s]")
    parser.add_argument("--states", type=int, default=10_000_000, help="crash states of the proof [%(default)s]")
    parser.add_argument("--traces", type=int, default=1000, help="traces of the proof [%(default)s]")
    parser.add_argument("--damaged", type=int, default=5, help="traces of the proof that are damaged [%(default)s]")
    return parser


def main() -> None:
    """Measures."""
    args = arguments().parse_args()
    options = Options(
        ordo=str(Path(args.ordo).absolute()), seconds=args.seconds, bytes=int(args.gigabytes * 1e9), rounds=args.rounds,
        runs=args.runs, cost_bytes=args.megabytes << 20, states=args.states, traces=args.traces, damaged=args.damaged,
    )
    kept = args.kept.absolute()
    kept.mkdir(parents=True, exist_ok=True)
    wanted = [] if args.sections == "none" else args.sections.split(",")
    if wrong := [name for name in wanted if name not in sections.ALL]:
        raise MeasureError(f"no section is called {wrong[0]}; there are {', '.join(sections.ALL)}")
    for name in wanted:
        about = {"commit": common.commit(), "program": common.digest(options.ordo), "machine": common.machine(),
                 "load": common.load()}
        with tempfile.TemporaryDirectory(dir=kept, prefix=f"{name}-") as folder:
            figures = sections.ALL[name].measure(options, Path(folder))
        text = json.dumps({"section": name, **about, "load_after": common.load(), "figures": figures}, indent=1)
        beside = kept / f"{name}.json.part"
        beside.write_text(text + "\n")
        beside.replace(kept / f"{name}.json")
    if args.page:
        args.page.write_text(sections.page(kept))


if __name__ == "__main__":
    try:
        main()
    except MeasureError as error:
        sys.exit(f"measure: {error}")
