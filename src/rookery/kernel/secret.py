"""A text that must not be seen."""

from __future__ import annotations

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
