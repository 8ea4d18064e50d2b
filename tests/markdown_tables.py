"""Tables of pages that runs write: of real tool servers, and of real agents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

REGISTRIES = {"npm": "npm", "go": "Go modules", "cargo": "Rust crates", "maven": "Maven"}
"""By kind of installation; every other kind is `PYPI`."""
PYPI = "PyPI"
NONE = "–"

_MAX_TEXT = 160


def render_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield the lines of a table, and an empty one after it."""
    names = list(head)
    yield f"| {' | '.join(names)} |"
    yield f"|{'---|' * len(names)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)
    yield ""


def shorten(text: str) -> str:
    """Return a text that fits into a cell."""
    line = " ".join(text.split()).replace("|", "/").replace("<", "&lt;")
    return line if len(line) <= _MAX_TEXT else f"{line[:_MAX_TEXT]}…"


def format_days(days: Iterable[str]) -> str:
    """Return the days of runs, each once, in words."""
    ordered = sorted(set(days))
    return " and ".join(filter(None, (", ".join(ordered[:-1]), ordered[-1])))
