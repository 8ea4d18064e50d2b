"""Compares what a server lists and returns with what arrives through Rookery, field by field."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

Json = dict[str, object]

_DEPTH = 3
"""Names in a path of a difference: `annotations.category`, `_meta.ui.resourceUri`."""


def compare_items(originals: Iterable[Json], arrivals: Iterable[Json], *, ignored: Iterable[str] = ()) -> list[str]:
    """
    Return how *arrivals* differ from *originals*: `lost annotations.category (32)`, sorted.

    Items are paired by name, whatever stands before it, then by description. An item without a partner is `absent`.
    """
    left = list(arrivals)
    counts = Counter[str]()
    for original in originals:
        arrival = _take_partner(original, left)
        if arrival is None:
            counts["absent"] += 1
        else:
            counts.update(set(find_differences(original, arrival, ignored)))
    counts["unexpected"] += len(left)
    return [f"{text} ({count})" for text, count in sorted(counts.items()) if count]


def find_differences(original: Json, arrival: Json, ignored: Iterable[str] = ()) -> Iterator[str]:
    """Yield `lost PATH`, `added PATH` and `changed PATH`; *ignored* are names of the first level."""
    skipped = set(ignored)
    yield from _walk({k: v for k, v in original.items() if k not in skipped}, {k: v for k, v in arrival.items() if k not in skipped}, ())


def compare_results(original: Mapping[str, object], arrival: Mapping[str, object]) -> str:
    """Return "same" if two results have the same fields and kinds of content, else the difference. Values may differ: a time, a path."""
    before, after = set(_list_shapes(dict(original), ())), set(_list_shapes(dict(arrival), ()))
    if "isError" not in original:
        after -= {"isError: false"}
    lost, added = sorted(before - after), sorted(after - before)
    return "; ".join([*(f"lost {one}" for one in lost), *(f"added {one}" for one in added)]) or "same"


def _take_partner(original: Json, left: list[Json]) -> Json | None:
    """Remove and return the item that is most like *original*, or None."""
    ranks = [_rank(original, one) for one in left]
    best = max(ranks, default=0)
    return left.pop(ranks.index(best)) if best else None


def _rank(original: Json, arrival: Json) -> int:
    name, new_name = str(original.get("name")), str(arrival.get("name"))
    has_name = new_name == name or new_name.endswith(f"__{name}")
    return 2 * has_name + (arrival.get("description") == original.get("description"))


def _walk(original: object, arrival: object, path: tuple[str, ...]) -> Iterator[str]:
    if isinstance(original, dict) and isinstance(arrival, dict):
        before, after = cast("Json", original), cast("Json", arrival)
        for name in before.keys() | after.keys():
            here = (*path, name)
            if name not in after:
                yield f"lost {_format_path(here)}"
            elif name not in before:
                yield f"added {_format_path(here)}"
            else:
                yield from _walk(before[name], after[name], here)
    elif (
        isinstance(original, list)
        and isinstance(arrival, list)
        and len(cast("list[object]", original)) == len(cast("list[object]", arrival))
    ):
        for one, other in zip(cast("list[object]", original), cast("list[object]", arrival), strict=True):
            yield from _walk(one, other, path)
    elif original != arrival:
        yield f"changed {_format_path(path)}"


def _list_shapes(value: object, path: tuple[str, ...]) -> Iterator[str]:
    """Yield each field of a result, and the values of `type` and `isError`; the content of `structuredContent` is the server's own."""
    if isinstance(value, dict):
        for name, inner in cast("Json", value).items():
            if name == "structuredContent":
                yield name
            else:
                yield from _list_shapes(inner, (*path, name))
    elif isinstance(value, list):
        for inner in cast("list[object]", value):
            yield from _list_shapes(inner, path)
    else:
        field = _format_path(path)
        yield f"{field}: {json.dumps(value)}" if path[-1:] in {("type",), ("isError",)} else field


def _format_path(path: tuple[str, ...]) -> str:
    return ".".join(path[:_DEPTH])
