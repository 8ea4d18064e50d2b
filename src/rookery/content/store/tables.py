"""The tables of content generation, and the mappers of their rows."""

from __future__ import annotations

from types import NoneType
from typing import cast

import orjson
from sqlalchemy import BigInteger, Column, Index, Table, Text

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
)
from rookery.kernel.db import Codec, Value, WorkspaceTable, encode_json, map_table, metadata
from rookery.kernel.placeholders import TemplateValue, TemplateVariable


def _decode_messages(text: str) -> tuple[ChatMessage, ...]:
    return tuple(ChatMessage(**fields) for fields in orjson.loads(text))


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


_MESSAGES = Codec((str,), _decode_messages, encode_json)
_JSON = Codec((str, NoneType), _decode_json, _encode_json)
_VARIABLES = Codec((str,), _decode_variables, encode_json)

generations, GENERATIONS = map_table(
    "generations",
    Generation,
    Index("ix_generations_newest", "workspace_id", "created_at", "id"),
    Index("ix_generations_batch", "batch_id", "batch_index"),
    Index("ix_generations_ended_at", "ended_at"),
    codecs={"messages": _MESSAGES, "response_schema": _JSON, "score": _JSON},
    fixed=(
        *("key_id", "mode", "is_canned", "batch_id", "batch_index", "retry_of", "model", "template", "template_version", "messages"),
        *("max_tokens", "temperature", "response_schema", "wants_score", "metadata", "created_at"),
    ),
)
SUMMARIES = WorkspaceTable(GenerationSummary, generations)
_is_owned = generations.c.owner.is_not(None)
Index("ix_generations_lease", generations.c.lease_until, sqlite_where=_is_owned)

batches, BATCHES = map_table(
    "generation_batches",
    GenerationBatch,
    Index("ix_generation_batches_newest", "workspace_id", "created_at", "id"),
    Index("ix_generation_batches_ended_at", "ended_at"),
)

templates = Table(
    "prompt_templates",
    metadata,
    Column("workspace_id", BigInteger, primary_key=True, autoincrement=False),
    Column("slug", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
)
template_versions, TEMPLATES = map_table(
    "prompt_template_versions",
    PromptTemplate,
    Column("workspace_id", BigInteger, primary_key=True, autoincrement=False),
    key=("workspace_id", "slug", "version"),
    codecs={"messages": _MESSAGES, "response_schema": _JSON, "variables": _VARIABLES},
)
"""A version has the time at which its template was created, and that of the version itself as `updated_at`."""


budgets, BUDGETS = map_table("budget_limits", BudgetOverride, key=("workspace_id", "holder", "period"))

spending, SPENDING = map_table("budget_spending", Spending, key=("workspace_id", "holder", "span"))

overruns, OVERRUNS = map_table("cost_overruns", CostOverrun, key=("workspace_id", "model"))

reservations, RESERVATIONS = map_table("content_reservations", CallReservation, Index("ix_content_reservations_lease_until", "lease_until"))
