"""
Changes of an imported memory's owner, project and tags: `user:bo=agent:bo`, `ns:memories.*=project:*`.

Other programs have users, agents, namespaces and groups that Rookery has no field for. They are imported as tags, `user:bo`, and a mapping
moves them into a field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rookery.memory.models import Memory, MemoryScope

_FIELDS: Mapping[str, str] = {"org": "org", "project": "project", "agent": "agent_id", "session": "session_id"}
_SCOPES = {"agent": MemoryScope.AGENT, "session": MemoryScope.SESSION}
_TAG = "tag"
_ANY = "*"


@dataclass(frozen=True, slots=True)
class _Label:
    """A kind and a name, such as `user` and `bo`. A name that ends in * stands for all that begin like it."""

    kind: str
    name: str

    def match(self, name: str) -> str | None:
        """Return what * stands for in *name*, an empty text if there is no *. None if it does not match."""
        if self.name.endswith(_ANY):
            start = self.name[:-1]
            return name[len(start) :] if name.lower().startswith(start.lower()) and len(name) > len(start) else None
        return "" if name.lower() == self.name.lower() else None

    def fill(self, rest: str) -> str:
        """Return the name with *rest* instead of *."""
        return self.name[:-1] + rest if self.name.endswith(_ANY) else self.name


@dataclass(frozen=True, slots=True)
class LabelMapping:
    """A change of one label into another. The first kind is a field or the beginning of a tag; `tag:x` is the tag x itself."""

    source: _Label
    target: _Label

    def apply_to(self, memory: Memory) -> Memory:
        """Return *memory* with the target instead of the source, unchanged if it has no such label."""
        field = _FIELDS.get(self.source.kind)
        value = None if field is None else getattr(memory, field)
        rest = None if value is None else self.source.match(value)
        if field is not None and rest is not None:
            # A memory of an agent or session that has none is one of its project.
            scope = MemoryScope.PROJECT if memory.memory_scope is _SCOPES.get(self.source.kind) else memory.memory_scope
            return self._set(replace(memory, memory_scope=scope, **{field: None}), rest)
        prefix = "" if self.source.kind == _TAG else f"{self.source.kind}:"
        for tag in memory.tags:
            rest = self.source.match(tag[len(prefix) :]) if tag.startswith(prefix.lower()) else None
            if rest is not None:
                return self._set(replace(memory, tags=tuple(other for other in memory.tags if other != tag)), rest)
        return memory

    def _set(self, memory: Memory, rest: str) -> Memory:
        name, kind = self.target.fill(rest), self.target.kind
        field = _FIELDS.get(kind)
        if field is None:
            tag = (name if kind == _TAG else f"{kind}:{name}").lower()
            return replace(memory, tags=tuple(dict.fromkeys((*memory.tags, tag))))
        is_of_project = memory.memory_scope is MemoryScope.PROJECT
        return replace(
            memory, memory_scope=_SCOPES.get(kind, memory.memory_scope) if is_of_project else memory.memory_scope, **{field: name}
        )


def parse_mapping(text: str) -> LabelMapping:
    """
    Return the mapping of a text such as `user:bo=agent:bo`.

    Raises:
        ValueError: It does not have this form.
    """
    parts = [part.partition(":") for part in text.split("=")]
    if len(parts) != 2 or not all(kind.strip() and name.strip() for kind, _, name in parts):
        msg = f"{text!r} is not a mapping; write KIND:NAME=KIND:NAME, such as user:bo=agent:bo or user:*=agent:*"
        raise ValueError(msg)
    source, target = (_Label(kind.strip().lower(), name.strip()) for kind, _, name in parts)
    if target.name.endswith(_ANY) and not source.name.endswith(_ANY):
        msg = f"{text!r} has a * after the = but none before it"
        raise ValueError(msg)
    return LabelMapping(source, target)
