"""The Accept header of requests."""

from __future__ import annotations


def prefers(accept: str | None, kind: str, *, over: str) -> bool:
    """Return whether an Accept header gives the media type *kind* a higher quality than *over*. Without a header it does not."""
    return _get_quality(accept or "*/*", kind) > _get_quality(accept or "*/*", over)


def _get_quality(accept: str, kind: str) -> float:
    """Return the quality of *kind*, 0 to 1, from the most specific media range that matches it."""
    exactness = {"*/*": 1, f"{kind.partition('/')[0]}/*": 2, kind: 3}
    best, quality = 0, 0.0
    for part in accept.split(","):
        name, _, parameters = part.partition(";")
        rank = exactness.get(name.strip().lower(), 0)
        if rank > best:
            best, quality = rank, _parse_weight(parameters)
    return quality


def _parse_weight(parameters: str) -> float:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
