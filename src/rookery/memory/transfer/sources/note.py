"""A note of another program, with the readers of its front matter and of the tags in its text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import cast

from markdown_it.token import Token

from rookery.memory.transfer.lenient import LenientReader, Warn
from rookery.memory.transfer.markdown_documents import MarkdownDocument

HASHTAG = re.compile(r"(?:^|(?<=[\s(]))#([\w/-]*[^\W\d_][\w/-]*)")
"""A hashtag as in Obsidian: not of digits only."""

_TAG_SEPARATOR = re.compile(r"[,\s]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedNote:
    """
    A note: its name in the source, its file name without the ending, its sections, and its front matter.

    Attributes:
        warn: Reports a field of the front matter, with its line.
    """

    path: Path
    name: str
    title: str
    modified_at: datetime
    document: MarkdownDocument
    row: LenientReader
    warn: Warn

    @property
    def body(self) -> str:
        """The text after the front matter."""
        sections = self.document.sections
        return "\n".join(self.document.lines[sections[0].start_line :]).strip() if sections else ""


def iter_front_tags(row: LenientReader) -> Iterator[str]:
    """Yield the tags of the front matter: a list, or a text separated by spaces or commas. A leading # is removed."""
    for name in ("tags", "tag"):
        value = row.value(name)
        items = cast("list[object]", value) if isinstance(value, list) else _TAG_SEPARATOR.split(value) if isinstance(value, str) else []
        for item in items:
            if isinstance(item, str | int | float | date) and not isinstance(item, bool):
                yield str(item).strip().lstrip("#")


def iter_hashtags(tokens: Sequence[Token]) -> Iterator[str]:
    """Yield the hashtags of a text, except those in code."""
    for token in tokens:
        for child in token.children or ():
            if child.type == "text":
                yield from HASHTAG.findall(child.content)
