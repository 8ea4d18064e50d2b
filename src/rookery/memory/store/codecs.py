"""The stored forms of fields of memories and of the records about them, and the fingerprint of a memory."""

from __future__ import annotations

from hashlib import blake2b
from types import NoneType
from typing import Any, cast

import orjson

from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Codec, encode_json
from rookery.memory.authorship import decode_author, encode_author
from rookery.memory.metadata import to_json
from rookery.memory.models import Memory, MemoryFilter, MemoryScope, Metadata, RecallMode
from rookery.memory.recall_models import LoggedRequest, RecallQueryRecord, RecallRequest


def _decode_metadata(text: str | None) -> Metadata:
    return {} if text is None else cast("dict[str, object]", orjson.loads(text))


def _encode_metadata(metadata: Metadata) -> str | None:
    return to_json(metadata).decode() if metadata else None


def _encode_query_record(query_record: RecallQueryRecord) -> str:
    return encode_json((query_record.query, query_record.mode, query_record.semantic_ranks, query_record.keyword_ranks))


def _decode_query_record(text: str) -> RecallQueryRecord:
    query, mode, semantic_ranks, keyword_ranks = cast("tuple[str, RecallMode, list[int | None], list[int | None]]", orjson.loads(text))
    return RecallQueryRecord(query=query, mode=mode, semantic_ranks=tuple(semantic_ranks), keyword_ranks=tuple(keyword_ranks))


_LOGGED_FILTERS = ("org", "project", "agent_id", "session_id", "type", "source", "min_confidence")
_LOGGED_NUMBERS = ("top_k", "mode", "boost", "min_relevance", "max_tokens", "context")


def _encode_logged_request(logged: LoggedRequest) -> str:
    request, filters = logged.request, logged.request.filters
    fields: dict[str, object] = {
        "query": request.query,
        **{name: getattr(request, name) for name in _LOGGED_NUMBERS},
        "keywords": request.keywords,
        **{name: getattr(filters, name) for name in _LOGGED_FILTERS},
        "scopes": None if filters.scopes is None else sorted(filters.scopes),
        "tags": sorted(filters.tags),
        "labels": sorted(filters.labels),
        "since": None if filters.since is None else to_micros(filters.since),
        "until": None if filters.until is None else to_micros(filters.until),
        "key_name": logged.key_name,
        "orgs": None if logged.orgs is None else sorted(logged.orgs),
        "projects": None if logged.projects is None else sorted(logged.projects),
        "is_confident": logged.is_confident,
    }
    return orjson.dumps({name: value for name, value in fields.items() if value is not None}).decode()


def _decode_logged_request(text: str) -> LoggedRequest:
    fields = cast("dict[str, Any]", orjson.loads(text))
    scopes, orgs, projects = fields.get("scopes"), fields.get("orgs"), fields.get("projects")
    since, until = fields.get("since"), fields.get("until")
    values: dict[str, Any] = {name: fields.get(name) for name in _LOGGED_FILTERS}
    filters = MemoryFilter(
        **values,
        scopes=None if scopes is None else frozenset(MemoryScope(name) for name in scopes),
        tags=frozenset(fields["tags"]),
        labels=frozenset(fields["labels"]),
        since=None if since is None else from_micros(since),
        until=None if until is None else from_micros(until),
    )
    values = {name: fields.get(name) for name in _LOGGED_NUMBERS}
    request = RecallRequest(query=fields["query"], filters=filters, keywords=tuple(fields["keywords"]), **values)
    return LoggedRequest(
        request=request,
        key_name=fields["key_name"],
        orgs=None if orgs is None else frozenset(orgs),
        projects=None if projects is None else frozenset(projects),
        is_confident=fields["is_confident"],
    )


def _decode_recall_id(text: str) -> str | None:
    return text or None


def _encode_recall_id(recall_id: str | None) -> str:
    return recall_id or ""


METADATA = Codec((str, NoneType), _decode_metadata, _encode_metadata)
AUTHOR = Codec((str,), decode_author, encode_author)
QUERY_RECORD = Codec((str,), _decode_query_record, _encode_query_record)
LOGGED_REQUEST = Codec((str,), _decode_logged_request, _encode_logged_request)
RECALL_ID = Codec((str, NoneType), _decode_recall_id, _encode_recall_id)


def fingerprint(memory: Memory) -> str:
    """Return a digest that two memories share if they have the same content in the same space."""
    match memory.memory_scope:
        case MemoryScope.AGENT:
            owner = memory.agent_id
        case MemoryScope.SESSION:
            owner = memory.session_id
        case MemoryScope.PROJECT | MemoryScope.SHARED:
            owner = None
    space = (memory.workspace_id, memory.memory_scope.value, memory.org, memory.project, owner, memory.content)
    return blake2b(orjson.dumps(space), digest_size=16).hexdigest()
