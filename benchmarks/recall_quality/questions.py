"""Documents, and questions whose answers among them are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question and the documents that answer it; *category* is the data set's own."""

    id: str
    text: str
    gold: frozenset[str]
    category: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """
    Documents by id in the order of their times, and questions about them alone; a data set has one or more.

    Attributes:
        sessions: The sessions of the documents that belong to one.
        types: The memory types of the documents; `observation` if they have none.
    """

    name: str
    documents: dict[str, str]
    questions: tuple[Question, ...]
    sessions: Mapping[str, str] = field(default_factory=dict[str, str])
    types: Mapping[str, str] = field(default_factory=dict[str, str])
