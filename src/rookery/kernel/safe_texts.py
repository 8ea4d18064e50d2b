"""
Texts that others may have written, made safe for logs, terminals and spreadsheets. Pure.

Keys are found in every form: plain, in JSON, in a repr, percent-encoded, in the base64 of Basic credentials, and split in two by quotes.
All patterns take linear time: each begins with a fixed word and repeats one class of characters.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence

_UNDERSCORE = r"(?:_|%(?:25)*5[Ff])"
_KEY_CHARACTER = r"(?:[A-Za-z0-9+/=_-]|%[0-9A-Fa-f]{2})"
_STRING_BREAK = r"\\*[\"']\s{0,8}\+?\s{0,4}[bfru]?\\*[\"']"
"""The text between two halves of a string that source code or a pretty printer has split."""

_KEY_REMAINDER = rf"({_KEY_CHARACTER}*(?:{_STRING_BREAK}{_KEY_CHARACTER}+)*(?:\.\.\.[A-Za-z0-9]+)?)"
"""Three dots: reprlib omits the middle of a text and shows its end."""

_MIN_KEY_CHARACTERS = 6
"""Fewest characters after a prefix that count as part of a key, so that `sk_live_KEY` in a message is not redacted."""

_API_KEY = re.compile(rf"((?:sk{_UNDERSCORE}(?:live|test)|whsec){_UNDERSCORE})" + _KEY_REMAINDER)
_AGENT_KEY = re.compile(rf"(?:(?<![A-Za-z])|(?=ak{_UNDERSCORE}[A-Za-z0-9]{{20}}))(ak{_UNDERSCORE})" + _KEY_REMAINDER)
_BASE64_KEY = re.compile(r"(c2tf(?:bGl2Z|dGVzd)|d2hzZWNf|(?<![A-Za-z0-9+/])YWtf)[A-Za-z0-9+/_-]{6,}(?:=|%3[Dd]){0,2}")
"""The beginnings of `sk_live_`, `sk_test_`, `whsec_` and `ak_` in base64, as user names of Basic credentials."""

_CREDENTIALS = re.compile(
    r"\b(bearer|basic)((?:\s|%20|\+){1,3})(?=[A-Za-z._~+/=-]*[0-9]|[A-Za-z0-9._~+/=-]{24})[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE
)
_AUTH_HEADER = re.compile(
    r"\b((?:proxy-)?authorization|x-api-key)(\\*[\"']?\s{0,4}(?:[:=]|,(?=\s{0,4}b?\\*[\"']))\s{0,4}(?:b?\\*[\"'])?(?:(?:bearer|basic)\s{1,3})?)"
    r"[^\s\"'\\,;)\]}]{4,}",
    re.IGNORECASE,
)
_COOKIE = re.compile(
    r"\b((?:set-)?cookie)(\\*[\"']?\s{0,4}(?:[:=]|,(?=\s{0,4}b?\\*[\"']))\s{0,4}(?:b?\\*[\"'])?)[^\s\"'\\][^\"'\\\r\n]*", re.IGNORECASE
)
_URL_PASSWORD = re.compile(r"(?<=://)([^\s/:@\"']{0,200}):([^\s/@\"']{1,200})@")
_ELLIPSIS = "…"
_HINTS = tuple("sk_ sk% ak_ ak% whsec c2tf d2hz ywtf bearer basic authorization x-api-key cookie ://".split())
"""Any text that matches a pattern contains one of these. Most lines contain none, which takes 2 µs to check instead of 80 µs."""


def redact(text: str) -> str:
    """Return *text* with every key cut to its prefix, and without other credentials in headers and URLs."""
    lowercase_text = text.lower()
    if not any(hint in lowercase_text for hint in _HINTS):
        return text
    text = _API_KEY.sub(_mask_key, text)
    text = _AGENT_KEY.sub(_mask_key, text)
    text = _BASE64_KEY.sub(rf"\1{_ELLIPSIS}", text)
    text = _AUTH_HEADER.sub(rf"\1\2{_ELLIPSIS}", text)
    text = _CREDENTIALS.sub(rf"\1\2{_ELLIPSIS}", text)
    text = _COOKIE.sub(rf"\1\2{_ELLIPSIS}", text)
    return _URL_PASSWORD.sub(rf"\1:{_ELLIPSIS}@", text)


def _mask_key(match: re.Match[str]) -> str:
    return match[1] + _ELLIPSIS if len(match[2]) >= _MIN_KEY_CHARACTERS else match[0]


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


_FORMULA_PREFIXES = (*"=+-@\t\r", *"\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}")
"""First characters that spreadsheets interpret as a formula (OWASP, CSV injection), full-width forms included."""


def csv_header(columns: Sequence[str]) -> str:
    """Return the header line."""
    return csv_lines([dict(zip(columns, columns, strict=True))], columns)


def csv_lines(rows: Iterable[Mapping[str, object]], columns: Sequence[str]) -> str:
    """Return one line per row, each ending with CRLF."""
    buffer = io.StringIO()
    csv.writer(buffer).writerows([_escape_cell(row[column]) for column in columns] for row in rows)
    return buffer.getvalue()


def _escape_cell(value: object) -> object:
    """Return the value of a cell. A text that a spreadsheet would interpret as a formula gets a leading apostrophe."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_PREFIXES) else value
