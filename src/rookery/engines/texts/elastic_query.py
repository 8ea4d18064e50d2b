"""
Documents and queries of memories as JSON of Elasticsearch and OpenSearch. No I/O.

The field `content` is analysed as `english`. Queries use `words`: the stems from `kernel.tokenization`, so that the
same words are found as in the embedded engine, in every script. `rookery.memory.visibility` defines who may read a document, and tests
compare both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rookery.engines.texts.words import CONTEXT_WEIGHT, describe_context, stem_query, stem_text
from rookery.kernel.clock import format_iso, to_micros
from rookery.kernel.languages import to_stem_terms
from rookery.kernel.tokenization import to_index_text
from rookery.memory.models import AccessFilter, IndexDocument, MemoryScope, TextQuery

Json: TypeAlias = Mapping[str, object]

_ORG_OPTIONAL_SCOPES = (MemoryScope.AGENT, MemoryScope.SESSION)
_PROJECT_OPTIONAL_SCOPES = (MemoryScope.SHARED, *_ORG_OPTIONAL_SCOPES)

_KEYWORD: Json = {"type": "keyword"}
_MICROS: Json = {"type": "long"}
_WORDS: Json = {"type": "text", "analyzer": "whitespace"}

MAPPINGS: Json = {
    "dynamic": "strict",
    "properties": {
        "id": _KEYWORD,
        "workspace_id": {"type": "long"},
        "org": _KEYWORD,
        "project": _KEYWORD,
        "type": _KEYWORD,
        "agent_id": _KEYWORD,
        "session_id": _KEYWORD,
        "memory_scope": _KEYWORD,
        "tags": _KEYWORD,
        "labels": _KEYWORD,
        "confidence": {"type": "double"},
        "content": {"type": "text", "analyzer": "english"},
        "words": _WORDS,
        "context": _WORDS,
        "language_stems": _WORDS,
        "source": _KEYWORD,
        "created_at": {"type": "date"},
        "created_at_us": _MICROS,
        "updated_at_us": _MICROS,
        "expires_at_us": _MICROS,
    },
}
"""The fields of a memory, and those that queries need besides. Dates have no microseconds there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticQuery:
    """
    A query as JSON.

    Attributes:
        filters: What a readable document must match.
        matching: The whole query, with *filters* and the words.
        words: A query for each word in all of its forms, by the name that a hit gives for it.
    """

    filters: Sequence[Json]
    matching: Json
    words: Mapping[str, Json]


def document_key(workspace_id: int, memory_id: str) -> str:
    return f"{workspace_id}:{memory_id}"


def to_memory_id(key: str) -> str:
    return key.partition(":")[2]


def render_document(document: IndexDocument) -> Json:
    """Return the stored fields of a document. A field without a value is left out."""
    fields: dict[str, object] = {
        "id": document.memory_id,
        "workspace_id": document.workspace_id,
        "org": document.org,
        "project": document.project,
        "type": document.type,
        "agent_id": document.agent_id,
        "session_id": document.session_id,
        "memory_scope": document.memory_scope.value,
        "tags": list(document.tags),
        "labels": sorted(document.labels),
        "confidence": document.confidence,
        "content": document.content,
        "words": " ".join(stem_text(to_index_text(document.content))),
        "context": " ".join(stem_text(to_index_text(describe_context(document)))),
        "language_stems": " ".join(to_stem_terms(document.content)),
        "source": document.source,
        "created_at": format_iso(document.created_at),
        "created_at_us": to_micros(document.created_at),
        "updated_at_us": to_micros(document.updated_at),
        "expires_at_us": None if document.expires_at is None else to_micros(document.expires_at),
    }
    return {name: value for name, value in fields.items() if value not in (None, [])}


def build_query(query: TextQuery, access_filter: AccessFilter) -> ElasticQuery | None:
    """Return *query* as JSON; None if nothing can match."""
    filters, stemmed = build_filters(access_filter), stem_query(query)
    if filters is None or stemmed is None:
        return None
    words = {
        f"word {number}": _match_word(stems, stemmed.stem_terms.get(word, ())) for number, (word, stems) in enumerate(stemmed.words.items())
    }
    excluded = [_match_stems("words", stems) for stems in stemmed.excluded]
    named_words = [{"dis_max": {"queries": [word], "_name": name}} for name, word in words.items()]
    required: list[Json] = [_match_stems("words", phrase) for phrase in stemmed.phrases]
    optional: list[Json] = [_match_stems("words", pair) for pair in stemmed.pairs]
    if stemmed.phrases:
        optional += named_words
    else:
        required.append({"bool": {"should": named_words, "minimum_should_match": 1}})
    matching = {"bool": {"filter": filters, "must": required, "should": optional, "must_not": excluded}}
    return ElasticQuery(filters=filters, matching=matching, words=words)


