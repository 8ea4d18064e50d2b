"""Detection of secrets that an entry contains literally, although `${NAME}` would keep them out of the file. No I/O."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast
from urllib.parse import parse_qsl, urlsplit

from rookery.tools.models import JsonObject
from rookery.tools.servers.entries import VARIABLE_PATTERN
from rookery.tools.servers.entry_secrets import is_secret_name

_KNOWN_TOKEN = re.compile(
    r"(?:sbp_|sk-|sk_live_|sk_test_|rk_live_|rk_test_|gh[opsur]_|github_pat_|glpat-|xox[abprs]-|xapp-|AKIA|ASIA|AIza|ya29\.|hf_|npm_|pypi-|"
    r"lin_api_|ntn_|secret_|fc-|tvly-|sntry[su]_|dop_v1_|figd_|pat-|nvapi-|gsk_|r8_|SG\.|eyJ)[A-Za-z0-9_.=-]{12,}"
)
"""Prefixes of access tokens of well-known services: Supabase, OpenAI, Stripe, GitHub, GitLab, Slack, AWS, Google, Sentry and others."""

_OPTION = re.compile(r"--?([A-Za-z][A-Za-z0-9_-]*)(?:=(.*))?", re.DOTALL)
_SCHEME = re.compile(r"^(?:Bearer|Basic|Token)\s+", re.IGNORECASE)
_TOKEN_CHARACTERS = re.compile(r"[A-Za-z0-9_.~+/=:-]{12,}")
_MIN_ENTROPY_BITS = 3.0
"""Minimal entropy per character of a random token. English words have less at this length."""


@dataclass(frozen=True, slots=True)
class LiteralSecret:
    """
    A field of an entry with a literal secret.

    Attributes:
        place: The field, or the option of a command, without the value.
        variable: A name for the variable to use instead.
    """

    place: str
    variable: str


def find_literal_secrets(entry: JsonObject) -> list[LiteralSecret]:
    """Return the secrets that *entry* contains literally: known tokens, and random values of fields that are named like secrets."""
    secrets = [*_find_in_arguments(entry.get("args")), *_find_in_url(entry.get("url"))]
    for field in ("env", "headers"):
        values = cast("Mapping[str, object]", entry.get(field) or {})
        secrets += [
            LiteralSecret(f"{field}.{name}", _to_variable(name, is_header=field == "headers"))
            for name, value in values.items()
            if isinstance(value, str) and _is_secret(name, _SCHEME.sub("", value))
        ]
    return secrets


def _find_in_arguments(args: object) -> Iterator[LiteralSecret]:
    words = [word for word in cast("Sequence[object]", args) if isinstance(word, str)] if isinstance(args, list) else []
    option = ""
    for word in words:
        match = _OPTION.fullmatch(word)
        if match is not None:
            option = match[1] if match[2] is None else ""
            if match[2] is not None and _is_secret(match[1], match[2]):
                yield LiteralSecret(f"args: --{match[1]}", _to_variable(match[1]))
        else:
            name, equals, value = word.partition("=")
            if equals and _is_secret(name, value):  # as in `docker run -e NAME=value`
                yield LiteralSecret(f"args: {name}", _to_variable(name))
            elif not equals and _is_secret(option, _SCHEME.sub("", word)):
                yield LiteralSecret(f"args: --{option}" if option else "args", _to_variable(option or "TOKEN"))
            option = ""


def _find_in_url(url: object) -> Iterator[LiteralSecret]:
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
    except ValueError:
        return
    if parts is not None:
        for name, value in parse_qsl(parts.query):
            if _is_secret(name, value):
                yield LiteralSecret(f"url: {name}", _to_variable(name))


def _is_secret(name: str, value: str) -> bool:
    if VARIABLE_PATTERN.search(value) is not None:
        return False
    return _KNOWN_TOKEN.fullmatch(value) is not None or (is_secret_name(name) and _is_random(value))


def _is_random(value: str) -> bool:
    """Return whether a value looks like a random token, and not like a word, a path or an address."""
    if _TOKEN_CHARACTERS.fullmatch(value) is None or value.startswith(("/", "./", "~")) or "://" in value:
        return False
    if not (any(character.isdigit() for character in value) and any(character.isalpha() for character in value)):
        return False
    counts = Counter(value)
    return -sum(count / len(value) * math.log2(count / len(value)) for count in counts.values()) >= _MIN_ENTROPY_BITS


def _to_variable(name: str, *, is_header: bool = False) -> str:
    variable = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").upper()
    return "TOKEN" if is_header and variable == "AUTHORIZATION" else variable or "TOKEN"
