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


LEAST_KEY = 32
"""Characters of the text of a secret key."""

_LEAST_DIFFERENT = 8
_MAX_IN_SEQUENCE = 0.5
"""Share of characters that follow each other in the alphabet, as in `abcdefgh`; about 0.05 of random Base64, 0.2 of random hex."""
_PLACEHOLDERS = (
    "random-characters", "change-me", "change-this", "replace-me", "replace-this", "your-secret", "my-secret", "super-secret",
    "secret-key-here", "placeholder", "password", "example-key",
)  # fmt: skip
"""Words of texts that stand in documentation to be replaced."""
_NOT_A_LETTER = re.compile(r"[^a-z]")


def must_be_strong(text: str) -> Secret:
    """
    Return *text* as the text of a secret key.

    Raises:
        ValueError: It is shorter than 32 characters, or hardly more than one character repeated.
    """
    if len(text) < LEAST_KEY or len(set(text)) < _LEAST_DIFFERENT:
        msg = f"must be {LEAST_KEY} random characters or more, such as `openssl rand -base64 32` prints"
        raise ValueError(msg)
    return Secret(text)


def must_be_random(text: str) -> Secret:
    """
    Return *text* as the text of a new secret key.

    Raises:
        ValueError: It is too short, a placeholder from the documentation, a block that is repeated, or a sequence.
    """
    must_be_strong(text)
    advice = "use what `openssl rand -base64 32` prints"
    letters = _NOT_A_LETTER.sub("", text.lower())
    for word in _PLACEHOLDERS:
        if _NOT_A_LETTER.sub("", word) in letters:
            msg = f"is a placeholder, not a random text ({word!r} is part of it); {advice}"
            raise ValueError(msg)
    if (text + text).find(text, 1) < len(text):
        msg = f"is one block of characters, repeated; {advice}"
        raise ValueError(msg)
    if sum(abs(ord(one) - ord(other)) <= 1 for one, other in pairwise(text)) > _MAX_IN_SEQUENCE * len(text):
        msg = f"is a sequence of characters, not a random text; {advice}"
        raise ValueError(msg)
    return Secret(text)
