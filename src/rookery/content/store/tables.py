"""
The tables of content generation, and the mappers of their rows.

`migrations/versions/0026_content.py` and the later ones that name generations create the same tables.
"""

from __future__ import annotations

from types import NoneType
from typing import cast

import orjson
from sqlalchemy import BigInteger, Column, Double, Index, Table, Text

from rookery.content.chat import ChatMessage
from rookery.content.models import (
    BudgetOverride,
    CallReservation,
    CostOverrun,
    Generation,
    GenerationBatch,
    GenerationSummary,
    PromptTemplate,
    Spending,
    messages_to_json,
)
from rookery.kernel.db import Codec, Mapper, Value, encode_json, metadata
from rookery.kernel.template_variables import TemplateValue, TemplateVariable


def _decode_messages(text: str) -> tuple[ChatMessage, ...]:
    return tuple(ChatMessage(**fields) for fields in orjson.loads(text))


def _encode_messages(messages: tuple[ChatMessage, ...]) -> Value:
    return orjson.dumps(messages_to_json(messages)).decode()


def _decode_variables(text: str) -> dict[str, TemplateVariable]:
    documents = cast("dict[str, dict[str, object]]", orjson.loads(text))
    return {name: _decode_variable(document) for name, document in documents.items()}


def _decode_variable(document: dict[str, object]) -> TemplateVariable:
    enum = cast("list[TemplateValue] | None", document.get("enum"))
    return TemplateVariable(**{**document, "enum": None if enum is None else tuple(enum)})  # pyright: ignore[reportArgumentType] - as it was stored


def _encode_json(value: object) -> Value:
    return None if value is None else orjson.dumps(value).decode()


def _decode_json(text: str | None) -> object:
    return None if text is None else orjson.loads(text)


_MESSAGES = Codec((str,), _decode_messages, _encode_messages)
_JSON = Codec((str, NoneType), _decode_json, _encode_json)
_VARIABLES = Codec((str,), _decode_variables, encode_json)

generations = Table(
    "generations",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("mode", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("is_canned", BigInteger, nullable=False),
    Column("batch_id", Text),
    Column("batch_index", BigInteger),
    Column("retry_of", Text),
    Column("model", Text, nullable=False),
    Column("provider_model", Text),
    Column("template", Text),
    Column("template_version", BigInteger),
    Column("messages", Text, nullable=False),
    Column("max_tokens", BigInteger, nullable=False),
    Column("temperature", Double),
    Column("response_schema", Text),
    Column("metadata", Text, nullable=False),
    Column("output", Text),
    Column("reasoning", Text),
    Column("wants_score", BigInteger, nullable=False, server_default="0"),
    Column("score", Text),
    Column("schema_mode", Text),
    Column("finish_reason", Text),
    Column("input_tokens", BigInteger),
    Column("output_tokens", BigInteger),
    Column("reasoning_tokens", BigInteger, nullable=False, server_default="0"),
    Column("cached_tokens", BigInteger, nullable=False, server_default="0"),
    Column("is_estimated", BigInteger, nullable=False),
    Column("cost_nanos", BigInteger),
    Column("currency", Text),
    Column("reserved_nanos", BigInteger, nullable=False),
    Column("reserved_on", Text),
    Column("attempts", BigInteger, nullable=False),
    Column("run_count", BigInteger, nullable=False),
    Column("error_code", Text),
    Column("error_message", Text),
    Column("latency_ms", Double),
    Column("owner", Text),
    Column("lease_until", BigInteger),
    Column("created_at", BigInteger, nullable=False),
    Column("started_at", BigInteger),
    Column("ended_at", BigInteger),
    Index("ix_generations_newest", "workspace_id", "created_at", "id"),
    Index("ix_generations_batch", "batch_id", "batch_index"),
    Index("ix_generations_ended_at", "ended_at"),
)
GENERATIONS = Mapper(Generation, generations, codecs={"messages": _MESSAGES, "response_schema": _JSON, "score": _JSON})
SUMMARIES = Mapper(GenerationSummary, generations)
_is_owned = generations.c.owner.is_not(None)
Index("ix_generations_lease", generations.c.lease_until, sqlite_where=_is_owned)

batches = Table(
    "generation_batches",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("total", BigInteger, nullable=False),
    Column("open_count", BigInteger, nullable=False),
    Column("metadata", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Index("ix_generation_batches_newest", "workspace_id", "created_at", "id"),
    Index("ix_generation_batches_ended_at", "ended_at"),
)
BATCHES = Mapper(GenerationBatch, batches)

templates = Table(
    "prompt_templates",
    metadata,
    Column("workspace_id", BigInteger, primary_key=True, autoincrement=False),
    Column("slug", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
)
template_versions = Table(
    "prompt_template_versions",
    metadata,
    Column("workspace_id", BigInteger, primary_key=True, autoincrement=False),
    Column("slug", Text, primary_key=True),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("variables", Text, nullable=False),
    Column("messages", Text, nullable=False),
    Column("model", Text),
    Column("max_tokens", BigInteger),
    Column("temperature", Double),
    Column("response_schema", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
)
TEMPLATES = Mapper(PromptTemplate, template_versions, codecs={"messages": _MESSAGES, "response_schema": _JSON, "variables": _VARIABLES})
"""A version has the time at which its template was created, and that of the version itself as `updated_at`."""


budgets = Table(
    "budget_limits",
    metadata,
    Column("workspace_id", BigInteger, primary_key=True, autoincrement=False),
    Column("holder", Text, primary_key=True),
    Column("period", Text, primary_key=True),
    Column("limit_nanos", BigInteger),
    Column("updated_at", BigInteger, nullable=False),
)
BUDGETS = Mapper(BudgetOverride, budgets)

spending = Table(
    "budget_spending",
    metadata,
    Column("workspace_id", BigInteger, primary_key=True, autoincrement=False),
    Column("holder", Text, primary_key=True),
    Column("span", Text, primary_key=True),
    Column("reserved_nanos", BigInteger, nullable=False),
    Column("spent_nanos", BigInteger, nullable=False),
)
SPENDING = Mapper(Spending, spending)

overruns = Table(
    "cost_overruns",
    metadata,
    Column("workspace_id", BigInteger, primary_key=True, autoincrement=False),
    Column("model", Text, primary_key=True),
    Column("factor_millis", BigInteger, nullable=False),
    Column("extra_nanos", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
)
OVERRUNS = Mapper(CostOverrun, overruns)

reservations = Table(
    "content_reservations",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("day", Text, nullable=False),
    Column("amount_nanos", BigInteger, nullable=False),
    Column("owner", Text, nullable=False),
    Column("lease_until", BigInteger, nullable=False),
    Index("ix_content_reservations_lease_until", "lease_until"),
)
RESERVATIONS = Mapper(CallReservation, reservations)
