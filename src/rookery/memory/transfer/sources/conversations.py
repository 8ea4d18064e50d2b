"""Exports of conversations, which are recognised and refused: they have messages, not memories."""

from __future__ import annotations

from collections.abc import Sequence

from rookery.memory.transfer.sources.source import MemorySource, is_list_of, to_objects

_REASON = (
    "it has whole conversations, not memories. Copy the saved memories from the program's settings into a note, one per line, "
    "and import the note"
)


def _find_chatgpt(document: object) -> Sequence[object] | None:
    return to_objects(document) if is_list_of(document, "mapping", "current_node") else None


def _find_claude(document: object) -> Sequence[object] | None:
    return to_objects(document) if is_list_of(document, "chat_messages") else None


SOURCES = (
    MemorySource(name=None, title="conversations of ChatGPT", find_entries=_find_chatgpt, refusal=_REASON),
    MemorySource(name=None, title="conversations of Claude", find_entries=_find_claude, refusal=_REASON),
)
