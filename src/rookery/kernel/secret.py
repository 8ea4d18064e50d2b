"""A text that must not be seen."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NoReturn, final


@final
class Secret:
    """A plaintext that prints as stars: in logs, tracebacks and reprs alike. `reveal` is for the one use it has."""

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
        msg = "a secret is never pickled"
        raise TypeError(msg)


MIN_KEY_LENGTH = 32
"""Characters of the text of a secret key."""

_MIN_DISTINCT_CHARACTERS = 8
_MAX_SEQUENCE_SHARE = 0.5
"""Share of characters that follow each other in the alphabet, as in `abcdefgh`; about 0.05 of random Base64, 0.2 of random hex."""
_PLACEHOLDERS = (
    "random-characters", "change-me", "change-this", "replace-me", "replace-this", "your-secret", "my-secret", "super-secret",
    "secret-key-here", "placeholder", "password", "example-key",
)  # fmt: skip
"""Words of texts that stand in documentation to be replaced."""
_NOT_A_LETTER = re.compile(r"[^a-z]")


def parse_secret_key(text: str) -> Secret:
    """
    Return *text* as the text of a secret key.

    Raises:
        ValueError: It is shorter than 32 characters, or hardly more than one character repeated.
    """
    if len(text) < MIN_KEY_LENGTH or len(set(text)) < _MIN_DISTINCT_CHARACTERS:
        msg = f"must be {MIN_KEY_LENGTH} random characters or more, such as `openssl rand -base64 32` prints"
        raise ValueError(msg)
    return Secret(text)


def parse_new_secret_key(text: str) -> Secret:
    """
    Return *text* as the text of a new secret key.

    Raises:
        ValueError: It is too short, a placeholder from the documentation, a block that is repeated, or a sequence.
    """
    parse_secret_key(text)
    advice = "use what `openssl rand -base64 32` prints"
    letters = _NOT_A_LETTER.sub("", text.lower())
    for word in _PLACEHOLDERS:
        if _NOT_A_LETTER.sub("", word) in letters:
            msg = f"is a placeholder, not a random text ({word!r} is part of it); {advice}"
            raise ValueError(msg)
    if (text + text).find(text, 1) < len(text):
        msg = f"is one block of characters, repeated; {advice}"
        raise ValueError(msg)
    if sum(abs(ord(one) - ord(other)) <= 1 for one, other in pairwise(text)) > _MAX_SEQUENCE_SHARE * len(text):
        msg = f"is a sequence of characters, not a random text; {advice}"
        raise ValueError(msg)
    return Secret(text)
