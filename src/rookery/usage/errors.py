"""Errors of usage."""

from __future__ import annotations


class InvalidRange(ValueError):
    """A range that is invalid or contradicts itself. *field* is the part that is wrong."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(problem)
        self.field = field