def build_filters(access_filter: AccessFilter) -> list[Json] | None:
    """Return what a readable document must match; None if there can be none."""
    owners = list(_iter_owners(access_filter))
    if not owners:
        return None
    filters: list[Json] = [{"term": {"workspace_id": access_filter.workspace_id}}, _any_of(owners)]
    filters.append({"bool": {"must_not": {"range": {"expires_at_us": {"lte": to_micros(access_filter.at)}}}}})
    for field, name, allowed, scopes in (
        ("org", access_filter.org, access_filter.orgs, _ORG_OPTIONAL_SCOPES),
        ("project", access_filter.project, access_filter.projects, _PROJECT_OPTIONAL_SCOPES),
    ):
        if name is not None or allowed is not None:
            names = ({name} if allowed is None else set(allowed) if name is None else {name} & set(allowed)) - {None}
            filters.append(_match_names(field, sorted(map(str, names)), scopes))
    filters += [{"term": {field: value}} for field, value in _iter_terms(access_filter)]
    ranges: dict[str, dict[str, object]] = {}
    if access_filter.since is not None:
        ranges.setdefault("created_at_us", {})["gte"] = to_micros(access_filter.since)
    if access_filter.until is not None:
        ranges.setdefault("created_at_us", {})["lt"] = to_micros(access_filter.until)
    if access_filter.min_confidence is not None:
        ranges["confidence"] = {"gte": access_filter.min_confidence}
    return filters + [{"range": {field: limits}} for field, limits in ranges.items()]


def _iter_owners(access_filter: AccessFilter) -> Iterator[Json]:
    agent_ids = [] if access_filter.agent_id is None else [access_filter.agent_id]
    owners = {MemoryScope.AGENT: ("agent_id", agent_ids), MemoryScope.SESSION: ("session_id", sorted(access_filter.session_ids))}
    for scope in MemoryScope:
        if access_filter.scopes is not None and scope not in access_filter.scopes:
            continue
        scope_term: Json = {"term": {"memory_scope": scope.value}}
        if scope not in owners:
            yield scope_term
        elif owners[scope][1]:
            field, owner_ids = owners[scope]
            yield {"bool": {"filter": [scope_term, {"terms": {field: owner_ids}}]}}


def _iter_terms(access_filter: AccessFilter) -> Iterator[tuple[str, str]]:
    if access_filter.type is not None:
        yield "type", access_filter.type
    if access_filter.source is not None:
        yield "source", access_filter.source
    yield from (("tags", tag) for tag in sorted(access_filter.tags))
    yield from (("labels", label) for label in sorted(access_filter.labels))


def _match_names(field: str, names: Sequence[str], optional_scopes: Sequence[MemoryScope]) -> Json:
    without_name: Json = {
        "bool": {
            "filter": {"terms": {"memory_scope": [scope.value for scope in optional_scopes]}},
            "must_not": {"exists": {"field": field}},
        }
    }
    return _any_of([{"terms": {field: names}}, without_name])


def _any_of(queries: Sequence[Json]) -> Json:
    return {"bool": {"should": queries, "minimum_should_match": 1}}


def _match_word(stems: Sequence[str], stem_terms: Sequence[str]) -> Json:
    """Return the query for a word: in the text, with a lower weight in its context, or in another form of its language."""
    forms = [_match_stems("words", stems), _match_stems("context", stems, boost=CONTEXT_WEIGHT)]
    forms += [_match_stems("language_stems", [term], boost=CONTEXT_WEIGHT) for term in stem_terms]
    return {"dis_max": {"queries": forms}}


def _match_stems(field: str, stems: Sequence[str], *, boost: float = 1.0) -> Json:
    """Return the query for adjacent *stems*."""
    if len(stems) == 1:
        return {"term": {field: {"value": stems[0], "boost": boost}}}
    return {"match_phrase": {field: {"query": " ".join(stems), "boost": boost}}}
