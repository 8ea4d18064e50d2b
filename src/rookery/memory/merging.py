"""Merging of the texts of similar memories, and its reversal. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import blake2b
from typing import Protocol

import orjson

from rookery.memory.metadata import FOREIGN_IDS, Metadata
from rookery.memory.models import MAX_CONTENT_CHARS, MAX_TAGS, Memory
from rookery.memory.statements import Difference, Distinction, extract_new_sentences, find_distinction

_SEPARATOR = "\n\n"


class Labelled(Protocol):
    """An item with metadata and tags."""

    @property
    def metadata(self) -> Metadata: ...
    @property
    def tags(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """
    The merge of one memory into another, completed or pending.

    Attributes:
        run: The run of the command that merged it.
        seen_at: The `updated_at` of the merged memory at the time of the merge. Later changes are not in the merge.
        length: The length in characters of the text appended to the primary, with its *digest*; 0 if nothing was appended.
        tags: The tags that the primary did not have.
        is_done: True once the merged memory is archived. Before that, the primary has its text, and the merge is yet to be verified.
    """

    memory_id: str
    workspace_id: int
    primary_id: str
    run: str
    seen_at: datetime
    length: int
    digest: str
    tags: tuple[str, ...]
    is_done: bool = False


def merge_sort_key(memory: Memory) -> tuple[float, datetime, str]:
    """Return the sort key that puts the memory to keep first: highest confidence, then oldest, then lowest id."""
    return -memory.confidence, memory.created_at, memory.id


def space_key(memory: Memory) -> tuple[object, ...]:
    """Return the fields that memories must share to be merged."""
    scope = memory.memory_scope
    return memory.workspace_id, memory.org, memory.project, scope, memory.agent_id, memory.session_id, memory.type


def find_memory_distinction(memory: Memory, other: Memory) -> Distinction | None:
    """Return how two memories differ in what they state and of whom, or None if they may be merged."""
    return (memory.content != other.content and find_distinction(memory.content, other.content)) or find_subject_distinction(memory, other)


def find_subject_distinction(item: Labelled, other: Labelled) -> Distinction | None:
    """
    Return how two items differ in what says whom or what they are about, or None.

    That is metadata, such as `user_id`, and the value of a tag such as `user:kim`, if both have one. The ids that memories had in other
    programs are no difference.
    """
    for name in sorted((item.metadata.keys() | other.metadata.keys()) - FOREIGN_IDS):
        value, other_value = _format_field(item.metadata, name), _format_field(other.metadata, name)
        if value != other_value:
            return Distinction(Difference.METADATA, value, other_value)
    groups, other_groups = _group_tags(item.tags), _group_tags(other.tags)
    for name in groups.keys() & other_groups.keys():
        if groups[name] != other_groups[name]:
            return Distinction(Difference.TAG, ", ".join(sorted(groups[name])), ", ".join(sorted(other_groups[name])))
    return None


def _format_field(metadata: Metadata, name: str) -> str:
    return f"{name}={orjson.dumps(metadata[name], option=orjson.OPT_SORT_KEYS).decode()}" if name in metadata else ""


def _group_tags(tags: Sequence[str]) -> dict[str, set[str]]:
    groups = dict[str, set[str]]()
    for tag in tags:
        name, colon, value = tag.partition(":")
        if colon and value:
            groups.setdefault(name, set()).add(tag)
    return groups


def merge_memories(primary: Memory, others: Sequence[Memory], *, run: str) -> tuple[Memory, list[Merge]]:
    """
    Return *primary* with the new sentences of *others* appended, and one merge per memory merged.

    A memory whose text does not fit is left out.
    """
    content, tags = primary.content, primary.tags
    merges = list[Merge]()
    for other in others:
        block = extract_new_sentences(content, other.content)
        new = tuple(tag for tag in other.tags if tag not in tags)
        if len(content) + len(_SEPARATOR) + len(block) > MAX_CONTENT_CHARS or len(tags) + len(new) > MAX_TAGS:
            continue
        content, tags = content + _SEPARATOR + block if block else content, tags + new
        merges.append(
            Merge(
                memory_id=other.id,
                workspace_id=primary.workspace_id,
                primary_id=primary.id,
                run=run,
                seen_at=other.updated_at,
                length=len(block),
                digest=_digest(block),
                tags=new,
            )
        )
    return replace(primary, content=content, tags=tags), merges


def remove_merged_text(primary: Memory, merges: Iterable[Merge]) -> Memory:
    """Return *primary* without the text and tags that *merges* added. Text changed since then stays."""
    for merge in merges:
        place = _find_block(primary.content, merge)
        content = primary.content if place is None else primary.content[: place.start] + primary.content[place.stop :]
        primary = replace(primary, content=content, tags=tuple(tag for tag in primary.tags if tag not in merge.tags))
    return primary


def contains_merge(primary: Memory, merge: Merge) -> bool:
    """Return whether *primary* still contains the text that *merge* added."""
    return merge.length == 0 or _find_block(primary.content, merge) is not None


def _find_block(content: str, merge: Merge) -> range | None:
    """Return the range of the block that *merge* appended, with its separator. None if it is gone or changed."""
    if merge.length == 0:
        return None
    start = content.rfind(_SEPARATOR)
    while start >= 0:
        begin = start + len(_SEPARATOR)
        stop = begin + merge.length
        is_whole = stop == len(content) or content.startswith(_SEPARATOR, stop)
        if is_whole and _digest(content[begin:stop]) == merge.digest:
            return range(start, stop)
        start = content.rfind(_SEPARATOR, 0, start + len(_SEPARATOR) - 1)
    return None


def _digest(block: str) -> str:
    return blake2b(block.encode(), digest_size=16).hexdigest()
