"""Memory blocks of Letta's agent files (.af). Each block that is not empty becomes a memory of its agent. Messages are no memories."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from rookery.memory.models import MemoryScope
from rookery.memory.transfer.items import ImportedMemory, ImportItem
from rookery.memory.transfer.lenient import LenientReader, require_text
from rookery.memory.transfer.sources.source import (
    ForeignMemory,
    MemorySource,
    SourceContext,
    SourceEntry,
    has_keys,
    new_foreign_memory,
    read_each,
    to_imported,
    to_mapping,
    to_objects,
    with_id,
)

NAME = "letta"


def _find_entries(document: object) -> Sequence[object] | None:
    """Return the blocks, each with the first agent that has it and the time of the file."""
    if not has_keys(document, "agents", "blocks"):
        return None
    values = cast("dict[str, object]", document)
    blocks, agents = to_objects(values["blocks"]), to_objects(values["agents"])
    if blocks is None or agents is None:
        return None
    names = dict[str, object]()
    for agent in map(to_mapping, agents):
        for block_id in to_objects(agent.get("block_ids")) or []:
            names.setdefault(str(block_id), agent.get("name"))
    only_agent = to_mapping(agents[0]).get("name") if len(agents) == 1 else None
    return [
        {**block, "agent": names.get(str(block.get("id")), only_agent), "file_created_at": values.get("created_at")}
        for block in map(to_mapping, blocks)
    ]


def _read_entries(entries: Iterable[SourceEntry], context: SourceContext) -> Iterator[ImportItem]:
    def parse(row: LenientReader, values: Mapping[str, object], location: str) -> Iterator[ImportedMemory]:
        if str(values.get("value") or "").strip():
            yield _parse(row, values, location, context)

    return read_each(entries, context, parse)


def _parse(row: LenientReader, values: Mapping[str, object], location: str, context: SourceContext) -> ImportedMemory:
    label, agent, block_id = row.name("label"), row.name("agent"), row.name("id") or location
    at = row.maybe_moment("updated_at") or row.maybe_moment("created_at") or row.maybe_moment("file_created_at") or context.default_time
    description = row.name("description")
    memory = new_foreign_memory(
        content=require_text(values.get("value"), "value"),
        type="fact",
        tags=(label,) if label else (),
        agent_id=agent,
        memory_scope=MemoryScope.PROJECT if agent is None else MemoryScope.AGENT,
        metadata=with_id({"description": description} if description else {}, "letta_id", block_id),
        source=NAME,
        at=at,
    )
    return to_imported(
        ForeignMemory(memory=memory, default_type="fact", identity=(agent or "", label or "", block_id)), NAME, context.warn_at(location)
    )


SOURCES = (MemorySource(name=NAME, title="an agent file of Letta", find_entries=_find_entries, read_entries=_read_entries),)
