"""Texts that must not be printed or logged."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NoReturn, final


@final
class Secret:
    """A plaintext that prints as stars in logs, tracebacks and reprs. Only `reveal` returns it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the plaintext."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(***)"

    def __str__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> NoReturn:
        msg = "a Secret cannot be pickled"
        raise TypeError(msg)


MIN_KEY_LENGTH = 32
"""Fewest characters of a secret key."""

_MIN_DISTINCT_CHARACTERS = 8
_MAX_SEQUENCE_SHARE = 0.5
"""
Largest share of neighbouring characters that follow each other in the alphabet, as in `abcdefgh`. It is about 0.05 for random Base64 and
0.2 for random hex.
"""
_PLACEHOLDERS = (
    "random-characters", "change-me", "change-this", "replace-me", "replace-this", "your-secret", "my-secret", "super-secret",
    "secret-key-here", "placeholder", "password", "example-key",
)  # fmt: skip
"""Parts of placeholders in documentation."""
_NOT_A_LETTER = re.compile(r"[^a-z]")


def parse_secret_key(text: str) -> Secret:
    """
    Return *text* as a secret key.

    Raises:
        ValueError: The text is shorter than 32 characters, or has fewer than 8 different characters.
    """
    if len(text) < MIN_KEY_LENGTH or len(set(text)) < _MIN_DISTINCT_CHARACTERS:
        msg = f"must be at least {MIN_KEY_LENGTH} random characters, such as the output of `openssl rand -base64 32`"
        raise ValueError(msg)
    return Secret(text)


def parse_new_secret_key(text: str) -> Secret:
    """
    Return *text* as a new secret key.

    Raises:
        ValueError: The text is too short, a placeholder, a repeated block, or a sequence of characters.
    """
    parse_secret_key(text)
    advice = "use the output of `openssl rand -base64 32`"
    letters = _NOT_A_LETTER.sub("", text.lower())
    for word in _PLACEHOLDERS:
        if _NOT_A_LETTER.sub("", word) in letters:
            msg = f"is a placeholder and not a random text (it contains {word!r}); {advice}"
            raise ValueError(msg)
    if (text + text).find(text, 1) < len(text):
        msg = f"is a repeated block of characters; {advice}"
        raise ValueError(msg)
    if sum(abs(ord(one) - ord(other)) <= 1 for one, other in pairwise(text)) > _MAX_SEQUENCE_SHARE * len(text):
        msg = f"is a sequence of characters and not a random text; {advice}"
        raise ValueError(msg)
    return Secret(text)
