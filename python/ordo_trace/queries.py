"""The named queries: files of SQL in the folder ``queries``, which run alone in DuckDB too."""

from __future__ import annotations

from pathlib import Path

#: Where the files are.
FOLDER = Path(__file__).parent / "queries"


def names() -> list[str]:
    """The names of all queries, in order."""
    return sorted(path.stem for path in FOLDER.glob("*.sql"))


def sql(name: str) -> str:
    """The text of a query.

    Raises:
        KeyError: there is none of this name; the message says which there are.
    """
    if name not in names():
        raise KeyError(f"no query is called {name!r}; there are {', '.join(names())}")
    return (FOLDER / f"{name}.sql").read_text(encoding="utf-8")


def about(name: str) -> str:
    """What a query answers: the first line of its file."""
    return sql(name).splitlines()[0].removeprefix("-- ")
