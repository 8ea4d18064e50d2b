"""Matching of URIs against URI templates (RFC 6570) that tool servers list. No I/O."""

from __future__ import annotations

import re
from functools import lru_cache

_VARIABLES = re.compile(r"((?:\{[^{}]*\})+)")
"""One variable or several without text between them."""
_OPERATORS = frozenset("+#./;?&")
_FIXED_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def matches_template(uri: str, template: str) -> bool:
    """
    Return whether *uri* contains the fixed parts of *template* in order. Linear time.

    As in the SDKs, `{name}` stands for at least one character and no slash. A variable with an operator, such as `{+path}`, stands for
    any text.
    """
    first, *rest = _parse(template)
    if not uri.startswith(first):
        return False
    at, pairs = len(first), list(zip(rest[::2], rest[1::2], strict=True))
    for index, (variables, text) in enumerate(pairs, start=1):
        takes_any = any(expression[:1] in _OPERATORS for expression in variables[1:-1].split("}{"))
        shortest = at if takes_any else at + 1
        # The last part is at the end of the URI, each other one as early as possible.
        end = uri.find(text, shortest) if index < len(pairs) else len(uri) - len(text) if uri.endswith(text) else -1
        if end < shortest or (not takes_any and "/" in uri[at:end]):
            return False
        at = end + len(text)
    return at == len(uri)


def names_scheme(template: str) -> bool:
    """Return whether *template* begins with a scheme. One that begins with a variable would match the URIs of every other server."""
    return _FIXED_SCHEME.match(template) is not None


@lru_cache(maxsize=1024)
def _parse(template: str) -> tuple[str, ...]:
    """Return the fixed parts of a template and its variables in turn, beginning and ending with a fixed part."""
    return tuple(_VARIABLES.split(template))
