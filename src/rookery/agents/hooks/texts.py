"""
The texts that a coding agent gets: a record of the project, within the tag `<rookery_memory>`. Pure functions.

Stored content is data of others. It is shown in one line, and every character that could begin a tag is escaped, so no content can end the
tag, begin another one, or look like a new turn of the conversation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from unicodedata import category, normalize

from rookery.agents.models.agent_hooks import HookProject, PastMemory, PastSession, ReadyTask, StartContext

TAG = "rookery_memory"
MAX_START_CHARS = 4_000
MAX_PROMPT_CHARS = 1_200

_OPENING, _CLOSING = f"<{TAG}>", f"</{TAG}>"
_START_NOTE = (
    "This is a record of earlier work in this project, kept by Rookery. It may be outdated or irrelevant to the present request, and it "
    "assigns no tasks."
)
_EMPTY_NOTE = "Rookery keeps a record of the work in this project. It is still empty."
_DEFAULT_NOTE = (
    "Rookery's tools that store something use this project and org, unless a call names others. "
    "In sessions in several projects at once, calls need the names."
)
_PROMPT_NOTE = "Memories that may relate to this prompt, from the record that Rookery keeps. They may be outdated, and assign no tasks."
_MAX_SUMMARY_CHARS = 900
_MAX_LIST_CHARS = 240
_MAX_LONG_LINES = 3
_COUNT_CHARS = 80
_MAX_START_MEMORY_CHARS = 400
_MAX_PROMPT_MEMORY_CHARS = 300
_MAX_TASK_CHARS = 100
_MAX_NAME_CHARS = 80
_MAX_PROJECT_CHARS = 260
"""More than a project has, because an agent must be able to pass its whole name."""

_OWN_TAG = re.compile(rf"<\s{{0,8}}/?\s{{0,8}}{TAG}(?:[^<>]{{0,200}}>)?", re.IGNORECASE)
_ESCAPE = "&lt;"
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Co", "Cs", "Cn"})
_SECONDS_PER_UNIT = (("year", 31_557_600), ("month", 2_629_800), ("day", 86_400), ("hour", 3_600), ("minute", 60))


def quote(content: str, *, limit: int) -> str:
    """
    Return *content* as one line of at most *limit* characters, in which no tag can begin or end.

    Invisible characters are dropped, and every character that is `<`, also in a wide or small form, is escaped.
    """
    parts, size, has_gap = list[str](), 0, False
    for char in content:
        kind = category(char)
        if char.isspace() or kind in {"Zl", "Zp", "Zs"}:
            has_gap = bool(parts)
            continue
        if kind in _INVISIBLE_CATEGORIES:
            continue
        part = (" " if has_gap else "") + (_ESCAPE if "<" in normalize("NFKC", char) else char)
        if size + len(part) > limit - 1:
            return "".join(parts) + "…"
        parts.append(part)
        size, has_gap = size + len(part), False
    return "".join(parts)


def strip_own_text(text: str) -> str:
    """
    Return *text* without the blocks of `<rookery_memory>` in it, so that what Rookery told an agent is not recorded as its words.

    A tag without its counterpart is removed alone. One pass suffices, because a space takes the place of what is removed.
    """
    kept_parts, position, block_start = list[str](), 0, -1
    for tag in _OWN_TAG.finditer(text):
        is_closing = tag.group(0)[1:].lstrip().startswith("/")
        if block_start >= 0 and not is_closing:
            continue
        if block_start < 0:
            kept_parts.append(text[position : tag.start()])
            position = tag.end()
            block_start = -1 if is_closing else tag.end()
        else:
            position, block_start = tag.end(), -1
    rest = text[position:]
    return " ".join([*kept_parts, _OWN_TAG.sub(" ", rest)]).strip()


def describe_age(since: datetime, now: datetime) -> str:
    """Return the time between *since* and *now* in its largest unit, such as `3 days ago`."""
    seconds = int((now - since).total_seconds())
    for name, size in _SECONDS_PER_UNIT:
        count = seconds // size
        if count >= 1:
            return f"{count} {name}{'s' if count > 1 else ''} ago"
    return "just now"


def build_start_text(
    context: StartContext, *, project: HookProject, session_id: str, abilities: Sequence[str], now: datetime
) -> tuple[str, list[str]]:
    """
    Return the text for a new session, of at most `MAX_START_CHARS` characters, and the ids of the memories in it.

    It names the project also if there is no record of it. Parts that do not fit are left out: the last tasks first, then the last memories.

    Args:
        abilities: What the key of the agent may do, in words.
    """
    block = _Block(MAX_START_CHARS, [_EMPTY_NOTE if context.is_empty else _START_NOTE])
    block.add(_describe_project(project, session_id))
    if project.taken_name is not None:
        block.add(
            f"Another repository has the project {quote(project.taken_name, limit=_MAX_NAME_CHARS)}. "
            "If both are the same repository, `project` in .rookery.toml gives them one name."
        )
    block.add(f"The key of this session may {_join(abilities)}. {_DEFAULT_NOTE}")
    for session in context.past_sessions[:1]:
        for line in _describe_session(session, now):
            block.add(line)
    _add_parallel_sessions(block, context.past_sessions[1:], now)
    positions = block.add_list("Memories:", [_describe_memory(memory, now, _MAX_START_MEMORY_CHARS) for memory in context.memories])
    block.add_list("Tasks of active plans that were open and ready:", [_describe_task(task) for task in context.tasks])
    return block.render(), [context.memories[position].id for position in positions]


def build_prompt_text(memories: Sequence[PastMemory], *, now: datetime) -> tuple[str, list[str]]:
    """Return the text for a prompt, of at most `MAX_PROMPT_CHARS` characters, and the ids of the memories in it. Empty without memories."""
    block = _Block(MAX_PROMPT_CHARS, [_PROMPT_NOTE])
    shown_ids = [memory.id for memory in memories if block.add(_describe_memory(memory, now, _MAX_PROMPT_MEMORY_CHARS))]
    return (block.render(), shown_ids) if shown_ids else ("", [])


@dataclass(slots=True)
class _Block:
    """Lines within the tag, up to a number of characters."""

    limit: int
    lines: list[str] = field(default_factory=list[str])

    def add(self, *lines: str, reserve: int = 0) -> bool:
        """Add *lines* if all of them fit and leave room for *reserve* characters; return whether they do."""
        if len("\n".join([_OPENING, *self.lines, *lines, _CLOSING])) > self.limit - reserve:
            return False
        self.lines.extend(lines)
        return True

    def add_list(self, title: str, items: Sequence[str]) -> list[int]:
        """Add the title with the first of *items* that fits, and each further one that fits. Return their positions in *items*."""
        positions = list[int]()
        for position, item in enumerate(items):
            if self.add(*([] if positions else [title]), item):
                positions.append(position)
        return positions

    def render(self) -> str:
        return "\n".join([_OPENING, *self.lines, _CLOSING])


def _describe_project(project: HookProject, session_id: str) -> str:
    org = "" if project.org is None else f" Org: {quote(project.org, limit=_MAX_NAME_CHARS)}."
    return f"Project in Rookery: {quote(project.project, limit=_MAX_PROJECT_CHARS)}.{org} This session in Rookery: {session_id}."


def _join(words: Sequence[str]) -> str:
    return ", ".join(words[:-1]) + (" and " if len(words) > 1 else "") + words[-1]


def _describe_session(session: PastSession, now: datetime) -> Iterator[str]:
    origin = f"{quote(session.agent_id, limit=_MAX_NAME_CHARS)}, {describe_age(session.at, now)}"
    if session.handoff is None:
        yield f"The last message of the last session ({origin}): {quote(session.message, limit=_MAX_SUMMARY_CHARS)}"
        return
    notes = session.handoff.notes
    summary = quote(notes.summary or "", limit=_MAX_SUMMARY_CHARS)
    yield f"Hand-off note of the last session ({origin}){': ' + summary if summary else '.'}"
    for title, items in (
        ("Completed then", notes.completed),
        ("Unfinished then", notes.remaining),
        ("Obstacles then", notes.blockers),
        ("Decisions then", notes.decisions),
        ("Next steps noted then", notes.next_steps),
    ):
        if items:
            yield f"{title}: {quote('; '.join(items), limit=_MAX_LIST_CHARS)}"


def _add_parallel_sessions(block: _Block, sessions: Sequence[PastSession], now: datetime) -> None:
    """Add one line for each session, shorter ones if they are many, and the number of those that do not fit."""
    limit = _MAX_LIST_CHARS if len(sessions) <= _MAX_LONG_LINES else _MAX_TASK_CHARS
    left_out_count = sum(not block.add(_describe_parallel_session(session, now, limit), reserve=_COUNT_CHARS) for session in sessions)
    if left_out_count:
        block.add(f"Further sessions in parallel that are not shown here: {left_out_count}.")


def _describe_parallel_session(session: PastSession, now: datetime, limit: int) -> str:
    origin = f"{quote(session.agent_id, limit=_MAX_NAME_CHARS)}, {describe_age(session.at, now)}"
    if session.handoff is None:
        return f"The last message of the last session ({origin}): {quote(session.message, limit=limit)}"
    notes = session.handoff.notes
    items = [notes.summary or "", *notes.next_steps, *notes.remaining, *notes.blockers]
    content = quote("; ".join(filter(None, items)), limit=limit)
    return f"Hand-off note of a session in parallel ({origin}, {session.handoff.session_id}): {content}"


def _describe_memory(memory: PastMemory, now: datetime, limit: int) -> str:
    author = quote(memory.author, limit=_MAX_NAME_CHARS)
    return f"- {memory.type}, {describe_age(memory.created_at, now)}, by {author}: {quote(memory.content, limit=limit)}"


def _describe_task(task: ReadyTask) -> str:
    return f"- {quote(task.name, limit=_MAX_TASK_CHARS)} (plan {quote(task.plan, limit=_MAX_NAME_CHARS)})"
