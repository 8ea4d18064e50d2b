"""Control characters in texts of others, which could forge a line of a log or control a terminal. Pure."""

from __future__ import annotations

import re

_CONTROL_CHARACTER = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Line breaks, other controls, marks that change the direction of a text, and lone surrogates, which have no UTF-8."""


_LAYOUT = frozenset("\t\n")


_TERMINAL_SEQUENCE = re.compile("\x1b\\[[0-9;?]*[ -/]*[@-~]")
"""A command to a terminal, for example for a colour."""


def remove_control_characters(text: str) -> str:
    """Return *text* as one line without control characters and commands to terminals."""
    return " ".join(_CONTROL_CHARACTER.sub(" ", _TERMINAL_SEQUENCE.sub("", text)).split())


def escape_control_characters(text: str, *, keeps_layout: bool = False) -> str:
    r"""
    Return *text* with control characters and line breaks as escapes such as \x1b.

    Args:
        keeps_layout: Leave line feeds and tabs as they are.
    """
    return _CONTROL_CHARACTER.sub(_escape_unless_layout if keeps_layout else _escape, text)


def _escape_unless_layout(match: re.Match[str]) -> str:
    return match[0] if match[0] in _LAYOUT else _escape(match)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
