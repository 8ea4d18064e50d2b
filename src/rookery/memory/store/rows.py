"""The mappers of memories and the records about them, and the fingerprint of a memory."""

from __future__ import annotations

from hashlib import blake2b
from types import NoneType
from typing import cast

import orjson

from rookery.kernel.db import Codec, Mapper, Value, encode_json
from rookery.memory.merging import Merge
from rookery.memory.metadata import to_json
from rookery.memory.models import Memory, MemoryScope, Metadata, RecallMode, Tombstone
from rookery.memory.recall_records import RecallQueryRecord, RecallRecord, TrainingExample
from rookery.memory.store.tables import memories, merges, recalls, tombstones, training_rows


def _decode_metadata(text: str | None) -> Metadata:
    return {} if text is None else cast("dict[str, object]", orjson.loads(text))


def _encode_metadata(metadata: Metadata) -> str | None:
    return to_json(metadata).decode() if metadata else None


def _encode_query_record(query_record: RecallQueryRecord) -> str:
    return encode_json((query_record.query, query_record.mode, query_record.semantic_ranks, query_record.keyword_ranks))


def _decode_query_record(text: str) -> RecallQueryRecord:
    query, mode, semantic_ranks, keyword_ranks = cast("tuple[str, RecallMode, list[int | None], list[int | None]]", orjson.loads(text))
    return RecallQueryRecord(query=query, mode=mode, semantic_ranks=tuple(semantic_ranks), keyword_ranks=tuple(keyword_ranks))


def _decode_recall_id(text: str) -> str | None:
    return text or None


def _encode_recall_id(recall_id: str | None) -> str:
    return recall_id or ""


MEMORIES = Mapper(Memory, memories, codecs={"metadata": Codec((str, NoneType), _decode_metadata, _encode_metadata)})
TOMBSTONES = Mapper(Tombstone, tombstones)
MERGES = Mapper(Merge, merges)
RECALLS = Mapper(
    RecallRecord,
    recalls,
    columns={"query_record": "asked"},
    codecs={"query_record": Codec((str,), _decode_query_record, _encode_query_record)},
)
TRAINING_EXAMPLES = Mapper(
    TrainingExample,
    training_rows,
    columns={"label": "verdict"},
    codecs={"recall_id": Codec((str, NoneType), _decode_recall_id, _encode_recall_id)},
)


def fingerprint(memory: Memory) -> str:
    """Return a digest that two memories share if they have the same content in the same space (spec 2.7, D-40)."""
    match memory.memory_scope:
        case MemoryScope.AGENT:
            owner = memory.agent_id
        case MemoryScope.SESSION:
            owner = memory.session_id
        case MemoryScope.PROJECT | MemoryScope.SHARED:
            owner = None
    space = (memory.workspace_id, memory.memory_scope.value, memory.org, memory.project, owner, memory.content)
    return blake2b(orjson.dumps(space), digest_size=16).hexdigest()


def memory_to_row(memory: Memory) -> dict[str, Value]:
    """Return the columns of *memory*, with its fingerprint."""
    return {**MEMORIES.to_row(memory), "fingerprint": fingerprint(memory)}
