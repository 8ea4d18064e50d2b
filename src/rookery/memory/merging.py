"""What becomes of the words when memories that say the same are made one, and how it is undone (spec 4.4, D-52). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import blake2b

from rookery.memory.models import Memory

MAX_CONTENT_CHARS = 50_000
MAX_TAGS = 100
"""As `remember` takes (D-40): what is merged must be storable again."""

_SEPARATOR = "\n\n"
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_WHITE_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """
    That a memory is, or is about to be, merged into another.

    Attributes:
        run: Of which run of the command.
        seen_at: The `updated_at` of the memory that was merged: what was changed since is not what was merged.
        length: Of what was appended to the primary, in characters, and its *digest*; 0: nothing was.
        tags: Those that the primary had not.
        is_done: The merged memory is archived; else the primary has its words, and is still to be verified.
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
    """Return the key that sorts the one to keep first: highest confidence, then oldest, then id."""
    return -memory.confidence, memory.created_at, memory.id


def space_key(memory: Memory) -> tuple[object, ...]:
    """Return what memories that may become one have in common (D-52)."""
    scope = memory.memory_scope
    return memory.workspace_id, memory.org, memory.project, scope, memory.agent_id, memory.session_id, memory.type


def merge_memories(primary: Memory, others: Sequence[Memory], *, run: str) -> tuple[Memory, list[Merge]]:
    """
    Return *primary* with what the *others* say beyond it appended, and what was done of each.

    One whose words find no room is left out.
    """
    content, tags = primary.content, primary.tags
    merges = list[Merge]()
    for other in others:
        block = extract_new_sentences(content, other.content)
        fresh = tuple(tag for tag in other.tags if tag not in tags)
        if len(content) + len(_SEPARATOR) + len(block) > MAX_CONTENT_CHARS or len(tags) + len(fresh) > MAX_TAGS:
            continue
        content, tags = content + _SEPARATOR + block if block else content, tags + fresh
        merges.append(
            Merge(
                memory_id=other.id,
                workspace_id=primary.workspace_id,
                primary_id=primary.id,
                run=run,
                seen_at=other.updated_at,
                length=len(block),
                digest=_digest(block),
                tags=fresh,
            )
        )
    return replace(primary, content=content, tags=tags), merges


def remove_merged_text(primary: Memory, merges: Iterable[Merge]) -> Memory:
    """Return *primary* without what *merges* brought it; what was changed there since stays."""
    for merge in merges:
        place = _find_block(primary.content, merge)
        content = primary.content if place is None else primary.content[: place.start] + primary.content[place.stop :]
        primary = replace(primary, content=content, tags=tuple(tag for tag in primary.tags if tag not in merge.tags))
    return primary


def contains_merge(primary: Memory, merge: Merge) -> bool:
    """Tell whether *primary* still has the words that *merge* brought it."""
    return merge.length == 0 or _find_block(primary.content, merge) is not None


def extract_new_sentences(content: str, other: str) -> str:
    """Return the sentences of *other* that *content* has not, line by line; case and white space make no difference."""
    known = {_normalize_sentence(piece) for piece in _split_sentences(content)}
    lines = list[str]()
    for line in other.splitlines():
        fresh = list[str]()
        for piece in _SENTENCE_END.split(line):
            plain = _normalize_sentence(piece)
            if plain and plain not in known:
                known.add(plain)
                fresh.append(piece)
        if fresh:
            lines.append(" ".join(fresh))
    return "\n".join(lines).strip()


def _find_block(content: str, merge: Merge) -> range | None:
    """Return where the block that *merge* appended stands, with the gap before it; None: nowhere as it was."""
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


def _split_sentences(content: str) -> Iterable[str]:
    for line in content.splitlines():
        yield from _SENTENCE_END.split(line)


def _normalize_sentence(piece: str) -> str:
    return _WHITE_SPACE.sub(" ", piece).strip().rstrip(".!?").casefold()


def _digest(block: str) -> str:
    return blake2b(block.encode(), digest_size=16).hexdigest()
